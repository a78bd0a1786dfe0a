"""The waits for saves and evaluators that a signal can end. They belong to the thread that uses the checkpointer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import DeadlineExceededError
from .futures import SLICE

if TYPE_CHECKING:
    from .checkpointer import Checkpointer

PAUSE_MAX = 0.5  # seconds: how late a wait for evaluators sees a signal


def never() -> bool:
    return False


def wait_for_saves(checkpointer: Checkpointer, deadline: float = float("inf"), is_cancelled: Callable[[], bool] = never) -> bool:
    """Whether all saves have ended by the `deadline`, a time of time.monotonic(), and before is_cancelled() was true. The saves
    compress no more than the disk leaves time for. Looks at no failure."""
    native = checkpointer._native
    native.hurry()
    while not native.all_committed():
        if is_cancelled() or time.monotonic() >= deadline:
            return False
        time.sleep(SLICE / 10)
    return True


def wait_for_evaluators(checkpointer: Checkpointer, deadline: float,
                        is_cancelled: Callable[[], bool] = never) -> DeadlineExceededError | None:
    """None: all evaluators have ended. Else what still runs at the `deadline`, or when is_cancelled() has ended the wait."""
    while True:
        left = 0.0 if is_cancelled() else max(0.0, deadline - time.monotonic())
        try:
            checkpointer.wait_until_evaluated(min(left, PAUSE_MAX))
            return None
        except DeadlineExceededError as error:
            if left <= PAUSE_MAX:
                return error
