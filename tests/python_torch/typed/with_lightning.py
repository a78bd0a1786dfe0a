"""A user's program for tidemark.lightning that mypy --strict accepts; types_test.py has it checked, and runs it."""

from __future__ import annotations

import datetime
import sys

import tidemark
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from tidemark.lightning import ModuleEvaluation, TidemarkCheckpoint, TidemarkCheckpointIO
from torch.utils.data import DataLoader, TensorDataset


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def norm(module: torch.nn.Module) -> dict[str, float]:
    return {"norm": sum(float(parameter.detach().square().sum()) for parameter in module.parameters())}


def train(store: str) -> int:
    data = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2)
    evaluation = ModuleEvaluation(norm, on_backpressure="skip", drain=60.0)
    checkpoint = TidemarkCheckpoint(store, monitor="loss", mode="min", save_top_k=2, every_n_epochs=1,
                                    save_on_train_epoch_end=True, evaluation=evaluation, compression="none")
    timed = TidemarkCheckpoint(store + ".timed", train_time_interval=datetime.timedelta(hours=1))
    trainer = Trainer(max_epochs=2, accelerator="cpu", callbacks=[checkpoint, timed], logger=False, enable_progress_bar=False,
                      enable_model_summary=False)
    resumed: str | None = checkpoint.resume_path
    trainer.fit(Model(), data, ckpt_path=resumed)
    model = Model.load_from_checkpoint(checkpoint.best_model_path)
    skipped: list[tuple[int, str]] = checkpoint.skipped_evaluations
    print(model.layer.weight.shape, skipped)
    files = ModelCheckpoint(store + ".files")
    Trainer(max_epochs=1, accelerator="cpu", plugins=[TidemarkCheckpointIO(store + ".io")], callbacks=[files], logger=False,
            enable_progress_bar=False, enable_model_summary=False).fit(Model(), data)
    return len(tidemark.steps(store))


if __name__ == "__main__":
    sys.exit(0 if train(sys.argv[1]) > 0 else 1)
