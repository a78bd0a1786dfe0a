"""The integrations resume the generators of devices, too: noise of a pretend accelerator, whose generators are the CPU's, comes
again."""

import types

import pytest
import torch
import transformers
from lightning_test import Model, fit, same_weights
from tidemark.lightning import TidemarkCheckpoint
from transformers_test import Trainer, losses, make, weights

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks' advice


@pytest.fixture
def device(monkeypatch):
    """The generator of the one device."""
    generator = torch.Generator().manual_seed(1)
    monkeypatch.setattr(torch, "privateuseone", types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, get_rng_state=lambda device: generator.get_state(),
        set_rng_state=lambda state, device: generator.set_state(state)), raising=False)
    return generator


def test_lightning(tmp_path, device, monkeypatch):
    monkeypatch.setattr(Model, "training_step",
                        lambda self, batch, _: self(batch + torch.rand(1, generator=device)).square().mean())
    whole, _ = fit(tmp_path, TidemarkCheckpoint(tmp_path / "whole"), 4)
    device.manual_seed(1)
    first = TidemarkCheckpoint(tmp_path / "parts")
    fit(tmp_path, first, 2)
    device.manual_seed(2)
    resumed, _ = fit(tmp_path, first, 4, first.resume_path)
    assert same_weights(resumed, whole)


class Stop(transformers.TrainerCallback):
    """Ends the training after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == self.step


def test_transformers(tmp_path, device, monkeypatch):
    compute = Trainer.compute_loss
    monkeypatch.setattr(Trainer, "compute_loss", lambda self, *given, **options: (
        compute(self, *given, **options) * (1 + torch.rand(1, generator=device).item())))

    def train(folder, callbacks=None):
        trainer = make(tmp_path / folder, callbacks=callbacks)
        trainer.train(resume_from_checkpoint=True)
        return trainer

    whole = train("whole")
    device.manual_seed(1)
    train("parts", [Stop(10)])
    device.manual_seed(2)
    resumed = train("parts")
    assert torch.equal(weights(resumed), weights(whole)) and losses(resumed) == losses(whole)
