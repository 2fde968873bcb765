"""check_not_finite.py - NaN and infinity in the inputs of the tensor-core kernels.

    python3 bench/cuda/check_not_finite.py build/libheadlight_cuda.so [CASES [KERNEL ...]]

Takes check_options.py's random problems, with NaN, +inf or -inf in one to three places of q, k, v or the
key bias, and compares with the plain kernel, which is the scalar definition in double precision
(tests/test_attention_agreement compares that kernel with the CPU's).  A statistic must be NaN where the
plain kernel's is NaN, and the same infinity where it is infinite; elsewhere it must be within
check_options.py's tolerance.  `out` must be non-finite wherever the plain kernel's is.  A non-finite value
may reach more rows of `out`, since tensor cores multiply hidden keys by 0.  Gradients are compared in the
same way: where one should be NaN or infinite, it must not be finite."""
import math
import random
import sys

import torch

import check_options as drawn
import headlight_cuda as hl

BAD = [math.nan, math.nan, math.inf, -math.inf]


def spoil(seed, kernel, q, k, v, options):
    r = random.Random(seed * 7919 + 1)
    arrays = options["arrays"]
    for _ in range(r.randint(1, 3)):
        where = r.choice(["q", "q", "k", "v"] + ([] if "hopper" in kernel else ["bias"]))
        if where == "bias":
            if "key_bias" not in arrays:
                arrays["key_bias"] = torch.zeros(q.shape[1], k.shape[2], device="cuda")
            target = arrays["key_bias"]
        else:
            target = {"q": q, "k": k, "v": v}[where]
        target[tuple(r.randrange(n) for n in target.shape)] = r.choice(BAD)


def laundered(name, seen, wanted):
    """A message, in a list, if values are finite that should not be."""
    n = (~wanted.isfinite() & seen.isfinite()).sum().item()
    return [f"{name}: {n} numbers where NaN or infinity is due"] if n else []


def compare_gradients(q, k, v, options, library):
    exact = library.forward(q, k, v, kernel="plain", **options)
    above = {"grad_out": torch.randn_like(exact["out"]), "grad_entropy": torch.randn_like(exact["entropy"])}
    found = []
    for kernel in ("plain", "auto"):
        run, gradient = library.prepare_backward(q, k, v, above, exact, kernel=kernel, **options)
        run()
        found.append(gradient)
    torch.cuda.synchronize()
    return [problem for name in ("dq", "dk", "dv") for problem in laundered(name, found[1][name], found[0][name])]


def compare(seed, library, kernel):
    q, k, v, options = drawn.draw(seed, kernel)
    label, kernel = kernel, kernel.split(",")[0]
    spoil(seed, label, q, k, v, options)
    names = drawn.WANTED.get(kernel, hl.STATISTICS)
    wanted = library.forward(q, k, v, statistics=names, kernel="plain", **options)
    seen = library.forward(q, k, v, statistics=names, kernel=kernel, **options)
    torch.cuda.synchronize()
    sizes = [x.float().abs().nan_to_num(0.0, 0.0, 0.0).max().item() if x.numel() else 0.0 for x in (q, k)]
    allowed = max(1e-4, 8 * 2.0**-24 * sizes[0] * sizes[1] * q.shape[3])
    problems = laundered("out", seen["out"], wanted["out"])
    for name in names:
        a, b = seen[name].double(), wanted[name].double()
        if name == "argmax":
            bad = (a < 0) != (b < 0)
        else:
            finite = b[b.isfinite()]
            bound = allowed * (max(1.0, 2 * finite.max().clamp(min=0).sqrt().item())
                               if name == "varentropy" and finite.numel() else 1)
            same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= bound)
            bad = ~same
        if bad.any():
            at = bad.nonzero()[0].tolist()
            problems.append(f"{name} of {int(bad.sum())} rows, at {at} {a[tuple(at)].item()} for {b[tuple(at)].item()}")
    problems += compare_gradients(q, k, v, options, library) if seed % 4 == 0 else []
    if problems:
        print(f"BAD {label} seed {seed} q {tuple(q.shape)} k {tuple(k.shape)} {q.dtype} "
              f"{sorted(options['arrays'])}:", "; ".join(problems), flush=True)
    return not problems


def main():
    library = hl.Library(sys.argv[1])
    n_cases = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    good = True
    for kernel in sys.argv[3:] or list(drawn.SIZES):
        n_good = sum(compare(seed, library, kernel) for seed in range(n_cases))
        print(f"{kernel}: {n_good} of {n_cases} spoiled problems agree", flush=True)
        good = good and n_good == n_cases
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
