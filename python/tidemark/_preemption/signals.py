"""Handlers of signals that note them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from .._checkpointer.observer import logger
from ..errors import FailedPreconditionError, InvalidArgumentError

# Whether a training goes on that is in this frame of the main thread. None: no frame is known.
GoesOn = Callable[[FrameType | None], bool]


class NotedSignals:
    """Notes the first signal of each of the `numbers`; the second has the effect that it had before. While one of the `trainings`
    goes on, the later ones are noted as well. In a forked child every signal has its former effect.

    InvalidArgumentError: a signal that cannot be caught. FailedPreconditionError: this is not the main thread.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.received: float | None = None  # when the first one came, by time.monotonic()
        self.is_uninstalled = False
        self.trainings: list[GoesOn] = []
        self._pid = os.getpid()
        self._former: dict[int, Any] = {}
        self._noted: set[int] = set()
        self._of_children: Any = None  # PyTorch's handler of SIGCHLD, once a signal has come
        try:
            for number in numbers:
                in_c = _has_handler_in_c(number)
                self._former[number] = signal.getsignal(number)  # before, so that an interrupt finds it
                signal.signal(number, self.note)
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

    @property
    def numbers(self) -> list[int]:
        """Of the signals that have this handler, or had it."""
        return list(self._former)

    def has_noted(self, number: int) -> bool:
        return number in self._noted

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        is_here = self._pid == os.getpid()
        in_training = is_here and any([goes_on(frame) for goes_on in list(self.trainings)])
        is_note = not self.is_uninstalled and is_here
        if is_note and (in_training or number not in self._noted):
            self._noted.add(number)
            self._let_workers_die()
            self.begin()
            return
        signal.signal(number, self.former(number))
        os.kill(os.getpid(), number)

    def begin(self) -> None:
        """As if a first signal had come. From any thread."""
        if self.received is None:
            self.received = time.monotonic()

    def former(self, number: int) -> Any:
        """What a signal is given to without these handlers, and without those below them that were uninstalled since."""
        former = self._former.get(number)
        below = getattr(former, "__self__", None)
        if isinstance(below, NotedSignals) and below.is_uninstalled:
            return below.former(number)
        return signal.SIG_DFL if former is None else former

    def uninstall(self) -> list[int]:
        """Puts the former handlers of Python back; in the place of one in C, the signal's default effect. Returns the numbers
        whose handler was this one: another may have been installed since."""
        installed = [number for number in self._former if signal.getsignal(number) == self.note]
        for number in installed:
            signal.signal(number, self.former(number))
        if signal.getsignal(signal.SIGCHLD) == self._note_child:
            signal.signal(signal.SIGCHLD, self._of_children)
        self.is_uninstalled = True  # a handler that has been installed since, and calls this one, reaches the former one
        return installed

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
