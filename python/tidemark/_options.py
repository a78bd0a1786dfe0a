"""Options of a checkpointer that come in groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _native
from ._pattern import matches
from ._step_info import StepInfo, step_info
from .errors import FailedPreconditionError, InvalidArgumentError, MismatchError


@dataclasses.dataclass(frozen=True)
class KeepBest:
    """Keeps the `count` best steps by a metric. `mode`: "lowest" or "highest"; "": what the metric's name says.

    `keep_without_metric`: steps that lack the metric stay, and are not counted.

    `score` computes the value from all metrics of the step, {name: value}; NaN: the step has none. `mode` "" is then the
    lowest, and `metric` may be empty. It is called on a thread of the library. If it raises, the step stays, and a
    warning has the message. It must not call the checkpointer.
    """

    metric: str = ""
    mode: str = ""
    count: int = 1
    keep_without_metric: bool = False
    score: Callable[[Mapping[str, float]], float] | None = None


@dataclasses.dataclass(frozen=True)
class AwaitEvaluation:
    """Keeps steps divisible by `every_steps` until the evaluator or worker of this name has reported on them."""

    evaluator: str
    every_steps: int = 1


@dataclasses.dataclass(frozen=True)
class Retention:
    """Which committed steps are kept; a step is kept if any rule wants it. Without a rule all are kept.

    max_to_keep: this many, the newest commits. keep_best: the best steps by each metric. keep_every_steps: steps
    divisible by it. keep_interval: the first step in every such span of seconds. keep_for: steps that were saved at most
    so many seconds before the last commit. keep: those for which it returns true; called on a thread of the library for
    every committed step, as KeepBest.score. 0, () and None: no such rule.

    keep_unevaluated_until: no rule by itself. Delays deletions, so that a late metric can still make a step the best one.
    """

    max_to_keep: int = 0
    keep_best: Sequence[KeepBest | str] = ()
    keep_every_steps: int = 0
    keep_interval: float = 0.0
    keep_for: float = 0.0
    keep_unevaluated_until: Sequence[AwaitEvaluation | str] = ()
    keep: Callable[[StepInfo], bool] | None = None


@dataclasses.dataclass(frozen=True)
class AdaptivePeriod:
    """How often an average takes a step in, by the noise of a metric that is given with the saves: noisy training more
    often, calm training less often. tidemark/average.h has the formula.

    `window`: so many values of the metric count, 2 to 65536. The period is `every_steps_min` steps from the noise
    `noise_max` on, a part of the metric's mean, and up to `every_steps_max` below it.
    """

    metric: str = "loss"
    window: int = 50
    every_steps_min: int = 1
    every_steps_max: int = 10
    noise_max: float = 0.1


@dataclasses.dataclass(frozen=True)
class SaveQuestion:
    """What `save_when` is asked. `last_saved`: the step of the last save, or the highest committed one at the opening.
    `since_last`: seconds since the last save, or since the opening. `in_flight`: a save is not committed yet."""

    step: int
    last_saved: int | None
    since_last: float
    in_flight: bool


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Options that a run rarely needs; names, defaults and ranges are those of tidemark/tuning.h.

    chunk_bytes: bytes of an entry that are compressed and checked as one; a power of two, 4 KiB to 64 MiB.
    codec_threads: 0: one for each core. io: "auto", "uring" or "threads". io_depth: blocks of 1 MiB in flight.
    write_bytes_per_second_max: of saves; 0: no limit. background_nice: niceness of the threads behind a save.
    background_io_idle: writes only while the disk is idle. reuse_saves_max: how old a file may be that a new step refers
    to, in saves; 0: no limit. scrub_bytes_per_second_max: 0: no scrub. device_staging_bytes_max: 0: as much as there is.
    check_overlapped_saves: whether an array that changes in an overlapped save before it was copied makes the save fail, with
    AbortedError; for debugging, since such a save blocks as long as any other.
    poll_interval: seconds between looks for what workers and `checkpoint-inspect` have recorded.
    """

    chunk_bytes: int = 1 << 20
    codec_threads: int = 0
    io: str = "auto"
    io_depth: int = 16
    write_bytes_per_second_max: int = 0
    background_nice: int = 5
    background_io_idle: bool = False
    reuse_saves_max: int = 100
    scrub_bytes_per_second_max: int = 8 << 20
    device_staging_bytes_max: int = 0
    check_overlapped_saves: bool = False
    poll_interval: float = 1.0


