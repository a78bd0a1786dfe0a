"""AsyncTrainer: that it resumes after kills and signals, rolls back, and closes rightly after whatever ends it.

TIDEMARK_SEED: a seed that a run has printed; the kills are real, so timing decides how far it repeats.
"""

import os
import random
import signal
import threading
import time

import example_runs
import numpy as np
import pytest
import tidemark
from example_runs import losses
from tidemark import errors
from trainer_runs import Run, states

STEPS = 200


def test_a_run_is_saved_by_the_rules_and_at_its_end(tmp_path):
    run = Run(tmp_path / "store", save_interval_steps=4)
    report = run.trainer.run(11)
    assert (report.first, report.next, report.rollbacks, report.preempted) == (0, 11, [], None)
    assert run.trained == list(range(11)) and sorted(states(tmp_path / "store")) == [0, 4, 8, 10]
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.metrics == {"loss": 90.0} and (step.get_tensor("w") == run.state["w"]).all()


def test_tells_how_far_a_restore_is(tmp_path):
    told = []
    for steps in (5, 9):
        run = Run(tmp_path / "store", progress=told.append)
        assert run.trainer.run(steps).next == steps and bool(told) == (steps == 9)
    assert {progress.step for progress in told} == {4} and told[-1].bytes_done == told[-1].bytes_total
    with pytest.raises(errors.InvalidArgumentError, match="progress is 3, not a bool or a function"):
        Run(tmp_path / "store", progress=3)


def test_the_next_run_goes_on_where_the_last_one_ended(tmp_path):
    whole = Run(tmp_path / "whole")
    whole.trainer.run(20)
    parts = [Run(tmp_path / "parts", save_interval_steps=3) for _ in range(3)]
    assert [run.trainer.run(steps).first for run, steps in zip(parts, (5, 12, 20), strict=True)] == [0, 5, 12]
    assert (parts[2].state["w"] == whole.state["w"]).all() and parts[2].state["epoch"] == 1
    done = parts[2].trainer.run(20)  # nothing is left to do
    assert (done.first, done.next) == (20, 20) and parts[2].trained == list(range(12, 20))
    assert parts[2].trainer.run(22).first == 20 and whole.trainer.run(22).next == 22
    assert (parts[2].state["w"] == whole.state["w"]).all()


def test_evaluators_and_setup_work_beside_it(tmp_path):
    best_of = tidemark.KeepBest("validation/sum", "lowest")
    kept = tidemark.Retention(max_to_keep=1, keep_best=[best_of], keep_unevaluated_until=["validation"])
    run = Run(tmp_path / "store", save_interval_steps=2, retention=kept,
              setup=lambda checkpointer: checkpointer.add_average("ema", entries=["w"]))
    sums = {}

    @run.trainer.evaluator("validation", entries=["w"], when_lagging="block")
    def validate(snapshot):
        assert threading.current_thread() is not threading.main_thread() and list(snapshot) == ["w"]
        sums[snapshot.step] = float(abs(snapshot["w"].sum() - 1500))  # that of step 4 or so
        return {"sum": sums[snapshot.step]}

    run.trainer.run(9)
    best = min(sums, key=sums.get)
    assert sorted(sums) == [0, 2, 4, 6, 8] and best not in (0, 8)
    with tidemark.Checkpointer(tmp_path / "store", retention=kept) as checkpointer:
        checkpointer.tidy()
        assert {info.step for info in checkpointer.steps() if info.state == "committed"} == {best, 8}
    with tidemark.open(tmp_path / "store") as step:
        assert "ema.w" in step.keys()


