"""The states of the golden stores in tests/python/state/golden, which earlier versions of the package wrote.

  golden_states.py FOLDER

writes a new one with the package that is imported. `store-1`: version 0.1.0 with PyTorch 1.13, before optimizers whose modules
are in lists or tuples, and free tensors, had names in the place of indices.
"""

import collections
import random
import sys

import numpy as np
import tidemark
import torch


def module(fill):
    made = torch.nn.Linear(3, 2)
    for i, parameter in enumerate(made.parameters()):
        parameter.data.fill_(fill + i)
    return made


def stepped(optimizer, fill):
    """The optimizer after a step. Its tensors differ for each parameter and each name."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    kept = [parameter.detach().clone() for parameter in parameters]
    optimizer.step()
    for i, (parameter, before) in enumerate(zip(parameters, kept)):
        parameter.data.copy_(before)
        for j, tensor in enumerate(item for _, item in sorted(optimizer.state[parameter].items()) if item.dim()):
            tensor.fill_(fill + 10 * i + j)
    return optimizer


def nested(fill):
    nets = [module(fill), module(fill + 4)]
    parameters = [parameter for net in nets for parameter in net.parameters()]
    return {"nets": nets, "optimizer": stepped(torch.optim.Adam(parameters, lr=fill / 8), fill)}


def at_top(fill):
    model = module(fill)
    return {"model": model, "optimizer": stepped(torch.optim.AdamW(model.parameters(), lr=fill / 8), fill)}


def free(fill):
    tensor = torch.nn.Parameter(torch.full((3,), float(fill)))
    return {"free": {"t": tensor}, "optimizer": stepped(torch.optim.SGD([tensor], lr=fill / 8, momentum=0.5), fill)}


def generators(fill):
    """Also seeds the default ones."""
    random.seed(fill)
    np.random.seed(fill)
    torch.manual_seed(fill)
    return {"rng": tidemark.rng(), "numpy": np.random.Generator(np.random.PCG64(fill)),
            "philox": np.random.Generator(np.random.Philox(fill)), "python": random.Random(fill),
            "torch": torch.Generator().manual_seed(fill)}


def draws(state):
    return [random.random(), np.random.random_sample(), torch.rand(1).item(), state["numpy"].bit_generator.random_raw(),
            state["philox"].bit_generator.random_raw(), state["python"].random(),
            torch.rand(1, generator=state["torch"]).item()]


VALUES = {
    "none": None, "bool": True, "int": -5, "large": 2**70, "float": 0.5, "infinite": float("-inf"), "text": "\u00e9",
    "surrogate": "\ud800", "bytes": b"\0\xff", "bytearray": bytearray(b"\1"), "complex": 1 + 2j, "tuple": (1, (2, "x")),
    "list": [1, [2.5, None]], "set": {1, 2}, "frozenset": frozenset("a"), "dict": {1: {"$x": (3,)}},
    "counter": collections.Counter("aab"), "ordered": collections.OrderedDict(b=1, a=2),
    "float32": np.float32(2), "datetime64": np.datetime64("2026-01-01", "s"), "str_": np.str_("x"), "empty": np.str_("")}


def values(fill):
    """fill = 0: None in the place of each value."""
    beside = (np.full(2, fill), fill, {"w": np.full((2, 2), fill, np.float32)})
    return {**(VALUES if fill else dict.fromkeys(VALUES)), "beside": beside}


STATES = [nested, at_top, free, generators, values]

if __name__ == "__main__":
    with tidemark.Checkpointer(sys.argv[1]) as checkpointer:
        for step, make in enumerate(STATES):
            checkpointer.save(step, make(1)).committed.result(60)
