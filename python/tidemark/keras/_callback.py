"""The callback that saves while `fit` runs."""

from __future__ import annotations

import os
import warnings
from typing import Any

import keras
from keras.src.callbacks.monitor_callback import MonitorCallback

from .._arguments import flag, integer, path, size, text
from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.closing import close_earlier_training
from .._checkpointer.given_options import check_options, refused_by
from .._checkpointer.options import KeepBest, Retention
from .._checkpointer.progress import Progress, progress_function
from .._preemption.guard import PreemptionGuard, PreemptionReport
from .._preemption.training import Run, TrainingGuard, preemption_of
from .._state.rng import rng
from .._store.reader import open as open_step
from ..errors import InvalidArgumentError
from ._fit import Fit, not_running, running_fit
from ._variables import assign, buffer_of, state_of, stored_names, variables_of

_INSTEAD = refused_by("Keras", when="use save_freq", retention="use max_to_keep and keep_best",
                      ranks="one process trains and saves", staging="a save returns when the state is copied")
_PART_OF_EPOCH = '{"tidemark.keras": "part of an epoch"}'


class TidemarkCheckpoint(MonitorCallback):
    """Saves at the end of each epoch or after every `save_freq` batches, and goes on where a killed run was.

    The first ten arguments are those of keras.callbacks.OrbaxCheckpoint and have their meaning. A step is the number of
    the epoch, or of batches. If `fit` starts over in a store that has steps, the numbers go on after the highest.

    restore: fills the model, its optimizer, and the generators of Python and NumPy from the highest step when `fit`
    begins, and has it start with the next epoch; after a save in the middle of an epoch, with that epoch.
    progress: of this restore, as for `Checkpointer.restore`; None: a line on stderr if `verbose` is not 0.
    keep_best: keeps so many of the best steps by `monitor` besides the `max_to_keep` newest; a warning says if a step lacks
    this metric. options: those of `tidemark.Checkpointer` that are not about when to save and what to keep.

    preemption: True: SIGTERM ends `fit` with one last save, within 30 seconds; or a PreemptionGuard, for other signals and
    another time. `fit` then raises SystemExit, with the code 0 if the step is committed, else 1. If it ends after a batch, the
    next `fit` with restore=True begins that epoch anew, with the weights of that batch, and sees the data of the batches before
    it twice: Keras keeps its iterator over the data to itself, and lets a callback choose the first epoch, but no batch. If it
    ends in a validation or after an epoch, the next one begins with the next epoch. The second signal changes nothing. Not
    together with save_best_only or save_weights_only.

    To save averaged weights, load them with `load(..., ema=True)`. A failed save raises from a later call of the
    callback, at the latest at the end of `fit`. InvalidArgumentError: two variables have one path. AlreadyHeldError: another
    process has the store. With preemption: FailedPreconditionError, by `fit` with preemption=True: this is not the main thread,
    which alone notes signals; or by a loop that is not `fit` of Keras. InvalidArgumentError, by `fit`: another of its callbacks
    has preemption too.
    """

    best: float | None

    def __init__(self, directory: str | os.PathLike[str], monitor: str = "val_loss", verbose: int = 0,
                 save_best_only: bool = False, mode: str = "auto", save_freq: str | int = "epoch",
                 initial_value_threshold: float | None = None, max_to_keep: int | None = 1, save_on_background: bool = True,
                 save_weights_only: bool = False, *, restore: bool = False, keep_best: int = 0,
                 progress: Progress | None = None, preemption: bool | PreemptionGuard = False, **options: Any) -> None:
        super().__init__(text(monitor, "monitor"), mode, initial_value_threshold)
        if save_freq != "epoch" and (isinstance(save_freq, str) or integer(save_freq, "save_freq") < 1):
            raise InvalidArgumentError(f"save_freq is {save_freq!r}, neither 'epoch' nor a number of batches")
        for name, count in (("max_to_keep", max_to_keep), ("keep_best", keep_best)):
            if count is not None:
                size(count, name)
        for name, value in (("save_best_only", save_best_only), ("save_on_background", save_on_background),
                            ("save_weights_only", save_weights_only), ("restore", restore)):
            flag(value, name)
        if keep_best and max_to_keep is None:
            raise InvalidArgumentError("keep_best is without effect where max_to_keep is None: all steps are kept")
        if preemption_of(preemption) and (save_best_only or save_weights_only):
            raise InvalidArgumentError("preemption saves the whole training at a step that need not be the best: leave out "
                                       "save_best_only and save_weights_only, and use keep_best")
        check_options("TidemarkCheckpoint", options, _INSTEAD, own=TidemarkCheckpoint.__init__)
        self.directory = os.path.abspath(path(directory, "directory"))
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.save_on_background = save_on_background
        self.save_weights_only = save_weights_only
        self.restore = restore
        progress_function(progress)
        self._progress: Progress = bool(verbose) if progress is None else progress
        self.keep_best = keep_best
        self._preemption = preemption
        self._options = options
        self._fit: Fit | None = None  # that goes on, or was the last

    # Called by Keras.

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        close_earlier_training(self.directory)
        if self._fit is not None:
            self._fit.end_guard()
        self._fit = None
        run: Run | None = None
        if self._preemption:
            run, callbacks = running_fit()
            if sum(isinstance(one, TidemarkCheckpoint) and bool(one._preemption) for one in callbacks) > 1:
                raise InvalidArgumentError("two callbacks of this `fit` have preemption, and the first that saves after a signal "
                                           "ends it: give preemption to one of them")
        best = []
        if self.save_best_only or self.keep_best:
            self._set_monitor_op()
        if self.keep_best:
            best = [KeepBest(self.monitor, "lowest" if self.monitor_op is keras.ops.less else "highest", self.keep_best)]
        retention = Retention(max_to_keep=self.max_to_keep or 0, keep_best=best)
        self._fit = Fit(TrainingGuard(self._preemption, run) if self._preemption else None)
        try:
            self._fit.open(Checkpointer(self.directory, retention=retention, **self._options))
            if self.restore:
                self._restore(self._fit)
        except BaseException:
            self.close()
            raise
        optimizer = self.model.optimizer
        self._fit.batches = int(optimizer.iterations) if optimizer is not None else 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.model._initial_epoch = None  # `fit` has read it, and the next one would begin with it, too
        fit = self._running()
        fit.epoch = epoch
        if fit.is_preempted:
            if fit.has_trained:
                self._end(epoch - 1, epoch, None)
            fit.end(0.0)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        fit = self._running()
        fit.has_trained = True
        if self.save_freq != "epoch":
            fit.count(batch)
            if fit.batches_since_save >= int(self.save_freq):
                fit.batches_since_save = 0
                self._save(fit.batches, fit.epoch, logs, f"batch {batch}")
        # At the end of an epoch, the next one is to follow.
        if fit.is_preempted and batch + 1 != self.params.get("steps"):
            self._end(fit.epoch, fit.epoch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, epoch + 1, logs, f"epoch {epoch}")
        if self._running().is_preempted:
            self._end(epoch, epoch + 1, logs)

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        fit = self._fit  # None: this is of `evaluate`
        if fit is not None and fit.is_preempted:
            self._end(fit.epoch, fit.epoch + 1, None)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.model._initial_epoch = None  # of a `fit` without an epoch
        if self._fit is not None:
            self._fit.end(None)

    # For the user.

    def wait_until_finished(self) -> None:
        """Blocks until every save so far survives power loss. Raises the first failure."""
        if self._fit is not None:
            self._fit.wait_until_committed()

    def close(self) -> None:
        """Waits for the saves and releases the store. Raises the first failure that was not seen yet.

        `fit` calls it at its end. After an exception in `fit` the store stays open until this is called, until the next
        `fit` with the store, or until the process ends.
        """
        if self._fit is not None:
            self._fit.close()

    @property
    def preempted(self) -> PreemptionReport | None:
        """What the last save did, if a signal has ended the latest `fit`. None: no signal has, or nothing was to be saved."""
        return None if self._fit is None else self._fit.report

    def _running(self) -> Fit:
        if self._fit is None:
            raise not_running()
        return self._fit

    def _end(self, epoch: int, next_epoch: int, logs: dict[str, Any] | None) -> None:
        """For a signal: saves, and ends `fit`. The numbers of steps are those of `_save`."""
        fit, by_epochs = self._running(), self.save_freq == "epoch"
        step = fit.step_of(epoch if by_epochs else fit.batches)
        fit.save_last(step, next_epoch, self._state(next_epoch), _numbers(logs),
                      _PART_OF_EPOCH if next_epoch == epoch and by_epochs else "{}")
        fit.end(0.0)

    def _save(self, number: int, next_epoch: int, logs: dict[str, Any] | None, place: str) -> None:
        fit = self._running()
        fit.checkpointer.check_for_errors()
        logs, earlier = logs or {}, self.best
        if self.save_best_only:
            current = logs.get(self.monitor)
            if current is None:
                warnings.warn(f"Can save best model only with {self.monitor} available, skipping save at {place}.", stacklevel=2)
                return
            if not self._is_improvement(current, self.best):
                return
            self.best = float(current)  # the saved state has it
        # An evaluator of the store finds NAME/metric later.
        if self.keep_best and self.monitor not in logs and "/" not in self.monitor and not fit.has_warned:
            fit.has_warned = True
            warnings.warn(f"{place} has no {self.monitor}, but {sorted(logs)}: keep_best does not keep its step, nor others "
                          f"without {self.monitor}", stacklevel=2)
        step = fit.step_of(number)
        save = fit.save(step, next_epoch, self._state(next_epoch), _numbers(logs))
        if save is None:
            self.best = earlier
            return
        if self.verbose:
            print(f"\n{place}: saving step {step} to {self.directory}")
        if not self.save_on_background:
            fit.wait_for(save)

    def _state(self, next_epoch: int) -> dict[str, Any]:
        # On the backend jax, the property copies the state of the running epoch into the variables.
        state = state_of(self.model, self.save_weights_only)
        if not self.save_weights_only:
            best = None if self.best is None else float(self.best)
            state.update({"training.epoch": next_epoch, "training.best": best, "rng": rng()})
        return state

    def _restore(self, fit: Fit) -> None:
        if all(info.state != "committed" for info in fit.checkpointer.steps()):
            return
        with open_step(self.directory) as step:
            names = stored_names(step, variables_of(self.model, self.save_weights_only))
            found = step.info
        buffers = {name: buffer_of(variable) for name, variable in names.items()}
        state: dict[str, Any] = dict(buffers)
        if not self.save_weights_only:
            state.update({"training.epoch": 0, "training.best": None, "rng": rng()})
        fit.checkpointer.resume(state, progress=self._progress)
        for name, variable in names.items():
            assign(variable, buffers[name])
        if not self.save_weights_only:
            self.model._initial_epoch = fit.epoch = state["training.epoch"]
            if found.user_metadata == _PART_OF_EPOCH and self.save_freq == "epoch":
                fit.replaces(found.step)
            if state["training.best"] is not None:
                self.best = state["training.best"]


def _numbers(logs: dict[str, Any] | None) -> dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items()}
