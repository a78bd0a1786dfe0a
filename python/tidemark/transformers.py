"""Hugging Face: a Trainer that saves beside the training and resumes from the store, and a callback that only saves.

    class MyTrainer(TidemarkTrainerMixin, transformers.Trainer):
        pass

    trainer = MyTrainer(model, arguments, train_dataset=data, store="run/ckpt")
    trainer.train(resume_from_checkpoint=True)

One step has the model ("model.NAME"), the optimizer, the scheduler, the generators of random numbers (of the CPU, not of
devices), the Trainer's state and the configuration files. `export` makes a folder for from_pretrained of it. The processes of
a job (DDP) save each step together. Only tensors in host memory have been tried.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import transformers
from transformers.trainer_callback import ExportableState

from ._checkpointer import Checkpointer
from ._closing import close_after, close_or_give_up
from ._evaluation import Evaluation, ModuleEvaluator
from ._futures import SaveHandle
from ._options import KeepBest, Retention
from ._ranks import Ranks, of_rank_0, ranks_of_job, together
from ._reader import open as open_step
from ._rng import rng
from .errors import InvalidArgumentError, NotFoundError, UnimplementedError

__all__ = ["Evaluation", "TidemarkCallback", "TidemarkTrainerMixin", "export"]

_SCHEME = "tidemark:"
_FILE_BYTES_MAX = 256 << 20


class TidemarkTrainerMixin:
    """To be put before transformers.Trainer among the bases of a class. Saves and resumes as `args` say, in a store.

    store: its folder; the default is "tidemark" in args.output_dir. evaluation: saved steps are evaluated beside the
    training. checkpointer_options: those of Checkpointer. args.save_total_limit and args.metric_for_best_model become the
    rules of retention, unless checkpointer_options has its own.

    A save returns when the state is copied. What fails later is raised at the end of train(), which waits for the saves.

    Several processes (DDP) save each step together, and all of them call train() alike. Model, optimizer, scheduler and scaler
    are the same in all of them and are written once; buffers, the Trainer's state and the metrics are rank 0's; the generators
    of the CPU are each rank's own. Another number of processes may resume; one that the step has no generators of keeps those
    that it has. The evaluation runs on rank 0 alone. `ranks`: None: the ranks of torch.distributed, if there are several processes.
    Its `replicated` is not used.
    """

    def __init__(self, *args: Any, store: str | os.PathLike[str] | None = None, evaluation: Evaluation | None = None,
                 checkpointer_options: dict[str, Any] | None = None, ranks: Ranks | Callable[[], Ranks] | None = None,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        self.store = os.path.abspath(store or os.path.join(trainer.args.output_dir, "tidemark"))
        self._evaluation = evaluation
        self._options = dict(checkpointer_options or {})
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

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As Trainer.train. True resumes the latest step of the store, and begins afresh if there is none. "tidemark:STEP"
        resumes another one: "tidemark:40", "tidemark:best:eval_loss". A folder is one of Transformers.

        UnimplementedError: the model is sharded. InvalidArgumentError: `ranks` are not those of the Trainer, or there are
        several processes and args.enable_jit_checkpoint. With several processes an error of one rank before the training is an
        AbortedError on the others.
        """
        self._refuse_what_cannot_be_saved()
        trainer: Any = self
        parts = ["model"] if trainer.args.save_only_model else [
            "model", "optimizer", "scheduler", *(["scaler"] if getattr(trainer.accelerator, "scaler", None) else [])]
        self._ranks = _ranks_of(trainer.args, self._given_ranks, parts)
        if self._ranks is not None and getattr(trainer.args, "enable_jit_checkpoint", False):
            raise InvalidArgumentError("enable_jit_checkpoint has each process save at a step of its own, and the processes of a "
                                       "job save each step together: leave it out")
        with Checkpointer(self.store, ranks=self._ranks, **self._checkpointer_options()) as checkpointer:
            self._checkpointer = checkpointer
            folder = None
            try:
                if resume_from_checkpoint is True or str(resume_from_checkpoint).startswith(_SCHEME):
                    step = "latest" if resume_from_checkpoint is True else str(resume_from_checkpoint)[len(_SCHEME):]
                    folder = self._stand_in(step, fresh=resume_from_checkpoint is True)
                    resume_from_checkpoint = folder
                with together(self._ranks, "add the evaluators"):
                    if self._evaluation and _is_rank_0(self._ranks):
                        self._evaluator = ModuleEvaluator(checkpointer, self._evaluation, trainer.model)
                output = super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]
            except BaseException as error:
                close_after(error, checkpointer)
                raise
            finally:
                self._checkpointer = None
                self._resumed = None
                if folder:
                    shutil.rmtree(folder, ignore_errors=True)
            close_or_give_up(checkpointer, self._evaluation.drain if self._evaluation else None)
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
                    raise InvalidArgumentError(f"step {step.info.step} of {self.store} was not saved by this door")
                return step.info.step, step.get_value("trainer_state")
        except NotFoundError:
            if fresh:
                return None, ""
            raise

    def _parts(self) -> dict[str, Any]:
        """What a resumed training needs, by the names of the entries."""
        trainer: Any = self
        scaler = getattr(trainer.accelerator, "scaler", None)
        parts = {"model": trainer.model, "optimizer": _bare(trainer.optimizer, "optimizer"),
                 "scheduler": _bare(trainer.lr_scheduler, "scheduler"), "scaler": scaler, _generators(self._ranks): rng()}
        if trainer.args.save_only_model:
            return {"model": trainer.model}
        return {name: part for name, part in parts.items() if part is not None}

    def _save_checkpoint(self, model: Any, trial: Any, *_: Any, **__: Any) -> None:
        trainer: Any = self
        if self._checkpointer is None:
            raise InvalidArgumentError("nothing is saved outside of train()")
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
            if _is_rank_0(self._ranks):
                if self._files is None:
                    self._files = _files_of(trainer.model, trainer.processing_class)
                state |= {"trainer_state": json.dumps(dataclasses.asdict(trainer.state)), **self._files}
        self._checkpointer.save(step, state, metrics=_metrics_of(trainer.state), overwrite=True)
        if self._evaluator:
            self._evaluator.note(step)

    def _is_step(self, checkpoint: str | None) -> bool:
        return self._resumed is not None and checkpoint == self._resumed[0]

    def _fill(self, *names: str, allow_missing: bool = False) -> None:
        """Restores parts of the resumed step in place."""
        assert self._checkpointer is not None and self._resumed is not None
        parts = self._parts()
        chosen = {name: parts[name] for name in names if name in parts}
        if chosen:
            self._checkpointer.restore(chosen, self._resumed[1], allow_unexpected=True, allow_missing=allow_missing,
                                       progress=self._shows_progress())

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._is_step(resume_from_checkpoint):
            self._fill_model(self._resumed[1])  # type: ignore[index]
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]

    def _fill_model(self, step: int) -> None:
        trainer: Any = self
        assert self._checkpointer is not None
        self._checkpointer.restore({"model": trainer.model}, step, only=["model.*"], progress=self._shows_progress())

    def _shows_progress(self) -> bool:
        trainer: Any = self
        return not trainer.args.disable_tqdm and _is_rank_0(self._ranks)

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
            self._fill(_generators(self._ranks), allow_missing=self._ranks is not None)
        else:
            super()._load_rng_state(checkpoint)  # type: ignore[misc]

    def _load_best_model(self) -> None:
        trainer: Any = self
        if trainer.state.best_model_checkpoint != self.store:
            super()._load_best_model()  # type: ignore[misc]
            return
        assert self._checkpointer is not None
        with together(self._ranks, "wait for the saves"):
            self._checkpointer.wait_until_committed()
        self._fill_model(trainer.state.best_global_step)


