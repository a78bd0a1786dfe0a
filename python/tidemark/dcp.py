"""PyTorch's distributed checkpoints (DCP) into a store, for one process.

    dcp.save(state, storage_writer=Writer("run/ckpt", step=100), planner=SavePlanner())
    dcp.load(state, storage_reader=Reader("run/ckpt"), planner=LoadPlanner())

With the two planners, what is no tensor is stored as a value of this package. DCP's default planners write such things as
code that their reading runs; a store keeps those bytes as they are.
"""

from __future__ import annotations

import io
import math
import os
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex,
                                                   TensorProperties, TensorStorageMetadata)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from ._checkpointer.checkpointer import Checkpointer
from ._checkpointer.progress import Progress, progress_function
from ._state import arrays, codec
from ._store.progress import reporting
from ._store.reader import Step
from ._store.reader import open as open_step
from .errors import InvalidArgumentError, UnimplementedError

__all__ = ["LoadPlanner", "Reader", "SavePlanner", "Writer"]

_METADATA = "dcp.metadata"


def _no_array(name: str) -> Any:
    raise KeyError(name)


class SavePlanner(DefaultSavePlanner):
    """Encodes what is no tensor as a value. UnsupportedTypeError: it cannot be stored; the message has its name."""

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:  # noqa: A002: DCP's name
        if write_item.type != WriteItemType.BYTE_IO:
            return object
        return io.BytesIO(codec.to_text(codec.encode(object, write_item.index.fqn, lambda *_: False)))


class LoadPlanner(DefaultLoadPlanner):
    """Reads what SavePlanner has encoded. InvalidArgumentError: another planner has written it."""

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        content = value.getvalue()
        if not content.startswith(codec.MARK.encode()):
            raise InvalidArgumentError(f"'{name}' was not saved with tidemark.dcp.SavePlanner: load it with DCP's own planner "
                                       f"if you trust the checkpoint")
        loaded = codec.from_entry("string", content, _no_array)
        if self.flatten_state_dict:
            from torch.distributed.checkpoint._traverse import set_element

            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded


def _require_one_process() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise UnimplementedError(f"tidemark.dcp works in one process, and the group has {torch.distributed.get_world_size()}")


class Writer(StorageWriter):
    """Saves one step. `save` of DCP returns when it is committed.

    store: a folder, which is opened and closed again, or a Checkpointer that is open, whose memory then serves every save.
    With the `checkpoint_id` of DCP that folder is the store, and the step is 0. A step that is there is replaced.
    """

    def __init__(self, store: str | os.PathLike[str] | Checkpointer | None = None, step: int = 0) -> None:
        super().__init__()
        self._store = store
        self._step = step
        self._entries: dict[str, Any] = {}
        self._values: list[str] = []

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._store, self._step = checkpoint_id, 0
        self._entries, self._values = {}, []

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in str(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        _require_one_process()
        if self._store is None:
            raise InvalidArgumentError("Writer has no store, and the save no checkpoint_id")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: Any) -> Future[list[WriteResult]]:
        boxes: dict[str, int] = {}
        for item in plan.items:
            boxes[item.index.fqn] = boxes.get(item.index.fqn, 0) + 1
        results = []
        for item in plan.items:
            data = planner.resolve_data(item)
            name = _entry_name(item.index) if boxes[item.index.fqn] > 1 else item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                content = data.getvalue()
                size = len(content)
                if content.startswith(codec.MARK.encode()):
                    self._values.append(name)
                    content = codec.from_entry("string", content, _no_array)
                self._entries[name] = content
            else:
                self._entries[name] = data.detach()
                size = data.numel() * data.element_size()
            results.append(WriteResult(index=item.index, size_in_bytes=size, storage_data=name))
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        names = [[result.index.fqn, _offset_of(result.index), result.storage_data]
                 for result in results[0]]
        described = {"entries": {name: _described(entry) for name, entry in metadata.state_dict_metadata.items()},
                     "paths": metadata.planner_data, "names": names, "values": self._values}
        state = {**self._entries, _METADATA: described}
        if isinstance(self._store, Checkpointer):
            self._store.save(self._step, state, overwrite=True).committed.result()
        else:
            assert self._store is not None
            with Checkpointer(self._store) as checkpointer:
                checkpointer.save(self._step, state, overwrite=True)
        self._entries = {}


