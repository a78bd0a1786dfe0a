"""The types of values beside those of JSON and Python's own containers, as a closed list.

The list has what training states hold and what can be made from text without calling anything that a checkpoint names: the
paths, dates, dtypes, devices and shapes of a run's configuration, which Lightning stores as hyperparameters. The state_dicts of
PyTorch's schedulers, optimizers and GradScaler, of Lightning's loops, of the Trainer of Hugging Face and of torchdata's loaders
need none of them. A class of the user's (an Enum, a named tuple in a state_dict) would have to be imported by name; it, and
what is rare there (UUID, Decimal, Fraction, ZoneInfo), is for tidemark.register.

  {"$path": "a/b"}  {"$date": "2026-01-31"}  {"$datetime": "2026-01-31T12:00:00+00:00"}
  {"$timedelta": [days, seconds, microseconds]}  {"$dtype": "<f4"}
  {"$torch.dtype": "bfloat16"}  {"$torch.device": "cuda:0"}  {"$torch.Size": [2, 3]}

A `$dtype` is NumPy's own spelling, or the name of one of ml_dtypes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from ..errors import DataLossError, UnimplementedError
from . import arrays

# The dtypes of NumPy's scalars: one number, or a text, bytes or a time of a size that the spelling has.
_NUMPY = re.compile(r"[<>|=]?([biufc?]\d{0,2}|[SUV]\d{1,6}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")
_ML_DTYPES = re.compile(r"(bfloat|float|int|uint)\d{1,3}(_\w{1,16})?")
_DEVICE = re.compile(r"[a-z0-9]{1,32}(:(\d|[1-9]\d|1[01]\d|12[0-7]))?")  # PyTorch takes other indices modulo 256


def spelling_of(dtype: Any) -> str | None:
    """What a checkpoint calls a dtype of NumPy. None: it is not the dtype of a number, text, bytes or a time."""
    if dtype.type.__module__ == "ml_dtypes":
        return str(dtype.name)
    return dtype.str if _NUMPY.fullmatch(dtype.str) and dtype.names is None and dtype.subdtype is None else None


def dtype_of(spelling: Any) -> Any:
    """The opposite. DataLossError: no save has written it. UnimplementedError: ml_dtypes is not here, or does not have it."""
    if _NUMPY.fullmatch(spelling):
        import numpy

        return numpy.dtype(spelling)
    if _ML_DTYPES.fullmatch(spelling):
        return arrays.numpy_dtype(spelling)
    raise DataLossError(f"a stored value has the dtype '{spelling}', which is not a dtype of NumPy's numbers, texts and times")


def to_inner(value: Any) -> tuple[str, Any] | None:
    """(kind, what JSON can hold) of a value of one of the types; None: it is of another one."""
    for kind, (module, name, encode, _) in _TYPES.items():
        found = getattr(sys.modules.get(module), name, None)
        if found is not None and (type(value) is found or (kind == "$dtype" and isinstance(value, found))):
            inner = encode(value)
            return None if inner is None else (kind, inner)
    return None


def is_kind(kind: str) -> bool:
    return kind in _TYPES


def from_inner(kind: str, inner: Any) -> Any:
    """The value. Raises errors of tidemark, and what a wrong `inner` makes the types raise."""
    return _TYPES[kind][3](inner)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        raise UnimplementedError("a value of PyTorch cannot be made: install torch") from None
    return torch


def _datetime_text(value: Any) -> str | None:
    """None: the text would lose something, such as the name of a time zone."""
    import datetime

    if value.tzinfo is not None and type(value.tzinfo) is not datetime.timezone:
        return None
    text: str = value.isoformat()
    return text if repr(datetime.datetime.fromisoformat(text)) == repr(value) else None


def _path(text: str) -> Any:
    import pathlib

    return pathlib.Path(text)


def _date(text: str) -> Any:
    import datetime

    return datetime.date.fromisoformat(text)


def _datetime(text: str) -> Any:
    import datetime

    return datetime.datetime.fromisoformat(text)


def _timedelta(parts: Any) -> Any:
    import datetime

    days, seconds, microseconds = parts
    return datetime.timedelta(days, seconds, microseconds)


def _torch_dtype(name: Any) -> Any:
    if name not in arrays.TORCH_DTYPES:
        raise DataLossError(f"a stored value is the dtype '{name}', which PyTorch does not have")
    _torch()
    return arrays.torch_dtype(name)


def _torch_device(text: Any) -> Any:
    if not _DEVICE.fullmatch(text):
        raise DataLossError(f"a stored value is the device '{text}', which is not a device name")
    try:
        return _torch().device(text)
    except RuntimeError as error:
        raise UnimplementedError(f"this PyTorch has no device '{text}': {error}") from None


_Type = tuple[str, str, Callable[[Any], Any], Callable[[Any], Any]]  # module, name, and both ways
_TYPES: dict[str, _Type] = {
    "$path": ("pathlib", "PosixPath", str, _path),
    "$date": ("datetime", "date", lambda value: value.isoformat(), _date),
    "$datetime": ("datetime", "datetime", _datetime_text, _datetime),
    "$timedelta": ("datetime", "timedelta", lambda value: [value.days, value.seconds, value.microseconds], _timedelta),
    "$dtype": ("numpy", "dtype", spelling_of, dtype_of),
    "$torch.dtype": ("torch", "dtype", arrays.torch_name, _torch_dtype),
    "$torch.device": ("torch", "device", str, _torch_device),
    "$torch.Size": ("torch", "Size", list, lambda sizes: _torch().Size(sizes)),
}
