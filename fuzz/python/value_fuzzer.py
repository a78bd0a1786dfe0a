#!/usr/bin/env python3
"""Fuzzes the reading of values: the bytes of an entry, and the text that says how the state of an object is put together.

  value_fuzzer.py [libFuzzer's options] CORPUS

`make fuzz-python` runs it under Atheris, which counts the branches of the package and hands inputs to `read`. The first byte
of an input chooses what reads the others. Each error of tidemark is an answer; any other exception is a finding, and so is an
input that takes more memory than libFuzzer is told, or ends the process. tests/python/state/fuzz_test.py calls `read`, too.
"""

import collections
import datetime
import json
import math
import operator
import os
import pathlib
import random
import sys
import types

import numpy as np

KINDS = ("bool", "int64", "double", "bytes", "string")
NAMES = ("a", "o.a", "o.state.a", "o.b.0")
KEY = "o.key"  # an array, too: the state of a Mersenne Twister
ASSIGNING = 160  # from here on, the first byte chooses what a restore sets


class Optimizer:
    """As much of one as reading its state looks at."""

    param_groups = [{"params": [object()]}]

    def state_dict(self):
        return {"state": {}, "param_groups": [{"params": [0]}]}

    def load_state_dict(self, state):
        pass


def array(name, framework="np"):
    """The arrays that the checkpoint has."""
    if name not in NAMES:
        raise KeyError(name)
    return np.zeros(3)


def objects():
    """What a restore sets, by the first byte of the input: an optimizer whose parameters have names, one without, and generators.
    Each with a function that draws from it, and returns the state that NumPy then has."""
    import tidemark

    philox, legacy, python = np.random.Generator(np.random.Philox(1)), np.random.RandomState(1), random.Random(1)
    return [(Optimizer(), dict), (Optimizer(), dict),
            (tidemark.rng(), lambda: (random.random(), np.random.random(), np.random.get_state(legacy=False))[2]),
            (philox, lambda: (philox.random(), philox.bit_generator.state)[1]),
            (legacy, lambda: (legacy.random_sample(), legacy.get_state(legacy=False))[1]),
            (python, lambda: {"drawn": python.random()})]


def read(data):
    """Reads the input by one of the ways. Returns whether a restore has set an object. Raises what is not an answer."""
    import tidemark
    from tidemark._state import codec, objects

    way, content = (data[0], data[1:]) if data else (0, b"")
    text = codec.MARK.encode() + content
    try:
        if way < 16:
            codec.from_entry(KINDS[way % len(KINDS)], content, array)
        elif way < 64:
            codec.from_entry("string", text, array)
        elif way < ASSIGNING:
            objects.object_state("string", text, "o", array)
        else:
            assign(way - ASSIGNING, text)
            return True
    except tidemark.Error:
        pass
    return False


