"""check_options.py - the tensor-core kernels against float64, on random problems.

    python3 bench/cuda/check_options.py build/libheadlight_cuda.so [CASES [KERNEL ...]]

Sizes and options are drawn from a seed: grouped heads, causal, windows, kept keys, lengths and
starts, softcap, ALiBi, bias, sinks, gates, strides.  All statistics of the kernel except segment mass,
and the attention that keys receive, are compared with reference.py from the rounded inputs: statistics must be within max(1e-4, 8 * 2^-24 *
max|s|), out within 2^-7 (bf16) or 2^-10 (fp16) of its norm."""
import math
import random
import sys

import torch

import headlight_cuda as hl
import reference

WANTED = {"hopper": ("lse", "entropy", "renyi2", "varentropy", "entropy_nosink", "peak", "self",
                     "previous", "first", "max_logit")}
OUT_ALLOWED = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def rows(shape, dtype, strided):
    """Packed (b, h, s, d), or a view of (b, s, h, d), the layout of projections."""
    if not strided:
        return torch.randn(shape, device="cuda").to(dtype)
    b, h, s, d = shape
    return torch.randn((b, s, h, d), device="cuda").to(dtype).transpose(1, 2)


SIZES = {  # queries, keys, d_head of the problems for each kernel
    "portable": ([1, 5, 64, 65, 200, 333], [1, 3, 64, 127, 300, 700],
                 [32, 64, 64, 80, 96, 128, 128, 256, 7, 40]),
    "decode": ([1, 1, 1, 2, 5, 16], [1, 3, 64, 127, 1000, 3000, 9000],
               [32, 64, 64, 80, 96, 128, 128, 256, 7, 40]),
    "hopper": ([1, 64, 65, 200, 333, 1000], [1, 3, 64, 127, 300, 700, 2000],
               [64, 128, 192, 256]),
    # with tiles and windows of their own
    "hopper, long": ([2049, 2500, 3100], [2049, 3000, 4500], [64, 128, 192, 256]),
}


def draw(seed, kernel):
    r = random.Random(seed)
    torch.manual_seed(seed)
    is_hopper, is_long = "hopper" in kernel, "long" in kernel
    n_kv = r.choice([1, 2, 3])
    n_heads, n_batch = n_kv * r.choice([1, 1, 2, 4, 7]), r.choice([1, 1, 2, 3])
    if is_long:
        n_heads, n_batch = n_kv * min(n_heads // n_kv, 2), 1
    n_queries, n_keys, d = (r.choice(sizes) for sizes in SIZES[kernel])
    d_value = d if is_hopper or r.random() < 0.7 else r.choice([16, 64, 72, 128])
    if is_hopper and d == 192:  # the Hopper kernel's only unequal widths, without windows
        d_value = 128
    dtype = r.choice([torch.bfloat16, torch.float16])
    strided = r.random() < 0.5
    q = rows((n_batch, n_heads, n_queries, d), dtype, strided)
    k = rows((n_batch, n_kv, n_keys, d), dtype, strided)
    v = rows((n_batch, n_kv, n_keys, d_value), dtype, strided)
    options, arrays = dict(causal=r.random() < 0.5), {}
    if r.random() < 0.3:
        options["scale"] = r.choice([0.02, 0.5, 0.1 if is_hopper else -0.1, 1.0])
    if r.random() < (0.7 if is_long else 0.3) and not (is_hopper and d == 192):
        options["window"] = r.choice([100, 2047, 2048, 2500, 5000] if is_long else [0, 1, 30, 100])
        options["window_sink"] = r.choice([0, 0, 1, 4, 70])
    if r.random() < 0.2 and not is_hopper:
        options["softcap"] = r.choice([2.0, 30.0])
    if r.random() < 0.3:
        arrays["key_length"] = torch.tensor([r.randint(0, n_keys) for _ in range(n_batch)])
    if r.random() < 0.3:
        arrays["query_start"] = torch.tensor([r.randint(-20, n_keys) for _ in range(n_batch)])
    if r.random() < 0.2 and not is_hopper:
        arrays["alibi_slopes"] = torch.rand(n_heads)
    if r.random() < 0.2 and not is_hopper:
        bias = torch.randn(n_heads, n_keys)
        bias[:, ::5] = -math.inf
        arrays["key_bias"] = bias
    for name in ("sinks", "gates"):
        if r.random() < 0.2:
            arrays[name] = torch.randn(n_heads)
    options["arrays"] = {name: array.cuda() for name, array in arrays.items()}
    return q, k, v, options


def compare(seed, library, kernel):
    q, k, v, options = draw(seed, kernel)
    label, kernel = kernel, kernel.split(",")[0]
    names = WANTED.get(kernel, hl.STATISTICS)
    known = {name: value for name, value in options.items() if name != "arrays"}
    for name, array in options["arrays"].items():
        short = {"query_start": "start", "key_length": "length"}.get(name)
        known[short or name] = array.tolist() if short else array
    wanted = reference.forward(q, k, v, **known)
    exact = wanted["out"]
    seen = library.forward(q, k, v, statistics=names, kernel=kernel, **options)
    torch.cuda.synchronize()
    allowed = max(1e-4, 8 * 2.0**-24 * wanted["max_score"])
    problems = []
    for name in names:
        a, b = seen[name].double(), wanted[name].double()
        error = torch.where(a == b, 0.0, (a - b).abs())
        if name == "argmax":  # two keys may tie within rounding
            error = torch.where((wanted["peak"] < 0.5 + 1e-4) & (b >= 0) & (a >= 0), 0.0, error)
        bound = allowed * (max(1.0, 2 * b.max().sqrt().item()) if name == "varentropy" else 1)
        if not error.max().item() <= bound:
            problems.append(f"{name} off by {error.max().item():.2e}, allowed {bound:.1e}")
    norm = max(exact.norm().item(), 1e-30)
    error = (seen["out"].double() - exact).norm().item() / norm
    if not error <= OUT_ALLOWED[q.dtype]:
        problems.append(f"out off by {error:.2e}")
    if kernel != "decode":
        for last, exact in wanted["received"].items():
            run, sums = library.prepare_received(q, k, seen["lse"], last, kernel, **options)
            run()
            torch.cuda.synchronize()
            error = (sums.double() - exact).abs().max().item()
            bound = allowed * max(1.0, exact.max().item())
            if not error <= bound:
                problems.append(f"received ({last}) off by {error:.2e}, allowed {bound:.1e}")
    if problems:
        shown = {name: value for name, value in options.items() if name != "arrays"}
        print(f"BAD {label} seed {seed} q {tuple(q.shape)} k {tuple(k.shape)} d_value {v.shape[3]} "
              f"{q.dtype} {shown} {sorted(options['arrays'])}:", "; ".join(problems), flush=True)
    return not problems


def main():
    library = hl.Library(sys.argv[1])
    n_cases = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    kernels = sys.argv[3:] or list(SIZES)
    good = True
    for kernel in kernels:
        n_good = sum(compare(seed, library, kernel) for seed in range(n_cases))
        print(f"{kernel}: {n_good} of {n_cases} random problems agree", flush=True)
        good = good and n_good == n_cases
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
