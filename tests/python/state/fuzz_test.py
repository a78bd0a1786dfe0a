"""Hostile values are errors of tidemark and take little memory, and generated states come back.

The inputs are those of fuzz/python/value_fuzzer.py, changed at random from a fixed seed; TIDEMARK_SEED: another one.
`make fuzz-python` runs the same under a fuzzer that looks for new branches.
"""

import dataclasses
import json
import os
import pathlib
import random
import sys
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tidemark
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidemark import errors
from tidemark._state import arrays, codec, containers, objects, parameters, tree, values

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "fuzz" / "python"))
import value_fuzzer  # noqa: E402

WORDS = [line.strip('"').replace('\\"', '"').encode() for line in
         (pathlib.Path(value_fuzzer.__file__).parent / "value.dict").read_text().splitlines() if not line.startswith("#")]


def changed(data, draw, others):
    """The input with some of its parts removed, repeated, replaced, or taken from another one."""
    data = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        begin, end = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
        part = draw.choice([b"", bytes(data[begin:end]) * draw.randrange(3), draw.choice(WORDS), bytes([draw.randrange(256)]),
                            str(draw.choice([-1, 0, 2**64, 10**400])).encode(), draw.choice(others)[begin:end],
                            b"[" * draw.randrange(2000)])
        data[begin:min(end, begin + draw.randrange(8))] = part
    return bytes(data[:4096])


def test_every_hostile_value_is_an_error_of_tidemark():
    draw = random.Random(int(os.environ.get("TIDEMARK_SEED", "20261127")))
    inputs = list(value_fuzzer.seeds())
    for data in inputs:
        value_fuzzer.read(data)
    for _ in range(4000):
        data = changed(draw.choice(inputs), draw, inputs)
        try:
            value_fuzzer.read(data)
        except BaseException:
            print(f"the input is {data!r}")
            raise


@pytest.mark.parametrize("data", [*value_fuzzer.assigned_seeds()], ids=lambda data: data[0] - value_fuzzer.ASSIGNING)
def test_each_seed_of_a_restore_sets_its_object(data):
    assert value_fuzzer.read(data)


@pytest.mark.parametrize("name,value", [
    ("float32", {"$torch.dtype": "float32"}), ("device", {"$torch.device": "cuda:0"}), ("Size", {"$torch.Size": [2, 3]})])
def test_values_of_pytorch_are_made_from_the_module_in_its_place(monkeypatch, name, value):
    stand_in = value_fuzzer.pytorch()
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    found = codec.from_entry("string", codec.to_text(value), value_fuzzer.array)
    assert found is stand_in.float32 if name == "float32" else type(found) is getattr(stand_in, name)
    with pytest.raises(errors.UnimplementedError, match="no device 'nothing'"):
        codec.from_entry("string", codec.to_text({"$torch.device": "nothing"}), value_fuzzer.array)


@pytest.mark.parametrize("data", [
    b"\x04\xff",                                         # no UTF-8
    b"\x02\1",                                           # a number of one byte
    b'\x14{"$float":' + b"1" * 400 + b"}",               # too large for a float
    b'\x14{"$scalar":["O","AAAAAAAAAAA="]}',             # an address
    b'\x14{"$scalar":["V2000000000",""]}',
    b'\x14{"$scalar":[[["a","<f4"]],"AAAA"]}',
    b'\x14{"$scalar":["<f4",""]}',
    b'\x14{"$scalar":["<U1","/////w=="]}',              # a character beyond Unicode
    b'\x14{"$set":[[]]}',
    b'\x14{"$registered":["nobody.Knows",1]}',
    b'\x14{"$unknown":1}',
    b'\x14{"$dtype":"O"}',
    b'\x14{"$torch.dtype":"load"}',
    b'\x14{"$torch.device":"cuda:-1"}',
    b'\x14{"$path":5}',
    b'\x14{"$deque":[[1],-1]}',
    b'\x14{"$defaultdict":["eval",[]]}',
    b"\x14" + b"[" * 100_000,
    b'\x46{"$object":[{"$array":5},{},true]}',           # a name that is none
    b'\x46{"$object":[[{"$array":"a"},{"$array":"a"}],{"a":"np"},false]}',  # one array, twice
    b'\xa0{"$object":[5,{},true]}',
    b'\xa0{"$object":[{"state":[],"param_groups":[{"params":[["w"]]}]},{},true]}'])
def test_a_hostile_value_is_refused(data, monkeypatch):
    refused = []

    class Noted(errors.Error):
        pass

    for name in ("DataLossError", "UnsupportedTypeError", "InvalidArgumentError"):
        kind = getattr(errors, name)
        noting = type(name, (kind,), {"__init__": lambda self, *arguments, kind=kind: (
            refused.append(str(arguments[0])), kind.__init__(self, *arguments))[1]})
        for module in (codec, objects, parameters, tree, values):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, noting)
    value_fuzzer.read(data)
    assert refused


def test_a_codec_that_cannot_read_its_part_is_data_loss():
    tidemark.register(value_fuzzer.Optimizer, lambda value: 1, lambda stored: stored["x"], name="fuzzed")
    with pytest.raises(tidemark.DataLossError, match="the codec 'fuzzed' cannot read"):
        codec.from_entry("string", codec.to_text({"$registered": ["fuzzed", []]}), value_fuzzer.array)
    del codec._registered[value_fuzzer.Optimizer], codec._decoders["fuzzed"]


