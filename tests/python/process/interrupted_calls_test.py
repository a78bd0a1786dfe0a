"""Ctrl-C in the middle of the calls that interrupts_test.py leaves: restores, records of steps, exports, workers, preemption,
evaluators, and a run of AsyncTrainer."""

import gc
import os
import signal
import sys
import threading

import numpy as np
import pytest
import tidemark
from interruption import PACKAGE, Interrupt, interrupted, interrupted_at_drawn_moments
from tidemark import errors


# Python may interrupt `with open(...)`, or that of a BestFile, before it is entered, and ignores an interrupt in a generator that
# it closes.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def committed(store):
    return [info.step for info in store.steps() if info.state == "committed"]


def info_of(store, step):
    return next(info for info in store.steps() if info.step == step)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counts the instructions of Python 3.11")
def test_each_round_of_a_while_is_a_moment():
    names = {}
    exec(compile("def count(n):\n while n:\n  n -= 1\n", f"{PACKAGE}/counting.py", "exec"), names)
    with Interrupt(None) as whole:
        names["count"](5)
    assert whole.passed == 1 + 4  # it begins, and jumps back four times


def test_a_load_leaves_its_model_as_it_was_and_can_be_repeated(checkpointer):
    checkpointer.save(1, {"w": np.arange(1000), "pair": (np.ones(3), 5), "n": 7})
    like = {"w": np.zeros(1000, int), "pair": (np.zeros(3), 0), "n": 0}

    def after(_, found):
        for made in (found, checkpointer.load(like=like)):
            if made is not None:
                assert (made["w"] == np.arange(1000)).all() and made["pair"][1] == 5 and made["n"] == 7
        assert not like["w"].any() and like["pair"][1] == 0 and like["n"] == 0

    assert interrupted(lambda _: checkpointer.load(like=like), after) > 10


def test_a_preparation_can_be_repeated_and_saves_have_its_memory(tmp_path):
    state = {"w": np.ones(100_000), "view": np.ones((90, 70)).T}
    with tidemark.Checkpointer(tmp_path / "store", staging_bytes_max=2 * 8 * 106_300, when_full="fail") as checkpointer:
        def after(moment, _):
            checkpointer.prepare(state)
            checkpointer.save(moment, state).committed.result(60)

        assert interrupted(lambda _: checkpointer.prepare(state) or True, after) > 5


def test_a_training_step_that_waits_until_its_arrays_are_staged_can_be_repeated(tmp_path):
    state = {"w": np.zeros(10_000), "n": 1}
    saved = {}

    def train(moment):
        saved[moment] = state["w"][0]
        checkpointer.save(moment, state)
        with checkpointer.staged():
            state["w"] += 1
        checkpointer.check_for_errors()
        checkpointer.compare_replicas(state)
        return True

    def after(moment, done):
        with checkpointer.staged():
            state["w"] += 1
        checkpointer.wait_until_committed()
        there = moment in committed(checkpointer)
        assert there or not done
        if there:
            found = checkpointer.load(moment, like={"w": np.zeros(10_000), "n": 0})
            assert (found["w"] == saved[moment]).all()

    with tidemark.Checkpointer(tmp_path / "store", staging="overlapped") as checkpointer:
        assert interrupted(train, after) > 10


def test_a_check_for_errors_that_is_interrupted_loses_no_failure(tmp_path):
    failures = {}

    def check(moment):
        try:
            checkpointer.check_for_errors()
        except errors.DeadlineExceededError as failure:
            failures[moment] = str(failure)
        except KeyboardInterrupt as interrupt:
            # While the error is made, it has been taken from the checkpointer.
            if isinstance(interrupt.__context__, errors.DeadlineExceededError):
                failures[moment] = str(interrupt.__context__)
            raise
        return True

    def after(moment, _):
        if moment not in failures:
            check(moment)
        assert f"step {moment}" in failures[moment]
        checkpointer.check_for_errors()  # it is raised once
        fail(moment + 1)

    def fail(step):
        failed.clear()
        checkpointer.save(step, {"w": np.ones(1000)})
        assert failed.wait(60)  # without asking for the failure

    class Observer(tidemark.CheckpointObserver):
        def failed(self, step, error):
            failed.set()

    failed = threading.Event()
    with tidemark.Checkpointer(tmp_path / "store", save_timeout=1e-9, observer=Observer()) as checkpointer:
        fail(1)
        tried = interrupted(check, after, stride=1)
        assert tried > 1
        check(tried + 2)
        assert f"step {tried + 2}" in failures[tried + 2]


