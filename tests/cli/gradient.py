"""gradient.py - gradients of gates against PyTorch's autograd, on models/demo.

    /usr/bin/python3 tests/cli/gradient.py build/headlight TEXT

The right-hand side is a GPT-2 in float64 with a gate on every head's output; the loss is the
mean negative log-likelihood of a window, and scores are means of |dL/dg| over windows.
Prints one line of TAP; exits 1 on a difference.
"""
import json
import struct
import subprocess
import sys

import torch

MODEL, CONTEXT, TOKENS = "models/demo", 48, 96
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load(path):
    """The tensors of a safetensors file, as float64."""
    with open(path, "rb") as file:
        blob = file.read()
    n_bytes = struct.unpack("<Q", blob[:8])[0]
    out = {}
    for name, tensor in json.loads(blob[8:8 + n_bytes]).items():
        if name != "__metadata__":
            first, last = (8 + n_bytes + at for at in tensor["data_offsets"])
            flat = torch.frombuffer(bytearray(blob[first:last]), dtype=DTYPES[tensor["dtype"]])
            out[name.replace("transformer.", "")] = flat.double().reshape(tensor["shape"])
    return out


def norm(x, w, name, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"],
                                          eps)


def linear(x, w, name):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))


def loss(w, config, gates, tokens):
    """Mean negative log-likelihood of all tokens but the first."""
    n_heads, eps, n = config["n_head"], config["layer_norm_epsilon"], len(tokens)
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    x = w["wte.weight"][tokens] + w["wpe.weight"][:n]
    for layer in range(config["n_layer"]):
        at = f"h.{layer}"
        heads = linear(norm(x, w, at + ".ln_1", eps), w, at + ".attn.c_attn").chunk(3, -1)
        q, k, v = (part.reshape(n, n_heads, -1).transpose(0, 1) for part in heads)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        z = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v * gates[layer][:, None, None]
        x = x + linear(z.transpose(0, 1).reshape(n, -1), w, at + ".attn.c_proj")
        middle = gelu(linear(norm(x, w, at + ".ln_2", eps), w, at + ".mlp.c_fc"))
        x = x + linear(middle, w, at + ".mlp.c_proj")
    logits = norm(x, w, "ln_f", eps) @ w["wte.weight"].T
    return torch.nn.functional.cross_entropy(logits[:-1], tokens[1:])


def expected(tokens):
    """(n_layers, n_heads) by autograd."""
    w = load(MODEL + "/model.safetensors")
    with open(MODEL + "/config.json") as file:
        config = json.load(file)
    sums = torch.zeros(config["n_layer"], config["n_head"], dtype=torch.float64)
    windows = tokens[:TOKENS].split(CONTEXT)
    for window in windows:
        gates = torch.ones_like(sums, requires_grad=True)
        loss(w, config, gates, window).backward()
        sums += gates.grad.abs()
    return sums / len(windows)


def main():
    program, path = sys.argv[1:]
    with open(path) as file:
        text = json.dumps(file.read())
    ids = subprocess.run([program, "tokenize", MODEL, "--json"], input=text + "\n", text=True,
                         capture_output=True, check=True).stdout
    wanted = expected(torch.tensor(json.loads(ids)))
    found = json.loads(subprocess.run(
        [program, "rank", "--model", MODEL, "--text", path, "--by", "gradient", "--json", "-c",
         str(CONTEXT), "--max-tokens", str(TOKENS)], capture_output=True, check=True).stdout)
    worst = max(abs(row["score"] - wanted[row["layer"], row["head"]].item())
                for row in found["rows"]) / wanted.max().item()
    good = worst < 1e-5 and len(found["rows"]) == wanted.numel()
    print(f"# largest error {worst:.1e} of the largest gradient")
    print(f"{'ok' if good else 'not ok'} 1 - gradients of gates agree with PyTorch's")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
