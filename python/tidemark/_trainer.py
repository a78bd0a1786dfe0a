"""AsyncTrainer: a training loop that saves, evaluates and resumes, for loops that use no framework."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ._arguments import function_of, function_or_none, integer, number, path, wrong
from ._checkpointer.checkpointer import Checkpointer
from ._checkpointer.closing import close_after, close_or_give_up
from ._checkpointer.evaluator import EvaluatorFunction
from ._checkpointer.given_options import check_options, check_options_of_ranks
from ._checkpointer.health import Divergence, HealthMonitor
from ._checkpointer.observer import logger
from ._checkpointer.progress import Progress, progress_function
from ._checkpointer.ranks import Ranks, least_time_left, of_rank_0, ranks_or_none, together
from ._checkpointer.waits import PAUSE_MAX, wait_for_evaluators, wait_for_saves
from ._preemption.guard import PreemptionGuard, PreemptionReport
from ._preemption.training import preemption_of
from .errors import AlreadyExistsError, Error, FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError

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

    `device` and `progress` are those of `Checkpointer.restore`, for each restore of the run.

    `setup(checkpointer)` is called before the state is restored, for averages and the like. `drain`: how many seconds the end
    of the run waits for evaluations, which are given up then: see Checkpointer.close.

    preemption: True: SIGTERM ends the run with one last save, within 30 seconds; or a PreemptionGuard, for other signals and
    another time. Waits of the trainer end for that; `train` does not, nor does, with `ranks`, a save that waits for room.
    False: signals have the effect that they have without the trainer.

    `health`: the run goes back to the latest healthy step when the monitor says so. Later steps are then discarded, and
    `on_divergence(divergence)` is called, which may change the state: without a change, the run diverges again. It is also
    called if the monitor only asks for more frequent saves: `trainer.checkpointer.set_save_interval`. After
    `max_rollbacks` in one call of `run` the next divergence ends it. A rollback first waits for all evaluations, for at
    most `close_timeout` seconds.

    `ranks`: as of Checkpointer: all ranks run the same number of steps, with the same options. Evaluators and `health` look at
    what rank 0 saves, and at its metrics; `setup` can add evaluators to other ranks. With `health` rank 0 tells the others
    after each step whether it has diverged, by `ranks.all_gather`. All then go back to the same step, and each calls its
    `on_divergence`. A signal to one rank, or its `end`, ends the run of all after the same step: the ranks ask each other after
    each step. A wait of rank 0 for evaluations does not end for a signal to another one. What `train` raises on one rank ends
    the run there, and `all_gather` should then fail on the others, which ends theirs with an InternalError.

    Use it from one thread. InvalidArgumentError: an option is out of its range; when_full="skip" with `ranks`, for a rank
    without room would be out of step with the others.
    """

    def __init__(self, store: str | os.PathLike[str], state: Any, train: Callable[[int], Mapping[str, Any] | None], *,
                 setup: Callable[[Checkpointer], None] | None = None, health: HealthMonitor | None = None,
                 on_divergence: Callable[[Divergence], None] | None = None, max_rollbacks: int = 3,
                 preemption: bool | PreemptionGuard = True, drain: float = 600.0, device: Any = None,
                 progress: Progress = False, ranks: Ranks | None = None, **options: Any) -> None:
        function_of(train, "train")
        function_or_none(setup, "setup")
        function_or_none(on_divergence, "on_divergence")
        if health is not None and not isinstance(health, HealthMonitor):
            raise wrong(health, "health", "a tidemark.HealthMonitor")
        if integer(max_rollbacks, "max_rollbacks") < 0:
            raise InvalidArgumentError(f"max_rollbacks is {max_rollbacks}: 0 or more")
        if not number(drain, "drain") >= 0:
            raise InvalidArgumentError(f"drain is {drain}: 0 or more seconds")
        progress_function(progress)
        self._ranks = ranks_or_none(ranks)
        check_options("AsyncTrainer", options, own=AsyncTrainer.__init__)
        check_options_of_ranks("AsyncTrainer", options, self._ranks)
        self._store = os.path.abspath(path(store, "store"))
        self._state = state
        self._train = train
        self._setup = setup
        self._health = health
        self._on_divergence = on_divergence
        self._max_rollbacks = max_rollbacks
        self._preemption = preemption_of(preemption)
        self._drain = float(drain)
        self._restoring: dict[str, Any] = {"device": device, "progress": progress}
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
        `Checkpointer.evaluator`, which also raises the errors, when a run begins. AlreadyExistsError: the name is taken."""

        def add(function: F) -> F:
            if name in self._evaluators:
                raise AlreadyExistsError(f"the trainer has an evaluator '{name}' already")
            self._evaluators[name] = (function, options)
            return function

        return add

    def run(self, steps: int) -> TrainingReport:
        """Trains from the step after the latest committed one to step `steps` - 1, and returns when all saves are committed,
        or when the run was preempted. If they are all done, nothing is trained.

        What `train` raises ends the run: saves in flight are committed, evaluations are given up, and the state is not
        saved. A save that fails in the background is a warning; the run goes on, and raises the failure at its end.

        InvalidArgumentError: `train` has returned something else than metrics; the step is not saved.
        AlreadyHeldError: another process holds the store. MismatchError: the checkpoint does not fit the state.
        FailedPreconditionError: it has diverged more than `max_rollbacks` times, or no committed step can be resumed, or
        this is not the main thread and `preemption` is True, or the guard that it is was uninstalled, or the trainer runs
        already. ResourceExhaustedError: evaluators
        held the memory that the last save needs for `drain` seconds. DeadlineExceededError: an evaluator has held up a
        rollback, or saves the end, for `close_timeout` seconds.
        """
        if self._checkpointer is not None:
            raise FailedPreconditionError("the trainer runs already")
        steps = integer(steps, "steps")
        with self._guard() as guard:
            checkpointer = Checkpointer(self._store, ranks=self._ranks, **self._options)
            self._checkpointer = checkpointer
            try:
                report = self._run(checkpointer, guard, steps)
            except BaseException as error:
                close_after(error, checkpointer)
                raise
            finally:
                self._checkpointer = None
            if report.preempted is None:
                close_or_give_up(checkpointer, self._drain)
            return report

    @contextlib.contextmanager
    def _guard(self) -> Iterator[PreemptionGuard]:
        """Of one run. One of the user's stays installed."""
        if isinstance(self._preemption, PreemptionGuard):
            yield self._preemption.__enter__()
        else:
            with PreemptionGuard(signals=(signal.SIGTERM,) if self._preemption else ()) as guard:
                yield guard

    def _run(self, checkpointer: Checkpointer, guard: PreemptionGuard, steps: int) -> TrainingReport:
        with together(self._ranks, "set up the run"):
            if self._setup is not None:
                self._setup(checkpointer)
            if self._health is not None:
                while self._health.take_divergence() is not None:
                    pass  # of an earlier run
            if self._ranks is None or self._ranks.rank == 0:
                if self._health is not None:
                    checkpointer.add_health_monitor(self._health)
                for name, (function, options) in self._evaluators.items():
                    checkpointer.evaluator(name, function, **options)
        first = step = checkpointer.resume(self._state, healthy_only=self._health is not None, convert_dtypes=self._converts,
                                           **self._restoring)
        rollbacks: list[tuple[Divergence, int]] = []
        while True:
            if step < steps:
                metrics = _metrics_of(self._train(step))
                preempted = self._preempted(guard)
                if not preempted:
                    if step == steps - 1:
                        self._save_last(checkpointer, guard, step, metrics)
                    elif checkpointer.should_save(step):
                        checkpointer._save_unless(lambda: guard.preempted, step, self._state, metrics=metrics)
                    elif step == first:
                        # An optimizer has its state now. What is wrong with the state is the business of the save.
                        with contextlib.suppress(Error):
                            checkpointer.prepare(self._state, in_background=True)
                    # Ranks agree on a signal of this time after the next step, or at the end.
                    preempted = self._ranks is None and guard.preempted
                if preempted:
                    last = guard.save_and_close(checkpointer, step, self._state, metrics=metrics)
                    return TrainingReport(first, step + 1, rollbacks, last)
                step += 1
            evaluations_run = False
            if step >= steps:
                with together(self._ranks, "end the run"):
                    evaluations_run = not self._wait_for_the_end(checkpointer, guard)
            if step >= max(steps, 1) and self._preempted(guard):
                last = guard.save_and_close(checkpointer, step - 1, self._state)
                return TrainingReport(first, step, rollbacks, last)
            divergence = self._divergence()
            if divergence is not None:
                if divergence.remediation == "roll_back":
                    healthy, discarded = self._go_back(checkpointer, guard, divergence, rollbacks)
                    step = healthy + 1
                    if not discarded:
                        return TrainingReport(first, step, rollbacks, guard.save_and_close(checkpointer, healthy, self._state))
                if self._on_divergence is not None:
                    self._on_divergence(divergence)
            elif step >= steps:
                if evaluations_run:
                    checkpointer.close(drain=0.0)
                return TrainingReport(first, max(step, first), rollbacks, None)

    def _preempted(self, guard: PreemptionGuard) -> bool:
        """As guard.preempted_on_any_rank, but for an `all_gather` that fails: it ends the run, whose saves would all fail."""
        if self._ranks is None or guard.has_agreed:
            return guard.preempted
        left = least_time_left(self._ranks, guard.seconds_left())
        if left < float("inf"):
            # Once more: a rank that has waited for another one has less time by now than it has told.
            guard.agree_on(least_time_left(self._ranks, guard.seconds_left()))
        return guard.has_agreed

    def _divergence(self) -> Divergence | None:
        """The next divergence that was not seen yet; of ranks that of rank 0."""
        health = self._health
        if health is None or self._ranks is None:
            return None if health is None else health.take_divergence()

        def take() -> str:
            found = health.take_divergence()
            return json.dumps(None if found is None else dataclasses.astuple(found))

        found = json.loads(of_rank_0(self._ranks, take, "look for a divergence"))
        return None if found is None else Divergence(*found)

    def _save_last(self, checkpointer: Checkpointer, guard: PreemptionGuard, step: int, metrics: dict[str, float]) -> None:
        """Also where the options say that a save without room is skipped: then again, until there is room. Returns early if
        the run is preempted. ResourceExhaustedError: evaluators held the memory for `drain` seconds after the last save."""
        pause, deadline = 0.01, None
        while (save := checkpointer._save_unless(lambda: guard.preempted, step, self._state, metrics=metrics)) and save.skipped:
            if deadline is None and checkpointer.statistics().in_flight == 0:
                deadline = time.monotonic() + self._drain
            elif deadline is not None and time.monotonic() >= deadline:
                raise ResourceExhaustedError(
                    f"step {step}, the last one, could not be saved: evaluators have held the staging memory for "
                    f"{self._drain:g} seconds. Raise staging_bytes_max, or keep no arrays of snapshots")
            # An evaluator may also keep arrays of a snapshot after it has ended.
            again = time.monotonic() + pause
            wait_for_evaluators(checkpointer, again, lambda: guard.preempted)
            time.sleep(max(0.0, again - time.monotonic()))
            if guard.preempted:
                return
            pause = min(2 * pause, PAUSE_MAX)

    def _wait_for_the_end(self, checkpointer: Checkpointer, guard: PreemptionGuard) -> bool:
        """Waits for the saves, and `drain` seconds for the evaluators. Whether all have ended; not if the run is preempted."""
        deadline = time.monotonic() + checkpointer._close_timeout
        if not wait_for_saves(checkpointer, deadline, lambda: guard.preempted) and not guard.preempted:
            checkpointer.close(0.0, drain=0.0)  # raises DeadlineExceededError
        return wait_for_evaluators(checkpointer, time.monotonic() + self._drain, lambda: guard.preempted) is None

    def _go_back(self, checkpointer: Checkpointer, guard: PreemptionGuard, divergence: Divergence,
                 rollbacks: list[tuple[Divergence, int]]) -> tuple[int, bool]:
        """Restores the latest healthy step, and discards later ones. Returns it, and whether they were discarded: if the run
        is preempted, nothing is waited for, and they may have to stay."""
        if len(rollbacks) >= self._max_rollbacks:
            raise FailedPreconditionError(f"the run has diverged again at step {divergence.step}, after {len(rollbacks)} "
                                          f"rollbacks: {divergence.reason}")
        # Nothing reads a step that is discarded.
        with together(self._ranks, "wait for the evaluations"):
            running = wait_for_evaluators(checkpointer, time.monotonic() + checkpointer._close_timeout, lambda: guard.preempted)
            if running is not None and not guard.preempted:
                raise running
        healthy = checkpointer.restore(self._state, healthy_only=True, convert_dtypes=self._converts,
                                       evaluations_timeout=0.0 if guard.preempted else 300.0, **self._restoring).step
        preempted = self._preempted(guard)
        discarded = True
        try:
            # Of ranks some may know that a save has ended, and others not yet.
            if preempted and self._ranks is None and checkpointer.statistics().in_flight > 0:
                raise FailedPreconditionError("they are being saved")
            checkpointer.discard_after(healthy, f"the run diverged at step {divergence.step}: {divergence.reason}")
        except Error as error:
            if not preempted:
                raise
            logger.warning("steps after %d, which the run went back to, stay: %s", healthy, error)
            discarded = False
        assert self._health is not None
        while self._health.take_divergence() is not None:
            pass  # of the steps that are gone
        rollbacks.append((divergence, healthy))
        return healthy, discarded


def _metrics_of(trained: Any) -> dict[str, float]:
    if trained is None:
        return {}
    if not isinstance(trained, Mapping):
        raise wrong(trained, "what train returned", "a dict of numbers by name, or None")
    return {str(name): number(value, f"the metric '{name}' of train") for name, value in trained.items()}
