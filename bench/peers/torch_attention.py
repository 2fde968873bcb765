"""Attention with entropies as PyTorch users write it: eager, materialized; and PyTorch's
scaled_dot_product_attention, which has no entropies.

Started by bench/peer.c with the number of threads; reads "time S" and "sdpa S" lines and
answers with the seconds of one run for B=1 H=12 D=64, causal, f32.  Heads are
taken in groups where the matrices of all of them would not fit into memory.
"""
import math
import sys
import time

HEADS, DIM = 12, 64
# scores, masked scores, probabilities, p + eps, its log, the product
MATRICES = 6


def available_bytes():
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def attention(torch, q, k, v, mask):
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(DIM)
    scores = scores.masked_fill(mask, -math.inf)
    p = torch.softmax(scores, dim=-1)
    entropy = -(p * torch.log(p + 1e-8)).sum(dim=-1)
    return p @ v, entropy


def make_inputs(torch, length):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(1, HEADS, length, DIM, generator=generator) for _ in range(3)]
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    return (*rows, mask)


def time_once(torch, inputs, length):
    q, k, v, mask = inputs
    group = min(HEADS, int(0.7 * available_bytes() / (MATRICES * 4 * length * length)))
    if group < 1:
        return "no memory for a matrix of %d keys" % length
    start = time.perf_counter()
    for head in range(0, HEADS, group):
        end = head + group
        attention(torch, q[:, head:end], k[:, head:end], v[:, head:end], mask)
    return "%.9f" % (time.perf_counter() - start)


def time_fused(torch, inputs):
    q, k, v, _ = inputs
    start = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return "%.9f" % (time.perf_counter() - start)


def main():
    try:
        import torch
    except ImportError:
        print("no this python3 has no torch", flush=True)
        return
    torch.set_num_threads(int(sys.argv[1]))
    print("ready PyTorch", torch.__version__, flush=True)
    kept, inputs = None, None
    with torch.no_grad():
        for line in sys.stdin:
            word, length = line.split()[0], int(line.split()[1])
            if length != kept:
                kept, inputs = length, make_inputs(torch, length)
            if word == "sdpa":
                print(time_fused(torch, inputs), flush=True)
            else:
                print(time_once(torch, inputs, length), flush=True)


if __name__ == "__main__":
    main()
