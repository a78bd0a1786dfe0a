"""Futures, signals, forks and the end of the interpreter."""

import asyncio
import concurrent.futures
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import tidemark
from tidemark._checkpointer import closing

HERE = pathlib.Path(__file__).parent


def test_futures_work_with_concurrent_futures(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        saves = [checkpointer.save(step, {"w": np.full(1000, step)}) for step in range(3)]
        assert all(save.staged.done() and save.staged.result() == save.step for save in saves)
        done, _ = concurrent.futures.wait([save.committed for save in saves])
        assert sorted(future.result() for future in done) == [0, 1, 2]
        called = threading.Event()
        checkpointer.save(3, {"w": 1}).committed.add_done_callback(lambda future: called.set())
        assert called.wait(60)
        assert not saves[0].committed.cancel()


def test_a_callback_may_call_the_checkpointer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        found = concurrent.futures.Future()
        checkpointer.save(4, {"w": 1}).committed.add_done_callback(lambda _: found.set_result(checkpointer.latest_step().step))
        assert found.result(60) == 4


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ValueError])
def test_what_a_callback_raises_is_logged_and_later_futures_are_resolved(tmp_path, caplog, kind):
    def fail(_):
        raise kind("of the callback")

    async def save_again(checkpointer):
        return await checkpointer.save(2, {"w": 1})

    called = threading.Event()
    with tidemark.Checkpointer(tmp_path / "store", observer=FirstWaits(called)) as checkpointer:
        future = checkpointer.save(1, {"w": np.zeros(1000)}).committed
        future.add_done_callback(fail)
        later = concurrent.futures.Future()
        future.add_done_callback(lambda _: later.set_result(True))
        called.set()
        assert later.result(60)
        assert asyncio.run(asyncio.wait_for(save_again(checkpointer), 60)) == 2
        # On the thread of the user it is the user's, as for any future.
        if not issubclass(kind, Exception):
            with pytest.raises(kind):
                future.add_done_callback(fail)
    assert "of the callback" in caplog.text


class FirstWaits(tidemark.CheckpointObserver):
    """Holds up the thread that calls callbacks until the event."""

    def __init__(self, event):
        self._event = event

    def save_line(self, line):
        self._event.wait(60)


def test_a_save_can_be_awaited(tmp_path):
    async def train(checkpointer):
        save = checkpointer.save(5, {"w": 1})
        assert await save.staged == 5
        return await save

    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert asyncio.run(train(checkpointer)) == 5


