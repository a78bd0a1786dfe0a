"""Where Lightning's loops go on from a checkpoint, in the cases in which they would not repeat what an uninterrupted fit does."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.loops.loop import _Loop


def begin_validation_again(checkpoint: dict[str, Any]) -> None:
    """Has a checkpoint that was made in a validation resume with the whole of it. Lightning goes on in the middle, but with the
    first batches: it is told that the validation has begun, and none of its batches has ended."""
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
    done = progress["total"]["completed"] - progress["current"]["completed"]
    progress["total"].update(ready=done + 1, started=done + 1, processed=done, completed=done)
    progress["current"].update(ready=1, started=1, processed=0, completed=0)
    progress["is_last_batch"] = False


def begin_next_epoch(fit_loop: Any) -> None:
    """For a fit with `max_steps` that resumes from the end of an epoch. Lightning would go on in that epoch, to validate, and
    train a batch too many if no validation is due there. It is given what it has without `max_steps`."""
    vars(_Loop)["restarting"].fset(fit_loop, False)  # FitLoop has a setter of its own
    fit_loop.update_restart_stage()
    fit_loop.epoch_progress.increment_completed()
