"""Generators of random numbers as objects with state."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import Error, InvalidArgumentError

_logger = logging.getLogger("tidemark")


def _check_positions(state: Any) -> None:
    """Of a state that NumPy will be given, which does not check them. InvalidArgumentError: it would read outside of its
    buffers."""
    if isinstance(state, (tuple, list)):  # the legacy form
        found = [("pos", state[2], 624)]
    else:
        places = ((state["state"], "pos", 624), (state, "buffer_pos", 4))
        found = [(name, of[name], end) for of, name, end in places if name in of]
    for name, position, end in found:
        if type(position) is not int or not 0 <= position <= end:
            raise InvalidArgumentError(f"the state of a generator of NumPy has {name} = {position!r:.40}, which must be an int "
                                       f"from 0 to {end}")


class NumpyGenerator:
    """numpy.random.Generator as an object with state."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        _check_positions(state["state"])
        self._generator.bit_generator.state = state["state"]

    def fresh_bits(self) -> Any:
        return type(self._generator.bit_generator)()


class NumpyRandomState:
    """numpy.random.RandomState as an object with state."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.get_state(legacy=False)}  # the legacy tuple knows MT19937 only

    def load_state_dict(self, state: dict[str, Any]) -> None:
        _check_positions(state["state"])
        self._generator.set_state(state["state"])

    def fresh_bits(self) -> Any:
        return getattr(sys.modules["numpy"].random, self._generator.get_state(legacy=False)["bit_generator"])()


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
        generator.set_state(torch.tensor(list(state), dtype=torch.uint8, device="cpu"))
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
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return NumpyRandomState(value)
    return None


# Modules of PyTorch that may have a generator for each device; a backend that has taken the place of PrivateUse1 is another.
_ACCELERATORS = ("cuda", "xpu", "mps")


class _Accelerator:
    """The generators of PyTorch on the devices of one type."""

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self._module = module

    def count(self) -> int:
        """How many devices have one. Does not initialise the accelerator."""
        try:
            return int(self._module.device_count())
        except (AttributeError, RuntimeError):  # mps of PyTorch 2.0 cannot count, and other modules are without a driver
            return 0

    def states(self) -> list[Any]:
        """Empty before the accelerator is initialised: nothing has been drawn there then."""
        initialised = getattr(self._module, "is_initialized", None)
        if initialised is not None and not initialised():
            return []
        return [self._module.get_rng_state(*self._device(i)) for i in range(self.count())]

    def set(self, index: int, state: Any) -> None:
        """InvalidArgumentError: the generator refuses the state. Before it is initialised, PyTorch sets it when it is."""
        try:
            self._module.set_rng_state(state, *self._device(index))
        except (RuntimeError, TypeError) as error:
            raise InvalidArgumentError(f"the generator of {self.name}:{index} refuses its state in the checkpoint: "
                                       f"{error}") from None

    def _device(self, index: int) -> tuple[int, ...]:
        return () if self.name == "mps" else (index,)  # there is one


def _accelerators() -> dict[str, _Accelerator]:
    """Those of this PyTorch, whether there are such devices or not, by name."""
    torch = sys.modules.get("torch")
    renamed = getattr(getattr(torch, "_C", None), "_get_privateuse1_backend_name", lambda: "privateuseone")
    found = {name: getattr(torch, name, None) for name in (*_ACCELERATORS, renamed())}
    return {name: _Accelerator(name, module) for name, module in found.items()
            if hasattr(module, "get_rng_state") and hasattr(module, "set_rng_state")}


class rng:  # noqa: N801: it reads like a function
    """The default generators of the process: Python's `random`, NumPy's, and PyTorch's on the CPU and on each device.

    Put it into the state: `{"rng": tidemark.rng(), ...}`. Libraries that are not imported have none, and neither has an
    accelerator that PyTorch has not initialised; saving initialises none. A generator that the checkpoint has is restored if
    its library has been imported by then, and the device is there. If not, also because it is not installed, the generator is
    left out, with a line in the log, which for devices is a warning. One that the checkpoint lacks stays as it is.
    InvalidArgumentError, of a restore: what the checkpoint has is no state of these generators, or a generator refuses it.
    """

    def state_dict(self) -> dict[str, Any]:
        """{"python", "numpy", "torch": the states, as the libraries return them, "devices": {type: [state of each device]}}"""
        state: dict[str, Any] = {"python": random.getstate()}
        if "numpy" in sys.modules:
            state["numpy"] = sys.modules["numpy"].random.get_state()
        if "torch" in sys.modules:
            state["torch"] = sys.modules["torch"].get_rng_state()
            devices = {name: states for name, accelerator in _accelerators().items() if (states := accelerator.states())}
            if devices:
                state["devices"] = devices
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets what `state_dict` has returned, here or in another process."""
        random.setstate(state["python"])
        for library in ("numpy", "torch"):
            if library in state and library not in sys.modules:
                _logger.info("the generator of %s stays as it is, for %s has not been imported", library, library)
        if "numpy" in state and "numpy" in sys.modules:
            _check_positions(state["numpy"])
            sys.modules["numpy"].random.set_state(state["numpy"])
        if "torch" in state and "torch" in sys.modules:
            sys.modules["torch"].set_rng_state(state["torch"])
            self._set_devices(state.get("devices", {}))

    @staticmethod
    def _set_devices(devices: dict[str, list[Any]]) -> None:
        accelerators = _accelerators()
        for name, states in devices.items():
            count = accelerators[name].count() if name in accelerators else 0
            for i, of_device in enumerate(states[:count]):
                accelerators[name].set(i, of_device)
            if len(states) > count:
                _logger.warning("the checkpoint has generators of %d devices of the type %s, and there are %d here: the others "
                                "are left out", len(states), name, count)


