"""What a checkpointer knows of its steps, and what it can be told of them."""

from __future__ import annotations

from . import _native
from ._futures import Future
from ._statistics import RetentionDecision
from ._step_info import StepInfo, step_info
from .errors import Error


class StepRecords:
    """The methods of Checkpointer that read and change the records of steps."""

    def _require(self) -> _native.Checkpointer:
        raise NotImplementedError

    def _watched(self, future: Future) -> Future:
        raise NotImplementedError

    def _raise_interruptions(self) -> None:
        raise NotImplementedError

    def steps(self) -> list[StepInfo]:
        """All steps that the store knows, ascending, including deleted ones."""
        return [step_info(info) for info in self._require().steps()]

    def latest_step(self) -> StepInfo:
        """The highest committed step. NotFoundError: there is none."""
        return step_info(self._require().latest_step())

    def best_step(self, metric: str, mode: str = "") -> StepInfo:
        """The healthy step at which the metric was best. `mode`: "lowest" or "highest"; "": what the name says."""
        return step_info(self._require().best_step(metric, mode))

    def report_metrics(self, step: int, evaluator: str, metrics: dict[str, float]) -> Future:
        """Records metrics of a saved step as "evaluator/name". Resolves when they survive power loss."""
        return self._watched(Future(self._require().report_metrics(step, evaluator, metrics), step))

    def pin(self, step: int, note: str = "") -> None:
        """Keeps a step from being deleted by retention."""
        self._require().pin(step, note)

    def unpin(self, step: int) -> None:
        """Takes back `pin`, and removes the tags."""
        self._require().unpin(step)

    def tag(self, step: int, name: str) -> None:
        """Gives a step a name, and pins it."""
        self._require().tag(step, name)

    def untag(self, name: str) -> None:
        """Takes the name from its step, which stays pinned. NotFoundError: no step has it."""
        self._require().untag(name)

    def delete(self, step: int, reason: str = "deleted by the trainer") -> None:
        """Deletes a committed step. FailedPreconditionError: it stays under all rules, or this is another rank than 0."""
        self._require().delete(step, reason)

    def discard_after(self, step: int, reason: str = "the run went back to an earlier step") -> list[int]:
        """Deletes all committed steps after `step`, the latest included, and returns them, the highest first. For a run that
        was restored to an older step and goes on from there. Waits for saves in flight.

        FailedPreconditionError names the later steps that are pinned, tagged, or still being read, or no step up to `step`
        is committed; nothing is deleted then. AlreadyHeldError: a restore is going on. With `ranks` all ranks call it alike,
        and get the same steps, or the same error.
        """
        try:
            return list(self._require().discard_after(step, reason))
        except Error:
            self._raise_interruptions()
            raise

    def committed(self, step: int) -> Future:
        """The `committed` of the step's save in flight. Without one it is resolved: with the step if it is committed, else
        with NotFoundError."""
        return self._watched(Future(self._require().committed(step), step))

    def tidy(self) -> None:
        """Reads the reports of workers and applies retention now, and blocks until that is done. FailedPreconditionError: this
        is another rank than 0."""
        self._require().tidy()

    def retention_plan(self) -> list[RetentionDecision]:
        """What retention would keep and delete now, and why: every committed step, ascending. Changes nothing.
        FailedPreconditionError: this is another rank than 0."""
        return [RetentionDecision(**decision) for decision in self._require().retention_plan()]
