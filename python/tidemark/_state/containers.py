"""What a state is made of: containers that are walked, objects with state, and values."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import types
from collections.abc import Iterator
from typing import Any

from ..errors import InvalidArgumentError, UnsupportedTypeError
from . import arrays, codec
from .boxes import Box, Boxes
from .pickled import Pickled
from .rng import adapter_of, is_torch_generator

# Values whatever else holds, unless a codec is registered for them.
SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes))

# Containers that are values unless they hold something that a restore fills in place. No checkpoint makes an object of another
# class: see `is_derived`.
_VALUE_CONTAINERS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict, list, tuple, collections.deque)


def is_sequence(value: object) -> bool:
    return isinstance(value, (list, tuple, collections.deque))


def like_tuple(value: Any, items: list[Any]) -> Any:
    """A tuple of these items; if `value` is a named one, of its class, whose constructor may take other arguments."""
    return type(value)._make(items) if codec.is_named_tuple(value) else tuple(items)


def has_state(value: object) -> bool:
    return not isinstance(value, type) and all(_has_method(value, name) for name in ("state_dict", "load_state_dict"))


def _has_method(value: object, name: str) -> bool:
    try:
        return callable(getattr(value, name, None))
    except KeyError:  # of a dict whose attributes are its items
        return False


def is_module(value: object) -> bool:
    return has_state(value) and callable(getattr(value, "named_parameters", None))


def is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def is_derived(value: object) -> bool:
    """Whether a restore has to fill it in place, since it is of a class derived from dict, list or deque."""
    return (type(value) not in _VALUE_CONTAINERS and isinstance(value, (dict, list, collections.deque))
            and not codec.is_registered(value))


def is_filled_whole(value: object) -> bool:
    """Whether it is derived and has no places in it: it is one value, of the class from which its own is derived."""
    return is_derived(value) and not _items_hold_places(value, ())


def holds_places(value: object, above: tuple[int, ...] = ()) -> bool:
    """Whether the value is, or contains, something that a restore fills in place."""
    if codec.is_registered(value):
        return False
    if (arrays.is_array(value) or has_state(value) or is_record(value) or adapter_of(value) is not None
            or is_torch_generator(value) or type(value) in (Pickled, Box, Boxes) or arrays.is_jax(value)):
        return True
    return is_derived(value) or codec.is_named_tuple(value) or _items_hold_places(value, above)


def _items_hold_places(value: object, above: tuple[int, ...]) -> bool:
    if id(value) in above:
        raise InvalidArgumentError("a container of the state contains itself")
    items: Any = value.values() if isinstance(value, dict) else value if is_sequence(value) else ()
    above = (*above, id(value))
    for item in items:
        if type(item) not in SCALARS and holds_places(item, above):  # most are scalars, and a list may have a million
            return True
    return False


def plain_copy(value: Any) -> Any:
    """The items of a derived container as a dict, list or deque."""
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else collections.deque(value, value.maxlen)


def refuse_other_content(value: Any, new: Any, path: str) -> None:
    """InvalidArgumentError: `new`, of a checkpoint, is no content for this derived container."""
    if not isinstance(new, dict if isinstance(value, dict) else (list, collections.deque)):
        raise InvalidArgumentError(f"'{path}' is a {type(value).__qualname__} here, and a {type(new).__name__} in the checkpoint")


def fill(value: Any, new: Any, path: str) -> None:
    """Replaces all items of a derived container. InvalidArgumentError: its class refuses them."""
    with _refusals_of(value, path):
        if isinstance(value, list):
            value[:] = new
            return
        value.clear()
        if isinstance(value, dict):
            value.update(new)
        else:
            value.extend(new)


def set_item(value: Any, key: Any, new: Any, path: str) -> None:
    """Replaces an item of a dict, list or deque. InvalidArgumentError: its class refuses that."""
    with _refusals_of(value, path):
        value[key] = new


@contextlib.contextmanager
def _refusals_of(value: Any, path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise InvalidArgumentError(f"'{path}': the class {type(value).__qualname__} refuses what the checkpoint has: "
                                   f"{error!r}") from error


def refuse_attributes(value: Any, path: str) -> None:
    """UnsupportedTypeError: a derived container has attributes, which are not stored."""
    found = _own_attributes(value)
    if found:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        base = "dict" if isinstance(value, dict) else "list" if isinstance(value, list) else "collections.deque"
        raise UnsupportedTypeError(
            f"{repr(path) if path else 'the state'} is a {kind} with the attribute '{found[0]}', and only the items of a class "
            f"derived from {base} are stored. Put {base}(value) and the attributes into the state, give the class state_dict() "
            f"and load_state_dict(), or register a codec with tidemark.register({kind}, encode, decode)")


def _own_attributes(value: Any) -> list[str]:
    """Names. Those of a dict that is its own __dict__ are its items."""
    attributes = _attribute(value, "__dict__")
    slots = [name for kind in type(value).__mro__ if kind not in _VALUE_CONTAINERS for name, member in vars(kind).items()
             if type(member) is types.MemberDescriptorType and _attribute(value, name) is not _MISSING]
    if attributes is _MISSING or attributes is value:
        return slots
    return [*slots, *(name for name in attributes if name != "__orig_class__")]  # Python sets that in an object of Buffer[int]


_MISSING = object()


def _attribute(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)  # __getattr__ may be that of the items
    except AttributeError:
        return _MISSING


class Frozen:
    """In the place of what puts a value into a container: the container is, or lies in, a frozen dataclass of class `kind`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, _: Any) -> None:
        raise InvalidArgumentError(f"a field of {self.kind}, a frozen dataclass, cannot be replaced")


