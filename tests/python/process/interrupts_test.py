"""Ctrl-C in the middle of every call: a KeyboardInterrupt comes out, nothing is lost, and the store can be used on.

Each moment at which Python can raise one (interruption.py) is tried by itself: a call is repeated, and each time interrupted at
another moment, until it ends before that. Without TIDEMARK_ALL_CASES=1 every fifth moment is tried. interrupted_calls_test.py has
the other calls.
"""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import tidemark
from interruption import PACKAGE, interrupted
from tidemark import errors


def committed(checkpointer):
    return {info.step for info in checkpointer.steps() if info.state == "committed"}


@pytest.mark.parametrize("staging", ["blocking", "overlapped"])
def test_a_save_is_whole_or_not_there(checkpointer, staging):
    def save(moment):
        # Nothing but the package has the arrays any longer, so they go as soon as it forgets them.
        return checkpointer.save(moment, {"w": np.full(50_000, moment), "view": np.full((90, 70), moment).T, "n": moment},
                                 staging=staging)

    def after(moment, handle):
        overwritten = [np.full(50_000, -1) for _ in range(3)]
        del overwritten
        checkpointer.wait_until_staged()
        checkpointer.wait_until_committed()
        there = moment in committed(checkpointer)
        assert there or handle is None
        if there:
            state = {"w": np.zeros(50_000, int), "view": np.zeros((70, 90), int), "n": 0}
            checkpointer.restore(state, moment)
            assert (state["w"] == moment).all() and (state["view"] == moment).all() and state["n"] == moment

    assert interrupted(save, after) > 10
    checkpointer.save(10**6, {"n": 1}).committed.result(60)


def test_a_restore_can_be_repeated(checkpointer):
    checkpointer.save(1, {"w": np.arange(1000), "pair": (np.ones(3), 5), "n": 7})
    state = {"w": np.zeros(1000, int), "pair": (np.zeros(3), 0), "n": 0}

    def after(_, report):
        fresh = {"w": np.zeros(1000, int), "pair": (np.zeros(3), 0), "n": 0}
        assert checkpointer.restore(fresh).step == 1
        assert (fresh["w"] == np.arange(1000)).all() and fresh["pair"][1] == 5 and fresh["n"] == 7
        if report is not None:
            assert (state["w"] == np.arange(1000)).all() and state["n"] == 7

    assert interrupted(lambda _: checkpointer.restore(state), after) > 10
    assert interrupted(lambda _: checkpointer.resume(state), lambda _, step: after(_, None if step is None else step)) > 10


def test_an_evaluation_gives_its_memory_back(tmp_path):
    state = {"w": np.ones(100_000)}
    seen = []
    with tidemark.Checkpointer(tmp_path / "store", staging_bytes_max=2 * state["w"].nbytes, when_full="fail") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: seen.append(snapshot.step), when_lagging="block")

        def after(moment, handle):
            checkpointer.wait_until_evaluated(60)
            assert handle is None or moment in seen

        assert interrupted(lambda moment: checkpointer.evaluate(moment, state), after) > 10


def test_a_wait_can_be_repeated(checkpointer):
    def wait(moment):
        save = checkpointer.save(moment, {"n": moment})
        save.staged.result()
        save.committed.result()
        checkpointer.wait_until_staged()
        checkpointer.wait_until_evaluated()
        checkpointer.wait_until_committed()
        return save

    def after(moment, save):
        checkpointer.wait_until_committed()
        assert save is None or moment in committed(checkpointer)

    assert interrupted(wait, after) > 20


def test_a_look_into_a_store_can_be_repeated(checkpointer):
    checkpointer.save(1, {"w": np.arange(1000), "n": [1, (2,)]}).committed.result(60)

    def look(_):
        with tidemark.open(checkpointer.path) as step:
            return (step.get_tensor("w").sum(), step.get_slice("w")[3:5].tolist(), step.get_value("n"),
                    tidemark.verify(checkpointer.path).damage, [info.step for info in tidemark.steps(checkpointer.path)],
                    checkpointer.latest_step().step)

    expected = look(0)
    assert interrupted(look, lambda _, found: look(0) == expected and found in (None, expected)) > 20


def test_a_close_can_be_repeated_and_loses_no_failure(tmp_path):
    opened = {}

    def close(moment):
        path = tmp_path / f"store{moment}"
        opened[moment] = tidemark.Checkpointer(path, save_timeout=1e-9)
        opened[moment].save(1, {"w": np.ones(1000)})
        try:
            opened[moment].close()
        except errors.DeadlineExceededError as error:
            return error
        raise AssertionError("the close raised no failure")

    def after(moment, error):
        checkpointer = opened.pop(moment, None)
        if checkpointer is None:  # interrupted before there was one
            return
        if error is None:
            try:
                checkpointer.close()
            except errors.DeadlineExceededError as late:
                error = late
        tidemark.Checkpointer(tmp_path / f"store{moment}").close()  # the store is free
        assert not checkpointer._notifier._thread.is_alive()
        if checkpointer.statistics().saves_failed > 0:
            assert error is not None and "step 1" in str(error)

    assert interrupted(close, after) > 20


