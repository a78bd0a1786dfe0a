"""Evaluation of saved steps beside the training, on a thread of Python, for the doors to frameworks."""

from __future__ import annotations

import collections
import concurrent.futures
import copy
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ._checkpointer import Checkpointer, SaveHandle
from ._dicts import load_module
from ._futures import logger
from ._reader import open as open_step
from .errors import InvalidArgumentError, NotFoundError


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How saved steps are evaluated beside the training.

    function: called with a module that has the weights of the step, on a thread of its own; returns {name: number}.
        The numbers become metrics of the step, as "NAME/name". What it raises is logged, and the step has no metrics.
    name: of the evaluator.
    max_pending: so many steps may wait or be evaluated at a time; at least 1.
    on_backpressure: when there are so many: "skip" leaves the new step out, "oldest" the one that has waited longest,
        "block" lets the training wait.
    drain: how many seconds the end of the training waits for pending evaluations; those left then are dropped.
    half: the module computes in "bfloat16" or "float16"; "": as it was trained.

    One module is copied when the training begins and serves every evaluation. A step that retention has deleted before
    its turn is left out: keep at least max_pending + 1 steps.
    """

    function: Callable[[Any], Mapping[str, float]]
    name: str = "validation"
    max_pending: int = 1
    on_backpressure: str = "skip"
    drain: float = 600.0
    half: str = ""

    def __post_init__(self) -> None:
        if self.max_pending < 1:
            raise InvalidArgumentError(f"max_pending is {self.max_pending}, not at least 1")
        if self.on_backpressure not in ("skip", "oldest", "block"):
            raise InvalidArgumentError(f"on_backpressure is '{self.on_backpressure}', not 'skip', 'oldest' or 'block'")
        if self.half not in ("", "bfloat16", "float16"):
            raise InvalidArgumentError(f"half is '{self.half}', not '', 'bfloat16' or 'float16'")


class Evaluator:
    """Runs an Evaluation. `submit` and `close` belong to the thread of the training.

    `skipped`: [(step, reason)] of the steps that were left out, in their order.
    """

    def __init__(self, checkpointer: Checkpointer, evaluation: Evaluation, module: Any) -> None:
        import torch

        self._checkpointer = checkpointer
        self._evaluation = evaluation
        # A copy draws no random numbers, which the training would miss.
        self._module = copy.deepcopy(module).eval().requires_grad_(False)
        if evaluation.half:
            self._module.to(getattr(torch, evaluation.half))
        self.skipped: list[tuple[int, str]] = []
        self._waiting: collections.deque[SaveHandle] = collections.deque()
        self._running = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="tidemark evaluation", daemon=True)
        self._thread.start()

    def submit(self, save: SaveHandle) -> None:
        """Has the step evaluated once it is committed."""
        if save.skipped:
            return
        with self._changed:
            if len(self._waiting) + self._running >= self._evaluation.max_pending:
                if self._evaluation.on_backpressure == "block":
                    while len(self._waiting) + self._running >= self._evaluation.max_pending and self._thread.is_alive():
                        self._changed.wait(0.05)  # in slices, so that Ctrl-C ends it
                elif self._evaluation.on_backpressure == "oldest" and self._waiting:
                    self._skip(self._waiting.popleft().step, "a newer step took its place")
                else:
                    self._skip(save.step, "too many evaluations were pending")
                    return
            self._waiting.append(save)
            self._changed.notify_all()

    def close(self, drain: float | None = None) -> None:
        """Waits for what is pending, for at most `drain` seconds; None: those of the Evaluation. An evaluation that runs
        longer ends with the process. May be called again.
        """
        drain = self._evaluation.drain if drain is None else drain
        deadline = time.monotonic() + drain
        with self._changed:
            while (self._waiting or self._running) and time.monotonic() < deadline:
                self._changed.wait(0.05)
            self._stopping = True
            while self._waiting:
                self._skip(self._waiting.popleft().step, "the training ended")
            abandoned = self._running > 0
            self._changed.notify_all()
        if abandoned:
            logger.warning("evaluator '%s' is still at work after %g s", self._evaluation.name, drain)
        else:
            self._thread.join()

    def _skip(self, step: int, reason: str) -> None:
        self.skipped.append((step, reason))
        logger.info("evaluator '%s' left step %d out: %s", self._evaluation.name, step, reason)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                if not self._waiting:
                    return
                save = self._waiting.popleft()
                self._running = 1
            try:
                self._evaluate(save)
            except Exception as error:  # noqa: BLE001: the training goes on
                logger.warning("evaluator '%s' failed at step %d: %r", self._evaluation.name, save.step, error)
                with self._changed:
                    self.skipped.append((save.step, repr(error)))
            finally:
                with self._changed:
                    self._running = 0
                    self._changed.notify_all()

    def _evaluate(self, save: SaveHandle) -> None:
        # Waits without looking at the outcome: a failure stays unseen for the trainer to find.
        concurrent.futures.wait([save.committed])
        try:
            with open_step(self._checkpointer.path, save.step, "pt") as step:
                load_module(step, self._module)
        except NotFoundError as error:
            with self._changed:
                self._skip(save.step, str(error))
            return
        metrics = {name: float(value) for name, value in self._evaluation.function(self._module).items()}
        if not self._stopping:
            self._checkpointer.report_metrics(save.step, self._evaluation.name, metrics).result()
