"""Evaluation in a process of its own, which follows the store of a trainer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, overload

from .. import _native
from .._arguments import Kind, flag, function_or_none, integer, integer_or_none, path, patterns, seconds, text, typed
from .._checkpointer.evaluator import EvaluatorFunction, guarded
from .._checkpointer.observer import logger
from .._checkpointer.step_info import Evaluation, evaluation_of
from .._choices import HalfPrecision, WhenLagging
from .._messages import in_python
from ..errors import Error, InvalidArgumentError, NotFoundError

_OPTIONS: dict[str, Kind] = {
    "evaluator": text, "worker": text, "when_lagging": text, "staleness_max": integer, "report": flag, "entries": patterns,
    "half_precision": text, "every_steps": integer, "begin_step": integer, "again_if_failed": flag, "until_step": integer_or_none,
    "idle_timeout": seconds, "poll_interval": seconds, "lease_expiry": seconds, "stop_on_signal": flag}


@dataclasses.dataclass(frozen=True)
class WorkerReport:
    """What `follow` did. `failed` evaluations are among the `evaluated` ones."""

    end: str  # why it returned: "until_step", "idle", "signal" or "stopped"
    evaluated: int
    failed: int
    skipped: int
    last_step: int | None  # the last one that was evaluated


@overload
def follow(store: str | os.PathLike[str], function: None = None, *, evaluator: str, entries: Sequence[str] = (),
           when_lagging: WhenLagging = "queue", every_steps: int = 1, begin_step: int = 0, until_step: int | None = None,
           idle_timeout: float = float("inf"), staleness_max: int = 0, half_precision: HalfPrecision = "", report: bool = True,
           again_if_failed: bool = False, poll_interval: float = 1.0, lease_expiry: float = 60.0, worker: str = "",
           stop_on_signal: bool = True, stop: Callable[[], bool] | None = None,
           on_evaluated: Callable[[int, Evaluation], None] | None = None
           ) -> Callable[[EvaluatorFunction], WorkerReport]: ...


@overload
def follow(store: str | os.PathLike[str], function: EvaluatorFunction, *, evaluator: str, entries: Sequence[str] = (),
           when_lagging: WhenLagging = "queue", every_steps: int = 1, begin_step: int = 0, until_step: int | None = None,
           idle_timeout: float = float("inf"), staleness_max: int = 0, half_precision: HalfPrecision = "", report: bool = True,
           again_if_failed: bool = False, poll_interval: float = 1.0, lease_expiry: float = 60.0, worker: str = "",
           stop_on_signal: bool = True, stop: Callable[[], bool] | None = None,
           on_evaluated: Callable[[int, Evaluation], None] | None = None) -> WorkerReport: ...


def follow(store: str | os.PathLike[str], function: EvaluatorFunction | None = None, *, evaluator: str,
           entries: Sequence[str] = (), when_lagging: WhenLagging = "queue", every_steps: int = 1, begin_step: int = 0,
           until_step: int | None = None, idle_timeout: float = float("inf"), staleness_max: int = 0,
           half_precision: HalfPrecision = "", report: bool = True, again_if_failed: bool = False, poll_interval: float = 1.0,
           lease_expiry: float = 60.0, worker: str = "", stop_on_signal: bool = True,
           stop: Callable[[], bool] | None = None, on_evaluated: Callable[[int, Evaluation], None] | None = None) -> Any:
    """Calls `function` with a `Snapshot` of each committed step, in order, and reports its result to the trainer.

        tidemark.follow("run/ckpt", validate, evaluator="validation", entries=["model.*"], until_step=10_000)

    Without `function` it returns a function that takes it. Blocks until one of the ends below. Every step is evaluated at
    least once and counted once, by any number of workers of one name. If the store is not there yet, it waits for it, and the
    logger "tidemark" says so, as information. The function runs on the calling thread, and returns what an evaluator returns
    (`Checkpointer.evaluator`). If it raises an Exception, that is the step's record. KeyboardInterrupt and SystemExit end the
    call: they are raised, and their step has no record, so the next call evaluates it.

    Which steps: those divisible by `every_steps`, from `begin_step` on. `when_lagging`: "queue": all; "latest": of those
    that are there the last one, and the others are recorded as skipped. `staleness_max`: steps that are further behind the
    last save are skipped; 0: none. `again_if_failed`: also those whose evaluation failed. `entries` and `half_precision`
    are as in `Checkpointer.evaluator`; nothing else is read. `report`: False writes nothing to the store.

    Ends: `until_step`: every step up to it is done. `idle_timeout`: there was nothing to do for so many seconds; 0: the
    steps that are there now. `stop_on_signal`: SIGTERM or SIGINT came; the call returns after the current step, and a
    second signal has its usual effect. `stop`: it returned True; it is asked between steps, and about every
    `poll_interval` seconds. `on_evaluated(step, evaluation)` is called when a report has been delivered.

    `worker`: a name for the history; "": process and host. `lease_expiry`: seconds after which the step of a dead worker
    on another machine is taken over.

    InvalidArgumentError: an option. FailedPreconditionError: `store` is no directory. DataLossError: the store is damaged.
    UnimplementedError: a newer version wrote it. StorePermissionError: a report cannot be written. Error with the code
    "UNKNOWN": it may or may not survive a power loss.
    """
    given = {"evaluator": evaluator, "worker": worker, "when_lagging": when_lagging, "staleness_max": staleness_max,
             "report": report, "entries": entries, "half_precision": half_precision, "every_steps": every_steps,
             "begin_step": begin_step, "again_if_failed": again_if_failed, "until_step": until_step, "idle_timeout": idle_timeout,
             "poll_interval": poll_interval, "lease_expiry": lease_expiry, "stop_on_signal": stop_on_signal}
    function_or_none(stop, "stop")
    function_or_none(on_evaluated, "on_evaluated")
    directory = os.path.abspath(path(store, "store"))
    options = {"directory": directory, **typed(_OPTIONS, given)}

    def evaluated(step: int, record: dict[str, Any]) -> None:
        if on_evaluated is not None:
            on_evaluated(step, evaluation_of(record))

    def asked_to_stop() -> bool:
        return stop is not None and bool(stop())

    def run(function: EvaluatorFunction) -> WorkerReport:
        if not callable(function):
            raise InvalidArgumentError(f"a {type(function).__name__} was given to follow, not a function")
        try:
            _native.list_steps(directory, False)
        except NotFoundError:
            logger.info("waiting for a store at %s", directory)
        except Error:
            pass  # the call below raises it, or waits for its end
        return WorkerReport(**_native.follow(options, guarded(evaluator, function, Exception), asked_to_stop,
                                             lambda line: logger.warning("%s", in_python(line)), evaluated))

    return run if function is None else run(function)
