"""A close with a drain: which evaluations it waits for, and what becomes of those that it gives up."""

import asyncio
import concurrent.futures
import gc
import threading
import time
import weakref

import numpy as np
import pytest
import tidemark
from tidemark import errors


def test_a_drain_gives_up_the_evaluations_that_have_not_ended(tmp_path, caplog):
    go, begun, done = threading.Event(), threading.Event(), threading.Event()
    checkpointer = tidemark.Checkpointer(tmp_path / "store")

    def hang(snapshot):
        begun.set()
        go.wait(600)
        assert snapshot["w"][0] == snapshot.step
        done.set()

    checkpointer.evaluator("e", hang, max_pending=2, when_lagging="skip")
    for step in (1, 2):
        checkpointer.save(step, {"w": np.full(100, step)})
    assert begun.wait(60)
    checkpointer.close(drain=0.05)
    assert "closing without the evaluations that have not ended" in caplog.text and "evaluator 'e' at step 1" in caplog.text
    assert checkpointer.statistics().saves_committed == 2
    checkpointer.check_for_errors()
    checkpointer.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        checkpointer.steps()
    with tidemark.Checkpointer(tmp_path / "store") as other:  # the store is free
        records = {info.step: info.evaluations for info in other.steps()}
        assert sorted(records) == [1, 2] and [record.outcome for record in records[2]] == ["skipped"]
        go.set()
        assert done.wait(60)  # it has the memory of its snapshot
        assert records[1] == []


@pytest.mark.parametrize("drain", [0, 0.05])
def test_a_drain_gives_evaluations_up_after_a_close_that_ran_out_of_time(tmp_path, drain):
    go, begun = threading.Event(), threading.Event()
    checkpointer = tidemark.Checkpointer(tmp_path / "store", close_timeout=300)
    checkpointer.evaluator("e", lambda snapshot: begun.set() or go.wait(600) and None)
    try:
        checkpointer.save(1, {"w": 1})
        assert begun.wait(60)
        with pytest.raises(errors.DeadlineExceededError, match="evaluator 'e' at step 1"):
            checkpointer.close(0.1)
        began = time.monotonic()
        checkpointer.close(drain=drain)
        assert time.monotonic() - began < 100 and not go.is_set()
        tidemark.Checkpointer(tmp_path / "store").close()  # the store is free
    finally:
        go.set()


def test_arrays_that_may_still_be_read_outlive_a_close_that_gives_evaluations_up(tmp_path):
    go = threading.Event()
    checkpointer = tidemark.Checkpointer(tmp_path / "store")
    checkpointer.evaluator("e", lambda snapshot: go.wait(600) and None)
    array = np.ones(1 << 22)
    kept = weakref.ref(array)
    try:
        for step in range(1000):
            checkpointer.evaluate(step, {"w": array}, staging="overlapped")
            if checkpointer._owners:  # it is still being copied, and may be when close returns
                break
        del array
        checkpointer.close(drain=0)
        del checkpointer
        gc.collect()
        assert kept() is not None
    finally:
        go.set()


def test_the_future_of_an_evaluation_that_is_given_up_is_cancelled(tmp_path):
    go, begun, told = threading.Event(), threading.Event(), threading.Event()
    checkpointer = tidemark.Checkpointer(tmp_path / "store")
    checkpointer.evaluator("e", lambda snapshot: begun.set() or go.wait(600) and None)
    try:
        handle = checkpointer.evaluate(1, {"w": 1})
        future = handle.committed
        future.add_done_callback(lambda _: told.set())
        assert begun.wait(60)
        waiter = concurrent.futures.ThreadPoolExecutor(1)
        result = waiter.submit(future.exception)
        assert not future.done() and not future.cancel()
        checkpointer.close(drain=0)
        assert concurrent.futures.wait([future], 60).not_done == set() and told.wait(60)
        assert future.done() and future.cancelled() and handle.staged.result(0) == 1
        for call in (future.result, future.exception, result.result):
            with pytest.raises(concurrent.futures.CancelledError):
                call(60)

        async def wait():
            await handle

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(asyncio.wait_for(wait(), 60))
        waiter.shutdown()
    finally:
        go.set()


