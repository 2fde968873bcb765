"""time_decode.py - one query per sequence over many keys: the decode kernel and PyTorch's.

    python3 bench/cuda/time_decode.py build/libheadlight_cuda.so

bf16, d = 128, 32 heads that share 8 KV heads.  Each number is the median of the rounds; in a round
every method runs once, in random order.  A method's calls are captured in a CUDA graph over rotating
copies of K and V that together exceed the L2 cache, so neither launches nor cached keys
change the result.  TB/s counts one read of K and V."""
import random
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import headlight_cuda as hl

ROUNDS, CALLS, CACHE = 15, 8, 256 << 20
SHAPES = [(1, 4096), (1, 32768), (1, 131072), (16, 4096), (16, 32768), (64, 8192)]


def graph_of(calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def time_once(graph, n):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / n * 1000


def sdpa(backend, q, k, v):
    def run():
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return run


def time_shape(library, n_batch, n_keys, d=128, n_heads=32, n_kv=8):
    n_bytes = 4 * n_batch * n_kv * n_keys * d
    n_sets = max(2, min(CALLS, -(-CACHE // n_bytes)))
    q = torch.randn(n_batch, n_heads, 1, d, device="cuda", dtype=torch.bfloat16)
    sets = [[torch.randn(n_batch, n_kv, n_keys, d, device="cuda", dtype=torch.bfloat16)
             for _ in range(2)] for _ in range(n_sets)]

    def ours(statistics_wanted, kernel):
        return lambda k, v: library.prepare(q, k, v, statistics=statistics_wanted,
                                            kernel=kernel)[0]

    makers = {"decode + all stats": ours(hl.STATISTICS, "decode"),
              "decode + 2 entropies": ours(("lse", "entropy", "renyi2"), "decode"),
              "hopper": ours(("lse",), "hopper"),
              "flash": lambda k, v: sdpa(SDPBackend.FLASH_ATTENTION, q, k, v),
              "cudnn": lambda k, v: sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v)}
    graphs, times = {}, {}
    for name, make in makers.items():
        try:
            graphs[name] = graph_of([make(*kv) for kv in sets])
            times[name] = []
        except RuntimeError as error:
            print(name, "left out:", str(error).split("\n")[0])
            torch.cuda.synchronize()
    for _ in range(ROUNDS):
        order = list(graphs)
        random.shuffle(order)
        for name in order:
            times[name].append(time_once(graphs[name], n_sets))
    print(f"batch {n_batch:3} keys {n_keys:6}: " + "; ".join(
        f"{name} {statistics.median(us):.1f} us ({n_bytes / statistics.median(us) / 1e6:.2f} TB/s)"
        for name, us in times.items()), flush=True)


def main():
    library = hl.Library(sys.argv[1])
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cuDNN",
          torch.backends.cudnn.version())
    for n_batch, n_keys in SHAPES:
        time_shape(library, n_batch, n_keys)


main()
