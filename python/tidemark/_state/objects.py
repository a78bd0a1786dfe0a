"""What a checkpoint has of objects with state."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import DataLossError, Error, InvalidArgumentError
from . import arrays, codec, optimizers
from .parameters import ParameterNames, is_optimizer, refuse_other_groups
from .rng import has_trial, is_torch_generator, left_out_by, try_state

# By the names of entries: kind, dtype, shape, bytes, and whether they are a part of a tensor.
Received = Mapping[str, tuple[str, str, list[int], bytearray, bool]]


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


def misfit(value: Any, path: str, received: Received, parameters: ParameterNames) -> list[str]:
    """Why the optimizer or generator would refuse what is stored, as one text; []: the values alone do not tell. Of other
    objects they never do. What cannot be read is for the restore to find."""
    groups = f"{path}.param_groups."
    own = {name: found for name, found in received.items()
           if found[0] != "tensor" and (name in (path, f"{path}.type") or name.startswith(groups))}

    def stand_in(name: str, framework: str) -> Any:
        """In place of an array, which has not been read: one that a generator of the same kind takes."""
        if is_optimizer(value) or left_out_by(value, framework):
            return None  # the arrays of an optimizer say nothing here
        _, dtype, shape, _, _ = received[name]
        valid = sys.modules["torch"].Generator().get_state() if framework == "pt" else None
        if valid is not None and list(valid.shape) == list(shape):
            return valid
        made = arrays.new_array(framework, dtype, shape)
        made[...] = 0
        return made

    try:
        if is_torch_generator(value) and path in own:
            kind, content = own[path][0], bytes(own[path][3])
            if is_object(kind, content):
                return [f"'{path}' is a generator of PyTorch here, and another object in the checkpoint"]
            try_state(value, codec.from_entry(kind, content, lambda name: None), path)
        elif own and (is_optimizer(value) or has_trial(value)):
            state = state_for(value, path, own, stand_in, parameters)
            if is_optimizer(value):
                refuse_other_groups(value, state, path)
            else:
                try_state(value, state, path)
    except InvalidArgumentError as error:
        return [str(error)]
    except Exception:
        pass
    return []
