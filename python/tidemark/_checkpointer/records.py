"""What a checkpointer knows of its steps, and what it can be told of them."""

from __future__ import annotations

from .. import _native
from .._arguments import integer, text
from .._arguments import metrics as checked
from .._arguments import mode as checked_mode
from .._choices import BestMode
from ..errors import Error, InvalidArgumentError, NotFoundError
from .futures import Future
from .observer import logger
from .statistics import RetentionDecision
from .step_info import StepInfo, step_info


class StepRecords:
    """The methods of Checkpointer that read and change the records of steps."""

    path: str

    def _require(self) -> _native.Checkpointer:
        raise NotImplementedError

    def _watched(self, future: Future) -> Future:
        raise NotImplementedError

    def _raise_interruptions(self) -> None:
        raise NotImplementedError

    def steps(self) -> list[StepInfo]:
        """The records of all steps that the store knows, ascending, including deleted ones: look at StepInfo.state. No tensor
        is read. FailedPreconditionError: the checkpointer is closed, which all of these methods raise then."""
        return [step_info(info) for info in self._require().steps()]

    def latest_step(self) -> StepInfo:
        """The highest committed step. NotFoundError: there is none."""
        return step_info(self._require().latest_step())

    def _begins_at(self, step: int, ways_out: str, *, chosen: bool) -> None:
        """For the integrations: a training begins at that step. InvalidArgumentError, or a warning if the trainer has `chosen`
        the step: the store has a later one. What the training saves before it reaches that one is not the latest step, so
        rules of retention may delete it, and a restart resumes the other training. `ways_out`: for the message."""
        try:
            latest = self.latest_step().step
        except NotFoundError:
            return
        if latest <= step:
            return
        message = (f"the store {self.path} has step {latest}, and this training begins at step {step}. What it saves is not the "
                   f"latest step before it has come as far, and retention may delete it. {ways_out}")
        if not chosen:
            raise InvalidArgumentError(message)
        logger.warning("%s", message)

    def best_step(self, metric: str, mode: BestMode = "") -> StepInfo:
        """The healthy committed step at which the metric was best. `mode`: "lowest" or "highest"; "": the mode that the store
        has recorded for the metric, else what its name says, such as "loss". NotFoundError: no such step has the metric.
        InvalidArgumentError: nothing says which value is the best."""
        return step_info(self._require().best_step(text(metric, "metric"), checked_mode(mode, "mode")))

    def report_metrics(self, step: int, evaluator: str, metrics: dict[str, float]) -> Future:
        """Records {name: number} for a saved step as the metrics "evaluator/name", for evaluations that the caller has done
        itself. A second report of the evaluator replaces the first. Returns at once; the future resolves, with the step,
        when they survive power loss, and fails with NotFoundError if the store has no such step."""
        native, number = self._require(), integer(step, "step")
        return self._watched(Future(native.report_metrics(number, text(evaluator, "evaluator"), checked(metrics)), number))

    def pin(self, step: int, note: str = "") -> None:
        """Keeps a committed step from being deleted, by retention or `delete`, until `unpin`. Returns when that survives power
        loss. `note`: for people; StepInfo.pin_note. A second call replaces the note. NotFoundError: no such step is
        committed."""
        self._require().pin(integer(step, "step"), text(note, "note"))

    def unpin(self, step: int) -> None:
        """Takes back `pin`, and removes the tags: retention may delete the step from its next pass on, after a save or
        `tidy`. NotFoundError: no such step is committed."""
        self._require().unpin(integer(step, "step"))

    def tag(self, step: int, name: str) -> None:
        """Gives a committed step a name, for `restore(state, "tag:NAME")`, and pins it. A step may have several. NotFoundError:
        no such step is committed. AlreadyExistsError: another step has the name."""
        self._require().tag(integer(step, "step"), text(name, "name"))

    def untag(self, name: str) -> None:
        """Takes the name from its step, which stays pinned. NotFoundError: no step has it."""
        self._require().untag(text(name, "name"))

    def delete(self, step: int, reason: str = "deleted by the trainer") -> None:
        """Deletes a committed step. FailedPreconditionError: it stays under all rules, or this is another rank than 0."""
        self._require().delete(integer(step, "step"), text(reason, "reason"))

    def discard_after(self, step: int, reason: str = "the run went back to an earlier step") -> list[int]:
        """Deletes all committed steps after `step`, the latest included, and returns them, the highest first. For a run that
        was restored to an older step and goes on from there. Waits for saves in flight.

        FailedPreconditionError names the later steps that are pinned, tagged, or still being read, or no step up to `step`
        is committed; nothing is deleted then. AlreadyHeldError: a restore is going on. With `ranks` all ranks call it alike,
        and get the same steps, or the same error.
        """
        try:
            return list(self._require().discard_after(integer(step, "step"), text(reason, "reason")))
        except Error:
            self._raise_interruptions()
            raise

    def committed(self, step: int) -> Future:
        """The `committed` of the step's save in flight. Without one it is resolved: with the step if it is committed, else
        with NotFoundError."""
        number = integer(step, "step")
        return self._watched(Future(self._require().committed(number), number))

    def tidy(self) -> None:
        """Reads the reports of workers and applies retention now, and blocks until that is done. FailedPreconditionError: this
        is another rank than 0."""
        self._require().tidy()

    def retention_plan(self) -> list[RetentionDecision]:
        """What retention would keep and delete now, and why: every committed step, ascending. Changes nothing.
        FailedPreconditionError: this is another rank than 0."""
        return [RetentionDecision(**decision) for decision in self._require().retention_plan()]
