#!/usr/bin/env python3
"""Learns to continue a text with Lightning, and continues bit for bit after it was killed at any moment.

  text_lightning.py --store FOLDER [--steps N] [--save-every N] [--loss-log FILE]

Start it, kill it, start it again with the same command line: the losses are those of a run that was not killed. Needs
lightning. The text is a source of Python's standard library; its last tenth is held out.
"""

import argparse
import logging
import pathlib
import tempfile
import warnings

import lightning
import torch
from tidemark.lightning import TidemarkCheckpoint

CONTEXT = 16


class Reader(lightning.LightningModule):
    """Predicts a character from the CONTEXT before it."""

    def __init__(self, text, characters, loss_log):
        super().__init__()
        self.text = text
        self.loss_log = loss_log
        self.network = torch.nn.Sequential(torch.nn.Embedding(characters, 8), torch.nn.Flatten(), torch.nn.Dropout(0.1),
                                           torch.nn.Linear(8 * CONTEXT, 64), torch.nn.ReLU(), torch.nn.Linear(64, characters))

    def loss_at(self, starts):
        windows = self.text[starts[:, None] + torch.arange(CONTEXT + 1)]
        return torch.nn.functional.cross_entropy(self.network(windows[:, :-1]), windows[:, -1])

    def training_step(self, batch, _):
        # PyTorch's generator draws the windows and the dropout. The checkpoint has it.
        loss = self.loss_at(torch.randint(len(self.text) * 9 // 10 - CONTEXT, (32,)))
        self.log("loss", loss)
        if self.loss_log:
            with open(self.loss_log, "a", encoding="ascii") as log:
                log.write(f"{self.global_step} {loss.item().hex()}\n")
        return loss

    def held_out_loss(self):
        self.eval()
        with torch.no_grad():
            return self.loss_at(torch.arange(len(self.text) * 9 // 10, len(self.text) - CONTEXT)).item()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 3e-3)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.7), "interval": "step"}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--loss-log")
    arguments = parser.parse_args()

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    lightning.seed_everything(1, verbose=False)
    content = pathlib.Path(argparse.__file__).read_bytes()
    characters = sorted(set(content))
    reader = Reader(torch.tensor([characters.index(character) for character in content]), len(characters), arguments.loss_log)
    checkpoint = TidemarkCheckpoint(arguments.store, monitor="loss", every_n_train_steps=arguments.save_every)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_steps=arguments.steps, accelerator="cpu", callbacks=[checkpoint], logger=False,
                                    enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
        # Each step draws its own batch, so the loader only counts.
        counter = torch.utils.data.DataLoader(range(arguments.steps), batch_size=None)
        trainer.fit(reader, counter, ckpt_path=checkpoint.resume_path)  # None in a fresh run
    print(f"held-out loss {reader.held_out_loss():.6f}")


if __name__ == "__main__":
    main()
