"""A rank that is a process, for lightning_ranks_test.py: lightning_process.py MEETING RANK WORLD_SIZE FOLDER. Prints what it
found, as JSON.

lightning_process.py kill FOLDER: a training of two processes that Lightning starts. Rank 1 kills itself.
"""

import datetime
import json
import logging
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import lightning  # noqa: E402
import rank_jobs  # noqa: E402
import tidemark  # noqa: E402
import torch  # noqa: E402
import torch.distributed as distributed  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.demos.boring_classes import BoringModel  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402
from tidemark._checkpointer import ranks  # noqa: E402
from tidemark.lightning import _dicts  # noqa: E402
from tidemark.lightning._announcements import Announcement  # noqa: E402
from tidemark.lightning import ModuleEvaluation, TidemarkCheckpoint, TidemarkCheckpointIO  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402

EPOCHS = 4  # of three batches each


class Model(BoringModel):
    """With dropout, so that a run depends on each rank's generator, and buffers that differ from rank to rank. A buffer of the
    criterion is also a hyperparameter, which is in the checkpoint a second time."""

    def __init__(self, optimizer=torch.optim.Adam, weights=None):
        super().__init__()
        self.save_hyperparameters("weights")
        self.criterion = torch.nn.CrossEntropyLoss(weight=weights)
        self.layer = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(32, 2))
        for name in ("some", "others"):  # the largest of all arrays: as parameters they would be spread over the ranks
            self.register_buffer(name, torch.full((1024,), -1.0))
        self.optimizer = optimizer

    def on_validation_epoch_end(self):
        for buffer in self.buffers():
            buffer.fill_(self.global_rank)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(batch).square().mean() + 10 * self.trainer.global_step * (-1) ** self.global_rank)

    def configure_optimizers(self):
        return self.optimizer(self.parameters(), lr=0.01)


