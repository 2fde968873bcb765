"""check_torch.py - headlight.torch and headlight.transformers with a new PyTorch, and on a GPU.

    PYTHONPATH=python python3 tests/python/device/check_torch.py [cpu] [cuda]

Needs PyTorch 2.4 or later; transformers 4.53 or later for the models; a GPU and libheadlight_cuda.so
for the second device.  Prints one line per check and which checks were skipped; exits with 1 if one
fails.  Not part of `make check`.
"""
import functools
import json
import os
import sys
import tempfile
import time
import traceback

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "..", "..", "..", "python")]
import headlight
import headlight.torch as ht
from headlight._library import cuda_library
from support import ALICE, ROOT, attention_cases, read_safetensors
from test_attention import GRADIENTS, error, options_of

FAILED = []


def check(name, function, *arguments):
    started = time.time()
    try:
        note = function(*arguments)
        print(f"ok       {name}: {note} ({time.time() - started:.1f} s)", flush=True)
    except Exception:
        FAILED.append(name)
        print(f"NOT OK   {name}\n{traceback.format_exc()}", flush=True)


def inputs(device, dtype, n=33, heads=4, kv_heads=2, d=32, grad=True):
    torch.manual_seed(0)
    return [torch.randn(2, h, n, d, device=device).to(dtype).requires_grad_(grad)
            for h in (heads, kv_heads, kv_heads)]


# ------------------------------------------------------------------ the operator


def operator(device, dtype):
    q, k, v = inputs(device, dtype)
    rest = (None, None, None, None, None, None, None, True, 0.2, 0.0, -1, -1, 0)
    torch.library.opcheck(torch.ops.headlight.attention.default, (q, k, v, *rest))
    gates = torch.ones(4, device=device, requires_grad=True)
    torch.library.opcheck(torch.ops.headlight.attention.default, (q, k, v, None, gates, *rest[2:]))
    return "opcheck passes, with and without gates"


def gradcheck():
    before = headlight.backend()
    headlight.select_backend("scalar")
    try:
        q, k, v = (torch.randn(1, 2, 6, 4, dtype=torch.float64, requires_grad=True)
                   for _ in range(3))
        assert torch.autograd.gradcheck(lambda *x: ht.attention(*x, causal=True).out, (q, k, v))
        # entropy and lse are float32: their differences need a larger step
        for name in ("entropy", "lse"):
            assert torch.autograd.gradcheck(
                lambda *x, name=name: getattr(ht.attention(*x, causal=True), name).double(),
                (q, k, v), eps=3e-3, atol=2e-4, rtol=1e-3), name
    finally:
        headlight.select_backend(before)
    return "float64 on the CPU, scalar back end; through out, and through entropy and lse"


def tensor_of(array, device):
    """uint16 holds the bits of bfloat16, which numpy does not have."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.tensor(array, device=device)


def plain_rows(q, k, v, scale):
    """Causal attention as in eager code: scores and probabilities in the type of q."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(2, 3) * scale).masked_fill(hidden, -torch.inf)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    p, log_p = scores.softmax(-1), scores.log_softmax(-1).masked_fill(hidden, 0.0)
    return ht.AttentionRows(p.to(q.dtype) @ v, scores.logsumexp(-1), -(p * log_p).sum(-1))


def gradient_errors(tensors, device, attend):
    """{name: relative error of its gradient}, for a loss that depends on out, lse and entropy."""
    leaves = {name: tensor_of(tensors[name], device).requires_grad_()
              for name in ("q", "k", "v", "gates", "sinks") if name in tensors}
    rows = attend(leaves["q"], leaves["k"], leaves["v"],
                  **{name: leaf for name, leaf in leaves.items() if name not in "qkv"})
    sum((getattr(rows, name) * torch.tensor(tensors["grad_" + name], device=device)).nan_to_num(
        posinf=0.0, neginf=0.0).sum() for name in ("out", "lse", "entropy")).backward()
    return {"d" + name: error(leaf.grad.float().cpu(), tensors["d" + name], True)
            for name, leaf in leaves.items()}


