"""Pytrees of JAX: saved by their key paths, and restored as new trees.

    with tidemark.Checkpointer("run/ckpt", save_interval_steps=100) as checkpointer:
        first, state = tidemark.jax.resume(checkpointer, state)
        for step in range(first, steps):
            state, loss = train_step(state, batch)
            if checkpointer.should_save(step):
                tidemark.jax.save(checkpointer, step, state, metrics={"loss": float(loss)})

The leaf at `tree["params"].layers[0]` is the entry "params.layers.0". A leaf is an array of JAX or NumPy, a key of
jax.random, or anything that a state of `tidemark.Checkpointer` may contain. The entry "$tidemark.tree" tells which
containers the tree had. An array of which other processes hold parts needs a Checkpointer with `Ranks.of_jax()`: each process
saves the parts of its own devices, each part once, and a restore reads those that the sharding of `like` gives it.
Importing this module imports jax.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy

from ._arguments import wrong
from ._checkpointer.checkpointer import Checkpointer
from ._checkpointer.futures import SaveHandle
from ._checkpointer.progress import Progress
from ._checkpointer.ranks import agreeing
from ._checkpointer.step_info import RestoreReport
from ._state import arrays, codec
from ._state.arrays import refuse_narrowed
from ._state.boxes import Box, Boxes
from ._state.containers import has_state
from ._state.pattern import matches
from ._state.rng import adapter_of
from ._store.differences import Differences
from ._store.progress import bytes_of, reporting
from ._store.reader import Step, open as open_step
from .errors import DataLossError, Error, InvalidArgumentError, MismatchError, UnimplementedError

__all__ = ["load", "restore", "restore_with_report", "resume", "save"]

_SKELETON = "$tidemark.tree"
_IMPL = "prng_impl"  # the entry beside a key of jax.random that names its algorithm

Skeleton = list[Any]


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
    with agreeing(checkpointer._of_ranks):
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
        destination = Destination(like)
    report = checkpointer.restore(destination.state, step, only=only, **options)
    left_out = {name for name in destination.state if only and not matches(name, only)}
    with agreeing(checkpointer._of_ranks):
        return destination.tree(left_out.union(report.missing)), report


def _opened(checkpointer: Any) -> Checkpointer:
    if isinstance(checkpointer, Checkpointer):
        return checkpointer
    raise wrong(checkpointer, "checkpointer", "a tidemark.Checkpointer, such as tidemark.Checkpointer(\"run/ckpt\")")


def load(store: str | os.PathLike[str], step: int | str = "latest", like: Any = None, *,
         allow_unexpected: bool = False, progress: Progress = False) -> Any:
    """The tree of a step, read beside the trainer or without one. `step` as in `tidemark.open`.

    Without `like` the containers are dicts, lists and tuples: of a class, its attributes are the keys of a dict. The
    arrays are on the default device. With `like`, as `restore`; allow_unexpected: the step may have more. `progress` as for
    `Checkpointer.restore`, after each array. InvalidArgumentError: without `like`, the tree has an object with state, or
    `tidemark.jax` did not save it.
    """
    with open_step(store, step, framework="np") as opened, reporting(opened, progress, bytes_to_read(opened, like)):
        return load_like(opened, like, allow_unexpected=allow_unexpected) if like is not None else load_as_saved(opened)


# What a tree is in a store.


def _name_of_key(key: Any, path: str) -> str | int:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            part = getattr(key, attribute)
            if type(part) not in (str, int):
                raise codec.unsupported(f"{path} (the key {part!r})", part)
            return part  # type: ignore[no-any-return]
    return str(key)


def _join(path: str, part: str | int) -> str:
    return f"{path}.{part}" if path else str(part)


def _children(node: Any, path: str) -> list[tuple[str | int, Any]] | None:
    """[(key, child)] of a pytree's node; None: it is a leaf."""
    try:
        found, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda other: other is not node)
    except ValueError as error:
        raise InvalidArgumentError(f"'{path}' cannot be flattened: {error}") from error
    if len(found) == 1 and not found[0][0]:
        return None
    return [(_name_of_key(keys[0], path), child) for keys, child in found]


