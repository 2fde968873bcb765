"""Training with headlight: a callback for the Trainer of transformers, QK-clip, gates of heads, pruning.

    from headlight.training import HeadlightCallback
    trainer = Trainer(model, ..., callbacks=[HeadlightCallback(folder="runs/first")])

    clip = QKClip(model, limit=100.0)                plain loops
    gates = HeadGates(model)
    for batch in batches:
        with clip.watching():
            loss = model(**batch).loss + gates.penalty(0.01)
        loss.backward()
        optimizer.step()                             with gates.parameters() among its parameters
        clip.step()
        gates.clamp()
    headlight.prune(model, gates.heads(below=0.05), tokenizer=tokenizer, repair=texts)

Needs PyTorch and transformers.  TensorBoard's files are written without TensorFlow; W&B is imported
only when asked for.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from transformers import TrainerCallback

from ._collect import AttentionMonitor, Layer, _listeners, order_of
from ._library import Error
from ._measure import _output_weight
from .monitor import head_name
from .transformers import Attached, attach, places

__all__ = ["HeadGates", "HeadlightCallback", "QKClip", "prune_in_place"]

# ------------------------------------------------------------------------- Trainer


class HeadlightCallback(TrainerCallback):  # type: ignore[misc]
    """Records every head's entropy while the Trainer trains, with alarms.

    every: steps between two records.  folder, jsonl, on_step, on_alarm, thresholds: as for
    AttentionMonitor.  wandb: also log to the W&B run that is open.  stop_on: kinds of alarms that end
    the training, such as ("broken", "collapse").  Evaluation is not recorded.
    """

    def __init__(self, *, every: int = 1, wandb: bool = False, stop_on: Sequence[str] = (),
                 check: bool = True, **options: Any):
        self.every, self.check, self.stop_on = every, check, tuple(stop_on)
        self.monitor: Optional[AttentionMonitor] = None
        self.attached: Optional[Attached] = None
        self._options = options
        self._log: Optional[Callable[..., Any]] = None
        if wandb:
            try:
                import wandb as found  # type: ignore[import-not-found, unused-ignore]
            except ImportError as error:
                raise ImportError("HeadlightCallback(wandb=True) needs wandb, which is not installed") from error
            self._log = found.log

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.attached = attach(model, check=self.check)
        self.monitor = AttentionMonitor(model, training_only=True, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.monitor is None or state.global_step % self.every:
            return
        scalars = {}
        if state.log_history and "loss" in state.log_history[-1]:
            scalars["loss"] = float(state.log_history[-1]["loss"])
        layers, (entropy, _normalized) = self.monitor.layers(), self.monitor.entropies()
        alarms = self.monitor.step(state.global_step, **scalars)
        if self._log is not None:
            values = {f"entropy/{head_name(layers[layer], head)}": float(value)
                      for (layer, head), value in np.ndenumerate(entropy) if not np.isnan(value)}
            self._log({**values, **{f"alarm/{alarm.kind}": alarm.share for alarm in alarms}},
                      step=state.global_step)
        if any(alarm.kind in self.stop_on for alarm in alarms):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None
        if self.attached is not None:
            self.attached.detach()


# ------------------------------------------------------------------------- QK-clip

_PAIRS = (("q_proj", "k_proj"), ("query", "key"), ("q_lin", "k_lin"), ("q", "k"), ("to_q", "to_k"))


class QKClip:
    """Keeps the largest logit of every head below a limit, by scaling its queries and keys.

    A head whose largest logit in the watched passes was m > limit has its logits scaled by limit / m:
    by the square root in the weights of its queries and of its keys.  Query heads that share keys have
    them scaled for the largest, and the rest in their own queries.
    """

    wants = ("max_logit",)

    def __init__(self, model: torch.nn.Module, limit: float = 100.0):
        self.model, self.limit = model, limit
        self.largest: Dict[Layer, torch.Tensor] = {}  # (heads) in the passes since the last step
        self._modules = {id(module): module for module in model.modules()}
        self._found: Dict[Layer, torch.nn.Module] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator["QKClip"]:
        """A context whose forward passes are watched."""
        _listeners.items.append(self)
        try:
            yield self
        finally:
            _listeners.items.remove(self)

    def listen(self, layer: Layer, entropy: torch.Tensor, **_: Any) -> None:
        pass

    def listen_rows(self, layer: Layer, rows: Any, module: Any) -> None:
        if id(module) not in self._modules:
            return
        best = rows.max_logit.detach().amax(dim=(0, 2))
        self.largest[layer] = torch.maximum(self.largest[layer], best) if layer in self.largest else best
        self._found[layer] = module

    @torch.no_grad()
    def step(self) -> List[str]:
        """Clips; returns the names of the heads that were scaled."""
        scaled = []
        for layer, best in sorted(self.largest.items(), key=lambda item: order_of(item[0])):
            factors = torch.where(best > self.limit, self.limit / best, torch.ones_like(best))
            if bool((factors < 1).any()):
                _scale(self._found[layer], factors)
                scaled += [head_name(layer, head) for head in (factors < 1).nonzero()[:, 0].tolist()]
        self.largest.clear()
        return scaled


def _scale(module: torch.nn.Module, factors: torch.Tensor) -> None:
    if any(hasattr(module, name) for name in ("q_norm", "k_norm", "q_layernorm", "query_norm")):
        raise Error(f"{type(module).__name__}: queries are normalized after their projection, so that "
                    "scaling its weights has no effect", "unsupported")
    n_heads = len(factors)
    fused = getattr(module, "c_attn", None)
    if fused is not None and type(fused).__name__ == "Conv1D":  # GPT-2: (in, 3 out)
        width = fused.weight.shape[1] // 3
        roots = factors.sqrt().to(fused.weight).repeat_interleave(width // n_heads)
        for part in (slice(0, width), slice(width, 2 * width)):
            fused.weight[:, part] *= roots
            fused.bias[part] *= roots
        return
    for names in _PAIRS:
        q, k = (getattr(module, name, None) for name in names)
        if isinstance(q, torch.nn.Linear) and isinstance(k, torch.nn.Linear):
            width = q.weight.shape[0] // n_heads
            n_kv = k.weight.shape[0] // width
            shared = factors.reshape(n_kv, -1).amin(dim=1)
            keys = shared.sqrt()
            queries = factors / keys.repeat_interleave(n_heads // n_kv)
            for linear, each in ((q, queries), (k, keys)):
                rows = each.to(linear.weight).repeat_interleave(width)
                linear.weight.mul_(rows[:, None])
                if linear.bias is not None:
                    linear.bias.mul_(rows)
            return
    raise Error(f"{type(module).__name__}: its projections of queries and keys are not known",
                "unsupported")


# ------------------------------------------------------------------------- gates


class HeadGates(torch.nn.Module):
    """A factor for the output of every head, learned with a penalty that drives it to 0.

    The model must have headlight's attention (attach).  remove() takes the gates out again.
    """

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.values = torch.nn.ParameterDict()
        self._layers: Dict[str, Layer] = {}
        self._modules_of: Dict[str, Any] = {}
        modules = dict(model.named_modules())
        for name, place in places(model).items():
            n_heads = _n_heads(modules[name], model)
            key = name.replace(".", "/")
            weight = next(modules[name].parameters())
            self.values[key] = torch.nn.Parameter(torch.ones(n_heads, device=weight.device))
            self._layers[key] = place.layer
            self._modules_of[key] = [modules[name]]  # a list: not a child of this module
            object.__setattr__(modules[name], "headlight_gates", self.values[key])

    def penalty(self, weight: float) -> torch.Tensor:
        """weight * the mean of the gates' absolute values."""
        return weight * torch.cat([value.abs() for value in self.values.values()]).mean()

    @torch.no_grad()
    def clamp(self) -> None:
        """Keeps every gate in [0, 1]; after the optimizer's step."""
        for value in self.values.values():
            value.clamp_(0.0, 1.0)

    def heads(self, below: float = 0.05) -> List[str]:
        """The heads whose gates are smaller: ["L0H3", ...]."""
        return [head_name(self._layers[key], head) for key, value in self.values.items()
                for head in (value.detach() < below).nonzero()[:, 0].tolist()]

    def remove(self) -> None:
        for (module,) in self._modules_of.values():
            with contextlib.suppress(AttributeError):
                object.__delattr__(module, "headlight_gates")


