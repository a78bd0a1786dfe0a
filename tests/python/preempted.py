"""SIGTERM at drawn moments of a training in this process, for tests in all folders."""

import contextlib
import os
import signal
import sys

import tidemark
from interruption import SEED, Interrupt, drawn


class Terminate(Interrupt):
    """As Interrupt, but the process sends itself SIGTERM."""

    def _act(self):
        sys.settrace(None)  # a save that runs at full speed
        os.kill(os.getpid(), signal.SIGTERM)


def sender(base, hook, n=1, number=signal.SIGTERM, times=1):
    """A callback of the class `base` that sends this process a signal in one of its hooks, when that is called for the n-th
    time."""
    calls = []

    def send(self, *_, **__):
        calls.append(hook)
        if len(calls) == n:
            for _ in range(times):
                os.kill(os.getpid(), number)

    return type("Send", (base,), {hook: send})()


def terminate_in_a_save_that_waits(monkeypatch):
    """Has the first save that waits, for an evaluator or for memory, send this process SIGTERM. The list of the steps whose saves
    have asked whether to go on, one for each question."""
    asked, save_unless = [], tidemark.Checkpointer._save_unless

    def save(checkpointer, is_cancelled, step, *arguments, **options):
        def ask():
            asked.append(step)
            if asked.count(step) == 3:  # one that does not wait asks less often
                os.kill(os.getpid(), signal.SIGTERM)
            return is_cancelled()

        return save_unless(checkpointer, ask, step, *arguments, **options)

    monkeypatch.setattr(tidemark.Checkpointer, "_save_unless", save)
    return asked


@contextlib.contextmanager
def handled(number=signal.SIGTERM):
    """The user's handler of the signal. Yields the list of the signals that it was called for."""
    came = []

    def handler(received, frame):
        came.append(received)

    before = signal.signal(number, handler)
    try:
        yield came
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def terminated_at_drawn_moments(train, after, count, framework):
    """`train(n)` with a SIGTERM at `count` moments that the seed draws, or ten times as many with TIDEMARK_ALL_CASES; `after(n,
    code)` with the code of the SystemExit that it ended with, or None. Moment 0 is a training without a signal. Each signal
    must reach the user's handler once: at the end of the training, or at once where no guard is there yet."""
    print(f"seed {SEED}")
    with Terminate(None, framework) as whole:
        train(0)
    after(0, None)
    for moment in drawn(whole.passed, count):
        print(f"moment {moment} of {whole.passed}")
        code = None
        with handled() as came:
            with Terminate(moment, framework) as terminate:
                try:
                    train(moment)
                except SystemExit as exit:
                    code = exit.code
            assert came == [signal.SIGTERM] * terminate.raised
        after(moment, code)


def exit_code(call, *arguments, **options):
    """Of the SystemExit that the call must end with."""
    try:
        call(*arguments, **options)
    except SystemExit as exit:
        return exit.code
    raise AssertionError("no SystemExit")
