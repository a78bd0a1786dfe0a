"""Arguments of the package's calls. One of a wrong type is an InvalidArgumentError that names it, and the type that it needs."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .errors import InvalidArgumentError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_SHOWN = 60  # characters of a wrong value


def wrong(value: Any, name: str, needed: str) -> InvalidArgumentError:
    kind = type(value).__qualname__
    try:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    except Exception:  # of an int with more digits than Python prints, or of a class of the caller
        shown = "a value without a repr()"
    return InvalidArgumentError(f"{name} is {shown}, {'an' if kind[0] in 'aeioAEIO' else 'a'} {kind}: it must be {needed}")


def integer(value: Any, name: str) -> int:
    """An int, also one of NumPy, but no bool and no float."""
    found = _index(value)
    if found is None:
        raise wrong(value, name, "an int")
    if not -2**63 <= found < 2**63:
        raise wrong(value, name, "an int from -2^63 to 2^63 - 1")
    return found


def size(value: Any, name: str) -> int:
    """The same, and not negative."""
    found = _index(value)
    if found is None or not 0 <= found < 2**64:
        raise wrong(value, name, "an int from 0 to 2^64 - 1")
    return found


def _index(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def integer_or_none(value: Any, name: str) -> int | None:
    return None if value is None else integer(value, name)


def number(value: Any, name: str) -> float:
    """A float, or what is one by float(): an int, a scalar of NumPy, a tensor of one element; no text."""
    if not isinstance(value, (str, bytes, bytearray)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            pass
    raise wrong(value, name, "a number")


def seconds(value: Any, name: str) -> float:
    """A number that is not NaN, which would be no time at all: also one below 0 or an infinite one."""
    try:
        found = number(value, name)
    except InvalidArgumentError:
        found = math.nan
    if math.isnan(found):
        raise wrong(value, name, "a number of seconds")
    return found


def seconds_or_none(value: Any, name: str) -> float | None:
    return None if value is None else seconds(value, name)


def flag(value: Any, name: str) -> bool:
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool":
        return bool(value)
    raise wrong(value, name, "a bool")


def text(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    raise wrong(value, name, "a str")


def text_or_none(value: Any, name: str) -> str | None:
    return None if value is None else text(value, name)


def closest(name: str, known: Iterable[str], likeness: float = 0.0) -> str:
    """The known name that is closest; empty: none has this `likeness`, from 0 to 1."""
    import difflib

    return "".join(difflib.get_close_matches(name, known, 1, likeness))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """": did you mean 'KNOWN'?", of the known name that is closest; empty: none is close."""
    close = closest(name, known, 0.6)
    return f": did you mean '{close}'?" if close else ""


_BEST = {"min": "lowest", "max": "highest"}


def mode(value: Any, name: str, of: str = "") -> str:
    """"lowest", "highest" or "". `of`: what the mode is for, for the message."""
    found = text(value, name)
    if found in ("", "lowest", "highest"):
        return found
    meant = f": did you mean '{_BEST[found]}'?" if found in _BEST else ""
    raise InvalidArgumentError(f"{name} is '{found}', not 'lowest' or 'highest'{f', {of}' if of else ''}{meant}")


def selector(step: Any) -> str:
    """A step as the library takes it: a number or "latest", "best:METRIC" and so on, which it checks itself."""
    found = str(step)
    if found.startswith("best:") and found.rpartition(":")[2] in _BEST:
        metric, _, word = found.removeprefix("best:").rpartition(":")
        raise InvalidArgumentError(f"step is '{found}': did you mean 'best:{metric}:{_BEST[word]}'?")
    return found


def json_text(value: Any, name: str) -> str:
    """A text as it is, or a dict as the JSON object that it is. InvalidArgumentError: JSON cannot hold something of it; the
    message has the key."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        raise wrong(value, name, "a dict, or a str that is a JSON object")
    import json

    return json.dumps(json_value(value, name), allow_nan=False)


