#!/bin/bash
# eval.sh - headlight eval: numbers, tables, JSON, and invalid input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
shared=${HEADLIGHT_SHARED:-../shared}
alice=models/text/alice.txt
speech=models/text/speech-1960.txt
excerpt=$scratch/excerpt.txt # an excerpt, which is faster to tokenize
head -c 3000 $alice >"$excerpt"
plan 42

# Replaces numbers by N; they are compared with those of transformers below.
blur() { sed -i -E 's/[0-9]+\.[0-9]+/N/g; s/ +/ /g' "$scratch/out"; }

run eval models/demo "$excerpt" --max-tokens 520
blur
expect "a text" 0 <<'END'
models/demo 1 text, 520 tokens, 518 scored; windows of 512

Scores

number value low high
nats/token N - -
perplexity N - -
bits/byte N - -

No confidence interval: 2 windows: an interval needs 4 or more. More text or a smaller --context
gives more windows.
END

run eval models/demo $alice $speech -n 300 --context 128 --stride 64 --per-document
cp "$scratch/out" "$scratch/table"
blur
expect "two texts, overlapping windows, a line each, the harder first" 0 <<'END'
models/demo 2 texts, 600 tokens, 598 scored; windows of 128, stride 64

Scores

number value low high
nats/token N N N
perplexity N N N
bits/byte N N N

95% confidence intervals, over 8 windows.

Each text, the hardest first

scored_tokens nats_per_token perplexity bits_per_byte name
 299 N N N models/text/speech-1960.txt
 299 N N N models/text/alice.txt
END

run eval models/demo $alice $speech -n 300 -c 128 -s 64 -d --threads 2
expect "threads change nothing" 0 <"$scratch/table"

"$HEADLIGHT" eval models/demo - -n 100 <"$excerpt" >"$scratch/out" 2>"$scratch/err"
status=$?
expect_line "standard input" 0 '^models/demo  1 text, 100 tokens, 99 scored; windows of 512$'

# The mean of `nll` in expected.safetensors, which transformers computed, is 3.890832, and
# that of demo-sparse 4.071871.
run eval models/demo "$excerpt" -n 512 -c 256 --json
expect_line "--json: the mean is that of transformers" 0 '^  "nats_per_token": 3.8908[23]'
expect_line "--json: what was scored" 0 '^  "scored_tokens": 510,$'
expect_line "--json: the bytes of it" 0 '^  "scored_bytes": 15[0-9]{2},$'
expect_line "--json: two windows have no interval" 0 '^   "missing": "2 windows: an interval needs 4 or more"$'
result "--json: no documents unless asked for" "$(grep -q documents "$scratch/out" || echo yes)"

run eval models/demo-sparse "$excerpt" -n 512 -c 256
expect_line "the sparse model's, too" 0 '^nats/token +4.0719 '

run eval models/demo $alice $speech -n 40 --json --per-document
expect_line "--json --per-document" 0 '^   "name": "models/text/speech-1960.txt",$'
run eval models/demo $alice $speech -n 40 --csv --per-document
expect_line "--csv --per-document" 0 '^39,[0-9.,]+,models/text/speech-1960.txt,,,1 window: an interval needs 4 or more,1,.*,40,'
run eval models/demo $alice --csv
expect_line "--csv alone" 2 '^headlight eval: --csv needs --per-document'

printf 'x' >"$scratch/short"
run eval models/demo "$scratch/short"
expect_line "one token is nothing to score" 0 '^Nothing to score: a text needs at least two tokens\.$'
run eval models/demo "$scratch/short" --json
expect_line "and null in JSON" 0 '^  "nats_per_token": null,$'

run eval models/demo "$excerpt" -n 50 --quiet
expect "--quiet says nothing" 0 </dev/null

# ------------------------------------------------------- documents, last words, agreement

# The model predicts the last word of one text, but not of the other.
first=$("$HEADLIGHT" generate models/demo "Alice was beginning to get very" -n 1 --quiet)
{
    printf '{"text": "Alice was beginning to get very%s"}\n' "$first"
    printf '\n{"text": "Alice was beginning to get very xylophone"}\n'
    printf '{"text": "Alice was beginning to get very%s"}\n' "$first"
    printf '{"text": "Alice"}\n'
} >"$scratch/words.jsonl"
run eval models/demo "$scratch/words.jsonl" --last-word --per-document
expect_line "lines are documents" 0 '^models/demo  4 texts, '
expect_line "last words" 0 '^last word, share predicted +0\.6667 +0\.2077 +0\.9385$'
expect_line "their perplexity" 0 '^last word, perplexity +[0-9.]+'
hardest=$(grep -n 'words.jsonl' "$scratch/out" | head -1)
result "the hardest first, by line" "$([[ $hardest == *words.jsonl:3 ]] && echo yes)"
run eval models/demo "$scratch/words.jsonl" --last-word --json
expect_line "--json: last words" 0 '^  "right": 2,$'
printf '{"words": 1}\n' >"$scratch/bad.jsonl"
run eval models/demo "$scratch/bad.jsonl"
expect_line "a line without text" 3 'bad.jsonl:1: no "text", or it is not a string$'
printf '{"text": "a"\n' >"$scratch/bad.jsonl"
run eval models/demo "$scratch/bad.jsonl"
expect_line "a line that is no JSON" 3 'bad.jsonl:1: '

