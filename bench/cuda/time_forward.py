"""time_forward.py - the CUDA forward with and without statistics, compared with cuDNN and flash.

    python3 bench/cuda/time_forward.py build/libheadlight_cuda.so [KERNELS [LENGTHS [WIDTHS]]]

bf16, causal, 16384 tokens per batch, 2048 / d heads; d = 192 has values of 128.  Each number is the median of the rounds.
In a round every method runs once, in random order, each timed by events around several calls.
TFLOP/s counts S^2 (d + d_value) per head, half of the full square's.  HEADLIGHT_JSON names a file for
the times of all rounds, in milliseconds per call."""
import json
import os
import random
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import headlight_cuda as hl

ROUNDS = 15
LEVELS = {"": ("lse",), " + two": ("lse", "entropy", "renyi2"),
          " + all": ("lse", "entropy", "renyi2", "varentropy", "entropy_nosink", "peak", "self",
                     "previous", "first", "max_logit")}


def sdpa(backend, q, k, v):
    def run():
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return run


def flash3(q, k, v):
    """FlashAttention-3, of the build that HEADLIGHT_FA3 names; its rows are (batch, row, head, d)."""
    sys.path.insert(0, os.environ["HEADLIGHT_FA3"])
    from flash_attn_interface import flash_attn_func
    rows = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    return lambda: flash_attn_func(*rows, causal=True)


def time_once(run, n):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(n):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / n


def time_shape(library, d, length, kernels):
    n_batch, n_heads, d_value = 16384 // length or 1, 2048 // d, 128 if d == 192 else d
    q, k, v = (torch.randn(n_batch, n_heads, length, width, device="cuda", dtype=torch.bfloat16)
               for width in (d, d, d_value))
    methods = {"cudnn": sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v)}
    if d == d_value:
        methods["flash"] = sdpa(SDPBackend.FLASH_ATTENTION, q, k, v)
    if "HEADLIGHT_FA3" in os.environ:
        methods["flash3"] = flash3(q, k, v)
    for kernel in kernels:
        for name, wanted in LEVELS.items():
            methods[f"{kernel}{name}"] = library.prepare(
                q, k, v, statistics=wanted, kernel=kernel, causal=True)[0]
        lse = library.forward(q, k, v, statistics=("lse",), kernel=kernel, causal=True)["lse"]
        methods[f"{kernel} received"] = library.prepare_received(q, k, lse, kernel=kernel,
                                                                 causal=True)[0]
    flops = 1.0 * length * length * (d + d_value) * n_heads * n_batch
    times = {name: [] for name in methods}
    for name in list(methods):
        try:
            methods[name](), methods[name](), torch.cuda.synchronize()
        except RuntimeError as error:
            print(name, "left out:", error)
            del methods[name], times[name]
    for _ in range(ROUNDS):
        order = list(methods)
        random.shuffle(order)  # because of the power limit, each method slows the next
        for name in order:
            times[name].append(time_once(methods[name], 3))
    return flops, times


def memory_taken(library):
    """The device memory that a call takes and keeps, in bytes."""
    q, k, v = (torch.randn(1, 16, 32768, 128, device="cuda", dtype=torch.bfloat16)
               for _ in range(3))
    run, _ = library.prepare(q, k, v, causal=True)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    run()
    torch.cuda.synchronize()
    return before - torch.cuda.mem_get_info()[0]


def main():
    library = hl.Library(sys.argv[1])
    kernels = sys.argv[2].split(",") if len(sys.argv) > 2 else ["hopper"]
    lengths = [int(x) for x in sys.argv[3].split(",")] if len(sys.argv) > 3 else \
        [1024, 2048, 4096, 8192, 16384, 32768]
    report = dict(device=torch.cuda.get_device_name(), torch=torch.__version__,
                  cudnn=torch.backends.cudnn.version(), rounds=ROUNDS, shapes=[])
    for d in [int(x) for x in sys.argv[4].split(",")] if len(sys.argv) > 4 else (64, 128, 192, 256):
        for length in lengths:
            flops, times = time_shape(library, d, length, kernels)
            report["shapes"].append(dict(d=d, length=length, flops=flops, ms=times))
            print(f"d={d:3} S={length:5} " + " ".join(
                f"{name} {flops / statistics.median(ms) / 1e9:.0f}"
                for name, ms in times.items()), flush=True)
    report["memory_taken"] = memory_taken(library)
    print("memory taken by a call, S=32768 d=128:", report["memory_taken"], "bytes")
    if "HEADLIGHT_JSON" in os.environ:
        with open(os.environ["HEADLIGHT_JSON"], "w") as file:
            json.dump(report, file)


main()
