"""time_backward.py - forward and backward with an entropy loss, compared with cuDNN without one.

    python3 bench/cuda/time_backward.py build/libheadlight_cuda.so [KERNELS [LENGTHS]]

bf16, causal, 16384 tokens per batch, 2048 / d heads.  cuDNN and flash are PyTorch's
scaled_dot_product_attention and its autograd; headlight runs the forward pass with entropy and the
gradient with upstream gradients of out and entropy.  Each number is the median of the rounds.  In a round
every method runs once, in random order, each timed by events around several calls.  HEADLIGHT_JSON names
a file for the times of all rounds, in milliseconds per call."""
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


def sdpa(backend, q, k, v, grad_out):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))

    def run():
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), grad_out)
    return run


def ours(library, kernel, q, k, v, upstream):
    forward, found = library.prepare(q, k, v, statistics=("lse", "entropy"), causal=True)
    backward, _ = library.prepare_backward(q, k, v, upstream, found, kernel=kernel, causal=True)

    def run():
        forward()
        backward()
    return run, backward


def time_once(run, n):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(n):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / n


def time_shape(library, d, length, kernels):
    n_batch, n_heads = 16384 // length or 1, 2048 // d
    q, k, v, grad_out = (torch.randn(n_batch, n_heads, length, d, device="cuda", dtype=torch.bfloat16)
                         for _ in range(4))
    upstream = dict(grad_out=grad_out,
                    grad_entropy=torch.randn(n_batch, n_heads, length, device="cuda"))
    methods = {"cudnn": sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, grad_out),
               "flash": sdpa(SDPBackend.FLASH_ATTENTION, q, k, v, grad_out)}
    for kernel in kernels:
        methods[kernel], methods[kernel + " backward"] = ours(library, kernel, q, k, v, upstream)
    for run in methods.values():
        run(), run(), torch.cuda.synchronize()
    times = {name: [] for name in methods}
    for _ in range(ROUNDS):
        order = list(methods)
        random.shuffle(order)  # because of the power limit, each method slows the next
        for name in order:
            times[name].append(time_once(methods[name], 3))
    return times


def memory_taken(library):
    """The device memory that a gradient takes and keeps, in bytes."""
    q, k, v, grad_out = (torch.randn(1, 16, 32768, 128, device="cuda", dtype=torch.bfloat16)
                         for _ in range(4))
    run, _ = ours(library, "auto", q, k, v, dict(grad_out=grad_out))
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    run()
    torch.cuda.synchronize()
    return before - torch.cuda.mem_get_info()[0]


def main():
    library = hl.Library(sys.argv[1])
    kernels = sys.argv[2].split(",") if len(sys.argv) > 2 else ["hopper"]
    lengths = [int(x) for x in sys.argv[3].split(",")] if len(sys.argv) > 3 else \
        [1024, 2048, 4096, 8192, 16384]
    report = dict(device=torch.cuda.get_device_name(), torch=torch.__version__,
                  cudnn=torch.backends.cudnn.version(), rounds=ROUNDS, shapes=[])
    report["memory_taken"] = memory_taken(library)
    print("memory taken by a gradient, 16 heads, S=32768 d=128:", report["memory_taken"], "bytes")
    for d in (64, 128):
        for length in lengths:
            times = time_shape(library, d, length, kernels)
            report["shapes"].append(dict(d=d, length=length, ms=times))
            median = {name: statistics.median(ms) for name, ms in times.items()}
            print(f"d={d:3} S={length:5} " + " ".join(f"{name} {ms:.3f} ms"
                                                      for name, ms in median.items()) +
                  "".join(f"; {kernel} / cudnn {median[kernel] / median['cudnn']:.3f}"
                          for kernel in kernels), flush=True)
    if "HEADLIGHT_JSON" in os.environ:
        with open(os.environ["HEADLIGHT_JSON"], "w") as file:
            json.dump(report, file)


if __name__ == "__main__":
    main()