def golden(device):
    """float32 must be within the tolerance; bfloat16 and float16 may have 1.5 times the error of eager
    code."""
    worst, ratios, n_cases, n = 0.0, [], 0, 0
    for path in attention_cases():
        tensors, metadata = read_safetensors(path)
        case = json.loads(metadata["case"])
        options = {name: torch.tensor(x, device=device) if isinstance(x, np.ndarray) else x
                   for name, x in options_of(tensors, case).items()
                   if name not in ("segments", "n_segments", "gates", "sinks")}
        found = gradient_errors(tensors, device, functools.partial(ht.attention, **options))
        limits = {name: max(GRADIENTS[name][0], 8 * 2.0 ** -24 * case["max_score"]) for name in found}
        if tensors["q"].dtype != np.float32:
            assert case["causal"] and set(options) == {"causal", "scale"}, options
            plain = gradient_errors(tensors, device,
                                    functools.partial(plain_rows, scale=case["scale"]))
            limits = {name: 1.5 * x for name, x in plain.items()}
            ratios += [found[name] / x for name, x in plain.items()]
        else:
            worst = max(worst, *found.values())
        for name, x in found.items():
            assert x <= limits[name], f"{path} {name}: {x} > {limits[name]}"
        n_cases, n = n_cases + 1, n + len(found)
    assert n_cases >= 17 and len(ratios) >= 3, (n_cases, ratios)
    return (f"{n_cases} cases, {n} gradients: the largest relative error in f32 {worst:.1e}; in bf16 and "
            f"f16 {min(ratios):.2f} to {max(ratios):.2f} times eager's")


def compiled(device):
    q, k, v = inputs(device, torch.float32)

    def loss(q, k, v):
        out, _, entropy = ht.attention(q, k, v, causal=True)
        return out.square().mean() + entropy.mean()

    plain = torch.autograd.grad(loss(q, k, v), (q, k, v))
    made = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(q, k, v),
                               (q, k, v))
    worst = max((a - b).abs().max().item() for a, b in zip(plain, made))
    assert worst < 1e-6, worst
    return f"one graph; gradients within {worst:.1e}"


def half(device, dtype):
    """Compares with float64 on the same numbers, and with SDPA's errors."""
    q, k, v = inputs(device, dtype, n=130, d=64, grad=False)
    rows = ht.attention(q, k, v, causal=True)
    wide = [x.double().repeat_interleave(4 // x.shape[1], 1) for x in (q, k, v)]
    exact = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True)
    narrow = [x.repeat_interleave(4 // x.shape[1], 1) for x in (q, k, v)]
    theirs = torch.nn.functional.scaled_dot_product_attention(*narrow, is_causal=True)
    ours, other = ((x.double() - exact).abs().max().item() for x in (rows.out, theirs))
    assert rows.out.dtype == dtype and ours <= 2 * other, (ours, other)
    return f"error {ours:.1e}, SDPA's {other:.1e}"


def stream():
    q, k, v = inputs("cuda", torch.bfloat16, n=512, d=64, grad=False)
    wanted = ht.attention(q, k, v, causal=True)
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        torch.cuda._sleep(int(1e8))  # the next call must wait for this, so it must use the same stream
        late = q * 2
        found = ht.attention(late * 0.5, k, v, causal=True)
    other.synchronize()
    assert torch.equal(found.entropy, wanted.entropy) and torch.equal(found.out, wanted.out)
    return "the work is in the current stream"


def cupy_arrays():
    """Arrays by DLPack, in CuPy's current stream."""
    import cupy
    q, k, v = inputs("cuda", torch.float32, grad=False)
    wanted = headlight.attention(q, k, v, causal=True)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        found = headlight.attention(*(cupy.from_dlpack(x) for x in (q, k, v)), causal=True)
        stream.synchronize()
    assert isinstance(found.entropy, cupy.ndarray)
    assert np.array_equal(cupy.asnumpy(found.entropy), wanted.entropy.cpu().numpy())
    assert np.array_equal(cupy.asnumpy(found.out), wanted.out.cpu().numpy())
    return "the same bytes as with PyTorch's"


class Interface:
    """An array with __cuda_array_interface__ only."""

    def __init__(self, tensor):
        self.tensor, self.__cuda_array_interface__ = tensor, tensor.__cuda_array_interface__


def cuda_interface():
    q, k, v = inputs("cuda", torch.float32, grad=False)
    wanted = headlight.attention(q, k, v, causal=True)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]  # strides other than packed ones
    found = headlight.attention(q, *map(Interface, turned), causal=True)
    assert torch.equal(found.entropy, wanted.entropy) and torch.equal(found.out, wanted.out)
    try:
        headlight.attention(*map(Interface, (q, k, v)))
    except headlight.Error as problem:
        return f"read where it lies; q must be a library's that makes arrays: {problem}"
    raise AssertionError("results were made of no kind")


# ------------------------------------------------------------------- transformers


def small_models():
    import transformers as t
    common = dict(vocab_size=256, attention_dropout=0.0)
    llama = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=256, **common)
    return {"llama": (t.LlamaForCausalLM, t.LlamaConfig(**llama)),
            "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(head_dim=16, **llama)),
            "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=256,
                                                     vocab_size=256, attn_pdrop=0.0,
                                                     resid_pdrop=0.0, embd_pdrop=0.0))}


