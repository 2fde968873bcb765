#!/bin/bash
# prune.sh - headlight prune: its files and output, and invalid input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
shared=${HEADLIGHT_SHARED:-../shared}
phi3=tests/data/families/phi3
out=$scratch/out-folder
excerpt=$scratch/excerpt.txt
head -c 3000 models/text/alice.txt >"$excerpt"
plan 62

# In L0 the other group keeps its two heads, so the head is zeroed.  L1 keeps one query head of one
# group: removed are 3 heads' rows of q and columns of o, and a KV head, (2 * 3 + 2) * 16 * 64 =
# 8192 numbers.
run prune $phi3 --heads L0H1,L1 --as compact --no-timing -o "$out"
sed -i "s|$out|OUT|" "$scratch/out"
expect "what is written is told" 0 <<'END'
OUT  compact: removed 3 and zeroed 2 of 12 heads

  L0H1 L1H0 L1H1 L1H2 L1H3

Before and after

what                 before    after  change_percent
parameters          143,808  135,616            -5.7
bytes of tensors    287,616  271,232            -5.7
KV bytes per token      384      320           -16.7

  Loads in headlight and in transformers with trust_remote_code=True.
  A zeroed head saves neither time nor memory.  --groups removes whole groups.
END
run info "$out"
expect_line "and opens: layers differ" 0 '1 heads, 1 KV heads: 1$'
if command -v python3 >/dev/null; then
    python3 -c "import ast,sys; ast.parse(open(sys.argv[1]).read())" "$out/modeling_headlight_phi3.py" 2>/dev/null
    status=$?
    result "the code beside it is Python" "$([ $status = 0 ] && echo yes)"
else
    skipped "the code beside it is Python" "no python3"
fi
run prune $phi3 --heads L0H1 -o "$out"
expect "an existing folder stays" 2 <<END
headlight prune: $out: exists already; remove it or choose another name
END
rm -r "$out"

# Without heads to prune: verify compares with what transformers computed.
run prune $phi3 --ratio 0 --by random -o "$out" --quiet
expect "a ratio of 0, quietly" 0 </dev/null
cp $phi3/expected.safetensors "$out"
run verify "$out"
expect_line "computes what the model computes" 0 'logits'
rm -r "$out"

run prune $phi3 --count 3 --by weight --as masked --json -o "$out"
expect_line "--json: how many" 0 '^  "removed": 0,$'
expect_line "--json: how many are zeroed" 0 '^  "zeroed": 3,$'
expect_line "--json: who opens it" 0 '^  "loads": "transformers, as it is"$'
rm -r "$out"

run prune models/demo --ratio 0.25 --text "$excerpt" --iterative 2 --per-layer-max 3 -o "$out"
expect_line "in steps, at most three of a layer" 0 ' compact: removed 16 of 64 heads; by surgeon$'
run eval "$out" "$excerpt" -n 200
expect_line "which can be evaluated" 0 '200 tokens, 199 scored'
rm -r "$out"

run prune models/demo --heads L2H1,L5H0 --mean --text "$excerpt" --max-tokens 300 -o "$out"
expect_line "means, beside zero" 0 '^  nats/token   [0-9.]+ with all heads, [0-9.]+ with heads zeroed, [0-9.]+ with their mean'
rm -r "$out"

# Half of the heads, by groups of two with one KV head: all are removed, with half of the cache.
run prune $phi3 --ratio 0.5 --by weight --groups --as compact -o "$out"
expect_line "whole groups" 0 ' removed 6 of 12 heads; by weight$'
expect_line "take their KV heads along" 0 '^KV bytes per token +384 +192 +-50\.0$'
rm -r "$out"

run prune models/demo --heads L0H0 --as gguf -o "$out.gguf" --quiet
run tokenize models/demo "Down the rabbit-hole"
cp "$scratch/out" "$scratch/ids"
run tokenize "$out.gguf" "Down the rabbit-hole"
expect "a GGUF file of a folder has its tokenizer" 0 <"$scratch/ids"
run prune tests/data/families/starcoder2 --heads L0H0 --as gguf -o "$out.gguf"
expect_line "or says why not" 0 'No vocabulary: tests/data/families/starcoder2/: no tokenizer.json in this folder\.$'

run prune tests/data/gguf/llama3.gguf --heads L0H2,L1H0 --as gguf --type q8_0 -o "$out.gguf"
expect_line "a GGUF file" 0 ' gguf: (removed|zeroed) 2 of 12 heads'
run info "$out.gguf"
expect_line "of another architecture" 0 'family (deci|llama)'

