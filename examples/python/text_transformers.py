#!/usr/bin/env python3
"""Trains a small GPT-2 with the Trainer of Hugging Face, and continues bit for bit after it was killed at any moment.

  text_transformers.py --store FOLDER [--steps N] [--save-every N] [--loss-log FILE]

Start it, kill it, start it again with the same command line: the losses are those of a run that was not killed. Needs
transformers and accelerate. The text is a source of Python's standard library; its last tenth is held out.
"""

import argparse
import pathlib
import tempfile
import warnings

import torch
import transformers
from tidemark.transformers import TidemarkTrainerMixin

CONTEXT = 16


class Trainer(TidemarkTrainerMixin, transformers.Trainer):
    loss_log = None

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        if self.loss_log:
            with open(self.loss_log, "a", encoding="ascii") as log:
                log.write(f"{self.state.global_step} {loss.item().hex()}\n")
        return loss


def windows(content, characters):
    numbers = torch.tensor([characters.index(character) for character in content])
    return [{"input_ids": piece, "labels": piece} for piece in numbers.split(CONTEXT) if len(piece) == CONTEXT]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--loss-log")
    arguments = parser.parse_args()

    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    transformers.set_seed(1)
    content = pathlib.Path(argparse.__file__).read_bytes()
    characters = sorted(set(content))
    data = windows(content, characters)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=len(characters), n_positions=CONTEXT, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            folder, max_steps=arguments.steps, per_device_train_batch_size=8, learning_rate=3e-3, save_strategy="steps",
            save_steps=arguments.save_every, save_total_limit=2, logging_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=True)
        trainer = Trainer(model, options, train_dataset=data[:len(data) * 9 // 10], eval_dataset=data[len(data) * 9 // 10:],
                          store=arguments.store)
        trainer.loss_log = arguments.loss_log
        trainer.train(resume_from_checkpoint=True)  # begins afresh in an empty store
        print(f"held-out loss {trainer.evaluate()['eval_loss']:.6f}")


if __name__ == "__main__":
    main()
