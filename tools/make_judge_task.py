#!/usr/bin/env python3
"""make_judge_task.py - makes texts with known correct tokens, for `headlight judge`.

    tools/make_judge_task.py FOLDER [--texts 300] [--model models/demo] [--headlight build/headlight]
    build/headlight judge FOLDER/*.trace FOLDER/labels.jsonl

A prompt is a list of random words, each of one token, followed by the beginning of the same list. The
model continues it with the most likely tokens.  Its words are right as long as they follow the list;
the first other word is wrong.  In every second text some words of the repeated beginning are replaced
by others, to make the task harder.  Words after the first wrong one are not labeled, since no word
would be right there.  Words come from models/text/alice.txt; the same seed gives the same texts.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

WORDS = 48       # number of words in a list
LEAST = 12       # smallest number of repeated words
SHARE = 0.5      # share of the repeated words that are replaced in every second text
WRITTEN = 4      # number of generated tokens


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--words", default="models/text/alice.txt")
    parser.add_argument("--headlight", default="build/headlight")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def run(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def find_words(options):
    """Words that are one token each, with the space before them."""
    text = pathlib.Path(options.words).read_text(encoding="utf-8")
    words = sorted(set(re.findall(r"\b[a-z]{3,9}\b", text)))
    lines = "".join(json.dumps(" " + word) + "\n" for word in words)
    ids = run([options.headlight, "tokenize", options.model, "--json"], lines).splitlines()
    return [word for word, line in zip(words, ids) if len(json.loads(line)) == 1]


def make_text(words, draw, corrupted):
    """A prompt, and the words that should follow it."""
    chosen = draw.sample(words, 2 * WORDS)
    listed, others = chosen[:WORDS], chosen[WORDS:]
    n_begun = draw.randrange(LEAST, WORDS - WRITTEN)
    begun = listed[:n_begun]
    for i in range(n_begun):
        if corrupted and draw.random() < SHARE:
            begun[i] = others[i]
    return "".join(" " + word for word in listed + begun), listed[n_begun:]


def label(text, expected, begin, name):
    """One label for every word up to the first wrong one."""
    lines = []
    for match, wanted in zip(re.finditer(r"\s*\S+", text), expected):
        right = match.group() == " " + wanted
        lines.append({"trace": name, "characters": [begin + match.start(), begin + match.end()],
                      "right": right})
        if not right:
            break
    return lines


def main():
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    words = find_words(options)
    draw = random.Random(options.seed)
    lines = []
    for i in range(options.texts):
        prompt, expected = make_text(words, draw, i % 2 == 1)
        path = options.folder / f"{i:03d}.trace"
        written = run([options.headlight, "generate", options.model, prompt, "--json", "--ignore-end",
                       "--max-tokens", str(WRITTEN), "--threads", "1", "--trace", str(path)])
        lines += label(json.loads(written)["text"], expected, len(prompt), path.name)
    with open(options.folder / "labels.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    n_right = sum(line["right"] for line in lines)
    print(f"{options.texts} texts, {n_right} right and {len(lines) - n_right} wrong words "
          f"of {len(words)} to choose from")


if __name__ == "__main__":
    main()
