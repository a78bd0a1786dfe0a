"""SIGTERM, or the end of an allotted time, as one last save."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from .._arguments import integer, integers, number
from .._checkpointer.checkpointer import Checkpointer
from ..errors import Error, FailedPreconditionError, InvalidArgumentError
from .signals import NotedSignals


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
        """Whether the step survives power loss: this save has committed it, or an earlier one had."""
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

    The first SIGTERM only sets `preempted`. A second one acts as if there were no guard, and so does every one in a forked
    child, so that a pool can end its workers. The same holds for each other signal of `signals`. A handler that another library
    has installed in C cannot be put back by Python: there is a warning, and the second signal, and every one after the context,
    then has the default effect, which for SIGTERM ends the process. Python notes a signal when its main thread next runs
    Python, and `grace`, in seconds, counts from then. `end`: a time of time.time() at which the allotted time ends, if it is
    known; then `preempted` is True from `grace` seconds before it on.

    After a signal, workers of PyTorch's DataLoader may die of it too: that raises no error until they are needed.

    Leaving the context puts the former handlers of Python back, unless other ones have been installed since. It cannot be
    entered again: FailedPreconditionError. InvalidArgumentError: a signal that cannot be caught, or a negative grace.
    FailedPreconditionError: this is not the main thread.
    """

    def __init__(self, *, signals: Sequence[int] = (signal.SIGTERM,), grace: float = 30.0, end: float = float("inf")) -> None:
        self._grace = number(grace, "grace")
        if not self._grace >= 0:
            raise InvalidArgumentError(f"grace is {grace}: 0 or more seconds")
        self._end = number(end, "end")
        self._agreed_end = float("inf")  # what preempted_on_any_rank found; by time.monotonic()
        # Each number once: a second time, its own handler would be the former one.
        self._signals = NotedSignals(list(dict.fromkeys(integers(signals, "signals"))))

    def __enter__(self) -> PreemptionGuard:
        if self._signals.is_uninstalled:
            raise FailedPreconditionError("the guard was uninstalled, so it would note no signal: make a new one")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.uninstall()

    def uninstall(self) -> None:
        """Puts the former handlers of Python back; in the place of one in C, the signal's default effect."""
        self._signals.uninstall()

    def note(self) -> None:
        """As if a first signal had come, for a notice of another kind, such as that of a cloud: the grace counts from now on.
        From any thread."""
        self._signals.begin()

    @property
    def preempted(self) -> bool:
        """Whether a signal has come, or the end is near. Quick enough for every step."""
        return self._signals.received is not None or self.has_agreed or time.time() >= self._end - self._grace

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
        received = self._signals.received
        return left if received is None else min(received + self._grace - time.monotonic(), left)

    def save_and_close(self, checkpointer: Checkpointer, step: int, state: Any, *, metrics: dict[str, float] | None = None,
                       user_metadata: str | Mapping[str, Any] = "{}", overwrite: bool = False) -> PreemptionReport:
        """Saves the state as `step`, unless it is committed or being saved, waits for that, and closes the checkpointer,
        all within `seconds_left`. Failures are in the report; it waits for no evaluator. The checkpointer is closed then,
        and what still runs ends with the process.

        UnsupportedTypeError: the state has something that cannot be stored; nothing was done. FailedPreconditionError: the
        checkpointer is closed.

        With ranks all of them call it with the same step. Rank 0 gives up a rank that has not written its part in four fifths
        of the time: `save` is an AbortedError then, and names it.
        """
        step = integer(step, "step")
        return PreemptionReport(step, *checkpointer._save_and_close(step, state, metrics, user_metadata, overwrite,
                                                                    self._grace, self.seconds_left()))
