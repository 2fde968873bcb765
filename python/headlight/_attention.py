"""Attention that measures its rows: hl_attention_forward and _backward on arrays of any library.

Shapes are q (batch, heads, queries, d_head), k (batch, kv_heads, keys, d_head) and v (batch, kv_heads,
keys, d_value); statistics of rows are (batch, heads, queries).
"""
from __future__ import annotations

import ctypes as c
import dataclasses
import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Tuple, TypedDict

import numpy as np

from . import _arrays, _structs as s
from ._library import Error, call, call_cuda

if TYPE_CHECKING:
    from typing_extensions import Unpack

STATISTICS = ("lse", "entropy", "renyi2", "varentropy", "entropy_nosink", "peak", "argmax",
              "self", "previous", "first", "max_logit")
MAX_HEAD_DIM = 576


@dataclasses.dataclass
class Attention:
    """The requested results of attention(); the others are None.  All but `out` and `segment_mass` are
    (batch, heads, queries), float32; entropies are in nats."""
    out: Any = None  # (batch, heads, queries, d_value)
    lse: Any = None  # log of the sum of exp(score)
    entropy: Any = None  # Shannon entropy
    renyi2: Any = None  # collision entropy
    varentropy: Any = None
    entropy_nosink: Any = None  # without the first key; NaN if a row sees no other key
    peak: Any = None  # largest probability
    argmax: Any = None  # key with this probability, int64; -1 if a row sees no key
    self: Any = None  # probability of the row's own position; NaN if the row does not see it
    previous: Any = None  # probability of the previous position; NaN if not visible
    first: Any = None  # probability of the first key; NaN if not visible
    segment_mass: Any = None  # (batch, heads, queries, n_segments)
    max_logit: Any = None  # largest score of a key; -inf if a row sees none

    diagonal = property(lambda found: found.self, doc="What `self` was called in earlier versions.")


@dataclasses.dataclass
class Gradients:
    """Gradients of the loss; dgates and dsinks are None without gates or sinks."""
    dq: Any  # shaped like q
    dk: Any  # shaped like k
    dv: Any  # shaped like v
    dgates: Any = None  # (heads)
    dsinks: Any = None  # (heads)


def compute_attention_entropy(attn_probs: Any, eps: float = 1e-8) -> Any:
    """Mean entropy of each head from complete attention matrices, by the textbook formula: -sum p ln(p
    + eps), averaged over batch and queries.

    attn_probs: (batch, heads, queries, keys), numpy or PyTorch.  Returns (heads), of the same kind and,
    with PyTorch, part of its graph.  attention() computes the same without the matrix.
    """
    if len(attn_probs.shape) != 4:
        raise Error(f"attn_probs has {len(attn_probs.shape)} axes, wanted 4: "
                    "(batch, heads, queries, keys)")
    if _arrays.kind_of(attn_probs) == "torch":
        return -(attn_probs * (attn_probs + eps).log()).sum(dim=-1).mean(dim=(0, 2))
    probabilities = np.asarray(attn_probs)
    if probabilities.dtype.kind != "f":
        probabilities = probabilities.astype(np.float64)
    entropy = -(probabilities * np.log(probabilities + probabilities.dtype.type(eps))).sum(axis=-1)
    return entropy.mean(axis=(0, 2))


class Options(TypedDict, total=False):
    """The keyword arguments that attention(), attention_received() and attention_backward() share."""
    causal: bool
    scale: Optional[float]
    softcap: float
    window_left: Optional[int]
    window_right: Optional[int]
    window_sink: int
    query_start: Any
    key_length: Any
    alibi_slopes: Any
    key_bias: Any
    sinks: Any
    gates: Any
    segments: Any
    n_segments: int
    n_threads: int
    stream: Optional[int]


# -------------------------------------------------------------------- problems


