"""Arrays that a restore makes, for tensors on the meta device, and for a tree that is to be like another."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import UnimplementedError
from . import arrays, dtensors

_Put = Callable[[Any], None]


def is_on_meta(value: object) -> bool:
    return arrays.is_torch(value) and value.device.type == "meta"  # type: ignore[attr-defined]


class NewArrays:
    """Those of one restore. They take their places when it has succeeded: until then the state is as it was.

    `device`: that of what is on the meta device. `of_all`: every array gets a new one, and not only those.
    """

    def __init__(self, device: Any, of_all: bool) -> None:
        self._device = "cpu" if device is None else device
        self.of_all = of_all
        self._made: dict[Any, tuple[Any, Any]] = {}  # (old, new) by what tied arrays have in common
        self._places: dict[int, tuple[Any, list[tuple[str, _Put]]]] = {}  # by the identity of the new array
        self._without_entry: list[str] = []

    def instead_of(self, value: Any, path: str, put: _Put) -> Any:
        """The array into which to restore: the value itself, or a new one that `put` will put in its place."""
        if not self.of_all and not is_on_meta(value):
            return value
        if dtensors.is_dtensor(value):
            raise UnimplementedError(f"'{path}' is a DTensor {'without memory' if is_on_meta(value) else 'of the state'}, and a "
                                     f"restore makes no new ones. Give it memory (module.to_empty), and use `restore`")
        key = _tie_of(value, path)
        if key not in self._made:
            self._made[key] = (value, self._like(value))
        new = self._made[key][1]
        self._places.setdefault(id(new), (new, []))[1].append((path, put))
        return new

    def _like(self, value: Any) -> Any:
        if not arrays.is_torch(value):
            import numpy

            return numpy.empty_like(value, subok=False)
        torch = sys.modules["torch"]
        device = self._device if is_on_meta(value) else value.device
        new = torch.empty_like(value.detach(), device=device)
        if isinstance(value, torch.nn.Parameter):
            new = torch.nn.Parameter(new, requires_grad=value.requires_grad)
        else:
            new.requires_grad_(value.requires_grad)
        new.__dict__.update(value.__dict__)
        return new

    def of_module(self, module: Any, state: dict[str, Any], path: str,
                  bare_name: Callable[[str], str]) -> Callable[[str, Any], Any]:
        """A function that returns the array into which to restore an entry of `state`, the module's state_dict()."""
        if not any(is_on_meta(value) for value in state.values()):
            return lambda name, value: value
        places: dict[str, list[tuple[Any, str, Any]]] = {}
        for name, owner, key, tensor in _tensors_of(module):
            places.setdefault(bare_name(name), []).append((owner, key, tensor))
        stored = {bare_name(key) for key in state}
        self._without_entry += [f"{path}.{name}" for name, found in places.items()
                                if name not in stored and is_on_meta(found[0][2])]

        def instead_of(name: str, value: Any) -> Any:
            if not is_on_meta(value):
                return value
            if name not in places:
                raise UnimplementedError(f"'{path}.{name}' is on the device meta, and neither a parameter nor a buffer of the "
                                         f"module: nothing can be put in its place")
            owner, key, tensor = places[name][0]
            return self.instead_of(tensor, f"{path}.{name}", lambda new: setattr(owner, key, new))

        return instead_of

    def put(self, left_out: Callable[[str], bool], objects: list[Any]) -> None:
        """Puts the new arrays in their places. An array stays out if none of its names was restored. Optimizers among
        `objects` go on with the new parameters."""
        put: set[int] = set()
        for new, places in self._places.values():
            if all(left_out(path) for path, _ in places):
                continue
            put.add(id(new))
            for _, put_there in places:
                put_there(new)
        parameters = {id(old): new for old, new in self._made.values() if id(new) in put and is_on_meta(old)}
        if parameters:
            for value in objects:
                _replace_parameters(value, parameters)
        if self._without_entry:
            logging.getLogger("tidemark").warning(
                "on the meta device, and in no checkpoint, so still without elements: %s", ", ".join(self._without_entry))


def _tie_of(value: Any, path: str) -> Any:
    """Equal for tied arrays. Also refuses what cannot be restored."""
    if arrays.is_torch(value):
        arrays.refuse_unless_plain_tensor(value, path)
        if value.device.type == "meta":
            return id(value)
        return value.data_ptr(), value.dtype, value.device, tuple(value.shape), value.stride()
    arrays.refuse_masked(value, path)
    return value.__array_interface__["data"][0], value.dtype, value.shape, value.strides


def _tensors_of(module: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """(name, module that owns it, its key there, tensor) of all parameters and buffers, tied ones under each name."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for tensors in (owner._parameters, owner._buffers):
            for key, tensor in tensors.items():
                if tensor is not None:
                    yield f"{prefix}.{key}" if prefix else key, owner, key, tensor


def _replace_parameters(value: Any, parameters: dict[int, Any]) -> None:
    for group in value.param_groups if isinstance(getattr(value, "param_groups", None), list) else ():
        if isinstance(group, dict) and isinstance(group.get("params"), list):
            group["params"] = [parameters.get(id(parameter), parameter) for parameter in group["params"]]
    state = getattr(value, "state", None)
    if isinstance(state, dict):
        for parameter in [key for key in state if id(key) in parameters]:
            state[parameters[id(parameter)]] = state.pop(parameter)
