"""DTensors in jobs of several processes, over Gloo: `make test-python-torch`."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

from rank_jobs import run_processes  # noqa: E402

pytest.importorskip("torch.distributed.tensor")
PROCESS = pathlib.Path(__file__).parent / "dtensor_process.py"


def run(folder, world_size, *arguments):
    return run_processes(PROCESS, folder, world_size, *arguments)


@pytest.mark.parametrize("mesh", ["4", "2x2"])
def test_boxes_are_what_pytorch_says(tmp_path, mesh):
    assert run(tmp_path, 4, "check_placements", mesh) == ["tried True\n"] * 4


def test_every_placement_is_restored_by_another_number_of_ranks(tmp_path):
    assert run(tmp_path, 3, "save", "3") == ["saved 1\n"] * 3
    for world_size in (1, 2, 5):
        assert run(tmp_path, world_size, "restore", str(world_size)) == ["restored 1\n"] * world_size


def test_a_mesh_of_two_dimensions_is_restored_by_another(tmp_path):
    assert run(tmp_path, 4, "save", "2x2") == ["saved 1\n"] * 4
    assert run(tmp_path, 2, "restore", "1x2") == ["restored 1\n"] * 2


# AdamW has the entries of the C++ library, NAdam is an object with arrays. `train_before`: how many steps, so that the
# optimizer has a state when it is restored, or none.
@pytest.mark.parametrize("optimizer, saved_by, mesh, train_before", [
    ("AdamW", "3", "none", "0"), ("AdamW", "3", "2", "0"), ("AdamW", "3", "1x2", "1"), ("AdamW", "none", "2", "1"),
    ("NAdam", "3", "2", "0"), ("NAdam", "3", "none", "1")])
def test_a_training_goes_on_with_another_number_of_ranks(tmp_path, optimizer, saved_by, mesh, train_before):
    (saved,) = set(run(tmp_path, 3 if saved_by == "3" else 1, "save_training", saved_by, optimizer))
    resumed = run(tmp_path, 1 if mesh == "none" else 2, "resume_training", mesh, optimizer, train_before)
    assert set(resumed) == {saved}


def test_dtensors_that_are_no_boxes_are_refused(tmp_path):
    assert run(tmp_path, 2, "refuse", "2") == ["refused\n"] * 2


def test_a_rank_outside_the_mesh_has_nothing_of_the_tensor(tmp_path):
    assert run(tmp_path, 2, "outside", "2") == ["saved\n"] * 2


def test_fewer_rows_than_ranks(tmp_path):
    assert run(tmp_path, 2, "short", "2") == ["saved\n"] * 2


def test_replicas_of_shards_are_trained(tmp_path):
    (saved,) = set(run(tmp_path, 4, "save_training", "2x2", "AdamW"))
    assert set(run(tmp_path, 2, "resume_training", "2", "AdamW", "1")) == {saved}


def test_groups_of_processes(tmp_path):
    assert run(tmp_path, 4, "gather", "4") == ["gathered\n"] * 4


def test_without_a_process_group_there_are_no_ranks():
    import tidemark

    assert not torch.distributed.is_initialized()
    with pytest.raises(tidemark.errors.FailedPreconditionError, match="init_process_group"):
        tidemark.Ranks.of_torch()
