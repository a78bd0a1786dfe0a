"""Restores that make arrays: into the meta device, and of a tree that is like another."""

import collections
import dataclasses
import logging

import numpy as np
import pytest
import tidemark
import torch


class Net(torch.nn.Module):
    def __init__(self, device=None):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4, device=device)
        self.norm = torch.nn.BatchNorm1d(4, device=device)
        self.recurrent = torch.nn.LSTM(4, 4, batch_first=True, device=device)
        self.head = torch.nn.Linear(4, 10, bias=False, device=device)
        self.head.weight = self.embed.weight  # tied
        self.norm.bias.requires_grad_(False)

    def forward(self, x):
        return self.head(self.norm(self.recurrent(self.embed(x))[0]))


def saved_net(checkpointer):
    torch.manual_seed(3)
    net = Net()
    net(torch.randint(10, (5,)))  # moves the running mean
    checkpointer.save(1, {"model": net}).committed.result()
    return net.eval()


def assert_same(a, b):
    for (name, one), (_, other) in zip(a.state_dict().items(), b.state_dict().items()):
        assert torch.equal(one, other), name


def test_a_module_on_meta_gets_the_stored_tensors(checkpointer):
    net = saved_net(checkpointer)
    made = Net("meta")
    made.head.weight.tag = "kept"
    checkpointer.resume({"model": made})
    assert_same(made, net)
    assert {tensor.device.type for tensor in (*made.parameters(), *made.buffers())} == {"cpu"}
    assert made.head.weight is made.embed.weight and made.head.weight.tag == "kept"
    assert [(name, p.requires_grad) for name, p in made.named_parameters()] == [
        (name, p.requires_grad) for name, p in net.named_parameters()]
    x = torch.randint(10, (5,))
    assert torch.equal(made.eval()(x), net(x))


def test_a_module_made_by_to_empty_is_filled_in_place(checkpointer):
    net = saved_net(checkpointer)
    made = Net("meta").to_empty(device="cpu")
    address = made.norm.weight.data_ptr()
    checkpointer.resume({"model": made})
    assert_same(made, net)
    assert made.norm.weight.data_ptr() == address


def test_an_optimizer_goes_on_with_the_parameters_that_were_made(checkpointer):
    torch.manual_seed(3)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)

    def train(net, optimizer):
        optimizer.zero_grad()
        net(torch.ones(4, 3)).sum().backward()
        optimizer.step()

    train(net, optimizer)
    checkpointer.save(1, {"model": net, "optimizer": optimizer}).committed.result()
    made = torch.nn.Linear(3, 2, device="meta")
    optimizer_made = torch.optim.Adam(made.parameters(), lr=0.1)
    checkpointer.resume({"model": made, "optimizer": optimizer_made})
    assert optimizer_made.param_groups[0]["params"][0] is made.weight
    train(net, optimizer)
    train(made, optimizer_made)
    assert torch.equal(net.weight, made.weight)


def test_what_a_restore_leaves_out_stays_on_meta(checkpointer):
    net = saved_net(checkpointer)
    made = Net("meta")
    checkpointer.restore({"model": made}, only=["model.norm.*"])
    assert torch.equal(made.norm.running_mean, net.norm.running_mean)
    assert made.embed.weight.is_meta and made.recurrent.bias_ih_l0.is_meta
    checkpointer.restore({"model": made}, only=["model.head.*"])
    assert made.embed.weight is made.head.weight and torch.equal(made.head.weight, net.head.weight)
    other = {"model": made, "more": torch.empty(3, device="meta")}
    checkpointer.restore(other, allow_missing=True)
    assert other["more"].is_meta and not made.recurrent.bias_ih_l0.is_meta


def test_a_restore_that_fails_leaves_the_module_on_meta(checkpointer, tmp_path):
    made = Net("meta")
    assert checkpointer.resume({"model": made}) == 0
    assert all(parameter.is_meta for parameter in made.parameters())
    saved_net(checkpointer)
    made.norm = torch.nn.BatchNorm1d(5, device="meta")
    with pytest.raises(tidemark.MismatchError):
        checkpointer.resume({"model": made})
    assert all(parameter.is_meta for parameter in made.parameters())


def test_tensors_on_meta_are_made_on_the_device_that_is_named(checkpointer):
    checkpointer.save(1, {"t": torch.ones(3), "list": [torch.zeros(2)], "tuple": (torch.ones(1), 5)})
    made = {"t": torch.empty(3, device="meta", requires_grad=True), "list": [torch.empty(2, device="meta")],
            "tuple": (torch.empty(1, device="meta"), 0)}
    checkpointer.resume(made, device=torch.device("cpu"))
    assert made["t"].tolist() == [1, 1, 1] and made["t"].requires_grad and made["list"][0].tolist() == [0, 0]
    assert made["tuple"][0].tolist() == [1] and made["tuple"][1] == 5
    with pytest.raises(tidemark.errors.UnsupportedTypeError, match="'t' is on the device meta"):
        checkpointer.resume({"t": torch.empty(3, device="meta")}, device="meta", allow_unexpected=True)


def test_a_snapshot_fills_a_module_on_meta():
    net = torch.nn.Linear(2, 2)
    made = torch.nn.Linear(2, 2, device="meta")
    tidemark.capture({"model": net}).restore({"model": made})
    assert_same(made, net)


