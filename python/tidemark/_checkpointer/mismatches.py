"""What the error of a restore says if the checkpoint does not fit the state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .. import _native
from .._state.objects import Received
from .._state.optimizers import WAY_OUT_OF_STATE_DICT, state_dicts
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


class Look:
    """Looks at what a checkpoint has for the optimizers and generators of the state, before a restore writes anything.

    `misfits`: why they would refuse it; the restore has then ended.
    """

    def __init__(self, tree: Tree, only: Sequence[str]) -> None:
        self._tree = tree
        self._only = only
        self.misfits: list[str] = []
        # The native module calls it when all values have come, and has written no array.
        self.function = TrainerFunction(self._finds_none, lambda received: received, bool)

    def _finds_none(self, received: Received) -> bool:
        self.misfits = self._tree.misfits(received, self._only)
        if self.misfits:
            raise self.error()
        return True

    def error(self) -> MismatchError:
        count = "1 difference" if len(self.misfits) == 1 else f"{len(self.misfits)} differences"
        return MismatchError("\n  ".join([f"the checkpoint does not fit the state, {count}:", *self.misfits]))
