"""Lightning's CheckpointIO on a store: files of one line that name steps."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
import uuid
from typing import Any

from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO

from .._arguments import path as path_of
from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.closing import close_owned
from .._checkpointer.given_options import check_options, refused_by
from .._checkpointer.observer import logger
from .._checkpointer.progress import Progress, progress_function
from .._checkpointer.waits import wait_for_saves
from .._store.reader import open as open_step
from ..errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnimplementedError
from . import _dicts
from ._announcements import Announcement, announced
from ._step_urls import REST, SCHEME, load_step

_INSTEAD = refused_by(
    "Lightning", when="ModelCheckpoint decides when to save",
    retention="ModelCheckpoint decides which files stay, and removing a file deletes its step", ranks="with several processes "
    "rank 0 alone saves. TidemarkCheckpoint saves on all of them",
    **{"when_full='skip'": "Lightning counts on each save: use 'block' or 'fail'"})


class TidemarkCheckpointIO(CheckpointIO):
    """Saves into the store at `store`. `options` are those of Checkpointer. `progress`: of each load, as for
    `Checkpointer.restore`, after each tensor; with several processes on each of them.

    At the path that Lightning asks for there is a file of one line, which names the store and the step. It is written
    when the step is committed, so it never names a step that a crash could take away. A save returns when the state is
    copied. What fails later is raised by the next save, or by `teardown`, which waits for all of them. A step has the
    number of Lightning's global step, or the next free one. Removing the file deletes the step. Thread-safe.

    Lightning's AsyncCheckpointIO saves on a thread of its own and passes no `teardown` on. Therefore a save on another
    thread than the main one returns when it is committed, and the store is closed after each call from then on.

    With several processes (DDP) rank 0 saves and removes, as Lightning has it, and all of them load. Another rank waits
    for a save of rank 0 that is not committed yet. It does not with AsyncCheckpointIO, whose thread begins the save at some
    later time, nor if the default process group has no store (MPI): then it may find no file, or the one before.
    A strategy that writes sharded checkpoints does not call this class. Those whose processes multiprocessing starts
    ("ddp_fork", "ddp_notebook", "ddp_spawn") are an UnimplementedError, of the first save or at the start: use "ddp".
    InvalidArgumentError: `options` have one that Lightning decides, or `ranks`, which would wait for the other ranks; the
    message says what to use instead.
    """

    def __init__(self, store: str | os.PathLike[str], *, progress: Progress = False, **options: Any) -> None:
        check_options("TidemarkCheckpointIO", options, _INSTEAD, own=TidemarkCheckpointIO.__init__)
        progress_function(progress)
        self._progress = progress
        self._store = os.path.abspath(path_of(store, "store"))
        self._options = options
        self._close_timeout = float(options.get("close_timeout", 1800.0))
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._checkpointer: Checkpointer | None = None
        self._next_step = 0
        self._pending: dict[str, threading.Event] = {}
        self._failures: list[BaseException] = []
        self._removed: list[int] = []  # steps to be deleted
        self._closes = False  # after each call

    def __getstate__(self) -> Any:
        raise _of_another_process()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str],
                        storage_options: Any | None = None) -> None:
        """UnsupportedTypeError: the checkpoint has an object that cannot be stored; the message has its path.
        UnimplementedError: this process was forked after the object was made."""
        if os.getpid() != self._pid:
            # Lightning would load the last save in the parent, which cannot wait for it, and has the store open itself.
            raise _of_another_process()
        if storage_options is not None:
            raise TypeError("TidemarkCheckpointIO takes no storage_options")
        path = _without_links(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)  # ModelCheckpoint may link to the file before it is there
        with self._lock, announced(path) as announcement:
            self._raise_failure()
            checkpointer = self._opened()
            global_step = checkpoint.get("global_step", 0)
            step = max(int(global_step), self._next_step)
            reference = {"tidemark": 1, "store": os.path.relpath(_without_links(self._store), os.path.dirname(path)),
                         "step": step, "save": uuid.uuid4().hex}
            save = checkpointer.save(step, _dicts.state_of(checkpoint, REST), user_metadata=json.dumps(
                {"global_step": global_step, "save": reference["save"]}))
            self._next_step = step + 1
            done = threading.Event()
            # Before it is waited for, so that an interrupt leaves nothing that no callback ends.
            save.committed.add_done_callback(functools.partial(self._committed, path, reference, done, announcement))
            self._pending[path] = done
        if threading.current_thread() is not threading.main_thread():
            self._closes = True
            self.teardown()

    def _committed(self, path: str, reference: dict[str, Any], done: threading.Event, announcement: Announcement,
                   future: Any) -> None:
        try:
            error = future.exception()
            if error is not None:
                raise error
            try:
                _write(path, json.dumps(reference) + "\n")
            except Exception:
                if not _names(path, reference):
                    self._removed.append(reference["step"])  # nothing would ever delete it
                raise
        except Exception as error:  # noqa: BLE001: kept for the thread that saves
            # Without the lock: a close that holds it waits for this thread.
            self._failures.append(error)
        finally:
            done.set()
            announcement.end()

    def load_checkpoint(self, path: str | os.PathLike[str], map_location: Any | None = None,
                        weights_only: bool | None = None) -> dict[str, Any]:
        """The checkpoint, in host memory; `weights_only` changes nothing, since nothing that is read can run.

        `path` may also be "tidemark://" and a step: "tidemark://latest", "tidemark://40".
        NotFoundError: the step is gone. InvalidArgumentError: the file is no reference to a step. DeadlineExceededError: rank
        0 has not committed it after `close_timeout` seconds.
        """
        if map_location is not None and str(map_location) != "cpu":
            raise InvalidArgumentError(f"map_location is {map_location!r}: checkpoints are loaded into host memory")
        if str(path).startswith(SCHEME):
            return load_step(str(path), self._store, progress=self._progress)
        path = os.path.realpath(path)
        self._wait(path)
        reference = _read(path)
        store = os.path.join(os.path.dirname(path), reference["store"])
        with open_step(store, reference["step"], "pt") as step:
            if json.loads(step.info.user_metadata).get("save") != reference["save"]:
                raise NotFoundError(f"{path} names a save of step {reference['step']} that is not in {store} any more")
            return _dicts.reported_checkpoint_of(step, REST, self._progress)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Removes the file, and deletes the step. The highest step stays until another one is committed. Of a link only the link
        is removed."""
        path = _without_links(path)
        self._wait(path)  # a save replaces a link
        with self._lock:
            if not os.path.lexists(path):
                return
            if os.path.islink(path):
                os.remove(path)
                return
            reference = _read(path)
            os.remove(path)
            self._removed.append(reference["step"])
            self._delete(self._opened())
        if self._closes:
            self.teardown()

    def _delete(self, checkpointer: Checkpointer) -> None:
        for step in list(self._removed):
            try:
                checkpointer.delete(step, "removed by Lightning")
            except FailedPreconditionError:
                continue  # it is the highest step
            except NotFoundError:
                pass
            self._removed.remove(step)

    def teardown(self) -> None:
        """Waits for the saves, closes the store, and raises the first failure; the others are warnings. The next save opens it
        again. A step whose file could not be written is deleted. DeadlineExceededError after `close_timeout`."""
        deadline = time.monotonic() + self._close_timeout
        with self._lock:
            checkpointer, pending = self._checkpointer, list(self._pending)
        ended = checkpointer is None or wait_for_saves(checkpointer, deadline)
        for path in pending if ended else ():
            self._wait(path)
        with self._lock:
            try:
                if ended and self._checkpointer is not None:
                    self._delete(self._checkpointer)
                close_owned(self, None, max(0.0, deadline - time.monotonic()))
                self._pending.clear()
                self._raise_failure()
            finally:
                while self._failures:
                    logger.warning("closing %s: %r", self._store, self._failures.pop(0))

    def _opened(self) -> Checkpointer:
        if self._checkpointer is None:
            self._checkpointer = Checkpointer(self._store, **self._options)
            self._next_step = max((info.step for info in self._checkpointer.steps()), default=-1) + 1
        return self._checkpointer

    def _wait(self, path: str) -> None:
        event, checkpointer = self._pending.get(path), self._checkpointer
        if event is not None and checkpointer is not None:
            wait_for_saves(checkpointer, is_cancelled=event.is_set)
        while event is not None and not event.wait(0.1):  # in slices, so that Ctrl-C ends it
            pass
        if event is None:
            Announcement(path).wait(self._close_timeout)

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.pop(0)


