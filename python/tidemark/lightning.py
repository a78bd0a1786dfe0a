"""Lightning: a callback that saves beside the training, and a CheckpointIO for the callbacks of Lightning.

    checkpoint = TidemarkCheckpoint("run/ckpt", monitor="val_loss", save_top_k=2)
    trainer = lightning.Trainer(callbacks=[checkpoint])
    trainer.fit(model, data, ckpt_path=checkpoint.resume_path)

or, with Lightning's ModelCheckpoint as it is:

    trainer = lightning.Trainer(plugins=[TidemarkCheckpointIO("run/ckpt")], callbacks=[ModelCheckpoint(...)])

Both store what Lightning's own checkpoints have. The model's tensors are entries "model.NAME", the states of the optimizers
the entry "optimizers" and the tensors beneath it, and the rest is "lightning". With several processes (DDP) the callback saves
on all of them, and TidemarkCheckpointIO on rank 0. Only tensors in host memory have been tried.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import threading
import uuid
from collections.abc import Callable
from typing import Any

from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy, Strategy

from . import _dicts
from ._announcements import Announcement, announced
from ._checkpointer import Checkpointer
from ._closing import close_after, close_or_give_up
from ._evaluation import Evaluation, ModuleEvaluator
from ._options import KeepBest, Retention
from ._ranks import Ranks, of_rank_0, ranks_of_job, together
from ._reader import open as open_step
from ._rng import rng
from .errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnimplementedError

__all__ = ["Evaluation", "TidemarkCheckpoint", "TidemarkCheckpointIO"]

_REST = "lightning"
_SCHEME = "tidemark:"


class TidemarkCheckpointIO(CheckpointIO):
    """Saves into the store at `store`. `options` are those of Checkpointer.

    At the path that Lightning asks for there is a file of one line, which names the store and the step. It is written
    when the step is committed, so it never names a step that a crash could take away. A save returns when the state is
    copied. What fails later is raised by the next save, or by `teardown`, which waits for all of them. A step has the
    number of Lightning's global step, or the next free one. Removing the file deletes the step. Thread-safe.

    Lightning's AsyncCheckpointIO saves on a thread of its own and passes no `teardown` on. Therefore a save on another
    thread than the main one returns when it is committed, and the store is closed after each call from then on.

    With several processes (DDP) rank 0 saves and removes, as Lightning has it, and all of them load. Another rank waits
    for a save of rank 0 that is not committed yet. It does not with AsyncCheckpointIO, whose thread begins the save at some
    later time, nor if the default process group has no store (MPI): then it may find no file, or the one before.
    A strategy that writes sharded checkpoints does not call this class. Those whose processes multiprocessing starts
    ("ddp_fork", "ddp_notebook", "ddp_spawn") are an UnimplementedError, of the first save or at the start: use "ddp".
    InvalidArgumentError: `options` have `ranks`, which would wait for the other ranks.
    """

    def __init__(self, store: str | os.PathLike[str], **options: Any) -> None:
        if "ranks" in options:
            raise InvalidArgumentError("TidemarkCheckpointIO takes no ranks: with several processes rank 0 alone saves. "
                                       "TidemarkCheckpoint saves on all of them")
        self._store = os.path.abspath(store)
        self._options = options
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._checkpointer: Checkpointer | None = None
        self._next_step = 0
        self._pending: dict[str, threading.Event] = {}
        self._failures: list[BaseException] = []
        self._removed: list[int] = []  # steps to be deleted
        self._closes = False  # after each call

    def __getstate__(self) -> Any:
        raise _of_another_process()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str],
                        storage_options: Any | None = None) -> None:
        """UnsupportedTypeError: the checkpoint has an object that cannot be stored; the message has its path.
        UnimplementedError: this process was forked after the object was made."""
        if os.getpid() != self._pid:
            # Lightning would load the last save in the parent, which cannot wait for it, and has the store open itself.
            raise _of_another_process()
        if storage_options is not None:
            raise TypeError("TidemarkCheckpointIO takes no storage_options")
        path = _without_links(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)  # ModelCheckpoint may link to the file before it is there
        with self._lock, announced(path) as announcement:
            self._raise_failure()
            checkpointer = self._opened()
            global_step = checkpoint.get("global_step", 0)
            step = max(int(global_step), self._next_step)
            reference = {"tidemark": 1, "store": os.path.relpath(_without_links(self._store), os.path.dirname(path)),
                         "step": step, "save": uuid.uuid4().hex}
            save = checkpointer.save(step, _dicts.state_of(checkpoint, _REST), user_metadata=json.dumps(
                {"global_step": global_step, "save": reference["save"]}))
            self._next_step = step + 1
            done = threading.Event()
            # Before it is waited for, so that an interrupt leaves nothing that no callback ends.
            save.committed.add_done_callback(functools.partial(self._committed, path, reference, done, announcement))
            self._pending[path] = done
        if threading.current_thread() is not threading.main_thread():
            self._closes = True
            self.teardown()

    def _committed(self, path: str, reference: dict[str, Any], done: threading.Event, announcement: Announcement,
                   future: Any) -> None:
        try:
            error = future.exception()
            if error is not None:
                raise error
            _write(path, json.dumps(reference) + "\n")
        except Exception as error:  # noqa: BLE001: kept for the thread that saves
            with self._lock:
                self._failures.append(error)
        finally:
            done.set()
            announcement.end()

    def load_checkpoint(self, path: str | os.PathLike[str], map_location: Any | None = None,
                        weights_only: bool | None = None) -> dict[str, Any]:
        """The checkpoint, in host memory; `weights_only` changes nothing, since nothing that is read can run.

        `path` may also be "tidemark:" and a step: "tidemark:latest", "tidemark:40".
        NotFoundError: the step is gone. InvalidArgumentError: the file is no reference to a step. DeadlineExceededError: rank
        0 has not committed it after `close_timeout` seconds.
        """
        if map_location is not None and str(map_location) != "cpu":
            raise InvalidArgumentError(f"map_location is {map_location!r}: checkpoints are loaded into host memory")
        if str(path).startswith(_SCHEME):
            return _load_step(str(path), self._store)
        path = os.path.realpath(path)
        self._wait(path)
        reference = _read(path)
        store = os.path.join(os.path.dirname(path), reference["store"])
        with open_step(store, reference["step"], "pt") as step:
            if json.loads(step.info.user_metadata).get("save") != reference["save"]:
                raise NotFoundError(f"{path} names a save of step {reference['step']} that is not in {store} any more")
            return _dicts.checkpoint_of(step, _REST)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Removes the file, and deletes the step. The highest step stays until another one is committed."""
        real = os.path.realpath(path)
        self._wait(real)
        with self._lock:
            if not os.path.lexists(path):
                return
            reference = _read(real)
            os.remove(path)
            self._removed.append(reference["step"])
            self._delete(self._opened())
        if self._closes:
            self.teardown()

    def _delete(self, checkpointer: Checkpointer) -> None:
        for step in list(self._removed):
            try:
                checkpointer.delete(step, "removed by Lightning")
            except FailedPreconditionError:
                continue  # it is the highest step
            except NotFoundError:
                pass
            self._removed.remove(step)

    def teardown(self) -> None:
        """Waits for the saves, closes the store, and raises the first failure. The next save opens it again."""
        with self._lock:
            pending = list(self._pending)
        for path in pending:
            self._wait(path)
        with self._lock:
            self._pending.clear()
            checkpointer, self._checkpointer = self._checkpointer, None
            if checkpointer is not None:
                self._delete(checkpointer)
                checkpointer.close()
            self._raise_failure()

    def _opened(self) -> Checkpointer:
        if self._checkpointer is None:
            self._checkpointer = Checkpointer(self._store, **self._options)
            self._next_step = max((info.step for info in self._checkpointer.steps()), default=-1) + 1
        return self._checkpointer

    def _wait(self, path: str) -> None:
        event = self._pending.get(path)
        while event is not None and not event.wait(0.1):  # in slices, so that Ctrl-C ends it
            pass
        if event is None:
            Announcement(path).wait(float(self._options.get("close_timeout", 1800.0)))

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.pop(0)