@dataclasses.dataclass
class _Problem:
    """An hl_attention, with everything that must live as long as it is used."""
    c: s.Attention
    kind: str
    device: str
    dtypes: Dict[str, int]
    stream: int = 0
    keep: List[Any] = dataclasses.field(default_factory=list)

    @property
    def row_shape(self) -> Tuple[int, int, int]:
        return (self.c.n_batch, self.c.n_heads, self.c.n_queries)

    def empty(self, shape: Tuple[int, ...], dtype: Any) -> Any:
        return _arrays.empty(self.kind, self.device, shape, dtype)

    def side(self, name: str, values: Any, dtype: Any, *shapes: Tuple[int, ...]) -> Any:
        """An array of the problem other than q, k and v: converted, checked, kept alive."""
        array = _arrays.convert(values, self.kind, self.device, dtype)
        if tuple(array.shape) not in shapes:
            raise Error(f"{name} has shape {tuple(array.shape)}, wanted " +
                        " or ".join(map(str, shapes)))
        self.keep.append(array)
        return array

    def input_rows(self, array: Any, name: str, shape: Tuple[int, ...]) -> s.Rows:
        found, tensor = _arrays.rows(array, name)
        if tensor.shape != shape:
            raise Error(f"{name} has shape {tensor.shape}, wanted {shape}")
        if tensor.device != self.device:
            raise Error(f"{name} lies on {tensor.device}, q on {self.device}")
        self.keep.append(tensor)
        return found

    def output_dtype(self, name: str) -> int:
        """The same as q's; for bf16 in numpy, which lacks that type, float32."""
        dtype = self.dtypes[name]
        return s.F32 if dtype == s.BF16 and self.kind == "numpy" else dtype


def _output_rows(array: Any, dtype: int) -> s.Rows:
    return s.Rows(_arrays.pointer_of(array), dtype, 0, 0, 0)


def _start(q: Any, k: Any, v: Any) -> _Problem:
    found, tensors = {}, {}
    for name, array in (("q", q), ("k", k), ("v", v)):
        found[name], tensors[name] = _arrays.rows(array, name)
    (n_batch, n_heads, n_queries, d_head), (_, n_kv_heads, n_keys, _) = (tensors["q"].shape,
                                                                       tensors["k"].shape)
    d_value = tensors["v"].shape[3]
    for name, shape in (("k", (n_batch, n_kv_heads, n_keys, d_head)),
                        ("v", (n_batch, n_kv_heads, n_keys, d_value))):
        if tensors[name].shape != shape:
            raise Error(f"{name} has shape {tensors[name].shape}, wanted {shape}")
    for name in "kv":
        if tensors[name].device != tensors["q"].device:
            raise Error(f"{name} lies on {tensors[name].device}, q on {tensors['q'].device}")
    if n_kv_heads == 0 or n_heads % n_kv_heads != 0:
        raise Error(f"q has {n_heads} heads, not a multiple of k's {n_kv_heads}")
    if not (1 <= d_head <= MAX_HEAD_DIM and 1 <= d_value <= MAX_HEAD_DIM):
        raise Error(f"heads are {d_head} and {d_value} wide, wanted 1 to {MAX_HEAD_DIM}")
    problem = s.Attention(n_batch, n_heads, n_kv_heads, n_queries, n_keys, d_head, d_value,
                          found["q"], found["k"], found["v"])
    device = tensors["q"].device
    return _Problem(problem, _arrays.kind_of(q), device,
                    {name: tensor.dtype for name, tensor in tensors.items()},
                    0 if device == "cpu" else _arrays.current_stream(q, device),
                    list(tensors.values()))


def _limit_keys(p: _Problem, key_length: Any, query_start: Any) -> None:
    if key_length is not None:
        lengths = p.side("key_length", key_length, "i64", (p.c.n_batch,))
        if p.device == "cpu" and lengths.size and not 0 <= lengths.min() <= lengths.max() <= p.c.n_keys:
            raise Error(f"key_length is {lengths.min()} to {lengths.max()}, wanted 0 to {p.c.n_keys}")
        p.c.key_length = _arrays.pointer_of(lengths)
    if query_start is not None:
        p.c.query_start = _arrays.pointer_of(
            p.side("query_start", query_start, "i64", (p.c.n_batch,)))


def _cut_windows(p: _Problem, left: Optional[int], right: Optional[int], sink: int) -> None:
    for name, value, flag in (("window_left", left, s.WINDOW_LEFT),
                              ("window_right", right, s.WINDOW_RIGHT), ("window_sink", sink, 0)):
        if value is None:
            continue
        if value < 0:
            raise Error(f"{name} is {value}, wanted 0 or more")
        setattr(p.c, name, value)
        p.c.flags |= flag


