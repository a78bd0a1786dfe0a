"""Floating-point arrays that a checkpoint holds in another dtype than the state."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .._arguments import closest, text, wrong
from ..errors import InvalidArgumentError
from . import arrays
from .parameters import is_optimizer
from .pattern import matches
from .tree import Tree

_SAVES = 3  # the third one comes after the first step of an optimizer, which then has its arrays
_FLOATING = ("float16", "bfloat16", "float32", "float64")


class SavedDtypes:
    """Converts arrays for saves, by {pattern of names: dtype}; the first pattern that matches counts. Keeps the memory of the
    copies for the next save, and as long as a save may read it. Thread-compatible."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        if not isinstance(dtypes, Mapping):
            raise wrong(dtypes, "saved_dtypes", "a dict of dtypes by pattern")
        for pattern, dtype in dtypes.items():
            text(pattern, "a key of saved_dtypes")
            if dtype not in _FLOATING:
                raise InvalidArgumentError(f"saved_dtypes['{pattern}'] is '{dtype}', not one of {', '.join(_FLOATING)}")
        self._dtypes = dict(dtypes)
        self._copies: dict[Any, Any] = {}  # by name, and which box it is
        self._saves = 0  # that have left the next ones to look for patterns without an array
        self._unused = list(dtypes)  # patterns that have matched no array yet; empty once this was told

    def convert(self, tree: Tree) -> None:
        """Puts converted copies in the place of the arrays of a state. No save may read the earlier copies any more. Tensors on
        devices stay: they are converted there, when they are copied."""
        if not self._dtypes:
            return
        if self._unused:
            self._tell_unused(tree)
        copies: dict[Any, Any] = {}
        first: dict[Any, Any] = {}  # by place in memory: tied arrays are stored as the first of them
        for i in range(len(tree.arrays)):
            place = tree.arrays[i]
            name, dtype = place[0], place[1]
            if dtype not in _FLOATING:
                continue
            key = arrays.memory_of(place)
            wanted = next((to for pattern, to in self._dtypes.items() if matches(name, [pattern])), dtype)
            if place[6]:
                stored: Any = (name, first.setdefault(key, wanted), *place[2:])
                tree.arrays[i] = stored
                continue
            if key not in first:
                first[key] = None
                if wanted != dtype:
                    which = (name, *(tuple(numbers) for numbers in place[7:]))
                    copies[which] = first[key] = self._copy(which, tree.owners[i], wanted)
            if first[key] is not None:
                there: Any = arrays.place_of(first[key], name, writable=False, changes_early=place[5])
                tree.arrays[i] = (*there, *place[7:])
                tree.owners[i] = first[key]
        self._copies = copies

    def _tell_unused(self, tree: Tree) -> None:
        """Warns of patterns that match no array, at the first save; if an optimizer may get its arrays yet, at the third."""
        places = [tree.arrays[i] for i in range(len(tree.arrays))]
        names = [place[0] for place in places if place[1] in _FLOATING]
        self._unused = [pattern for pattern in self._unused if not any(matches(name, [pattern]) for name in names)]
        self._saves += 1
        if self._saves < _SAVES and any(is_optimizer(value) and not getattr(value, "state", None)
                                        for value in tree.objects.values()):
            return
        for pattern in self._unused:
            close = closest(pattern, names)
            logging.getLogger("tidemark").warning("saved_dtypes['%s'] matches no floating-point array of the state%s", pattern,
                                                  f": the closest name is '{close}'" if close else ", which has none")
        self._unused = []

    def _copy(self, which: tuple[Any, ...], array: Any, dtype: str) -> Any:
        framework = "pt" if arrays.is_torch(array) else "np"
        copy = self._copies.get(which)
        if copy is None or arrays.is_torch(copy) != arrays.is_torch(array) or copy.shape != array.shape or (
                arrays.place_of(copy, which[0], writable=False)[1] != dtype):
            copy = arrays.new_array(framework, dtype, list(array.shape))
        arrays.convert(copy, array)
        return copy
