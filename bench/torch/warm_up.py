"""warm_up.py - is a jump of the loss in warm-up the arithmetic's or the weights'?

    PYTHONPATH=python python3 bench/torch/warm_up.py models/demo tokens.npy out.json --rate 0.01 --seed 1

The first steps of high_rate.py's run, with headlight's attention and again with SDPA.  At every step the
loss and the gradient of the same weights, windows and dropout are computed three times: by headlight's
attention and by SDPA in bf16 autocast, and by SDPA in f32 throughout; the run goes on with its own.
Prints a line a step: the three losses, the three norms, and the cosines of both bf16 gradients to that
of f32.

Where the loss rose by more than 0.3, what made it: the loss on held-out windows, in f32 without dropout,
of the weights before and after the last step, of those after it with one kind of weight put back, and
of those half the way between the two.
"""
import argparse
import contextlib
import json

import numpy as np
import torch

import high_rate

LANES = (("headlight", True), ("sdpa", True), ("sdpa", False))  # attention, bf16 autocast
JUMP = 0.3
KINDS = ("wte", "wpe", "ln_", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")


@contextlib.contextmanager
def attending(model, name):
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    yield
    model.config._attn_implementation = before


def loss_of(model, batch, attention, in_bf16):
    with attending(model, attention), high_rate.autocast() if in_bf16 else contextlib.nullcontext():
        return model(batch, labels=batch, use_cache=False).loss


def gradient(model, batch, lane):
    """(loss, all gradients in a row), with the dropout that the random state gives."""
    loss = loss_of(model, batch, *lane)
    found = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), torch.cat([x.flatten() for x in found])


def compare(model, batch):
    """Each of LANES from the same random state."""
    state, found = torch.cuda.get_rng_state(), []
    for lane in LANES:
        torch.cuda.set_rng_state(state)
        found.append(gradient(model, batch, lane))
    exact = found[-1][1]
    cosines = [torch.nn.functional.cosine_similarity(x, exact, dim=0).item() for _, x in found[:-1]]
    line = {"loss": [loss for loss, _ in found], "norm": [x.norm().item() for _, x in found],
            "cosine": cosines}
    return line, [x for _, x in found]


# ------------------------------------------------------------------------ what made it


def weights_of(model):
    return {name: x.detach().clone() for name, x in model.named_parameters()}


@torch.no_grad()
def put(model, weights):
    for name, x in model.named_parameters():
        x.copy_(weights[name])


@torch.no_grad()
def loss_with(model, weights, batch):
    put(model, weights)
    return loss_of(model, batch, "sdpa", False).item()


def blame(model, before, batch):
    """{what was put back: loss}; the model is left as it was."""
    now = weights_of(model)
    model.eval()
    trials = {"before": before, "after": now,
              "half way": {name: (before[name] + now[name]) / 2 for name in now}}
    for kind in KINDS:
        trials["without " + kind] = {name: before[name] if kind in name else x
                                     for name, x in now.items()}
    found = {name: loss_with(model, weights, batch) for name, weights in trials.items()}
    put(model, now)
    model.train()
    return found


# --------------------------------------------------------------------------------- runs


def show(step, line):
    numbers = ("  ".join(f"{x:8.{places}f}" for x in line[name])
               for name, places in (("loss", 3), ("norm", 2), ("cosine", 5)))
    print(f"{step:4}  " + "   ".join(numbers), flush=True)
    for name, loss in line.get("blame", {}).items():
        print(f"      held-out loss {loss:8.3f}  {name}", flush=True)


def run(options, tokens, own):
    """own: the lane whose gradients are followed."""
    options.attention = LANES[own][0]
    torch.manual_seed(options.seed)
    model = high_rate.new_model(options).cuda().train()
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.1, fused=True)
    n_training = int(0.95 * len(tokens))
    batches = high_rate.windows(tokens[:n_training], options.seed)
    held_out = next(high_rate.windows(tokens[n_training:], 0))
    lines, before = [], None
    for step in range(options.steps):
        line, gradients = compare(model, next(batches))
        if lines and line["loss"][own] > lines[-1]["loss"][own] + JUMP:
            line["blame"] = blame(model, before, held_out)
        show(step, line)
        lines.append(line)
        before = weights_of(model)
        follow(model, optimiser, gradients[own], options.rate * min(1.0, (step + 1) / high_rate.WARM_UP))
    return lines


def follow(model, optimiser, row, rate):
    """A step of the optimiser along a row of gradients."""
    at = 0
    for parameter in model.parameters():
        parameter.grad = row[at:at + parameter.numel()].view_as(parameter).clone()
        at += parameter.numel()
    for group in optimiser.param_groups:
        group["lr"] = rate
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def main(options):
    tokens, found = np.load(options.tokens), {}
    for own in (0, 1):
        print(f"rate {options.rate}, seed {options.seed}, trained with {LANES[own][0]}\nstep  loss: headlight, "
              "sdpa, sdpa in f32   norm: likewise   cosine to f32: headlight, sdpa", flush=True)
        found[LANES[own][0]] = run(options, tokens, own)
    with open(options.out, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "tokens", "out"):
        parser.add_argument(name)
    for name, value in (("rate", 0.01), ("seed", 1), ("steps", 24)):
        parser.add_argument("--" + name, type=type(value), default=value)
    parser.set_defaults(fresh=True)
    main(parser.parse_args())
