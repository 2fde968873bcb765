"""Attention with lse and entropy for PyTorch's ordinary tensors, with little work for the host.

A training step calls the library twice per layer.  On a GPU the kernels of a short text take less time
than an operator's way through PyTorch's dispatcher and the general description of a problem in
_attention.py, and the GPU then waits for the host.  This file describes the plain problem, q, k and v
with a mask that follows from lengths, with one struct.pack, and its gradient is one autograd.Function.

`takes` says which tensors these are.  torch.compile, torch.func, fake tensors and dispatch modes get the
operator instead, whose numbers are the same to the last bit: both call the same kernels.

Results have the layout of q in memory, (batch, queries, heads, width) in models, so that merging the
heads needs no copy; gradients have that of their tensors.
"""
from __future__ import annotations

import ctypes as c
import functools
import struct
from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _structs as s
from ._library import cuda_library, fail, fail_cuda, library

_DTYPES = {torch.float32: s.F32, torch.float16: s.F16, torch.bfloat16: s.BF16}
_ROWS = "Piqqq"  # hl_rows
PROBLEM = struct.Struct(f"7q{3 * _ROWS}I2d3q8P2qi0q")  # hl_attention
RESULT = struct.Struct(f"{_ROWS}12P")  # hl_attention_result
UPSTREAM = struct.Struct(f"{_ROWS}2P{_ROWS}2P")
GRADIENT = struct.Struct(f"{3 * _ROWS}2P")
LAUNCH = struct.Struct("Pi0q")
_MOST_WIDTH = 576

# (causal, scale, softcap, window_left, window_right, window_sink); windows of -1 are none
Settings = Tuple[bool, float, float, int, int, int]

_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_tracing = getattr(torch._C, "_get_tracing_state", lambda: None)
_transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether q, k and v are ordinary tensors of one type and device that fit together, outside of all
    of PyTorch's modes and transforms."""
    if _modes is None or _transforms is None or _modes() or _transforms() is not None or _tracing():
        return False
    for x in (q, k, v):
        kind = type(x)
        if (kind is not Tensor and kind is not torch.nn.Parameter) or x.dim() != 4:
            return False
    shape, keys, device = q.shape, k.shape, q.device
    return (device.type in ("cpu", "cuda") and (device.type == "cpu" or _raw_stream is not None) and
            q.dtype in _DTYPES and k.dtype == q.dtype and v.dtype == q.dtype and
            k.device == device and v.device == device and
            keys[0] == shape[0] and keys[3] == shape[3] and v.shape[:3] == keys[:3] and
            keys[1] > 0 and shape[1] % keys[1] == 0 and 1 <= shape[3] <= _MOST_WIDTH and
            1 <= v.shape[3] <= _MOST_WIDTH and shape[0] > 0 and shape[1] > 0 and shape[2] > 0 and keys[2] > 0)


def takes_values(values: Optional[Tensor], q: Tensor) -> bool:
    """Whether sinks or gates, (heads), can be read as they are."""
    return values is None or (type(values) in (Tensor, torch.nn.Parameter) and
                              values.dtype == torch.float32 and values.device == q.device and
                              values.shape == q.shape[1:2] and values.is_contiguous())


def _rows(x: Tensor) -> Tuple[int, int, int, int, int]:
    """hl_rows of (batch, heads, rows, width), whose rows are packed.  The stride of an axis of length 1
    is that of a packed tensor: the GPU's kernels want positive multiples of 16 bytes."""
    n_batch, n_heads, n_rows, width = x.shape
    batch, head, row, _ = x.stride()
    if n_rows == 1:
        row = width
    if n_heads == 1:
        head = n_rows * row
    if n_batch == 1:
        batch = n_heads * max(head, n_rows * row)
    return x.data_ptr(), _DTYPES[x.dtype], batch, head, row


def _readable(x: Tensor) -> Tensor:
    """x, or a copy if its rows have gaps or repeat: strides of 0 throughout would stand for packed rows."""
    strides = x.stride()
    return x if strides[3] == 1 and (strides[2] > 0 or x.shape[2] == 1) else x.contiguous()


def _pointer(x: Optional[Tensor]) -> int:
    return 0 if x is None else x.data_ptr()


def _like(x: Tensor, width: int) -> Tensor:
    """A new tensor with packed rows, whose heads lie inside of its rows where x's do."""
    n_batch, n_heads, n_rows, _ = x.shape
    if x.stride(1) < x.stride(2):
        return x.new_empty((n_batch, n_rows, n_heads, width)).transpose(1, 2)
    return x.new_empty((n_batch, n_heads, n_rows, width))


