#!/bin/bash
# gates.sh - --gates and --off in every command that runs a model.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
shared=${HEADLIGHT_SHARED:-../shared}
text=$scratch/text.txt
head -c 1500 models/text/alice.txt >"$text"
short=(--context 64 --max-tokens 128 --no-probe --quiet)
plan 25

# --------------------------------------------- verify: masked_logits of transformers

for family in gpt_neox llama3 phi3 starcoder2; do
    run verify "tests/data/families/$family" --off L0H1,L2H0,L2H3
    expect_line "$family: masked_logits" 0 '^  (logits|hidden) +2.0e-04 rel .* ok$'
done
run verify tests/data/families/llama3 --off L0H1
expect_line "other heads: rows against exact rows" 0 '^  entropy +1.0e-04 .* ok$'
result "and no logits" "$(grep -q logits "$scratch/out" || echo yes)"
if [ -d "$shared/golden/families" ]; then
    bad=
    for folder in "$shared"/golden/families/*; do
        off=L0H1,L2H0,L2H3
        [ "$(basename "$folder")" = falcon_rw ] && off=L0H1,L2H0,L2H15
        # One back end is enough: the others have their own tests.
        run verify "$folder" --off $off --backend scalar
        grep -qE '^  (logits|hidden) ' "$scratch/out" && [ "$status" -eq 0 ] || bad+=" $folder"
    done
    [ -n "$bad" ] && echo "#$bad"
    result "every family" "$([ -z "$bad" ] && echo yes)"
else
    skipped "every family" "no shared models"
fi

# ----------------------------------------------------------------- measure and merge

"$HEADLIGHT" measure models/demo "$text" -o "$scratch/plain" "${short[@]}"
"$HEADLIGHT" measure models/demo "$text" -o "$scratch/off" "${short[@]}" --off L3H2
printf '{"L3H2": 0}' >"$scratch/off.json"
"$HEADLIGHT" measure models/demo "$text" -o "$scratch/json" "${short[@]}" --gates "$scratch/off.json"
result "a file and a list are the same" "$(cmp -s "$scratch/off" "$scratch/json" && echo yes)"
result "and not the same as without" "$(cmp -s "$scratch/off" "$scratch/plain" || echo yes)"
printf '{"L3H2": 1, "L5": 1}' >"$scratch/open.json"
"$HEADLIGHT" measure models/demo "$text" -o "$scratch/open" "${short[@]}" --gates "$scratch/open.json"
result "open gates are no gates" "$(cmp -s "$scratch/open" "$scratch/plain" && echo yes)"
run merge "$scratch/plain" "$scratch/off" -o "$scratch/merged"
expect_line "they do not merge" 3 'gates'
result "and nothing is written" "$([ ! -e "$scratch/merged" ] && echo yes)"

# --------------------------------------------------------------------- other commands

run eval models/demo "$text" --off L3H2,L6 -n 100
expect_line "eval: said" 0 "^headlight eval: 9 heads disabled \(disabling heads does not speed up inference; 'headlight prune' does\)$"
expect_line "eval: against the model with all heads enabled" 0 '^compared with  the model with all heads enabled$'
expect_line "eval: KL" 0 '^KL, nats +[0-9]+\.[0-9]{4}'
printf '{"L3": 0.5, "L3H1": 0}' >"$scratch/half.json"
run eval models/demo "$text" --gates "$scratch/half.json" -n 100 --quiet
expect "--quiet" 0 </dev/null
run generate models/demo "The cat" -n 4 --gates "$scratch/half.json"
expect_line "generate" 0 '1 head disabled, 7 scaled'
run compare models/demo models/demo --text "$text" -c 64 --max-tokens 128 --off L0 --json
expect_line "compare: B's alone, so that they differ" 0 '^ "same_model": true,$'
run diagnose --try models/demo "$text" --off L0 -c 64 --max-tokens 128 --temperature 2
expect_line "diagnose --try" 0 '^headlight diagnose: 8 heads disabled'

# ---------------------------------------------------------------------------- refused

run eval models/demo "$text" --off L9H1
expect_line "no such layer" 2 '^headlight eval: L9H1: the model has layers L0 to L7$'
run eval models/demo "$text" --off L1H8
expect_line "no such head" 2 '^headlight eval: L1H8: the layer has heads L1H0 to L1H7$'
printf '{"L1H8": 0}' >"$scratch/bad.json"
run measure models/demo "$text" -o "$scratch/none" --gates "$scratch/bad.json"
expect_line "no such head in a file" 3 'bad.json: L1H8: the layer has heads L1H0 to L1H7$'
printf '{"L1H1": 2}' >"$scratch/bad.json"
run generate models/demo x --gates "$scratch/bad.json"
expect_line "a gate of 2" 3 'the gate of L1H1 is 2, wanted 0 to 1$'
run compare "$scratch/plain" "$scratch/off" --off L0
expect_line "profiles have no gates to set" 2 'need --text'
run diagnose "$scratch/plain" --off L0
expect_line "nor for diagnose" 2 'need --try'
finish
