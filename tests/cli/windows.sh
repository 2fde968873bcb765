#!/bin/bash
# windows.sh - every window begins and ends as the tokenizer's template requires, for example with
# <bos>.
#
# The model is the demo with two templates: one puts token 0 before a text, the other 0 before it
# and 1 after it.  The same windows, written as token ids, must give the same numbers.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 44

text=$scratch/text.txt
head -c 2600 models/text/alice.txt >"$text"
head -c 1500 models/text/speech-1960.txt >"$scratch/other.txt"
mkdir "$scratch/bos" "$scratch/both"
for folder in bos both; do
    ln -s "$PWD"/models/demo/{config.json,generation_config.json,model.safetensors,tokenizer_config.json} "$scratch/$folder"
done
python3 - "$scratch" <<'END'
import json, sys
tokenizer = json.load(open("models/demo/tokenizer.json"))
names = {v: k for k, v in tokenizer["model"]["vocab"].items()}
for folder, ids in (("bos", [0]), ("both", [0, 1])):
    pieces = [{"SpecialToken": {"id": names[i], "type_id": 0}} for i in ids]
    pieces.insert(1, {"Sequence": {"id": "A", "type_id": 0}})
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": pieces, "pair": [],
        "special_tokens": {names[i]: {"id": names[i], "ids": [i], "tokens": [names[i]]} for i in ids}}
    json.dump(tokenizer, open(f"{sys.argv[1]}/{folder}/tokenizer.json", "w"))
END
# Writes the windows of a text as lines of ids: folder, context, stride (0: no overlap), out.
cat >"$scratch/cut.py" <<'END'
import json, sys
ids, before, after, context, stride = [json.loads(x) for x in sys.argv[1:6]]
room = context - len(before) - len(after)
at = 0
while at < len(ids):
    print(json.dumps(before + ids[at:at + room] + after))
    if at + room >= len(ids):
        break
    at += min(stride or room, room)
END
# Checks that all tensors of two files have the same bytes, except those that are named.
cat >"$scratch/same.py" <<'END'
import json, struct, sys
def load(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + n])
    meta = head.pop("__metadata__")
    return meta, {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items()}
(ma, a), (mb, b) = load(sys.argv[1]), load(sys.argv[2])
bad = [k for k in sorted(a) if a[k] != b.get(k) and k not in sys.argv[3:]]
if bad:
    print("# differ:", bad, file=sys.stderr)
sys.exit(bool(bad) or a.keys() != b.keys())
END
setting() { # file key
    python3 -c '
import json, struct, sys
data = open(sys.argv[1], "rb").read(8 + 65536)
head = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]
print(head.get(sys.argv[2], "not said"))' "$1" "$2"
}
same() { cmp -s "$1" "$2" && echo yes; }
ids=$("$HEADLIGHT" tokenize models/demo --json "$(cat "$text")" | python3 -c 'import json, sys; print(json.load(sys.stdin)["ids"])')
n_ids=$(python3 -c "print(len($ids))")
fast=(--context 48 --threads 1 --no-probe --nll)

# If a tokenizer adds nothing, all ways are the same and none is recorded.
for way in window document none; do
    run measure models/demo "$text" -o "$scratch/demo.$way" "${fast[@]}" --special $way
done
run measure models/demo "$text" -o "$scratch/demo" "${fast[@]}"
result "a tokenizer that adds nothing: the same bytes in every way" \
    "$(cmp "$scratch/demo" "$scratch/demo.window" && cmp "$scratch/demo" "$scratch/demo.document" && same "$scratch/demo" "$scratch/demo.none")"
result "and not a word in the profile" "$([ "$(setting "$scratch/demo" special)" = "not said" ] && echo yes)"

