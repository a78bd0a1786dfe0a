"""Pickled: the one way to have a value stored by pickle, key by key."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

from ..errors import DataLossError, UnsupportedTypeError
from . import codec

_BEGIN = (codec.MARK + '{"$pickled":').encode()


class Pickled:
    """A place in a state for an object that only pickle can store: `{"tokenizer": tidemark.Pickled(tokenizer)}`.

    A pickled value can run any code when it is read, so read it only from an author you trust. A restore reads it only if
    the state that it fills has a `Pickled` at the same key: `{"tokenizer": tidemark.Pickled()}`. It sets `value`, also to a
    value that was stored there without pickle. Elsewhere that key is an UnsupportedTypeError, and `tidemark.open` reads it
    with `get_value(name, pickled=True)` only.

    A state may have it in its dicts, lists, tuples and dataclasses. Pickle's bytes may be 768 MiB at most. Arrays inside
    the object are pickled too, so evaluators and other programs do not see them.
    """

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"tidemark.Pickled({self.value!r})"


def to_entry(place: Pickled, path: str) -> tuple[str, bytes]:
    """The kind of the entry that holds the object, and its bytes."""
    try:
        content = pickle.dumps(place.value)
    except Exception as error:
        kind = f"{type(place.value).__module__}.{type(place.value).__qualname__}"
        raise UnsupportedTypeError(f"'{path}' is a {kind}, which pickle cannot store: {error!r}") from error
    return "string", codec.to_text({"$pickled": base64.b64encode(content).decode()})


def is_pickled(kind: str, content: bytes) -> bool:
    return kind == "string" and content.startswith(_BEGIN)


def refuse(kind: str, content: bytes, path: str) -> None:
    """UnsupportedTypeError: the entry was pickled. For readers that do not expect a pickled value."""
    if is_pickled(kind, content):
        raise UnsupportedTypeError(
            f"'{path}' was pickled, and reading it can run any code. If you trust its author, put a "
            f"tidemark.Pickled() at that key of the state, or read it with tidemark.open and get_value('{path}', pickled=True)")


def from_entry(kind: str, content: bytes, path: str) -> Any:
    """The object of an entry that `to_entry` wrote. Runs whatever code the bytes name."""
    try:
        data = base64.b64decode(json.loads(content[len(codec.MARK):])["$pickled"], validate=True)
    except codec.UNREADABLE as error:
        raise DataLossError(f"'{path}' cannot be read: {error}") from error
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        raise UnsupportedTypeError(f"'{path}' was pickled with a class that is not here: {error}") from error
    except Exception as error:
        raise DataLossError(f"pickle cannot read '{path}': {error!r}") from error