# One head of 16 remains in layer 0: rows of its output projection are half a block.
run prune tests/data/gguf/llama3.gguf --heads L0H0,L0H1,L0H2 --type q4_0 -o "$out.gguf"
expect_line "a tensor that cannot have its type" 0 '^attn_output\.weight +0 +BF16 +Q4_0 +F16 +-[0-9,]+  rows of 16'
run prune tests/data/gguf/llama3.gguf --heads L0H0,L0H1,L0H2 --type q4_0 --json -o "$out.gguf"
expect_line "in JSON: how many" 0 '^  "other_types": 1,$'
expect_line "in JSON: what most are" 0 '^  "file_type": "Q4_0",$'
expect_line "in JSON: which" 0 '^      "name": "blk\.0\.attn_output\.weight",$'
run prune "$out.gguf" --heads L1H0,L1H1 -o "$scratch/again.gguf"
expect_line "blocks that stay need no word" 0 '^bytes of tensors +[0-9,]+ +[0-9,]+ +-[0-9.]+$'
result "and nothing grew" "$(grep -q 'another type' "$scratch/out" || echo yes)"
run prune "$out.gguf" --heads L1H2 --type q8_0 -o "$scratch/again.gguf"
expect_line "what grew, and why" 0 '^ffn_down\.weight +0-2 +Q4_0 +Q8_0 +Q8_0 +[0-9,]+  requested by --type$'
rm "$scratch/again.gguf"

# Without heads to remove, no ranking is needed: this converts the model.
run prune models/demo --count 0 --as gguf -o "$scratch/whole.gguf"
expect_line "a conversion needs no profile" 0 'whole\.gguf  gguf: removed 0 of 64 heads$'
run eval "$scratch/whole.gguf" "$excerpt" -n 100 --reference models/demo
expect_line "and is the same model" 0 '^same top-1 +1\.0000 '
run prune models/demo --heads L0H0 --as masked -o "$out" --quiet
result "GPT-2 gets the n_ctx that llama.cpp's converter wants" "$(grep -q '"n_ctx": 512' "$out/config.json" && echo yes)"
rm -r "$out"
for model in models/demo models/demo-sparse; do
    result "$model has it" "$(grep -q '"n_ctx": 512' $model/config.json && echo yes)"
done
sed '/"n_ctx"/d' models/demo/config.json >"$scratch/config.json"
cp -r models/demo "$scratch/old" && cp "$scratch/config.json" "$scratch/old/config.json"
run prune "$scratch/old" --heads L0H0 --as masked -o "$out" --quiet
result "an older one gets it" "$(grep -q '"n_ctx": 512' "$out/config.json" && echo yes)"
rm -r "$out" "$scratch/old"
run prune tests/data/gguf/llama3.gguf --heads L0H2 --as masked -o "$out"
expect_line "no folder from a GGUF file" 3 'only a Hugging Face folder can be written as a folder'

run measure models/demo "$excerpt" -o "$scratch/p" --max-tokens 300 --quiet
run prune models/demo --ratio 0.1 --profile "$scratch/p" --by renyi2 --as masked -o "$out"
expect_line "by a profile" 0 'zeroed 6 of 64 heads; by renyi2$'
expect_line "with what sweeps say of it" 0 '^  In our sweeps, highest entropy first cost more than a random order \(doc/sweep\.md\)'
rm -r "$out"
run prune models/demo --ratio 0.1 --profile "$scratch/p" -o "$out"
expect_line "the default of a profile, and a form that saves" 0 ' compact: removed 6 of 64 heads; by output-norm$'
rm -r "$out"
run prune models/demo --count 2 --text "$excerpt" --max-tokens 200 --json -o "$out"
expect_line "the default of a text" 0 '^  "by": "surgeon",$'
rm -r "$out"
run prune models/demo --count 2 --by gradient --text "$excerpt" --max-tokens 200 -o "$out"
expect_line "by gradients" 0 'removed 2 of 64 heads; by gradient$'
rm -r "$out"
run prune models/demo --count 2 --by gradient -o "$out"
expect_line "which need a text" 2 '\-\-by gradient needs --text FILE to compute gradients on$'
run prune models/demo --count 2 --by ablation -o "$out"
expect_line "ablation needs one, too" 2 '\-\-by ablation needs --text FILE to disable heads on$'
run prune models/demo --count 2 --by ablation --text "$excerpt" --max-tokens 100 -o "$out"
expect_line "by ablation" 0 'removed 2 of 64 heads; by ablation$'
rm -r "$out"
run prune $phi3 --ratio 0.1 --profile "$scratch/p" -o "$out"
expect_line "of another model" 3 'headlight prune: '
result "leaves nothing" "$([ -e "$out" ] || echo yes)"

