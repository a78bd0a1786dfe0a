"""Handles that cannot be used any more: closed ones, and those of the parent in a forked child. Every public method and
property is called, as `dir` finds them."""

import os
import signal
import subprocess
import sys
import time

import handle_calls
import numpy as np
import pytest
import tidemark
from handle_calls import STATE, TABLES, outcome, public
from tidemark import errors

# What may be called after a close, and why.
AFTER_CLOSE = {
    tidemark.Checkpointer: {"close": "again does nothing", "statistics": "are those at the close",
                            "check_for_errors": "all failures have been raised or logged"},
    tidemark.Step: {"close": "again does nothing", "keys": "are in memory", "value_keys": "are in memory"},
    tidemark.Slice: {"get_dtype": "is in memory", "get_shape": "is in memory"},
    tidemark.BestFile: {"close": "again does nothing"},
    # These outlive the checkpointer.
    tidemark.Snapshot: dict.fromkeys(handle_calls.SNAPSHOT, "owns its memory"),
    tidemark.SaveHandle: dict.fromkeys(handle_calls.SAVE_HANDLE, "has its result"),
    tidemark.Future: dict.fromkeys(handle_calls.FUTURE, "has its result"),
}
# What may be called in a forked child, and why.
IN_CHILD = {
    tidemark.Checkpointer: {},
    tidemark.Step: dict.fromkeys(handle_calls.STEP, "reads files, which a child may"),
    tidemark.Slice: dict.fromkeys(handle_calls.SLICE, "reads files, which a child may"),
    tidemark.Snapshot: dict.fromkeys(("__contains__", "__iter__", "__len__", "dtype_of", "keys"), "is in Python's memory"),
    tidemark.BestFile: {"close": "does nothing, so that a child leaves the parent's `with` block"},
    tidemark.SaveHandle: {},
    tidemark.Future: dict.fromkeys(("add_done_callback", "cancel", "cancelled", "done", "exception", "running"),
                                   "tells without raising that it has failed"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_public_name_of_a_handle_is_called(kind):
    assert public(kind) == TABLES[kind].keys()
    assert AFTER_CLOSE[kind].keys() <= TABLES[kind].keys() and IN_CHILD[kind].keys() <= TABLES[kind].keys()


def open_handles(folder):
    store = folder / "store"
    checkpointer = tidemark.Checkpointer(store)
    seen = []
    checkpointer.evaluator("keeps", lambda snapshot: None if seen else seen.append(snapshot))  # one alone, for its memory
    save = checkpointer.save(1, STATE, metrics={"loss": 1.0})
    save.committed.result(60)
    checkpointer.wait_until_evaluated(60)
    step = tidemark.open(store)
    best = tidemark.BestFile(store, "loss", folder / "best.safetensors")
    return [checkpointer, step, step.get_slice("w"), best, seen[0], save, save.committed]


def test_an_open_handle_refuses_no_call_as_closed(tmp_path, monkeypatch):
    """So the calls of the tests below have arguments that are right."""
    monkeypatch.chdir(tmp_path)
    handles = open_handles(tmp_path)
    last = ("close", "__enter__")
    for handle in handles:
        for name, call in TABLES[type(handle)].items():
            if name not in last:
                found = outcome(call, handle)
                # The only step is the latest, which stays.
                assert found == "done" or (name in ("delete", "untag") and "closed" not in found), (name, found)
    for handle in reversed(handles):
        if "close" in TABLES[type(handle)]:
            handle.close()


def test_a_closed_handle_refuses_every_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handles = open_handles(tmp_path)
    nouns = {tidemark.Checkpointer: "the checkpointer", tidemark.Step: "the step", tidemark.Slice: "the step",
             tidemark.BestFile: "the best file"}
    for handle in reversed(handles):
        if "close" in TABLES[type(handle)]:
            handle.close()
    for handle in handles:
        kind = type(handle)
        for name, call in TABLES[kind].items():
            expected = "done" if name in AFTER_CLOSE[kind] else f"refused: {nouns[kind]} is closed"
            assert outcome(call, handle) == expected, (kind, name)
    np.testing.assert_array_equal(handles[4]["w"], STATE["w"])
    with tidemark.open(tmp_path / "store") as step:
        empty, whole = step.get_slice("empty"), step.get_slice("w")
    for read in (lambda: empty[:], lambda: whole[0], lambda: whole[...]):  # no bytes, a row, all
        with pytest.raises(errors.FailedPreconditionError, match="the step is closed"):
            read()


def test_a_checkpointer_that_a_guard_has_closed_is_refused(tmp_path):
    with tidemark.PreemptionGuard(end=time.time() + 60, grace=60) as guard:
        checkpointer = tidemark.Checkpointer(tmp_path / "store")
        assert guard.save_and_close(checkpointer, 1, STATE).committed
        with pytest.raises(errors.FailedPreconditionError, match="the checkpointer is closed"):
            guard.save_and_close(checkpointer, 2, STATE)
        # The guard itself has nothing to close: it tells of the signal and of the time, and of what ranks have agreed on.
        guard.uninstall()
        assert public(tidemark.PreemptionGuard) == {"__enter__", "agree_on", "has_agreed", "note", "preempted",
                                                    "preempted_on_any_rank", "save_and_close", "seconds_left", "uninstall"}
        with pytest.raises(errors.FailedPreconditionError, match="would note no signal"), guard:
            pass
        guard.uninstall()
        guard.note()
        assert not guard.has_agreed and guard.preempted and guard.preempted_on_any_rank(checkpointer)
        assert guard.seconds_left() <= 60
        for name, call in handle_calls.CHECKPOINTER.items():
            closed = "done" if name in AFTER_CLOSE[tidemark.Checkpointer] else "refused: the checkpointer is closed"
            assert outcome(call, checkpointer) == closed, name


def test_a_trainer_has_a_checkpointer_during_a_run_alone(tmp_path):
    trainer = tidemark.AsyncTrainer(tmp_path / "store", {"n": 1}, lambda step: {})
    names = {"checkpointer", "evaluator", "run"}
    assert public(tidemark.AsyncTrainer) == names  # the other two begin a new run, or add to it
    for _ in range(2):
        with pytest.raises(errors.FailedPreconditionError, match="only during run"):
            trainer.checkpointer
        trainer.run(1)


def test_a_child_that_a_run_forks_can_neither_run_the_trainer_nor_use_its_checkpointer(tmp_path):
    found = []

    def train(step):
        child = os.fork()
        if child == 0:
            refused = [outcome(call, trainer).startswith("refused: the ")
                       for call in (lambda it: it.run(1), lambda it: it.checkpointer.save(1, STATE))]
            os._exit(7 if all(refused) else 8)
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    trainer = tidemark.AsyncTrainer(tmp_path / "store", STATE, train)
    assert trainer.run(1).next == 1 and found == [7]


def test_in_a_forked_child_every_call_is_refused_or_works(tmp_path):
    result = subprocess.run([sys.executable, handle_calls.__file__, str(tmp_path / "store")], capture_output=True, text=True,
                            timeout=300, cwd=tmp_path)
    lines = [tuple(line.split(" | ")) for line in result.stdout.splitlines()]
    assert lines and lines[-1] == ("parent", "child's status", "7"), result.stdout + result.stderr
    kinds = {kind.__name__: kind for kind in TABLES}
    called = [line for line in lines if line[0] in kinds]
    assert {line[:2] for line in called} == {(kind.__name__, name) for kind, calls in TABLES.items() for name in calls}
    for kind, name, found in called:
        if name in IN_CHILD[kinds[kind]]:
            assert found == "done", (kind, name, found)
        else:
            assert found.startswith("refused: ") and "fork" in found, (kind, name, found)
    assert lines[-4:-1] == [("concurrent.futures", "wait", "1"), ("open", "sum", "15.0", "1", "[]", "15.0"),
                            ("open", "own", "1", "1")]


def test_a_signal_to_a_forked_child_is_not_taken_for_one_to_the_parent(tmp_path):
    """As of multiprocessing.Pool.terminate, which waits for workers that it has sent SIGTERM."""
    read, write = os.pipe()
    with tidemark.PreemptionGuard() as guard:
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that has taken the signal before it pauses
            os.write(write, b"x")
            signal.pause()
            os._exit(1)  # a function of Python has taken the signal
        os.read(read, 1)  # Python forgets a signal that comes while it forks
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not guard.preempted
    os.close(read)
    os.close(write)