def random_model(name, how, device, dtype=torch.float32, seed=1):
    """A model with the same weights for any attention implementation."""
    kind, config = small_models()[name]  # a copy of the config, since a model keeps and changes it
    torch.manual_seed(seed)
    model = kind._from_config(config, attn_implementation=how)
    for parameter in model.parameters():  # makes scores differ
        parameter.data.mul_(3.0 if parameter.dim() > 1 else 1.0)
    return model.to(device=device, dtype=dtype).eval()


def pair(name, device):
    """The same random model with eager attention and with headlight's."""
    return [random_model(name, how, device) for how in ("eager", "headlight")]


def rows_entropy(p):
    p = p.double()
    return -(p * p.clamp(min=1e-300).log()).sum(-1)


def eager_entropy(attentions, mask=None):
    out = {}
    for layer, p in enumerate(attentions):
        h = rows_entropy(p)
        out[layer] = h.mean(dim=(0, 2)) if mask is None else h.transpose(1, 2)[mask].mean(dim=0)
    return out


def model_agrees(name, device):
    import headlight.transformers as hf
    eager, ours = pair(name, device)
    torch.manual_seed(2)
    tokens = torch.randint(0, 256, (2, 40), device=device)
    notes = []
    left = torch.ones_like(tokens)
    left[1, :9] = 0
    for mask in (None, left):
        real = torch.ones_like(tokens).bool() if mask is None else mask.bool()
        with torch.no_grad(), hf.Collector() as seen:
            a = eager(tokens, attention_mask=mask, output_attentions=True)
            b = ours(tokens, attention_mask=mask)
        logits = ((a.logits - b.logits)[real].abs().max() / a.logits[real].abs().max()).item()
        wanted = eager_entropy(a.attentions, real)
        entropy = max((wanted[i] - h).abs().max().item() for i, h in seen.means().items())
        assert len(seen.means()) == 3 and logits < 1e-4 and entropy < 1e-4, (logits, entropy)
        notes.append(f"logits {logits:.1e}, entropy {entropy:.1e}")
    made = [m.generate(tokens[:1, :8], max_new_tokens=16, do_sample=False, pad_token_id=0,
                       eos_token_id=None) for m in (eager, ours)]
    assert torch.equal(*made), "generate"
    return "; padded: ".join(notes) + "; generates the same"


def rms(x):
    return x.double().square().mean().sqrt().item()


BF16_LANES = ("eager", "headlight", "sdpa")


@torch.no_grad()
def bf16_errors(exact, models, tokens):
    """(logits, entropies of rows) x BF16_LANES: errors of each in bfloat16, against eager in float32.
    SDPA has no entropies."""
    import headlight.transformers as hf
    wanted = exact(tokens, output_attentions=True)
    entropy = torch.stack([rows_entropy(p) for p in wanted.attentions])
    theirs = models["eager"](tokens, output_attentions=True)
    with hf.Collector() as seen:
        found = models["headlight"](tokens)
    ours = torch.stack([parts[0] for _, parts in sorted(seen.layers.items())])
    logits = (theirs.logits, found.logits, models["sdpa"](tokens).logits)
    return [[rms(x.float() - wanted.logits) for x in logits],
            [rms(torch.stack([rows_entropy(p) for p in theirs.attentions]) - entropy),
             rms(ours - entropy), np.nan]]


