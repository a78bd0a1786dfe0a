"""tidemark.lightning: the metrics of a step whose validation a signal ends, and of those of the fit that resumes."""

import datetime
import functools

import lightning
import pytest
import tidemark
from lightning_preemption_test import BATCHES, Model
from preempted import exit_code, sender
from tidemark.lightning import TidemarkCheckpoint

Send = functools.partial(sender, lightning.Callback)
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice
OF_VALIDATION = ["score", "val_loss"]


class Scored(Model):
    """Its metrics differ from step to step. score: by the step; the step itself by default."""

    def __init__(self, scores=None, name="score"):
        lightning.seed_everything(7, verbose=False)
        super().__init__()
        self.scores, self.name = scores or {}, name

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        self.log("epoch_loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_validation_epoch_end(self):
        super().on_validation_epoch_end()
        step = self.trainer.global_step
        self.log(self.name, float(self.scores.get(step, step)))


def fit(callback, model, *others, **options):
    """Resumes if there is a step. Three epochs of five batches; a validation has three."""
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, num_sanity_val_steps=0,
                                enable_model_summary=False, callbacks=[*others, callback], **{
                                    "max_epochs": 3, "val_check_interval": 2, **options})
    trainer.fit(model, ckpt_path=callback.resume_path)


def in_validation(n, batch=2):
    """A signal in the n-th validation of the fit."""
    return Send("on_validation_batch_end", 3 * (n - 1) + batch)


def metrics(callback):
    return {info.step: info.metrics for info in tidemark.steps(callback.store) if info.state == "committed"}


def some(found, names):
    """{step: metrics} with these metrics alone."""
    return {step: {name: value for name, value in of_step.items() if name in names} for step, of_step in found.items()}


SCHEDULES = [{}, {"every_n_train_steps": 1}, {"every_n_train_steps": 2}, {"every_n_train_steps": 5},
             {"save_on_train_epoch_end": True}, {"save_on_train_epoch_end": False, "every_n_epochs": 2},
             {"train_time_interval": datetime.timedelta(0)}]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_gets_the_metrics_of_its_validation_when_the_next_fit_has_run_it(tmp_path, schedule):
    """Validations follow the steps 2, 4, 7, 9, 12 and 14."""
    whole = TidemarkCheckpoint(tmp_path / "whole", save_top_k=-1, **schedule)
    fit(whole, Scored())
    expected = some(metrics(whole), ["loss", *OF_VALIDATION])
    for n, step in ((1, 2), (3, 7), (4, 9)):
        callback = TidemarkCheckpoint(tmp_path / f"parts{n}", save_top_k=-1, preemption=True, **schedule)
        assert exit_code(fit, callback, Scored(), in_validation(n)) == 0
        assert callback.preempted.step == step and metrics(callback)[step] == {}
        fit(callback, Scored())
        found = some(metrics(callback), ["loss", *OF_VALIDATION])
        assert found[step].keys() == {"loss", *OF_VALIDATION} and found[step]["score"] == step
        assert found == {step: found[step], **expected}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("hook", "n"), [("on_validation_batch_end", 5), ("on_train_batch_end", 2 * BATCHES)])
def test_so_does_the_last_step_of_an_epoch(tmp_path, schedule, hook, n):
    arguments = {"save_top_k": -1, **schedule}
    whole = TidemarkCheckpoint(tmp_path / "whole", **arguments)
    fit(whole, Scored(), val_check_interval=1.0)
    callback = TidemarkCheckpoint(tmp_path / "parts", preemption=True, **arguments)
    assert exit_code(fit, callback, Scored(), Send(hook, n), val_check_interval=1.0) == 0
    assert callback.preempted.step == 2 * BATCHES and metrics(callback)[2 * BATCHES] == {}
    fit(callback, Scored(), val_check_interval=1.0)
    found = metrics(callback)
    assert found[2 * BATCHES]["score"] == 2 * BATCHES
    assert some(found, OF_VALIDATION) == some({2 * BATCHES: found[2 * BATCHES], **metrics(whole)}, OF_VALIDATION)


def test_the_step_can_be_the_best_one_from_then_on(tmp_path):
    """Not before: the metric would be that of an earlier step."""
    scores = {2: 3.0, 4: 1.0, 7: 0.5}
    callback = TidemarkCheckpoint(tmp_path / "store", monitor="score", preemption=True)
    assert exit_code(fit, callback, Scored(scores), in_validation(3)) == 0
    with tidemark.open(callback.store, "best:score") as best:
        assert callback.preempted.step == 7 and best.info.step == 4
    fit(callback, Scored(scores))
    with tidemark.open(callback.store, "best:score") as best:
        assert best.info.step == 7 and best.info.metrics["score"] == 0.5


def test_a_second_signal_in_the_repeated_validation_leaves_the_step_as_it_is(tmp_path):
    callback = TidemarkCheckpoint(tmp_path / "store", save_top_k=-1, preemption=True)
    assert exit_code(fit, callback, Scored(), in_validation(3)) == 0
    assert exit_code(fit, callback, Scored(), in_validation(1)) == 0
    assert callback.preempted is None and metrics(callback)[7] == {}
    assert exit_code(fit, callback, Scored(), in_validation(1, batch=3)) == 0  # the last batch: the validation ends
    assert callback.preempted is None and metrics(callback)[7]["score"] == 7
    fit(callback, Scored())
    assert metrics(callback)[9]["score"] == 9


def test_the_mean_of_an_epoch_whose_batches_the_fit_before_has_trained_is_missing(tmp_path):
    """It is that of the epoch before otherwise."""
    arguments = {"monitor": "epoch_loss", "save_top_k": -1, "save_on_train_epoch_end": True}
    whole = TidemarkCheckpoint(tmp_path / "whole", **arguments)
    fit(whole, Scored(), val_check_interval=1.0)
    callback = TidemarkCheckpoint(tmp_path / "parts", preemption=True, **arguments)
    assert exit_code(fit, callback, Scored(), in_validation(2), val_check_interval=1.0) == 0
    fit(callback, Scored(), val_check_interval=1.0)
    found, expected = metrics(callback), metrics(whole)
    assert found[10].keys() == set(OF_VALIDATION) and expected[10].keys() > found[10].keys()
    assert (found[5], found[15]) == (expected[5], expected[15])


def test_a_metric_that_the_model_does_not_log_any_more_is_not_that_of_later_steps(tmp_path):
    callback = TidemarkCheckpoint(tmp_path / "store", save_top_k=-1, every_n_train_steps=1, preemption=True)
    assert exit_code(fit, callback, Scored(), Send("on_train_batch_start", 6)) == 0
    callback = TidemarkCheckpoint(tmp_path / "store", save_top_k=-1, every_n_train_steps=1)
    fit(callback, Scored(name="other"))
    found = metrics(callback)
    assert found[8]["score"] == found[6]["score"] == 4 and "score" not in found[12]


def test_a_metric_of_the_fit_before_does_not_stand_for_one_that_must_be_logged(tmp_path):
    callback = TidemarkCheckpoint(tmp_path / "store", monitor="score", preemption=True)
    assert exit_code(fit, callback, Scored(), Send("on_train_batch_start", 6)) == 0
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="monitor is 'score', which is not logged before step 7"):
        fit(callback, Scored(name="other"))
