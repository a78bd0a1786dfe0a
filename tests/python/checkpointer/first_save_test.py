"""The memory of the first save is touched in the background, while the training begins."""

import os
import time

import numpy as np
import pytest

import tidemark
from tidemark import errors

MIB = 1 << 20
ARRAY_BYTES = 32 * MIB


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def array():
    return np.ones(ARRAY_BYTES // 4, np.float32)


class Growth:
    """How much more memory the process has."""

    def __init__(self):
        self.before = resident_bytes()

    def bytes(self):
        return resident_bytes() - self.before

    def reaches(self, expected):
        deadline = time.monotonic() + 60
        while self.bytes() < expected:
            assert time.monotonic() < deadline, f"{self.bytes()} of {expected} bytes"
            time.sleep(0.01)


def test_a_fresh_run_touches_the_memory_of_its_arrays(tmp_path):
    state = {"w": array(), "b": array(), "text": "x" * 100_000, "step": 0}
    with tidemark.Checkpointer(tmp_path, compression="none") as checkpointer:
        growth = Growth()
        assert checkpointer.resume(state) == 0
        growth.reaches(2 * ARRAY_BYTES - MIB)
        checkpointer.save(1, state).committed.result()
        assert growth.bytes() < 3 * ARRAY_BYTES - MIB  # it is this memory that the save takes


def test_a_restart_touches_it_too(tmp_path):
    state = {"w": array(), "b": array(), "text": "x" * 100_000, "step": 0}
    with tidemark.Checkpointer(tmp_path, compression="none") as checkpointer:
        checkpointer.save(1, state).committed.result()
    with tidemark.Checkpointer(tmp_path, compression="none") as checkpointer:
        growth = Growth()
        assert checkpointer.resume(state) == 2
        growth.reaches(2 * ARRAY_BYTES - MIB)
        checkpointer.save(2, state).committed.result()
        assert growth.bytes() < 3 * ARRAY_BYTES - MIB


def test_a_state_that_has_grown_is_prepared_in_the_background(tmp_path):
    state = {"w": array(), "step": 0}
    with tidemark.Checkpointer(tmp_path, compression="none") as checkpointer:
        growth = Growth()
        checkpointer.resume(state)
        growth.reaches(ARRAY_BYTES - MIB)
        state.update(first=array(), second=array())
        growth = Growth()
        checkpointer.prepare(state, in_background=True)
        growth.reaches(2 * ARRAY_BYTES - MIB)  # what was touched for the smaller state is given back
        checkpointer.prepare(state, in_background=True)
        checkpointer.save(1, state).committed.result()
        assert growth.bytes() < 3 * ARRAY_BYTES - MIB


def test_prepare_in_the_background_has_the_errors_of_a_save(tmp_path):
    with tidemark.Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(errors.UnsupportedTypeError):
            checkpointer.prepare({"a": object()}, in_background=True)
        with pytest.raises(errors.InvalidArgumentError, match="in_background"):
            checkpointer.prepare({"a": 1}, in_background="yes")
    with pytest.raises(errors.FailedPreconditionError):
        checkpointer.prepare({"a": 1}, in_background=True)


def test_the_trainer_prepares_what_the_first_step_has_made(tmp_path):
    state = {"w": array()}
    growth = None

    def train(step):
        nonlocal growth
        if step == 0:
            state.update(first=array(), second=array())
            growth = Growth()
        if step == 1:
            growth.reaches(2 * ARRAY_BYTES - MIB)

    tidemark.AsyncTrainer(tmp_path, state, train, save_interval_steps=5, compression="none").run(2)
    assert growth is not None
