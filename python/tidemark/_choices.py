"""The words that options may be, for type checkers. What they mean is in the docstrings of those who take them."""

from __future__ import annotations

from typing import Literal

AverageKind = Literal["exponential", "uniform"]
BestMode = Literal["", "lowest", "highest"]
Compression = Literal["auto", "throughput", "space", "none"]
HalfPrecision = Literal["", "bfloat16", "float16"]
IoBackend = Literal["auto", "uring", "threads"]
Staging = Literal["blocking", "overlapped", "on_device"]
WhenFull = Literal["block", "skip", "fail"]
WhenLagging = Literal["skip", "latest", "block", "queue"]
