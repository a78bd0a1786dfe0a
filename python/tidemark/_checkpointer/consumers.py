"""Who gets the snapshots of a checkpointer's saves, beside the disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from .. import _native
from .._arguments import Kind, integer, number, patterns, text, typed, wrong
from .._choices import AverageKind, BestMode, HalfPrecision, WhenLagging
from ..errors import InvalidArgumentError
from .evaluator import EvaluatorFunction, guarded, modes_of
from .health import HealthMonitor
from .observer import logger
from .options import AdaptivePeriod
from .sought_metrics import SoughtMetrics

F = TypeVar("F", bound=EvaluatorFunction)
_ADAPTIVE: dict[str, Kind] = {"metric": text, "window": integer, "every_steps_min": integer, "every_steps_max": integer,
                              "noise_max": number}


class SnapshotConsumers:
    """The methods of Checkpointer that add evaluators, health monitors and averages."""

    _evaluations: object  # tells the calls of its evaluators from those of others
    _monitors: list[HealthMonitor]  # keeps them alive
    _sought_metrics: SoughtMetrics
    _averages: set[str]  # names of those that were added
    _averages_passed: set[str]  # of those that the last restored step has and that had not been added

    def _require(self) -> _native.Checkpointer:
        raise NotImplementedError

    @overload
    def evaluator(self, name: str, function: None = None, *, entries: Sequence[str] = (), every_steps: int = 1,
                  when_lagging: WhenLagging = "latest", max_pending: int = 1, best: BestMode | Mapping[str, BestMode] = "",
                  half_precision: HalfPrecision = "", threads: int = 1) -> Callable[[F], F]: ...

    @overload
    def evaluator(self, name: str, function: F, *, entries: Sequence[str] = (), every_steps: int = 1,
                  when_lagging: WhenLagging = "latest", max_pending: int = 1, best: BestMode | Mapping[str, BestMode] = "",
                  half_precision: HalfPrecision = "", threads: int = 1) -> F: ...

    def evaluator(self, name: str, function: Any = None, *, entries: Sequence[str] = (), every_steps: int = 1,
                  when_lagging: WhenLagging = "latest", max_pending: int = 1, best: BestMode | Mapping[str, BestMode] = "",
                  half_precision: HalfPrecision = "", threads: int = 1) -> Any:
        """Calls `function` with a `Snapshot` of every save from now on, on a thread of the library. Also a decorator.

            @checkpointer.evaluator("validation", entries=["model.*"])
            def validate(snapshot):
                return {"loss": loss(snapshot["model.weight"])}

        It returns a dict of numbers, one number (the metric "value"), None, or a `Verdict`. The numbers become metrics of
        the step: "validation/loss". If it raises, the step has a record of that, and a warning has the traceback. If it
        does not return, `close` ends at its deadline; the end of the process does not wait for it longer than that. It
        must not wait for a save, nor close the checkpointer.

        `entries`: only those whose names match one of these patterns, with "*" and "?"; (): all. `every_steps`: only steps
        divisible by it. `max_pending` snapshots may wait or be evaluated, and so hold memory; further ones are treated as
        `when_lagging` says: "latest" replaces the one that waits, "skip" leaves the new one out, "block" has `save` wait,
        "queue" reads the step from the disk when its turn comes. `best`: whether the "lowest" or the "highest" value of
        each metric is the best, by the evaluator's own names, where those do not say it; a word alone is that of a single
        number. `half_precision`: "bfloat16" or "float16": converts larger floats, in memory of its own. `threads`: calls
        at a time; with more than one the function must be thread-safe.

        InvalidArgumentError: an option is out of its range. AlreadyExistsError: the name is taken. With `ranks` a snapshot has
        the entries of its own rank, and of a Box the rank's array; an evaluator has another name on each rank. There
        "queue" is an UnimplementedError but on rank 0.
        """
        self._require()
        options = {"name": text(name, "name"), "entries": patterns(entries, "entries"),
                   "every_steps": integer(every_steps, "every_steps"), "when_lagging": text(when_lagging, "when_lagging"),
                   "max_pending": integer(max_pending, "max_pending"), "best": modes_of(best),
                   "half_precision": text(half_precision, "half_precision"), "threads": integer(threads, "threads")}

        def add(function: EvaluatorFunction) -> EvaluatorFunction:
            if not callable(function):
                raise InvalidArgumentError(f"evaluator '{name}' is a {type(function).__name__}, not a function")
            self._require().add_evaluator(options, guarded(name, function, BaseException, self._evaluations))
            return function

        return add if function is None else add(function)

    def add_health_monitor(self, monitor: HealthMonitor) -> None:
        """Has the monitor examine every save from now on. AlreadyExistsError: there is an evaluator of its name."""
        if not isinstance(monitor, HealthMonitor):
            raise wrong(monitor, "monitor", "a tidemark.HealthMonitor")
        self._require().add_health_monitor(monitor._native)
        self._monitors.append(monitor)
        for metric in monitor._metrics:
            self._sought_metrics.add(f"the health monitor '{monitor._name}'", metric)

    def add_average(self, name: str = "ema", *, entries: Sequence[str] = ("model.*",), kind: AverageKind = "exponential",
                    decay: float = 0.999, begin_step: int = 0, every_steps: int = 1,
                    adaptive: AdaptivePeriod | None = None) -> None:
        """Averages entries over the snapshots from now on, and saves the average in the same step: that of
        "model.weight" is the entry "ema.model.weight". A restore brings it back, so add it before `resume`: one
        that is added later begins afresh, with a warning, and so does `resume` warn of one that was not added.

        `kind`: "exponential", by `decay` for each snapshot, or "uniform": the mean since `begin_step`. `every_steps`: only
        steps divisible by it are taken in, and of these as `adaptive` says. To load an average: `restore(state,
        only=["model.*"], renames=[("ema.model", "model")])`.

        InvalidArgumentError: an option is out of its range. AlreadyExistsError: the name is taken. UnimplementedError: the
        checkpointer has `ranks`.
        """
        if adaptive is not None and not isinstance(adaptive, AdaptivePeriod):
            raise wrong(adaptive, "adaptive", "a tidemark.AdaptivePeriod")
        period = None if adaptive is None else typed(_ADAPTIVE, vars(adaptive), "adaptive.")
        self._require().add_average({"name": text(name, "name"), "entries": patterns(entries, "entries"),
                                     "kind": text(kind, "kind"), "decay": number(decay, "decay"),
                                     "begin_step": integer(begin_step, "begin_step"),
                                     "every_steps": integer(every_steps, "every_steps"), "adaptive": period})
        self._averages.add(name)
        if adaptive is not None:
            self._sought_metrics.add(f"the average '{name}'", adaptive.metric)
        if name in self._averages_passed:
            self._averages_passed.discard(name)
            logger.warning("the average '%s' begins afresh, though the step that was restored has it: call add_average before "
                           "resume or restore", name)