class TidemarkCallback(transformers.TrainerCallback):
    """Saves model, optimizer, scheduler and the CPU's generators into a store beside what the Trainer does itself.

    every_steps: after so many steps; 0: whenever the Trainer saves. evaluation: saved steps are evaluated beside the
    training. `options` are those of Checkpointer. A Trainer cannot be resumed by a callback: use TidemarkTrainerMixin.

    Several processes save as with TidemarkTrainerMixin, which also says what `ranks` are. The training raises
    UnimplementedError: the model is sharded; and InvalidArgumentError: `ranks` are not those of the Trainer.
    """

    def __init__(self, store: str | os.PathLike[str], *, every_steps: int = 0, evaluation: Evaluation | None = None,
                 ranks: Ranks | Callable[[], Ranks] | None = None, **options: Any) -> None:
        self.store = os.path.abspath(store)
        self._every_steps = every_steps
        self._evaluation = evaluation
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
        if self._checkpointer is not None:  # of a training that an exception has ended
            close_after("an earlier training", self._checkpointer)
        self._ranks = _ranks_of(args, self._given_ranks, ("model", "optimizer", "scheduler"))
        self._checkpointer = Checkpointer(self.store, ranks=self._ranks, **self._options)
        with together(self._ranks, "add the evaluators"):
            if self._evaluation and _is_rank_0(self._ranks):
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
            parts = {"model": model, "optimizer": _bare(optimizer, "optimizer"),
                     "scheduler": _bare(lr_scheduler, "scheduler"), _generators(self._ranks): rng(),
                     "trainer_state": json.dumps(dataclasses.asdict(state)) if _is_rank_0(self._ranks) else None}
        save = self._checkpointer.save(state.global_step, {name: part for name, part in parts.items() if part is not None},
                                       metrics=_metrics_of(state), overwrite=True)
        if self._evaluator:
            self._evaluator.note(state.global_step)
        return save

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        checkpointer, self._checkpointer = self._checkpointer, None
        if checkpointer is not None:
            close_or_give_up(checkpointer, self._evaluation.drain if self._evaluation else None)


