"""A callback that saves beside the training."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

import transformers

from .._arguments import path, size
from .._checkpointer.checkpointer import Checkpointer
from .._checkpointer.closing import close_earlier_training, close_owned, opened_by_training
from .._checkpointer.futures import SaveHandle
from .._checkpointer.given_options import check_options, check_options_of_ranks, refused_by
from .._checkpointer.observer import logger
from .._checkpointer.ranks import Ranks, together
from .._evaluation import ModuleEvaluation, ModuleEvaluator, evaluation_or_none
from .._state.rng import rng
from ._steps import WAYS_OUT, bare, generators, is_rank_0, metrics_of, ranks_of


class TidemarkCallback(transformers.TrainerCallback):
    """Saves model, optimizer, scheduler and generators into a store beside what the Trainer does itself.

    every_steps: after so many steps; 0: whenever the Trainer saves, and with save_strategy="no" there is a warning. evaluation:
    saved steps are evaluated beside the training. `options` are those of Checkpointer. A Trainer cannot be resumed by a callback:
    use TidemarkTrainerMixin.

    Transformers does not tell callbacks of an exception that ends train(). The store then stays open until `close`, until the
    next training with the store in this process, or until the process ends. In a notebook call `close`.

    Several processes save as with TidemarkTrainerMixin, which also says what `ranks` are. The training raises
    UnimplementedError: the model is sharded; InvalidArgumentError: `ranks` are not those of the Trainer, or `when_full` is "skip"
    with several processes; and AlreadyHeldError: another process has the store.
    """

    def __init__(self, store: str | os.PathLike[str], *, every_steps: int = 0, evaluation: ModuleEvaluation | None = None,
                 ranks: Ranks | Callable[[], Ranks] | None = None, **options: Any) -> None:
        self.store = os.path.abspath(path(store, "store"))
        self._every_steps = size(every_steps, "every_steps")
        self._evaluation = evaluation_or_none(evaluation)
        check_options("TidemarkCallback", options, refused_by("Transformers", when="use every_steps, or args.save_steps"),
                      own=TidemarkCallback.__init__)
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
        self._ranks = ranks_of(args, self._given_ranks, ("model", "optimizer", "scheduler"))
        check_options_of_ranks("TidemarkCallback", self._options, self._ranks)
        if not self._every_steps and args.save_strategy == "no" and is_rank_0(self._ranks):
            # No error: another callback may have the Trainer save.
            logger.warning("%s gets no step, unless a callback has the Trainer save: save_strategy is 'no', and TidemarkCallback "
                           "saves when the Trainer does. Give every_steps=, or another save_strategy", self.store)
        close_earlier_training(self.store)
        self._checkpointer = Checkpointer(self.store, ranks=self._ranks, **self._options)
        opened_by_training(self._checkpointer)
        if is_rank_0(self._ranks):
            # It may resume a folder of Transformers that is older.
            self._checkpointer._begins_at(state.global_step, WAYS_OUT, chosen=True)
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
