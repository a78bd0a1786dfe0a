"""Keras 3: a callback that saves a model while it trains, with the arguments of keras.callbacks.OrbaxCheckpoint.

    checkpoint = tidemark.keras.TidemarkCheckpoint("run/ckpt", restore=True, keep_best=1)
    model.fit(x, y, validation_data=(u, v), epochs=50, callbacks=[checkpoint])
    tidemark.keras.load(model, "run/ckpt", "best:val_loss")

A variable with the path "dense/kernel" is the entry "model.dense.kernel"; those of the optimizer begin with
"optimizer". Metrics are not saved: Keras resets them in every epoch. The tests are of the backends jax, torch and
tensorflow, and of `load` with numpy, which cannot train. Importing this module imports keras.
"""

from ._callback import TidemarkCheckpoint
from ._load import load

__all__ = ["TidemarkCheckpoint", "load"]
