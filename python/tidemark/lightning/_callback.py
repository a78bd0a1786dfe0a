"""The callback that saves beside the training."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import Strategy

from .._arguments import flag, integer, path, text_or_none
from .._checkpointer.given_options import check_options, refused_by
from .._checkpointer.options import KeepBest, Retention
from .._checkpointer.progress import Progress, progress_function
from .._checkpointer.ranks import Ranks, ranks_of_job
from .._evaluation import ModuleEvaluation, ModuleEvaluator, evaluation_or_none
from .._preemption.guard import PreemptionGuard, PreemptionReport
from .._preemption.training import TrainingGuard, preemption_of
from .._state.rng import rng
from .._store.reader import open as open_step
from ..errors import InvalidArgumentError, NotFoundError, UnimplementedError
from . import _preemption
from ._checkpoint_io import TidemarkCheckpointIO
from ._fit import Fit
from ._step_urls import SCHEME, load_step, url_of

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


_KEY = "TidemarkCheckpoint"  # what the keys of the callbacks' states begin with in a checkpoint


class TidemarkCheckpoint(Checkpoint):
    """Saves the whole training into the store at `store` and keeps the latest step and the best ones.

    every_n_train_steps, train_time_interval, every_n_epochs: when to save, one of them; by default after each epoch. A step that
    a validation follows at once is saved after it, with its metrics. Epochs are saved after each validation, or at their end
    without one. save_on_train_epoch_end: True: always at their end, where the metrics of the training are known; False: after
    validations only. By time, a save waits for the step of the optimizer if gradients are accumulated; an epoch that is saved
    after a validation amid them is saved without them, as by ModelCheckpoint. With `fast_dev_run` nothing is saved.
    monitor: a metric that is logged; the `save_top_k` best steps by it are kept beside the latest one, with -1 all steps.
    None: the latest step is kept, with save_top_k=-1 all. mode: "min" or "max" is best. evaluation: saved steps are evaluated
    beside the training; monitor="validation/loss" then keeps the best by what it found. progress: when the Trainer reads a step
    of `ckpt_path`, as for `Checkpointer.restore`, after each tensor and on rank 0. None: a line on stderr if the Trainer has a
    progress bar. `options` are those of Checkpointer; `retention` replaces the rule of the above. InvalidArgumentError: an
    argument of ModelCheckpoint has no meaning here; the message says what to use instead.

    preemption: True: SIGTERM ends a fit with one last save, within 30 seconds; or a PreemptionGuard, for other signals and
    another time. The fit ends with Lightning's SIGTERMException, a SystemExit: the process exits with 0 if the step is committed,
    else with 1. It ends after a step of the optimizer, or in the middle of a validation. The resumed fit runs that again, and
    gives the step its metrics, by saving it again; until then it has none. Several processes end after the same step, or in a
    validation that follows it. The second signal changes nothing.

    A save returns when the state is copied. What fails later is raised by the next save, or at the end of the fit; with several
    processes only there, as they learn of it at different times. The checkpoint has the generators of random numbers too, as
    `tidemark.rng`; they are put back when the training begins.

    Several processes (DDP) save each step together. What is the same in all of them is written once: the parameters and the
    states of the optimizers. Everything else is rank 0's, but each rank has its own generators. So are the metrics, and the
    evaluation, which runs there alone. Another number of processes may resume; one that the step has no generators of
    keeps those that it has. `ranks`: None: the ranks of torch.distributed; else a Ranks, or a function that returns one when
    the process group is there: `lambda: Ranks.of_torch(vote_timeout=60)`. Its `replicated` is not used.

    UnimplementedError, by a fit or another run: the strategy saves in a way of its own, as FSDP and DeepSpeed do.
    InvalidArgumentError: the store has a later step than that at which the fit begins, without a `ckpt_path`; `ckpt_path` is
    "last", which Lightning looks for in its own callbacks alone; `ranks` are not those of the Trainer; `when_full` is "skip" with
    several processes, for one without room would skip a save that the others make; at a save after a validation, or after an
    epoch without one: the model has not logged `monitor`; at the first save: a hook has changed the checkpoint on one rank in
    another way. AbortedError: another rank could not load or save. FailedPreconditionError, by a fit
    with `preemption=True`: this is not the main thread, which alone notes signals.
    """

    def __init__(self, store: str | os.PathLike[str], *, monitor: str | None = None, mode: Literal["min", "max"] = "min",
                 save_top_k: int = 1, every_n_train_steps: int | None = None,
                 train_time_interval: datetime.timedelta | None = None, every_n_epochs: int | None = None,
                 save_on_train_epoch_end: bool | None = None, evaluation: ModuleEvaluation | None = None,
                 preemption: bool | PreemptionGuard = False, ranks: Ranks | Callable[[], Ranks] | None = None,
                 progress: Progress | None = None, **options: Any) -> None:
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
        self._must_be_logged = "" if awaited else monitor  # by the model
        options.setdefault("retention", Retention() if kept == -1 else Retention(
            max_to_keep=1, keep_best=best, keep_unevaluated_until=awaited))
        self.store = os.path.abspath(path(store, "store"))
        check_options("TidemarkCheckpoint", options, _INSTEAD, own=TidemarkCheckpoint.__init__)
        self._options = options
        self._every_n_train_steps, self._every_n_epochs = _periods(every_n_train_steps, train_time_interval, every_n_epochs)
        self._train_time_interval = train_time_interval
        self._save_on_train_epoch_end = save_on_train_epoch_end
        self._evaluation = evaluation
        progress_function(progress)
        self._progress = progress
        self._preemption = preemption_of(preemption)
        self._given_ranks = ranks
        self._monitor = monitor
        self._fit: Fit | None = None  # that goes on
        self._preempted: PreemptionReport | None = None
        self._evaluator: ModuleEvaluator | None = None  # of the latest fit

    @property
    def resume_path(self) -> str | None:
        """The latest step, for `ckpt_path` of Trainer.fit; None: there is none, a fresh run. Errors: those of tidemark.open."""
        return url_of(self.store, "latest") or None

    @property
    def best_model_path(self) -> str:
        """The best step by `monitor` and `mode`, or without `monitor` the latest, for ckpt_path and
        LightningModule.load_from_checkpoint. "": there is none. Errors: those of tidemark.open."""
        return url_of(self.store, self._best_step)

    @property
    def _best_step(self) -> str:
        return f"best:{self._monitor}:{self._best}" if self._monitor else "latest"

    @property
    def best_model_score(self) -> torch.Tensor | None:
        """`monitor` of the best step, a scalar. None: there is none, or no `monitor`. Errors: those of tidemark.open."""
        try:
            with open_step(self.store, self._best_step) as step:
                return torch.tensor(step.info.metrics[self._monitor]) if self._monitor else None
        except NotFoundError:
            return None

    @property
    def last_model_path(self) -> str:
        """`resume_path`. "": there is no step."""
        return self.resume_path or ""

    @property
    def state_key(self) -> str:
        # Of the callbacks of a Trainer each has a store of its own. A fit may go on with another subclass.
        return f"{_KEY}{{'store': {self.store!r}}}"

    @property
    def skipped_evaluations(self) -> list[tuple[int, str]]:
        """[(step, reason)] of the steps of this fit whose evaluation was skipped or has failed, by their records."""
        return self._evaluator.left_out() if self._evaluator else []

    @property
    def preempted(self) -> PreemptionReport | None:
        """What the last save did, if a signal has ended the latest fit. None: no signal has, or it had trained nothing yet."""
        return self._preempted

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        ranks = _ranks_of(trainer, self._given_ranks)
        bar = trainer.progress_bar_callback
        progress = getattr(bar, "is_enabled", bar is not None) if self._progress is None else self._progress
        trainer.strategy.checkpoint_io = _StepPaths(trainer.strategy.checkpoint_io, ranks, progress)
        if stage != "fit":
            return
        self._drop_fit()
        # Lightning has taken "last", found nothing, and warned.
        if trainer.ckpt_path is None and getattr(trainer._checkpoint_connector, "_user_managed", False):
            if self.resume_path is not None:
                raise InvalidArgumentError('ckpt_path="last" does not find the steps of TidemarkCheckpoint: give '
                                           "ckpt_path=callback.resume_path")
        self._preempted = None
        guard = TrainingGuard(self._preemption) if self._preemption and not trainer.fast_dev_run else None
        self._fit = Fit(trainer, ranks, guard, f"{_KEY}{{", self._must_be_logged)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None and not trainer.fast_dev_run:
            self._fit.open(self.store, self._options, self._evaluation, pl_module)
            self._evaluator = self._fit.evaluator

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.take_signals()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.last_time = time.monotonic()
            self._fit.begin(saves_epochs=bool(self._save_on_train_epoch_end) and self._is_epoch_due(trainer))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._fit is None:
            return
        if self._train_time_interval is not None:
            due = time.monotonic() - self._fit.last_time >= self._train_time_interval.total_seconds()
            due = trainer.strategy.broadcast(due) and self._fit.has_no_gradients
            if due:
                self._fit.last_time = time.monotonic()
        else:
            due = self._every_n_train_steps > 0 and trainer.global_step % self._every_n_train_steps == 0
        self._fit.end_batch(due)

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        if self._fit is not None and _preemption.is_in_validation(trainer):
            self._fit.end_validation_batch()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None and _preemption.is_in_validation(trainer):
            self._fit.end_validation(not self._save_on_train_epoch_end and self._is_epoch_due(trainer))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            at_end = self._save_on_train_epoch_end
            at_end = not trainer.enable_validation if at_end is None else at_end
            self._fit.end_epoch(at_end and self._is_epoch_due(trainer))

    def _is_epoch_due(self, trainer: Any) -> bool:
        return self._every_n_epochs > 0 and (trainer.current_epoch + 1) % self._every_n_epochs == 0

    def state_dict(self) -> dict[str, Any]:
        return {"rng": rng().state_dict()} if self._fit is None else self._fit.state()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._fit is not None:
            self._fit.resume_from(checkpoint)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.close()
            self._fit = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._fit is not None:
            try:
                self._fit.close_after(exception)
            finally:
                self._preempted, self._fit = self._fit.preempted, None

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        # Of the hooks at the end, Lightning's Tuner calls this one alone: it ends each fit before `on_fit_start`.
        if stage == "fit":
            self._drop_fit()

    def _drop_fit(self) -> None:
        fit, self._fit = self._fit, None
        if fit is not None:
            fit.end()


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
    """Loads "tidemark://STEP@STORE", and leaves every other path to the CheckpointIO that was there before. If that is the one of
    another callback, `progress` is told that asks for it, first a function."""

    def __init__(self, before: CheckpointIO, ranks: Ranks | None, progress: Progress) -> None:
        self._inner = before
        self._ranks = ranks
        self._progress = progress
        if isinstance(before, _StepPaths):
            self._inner = before._inner
            self._progress = max(progress, before._progress, key=lambda one: (callable(one), bool(one)))

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
