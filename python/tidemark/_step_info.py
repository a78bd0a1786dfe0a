"""The record of a step."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class StepInfo:
    """The manifest's record of a step. No tensor is read for it."""

    step: int
    state: str  # "committed", "damaged", "lost", "failed", "deleted" or "unsaved"
    attempt: str  # 32 hexadecimal digits; names the step's folder
    created: float  # seconds since 1970, as time.time()
    metrics: dict[str, float]
    user_metadata: str  # a JSON object
    logical_bytes: int
    stored_bytes: int
    reason: str  # why the state is not "committed"
    pinned: bool
    pin_note: str
    tags: list[str]
    unhealthy: str  # "evaluator: reason", or empty
