"""torchdata's StatefulDataLoader in a state: a killed run gets the batches that the run without kills gets."""

import json
import pathlib
import signal
import subprocess
import sys

import data_loader_process
import pytest
import tidemark

PROGRAM = pathlib.Path(data_loader_process.__file__)
# torchdata calls what this PyTorch has deprecated, and a test's own process has threads when it forks workers.
pytestmark = pytest.mark.filterwarnings("ignore")


def run(store, kind, workers, *kill):
    """(how many batches were read before, the batches that it has read)"""
    result = subprocess.run([sys.executable, PROGRAM, store, kind, str(workers), *map(str, kill)], capture_output=True, text=True,
                            timeout=300)
    assert result.returncode == (-signal.SIGKILL if kill else 0), result.stderr
    resumed, *batches = map(json.loads, result.stdout.splitlines())
    return resumed["resumed"], batches


@pytest.mark.parametrize("kind", ["shuffled", "stream"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_goes_on_with_the_remaining_batches(tmp_path, kind, workers):
    before, whole = run(tmp_path / "whole", kind, workers)
    first_epoch = sum(epoch == 0 for epoch, _ in whole)
    assert before == 0 and 3 < first_epoch < len(whole) - 3 and len({str(batch) for batch in whole}) == len(whole)
    done = 0
    for kill in (3, first_epoch):  # in the middle of an epoch, and at its end
        resumed, batches = run(tmp_path / "store", kind, workers, kill)
        assert resumed in (done - 1, done) if done else resumed == 0  # the last save may not have been committed
        assert batches == whole[resumed:kill]
        done = kill
    resumed, batches = run(tmp_path / "store", kind, workers)
    assert resumed in (done - 1, done) and batches == whole[resumed:]


@pytest.mark.parametrize("kind", ["shuffled", "stream"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_roll_back_reads_the_same_batches_again(tmp_path, kind, workers):
    loader = data_loader_process.make_loader(kind, workers)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        batches = iter(loader)
        read = [next(batches) for _ in range(2)]
        checkpointer.save(1, {"loader": loader})
        read += [next(batches) for _ in range(4)]
        checkpointer.restore({"loader": loader}, 1)
        again = iter(loader)
        assert [next(again).tolist() for _ in range(4)] == [batch.tolist() for batch in read[2:]]
    with tidemark.open(tmp_path / "store", framework="pt") as step:
        stored = step.get_value("loader")
    counts = stored if workers == 0 else stored["_snapshot"]
    assert counts["_num_yielded" if workers == 0 else "_snapshot_step"] == 2
    if kind == "shuffled":
        sampler = (stored if workers == 0 else counts["_main_snapshot"])["_sampler_iter_state"]["sampler_iter_state"]
        assert sampler["yielded"] == 8 and sampler["generator"].shape == (5056,)
