"""Checkpoints of frameworks that come as a dict: the tensors of the model by name, the states of the optimizers as one
object, and everything else as another one."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from . import _arrays
from ._reader import Step
from ._reader import open as open_step
from ._tree import Weights
from .errors import NotFoundError

OPTIMIZERS = "optimizers"
GENERATORS = "tidemark_generators"  # the key of a rank's own generators of random numbers in a checkpoint that it loads


class _Rest:
    """What belongs to no model, as an object with state."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def state_dict(self) -> Any:
        return self._content

    def load_state_dict(self, state: Any) -> None:
        self._content = state


def state_of(checkpoint: Mapping[str, Any], rest: str, parameters: Collection[str] | None = None) -> dict[str, Any]:
    """A state for Checkpointer.save: "model.NAME" for the tensors of checkpoint["state_dict"], the object "optimizers" for
    checkpoint["optimizer_states"], and the object `rest`. `parameters`: the names of those that are; None: unknown."""
    content = dict(checkpoint)
    state: dict[str, Any] = {rest: _Rest(content)}
    weights = content.get("state_dict")
    if isinstance(weights, Mapping):
        tensors = {name: tensor for name, tensor in weights.items() if _arrays.is_array(tensor)}
        content["state_dict"] = {"order": list(weights),
                                 "others": {name: value for name, value in weights.items() if name not in tensors}}
        if tensors:
            state["model"] = tensors if parameters is None else Weights(tensors, parameters)
    if content.get("optimizer_states"):
        state[OPTIMIZERS] = _Rest(content["optimizer_states"])
        content["optimizer_states"] = None  # it keeps its place
    return state


def checkpoint_of(step: Step, rest: str) -> dict[str, Any]:
    """The opposite of `state_of`, with tensors of PyTorch in memory of their own. NotFoundError: another door saved it."""
    if rest not in step.value_keys():
        raise NotFoundError(f"step {step.info.step} has no entry '{rest}': it was not saved by this door. "
                            f"tidemark.open reads its tensors")
    checkpoint: dict[str, Any] = step.get_value(rest)
    if OPTIMIZERS in step.value_keys():
        checkpoint["optimizer_states"] = step.get_value(OPTIMIZERS)
    weights = checkpoint.get("state_dict")
    if weights is not None:
        others = weights["others"]
        checkpoint["state_dict"] = {name: others[name] if name in others else step.get_tensor(f"model.{name}")
                                    for name in weights["order"]}
    return checkpoint


def load_checkpoint(store: str | os.PathLike[str], step: int | str, rest: str, rank: int = 0) -> dict[str, Any]:
    """Of another rank than 0 with its own generators, if the step has them, at the key GENERATORS."""
    with open_step(store, step, "pt") as opened:
        checkpoint = checkpoint_of(opened, rest)
        if rank and f"rng.{rank}" in opened.value_keys():
            checkpoint[GENERATORS] = opened.get_value(f"rng.{rank}")
        return checkpoint
