#!/usr/bin/env python3
"""Train the tiny models on which the checks of `headlight diagnose` are tested.

    python3 tools/train_cases.py --gutenberg BOOKS.tar.xz --out CASES

The models have the GPT-2 architecture, 4 layers of 4 heads, d_model 128, context 128, and the
tokenizer of models/demo.  All are made from the same seed on one CPU thread:

    random-8x8           the shape of models/demo, as drawn: never trained
    run/step-N           a healthy run from random weights, N = 0, 50, ..., 1000
    collapsed/step-N     the run goes on from step 1000 at 30 times the learning rate, without
                         warm-up and without clipping of gradients, N = 1000, 1025, ..., 1200
    scrambled            step 1000 with the queries and keys of head L2H1 drawn anew, 30 times as large
    broken               step 1000 with a weight of 3e38 in the queries of head L2H1

Needs PyTorch 2, transformers, tokenizers and safetensors; about six minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from pathlib import Path

import torch
from torch import Tensor

from demo_model import Gpt2, Shape, parameter_groups, save_checkpoint

ROOT = Path(__file__).resolve().parent.parent
TINY = Shape(n_layers=4, n_heads=4, d_model=128, n_ctx=128, dropout=0.0)
SEED, BATCH, RATE = 1, 16, 2e-3
BROKEN_LAYER, BROKEN_HEAD = 2, 1


def read_stream(archive: Path, n_tokens: int) -> Tensor:
    """The first tokens of the books of an archive, in the order of their names."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ROOT / "models/demo/tokenizer.json"))
    ids: list[int] = []
    with tarfile.open(archive) as books:
        for member in sorted(books.getmembers(), key=lambda member: member.name):
            # The demonstration's text is what the checkpoints are measured on.
            if not member.isfile() or "Alice" in member.name or len(ids) >= n_tokens:
                continue
            text = books.extractfile(member).read().decode("utf-8", "replace")
            ids += [0, *tokenizer.encode(text).ids]
    return torch.tensor(ids[:n_tokens])


def save(model: Gpt2, folder: Path) -> None:
    """A checkpoint, with the tokenizer beside it."""
    save_checkpoint(model, folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((ROOT / "models/demo" / name).read_bytes())


def train(model: Gpt2, stream: Tensor, out: Path, first: int, last: int, every: int, rate: float,
          is_healthy: bool) -> None:
    """Steps `first` to `last`, saving the weights at the beginning and each `every` steps."""
    generator = torch.Generator().manual_seed(SEED + first)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=rate, betas=(0.9, 0.98))
    save(model, out / f"step-{first}")
    for step in range(first, last):
        warm = min(1.0, (step - first + 1) / 50) if is_healthy else 1.0
        for group in optimizer.param_groups:
            group["lr"] = rate * warm
        starts = torch.randint(len(stream) - TINY.n_ctx - 1, (BATCH,), generator=generator)
        batch = torch.stack([stream[start:start + TINY.n_ctx + 1] for start in starts])
        loss, _ = model(batch, False)
        loss.backward()
        if is_healthy:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % every == 0:
            print(json.dumps({"step": step + 1, "loss": round(float(loss), 4)}), flush=True)
            save(model, out / f"step-{step + 1}")


def spoil(model: Gpt2, out: Path) -> None:
    """One head with attention of its own making, and one with a weight that overflows."""
    block = model.transformer.h[BROKEN_LAYER].attn.c_attn
    width, d_head = TINY.d_model, TINY.d_model // TINY.n_heads
    generator = torch.Generator().manual_seed(SEED)
    whole = block.weight.detach().clone()
    with torch.no_grad():
        for part in range(2):  # queries, keys
            columns = slice(part * width + BROKEN_HEAD * d_head,
                            part * width + (BROKEN_HEAD + 1) * d_head)
            size = 30 * float(whole[:, columns].std())
            block.weight[:, columns] = size * torch.randn(width, d_head, generator=generator)
        save(model, out / "scrambled")
        block.weight.copy_(whole)
        save(model, out / "broken")
    overflow(out / "broken" / "model.safetensors", BROKEN_HEAD * d_head)


def overflow(path: Path, column: int) -> None:
    """A weight whose products leave the range of f32: save_checkpoint refuses to write one."""
    from safetensors.torch import load_file, save_file

    weights = {name: tensor.float() for name, tensor in load_file(str(path)).items()}
    weights[f"transformer.h.{BROKEN_LAYER}.attn.c_attn.weight"][0, column] = 3e38
    save_file(weights, str(path), metadata={"format": "pt"})


def main() -> None:
    """Makes all of them."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gutenberg", type=Path, required=True, help="the archive of books")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    save(Gpt2(Shape()), arguments.out / "random-8x8")
    torch.manual_seed(SEED)
    model = Gpt2(TINY)
    stream = read_stream(arguments.gutenberg, 2_000_000)
    train(model, stream, arguments.out / "run", 0, 1000, 50, RATE, True)
    spoiled = Gpt2(TINY)
    spoiled.load_state_dict(model.state_dict())
    spoil(spoiled, arguments.out)
    train(model, stream, arguments.out / "collapsed", 1000, 1200, 25, 30 * RATE, False)


if __name__ == "__main__":
    main()
