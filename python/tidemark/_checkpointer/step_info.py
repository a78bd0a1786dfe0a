"""The records of steps and evaluations."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._messages import in_python, reason_in_python


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The record of one evaluator and one step."""

    evaluator: str
    worker: str  # where it ran: "trainer", or process and host
    outcome: str  # "done", "skipped" or "failed"
    reason: str  # why it is not "done", else empty
    metrics: dict[str, float]  # by the evaluator's own names
    unhealthy: str  # why the step is not to be trusted; empty: healthy
    reported: float  # seconds since 1970, as time.time()
    took: float  # seconds


_METRICS_SHOWN = 8


@dataclasses.dataclass(frozen=True, repr=False)
class StepInfo:
    """The record of a step. No tensor is read for it. Its repr() has the step, the state, the first metrics and the size."""

    step: int
    state: str  # "committed", "damaged", "lost", "failed", "deleted" or "unsaved"
    attempt: str  # 32 hexadecimal digits; names the step's folder
    sequence: int  # grows with every attempt in a store
    created: float  # seconds since 1970, as time.time()
    world_size: int
    metrics: dict[str, float]  # those given with the save, and those of evaluations as "evaluator/name"
    evaluations: list[Evaluation]  # the latest one of each evaluator, ordered by its name
    user_metadata: str  # a JSON object
    entry_count: int
    logical_bytes: int  # of all entries, tied ones counted once
    stored_bytes: int  # of the step's files
    reused_bytes: int  # the part of stored_bytes that lies in earlier steps' files
    blocked: float  # seconds for which save() blocked the trainer
    reason: str  # why the state is not "committed"
    pinned: bool
    pin_note: str
    tags: list[str]
    kept: str  # why retention kept the step when it last ran; empty: it has not run
    unhealthy: str  # "evaluator: reason", or empty

    def __repr__(self) -> str:
        shown = [f"{name!r}: {value!r}" for name, value in list(self.metrics.items())[:_METRICS_SHOWN]]
        more = ["..."] if len(self.metrics) > _METRICS_SHOWN else []
        return (f"{type(self).__qualname__}(step={self.step}, state={self.state!r}, metrics={{{', '.join([*shown, *more])}}}, "
                f"stored_bytes={self.stored_bytes})")


def evaluation_of(record: dict[str, Any]) -> Evaluation:
    """The Evaluation that a record of the native module stands for."""
    return Evaluation(**{**record, "reason": reason_in_python(record["reason"])})


def step_info(record: dict[str, Any]) -> StepInfo:
    """The StepInfo that a record of the native module stands for."""
    return StepInfo(**{**record, "reason": in_python(record["reason"]),
                       "evaluations": [evaluation_of(evaluation) for evaluation in record["evaluations"]]})


@dataclasses.dataclass(frozen=True)
class RestoreReport:
    """What a restore did."""

    step: int  # the one that was restored
    info: StepInfo  # its record
    passed_over: list[tuple[int, str]]  # (step, reason) of the steps that would have come first: damaged, unhealthy, refused
    missing: list[str]  # names that the state has and the step has not: these stayed as they were (allow_missing)
    unexpected: list[str]  # names that the step has and the state has not (allow_unexpected, or left out by `only`)
    bytes: int  # of the entries that were read
