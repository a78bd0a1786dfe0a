"""Signs of a diverging run in its weights and its loss."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence

from .. import _native
from .._arguments import function_or_none, integer, number, patterns, text


@dataclasses.dataclass(frozen=True)
class Divergence:
    """Why a step is unhealthy, or about to become so. The monitor itself does nothing about it.

    `reason` names the worst entries. `remediation`: "roll_back": restore from the latest healthy step; "save_more_often":
    the step is healthy, but the loss has become erratic.
    """

    step: int
    reason: str
    remediation: str


class HealthMonitor:
    """An evaluator of the library that calls steps unhealthy. Thread-safe. `Checkpointer.add_health_monitor` starts it.

        monitor = tidemark.HealthMonitor(entries=["model.*"], loss_metric="loss")
        checkpointer.add_health_monitor(monitor)
        ...
        divergence = monitor.take_divergence()
        if divergence and divergence.remediation == "save_more_often":
            checkpointer.set_save_interval(100)
        elif divergence:
            step = checkpointer.resume(state, healthy_only=True)

    `entries`: patterns of the tensors that are examined; (): all. `norm_jump_max`: the largest ratio between an entry's
    norm and its norm in the last healthy snapshot. `per_entry`: patterns of entries that get metrics of their own.
    `loss_metric`, `gradient_norm_metric`: given with the save; unhealthy if it is NaN or infinite, or more than
    `loss_deviations_max` standard deviations from the mean of the last `loss_window` healthy values. If three saves have
    metrics, and none of them this one, a warning says so.
    `loss_variance_jump_max`: a larger jump of the loss's variance is a divergence that saves more often; 0: not examined.
    `on_divergence(divergence)` is called once for each divergence, on a thread of the library, as evaluators are. If it
    raises, that is added to what is said of an unhealthy step; for "save_more_often" the evaluation fails.

    InvalidArgumentError: an option is out of its range.
    """

    def __init__(self, *, name: str = "health", entries: Sequence[str] = (), norm_jump_max: float = 10.0,
                 per_entry: Sequence[str] = (), loss_metric: str = "", loss_deviations_max: float = 6.0,
                 loss_window: int = 50, loss_variance_jump_max: float = 0.0, gradient_norm_metric: str = "",
                 on_divergence: Callable[[Divergence], None] | None = None) -> None:
        self._on_divergence = function_or_none(on_divergence, "on_divergence")
        alive = weakref.ref(self)  # else the native object, which no collector looks into, would keep this one

        def tell(found: tuple[int, str, str]) -> bool:
            monitor = alive()
            if monitor is not None and monitor._on_divergence is not None:
                monitor._on_divergence(Divergence(*found))
            return True

        # What the monitor looks for in the metrics of saves, for `SoughtMetrics`.
        self._name, self._metrics = name, (loss_metric, gradient_norm_metric)
        self._native = _native.HealthMonitor({
            "name": text(name, "name"), "entries": patterns(entries, "entries"),
            "norm_jump_max": number(norm_jump_max, "norm_jump_max"), "per_entry": patterns(per_entry, "per_entry"),
            "loss_metric": text(loss_metric, "loss_metric"), "loss_window": integer(loss_window, "loss_window"),
            "loss_deviations_max": number(loss_deviations_max, "loss_deviations_max"),
            "loss_variance_jump_max": number(loss_variance_jump_max, "loss_variance_jump_max"),
            "gradient_norm_metric": text(gradient_norm_metric, "gradient_norm_metric"),
            "on_divergence": None if on_divergence is None else tell})

    def take_divergence(self) -> Divergence | None:
        """The first divergence that was not taken yet, once. Quick enough for every step."""
        found = self._native.take_divergence()
        return None if found is None else Divergence(*found)

    def reset(self) -> None:
        """Forgets what is normal, and every divergence. Call it after an intended change, such as of the learning rate."""
        self._native.reset()
