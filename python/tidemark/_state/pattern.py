"""Patterns of names, with "*" and "?", as the C++ library reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches the whole name."""
    return any(re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name, re.DOTALL)
               for pattern in patterns)
