"""Retention, tuning, statistics and the rest of what a checkpointer tells and is told."""

import contextlib

import numpy as np
import pytest
import tidemark
from tidemark import errors


def save(checkpointer, step, state=None, **options):
    checkpointer.save(step, state or {"w": np.full(10, step)}, **options).committed.result(60)


def states(checkpointer):
    return {info.step: info.state for info in checkpointer.steps()}


def test_retention_keeps_the_best_steps_of_an_evaluator(tmp_path):
    retention = tidemark.Retention(keep_best=[tidemark.KeepBest("e/value", "highest")])
    with tidemark.Checkpointer(tmp_path / "store", retention=retention) as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: {0: 1, 1: 3, 2: 2, 3: 0}[snapshot.step], when_lagging="block")
        for step in range(4):
            save(checkpointer, step)
            checkpointer.wait_until_evaluated(60)
        checkpointer.tidy()
        assert states(checkpointer) == {0: "deleted", 1: "committed", 2: "deleted", 3: "committed"}
        assert "best" in checkpointer.steps()[1].kept
        assert checkpointer.statistics().steps_deleted == 2


def test_steps_without_the_metric_stay_if_asked(tmp_path):
    retention = tidemark.Retention(keep_best=[tidemark.KeepBest("loss", keep_without_metric=True)])
    with tidemark.Checkpointer(tmp_path / "store", retention=retention) as checkpointer:
        save(checkpointer, 0)
        for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0), (4, 4.0)):
            save(checkpointer, step, metrics={"loss": loss})
        checkpointer.tidy()
        assert states(checkpointer) == {0: "committed", 1: "deleted", 2: "committed", 3: "deleted", 4: "committed"}


@pytest.mark.parametrize("rule", ["late", tidemark.AwaitEvaluation("late", every_steps=1)])
def test_deletions_wait_for_a_late_evaluation(tmp_path, rule):
    retention = tidemark.Retention(max_to_keep=1, keep_unevaluated_until=[rule])
    with tidemark.Checkpointer(tmp_path / "store", retention=retention) as checkpointer:
        for step in range(3):
            save(checkpointer, step)
        checkpointer.tidy()
        assert set(states(checkpointer).values()) == {"committed"}
        for step in range(3):
            checkpointer.report_metrics(step, "late", {"loss": 1.0}).result(60)
        checkpointer.tidy()
        assert states(checkpointer) == {0: "deleted", 1: "deleted", 2: "committed"}


