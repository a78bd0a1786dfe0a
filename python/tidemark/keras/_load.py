"""`load`: a step into a model, beside the training or without it."""

from __future__ import annotations

import os
from typing import Any

import keras
import numpy

from .._arguments import wrong
from .._checkpointer.progress import Progress
from .._checkpointer.step_info import StepInfo
from .._state import arrays
from .._store.differences import Differences
from .._store.progress import bytes_of, reporting
from .._store.reader import Step, open as open_step
from ..errors import InvalidArgumentError
from ._variables import LAYOUT, assign, stored_names, variables_of


def load(model: keras.Model, store: str | os.PathLike[str], step: int | str = "latest", *, weights_only: bool = False,
         ema: bool = False, progress: Progress = False) -> StepInfo:
    """Fills a built model and its optimizer from a step, beside the training or without it.

    `step` as in `tidemark.open`: "best:val_loss", for example. weights_only: leaves the optimizer as it is.
    ema: fills the trainable weights with the optimizer's moving averages (`use_ema=True`), and implies weights_only.
    progress: as for `Checkpointer.restore`, after each variable.

    A checkpoint of another backend fits, too: integers may have another size there. MismatchError: the step does not fit
    the model, which is as it was. NotFoundError: there is no such step.
    InvalidArgumentError: the step has no averages; the model is not built; it is not compiled, so that it has no optimizer,
    and weights_only is off.
    """
    _check(model, weights_only or ema)
    with open_step(store, step) as opened:
        averages: dict[str, str] = {}
        if ema:
            averages = opened.get_value(LAYOUT)["averages"] if LAYOUT in opened.value_keys() else {}
            if not averages:
                raise InvalidArgumentError(f"step {opened.info.step} has no moving averages: train with use_ema=True")
        wanted = variables_of(model, weights_only or ema)
        in_step = set(opened.keys())
        found = []
        differences = Differences(opened)
        for name, variable in stored_names(opened, wanted).items():
            source = averages.get(name, name)
            if source not in in_step:
                differences.missing(source, f"{variable.dtype} {list(variable.shape)}")
                continue
            stored = opened.get_slice(source)
            if tuple(stored.get_shape()) != tuple(variable.shape):
                differences.of_another_shape(source, variable.shape)
            elif not _is_same_or_integer(stored.get_dtype(), variable.dtype):
                differences.of_another_dtype(source, variable.dtype)
            else:
                found.append((source, variable))
        values = [] if differences else _read(opened, found, progress)
        for (source, variable), array in zip(found, values):
            if array is None:
                differences.of_another_dtype(source, variable.dtype, ", which has no room for an element of it")
        if differences:
            is_optimizer = all(name.startswith("optimizer.") for name in differences.names)
            raise differences.error("the model", "weights_only=True leaves the optimizer as it is" if is_optimizer else
                                    "Its layers must be those of the model that was saved")
        for (_, variable), array in zip(found, values, strict=True):
            assign(variable, array)
        return opened.info


def _check(model: Any, weights_only: bool) -> None:
    """InvalidArgumentError: it is no model whose variables are there."""
    if not isinstance(model, keras.Model):
        raise wrong(model, "model", "a keras.Model")
    if not model.built and not (model.weights and all(layer.built for layer in model.layers)):
        raise InvalidArgumentError(f"the model '{model.name}' is not built, so it has no weights to fill: call it on a batch, "
                                   f"or call its build(), before the load")
    if not weights_only and not hasattr(model, "optimizer"):
        raise InvalidArgumentError(f"the model '{model.name}' is not compiled, so it has no optimizer to fill: compile it "
                                   f"before, or give weights_only=True")


def _read(step: Step, found: list[tuple[str, Any]], progress: Progress) -> list[Any]:
    """The arrays of [(name of the entry, variable)]; None for one that does not fit into the dtype of its variable."""
    with reporting(step, progress, bytes_of(step, [source for source, _ in found])):
        return [_of_dtype(step.get_tensor(source), variable.dtype) for source, variable in found]


def _is_same_or_integer(stored: str, wanted: str) -> bool:
    """The generators of Keras' layers are integers of another size on the backend torch."""
    if stored == arrays.numpy_dtype(wanted).name:
        return True
    return all(numpy.issubdtype(arrays.numpy_dtype(name), numpy.integer) for name in (stored, wanted))


def _of_dtype(array: Any, dtype: str) -> Any:
    """The array with elements of the dtype; None if an element does not fit into it."""
    wanted = arrays.numpy_dtype(dtype)
    if array.dtype == wanted:
        return array
    converted = array.astype(wanted)
    return converted if numpy.array_equal(converted, array) else None
