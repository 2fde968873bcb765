#!/bin/bash
# sweep.sh - headlight sweep: the screen, tables, JSON, figures, resuming after a kill, and invalid
# input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
head -c 2000 models/text/alice.txt >"$scratch/rank.txt"
head -c 2000 models/text/speech-1960.txt >"$scratch/test.txt"
plan 26

sweep=(sweep models/demo --rank-text "$scratch/rank.txt" --test-text "$scratch/test.txt"
    --rank-tokens 32 --test-tokens 32 --context 16 --ratios "0,0.25,0.5" --seeds 2 --threads 1)

run "${sweep[@]}" --by entropy,weight -o "$scratch/curves.svg" --scatter "$scratch/scatter.svg"
expect_line "the screen begins with the text" 0 '^models/demo  30 tokens scored in 2 windows of 16; with all heads'
expect_line "a line for an order" 0 '^  entropy +0\.0000 +-?[0-9.]+[+-]? +-?[0-9.]+[+-]? ?$'
expect_line "a band for chance" 0 '^  random, median +0\.0000 '
expect_line "the verdict names a winner" 0 '^At ratio 0.25 \(16 of 64 heads disabled\) (entropy|weight) costs least: '
expect_line "and says how entropy fares against chance" 0 \
    '^Highest entropy first against random orders \(2 seeds\): better at [0-2] of 2 ratios, worse at [0-2], '
expect_line "and what was saved" 0 '^76 settings and the model with all heads \(73 of them different\) ran [0-9]+ of 616 layers: layers in common saved [0-9]+%, '
expect_line "and that this is little text" 0 "^No interval, and nothing is called better or worse: 2 windows: an interval needs 4 or more"
expect_line "and that gates save no time" 0 '^Disabling heads does not speed up inference\.  Removing 32 heads can save at most 14\.0% of parameters'
result "figures are drawn" "$(grep -q '<svg' "$scratch/curves.svg" && grep -q 'entropy' "$scratch/scatter.svg" && echo yes)"
result "the state is gone" "$([ ! -e "$scratch/curves.svg.part" ] && echo yes)"

# Ratio 0 is plain eval, with the same digits.
run eval models/demo "$scratch/test.txt" --max-tokens 32 --context 16 --threads 1 --json
dense=$(sed -n -E 's/^ *"nats_per_token": ([0-9]+\.[0-9]{10}).*/\1/p' "$scratch/out")
run "${sweep[@]}" --by entropy,weight --table points --csv
cp "$scratch/out" "$scratch/points"
result "ratio 0 is eval's loss" "$(grep -q "^entropy,0,0,$dense" "$scratch/out" && [ -n "$dense" ] && echo yes)"

# Killed as soon as it has saved something, it resumes to the same bytes.
"$HEADLIGHT" "${sweep[@]}" --by entropy,weight --state "$scratch/state" --save-every 0.001 >/dev/null 2>&1 &
victim=$!
until [ -e "$scratch/state" ] || ! kill -0 $victim 2>/dev/null; do sleep 0.01; done
kill -KILL $victim
wait $victim 2>/dev/null
result "a killed sweep leaves a state" "$([ -e "$scratch/state" ] && echo yes)"
run "${sweep[@]}" --by entropy,weight --state "$scratch/state" --resume --table points --csv
expect "a killed sweep goes on to the same bytes" 0 <"$scratch/points"

run "${sweep[@]}" --by weight --json
result "JSON has verdict and tables" "$(python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert set(d["tables"]) == {"points", "random", "correlation", "heads", "savings"}
assert len(d["tables"]["points"]["rows"]) == 3 and d["layers_run"] < d["layers_naive"]
print("yes")' "$scratch/out")"

# Last words: eval's numbers at ratio 0 and, with the same gates, at another ratio.
for text in "said the Queen to the King" "said the Queen to a little" "said the Queen to the same" \
    "It is one of the most important of the United States of America" \
    "the American people of the United States" "as well as" "in order to"; do
    printf '{"text": "%s"}\n' "$text"
done >"$scratch/words.jsonl"
run "${sweep[@]}" --by weight --last-word "$scratch/words.jsonl"
expect_line "last words on the screen" 0 '^Last words predicted, in percent:$'
run "${sweep[@]}" --by weight --last-word "$scratch/words.jsonl" --table points --csv
tr -d '\r' <"$scratch/out" | awk -F, 'NR > 1 { printf "%.0f\n", $NF * 7 }' | tr '\n' ' ' >"$scratch/seen_words"
off=$("$HEADLIGHT" rank --model models/demo --by weight --csv -n 16 | tr -d '\r' | awk -F, 'NR > 1 { print $2 }' | paste -sd,)
words_of() {
    "$HEADLIGHT" eval models/demo "$scratch/words.jsonl" --last-word --context 16 --json "$@" 2>/dev/null |
        sed -n -E '/"last_word"/,/}/s/.*"right": ([0-9]+).*/\1/p'
}
read -r first second _ <"$scratch/seen_words"
result "at ratio 0 as many as eval counts" "$([ "$first" -gt 0 ] && [ "$first" = "$(words_of)" ] && echo yes)"
result "and with heads off, too" "$([ -n "$second" ] && [ "$second" = "$(words_of --off "$off")" ] && echo yes)"
run "${sweep[@]}" --by weight --last-words 2
expect_line "how many, but not of what" 2 '\-\-last-words needs --last-word FILE$'
echo '{"text": "word"}' >"$scratch/one.jsonl"
run "${sweep[@]}" --by weight --last-word "$scratch/one.jsonl"
expect_line "one word alone" 3 'one.jsonl: no text with two words or more$'
echo '{"txt": "word"}' >"$scratch/one.jsonl"
run "${sweep[@]}" --by weight --last-word "$scratch/one.jsonl"
expect_line "a line without text" 3 '^headlight sweep: .*one.jsonl:1: no "text", or it is not a string$'

# If the model has no groups, --groups changes nothing.
run "${sweep[@]}" --by entropy,weight --groups --table points --csv
expect "groups of one" 0 <"$scratch/points"

run sweep models/demo --rank-text "$scratch/test.txt" --test-text "$scratch/test.txt"
expect_line "one text for both is refused" 2 'rank on one text and test on another'
run sweep models/demo --rank-text "$scratch/rank.txt"
expect_line "a text is missing" 2 '--rank-text A and --test-text B are both needed'
run "${sweep[@]}" --by entrpy
expect_line "a ranker that is none" 2 "no ranker is called 'entrpy' \(did you mean 'entropy'\?\)"
run "${sweep[@]}" --ratios 0,1
expect_line "a ratio of 1" 2 "'1' does not begin with a number of at least 0 and below 1"
run "${sweep[@]}" --ratios 0,0.9 --by weight
expect_line "more than can go" 2 '58 of 64 heads are to be removed, but only 56 can be: every layer keeps one \(--empty-layers allows more\)'
finish
