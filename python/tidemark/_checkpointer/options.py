"""Options of a checkpointer that come in groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _native
from .._arguments import Kind, elements, flag, function_of, integer, mode, patterns, seconds, size, text, typed, wrong
from .._arguments import renames as pairs
from .._choices import BestMode, IoBackend
from .._state.pattern import matches
from ..errors import FailedPreconditionError, InvalidArgumentError
from .step_info import StepInfo, step_info


@dataclasses.dataclass(frozen=True)
class KeepBest:
    """Keeps the `count` best steps by a metric. `mode`: "lowest" or "highest"; "": what the metric's name says.

    `keep_without_metric`: steps that lack the metric stay, and are not counted.

    `score` computes the value from all metrics of the step, {name: value}; NaN: the step has none. `mode` "" is then the
    lowest, and `metric` may be empty. It is called on a thread of the library. If it raises, the step stays, and a
    warning has the message. It must not call the checkpointer.
    """

    metric: str = ""
    mode: BestMode = ""
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

    keep_unevaluated_until: a step that one of these evaluators or workers has not reported on yet is not deleted, so that a
    late metric can still make it the best one. Alone it deletes nothing: without another rule all steps are kept.
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
    often, calm training less often.

    `window`: so many of the last values x of the metric count, 2 to 65536. With d, the differences between one value and the
    next, the noise is sqrt(mean(d * d) / 2) / abs(mean(x)), and a snapshot is taken in at the first step that is this many
    steps behind the last one: every_steps_max - (every_steps_max - every_steps_min) * min(1, noise / noise_max). It is
    `every_steps_min`, 1 or more, while there are fewer than 2 values. `noise_max`: more than 0.
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
    """Options that a run rarely needs. InvalidArgumentError, at the opening: one is out of its range.

    chunk_bytes: bytes of an entry that are compressed and checked as one; a power of two, 4 KiB to 64 MiB.
    codec_threads: that compress; 0: one for each core; at most 256.
    io: "uring" or "threads": which system calls move the bytes; "auto": io_uring where the kernel allows it, else threads.
    io_depth: blocks of 1 MiB in flight to the disk, 1 to 256; a save takes so much memory.
    write_bytes_per_second_max: of saves; 0: no limit; else 1 MiB or more.
    background_nice: niceness of the threads behind a save, on top of the trainer's, 0 to 19.
    background_io_idle: writes only while the disk is otherwise idle.
    reuse_saves_max: how many saves old a file may be that a new step refers to, 1 or more; 0: no limit. A rotten bit is in
        no more steps than that.
    scrub_bytes_per_second_max: how fast chunks that the next save may refer to are read and checked, while no save is being
        written; 0: no scrub.
    device_staging_bytes_max: bytes of device memory that staging="on_device" may take, on all devices; 0: as much as there is.
    check_overlapped_saves: whether an array that changes in an overlapped save before it was copied makes the save fail, with
        AbortedError; for debugging, since such a save blocks as long as any other.
    poll_interval: seconds between looks for what workers and `checkpoint-inspect` have recorded, more than 0, also inf.
    """

    chunk_bytes: int = 1 << 20
    codec_threads: int = 0
    io: IoBackend = "auto"
    io_depth: int = 16
    write_bytes_per_second_max: int = 0
    background_nice: int = 5
    background_io_idle: bool = False
    reuse_saves_max: int = 100
    scrub_bytes_per_second_max: int = 8 << 20
    device_staging_bytes_max: int = 0
    check_overlapped_saves: bool = False
    poll_interval: float = 1.0


_RETENTION: dict[str, Kind] = {"max_to_keep": integer, "keep_every_steps": integer, "keep_interval": seconds, "keep_for": seconds}
_TUNING: dict[str, Kind] = {
    "chunk_bytes": integer, "codec_threads": integer, "io": text, "io_depth": integer, "write_bytes_per_second_max": size,
    "background_nice": integer, "background_io_idle": flag, "reuse_saves_max": integer, "scrub_bytes_per_second_max": size,
    "device_staging_bytes_max": size, "check_overlapped_saves": flag, "poll_interval": seconds}


def options_of(retention: Retention | None, tuning: Tuning | None) -> dict[str, Any]:
    """Both as the native module takes them."""
    rules, tuned = retention or Retention(), tuning or Tuning()
    if not isinstance(rules, Retention):
        raise wrong(rules, "retention", "a tidemark.Retention")
    if not isinstance(tuned, Tuning):
        raise wrong(tuned, "tuning", "a tidemark.Tuning")
    best = [_best(rule, f"retention.keep_best[{i}]")
            for i, rule in enumerate(elements(rules.keep_best, "retention.keep_best", "metrics or KeepBest"))]
    awaited = [_awaited(rule, f"retention.keep_unevaluated_until[{i}]") for i, rule in enumerate(
        elements(rules.keep_unevaluated_until, "retention.keep_unevaluated_until", "evaluators or AwaitEvaluation"))]
    return {**typed(_TUNING, vars(tuned), "tuning."), **typed(_RETENTION, vars(rules), "retention."), "keep_best": best,
            "keep": step_predicate(rules.keep, "retention.keep"), "keep_unevaluated_until": awaited}


def _best(rule: Any, name: str) -> tuple[str, str, int, bool, TrainerFunction | None]:
    rule = KeepBest(rule) if isinstance(rule, str) else rule
    if not isinstance(rule, KeepBest):
        raise wrong(rule, name, "the name of a metric or a tidemark.KeepBest")
    found = mode(rule.mode, f"{name}.mode", f"of the metric '{rule.metric}'")
    return (text(rule.metric, f"{name}.metric"), found, integer(rule.count, f"{name}.count"),
            flag(rule.keep_without_metric, f"{name}.keep_without_metric"), score(rule.score, f"{name}.score"))


def _awaited(rule: Any, name: str) -> tuple[str, int]:
    rule = AwaitEvaluation(rule) if isinstance(rule, str) else rule
    if not isinstance(rule, AwaitEvaluation):
        raise wrong(rule, name, "the name of an evaluator or a tidemark.AwaitEvaluation")
    evaluator = text(rule.evaluator, f"{name}.evaluator")
    if "/" in evaluator:
        raise InvalidArgumentError(f"{name} is '{evaluator}', which is a metric: it must be the name of the evaluator, "
                                   f"'{evaluator.partition('/')[0]}'")
    return evaluator, integer(rule.every_steps, f"{name}.every_steps")


def restore_options(healthy_only: bool, only: Sequence[str], renames: Sequence[tuple[str, str]], allow_missing: bool,
                    allow_unexpected: bool, accept: Callable[[StepInfo], bool] | None,
                    evaluations_timeout: float, progress: TrainerFunction | None) -> dict[str, Any]:
    return {"healthy_only": flag(healthy_only, "healthy_only"), "only": patterns(only, "only"),
            "renames": pairs(renames, "renames"), "allow_missing": flag(allow_missing, "allow_missing"),
            "allow_unexpected": flag(allow_unexpected, "allow_unexpected"), "accept": step_predicate(accept, "accept"),
            "evaluations_timeout": seconds(evaluations_timeout, "evaluations_timeout"), "progress": progress}


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


def step_predicate(function: Callable[[StepInfo], bool] | None, name: str) -> TrainerFunction | None:
    return None if function is None else TrainerFunction(function_of(function, name), step_info, bool)


def score(function: Callable[[Mapping[str, float]], float] | None, name: str) -> TrainerFunction | None:
    return None if function is None else TrainerFunction(function_of(function, name), dict, float)


def save_rule(function: Callable[[SaveQuestion], bool] | None) -> TrainerFunction | None:
    if function is None:
        return None
    return TrainerFunction(function_of(function, "save_when"), lambda given: SaveQuestion(*given), bool)
