"""high_rate.py - a model trained on at a learning rate that hurts, watched by AttentionMonitor.

    PYTHONPATH=python python3 bench/torch/high_rate.py models/demo tokens.npy run.jsonl \
        --rate 0.01 --seed 1 --weight 0.0

One run, a line a step: loss, norm of the gradient, entropies of every head, alarms; every 25 steps the
loss on held-out text (the last 5% of the tokens).  With a weight, EntropyRegularizer(target, weight,
"below") is part of what is minimized: heads whose mean entropy is below the target cost.  With
--attention sdpa or eager, for comparison, only losses and norms are written.
"""
import argparse
import contextlib
import json
import math

import numpy as np
import torch
import transformers

import headlight.transformers as hf

N_BATCH, CONTEXT, WARM_UP, EVERY = 32, 512, 20, 25


def windows(tokens, seed):
    random = np.random.default_rng(seed)
    while True:
        starts = random.integers(0, len(tokens) - CONTEXT, N_BATCH)
        yield torch.from_numpy(np.stack([tokens[at:at + CONTEXT] for at in starts]).astype(
            np.int64)).cuda()


def autocast():
    return torch.autocast("cuda", dtype=torch.bfloat16)


@torch.no_grad()
def held_out_loss(model, tokens):
    model.eval()
    rows = torch.from_numpy(tokens[:2 * N_BATCH * CONTEXT].astype(np.int64)).view(2, N_BATCH, CONTEXT)
    with autocast():
        losses = [model(batch.cuda(), labels=batch.cuda(), use_cache=False).loss.item()
                  for batch in rows]
    model.train()
    return sum(losses) / len(losses)


def new_model(options):
    settings = dict(attn_implementation=options.attention, dtype=torch.float32)
    if not options.fresh:
        return transformers.AutoModelForCausalLM.from_pretrained(options.model, attn_pdrop=0.0,
                                                                 **settings)
    config = transformers.AutoConfig.from_pretrained(options.model, attn_pdrop=0.0)
    return transformers.AutoModelForCausalLM.from_config(config, **settings)


def train(options, model, tokens, monitor):
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.1, fused=True)
    regularizer = hf.EntropyRegularizer(options.target, options.weight, "below")
    n_training = int(0.95 * len(tokens))
    batches, held_out = windows(tokens[:n_training], options.seed), tokens[n_training:]
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1.0, (step + 1) / WARM_UP)
        batch = next(batches)
        with autocast(), hf.Collector() as seen:
            loss = model(batch, labels=batch, use_cache=False).loss
        (loss + regularizer(seen) if options.weight else loss).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scalars = {"loss": loss.item(), "norm": norm if math.isfinite(norm) else -1.0}
        if (step + 1) % EVERY == 0 or step == 0:
            with monitor.paused():
                scalars["held_out"] = held_out_loss(model, held_out)
        monitor.step(step, **scalars)


class Losses:
    """A monitor of nothing else: other attention has no entropies to tell."""

    def __init__(self, path):
        self.path = path

    paused = contextlib.nullcontext

    def step(self, step, **scalars):
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, **scalars}) + "\n")


def main(options):
    torch.manual_seed(options.seed)
    model, tokens = new_model(options).cuda().train(), np.load(options.tokens)
    if options.attention != "headlight":
        train(options, model, tokens, Losses(options.out))
        return
    with hf.AttentionMonitor(model, jsonl=options.out) as monitor:
        train(options, model, tokens, monitor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "tokens", "out"):
        parser.add_argument(name)
    parser.add_argument("--fresh", action="store_true", help="from random weights")
    parser.add_argument("--attention", choices=("headlight", "sdpa", "eager"), default="headlight")
    for name, value in (("rate", 0.01), ("seed", 1), ("steps", 400), ("weight", 0.0),
                        ("target", 1.5)):
        parser.add_argument("--" + name, type=type(value), default=value)
    main(parser.parse_args())