def test_a_failure_in_the_background_is_not_lost_by_resolving_its_future(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", save_timeout=1e-9) as checkpointer:
        save = checkpointer.save(1, {"w": np.ones(1000)})
        concurrent.futures.wait([save.committed])
        with pytest.raises(tidemark.errors.DeadlineExceededError, match="step 1"):
            checkpointer.wait_until_committed()
        assert isinstance(save.committed.exception(), tidemark.errors.DeadlineExceededError)


def test_close_raises_the_failure_of_a_save_that_ran_out_of_time(tmp_path):
    checkpointer = tidemark.Checkpointer(tmp_path / "store", save_timeout=1e-9)
    checkpointer.save(1, {"w": np.ones(1000)})
    with pytest.raises(tidemark.errors.DeadlineExceededError, match="step 1"):
        checkpointer.close()
    checkpointer.close()
    tidemark.Checkpointer(tmp_path / "store").close()  # the store is free


def test_an_overlapped_save_keeps_its_arrays_alive(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store", staging="overlapped") as checkpointer:
        for step in range(20):
            checkpointer.save(step, {"a": np.full(100_000, step), "b": np.full((300, 200), step).T})
        checkpointer.wait_until_staged()
        state = {"a": np.zeros(100_000, int), "b": np.zeros((200, 300), int)}
        for step in (0, 13, 19):
            checkpointer.restore(state, step)
            assert (state["a"] == step).all() and (state["b"] == step).all()


def run(program, *arguments):
    return subprocess.run([sys.executable, "-W", "error", "-c", program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)


def test_the_end_of_the_interpreter_commits_what_is_in_flight(tmp_path):
    result = run("import sys, numpy, tidemark\n"
                 "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
                 "checkpointer.save(1, {'w': numpy.ones(1000000)})\n", tmp_path / "store")
    assert (result.returncode, result.stderr) == (0, "")
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.step == 1


def test_a_dropped_checkpointer_warns_and_closes(tmp_path):
    checkpointer = tidemark.Checkpointer(tmp_path / "store")
    checkpointer.save(1, {"w": 1})
    with pytest.warns(ResourceWarning, match="was not closed"):
        del checkpointer
    tidemark.Checkpointer(tmp_path / "store").close()


def test_ctrl_c_ends_a_wait(tmp_path):
    # A future that never resolves stands for a disk that hangs. A shell lets its background jobs ignore Ctrl-C.
    result = run("import os, signal, tidemark\n"
                 "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                 "from tidemark._checkpointer.futures import Future\n"
                 "class Never:\n"
                 "  def ready(self): return False\n"
                 "  def wait(self, seconds):\n"
                 "    os.kill(os.getpid(), signal.SIGINT)\n"
                 "    return False\n"
                 "try: Future(Never(), 1).result()\n"
                 "except KeyboardInterrupt: print('interrupted')\n")
    assert result.stdout == "interrupted\n", result.stderr


def test_a_forked_child_is_refused_and_ends_cleanly(tmp_path):
    result = run("import os, sys, tidemark\n"
                 "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
                 "child = os.fork()\n"
                 "if child == 0:\n"
                 "  try: checkpointer.save(1, {'w': 1})\n"
                 "  except tidemark.errors.FailedPreconditionError: sys.exit(7)\n"
                 "  sys.exit(8)\n"
                 "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
                 "checkpointer.save(2, {'w': 2}).committed.result()\n"
                 "checkpointer.close()\n", tmp_path / "store")
    assert (result.stdout, result.returncode) == ("7\n", 0), result.stderr


def test_a_worker_of_a_data_loader_that_touches_a_handle_is_refused(tmp_path):
    pytest.importorskip("torch")
    # A DataLoader forks its workers. The evaluation keeps a result from coming until the workers have gone.
    result = run("import sys, threading, warnings\n"
                 "warnings.simplefilter('ignore')\n"  # PyTorch's about NumPy
                 "import tidemark, torch\n"
                 "go = threading.Event()\n"
                 "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
                 "save = checkpointer.save(1, {'w': torch.ones(3)})\n"
                 "assert save.committed.result() == 1\n"
                 "checkpointer.evaluator('e', lambda snapshot: go.wait() and None)\n"
                 "pending = checkpointer.evaluate(2, {'w': torch.ones(3)})\n"
                 "calls = [lambda: checkpointer.save(3, {}), lambda: checkpointer.resume({}), checkpointer.steps,\n"
                 "         pending.committed.result, checkpointer.close,\n"
                 "         checkpointer.wait_until_committed, checkpointer.wait_until_evaluated, save.committed.result]\n"
                 "class Touching(torch.utils.data.Dataset):\n"
                 "  def __len__(self): return len(calls)\n"
                 "  def __getitem__(self, i):\n"
                 "    try: return str(calls[i]())\n"
                 "    except tidemark.errors.FailedPreconditionError as error: return 'refused: ' + str(error)\n"
                 "for batch in torch.utils.data.DataLoader(Touching(), num_workers=2, collate_fn=list, timeout=60):\n"
                 "  print(*batch)\n"
                 "go.set()\n"
                 "assert pending.committed.result() == 2 and pending.staged.result() == 2\n"
                 "checkpointer.save(4, {'w': 1}).committed.result()\n"
                 "checkpointer.close()\n", tmp_path / "store")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 8 and all(line.startswith("refused: ") for line in lines[:-1]) and lines[-1] == "1"
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.step == 4


def test_a_fork_waits_for_a_mutex_that_the_child_needs(tmp_path):
    library = tmp_path / "held_at_fork.so"
    subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", HERE / "held_at_fork.cc", "-o", library], check=True)
    program = ("import ctypes, os, sys, threading\n"
               "from tidemark import _native\n"
               "def drop():\n"
               "  state = _native.TreeState()\n"
               "  for _ in range(2): state.set_entries(_native.ArrayList(), [], object())\n"
               "held = ctypes.CDLL(None)\n"
               "held.arm()\n"
               "thread = threading.Thread(target=drop)\n"
               "thread.start()\n"
               "held.await_held()\n"
               "child = os.fork()\n"
               "if child == 0:\n"
               "  drop()\n"
               "  sys.exit(5)\n"
               "thread.join()\n"
               "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100,
                            env={**os.environ, "LD_PRELOAD": str(library)})
    assert (result.stdout, result.returncode) == ("5\n", 0), result.stderr


def test_warnings_go_to_logging(tmp_path, caplog):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer._native.wake()
        with caplog.at_level("INFO", logger="tidemark"):
            checkpointer.save(3, {"w": 1}).committed.result()
            checkpointer.close()
    assert any("step 3" in record.message for record in caplog.records)


@pytest.mark.parametrize("restore", ["restore(state, healthy_only=True)", "resume(state, healthy_only=True)",
                                     "load(like=state, healthy_only=True)"])
def test_ctrl_c_ends_a_wait_for_verdicts(tmp_path, restore):
    program = ("import os, signal, sys, threading, numpy, tidemark\n"
               "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "go, state = threading.Event(), {'w': numpy.ones(3)}\n"
               "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
               "checkpointer.evaluator('v', lambda snapshot: go.wait() and None)\n"
               "checkpointer.save(1, state).committed.result()\n"
               "begun = threading.Event()\n"
               "def interrupt():\n"
               "    begun.wait()\n"
               "    go.wait(0.5)  # the restore is most probably in its wait then\n"
               "    os.kill(os.getpid(), signal.SIGINT)\n"
               "    if not go.wait(60):\n"
               "        print('late', flush=True)\n"
               "        os._exit(1)\n"
               "threading.Thread(target=interrupt).start()\n"
               "try:\n"
               "    begun.set()\n"
               f"    checkpointer.{restore}\n"
               "    print('restored')\n"
               "except KeyboardInterrupt:\n"
               "    print('interrupted')\n"
               "go.set()\n"
               "checkpointer.close()\n")
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], capture_output=True, text=True, timeout=120)
    assert result.stdout == "interrupted\n", result.stderr


def test_a_restore_of_healthy_steps_waits_for_verdicts_and_no_longer_than_it_is_told(tmp_path, caplog):
    go = threading.Event()
    state = {"w": np.ones(3)}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("v", lambda snapshot: go.wait(60) and tidemark.Verdict(unhealthy="too wide"), when_lagging="block")
        checkpointer.save(1, state).committed.result(60)
        assert checkpointer.restore(state, healthy_only=True, evaluations_timeout=0.1).step == 1
        threading.Timer(0.2, go.set).start()
        with pytest.raises(tidemark.NotFoundError):
            checkpointer.restore(state, healthy_only=True)
    assert "restoring without a verdict from" in caplog.text  # once close has handed over all warnings


def test_a_checkpointer_whose_last_reference_an_evaluator_drops_is_closed(tmp_path, caplog):
    go, dropped = threading.Event(), threading.Event()
    held = [tidemark.Checkpointer(tmp_path / "store")]

    def drop(snapshot):
        go.wait(60)
        held.clear()
        gc.collect()
        dropped.set()

    held[0].evaluator("v", drop)
    held[0].save(1, {"w": np.ones(3)}).committed.result(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        go.set()
        assert dropped.wait(60)
    for thread in threading.enumerate():
        if thread.name == "tidemark close":
            thread.join(60)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert checkpointer.latest_step().step == 1
    assert "closing" not in caplog.text


def test_a_kill_leaves_a_store_that_resumes(tmp_path):
    program = ("import sys, numpy, tidemark\n"
               "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
               "checkpointer.save(1, {'w': numpy.ones(10)}).committed.result()\n"
               "checkpointer.save(2, {'w': numpy.ones(1000000)})\n"
               "print('saved', flush=True)\n"
               "sys.stdin.read()\n")
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "store")], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "saved\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert checkpointer.latest_step().step in (1, 2)


