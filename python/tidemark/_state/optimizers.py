"""Optimizers of PyTorch as the entries that the C++ library gives them (TorchState::AddOptimizer).

  type                    the name of the class
  param_groups.N.params   the names of the parameters, one a line
  param_groups.N.lr       and every other option that both languages know
  NAME.step               an integer, and NAME.exp_avg and so on, tensors: the state of the parameter NAME
  param_groups.N.python   only if needed: options that only PyTorch for Python knows and that are not at their defaults

An optimizer that does not fit this (of another class, with a learning rate that is a tensor) is stored as an object. So are
schedulers, without what only their class has.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import InvalidArgumentError, UnsupportedTypeError
from . import arrays, codec
from .containers import SCALARS, items_of


@dataclasses.dataclass(frozen=True)
class _Kind:
    has_step: bool
    tensors: tuple[str, ...]
    options: dict[str, type[Any]]
    implied: dict[str, Any] = dataclasses.field(default_factory=dict)  # options that the class itself decides


_ADAM: dict[str, type[Any]] = {
    "lr": float, "betas.0": float, "betas.1": float, "eps": float, "weight_decay": float, "amsgrad": bool}
_ADAM_TENSORS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_KINDS = {
    "SGD": _Kind(False, ("momentum_buffer",), {"lr": float, "momentum": float, "dampening": float, "weight_decay": float,
                                               "nesterov": bool}),
    "Adam": _Kind(True, _ADAM_TENSORS, _ADAM),
    "AdamW": _Kind(True, _ADAM_TENSORS, _ADAM, {"decoupled_weight_decay": True}),
    "RMSprop": _Kind(True, ("square_avg", "momentum_buffer", "grad_avg"), {
        "lr": float, "alpha": float, "eps": float, "weight_decay": float, "momentum": float, "centered": bool}),
    "Adagrad": _Kind(True, ("sum",), {"lr": float, "lr_decay": float, "weight_decay": float,
                                      "initial_accumulator_value": float, "eps": float}),
}

Entry = tuple[str, str, bytes]  # name, kind, bytes


# Of a fresh optimizer the dict lacks the entries that it has after a step, so a restore cannot fill it.
WAY_OUT_OF_STATE_DICT = "pass the optimizer itself, not its state_dict()"


def is_state_dict(value: Any) -> bool:
    """Whether it is a plain dict as state_dict() of an optimizer returns it."""
    return type(value) is dict and "param_groups" in value and "state" in value


def state_dicts(state: Any) -> Iterator[str]:
    """The paths of those in the containers of the state."""
    level = [("", state)]
    while level:
        path, value = level.pop()
        if is_state_dict(value):
            yield path
        else:
            level += [(f"{path}.{key}" if path else str(key), item) for key, item in items_of(value)
                      if type(item) not in SCALARS and not codec.is_registered(item)]


def without_own_functions(scheduler: Any, state: Any) -> Any:
    """The state_dict() of a scheduler of PyTorch without functions of its own class, which the scheduler that is restored has,
    too: OneCycleLR and CyclicLR of PyTorch 1.13 have them there, and newer ones leave them out. Also without those of the
    schedulers in a SequentialLR or ChainedScheduler. Another object's as it is."""
    if not isinstance(state, dict) or all(kind.__module__ != "torch.optim.lr_scheduler" for kind in type(scheduler).__mro__):
        return state

    def is_own(item: Any) -> bool:
        method = item() if isinstance(item, weakref.WeakMethod) else item
        function = getattr(method, "__func__", method)
        return isinstance(function, types.FunctionType) and getattr(type(scheduler), function.__name__, None) is function

    state = {name: item for name, item in state.items() if not is_own(item)}
    parts, states = getattr(scheduler, "_schedulers", None), state.get("_schedulers")
    if isinstance(parts, (list, tuple)) and isinstance(states, (list, tuple)) and len(parts) == len(states):
        state["_schedulers"] = [without_own_functions(part, item) for part, item in zip(parts, states)]
    return state


def _kind_of(optimizer: Any) -> _Kind | None:
    cls = type(optimizer)
    return _KINDS.get(cls.__name__) if cls.__module__.startswith("torch.optim.") else None