def options_of(retention: Retention, tuning: Tuning) -> dict[str, Any]:
    """Both as the native module takes them."""
    best = [KeepBest(rule) if isinstance(rule, str) else rule for rule in retention.keep_best]
    awaited = [AwaitEvaluation(rule) if isinstance(rule, str) else rule for rule in retention.keep_unevaluated_until]
    tuned = {field.name: getattr(tuning, field.name) for field in dataclasses.fields(tuning)}
    return {**tuned, "poll_interval": float(tuning.poll_interval),
            "max_to_keep": retention.max_to_keep, "keep_every_steps": retention.keep_every_steps,
            "keep_interval": float(retention.keep_interval), "keep_for": float(retention.keep_for),
            "keep_best": [(rule.metric, rule.mode, rule.count, rule.keep_without_metric, score(rule.score))
                          for rule in best],
            "keep": step_predicate(retention.keep),
            "keep_unevaluated_until": [(rule.evaluator, rule.every_steps) for rule in awaited]}


def restore_options(healthy_only: bool, only: Sequence[str], renames: Sequence[tuple[str, str]], allow_missing: bool,
                    allow_unexpected: bool, accept: Callable[[StepInfo], bool] | None,
                    evaluations_timeout: float, progress: TrainerFunction | None) -> dict[str, Any]:
    return {"healthy_only": healthy_only, "only": list(only), "renames": list(renames), "allow_missing": allow_missing,
            "allow_unexpected": allow_unexpected, "accept": step_predicate(accept),
            "evaluations_timeout": float(evaluations_timeout), "progress": progress}


def mismatch(error: InvalidArgumentError, destination: _native.TreeState, options: dict[str, Any]) -> InvalidArgumentError:
    """The error of a restore, with the names of what differs between checkpoint and state if that is the reason."""
    missing, unexpected, reshaped, retyped = destination.differences()
    if options["only"]:
        missing, reshaped, retyped = ([name for name in names if matches(name, options["only"])]
                                      for names in (missing, reshaped, retyped))
    missing = [] if options["allow_missing"] else missing
    unexpected = [] if options["allow_unexpected"] or options["only"] else unexpected
    if missing or unexpected or reshaped or retyped:
        return MismatchError(str(error), missing, unexpected, reshaped, retyped)
    return error


def left_out_by(destination: _native.TreeState, only: Sequence[str]) -> Callable[[str], bool]:
    """Whether the last restore has left the entry of that name as it was in the state."""
    missing = frozenset(destination.differences()[0])
    return lambda name: name in missing or (len(only) > 0 and not matches(name, only))


class TrainerFunction:
    """A function of the trainer, as the native module takes it: it returns exactly a bool or a float, or what an all-gather
    does.

    The native module keeps it, and the garbage collector does not see that. So a function that refers to its checkpointer
    would keep both for ever: `forget` ends that.

    `interruption`: what a call has raised that is no Exception, such as a KeyboardInterrupt. The native module sets it, since
    its own errors cannot carry it. Where the trainer's thread calls, `raise_interruption` raises it after the native call.
    """

    def __init__(self, function: Callable[[Any], Any], argument: Callable[[Any], Any],
                 result: Callable[[Any], Any]) -> None:
        self._function: Callable[[Any], Any] | None = function
        self._argument = argument
        self._result = result
        self.interruption: BaseException | None = None

    def __call__(self, given: Any) -> Any:
        self.interruption = None  # an earlier call may have left one
        function = self._function
        if function is None:
            raise FailedPreconditionError("the checkpointer is closed")
        return self._result(function(self._argument(given)))

    def forget(self) -> None:
        self._function = None


def raise_interruption(function: TrainerFunction | None) -> None:
    """Raises, once, what interrupted the last call of the function, if anything did."""
    if function is not None and function.interruption is not None:
        interruption, function.interruption = function.interruption, None
        raise interruption from None


def step_predicate(function: Callable[[StepInfo], bool] | None) -> TrainerFunction | None:
    return None if function is None else TrainerFunction(function, step_info, bool)


def score(function: Callable[[Mapping[str, float]], float] | None) -> TrainerFunction | None:
    return None if function is None else TrainerFunction(function, dict, float)


def save_rule(function: Callable[[SaveQuestion], bool] | None) -> TrainerFunction | None:
    return None if function is None else TrainerFunction(function, lambda given: SaveQuestion(*given), bool)
