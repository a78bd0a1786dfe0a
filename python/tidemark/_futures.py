"""Saves and their results as concurrent.futures.Future, and the thread that resolves them."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from ._observer import CheckpointObserver, logger, tell
from .errors import DeadlineExceededError, Error

# Ctrl-C ends a wait within this many seconds.
SLICE = 0.05


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """A result that arrives later. `result()` and `exception()` wait for it, and a failure then counts as seen.

    Works with `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future`, and can be awaited. `cancel` does nothing,
    but a close that does not wait for the result cancels it: CancelledError. Callbacks run on a thread of Python that may
    call the checkpointer. In a forked child a result that was not there before the fork is FailedPreconditionError.
    """

    def __init__(self, native: Any, value: Any) -> None:
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

    def done(self) -> bool:
        return bool(self._native.ready()) or self.cancelled()

    def cancel(self) -> bool:
        return False

    def _wait(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.cancelled():
                raise concurrent.futures.CancelledError
            left = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
            if self._native.wait(max(left, 0.0)):
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise concurrent.futures.TimeoutError

    def result(self, timeout: float | None = None) -> Any:
        """The value, or raises the failure. TimeoutError after `timeout` seconds."""
        self._wait(timeout)
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            self._wait(timeout)
        except Error as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # takes longer than the rest of the package

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

    def __await__(self) -> Generator[Any, None, Any]:
        return self.committed.__await__()


class Notifier:
    """Resolves futures and tells the observer of events, on a thread of its own, from `start` to `stop`, which cancels the
    futures that have no result. Thread-safe."""

    def __init__(self, native: Any, observer: CheckpointObserver | None = None) -> None:
        self._native = native
        self._observer = observer or CheckpointObserver()
        self._pending: list[Future] = []
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="tidemark", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, future: Future) -> Future:
        if not future.resolve_if_ready():
            with self._lock:
                self._pending.append(future)
            self._native.wake()
        return future

    def stop(self) -> None:
        self._stopping = True
        self._native.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
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
