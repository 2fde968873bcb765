#!/bin/bash
# budget.sh - headlight prune with a budget, heads to keep, heads ranked again, and models timed.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 41
export OMP_NUM_THREADS=1
out=$scratch/out-folder
phi3=tests/data/families/phi3
head -c 9000 models/text/alice.txt | iconv -c -f UTF-8 -t ASCII >"$scratch/rank.txt"
head -c 5000 models/text/speech-1960.txt | iconv -c -f UTF-8 -t ASCII >"$scratch/test.txt"
short=(--text "$scratch/rank.txt" -c 64 --max-tokens 1024 --no-timing)

nothing_written() { # name
    if [ -e "$out" ]; then result "$1: nothing written" no; else result "$1: nothing written" yes; fi
    rm -rf "$out"
}

# Without a number of heads: three orders, a frontier, a recommendation, the default budget.
run prune models/demo "${short[@]}" -c 32 --max-tokens 512 -o "$out"
expect_line "the default budget" 0 '^Budget: the loss rises by at most 0\.05 nats per token\.$'
expect_line "what was held out" 0 '^windows +8$'
expect_line "every order" 0 '^surgeon '
expect_line "every order, again" 0 '^gradient '
expect_line "and the third" 0 '^output-norm '
expect_line "which models the losses are of" 0 '^All were run on held-out text, repaired on the text that heads were ranked on\.$'
expect_line "a recommendation" 0 '^Recommended: [0-9]+ of 64 heads by '
expect_line "which is written" 0 '^.*out-folder  compact: removed [0-9]+ of 64 heads; by '
rm -r "$out"

# The recommended number of heads is within the budget, by its own table and by eval.
run prune models/demo "${short[@]}" --until-loss +0.1 --by output-norm --test-text "$scratch/test.txt" --json -o "$out"
cp "$scratch/out" "$scratch/budget.json"
check='import json, sys
r = json.load(open(sys.argv[1])); b = r["budget"]; rows = b["frontier"]["rows"]
within = [p for p in rows if p["fits"]]
assert b["ranker"] == "output-norm" and b["until_loss"] == 0.1
assert within and all(p["rise_high"] <= 0.1 for p in within)
assert max(p["heads"] for p in within) == b["heads"] == (r["removed"] + r["zeroed"])
beyond = [p["heads"] for p in rows if not p["fits"]]
assert b["heads"] + 1 in beyond, (b["heads"], beyond)
exact = [p for p in rows if p["heads"] == b["heads"]][0]
assert exact["bytes"] == r["after"]["tensor_bytes"], (exact, r["after"])
assert abs(exact["rise"] - b["rise"]) == 0
print(b["rise"], b["heads"], ",".join(r["removed_heads"]))'
if found=$(python3 -c "$check" "$scratch/budget.json" 2>&1); then
    result "the most heads that are within, and one more is beyond; bytes are those written" yes
else
    echo "# $found"
    result "the most heads that are within, and one more is beyond; bytes are those written" no
