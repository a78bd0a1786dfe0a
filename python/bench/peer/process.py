"""One task with one library, in a process of its own, for python/bench/peers.py.

  python -m peer.process JOB

JOB is a JSON object: `peer`, `task` (a function below), `folder` of the checkpoints, `state` (folder of the state), `work`,
`memory` (the memory is looked at) and `result`, the file for what the task has found.
"""

import json
import os
import pathlib
import sys
import threading
import time
import traceback

import numpy as np

from . import PEERS, measuring, peer_class
from .state import arrays_of, differences

LOOP_STEPS = 10
WARM_UP_BYTES = 1 << 20
LOOPS_BEFORE_FIRST_SAVE = 4  # what a library begins when the training does has ended by then
PLACES = (1 / 2, 1 / 3, 2 / 3, 1 / 5, 4 / 5)  # of a file, at which a byte is flipped
DAMAGED_BYTES_MAX = 16 << 20


class Training:
    """A loop of fixed work on one thread, which stands for the training. It leaves the arrays alone."""

    def __init__(self, products):
        self.products = products
        self.matrix = np.random.default_rng(1).standard_normal((384, 384), np.float32)

    def run(self, before_update=lambda: None):
        """Processor seconds of the work. `before_update` is called once in every step."""
        spent = 0.0
        for step in range(LOOP_STEPS):
            begin = time.thread_time()
            for _ in range(self.products * (step + 1) // LOOP_STEPS - self.products * step // LOOP_STEPS):
                self.matrix @ self.matrix
            spent += time.thread_time() - begin
            before_update()
        return spent

    def seconds(self):
        begin = time.perf_counter()
        self.run()
        return time.perf_counter() - begin


def measured_save(job, peer, step, state, training):
    """One pass of the loop with a save at its beginning."""
    times = {}

    def watch(wait):
        try:
            wait()
            times["done"] = time.perf_counter()
            measuring.sync_file_system(job["folder"])
            times["durable"] = time.perf_counter()
        except BaseException as error:
            times["error"] = error

    measuring.sync_file_system(job["folder"])
    cpu = measuring.cpu_seconds()
    begin = time.perf_counter()
    wait = peer.save(step, state)
    called = time.perf_counter()
    watcher = threading.Thread(target=watch, args=(wait,))
    watcher.start()
    worked = training.run(peer.before_update)
    end = time.perf_counter()
    watcher.join()
    if "error" in times:
        raise times["error"]
    return {"call": called - begin, "loop": end - begin, "done": times["done"] - begin, "durable": times["durable"] - begin,
            "cpu": measuring.cpu_seconds() - cpu - worked}


def round_trip(job, kind):
    """The first save of the process, and one more; each in a loop, with loops without a save around it. With `memory` a third
    one, behind which the training changes its arrays as soon as it may. Then the last one is given back with cold caches."""
    arrays = arrays_of(job["state"])
    peer = kind(job["folder"])
    state = peer.arrays.read(job["state"], arrays)
    training = Training(job["work"])
    training.seconds()  # which takes memory of its own
    before = time.time()  # memory that a library takes ahead of its first save belongs to that save
    peer.begin(state)
    found, alone, spans = {}, [training.seconds() for _ in range(LOOPS_BEFORE_FIRST_SAVE)], []
    for step, name in ((1, "first"), (2, "warm")):
        spans.append(time.time() if spans else before)
        found[name] = measured_save(job, peer, step, state, training)
        spans.append(time.time())
        alone.append(training.seconds())
        found[name]["blocked"] = found[name]["loop"] - (alone[-2] + alone[-1]) / 2
        if step == 1:
            found["stored_bytes"] = measuring.stored_bytes(job["folder"])
            peer.arrays.change(state)
    if job["memory"]:
        step = 3
        spans.append(time.time())
        wait = peer.save(step, state)
        peer.before_update()
        peer.arrays.change(state)
        wait()
        spans.append(time.time())
    found.update(alone=alone, spans=spans)
    peer.close()
    del state
    warm_up(job, kind)
    reader = kind(job["folder"], reading=True)
    destination = reader.arrays.destination(arrays) if reader.fills else None
    measuring.drop_cache(job["folder"])
    cpu = measuring.cpu_seconds()
    begin = time.perf_counter()
    restored = reader.restore(step, destination)
    found["restore"] = {"seconds": time.perf_counter() - begin, "cpu": measuring.cpu_seconds() - cpu}
    found["different"] = differences(job["state"], arrays, lambda name: reader.arrays.raw(restored[name]), was_changed=True)
    return found


def warm_up(job, kind):
    """A little checkpoint and its restore, so that modules are there that are imported late."""
    folder = os.path.join(job["folder"], "little")
    arrays = arrays_of(job["state"], WARM_UP_BYTES)
    save_one(job, kind, folder, arrays)
    peer = kind(folder, reading=True)
    peer.restore(1, peer.arrays.destination(arrays) if peer.fills else None)
    peer.close()


def save_one(job, kind, folder, arrays):
    peer = kind.plain(folder)
    peer.save(1, peer.arrays.read(job["state"], arrays))()
    files = peer.data_files(1)
    peer.close()
    return files


def damage(job, kind):
    """What a restore says of a checkpoint whose largest file has one other byte, or lacks its last tenth."""
    arrays = arrays_of(job["state"], DAMAGED_BYTES_MAX)
    found = {}
    for place in PLACES:
        found["flip"] = after(job, kind, arrays, f"flip-{place:.2f}", lambda path, size: flip(path, int(size * place)))
        if found["flip"]["outcome"] != "harmless":
            break
    found["truncation"] = after(job, kind, arrays, "truncation", lambda path, size: os.truncate(path, size * 9 // 10))
    return found


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def after(job, kind, arrays, name, harm):
    folder = os.path.join(job["folder"], name)
    victim = max(save_one(job, kind, folder, arrays), key=os.path.getsize)
    harm(victim, os.path.getsize(victim))
    return outcome(job, kind, folder, arrays)


def outcome(job, kind, folder, arrays):
    peer = kind(folder, reading=True)
    try:
        restored = peer.restore(1, peer.arrays.destination(arrays) if peer.fills else None)
        different = differences(job["state"], arrays, lambda name: peer.arrays.raw(restored[name]), was_changed=False)
    except BaseException as error:  # DCP's is no Exception
        return {"outcome": "noticed", "message": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    finally:
        peer.close()
    return {"outcome": "silent" if different else "harmless", "different": len(different)}


TASKS = {"round_trip": round_trip, "damage": damage}


def version(distribution):
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "this tree"


def main():
    job = json.loads(sys.argv[1])
    try:
        kind = peer_class(job["peer"])
        found = {"version": version(PEERS[job["peer"]].distribution), **TASKS[job["task"]](job, kind)}
    except ImportError as error:
        found = {"unavailable": str(error)}
    except BaseException as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    pathlib.Path(job["result"]).write_text(json.dumps(found), encoding="utf-8")
    sys.stderr.flush()
    # What a library has left running must not hold up the process, and its children end with it.
    os._exit(0)


if __name__ == "__main__":
    main()