run prune $phi3 --ratio 1 --by random -o "$out"
expect "a ratio of 1" 2 <<'END'
headlight prune: 12 of 12 heads are to be removed, but only 9 can be: every layer keeps one (--empty-layers allows more)
END
run prune $phi3 --ratio 1 --by random --empty-layers -o "$out"
expect_line "unless asked" 0 ' removed 9 and zeroed 3 of 12 heads'
rm -r "$out"
run prune $phi3 --heads L0H4 -o "$out"
expect_line "an unknown head" 2 '^headlight prune: L0H4: '
run prune $phi3 --heads L7 -o "$out"
expect_line "an unknown layer" 2 '^headlight prune: L7: '
run prune $phi3 -o "$out"
expect_line "no heads" 2 'give one of --ratio, --count and --heads, or --text FILE to find out how many can go$'
run prune $phi3 --heads L0H0
expect_line "no output" 2 ' -o OUT is missing: the folder or file to write$'
run prune --heads L0H0 -o "$out"
expect_line "no model" 2 'no MODEL given$'
run prune $phi3 --ratio 0.5 -o "$out"
expect_line "nothing to rank by" 2 'heads must be ranked: give --text FILE to rank them on, or --profile PROFILE$'
run prune $phi3 --ratio 0.5 --by entropy -o "$out"
expect_line "nothing to rank by, by name" 2 '\-\-by entropy needs --profile PROFILE, or --text FILE to measure$'
run prune $phi3 --ratio 0.5 --by entrop -o "$out"
expect_line "an unknown ranker" 2 "no ranker is called 'entrop' \(did you mean 'entropy'\?\)$"
run prune $phi3 --heads L0H0 --type q8_0 --as masked -o "$out"
expect_line "a type of a folder" 2 'folders keep their types$'
run prune $phi3 --heads L0H0 --mean --text "$excerpt" -o "$out"
expect_line "means without a place" 3 'a phi3 has no output bias, and transformers would not load one'
run prune $phi3 --heads L0H0 --as gguf -o "$out.gguf"
expect_line "a family without GGUF" 3 'family phi3 cannot be written as GGUF here'
run prune models/demo --heads L0H0 --as gguf -o /dev/full
expect_line "no device is replaced" 2 '/dev/full: not a regular file'

if [ -d "$shared/golden/families/bloom" ]; then
    run prune "$shared/golden/families/bloom" --heads L0H0 --as compact -o "$out"
    expect_line "a family that cannot be compacted" 3 "ALiBi's slopes depend on the number of heads"
    run prune "$shared/golden/families/bloom" --heads L0H0 -o "$out"
    expect_line "is masked by default, and says so" 0 "^  Written as masked, which saves nothing: .*ALiBi's slopes"
    rm -r "$out"
else
    skipped "a family that cannot be compacted" "no shared models"
    skipped "is masked by default, and says so" "no shared models"
fi

# A full disk: no file may be larger than 16 KiB.
(
    trap '' XFSZ
    ulimit -f 16
    "$HEADLIGHT" prune $phi3 --heads L0H0 -o "$out" >/dev/null 2>"$scratch/err"
)
status=$?
: >"$scratch/out"
expect_line "a full disk" 3 'writing: File too large$'
result "leaves nothing behind" "$([ -z "$(find "$scratch" -name '*out-folder*' ! -name '*.gguf')" ] && echo yes)"

# Killed while it writes: its temporary file has no lock, and the next run removes it.
leftovers() { find "$scratch" -mindepth 1 -maxdepth 1 -name '.*.headlight.tmp'; }
for _ in $(seq 50); do
    "$HEADLIGHT" prune models/demo --heads L0H0 --as masked -o "$out" --quiet &
    while [ -z "$(leftovers)" ] && kill -0 $! 2>/dev/null; do :; done
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    [ -n "$(leftovers)" ] && break
    rm -rf "$out"
done
result "kill -9 leaves a folder behind" "$([ -n "$(leftovers)" ] && echo yes)"
run draw "$scratch/p" -o "$scratch/next.pdf" --quiet
result "the next run removes it" "$([ -z "$(leftovers)" ] && [ -s "$scratch/next.pdf" ] && echo yes)"
finish
