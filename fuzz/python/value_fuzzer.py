#!/usr/bin/env python3
"""Fuzzes the reading of values: the bytes of an entry, and the text that says how the state of an object is put together.

  value_fuzzer.py [libFuzzer's options] CORPUS

`make fuzz-python` runs it under Atheris, which counts the branches of the package and hands inputs to `read`. The first byte
of an input chooses what reads the others. Each error of tidemark is an answer; any other exception is a finding, and so is an
input that takes more memory than libFuzzer is told. tests/python/fuzz_test.py calls `read`, too.
"""

import collections
import json
import math
import os
import random
import sys

import numpy as np

KINDS = ("bool", "int64", "double", "bytes", "string")
NAMES = ("a", "o.a", "o.state.a", "o.b.0")


class Optimizer:
    """As much of one as reading its state looks at."""

    param_groups = [{"params": [object()]}]

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def array(name, framework="np"):
    """The arrays that the checkpoint has."""
    if name not in NAMES:
        raise KeyError(name)
    return np.zeros(3)


def read(data):
    """Reads the input by one of the ways. Raises what is not an answer."""
    import tidemark
    from tidemark import _codec, _tree

    way, content = (data[0], data[1:]) if data else (0, b"")
    text = _codec.MARK.encode() + content
    try:
        if way < 16:
            _codec.from_entry(KINDS[way % len(KINDS)], content, array)
        elif way < 64:
            _codec.from_entry("string", text, array)
        elif way < 160:
            _tree.object_state("string", text, "o", array)
        else:
            received = {"o": ("string", "uint8", [len(text)], bytearray(text)),
                        **{name: ("tensor", "float32", [3], bytearray(12)) for name in NAMES}}
            tree = _tree.Tree({"o": Optimizer(), "rng": random.Random(1)} if way % 2 else {"o": Optimizer()}, writable=True)
            if way % 4 < 2:  # as one whose parameters have names
                tree._parameters = {id(Optimizer.param_groups[0]["params"][0]): "w"}
            tree.assign(received, {}, lambda name: False)
    except tidemark.Error:
        pass


def seeds():
    """Inputs that reach most of what reads."""
    from tidemark import _codec

    values = [None, True, 2**70, 1.5, math.inf, math.nan, "é", "\ud800", b"\0\xff", bytearray(b"x"), 1 + 2j, [1, [2]],
              (1, (2,)), {1, 2}, frozenset("a"), {"a": {1: 2}}, {"$x": 1}, collections.Counter("aab"), collections.OrderedDict(b=1),
              np.float32(2), np.str_("x"), np.datetime64("2026-01-01")]
    for value in values:
        encoded = _codec.encode(value, "o", lambda *_: False)
        yield bytes([20]) + json.dumps(encoded).encode()
        yield bytes([70]) + json.dumps({"$object": [{"v": encoded, "w": {"$array": "a"}}, {"a": "np"}, False]}).encode()
    yield bytes([20]) + json.dumps({"$pickled": "gASVCgAAAAAAAAB9lIwBYZRLAXMu"}).encode()
    for kind in range(len(KINDS)):
        yield bytes([kind]) + b"\1\2\3\4\5\6\7\x08"
    state = {"state": {"w": {"step": 1, "m": {"$array": "o.state.a"}}}, "param_groups": [{"lr": 0.1, "params": ["w"]}]}
    for way in (100, 160, 161, 162, 163):
        yield bytes([way]) + json.dumps({"$object": [state, {"o.state.a": "np"}, True]}).encode()


def main():
    import atheris

    sys.modules["torch"] = None  # so that no input waits for its import, which an array of PyTorch asks for
    with atheris.instrument_imports(include=["tidemark"]):
        import tidemark  # noqa: F401
        from tidemark import _codec, _tree  # noqa: F401
    corpus = next(argument for argument in sys.argv[1:] if not argument.startswith("-"))
    for i, seed in enumerate(seeds()):
        with open(os.path.join(corpus, f"seed{i:03}"), "wb") as file:
            file.write(seed)
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
