"""reference.py - attention and its statistics in double precision, one head at a time, by the
definitions of include/headlight/attention.h.  It uses no code of the library."""
import math

import torch


def visible(n_queries, n_keys, causal, start=None, length=None, window=None, window_right=None,
            window_sink=0, device="cuda"):
    length = n_keys if length is None else length
    start = length - n_queries if start is None else start
    position = start + torch.arange(n_queries, device=device)[:, None]
    key = torch.arange(n_keys, device=device)[None, :]
    seen = (key < length).expand(n_queries, n_keys)
    if causal:
        seen = seen & (key <= position)
    if window is not None:
        seen = seen & ((key >= position - window) | (key < window_sink))
    if window_right is not None:
        seen = seen & (key <= position + window_right)
    return seen, position


def entropy_of(x, hidden):
    """lse, Shannon and p of rows of scores; 0 if all are hidden."""
    lse = torch.logsumexp(x, dim=1)
    log_p = (x - lse[:, None]).masked_fill(hidden, 0.0)
    p = torch.exp(log_p).masked_fill(hidden, 0.0)
    return lse, -(p * log_p).sum(1), p, log_p


def single(p, key, n_keys):
    """Each row's probability of one key; 0 if there is no such key."""
    key = key.expand(p.shape[0], 1)
    inside = (key >= 0) & (key < n_keys)
    return p.gather(1, key.clamp(0, n_keys - 1)).where(inside, torch.zeros_like(p[:, :1]))[:, 0]


def row_statistics(s, hidden, position, sink):
    """Every statistic of one head's rows of scores, and the probabilities of the keys."""
    n_keys, found = s.shape[1], {}
    blind = hidden.all(1)
    others = hidden.clone()
    others[:, 0] = True
    found["entropy_nosink"] = entropy_of(s.masked_fill(others, -math.inf), others)[1]
    best, argmax = s.max(dim=1)
    if sink is not None:
        s = torch.cat([s, sink.double().expand(len(s), 1)], dim=1)
        hidden = torch.cat([hidden, blind[:, None]], dim=1)
    lse, entropy, p, log_p = entropy_of(s.masked_fill(hidden, -math.inf), hidden)
    mean = (p * log_p).sum(1)
    found["lse"], found["entropy"] = lse, entropy
    found["renyi2"] = torch.where(blind, 0.0, -torch.log((p * p).sum(1)))
    found["varentropy"] = (p * log_p * log_p).sum(1) - mean * mean
    found["peak"] = torch.where(blind, 0.0, torch.exp(best - lse))
    found["argmax"] = torch.where(blind, -1, argmax)
    found["max_logit"] = torch.where(blind, -math.inf, best)
    p = p[:, :n_keys]
    found["self"] = single(p, position, n_keys)
    found["previous"] = single(p, position - 1, n_keys)
    found["first"] = p[:, 0]
    return found, p


def scores_of(q, k, scale, softcap, position, slope, bias):
    s = scale * q.double() @ k.double().T
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if slope is not None:
        s = s + slope.double() * (torch.arange(k.shape[0], device=q.device)[None, :] - position)
    if bias is not None:
        s = s + bias.double()[None, :]
    return s


def forward(q, k, v, causal=False, scale=None, start=None, length=None, window=None,
            window_right=None, window_sink=0, softcap=0.0, alibi_slopes=None, key_bias=None,
            sinks=None, gates=None):
    """Results in float64 from the rounded inputs.  start and length are lists, one number per sequence."""
    n_batch, n_heads, n_queries, d_head = q.shape
    n_keys, group = k.shape[2], n_heads // k.shape[1]
    scale = scale if scale is not None else 1.0 / math.sqrt(d_head)
    rows, found = [], {}
    found["out"] = torch.empty((*q.shape[:3], v.shape[3]), dtype=torch.float64, device=q.device)
    found["max_score"] = 0.0
    shape = (n_batch, n_heads, n_keys)
    received = {last: torch.empty(shape, dtype=torch.float64, device=q.device)
                for last in (0, n_queries // 3)}  # the attention that keys receive, by `last`
    for b in range(n_batch):
        seen, position = visible(n_queries, n_keys, causal, start and start[b],
                                 length and length[b], window, window_right, window_sink)
        for h in range(n_heads):
            s = scores_of(q[b, h], k[b, h // group], scale, softcap, position,
                          None if alibi_slopes is None else alibi_slopes[h],
                          None if key_bias is None else key_bias[h])
            hidden = ~seen | (s == -math.inf)
            if not hidden.all():
                found["max_score"] = max(found["max_score"], s[~hidden].abs().max().item())
            s = s.masked_fill(hidden, -math.inf)
            statistics, p = row_statistics(s, hidden, position, None if sinks is None else sinks[h])
            rows.append(statistics)
            gate = 1.0 if gates is None else gates[h].double()
            found["out"][b, h] = gate * (p @ v[b, h // group].double())
            for last, sums in received.items():
                sums[b, h] = p[-last:].sum(0)
    for name in rows[0]:
        found[name] = torch.stack([row[name] for row in rows]).view(q.shape[:3])
    found["received"] = received
    return found
