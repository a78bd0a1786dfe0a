#!/usr/bin/env python3
"""Measures Tidemark against other libraries that save checkpoints, all with the same state, and says which goals are met.

  peers.py [--size-mb N] [--dtype mixed|fp32|bf16] [--runs N] [--peer NAME]... [--dir FOLDER] [--state FOLDER]
           [--json FILE] [--plot FILE] [--python ENVIRONMENT=PATH]...

`make bench-peers` runs it; docs/performance.md has the method. Exit codes: 0 all peers were measured or are not installed,
whether or not goals are met; 1 one failed; 2 a wrong command line or too little disk.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
from peer import PEERS, report
from peer.measuring import MemoryPoll
from peer.process import Training
from peer.state import PARTS

STATES_ON_DISK = 5  # the state's file, three checkpoints, and what a library has beside them
LOOP_SECONDS_PER_GB = 0.5
TASK_SECONDS_MAX = 600


class Failed(Exception):
    """What a process of a peer said, or that it did not end."""


class Bench:
    def __init__(self, options, folder, pythons):
        self.options, self.folder, self.pythons = options, folder, pythons
        self.state = os.path.abspath(options.state) if options.state else os.path.join(folder, "state")
        self.work = 0

    def start(self, python, *arguments):
        # One thread of the BLAS of NumPy; everything else has as many as it likes.
        path = os.pathsep.join(filter(None, (str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "TMPDIR": self.folder}
        environment.pop("OMP_NUM_THREADS", None)
        return subprocess.Popen([python, "-m", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, start_new_session=True)

    def finish(self, process, what):
        try:
            said, _ = process.communicate(timeout=TASK_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            said = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # its children, and itself if it hangs
            except ProcessLookupError:
                pass
        if said is None:
            process.communicate()
            raise Failed(f"{what}: no end after {TASK_SECONDS_MAX} s")
        return said

    def make_state(self):
        index = pathlib.Path(self.state, "index.json")
        if not index.exists():
            os.makedirs(self.state, exist_ok=True)
            begin = time.perf_counter()
            process = self.start(self.pythons["torch"], "peer.state", self.state, str(self.options.size_mb), self.options.dtype,
                                 str(self.options.steps))
            said = self.finish(process, "training")
            if not index.exists():
                raise SystemExit(f"peers.py: the state could not be trained:\n{said}")
            print(f"trained the state in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        described = json.loads(index.read_text(encoding="utf-8"))["described"]
        if described["dtype"] != self.options.dtype:
            raise SystemExit(f"peers.py: the state in {self.state} is {described['dtype']}, not {self.options.dtype}")
        # By processor time: on a busy machine a clock would make the loop too short.
        products, took = 8, 0.0
        while took < 0.2:
            products *= 2
            took = Training(products).run()
        self.work = max(int(products * LOOP_SECONDS_PER_GB * described["bytes"] / 1e9 / took), 10)
        return described

    def run(self, name, task, memory=False):
        """What the task has found. Raises Failed, or ImportError if the library is missing."""
        result = pathlib.Path(self.folder, "result.json")
        result.unlink(missing_ok=True)
        job = {"peer": name, "task": task, "folder": os.path.join(self.folder, "store"), "state": self.state, "work": self.work,
               "memory": memory, "result": str(result)}
        process = self.start(self.pythons[PEERS[name].environment], "peer.process", json.dumps(job))
        poll = MemoryPoll(process.pid) if memory else None
        said = self.finish(process, f"{name}: {task}")
        if poll:
            poll.stop()
        if not result.exists():
            raise Failed(f"{name}: {task} ended with {process.returncode}: {said.strip()[-300:]}")
        found = json.loads(result.read_text(encoding="utf-8"))
        if "unavailable" in found:
            raise ImportError(found["unavailable"])
        if "error" in found:
            raise Failed(f"{name}: {task}: {found['error']}")
        if poll:
            found["peaks"] = [poll.peak_above(*found["spans"][first : first + 2]) for first in range(0, len(found["spans"]), 2)]
        return found

    def forget(self):
        shutil.rmtree(os.path.join(self.folder, "store"), ignore_errors=True)


def damage(bench, name, result):
    result.update(bench.run(name, "damage"))


def one_round(bench, name, result):
    """Looking at the memory takes time, so the first round alone does, and is one of those that the medians leave aside."""
    result["rounds"].append(bench.run(name, "round_trip", memory=not result["rounds"]))


def measure(bench, names):
    """What there is of each peer. Ctrl-C and SIGTERM end it early."""
    results = {name: {"rounds": []} for name in names}
    stages = [(f"round {number + 1}", one_round) for number in range(bench.options.runs)]
    stages.insert(1, ("damage", damage))  # a run that is stopped then still has all columns
    try:
        for number, (title, stage) in enumerate(stages):
            turn = number * len(names) // len(stages)
            for name in names[turn:] + names[:turn]:
                if not {"unavailable", "failed"} & results[name].keys():
                    measure_one(bench, name, results[name], title, stage)
    except KeyboardInterrupt:
        print("peers.py: stopped; the medians are those of the rounds so far", file=sys.stderr)
    for result in results.values():
        if not result["rounds"] and "unavailable" not in result:
            result.setdefault("failed", "stopped before it was measured")
    return results


def measure_one(bench, name, result, title, stage):
    begin = time.perf_counter()
    try:
        stage(bench, name, result)
    except ImportError as missing:
        result["unavailable"] = str(missing)
    except Failed as failure:
        result["failed"] = str(failure)
    bench.forget()
    why = result.get("unavailable", result.get("failed", ""))
    print(f"{title}: {name}: {time.perf_counter() - begin:.1f} s {why}", file=sys.stderr, flush=True)


def conditions(options, described, seconds):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    return {"date": time.strftime("%Y-%m-%d"), "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(),
            "load": [round(load, 1) for load in os.getloadavg()], "python": platform.python_version(), "numpy": np.__version__,
            "runs": options.runs, "seconds": round(seconds), "state": described}


def arguments():
    parser = argparse.ArgumentParser(description="Measures Tidemark against other libraries that save checkpoints.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size-mb", type=float, default=1400, help="size of the state, in millions of bytes")
    parser.add_argument("--dtype", choices=PARTS, default="mixed",
                        help="mixed: weights in bfloat16 and float32, moments in float32; fp32, bf16: all in one")
    parser.add_argument("--steps", type=int, default=12, help="steps of the training that makes the state")
    parser.add_argument("--runs", type=int, default=5, help="rounds; the table has their medians")
    parser.add_argument("--peer", action="append", choices=PEERS, help="measure this one; may be given several times")
    parser.add_argument("--dir", default=".", help="where files are written, in a folder that is removed at the end")
    parser.add_argument("--state", help="folder of the state: used if it is there, otherwise made and kept")
    parser.add_argument("--json", help="write all figures to this file as well")
    parser.add_argument("--plot", help="draw the table into this file (PNG)")
    parser.add_argument("--python", action="append", default=[], metavar="ENVIRONMENT=PATH",
                        help="the Python of an environment, torch or jax; default: the one that runs this")
    options = parser.parse_args()
    if options.size_mb < 1 or options.runs < 1 or options.steps < 1:
        parser.error("--size-mb, --runs and --steps are at least 1")
    pythons = {"torch": sys.executable, "jax": sys.executable}
    for given in options.python:
        name, _, path = given.partition("=")
        if name not in pythons or not os.access(path, os.X_OK):
            parser.error(f"--python {given}: expected torch=PATH or jax=PATH, with a Python at the path")
        pythons[name] = path
    if not os.path.isdir(options.dir):
        parser.error(f"--dir {options.dir}: no such folder")
    needed = int(STATES_ON_DISK * options.size_mb * 1e6) + (64 << 20)
    free = shutil.disk_usage(options.dir).free
    if free < needed:
        parser.error(f"--dir {options.dir}: {needed / 1e9:.1f} GB are needed, and {free / 1e9:.1f} GB are free")
    return options, pythons


def main():
    options, pythons = arguments()
    names = list(dict.fromkeys(options.peer or PEERS))
    begin = time.perf_counter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-", dir=os.path.abspath(options.dir)) as folder:
        bench = Bench(options, folder, pythons)
        described = bench.make_state()
        results = measure(bench, names)
    found = report.summary(conditions(options, described, time.perf_counter() - begin), results)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        report.plot(found, options.plot)
    print(report.markdown(found))
    return 1 if any("failed" in peer for peer in found["peers"]) else 0


if __name__ == "__main__":
    sys.exit(main())