def test_a_drain_waits_for_evaluations_that_end_in_time(tmp_path, monkeypatch):
    closing = threading.Event()
    wait = tidemark.Checkpointer._wait_for_evaluators

    def wait_for_evaluators(*arguments):
        closing.set()
        return wait(*arguments)

    def evaluate(snapshot):
        assert snapshot.step == 1 or closing.wait(60)
        return 1

    monkeypatch.setattr(tidemark.Checkpointer, "_wait_for_evaluators", wait_for_evaluators)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", evaluate, when_lagging="block")
        for step in (1, 2):
            checkpointer.save(step, {"w": 1})
        checkpointer.close(drain=60)
    assert [info.metrics for info in tidemark.steps(tmp_path / "store")] == [{"e/value": 1.0}] * 2


def test_a_failed_save_is_raised_by_a_close_that_gives_evaluations_up(tmp_path):
    go = threading.Event()
    checkpointer = tidemark.Checkpointer(tmp_path / "store", save_timeout=1e-9)
    checkpointer.evaluator("e", lambda snapshot: go.wait(600) and None)
    try:
        checkpointer.save(1, {"w": 1})
        while True:  # until the failed save runs no longer, and the evaluator alone does
            with pytest.raises(errors.DeadlineExceededError) as caught:
                checkpointer.wait_until_evaluated(0.01)
            assert caught.value.save_runs == ("the save of" in str(caught.value))
            if not caught.value.save_runs:
                break
        with pytest.raises(errors.DeadlineExceededError, match="step 1"):
            checkpointer.close(drain=0)
        checkpointer.close()
        tidemark.Checkpointer(tmp_path / "store").close()
    finally:
        go.set()


def test_an_exit_without_an_error_waits_for_evaluations_and_raises_failures(tmp_path, monkeypatch):
    begun, closing = threading.Event(), threading.Event()
    path = tmp_path / "store"
    close = tidemark.Checkpointer.close
    monkeypatch.setattr(tidemark.Checkpointer, "close",
                        lambda self, *given, **named: (closing.set(), close(self, *given, **named)))

    def evaluate(snapshot):
        begun.set()
        return {"n": 1.0} if closing.wait(60) else None

    for code in (None, 0):
        begun.clear(), closing.clear()
        step = 1 if code is None else 2
        with pytest.raises(SystemExit), tidemark.Checkpointer(path) as checkpointer:
            checkpointer.evaluator("e", evaluate)
            checkpointer.save(step, {"w": 1})
            assert begun.wait(60)
            raise SystemExit(code)
        with tidemark.open(path, step) as opened:
            assert opened.info.metrics == {"e/n": 1.0}
    with (pytest.raises(errors.DeadlineExceededError, match="step 3"),
          tidemark.Checkpointer(path, save_timeout=1e-9) as checkpointer):
        checkpointer.save(3, {"w": np.ones(1000)})
        raise SystemExit(0)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_that_leaves_the_context_is_not_held_up_by_an_evaluator(tmp_path, caplog, kind):
    go, begun = threading.Event(), threading.Event()
    began = time.monotonic()
    try:
        with pytest.raises(kind, match="of the training"), tidemark.Checkpointer(tmp_path / "store") as checkpointer:
            checkpointer.evaluator("e", lambda snapshot: begun.set() or go.wait(600) and None)
            checkpointer.save(1, {"w": 1})
            assert begun.wait(60)
            checkpointer.save(2, {"w": np.ones(1 << 20)})
            raise kind("of the training")
        assert time.monotonic() - began < 100 and not go.is_set()
        assert "closing without the evaluations that have not ended" in caplog.text and "evaluator 'e' at step 1" in caplog.text
        with tidemark.Checkpointer(tmp_path / "store") as other:  # the store is free, and the save in flight is committed
            assert [(info.step, info.state) for info in other.steps()] == [(1, "committed"), (2, "committed")]
    finally:
        go.set()
