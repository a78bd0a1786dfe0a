"""How far a reader of single tensors is: as the restores of a Checkpointer tell it, for those that read by `tidemark.open`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator

from .._checkpointer.progress import Progress, progress_function
from ..errors import InternalError
from .reader import Step

_SECONDS = 0.1  # between two calls, as in a restore of the library


def bytes_of(step: Step, names: Collection[str]) -> int:
    """The size of the elements of these tensors."""
    return sum(step._tensor(name)[3] for name in names)


@contextlib.contextmanager
def reporting(step: Step, progress: Progress | None, total: int) -> Iterator[None]:
    """Tells `progress` how much has been read of the `total` bytes of tensors that are read of the step meanwhile: after the
    first tensor or part of one, then at most every 100 ms, and at the end. One thread reads.

    InvalidArgumentError: `progress` is no bool or function. InternalError: the function raised.
    """
    function = progress_function(progress)
    told, done, last = -1, 0, 0.0

    def tell(count: int) -> None:
        nonlocal told, last
        told, last = count, time.monotonic()
        try:
            function((step.info.step, count, total))
        except Exception as error:
            raise InternalError(f"progress raised at step {step.info.step}: {type(error).__name__}: {error}") from error

    def read(count: int) -> None:
        nonlocal done
        done += count
        if done < total and (told < 0 or time.monotonic() - last >= _SECONDS):
            tell(done)

    try:
        with step._telling(read):
            yield
        tell(total)
    finally:
        function.end()
