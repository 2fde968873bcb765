#!/bin/bash
# memory.sh - --max-memory: what does not fit is refused with numbers before it is begun.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 9

model=models/demo
text=$scratch/text.txt
head -c 2000 models/text/alice.txt >"$text"
refusal="$model: [0-9.]+ [MG]iB of memory for [0-9]+ tokens \(weights 14\.3 MiB, cache [0-9.]+ [KMG]iB, work [0-9.]+ [KMG]iB, held already 0 bytes\), at most 10\.0 MiB"

for command in "generate $model Hello" "eval $model $text" "measure $model $text -o $scratch/p" \
    "tokens $model Hello" "serve $model --port 0"; do
    # shellcheck disable=SC2086 # the words of a command
    run $command --max-memory 10M
    expect_line "${command%% *} with 10M" 4 "^headlight ${command%% *}: $refusal"
done
result "and nothing is written" "$([ ! -e "$scratch/p" ] && [ ! -e "$scratch/p.part" ] && echo yes)"

run generate "$model" Hello -n 2 --max-memory none --quiet
expect_line "none: whatever the system gives" 0 .
run generate "$model" Hello -n 2 --max-memory 2G --quiet
expect_line "enough" 0 .
run generate "$model" Hello --max-memory 2Q
expect "no size" 2 <<'EOF'
headlight generate: --max-memory: '2Q' is no size, as 8G, 500M or none
Try 'headlight generate --help'.
EOF
finish
