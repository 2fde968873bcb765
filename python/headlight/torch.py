"""headlight for PyTorch, 2.4 or later: attention whose entropy can be part of a loss.

    from headlight.torch import AttentionMonitor, Collector, EntropyRegularizer, attention

    out, lse, entropy = attention(q, k, v, causal=True)
    loss = loss + EntropyRegularizer(target=2.0, weight=0.01)(entropy)
    loss.backward()

attention is two custom operators with fake implementations (torch.compile, export, meta tensors) and
gradients, on the CPU and on NVIDIA GPUs in the current stream:

    headlight::attention             out, lse and entropy, by the library's kernels
    headlight::attention_statistics  all statistics; also biases, masks for every pair of query and
                                     key, dropout and float64: blocks of queries in PyTorch's own
                                     operations where the library's kernels do not take them

Annotations are not deferred in this file: PyTorch reads the operators' schemas from them.
"""
import dataclasses
import math
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _attention as core, _blocks as blocks, _direct as direct
from ._collect import (AttentionMonitor, Collector, EntropyRegulariser, EntropyRegularizer, Place,
                       _listeners, compiling, in_backward, listening, report, settle, visible_in_layers, visible_keys, wanted)
from ._library import Error

__all__ = ["AttentionMonitor", "AttentionRows", "Collector", "EntropyRegulariser",
           "EntropyRegularizer", "Error", "Place", "attention", "report"]

if not hasattr(torch.library, "custom_op"):
    raise ImportError(f"headlight.torch needs PyTorch 2.4 or later, this is {torch.__version__}; "
                      "headlight.attention takes tensors of any version, without gradients")

# -------------------------------------------------------- the operator of out, lse and entropy
#
# The operators' schemas have no optional integers: a window of -1 means no window.


def _options(sinks: Optional[Tensor], gates: Optional[Tensor], alibi_slopes: Optional[Tensor],
             key_bias: Optional[Tensor], query_start: Optional[Tensor], key_length: Optional[Tensor],
             causal: bool, scale: float, softcap: float, window_left: int, window_right: int,
             window_sink: int) -> Dict[str, Any]:
    return dict(sinks=sinks, gates=gates, alibi_slopes=alibi_slopes, key_bias=key_bias,
                query_start=query_start, key_length=key_length, causal=causal, scale=scale,
                softcap=softcap, window_left=None if window_left < 0 else window_left,
                window_right=None if window_right < 0 else window_right, window_sink=window_sink)


def spans_of(mask: Tensor) -> Optional[Tuple[Tensor, Tensor]]:
    """(batch) the first key that is not padding, and the one after the last such key; None if there is
    padding between them."""
    n_real, n_keys = mask.sum(dim=1), mask.shape[1]
    first = mask.to(torch.int8).argmax(dim=1)
    places = torch.arange(n_keys, device=mask.device)
    run = (places >= first[:, None]) & (places < (first + n_real)[:, None])
    return (first, first + n_real) if torch.equal(run, mask) else None


def _parts(mask: Tensor, first: Tensor, end: Tensor, n_queries: int) -> Iterator[Tuple[slice, slice, Dict[str, Any]]]:
    """(sequences, keys, options) of problems without padding at the beginning.  Padding at the end is
    a matter of lengths.  After padding at the beginning positions differ: sequence by sequence."""
    n_before = mask.shape[1] - n_queries
    if not bool(first.any()):
        yield slice(None), slice(None), dict(key_length=end, query_start=torch.full_like(end, n_before))
        return
    for b, (begin, stop) in enumerate(zip(first.tolist(), end.tolist())):
        start = torch.tensor([n_before - begin], device=mask.device)
        yield slice(b, b + 1), slice(begin, stop), dict(query_start=start)


