"""What a checkpoint has of objects with state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import DataLossError, Error, InvalidArgumentError
from . import codec, optimizers
from .parameters import ParameterNames, is_optimizer, refuse_other_groups
from .rng import has_trial, is_torch_generator, left_out_by, try_state

# By the names of entries: kind, dtype, shape, bytes, and whether they are a part of a tensor.
Received = Mapping[str, tuple[str, str, list[int], bytearray, bool]]


class Stored(Protocol):
    """The entries of a step or snapshot, by the names that they have in the state."""

    def values_of(self, path: str) -> Received:
        """Those that are no tensors, of an object at that path, without what an optimizer has for each parameter."""

    def array(self, name: str, framework: str) -> Any:
        """A tensor as an array of NumPy ("np") or PyTorch ("pt")."""


def entry_of(path: str, name: str, by_name: bool) -> str:
    """State of a parameter: "optimizer.encoder.weight.exp_avg", as the C++ library names it."""
    return path + name[len(path + ".state"):] if by_name and name.startswith(path + ".state.") else name


def is_object(kind: str, content: bytes) -> bool:
    """Whether a save has written the entry for an object with state."""
    return kind == "string" and content.startswith((codec.MARK + '{"$object":').encode())


def object_state(kind: str, content: bytes, path: str, array: Callable[[str, str], Any]) -> tuple[Any, bool] | None:
    """What `state_dict` of the object of that entry returned, and whether it has parameters by name, not by index. None:
    the entry is a plain value. `array(entry, framework)` reads an array as one of NumPy ("np") or PyTorch ("pt")."""
    if kind != "string" or not content.startswith(codec.MARK.encode()):
        return None
    try:
        value = json.loads(content[len(codec.MARK):])
        if not isinstance(value, dict) or "$object" not in value:
            return None
        encoded, frameworks, by_name = value["$object"]
        unread = codec.once(lambda entry: entry)  # two names may have one entry

        def read(name: str) -> Any:
            return array(str(unread(entry_of(path, name, by_name))), frameworks[name])

        return codec.decode(encoded, read), bool(by_name)
    except codec.UNREADABLE as error:
        if isinstance(error, Error):
            raise
        raise DataLossError(f"'{path}' cannot be read: {error}") from error


def state_for(value: Any, path: str, received: Received, array: Callable[[str, str], Any], parameters: ParameterNames) -> Any:
    """What `value.load_state_dict` is to be given. InvalidArgumentError: the checkpoint has another object. Raises errors of
    tidemark and codec.UNREADABLE."""

    def no_array(name: str) -> object:
        raise KeyError(name)

    if path in received:
        found = object_state(received[path][0], bytes(received[path][3]), path, array)
        if found is None:
            raise InvalidArgumentError(f"'{path}' is an object with state here, and a value in the checkpoint")
        state, by_name = found
        if not by_name:
            return state
    else:
        state = optimizers.from_entries(
            value, path, received,
            lambda entry: codec.from_entry(received[entry][0], bytes(received[entry][3]), no_array),
            lambda entry: array(entry, "pt"))
    return parameters.by_index(value, state, path)


def misfit(value: Any, path: str, stored: Stored, parameters: ParameterNames) -> list[str]:
    """Why the optimizer or generator would refuse what is stored, as one text; []: nothing tells. Of other objects nothing
    does. What cannot be read is for the restore to find."""
    of_optimizer = is_optimizer(value)
    try:
        if is_torch_generator(value):
            received = stored.values_of(path)
            if path in received:
                kind, content = received[path][0], bytes(received[path][3])
                if is_object(kind, content):
                    return [f"'{path}' is a generator of PyTorch here, and another object in the checkpoint"]
                try_state(value, codec.from_entry(kind, content, lambda name: None), path)
        elif of_optimizer or has_trial(value):
            received = stored.values_of(path)
            if received:
                def array(name: str, framework: str) -> Any:
                    # The tensors of an optimizer say nothing here.
                    return None if of_optimizer or left_out_by(value, framework) else stored.array(name, framework)

                state = state_for(value, path, received, array, parameters)
                if of_optimizer:
                    refuse_other_groups(value, state, path)
                else:
                    try_state(value, state, path)
    except InvalidArgumentError as error:
        return [str(error)]
    except Exception:
        pass
    return []
