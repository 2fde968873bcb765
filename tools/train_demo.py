#!/usr/bin/env python3
"""Train the two demo models: a GPT-2 and its sparse sibling.

    python3 tools/train_demo.py --gutenberg BOOKS.tar.xz --sotu SPEECHES.tar.xz \\
        --wikitext wiki.test.raw --out models

Stage dense
    A byte-level BPE of 4096 entries is trained on the training documents.  Three
    learning rates are tried for a quarter of the steps; the dense model is trained at
    the best of them and saved as OUT/demo, with OUT/text and the start of OUT/card.json.
Stage sparse
    Training continues from the saved OUT/demo with
        loss + weight * mean normalized attention entropy
    at a range of weights, weight 0 among them (a fair baseline: the same extra steps).
    Two more weights are tried where the loss limit falls between two of them.
    OUT/demo-sparse is the run of the lowest mean entropy whose held-out loss is at most
    5% over the dense model's.  Then the figures of both models are measured from their
    folders, OUT/card.json is completed, and the tables of OUT/README.md are filled in
    where that file exists.

expected.safetensors is written beside both models.  Needs PyTorch 2, transformers,
tokenizers and safetensors; about ten minutes on one GPU for both stages (--stage picks
one).  --smoke runs every step on a toy size.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import torch
from torch import Tensor

import demo_card
import demo_data as data
import demo_figures as figures
from demo_model import (Gpt2, Shape, State, load_checkpoint, load_state, parameter_groups,
                        save_checkpoint)


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run, apart from the text."""

    shape: Shape = Shape()
    seed: int = 1
    batch: int = 32
    dense_passes: float = 8.0
    probe_share: float = 0.25
    learning_rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3)
    sparse_passes: float = 2.0
    sparse_learning_rate: float = 5e-4
    weights: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0, 3.0, 9.0)
    refinements: int = 2
    loss_limit: float = 0.05
    repeat_share: float = 0.05
    weight_decay: float = 0.1
    clip: float = 1.0
    evaluations: int = 16


SMOKE = Plan(shape=Shape(n_layers=2, n_heads=2, d_model=32, n_ctx=512, d_vocab=512),
             batch=4, dense_passes=0.02, learning_rates=(1e-3, 2e-3), sparse_passes=0.02,
             weights=(0.0, 1.0), refinements=1, evaluations=3)