def _general(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], gates: Optional[Tensor],
             alibi_slopes: Optional[Tensor], key_bias: Optional[Tensor], query_start: Optional[Tensor],
             key_length: Optional[Tensor], mask: Optional[Tensor], causal: bool, scale: float,
             softcap: float, window_left: int, window_right: int, window_sink: int,
             **more: Any) -> blocks.Problem:
    return blocks.Problem(q, k, v, sinks=sinks, gates=gates, alibi_slopes=alibi_slopes,
                          key_bias=key_bias, query_start=query_start, key_length=key_length,
                          mask=mask, causal=causal, scale=scale, softcap=softcap,
                          window_left=window_left, window_right=window_right,
                          window_sink=window_sink, **more)


@torch.library.custom_op("headlight::attention", mutates_args=())
def _forward(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], gates: Optional[Tensor],
             alibi_slopes: Optional[Tensor], key_bias: Optional[Tensor],
             query_start: Optional[Tensor], key_length: Optional[Tensor], mask: Optional[Tensor],
             causal: bool, scale: float, softcap: float, window_left: int, window_right: int,
             window_sink: int) -> Tuple[Tensor, Tensor, Tensor]:
    given = (sinks, gates, alibi_slopes, key_bias, query_start, key_length)
    plain = (causal, scale, softcap, window_left, window_right, window_sink)
    if mask is None:
        found = core.attention(q, k, v, want=("out", "lse", "entropy"), **_options(*given, *plain))
        return found.out, found.lse, found.entropy
    spans = spans_of(mask)
    if spans is None:
        rows = blocks.forward(_general(q, k, v, *given, mask, *plain), ("out", "lse", "entropy"))
        return rows[0], rows[1], rows[2]
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    lse, entropy = (q.new_empty(q.shape[:3], dtype=torch.float32) for _ in range(2))
    for sequences, keys, more in _parts(mask, *spans, q.shape[2]):
        found = core.attention(q[sequences], k[sequences, :, keys], v[sequences, :, keys],
                               want=("out", "lse", "entropy"), **{**_options(*given, *plain), **more})
        out[sequences], lse[sequences], entropy[sequences] = found.out, found.lse, found.entropy
    return out, lse, entropy


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_options_: Any) -> Any:
    rows = q.shape[:3]
    return (q.new_empty((*rows, v.shape[3])), q.new_empty(rows, dtype=torch.float32),
            q.new_empty(rows, dtype=torch.float32))


@torch.library.custom_op("headlight::attention_backward", mutates_args=())
def _backward(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, entropy: Tensor,
              grad_out: Optional[Tensor], grad_lse: Optional[Tensor],
              grad_entropy: Optional[Tensor], sinks: Optional[Tensor], gates: Optional[Tensor],
              alibi_slopes: Optional[Tensor], key_bias: Optional[Tensor],
              query_start: Optional[Tensor], key_length: Optional[Tensor], mask: Optional[Tensor],
              causal: bool, scale: float, softcap: float, window_left: int, window_right: int,
              window_sink: int) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    given = (sinks, gates, alibi_slopes, key_bias, query_start, key_length)
    plain = (causal, scale, softcap, window_left, window_right, window_sink)
    if mask is None:
        found = core.attention_backward(
            q, k, v, core.Attention(out=out, lse=lse, entropy=entropy), grad_out=grad_out,
            grad_lse=grad_lse, grad_entropy=grad_entropy, **_options(*given, *plain))
        dsinks, dgates = _of_heads(q, found.dsinks, found.dgates)
        return found.dq, found.dk, found.dv, dsinks, dgates
    spans = spans_of(mask)
    if spans is None:
        grads = {name: grad for name, grad in (("out", grad_out), ("lse", grad_lse),
                                               ("entropy", grad_entropy)) if grad is not None}
        total = blocks.backward(_general(q, k, v, *given, mask, *plain), grads)
        return (total["q"], total["k"], total["v"],
                *_of_heads(q, total.get("sinks"), total.get("gates")))
    dq, dk, dv = (x.new_zeros(x.shape) for x in (q, k, v))  # packed, as the fake kernel says
    sums_of_sinks = None if sinks is None else torch.zeros_like(sinks, dtype=torch.float32)
    sums_of_gates = None if gates is None else torch.zeros_like(gates, dtype=torch.float32)
    for sequences, keys, more in _parts(mask, *spans, q.shape[2]):
        found = core.attention_backward(
            q[sequences], k[sequences, :, keys], v[sequences, :, keys],
            core.Attention(out=out[sequences], lse=lse[sequences], entropy=entropy[sequences]),
            grad_out=None if grad_out is None else grad_out[sequences],
            grad_lse=None if grad_lse is None else grad_lse[sequences],
            grad_entropy=None if grad_entropy is None else grad_entropy[sequences],
            **{**_options(*given, *plain), **more})
        dq[sequences], dk[sequences, :, keys], dv[sequences, :, keys] = found.dq, found.dk, found.dv
        if sums_of_sinks is not None:
            sums_of_sinks += found.dsinks
        if sums_of_gates is not None:
            sums_of_gates += found.dgates
    return (dq, dk, dv, *_of_heads(q, sums_of_sinks, sums_of_gates))


