"""Named tuples, and objects of classes derived from dict, list and deque: a restore fills them in place."""

import collections
import dataclasses
import sys
import threading
import typing

import numpy as np
import pytest
import tidemark
from tidemark import errors
from tidemark._state import containers

Point = collections.namedtuple("Point", "x y")


class Config(dict):
    pass


class Items(list):
    pass


class Recent(collections.deque):
    pass


@dataclasses.dataclass
class Run:
    point: Point
    recent: collections.deque


def test_named_tuples_and_derived_classes_are_filled_in_place(checkpointer):
    def make(n):
        return {"point": Point(n, "y"), "nested": [Point(n, Point(n, n))], "config": Config(lr=n, sub=Config(a=[n])),
                "items": Items([n]), "run": Run(Point(n, n), collections.deque([n], maxlen=2)), "empty": Config(),
                "recent": Recent([n], 3), "arrays": Items([np.full(2, n), n, Config(n=n)])}

    saved, restored = make(1), make(0)
    checkpointer.save(1, saved)
    kept = {name: restored[name] for name in ("config", "items", "recent", "arrays")}
    array, inner = restored["arrays"][0], restored["config"]["sub"]
    checkpointer.restore(restored)
    assert repr(restored) == repr(saved) and all(restored[name] is value for name, value in kept.items())
    assert restored["arrays"][0] is array and restored["config"]["sub"] is inner and type(restored["arrays"][2]) is Config
    like = make(0)
    loaded = checkpointer.load(like=like)
    assert repr(loaded) == repr(saved) and type(loaded["config"]) is Config and type(loaded["items"]) is Items
    assert type(loaded["recent"]) is Recent and repr(like) == repr(make(0))
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path) as step:
        assert {"point.0", "nested.0.1.0", "config.lr", "config.sub", "items", "run.point.1", "run.recent", "recent",
                "arrays.1", "arrays.2"} <= set(step.value_keys())
        for name, kind in (("config.sub", dict), ("items", list), ("recent", collections.deque)):
            assert type(step.get_value(name)) is kind


class Size(collections.namedtuple("Size", "width height")):
    def __new__(cls, text):
        return super().__new__(cls, *text.split("x"))


def test_a_named_tuple_with_a_constructor_of_its_own_is_filled(checkpointer):
    checkpointer.save(1, {"size": Size("3x4"), "pair": [Size("5x6")]})
    state = {"size": Size("0x0"), "pair": [Size("0x0")]}
    loaded = checkpointer.load(like=state)
    checkpointer.restore(state)
    for found in (loaded, state):
        assert found == {"size": ("3", "4"), "pair": [("5", "6")]} and type(found["size"]) is type(found["pair"][0]) is Size


@pytest.mark.parametrize("before,after", [
    (Items([1, 2, 3]), Items()), (Items([1]), Items([1, 2, 3])), (Config(a=1, b=2), Config(c=3)),
    (Recent([1, 2], 4), Recent([], 4)), (Config({(1, 2): "a", None: 3}), Config())], ids=str)
def test_what_has_no_arrays_is_filled_whole(checkpointer, before, after):
    state = {"h": after, "w": np.zeros(1)}
    checkpointer.save(1, {"h": before, "w": np.ones(1)})
    loaded = checkpointer.load(like=state)
    assert loaded["h"] == before and type(loaded["h"]) is type(before)
    assert checkpointer.resume(state) == 2
    assert state["h"] is after and after == before
    copy = tidemark.capture(state)
    after.clear()
    copy.restore(state)
    assert state["h"] is after and after == before


def test_a_rank_whose_list_is_shorter_gets_all_of_it(tmp_path):
    meeting, messages, found = threading.Barrier(2, timeout=60), [b"", b""], {}

    def gather(rank):
        def of_rank(message):
            messages[rank] = message
            meeting.wait()
            gathered = list(messages)
            meeting.wait()
            return gathered
        return of_rank

    def run(rank):
        with tidemark.Checkpointer(tmp_path / "store", ranks=tidemark.Ranks(rank, 2, gather(rank))) as checkpointer:
            checkpointer.save(1, {f"h.{rank}": Items([rank, 2, 3])}).committed.result(60)
            state = {f"h.{rank}": Items()}
            checkpointer.restore(state)
            found[rank] = state[f"h.{rank}"]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == {0: [0, 2, 3], 1: [1, 2, 3]}


