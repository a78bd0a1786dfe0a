"""Pytrees of JAX: saved by their key paths, and restored as new trees.

    with tidemark.Checkpointer("run/ckpt", save_interval_steps=100) as checkpointer:
        first, state = tidemark.jax.resume(checkpointer, state)
        for step in range(first, steps):
            state, loss = train_step(state, batch)
            if checkpointer.should_save(step):
                tidemark.jax.save(checkpointer, step, state, metrics={"loss": float(loss)})

The leaf at `tree["params"].layers[0]` is the entry "params.layers.0". A leaf is an array of JAX or NumPy, a key of
jax.random, or anything that a state of `tidemark.Checkpointer` may contain. The entry "$tidemark.tree" tells which
containers the tree had. If other processes hold parts of an array, the Checkpointer needs `Ranks.of_jax()`. Then each process
saves the parts of its own devices, each part once, and a restore reads those that the sharding of `like` gives it.
Importing this module imports jax.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .._arguments import Kind, flag, patterns, typed, wrong
from .._arguments import renames as pairs
from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.futures import SaveHandle
from .._checkpointer.progress import Progress
from .._checkpointer.ranks import together
from .._checkpointer.step_info import RestoreReport
from .._state.pattern import matches
from .._store.progress import reporting
from .._store.reader import open as open_step
from .._store.selection import Selection
from ..errors import InvalidArgumentError
from ._reading import bytes_to_read, load_as_saved, load_like
from ._trees import Destination, to_state, with_keys_of

__all__ = ["load", "restore", "restore_with_report", "resume", "save"]

_OF_LOAD: dict[str, Kind] = {"only": patterns, "renames": pairs, "allow_missing": flag, "allow_unexpected": flag,
                             "convert_dtypes": flag}


def save(checkpointer: Checkpointer, step: int, tree: Any, *, metrics: dict[str, float] | None = None,
         user_metadata: str | Mapping[str, Any] = "{}", overwrite: bool = False) -> SaveHandle:
    """Saves the pytree as `step`. When this returns, its arrays may be donated.

    On the CPU the arrays are read where they lie; from devices they are copied to the host first. InvalidArgumentError:
    an array has been deleted, which donation does; two leaves have one name; or other processes have parts of an array, and
    the checkpointer has no `ranks`. Other errors: `Checkpointer.save`. With `ranks` an error of one process is told to the
    others, here and in `resume` and `restore`.
    """
    with _opened(checkpointer)._making(step):
        state = to_state(tree)
    return checkpointer.save(step, state, metrics=metrics, user_metadata=user_metadata, overwrite=overwrite, staging="blocking")


def resume(checkpointer: Checkpointer, like: Any, *, healthy_only: bool = False,
           progress: Progress = False) -> tuple[int, Any]:
    """The step to train next and the tree of the highest committed step; 0 and `like` itself in a fresh run. `progress` as
    for `Checkpointer.restore`."""
    with _opened(checkpointer)._filling(resumes=True):
        destination = Destination(like)
    step = checkpointer.resume(destination.state, healthy_only=healthy_only, progress=progress)
    if not step:
        return 0, like
    with together(checkpointer._of_ranks):
        return step, destination.tree()


def restore(checkpointer: Checkpointer, like: Any, step: int | str = "latest", **options: Any) -> Any:
    """A new tree with the structure of `like`, from a step: a number or what `Checkpointer.restore` takes.

    A leaf of `like` is an array or a jax.ShapeDtypeStruct: its shape and dtype must be those of the checkpoint, and the
    new array gets its sharding. `like` may have been donated. Objects with state are restored in place. `options` are
    those of `Checkpointer.restore`; what they leave out is in the new tree as it is in `like`.

    MismatchError: the checkpoint does not fit. UnimplementedError: another process holds a part of an array of keys.
    """
    return restore_with_report(checkpointer, like, step, **options)[0]


def restore_with_report(checkpointer: Checkpointer, like: Any, step: int | str = "latest", *,
                        only: Sequence[str] = (), **options: Any) -> tuple[Any, RestoreReport]:
    """`restore`, with the report of `Checkpointer.restore` beside the tree."""
    with _opened(checkpointer)._filling(resumes=False):
        only = with_keys_of(like, patterns(only, "only"))
        destination = Destination(like)
    report = checkpointer.restore(destination.state, step, only=only, **options)
    left_out = {name for name in destination.state if only and not matches(name, only)}
    with together(checkpointer._of_ranks):
        return destination.tree(left_out.union(report.missing)), report


def _opened(checkpointer: Any) -> Checkpointer:
    if isinstance(checkpointer, Checkpointer):
        return checkpointer
    raise wrong(checkpointer, "checkpointer", "a tidemark.Checkpointer, such as tidemark.Checkpointer(\"run/ckpt\")")


def load(store: str | os.PathLike[str], step: int | str = "latest", like: Any = None, *, only: Sequence[str] = (),
         renames: Sequence[tuple[str, str]] = (), allow_missing: bool = False, allow_unexpected: bool = False,
         convert_dtypes: bool = False, progress: Progress = False) -> Any:
    """The tree of a step, read beside the trainer or without one. `step` as in `tidemark.open`.

    Without `like` the containers are dicts, lists and tuples: of a class, its attributes are the keys of a dict. The
    arrays are on the default device. With `like`, as `restore`.

    `progress` as for `Checkpointer.restore`, after each array. The other options are those of `Checkpointer.restore` too, and
    need `like`: what they leave out is in the new tree as it is in `like`, and is not read. MismatchError: the step does not
    fit. InvalidArgumentError: without `like`, the tree has an object with state, or `tidemark.jax` did not save it.
    """
    given = typed(_OF_LOAD, locals())
    if like is None:
        for name in filter(given.get, given):
            raise InvalidArgumentError(f"{name} needs `like`: without it the tree is as it was saved")
        with open_step(store, step, framework="np") as opened, reporting(opened, progress, bytes_to_read(opened, None)):
            return load_as_saved(opened)
    only = with_keys_of(like, given["only"])
    with open_step(store, step, framework="np") as opened:
        selection = Selection(opened, only, given["renames"])
        with reporting(opened, progress, bytes_to_read(opened, like, selection=selection)):
            return load_like(opened, like, selection=selection, allow_missing=given["allow_missing"],
                             allow_unexpected=given["allow_unexpected"], converts=lambda name: given["convert_dtypes"])
