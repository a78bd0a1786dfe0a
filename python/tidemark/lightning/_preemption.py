"""What Lightning does at a signal, and how the callback has it end a fit where the training can be resumed exactly.

Lightning's own handler notes SIGTERM, and each loop then raises SIGTERMException after a batch, also in the middle of the
batches of one step of the optimizer. In a job of several processes the handler also begins a broadcast, wherever the training is.
So the guard's handler stands in its place, and Lightning is told when a step has ended, on all ranks after the same one.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from lightning.pytorch.trainer.connectors.signal_connector import _HandlersCompose

from .._preemption.signals import NotedSignals
from .._preemption.training import TrainingGuard


def take_back(trainer: Any, signals: NotedSignals) -> None:
    """Has the guard's handler in the place of Lightning's, which calls it. A handler that was installed after the guard's stays:
    Lightning calls it, and ends the fit. Lightning puts back at its end what it has found."""
    if threading.current_thread() is not threading.main_thread():
        return  # Lightning has installed none
    for number in signals.numbers:
        found = trainer._signal_connector._original_handlers.get(number)
        if found == signals.note and isinstance(signal.getsignal(number), _HandlersCompose):
            signal.signal(number, signals.note)


def give_back(trainer: Any, signals: NotedSignals) -> None:
    """Has Lightning, which puts back at its end what it has found, leave a guard out that is uninstalled by then."""
    originals = trainer._signal_connector._original_handlers
    if signals.is_uninstalled:
        originals.update({number: signals.former(number) for number in signals.numbers
                          if originals.get(number) == signals.note})


def end(trainer: Any, guard: TrainingGuard, exits: bool) -> None:
    """Ends a guard of a fit of the Trainer. exits: as for `TrainingGuard.end`."""
    take_back(trainer, guard.signals)
    try:
        guard.end(exits)
    finally:
        give_back(trainer, guard.signals)


def end_fit(trainer: Any) -> None:
    """Lightning raises SIGTERMException as soon as the batch, or the epoch, has ended."""
    trainer._signal_connector.received_sigterm = True


def set_code(exception: BaseException, code: int) -> None:
    """Of the process that it ends."""
    if isinstance(exception, SystemExit):
        exception.code = code


def is_in_validation(trainer: Any) -> bool:
    """Whether the fit is in a validation of its own, which is no sanity check."""
    return bool(trainer.state.fn == "fit" and trainer.validating and not trainer.sanity_checking)
