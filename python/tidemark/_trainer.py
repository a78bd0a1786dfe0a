"""AsyncTrainer: a training loop that saves, evaluates and resumes, for loops that use no framework."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ._checkpointer import Checkpointer, close_after
from ._evaluator import EvaluatorFunction
from ._health import Divergence, HealthMonitor
from ._preemption import PreemptionGuard, PreemptionReport
from .errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError

F = TypeVar("F", bound=EvaluatorFunction)


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """What a call of `AsyncTrainer.run` did.

    `first`: the step that it began with; 0 in a fresh run. `next`: the step to train next; the number of steps if all are
    done. `rollbacks`: [(divergence, the step that the run went back to)]. `preempted`: the report of the last save if a
    signal or the end of the time has ended the run, else None.
    """

    first: int
    next: int
    rollbacks: list[tuple[Divergence, int]]
    preempted: PreemptionReport | None


class AsyncTrainer:
    """Trains from the latest checkpoint on, and saves, evaluates and cleans up beside it. Owns the checkpointer of a store.

        state = {"weights": weights, "rng": tidemark.rng(), "epoch": 0}

        def train(step):
            ...                                  # changes what is in the state
            return {"loss": loss}

        trainer = tidemark.AsyncTrainer("run/ckpt", state, train, save_interval_steps=100)

        @trainer.evaluator("validation", entries=["weights"])
        def validate(snapshot):
            return {"loss": held_out_loss(snapshot["weights"])}

        report = trainer.run(10_000)

    `state`: as in `Checkpointer.save`: a dict or dataclass, which a resumed run fills in place. `train(step)` trains one
    step and returns its metrics, {name: number}, or None. It runs on the thread that calls `run`. With
    staging="overlapped" it must call `trainer.checkpointer.wait_until_staged()` before it changes arrays of the state.
    `options` are those of Checkpointer: they say where, when and how to save, and what to keep. The last step is always
    saved.

    `setup(checkpointer)` is called before the state is restored, for averages and the like. `signals` end the run with one
    last save within `grace` seconds, and so does `end`, a time of time.time(): see PreemptionGuard. `drain`: how many
    seconds the end of the run waits for evaluations: see Checkpointer.close.

    `health`: the run goes back to the latest healthy step when the monitor says so. Later steps are then discarded, and
    `on_divergence(divergence)` is called, which may change the state: without a change, the run diverges again. It is also
    called if the monitor only asks for more frequent saves: `trainer.checkpointer.set_save_interval`. After
    `max_rollbacks` in one call of `run` the next divergence ends it.

    Use it from one thread. InvalidArgumentError: an option is out of its range.
    """

    def __init__(self, store: str | os.PathLike[str], state: Any, train: Callable[[int], Mapping[str, Any] | None], *,
                 setup: Callable[[Checkpointer], None] | None = None, health: HealthMonitor | None = None,
                 on_divergence: Callable[[Divergence], None] | None = None, max_rollbacks: int = 3,
                 signals: Sequence[int] = (signal.SIGTERM,), grace: float = 30.0, end: float = float("inf"),
                 drain: float = 600.0, **options: Any) -> None:
        if not callable(train):
            raise InvalidArgumentError(f"train is a {type(train).__name__}, not a function")
        if max_rollbacks < 0:
            raise InvalidArgumentError(f"max_rollbacks is {max_rollbacks}: 0 or more")
        if not drain >= 0:
            raise InvalidArgumentError(f"drain is {drain}: 0 or more seconds")
        self._store = os.path.abspath(store)
        self._state = state
        self._train = train
        self._setup = setup
        self._health = health
        self._on_divergence = on_divergence
        self._max_rollbacks = max_rollbacks
        self._guard: dict[str, Any] = {"signals": signals, "grace": grace, "end": end}
        self._drain = float(drain)
        self._options = options
        self._converts = bool(options.get("saved_dtypes"))
        self._evaluators: dict[str, tuple[EvaluatorFunction, dict[str, Any]]] = {}
        self._checkpointer: Checkpointer | None = None

    @property
    def checkpointer(self) -> Checkpointer:
        """That of the run that is going on. FailedPreconditionError: none is."""
        if self._checkpointer is None:
            raise FailedPreconditionError("the trainer has a checkpointer only during run()")
        return self._checkpointer

    def evaluator(self, name: str, **options: Any) -> Callable[[F], F]:
        """Has the function evaluate each save of every `run` from now on; a decorator. Options and function are those of
        `Checkpointer.evaluator`, which also raises the errors, when a run begins."""

        def add(function: F) -> F:
            self._evaluators[name] = (function, options)
            return function

        return add

    def run(self, steps: int) -> TrainingReport:
        """Trains from the step after the latest committed one to step `steps` - 1, and returns when all saves are committed,
        or when the run was preempted. If they are all done, nothing is trained.

        What `train` raises ends the run: saves in flight are committed, evaluations are given up, and the state is not
        saved. A save that fails in the background is a warning; the run goes on, and raises the failure at its end.

        AlreadyHeldError: another process holds the store. MismatchError: the checkpoint does not fit the state.
        FailedPreconditionError: it has diverged more than `max_rollbacks` times, or no committed step can be resumed, or
        this is not the main thread and there are `signals`, or the trainer runs already.
        """
        if self._checkpointer is not None:
            raise FailedPreconditionError("the trainer runs already")
        with PreemptionGuard(**self._guard) as guard:
            checkpointer = Checkpointer(self._store, **self._options)
            self._checkpointer = checkpointer
            try:
                report = self._run(checkpointer, guard, steps)
            except BaseException as error:
                close_after(error, checkpointer)
                raise
            finally:
                self._checkpointer = None
            if report.preempted is None:
                checkpointer.close(drain=self._drain)
            return report

    def _run(self, checkpointer: Checkpointer, guard: PreemptionGuard, steps: int) -> TrainingReport:
        if self._setup is not None:
            self._setup(checkpointer)
        if self._health is not None:
            checkpointer.add_health_monitor(self._health)
        for name, (function, options) in self._evaluators.items():
            checkpointer.evaluator(name, function, **options)
        first = step = checkpointer.resume(self._state, healthy_only=self._health is not None, convert_dtypes=self._converts)
        rollbacks: list[tuple[Divergence, int]] = []
        while True:
            if step < steps:
                metrics = {str(name): float(value) for name, value in (self._train(step) or {}).items()}
                if guard.preempted:
                    last = guard.save_and_close(checkpointer, step, self._state, metrics=metrics)
                    return TrainingReport(first, step + 1, rollbacks, last)
                if step == steps - 1:
                    self._save_last(checkpointer, step, metrics)
                elif checkpointer.should_save(step):
                    checkpointer.save(step, self._state, metrics=metrics)
                step += 1
            divergence = self._divergence(checkpointer, wait=step >= steps)
            if divergence is not None:
                if divergence.remediation == "roll_back":
                    step = self._go_back(checkpointer, divergence, rollbacks) + 1
                if self._on_divergence is not None:
                    self._on_divergence(divergence)
            elif step >= steps:
                return TrainingReport(first, max(step, first), rollbacks, None)

    def _save_last(self, checkpointer: Checkpointer, step: int, metrics: dict[str, float]) -> None:
        """Also where the options say that a save without room is skipped."""
        while checkpointer.save(step, self._state, metrics=metrics).skipped:
            checkpointer.wait_until_evaluated()  # and until earlier saves have ended

    def _divergence(self, checkpointer: Checkpointer, *, wait: bool) -> Divergence | None:
        """The next one that the monitor has found; with `wait` of all steps so far, within `drain` seconds."""
        if self._health is None:
            return None
        if wait:
            try:
                checkpointer.wait_until_evaluated(self._drain)
            except DeadlineExceededError:
                return None
        return self._health.take_divergence()

    def _go_back(self, checkpointer: Checkpointer, divergence: Divergence,
                 rollbacks: list[tuple[Divergence, int]]) -> int:
        """Restores the latest healthy step, discards later ones, and returns it."""
        if len(rollbacks) >= self._max_rollbacks:
            raise FailedPreconditionError(f"the run has diverged again at step {divergence.step}, after {len(rollbacks)} "
                                          f"rollbacks: {divergence.reason}")
        checkpointer.wait_until_evaluated()  # nothing reads a step that is discarded
        healthy = checkpointer.restore(self._state, healthy_only=True, convert_dtypes=self._converts).step
        checkpointer.discard_after(healthy, f"the run diverged at step {divergence.step}: {divergence.reason}")
        assert self._health is not None
        while self._health.take_divergence() is not None:
            pass  # of the steps that are gone
        rollbacks.append((divergence, healthy))
        return healthy
