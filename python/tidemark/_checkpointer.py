"""Checkpointer: saves a state without stopping the training, and restores it."""

from __future__ import annotations

import atexit
import dataclasses
import os
import time
import warnings
import weakref
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any

from . import _native
from ._futures import SLICE, Future, Notifier, logger
from ._pattern import matches
from ._step_info import StepInfo
from ._tree import Tree
from .errors import DeadlineExceededError, Error, FailedPreconditionError, InvalidArgumentError, MismatchError


@dataclasses.dataclass(frozen=True)
class KeepBest:
    """Keeps the `count` best steps by a metric. `mode`: "lowest" or "highest"; "": what the metric's name says."""

    metric: str
    mode: str = ""
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Retention:
    """Which committed steps are kept; a step is kept if any rule wants it. Without a rule all are kept.

    max_to_keep: this many, the newest commits. keep_best: the best steps by each metric. keep_every_steps: steps
    divisible by it. keep_interval: the first step in every such span of seconds. keep_for: steps that were saved at most
    so many seconds before the last commit. 0 and (): no such rule.
    """

    max_to_keep: int = 0
    keep_best: Sequence[KeepBest | str] = ()
    keep_every_steps: int = 0
    keep_interval: float = 0.0
    keep_for: float = 0.0


@dataclasses.dataclass(frozen=True)
class RestoreReport:
    """What a restore did. `passed_over`: [(step, reason)] of the steps that would have come first."""

    step: int
    info: StepInfo
    passed_over: list[tuple[int, str]]
    missing: list[str]
    unexpected: list[str]
    bytes: int


class SaveHandle:
    """One save. Can be awaited: that waits for `committed`.

    `staged` resolves when the trainer may change its arrays, `committed` when the step survives power loss. Both have
    the step as their result. `skipped`: nothing was saved, because `when_full` is "skip" and there was no room.
    """

    def __init__(self, step: int, skipped: bool, staged: Future, committed: Future) -> None:
        self.step = step
        self.skipped = skipped
        self.staged = staged
        self.committed = committed

    def __await__(self) -> Generator[Any, None, Any]:
        return self.committed.__await__()


_open: weakref.WeakSet[Checkpointer] = weakref.WeakSet()


