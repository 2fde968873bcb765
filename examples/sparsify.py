"""sparsify.py - fine-tune a model with a penalty on entropy, until its heads look at few keys.

    PYTHONPATH=python python3 examples/sparsify.py models/demo --text book.txt ... --out mine

The loss is cross-entropy + weight * the mean of H(i) / ln n(i) over layers, heads and rows, H(i) the
entropy of a row that sees n(i) keys.  Fused attention hands out H with its gradient; --attention eager
does the same from whole matrices, for comparison.  Needs PyTorch 2.4 and transformers 4.53 or later;
made for a GPU.
"""
import argparse
import math
import shutil
import statistics
import time

import numpy as np
import torch

import headlight
import headlight.torch


def normalized(entropy):
    """The mean of H(i) / ln n(i) over rows that see two keys or more, of (batch, heads, queries)."""
    n_keys = torch.arange(2, entropy.shape[2] + 1, device=entropy.device)
    return (entropy[:, :, 1:] / n_keys.log()).mean()


def fused(model, batch):
    """The loss, and the entropies of every layer's rows."""
    with headlight.torch.Collector() as seen:
        loss = model(batch, labels=batch, use_cache=False).loss
    return loss, [rows for parts in seen.layers.values() for rows in parts]


def by_matrices(model, batch):
    """The same where attention is eager: the matrices are made, and kept for the gradient."""
    found = model(batch, labels=batch, use_cache=False, output_attentions=True)
    return found.loss, [-(p * (p + 1e-8).log()).sum(-1) for p in map(torch.Tensor.float,
                                                                     found.attentions)]


def rate_at(step, n_steps):
    """Up over 5% of the steps, then a cosine down to 1%."""
    warm = max(1, n_steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.01 + 0.495 * (1 + math.cos(math.pi * (step - warm) / max(1, n_steps - warm)))


def fine_tune(model, batches, forward, *, weight, rate, n_steps, on_step):
    """on_step(step, loss, normalized entropy, seconds) after every step."""
    device = next(model.parameters()).device
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": rest, "weight_decay": 0.0}], betas=(0.9, 0.98))
    model.train()
    for step in range(n_steps):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate * rate_at(step, n_steps)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss, entropies = forward(model, next(batches))
            spread = torch.stack([normalized(rows) for rows in entropies]).mean()
        penalty = weight * min(1.0, (step + 1) / max(1, n_steps // 5))  # reached in a fifth
        (loss + penalty * spread).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        on_step(step, loss.item(), spread.item(), time.perf_counter() - began)


def windows(path, texts, n_batch, n_tokens, seed, device):
    """Endless batches of windows, (n_batch, n_tokens), from the texts with an end after each."""
    stream = []
    with headlight.open(path) as model:
        for text in texts:
            with open(text, encoding="utf-8") as file:
                stream.append(np.append(model.tokenize(file.read()), 0))
    stream, random = torch.from_numpy(np.concatenate(stream)).long(), np.random.default_rng(seed)
    while True:
        starts = random.integers(0, len(stream) - n_tokens, n_batch)
        yield torch.stack([stream[at:at + n_tokens] for at in starts]).to(device)


def main(options):
    import headlight.transformers  # registers
    import transformers
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, attn_implementation=options.attention, dtype=torch.float32,
        attn_pdrop=0.0).to(device)
    batches = windows(options.model, options.text, options.batch, options.context, options.seed,
                      device)
    seconds = []

    def on_step(step, loss, spread, took):
        seconds.append(took)
        if step % max(1, options.steps // 10) == 0 or step == options.steps - 1:
            print(f"step {step:5}  loss {loss:.3f}  normalized entropy {spread:.3f}", flush=True)

    fine_tune(model, batches, fused if options.attention == "headlight" else by_matrices,
              weight=options.weight, rate=options.rate, n_steps=options.steps, on_step=on_step)
    memory = torch.cuda.max_memory_allocated() / 2 ** 20 if device == "cuda" else math.nan
    print(f"{options.attention}: {1e3 * statistics.median(seconds):.1f} ms a step, "
          f"{memory:.0f} MiB at most")
    if options.out:
        model.half().save_pretrained(options.out)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(f"{options.model}/{name}", options.out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder that transformers reads")
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--out", help="where the model goes")
    parser.add_argument("--attention", choices=("headlight", "eager"), default="headlight")
    for name, value in (("weight", 3.9), ("rate", 5e-4), ("steps", 1355), ("batch", 32),
                        ("context", 512), ("seed", 2)):
        parser.add_argument("--" + name, type=type(value), default=value)
    main(parser.parse_args())