class Zero(ZeroRedundancyOptimizer):
    """An optimizer whose state is spread over the ranks."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, optimizer_class=torch.optim.Adam, lr=lr)


def fit(folder, callbacks, epochs=EPOCHS, ckpt_path=None, *, optimizer=torch.optim.Adam, strategy="ddp", devices=2, **options):
    """Each rank draws numbers of its own."""
    torch.manual_seed(7)
    model = Model(optimizer, torch.tensor([1.0, 2.0]))
    trainer = lightning.Trainer(default_root_dir=folder, accelerator="cpu", devices=devices, strategy=strategy, max_epochs=epochs,
                                limit_train_batches=3, limit_val_batches=2, num_sanity_val_steps=0, logger=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[Seed(), *callbacks], **options)
    trainer.fit(model, ckpt_path=ckpt_path)
    return model, trainer


class Seed(lightning.Callback):
    def on_fit_start(self, trainer, pl_module):
        torch.manual_seed(7 + trainer.global_rank)


def digest(model):
    """Of the weights, and the next number of the generator."""
    weights = torch.cat([tensor.flatten() for tensor in model.layer.state_dict().values()])
    return [weights.sum().item().hex(), weights.norm().item().hex(), torch.rand(()).item().hex()]


def error_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def resumed(folder):
    """The training without and with a stop, whose steps are also evaluated."""
    whole, _ = fit(folder, [TidemarkCheckpoint(folder / "whole")])
    found = {"whole": digest(whole)}
    norms = []

    def evaluate(module):
        norms.append(module.layer[1].weight.norm().item())
        return {"norm": norms[-1]}

    evaluation = ModuleEvaluation(evaluate, max_pending=8)
    first = TidemarkCheckpoint(folder / "parts", monitor="val_loss", save_top_k=2, evaluation=evaluation)
    found["fresh"] = first.resume_path
    fit(folder, [first], 2)
    second = TidemarkCheckpoint(folder / "parts", monitor="val_loss", save_top_k=2, evaluation=evaluation)
    model, trainer = fit(folder, [second], EPOCHS, second.resume_path)
    return {**found, "resumed": digest(model), "steps": trainer.global_step, "evaluations": len(norms),
            "skipped": [*first.skipped_evaluations, *second.skipped_evaluations]}


def by_time(folder, rank):
    """The clock of rank 0 says at each step that a save is due, and that of rank 1 never."""
    interval = datetime.timedelta(hours=rank)
    return error_of(fit, folder, [TidemarkCheckpoint(folder / "by_time", save_top_k=-1, train_time_interval=interval)], 2)


class Noting(TidemarkCheckpoint):
    """Notes the ranks of its fit."""

    def on_train_start(self, trainer, pl_module):
        self.ranks = self._fit._ranks
        super().on_train_start(trainer, pl_module)


class Stopped(Exception):
    pass


class Start(TidemarkCheckpoint):
    """Notes what a training begins with, and ends it."""

    def on_train_start(self, trainer, pl_module):
        before = torch.get_rng_state()
        super().on_train_start(trainer, pl_module)
        restored = not torch.equal(before, torch.get_rng_state())
        self.found = [trainer.global_step, digest(pl_module)[0], restored]
        raise Stopped


def begun(folder, store, **options):
    """[the step, the sum of the weights, whether the generators are those of the checkpoint] at the start."""
    start = Start(folder / store)
    error_of(fit, folder, [start], 2 * EPOCHS, start.resume_path, **options)
    return start.found


def sharded_optimizer(folder):
    """With an optimizer whose state Lightning gathers on rank 0."""
    model, _ = fit(folder, [TidemarkCheckpoint(folder / "zero_whole")], optimizer=Zero)
    whole = digest(model)
    fit(folder, [TidemarkCheckpoint(folder / "zero")], 2, optimizer=Zero)
    callback = TidemarkCheckpoint(folder / "zero")
    model, _ = fit(folder, [callback], EPOCHS, callback.resume_path, optimizer=Zero)
    return [whole, digest(model)]


class OwnCheckpoints(DDPStrategy):
    def save_checkpoint(self, *arguments, **options):
        raise AssertionError


class Edit(lightning.Callback):
    """Changes the checkpoint on one rank alone, as it may for Lightning, which writes that of rank 0."""

    def __init__(self, rank, change):
        self.rank, self.change = rank, change

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        if trainer.global_rank == self.rank:
            self.change(checkpoint["state_dict"])


def edited(folder):
    """The errors of the first save."""
    changes = {"more": (0, lambda weights: weights.update(more=torch.zeros(3))), "raises": (1, lambda weights: weights["none"]),
               "half": (1, lambda weights: weights.update({"layer.1.bias": weights["layer.1.bias"].half()}))}
    return {name: error_of(fit, folder, [TidemarkCheckpoint(folder / f"edited_{name}"), Edit(*change)], 1)
            for name, change in changes.items()}


class Uncopyable(lightning.Callback):
    """Rank 0 cannot copy the module for its evaluator."""

    def setup(self, trainer, pl_module, stage):
        if trainer.global_rank == 0:
            pl_module.lock = threading.Lock()


def refused(folder, rank):
    callback = TidemarkCheckpoint(folder / "refused")
    found = {"strategy": error_of(fit, folder, [callback], strategy=OwnCheckpoints()),
             "ranks": error_of(fit, folder, [TidemarkCheckpoint(folder / "refused", ranks=tidemark.Ranks(0, 1, list))]),
             "no_ranks": error_of(fit, folder, [TidemarkCheckpoint(folder / "refused", ranks=lambda: 2)]),
             "no_step": error_of(fit, folder, [callback], EPOCHS, f"tidemark:77@{folder / 'whole'}")}
    found["skips"] = error_of(fit, folder, [TidemarkCheckpoint(folder / "skips", when_full="skip")])
    found["evaluators"] = error_of(fit, folder, [
        Uncopyable(), TidemarkCheckpoint(folder / "uncopyable", evaluation=ModuleEvaluation(dict))])
    load = _dicts.load_checkpoint
    if rank == 1:
        _dicts.load_checkpoint = lambda *_: 1 / 0
    found["load"] = error_of(fit, folder, [callback], EPOCHS, f"tidemark:latest@{folder / 'whole'}")
    _dicts.load_checkpoint = load
    return found


class LocalSGD(DDPStrategy):
    def _register_ddp_hooks(self):  # for Lightning only on GPUs
        self.model.register_comm_hook(self._ddp_comm_state, post_localSGD_hook)


def averaged(folder):
    """With models that differ from rank to rank until they are averaged."""
    state = PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=1, post_local_gradient_allreduce=False)
    callback = Noting(folder / "averaged")
    model, _ = fit(folder, [callback], 1, strategy=LocalSGD(ddp_comm_state=state, model_averaging_period=5))
    return [list(callback.ranks.replicated), digest(model)[0]]


def given(folder):
    """A function that is asked when the process group is there."""
    made = []

    def ranks():
        made.append(tidemark.Ranks.of_torch(vote_timeout=77.0, replicated=("nothing",)))
        return made[-1]

    callback = Noting(folder / "given", ranks=ranks)
    fit(folder, [callback], 1)
    return [callback.ranks.vote_timeout, list(callback.ranks.replicated), len(made)]


class WithIO(TidemarkCheckpointIO):
    """Rank 0 commits the step "early.ckpt" when rank 1 is about to read its file."""

    def _wait(self, path):
        distributed.distributed_c10d._get_default_store().set(f"{distributed.get_rank()} waits for {path}", "")
        super()._wait(path)

    def _committed(self, path, *arguments):
        if path.endswith("early.ckpt"):
            distributed.distributed_c10d._get_default_store().wait([f"1 waits for {path}"])
        super()._committed(path, *arguments)


class Early(lightning.Callback):
    """Saves in the middle of a training, and loads that at once."""

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 4:
            path = os.path.join(trainer.default_root_dir, "early.ckpt")
            trainer.save_checkpoint(path)
            self.loaded = trainer.strategy.load_checkpoint(path)["global_step"]


def with_io(folder, rank):
    """With Lightning's own callback."""
    early = Early()
    model, trainer = fit(folder, [ModelCheckpoint(folder / "files", save_last=True), early], 2, plugins=[
        WithIO(folder / "io")])
    found = {"trained": digest(model)[:2], "early": early.loaded}
    io = WithIO(folder / "io", close_timeout=0.1)
    model, trainer = fit(folder, [ModelCheckpoint(folder / "files")], 2, str(folder / "files" / "last.ckpt"), plugins=[io])
    found |= {"loaded": digest(model)[:2], "step": trainer.global_step, "saves": io._checkpointer is not None,
              "ranks": error_of(WithIO, folder / "io", ranks=None)}
    (folder / "sharded.ckpt").mkdir(exist_ok=True)
    found["folder"] = error_of(io.remove_checkpoint, folder / "sharded.ckpt")
    if rank == 0:
        found["unstorable"] = error_of(io.save_checkpoint, {"net": torch.nn.Linear(1, 1)}, folder / "none.ckpt")
        Announcement(str(folder / "never.ckpt")).begin()
    distributed.barrier()
    found["none"] = error_of(io.load_checkpoint, folder / "none.ckpt")
    found["never"] = error_of(io.load_checkpoint, folder / "never.ckpt")
    io.teardown()
    return found


