"""What a step of a Trainer of Transformers consists of, and its export."""

from __future__ import annotations

import dataclasses
import inspect
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from .._checkpointer.observer import logger
from .._checkpointer.ranks import Ranks, ranks_of_job
from .._store.reader import open as open_step
from ..errors import InvalidArgumentError, UnimplementedError

WAYS_OUT = ("Resume with train(resume_from_checkpoint=True), or use another store. To go back for good, call "
            "Checkpointer.discard_after before")

_FILE_BYTES_MAX = 256 << 20


def export(store: str | os.PathLike[str], folder: str | os.PathLike[str], step: int | str = "latest") -> None:
    """Writes what from_pretrained reads: model.safetensors and the configuration files of a step, into a new folder.

    FileExistsError: the folder is there. NotFoundError: there is no such step. InvalidArgumentError: a file of the step has a
    name that would be outside of the folder.
    """
    import safetensors.torch

    with open_step(store, step, "pt") as opened:
        tensors = {name[len("model."):]: opened.get_tensor(name) for name in opened.keys() if name.startswith("model.")}
        files = {name[len("files."):]: opened.get_value(name) for name in opened.value_keys() if name.startswith("files.")}
    for name in files:
        if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise InvalidArgumentError(f"step {opened.info.step} has a file that export cannot write: the name {name!r} is not "
                                       f"allowed")
    os.makedirs(folder)
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    safetensors.torch.save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def ranks_of(args: Any, given: Ranks | Callable[[], Ranks] | None, parts: Sequence[str]) -> Ranks | None:
    """Those of the processes of a training, which have the same `parts` of the state with DDP; None: it has one."""
    from accelerate.state import AcceleratorState

    if args.world_size > 1:
        # Making an AcceleratorState would replace its kind by that of the processes.
        kind = str(getattr(AcceleratorState._shared_state.get("distributed_type"), "value", "NO"))
        if not kind.startswith("MULTI_"):
            raise UnimplementedError(f"tidemark.transformers does not save with several processes of the kind {kind}. It does "
                                     f"with DDP")
    ranks = ranks_of_job(given, args.process_index, args.world_size)
    return ranks and dataclasses.replace(ranks, replicated=[f"{part}*" for part in parts])


def is_rank_0(ranks: Ranks | None) -> bool:
    return ranks is None or ranks.rank == 0


def generators(ranks: Ranks | None) -> str:
    """The name of this rank's generators of random numbers."""
    return "rng" if ranks is None or ranks.rank == 0 else f"rng.{ranks.rank}"


def bare(wrapped: Any, attribute: str) -> Any:
    """What accelerate has wrapped."""
    return getattr(wrapped, attribute, wrapped) if type(wrapped).__module__.startswith("accelerate.") else wrapped


def metrics_of(state: Any) -> dict[str, float]:
    """The numbers that were logged last for this step."""
    found: dict[str, float] = {}
    for line in state.log_history:
        if line.get("step") == state.global_step:
            found.update({name: float(value) for name, value in line.items()
                          if name not in ("step", "epoch") and isinstance(value, (int, float))})
    return found


def files_of(*owners: Any) -> dict[str, bytes]:
    """The files that `save_pretrained` writes, of a model's configuration and of a tokenizer, as "files.PATH". Larger ones than
    256 MiB are left out, with a warning."""
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="tidemark-files-") as folder:
        for owner in owners:
            for part in (getattr(owner, "config", None), getattr(owner, "generation_config", None),
                         owner if not hasattr(owner, "config") else None):
                if part is not None and "save_directory" in inspect.signature(
                        getattr(part, "save_pretrained", lambda: None)).parameters:
                    part.save_pretrained(folder)
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                relative, size = os.path.relpath(path, folder), os.path.getsize(path)
                if size > _FILE_BYTES_MAX:
                    logger.warning("%s is in no step, and export does not write it: it has %d bytes, and the limit is %d",
                                   relative, size, _FILE_BYTES_MAX)
                    continue
                with open(path, "rb") as file:
                    files[f"files.{relative}"] = file.read()
    return files
