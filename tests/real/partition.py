"""Two ranks on two machines that lose the network between them; as root: each is a process in a network namespace of its own.

    partition.py        with the package and PyTorch on Python's path; `make partition`

The ranks talk by Gloo over a pair of virtual devices, and share the store by the file system of this machine, as they would
share a file server that both still reach. The network is cut at several moments. Each rank must then be told something within
the timeout of its process group, and what was committed must be there for a job that is started again.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

TIMEOUT = 8.0  # seconds, of the process group
ANSWER = 60.0  # within which each rank must have ended
NAMES = ("tmk-rank-0", "tmk-rank-1")
ADDRESSES = ("10.219.7.1", "10.219.7.2")


# --- A rank ---


def rank_main(rank, case, folder):
    import datetime

    import numpy
    import torch.distributed

    import tidemark

    folder = pathlib.Path(folder)
    os.environ["GLOO_SOCKET_IFNAME"] = "net"
    meeting = f"tcp://{ADDRESSES[0]}:{29400 + os.getppid() % 500}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2,
                                         timeout=datetime.timedelta(seconds=TIMEOUT))
    ranks = tidemark.Ranks.of_torch(vote_timeout=20.0, outcome_margin=5.0)
    state = {"weight": tidemark.Box(numpy.full((4, 6), -1.0), (8, 6), (4 * rank, 0)), f"seed.{rank}": 0}

    def say(what):
        print(f"{time.monotonic():.3f} {what}", flush=True)

    def wait_for(name):
        say(f"waits for {name}")
        while not (folder / name).exists():
            time.sleep(0.01)

    def save(step):
        state["weight"].array[...] = step
        state[f"seed.{rank}"] = 10 * step + rank
        return checkpointer.save(step, state).committed.result(ANSWER)

    if case == "open":
        wait_for("cut")
    try:
        with tidemark.Checkpointer(folder / "store", ranks=ranks) as checkpointer:
            first = checkpointer.resume(state)
            if first > 0:
                assert (state["weight"].array == first - 1).all() and state[f"seed.{rank}"] == 10 * (first - 1) + rank
            say(f"resumed {first}")
            say(f"saved {save(first)}")
            if case == "whole":
                return
            wait_for("cut")
            if case == "save":
                # Votes and outcomes go by files.
                say(f"saved {save(first + 1)}")
                say(f"saved {save(first + 2)}")
            elif case == "restore":
                checkpointer.restore(state)
            elif case == "end":
                guard = tidemark.PreemptionGuard(signals=(), grace=30.0, end=time.time() + (1e9 if rank else 30.0))
                say(f"is to end: {guard.preempted_on_any_rank(checkpointer)}")
    except tidemark.Error as error:
        say(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    say("ended")
    os._exit(0)  # PyTorch would wait for the network


# --- Both machines ---


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def two_machines():
    for name in NAMES:
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)
        ip("netns", "add", name)
    try:
        ip("-n", NAMES[0], "link", "add", "net", "type", "veth", "peer", "name", "net", "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "net")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "net", "up")
        yield
    finally:
        for name in NAMES:
            ip("netns", "delete", name)


def run(case, folder):
    """The lines of both ranks behind the cut, and after how many seconds the last of them ended."""
    (folder / "cut").unlink(missing_ok=True)
    logs = [folder / f"{case}-{rank}.log" for rank in range(2)]
    warnings = [log.with_suffix(".err") for log in logs]
    processes = []
    for rank, name in enumerate(NAMES):
        with open(logs[rank], "w", encoding="utf-8") as log, open(warnings[rank], "w", encoding="utf-8") as warned:
            command = ["ip", "netns", "exec", name, sys.executable, __file__, str(rank), case, str(folder)]
            processes.append(subprocess.Popen(command, stdout=log, stderr=warned))
    try:
        if case != "whole":
            deadline = time.monotonic() + ANSWER
            while not all("waits for cut" in log.read_text(encoding="utf-8") for log in logs):
                assert time.monotonic() < deadline, [log.read_text(encoding="utf-8") for log in logs]
                time.sleep(0.02)
            ip("-n", NAMES[0], "link", "set", "net", "down")
        begin = time.monotonic()
        (folder / "cut").touch()
        for process in processes:
            process.wait(ANSWER)
        took = time.monotonic() - begin
    finally:
        for process in processes:
            process.kill()
            process.wait()
        ip("-n", NAMES[0], "link", "set", "net", "up")
    found = []
    for rank, log in enumerate(logs):
        text = log.read_text(encoding="utf-8")
        assert processes[rank].returncode == 0, text + warnings[rank].read_text(encoding="utf-8")
        found.append([line.partition(" ")[2] for line in text.splitlines()])
    return found, took


def expect(condition, found):
    if not condition:
        raise SystemExit(f"not what it should be: {found}")


def main():
    if os.geteuid() != 0:
        raise SystemExit("partition.py: run it as root: it makes network namespaces")
    if shutil.which("ip") is None:
        raise SystemExit("partition.py: there is no program ip: install iproute2")
    with tempfile.TemporaryDirectory(prefix="tidemark-partition-") as name, two_machines():
        folder, saved = pathlib.Path(name), -1

        def show(case, found, took):
            print(f"{case}: {took:.1f} s")
            for rank, lines in enumerate(found):
                for line in lines:
                    print(f"  rank {rank}: {line}")

        for case in ("whole", "save", "restore", "end", "open", "whole"):
            found, took = run(case, folder)
            show(case, found, took)
            if case == "open":  # nobody holds the store without the other
                expect(all(any("Error" in line for line in lines) for lines in found), found)
                continue
            for lines in found:
                expect(lines[0] == f"resumed {saved + 1}" and lines[1] == f"saved {saved + 1}", found)
            saved += 1
            if case == "save":
                expect(all(f"saved {saved + 2}" in lines for lines in found), found)
                saved += 2
            elif case == "restore":
                expect(all(any("Error" in line for line in lines) for lines in found), found)
            elif case == "end":  # each goes by its own signals, with a warning
                expect("is to end: True" in found[0] and "is to end: False" in found[1], found)
    print("every rank was told within the deadline, and nothing that was committed was lost")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank_main(int(sys.argv[1]), *sys.argv[2:])
    else:
        main()
