"""The metric by which TidemarkCheckpoint finds the best step: `make test-python-torch`."""

import datetime

import lightning
import pytest
import tidemark
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning_test import Model
from tidemark.lightning import ModuleEvaluation, TidemarkCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice


class Scored(Model):
    """Logs a metric at the end of each validation: its values by the global step, or the global step itself."""

    def __init__(self, name, values=None):
        super().__init__()
        self.metric, self.values = name, values

    def on_validation_epoch_end(self):
        step = self.trainer.global_step
        self.log(self.metric, float(step if self.values is None else self.values.get(step, 0)))


def fit(folder, callback, model, epochs=3, ckpt_path=None, **options):
    """Three batches each epoch, and then a validation."""
    trainer = lightning.Trainer(default_root_dir=folder, accelerator="cpu", max_epochs=epochs, logger=False, callbacks=[callback],
                                enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                                **{"limit_train_batches": 3, "limit_val_batches": 1, **options})
    trainer.fit(model, ckpt_path=ckpt_path)
    return trainer


@pytest.mark.parametrize(("name", "mode"), [("val_accuracy", "min"), ("val_loss", "max"), ("score", "min"), ("margin", "max")])
def test_the_best_step_is_that_of_the_mode_whatever_the_metric_is_called(tmp_path, name, mode):
    values = {3: 5.0, 6: 9.0, 9: 1.0}
    theirs = ModelCheckpoint(tmp_path / "files", filename="{step}", monitor=name, mode=mode, save_top_k=-1)
    fit(tmp_path, theirs, Scored(name, values))
    ours = TidemarkCheckpoint(tmp_path / "store", monitor=name, mode=mode, save_top_k=-1)
    trainer = fit(tmp_path, ours, Scored(name, values))
    best = 9 if mode == "min" else 6
    assert theirs.best_model_path.endswith(f"step={best}.ckpt")
    with tidemark.open(tmp_path / "store", best, "pt") as step:
        expected = step.get_tensor("model.layer.1.weight")
    assert Model.load_from_checkpoint(ours.best_model_path).layer[1].weight.equal(expected)
    trainer.validate(ckpt_path="best", verbose=False)
    assert trainer.lightning_module.layer[1].weight.equal(expected)


@pytest.mark.parametrize(("arguments", "trainer", "expected"), [
    ({"every_n_train_steps": 3, "save_on_train_epoch_end": False}, {}, {3: 3.0, 6: 6.0, 9: 9.0}),
    ({"train_time_interval": datetime.timedelta(0), "save_on_train_epoch_end": False}, {"limit_train_batches": 1},
     {1: 1.0, 2: 2.0, 3: 3.0})])
def test_a_step_that_a_validation_follows_has_its_metric_as_with_model_checkpoint(tmp_path, arguments, trainer, expected):
    fit(tmp_path, ModelCheckpoint(tmp_path / "files", filename="{step}={score}", auto_insert_metric_name=False, monitor="score",
                                  save_top_k=-1, **arguments), Scored("score"), **trainer)
    files = [file.stem.split("=") for file in (tmp_path / "files").iterdir()]
    fit(tmp_path, TidemarkCheckpoint(tmp_path / "store", monitor="score", save_top_k=-1, **arguments), Scored("score"), **trainer)
    assert {int(step): float(score) for step, score in files} == expected
    assert {step.step: step.metrics.get("score") for step in tidemark.steps(tmp_path / "store")} == expected


@pytest.mark.parametrize(("trainer", "expected"), [
    ({}, {2: None, 4: 3.0, 6: 6.0, 8: 6.0}),
    ({"limit_train_batches": 4, "val_check_interval": 2}, {2: 2.0, 4: 4.0, 6: 6.0, 8: 8.0, 10: 10.0, 12: 12.0})])
