"""What the checks and the bench ask of a device: CUDA, and for dry runs the pretend accelerator of the tests and the CPU."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import torch

TESTS = pathlib.Path(__file__).parents[3] / "tests" / "python"


class UnavailableError(Exception):
    """This machine has no such device."""


class Accelerator:
    """`module`: the device type's own, with its streams."""

    pins = True  # PyTorch gives page-locked memory for it
    has_peers = True  # torch.save and DCP can copy its tensors
    compares_on = "device"

    def __init__(self, device, module):
        self.device, self.module = device, module

    def described(self):
        return {"name": self.device.type}

    def free_bytes(self):
        """Of the device; None: it does not tell."""
        return None

    def new_stream(self):
        return self.module.Stream(device=self.device)

    def current_stream(self):
        return self.module.current_stream(self.device)

    def on(self, stream):
        """Has PyTorch enqueue on the stream; None: as it does anyway."""
        return contextlib.nullcontext() if stream is None else self.module.stream(stream)

    def order(self, waiting, stream):
        """By an event: what `waiting` gets from now on comes after what `stream` has got so far."""
        waiting.wait_stream(stream)

    def synchronize(self):
        self.current_stream().synchronize()

    def empty(self, *shape, dtype=torch.float32):
        return torch.empty(*shape, dtype=dtype, device=self.device)

    def random(self, *shape):
        return torch.randn(*shape, device=self.device)

    def fill(self, tensor, value):
        """Enqueues a kernel that makes every byte `value`."""
        tensor.view(torch.uint8).fill_(value)

    def is_filled(self, tensor, value):
        return bool((tensor.view(torch.uint8) == value).all())

    def change(self, tensor, number):
        """Enqueues a kernel that gives every element a value that it has had with no other number."""
        tensor.view(torch.int32).add_(1)

    def equal(self, first, second):
        return torch.equal(first, second)

    def busy(self, seconds):
        """Enqueues work for about so long, and returns at once."""
        raise NotImplementedError

    def work(self, units):
        """Enqueues so many units of a training's work."""
        raise NotImplementedError

    def seconds_of_a_unit(self):
        self.work(2)
        self.synchronize()
        units, took = 4, 0.0
        while took < 0.1:
            units *= 2
            begin = time.perf_counter()
            self.work(units)
            self.synchronize()
            took = time.perf_counter() - begin
        return took / units


class Cuda(Accelerator):
    SIDE = 8192

    def __init__(self):
        if not torch.cuda.is_available():
            raise UnavailableError(f"PyTorch {torch.__version__} finds no CUDA device")
        super().__init__(torch.device("cuda", torch.cuda.current_device()), torch.cuda)
        self._matrix = torch.randn(self.SIDE, self.SIDE, dtype=torch.float16, device=self.device)
        self._product = torch.empty_like(self._matrix)
        self._unit_seconds = self.seconds_of_a_unit()

    def described(self):
        found = torch.cuda.get_device_properties(self.device)
        return {"name": found.name, "memory_bytes": found.total_memory, "cuda": torch.version.cuda, "driver": driver(),
                "unit_seconds": self._unit_seconds}

    def free_bytes(self):
        return torch.cuda.mem_get_info(self.device)[0]

    def work(self, units):
        for _ in range(units):
            torch.mm(self._matrix, self._matrix, out=self._product)

    def busy(self, seconds):
        # A stream of CUDA takes about a thousand kernels before the call that enqueues one more waits.
        self.work(max(1, min(int(seconds / self._unit_seconds), 500)))


class Pretend(Accelerator):
    """tests/python/pretend_device.py. Its streams are threads. It has no arithmetic, so tensors are compared on the host."""

    compares_on = "host"
    has_peers = False

    def __init__(self):
        if "TIDEMARK_PRETEND_DEVICE" not in os.environ:
            raise UnavailableError("TIDEMARK_PRETEND_DEVICE does not name the library of the pretend accelerator")
        sys.path.insert(0, str(TESTS))
        import pretend_device

        self._pretend = pretend_device
        super().__init__(pretend_device.DEVICES[0], pretend_device.module)

    def described(self):
        return {"name": "the pretend accelerator of the tests: no hardware, its times mean nothing"}

    def random(self, *shape):
        return torch.randn(*shape).to(self.device)

    def fill(self, tensor, value):
        self._pretend.ops.fill(tensor, value)

    def is_filled(self, tensor, value):
        return bool((tensor.cpu().view(torch.uint8) == value).all())

    def change(self, tensor, number):
        self.fill(tensor, number % 120 + 1)

    def equal(self, first, second):
        return torch.equal(first.cpu(), second.cpu())

    def busy(self, seconds):
        threading.Timer(seconds, self._pretend.Gate().open).start()

    def work(self, units):
        self.busy(units * self.seconds_of_a_unit())

    def seconds_of_a_unit(self):
        return 1e-4


class Cpu(Accelerator):
    """Every kernel is done when its call returns."""

    pins = False

    def __init__(self):
        super().__init__(torch.device("cpu"), None)
        self._matrix = torch.randn(128, 128)

    def described(self):
        return {"name": "CPU: no device, so this says nothing of one"}

    def new_stream(self):
        return None

    def current_stream(self):
        return None

    def order(self, waiting, stream):
        pass

    def synchronize(self):
        pass

    def work(self, units):
        for _ in range(units):
            self._matrix @ self._matrix

    def busy(self, seconds):
        pass


def driver():
    """The version of NVIDIA's driver, from whatever there is to tell it."""
    tool = shutil.which("nvidia-smi")
    if tool:
        done = subprocess.run([tool, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True,
                              check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.splitlines()[0].strip()
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    return "unknown"


KINDS = {"cuda": Cuda, "pretend": Pretend, "cpu": Cpu}