def _add_segments(p: _Problem, segments: Any, n_segments: int) -> None:
    n_batch, n_keys = p.c.n_batch, p.c.n_keys
    array = p.side("segments", segments, "u8", (n_keys,), (n_batch, n_keys))
    if not 1 <= n_segments <= s.MAX_SEGMENTS:
        raise Error(f"n_segments is {n_segments}, wanted 1 to {s.MAX_SEGMENTS}")
    p.c.segments, p.c.n_segments = _arrays.pointer_of(array), n_segments
    p.c.segment_stride = n_keys if len(array.shape) == 2 and n_batch > 1 else 0


def _problem(q: Any, k: Any, v: Any, *, causal: bool = False, scale: Optional[float] = None,
             softcap: float = 0.0, window_left: Optional[int] = None,
             window_right: Optional[int] = None, window_sink: int = 0, query_start: Any = None,
             key_length: Any = None, alibi_slopes: Any = None, key_bias: Any = None,
             sinks: Any = None, gates: Any = None, segments: Any = None, n_segments: int = 0,
             n_threads: int = 0, stream: Optional[int] = None) -> _Problem:
    p = _start(q, k, v)
    # The GPU library has no default scale, so it is always passed.
    p.c.scale = float(scale) if scale is not None else 1.0 / math.sqrt(p.c.d_head)
    p.c.flags = s.SCALE | (s.CAUSAL if causal else 0)
    p.c.softcap, p.c.n_threads = float(softcap), n_threads
    _cut_windows(p, window_left, window_right, window_sink)
    _limit_keys(p, key_length, query_start)
    n_heads = (p.c.n_heads,)
    for name, values, shape in (("alibi_slopes", alibi_slopes, n_heads),
                                ("key_bias", key_bias, (p.c.n_heads, p.c.n_keys)),
                                ("sinks", sinks, n_heads), ("gates", gates, n_heads)):
        if values is not None:
            setattr(p.c, name, _arrays.pointer_of(p.side(name, values, s.F32, shape)))
    if segments is not None:
        _add_segments(p, segments, n_segments)
    if stream is not None:
        p.stream = stream
    if p.device != "cpu":
        _state_strides(p)
    return p


def _check_options(caller: str, options: Options) -> None:
    """Raises an error like Python's, which would name _problem() instead of the public function."""
    for name in options:
        if name not in (_problem.__kwdefaults__ or {}):
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")


def _state_strides(p: _Problem) -> None:
    """Packed strides as numbers, which the GPU library requires."""
    for name, n_heads, n_rows, width in (("q", p.c.n_heads, p.c.n_queries, p.c.d_head),
                                         ("k", p.c.n_kv_heads, p.c.n_keys, p.c.d_head),
                                         ("v", p.c.n_kv_heads, p.c.n_keys, p.c.d_value)):
        _pack(getattr(p.c, name), n_heads, n_rows, width)


def _pack(found: s.Rows, n_heads: int, n_rows: int, width: int) -> s.Rows:
    if not (found.batch_stride or found.head_stride or found.row_stride):
        found.row_stride = width
        found.head_stride, found.batch_stride = n_rows * width, n_heads * n_rows * width
    return found


# --------------------------------------------------------------------- forward


