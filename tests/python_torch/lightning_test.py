"""tidemark.lightning: the callback and the CheckpointIO."""

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import unittest.mock

import lightning
import pytest
import tidemark
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.plugins.io.async_plugin import AsyncCheckpointIO
from tidemark.lightning._announcements import Announcement
from tidemark.lightning import ModuleEvaluation, TidemarkCheckpoint, TidemarkCheckpointIO

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice


class Model(BoringModel):
    """With dropout, so that a run depends on the generator, and Adam, so that it depends on the optimizer's state."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(32, 2))
        self.best_seen = float("inf")

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(batch).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


def fit(folder, callback, epochs, ckpt_path=None, **options):
    torch.manual_seed(7)
    model = Model()
    trainer = lightning.Trainer(default_root_dir=folder, accelerator="cpu", max_epochs=epochs, limit_train_batches=3,
                                logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=callback,
                                **{"limit_val_batches": 2, **options})
    trainer.fit(model, ckpt_path=ckpt_path)
    return model, trainer


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("arguments", [{}, {"every_n_train_steps": 3}, {"every_n_train_steps": 2}])
@pytest.mark.parametrize(("epochs", "options"), [
    (6, {}), (6, {"limit_val_batches": 0}), (-1, {"max_steps": 18}), (-1, {"max_steps": 18, "limit_val_batches": 0})])
def test_the_callback_resumes_bit_for_bit(tmp_path, epochs, options, arguments):
    """From the end of an epoch, or from its last batch."""
    whole, _ = fit(tmp_path, TidemarkCheckpoint(tmp_path / "whole", **arguments), epochs, **options)
    first = TidemarkCheckpoint(tmp_path / "parts", **arguments)
    assert first.resume_path is None
    fit(tmp_path, first, 2, **{**options, "max_steps": -1})
    second = TidemarkCheckpoint(tmp_path / "parts", **arguments)
    resumed, trainer = fit(tmp_path, second, epochs, second.resume_path, **options)
    assert trainer.global_step == 18 and trainer.current_epoch == 6
    assert same_weights(resumed, whole)


@pytest.mark.parametrize("monitor", ["", "val_loss"])
def test_lightning_finds_the_best_model(tmp_path, monitor):
    """Also where it is not told which: of the fit before."""
    callback = TidemarkCheckpoint(tmp_path / "store", monitor=monitor)
    assert callback.best_model_path == ""
    model, trainer = fit(tmp_path, callback, 4)
    with tidemark.open(tmp_path / "store", "best:val_loss" if monitor else "latest", "pt") as step:
        saved = {name: step.get_tensor(f"model.{name}") for name in model.state_dict()}
    for arguments in ({"ckpt_path": "best"}, {}):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        trainer.validate(verbose=False, **arguments)
        assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


def test_the_latest_and_the_best_steps_stay(tmp_path):
    losses = {}

    class Recording(TidemarkCheckpoint):
        def on_validation_end(self, trainer, pl_module):
            super().on_validation_end(trainer, pl_module)
            if not trainer.sanity_checking:
                losses[trainer.global_step] = trainer.callback_metrics["val_loss"].item()

    fit(tmp_path, Recording(tmp_path / "store", monitor="val_loss", save_top_k=2), 6)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        steps = {info.step: info for info in checkpointer.steps() if info.state == "committed"}
    best = sorted(losses, key=losses.get)[:2]
    assert set(steps) == {18, *best} and len(losses) == 6
    assert steps[18].metrics["val_loss"] == losses[18]
    with tidemark.open(tmp_path / "store", "best:val_loss", framework="pt") as step:
        assert step.info.step == best[0] and step.get_tensor("model.layer.1.weight").shape == (2, 32)


def test_the_sample_of_the_documents_runs(tmp_path, monkeypatch):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    samples = [sample for sample in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "import lightning" in sample]
    monkeypatch.chdir(tmp_path)
    for sample in samples * 2:
        exec(compile(sample, "docs/python.md", "exec"), {})
    with tidemark.Checkpointer(tmp_path / "run" / "ckpt") as checkpointer:
        assert len(samples) == 2 and checkpointer.latest_step().step == 128
    with tidemark.Checkpointer(tmp_path / "run" / "preemptible") as checkpointer:
        assert checkpointer.latest_step().step == 64


def test_saves_by_steps(tmp_path):
    fit(tmp_path, TidemarkCheckpoint(tmp_path / "store", every_n_train_steps=4, retention=tidemark.Retention()), 4)
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert [info.step for info in checkpointer.steps()] == [4, 8, 12]


def records(store):
    """{step: (outcome, reason)} of the evaluator "validation"."""
    return {info.step: (evaluation.outcome, evaluation.reason) for info in tidemark.steps(store)
            for evaluation in info.evaluations if evaluation.evaluator == "validation"}


def test_saved_steps_are_evaluated_beside_the_training(tmp_path):
    counted = []

    class Counting(TidemarkCheckpoint):
        def on_fit_end(self, trainer, pl_module):
            checkpointer = self._fit._checkpointer
            super().on_fit_end(trainer, pl_module)
            counted.append(checkpointer.statistics().background["evaluate"].count)

    def evaluate(module):
        assert not module.training and module.layer[1].weight.dtype == torch.bfloat16
        assert threading.current_thread() is not threading.main_thread()
        return {"norm": module.layer[1].weight.float().norm()}

    evaluation = ModuleEvaluation(evaluate, max_pending=8, half="bfloat16")
    model, _ = fit(tmp_path, Counting(tmp_path / "store", evaluation=evaluation), 3)
    assert model.layer[1].weight.dtype == torch.float32
    steps = {info.step: info.metrics for info in tidemark.steps(tmp_path / "store")}
    assert set(steps) == {3, 6, 9} and all("validation/norm" in metrics for metrics in steps.values())
    assert steps[9]["validation/norm"] == pytest.approx(model.layer[1].weight.norm().item(), rel=0.02)
    assert records(tmp_path / "store") == {step: ("done", "") for step in steps} and counted == [3]


def test_the_best_step_stays_whose_evaluation_comes_late(tmp_path):
    gate = threading.Event()
    losses = {3: 1.0, 6: 0.5, 9: 2.0, 12: 3.0}
    pending = []

    class Opening(TidemarkCheckpoint):
        def on_fit_end(self, trainer, pl_module):
            checkpointer = self._fit._checkpointer
            checkpointer.wait_until_committed()
            checkpointer.tidy()
            pending.extend(info.step for info in checkpointer.steps() if info.state == "committed")
            gate.set()
            super().on_fit_end(trainer, pl_module)

    def evaluate(module):
        gate.wait()
        return {"loss": losses.pop(min(losses))}

    callback = Opening(tmp_path / "store", monitor="validation/loss", evaluation=ModuleEvaluation(evaluate, max_pending=4))
    fit(tmp_path, callback, 4)
    assert pending == [3, 6, 9, 12]
    with tidemark.Checkpointer(tmp_path / "store", retention=tidemark.Retention(
            max_to_keep=1, keep_best=["validation/loss"])) as checkpointer:
        checkpointer.tidy()
        assert [info.step for info in checkpointer.steps() if info.state == "committed"] == [6, 12]


def test_an_evaluation_that_fails_leaves_the_training_alone(tmp_path, caplog):
    def evaluate(module):
        raise RuntimeError("no such data")

    callback = TidemarkCheckpoint(tmp_path / "store", evaluation=ModuleEvaluation(evaluate, max_pending=8))
    fit(tmp_path, callback, 2)
    assert [step for step, _ in callback.skipped_evaluations] == [3, 6]
    assert all("RuntimeError: no such data" in reason for _, reason in callback.skipped_evaluations)
    assert "evaluator 'validation' failed at step 3" in caplog.text and "no such data" in caplog.text
    assert {outcome for outcome, _ in records(tmp_path / "store").values()} == {"failed"}


def test_more_evaluations_than_may_wait_are_left_out(tmp_path):
    gate = threading.Event()

    def evaluate(module):
        gate.wait()
        return {}

    class Opening(TidemarkCheckpoint):
        def on_fit_end(self, trainer, pl_module):
            gate.set()
            super().on_fit_end(trainer, pl_module)

    callback = Opening(tmp_path / "store", evaluation=ModuleEvaluation(evaluate))
    fit(tmp_path, callback, 3)
    assert [step for step, _ in callback.skipped_evaluations] == [6, 9]
    skipped = {step: ("skipped", why) for step, why in callback.skipped_evaluations}
    assert records(tmp_path / "store") == {3: ("done", ""), **skipped}


def test_those_that_are_queued_are_read_from_the_disk(tmp_path):
    gate = threading.Event()
    norms = []

    def evaluate(module):
        gate.wait()
        norms.append(module.layer[1].weight.norm().item())

    class Opening(TidemarkCheckpoint):
        def on_fit_end(self, trainer, pl_module):
            gate.set()
            super().on_fit_end(trainer, pl_module)

    callback = Opening(tmp_path / "store", evaluation=ModuleEvaluation(evaluate, on_backpressure="queue"),
                       retention=tidemark.Retention())
    fit(tmp_path, callback, 4)
    stored = []
    for step in (3, 6, 9, 12):
        with tidemark.open(tmp_path / "store", step, framework="pt") as opened:
            stored.append(opened.get_tensor("model.layer.1.weight").norm().item())
    assert norms == stored and callback.skipped_evaluations == []


def test_one_that_is_not_done_in_time_is_given_up(tmp_path, caplog):
    gate = threading.Event()
    callback = TidemarkCheckpoint(tmp_path / "store", evaluation=ModuleEvaluation(
        lambda module: gate.wait() and {}, max_pending=2, on_backpressure="oldest", drain=0))
    try:
        fit(tmp_path, callback, 4)
        assert "closing without the evaluations that have not ended" in caplog.text and "'validation'" in caplog.text
        assert callback.skipped_evaluations[-1][0] == 12
        tidemark.Checkpointer(tmp_path / "store").close()  # the store is free
    finally:
        gate.set()


def test_after_an_exception_no_evaluation_is_waited_for(tmp_path):
    gate = threading.Event()

    class Stopped(Exception):
        pass

    class Stopping(TidemarkCheckpoint):
        def on_train_batch_end(self, trainer, *arguments):
            super().on_train_batch_end(trainer, *arguments)
            if trainer.global_step == 4:
                raise Stopped

    try:
        with pytest.raises(Stopped):
            fit(tmp_path, Stopping(tmp_path / "store", evaluation=ModuleEvaluation(lambda module: gate.wait() and {})), 4)
        with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
            assert checkpointer.latest_step().step == 3
    finally:
        gate.set()


def test_wrong_options_are_refused(tmp_path):
    for options in ({"max_pending": 0}, {"on_backpressure": "wait"}, {"half": "int8"}):
        with pytest.raises(tidemark.errors.InvalidArgumentError, match=next(iter(options))):
            ModuleEvaluation(dict, **options)
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="mode is 'lowest'"):
        TidemarkCheckpoint(tmp_path, mode="lowest")


CHECKPOINT = {"state_dict": {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer._extra_state": {"a": 1}},
              "global_step": 4,
              "callbacks": {"C{'monitor': None}": {"best": torch.tensor(-float("inf")), "k": {"/a/b.ckpt": 1.5}}},
              "optimizer_states": [{"state": {0: {"step": torch.tensor(4.0), "exp_avg": torch.ones(2, 3)}}, "param_groups": [{
                  "params": [0], "betas": (0.9, 0.999), "foreach": None}]}], "loops": {"done": True}}


def assert_equal(a, b):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b) and a.dtype == b.dtype
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            assert_equal(x, y)
    else:
        assert a == b and type(a) is type(b)


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    io = TidemarkCheckpointIO(tmp_path / "store")
    io.save_checkpoint(CHECKPOINT, tmp_path / "deep" / "a.ckpt")
    assert_equal(io.load_checkpoint(tmp_path / "deep" / "a.ckpt"), CHECKPOINT)
    io.teardown()
    assert_equal(io.load_checkpoint("tidemark:latest"), CHECKPOINT)
    assert os.path.getsize(tmp_path / "deep" / "a.ckpt") < 200
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.step == 4 and step.get_tensor("model.layer.weight").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_step_whose_optimizers_are_in_the_same_entry_as_the_rest_is_read(tmp_path):
    """Older versions saved it so."""
    class Rest:
        def state_dict(self):
            return {"optimizer_states": CHECKPOINT["optimizer_states"], "global_step": 4}

        def load_state_dict(self, state):
            raise AssertionError

    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(4, {"lightning": Rest()})
    found = TidemarkCheckpointIO(tmp_path / "store").load_checkpoint("tidemark:4")
    assert_equal(found, {"optimizer_states": CHECKPOINT["optimizer_states"], "global_step": 4})


def test_two_paths_at_one_step_are_two_checkpoints(tmp_path):
    io = TidemarkCheckpointIO(tmp_path / "store")
    io.save_checkpoint({"global_step": 3, "who": "a"}, tmp_path / "a.ckpt")
    io.save_checkpoint({"global_step": 3, "who": "b"}, tmp_path / "b.ckpt")
    io.save_checkpoint({"global_step": 3, "who": "c"}, tmp_path / "a.ckpt")
    io.teardown()
    assert io.load_checkpoint(tmp_path / "a.ckpt")["who"] == "c" and io.load_checkpoint(tmp_path / "b.ckpt")["who"] == "b"


def test_removing_the_file_deletes_the_step(tmp_path):
    io = TidemarkCheckpointIO(tmp_path / "store")
    for step in (1, 2, 3):
        io.save_checkpoint({"global_step": step}, tmp_path / f"{step}.ckpt")
    for step in (3, 1):
        io.remove_checkpoint(tmp_path / f"{step}.ckpt")
        assert not (tmp_path / f"{step}.ckpt").exists()
    io.remove_checkpoint(tmp_path / "none.ckpt")
    io.save_checkpoint({"global_step": 4}, tmp_path / "4.ckpt")
    io.teardown()
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        assert [info.step for info in checkpointer.steps() if info.state == "committed"] == [2, 4]


def test_a_folder_that_is_a_link_is_the_same_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    link = tmp_path / "deep" / "er" / "link"
    link.symlink_to(tmp_path / "real")
    io = TidemarkCheckpointIO(link / "store")
    for step in (1, 2):
        io.save_checkpoint({"global_step": step}, link / f"{step}.ckpt")
        assert io.load_checkpoint(link / f"{step}.ckpt")["global_step"] == step  # though it may not be committed yet
    io.save_checkpoint({"global_step": 3}, link / "3.ckpt")
    io.remove_checkpoint(link / "3.ckpt")
    io.teardown()
    assert sorted(file.name for file in (tmp_path / "real").iterdir()) == ["1.ckpt", "2.ckpt", "store"]
    os.rename(tmp_path / "real", tmp_path / "moved")  # with the store in it
    assert io.load_checkpoint(tmp_path / "moved" / "2.ckpt")["global_step"] == 2


def test_a_save_that_is_interrupted_is_not_waited_for(tmp_path, monkeypatch):
    announced = []
    monkeypatch.setattr(Announcement, "begin", lambda self: announced.append("begin"))
    monkeypatch.setattr(Announcement, "end", lambda self: announced.append("end"))
    io = TidemarkCheckpointIO(tmp_path / "store")
    save = tidemark.Checkpointer.save

    def interrupted(*arguments, **options):
        save(*arguments, **options).committed.result()
        return unittest.mock.Mock(**{"committed.add_done_callback.side_effect": KeyboardInterrupt})

    monkeypatch.setattr(tidemark.Checkpointer, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        io.save_checkpoint({"global_step": 1}, tmp_path / "a.ckpt")
    assert announced == ["begin", "end"] and not io._pending
    io.teardown()
    assert not (tmp_path / "a.ckpt").exists()


def test_what_is_no_reference_or_names_another_save_is_refused(tmp_path):
    io = TidemarkCheckpointIO(tmp_path / "store")
    io.save_checkpoint({"global_step": 1}, tmp_path / "a.ckpt")
    io.teardown()
    for text in ("", "[]", "{}", '{"tidemark": 2}', '{"tidemark": 1, "step": "1", "store": "store", "save": ""}'):
        (tmp_path / "b.ckpt").write_text(text)
        with pytest.raises(tidemark.errors.InvalidArgumentError, match="b.ckpt names no step of a store"):
            io.load_checkpoint(tmp_path / "b.ckpt")
    reference = json.loads((tmp_path / "a.ckpt").read_text())
    for change, message in (({"save": "0"}, "not in .* any more"), ({"step": 9}, "9")):
        (tmp_path / "b.ckpt").write_text(json.dumps({**reference, **change}))
        with pytest.raises(tidemark.NotFoundError, match=message):
            io.load_checkpoint(tmp_path / "b.ckpt")
    with pytest.raises(FileNotFoundError):
        io.load_checkpoint(tmp_path / "none.ckpt")
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="host memory"):
        io.load_checkpoint(tmp_path / "a.ckpt", map_location="cuda:0")
    with tidemark.Checkpointer(tmp_path / "other") as checkpointer:
        checkpointer.save(1, {"a": 1})
    with pytest.raises(tidemark.NotFoundError, match="step 1 has no entry 'lightning': the integration of another framework"):
        TidemarkCheckpointIO(tmp_path / "other").load_checkpoint("tidemark:1")


def test_what_cannot_be_stored_is_named(tmp_path):
    io = TidemarkCheckpointIO(tmp_path / "store")
    with pytest.raises(tidemark.UnsupportedTypeError, match=r"'lightning.hyper_parameters.net' is a .*Linear.*tidemark.register"):
        io.save_checkpoint({"hyper_parameters": {"net": torch.nn.Linear(1, 1)}}, tmp_path / "a.ckpt")
    with pytest.raises(TypeError, match="storage_options"):
        io.save_checkpoint({}, tmp_path / "a.ckpt", storage_options={})
    io.teardown()
    assert not (tmp_path / "a.ckpt").exists()


def test_a_file_that_cannot_be_written_is_raised_later(tmp_path):
    io = TidemarkCheckpointIO(tmp_path / "store")
    (tmp_path / "a.ckpt").mkdir()
    io.save_checkpoint({"global_step": 1}, tmp_path / "a.ckpt")
    with pytest.raises(IsADirectoryError):
        io.teardown()
    io.teardown()


@pytest.mark.parametrize(("wrapped", "save_last"), [(False, True), (False, "link"), (True, True)])
def test_the_io_serves_the_callbacks_of_lightning(tmp_path, wrapped, save_last):
    io = TidemarkCheckpointIO(tmp_path / "store")
    callback = ModelCheckpoint(tmp_path / "files", monitor="val_loss", save_top_k=2, save_last=save_last)
    fit(tmp_path, callback, 2, plugins=[AsyncCheckpointIO(io) if wrapped else io])
    tidemark.Checkpointer(tmp_path / "store").close()  # it holds the store no longer, though a wrapper passes no teardown on
    assert io.load_checkpoint(tmp_path / "files" / "last.ckpt")["global_step"] == 6
    again = ModelCheckpoint(tmp_path / "files", monitor="val_loss", save_top_k=2, save_last=save_last)
    resumed, trainer = fit(tmp_path, again, 4,
                           str(tmp_path / "files" / "last.ckpt"), plugins=[TidemarkCheckpointIO(tmp_path / "store")])
    assert trainer.global_step == 12
    assert [list(g["betas"]) for g in trainer.optimizers[0].param_groups] == [[0.9, 0.999]]
    files = {file.name for file in (tmp_path / "files").iterdir()}
    assert "last.ckpt" in files and len(files) == 3


def test_processes_that_multiprocessing_starts_are_refused(tmp_path):
    """In a process of its own, which has no threads yet when it forks."""
    script = tmp_path / "train.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {os.fspath(pathlib.Path(__file__).parent)!r})
from lightning_test import ModelCheckpoint, TidemarkCheckpointIO, fit

if __name__ == "__main__":
    for strategy in ("ddp_spawn", "ddp_fork"):
        try:
            fit({os.fspath(tmp_path)!r}, ModelCheckpoint({os.fspath(tmp_path)!r}), 1, strategy=strategy, devices=1, plugins=[
                TidemarkCheckpointIO({os.fspath(tmp_path / "store")!r})])
        except Exception as error:
            print(strategy, type(error).__name__, str(error).strip().splitlines()[-1])
""")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = [line for line in ran.stdout.splitlines() if line.startswith("ddp_")]
    assert len(found) == 2 and all("TidemarkCheckpointIO saves only in the process that made it" in line for line in found)
    assert found[0].startswith("ddp_spawn UnimplementedError ")  # at the start
    assert found[1].startswith("ddp_fork ProcessRaisedException tidemark.errors.UnimplementedError: ")


