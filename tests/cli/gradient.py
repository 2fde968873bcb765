"""gradient.py - gradients of gates, and the rankers made of gradients and of what heads write,
against PyTorch's autograd.

    /usr/bin/python3 tests/cli/gradient.py build/headlight TEXT MODEL...

The reference is the model in float64, written here from the families' definitions, with a gate on every
head's output.  The loss is the mean negative log-likelihood of a window; scores are those of
doc/metrics.md, computed here from its formulas.  Prints one line of TAP per model; exits with 1 on a
difference.
"""
import glob
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm, relu, silu

CONTEXT, TOKENS, TOLERANCE = 48, 96, 1e-5
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load(folder):
    """All tensors of a folder, as float64."""
    out = {}
    for path in glob.glob(folder + "/model*.safetensors"):
        with open(path, "rb") as file:
            blob = file.read()
        n_bytes = struct.unpack("<Q", blob[:8])[0]
        for name, tensor in json.loads(blob[8:8 + n_bytes]).items():
            if name != "__metadata__":
                first, last = (8 + n_bytes + at for at in tensor["data_offsets"])
                flat = torch.frombuffer(bytearray(blob[first:last]), dtype=DTYPES[tensor["dtype"]])
                out[name] = flat.double().reshape(tensor["shape"])
    return out


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))


def linear(x, w, name):
    """x W^T + b, if there is a bias."""
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def norm(x, w, name, eps):
    return layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)


def rms(x, w, name, eps, plus=0.0):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * (w[name + ".weight"] + plus)


def split_heads(x, n_heads):
    return x.reshape(len(x), n_heads, -1).transpose(0, 1)


SEEN = []  # per layer of a run: what the projections read and wrote, rows of attention, outputs


def watch(x, *parts):
    """What the projections of a layer read, (n, d_model), and wrote: q, k, v, (heads, n, d) each."""
    for part in parts:
        part.retain_grad()
    SEEN.append({"x": x.detach(), "parts": parts})
    return parts


