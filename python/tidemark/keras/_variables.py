"""The variables of a model: the names of their entries, their values in host memory, and new values for them."""

from __future__ import annotations

from typing import Any

import keras
import numpy

from .._state import arrays
from .._store.reader import Step
from ..errors import InvalidArgumentError, UnimplementedError

LAYOUT = "$tidemark.keras"  # the names of the variables in the order of the model, and of their averages


def variables_of(model: keras.Model, weights_only: bool) -> dict[str, Any]:
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


def state_of(model: keras.Model, weights_only: bool) -> dict[str, Any]:
    """{name of the entry: value}, and the LAYOUT."""
    variables = variables_of(model, weights_only)
    state: dict[str, Any] = {name: _host(variable, name) for name, variable in variables.items()}
    state[LAYOUT] = {"variables": list(variables), "averages": {} if weights_only else _averages_of(model, variables)}
    return state


def _averages_of(model: keras.Model, names: dict[str, Any]) -> dict[str, str]:
    """{name of a weight: name of its moving average}"""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    averages = getattr(optimizer, "_model_variables_moving_average", [])
    by_id = {id(variable): name for name, variable in names.items()}
    return {by_id[id(weight)]: by_id[id(average)]
            for weight, average in zip(getattr(optimizer, "_trainable_variables", []), averages) if average is not None}


def stored_names(step: Step, wanted: dict[str, Any]) -> dict[str, Any]:
    """`wanted` by the names in the checkpoint. They differ where Keras has numbered the layers of a second model on.

    The weights, and the variables of the optimizer, are then paired by their order: as many of them, and the last parts
    of the names of weights, must be the same.
    """
    stored = set(step.keys())
    if LAYOUT not in step.value_keys() or set(wanted) <= stored:
        return wanted
    found: dict[str, Any] = {}
    ordered = step.get_value(LAYOUT)["variables"]
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
        from ..jax._trees import host_array

        return host_array(variable.value, name)
    if backend == "tensorflow":
        return numpy.asarray(variable.value.numpy())  # a scalar without asarray, where there are no dimensions
    if backend == "torch":
        return variable.value.detach()
    if backend == "numpy":
        return variable.value
    raise UnimplementedError(f"Keras runs with the backend {backend}, whose variables cannot be stored")


def buffer_of(variable: Any) -> Any:
    """Memory for a new value of the variable."""
    return numpy.empty(tuple(variable.shape), dtype=arrays.numpy_dtype(variable.dtype))


def assign(variable: Any, array: Any) -> None:
    """Gives the variable the value of the array, which has its shape and dtype."""
    backend = keras.backend.backend()
    if backend == "jax":
        from ..jax._trees import made

        array = made(array, variable.value)
    elif backend == "torch":
        import torch

        dtype = arrays.torch_dtype(str(variable.dtype))
        if array.size:  # by way of bytes: PyTorch takes no bfloat16 of NumPy, and NumPy no view of a scalar as bytes
            array = torch.from_numpy(array.reshape(-1).view(numpy.uint8)).view(dtype).reshape(array.shape)
        else:
            array = torch.empty(array.shape, dtype=dtype)
    variable.assign(array)
