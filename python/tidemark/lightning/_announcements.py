"""What rank 0 of a job tells the others of its saves to files, by the key-value store of torch.distributed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch.distributed as distributed

from ..errors import DeadlineExceededError


class Announcement:
    """What rank 0 tells the others of a save at a path, by the key-value store of torch.distributed: whether it is still going
    on. In one process it does nothing."""

    def __init__(self, path: str) -> None:
        self._keys = self._rank = None
        self._key = f"tidemark:{path}"
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            self._keys, self._rank = distributed.distributed_c10d._get_default_store(), distributed.get_rank()

    def begin(self) -> None:
        if self._keys is not None:
            self._keys.set(self._key, "saving")

    def end(self) -> None:
        if self._keys is not None:
            with contextlib.suppress(Exception):  # the job has ended, and no rank waits
                self._keys.set(self._key, "ended")

    def wait(self, seconds: float) -> None:
        """On another rank than 0: until the save there has ended, if one was begun."""
        if self._keys is None or self._rank == 0 or not self._keys.check([self._key]):
            return
        deadline = time.monotonic() + seconds
        while self._keys.get(self._key) == b"saving":
            if time.monotonic() >= deadline:
                raise DeadlineExceededError(f"rank 0 has not committed {self._key.partition(':')[2]} after {seconds:g} seconds")
            time.sleep(0.02)


@contextlib.contextmanager
def announced(path: str) -> Iterator[Announcement]:
    """For the beginning of a save: it ends here if it fails."""
    announcement = Announcement(path)
    announcement.begin()
    try:
        yield announcement
    except BaseException:
        announcement.end()
        raise