def _of_heads(q: Tensor, *values: Optional[Tensor]) -> List[Tensor]:
    """An operator's results are tensors: (0) stands for None."""
    return [q.new_empty((0,), dtype=torch.float32) if x is None else x.float() for x in values]


@_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, entropy: Tensor, grad_out: Any,
      grad_lse: Any, grad_entropy: Any, sinks: Any, gates: Any, *_options_: Any) -> Any:
    of_heads = [q.new_empty((0 if x is None else q.shape[1],), dtype=torch.float32)
                for x in (sinks, gates)]
    return (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), *of_heads)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    (q, k, v, sinks, gates, alibi_slopes, key_bias, query_start, key_length, mask,
     *ctx.settings) = inputs
    ctx.set_materialize_grads(False)  # gradients that no loss depends on are None, not zeros
    ctx.save_for_backward(q, k, v, *output, sinks, gates, alibi_slopes, key_bias, query_start,
                          key_length, mask)


def _gradient(ctx: Any, grad_out: Optional[Tensor], grad_lse: Optional[Tensor],
              grad_entropy: Optional[Tensor]) -> Tuple[Any, ...]:
    q, k, v, out, lse, entropy, sinks, gates, *rest = ctx.saved_tensors
    dq, dk, dv, dsinks, dgates = _backward(q, k, v, out, lse, entropy, grad_out, grad_lse,
                                           grad_entropy, sinks, gates, *rest, *ctx.settings)
    return (dq, dk, dv, None if sinks is None else dsinks.to(sinks.dtype),
            None if gates is None else dgates.to(gates.dtype), *[None] * 11)


_forward.register_autograd(_gradient, setup_context=_keep)


def _over_batches(info: Any, in_dims: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    """vmap: the mapped axis becomes part of the batch."""
    if any(dim is not None for dim in in_dims[3:]):
        raise Error("vmap over the options of attention: only q, k and v can be mapped", "unsupported")
    if any(isinstance(x, Tensor) for x in rest[4:7]):  # (batch, ...)
        raise Error("vmap: query_start, key_length and masks are of one batch", "unsupported")
    n = info.batch_size
    folded = [x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0)
              for x, dim in zip((q, k, v), in_dims)]
    found = _forward(*(x.reshape(-1, *x.shape[2:]) for x in folded), *rest)
    return tuple(x.unflatten(0, (n, -1)) for x in found), (0, 0, 0)


if hasattr(_forward, "register_vmap"):  # PyTorch 2.5
    _forward.register_vmap(_over_batches)

# ------------------------------------------------------------- the operator of all statistics

_THREE = ("out", "lse", "entropy")
_SMOOTH = tuple(name for name in blocks.NAMES if name != "argmax")


