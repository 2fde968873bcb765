"""headlight for PyTorch, 2.4 or later: attention whose entropy can be part of a loss.

    from headlight.torch import AttentionMonitor, Collector, EntropyRegularizer, attention

    out, lse, entropy = attention(q, k, v, causal=True)
    loss = loss + EntropyRegularizer(target=2.0, weight=0.01)(entropy)
    loss.backward()

attention is a custom operator, headlight::attention, with a fake implementation (torch.compile,
export) and its gradient, headlight::attention_backward: on the CPU, and on NVIDIA GPUs in the current
stream.  Annotations are not deferred in this file: PyTorch reads the operators' schemas from them.
"""
import contextlib
import functools
import math
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from . import _attention as core
from ._library import Error
from .monitor import Alarm, EntropyLog

if not hasattr(torch.library, "custom_op"):
    raise ImportError(f"headlight.torch needs PyTorch 2.4 or later, this is {torch.__version__}; "
                      "headlight.attention takes tensors of any version, without gradients")

# ------------------------------------------------------------------ the operator
#
# The operators' schemas have no optional integers: a window of -1 means no window.


def _options(sinks, gates, alibi_slopes, key_bias, query_start, key_length, causal, scale, softcap,
             window_left, window_right, window_sink) -> Dict[str, Any]:
    return dict(sinks=sinks, gates=gates, alibi_slopes=alibi_slopes, key_bias=key_bias,
                query_start=query_start, key_length=key_length, causal=causal, scale=scale,
                softcap=softcap, window_left=None if window_left < 0 else window_left,
                window_right=None if window_right < 0 else window_right, window_sink=window_sink)


@torch.library.custom_op("headlight::attention", mutates_args=())
def _forward(q: Tensor, k: Tensor, v: Tensor, sinks: Optional[Tensor], gates: Optional[Tensor],
             alibi_slopes: Optional[Tensor], key_bias: Optional[Tensor],
             query_start: Optional[Tensor], key_length: Optional[Tensor], causal: bool,
             scale: float, softcap: float, window_left: int, window_right: int,
             window_sink: int) -> Tuple[Tensor, Tensor, Tensor]:
    found = core.attention(q, k, v, want=("out", "lse", "entropy"), **_options(
        sinks, gates, alibi_slopes, key_bias, query_start, key_length, causal, scale, softcap,
        window_left, window_right, window_sink))
    return found.out, found.lse, found.entropy


@_forward.register_fake
def _(q, k, v, *_options_):
    rows = q.shape[:3]
    return (q.new_empty((*rows, v.shape[3])), q.new_empty(rows, dtype=torch.float32),
            q.new_empty(rows, dtype=torch.float32))


@torch.library.custom_op("headlight::attention_backward", mutates_args=())
def _backward(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, entropy: Tensor,
              grad_out: Optional[Tensor], grad_lse: Optional[Tensor],
              grad_entropy: Optional[Tensor], sinks: Optional[Tensor], gates: Optional[Tensor],
              alibi_slopes: Optional[Tensor], key_bias: Optional[Tensor],
              query_start: Optional[Tensor], key_length: Optional[Tensor], causal: bool,
              scale: float, softcap: float, window_left: int, window_right: int,
              window_sink: int) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    found = core.attention_backward(
        q, k, v, core.Attention(out=out, lse=lse, entropy=entropy), grad_out=grad_out,
        grad_lse=grad_lse, grad_entropy=grad_entropy, **_options(
            sinks, gates, alibi_slopes, key_bias, query_start, key_length, causal, scale, softcap,
            window_left, window_right, window_sink))
    of_heads = [q.new_empty((0,), dtype=torch.float32) if x is None else x
                for x in (found.dsinks, found.dgates)]
    return (found.dq, found.dk, found.dv, *of_heads)


@_backward.register_fake
def _(q, k, v, out, lse, entropy, grad_out, grad_lse, grad_entropy, sinks, gates, *_options_):
    of_heads = [q.new_empty((0 if x is None else q.shape[1],), dtype=torch.float32)
                for x in (sinks, gates)]
    return (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), *of_heads)


def _keep(ctx, inputs, output):
    q, k, v, sinks, gates, alibi_slopes, key_bias, query_start, key_length, *ctx.settings = inputs
    ctx.set_materialize_grads(False)  # gradients that no loss depends on are None, not zeros
    ctx.save_for_backward(q, k, v, *output, sinks, gates, alibi_slopes, key_bias, query_start,
                          key_length)