def test_a_tensor_without_pytorch_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(errors.UnimplementedError, match="install torch"):
        arrays.new_array("pt", "float32", [3])


@pytest.mark.parametrize("text", ['["' + "x" * 100_000 + '"]', "[" + "[]," * 30_000 + "1]", "[" + "1e5," * 25_000 + "1]",
                                  '{"$dict":[' + "[1,2]," * 15_000 + "[1,2]]}", "[" + '{"a":1},' * 12_000 + "1]",
                                  "[" + '{"$scalar":["<f4","AAAAAA=="]},' * 3000 + "1]",
                                  '{"$bytes":"' + "A" * 100_000 + '"}', "[" + '{"$deque":[[],null]},' * 4000 + "1]",
                                  "[" + '{"$defaultdict":["list",[]]},' * 4000 + "1]", "[" + '{"$path":"a/b"},' * 4000 + "1]",
                                  '{"$path":"' + "a/" * 50_000 + '"}', "[" + '{"$timedelta":[1,2,3]},' * 4000 + "1]",
                                  "[" + '{"$dtype":"<f4"},' * 4000 + "1]",
                                  "[" + '{"$datetime":"2026-01-01T00:00:00+00:00"},' * 3000 + "1]"])
def test_reading_takes_no_more_than_200_bytes_of_memory_for_each_of_its_own(text):
    content = codec.MARK.encode() + text.encode()
    tracemalloc.start()
    try:
        codec.from_entry("string", content, value_fuzzer.array)
        assert tracemalloc.get_traced_memory()[1] < 200 * len(content)
    finally:
        tracemalloc.stop()


# Generated states.

DTYPES = ["bool", "uint8", "int16", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128",
          ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
KEYS = st.text(st.characters(categories=("L", "N"), include_characters="_-$ "), min_size=1, max_size=8)


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@st.composite
def drawn_arrays(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    base = np.frombuffer(draw(st.binary(min_size=64, max_size=64)), np.uint8)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    raw = np.resize(base & 1 if dtype == bool else base, (*shape, 2, dtype.itemsize)).view(dtype)[..., 0]
    return draw(st.sampled_from([lambda: raw[..., 0].copy(), lambda: raw[..., 0], lambda: raw.T, lambda: raw[..., ::-1]]))()


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=20),
                    st.text(st.characters(categories=("Cs",)), max_size=3), st.binary(max_size=20),
                    st.sampled_from([codec.MARK, codec.MARK + "{}", "$float"]))
HASHABLE = st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.tuples(st.integers(), st.text(max_size=3)))
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(HASHABLE, inner, max_size=3),
    st.sets(st.integers(), max_size=4), st.frozensets(st.text(max_size=3), max_size=3)), max_leaves=8)
TREES = st.recursive(st.one_of(VALUES, drawn_arrays()), lambda inner: st.one_of(
    st.dictionaries(KEYS, inner, max_size=4), st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
    st.builds(Pair, inner, inner)), max_leaves=10)
STATES = st.dictionaries(KEYS, TREES, max_size=5)


def blank(value):
    """Of the same structure, with zeros for arrays and None for values."""
    if isinstance(value, np.ndarray):
        return np.zeros((*value.shape, 2), value.dtype)[..., 0] if value.size % 2 else np.zeros_like(value)
    if not containers.holds_places(value):
        return None
    if isinstance(value, Pair):
        return Pair(blank(value.first), blank(value.second))
    if isinstance(value, dict):
        return {key: blank(item) for key, item in value.items()}
    return type(value)(blank(item) for item in value)


def text_of(value):
    """To the bit, with types; the order of sets does not count."""
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, Pair):
        return f"Pair {text_of(value.first)} {text_of(value.second)}"
    if isinstance(value, dict):
        return "dict " + json.dumps([[text_of(key), text_of(item)] for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + json.dumps([text_of(item) for item in value])
    if isinstance(value, (set, frozenset)):
        return type(value).__name__ + json.dumps(sorted(text_of(item) for item in value))
    return f"{type(value).__name__} {value!r}"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "store"
    with tidemark.Checkpointer(path, retention=tidemark.Retention(max_to_keep=2)) as opened:
        yield opened


EXAMPLES = settings(max_examples=int(os.environ.get("TIDEMARK_EXAMPLES", "40")), deadline=None, derandomize="TIDEMARK_EXAMPLES"
                    not in os.environ, database=None, suppress_health_check=list(HealthCheck))
numbers = iter(range(10**9))


@EXAMPLES
@given(STATES)
def test_a_generated_state_comes_back(store, state):
    step = next(numbers)
    store.save(step, {"tree": state, "n": step})
    found = {"tree": blank(state), "n": None}
    store.restore(found, step)
    assert text_of(found) == text_of({"tree": state, "n": step})


@EXAMPLES
@given(VALUES)
def test_a_generated_value_comes_back(value):
    kind, content = codec.to_entry(value, "v")
    assert text_of(codec.from_entry(kind, content, value_fuzzer.array)) == text_of(value)


@EXAMPLES
@given(STATES, st.sampled_from([">f4", ">i8", ">c16"]))
def test_an_array_of_foreign_byte_order_is_refused_by_its_path(state, dtype):
    with pytest.raises(tidemark.UnsupportedTypeError, match="'foreign.0' has the foreign byte order"):
        tree.Tree({**state, "foreign": [np.zeros(2, dtype)]}, writable=False)