def test_a_close_that_gives_evaluations_up_can_be_repeated(tmp_path):
    gate, opened = threading.Event(), []

    def close(moment):
        begun = threading.Event()
        opened.append(tidemark.Checkpointer(tmp_path / f"store{moment}", close_timeout=300))
        opened[-1].evaluator("e", lambda snapshot: begun.set() or gate.wait(600) and None)
        opened[-1].save(moment, {"w": np.ones(1000)}).committed.result(60)
        assert begun.wait(60)
        opened[-1].close(drain=0)
        return True

    def after(moment, ended):
        began = time.monotonic()
        for checkpointer in opened:
            checkpointer.close(drain=0)
            assert not checkpointer._notifier._thread.is_alive()
        opened.clear()
        with tidemark.Checkpointer(tmp_path / f"store{moment}") as again:  # the store is free
            assert ended is None or committed(again) == {moment}
        assert time.monotonic() - began < 100 and not gate.is_set()

    try:
        assert interrupted(close, after) > 20
    finally:
        gate.set()


def test_the_close_of_a_best_file_can_be_repeated(checkpointer, tmp_path):
    checkpointer.save(1, {"w": np.ones(10)}, metrics={"loss": 1.0}).committed.result(60)

    def best_file():
        return tidemark.BestFile(checkpointer.path, "loss", tmp_path / "best.safetensors", poll_interval=600)

    opened = [best_file()]

    def after(*_):
        opened[0].close()
        assert not opened[0]._notifier._thread.is_alive()
        opened[0] = best_file()

    assert interrupted(lambda _: opened[0].close(), after) >= 1
    opened[0].close()


def test_an_opening_leaves_the_store_free(tmp_path):
    opened = {}

    def open_store(moment):
        opened[moment] = tidemark.Checkpointer(tmp_path / "store")
        return opened[moment]

    def after(moment, _):
        checkpointer = opened.pop(moment, None)
        if checkpointer is not None:
            checkpointer.close()
        del checkpointer
        gc.collect()
        threads = [thread for thread in threading.enumerate() if thread.name == "tidemark"]
        tidemark.Checkpointer(tmp_path / "store").close()
        assert not threads

    assert interrupted(open_store, after) > 5


@pytest.fixture
def keyboard():
    """press(function, *arguments): calls it, and presses Ctrl-C once the main thread is in the package and waits for something
    without the interpreter's lock; with `inside`, in the package's function of that name or in what that calls. Returns
    "interrupted", or what the call returned before that."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore Ctrl-C
    main = threading.get_ident()
    # So a thread has the lock only if another one has given it up. From before the test starts its threads on: one that waits
    # for the lock goes by the interval that there was when it began to wait.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)

    def press(function, *arguments, inside=None):
        ended, began = threading.Event(), threading.Event()

        def watch():
            began.set()
            while not ended.is_set():
                frame = sys._current_frames()[main]
                while frame is not None and not (frame.f_code.co_filename.startswith(PACKAGE)
                                                 and inside in (None, frame.f_code.co_name)):
                    frame = frame.f_back
                if frame is not None:
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                time.sleep(0)

        watcher = threading.Thread(target=watch)
        watcher.start()
        began.wait()
        try:
            return function(*arguments)
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            ended.set()
            watcher.join()

    yield press
    sys.setswitchinterval(interval)
    signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("wait", ["close", "wait_until_evaluated", "result", "exception"])
def test_ctrl_c_ends_a_wait_while_the_evaluator_hangs(tmp_path, keyboard, wait):
    gate, begun = threading.Event(), threading.Event()
    checkpointer = tidemark.Checkpointer(tmp_path / "store")

    @checkpointer.evaluator("e")
    def hang(snapshot):
        begun.set()
        assert gate.wait(600)

    checkpointer.save(1, {"w": np.ones(10)}).committed.result(60)
    pending = checkpointer.evaluate(2, {"w": np.ones(10)}) if wait in ("result", "exception") else None
    assert begun.wait(60)
    call = getattr(pending.committed if pending else checkpointer, wait)
    assert keyboard(call) == "interrupted" and not gate.is_set()
    gate.set()
    checkpointer.close()
    with tidemark.Checkpointer(tmp_path / "store") as again:
        assert 1 in committed(again)


def test_ctrl_c_in_the_last_wait_of_a_trainer_gives_the_evaluations_up(tmp_path, keyboard):
    gate = threading.Event()
    trainer = tidemark.AsyncTrainer(tmp_path / "store", {"w": np.ones(10)}, lambda step: {}, drain=300, close_timeout=300)
    trainer.evaluator("e")(lambda snapshot: gate.wait(600) and None)
    began = time.monotonic()
    try:
        assert keyboard(trainer.run, 1, inside="wait_for_evaluators") == "interrupted" and time.monotonic() - began < 100
        with tidemark.Checkpointer(tmp_path / "store") as again:  # the store is free
            assert committed(again) == {0}
    finally:
        gate.set()


def test_ctrl_c_while_a_large_step_is_read_comes_out_when_the_call_returns(tmp_path, keyboard):
    expected = np.random.default_rng(1).random(4 << 20)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, {"w": expected}).committed.result(60)
        path = checkpointer.path
        with tidemark.open(path) as step:
            for call in (lambda: step.get_tensor("w"), lambda: tidemark.verify(path), lambda: tidemark.open(path)):
                assert "interrupted" in (keyboard(call) for _ in range(100))
                call()
            np.testing.assert_array_equal(step.get_tensor("w"), expected)
