"""The copies that PyTorch makes of tensors on devices, without a checkpointer."""

import gc
import weakref

import numpy as np
import pretend_device
import pytest
import torch
from pretend_device import DEVICES, filled, ops
from tidemark._state import devices

KB = 1024


def test_copies_on_the_device_that_are_there_do_not_keep_the_tensors():
    tensors = [filled(1), filled(2)]
    alive = weakref.ref(tensors[1])
    on_devices = devices.DeviceTensors({i: (tensor, "uint8") for i, tensor in enumerate(tensors)}, devices.Streams())
    assert on_devices.copy_on_device(([0, 1], 8 * KB - 1)) == (0, "", None)
    code, _, image = on_devices.copy_on_device(([0, 1], 8 * KB))
    on_devices.release()
    del tensors
    gc.collect()
    host = np.zeros(4 * KB, np.uint8)
    assert code == 0 and image.bytes == 8 * KB and alive() is not None
    assert image.copy_to_host([(0, host.ctypes.data, host.nbytes)]) == (0, "", None)
    gc.collect()
    assert alive() is None and host.tolist() == [1] * 4 * KB


def test_copies_on_the_device_that_are_neighbours_there_and_in_host_memory_are_drained_as_one():
    on_devices = devices.DeviceTensors({i: (filled(i), "uint8") for i in range(3)}, devices.Streams())
    _, _, image = on_devices.copy_on_device(([0, 1, 2], 0))
    host = np.zeros((4, 4 * KB), np.uint8)
    before = ops.copies_enqueued()
    assert image.copy_to_host([(i, host[row].ctypes.data, 4 * KB) for i, row in ((0, 0), (1, 1), (2, 3))]) == (0, "", None)
    assert ops.copies_enqueued() == before + 2
    assert host[:, 0].tolist() == [0, 1, 0, 2]


def test_copies_on_the_device_take_one_stream_for_each_device(monkeypatch):
    made = []
    tensors = {i: (filled(i, index=i % 2), "uint8") for i in range(6)}
    on_devices = devices.DeviceTensors(tensors, devices.Streams())
    monkeypatch.setattr(pretend_device.module, "Stream", lambda device: made.append(device) or pretend_device.Stream(device))
    assert on_devices.copy_on_device((list(tensors), 0))[0] == 0 and made == DEVICES


@pytest.mark.parametrize(("error", "outcome"), [
    (RuntimeError("NPU out of memory. Tried to allocate 4 KiB"), (0, "", None)),
    (RuntimeError("the device was lost"), (13, "copying tensors on devices: RuntimeError: the device was lost", None)),
    (TypeError("no such device"), (13, "copying tensors on devices: TypeError: no such device", None))])
def test_only_a_device_without_memory_has_no_room_for_copies(monkeypatch, error, outcome):
    def fail(*_, **options):
        raise error

    on_devices = devices.DeviceTensors({0: (filled(1), "uint8")}, devices.Streams())
    devices._element_size("uint8")  # which makes a tensor, too
    monkeypatch.setattr(torch, "empty", fail)
    assert on_devices.copy_on_device(([0], 0)) == outcome


def test_a_copy_for_which_a_backend_finds_no_memory_is_an_error_that_says_so(monkeypatch):
    on_devices = devices.DeviceTensors({0: (filled(1), "uint8")}, devices.Streams())

    def fail(*_):
        raise RuntimeError("NPU out of memory")

    monkeypatch.setattr(on_devices, "_content", fail)
    assert on_devices.copy_to_host([(0, 0, 4 * KB)]) == (
        8, "there is no memory on the device to copy a tensor there: NPU out of memory", None)


def test_every_stream_is_waited_for_if_one_fails():
    class Stream:
        def __init__(self, fails):
            self.fails, self.waited = fails, False

        def synchronize(self):
            self.waited = True
            if self.fails:
                raise RuntimeError("failed")

    streams = [Stream(True), None, Stream(False)]
    with pytest.raises(RuntimeError, match="failed"):
        devices._synchronize(streams)
    assert streams[2].waited


def test_the_module_of_a_device_type_is_looked_up_by_its_name(monkeypatch):
    assert devices.module_of("cuda") is torch.cuda
    assert devices.module_of("privateuseone") is pretend_device.module
    assert devices.module_of("xpu") is getattr(torch, "xpu", None)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: f"module of {kind}", raising=False)
    assert devices.module_of("npu") == "module of npu"
