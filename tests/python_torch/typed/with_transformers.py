"""A user's program for tidemark.transformers that mypy --strict accepts; types_test.py has it checked, and runs it."""

from __future__ import annotations

import sys

import tidemark
import torch
import transformers
from tidemark.transformers import ModuleEvaluation, TidemarkCallback, TidemarkTrainerMixin, export


class MyTrainer(TidemarkTrainerMixin, transformers.Trainer):
    pass


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.arange(4) + index
        return {"input_ids": row, "labels": row}


def loss(module: torch.nn.Module) -> float:
    return sum(float(parameter.detach().square().sum()) for parameter in module.parameters())


def model() -> transformers.PreTrainedModel:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8))


def train(store: str) -> int:
    arguments = transformers.TrainingArguments(store + ".out", max_steps=4, save_steps=2, save_total_limit=2, report_to=[],
                                               per_device_train_batch_size=2, use_cpu=True, disable_tqdm=True)
    trainer = MyTrainer(model(), arguments, train_dataset=Rows(), store=store, evaluation=ModuleEvaluation(loss),
                        checkpointer_options={"compression": "none"})
    trainer.train(resume_from_checkpoint=True)
    skipped: list[tuple[int, str]] = trainer.skipped_evaluations
    folder: str = trainer.store
    print(skipped, folder)
    callback = TidemarkCallback(store + ".beside", every_steps=2, evaluation=ModuleEvaluation(loss))
    transformers.Trainer(model(), arguments, train_dataset=Rows(), callbacks=[callback]).train()
    callback.close()
    export(store, store + ".export", "latest")
    return len(tidemark.steps(store))


if __name__ == "__main__":
    sys.exit(0 if train(sys.argv[1]) > 0 else 1)
