"""Objects that are stored by pickle, because one key of the state asks for it on both sides."""

import base64
import dataclasses
import json
import pickle
import random

import numpy as np
import pytest
import tidemark
from tidemark._state import codec

CALLS = []


def note(what):
    CALLS.append(what)
    return what


class Tokenizer:
    def __init__(self, words):
        self.words = words


class Noting:
    """Reading it calls a function, as that of a hostile checkpoint would."""

    def __reduce__(self):
        return note, ("pickle ran",)


@pytest.fixture
def checkpointer(checkpointer):
    CALLS.clear()
    return checkpointer


@dataclasses.dataclass
class Record:
    object: tidemark.Pickled


def test_an_object_comes_back_where_both_sides_ask_for_pickle(checkpointer):
    words = ["é", np.arange(3)]
    checkpointer.save(1, {"tokenizer": tidemark.Pickled(Tokenizer(words)), "deep": [(tidemark.Pickled({1: {2}}), 3)],
                          "record": Record(tidemark.Pickled(range(3))), "w": np.ones(2)})
    state = {"tokenizer": tidemark.Pickled(), "deep": [(tidemark.Pickled(), 0)], "record": Record(tidemark.Pickled()),
             "w": np.zeros(2)}
    place = state["tokenizer"]
    checkpointer.restore(state)
    assert state["tokenizer"] is place and type(place.value) is Tokenizer
    assert place.value.words[0] == "é" and place.value.words[1].tolist() == [0, 1, 2]
    assert state["deep"][0][0].value == {1: {2}} and state["deep"][0][1] == 3 and state["record"].object.value == range(3)
    assert repr(state["record"].object) == "tidemark.Pickled(range(0, 3))"


def test_a_key_that_does_not_ask_for_it_is_refused_and_nothing_runs(checkpointer):
    checkpointer.save(1, {"o": tidemark.Pickled(Noting()), "n": 5, "w": np.ones(1)}).committed.result(60)
    for other in (None, 7, "text", [1], {"a": 1}):
        state = {"o": other, "n": 0, "w": np.zeros(1)}
        with pytest.raises(tidemark.UnsupportedTypeError, match=r"'o' was pickled.*any code.*tidemark\.Pickled\(\) at that key"):
            checkpointer.restore(state)
        assert state["o"] is other and state["n"] == 0
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="'o' is an object with state here"):
        checkpointer.restore({"o": random.Random(1), "n": 0, "w": np.zeros(1)})
    with tidemark.open(checkpointer.path) as step:
        with pytest.raises(tidemark.UnsupportedTypeError, match=r"'o' was pickled.*get_value\('o', pickled=True\)"):
            step.get_value("o")
        assert step.get_value("n", pickled=True) == 5
        assert CALLS == []
        assert step.get_value("o", pickled=True) == "pickle ran"
    state = {"o": tidemark.Pickled(), "n": 0, "w": np.zeros(1)}
    checkpointer.restore(state)
    assert state["o"].value == "pickle ran" and CALLS == ["pickle ran"] * 2


def test_a_snapshot_refuses_it_too(checkpointer):
    snapshot = tidemark.capture({"o": tidemark.Pickled(Noting())})
    with pytest.raises(tidemark.UnsupportedTypeError, match="'o' was pickled"):
        snapshot["o"]
    assert CALLS == []
    state = {"o": tidemark.Pickled()}
    snapshot.restore(state)
    assert state["o"].value == "pickle ran"


def test_a_value_that_was_stored_without_pickle_is_taken(checkpointer):
    checkpointer.save(1, {"o": {"a": 1}})
    state = {"o": tidemark.Pickled()}
    checkpointer.restore(state)
    assert state["o"].value == {"a": 1}


def test_a_load_leaves_the_place_of_like_as_it_is(checkpointer):
    checkpointer.save(1, {"o": tidemark.Pickled(3), "w": np.ones(1)})
    like = {"o": tidemark.Pickled(), "w": np.zeros(1)}
    assert checkpointer.load(like=like)["o"].value == 3 and like["o"].value is None


def test_no_pickle_hides_in_a_value():
    """Written by a stranger: inside another value, or with other spaces."""
    CALLS.clear()
    pickled = base64.b64encode(pickle.dumps(Noting())).decode()
    for encoded in ({"$tuple": [{"$pickled": pickled}]}, [{"$pickled": pickled}], {"$registered": ["x", {"$pickled": pickled}]}):
        with pytest.raises(tidemark.UnsupportedTypeError):
            codec.from_entry("string", codec.to_text(encoded), lambda name: None)
    spaced = codec.MARK + ' {"$pickled": ' + json.dumps(pickled) + "}"
    with pytest.raises(tidemark.UnsupportedTypeError, match="was pickled"):
        codec.from_entry("string", spaced.encode(), lambda name: None)
    assert CALLS == []


def test_a_place_that_no_restore_could_reach_is_refused(checkpointer):
    class Object:
        def state_dict(self):
            return {"a": tidemark.Pickled(1)}

        def load_state_dict(self, state):
            raise AssertionError

    for state in ({"s": {tidemark.Pickled(1)}}, {"s": Object()}):
        with pytest.raises(tidemark.UnsupportedTypeError, match="'s.*is a tidemark.Pickled where none can be"):
            checkpointer.save(1, state)


def test_what_pickle_cannot_do_is_an_error_with_the_key(checkpointer, monkeypatch):
    with pytest.raises(tidemark.UnsupportedTypeError, match="'f' is a builtins.function, which pickle cannot store"):
        checkpointer.save(1, {"f": tidemark.Pickled(lambda: 1)})
    assert checkpointer.steps() == []
    checkpointer.save(1, {"t": tidemark.Pickled(Tokenizer([]))}).committed.result(60)
    monkeypatch.delattr(f"{__name__}.Tokenizer")
    with pytest.raises(tidemark.UnsupportedTypeError, match="'t' was pickled with a class that is not here.*Tokenizer"):
        checkpointer.restore({"t": tidemark.Pickled()})
    for text in ("!", base64.b64encode(b"no pickle").decode(), base64.b64encode(pickle.dumps([1])[:-2]).decode(), None):
        with pytest.raises(tidemark.DataLossError, match="'t'"):
            tidemark._state.pickled.from_entry("string", codec.to_text({"$pickled": text}), "t")


def test_the_error_of_an_object_names_the_way_out(checkpointer):
    with pytest.raises(tidemark.UnsupportedTypeError, match=r"'o' is a pickled_test.Tokenizer.*tidemark\.Pickled\(object\)"):
        checkpointer.save(1, {"o": Tokenizer([])})
