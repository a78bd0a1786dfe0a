"""SIGTERM, or the end of an allotted time, as one last save."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

from ._checkpointer import Checkpointer
from .errors import Error, FailedPreconditionError, InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class PreemptionReport:
    """What the last save did; as text one line for a log. `save`: None: the step is committed. `close`: None: nothing was
    still running at the deadline, no earlier save had failed, and no evaluation is lost."""

    step: int
    save: Error | None
    close: Error | None
    line: str

    @property
    def committed(self) -> bool:
        return self.save is None

    def __str__(self) -> str:
        return self.line


class PreemptionGuard:
    """Notes SIGTERM, so that the training can save once more before the process must be gone. A context manager.

        with tidemark.PreemptionGuard(grace=25.0) as guard:
            for step in range(first, steps):
                ...
                if guard.preempted:
                    print(guard.save_and_close(checkpointer, step, state))
                    break

    The first signal of each kind is only noted; the second has the effect that it had before. Python notes a signal when
    its main thread next runs Python, and `grace`, in seconds, counts from then. `end`: a time of time.time() at which the
    allotted time ends, if it is known; then `preempted` is True from `grace` seconds before it on.

    Leaving the context puts the former handlers back, unless other ones have been installed since. InvalidArgumentError:
    a signal that cannot be caught, or a negative grace. FailedPreconditionError: this is not the main thread.
    """

    def __init__(self, *, signals: Sequence[int] = (signal.SIGTERM,), grace: float = 30.0, end: float = float("inf")) -> None:
        if not grace >= 0:
            raise InvalidArgumentError(f"grace is {grace}: 0 or more seconds")
        self._grace = float(grace)
        self._end = float(end)
        self._received: float | None = None  # by time.monotonic()
        self._agreed_end = float("inf")  # what preempted_on_any_rank found; by time.monotonic()
        self._former: dict[int, Any] = {}
        try:
            for number in signals:
                self._former[int(number)] = signal.signal(number, self._note)
        except (ValueError, OSError) as error:
            self.uninstall()
            if "main thread" in str(error):
                raise FailedPreconditionError("signals can only be noted by the main thread") from error
            raise InvalidArgumentError(f"signal {number} cannot be caught: {error}") from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is None:
            self._received = time.monotonic()
            return
        former = self._former.get(number)
        signal.signal(number, signal.SIG_DFL if former is None else former)
        os.kill(os.getpid(), number)

    def __enter__(self) -> PreemptionGuard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.uninstall()

    def uninstall(self) -> None:
        """Puts the former handlers back."""
        for number, former in self._former.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL if former is None else former)
        self._former = {}

    @property
    def preempted(self) -> bool:
        """Whether a signal has come, or the end is near. Quick enough for every step."""
        return self._received is not None or self.has_agreed or time.time() >= self._end - self._grace

    def preempted_on_any_rank(self, checkpointer: Checkpointer) -> bool:
        """With `Checkpointer(ranks=)`: whether any rank is preempted. All ranks call it after the same steps, and get the same
        answer. From the first True on it is theirs: `preempted` is True, and `seconds_left` is at most that of the rank that
        had the least. So all of them can save the same step.

        Each call is an `all_gather` until then, so a job with short steps may ask after every tenth. If that fails, there is a
        warning, and each rank goes by its own signals. Without ranks, and of a closed checkpointer, it is `preempted`.
        """
        if self.has_agreed:
            return True
        self.agree_on(checkpointer._least_time_left(self.seconds_left()))
        return self.has_agreed

    @property
    def has_agreed(self) -> bool:
        """Whether `agree_on` was called, or `preempted_on_any_rank` returned True."""
        return self._agreed_end < float("inf")

    def agree_on(self, seconds_left: float) -> None:
        """For ranks that agree by other means: the process must be gone in so many seconds. Infinite: no end."""
        self._agreed_end = time.monotonic() + seconds_left

    def seconds_left(self) -> float:
        """Until the process must be gone; infinite as long as it is not preempted."""
        if not self.preempted:
            return float("inf")
        left = min(self._end - time.time(), self._agreed_end - time.monotonic())
        return left if self._received is None else min(self._received + self._grace - time.monotonic(), left)

    def save_and_close(self, checkpointer: Checkpointer, step: int, state: Any, *, metrics: dict[str, float] | None = None,
                       user_metadata: str = "{}", overwrite: bool = False) -> PreemptionReport:
        """Saves the state as `step`, unless it is committed or being saved, waits for that, and closes the checkpointer,
        all within `seconds_left`. Failures are in the report; it waits for no evaluator. The checkpointer is closed then,
        and what still runs ends with the process.

        UnsupportedTypeError: the state has something that cannot be stored; nothing was done. FailedPreconditionError: the
        checkpointer is closed.

        With ranks all of them call it with the same step. Rank 0 gives up a rank that has not written its part in four fifths
        of the time: `save` is an AbortedError then, and names it.
        """
        return PreemptionReport(step, *checkpointer._save_and_close(step, state, metrics or {}, user_metadata, overwrite,
                                                                    self._grace, self.seconds_left()))
