"""golden_peers.py - the error of transformers' own bf16 run against the stored results.

    python3 bench/cuda/golden_peers.py FAMILIES_FOLDER [OUT.json]

For every family in the folder: loads the model as bf16 on the GPU, with eager attention, and compares
the entropies of its attention rows with expected.safetensors (made in f32).  Prints one line per family:
the root mean square and the largest error of the entropies."""
import json
import os
import sys
import traceback

import torch
from safetensors.torch import load_file
from transformers import AutoModel


def entropies(attention, has_sink):
    """(B, H, S) from probabilities; a learned sink is one more outcome, with the rest of 1."""
    p = attention.double()
    h = -torch.special.xlogy(p, p).sum(-1)
    if has_sink:
        rest = (1.0 - p.sum(-1)).clamp_min(0.0)
        h = h - torch.special.xlogy(rest, rest)
    return h


@torch.inference_mode()
def run_family(folder):
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    model = AutoModel.from_pretrained(folder, dtype=torch.bfloat16,
                                      attn_implementation="eager").cuda().eval()
    found = model(expected["tokens"].cuda(), output_attentions=True)
    has_sink = "gpt_oss" in folder
    ours = torch.stack([entropies(a, has_sink) for a in found.attentions]).cpu()
    error = (ours - expected["entropy"].double()).abs()
    return {"rms": error.square().mean().sqrt().item(), "max": error.max().item()}


def main():
    root, results = sys.argv[1], {}
    for family in sorted(os.listdir(root)):
        try:
            results[family] = run_family(os.path.join(root, family))
            print(f"{family:12} rms {results[family]['rms']:.3e} max {results[family]['max']:.3e}",
                  flush=True)
        except Exception as error:  # a family that does not run must not stop the others
            print(f"{family:12} failed: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc(limit=2)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()