@pytest.fixture
def counted():
    """counted(call): how often another thread ran during the call. It gets the interpreter's lock only where the call gives it
    up, since the interpreter takes it from no thread for so long."""
    interval, count, ended = sys.getswitchinterval(), 0, False

    def run():
        nonlocal count
        while not ended:
            count += 1
            time.sleep(0)

    def during(call):
        before = count
        call()
        return count - before

    sys.setswitchinterval(1000)
    thread = threading.Thread(target=run)
    thread.start()
    yield during
    ended = True
    thread.join()
    sys.setswitchinterval(interval)


def test_other_threads_run_while_the_library_saves_restores_and_verifies(tmp_path, counted):
    state = {"w": np.random.default_rng(1).random(8 << 20)}
    with tidemark.Checkpointer(tmp_path / "store", save_interval_steps=1) as checkpointer:
        checkpointer.prepare(state)
        checkpointer.save(0, state).committed.result(60)
        step = 0

        def save():
            nonlocal step
            step += 1
            checkpointer.save(step, state)

        for call in (save, lambda: checkpointer.restore(state, 0), lambda: tidemark.verify(checkpointer.path, 0)):
            # A busy machine may run the other thread late.
            assert any(counted(call) > 20 for _ in range(20))
    assert counted(lambda: sum(range(1_000_000))) <= 1  # which does not give it up


@pytest.fixture
def closes(monkeypatch):
    """The names of the threads that have closed. The first close runs out of time."""
    close, threads = tidemark.Checkpointer._close, []

    def slow(self, *limits):
        threads.append(threading.current_thread().name)
        if len(threads) == 1:
            raise tidemark.errors.DeadlineExceededError("still running: a save")
        close(self, *limits)

    monkeypatch.setattr(tidemark.Checkpointer, "_close", slow)
    return threads


def test_a_dropped_checkpointer_whose_close_ran_out_of_time_closes_on_a_thread(tmp_path, closes):
    checkpointer = tidemark.Checkpointer(tmp_path / "store")
    checkpointer.save(1, {"w": np.ones(3)})
    with pytest.raises(tidemark.errors.DeadlineExceededError):
        checkpointer.close()
    with pytest.warns(ResourceWarning, match="was not closed"):
        del checkpointer
    for thread in threading.enumerate():
        if thread.name == "tidemark close":
            thread.join(60)
    assert closes == ["MainThread", "tidemark close"]
    tidemark.Checkpointer(tmp_path / "store").close()


def test_a_close_after_an_error_that_runs_out_of_time_is_left_to_the_next_training(tmp_path, closes):
    class Training:
        _checkpointer = tidemark.Checkpointer(tmp_path / "store")

    closing.close_owned_after(ValueError("of the model"), Training)
    Training._checkpointer = None
    gc.collect()
    assert closes == ["MainThread"]
    closing.close_earlier_training(str(tmp_path / "store"))
    tidemark.Checkpointer(tmp_path / "store").close()