def _problem(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], gates: Optional[Tensor],
             settings: Settings) -> bytes:
    causal, scale, softcap, left, right, sink = settings
    flags = (s.SCALE | (s.CAUSAL if causal else 0) | (s.WINDOW_LEFT if left >= 0 else 0) |
             (s.WINDOW_RIGHT if right >= 0 else 0))
    shape, keys = q.shape, k.shape
    return PROBLEM.pack(shape[0], shape[1], keys[1], shape[2], keys[2], shape[3], v.shape[3],
                        *_rows(q), *_rows(k), *_rows(v), flags, scale, softcap, max(left, 0),
                        max(right, 0), sink, 0, 0, 0, 0, 0, _pointer(sinks), _pointer(gates), 0, 0, 0, 0)


@functools.lru_cache(maxsize=None)
def _function(name: str) -> Any:
    """A function of the library that takes packed structs."""
    found = (cuda_library() if name.startswith("hl_cuda") else library())[name]
    found.restype, found.argtypes = s.Status, [c.c_char_p] * (3 + name.startswith("hl_cuda"))
    if name.endswith("forward"):
        found.argtypes = found.argtypes[1:]
    return found


def _run(direction: str, device: torch.device, *structs: bytes) -> None:
    """Calls the library for the CPU, or that for GPUs in the current stream."""
    if device.type == "cpu":
        status = _function(f"hl_attention_{direction}")(*structs)
        if status != s.OK:
            fail(status)
    elif device.index == torch.cuda.current_device():
        assert _raw_stream is not None
        status = _function(f"hl_cuda_{direction}")(*structs, LAUNCH.pack(_raw_stream(device.index), 0))
        if status != s.OK:
            fail_cuda(status)
    else:
        with torch.cuda.device(device):
            _run(direction, device, *structs)


def _forward(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], gates: Optional[Tensor],
             settings: Settings) -> Tuple[Tensor, Tensor, Tensor]:
    rows = q.shape[:3]
    out = _like(q, v.shape[3])
    lse = torch.empty(rows, dtype=torch.float32, device=q.device)
    entropy = torch.empty(rows, dtype=torch.float32, device=q.device)
    _run("forward", q.device,
         RESULT.pack(*_rows(out), lse.data_ptr(), entropy.data_ptr(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
         _problem(q, k, v, sinks, gates, settings))
    return out, lse, entropy


_NO_ROWS = (0, 0, 0, 0, 0)


class HeadlightAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor],  # type: ignore[override]
                gates: Optional[Tensor], settings: Settings) -> Tuple[Tensor, Tensor, Tensor]:
        q, k, v = _readable(q), _readable(k), _readable(v)
        found = _forward(q, k, v, sinks, gates, settings)
        ctx.settings = settings
        ctx.set_materialize_grads(False)  # gradients that no loss depends on are None, not zeros
        ctx.save_for_backward(q, k, v, sinks, gates, *found)
        return found

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_out: Optional[Tensor], grad_lse: Optional[Tensor],
                 grad_entropy: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        q, k, v, sinks, gates, out, lse, entropy = ctx.saved_tensors
        dq, dk, dv = (_like(x, x.shape[3]) for x in (q, k, v))
        dsinks = None if sinks is None else torch.empty_like(sinks)
        dgates = None if gates is None else torch.empty_like(gates)
        if grad_out is not None:
            grad_out = _readable(grad_out if grad_out.dtype == q.dtype else grad_out.to(q.dtype))
        grad_lse, grad_entropy = (None if x is None else x.to(torch.float32).contiguous()
                                  for x in (grad_lse, grad_entropy))
        upstream = UPSTREAM.pack(
            *(_NO_ROWS if grad_out is None else _rows(grad_out)), _pointer(grad_entropy),
            _pointer(grad_lse), *(_NO_ROWS if grad_out is None else _rows(out)), lse.data_ptr(),
            entropy.data_ptr())
        _run("backward", q.device,
             GRADIENT.pack(*_rows(dq), *_rows(dk), *_rows(dv), _pointer(dgates), _pointer(dsinks)),
             _problem(q, k, v, sinks, gates, ctx.settings), upstream)
        return dq, dk, dv, dsinks, dgates, None


def attention(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], gates: Optional[Tensor],
              settings: Settings) -> Tuple[Tensor, Tensor, Tensor]:
    """(out, lse, entropy) of what `takes` and `takes_values` take."""
    if torch.is_grad_enabled() and (
            q.requires_grad or k.requires_grad or v.requires_grad or
            (sinks is not None and sinks.requires_grad) or (gates is not None and gates.requires_grad)):
        return HeadlightAttention.apply(q, k, v, sinks, gates, settings)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(_readable(q), _readable(k), _readable(v), sinks, gates, settings)