def json_value(value: Any, name: str) -> Any:
    """The value in dicts, lists and values that JSON has. InvalidArgumentError as of `json_text`."""
    try:
        return _json(value, name)
    except RecursionError:
        raise InvalidArgumentError(f"{name} is nested deeper than Python can follow, or contains itself") from None


def _json(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and is_text(value)):
        return value
    if isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError:
            raise wrong(value, name, "an int with no more digits than Python prints") from None
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not is_text(key):
                raise wrong(key, f"a key of {name}", "a str without surrogates")
        return {key: _json(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item, f"{name}[{i}]") for i, item in enumerate(value)]
    raise wrong(value, name, "what JSON can hold: None, a bool, an int, a finite float, a str without surrogates, a list or dict "
                             "of these")


def is_text(value: str) -> bool:
    """Whether UTF-8 has it: not if it has a half of a surrogate pair."""
    if value.isascii():
        return True
    try:
        value.encode()
        return True
    except UnicodeEncodeError:
        return False


def path(value: Any, name: str) -> str:
    """A path, with the home directory for a "~" at its begin. An address such as "s3://bucket/run" is none, also as a
    pathlib.Path, which has one of its slashes."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if found == "":  # which would be the current directory
        raise InvalidArgumentError(f"{name} is empty: it must be the path of a file or folder")
    if isinstance(found, str):
        if _SCHEME.match(found):
            raise InvalidArgumentError(f"{name} is {found!r}, an address: it must be the path of a file or folder. Mount what is "
                                       f"there, and give the path of the mount")
        return os.path.expanduser(found)
    raise wrong(value, name, "a str or an os.PathLike of a str")


def path_or_empty(value: Any, name: str) -> str:
    return "" if isinstance(value, str) and not value else path(value, name)


def elements(value: Any, name: str, of: str) -> list[Any]:
    """The elements of a sequence of `of`, such as "patterns". One text is none, though Python would take its characters."""
    if isinstance(value, (str, bytes)):
        raise InvalidArgumentError(f"{name} is one string, not a sequence of {of}: ({value!r},)")
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return list(value)
    raise wrong(value, name, f"a sequence of {of}")


def patterns(value: Any, name: str) -> list[str]:
    return [text(one, f"{name}[{i}]") for i, one in enumerate(elements(value, name, "patterns"))]


def integers(value: Any, name: str) -> list[int]:
    return [integer(one, f"{name}[{i}]") for i, one in enumerate(elements(value, name, "ints"))]


def renames(value: Any, name: str) -> list[tuple[str, str]]:
    """Pairs of names."""
    found = []
    for i, pair in enumerate(elements(value, name, "pairs (name in the checkpoint, name in the state)")):
        if not isinstance(pair, Sequence) or isinstance(pair, (str, bytes)) or len(pair) != 2:
            raise wrong(pair, f"{name}[{i}]", "a pair (name in the checkpoint, name in the state)")
        found.append((text(pair[0], f"{name}[{i}][0]"), text(pair[1], f"{name}[{i}][1]")))
    return found


def function_of(value: Any, name: str) -> Callable[..., Any]:
    if callable(value):
        return value  # type: ignore[no-any-return]
    raise wrong(value, name, "a function")


def function_or_none(value: Any, name: str) -> Callable[..., Any] | None:
    return None if value is None else function_of(value, name)


def metrics(value: Any, name: str = "metrics") -> dict[str, float]:
    """None: there are none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong(value, name, "a dict of numbers by name")
    return {text(key, f"a key of {name}"): number(one, f"{name}[{key!r}]") for key, one in value.items()}


Kind = Callable[[Any, str], Any]


def typed(kinds: Mapping[str, Kind], values: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """Those of the `values` that are in `kinds`, each as its kind returns it. `of`: goes before each name, such as "tuning."."""
    return {name: kind(values[name], f"{of}{name}") for name, kind in kinds.items()}