def test_a_step_of_a_plain_container_fills_a_derived_one_and_the_reverse(checkpointer):
    checkpointer.save(1, {"c": {"a": 1}, "i": Items([1])})
    state = {"c": Config(b=2), "i": None}
    checkpointer.restore(state)
    assert state == {"c": {"a": 1}, "i": [1]} and type(state["c"]) is Config and type(state["i"]) is list


@pytest.mark.parametrize("here", [Config(), Items(), Recent()])
def test_other_content_is_refused_before_anything_is_written(checkpointer, here):
    checkpointer.save(1, {"c": 5, "w": np.ones(1), "n": 1})
    state = {"w": np.zeros(1), "n": 0, "c": here}
    with pytest.raises(errors.InvalidArgumentError, match=f"'c' is a {type(here).__name__} here, and a int in the checkpoint"):
        checkpointer.restore(state)
    assert state["n"] == 0 and state["c"] is here


class Fixed(dict):
    def __setitem__(self, key, value):
        raise TypeError("it is fixed")

    def clear(self):
        raise TypeError("it is fixed")


@pytest.mark.parametrize("make,path", [(lambda n: Fixed(x=n), "c"), (lambda n: Fixed(x=n, w=np.ones(1)), r"c\.x")])
def test_a_class_that_refuses_the_items_is_named(checkpointer, make, path):
    checkpointer.save(1, {"c": make(1)})
    with pytest.raises(errors.InvalidArgumentError, match=rf"'{path}': the class Fixed refuses .*TypeError\('it is fixed'\)"):
        checkpointer.restore({"c": make(0)})
    with pytest.raises(tidemark.UnsupportedTypeError, match=r"a Fixed of the state cannot be copied: TypeError.*Use `restore`"):
        checkpointer.load(like={"c": make(0)})


def with_attribute(value):
    value.version = 3
    return value


class Slotted(list):
    __slots__ = ("version", "other")


@pytest.mark.parametrize("value,base", [
    (with_attribute(Config(a=1)), "dict"), (with_attribute(Config(a=np.ones(1))), "dict"), (with_attribute(Items([1])), "list"),
    (with_attribute(Slotted()), "list"), (with_attribute(Recent([np.ones(1)])), "collections.deque")], ids=repr)
def test_attributes_of_a_derived_class_are_refused_with_the_way_out(checkpointer, value, base):
    message = (rf"'c\.0' is a .*{type(value).__name__} with the attribute 'version', and only the items .* derived from {base} "
               rf"are stored.*{base}\(value\).*tidemark\.register")
    for call in (lambda: checkpointer.save(1, {"c": [value]}), lambda: tidemark.capture({"c": [value]})):
        with pytest.raises(tidemark.UnsupportedTypeError, match=message):
            call()
    if isinstance(value, dict):
        with pytest.raises(tidemark.UnsupportedTypeError, match="the state is a .*Config with the attribute 'version'"):
            checkpointer.save(1, value)


class Attributed(dict):
    """Its items are its attributes."""

    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


class Looking(dict):
    __slots__ = ()
    __getattr__ = dict.get
    if sys.version_info < (3, 11):
        def __getstate__(self):
            """The copy module of Python 3.10 asks the object for one, and would call what `dict.get` finds."""


class Strict(dict):
    __slots__ = ()
    __getattr__ = dict.__getitem__  # a KeyError where there is none


class Buffer(list, typing.Generic[typing.TypeVar("T")]):
    pass


@pytest.mark.parametrize("make", [lambda n: Attributed(a=n), lambda n: Looking(a=n), lambda n: Strict(a=n),
                                  lambda n: Buffer[int]([n]), lambda n: Slotted([n])])
def test_classes_without_other_attributes_than_their_items_are_stored(checkpointer, make):
    checkpointer.save(1, {"c": make(1)})
    state = {"c": make(0)}
    loaded = checkpointer.load(like=state)["c"]
    checkpointer.restore(state)
    for found in (loaded, state["c"]):
        assert found == make(1) and type(found) is type(make(1)) and getattr(found, "a", 1) == 1


def test_the_numbers_of_a_list_are_not_looked_at_one_by_one(monkeypatch):
    calls = []
    real = containers.holds_places
    monkeypatch.setattr(containers, "holds_places", lambda value, above=(): calls.append(value) or real(value, above))
    assert not containers.is_filled_whole(list(range(1000))) and not real([0] * 1000) and real([0] * 1000 + [np.ones(1)])
    assert len(calls) == 1