def test_an_exception_ends_the_run_and_what_was_saved_is_there(tmp_path):
    run = Run(tmp_path / "store", save_interval_steps=2)
    gate = threading.Event()

    class Stopped(Exception):
        pass

    def stop(step):
        if step == 5:
            raise Stopped

    run.before = stop
    run.trainer.evaluator("never")(lambda snapshot: gate.wait() and None)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Stopped):
            run.trainer.run(9)
        assert states(tmp_path / "store") == {0: "committed", 2: "committed", 4: "committed"}
        assert signal.getsignal(signal.SIGTERM) is handler
        with pytest.raises(errors.FailedPreconditionError, match="only during"):
            run.trainer.checkpointer
    finally:
        gate.set()
    other = Run(tmp_path / "store", save_interval_steps=2)
    assert other.trainer.run(9).first == 5


def test_a_diverged_run_goes_back_and_on(tmp_path):
    rate = {"rate": 1.0}
    state = {"w": np.ones(50), "rate": rate}
    divergences = []

    def train(step):
        state["w"] *= 1000.0 if rate["rate"] == 1.0 and step >= 6 else 1.01
        return {"loss": 1.0}

    def lower(divergence):
        divergences.append(divergence)
        rate["rate"] = 0.5

    monitor = tidemark.HealthMonitor(entries=["w"], norm_jump_max=10.0)
    trainer = tidemark.AsyncTrainer(tmp_path / "store", state, train, save_interval_steps=2, health=monitor,
                                    on_divergence=lower)
    report = trainer.run(12)
    assert report.next == 12 and report.first == 0 and len(divergences) == 1
    assert report.rollbacks == [(divergences[0], 4)] and divergences[0].remediation == "roll_back"
    assert state["w"][0] == pytest.approx(1.01 ** 12)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        info = {info.step: info for info in checkpointer.steps()}
        assert [info[step].unhealthy for step in (6, 8, 10, 11)] == [""] * 4 and checkpointer.latest_step().step == 11


def test_a_run_that_diverges_at_its_last_step_goes_back_too(tmp_path):
    state = {"w": np.ones(50)}
    calls = []

    def train(step):
        calls.append(step)
        state["w"] *= 1000.0 if step == 5 and calls.count(5) == 1 else 1.01

    trainer = tidemark.AsyncTrainer(tmp_path / "store", state, train, save_interval_steps=2,
                                    health=tidemark.HealthMonitor(entries=["w"]))
    assert [step for _, step in trainer.run(6).rollbacks] == [4]
    assert calls == [0, 1, 2, 3, 4, 5, 5] and state["w"][0] == pytest.approx(1.01 ** 6)


def test_a_run_that_always_diverges_ends(tmp_path):
    state = {"w": np.ones(50)}

    def train(step):
        state["w"] *= 1000.0 if step >= 5 else 1.01

    trainer = tidemark.AsyncTrainer(tmp_path / "store", state, train, health=tidemark.HealthMonitor(entries=["w"]),
                                    max_rollbacks=2)
    with pytest.raises(errors.FailedPreconditionError, match="diverged again at step .* after 2 rollbacks"):
        trainer.run(50)
    tidemark.Checkpointer(tmp_path / "store").close()  # the store is free


def watched_saves(skipped, when_skipped):
    """A `setup` that notes the steps whose save was skipped, and calls `when_skipped(step)` of each."""
    def setup(checkpointer):
        save = checkpointer._save_unless

        def watched(is_cancelled, step, *arguments, **options):
            handle = save(is_cancelled, step, *arguments, **options)
            if handle and handle.skipped:
                skipped.append(step)
                when_skipped(step)
            return handle

        checkpointer._save_unless = watched

    return setup


def test_the_last_step_is_saved_also_where_saves_are_skipped(tmp_path):
    begun, gate = threading.Event(), threading.Event()
    skipped = []
    run = Run(tmp_path / "store", when_full="skip", staging_bytes_max=4096 * 3,
              setup=watched_saves(skipped, lambda step: gate.set() if step == 9 else None))

    @run.trainer.evaluator("slow", when_lagging="skip")
    def slow(snapshot):
        if snapshot.step == 0:
            begun.set()
            assert gate.wait(600)

    run.before = lambda step: begun.wait(600) if step == 1 else None
    run.trainer.run(10)
    assert 9 in skipped and states(tmp_path / "store")[9] == "committed"


