"""The callback that saves beside the training."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Callable
from typing import Any, Literal

from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy, Strategy
from lightning.pytorch.utilities.exceptions import SIGTERMException

from .._arguments import flag, integer, path, text_or_none
from .._checkpointer.checkpointer import Checkpointer, check_options, refused_by
from .._checkpointer.closing import close_earlier_training, close_owned, close_owned_after
from .._checkpointer.observer import logger
from .._checkpointer.options import KeepBest, Retention
from .._checkpointer.progress import Progress, progress_function
from .._checkpointer.ranks import Ranks, ranks_of_job, together
from .._evaluation import Evaluation, ModuleEvaluator, evaluation_or_none
from .._preemption.guard import PreemptionGuard, PreemptionReport
from .._state.rng import rng
from .._preemption.training import TrainingGuard, preemption_of
from ..errors import InvalidArgumentError, UnimplementedError
from . import _dicts, _preemption, _restarts
from ._checkpoint_io import TidemarkCheckpointIO
from ._step_urls import REST, SCHEME, load_step, url_of

# Arguments of ModelCheckpoint, and options of Checkpointer, that have no meaning here: what does the same.
_INSTEAD = {
    "dirpath": "the store is the first argument",
    "filename": "a step has a number in place of a name, and tidemark.steps(store) gives its metrics",
    "auto_insert_metric_name": "a step has a number in place of a name",
    "enable_version_counter": "a second save of a step replaces it",
    "save_last": "the latest step is always kept: give ckpt_path=callback.resume_path",
    "save_weights_only": "the whole training is saved. LightningModule.load_from_checkpoint(callback.best_model_path) reads the "
                         "weights alone, and tidemark.export_safetensors writes them into a file",
    "save_on_exception": "after an exception the saves that have begun are committed, and no other is made: save more often",
    "verbose": "give observer=, whose method `committed` is told of each step",
    **refused_by("Lightning", when="use every_n_train_steps, every_n_epochs or train_time_interval")}


class TidemarkCheckpoint(Checkpoint):
    """Saves the whole training into the store at `store` and keeps the latest step and the best ones.

    every_n_train_steps, train_time_interval, every_n_epochs: when to save, one of them; by default after each epoch. A step that
    a validation follows at once is saved after it, with its metrics. Epochs are saved after each validation, or at their end
    without one. save_on_train_epoch_end: True: always at their end, where the metrics of the training are known; False: after
    validations only. With `fast_dev_run` nothing is saved.
    monitor: a metric that is logged; the `save_top_k` best steps by it are kept beside the latest one, with -1 all steps.
    None: the latest step is kept, with save_top_k=-1 all. mode: "min" or "max" is best. evaluation: saved steps are evaluated
    beside the training; monitor="validation/loss" then keeps the best by what it found. progress: when the Trainer reads a step
    of `ckpt_path`, as for `Checkpointer.restore`, after each tensor and on rank 0. `options` are those of Checkpointer;
    `retention` replaces the rule of the above. InvalidArgumentError: an argument of ModelCheckpoint has no meaning here; the
    message says what to use instead.

    preemption: True: SIGTERM ends a fit with one last save, within 30 seconds; or a PreemptionGuard, for other signals and
    another time. The fit ends with Lightning's SIGTERMException, a SystemExit: the process exits with 0 if the step is committed,
    else with 1. It ends after a step of the optimizer, or in the middle of a validation, which the resumed fit runs again.
    Several processes end after the same step, or in a validation that follows it. The second signal changes nothing.

    A save returns when the state is copied. What fails later is raised by a later save, or at the end of the fit. The
    checkpoint has the generators of random numbers too, as `tidemark.rng`; they are put back when the training begins.

    Several processes (DDP) save each step together. What is the same in all of them is written once: the parameters and the
    states of the optimizers. Everything else is rank 0's, but each rank has its own generators. So are the metrics, and the
    evaluation, which runs there alone. Another number of processes may resume; one that the step has no generators of
    keeps those that it has. `ranks`: None: the ranks of torch.distributed; else a Ranks, or a function that returns one when
    the process group is there: `lambda: Ranks.of_torch(vote_timeout=60)`. Its `replicated` is not used.

    UnimplementedError, by a fit or another run: the strategy saves in a way of its own, as FSDP and DeepSpeed do.
    InvalidArgumentError: the store has a later step than that at which the fit begins, without a `ckpt_path`; `ckpt_path` is
    "last", which Lightning looks for in its own callbacks alone; `ranks` are not those of the Trainer; at a save after a
    validation, or after an epoch without one: the model has not logged `monitor`; at the first save: a hook has changed the
    checkpoint on one rank in another way. AbortedError: another rank could not load or save. FailedPreconditionError, by a fit
    with `preemption=True`: this is not the main thread, which alone notes signals.
    """

    def __init__(self, store: str | os.PathLike[str], *, monitor: str | None = None, mode: Literal["min", "max"] = "min",
                 save_top_k: int = 1, every_n_train_steps: int | None = None,
                 train_time_interval: datetime.timedelta | None = None, every_n_epochs: int | None = None,
                 save_on_train_epoch_end: bool | None = None, evaluation: Evaluation | None = None,
                 preemption: bool | PreemptionGuard = False, ranks: Ranks | Callable[[], Ranks] | None = None,
                 progress: Progress = False, **options: Any) -> None:
        if mode not in ("min", "max"):
            raise InvalidArgumentError(f"mode is '{mode}', not 'min' or 'max'")
        evaluation_or_none(evaluation)
        if save_on_train_epoch_end is not None:
            flag(save_on_train_epoch_end, "save_on_train_epoch_end")
        monitor, kept = text_or_none(monitor, "monitor") or "", integer(save_top_k, "save_top_k")
        if kept < -1 or kept == 0 or (kept > 1 and not monitor):
            raise InvalidArgumentError(f"save_top_k is {kept}" + (
                ", and without `monitor` no step is better than another: expected 1 or -1" if kept > 1 else
                ": expected 1 or more, or -1 for all steps. To save nothing, leave the callback out"))
        if kept != 1 and "retention" in options:
            raise InvalidArgumentError(f"save_top_k is {kept}, and retention= replaces its rule: give one of them")
        self._best: Literal["lowest", "highest"] = "lowest" if mode == "min" else "highest"
        best = [KeepBest(monitor, self._best, kept)] if monitor and kept > 0 else []
        # The steps among which the evaluator has yet to find the best one stay until it has.
        awaited = [evaluation.name] if evaluation and monitor.startswith(evaluation.name + "/") else []
        self._logged_by_now = False  # a validation has ended, or an epoch if there are none: `monitor` must be logged
        self._monitors_own = bool(monitor) and not awaited  # a metric that the model logs
        options.setdefault("retention", Retention() if kept == -1 else Retention(
            max_to_keep=1, keep_best=best, keep_unevaluated_until=awaited))
        self.store = os.path.abspath(path(store, "store"))
        check_options("TidemarkCheckpoint", options, _INSTEAD)
        self._options = options
        self._every_n_train_steps, self._every_n_epochs = _periods(every_n_train_steps, train_time_interval, every_n_epochs)
        self._train_time_interval = train_time_interval
        self._last_time = 0.0  # of a save by train_time_interval, on rank 0
        self._save_on_train_epoch_end = save_on_train_epoch_end
        self._evaluation = evaluation
        progress_function(progress)
        self._progress = progress
        self._preemption = preemption_of(preemption)
        self._guard: TrainingGuard | None = None  # of the fit that goes on
        self._first_step: int | None = None  # of the fit, once it trains
        self._at_epoch_end: dict[str, Any] | None = None  # the checkpoint of a fit that ends with an epoch
        self._before_validation: dict[str, Any] | None = None  # the generators, if a validation follows on this batch
        self._preempted: PreemptionReport | None = None
        self._is_tuned = False  # between `setup` and `on_fit_start`, where only Lightning's Tuner trains
        self._given_ranks = ranks
        self._ranks: Ranks | None = None  # of the run that goes on
        self._shared: tuple[str, ...] = ()
        self._monitor = monitor
        self._checkpointer: Checkpointer | None = None
        self._evaluator: ModuleEvaluator | None = None
        self._generators: dict[str, Any] | None = None
        self._saved_step = -1
        self._saves = False  # this training has saved a step
        self._awaits_validation = False  # the step is due, and the validation that follows has its metrics

    @property
    def resume_path(self) -> str | None:
        """The latest step, for `ckpt_path` of Trainer.fit; None: there is none, a fresh run. Errors: those of tidemark.open."""
        return url_of(self.store, "latest") or None

    @property
    def best_model_path(self) -> str:
        """The best step by `monitor` and `mode`, or without `monitor` the latest, for ckpt_path and
        LightningModule.load_from_checkpoint. "": there is none. Errors: those of tidemark.open."""
        return url_of(self.store, f"best:{self._monitor}:{self._best}" if self._monitor else "latest")

    @property
    def state_key(self) -> str:
        # Of the callbacks of a Trainer each has a store of its own.
        return str(self._generate_state_key(store=self.store))

    @property
    def skipped_evaluations(self) -> list[tuple[int, str]]:
        """[(step, reason)] of the steps of this fit whose evaluation was skipped or has failed, by their records."""
        return self._evaluator.left_out() if self._evaluator else []

    @property
    def preempted(self) -> PreemptionReport | None:
        """What the last save did, if a signal has ended the latest fit. None: no signal has, or it had trained nothing yet."""
        return self._preempted

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._end_guard(trainer)
        self._is_tuned = stage == "fit"
        if stage == "fit" and self._preemption and not trainer.fast_dev_run:
            self._preempted = None
            self._guard = TrainingGuard(self._preemption)
        # Lightning has taken "last", found nothing, and warned.
        if stage == "fit" and trainer.ckpt_path is None and getattr(trainer._checkpoint_connector, "_user_managed", False):
            if self.resume_path is not None:
                raise InvalidArgumentError('ckpt_path="last" does not find the steps of TidemarkCheckpoint: give '
                                           "ckpt_path=callback.resume_path")
        self._ranks = _ranks_of(trainer, self._given_ranks)
        before = trainer.strategy.checkpoint_io
        of_another = isinstance(before, _StepPaths)
        trainer.strategy.checkpoint_io = _StepPaths(before._inner if of_another else before, self._ranks,
                                                    self._progress or (of_another and before._progress))

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._is_tuned = False
        if trainer.fast_dev_run:
            return
        if self._ranks is not None:
            self._shared = _shared(trainer)
            self._ranks = dataclasses.replace(self._ranks, replicated=[f"{part}*" for part in self._shared])
        close_earlier_training(self.store)
        self._checkpointer = Checkpointer(self.store, ranks=self._ranks, **self._options)
        self._saved_step = trainer.global_step
        self._saves = self._awaits_validation = self._logged_by_now = False
        self._first_step = self._at_epoch_end = self._before_validation = None
        with together(self._ranks, "add the evaluators"):
            if self._evaluation and self._rank == 0:
                self._evaluator = ModuleEvaluator(self._checkpointer, self._evaluation, _without_trainer(pl_module))

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        if self._guard is not None:
            _preemption.take_back(trainer, self._guard.signals)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._last_time = time.monotonic()
        if self._generators is not None:
            rng().load_state_dict(self._generators)
            self._generators = None
            loop = trainer.fit_loop
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
        if self._guard is not None:
            _preemption.take_back(trainer, self._guard.signals)
            if self._is_preempted(trainer):
                raise SIGTERMException(0)
        self._first_step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._train_time_interval is not None:
            due = time.monotonic() - self._last_time >= self._train_time_interval.total_seconds()
            due = trainer.strategy.broadcast(due)
            if due:
                self._last_time = time.monotonic()
        else:
            due = self._every_n_train_steps > 0 and trainer.global_step % self._every_n_train_steps == 0
        loop = trainer.fit_loop
        # Rank 0 says so, for a validation may be due by the clock.
        self._awaits_validation = due and trainer.strategy.broadcast(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))
        if due and not self._awaits_validation:
            self._save(trainer)
        if self._guard is not None:
            validates = loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
            self._before_validation = rng().state_dict() if validates else None
            self._end_if_preempted(trainer)

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        if self._ranks is None and _preemption.is_in_validation(trainer):
            self._end_if_preempted(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        self._logged_by_now = True
        if self._awaits_validation:
            self._awaits_validation = False
            self._save(trainer)
        if not self._save_on_train_epoch_end:
            self._save_epoch(trainer)
        if self._ranks is None:
            self._end_if_preempted(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        at_end = self._save_on_train_epoch_end
        self._logged_by_now |= not trainer.enable_validation
        if not trainer.enable_validation if at_end is None else at_end:
            self._save_epoch(trainer)
        if self._is_preempted(trainer):
            _preemption.end_fit(trainer)
            # Lightning raises when the counters of the epoch have been increased, which it could not resume from.
            self._at_epoch_end = self._dump(trainer)

    def _is_preempted(self, trainer: Any) -> bool:
        """All ranks call it alike."""
        if self._guard is None or self._checkpointer is None:
            return False
        if trainer.received_sigterm and self._ranks is None:  # by another handler than the guard's
            self._guard.note()
        return self._guard.preempted_on_any_rank(self._checkpointer)

    def _end_if_preempted(self, trainer: Any) -> None:
        # Between two steps of the optimizer the gradients would be lost.
        if not trainer.fit_loop.epoch_loop._should_accumulate() and self._is_preempted(trainer):
            _preemption.end_fit(trainer)

    def _save_epoch(self, trainer: Any) -> None:
        if self._every_n_epochs and (trainer.current_epoch + 1) % self._every_n_epochs == 0:
            self._save(trainer)

    def _save(self, trainer: Any) -> None:
        step = trainer.global_step
        if self._checkpointer is None or step == self._saved_step:
            return
        self._saved_step = step
        first, self._saves = not self._saves, True
        with self._checkpointer._making(step):
            with together(self._ranks if first else None, "make the checkpoint"):
                # On all ranks, for both may tell other ranks something.
                checkpoint = self._dump(trainer)
                metrics = _metrics_of(trainer)
                if self._rank == 0 and self._logged_by_now and self._monitors_own and self._monitor not in metrics:
                    raise InvalidArgumentError(
                        f"monitor is '{self._monitor}', which is not logged before step {step} is saved, so no step could be the "
                        f"best. Logged are: {', '.join(metrics) or 'none'}. A metric of the training that Lightning knows at "
                        f"the end of an epoch needs save_on_train_epoch_end=True")
            state = self._state_of(trainer, checkpoint)
            if first:
                _dicts.check_same(self._ranks, state, self._shared)
        self._checkpointer.save(step, state, metrics=metrics, overwrite=True)
        if self._evaluator:
            self._evaluator.note(step)

    def _dump(self, trainer: Any) -> dict[str, Any]:
        checkpoint: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        return checkpoint

    def _state_of(self, trainer: Any, checkpoint: dict[str, Any], generators: Any = None) -> dict[str, Any]:
        """What this rank saves. generators: its own ones."""
        state = _dicts.state_of(checkpoint, REST, {name for name, _ in trainer.lightning_module.named_parameters()})
        if self._rank > 0:
            state = {name: part for name, part in state.items() if name in self._shared}
            state[f"rng.{self._rank}"] = generators or rng()
        if self._ranks is not None:
            _dicts.set_apart(state, self._shared)
        return state

    def _can_save_after(self, trainer: Any, exception: BaseException) -> bool:
        assert self._guard is not None
        if isinstance(exception, SIGTERMException):
            return self._ranks is None or self._guard.guard.has_agreed
        # The workers of a data loader have got the signal too, and the next batch has not come.
        progress = trainer.fit_loop.epoch_loop.batch_progress.current
        is_alone = self._guard.preempted and self._ranks is None and isinstance(exception, Exception)
        return (is_alone and self._first_step is not None and progress.ready == progress.completed
                and not trainer.fit_loop.epoch_loop._should_accumulate())

    def _save_last(self, trainer: Any, exception: BaseException) -> None:
        """After a signal; closes the checkpointer too."""
        checkpointer, guard, step = self._checkpointer, self._guard, trainer.global_step
        assert checkpointer is not None and guard is not None
        guard.note()
        if self._first_step is None or (step == self._first_step and not self._saves):
            logger.warning("preempted at step %d, before the fit has trained a step", step)
            close_owned(self, *guard.wait(checkpointer, 0.0))
            _preemption.set_code(exception, 0)
            return
        with checkpointer._making(step):
            generators = None
            checkpoint = self._at_epoch_end
            if checkpoint is None:
                checkpoint = self._dump(trainer)
                if _preemption.is_in_validation(trainer):
                    _restarts.begin_validation_again(checkpoint)
                    generators = self._before_validation
            for state in self._states_in(checkpoint) if generators is not None else []:
                state["rng"] = generators
            state = self._state_of(trainer, checkpoint, generators and _dicts._Rest(generators))
        report = guard.save_and_close(checkpointer, step, state, metrics=_metrics_of(trainer),
                                      overwrite=step != self._saved_step)
        self._checkpointer = None
        self._preempted = report
        if self._evaluator:
            self._evaluator.note(step)
        _preemption.set_code(exception, guard.exit_code(report))

    @property
    def _rank(self) -> int:
        return 0 if self._ranks is None else self._ranks.rank

    def state_dict(self) -> dict[str, Any]:
        # The Tuner reads what it has saved with weights_only=True, which knows no arrays of NumPy.
        return {} if self._is_tuned else {"rng": rng().state_dict()}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._rank > 0:  # its own, in place of rank 0's
            self._generators = checkpoint.get(_dicts.GENERATORS)
            return
        self._generators = next((state["rng"] for state in self._states_in(checkpoint)), None)

    def _states_in(self, checkpoint: dict[str, Any]) -> list[dict[str, Any]]:
        """What the callbacks of this class have in a checkpoint: all the same. Their keys differ from this one's if the store was
        moved."""
        kinds = tuple(f"{kind.__qualname__}{{" for kind in {type(self), TidemarkCheckpoint})
        return [state for key, state in checkpoint.get("callbacks", {}).items() if str(key).startswith(kinds)]

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        drain = self._evaluation.drain if self._evaluation else None
        guard = self._guard
        if guard is None:
            close_owned(self, drain)
            return
        exits = False
        try:
            if self._checkpointer is not None:
                close_owned(self, *guard.wait(self._checkpointer, drain))
            exits = True
        finally:
            self._end_guard(trainer, exits)
        if guard.preempted:
            raise SIGTERMException(0)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        ended_by = exception
        try:
            if self._checkpointer is not None and self._guard is not None and self._can_save_after(trainer, exception):
                self._save_last(trainer, exception)
        except BaseException as error:
            ended_by = error
            raise
        finally:
            try:
                close_owned_after(ended_by, self)
            finally:
                self._checkpointer = None
                self._end_guard(trainer, exits=isinstance(ended_by, SystemExit))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        # Of the hooks at the end, Lightning's Tuner calls this one alone: it ends each fit before `on_fit_start`.
        self._is_tuned = False
        self._end_guard(trainer)

    def _end_guard(self, trainer: Any, exits: bool = False) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            _preemption.end(trainer, guard, exits)


def _periods(steps: int | None, interval: datetime.timedelta | None, epochs: int | None) -> tuple[int, int]:
    """(every so many steps, every so many epochs); 0: not by it."""
    by_default = steps is None and interval is None and epochs is None
    given: dict[str, Any] = {"every_n_train_steps": integer(steps or 0, "every_n_train_steps"), "train_time_interval": interval,
                             "every_n_epochs": 1 if by_default else integer(epochs or 0, "every_n_epochs")}
    for name in ("every_n_train_steps", "every_n_epochs"):
        if given[name] < 0:
            raise InvalidArgumentError(f"{name} is {given[name]}, less than 0")
    if interval is not None and (not isinstance(interval, datetime.timedelta) or interval < datetime.timedelta()):
        raise InvalidArgumentError(f"train_time_interval is {interval!r}: expected a datetime.timedelta of 0 or more")
    chosen = [name for name, value in given.items() if value is not None and value != 0]
    if len(chosen) > 1:
        raise InvalidArgumentError(f"{' and '.join(chosen)} are given together: choose one of them")
    if not chosen:
        off = "every_n_train_steps" if epochs is None else "every_n_epochs"
        raise InvalidArgumentError(f"{off} is 0, so nothing would be saved: leave the callback out")
    return given["every_n_train_steps"], given["every_n_epochs"]


class _StepPaths(CheckpointIO):
    """Loads "tidemark://STEP@STORE", and leaves every other path to the CheckpointIO that was there before."""

    def __init__(self, inner: CheckpointIO, ranks: Ranks | None, progress: Progress) -> None:
        self._inner = inner
        self._ranks = ranks
        self._progress = progress

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        self._inner.save_checkpoint(checkpoint, path, storage_options)

    def load_checkpoint(self, path: Any, map_location: Any | None = None, weights_only: bool | None = None) -> dict[str, Any]:
        if str(path).startswith(SCHEME):
            store = self._inner._store if isinstance(self._inner, TidemarkCheckpointIO) else ""
            return load_step(str(path), store, self._ranks, self._progress)
        checkpoint: dict[str, Any] = self._inner.load_checkpoint(path, map_location=map_location, weights_only=weights_only)
        return checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        self._inner.remove_checkpoint(path)

    def teardown(self) -> None:
        self._inner.teardown()


def _ranks_of(trainer: Any, given: Ranks | Callable[[], Ranks] | None) -> Ranks | None:
    """Those of the Trainer's processes; None: it has one."""
    strategy = trainer.strategy
    if trainer.world_size > 1 and type(strategy).save_checkpoint is not Strategy.save_checkpoint:
        raise UnimplementedError(f"TidemarkCheckpoint does not save with several processes of a {type(strategy).__name__}, whose "
                                 f"checkpoints are not rank 0's alone. It does with DDP")
    return ranks_of_job(given, trainer.global_rank, trainer.world_size)


def _shared(trainer: Any) -> tuple[str, ...]:
    """The parts of the state that are the same on all ranks. Rank 0 alone saves the others, as it does for Lightning."""
    if not isinstance(trainer.strategy, DDPStrategy) or getattr(trainer.strategy, "_model_averager", None) is not None:
        return ()  # post-local SGD: models differ until they are averaged
    # One that shards its state gathers it on rank 0 (ZeroRedundancyOptimizer).
    whole = trainer.optimizers and not any(hasattr(optimizer, "consolidate_state_dict") for optimizer in trainer.optimizers)
    return ("model", _dicts.OPTIMIZERS) if whole else ("model",)


def _metrics_of(trainer: Any) -> dict[str, float]:
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _without_trainer(module: Any) -> Any:
    """The module as it can be copied: without the trainer that it refers to while it is trained."""
    import copy

    alone = copy.copy(module)
    alone._trainer = None
    return alone
