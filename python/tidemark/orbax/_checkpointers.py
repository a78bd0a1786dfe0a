"""StandardCheckpointer and PyTreeCheckpointer by Orbax's names: one pytree at one path."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.closing import close_after, close_owned
from .._checkpointer.progress import Progress
from .._store.reader import Step, open as open_step
from ..errors import InvalidArgumentError, NotFoundError, UnimplementedError
from . import args as _args
from ._manager import CheckpointManager, StepAlreadyExistsError, StepMetadata, StepNotFoundError, json_of, metadata_of, record_of


class StandardCheckpointer:
    """Saves pytrees, each at a path of its own: a store of Tidemark with the step 0. A context manager. Not thread-safe.

    A save returns when the arrays may be donated, and goes on in the background. The next call waits for it. A failure in the
    background raises from that call. UnimplementedError: an argument has no counterpart.
    """

    def __init__(self, *, async_options: Any = None, multiprocessing_options: Any = None, file_options: Any = None,
                 atomicity_options: Any = None, checkpoint_metadata_store: Any = None, temporary_path_class: Any = None) -> None:
        _refuse("StandardCheckpointer", async_options=async_options, multiprocessing_options=multiprocessing_options,
                file_options=file_options, atomicity_options=atomicity_options,
                checkpoint_metadata_store=checkpoint_metadata_store, temporary_path_class=temporary_path_class)
        self._checkpointer: Checkpointer | None = None  # of the save that goes on

    def __enter__(self) -> StandardCheckpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._release(error)

    def save(self, directory: str | os.PathLike[str], state: Any, *, save_args: Any = None, force: bool = False,
             custom_metadata: dict[str, Any] | None = None) -> None:
        """StepAlreadyExistsError, a ValueError: the path has a checkpoint, and it is not to be replaced (`force`).
        UnsupportedTypeError: a leaf cannot be stored. InvalidArgumentError: the state is a single leaf, or JSON cannot hold
        something of `custom_metadata`. AlreadyHeldError: another checkpointer has the path."""
        self._save(directory, _args.StandardSave(state, save_args), force, custom_metadata)

    def restore(self, directory: str | os.PathLike[str], target: Any = None, *, strict: bool = True,
                progress: Progress = False) -> Any:
        """As `target` is, which may be abstract; without it, dicts and lists. `progress`, which Orbax has not: as for
        tidemark.jax.load. FileNotFoundError: the path has no checkpoint. MismatchError: it does not fit; no dtype is
        converted. InvalidArgumentError: tidemark.orbax has not saved it. NotFoundError: it has named items, of a
        CheckpointManager."""
        return self._restore(directory, _args.StandardRestore(target, strict), progress)

    def _save(self, directory: str | os.PathLike[str], part: Any, force: bool, custom_metadata: dict[str, Any] | None) -> None:
        self.wait_until_finished()
        state = CheckpointManager._state_of("", part)
        record = {"items": {"": part.kind}, "metrics": None, "custom_metadata": json_of(custom_metadata or {}, "custom_metadata")}
        self._checkpointer = Checkpointer(directory)
        try:
            latest = max((info.step for info in self._checkpointer.steps() if info.state == "committed"), default=None)
            if latest is not None and not force:
                raise StepAlreadyExistsError(f"{self._checkpointer.path} has a checkpoint already: force=True replaces it")
            self._checkpointer.save(latest or 0, state, user_metadata={"orbax": record}, overwrite=True)
        except BaseException as error:
            self._release(error)
            raise

    def _restore(self, directory: str | os.PathLike[str], part: Any, progress: Progress) -> Any:
        self.wait_until_finished()
        with _opened(directory) as opened:
            kinds = record_of(opened.info).get("items")
            if kinds is None:
                raise InvalidArgumentError(f"{os.fspath(directory)} was not saved by tidemark.orbax: use tidemark.jax.load")
            return CheckpointManager._all_restored(opened, {"": part}, kinds, progress)[""]

    def metadata(self, directory: str | os.PathLike[str]) -> StepMetadata:
        """What is known of the checkpoint without reading its arrays. FileNotFoundError: the path has none."""
        self.wait_until_finished()
        with _opened(directory) as opened:
            return metadata_of(opened.info)

    def check_for_errors(self) -> None:
        """Raises the failure of the save that goes on, if it has failed already."""
        if self._checkpointer is not None:
            self._checkpointer.check_for_errors()

    def wait_until_finished(self) -> None:
        """Blocks until the save survives power loss, and releases the store. Raises the failure of the save."""
        close_owned(self, None)

    def close(self) -> None:
        """As `wait_until_finished`."""
        self.wait_until_finished()

    def _release(self, error: BaseException) -> None:
        """As `wait_until_finished`, while `error` is raised: a failure of the save is a warning."""
        checkpointer = self._checkpointer
        if checkpointer is not None:
            close_after(error, checkpointer)
            self._checkpointer = None


class PyTreeCheckpointer(StandardCheckpointer):
    """The same with other names of arguments. A save returns when it survives power loss.

    How Orbax writes its files (use_ocdbt, use_zarr3, use_compression) has no effect. UnimplementedError: an argument has no
    counterpart.
    """

    def __init__(self, primary_host: int | None = 0, use_ocdbt: bool = True, use_zarr3: bool = False,
                 use_compression: bool = True) -> None:
        super().__init__()
        _refuse("PyTreeCheckpointer", primary_host=primary_host or None)

    def save(self, directory: str | os.PathLike[str], item: Any = None, save_args: Any = None,
             force: bool = False, custom_metadata: dict[str, Any] | None = None, *, args: Any = None, save_context: Any = None,
             ocdbt_target_data_file_size: int | None = None) -> None:
        """Saves `item`, or that of `args`, an args.PyTreeSave. The errors are those of StandardCheckpointer.save."""
        _refuse("PyTreeCheckpointer.save", save_context=save_context)
        if (item is None) == (args is None):
            raise InvalidArgumentError("give either item or args, an args.PyTreeSave")
        self._save(directory, args or _args.PyTreeSave(item, save_args, ocdbt_target_data_file_size), force, custom_metadata)
        self.wait_until_finished()

    def restore(self, directory: str | os.PathLike[str], item: Any = None, restore_args: Any = None,  # type: ignore[override]
                transforms: Any = None, transforms_default_to_original: bool = True, legacy_transform_fn: Any = None,
                partial_restore: bool = False, *, args: Any = None, progress: Progress = False) -> Any:
        """As `item` is, or that of `args`, an args.PyTreeRestore. partial_restore: the checkpoint may have more. `progress` and
        the errors are those of StandardCheckpointer.restore."""
        return self._restore(directory, args or _args.PyTreeRestore(
            item, restore_args, transforms, transforms_default_to_original, legacy_transform_fn, partial_restore), progress)


def _opened(directory: str | os.PathLike[str]) -> Step:
    try:
        return open_step(directory)
    except NotFoundError as error:
        raise StepNotFoundError(str(error)) from None


def _refuse(of: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise UnimplementedError(f"{of}({name}=...) has no counterpart in Tidemark")
