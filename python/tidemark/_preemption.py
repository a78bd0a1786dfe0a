"""SIGTERM, or the end of an allotted time, as one last save."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from ._arguments import integer, integers
from ._arguments import number as number_of
from ._checkpointer.checkpointer import Checkpointer
from ._checkpointer.observer import logger
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
        """Whether the step survives power loss: this save has committed it, or an earlier one had."""
        return self.save is None

    def __str__(self) -> str:
        return self.line


def _has_handler_in_c(number: int) -> bool:
    """Whether a library has installed a handler of the signal that the module `signal` does not know, and cannot put back."""
    try:
        if callable(signal.getsignal(number)):
            return False
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            caught = [line for line in status if line.startswith("SigCgt:")]
        return bool(int(caught[0].split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False


class PreemptionGuard:
    """Notes SIGTERM, so that the training can save once more before the process must be gone. A context manager.

        with tidemark.PreemptionGuard(grace=25.0) as guard:
            for step in range(first, steps):
                ...
                if guard.preempted:
                    print(guard.save_and_close(checkpointer, step, state))
                    break

    The first signal of each kind is only noted; the second has the effect that it had before. In a forked child every signal
    has that effect, so that a pool can end its workers. A handler that another library has installed in C cannot be put back
    by Python: there is a warning, and the second signal, and every one after the context, then has the default effect, which
    for SIGTERM ends the process. Python notes a signal when its main thread next runs Python, and `grace`, in seconds, counts
    from then. `end`: a time of time.time() at which the allotted time ends, if it is known; then `preempted` is True from
    `grace` seconds before it on.

    After a signal, workers of PyTorch's DataLoader may die of it too: that raises no error until they are needed.

    Leaving the context puts the former handlers of Python back, unless other ones have been installed since. It cannot be
    entered again: FailedPreconditionError. InvalidArgumentError: a signal that cannot be caught, or a negative grace.
    FailedPreconditionError: this is not the main thread.
    """

    def __init__(self, *, signals: Sequence[int] = (signal.SIGTERM,), grace: float = 30.0, end: float = float("inf")) -> None:
        self._grace = number_of(grace, "grace")
        if not self._grace >= 0:
            raise InvalidArgumentError(f"grace is {grace}: 0 or more seconds")
        self._end = number_of(end, "end")
        numbers = list(dict.fromkeys(integers(signals, "signals")))  # twice, its own handler would be the former one
        self._pid = os.getpid()
        self._received: float | None = None  # by time.monotonic()
        self._agreed_end = float("inf")  # what preempted_on_any_rank found; by time.monotonic()
        self._former: dict[int, Any] = {}
        self._noted: set[int] = set()
        self._of_children: Any = None  # PyTorch's handler of SIGCHLD, once a signal has come
        # Of trainings by frameworks: whether they go on, where a signal has come. Signals that follow then change nothing.
        self._trainings: list[Callable[[FrameType | None], bool]] = []
        self._uninstalled = False
        try:
            for number in numbers:
                in_c = _has_handler_in_c(number)
                self._former[number] = signal.getsignal(number)  # before, so that an interrupt finds it
                signal.signal(number, self._note)
                if in_c:
                    logger.warning("signal %d had a handler that was not installed by Python: it cannot be put back, so the "
                                   "signal has its default effect after this guard", number)
        except BaseException as error:
            self.uninstall()
            if not isinstance(error, (ValueError, OSError)):
                raise
            if "main thread" in str(error):
                raise FailedPreconditionError("signals can only be noted by the main thread") from error
            raise InvalidArgumentError(f"signal {number} cannot be caught: {error}") from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        is_here = self._pid == os.getpid()
        in_training = is_here and any([goes_on(frame) for goes_on in list(self._trainings)])
        is_note = not self._uninstalled and is_here
        if is_note and (in_training or number not in self._noted):
            self._noted.add(number)
            if self._received is None:
                self._received = time.monotonic()
                self._let_workers_die()
            return
        signal.signal(number, self._handler_before(number))
        os.kill(os.getpid(), number)

    def _handler_before(self, number: int) -> Any:
        """What a signal is given to without this guard, and without those below it that were uninstalled since."""
        former = self._former.get(number)
        guard = getattr(former, "__self__", None)
        if isinstance(guard, PreemptionGuard) and guard._uninstalled:
            return guard._handler_before(number)
        return signal.SIG_DFL if former is None else former

    def _let_workers_die(self) -> None:
        """Workers of a DataLoader die of a signal that goes to all processes of a job, and PyTorch's handler of SIGCHLD would
        raise in the middle of the step that is to be saved. The DataLoader still raises if it needs one of them."""
        handler = signal.getsignal(signal.SIGCHLD)
        if getattr(handler, "__module__", None) == "torch.utils.data._utils.signal_handling":
            self._of_children = handler
            signal.signal(signal.SIGCHLD, self._note_child)

    def _note_child(self, number: int, frame: FrameType | None) -> None:
        try:
            self._of_children(number, frame)
        except RuntimeError as error:
            logger.info("after a signal: %s", error)

    def __enter__(self) -> PreemptionGuard:
        if self._uninstalled:
            raise FailedPreconditionError("the guard was uninstalled, so it would note no signal: make a new one")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.uninstall()

    def uninstall(self) -> None:
        """Puts the former handlers of Python back; in the place of one in C, the signal's default effect."""
        for number in self._former:
            if signal.getsignal(number) == self._note:
                signal.signal(number, self._handler_before(number))
        if signal.getsignal(signal.SIGCHLD) == self._note_child:
            signal.signal(signal.SIGCHLD, self._of_children)
        self._uninstalled = True  # a handler that has been installed since, and calls this one, reaches the former one

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
