"""Values beyond those of JSON: which ones come back with their type, which ones are refused, and with what way out."""

import collections
import datetime
import decimal
import enum
import fractions
import json
import pathlib
import sys
import uuid
import zoneinfo

import ml_dtypes
import numpy as np
import pytest
import tidemark
from stateful import Stateful
from tidemark import errors
from tidemark._state import codec

torch = pytest.importorskip("torch")

UTC = datetime.timezone.utc
VALUES = [
    pathlib.Path("a/b"), pathlib.Path("/"), pathlib.Path("\udc80"), datetime.date(2026, 1, 31),
    datetime.datetime(2026, 1, 31, 12, 5, 7, 9),
    datetime.datetime(1, 1, 1, tzinfo=UTC), datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-5))),
    datetime.timedelta(-1, 5, 7), datetime.timedelta.max, collections.deque([1, (2,)], maxlen=3), collections.deque(),
    collections.defaultdict(list, {"a": [1]}), collections.defaultdict(None, {1: 2}), collections.defaultdict(int),
    np.dtype("float32"), np.dtype(">i8"), np.dtype("M8[ns]"), np.dtype("U5"), np.dtype(bool), np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn), ml_dtypes.bfloat16(1.5), ml_dtypes.float8_e5m2(2), np.float32(2), np.bool_(True),
    np.str_(""), np.bytes_(b""), np.void(b""), np.datetime64("2026-01-01", "s"), torch.float32, torch.bfloat16, torch.complex64,
    torch.device("cuda:3"), torch.device("cuda:127"), torch.device("cpu"), torch.Size([2, 3]), torch.Size([])]


@pytest.mark.parametrize("value", VALUES, ids=[f"{i}-{type(value).__name__}" for i, value in enumerate(VALUES)])
def test_a_value_comes_back_with_its_type_alone_in_containers_and_in_objects(checkpointer, value):
    hidden = {"list": [value], "key": {(1, 2): value}}
    checkpointer.save(1, {"v": value, "hidden": hidden, "beside": {"w": np.ones(1), "v": value}, "object": Stateful(hidden)})
    state = {"v": None, "hidden": None, "beside": {"w": np.zeros(1), "v": None}, "object": Stateful(None)}
    checkpointer.restore(state)
    for found in (state["v"], state["hidden"]["list"][0], state["hidden"]["key"][1, 2], state["beside"]["v"],
                  state["object"].state["list"][0]):
        assert type(found) is type(value) and found == value and repr(found) == repr(value)
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path) as step:
        assert repr(step.get_value("v")) == repr(value)
    made = checkpointer.load(like={"v": value, "hidden": None}, only=["hidden"])
    assert type(made["v"]) is type(value) and repr(made["hidden"]["list"][0]) == repr(value)


@pytest.mark.parametrize("bits", [62, 63, 64, 1919, 1920, 1921, 16610], ids=str)
def test_an_integer_of_any_size_comes_back(checkpointer, bits):
    # Python makes no decimal text of more than 4,300 digits.
    value = 1 << bits
    checkpointer.save(1, {"v": value, "hidden": [-value, {1: value}]})
    state = {"v": 0, "hidden": None}
    checkpointer.restore(state)
    assert state["v"] == value and state["hidden"] == [-value, {1: value}]


def test_a_value_may_be_a_key(checkpointer):
    value = {pathlib.Path("a"): 1, datetime.date(2026, 1, 1): 2, torch.float32: 3}
    checkpointer.save(1, {"v": value})
    state = {"v": None}
    checkpointer.restore(state)
    assert state["v"] == value


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize("value,message", [
    (Colour.RED, r"is a .*Colour, an Enum.*Store its value.*tidemark\.register\(Colour, lambda member: member.value, Colour\)"),
    (Level.HIGH, r"is a .*Level, an Enum"), (uuid.UUID(int=1), r"is a uuid\.UUID.*tidemark\.register"),
    (decimal.Decimal(1), r"is a decimal\.Decimal.*tidemark\.register"),
    (fractions.Fraction(1, 2), r"is a fractions\.Fraction.*tidemark\.register"),
    (collections.defaultdict(lambda: 0), r"is a collections\.defaultdict with the factory <function.*dict\(value\)"),
    (datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(0), "Here")),
     r"is a datetime\.datetime.*register"),
    (datetime.datetime(2026, 1, 1, fold=1), r"is a datetime\.datetime"), (datetime.time(1), r"is a datetime\.time"),
    (pathlib.PurePosixPath("a"), "is a pathlib.*PurePosixPath"), (np.dtype([("a", "f4")]), "is a numpy.*register"),
    (np.void(b"12").view([("a", "u1"), ("b", "u1")]), "is a numpy.void"), (len, "is a builtins.*function"),
    (np.float32, "is the class numpy.float32 itself"),
    (torch.qint8, r"is a torch\.dtype.*tidemark\.register")])
def test_what_cannot_be_stored_is_named_with_its_path_its_type_and_the_way_out(checkpointer, value, message):
    for state, path in (({"a": [value]}, r"a\.0"), ({"o": Stateful({"x": value})}, r"o\.x")):
        with pytest.raises(tidemark.UnsupportedTypeError, match=f"'{path}' {message}"):
            checkpointer.save(1, state)
    assert checkpointer.steps() == []


def test_the_codec_that_the_error_proposes_for_an_enum_works(checkpointer):
    try:
        tidemark.register(Colour, lambda member: member.value, Colour)
        checkpointer.save(1, {"c": Colour.RED})
        state = {"c": None}
        checkpointer.restore(state)
        assert state["c"] is Colour.RED
    finally:
        del codec._registered[Colour]


