"""How far a restore is, and ending one that takes too long."""

import io
import os
import signal

import numpy as np
import pytest
import tidemark


def saved(checkpointer, megabytes=8):
    rng = np.random.default_rng(1)
    state = {"a": rng.random(megabytes << 16), "b": rng.random(megabytes << 16), "epoch": 3}
    checkpointer.save(1, state).committed.result(60)
    return state


def empty_like(state):
    return {"a": np.zeros_like(state["a"]), "b": np.zeros_like(state["b"]), "epoch": 0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_function_is_told_how_far_a_restore_is(checkpointer):
    state = saved(checkpointer)
    bytes_total = state["a"].nbytes + state["b"].nbytes
    for restore in (lambda told: checkpointer.restore(empty_like(state), progress=told.append),
                    lambda told: checkpointer.resume(empty_like(state), progress=told.append),
                    lambda told: checkpointer.load(like=state, progress=told.append)):
        told = []
        restore(told)
        assert told[-1] == tidemark.RestoreProgress(1, bytes_total, bytes_total)
        done = [progress.bytes_done for progress in told]
        assert done == sorted(set(done)) and done[0] > 0
        assert len(told) >= 2, "the first and the last"
    told = []
    checkpointer.restore(empty_like(state), only=["a"], progress=told.append)
    assert told[-1].bytes_total == state["a"].nbytes


def test_what_the_function_raises_ends_the_restore(checkpointer):
    state = saved(checkpointer)

    def stop(progress):
        raise ValueError("enough")

    into = empty_like(state)
    with pytest.raises(tidemark.errors.InternalError, match="progress raised: ValueError: enough"):
        checkpointer.restore(into, progress=stop)
    assert into["epoch"] == 0
    checkpointer.restore(into)
    assert np.array_equal(into["a"], state["a"]) and into["epoch"] == 3


@pytest.mark.parametrize("shown", [True, False])
def test_ctrl_c_ends_the_restore(checkpointer, python_handles_ctrl_c, monkeypatch, shown):
    state = saved(checkpointer)
    calls = []

    def interrupted(progress):
        calls.append(progress)
        os.kill(os.getpid(), signal.SIGINT)

    into = empty_like(state)
    if not shown:
        monkeypatch.setattr("tidemark._checkpointer.progress.look_for_signals", interrupted)
    progress = interrupted if shown else False
    for restore in (lambda: checkpointer.restore(into, progress=progress), lambda: checkpointer.resume(into, progress=progress),
                    lambda: checkpointer.load(like=into, progress=progress)):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            restore()
        assert len(calls) == 1 and calls[0].bytes_done < calls[0].bytes_total
        assert into["epoch"] == 0
    monkeypatch.undo()
    checkpointer.restore(into)
    assert np.array_equal(into["b"], state["b"])


def test_a_terminal_shows_a_line(checkpointer, monkeypatch):
    state = saved(checkpointer)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    checkpointer.restore(empty_like(state), progress=True)
    shown = terminal.getvalue()
    assert shown.startswith("\rrestoring step 1 [") and shown.endswith("\n") and shown.count("\n") == 1
    assert f"[{'#' * 30}] 100 %  0.01 of 0.01 GiB" in shown.split("\r")[-1]
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with pytest.raises(tidemark.NotFoundError):
        checkpointer.restore(empty_like(state), 7, progress=True)
    assert terminal.getvalue() == ""


def test_a_line_that_an_interrupt_cuts_off_ends(checkpointer, monkeypatch, python_handles_ctrl_c):
    state = saved(checkpointer)

    class Interrupting(Terminal):
        def flush(self):
            if not self.getvalue().endswith("\n"):
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("sys.stderr", terminal := Interrupting())
    with pytest.raises(KeyboardInterrupt):
        checkpointer.restore(empty_like(state), progress=True)
    assert terminal.getvalue().count("\r") == 1 and terminal.getvalue().endswith("\n")


def test_progress_is_a_bool_or_a_function(checkpointer):
    state = saved(checkpointer)
    for progress in (3, "yes"):
        with pytest.raises(tidemark.errors.InvalidArgumentError, match="progress is .*, not a bool or a function"):
            checkpointer.restore(empty_like(state), progress=progress)
    checkpointer.restore(empty_like(state), progress=None)


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_nothing_is_shown_without_a_terminal(checkpointer, monkeypatch, stderr):
    state = saved(checkpointer)
    monkeypatch.setattr("sys.stderr", stderr)
    checkpointer.restore(empty_like(state), progress=True)
    assert stderr is None or stderr.getvalue() == ""
