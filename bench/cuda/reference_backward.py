"""reference_backward.py - gradients of attention and its entropies by float64 autograd.

    wanted, rounded, allowed = gradients(problem)

`problem` holds q, k, v, grad_out, grad_entropy, grad_lse, the options by the names of
hl_attention (causal, scale, window_left, window_right, window_sink, softcap) and the arrays
(query_start, key_length, alibi_slopes, key_bias, sinks, gates).  `rounded` has the results of the plain
method that keeps P, dS, out and the results in the inputs' type and everything else exact: it shows the
error that this precision causes.  `allowed` has the allowed errors of dgates and dsinks, which are sums
of floats, and the largest score."""
import math

import torch

FAR = -1e30  # a hidden score: exp gives 0, and 0 times it is 0


def visible(problem, device):
    """(batch, 1, queries, keys)."""
    n_queries, n_keys = problem["q"].shape[2], problem["k"].shape[2]
    n_batch = problem["q"].shape[0]
    length = problem.get("key_length")
    length = torch.full((n_batch,), n_keys, device=device) if length is None else length.to(device)
    start = problem.get("query_start")
    start = length - n_queries if start is None else start.to(device)
    position = (start[:, None] + torch.arange(n_queries, device=device))[:, None, :, None]
    key = torch.arange(n_keys, device=device)
    seen = key < length[:, None, None, None]
    left, right = problem.get("window_left"), problem.get("window_right")
    if problem.get("causal"):
        right = 0
    if left is not None:
        seen = seen & ((key >= position - left) | (key < problem.get("window_sink", 0)))
    if right is not None:
        seen = seen & (key <= position + right)
    return seen.expand(n_batch, 1, n_queries, n_keys), position, key


def scores_of(problem, q, k, device):
    """Scores after all options, FAR for hidden keys; and which keys are visible."""
    seen, position, key = visible(problem, device)
    s = problem["scale"] * q @ k.transpose(2, 3)
    cap = problem.get("softcap", 0.0)
    if cap:
        s = cap * torch.tanh(s / cap)
    if problem.get("alibi_slopes") is not None:
        s = s + problem["alibi_slopes"].double()[:, None, None] * (key - position)
    if problem.get("key_bias") is not None:
        bias = problem["key_bias"].double()
        s = s + bias.clamp(min=FAR)[:, None, :]
        seen = seen & (bias != -math.inf)[None, :, None, :]
    return s.masked_fill(~seen, FAR), seen


def gradients(problem):
    device, dtype = problem["q"].device, problem["q"].dtype
    group = problem["q"].shape[1] // problem["k"].shape[1]
    n_heads = problem["q"].shape[1]
    q, k, v = (problem[name].double().requires_grad_() for name in "qkv")
    gates = problem.get("gates")
    gates = torch.ones(n_heads, device=device) if gates is None else gates
    gates = gates.double().requires_grad_()
    wide_k, wide_v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s, seen = scores_of(problem, q, wide_k, device)
    sighted = seen.any(3)
    sinks = problem.get("sinks")
    if sinks is not None:
        sinks = sinks.double().requires_grad_()
        s = torch.cat([s, sinks[None, :, None, None].expand(*s.shape[:3], 1)], 3)
    lse = torch.logsumexp(s, 3)
    x = s - lse[..., None]
    p = torch.exp(x) * sighted[..., None]
    entropy = -(p * x).sum(3)
    weights = p[..., : k.shape[2]]
    out = gates[:, None, None] * (weights @ wide_v)
    grad_out = problem["grad_out"].double()
    loss = ((out * grad_out).sum() + (entropy * problem["grad_entropy"].double()).sum() +
            (torch.where(sighted, lse, 0.0) * problem["grad_lse"].double()).sum())
    leaves = dict(dq=q, dk=k, dv=v, dgates=gates)
    if sinks is not None:
        leaves["dsinks"] = sinks
    wanted = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), retain_graph=True)))
    # The plain method, with P, dS, out and the results rounded.
    (slopes,) = torch.autograd.grad(loss, s, retain_graph=True)
    if problem.get("softcap", 0.0):  # ds is of the capped score; the rounded one is of scale q.k
        raw = problem["scale"] * q @ wide_k.transpose(2, 3)
        slopes = slopes[..., : k.shape[2]] * (1 - torch.tanh(raw / problem["softcap"])**2)
    slopes = slopes[..., : k.shape[2]]
    # the effect of rounding `out` on its product with grad_out, and so on dS
    drift = ((out.to(dtype).double() - out) * grad_out).sum(3, keepdim=True)
    low = (slopes - weights * drift).to(dtype).double()
    low_p = (gates[:, None, None] * weights).to(dtype).double()
    fold = lambda x: x.unflatten(1, (k.shape[1], group)).sum(2)
    rounded = dict(dq=problem["scale"] * low @ wide_k,
                   dk=fold(problem["scale"] * low.transpose(2, 3) @ q),
                   dv=fold(low_p.transpose(2, 3) @ grad_out))
    rounded = {name: value.to(dtype).double().detach() for name, value in rounded.items()}
    # allowed errors of sums of floats: shares of the sums of absolute values
    product = (grad_out @ wide_v.transpose(2, 3) * weights).detach().abs()
    allowed = dict(dgates=1e-4 * product.sum((0, 2, 3)),
                   max_score=torch.where(s > FAR / 2, s, 0.0).detach().abs().max().item())
    if sinks is not None:
        unit = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
        p_sink = p[..., -1].detach()
        size = ((out * grad_out).abs().sum(3) + problem["grad_lse"].abs() +
                (problem["grad_entropy"] * (x[..., -1] + entropy)).abs()).detach()
        allowed["dsinks"] = unit * (p_sink * size).sum((0, 2))
    return wanted, rounded, allowed
