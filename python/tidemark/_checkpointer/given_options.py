"""Options of Checkpointer that are given to an integration, which opens it later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .._arguments import did_you_mean
from ..errors import InvalidArgumentError
from .checkpointer import OPTIONS, Checkpointer
from .observer import observer_or_none
from .ranks import Ranks


def check_options(of: str, options: Mapping[str, Any], instead: Mapping[str, str] | None = None, *,
                  own: Callable[..., Any] | None = None) -> None:
    """For what is given options of Checkpointer, and opens it later. `own`: the constructor that takes them, which has other
    arguments too. `instead`: options that it does not take, or single values of them ("staging='overlapped'"), each with what the
    user should do instead. InvalidArgumentError: there is no such option, the value is of another type, or it is not taken; `of`,
    the name of what was given them, is in the message."""
    known = [name for name in inspect.signature(Checkpointer).parameters if name != "path"]
    instead = instead or {}
    for name, value in options.items():
        for refused in (name, f"{name}={value!r}" if isinstance(value, str) else name):
            if refused in instead:
                raise InvalidArgumentError(f"{of} takes no {refused}: {instead[refused]}")
        if name not in known:
            theirs = [] if own is None else [parameter.name for parameter in inspect.signature(own).parameters.values()
                                             if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD]
            meant = did_you_mean(name, [*theirs, *known]) or (
                (f": its own are {', '.join(theirs)}; those" if theirs else ": those") +
                f" of tidemark.Checkpointer are {', '.join(one for one in known if one not in instead and one not in theirs)}")
            raise InvalidArgumentError(f"{of} has no option '{name}'{meant}")
        if name in OPTIONS:
            OPTIONS[name](value, name)
    observer_or_none(options.get("observer"))


def check_options_of_ranks(of: str, options: Mapping[str, Any], ranks: Ranks | None) -> None:
    """For a training of several processes, which all make the same saves. InvalidArgumentError: an option would have one of them
    leave a save out."""
    if ranks is not None:
        check_options(of, options, {
            "when_full='skip'": "with ranks, one that has no room would skip a save that the others make"})


def refused_by(framework: str, *, when: str, **others: str) -> dict[str, str]:
    """`instead` of check_options, for an integration of a framework that decides when to save and changes the tensors at any
    time after a save. `when`: what to use in place of the options that say when to save."""
    options = ("save_interval_steps", "save_on_steps", "save_interval_seconds", "save_when")
    return {**dict.fromkeys(options, when), **others,
            "staging='overlapped'": f"{framework} changes the tensors before they are copied: use 'blocking' or 'on_device'"}