def test_a_named_tuple_in_what_state_dict_returns_is_refused_with_the_way_out(checkpointer):
    with pytest.raises(tidemark.UnsupportedTypeError,
                       match=r"'o\.p' is a .*Point, a named tuple: state_dict\(\) must not return one.*"
                             r"_asdict.*tidemark\.register"):
        checkpointer.save(1, {"o": Stateful({"p": Point(1, 2)})})


# Containers with arrays.


def test_a_deque_of_arrays_is_filled_in_place(checkpointer):
    def make(fill):
        return {"buffer": collections.deque([np.full(2, fill), fill, np.full(3, fill)], maxlen=5)}

    checkpointer.save(1, make(1.0))
    state = make(0.0)
    arrays = list(state["buffer"])
    checkpointer.restore(state)
    assert [np.mean(item) for item in state["buffer"]] == [1, 1, 1] and state["buffer"].maxlen == 5
    assert state["buffer"][0] is arrays[0] and state["buffer"][2] is arrays[2]
    like = make(0.0)
    loaded = checkpointer.load(like=like)
    assert [np.mean(item) for item in loaded["buffer"]] == [1, 1, 1] and loaded["buffer"].maxlen == 5
    assert np.mean(like["buffer"][0]) == 0
    with pytest.raises(tidemark.errors.InvalidArgumentError, match=r"state\['buffer'\]\[0\] and state\['buffer\.0'\]"):
        checkpointer.save(2, {**make(1.0), "buffer.0": np.ones(1)})


def test_a_deque_in_an_object_may_hold_arrays(checkpointer):
    saved = Stateful({"recent": collections.deque([np.arange(3.0), "x"], maxlen=2)})
    checkpointer.save(1, {"o": saved}).committed.result(60)
    restored = Stateful(None)
    checkpointer.restore({"o": restored})
    assert repr(restored.state) == repr(saved.state)
    with tidemark.open(checkpointer.path) as step:
        assert step.keys() == ["o.recent.0"]


# Text that no save has written.


WRONG = [
    {"$path": 5}, {"$path": {"a": 1}}, {"$date": "today"}, {"$date": 5}, {"$datetime": "2026-13-01"}, {"$datetime": None},
    {"$timedelta": [1e308, 0, 0]}, {"$timedelta": [1]}, {"$timedelta": 5}, {"$timedelta": ["1", 0, 0]}, {"$dtype": "O"},
    {"$dtype": "f3"}, {"$dtype": "float32,O"}, {"$dtype": 5}, {"$scalar": ["bfloat16", ""]}, {"$torch.dtype": "load"},
    {"$torch.dtype": ["float32"]}, {"$torch.device": "cuda:-1"}, {"$torch.device": "cuda:128"},
    {"$torch.device": "cuda:300"}, {"$torch.device": "cuda:9999"}, {"$torch.device": "x" * 1000}, {"$torch.device": 5},
    {"$torch.Size": ["a"]}, {"$torch.Size": 5}, {"$deque": [[1], -1]}, {"$deque": [[1], "a"]}, {"$deque": [5, None]},
    {"$deque": [[1], 2**70]}, {"$defaultdict": ["eval", []]}, {"$defaultdict": [["list"], []]},
    {"$defaultdict": ["list", [[[], 1]]]}, {"$defaultdict": []}, {"$torch.layout": "strided"}]
UNKNOWN_HERE = [{"$dtype": "float99"}, {"$scalar": ["float99", ""]}, {"$torch.device": "nothing"}]


@pytest.mark.parametrize("content,kind", [*((content, errors.DataLossError) for content in WRONG),
                                          *((content, errors.UnimplementedError) for content in UNKNOWN_HERE)])
def test_a_hostile_value_is_an_error_of_tidemark(content, kind):
    with pytest.raises(kind):
        codec.from_entry("string", codec.MARK.encode() + json.dumps(content).encode(), lambda name: None)


@pytest.mark.parametrize("content,message", [
    ({"$dtype": "O"}, "the dtype 'O', which is not a dtype of NumPy's"),
    ({"$torch.dtype": "load"}, "which PyTorch does not have"),
    ({"$torch.device": "cuda:300"}, "the device 'cuda:300', which is not a device name")])
def test_the_error_says_what_is_wrong_with_a_hostile_value(content, message):
    with pytest.raises(errors.DataLossError, match=message):
        codec.from_entry("string", codec.to_text(content), lambda name: None)


@pytest.mark.parametrize("value", [torch.float32, torch.device("cpu"), torch.Size([1])])
def test_values_of_pytorch_need_pytorch_to_be_read(monkeypatch, value):
    entry = codec.to_entry(value, "v")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(errors.UnimplementedError, match="install torch"):
        codec.from_entry(*entry, lambda name: None)


@pytest.mark.parametrize("value, way_out", [
    (datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")), r"tzinfo zoneinfo.ZoneInfo\(key='UTC'\).*astimezone"),
    (tidemark.rng, r"call it: tidemark\.rng\(\)"), (int, "the class builtins.int itself.*store its name"),
    (np.ones(2, np.longdouble), r"long double.*astype\('float64'\)"),
    (np.ones(2, np.clongdouble), r"long double.*astype\('complex128'\)")])
def test_the_error_of_what_cannot_be_stored_has_a_way_out_that_helps(checkpointer, value, way_out):
    with pytest.raises(tidemark.UnsupportedTypeError, match=f"'v' is .*{way_out}"):
        checkpointer.save(1, {"v": value})


def test_a_dtype_of_ml_dtypes_that_has_the_letter_of_a_long_double_is_stored(checkpointer):
    array = np.ones(2, ml_dtypes.float8_e4m3fnuz)
    assert array.dtype.char == np.dtype(np.clongdouble).char
    checkpointer.save(1, {"v": array}).committed.result(60)
