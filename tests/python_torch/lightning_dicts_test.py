"""Checkpoints that come as a dict: what shares memory with the model is set apart."""

import collections

import pytest
import torch
from tidemark.lightning import _dicts

Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize("make", [lambda *items: list(items), lambda *items: items, lambda *items: collections.deque(items, 4),
                                  lambda *items: Pair(*items), lambda *items: dict(enumerate(items))])
def test_tensors_of_containers_that_share_memory_with_the_model_are_copied(make):
    weight, own = torch.ones(2), torch.zeros(2)
    state = _dicts.state_of({"state_dict": {"w": weight}, "callbacks": {"average": make(weight, own)}}, "rest")
    assert [name for name, _ in _dicts._arrays_of(state["rest"], "rest")] == [f"rest.callbacks.average.{i}" for i in range(2)]
    _dicts.set_apart(state, ["model"])
    found = state["rest"].state_dict()["callbacks"]["average"]
    assert type(found) is type(make(weight, own)) and getattr(found, "maxlen", 4) == 4
    assert found[0] is not weight and found[0].data_ptr() != weight.data_ptr() and torch.equal(found[0], weight)
    assert found[1] is own