def _defaults(optimizer: Any, kind: _Kind) -> dict[str, Any]:
    parameters = inspect.signature(type(optimizer).__init__).parameters.values()
    return {**{p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}, **kind.implied}


def to_entries(optimizer: Any, state: Mapping[str, Any], path: str) -> tuple[list[Entry], list[tuple[str, Any]]] | None:
    """The entries of values and of tensors, or None. `state` is the state_dict() by the names of the parameters."""
    kind = _kind_of(optimizer)
    if kind is None:
        return None
    values: list[Entry] = [(f"{path}.type", *codec.to_entry(type(optimizer).__name__, path))]
    tensors: list[tuple[str, Any]] = []
    defaults = _defaults(optimizer, kind)
    for g, group in enumerate(state["param_groups"]):
        options = dict(group)
        prefix = f"{path}.param_groups.{g}"
        values.append((f"{prefix}.params", "string", "\n".join(options.pop("params")).encode()))
        if "betas.0" in kind.options:
            betas = options.pop("betas", None)
            if type(betas) not in (tuple, list) or len(betas) != 2:
                return None
            options["betas.0"], options["betas.1"] = betas
        for name, wanted in kind.options.items():
            value = options.pop(name, None)
            if type(value) is not wanted and not (wanted is float and type(value) is int):
                return None
            values.append((f"{prefix}.{name}", *codec.to_entry(wanted(value), name)))
        others = {name: value for name, value in options.items() if name not in defaults or defaults[name] is not value}
        if others:
            try:
                values.append((f"{prefix}.python", "string", codec.to_text(codec.encode(others, prefix, lambda *_: False))))
            except UnsupportedTypeError:
                return None
    for name, fields in state["state"].items():
        for field, value in fields.items():
            if field == "step" and kind.has_step:
                number = value.item() if arrays.is_torch(value) and value.numel() == 1 else value
                if type(number) not in (int, float) or number != int(number):
                    return None
                values.append((f"{path}.{name}.step", *codec.to_entry(int(number), path)))
            elif value is not None:
                if field not in kind.tensors or not arrays.is_torch(value):
                    return None
                tensors.append((f"{path}.{name}.{field}", value))
    return values, tensors


def from_entries(optimizer: Any, path: str, received: Mapping[str, Any],
                 value: Callable[[str], Any], tensor: Callable[[str], Any]) -> dict[str, Any]:
    """The state_dict() by the names of the parameters. `value` and `tensor` read an entry of `received`."""
    kind = _kind_of(optimizer)
    stored = value(f"{path}.type")
    if kind is None or stored != type(optimizer).__name__:
        raise InvalidArgumentError(f"'{path}' is a {type(optimizer).__name__} here, and a {stored} in the checkpoint")
    groups: list[dict[str, Any]] = []
    while (prefix := f"{path}.param_groups.{len(groups)}") + ".params" in received:
        group = {name: default for name, default in _defaults(optimizer, kind).items() if name in optimizer.param_groups[0]}
        group.update({name: value(f"{prefix}.{name}") for name in kind.options if f"{prefix}.{name}" in received})
        if "betas.0" in group:
            group["betas"] = (group.pop("betas.0"), group.pop("betas.1"))
        if f"{prefix}.python" in received:
            group.update(value(f"{prefix}.python"))
        params = value(f"{prefix}.params")
        groups.append({**group, "params": params.split("\n") if params else []})
    state = {}
    for name in dict.fromkeys(name for group in groups for name in group["params"]):
        fields = {field: tensor(f"{path}.{name}.{field}") for field in kind.tensors if f"{path}.{name}.{field}" in received}
        if f"{path}.{name}.step" in received:
            fields["step"] = _step(value(f"{path}.{name}.step"))
        if fields:
            state[name] = fields
    return {"state": state, "param_groups": groups}


def _step(number: int) -> Any:
    import torch

    wide = torch.get_default_dtype() == torch.float64
    return torch.tensor(float(number), dtype=torch.float64 if wide else torch.float32, device="cpu")