fi
read -r rise _ <<<"$found"
eval_nll() { "$HEADLIGHT" eval models/demo "$scratch/test.txt" -c 64 -n 1024 --json "$@" | python3 -c '
import json, sys
print(json.load(sys.stdin)["total"]["nats_per_token"])'; }
whole=$(eval_nll 2>/dev/null)
same_rise() { # name, loss: is it the whole model's and the rise?
    if python3 -c "assert abs($2 - $whole - $rise) < 2e-6, ($2, $whole, $rise)" 2>"$scratch/err"; then
        result "$1" yes
    else
        sed 's/^/# /' "$scratch/err"
        result "$1" no
    fi
}
# With a text of its own to test on, the model is repaired on all that was solved on before.
written=$("$HEADLIGHT" eval "$out" "$scratch/test.txt" -c 64 -n 1024 --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["total"]["nats_per_token"])')
same_rise "the repaired model that was written has the rise that was measured before" "$written"
rm -r "$out"
run prune models/demo "${short[@]}" --until-loss +0.1 --by output-norm --test-text "$scratch/test.txt" --repair none --json -o "$out"
cp "$scratch/out" "$scratch/budget.json"
found=$(python3 -c "$check" "$scratch/budget.json" 2>&1)
read -r rise _ heads <<<"$found"
same_rise "eval measures the same rise with the heads disabled" "$(eval_nll --off "$heads" 2>/dev/null)"
expect_line "which the table says" 0 '"repaired": false'
rm -r "$out"

# Bytes: the fewest heads that are enough.
run prune models/demo "${short[@]}" --by output-norm --until-bytes 14.6M --repair none --json -o "$out"
check='import json, sys
r = json.load(open(sys.argv[1])); rows = r["budget"]["frontier"]["rows"]
assert r["after"]["tensor_bytes"] <= 14600000 < r["after"]["tensor_bytes"] + 131072
assert [p["heads"] for p in rows if p["fits"]] == [(r["removed"] + r["zeroed"])]'
if python3 -c "$check" "$scratch/out" 2>"$scratch/err"; then
    result "--until-bytes: small enough, and no smaller than a head less" yes
else
    sed 's/^/# /' "$scratch/err"
    result "--until-bytes: small enough, and no smaller than a head less" no
fi
rm -r "$out"
run prune models/demo "${short[@]}" --until-kl 0.02 --by gradient --repair none --quiet -o "$out"
expect "--until-kl, quietly" 0 </dev/null
rm -r "$out"

# Heads and types that stay.
run prune models/demo "${short[@]}" --keep L0,L1H3 --ratio 0.3 --repair none --by weight --json -o "$out"
if grep -qE '"L0H|"L1H3"' "$scratch/out" || [ "$status" -ne 0 ]; then
    result "--keep heads" no
else
    result "--keep heads" yes
fi
rm -r "$out"
run prune models/demo "${short[@]}" --keep previous --count 40 --repair none --by random --json -o "$out"
cp "$scratch/out" "$scratch/kept.json"
"$HEADLIGHT" measure models/demo "$scratch/rank.txt" -c 64 --max-tokens 1024 -o "$scratch/p" --quiet 2>/dev/null
previous=$("$HEADLIGHT" show "$scratch/p" --table head-types --csv |
    awk -F, '$3 == "previous" { print "L" $1 "H" $2 }')
lost=$(for head in $previous; do grep -o "\"$head\"" "$scratch/kept.json"; done)
if [ -n "$previous" ] && [ -z "$lost" ] && [ "$status" -eq 0 ]; then
    result "--keep types" yes
else
    echo "# previous: $previous; lost: $lost"
    result "--keep types" no
fi
rm -r "$out"

# Ranked again after each head: the first is the ranking's own.
run rank --model models/demo --text "$scratch/rank.txt" -c 64 --max-tokens 256 --by gnorm --reselect -n 3 --csv
cp "$scratch/out" "$scratch/again.csv"
run rank --model models/demo --text "$scratch/rank.txt" -c 64 --max-tokens 256 --by gnorm -n 1 --csv
if [ "$(sed -n 2p "$scratch/again.csv")" = "$(sed -n 2p "$scratch/out")" ] &&
    [ "$(wc -l <"$scratch/again.csv")" -eq 4 ]; then
    result "rank --reselect begins as rank does" yes
else
    result "rank --reselect begins as rank does" no
fi
second=$(sed -n 2p "$scratch/again.csv" | cut -d, -f2)
run prune models/demo --text "$scratch/rank.txt" -c 64 --max-tokens 256 --by gnorm --reselect --count 3 --json --no-timing -o "$out"
wanted=$(sed -n '2,4p' "$scratch/again.csv" | cut -d, -f2 | tr '\n' ' ')
seen=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["removed_heads"], end=" ")' "$scratch/out")
if [ "$wanted" = "$seen" ] && [ -n "$second" ]; then
    result "prune --reselect takes the same" yes
else
    echo "# $wanted; $seen"
    result "prune --reselect takes the same" no
fi
rm -r "$out"

