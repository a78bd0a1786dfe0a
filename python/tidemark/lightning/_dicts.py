"""Checkpoints of frameworks that come as a dict: the tensors of the model by name, the states of the optimizers as one
object, and everything else as another one."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from .._checkpointer.progress import Progress
from .._checkpointer.ranks import Ranks, of_rank_0, together
from .._state import arrays
from .._state.containers import is_sequence, like_tuple
from .._state.tree import Weights
from .._store.progress import bytes_of, reporting
from .._store.reader import Step
from .._store.reader import open as open_step
from ..errors import InvalidArgumentError, NotFoundError

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
        tensors = {name: tensor for name, tensor in weights.items() if arrays.is_array(tensor)}
        content["state_dict"] = {"order": list(weights),
                                 "others": {name: value for name, value in weights.items() if name not in tensors}}
        if tensors:
            state["model"] = tensors if parameters is None else Weights(tensors, parameters)
    if content.get("optimizer_states"):
        state[OPTIMIZERS] = _Rest(content["optimizer_states"])
        content["optimizer_states"] = None  # it keeps its place
    return state


def set_apart(state: dict[str, Any], shared: Collection[str]) -> None:
    """Copies the arrays of the other parts that share memory with one of the `shared` parts, which all ranks save. Else
    it would have two names on one rank, and one on the others, and the ranks would differ in what they save."""
    taken = {_address(array) for part in shared if part in state for _, array in _arrays_of(state[part], part)} - {0}
    for part, content in state.items():
        if part not in shared and isinstance(content, _Rest):
            state[part] = _Rest(_apart(content.state_dict(), taken))


def _apart(value: Any, taken: Collection[int]) -> Any:
    """The value itself, or one that has copies of what lies at the addresses `taken`."""
    if arrays.is_array(value):
        return _copy_of(value) if _address(value) in taken else value
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if is_sequence(value) else ()
    changed = {key: new for key, item in items if (new := _apart(item, taken)) is not item}
    if not changed:
        return value
    if isinstance(value, tuple):
        return like_tuple(value, [changed.get(i, item) for i, item in enumerate(value)])
    made = copy.copy(value)
    for key, item in changed.items():
        made[key] = item
    return made


def _copy_of(array: Any) -> Any:
    return array.detach().clone() if arrays.is_torch(array) else array.copy()


def _address(array: Any) -> int:
    """0: it has no memory."""
    try:
        return arrays.address_of(array)
    except (RuntimeError, NotImplementedError):  # a sparse tensor
        return 0


def _arrays_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if arrays.is_array(value):
        yield path, value
    elif isinstance(value, _Rest):
        yield from _arrays_of(value.state_dict(), path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _arrays_of(item, f"{path}.{key}")
    elif is_sequence(value):
        for i, item in enumerate(value):
            yield from _arrays_of(item, f"{path}.{i}")


def check_same(ranks: Ranks | None, state: dict[str, Any], parts: Sequence[str]) -> None:
    """All `ranks` call this alike. InvalidArgumentError on a rank whose `parts` have other names, dtypes or shapes than those
    of rank 0; AbortedError on the others. Both name the first one."""
    if ranks is None:
        return
    own = {part: "there" for part in parts if part in state}
    for part in list(own):
        own |= {name: f"{array.dtype} {list(array.shape)}" for name, array in _arrays_of(state[part], part)}
    of_0 = json.loads(of_rank_0(ranks, lambda: json.dumps(own), "tell what it saves"))
    with together(ranks, "save what rank 0 saves"):
        for name in {**of_0, **own}:
            here, there = (found.get(name, "missing") for found in (own, of_0))
            if here != there:
                raise InvalidArgumentError(f"'{name}' is {there} on rank 0, and {here} on rank {ranks.rank}. Hooks such as "
                                           f"on_save_checkpoint are to change the checkpoint alike on all ranks")


def checkpoint_of(step: Step, rest: str, optimizers: bool = True) -> dict[str, Any]:
    """The opposite of `state_of`, with tensors of PyTorch in memory of their own. Without `optimizers` their states are left
    out. NotFoundError: something else has saved it."""
    if rest not in step.value_keys():
        raise NotFoundError(f"step {step.info.step} has no entry '{rest}': the integration of another framework, or a "
                            f"Checkpointer, has saved it. tidemark.open reads its tensors")
    checkpoint: dict[str, Any] = step.get_value(rest)
    if not optimizers:
        checkpoint.pop("optimizer_states", None)
    elif OPTIMIZERS in step.value_keys():
        checkpoint["optimizer_states"] = step.get_value(OPTIMIZERS)
    weights = checkpoint.get("state_dict")
    if weights is not None:
        others = weights["others"]
        checkpoint["state_dict"] = {name: others[name] if name in others else step.get_tensor(f"model.{name}")
                                    for name in weights["order"]}
    return checkpoint


def reported_checkpoint_of(step: Step, rest: str, progress: Progress) -> dict[str, Any]:
    """`checkpoint_of`, which tells `progress` how far it is."""
    parts = tuple(f"{part}." for part in ("model", OPTIMIZERS, rest))  # all but other ranks' generators
    with reporting(step, progress, bytes_of(step, [name for name in step.keys() if name.startswith(parts)])):
        return checkpoint_of(step, rest)


def load_checkpoint(store: str | os.PathLike[str], step: int | str, rest: str, rank: int = 0,
                    progress: Progress = False) -> dict[str, Any]:
    """Of another rank than 0 with its own generators, if the step has them, at the key GENERATORS, and without `progress`."""
    with open_step(store, step, "pt") as opened:
        checkpoint = reported_checkpoint_of(opened, rest, False if rank else progress)
        if rank and f"rng.{rank}" in opened.value_keys():
            checkpoint[GENERATORS] = opened.get_value(f"rng.{rank}")
        return checkpoint