def export(store: str | os.PathLike[str], folder: str | os.PathLike[str], step: int | str = "latest") -> None:
    """Writes what from_pretrained reads: model.safetensors and the configuration files of a step, into a new folder.

    FileExistsError: the folder is there. NotFoundError: there is no such step.
    """
    import safetensors.torch

    with open_step(store, step, "pt") as opened:
        tensors = {name[len("model."):]: opened.get_tensor(name) for name in opened.keys() if name.startswith("model.")}
        files = {name[len("files."):]: opened.get_value(name) for name in opened.value_keys() if name.startswith("files.")}
    for name in files:
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise InvalidArgumentError(f"the step has a file of the name {name!r}, which is none for a folder")
    os.makedirs(folder)
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    safetensors.torch.save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def _ranks_of(args: Any, given: Ranks | Callable[[], Ranks] | None, parts: Sequence[str]) -> Ranks | None:
    """Those of the processes of a training, which have the same `parts` of the state with DDP; None: it has one."""
    from accelerate.state import AcceleratorState

    if args.world_size > 1:
        # Making an AcceleratorState would replace its kind by that of the processes.
        kind = str(getattr(AcceleratorState._shared_state.get("distributed_type"), "value", "NO"))
        if not kind.startswith("MULTI_"):
            raise UnimplementedError(f"tidemark.transformers does not save with several processes of the kind {kind}. It does "
                                     f"with DDP")
    elif given is None:
        return None
    ranks = ranks_of_job(given)
    found = (0, 1) if ranks is None else (ranks.rank, ranks.world_size)
    if found != (args.process_index, args.world_size):
        raise InvalidArgumentError(f"ranks say that this is rank {found[0]} of {found[1]}, and for the Trainer it is rank "
                                   f"{args.process_index} of {args.world_size}")
    return ranks and dataclasses.replace(ranks, replicated=[f"{part}*" for part in parts])


def _is_rank_0(ranks: Ranks | None) -> bool:
    return ranks is None or ranks.rank == 0


def _generators(ranks: Ranks | None) -> str:
    """The name of this rank's generators of random numbers."""
    return "rng" if ranks is None or ranks.rank == 0 else f"rng.{ranks.rank}"


def _bare(wrapped: Any, attribute: str) -> Any:
    """What accelerate has wrapped."""
    return getattr(wrapped, attribute, wrapped) if type(wrapped).__module__.startswith("accelerate.") else wrapped


def _metrics_of(state: Any) -> dict[str, float]:
    """The numbers that were logged last for this step."""
    found: dict[str, float] = {}
    for line in state.log_history:
        if line.get("step") == state.global_step:
            found.update({name: float(value) for name, value in line.items()
                          if name not in ("step", "epoch") and isinstance(value, (int, float))})
    return found


def _files_of(*owners: Any) -> dict[str, bytes]:
    """The small files that `save_pretrained` writes, of a model's configuration and of a tokenizer, as "files.NAME"."""
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="tidemark-files-") as folder:
        for owner in owners:
            for part in (getattr(owner, "config", None), getattr(owner, "generation_config", None),
                         owner if not hasattr(owner, "config") else None):
                if part is not None and "save_directory" in inspect.signature(
                        getattr(part, "save_pretrained", lambda: None)).parameters:
                    part.save_pretrained(folder)
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                if root == folder and os.path.getsize(path) <= _FILE_BYTES_MAX:
                    with open(path, "rb") as file:
                        files[f"files.{name}"] = file.read()
    return files
