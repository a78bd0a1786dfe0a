"""What happens behind the training, for a log, a dashboard or a trainer that reacts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .._arguments import wrong
from .._messages import in_python
from ..errors import Error, from_status
from .step_info import Evaluation, StepInfo, evaluation_of, step_info

logger = logging.getLogger("tidemark")


class CheckpointObserver:
    """Derive from it, and override the methods that you need.

        class Dashboard(tidemark.CheckpointObserver):
            def committed(self, info):
                show(info.step, info.metrics)

        checkpointer = tidemark.Checkpointer("run/ckpt", observer=Dashboard())

    They are called one after the other, in the order in which things happened, on a thread of Python that belongs to the
    checkpointer. They may call its methods that name a step, but hold up later calls and the callbacks of futures. Those
    that are due at a `close` are called before it returns. What a method raises is a warning of the logger "tidemark". If one
    takes so long that more than 1000 events wait, the oldest are dropped, with a warning.
    """

    def committed(self, info: StepInfo) -> None:
        """A step was committed."""

    def failed(self, step: int, error: Error) -> None:
        """A save or an evaluate failed. Its future has the same error, which does not count as seen."""

    def deleted(self, step: int, reason: str) -> None:
        """A step was deleted, by retention or on request, for this reason."""

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """An evaluation of the step was recorded, or was skipped."""

    def exported(self, step: int, path: str) -> None:
        """A BestFile has exported the step to the file."""

    def save_line(self, line: str) -> None:
        """A save or an evaluate ended. The line has the step, the times, the sizes, and anything that was skipped. Without
        an override it goes to the logger "tidemark", as information."""
        logger.info("%s", line)

    def warning(self, line: str) -> None:
        """Something that a person should know of and that no exception carries. Without an override it goes to the logger
        "tidemark"."""
        logger.warning("%s", line)


def observer_or_none(observer: Any) -> CheckpointObserver | None:
    if observer is None or isinstance(observer, CheckpointObserver):
        return observer
    raise wrong(observer, "observer", "an object of a class derived from tidemark.CheckpointObserver")


_converted: dict[str, Callable[..., tuple[Any, ...]]] = {
    "committed": lambda record: (step_info(record),),
    "failed": lambda step, status: (step, from_status(*status)),
    "evaluated": lambda step, record: (step, evaluation_of(record)),
    "deleted": lambda step, reason: (step, in_python(reason)),
    "save_line": lambda line: (in_python(line),),
    "warning": lambda line: (in_python(line),),
}


def tell(observer: CheckpointObserver, method: str, arguments: tuple[Any, ...]) -> None:
    """Calls the method for an event of the native module. What it raises is logged."""
    try:
        getattr(observer, method)(*_converted[method](*arguments) if method in _converted else arguments)
    except BaseException:  # the thread serves the futures too
        logger.exception("the observer's %s raised", method)
