"""model_peers.py - a Llama with random weights, timed in transformers.

    python3 bench/cuda/model_peers.py write FOLDER           Llama-3.2-1B's shapes, bf16, seed 0
    python3 bench/cuda/model_peers.py forward FOLDER LENGTHS whole forward passes without logits
    python3 bench/cuda/model_peers.py decode FOLDER BATCHES  generate: static cache, compiled

FOLDER gets config.json and model.safetensors.  A forward pass has 16384 tokens, or one longer
sequence, with SDPA and without entropy.  Each number is the median of ROUNDS passes (three beyond 64k
tokens), timed by events.  Every line of output is JSON: the case, tokens/s, the allocator's peak in
bytes."""
import json
import os
import statistics
import sys
import time

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig

ROUNDS = 7
TOKENS = 16384
PROMPT, NEW = 128, 256


def llama_1b():
    return LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
        rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=128000, eos_token_id=128001,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
        dtype="bfloat16", architectures=["LlamaForCausalLM"])


def write(folder):
    """Random weights, scaled so that a signal keeps its size through the layers."""
    torch.manual_seed(0)
    config = llama_1b()
    tensors = {}
    with torch.device("meta"):
        shapes = AutoModelForCausalLM.from_config(config).state_dict()
    for name, shape in shapes.items():
        if name == "lm_head.weight":
            continue  # tied
        if shape.dim() == 1:
            value = torch.ones(shape.shape, device="cuda")
        else:
            value = torch.randn(shape.shape, device="cuda") * 0.02
        tensors[name] = value.to(torch.bfloat16).cpu().contiguous()
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    config.save_pretrained(folder)
    print(json.dumps({"wrote": folder, "bytes": sum(t.numel() * 2 for t in tensors.values())}))


def load(folder):
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation="sdpa").cuda().eval()


def time_passes(run, rounds):
    times = []
    for _ in range(rounds + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[2:])


@torch.inference_mode()
def forward(folder, lengths):
    model = load(folder)
    for length in lengths:
        batch = max(1, TOKENS // length)
        tokens = torch.randint(0, 128000, (batch, length), device="cuda")
        torch.cuda.reset_peak_memory_stats()
        ms = time_passes(lambda: model.model(tokens, use_cache=False),
                         3 if length > 4 * TOKENS else ROUNDS)
        print(json.dumps({"peer": "transformers sdpa", "length": length, "batch": batch, "ms": ms,
                          "tokens_per_s": 1000.0 * batch * length / ms,
                          "peak_bytes": torch.cuda.max_memory_allocated()}), flush=True)


@torch.inference_mode()
def decode(folder, batches):
    model = load(folder)
    for batch in batches:
        prompt = torch.randint(0, 128000, (batch, PROMPT), device="cuda")

        def run(n):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n,
                           min_new_tokens=n, do_sample=False, cache_implementation="static",
                           pad_token_id=0)
            torch.cuda.synchronize()
            return time.perf_counter() - begin

        begin = time.perf_counter()
        run(NEW), run(NEW)
        warm = time.perf_counter() - begin
        seconds = statistics.median(run(NEW) for _ in range(5))
        print(json.dumps({"peer": "transformers generate, static cache, compiled", "batch": batch,
                          "tokens_per_s": batch * NEW / seconds, "seconds": seconds,
                          "warm_up_seconds": warm,
                          "peak_bytes": torch.cuda.max_memory_allocated()}), flush=True)
        torch.compiler.reset()


def main():
    command, folder = sys.argv[1:3]
    numbers = [int(x) for x in sys.argv[3].split(",")] if len(sys.argv) > 3 else []
    {"write": lambda: write(folder), "forward": lambda: forward(folder, numbers),
     "decode": lambda: decode(folder, numbers)}[command]()


if __name__ == "__main__":
    main()
