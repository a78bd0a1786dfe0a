"""The end of the interpreter with saves and evaluations in flight: whatever ends it, saves that have begun are committed, the
exit status is what it would be, and nothing crashes or hangs. evaluator_test.py has more of evaluations."""

import os
import random
import subprocess
import sys
import time

import pytest
import tidemark

PROGRAM = ("import atexit, os, sys, threading, time, numpy, tidemark\n"
           "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
           "def state(step): return {'w': numpy.full(200_000, step), 'view': numpy.full((300, 200), step).T}\n")


def run(store, program, *arguments):
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM + program, str(store), *arguments],
                          capture_output=True, text=True, timeout=120)


def committed(store):
    """The committed steps. The store must be free, and each step sound."""
    with tidemark.Checkpointer(store) as checkpointer:
        steps = [info.step for info in checkpointer.steps() if info.state == "committed"]
    for step in steps:
        assert tidemark.verify(store, step).damage == []
        with tidemark.open(store, step) as opened:
            assert (opened.get_tensor("w") == step).all() and (opened.get_tensor("view") == step).all()
    return steps


@pytest.mark.parametrize("staging", ["blocking", "overlapped"])
@pytest.mark.parametrize("end,status,message", [
    ("sys.exit(3)", 3, ""), ("raise ValueError('of the program')", 1, "ValueError: of the program"),
    ("raise KeyboardInterrupt", -2, "KeyboardInterrupt")])
def test_saves_in_flight_are_committed_whatever_ends_the_program(tmp_path, staging, end, status, message):
    result = run(tmp_path / "store", "for step in range(8):\n"
                 "  save = checkpointer.save(step, state(step), staging=sys.argv[2])\n"
                 "  del save\n"
                 f"{end}\n", staging)
    assert result.returncode == status and message in result.stderr, result.stderr
    assert "Fatal" not in result.stderr and (message or not result.stderr), result.stderr
    assert committed(tmp_path / "store") == list(range(8))


def test_an_exit_inside_of_a_save_leaves_that_step_out(tmp_path):
    result = run(tmp_path / "store", "class Exits:\n"
                 "  def state_dict(self): sys.exit(5)\n"
                 "  def load_state_dict(self, state): pass\n"
                 "for step in range(3): checkpointer.save(step, state(step), staging='overlapped')\n"
                 "checkpointer.save(3, {**state(3), 'object': Exits()})\n")
    assert (result.returncode, result.stderr) == (5, "")
    assert committed(tmp_path / "store") == [0, 1, 2]


def test_an_exception_waits_for_the_evaluation_that_runs(tmp_path):
    result = run(tmp_path / "store", "begun, ending = threading.Event(), threading.Event()\n"
                 "atexit.register(ending.set)  # runs before what the package has registered\n"
                 "def evaluate(snapshot):\n"
                 "  begun.set()\n"
                 "  ending.wait()\n"
                 "  return {'a': snapshot['w'][0]}\n"
                 "checkpointer.evaluator('e', evaluate)\n"
                 "checkpointer.save(7, state(7))\n"
                 "begun.wait()\n"
                 "raise ValueError('of the program')\n")
    assert result.returncode == 1 and result.stderr.endswith("ValueError: of the program\n"), result.stderr
    assert [info.metrics for info in tidemark.steps(tmp_path / "store")] == [{"e/a": 7.0}]


def test_a_daemon_thread_that_saves_neither_crashes_nor_hangs_the_end(tmp_path):
    """Wherever it is: in a save, in a wait for one, or in Python."""
    seed = int(os.environ.get("TIDEMARK_SEED", time.time_ns() % 2**31))
    print(f"seed {seed}")
    moments = random.Random(seed)
    for attempt in range(6):
        store = tmp_path / f"store{attempt}"
        result = run(store, "staging, seconds = sys.argv[2], float(sys.argv[3])\n"
                     "first = threading.Event()\n"
                     "def train():\n"
                     "  for step in range(10**6):\n"
                     "    save = checkpointer.save(step, state(step), staging=staging)\n"
                     "    if step % 4 == 3: checkpointer.wait_until_committed()\n"
                     "    if step % 4 == 1: save.committed.result()\n"
                     "    print(step - 4, flush=True)\n"
                     "    first.set()\n"
                     "threading.Thread(target=train, daemon=True).start()\n"
                     "first.wait()\n"
                     "time.sleep(seconds)\n", ("blocking", "overlapped")[attempt % 2], str(moments.uniform(0, 0.5)))
        # The thread may be told that the checkpointer is closed, in a traceback that the end of the process cuts off.
        assert result.returncode == 0 and "Fatal" not in result.stderr, result.stderr
        steps = committed(store)
        assert steps == list(range(len(steps))) and steps[-1] >= max(0, int(result.stdout.split()[-1]))


def test_a_save_at_the_end_is_committed_or_refused(tmp_path):
    """By functions of atexit, the last registered one first, and by a finalizer."""
    result = run(tmp_path / "store", "class Late:\n"
                 "  def __del__(self): save('finalizer', 3)\n"
                 "def save(who, step):\n"
                 "  try: checkpointer.save(step, state(step))\n"
                 "  except tidemark.errors.FailedPreconditionError as error: print(who, error, flush=True)\n"
                 "  else: print(who, 'saves', flush=True)\n"
                 "late = Late()\n"
                 "atexit.register(save, 'early', 1)\n"
                 "sys.modules['tidemark'].late = late\n")
    assert result.returncode == 0 and not result.stderr, result.stderr
    assert result.stdout.splitlines()[0] == "early saves"
    assert result.stdout.splitlines()[1:] in ([], ["finalizer the checkpointer is closed"])
    assert committed(tmp_path / "store") == [1]


def test_a_function_of_atexit_from_before_the_import_is_refused(tmp_path):
    program = ("import atexit, sys\n"
               "def late():\n"
               "  try: checkpointer.save(2, {'w': 1})\n"
               "  except tidemark.errors.FailedPreconditionError as error: print(error)\n"
               "atexit.register(late)\n"
               "import tidemark\n"
               "checkpointer = tidemark.Checkpointer(sys.argv[1])\n"
               "checkpointer.save(1, {'w': 1})\n")
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout, result.stderr) == (0, "the checkpointer is closed\n", "")
    assert [info.step for info in tidemark.steps(tmp_path / "store")] == [1]
