"""The pretend accelerator as a device of PyTorch, "privateuseone", with the module that a backend for hardware would have.

Its streams are threads, which a test holds with gates: see tests/snapshot/pretend_accelerator.h. It has no arithmetic.
"""

import contextlib
import os
import types

import torch

torch.ops.load_library(os.environ["TIDEMARK_PRETEND_DEVICE"])
ops = torch.ops.pretend


class Stream:
    def __init__(self, device=None, stream_id=None):
        self.device = torch.device(device)
        self.stream_id = ops.new_stream(self.device.index) if stream_id is None else stream_id

    def wait_stream(self, other):
        ops.wait_stream(self.device.index, self.stream_id, other.device.index, other.stream_id)

    def synchronize(self):
        ops.synchronize(self.device.index, self.stream_id)


def current_stream(device=None):
    device = torch.device(device)
    return Stream(device, ops.current_stream(device.index))


@contextlib.contextmanager
def stream(stream):
    before = current_stream(stream.device)
    ops.set_stream(stream.device.index, stream.stream_id)
    try:
        yield
    finally:
        ops.set_stream(before.device.index, before.stream_id)


module = types.ModuleType("privateuseone")
module.Stream, module.current_stream, module.stream = Stream, current_stream, stream
torch._register_device_module("privateuseone", module)

DEVICES = [torch.device("privateuseone", index) for index in (0, 1)]


def on_device(tensor, index=0):
    """A copy of the tensor there."""
    return tensor.to(DEVICES[index])


def filled(value, count=4096, index=0):
    """A tensor of so many bytes of that value there."""
    return on_device(torch.full((count,), value, dtype=torch.uint8), index)


def to_host(tensor):
    """A copy of the tensor in host memory, when all that its device's current stream has to do is done."""
    return tensor.cpu()


class Gate:
    """Holds the current stream of a device of this thread, from now until `open`."""

    def __init__(self, index=0):
        self._gate = ops.new_gate()
        ops.enqueue_wait(index, self._gate)

    def open(self):
        ops.open(self._gate)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open()  # also where the test has failed: streams and saves would wait for ever