def _load_step(path: str, store: str, ranks: Ranks | None = None) -> dict[str, Any]:
    """Of "tidemark:STEP@STORE"; without "@STORE": of `store`. All `ranks` call this, and load the step that rank 0 chooses."""
    step, _, other = path[len(_SCHEME):].partition("@")
    store = other or store
    if ranks is None:
        return _dicts.load_checkpoint(store, step, _REST)
    step = of_rank_0(ranks, lambda: str(_number_of(store, step)))
    with together(ranks, "load the step"):
        return _dicts.load_checkpoint(store, int(step), _REST, ranks.rank)


def _number_of(store: str, step: str) -> int:
    with open_step(store, step) as opened:
        return opened.info.step


def _of_another_process() -> UnimplementedError:
    return UnimplementedError("TidemarkCheckpointIO saves only in the process that made it, and strategies such as 'ddp_fork', "
                              "'ddp_notebook' and 'ddp_spawn' save in others: use strategy='ddp', or torchrun")


def _without_links(path: str | os.PathLike[str]) -> str:
    """The path with the real folder. The file itself may be a link, for it is replaced."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _write(path: str, text: str) -> None:
    """Puts a file in place as a whole, and durably."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        _sync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        _sync(folder)
    finally:
        os.close(folder)


def _sync(file: int) -> None:
    os.fsync(file)
    os.fstat(file)  # on an XFS that has shut itself down only this fails: storage/io/sync.h


