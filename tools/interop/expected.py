#!/usr/bin/env python3
"""Computes an expected.safetensors for `headlight verify` from a decoder, with transformers.

    python3 tools/interop/expected.py FOLDER TOKENS.safetensors OUT.safetensors

TOKENS has `tokens` (batch, length).  Attention is computed in float32 by transformers' eager path, and
the statistics of its rows in float64 from the attention matrices.
"""

from __future__ import annotations

import sys

import torch
import transformers
from safetensors.torch import load_file, save_file


def row_statistics(attentions: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """Entropy and other statistics of every row: (layers, batch, heads, rows) each."""
    p = torch.stack([a.double() for a in attentions])
    p = p / p.sum(-1, keepdim=True)
    log_p = torch.where(p > 0, p, torch.ones_like(p)).log()
    return {
        "entropy": -(p * log_p).sum(-1),
        "renyi2": -(p * p).sum(-1).log(),
        "peak": p.amax(-1),
        "diagonal": p.diagonal(dim1=-2, dim2=-1).contiguous(),
        "first": p[..., 0].contiguous(),
    }


def main() -> None:
    folder, tokens_path, out = sys.argv[1:4]
    tokens = load_file(tokens_path)["tokens"]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    if model.config.model_type == "falcon" and model.config.alibi:
        sys.exit("eager Falcon adds ALiBi twice and SDPA returns no attention: write its rows otherwise")
    with torch.no_grad():
        result = model.eval()(tokens, output_attentions=True)
    tensors = {"tokens": tokens, "logits": result.logits.float().contiguous()}
    tensors |= row_statistics(result.attentions)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__,
                "family": model.config.model_type}
    save_file(tensors, out, metadata=versions)
    print(out, {name: tuple(t.shape) for name, t in tensors.items()}, versions)


main()
