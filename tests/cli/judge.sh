#!/bin/bash
# judge.sh - headlight judge: its table, its conclusions, and invalid input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 23

# Nine texts of 8 tokens.  A token is labeled right if it was likely, so log-probability predicts
# the labels.
prompt=$(head -c 200 models/text/alice.txt)
traces=()
for seed in 1 2 3 4 5 6 7 8 9; do
    trace=$scratch/$seed.trace
    "$HEADLIGHT" generate models/demo "$prompt" -n 8 -t 1 --seed "$seed" --json --ignore-end \
        --trace "$trace" >"$scratch/$seed.json" || exit 1
    traces+=("$trace")
    n_prompt=$(sed -n 's/^ "prompt_tokens": \([0-9]*\),$/\1/p' "$scratch/$seed.json")
    sed -n 's/^   "logprob": \(.*\),$/\1/p' "$scratch/$seed.json" |
        awk -v trace="$seed.trace" -v n="$n_prompt" '
            { printf "{\"trace\": \"%s\", \"tokens\": [%d, %d], \"right\": %s}\n",
                     trace, n + NR - 1, n + NR, ($1 > -2 ? "true" : "false") }' >>"$scratch/labels"
done

run judge "${traces[@]}" "$scratch/labels"
expect_line "the cases" 0 '^[0-9]+ right and [0-9]+ wrong spans in 9 texts$'
expect_line "log-probability tells all" 0 '^log-probability +1\.000 +0\.9[0-9]{2} +1\.000 +- +- +-$'
expect_line "attention has its line" 0 '^attention spikes +0\.[0-9]{3} +0\.[0-9]{3} +[01]\.[0-9]{3} +-0\.[0-9]{3} +-0\.'
expect_line "the model has its line" 0 "^heads' Rényi-2 +0\.[0-9]{3}"
expect_line "the prompt's, too" 0 "^prompt's Rényi-2 +0\.[0-9]{3}"
expect_line "and in plain words" 0 '^Attention adds nothing to log-probability here: '
cp "$scratch/out" "$scratch/first"
run judge "${traces[@]}" "$scratch/labels" --threads 2
expect "the same each time" 0 <"$scratch/first"

run judge "${traces[@]}" "$scratch/labels" --json
expect_line "--json" 0 '^ "attention_adds": false,$'
expect_line "--json: the signals are flat" 0 '^   "auroc_low": 0\.'
run judge "${traces[@]}" "$scratch/labels" --csv
expect_line "--csv" 0 '^signal,auroc,auroc_low,auroc_high,gain,gain_low,gain_high'
result "--csv: a line for each signal" "$([ "$(wc -l <"$scratch/out")" = 12 ] && echo yes)"
run judge "${traces[@]}" "$scratch/labels" --csv --json
expect_line "one form at a time" 2 '^headlight judge: --csv and --json cannot be combined$'

# Two tasks: the first five texts and the last four.
sed -E 's/"(trace": "[1-5])/"task": "a", "\1/; s/"(trace": "[6-9])/"task": "b", "\1/' "$scratch/labels" >"$scratch/tasks"
run judge "${traces[@]}" "$scratch/tasks"
expect_line "a task by its own models" 0 '^Task a, models that learned from other texts of the same task$'
expect_line "a task by the others' models" 0 '^Task b, models that learned from the other tasks$'
run judge "${traces[@]}" "$scratch/tasks" --csv
result "four tables in one" "$([ "$(wc -l <"$scratch/out")" = 45 ] && echo yes)"
expect_line "tasks are columns" 0 '^log-probability,1,.*,b,other tasks'
run judge "${traces[@]}" "$scratch/tasks" --json
expect_line "--json: tasks" 0 '^   "learned_from_other_tasks": true,$'

run judge "${traces[0]}"
expect_line "no labels" 2 '^headlight judge: no LABELS.jsonl given$'
run judge "$scratch/labels" "$scratch/labels"
expect_line "no trace" 3 '^headlight judge: .*labels: '
run judge "${traces[@]}" models/text/alice.txt
expect_line "no JSON" 3 '^headlight judge: models/text/alice.txt:1: '
run judge "${traces[0]}" "$scratch/labels"
expect_line "a trace that was not given" 3 "labels:9: no given trace is called '2\.trace'$"
printf '{"tokens": [1, 900], "right": true}\n' >"$scratch/far"
run judge "${traces[0]}" "$scratch/far"
expect_line "beyond the end" 3 'far:1: the range ends at 900, and the trace has [0-9]+ tokens$'
printf '{"tokens": [1, 2], "right": true}\n' >"$scratch/few"
run judge "${traces[0]}" "$scratch/few"
expect_line "too few" 3 'few: 0 right and 0 wrong spans \(1 left out'
finish