def _read(path: str) -> dict[str, Any]:
    if os.path.isdir(path):
        raise InvalidArgumentError(f"{path} is a folder: TidemarkCheckpointIO has not written it. A strategy that writes sharded "
                                   f"checkpoints does so itself")
    with open(path, "rb") as file:
        text = file.read(4096)
    try:
        reference = json.loads(text)
        if reference["tidemark"] == 1 and type(reference["step"]) is int and all(
                type(reference[key]) is str for key in ("store", "save")):
            return dict(reference)
    except (ValueError, TypeError, KeyError):
        pass
    raise InvalidArgumentError(f"{path} names no step of a store: TidemarkCheckpointIO has not written it")


class TidemarkCheckpoint(Checkpoint):
    """Saves the whole training into the store at `store` and keeps the latest step and the best ones.

    every_n_train_steps: saves after every so many steps; 0: after each validation, or after each epoch without one.
    monitor: a metric that is logged; the `save_top_k` best steps by it are kept beside the latest one. "min" or "max"
    is the `mode`. evaluation: saved steps are evaluated beside the training; monitor="validation/loss" then keeps the
    best by what it found. `options` are those of Checkpointer; `retention` replaces the rule of the above.

    A save returns when the state is copied. What fails later is raised by a later save, or at the end of the fit. The
    checkpoint has the generators of random numbers of the CPU too, not those of devices; they are put back when the training
    begins.

    Several processes (DDP) save each step together. What is the same in all of them is written once: the parameters and the
    states of the optimizers. Everything else is rank 0's, but each rank has its own generators of the CPU. So are the metrics,
    and the evaluation, which runs there alone. Another number of processes may resume; one that the step has no generators of
    keeps those that it has. `ranks`: None: the ranks of torch.distributed; else a Ranks, or a function that returns one when
    the process group is there: `lambda: Ranks.of_torch(vote_timeout=60)`. Its `replicated` is not used.

    UnimplementedError, by a fit or another run: the strategy saves in a way of its own, as FSDP and DeepSpeed do.
    InvalidArgumentError: `ranks` are not those of the Trainer; at the first save: a hook has changed the checkpoint on one rank
    in another way. AbortedError: another rank could not load or save.
    """

    def __init__(self, store: str | os.PathLike[str], *, monitor: str = "", mode: str = "min", save_top_k: int = 1,
                 every_n_train_steps: int = 0, evaluation: Evaluation | None = None,
                 ranks: Ranks | Callable[[], Ranks] | None = None, **options: Any) -> None:
        if mode not in ("min", "max"):
            raise InvalidArgumentError(f"mode is '{mode}', not 'min' or 'max'")
        best = [KeepBest(monitor, {"min": "lowest", "max": "highest"}[mode], save_top_k)] if monitor else []
        # The steps among which the evaluator has yet to find the best one stay until it has.
        awaited = [evaluation.name] if evaluation and monitor.startswith(evaluation.name + "/") else []
        options.setdefault("retention", Retention(max_to_keep=1, keep_best=best, keep_unevaluated_until=awaited))
        self.store = os.path.abspath(store)
        self._options = options
        self._every_n_train_steps = every_n_train_steps
        self._evaluation = evaluation
        self._given_ranks = ranks
        self._ranks: Ranks | None = None  # of the run that goes on
        self._shared: tuple[str, ...] = ()
        self._monitor = monitor
        self._checkpointer: Checkpointer | None = None
        self._evaluator: ModuleEvaluator | None = None
        self._generators: dict[str, Any] | None = None
        self._saved_step = -1
        self._saves = False  # this training has saved a step

    @property
    def resume_path(self) -> str | None:
        """For `ckpt_path` of Trainer.fit: the latest step; None: there is none, a fresh run."""
        try:
            open_step(self.store).close()
        except NotFoundError:
            return None
        return f"{_SCHEME}latest@{self.store}"

    @property
    def best_model_path(self) -> str:
        """What Lightning takes for ckpt_path="best": the best step by `monitor`, or without one the latest. "": there is none."""
        step = f"best:{self._monitor}" if self._monitor else "latest"
        try:
            open_step(self.store, step).close()
        except NotFoundError:
            return ""
        return f"{_SCHEME}{step}@{self.store}"

    @property
    def state_key(self) -> str:
        return str(self._generate_state_key(monitor=self._monitor, every_n_train_steps=self._every_n_train_steps))

    @property
    def skipped_evaluations(self) -> list[tuple[int, str]]:
        """[(step, reason)] of the steps of this fit whose evaluation was skipped or has failed, by their records."""
        return self._evaluator.left_out() if self._evaluator else []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._ranks = _ranks_of(trainer, self._given_ranks)
        before = trainer.strategy.checkpoint_io
        trainer.strategy.checkpoint_io = _StepPaths(before._inner if isinstance(before, _StepPaths) else before, self._ranks)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self._ranks is not None:
            self._shared = _shared(trainer)
            self._ranks = dataclasses.replace(self._ranks, replicated=[f"{part}*" for part in self._shared])
        self._checkpointer = Checkpointer(self.store, ranks=self._ranks, **self._options)
        self._saved_step = trainer.global_step
        self._saves = False
        with together(self._ranks, "add the evaluators"):
            if self._evaluation and self._rank == 0:
                self._evaluator = ModuleEvaluator(self._checkpointer, self._evaluation, _without_trainer(pl_module))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._generators is not None:
            rng().load_state_dict(self._generators)
            self._generators = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._every_n_train_steps and trainer.global_step % self._every_n_train_steps == 0:
            self._save(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._every_n_train_steps and trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._every_n_train_steps and not trainer.enable_validation:
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
                checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
                metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            state = _dicts.state_of(checkpoint, _REST, {name for name, _ in trainer.lightning_module.named_parameters()})
            if self._rank > 0:
                state = {name: part for name, part in state.items() if name in self._shared}
                state[f"rng.{self._rank}"] = rng()
            if self._ranks is not None:
                _dicts.set_apart(state, self._shared)
            if first:
                _dicts.check_same(self._ranks, state, self._shared)
        self._checkpointer.save(step, state, metrics=metrics, overwrite=True)
        if self._evaluator:
            self._evaluator.note(step)

    @property
    def _rank(self) -> int:
        return 0 if self._ranks is None else self._ranks.rank

    def state_dict(self) -> dict[str, Any]:
        return {"rng": rng().state_dict()}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        own = checkpoint.pop(_dicts.GENERATORS, None)
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if state is not None and self._rank > 0:
            state["rng"] = own  # in place of rank 0's

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._generators = state_dict["rng"]

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        checkpointer, self._checkpointer = self._checkpointer, None
        if checkpointer is not None:
            close_or_give_up(checkpointer, self._evaluation.drain if self._evaluation else None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        checkpointer, self._checkpointer = self._checkpointer, None
        if checkpointer is not None:
            close_after(exception, checkpointer)


class _StepPaths(CheckpointIO):
    """Loads "tidemark:STEP@STORE", and leaves every other path to the CheckpointIO that was there before."""

    def __init__(self, inner: CheckpointIO, ranks: Ranks | None) -> None:
        self._inner = inner
        self._ranks = ranks

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        self._inner.save_checkpoint(checkpoint, path, storage_options)

    def load_checkpoint(self, path: Any, map_location: Any | None = None, weights_only: bool | None = None) -> dict[str, Any]:
        if str(path).startswith(_SCHEME):
            store = self._inner._store if isinstance(self._inner, TidemarkCheckpointIO) else ""
            return _load_step(str(path), store, self._ranks)
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
    if trainer.world_size == 1 and given is None:
        return None
    ranks = ranks_of_job(given)
    found = (0, 1) if ranks is None else (ranks.rank, ranks.world_size)
    if found != (trainer.global_rank, trainer.world_size):
        raise InvalidArgumentError(f"ranks say that this is rank {found[0]} of {found[1]}, and for the Trainer it is rank "
                                   f"{trainer.global_rank} of {trainer.world_size}")
    return ranks


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
