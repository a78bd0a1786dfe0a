"""Restores by the integrations: the option `progress`, and tensors on devices."""

import pathlib
import subprocess
import sys

import lightning
import pytest
import tidemark
import torch
import torch.distributed.checkpoint as dcp
import transformers_test
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning_test import Model, fit
from tidemark.dcp import LoadPlanner, Reader, SavePlanner, Writer
from tidemark.errors import InternalError, InvalidArgumentError
from tidemark.lightning import TidemarkCheckpoint, TidemarkCheckpointIO, _callback

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks' advice


def check(told, total, step):
    """From the first tensor to the last, never back."""
    done = [progress.bytes_done for progress in told]
    assert len(told) >= 2 and done == sorted(set(done)) and done[0] > 0
    assert told[-1] == tidemark.RestoreProgress(step, total, total) and {progress.bytes_total for progress in told} == {total}


def bytes_of(store):
    with tidemark.open(store, framework="pt") as opened:
        return sum(opened.get_tensor(name).nbytes for name in opened.keys())


def stop(progress):
    raise ValueError("enough")


def resume(folder, path, callbacks=(), bar=False):
    trainer = lightning.Trainer(default_root_dir=folder, accelerator="cpu", max_epochs=2, logger=False, callbacks=list(callbacks),
                                enable_progress_bar=bar, enable_model_summary=False)
    trainer.validate(Model(), ckpt_path=path, verbose=False)


def test_lightnings_callback_tells_a_function(tmp_path):
    first = TidemarkCheckpoint(tmp_path / "store")
    fit(tmp_path, first, 1)
    total = bytes_of(tmp_path / "store")
    told = []
    resume(tmp_path, first.resume_path, [TidemarkCheckpoint(tmp_path / "store", progress=told.append)])
    check(told, total, step=told[-1].step)
    for others in ([TidemarkCheckpoint(tmp_path / "a"), TidemarkCheckpoint(tmp_path / "b", progress=told.append)],
                   [TidemarkCheckpoint(tmp_path / "a", progress=told.append), TidemarkCheckpoint(tmp_path / "b")]):
        told.clear()
        resume(tmp_path, first.resume_path, others)
        check(told, total, step=told[-1].step)
    with pytest.raises(InternalError, match=r"progress raised at step \d+: ValueError: enough"):
        resume(tmp_path, first.resume_path, [TidemarkCheckpoint(tmp_path / "store", progress=stop)])
    with pytest.raises(InvalidArgumentError, match="progress is 3, not a bool or a function"):
        TidemarkCheckpoint(tmp_path / "store", progress=3)


def test_lightnings_callback_shows_a_line_if_the_trainer_has_a_progress_bar(tmp_path, monkeypatch):
    first = TidemarkCheckpoint(tmp_path / "store")
    fit(tmp_path, first, 1)
    shown, load_step = [], _callback.load_step
    monkeypatch.setattr(_callback, "load_step", lambda *given: (shown.append(given[-1]), load_step(*given))[1])

    def callbacks(*progress):
        return [TidemarkCheckpoint(tmp_path / str(i), progress=one) for i, one in enumerate(progress)]

    def note(progress):
        pass

    for given, bar, expected in (
            ([None], False, False), ([None], True, True), ([False], True, False), ([True], False, True), ([note], True, note),
            ([None, False], True, True), ([False, None], True, True), ([None, False], False, False),
            ([note, None], True, note), ([None, note], True, note), ([True, note], False, note)):
        resume(tmp_path, first.resume_path, callbacks(*given), bar)
        assert shown.pop() is expected
    resume(tmp_path, first.resume_path, [TQDMProgressBar(refresh_rate=0), *callbacks(None)], bar=True)  # which is disabled
    assert shown == [False]


