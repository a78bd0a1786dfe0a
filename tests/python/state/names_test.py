"""Two parts of a state never share the name of an entry, and a state that cannot be walked is refused."""

import dataclasses
import random

import numpy as np
import pytest
import tidemark
from stateful import Stateful
from tidemark import errors


@dataclasses.dataclass
class Record:
    lr: object


def w():
    return np.zeros(2)


CASES = {
    "values": ({"a": {"b": 1, "w": w()}, "a.b": 2}, "state['a']['b'] and state['a.b'] would both be stored as 'a.b'"),
    "keys": ({"x": {1: 5, "1": 6, "w": w()}}, "state['x'][1] and state['x']['1'] would both be stored as 'x.1'"),
    "objects": ({"a": {"r": random.Random(1)}, "a.r": random.Random(2)},
                "state['a']['r'] and state['a.r'] would both be stored as 'a.r'"),
    "value and object": ({"a": {"r": random.Random(1)}, "a.r": 1}, "state['a']['r'] and state['a.r'] would both"),
    "arrays": ({"a": {"b": w()}, "a.b": w()}, "state['a']['b'] and state['a.b'] would both be stored as 'a.b'"),
    "array and value": ({"a": [w(), w()], "a.1": 3}, "state['a'][1] and state['a.1'] would both be stored as 'a.1'"),
    "field": ({"a": Record(w()), "a.lr": 3}, "state['a'].lr and state['a.lr'] would both be stored as 'a.lr'"),
    "array of an object": ({"a": Stateful({"m": w()}), "a.m": w()}, "state['a'] and state['a.m'] would both be stored as 'a.m'"),
}
CALLS = {
    "save": lambda checkpointer, state: checkpointer.save(2, state),
    "evaluate": lambda checkpointer, state: checkpointer.evaluate(2, state),
    "prepare": lambda checkpointer, state: checkpointer.prepare(state),
    "capture": lambda checkpointer, state: tidemark.capture(state),
}


@pytest.fixture
def checkpointer(checkpointer):
    checkpointer.save(1, {"w": w()}).committed.result(60)
    return checkpointer


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", CASES)
def test_two_parts_of_a_state_with_one_name_are_refused_and_both_are_named(checkpointer, case, call):
    state, message = CASES[case]
    with pytest.raises(errors.InvalidArgumentError) as caught:
        CALLS[call](checkpointer, state)
    assert message in str(caught.value)
    assert [info.step for info in checkpointer.steps()] == [1]


@pytest.mark.parametrize("case", set(CASES) - {"array of an object"})
def test_a_restore_refuses_them_too(checkpointer, case):
    state, message = CASES[case]
    with pytest.raises(errors.InvalidArgumentError) as caught:
        checkpointer.restore(state, allow_missing=True, allow_unexpected=True)
    assert message in str(caught.value)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def endless():
    value = []
    value.append(value)
    return value


def endless_record():
    record = Record(None)
    record.lr = record
    return record


@pytest.mark.parametrize("value", [nested(3000), [w(), nested(3000)], endless(), {"w": w(), "more": endless()}, endless_record(),
                                   Stateful({"more": endless()}), Stateful({"more": nested(3000)})])
def test_what_contains_itself_or_is_as_good_as_endless_is_refused(checkpointer, value):
    with pytest.raises(errors.InvalidArgumentError, match="contains itself"):
        checkpointer.save(2, {"value": value})
    if not isinstance(value, Stateful):
        with pytest.raises(errors.InvalidArgumentError, match="contains itself"):
            checkpointer.load(like={"value": value})
