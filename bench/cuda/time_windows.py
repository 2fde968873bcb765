"""time_windows.py - times the Hopper kernel with a left window, in ms, and the ratio of two libraries.

    python3 bench/cuda/time_windows.py build/libheadlight_cuda.so [OTHER.so]

bf16, causal, 16384 tokens per batch, 2048 / d heads; medians of 7 rounds of 5 calls.  "two" computes lse and
both entropies, "all" every statistic of the kernel.  A window of S hides nothing."""
import statistics
import sys

import torch

import headlight_cuda as hl

TWO = ("lse", "entropy", "renyi2")
ALL = TWO + ("varentropy", "entropy_nosink", "peak")


def time(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(8):  # the first one warms up
        begin.record()
        for _ in range(5):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 5)
    return statistics.median(times[1:])


def main():
    libraries = [hl.Library(path) for path in sys.argv[1:]]
    for d in (64, 128):
        for length in (1024, 4096, 16384):
            q, k, v = (torch.randn(16384 // length, 2048 // d, length, d, device="cuda",
                                   dtype=torch.bfloat16) for _ in range(3))
            for window in (128, 1024, 4096):
                for name, wanted in (("two", TWO), ("all", ALL)) if window <= length else ():
                    times = [time(library.prepare(q, k, v, causal=True, window=window - 1,
                                                  statistics=wanted, kernel="hopper")[0])
                             for library in libraries]
                    print(f"d={d:3} S={length:5} window {window:4} {name} "
                          + " ".join(f"{ms:.3f} ms" for ms in times)
                          + (f" ({times[0] / times[1]:.2f})" if len(times) > 1 else ""), flush=True)


main()