def test_another_step_has_the_metric_of_the_validation_before(tmp_path, trainer, expected):
    fit(tmp_path, TidemarkCheckpoint(tmp_path / "store", monitor="score", save_top_k=-1, every_n_train_steps=2), Scored("score"),
        **trainer)
    assert {step.step: step.metrics.get("score") for step in tidemark.steps(tmp_path / "store")} == expected


class OfAnotherRank(SingleDeviceStrategy):
    """Rank 0 has not seen that a validation is due by its clock."""

    def broadcast(self, obj, src=0):
        return False if obj is True else obj


def test_rank_0_decides_whether_a_validation_follows(tmp_path):
    fit(tmp_path, TidemarkCheckpoint(tmp_path / "store", save_top_k=-1, every_n_train_steps=3), Scored("score"),
        strategy=OfAnotherRank(torch.device("cpu")))
    assert {step.step: step.metrics.get("score") for step in tidemark.steps(tmp_path / "store")} == {3: None, 6: 3.0, 9: 6.0}


@pytest.mark.parametrize(("arguments", "trainer", "step"), [
    ({}, {}, 3), ({}, {"limit_val_batches": 0}, 3), ({"every_n_train_steps": 2}, {}, 4), ({"save_top_k": -1}, {}, 3),
    ({"save_on_train_epoch_end": True}, {"check_val_every_n_epoch": 2}, 6)])
def test_a_metric_that_is_never_logged_ends_the_fit_with_those_that_are(tmp_path, arguments, trainer, step):
    """Steps before the first validation may lack it."""
    callback = TidemarkCheckpoint(tmp_path / "store", monitor="val_los", **arguments)
    with pytest.raises(tidemark.errors.InvalidArgumentError) as raised:
        fit(tmp_path, callback, Scored("score"), **trainer)
    assert f"monitor is 'val_los', which is not logged before step {step} is saved" in str(raised.value)
    logged = "none" if trainer.get("limit_val_batches") == 0 else "val_loss, score"
    assert f"Logged are: {logged}." in str(raised.value)
    before = [found.step for found in tidemark.steps(tmp_path / "store")]
    assert before == {4: [2], 6: [3]}.get(step, [])


def test_the_metric_of_an_evaluator_need_not_be_logged(tmp_path):
    evaluation = ModuleEvaluation(lambda module: {"norm": 1.0})
    callback = TidemarkCheckpoint(tmp_path / "store", monitor="validation/norm", evaluation=evaluation)
    fit(tmp_path, callback, Scored("score"))
    assert callback.best_model_path


@pytest.mark.parametrize("name", ["recall@5", "val/loss", "val::loss", "a//b", "50%", "a%20b", "top *?[1]#", "größe"])
def test_a_metric_of_any_name_finds_the_best_step(tmp_path, name):
    callback = TidemarkCheckpoint(tmp_path / "me@host" / "store", monitor=name, mode="max", save_top_k=-1)
    trainer = fit(tmp_path, callback, Scored(name, {3: 2.0}), 2)
    with tidemark.open(callback.store, 3, "pt") as step:
        expected = step.get_tensor("model.layer.1.weight")
    trainer.validate(ckpt_path="best", verbose=False)
    assert trainer.lightning_module.layer[1].weight.equal(expected)
    assert Model.load_from_checkpoint(callback.best_model_path).layer[1].weight.equal(expected)


def test_the_best_score_and_the_latest_path_are_those_of_the_store(tmp_path):
    callback = TidemarkCheckpoint(tmp_path / "store", monitor="val_loss", save_top_k=2)
    assert callback.best_model_score is None and callback.last_model_path == ""
    fit(tmp_path, callback, Model())
    scores = [info.metrics["val_loss"] for info in tidemark.steps(tmp_path / "store") if info.state == "committed"]
    assert callback.best_model_score.item() == pytest.approx(min(scores))
    assert callback.last_model_path == callback.resume_path == f"tidemark://latest@{tmp_path / 'store'}"
    without = TidemarkCheckpoint(tmp_path / "store")
    assert without.best_model_score is None and without.last_model_path == callback.last_model_path
