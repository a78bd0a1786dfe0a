"""Addresses of steps, "tidemark://STEP@STORE", which Lightning takes where it takes the path of a checkpoint. STEP is
percent-encoded."""

from __future__ import annotations

import io
import urllib.parse
from typing import Any

import fsspec
import torch

from .._checkpointer.progress import Progress
from .._checkpointer.ranks import Ranks, of_rank_0, together
from .._store.reader import Step
from .._store.reader import open as open_step
from ..errors import InvalidArgumentError, NotFoundError, UnimplementedError
from . import _dicts

REST = "lightning"  # the entry of what is neither a tensor of the model nor the state of an optimizer
SCHEME = "tidemark:"


def url_of(store: str, step: str) -> str:
    """"": there is no such step."""
    try:
        open_step(store, step).close()
    except NotFoundError:
        return ""
    return f"{SCHEME}//{urllib.parse.quote(step, safe=':/')}@{store}"


def _parts_of(url: str, store: str = "") -> tuple[str, str]:
    """(the step, the store); without "@STORE": the `store` given. InvalidArgumentError: that is "".

    The slashes may be missing, and a pathlib.Path has one. The step is percent-encoded, for a metric may have "@" in its name.
    """
    address = url.removeprefix(SCHEME).lstrip("/")
    step, _, other = address.partition("@")
    if not (other or store):
        raise InvalidArgumentError(f"tidemark://{address} names no store: expected tidemark://STEP@STORE")
    return urllib.parse.unquote(step), other or store


def load_step(url: str, store: str, ranks: Ranks | None = None, progress: Progress = False) -> dict[str, Any]:
    """The checkpoint at a URL; without "@STORE": of `store`. All `ranks` call this, and load the step that rank 0 chooses.
    `progress`: on rank 0."""
    step, store = _parts_of(url, store)
    if ranks is None:
        return _dicts.load_checkpoint(store, step, REST, progress=progress)
    step = of_rank_0(ranks, lambda: str(_number_of(store, step)))
    with together(ranks, "load the step"):
        return _dicts.load_checkpoint(store, int(step), REST, ranks.rank, progress)


def _number_of(store: str, step: str) -> int:
    with open_step(store, step) as opened:
        return opened.info.step


class StepFiles(fsspec.AbstractFileSystem):
    """By which LightningModule.load_from_checkpoint reads a URL. fsspec makes it, for "tidemark://".

    A file has what Lightning saves with `save_weights_only`, in the format of torch.save, and is made in memory when it is
    opened. FileNotFoundError: there is no such step, or an integration of another framework has saved it. InvalidArgumentError:
    the URL has no "@STORE". UnimplementedError: it is opened for writing.
    """

    protocol = "tidemark"
    cachable = False

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        _opened(path).close()
        return {"name": path, "size": None, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.BytesIO:
        if mode != "rb":
            raise UnimplementedError(f"tidemark://{path} is a step, which only a save writes: it is opened with mode {mode}")
        with _opened(path) as step:
            try:
                checkpoint = _dicts.checkpoint_of(step, REST, optimizers=False)
            except NotFoundError as error:
                raise FileNotFoundError(str(error)) from error
        file = io.BytesIO()
        torch.save({key: value for key, value in checkpoint.items() if key not in ("callbacks", "lr_schedulers")}, file)
        file.seek(0)
        return file


def _opened(path: str) -> Step:
    step, store = _parts_of(path)
    try:
        return open_step(store, step, "pt")
    except NotFoundError as error:
        raise FileNotFoundError(f"there is no step {step} in {store}") from error


fsspec.register_implementation("tidemark", StepFiles, clobber=True)
