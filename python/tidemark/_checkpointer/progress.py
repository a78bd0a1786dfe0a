"""How far a restore is: for a function of the user's, or as a line on a terminal."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any, Union

from ..errors import InvalidArgumentError
from .options import TrainerFunction


@dataclasses.dataclass(frozen=True)
class RestoreProgress:
    """How far the arrays of a step have been read, in bytes of their elements."""

    step: int
    bytes_done: int
    bytes_total: int


# False: nothing is shown. True: a line on a terminal. Or a function.
Progress = Union[bool, Callable[[RestoreProgress], Any]]

_WIDTH = 30


class Bar:
    """A line on stderr, which is written again and again. Nothing at all where stderr is no terminal."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._open = False

    def __call__(self, progress: RestoreProgress) -> None:
        if sys.stderr is None or not sys.stderr.isatty():
            return
        seconds = max(time.monotonic() - self._begun, 1e-6)
        share = progress.bytes_done / max(progress.bytes_total, 1)
        gib = 1 << 30
        sys.stderr.write(
            f"\rrestoring step {progress.step} [{'#' * int(share * _WIDTH):{_WIDTH}}] {100 * share:3.0f} %  "
            f"{progress.bytes_done / gib:.2f} of {progress.bytes_total / gib:.2f} GiB, "
            f"{progress.bytes_done / gib / seconds:.2f} GiB/s ")
        self._open = True
        sys.stderr.flush()

    def end(self) -> None:
        """Leaves the line as it is, and the cursor below it."""
        if self._open and sys.stderr is not None:
            self._open = False
            sys.stderr.write("\n")
            sys.stderr.flush()


class ProgressFunction(TrainerFunction):
    """What the native module calls. `end()` after the restore, however that has ended."""

    def __init__(self, progress: Progress) -> None:
        self._bar = Bar() if progress is True else None
        super().__init__(self._bar if self._bar is not None else progress,  # type: ignore[arg-type]
                         lambda given: RestoreProgress(*given), lambda _: True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.end()


def look_for_signals(_: RestoreProgress) -> None:
    """Shows nothing. Python looks for Ctrl-C when it calls this, which ends the restore."""


def progress_function(progress: Progress | None) -> ProgressFunction:
    if progress is None or progress is False:
        return ProgressFunction(look_for_signals)
    if progress is not True and not callable(progress):
        raise InvalidArgumentError(f"progress is {progress!r}, not a bool or a function")
    return ProgressFunction(progress)
