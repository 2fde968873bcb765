"""reference.py - attention and its entropies in double precision, a head at a time."""
import math

import torch


def visible(n_queries, n_keys, causal, start=None, length=None, window=None, device="cuda"):
    length = n_keys if length is None else length
    start = length - n_queries if start is None else start
    position = start + torch.arange(n_queries, device=device)[:, None]
    key = torch.arange(n_keys, device=device)[None, :]
    seen = (key < length).expand(n_queries, n_keys)
    if causal:
        seen = seen & (key <= position)
    if window is not None:
        seen = seen & (key >= position - window)
    return seen


def forward(q, k, v, causal=False, scale=None, start=None, length=None, window=None, sinks=None,
            gates=None):
    """float64 from the rounded inputs.  start and length: lists, one number a sequence."""
    n_batch, n_heads, n_queries, d_head = q.shape
    n_keys, group = k.shape[2], n_heads // k.shape[1]
    scale = scale if scale is not None else 1.0 / math.sqrt(d_head)
    found = {name: torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
             for name in ("lse", "entropy", "renyi2")}
    found["out"] = torch.empty((*q.shape[:3], v.shape[3]), dtype=torch.float64, device=q.device)
    found["max_score"] = 0.0
    for b in range(n_batch):
        seen = visible(n_queries, n_keys, causal, start and start[b], length and length[b], window)
        for h in range(n_heads):
            s = scale * q[b, h].double() @ k[b, h // group].double().T
            s = s.masked_fill(~seen, -math.inf)
            found["max_score"] = max(found["max_score"], s[seen].abs().max().item())
            if sinks is not None:
                s = torch.cat([s, sinks[h].double().expand(n_queries, 1)], dim=1)
                s[:, -1].masked_fill_(~seen.any(1), -math.inf)
            lse = torch.logsumexp(s, dim=1)
            x = (s - lse[:, None]).masked_fill(s == -math.inf, -math.inf)
            p = torch.exp(x).masked_fill(s == -math.inf, 0.0)
            found["lse"][b, h] = lse
            found["entropy"][b, h] = -(p * x.masked_fill(s == -math.inf, 0.0)).sum(1)
            collision = (p * p).sum(1)
            found["renyi2"][b, h] = torch.where(collision > 0, -torch.log(collision), 0.0)
            gate = 1.0 if gates is None else gates[h].double()
            found["out"][b, h] = gate * (p[:, :n_keys] @ v[b, h // group].double())
    return found
