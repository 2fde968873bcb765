#!/bin/bash
# test_studies.sh - tools/studies/pruning: its table has the numbers of the sweep's JSON.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

folder=$scratch
mkdir -p "$folder/texts/books"
head -c 6000 models/text/speech-1960.txt >"$folder/texts/books/speech.txt"

study() {
    TEXTS="$folder/texts" HEADLIGHT="${BUILD:-build}/headlight" tools/studies/pruning "$folder/out" "$@" \
        >"$folder/log" 2>&1
}

# Every number of the table, and none else.
numbers_agree() {
    python3 - "$folder/out/demo.json" "$folder/out/demo.md" <<'CHECK'
import json, sys
rows = json.load(open(sys.argv[1]))["tables"]["repair"]["rows"]
table = [line for line in open(sys.argv[2]) if line.startswith("| ")][2:]
ways = [w for w in ("zeroed", "mean", "repaired") if rows[0][w] is not None]
assert len(rows) == 4 and len(table) == 2 * len(ways), (len(rows), len(table))
for line in table:
    order, way, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    own = [row for row in rows if row["order"] == order]
    assert len(cells) == len(own) == 2, line
    for cell, row in zip(cells, own):
        ends = ("low", "high") if way == "zeroed" else (f"{way}_low", f"{way}_high")
        wanted = f"{row[way]:.3f} ({row[ends[0]]:.3f} to {row[ends[1]]:.3f})"
        assert cell == wanted, (cell, wanted)
CHECK
}

check "a study of models/demo runs" study demo -- --by output-norm --seeds 2 --ratios 0.2,0.4 \
    --context 32 --rank-tokens 256 --test-tokens 160
check "its table has the numbers of its JSON" numbers_agree
skips() { study tinyllama-1.1b && grep -q 'tinyllama-1.1b: skipped, not in \$MODELS' "$folder/log"; }
check "a model that is not there is skipped by name" skips
finish
