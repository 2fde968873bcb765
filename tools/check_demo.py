#!/usr/bin/env python3
"""Compute the model card's figures again, from the committed folders.

    python3 tools/check_demo.py --models models --gutenberg BOOKS.tar.xz \\
        --sotu SPEECHES.tar.xz --wikitext wiki.test.raw

Prints every figure beside the card's value and exits 1 when one differs by more than
the tolerance, when a file's hash or a table of the README is not what card.json says,
or when expected.safetensors is not what transformers computes.  What only the training
run could measure (loss curve, the runs that were not shipped) is not computed again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Iterator

import torch

import demo_card
import demo_data as data
import demo_figures as figures

EXPECTED_TOLERANCE = 1e-4   # absolute, on every tensor of expected.safetensors


class Report:
    """Prints comparisons and remembers whether one failed."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.n_checked = 0
        self.failures: list[str] = []

    def line(self, name: str, card: Any, now: Any, good: bool) -> None:
        """Print one comparison."""
        self.n_checked += 1
        if not good:
            self.failures.append(name)
        print(f"{'ok ' if good else 'BAD'} {name:<58} card {card}  now {now}", flush=True)

    def number(self, name: str, card: float, now: float) -> None:
        """Compare two numbers; integers must be equal."""
        limit = 0 if isinstance(card, int) else self.tolerance * max(1.0, abs(card))
        shown = now if isinstance(now, int) else float(f"{now:.6g}")
        self.line(name, card, shown, abs(card - now) <= limit)

    def table(self, name: str, card: list, now: list) -> None:
        """Compare two nested lists of numbers by their largest difference."""
        a, b = torch.tensor(card).double(), torch.tensor(now).double()
        same = a.shape == b.shape
        worst = float((a - b).abs().max()) if same else float("inf")
        self.line(name, f"{list(a.shape)}", f"largest difference {worst:.2e}",
                  worst <= self.tolerance)


def leaves(card: Any, now: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Matching leaves of two JSON values; a list of numbers is one leaf."""
    if isinstance(card, dict):
        for key in card:
            yield from leaves(card[key], (now or {}).get(key), f"{name}.{key}" if name else key)
    elif isinstance(card, list) and card and isinstance(card[0], dict):
        for index, (a, b) in enumerate(zip(card, now)):
            yield from leaves(a, b, f"{name}.{index}")
    else:
        yield name, card, now


def compare(report: Report, card: dict, now: dict) -> None:
    """Compare the whole "figures" part of the card."""
    for name, a, b in leaves(card, now, ""):
        if b is None:
            report.line(name, a, "missing", False)
        elif isinstance(a, str):
            report.line(name, repr(a)[:60], "same" if a == b else repr(b)[:60], a == b)
        elif isinstance(a, list):
            report.table(name, a, b)
        else:
            report.number(name, a, b)


def check_expected(report: Report, models: Path, tokenizer, device: torch.device) -> None:
    """Recompute expected.safetensors of both models."""
    for folder in ("demo", "demo-sparse"):
        worst = figures.expected_differences(models / folder, tokenizer, models / "text", device)
        for name, difference in worst.items():
            report.line(f"{folder}/expected.safetensors {name}", "difference 0",
                        f"{difference:.2e}", difference <= EXPECTED_TOLERANCE)


def check_tokenizer(report: Report, models: Path, tokenizer) -> None:
    """transformers' own loader gives the ids of tokenizer.json on the shipped texts."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(models / "demo")
    for name in data.SHIPPED_TEXTS:
        text = (models / "text" / name).read_text(encoding="utf-8")
        ids = tokenizer.encode(text).ids
        same = loaded(text, verbose=False)["input_ids"] == ids
        back = tokenizer.decode(ids) == text
        report.line(f"tokenizer on text/{name}", "same ids, text comes back",
                    f"{len(ids)} ids, {same}, {back}", same and back)
    both = [(models / folder / "tokenizer.json").read_bytes() for folder in ("demo", "demo-sparse")]
    report.line("tokenizer.json of both models", "equal", both[0] == both[1], both[0] == both[1])


def check_files(report: Report, models: Path, card: dict, corpus: data.Corpus,
                sources: list[Path]) -> None:
    """Hashes of the sources, the shipped texts, and the README's tables."""
    for path, wanted in zip(sources, card["data"]["sources"].values()):
        found = data.sha256_of(path)
        report.line(f"sha256 of {path.name}", wanted[:16], found[:16], found == wanted)
    held_out = {document.name: document.text for document in corpus.held_out}
    for name, source in data.SHIPPED_TEXTS.items():
        found = data.sha256_of(models / "text" / name)
        wanted = card["data"]["texts"][name]
        same = found == wanted == data.sha256_of_text(held_out[source])
        report.line(f"text/{name}, a held-out document", wanted[:16], found[:16], same)
    readme = (models / "README.md").read_text(encoding="utf-8")
    same = demo_card.filled(readme, card) == readme
    report.line("tables of README.md", "as card.json gives them", same, same)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True, help="folder of the models")
    parser.add_argument("--gutenberg", type=Path, required=True, help="archive of books")
    parser.add_argument("--sotu", type=Path, required=True, help="archive of speeches")
    parser.add_argument("--wikitext", type=Path, required=True, help="wikitext-2 raw test file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tolerance", type=float, default=1e-4,
                        help="allowed difference, relative above 1 and absolute below")
    parser.add_argument("--save", type=Path, help="write the figures found as JSON")
    return parser.parse_args()


def main() -> None:
    """Check everything; exit 1 when something differs."""
    arguments = parse_arguments()
    models, device = arguments.models, torch.device(arguments.device)
    card = demo_card.read_card(models / "card.json")
    report = Report(arguments.tolerance)
    corpus = data.load_corpus([arguments.gutenberg, arguments.sotu])
    sources = [arguments.gutenberg, arguments.sotu, arguments.wikitext]
    check_files(report, models, card, corpus, sources)

    tokenizer = data.load_tokenizer(models / "demo")
    check_tokenizer(report, models, tokenizer)
    check_expected(report, models, tokenizer, device)
    n_ctx = card["plan"]["shape"]["n_ctx"]
    texts = figures.encode_texts(tokenizer, corpus, arguments.wikitext, n_ctx)
    now = demo_card.rounded(figures.card_figures(models, tokenizer, texts, device))
    if arguments.save:
        arguments.save.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    compare(report, card["figures"], now)

    bad = len(report.failures)
    print(f"{report.n_checked} comparisons, {bad} of them bad", *report.failures, sep="\n  ")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
