"""Asynchronous checkpoints for training jobs.

    with tidemark.Checkpointer("run/ckpt", save_interval_steps=100, save_on_steps=[steps - 1]) as checkpointer:
        state = {"weights": weights, "rng": tidemark.rng(), "epoch": 0}
        for step in range(checkpointer.resume(state), steps):
            train(state)
            if checkpointer.should_save(step):
                checkpointer.save(step, state, metrics={"loss": loss})

Importing this module imports no framework: it knows arrays of NumPy and PyTorch where those have been imported.
"""

from . import errors
from ._checkpointer.checkpointer import Checkpointer
from ._checkpointer.evaluator import Snapshot, Verdict, capture
from ._checkpointer.futures import Future, SaveHandle
from ._checkpointer.health import Divergence, HealthMonitor
from ._checkpointer.observer import CheckpointObserver
from ._checkpointer.options import AdaptivePeriod, AwaitEvaluation, KeepBest, Retention, SaveQuestion, Tuning
from ._checkpointer.progress import RestoreProgress
from ._checkpointer.ranks import Ranks
from ._checkpointer.statistics import DurationHistogram, RetentionDecision, Statistics
from ._checkpointer.step_info import Evaluation, RestoreReport, StepInfo
from ._preemption.guard import PreemptionGuard, PreemptionReport
from ._state.boxes import Box
from ._state.codec import register
from ._state.pickled import Pickled
from ._state.rng import rng
from ._store.export import BestFile, export_safetensors
from ._store.follow import WorkerReport, follow
from ._store.reader import Damage, SavePhase, Slice, Step, VerifyReport, open, phases, references, steps, verify  # noqa: A004
from ._trainer import AsyncTrainer, TrainingReport
from .errors import AlreadyHeldError, DataLossError, Error, MismatchError, NotFoundError, UnsupportedTypeError

__version__ = "0.1.0"
__all__ = [
    "AdaptivePeriod", "AlreadyHeldError", "AsyncTrainer", "AwaitEvaluation", "BestFile", "Box", "CheckpointObserver",
    "Checkpointer", "Damage", "DataLossError", "Divergence", "DurationHistogram", "Error", "Evaluation", "Future",
    "HealthMonitor", "KeepBest", "MismatchError", "NotFoundError", "Pickled", "PreemptionGuard", "PreemptionReport",
    "Ranks", "RestoreProgress", "RestoreReport", "Retention", "RetentionDecision", "SaveHandle", "SavePhase", "SaveQuestion",
    "Slice", "Snapshot", "Statistics", "Step", "StepInfo", "TrainingReport", "Tuning", "UnsupportedTypeError", "Verdict",
    "VerifyReport", "WorkerReport", "capture", "errors", "export_safetensors", "follow", "open", "phases", "references",
    "register", "rng", "steps", "verify",
]
