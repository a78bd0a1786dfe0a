"""One fit of a Trainer: what is saved in it, and how a signal ends it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.closing import close_earlier_training, close_owned, close_owned_after
from .._checkpointer.given_options import check_options_of_ranks
from .._checkpointer.observer import logger
from .._checkpointer.ranks import Ranks, together
from .._evaluation import ModuleEvaluation, ModuleEvaluator
from .._preemption.guard import PreemptionReport
from .._preemption.training import TrainingGuard
from .._state.rng import rng
from ..errors import InvalidArgumentError
from . import _dicts, _preemption, _restarts
from ._step_urls import REST


class Fit:
    """From `setup` to the end of a fit. Owns the guard, and the checkpointer from `open` on; without `open` nothing is saved, as
    in a fit by Lightning's Tuner. Belongs to the thread of the training. All ranks call the methods alike.

    guard: None: signals are not noted. key: what the keys of the callbacks' states in a checkpoint begin with. monitor: a metric
    that the model must log; "": none.
    """

    def __init__(self, trainer: Any, ranks: Ranks | None, guard: TrainingGuard | None, key: str, monitor: str) -> None:
        self._trainer = trainer
        self._ranks = ranks
        self._guard = guard
        self._key = key
        self._monitor = monitor
        self._shared: tuple[str, ...] = ()  # the parts of the state that are the same on all ranks
        self._checkpointer: Checkpointer | None = None
        self._drain: float | None = None
        self.evaluator: ModuleEvaluator | None = None
        self.preempted: PreemptionReport | None = None  # of the last save
        self.last_time = 0.0  # of a save by time, on rank 0
        # Of the fit that this one resumes.
        self._is_resumed = False
        self._generators: dict[str, Any] | None = None
        self._metrics: dict[str, float] = {}  # until this fit has logged its own
        self._repeats_validation = False  # that of the step that it begins with
        # Of this fit.
        self._first_step: int | None = None  # once it trains
        self._saved_step: int | None = None  # the last one
        self._has_logged = False  # a validation has ended, or an epoch if there are none: `monitor` must be logged
        self._awaits_validation = False  # the step is to be saved after the validation that follows, or goes on
        self._before_validation: dict[str, Any] | None = None  # the generators, if a validation follows on this batch
        self._at_epoch_end: dict[str, Any] | None = None  # the checkpoint of a fit that ends with an epoch

    def open(self, store: str, options: dict[str, Any], evaluation: ModuleEvaluation | None, module: Any) -> None:
        """Errors: those of Checkpointer and of its method `evaluator`. InvalidArgumentError: `when_full` is "skip", and there are
        several ranks."""
        check_options_of_ranks("TidemarkCheckpoint", options, self._ranks)
        if self._ranks is not None:
            self._shared = _shared(self._trainer)
            self._ranks = dataclasses.replace(self._ranks, replicated=[f"{part}*" for part in self._shared])
        close_earlier_training(store)
        self._checkpointer = Checkpointer(store, ranks=self._ranks, **options)
        with together(self._ranks, "add the evaluators"):
            if evaluation and self._rank == 0:
                self.evaluator = ModuleEvaluator(self._checkpointer, evaluation, _without_trainer(module))
                self._drain = evaluation.drain

    def state(self) -> dict[str, Any]:
        """The state of the callback."""
        # The Tuner reads what it has saved with weights_only=True, which knows no arrays of NumPy.
        return {} if self._checkpointer is None else {"rng": rng().state_dict(), "metrics": self._known_metrics()}

    def resume_from(self, checkpoint: dict[str, Any]) -> None:
        """One without a state of the callback, as the Tuner loads, changes nothing."""
        for state in self._states_in(checkpoint)[:1]:
            self._is_resumed = True
            # Another rank has its own generators, in place of rank 0's.
            self._generators = checkpoint.get(_dicts.GENERATORS) if self._rank > 0 else state["rng"]
            self._metrics = state.get("metrics", {})

    def begin(self, saves_epochs: bool) -> None:
        """When the training begins. saves_epochs: the end of the epoch saves. SIGTERMException: a signal has come already.
        InvalidArgumentError: the store has a later step than this one, and the user has not chosen it."""
        trainer, loop = self._trainer, self._trainer.fit_loop
        if self._generators is not None:
            rng().load_state_dict(self._generators)
        if self._is_resumed:
            if loop.restarted_on_epoch_end:
                _restarts.begin_next_epoch(loop)
            after_last_batch = (loop.restarted_mid_epoch and loop.epoch_loop.restarted_on_train_batch_end
                                and loop.epoch_loop.batch_progress.is_last_batch)
            if loop.resumed_on_epoch_end or after_last_batch:
                # The next batch is the first of an epoch. Lightning has made the iterator of it, with other generators.
                iter(loop._data_fetcher)
        with together(self._ranks, "begin the training"):
            if self._checkpointer is not None and self._rank == 0:
                self._checkpointer._begins_at(trainer.global_step, "Give ckpt_path=callback.resume_path, or another store. To go "
                                              "back for good, call Checkpointer.discard_after before",
                                              chosen=trainer.ckpt_path is not None)
        self.take_signals()
        if self._is_preempted():
            raise SIGTERMException(0)
        self._first_step = trainer.global_step
        self._repeats_validation = loop.epoch_loop.val_loop.restarted_mid_evaluation
        at_epoch_end = saves_epochs and loop.epoch_loop._num_ready_batches_reached()
        self._awaits_validation = self._repeats_validation and not at_epoch_end

    def take_signals(self) -> None:
        """After Lightning has installed its handlers."""
        if self._guard is not None:
            _preemption.take_back(self._trainer, self._guard.signals)

    def end_batch(self, due: bool) -> None:
        """due: the step is to be saved."""
        loop = self._trainer.fit_loop
        # Rank 0 says so, for a validation may be due by the clock.
        self._awaits_validation = due and self._trainer.strategy.broadcast(
            loop.epoch_loop._should_check_val_fx(loop._data_fetcher))
        if due and not self._awaits_validation:
            self._save()
        if self._guard is not None:
            validates = loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
            self._before_validation = rng().state_dict() if validates else None
            self._end_if_preempted()

    def end_validation_batch(self) -> None:
        if self._ranks is None:
            self._end_if_preempted()

    def end_validation(self, due: bool) -> None:
        self._has_logged = True
        due, self._awaits_validation = due or self._awaits_validation, False
        if due:
            self._save()
        if self._ranks is None:
            self._end_if_preempted()

    def end_epoch(self, due: bool) -> None:
        self._has_logged |= not self._trainer.enable_validation
        if self._repeats_validation and self._trainer.global_step == self._first_step:
            self._metrics = {}  # this fit has trained no batch of the epoch: metrics of the training would be an earlier one's
        if due:
            self._save()
        if self._has_logged:
            self._metrics = {}
        if self._is_preempted():
            _preemption.end_fit(self._trainer)
            # Lightning raises when the counters of the epoch have been increased, which it could not resume from.
            self._at_epoch_end = self._dump()

    def close(self) -> None:
        """At the end of the fit. Waits for saves and evaluations. SIGTERMException: a signal has come."""
        guard = self._guard
        if guard is None:
            close_owned(self, self._drain)
            return
        exits = False
        try:
            if self._checkpointer is not None:
                close_owned(self, *guard.wait(self._checkpointer, self._drain))
            exits = True
        finally:
            self.end(exits)
        if guard.preempted:
            raise SIGTERMException(0)

    def close_after(self, exception: BaseException) -> None:
        """After what has ended the fit: with one last save, if that was a signal."""
        ended_by = exception
        try:
            if self._checkpointer is not None and self._guard is not None and self._can_save_after(exception, self._guard):
                self._save_last(exception, self._checkpointer, self._guard)
        except BaseException as error:
            ended_by = error
            raise
        finally:
            try:
                close_owned_after(ended_by, self)
            finally:
                self._checkpointer = None
                self.end(exits=isinstance(ended_by, SystemExit))

    def end(self, exits: bool = False) -> None:
        """Ends the guard. exits: as for `TrainingGuard.end`."""
        guard, self._guard = self._guard, None
        if guard is not None:
            _preemption.end(self._trainer, guard, exits)

    @property
    def has_no_gradients(self) -> bool:
        """Whether the gradients of the latest batch are in a step of the optimizer. Accumulated ones are not in a checkpoint."""
        return not self._trainer.fit_loop.epoch_loop._should_accumulate()

    @property
    def _rank(self) -> int:
        return 0 if self._ranks is None else self._ranks.rank

    def _states_in(self, checkpoint: dict[str, Any]) -> list[dict[str, Any]]:
        """What the callbacks of this class have in a checkpoint: all the same. Their keys differ from this one's if the store was
        moved."""
        return [state for key, state in checkpoint.get("callbacks", {}).items() if str(key).startswith(self._key)]

    def _is_preempted(self) -> bool:
        if self._guard is None or self._checkpointer is None:
            return False
        if self._trainer.received_sigterm and self._ranks is None:  # by another handler than the guard's
            self._guard.note()
        return self._guard.preempted_on_any_rank(self._checkpointer)

    def _end_if_preempted(self) -> None:
        if self.has_no_gradients and self._is_preempted():
            _preemption.end_fit(self._trainer)

    def _known_metrics(self) -> dict[str, float]:
        return {**self._metrics, **{name: float(value) for name, value in self._trainer.callback_metrics.items()}}

    def _save(self) -> None:
        step = self._trainer.global_step
        trained = step != self._first_step
        if self._checkpointer is None or step == self._saved_step or not (trained or self._repeats_validation):
            return
        if self._ranks is None:
            self._checkpointer.check_for_errors()
        first = self._saved_step is None
        with self._checkpointer._making(step):
            with together(self._ranks if first else None, "make the checkpoint"):
                # On all ranks, for both may tell other ranks something.
                checkpoint = self._dump()
                metrics = self._known_metrics()
                if self._rank == 0 and self._has_logged and trained:
                    self._check_monitor(step)
            state = self._state_of(checkpoint)
            if first:
                _dicts.check_same(self._ranks, state, self._shared)
        save = self._checkpointer.save if self._guard is None else functools.partial(self._guard.save, self._checkpointer)
        made = save(step, state, metrics=metrics, overwrite=True)
        if made is None or made.skipped:  # a signal has come, and the last save follows; or there was no room
            return
        self._saved_step = step
        if self.evaluator:
            self.evaluator.note(step)

    def _check_monitor(self, step: int) -> None:
        logged = self._trainer.callback_metrics
        if self._monitor and self._monitor not in logged:
            raise InvalidArgumentError(
                f"monitor is '{self._monitor}', which is not logged before step {step} is saved, so no step could be the "
                f"best. Logged are: {', '.join(logged) or 'none'}. A metric of the training that Lightning knows at "
                f"the end of an epoch needs save_on_train_epoch_end=True")

    def _dump(self) -> dict[str, Any]:
        checkpoint: dict[str, Any] = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        return checkpoint

    def _state_of(self, checkpoint: dict[str, Any], generators: Any = None) -> dict[str, Any]:
        """What this rank saves. generators: its own ones."""
        state = _dicts.state_of(checkpoint, REST, {name for name, _ in self._trainer.lightning_module.named_parameters()})
        if self._rank > 0:
            state = {name: part for name, part in state.items() if name in self._shared}
            state[f"rng.{self._rank}"] = generators or rng()
        if self._ranks is not None:
            _dicts.set_apart(state, self._shared)
        return state

    def _can_save_after(self, exception: BaseException, guard: TrainingGuard) -> bool:
        if isinstance(exception, SIGTERMException):
            return self._ranks is None or guard.guard.has_agreed
        # The workers of a data loader have got the signal too, and the next batch has not come.
        loop = self._trainer.fit_loop.epoch_loop
        is_alone = guard.preempted and self._ranks is None and isinstance(exception, Exception)
        return (is_alone and self._first_step is not None and self.has_no_gradients
                and loop.batch_progress.current.ready == loop.batch_progress.current.completed)

    def _save_last(self, exception: BaseException, checkpointer: Checkpointer, guard: TrainingGuard) -> None:
        """Closes the checkpointer too."""
        step = self._trainer.global_step
        guard.note()
        if self._first_step is None or step == self._first_step:
            logger.warning("preempted at step %d, before the fit has trained a step", step)
            close_owned(self, *guard.wait(checkpointer, 0.0))
            _preemption.set_code(exception, 0)
            return
        with checkpointer._making(step):
            generators, metrics = None, self._known_metrics()
            checkpoint = self._dump() if self._at_epoch_end is None else self._at_epoch_end
            if self._at_epoch_end is None and _preemption.is_in_validation(self._trainer):
                # The next fit runs the whole validation, and saves the step again. Until then those of an earlier step are known.
                metrics = {}
                _restarts.begin_validation_again(checkpoint)
                generators = self._before_validation
                for state in self._states_in(checkpoint) if generators is not None else []:
                    state["rng"] = generators
            parts = self._state_of(checkpoint, generators and _dicts._Rest(generators))
        self.preempted = guard.save_and_close(checkpointer, step, parts, metrics=metrics, overwrite=step != self._saved_step)
        self._checkpointer = None
        if self.evaluator:
            self.evaluator.note(step)
        _preemption.set_code(exception, guard.exit_code(self.preempted))


def _shared(trainer: Any) -> tuple[str, ...]:
    """The parts of the state that are the same on all ranks. Rank 0 alone saves the others, as it does for Lightning."""
    if not isinstance(trainer.strategy, DDPStrategy) or getattr(trainer.strategy, "_model_averager", None) is not None:
        return ()  # post-local SGD: models differ until they are averaged
    # One that shards its state gathers it on rank 0 (ZeroRedundancyOptimizer).
    whole = trainer.optimizers and not any(hasattr(optimizer, "consolidate_state_dict") for optimizer in trainer.optimizers)
    return ("model", _dicts.OPTIMIZERS) if whole else ("model",)


def _without_trainer(module: Any) -> Any:
    """The module as it can be copied: without the trainer that it refers to while it is trained."""
    import copy

    alone = copy.copy(module)
    alone._trainer = None
    return alone