def say_nearer(errors):
    """errors: one or more results of bf16_errors; prints their root mean squares, and how often
    headlight is nearer."""
    errors = np.array(errors)
    logits, entropies = np.sqrt(np.mean(np.square(errors), axis=0))
    n_nearer = (errors[:, :, 1] < errors[:, :, 0]).sum(axis=0)
    note = (f"rms against f32 of logits: eager {logits[0]:.3e}, headlight {logits[1]:.3e}, SDPA "
            f"{logits[2]:.3e}; of entropies: {entropies[0]:.3e}, {entropies[1]:.3e}")
    if len(errors) > 1:
        ratios = np.median(errors[:, :, 1] / errors[:, :, 0], axis=0)
        note += (f"; nearer than eager in {n_nearer[0]} and {n_nearer[1]} of {len(errors)} models, the "
                 f"middle ratios {ratios[0]:.3f} and {ratios[1]:.3f}")
    assert logits[1] < logits[0] and entropies[1] < entropies[0], note
    return note


def bf16_is_nearer(name, device, n_models=32):
    """All other parts of these models are bfloat16 as well, so differences are small: many models are
    compared."""
    errors = []
    for seed in range(n_models):
        torch.manual_seed(1000 + seed)
        tokens = torch.randint(0, 256, (4, 160), device=device)
        models = {how: random_model(name, how, device, torch.bfloat16, seed) for how in BF16_LANES}
        errors.append(bf16_errors(random_model(name, "eager", device, seed=seed), models, tokens))
    return say_nearer(errors)


@torch.no_grad()
def attention_alone(name, device, n_models=8):
    """The error of attention alone: on the models' own q, k and v in bfloat16, against float64."""
    import headlight.transformers as hf
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface
    errors = []

    def watched(module, query, key, value, attention_mask, scaling=None, **others):
        scale = query.shape[3] ** -0.5 if scaling is None else scaling
        exact = plain_rows(query.double(), key.double(), value.double(), scale).out
        ours = ht.attention(query, key, value, causal=True, scale=scale).out
        eager = plain_rows(query, key, value, scale).out
        errors.append([rms(x.double() - exact) / rms(exact) for x in (eager, ours)])
        return ours.transpose(1, 2).contiguous(), None

    AttentionInterface.register("watched", watched)
    AttentionMaskInterface.register("watched", hf.padding_mask)
    for seed in range(n_models):
        torch.manual_seed(1000 + seed)
        tokens = torch.randint(0, 256, (4, 160), device=device)
        random_model(name, "watched", device, torch.bfloat16, seed)(tokens)
    eager, ours = np.sqrt(np.mean(np.square(errors), axis=0))
    n_nearer = sum(b < a for a, b in errors)
    note = (f"relative rms against float64: eager {eager:.3e}, headlight {ours:.3e}; nearer in {n_nearer} "
            f"of {len(errors)} layers")
    assert ours < eager, note
    return note


def trained_in_bf16(path, device):
    """A trained model, whose scores are so large that bfloat16's are inaccurate."""
    import headlight.transformers  # registers the implementation
    from transformers import AutoModelForCausalLM

    def model_of(how, dtype):
        return AutoModelForCausalLM.from_pretrained(path, attn_implementation=how,
                                                    dtype=dtype).to(device).eval()

    with headlight.open(path) as model, open(ALICE, encoding="utf-8") as file:
        tokens = torch.tensor(np.array(model.tokenize(file.read(8000)))[:1024].astype(np.int64),
                              device=device).view(4, 256)
    models = {how: model_of(how, torch.bfloat16) for how in BF16_LANES}
    return say_nearer([bf16_errors(model_of("eager", torch.float32), models, tokens)])


def packed_is_refused():
    import headlight.transformers  # registers the implementation
    model = pair("llama", "cpu")[1]
    tokens = torch.randint(0, 256, (1, 12))
    places = torch.tensor([[*range(5), *range(7)]])
    try:
        model(tokens, position_ids=places, use_cache=False)
    except headlight.Error as problem:
        assert "packed" in str(problem)
        return str(problem)
    raise AssertionError("two texts in one row were taken for one")


