"""Checkpointer: saves a state without stopping the training, and restores it."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import _native
from .._arguments import (
    Kind, flag, integer, integers, json_text, path_or_empty, seconds, seconds_or_none, size, text, text_or_none, typed)
from .._arguments import metrics as checked
from .._arguments import path as path_of
from .._choices import Compression, Staging, WhenFull
from .._state.conversion import SavedDtypes
from .._state.devices import DeviceTensors, Streams
from .._state.optimizers import WAY_OUT_OF_STATE_DICT
from .._state.tree import Tree, naming
from ..errors import (
    AlreadyHeldError, CancelledError, DeadlineExceededError, Error, FailedPreconditionError, InvalidArgumentError, from_status,
    held_elsewhere)
from .closing import close_after, close_elsewhere, left_running, opened
from .consumers import SnapshotConsumers
from .evaluator import is_in
from .futures import SLICE, Future, Notifier, SaveHandle, in_slices
from .health import HealthMonitor
from .observer import CheckpointObserver, logger, observer_or_none
from .options import Retention, SaveQuestion, Tuning, options_of, raise_interruption, save_rule
from .ranks import Ranks, options_of_ranks, ranks_or_none
from .records import StepRecords
from .restores import Restores
from .sought_metrics import SoughtMetrics
from .statistics import Statistics, statistics
from .waits import wait_for_saves

OPTIONS: dict[str, Kind] = {
    "create": flag, "save_interval_steps": integer, "save_on_steps": integers, "save_interval_seconds": seconds,
    "staging_bytes_max": size, "when_full": text, "staging": text, "compression": text, "reuse": flag, "save_timeout": seconds,
    "close_timeout": seconds, "metrics_file": path_or_empty}


class Checkpointer(Restores, StepRecords, SnapshotConsumers):
    """Opens or creates the store at `path` and takes its lock. A path may begin with "~"; an address such as "s3://bucket/run" is
    refused. A context manager: leaving it closes. An exception that leaves it waits for the saves in flight, but gives up
    evaluations, as `close(drain=0)` does; failures are then warnings.

    Use it from one thread at a time, except that the methods that name a step (`tag`, `pin`, `delete`, `report_metrics`)
    may run on any. In a forked child it cannot be used.

    Each option with its default; times are in seconds:

    create=True: False: without a store there is a NotFoundError, so that a mistyped path begins no fresh run.
    save_interval_steps=0, save_on_steps=(), save_interval_seconds=0.0, save_when=None: `should_save` is True if one of them
        says so: at steps divisible by the first; at these steps; so long after the last save; where the function, which is
        given a SaveQuestion, returns true. 0, () and None: no such rule; without any: at every step. If `save_when`
        raises, the step is to be saved, and a warning has the message.
    staging_bytes_max=0: bytes of host memory that copies of the state may take, at most. 0: twice the largest state, and one
        state for each snapshot that evaluators may hold, but no more than the machine has.
    when_full="block": what `save` does without room: "block" waits, "skip" saves nothing, "fail" is ResourceExhaustedError.
    staging="blocking": when `save` returns: "blocking": when the state is copied; "overlapped": at once, and the arrays must
        not change until `wait_until_staged`; "on_device": when tensors on devices are copied there, see `save`.
    compression="auto": "throughput" compresses as long as the disk is busy anyway, "space" always, "none" never. "auto" is
        as "space" until half the time to the next save has passed, as the last ones tell, or until the commit is waited for
        (`await`, `result`, `exception`, `wait_until_committed` or `close`), then as "throughput"; so is the first save.
    reuse=True: what is as in the last committed step is not written again: the new step refers to that step's file.
        With ranks, what is as in an earlier step that was written whole; the first save of a run writes everything.
    saved_dtypes=None: {pattern of names: "float16", "bfloat16", "float32" or "float64"}: floating-point arrays whose names
        match are stored in that dtype, rounded to nearest, and evaluators get them so; a restore of them needs
        `convert_dtypes`. The save converts them before it returns, in memory that it keeps. A warning names a pattern that
        matches no such array.
    retention=None: which steps stay: a `Retention`; None: all.
    tuning=None: a `Tuning`, for what a run rarely needs.
    save_timeout=inf: from `save` to the commit, more than 0; then `committed` is a DeadlineExceededError.
    close_timeout=1800.0: how long `close` waits for saves and evaluators, more than 0, also inf.
    metrics_file="": a file for the statistics in the text format of Prometheus, which is replaced after each save; "": none.
    observer=None: a CheckpointObserver, which is told of commits, failures, deletions, evaluations and warnings.
    ranks=None: a `Ranks`, of a job of several processes, which all open the same store, alike. Rank 0 holds the store.

    InvalidArgumentError: an option is out of its range.

    AlreadyHeldError: another process holds the store. NotFoundError: there is none, and `create` is False. A store that an
    older version wrote is converted first; older versions cannot open it any more. With `ranks` an error of one rank is one
    of all. InvalidArgumentError: times or rules of saves differ between them. FailedPreconditionError: they are in
    different calls.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, save_interval_steps: int = 0,
                 save_on_steps: Sequence[int] = (), save_interval_seconds: float = 0.0,
                 save_when: Callable[[SaveQuestion], bool] | None = None, staging_bytes_max: int = 0,
                 when_full: WhenFull = "block", staging: Staging = "blocking", compression: Compression = "auto",
                 reuse: bool = True, saved_dtypes: Mapping[str, str] | None = None, retention: Retention | None = None,
                 tuning: Tuning | None = None, save_timeout: float = float("inf"), close_timeout: float = 1800.0,
                 metrics_file: str | os.PathLike[str] = "", observer: CheckpointObserver | None = None,
                 ranks: Ranks | None = None) -> None:
        given, observer = typed(OPTIONS, locals()), observer_or_none(observer)
        self.path = os.path.abspath(path_of(path, "path"))
        self._close_timeout: float = given["close_timeout"]
        self._pid = os.getpid()
        # A KeyboardInterrupt may come between any two of these lines. Whatever is there by then must close.
        self._closed = True  # until it is open
        self._opened = False
        self._notifier: Notifier | None = None
        self._failure_raised = False  # that of a close
        self._out_of_time = False  # a close
        self._last_statistics: Statistics | None = None  # of a checkpointer that has given evaluations up
        self._owners: list[Any] = []  # of the arrays that an overlapped save may still read
        self._streams = Streams()
        self._on_devices: DeviceTensors | None = None  # those of them that are on devices
        self._saved_dtypes = SavedDtypes(saved_dtypes or {})
        self._monitors: list[HealthMonitor] = []
        self._sought_metrics = SoughtMetrics()
        self._warned_of_state_dict = False
        self._averages: set[str] = set()
        self._averages_passed: set[str] = set()
        self._evaluations = object()
        self._state = _native.TreeState()
        self._arrays = _native.ArrayList()  # of the last save: names and places
        options = {
            **given, "directory": self.path, "save_when": save_rule(save_when), "ranks": options_of_ranks(ranks_or_none(ranks)),
            **options_of(retention, tuning)}
        self._save_rule, self._of_ranks = options["save_when"], options["ranks"]
        self._all_gather = None if self._of_ranks is None else self._of_ranks["all_gather"]
        self._functions = [self._save_rule, self._all_gather, options["keep"], *(rule[-1] for rule in options["keep_best"])]
        try:
            self._native = _native.Checkpointer(options)
        except Error as error:
            self._raise_interruptions()
            if isinstance(error, AlreadyHeldError):
                raise held_elsewhere(error) from None
            raise
        self._closed = False
        self._notifier = Notifier(self._native, observer)
        opened.add(self)
        self._notifier.start()
        self._opened = True  # the user has it

    def __enter__(self) -> Checkpointer:
        self._require()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):  # sys.exit(), at the end of a program
            self.close()
        else:
            close_after(error, self)

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._pid != os.getpid():
            return
        try:
            # A close would wait for the evaluator that has dropped the last reference, or as long again as one that ran out of
            # time.
            if self._out_of_time or is_in(self._evaluations):
                close_elsewhere(self)
            else:
                self.close()
        except Error as error:
            logger.warning("closing: %s", error)
        if self._opened:
            warnings.warn("a tidemark.Checkpointer was not closed", ResourceWarning, stacklevel=1, source=self)

    def _require(self) -> _native.Checkpointer:
        if self._closed:
            raise FailedPreconditionError("the checkpointer is closed")
        self._refuse_child()
        return self._native

    def _refuse_child(self) -> None:
        if self._pid != os.getpid():
            raise FailedPreconditionError("the checkpointer belongs to the process that forked this one")

    def should_save(self, step: int) -> bool:
        """Whether the options ask for a save at this step. Without a rule: at every step. With `ranks` rank 0 decides where a
        rule depends on the time or on a function; then all ranks must call it. FailedPreconditionError: the checkpointer is
        closed: a training that goes on would save nothing."""
        wanted = bool(self._require().should_save(integer(step, "step")))
        self._raise_interruptions()
        return wanted

    def _raise_interruptions(self) -> None:
        raise_interruption(self._save_rule)
        raise_interruption(self._all_gather)

    def save(self, step: int, state: Any, *, metrics: dict[str, float] | None = None,
             user_metadata: str | Mapping[str, Any] = "{}", overwrite: bool = False,
             staging: Staging | None = None) -> SaveHandle:
        """Saves the state as `step`. Returns when it is staged; with staging="overlapped" at once.

        With "overlapped" the arrays must not change until `wait_until_staged` returns. With "on_device" tensors on devices
        are copied there first: what the trainer's stream does later comes after that. If a device has no room for the
        copies, the save is "blocking", and the result's `staging` says so. Values are read before this returns.
        `user_metadata` is a JSON object: a dict of what JSON can hold, or a text. Records of the step have it as a text.

        UnsupportedTypeError: the state has something that cannot be stored. AlreadyExistsError: the step is there, and
        `overwrite` is off. InvalidArgumentError: `user_metadata` is no JSON object, or has something that JSON cannot hold; the
        message has the key. ResourceExhaustedError: no memory. InternalError: PyTorch could not copy a tensor on a device.
        Ctrl-C ends a wait for memory or for an evaluator (`when_lagging="block"`); nothing was saved then.

        With `ranks` all ranks save the step, each its own part; its metrics and `user_metadata` are rank 0's. `committed` is the
        same on all: the step, or AbortedError with the rank that failed, and why. A rank that could not begin the save gets its
        own error. One that rank 0 does not answer until its deadline gets an Error with the code "UNKNOWN". If `step` is no
        number, the others wait for their deadline.
        """
        return self._save(step, state, metrics, user_metadata, overwrite, staging)

    def _save_unless(self, is_cancelled: Callable[[], bool], step: int, state: Any, *, metrics: dict[str, float] | None = None,
                     user_metadata: str | Mapping[str, Any] = "{}", overwrite: bool = False,
                     staging: Staging | None = None) -> SaveHandle | None:
        """As `save`. None: is_cancelled() has ended a wait for memory or for an evaluator, and nothing was saved. With ranks it
        is not asked: all of them save the step, or none does."""
        if self._of_ranks is not None:
            return self.save(step, state, metrics=metrics, user_metadata=user_metadata, overwrite=overwrite, staging=staging)
        try:
            return self._save(step, state, metrics, user_metadata, overwrite, staging, is_cancelled)
        except CancelledError:
            if is_cancelled():
                return None
            raise

    def _save(self, step: int, state: Any, metrics: dict[str, float] | None, user_metadata: str | Mapping[str, Any],
              overwrite: bool, staging: Staging | None, is_cancelled: Callable[[], bool] | None = None) -> SaveHandle:
        native, step = self._require(), integer(step, "step")
        with self._making(step):
            given = checked(metrics), json_text(user_metadata, "user_metadata")
            self._sought_metrics.note(given[0])
            how = flag(overwrite, "overwrite"), text_or_none(staging, "staging")
            with self._gathered(state):
                handle = native.save(step, self._state, *given, *how, is_cancelled)
        return self._handle_of(handle)

    def evaluate(self, step: int, state: Any, *, metrics: dict[str, float] | None = None,
                 user_metadata: str | Mapping[str, Any] = "{}", staging: Staging | None = None) -> SaveHandle:
        """Gives the evaluators a snapshot of the state as `step`, and saves nothing.

        `committed` of the result resolves when every evaluator has ended. The results are kept as the history of a step in
        the state "unsaved". `user_metadata` as for `save`. Errors: those of `save`; AlreadyExistsError for
        every step that is committed or being saved.
        """
        native, step = self._require(), integer(step, "step")
        given = checked(metrics), json_text(user_metadata, "user_metadata"), text_or_none(staging, "staging")
        self._sought_metrics.note(given[0])
        with self._gathered(state):
            handle = native.evaluate(step, self._state, *given)
        return self._handle_of(handle)

    @contextlib.contextmanager
    def _gathered(self, state: Any) -> Iterator[None]:
        """For a native call that reads the state. If it raises, nothing reads the arrays, and they are not kept alive."""
        tree = self._gather(state)
        try:
            with naming(tree):
                yield
        except BaseException:
            self._state.await_staging()
            self._forget_arrays()
            raise

    def _gather(self, state: Any, converts: bool = True) -> Tree:
        """Has the native state refer to this one, and keeps the owners of its arrays. `converts`: to `saved_dtypes`."""
        tree = Tree(state, writable=False, before=self._arrays, has_ranks=self._of_ranks is not None)
        values = tree.entries_of_values()
        if tree.part and self._of_ranks is None:
            raise InvalidArgumentError(f"'{tree.part}' is a part of a tensor, and no other process would save the rest: give the "
                                       f"Checkpointer `ranks`")
        if tree.state_dict and not self._warned_of_state_dict:
            self._warned_of_state_dict = True
            logger.warning("'%s' is the state_dict() of an optimizer, and a fresh one has other entries, so a restart could not "
                           "resume: %s", tree.state_dict, WAY_OUT_OF_STATE_DICT)
        self._state.await_staging()
        # Before there can be a save that reads their memory. A conversion puts its copies in their places.
        try:
            if converts:
                self._saved_dtypes.convert(tree)
            self._owners = tree.owners
            self._on_devices = tree.on_devices(self._streams)
            self._state.set_entries(tree.arrays, values, self._on_devices)
        except BaseException:
            self._forget_arrays()
            raise
        self._arrays = tree.arrays
        return tree

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

    def _save_and_close(self, step: int, state: Any, metrics: Mapping[str, float] | None,
                        user_metadata: str | Mapping[str, Any], overwrite: bool, grace: float,
                        left: float) -> tuple[Error | None, Error | None, str]:
        """For PreemptionGuard: the failures of the save and of the close, and a line about both."""
        native = self._require()
        deadline = time.monotonic() + left
        with self._telling_ranks(native, lambda why: self._refuse_save(step, why)):
            given = checked(metrics), json_text(user_metadata, "user_metadata"), flag(overwrite, "overwrite")
            with self._gathered(state):
                save, close, line = native.save_and_close(step, self._state, *given, grace, left)
        errors = [from_status(*status) if status[0] else None for status in (save, close)]
        if any(isinstance(error, DeadlineExceededError) for error in errors):
            left_running.append((native, self._state, self._owners))  # threads of the library may still use them
        else:
            self._forget_arrays()
        self._finish(deadline)
        return errors[0], errors[1], line

    def wait_until_evaluated(self, timeout: float | None = None) -> None:
        """Blocks until all evaluators have finished their snapshots, and the results are recorded. Ctrl-C ends the wait.

        DeadlineExceededError after `timeout` seconds; it names what still runs. None: no limit, also where an evaluator
        waits for the thread that called. FailedPreconditionError: an evaluator has called, which would wait for itself.
        """
        in_slices(self._require().wait_until_evaluated, seconds_or_none(timeout, "timeout"))

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
        wait_for_saves(self)
        native.check_for_errors()

    def check_for_errors(self) -> None:
        """Raises the first failure of a save that was not seen yet. Never blocks. After `close`, which raises the first and
        logs the others, it does nothing."""
        self._refuse_child()
        if self._last_statistics is None:
            self._native.check_for_errors()

    def set_save_interval(self, steps: int) -> None:
        """Replaces `save_interval_steps` from now on, until the checkpointer is closed, for example while the training is
        unstable. 0: no such rule. On any thread. InvalidArgumentError: less than 0."""
        self._require().set_save_interval(integer(steps, "steps"))

    def prepare(self, state: Any, *, in_background: bool = False) -> None:
        """Takes the memory that a save of the state needs, so that the first save is as fast as later ones. Saves nothing.

        `in_background`: a thread does most of that while the training goes on. `resume` has begun it for the state as it was;
        in a fresh run whose optimizer makes its state in the first step, call this after that step. Errors: those of `save`
        for a state. ResourceExhaustedError: there is too little memory."""
        native, in_background = self._require(), flag(in_background, "in_background")
        with self._gathered(state):
            native.prepare(self._state, in_background)
        self._forget_arrays()

    def statistics(self) -> Statistics:
        """Counters and durations since the checkpointer was opened. May be called after `close`, and on any thread.
        FailedPreconditionError: in a forked child."""
        self._refuse_child()
        return self._last_statistics or statistics(self._native.statistics())

    def close(self, timeout: float | None = None, *, drain: float | None = None) -> None:
        """Waits for the saves and the evaluators, and releases the store. Raises the first failure that was not seen yet.

        DeadlineExceededError after `timeout` seconds (None: `close_timeout`): the store stays locked, and close may be
        called again. Ctrl-C ends the wait in the same way. If the last reference is dropped instead, a thread goes on, for
        which the end of the process waits.

        `drain`: how many seconds evaluations may take, from this call; None: as long as `timeout`. Those that have not
        ended then are given up, with a warning, and the store is released. Those that wait are recorded as skipped. One
        that runs goes on until the process ends, and its result is lost: a future of `evaluate` that waits for it raises
        CancelledError. If a save that has failed by its `save_timeout` still hangs in the disk, the store stays locked as long.
        """
        timeout, drain = seconds_or_none(timeout, "timeout"), seconds_or_none(drain, "drain")
        if not self._closed:
            try:
                self._close(self._close_timeout if timeout is None else timeout, drain)
            except DeadlineExceededError:
                self._out_of_time = True
                raise
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
        self._refuse_child()
        begun = time.monotonic()
        deadline = begun + timeout
        if self._last_statistics is None:
            wait_for_saves(self, deadline)
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
        self._finish(deadline)

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

    def _finish(self, deadline: float) -> None:
        """`deadline`: until when observers and callbacks are waited for, and at least for a moment."""
        for function in self._functions:
            if function is not None:
                function.forget()
        self._owners = []
        self._on_devices = None  # not released: a save in `left_running` may still read the tensors
        if self._notifier is not None:
            self._notifier.stop(max(SLICE, deadline - time.monotonic()))
        opened.discard(self)
        self._closed = True  # the last: a close that is interrupted before can be repeated
