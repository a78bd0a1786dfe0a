"""Reads one step of a store, entry by entry, beside a trainer or without one."""

from __future__ import annotations

import dataclasses
import os
from types import TracebackType
from typing import Any

from . import _arrays, _codec, _native, _pickled
from ._step_info import StepInfo, step_info
from ._tree import object_state
from .errors import InvalidArgumentError, NotFoundError


class Slice:
    """A tensor that is not read yet. `slice[a:b]` reads only the rows that it needs; other dimensions are cut after."""

    def __init__(self, step: Step, name: str) -> None:
        self._step = step
        self._name = name
        self._index, self._dtype, self._shape, self._bytes = step._tensor(name)

    def get_shape(self) -> list[int]:
        return list(self._shape)

    def get_dtype(self) -> str:
        """As NumPy and PyTorch spell it: "bfloat16"."""
        return self._dtype

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if not self._shape or keys[0] is Ellipsis or keys[0] is None or not isinstance(keys[0], (int, slice)):
            whole = self._step._read(self._index, self._dtype, self._shape, 0, self._bytes)
            return _arrays.as_framework(self._step.framework, whole[key], self._name)
        rows = self._shape[0]
        row_bytes = self._bytes // rows if rows else 0
        if isinstance(keys[0], int):
            row = keys[0] + rows if keys[0] < 0 else keys[0]
            if not 0 <= row < rows:
                raise IndexError(f"row {keys[0]} of '{self._name}', which has {rows}")
            first, last = row, row + 1
            kept: int | slice = 0
        else:
            chosen = range(rows)[keys[0]]
            first, last = (min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1]) + 1) if chosen else (0, 0)
            if chosen and chosen.step < 0 and self._step.framework == "pt":
                raise InvalidArgumentError("PyTorch has no slices with a negative step")
            kept = (slice(chosen[0] - first, None if chosen.step < 0 and chosen[-1] == first else chosen[-1] - first + (
                1 if chosen.step > 0 else -1), chosen.step) if chosen else slice(0, 0))
        part = self._step._read(self._index, self._dtype, [last - first, *self._shape[1:]], first * row_bytes,
                                (last - first) * row_bytes)
        return _arrays.as_framework(self._step.framework, part[(kept, *keys[1:])], self._name)


class Step:
    """One step of a store, held open. Made by `tidemark.open`; a context manager. Thread-safe.

    The step can be read to its end even if the trainer deletes it meanwhile.
    """

    def __init__(self, store: str | os.PathLike[str], step: int | str, framework: str, untrusted: bool = False) -> None:
        if framework not in ("np", "pt", "jax"):
            raise InvalidArgumentError(f"framework is '{framework}', not 'np', 'pt' or 'jax'")
        self.framework = framework
        file = _native.open_step(os.fspath(store), str(step), untrusted)
        self.info = step_info(file.info())
        self._entries = {entry[0]: (i, *entry[1:]) for i, entry in enumerate(file.entries())}
        self._file: _native.StepFile | None = file

    def __enter__(self) -> Step:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._file = None

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return [name for name, entry in self._entries.items() if entry[1] == "tensor"]

    def value_keys(self) -> list[str]:
        """The names of the entries that are no tensors."""
        return [name for name, entry in self._entries.items() if entry[1] != "tensor"]

    def get_tensor(self, name: str) -> Any:
        """The whole tensor, in memory of its own. Every byte is checked."""
        index, dtype, shape, size = self._tensor(name)
        return _arrays.as_framework(self.framework, self._read(index, dtype, shape, 0, size), name)

    def get_slice(self, name: str) -> Slice:
        return Slice(self, name)

    def get_value(self, name: str, *, pickled: bool = False) -> Any:
        """A number, a string, bytes, what a container without arrays was, or the state_dict() of an object.

        The state of an optimizer that is stored as an object has the names of its parameters for their indices. `pickled`:
        also the object of a `Pickled`, which can run any code; else that is an UnsupportedTypeError.
        """
        index, kind, *_ = self._entry(name)
        if kind == "tensor":
            raise InvalidArgumentError(f"'{name}' is a tensor: use get_tensor")
        content = self._opened().read_bytes(index)
        if pickled and _pickled.is_pickled(kind, content):
            return _pickled.from_entry(kind, content, name)
        _pickled.refuse(kind, content, name)

        def array(entry: str, framework: str) -> Any:
            index, dtype, shape, size = self._tensor(entry)
            return self._read(index, dtype, shape, 0, size, framework)

        found = object_state(kind, content, name, array)
        return found[0] if found is not None else _codec.from_entry(kind, content, self.get_tensor)

    def _opened(self) -> _native.StepFile:
        if self._file is None:
            raise InvalidArgumentError("the step is closed")
        return self._file

    def _entry(self, name: str) -> Any:
        self._opened()
        if name not in self._entries:
            raise NotFoundError(f"step {self.info.step} has no entry '{name}'")
        return self._entries[name]

    def _tensor(self, name: str) -> tuple[int, str, list[int], int]:
        index, kind, dtype, shape, size, whole = self._entry(name)
        if kind != "tensor":
            raise InvalidArgumentError(f"'{name}' is no tensor: use get_value")
        if not whole:
            raise InvalidArgumentError(f"only a part of '{name}' is stored")
        return index, dtype, shape, size

    def _read(self, index: int, dtype: str, shape: list[int], offset: int, size: int,
              framework: str | None = None) -> Any:
        array = _arrays.new_array(framework or self.framework, dtype, shape)
        if size:
            self._opened().read(index, offset, _arrays.address_of(array), size)
        return array