def test_what_is_known_of_a_save_can_be_asked_for_again(checkpointer):
    for step in (1, 2):
        checkpointer.save(step, {"w": np.ones(1000), "n": step}).committed.result(60)

    def ask(_):
        return [phase.name for phase in tidemark.phases(checkpointer.path)], tidemark.references(checkpointer.path)

    expected = ask(0)
    assert expected[0]

    def after(_, found):
        assert ask(0) == expected and found in (None, expected)

    assert interrupted(ask, after, stride=1) > 2


def test_a_captured_state_comes_back_whole(tmp_path):
    state = {"w": np.arange(1000), "n": 1}

    def there_and_back(_):
        snapshot = tidemark.capture(state)
        snapshot.restore(state)
        snapshot.export_safetensors(tmp_path / "file.safetensors", replace=True)
        return snapshot

    def after(_, snapshot):
        # An array is written by one call of the library. The state is captured as it is, so it must not have changed.
        assert (state["w"] == np.arange(1000)).all() and state["n"] == 1
        if snapshot is not None:
            assert (snapshot["w"] == np.arange(1000)).all() and snapshot["n"] == 1
        assert set(os.listdir(tmp_path)) <= {"file.safetensors"}

    assert interrupted(there_and_back, after) > 20


def test_pins_and_tags_are_set_or_not_and_can_be_set_again(checkpointer):
    for step in (1, 2):
        checkpointer.save(step, {"n": step}).committed.result(60)

    def mark(_):
        checkpointer.pin(1, "note")
        checkpointer.tag(1, "good")
        checkpointer.untag("good")
        checkpointer.unpin(1)
        checkpointer.retention_plan()
        checkpointer.set_save_interval(2)
        assert checkpointer.should_save(4) and checkpointer.committed(2).result(60) == 2
        return True

    def after(_, done):
        info = info_of(checkpointer, 1)
        assert info.pin_note in ("", "note") and list(info.tags) in ([], ["good"])
        assert mark(0)
        info = info_of(checkpointer, 1)
        assert not info.pinned and not info.tags and committed(checkpointer) == [1, 2]

    assert interrupted(mark, after) > 10


def test_a_step_is_deleted_or_stays_and_can_be_deleted_again(checkpointer):
    first = 0

    def save_three():
        nonlocal first
        first += 10
        for step in range(first, first + 3):
            checkpointer.save(step, {"n": step}).committed.result(60)

    def delete(_):
        checkpointer.delete(first)
        assert checkpointer.discard_after(first + 1) == [first + 2]
        checkpointer.tidy()
        return True

    def after(_, done):
        left = set(committed(checkpointer)) & {first, first + 1, first + 2}
        assert left == {first + 1} if done else first + 1 in left
        if first in left:
            checkpointer.delete(first)
        assert checkpointer.discard_after(first + 1) == ([first + 2] if first + 2 in left else [])
        checkpointer.tidy()
        assert committed(checkpointer)[-1] == first + 1
        save_three()

    save_three()
    assert interrupted(delete, after) > 3


def test_a_report_is_recorded_whole_and_can_be_repeated(checkpointer):
    checkpointer.save(1, {"n": 1}).committed.result(60)

    def report(moment):
        return checkpointer.report_metrics(1, "by hand", {"a": moment, "b": moment}).result(60)

    def after(moment, done):
        checkpointer.tidy()
        metrics = info_of(checkpointer, 1).metrics
        assert metrics.get("by hand/a") == metrics.get("by hand/b") and (done is None or metrics["by hand/a"] == moment)

    assert interrupted(report, after) > 3


def test_an_export_is_a_whole_file_or_none(checkpointer, tmp_path):
    checkpointer.save(1, {"w": np.arange(1000.0)}, metrics={"loss": 1.0}).committed.result(60)
    folder = tmp_path / "exported"
    folder.mkdir()

    def export(moment):
        tidemark.export_safetensors(checkpointer.path, folder / f"{moment}.safetensors", replace=True)
        with tidemark.BestFile(checkpointer.path, "loss", folder / f"best{moment}.safetensors", poll_interval=600) as best:
            best.update()
        return True

    def after(moment, done):
        gc.collect()
        names = set(os.listdir(folder))
        assert names <= {f"{moment}.safetensors", f"best{moment}.safetensors"} and (len(names) == 2 or not done)
        for name in names:
            assert os.path.getsize(folder / name) > 8000
            os.remove(folder / name)

    assert interrupted(export, after) > 10


