"""Keras 3: a callback that saves a model while it trains, with the arguments of keras.callbacks.OrbaxCheckpoint.

    checkpoint = tidemark.keras.TidemarkCheckpoint("run/ckpt", restore=True, keep_best=1)
    model.fit(x, y, validation_data=(u, v), epochs=50, callbacks=[checkpoint])
    tidemark.keras.load(model, "run/ckpt", "best:val_loss")

A variable with the path "dense/kernel" is the entry "model.dense.kernel"; those of the optimizer begin with
"optimizer". Metrics are not saved: Keras resets them in every epoch. The tests are of the backend jax; tensorflow, torch
(on the CPU) and numpy are served too. Importing this module imports keras.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import keras
import numpy
from keras.src.callbacks.monitor_callback import MonitorCallback

from . import _arrays
from ._checkpointer import Checkpointer
from ._options import KeepBest, Retention
from ._reader import Step, open as open_step
from ._rng import rng
from ._step_info import StepInfo
from .errors import FailedPreconditionError, InvalidArgumentError, MismatchError, UnimplementedError

__all__ = ["TidemarkCheckpoint", "load"]

_LAYOUT = "$tidemark.keras"  # the names of the variables in the order of the model, and of their averages
# Checkpointers of calls of `fit` that have not ended, by their store: the next call with the store closes what it finds.
_unfinished: dict[str, Checkpointer] = {}


class TidemarkCheckpoint(MonitorCallback):
    """Saves at the end of each epoch or after every `save_freq` batches, and goes on where a killed run was.

    The first ten arguments are those of keras.callbacks.OrbaxCheckpoint and have their meaning. A step is the number of
    the epoch, or of batches. If `fit` starts over in a store that has steps, the numbers go on after the highest.

    restore: fills the model, its optimizer, and the generators of Python and NumPy from the highest step when `fit`
    begins, and has it start with the next epoch; after a save in the middle of an epoch, with that epoch.
    keep_best: keeps so many of the best steps by `monitor` besides the `max_to_keep` newest. options: those of
    `tidemark.Checkpointer` that are not about when to save and what to keep.

    To save averaged weights, load them with `load(..., ema=True)`. A failed save raises from a later call of the
    callback, at the latest at the end of `fit`. InvalidArgumentError: two variables have one path.
    """

    best: float | None

    def __init__(self, directory: str | os.PathLike[str], monitor: str = "val_loss", verbose: int = 0,
                 save_best_only: bool = False, mode: str = "auto", save_freq: str | int = "epoch",
                 initial_value_threshold: float | None = None, max_to_keep: int | None = 1, save_on_background: bool = True,
                 save_weights_only: bool = False, *, restore: bool = False, keep_best: int = 0, **options: Any) -> None:
        super().__init__(monitor, mode, initial_value_threshold)
        if save_freq != "epoch" and (not isinstance(save_freq, int) or save_freq < 1):
            raise InvalidArgumentError(f"save_freq is {save_freq!r}, neither 'epoch' nor a number of batches")
        if keep_best and max_to_keep is None:
            raise InvalidArgumentError("keep_best is without effect where max_to_keep is None: all steps are kept")
        own = {"retention", "save_interval_steps", "save_on_steps", "save_interval_seconds", "staging"}.intersection(options)
        if own:
            raise InvalidArgumentError(f"{sorted(own)} cannot be given: the callback decides when to save and what to keep")
        self.directory = os.path.abspath(directory)
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.save_on_background = save_on_background
        self.save_weights_only = save_weights_only
        self.restore = restore
        self.keep_best = keep_best
        self._options = options
        self._checkpointer: Checkpointer | None = None
        self._epoch = 0
        self._batches_since_save = 0
        self._last_batch: int | None = None
        self._batches = 0  # since the model was made
        self._offset: int | None = None  # from the number of an epoch or batch to that of its step

    # Called by Keras.

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.close()
        previous = _unfinished.pop(self.directory, None)
        if previous is not None:
            previous.close()
        best = []
        if self.save_best_only or self.keep_best:
            self._set_monitor_op()
        if self.keep_best:
            best = [KeepBest(self.monitor, "lowest" if self.monitor_op is keras.ops.less else "highest", self.keep_best)]
        self._checkpointer = Checkpointer(
            self.directory, retention=Retention(max_to_keep=self.max_to_keep or 0, keep_best=best), **self._options)
        _unfinished[self.directory] = self._checkpointer
        self._epoch = self.model._initial_epoch or 0
        self._last_batch = None
        self._batches_since_save = 0
        self._offset = None
        try:
            if self.restore:
                self._restore()
        except BaseException:
            self.close()
            raise
        optimizer = self.model.optimizer
        self._batches = int(optimizer.iterations) if optimizer is not None else 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.save_freq == "epoch":
            return
        new_epoch = self._last_batch is None or batch <= self._last_batch
        batches = batch + 1 if new_epoch else batch - (self._last_batch or 0)
        self._last_batch = batch
        self._batches += batches
        self._batches_since_save += batches
        if self._batches_since_save >= int(self.save_freq):
            self._batches_since_save = 0
            self._save(self._batches, self._epoch, logs, f"batch {batch}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, epoch + 1, logs, f"epoch {epoch}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.close()

    # For the user.

    def wait_until_finished(self) -> None:
        """Blocks until every save so far survives power loss. Raises the first failure."""
        if self._checkpointer is not None:
            self._checkpointer.wait_until_committed()

    def close(self) -> None:
        """Waits for the saves and releases the store. Raises the first failure that was not seen yet.

        `fit` calls it at its end. After an exception in `fit` the store stays open until this is called, until the next
        `fit` with the store, or until the process ends.
        """
        checkpointer, self._checkpointer = self._checkpointer, None
        if checkpointer is None:
            return
        if _unfinished.get(self.directory) is checkpointer:
            del _unfinished[self.directory]
        checkpointer.close()

    def _opened(self) -> Checkpointer:
        if self._checkpointer is None:
            raise FailedPreconditionError("the callback saves only while `fit` runs")
        return self._checkpointer

    def _save(self, number: int, next_epoch: int, logs: dict[str, Any] | None, place: str) -> None:
        checkpointer = self._opened()
        checkpointer.check_for_errors()
        logs = logs or {}
        if self.save_best_only:
            current = logs.get(self.monitor)
            if current is None:
                warnings.warn(f"Can save best model only with {self.monitor} available, skipping save at {place}.", stacklevel=2)
                return
            if not self._is_improvement(current, self.best):
                return
            self.best = float(current)
        if self._offset is None:
            latest = max((info.step for info in checkpointer.steps()), default=-1)
            self._offset = 0 if number > latest else latest + 1 - number
        step = number + self._offset
        # On the backend jax, the property copies the state of the running epoch into the variables.
        state = _state_of(self.model, self.save_weights_only)
        if not self.save_weights_only:
            best = None if self.best is None else float(self.best)
            state.update({"training.epoch": next_epoch, "training.best": best, "rng": rng()})
        save = checkpointer.save(step, state, metrics={name: float(value) for name, value in logs.items()},
                                 staging="blocking")
        if self.verbose:
            print(f"\n{place}: saving step {step} to {self.directory}")
        if not self.save_on_background:
            save.committed.result()

    def _restore(self) -> None:
        checkpointer = self._opened()
        if all(info.state != "committed" for info in checkpointer.steps()):
            return
        with open_step(self.directory) as step:
            names = _stored_names(step, _variables_of(self.model, self.save_weights_only))
        buffers = {name: _buffer_of(variable) for name, variable in names.items()}
        state: dict[str, Any] = dict(buffers)
        if not self.save_weights_only:
            state.update({"training.epoch": 0, "training.best": None, "rng": rng()})
        checkpointer.resume(state, progress=bool(self.verbose))
        for name, variable in names.items():
            _assign(variable, buffers[name])
        if not self.save_weights_only:
            self.model._initial_epoch = self._epoch = state["training.epoch"]
            if state["training.best"] is not None:
                self.best = state["training.best"]


def load(model: keras.Model, store: str | os.PathLike[str], step: int | str = "latest", *, weights_only: bool = False,
         ema: bool = False) -> StepInfo:
    """Fills a built model and its optimizer from a step, beside the training or without it.

    `step` as in `tidemark.open`: "best:val_loss", for example. weights_only: leaves the optimizer as it is.
    ema: fills the trainable weights with the optimizer's moving averages (`use_ema=True`), and implies weights_only.

    MismatchError: the step does not fit the model, which is as it was. NotFoundError: there is no such step.
    InvalidArgumentError: the step has no averages.
    """
    with open_step(store, step) as opened:
        averages: dict[str, str] = {}
        if ema:
            averages = opened.get_value(_LAYOUT)["averages"] if _LAYOUT in opened.value_keys() else {}
            if not averages:
                raise InvalidArgumentError(f"step {opened.info.step} has no moving averages: train with use_ema=True")
        wanted = _variables_of(model, weights_only or ema)
        stored_names = set(opened.keys())
        found = []
        missing, reshaped, retyped = [], [], []
        for name, variable in _stored_names(opened, wanted).items():
            source = averages.get(name, name)
            if source not in stored_names:
                missing.append(source)
                continue
            stored = opened.get_slice(source)
            if tuple(stored.get_shape()) != tuple(variable.shape):
                reshaped.append(source)
            elif stored.get_dtype() != _arrays.numpy_dtype(variable.dtype).name:
                retyped.append(source)
            else:
                found.append((source, variable))
        if missing or reshaped or retyped:
            raise MismatchError(f"step {opened.info.step} does not fit the model: missing {missing}, of another shape "
                                f"{reshaped}, of another type {retyped}", missing=missing, reshaped=reshaped, retyped=retyped)
        arrays = [opened.get_tensor(source) for source, _ in found]
        for (_, variable), array in zip(found, arrays, strict=True):
            _assign(variable, array)
        return opened.info


# Variables.


def _variables_of(model: keras.Model, weights_only: bool) -> dict[str, Any]:
    """{name of the entry: variable}, in the order of the model."""
    groups = [("model", [*model.trainable_variables, *model.non_trainable_variables])]
    if not weights_only:
        if model.optimizer is not None:
            if not model.optimizer.built:
                model.optimizer.build(model.trainable_variables)
            groups.append(("optimizer", model.optimizer.variables))
    found: dict[str, Any] = {}
    for group, variables in groups:
        for variable in variables:
            name = f"{group}.{variable.path.replace('/', '.')}"
            if name in found and found[name] is not variable:
                raise InvalidArgumentError(f"two variables of the model have the path '{variable.path}': give its layers "
                                           f"different names")
            found[name] = variable
    return found


def _averages_of(model: keras.Model, names: dict[str, Any]) -> dict[str, str]:
    """{name of a weight: name of its moving average}"""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    averages = getattr(optimizer, "_model_variables_moving_average", [])
    by_id = {id(variable): name for name, variable in names.items()}
    return {by_id[id(weight)]: by_id[id(average)]
            for weight, average in zip(getattr(optimizer, "_trainable_variables", []), averages) if average is not None}


def _state_of(model: keras.Model, weights_only: bool) -> dict[str, Any]:
    variables = _variables_of(model, weights_only)
    state: dict[str, Any] = {name: _host(variable, name) for name, variable in variables.items()}
    state[_LAYOUT] = {"variables": list(variables), "averages": {} if weights_only else _averages_of(model, variables)}
    return state


def _stored_names(step: Step, wanted: dict[str, Any]) -> dict[str, Any]:
    """`wanted` by the names in the checkpoint. They differ where Keras has numbered the layers of a second model on.

    The weights, and the variables of the optimizer, are then paired by their order: as many of them, and the last parts
    of the names of weights, must be the same.
    """
    stored = set(step.keys())
    if _LAYOUT not in step.value_keys() or set(wanted) <= stored:
        return wanted
    found: dict[str, Any] = {}
    ordered = step.get_value(_LAYOUT)["variables"]
    for group in ("model.", "optimizer."):
        ours = {name: variable for name, variable in wanted.items() if name.startswith(group)}
        theirs = [name for name in ordered if name.startswith(group)]
        same = [name.rpartition(".")[2] for name in ours] == [name.rpartition(".")[2] for name in theirs]
        paired = not set(ours) <= stored and len(ours) == len(theirs) and (same or group == "optimizer.")
        found.update(zip(theirs, ours.values()) if paired else ours)
    return found


def _host(variable: Any, name: str) -> Any:
    backend = keras.backend.backend()
    if backend == "jax":
        from .jax import host_array

        return host_array(variable.value, name)
    if backend == "tensorflow":
        return numpy.asarray(variable.value.numpy())  # a scalar without asarray, where there are no dimensions
    if backend == "torch":
        return variable.value.detach()
    if backend == "numpy":
        return variable.value
    raise UnimplementedError(f"Keras runs with the backend {backend}, whose variables cannot be stored")


def _buffer_of(variable: Any) -> Any:
    """Memory for a new value of the variable."""
    return numpy.empty(tuple(variable.shape), dtype=_arrays.numpy_dtype(variable.dtype))


def _assign(variable: Any, array: Any) -> None:
    backend = keras.backend.backend()
    if backend == "jax":
        from .jax import made

        array = made(array, variable.value)
    elif backend == "torch":
        import torch

        array = torch.from_numpy(array.view(numpy.uint8).reshape(-1)).view(_arrays.torch_dtype(str(variable.dtype))).reshape(
            array.shape) if array.size else torch.empty(array.shape, dtype=_arrays.torch_dtype(str(variable.dtype)))
    variable.assign(array)
