"""A training that a test ends by SIGTERM: preemption_process.py lightning|transformers FOLDER STEPS [SECONDS]. Alone, or one of
the processes of torchrun. It resumes if there is a step, and appends "STEP LOSS" to FOLDER/losses-RANK. A step takes SECONDS."""

import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

FOLDER, STEPS, SECONDS = pathlib.Path(sys.argv[2]), int(sys.argv[3]), float((sys.argv[4:] or ["0"])[0])
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


def note(step, loss):
    with open(FOLDER / f"losses-{os.environ.get('RANK', 0)}", "a", encoding="utf-8") as file:
        file.write(f"{step} {loss.hex()}\n")
    time.sleep(SECONDS)


def train_lightning():
    import lightning
    import torch
    from lightning_preemption_test import Model
    from tidemark.lightning import TidemarkCheckpoint

    class Noting(Model):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch + torch.distributed.get_rank() if WORLD_SIZE > 1 else batch, batch_idx)
            note(self.global_step + 1, loss.item())
            return loss

    class Seed(lightning.Callback):
        def on_fit_start(self, trainer, pl_module):
            torch.manual_seed(7 + trainer.global_rank)

    torch.manual_seed(7)
    callback = TidemarkCheckpoint(FOLDER / "store", preemption=True)
    trainer = lightning.Trainer(accelerator="cpu", devices=WORLD_SIZE, strategy="ddp" if WORLD_SIZE > 1 else "auto", logger=False,
                                max_steps=STEPS, max_epochs=-1, enable_progress_bar=False, callbacks=[Seed(), callback])
    trainer.fit(Noting(), ckpt_path=callback.resume_path)


def train_transformers():
    import transformers
    from transformers_test import make

    class Noting(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs, **_):
            if "loss" in logs:
                note(state.global_step, logs["loss"])

    # Workers of a data loader, which get the signal too.
    trainer = make(FOLDER, callbacks=[Noting()], preemption=True, max_steps=STEPS, dataloader_num_workers=1,
                   ddp_backend="gloo" if WORLD_SIZE > 1 else None)
    trainer.train(resume_from_checkpoint=True)


if __name__ == "__main__":
    {"lightning": train_lightning, "transformers": train_transformers}[sys.argv[1]]()
    print("trained to the end", flush=True)
