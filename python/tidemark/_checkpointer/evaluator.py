"""Evaluators: functions that are called with snapshots, beside the training."""

from __future__ import annotations

import collections
import dataclasses
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

from .. import _native
from .._arguments import flag, mode, patterns, text
from .._arguments import path as path_of
from .._arguments import renames as pairs
from .._state import arrays, codec, pickled
from .._state.devices import Streams
from .._state.objects import object_state
from .._state.tree import Tree, naming
from ..errors import Error, FailedPreconditionError, InvalidArgumentError, UnimplementedError
from .observer import logger
from .mismatches import Look, mismatch
from .options import left_out_by, raise_interruption


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of an evaluator that may distrust the step.

    `metrics`: values by name. `unhealthy`: why the step is not to be trusted. Such a step is never the best, and a restore
    with `healthy_only` passes over it. Empty: healthy.
    """

    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    unhealthy: str = ""


# One number is the metric "value".
Result = Union[Verdict, Mapping[str, Any], float, None]
EvaluatorFunction = Callable[["Snapshot"], Any]


class Snapshot(Mapping[str, Any]):
    """A copy of the state at one step, as a mapping of names to arrays and values. Immutable and thread-safe.

    An array is a read-only NumPy array over the staging memory itself; nothing is copied. The snapshot, and each array and
    view of it, keeps that memory alive and unchanged, also after the evaluator has returned and the checkpointer is
    closed. While one of them lives, later saves have that much less memory, and may wait for it (`when_full`): copy what
    you keep. The memory is not in a child that is forked from this process: reads of the snapshot are a
    FailedPreconditionError there, but to touch an array that was made before the fork crashes the child.

    Arrays of dtypes beyond NumPy's own need ml_dtypes: else reading one is an UnimplementedError. `restore` fills modules of
    PyTorch. KeyError: there is no entry of the name. UnsupportedTypeError: the entry was pickled, or has an object of a class
    that is not registered. UnimplementedError: this rank has several parts of the array (`tidemark.jax`).

    `step`: its number. `metrics`: those given with the save. `user_metadata`: a JSON object.
    """

    def __init__(self, native: _native.Snapshot) -> None:
        self._native = native
        self._pid = os.getpid()
        entries = native.entries()
        self._entries: dict[str, tuple[int, str, str, list[int]]] = {
            name: (i, kind, dtype, shape) for i, (name, kind, dtype, shape) in enumerate(entries)}
        parts = collections.Counter(name for name, *_ in entries) if len(entries) > len(self._entries) else {}
        self._parts = {name: count for name, count in parts.items() if count > 1}  # of an array that ranks hold together
        self.step: int = native.step
        self.metrics: dict[str, float] = native.metrics
        self.user_metadata: str = native.user_metadata

    def _require(self) -> _native.Snapshot:
        if self._pid != os.getpid():
            raise FailedPreconditionError("the memory of the snapshot is not in a forked child")
        return self._native

    def __getitem__(self, name: str) -> Any:
        index, kind, dtype, shape = self._entries[name]
        if name in self._parts:
            raise UnimplementedError(f"'{name}' is in the snapshot of this rank as {self._parts[name]} parts of an array, which "
                                     f"it cannot return as one: tidemark.follow and tidemark.open read the whole of it")
        memory = self._require().memory(index)
        if kind == "tensor":
            return arrays.array_over(memory, dtype, shape)

        def array(entry: str, framework: str) -> Any:
            _, kind, dtype, shape = self._entries[entry]
            if kind != "tensor":  # a value could name itself
                raise KeyError(entry)
            made = arrays.new_array(framework, dtype, shape)
            arrays.copy_into(made, self._native.memory(self._entries[entry][0]))
            return made

        content = bytes(memory)
        pickled.refuse(kind, content, name)
        found = object_state(kind, content, name, array)
        return found[0] if found is not None else codec.from_entry(kind, content, lambda entry: array(entry, "np"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def dtype_of(self, name: str) -> str:
        """The dtype of a tensor, as NumPy and PyTorch spell it: "bfloat16". Empty: there is no tensor of that name."""
        _, kind, dtype, _ = self._entries.get(name, (0, "", "", []))
        return dtype if kind == "tensor" else ""

    def __repr__(self) -> str:
        return f"<tidemark.Snapshot of step {self.step}, {len(self)} entries>"

    def restore(self, state: Any, *, only: Sequence[str] = (), renames: Sequence[tuple[str, str]] = (),
                allow_missing: bool = False, convert_dtypes: bool = False, device: Any = None) -> None:
        """Fills a state from the snapshot, as `Checkpointer.restore` does: `snapshot.restore({"model": model})`.

        Entries that the state lacks are passed over. An overlapped save must not read the state's arrays: call
        `Checkpointer.wait_until_staged` before. MismatchError: the snapshot lacks entries of the state, and
        `allow_missing` is off, or has others in their place; nothing of the state has been touched.
        """
        native = self._require()
        options: dict[str, Any] = {"only": patterns(only, "only"), "renames": pairs(renames, "renames"),
                   "allow_missing": flag(allow_missing, "allow_missing"), "allow_unexpected": True}
        tree = Tree(state, writable=True, device=device, renames=options["renames"])
        tree.refuse_frozen(only)
        look = Look(tree, options["only"]) if tree.can_misfit() else None
        destination = _native.TreeState()
        destination.set_destinations(tree.arrays, [*tree.values, *tree.objects], list(tree.objects), convert_dtypes,
                                     tree.on_devices(None), look=look.function if look else None)
        try:
            native.restore(destination, options)
        except Error as error:
            raise_interruption(look.function if look else None)
            if look is not None and look.misfits:
                raise look.error() from None
            if isinstance(error, InvalidArgumentError):
                raise mismatch(error, tree, destination, options) from None
            raise
        tree.assign(destination.take_received(), destination.take_converted(), left_out_by(destination, only))

    def export_safetensors(self, path: str | os.PathLike[str], *, entries: Sequence[str] = (),
                           renames: Sequence[tuple[str, str]] = (), dtype: str = "", replace: bool = False) -> None:
        """Writes the entries to a safetensors file; options and errors are those of `tidemark.export_safetensors`."""
        _native.export_snapshot(self._require(), os.path.abspath(path_of(path, "path")),
                                export_options(entries, renames, dtype, replace))


def capture(state: Any) -> Snapshot:
    """A copy of the state in host memory of its own, for a rollback without the disk: `capture(state).restore(state)`.

    Blocks until all is copied. No checkpointer is needed; the snapshot's step is 0, and its memory is released with the
    snapshot and its arrays. Call it on the thread that changes the state. UnsupportedTypeError: the state has something
    that cannot be copied. ResourceExhaustedError: too little memory.
    """
    tree = Tree(state, writable=False)
    native = _native.TreeState()
    values = tree.entries_of_values()
    native.set_entries(tree.arrays, values, tree.on_devices(Streams()))
    with naming(tree):
        return Snapshot(_native.capture(native))


def export_options(entries: Sequence[str], renames: Sequence[tuple[str, str]], dtype: str, replace: bool) -> dict[str, Any]:
    return {"entries": patterns(entries, "entries"), "renames": pairs(renames, "renames"), "dtype": text(dtype, "dtype"),
            "replace": flag(replace, "replace")}


def verdict_of(result: Any) -> Verdict:
    """What an evaluator has returned. TypeError: none of its results."""
    if isinstance(result, Verdict):
        return Verdict({str(name): float(value) for name, value in result.metrics.items()}, str(result.unhealthy))
    if result is None:
        return Verdict()
    if isinstance(result, Mapping):
        return Verdict({str(name): float(value) for name, value in result.items()})
    if isinstance(result, (str, bytes)):
        raise TypeError(f"an evaluator returned {result!r}, not a dict of numbers, a number, None or a tidemark.Verdict")
    return Verdict({"value": float(result)})


# Metrics, the reason why the step is unhealthy, and the error or None: what the native module expects.
Outcome = tuple[dict[str, float], str, Union[str, None]]


_here = threading.local()  # `evaluations`: those that this thread is in a call of


def is_in(evaluations: object) -> bool:
    """Whether this thread is in a function that was `guarded` with these `evaluations`."""
    return getattr(_here, "evaluations", None) is evaluations


def guarded(name: str, function: EvaluatorFunction, caught: type[BaseException],
            evaluations: object = None) -> Callable[[Any], Outcome]:
    """The function for the native module. What it raises is logged and becomes text, if it is `caught`. `evaluations`: those
    of one checkpointer, for `is_in`."""

    def call(native: Any) -> Outcome:
        step = native.step
        outer = getattr(_here, "evaluations", None)  # an evaluator may follow a store
        _here.evaluations = evaluations
        try:
            verdict = verdict_of(function(Snapshot(native)))
        except caught as error:
            # As text: a handler that keeps the traceback itself would keep the frames, and so the snapshot's memory.
            raised = f"{type(error).__name__}: {error}"
            logger.warning("evaluator '%s' failed at step %d: %s\n%s", name, step, raised, traceback.format_exc())
            return {}, "", raised
        finally:
            _here.evaluations = outer
        return dict(verdict.metrics), verdict.unhealthy, None

    return call


def modes_of(best: str | Mapping[str, str]) -> dict[str, str]:
    """`best` by metric. A word alone is the mode of the metric of a function that returns one number."""
    modes = {"value": best} if isinstance(best, str) and best else dict(best or {})
    return {metric: mode(one, f"best[{metric!r}]") for metric, one in modes.items()}
