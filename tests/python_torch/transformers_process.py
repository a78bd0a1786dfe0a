"""A job of two processes, for transformers_ranks_test.py: transformers_process.py FOLDER. It is started twice, because rank 1
kills itself. Each rank writes what it found as JSON into FOLDER/found-RANK."""

import contextlib
import datetime
import json
import logging
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import unittest.mock

import tidemark
import torch
import transformers
from accelerate.state import AcceleratorState
from tidemark._evaluation import ModuleEvaluator
from tidemark.transformers import ModuleEvaluation, TidemarkCallback
from transformers.trainer_callback import ExportableState

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

from rank_jobs import DEADLINE  # noqa: E402
from transformers_test import held_out_loss, losses, make, weights  # noqa: E402

STEPS = 24


class Seed(transformers.TrainerCallback):
    """Each rank draws numbers of its own."""

    def on_train_begin(self, args, state, control, **_):
        torch.manual_seed(7 + args.process_index)


def trainer_of(folder, *callbacks, **options):
    backend = {"ddp_backend": "gloo"} if "WORLD_SIZE" in os.environ else {}
    return make(folder, callbacks=[Seed(), *callbacks], **backend, **options)


def digest(trainer):
    """Of the weights and the losses, and the next number of the generator."""
    return [weights(trainer).sum().item().hex(), losses(trainer)[STEPS].hex(), torch.rand(()).item().hex()]


def error_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def trained(folder, *callbacks, resume=True, **options):
    trainer = trainer_of(folder, *callbacks, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


class Killed(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 13 and args.process_index == 1:
            os.kill(os.getpid(), signal.SIGKILL)


class Stopped(Exception):
    pass


class Start(transformers.TrainerCallback):
    """Notes what a training begins with, and ends it."""

    def on_step_begin(self, args, state, control, model=None, **_):
        self.found = [state.global_step, sum(tensor.sum() for tensor in model.state_dict().values()).item().hex(),
                      torch.rand(()).item().hex()]
        raise Stopped


def begun(folder, **options):
    """[the step, the sum of the weights, the next random number] at the start."""
    start = Start()
    message = error_of(trained, folder, start, max_steps=2 * STEPS, **options)
    assert message == "Stopped: ", message
    return start.found


def raising(where, name, rank, error):
    """Has a function raise on one rank."""
    if torch.distributed.get_rank() != rank:
        return contextlib.nullcontext()
    return unittest.mock.patch.object(where, name, side_effect=error)


def of_one_rank(folder):
    """What all ranks raise after an error of one."""
    with raising(tempfile, "mkdtemp", 1, OSError("the disk is full")):
        found = {"folder": error_of(trained, folder / "whole")}
    evaluation = ModuleEvaluation(held_out_loss)
    trainer = trainer_of(folder / "evaluators", evaluation=evaluation)
    callback = TidemarkCallback(folder / "evaluators_of_callback", evaluation=evaluation)
    beside = trainer_of(folder / "plain", callback, kind=transformers.Trainer, save_strategy="no")
    with raising(ModuleEvaluator, "__init__", 0, TypeError("no copy")):
        found |= {"evaluators": error_of(trainer.train), "callback": error_of(beside.train)}
    with raising(tidemark.Checkpointer, "wait_until_committed", 0, ValueError("not committed")):
        found["best"] = error_of(with_the_best, folder / "unread")
    return found


def refused(folder):
    found = {"ranks": error_of(trained, folder / "refused", ranks=tidemark.Ranks(0, 1, list)),
             "no_step": error_of(trained, folder / "whole", resume="tidemark:77"),
             "skips": error_of(trained, folder / "refused", checkpointer_options={"when_full": "skip"}),
             "jit": error_of(trained, folder / "refused", enable_jit_checkpoint=True)}
    trainer = trainer_of(folder / "refused")
    trainer.is_fsdp_enabled = True
    found["sharded"] = error_of(trainer.train)
    trainer = trainer_of(folder / "refused", kind=transformers.Trainer, save_strategy="no")
    kinds = AcceleratorState._shared_state
    before = kinds["distributed_type"]
    kinds["distributed_type"] = type(before).MEGATRON_LM
    found["kind"] = error_of(TidemarkCallback(folder / "refused").on_train_begin, trainer.args, trainer.state, trainer.control)
    kinds["distributed_type"] = before
    return found


def with_callback(folder):
    """Beside a Trainer as it is, and with an evaluation."""
    callback = TidemarkCallback(folder / "callback", every_steps=10, evaluation=ModuleEvaluation(held_out_loss, max_pending=9))
    trainer = trainer_of(folder / "plain", callback, kind=transformers.Trainer, save_strategy="no")
    trainer.train()
    return digest(trainer)


def with_the_best(folder):
    trainer = trained(folder / "best", eval_strategy="steps", eval_steps=5, load_best_model_at_end=True, save_total_limit=1,
                      metric_for_best_model="loss", greater_is_better=True)
    return [trainer.state.best_global_step, weights(trainer).sum().item().hex()]


class Unstorable(transformers.TrainerCallback, ExportableState):
    """On rank 0 its state cannot be had when the first step is saved."""

    fails = False

    def on_step_end(self, args, state, control, **_):
        self.fails = args.process_index == 0

    def state(self):
        if self.fails:
            raise ValueError("this has no state")
        return {"args": {}, "attributes": {}}


def failing(folder):
    """The last: rank 0 ends with an error at the first save, and so does its process."""
    warnings = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("tidemark").addHandler(handler)
    return [error_of(trained, folder / "failing", Unstorable()), *warnings]


def run(folder, rank, life):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    # So for Transformers torchrun has started it.
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / f'meeting-{life}'}", rank=rank, world_size=2,
                                         timeout=datetime.timedelta(seconds=DEADLINE))
    if life == 0:
        trained(folder / "killed", Killed())
    found = {"killed": digest(trained(folder / "killed"))}
    evaluations = []

    def evaluate(module):
        evaluations.append(1)
        return held_out_loss(module)

    whole = trained(folder / "whole", evaluation=ModuleEvaluation(evaluate, max_pending=9))
    found |= {"whole": digest(whole), "evaluations": len(evaluations), "skipped": whole.skipped_evaluations,
              "again": digest(trained(folder / "whole", resume="tidemark:10")), "callback": with_callback(folder),
              "best": with_the_best(folder), "of_one_rank": of_one_rank(folder), "single": begun(folder / "single"),
              "refused": refused(folder), "failing": failing(folder)}
    (folder / f"found-{rank}").write_text(json.dumps(found))


def main(folder):
    fork = multiprocessing.get_context("fork")  # importing the libraries takes most of the time
    for life in (0, 1):
        ranks = [fork.Process(target=run, args=(folder, rank, life)) for rank in (0, 1)]
        for process in ranks:
            process.start()
        ranks[1].join(DEADLINE)
        if life == 0:  # as torchrun does: rank 0 could wait for a vote of rank 1
            ranks[0].terminate()
        ranks[0].join(DEADLINE)
        codes = [process.exitcode for process in ranks]
        for process in ranks:
            process.kill()
        assert codes[0] in ((1, -signal.SIGTERM), (0,))[life] and codes[1] == (-signal.SIGKILL, 0)[life], codes


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
