"""Arrays of other libraries as pointers, without a copy, and new arrays of the same kind.

    numpy                       used directly; uint16 stands for bf16, which numpy does not have
    PyTorch                     read without DLPack, since a training step has many small calls
    __dlpack__                  CuPy, JAX ...: memory of the CPU or of an NVIDIA GPU
    __cuda_array_interface__    Numba and other libraries without DLPack
    anything else               converted by numpy.asarray

Results are arrays of the library that made q: PyTorch, CuPy, or else numpy.
"""
from __future__ import annotations

import contextlib
import ctypes as c
import dataclasses
import sys
from typing import Any, Tuple

import numpy as np

from . import _structs as s
from ._library import Error

_NUMPY_CODES = {np.dtype(np.float32): s.F32, np.dtype(np.float16): s.F16,
                np.dtype(np.float64): s.F64, np.dtype(np.uint16): s.BF16}
_NUMPY_TYPES = {s.F32: np.float32, s.F16: np.float16, s.F64: np.float64, "i64": np.int64,
                "u8": np.uint8}
_NAMES = {s.F32: "float32", s.F16: "float16", s.BF16: "bfloat16", s.F64: "float64", "i64": "int64",
          "u8": "uint8"}
CODES = {"float32": s.F32, "float16": s.F16, "bfloat16": s.BF16, "float64": s.F64}
_N_BYTES = {s.F32: 4, s.F16: 2, s.BF16: 2, s.F64: 8}


@dataclasses.dataclass
class Tensor:
    """Location and layout of an array; `owner` keeps its memory alive."""
    pointer: int
    dtype: int  # HL_DTYPE_...
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in elements
    device: str  # "cpu" or "cuda:0"
    owner: Any


# ----------------------------------------------------------------------- kinds


def kind_of(array: Any) -> str:
    """"torch", "cupy" or "numpy": the library that makes results for this array."""
    module = type(array).__module__.split(".")[0]
    return module if module in ("torch", "cupy") else "numpy"


def empty(kind: str, device: str, shape: Tuple[int, ...], dtype: Any) -> Any:
    """A new packed array; dtype is HL_DTYPE_..., "i64" or "u8"."""
    if kind == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, _NAMES[dtype]), device=device)
    if kind == "cupy":
        return sys.modules["cupy"].empty(shape, dtype=_NAMES[dtype])
    if device != "cpu":
        raise Error("results on a GPU are arrays of PyTorch or CuPy: q must be one of them")
    return np.empty(shape, dtype=_NUMPY_TYPES[dtype])


def pointer_of(array: Any) -> int:
    """The address of an array that empty() or convert() made."""
    if isinstance(array, np.ndarray):
        return array.ctypes.data
    return array.data_ptr() if kind_of(array) == "torch" else array.data.ptr


def convert(values: Any, kind: str, device: str, dtype: Any) -> Any:
    """A packed array of that type on the same device; `values` itself if it is one already."""
    if device == "cpu":
        if kind_of(values) == "torch":
            values = values.detach().cpu().numpy()
        return np.ascontiguousarray(values, dtype=_NUMPY_TYPES[dtype])
    if kind == "torch":
        torch = sys.modules["torch"]
        values = values.detach() if kind_of(values) == "torch" else values
        return torch.as_tensor(values, dtype=getattr(torch, _NAMES[dtype]),
                               device=device).contiguous()
    cupy = sys.modules["cupy"]
    return cupy.ascontiguousarray(cupy.asarray(values, dtype=_NAMES[dtype]))


def spoil(array: Any, rows: np.ndarray) -> None:
    """Sets the rows of (batch, heads, queries) that `rows`, (batch, queries), marks to NaN."""
    if not rows.any():
        return
    if isinstance(array, np.ndarray):
        array[np.broadcast_to(rows[:, None, :], array.shape)] = np.nan
    elif kind_of(array) == "torch":
        torch = sys.modules["torch"]
        array.masked_fill_(torch.from_numpy(rows[:, None, :]).to(array.device), float("nan"))
    else:
        cupy = sys.modules["cupy"]
        array[cupy.broadcast_to(cupy.asarray(rows[:, None, :]), array.shape)] = float("nan")


def current_stream(array: Any, device: str) -> int:
    """The current stream of the array's library, as cudaStream_t; 0 is the default stream."""
    kind = kind_of(array)
    if kind == "torch":
        return int(sys.modules["torch"].cuda.current_stream(device).cuda_stream)
    if kind == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    stream = (getattr(array, "__cuda_array_interface__", None) or {}).get("stream")
    return 0 if stream in (None, 1) else int(stream)


def on_device(kind: str, device: str) -> Any:
    """A context in which that GPU is the thread's current one."""
    if kind == "torch":
        cuda = sys.modules["torch"].cuda
        is_current = device == f"cuda:{cuda.current_device()}"
        return contextlib.nullcontext() if is_current else cuda.device(device)
    if kind == "cupy":
        return sys.modules["cupy"].cuda.Device(int(device.split(":")[1]))
    return contextlib.nullcontext()


# ---------------------------------------------------------------------- DLPack


class _DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32),
                ("n_dims", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13
_DL_CODES = {(2, 32): s.F32, (2, 16): s.F16, (2, 64): s.F64, (4, 16): s.BF16}

_capsule_pointer = c.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]


