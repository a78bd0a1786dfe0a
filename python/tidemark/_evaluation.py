"""Evaluation of saved steps beside the training, for the integrations of frameworks: evaluators that are given a module."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from ._arguments import integer, number, text, wrong
from ._checkpointer.checkpointer import Checkpointer
from ._checkpointer.evaluator import Snapshot
from ._choices import HalfPrecision, WhenLagging
from ._state import arrays
from ._state.modules import names_of
from ._store.reader import steps
from .errors import InvalidArgumentError

_WHEN_LAGGING: dict[str, WhenLagging] = {"skip": "skip", "oldest": "latest", "block": "block", "queue": "queue"}


@dataclasses.dataclass(frozen=True)
class ModuleEvaluation:
    """How saved steps are evaluated beside the training: by an evaluator of the checkpointer.

    function: called with a module that has the weights of the step, on a thread of the library; returns {name: number},
        a number, None or a `tidemark.Verdict`. The numbers become metrics of the step, as "NAME/name". If it raises, the
        step has a record of that, and a warning has the traceback.
    name: of the evaluator.
    max_pending: so many steps may wait or be evaluated at a time, and hold a copy of the weights each; at least 1.
    on_backpressure: when there are so many: "skip" leaves the new step out, "oldest" the one that waits (one may wait, even
        while max_pending are evaluated), "block" lets the training wait, "queue" reads the step from the disk when its
        turn comes.
    drain: how many seconds the end of the training waits for pending evaluations; those left then are given up.
    half: the module computes in "bfloat16" or "float16"; "": as it was trained.

    One module is copied when the training begins and serves every evaluation.
    """

    function: Callable[[Any], Any]
    name: str = "validation"
    max_pending: int = 1
    on_backpressure: Literal["skip", "oldest", "block", "queue"] = "skip"
    drain: float = 600.0
    half: HalfPrecision = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise wrong(self.function, "function", "a function")
        text(self.name, "name")
        if not number(self.drain, "drain") >= 0:
            raise InvalidArgumentError(f"drain is {self.drain}: 0 or more seconds")
        if integer(self.max_pending, "max_pending") < 1:
            raise InvalidArgumentError(f"max_pending is {self.max_pending}, not at least 1")
        if self.on_backpressure not in _WHEN_LAGGING:
            raise InvalidArgumentError(f"on_backpressure is '{self.on_backpressure}', not 'skip', 'oldest', 'block' or 'queue'")
        if self.half not in ("", "bfloat16", "float16"):
            raise InvalidArgumentError(f"half is '{self.half}', not '', 'bfloat16' or 'float16'")


def evaluation_or_none(value: Any) -> ModuleEvaluation | None:
    if value is None or isinstance(value, ModuleEvaluation):
        return value
    raise wrong(value, "evaluation", "a ModuleEvaluation")


class ModuleEvaluator:
    """The evaluator of one training. Belongs to the thread of the training."""

    def __init__(self, checkpointer: Checkpointer, evaluation: ModuleEvaluation, module: Any) -> None:
        import torch

        # A copy draws no random numbers, which the training would miss.
        warm = copy.deepcopy(module).eval().requires_grad_(False)
        if evaluation.half:
            warm.to(getattr(torch, evaluation.half))

        def evaluate(snapshot: Snapshot) -> Any:
            load_module(snapshot, warm)
            return evaluation.function(warm)

        checkpointer.evaluator(evaluation.name, evaluate, entries=["model.*"], max_pending=evaluation.max_pending,
                               when_lagging=_WHEN_LAGGING[evaluation.on_backpressure], half_precision=evaluation.half)
        self._store = checkpointer.path
        self._name = evaluation.name
        self._saved: set[int] = set()

    def note(self, step: int) -> None:
        """The training has saved this step."""
        self._saved.add(step)

    def left_out(self) -> list[tuple[int, str]]:
        """[(step, reason)] of the saved steps that were skipped or failed, ascending, as the store has recorded them."""
        return [(info.step, evaluation.reason) for info in steps(self._store) if info.step in self._saved
                for evaluation in info.evaluations if evaluation.evaluator == self._name and evaluation.outcome != "done"]


def load_module(snapshot: Snapshot, module: Any, prefix: str = "model") -> None:
    """Copies the tensors "PREFIX.NAME" of a snapshot into a module of PyTorch, which may have other dtypes or devices.

    MismatchError: the snapshot lacks a tensor of the module, or has it in another shape. Nothing was touched then.
    """
    import torch

    wanted: dict[str, Any] = {}  # what the snapshot fills
    converted: list[tuple[Any, Any]] = []
    name_of = names_of(module)
    for key, tensor in module.state_dict().items():
        if not arrays.is_array(tensor):
            continue
        name = key if f"{prefix}.{key}" in snapshot else name_of(key)
        dtype = snapshot.dtype_of(f"{prefix}.{name}")
        wanted[name] = tensor
        if tensor.device.type != "cpu" or (dtype and arrays.torch_dtype(dtype) != tensor.dtype):
            wanted[name] = torch.empty(tensor.shape, dtype=arrays.torch_dtype(dtype) if dtype else tensor.dtype, device="cpu")
            converted.append((tensor, wanted[name]))
    snapshot.restore({prefix: wanted})
    with torch.no_grad():
        for tensor, stored in converted:
            tensor.copy_(stored)
