"""Checkpoints of frameworks that come as a dict: the tensors of the model by name, and everything else as one object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _arrays
from ._reader import Step
from ._reader import open as open_step
from .errors import NotFoundError


class _Rest:
    """What belongs to no model, as an object with state."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def state_dict(self) -> dict[str, Any]:
        return self._content

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._content = state


def state_of(checkpoint: Mapping[str, Any], rest: str) -> dict[str, Any]:
    """A state for Checkpointer.save: "model.NAME" for the tensors of checkpoint["state_dict"], and the object `rest`."""
    content = dict(checkpoint)
    weights = content.get("state_dict")
    if not isinstance(weights, Mapping):
        return {rest: _Rest(content)}
    tensors = {name: tensor for name, tensor in weights.items() if _arrays.is_array(tensor)}
    content["state_dict"] = {"order": list(weights),
                             "others": {name: value for name, value in weights.items() if name not in tensors}}
    return {"model": tensors, rest: _Rest(content)} if tensors else {rest: _Rest(content)}


def checkpoint_of(step: Step, rest: str) -> dict[str, Any]:
    """The opposite of `state_of`, with tensors of PyTorch in memory of their own. NotFoundError: another door saved it."""
    if rest not in step.value_keys():
        raise NotFoundError(f"step {step.info.step} has no entry '{rest}': it was not saved by this door. "
                            f"tidemark.open reads its tensors")
    checkpoint: dict[str, Any] = step.get_value(rest)
    weights = checkpoint.get("state_dict")
    if weights is not None:
        others = weights["others"]
        checkpoint["state_dict"] = {name: others[name] if name in others else step.get_tensor(f"model.{name}")
                                    for name in weights["order"]}
    return checkpoint


def load_checkpoint(store: str | os.PathLike[str], step: int | str, rest: str) -> dict[str, Any]:
    with open_step(store, step, "pt") as opened:
        return checkpoint_of(opened, rest)
