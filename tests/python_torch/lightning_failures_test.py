"""Saves of the callback that are skipped, or fail in the background."""

import concurrent.futures
import unittest.mock

import lightning
import pytest
import tidemark
import torch
from lightning_test import Model, fit
from tidemark.lightning import TidemarkCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice


def test_a_save_that_is_skipped_is_made_when_the_step_is_due_again(tmp_path, monkeypatch):
    save, steps = tidemark.Checkpointer.save, []

    def skip_the_first(self, step, *arguments, **options):
        steps.append(step)
        return unittest.mock.Mock(skipped=True) if len(steps) == 1 else save(self, step, *arguments, **options)

    monkeypatch.setattr(tidemark.Checkpointer, "save", skip_the_first)
    callback = TidemarkCheckpoint(tmp_path / "store", every_n_train_steps=1, save_top_k=-1, when_full="skip")
    fit(tmp_path, callback, 2, accumulate_grad_batches=3, limit_val_batches=0)
    assert steps == [1, 1, 2]
    assert [info.step for info in tidemark.steps(tmp_path / "store")] == [1, 2]


class Large(Model):
    def __init__(self):
        super().__init__()
        self.large = torch.nn.Parameter(torch.rand(1 << 18))  # 1 MiB, which takes a second to write


def test_a_save_that_fails_is_an_error_of_the_next_one(tmp_path, monkeypatch):
    save, saves = tidemark.Checkpointer.save, []
    monkeypatch.setattr(tidemark.Checkpointer, "save", lambda *arguments, **options: saves.append(
        save(*arguments, **options)) or saves[-1])

    class Slow(lightning.Callback):
        def on_train_batch_start(self, trainer, *_):
            assert not concurrent.futures.wait([one.committed for one in saves], 60).not_done

    callback = TidemarkCheckpoint(tmp_path / "store", every_n_train_steps=1, save_timeout=0.1, compression="none",
                                  tuning=tidemark.Tuning(write_bytes_per_second_max=1 << 20))
    trainer = lightning.Trainer(default_root_dir=tmp_path, accelerator="cpu", max_epochs=1, limit_train_batches=3, logger=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[callback, Slow()],
                                limit_val_batches=0)
    with pytest.raises(tidemark.errors.DeadlineExceededError, match="step 1 was not committed"):
        trainer.fit(Large())
    assert trainer.global_step == 2 and len(saves) == 1
