"""Where in a state the entry of a name comes from, for the error of two that have one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ..errors import InvalidArgumentError
from . import codec
from .containers import holds_places, is_filled_whole, is_record, is_sequence


def shared_name(state: Any, name: str) -> InvalidArgumentError:
    """The error of two places of the state whose entries would have this name."""
    places = list(_places(state, "", "state", name))
    if len(places) > 1:
        return InvalidArgumentError(f"{places[0]} and {places[1]} would both be stored as '{name}': the parts of a path are "
                                    f"joined by dots. Rename one of the keys")
    of = f" of {places[0]}" if places else ""
    return InvalidArgumentError(f"two entries{of} would both be stored as '{name}': give one of them another name")


def _places(value: Any, path: str, spelled: str, name: str) -> Iterator[str]:
    """The expressions of Python for the leaves of the state that have an entry of the name."""
    if path and not (name == path or name.startswith(f"{path}.")):
        return
    prefix = f"{path}." if path else ""
    if path and (codec.is_registered(value) or not holds_places(value) or is_filled_whole(value)):
        if name == path:
            yield spelled
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, f"{prefix}{key}", f"{spelled}[{key!r}]", name)
    elif is_sequence(value):
        for i, item in enumerate(value):
            yield from _places(item, f"{prefix}{i}", f"{spelled}[{i}]", name)
    elif is_record(value):
        for field in dataclasses.fields(value):
            yield from _places(getattr(value, field.name), f"{prefix}{field.name}", f"{spelled}.{field.name}", name)
    else:
        yield spelled  # an array, or an object that has entries beneath its own name
