"""Which entries of a step go into a state, and under which names, by the rules of `Checkpointer.restore`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .._state.pattern import matches
from .reader import Step


class Selection:
    """That of one step. `only`: patterns of names in the state; (): all. `renames`: (name in the step, name in the state).
    Immutable.

    `sources`: {name in the state: name in the step}. `replaced`: names of entries of the step that are not in it, because a
    rename gives the name to another one.
    """

    def __init__(self, step: Step, only: Sequence[str] = (), renames: Sequence[tuple[str, str]] = ()) -> None:
        self._only = only
        self._renames = renames
        self.sources: dict[str, str] = {}
        self._clashes: list[str] = []
        names = [*step.keys(), *step.value_keys()]
        after = {name: self._renamed(name) for name in names}
        given = {new for name, new in after.items() if new != name}
        self.replaced = [name for name in names if after[name] == name and name in given]
        self._unused = [old for old, _ in renames if not any(_is_renamed_by(name, old) for name in names)]
        for name in names:
            if name in self.replaced:
                continue
            first = self.sources.setdefault(after[name], name)
            if first != name:
                self._clashes.append(f"renamed twice: '{after[name]}' stands for '{first}' and '{name}'")

    @property
    def is_partial(self) -> bool:
        """Whether it has patterns, and so what they leave out is wanted."""
        return bool(self._only)

    def takes(self, name: str) -> bool:
        """Whether the entry of this name in the state is filled."""
        return not self._only or matches(name, self._only)

    def slips(self, state: Collection[str]) -> list[str]:
        """What is wrong with the patterns and the renames, for a state with entries of these names."""
        return [*self._clashes,
                *(f"pattern '{pattern}' matches no entry of the state" for pattern in self._only
                  if not any(matches(name, [pattern]) for name in state)),
                *(f"rename of '{old}' matches no entry of the checkpoint" for old in self._unused)]

    def _renamed(self, name: str) -> str:
        return next((new + name[len(old):] for old, new in self._renames if _is_renamed_by(name, old)), name)


def _is_renamed_by(name: str, old: str) -> bool:
    return name == old or name.startswith(f"{old}.")
