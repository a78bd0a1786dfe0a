"""`preemption=` of the integrations of frameworks: a PreemptionGuard for the time of one training."""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from types import CodeType, FrameType
from typing import Any

from .._arguments import wrong
from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.futures import SaveHandle
from .._checkpointer.observer import logger
from .._checkpointer.waits import wait_for_evaluators, wait_for_saves
from ..errors import FailedPreconditionError
from .guard import PreemptionGuard, PreemptionReport


def preemption_of(value: Any) -> bool | PreemptionGuard:
    """The argument `preemption` of an integration. InvalidArgumentError: it is something else."""
    if isinstance(value, (bool, PreemptionGuard)):
        return value
    raise wrong(value, "preemption", "a bool or a PreemptionGuard")


_guards: list[TrainingGuard] = []  # of the main thread, that have not ended


def _name_of(number: int) -> str:
    return next((one.name for one in signal.Signals if one == number), f"signal {number}")


class Run:
    """One call of a function, which goes on as long as a frame of the `code` has the `value` as its local variable `name`."""

    def __init__(self, code: CodeType, name: str, value: Any) -> None:
        self._code, self._name, self._value = code, name, weakref.ref(value)

    def is_around(self, frame: FrameType | None) -> bool:
        """Whether the frame is in this call."""
        value = self._value()
        while value is not None and frame is not None:
            if frame.f_code is self._code and frame.f_locals.get(self._name) is value:
                return True
            frame = frame.f_back
        return False


class TrainingGuard:
    """Notes signals from its making to `end`. Those that follow the first one change nothing: the launcher of a job, such as
    torchrun, passes on a signal that the process may also have got by itself. Belongs to the thread of the training.

    `within`: the call that trains, for frameworks that do not tell a callback of an exception. If it does not go on any more when
    a signal comes, or when another training begins, the guard ends, and the signal has its former effect.

    FailedPreconditionError: `preemption` is True, and this is not the main thread; or it is a guard that was uninstalled.
    """

    def __init__(self, preemption: bool | PreemptionGuard, within: Run | None = None) -> None:
        self._thread = threading.current_thread()
        if self._thread is threading.main_thread():
            for earlier in reversed(_guards):  # the newest first: each puts back what it has found
                earlier._goes_on(sys._getframe())
        self._is_own = not isinstance(preemption, PreemptionGuard)
        self.guard = preemption if isinstance(preemption, PreemptionGuard) else PreemptionGuard()
        self._within = within
        self._reported = False
        self.signals = self.guard._signals
        self.signals.trainings.append(self._goes_on)
        if self._thread is threading.main_thread():
            _guards.append(self)
        if self.signals.is_uninstalled:
            self.end()
            raise FailedPreconditionError("preemption= is a guard that was uninstalled, so it notes no signal: make a new one")

    def _goes_on(self, frame: FrameType | None) -> bool:
        """frame: of the main thread."""
        if self._within is None:
            return True
        if self._thread is not threading.main_thread():
            frame = sys._current_frames().get(self._thread.ident or 0)
        if self._within.is_around(frame):
            return True
        self.end()
        return False

    @property
    def preempted(self) -> bool:
        """Of this process."""
        return self.guard.preempted

    def preempted_on_any_rank(self, checkpointer: Checkpointer) -> bool:
        """Of the job, whose ranks call this after the same steps."""
        return self.guard.preempted_on_any_rank(checkpointer)

    def note(self) -> None:
        """The framework has been given the signal: the grace counts from now on."""
        if not self.guard.preempted:
            self.guard.note()

    def save(self, checkpointer: Checkpointer, step: int, state: Any, **options: Any) -> SaveHandle | None:
        """As `Checkpointer.save`. None: a signal has ended a wait for memory or for an evaluator, and nothing was saved. With
        ranks such a wait goes on."""
        return checkpointer._save_unless(lambda: self.preempted, step, state, **options)

    def save_and_close(self, checkpointer: Checkpointer, step: int, state: Any, *, metrics: dict[str, float] | None,
                       overwrite: bool, user_metadata: str = "{}") -> PreemptionReport:
        """As that of the guard, and logs the report."""
        report = self.guard.save_and_close(checkpointer, step, state, metrics=metrics, overwrite=overwrite,
                                           user_metadata=user_metadata)
        logger.warning("%s", report)
        self._reported = True
        checkpointer._failure_raised = True  # the report has those of earlier saves, which a `close` would raise
        return report

    def wait(self, checkpointer: Checkpointer, drain: float | None) -> tuple[float | None, float | None]:
        """At the end of the training: waits for saves and evaluations, as long as no signal comes. Returns (drain, timeout) for
        the `close` that follows. Together, the wait and that close take at most `close_timeout`, and after a signal end when
        the grace time does; then the close raises a DeadlineExceededError."""
        end = time.monotonic() + checkpointer._close_timeout
        drained = end if drain is None else min(end, time.monotonic() + drain)
        if wait_for_saves(checkpointer, end, lambda: self.preempted) and drained > time.monotonic():
            wait_for_evaluators(checkpointer, drained, lambda: self.preempted)
        timeout = max(0.0, end - time.monotonic())
        if self.preempted:
            return 0.0, max(0.0, min(self.guard.seconds_left(), timeout))
        return None if drain is None else max(0.0, drained - time.monotonic()), timeout

    @staticmethod
    def exit_code(report: PreemptionReport | None) -> int:
        """Of the process. None: nothing was left to save."""
        return 0 if report is None or report.committed else 1

    def end(self, exits: bool = False) -> None:
        """Puts the former handlers back, unless the guard is the user's. One of Python is then called for a signal that was
        noted: the training has ended, so nothing is lost if it exits. A signal with the default effect is not sent again,
        because that would kill the process while the user's code handles an error. `exits`: the caller raises SystemExit for
        the signal. If it does not, and no last save was made, a warning says that the signal had no effect."""
        if self in _guards:
            _guards.remove(self)
        if self._goes_on in self.signals.trainings:
            self.signals.trainings.remove(self._goes_on)
        if not self._is_own:
            return
        for number in self.signals.uninstall():  # a signal may have come until now
            former = self.signals.former(number)
            if self.signals.has_noted(number) and callable(former):
                signal.raise_signal(number)
            elif self.signals.has_noted(number) and former == signal.SIG_DFL and not exits and not self._reported:
                logger.warning("%s came during a training that an error has ended: nothing was saved for the signal, and nothing "
                               "of it is left, so the process goes on", _name_of(number))
