#!/usr/bin/env python3
"""Write card.json and the tables of the model card.

card.json holds every figure.  README.md is written by hand, apart from the tables: the
text between `<!-- table: NAME -->` and `<!-- end -->` is generated here from card.json.

    python3 tools/demo_card.py models        fill the tables of models/README.md
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Callable, Sequence

DIGITS = 6   # significant digits kept in card.json
MODELS = ("demo", "demo-sparse")


def rounded(value: Any) -> Any:
    """A JSON value with its floats cut to DIGITS significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def write_card(path: Path, card: dict) -> None:
    """Write card.json, innermost lists on one line each."""
    text = json.dumps(rounded(card), indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+([^\[\]{}\"]*?)\s+\]",
                  lambda match: "[" + " ".join(match.group(1).split()) + "]", text)
    path.write_text(text + "\n", encoding="utf-8")


def read_card(path: Path) -> dict:
    """Read card.json."""
    return json.loads(path.read_text(encoding="utf-8"))


# ------------------------------------------------------------------ tables

def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; the first column is text, the others are right-aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def change(before: float, after: float) -> str:
    """Relative change in percent."""
    return f"{100 * (after / before - 1):+.1f}%"


def data_table(card: dict) -> str:
    """Sources with their hashes, then the held-out documents."""
    facts = card["data"]
    sources = table(["source", "sha256"],
                    [[name, f"`{value}`"] for name, value in facts["sources"].items()])
    held_out = table(["held-out document", "bytes"],
                     [[name, f"{size:,}"] for name, size in facts["held_out"].items()])
    return f"{sources}\n\n{held_out}"


def files_table(card: dict) -> str:
    """Hashes of the weights and the shipped texts."""
    rows = [[f"{model}/model.safetensors", f"`{card['figures'][model]['sha256']}`"]
            for model in MODELS]
    rows += [[f"text/{name}", f"`{value}`"] for name, value in card["data"]["texts"].items()]
    return table(["file", "sha256"], rows)


def training_table(card: dict) -> str:
    """Settings of the two phases side by side."""
    plan, facts = card["plan"], card["data"]
    steps = [card["dense"]["steps"], card["sparse"]["runs"][0]["steps"]]
    tokens = [n * plan["batch"] * plan["shape"]["n_ctx"] for n in steps]
    rows = [
        ["starts from", "random weights", "`models/demo`"],
        ["steps", *steps],
        ["batch, sequences × tokens", *[f"{plan['batch']} × {plan['shape']['n_ctx']}"] * 2],
        ["tokens seen", *[f"{n:,}" for n in tokens]],
        ["passes over the text", *[f"{n / facts['training_tokens']:.2f}" for n in tokens]],
        ["peak learning rate", card["dense"]["learning_rate"], plan["sparse_learning_rate"]],
        ["seed", plan["seed"], plan["seed"] + 1],
        ["entropy penalty", "none", f"{card['sparse']['chosen_weight']} (chosen, see below)"],
    ]
    probes = table(["learning rate tried", "steps", "held-out loss"],
                   [[p["learning_rate"], p["steps"], f"{p['held_out_loss']:.4f}"]
                    for p in card["dense"]["probes"]])
    return table(["", "demo", "demo-sparse"], rows) + "\n\n" + probes


def curve_table(card: dict) -> str:
    """Loss curve of the dense model."""
    rows = [[row["step"], f"{row['tokens'] / 1e6:.1f}", row["learning_rate"],
             f"{row['train_loss']:.3f}", f"{row['held_out_loss']:.3f}"]
            for row in card["dense"]["curve"]]
    header = ["step", "million tokens", "learning rate", "training loss", "held-out loss"]
    return table(header, rows)


def loss_table(card: dict) -> str:
    """Loss on all held-out text, its two parts, and wikitext-2."""
    names = {"held_out": "held-out, all", "held_out_books": "held-out books",
             "held_out_speeches": "held-out speeches", "wikitext2": "wikitext-2 test"}
    rows = []
    for key, label in names.items():
        dense, sparse = (card["figures"][model]["loss"][key] for model in MODELS)
        rows.append([label, f"{dense['tokens']:,}", f"{dense['nats_per_token']:.4f}",
                     f"{sparse['nats_per_token']:.4f}",
                     change(dense["nats_per_token"], sparse["nats_per_token"]),
                     f"{dense['bits_per_byte']:.4f}", f"{sparse['bits_per_byte']:.4f}"])
    return table(["text", "tokens", "demo, nats/token", "demo-sparse, nats/token", "change",
                  "demo, bits/byte", "demo-sparse, bits/byte"], rows)


ATTENTION_ROWS = (
    ("entropy", "mean entropy H, nats"), ("normalized_entropy", "mean normalized entropy Ĥ"),
    ("diagonal", "self D0"), ("lift", "lift of D0 over uniform"),
    ("previous", "previous token D1"), ("band", "band D4"), ("sink", "sink mass"),
    ("content", "content mass"), ("peak", "peak"), ("peak_p95", "95th percentile of the peak"),
    ("off_peak", "peak on another token"), ("dominant", "share of rows whose peak is the token itself"),
    ("edges", "edges kept, A > 1e-3"), ("k90", "k90 / n"), ("support2", "e^H2 / n"),
)


def attention_table(card: dict) -> str:
    """Means over all heads, with and without the first key."""
    rows = []
    for key, label in ATTENTION_ROWS:
        cells = []
        for part in ("mean", "mean_no_sink"):
            pair = [card["figures"][model]["attention"][part].get(key) for model in MODELS]
            cells += ["–"] * 3 if None in pair else [f"{pair[0]:.4f}", f"{pair[1]:.4f}",
                                                     change(*pair)]
        rows.append([label, *cells])
    return table(["mean over 64 heads", "demo", "demo-sparse", "change", "demo, without the first key",
                  "demo-sparse, without the first key", "change"], rows)


def repeats_table(card: dict) -> str:
    """Best heads on repeated random ids, every period."""
    rows = []
    for model in MODELS:
        for period, entry in card["figures"][model]["repeats"].items():
            best = [f"{entry[name][0]['score']:.3f} ({entry[name][0]['head']})"
                    for name in ("induction", "previous", "duplicate")]
            rows.append([model, period.split("_")[1], *best, entry["heads_induction_above_0.1"],
                         f"{entry['loss_first_copy']:.2f}", f"{entry['loss_second_copy']:.2f}"])
    return table(["model", "period T", "induction", "previous token", "duplicate token",
                  "heads with induction > 0.1", "loss, first copy", "loss, second copy"], rows)


TRADEOFF_ROWS = (
    ("held_out_loss", "held-out loss, nats/token", 4), ("wikitext2_loss", "wikitext-2 loss", 4),
    ("train_loss", "training loss (dropout on)", 4),
    ("entropy", "mean entropy H, nats", 3), ("normalized_entropy", "mean normalized entropy Ĥ", 3),
    ("entropy_no_sink", "mean H without the first key", 3), ("edges", "edges kept, A > 1e-3", 4),
    ("edges_no_sink", "edges kept without the first key", 4), ("diagonal", "self D0", 4),
    ("diagonal_no_sink", "D0 without the first key", 4), ("lift", "lift of D0 over uniform", 2),
    ("dominant", "share of rows whose peak is the token itself", 3), ("previous", "previous token D1", 3),
    ("band", "band D4", 3), ("sink", "sink mass", 3), ("content", "content mass", 3),
    ("peak", "peak", 3), ("off_peak", "peak on another token", 3), ("k90", "k90 / n", 4),
    ("support2", "e^H2 / n", 4),
)


def tradeoff_table(card: dict) -> str:
    """One column a penalty weight; the first is the model they all start from."""
    sparse = card["sparse"]
    start, chosen = sparse["dense"], sparse["chosen_weight"]
    columns = [start, *sparse["runs"]]
    base = start["held_out_loss"]
    names = [f"{run['weight']:g}" for run in sparse["runs"]]
    names = [f"**{name}**" if run["weight"] == chosen else name
             for name, run in zip(names, sparse["runs"])]
    rows = [[label, *[f"{run[key]:.{digits}f}" if key in run else "–" for run in columns]]
            for key, label, digits in TRADEOFF_ROWS]
    rows.insert(1, ["change from demo", *[change(base, run["held_out_loss"]) for run in columns]])
    rows.append(["sink heads", *[run["counts"]["sink_heads"] for run in columns]])
    induction = [run["induction"]["period_128"] for run in columns]
    rows.append(["best induction head, T = 128",
                 *[f"{best['score']:.3f} ({best['head']})" for best in induction]])
    limit = base * (1 + card["plan"]["loss_limit"])
    return (table(["weight of the penalty", "demo", *names], rows) +
            f"\n\nIn bold: `models/demo-sparse`. The limit on the held-out loss is {limit:.4f}.")


def claim_rows(card: dict) -> list[list[str]]:
    """The reference document's numbers beside ours, one row each."""
    dense, sparse = (card["figures"][model]["attention"] for model in MODELS)
    pair = card["figures"]["pair"]

    def both(part: str, key: str, digits: int = 3) -> list[str]:
        return [f"{a[part][key]:.{digits}f}" for a in (dense, sparse)]

    def share(key: str, short: bool = False) -> list[str]:
        counts = [(a["short"] if short else a)["counts"] for a in (dense, sparse)]
        return [f"{c[key]} of {c['heads']} heads" for c in counts]

    def short(key: str) -> list[str]:
        return [f"{a['short']['mean'][key]:.3f}" for a in (dense, sparse)]

    def fall(key: str, a: dict = dense, b: dict = sparse) -> str:
        return change(a["mean"][key], b["mean"][key])

    top = [", ".join(f"{h['head']} {h['score']:.2f}" for h in a["best_peak"][:2])
           for a in (dense, sparse)]
    layers = [f"{min(a['layer_diagonal']):.3f} to {max(a['layer_diagonal']):.3f}"
              for a in (dense, sparse)]
    head = pair["largest_diagonal_fall"]
    return [
        ["diagonal dominance in 73% of GPT2's maps", *share("diagonal_dominant")],
        ["the same at 10 tokens", *share("diagonal_dominant", True)],
        ["average peak 0.68 (GPT2)", *both("mean", "peak")],
        ["the same at 10 tokens", *short("peak")],
        ["peaks L3H10 0.72, L7H3 0.69: our two highest", *top],
        ["\"uniform across layers\": layer means of D0, smallest to largest", *layers],
        ["diagonal intensity 0.68 to 0.26, −62%: our D0", both("mean", "diagonal")[0],
         f"{both('mean', 'diagonal')[1]} ({fall('diagonal')})"],
        ["the same at 10 tokens", short("diagonal")[0],
         f"{short('diagonal')[1]} ({fall('diagonal', dense['short'], sparse['short'])})"],
        ["self-attention \"p < 0.01\": heads with D0 above uniform",
         *share("diagonal_above_uniform")],
        ["68% (or 62%) fewer direct connections: our edges", both("mean", "edges")[0],
         f"{both('mean', 'edges')[1]} ({fall('edges')})"],
        ["8 maps with > 0.5 off the diagonal: heads whose mean off-diagonal peak is > 0.5",
         *share("off_peak_above_half")],
        ["L5H1: diagonal 0.78 to 0.22; our largest fall",
         f"{head['head']} {head['from']:.3f}", f"{head['to']:.3f}"],
    ]


def claims_table(card: dict) -> str:
    """Document 004's claims, measured."""
    return table(["claim of the figure", "demo", "demo-sparse"], claim_rows(card))


def pair_table(card: dict) -> str:
    """Heads that changed between the two models, tested."""
    pair = card["figures"]["pair"]
    names = {"entropy": "entropy H", "edges": "edges kept", "diagonal": "diagonal D0",
             "previous": "previous D1", "sink": "sink", "peak": "peak"}
    rows = [[label, f"{pair[key]['mean_change']:+.4f}", pair[key]["heads_lower"],
             pair[key]["heads_higher"]] for key, label in names.items()]
    return table(["metric", "mean change", "heads lower", "heads higher"], rows)


def samples(card: dict) -> str:
    """What both models write after the prompt."""
    blocks = []
    for model in MODELS:
        text = card["figures"][model]["sample"].replace("```", "'''")
        blocks.append(f"`models/{model}`:\n\n```text\n{text}\n```")
    return "\n\n".join(blocks)


TABLES: dict[str, Callable[[dict], str]] = {
    "data": data_table,
    "files": files_table,
    "training": training_table,
    "curve": curve_table,
    "loss": loss_table,
    "attention": attention_table,
    "repeats": repeats_table,
    "tradeoff": tradeoff_table,
    "claims": claims_table,
    "pair": pair_table,
    "samples": samples,
}


def filled(readme: str, card: dict) -> str:
    """The README's text with every table replaced by what the card gives."""
    def replacement(match: re.Match) -> str:
        name = match.group(1)
        return f"<!-- table: {name} -->\n{TABLES[name](card)}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", replacement, readme, flags=re.S)


def fill_readme(path: Path, card: dict) -> None:
    """Rewrite the tables of a README in place, where there is one."""
    if path.exists():
        path.write_text(filled(path.read_text(encoding="utf-8"), card), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="fill the tables of the model card")
    parser.add_argument("models", type=Path, help="folder of README.md and card.json")
    folder = parser.parse_args().models
    fill_readme(folder / "README.md", read_card(folder / "card.json"))
