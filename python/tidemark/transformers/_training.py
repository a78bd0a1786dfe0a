"""One training of a Trainer with the mixin."""

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

from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.progress import Progress
from .._checkpointer.ranks import Ranks, of_rank_0, together
from .._evaluation import ModuleEvaluation, ModuleEvaluator
from .._preemption.guard import PreemptionReport
from .._preemption.training import TrainingGuard
from .._state.rng import rng
from .._store.reader import open as open_step
from ..errors import InvalidArgumentError, NotFoundError
from ._steps import bare, files_of, generators, is_rank_0, metrics_of

_SCHEME = "tidemark:"


class Training:
    """What one call of train() saves, what it resumes, and how a signal ends it. Belongs to the thread of the training. All ranks
    call its methods alike. guard: None: no signal ends it. progress: of restores.
    """

    def __init__(self, trainer: Any, checkpointer: Checkpointer, ranks: Ranks | None, guard: TrainingGuard | None,
                 progress: Progress) -> None:
        self._trainer = trainer
        self.checkpointer = checkpointer
        self.ranks = ranks
        self.guard = guard
        self._progress: Progress = is_rank_0(ranks) and progress
        self.evaluator: ModuleEvaluator | None = None
        self.preempted: PreemptionReport | None = None  # once a signal has made the last save
        self.resumed: int | None = None  # the step
        self._stand_in: str | None = None  # the folder that stands for it
        self._files: dict[str, bytes] | None = None
        self._is_ending = False  # by a signal
        self._is_between_steps = False  # of the optimizer
        self._is_at_epoch_end = False
        self._saved_step: int | None = None  # if the generators are as they were then
        self._logs_and_saves = False  # the Trainer may evaluate meanwhile

    # Saves.

    def add_evaluator(self, evaluation: ModuleEvaluation | None) -> None:
        with together(self.ranks, "add the evaluators"):
            if evaluation and is_rank_0(self.ranks):
                self.evaluator = ModuleEvaluator(self.checkpointer, evaluation, self._trainer.model)

    def save(self, trial: Any) -> None:
        """Unless a signal has made the last save."""
        if self.preempted is not None:
            return
        step = self._trainer.state.global_step
        options: dict[str, Any] = {"metrics": metrics_of(self._trainer.state), "overwrite": True}
        state = self._state_of_step(trial)
        save = (self.checkpointer.save(step, state, **options) if self.guard is None else
                self.guard.save(self.checkpointer, step, state, **options))
        if save is None:
            self._end(self._trainer.control)
            return
        if save.skipped:
            return
        self._saved_step = step
        if self.evaluator:
            self.evaluator.note(step)

    def _save_last(self) -> None:
        """After a signal; closes the checkpointer too."""
        if self.preempted is not None:
            return
        assert self.guard is not None
        step = self._trainer.state.global_step
        self.preempted = self.guard.save_and_close(self.checkpointer, step, self._state_of_step(None),
                                                   metrics=metrics_of(self._trainer.state), overwrite=step != self._saved_step)
        if self.evaluator:
            self.evaluator.note(step)

    def save_after_error(self) -> None:
        """After a signal, if a step can be saved: the workers of a data loader have got the signal too, and the next batch has
        not come."""
        if self.guard and self.guard.preempted and self._is_between_steps and self.ranks is None:
            self._save_last()

    def _state_of_step(self, trial: Any) -> dict[str, Any]:
        """What this rank saves."""
        trainer = self._trainer
        if trainer.hp_search_backend is None and trial is None:
            trainer.store_flos()
        if trainer.state.best_global_step:
            trainer.state.best_model_checkpoint = trainer.store
        with self.checkpointer._making(trainer.state.global_step):
            for callback in [*trainer.callback_handler.callbacks, trainer.control]:
                if isinstance(callback, ExportableState):
                    stored = trainer.state.stateful_callbacks
                    name = type(callback).__name__
                    if isinstance(stored.get(name), list):
                        stored[name].append(callback.state())
                    else:
                        stored[name] = callback.state()
            state = self._parts()
            if is_rank_0(self.ranks):
                if self._files is None:
                    self._files = files_of(trainer.model, trainer.processing_class)
                state |= {"trainer_state": json.dumps(dataclasses.asdict(trainer.state)), **self._files}
        return state

    def _parts(self) -> dict[str, Any]:
        """What a resumed training needs, by the names of the entries."""
        trainer = self._trainer
        if trainer.args.save_only_model:
            return {"model": trainer.model}
        parts = {"model": trainer.model, "optimizer": bare(trainer.optimizer, "optimizer"),
                 "scheduler": bare(trainer.lr_scheduler, "scheduler"), "scaler": getattr(trainer.accelerator, "scaler", None),
                 generators(self.ranks): rng()}
        return {name: part for name, part in parts.items() if part is not None}

    # Restores.

    def stand_in(self, asked: str | bool | None) -> str | bool | None:
        """`resume_from_checkpoint` for Trainer.train: for a step of the store, a folder with its trainer_state.json, which exists
        until `remove_stand_in`. None: begin afresh."""
        if asked is not True and not str(asked).startswith(_SCHEME):
            return asked
        selector = "latest" if asked is True else str(asked)[len(_SCHEME):]
        chosen = of_rank_0(self.ranks, lambda: json.dumps(self._chosen(selector, fresh=asked is True)))
        self.resumed, state = json.loads(chosen)
        if self.resumed is None:
            return None
        with together(self.ranks, "write a trainer_state.json"):
            self._stand_in = tempfile.mkdtemp(prefix="tidemark-resume-")
            with open(os.path.join(self._stand_in, "trainer_state.json"), "w", encoding="utf-8") as file:
                file.write(state)
        return self._stand_in

    def _chosen(self, selector: str, fresh: bool) -> tuple[int | None, str]:
        """The number of the step and its trainer_state.json. None: there is no step, and `fresh` says to begin afresh then."""
        store = self._trainer.store
        try:
            with open_step(store, selector) as step:
                if "trainer_state" not in step.value_keys():
                    raise InvalidArgumentError(f"step {step.info.step} of {store} was not saved by tidemark.transformers")
                return step.info.step, step.get_value("trainer_state")
        except NotFoundError:
            if fresh:
                return None, ""
            raise

    def remove_stand_in(self) -> None:
        if self._stand_in:
            shutil.rmtree(self._stand_in, ignore_errors=True)

    def resumes(self, checkpoint: str | None) -> bool:
        """Whether Trainer.train means the resumed step by this folder."""
        return self._stand_in is not None and checkpoint == self._stand_in

    def fill(self, *names: str, named_by: str = "", allow_missing: bool = False) -> None:
        """Restores parts of the resumed step in place. named_by: a part that has the names of an optimizer's parameters, and is
        not read."""
        assert self.resumed is not None
        parts = self._parts()
        chosen = {name: parts[name] for name in names if name in parts}
        if chosen:
            only = [f"{name}*" for name in chosen] if named_by else []
            self.checkpointer.restore({**({named_by: parts[named_by]} if named_by else {}), **chosen}, self.resumed, only=only,
                                      allow_unexpected=True, allow_missing=allow_missing, progress=self._progress)

    def fill_model(self) -> None:
        """Restores the model of the resumed step in place. MismatchError: the step lacks a tensor of it."""
        assert self.resumed is not None
        self._fill_model(self.resumed)

    def fill_best_model(self) -> None:
        if self._is_ending:
            return
        with together(self.ranks, "wait for the saves"):
            self.checkpointer.wait_until_committed()
        self._fill_model(self._trainer.state.best_global_step)

    def _fill_model(self, step: int) -> None:
        self.checkpointer.restore({"model": self._trainer.model}, step, only=["model.*"], progress=self._progress)

    # Preemption.

    def is_preempted(self) -> bool:
        return self.guard is not None and self.guard.preempted_on_any_rank(self.checkpointer)

    def _end(self, control: Any) -> None:
        self._is_ending = control.should_training_stop = True

    def log_save_evaluate(self, inner: Callable[[], None]) -> None:
        """Calls what the Trainer does at the end of a step, and of an epoch. Then it makes the last save if a signal has come."""
        self._logs_and_saves = True
        try:
            inner()
        except _EvaluationEnded:
            self._trainer.control.should_evaluate = False  # at the end of the epoch it would begin once more
            self._end(self._trainer.control)
        finally:
            self._logs_and_saves = False
        if self._is_ending and (self._is_at_epoch_end or self._trainer.state.epoch % 1 != 0):
            self._save_last()

    def on_epoch_begin(self, control: Any) -> None:
        self._is_at_epoch_end = False

    def on_step_begin(self, control: Any) -> None:
        self._is_between_steps = False

    def on_step_end(self, control: Any) -> None:
        self._is_between_steps = True
        if self.is_preempted():
            self._end(control)

    def on_prediction_step(self, control: Any) -> None:
        if self._logs_and_saves:
            self._saved_step = None  # the data loader has drawn a random number
            if self.is_preempted():
                raise _EvaluationEnded

    def on_epoch_end(self, control: Any) -> None:
        self._is_at_epoch_end = True
        if self.preempted is not None:
            control.should_log = control.should_evaluate = control.should_save = False
        elif self.is_preempted():
            self._end(control)


class _EvaluationEnded(BaseException):
    """A signal has come in an evaluation by the Trainer."""


class TellTraining(transformers.TrainerCallback):
    """A callback of a Trainer with `preemption`. Those that are added later are called after it."""

    def __init__(self, trainer: Any) -> None:
        self._alive = weakref.ref(trainer)  # which refers to this callback

    def _tell(self, what: str, control: Any) -> None:
        trainer = self._alive()
        if trainer is not None and trainer._training is not None:
            getattr(trainer._training, what)(control)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell("on_epoch_begin", control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell("on_step_begin", control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell("on_step_end", control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell("on_prediction_step", control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell("on_epoch_end", control)