def _n_heads(module: Any, model: Any) -> int:
    for name in ("num_heads", "num_attention_heads", "n_heads", "n_head", "num_attention_heads_per_partition"):
        value = getattr(module, name, None)
        if isinstance(value, int):
            return value
    config = getattr(module, "config", None) or model.config
    for name in ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    raise Error(f"{type(module).__name__}: its number of heads is not known", "unsupported")


# ------------------------------------------------------------------------- pruning


def _columns(model: Any, heads: Union[str, Sequence[str]]) -> Dict[str, List[int]]:
    """{module: heads} from names: "L0H5,X1H2", or a list."""
    names = heads.split(",") if isinstance(heads, str) else list(heads)
    by_layer = {place.layer if isinstance(place.layer, str) else f"L{place.layer}": name
                for name, place in places(model).items()}
    modules = dict(model.named_modules())
    out: Dict[str, List[int]] = {}
    for head in names:
        layer, found, index = head.strip().partition("H")
        if layer not in by_layer or not found or not index.isdigit() or \
                int(index) >= _n_heads(modules[by_layer[layer]], model):
            raise Error(f"there is no head {head!r}; layers are {', '.join(by_layer)}")
        out.setdefault(by_layer[layer], []).append(int(index))
    return out


def _projection(model: Any, name: str, n_heads: int) -> Tuple[Any, torch.Tensor]:
    """The module that reads the heads of an attention module, and its weight as (d_model, width)."""
    for module in (dict(model.named_modules())[name], dict(model.named_modules()).get(name.rpartition(".")[0])):
        for child in () if module is None else module.modules():
            weight = getattr(child, "weight", None)
            if isinstance(weight, torch.Tensor) and weight.dim() == 2:
                width = weight.shape[0] if type(child).__name__ == "Conv1D" else weight.shape[1]
                found = _output_weight(model, name, width)
                if found is not None and found.data_ptr() == weight.data_ptr() and width % n_heads == 0:
                    return child, found
    raise Error(f"{name}: its output projection is not known", "unsupported")


