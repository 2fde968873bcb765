"""sampling.py - the sampler's filters against the same filters on PyTorch tensors.

    /usr/bin/python3 tests/cli/sampling.py build/libheadlight.so

The reference uses torch's softmax, sort, cumsum and topk, as transformers' logits processors do.
Prints one line of TAP; exits with 1 on a difference.
"""
import ctypes
import sys

import torch


class Options(ctypes.Structure):
    _fields_ = [("temperature", ctypes.c_double), ("top_k", ctypes.c_int64),
                ("top_p", ctypes.c_double), ("min_p", ctypes.c_double),
                ("repeat_penalty", ctypes.c_double), ("repeat_last", ctypes.c_int64),
                ("seed", ctypes.c_uint64)]


class Candidate(ctypes.Structure):
    _fields_ = [("token", ctypes.c_int64), ("probability", ctypes.c_double)]


def ours(library, logits, options, history):
    """The probabilities that hl_sampler_draw used, 0 for tokens that it left out."""
    sampler, token, count = ctypes.c_void_p(), ctypes.c_int64(), ctypes.c_int64()
    values = (ctypes.c_float * len(logits))(*logits.tolist())
    library.hl_sampler_candidates.restype = ctypes.POINTER(Candidate)
    assert library.hl_sampler_new(ctypes.byref(sampler), ctypes.c_int64(len(logits)),
                                  ctypes.byref(options)) == 0
    for id in history:
        assert library.hl_sampler_accept(sampler, ctypes.c_int64(id)) == 0
    assert library.hl_sampler_draw(ctypes.byref(token), sampler, values) == 0
    found = library.hl_sampler_candidates(sampler, ctypes.byref(count))
    out = torch.zeros(len(logits), dtype=torch.float64)
    for i in range(count.value):
        out[found[i].token] = found[i].probability
    library.hl_sampler_free(sampler)
    return out


def theirs(logits, options, history):
    scores, gone = logits.clone(), -float("inf")
    if options.repeat_penalty not in (0.0, 1.0) and history:
        last = history[-options.repeat_last:] if options.repeat_last else history
        ids = torch.tensor(sorted(set(last)))
        picked = scores[ids]
        scores[ids] = torch.where(picked < 0, picked * options.repeat_penalty,
                                  picked / options.repeat_penalty)
    scores = scores / options.temperature
    if options.top_k:
        k = min(options.top_k, len(scores))
        scores = scores.masked_fill(scores < torch.topk(scores, k)[0][-1], gone)
    if 0.0 < options.top_p < 1.0:
        ordered, places = torch.sort(scores, descending=False)
        remove = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - options.top_p
        remove[-1] = False
        scores = scores.masked_fill(torch.zeros_like(remove).scatter(0, places, remove), gone)
    if options.min_p:
        p = scores.softmax(dim=-1)
        scores = scores.masked_fill(p < options.min_p * p.max(), gone)
    return scores.softmax(dim=-1)


def main(path):
    library = ctypes.CDLL(path)
    torch.manual_seed(1)
    worst, cases = 0.0, 0
    for n in (1, 2, 50, 4096):
        for temperature in (0.5, 1.0, 1.7):
            for top_k in (0, 1, 40, 5000):
                for top_p in (0.0, 0.05, 0.5, 0.9, 0.999):
                    for min_p, penalty, last in ((0.0, 0.0, 0), (0.1, 1.3, 0), (0.02, 0.8, 5)):
                        # float64 holds f32 logits exactly; rounding is then negligible on both sides
                        logits = (3 * torch.randn(n)).double()
                        history = torch.randint(0, n, (12,)).tolist()
                        options = Options(temperature, top_k, top_p, min_p, penalty, last, 0)
                        a, b = ours(library, logits, options, history), theirs(logits, options, history)
                        assert torch.equal(a > 0, b > 0), (n, temperature, top_k, top_p, min_p)
                        worst, cases = max(worst, (a - b).abs().max().item()), cases + 1
    # Only the penalty, which is applied to f32 scores, may cause a difference.
    ok = worst < 1e-6
    print(f"{'ok' if ok else 'not ok'} 1 - {cases} settings agree with PyTorch to {worst:.1e}")
    return 0 if ok else 1


sys.exit(main(sys.argv[1]))
