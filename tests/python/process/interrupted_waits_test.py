"""Ctrl-C in calls that wait in the library: for room, for an evaluator, for the disk."""

import contextlib
import queue
import signal
import threading
import time

import numpy as np
import pytest
import tidemark
from tidemark import _native


class Interruption(Exception):
    """What a handler raises: it need not be a KeyboardInterrupt."""


@contextlib.contextmanager
def interrupted_after(seconds):
    """The block must be left by a signal that comes after so many seconds."""
    def handler(*_):
        raise Interruption()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with pytest.raises(Interruption):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def held_up(tmp_path):
    """Opens a checkpointer with one save, whose evaluator stands still until the second function is called."""
    go_on = threading.Event()
    opened = []

    def open_with(*, when_lagging="block", **options):
        checkpointer = tidemark.Checkpointer(tmp_path / "store", **options)
        opened.append(checkpointer)
        began = threading.Event()
        checkpointer.evaluator("slow", lambda snapshot: began.set() or go_on.wait(60), when_lagging=when_lagging)
        checkpointer.save(1, {"w": np.ones(100_000)})
        assert began.wait(60)
        return checkpointer

    yield open_with, go_on.set
    go_on.set()
    for checkpointer in opened:
        checkpointer.close()


ROOM_FOR_ONE = {"staging_bytes_max": 1_200_000, "when_lagging": "skip"}


@pytest.mark.parametrize("options", [{}, ROOM_FOR_ONE], ids=["for an evaluator", "for memory"])
@pytest.mark.parametrize("call", ["save", "evaluate"])
def test_a_save_that_waits_ends_and_is_not_there(held_up, options, call):
    open_with, go_on = held_up
    checkpointer = open_with(**options)
    state = {"w": np.full(100_000, 2.0)}
    with interrupted_after(0.2):
        getattr(checkpointer, call)(2, state)
    checkpointer.check_for_errors()
    assert [info.step for info in checkpointer.steps()] == [1]
    go_on()
    checkpointer.save(2, state).committed.result(60)
    state["w"][:] = 0
    checkpointer.restore(state, 2)
    assert (state["w"] == 2).all()


def test_a_handler_that_raises_nothing_ends_no_wait(held_up):
    open_with, go_on = held_up
    checkpointer = open_with()
    calls = []

    def handler(*_):
        calls.append(time.monotonic())
        if len(calls) == 3:
            go_on()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        checkpointer.save(2, {"w": np.zeros(100_000)}).committed.result(60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(calls) >= 3, "the handler ran only behind the save"


def test_on_another_thread_a_save_waits_on(held_up):
    open_with, go_on = held_up
    checkpointer = open_with()
    saves = queue.Queue()
    thread = threading.Thread(target=lambda: saves.put(checkpointer.save(2, {"w": np.zeros(100_000)})))
    thread.start()
    with interrupted_after(0.2):
        saves.get(timeout=60)
    go_on()
    saves.get(timeout=60).committed.result(60)
    thread.join()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store whose one tensor of zeros has 1 GiB, and next to nothing on the disk."""
    store = tmp_path_factory.mktemp("large") / "store"
    with tidemark.Checkpointer(store, compression="space") as checkpointer:
        checkpointer.save(1, {"w": np.zeros((1, 1 << 10, 1 << 20), np.uint8)}).committed.result(60)
    return store


@pytest.mark.parametrize("part", ["all", "box"])
def test_the_reading_of_one_large_tensor_ends(large, part):
    file = _native.open_step(str(large), "1", False)
    (index,) = [i for i, entry in enumerate(file.entries()) if entry[0] == "w"]
    size = 1 << 30
    memory = np.ones(size, np.uint8)
    with interrupted_after(0.001):
        if part == "all":
            file.read(index, 0, memory.ctypes.data, size)
        else:
            file.read_box("w", [0, 0, 0], [1, 1 << 10, 1 << 20], memory.ctypes.data, size)
    assert memory[0] == 0 and memory[-1] == 1, "it went on to the end"


def test_a_large_tensor_is_read_whole_in_its_pieces(tmp_path):
    rows = 9  # of 40 MB each; a piece is at most 256 MiB, so it takes two
    values = np.arange(rows * 10_000_000, dtype=np.uint32).reshape(1, rows, 10_000_000)
    with tidemark.Checkpointer(tmp_path / "store", compression="space") as checkpointer:
        checkpointer.save(1, {"w": values}).committed.result(60)
    with tidemark.open(tmp_path / "store") as step:
        assert (step.get_tensor("w") == values).all()
        assert (step.get_slice("w")[:, 1:] == values[:, 1:]).all()


def test_verify_ends(large):
    begin = time.monotonic()
    tidemark.verify(large)
    whole = time.monotonic() - begin
    begin = time.monotonic()
    with interrupted_after(0.001):
        tidemark.verify(large)
    assert time.monotonic() - begin < whole / 2
