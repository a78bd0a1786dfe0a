"""Tensors of PyTorch on devices: copied to and from host memory by PyTorch's own calls.

The module of a device type (torch.cuda, torch.xpu, or what a backend has registered) gives the streams. Copies to the
host run on a stream of their own, which waits for what the trainer's stream had to do when the save began. Without
such a module, or one without streams (torch.mps), every copy is done when its call returns.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _native
from ..errors import InternalError
from . import arrays

# Code of absl::StatusCode, message, result.
_Outcome = tuple[int, str, Any]
# Entry, address in host memory, bytes.
_Request = tuple[int, int, int]

_RESOURCE_EXHAUSTED = 8
_INTERNAL = 13
# As the small entries of a snapshot lie, so that neighbours in one are neighbours in the other.
_ALIGNMENT = 64


def module_of(kind: str) -> Any:
    """The module of a device type: torch.cuda of "cuda". None: there is none."""
    torch = sys.modules["torch"]
    get = getattr(torch, "get_device_module", None)
    if get is not None:
        with contextlib.suppress(RuntimeError):
            return get(kind)
    return getattr(torch, kind, None)


def _has_streams(module: Any) -> bool:
    return all(hasattr(module, name) for name in ("Stream", "current_stream", "stream"))


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether a device had no memory. Some backends raise a plain RuntimeError, whose message alone says so."""
    torch = sys.modules["torch"]
    known = getattr(torch, "OutOfMemoryError", None) or getattr(torch.cuda, "OutOfMemoryError", None)
    if known is not None and isinstance(error, known):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def _bits(tensor: Any) -> Any:
    """The same elements as integers of their width (of 16 bytes: as complex numbers), which every backend can copy."""
    torch = sys.modules["torch"]
    types = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    return tensor.view(types[tensor.element_size()])


def _host(address: int, size: int, dtype: Any) -> Any:
    return sys.modules["torch"].frombuffer(_native.memory_at(address, size), dtype=dtype)


