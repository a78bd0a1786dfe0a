"""DTensors of PyTorch 2: what this rank holds of them, as boxes. Imports no PyTorch: a DTensor brings its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgumentError, UnimplementedError
from .boxes import Box

# Shape, offset and extent.
Placed = tuple[list[int], list[int], list[int]]


def is_dtensor(value: object) -> bool:
    for module in ("torch.distributed.tensor", "torch.distributed._tensor"):
        found = getattr(sys.modules.get(module), "DTensor", None)
        if found is not None and isinstance(value, found):
            return True
    return False


def chunk_of(size: int, chunks: int, index: int) -> tuple[int, int]:
    """Begin and end of the chunk of that index, as torch.chunk cuts `size` elements. The last chunks may be empty."""
    each = -(-size // chunks)
    return min(index * each, size), min((index + 1) * each, size)


def box_of(shape: Sequence[int], mesh: Sequence[int], coordinate: Sequence[int], placements: Sequence[Any],
           name: str) -> tuple[list[int], list[int]]:
    """Offset and extent of what the rank at that coordinate of the mesh holds of a tensor of `shape`. UnimplementedError: a
    placement is neither Shard nor Replicate."""
    offset, extent = [0] * len(shape), list(shape)
    for ranks, at, placement in zip(mesh, coordinate, placements):
        kind = type(placement).__name__  # by name, for a _StridedShard can be a Shard
        if kind == "Replicate":
            continue
        if kind != "Shard":
            raise UnimplementedError(f"'{name}' is a DTensor with the placement {kind}, whose part is no box of the tensor: only "
                                     f"Shard and Replicate can be stored. Redistribute it before")
        d = placement.dim % len(shape)
        begin, end = chunk_of(extent[d], ranks, at)
        offset[d], extent[d] = offset[d] + begin, end - begin
    return offset, extent


def placed(value: Any, name: str) -> Placed | None:
    """What this rank holds. None: it is not in the tensor's mesh. Errors are those of `part_of`."""
    mesh, shape = value.device_mesh, [int(size) for size in value.shape]
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return None
    order = getattr(getattr(value, "_spec", None), "shard_order", None) or ()
    if any(list(entry.mesh_dims) != sorted(entry.mesh_dims) for entry in order):
        raise UnimplementedError(f"'{name}' is a DTensor whose shards are not cut in the order of its mesh's dimensions: "
                                 f"redistribute it before")
    offset, extent = box_of(shape, tuple(mesh.mesh.shape), coordinate, value.placements, name)
    held = list(value.to_local().shape)
    if held != extent:
        raise InvalidArgumentError(f"'{name}' is a DTensor of {shape} whose local part has the shape {held}, and its placements "
                                   f"{list(value.placements)} make it {extent}")
    return shape, offset, extent


def part_of(value: Any, name: str) -> Any:
    """What this rank holds: its local tensor if each rank has all of it, else a Box; None if the rank is not in the mesh. It
    shares its memory with the DTensor.

    UnimplementedError: another placement than Shard and Replicate. InvalidArgumentError: its local part has another shape
    than torch.chunk gives.
    """
    found = placed(value, name)
    if found is None:
        return None
    local = value.detach().to_local()
    shape, offset, _ = found
    sharded = any(type(placement).__name__ == "Shard" and ranks > 1
                  for placement, ranks in zip(value.placements, value.device_mesh.mesh.shape))
    if not sharded:
        return local
    box = Box(local, shape, offset)
    box.spread = True
    return box


def like(value: Any, local: Any) -> Any:
    """A DTensor with the mesh and the placements of `value`, and this local part."""
    return type(value).from_local(local.to(value.device), value.device_mesh, value.placements, run_check=False,
                                  shape=value.shape, stride=value.stride())