_DEPTH_MAX = 100  # no state is as deep whose containers do not contain themselves, as far as an error's text is concerned


def too_deep(state: Any) -> str:
    """The text of the error for a state that Python cannot walk to its end. It has the key at which the state is so deep."""
    for key, top in items_of(state):
        level = [top]
        for _ in range(_DEPTH_MAX):
            level = [item for value in level for _, item in items_of(value)][:1000]
        if level:
            return f"'{key}' is nested deeper than Python can follow, or contains itself"
    return "the state is nested deeper than Python can follow, or contains itself"


def items_of(value: Any) -> list[tuple[Any, Any]]:
    """What a container holds, by keys, places or fields. Empty: it is none."""
    if isinstance(value, dict):
        return list(value.items())
    if is_sequence(value):
        return list(enumerate(value))
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)] if is_record(value) else []


def copy_of_containers(state: Any) -> Any:
    """The same state in new dicts, lists, tuples and dataclasses. What they hold is not copied."""
    try:
        return _copy(state)
    except RecursionError:
        raise InvalidArgumentError(too_deep(state)) from None


def _copy(value: Any, above: tuple[int, ...] = ()) -> Any:
    if (type(value) in SCALARS or codec.is_registered(value) or arrays.is_array(value) or has_state(value)
            or adapter_of(value) is not None or is_torch_generator(value)):
        return value
    if type(value) is Pickled:
        return Pickled(value.value)
    if type(value) is Box:
        return Box(value.array, value.shape, value.offset)
    if type(value) is Boxes:
        return Boxes([_copy(box) for box in value.boxes])
    if id(value) in above:
        raise InvalidArgumentError("a container of the state contains itself")
    above = (*above, id(value))
    made: Any
    if isinstance(value, dict):
        made = _shallow_copy(value)
        for key, item in value.items():
            new = _copy(item, above)
            if new is not item:
                made[key] = new
        return made
    if is_sequence(value):
        items = [_copy(item, above) for item in value]
        if isinstance(value, tuple):
            if all(new is item for new, item in zip(items, value)):
                return value  # also a torch.Size
            return like_tuple(value, items)
        made = _shallow_copy(value)
        for i, item in enumerate(items):
            if item is not made[i]:
                made[i] = item
        return made
    if is_record(value):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, _copy(getattr(value, field.name), above))
        return made
    return value


def _shallow_copy(value: Any) -> Any:
    if not is_derived(value):
        return copy.copy(value)
    try:
        made = copy.copy(value)
    except Exception as error:
        raise UnsupportedTypeError(f"a {type(value).__qualname__} of the state cannot be copied: {error!r}. Use `restore`, which "
                                   f"fills it in place") from error
    if _attribute(value, "__dict__") is value:
        made.__dict__ = made
    return made