def test_the_plan_tells_what_retention_would_do(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", retention=tidemark.Retention(max_to_keep=2)) as checkpointer:
        save(checkpointer, 0)
        checkpointer.pin(0, "for the paper")
        for step in (1, 2, 3):
            save(checkpointer, step)
        plan = checkpointer.retention_plan()
        assert all(isinstance(decision, tidemark.RetentionDecision) for decision in plan)
        kept = {decision.step for decision in plan if decision.keep}
        assert kept == {0, 2, 3}
        assert "for the paper" in next(decision.reason for decision in plan if decision.step == 0)


def test_every_selector_selects(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step, loss in enumerate((3.0, 1.0, 2.0)):
            save(checkpointer, step, metrics={"loss": loss})
        checkpointer.tag(0, "first")
        checkpointer.report_metrics(2, "judge", {"score": 5.0}).result(60)
        for selector, step in (("latest", 2), ("latest-healthy", 2), ("best:loss", 1), ("best:loss:highest", 0),
                               ("best:judge/score", 2), ("tag:first", 0), ("1", 1), (1, 1), ("step:0", 0)):
            state = {"w": np.zeros(10, int)}
            assert checkpointer.restore(state, selector).step == step, selector
            assert (state["w"] == step).all()
            with tidemark.open(tmp_path / "store", selector) as opened:
                assert opened.info.step == step
        with pytest.raises(errors.InvalidArgumentError):
            checkpointer.restore({"w": np.zeros(10, int)}, "newest")
        with pytest.raises(tidemark.NotFoundError):
            checkpointer.restore({"w": np.zeros(10, int)}, "tag:second")
        with pytest.raises(tidemark.NotFoundError):
            checkpointer.untag("second")
        checkpointer.untag("first")
        checkpointer.unpin(0)
        checkpointer.delete(0, "not needed")
        assert checkpointer.steps()[0].reason == "not needed"
        with pytest.raises(errors.FailedPreconditionError, match="2"):
            checkpointer.delete(2)


@pytest.mark.parametrize("report", [lambda c: c.report_metrics(9, "e", {"a": 1.0}), lambda c: c.pin(9), lambda c: c.unpin(9),
                                    lambda c: c.tag(9, "x"), lambda c: c.delete(9)])
def test_a_step_that_is_not_there_is_not_found(tmp_path, report):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        with pytest.raises(tidemark.NotFoundError):
            future = report(checkpointer)
            future.result(60)


def test_statistics_count_and_may_be_read_after_close(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        save(checkpointer, 1)
        save(checkpointer, 2)
        statistics = checkpointer.statistics()
    assert isinstance(statistics, tidemark.Statistics)
    assert (statistics.saves_committed, statistics.saves_failed, statistics.in_flight) == (2, 0, 0)
    assert statistics.last_committed_step == 2 and statistics.last_committed_time > 1e9
    assert statistics.logical_bytes == 160
    copies = statistics.blocked["copy"]
    assert copies.count == 2 and sum(copies.counts) == 2 and len(copies.counts) == len(copies.bounds) + 1
    assert "tidemark_" in statistics.prometheus_text
    assert checkpointer.statistics().saves_committed == 2


def test_statistics_before_the_first_save_have_no_step(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert checkpointer.statistics().last_committed_step is None
        assert checkpointer.statistics().last_committed_time is None


def test_the_interval_between_saves_can_be_changed(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", save_interval_steps=10) as checkpointer:
        assert [step for step in range(20) if checkpointer.should_save(step)] == [0, 10]
        checkpointer.set_save_interval(5)
        assert [step for step in range(20) if checkpointer.should_save(step)] == [0, 5, 10, 15]
        with pytest.raises(errors.InvalidArgumentError):
            checkpointer.set_save_interval(-1)


def test_prepare_takes_the_memory_of_the_first_save(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        state = {"w": np.ones(1 << 16)}
        checkpointer.prepare(state)
        assert checkpointer.statistics().saves_committed == 0
        save(checkpointer, 1, state)
        with pytest.raises(tidemark.UnsupportedTypeError):
            checkpointer.prepare({"w": object()})


def test_one_entry_can_be_waited_for(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", staging="overlapped") as checkpointer:
        checkpointer.save(1, {"a": np.ones(1 << 18), "b": np.ones(1 << 18)})
        checkpointer.wait_until_staged("a")
        with pytest.raises(tidemark.NotFoundError, match="'c'"):
            checkpointer.wait_until_staged("c")
        checkpointer.wait_until_staged()


def test_an_array_that_changes_under_an_overlapped_save_is_found(tmp_path):
    weights = np.zeros(32 << 20, np.uint8)
    with tidemark.Checkpointer(tmp_path / "store", staging="overlapped",
                               tuning=tidemark.Tuning(check_overlapped_saves=True)) as checkpointer:
        for step in range(100):
            save = checkpointer.save(step, {"weights": weights})
            weights[-1] += 1  # copied last; where this thread was held up, it is copied already
            if isinstance(failure := save.committed.exception(60), errors.AbortedError):
                break
        assert "weights" in str(failure)
        save = checkpointer.save(step, {"weights": weights})
        checkpointer.wait_until_staged()
        weights[-1] += 1
        assert save.committed.result(60) == step


@pytest.mark.parametrize("waits", [True, False])
def test_a_loop_that_changes_arrays_passes_with_staged_and_fails_without(tmp_path, waits):
    weights = np.zeros(32 << 20, np.uint8)
    failures = []
    with tidemark.Checkpointer(tmp_path / "store", staging="overlapped",
                               tuning=tidemark.Tuning(check_overlapped_saves=True)) as checkpointer:
        for step in range(5 if waits else 100):
            save = checkpointer.save(step, {"weights": weights})
            with checkpointer.staged() if waits else contextlib.nullcontext():
                weights[-1] += 1  # copied last; where this thread was held up, it is copied already
            failures.append(save.committed.exception(60))
            if failures[-1] is not None:
                break
        committed = [info.step for info in checkpointer.steps() if info.state == "committed"]
    if waits:
        assert failures == [None] * 5 and committed == list(range(5))
    else:
        assert isinstance(failures[-1], errors.AbortedError) and "weights" in str(failures[-1])
        assert committed == list(range(len(failures) - 1))


def test_tuning_is_the_librarys(tmp_path):
    tuning = tidemark.Tuning(chunk_bytes=4096, codec_threads=1, io="threads", io_depth=2, background_nice=0,
                             reuse_saves_max=0, scrub_bytes_per_second_max=0, write_bytes_per_second_max=1 << 30,
                             background_io_idle=True, poll_interval=0.1)
    with tidemark.Checkpointer(tmp_path / "store", tuning=tuning) as checkpointer:
        save(checkpointer, 1, {"w": np.arange(10_000)})
    state = {"w": np.zeros(10_000, int)}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.resume(state)
    assert (state["w"] == np.arange(10_000)).all()


@pytest.mark.parametrize("options", [{"chunk_bytes": 5000}, {"codec_threads": 1000}, {"io": "mmap"}, {"io_depth": 0},
                                     {"background_nice": 20}, {"write_bytes_per_second_max": 1},
                                     {"poll_interval": 0.0}])
def test_tuning_out_of_its_range_is_refused(tmp_path, options):
    with pytest.raises(errors.InvalidArgumentError, match=next(iter(options))):
        tidemark.Checkpointer(tmp_path / "store", tuning=tidemark.Tuning(**options))


@pytest.mark.parametrize("rule", [{"keep_best": ["direction"]}, {"keep_best": [tidemark.KeepBest("loss", "least")]},
                                  {"keep_best": [tidemark.KeepBest("loss", count=0)]}, {"max_to_keep": -1},
                                  {"keep_unevaluated_until": [tidemark.AwaitEvaluation("e", 0)]}])
def test_a_rule_out_of_its_range_is_refused(tmp_path, rule):
    with pytest.raises(errors.InvalidArgumentError):
        tidemark.Checkpointer(tmp_path / "store", retention=tidemark.Retention(**rule))
