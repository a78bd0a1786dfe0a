"""Generators of random numbers as objects with state."""

from __future__ import annotations

import random
import sys
from typing import Any


class NumpyGenerator:
    """numpy.random.Generator as an object with state."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.bit_generator.state = state["state"]


class PythonGenerator:
    """random.Random as an object with state."""

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.setstate(state["state"])


class TorchGenerator:
    """torch.Generator as an object with state."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["state"])


def adapter_of(value: object) -> Any:
    """An object with state for a generator, or None."""
    if type(value) is random.Random:
        return PythonGenerator(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return NumpyGenerator(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return TorchGenerator(value)
    return None


class rng:  # noqa: N801: it reads like a function
    """The generators of the process: Python's `random`, and those of NumPy and of PyTorch on the CPU, if imported.

    Put it into the state: `{"rng": tidemark.rng(), ...}`. A generator that the checkpoint has is restored if its library
    has been imported by then; one that it lacks stays as it is.
    """

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"python": random.getstate()}
        if "numpy" in sys.modules:
            state["numpy"] = sys.modules["numpy"].random.get_state()
        if "torch" in sys.modules:
            state["torch"] = sys.modules["torch"].get_rng_state()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate(state["python"])
        if "numpy" in state and "numpy" in sys.modules:
            sys.modules["numpy"].random.set_state(state["numpy"])
        if "torch" in state and "torch" in sys.modules:
            sys.modules["torch"].set_rng_state(state["torch"])