# <bos> before each window, and the same windows as ids.
run measure "$scratch/bos" "$text" -o "$scratch/bos.p" "${fast[@]}" --rows "$scratch/bos.rows"
expect_line "<bos> before each window" 0 '^loss: [0-9.]+ nats per token$'
cp "$scratch/out" "$scratch/bos.out"
result "the profile says so" "$([ "$(setting "$scratch/bos.p" special)" = window ] && echo yes)"
result "rows say so" "$([ "$(setting "$scratch/bos.rows" special)" = window ] && echo yes)"
python3 "$scratch/cut.py" "$ids" '[0]' '[]' 48 0 >"$scratch/bos.jsonl"
run measure "$scratch/bos" --token-ids "$scratch/bos.jsonl" -o "$scratch/ids.p" "${fast[@]}" --rows "$scratch/ids.rows"
expect_line "the same windows as ids" 0 "^$scratch/ids.p: $((n_ids + $(wc -l <"$scratch/bos.jsonl"))) tokens in $(wc -l <"$scratch/bos.jsonl") windows"
result "have the same numbers, the loss too (but types, which ids do not have)" "$(python3 "$scratch/same.py" "$scratch/bos.p" "$scratch/ids.p" type.count type.lookback sequence.document && echo yes)"
result "and the same rows, but what they give to types" "$(python3 "$scratch/same.py" "$scratch/bos.rows" "$scratch/ids.rows" lookback.prompt lookback.special && echo yes)"
result "ids are left alone, and the profile does not say otherwise" "$([ "$(setting "$scratch/ids.p" special)" = "not said" ] && echo yes)"

# The original way: around the document.
run measure "$scratch/bos" "$text" -o "$scratch/doc.p" "${fast[@]}" --special document
python3 "$scratch/cut.py" "$ids" '[0]' '[]' 1000000 0 >"$scratch/doc.jsonl"
run measure "$scratch/bos" --token-ids "$scratch/doc.jsonl" -o "$scratch/docids.p" "${fast[@]}"
result "--special document: the first window alone begins with it" "$(python3 "$scratch/same.py" "$scratch/doc.p" "$scratch/docids.p" type.count type.lookback sequence.document && echo yes)"
result "as old profiles, it does not say so" "$([ "$(setting "$scratch/doc.p" special)" = "not said" ] && echo yes)"
run measure "$scratch/bos" "$text" -o "$scratch/none.p" "${fast[@]}" --special none
result "--special none: the windows of a tokenizer that adds nothing" "$(python3 "$scratch/same.py" "$scratch/none.p" "$scratch/demo" && echo yes)"
run measure "$scratch/bos" "$text" -o "$scratch/x" "${fast[@]}" --special both
expect_line "another word is refused" 2 "special.*window.document.none"

# Before and after: added tokens are never scored, and their rows have type special.
run measure "$scratch/both" "$text" -o "$scratch/both.p" "${fast[@]}"
python3 "$scratch/cut.py" "$ids" '[0]' '[1]' 48 0 >"$scratch/both.jsonl"
run measure "$scratch/bos" --token-ids "$scratch/both.jsonl" -o "$scratch/bothids.p" "${fast[@]}"
result "before and behind: all but the loss, and types, are those of the ids" \
    "$(python3 "$scratch/same.py" "$scratch/both.p" "$scratch/bothids.p" nll.count nll.sum nll.squares type.count type.sum type.squares type.lookback sequence.document && echo yes)"
python3 "$scratch/cut.py" "$ids" '[0]' '[]' 47 0 >"$scratch/both0.jsonl"
run measure "$scratch/bos" --token-ids "$scratch/both0.jsonl" -o "$scratch/both0.p" "${fast[@]}"
result "and the loss is that of the text" "$(python3 - "$scratch" "$n_ids" <<'END'
import json, struct, sys
def nll(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + n])
    at = lambda k: struct.unpack_from("<q", data, 8 + n + head[k]["data_offsets"][0])[0]
    return at("nll.count"), at("nll.sum")
a, b = (nll(f"{sys.argv[1]}/{name}") for name in ("both.p", "both0.p"))
# Feeds of other lengths round differently.
print("yes" if a[0] == b[0] == int(sys.argv[2]) and abs(a[1] - b[1]) < 1e-4 * b[1] else (a, b))
END
)"

