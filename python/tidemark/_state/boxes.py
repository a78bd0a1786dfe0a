"""Boxes: parts of tensors that the ranks of a job hold together."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgumentError, UnsupportedTypeError
from . import arrays


class Box:
    """A leaf of a state: `array` is the box at `offset` of a tensor of `shape`, which the ranks of a job hold together.

        state = {"weight": tidemark.Box(rows, shape=(4096, 512), offset=(first_row, 0))}

    `array`: of NumPy or PyTorch, in host memory or on a device, strided or not; it has as many dimensions as `shape`, and
    its own shape is the box's extent, which may be 0 in a dimension. It stays the trainer's, and must stay in place as
    any array of a state. A save stores the box; ranks that have the same elements store them each. A restore fills it from
    whatever boxes, or whole tensor, the checkpoint has.

    Errors of a save or restore, which name the entry: InvalidArgumentError: the box does not lie in its tensor; or it is a
    part of it, and the Checkpointer that is to save it has no `ranks`. UnsupportedTypeError: `array` is none. If the boxes of
    all ranks leave a hole, `committed` is an AbortedError.
    """

    __slots__ = ("array", "offset", "shape", "spread")

    def __init__(self, array: Any, shape: Sequence[int], offset: Sequence[int]) -> None:
        self.array = array
        self.shape = tuple(operator.index(extent) for extent in shape)
        self.offset = tuple(operator.index(first) for first in offset)
        self.spread = False  # other processes have boxes of it, though this one may have all of it

    def __repr__(self) -> str:
        held = ", ".join(f"{first}:{first + extent}" for first, extent in zip(self.offset, getattr(self.array, "shape", ())))
        return f"<tidemark.Box [{held}] of a tensor of {list(self.shape)}>"


class Boxes:
    """Several boxes of one tensor in one state, under one name. They do not overlap."""

    __slots__ = ("boxes",)

    def __init__(self, boxes: Sequence[Box]) -> None:
        self.boxes = tuple(boxes)


def check(box: Box, name: str) -> None:
    """Raises what Box says, with the name of the entry."""
    if not arrays.is_array(box.array):
        raise UnsupportedTypeError(f"'{name}' is a Box of a {type(box.array).__module__}.{type(box.array).__qualname__}, not of "
                                   f"an array of NumPy or PyTorch")
    extent, shape, offset = tuple(box.array.shape), box.shape, box.offset
    if not len(extent) == len(shape) == len(offset):
        raise InvalidArgumentError(f"'{name}' is a Box whose array has {len(extent)} dimensions, whose offset has {len(offset)}, "
                                   f"and whose tensor has {len(shape)}: they must be as many")
    for d, (held, first, whole) in enumerate(zip(extent, offset, shape)):
        if first < 0 or first + held > whole:
            raise InvalidArgumentError(f"'{name}' is a Box of the elements {first} to {first + held} of dimension {d}, and its "
                                       f"tensor has {whole} there")
