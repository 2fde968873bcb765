"""check_backward.py - the tensor-core gradients against float64 autograd from the rounded inputs.

    python3 bench/cuda/check_backward.py build/libheadlight_cuda.so [CASES [GOLDEN]]

There are problems like those of training (d 64 and 128, bf16 and fp16, causal and not, grouped heads,
windows, lengths, starts, sinks, gates), CASES random ones with every option (200), and the stored cases
in the folder GOLDEN: unchanged for the plain kernel, rounded for the others.  Entropy and lse take part
in every loss.  The errors of dq, dk and dv may be twice those of the plain method that rounds P, dS, out
and the results (reference_backward.py).  Without an entropy loss they may be twice those of PyTorch's
flash attention, if that takes the problem.  dgates and dsinks are sums of floats: their errors are
limited to a share of the sum of absolute values.  Every case runs twice and must give the same bytes.
Exit status 1 if a limit is exceeded."""
import json
import math
import os
import random
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import headlight_cuda as hl
import reference_backward

ARRAYS = ("query_start", "key_length", "alibi_slopes", "key_bias", "sinks", "gates")
OPTIONS = ("causal", "scale", "window_left", "window_right", "window_sink", "softcap")


def relative(seen, wanted):
    return ((seen.double() - wanted).norm() / wanted.norm().clamp(min=1e-30)).item()


def draw(n_batch, n_heads, n_kv, n_queries, n_keys, d, dtype, d_value=None, strided=False, **options):
    d_value = d_value or d

    def rows(heads, count, width):
        if not strided:
            return torch.randn(n_batch, heads, count, width, device="cuda").to(dtype)
        return torch.randn(n_batch, count, heads, width, device="cuda").to(dtype).transpose(1, 2)

    problem = dict(q=rows(n_heads, n_queries, d), k=rows(n_kv, n_keys, d), v=rows(n_kv, n_keys, d_value),
                   grad_out=rows(n_heads, n_queries, d_value),
                   grad_entropy=torch.randn(n_batch, n_heads, n_queries, device="cuda"),
                   grad_lse=torch.randn(n_batch, n_heads, n_queries, device="cuda"))
    problem.update(scale=1 / math.sqrt(d))
    for name, value in options.items():
        if name in ("sinks", "gates") and value is True:
            value = torch.randn(n_heads, device="cuda")
        if name in ("query_start", "key_length"):
            value = torch.tensor(value, dtype=torch.int64, device="cuda")
        problem[name] = value
    return problem


def run(library, problem, kernel):
    """headlight's forward pass for out, lse and entropy, then its gradient."""
    options = {name: problem[name] for name in OPTIONS if name in problem}
    options["window"] = options.pop("window_left", None)
    arrays = {name: problem[name] for name in ARRAYS if problem.get(name) is not None}
    q, k, v = problem["q"], problem["k"], problem["v"]
    forward = library.forward(q, k, v, statistics=("lse", "entropy"), arrays=arrays, **options)
    call, found = library.prepare_backward(q, k, v, problem, forward, kernel=kernel, arrays=arrays,
                                           **options)
    call()
    torch.cuda.synchronize()
    return found


def flash_errors(problem, wanted):
    q, k, v = (problem[name].detach().requires_grad_() for name in "qkv")
    group = q.shape[1] // k.shape[1]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1),
                                             v.repeat_interleave(group, 1),
                                             is_causal=problem.get("causal", False),
                                             scale=problem["scale"])
        found = torch.autograd.grad(out, (q, k, v), problem["grad_out"])
    return {name: relative(x, wanted[name]) for name, x in zip(("dq", "dk", "dv"), found)}


def compare(library, problem, kernel, label, show=True, peer=False):
    wanted, rounded, allowed = reference_backward.gradients(problem)
    seen, again = run(library, problem, kernel), run(library, problem, kernel)
    flash = flash_errors(problem, wanted) if peer else {}
    bad, text = [], []
    for name in ("dq", "dk", "dv"):
        error, bound = relative(seen[name], wanted[name]), 2 * relative(rounded[name], wanted[name])
        if problem["q"].dtype == torch.float32:  # lse and entropy are floats too
            bound = max(1e-5, 8 * 2.0**-24 * allowed["max_score"])
        if name in flash:
            bound = min(bound, 2 * flash[name])
        text.append(f"{name} {error:.1e} ({bound / 2:.1e}" +
                    (f", flash {flash[name]:.1e})" if name in flash else ")"))
        if not error <= bound + 1e-6:
            bad.append(name)
    for name in ("dgates", "dsinks"):
        if name in seen:
            error = (seen[name].double() - wanted[name]).abs()
            text.append(f"{name} {(error / allowed[name].clamp(min=1e-30)).max().item():.2f}")
            if not (error <= allowed[name] + 1e-6).all():
                bad.append(name)
    for name in seen:
        one, other = (x[name].contiguous().view(torch.uint8) for x in (seen, again))
        if not torch.equal(one, other):
            bad.append(f"{name} differs between runs")
    if bad or show:
        print("BAD " + ", ".join(bad) if bad else "ok  ", kernel, label, " ".join(text), flush=True)
    return not bad


