"""Hugging Face: a Trainer that saves beside the training and resumes from the store, and a callback that only saves.

    class MyTrainer(TidemarkTrainerMixin, transformers.Trainer):
        pass

    trainer = MyTrainer(model, arguments, train_dataset=data, store="run/ckpt")
    trainer.train(resume_from_checkpoint=True)

One step has the model ("model.NAME"), the optimizer, the scheduler, the generators of random numbers (`tidemark.rng`), the
Trainer's state and the configuration files. `export` makes a folder for from_pretrained of it. The processes of
a job (DDP) save each step together. Only tensors in host memory have been tried.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import transformers
from transformers.trainer_callback import ExportableState

from ._arguments import path, size
from ._checkpointer.checkpointer import Checkpointer, check_options, refused_by
from ._checkpointer.closing import close_earlier_training, close_owned, closed_at_end, opened_by_training
from ._checkpointer.futures import SaveHandle
from ._checkpointer.options import KeepBest, Retention
from ._checkpointer.progress import Progress, progress_function
from ._checkpointer.ranks import Ranks, of_rank_0, together
from ._evaluation import Evaluation, ModuleEvaluator, evaluation_or_none
from ._preemption.guard import PreemptionGuard, PreemptionReport
from ._state.rng import rng
from ._store.reader import open as open_step
from ._preemption.training import TrainingGuard, preemption_of
from ._transformers_steps import bare, export, files_of, generators, is_rank_0, metrics_of, ranks_of
from .errors import InvalidArgumentError, NotFoundError, UnimplementedError

__all__ = ["Evaluation", "TidemarkCallback", "TidemarkTrainerMixin", "export"]

_SCHEME = "tidemark:"
_WAYS_OUT = ("Resume with train(resume_from_checkpoint=True), or use another store. To go back for good, call "
             "Checkpointer.discard_after before")


class TidemarkTrainerMixin:
    """To be put before transformers.Trainer among the bases of a class. Saves and resumes as `args` say, in a store.

    store: its folder; the default is "tidemark" in args.output_dir. evaluation: saved steps are evaluated beside the
    training. checkpointer_options: those of Checkpointer. args.save_total_limit and args.metric_for_best_model become the
    rules of retention, unless checkpointer_options has its own. progress: of each restore of a training, as for
    `Checkpointer.restore`, on rank 0; a resumed training restores its parts one after the other. None: a line on stderr unless
    args.disable_tqdm.

    A save returns when the state is copied. What fails later is raised at the end of train(), which waits for the saves.

    Several processes (DDP) save each step together, and all of them call train() alike. Model, optimizer, scheduler and scaler
    are the same in all of them and are written once; buffers, the Trainer's state and the metrics are rank 0's; the generators
    are each rank's own. Another number of processes may resume; one that the step has no generators of keeps those that it has.
    The evaluation runs on rank 0 alone. `ranks`: None: the ranks of torch.distributed, if there are several processes. Its
    `replicated` is not used.

    preemption: True: SIGTERM ends a training with one last save, within 30 seconds; or a PreemptionGuard, for other signals and
    another time. The training ends after a step of the optimizer, on all processes after the same one; an evaluation by the
    Trainer is cut short, and not made again. Callbacks are told of the end as usual. Then train() raises SystemExit, with the
    code 0 if the step is committed, else 1. The second signal changes nothing. InvalidArgumentError: `preemption` together with
    args.enable_jit_checkpoint.
    """

    def __init__(self, *args: Any, store: str | os.PathLike[str] | None = None, evaluation: Evaluation | None = None,
                 checkpointer_options: dict[str, Any] | None = None, ranks: Ranks | Callable[[], Ranks] | None = None,
                 preemption: bool | PreemptionGuard = False, progress: Progress | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        self._preemption = preemption_of(preemption)
        self._guard: TrainingGuard | None = None  # of the training that goes on
        self._preempted: PreemptionReport | None = None
        self._is_ending = False  # by a signal
        self._is_between_steps = False  # of the optimizer
        self._is_at_epoch_end = False
        self._saved_step: int | None = None  # if the generators are as they were then
        self._logs_and_saves = False  # the Trainer may evaluate meanwhile
        if self._preemption:
            if getattr(trainer.args, "enable_jit_checkpoint", False):
                raise InvalidArgumentError("enable_jit_checkpoint and preemption both save after SIGTERM: choose preemption, "
                                           "which saves between two steps of the optimizer")
            trainer.add_callback(_EndIfPreempted(self))
        self.store = os.path.abspath(os.path.join(trainer.args.output_dir, "tidemark") if store is None else path(store, "store"))
        self._evaluation = evaluation_or_none(evaluation)
        self._options = dict(checkpointer_options or {})
        check_options("checkpointer_options", self._options, refused_by(
            "Transformers", when="use args.save_strategy and args.save_steps", ranks="give ranks= to the Trainer itself"))
        progress_function(progress)
        self._progress = progress
        self._given_ranks = ranks
        self._ranks: Ranks | None = None  # of the training that goes on
        self._checkpointer: Checkpointer | None = None
        self._evaluator: ModuleEvaluator | None = None
        self._resumed: tuple[str, int] | None = None  # the folder that stands for a step, and the step
        self._files: dict[str, bytes] | None = None

    @property
    def skipped_evaluations(self) -> list[tuple[int, str]]:
        """[(step, reason)] of the steps of this training whose evaluation was skipped or has failed, by their records."""
        return self._evaluator.left_out() if self._evaluator else []

    @property
    def preempted(self) -> PreemptionReport | None:
        """What the last save did, if a signal has ended the latest training. None: no signal has, or nothing was to be saved."""
        return self._preempted

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As Trainer.train. True resumes the latest step of the store, and begins afresh if there is none. "tidemark:STEP"
        resumes another one: "tidemark:40", "tidemark:best:eval_loss". A folder is one of Transformers.

        UnimplementedError: the model is sharded. InvalidArgumentError: the store has a step, and the training does not resume
        one; `ranks` are not those of the Trainer; or there are several processes and args.enable_jit_checkpoint.
        AlreadyHeldError: another process has the store. FailedPreconditionError, with `preemption=True`: this is not the main
        thread, which alone notes signals. With several processes an error of one rank before the training is an AbortedError on
        the others. SystemExit: a signal has ended the training; see `preemption` and `preempted`.
        """
        self._preempted, self._is_ending, self._is_between_steps, self._saved_step = None, False, False, None
        if not self._preemption:
            return self._train(resume_from_checkpoint, *args, **kwargs)
        guard = self._guard = TrainingGuard(self._preemption)
        exits = False
        try:
            output = self._train(resume_from_checkpoint, *args, **kwargs)
            exits = True
        except SystemExit:
            exits = True
            raise
        finally:
            self._guard = None
            guard.end(exits)
        if guard.preempted:
            raise SystemExit(guard.exit_code(self._preempted))
        return output

    def _train(self, resume_from_checkpoint: str | bool | None, *args: Any, **kwargs: Any) -> Any:
        self._refuse_what_cannot_be_saved()
        trainer: Any = self
        parts = ["model"] if trainer.args.save_only_model else [
            "model", "optimizer", "scheduler", *(["scaler"] if getattr(trainer.accelerator, "scaler", None) else [])]
        self._ranks = ranks_of(trainer.args, self._given_ranks, parts)
        if self._ranks is not None and getattr(trainer.args, "enable_jit_checkpoint", False):
            raise InvalidArgumentError("enable_jit_checkpoint has each process save at a step of its own, and the processes of a "
                                       "job save each step together: leave it out")
        close_earlier_training(self.store)
        checkpointer = Checkpointer(self.store, ranks=self._ranks, **self._checkpointer_options())
        with closed_at_end(checkpointer) as closing:
            self._checkpointer = checkpointer
            folder = None
            try:
                if resume_from_checkpoint is True or str(resume_from_checkpoint).startswith(_SCHEME):
                    step = "latest" if resume_from_checkpoint is True else str(resume_from_checkpoint)[len(_SCHEME):]
                    folder = self._stand_in(step, fresh=resume_from_checkpoint is True)
                    resume_from_checkpoint = folder
                with together(self._ranks, "add the evaluators"):
                    if self._evaluation and is_rank_0(self._ranks):
                        self._evaluator = ModuleEvaluator(checkpointer, self._evaluation, trainer.model)
                if self._resumed or not resume_from_checkpoint:
                    with together(self._ranks, "begin the training"):
                        if is_rank_0(self._ranks):
                            checkpointer._begins_at(self._resumed[1] if self._resumed else 0, _WAYS_OUT,
                                                    chosen=self._resumed is not None)
                if self._is_preempted():
                    return None
                output = super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]
            except Exception:
                # The workers of a data loader have got the signal too, and the next batch has not come.
                if self._guard and self._guard.preempted and self._is_between_steps and self._ranks is None:
                    self._save_last()
                raise
            finally:
                self._checkpointer = None
                self._resumed = None
                if folder:
                    shutil.rmtree(folder, ignore_errors=True)
            drain = self._evaluation.drain if self._evaluation else None
            if self._guard is None or self._preempted is not None:
                close_owned(closing, drain)
            else:
                close_owned(closing, *self._guard.wait(checkpointer, drain))
            return output

    def _refuse_what_cannot_be_saved(self) -> None:
        trainer: Any = self
        for what in ("is_deepspeed_enabled", "is_fsdp_enabled"):
            if getattr(trainer, what, False):
                raise UnimplementedError(f"TidemarkTrainerMixin does not save sharded models ({what})")
        if trainer.args.push_to_hub:
            raise InvalidArgumentError("push_to_hub uploads folders, and a store has none: use tidemark.transformers.export")

    def _checkpointer_options(self) -> dict[str, Any]:
        trainer: Any = self
        options = dict(self._options)
        if "retention" not in options and trainer.args.save_total_limit:
            best = []
            if trainer.args.metric_for_best_model:
                metric = trainer.args.metric_for_best_model
                metric = metric if metric.startswith("eval_") else f"eval_{metric}"
                best = [KeepBest(metric, "highest" if trainer.args.greater_is_better else "lowest")]
            options["retention"] = Retention(max_to_keep=trainer.args.save_total_limit, keep_best=best)
        return options

    def _stand_in(self, selector: str, *, fresh: bool) -> str | None:
        """A folder with the trainer_state.json of a step, which Trainer.train asks for. None: begin afresh."""
        number, state = json.loads(of_rank_0(self._ranks, lambda: json.dumps(self._chosen(selector, fresh))))
        if number is None:
            return None
        folder = None
        try:
            with together(self._ranks, "write a trainer_state.json"):
                folder = tempfile.mkdtemp(prefix="tidemark-resume-")
                with open(os.path.join(folder, "trainer_state.json"), "w", encoding="utf-8") as file:
                    file.write(state)
        except BaseException:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        self._resumed = (folder, number)
        return folder

    def _chosen(self, selector: str, fresh: bool) -> tuple[int | None, str]:
        """The number of the step and its trainer_state.json. None: there is no step, and `fresh` says to begin afresh then."""
        try:
            with open_step(self.store, selector) as step:
                if "trainer_state" not in step.value_keys():
                    raise InvalidArgumentError(f"step {step.info.step} of {self.store} was not saved by "
                                               f"tidemark.transformers")
                return step.info.step, step.get_value("trainer_state")
        except NotFoundError:
            if fresh:
                return None, ""
            raise

    def _parts(self) -> dict[str, Any]:
        """What a resumed training needs, by the names of the entries."""
        trainer: Any = self
        scaler = getattr(trainer.accelerator, "scaler", None)
        parts = {"model": trainer.model, "optimizer": bare(trainer.optimizer, "optimizer"),
                 "scheduler": bare(trainer.lr_scheduler, "scheduler"), "scaler": scaler, generators(self._ranks): rng()}
        if trainer.args.save_only_model:
            return {"model": trainer.model}
        return {name: part for name, part in parts.items() if part is not None}

    def _is_preempted(self) -> bool:
        """All ranks call it alike."""
        return (self._guard is not None and self._checkpointer is not None
                and self._guard.preempted_on_any_rank(self._checkpointer))

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """At the end of a step, and of an epoch."""
        trainer: Any = self
        self._logs_and_saves = True
        try:
            super()._maybe_log_save_evaluate(*args, **kwargs)  # type: ignore[misc]
        except _EvaluationEnded:
            self._is_ending = trainer.control.should_training_stop = True
        finally:
            self._logs_and_saves = False
        if self._is_ending and (self._is_at_epoch_end or trainer.state.epoch % 1 != 0):
            self._save_last()

    def _save_last(self) -> None:
        """After a signal; closes the checkpointer too."""
        trainer: Any = self
        if self._preempted is not None:
            return
        assert self._guard is not None and self._checkpointer is not None
        step = trainer.state.global_step
        self._preempted = self._guard.save_and_close(self._checkpointer, step, self._state_of_step(None),
                                                     metrics=metrics_of(trainer.state), overwrite=step != self._saved_step)
        if self._evaluator:
            self._evaluator.note(step)

    def _save_checkpoint(self, model: Any, trial: Any, *_: Any, **__: Any) -> None:
        trainer: Any = self
        if self._checkpointer is None:
            raise InvalidArgumentError("nothing is saved outside of train()")
        if self._preempted is not None:
            return  # all is saved
        step = trainer.state.global_step
        self._checkpointer.save(step, self._state_of_step(trial), metrics=metrics_of(trainer.state), overwrite=True)
        self._saved_step = step
        if self._evaluator:
            self._evaluator.note(step)

    def _state_of_step(self, trial: Any) -> dict[str, Any]:
        """What this rank saves."""
        trainer: Any = self
        assert self._checkpointer is not None
        if trainer.hp_search_backend is None and trial is None:
            trainer.store_flos()
        step = trainer.state.global_step
        if trainer.state.best_global_step:
            trainer.state.best_model_checkpoint = self.store
        with self._checkpointer._making(step):
            for callback in [*trainer.callback_handler.callbacks, trainer.control]:
                if isinstance(callback, ExportableState):
                    stored = trainer.state.stateful_callbacks
                    name = type(callback).__name__
                    if isinstance(stored.get(name), list):
                        stored[name].append(callback.state())
                    else:
                        stored[name] = callback.state()
            state = self._parts()
            if is_rank_0(self._ranks):
                if self._files is None:
                    self._files = files_of(trainer.model, trainer.processing_class)
                state |= {"trainer_state": json.dumps(dataclasses.asdict(trainer.state)), **self._files}
        return state

    def _is_step(self, checkpoint: str | None) -> bool:
        return self._resumed is not None and checkpoint == self._resumed[0]

    def _fill(self, *names: str, allow_missing: bool = False) -> None:
        """Restores parts of the resumed step in place."""
        assert self._checkpointer is not None and self._resumed is not None
        parts = self._parts()
        chosen = {name: parts[name] for name in names if name in parts}
        if chosen:
            self._checkpointer.restore(chosen, self._resumed[1], allow_unexpected=True, allow_missing=allow_missing,
                                       progress=self._progress_here())

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._is_step(resume_from_checkpoint):
            self._fill_model(self._resumed[1])  # type: ignore[index]
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]

    def _fill_model(self, step: int) -> None:
        trainer: Any = self
        assert self._checkpointer is not None
        self._checkpointer.restore({"model": trainer.model}, step, only=["model.*"], progress=self._progress_here())

    def _progress_here(self) -> Progress:
        trainer: Any = self
        if not is_rank_0(self._ranks):
            return False
        return not trainer.args.disable_tqdm if self._progress is None else self._progress

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self._is_step(checkpoint):
            self._fill("model", "optimizer", "scheduler")  # the model has the names of the optimizer's parameters
        else:
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]

    def _load_scaler(self, checkpoint: str | None) -> None:
        if self._is_step(checkpoint):
            self._fill("scaler")
        else:
            super()._load_scaler(checkpoint)  # type: ignore[misc]

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if self._is_step(checkpoint):
            # Of more ranks than the step has, some have no generators there.
            self._fill(generators(self._ranks), allow_missing=self._ranks is not None)
        else:
            super()._load_rng_state(checkpoint)  # type: ignore[misc]

    def _load_best_model(self) -> None:
        trainer: Any = self
        if trainer.state.best_model_checkpoint != self.store:
            super()._load_best_model()  # type: ignore[misc]
            return
        assert self._checkpointer is not None
        if self._is_ending:
            return
        with together(self._ranks, "wait for the saves"):
            self._checkpointer.wait_until_committed()
        self._fill_model(trainer.state.best_global_step)


