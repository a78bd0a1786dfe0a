"""What lasts for one call of `fit`."""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
from types import FrameType
from typing import Any

import keras

from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.closing import close_owned, close_owned_after, opened_by_training
from .._checkpointer.futures import SaveHandle
from .._preemption.guard import PreemptionReport
from .._preemption.training import Run, TrainingGuard
from ..errors import FailedPreconditionError

_PAUSE_MAX = 0.5  # seconds: how late a wait for a commit sees a signal


class Fit:
    """One call of `fit`: its store, its guard if it has preemption, and how far the training is. Keras tells no callback of an
    exception, so the store may stay open after the call. Belongs to the thread of `fit`.
    """

    def __init__(self, guard: TrainingGuard | None) -> None:
        self._guard = guard
        self._checkpointer: Checkpointer | None = None
        self.report: PreemptionReport | None = None  # of the last save, if a signal has ended the call
        self.epoch = 0  # that goes on
        self.has_trained = False
        self.last_batch = -1  # in its epoch
        self.batches = 0  # since the model was made
        self.batches_since_save = 0
        self.has_warned = False  # of a metric that keep_best needs
        self._part_of_epoch: int | None = None  # the step that was restored, if it is from the middle of an epoch
        self._offset: int | None = None  # from the number of an epoch or batch to that of its step
        self._saved: tuple[int, int] | None = None  # the step of the last save, and the epoch that follows it

    def open(self, checkpointer: Checkpointer) -> None:
        self._checkpointer = checkpointer
        opened_by_training(checkpointer)

    @property
    def checkpointer(self) -> Checkpointer:
        """FailedPreconditionError: it is closed."""
        if self._checkpointer is None:
            raise not_running()
        return self._checkpointer

    @property
    def is_preempted(self) -> bool:
        return self._guard is not None and self._checkpointer is not None and self._guard.preempted

    def count(self, batch: int) -> None:
        """A batch has ended. With `steps_per_execution` Keras tells of the last one of several."""
        if batch <= self.last_batch:
            self.last_batch = -1  # a new epoch
        self.batches += batch - self.last_batch
        self.batches_since_save += batch - self.last_batch
        self.last_batch = batch

    def step_of(self, number: int) -> int:
        """The step of an epoch, or of so many batches. If the store has that one or a later one when this is called first, the
        numbers go on after its highest."""
        if self._offset is None:
            latest = max((info.step for info in self.checkpointer.steps()), default=-1)
            self._offset = 0 if number > latest else latest + 1 - number
        return number + self._offset

    def replaces(self, step: int) -> None:
        """The epoch that begins the call is saved as this step, which has a part of it."""
        self._part_of_epoch, self._offset = step, step - self.epoch

    def save(self, step: int, next_epoch: int, state: dict[str, Any], metrics: dict[str, float]) -> SaveHandle | None:
        """None: nothing was saved. A signal has ended a wait for memory or for an evaluator, or there was no room and `when_full`
        is "skip"."""
        options: dict[str, Any] = {"metrics": metrics, "staging": "blocking", "overwrite": step == self._part_of_epoch}
        save = (self.checkpointer.save(step, state, **options) if self._guard is None else
                self._guard.save(self.checkpointer, step, state, **options))
        if save is None or save.skipped:
            return None
        self._saved = step, next_epoch
        return save

    def wait_for(self, save: SaveHandle) -> None:
        """Until it is committed. Raises its failure. A signal ends the wait, which `save_last` then goes on with."""
        while not self.is_preempted and not save.committed.done():
            with contextlib.suppress(concurrent.futures.TimeoutError):
                save.committed.result(_PAUSE_MAX)
        if not self.is_preempted:
            save.committed.result()

    def wait_until_committed(self) -> None:
        """Every save so far, unless the store is closed. Raises the first failure."""
        if self._checkpointer is not None:
            self._checkpointer.wait_until_committed()

    def save_last(self, step: int, next_epoch: int, state: dict[str, Any], metrics: dict[str, float], user_metadata: str) -> None:
        """For a signal that has come: saves within its time, and closes the store. A part of an epoch is replaced even if a save
        of the whole one has begun, because that may fail, and the part be taken for it."""
        assert self._guard is not None
        self.report = self._guard.save_and_close(self.checkpointer, step, state, metrics=metrics, user_metadata=user_metadata,
                                                 overwrite=step == self._part_of_epoch or (step, next_epoch) != self._saved)

    def end(self, drain: float | None) -> None:
        """Closes the store, and ends the guard. drain: as for `Checkpointer.close`. Raises the first failure of a save.
        SystemExit: a signal has come."""
        guard, exits = self._guard, False
        try:
            if self._checkpointer is not None:
                close_owned(self, *((drain, None) if guard is None else guard.wait(self._checkpointer, drain)))
            exits = True
        except BaseException as error:
            close_owned_after(error, self)
            raise
        finally:
            self.end_guard(exits)
        if guard is not None and guard.preempted:
            raise SystemExit(TrainingGuard.exit_code(self.report))

    def close(self) -> None:
        """As `end`, for a call of the user: a signal that has come is no SystemExit."""
        try:
            close_owned(self, None)
        finally:
            self.end_guard()

    def end_guard(self, exits: bool = False) -> None:
        """exits: as for `TrainingGuard.end`."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.end(exits)


def not_running() -> FailedPreconditionError:
    """The callback was asked to save."""
    return FailedPreconditionError("the callback saves only while `fit` runs")


def running_fit() -> tuple[Run, list[Any]]:
    """The call of `fit` that calls the callback, and its callbacks. FailedPreconditionError: it is another loop."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "fit" and str(frame.f_globals.get("__name__")).startswith("keras."):
            callbacks = frame.f_locals.get("callbacks")
            if isinstance(callbacks, keras.callbacks.CallbackList):
                return Run(frame.f_code, "callbacks", callbacks), callbacks.callbacks
        frame = frame.f_back
    raise FailedPreconditionError("preemption is only for `fit` of Keras: around a loop of your own, use a "
                                  "tidemark.PreemptionGuard and its save_and_close")