def run_whose_evaluator_keeps_arrays(store, when_skipped, **options):
    """So that no later save has room. And the arrays."""
    kept = []
    run = Run(store, when_full="skip", staging_bytes_max=4096 * 3, setup=watched_saves([], when_skipped), **options)
    run.trainer.evaluator("keeper", entries=["w"])(lambda snapshot: kept.append(snapshot["w"]))
    run.before = lambda step: step and run.trainer.checkpointer.wait_until_evaluated(600)
    return run, kept


def test_memory_that_evaluators_keep_ends_the_run_after_the_drain(tmp_path):
    tried = []
    run, kept = run_whose_evaluator_keeps_arrays(tmp_path / "store", tried.append, drain=1.0)
    with pytest.raises(errors.ResourceExhaustedError, match="step 5, the last one.* for 1 seconds"):
        run.trainer.run(6)
    assert len(kept) > 0 and 1 < tried.count(5) < 20  # not at full load
    kept.clear()
    assert Run(tmp_path / "store").trainer.run(6).next == 6


def test_a_signal_ends_the_wait_for_memory_that_evaluators_keep(tmp_path):
    run, kept = run_whose_evaluator_keeps_arrays(
        tmp_path / "store", lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 5 else None)
    report = run.trainer.run(6)
    assert len(kept) > 0 and report.preempted.committed and report.next == 6 and states(tmp_path / "store")[5] == "committed"


@pytest.fixture
def gate(monkeypatch):
    """Opened by the last save of a preempted run, and not before."""
    opened = threading.Event()
    save_and_close = tidemark.PreemptionGuard.save_and_close

    def open_and_save(*arguments, **options):
        opened.set()
        return save_and_close(*arguments, **options)

    monkeypatch.setattr(tidemark.PreemptionGuard, "save_and_close", open_and_save)
    return opened


def test_a_signal_ends_the_wait_for_the_last_evaluations(tmp_path, gate):
    run = Run(tmp_path / "store")

    @run.trainer.evaluator("slow", when_lagging="queue")
    def slow(snapshot):
        if snapshot.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            assert gate.wait(600)

    report = run.trainer.run(5)
    assert gate.is_set() and report.preempted.committed and report.next == 5 and max(states(tmp_path / "store")) == 4


def test_evaluations_that_do_not_end_are_given_up_after_the_drain(tmp_path, caplog):
    run, gate = Run(tmp_path / "store", drain=0.2), threading.Event()
    run.trainer.evaluator("slow")(lambda snapshot: gate.wait(600) and None)
    try:
        assert run.trainer.run(5).preempted is None and "slow" in caplog.text
        assert Run(tmp_path / "store").trainer.run(6).first == 5  # the store is free
    finally:
        gate.set()


class TerminatingMonitor(tidemark.HealthMonitor):
    """Calls `before`, and sends SIGTERM, when the first divergence is taken: a second one would end the process."""

    before = None

    def take_divergence(self):
        found = super().take_divergence()
        if found is not None and self.before is not None:
            before, self.before = self.before, None
            before()
            os.kill(os.getpid(), signal.SIGTERM)
        return found


def diverging_run(store, monitor, **options):
    """A trainer whose run diverges at step 5, the first time, and trains step 6 only when that is known; its state, and the
    steps that were trained."""
    state, trained, known = {"w": np.ones(50)}, [], threading.Event()

    class Observer(tidemark.CheckpointObserver):
        def evaluated(self, step, evaluation):
            if step == 5 and evaluation.unhealthy:
                known.set()

    def train(step):
        # Not for all evaluators: one of the test's own may end only after this step.
        assert step != 6 or known.wait(600)
        state["w"] *= 1000.0 if step == 5 and step not in trained else 1.01
        trained.append(step)

    trainer = tidemark.AsyncTrainer(store, state, train, health=monitor, observer=Observer(), **options)
    return trainer, state, trained


