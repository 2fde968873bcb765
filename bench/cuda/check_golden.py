"""check_golden.py - the golden cases, rounded to bf16 and fp16, on the tensor-core kernels.

    python3 bench/cuda/check_golden.py build/libheadlight_cuda.so FOLDER

FOLDER has the operator's cases (*.safetensors).  They are f32, which `headlight verify --device cuda`
runs on the plain kernel alone.  Here q, k and v are rounded, and every kernel that takes the case
is compared with float64 from the rounded numbers.  For the Hopper kernel, widths below 64, or between
64, 128 and 256, are padded with zeros, which changes no result.  Every statistic that the kernel computes
must be within max(1e-4, 8 * 2^-24 * max|s|) (varentropy: times its spread), out within 2^-7
(bf16) or 2^-10 (fp16) of its norm."""
import glob
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open

import headlight_cuda as hl
import reference

ARRAYS = ("key_length", "query_start", "alibi_slopes", "key_bias", "sinks", "gates")
WANTED = {"hopper": ("lse", "entropy", "renyi2", "varentropy", "entropy_nosink", "peak", "self",
                     "previous", "first")}
OUT_ALLOWED = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def read(path):
    with safe_open(path, "pt") as file:
        case = json.loads(file.metadata()["case"])
        return case, {name: file.get_tensor(name).cuda() for name in file.keys()
                      if name in ("q", "k", "v", *ARRAYS)}


def options_of(case, tensors):
    """The options for the library and those for the reference."""
    shared = dict(causal=case.get("causal", False), scale=case["scale"],
                  softcap=case.get("softcap", 0.0), window=case.get("window_left"),
                  window_right=case.get("window_right"), window_sink=case.get("window_sink", 0))
    arrays = {name: tensors[name].contiguous() for name in ARRAYS if name in tensors}
    known = dict(arrays)
    for name, short in (("query_start", "start"), ("key_length", "length")):
        if name in known:
            known[short] = known.pop(name).tolist()
    return dict(shared, arrays=arrays), dict(shared, **known)


def widened(kernel, tensors):
    """The tensors in the layout that the kernel takes."""
    if kernel != "hopper":
        return tensors
    most = max(t.shape[3] for t in tensors)
    width = next((w for w in (64, 128, 256) if most <= w), most)
    return [F.pad(t, (0, width - t.shape[3])) for t in tensors]


def problems_of(seen, wanted, names, dtype):
    allowed = max(1e-4, 8 * 2.0**-24 * wanted["max_score"])
    for name in names:
        a, b = seen[name].double(), wanted[name].double()
        error = torch.where(a == b, 0.0, (a - b).abs())
        if name == "argmax":  # two keys may tie within rounding
            error = torch.where((wanted["peak"] < 0.5 + 1e-4) & (b >= 0) & (a >= 0), 0.0, error)
        bound = allowed * (max(1.0, 2 * b.max().sqrt().item()) if name == "varentropy" else 1)
        if not error.max().item() <= bound:
            yield f"{name} off by {error.max().item():.2e}, allowed {bound:.1e}"
    out = seen["out"][..., :wanted["out"].shape[3]].double()
    error = ((out - wanted["out"]).norm() / wanted["out"].norm().clamp(min=1e-30)).item()
    if not error <= OUT_ALLOWED[dtype]:
        yield f"out off by {error:.2e}"


def main():
    library, n_bad = hl.Library(sys.argv[1]), 0
    ran = {kernel: 0 for kernel in ("portable", "decode", "hopper")}
    paths = sorted(glob.glob(os.path.join(sys.argv[2], "*.safetensors")))
    for path in paths:
        case, tensors = read(path)
        options, known = options_of(case, tensors)
        for dtype in OUT_ALLOWED:
            rounded = [tensors[name].to(dtype) for name in "qkv"]
            wanted = reference.forward(*rounded, **known)
            for kernel in ran:
                names = WANTED.get(kernel, hl.STATISTICS)
                try:
                    seen = library.forward(*widened(kernel, rounded), statistics=names,
                                           kernel=kernel, **options)
                except RuntimeError as refusal:
                    if "does not take" not in str(refusal):
                        raise
                    continue
                torch.cuda.synchronize()
                ran[kernel] += 1
                for problem in problems_of(seen, wanted, names, dtype):
                    n_bad += 1
                    print(f"BAD {os.path.basename(path)} {kernel} {str(dtype)[6:]}: {problem}")
    print(f"{len(paths)} golden cases in two types; run on " +
          ", ".join(f"{kernel} {n}" for kernel, n in ran.items()) + f"; {n_bad} problems")
    return 1 if n_bad or not paths else 0


sys.exit(main())
