"""Lightning: a callback that saves beside the training, and a CheckpointIO for the callbacks of Lightning.

    checkpoint = TidemarkCheckpoint("run/ckpt", monitor="val_loss", save_top_k=2)
    trainer = lightning.Trainer(callbacks=[checkpoint])
    trainer.fit(model, data, ckpt_path=checkpoint.resume_path)

or, with Lightning's ModelCheckpoint as it is:

    trainer = lightning.Trainer(plugins=[TidemarkCheckpointIO("run/ckpt")], callbacks=[ModelCheckpoint(...)])

Both store what Lightning's own checkpoints have. The model's tensors are entries "model.NAME", the states of the optimizers
the entry "optimizers" and the tensors beneath it, and the rest is "lightning". With several processes (DDP) the callback saves
on all of them, and TidemarkCheckpointIO on rank 0. Only tensors in host memory have been tried.
"""

from .._evaluation import ModuleEvaluation
from ._callback import TidemarkCheckpoint
from ._checkpoint_io import TidemarkCheckpointIO

__all__ = ["ModuleEvaluation", "TidemarkCheckpoint", "TidemarkCheckpointIO"]
