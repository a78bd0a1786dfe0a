"""The health monitor, averages, and the last save before a preemption."""

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import tidemark
from tidemark import errors


def save(checkpointer, step, state, **options):
    checkpointer.save(step, state, **options).committed.result(60)
    checkpointer.wait_until_evaluated(60)


def test_a_diverging_run_is_rolled_back(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        monitor = tidemark.HealthMonitor(entries=["w"], loss_metric="loss")
        checkpointer.add_health_monitor(monitor)
        state = {"w": np.ones(10)}
        for step in range(3):
            save(checkpointer, step, state, metrics={"loss": 1.0})
        assert monitor.take_divergence() is None
        state["w"][3] = np.nan
        save(checkpointer, 3, state, metrics={"loss": 1.0})
        divergence = monitor.take_divergence()
        assert isinstance(divergence, tidemark.Divergence)
        assert (divergence.step, divergence.remediation) == (3, "roll_back") and "w" in divergence.reason
        assert monitor.take_divergence() is None
        assert checkpointer.latest_step().unhealthy.startswith("health: ")
        assert checkpointer.latest_step().metrics["health/nan"] == 1.0
        assert checkpointer.resume(state, healthy_only=True) == 3
        assert (state["w"] == 1).all()


def test_reset_forgets_what_is_normal(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        monitor = tidemark.HealthMonitor(norm_jump_max=2)
        checkpointer.add_health_monitor(monitor)
        save(checkpointer, 0, {"w": np.ones(10)})
        monitor.reset()
        save(checkpointer, 1, {"w": np.full(10, 100.0)})
        assert monitor.take_divergence() is None
        save(checkpointer, 2, {"w": np.ones(10)})
        assert monitor.take_divergence().step == 2


@pytest.mark.parametrize("options", [{"norm_jump_max": 1}, {"loss_window": 7}, {"loss_deviations_max": 0}, {"name": "a/b"}])
def test_an_option_of_the_monitor_out_of_its_range_is_refused(tmp_path, options):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer, pytest.raises(errors.InvalidArgumentError):
        checkpointer.add_health_monitor(tidemark.HealthMonitor(loss_metric="loss", **options))


def test_the_monitor_is_added_once(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_health_monitor(tidemark.HealthMonitor())
        with pytest.raises(errors.AlreadyExistsError):
            checkpointer.add_health_monitor(tidemark.HealthMonitor())


def test_a_divergence_is_told_once_with_what_the_function_raises_in_the_verdict(tmp_path):
    told = []

    def on_divergence(divergence):
        told.append(divergence)
        raise ValueError("it cannot be plotted")

    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_health_monitor(tidemark.HealthMonitor(on_divergence=on_divergence))
        save(checkpointer, 0, {"w": np.ones(4)})
        save(checkpointer, 1, {"w": np.full(4, np.nan)})
        unhealthy = checkpointer.steps()[1].unhealthy
    (divergence,) = told
    assert isinstance(divergence, tidemark.Divergence)
    assert (divergence.step, divergence.remediation) == (1, "roll_back") and "'w'" in divergence.reason
    assert divergence.reason in unhealthy and "ValueError: it cannot be plotted" in unhealthy


def test_a_monitor_whose_function_refers_to_it_is_collected(tmp_path):
    monitor = tidemark.HealthMonitor(on_divergence=lambda divergence: monitor.reset())
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_health_monitor(monitor)
    alive = weakref.ref(monitor)
    del monitor, checkpointer
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("options,expected", [({"decay": 0.5}, 2.0), ({"kind": "uniform"}, 5 / 3),
                                              ({"decay": 0.5, "every_steps": 2}, 2.0)])
def test_an_average_is_saved_beside_the_step(tmp_path, options, expected):
    values = (0.0, 2.0, 3.0) if "every_steps" not in options else (1.0, 9.0, 3.0)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_average(**options)
        for step, value in enumerate(values):
            save(checkpointer, step, {"model": {"w": np.full(4, value)}})
    with tidemark.open(tmp_path / "store") as step:
        assert step.get_tensor("ema.model.w") == pytest.approx(np.full(4, expected))
        assert step.get_tensor("model.w").tolist() == [3.0] * 4


def test_an_average_goes_on_after_a_restore_and_can_be_loaded(tmp_path):
    state = {"model": {"w": np.zeros(4)}}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_average("mean", kind="uniform")
        save(checkpointer, 0, {"model": {"w": np.full(4, 2.0)}})
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_average("mean", kind="uniform")
        assert checkpointer.resume(state) == 1
        save(checkpointer, 1, {"model": {"w": np.full(4, 4.0)}})
        checkpointer.restore(state, only=["model.*"], renames=[("mean.model", "model")])
        assert state["model"]["w"].tolist() == [3.0] * 4


@pytest.mark.parametrize(("losses", "expected"), [([1.0] * 8, [0, 4]), ([1.0, 2.0] * 4, [0, *range(1, 8)])])
def test_an_average_takes_in_noisy_steps_more_often(tmp_path, losses, expected):
    period = tidemark.AdaptivePeriod(window=4, every_steps_max=4)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_average("mean", entries=["w"], kind="uniform", adaptive=period)
        taken, before = [], None
        for step, loss in enumerate(losses):
            checkpointer.save(step, {"w": np.full(3, 2.0 ** step)}, metrics={"loss": loss}).committed.result(60)
            with tidemark.open(tmp_path / "store") as opened:
                mean = opened.get_tensor("mean.w")[0]
            taken += [step] if mean != before else []
            before = mean
    assert taken[-2:] == expected[-2:], taken


@pytest.mark.parametrize("options", [{"adaptive": tidemark.AdaptivePeriod(window=1)}, {"decay": 1.0}, {"kind": "median"},
                                     {"every_steps": 0}, {"name": "a.b"}])
def test_an_option_of_an_average_out_of_its_range_is_refused(tmp_path, options):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        with pytest.raises(errors.InvalidArgumentError):
            checkpointer.add_average(**options)
        checkpointer.add_average()
        with pytest.raises(errors.AlreadyExistsError):
            checkpointer.add_average()


def test_the_signal_becomes_a_last_save(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    checkpointer = tidemark.Checkpointer(tmp_path / "store")
    with tidemark.PreemptionGuard(grace=60) as guard:
        assert not guard.preempted and guard.seconds_left() == float("inf")
        os.kill(os.getpid(), signal.SIGTERM)
        assert guard.preempted and 0 < guard.seconds_left() <= 60
        report = guard.save_and_close(checkpointer, 7, {"w": np.ones(5)}, metrics={"loss": 1.0})
    assert signal.getsignal(signal.SIGTERM) is before
    assert (report.step, report.committed, report.save, report.close) == (7, True, None, None)
    assert str(report) == "preempted: step 7 is committed"
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        checkpointer.save(8, {"w": np.ones(5)})
    with tidemark.open(tmp_path / "store") as step:
        assert (step.info.step, step.info.metrics) == (7, {"loss": 1.0})


def test_a_signal_that_is_given_twice_gets_its_former_handler_back():
    came = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    handler = signal.getsignal(signal.SIGUSR1)
    try:
        with tidemark.PreemptionGuard(signals=(signal.SIGUSR1, signal.SIGUSR1)) as guard:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert guard.preempted and came == []
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_in_c_is_not_put_back_and_a_warning_says_so(caplog):
    faulthandler.register(signal.SIGUSR1)  # installs one
    try:
        with tidemark.PreemptionGuard(signals=(signal.SIGUSR1,)):
            assert f"signal {int(signal.SIGUSR1)} had a handler that was not installed by Python" in caplog.text
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_the_end_of_the_allotted_time_is_a_preemption():
    with tidemark.PreemptionGuard(grace=10, end=time.time() + 3600) as guard:
        assert not guard.preempted
    with tidemark.PreemptionGuard(grace=10, end=time.time() + 5) as guard:
        assert guard.preempted and 0 < guard.seconds_left() <= 5


def test_a_second_signal_has_the_former_effect():
    program = ("import os, signal, tidemark\n"
               "with tidemark.PreemptionGuard() as guard:\n"
               "  os.kill(os.getpid(), signal.SIGTERM)\n"
               "  print(guard.preempted, flush=True)\n"
               "  os.kill(os.getpid(), signal.SIGTERM)\n"
               "  print('still here', flush=True)\n")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (result.stdout, result.returncode) == ("True\n", -signal.SIGTERM)


def test_the_first_signal_of_each_kind_is_only_noted():
    came = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    try:
        with tidemark.PreemptionGuard(signals=(signal.SIGTERM, signal.SIGUSR1)) as guard:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert guard.preempted and came == []
            os.kill(os.getpid(), signal.SIGUSR1)
            assert came == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_guards_that_end_in_another_order_leave_no_handler():
    before = signal.getsignal(signal.SIGTERM)
    first = tidemark.PreemptionGuard()
    second = tidemark.PreemptionGuard()
    first.uninstall()
    os.kill(os.getpid(), signal.SIGTERM)
    assert second.preempted and not first.preempted
    second.uninstall()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_worker_that_dies_of_the_signal_raises_nothing():
    """As PyTorch's handler does in the middle of whatever runs."""
    def handler(number, frame):
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated")

    handler.__module__ = "torch.utils.data._utils.signal_handling"
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        with tidemark.PreemptionGuard():
            with pytest.raises(RuntimeError):
                os.kill(os.getpid(), signal.SIGCHLD)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGCHLD)
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_handlers_that_were_installed_since_stay():
    def other(number, frame):
        pass

    before = signal.getsignal(signal.SIGTERM)
    try:
        with tidemark.PreemptionGuard():
            signal.signal(signal.SIGTERM, other)
        assert signal.getsignal(signal.SIGTERM) is other
    finally:
        signal.signal(signal.SIGTERM, before)


def test_failures_of_the_last_save_are_in_the_report(tmp_path):
    checkpointer = tidemark.Checkpointer(tmp_path / "store", staging_bytes_max=4096)
    with tidemark.PreemptionGuard(grace=60, end=time.time() + 60) as guard:
        report = guard.save_and_close(checkpointer, 7, {"w": np.ones(1 << 16)})
    assert not report.committed and isinstance(report.save, errors.ResourceExhaustedError)
    assert "step 7 is not committed" in str(report)


def test_an_evaluator_that_hangs_does_not_hold_up_the_last_save(tmp_path):
    program = ("import sys, threading, time, numpy, tidemark\n"
               "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
               "checkpointer.evaluator('e', lambda snapshot: threading.Event().wait())\n"
               "with tidemark.PreemptionGuard(grace=5.0, end=time.time() + 5.0) as guard:\n"
               "  report = guard.save_and_close(checkpointer, 7, {'w': numpy.ones(5)})\n"
               "print(report.committed, type(report.close).__name__)\n")
    result = subprocess.run([sys.executable, "-W", "error", "-c", program, str(tmp_path / "store")], capture_output=True,
                            text=True, timeout=300)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True DeadlineExceededError\n", "")


def test_a_state_that_cannot_be_stored_leaves_the_checkpointer_open(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer, tidemark.PreemptionGuard() as guard:
        with pytest.raises(tidemark.UnsupportedTypeError):
            guard.save_and_close(checkpointer, 7, {"w": object()})
        checkpointer.save(7, {"w": 1}).committed.result(60)


@pytest.mark.parametrize("options", [{"grace": -1}, {"signals": [signal.SIGKILL]}, {"signals": [1000]}])
def test_an_option_of_the_guard_out_of_its_range_is_refused(options):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(errors.InvalidArgumentError):
        tidemark.PreemptionGuard(**options)
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_than_the_main_one_cannot_note_signals():
    found = []

    def install():
        try:
            tidemark.PreemptionGuard()
        except errors.FailedPreconditionError as error:
            found.append(str(error))

    thread = threading.Thread(target=install)
    thread.start()
    thread.join()
    assert "main thread" in found[0]


def saved_with_average(path):
    with tidemark.Checkpointer(path) as checkpointer:
        checkpointer.add_average("ema", entries=["w"], decay=0.5)
        for step in range(3):
            checkpointer.save(step, {"w": np.full(2, float(step))}).committed.result(60)


def warnings_of_averages(caplog):
    return [record.getMessage() for record in caplog.records if "average" in record.getMessage()]


def test_an_average_that_is_added_before_resume_comes_back_without_a_warning(tmp_path, caplog):
    saved_with_average(tmp_path / "store")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_average("ema", entries=["w"], decay=0.5)
        assert checkpointer.resume({"w": np.zeros(2)}) == 3
    assert not warnings_of_averages(caplog)


def test_a_resume_warns_of_an_average_that_was_not_added_and_so_does_one_that_is_added_late(tmp_path, caplog):
    saved_with_average(tmp_path / "store")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.resume({"w": np.zeros(2)})
        assert warnings_of_averages(caplog) == [
            "step 2 has the average 'ema', which was not restored and will not be saved: call add_average('ema') before resume"]
        caplog.clear()
        checkpointer.add_average("other", entries=["w"])
        assert not warnings_of_averages(caplog)
        checkpointer.add_average("ema", entries=["w"])
        assert ["begins afresh" in text for text in warnings_of_averages(caplog)] == [True]


def test_an_average_that_is_added_after_a_restore_is_warned_of_then(tmp_path, caplog):
    saved_with_average(tmp_path / "store")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.restore({"w": np.zeros(2)})
        assert not warnings_of_averages(caplog)
        checkpointer.add_average("ema", entries=["w"])
        assert len(warnings_of_averages(caplog)) == 1


def warnings_of_metrics(caplog):
    return [record.getMessage() for record in caplog.records if "with metrics" in record.getMessage()]


@pytest.mark.parametrize("options", [{"loss_metric": "los"}, {"gradient_norm_metric": "los"}])
def test_a_monitor_whose_metric_no_save_has_is_warned_of_once(tmp_path, caplog, options):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_health_monitor(tidemark.HealthMonitor(name="watch", **options))
        for step in range(8):
            checkpointer.save(step, {"w": np.ones(4)}, metrics={"loss": 1.0, "lr": 0.1} if step % 2 else None)
            assert len(warnings_of_metrics(caplog)) == (step >= 5), step
    assert warnings_of_metrics(caplog) == ["none of 3 saves with metrics has the metric 'los', which the health monitor 'watch' "
                                           "looks for; metrics of evaluators do not count: did you mean 'loss'?"]


def test_a_monitor_that_is_given_the_metric_of_an_evaluator_is_warned_of(tmp_path, caplog):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("validation", lambda snapshot: {"accuracy": 1.0})
        checkpointer.add_health_monitor(tidemark.HealthMonitor(loss_metric="validation/accuracy"))
        for step in range(3):
            checkpointer.evaluate(step, {"w": np.ones(4)}, metrics={"loss": 1.0}).committed.result(60)
    (line,) = warnings_of_metrics(caplog)
    assert "'validation/accuracy'" in line and line.endswith("metrics of evaluators do not count: the last save has loss")


def test_an_average_whose_metric_no_save_has_is_warned_of(tmp_path, caplog):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_average("mean", entries=["w"], adaptive=tidemark.AdaptivePeriod(metric="los"))
        for step in range(4):
            checkpointer.save(step, {"w": np.ones(4)}, metrics={"loss": 1.0})
    (line,) = warnings_of_metrics(caplog)
    assert "which the average 'mean' looks for" in line


def test_a_metric_that_is_not_in_every_save_is_not_warned_of(tmp_path, caplog):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.add_health_monitor(tidemark.HealthMonitor(loss_metric="loss"))
        checkpointer.add_health_monitor(tidemark.HealthMonitor(name="without"))
        for step in range(9):
            checkpointer.save(step, {"w": np.ones(4)}, metrics={"loss": 1.0} if step == 2 else {"lr": 0.1})
    assert not warnings_of_metrics(caplog)
