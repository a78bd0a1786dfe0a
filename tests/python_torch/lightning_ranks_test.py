"""tidemark.lightning in jobs of two processes, over Gloo. Most tests look at what one job has found."""

import json
import pathlib
import subprocess
import sys

import pytest
import tidemark
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import lightning_process as process  # noqa: E402
from rank_jobs import DEADLINE, run_processes  # noqa: E402
from tidemark.lightning import TidemarkCheckpoint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice
PROCESS = pathlib.Path(process.__file__)
ALONE = {"strategy": "auto", "devices": 1}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder of the job, what one process that trained there before had at its end, and what each rank has found. It goes on
    where a job that Lightning has started was killed."""
    folder = tmp_path_factory.mktemp("job")
    model, _ = process.fit(folder, [TidemarkCheckpoint(folder / "store" / "single")], 2, **ALONE)
    killed = subprocess.run([sys.executable, PROCESS, "kill", folder / "store"], capture_output=True, text=True, timeout=DEADLINE)
    assert killed.returncode != 0 and max(committed(folder / "store" / "killed")) in (3, 6), killed.stderr
    found = [json.loads(text) for text in run_processes(PROCESS, folder, 2)]
    return folder / "store", process.digest(model), found


def committed(store):
    return {info.step: info for info in tidemark.steps(store) if info.state == "committed"}


def test_each_rank_resumes_bit_for_bit(job):
    _, _, found = job
    for rank in found:
        assert rank["fresh"] is None and rank["resumed"] == rank["whole"] and rank["steps"] == 3 * process.EPOCHS
    assert found[0]["whole"][:2] == found[1]["whole"][:2] and found[0]["whole"][2] != found[1]["whole"][2]  # the generators


def test_the_best_steps_are_those_of_rank_0(job):
    folder, _, _ = job
    steps = committed(folder / "parts")
    assert set(steps) == {3, 6, 12}  # by the losses of rank 1: 9, 12
    assert all(info.metrics["val_loss"] >= 10 * step for step, info in steps.items())


def test_the_clock_of_rank_0_decides(job):
    folder, _, found = job
    assert [rank["by_time"] for rank in found] == ["", ""] and list(committed(folder / "by_time")) == [1, 2, 3, 4, 5, 6]


def test_a_step_whose_validation_one_rank_has_ended_gets_its_metrics_when_all_have_run_it_again(job):
    folder, _, found = job
    for rank in found:
        assert rank["preempted"] == {"code": 0, "step": 6, "before": [{}], "resumed": rank["whole"]}
    steps, expected = committed(folder / "preempted"), committed(folder / "all")
    assert set(steps) == {3, 6, 9, 12} and {n: steps[n].metrics for n in steps} == {n: expected[n].metrics for n in expected}


def test_rank_0_alone_evaluates(job):
    folder, _, found = job
    assert [rank["evaluations"] for rank in found] == [4, 0] and [rank["skipped"] for rank in found] == [[], []]
    assert all("validation/norm" in info.metrics for info in committed(folder / "parts").values())


def test_what_is_the_same_is_written_once_and_buffers_are_of_rank_0(job):
    folder, _, found = job
    with tidemark.open(folder / "parts", framework="pt") as step:
        assert sorted(step.value_keys()) == ["lightning", "optimizers", "rng.1"]
        assert not any(step.get_tensor(f"model.{name}").any() for name in ("some", "others"))
        weights = torch.cat([step.get_tensor("model.layer.1.weight").flatten(), step.get_tensor("model.layer.1.bias")])
    assert weights.sum().item().hex() == found[0]["whole"][0]


def test_a_hyperparameter_that_is_also_a_buffer_is_saved_beside_it(job):
    folder, _, _ = job
    with tidemark.open(folder / "parts", framework="pt") as step:
        assert torch.equal(step.get_tensor("lightning.hyper_parameters.weights"), step.get_tensor("model.criterion.weight"))


def test_a_checkpoint_that_differs_is_an_error_on_all_ranks_that_names_the_first_tensor(job):
    folder, _, found = job
    of_0, of_1 = (rank["edited"] for rank in found)
    assert of_1["more"] == ("InvalidArgumentError: 'model.more' is torch.float32 [3] on rank 0, and missing on rank 1. Hooks "
                            "such as on_save_checkpoint are to change the checkpoint alike on all ranks")
    assert of_1["half"].startswith("InvalidArgumentError: 'model.layer.1.bias' is torch.float32 [2] on rank 0, and torch.float16 "
                                   "[2] on rank 1.")
    for name in ("more", "half"):
        assert of_0[name] == f"AbortedError: rank 1 could not save what rank 0 saves: {of_1[name]}"
    assert of_1["raises"] == "KeyError: 'none'"
    assert of_0["raises"] == "AbortedError: rank 1 could not make the checkpoint: KeyError: 'none'"
    assert not any(committed(folder / f"edited_{name}") for name in of_0)


def test_one_process_goes_on_from_two(job):
    folder, _, found = job
    assert process.begun(folder, "whole", **ALONE) == [12, found[0]["whole"][0], True]


def test_two_processes_go_on_from_one(job):
    _, single, found = job
    assert [rank["single"] for rank in found] == [[6, single[0], True], [6, single[0], False]]


def test_an_optimizer_that_shards_its_state_is_resumed(job):
    _, _, found = job
    for rank in found:
        assert rank["zero"][0] == rank["zero"][1]


def test_models_that_differ_until_they_are_averaged_are_those_of_rank_0(job):
    folder, _, found = job
    assert [rank["averaged"][0] for rank in found] == [[], []]
    with tidemark.open(folder / "averaged", framework="pt") as step:
        weights = torch.cat([step.get_tensor("model.layer.1.weight").flatten(), step.get_tensor("model.layer.1.bias")])
    assert weights.sum().item().hex() == found[0]["averaged"][1] != found[1]["averaged"][1]


def test_what_cannot_be_done_is_refused_on_all_ranks(job):
    _, _, found = job
    of_0, of_1 = (rank["refused"] for rank in found)
    for refused in (of_0, of_1):
        assert refused["strategy"].startswith("UnimplementedError: TidemarkCheckpoint does not save with several processes of a "
                                              "OwnCheckpoints")
        assert "TidemarkCheckpoint takes no when_full='skip': with ranks, one that has no room" in refused["skips"]
        assert refused["no_ranks"] == "InvalidArgumentError: ranks is a int, not a tidemark.Ranks"
    for rank, refused in enumerate((of_0, of_1)):
        assert refused["ranks"] == ("InvalidArgumentError: ranks say that this is rank 0 of 1, and for the Trainer it is rank "
                                    f"{rank} of 2")
    assert of_0["no_step"].startswith("NotFoundError: step 77 is not in")
    assert of_1["no_step"].startswith("AbortedError: rank 0 could not choose the step: NotFoundError: step 77")
    assert of_0["evaluators"].startswith("TypeError: cannot ")
    assert of_1["evaluators"] == f"AbortedError: rank 0 could not add the evaluators: {of_0['evaluators']}"
    assert of_0["load"] == "AbortedError: rank 1 could not load the step: ZeroDivisionError: division by zero"
    assert of_1["load"] == "ZeroDivisionError: division by zero"


def test_a_function_gives_the_ranks(job):
    _, _, found = job
    assert [rank["given"] for rank in found] == [[77.0, ["model*", "optimizers*"], 1]] * 2


def test_the_ranks_of_torch_are_made_once(job):
    _, _, found = job
    assert [rank["groups"] for rank in found] == [2, 2]  # one of them by that function


def test_the_io_saves_on_rank_0_and_loads_on_all_ranks(job):
    folder, _, found = job
    for rank in found:
        assert rank["io"]["loaded"] == rank["io"]["trained"] == found[0]["io"]["trained"]
        assert rank["io"]["step"] == 6 and not rank["io"]["saves"]
        assert rank["io"]["early"] == 4  # also on rank 1, which came to it before the step was committed
    assert max(committed(folder / "io")) == 7  # the last checkpoint is a second save of step 6


def test_what_the_io_cannot_do_is_an_error_on_each_rank(job):
    _, _, found = job
    for rank in (0, 1):
        of_rank = found[rank]["io"]
        assert of_rank["ranks"].startswith("InvalidArgumentError: TidemarkCheckpointIO takes no ranks")
        assert "sharded.ckpt is a folder: TidemarkCheckpointIO has not written it" in of_rank["folder"]
        assert of_rank["none"].startswith("FileNotFoundError")  # after a save of rank 0 that could not begin
    assert found[0]["io"]["unstorable"].startswith("UnsupportedTypeError")
    assert found[0]["io"]["never"].startswith("FileNotFoundError")
    assert "rank 0 has not committed" in found[1]["io"]["never"] and "after 0.1 seconds" in found[1]["io"]["never"]
    assert found[1]["io"]["never"].startswith("DeadlineExceededError")


def test_a_rank_that_cannot_save_ends_the_others(job):
    folder, _, found = job
    assert found[0]["failing"][0].startswith("UnsupportedTypeError: 'lightning.callbacks.Unstorable.net'")
    assert found[1]["failing"][0].startswith("RuntimeError") and "gloo" in found[1]["failing"][0]  # of DDP
    assert any("UnsupportedTypeError: 'lightning.callbacks.Unstorable.net'" in line for line in found[1]["failing"][1:])
    assert committed(folder / "failing") == {}


def test_a_job_of_lightning_whose_rank_is_killed_resumes_bit_for_bit(job):
    folder, _, found = job
    assert [rank["killed"] for rank in found] == [rank["whole"] for rank in found]
    assert set(committed(folder / "killed")) == {12}