def _can_use_kernels(p: blocks.Problem) -> bool:
    return (p.bias is None and p.mask is None and p.dropout <= 0.0 and p.q.dtype != torch.float64 and
            p.q.device.type in ("cpu", "cuda"))


def _kernel_options(p: blocks.Problem) -> Dict[str, Any]:
    return _options(p.sinks, p.gates, p.alibi_slopes, p.key_bias, p.query_start, p.key_length,
                    p.causal, p.scale, p.softcap, p.window_left, p.window_right, p.window_sink)


def _from_kernels(p: blocks.Problem, want: Sequence[str]) -> List[Tensor]:
    results = dict(zip(blocks.NAMES, blocks.empties(p, ())))
    asked = {*want, *_THREE} - {"received"}
    options = _kernel_options(p)
    if "segment_mass" in want:
        options.update(segments=p.segments, n_segments=p.n_segments)
    found = core.attention(p.q, p.k, p.v, want=tuple(asked), **options)
    for name in asked:
        results[name] = getattr(found, name)
    if "received" in want:
        results["received"] = core.attention_received(p.q, p.k, found.lse, **{**options, "gates": None})
    return [results[name] for name in blocks.NAMES]


def _problem(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
             gates: Optional[Tensor], key_bias: Optional[Tensor], alibi_slopes: Optional[Tensor],
             mask: Optional[Tensor], query_start: Optional[Tensor], key_length: Optional[Tensor],
             segments: Optional[Tensor], seed: Optional[Tensor], causal: bool, scale: float,
             softcap: float, window_left: int, window_right: int, window_sink: int, dropout: float,
             n_segments: int) -> blocks.Problem:
    return blocks.Problem(q, k, v, bias, sinks, gates, key_bias, alibi_slopes, mask, query_start,
                          key_length, segments, causal, scale, softcap, window_left, window_right,
                          window_sink, dropout, seed, n_segments)


@torch.library.custom_op("headlight::attention_statistics", mutates_args=())
def _statistics(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
                gates: Optional[Tensor], key_bias: Optional[Tensor],
                alibi_slopes: Optional[Tensor], mask: Optional[Tensor],
                query_start: Optional[Tensor], key_length: Optional[Tensor],
                segments: Optional[Tensor], seed: Optional[Tensor], causal: bool, scale: float,
                softcap: float, window_left: int, window_right: int, window_sink: int,
                dropout: float, n_segments: int, want: str
                ) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                           Tensor, Tensor, Tensor, Tensor, Tensor]:
    p = _problem(q, k, v, bias, sinks, gates, key_bias, alibi_slopes, mask, query_start, key_length,
                 segments, seed, causal, scale, softcap, window_left, window_right, window_sink,
                 dropout, n_segments)
    names = (*_THREE, *(name for name in want.split(",") if name not in _THREE))
    if _can_use_kernels(p):
        return tuple(_from_kernels(p, names))
    return tuple(blocks.forward(p, names))


@_statistics.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Any:
    n_segments, want = options[-2:]
    p = blocks.Problem(q, k, v, n_segments=n_segments)
    return tuple(blocks.empties(p, (*_THREE, *want.split(","))))


@torch.library.custom_op("headlight::attention_statistics_backward", mutates_args=())
def _statistics_backward(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor],
                         sinks: Optional[Tensor], gates: Optional[Tensor],
                         key_bias: Optional[Tensor], alibi_slopes: Optional[Tensor],
                         mask: Optional[Tensor], query_start: Optional[Tensor],
                         key_length: Optional[Tensor], segments: Optional[Tensor],
                         seed: Optional[Tensor], causal: bool, scale: float, softcap: float,
                         window_left: int, window_right: int, window_sink: int, dropout: float,
                         n_segments: int, out: Tensor, lse: Tensor, entropy: Tensor,
                         grads: List[Tensor], names: str
                         ) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    p = _problem(q, k, v, bias, sinks, gates, key_bias, alibi_slopes, mask, query_start, key_length,
                 segments, seed, causal, scale, softcap, window_left, window_right, window_sink,
                 dropout, n_segments)
    given = dict(zip(names.split(","), grads))
    if _can_use_kernels(p) and set(given) <= set(_THREE) and key_bias is None:
        upstream: Dict[str, Any] = {f"grad_{name}": grad for name, grad in given.items()}
        found = core.attention_backward(q, k, v, core.Attention(out=out, lse=lse, entropy=entropy),
                                        **upstream, **_kernel_options(p))
        total = {"q": found.dq, "k": found.dk, "v": found.dv, "sinks": found.dsinks,
                 "gates": found.dgates}
    else:
        total = blocks.backward(p, given)
    return tuple(q.new_empty((0,)) if total.get(name) is None else
                 total[name].to(getattr(p, name).dtype).contiguous() for name in blocks.Problem.LEAVES)


