"""RestoreArgs and ArrayRestoreArgs by Orbax's names: what a leaf of a pytree is restored as."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy

from .._state import arrays
from .._store.reader import Step
from ..errors import InvalidArgumentError, MismatchError, UnimplementedError
from ..jax import _reading, _trees

_WITHOUT_COUNTERPART = {"strict": "a restore neither pads nor truncates an array", "single_replica_sharding": "one process reads"}


@dataclasses.dataclass
class RestoreArgs:
    """restore_type: numpy.ndarray, jax.Array, or the class of a value, such as int; None: as it was saved.
    dtype: of the array, which is converted if both are floating-point; None: that of the item, or as it was saved."""

    restore_type: Any = None
    dtype: Any = None


@dataclasses.dataclass
class ArrayRestoreArgs(RestoreArgs):
    """sharding: that of the new array, or `mesh` and `mesh_axes` in its place; None: that of the item, or the default device.
    global_shape, shape: the same; the array must have it.

    UnimplementedError: strict is False, since a restore neither pads nor truncates. InvalidArgumentError: `shape` and
    `global_shape` differ, or one of `mesh` and `mesh_axes` is missing.
    """

    restore_type: Any = jax.Array
    mesh: jax.sharding.Mesh | None = None
    mesh_axes: jax.sharding.PartitionSpec | None = None
    sharding: jax.sharding.Sharding | None = None
    global_shape: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        if self.shape is not None and self.global_shape is not None and tuple(self.shape) != tuple(self.global_shape):
            raise InvalidArgumentError(f"ArrayRestoreArgs has the shape {self.shape} and the global_shape {self.global_shape}: "
                                       f"give one of them")
        self.shape = self.global_shape = self.global_shape if self.shape is None else self.shape
        check(self, "ArrayRestoreArgs")


def check(args: Any, name: str) -> None:
    """For Orbax's own classes, too. InvalidArgumentError, UnimplementedError: it is no such object, or has something that has no
    counterpart; `name` is in the message."""
    if not hasattr(args, "restore_type") or not hasattr(args, "dtype"):
        raise InvalidArgumentError(f"the restore_args of '{name}' are a {type(args).__name__}: expected an ArrayRestoreArgs or a "
                                   f"RestoreArgs")
    for field in dataclasses.fields(args) if dataclasses.is_dataclass(args) else ():
        if field.name in _WITHOUT_COUNTERPART and getattr(args, field.name) is not field.default:
            raise UnimplementedError(f"'{name}': {type(args).__name__}.{field.name} has no counterpart in Tidemark: "
                                     f"{_WITHOUT_COUNTERPART[field.name]}")
    if (getattr(args, "mesh", None) is None) != (getattr(args, "mesh_axes", None) is None):
        raise InvalidArgumentError(f"'{name}' has one of mesh and mesh_axes: give both, or a sharding")


def _sharding_of(args: Any, name: str) -> Any:
    sharding = getattr(args, "sharding", None)
    if sharding is None:
        mesh = getattr(args, "mesh", None)
        return None if mesh is None else jax.sharding.NamedSharding(mesh, args.mesh_axes)
    if not isinstance(sharding, jax.sharding.Sharding):
        raise UnimplementedError(f"'{name}': a {type(sharding).__name__} as sharding has no counterpart in Tidemark: give a "
                                 f"jax.sharding.Sharding")
    return sharding


def like_of(step: Step, item: Any, restore_args: Any, path: str, *, partial: bool = False) -> tuple[Any, set[str]]:
    """What tidemark.jax.load_like restores as, and the names of the arrays that it converts. `item`: the structure; None: as the
    tree was saved. `path`: the name before all entries. partial: `restore_args` may have other leaves that were saved, too.

    InvalidArgumentError: `restore_args` have other leaves than the item. MismatchError: an entry is nothing that they name.
    """
    saved = _reading.kinds_as_saved(step, path)
    by_name = dict(_trees.leaves(restore_args, path))
    for name, args in by_name.items():
        check(args, name)
    wanted = saved if item is None else dict(_trees.leaves(item, path))
    differing = [f"without {name}" for name in wanted if name not in by_name]
    differing += [f"with {name}" for name in by_name if name not in wanted and not (partial and name in saved)]
    if differing:
        raise InvalidArgumentError(f"restore_args must have the leaves of the item, and are {', '.join(differing)}")
    converted: set[str] = set()

    def like(name: str, leaf: Any) -> Any:
        if name not in saved:
            return leaf  # load_like says that it is missing
        return _like(step, name, leaf, saved[name], by_name[name], converted)

    if item is None:
        return _reading.tree_as_saved(step, path, lambda _, name: like(name, None)), converted
    structure = jax.tree_util.tree_structure(item)
    return jax.tree_util.tree_unflatten(structure, [like(name, leaf) for name, leaf in wanted.items()]), converted


def _like(step: Step, name: str, leaf: Any, kind: str, args: Any, converted: set[str]) -> Any:
    if kind == "object" and leaf is None:
        raise InvalidArgumentError(f"'{name}' is an object with state, which only a Checkpointer restores")
    if kind not in ("np", "jax"):
        value = step.get_value(name)
        if args.restore_type is not None and not isinstance(value, args.restore_type):
            raise _misfit(step, name, f"was saved as {type(value).__name__}, and restore_type is {_name_of(args.restore_type)}",
                          "retyped")
        return 0 if leaf is None else leaf
    restore_type = {"np": numpy.ndarray, "jax": jax.Array}[kind] if args.restore_type is None else args.restore_type
    if restore_type not in (numpy.ndarray, jax.Array):
        raise _misfit(step, name, f"was saved as an array, and restore_type is {_name_of(restore_type)}", "retyped")
    stored = step.get_slice(name)
    shape, dtype = tuple(stored.get_shape()), arrays.numpy_dtype(stored.get_dtype())
    sharding = _sharding_of(args, name)
    impl = _reading.key_impl_of(step, name)
    shapes = [shape]
    if impl is not None:
        key = jax.eval_shape(lambda: jax.random.key(0, impl=impl))
        data = jax.eval_shape(jax.random.key_data, key)
        shapes.append(shape[:len(shape) - len(data.shape)])  # of the keys
        if restore_type is numpy.ndarray or args.dtype not in (None, key.dtype, data.dtype):
            raise _misfit(step, name, "has keys of jax.random, which are no other array", "retyped")
        shape, dtype = shapes[1], key.dtype
    given = getattr(args, "global_shape", None)
    if given is not None and tuple(given) not in shapes:
        raise _misfit(step, name, f"has the shape {list(shape)}, and global_shape is {list(given)}", "reshaped")
    if impl is None and args.dtype is not None:
        if arrays.numpy_dtype(numpy.dtype(args.dtype).name) != dtype:
            converted.add(name)
        dtype = numpy.dtype(args.dtype)
    elif impl is None and hasattr(leaf, "dtype"):
        dtype = leaf.dtype
    if hasattr(leaf, "shape"):
        shape = tuple(leaf.shape)
    if restore_type is numpy.ndarray:
        if sharding is not None:
            raise InvalidArgumentError(f"'{name}' has a sharding, and is restored as an array of NumPy, which has none")
        return numpy.broadcast_to(numpy.empty((), dtype), shape)  # without memory of that size
    abstract: Any = jax.ShapeDtypeStruct
    return abstract(shape, dtype, sharding=sharding if sharding is not None else getattr(leaf, "sharding", None))


def _name_of(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind)).rpartition(".")[2]


def _misfit(step: Step, name: str, what: str, how: str) -> MismatchError:
    return MismatchError(f"step {step.info.step} does not fit restore_args: '{name}' {what}", **{how: [name]})
