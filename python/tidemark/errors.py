"""The exceptions of tidemark, one for each code of the C++ library. All of them can be sent to another process."""

from __future__ import annotations

import os

from ._messages import in_python


class Error(RuntimeError):
    """The base of all of them. `code` is the name of the status, such as "DATA_LOSS". "UNKNOWN": a sync failed, so what was
    to be recorded may or may not survive a power loss."""

    code = "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    """An argument, an option or the state is wrong."""

    code = "INVALID_ARGUMENT"


class MismatchError(InvalidArgumentError):
    """The checkpoint does not fit the state. Nothing of the state has been touched.

    `missing`, `unexpected`, `reshaped`, `retyped`: names of entries, sorted. The checkpoint lacks the missing ones, and
    the state lacks the unexpected ones.
    """

    def __init__(self, message: str, missing: list[str] | None = None, unexpected: list[str] | None = None,
                 reshaped: list[str] | None = None, retyped: list[str] | None = None) -> None:
        super().__init__(message, missing, unexpected, reshaped, retyped)
        self.missing = sorted(missing or [])
        self.unexpected = sorted(unexpected or [])
        self.reshaped = sorted(reshaped or [])
        self.retyped = sorted(retyped or [])

    def __str__(self) -> str:
        return str(self.args[0])


class UnsupportedTypeError(Error, TypeError):
    """The state has an object that cannot be stored. The message has its path, its type and the way out."""

    code = "UNIMPLEMENTED"


class NotFoundError(Error, LookupError):
    """There is no such store, step, tag or entry."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error, FileExistsError):
    """The step is committed or being saved, or the tag is taken."""

    code = "ALREADY_EXISTS"


class AlreadyHeldError(Error):
    """Another process holds the store, or a restore is going on. `tidemark.open` reads a store that is held."""

    code = "UNAVAILABLE"


class FailedPreconditionError(Error):
    """The checkpointer is closed, or the call is not possible in this state of the store."""

    code = "FAILED_PRECONDITION"


class StorePermissionError(Error, PermissionError):
    """The directory cannot be read or written."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(Error, OSError):
    """There is no memory, disk space or thread."""

    code = "RESOURCE_EXHAUSTED"


class DataLossError(Error):
    """Stored bytes are damaged or gone."""

    code = "DATA_LOSS"


class UnimplementedError(Error, NotImplementedError):
    """A newer version wrote the store, or this version cannot do it."""

    code = "UNIMPLEMENTED"


class DeadlineExceededError(Error, TimeoutError):
    """The time was up. `save_runs`: of `close` and `wait_until_evaluated`, whether a save is among what still runs."""

    code = "DEADLINE_EXCEEDED"
    save_runs = False


class CancelledError(Error):
    """The save was abandoned."""

    code = "CANCELLED"


class AbortedError(Error):
    """An array changed under an overlapped save, which `Tuning.check_overlapped_saves` looks for; or a rank of the job could
    not save the step, and the message has which one, and why. Nothing was committed."""

    code = "ABORTED"


class StepRangeError(Error, IndexError):
    """A number is outside of its range."""

    code = "OUT_OF_RANGE"


class InternalError(Error):
    """The system or the library failed."""

    code = "INTERNAL"


# By the numbers of absl::StatusCode.
_BY_CODE: dict[int, type[Error]] = {
    1: CancelledError, 3: InvalidArgumentError, 4: DeadlineExceededError, 5: NotFoundError, 6: AlreadyExistsError,
    7: StorePermissionError, 8: ResourceExhaustedError, 9: FailedPreconditionError, 10: AbortedError, 11: StepRangeError,
    12: UnimplementedError, 13: InternalError, 14: AlreadyHeldError, 15: DataLossError,
}


def held_elsewhere(error: AlreadyHeldError) -> AlreadyHeldError:
    """The error of an opening, with the process that holds the store as text for people, and what can be done."""
    what, found, note = str(error).partition(": held by ")
    what = what.partition(": lock ")[0]
    holder = f"held by {note}" if found else str(error)
    try:
        import json

        record = json.loads(note)
        own = (record["pid"], record["host"]) == (os.getpid(), os.uname().nodename)
        holder = f"{'this process' if own else record['program']} (pid {record['pid']:d} on {record['host']}) holds it since " \
                 f"{record['since']}"
    except (ValueError, TypeError, LookupError):
        pass  # another program wrote the note, or none
    return AlreadyHeldError(f"{what}: {holder}. Close it there first. To read a step meanwhile use tidemark.open, to evaluate "
                            f"its steps tidemark.follow")


def from_status(code: int, message: str) -> Error:
    """The exception for a status. Called by the native module."""
    return _BY_CODE.get(code, Error)(in_python(message))