@_statistics_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, bias: Any, sinks: Any, gates: Any, key_bias: Any,
      *_options_: Any) -> Any:
    return tuple(q.new_empty((0,)) if x is None else x.new_empty(x.shape)
                 for x in (q, k, v, bias, sinks, gates, key_bias))


def _keep_statistics(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.settings, ctx.want = inputs[13:21], inputs[21]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[blocks.NAMES.index("argmax")])
    ctx.save_for_backward(*inputs[:13], *output[:3])


def _gradient_of_statistics(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Any, ...]:
    given = {name: grad for name, grad in zip(blocks.NAMES, grads)
             if grad is not None and name in _SMOOTH and grad.numel()}
    inputs, results = ctx.saved_tensors[:13], ctx.saved_tensors[13:]
    if not given:
        return (None,) * 22
    total = _statistics_backward(*inputs, *ctx.settings, *results, list(given.values()),
                                 ",".join(given))
    leaves = [None if value is None else grad.to(value.dtype) for value, grad in zip(inputs, total)]
    return (*leaves, *[None] * 15)


_statistics.register_autograd(_gradient_of_statistics, setup_context=_keep_statistics)

# --------------------------------------------------------------------------- attention


def _under_autocast(q: Tensor, k: Tensor, v: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Casts to the type that autocast selects, as PyTorch's own attention does."""
    device = q.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    return q.to(dtype), k.to(dtype), v.to(dtype)


@dataclasses.dataclass
class AttentionRows:
    """The results of attention(); `out, lse, entropy = rows` takes the first three.  Statistics that
    were not wanted are None.  All but argmax are parts of the graph.  They are float32; float64 if q
    is."""
    out: Tensor  # (batch, heads, queries, d_value), of q's type
    lse: Tensor  # (batch, heads, queries); so are all below but the last two
    entropy: Tensor  # nats
    renyi2: Optional[Tensor] = None  # collision entropy, nats
    varentropy: Optional[Tensor] = None
    entropy_nosink: Optional[Tensor] = None  # without the first key; NaN if a row sees no other key
    peak: Optional[Tensor] = None  # largest probability of a key
    argmax: Optional[Tensor] = None  # key with this probability, int64; -1 if a row sees no key
    self: Optional[Tensor] = None  # probability of the row's own position; NaN if not visible
    previous: Optional[Tensor] = None
    first: Optional[Tensor] = None
    max_logit: Optional[Tensor] = None  # largest logit: the score of the key at `argmax`
    received: Optional[Tensor] = None  # (batch, heads, keys) sum of probabilities over the rows
    segment_mass: Optional[Tensor] = None  # (batch, heads, queries, n_segments)

    def __iter__(rows) -> Iterator[Tensor]:  # `self` is a field
        return iter((rows.out, rows.lse, rows.entropy))

    def __getitem__(rows, index: int) -> Tensor:
        return (rows.out, rows.lse, rows.entropy)[index]


def _check(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise Error(f"{name} is a {type(x).__module__}.{type(x).__qualname__}, wanted a torch.Tensor; "
                    "headlight.attention takes arrays of other libraries")
    if x.dim() != 4:
        raise Error(f"{name} has {x.dim()} axes, wanted 4: (batch, heads, rows, width)")
    if not x.is_floating_point():
        raise Error(f"{name} is of {x.dtype}, wanted float16, bfloat16, float32 or float64")
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise Error(f"{name} lies on {x.device}, wanted a CPU or an NVIDIA GPU", "unsupported")


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check(name, x)
        if x.device != q.device:
            raise Error(f"{name} lies on {x.device}, q on {q.device}")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise Error(f"k has shape {tuple(k.shape)}, wanted ({q.shape[0]}, kv_heads, keys, {q.shape[3]}) "
                    f"for q's {tuple(q.shape)}")
    if v.shape[:3] != k.shape[:3]:
        raise Error(f"v has shape {tuple(v.shape)}, wanted {tuple(k.shape[:3])} and a width, as k has")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0:
        raise Error(f"q has {q.shape[1]} heads, not a multiple of k's {k.shape[1]}")


def _check_pairs(name: str, x: Tensor, q: Tensor, k: Tensor) -> None:
    """mask or bias: (batch or 1, heads or 1, queries or 1, keys)."""
    wanted = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if x.dim() != 4 or x.shape[3] != wanted[3] or \
            any(found not in (1, size) for found, size in zip(x.shape[:3], wanted)):
        raise Error(f"{name} has shape {tuple(x.shape)}, wanted {wanted}, or 1 for any of the first "
                    "three")


def _check_want(want: Sequence[str], segments: Optional[Tensor]) -> None:
    for name in want:
        if name not in blocks.NAMES:
            raise Error(f"want: there is no {name!r}; there are {', '.join(blocks.NAMES)}")
    if "segment_mass" in want and segments is None:
        raise Error("segment_mass is wanted, but there are no segments")


def _draw_seed() -> Tensor:
    return torch.randint(0, 1 << 62, ())  # from PyTorch's generator, which a checkpoint restores


def _number(value: Optional[int]) -> int:
    return -1 if value is None else value


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False,
              scale: Optional[float] = None, softcap: float = 0.0,
              window_left: Optional[int] = None, window_right: Optional[int] = None,
              window_sink: int = 0, query_start: Optional[Tensor] = None,
              key_length: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None,
              key_bias: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
              gates: Optional[Tensor] = None, mask: Optional[Tensor] = None,
              bias: Optional[Tensor] = None, dropout: float = 0.0,
              seed: Optional[Tensor] = None, segments: Optional[Tensor] = None,
              n_segments: int = 0, want: Sequence[str] = ("out", "lse", "entropy"),
              layer: Any = None, module: Optional[torch.nn.Module] = None) -> AttentionRows:
    """headlight.attention with gradients through all its results.

    q: (batch, heads, queries, d_head); k: (batch, kv_heads, keys, d_head); v: (batch, kv_heads, keys,
    d_value).  Under autocast q, k and v are cast.

    mask: bool, False hides a key: (batch, keys) for padding, or (batch or 1, heads or 1, queries or 1,
    keys).  bias: numbers added to the scores, shaped like the latter; it has a gradient.
    dropout: the share of probabilities that are set to zero; statistics are of the others and them.
    seed: an int64 tensor that determines which; None: drawn from PyTorch's generator.
    want: names of members of AttentionRows; out, lse and entropy are always computed.
    layer, module: the layer's number and its module, for collectors and monitors.
    alibi_slopes is a constant.  The other options are those of headlight.attention.

        rows = attention(q, k, v, causal=True, want=("renyi2", "max_logit"))
        rows.entropy, rows.renyi2
    """
    _check_want(want, segments)
    if layer is not None and wanted():
        want = (*want, *wanted())
    is_plain = (mask is None and bias is None and dropout <= 0.0 and query_start is None and
                key_length is None and alibi_slopes is None and key_bias is None and
                set(want) <= set(_THREE) and not compiling())
    if is_plain and direct.takes(q, k, v):
        q, k, v = _under_autocast(q, k, v)
        if direct.takes_values(sinks, q) and direct.takes_values(gates, q):
            settings = (causal, 1.0 / math.sqrt(q.shape[3]) if scale is None else float(scale),
                        float(softcap or 0.0), _number(window_left), _number(window_right), window_sink)
            rows = AttentionRows(*direct.attention(q, k, v, sinks, gates, settings))
            if layer is not None:
                _tell(rows, layer, module, q, k, None, None, causal, window_left, window_right)
            return rows
    _check_shapes(q, k, v)
    q, k, v = _under_autocast(q, k, v)
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    windows = (_number(window_left), _number(window_right), window_sink)
    for name, pairs in (("mask", mask), ("bias", bias)):
        if pairs is not None and not (name == "mask" and pairs.dim() == 2):
            _check_pairs(name, pairs, q, k)
    if mask is not None and mask.dim() == 2 and mask.shape != (k.shape[0], k.shape[2]):
        raise Error(f"mask has shape {tuple(mask.shape)}, wanted {(k.shape[0], k.shape[2])}")
    mask = None if mask is None else mask.to(torch.bool)
    simple = (bias is None and dropout <= 0.0 and q.dtype != torch.float64 and
              (mask is None or mask.dim() == 2) and set(want) <= set(_THREE) and
              (key_bias is None or not key_bias.requires_grad))
    if simple:
        rows = AttentionRows(*_forward(q, k, v, sinks, gates, alibi_slopes, key_bias, query_start,
                                       key_length, mask, causal, scale, float(softcap or 0.0),
                                       *windows))
    else:
        if dropout > 0.0 and seed is None:
            seed = _draw_seed()
        found = _statistics(q, k, v, bias, sinks, gates, key_bias, alibi_slopes, mask, query_start,
                            key_length, segments, seed if dropout > 0.0 else None, causal, scale,
                            float(softcap or 0.0), *windows, float(dropout), n_segments, ",".join(want))
        rows = AttentionRows(*found[:3], **{name: value for name, value in zip(blocks.NAMES[3:], found[3:])
                                           if name in want})
    if layer is not None:
        _tell(rows, layer, module, q, k, mask, bias, causal, window_left, window_right)
    return rows


def _tell(rows: AttentionRows, layer: Any, module: Optional[torch.nn.Module], q: Tensor, k: Tensor,
          mask: Optional[Tensor], bias: Optional[Tensor], causal: bool, window_left: Optional[int],
          window_right: Optional[int]) -> None:
    """Reports the rows; while a gradient is computed, lets in the gradients that are owed to them."""
    if not compiling() and in_backward():
        rows.out = settle(rows.out, rows.entropy, layer if module is None else module)
        return
    if not listening():
        return
    n_queries, n_keys = q.shape[2], k.shape[2]
    real = None
    if mask is not None and mask.dim() == 4 or bias is not None:
        problem = blocks.Problem(q, k, k, bias=bias, mask=mask, causal=causal,
                                 window_left=_number(window_left),
                                 window_right=_number(window_right))
        visible = blocks.visible(problem).sum(-1)[:, 0]
        if mask is not None:
            real = (visible > 0).expand(q.shape[0], n_queries)
    elif mask is None and not compiling() and type(q) is Tensor:
        visible = visible_in_layers(n_queries, n_keys, causal, window_left, window_right, q.device)
    else:
        visible = visible_keys(n_queries, n_keys, causal, window_left, window_right, mask, q.device)
        is_cross = getattr(module, "headlight_is_cross", False)
        if mask is not None and not is_cross and n_keys >= n_queries:
            real = mask[:, n_keys - n_queries:]
    report(layer, rows.entropy, visible=visible, real=real, module=module)
    for listener in _listeners.items:
        if getattr(listener, "wants", ()):
            listener.listen_rows(layer, rows, module)