def attention(q: Any, k: Any, v: Any, *, want: Iterable[str] = ("out", "lse", "entropy"),
              out_dtype: Optional[str] = None, **options: "Unpack[Options]") -> Attention:
    """softmax(scale q k^T + ...) v, with statistics of each row of the softmax, without ever storing
    the rows.

    q: (batch, heads, queries, d_head); k: (batch, kv_heads, keys, d_head); v: (batch, kv_heads, keys,
    d_value).  numpy arrays, or arrays with __dlpack__ or __cuda_array_interface__, of float16, float32,
    float64 or bfloat16 (numpy: uint16), in any strides; nothing is copied unless the last axis has
    gaps.  Arrays on a GPU are processed there, by libheadlight_cuda.so, in their library's current
    stream.

    want: names of fields of Attention; the others are not computed.
    out_dtype: "float32", "float16", "float64" or "bfloat16"; None: q's.

    causal, window_left, window_right, window_sink: which keys each row sees (headlight/attention.h).
    scale: 1 / sqrt(d_head) if None.  softcap: 0 for none.
    query_start, key_length: (batch) integers; None: keys - queries, and all keys.
    alibi_slopes, sinks, gates: (heads).  key_bias: (heads, keys).
    segments: (keys) or (batch, keys), numbers below n_segments.
    n_threads: CPU threads; 0: all cores.  stream: a cudaStream_t to use instead of the current one.

    Without differences between keys, a row's entropy is the logarithm of the number of keys it sees:

    >>> x = np.zeros((1, 1, 3, 8), dtype=np.float32)
    >>> np.exp(attention(x, x, x, causal=True).entropy[0, 0]).round(3).tolist()
    [1.0, 2.0, 3.0]
    """
    wanted = tuple("self" if name == "diagonal" else name  # the name in earlier versions
                   for name in ((want,) if isinstance(want, str) else want))
    for name in wanted:
        if name not in ("out", "segment_mass", *STATISTICS):
            raise Error(f"want: there is no {name!r}; there are " +
                        ", ".join(("out", *STATISTICS, "segment_mass")))
    _check_options("attention", options)
    p = _problem(q, k, v, **options)
    result, found = s.AttentionResult(), {}
    if "out" in wanted:
        dtype = p.output_dtype("q") if out_dtype is None else _dtype_of(out_dtype, p.kind)
        found["out"] = p.empty((*p.row_shape, p.c.d_value), dtype)
        result.out = _output_rows(found["out"], dtype)
        _pack(result.out, p.c.n_heads, p.c.n_queries, p.c.d_value)
    for name in STATISTICS:
        if name in wanted:
            found[name] = p.empty(p.row_shape, "i64" if name == "argmax" else s.F32)
            setattr(result, name, _arrays.pointer_of(found[name]))
    if "segment_mass" in wanted:
        if not p.c.segments:
            raise Error("segment_mass is wanted, but there are no segments")
        found["segment_mass"] = p.empty((*p.row_shape, p.c.n_segments), s.F32)
        result.segment_mass = _arrays.pointer_of(found["segment_mass"])
    _run(p, "forward", result)
    _spoil_undefined(p, found, options)
    return Attention(**found)


def attention_received(q: Any, k: Any, lse: Any, *, last: int = 0, **options: "Unpack[Options]") -> Any:
    """The attention that each key receives: the sum over rows of its probability, (batch, heads, keys).
    A second pass over the scores, at about half the cost of attention().

    lse: what attention() returned for the same q, k and options.
    last: the number of last queries that count; 0: all.
    options: those of attention().
    """
    _check_options("attention_received", options)
    p = _problem(q, k, k, **options)
    if not 0 <= last <= p.c.n_queries:
        raise Error(f"last is {last}, wanted 0 to {p.c.n_queries} queries")
    given = p.side("lse", lse, s.F32, p.row_shape)
    found = p.empty((p.c.n_batch, p.c.n_heads, p.c.n_keys), s.F32)
    if p.device == "cpu":
        call("hl_attention_received", _arrays.pointer_of(found), c.byref(p.c),
             _arrays.pointer_of(given), last)
    elif math.prod(found.shape) > 0:
        with _arrays.on_device(p.kind, p.device):
            call_cuda("hl_cuda_received", _arrays.pointer_of(found), c.byref(p.c),
                      _arrays.pointer_of(given), p.c.n_queries - last if last else 0,
                      c.byref(s.CudaLaunch(p.stream, 0)))
    return found


# The keys that a row must see for a statistic to be defined; otherwise the library returns 0.
_NEEDS = {"self": lambda seen, position: seen(position), "previous": lambda seen, position: seen(position - 1),
          "first": lambda seen, position: seen(0 * position)}


def _spoil_undefined(p: _Problem, found: Dict[str, Any], options: Options) -> None:
    """Sets undefined statistics to NaN.  Rows that see no key at all keep their 0."""
    wanted = [name for name in (*_NEEDS, "entropy_nosink") if name in found]
    if not wanted or math.prod(p.row_shape) == 0:
        return
    start, length = (None if options.get(name) is None else
                     _arrays.convert(options[name], "numpy", "cpu", "i64").reshape(-1, 1)
                     for name in ("query_start", "key_length"))
    length = np.full((p.c.n_batch, 1), p.c.n_keys) if length is None else length
    position = (length - p.c.n_queries if start is None else start) + np.arange(p.c.n_queries)[None, :]
    end = length + 0 * position
    if p.c.flags & s.CAUSAL:
        end = np.minimum(end, position + 1)
    if p.c.flags & s.WINDOW_RIGHT:
        end = np.minimum(end, position + p.c.window_right + 1)
    begin = np.maximum(position - p.c.window_left, 0) if p.c.flags & s.WINDOW_LEFT else 0 * position

    def seen(key: np.ndarray) -> np.ndarray:
        return (key >= 0) & (key < end) & ((key >= begin) | (key < p.c.window_sink))

    n_seen = np.maximum(end - begin, 0) + np.clip(np.minimum(end, begin), 0, p.c.window_sink)
    for name in wanted:
        defined = n_seen - seen(0 * position) > 0 if name == "entropy_nosink" else _NEEDS[name](seen, position)
        _arrays.spoil(found[name], ~defined & (n_seen > 0))


