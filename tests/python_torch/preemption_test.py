"""Processes that train and get SIGTERM: alone, and in jobs of two that torchrun starts, which passes signals on."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import tidemark
from interruption import SEED
from rank_jobs import DEADLINE

PROCESS = pathlib.Path(__file__).with_name("preemption_process.py")
STEPS = 24


def start(framework, folder, ranks, seconds):
    job = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return subprocess.Popen([sys.executable, *job, PROCESS, framework, folder, str(STEPS), str(seconds)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def losses(folder, rank=0):
    """[(step, loss)] of all processes of the rank so far."""
    path = folder / f"losses-{rank}"
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []


def workers_of(pid):
    """The processes that torchrun has started."""
    found = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            of = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            environment = (status.parent / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        rank = [part for part in environment if part.startswith(b"RANK=")]
        if of["PPid"] == str(pid) and rank:
            found[int(rank[0][5:])] = int(of["Pid"])
    return [found[rank] for rank in sorted(found)]


def terminated(framework, folder, ranks, choose):
    """A training that gets SIGTERM in a drawn step: the processes that `choose(torchrun, workers)` says. What torchrun, or the
    process, has ended with."""
    process = start(framework, folder, ranks, 0.1)
    step, after = random.randrange(2, STEPS // 2), random.random() / 10
    print(f"a signal {after:.3f} s after step {step}")
    try:
        deadline = time.monotonic() + DEADLINE
        while len(losses(folder)) < step:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
            time.sleep(0.005)
        time.sleep(after)
        for pid in choose(process.pid, workers_of(process.pid)):
            os.kill(pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    return process.returncode, output


def finish(framework, folder, ranks=1):
    process = start(framework, folder, ranks, 0)
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, output
    return [losses(folder, rank) for rank in range(ranks)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(framework, ranks) -> the losses of each rank in a training that nothing stops."""
    known = {}

    def find(framework, ranks):
        if (framework, ranks) not in known:
            folder = tmp_path_factory.mktemp("whole")
            known[framework, ranks] = finish(framework, folder, ranks)
        return known[framework, ranks]

    random.seed(SEED)
    print(f"seed {SEED}")
    return find


def itself(process, workers):
    return [process]


def all_of_them(torchrun, workers):
    """As Slurm and systemd do. The workers get a second one from torchrun."""
    return [*workers, torchrun]


def rank_1_alone(torchrun, workers):
    return workers[1:]


@pytest.mark.parametrize(("framework", "ranks", "choose", "code"), [
    ("lightning", 1, itself, 0), ("lightning", 2, all_of_them, 1), ("lightning", 2, rank_1_alone, 0),
    ("transformers", 1, itself, 0), ("transformers", 2, all_of_them, 1)])
def test_a_training_that_is_terminated_goes_on_where_it_was(tmp_path, whole, framework, ranks, choose, code):
    returned, output = terminated(framework, tmp_path, ranks, choose)
    assert returned == code and "is committed" in output and "trained to the end" not in output, output
    steps = [info.step for info in tidemark.steps(tmp_path / ("store" if framework == "lightning" else "tidemark"))]
    before = [losses(tmp_path, rank) for rank in range(ranks)]
    assert [int(of_rank[-1][0]) for of_rank in before] == [steps[-1]] * ranks and steps[-1] < STEPS
    assert finish(framework, tmp_path, ranks) == whole(framework, ranks)