def test_buffers_that_no_checkpoint_has_are_named(checkpointer, caplog):
    class Cached(torch.nn.Linear):
        def __init__(self, device=None):
            super().__init__(2, 2, device=device)
            self.register_buffer("cache", torch.zeros(2, device=device), persistent=False)

    checkpointer.save(1, {"model": Cached()})
    made = Cached("meta")
    with caplog.at_level(logging.WARNING, logger="tidemark"):
        checkpointer.resume({"model": made})
    assert made.cache.is_meta and not made.weight.is_meta
    assert [record.getMessage() for record in caplog.records if "meta" in record.getMessage()] == [
        "on the meta device, and in no checkpoint, so still without elements: model.cache"]


def test_an_entry_on_meta_that_is_no_tensor_of_the_module_is_refused(checkpointer):
    class Strange(torch.nn.Linear):
        def state_dict(self, *args, **kwargs):
            return {**super().state_dict(*args, **kwargs), "made_up": torch.zeros(2, device=self.weight.device)}

    checkpointer.save(1, {"model": Strange(2, 2)})
    made = Strange(2, 2, device="meta")
    with pytest.raises(tidemark.errors.UnimplementedError, match="'model.made_up' is on the device meta, and neither"):
        checkpointer.resume({"model": made})


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Record:
    weights: np.ndarray
    epoch: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    weights: np.ndarray


def everything(fill, epoch):
    shared = np.full(4, fill)
    return {"shared": shared, "tied": shared, "list": [np.full((2, 3), fill, dtype=np.float32), {"deep": np.full(1, fill)}],
            "pair": Pair(np.full(2, fill), epoch), "record": Record(np.full(3, fill), epoch), "frozen": Frozen(np.full(2, fill)),
            "torch": torch.full((2,), fill), "parameter": torch.nn.Parameter(torch.full((2,), fill)), "history": [epoch],
            "epoch": epoch}


def test_a_new_tree_is_made_and_the_old_one_does_not_change(checkpointer):
    checkpointer.save(1, everything(7.0, 7))
    like = everything(0.0, 0)
    made = checkpointer.load(like=like)
    assert repr(made) == repr(everything(7.0, 7))
    assert repr(like) == repr(everything(0.0, 0))
    assert made["shared"] is made["tied"] and isinstance(made["parameter"], torch.nn.Parameter)
    assert type(made["pair"]) is Pair and type(made["record"]) is Record
    assert made["list"] is not like["list"] and made["list"][1] is not like["list"][1]


def test_the_arrays_of_like_need_no_memory_that_can_be_written(checkpointer):
    checkpointer.save(1, {"a": np.arange(6.0).reshape(2, 3), "t": torch.arange(3.0)})
    like = {"a": np.broadcast_to(0.0, (2, 3)), "t": torch.empty(3, device="meta")}
    made = checkpointer.load(1, like=like)
    assert made["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and made["t"].tolist() == [0, 1, 2]
    assert like["t"].is_meta
    made["a"][0] = 5  # writable, and of one's own


def test_what_a_load_leaves_out_is_that_of_like(checkpointer):
    checkpointer.save(1, everything(7.0, 7))
    like = everything(0.0, 0)
    like["more"] = np.ones(2)
    made = checkpointer.load(like=like, only=["torch", "record.*"])
    assert made["torch"].tolist() == [7, 7] and made["record"].epoch == 7
    assert made["shared"] is like["shared"] and made["epoch"] == 0 and made["more"] is like["more"]
    made = checkpointer.load(like=like, allow_missing=True)
    assert made["shared"].tolist() == [7] * 4 and made["more"] is like["more"]


def test_a_load_that_fails_changes_nothing(checkpointer):
    with pytest.raises(tidemark.NotFoundError):
        checkpointer.load(like={"a": np.zeros(2)})
    checkpointer.save(1, {"a": np.ones(2)})
    like = {"a": np.zeros(3)}
    with pytest.raises(tidemark.MismatchError):
        checkpointer.load(like=like)
    assert like["a"].tolist() == [0, 0, 0]
    with pytest.raises(tidemark.UnsupportedTypeError, match="'a' is a masked array"):
        checkpointer.load(like={"a": np.ma.masked_array(np.zeros(2), [True, False])})
    loop = {"a": np.zeros(2)}
    loop["loop"] = loop
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="contains itself"):
        checkpointer.load(like=loop)


def test_a_load_converts_dtypes(checkpointer):
    checkpointer.save(1, {"a": np.arange(3, dtype=np.float64), "t": torch.arange(3.0)})
    like = {"a": np.zeros(3, dtype=np.float32), "t": torch.empty(3, dtype=torch.bfloat16, device="meta")}
    made = checkpointer.load(like=like, convert_dtypes=True)
    assert made["a"].dtype == np.float32 and made["a"].tolist() == [0, 1, 2]
    assert made["t"].dtype == torch.bfloat16 and made["t"].tolist() == [0, 1, 2]


def test_objects_with_state_are_in_both_trees(checkpointer):
    net = saved_net(checkpointer)
    like = {"model": Net("meta")}
    made = checkpointer.load(like=like)
    assert made["model"] is like["model"]
    assert_same(made["model"], net)