def autocast_follows(device):
    """Under autocast, rotated queries are f32 and values are bf16; headlight casts them, as SDPA
    does."""
    import headlight.transformers  # registers the implementation
    tokens = torch.randint(0, 256, (2, 64), device=device)
    models = dict(zip(("eager", "headlight"), pair("llama", device)))
    exact = models["eager"](tokens).logits
    with torch.autocast(device, dtype=torch.bfloat16):
        found = {name: rms(model(tokens).logits.float() - exact) for name, model in models.items()}
    assert found["headlight"] <= 1.05 * found["eager"], found
    return f"rms against f32: {found}"


def training_follows(device, n_steps=200):
    """Training in float32 on a text that can be learned."""
    import headlight.transformers as hf
    with open(ALICE, "rb") as file:
        text = torch.tensor(list(file.read(40000)), device=device)
    losses, notes = [], []
    for model in pair("llama", device):
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        found = []
        for step in range(n_steps):
            at = (step * 331) % (len(text) - 256)
            batch = text[at:at + 256].view(4, 64)
            loss = model(batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    worst = max(abs(a - b) for a, b in zip(*losses))
    assert worst < 2e-2 and losses[1][-1] < losses[1][0], (worst, losses[1][::10])
    with tempfile.TemporaryDirectory() as folder:
        with hf.AttentionMonitor(model, folder=folder, jsonl=folder + "/a.jsonl") as monitor:
            for step in range(3):
                with hf.Collector() as seen:
                    loss = model(batch, labels=batch).loss
                (loss + hf.EntropyRegularizer(0.5, 1.0)(seen)).backward()
                monitor.step(step, loss=loss.item())
        with open(folder + "/a.jsonl") as file:
            lines = [json.loads(line) for line in file]
        assert np.array(lines[0]["entropy"]).shape == (3, 4)
        notes.append(read_with_tensorboard(folder))
    return (f"{n_steps} steps from {losses[1][0]:.3f} to {losses[1][-1]:.3f}, losses within "
            f"{worst:.1e} of eager's; " + "".join(notes))


def read_with_tensorboard(folder):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return "no tensorboard here to read the events"
    found = EventAccumulator(folder, size_guidance={"histograms": 0}).Reload()
    assert [event.step for event in found.Scalars("loss")] == [0, 1, 2]
    assert len(found.Histograms("entropy")) == 3
    return "TensorBoard reads the events"


def find_devices(wanted):
    if "cuda" not in wanted:
        return wanted
    try:
        if not torch.cuda.is_available():
            raise headlight.Error("there is none")
        cuda_library()
        return wanted
    except headlight.Error as problem:
        print(f"skipped  the GPU: {problem}")
        return [device for device in wanted if device != "cuda"]


def check_operator(devices):
    if "cpu" in devices:
        check("gradcheck", gradcheck)
    for device in devices:
        check(f"{device}: operator", operator, device, torch.float32)
        check(f"{device}: golden gradients", golden, device)
        check(f"{device}: compiled", compiled, device)
        check(f"{device}: bfloat16", half, device, torch.bfloat16)
        check(f"{device}: float16", half, device, torch.float16)
    if "cuda" in devices:
        check("cuda: stream", stream)
        check("cuda: arrays of CuPy", cupy_arrays)
        check("cuda: __cuda_array_interface__", cuda_interface)


def check_models(devices):
    try:
        import transformers
    except ImportError as problem:
        print(f"skipped  models: {problem}")
        return
    print(f"transformers {transformers.__version__}")
    for device in devices:
        for name in ("llama", "gpt2", "qwen3"):
            check(f"{device}: {name}", model_agrees, name, device)
            check(f"{device}: {name} in bfloat16", bf16_is_nearer, name, device)
            check(f"{device}: {name}'s attention in bfloat16", attention_alone, name, device)
        check(f"{device}: models/demo in bfloat16", trained_in_bf16, ROOT + "/models/demo", device)
        check(f"{device}: autocast", autocast_follows, device)
        check(f"{device}: training", training_follows, device)
    check("packed sequences", packed_is_refused)


def main(wanted):
    print(f"PyTorch {torch.__version__}, headlight {headlight.version()}, {headlight.backend()}")
    devices = find_devices(wanted or ["cpu", "cuda"])
    check_operator(devices)
    check_models(devices)
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