def _of_another_process() -> UnimplementedError:
    return UnimplementedError("TidemarkCheckpointIO saves only in the process that made it, and strategies such as 'ddp_fork', "
                              "'ddp_notebook' and 'ddp_spawn' save in others: use strategy='ddp', or torchrun")


def _without_links(path: str | os.PathLike[str]) -> str:
    """The path with the real folder. The file itself may be a link, for it is replaced."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _write(path: str, text: str) -> None:
    """Puts a file in place as a whole, and durably."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        _sync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        _sync(folder)
    finally:
        os.close(folder)


def _sync(file: int) -> None:
    os.fsync(file)
    os.fstat(file)  # on an XFS that has shut itself down only this fails: storage/io/sync.h


def _names(path: str, reference: dict[str, Any]) -> bool:
    """Whether a write that has failed has put the file in place."""
    try:
        return _read(path) == reference
    except (OSError, InvalidArgumentError):
        return False


def _read(path: str) -> dict[str, Any]:
    if os.path.isdir(path):
        raise InvalidArgumentError(f"{path} is a folder: TidemarkCheckpointIO has not written it. A strategy that writes sharded "
                                   f"checkpoints does so itself")
    with open(path, "rb") as file:
        text = file.read(4096)
    try:
        reference = json.loads(text)
        if reference["tidemark"] == 1 and type(reference["step"]) is int and all(
                type(reference[key]) is str for key in ("store", "save")):
            return dict(reference)
    except (ValueError, TypeError, KeyError):
        pass
    raise InvalidArgumentError(f"{path} names no step of a store: TidemarkCheckpointIO has not written it")
