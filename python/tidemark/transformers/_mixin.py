"""A Trainer that saves beside the training and resumes from the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import transformers

from .._arguments import path
from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.closing import close_earlier_training, close_owned, closed_at_end
from .._checkpointer.given_options import check_options, check_options_of_ranks, refused_by
from .._checkpointer.options import KeepBest, Retention
from .._checkpointer.progress import Progress, progress_function
from .._checkpointer.ranks import Ranks, together
from .._evaluation import ModuleEvaluation, ModuleEvaluator, evaluation_or_none
from .._preemption.guard import PreemptionGuard, PreemptionReport
from .._preemption.training import TrainingGuard, preemption_of
from ..errors import InvalidArgumentError, UnimplementedError
from ._steps import WAYS_OUT, generators, is_rank_0, ranks_of
from ._training import TellTraining, Training

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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """InvalidArgumentError: a Trainer is before the mixin among the bases, so its methods would be called instead."""
        super().__init_subclass__(**kwargs)
        order = cls.__mro__
        if transformers.Trainer in order and order.index(transformers.Trainer) < order.index(TidemarkTrainerMixin):
            bases = sorted(cls.__bases__, key=lambda base: not issubclass(base, TidemarkTrainerMixin))
            names = ", ".join(base.__name__ for base in bases)
            raise InvalidArgumentError(f"{cls.__name__} would save nothing in a store, for TidemarkTrainerMixin is not before "
                                       f"the Trainer: write class {cls.__name__}({names})")

    def __init__(self, *args: Any, store: str | os.PathLike[str] | None = None, evaluation: ModuleEvaluation | None = None,
                 checkpointer_options: dict[str, Any] | None = None, ranks: Ranks | Callable[[], Ranks] | None = None,
                 preemption: bool | PreemptionGuard = False, progress: Progress | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        self._training: Training | None = None  # that goes on
        self._preempted: PreemptionReport | None = None  # of the latest one
        self._evaluator: ModuleEvaluator | None = None  # the same
        self._preemption = preemption_of(preemption)
        if self._preemption:
            if getattr(trainer.args, "enable_jit_checkpoint", False):
                raise InvalidArgumentError("enable_jit_checkpoint and preemption both save after SIGTERM: choose preemption, "
                                           "which saves between two steps of the optimizer")
            trainer.add_callback(TellTraining(self))
        self.store = os.path.abspath(os.path.join(trainer.args.output_dir, "tidemark") if store is None else path(store, "store"))
        self._evaluation = evaluation_or_none(evaluation)
        self._options = dict(checkpointer_options or {})
        check_options("checkpointer_options", self._options, refused_by(
            "Transformers", when="use args.save_strategy and args.save_steps", ranks="give ranks= to the Trainer itself"))
        progress_function(progress)
        self._progress = progress
        self._ranks = ranks

    @property
    def skipped_evaluations(self) -> list[tuple[int, str]]:
        """[(step, reason)] of the steps of this training whose evaluation was skipped or has failed, by their records."""
        return self._evaluator.left_out() if self._evaluator else []

    @property
    def preempted(self) -> PreemptionReport | None:
        """What the last save did, if a signal has ended the latest training. None: no signal has, or nothing was to be saved."""
        return self._preempted if self._training is None else self._training.preempted

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As Trainer.train. True resumes the latest step of the store, and begins afresh if there is none. "tidemark:STEP"
        resumes another one: "tidemark:40", "tidemark:best:eval_loss". A folder is one of Transformers.

        UnimplementedError: the model is sharded. InvalidArgumentError: the store has a step, and the training does not resume
        one; `ranks` are not those of the Trainer; or there are several processes, and args.enable_jit_checkpoint or
        when_full="skip".
        AlreadyHeldError: another process has the store. FailedPreconditionError, with `preemption=True`: this is not the main
        thread, which alone notes signals. With several processes an error of one rank before the training is an AbortedError on
        the others. SystemExit: a signal has ended the training; see `preemption` and `preempted`.
        """
        self._preempted = None
        if not self._preemption:
            return self._train(None, resume_from_checkpoint, *args, **kwargs)
        guard = TrainingGuard(self._preemption)
        exits = False
        try:
            output = self._train(guard, resume_from_checkpoint, *args, **kwargs)
            exits = True
        except SystemExit:
            exits = True
            raise
        finally:
            guard.end(exits)
        if guard.preempted:
            raise SystemExit(guard.exit_code(self._preempted))
        return output

    def _train(self, guard: TrainingGuard | None, resume_from_checkpoint: str | bool | None, *args: Any, **kwargs: Any) -> Any:
        self._refuse_what_cannot_be_saved()
        trainer: Any = self
        parts = ["model"] if trainer.args.save_only_model else [
            "model", "optimizer", "scheduler", *(["scaler"] if getattr(trainer.accelerator, "scaler", None) else [])]
        ranks = ranks_of(trainer.args, self._ranks, parts)
        if ranks is not None and getattr(trainer.args, "enable_jit_checkpoint", False):
            raise InvalidArgumentError("enable_jit_checkpoint has each process save at a step of its own, and the processes of a "
                                       "job save each step together: leave it out")
        check_options_of_ranks("checkpointer_options", self._options, ranks)
        close_earlier_training(self.store)
        checkpointer = Checkpointer(self.store, ranks=ranks, **self._checkpointer_options())
        with closed_at_end(checkpointer) as closing:
            progress = not trainer.args.disable_tqdm if self._progress is None else self._progress
            training = self._training = Training(self, checkpointer, ranks, guard, progress)
            try:
                folder = training.stand_in(resume_from_checkpoint)
                training.add_evaluator(self._evaluation)
                self._evaluator = training.evaluator
                if training.resumed is not None or not folder:
                    with together(ranks, "begin the training"):
                        if is_rank_0(ranks):
                            checkpointer._begins_at(training.resumed or 0, WAYS_OUT, chosen=training.resumed is not None)
                if training.is_preempted():
                    return None
                output = super().train(folder, *args, **kwargs)  # type: ignore[misc]
            except Exception:
                training.save_after_error()
                raise
            finally:
                self._preempted, self._training = training.preempted, None
                training.remove_stand_in()
            drain = self._evaluation.drain if self._evaluation else None
            if guard is None or self._preempted is not None:
                close_owned(closing, drain)
            else:
                close_owned(closing, *guard.wait(checkpointer, drain))
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

    # Called by the Trainer.

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        inner = super()._maybe_log_save_evaluate  # type: ignore[misc]
        if self._training is None:
            inner(*args, **kwargs)
        else:
            self._training.log_save_evaluate(lambda: inner(*args, **kwargs))

    def _save_checkpoint(self, model: Any, trial: Any, *_: Any, **__: Any) -> None:
        if self._training is None:
            raise InvalidArgumentError("nothing is saved outside of train()")
        self._training.save(trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._training is not None and self._training.resumes(resume_from_checkpoint):
            self._training.fill_model()
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self._training is not None and self._training.resumes(checkpoint):
            self._training.fill("optimizer", "scheduler", named_by="model")
        else:
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]

    def _load_scaler(self, checkpoint: str | None) -> None:
        if self._training is not None and self._training.resumes(checkpoint):
            self._training.fill("scaler")
        else:
            super()._load_scaler(checkpoint)  # type: ignore[misc]

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if self._training is not None and self._training.resumes(checkpoint):
            # Of more ranks than the step has, some have no generators there.
            self._training.fill(generators(self._training.ranks), allow_missing=self._training.ranks is not None)
        else:
            super()._load_rng_state(checkpoint)  # type: ignore[misc]

    def _load_best_model(self) -> None:
        trainer: Any = self
        if self._training is not None and trainer.state.best_model_checkpoint == self.store:
            self._training.fill_best_model()
        else:
            super()._load_best_model()  # type: ignore[misc]