def test_a_killed_process_resumes_from_its_last_commit(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"""
import os, sys
sys.path.insert(0, {os.fspath(pathlib.Path(__file__).parent)!r})
import lightning_test
from tidemark.lightning import TidemarkCheckpoint
kill = int(sys.argv[1])

class Killed(TidemarkCheckpoint):
    def on_train_batch_end(self, trainer, *arguments):
        super().on_train_batch_end(trainer, *arguments)
        if trainer.global_step == kill:
            os.kill(os.getpid(), 9)

callback = Killed({os.fspath(tmp_path / "store")!r})
model, trainer = lightning_test.fit({os.fspath(tmp_path)!r}, callback, 6, callback.resume_path)
print(model.layer[1].weight.sum().item().hex(), trainer.global_step)
""")
    for kill in (5, 11, 16):
        killed = subprocess.run([sys.executable, script, str(kill)], capture_output=True, text=True)
        assert killed.returncode == -9, killed.stderr
    last = subprocess.run([sys.executable, script, "-1"], capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    whole, _ = fit(tmp_path, TidemarkCheckpoint(tmp_path / "whole"), 6)
    assert last.stdout.split() == [whole.layer[1].weight.sum().item().hex(), "18"]


@pytest.mark.parametrize("kind", [TidemarkCheckpoint, TidemarkCheckpointIO])
def test_an_option_that_is_none_is_an_error_of_the_constructor(tmp_path, kind):
    with pytest.raises(tidemark.errors.InvalidArgumentError,
                       match=f"{kind.__name__} has no option 'when_ful': did you mean 'when_full'"):
        kind(tmp_path / "store", when_ful="skip")
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="save_timeout is '1', a str: it must be a number"):
        kind(tmp_path / "store", save_timeout="1")