TRAINING = [  # batch, heads, kv heads, queries, keys, options
    (1, 1, 1, 64, 128, dict()),
    (1, 1, 1, 128, 128, dict(causal=True)),
    (1, 2, 2, 256, 512, dict()),
    (2, 4, 2, 1024, 1024, dict(causal=True)),
    (1, 2, 1, 1000, 1000, dict(causal=True)),
    (1, 2, 2, 77, 300, dict(causal=True)),
    (1, 2, 2, 300, 77, dict(causal=True)),
    (2, 8, 2, 513, 1111, dict(causal=True, query_start=[598, 100], key_length=[1111, 700])),
    (2, 4, 4, 333, 999, dict(key_length=[999, 130])),
    (2, 2, 2, 333, 999, dict(key_length=[0, 5])),
    (1, 4, 2, 600, 600, dict(causal=True, sinks=True, gates=True)),
    (1, 4, 4, 500, 500, dict(causal=True, scale=1.0)),
    (1, 4, 1, 1500, 1500, dict(causal=True, window_left=200)),
    (1, 2, 2, 700, 700, dict(window_left=100, window_right=30)),
    (1, 2, 2, 2048, 2048, dict(causal=True)),
    (1, 1, 1, 4096, 4096, dict(causal=True)),
]


def check_training(library, kernels):
    good = True
    for dtype in (torch.bfloat16, torch.float16):
        for d in (64, 128):
            for seed, (*sizes, options) in enumerate(TRAINING):
                for kernel in kernels:
                    torch.manual_seed(seed)
                    problem = draw(*sizes, d, dtype, **options)
                    label = f"{str(dtype)[6:]} d={d} {sizes} {options}"
                    good = compare(library, problem, kernel, label) and good
                    plain = set(options) <= {"causal", "scale"}
                    if plain and not (options.get("causal") and sizes[3] != sizes[4]):
                        problem["grad_entropy"].zero_()
                        problem["grad_lse"].zero_()
                        good = compare(library, problem, kernel, label + " no entropy",
                                       peer=True) and good
    return good


def check_random(library, n_cases):
    n_good = 0
    for seed in range(n_cases):
        r = random.Random(seed)
        torch.manual_seed(seed)
        n_kv = r.choice([1, 2, 3])
        n_batch, n_keys = r.choice([1, 1, 2, 3]), r.choice([1, 3, 64, 127, 300, 700])
        n_heads, n_queries = n_kv * r.choice([1, 1, 2, 4]), r.choice([1, 5, 64, 65, 200, 333])
        d = r.choice([32, 64, 64, 64, 80, 96, 128, 128, 128, 7, 40])
        options = dict(causal=r.random() < 0.5, strided=r.random() < 0.5)
        if r.random() < 0.3:
            options["d_value"] = r.choice([16, 64, 72, 128])
        if r.random() < 0.3:
            options["scale"] = r.choice([0.02, 0.5, -0.1, 1.0])
        if r.random() < 0.4:
            options["window_left"] = r.choice([0, 1, 30, 100])
            options["window_sink"] = r.choice([0, 0, 0, 1, 4, 70])
        if r.random() < 0.2 and not options["causal"]:
            options["window_right"] = r.choice([0, 7, 90])
        if r.random() < 0.15:
            options["softcap"] = r.choice([2.0, 30.0])
        if r.random() < 0.3:
            options["key_length"] = [r.randint(0, n_keys) for _ in range(n_batch)]
        if r.random() < 0.3:
            options["query_start"] = [r.randint(-20, n_keys) for _ in range(n_batch)]
        if r.random() < 0.15:
            options["alibi_slopes"] = torch.rand(n_heads, device="cuda")
        if r.random() < 0.15:
            options["key_bias"] = torch.randn(n_heads, n_keys, device="cuda")
            options["key_bias"][:, ::5] = -math.inf
        options["sinks"], options["gates"] = (True if r.random() < 0.25 else None for _ in range(2))
        dtype = r.choice([torch.bfloat16, torch.float16])
        problem = draw(n_batch, n_heads, n_kv, n_queries, n_keys, d, dtype, **options)
        for kernel in ("auto", "portable"):
            n_good += compare(library, problem, kernel, f"seed {seed} {dtype} d={d} "
                              f"{tuple(problem['q'].shape)} {options}", show=False)
    print(f"{n_good} of {2 * n_cases} random runs agree", flush=True)
    return n_good == 2 * n_cases


def check_golden(library, folder):
    from safetensors import safe_open
    n_good = n_runs = 0
    for file in sorted(os.listdir(folder)):
        with safe_open(os.path.join(folder, file), "pt", "cuda") as stored:
            case = json.loads(stored.metadata()["case"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}
        problem = {name: tensors[name] for name in
                   ("q", "k", "v", "grad_out", "grad_entropy", "grad_lse", *ARRAYS) if name in tensors}
        problem.update({name: case[name] for name in OPTIONS if name in case})
        wanted = reference_backward.gradients(problem)[0]  # the reference must agree with the stored results
        for name in ("dq", "dk", "dv", "dgates", "dsinks"):
            if name in tensors and relative(wanted[name], tensors[name].double()) > 1e-5:
                print(f"BAD reference, {file} {name} {relative(wanted[name], tensors[name].double()):.1e}")
                n_runs += 1
        n_runs += 1
        n_good += compare(library, problem, "plain", f"golden {file} float32", show=False)
        if max(problem["q"].shape[3], problem["v"].shape[3]) > 128:
            continue
        for dtype in (torch.bfloat16, torch.float16):
            low = dict(problem, **{name: problem[name].to(dtype) for name in ("q", "k", "v", "grad_out")})
            for kernel in ("auto", "portable"):
                n_runs += 1
                n_good += compare(library, low, kernel, f"golden {file} {dtype}", show=False)
    print(f"{n_good} of {n_runs} golden runs agree", flush=True)
    return n_good == n_runs


def main():
    library = hl.Library(sys.argv[1])
    good = check_training(library, ("hopper", "portable"))
    good = check_random(library, int(sys.argv[2]) if len(sys.argv) > 2 else 200) and good
    if len(sys.argv) > 3:
        good = check_golden(library, sys.argv[3]) and good
    print("all good" if good else "SOME ARE BAD")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