def page_locked(size: int) -> tuple[int, Any] | None:
    """(address, owner) of host memory that the driver has locked, aligned to 4096 bytes. None: there is none to be had."""
    torch = sys.modules["torch"]
    # More than asked for only where it turns out to lie badly: allocators of such memory round up to powers of two.
    for room in (size, size + 4096):
        try:
            memory = torch.empty(room, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError:
            return None
        begin = -(-memory.data_ptr() // 4096) * 4096
        if begin + size <= memory.data_ptr() + room:
            return begin, memory
    return None


def _outcome(function: Callable[..., Any]) -> Callable[..., _Outcome]:
    """For functions that the native module calls: an exception becomes its code and message."""
    @functools.wraps(function)
    def call(*arguments: Any) -> _Outcome:
        try:
            with sys.modules["torch"].inference_mode():
                return 0, "", function(*arguments)
        except Exception as error:
            if _is_out_of_memory(error):
                return _RESOURCE_EXHAUSTED, f"there is no memory on the device to copy a tensor there: {error}", None
            return _INTERNAL, _failure(error), None

    return call


def _failure(error: Exception) -> str:
    return f"copying tensors on devices: {type(error).__name__}: {error}"


class Streams:
    """The streams for copies to the host, one for each device. Owned by the trainer's thread."""

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}

    def of(self, device: Any) -> Any:
        """Always the same, since PyTorch's allocators keep the memory of each stream apart."""
        if device not in self._streams:
            self._streams[device] = module_of(device.type).Stream(device=device)
        return self._streams[device]


class _Lane:
    """A device in one save or restore. `trainer` is the stream on which its thread works, `copies` the one beside it; None: the
    device has no streams, and all calls are synchronous."""

    def __init__(self, device: Any, streams: Streams | None) -> None:
        self.device = device
        self._module = module_of(device.type)
        self.trainer: Any = None
        self.copies: Any = None
        if _has_streams(self._module):
            self.trainer = self._module.current_stream(device)
            if streams is not None:
                self.copies = streams.of(device)
                self.copies.wait_stream(self.trainer)

    @property
    def asynchronous(self) -> bool:
        return self.trainer is not None

    def new_stream(self) -> Any:
        return self._module.Stream(device=self.device) if self.asynchronous else None

    def on(self, stream: Any) -> Any:
        """Has PyTorch enqueue on the stream."""
        return contextlib.nullcontext() if stream is None else self._module.stream(stream)


class DeviceTensors:
    """The tensors of a state that lie on devices, by their index among its entries; they are kept until `release`.

    Made on the trainer's thread, whose work on the devices so far comes before every copy. The native module calls
    `copy_to_host`, `copy_on_device` and `write` on threads of its own, one at a time. `streams`: those for copies to the
    host; None for a restore, whose copies are enqueued where the trainer's thread works. InternalError: PyTorch could not
    give or order the streams.
    """

    def __init__(self, tensors: dict[int, tuple[Any, str]], streams: Streams | None) -> None:
        # With the dtype in which each is stored.
        self._tensors = tensors
        try:
            self._lanes = {device: _Lane(device, streams) for device in {tensor.device for tensor, _ in tensors.values()}}
        except RuntimeError as error:
            raise InternalError(_failure(error)) from error

    def release(self) -> None:
        self._tensors = {}

    def _content(self, index: int) -> Any:
        """What is stored of the tensor, on its device; enqueued on the current stream if it has to be converted."""
        tensor, stored = self._tensors[index]
        dtype = arrays.torch_dtype(stored)
        return _bits(tensor if tensor.dtype == dtype else tensor.to(dtype))

    @_outcome
    def copy_to_host(self, requests: Sequence[_Request]) -> None:
        by_lane = self._by_lane(requests)
        try:
            for lane, of_lane in by_lane:
                with lane.on(lane.copies):
                    for index, address, size in of_lane:
                        content = self._content(index)
                        _host(address, size, content.dtype).view(content.shape).copy_(content, non_blocking=lane.asynchronous)
        finally:
            _synchronize([lane.copies for lane, _ in by_lane])

    @_outcome
    def write(self, writes: Sequence[_Request]) -> None:
        by_lane = self._by_lane(writes)
        try:
            for lane, of_lane in by_lane:
                with lane.on(lane.trainer):
                    for index, address, size in of_lane:
                        target = _bits(self._tensors[index][0])
                        target.copy_(_host(address, size, target.dtype).view(target.shape), non_blocking=lane.asynchronous)
        finally:
            _synchronize([lane.trainer for lane, _ in by_lane])

    def _by_lane(self, requests: Sequence[_Request]) -> list[tuple[_Lane, list[_Request]]]:
        found: dict[Any, list[_Request]] = {}
        for request in requests:
            found.setdefault(self._tensors[request[0]][0].device, []).append(request)
        return [(self._lanes[device], of_device) for device, of_device in found.items()]

    @_outcome
    def copy_on_device(self, arguments: tuple[list[int], int]) -> DeviceImage | None:
        """Copies of the tensors, at most so many bytes (0: any number), for which the trainer's streams wait. None: there is no
        room for them."""
        entries, bytes_max = arguments
        image = DeviceImage()
        for index in entries:
            tensor, stored = self._tensors[index]
            image.place(index, self._lanes[tensor.device], tensor.numel() * _element_size(stored))
        if bytes_max and image.bytes > bytes_max:
            return None
        try:
            image.allocate()
            for index in entries:
                image.copy(index, self._content, self._tensors[index][0])
        except RuntimeError as error:
            if _is_out_of_memory(error):  # putting a tensor in order takes memory, too
                return None
            raise
        image.join()
        return image


@functools.lru_cache(maxsize=None)
def _element_size(dtype: str) -> int:
    torch = sys.modules["torch"]
    return int(torch.empty(0, dtype=arrays.torch_dtype(dtype), device="cpu").element_size())


def _synchronize(streams: Sequence[Any]) -> None:
    """Waits for all of them, also where one fails."""
    failure = None
    for stream in streams:
        try:
            if stream is not None:
                stream.synchronize()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


class _Part:
    """What an image has on one device, in one allocation. It is made on the stream for copies, so that PyTorch can give the
    memory of one image to the next, and drained on another, so that the next image's copies need not wait for it."""

    def __init__(self, lane: _Lane) -> None:
        self.lane = lane
        self.bytes = 0
        self.memory: Any = None
        self.drain = lane.new_stream()


class DeviceImage:
    """Copies of tensors on their devices. It keeps the tensors until the copies are there. Thread-compatible."""

    def __init__(self) -> None:
        self._parts: dict[Any, _Part] = {}
        self._places: dict[int, tuple[_Part, int, int]] = {}  # by entry: part, offset, bytes
        self._sources: list[Any] = []

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self._parts.values())

    def place(self, index: int, lane: _Lane, size: int) -> None:
        part = self._parts.get(lane.device)
        if part is None:
            part = self._parts[lane.device] = _Part(lane)
        self._places[index] = (part, part.bytes, size)
        part.bytes += -(-size // _ALIGNMENT) * _ALIGNMENT

    def allocate(self) -> None:
        """Takes the memory. RuntimeError: a device has no room, or another failure."""
        torch = sys.modules["torch"]
        for part in self._parts.values():
            with part.lane.on(part.lane.copies):
                part.memory = torch.empty(part.bytes, dtype=torch.uint8, device=part.lane.device)

    def copy(self, index: int, content: Callable[[int], Any], source: Any) -> None:
        part, offset, size = self._places[index]
        if size == 0:
            return
        self._sources.append(source)
        with part.lane.on(part.lane.copies):
            bits = content(index)
            strides = [math.prod(bits.shape[d + 1:]) for d in range(bits.dim())]
            there = part.memory.view(bits.dtype).as_strided(bits.shape, strides, offset // bits.element_size())
            there.copy_(bits, non_blocking=part.lane.asynchronous)

    def join(self) -> None:
        """Makes the trainer's streams, and those that drain, wait for the copies."""
        for part in self._parts.values():
            if part.lane.asynchronous:
                part.lane.trainer.wait_stream(part.lane.copies)
                part.drain.wait_stream(part.lane.copies)

    @_outcome
    def copy_to_host(self, requests: Sequence[_Request]) -> None:
        try:
            for part, offset, address, size in self._runs(requests):
                with part.lane.on(part.drain):
                    there = part.memory[offset:offset + size]
                    _host(address, size, there.dtype).copy_(there, non_blocking=part.lane.asynchronous)
        finally:
            _synchronize([part.drain for part in self._parts.values()])
        self._sources = []

    def _runs(self, requests: Sequence[_Request]) -> Iterator[tuple[_Part, int, int, int]]:
        """The requests, those as one whose bytes are neighbours in both places."""
        run: tuple[_Part, int, int, int] | None = None
        for index, address, size in requests:
            part, offset, _ = self._places[index]
            if run is not None and run[0] is part and (run[1] + run[3], run[2] + run[3]) == (offset, address):
                run = (part, run[1], run[2], run[3] + size)
                continue
            if run is not None:
                yield run
            run = (part, offset, address, size)
        if run is not None:
            yield run
