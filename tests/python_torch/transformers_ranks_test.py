"""tidemark.transformers in a job of two processes, over Gloo. The tests look at what the job has found."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import tidemark
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import transformers_process as process  # noqa: E402
from rank_jobs import DEADLINE  # noqa: E402
from transformers_test import committed, make  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Transformers' advice
PROCESS = pathlib.Path(process.__file__)
SAVED = [5, 10, 15, 20, 24]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder of the job and what each rank has found. Before that one process has trained in the folder "single"."""
    folder = tmp_path_factory.mktemp("job")
    make(folder / "single", max_steps=10).train()
    launched = subprocess.run([sys.executable, PROCESS, folder], text=True, capture_output=True, timeout=2 * DEADLINE,
                              env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
    assert launched.returncode == 0, launched.stderr
    return folder, [json.loads((folder / f"found-{rank}").read_text()) for rank in (0, 1)]


def store(folder, name):
    return folder / name / "tidemark"


def test_a_job_whose_rank_is_killed_resumes_bit_for_bit(job):
    folder, found = job
    for rank in found:
        assert rank["killed"] == rank["whole"]
    assert found[0]["whole"][:2] == found[1]["whole"][:2] and found[0]["whole"][2] != found[1]["whole"][2]  # the generators
    assert sorted(committed(store(folder, "killed"))) == SAVED


def test_all_ranks_resume_the_step_that_is_named(job):
    _, found = job
    assert [rank["again"] for rank in found] == [rank["whole"] for rank in found]


def test_what_is_the_same_is_written_once(job):
    folder, _ = job
    with tidemark.open(store(folder, "whole")) as step:
        names = {name for name in step.value_keys() if not name.startswith(("files.", "optimizer."))}
        assert names == {"rng", "rng.1", "scheduler", "trainer_state"}
        assert "files.config.json" in step.value_keys() and json.loads(step.get_value("trainer_state"))["global_step"] == 24
    assert tidemark.verify(store(folder, "whole")).damage == []


def test_rank_0_alone_evaluates(job):
    folder, found = job
    assert [rank["evaluations"] for rank in found] == [5, 0] and [rank["skipped"] for rank in found] == [[], []]
    steps = committed(store(folder, "whole"))
    assert all("validation/loss" in steps[step].metrics for step in (5, 10))  # the later ones were saved again


def test_the_best_model_is_loaded_on_all_ranks(job):
    folder, found = job
    assert found[0]["best"] == found[1]["best"] and set(committed(store(folder, "best"))) == {found[0]["best"][0], 24}
    assert sums(store(folder, "best"), found[0]["best"][0]) == found[0]["best"][1] != sums(store(folder, "best"), 24)


def sums(path, number):
    """Of the model's tensors in a step, in their order."""
    with tidemark.open(path, number, framework="pt") as step:
        names = make(path.parent).model.state_dict()
        return torch.cat([step.get_tensor(f"model.{name}").flatten() for name in names]).sum().item().hex()


def test_the_callback_saves_on_all_ranks(job):
    folder, found = job
    assert [rank["callback"] for rank in found] == [rank["whole"] for rank in found]  # saving changes nothing
    steps = committed(folder / "callback")
    assert sorted(steps) == [10, 20] and all("validation/loss" in info.metrics for info in steps.values())
    with tidemark.open(folder / "callback") as step:
        assert "rng.1" in step.value_keys() and "trainer_state" in step.value_keys()


def test_two_processes_go_on_from_one(job):
    folder, found = job
    assert [rank["single"][:2] for rank in found] == [process_alone(folder, "single")[:2]] * 2
    # Rank 0 has the generators of the step, rank 1 those that it began with.
    assert found[0]["single"][2] == process_alone(folder, "single")[2] != found[1]["single"][2]


def test_one_process_goes_on_from_two(job):
    folder, found = job
    step, total, number = process_alone(folder, "whole")
    assert (step, number) == (24, found[0]["whole"][2])
    with tidemark.open(store(folder, "whole"), framework="pt") as opened:
        assert total == sum(opened.get_tensor(f"model.{name}").sum() for name in make(folder).model.state_dict()).item().hex()


def process_alone(folder, name):
    return process.begun(folder / name)


def test_what_cannot_be_done_is_refused_on_all_ranks(job):
    _, found = job
    for rank in (0, 1):
        refused = found[rank]["refused"]
        assert refused["ranks"] == ("InvalidArgumentError: ranks say that this is rank 0 of 1, and for the Trainer it is rank "
                                    f"{rank} of 2")
        assert "checkpointer_options takes no when_full='skip': with ranks" in refused["skips"]
        assert refused["jit"].startswith("InvalidArgumentError: enable_jit_checkpoint has each process save at a step of its own")
        assert refused["sharded"] == ("UnimplementedError: TidemarkTrainerMixin does not save sharded models (is_fsdp_enabled)")
        assert refused["kind"].startswith("UnimplementedError: tidemark.transformers does not save with several processes of the "
                                          "kind MEGATRON_LM")
    assert found[0]["refused"]["no_step"].startswith("NotFoundError: step 77 is not in")
    assert found[1]["refused"]["no_step"].startswith("AbortedError: rank 0 could not choose the step: NotFoundError: step 77")


def test_an_error_of_one_rank_is_one_of_all_before_they_go_on_together(job):
    _, found = job
    of_0, of_1 = (rank["of_one_rank"] for rank in found)
    assert of_1["folder"] == "OSError: the disk is full"
    assert of_0["folder"] == "AbortedError: rank 1 could not write a trainer_state.json: OSError: the disk is full"
    for where in ("evaluators", "callback"):
        assert of_0[where] == "TypeError: no copy"
        assert of_1[where] == "AbortedError: rank 0 could not add the evaluators: TypeError: no copy"
    assert of_0["best"] == "ValueError: not committed"
    assert of_1["best"] == "AbortedError: rank 0 could not wait for the saves: ValueError: not committed"


def test_a_rank_that_cannot_save_ends_the_others(job):
    folder, found = job
    assert found[0]["failing"][0] == "ValueError: this has no state"
    assert found[1]["failing"][0].startswith("RuntimeError") and "gloo" in found[1]["failing"][0]  # of DDP
    assert any("ValueError: this has no state" in line for line in found[1]["failing"][1:])
    assert committed(store(folder, "failing")) == {}
