"""Who hears of a model's entropies: collectors for a loss, monitors for a training run.

attention() reports the entropies of its rows to the listeners of its thread.  Nothing is reported
while a gradient is computed: a checkpoint that runs the forward pass again would be counted twice.

A reentrant checkpoint (torch.utils.checkpoint with use_reentrant=True) runs the forward pass without
a graph.  The entropies that a collector gets are then leaves of their own.  When the pass is run again
for the gradient, the gradient that has arrived at such a leaf enters there (`settle`).
"""
import contextlib
import functools
import sys
import threading
import warnings
import weakref
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from ._library import Error
from .monitor import Alarm, EntropyLog

Layer = Union[int, str]  # 3; or "E3", "L3", "X3" in models with several sets of heads


class Place(NamedTuple):
    """Where an attention module stands in its model."""
    layer: Layer
    name: str  # in the tree of modules: "model.decoder.layers.3.encoder_attn"
    kind: str  # "self" or "cross"
    part: str  # "encoder", "decoder", "vision", "audio" or "text"


def unwrapped(model: Any) -> Any:
    """The model inside of DistributedDataParallel and the like."""
    inner = getattr(model, "module", None)
    return inner if inner is not None and not hasattr(model, "config") and hasattr(inner, "config") else model


class _Listeners(threading.local):
    def __init__(self) -> None:
        self.items: List[Any] = []


_listeners = _Listeners()

# ----------------------------------------------------------------- what rows see


def visible_keys(n_queries: int, n_keys: int, causal: bool, window_left: Optional[int],
                 window_right: Optional[int], key_mask: Optional[Tensor],
                 device: Any) -> Tensor:
    """(batch or 1, queries) the number of keys that each row sees; the last query is at the position of
    the last key."""
    row = torch.arange(n_keys - n_queries, n_keys, device=device)
    end = torch.clamp(row + 1, max=n_keys) if causal else torch.full_like(row, n_keys)
    if window_right is not None:
        end = torch.minimum(end, row + window_right + 1).clamp(max=n_keys)
    begin = torch.zeros_like(row) if window_left is None else (row - window_left).clamp(min=0)
    end = torch.maximum(end, begin)
    if key_mask is None:
        return (end - begin)[None]
    before = torch.nn.functional.pad(key_mask.long().cumsum(1), (1, 0))
    return before[:, end] - before[:, begin]


@functools.lru_cache(maxsize=256)
def visible_in_layers(n_queries: int, n_keys: int, causal: bool, window_left: Optional[int],
                      window_right: Optional[int], device: torch.device) -> Tensor:
    """visible_keys without a mask, made once for all layers and steps.  Not to be changed."""
    with torch.inference_mode(False), torch.no_grad():
        return visible_keys(n_queries, n_keys, causal, window_left, window_right, None, device)


# ---------------------------------------------------------------- reentrant checkpoints


def _is_called_from(function: Any) -> bool:
    code, frame = function.__code__, sys._getframe(1)
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _without_graph(entropy: Tensor) -> bool:
    """Whether a reentrant checkpoint runs the forward pass for the first time."""
    from torch.utils.checkpoint import CheckpointFunction
    return (not torch.is_grad_enabled() and not entropy.requires_grad and
            _is_called_from(CheckpointFunction.forward))


class _Owed:
    """Leaves whose gradients enter when the pass is run again, by module or layer."""

    def __init__(self) -> None:
        self.by_place: Dict[Any, List[Any]] = {}
        self.lock = threading.Lock()  # a GPU's gradients are computed in another thread

    def add(self, place: Any, leaf: Tensor) -> None:
        with self.lock:
            alive = [one for one in self.by_place.get(place, []) if one() is not None]
            self.by_place[place] = alive + [weakref.ref(leaf)]

    def take(self, place: Any, entropy: Tensor) -> Optional[Tensor]:
        with self.lock:
            refs = self.by_place.get(place, [])
            for ref in reversed(refs):
                leaf = ref()
                if leaf is not None and torch.equal(leaf.detach(), entropy.detach()):
                    refs.remove(ref)
                    if not refs:
                        del self.by_place[place]
                    return leaf
        return None


_owed = _Owed()


def _warn_of_late_gradient(_: Tensor) -> None:
    warnings.warn("a gradient of an entropy arrived after its checkpoint had been run again, and is "
                  "lost: add the penalty to the loss before backward(), or use_reentrant=False")


