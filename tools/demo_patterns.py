"""Attention patterns of a saved model, measured from materialized rows.

Shape letters: B windows, H heads, L layers, S positions.  Patterns are causal
(B, H, S, S): row i sees the keys 0..i, n(i) = i + 1 of them.  They come from
transformers in f32; everything after that is float64.

Every metric of a pattern is given with and without key 0.  Without it, row 0 and
column 0 are cut off and the rows renormalized: what is left is again a causal pattern,
so one function measures both.  Each f32 probability keeps its relative precision, so
this loses nothing that 1 - A(i,0) would.

Definitions, over rows with n(i) >= 2 unless said otherwise:

    entropy         mean H in nats, all rows (row 0 included)
    normalized_entropy    mean H / ln n(i) over rows with n(i) >= 16
    diagonal        mean A(i,i);   lift = diagonal / mean 1/n(i)
    previous        mean A(i,i-1)
    band            mean sum of A(i,j), i - j <= 4
    sink            mean A(i,0)
    dominant        share of rows whose largest entry is A(i,i)
    peak, off_peak  mean row maximum; the same over j != i
    content         1 - band - sink, not below 0 (only with key 0)
    edges           share of visible pairs with A > 1e-3
    k90             mean share of keys that hold 90% of a row
    support2        mean exp(H2) / n
"""

from __future__ import annotations

from typing import Iterator, Sequence

import torch
from torch import Tensor

BAND = 4
EDGE = 1e-3
NORMALIZED_ROWS = 16
RESAMPLES = 10000
LEVEL = 0.01

Measures = dict[str, Tensor]


def layer_patterns(model, windows: Tensor, batch: int = 8) -> Iterator[tuple[int, int, Tensor]]:
    """Run windows (B, S) and yield (first window, layer, pattern (b, H, S, S) f32)."""
    device = next(model.parameters()).device
    for start in range(0, len(windows), batch):
        with torch.no_grad():
            output = model(windows[start:start + batch].to(device), output_attentions=True)
        for layer, pattern in enumerate(output.attentions):
            yield start, layer, pattern


def entropies(pattern: Tensor) -> tuple[Tensor, Tensor]:
    """Shannon and Renyi-2 entropy of every row, (..., S, S) to twice (..., S)."""
    return -torch.xlogy(pattern, pattern).sum(-1), -pattern.square().sum(-1).log()


def keys_for_share(pattern: Tensor, share: float) -> Tensor:
    """Fewest keys that hold `share` of each row, (..., S, S) to (..., S)."""
    held = pattern.sort(dim=-1, descending=True).values.cumsum(-1)
    return (held < share).sum(-1) + 1


def row_measures(pattern: Tensor) -> Measures:
    """Every per-row measure of a causal pattern (..., S, S), each (..., S)."""
    size = pattern.shape[-1]
    rows = torch.arange(size, device=pattern.device)
    n_keys = (rows + 1).double()
    distance = rows[:, None] - rows
    diagonal = pattern.diagonal(dim1=-2, dim2=-1)
    off_diagonal = pattern.masked_fill(distance == 0, 0.0)
    shannon, renyi2 = entropies(pattern)
    previous = torch.zeros_like(diagonal)
    previous[..., 1:] = pattern.diagonal(offset=-1, dim1=-2, dim2=-1)
    near = (distance >= 0) & (distance <= BAND)
    return {
        "entropy": shannon,
        "renyi2": renyi2,
        "diagonal": diagonal,
        "previous": previous,
        "band": (pattern * near).sum(-1),
        "sink": pattern[..., 0],
        # Ties go to the lower index, so the diagonal has to win outright.
        "dominant": (diagonal > off_diagonal.max(-1).values).double(),
        "peak": pattern.max(-1).values,
        "off_peak": off_diagonal.max(-1).values,
        "edge_count": (pattern > EDGE).sum(-1).double(),
        "k90": keys_for_share(pattern, 0.9) / n_keys,
        "support2": renyi2.exp() / n_keys,
    }


