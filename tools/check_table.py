#!/usr/bin/env python3
"""The table of all checks on released models and on made cases, as doc/checks.md has it.

    tools/check_table.py --real MODELS --cases CASES [--profiles FOLDER] [--usual]
    tools/check_table.py --cases CASES --fixtures tests/data/checks.tar.gz

MODELS holds the eleven models that ../shared/models/real/get fetches; CASES is what
tools/train_cases.py makes.  Each is measured with build/headlight (or $HEADLIGHT), decoders generate
a text for attention-locking, and `headlight diagnose --json` is asked.  Profiles and traces that are
in FOLDER already are not made again.  With --usual the rows of src/analysis/usual.c are printed
instead; with --fixtures the profiles of the cases are written for the tests.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADLIGHT = os.environ.get("HEADLIGHT", str(ROOT / "build/headlight"))
ALICE = "models/text/alice.txt"
# Name, where the weights are, the text ("" for the token ids of its kind beside the model), context,
# number of tokens, is it a decoder of text.
REAL = [
    ("SmolLM2-135M", "smollm2-135m/model.gguf", ALICE, 256, 2048, True),
    ("Qwen2.5-Coder-0.5B (code)", "qwen2.5-coder-0.5b/model.gguf", "tools/demo_data.py", 256, 2048,
     True),
    ("Gemma-3-270M", "gemma3-270m/model.gguf", ALICE, 256, 2048, True),
    ("TinyLlama-1.1B", "tinyllama-1.1b/model.gguf", ALICE, 256, 2048, True),
    ("IgLM (antibodies)", "iglm", "", 64, 0, False),
    ("IgLM-S (antibodies)", "iglm-s", "", 64, 0, False),
    ("MiniLM-L6", "minilm-l6", ALICE, 128, 4096, False),
    ("AntiBERTy (antibodies)", "antiberty", "", 64, 0, False),
    ("Sapiens-VH (antibodies)", "sapiens-vh", "", 64, 0, False),
    ("Sapiens-VL (antibodies)", "sapiens-vl", "", 64, 0, False),
    ("rxnfp (reactions)", "rxnfp", "", 64, 0, False),
]
DECODERS = {"IgLM (antibodies)", "IgLM-S (antibodies)"}
# Name, weights, the earlier profile.
CASES = [
    ("random weights, 8 × 8", "random-8x8", ""),
    ("random weights, 4 × 4", "run/step-0", ""),
    ("random → trained, step 50", "run/step-50", "run/step-0"),
    ("random → trained, step 1000", "run/step-1000", "run/step-0"),
    ("trained → collapsed, +25 steps", "collapsed/step-1025", "run/step-1000"),
    ("trained → collapsed, +100 steps", "collapsed/step-1100", "run/step-1000"),
    ("quantized to Q4_0", "quantized.gguf", "run/step-1000"),
    ("one scrambled head", "scrambled", "run/step-1000"),
    ("one head that overflows", "broken", "run/step-1000"),
]
RUN = [f"run/step-{step}" for step in range(50, 1001, 50)]
LOOPS = [
    ("demo, “the the the”", "Alice was the the the the", []),
    ("demo, “I am not afraid of it.”", "Once upon a time", []),
    ("demo, sampled at temperature 1", "Once upon a time", ["--temperature", "1", "--seed", "3"]),
]


def run(*arguments: object, made: Path | None = None) -> str:
    """What headlight prints.  A file that was made is welcome with any status: attention that is not
    finite makes it 3."""
    done = subprocess.run([HEADLIGHT, *map(str, arguments)], cwd=ROOT, text=True, check=False,
                          stdout=subprocess.PIPE)
    if done.returncode != 0 and not (made and made.exists()):
        raise SystemExit(f"headlight {' '.join(map(str, arguments))}: status {done.returncode}")
    return done.stdout


class Table:
    """Measures and asks; remembers files by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, *command: object) -> Path:
        """A profile or a trace, made by this command unless it is there."""
        path = self.folder / re.sub("[^A-Za-z0-9.]+", "-", name)
        if not path.exists():
            out = "--trace" if name.endswith(".trace") else "-o"
            run(*command, out, path, made=path)
        return path

    def profile(self, name: str, model: Path, *how: object) -> Path:
        """Of a model; the loss is measured of decoders only."""
        return self.file(f"{name}.profile", "measure", "-q", model, *how)

    def trace(self, name: str, model: Path, prompt: str, *how: object) -> Path:
        """160 generated tokens."""
        return self.file(f"{name}.trace", "generate", "-q", "--raw", "--ignore-end", "-n", 160,
                         *how, model, prompt)

    def real(self, models: Path, row: tuple) -> list[dict]:
        """The checks of a released model."""
        name, where, text, context, n_tokens, generates = row
        how: list[object] = ["-c", context]
        if text:
            how += [text, "--max-tokens", n_tokens]
        else:
            how += ["--token-ids", models / where / "expected.safetensors"]
        if generates or name in DECODERS:
            how.append("--nll")
        command: list[object] = ["diagnose", "--json", self.profile(name, models / where, *how)]
        if generates:
            command += ["--trace", self.trace(name, models / where, "Once upon a time, there was",
                                              "--temperature", 0.8, "--seed", 1)]
        return json.loads(run(*command))["diagnoses"]

    def case_profile(self, cases: Path, where: str) -> Path:
        """The profile of a made model."""
        return self.profile(where, cases / where, "--nll", "--no-probe", "-c", 128,
                            "--max-tokens", 1024, ALICE)

    def case(self, cases: Path, where: str, before: str) -> list[dict]:
        """The checks of a made model."""
        made = [self.case_profile(cases, one) for one in (where, before) if one]
        return json.loads(run("diagnose", "--json", *made))["diagnoses"]


