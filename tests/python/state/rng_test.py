"""tidemark.rng() has the generators of devices, too. Generators of the CPU stand for those of the devices here."""

import logging
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import tidemark  # noqa: E402
from tidemark import errors  # noqa: E402
from tidemark._state import rng  # noqa: E402


class Devices:
    """What rng.py uses of torch.cuda, torch.xpu or a backend's own module."""

    def __init__(self, count=2, initialized=True, seed=0):
        self.generators = [torch.Generator().manual_seed(seed + i) for i in range(count)]
        self.initialized = initialized

    def is_initialized(self):
        return self.initialized

    def device_count(self):
        return len(self.generators)

    def get_rng_state(self, device):
        assert self.initialized, "would initialise the accelerator"
        return self.generators[device].get_state()

    def set_rng_state(self, state, device):
        self.generators[device].set_state(state)

    def draw(self):
        return [torch.rand(1, generator=generator).item() for generator in self.generators]


@pytest.fixture
def use(monkeypatch):
    """Has torch.cuda be those devices, or the module of another name."""
    def use(devices, name="cuda"):
        names = [function for function in ("is_initialized", "device_count", "get_rng_state", "set_rng_state")
                 if hasattr(devices, function)]
        if not hasattr(torch, name):
            monkeypatch.setattr(torch, name, types.ModuleType(name), raising=False)
        for function in names:
            monkeypatch.setattr(getattr(torch, name), function, getattr(devices, function), raising=False)
        return devices

    return use


@pytest.mark.parametrize("name", ["cuda", "xpu", "privateuseone"])
def test_generators_of_devices_go_on(checkpointer, use, name):
    devices = use(Devices(), name)
    checkpointer.save(1, {"rng": tidemark.rng()})
    drawn = devices.draw()
    restored = use(Devices(seed=7), name)
    checkpointer.restore({"rng": tidemark.rng()})
    assert restored.draw() == drawn and len(set(drawn)) == 2
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path) as step:
        assert {f"rng.devices.{name}.0", f"rng.devices.{name}.1"} <= set(step.keys())


def test_the_one_generator_of_mps_goes_on_without_an_index(checkpointer, use):
    class Mps:
        generator = torch.Generator().manual_seed(3)

        def device_count(self):
            return 1

        def get_rng_state(self):
            return self.generator.get_state()

        def set_rng_state(self, state):
            self.generator.set_state(state)

    devices = use(Mps(), "mps")
    checkpointer.save(1, {"rng": tidemark.rng()})
    drawn = torch.rand(3, generator=devices.generator)
    checkpointer.restore({"rng": tidemark.rng()})
    assert torch.equal(torch.rand(3, generator=devices.generator), drawn)


def test_an_accelerator_that_is_not_initialised_stays_so_and_has_no_generators(checkpointer, use):
    devices = use(Devices(initialized=False))
    checkpointer.save(1, {"rng": tidemark.rng()}).committed.result(60)
    assert "devices" not in tidemark.rng().state_dict() and not devices.initialized
    with tidemark.open(checkpointer.path) as step:
        assert "devices" not in step.get_value("rng")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="without a GPU nothing could be initialised")
def test_saving_initialises_no_accelerator_of_this_pytorch():
    program = ("import tidemark, torch; tidemark.rng().load_state_dict(tidemark.rng().state_dict())\n"
               "print(torch.cuda.is_initialized())")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout == "False\n"


@pytest.mark.parametrize("here,left_out", [(1, True), (2, False), (3, False), (0, True)])
def test_another_number_of_devices_keeps_what_fits_and_warns_of_the_rest(checkpointer, use, caplog, here, left_out):
    devices = use(Devices())
    checkpointer.save(1, {"rng": tidemark.rng()})
    drawn = devices.draw()
    restored = use(Devices(here, seed=7))
    expected = [*drawn[:here], *Devices(here, seed=7).draw()[2:]]
    with caplog.at_level(logging.WARNING, "tidemark"):
        checkpointer.restore({"rng": tidemark.rng()})
    assert restored.draw() == expected
    said = f"the checkpoint has generators of 2 devices of the type cuda, and there are {here} here: the others are left out"
    assert (said in caplog.text) == left_out


def test_devices_of_a_type_that_is_not_here_are_left_out_with_a_warning(use, caplog):
    state = {**tidemark.rng().state_dict(), "devices": {"abacus": [torch.zeros(16, dtype=torch.uint8)]}}
    with caplog.at_level(logging.WARNING, "tidemark"):
        tidemark.rng().load_state_dict(state)
    assert "generators of 1 devices of the type abacus, and there are 0 here" in caplog.text


def test_a_state_that_the_device_refuses_is_an_error_with_its_name(use):
    use(Devices())
    state = {**tidemark.rng().state_dict(), "devices": {"cuda": [torch.zeros(3, dtype=torch.uint8)]}}
    with pytest.raises(errors.InvalidArgumentError, match="the generator of cuda:0 refuses its state in the checkpoint"):
        tidemark.rng().load_state_dict(state)


def test_a_driver_that_cannot_count_its_devices_has_none(use):
    class Broken(Devices):
        def device_count(self):
            raise RuntimeError("no driver")

    use(Broken())
    assert "devices" not in tidemark.rng().state_dict()


def test_an_older_step_without_devices_leaves_theirs_as_they_are(checkpointer, use, monkeypatch):
    devices = use(Devices())
    with monkeypatch.context() as older:
        older.setattr(rng, "_accelerators", dict)
        checkpointer.save(1, {"rng": tidemark.rng()})
    drawn = torch.rand(3)
    checkpointer.restore({"rng": tidemark.rng()})
    assert torch.equal(torch.rand(3), drawn) and devices.draw() == Devices().draw()