def _dtype_of(name: str, kind: str) -> int:
    codes = _arrays.CODES
    if name not in codes or (name == "bfloat16" and kind == "numpy"):
        raise Error(f"out_dtype is {name!r}, wanted float32, float16, float64" +
                    (" or bfloat16" if kind != "numpy" else ""))
    return codes[name]


def _run(p: _Problem, direction: str, *structs: c.Structure) -> None:
    """Runs the call on the CPU or in the arrays' stream."""
    first, *rest = structs
    if p.device == "cpu":
        call(f"hl_attention_{direction}", c.byref(first), c.byref(p.c), *map(c.byref, rest))
    elif math.prod(p.row_shape) > 0:
        with _arrays.on_device(p.kind, p.device):
            call_cuda(f"hl_cuda_{direction}", c.byref(first), c.byref(p.c), *map(c.byref, rest),
                      c.byref(s.CudaLaunch(p.stream, 0)))


# -------------------------------------------------------------------- backward


def attention_backward(q: Any, k: Any, v: Any, forward: Attention, *, grad_out: Any = None,
                       grad_entropy: Any = None, grad_lse: Any = None,
                       **options: "Unpack[Options]") -> Gradients:
    """Gradients of a loss that depends on attention()'s out, entropy and lse.

    forward: the result of attention() with the same options.  It must have lse; also out if grad_out is
    given, and entropy if grad_entropy is given.
    grad_out: (batch, heads, queries, d_value); grad_entropy, grad_lse: (batch, heads, queries); each
    may be None, for zero.
    """
    _check_options("attention_backward", options)
    p = _problem(q, k, v, **options)
    upstream, gradient = s.AttentionUpstream(), s.AttentionGradient()
    _describe_upstream(p, upstream, forward, grad_out, grad_entropy, grad_lse)
    found = {}
    for name, shape in (("q", (p.c.n_batch, p.c.n_heads, p.c.n_queries, p.c.d_head)),
                        ("k", (p.c.n_batch, p.c.n_kv_heads, p.c.n_keys, p.c.d_head)),
                        ("v", (p.c.n_batch, p.c.n_kv_heads, p.c.n_keys, p.c.d_value))):
        dtype = p.output_dtype(name)
        found["d" + name] = p.empty(shape, dtype)
        setattr(gradient, "d" + name,
                _pack(_output_rows(found["d" + name], dtype), shape[1], shape[2], shape[3]))
    for name in ("gates", "sinks"):
        if options.get(name) is not None:
            found["d" + name] = p.empty((p.c.n_heads,), s.F32)
            setattr(gradient, "d" + name, _arrays.pointer_of(found["d" + name]))
    _run(p, "backward", gradient, upstream)
    return Gradients(**found)


def _describe_upstream(p: _Problem, upstream: s.AttentionUpstream, forward: Attention,
                       grad_out: Any, grad_entropy: Any, grad_lse: Any) -> None:
    needed = [("lse", True), ("out", grad_out is not None), ("entropy", grad_entropy is not None)]
    for name, is_needed in needed:
        if is_needed and getattr(forward, name) is None:
            raise Error(f"the gradient needs {name} of the forward pass: want it there")
    shape = (*p.row_shape, p.c.d_value)
    if grad_out is not None:
        for name, array in (("grad_out", grad_out), ("out", forward.out)):
            setattr(upstream, name, _pack(p.input_rows(array, name, shape), *shape[1:]))
    for name, array in (("grad_entropy", grad_entropy), ("grad_lse", grad_lse),
                        ("lse", forward.lse), ("entropy", forward.entropy)):
        if array is not None:
            setattr(upstream, name, _arrays.pointer_of(p.side(name, array, s.F32, p.row_shape)))