def cell(check: dict) -> str:
    """Found, not found or not run, with the effect."""
    effect = "" if check["value"] is None else f" {check['value']:.3g}"
    if check["verdict"] == "not run":
        return "not run"
    words = {"found": "**found**" if check["kind"] == "alarm" else "found", "not found": "–"}
    return words[check["verdict"]] + effect


def print_rows(rows: list[tuple[str, list[dict]]]) -> None:
    """A table in Markdown: alarms, then observations."""
    checks = sorted(rows[0][1], key=lambda check: check["kind"])
    names = [check["name"] for check in checks]
    print("| model | " + " | ".join(names) + " |")
    print("| --- |" + " ---: |" * len(names))
    for name, found in rows:
        by_name = {check["name"]: check for check in found}
        print(f"| {name} | " + " | ".join(cell(by_name[one]) for one in names) + " |")
    print()


def print_usual(rows: list[tuple[str, list[dict]]]) -> None:
    """The table of src/analysis/usual.c."""
    left_out = ("attention-locking", "head-drift")
    for (name, found), model in zip(rows, REAL):
        causal = model[5] or name in DECODERS
        values = ["N" if check["name"] in left_out or check["value"] is None
                  else f"{check['value']:.3g}" for check in found]
        print(f'    {{ "{name}", {str(causal).lower()}, {{ {", ".join(values)} }} }},')


def quantize(cases: Path) -> None:
    """The trained model with matrices of 4 bits."""
    if not (cases / "quantized.gguf").exists():
        run("prune", "-q", cases / "run/step-1000", "--count", 0, "--as", "gguf", "--type", "q4_0",
            "-o", cases / "quantized.gguf")


def write_fixtures(table: Table, cases: Path, path: Path) -> None:
    """The profiles of all cases, without what differs between two archives of the same files."""
    def bare(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o644
        return entry

    with open(path, "wb") as out, gzip.GzipFile("", "wb", 9, out, 0) as packed, \
            tarfile.open(fileobj=packed, mode="w") as archive:
        for where in sorted({*RUN, *(name for _, *names in CASES for name in names if name)}):
            profile = table.case_profile(cases, where)
            archive.add(profile, profile.name, filter=bare)


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--fixtures", type=Path)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--usual", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.profiles or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        table = Table(folder)
        if arguments.cases and not (folder / "quantized.gguf.profile").exists():
            quantize(arguments.cases)
        if arguments.fixtures:
            write_fixtures(table, arguments.cases, arguments.fixtures)
            return
        real = [(row[0], table.real(arguments.real, row)) for row in REAL]
        if arguments.usual:
            print_usual(real)
            return
        print_rows(real)
        if arguments.cases:
            rows = [(name, table.case(arguments.cases, where, before))
                    for name, where, before in CASES]
            dense = table.profile("demo", ROOT / "models/demo", "--nll", "-c", 256,
                                  "--max-tokens", 4096, ALICE)
            sparse = table.profile("sparse", ROOT / "models/demo-sparse", "--nll", "-c", 256,
                                   "--max-tokens", 4096, ALICE)
            rows.append(("dense → sparse (models/demo-sparse)",
                         json.loads(run("diagnose", "--json", sparse, dense))["diagnoses"]))
            for name, prompt, how in LOOPS:
                trace = table.trace(name, ROOT / "models/demo", prompt, *how)
                rows.append((name, json.loads(run("diagnose", "--json", dense, "--trace",
                                                  trace))["diagnoses"]))
            print_rows(rows)
            alarms = sum(check["kind"] == "alarm" and check["verdict"] == "found"
                         for where, before in zip(RUN, ["run/step-0", *RUN])
                         for check in table.case(arguments.cases, where, before))
            print(f"False alarms on {len(RUN)} healthy checkpoints (run/step-50 to step-1000, each "
                  f"against the one before): {alarms}")


if __name__ == "__main__":
    main()