@torch.no_grad()
def prune_in_place(model: Any, heads: Union[str, Sequence[str]], *, repair: Any = None,
                   tokenizer: Any = None, context: int = 512, max_tokens: int = 8192,
                   ridge: float = 1e-3) -> Dict[str, List[int]]:
    """Takes heads out of a PyTorch model: sets the columns of its output projections that read them to
    zero, so that save_pretrained writes a folder that loads everywhere.

    heads: "L0H5,L3H1" or a list, named as in profiles.
    repair: a text, or several; then the columns of the heads that stay are solved again, layer by
    layer, so that each attention block writes what it wrote in the whole model (least squares).
    Returns {module's name: heads}.
    """
    removed = _columns(model, heads)
    modules = dict(model.named_modules())
    parts = {name: _projection(model, name, _n_heads(modules[name], model)) for name in removed}
    batches = [] if repair is None else _batches(model, tokenizer, repair, context, max_tokens)
    whole = {name: weight.clone() for name, (_, weight) in parts.items()}
    wanted = {name: (_inputs(model, child, batches) @ whole[name].t().double() if batches else None)
              for name, (child, _) in parts.items()}
    for name, (child, weight) in parts.items():  # in the order of the tree: later ones see this one
        n_heads = _n_heads(modules[name], model)
        width = weight.shape[1] // n_heads
        gone = torch.zeros(n_heads, dtype=torch.bool)
        gone[removed[name]] = True
        columns = gone.repeat_interleave(width).to(weight.device)
        weight[:, columns] = 0  # a view of the parameter
        if batches and not bool(columns.all()):
            kept = _inputs(model, child, batches)[:, ~columns]
            start = whole[name][:, ~columns].double()
            before = wanted[name]
            assert before is not None
            rest = before - kept @ start.t()
            gram = kept.t() @ kept
            gram += ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            weight[:, ~columns] = (start + torch.linalg.solve(gram, kept.t() @ rest).t()).to(weight.dtype)
    return removed


def _batches(model: Any, tokenizer: Any, repair: Any, context: int, max_tokens: int) -> List[Dict[str, Any]]:
    from ._measure import _n_context, _windows
    if tokenizer is None and isinstance(repair, (str, list, tuple)):
        raise Error("repair: a tokenizer is wanted for texts")
    is_ids = not isinstance(repair, (str, list, tuple))
    windows = _windows(model, tokenizer, None if is_ids else repair, None, repair if is_ids else None, None,
                       min(context, _n_context(model, tokenizer, 0)), 0, max_tokens, "window")
    return [window.inputs for window in windows]


def _inputs(model: Any, projection: torch.nn.Module, batches: List[Dict[str, Any]]) -> torch.Tensor:
    """(rows, width) what a projection reads, in double."""
    found: List[torch.Tensor] = []
    hook = projection.register_forward_pre_hook(
        lambda _module, inputs: found.append(inputs[0].detach().flatten(0, -2).double()))
    was_training = model.training
    model.eval()
    try:
        for batch in batches:
            model(**batch)
    finally:
        hook.remove()
        model.train(was_training)
    return torch.cat(found)
