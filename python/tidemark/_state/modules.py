"""The names that what a module of PyTorch holds has in a checkpoint, whatever the module is wrapped in.

The parts that torch.compile, FSDP and activation checkpointing put into a name are theirs alone, and are removed wherever
they are. "module." may also be an attribute of the user's. It is removed at the front of a name as often as wrappers lie
around the module: those of DDP, DataParallel and AveragedModel, and every module that has nothing but a child "module".
That second rule also serves wrappers of other libraries, and gives a module of the user's that has nothing else the same
names with DDP and without.

Earlier versions removed one "module." in front of every name. `older_name` does: a step that fits only by these names was
saved by such a version, and a restore takes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..errors import InvalidArgumentError

Names = Callable[[str], str]

_PRIVATE = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
_WRAPPERS = frozenset(("DistributedDataParallel", "DataParallel", "AveragedModel"))
_EXTRA = "_extra_state"


def older_name(name: str) -> str:
    """As earlier versions named what a module holds."""
    parts = [part for part in name.split(".") if part not in _PRIVATE]
    return ".".join(parts[1:] if len(parts) > 1 and parts[0] == "module" else parts)


def names_of(module: Any) -> Names:
    """The function from a key of the module's state_dict(), or the name of a parameter, to the name in a checkpoint."""
    count = _wrappers_around(module)
    front = ["module"] * count

    def bare(name: str) -> str:
        if count == 0 and "._" not in name and not name.startswith("_"):
            return name  # most are so
        parts = [part for part in name.split(".") if part not in _PRIVATE]
        return ".".join(parts[count:] if len(parts) > count and parts[:count] == front else parts)

    return bare


def _wrappers_around(module: Any) -> int:
    """How many of the modules from this one inwards are wrappers that keep the next one as `module`."""
    count = 0
    while True:
        children = getattr(module, "_modules", None)
        if not isinstance(children, dict):
            return count
        inner = next((child for name, child in children.items() if name in _PRIVATE), None)
        if inner is None:
            inner = children.get("module")
            if inner is None or not _is_wrapper(module, children):
                return count
            count += 1
        module = inner


def _is_wrapper(module: Any, children: dict[str, Any]) -> bool:
    if any(kind.__name__ in _WRAPPERS for kind in type(module).__mro__):
        return True
    return len(children) == 1 and not getattr(module, "_parameters", None) and not getattr(module, "_buffers", None)


class ExtraState:
    """What get_extra_state() of a module and its children has returned, by the names of a checkpoint."""

    def __init__(self, module: Any, names: Names, path: str) -> None:
        self.values: dict[str, Any] = {}  # those that are no arrays
        self._module = module
        self._names = names
        self._path = path
        self._keys: dict[str, str] = {}  # the module's own, by name

    def add(self, key: str, value: Any) -> None:
        name = self._names(key)
        if name in self._keys:
            raise InvalidArgumentError(f"'{self._path}' is a module whose {self._keys[name]} and {key} would both have the name "
                                       f"'{self._path}.{name}' in a checkpoint")
        self._keys[name] = key
        self.values[name] = value

    def own(self, loaded: Any) -> dict[str, Any]:
        """What a checkpoint has, by the module's own keys. Earlier versions stored the keys of the module that they saved.
        InvalidArgumentError: the module has no place for some of it."""
        if not isinstance(loaded, dict):
            raise InvalidArgumentError(f"'{self._path}.{_EXTRA}' is the extra state of a module here, and a "
                                       f"{type(loaded).__name__} in the checkpoint")
        found: dict[str, Any] = {}
        for name, value in loaded.items():
            known = next((one for one in (name, self._names(name), older_name(name)) if one in self._keys), None)
            if known is None:
                raise InvalidArgumentError(f"'{self._path}' has no extra state '{name}', which the checkpoint has: its own are "
                                           f"{sorted(self._keys)}")
            found[self._keys[known]] = value
        missing = [name for name, key in self._keys.items() if key not in found]
        if missing:
            logging.getLogger("tidemark").warning("the checkpoint has no extra state %s of '%s': it stays as it is", missing,
                                                  self._path)
        return found

    def load(self, loaded: dict[str, Any]) -> None:
        self._module.load_state_dict(loaded, strict=False)


def is_extra(key: str) -> bool:
    """Whether set_extra_state() takes what the module's state_dict() has at that key."""
    return key.endswith(_EXTRA) and key.rpartition(".")[2] == _EXTRA
