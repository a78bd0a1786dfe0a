"""Trees of JAX that are read by tidemark.open, beside the trainer or without one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy

from .._state import arrays
from .._state.arrays import refuse_narrowed
from .._state.boxes import Boxes
from .._state.containers import has_state
from .._state.rng import adapter_of
from .._store.differences import Differences
from .._store.progress import bytes_of
from .._store.reader import Step
from .._store.selection import Selection
from ..errors import DataLossError, Error, InvalidArgumentError, UnimplementedError
from ._trees import Destination, impl_entry, join, leaves, skeleton_name


def bytes_to_read(step: Step, like: Any, path: str = "", *, selection: Selection | None = None) -> int:
    """Of the arrays that `load_like` reads or, without `like`, `load_as_saved`."""
    tensors = set(step.keys())
    if like is None:
        below = f"{path}." if path else ""
        return bytes_of(step, [name for name in tensors if name == path or name.startswith(below)])
    selection = selection or Selection(step)
    found = (selection.sources.get(name) for name, _ in leaves(like, path) if selection.takes(name))
    return bytes_of(step, [source for source in found if source in tensors])


_WAY_OUT = ("allow_missing=True leaves missing entries as they are in `like`; allow_unexpected=True skips unexpected ones; "
            "convert_dtypes=True converts floating-point arrays; only=[patterns of names] loads a part of the tree, and "
            "renames=[(name in the checkpoint, name in the tree)] maps names. Without `like` the tree is as it was saved")


def load_like(step: Step, like: Any, path: str = "", *, selection: Selection | None = None, allow_missing: bool = False,
              allow_unexpected: bool = False, converts: Callable[[str], bool] = lambda name: False,
              way_out: str = _WAY_OUT) -> Any:
    """`load` with `like`, from a step that is open. `converts`: whether the array of that name may have another floating-point
    dtype than there. `way_out`: for the message of a MismatchError."""
    destination = Destination(like, path)
    selection = selection or Selection(step)
    sources = selection.sources
    tensors = set(step.keys())
    differences = Differences(step, sources)
    left_out: set[str] = set()
    for line in selection.slips(destination.state):
        differences.slip(line)
    for name, value in destination.state.items():
        if not selection.takes(name) or (allow_missing and name not in sources):
            left_out.add(name)
            continue
        if has_state(value) or adapter_of(value) is not None:
            raise InvalidArgumentError(f"'{name}' is an object with state, which only a Checkpointer restores")
        if isinstance(value, Boxes):
            raise UnimplementedError(f"'{name}' would have parts in other processes, which only a Checkpointer restores")
        if name not in sources:
            differences.missing(name, _described(value))
        elif (sources[name] in tensors) != isinstance(value, numpy.ndarray):
            differences.of_another_kind(name, _described(value))
        elif isinstance(value, numpy.ndarray):
            stored = step.get_slice(sources[name])
            if stored.get_dtype() != value.dtype.name and not (
                    converts(name) and _is_float(value.dtype) and _is_float(arrays.numpy_dtype(stored.get_dtype()))):
                differences.of_another_dtype(name, value.dtype.name)
            elif stored.get_shape() != list(value.shape):
                differences.of_another_shape(name, value.shape)
    for name in () if allow_unexpected or selection.is_partial else sorted(sources):
        if name not in destination.state and not name.startswith("$tidemark.") and name.startswith(f"{path}." if path else ""):
            differences.unexpected(name)
    for name in () if allow_unexpected or selection.is_partial else selection.replaced:
        differences.replaced(name)
    if differences:
        raise differences.error("the tree", way_out)
    for name, value in destination.state.items():
        if name in left_out:
            continue
        source = sources[name]
        if source not in tensors:
            destination.state[name] = step.get_value(source)
        elif step.get_slice(source).get_dtype() != value.dtype.name:
            arrays.convert(value, step.get_tensor(source))
        else:
            destination.state[name] = step.get_tensor(source)
    return destination.tree(left_out)


def _described(value: Any) -> str:
    return f"{value.dtype.name} {list(value.shape)}" if isinstance(value, numpy.ndarray) else type(value).__name__


def _is_float(dtype: Any) -> bool:
    return bool(jax.numpy.issubdtype(dtype, numpy.floating))


def load_as_saved(step: Step, path: str = "") -> Any:
    """`load` without `like`, from a step that is open."""
    return tree_as_saved(step, path, partial(_read_leaf, step))


def kinds_as_saved(step: Step, path: str = "") -> dict[str, str]:
    """{name of a leaf: "np", "jax", "value" or "object"} of a tree that was saved."""
    kinds: dict[str, str] = {}
    tree_as_saved(step, path, lambda kind, name: kinds.setdefault(name, kind))
    return kinds


def tree_as_saved(step: Step, path: str, leaf: Callable[[str, str], Any]) -> Any:
    """A tree that was saved, of dicts, lists and tuples. `leaf(kind, name)` makes its leaves."""
    if skeleton_name(path) not in step.value_keys():
        raise InvalidArgumentError(f"step {step.info.step} was not saved by tidemark.jax: give `like`, or use tidemark.open")
    return _rebuilt(step.get_value(skeleton_name(path)), path, leaf)


def key_impl_of(step: Step, name: str) -> str | None:
    """The algorithm, if an array of keys has that name."""
    return step.get_value(impl_entry(name)) if impl_entry(name) in step.value_keys() else None


def _rebuilt(skeleton: Any, path: str, leaf: Callable[[str, str], Any]) -> Any:
    try:
        kind, *below = skeleton
        if kind == "dict":
            return {part: _rebuilt(child, join(path, part), leaf) for part, child in below[0]}
        if kind in ("list", "tuple"):
            children = [_rebuilt(child, join(path, i), leaf) for i, child in enumerate(below[0])]
            return children if kind == "list" else tuple(children)
    except Error:
        raise
    except (TypeError, ValueError, IndexError, RecursionError) as error:
        raise DataLossError(f"the stored structure of the tree cannot be read at '{path}': {error}") from error
    if kind == "none":
        return None
    if kind not in ("value", "object", "np", "jax"):
        raise DataLossError(f"the stored structure of the tree has the unknown kind {kind!r} at '{path}'")
    return leaf(kind, path)


def _read_leaf(step: Step, kind: str, name: str) -> Any:
    if kind == "value":
        return step.get_value(name)
    if kind == "object":
        raise InvalidArgumentError(f"'{name}' is an object with state: give `like`")
    array = step.get_tensor(name)
    if kind == "np":
        return array
    impl = key_impl_of(step, name)
    if impl is not None:
        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=impl)
    refuse_narrowed(array.dtype, name)
    return jax.device_put(array)
