"""What to save and restore, by the names of orbax.checkpoint.args. Immutable.

A field that has no counterpart here must be left at its default: everything else is UnimplementedError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import ItemsView, KeysView
from typing import Any, ClassVar

from ..errors import UnimplementedError


class CheckpointArgs:
    """The base of all of them. `kind`: what is stored, the same for a pair of save and restore."""

    kind: ClassVar[str] = ""
    _without_counterpart: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if field.name in self._without_counterpart and getattr(self, field.name) is not field.default:
                raise UnimplementedError(f"{type(self).__name__}.{field.name} has no counterpart in Tidemark")


@dataclasses.dataclass(frozen=True)
class StandardSave(CheckpointArgs):
    """A pytree."""

    item: Any
    save_args: Any = None
    custom_metadata: Any = None
    kind = "tree"
    _without_counterpart = ("save_args", "custom_metadata")


@dataclasses.dataclass(frozen=True)
class StandardRestore(CheckpointArgs):
    """A pytree, as `item` is: see `tidemark.jax.restore`. Without it, as `tidemark.jax.load` without `like`."""

    item: Any = None
    strict: bool = True
    support_layout: bool = False
    fallback_sharding: Any = None
    kind = "tree"
    _without_counterpart = ("strict", "support_layout", "fallback_sharding")


@dataclasses.dataclass(frozen=True)
class PyTreeSave(CheckpointArgs):
    """A pytree."""

    item: Any
    save_args: Any = None
    ocdbt_target_data_file_size: int | None = None
    kind = "tree"
    _without_counterpart = ("save_args", "ocdbt_target_data_file_size")


@dataclasses.dataclass(frozen=True)
class PyTreeRestore(CheckpointArgs):
    """A pytree, as `item` is. partial_restore: the checkpoint may have more. restore_args: a tree with the leaves of `item`, or
    without it those that were saved, each an ArrayRestoreArgs or a RestoreArgs of tidemark.orbax or of Orbax."""

    item: Any = None
    restore_args: Any = None
    transforms: Any = None
    transforms_default_to_original: bool = True
    legacy_transform_fn: Any = None
    partial_restore: bool = False
    kind = "tree"
    _without_counterpart = ("transforms", "transforms_default_to_original", "legacy_transform_fn")


@dataclasses.dataclass(frozen=True)
class ArraySave(CheckpointArgs):
    """One array."""

    item: Any
    save_args: Any = None
    kind = "array"
    _without_counterpart = ("save_args",)


@dataclasses.dataclass(frozen=True)
class ArrayRestore(CheckpointArgs):
    """One array, as `item` is if there is one. restore_args: an ArrayRestoreArgs or a RestoreArgs."""

    item: Any = None
    restore_args: Any = None
    kind = "array"


@dataclasses.dataclass(frozen=True)
class JaxRandomKeySave(CheckpointArgs):
    """A key, or an array of keys, of jax.random.key or jax.random.PRNGKey."""

    item: Any
    kind = "array"


@dataclasses.dataclass(frozen=True)
class JaxRandomKeyRestore(CheckpointArgs):
    """What JaxRandomKeySave saved."""

    item: Any = None
    kind = "array"


@dataclasses.dataclass(frozen=True)
class JsonSave(CheckpointArgs):
    """A value of dicts with strings as keys, lists, strings, numbers and None."""

    item: Any
    kind = "json"


@dataclasses.dataclass(frozen=True)
class JsonRestore(CheckpointArgs):
    """What JsonSave saved. `item` is not looked at."""

    item: Any = None
    kind = "json"


class Composite(CheckpointArgs):
    """Named items: those to save or restore, or those that were restored. Read by attribute or by index."""

    def __init__(self, **items: Any) -> None:
        self._items = dict(items)

    def __post_init__(self) -> None:
        pass

    def __getitem__(self, name: str) -> Any:
        if name not in self._items:
            raise KeyError(f"there is no item '{name}' among {sorted(self._items)}")
        return self._items[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._items:
            raise AttributeError(name)
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __len__(self) -> int:
        return len(self._items)

    def keys(self) -> KeysView[str]:
        """The names of the items."""
        return self._items.keys()

    def items(self) -> ItemsView[str, Any]:
        """Pairs of a name and its item."""
        return self._items.items()

    def get(self, name: str, default: Any = None) -> Any:
        """The item of that name, or `default`."""
        return self._items.get(name, default)

    def __repr__(self) -> str:
        return f"Composite({self._items})"
