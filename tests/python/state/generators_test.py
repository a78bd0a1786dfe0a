"""A checkpoint with wrong states of generators ends the restore with an InvalidArgumentError. It does not end the process."""

import random
import subprocess
import sys

import numpy as np
import pytest
import tidemark
from stateful import Stateful
from tidemark import errors

GOOD = tidemark.rng().state_dict()
KEY = np.random.RandomState(1).get_state()[1]
MT19937 = np.random.Generator(np.random.MT19937(1)).bit_generator.state
PHILOX = np.random.Generator(np.random.Philox(1)).bit_generator.state


def restore(store, state, generator):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(1, {"own": {"g": Stateful(state)}})
        checkpointer.restore({"own": {"g": generator}})


def with_pos(pos):
    return {**MT19937, "state": {**MT19937["state"], "pos": pos}}


# NumPy takes each of these without an error, and reads foreign memory at the next draw.
OUTSIDE = {
    "rng": (lambda: {**GOOD, "numpy": ("MT19937", KEY, 10**8, 0, 0.0)}, tidemark.rng, "pos = 100000000"),
    "rng, small": (lambda: {**GOOD, "numpy": ("MT19937", KEY, 625, 0, 0.0)}, tidemark.rng, "pos = 625"),
    "rng, a list": (lambda: {**GOOD, "numpy": ["MT19937", KEY, -1, 0, 0.0]}, tidemark.rng, "pos = -1"),
    "rng, a dict": (lambda: {**GOOD, "numpy": with_pos(10**8)}, tidemark.rng, "pos = 100000000"),
    "Generator": (lambda: {"state": with_pos(-10**8)}, lambda: np.random.Generator(np.random.MT19937(1)), "pos = -100000000"),
    "Generator, a tuple": (lambda: {"state": ("MT19937", KEY, 10**8)}, lambda: np.random.Generator(np.random.MT19937(1)),
                           "pos = 100000000"),
    "RandomState": (lambda: {"state": with_pos(10**8)}, lambda: np.random.RandomState(1), "pos = 100000000"),
    "Philox": (lambda: {"state": {**PHILOX, "buffer_pos": -10**9}}, lambda: np.random.Generator(np.random.Philox(1)),
               "buffer_pos = -1000000000"),
    "RandomState, Philox": (lambda: {"state": {**PHILOX, "buffer_pos": 5, "has_gauss": 0, "gauss": 0.0}},
                            lambda: np.random.RandomState(np.random.Philox(1)), "buffer_pos = 5"),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_position_outside_of_a_buffer_of_numpy_is_refused(tmp_path, case):
    state, generator, said = OUTSIDE[case]
    with pytest.raises(errors.InvalidArgumentError, match=f"'own.g' .*{said}, which must be an int from 0 to"):
        restore(tmp_path / "store", state(), generator())


def test_a_process_that_restores_a_hostile_position_goes_on(tmp_path):
    program = """import sys, numpy as np, tidemark
class Stored:
    def state_dict(self):
        return {**tidemark.rng().state_dict(), "numpy": ("MT19937", np.random.get_state()[1], 10**8, 0, 0.0)}
    def load_state_dict(self, state):
        pass
with tidemark.Checkpointer(sys.argv[1]) as checkpointer:
    checkpointer.save(1, {"rng": Stored()})
    try:
        checkpointer.restore({"rng": tidemark.rng()})
    except tidemark.errors.InvalidArgumentError:
        pass
    np.random.rand()
print("alive")
"""
    result = subprocess.run([sys.executable, "-c", program, tmp_path / "store"], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout) == (0, "alive\n"), result.stderr


def test_the_first_and_the_last_position_come_back(tmp_path):
    for step, (pos, buffer_pos) in enumerate(((0, 1), (624, 4))):  # NumPy 2.5 has no buffer_pos of 0
        twister, philox = np.random.Generator(np.random.MT19937(1)), np.random.Generator(np.random.Philox(1))
        twister.bit_generator.state, philox.bit_generator.state = with_pos(pos), {**PHILOX, "buffer_pos": buffer_pos}
        state = {"twister": twister, "philox": philox, "legacy": np.random.RandomState(twister.bit_generator)}
        with tidemark.Checkpointer(tmp_path / f"store{step}") as checkpointer:
            checkpointer.save(1, state)
            drawn = [generator.standard_normal() for generator in state.values()]
            checkpointer.restore(state)
        assert [generator.standard_normal() for generator in state.values()] == drawn


WRONG = {
    "no generators": ({}, tidemark.rng, "KeyError"),
    "a number": (5, tidemark.rng, "TypeError"),
    "a number for Python's": ({"python": 5}, tidemark.rng, "TypeError"),
    "a short key": ({**GOOD, "numpy": ("MT19937", KEY[:5], 0, 0, 0.0)}, tidemark.rng, "IndexError|ValueError"),
    "a short tuple": ({**GOOD, "numpy": ("MT19937",)}, tidemark.rng, "IndexError"),
    "a float as position": ({**GOOD, "numpy": ("MT19937", KEY, 1.5, 0, 0.0)}, tidemark.rng, "pos = 1.5"),
    "another generator": ({"state": np.random.default_rng(1).bit_generator.state},
                          lambda: np.random.Generator(np.random.Philox(1)), "ValueError"),
    "Python's generator": ({"state": (3, (1, 2), None)}, lambda: random.Random(1), "ValueError"),
    "a RandomState": ({"other": 1}, lambda: np.random.RandomState(1), "KeyError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_state_that_no_generator_has_is_refused_with_its_path(tmp_path, case):
    state, generator, said = WRONG[case]
    with pytest.raises(errors.InvalidArgumentError, match=f"'own.g' .*the generator here refuses: .*({said})"):
        restore(tmp_path / "store", state, generator())


@pytest.mark.parametrize("state", [lambda torch: {"torch": torch.zeros(3, dtype=torch.uint8)},
                                   lambda torch: {"torch": torch.zeros(3)}, lambda torch: {"devices": {"cuda": 5}},
                                   lambda torch: {"devices": [1]}])
def test_a_wrong_state_of_pytorch_is_refused_with_its_path(tmp_path, state):
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.InvalidArgumentError, match="'own.g' .*the generator here refuses: "):
        restore(tmp_path / "store", {**tidemark.rng().state_dict(), **state(torch)}, tidemark.rng())


def test_what_an_object_of_the_user_raises_has_its_path(tmp_path):
    class Raising(Stateful):
        def load_state_dict(self, state):
            raise ValueError("of the user")

    with pytest.raises(errors.InvalidArgumentError, match="^'own.g': .*'of the user'") as raised:
        restore(tmp_path / "store", {}, Raising({}))
    assert type(raised.value.__cause__) is ValueError
