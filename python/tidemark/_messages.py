"""Messages of the C++ library in the words of Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Union

_RAISED = "UNKNOWN: "  # the status of a function of Python that has raised

# They apply one after the other.
_RULES: list[tuple[str, Union[str, Callable[[re.Match[str]], str]]]] = [
    (r"TorchState::set_converts_dtypes\(true\) converts floating-point tensors",
     "convert_dtypes=True converts floating-point arrays"),
    (r"SaveOptions::overwrite would", "overwrite=True would"),
    (r"ExportOptions::replace replaces", "replace=True replaces"),
    (r"set BestMode::kLowest or BestMode::kHighest", "set \"lowest\" or \"highest\""),
    (r"call WaitUntilStaged before the optimizer's step", "call wait_until_staged() before the optimizer's step"),
    (r"Companion::Reset starts the average afresh", "an average of another name starts afresh"),
    (r"\bRetentionOptions::", "retention."),
    (r"\bRankOptions::", "ranks."),
    (r"\bCheckpointerOptions::directory\b|\bWorkerOptions::directory\b", "the path of the store"),
    (r"\b\w+Options::", ""),
    (r"\b(Staging|WhenLagging|Compression|WhenFull)::k(\w+)", lambda found: f"{_snake(found[1])}=\"{_snake(found[2])}\""),
    (r"\b[A-Z]\w*::k([A-Z]\w*)", lambda found: f"\"{_snake(found[1])}\""),
    (r"\bState(::\w+)+", "the state"),
    (r"\b(KeepBest|BestFile)::(\w+)", lambda found: f"{found[1]}.{_snake(found[2])}"),
    (r"\b(WaitUntil\w+)", lambda found: _snake(found[1])),
    (r"\bFollowStore\b", "tidemark.follow"),
    (r"\bk(Queue|Latest)\b", lambda found: f"\"{_snake(found[1])}\""),
    (r"\bShouldSave threw\b", "save_when raised"),
    (r"\bthrew\b", "raised"),
    (r"\b1 differences:", "1 difference:"),
    (r"^(evaluator '.*?' (?:of .*? )?failed at step \d+: )UNKNOWN: ", r"\1"),  # before what Python has raised
]


def in_python(message: str) -> str:
    """The message with the names that options, values and methods have in Python."""
    for pattern, new in _RULES:  # compiled when the first message comes
        message = re.sub(pattern, new, message)
    return message


def reason_in_python(reason: str) -> str:
    """The same of why an evaluation failed or was skipped. What its function has raised stays as Python says it."""
    return reason.removeprefix(_RAISED) if reason.startswith(_RAISED) else in_python(reason)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