# Windows that overlap; batches, parts, threads.
run measure "$scratch/both" "$text" -o "$scratch/over.p" "${fast[@]}" --stride 20
expect_line "windows that overlap" 0 'nats per token'
measured=$(sed -n 's/^loss: \([0-9.]*\) nats.*/\1/p' "$scratch/out")
run eval "$scratch/both" "$text" -c 48 -s 20 --json
expect_line "score each token of the text once" 0 "\"scored_tokens\": $n_ids,"
result "with the loss of eval" "$(python3 -c "
import json
print('yes' if abs(json.load(open('$scratch/out'))['total']['nats_per_token'] - $measured) < 6e-5 else 'no')")"
for i in 1 2 3; do
    run measure "$scratch/both" "$text" -o "$scratch/part$i" "${fast[@]}" --stride 20 --part $i/3 --batch $i
done
run merge "$scratch"/part{2,3,1} -o "$scratch/merged.p"
result "parts and batches merge to the same bytes" "$(same "$scratch/over.p" "$scratch/merged.p")"

# Resuming from a state in the middle, but not from one with another way.
run measure "$scratch/bos" "$text" -o "$scratch/r.p" "${fast[@]}" --stride 20
rm -f "$scratch/s.p" "$scratch/s.p.part"
for i in 1 2 3 4 5 6; do
    "$HEADLIGHT" measure "$scratch/bos" "$text" -o "$scratch/s.p" "${fast[@]}" --stride 20 --resume --save-every 0.001 >/dev/null 2>&1 &
    process=$!
    sleep "0.1$i"
    kill -9 "$process" 2>/dev/null
    wait "$process" 2>/dev/null
done 2>/dev/null
run measure "$scratch/bos" "$text" -o "$scratch/s.p" "${fast[@]}" --stride 20 --resume
result "killed and resumed: the same bytes" "$(same "$scratch/r.p" "$scratch/s.p")"
"$HEADLIGHT" measure "$scratch/bos" models/text/alice.txt -o "$scratch/t.p" "${fast[@]}" --special document >/dev/null 2>&1 &
process=$!
while [ ! -e "$scratch/t.p.part" ]; do sleep 0.01; done
kill -9 "$process" 2>/dev/null
wait "$process" 2>/dev/null
run measure "$scratch/bos" models/text/alice.txt -o "$scratch/t.p" "${fast[@]}" --resume
expect_line "a state of another way is refused" 3 "were measured with different --special"

# Profiles of different ways.
run merge "$scratch/bos.p" "$scratch/doc.p" -o "$scratch/x"
expect_line "merge refuses profiles of different ways, and says why" 3 \
    "were measured with different --special \(window and document\); measure both with the same"
run merge "$scratch/none.p" "$scratch/doc.p" -o "$scratch/x"
expect_line "whichever they are" 3 "none and document"
run show "$scratch/doc.p"
expect_line "an old profile is read" 0 '^diagnoses'

# Eval.
run eval "$scratch/bos" "$text" -c 48
expect_line "eval: every token of the text is scored" 0 "1 text, ([0-9,]+) tokens, \\1 scored; windows of 48, special tokens: window$"
run eval "$scratch/bos" "$text" -c 48 --json
expect_line "--json says where special tokens stand" 0 '^ "special": "window",?$'
result "the loss is that of measure" "$(python3 -c "
import json, re
a = float(re.search(r'loss: ([0-9.]+)', open('$scratch/bos.out').read())[1])
print('yes' if abs(json.load(open('$scratch/out'))['total']['nats_per_token'] - a) < 6e-5 else 'no')")"
nats=$(python3 -c "import json; print('%.4f' % json.load(open('$scratch/out'))['total']['nats_per_token'])")
run eval "$scratch/bos" "$text" -c 48 --special document --json
expect_line "--special document: the first of every window is given" 0 "\"scored_tokens\": $((n_ids + 1 - (n_ids + 1 + 47) / 48)),"
run eval "$scratch/bos" "$text" -c 48 --off L0H0 --json
expect_line "with gates: as many predictions are compared" 0 "\"tokens\": $n_ids,"
run eval "$scratch/both" "$text" -c 2
expect_line "no room for text" 2 "windows of 2 tokens leave no room for text beside the 2 special"
run measure "$scratch/both" "$text" -o "$scratch/x" -c 2
expect_line "measure says so too" 2 "a context of 2 leaves no room for text: the tokenizer adds 2 tokens to every window; use --context 3 or more"