class Preempted(TidemarkCheckpoint):
    """Rank 1 is told to end when a validation is about to begin."""

    def on_train_batch_end(self, trainer, *arguments):
        if (trainer.global_rank, trainer.global_step) == (1, 6):
            self.guard.note()
        super().on_train_batch_end(trainer, *arguments)


def preempted(folder):
    first = Preempted(folder / "preempted", save_top_k=-1, preemption=tidemark.PreemptionGuard(signals=(), grace=60))
    first.guard = first._preemption
    code = None
    try:
        fit(folder, [first])
    except SystemExit as exit:
        code = exit.code
    second = Preempted(folder / "preempted", save_top_k=-1)
    before = [info.metrics for info in tidemark.steps(second.store) if info.step == 6]
    model, _ = fit(folder, [second], EPOCHS, second.resume_path)
    fit(folder, [TidemarkCheckpoint(folder / "all", save_top_k=-1)])
    return {"code": code, "step": first.preempted.step, "before": before, "resumed": digest(model)}


class Unstorable(lightning.Callback):
    def state_dict(self):
        return {"net": torch.nn.Linear(1, 1)} if distributed.get_rank() == 0 else {"net": 1}


def failing(folder):
    """The last: rank 0 ends with an error at the first save, and so does its process."""
    warnings = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("tidemark").addHandler(handler)
    return [error_of(fit, folder, [TidemarkCheckpoint(folder / "failing"), Unstorable()]), *warnings]


class Killed(TidemarkCheckpoint):
    """Of one rank, which kills itself in the middle of an epoch."""

    rank = -1

    def on_train_batch_end(self, trainer, *arguments):
        super().on_train_batch_end(trainer, *arguments)
        if (trainer.global_rank, trainer.global_step) == (self.rank, 8):
            while not any(info.state == "committed" for info in tidemark.steps(self.store)):
                time.sleep(0.02)
            os.kill(os.getpid(), 9)


def killed(folder):
    callback = Killed(folder / "killed")
    model, trainer = fit(folder, [callback], EPOCHS, callback.resume_path)
    return digest(model)


def main(meeting, rank, world_size, folder):
    rank, world_size, folder = int(rank), int(world_size), pathlib.Path(folder)
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size,
                                         timeout=datetime.timedelta(seconds=rank_jobs.DEADLINE))
    groups = []
    group_of_host = ranks._group_of_host
    ranks._group_of_host = lambda group: groups.append(group) or group_of_host(group)
    # For Lightning these processes are torchrun's.
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "NODE_RANK": "0"}
    found = {**resumed(folder), "by_time": by_time(folder, rank), "single": begun(folder, "single"),
             "zero": sharded_optimizer(folder), "averaged": averaged(folder), "refused": refused(folder, rank),
             "edited": edited(folder), "given": given(folder), "io": with_io(folder, rank), "killed": killed(folder),
             "preempted": preempted(folder), "failing": failing(folder), "groups": len(groups)}
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        Killed.rank = 1
        killed(pathlib.Path(sys.argv[2]))
    else:
        main(*sys.argv[1:])