def assign(way, text):
    from tidemark._state import parameters, tree

    received = {"o": ("string", "uint8", [len(text)], bytearray(text), False),
                KEY: ("tensor", "uint32", [624], bytearray(4 * 624), False),
                **{name: ("tensor", "float32", [3], bytearray(12), False) for name in NAMES}}
    ways = objects()
    value, draw = ways[way % len(ways)]
    walked = tree.Tree({"o": value}, writable=True)
    if way % len(ways) == 0:
        walked._parameters = parameters.ParameterNames([], {id(Optimizer.param_groups[0]["params"][0]): "w"}, None)
    kept = random.getstate(), np.random.get_state()
    try:
        walked.assign(received, {}, lambda name: False)
        state = draw()
        assert 0 <= state.get("state", {}).get("pos", 0) <= 624 and 0 <= state.get("buffer_pos", 0) <= 4, "it read foreign memory"
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def seeds():
    """Inputs that reach most of what reads."""
    from tidemark._state import codec

    values = [None, True, 2**70, 1.5, math.inf, math.nan, "é", "\ud800", b"\0\xff", bytearray(b"x"), 1 + 2j, [1, [2]],
              (1, (2,)), {1, 2}, frozenset("a"), {"a": {1: 2}}, {"$x": 1}, collections.Counter("aab"),
              collections.OrderedDict(b=1),
              np.float32(2), np.str_("x"), np.datetime64("2026-01-01"), np.dtype("<f4"), collections.deque([1], 2),
              collections.defaultdict(list, {"a": [1]}), pathlib.Path("a/b"), datetime.date(2026, 1, 31),
              datetime.datetime(2026, 1, 31, 12, 5, 7, 9, datetime.timezone.utc), datetime.timedelta(1, 2, 3)]
    for value in values:
        encoded = codec.encode(value, "o", lambda *_: False)
        yield bytes([20]) + json.dumps(encoded).encode()
        yield bytes([70]) + json.dumps({"$object": [{"v": encoded, "w": {"$array": "a"}}, {"a": "np"}, False]}).encode()
    for of_torch in ({"$torch.dtype": "float32"}, {"$torch.device": "cuda:0"}, {"$torch.Size": [2, 3]}):  # without importing it
        yield bytes([20]) + json.dumps(of_torch).encode()
    yield bytes([20]) + json.dumps({"$pickled": "gASVCgAAAAAAAAB9lIwBYZRLAXMu"}).encode()
    for kind in range(len(KINDS)):
        yield bytes([kind]) + b"\1\2\3\4\5\6\7\x08"
    yield from assigned_seeds()


def assigned_seeds():
    """Inputs that set an object when they are restored."""
    state = {"state": {"w": {"step": 1, "m": {"$array": "o.state.a"}}}, "param_groups": [{"lr": 0.1, "params": ["w"]}]}
    by_index = {"state": {"$dict": [[0, {"step": 1, "m": {"$array": "o.a"}}]]}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    key = {"$array": KEY}
    python = {"$tuple": [3, {"$tuple": [1] * 624 + [624]}, None]}
    twister = {"$tuple": ["MT19937", key, 623, 0, 0.0]}
    philox = {"bit_generator": "Philox", "state": {"counter": [1, 2, 3, 4], "key": [5, 6]}, "buffer": [7, 8, 9, 10],
              "buffer_pos": 3, "has_uint32": 0, "uinteger": 0}
    legacy = {"bit_generator": "MT19937", "state": {"key": key, "pos": 623}, "has_gauss": 0, "gauss": 0.0}
    for way, encoded, names in ((0, state, ["o.state.a"]), (1, by_index, ["o.a"]),
                                (2, {"python": python, "numpy": twister}, [KEY]), (3, {"state": philox}, []),
                                (4, {"state": legacy}, [KEY]), (5, {"state": python}, [])):
        yield bytes([ASSIGNING + way]) + json.dumps({"$object": [encoded, dict.fromkeys(names, "np"), way == 0]}).encode()


def pytorch():
    """A module with what reading values asks of PyTorch, whose import would take longer than most runs."""
    from tidemark._state import arrays

    class Device:
        def __init__(self, text):
            if text.partition(":")[0] not in ("cpu", "cuda", "mps", "xpu", "meta"):
                raise RuntimeError(f"no device type: {text}")

    class Size(tuple):
        def __new__(cls, sizes):
            return super().__new__(cls, map(operator.index, sizes))

    made = types.ModuleType("torch")
    made.dtype, made.Tensor, made.Generator = (type(name, (), {}) for name in ("dtype", "Tensor", "Generator"))
    made.device, made.Size = Device, Size
    for name in arrays.TORCH_DTYPES:
        setattr(made, name, made.dtype())
    return made


def main():
    import atheris

    with atheris.instrument_imports(include=["tidemark"]):
        import tidemark  # noqa: F401
        from tidemark._state import codec, objects, tree  # noqa: F401
    sys.modules["torch"] = pytorch()
    corpus = next(argument for argument in sys.argv[1:] if not argument.startswith("-"))
    for i, seed in enumerate(seeds()):
        with open(os.path.join(corpus, f"seed{i:03}"), "wb") as file:
            file.write(seed)

    def read_one(data):
        read(data)

    atheris.Setup(sys.argv, read_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
