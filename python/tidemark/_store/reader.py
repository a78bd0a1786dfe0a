"""Reads one step of a store, entry by entry, beside a trainer or without one."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from .. import _native
from .._arguments import flag, number, path, selector, size
from .._checkpointer.step_info import StepInfo, step_info
from .._state import arrays, codec
from .._state.pickled import from_entry, is_pickled, refuse
from .._state.objects import object_state
from ..errors import FailedPreconditionError, InvalidArgumentError, NotFoundError


class Slice:
    """A tensor that is not read yet. `slice[2:5, 0]` reads the chunks that hold these elements, and no others."""

    def __init__(self, step: Step, name: str) -> None:
        self._step = step
        self._name = name
        self._index, self._dtype, self._shape, self._bytes = step._tensor(name)

    def get_shape(self) -> list[int]:
        """The extents of the whole tensor, one for each dimension; []: a scalar."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """As NumPy and PyTorch spell it: "bfloat16"."""
        return self._dtype

    def __getitem__(self, key: Any) -> Any:
        """As `array[key]` of the whole tensor. Numbers and slices limit what is read. A mask, or a list of numbers, is
        applied to what was read, and so is every key behind it.

        IndexError: there are no such elements. InvalidArgumentError: PyTorch has no slices with a negative step."""
        begins, extents, kept = self._box_of(key if isinstance(key, tuple) else (key,))
        part = self._step._read_box(self._name, self._index, self._dtype, self._shape, begins, extents)
        return arrays.as_framework(self._step.framework, part[kept], self._name)

    def _box_of(self, keys: tuple[Any, ...]) -> tuple[list[int], list[int], tuple[Any, ...]]:
        """The offset and the extents of the box around the elements, and the keys of the elements in it."""
        begins, extents = [0] * len(self._shape), list(self._shape)
        kept: list[Any] = []
        dimension = 0
        for i, key in enumerate(keys):
            if key is None:
                kept.append(key)
                continue
            if key is Ellipsis and all(_is_basic(other) for other in keys[i + 1:]):
                kept.append(key)
                dimension = max(dimension, len(self._shape) - sum(other is not None for other in keys[i + 1:]))
                continue
            if not _is_basic(key):
                return begins, extents, (*kept, *keys[i:])
            if dimension == len(self._shape):
                raise IndexError(f"'{self._name}' has {len(self._shape)} dimensions, and the key has more: {keys}")
            begins[dimension], extents[dimension], inside = self._range_of(key, dimension)
            kept.append(inside)
            dimension += 1
        return begins, extents, tuple(kept)

    def _range_of(self, key: Any, dimension: int) -> tuple[int, int, int | slice]:
        """Where in this dimension the elements begin, how many lie between the first and the last, and their key there."""
        extent = self._shape[dimension]
        if not isinstance(key, slice):
            number = operator.index(key)
            if not -extent <= number < extent:
                raise IndexError(f"{number} in dimension {dimension} of '{self._name}', which has {extent} there")
            return number % extent, 1, 0
        chosen = range(extent)[key]
        if not chosen:
            return 0, 0, slice(0, 0)
        if chosen.step < 0 and self._step.framework == "pt":
            raise InvalidArgumentError("PyTorch has no slices with a negative step")
        first = min(chosen[0], chosen[-1])
        if chosen.step < 0:
            return first, chosen[0] - first + 1, slice(None, None, chosen.step)
        return first, chosen[-1] - first + 1, slice(None, None, chosen.step)


def _is_basic(key: Any) -> bool:
    """Whether it is a number, a slice or None: not a bool, which stands for a mask, nor an array."""
    if key is None or isinstance(key, slice):
        return True
    if isinstance(key, bool) or getattr(key, "ndim", 0) != 0 or "bool" in str(getattr(key, "dtype", "")):
        return False
    return hasattr(key, "__index__")


class Step:
    """One step of a store, held open. Made by `tidemark.open`; a context manager. Thread-safe.

    The step can be read to its end even if the trainer deletes it meanwhile. A forked child may read it too. After `close`,
    reads raise FailedPreconditionError; the names, `info`, and a Slice's shape and dtype stay.
    """

    def __init__(self, store: str | os.PathLike[str], step: int | str, framework: str, untrusted: bool = False) -> None:
        if framework not in ("np", "pt", "jax"):
            raise InvalidArgumentError(f"framework is {framework!r}, not 'np', 'pt' or 'jax'")
        self.framework = framework
        file = _native.open_step(path(store, "store"), selector(step), flag(untrusted, "untrusted"))
        self.info = step_info(file.info())
        self._entries = {entry[0]: (i, *entry[1:]) for i, entry in enumerate(file.entries())}
        self._file: _native.StepFile | None = file
        self._tell: Callable[[int], None] | None = None  # what each read of a tensor tells its bytes

    def __enter__(self) -> Step:
        self._opened()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the hold on the step's files. Reading raises FailedPreconditionError from then on; names and `info` stay. May
        be called again."""
        self._file = None

    def keys(self) -> list[str]:
        """The names of the tensors, such as "model.weight", in the order in which they were saved."""
        return [name for name, entry in self._entries.items() if entry[1] == "tensor"]

    def value_keys(self) -> list[str]:
        """The names of the entries that are no tensors."""
        return [name for name, entry in self._entries.items() if entry[1] != "tensor"]

    def get_tensor(self, name: str) -> Any:
        """The whole tensor, in memory of its own, as an array of the `framework` of `open`. Every byte is checked.

        NotFoundError: there is no entry of that name. InvalidArgumentError: it is no tensor, or only a part of it is stored.
        DataLossError: it is damaged. UnimplementedError: the framework has no such dtype."""
        index, dtype, shape, size = self._tensor(name)
        return arrays.as_framework(self.framework, self._read(index, dtype, shape, 0, size), name)

    def get_slice(self, name: str) -> Slice:
        """The tensor as a Slice, which reads what is asked of it. Nothing is read yet. NotFoundError, InvalidArgumentError: as
        of `get_tensor`; a Slice itself raises the errors of reading."""
        return Slice(self, name)

    def get_value(self, name: str, *, pickled: bool = False) -> Any:
        """A number, a string, bytes, what a container without arrays was, or the state_dict() of an object.

        The state of an optimizer that is stored as an object has the names of its parameters for their indices. `pickled`:
        also the object of a `Pickled`, which can run any code; else that is an UnsupportedTypeError.

        NotFoundError: there is no entry of that name. InvalidArgumentError: it is a tensor. FailedPreconditionError: the step is
        closed. DataLossError: it is damaged, or no save has written it. UnsupportedTypeError: it has an object of a class
        that is not registered here. UnimplementedError: a library that its arrays or values need is not installed.
        """
        index, kind, *_ = self._entry(name)
        if kind == "tensor":
            raise InvalidArgumentError(f"'{name}' is a tensor: use get_tensor")
        content = self._opened().read_bytes(index)
        if pickled and is_pickled(kind, content):
            return from_entry(kind, content, name)
        refuse(kind, content, name)

        def array(entry: str, framework: str) -> Any:
            index, dtype, shape, size = self._tensor(entry)
            return self._read(index, dtype, shape, 0, size, framework)

        found = object_state(kind, content, name, array)
        return found[0] if found is not None else codec.from_entry(kind, content, self.get_tensor)

    @contextlib.contextmanager
    def _telling(self, tell: Callable[[int], None]) -> Iterator[None]:
        """Each read of a tensor meanwhile tells its bytes, when they are read. Not thread-safe."""
        self._tell = tell
        try:
            yield
        finally:
            self._tell = None

    def _opened(self) -> _native.StepFile:
        if self._file is None:
            raise FailedPreconditionError("the step is closed")
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

    def _read_box(self, name: str, index: int, dtype: str, shape: list[int], begins: list[int], extents: list[int]) -> Any:
        if extents[1:] == shape[1:]:  # rows lie together
            size = self._entries[name][4]
            row = size // shape[0] if shape and shape[0] else 0
            return self._read(index, dtype, extents, begins[0] * row if shape else 0, extents[0] * row if shape else size)
        file = self._opened()
        array = arrays.new_array(self.framework, dtype, extents)
        if 0 not in extents:
            size = math.prod(extents) * (self._entries[name][4] // math.prod(shape))
            file.read_box(name, begins, extents, arrays.address_of(array), size)
            self._told(size)
        return array

    def _read(self, index: int, dtype: str, shape: list[int], offset: int, size: int,
              framework: str | None = None) -> Any:
        file = self._opened()
        array = arrays.new_array(framework or self.framework, dtype, shape)
        if size:
            file.read(index, offset, arrays.address_of(array), size)
            self._told(size)
        return array

    def _told(self, size: int) -> None:
        if self._tell is not None:
            self._tell(size)


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
    return [step_info(info) for info in _native.list_steps(path(store, "store"), flag(untrusted, "untrusted"))]


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
    Ctrl-C ends it.
    """
    verified, bytes_read, chunks, total, damage = _native.verify_step(
        path(store, "store"), selector(step), number(share, "share"), size(seed, "seed"), flag(untrusted, "untrusted"))
    return VerifyReport(verified, bytes_read, chunks, total, [Damage(*place) for place in damage])


@dataclasses.dataclass(frozen=True)
class SavePhase:
    """A part of a save. `lane`: the time line, on which no two phases overlap: "trainer", "staging", "persister", "codec 1"
    and so on, and "rank 1" for rank 0's wait for that rank. `begin`: seconds since save() was called. `duration`: seconds
    from begin to end; `busy`: without short pauses. `bytes`: handled in this phase; 0 if that has no meaning."""

    name: str
    lane: str
    begin: float
    duration: float
    busy: float
    bytes: int


def phases(store: str | os.PathLike[str], step: int | str = "latest") -> list[SavePhase]:
    """Where the time of the step's save went. Empty if nothing is recorded: an old version saved it, or the journal cannot
    be read. "commit" and "vote" may be missing until the trainer records something else. `step`: as in `tidemark.open`.
    NotFoundError: there is no such store or step."""
    return [SavePhase(*phase) for phase in _native.phases(path(store, "store"), selector(step))]


def references(store: str | os.PathLike[str], step: int | str = "latest") -> list[str]:
    """The other attempts (32 hexadecimal digits, as StepInfo.attempt) whose files hold chunks of the step, in no order. To
    copy the step, copy those too. `step`: as in `tidemark.open`. NotFoundError: there is no such store or step."""
    return list(_native.references(path(store, "store"), selector(step)))
