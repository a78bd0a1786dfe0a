"""What the error of a restore says if the checkpoint does not fit the state."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import _native
from .._state import arrays
from .._state.optimizers import WAY_OUT_OF_STATE_DICT, state_dicts
from .._state.objects import Received
from .._state.pattern import matches
from .._state.tree import Tree
from ..errors import InvalidArgumentError, MismatchError
from .options import TrainerFunction

# The library knows every value of the state as bytes, whatever its type is.
_OF_STATE = re.compile(r"^(  missing in the checkpoint: '.*') bytes$|^(  '.*': kind: .*), state has bytes$", re.M)


def mismatch(error: InvalidArgumentError, tree: Tree, destination: _native.TreeState,
             options: dict[str, Any]) -> InvalidArgumentError:
    """The error of a restore. If the checkpoint does not fit the state: the names of what differs, and the ways out."""
    error = tree.explained(error)
    missing, unexpected, reshaped, retyped = destination.differences()
    if options["only"]:
        missing, reshaped, retyped = ([name for name in names if matches(name, options["only"])]
                                      for names in (missing, reshaped, retyped))
    missing = [] if options["allow_missing"] else missing
    unexpected = [] if options["allow_unexpected"] or options["only"] else unexpected
    if not (missing or unexpected or reshaped or retyped):
        return error
    text = _OF_STATE.sub(lambda found: f"{found[1]} value" if found[1] else f"{found[2]}, state has a value", str(error))
    lines = [text, *_ways_out(missing, unexpected), *_state_dicts_in(tree.state, [*missing, *unexpected])]
    return MismatchError("\n".join(lines), missing, unexpected, reshaped, retyped)


def _ways_out(missing: Sequence[str], unexpected: Sequence[str]) -> list[str]:
    ways = ["allow_missing=True leaves missing entries of the state as they are"] if missing else []
    ways += ["allow_unexpected=True skips unexpected ones"] if unexpected else []
    if ways:
        ways.append("only=[patterns of names] restores a part of the state, and renames=[(name in the checkpoint, name in the "
                    "state)] maps names")
    return ["; ".join(ways)] if ways else []


def _state_dicts_in(state: Any, differing: Sequence[str]) -> list[str]:
    paths = [path for path in state_dicts(state) if not path or any(
        name == path or name.startswith(f"{path}.") or path.startswith(f"{name}.") for name in differing)]
    return [f"'{path}' is the state_dict() of an optimizer: {WAY_OUT_OF_STATE_DICT}" for path in paths]


class StoredEntries:
    """The entries of a step or snapshot as _state.objects.Stored. `entries`: (name, kind, dtype, shape) of each. `content` and
    `array` read one, by its index."""

    def __init__(self, entries: Iterable[Sequence[Any]], renames: Sequence[tuple[str, str]], content: Callable[[int], Any],
                 array: Callable[[int, str, str, list[int]], Any]) -> None:
        self._entries = {_renamed(entry[0], renames): (i, *entry[1:4]) for i, entry in enumerate(entries)}
        self._content = content
        self._array = array

    def values_of(self, path: str) -> Received:
        groups = f"{path}.param_groups."
        return {name: (kind, dtype, shape, self._content(i), False) for name, (i, kind, dtype, shape) in self._entries.items()
                if kind != "tensor" and (name in (path, f"{path}.type") or name.startswith(groups))}

    def array(self, name: str, framework: str) -> Any:
        i, _, dtype, shape = self._entries[name]
        return self._array(i, framework, dtype, shape)


def entries_of_step(directory: str, step: int, renames: Sequence[tuple[str, str]]) -> StoredEntries:
    file = _native.open_step(directory, str(step), False)
    entries = file.entries()

    def array(i: int, framework: str, dtype: str, shape: list[int]) -> Any:
        made = arrays.new_array(framework, dtype, shape)
        if entries[i][4]:
            file.read(i, 0, arrays.address_of(made), entries[i][4])
        return made

    return StoredEntries(entries, renames, file.read_bytes, array)


def _renamed(name: str, renames: Sequence[tuple[str, str]]) -> str:
    for old, new in renames:
        if name == old or name.startswith(f"{old}."):
            return new + name[len(old):]
    return name


class Look:
    """A look at what the checkpoint has for the optimizers and generators of the state, before a restore writes anything: it is
    the restore's `accept`, which is called for the step that comes next. Where a job has ranks, rank 0 alone would look, and so
    none does. `misfits`: what it has found; the restore has then ended, and nothing was written."""

    def __init__(self, directory: str, tree: Tree, options: dict[str, Any]) -> None:
        self.misfits: list[str] = []
        self._directory = directory
        self._tree = tree
        self._options = options

    def function(self) -> TrainerFunction:
        return TrainerFunction(self._accepts, lambda record: record, bool)

    def _accepts(self, record: dict[str, Any]) -> bool:
        accept = self._options["accept"]
        if accept is not None and not accept(record):
            return False
        with contextlib.suppress(Exception):  # the restore finds it, and may take another step
            stored = entries_of_step(self._directory, record["step"], self._options["renames"])
            self.misfits = self._tree.misfits(stored, self._options["only"])
        if self.misfits:
            raise MismatchError("\n".join(self.misfits))
        return True


# No entry has the name, so a restore with it lists what differs, and writes nothing.
_NOTHING = "$tidemark.nothing"


def refuse(misfits: Sequence[str], tree: Tree, destination: _native.TreeState, options: dict[str, Any],
           restore: Callable[[dict[str, Any]], Any]) -> MismatchError:
    """The error that lists the misfits, and all else that differs. `restore` is called with options by which it writes
    nothing."""
    try:
        restore({**options, "renames": [*options["renames"], (_NOTHING, _NOTHING)]})
    except InvalidArgumentError as error:
        found = mismatch(error, tree, destination, options)
        line = f"  rename of '{_NOTHING}' matches no entry of the checkpoint"
        if line in str(found):
            text = str(found).replace(line, "\n".join(f"  {misfit}" for misfit in misfits))
            text = re.sub(r"\b(\d+) differences?:", lambda count: _counted(int(count[1]) + len(misfits) - 1), text, count=1)
            if isinstance(found, MismatchError):
                return MismatchError(text, found.missing, found.unexpected, found.reshaped, found.retyped)
            return MismatchError(text)
    return MismatchError("\n".join(misfits))


def _counted(count: int) -> str:
    return f"{count} difference{'' if count == 1 else 's'}:"
