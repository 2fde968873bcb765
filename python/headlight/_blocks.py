"""Attention with statistics in PyTorch's own operations, one block of queries at a time.

The kernels of libheadlight take problems whose mask follows from lengths and windows.  This file takes
all others: a mask or a bias for every pair of query and key, dropout of probabilities, float64
throughout, and gradients of statistics other than entropy and lse.  It runs on any device.

A block has as many queries as keep its scores below BLOCK_VALUES numbers, so memory grows with the
number of keys.  The gradient computes a block's scores again.  Dropout draws each block's mask from a
seed and the block's number: the gradient, and a checkpoint that runs the forward pass again, draw the
same mask.
"""
from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

BLOCK_VALUES = 1 << 23
# The results, in the order of the operator headlight::attention_statistics.
NAMES = ("out", "lse", "entropy", "renyi2", "varentropy", "entropy_nosink", "peak", "argmax", "self",
         "previous", "first", "max_logit", "received", "segment_mass")
OF_ROWS = NAMES[1:12]  # (batch, heads, queries)


@dataclasses.dataclass
class Problem:
    """The arguments of attention(): tensors that may need gradients are in `leaves`."""
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Optional[Tensor] = None  # (batch or 1, heads or 1, queries or 1, keys), added to scores
    sinks: Optional[Tensor] = None
    gates: Optional[Tensor] = None
    key_bias: Optional[Tensor] = None
    alibi_slopes: Optional[Tensor] = None
    mask: Optional[Tensor] = None  # as bias, bool: False hides a key; or (batch, keys)
    query_start: Optional[Tensor] = None
    key_length: Optional[Tensor] = None
    segments: Optional[Tensor] = None
    causal: bool = False
    scale: float = 1.0
    softcap: float = 0.0
    window_left: int = -1
    window_right: int = -1
    window_sink: int = 0
    dropout: float = 0.0
    seed: Optional[Tensor] = None
    n_segments: int = 0

    LEAVES = ("q", "k", "v", "bias", "sinks", "gates", "key_bias")

    @property
    def dtype(self) -> torch.dtype:
        """The type that scores are computed in."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    @property
    def rows(self) -> Tuple[int, int, int]:
        return self.q.shape[0], self.q.shape[1], self.q.shape[2]

    def blocks(self) -> Iterator[Tuple[int, int, int]]:
        """(number, first query, end) of each block."""
        n_batch, n_heads, n_queries = self.rows
        n = max(1, BLOCK_VALUES // max(1, n_batch * n_heads * self.k.shape[2]))
        for number, begin in enumerate(range(0, n_queries, n)):
            yield number, begin, min(n_queries, begin + n)


def _positions(p: Problem) -> Tuple[Tensor, Tensor]:
    """(batch or 1, queries) positions of the rows, and (batch or 1) numbers of keys."""
    device = p.q.device
    length = (torch.tensor([p.k.shape[2]], device=device) if p.key_length is None
              else p.key_length.to(device))
    start = length - p.q.shape[2] if p.query_start is None else p.query_start.to(device)
    return start[:, None] + torch.arange(p.q.shape[2], device=device), length


def visible(p: Problem, begin: int = 0, end: Optional[int] = None) -> Tensor:
    """(batch or 1, heads or 1, queries, keys) which keys the rows from `begin` to `end` see."""
    positions, length = _positions(p)
    position = positions[:, begin:end, None]
    key = torch.arange(p.k.shape[2], device=p.q.device)
    seen = (key < length[:, None, None]) & torch.ones_like(position, dtype=torch.bool)
    if p.causal:
        seen = seen & (key <= position)
    if p.window_right >= 0:
        seen = seen & (key <= position + p.window_right)
    if p.window_left >= 0:
        seen = seen & ((key >= position - p.window_left) | (key < p.window_sink))
    seen = seen[:, None]
    if p.mask is not None:
        given = p.mask[:, None, None] if p.mask.dim() == 2 else p.mask
        seen = seen & (given if given.shape[2] == 1 else given[:, :, begin:end])
    if p.bias is not None:  # transformers hides keys by the most negative number
        bias = p.bias if p.bias.shape[2] == 1 else p.bias[:, :, begin:end]
        seen = seen & (bias.detach() > torch.finfo(p.bias.dtype).min / 2)
    if p.key_bias is not None:
        seen = seen & (p.key_bias.detach() > -math.inf)[:, None]
    return seen


def _scores(p: Problem, begin: int, end: int) -> Tensor:
    """(batch, heads, block, keys) scores before keys are hidden."""
    n_batch, n_heads, _, d_head = p.q.shape
    n_kv = p.k.shape[1]
    q = p.q[:, :, begin:end].to(p.dtype).reshape(n_batch, n_kv, -1, d_head)
    scores = (q @ p.k.to(p.dtype).transpose(2, 3)) * p.scale
    scores = scores.reshape(n_batch, n_heads, end - begin, p.k.shape[2])
    if p.softcap:
        scores = p.softcap * torch.tanh(scores / p.softcap)
    if p.alibi_slopes is not None:
        distance = (torch.arange(p.k.shape[2], device=q.device)
                    - _positions(p)[0][:, None, begin:end, None])
        scores = scores + p.alibi_slopes.to(p.dtype)[:, None, None] * distance
    if p.key_bias is not None:
        scores = scores + p.key_bias.to(p.dtype)[:, None]
    if p.bias is not None:
        scores = scores + (p.bias if p.bias.shape[2] == 1 else p.bias[:, :, begin:end]).to(p.dtype)
    return scores


def _without_first(scores: Tensor, seen: Tensor) -> Tensor:
    """The entropy of the keys other than the first; NaN where a row sees no other."""
    if scores.shape[3] < 2:
        return torch.full_like(scores[..., 0], math.nan)
    scores, seen = scores[..., 1:], seen[..., 1:].expand(scores.shape[:3] + (-1,))
    some = seen.any(-1)
    lse = torch.logsumexp(torch.where(some[..., None], scores, 0.0), -1, keepdim=True)
    logs = (scores - lse).masked_fill(~seen, 0.0)
    entropy = -(torch.exp(logs).masked_fill(~seen, 0.0) * logs).sum(-1)
    return entropy.masked_fill(~some, math.nan)


def _at(share: Tensor, seen: Tensor, keys: Tensor) -> Tensor:
    """The probability of one key per row, `keys` (batch or 1, 1, block); NaN where it is not seen."""
    n = share.shape[3]
    index = keys.clamp(0, max(0, n - 1)).expand(share.shape[:3])[..., None]
    there = seen.expand(share.shape).gather(3, index)[..., 0] & ((keys >= 0) & (keys < n))
    return share.gather(3, index)[..., 0].masked_fill(~there, math.nan)


def _drop(p: Problem, share: Tensor, number: int) -> Tensor:
    if p.dropout <= 0.0:
        return share
    seed = 0 if p.seed is None else int(p.seed)
    generator = torch.Generator(share.device).manual_seed((seed + 0x9E3779B1 * number) % (1 << 63))
    kept = torch.rand(share.shape, generator=generator, device=share.device) >= p.dropout
    return share * kept / (1.0 - p.dropout)


def run_block(p: Problem, number: int, begin: int, end: int, want: Sequence[str]) -> Dict[str, Tensor]:
    """The wanted results of one block; all but argmax are differentiable."""
    seen = visible(p, begin, end)
    scores = _scores(p, begin, end).masked_fill(~seen, -math.inf)
    some = seen.any(-1).expand(scores.shape[:3])  # a row without keys has zeros, and an lse of -inf
    lse = torch.logsumexp(torch.where(some[..., None], scores, 0.0), -1)
    if p.sinks is not None:
        sinks = p.sinks.to(p.dtype)[:, None].expand(lse.shape)
        lse = torch.logaddexp(lse, sinks)
    there = seen & some[..., None]
    logs = (scores - lse[..., None]).masked_fill(~there, 0.0)
    share = torch.exp(logs).masked_fill(~there, 0.0)
    found: Dict[str, Tensor] = {"lse": lse.masked_fill(~some, -math.inf)}
    log_sink = None if p.sinks is None else (sinks - lse).masked_fill(~some, 0.0)
    sink = None if log_sink is None else torch.exp(log_sink).masked_fill(~some, 0.0)

    def over_outcomes(of_key: Tensor, of_sink: Optional[Tensor]) -> Tensor:
        return of_key.sum(-1) if of_sink is None else of_key.sum(-1) + of_sink

    if {"entropy", "varentropy"} & set(want):
        found["entropy"] = -over_outcomes(share * logs, None if log_sink is None or sink is None else
                                          sink * log_sink)
    if "varentropy" in want:
        second = over_outcomes(share * logs ** 2, None if log_sink is None or sink is None else
                               sink * log_sink ** 2)
        found["varentropy"] = (second - found["entropy"] ** 2).clamp(min=0.0)
    if "renyi2" in want:
        squares = over_outcomes(share ** 2, None if sink is None else sink ** 2)
        found["renyi2"] = -torch.log(squares.masked_fill(~some, 1.0))
    if "entropy_nosink" in want:
        found["entropy_nosink"] = _without_first(scores, seen).masked_fill(~some, 0.0)
    if {"peak", "argmax", "max_logit"} & set(want) and scores.shape[3]:
        best, place = scores.max(-1)
        found["max_logit"] = best
        found["peak"] = share.gather(3, place[..., None])[..., 0]
        found["argmax"] = place.masked_fill(~some, -1)
    position = _positions(p)[0][:, None, begin:end]
    for name, keys in (("self", position), ("previous", position - 1), ("first", 0 * position)):
        if name in want and scores.shape[3]:
            found[name] = _at(share, seen, keys).masked_fill(~some, 0.0)
    if "segment_mass" in want and p.segments is not None:
        segments = p.segments.to(share.device).long()
        marks = torch.nn.functional.one_hot(segments, p.n_segments).to(share.dtype)
        found["segment_mass"] = share @ (marks[:, None] if marks.dim() == 3 else marks)
    if "received" in want:
        found["received"] = share.sum(2)
    if "out" in want:
        n_batch, n_heads, _, n_keys = share.shape
        used = _drop(p, share, number).reshape(n_batch, p.v.shape[1], -1, n_keys)
        out = (used @ p.v.to(p.dtype)).reshape(n_batch, n_heads, end - begin, p.v.shape[3])
        found["out"] = out if p.gates is None else out * p.gates.to(p.dtype)[:, None, None]
    return {name: found[name] for name in want if name in found}


@torch.no_grad()
def probabilities(p: Problem, rows: Sequence[int]) -> Tensor:
    """(batch, heads, rows, keys) the complete rows at these queries."""
    found = [p.q.new_zeros((*p.rows[:2], 0, p.k.shape[2]), dtype=p.dtype)]
    for row in rows:
        seen = visible(p, row, row + 1)
        scores = _scores(p, row, row + 1).masked_fill(~seen, -math.inf)
        if p.sinks is not None:
            sinks = p.sinks.to(p.dtype)[:, None].expand(scores.shape[:3])[..., None]
            scores = torch.cat([scores, sinks], dim=3)
        found.append(torch.softmax(scores, dim=3)[..., :p.k.shape[2]].nan_to_num(0.0))
    return torch.cat(found, dim=2)


def _shape_of(p: Problem, name: str) -> Tuple[int, ...]:
    if name == "out":
        return (*p.rows, p.v.shape[3])
    if name == "received":
        return (p.rows[0], p.rows[1], p.k.shape[2])
    return (*p.rows, p.n_segments) if name == "segment_mass" else p.rows


def _empty(p: Problem, name: str, wanted: bool) -> Tensor:
    dtype = {"out": p.q.dtype, "argmax": torch.int64}.get(name, p.dtype)
    shape = _shape_of(p, name) if wanted else (0,)
    return p.q.new_zeros(shape, dtype=dtype)


def empties(p: Problem, want: Sequence[str]) -> List[Tensor]:
    """The results with their shapes and types, and (0) for those that are not wanted."""
    return [_empty(p, name, name in want) for name in NAMES]


@torch.no_grad()
def forward(p: Problem, want: Sequence[str]) -> List[Tensor]:
    """All of NAMES; (0) for those that are not wanted."""
    results = dict(zip(NAMES, empties(p, want)))
    if "argmax" in want:
        results["argmax"].fill_(-1)
    for number, begin, end in p.blocks():
        for name, part in run_block(p, number, begin, end, want).items():
            if name == "received":
                results[name] += part
            else:
                results[name][:, :, begin:end] = part.to(results[name].dtype)
    return [results[name] for name in NAMES]


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    """A context in which a graph is recorded inside a custom operator, where PyTorch excludes it."""
    if not hasattr(torch.library, "CustomOpDef") and not hasattr(torch._C, "_ForceDispatchKeyGuard"):
        with torch.enable_grad():  # before 2.4 there are no custom operators
            yield
        return
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradCPU", "AutogradCUDA", "AutogradOther", "AutogradFunctionality",
                "ADInplaceOrView"):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded), \
            torch.enable_grad():
        yield


def backward(p: Problem, grads: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """Gradients of the leaves, from those of the results."""
    total: Dict[str, Tensor] = {}
    for name in Problem.LEAVES:
        value = getattr(p, name)
        if value is not None:
            total[name] = torch.zeros(value.shape, dtype=p.dtype, device=value.device)
    for number, begin, end in p.blocks():
        with _recording():
            block = dataclasses.replace(p)
            leaves = {name: getattr(p, name).detach().requires_grad_() for name in total}
            for name, leaf in leaves.items():
                setattr(block, name, leaf)
            found = run_block(block, number, begin, end, tuple(grads))
            outputs = [part for part in found.values() if part.requires_grad]
            upstream = [(grads[name] if name == "received" else grads[name][:, :, begin:end]).to(part.dtype)
                        for name, part in found.items() if part.requires_grad]
            if not outputs:
                continue
            parts = torch.autograd.grad(outputs, list(leaves.values()), upstream, allow_unused=True)
        for name, part in zip(leaves, parts):
            if part is not None:
                total[name] += part
    return {name: value.to(getattr(p, name).dtype) for name, value in total.items()}
