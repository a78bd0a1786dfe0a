"""AsyncTrainer and what ends a run before its last step: signals, the end of the time, other notices."""

import os
import signal
import threading
import time

import pytest
import tidemark
from preempted import terminate_in_a_save_that_waits
from tidemark import errors
from trainer_runs import Run, states


def test_a_signal_ends_the_run_with_one_last_save(tmp_path):
    whole = Run(tmp_path / "whole")
    whole.trainer.run(12)
    run = Run(tmp_path / "store", save_interval_steps=1000)
    run.before = lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 7 else None
    report = run.trainer.run(12)
    assert (report.first, report.next) == (0, 8) and report.preempted.committed
    assert "step 7 is committed" in str(report.preempted)
    rest = Run(tmp_path / "store", save_interval_steps=1000)
    assert rest.trainer.run(12).first == 8
    assert (rest.state["w"] == whole.state["w"]).all()


def test_the_end_of_the_time_ends_the_run(tmp_path):
    run = Run(tmp_path / "store", save_interval_steps=1000,
              preemption=tidemark.PreemptionGuard(signals=(), grace=1200, end=time.time() + 600))
    report = run.trainer.run(5)
    assert report.next == 1 and report.preempted.committed and states(tmp_path / "store") == {0: "committed"}


def test_it_runs_on_another_thread_without_signals_only(tmp_path):
    found = []

    def work():
        try:
            Run(tmp_path / "a").trainer.run(2)
        except errors.FailedPreconditionError as error:
            found.append(str(error))
        found.append(Run(tmp_path / "a", preemption=False).trainer.run(2).next)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "main thread" in found[0] and found[1] == 2


def test_a_guard_of_the_user_ends_the_run_and_stays_installed(tmp_path):
    with tidemark.PreemptionGuard(signals=(signal.SIGUSR1,)) as guard:
        run = Run(tmp_path / "store", save_interval_steps=1000, preemption=guard)
        run.before = lambda step: signal.raise_signal(signal.SIGUSR1) if step == 3 else None
        assert run.trainer.run(9).preempted.step == 3 and guard.preempted
        assert signal.getsignal(signal.SIGUSR1) == guard._signals.note and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with pytest.raises(errors.FailedPreconditionError, match="was uninstalled"):
        run.trainer.run(9)


def test_a_notice_that_is_no_signal_ends_the_run(tmp_path):
    with tidemark.PreemptionGuard(signals=()) as guard:
        run = Run(tmp_path / "store", save_interval_steps=1000, preemption=guard)
        run.before = lambda step: guard.note() if step == 3 else None
        assert guard.seconds_left() == float("inf")
        assert run.trainer.run(9).preempted.step == 3 and 0 < guard.seconds_left() <= 30


def test_a_signal_ends_a_save_that_waits_for_an_evaluator(tmp_path, monkeypatch):
    ended, asked = threading.Event(), terminate_in_a_save_that_waits(monkeypatch)
    begin = time.monotonic()
    try:
        with tidemark.PreemptionGuard(grace=5.0) as guard:  # which the close then waits for the evaluator
            run = Run(tmp_path / "store", save_interval_steps=1, preemption=guard)
            run.trainer.evaluator("slow", when_lagging="block", max_pending=1)(lambda snapshot: ended.wait(60) and {})
            report = run.trainer.run(100)
    finally:
        ended.set()
    assert time.monotonic() - begin < 50  # the evaluator takes a minute
    assert report.preempted.committed and report.preempted.step == asked[-1]
    assert states(tmp_path / "store") == dict.fromkeys(range(report.preempted.step + 1), "committed")
