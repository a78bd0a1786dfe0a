"""Generators of random numbers as objects with state."""

from __future__ import annotations

import random
import sys
from typing import Any

from .errors import InvalidArgumentError


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


def torch_generator_bytes(generator: Any) -> bytes:
    """The state of a torch.Generator, as the C++ library stores it."""
    return bytes(generator.get_state().tolist())  # of Debian's PyTorch, numpy() fails


def set_torch_generator(generator: Any, state: Any, path: str) -> None:
    """InvalidArgumentError: these are the bytes of no such generator."""
    torch = sys.modules["torch"]
    if type(state) is not bytes:
        raise InvalidArgumentError(f"'{path}' is a generator of PyTorch here, and a {type(state).__name__} in the checkpoint")
    try:
        generator.set_state(torch.tensor(list(state), dtype=torch.uint8))
    except RuntimeError as error:
        raise InvalidArgumentError(f"'{path}' has {len(state)} bytes, which the generator refuses: {error}") from None


def is_torch_generator(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Generator)


def adapter_of(value: object) -> Any:
    """An object with state for a generator, or None."""
    if type(value) is random.Random:
        return PythonGenerator(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return NumpyGenerator(value)
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
