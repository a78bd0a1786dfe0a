"""Values as text: JSON that says what plain JSON cannot. Reading never imports or calls anything by name: _pickled.py does,
for the keys that ask for it.

A value that JSON knows is itself. Every other one is an object with one key, "$" and the kind:

  {"$float": "nan"}  {"$tuple": [...]}  {"$bytes": base64}  {"$dict": [[key, value], ...]}  {"$array": name}

and so on. `$array` names an entry of the checkpoint, and `$registered` a codec that this process has registered.
"""

from __future__ import annotations

import base64
import collections
import json
import math
import re
from collections.abc import Callable
from typing import Any

from .errors import DataLossError, Error, UnsupportedTypeError

# Begins every stored text that is such JSON. A string of the user that begins with it is stored as JSON too.
MARK = "tidemark.value.1\n"

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
# What reading raises on text that no save has written.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
# The dtypes of NumPy's scalars: one number, or a text, bytes or a time of a size that the spelling has.
_SCALAR = re.compile(r"[<>|=]?([biufc?]\d{0,2}|[SUV]\d{1,6}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")
_DICTS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "$dict": dict, "$OrderedDict": collections.OrderedDict, "$Counter": collections.Counter}
_registered: dict[type, tuple[str, Encode]] = {}
_decoders: dict[str, Decode] = {}


def register(kind: type, encode: Encode, decode: Decode, name: str | None = None) -> None:
    """Makes objects of exactly the class `kind` storable.

    `encode(object)` returns scalars, strings, bytes or containers of them. `decode` makes an object of what it returned.
    `name` is written to the checkpoint, and must be registered when it is read; the default is the module and the name of
    the class. A second registration of a class or a name replaces the first.
    """
    name = name or f"{kind.__module__}.{kind.__qualname__}"
    _registered[kind] = (name, encode)
    _decoders[name] = decode


def is_registered(value: object) -> bool:
    return type(value) in _registered


def unsupported(path: str, value: object) -> UnsupportedTypeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind == "tidemark._pickled.Pickled":
        return UnsupportedTypeError(f"'{path}' is a tidemark.Pickled where none can be: put it into a dict, list, tuple or "
                                    f"dataclass of the state, and not into a set, a key, or what state_dict() returns")
    if kind.startswith("jaxlib."):
        return UnsupportedTypeError(f"'{path}' is a {kind}: save arrays of JAX with tidemark.jax.save")
    if kind.startswith("torch.utils.data."):
        return UnsupportedTypeError(
            f"'{path}' is a {kind}, which has no state_dict() and cannot be stored. Store what its order follows from: the "
            f"torch.Generator that it is given, and the epoch, for set_epoch()")
    return UnsupportedTypeError(
        f"'{path}' is a {kind}, which cannot be stored. Register a codec with tidemark.register({kind}, encode, decode), "
        f"give the object state_dict() and load_state_dict(), leave it out of the state, or have it pickled, which only code "
        f"that trusts the checkpoint can read: tidemark.Pickled(object)")


