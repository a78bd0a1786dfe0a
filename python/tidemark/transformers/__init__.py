"""Hugging Face: a Trainer that saves beside the training and resumes from the store, and a callback that only saves.

    class MyTrainer(TidemarkTrainerMixin, transformers.Trainer):
        pass

    trainer = MyTrainer(model, arguments, train_dataset=data, store="run/ckpt")
    trainer.train(resume_from_checkpoint=True)

One step has the model ("model.NAME"), the optimizer, the scheduler, the generators of random numbers (`tidemark.rng`), the
Trainer's state and the configuration files. `export` makes a folder for from_pretrained of it. The processes of
a job (DDP) save each step together. Only tensors in host memory have been tried.
"""

from .._evaluation import ModuleEvaluation
from ._callback import TidemarkCallback
from ._mixin import TidemarkTrainerMixin
from ._steps import export

__all__ = ["ModuleEvaluation", "TidemarkCallback", "TidemarkTrainerMixin", "export"]