@pytest.mark.parametrize("pinned", [False, True])
def test_a_signal_ends_the_wait_before_a_rollback(tmp_path, gate, caplog, pinned):
    monitor, hangs = TerminatingMonitor(entries=["w"]), threading.Event()
    trainer, state, trained = diverging_run(tmp_path / "store", monitor)

    @trainer.evaluator("slow")
    def slow(snapshot):
        hangs.set()
        assert gate.wait(600)

    def before():
        assert hangs.wait(600)
        if pinned:  # so that the diverged step cannot be discarded
            trainer.checkpointer.committed(5).result(600)
            trainer.checkpointer.pin(5)

    monitor.before = before
    report = trainer.run(50)
    assert gate.is_set() and [step for _, step in report.rollbacks] == [4]
    assert report.preempted.committed
    there = {step for step, kind in states(tmp_path / "store").items() if kind == "committed"}
    if pinned:
        assert report.next == 5 and max(there) > 4 and "steps after 4, which the run went back to, stay" in caplog.text
        assert state["w"][0] == pytest.approx(1.01 ** 5)
    else:
        assert report.next == 6 and max(there) == 5 and trained[-1] == 5 and state["w"][0] == pytest.approx(1.01 ** 6)


def test_a_hanging_evaluator_holds_a_rollback_up_no_longer_than_the_close_timeout(tmp_path):
    trainer, _, _ = diverging_run(tmp_path / "store", tidemark.HealthMonitor(entries=["w"]), close_timeout=1.0)
    gate = threading.Event()
    trainer.evaluator("slow")(lambda snapshot: gate.wait(600) and None)
    try:
        with pytest.raises(errors.DeadlineExceededError, match="slow"):
            trainer.run(50)
    finally:
        gate.set()


def test_a_divergence_of_an_earlier_run_is_forgotten(tmp_path):
    state, divergences = {"w": np.ones(50)}, []

    class Stopped(Exception):
        pass

    def train(step):
        if step == 5 and not stopped:
            stopped.append(step)
            state["w"] *= 1000.0
            trainer.checkpointer.save(5, state)
            trainer.checkpointer.wait_until_evaluated(600)
            raise Stopped
        state["w"] *= 1.01

    stopped = []
    trainer = tidemark.AsyncTrainer(tmp_path / "store", state, train, health=tidemark.HealthMonitor(entries=["w"]),
                                    on_divergence=divergences.append)
    with pytest.raises(Stopped):
        trainer.run(8)
    report = trainer.run(8)
    assert report.first == 5 and report.next == 8 and report.rollbacks == [] and divergences == []
    assert state["w"][0] == pytest.approx(1.01 ** 8)


def test_a_failed_save_is_raised_at_the_end(tmp_path, caplog):
    run = Run(tmp_path / "store", save_timeout=1e-9, staging_bytes_max=1 << 20)
    with pytest.raises(errors.DeadlineExceededError, match="step 0"):
        run.trainer.run(3)
    assert run.trained == [0, 1, 2] and "step 2 was not committed" in caplog.text


@pytest.mark.parametrize("trained, message", [
    (0.0, "what train returned is 0.0, a float: it must be a dict of numbers by name, or None"),
    ({"x": "high"}, "the metric 'x' of train is 'high', a str: it must be a number")])
def test_what_is_no_metrics_ends_the_run_with_its_name(tmp_path, trained, message):
    trainer = tidemark.AsyncTrainer(tmp_path / "store", {"w": np.ones(1)}, lambda step: trained)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        trainer.run(2)
    assert str(caught.value) == message and tidemark.steps(tmp_path / "store") == []