def _gradient(ctx, grad_out, grad_lse, grad_entropy):
    q, k, v, out, lse, entropy, sinks, gates, *rest = ctx.saved_tensors
    dq, dk, dv, dsinks, dgates = _backward(q, k, v, out, lse, entropy, grad_out, grad_lse,
                                           grad_entropy, sinks, gates, *rest, *ctx.settings)
    return (dq, dk, dv, None if sinks is None else dsinks.to(sinks.dtype),
            None if gates is None else dgates.to(gates.dtype), *[None] * 10)


_forward.register_autograd(_gradient, setup_context=_keep)


def _under_autocast(*tensors: Tensor) -> Tuple[Tensor, ...]:
    """Casts to the type that autocast selects, as PyTorch's own attention does."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(device)) for x in tensors)


class AttentionRows(NamedTuple):
    """The results of attention(); all three are parts of the graph."""
    out: Tensor  # (batch, heads, queries, d_value), of q's type
    lse: Tensor  # (batch, heads, queries) float32
    entropy: Tensor  # (batch, heads, queries) float32, nats


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False,
              scale: Optional[float] = None, softcap: float = 0.0,
              window_left: Optional[int] = None, window_right: Optional[int] = None,
              window_sink: int = 0, query_start: Optional[Tensor] = None,
              key_length: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None,
              key_bias: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
              gates: Optional[Tensor] = None, layer: Optional[int] = None,
              module: Optional[torch.nn.Module] = None) -> AttentionRows:
    """headlight.attention with gradients of q, k, v, sinks and gates, through out, lse and entropy.

    q: (batch, heads, queries, d_head); k: (batch, kv_heads, keys, d_head); v: (batch, kv_heads, keys,
    d_value).  alibi_slopes and key_bias are constants.  layer, module: the layer's number and its
    module, for collectors and monitors.  Under autocast q, k and v are cast.
    """
    q, k, v = _under_autocast(q, k, v)
    rows = AttentionRows(*_forward(
        q, k, v, sinks, gates, alibi_slopes, key_bias, query_start, key_length, causal,
        1.0 / math.sqrt(q.shape[3]) if scale is None else float(scale), float(softcap or 0.0),
        -1 if window_left is None else window_left, -1 if window_right is None else window_right,
        window_sink))
    if layer is not None:
        report(layer, rows.entropy, n_keys=k.shape[2], causal=causal, window=window_left,
               module=module)
    return rows


# -------------------------------------------------------------------- collecting

_listeners: List[Callable[..., None]] = []


def report(layer: int, entropy: Tensor, *, n_keys: int, causal: bool,
           window: Optional[int] = None, module: Optional[torch.nn.Module] = None) -> None:
    """Passes the entropies of a layer's rows, (batch, heads, queries), to collectors and monitors.
    window: the number of keys before its own that a row sees at most."""
    for listener in tuple(_listeners):
        listener(layer, entropy, n_keys=n_keys, causal=causal, window=window, module=module)


class Collector:
    """Collects the entropies of a forward pass, for a loss.

        with Collector() as seen:
            loss = model(**batch).loss
        loss = loss + regularizer(seen)

    layers: {layer: [(batch, heads, queries), ...]}, as parts of the graph.
    """

    def __init__(self) -> None:
        self.layers: Dict[int, List[Tensor]] = {}

    def _listen(self, layer: int, entropy: Tensor, **_: Any) -> None:
        self.layers.setdefault(layer, []).append(entropy)

    def __enter__(self) -> "Collector":
        self.layers.clear()
        _listeners.append(self._listen)
        return self

    def __exit__(self, *_: Any) -> None:
        _listeners.remove(self._listen)

    def means(self) -> Dict[int, Tensor]:
        """{layer: (heads)} means over all collected rows."""
        return {layer: torch.cat([x.transpose(0, 1).flatten(1) for x in parts], dim=1).mean(dim=1)
                for layer, parts in sorted(self.layers.items())}


class EntropyRegularizer(torch.nn.Module):
    """weight * mean over heads of (H - target)^2, H a head's mean entropy in nats.

    side: "both"; "below": only heads sharper than the target cost, against collapse; "above": only
    flatter ones do, for heads that look at little.
    """

    def __init__(self, target: float, weight: float, side: str = "both"):
        super().__init__()
        if side not in ("both", "below", "above"):
            raise Error(f"side is {side!r}, wanted both, below or above")
        self.target, self.weight, self.side = target, weight, side

    def forward(self, entropy: Union[Tensor, Iterable[Tensor], Collector]) -> Tensor:
        """entropy: (batch, heads, queries), several such tensors, or a Collector."""
        if isinstance(entropy, Collector):
            heads = list(entropy.means().values())
        else:
            parts = [entropy] if isinstance(entropy, Tensor) else list(entropy)
            heads = [part.mean(dim=(0, 2)) for part in parts]
        if not heads:
            raise Error("no entropies were collected: is the model's attention headlight's?")
        off = torch.cat(heads) - self.target
        if self.side != "both":
            off = off.clamp(max=0.0) if self.side == "below" else off.clamp(min=0.0)
        return self.weight * off.square().mean()


EntropyRegulariser = EntropyRegularizer  # the earlier spelling, still accepted


# -------------------------------------------------------------------- monitoring


def _keys_seen(n_queries: int, n_keys: int, causal: bool, window: Optional[int]) -> np.ndarray:
    """(queries) the number of keys that each row sees; the last query is at the position of the last
    key."""
    before = np.arange(n_keys - n_queries, n_keys)
    after = np.zeros_like(before) if causal else n_keys - 1 - before
    if window is not None:
        before, after = np.minimum(before, window), np.minimum(after, window)
    return before + 1 + after


@functools.lru_cache(maxsize=64)
def _scale_to_uniform(n_queries: int, n_keys: int, causal: bool, window: Optional[int],
                      device: torch.device) -> Tuple[Tensor, int]:
    """(queries) 1 / ln of the number of visible keys, 0 if a row sees one key; and the number of rows
    that see more."""
    seen = _keys_seen(n_queries, n_keys, causal, window)
    scale = np.where(seen > 1, 1.0 / np.log(np.maximum(seen, 2)), 0.0)
    return torch.tensor(scale, dtype=torch.float32, device=device), int(np.sum(seen > 1))


class AttentionMonitor:
    """Records the entropies of every head of a model during training, with alarms.

        monitor = AttentionMonitor(model, folder="runs/first", on_alarm=print)
        for step, batch in enumerate(batches):
            loss = model(**batch).loss
            ...
            monitor.step(step, loss=loss.item())
        monitor.close()

    The model's attention must report its entropies: headlight.transformers and attention(layer=...) do.
    Each step has the mean of all rows since the previous step.  Normalized entropies are divided by the
    entropy of uniform attention on the keys that a row sees (causal, in its window).
    Options are EntropyLog's.
    """

    def __init__(self, model: Optional[torch.nn.Module] = None, **options: Any):
        self.log = EntropyLog(**options)
        self._modules = None if model is None else set(model.modules())
        # {layer: ((2, heads) sums, (2) numbers of rows)} of entropies and of normalized entropies
        self._seen: Dict[int, Tuple[Any, Any]] = {}
        _listeners.append(self._listen)

    @torch.no_grad()
    def _listen(self, layer: int, entropy: Tensor, *, n_keys: int, causal: bool,
                window: Optional[int] = None, module: Optional[torch.nn.Module] = None) -> None:
        if self._modules is not None and module is not None and module not in self._modules:
            return
        n_batch, _, n_queries = entropy.shape
        scale, n_scaled = _scale_to_uniform(n_queries, n_keys, causal, window, entropy.device)
        sums = torch.stack([entropy.sum(dim=(0, 2)), (entropy * scale).sum(dim=(0, 2))]).double()
        counts = n_batch * np.array([n_queries, n_scaled])
        before, n_before = self._seen.get(layer, (0.0, 0))
        self._seen[layer] = (before + sums, n_before + counts)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context in which nothing is recorded, for evaluating the model between two steps."""
        _listeners.remove(self._listen)
        try:
            yield
        finally:
            _listeners.append(self._listen)

    def entropies(self) -> Tuple[np.ndarray, np.ndarray]:
        """(layer, head) mean and normalized entropy since the last step; NaN if there were no rows, or
        if a row was not finite."""
        n_layers = max(self._seen, default=-1) + 1
        n_heads = max((sums.shape[1] for sums, _ in self._seen.values()), default=0)
        out = np.full((2, n_layers, n_heads), math.nan)
        for layer, (sums, counts) in self._seen.items():
            out[:, layer, :sums.shape[1]] = sums.cpu().numpy() / np.maximum(counts, 1)[:, None]
        return out[0], out[1]

    def step(self, step: int, **scalars: float) -> List[Alarm]:
        """Writes what was recorded since the last step, and resets it; returns the step's alarms."""
        if not self._seen:
            raise Error("no entropies were seen: is the model's attention headlight's?")
        entropy, normalized = self.entropies()
        there = np.zeros(entropy.shape, dtype=bool)
        for layer, (sums, _) in self._seen.items():
            there[layer, :sums.shape[1]] = True
        self._seen.clear()
        return self.log.log(step, entropy, normalized, there=there, **scalars)

    def close(self) -> None:
        if self._listen in _listeners:
            _listeners.remove(self._listen)
        self.log.close()

    def __enter__(self) -> "AttentionMonitor":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
