"""Steps as safetensors files, which other libraries read."""

from __future__ import annotations

import atexit
import contextlib
import os
import warnings
import weakref
from collections.abc import Sequence
from types import TracebackType

from .. import _native
from .._arguments import mode as checked_mode
from .._arguments import path as path_of
from .._arguments import seconds, selector, text
from .._checkpointer.evaluator import export_options
from .._checkpointer.futures import Notifier
from .._checkpointer.observer import CheckpointObserver, observer_or_none
from .._choices import BestMode
from ..errors import FailedPreconditionError


def export_safetensors(store: str | os.PathLike[str], path: str | os.PathLike[str], step: int | str = "latest", *,
                       entries: Sequence[str] = (), renames: Sequence[tuple[str, str]] = (), dtype: str = "",
                       replace: bool = False) -> int:
    """Writes the entries of a step to one safetensors file, complete or not at all, and returns the step's number. Beside a
    trainer or without one. Other threads run meanwhile; all exported entries are in memory at once.

    `step`: as in `tidemark.open`. `entries`: those whose names match one of these patterns, with "*" and "?", each of
    which must match one; (): all. `renames`: (name in the step, name in the file): ("model", "") makes "layer.weight" of
    "model.layer.weight". `dtype`: "float16", "bfloat16", "float32" or "float64": that of all floating-point tensors in the
    file, rounded to nearest; "": each keeps its own. `replace`: whether a file of that name may be replaced. Of tied
    tensors the first is written. Values, metrics and user metadata become text in the file's metadata.

    InvalidArgumentError: a pattern or a rename fits nothing, or two entries get one name, or safetensors has no such
    dtype. AlreadyExistsError: `path` is there, and `replace` is off. NotFoundError: there is no such store, step or
    folder. ResourceExhaustedError: the disk is full.
    """
    return int(_native.export_step(path_of(store, "store"), selector(step), os.path.abspath(path_of(path, "path")),
                                   export_options(entries, renames, dtype, replace)))


_open: weakref.WeakSet[BestFile] = weakref.WeakSet()


class BestFile:
    """Keeps a safetensors file of the best step up to date, beside a trainer or in another process. A context manager.

        with tidemark.BestFile("run/ckpt", "validation/loss", "run/best.safetensors", entries=["model.*"]):
            ...

    A process that reads the file gets the earlier best step or the new one, whole. A thread of the library looks every
    `poll_interval` seconds for a new best step, the healthy one with the best value of the metric. It delays no save. What
    goes wrong is a warning, and is tried again. `mode`: "lowest" or "highest"; "": the mode that the store has recorded,
    else the one that the metric's name says. The other options are those of `export_safetensors`; a file that is an export
    of this store is replaced without `replace`. `observer` is told of exports and warnings. Thread-safe. In a forked child
    it cannot be used.

    NotFoundError: there is no store yet. InvalidArgumentError: an option, or nothing says which value is the best.
    AlreadyExistsError: `path` is no export of this store, and `replace` is off.
    """

    def __init__(self, store: str | os.PathLike[str], metric: str, path: str | os.PathLike[str], *, mode: BestMode = "",
                 entries: Sequence[str] = (), renames: Sequence[tuple[str, str]] = (), dtype: str = "",
                 replace: bool = False, poll_interval: float = 1.0,
                 observer: CheckpointObserver | None = None) -> None:
        self._pid = os.getpid()
        self._closed = True  # until it runs
        observer = observer_or_none(observer)
        self._native = _native.BestFile({
            "store": os.path.abspath(path_of(store, "store")), "metric": text(metric, "metric"),
            "mode": checked_mode(mode, "mode"),
            "path": os.path.abspath(path_of(path, "path")), "poll_interval": seconds(poll_interval, "poll_interval"),
            **export_options(entries, renames, dtype, replace)})
        self._notifier = Notifier(self._native, observer)
        self._closed = False
        _open.add(self)
        self._notifier.start()

    def __enter__(self) -> BestFile:
        self._require()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._pid != os.getpid():
            return
        self.close()  # first: the warning may be an error
        warnings.warn("a tidemark.BestFile was not closed", ResourceWarning, stacklevel=1, source=self)

    def update(self) -> None:
        """Looks for a new best step now, and exports it before it returns.

        Errors are those of `export_safetensors`. FailedPreconditionError: the best file is closed."""
        self._require()
        self._native.update()

    def _require(self) -> None:
        if self._closed:
            raise FailedPreconditionError("the best file is closed")
        if self._pid != os.getpid():
            raise FailedPreconditionError("the best file belongs to the process that forked this one")

    def close(self) -> None:
        """Waits for an export that is running, and ends the thread. Call `update` before, if the last steps are to count.
        May be called again. In a forked child it does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        self._native.release()
        self._notifier.stop(None)
        _open.discard(self)
        self._closed = True  # the last: a close that is interrupted before can be repeated


@atexit.register
def _close_all() -> None:
    with contextlib.ExitStack() as all_of_them:  # after Ctrl-C in one of them, too
        for file in list(_open):
            all_of_them.callback(file.close)
