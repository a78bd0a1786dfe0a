"""The observer of a checkpointer and of a best file: what it is told, when, and what becomes of what it raises."""

import logging
import threading
import time

import numpy as np
import pytest
import tidemark
from tidemark import errors


class Recorder(tidemark.CheckpointObserver):
    """Keeps every event but the lines."""

    def __init__(self):
        self.events = []

    def committed(self, info):
        self.events.append(("committed", info.step, info.metrics))

    def failed(self, step, error):
        self.events.append(("failed", step, type(error)))

    def deleted(self, step, reason):
        self.events.append(("deleted", step, reason))

    def evaluated(self, step, evaluation):
        self.events.append(("evaluated", step, evaluation.evaluator, evaluation.metrics))

    def exported(self, step, path):
        self.events.append(("exported", step, path))


def test_it_is_told_of_commits_evaluations_and_deletions_before_close_returns(tmp_path):
    observer = Recorder()
    with tidemark.Checkpointer(tmp_path / "store", observer=observer,
                               retention=tidemark.Retention(max_to_keep=1)) as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: 2.0)
        for step in (1, 2):
            checkpointer.save(step, {"w": np.ones(3)}, metrics={"loss": step}).committed.result(60)
            checkpointer.wait_until_evaluated(60)
        checkpointer.tidy()
    assert [event for event in observer.events if event[0] == "committed"] == [
        ("committed", 1, {"loss": 1.0}), ("committed", 2, {"loss": 2.0})]
    assert [event[:4] for event in observer.events if event[0] == "evaluated"] == [
        ("evaluated", step, "e", {"value": 2.0}) for step in (1, 2)]
    assert [event[:2] for event in observer.events if event[0] == "deleted"] == [("deleted", 1)]


def test_a_failure_that_it_is_told_of_does_not_count_as_seen(tmp_path):
    observer = Recorder()
    checkpointer = tidemark.Checkpointer(tmp_path / "store", observer=observer, save_timeout=1e-9, staging_bytes_max=1 << 20)
    checkpointer.save(1, {"w": 1})
    with pytest.raises(errors.DeadlineExceededError, match="step 1"):
        checkpointer.close()
    assert ("failed", 1, errors.DeadlineExceededError) in observer.events


def test_lines_go_to_logging_unless_they_are_overridden(tmp_path, caplog):
    class Lines(tidemark.CheckpointObserver):
        def __init__(self):
            self.lines = []

        def save_line(self, line):
            self.lines.append(line)

        def warning(self, line):
            self.lines.append(line)

    for name, observer in (("default", tidemark.CheckpointObserver()), ("overridden", Lines())):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="tidemark"):
            with tidemark.Checkpointer(tmp_path / name, observer=observer) as checkpointer:
                checkpointer.evaluator("e", lambda snapshot: {"": 1.0})  # has no name
                checkpointer.save(1, {"w": 1})
                checkpointer.wait_until_evaluated(60)
        lines = [record.getMessage() for record in caplog.records] if name == "default" else observer.lines
        assert any(line.startswith("step 1") for line in lines) and any("evaluator 'e'" in line for line in lines)
    assert caplog.records == []


def test_what_it_raises_is_a_warning_and_the_next_call_is_made(tmp_path, caplog):
    class Raising(tidemark.CheckpointObserver):
        def __init__(self):
            self.steps = []

        def committed(self, info):
            self.steps.append(info.step)
            raise (ValueError if info.step == 1 else SystemExit)(f"step {info.step} is a bad one")

    observer = Raising()
    with tidemark.Checkpointer(tmp_path / "store", observer=observer) as checkpointer:
        for step in (1, 2, 3):
            called = threading.Event()
            checkpointer.save(step, {"w": 1}).committed.add_done_callback(lambda future, called=called: called.set())
            assert called.wait(60)
    assert observer.steps == [1, 2, 3]
    assert "the observer's committed raised" in caplog.text and "SystemExit: step 2 is a bad one" in caplog.text


def test_it_may_pin_the_step_that_was_committed(tmp_path):
    pinned = threading.Event()

    class Pinning(tidemark.CheckpointObserver):
        def committed(self, info):
            checkpointer.pin(info.step, "by the observer")
            pinned.set()

    with tidemark.Checkpointer(tmp_path / "store", observer=Pinning()) as checkpointer:
        checkpointer.save(1, {"w": 1})
        assert pinned.wait(60)  # a closed checkpointer pins nothing
    assert tidemark.steps(tmp_path / "store")[0].pin_note == "by the observer"


def test_one_that_takes_too_long_misses_events_and_is_told_how_many(tmp_path):
    class Slow(tidemark.CheckpointObserver):
        def __init__(self):
            self.gate, self.begun, self.lines, self.warnings = threading.Event(), threading.Event(), [], []

        def committed(self, info):
            self.begun.set()
            assert self.gate.wait(60)

        def save_line(self, line):
            self.lines.append(line)

        def warning(self, line):
            self.warnings.append(line)

    observer = Slow()
    with tidemark.Checkpointer(tmp_path / "store", observer=observer) as checkpointer:
        checkpointer.save(1, {"w": 1})
        assert observer.begun.wait(60)
        for step in range(2, 1202):
            evaluated = checkpointer.evaluate(step, {"w": 1})
        observer.gate.set()
        assert evaluated.committed.result(60) == 1201
    (line,) = observer.warnings
    dropped = int(line.split()[0])
    assert line == f"{dropped} events were dropped, because a function of the observer has taken too long"
    assert dropped >= 200 and dropped + len(observer.lines) in (1200, 1201)


def test_that_of_a_best_file_is_told_of_exports(tmp_path):
    observer, path = Recorder(), str(tmp_path / "best.safetensors")
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, {"w": np.ones(3)}, metrics={"loss": 1.0}).committed.result(60)
        with tidemark.BestFile(tmp_path / "store", "loss", path, observer=observer) as file:
            file.update()
    assert observer.events == [("exported", 1, path)]


@pytest.mark.parametrize("ends", ["close", "preemption"])
def test_an_observer_that_does_not_return_delays_the_end_no_longer_than_its_time(tmp_path, caplog, ends):
    entered, may_return = threading.Event(), threading.Event()

    class Stuck(tidemark.CheckpointObserver):
        def committed(self, *_):
            entered.set()
            may_return.wait(60)

    checkpointer = tidemark.Checkpointer(tmp_path / "store", observer=Stuck())
    handle = checkpointer.save(1, {"a": np.ones(3)})
    assert entered.wait(30)
    begun = time.monotonic()
    if ends == "close":
        checkpointer.close(timeout=0.5)
    else:
        with tidemark.PreemptionGuard(grace=0.5) as guard:
            guard.note()
            report = guard.save_and_close(checkpointer, 2, {"a": np.ones(3)})
        assert report.committed
    assert time.monotonic() - begun < 20
    assert "an observer or a callback of a future has not returned" in caplog.text
    may_return.set()
    assert handle.committed.done()
    assert [step.state for step in tidemark.steps(tmp_path / "store")] == ["committed"] * (1 if ends == "close" else 2)