def test_lightnings_checkpoint_io_tells_a_function(tmp_path):
    checkpoint = {"state_dict": {"a": torch.ones(10), "b": torch.ones(20)}, "global_step": 4,
                  "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(5)}}}], "callbacks": {"c": torch.ones(3)}}
    told = []
    io = TidemarkCheckpointIO(tmp_path / "store", progress=told.append)
    io.save_checkpoint(checkpoint, tmp_path / "a.ckpt")
    assert io.load_checkpoint(tmp_path / "a.ckpt")["global_step"] == 4
    check(told, 4 * (10 + 20 + 5 + 3), step=4)
    told.clear()
    io.load_checkpoint("tidemark://latest")
    check(told, 4 * (10 + 20 + 5 + 3), step=4)
    io.teardown()
    with pytest.raises(InternalError, match="progress raised at step 4: ValueError: enough"):
        TidemarkCheckpointIO(tmp_path / "store", progress=stop).load_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(InvalidArgumentError, match="progress is 'yes', not a bool or a function"):
        TidemarkCheckpointIO(tmp_path / "store", progress="yes")


def test_the_trainer_of_transformers_tells_a_function(tmp_path, monkeypatch):
    transformers_test.make(tmp_path / "run").train(resume_from_checkpoint=True)
    told = []
    trainer = transformers_test.make(tmp_path / "run", progress=told.append)
    trainer.train(resume_from_checkpoint=True)
    ends = [progress.bytes_total for progress in told if progress.bytes_done == progress.bytes_total]
    model = sum(parameter.nbytes for parameter in trainer.model.parameters())  # tied ones once
    assert ends[:2] == [model, 2 * model] and told[-1].step == 24  # then with the two moments of Adam
    shown = []
    restore = tidemark.Checkpointer.restore
    monkeypatch.setattr(tidemark.Checkpointer, "restore", lambda self, *given, **options: (
        shown.append(options["progress"]), restore(self, *given, **options))[1])
    for options, expected in (({}, False), ({"progress": True}, True), ({"disable_tqdm": False}, True),
                              ({"disable_tqdm": False, "progress": False}, False)):
        shown.clear()
        transformers_test.make(tmp_path / "run", **options).train(resume_from_checkpoint=True)
        assert shown and set(shown) == {expected}
    with pytest.raises(InternalError, match="progress raised: ValueError: enough"):
        transformers_test.make(tmp_path / "run", progress=stop).train(resume_from_checkpoint=True)
    with pytest.raises(InvalidArgumentError, match="progress is 3, not a bool or a function"):
        transformers_test.make(tmp_path / "run", progress=3)


def test_a_reader_of_dcp_tells_a_function(tmp_path):
    def make(value):
        return {"w": torch.full((300,), value), "n": {"b": torch.full((5,), value, dtype=torch.bfloat16)},
                "scalar": torch.tensor(value), "epoch": int(value)}

    dcp.save(make(1.0), storage_writer=Writer(tmp_path / "store", step=7), planner=SavePlanner(), no_dist=True)
    told, state = [], make(0.0)
    dcp.load(state, storage_reader=Reader(tmp_path / "store", progress=told.append), planner=LoadPlanner(), no_dist=True)
    check(told, 1200 + 10 + 4, step=7)
    assert state["epoch"] == 1 and state["w"].sum() == 300
    told.clear()
    part = {"w": torch.zeros(300)}
    dcp.load(part, storage_reader=Reader(tmp_path / "store", progress=told.append), planner=LoadPlanner(), no_dist=True)
    assert told == [tidemark.RestoreProgress(7, 1200, 1200)]
    with pytest.raises(BaseException, match="progress raised at step 7: ValueError: enough"):
        dcp.load(make(0.0), storage_reader=Reader(tmp_path / "store", progress=stop), planner=LoadPlanner(), no_dist=True)
    with pytest.raises(InvalidArgumentError, match="progress is 3, not a bool or a function"):
        Reader(tmp_path / "store", progress=3)


def test_tensors_come_back_to_the_device_where_the_framework_has_them(tmp_path):
    program = pathlib.Path(__file__).with_name("device_process.py")
    result = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
