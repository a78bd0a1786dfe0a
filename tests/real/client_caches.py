"""Machines that share a store on a file server whose clients remember what they have seen; as root.

    client_caches.py [SECONDS [absence]]      with the package and PyTorch on Python's path; `make client-caches`

Each machine is a mount of the same folder by bindfs (FUSE). The kernel caches names and attributes for each mount, for
SECONDS (default 5). A lock on one mount does not exclude the others. NFS caches attributes for 3 to 60 seconds.

With "absence" the kernel also caches that a name does not exist. On NFS a client drops that when it changes the folder itself;
here it does not. So an opening may fail for SECONDS on a machine that has looked for a journal entry before the entry existed.

What must hold: ranks on different machines commit steps together; a job that is started again, on other machines and with
another number of ranks, has the last step; a worker on another machine evaluates every step; a second trainer on another
machine ends the first one's saves and loses none of its steps.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ANSWER = 90.0  # seconds within which each process must have ended
MACHINES = 3
ROWS = 12


# --- A process on one machine ---


def say(what):
    print(what, flush=True)


def rank_main(store, rank, world_size, port, first, count):
    import numpy
    import torch.distributed

    import tidemark

    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    rows = [ROWS * edge // world_size for edge in (rank, rank + 1)]
    weight = numpy.full((rows[1] - rows[0], 4096), -1.0, dtype="float32")
    state = {"weight": tidemark.Box(weight, (ROWS, 4096), (rows[0], 0))}
    with tidemark.Checkpointer(store, ranks=tidemark.Ranks.of_torch(vote_timeout=60.0, outcome_margin=20.0)) as checkpointer:
        resumed = checkpointer.resume(state)
        assert resumed == first, (resumed, first)
        assert first == 0 or (weight == first - 1).all(), weight
        for step in range(first, first + count):
            weight[...] = step
            begin = time.monotonic()
            checkpointer.save(step, state).committed.result(ANSWER)
            say(f"committed {step} {time.monotonic() - begin:.3f}")
    os._exit(0)  # PyTorch waits for the others otherwise


def trainer_main(store, first, count, pause):
    import numpy

    import tidemark

    weight = numpy.full(4096, -1.0)
    with tidemark.Checkpointer(store) as checkpointer:
        assert checkpointer.resume({"weight": weight}) == first
        say("open")
        for step in range(first, first + count):
            weight[...] = step
            checkpointer.save(step, {"weight": weight}).committed.result(ANSWER)
            say(f"committed {step}")
            time.sleep(pause)


def holder_main(store, first):
    """Saves until another trainer has taken the store."""
    import numpy

    import tidemark

    weight = numpy.full(4096, -1.0)
    checkpointer = tidemark.Checkpointer(store)
    checkpointer.resume({"weight": weight})
    for step in range(first, first + 10000):
        weight[...] = step
        try:
            checkpointer.save(step, {"weight": weight}).committed.result(ANSWER)
        except tidemark.Error as error:
            say(f"refused {step}: {type(error).__name__}: {str(error).splitlines()[0]}")
            break
        say(f"committed {step}")
        time.sleep(0.1)
    os._exit(0)


def worker_main(store, until):
    import tidemark

    def evaluate(snapshot):
        values = snapshot["weight"]
        assert (values == snapshot.step).all(), (snapshot.step, values)
        return {"mean": float(values.mean())}

    tidemark.follow(store, evaluate, evaluator="mean", until_step=until, poll_interval=0.2)
    say("followed")


ROLES = {"rank": rank_main, "trainer": trainer_main, "holder": holder_main, "worker": worker_main}


# --- All machines ---


class Machines:
    def __init__(self, folder, seconds, absence):
        self.folder, self.logs = folder, 0
        self.server = folder / "server"
        (self.server / "store").mkdir(parents=True)
        self.mounts = [folder / f"machine{number}" for number in range(MACHINES)]
        for mount in self.mounts:
            mount.mkdir()
            cached = ",".join(f"{what}_timeout={seconds}" for what in ["attr", "entry"] + ["negative"] * absence)
            subprocess.run(["bindfs", "-o", cached, self.server, mount], check=True)

    def close(self):
        for mount in self.mounts:
            subprocess.run(["fusermount3", "-u", mount], check=False)

    def start(self, machine, role, *arguments):
        self.logs += 1
        log = self.folder / f"{self.logs}.log"
        with open(log, "w", encoding="utf-8") as file, open(log.with_suffix(".err"), "w", encoding="utf-8") as warned:
            store = self.mounts[machine] / "store"
            process = subprocess.Popen([sys.executable, __file__, role, str(store), *map(str, arguments)],
                                       stdout=file, stderr=warned)
        process.log = log
        return process

    def finish(self, *processes):
        """The lines of each."""
        deadline = time.monotonic() + ANSWER
        found = []
        try:
            for process in processes:
                process.wait(max(deadline - time.monotonic(), 0.1))
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for process in processes:
            text = process.log.read_text(encoding="utf-8")
            assert process.returncode == 0, text + process.log.with_suffix(".err").read_text(encoding="utf-8")
            found.append(text.splitlines())
        return found

    def ranks(self, machines, port, first, count):
        processes = [self.start(machine, "rank", rank, len(machines), port, first, count)
                     for rank, machine in enumerate(machines)]
        return self.finish(*processes)


def wait_for(process, text):
    deadline = time.monotonic() + ANSWER
    while text not in process.log.read_text(encoding="utf-8"):
        said = process.log.with_suffix(".err").read_text(encoding="utf-8")
        assert time.monotonic() < deadline and process.poll() is None, said
        time.sleep(0.02)


def expect(condition, found):
    if not condition:
        raise SystemExit(f"not what it should be: {found}")


def ranks_commit_together(machines):
    port = 29400 + os.getpid() % 500
    step = 0
    for world in ((0, 1, 2), (2, 0), (1, 2, 0)):
        found = machines.ranks(world, port, step, 4)
        took = [float(line.split()[2]) for lines in found for line in lines if line.startswith("committed ")]
        expect(len(took) == 4 * len(world), found)
        step += 4
        print(f"ranks on machines {world}: 4 steps committed on all; {min(took):.2f} to {max(took):.2f} s for a save")


def a_worker_elsewhere_evaluates_every_step(machines, first=0, count=12):
    import tidemark

    trainer = machines.start(0, "trainer", first, count, 0.3)
    wait_for(trainer, f"committed {first}")  # the worker finds a store
    worker = machines.start(1, "worker", first + count - 1)
    begin = time.monotonic()
    machines.finish(trainer, worker)
    with tidemark.open(machines.mounts[2] / "store") as step:
        expect(step.info.step == first + count - 1, step.info)
    evaluated = {info.step for info in tidemark.steps(machines.mounts[2] / "store")
                 if any(row.evaluator == "mean" for row in info.evaluations)}
    expect(evaluated == set(range(first, first + count)), evaluated)
    print(f"a worker on another machine evaluated {count} steps in {time.monotonic() - begin:.1f} s")


def a_second_trainer_ends_the_first_ones_saves(machines, first=12):
    import tidemark

    holder = machines.start(0, "holder", first)
    wait_for(holder, f"committed {first + 2}")
    acknowledged = len([line for line in holder.log.read_text(encoding="utf-8").splitlines() if line.startswith("committed")])
    # The lock does not reach. The second finds the first one's steps, perhaps but those of the last seconds.
    second = machines.start(1, "holder", 100000)
    wait_for(second, "committed 100001")
    [lines] = machines.finish(holder)
    expect(lines[-1].startswith("refused "), lines)
    second.send_signal(signal.SIGKILL)
    second.wait()
    committed = [int(line.split()[1]) for line in lines if line.startswith("committed")]
    expect(len(committed) >= acknowledged, lines)
    steps = {info.step for info in tidemark.steps(machines.mounts[2] / "store") if info.state == "committed"}
    expect(set(committed) <= steps and 100001 in steps, (sorted(set(committed) - steps), sorted(steps)[-3:]))
    print(f"the first trainer was refused at step {lines[-1].split()[1].rstrip(':')}; none of its {len(committed)} steps is lost")
    print(f"  {lines[-1]}")


def main(seconds, absence):
    if os.geteuid() != 0:
        raise SystemExit("client_caches.py: run it as root: it mounts file systems")
    if shutil.which("bindfs") is None:
        raise SystemExit("client_caches.py: there is no program bindfs: install bindfs")
    for case in (ranks_commit_together, a_worker_elsewhere_evaluates_every_step):
        with tempfile.TemporaryDirectory(prefix="tidemark-clients-") as name:
            with contextlib.closing(Machines(pathlib.Path(name), seconds, absence)) as machines:
                case(machines)
                if case is a_worker_elsewhere_evaluates_every_step:
                    a_second_trainer_ends_the_first_ones_saves(machines)
    print("no step that was committed was lost")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](sys.argv[2], *(float(word) if "." in word else int(word) for word in sys.argv[3:]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0, sys.argv[2:] == ["absence"])
