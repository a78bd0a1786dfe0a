"""Counters and durations of a checkpointer, and what its retention decides."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class DurationHistogram:
    """A histogram of durations in seconds."""

    bounds: list[float]  # upper ends of the buckets, ascending; one more bucket holds everything longer
    counts: list[int]  # len(bounds) + 1 of them; not cumulative
    sum_seconds: float
    count: int


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counters and durations of a checkpointer since it was opened. Its repr() has the counters."""

    blocked: dict[str, DurationHistogram] = dataclasses.field(repr=False)  # the trainer's waits: "consumers", "room", "copy"
    background: dict[str, DurationHistogram] = dataclasses.field(repr=False)  # "write", "commit", "evaluate", "delete"
    saves_committed: int
    saves_failed: int
    steps_deleted: int
    reports_recorded: int
    reports_rejected: int
    skipped: dict[str, int]  # skipped saves and evaluations by reason
    logical_bytes: int  # of the committed saves
    stored_bytes: int
    reused_bytes: int
    in_flight: int  # saves that are neither committed nor failed
    staging_bytes_in_use: int
    staging_bytes_max: int
    last_committed_step: int | None
    last_committed_time: float | None  # seconds since 1970, as time.time()
    prometheus_text: str = dataclasses.field(repr=False)  # all of it in the text format of Prometheus


@dataclasses.dataclass(frozen=True)
class RetentionDecision:
    """Whether retention keeps a step. `reason`: every rule that keeps it, or why none does."""

    step: int
    keep: bool
    reason: str


def statistics(record: dict[str, Any]) -> Statistics:
    """The Statistics that a record of the native module stands for."""
    histograms = {name: {phase: DurationHistogram(**values) for phase, values in record[name].items()}
                  for name in ("blocked", "background")}
    return Statistics(**{**record, **histograms})
