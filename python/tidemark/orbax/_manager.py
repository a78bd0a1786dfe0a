"""CheckpointManager by Orbax's names."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import numbers
import os
import pathlib
from types import TracebackType
from typing import Any

import numpy

from .._arguments import json_value, number
from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.futures import SaveHandle
from .._checkpointer.options import KeepBest, Retention
from .._checkpointer.progress import Progress
from .._checkpointer.step_info import StepInfo
from .._choices import BestMode
from .._store.progress import reporting
from .._store.reader import Step, open as open_step
from ..errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, UnimplementedError
from ..jax import _reading, _trees
from . import args as _args
from ._options import CheckpointManagerOptions
from ._restore_args import like_of

_SCORE = "best_fn"  # the metric that holds what best_fn returned
_WAY_OUT = ("args.PyTreeRestore takes partial_restore=True, which leaves out what the tree has not, and restore_args, whose "
            "dtype converts. Without an item the tree is as it was saved")
_DEFAULT = "default"  # a single item that is no tree is stored under this name


class StepAlreadyExistsError(AlreadyExistsError, ValueError):
    """The step is committed or being saved."""


class StepNotFoundError(NotFoundError, FileNotFoundError):
    """There is no such step."""


@dataclasses.dataclass(frozen=True)
class StepMetadata:
    """What is known of a step without reading its arrays. `item_metadata`: the names of its items."""

    item_metadata: list[str]
    metrics: Any
    custom_metadata: dict[str, Any]
    created: float


class CheckpointManager:
    """Saves and restores items by Orbax's calls. Open it once for a store; a context manager. Not thread-safe.

    `directory` is a store of Tidemark. With `item_names`, or if the first `save` or `restore` has `args.Composite`, a
    step holds named items; else it holds one. UnimplementedError: an argument has no counterpart.
    """

    def __init__(self, directory: str | os.PathLike[str], checkpointers: Any = None,
                 options: CheckpointManagerOptions | None = None, metadata: Any = None, item_names: Any = None,
                 item_handlers: Any = None, logger: Any = None, handler_registry: Any = None) -> None:
        for name, value in (("checkpointers", checkpointers), ("metadata", metadata), ("item_handlers", item_handlers),
                            ("logger", logger), ("handler_registry", handler_registry)):
            if value is not None:
                raise UnimplementedError(f"CheckpointManager({name}=...) has no counterpart in Tidemark")
        self._options = options or CheckpointManagerOptions()
        self._named: bool | None = True if item_names else None
        self._best_mode: BestMode = "highest" if self._options.best_mode == "max" else "lowest"
        keep = self._options.max_to_keep or 0
        interval = self._options.keep_time_interval
        rules: dict[str, Any] = {"keep_every_steps": self._options.keep_period or 0,
                                 "keep_interval": interval.total_seconds() if interval is not None else 0.0}
        if self._options.best_fn is None:
            rules["max_to_keep"] = keep
        elif keep:
            rules["keep_best"] = [KeepBest(_SCORE, self._best_mode, keep)]
        # Without max_to_keep the other rules delete nothing.
        self._keeps_all = not keep
        self._checkpointer = Checkpointer(directory, create=self._options.create,
                                          retention=Retention() if self._keeps_all else Retention(**rules))
        self._saving: dict[int, SaveHandle] = {}

    def __enter__(self) -> CheckpointManager:
        self._checkpointer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._checkpointer.__exit__(kind, error, trace)

    @property
    def directory(self) -> pathlib.Path:
        """The absolute path of the store."""
        return pathlib.Path(self._checkpointer.path)

    # Steps.

    def _infos(self) -> list[StepInfo]:
        return [info for info in self._checkpointer.steps() if info.state == "committed"]

    def _in_progress(self) -> list[int]:
        self._saving = {step: save for step, save in self._saving.items() if not save.committed.done()}
        return list(self._saving)

    def all_steps(self, read: bool = False) -> list[int]:
        """Committed steps and those being saved, ascending."""
        saving = self._in_progress()  # first: a save that ends between the two calls is committed in the second
        return sorted({info.step for info in self._infos()}.union(saving))

    def latest_step(self) -> int | None:
        """The highest step that is committed or being saved; None while there is none."""
        saving = self._in_progress()  # first, as in all_steps
        with contextlib.suppress(NotFoundError):
            saving.append(self._checkpointer.latest_step().step)
        return max(saving, default=None)

    def best_step(self) -> int | None:
        """The step with the best finite `best_fn`; without one, the latest. Saves in flight count when they are committed."""
        if self._options.best_fn is None:
            return self.latest_step()
        self.wait_until_finished()
        with contextlib.suppress(NotFoundError):
            return self._checkpointer.best_step(_SCORE, self._best_mode).step
        return None

    def reload(self) -> None:
        """Does nothing: the steps are always read from the store."""

    def should_save(self, step: int) -> bool:
        """Whether `save` would save. Never at a step that is not after the latest; always while there is no step."""
        latest = self.latest_step()
        if latest is not None and latest >= step:
            return False
        if self._options.should_save_fn is not None:
            return bool(self._options.should_save_fn(step, latest))
        return latest is None or step % self._options.save_interval_steps == 0 or (
            self._options.save_on_steps is not None and step in self._options.save_on_steps)

    def delete(self, step: int) -> None:
        """Deletes a step, pinned or not. FileNotFoundError: there is none. FailedPreconditionError: it is the latest step, or is
        being read; it stays then, with its pin and tags."""
        info = self._info(step)
        self._checkpointer.unpin(step)
        try:
            self._checkpointer.delete(step)
        except BaseException:
            with contextlib.suppress(NotFoundError):  # it has been deleted all the same
                if info.pinned:
                    self._checkpointer.pin(step, info.pin_note)
                for tag in info.tags:
                    self._checkpointer.tag(step, tag)
            raise

    # Saving.

    def save(self, step: int, items: Any = None, save_kwargs: Any = None, metrics: Any = None, force: bool | None = False,
             args: _args.CheckpointArgs | None = None, custom_metadata: dict[str, Any] | None = None) -> bool:
        """Saves if `should_save(step)` or `force`, and returns whether it did. Its arrays may be donated then.

        `metrics` is a number, or dicts of numbers. `custom_metadata` is a dict that is JSON. InvalidArgumentError: JSON cannot
        hold something of it, or of the item of a JsonSave. StepAlreadyExistsError: with `force`, the step is there. A failure
        in the background raises from the next call of `save`, `wait_until_finished`, `check_for_errors` or `close`.
        """
        if items is not None or save_kwargs is not None:
            raise UnimplementedError("save(items=..., save_kwargs=...) has no counterpart in Tidemark: use args=")
        parts = self._parts(args)
        if not force and not self.should_save(step):
            return False
        self._checkpointer.check_for_errors()
        state: dict[str, Any] = {}
        for name, part in parts.items():
            for entry, value in self._state_of(name, part).items():
                if entry in state:
                    raise InvalidArgumentError(f"two leaves of the items have the name '{entry}'")
                state[entry] = value
        measured = _flat_metrics(metrics)
        if self._options.best_fn is not None and metrics is not None:
            measured[_SCORE] = number(self._options.best_fn(metrics), "what best_fn returned")
        record = {"items": {name: part.kind for name, part in parts.items()}, "metrics": _plain(metrics),
                  "custom_metadata": json_of(custom_metadata or {}, "custom_metadata")}
        try:
            handle = self._checkpointer.save(step, state, metrics=measured, staging="blocking", user_metadata={"orbax": record})
        except AlreadyExistsError as error:
            raise StepAlreadyExistsError(str(error)) from None
        self._saving[step] = handle
        if self._options.best_fn is not None and metrics is None and self._options.keep_checkpoints_without_metrics and (
                not self._keeps_all):
            handle.committed.result()
            self._checkpointer.pin(step, "saved without metrics")
        if not self._options.enable_async_checkpointing:
            handle.committed.result()
        return True

    def _parts(self, args: Any) -> dict[str, Any]:
        """The items by name; "" is the name of a single one."""
        if not isinstance(args, _args.CheckpointArgs):
            raise InvalidArgumentError(f"args is a {type(args).__name__}: use the classes of tidemark.orbax.args")
        named = isinstance(args, _args.Composite)
        if self._named is None:
            self._named = named
        if named != self._named:
            raise InvalidArgumentError("the manager has named items: use args.Composite" if self._named else
                                       "the manager has a single item, so args.Composite cannot be used")
        return dict(args.items()) if isinstance(args, _args.Composite) else {"": args}

    @staticmethod
    def _state_of(name: str, part: Any) -> dict[str, Any]:
        if not isinstance(part, _args.CheckpointArgs) or isinstance(part, _args.Composite) or (
                not type(part).__name__.endswith("Save")):
            raise InvalidArgumentError(f"the item '{name or _DEFAULT}' is a {type(part).__name__}, which says nothing to save")
        if part.kind == "tree":
            return _trees.to_state(part.item, name)  # type: ignore[attr-defined]
        if part.kind == "array":
            return _trees.to_state(part.item, name or _DEFAULT)  # type: ignore[attr-defined]
        return {name or _DEFAULT: json_of(part.item, f"the item '{name or _DEFAULT}'")}  # type: ignore[attr-defined]

    def wait_until_finished(self) -> None:
        """Blocks until every save survives power loss and the steps that the options do not keep are deleted.

        Raises the first failure that was not seen yet.
        """
        try:
            self._checkpointer.wait_until_committed()
            if not self._keeps_all:
                self._checkpointer.tidy()
        finally:
            self._in_progress()

    def is_saving_in_progress(self) -> bool:
        """Whether a save has neither been committed nor failed. Never blocks."""
        return bool(self._in_progress())

    def check_for_errors(self) -> None:
        """Raises the first failure of a save that was not seen yet. Never blocks."""
        self._checkpointer.check_for_errors()

    def close(self) -> None:
        """Waits for the saves and releases the store. Raises the first failure that was not seen yet."""
        self._checkpointer.close()

    # Restoring.

    def restore(self, step: int | None, items: Any = None, restore_kwargs: Any = None,
                directory: str | os.PathLike[str] | None = None, args: _args.CheckpointArgs | None = None, *,
                progress: Progress = False) -> Any:
        """The item of the step, or an `args.Composite` of its items. `step`: None is the latest.

        Without `args` all items are restored as they were saved. `directory`: another store. `progress`, which Orbax has not:
        as for tidemark.jax.load. FileNotFoundError: there is no such step. MismatchError: it does not fit. Only `dtype` of
        restore_args converts.
        """
        if items is not None or restore_kwargs is not None:
            raise UnimplementedError("restore(items=..., restore_kwargs=...) has no counterpart in Tidemark: use args=")
        self.wait_until_finished()
        try:
            opened = open_step(directory or self._checkpointer.path, "latest" if step is None else step)
        except NotFoundError as error:
            raise StepNotFoundError(str(error)) from None
        with opened:
            kinds = record_of(opened.info).get("items")
            if kinds is None:
                raise InvalidArgumentError(f"step {opened.info.step} was not saved by tidemark.orbax: use tidemark.jax.load")
            if args is None:
                named = "" not in kinds
                parts: dict[str, Any] = dict.fromkeys(kinds)
            else:
                parts = self._parts(args)
                named = isinstance(args, _args.Composite)
            restored = self._all_restored(opened, parts, kinds, progress)
        return _args.Composite(**restored) if named else restored[""]

    @staticmethod
    def _all_restored(opened: Step, parts: dict[str, Any], kinds: dict[str, str], progress: Progress) -> dict[str, Any]:
        """The items of these names. A part is what `args` says of an item, or None."""
        total = sum(_reading.bytes_to_read(opened, getattr(part, "item", None), _path_of(name, kinds[name]))
                    for name, part in parts.items() if kinds.get(name, "json") != "json")
        with reporting(opened, progress, total):
            return {name: CheckpointManager._restored(opened, name, part, kinds) for name, part in parts.items()}

    @staticmethod
    def _restored(opened: Step, name: str, part: Any, kinds: dict[str, str]) -> Any:
        kind = kinds.get(name)
        if kind is None:
            raise NotFoundError(f"step {opened.info.step} has no item '{name or _DEFAULT}', but {sorted(kinds)}")
        if part is not None and (part.kind != kind or not type(part).__name__.endswith("Restore")):
            raise InvalidArgumentError(f"the item '{name or _DEFAULT}' was saved as {kind}, so {type(part).__name__} cannot "
                                       f"restore it")
        like = getattr(part, "item", None)
        if kind == "json":
            return opened.get_value(name or _DEFAULT)
        path, converted = _path_of(name, kind), set[str]()
        restore_args = getattr(part, "restore_args", None)
        partial = getattr(part, "partial_restore", False)
        if restore_args is not None:
            like, converted = like_of(opened, like, restore_args, path, partial=partial)
        if like is None:
            return _reading.load_as_saved(opened, path)
        return _reading.load_like(opened, like, path, allow_unexpected=partial, converts=converted.__contains__,
                                  way_out=_WAY_OUT)

    # What is known of a step.

    def _info(self, step: int) -> StepInfo:
        self.wait_until_finished()
        for info in self._infos():
            if info.step == step:
                return info
        raise StepNotFoundError(f"there is no step {step}")

    def metrics(self, step: int) -> Any:
        """What `save` was given as `metrics`, or None."""
        return metadata_of(self._info(step)).metrics

    def metadata(self, step: int) -> StepMetadata:
        """FileNotFoundError: there is no such step."""
        return metadata_of(self._info(step))


def _path_of(name: str, kind: str) -> str:
    """The name before all entries of an item."""
    return name if kind == "tree" else name or _DEFAULT


def metadata_of(info: StepInfo) -> StepMetadata:
    record = record_of(info)
    return StepMetadata([name or _DEFAULT for name in record.get("items", {})], _numbers(record.get("metrics")),
                        record.get("custom_metadata", {}), info.created)


def record_of(info: StepInfo) -> dict[str, Any]:
    record = json.loads(info.user_metadata or "{}").get("orbax", {})
    return record if isinstance(record, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) or (hasattr(value, "dtype") and numpy.ndim(value) == 0)


def json_of(value: Any, name: str) -> Any:
    """The value as json.dumps and json.loads leave it. InvalidArgumentError: it is no JSON; the message has the key."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return json_value(value, name)


def _plain(metrics: Any) -> Any:
    """As JSON can hold it: NaN and the infinities are texts."""
    if isinstance(metrics, dict):
        return {str(name): _plain(value) for name, value in metrics.items()}
    if isinstance(metrics, (bool, int)) or not _is_number(metrics):
        return metrics
    return float(metrics) if math.isfinite(metrics) else str(float(metrics))


def _numbers(metrics: Any) -> Any:
    """What `_plain` was given."""
    if isinstance(metrics, dict):
        return {name: _numbers(value) for name, value in metrics.items()}
    return float(metrics) if isinstance(metrics, str) else metrics


def _flat_metrics(metrics: Any, path: str = "") -> dict[str, float]:
    if metrics is None:
        return {}
    if isinstance(metrics, dict):
        found: dict[str, float] = {}
        for name, value in metrics.items():
            found.update(_flat_metrics(value, f"{path}/{name}" if path else str(name)))
        return found
    if not _is_number(metrics):
        raise InvalidArgumentError(f"the metric '{path}' is a {type(metrics).__name__}, not a number")
    return {path or "metric": float(metrics)}
