"""Asynchronous checkpoints for training jobs.

    with tidemark.Checkpointer("run/ckpt", save_interval_steps=100) as checkpointer:
        state = {"weights": weights, "rng": tidemark.rng(), "epoch": 0}
        for step in range(checkpointer.resume(state), steps):
            train(state)
            if checkpointer.should_save(step):
                checkpointer.save(step, state, metrics={"loss": loss})

Importing this module imports no framework: it knows arrays of NumPy and PyTorch where those have been imported.
"""

from . import errors
from ._checkpointer import Checkpointer, KeepBest, RestoreReport, Retention, SaveHandle
from ._codec import register
from ._futures import Future
from ._reader import Slice, Step, open  # noqa: A004
from ._rng import rng
from ._step_info import StepInfo
from .errors import AlreadyHeldError, DataLossError, Error, MismatchError, NotFoundError, UnsupportedTypeError

__all__ = [
    "AlreadyHeldError", "Checkpointer", "DataLossError", "Error", "Future", "KeepBest", "MismatchError", "NotFoundError",
    "RestoreReport", "Retention", "SaveHandle", "Slice", "Step", "StepInfo", "UnsupportedTypeError", "errors", "open",
    "register", "rng",
]