run eval models/demo "$excerpt" -n 100 --reference models/demo --json
expect_line "a model agrees with itself" 0 '^  "kl": 0.0,$'
expect_line "in every prediction" 0 '^  "top1_agreement": 1.0,$'
run eval models/demo "$excerpt" -n 60 --reference tests/data/families/llama3
expect_line "a reference with another vocabulary" 3 'has a vocabulary of 4096 tokens and .*llama3 one of 256'
run eval models/demo "$excerpt" -n 100 --speed --json
expect_line "--speed" 0 '^  "kv_bytes_per_token": 16384$'

run eval models/demo
expect_line "no text" 2 '^headlight eval: no TEXT given$'
run eval models/demo "$excerpt" -c 64 -s 65
expect_line "gaps" 2 '^headlight eval: --stride 65 leaves gaps between windows of 64 tokens; use at most the window.s length$'
run eval models/demo "$excerpt" -c 513
expect_line "more context than the model has" 4 "a context of 513 tokens exceeds the model's limit of 512"
run eval models/demo "$excerpt" "$scratch/nothing" -n 20
expect_line "no such text" 3 "^headlight eval: $scratch/nothing: No such file"
run eval tests/data/families/phi3 "$excerpt"
expect_line "no tokenizer" 3 'no tokenizer.json in this folder \(name one with --tokenizer PATH\)'
run eval tests/data/families/llama3 "$excerpt" --tokenizer models/demo
expect_line "a tokenizer with more words than the model" 3 "the tokenizer gives id [0-9]+, but the model has only 256 tokens: this is the tokenizer of another model$"
if [ -d "$shared/golden/families/bert" ]; then
    run eval "$shared/golden/families/bert" "$excerpt"
    expect_line "an encoder" 3 'is an encoder \(bert\), which sees the tokens that follow'
else
    result "an encoder # SKIP no shared models" yes
fi
# Losses that are not finite: a separate output head with 3e38 in one place.
mkdir "$scratch/infinite"
python3 - "$scratch/infinite" <<'END'
import json, shutil, struct, sys
out = sys.argv[1]
for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
    shutil.copy("models/demo/" + name, out)
config = json.load(open("models/demo/config.json"))
config["tie_word_embeddings"] = False
json.dump(config, open(out + "/config.json", "w"))
data = open("models/demo/model.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
head, body = json.loads(data[8:8 + n]), data[8 + n:]
begin, end = head["transformer.wte.weight"]["data_offsets"]
rows, width = head["transformer.wte.weight"]["shape"]
values = list(struct.unpack(f"<{rows * width}e", body[begin:end]))
values[1000 * width + 3] = 3e38
more = struct.pack(f"<{rows * width}f", *values)
head["lm_head.weight"] = {"dtype": "F32", "shape": [rows, width],
                          "data_offsets": [len(body), len(body) + len(more)]}
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open(out + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body + more)
END
run eval "$scratch/infinite" "$excerpt" -n 300 -c 128
expect_line "losses that are not finite are counted" 3 '^headlight eval: .*excerpt.txt: 1[0-9]{2} of 297 losses are NaN or infinite, the first at token [0-9]+; headlight diagnose finds the heads$'
expect_line "and no mean is made of them" 3 '^NaN or infinite: 1[0-9]{2} of the losses\.$'
n_broken=$(sed -n 's/^NaN or infinite: \([0-9]*\) of.*/\1/p' "$scratch/out")
run eval "$scratch/infinite" "$excerpt" -n 300 -c 128 --json
expect_line "--json: null" 3 '^  "nats_per_token": null,$'
result "--json: is JSON, with the count" "$(python3 -c "
import json
total = json.load(open('$scratch/out'))['total']
print('yes' if total['broken_losses'] == $n_broken and total['nll_sum'] is None and total['perplexity'] is None else total)")"
run measure "$scratch/infinite" "$excerpt" -o "$scratch/infinite.p" --max-tokens 300 -c 128 --nll --no-probe
expect_line "measure --nll: as many" 3 "^headlight measure: $n_broken of 297 losses are NaN or infinite$"
expect_line "and the same words" 3 '^loss: NaN or infinite$'
run measure "$scratch/infinite" "$excerpt" -o "$scratch/infinite.p" --max-tokens 300 -c 128 --nll --no-probe --json
expect_line "measure --json: null" 3 '^ "nll": null,$'
run sweep "$scratch/infinite" --rank-text $speech --rank-tokens 128 --test-text "$excerpt" --test-tokens 128 -c 128 --by weight --ratios 0,0.5 --seeds 2
expect_line "sweep does not go on" 3 'window 0 of the text: [0-9]+ of 127 losses are NaN or infinite'
finish
