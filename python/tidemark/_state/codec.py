"""Values as text: JSON that says what plain JSON cannot. Reading never imports or calls anything by name: pickled.py does,
for the keys that ask for it.

A value that JSON knows is itself. Every other one is an object with one key, "$" and the kind:

  {"$float": "nan"}  {"$int": "0x..."}  {"$complex": [real, imag]}  {"$str": base64}  {"$bytes": base64}  {"$bytearray": base64}
  {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}  {"$deque": [[...], maxlen]}
  {"$dict": [[key, value], ...]}  and so "$OrderedDict" and "$Counter"  {"$defaultdict": [factory, [[key, value], ...]]}
  {"$scalar": [dtype, base64]}  {"$array": name}  {"$registered": [name, value]}  {"$pickled": base64}

`$int` is an integer of more than 1920 bits, whose decimal text Python may refuse to make, `$str` a text that UTF-8 does not
have, `$scalar` a number of NumPy, `$array` names an entry of the checkpoint, and `$registered` a codec that this process has
registered. A factory is null or the name of one of Python's types. The kinds of values.py are beside these. Other languages
have the text.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import datetime
import enum
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from .._arguments import is_text as is_text
from .._arguments import text, wrong
from ..errors import DataLossError, Error, InvalidArgumentError, UnsupportedTypeError
from . import values
from .arrays import refuse_jax

# Begins every stored text that is such JSON. A string of the user that begins with it is stored as JSON too.
MARK = "tidemark.value.1\n"
# sys.int_info.str_digits_check_threshold is 640 digits, of more than 3 bits each.
DECIMAL_BITS_MAX = 1920

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
# What reading raises on text that no save has written.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_DICTS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "$dict": dict, "$OrderedDict": collections.OrderedDict, "$Counter": collections.Counter}
_FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)}
_registered: dict[type, tuple[str, Encode]] = {}
_decoders: dict[str, Decode] = {}


def register(kind: type, encode: Encode, decode: Decode, name: str | None = None) -> None:
    """Makes objects of exactly the class `kind` storable.

    `encode(object)` returns scalars, strings, bytes or containers of them. `decode` makes an object of what it returned.
    `name` is written to the checkpoint, and must be registered when it is read; the default is the module and the name of
    the class. A second registration of a class or a name replaces the first.

    A save raises what `encode` raises. If `decode` raises, the restore raises a DataLossError. If the checkpoint has a name that
    is not registered, the restore raises an UnsupportedTypeError.
    """
    if not isinstance(kind, type):
        raise wrong(kind, "kind", "a class")
    for function, argument in ((encode, "encode"), (decode, "decode")):
        if not callable(function):
            raise wrong(function, argument, "a function")
    name = text(name or f"{kind.__module__}.{kind.__qualname__}", "name")
    _registered[kind] = (name, encode)
    _decoders[name] = decode


def is_registered(value: object) -> bool:
    return type(value) in _registered


def is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def unsupported(path: str, value: object) -> UnsupportedTypeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind == "tidemark._state.pickled.Pickled":
        return UnsupportedTypeError(f"'{path}' is a tidemark.Pickled where none can be: put it into a dict, list, tuple or "
                                    f"dataclass of the state, and not into a set, a key, or what state_dict() returns")
    if kind.startswith("torch.utils.data."):
        return UnsupportedTypeError(
            f"'{path}' is a {kind}, which has no state_dict() and cannot be stored. Store what its order follows from: the "
            f"torch.Generator that it is given, and the epoch, for set_epoch()")
    if isinstance(value, type):
        way_out = "call it: tidemark.rng()" if value.__module__ == "tidemark._state.rng" else "store its name, or an object of it"
        name = f"{value.__module__}.{value.__qualname__}"
        return UnsupportedTypeError(f"'{path}' is the class {name} itself, which cannot be stored: {way_out}")
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return UnsupportedTypeError(
            f"'{path}' is a {kind} with the tzinfo {value.tzinfo!r:.60}, which cannot be stored. Store "
            f"value.astimezone(datetime.timezone.utc), or register a codec with "
            f"tidemark.register(datetime.datetime, encode, decode)")
    if isinstance(value, enum.Enum):
        return UnsupportedTypeError(
            f"'{path}' is a {kind}, an Enum, which cannot be stored. Store its value, or register a codec for its class: "
            f"tidemark.register({type(value).__qualname__}, lambda member: member.value, {type(value).__qualname__})")
    if is_named_tuple(value):
        return UnsupportedTypeError(
            f"'{path}' is a {kind}, a named tuple: state_dict() must not return one. Have it return a dict, "
            f"value._asdict(), or register a codec for its class with tidemark.register({kind}, encode, decode)")
    if type(value) is collections.defaultdict:
        return UnsupportedTypeError(
            f"'{path}' is a collections.defaultdict with the factory {value.default_factory!r}, which cannot be stored. Make it "
            f"a dict, dict(value), give it one of {', '.join(_FACTORIES)} as its factory, or register a codec with "
            f"tidemark.register(collections.defaultdict, encode, decode)")
    return UnsupportedTypeError(
        f"'{path}' is a {kind}, which cannot be stored. Register a codec with tidemark.register({kind}, encode, decode), "
        f"give the object state_dict() and load_state_dict(), leave it out of the state, or have it pickled, which only code "
        f"that trusts the checkpoint can read: tidemark.Pickled(object)")


def _under(path: str, key: object) -> str:
    return f"{path}.{hex(key) if type(key) is int and key.bit_length() > DECIMAL_BITS_MAX else key}"


def encode(value: object, path: str, array: Callable[[object, str], bool]) -> Any:
    """The value as what json.dumps takes. `array(value, path)` tells whether it has taken the value as an entry."""
    if value is None or value is True or value is False:
        return value
    if type(value) is int:
        # Python converts no integer of more than 4,300 digits to decimal text, and none of 640 by its strictest setting.
        return value if value.bit_length() <= DECIMAL_BITS_MAX else {"$int": hex(value)}
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
    if type(value) is collections.deque:
        return {"$deque": [[encode(item, f"{path}.{i}", array) for i, item in enumerate(value)], value.maxlen]}
    if type(value) in (set, frozenset):
        items = [encode(item, path, array) for item in value]  # type: ignore[attr-defined]
        return {f"${type(value).__name__}": sorted(items, key=json.dumps)}
    if type(value) in (dict, collections.OrderedDict, collections.Counter):
        plain = type(value) is dict and all(
            type(key) is str and not key.startswith("$") and is_text(key) for key in value)
        if plain:
            return {key: encode(item, f"{path}.{key}", array) for key, item in value.items()}  # type: ignore[attr-defined]
        return {f"${type(value).__name__}": [[encode(key, path, array), encode(item, _under(path, key), array)]
                                             for key, item in value.items()]}  # type: ignore[attr-defined]
    if type(value) is collections.defaultdict:
        factory = value.default_factory
        if factory is None or factory in _FACTORIES.values():
            return {"$defaultdict": [None if factory is None else factory.__name__,
                                     [[encode(key, path, array), encode(item, _under(path, key), array)]
                                      for key, item in value.items()]]}
    scalar: Any = value
    if type(value).__module__ in ("numpy", "ml_dtypes") and hasattr(value, "dtype") and scalar.shape == ():
        # A scalar of NumPy: a number with a width.
        spelling = values.spelling_of(scalar.dtype)
        if spelling is not None:
            return {"$scalar": [spelling, base64.b64encode(scalar.tobytes()).decode()]}
    refuse_jax(value, path, writable=False)
    found = values.to_inner(value)
    if found is not None:
        kind, inner = found
        return {kind: encode(inner, path, array)}
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
    if kind == "$int":
        return int(content, 16)
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
    if kind == "$deque":
        items, maxlen = content
        return collections.deque([decode(item, arrays) for item in items], maxlen)
    if kind == "$defaultdict":
        factory, items = content
        return collections.defaultdict(None if factory is None else _FACTORIES[factory],
                                       {decode(key, arrays): decode(item, arrays) for key, item in items})
    if kind in _DICTS:
        return _DICTS[kind]({decode(key, arrays): decode(item, arrays) for key, item in content})
    if kind == "$array":
        return arrays(content)
    if kind == "$scalar":
        import numpy

        spelling, data = content
        dtype = values.dtype_of(spelling)
        if dtype.itemsize == 0:  # an empty text or bytes, which frombuffer does not read
            return numpy.zeros((), dtype)[()]
        try:
            return numpy.frombuffer(base64.b64decode(data), dtype=dtype, count=1)[0]
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
    if values.is_kind(kind):
        return values.from_inner(kind, decode(content, arrays))
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
    with refusing_depth(path):
        return "string", to_text(encode(value, path, lambda value, path: False))


@contextlib.contextmanager
def refusing_depth(path: str) -> Iterator[None]:
    """InvalidArgumentError: what is encoded meanwhile contains itself, or is as good as endless."""
    try:
        yield
    except RecursionError:
        raise InvalidArgumentError(f"'{path}' is nested deeper than Python can follow, or contains itself") from None


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
