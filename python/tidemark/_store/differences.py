"""How a step differs from the state that a reader of it fills, in the words of a restore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import MismatchError
from .reader import Slice, Step


class Differences:
    """Is told of each entry that does not fit. `error` is the MismatchError of all. `sources`: the names in the step, where these
    are others."""

    def __init__(self, step: Step, sources: Mapping[str, str] | None = None) -> None:
        self._step = step
        self._sources = sources or {}
        self._lines: list[str] = []
        self._missing: list[str] = []
        self._unexpected: list[str] = []
        self._reshaped: list[str] = []
        self._retyped: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def names(self) -> list[str]:
        """Of all entries that do not fit."""
        return [*self._missing, *self._unexpected, *self._reshaped, *self._retyped]

    def slip(self, line: str) -> None:
        """Something is wrong with the options that choose the entries."""
        self._lines.append(line)

    def missing(self, name: str, wanted: str) -> None:
        """`wanted`: what the state has."""
        self._missing.append(name)
        self._lines.append(f"missing in the checkpoint: '{name}' {wanted}")

    def unexpected(self, name: str) -> None:
        self._unexpected.append(name)
        self._lines.append(f"unexpected in the checkpoint: '{name}' {self._described(name)}")

    def replaced(self, name: str) -> None:
        """An entry of the step whose name another one has been given."""
        self._unexpected.append(name)
        self._lines.append(f"its name is taken by a rename, and it has no other: '{name}' {self._described(name, name)}")

    def of_another_kind(self, name: str, wanted: str) -> None:
        """One is a tensor, and the other is none."""
        self._retyped.append(name)
        self._lines.append(f"'{name}': kind: checkpoint has {self._described(name)}, state has {wanted}")

    def of_another_dtype(self, name: str, wanted: str, but: str = "") -> None:
        """`but`: more to say of it."""
        self._retyped.append(name)
        self._lines.append(f"'{name}': dtype: checkpoint has {self._stored(name).get_dtype()}, state has {wanted}{but}")

    def of_another_shape(self, name: str, wanted: Sequence[int]) -> None:
        self._reshaped.append(name)
        self._lines.append(f"'{name}': shape: checkpoint has {self._stored(name).get_shape()}, state has {list(wanted)}")

    def _stored(self, name: str) -> Slice:
        return self._step.get_slice(self._sources.get(name, name))

    def _described(self, name: str, source: str = "") -> str:
        _, kind, dtype, shape, *_ = self._step._entry(source or self._sources.get(name, name))
        return f"{dtype} {shape}" if kind == "tensor" else str(kind)

    def error(self, of: str, way_out: str) -> MismatchError:
        """`of`: what the step does not fit."""
        count = f"{len(self._lines)} difference{'s' if len(self._lines) > 1 else ''}"
        return MismatchError("\n".join([f"step {self._step.info.step} does not fit {of}, {count}:",
                                        *(f"  {line}" for line in self._lines), way_out]),
                             self._missing, self._unexpected, self._reshaped, self._retyped)
