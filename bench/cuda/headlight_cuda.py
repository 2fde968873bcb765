"""headlight_cuda.py - libheadlight_cuda.so from PyTorch: tensors in, tensors out.

    library = Library("build/libheadlight_cuda.so")
    result = library.forward(q, k, v, causal=True, statistics=("lse", "entropy", "renyi2"))

The structs below are those of include/headlight/attention.h, field by field."""
import ctypes
import math

import torch

KERNELS = {"auto": 0, "plain": 1, "portable": 2, "hopper": 3, "decode": 4}
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
CAUSAL, WINDOW_LEFT, WINDOW_RIGHT, SCALE = 1, 2, 4, 8
STATISTICS = ("lse", "entropy", "renyi2", "varentropy", "entropy_nosink", "peak", "argmax",
              "diagonal", "previous", "first")


class Rows(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("batch_stride", ctypes.c_int64),
                ("head_stride", ctypes.c_int64), ("row_stride", ctypes.c_int64)]

    @classmethod
    def of(cls, tensor):
        if tensor is None:
            return cls()
        batch, head, row, column = tensor.stride()
        assert column == 1
        return cls(tensor.data_ptr(), DTYPES[tensor.dtype], batch, head, row)


class Attention(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_int64) for name in ("n_batch", "n_heads", "n_kv_heads",
                                                     "n_queries", "n_keys", "d_head", "d_value")] +
                [("q", Rows), ("k", Rows), ("v", Rows), ("flags", ctypes.c_uint32),
                 ("scale", ctypes.c_double), ("softcap", ctypes.c_double),
                 ("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64),
                 ("window_sink", ctypes.c_int64)] +
                [(name, ctypes.c_void_p) for name in ("query_start", "key_length", "alibi_slopes",
                                                      "key_bias", "sinks", "gates", "segments")] +
                [("segment_stride", ctypes.c_int64), ("n_segments", ctypes.c_int64),
                 ("n_threads", ctypes.c_int32)])


class Result(ctypes.Structure):
    _fields_ = ([("out", Rows)] + [(name, ctypes.c_void_p) for name in STATISTICS] +
                [("segment_mass", ctypes.c_void_p)])


class Upstream(ctypes.Structure):
    _fields_ = [("grad_out", Rows), ("grad_entropy", ctypes.c_void_p), ("grad_lse", ctypes.c_void_p),
                ("out", Rows), ("lse", ctypes.c_void_p), ("entropy", ctypes.c_void_p)]


class Gradient(ctypes.Structure):
    _fields_ = [("dq", Rows), ("dk", Rows), ("dv", Rows), ("dgates", ctypes.c_void_p),
                ("dsinks", ctypes.c_void_p)]


class Launch(ctypes.Structure):
    _fields_ = [("stream", ctypes.c_void_p), ("kernel", ctypes.c_int)]


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
        a = Attention(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3],
                      v.shape[3], Rows.of(q), Rows.of(k), Rows.of(v))
        a.flags = (CAUSAL if causal else 0) | SCALE
        a.scale = scale if scale is not None else 1.0 / math.sqrt(q.shape[3])
        a.softcap = softcap
        if window is not None:
            a.flags |= WINDOW_LEFT
            a.window_left = window
            a.window_sink = window_sink
        if window_right is not None:
            a.flags |= WINDOW_RIGHT
            a.window_right = window_right
        for name, tensor in (arrays or {}).items():
            setattr(a, name, pointer(tensor))
        return a

    def prepare(self, q, k, v, statistics=("lse", "entropy", "renyi2"), kernel="auto", out=None, **options):
        """The call to make, and the tensors that it fills."""
        rows = q.shape[:3]
        found = {"out": out if out is not None else torch.full((*rows, v.shape[3]), math.nan,
                                                               dtype=q.dtype, device=q.device)}
        for name in statistics:
            dtype = torch.int64 if name == "argmax" else torch.float32
            found[name] = torch.full(rows, -7, dtype=dtype, device=q.device)
        attention = self.problem(q, k, v, **options)
        result = Result(Rows.of(found["out"]), *(pointer(found.get(name)) for name in STATISTICS))
        launch = Launch(torch.cuda.current_stream().cuda_stream, KERNELS[kernel])
        arguments = [ctypes.byref(x) for x in (result, attention, launch)]
        keep = (q, k, v, found, result, attention, launch, options)

        def run(keep=keep):  # in the stream that is current then
            launch.stream = torch.cuda.current_stream().cuda_stream
            self.call(self.library.hl_cuda_forward, *arguments)

        return run, found

    def forward(self, *arguments, **options):
        run, found = self.prepare(*arguments, **options)
        run()
        return found

    def prepare_backward(self, q, k, v, upstream, forward, kernel="auto", **options):
        """The gradient's call, given grad_out, grad_entropy and grad_lse (each may be missing) and
        what the forward pass found; and the tensors that it fills."""
        found = {name: torch.full_like(x, math.nan) for name, x in (("dq", q), ("dk", k), ("dv", v))}
        arrays = options.get("arrays") or {}
        for name in ("gates", "sinks"):
            if name in arrays:
                found["d" + name] = torch.full_like(arrays[name], math.nan)
        attention = self.problem(q, k, v, **options)
        above = Upstream(Rows.of(upstream.get("grad_out")), pointer(upstream.get("grad_entropy")),
                         pointer(upstream.get("grad_lse")), Rows.of(forward["out"]),
                         pointer(forward["lse"]), pointer(forward.get("entropy")))
        gradient = Gradient(Rows.of(found["dq"]), Rows.of(found["dk"]), Rows.of(found["dv"]),
                            pointer(found.get("dgates")), pointer(found.get("dsinks")))
        launch = Launch(torch.cuda.current_stream().cuda_stream, KERNELS[kernel])
        arguments = [ctypes.byref(x) for x in (gradient, attention, above, launch)]
        keep = (q, k, v, upstream, forward, found, gradient, attention, above, launch, options)

        def run(keep=keep):
            self.call(self.library.hl_cuda_backward, *arguments)

        return run, found
