"""How checkpointers close where their user does not: after an error, and at the end of the interpreter."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import TYPE_CHECKING, Any

from . import _native
from ._observer import logger
from .errors import Error

if TYPE_CHECKING:
    from ._checkpointer import Checkpointer

opened: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
left_running: list[Any] = []  # what threads of the library may still use, until the end of the process


def close_after(what: object, checkpointer: Checkpointer, drain: float | None = 0.0) -> None:
    """Closes after an error, or something else, that is raised already. A failure is a warning."""
    try:
        checkpointer.close(drain=drain)
    except Error as error:
        logger.warning("closing after %r: %s", what, error)


def close_or_give_up(checkpointer: Checkpointer, drain: float | None) -> None:
    """`close` for who forgets the checkpointer afterwards. If it is interrupted, evaluations are given up at once, so that
    the store is free."""
    try:
        checkpointer.close(drain=drain)
    except Error:
        raise
    except BaseException as error:
        close_after(error, checkpointer)
        raise


def _close_at_exit(checkpointer: Checkpointer) -> None:
    if checkpointer._pid != os.getpid():
        return
    try:
        close_or_give_up(checkpointer, drain=None)
    except Error as error:
        logger.warning("closing at exit: %s", error)


@atexit.register
def _close_all() -> None:
    """At the end of the interpreter: what is in flight is committed before the process goes."""
    with contextlib.ExitStack() as all_of_them:  # after Ctrl-C in one of them, too
        all_of_them.callback(lambda: _native.refuse_calls(bool(opened) or bool(left_running)))
        for checkpointer in list(opened):
            all_of_them.callback(_close_at_exit, checkpointer)
