"""headlight_cuda.py - libheadlight_cuda.so from PyTorch: tensors in, tensors out.

    library = Library("build/libheadlight_cuda.so")
    result = library.forward(q, k, v, causal=True, statistics=("lse", "entropy", "renyi2"))

The structs are those of the Python package."""
import ctypes
import math
import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from headlight import _structs as s
from headlight._attention import STATISTICS

KERNELS = {"auto": 0, "plain": 1, "portable": 2, "hopper": 3, "decode": 4}
DTYPES = {torch.float32: s.F32, torch.float16: s.F16, torch.bfloat16: s.BF16, torch.float64: s.F64}


def rows(tensor):
    if tensor is None:
        return s.Rows()
    batch, head, row, column = tensor.stride()
    assert column == 1
    return s.Rows(tensor.data_ptr(), DTYPES[tensor.dtype], batch, head, row)


def pointer(tensor):
    return None if tensor is None else tensor.data_ptr()


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.hl_cuda_error.restype = ctypes.c_char_p
        self.call(self.library.hl_cuda_probe)

    def call(self, function, *arguments):
        if function(*arguments) != 0:
            raise RuntimeError(self.library.hl_cuda_error().decode())

    def problem(self, q, k, v, causal=False, scale=None, softcap=0.0, window=None,
                window_right=None, window_sink=0, arrays=None):
        a = s.Attention(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3],
                        v.shape[3], rows(q), rows(k), rows(v))
        a.flags = (s.CAUSAL if causal else 0) | s.SCALE
        a.scale = scale if scale is not None else 1.0 / math.sqrt(q.shape[3])
        a.softcap = softcap
        if window is not None:
            a.flags |= s.WINDOW_LEFT
            a.window_left = window
            a.window_sink = window_sink
        if window_right is not None:
            a.flags |= s.WINDOW_RIGHT
            a.window_right = window_right
        for name, tensor in (arrays or {}).items():
            setattr(a, name, pointer(tensor))
        return a

    def prepare(self, q, k, v, statistics=("lse", "entropy", "renyi2"), kernel="auto", out=None, **options):
        """Returns a function that makes the call, and the tensors that it fills."""
        shape = q.shape[:3]
        found = {"out": out if out is not None else torch.full((*shape, v.shape[3]), math.nan,
                                                               dtype=q.dtype, device=q.device)}
        for name in statistics:
            dtype = torch.int64 if name == "argmax" else torch.float32
            found[name] = torch.full(shape, -7, dtype=dtype, device=q.device)
        attention = self.problem(q, k, v, **options)
        result = s.AttentionResult(rows(found["out"]),
                                   **{name: pointer(found.get(name)) for name in STATISTICS})
        launch = s.CudaLaunch(torch.cuda.current_stream().cuda_stream, KERNELS[kernel])
        arguments = [ctypes.byref(x) for x in (result, attention, launch)]
        keep = (q, k, v, found, result, attention, launch, options)

        def run(keep=keep):  # in the stream that is current at the call
            launch.stream = torch.cuda.current_stream().cuda_stream
            self.call(self.library.hl_cuda_forward, *arguments)

        return run, found

    def forward(self, *arguments, **options):
        run, found = self.prepare(*arguments, **options)
        run()
        return found

    def prepare_backward(self, q, k, v, upstream, forward, kernel="auto", **options):
        """Returns a function that calls the gradient, and the tensors that it fills.  Takes grad_out,
        grad_entropy and grad_lse (each may be missing) and the results of the forward pass."""
        found = {name: torch.full_like(x, math.nan) for name, x in (("dq", q), ("dk", k), ("dv", v))}
        arrays = options.get("arrays") or {}
        for name in ("gates", "sinks"):
            if name in arrays:
                found["d" + name] = torch.full_like(arrays[name], math.nan)
        attention = self.problem(q, k, v, **options)
        above = s.AttentionUpstream(rows(upstream.get("grad_out")), pointer(upstream.get("grad_entropy")),
                         pointer(upstream.get("grad_lse")), rows(forward["out"]),
                         pointer(forward["lse"]), pointer(forward.get("entropy")))
        gradient = s.AttentionGradient(rows(found["dq"]), rows(found["dk"]), rows(found["dv"]),
                            pointer(found.get("dgates")), pointer(found.get("dsinks")))
        launch = s.CudaLaunch(torch.cuda.current_stream().cuda_stream, KERNELS[kernel])
        arguments = [ctypes.byref(x) for x in (gradient, attention, above, launch)]
        keep = (q, k, v, upstream, forward, found, gradient, attention, above, launch, options)

        def run(keep=keep):
            self.call(self.library.hl_cuda_backward, *arguments)

        return run, found

    def prepare_received(self, q, k, lse, last=0, kernel="auto", **options):
        """Returns a function that computes the attention that keys receive, and the tensor that it fills."""
        found = torch.full((*q.shape[:2], k.shape[2]), math.nan, dtype=torch.float32, device=q.device)
        attention = self.problem(q, k, k, **options)
        launch = s.CudaLaunch(torch.cuda.current_stream().cuda_stream, KERNELS[kernel])
        first = ctypes.c_int64(q.shape[2] - last if last else 0)
        arguments = (ctypes.c_void_p(found.data_ptr()), ctypes.byref(attention),
                     ctypes.c_void_p(lse.data_ptr()), first, ctypes.byref(launch))
        keep = (q, k, lse, found, attention, launch, options)

        def run(keep=keep):
            self.call(self.library.hl_cuda_received, *arguments)

        return run, found