def open(store: str | os.PathLike[str], step: int | str = "latest", framework: str = "np", *,  # noqa: A001
         untrusted: bool = False) -> Step:
    """Opens a step of a store without changing it.

    `step`: its number, "latest", "latest-healthy", "best:METRIC", "best:METRIC:lowest" or "tag:NAME". `framework`: "np"
    for NumPy's arrays, "pt" for PyTorch's tensors, "jax" for arrays of JAX on its default device. NotFoundError: there
    is no such store or step.

    FailedPreconditionError: an older version wrote the store. Opening it for writing once converts it: with a
    `Checkpointer`, or with `checkpoint-inspect repair --apply`.

    `untrusted`: for a store from a stranger. Files are then read within narrower limits, and a step that exceeds them is
    an error. The steps of a store that an older version wrote come from its files.
    """
    return Step(store, step, framework, untrusted)


def steps(store: str | os.PathLike[str], *, untrusted: bool = False) -> list[StepInfo]:
    """All steps that a store knows, ascending, including deleted ones, without its lock: beside a trainer or without one.
    Reports of workers are in it as soon as they are recorded. `untrusted`: as in `open`. NotFoundError: there is no such
    store. FailedPreconditionError: as of `open`."""
    return [step_info(info) for info in _native.list_steps(os.fspath(store), untrusted)]


@dataclasses.dataclass(frozen=True)
class Damage:
    """A place of a step whose bytes are not those that were written. `entries`: those that lose data, if it is known."""

    path: str
    what: str
    entries: list[str]


@dataclasses.dataclass(frozen=True)
class VerifyReport:
    """What `verify` read, in bytes and chunks, and what is damaged. No `damage`: every byte that was read is sound.
    `chunks_total`: those that the step has."""

    step: int
    bytes_read: int
    chunks: int
    chunks_total: int
    damage: list[Damage]


def verify(store: str | os.PathLike[str], step: int | str = "latest", *, share: float = 1.0, seed: int = 0,
           untrusted: bool = False) -> VerifyReport:
    """Reads a step and holds it against its checksums. `step` and `untrusted`: as in `tidemark.open`.

    `share`: of the chunks, 0 to 1; of the same step the same `seed`, 0 to 2^64 - 1, draws the same ones. 1: every byte.

    NotFoundError: there is no such store or step. InvalidArgumentError: the share. Damage is no error, but in the report.
    """
    number, bytes_read, chunks, total, damage = _native.verify_step(os.fspath(store), str(step), float(share), seed, untrusted)
    return VerifyReport(number, bytes_read, chunks, total, [Damage(*place) for place in damage])


@dataclasses.dataclass(frozen=True)
class SavePhase:
    """A part of a save. `lane`: the time line, on which no two phases overlap: "trainer", "staging", "persister", "codec 1"
    and so on. `begin`: seconds since save() was called. `duration`: seconds from begin to end; `busy`: without short
    pauses. `bytes`: handled in this phase; 0 if that has no meaning."""

    name: str
    lane: str
    begin: float
    duration: float
    busy: float
    bytes: int


def phases(store: str | os.PathLike[str], step: int | str = "latest") -> list[SavePhase]:
    """Where the time of the step's save went. Empty if nothing is recorded: an old version saved it, or the journal cannot
    be read. "commit" may be missing until the trainer records something else. `step`: as in `tidemark.open`.
    NotFoundError: there is no such store or step."""
    return [SavePhase(*phase) for phase in _native.phases(os.fspath(store), str(step))]


def references(store: str | os.PathLike[str], step: int | str = "latest") -> list[str]:
    """The other attempts (32 hexadecimal digits, as StepInfo.attempt) whose files hold chunks of the step, in no order. To
    copy the step, copy those too. `step`: as in `tidemark.open`. NotFoundError: there is no such store or step."""
    return list(_native.references(os.fspath(store), str(step)))