class Reader(StorageReader):
    """Reads a step: its number, "latest", "best:METRIC", "tag:NAME". Only the rows that are asked for are read.

    A step that something else has saved is read too: its tensors and values have the names of its entries. `progress`: as for
    `Checkpointer.restore`, after each part of a tensor that DCP asks for.
    """

    def __init__(self, store: str | os.PathLike[str] | None = None, step: int | str = "latest", *,
                 progress: Progress = False) -> None:
        super().__init__()
        progress_function(progress)
        self._progress = progress
        self._store = store
        self._selector = step
        self._step: Step | None = None
        self._names: dict[tuple[str, Any], str] = {}
        self._values: set[str] = set()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._store, self._selector = checkpoint_id, "latest"
        if self._step is not None:
            self._step.close()
        self._step = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in str(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self._store is None:
            raise InvalidArgumentError("Reader has no store, and the load no checkpoint_id")
        step = self._step = open_step(self._store, self._selector, "pt")
        if _METADATA not in step.value_keys():
            return self._metadata_of_entries(step)
        described = step.get_value(_METADATA)
        self._names = {(name, offset): entry for name, offset, entry in described["names"]}
        self._values = set(described["values"])
        return Metadata({name: _undescribed(entry) for name, entry in described["entries"].items()},
                        planner_data=described["paths"], storage_data={}, version="1.0.0")

    def _metadata_of_entries(self, step: Step) -> Metadata:
        entries: dict[str, Any] = {name: BytesStorageMetadata() for name in step.value_keys()}
        for name in step.keys():
            part = step.get_slice(name)
            size = torch.Size(part.get_shape())
            entries[name] = TensorStorageMetadata(TensorProperties(dtype=arrays.torch_dtype(part.get_dtype())), size,
                                                  [ChunkStorageMetadata(torch.Size([0] * len(size)), size)])
        self._names, self._values = {}, set(step.value_keys())
        return Metadata(entries, planner_data={name: (name,) for name in entries}, storage_data={}, version="1.0.0")

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        _require_one_process()

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: Any) -> Future[None]:
        step = self._step
        assert step is not None
        with reporting(step, self._progress, sum(self._bytes_of(step, item) for item in plan.items)):
            for item in plan.items:
                self._read_item(step, item, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _name_of(self, item: Any) -> str:
        index = item.storage_index
        return self._names.get((index.fqn, _offset_of(index)), str(index.fqn))

    def _bytes_of(self, step: Step, item: Any) -> int:
        if item.type == LoadItemType.BYTE_IO:
            return 0
        dtype = arrays.torch_dtype(step.get_slice(self._name_of(item)).get_dtype())
        return int(math.prod(item.lengths) * dtype.itemsize)

    def _read_item(self, step: Step, item: Any, planner: Any) -> None:
        name = self._name_of(item)
        if item.type == LoadItemType.BYTE_IO:
            content = step.get_value(name)
            if name in self._values:
                content = codec.to_text(codec.encode(content, name, lambda *_: False))
            planner.load_bytes(item, io.BytesIO(content))
            return
        target = planner.resolve_tensor(item).detach()
        if target.size() != item.lengths:
            raise InvalidArgumentError(f"'{name}': {list(item.lengths)} of it are asked for, into {list(target.size())}")
        window = tuple(slice(begin, begin + length) for begin, length in zip(item.storage_offsets, item.lengths))
        target.copy_(step.get_slice(name)[window] if window else step.get_tensor(name))
        planner.commit_tensor(item, target)


def _entry_name(index: MetadataIndex) -> str:
    """Of one of several boxes of a tensor: "NAME@0,128"."""
    return f"{index.fqn}@{','.join(str(offset) for offset in index.offset or ())}"


def _offset_of(index: MetadataIndex) -> tuple[int, ...] | None:
    return None if index.offset is None else tuple(index.offset)


def _described(entry: Any) -> Any:
    if isinstance(entry, BytesStorageMetadata):
        return None
    return {"dtype": str(entry.properties.dtype).removeprefix("torch."), "requires_grad": entry.properties.requires_grad,
            "size": list(entry.size), "chunks": [[list(chunk.offsets), list(chunk.sizes)] for chunk in entry.chunks]}


def _undescribed(entry: Any) -> Any:
    if entry is None:
        return BytesStorageMetadata()
    return TensorStorageMetadata(
        TensorProperties(dtype=arrays.torch_dtype(entry["dtype"]), requires_grad=entry["requires_grad"]),
        torch.Size(entry["size"]),
        [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in entry["chunks"]])
