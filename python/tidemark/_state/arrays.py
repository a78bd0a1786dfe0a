"""Arrays of NumPy and tensors of PyTorch as places in memory. Imports neither: an array brings its own library."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Union

from ..errors import InvalidArgumentError, UnimplementedError, UnsupportedTypeError

# Name, dtype, array, and whether the next forward pass changes it. An array of NumPy says itself where it lies.
NumpyPlace = tuple[str, str, Any, bool]
# The same and, of a box, the shape of its tensor and its offset.
NumpyBox = tuple[str, str, Any, bool, list[int], list[int]]
# Name, dtype, shape, address, strides in bytes (empty: contiguous), whether the next forward pass changes it, and the
# device ("cuda:0"; "": host memory).
TorchPlace = tuple[str, str, list[int], int, list[int], bool, str]
TorchBox = tuple[str, str, list[int], int, list[int], bool, str, list[int], list[int]]
Place = Union[NumpyPlace, NumpyBox, TorchPlace, TorchBox]

_TORCH_NAMES = {"torch." + name: name for name in (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
    "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")}
TORCH_DTYPES = frozenset(_TORCH_NAMES.values())
# NumPy's dtypes beyond these come from ml_dtypes, under the same names.
_NUMPY_KINDS = "biufc"

# Devices whose tensors have no memory, or none that a pointer tells apart.
_WITHOUT_MEMORY = frozenset(("meta", "xla", "lazy", "ipu", "vulkan", "fpga", "ort", "ve"))


def is_numpy(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    return is_numpy(value) or is_torch(value)


def is_jax(value: object) -> bool:
    """Whether it is an array of JAX or a key of jax.random, also a traced or an abstract one."""
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "ShapeDtypeStruct"):  # while it is imported
        return False
    return isinstance(value, (jax.Array, jax.ShapeDtypeStruct))


def refuse_jax(value: Any, name: str, *, writable: bool) -> None:
    """UnsupportedTypeError: it is one. A restore fills a state in place, and an array of JAX never changes."""
    if not is_jax(value):
        return
    if writable:
        raise UnsupportedTypeError(f"'{name}' is an array of JAX, into which nothing can be restored. Use restore, resume or "
                                   f"load of tidemark.jax, which make new arrays, or give the state an array of NumPy")
    is_key = str(value.dtype).startswith("key<")
    raise UnsupportedTypeError(
        f"'{name}' is {'a key of jax.random' if is_key else 'an array of JAX'}: save the state with tidemark.jax.save, or give "
        f"it {'numpy.asarray(jax.random.key_data(key))' if is_key else 'numpy.asarray(array)'}")


def place_of(value: Any, name: str, *, writable: bool, changes_early: bool = False) -> Place:
    """Where the array lies. With `writable` it must be possible to write to it."""
    if is_numpy(value):
        return place_of_numpy(value, name, writable, changes_early)
    return _place_of_torch(value, name, writable, changes_early)


dtype_names: dict[Any, str] = {}  # of NumPy's dtypes that were seen: they take long to say theirs


def _name_of(dtype: Any, name: str) -> str:
    if dtype.kind not in _NUMPY_KINDS and dtype.type.__module__ != "ml_dtypes":
        raise UnsupportedTypeError(f"'{name}' is an array of {dtype}, which cannot be stored. Store its parts as arrays of "
                                   f"numbers, or its contents as a list")
    if dtype.type.__module__ == "numpy" and dtype.char in "gG" and dtype.name not in ("float64", "complex128"):
        stored = "float64" if dtype.kind == "f" else "complex128"
        raise UnsupportedTypeError(f"'{name}' is an array of {dtype}, the long double of this machine, which cannot be stored. "
                                   f"Use array.astype('{stored}')")
    if not dtype.isnative:
        raise UnsupportedTypeError(f"'{name}' has the foreign byte order {dtype.str}: use "
                                   f"array.astype(array.dtype.newbyteorder('='))")
    return dtype_names.setdefault(dtype, dtype.name)


def refuse_masked(value: Any, name: str) -> None:
    if type(value).__module__ != "numpy" and hasattr(value, "mask") and isinstance(value, sys.modules["numpy"].ma.MaskedArray):
        raise UnsupportedTypeError(f"'{name}' is a masked array, whose mask would be lost. Give the state its parts: "
                                   f"array.data and array.mask")


def place_of_numpy(value: Any, name: str, writable: bool, changes_early: bool) -> NumpyPlace:
    """As `place_of`, of an array of NumPy."""
    refuse_masked(value, name)
    dtype = value.dtype
    stored = dtype_names.get(dtype) or _name_of(dtype, name)
    if writable:
        if not value.flags.writeable:
            raise InvalidArgumentError(f"'{name}' is a read-only array, so nothing can be restored into it")
        if not value.flags.c_contiguous:
            _refuse_expanded(name, value.shape, value.strides)
    return name, stored, value, changes_early


def refuse_unless_plain_tensor(value: Any, name: str) -> None:
    torch = sys.modules["torch"]
    way_out = _way_out_of(value, torch)
    if way_out is not None:
        kind, parts = way_out
        raise UnsupportedTypeError(f"'{name}' is a {kind} tensor of PyTorch ({value.layout}, {value.dtype}), which cannot be "
                                   f"stored. Give the state {parts}, or have it pickled: tidemark.Pickled(tensor)")
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer if hasattr(torch.nn, "Buffer") else torch.Tensor):
        parts = "its local part, to_local()" if hasattr(value, "to_local") else "its parts"
        raise UnsupportedTypeError(f"'{name}' is a {type(value).__module__}.{type(value).__qualname__}, a tensor without "
                                   f"memory of its own. Give the state {parts}")


# By the name of a layout: what such a tensor is, and what can be stored of it.
_LAYOUTS = {
    "sparse_coo": ("sparse", "tensor.coalesce().indices(), .values() and the shape"),
    "sparse_csr": ("sparse", "tensor.crow_indices(), .col_indices(), .values() and the shape"),
    "sparse_csc": ("sparse", "tensor.ccol_indices(), .row_indices(), .values() and the shape"),
    "sparse_bsr": ("sparse", "tensor.crow_indices(), .col_indices(), .values() and the shape"),
    "sparse_bsc": ("sparse", "tensor.ccol_indices(), .row_indices(), .values() and the shape"),
    "jagged": ("nested", "tensor.values() and tensor.offsets()"),
}


def _way_out_of(value: Any, torch: Any) -> tuple[str, str] | None:
    """What the tensor is, and its parts that can be stored; None: it is one piece of memory with strides."""
    if value.is_quantized:
        scales = "tensor.q_scale() and tensor.q_zero_point()" if value.qscheme() in (
            torch.per_tensor_affine, torch.per_tensor_symmetric) else (
            "tensor.q_per_channel_scales(), .q_per_channel_zero_points() and .q_per_channel_axis()")
        return "quantised", f"tensor.int_repr(), {scales}"
    if value.layout != torch.strided:
        return _LAYOUTS.get(str(value.layout).removeprefix("torch."), ("special", "tensor.to_dense()"))
    return ("nested", "its parts, tensor.unbind()") if value.is_nested else None


def _place_of_torch(value: Any, name: str, writable: bool, changes_early: bool) -> TorchPlace:
    refuse_unless_plain_tensor(value, name)
    if value.is_conj() or value.is_neg():
        raise UnsupportedTypeError(f"'{name}' is a lazy conjugate or negative: give the state "
                                   f"tensor.resolve_conj().resolve_neg()")
    dtype = torch_name(value.dtype)
    if dtype is None:
        raise UnsupportedTypeError(f"'{name}' is a tensor of {value.dtype}, which cannot be stored. Give the state its bytes, "
                                   f"tensor.view(torch.uint8), or have it pickled: tidemark.Pickled(tensor)")
    device = "" if value.device.type == "cpu" else str(value.device)
    if device:
        _refuse_without_memory(value, name)
    size = value.element_size()
    strides = [] if value.is_contiguous() else [stride * size for stride in value.stride()]
    if writable:
        _refuse_expanded(name, value.shape, strides)
    return name, dtype, list(value.shape), value.data_ptr(), strides, changes_early, device


def _refuse_without_memory(tensor: Any, name: str) -> None:
    if tensor.device.type in _WITHOUT_MEMORY or (tensor.numel() > 0 and tensor.data_ptr() == 0):
        raise UnsupportedTypeError(f"'{name}' is on the device {tensor.device}, which has no memory that can be copied. Give "
                                   f"the state a tensor in host memory")


def _refuse_expanded(name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
    if any(stride == 0 and extent > 1 for stride, extent in zip(strides, shape)):
        raise InvalidArgumentError(f"'{name}' is expanded: several of its elements share memory, so nothing can be "
                                   f"restored into it")


def torch_name(dtype: Any) -> str | None:
    """The name of a dtype of PyTorch; None: nothing of it can be stored."""
    return _TORCH_NAMES.get(str(dtype))


def numpy_dtype(name: str) -> Any:
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise UnimplementedError(f"NumPy has no dtype {name}: install ml_dtypes, or read it with framework='pt'") from None


def torch_dtype(name: str) -> Any:
    import torch

    dtype = getattr(torch, name, None)
    if dtype is None:
        raise UnimplementedError(f"this PyTorch has no dtype {name}")
    return dtype


def new_array(framework: str, dtype: str, shape: list[int]) -> Any:
    """An array of `shape` in host memory, not initialised: of PyTorch for "pt", else of NumPy. UnimplementedError: there is
    no such library or dtype here."""
    if framework != "pt":
        import numpy

        return numpy.empty(shape, dtype=numpy_dtype(dtype))
    try:
        import torch
    except ModuleNotFoundError:
        raise UnimplementedError("a tensor of PyTorch cannot be made: install torch") from None

    return torch.empty(shape, dtype=torch_dtype(dtype), device="cpu")  # whatever the default device is


def as_framework(framework: str, array: Any, name: str) -> Any:
    """The array that `new_array` made and a read filled, as the user gets it."""
    if framework != "jax":
        return array
    import jax

    refuse_narrowed(array.dtype, name)
    return jax.device_put(array)


def refuse_narrowed(dtype: Any, name: str) -> None:
    """UnimplementedError: this process cannot make an array of JAX of the dtype, but would make a narrower one."""
    import jax

    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise UnimplementedError(f"'{name}' has the dtype {dtype}: jax.config.update('jax_enable_x64', True) allows for "
                                 f"it, or read it as an array of NumPy")


def array_over(memory: memoryview, dtype: str, shape: list[int]) -> Any:
    """A NumPy array of `shape` that lies in `memory` and keeps it; read-only if that is."""
    import numpy

    if memory.nbytes == 0:
        array = numpy.empty(shape, dtype=numpy_dtype(dtype))
        array.flags.writeable = not memory.readonly
        return array
    return numpy.frombuffer(memory, dtype=numpy_dtype(dtype)).reshape(shape)


def convert(destination: Any, source: Any) -> None:
    """Copies the numbers of one array to another of the same library and shape, in its dtype: rounded to nearest, and to
    infinity where they are too large."""
    if is_torch(destination):
        import torch

        with torch.no_grad():
            destination.copy_(source)
        return
    import numpy

    with numpy.errstate(over="ignore", under="ignore", invalid="ignore"):
        numpy.copyto(destination, source, casting="unsafe")


def copy_into(array: Any, content: bytearray | memoryview) -> None:
    """Copies the bytes to the array, which is contiguous and as large."""
    import ctypes

    if len(content):
        ctypes.memmove(address_of(array), bytes(content), len(content))


def memory_of(place: TorchPlace | TorchBox) -> tuple[int, str, tuple[int, ...], tuple[int, ...], str]:
    """Address, dtype, shape, strides in bytes (none: contiguous), and device. Tied arrays have the same."""
    _, dtype, shape, address, strides, _, device = place[:7]
    return address, dtype, tuple(shape), tuple(strides), device


def address_of(array: Any) -> int:
    return int(array.data_ptr() if is_torch(array) else array.ctypes.data)