class _Enter(torch.autograd.Function):
    """out, with an additional gradient for entropy."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, entropy: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(grad)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Tuple[Tensor, Tensor, None]:  # type: ignore[override]
        return grad_out, ctx.saved_tensors[0], None


def settle(out: Tensor, entropy: Tensor, place: Any) -> Tensor:
    """While a gradient is computed: `out`, through which the gradient of a reported entropy enters."""
    if not _owed.by_place or not torch.is_grad_enabled():
        return out
    leaf = _owed.take(place, entropy)
    if leaf is None or leaf.grad is None:
        if leaf is not None:
            leaf.register_hook(_warn_of_late_gradient)  # type: ignore[no-untyped-call]
        return out
    return _Enter.apply(out, entropy, leaf.grad)  # type: ignore[no-any-return, no-untyped-call]


# -------------------------------------------------------------------- reporting


def compiling() -> bool:
    """Whether torch.compile traces this code."""
    compiler = getattr(torch, "compiler", None)  # since 2.1
    return compiler is not None and bool(compiler.is_compiling())


def in_backward() -> bool:
    """Whether this thread computes a gradient."""
    task = getattr(torch._C, "_current_graph_task_id", None)  # since 2.0
    return task is not None and bool(task() != -1)


def listening() -> bool:
    """Whether anyone in this thread listens."""
    return len(_listeners.items) > 0


def wanted() -> Tuple[str, ...]:
    """Statistics beside the entropy that this thread's listeners ask for; they get them by listen_rows."""
    for listener in _listeners.items:
        if getattr(listener, "wants", ()):
            return tuple(listener.wants)
    return ()


def report(layer: Layer, entropy: Tensor, *, visible: Tensor, real: Optional[Tensor] = None,
           module: Optional[torch.nn.Module] = None) -> None:
    """Passes the entropies of a layer's rows, (batch, heads, queries), to this thread's listeners.
    visible: (batch or 1, queries) number of visible keys.  real: (batch, queries), False for rows of
    padding; None: all are real."""
    if not compiling() and _without_graph(entropy):
        entropy = entropy.detach().requires_grad_()
        _owed.add(layer if module is None else module, entropy)
    for listener in _listeners.items:
        listener.listen(layer, entropy, visible=visible, real=real, module=module)


class Collector:
    """Collects the entropies of a forward pass of this thread, for a loss.

        with Collector() as seen:
            loss = model(**batch).loss
        loss = loss + regularizer(seen)

    model: listens to that model alone.
    layers: {layer: [(batch, heads, queries), ...]}, as parts of the graph.  rows: the same keys, with
    (batch, queries) that is False for padding, or None.  In models with several sets of heads the
    layers are "E3" (encoder), "L3" (decoder) and "X3" (cross-attention), "V3" and "A3" (towers for
    images and sound).
    """

    def __init__(self, model: Optional[torch.nn.Module] = None) -> None:
        self.layers: Dict[Layer, List[Tensor]] = {}
        self.rows: Dict[Layer, List[Optional[Tensor]]] = {}
        self._modules = None if model is None else frozenset(map(id, model.modules()))

    def listen(self, layer: Layer, entropy: Tensor, *, visible: Tensor, real: Optional[Tensor],
               module: Optional[torch.nn.Module]) -> None:
        if self._modules is not None and module is not None and id(module) not in self._modules:
            return
        self.layers.setdefault(layer, []).append(entropy)
        self.rows.setdefault(layer, []).append(real)

    def __enter__(self) -> "Collector":
        self.layers.clear()
        self.rows.clear()
        _listeners.items.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _listeners.items.remove(self)

    def means(self) -> Dict[Layer, Tensor]:
        """{layer: (heads)} means over all collected rows that are not padding."""
        return {layer: _mean(parts, self.rows[layer])
                for layer, parts in sorted(self.layers.items(), key=lambda item: order_of(item[0]))}


def order_of(layer: Layer) -> Tuple[str, int]:
    """A key that sorts layers: by number, and by set before."""
    return ("", layer) if isinstance(layer, int) else (layer[:1], int(layer[1:]))


def _mean(parts: List[Tensor], rows: List[Optional[Tensor]]) -> Tensor:
    total: Any = 0.0
    count: Any = 0.0
    for part, real in zip(parts, rows):
        if real is not None:
            part = torch.where(real[:, None], part, torch.zeros_like(part))
        total = total + part.sum(dim=(0, 2))
        count = count + (part.shape[0] * part.shape[2] if real is None else real.sum())
    return total / count  # type: ignore[no-any-return]


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
            raise Error("no entropies were collected: is the model's attention headlight's, and was "
                        "it run in this thread?")
        off = torch.cat(heads) - self.target
        if self.side != "both":
            off = off.clamp(max=0.0) if self.side == "below" else off.clamp(min=0.0)
        return self.weight * off.square().mean()


EntropyRegulariser = EntropyRegularizer  # the earlier spelling, still accepted


# -------------------------------------------------------------------- monitoring


def _shares(visible: Tensor, real: Optional[Tensor], shape: Sequence[int]) -> Tuple[Tensor, Tensor]:
    """(batch or 1, 1, queries) the factors that normalize entropies, 0 for rows of one key; and the (2)
    numbers of rows that the means of entropies and of normalized entropies are over."""
    scale = torch.where(visible > 1, 1.0 / visible.clamp(min=2).log(), 0.0)
    rows = torch.ones_like(scale) if real is None else real.to(scale.dtype)
    rows = rows.expand(shape[0], shape[2])
    return scale[:, None], torch.stack([rows.sum(), (rows * (visible > 1)).sum()]).double()