def head_means(rows: Measures) -> Measures:
    """Means over the rows of each window and head: (B, H, S) to (B, H) each."""
    size = rows["entropy"].shape[-1]
    n_keys = torch.arange(1, size + 1, device=rows["entropy"].device).double()
    means = {name: value[..., 1:].mean(-1) for name, value in rows.items()}
    means["entropy"] = rows["entropy"].mean(-1)
    means["edges"] = rows["edge_count"][..., 1:].sum(-1) / n_keys[1:].sum()
    del means["edge_count"]
    if size > NORMALIZED_ROWS:
        fair = rows["entropy"][..., NORMALIZED_ROWS - 1:] / n_keys[NORMALIZED_ROWS - 1:].log()
        means["normalized_entropy"] = fair.mean(-1)
    means["content"] = (1 - means["band"] - means["sink"]).clamp(min=0)
    return means


def without_first_key(pattern: Tensor) -> Tensor:
    """Cut row 0 and key 0 off and renormalize, (..., S, S) to (..., S-1, S-1)."""
    rest = pattern[..., 1:, 1:]
    return rest / rest.sum(-1, keepdim=True).clamp(min=1e-300)


def measure_patterns(model, windows: Tensor) -> dict[str, Measures]:
    """Window means of every head, with ("all") and without ("no_sink") key 0.

    windows: (B, S).  Returns, for both, tensors (L, B, H) on the CPU, and the 95th
    percentile of the row maximum, "peak_p95", (L, H).
    """
    collected: dict[str, dict[int, list[Measures]]] = {"all": {}, "no_sink": {}}
    peaks: dict[int, list[Tensor]] = {}
    for _, layer, pattern in layer_patterns(model, windows):
        pattern = pattern.double()
        for kind, matrix in (("all", pattern), ("no_sink", without_first_key(pattern))):
            rows = row_measures(matrix)
            means = {name: value.cpu() for name, value in head_means(rows).items()}
            collected[kind].setdefault(layer, []).append(means)
            if kind == "all":
                peaks.setdefault(layer, []).append(rows["peak"][..., 1:].cpu())
    result = {kind: stack_layers(layers) for kind, layers in collected.items()}
    for name in ("sink", "content"):
        del result["no_sink"][name]
    per_layer = [torch.cat(peaks[layer]).transpose(0, 1).flatten(1) for layer in sorted(peaks)]
    result["all"]["peak_p95"] = torch.stack([p.quantile(0.95, dim=-1) for p in per_layer])
    return result


def stack_layers(layers: dict[int, list[Measures]]) -> Measures:
    """Batches of (b, H) by layer to one (L, B, H) tensor a measure."""
    names = layers[0][0].keys()
    return {
        name: torch.stack([torch.cat([m[name] for m in layers[i]]) for i in sorted(layers)])
        for name in names
    }


def by_head(measures: Measures) -> Measures:
    """Mean over windows, (L, B, H) to (L, H); what is (L, H) already passes through."""
    return {name: value.mean(1) if value.dim() == 3 else value
            for name, value in measures.items()}


def uniform_diagonal(n_ctx: int) -> float:
    """Mean 1/n(i) over rows with n(i) >= 2: the diagonal mass of uniform attention."""
    return float((1.0 / torch.arange(2, n_ctx + 1).double()).mean())


# ------------------------------------------------------- resampling and tests

def bootstrap_means(values: Tensor, seed: int) -> Tensor:
    """Means of values (B, n) over windows drawn with replacement, (RESAMPLES, n)."""
    generator = torch.Generator().manual_seed(seed)
    n_windows = len(values)
    draws = torch.randint(n_windows, (RESAMPLES, n_windows), generator=generator)
    counts = torch.zeros(RESAMPLES, n_windows, dtype=torch.float64)
    counts.scatter_add_(1, draws, torch.ones_like(draws, dtype=torch.float64))
    return counts @ values.double() / n_windows


