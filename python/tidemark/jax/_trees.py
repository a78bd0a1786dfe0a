"""What a pytree of JAX is in a store, and the new tree that a restore makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy

from .._state import codec
from .._state.arrays import refuse_narrowed
from .._state.boxes import Box, Boxes
from .._state.containers import has_state
from .._state.pattern import matches
from .._state.rng import adapter_of
from ..errors import InvalidArgumentError, MismatchError, UnimplementedError

_SKELETON = "$tidemark.tree"

Skeleton = list[Any]


def _name_of_key(key: Any, path: str) -> str | int:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            part = getattr(key, attribute)
            if type(part) not in (str, int):
                raise codec.unsupported(f"{path} (the key {part!r})", part)
            return part  # type: ignore[no-any-return]
    return str(key)


def join(path: str, part: str | int) -> str:
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


def impl_entry(name: str) -> str:
    """The entry beside a key of jax.random that names its algorithm."""
    return f"{name}.prng_impl"


def skeleton_name(path: str) -> str:
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
        yield from leaves(child, join(path, part))


def _skeleton(node: Any, path: str) -> Skeleton:
    if node is None:
        return ["none"]
    children = _children(node, path)
    if children is None:
        if isinstance(node, (jax.Array, numpy.ndarray)):
            return ["jax" if isinstance(node, jax.Array) else "np"]
        return ["object" if has_state(node) or adapter_of(node) is not None else "value"]
    below = [[part, _skeleton(child, join(path, part))] for part, child in children]
    if type(node) in (list, tuple):
        return [type(node).__name__, [child for _, child in below]]
    return ["dict", below]


def is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _impl_of(leaf: Any) -> str:
    return str(leaf.dtype._impl.name)  # a jax.ShapeDtypeStruct of a key has no public way to tell


def with_keys_of(tree: Any, only: Sequence[str]) -> list[str]:
    """The patterns, and what belongs to the keys of jax.random in the tree that they match."""
    return [*only, *(impl_entry(name) for name, leaf in leaves(tree, "") if only and is_array(leaf) and is_key(leaf)
                     and matches(name, only))]


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
        if not is_key(leaf) and any(device.platform != "cpu" for device in leaf.devices()):
            leaf.copy_to_host_async()
    state: dict[str, Any] = {}
    for name, leaf in found:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise InvalidArgumentError(f"'{name}' is a jax.ShapeDtypeStruct, which has no elements to save")
        if isinstance(leaf, jax.Array) and is_key(leaf):
            _put(state, name, _parts(jax.random.key_data(leaf)))
            _put(state, impl_entry(name), _impl_of(leaf))
        else:
            _put(state, name, _parts(leaf) if isinstance(leaf, jax.Array) else leaf)
    _put(state, skeleton_name(path), _skeleton(tree, path))
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
            if not is_array(leaf):
                _put(self.state, name, leaf)
                continue
            _check_can_be_made(leaf, name)
            if is_key(leaf):
                abstract: Any = jax.ShapeDtypeStruct  # JAX has no types for it
                data = jax.eval_shape(jax.random.key_data, abstract(leaf.shape, leaf.dtype))
                _put(self.state, name, numpy.empty(data.shape, dtype=data.dtype))
                _put(self.state, impl_entry(name), "")
            else:
                _put(self.state, name, _memory_for(leaf))

    def tree(self, left_out: set[str] | frozenset[str] = frozenset()) -> Any:
        """The tree of what has been restored. `left_out`: names that have not."""
        self._check_keys(left_out)
        leaves = [leaf if name in left_out else made(self.state[name], leaf) if is_array(leaf) else self.state[name]
                  for name, leaf in self._like]
        return jax.tree_util.tree_unflatten(self._structure, leaves)

    def _check_keys(self, left_out: set[str] | frozenset[str]) -> None:
        other = {}
        for name, leaf in self._like:
            if name not in left_out and is_array(leaf) and is_key(leaf):
                stored = self.state[impl_entry(name)]
                if stored != _impl_of(leaf):
                    other[name] = stored
        if other:
            raise MismatchError("keys of jax.random have another algorithm in the checkpoint: " + ", ".join(
                f"'{name}' {stored}" for name, stored in other.items()), retyped=list(other))


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct, numpy.ndarray))


def _check_can_be_made(leaf: Any, name: str) -> None:
    if isinstance(leaf, numpy.ndarray):
        return
    if is_key(leaf):
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
    if is_key(like):
        return jax.device_put(jax.random.wrap_key_data(jax.numpy.asarray(buffer), impl=_impl_of(like)), sharding)
    if like.weak_type and not like.shape:
        # Made of Python's number it is weakly typed again, and compiled functions need not be compiled again.
        weak = jax.numpy.asarray(buffer.item())
        if weak.dtype == like.dtype:
            return jax.device_put(weak, sharding)
    return jax.device_put(buffer, sharding)