def attend(q, k, v, gates, scale, window=0, cap=0.0):
    """(heads, n, d) each to (n, heads * d); gates (heads)."""
    n = q.shape[1]
    seen = SEEN[-1]
    k, v = (part.repeat_interleave(len(q) // len(part), 0) for part in (k, v))
    scores = q @ k.transpose(1, 2) * scale
    scores = cap * torch.tanh(scores / cap) if cap else scores
    place = torch.arange(n)
    distance = place[:, None] - place
    hidden = (distance < 0) | (distance >= (window or n))
    p = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    z = p @ v * gates[:, None, None]
    seen["p"], seen["z"], seen["keys"] = p.detach(), z.detach(), (~hidden).sum(-1)
    return z.transpose(0, 1).reshape(n, -1)


def frequencies(config, n_dims):
    rope = config["rope_parameters"]
    f = rope["rope_theta"] ** (-torch.arange(0, n_dims, 2, dtype=torch.float64) / n_dims)
    if rope["rope_type"] == "llama3":
        whole, factor = rope["original_max_position_embeddings"], rope["factor"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = ((whole * f / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        f = (1 - smooth) * f / factor + smooth * f
    return f


def turn(x, config, share=1.0):
    """Rotary positions on the first dims of every head."""
    n_dims = int(x.shape[-1] * share)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies(config, n_dims)
    a, b, rest = x[..., :n_dims // 2], x[..., n_dims // 2:n_dims], x[..., n_dims:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def gpt2(w, c, gates, tokens):
    w = {name.replace("transformer.", ""): tensor for name, tensor in w.items()}
    w = {name: tensor.T if tensor.dim() == 2 and name.startswith("h.") else tensor
         for name, tensor in w.items()}  # stored as [in, out]
    eps, n_heads = c["layer_norm_epsilon"], c["n_head"]
    x = w["wte.weight"][tokens] + w["wpe.weight"][:len(tokens)]
    for i in range(c["n_layer"]):
        at = f"h.{i}."
        h = norm(x, w, at + "ln_1", eps)
        parts = linear(h, w, at + "attn.c_attn").chunk(3, -1)
        q, k, v = watch(h, *(split_heads(part, n_heads) for part in parts))
        x = x + linear(attend(q, k, v, gates[i], q.shape[-1] ** -0.5), w, at + "attn.c_proj")
        middle = gelu_tanh(linear(norm(x, w, at + "ln_2", eps), w, at + "mlp.c_fc"))
        x = x + linear(middle, w, at + "mlp.c_proj")
    return norm(x, w, "ln_f", eps) @ w["wte.weight"].T


def opt(w, c, gates, tokens):
    at, n_heads = "model.decoder.", c["num_attention_heads"]
    places = torch.arange(len(tokens)) + 2
    x = w[at + "embed_tokens.weight"][tokens] + w[at + "embed_positions.weight"][places]
    for i in range(c["num_hidden_layers"]):
        layer = f"{at}layers.{i}."
        h = norm(x, w, layer + "self_attn_layer_norm", 1e-5)
        q, k, v = watch(h, *(split_heads(linear(h, w, layer + f"self_attn.{part}_proj"), n_heads)
                             for part in "qkv"))
        z = attend(q, k, v, gates[i], q.shape[-1] ** -0.5)
        x = x + linear(z, w, layer + "self_attn.out_proj")
        middle = relu(linear(norm(x, w, layer + "final_layer_norm", 1e-5), w, layer + "fc1"))
        x = x + linear(middle, w, layer + "fc2")
    return norm(x, w, at + "final_layer_norm", 1e-5) @ w[at + "embed_tokens.weight"].T


def gpt_neox(w, c, gates, tokens):
    at, n_heads, eps = "gpt_neox.", c["num_attention_heads"], c["layer_norm_eps"]
    share = c["rope_parameters"]["partial_rotary_factor"]
    x = w[at + "embed_in.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        layer = f"{at}layers.{i}."
        read = norm(x, w, layer + "input_layernorm", eps)
        h = linear(read, w, layer + "attention.query_key_value")
        q, k, v = watch(read, *split_heads(h, n_heads).chunk(3, -1))  # stored head by head
        q, k = turn(q, c, share), turn(k, c, share)
        z = linear(attend(q, k, v, gates[i], q.shape[-1] ** -0.5), w, layer + "attention.dense")
        middle = gelu(linear(norm(x, w, layer + "post_attention_layernorm", eps), w,
                             layer + "mlp.dense_h_to_4h"))
        x = x + z + linear(middle, w, layer + "mlp.dense_4h_to_h")
    return norm(x, w, at + "final_layer_norm", eps) @ w["embed_out.weight"].T


def llama(w, c, gates, tokens):
    """Llama and similar families: Mistral, Qwen2, Qwen3, Phi-3, Granite, Gemma 2, StarCoder2."""
    kind, act, plus = c["model_type"], silu, 1.0 if c["model_type"] == "gemma2" else 0.0
    n_heads, n_kv = c["num_attention_heads"], c["num_key_value_heads"]
    residual = c.get("residual_multiplier", 1.0)

    def normed(x, name):
        if kind == "starcoder2":
            return norm(x, w, name, c["norm_epsilon"])
        return rms(x, w, name, c["rms_norm_eps"], plus)

    x = w["model.embed_tokens.weight"][tokens] * c.get("embedding_multiplier", 1.0)
    x = x * c["hidden_size"] ** 0.5 if plus else x
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        h = normed(x, at + "input_layernorm")
        if kind == "phi3":
            d = c["hidden_size"] // n_heads
            parts = linear(h, w, at + "self_attn.qkv_proj").split([n_heads * d, n_kv * d, n_kv * d], -1)
        else:
            parts = [linear(h, w, at + f"self_attn.{part}_proj") for part in "qkv"]
        q, k, v = watch(h, *(split_heads(part, n)
                             for part, n in zip(parts, (n_heads, n_kv, n_kv))))
        if kind == "qwen3":
            q, k = (normed(part, at + f"self_attn.{name}_norm") for part, name in ((q, "q"), (k, "k")))
        slides = c.get("layer_types", ["sliding_attention"] * (i + 1))[i] == "sliding_attention"
        scale = c.get("attention_multiplier", c.get("query_pre_attn_scalar", q.shape[-1]) ** -0.5)
        z = attend(turn(q, c), turn(k, c), v, gates[i], scale, slides and c.get("sliding_window") or 0,
                   c.get("attn_logit_softcapping") or 0.0)
        z = linear(z, w, at + "self_attn.o_proj")
        if plus:
            x = x + normed(z, at + "post_attention_layernorm")
            h = normed(x, at + "pre_feedforward_layernorm")
        else:
            x = x + residual * z
            h = normed(x, at + "post_attention_layernorm")
        if kind == "starcoder2":
            y = linear(gelu_tanh(linear(h, w, at + "mlp.c_fc")), w, at + "mlp.c_proj")
        elif kind == "phi3":
            gate, up = linear(h, w, at + "mlp.gate_up_proj").chunk(2, -1)
            y = linear(act(gate) * up, w, at + "mlp.down_proj")
        else:
            act = gelu_tanh if plus else silu
            y = linear(act(linear(h, w, at + "mlp.gate_proj")) * linear(h, w, at + "mlp.up_proj"), w,
                       at + "mlp.down_proj")
        x = x + (normed(y, at + "post_feedforward_layernorm") if plus else residual * y)
    head = w["model.embed_tokens.weight"] if c["tie_word_embeddings"] else w["lm_head.weight"]
    logits = normed(x, "model.norm") @ head.T / c.get("logits_scaling", 1.0)
    cap = c.get("final_logit_softcapping")
    return cap * torch.tanh(logits / cap) if cap else logits


FAMILIES = {"gpt2": gpt2, "opt": opt, "gpt_neox": gpt_neox}


OUTPUTS = ("attn.c_proj", "self_attn.out_proj", "attention.dense", "self_attn.o_proj")


def output_weights(w, kind):
    """W_O of every layer, (d_model, heads * d)."""
    names = [name for name in w if name.endswith(tuple(part + ".weight" for part in OUTPUTS))]
    names.sort(key=lambda name: int(next(part for part in name.split(".") if part.isdigit())))
    return [w[name].T if kind == "gpt2" else w[name] for name in names]


def to_unit(x):
    return (x - x.min()) / (x.max() - x.min())


def expected(model, tokens):
    """Scores (n_layers, n_heads) by ranker."""
    w = load(model)
    with open(model + "/config.json") as file:
        config = json.load(file)
    run = FAMILIES.get(config["model_type"], llama)
    shape = [config.get(new, config.get(old)) for new, old in
             (("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"))]
    slopes = torch.zeros(shape, dtype=torch.float64)
    norms = torch.zeros(3, *shape, dtype=torch.float64)
    entropies = [[] for _ in range(shape[0])]  # (n_heads, rows) each
    outputs = []  # (n_layers, n_heads, rows, d)
    windows = tokens[:TOKENS].split(CONTEXT)
    for window in windows:
        gates = torch.ones_like(slopes, requires_grad=True)
        SEEN.clear()
        logits = run({name: tensor.requires_grad_() for name, tensor in w.items()}, config, gates,
                     window)
        cross_entropy(logits[:-1], window[1:]).backward()
        slopes += gates.grad.abs()
        for i, layer in enumerate(SEEN):
            for j, part in enumerate(layer["parts"]):
                of_weight = part.grad.transpose(1, 2) @ layer["x"]  # (heads, d, d_model)
                norm = of_weight.flatten(1).norm(dim=1)
                norms[j, i] += norm.repeat_interleave(shape[1] // len(norm))
            h = -(layer["p"] * layer["p"].clamp(min=1e-300).log()).sum(-1) / layer["keys"].log()
            entropies[i].append(h[:, layer["keys"] >= 16])
        outputs.append(torch.stack([layer["z"] for layer in SEEN]))
    slopes, norms = slopes / len(windows), norms / len(windows)
    entropy = torch.stack([torch.cat(rows, -1).mean(-1) for rows in entropies])
    z = torch.cat(outputs, -2)
    w_o = torch.stack(output_weights({name: tensor.detach() for name, tensor in w.items()},
                                     config["model_type"]))
    w_o = w_o.reshape(*w_o.shape[:2], shape[1], -1)  # (n_layers, d_model, heads, d)
    moving = (z.var(-2) * w_o.square().sum(1)).flatten(1)
    moving = (moving - moving.mean(1, keepdim=True)) / moving.std(1, keepdim=True)
    scores = {"gradient": slopes,
              "gnorm": norms.prod(0),
              "fluctuation": moving.reshape(*shape, -1).mean(-1),
              "wanda": (z.square().mean(-2).sqrt() * w_o.abs().sum(1)).mean(-1)}
    if not entropy.isnan().any():  # windows of 16 keys or more
        scores["hies"] = 0.5 * to_unit(slopes) + 0.5 * (1 - to_unit(entropy))
    return scores


def with_tokenizer(model, scratch):
    """The model, or a folder of links to it with a tokenizer of 256 bytes added."""
    if os.path.exists(model + "/tokenizer.json"):
        return model
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {byte: chr(byte) for byte in plain}
    spelled.update((byte, chr(256 + i)) for i, byte in
                   enumerate(byte for byte in range(256) if byte not in plain))
    folder = os.path.join(scratch, os.path.basename(model.rstrip("/")))
    os.mkdir(folder)
    for name in os.listdir(model):
        os.symlink(os.path.abspath(os.path.join(model, name)), os.path.join(folder, name))
    with open(folder + "/tokenizer.json", "w") as file:
        json.dump({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                   "decoder": {"type": "ByteLevel"},
                   "model": {"type": "BPE", "merges": [],
                             "vocab": {spelled[byte]: byte for byte in range(256)}}}, file)
    return folder


def worst_errors(program, path, model):
    """By ranker, over the largest score."""
    with open(path) as file:
        text = json.dumps(file.read())
    ids = subprocess.run([program, "tokenize", model, "--json"], input=text + "\n", text=True,
                         capture_output=True, check=True).stdout
    errors = {}
    for ranker, wanted in expected(model, torch.tensor(json.loads(ids))).items():
        found = json.loads(subprocess.run(
            [program, "rank", "--model", model, "--text", path, "--by", ranker, "--json", "-c",
             str(CONTEXT), "--max-tokens", str(TOKENS)], capture_output=True, check=True).stdout)
        assert len(found["rows"]) == wanted.numel()
        errors[ranker] = max(abs(row["score"] - wanted[row["layer"], row["head"]].item())
                             for row in found["rows"]) / wanted.abs().max().item()
    return errors


def main():
    program, path, *models = sys.argv[1:]
    n_bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for i, model in enumerate(models):
            errors = worst_errors(program, path, with_tokenizer(model, scratch))
            good = max(errors.values()) < TOLERANCE
            n_bad += not good
            print("# largest error over the largest score: " +
                  ", ".join(f"{ranker} {error:.1e}" for ranker, error in errors.items()))
            print(f"{'ok' if good else 'not ok'} {i + 1} - {os.path.basename(model)}: gradients of "
                  "gates, and scores made of them and of outputs, agree with PyTorch's")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