class _EvaluationEnded(BaseException):
    """A signal has come in an evaluation by the Trainer."""


class _EndIfPreempted(transformers.TrainerCallback):
    """A callback of a Trainer with `preemption`. Those that are added later are called after it."""

    def __init__(self, trainer: TidemarkTrainerMixin) -> None:
        self._alive = weakref.ref(trainer)  # which refers to this callback

    @property
    def _trainer(self) -> TidemarkTrainerMixin:
        trainer = self._alive()
        assert trainer is not None  # it trains
        return trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer._is_at_epoch_end = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer._is_between_steps = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer._is_between_steps = True
        if self._trainer._is_preempted():
            self._trainer._is_ending = control.should_training_stop = True

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._trainer._logs_and_saves:
            self._trainer._saved_step = None  # the data loader has drawn a random number
            if self._trainer._is_preempted():
                raise _EvaluationEnded

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer._is_at_epoch_end = True
        if self._trainer._preempted is not None:
            control.should_log = control.should_evaluate = control.should_save = False
        elif self._trainer._is_preempted():
            self._trainer._is_ending = control.should_training_stop = True


class TidemarkCallback(transformers.TrainerCallback):
    """Saves model, optimizer, scheduler and generators into a store beside what the Trainer does itself.

    every_steps: after so many steps; 0: whenever the Trainer saves. evaluation: saved steps are evaluated beside the
    training. `options` are those of Checkpointer. A Trainer cannot be resumed by a callback: use TidemarkTrainerMixin.

    Transformers does not tell callbacks of an exception that ends train(). The store then stays open until `close`, until the
    next training with the store in this process, or until the process ends. In a notebook call `close`.

    Several processes save as with TidemarkTrainerMixin, which also says what `ranks` are. The training raises
    UnimplementedError: the model is sharded; InvalidArgumentError: `ranks` are not those of the Trainer; and AlreadyHeldError:
    another process has the store.
    """

    def __init__(self, store: str | os.PathLike[str], *, every_steps: int = 0, evaluation: Evaluation | None = None,
                 ranks: Ranks | Callable[[], Ranks] | None = None, **options: Any) -> None:
        self.store = os.path.abspath(path(store, "store"))
        self._every_steps = size(every_steps, "every_steps")
        self._evaluation = evaluation_or_none(evaluation)
        check_options("TidemarkCallback", options, refused_by("Transformers", when="use every_steps, or args.save_steps"))
        self._options = options
        self._given_ranks = ranks
        self._ranks: Ranks | None = None  # of the training that goes on
        self._checkpointer: Checkpointer | None = None
        self._evaluator: ModuleEvaluator | None = None

    @property
    def skipped_evaluations(self) -> list[tuple[int, str]]:
        """[(step, reason)] of the steps of this training whose evaluation was skipped or has failed, by their records."""
        return self._evaluator.left_out() if self._evaluator else []

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        close_earlier_training(self.store)
        self._ranks = ranks_of(args, self._given_ranks, ("model", "optimizer", "scheduler"))
        self._checkpointer = Checkpointer(self.store, ranks=self._ranks, **self._options)
        opened_by_training(self._checkpointer)
        if is_rank_0(self._ranks):
            # It may resume a folder of Transformers that is older.
            self._checkpointer._begins_at(state.global_step, _WAYS_OUT, chosen=True)
        with together(self._ranks, "add the evaluators"):
            if self._evaluation and is_rank_0(self._ranks):
                self._evaluator = ModuleEvaluator(self._checkpointer, self._evaluation, model)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._every_steps and state.global_step % self._every_steps == 0:
            self._save(state, **kwargs)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._every_steps:
            self._save(state, **kwargs)

    def _save(self, state: Any, *, model: Any, optimizer: Any = None, lr_scheduler: Any = None, **_: Any) -> SaveHandle:
        assert self._checkpointer is not None
        with self._checkpointer._making(state.global_step):
            parts = {"model": model, "optimizer": bare(optimizer, "optimizer"),
                     "scheduler": bare(lr_scheduler, "scheduler"), generators(self._ranks): rng(),
                     "trainer_state": json.dumps(dataclasses.asdict(state)) if is_rank_0(self._ranks) else None}
        save = self._checkpointer.save(state.global_step, {name: part for name, part in parts.items() if part is not None},
                                       metrics=metrics_of(state), overwrite=True)
        if self._evaluator:
            self._evaluator.note(state.global_step)
        return save

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        close_owned(self, self._evaluation.drain if self._evaluation else None)

    def close(self) -> None:
        """After an exception in train(): commits the saves in flight, gives up evaluations, and releases the store. Raises the
        first failure that was not seen yet. After a training that has ended it does nothing."""
        close_owned(self, 0.0)