def _skeleton_name(path: str) -> str:
    return f"{_SKELETON}.{path}" if path else _SKELETON


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(name, leaf) of a pytree. `path`: the name before all of them."""
    children = _children(node, path)
    if children is None:
        if not path:
            raise InvalidArgumentError(f"the tree is a single leaf, a {type(node).__name__}: put it into a dict")
        yield path, node
        return
    for part, child in children:
        yield from leaves(child, _join(path, part))


def _skeleton(node: Any, path: str) -> Skeleton:
    if node is None:
        return ["none"]
    children = _children(node, path)
    if children is None:
        if isinstance(node, (jax.Array, numpy.ndarray)):
            return ["jax" if isinstance(node, jax.Array) else "np"]
        return ["object" if has_state(node) or adapter_of(node) is not None else "value"]
    below = [[part, _skeleton(child, _join(path, part))] for part, child in children]
    if type(node) in (list, tuple):
        return [type(node).__name__, [child for _, child in below]]
    return ["dict", below]


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _impl_of(leaf: Any) -> str:
    return str(leaf.dtype._impl.name)  # a jax.ShapeDtypeStruct of a key has no public way to tell


def _put(state: dict[str, Any], name: str, value: Any) -> None:
    if name in state:
        raise InvalidArgumentError(f"two leaves of the tree have the name '{name}'")
    state[name] = value


def to_state(tree: Any, path: str = "") -> dict[str, Any]:
    """The flat state that stands for the tree: {name: array in host memory, value or object}. `path`: before all names."""
    found = list(leaves(tree, path))
    jax_arrays = [(name, leaf) for name, leaf in found if isinstance(leaf, (jax.Array, jax.core.Tracer))]
    for name, leaf in jax_arrays:
        _check_can_be_saved(leaf, name)
    for _, leaf in jax_arrays:
        if not _is_key(leaf) and any(device.platform != "cpu" for device in leaf.devices()):
            leaf.copy_to_host_async()
    state: dict[str, Any] = {}
    for name, leaf in found:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise InvalidArgumentError(f"'{name}' is a jax.ShapeDtypeStruct, which has no elements to save")
        if isinstance(leaf, jax.Array) and _is_key(leaf):
            _put(state, name, _parts(jax.random.key_data(leaf)))
            _put(state, _join(name, _IMPL), _impl_of(leaf))
        else:
            _put(state, name, _parts(leaf) if isinstance(leaf, jax.Array) else leaf)
    _put(state, _skeleton_name(path), _skeleton(tree, path))
    return state


def _check_can_be_saved(array: Any, name: str) -> None:
    if isinstance(array, jax.core.Tracer):
        raise InvalidArgumentError(f"'{name}' is traced: save outside of functions that jax.jit or jax.grad transforms")
    if array.is_deleted():
        raise InvalidArgumentError(f"'{name}' has been deleted: it was donated to a compiled function. Save what the "
                                   f"function returned, or save before the call")


def host_array(array: jax.Array, name: str) -> numpy.ndarray[Any, Any]:
    """The elements of one array in host memory, which may be the array's own. Errors are those of `save`, and
    UnimplementedError: other processes have parts of it."""
    _check_can_be_saved(array, name)
    if not array.is_fully_addressable:
        raise UnimplementedError(f"'{name}' has parts in other processes, which only tidemark.jax.save can save")
    return _host(array)


def _parts(array: jax.Array) -> numpy.ndarray[Any, Any] | Boxes:
    """The elements in host memory; of an array that other processes hold parts of, those parts that this one saves."""
    if array.is_fully_addressable:
        return _host(array)
    return Boxes([Box(numpy.asarray(shard.data), array.shape, _offset(shard.index)) for shard in array.addressable_shards
                  if shard.replica_id == 0])


def _offset(index: tuple[slice, ...]) -> list[int]:
    return [part.start or 0 for part in index]


def _host(array: jax.Array) -> numpy.ndarray[Any, Any]:
    """The elements in host memory: those of the array itself if it lies there in one piece.

    It takes the parts, because NumPy's copy of a whole array stays with the array as long as that lives.
    """
    shards = [shard for shard in array.addressable_shards if shard.replica_id == 0]
    if len(shards) == 1:
        return numpy.asarray(array.addressable_data(0) if array.is_fully_replicated else shards[0].data)
    whole = numpy.empty(array.shape, dtype=array.dtype)
    for shard in shards:
        whole[shard.index] = numpy.asarray(shard.data)
    return whole


class Destination:
    """Memory for the leaves of `like`, and the tree that is made of it. `state` is what a Checkpointer restores."""

    def __init__(self, like: Any, path: str = "") -> None:
        self.state: dict[str, Any] = {}
        self._like = list(leaves(like, path))
        self._structure = jax.tree_util.tree_structure(like)
        for name, leaf in self._like:
            if not _is_array(leaf):
                _put(self.state, name, leaf)
                continue
            _check_can_be_made(leaf, name)
            if _is_key(leaf):
                abstract: Any = jax.ShapeDtypeStruct  # JAX has no types for it
                data = jax.eval_shape(jax.random.key_data, abstract(leaf.shape, leaf.dtype))
                _put(self.state, name, numpy.empty(data.shape, dtype=data.dtype))
                _put(self.state, _join(name, _IMPL), "")
            else:
                _put(self.state, name, _memory_for(leaf))

    def tree(self, left_out: set[str] | frozenset[str] = frozenset()) -> Any:
        """The tree of what has been restored. `left_out`: names that have not."""
        self._check_keys(left_out)
        leaves = [leaf if name in left_out else made(self.state[name], leaf) if _is_array(leaf) else self.state[name]
                  for name, leaf in self._like]
        return jax.tree_util.tree_unflatten(self._structure, leaves)

    def _check_keys(self, left_out: set[str] | frozenset[str]) -> None:
        other = {}
        for name, leaf in self._like:
            if name not in left_out and _is_array(leaf) and _is_key(leaf):
                stored = self.state[_join(name, _IMPL)]
                if stored != _impl_of(leaf):
                    other[name] = stored
        if other:
            raise MismatchError("keys of jax.random have another algorithm in the checkpoint: " + ", ".join(
                f"'{name}' {stored}" for name, stored in other.items()), retyped=list(other))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct, numpy.ndarray))


def _check_can_be_made(leaf: Any, name: str) -> None:
    if isinstance(leaf, numpy.ndarray):
        return
    if _is_key(leaf):
        if _is_spread(leaf):
            raise UnimplementedError(f"'{name}' is an array of keys that would have parts in other processes, which this version "
                                     f"cannot restore: save jax.random.key_data of it")
    else:
        refuse_narrowed(leaf.dtype, name)


def _is_spread(leaf: Any) -> bool:
    """Whether other processes have parts of it."""
    sharding = getattr(leaf, "sharding", None)
    return sharding is not None and not sharding.is_fully_addressable


def _memory_for(leaf: Any) -> numpy.ndarray[Any, Any] | Boxes:
    """For all of it, or for the parts that the devices of this process have, each part once."""
    if not _is_spread(leaf):
        return numpy.empty(leaf.shape, dtype=leaf.dtype)
    parts = {}
    for index in leaf.sharding.addressable_devices_indices_map(tuple(leaf.shape)).values():
        extent = [part.indices(size)[1] - part.indices(size)[0] for part, size in zip(index, leaf.shape)]
        parts[tuple(_offset(index))] = Box(numpy.empty(extent, dtype=leaf.dtype), leaf.shape, _offset(index))
    return Boxes(list(parts.values()))


def _made_of_parts(boxes: Boxes, like: Any) -> jax.Array:
    """The array that has these parts on the devices of this process."""
    by_offset = {box.offset: box.array for box in boxes.boxes}
    devices = like.sharding.addressable_devices_indices_map(tuple(like.shape))
    parts = [jax.device_put(by_offset[tuple(_offset(index))], device) for device, index in devices.items()]
    dtype = {} if parts else {"dtype": like.dtype}  # which otherwise says it
    return jax.make_array_from_single_device_arrays(tuple(like.shape), like.sharding, parts, **dtype)


def made(buffer: Any, like: Any) -> Any:
    """The array of JAX or NumPy that has the elements of `buffer` and is otherwise as `like`. Takes the buffer over."""
    if isinstance(like, numpy.ndarray):
        return buffer
    if isinstance(buffer, Boxes):
        return _made_of_parts(buffer, like)
    sharding = like.sharding if getattr(like, "committed", True) else None
    if _is_key(like):
        return jax.device_put(jax.random.wrap_key_data(jax.numpy.asarray(buffer), impl=_impl_of(like)), sharding)
    if like.weak_type and not like.shape:
        # Made of Python's number it is weakly typed again, and compiled functions need not be compiled again.
        weak = jax.numpy.asarray(buffer.item())
        if weak.dtype == like.dtype:
            return jax.device_put(weak, sharding)
    return jax.device_put(buffer, sharding)


# Reading by tidemark.open.


def bytes_to_read(step: Step, like: Any, path: str = "") -> int:
    """Of the arrays that `load_like` reads or, without `like`, `load_as_saved`."""
    wanted = None if like is None else {name for name, _ in leaves(like, path)}
    below = f"{path}." if path else ""
    return bytes_of(step, [name for name in step.keys()
                           if (name in wanted if wanted is not None else name == path or name.startswith(below))])


_WAY_OUT = ("allow_unexpected=True leaves out what the tree has not. tidemark.jax.restore, with a Checkpointer, also takes "
            "allow_missing, renames, only and convert_dtypes. Without `like` the tree is as it was saved")


def load_like(step: Step, like: Any, path: str = "", *, allow_unexpected: bool = False,
              converted: Collection[str] = (), way_out: str = _WAY_OUT) -> Any:
    """`load` with `like`, from a step that is open. `converted`: arrays that may have another floating-point dtype than there.
    `way_out`: for the message of a MismatchError."""
    destination = Destination(like, path)
    tensors, values = set(step.keys()), set(step.value_keys())
    differences = Differences(step)
    for name, value in destination.state.items():
        if has_state(value) or adapter_of(value) is not None:
            raise InvalidArgumentError(f"'{name}' is an object with state, which only a Checkpointer restores")
        if isinstance(value, Boxes):
            raise UnimplementedError(f"'{name}' would have parts in other processes, which only a Checkpointer restores")
        if name not in tensors | values:
            differences.missing(name, _described(value))
        elif (name in tensors) != isinstance(value, numpy.ndarray):
            differences.of_another_kind(name, _described(value))
        elif isinstance(value, numpy.ndarray):
            stored = step.get_slice(name)
            if stored.get_dtype() != value.dtype.name and not (
                    name in converted and _is_float(value.dtype) and _is_float(arrays.numpy_dtype(stored.get_dtype()))):
                differences.of_another_dtype(name, value.dtype.name)
            elif stored.get_shape() != list(value.shape):
                differences.of_another_shape(name, value.shape)
    for name in sorted(tensors | values) if not allow_unexpected else ():
        if name not in destination.state and not name.startswith("$tidemark.") and name.startswith(f"{path}." if path else ""):
            differences.unexpected(name)
    if differences:
        raise differences.error("the tree", way_out)
    for name, value in destination.state.items():
        if name in converted:
            arrays.convert(value, step.get_tensor(name))
        else:
            destination.state[name] = step.get_tensor(name) if name in tensors else step.get_value(name)
    return destination.tree()


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
    if _skeleton_name(path) not in step.value_keys():
        raise InvalidArgumentError(f"step {step.info.step} was not saved by tidemark.jax: give `like`, or use tidemark.open")
    return _rebuilt(step.get_value(_skeleton_name(path)), path, leaf)


def key_impl_of(step: Step, name: str) -> str | None:
    """The algorithm, if an array of keys has that name."""
    return step.get_value(_join(name, _IMPL)) if _join(name, _IMPL) in step.value_keys() else None


def _rebuilt(skeleton: Any, path: str, leaf: Callable[[str, str], Any]) -> Any:
    try:
        kind, *below = skeleton
        if kind == "dict":
            return {part: _rebuilt(child, _join(path, part), leaf) for part, child in below[0]}
        if kind in ("list", "tuple"):
            children = [_rebuilt(child, _join(path, i), leaf) for i, child in enumerate(below[0])]
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