def left_out_by(value: Any, framework: str) -> bool:
    """Whether the object leaves out the generators of that framework ("np", "pt"), which has not been imported."""
    return type(value) is rng and {"np": "numpy", "pt": "torch"}[framework] not in sys.modules


def has_trial(value: Any) -> bool:
    """Whether `try_state` can tell of the object, which is no torch.Generator."""
    return isinstance(value, (NumpyGenerator, NumpyRandomState, PythonGenerator, rng, _FreshTorchGenerator))


def try_state(value: Any, state: Any, path: str) -> None:
    """InvalidArgumentError: the generator would refuse the state. It does not change."""
    if is_torch_generator(value):
        set_torch_generator(type(value)(device=value.device), state, path)
        return
    for trial, given in _trials(value, state):
        load_state(trial, given, path)


def _trials(value: Any, state: Any) -> Iterator[tuple[Any, Any]]:
    """Fresh generators of the same kinds, each with its part of the state."""
    if isinstance(value, PythonGenerator):
        yield PythonGenerator(random.Random()), state
    elif isinstance(value, NumpyGenerator):
        yield NumpyGenerator(sys.modules["numpy"].random.Generator(value.fresh_bits())), state
    elif isinstance(value, NumpyRandomState):
        yield NumpyRandomState(sys.modules["numpy"].random.RandomState(value.fresh_bits())), state
    elif not isinstance(state, dict) or "python" not in state:
        yield PythonGenerator(random.Random()), {} if isinstance(state, dict) else state
    else:
        yield PythonGenerator(random.Random()), {"state": state["python"]}
        if "numpy" in state and "numpy" in sys.modules:
            yield NumpyRandomState(sys.modules["numpy"].random.RandomState()), {"state": state["numpy"]}
        if "torch" in state and "torch" in sys.modules:
            yield _FreshTorchGenerator(), state["torch"]


class _FreshTorchGenerator:
    def load_state_dict(self, state: Any) -> None:
        sys.modules["torch"].Generator().set_state(state)


def load_state(value: Any, state: Any, path: str) -> None:
    """value.load_state_dict(state). InvalidArgumentError: it raised, or the value is of a class above, and its generator refuses
    the state."""
    try:
        value.load_state_dict(state)
    except Exception as error:
        detail = str(error) if isinstance(error, Error) else repr(error)
        if not has_trial(value):
            kind = type(value).__qualname__
            raise InvalidArgumentError(f"'{path}': load_state_dict() of {kind} raised {detail}. Arrays of the state have been "
                                       f"written: restore it again before you go on") from error
        raise InvalidArgumentError(f"'{path}' has a state in the checkpoint that the generator here refuses: {detail}") from error