def test_a_worker_that_is_interrupted_leaves_its_step_to_the_next(checkpointer):
    for step in (1, 2):
        checkpointer.save(step, {"n": step}).committed.result(60)

    def follow(moment):
        return tidemark.follow(checkpointer.path, lambda snapshot: {"n": snapshot["n"]}, evaluator=f"e{moment}", idle_timeout=0,
                               poll_interval=0.01, on_evaluated=lambda step, evaluation: None)

    def after(moment, report):
        assert report is None or (report.evaluated, report.failed) == (2, 0)
        again = follow(moment)
        assert again.failed == 0 and (report is None or again.evaluated == 0)
        checkpointer.tidy()
        for step in (1, 2):
            records = [record for record in info_of(checkpointer, step).evaluations if record.evaluator == f"e{moment}"]
            assert [(record.outcome, record.metrics) for record in records] == [("done", {"n": float(step)})], moment

    assert interrupted(follow, after) > 10


def test_a_last_save_is_whole_or_not_there_and_the_store_can_be_closed(tmp_path):
    opened = {}
    handler = signal.getsignal(signal.SIGTERM)

    def save_and_close(moment):
        opened[moment] = tidemark.Checkpointer(tmp_path / f"store{moment}")
        opened[moment].save(1, {"n": 1}).committed.result(60)
        with tidemark.PreemptionGuard() as guard:
            os.kill(os.getpid(), signal.SIGTERM)
            assert guard.preempted
            return guard.save_and_close(opened[moment], 2, {"w": np.full(1000, moment)})

    def after(moment, report):
        signal.signal(signal.SIGTERM, handler)  # Python may interrupt `with` before it enters or leaves the guard
        checkpointer = opened.pop(moment, None)
        if checkpointer is None:
            return
        checkpointer.close()
        assert not checkpointer._notifier._thread.is_alive()
        with tidemark.Checkpointer(tmp_path / f"store{moment}") as again:  # the store is free
            steps = committed(again)
            assert steps in ([], [1], [1, 2]) and (report is None or (report.committed and steps == [1, 2]))
            if steps == [1, 2]:
                assert (again.load(like={"w": np.zeros(1000, int)})["w"] == moment).all()

    assert interrupted(save_and_close, after) > 20


def test_a_guard_whose_construction_is_interrupted_leaves_the_handlers(tmp_path):
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]

    def construct(_):
        guard = tidemark.PreemptionGuard(signals=(signal.SIGTERM, signal.SIGUSR1))
        constructed.append(guard)
        return guard

    def after(_, guard):
        while constructed:
            constructed.pop().uninstall()
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)] == handlers

    constructed = []
    assert interrupted(construct, after) > 3


def test_an_evaluator_is_added_or_not(checkpointer):
    def add(moment):
        checkpointer.evaluator(f"e{moment}", lambda snapshot: {"n": snapshot["n"]})
        checkpointer.add_health_monitor(tidemark.HealthMonitor(name=f"h{moment}"))
        checkpointer.add_average(f"a{moment}", entries=["w"])
        return True

    def after(moment, done):
        for again in (lambda: checkpointer.evaluator(f"e{moment}", lambda snapshot: None),
                      lambda: checkpointer.add_health_monitor(tidemark.HealthMonitor(name=f"h{moment}")),
                      lambda: checkpointer.add_average(f"a{moment}", entries=["w"])):
            try:
                again()
            except errors.AlreadyExistsError:
                continue
            assert not done

    assert interrupted(add, after) > 10
    checkpointer.save(1, {"w": np.ones(3), "n": 1}).committed.result(60)


def test_a_run_that_is_interrupted_releases_its_store_and_the_next_one_goes_on(tmp_path):
    class Run:
        def __init__(self, moment):
            self.state = {"w": np.zeros(100), "draws": np.random.default_rng(1)}
            self.trained = []
            self.trainer = tidemark.AsyncTrainer(tmp_path / f"store{moment}", self.state, self.train, save_interval_steps=2)
            self.trainer.evaluator("e")(lambda snapshot: float(snapshot["w"].sum()))

        def train(self, step):
            self.state["w"] += self.state["draws"].normal(size=100) + step
            self.trained.append(step)

    whole = Run("whole")
    whole.trainer.run(8)

    handler = signal.getsignal(signal.SIGTERM)

    def after(moment):
        signal.signal(signal.SIGTERM, handler)  # Python may interrupt `with` before it enters or leaves the guard
        store, before = tmp_path / f"store{moment}", set()
        try:
            before = {info.step for info in tidemark.steps(store) if info.state == "committed"}
        except tidemark.NotFoundError:
            pass
        run = Run(moment)  # the store is free
        report = run.trainer.run(8)
        assert report.first == max(before, default=-1) + 1 and run.trained == list(range(report.first, 8))
        assert (run.state["w"] == whole.state["w"]).all()
        assert before <= {info.step for info in tidemark.steps(store) if info.state == "committed"}

    interrupted_at_drawn_moments(lambda moment: Run(moment).trainer.run(8), after, 20)
