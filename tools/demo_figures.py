"""The model card's figures, computed from saved model folders.

train_demo.py writes them into card.json and check_demo.py computes them again, both
through the functions here.  The models run in transformers with eager attention in
f32, so no code of the training loop takes part.

Shape letters: B windows, S positions, L layers, H heads, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import demo_data as data
import demo_patterns as patterns
from demo_model import load_checkpoint

PATTERN_WINDOWS = 64      # windows of n_ctx tokens on which attention is measured
SHORT_CONTEXT = 10        # the reference document's maps are 10 x 10
REPEAT_PERIODS = (32, 128, 256)
REPEAT_COUNT = 64
EXPECTED_SHAPE = (2, 256)
EXPECTED_TEXT = "alice.txt"
SAMPLE = {"prompt": "The old man looked out at the sea, and said", "seed": 7,
          "temperature": 0.8, "top_k": 40, "n_tokens": 120}
SEED = 20
HEAD_TABLES = ("entropy", "normalized_entropy", "diagonal", "previous", "sink", "peak", "edges")


@dataclass(frozen=True)
class Texts:
    """Encoded text that the figures are measured on."""

    held_out: dict[str, Tensor]   # document name to ids (n_tokens,)
    wikitext: Tensor              # (n_tokens,)
    n_bytes: Tensor               # bytes of each id, (V,)
    n_ctx: int

    def pattern_windows(self) -> Tensor:
        """(PATTERN_WINDOWS, n_ctx), spread over the held-out documents."""
        return data.spread_windows(list(self.held_out.values()), self.n_ctx, PATTERN_WINDOWS)

    def group(self, prefix: str) -> list[Tensor]:
        """Held-out documents of one archive."""
        return [ids for name, ids in self.held_out.items() if name.startswith(prefix)]


def encode_texts(tokenizer, corpus: data.Corpus, wikitext: Path, n_ctx: int) -> Texts:
    """Encode the held-out documents and the wikitext file."""
    document = data.Document("wikitext", wikitext.read_text(encoding="utf-8"))
    encoded = data.encode(tokenizer, [*corpus.held_out, document])
    names = [d.name for d in corpus.held_out]
    return Texts(dict(zip(names, encoded)), encoded[-1], data.token_bytes(tokenizer), n_ctx)


# --------------------------------------------------------------------- loss

def token_nll(logits_of: Callable[[Tensor], Tensor], windows: Sequence[Tensor],
              device: torch.device, batch: int = 32) -> list[Tensor]:
    """NLL in nats of every predicted token: one (length - 1,) tensor a window."""
    result = []
    for start in range(0, len(windows), batch):
        group = windows[start:start + batch]
        padded = torch.nn.utils.rnn.pad_sequence(list(group), batch_first=True).to(device)
        with torch.no_grad():
            logits = logits_of(padded)[:, :-1].float()
        losses = F.cross_entropy(logits.transpose(1, 2), padded[:, 1:], reduction="none").cpu()
        result += [row[: len(window) - 1] for row, window in zip(losses, group)]
    return result


def loss_of(logits_of: Callable[[Tensor], Tensor], encoded: Sequence[Tensor], texts: Texts,
            device: torch.device) -> dict[str, float]:
    """Loss over documents, in nats a token and bits a byte of the predicted tokens."""
    windows = data.document_windows(encoded, texts.n_ctx)
    losses = token_nll(logits_of, windows, device)
    total = sum(float(row.double().sum()) for row in losses)
    n_tokens = sum(len(row) for row in losses)
    n_bytes = sum(int(texts.n_bytes[window[1:]].sum()) for window in windows)
    return {"nats_per_token": total / n_tokens,
            "bits_per_byte": total / math.log(2) / n_bytes,
            "tokens": n_tokens, "bytes": n_bytes}


def loss_figures(model, texts: Texts, device: torch.device) -> dict:
    """Held-out loss (all, books, speeches) and wikitext-2 loss."""
    def logits_of(tokens: Tensor) -> Tensor:
        return model(tokens).logits

    groups = {
        "held_out": list(texts.held_out.values()),
        "held_out_books": texts.group("gutenberg/"),
        "held_out_speeches": texts.group("sotu/"),
        "wikitext2": [texts.wikitext],
    }
    return {name: loss_of(logits_of, encoded, texts, device)
            for name, encoded in groups.items()}


# ----------------------------------------------------------------- patterns

def summarize(measured: dict[str, patterns.Measures], n_ctx: int) -> dict:
    """Means over heads and counts of heads, from measure_patterns."""
    table = patterns.by_head(measured["all"])
    rest = patterns.by_head(measured["no_sink"])
    mean = {name: float(value.mean()) for name, value in table.items()}
    mean["lift"] = mean["diagonal"] / patterns.uniform_diagonal(n_ctx)
    mean["off_diagonal"] = 1 - mean["diagonal"]
    per_window = patterns.flat_heads(measured["all"]["entropy"]).mean(1)
    surplus = patterns.flat_heads(measured["all"]["diagonal"]) - patterns.uniform_diagonal(n_ctx)
    above = patterns.significant(surplus, SEED) & (surplus.mean(0) > 0)
    counts = {
        "heads": table["entropy"].numel(),
        "diagonal_dominant": int((table["dominant"] > 0.5).sum()),
        "diagonal_above_uniform": int(above.sum()),
        "diagonal_above_half": int((table["diagonal"] > 0.5).sum()),
        "sink_heads": int((table["sink"] > 0.3).sum()),
        "off_peak_above_half": int((table["off_peak"] > 0.5).sum()),
        "previous_above_half": int((table["previous"] > 0.5).sum()),
    }
    return {"mean": mean, "entropy_interval": patterns.interval(per_window, SEED),
            "mean_no_sink": {name: float(value.mean()) for name, value in rest.items()},
            "counts": counts}


def pattern_figures(model, texts: Texts) -> dict:
    """Attention on held-out windows at full context and at 10 tokens."""
    windows = texts.pattern_windows()
    measured = patterns.measure_patterns(model, windows)
    table = patterns.by_head(measured["all"])
    figures = summarize(measured, texts.n_ctx)
    figures["layer_diagonal"] = table["diagonal"].mean(1).tolist()
    figures["layer_entropy"] = table["entropy"].mean(1).tolist()
    figures["best_peak"] = patterns.best_heads(table["peak"])
    figures["best_diagonal"] = patterns.best_heads(table["diagonal"])
    figures["heads"] = patterns.as_lists(table, HEAD_TABLES)
    short = patterns.measure_patterns(model, windows[:, :SHORT_CONTEXT])
    figures["short"] = summarize(short, SHORT_CONTEXT)
    return figures


# -------------------------------------------------------------- other inputs

def repeat_figures(model, texts: Texts, device: torch.device) -> dict:
    """Best induction, duplicate and previous-token heads on repeated random ids."""
    figures = {}
    for period in REPEAT_PERIODS:
        if 2 * period > texts.n_ctx:
            continue
        windows = patterns.repeated_windows(len(texts.n_bytes), period, REPEAT_COUNT, SEED)
        scores = patterns.repeat_scores(model, windows)
        losses = torch.stack(token_nll(lambda t: model(t).logits, list(windows), device))
        entry = {name: patterns.best_heads(value) for name, value in scores.items()}
        entry["heads_induction_above_0.1"] = int((scores["induction"] > 0.1).sum())
        entry["loss_first_copy"] = float(losses[:, : period - 1].mean())
        entry["loss_second_copy"] = float(losses[:, period:].mean())
        figures[f"period_{period}"] = entry
    return figures


def sample_text(model, tokenizer, device: torch.device) -> str:
    """Continue the prompt: top-k sampling, the draws made on the CPU in float64."""
    generator = torch.Generator().manual_seed(SAMPLE["seed"])
    ids = tokenizer.encode(SAMPLE["prompt"]).ids
    for _ in range(SAMPLE["n_tokens"]):
        with torch.no_grad():
            logits = model(torch.tensor([ids], device=device)).logits[0, -1].cpu().double()
        values, candidates = logits.topk(min(SAMPLE["top_k"], len(logits)))
        cumulative = (values / SAMPLE["temperature"]).softmax(-1).cumsum(-1)
        draw = torch.rand(1, generator=generator, dtype=torch.float64)
        choice = int((cumulative < draw).sum().clamp(max=len(values) - 1))
        ids.append(int(candidates[choice]))
    return tokenizer.decode(ids)


def model_figures(folder: Path, tokenizer, texts: Texts, device: torch.device) -> dict:
    """All figures of one saved folder."""
    model = load_checkpoint(folder, device)
    return {
        "sha256": data.sha256_of(folder / "model.safetensors"),
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": loss_figures(model, texts, device),
        "attention": pattern_figures(model, texts),
        "repeats": repeat_figures(model, texts, device),
        "sample": sample_text(model, tokenizer, device),
    }


def pair_figures(first: Path, second: Path, texts: Texts, device: torch.device) -> dict:
    """How the second model's heads differ from the first's, matched by index."""
    a, b = load_checkpoint(first, device), load_checkpoint(second, device)
    windows = texts.pattern_windows()
    before, after = (patterns.measure_patterns(m, windows)["all"] for m in (a, b))
    figures: dict = {}
    for name in ("entropy", "diagonal", "edges", "sink", "previous", "peak"):
        change = patterns.flat_heads(after[name]) - patterns.flat_heads(before[name])
        marked = patterns.significant(change, SEED)
        mean = change.mean(0)
        figures[name] = {
            "mean_change": float(mean.mean()),
            "heads_lower": int((marked & (mean < 0)).sum()),
            "heads_higher": int((marked & (mean > 0)).sum()),
        }
    drop = (patterns.by_head(before)["diagonal"] - patterns.by_head(after)["diagonal"]).flatten()
    index = int(drop.argmax())
    figures["largest_diagonal_fall"] = {
        "head": patterns.head_name(index, before["diagonal"].shape[2]),
        "from": float(patterns.by_head(before)["diagonal"].flatten()[index]),
        "to": float(patterns.by_head(after)["diagonal"].flatten()[index]),
    }
    distance = patterns.total_variation(a, b, windows)
    figures["total_variation"] = {"mean": float(distance.mean()),
                                  "largest": patterns.best_heads(distance, 1)[0],
                                  "smallest": float(distance.min())}
    return figures


def card_figures(models: Path, tokenizer, texts: Texts, device: torch.device) -> dict:
    """The part of card.json that can be computed from the two saved folders."""
    dense, sparse = models / "demo", models / "demo-sparse"
    return {
        "demo": model_figures(dense, tokenizer, texts, device),
        "demo-sparse": model_figures(sparse, tokenizer, texts, device),
        "pair": pair_figures(dense, sparse, texts, device),
    }


# ---------------------------------------------------------- expected values

def expected_tokens(tokenizer, text_folder: Path) -> tuple[Tensor, int]:
    """The first ids of the shipped text as (2, 256), and how many bytes they cover."""
    text = (text_folder / EXPECTED_TEXT).read_text(encoding="utf-8")
    n_tokens = EXPECTED_SHAPE[0] * EXPECTED_SHAPE[1]
    ids = torch.tensor(tokenizer.encode(text).ids[:n_tokens], dtype=torch.int64)
    return ids.view(EXPECTED_SHAPE), int(data.token_bytes(tokenizer)[ids].sum())


def expected_tensors(model, tokens: Tensor) -> dict[str, Tensor]:
    """Reference values of a model on tokens (B, S), named as in the golden files.

    Row statistics are (L, B, H, S): float64 from the f32 pattern, stored as f32.
    nll is (B, S - 1); logits_last, the logits after the last token, is (B, V).
    """
    device = next(model.parameters()).device
    rows: dict[str, list[Tensor]] = {}
    for _, _, pattern in patterns.layer_patterns(model, tokens):
        measured = patterns.row_measures(pattern.double())
        for name in ("entropy", "renyi2", "peak", "diagonal", "previous", "sink"):
            rows.setdefault(name, []).append(measured[name].float().cpu())
    rows["first"] = rows.pop("sink")
    with torch.no_grad():
        logits = model(tokens.to(device)).logits.cpu()
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    stacked = {name: torch.stack(layers).contiguous() for name, layers in rows.items()}
    return {"tokens": tokens, **stacked, "nll": nll.contiguous(),
            "logits_last": logits[:, -1].contiguous()}


def write_expected(folder: Path, tokenizer, text_folder: Path, device: torch.device) -> None:
    """Write expected.safetensors beside a saved model."""
    import transformers
    from safetensors.torch import save_file

    tokens, n_bytes = expected_tokens(tokenizer, text_folder)
    tensors = expected_tensors(load_checkpoint(folder, device), tokens)
    metadata = {
        "family": "gpt2",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "text": f"{text_folder.name}/{EXPECTED_TEXT}",
        "text_sha256": data.sha256_of(text_folder / EXPECTED_TEXT),
        "text_bytes": f"0..{n_bytes}",
        "text_tokens": f"0..{tokens.numel()}",
        "model_sha256": data.sha256_of(folder / "model.safetensors"),
    }
    save_file(tensors, str(folder / "expected.safetensors"), metadata=metadata)


def expected_differences(folder: Path, tokenizer, text_folder: Path,
                         device: torch.device) -> dict[str, float]:
    """Largest absolute difference between stored and recomputed tensors, by name."""
    from safetensors.torch import load_file

    stored = load_file(str(folder / "expected.safetensors"))
    tokens, _ = expected_tokens(tokenizer, text_folder)
    fresh = expected_tensors(load_checkpoint(folder, device), tokens)
    if stored.keys() != fresh.keys():
        raise SystemExit(f"{folder}: tensors {sorted(stored)} instead of {sorted(fresh)}")
    return {name: float((stored[name].double() - fresh[name].double()).abs().max())
            for name in sorted(fresh)}