class Checkpointer:
    """Opens or creates the store at `path` and takes its lock. A context manager: leaving it closes.

    Every option has the name, the default and the range of the C++ library's CheckpointerOptions; times are in seconds.
    `save_timeout` and `close_timeout` may be `float("inf")`. Use it from one thread at a time, except that the methods
    that name a step (`tag`, `pin`, `delete`, `report_metrics`) may run on any. In a forked child it cannot be used.

    AlreadyHeldError: another process holds the store. NotFoundError: there is none, and `create` is False.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, save_interval_steps: int = 0,
                 save_on_steps: Sequence[int] = (), save_interval_seconds: float = 0.0, staging_bytes_max: int = 0,
                 when_full: str = "block", staging: str = "blocking", compression: str = "throughput", reuse: bool = True,
                 retention: Retention | None = None, save_timeout: float = float("inf"), close_timeout: float = 1800.0,
                 metrics_file: str | os.PathLike[str] = "") -> None:
        retention = retention or Retention()
        self.path = os.path.abspath(path)
        best = [KeepBest(rule) if isinstance(rule, str) else rule for rule in retention.keep_best]
        self._close_timeout = close_timeout
        self._pid = os.getpid()
        self._closed = True  # until it is open
        self._native = _native.Checkpointer({
            "directory": self.path, "create": create, "save_interval_steps": save_interval_steps,
            "save_on_steps": list(save_on_steps), "save_interval_seconds": float(save_interval_seconds),
            "staging_bytes_max": staging_bytes_max, "when_full": when_full, "staging": staging, "compression": compression,
            "reuse": reuse, "save_timeout": float(save_timeout), "close_timeout": float(close_timeout),
            "metrics_file": os.fspath(metrics_file), "max_to_keep": retention.max_to_keep,
            "keep_every_steps": retention.keep_every_steps, "keep_interval": float(retention.keep_interval),
            "keep_for": float(retention.keep_for), "keep_best": [(rule.metric, rule.mode, rule.count) for rule in best]})
        self._closed = False
        self._state = _native.TreeState()
        self._owners: list[Any] = []  # of the arrays that an overlapped save may still read
        self._notifier = Notifier(self._native)
        self._committing: list[Future] = []
        self._failure: Error | None = None  # that a close has read, which then ran out of time
        _open.add(self)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except Error as second:
            logger.warning("closing after %r: %s", error, second)

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._pid != os.getpid():
            return
        warnings.warn("a tidemark.Checkpointer was not closed", ResourceWarning, stacklevel=1, source=self)
        try:
            self.close()
        except Error as error:
            logger.warning("closing: %s", error)

    def _require(self) -> Any:
        if self._closed:
            raise FailedPreconditionError("the checkpointer is closed")
        if self._pid != os.getpid():
            raise FailedPreconditionError("the checkpointer belongs to the process that forked this one")
        return self._native

    def should_save(self, step: int) -> bool:
        """Whether the options ask for a save at this step. Without a rule: at every step."""
        return not self._closed and bool(self._native.should_save(step))

    def save(self, step: int, state: Any, *, metrics: dict[str, float] | None = None, user_metadata: str = "{}",
             overwrite: bool = False, staging: str | None = None) -> SaveHandle:
        """Saves the state as `step`. Returns when it is staged; with staging="overlapped" at once.

        With "overlapped" the arrays must not change until `wait_until_staged` returns. Values are read before this
        returns. `user_metadata` is a JSON object.

        UnsupportedTypeError: the state has something that cannot be stored. AlreadyExistsError: the step is there, and
        `overwrite` is off. ResourceExhaustedError: no memory.
        """
        native = self._require()
        tree = Tree(state, writable=False)
        values = tree.entries_of_values()
        self._state.await_staging()
        self._state.set_entries(tree.arrays, values)
        self._owners = tree.owners
        handle = native.save(step, self._state, metrics or {}, user_metadata, overwrite, staging)
        if handle.staged.ready():
            self._owners = []
        staged = self._notifier.add(Future(handle.staged, step))
        committed = self._notifier.add(Future(handle.committed, step))
        self._committing = [future for future in self._committing if not future.done()] + [committed]
        return SaveHandle(handle.step, handle.skipped, staged, committed)

    def wait_until_staged(self) -> None:
        """Blocks until no save reads the arrays any more. Its failure is that of the save's `staged`."""
        self._require()
        self._state.await_staging()
        self._owners = []

    def wait_until_committed(self) -> None:
        """Blocks until every save so far has ended. Raises the first failure that was not seen yet."""
        native = self._require()
        while not all(future.done() for future in self._committing):
            time.sleep(SLICE / 10)
        native.check_for_errors()

    def check_for_errors(self) -> None:
        """Raises the first failure of a save that was not seen yet. Never blocks."""
        self._native.check_for_errors()

    def resume(self, state: Any, *, healthy_only: bool = False, only: Sequence[str] = (),
               renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False, allow_unexpected: bool = False) -> int:
        """Fills the state from the highest committed step, and returns the step to train next: that step + 1.

        Returns 0, with the state untouched, in a fresh run. Stop the training on any exception. MismatchError: the
        checkpoint does not fit.
        """
        native = self._require()
        options = self._options(healthy_only, only, renames, allow_missing, allow_unexpected)
        return int(self._fill(state, options, lambda destination: native.resume(destination, options)))

    def restore(self, state: Any, step: int | str = "latest", *, healthy_only: bool = False, only: Sequence[str] = (),
                renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False,
                allow_unexpected: bool = False) -> RestoreReport:
        """Fills the state from a step: a number, "latest", "latest-healthy", "best:METRIC" or "tag:NAME".

        `only` are patterns of names with "*" and "?"; `renames` are (name in the checkpoint, name in the state). Arrays
        are written in place, and values are replaced. NotFoundError: there is no such step. MismatchError: it does not
        fit. DataLossError: it is damaged.
        """
        native = self._require()
        options = self._options(healthy_only, only, renames, allow_missing, allow_unexpected)
        report = self._fill(state, options, lambda destination: native.restore(destination, str(step), options))
        report["info"] = StepInfo(**report["info"])
        return RestoreReport(**report)

    @staticmethod
    def _options(healthy_only: bool, only: Sequence[str], renames: Sequence[tuple[str, str]], allow_missing: bool,
                 allow_unexpected: bool) -> dict[str, Any]:
        return {"healthy_only": healthy_only, "only": list(only), "renames": list(renames), "allow_missing": allow_missing,
                "allow_unexpected": allow_unexpected}

    def _fill(self, state: Any, options: dict[str, Any], restore: Any) -> Any:
        self._state.await_staging()
        tree = Tree(state, writable=True)
        destination = _native.TreeState()
        # Entries of the package itself may be there, whatever the state is.
        destination.set_destinations(tree.arrays, [*tree.values, *tree.objects], [*tree.objects, "$tidemark"])
        try:
            result = restore(destination)
        except InvalidArgumentError as error:
            found = self._differences(destination, options)
            if any(found.values()):
                raise MismatchError(str(error), **found) from None
            raise
        tree.assign(destination.take_received())
        return result

    @staticmethod
    def _differences(destination: Any, options: dict[str, Any]) -> dict[str, list[str]]:
        missing, unexpected, reshaped, retyped = destination.differences()
        if options["only"]:
            missing, reshaped, retyped = ([name for name in names if matches(name, options["only"])]
                                          for names in (missing, reshaped, retyped))
        return {"missing": [] if options["allow_missing"] else missing,
                "unexpected": [] if options["allow_unexpected"] or options["only"] else unexpected,
                "reshaped": reshaped, "retyped": retyped}

    def steps(self) -> list[StepInfo]:
        """All steps that the store knows, ascending, including deleted ones."""
        return [StepInfo(**info) for info in self._require().steps()]

    def latest_step(self) -> StepInfo:
        """The highest committed step. NotFoundError: there is none."""
        return StepInfo(**self._require().latest_step())

    def best_step(self, metric: str, mode: str = "") -> StepInfo:
        """The healthy step at which the metric was best. `mode`: "lowest" or "highest"; "": what the name says."""
        return StepInfo(**self._require().best_step(metric, mode))

    def report_metrics(self, step: int, evaluator: str, metrics: dict[str, float]) -> Future:
        """Records metrics of a saved step as "evaluator/name". Resolves when they survive power loss."""
        return self._notifier.add(Future(self._require().report_metrics(step, evaluator, metrics), step))

    def pin(self, step: int, note: str = "") -> None:
        """Keeps a step from being deleted by retention."""
        self._require().pin(step, note)

    def unpin(self, step: int) -> None:
        """Takes back `pin`, and removes the tags."""
        self._require().unpin(step)

    def tag(self, step: int, name: str) -> None:
        """Gives a step a name, and pins it."""
        self._require().tag(step, name)

    def untag(self, name: str) -> None:
        self._require().untag(name)

    def delete(self, step: int, reason: str = "deleted by the trainer") -> None:
        """Deletes a committed step. FailedPreconditionError: it stays under all rules."""
        self._require().delete(step, reason)

    def tidy(self) -> None:
        """Applies retention now, and blocks until that is done. Raises the first error; it is tried again later."""
        self._require().tidy()

    def close(self, timeout: float | None = None) -> None:
        """Waits for the saves and releases the store. Raises the first failure that was not seen yet.

        DeadlineExceededError after `timeout` seconds (None: `close_timeout`): the store stays locked, and close may be
        called again. Ctrl-C ends the wait in the same way.
        """
        if self._closed:
            return
        if self._pid != os.getpid():
            raise FailedPreconditionError("the checkpointer belongs to the process that forked this one")
        deadline = time.monotonic() + (self._close_timeout if timeout is None else timeout)
        while time.monotonic() < deadline and not all(future.done() for future in self._committing):
            time.sleep(SLICE / 10)
        # Failures are read before: that of a save that ran out of time has the type of a close that did.
        while self._has_failure():
            pass
        while True:
            try:
                self._native.close(min(SLICE, max(0.0, deadline - time.monotonic())))
                break
            except DeadlineExceededError:
                if time.monotonic() >= deadline:
                    raise
            except Error as error:
                self._keep(error)
                break
        self._finish()
        if self._failure is not None:
            raise self._failure

    def _has_failure(self) -> bool:
        try:
            self._native.check_for_errors()
        except Error as error:
            self._keep(error)
            return True
        return False

    def _keep(self, failure: Error) -> None:
        """The first failure is raised by close, and each further one is a warning."""
        if self._failure is None:
            self._failure = failure
        else:
            logger.warning("closing: %s", failure)

    def _finish(self) -> None:
        self._closed = True
        self._owners = []
        self._notifier.stop()
        _open.discard(self)


@atexit.register
def _close_all() -> None:
    """At the end of the interpreter: what is in flight is committed before the process goes."""
    for checkpointer in list(_open):
        if checkpointer._pid != os.getpid():
            continue
        try:
            checkpointer.close()
        except Error as error:
            logger.warning("closing at exit: %s", error)