class _Sums:
    """A monitor's listener.  It does not refer to the monitor, which can so be dropped."""

    def __init__(self, model: Optional[torch.nn.Module], training_only: bool) -> None:
        self.training_only = training_only
        self.modules = None if model is None else frozenset(map(id, model.modules()))
        # {layer: ((2, heads) sums, (2) numbers of rows)} of entropies and of normalized entropies
        self.seen: Dict[Layer, Tuple[Tensor, Tensor]] = {}
        self.last: Any = None  # the last call's visible, shape, and what follows from them

    def listen(self, layer: Layer, entropy: Tensor, *, visible: Tensor, real: Optional[Tensor],
               module: Optional[torch.nn.Module]) -> None:
        if self.modules is not None and module is not None and id(module) not in self.modules:
            return
        if self.training_only and module is not None and not module.training:
            return
        entropy = entropy.detach()
        if real is not None:
            entropy = torch.where(real[:, None], entropy, torch.zeros_like(entropy))
            scale, counts = _shares(visible, real, entropy.shape)
        elif self.last is not None and self.last[0] is visible and self.last[1] == entropy.shape:
            scale, counts = self.last[2:]  # most layers of a step see the same keys
        else:
            scale, counts = _shares(visible, None, entropy.shape)
            self.last = (visible, entropy.shape, scale, counts)
        sums = torch.stack([entropy.sum(dim=(0, 2), dtype=torch.float64),
                            (entropy * scale).sum(dim=(0, 2), dtype=torch.float64)])
        if layer in self.seen:
            before, n_before = self.seen[layer]
            sums, counts = before + sums, n_before + counts
        self.seen[layer] = (sums, counts)


def _remove(items: List[Any], item: Any) -> None:
    if item in items:
        items.remove(item)


class AttentionMonitor:
    """Records the entropies of every head of a model during training, with alarms.

        monitor = AttentionMonitor(model, folder="runs/first", on_alarm=print)
        for step, batch in enumerate(batches):
            loss = model(**batch).loss
            ...
            monitor.step(step, loss=loss.item())
        monitor.close()

    The model's attention must report its entropies, in the thread that made the monitor:
    headlight.transformers and attention(layer=...) do.  Each step has the mean of all rows since the
    previous step.  Normalized entropies are divided by the entropy of uniform attention on the keys
    that a row sees.  A monitor that is closed or dropped stops listening.  training_only: passes in
    evaluation mode are left out.  Options are EntropyLog's.
    """

    def __init__(self, model: Optional[torch.nn.Module] = None, *, training_only: bool = False,
                 **options: Any):
        self.log = EntropyLog(**options)
        self._sums = _Sums(model, training_only)
        self._items = _listeners.items
        self._items.append(self._sums)
        self._end = weakref.finalize(self, _remove, self._items, self._sums)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context in which nothing is recorded, for evaluating the model between two steps."""
        _remove(self._items, self._sums)
        try:
            yield
        finally:
            if self._end.alive:
                self._items.append(self._sums)

    def layers(self) -> List[Layer]:
        """The layers seen since the last step, in the order of entropies(): 0, 1, ... up to the last,
        or "E0", ..., "L0", ..., "X0" ..."""
        seen = list(self._sums.seen)
        numbers = [layer for layer in seen if isinstance(layer, int)]
        if len(numbers) == len(seen):
            return list(range(max(numbers, default=-1) + 1))
        return sorted(seen, key=order_of)

    def entropies(self) -> Tuple[np.ndarray, np.ndarray]:
        """(layer, head) mean and normalized entropy since the last step; NaN if there were no rows, or
        if a row was not finite."""
        layers = self.layers()
        n_heads = max((sums.shape[1] for sums, _ in self._sums.seen.values()), default=0)
        out = np.full((2, len(layers), n_heads), np.nan)
        for layer, (sums, counts) in self._sums.seen.items():
            means = sums.cpu().numpy() / np.maximum(counts.cpu().numpy(), 1)[:, None]
            out[:, layers.index(layer), :sums.shape[1]] = means
        return out[0], out[1]

    def step(self, step: int, **scalars: float) -> List[Alarm]:
        """Writes what was recorded since the last step, and resets it; returns the step's alarms."""
        if not self._sums.seen:
            raise Error("no entropies were seen: is the model's attention headlight's, and was it run "
                        "in this thread?")
        entropy, normalized = self.entropies()
        layers = self.layers()
        there = np.zeros(entropy.shape, dtype=bool)
        for layer, (sums, _) in self._sums.seen.items():
            there[layers.index(layer), :sums.shape[1]] = True
        self._sums.seen.clear()
        return self.log.log(step, entropy, normalized, there=there, layers=layers, **scalars)

    def close(self) -> None:
        self._end()
        self.log.close()

    def __enter__(self) -> "AttentionMonitor":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