def test_what_cannot_run_is_refused(tmp_path):
    for options in ({"max_rollbacks": -1}, {"drain": -1.0}):
        with pytest.raises(errors.InvalidArgumentError, match=next(iter(options))):
            Run(tmp_path / "store", **options)
    with pytest.raises(errors.InvalidArgumentError, match="train is {}, a dict: it must be a function"):
        tidemark.AsyncTrainer(tmp_path / "store", {}, {})
    with pytest.raises(errors.InvalidArgumentError, match="preemption is 30, an int: it must be a bool or a PreemptionGuard"):
        Run(tmp_path / "store", preemption=30)
    with pytest.raises(errors.InvalidArgumentError, match="no option 'save_interval_step': did you mean 'save_interval_steps'"):
        Run(tmp_path / "store", save_interval_step=3)
    with pytest.raises(errors.InvalidArgumentError, match="when_full is 3, an int"):
        Run(tmp_path / "store", when_full=3)
    run = Run(tmp_path / "store")
    run.trainer.evaluator("e")(lambda snapshot: None)
    with pytest.raises(errors.AlreadyExistsError, match="an evaluator 'e' already"):
        run.trainer.evaluator("e")(lambda snapshot: None)
    run = Run(tmp_path / "store")
    run.before = lambda step: run.trainer.run(1)
    with pytest.raises(errors.FailedPreconditionError, match="runs already"):
        run.trainer.run(1)
    with tidemark.Checkpointer(tmp_path / "store"), pytest.raises(tidemark.AlreadyHeldError):
        Run(tmp_path / "store").trainer.run(1)
    Run(tmp_path / "store").trainer.run(1)
    with pytest.raises(tidemark.MismatchError):
        tidemark.AsyncTrainer(tmp_path / "store", {"other": np.zeros(3)}, lambda step: None).run(2)


def start(folder, name):
    return example_runs.start("async_trainer.py", folder, name, "--steps", str(STEPS), "--save-every", "7")


def signal_until_done(folder, name, moments):
    """Starts the run again and again, and kills or terminates it, until its last step is done. How often either met it."""
    met = {signal.SIGKILL: 0, signal.SIGTERM: 0}
    for _ in range(100):
        number = moments.choice(list(met))
        before = len(losses(folder, name))
        process = start(folder, name)
        # A number of steps, not a time: every run gets somewhere, however slow the machine is.
        steps = moments.randrange(10, 60)
        while process.poll() is None and len(losses(folder, name)) < before + steps:
            time.sleep(0.001)
        if process.poll() is None:
            process.send_signal(number)
        output, _ = process.communicate()
        assert process.returncode in (0, -number), output
        if "is committed" in output:
            met[signal.SIGTERM] += 1
        elif process.returncode == -signal.SIGKILL:
            met[signal.SIGKILL] += 1
        else:  # its last step was done, though the signal may have come before its end
            return met
    raise AssertionError(f"no run reached its last step: {sorted(dict(losses(folder, name)))[-1:]}")


def test_the_example_that_is_killed_and_terminated_continues_bit_for_bit(tmp_path):
    reference = start(tmp_path, "whole")
    output, _ = reference.communicate()
    assert reference.returncode == 0, output
    expected = dict(losses(tmp_path, "whole"))
    assert sorted(expected) == list(range(STEPS))

    seed = int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31))
    print(f"seed {seed}")
    moments = random.Random(seed)
    killed, attempt = 0, 0
    # A machine may do all steps before this process looks, so that no kill meets the run.
    while killed == 0:
        attempt += 1
        assert attempt <= 10, "no kill met a run"
        name = f"parts{attempt}"
        met = signal_until_done(tmp_path, name, moments)
        print(f"{name}: {met[signal.SIGKILL]} kills and {met[signal.SIGTERM]} terminations met a run")
        killed += met[signal.SIGKILL]
        last = start(tmp_path, name)
        output, _ = last.communicate()
        assert last.returncode == 0, output
        logged = losses(tmp_path, name)
        assert {step for step, _ in logged} == set(range(STEPS))
        assert [entry for entry in logged if expected[entry[0]] != entry[1]] == []
        assert output.startswith("no step is left; best loss 0.")
