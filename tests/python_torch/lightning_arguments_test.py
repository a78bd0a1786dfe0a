"""The arguments of ModelCheckpoint that TidemarkCheckpoint has too, and the others: `make test-python-torch`."""

import datetime
import types

import pytest
import tidemark
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning_test import fit, same_weights
from tidemark.errors import InvalidArgumentError
from tidemark.lightning import TidemarkCheckpoint, TidemarkCheckpointIO, _callback

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice


def both(folder, epochs, trainer=None, **arguments):
    """The steps that ModelCheckpoint saves, and those that TidemarkCheckpoint saves."""
    fit(folder, ModelCheckpoint(folder / "files", filename="{step}", save_top_k=-1, **arguments), epochs, **(trainer or {}))
    fit(folder, TidemarkCheckpoint(folder / "store", save_top_k=-1, **arguments), epochs, **(trainer or {}))
    files = folder / "files"
    theirs = sorted(int(file.stem.partition("=")[2]) for file in files.iterdir()) if files.exists() else []
    ours = [step.step for step in tidemark.steps(folder / "store")] if (folder / "store").exists() else []
    return theirs, ours


@pytest.mark.parametrize("kind", [TidemarkCheckpoint, TidemarkCheckpointIO])
def test_a_store_of_a_wrong_type_is_named(kind):
    with pytest.raises(InvalidArgumentError, match="store is 3, .*: it must be a str or an os.PathLike"):
        kind(3)


@pytest.mark.parametrize(("arguments", "trainer", "expected"), [
    ({}, {}, [3, 6, 9, 12]),
    ({"every_n_train_steps": 5}, {}, [5, 10]),
    ({"every_n_epochs": 2}, {}, [6, 12]),
    ({"every_n_epochs": 2, "every_n_train_steps": 0}, {}, [6, 12]),
    ({"every_n_epochs": 2, "save_on_train_epoch_end": False}, {"val_check_interval": 1}, [4, 5, 6, 10, 11, 12]),
    ({"every_n_epochs": 2, "save_on_train_epoch_end": False}, {"check_val_every_n_epoch": 3}, []),
    ({"save_on_train_epoch_end": True}, {"check_val_every_n_epoch": 3}, [3, 6, 9, 12]),
    ({"train_time_interval": datetime.timedelta()}, {}, list(range(1, 13))),
    ({"train_time_interval": datetime.timedelta(hours=1)}, {}, []),
    ({"every_n_train_steps": 1}, {"fast_dev_run": True}, []),
])
def test_the_steps_are_those_of_model_checkpoint(tmp_path, arguments, trainer, expected):
    assert both(tmp_path, 4, trainer, **arguments) == (expected, expected)


def test_the_interval_begins_with_the_training_and_with_each_save(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_callback, "time", types.SimpleNamespace(monotonic=lambda: now[0]))

    class Clocked(TidemarkCheckpoint):
        def on_train_batch_end(self, *arguments):
            now[0] += 20
            super().on_train_batch_end(*arguments)

    fit(tmp_path, Clocked(tmp_path / "store", save_top_k=-1, train_time_interval=datetime.timedelta(seconds=50)), 4)
    assert [step.step for step in tidemark.steps(tmp_path / "store")] == [3, 6, 9, 12]
    now[0] = 5000.0
    fit(tmp_path, Clocked(tmp_path / "other", save_top_k=-1, train_time_interval=datetime.timedelta(seconds=70)), 3)
    assert [step.step for step in tidemark.steps(tmp_path / "other")] == [4, 8]


@pytest.mark.parametrize(("due", "expected"), [(1, 2), (2, 2), (3, 3), (4, 5), (5, 5)])
def test_a_save_by_time_waits_for_the_step_of_the_accumulated_gradients(tmp_path, monkeypatch, due, expected):
    """Of each epoch's three batches, the second and the last are followed by a step of the optimizer."""
    batches, saved_after = 0, []
    monkeypatch.setattr(_callback, "time", types.SimpleNamespace(monotonic=lambda: float(batches >= due)))

    class Counting(TidemarkCheckpoint):
        def on_train_batch_end(self, *arguments):
            nonlocal batches
            batches += 1
            super().on_train_batch_end(*arguments)

        def on_save_checkpoint(self, *_):
            saved_after.append(batches)

    callback = Counting(tmp_path / "store", train_time_interval=datetime.timedelta(seconds=0.5))
    fit(tmp_path, callback, 3, accumulate_grad_batches=2)
    assert saved_after == [expected]


def test_a_save_at_the_end_of_the_epoch_has_its_metrics_and_resumes_bit_for_bit(tmp_path):
    class Logging(TidemarkCheckpoint):
        def on_train_batch_end(self, trainer, module, outputs, *arguments):
            module.log("train_loss", outputs["loss"], on_step=False, on_epoch=True)
            super().on_train_batch_end(trainer, module, outputs, *arguments)

    arguments = {"monitor": "train_loss", "save_on_train_epoch_end": True}
    whole, _ = fit(tmp_path, Logging(tmp_path / "whole", **arguments), 4)
    fit(tmp_path, Logging(tmp_path / "parts", **arguments), 2)
    assert all("train_loss" in step.metrics for step in tidemark.steps(tmp_path / "parts"))
    callback = Logging(tmp_path / "parts", **arguments)
    resumed, trainer = fit(tmp_path, callback, 4, callback.resume_path)
    assert trainer.global_step == 12 and same_weights(resumed, whole)


@pytest.mark.parametrize(("arguments", "words"), [
    ({"dirpath": "x"}, "dirpath: the store is the first argument"),
    ({"filename": "{epoch}"}, "tidemark.steps"),
    ({"auto_insert_metric_name": False}, "a step has a number"),
    ({"enable_version_counter": False}, "replaces it"),
    ({"save_last": True}, "resume_path"),
    ({"save_weights_only": True}, "load_from_checkpoint"),
    ({"save_on_exception": True}, "saves that have begun"),
    ({"verbose": True}, "observer"),
    ({"save_interval_steps": 5}, "use every_n_train_steps, every_n_epochs or train_time_interval"),
    ({"save_when": bool}, "use every_n_train_steps"),
    ({"staging": "overlapped"}, "'blocking' or 'on_device'"),
    ({"every_n_epochs": 0}, "every_n_epochs is 0, so nothing would be saved: leave the callback out"),
    ({"every_n_train_steps": 0}, "every_n_train_steps is 0, so nothing would be saved"),
    ({"every_n_train_steps": 0, "every_n_epochs": 0}, "is 0, so nothing would be saved"),
    ({"save_top_k": -1, "retention": None}, "save_top_k is -1, and retention= replaces"),
    ({"every_n_epochs": -1}, "every_n_epochs is -1"),
    ({"every_n_train_steps": -1}, "every_n_train_steps is -1"),
    ({"train_time_interval": 5}, "expected a datetime.timedelta"),
    ({"train_time_interval": datetime.timedelta(-1)}, "of 0 or more"),
    ({"every_n_epochs": 2, "every_n_train_steps": 3}, "every_n_train_steps and every_n_epochs are given together"),
    ({"every_n_epochs": 2, "train_time_interval": datetime.timedelta(1)}, "choose one"),
])
def test_what_has_no_meaning_is_refused_with_what_to_use_instead(tmp_path, arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        TidemarkCheckpoint(tmp_path, **arguments)
