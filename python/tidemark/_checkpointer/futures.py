"""Saves and their results as concurrent.futures.Future, and the thread that resolves them."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import Any

from .._arguments import seconds_or_none
from ..errors import DeadlineExceededError, Error, FailedPreconditionError
from .observer import CheckpointObserver, logger, tell

# Ctrl-C ends a wait within this many seconds.
SLICE = 0.05


class Future(concurrent.futures.Future[int]):
    """A result that arrives later. `result()` and `exception()` wait for it, and a failure then counts as seen.

    Works with `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future`, and can be awaited. `cancel` does nothing,
    but a close that does not wait for the result cancels it: CancelledError. Callbacks run on a thread of Python that may
    call the checkpointer; what they raise there is logged. In a forked child a result that was not there before the fork is
    FailedPreconditionError, and its callbacks are not called.

    `close` raises the failures that no call has looked at, so the package looks at none by itself. For
    `concurrent.futures.wait` a save that fails meanwhile is therefore done like any other, and FIRST_EXCEPTION does not
    return for it: use FIRST_COMPLETED or `as_completed`, and `exception()` of what is done.
    """

    def __init__(self, native: Any, value: int) -> None:
        super().__init__()
        self._native = native
        self._value = value
        self.resolve_if_ready()

    def resolve_if_ready(self) -> bool:
        """Whether the result has arrived. Does not look at it."""
        if not self._native.ready():
            return False
        with self._condition:
            first = self._state == "PENDING"
            if first:
                self._state = "RUNNING"
        if first:
            super().set_result(self._value)
        return True

    def give_up(self) -> None:
        """If the result has not arrived: it will not be waited for any longer, and counts as cancelled."""
        if self.resolve_if_ready():
            return
        super().cancel()
        if self._state == "CANCELLED":
            self.set_running_or_notify_cancel()

    def fail_in_child(self) -> None:
        """In a forked child, where no thread resolves it: a wait of concurrent.futures for it would not end."""
        self._condition = threading.Condition()  # another thread may have held it at the fork
        self._waiters = []
        self._done_callbacks: list[Any] = []
        if not super().done():
            super().set_exception(FailedPreconditionError("the result belongs to the process that forked this one"))

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[int]], object]) -> None:
        """Has `fn(future)` called once when the result is there or is given up: on a thread of Python, or at once, on this
        one, if it is there already. What it raises is logged, but for a KeyboardInterrupt on this thread."""
        def call(future: concurrent.futures.Future[int]) -> None:
            try:
                fn(future)
            except Exception:
                raise  # concurrent.futures logs it
            except BaseException:
                if not isinstance(threading.current_thread(), _NotifierThread):
                    raise
                # Else the callbacks after this one would not be called, and no future would be resolved any more.
                logger.exception("a callback of a future raised")

        super().add_done_callback(call)

    def done(self) -> bool:
        """Whether the result has arrived, or a close has given it up. Does not look at a failure."""
        return bool(self._native.ready()) or super().done()

    def cancel(self) -> bool:
        """False, and does nothing: a save cannot be taken back."""
        return False

    def _wait(self, timeout: float | None) -> None:
        timeout = seconds_or_none(timeout, "timeout")
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.cancelled():
                raise concurrent.futures.CancelledError
            left = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
            if self._native.wait(max(left, 0.0)):
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise concurrent.futures.TimeoutError

    def result(self, timeout: float | None = None) -> int:
        """The value, or raises the failure. concurrent.futures.TimeoutError after `timeout` seconds; None: no limit.
        concurrent.futures.CancelledError: a close has given it up."""
        self._wait(timeout)
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The failure; None: there is none. Waits, and ends the wait, as `result` does."""
        try:
            self._wait(timeout)
        except Error as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, int]:
        import asyncio  # takes longer than the rest of the package

        if not self.done():
            self._native.wait(0.0)  # says that it is waited for: it compresses no more than the disk leaves time for
        return asyncio.wrap_future(self).__await__()


def in_slices(wait: Callable[[float], None], timeout: float | None) -> None:
    """Calls `wait(seconds)` until it returns, so that signals are seen meanwhile. DeadlineExceededError after `timeout`."""
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    while True:
        try:
            return wait(min(SLICE, max(0.0, deadline - time.monotonic())))
        except DeadlineExceededError:
            if time.monotonic() >= deadline:
                raise


class SaveHandle:
    """One save. Can be awaited: that waits for `committed`.

    `staged` resolves when the trainer may change its arrays, `committed` when the step survives power loss. Both have
    the step as their result. `skipped`: nothing was saved, because `when_full` is "skip" and there was no room.
    `staging`: as asked for, or "blocking" if "on_device" found no room on the device, or no tensor there.
    """

    def __init__(self, step: int, skipped: bool, staging: str, staged: Future, committed: Future) -> None:
        self.step = step
        self.skipped = skipped
        self.staging = staging
        self.staged = staged
        self.committed = committed

    def __await__(self) -> Generator[Any, None, int]:
        return self.committed.__await__()


_notifiers: weakref.WeakSet[Notifier] = weakref.WeakSet()


def _fail_in_child() -> None:
    for notifier in list(_notifiers):
        for future in notifier._pending:
            future.fail_in_child()


os.register_at_fork(after_in_child=_fail_in_child)


class _NotifierThread(threading.Thread):
    """That of a Notifier."""


class Notifier:
    """Resolves futures and tells the observer of events, on a thread of its own, from `start` to `stop`. Thread-safe."""

    def __init__(self, native: Any, observer: CheckpointObserver | None = None) -> None:
        self._native = native
        self._observer = observer or CheckpointObserver()
        self._pending: list[Future] = []
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = _NotifierThread(target=self._run, name="tidemark", daemon=True)
        _notifiers.add(self)

    def start(self) -> None:
        self._thread.start()

    def add(self, future: Future) -> Future:
        if not future.resolve_if_ready():
            with self._lock:
                self._pending.append(future)
            self._native.wake()
        return future

    def stop(self, timeout: float | None) -> None:
        """Cancels the futures that have no result. Waits at most `timeout` seconds (None: no limit) for the observer and for
        callbacks. If one has not returned then, a warning says so, and it goes on until the process ends."""
        self._stopping = True
        self._native.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            if self._thread.is_alive():
                logger.warning("closing: an observer or a callback of a future has not returned")
        with self._lock:
            pending = list(self._pending)
        for future in pending:
            future.give_up()

    def _run(self) -> None:
        while True:
            stopping = self._stopping  # before the last look
            with self._lock:
                pending = list(self._pending)
            # An event may come shortly before its future has the result.
            events = self._native.wait_for_events(0.0 if stopping else 0.01 if pending else 3600.0)
            resolved = [future for future in pending if future.resolve_if_ready()]
            for method, arguments in events:
                if method:
                    tell(self._observer, method, arguments)
            with self._lock:
                self._pending = [future for future in self._pending if future not in resolved]
            if stopping:
                return