run measure "$scratch/both" "$text" -o "$scratch/x" --max-tokens 2
expect_line "and none of the text among the tokens allowed" 3 "no token of the text fits into a window"

# Sweeps, ranks, comparisons.
run sweep "$scratch/bos" --rank-text "$scratch/other.txt" --test-text "$text" -c 48 --by gradient --ratios 0,0.5 --seeds 2 --no-singles
expect_line "sweep: the loss is that of eval" 0 "^[^ ]*  $n_ids tokens scored in $(wc -l <"$scratch/bos.jsonl") windows of 48; with all heads $nats nats per token$"
run sweep "$scratch/bos" --rank-text "$scratch/other.txt" --test-text "$text" -c 48 --by weight --ratios 0,0.5 --seeds 2 --no-singles --special document
expect_line "--special document: it is another" 0 "tokens scored in $(((n_ids + 1 + 47) / 48)) windows of 48; with all heads"
run rank --model "$scratch/bos" --text "$text" -c 48 --by gradient --csv
cp "$scratch/out" "$scratch/rank"
expect_line "rank by gradients" 0 'L[0-9]H[0-9]|,'
run rank --model "$scratch/bos" --text "$text" -c 48 --by gradient --csv --special document
result "is another with --special document" "$([ "$status" -eq 0 ] && ! cmp -s "$scratch/rank" "$scratch/out" && echo yes)"
run compare "$scratch/bos" "$scratch/both" --text "$text" -c 48 --special none
expect_line "compare takes it" 0 .
run diagnose --try "$scratch/bos" "$text" -c 48 --special document
expect_line "diagnose --try takes it" 0 .
run prune "$scratch/bos" --count 2 --text "$text" --mean -c 48 -o "$scratch/pruned"
expect_line "prune --mean" 0 .

# A prompt is one window: it begins as the template requires, and so does the trace that judge
# reads.
for command in tokens lens; do
    run $command "$scratch/bos" 'He said' --json
    result "$command: a prompt begins with <bos>" "$([ "$status" -eq 0 ] && python3 -c '
import json, sys
tokens = json.load(open(sys.argv[1]))["tokens"]
print("yes" if [token["id"] for token in tokens][0] == 0 and [token.get("marked", False) for token in tokens] ==
      [True] + [False] * (len(tokens) - 1) else "no")' "$scratch/out")"
done
run generate "$scratch/bos" 'He said' -n 3 --trace "$scratch/trace.jsonl" --quiet
result "generate, for judge: the trace begins with it, and no text" "$(sed -n 2p "$scratch/trace.jsonl" |
    grep -q '^{"id": 0, "kind": "special", "text": ""' && [ "$(sed -n '3,$p' "$scratch/trace.jsonl" | grep -c '"special"')" = 0 ] && echo yes)"
# watch measures windows as measure does.
mkdir "$scratch/runs"
cp -rL "$scratch/bos" "$scratch/runs/checkpoint-10"
run watch "$scratch/runs" "$text" --series "$scratch/series" --once -c 48
expect_line "watch" 0 '^ +10 '
run measure "$scratch/bos" "$text" -o "$scratch/watched.p" -c 48 --quiet
"$HEADLIGHT" show --table layers --json "$scratch/watched.p" >"$scratch/layers"
result "watch: the entropy is that of measure, and the series says which windows" "$(python3 -c '
import json, sys
head, point = map(json.loads, open(sys.argv[1]))
rows = json.load(open(sys.argv[2]))["rows"]
mean = sum(row["entropy"] for row in rows) / len(rows)
print("yes" if abs(point["entropy"] - mean) < 1e-9 and head["settings"]["special"] == "window" else (point["entropy"], mean))
' "$scratch/series" "$scratch/layers")"
finish