def _packed(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= max(1, extent)
    return tuple(reversed(strides))


def _from_dlpack(array: Any, name: str) -> Tensor:
    """Reads the capsule without consuming it: it releases the array when it is collected."""
    device_type, device_id = array.__dlpack_device__()
    if int(device_type) in (_DL_CPU, _DL_CUDA_HOST):
        capsule, device = array.__dlpack__(), "cpu"
    elif int(device_type) in (_DL_CUDA, _DL_CUDA_MANAGED):
        # -1: do not wait, since the work is queued in the array's own stream.
        capsule, device = array.__dlpack__(stream=-1), f"cuda:{device_id}"
    else:
        raise Error(f"{name} lies on a device of DLPack's type {int(device_type)}, wanted a CPU (1) "
                    "or an NVIDIA GPU (2)", "unsupported")
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.n_dims))
    strides = (tuple(tensor.strides[i] for i in range(tensor.n_dims)) if tensor.strides
               else _packed(shape))
    dtype = _DL_CODES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise Error(f"{name} has DLPack's type ({tensor.code}, {tensor.bits} bits), wanted floats "
                    "of 16, 32 or 64 bits")
    return Tensor((tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, device,
                  (capsule, array))


def _from_cuda_interface(array: Any, name: str) -> Tensor:
    found = array.__cuda_array_interface__
    kind = np.dtype(found["typestr"])
    if kind not in _NUMPY_CODES:
        raise Error(f"{name} is of {kind}, wanted float16, float32, float64 or, for bf16, uint16")
    shape = tuple(found["shape"])
    in_bytes = found.get("strides")
    strides = (tuple(stride // kind.itemsize for stride in in_bytes) if in_bytes
               else _packed(shape))
    return Tensor(found["data"][0], _NUMPY_CODES[kind], shape, strides, "cuda:0", array)


def _from_numpy(array: np.ndarray, name: str) -> Tensor:
    if array.dtype not in _NUMPY_CODES:
        raise Error(f"{name} is of {array.dtype}, wanted float16, float32, float64 or, for bf16, "
                    "uint16")
    if any(stride % array.itemsize for stride in array.strides) or not array.flags.aligned:
        array = np.array(array, order="C")
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Tensor(array.ctypes.data, _NUMPY_CODES[array.dtype], array.shape, strides, "cpu", array)


def _from_torch(array: Any, name: str) -> Tensor:
    device = array.device
    if device.type not in ("cpu", "cuda"):
        raise Error(f"{name} lies on {device}, wanted a CPU or an NVIDIA GPU", "unsupported")
    code = CODES.get(str(array.dtype)[len("torch."):])
    if code is None:
        raise Error(f"{name} is of {array.dtype}, wanted float16, bfloat16, float32 or float64")
    return Tensor(array.data_ptr(), code, tuple(array.shape), array.stride(), str(device), array)


def read(array: Any, name: str) -> Tensor:
    """Location and layout of a floating-point array; `name` is for messages."""
    if isinstance(array, np.ndarray):
        return _from_numpy(array, name)
    if kind_of(array) == "torch":
        return _from_torch(array, name)
    if hasattr(array, "__dlpack__"):
        return _from_dlpack(array, name)
    if hasattr(array, "__cuda_array_interface__"):
        return _from_cuda_interface(array, name)
    array = np.asarray(array)
    return _from_numpy(array.astype(np.float32) if array.dtype.kind in "iub" else array, name)


def _outer_strides(tensor: Tensor) -> Tuple[int, int, int]:
    """The strides of all axes but the last.  That of an axis of length 1, which no one walks along, is as
    in a packed array: the GPU's fastest kernels take no zero."""
    n_batch, n_heads, n_rows, width = tensor.shape
    batch, head, row = tensor.strides[:3]
    if n_rows == 1:
        row = width
    if n_heads == 1:
        head = n_rows * row
    if n_batch == 1:
        batch = n_heads * max(head, n_rows * row)
    return batch, head, row


def rows(array: Any, name: str) -> Tuple[s.Rows, Tensor]:
    """(n_batch, n_heads, n_rows, width) as hl_rows.  Makes a copy only if the numbers of a row are not
    adjacent, or if hl_rows cannot express the strides: negative ones, or only zeros."""
    tensor = read(array, name)
    if len(tensor.shape) != 4:
        raise Error(f"{name} has {len(tensor.shape)} axes, wanted 4: (batch, heads, rows, width)")
    outer = _outer_strides(tensor)
    apart = tensor.shape[3] > 1 and tensor.strides[3] != 1
    unsayable = min(outer) < 0 or (not any(outer) and max(tensor.shape[:3]) > 1)
    if (apart or unsayable) and 0 not in tensor.shape:
        return rows(_packed_copy(array, tensor), name)
    return s.Rows(tensor.pointer, tensor.dtype, *outer), tensor


def _packed_copy(array: Any, tensor: Tensor) -> Any:
    if kind_of(array) == "torch":
        return array.detach().contiguous()
    if kind_of(array) == "cupy":
        return sys.modules["cupy"].array(array, order="C")
    if tensor.device != "cpu":
        raise Error("arrays on a GPU that are not PyTorch's or CuPy's must have rows without gaps")
    if isinstance(array, np.ndarray):
        return np.array(array, order="C")
    return np.array(_numpy_view(tensor), order="C")


def _numpy_view(tensor: Tensor) -> np.ndarray:
    """A numpy view of CPU memory."""
    n_bytes = _N_BYTES[tensor.dtype]
    kind = np.uint16 if tensor.dtype == s.BF16 else _NUMPY_TYPES[tensor.dtype]
    low = sum(min(0, (extent - 1) * stride) for extent, stride in zip(tensor.shape, tensor.strides))
    high = sum(max(0, (extent - 1) * stride) for extent, stride in zip(tensor.shape, tensor.strides))
    block: Any = (c.c_uint8 * ((high - low + 1) * n_bytes)).from_address(tensor.pointer + low * n_bytes)
    return np.ndarray(tensor.shape, kind, block, -low * n_bytes,
                      tuple(stride * n_bytes for stride in tensor.strides))
