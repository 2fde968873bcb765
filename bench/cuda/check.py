"""check.py - the CUDA forward against float64 computed from the rounded inputs.

    python3 bench/cuda/check.py build/libheadlight_cuda.so [hopper|portable|plain|auto]

Entropies, lse and Renyi-2 must be within max(1e-4, 8 * 2^-24 * max|s|).  The error of out may be at
most twice that of PyTorch's flash attention, if that takes the problem.  Exit status 1 if a limit is
exceeded."""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import headlight_cuda as hl
import reference

CASES = [  # batch, heads, kv heads, queries, keys, options
    (1, 1, 1, 128, 128, dict()),
    (1, 1, 1, 128, 128, dict(causal=True)),
    (1, 2, 2, 256, 512, dict()),
    (2, 4, 2, 1024, 1024, dict(causal=True)),
    (1, 2, 1, 1000, 1000, dict(causal=True)),
    (1, 2, 2, 77, 300, dict(causal=True)),
    (1, 2, 2, 300, 77, dict(causal=True)),
    (2, 8, 2, 513, 1111, dict(causal=True, start=[598, 100], length=[1111, 700])),
    (2, 4, 4, 333, 999, dict(length=[999, 130])),
    (1, 4, 2, 600, 600, dict(causal=True, sinks=True, gates=True)),
    (1, 4, 4, 500, 500, dict(causal=True, scale=3.0)),
    (1, 2, 2, 1500, 1500, dict(causal=True, growing=True)),
    (1, 2, 2, 200, 1500, dict(growing=True)),
    (3, 16, 16, 2048, 2048, dict(causal=True)),
    (1, 2, 2, 8192, 8192, dict(causal=True)),
]


def relative(seen, wanted):
    return ((seen.double() - wanted).norm() / wanted.norm()).item()


def flash_error(q, k, v, options, wanted):
    plain = set(options) <= {"causal", "scale"}
    if not plain or q.shape[3] != v.shape[3] or (options.get("causal") and q.shape[2] != k.shape[2]):
        return None
    group = q.shape[1] // k.shape[1]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1),
                                             v.repeat_interleave(group, 1),
                                             is_causal=options.get("causal", False),
                                             scale=options.get("scale"))
    return relative(out, wanted)


def run_case(library, kernel, dtype, d, case, seed):
    n_batch, n_heads, n_kv, n_queries, n_keys, options = case
    torch.manual_seed(seed)
    options = dict(options)
    d_value = 128 if d == 192 else d
    q, k, v = (torch.randn(n_batch, heads, rows, width, device="cuda").to(dtype)
               for heads, rows, width in ((n_heads, n_queries, d), (n_kv, n_keys, d), (n_kv, n_keys, d_value)))
    if options.pop("growing", False):  # scores grow toward key 0, so that maxima keep moving
        k = (k.float() * torch.linspace(12, 0.1, n_keys, device="cuda")[:, None]).to(dtype)
    arrays, known = {}, {}
    for name, field in (("start", "query_start"), ("length", "key_length")):
        if name in options:
            arrays[field] = torch.tensor(options[name], dtype=torch.int64, device="cuda")
            known[name] = options.pop(name)
    for name in ("sinks", "gates"):
        if options.pop(name, False):
            arrays[name] = known[name] = torch.randn(n_heads, device="cuda")
    wanted = reference.forward(q, k, v, **options, **known)
    seen = library.forward(q, k, v, kernel=kernel, arrays=arrays, **options)
    torch.cuda.synchronize()
    # Tensor cores truncate the sum after every 16 products, so that a score's error grows with d.
    allowed = max(1e-4, 8 * max(1, d / 128) * 2.0**-24 * wanted["max_score"])
    errors = {}
    for name in ("lse", "entropy", "renyi2"):
        a, b = seen[name].double(), wanted[name]
        errors[name] = torch.where(a == b, 0.0, (a - b).abs()).max().item()
    errors["out"] = relative(seen["out"], wanted["out"])
    peer = flash_error(q, k, v, dict(case[5]), wanted["out"])
    good = (all(errors[name] <= allowed for name in ("lse", "entropy", "renyi2")) and
            errors["out"] <= (2 * peer if peer is not None else 1e-2))
    print(f"{'ok  ' if good else 'BAD '} {kernel} {str(dtype)[6:]:8} d={d:3} {case} "
          + " ".join(f"{name} {error:.1e}" for name, error in errors.items())
          + (f" (flash {peer:.1e})" if peer is not None else ""), flush=True)
    return good


def main():
    library = hl.Library(sys.argv[1])
    kernel = sys.argv[2] if len(sys.argv) > 2 else "auto"
    good = True
    for dtype in (torch.bfloat16, torch.float16):
        for d in (64, 128, 192, 256):
            for seed, case in enumerate(CASES):
                good = run_case(library, kernel, dtype, d, case, seed) and good
    print("all good" if good else "SOME ARE BAD")
    return 0 if good else 1


sys.exit(main())
