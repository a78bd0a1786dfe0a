"""Checkpointer: saves a state without stopping the training, and restores it."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from . import _native
from ._closing import close_after, left_running, opened
from ._consumers import SnapshotConsumers
from ._conversion import SavedDtypes
from ._devices import DeviceTensors, Streams
from ._evaluator import is_in
from ._futures import SLICE, Future, Notifier, SaveHandle, in_slices
from ._health import HealthMonitor
from ._observer import CheckpointObserver, logger
from ._options import (
    Retention, SaveQuestion, Tuning, left_out_by, mismatch, options_of, raise_interruption, restore_options, save_rule)
from ._progress import Progress, progress_function
from ._rank_calls import RankCalls
from ._ranks import Ranks, agreeing, options_of_ranks, ranks_or_none
from ._records import StepRecords
from ._statistics import Statistics, statistics
from ._step_info import RestoreReport, StepInfo, step_info
from ._tree import Tree, copy_of_containers
from .errors import (
    DeadlineExceededError, Error, FailedPreconditionError, InternalError, InvalidArgumentError, from_status)

T = TypeVar("T")


class Checkpointer(StepRecords, SnapshotConsumers, RankCalls):
    """Opens or creates the store at `path` and takes its lock. A context manager: leaving it closes.

    Every option has the name, the default and the range of the C++ library's CheckpointerOptions; times are in seconds.
    `save_timeout` and `close_timeout` may be `float("inf")`. `save_when` is called by `should_save`; if it raises, the step
    is to be saved, and a warning has the message. `saved_dtypes`: {pattern of names: "float16", "bfloat16", "float32" or
    "float64"}: floating-point arrays whose names match are stored in that dtype, rounded to nearest, and evaluators get
    them so; a restore of them needs `convert_dtypes`. The save converts them before it returns, in memory that it keeps.
    `observer` is told of commits, failures, deletions, evaluations and warnings. `ranks`: of a job of several processes, which
    all open the same store, alike; None: one process. Rank 0 holds the store.
    Use it from one thread at a time, except that the methods that name a step (`tag`, `pin`, `delete`, `report_metrics`)
    may run on any. In a forked child it cannot be used.

    AlreadyHeldError: another process holds the store. NotFoundError: there is none, and `create` is False. A store that an
    older version wrote is converted first; older versions cannot open it any more. With `ranks` an error of one rank is one
    of all. InvalidArgumentError: times or rules of saves differ between them. FailedPreconditionError: they are in
    different calls.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, save_interval_steps: int = 0,
                 save_on_steps: Sequence[int] = (), save_interval_seconds: float = 0.0,
                 save_when: Callable[[SaveQuestion], bool] | None = None, staging_bytes_max: int = 0,
                 when_full: str = "block", staging: str = "blocking", compression: str = "throughput", reuse: bool = True,
                 saved_dtypes: Mapping[str, str] | None = None, retention: Retention | None = None,
                 tuning: Tuning | None = None, save_timeout: float = float("inf"), close_timeout: float = 1800.0,
                 metrics_file: str | os.PathLike[str] = "", observer: CheckpointObserver | None = None,
                 ranks: Ranks | None = None) -> None:
        self.path = os.path.abspath(path)
        self._close_timeout = close_timeout
        self._pid = os.getpid()
        # A KeyboardInterrupt may come between any two of these lines. Whatever is there by then must close.
        self._closed = True  # until it is open
        self._opened = False
        self._notifier: Notifier | None = None
        self._failure_raised = False  # that of a close
        self._last_statistics: Statistics | None = None  # of a checkpointer that has given evaluations up
        self._owners: list[Any] = []  # of the arrays that an overlapped save may still read
        self._streams = Streams()
        self._on_devices: DeviceTensors | None = None  # those of them that are on devices
        self._saved_dtypes = SavedDtypes(saved_dtypes or {})
        self._monitors: list[HealthMonitor] = []
        self._evaluations = object()
        self._state = _native.TreeState()
        self._arrays = _native.ArrayList()  # of the last save: names and places
        options = {
            "directory": self.path, "create": create, "save_interval_steps": save_interval_steps,
            "save_on_steps": list(save_on_steps), "save_interval_seconds": float(save_interval_seconds),
            "save_when": save_rule(save_when), "staging_bytes_max": staging_bytes_max, "when_full": when_full,
            "staging": staging, "compression": compression, "reuse": reuse, "save_timeout": float(save_timeout),
            "close_timeout": float(close_timeout), "metrics_file": os.fspath(metrics_file),
            "ranks": options_of_ranks(ranks_or_none(ranks)), **options_of(retention or Retention(), tuning or Tuning())}
        self._save_rule, self._of_ranks = options["save_when"], options["ranks"]
        self._all_gather = None if self._of_ranks is None else self._of_ranks["all_gather"]
        self._functions = [self._save_rule, self._all_gather, options["keep"], *(rule[-1] for rule in options["keep_best"])]
        try:
            self._native = _native.Checkpointer(options)
        except Error:
            self._raise_interruptions()
            raise
        self._closed = False
        self._notifier = Notifier(self._native, observer)
        opened.add(self)
        self._notifier.start()
        self._opened = True  # the user has it

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            close_after(error, self, drain=None)

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._pid != os.getpid():
            return
        try:
            self.close()
        except Error as error:
            logger.warning("closing: %s", error)
        if self._opened:
            warnings.warn("a tidemark.Checkpointer was not closed", ResourceWarning, stacklevel=1, source=self)

    def _require(self) -> _native.Checkpointer:
        if self._closed:
            raise FailedPreconditionError("the checkpointer is closed")
        if self._pid != os.getpid():
            raise FailedPreconditionError("the checkpointer belongs to the process that forked this one")
        return self._native

    def should_save(self, step: int) -> bool:
        """Whether the options ask for a save at this step. Without a rule: at every step. With `ranks` rank 0 decides where a
        rule depends on the time or on a function; then all ranks must call it."""
        wanted = not self._closed and bool(self._native.should_save(step))
        self._raise_interruptions()
        return wanted

    def _raise_interruptions(self) -> None:
        raise_interruption(self._save_rule)
        raise_interruption(self._all_gather)

    def save(self, step: int, state: Any, *, metrics: dict[str, float] | None = None, user_metadata: str = "{}",
             overwrite: bool = False, staging: str | None = None) -> SaveHandle:
        """Saves the state as `step`. Returns when it is staged; with staging="overlapped" at once.

        With "overlapped" the arrays must not change until `wait_until_staged` returns. With "on_device" tensors on devices
        are copied there first: what the trainer's stream does later comes after that. If a device has no room for the
        copies, the save is "blocking", and the result's `staging` says so. Values are read before this returns.
        `user_metadata` is a JSON object.

        UnsupportedTypeError: the state has something that cannot be stored. AlreadyExistsError: the step is there, and
        `overwrite` is off. ResourceExhaustedError: no memory. InternalError: PyTorch could not copy a tensor on a device.

        With `ranks` all ranks save the step, each its own part; its metrics and `user_metadata` are rank 0's. `committed` is the
        same on all: the step, or AbortedError with the rank that failed, and why. A rank that could not begin the save gets its
        own error. One that rank 0 does not answer until its deadline gets an Error with the code "UNKNOWN". If `step` is no
        number, the others wait for their deadline.
        """
        native = self._require()
        with self._making(step):
            self._gather(state)
            handle = native.save(step, self._state, metrics or {}, user_metadata, overwrite, staging)
        return self._handle_of(handle)

    def evaluate(self, step: int, state: Any, *, metrics: dict[str, float] | None = None, user_metadata: str = "{}",
                 staging: str | None = None) -> SaveHandle:
        """Gives the evaluators a snapshot of the state as `step`, and saves nothing.

        `committed` of the result resolves when every evaluator has ended. The results are kept as the history of a step in
        the state "unsaved". Errors: those of `save`; AlreadyExistsError for every step that is committed or being saved.
        """
        native = self._require()
        self._gather(state)
        return self._handle_of(native.evaluate(step, self._state, metrics or {}, user_metadata, staging))

    def _gather(self, state: Any, converts: bool = True) -> None:
        """Has the native state refer to this one, and keeps the owners of its arrays. `converts`: to `saved_dtypes`."""
        tree = Tree(state, writable=False, before=self._arrays, has_ranks=self._of_ranks is not None)
        values = tree.entries_of_values()
        if tree.part and self._of_ranks is None:
            raise InvalidArgumentError(f"'{tree.part}' is a part of a tensor, and no other process would save the rest: give the "
                                       f"Checkpointer `ranks`")
        self._state.await_staging()
        # Before there can be a save that reads their memory. A conversion puts its copies in their places.
        if converts:
            self._saved_dtypes.convert(tree)
        self._owners = tree.owners
        self._on_devices = tree.on_devices(self._streams)
        self._state.set_entries(tree.arrays, values, self._on_devices)
        self._arrays = tree.arrays

    def _forget_arrays(self) -> None:
        """No save reads them any more."""
        self._owners = []
        if self._on_devices is not None:
            self._on_devices.release()

    def _handle_of(self, handle: _native.SaveHandle) -> SaveHandle:
        if handle.staged.ready():
            self._forget_arrays()
        staged = self._watched(Future(handle.staged, handle.step))
        committed = self._watched(Future(handle.committed, handle.step))
        return SaveHandle(handle.step, handle.skipped, handle.staging, staged, committed)

    def _watched(self, future: Future) -> Future:
        return future if self._notifier is None else self._notifier.add(future)

    def _save_and_close(self, step: int, state: Any, metrics: dict[str, float], user_metadata: str, overwrite: bool,
                        grace: float, left: float) -> tuple[Error | None, Error | None, str]:
        """For PreemptionGuard: the failures of the save and of the close, and a line about both."""
        native = self._require()
        with self._telling_ranks(native, lambda why: self._refuse_save(step, why)):
            self._gather(state)
            save, close, line = native.save_and_close(step, self._state, metrics, user_metadata, overwrite, grace, left)
        errors = [from_status(*status) if status[0] else None for status in (save, close)]
        if any(isinstance(error, DeadlineExceededError) for error in errors):
            left_running.append((native, self._state, self._owners))  # threads of the library may still use them
        else:
            self._forget_arrays()
        self._finish()
        return errors[0], errors[1], line

    def wait_until_evaluated(self, timeout: float | None = None) -> None:
        """Blocks until all evaluators have finished their snapshots, and the results are recorded. Ctrl-C ends the wait.

        DeadlineExceededError after `timeout` seconds; it names what still runs. None: no limit, also where an evaluator
        waits for the thread that called. FailedPreconditionError: an evaluator has called, which would wait for itself.
        """
        native = self._require()
        if is_in(self._evaluations):
            raise FailedPreconditionError("wait_until_evaluated was called by an evaluator, for which it would wait")
        in_slices(native.wait_until_evaluated, timeout)

    def wait_until_staged(self, entry: str | None = None) -> None:
        """Blocks until no save reads the arrays any more, or no longer that of the `entry`, for trainers that update a layer
        as soon as its gradient is there. A failure is that of the save's `staged`. NotFoundError: no such entry."""
        native = self._require()
        if entry is not None:
            native.wait_until_entry_staged(entry)
            return
        self._state.await_staging()
        self._forget_arrays()

    @contextlib.contextmanager
    def staged(self) -> Iterator[None]:
        """For the part of a step that changes the arrays: `with checkpointer.staged(): optimizer.step()`. Waits as
        `wait_until_staged` does before the block runs."""
        self.wait_until_staged()
        yield

    def wait_until_committed(self) -> None:
        """Blocks until every save so far has ended. Raises the first failure that was not seen yet."""
        native = self._require()
        while not native.all_committed():
            time.sleep(SLICE / 10)
        native.check_for_errors()

    def check_for_errors(self) -> None:
        """Raises the first failure of a save that was not seen yet. Never blocks."""
        if self._last_statistics is None:
            self._native.check_for_errors()

    def resume(self, state: Any, *, healthy_only: bool = False, only: Sequence[str] = (),
               renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False, allow_unexpected: bool = False,
               convert_dtypes: bool = False, accept: Callable[[StepInfo], bool] | None = None,
               evaluations_timeout: float = 300.0, device: Any = None, progress: Progress = False) -> int:
        """Fills the state from the highest committed step, and returns the step to train next: that step + 1. With `ranks` it is
        the same step on all of them.

        Returns 0, with the state untouched, in a fresh run. Stop the training on any exception. The options are those of
        `restore`. MismatchError: the checkpoint does not fit.
        """
        native = self._require()
        with self._telling_ranks(native, lambda why: native.refuse_restore(True, why)):
            options = restore_options(healthy_only, only, renames, allow_missing, allow_unexpected, accept,
                                      evaluations_timeout, progress_function(progress))
            return int(self._fill(Tree(state, writable=True, device=device), options, convert_dtypes,
                                  lambda destination: native.resume(destination, options)))

    def restore(self, state: Any, step: int | str = "latest", *, healthy_only: bool = False, only: Sequence[str] = (),
                renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False,
                allow_unexpected: bool = False, convert_dtypes: bool = False,
                accept: Callable[[StepInfo], bool] | None = None, evaluations_timeout: float = 300.0,
                device: Any = None, progress: Progress = False) -> RestoreReport:
        """Fills the state from a step: a number, "latest", "latest-healthy", "best:METRIC" or "tag:NAME".

        `only` are patterns of names with "*" and "?"; `renames` are (name in the checkpoint, name in the state). Arrays
        are written in place, and values are replaced. `accept` chooses among the steps: only those for which it returns
        true. `healthy_only` first waits for evaluations, at most `evaluations_timeout` seconds. `convert_dtypes`: an array
        may have another floating-point dtype than in the checkpoint; that takes memory for those that have.

        A tensor on the meta device, also a parameter or buffer of a module, is replaced by one in memory: on `device`, as
        PyTorch names it, by default the CPU. Tied ones stay tied, and an optimizer of the state gets the new parameters.
        If the restore fails, they stay as they were. So do buffers that are not persistent, with a warning: no
        checkpoint has them.

        `progress`: a function that is given a `RestoreProgress` when the first arrays have been read, then every 100 ms,
        and when all are; True: a line on stderr, if that is a terminal. What it raises, and a KeyboardInterrupt meanwhile,
        ends the restore: arrays may then hold parts of the step, and values have not changed.

        NotFoundError: there is no such step. MismatchError: it does not fit. DataLossError: it is damaged.
        InternalError: `accept` or `progress` raised.

        With `ranks` all ranks call this alike, and all get the same step, or each gets an error. AbortedError: another rank could
        not set its values. After an error of another rank this one's arrays and values may hold the step, or another one. What
        chooses the step is rank 0's: `step`, `accept` and `healthy_only`. Entries that this rank's state lacks are left out. A
        tensor is read from whatever ranks have its elements, and any other value from the lowest rank that saved it, so the
        names of values that differ between ranks have the rank in them. The number of ranks may be another than in the save.
        If it is the same, a rank whose state has just the entries that it saved reads its own part of the step alone.
        """
        native = self._require()
        with self._telling_ranks(native, lambda why: native.refuse_restore(False, why)):
            options = restore_options(healthy_only, only, renames, allow_missing, allow_unexpected, accept,
                                      evaluations_timeout, progress_function(progress))
            report = self._fill(Tree(state, writable=True, device=device), options, convert_dtypes,
                                lambda destination: native.restore(destination, str(step), options))
        report["info"] = step_info(report["info"])
        return RestoreReport(**report)

    def load(self, step: int | str = "latest", *, like: T, healthy_only: bool = False, only: Sequence[str] = (),
             renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False, allow_unexpected: bool = False,
             convert_dtypes: bool = False, accept: Callable[[StepInfo], bool] | None = None,
             evaluations_timeout: float = 300.0, device: Any = None, progress: Progress = False) -> T:
        """A new state with the structure of `like`, filled from a step. Options and errors are those of `restore`.

        Containers, arrays and values are new, and those of `like` do not change. An array has the shape, the dtype and the
        device of the one in `like`; of a tensor on the meta device only shape and dtype count, and `device` says where the new
        one lies. What the options leave out is the same object as in `like`. Modules, optimizers, generators and other
        objects with state cannot be made anew: they are in both states, and are restored in place.
        """
        native = self._require()
        with self._telling_ranks(native, lambda why: native.refuse_restore(False, why)):
            options = restore_options(healthy_only, only, renames, allow_missing, allow_unexpected, accept,
                                      evaluations_timeout, progress_function(progress))
            made = copy_of_containers(like)
            self._fill(Tree(made, writable=True, device=device, of_all=True), options, convert_dtypes,
                       lambda destination: native.restore(destination, str(step), options))
        return made  # type: ignore[no-any-return]

    def _fill(self, tree: Tree, options: dict[str, Any], convert_dtypes: bool, restore: Any) -> Any:
        self._state.await_staging()
        # By the native state a later `_save_and_close` knows that the training went back. Another one is there for comparison.
        destination = self._state if self._state.may_be_in(tree.arrays) else _native.TreeState()
        # Entries of the package itself may be there, whatever the state is.
        on_devices = tree.on_devices(None)
        destination.set_destinations(tree.arrays, [*tree.values, *tree.objects], [*tree.objects, "$tidemark"],
                                     convert_dtypes, on_devices, tree.boxes_of_optimizers())
        if self._of_ranks is not None:
            options["allow_unexpected"] = True  # other ranks have those
        try:
            result = restore(destination)
        except Error as error:
            raise_interruption(options["accept"])
            raise_interruption(options["progress"])
            self._raise_interruptions()
            if isinstance(error, InvalidArgumentError):
                raise mismatch(error, destination, options) from None
            raise
        finally:
            if options["progress"] is not None:
                options["progress"].end()
            if on_devices is not None:
                on_devices.release()
        if result:  # not of a fresh run
            with agreeing(self._of_ranks):
                tree.assign(destination.take_received(), destination.take_converted(),
                            left_out_by(destination, options["only"]))
        return result

    def set_save_interval(self, steps: int) -> None:
        """Replaces `save_interval_steps` from now on. 0: no such rule."""
        self._require().set_save_interval(steps)

    def prepare(self, state: Any) -> None:
        """Takes the memory that a save of the state needs, so that the first save is as fast as later ones."""
        native = self._require()
        self._gather(state)
        native.prepare(self._state)
        self._forget_arrays()

    def statistics(self) -> Statistics:
        """Counters and durations since the checkpointer was opened. May be called after `close`, and on any thread."""
        return self._last_statistics or statistics(self._native.statistics())

    def close(self, timeout: float | None = None, *, drain: float | None = None) -> None:
        """Waits for the saves and the evaluators, and releases the store. Raises the first failure that was not seen yet.

        DeadlineExceededError after `timeout` seconds (None: `close_timeout`): the store stays locked, and close may be
        called again. Ctrl-C ends the wait in the same way.

        `drain`: how many seconds evaluations may take, from this call; None: as long as `timeout`. Those that have not
        ended then are given up, with a warning, and the store is released. Those that wait are recorded as skipped. One
        that runs goes on until the process ends, and its result is lost: a future of `evaluate` that waits for it raises
        CancelledError. If a save that has failed by its `save_timeout` still hangs in the disk, the store stays locked as long.
        """
        if not self._closed:
            self._close(self._close_timeout if timeout is None else timeout, drain)
        # Those of a close that was interrupted, too.
        failures = self._native.failures()
        if not failures or self._failure_raised:
            return
        for _, message in failures[1:]:
            logger.warning("closing: %s", message)
        error = from_status(*failures[0])
        self._failure_raised = True
        raise error

    def _close(self, timeout: float, drain: float | None) -> None:
        if self._pid != os.getpid():
            raise FailedPreconditionError("the checkpointer belongs to the process that forked this one")
        begun = time.monotonic()
        deadline = begun + timeout
        if self._last_statistics is None:
            while time.monotonic() < deadline and not self._native.all_committed():
                time.sleep(SLICE / 10)
            # Failures are read before: that of a save that ran out of time has the type of a close that did.
            self._native.gather_failures()
            if drain is not None and begun + drain < deadline and self._native.all_committed():
                self._wait_for_evaluators(begun + drain)
        while self._last_statistics is None:
            try:
                self._native.close(min(SLICE, max(0.0, deadline - time.monotonic())))
                break
            except DeadlineExceededError:
                if time.monotonic() >= deadline:
                    raise
        if self._last_statistics is not None:
            # Evaluators may hold snapshots of it, and a save that has failed by its deadline may still read the arrays.
            left_running.append((self._native, self._state, self._owners))
            self._native.release()
        else:
            self._forget_arrays()
        self._finish()

    def _wait_for_evaluators(self, deadline: float) -> None:
        """Until the deadline. If any has not ended then, `_last_statistics` is set, and `_close` gives them up."""
        native = self._native

        def wait(seconds: float) -> None:
            try:
                native.wait_until_evaluated(seconds)
            except DeadlineExceededError:
                raise
            except Error:  # an earlier close ran out of time, or was interrupted: only another one can wait now
                native.close(seconds)

        # A save is committed a moment before its thread has done with it, and with the store. One may also hang.
        patience = max(deadline, time.monotonic()) + 1.0
        while True:
            try:
                return in_slices(wait, max(0.0, deadline - time.monotonic()))
            except DeadlineExceededError as error:
                if not error.save_runs or time.monotonic() >= patience:
                    logger.warning("closing without the evaluations that have not ended: %s", error)
                    break
            time.sleep(SLICE / 10)
        try:
            native.close(0.0)
        except DeadlineExceededError:
            pass
        self._last_statistics = self.statistics()

    def _finish(self) -> None:
        for function in self._functions:
            if function is not None:
                function.forget()
        self._owners = []
        self._on_devices = None  # not released: a save in `left_running` may still read the tensors
        if self._notifier is not None:
            self._notifier.stop()
        opened.discard(self)
        self._closed = True  # the last: a close that is interrupted before can be repeated