@dataclass(frozen=True)
class Phase:
    """One stretch of optimization."""

    label: str
    steps: int
    learning_rate: float
    seed: int
    weight: float | None = None   # of the entropy penalty; None: plain attention

    def rate(self, step: int) -> float:
        """Linear warm-up over 5% of the steps, then a cosine down to 1%."""
        warm = max(1, self.steps // 20)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        progress = (step - warm) / max(1, self.steps - warm)
        return self.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))

    def penalty(self, step: int) -> float:
        """The weight, reached linearly over the first fifth of the steps."""
        return (self.weight or 0.0) * min(1.0, (step + 1) / max(1, self.steps // 5))


class Trainer:
    """Optimizes one model on the token stream and measures held-out loss on the way.

    There is one model object for all phases, and each phase loads its starting weights
    into it: compiled code belongs to the object, and compiling is slow.
    """

    def __init__(self, plan: Plan, stream: Tensor, texts: figures.Texts,
                 device: torch.device, compiled: bool) -> None:
        self.plan, self.stream, self.texts, self.device = plan, stream, texts, device
        torch.manual_seed(plan.seed)
        self.model = Gpt2(plan.shape).to(device)
        self.initial = self.state()
        self.objective = torch.compile(self.model, dynamic=False) if compiled else self.model

    def state(self) -> State:
        """A copy of the weights."""
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def autocast(self) -> torch.autocast:
        """bf16 on a GPU, f32 elsewhere."""
        cuda = self.device.type == "cuda"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=cuda)

    def steps_for(self, passes: float) -> int:
        """Optimizer steps that read the stream this many times."""
        per_step = self.plan.batch * self.plan.shape.n_ctx
        return max(4, round(passes * len(self.stream) / per_step))

    def batches(self, seed: int) -> Iterator[Tensor]:
        """Endless shuffled batches, (batch, n_ctx + 1)."""
        generator = torch.Generator(self.device).manual_seed(seed)
        size = self.plan.batch
        while True:
            epoch = data.epoch_sequences(self.stream, self.plan.shape.n_ctx,
                                         self.plan.repeat_share, generator)
            for start in range(0, len(epoch) - size + 1, size):
                yield epoch[start:start + size]

    def held_out_loss(self) -> float:
        """Held-out loss of the model as it stands, in nats a token."""
        self.model.eval()
        encoded = list(self.texts.held_out.values())
        with self.autocast():
            loss = figures.loss_of(self.model.logits, encoded, self.texts, self.device)
        self.model.train()
        return loss["nats_per_token"]

    def run(self, start: State, phase: Phase) -> list[dict]:
        """Optimize from the weights `start`; returns the loss curve."""
        torch.manual_seed(phase.seed)
        self.model.load_state_dict(start)
        self.model.train()
        optimizer = torch.optim.AdamW(
            parameter_groups(self.model, self.plan.weight_decay), lr=phase.learning_rate,
            betas=(0.9, 0.98), eps=1e-8, fused=self.device.type == "cuda")
        batches, curve, began = self.batches(phase.seed), [], time.monotonic()
        recent = torch.zeros(2, device=self.device)
        since, every = 0, max(1, phase.steps // self.plan.evaluations)
        for step in range(phase.steps):
            recent += self.step(optimizer, next(batches), phase, step)
            since += 1
            if (step + 1) % every == 0 or step + 1 == phase.steps:
                entry = self.record(phase, step + 1, recent / since)
                entry["seconds"] = round(time.monotonic() - began, 1)
                curve.append(entry)
                print(phase.label, json.dumps(entry), flush=True)
                recent.zero_()
                since = 0
        return curve

    def step(self, optimizer: torch.optim.Optimizer, batch: Tensor, phase: Phase,
             step: int) -> Tensor:
        """One update; returns (loss, mean normalized entropy), (2,)."""
        for group in optimizer.param_groups:
            group["lr"] = phase.rate(step)
        with self.autocast():
            loss, entropy = self.objective(batch, phase.weight is not None)
        (loss + phase.penalty(step) * entropy).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return torch.stack([loss.detach(), entropy.detach()])

    def record(self, phase: Phase, step: int, recent: Tensor) -> dict:
        """One row of the loss curve; recent is (loss, entropy) since the last row."""
        entry = {"step": step, "tokens": step * self.plan.batch * self.plan.shape.n_ctx,
                 "learning_rate": float(f"{phase.rate(step - 1):.3g}"),
                 "train_loss": round(float(recent[0]), 4),
                 "held_out_loss": round(self.held_out_loss(), 4)}
        if phase.weight is not None:
            entry["normalized_entropy"] = round(float(recent[1]), 4)
        return entry


# ------------------------------------------------------------------- dense

def train_dense(trainer: Trainer) -> dict:
    """Try the learning rates briefly, then train at the best one."""
    plan = trainer.plan
    steps = trainer.steps_for(plan.dense_passes)
    probes = []
    for rate in plan.learning_rates:
        phase = Phase(f"probe {rate:g}", round(steps * plan.probe_share) or 1, rate, plan.seed)
        curve = trainer.run(trainer.initial, phase)
        probes.append({"learning_rate": rate, "steps": phase.steps,
                       "held_out_loss": curve[-1]["held_out_loss"]})
    best = min(probes, key=lambda probe: probe["held_out_loss"])["learning_rate"]
    curve = trainer.run(trainer.initial, Phase("dense", steps, best, plan.seed))
    return {"probes": probes, "learning_rate": best, "steps": steps, "curve": curve}


# ------------------------------------------------------------------ sparse

def next_weight(runs: list[dict], limit: float) -> float:
    """A weight between the largest that keeps the limit and the smallest that does not."""
    kept = [run["weight"] for run in runs if run["held_out_loss"] <= limit and run["weight"] > 0]
    broken = [run["weight"] for run in runs if run["held_out_loss"] > limit]
    if not broken:
        return max(kept) * 3
    if not kept:
        return min(broken) / 3
    above = [weight for weight in broken if weight > max(kept)]
    return math.sqrt(max(kept) * min(above)) if above else max(kept) * 1.5


def train_sparse(trainer: Trainer, dense: State, weight: float, folder: Path) -> dict:
    """Continue the dense model with one penalty weight, save it and measure it."""
    plan = trainer.plan
    phase = Phase(f"weight {weight:.3g}", trainer.steps_for(plan.sparse_passes),
                  plan.sparse_learning_rate, plan.seed + 1, weight)
    curve = trainer.run(dense, phase)
    save_checkpoint(trainer.model, folder)
    run = measure_run(folder, trainer.texts, trainer.device)
    return {"weight": weight, "folder": str(folder), "steps": phase.steps,
            "train_loss": curve[-1]["train_loss"], **run, "curve": curve}


def measure_run(folder: Path, texts: figures.Texts, device: torch.device) -> dict:
    """The columns of the trade-off table for one saved model."""
    model = load_checkpoint(folder, device)
    loss = figures.loss_figures(model, texts, device)
    attention = figures.pattern_figures(model, texts)
    repeats = figures.repeat_figures(model, texts, device)
    mean = attention["mean"]
    return {
        "held_out_loss": loss["held_out"]["nats_per_token"],
        "wikitext2_loss": loss["wikitext2"]["nats_per_token"],
        **{name: mean[name] for name in (
            "entropy", "normalized_entropy", "edges", "diagonal", "lift", "previous", "band", "sink",
            "content", "peak", "off_peak", "k90", "support2", "dominant")},
        "entropy_no_sink": attention["mean_no_sink"]["entropy"],
        "diagonal_no_sink": attention["mean_no_sink"]["diagonal"],
        "edges_no_sink": attention["mean_no_sink"]["edges"],
        "counts": attention["counts"],
        "induction": {period: entry["induction"][0] for period, entry in repeats.items()},
    }


def sweep(trainer: Trainer, dense: State, dense_loss: float, scratch: Path) -> list[dict]:
    """One run a weight, then the refinements; sorted by weight."""
    plan = trainer.plan
    limit = dense_loss * (1 + plan.loss_limit)
    runs: list[dict] = []
    pending = list(plan.weights)
    for number in range(len(plan.weights) + plan.refinements):
        weight = pending.pop(0) if pending else next_weight(runs, limit)
        weight = float(f"{weight:.2g}")
        if any(run["weight"] == weight for run in runs):
            break
        run = train_sparse(trainer, dense, weight, scratch / str(number))
        run["within_limit"] = run["held_out_loss"] <= limit
        runs.append(run)
        shown = ("weight", "held_out_loss", "entropy", "edges", "diagonal", "within_limit")
        print("run", {name: run[name] for name in shown}, flush=True)
    return sorted(runs, key=lambda run: run["weight"])


def choose(runs: list[dict]) -> dict:
    """The run of the lowest mean entropy within the loss limit, weight 0 left out."""
    allowed = [run for run in runs if run["within_limit"] and run["weight"] > 0]
    if not allowed:
        raise SystemExit("no penalty weight keeps the loss within the limit")
    return min(allowed, key=lambda run: run["entropy"])


# ------------------------------------------------------------------ stages

def describe_data(corpus: data.Corpus, archives: list[Path], wikitext: Path,
                  n_tokens: int) -> dict:
    """Names, hashes and sizes of the text, for the card."""
    by_name = {document.name: document.text for document in corpus.held_out}
    return {
        "sources": {path.name: data.sha256_of(path) for path in [*archives, wikitext]},
        "training_documents": len(corpus.training),
        "training_bytes": sum(d.n_bytes for d in corpus.training),
        "training_tokens": n_tokens,
        "held_out": {d.name: d.n_bytes for d in corpus.held_out},
        "texts": {file: data.sha256_of_text(by_name[source])
                  for file, source in data.SHIPPED_TEXTS.items()},
    }


def finish_folder(folder: Path, tokenizer, plan: Plan, text: Path, device: torch.device) -> None:
    """Put the tokenizer and the expected values beside saved weights."""
    data.save_tokenizer(tokenizer, folder, plan.shape.n_ctx)
    figures.write_expected(folder, tokenizer, text, device)


def versions(device: torch.device) -> dict[str, str]:
    """What the run was made with."""
    import tokenizers
    import transformers

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {"python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "tokenizers": tokenizers.__version__,
            "device": name}


def dense_stage(arguments: argparse.Namespace, plan: Plan, device: torch.device) -> None:
    """Tokenizer, dense model, shipped texts, and the first half of the card."""
    out, began = arguments.out, time.monotonic()
    archives = [arguments.gutenberg, arguments.sotu]
    corpus = data.load_corpus(archives)
    tokenizer = data.train_tokenizer(corpus.training, plan.shape.d_vocab)
    trainer = new_trainer(arguments, plan, corpus, tokenizer, device)
    data.write_shipped_texts(corpus, out / "text")
    record = train_dense(trainer)
    save_checkpoint(trainer.model, out / "demo")
    finish_folder(out / "demo", tokenizer, plan, out / "text", device)
    record["seconds"] = round(time.monotonic() - began)
    sizes = describe_data(corpus, archives, arguments.wikitext, len(trainer.stream))
    demo_card.write_card(out / "card.json", {
        "data": sizes, "plan": dataclasses.asdict(plan), "versions": versions(device),
        "dense": record})


def sparse_stage(arguments: argparse.Namespace, plan: Plan, device: torch.device) -> None:
    """The sweep over penalty weights, the choice, and the second half of the card."""
    out, began = arguments.out, time.monotonic()
    corpus = data.load_corpus([arguments.gutenberg, arguments.sotu])
    tokenizer = data.load_tokenizer(out / "demo")
    trainer = new_trainer(arguments, plan, corpus, tokenizer, device)
    texts = trainer.texts
    before = measure_run(out / "demo", texts, device)
    with tempfile.TemporaryDirectory() as scratch:
        dense = load_state(out / "demo")
        runs = sweep(trainer, dense, before["held_out_loss"], Path(scratch))
        chosen = choose(runs)
        shutil.copytree(chosen["folder"], out / "demo-sparse", dirs_exist_ok=True)
    finish_folder(out / "demo-sparse", tokenizer, plan, out / "text", device)
    for run in runs:
        del run["folder"]
    card = demo_card.read_card(out / "card.json")
    card.update(plan=dataclasses.asdict(plan), versions=versions(device))
    card["sparse"] = {"chosen_weight": chosen["weight"], "dense": before, "runs": runs,
                      "seconds": round(time.monotonic() - began)}
    card["figures"] = figures.card_figures(out, tokenizer, texts, device)
    demo_card.write_card(out / "card.json", card)
    demo_card.fill_readme(out / "README.md", demo_card.read_card(out / "card.json"))


def new_trainer(arguments: argparse.Namespace, plan: Plan, corpus: data.Corpus, tokenizer,
                device: torch.device) -> Trainer:
    """Encode all text, the training part onto the device, and build the trainer."""
    stream = data.training_stream(data.encode(tokenizer, corpus.training)).to(device)
    texts = figures.encode_texts(tokenizer, corpus, arguments.wikitext, plan.shape.n_ctx)
    print(f"{len(stream)} training tokens", flush=True)
    return Trainer(plan, stream, texts, device, not arguments.no_compile)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gutenberg", type=Path, required=True, help="archive of books")
    parser.add_argument("--sotu", type=Path, required=True, help="archive of speeches")
    parser.add_argument("--wikitext", type=Path, required=True, help="wikitext-2 raw test file")
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--stage", choices=("all", "dense", "sparse"), default="all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    parser.add_argument("--smoke", action="store_true", help="a toy size, to test the script")
    return parser.parse_args()


def main() -> None:
    """Run the stages asked for."""
    arguments = parse_arguments()
    plan = SMOKE if arguments.smoke else Plan()
    device = torch.device(arguments.device)
    if arguments.stage in ("all", "dense"):
        dense_stage(arguments, plan, device)
    if arguments.stage in ("all", "sparse"):
        sparse_stage(arguments, plan, device)


if __name__ == "__main__":
    main()