def encode(value: object, path: str, array: Callable[[object, str], bool]) -> Any:
    """The value as what json.dumps takes. `array(value, path)` tells whether it has taken the value as an entry."""
    if value is None or value is True or value is False or type(value) is int:
        return value
    if type(value) is str:
        # Two halves of a pair side by side would come back from JSON as one character.
        return value if is_text(value) else {"$str": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if is_registered(value):
        name, encoder = _registered[type(value)]
        return {"$registered": [name, encode(encoder(value), path, array)]}
    if array(value, path):
        return {"$array": path}
    if type(value) in (bytes, bytearray):
        kind = "$bytes" if type(value) is bytes else "$bytearray"
        return {kind: base64.b64encode(value).decode()}  # type: ignore[arg-type]
    if type(value) is complex:
        return {"$complex": [repr(value.real), repr(value.imag)]}
    if type(value) is list:
        return [encode(item, f"{path}.{i}", array) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"$tuple": [encode(item, f"{path}.{i}", array) for i, item in enumerate(value)]}
    if type(value) in (set, frozenset):
        items = [encode(item, path, array) for item in value]  # type: ignore[attr-defined]
        return {f"${type(value).__name__}": sorted(items, key=json.dumps)}
    if type(value) in (dict, collections.OrderedDict, collections.Counter):
        plain = type(value) is dict and all(
            type(key) is str and not key.startswith("$") and is_text(key) for key in value)
        if plain:
            return {key: encode(item, f"{path}.{key}", array) for key, item in value.items()}  # type: ignore[attr-defined]
        return {f"${type(value).__name__}": [[encode(key, path, array), encode(item, f"{path}.{key}", array)]
                                             for key, item in value.items()]}  # type: ignore[attr-defined]
    scalar: Any = value
    if type(value).__module__ == "numpy" and hasattr(value, "dtype") and scalar.shape == ():
        # A scalar of NumPy: a number with a width.
        return {"$scalar": [scalar.dtype.str, base64.b64encode(scalar.tobytes()).decode()]}
    raise unsupported(path, value)


def once(arrays: Callable[[str], object]) -> Callable[[str], object]:
    """`arrays`, which refuses to read an array twice. A text that no save has written could else name one array so often
    that the copies take any amount of memory."""
    read: set[str] = set()

    def array(name: str) -> object:
        if name in read:
            raise DataLossError(f"a stored value has the array '{name}' twice")
        read.add(name)
        return arrays(name)

    return array


def decode(value: Any, arrays: Callable[[str], object]) -> Any:
    """The opposite of `encode`. `arrays(name)` returns the array of that entry. Raises errors of tidemark and UNREADABLE."""
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        kind, content = next(iter(value.items()))
        if kind.startswith("$"):
            return _decode_kind(kind, content, arrays)
    return {key: decode(item, arrays) for key, item in value.items()}


def _decode_kind(kind: str, content: Any, arrays: Callable[[str], object]) -> Any:
    if kind == "$float":
        return float(content)
    if kind == "$str":
        return base64.b64decode(content).decode("utf-8", "surrogatepass")
    if kind == "$tuple":
        return tuple(decode(item, arrays) for item in content)
    if kind == "$bytes":
        return base64.b64decode(content)
    if kind == "$bytearray":
        return bytearray(base64.b64decode(content))
    if kind == "$complex":
        return complex(float(content[0]), float(content[1]))
    if kind == "$set":
        return {decode(item, arrays) for item in content}
    if kind == "$frozenset":
        return frozenset(decode(item, arrays) for item in content)
    if kind in _DICTS:
        return _DICTS[kind]({decode(key, arrays): decode(item, arrays) for key, item in content})
    if kind == "$array":
        return arrays(content)
    if kind == "$scalar":
        import numpy

        spelling, data = content
        if not _SCALAR.fullmatch(spelling):
            raise DataLossError(f"a stored value has the dtype '{spelling}', which is none of a number of NumPy")
        try:
            return numpy.frombuffer(base64.b64decode(data), dtype=numpy.dtype(spelling), count=1)[0]
        except SystemError as error:  # numbers beyond Unicode in a text
            raise DataLossError(f"a stored value of the dtype '{spelling}' cannot be read: {error}") from error
    if kind == "$pickled":
        raise UnsupportedTypeError("a value of the checkpoint was pickled, and can be read by a tidemark.Pickled only")
    if kind == "$registered":
        name, inner = content
        if name not in _decoders:
            raise UnsupportedTypeError(f"the checkpoint has an object of the codec '{name}', which is not registered: "
                                       f"call tidemark.register before the restore")
        found = decode(inner, arrays)
        try:
            return _decoders[name](found)
        except Error:
            raise
        except Exception as error:
            raise DataLossError(f"the codec '{name}' cannot read what the checkpoint has: {error!r}") from error
    raise DataLossError(f"the checkpoint has a value of the unknown kind '{kind}'")


def to_text(encoded: Any) -> bytes:
    return (MARK + json.dumps(encoded, allow_nan=False, separators=(",", ":"))).encode()


def to_entry(value: object, path: str) -> tuple[str, bytes]:
    """The kind of the entry that holds a value without arrays, and its bytes."""
    if type(value) is bool:
        return "bool", bytes([value])
    if type(value) is int and -(2**63) <= value < 2**63:
        return "int64", value.to_bytes(8, "little", signed=True)
    if type(value) is float:
        import struct

        return "double", struct.pack("<d", value)
    if type(value) is str and not value.startswith(MARK) and is_text(value):
        return "string", value.encode()
    if type(value) is bytes:
        return "bytes", value
    return "string", to_text(encode(value, path, lambda value, path: False))


def is_text(value: str) -> bool:
    """Whether UTF-8 has it: not if it has a half of a surrogate pair."""
    if value.isascii():
        return True
    try:
        value.encode()
        return True
    except UnicodeEncodeError:
        return False


def from_entry(kind: str, content: bytes, arrays: Callable[[str], object]) -> Any:
    """The value of an entry of that kind. DataLossError: no save has written these bytes."""
    try:
        if kind == "bool":
            return content != b"\0"
        if kind == "int64":
            return int.from_bytes(content, "little", signed=True)
        if kind == "double":
            import struct

            if len(content) != 8:
                raise DataLossError(f"a stored number has {len(content)} bytes, not 8")
            return struct.unpack("<d", content)[0]
        if kind == "bytes":
            return bytes(content)
        text = content.decode()
        if not text.startswith(MARK):
            return text
        return decode(json.loads(text[len(MARK):]), once(arrays))
    except UNREADABLE as error:
        if isinstance(error, Error):
            raise
        raise DataLossError(f"a stored value cannot be read: {error}") from error
