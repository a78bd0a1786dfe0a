"""Dataclasses as states and in them: with slots, and frozen."""

import dataclasses

import numpy as np
import pytest
import tidemark
from tidemark import errors


@dataclasses.dataclass(slots=True)
class Slotted:
    w: np.ndarray
    epoch: int = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    w: np.ndarray
    epoch: int = 0


@dataclasses.dataclass(frozen=True)
class OnlyArrays:
    w: np.ndarray


def test_one_with_slots_is_a_state(checkpointer):
    checkpointer.save(1, Slotted(np.ones(2), 3))
    state = Slotted(np.zeros(2))
    assert checkpointer.resume(state) == 2
    assert state.w.tolist() == [1, 1] and state.epoch == 3


@pytest.mark.parametrize("make", [lambda w, epoch: {"s": Frozen(w, epoch)}, lambda w, epoch: {"s": [Frozen(w, epoch)]},
                                  lambda w, epoch: Frozen(w, (1, w, epoch))])
def test_a_restore_refuses_a_frozen_one_whose_values_it_would_replace_before_it_writes(checkpointer, make):
    checkpointer.save(1, make(np.ones(2), 3)).committed.result(60)
    w = np.zeros(2)
    for restore in (checkpointer.resume, checkpointer.restore):
        with pytest.raises(errors.InvalidArgumentError, match=r"epoch.* lies in a Frozen, a frozen .*load\(like=state\)"):
            restore(make(w, 0))
    with pytest.raises(errors.InvalidArgumentError, match="Frozen"):
        tidemark.capture(make(np.ones(2), 3)).restore(make(w, 0))
    assert w.tolist() == [0, 0]
    made = checkpointer.load(like=make(w, 0))
    assert repr(made) == repr(make(np.ones(2), 3)) and w.tolist() == [0, 0]


def test_arrays_of_a_frozen_one_are_filled_in_place(checkpointer):
    checkpointer.save(1, {"s": OnlyArrays(np.ones(2))})
    state = {"s": OnlyArrays(np.zeros(2))}
    checkpointer.restore(state)
    assert state["s"].w.tolist() == [1, 1]
    checkpointer.save(2, {"s": Frozen(np.ones(2), 3)})
    state = {"s": Frozen(np.zeros(2), 0)}
    checkpointer.restore(state, only=["s.w"])
    assert state["s"].w.tolist() == [1, 1] and state["s"].epoch == 0