# What was gained.
run prune $phi3 --heads L0H1,L1 --as compact -o "$out"
expect_line "both models are run" 0 '^prefill +[0-9.,]+ +[0-9.,]+ +[0-9.]+ +[0-9.]+ +[0-9.]+  (no difference|faster|slower)$'
expect_line "memory" 0 '^memory +[0-9,]+ +[0-9,]+ +-[0-9.]+$'
rm -r "$out"
run prune $phi3 --heads L0H1,L1 --as masked --json -o "$out"
check='import json, sys
t = json.load(open(sys.argv[1]))["timing"]
assert t["before"]["memory_bytes"] == t["after"]["memory_bytes"] > 0
assert t["decode"]["low"] <= t["decode"]["median"] <= t["decode"]["high"]'
if python3 -c "$check" "$scratch/out" 2>"$scratch/err"; then
    result "zeroed heads save no memory" yes
else
    sed 's/^/# /' "$scratch/err"
    result "zeroed heads save no memory" no
fi
rm -r "$out"
run prune $phi3 --heads L0H1,L1 --as masked --json --no-timing -o "$out"
if grep -q '"timing"' "$scratch/out"; then result "--no-timing" no; else result "--no-timing" yes; fi
rm -r "$out"

# What cannot be.
run prune models/demo "${short[@]}" --until-loss -0.1 -o "$out"
expect_line "a negative loss" 2 '^headlight prune: --until-loss'
run prune models/demo "${short[@]}" --until-loss 0 -o "$out"
expect_line "a loss of 0" 2 '^headlight prune: --until-loss 0: every head costs something'
run prune models/demo "${short[@]}" --until-kl nan -o "$out"
expect_line "a KL that is no number" 2 '^headlight prune: --until-kl'
run prune models/demo "${short[@]}" --until-bytes tiny -o "$out"
expect_line "bytes that are none" 2 "^headlight prune: --until-bytes: 'tiny' is not a number of bytes"
run prune models/demo "${short[@]}" --until-bytes -5M -o "$out"
expect_line "negative bytes" 2 "^headlight prune: --until-bytes: '-5M' is not a number of bytes"
run prune models/demo "${short[@]}" --until-bytes 1K --repair none -o "$out"
expect_line "bytes that no heads reach" 2 'no number of heads makes the model as small as 1000 bytes: it has 14996480'
run prune models/demo "${short[@]}" --until-bytes 1G --repair none -o "$out"
expect_line "a model that is small enough" 2 'has 14996480 bytes of tensors, which is within the budget of 1000000000'
run prune models/demo "${short[@]}" --until-loss 1e-9 --by retrieval --repair none -o "$out"
expect_line "a budget that the first head exceeds" 2 'no number of heads is within a loss of \+1e-09: [0-9]+ by retrieval cost least'
nothing_written "a budget that the first head exceeds"
run prune models/demo "${short[@]}" --until-loss 0.1 --ratio 0.2 -o "$out"
expect_line "a budget and a ratio" 2 'a budget sets the number of heads'
run prune models/demo --until-loss 0.1 -o "$out"
expect_line "a budget without a text" 2 'a budget needs --text FILE'
run prune models/demo "${short[@]}" -c 512 --by weight --repair none -o "$out"
expect_line "a text too short to split" 3 'half of the text that is held out has 1 window of 512 tokens, wanted 4 or more'
run prune models/demo "${short[@]}" --keep L99 --ratio 0.1 -o "$out"
expect_line "an unknown head to keep" 2 '^headlight prune: L99: the model has layers L0 to L7'
run prune models/demo "${short[@]}" --keep inductoin --ratio 0.1 -o "$out"
expect_line "an unknown type to keep" 2 "'inductoin' is neither a head, like L5H1 or L5 for a layer, nor a type of heads: there are induction, "
run prune models/demo --keep sink --ratio 0.1 --by weight -o "$out"
expect_line "types without a text" 2 'types of heads need a profile'
run prune models/demo "${short[@]}" --by weight --repair none --keep L0,L1,L2,L3,L4,L5,L6,L7 -o "$out"
expect_line "all heads kept" 2 'no head can be removed: the heads to keep'
run prune models/demo "${short[@]}" --reselect --ratio 0.1 --by weight -o "$out"
expect_line "nothing to look at again" 2 'weight looks at no text'
run prune models/demo "${short[@]}" --reselect -o "$out"
expect_line "--reselect without a number" 2 'reselect measures after each step: it needs --text FILE and --ratio or --count'
nothing_written "bad input"
finish
