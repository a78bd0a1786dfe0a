"""LightningModule.load_from_checkpoint and steps of a store: `make test-python-torch`."""

import datetime
import os
import pathlib
import subprocess
import sys
import tomllib

import fsspec
import lightning
import pytest
import tidemark
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning_test import Model, same_weights
from tidemark.lightning import TidemarkCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice


class Sized(Model):
    def __init__(self, rate=0.1, names=("a",)):
        super().__init__()
        self.save_hyperparameters()
        self.seen = None

    def on_save_checkpoint(self, checkpoint):
        checkpoint["seen"] = [1, 2]

    def on_load_checkpoint(self, checkpoint):
        self.seen = checkpoint["seen"]


def fit_sized(folder, names=("x", "y")):
    callback = TidemarkCheckpoint(folder / "store", monitor="val_loss")
    model = Sized(rate=0.5, names=list(names))
    trainer = lightning.Trainer(default_root_dir=folder, accelerator="cpu", max_epochs=2, limit_train_batches=3,
                                limit_val_batches=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
                                callbacks=[callback])
    trainer.fit(model)
    return callback, model


def test_load_from_checkpoint_reads_the_best_step(tmp_path):
    callback, model = fit_sized(tmp_path)
    with tidemark.open(tmp_path / "store", "best:val_loss", "pt") as step:
        expected = step.get_tensor("model.layer.1.weight")
    loaded = Sized.load_from_checkpoint(callback.best_model_path)
    assert torch.equal(loaded.layer[1].weight, expected)
    assert (loaded.hparams.rate, loaded.hparams.names, loaded.seen) == (0.5, ["x", "y"], [1, 2])
    assert Sized.load_from_checkpoint(callback.best_model_path, rate=0.25).hparams.rate == 0.25
    assert same_weights(Sized.load_from_checkpoint(callback.resume_path, map_location="cpu", weights_only=True), model)
    with pytest.raises(RuntimeError, match="layer.1.weight"):
        BoringModel.load_from_checkpoint(callback.best_model_path)


def test_hyperparameters_that_are_no_plain_values_need_weights_only_false(tmp_path):
    given = [pathlib.Path("data"), datetime.date(2026, 11, 30)]
    callback, _ = fit_sized(tmp_path, given)
    with pytest.raises(Exception, match="weights_only"):
        Sized.load_from_checkpoint(callback.best_model_path)
    assert Sized.load_from_checkpoint(callback.best_model_path, weights_only=False).hparams.names == given


def test_a_trainer_without_the_callback_reads_the_model_alone(tmp_path):
    callback, model = fit_sized(tmp_path)
    trainer = lightning.Trainer(default_root_dir=tmp_path, accelerator="cpu", max_epochs=4, logger=False, limit_val_batches=2,
                                enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    fresh = Sized()
    trainer.validate(fresh, ckpt_path=callback.resume_path, verbose=False)
    assert same_weights(fresh, model)
    with pytest.raises(KeyError, match="only the model"):
        trainer.fit(fresh, ckpt_path=callback.resume_path)


def test_an_address_of_no_step_is_an_error(tmp_path):
    fit_sized(tmp_path)
    for url in (f"tidemark://77@{tmp_path / 'store'}", f"tidemark://latest@{tmp_path / 'none'}"):
        with pytest.raises(FileNotFoundError, match="there is no step"):
            Sized.load_from_checkpoint(url)
    with tidemark.Checkpointer(tmp_path / "other") as checkpointer:
        checkpointer.save(1, {"a": 1})
    with pytest.raises(FileNotFoundError, match="step 1 has no entry 'lightning': the integration of another framework"):
        Sized.load_from_checkpoint(f"tidemark://1@{tmp_path / 'other'}")
    for url in ("tidemark://40", "tidemark://40@"):
        with pytest.raises(tidemark.errors.InvalidArgumentError, match="40@? names no store: expected tidemark://STEP@"):
            Sized.load_from_checkpoint(url)
    trainer = lightning.Trainer(logger=False, callbacks=[TidemarkCheckpoint(tmp_path / "store")])
    with pytest.raises(tidemark.errors.InvalidArgumentError, match="tidemark://40 names no store"):
        trainer.validate(Sized(), ckpt_path="tidemark:40")
    with pytest.raises(tidemark.errors.UnimplementedError, match="which only a save writes"):
        fsspec.open(f"tidemark://7@{tmp_path / 'store'}", "wb").open()


def test_an_installed_package_opens_an_address_without_an_import(tmp_path):
    """In a process of its own, beside the metadata that an installation writes."""
    callback, _ = fit_sized(tmp_path)
    with open(pathlib.Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        groups = tomllib.load(file)["project"]["entry-points"]
    metadata = tmp_path / "installed" / "tidemark-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tidemark\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items()) for group, entries in groups.items()))
    script = f"""
import sys
import torch
from lightning.pytorch.demos.boring_classes import BoringModel

class Sized(BoringModel):
    def __init__(self, rate=0.1, names=()):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(32, 2))
        self.save_hyperparameters()

assert not any(name.startswith("tidemark") for name in sys.modules)
print(Sized.load_from_checkpoint({callback.best_model_path!r}).hparams.rate)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(metadata.parent), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0 and ran.stdout.strip() == "0.5", ran.stderr
