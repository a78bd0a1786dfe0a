"""The guard of a framework's training: no signal is lost at its end, and none reaches the user's handler twice."""

import signal
import threading
import time

import numpy
import pytest
import tidemark
from preempted import Terminate, handled
from tidemark._preemption.training import Run, TrainingGuard


def test_a_signal_at_any_moment_of_the_begin_and_the_end_reaches_the_handler_once():
    def train():
        TrainingGuard(True).end()

    moment, raised = 0, True
    while raised:
        moment += 1
        with handled() as came:
            with Terminate(moment) as terminate:
                train()
            raised = terminate.raised
            assert came == [signal.SIGTERM] * raised, f"at moment {moment}"
    assert moment > 10


@pytest.mark.parametrize(("exits", "warns"), [(False, True), (True, False)])
def test_a_signal_whose_default_effect_does_not_come_is_named_in_a_warning(caplog, exits, warns):
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    guard = TrainingGuard(True)
    guard.end(exits)
    assert caplog.text == ""
    guard = TrainingGuard(True)
    signal.raise_signal(signal.SIGTERM)
    guard.end(exits)
    assert ("SIGTERM came during a training that an error has ended" in caplog.text) is warns
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_signal_that_the_users_handler_gets_is_in_no_warning(caplog):
    with handled() as came:
        guard = TrainingGuard(True)
        signal.raise_signal(signal.SIGTERM)
        guard.end()
        assert came == [signal.SIGTERM] and caplog.text == ""


@pytest.mark.parametrize("drain", [None, 60.0, 0.5, 0.0])
def test_the_wait_at_the_end_is_a_part_of_the_time_of_the_close(tmp_path, drain):
    ended = threading.Event()
    guard = TrainingGuard(True)
    try:
        with tidemark.Checkpointer(tmp_path / "store", close_timeout=1.0) as checkpointer:
            checkpointer.evaluator("hangs", lambda snapshot: bool(ended.wait()))
            checkpointer.save(1, {"x": numpy.zeros(4)}).committed.result()
            begun = time.monotonic()
            left, timeout = guard.wait(checkpointer, drain)
            waited = time.monotonic() - begun
            ended.set()
    finally:
        guard.end()
    assert timeout == pytest.approx(1.0 - waited, abs=0.2) and timeout >= 0
    assert left is None if drain is None else left == 0.0
    assert waited == pytest.approx(min(1.0, 1.0 if drain is None else drain), abs=0.4)


def end_of_a_training(store):
    guard = TrainingGuard(True)
    try:
        with tidemark.Checkpointer(store) as checkpointer:
            checkpointer.save(1, {"x": numpy.zeros(4)})
            guard.wait(checkpointer, None)
    finally:
        guard.end()


def end_of_a_run(store):
    tidemark.AsyncTrainer(store, {"x": numpy.zeros(4)}, lambda step: {}).run(1)


@pytest.mark.parametrize("end", [end_of_a_training, end_of_a_run])
def test_the_end_waits_for_the_saves_so_that_they_hurry(tmp_path, monkeypatch, end):
    calls = []
    for name in ("hurry", "wait_until_evaluated"):
        def call(native, *arguments, name=name, function=getattr(tidemark._native.Checkpointer, name)):
            calls.append(name)
            return function(native, *arguments)

        monkeypatch.setattr(tidemark._native.Checkpointer, name, call)
    end(tmp_path / "store")
    assert calls[:2] == ["hurry", "wait_until_evaluated"]


def test_a_guard_of_the_user_is_only_lent():
    with handled() as came, tidemark.PreemptionGuard() as guard:
        TrainingGuard(guard).end()
        signal.raise_signal(signal.SIGTERM)
        assert guard.preempted and came == []
        signal.raise_signal(signal.SIGTERM)  # as in a loop of one's own
        assert came == [signal.SIGTERM]
    with pytest.raises(tidemark.errors.FailedPreconditionError, match="uninstalled"):
        TrainingGuard(guard)


class Callbacks:
    """Of a training."""


def train(callbacks, then):
    return then(Run(train.__code__, "callbacks", callbacks))


def test_a_guard_ends_if_the_call_that_trains_has_ended():
    first, second = Callbacks(), Callbacks()
    with handled() as came:
        guard, _ = train(first, lambda run: (TrainingGuard(True, run), signal.raise_signal(signal.SIGTERM)))
        assert guard.preempted and came == []
        train(second, lambda run: signal.raise_signal(signal.SIGTERM))  # the first one was noted, and is passed on too
        assert came == [signal.SIGTERM] * 2


def test_a_guard_ends_before_that_of_the_next_training():
    first, second = Callbacks(), Callbacks()

    def next_training(run):
        guard = TrainingGuard(True, run)
        signal.raise_signal(signal.SIGTERM)
        assert guard.preempted and came == []
        guard.end()
        assert came == [signal.SIGTERM]

    with handled() as came:
        ended = train(first, lambda run: TrainingGuard(True, run))
        train(second, next_training)
        assert not ended.preempted


@pytest.mark.parametrize("order", [1, -1])
def test_a_guard_of_the_user_serves_two_trainings_at_once(order):
    with handled() as came, tidemark.PreemptionGuard() as guard:
        first, second = TrainingGuard(guard), TrainingGuard(guard)
        for one in (first, second)[::order]:
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
            assert came == []
            one.end()
        signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]


def test_a_training_in_another_thread_that_has_ended_keeps_no_signals():
    callbacks = Callbacks()

    def begin(run):
        TrainingGuard(guard, run)
        begun.set()
        ends.wait()

    with handled() as came, tidemark.PreemptionGuard() as guard:
        begun, ends = threading.Event(), threading.Event()
        thread = threading.Thread(target=train, args=(callbacks, begin))
        thread.start()
        begun.wait()
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
        assert guard.preempted and came == []
        ends.set()
        thread.join()
        signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
