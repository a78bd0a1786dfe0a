"""What a checkpointer tells the other ranks of its job, and asks them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .. import _native
from .._native import Checkpointer as NativeCheckpointer
from .._native import TreeState
from .._state.tree import Tree
from ..errors import Error
from .ranks import described


class RankCalls:
    """The methods of Checkpointer for jobs of several ranks. In a job of one process they do nothing."""

    _closed: bool
    _native: NativeCheckpointer
    _of_ranks: dict[str, Any] | None
    _state: TreeState

    def _require(self) -> NativeCheckpointer:
        raise NotImplementedError

    def _gather(self, state: Any, converts: bool = True) -> Tree:
        raise NotImplementedError

    def _forget_arrays(self) -> None:
        raise NotImplementedError

    def _raise_interruptions(self) -> None:
        raise NotImplementedError

    def compare_replicas(self, state: Any) -> None:
        """With `ranks`: compares the arrays that `Ranks.replicated` says are the same on all ranks, bit for bit, also where
        `saved_dtypes` would round them. A fault of a machine or of the trainer can make them differ, and only one rank's are
        saved. Buffers and values are not compared.

        All ranks call it alike, between two saves. It reads all of these arrays, and tells the other ranks two digests, and
        where the bytes differ a digest of each array. Without ranks it does nothing. On all ranks
        FailedPreconditionError: arrays differ, and the message names the first of them, and the ranks that differ from most; or
        the ranks have other arrays.
        InvalidArgumentError: no array is replicated. UnsupportedTypeError of a rank whose state has something that cannot be
        stored, which is an InvalidArgumentError on the others.
        """
        self._require()
        if self._of_ranks is None:
            return
        try:
            self._gather(state, converts=False)
        except BaseException as error:
            with contextlib.suppress(Error):
                _native.refuse_to_compare(described(error), self._of_ranks)
            self._raise_interruptions()
            raise
        try:
            _native.compare_replicas(self._state, self._of_ranks)
        finally:
            self._forget_arrays()
            self._raise_interruptions()

    def _least_time_left(self, left: float) -> float:
        """For PreemptionGuard: in seconds, what the rank with the least time left has. All ranks call this alike."""
        if self._closed or self._of_ranks is None:
            return left
        least = self._require().least_time_left(left)
        self._raise_interruptions()
        return least

    @contextlib.contextmanager
    def _telling_ranks(self, native: NativeCheckpointer, refuse: Callable[[str], None]) -> Iterator[None]:
        """Of a save or restore that did not get as far as the library, the other ranks are told why: they need not wait for
        this one."""
        begun = native.begun
        try:
            yield
        except BaseException as error:
            if self._of_ranks is not None and native.begun == begun:
                refuse(described(error))
                self._raise_interruptions()
            raise

    def _making(self, step: int) -> contextlib.AbstractContextManager[None]:
        """For what makes the state of a save: if it raises, the other ranks are told, which save this step too."""
        return self._telling_ranks(self._require(), lambda why: self._refuse_save(step, why))

    def _filling(self, *, resumes: bool) -> contextlib.AbstractContextManager[None]:
        """For what comes before the library's part of a restore: if it raises, the other ranks are told, which restore too.
        `resumes`: it is a resume."""
        native = self._require()
        return self._telling_ranks(native, lambda why: native.refuse_restore(resumes, why))

    def _refuse_save(self, step: int, why: str) -> None:
        with contextlib.suppress(TypeError):  # the step is no number, and the others wait for their deadline
            self._native.refuse_save(step, why)
