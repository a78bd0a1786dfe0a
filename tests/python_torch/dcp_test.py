"""tidemark.dcp: PyTorch's distributed checkpoints, in one process."""

import dataclasses
import fractions

import pytest
import tidemark
import torch
import torch.distributed.checkpoint as dcp
from tidemark.dcp import LoadPlanner, Reader, SavePlanner, Writer
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

pytestmark = pytest.mark.filterwarnings("ignore")  # DCP's advice


def make(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * seed)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": seed, "scalar": torch.tensor(seed),
            "names": ["a", ("b", None)], "best": float("inf"), "raw": b"bytes"}


def assert_same(a, b):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b) and a.dtype == b.dtype
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    else:
        assert a == b


def save(state, writer, **options):
    dcp.save(state, storage_writer=writer, planner=SavePlanner(), no_dist=True, **options)


def load(state, reader, **options):
    dcp.load(state, storage_reader=reader, planner=LoadPlanner(), no_dist=True, **options)


def test_a_state_comes_back(tmp_path):
    state = make(1)
    save(state, Writer(tmp_path / "store", step=7))
    loaded = make(2)
    load(loaded, Reader(tmp_path / "store"))
    assert_same(loaded, state)
    with tidemark.open(tmp_path / "store", framework="pt") as step:
        assert step.info.step == 7 and step.get_value("epoch") == 1 and step.get_value("raw") == b"bytes"
        assert torch.equal(step.get_tensor("model.0.weight"), state["model"]["0.weight"])


def test_the_id_of_a_checkpoint_is_the_folder_of_a_store(tmp_path):
    save(make(1), Writer(), checkpoint_id=tmp_path / "one")
    save(make(2), Writer(), checkpoint_id=tmp_path / "one")
    loaded = make(3)
    load(loaded, Reader(), checkpoint_id=tmp_path / "one")
    assert_same(loaded, make(2))


def test_an_open_checkpointer_serves_several_saves(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step in (1, 2):
            save(make(step), Writer(checkpointer, step))
    loaded = make(3)
    load(loaded, Reader(tmp_path / "store", step=1))
    assert_same(loaded, make(1))


def test_what_another_door_saved_is_loaded(tmp_path):
    model = torch.nn.Linear(3, 2)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(4, {"model": model, "epoch": 5})
    loaded = {"model": torch.nn.Linear(3, 2).state_dict(), "epoch": 0}
    load(loaded, Reader(tmp_path / "store", step=4))
    assert_same(loaded, {"model": model.state_dict(), "epoch": 5})


def test_bytes_of_the_default_planner_are_kept_and_not_run(tmp_path):
    dcp.save({"epoch": 3}, storage_writer=Writer(tmp_path / "store"), no_dist=True)
    loaded = {"epoch": 0}
    with pytest.raises(CheckpointException, match="'epoch' was not saved with tidemark.dcp.SavePlanner"):
        load(loaded, Reader(tmp_path / "store"))
    dcp.load(loaded, storage_reader=Reader(tmp_path / "store"), no_dist=True)
    assert loaded == {"epoch": 3}


@dataclasses.dataclass
class Target:
    """As much of a planner as reading takes."""

    tensor: torch.Tensor
    committed: bool = False

    def resolve_tensor(self, item):
        return self.tensor

    def commit_tensor(self, item, tensor):
        self.committed = True


def read_item(name, offsets, lengths):
    index = MetadataIndex(name, torch.Size([0] * len(offsets)))
    return ReadItem(LoadItemType.TENSOR, index, torch.Size(offsets), index, torch.Size(offsets), torch.Size(lengths))


def test_a_part_of_a_tensor_is_read(tmp_path):
    tensor = torch.arange(40.0).reshape(8, 5)
    save({"t": tensor}, Writer(tmp_path / "store"))
    reader = Reader(tmp_path / "store")
    reader.read_metadata()
    target = Target(torch.zeros(3, 2))
    reader.read_data(LoadPlan([read_item("t", [2, 1], [3, 2])]), target)
    assert target.committed and torch.equal(target.tensor, tensor[2:5, 1:3])
    with pytest.raises(tidemark.errors.InvalidArgumentError, match=r"'t': \[2, 2\] of it are asked for, into \[3, 2\]"):
        reader.read_data(LoadPlan([read_item("t", [2, 1], [2, 2])]), target)


def test_what_cannot_be_stored_or_loaded_is_named(tmp_path):
    with pytest.raises(CheckpointException, match="'ratio' is a fractions.Fraction, which cannot be stored"):
        save({"ratio": fractions.Fraction(1, 3)}, Writer(tmp_path / "store"))
    with pytest.raises(CheckpointException, match="Writer has no store"):
        save({}, Writer())
    with pytest.raises(CheckpointException, match="Reader has no store"):
        load({}, Reader())
    with pytest.raises(CheckpointException, match="is not a Tidemark store"):
        load({}, Reader(tmp_path / "none"))
    save({"a": torch.zeros(2)}, Writer(tmp_path / "store"))
    with pytest.raises(CheckpointException, match="Missing key in checkpoint state_dict: b"):
        load({"b": torch.zeros(2)}, Reader(tmp_path / "store"))
    with tidemark.Checkpointer(tmp_path / "store"), pytest.raises(CheckpointException, match="another process|held"):
        save({"a": torch.zeros(2)}, Writer(tmp_path / "store"))
    assert not Writer.validate_checkpoint_id("s3://bucket") and not Reader.validate_checkpoint_id("s3://bucket")
