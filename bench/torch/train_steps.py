"""train_steps.py - training a Llama with eager attention, with SDPA and with headlight's.

    PYTHONPATH=python python3 bench/torch/train_steps.py tokens.npy --json out.json

tokens.npy is from make_tokens.py.  Every lane trains the same
random model on the same windows, in bf16 autocast over f32 weights:

    eager               transformers' own, without entropy
    sdpa                PyTorch's fused attention, without entropy
    headlight           fused, with the entropy of every row collected
    eager + entropy     every matrix kept; its mean entropy is part of the loss
    headlight + entropy the same loss, fused

Then the same for a few steps at other lengths, with as many tokens in a step.  Times are medians of the
steps after the first ten; memory is the most that PyTorch had in use, and what the process had beside
PyTorch's share (the library's own).
"""
import argparse
import gc
import json
import statistics
import sys
import time

import numpy as np
import torch
import transformers

import headlight.transformers as hf

LANES = ("eager", "sdpa", "headlight", "eager + entropy", "headlight + entropy")
WEIGHT = 0.01


def new_model(lane, context):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=4096, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
        num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=context,
        attention_dropout=0.0, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM._from_config(
        config, attn_implementation=lane.split()[0]).cuda().train()


def windows(tokens, n_batch, context):
    random = np.random.default_rng(0)
    while True:
        starts = random.integers(0, len(tokens) - context, n_batch)
        batch = np.stack([tokens[at:at + context] for at in starts]).astype(np.int64)
        yield torch.from_numpy(batch).cuda()


def objective(model, batch, lane):
    """(loss of the text, what is minimized)"""
    if lane in ("eager", "sdpa"):
        loss = model(batch, labels=batch, use_cache=False).loss
        return loss, loss
    if lane == "eager + entropy":
        found = model(batch, labels=batch, use_cache=False, output_attentions=True)
        entropy = torch.stack([-(p * (p + 1e-8).log()).sum(-1).mean()
                               for p in (a.float() for a in found.attentions)]).mean()
        return found.loss, found.loss + WEIGHT * entropy
    with hf.Collector() as seen:
        loss = model(batch, labels=batch, use_cache=False).loss
    if lane == "headlight":
        return loss, loss
    return loss, loss + WEIGHT * torch.stack(list(seen.means().values())).mean()


def run(lane, tokens, n_steps, n_batch, context):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    outside = total - free - torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    model = new_model(lane, context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    batches, losses, seconds = windows(tokens, n_batch, context), [], []
    for step in range(n_steps):
        batch = next(batches)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min(1.0, (step + 1) / 20)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss, whole = objective(model, batch, lane)
        whole.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        losses.append(loss.item())
    free, total = torch.cuda.mem_get_info()
    return {"lane": lane, "context": context, "batch": n_batch, "steps": n_steps, "loss": losses,
            "ms": 1e3 * statistics.median(seconds[min(10, n_steps // 2):]),
            "mib": torch.cuda.max_memory_allocated() / 2 ** 20,
            "outside_mib": (total - free - torch.cuda.memory_reserved() - outside) / 2 ** 20}


def lane_or_reason(lane, *arguments):
    try:
        return run(lane, *arguments)
    except torch.cuda.OutOfMemoryError:
        return {"lane": lane, "context": arguments[3], "batch": arguments[2], "failed": "out of memory"}


def show(found):
    if "failed" in found:
        print(f"{found['lane']:20} S {found['context']:5}  {found['failed']}", flush=True)
        return
    print(f"{found['lane']:20} S {found['context']:5} x {found['batch']:2}  {found['ms']:7.1f} ms  "
          f"{found['mib']:8.0f} MiB + {found['outside_mib']:4.0f}  loss {found['loss'][0]:.4f} to "
          f"{np.mean(found['loss'][-10:]):.4f}", flush=True)


def compare(found):
    """How far losses lie from eager's, step by step."""
    by_lane = {x["lane"]: np.array(x["loss"]) for x in found if "loss" in x}
    for lane, other in (("sdpa", "eager"), ("headlight", "eager"),
                        ("headlight + entropy", "eager + entropy")):
        if lane in by_lane and other in by_lane:
            off = np.abs(by_lane[lane] - by_lane[other])
            print(f"{lane} against {other}: mean distance of losses {off.mean():.1e}, largest "
                  f"{off.max():.1e} at step {off.argmax()}", flush=True)


def main(options):
    tokens = np.load(options.tokens)
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, "
          f"{torch.cuda.get_device_name()}; 12 layers, 12 heads of 64, 4 of keys", flush=True)
    found = []

    def do(lane, n_steps, context):
        n_batch = max(1, options.batch * options.context // context)
        found.append(lane_or_reason(lane, tokens, n_steps, n_batch, context))
        show(found[-1])
        if options.json:
            with open(options.json, "w") as file:
                json.dump(found, file)

    for lane in LANES:  # lanes with a penalty make a quarter of the steps
        do(lane, options.steps // 4 if "entropy" in lane else options.steps, options.context)
    compare(found)
    for context in options.lengths:
        for lane in LANES:
            do(lane, options.sweep_steps, context)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens")
    parser.add_argument("--json")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--sweep-steps", type=int, default=15)
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096, 8192])
    sys.exit(main(parser.parse_args()))
