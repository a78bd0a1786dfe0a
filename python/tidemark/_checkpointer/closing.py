"""How checkpointers close where their user does not: after an error, and at the end of the interpreter."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import Error
from .observer import logger

if TYPE_CHECKING:
    from .checkpointer import Checkpointer

opened: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
_dropped: list[Any] = []  # checkpointers without other references, which the end of the process closes
# Of trainings of Keras and Transformers that have not ended, by their store. These frameworks do not tell a callback of an
# exception, so the next training with the store closes what it finds.
_unfinished: dict[str, Checkpointer] = {}
left_running: list[Any] = []  # what threads of the library may still use, until the end of the process


def close_after(what: object, checkpointer: Checkpointer, drain: float | None = 0.0) -> None:
    """Closes after an error, or something else, that is raised already. A failure is a warning. The error is not held up by
    evaluations."""
    try:
        checkpointer.close(drain=drain)
    except Error as error:
        logger.warning("closing after %r: %s", what, error)


def close_or_give_up(checkpointer: Checkpointer, drain: float | None, timeout: float | None = None) -> None:
    """`close` for callers that drop the checkpointer afterwards. If it is interrupted, evaluations are given up at once, so that
    the store is free."""
    try:
        checkpointer.close(timeout, drain=drain)
    except Error:
        raise
    except BaseException as error:
        close_after(error, checkpointer)
        raise


def close_owned(owner: Any, drain: float | None, timeout: float | None = None) -> None:
    """`close_or_give_up` for the integrations: `owner._checkpointer` is None once it is closed. After an interrupt or a close
    that ran out of time, the next call goes on."""
    checkpointer: Checkpointer | None = owner._checkpointer
    if checkpointer is None:
        return
    try:
        close_or_give_up(checkpointer, drain, timeout)
    finally:
        if checkpointer._closed:
            owner._checkpointer = None
            _forget(checkpointer)


def close_owned_after(error: BaseException, owner: Any) -> None:
    """`close_after` for the integrations. A close that has run out of time is not made again, so that its error is not late: the
    next training with the store makes it, or the end of the process."""
    checkpointer: Checkpointer | None = owner._checkpointer
    if checkpointer is None:
        return
    if not checkpointer._out_of_time:
        close_after(error, checkpointer)
    if checkpointer._closed:
        owner._checkpointer = None
        _forget(checkpointer)
    else:
        opened_by_training(checkpointer)


class closed_at_end(contextlib.AbstractContextManager["closed_at_end"]):
    """`with checkpointer:` for a training, whose own close is `close_owned` of this."""

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._checkpointer: Checkpointer | None = checkpointer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._checkpointer is None:
            return
        if error is not None and self._checkpointer._out_of_time:
            close_owned_after(error, self)
            return
        try:
            self._checkpointer.__exit__(kind, error, trace)
        finally:
            if not self._checkpointer._closed:
                opened_by_training(self._checkpointer)


def opened_by_training(checkpointer: Checkpointer) -> None:
    """For `close_earlier_training`."""
    _unfinished[checkpointer.path] = checkpointer


def close_earlier_training(store: str) -> None:
    """Closes what a training that an exception has ended has left open at this absolute path. A failure of its saves is a
    warning. A training that still runs cannot be told from such a one: its next save raises FailedPreconditionError."""
    checkpointer = _unfinished.get(store)
    if checkpointer is None:
        return
    logger.warning("%s is closed, which an earlier training has left open, and opened for this one. If the earlier one still "
                   "runs, give each training a store of its own", store)
    close_after("an earlier training", checkpointer)
    if checkpointer._closed:
        _forget(checkpointer)


def _forget(checkpointer: Checkpointer) -> None:
    if _unfinished.get(checkpointer.path) is checkpointer:
        del _unfinished[checkpointer.path]


def close_elsewhere(checkpointer: Checkpointer) -> None:
    """Closes on a thread of its own what has no other reference: an evaluator, which a close waits for, has dropped it, or a
    close has run out of time. The end of the process waits for the thread."""
    opened.add(checkpointer)

    def close() -> None:
        close_after("its last reference was dropped", checkpointer, None)
        if not checkpointer._closed:
            _dropped.append(checkpointer)

    try:
        threading.Thread(target=close, name="tidemark close").start()
    except RuntimeError:  # the process is about to end, or has no room for a thread
        _dropped.append(checkpointer)


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
