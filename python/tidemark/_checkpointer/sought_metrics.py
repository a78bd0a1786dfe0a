"""Metrics that a health monitor or an average looks for in those that are given with the saves."""

from __future__ import annotations

from collections.abc import Mapping

from .._arguments import did_you_mean
from .observer import logger

_SHOWN = 10  # metrics of a save that has none of a similar name
_SAVES = 3  # so many with metrics, and none of them with the one that is sought, are no accident


class SoughtMetrics:
    """Warns, once for each, of metrics that no save has: they may be misspelt, or be an evaluator's, which do not count. Owned by
    the thread that saves."""

    def __init__(self) -> None:
        self._sought: dict[tuple[str, str], int] = {}  # how many saves have had other metrics, by (who looks for it, its name)

    def add(self, of: str, name: str) -> None:
        """`of`: who looks for the metric, for the message. An empty name: no metric is looked for."""
        if name:
            self._sought[of, name] = 0

    def note(self, given: Mapping[str, float]) -> None:
        """The metrics of one save."""
        if not given:
            return
        for (of, name), others in list(self._sought.items()):
            self._sought[of, name] = others + 1
            if name not in given and others + 1 < _SAVES:
                continue
            del self._sought[of, name]  # it is there, or the warning comes now
            if name not in given:
                logger.warning("none of %d saves with metrics has the metric '%s', which %s looks for; metrics of evaluators do "
                               "not count%s", _SAVES, name, of,
                               did_you_mean(name, given) or f": the last save has {', '.join(sorted(given)[:_SHOWN])}")
