"""train_steps.py - training a Llama with eager attention, with SDPA and with headlight's.

    PYTHONPATH=python python3 bench/torch/train_steps.py tokens.npy --json out.json
    PYTHONPATH=python python3 bench/torch/train_steps.py random --steps 0        speed alone
    PYTHONPATH=python python3 bench/torch/train_steps.py random --steps 0 --device cpu --small

tokens.npy is from make_tokens.py.  Every lane trains the same
random model on the same windows, in bf16 autocast over f32 weights (on a CPU in f32):

    eager               transformers' own, without entropy
    sdpa                PyTorch's fused attention, without entropy
    headlight           fused, with the entropy of every row collected
    eager + entropy     every matrix kept; its mean entropy is part of the loss
    headlight + entropy the same loss, fused

Then steps at several lengths, with as many tokens in a step: all lanes in turn, step by step, so that
the machine's moods are shared.  "queued" is the time that the host needs to put a step's work into the
stream: where it is as long as the step, the GPU waits for the host.  --profile lists what the host and
the GPU do in a step.  Times are medians of the steps after the first ones; memory is the most that
PyTorch had in use, and what the process had beside PyTorch's share (the library's own).
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
SPEED_LANES = ("sdpa", "headlight", "headlight + entropy")
WEIGHT = 0.01
N_VOCAB = 4096


def new_model(lane, context, device, small):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=N_VOCAB, hidden_size=768, intermediate_size=2048, num_hidden_layers=2 if small else 12,
        num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=context,
        attention_dropout=0.0, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM._from_config(
        config, attn_implementation=lane.split()[0]).to(device).train()


def windows(tokens, n_batch, context, device):
    random = np.random.default_rng(0)
    while True:
        starts = random.integers(0, len(tokens) - context, n_batch)
        batch = np.stack([tokens[at:at + context] for at in starts]).astype(np.int64)
        yield torch.from_numpy(batch).to(device)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


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


class Lane:
    """A model that is trained step by step."""

    def __init__(self, lane, tokens, n_batch, context, options):
        self.lane, self.device = lane, options.device
        self.model = new_model(lane, context, options.device, options.small)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=6e-4, betas=(0.9, 0.95),
                                           fused=options.device == "cuda")
        self.batches, self.n_steps = windows(tokens, n_batch, context, options.device), 0
        self.seconds, self.queued, self.losses = [], [], []

    def step(self):
        batch = next(self.batches)
        wait(self.device)
        began = time.perf_counter()
        self.n_steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 6e-4 * min(1.0, self.n_steps / 20)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            loss, whole = objective(self.model, batch, self.lane)
        whole.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.queued.append(time.perf_counter() - began)
        wait(self.device)
        self.seconds.append(time.perf_counter() - began)
        self.losses.append(loss.item())


def run(lane, tokens, n_steps, n_batch, context, options):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    outside = total - free - torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    trained = Lane(lane, tokens, n_batch, context, options)
    for _ in range(n_steps):
        trained.step()
    free, total = torch.cuda.mem_get_info()
    return {"lane": lane, "context": context, "batch": n_batch, "steps": n_steps, "loss": trained.losses,
            "ms": 1e3 * statistics.median(trained.seconds[min(10, n_steps // 2):]),
            "mib": torch.cuda.max_memory_allocated() / 2 ** 20,
            "outside_mib": (total - free - torch.cuda.memory_reserved() - outside) / 2 ** 20}


def speed(tokens, n_batch, context, options):
    """Steps of SPEED_LANES in turn, with ratios to SDPA's."""
    lanes = [Lane(lane, tokens, n_batch, context, options) for lane in SPEED_LANES + (
        ("eager",) if options.eager else ())]
    for _ in range(options.sweep_steps):
        for lane in lanes:
            lane.step()
    ms = {}
    for lane in lanes:
        half = slice(len(lane.seconds) // 3, None)
        ms[lane.lane] = 1e3 * statistics.median(lane.seconds[half])
        print(f"{lane.lane:20} S {context:5} x {n_batch:2}  {ms[lane.lane]:7.1f} ms, queued in "
              f"{1e3 * statistics.median(lane.queued[half]):6.1f}; {ms[lane.lane] / ms['sdpa']:.3f} of sdpa",
              flush=True)
    if options.profile:
        for lane in lanes[:2]:
            profile(lane)
    return ms


def profile(lane):
    """Where a step's time goes, on the host and on the GPU."""
    from torch.profiler import ProfilerActivity
    n_steps = 3
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(n_steps):
            lane.step()
    events = [event for event in found.key_averages() if event.self_device_time_total > 0]
    kernels = [event for event in events if str(event.device_type).endswith("CUDA")]
    busy = sum(event.self_device_time_total for event in kernels) / n_steps / 1e3
    n = sum(event.count for event in kernels) / n_steps
    print(f"{lane.lane}: per step {n:.0f} kernels, {busy:.1f} ms of GPU time")
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:12]:
        print(f"    {event.self_device_time_total / n_steps / 1e3:7.3f} ms {event.count / n_steps:5.0f} x "
              f"{event.key[:90]}")
    host = sorted(found.key_averages(), key=lambda event: -event.self_cpu_time_total)[:10]
    print("    host: " + "; ".join(f"{event.key[:40]} {event.self_cpu_time_total / n_steps / 1e3:.2f} ms x "
                                   f"{event.count / n_steps:.0f}" for event in host), flush=True)


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
    tokens = np.random.default_rng(1).integers(3, N_VOCAB, 1 << 20) if options.tokens == "random" else \
        np.load(options.tokens)
    machine = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {machine}; "
          f"{2 if options.small else 12} layers, 12 heads of 64, 4 of keys", flush=True)
    found = []

    def do(lane, n_steps, context):
        n_batch = max(1, options.batch * options.context // context)
        found.append(lane_or_reason(lane, tokens, n_steps, n_batch, context, options))
        show(found[-1])
        if options.json:
            with open(options.json, "w") as file:
                json.dump(found, file)

    if options.steps > 0:
        for lane in LANES:  # lanes with a penalty make a quarter of the steps
            do(lane, options.steps // 4 if "entropy" in lane else options.steps, options.context)
        compare(found)
    for context in options.lengths:
        speed(tokens, max(1, options.batch * options.context // context), context, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens")
    parser.add_argument("--json")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--sweep-steps", type=int, default=15)
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="2 layers instead of 12")
    parser.add_argument("--eager", action="store_true", help="with a lane of eager attention")
    parser.add_argument("--profile", action="store_true")
    sys.exit(main(parser.parse_args()))