def interval(values: Tensor, seed: int) -> list[float]:
    """95% bootstrap interval of the mean of values (B,)."""
    means = bootstrap_means(values[:, None], seed)[:, 0]
    return [float(means.quantile(0.025)), float(means.quantile(0.975))]


def significant(differences: Tensor, seed: int) -> Tensor:
    """Which columns of differences (B, n) have a mean other than 0, (n,) bool.

    Two-sided bootstrap p-values over windows, Benjamini-Hochberg at LEVEL.
    """
    means = bootstrap_means(differences, seed)
    below = (means <= 0).sum(0)
    above = (means >= 0).sum(0)
    p_values = (2 * (torch.minimum(below, above) + 1).double() / (RESAMPLES + 1)).clamp(max=1)
    ordered, order = p_values.sort()
    n = len(ordered)
    passing = (ordered <= LEVEL * torch.arange(1, n + 1) / n).nonzero()
    chosen = torch.zeros(n, dtype=torch.bool)
    if len(passing):
        chosen[order[: int(passing.max()) + 1]] = True
    return chosen


def flat_heads(values: Tensor) -> Tensor:
    """(L, B, H) to (B, L * H)."""
    return values.transpose(0, 1).flatten(1)


# ------------------------------------------------------------ special inputs

def repeated_windows(d_vocab: int, period: int, count: int, seed: int) -> Tensor:
    """Random ids (never the end of text) of one period, twice: (count, 2 * period)."""
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(1, d_vocab, (count, period), generator=generator)
    return torch.cat([once, once], dim=1)


def repeat_scores(model, windows: Tensor) -> Measures:
    """Induction, duplicate and previous scores of every head, (L, H) each.

    windows: (B, 2 T).  All three are means over the rows i of the second copy: of
    A(i, i-T+1), the token after the last occurrence; A(i, i-T), the occurrence itself;
    and A(i, i-1).
    """
    period = windows.shape[1] // 2
    offsets = {"induction": 1 - period, "duplicate": -period, "previous": -1}
    sums: dict[str, dict[int, Tensor]] = {name: {} for name in offsets}
    for _, layer, pattern in layer_patterns(model, windows):
        for name, offset in offsets.items():
            line = pattern.double().diagonal(offset=offset, dim1=-2, dim2=-1)
            total = line[..., -period:].mean(-1).sum(0).cpu()
            sums[name][layer] = sums[name].get(layer, 0) + total
    return {name: torch.stack([layers[i] for i in sorted(layers)]) / len(windows)
            for name, layers in sums.items()}


def total_variation(first, second, windows: Tensor) -> Tensor:
    """Mean total variation between two models' rows, head by head, (L, H)."""
    sums: dict[int, Tensor] = {}
    both = zip(layer_patterns(first, windows), layer_patterns(second, windows))
    for (_, layer, a), (_, _, b) in both:
        distance = 0.5 * (a.double() - b.double()).abs().sum(-1)[..., 1:]
        sums[layer] = sums.get(layer, 0) + distance.mean(-1).sum(0).cpu()
    return torch.stack([sums[layer] for layer in sorted(sums)]) / len(windows)


def head_name(index: int, n_heads: int) -> str:
    """Flat index to the name a head prints as, such as L5H3."""
    return f"L{index // n_heads}H{index % n_heads}"


def best_heads(scores: Tensor, count: int = 3) -> list[dict]:
    """The heads of scores (L, H) with the largest values, largest first."""
    values, order = scores.flatten().sort(descending=True)
    return [{"head": head_name(int(order[i]), scores.shape[1]), "score": float(values[i])}
            for i in range(min(count, len(order)))]


def as_lists(table: Measures, names: Sequence[str]) -> dict[str, list]:
    """Chosen (L, H) tensors as nested lists."""
    return {name: table[name].tolist() for name in names}
