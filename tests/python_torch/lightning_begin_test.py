"""Which steps TidemarkCheckpoint keeps, and where a fit may begin: `make test-python-torch`."""

import datetime
import shutil

import lightning
import pytest
import tidemark
import torch
from lightning_test import Model, fit, same_weights
from tidemark.lightning import TidemarkCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice


def test_a_number_of_best_steps_that_says_nothing_is_refused(tmp_path):
    for arguments in ({"save_top_k": 0}, {"save_top_k": -2, "monitor": "val_loss"}, {"save_top_k": 2}):
        with pytest.raises(tidemark.errors.InvalidArgumentError, match=f"save_top_k is {arguments['save_top_k']}"):
            TidemarkCheckpoint(tmp_path, **arguments)


@pytest.mark.parametrize("monitor", [None, "val_loss"])
def test_all_steps_are_kept_if_asked_to(tmp_path, monitor):
    fit(tmp_path, TidemarkCheckpoint(tmp_path / "store", monitor=monitor, save_top_k=-1), 3)
    assert [step.step for step in tidemark.steps(tmp_path / "store") if step.state == "committed"] == [3, 6, 9]


def test_a_fit_beside_later_steps_is_refused(tmp_path, caplog):
    callback = TidemarkCheckpoint(tmp_path / "store", save_top_k=-1)
    fit(tmp_path, callback, 3)
    for ckpt_path, words in ((None, "this training begins at step 0"), ("last", "callback.resume_path")):
        with pytest.raises(tidemark.errors.InvalidArgumentError, match=words):
            fit(tmp_path, TidemarkCheckpoint(tmp_path / "store", save_top_k=-1), 4, ckpt_path)
    assert [step.step for step in tidemark.steps(tmp_path / "store")] == [3, 6, 9]
    for later in ([9, 6], []):
        caplog.clear()
        fit(tmp_path, TidemarkCheckpoint(tmp_path / "store", save_top_k=-1), 2, f"tidemark:3@{tmp_path / 'store'}")
        assert ("this training begins at step 3" in caplog.text) == bool(later)
        with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
            assert checkpointer.discard_after(3) == (later or [6])
    fit(tmp_path / "other", TidemarkCheckpoint(tmp_path / "other" / "store"), 1, "last")  # nothing to resume yet


class Subclass(TidemarkCheckpoint):
    pass


class OtherSubclass(TidemarkCheckpoint):
    pass


@pytest.mark.parametrize(("kind", "arguments", "next_kind"), [
    (TidemarkCheckpoint, {"every_n_epochs": 1}, TidemarkCheckpoint), (Subclass, {}, TidemarkCheckpoint),
    (TidemarkCheckpoint, {}, Subclass), (Subclass, {}, OtherSubclass),
    (TidemarkCheckpoint, {"train_time_interval": datetime.timedelta(0)}, TidemarkCheckpoint)])
def test_a_fit_goes_on_with_another_callback_and_a_store_that_was_moved(tmp_path, kind, arguments, next_kind):
    whole, _ = fit(tmp_path, TidemarkCheckpoint(tmp_path / "whole"), 4)
    fit(tmp_path, kind(tmp_path / "parts", **arguments), 2)
    shutil.move(tmp_path / "parts", tmp_path / "moved")
    callback = next_kind(tmp_path / "moved", monitor="val_loss", every_n_train_steps=2)
    resumed, _ = fit(tmp_path, callback, 4, callback.resume_path)
    assert same_weights(resumed, whole)


def test_two_callbacks_with_a_store_each_save_in_one_fit_and_either_resumes(tmp_path):
    def callbacks():
        return [TidemarkCheckpoint(tmp_path / "by_epochs", every_n_epochs=1),
                TidemarkCheckpoint(tmp_path / "by_time", train_time_interval=datetime.timedelta(0))]

    whole, _ = fit(tmp_path, TidemarkCheckpoint(tmp_path / "whole"), 4)
    fit(tmp_path, callbacks(), 2)
    again = callbacks()
    resumed, _ = fit(tmp_path, again, 4, again[1].resume_path)
    assert same_weights(resumed, whole) and again[0].resume_path and again[1].resume_path
    for callback in again:
        assert tidemark.steps(callback.store)[-1].step == 12


def test_a_validation_of_a_step_leaves_a_later_fit_its_own_generators(tmp_path):
    callback = TidemarkCheckpoint(tmp_path / "store")
    fit(tmp_path, callback, 1)
    begun = []

    class Begin(TidemarkCheckpoint):
        def on_train_start(self, trainer, pl_module):
            before = torch.get_rng_state()
            super().on_train_start(trainer, pl_module)
            begun.append(torch.equal(torch.get_rng_state(), before))

    trainer = lightning.Trainer(default_root_dir=tmp_path, accelerator="cpu", max_epochs=1, logger=False, limit_train_batches=1,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[Begin(tmp_path / "other")])
    trainer.validate(Model(), ckpt_path=callback.resume_path, verbose=False)
    trainer.fit(Model())
    assert begun == [True]


def test_the_step_that_a_fit_begins_with_is_not_saved_again_when_the_gradients_of_the_next_one_are_accumulated(
        tmp_path, monkeypatch):
    """A fit that resumed from there would miss these gradients."""
    def callback():
        return TidemarkCheckpoint(tmp_path / "store", save_top_k=-1, every_n_train_steps=1)

    fit(tmp_path, callback(), 1, accumulate_grad_batches=2)
    saved, save = [], tidemark.Checkpointer.save
    monkeypatch.setattr(tidemark.Checkpointer, "save", lambda self, step, *given, **options: (
        saved.append(step), save(self, step, *given, **options))[1])
    fit(tmp_path, callback(), 2, callback().resume_path, accumulate_grad_batches=2)
    assert saved == [3, 4]
