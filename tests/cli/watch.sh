#!/bin/bash
# watch.sh - headlight generate: spikes and the reactions to them; a screen of a fixed size.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 35

prompt=$(head -c 600 models/text/alice.txt)
# With this model and text, scores rise above 1, but not above 3.
watched=(generate models/demo "$prompt" -n 60 -t 0.8 --seed 3 --spike-threshold 1)

# Counts the lines of a file that match.
count() { grep -cE -- "$1" "$2"; }

# ------------------------------------------------------------------ warn and stop

run generate models/demo "$prompt" -n 60 -t 0.8 --seed 3
cp "$scratch/out" "$scratch/plain"

run "${watched[@]}" --on-spike warn
result "warn: the text is the same" "$(cmp -s "$scratch/out" "$scratch/plain" && echo yes)"
expect_line "warn: and spikes are said" 0 "^headlight generate: token [0-9]+ '.+': a spike, z = [1-9]\.[0-9]{2}"
n_spikes=$(count 'a spike' "$scratch/err")

run "${watched[@]}" --on-spike warn --quiet
result "warn: --quiet says nothing" "$([ ! -s "$scratch/err" ] && echo yes)"

run "${watched[@]}" --on-spike warn --json
result "warn: as many events in --json" \
    "$([ "$(count '"event": "spike"' "$scratch/out")" -eq "$n_spikes" ] && echo yes)"
result "warn: a score for every token" "$([ "$(count '"spike": ' "$scratch/out")" -eq 60 ] && echo yes)"

run "${watched[@]}" --on-spike stop
expect_line "stop: is said" 0 "a spike, z = [1-9]\.[0-9]{2}.*; stopped before it$"
truncate -s -1 "$scratch/out"
n_bytes=$(wc -c <"$scratch/out")
result "stop: the text up to there" \
    "$(cmp -s -n "$n_bytes" "$scratch/out" "$scratch/plain" && [ "$n_bytes" -gt 50 ] && echo yes)"

run "${watched[@]}" --on-spike stop --json
expect_line "stop: the reason" 0 '^ "stop": "spike",$'

# In a text of ones, attention stops moving at some place.
run generate models/demo '1 1 1 1 1 1' -n 400 --ignore-end --on-spike stop
expect_line "locking: is said" 0 'attention is locked from token [0-9]+ on: rows change by 0\.0[0-4]'
run generate models/demo '1 1 1 1 1 1' -n 400 --ignore-end --on-spike stop --json
result "locking: ends the text" "$(grep -q '"event": "locking"' "$scratch/out" &&
    grep -q '^ "stop": "spike",$' "$scratch/out" && echo yes)"

# ----------------------------------------------------------------------- resample

run "${watched[@]}" --on-spike resample
expect_line "resample: goes back" 0 "a spike, z = .*; going back 4 tokens to draw again \(1 of 3\)$"
result "resample: to another text" \
    "$(cmp -s "$scratch/out" "$scratch/plain" || echo yes)"
cp "$scratch/out" "$scratch/again"
run "${watched[@]}" --on-spike resample --threads 2
result "resample: the same each time" "$(cmp -s "$scratch/out" "$scratch/again" && echo yes)"

# Every token is a spike: each is drawn again as often as allowed, and then kept.
run generate models/demo "$prompt" -n 20 -t 0.8 --spike-threshold -1000 --on-spike resample \
    --resample-back 2 --resample-max 2 --json
result "resample: bounded" "$([ "$(count '"event": "kept"' "$scratch/out")" -ge 19 ] &&
    [ "$(count '"event": "resample"' "$scratch/out")" -le 40 ] &&
    [ "$(count '"event": "resample"' "$scratch/out")" -ge 20 ] && echo yes)"
expect_line "resample: and as long as asked for" 0 '^ "generated_tokens": 20,$'

run generate models/demo a --on-spike resample
expect_line "resample: without a temperature" 2 'needs --temperature: without it the same tokens are drawn again'

# --------------------------------------------------------------------------- exec

run "${watched[@]}" --on-spike exec --exec "cat >'$scratch/question'; printf ' (by Lewis Carroll)'" \
    --exec-max 1 --trace "$scratch/trace.jsonl"
expect_line "exec: context is inserted" 0 "a spike, z = .*; inserted [0-9]+ tokens of context$"
result "exec: and is not the model's text" "$([ "$(count 'by Lewis' "$scratch/out")" -eq 0 ] && echo yes)"
result "exec: the trace has it" "$([ "$(count '"kind": "context"' "$scratch/trace.jsonl")" -gt 2 ] &&
    [ "$(count '"kind": "generated"' "$scratch/trace.jsonl")" -eq 60 ] && echo yes)"
result "exec: gets the text" \
    "$(grep -qE '^\{"text":"ALICE.{1,3}S ADVENTURES.*","tokens":[0-9]+,"spike":\{"z":[0-9.]+,"entity":(true|false),"token":".+"\}\}$' \
        "$scratch/question" && echo yes)"

# The text continues whatever the command does, and a message says why there is no context.
bad() { # name pattern command [option...]
    local name=$1 pattern=$2 command=$3
    shift 3
    run "${watched[@]}" --on-spike exec --exec "$command" "$@"
    if [ "$status" -eq 0 ] && cmp -s "$scratch/out" "$scratch/plain" &&
        grep -qE "the command of --exec gave no context: $pattern" "$scratch/err"; then
        result "exec: $name" yes
    else
        sed 's/^/# /' "$scratch/err"
        result "exec: $name" no
    fi
}
SECONDS=0
bad "one that hangs is killed" 'it took more than 0\.3 s and was killed$' \
    'sleep 77.125 & sleep 77.125' --exec-timeout 0.3 --exec-max 1
result "exec: in time, with what it started" \
    "$([ "$SECONDS" -lt 20 ] && ! pgrep -f '^sleep 77\.125' >/dev/null && echo yes)"
bad "one that hangs after its answer" 'it took more than 0\.3 s and was killed$' \
    'echo hello; exec >&-; sleep 77.125' --exec-timeout 0.3 --exec-max 1
bad "one that fails" 'it ended with status 7$' 'echo hello; exit 7'
# shellcheck disable=SC2016 # the command's shell is meant
bad "one that dies" 'signal 9 ended it$' 'kill -9 $$'
bad "one that is not there" 'it ended with status 127$' '/nowhere/at/all 2>/dev/null'
bad "rubbish" 'what it printed is not UTF-8 text$' "printf 'a\\377b'"
bad "too much" 'it printed more than 16384 bytes$' 'yes'
bad "no room" 'its [0-9]+ tokens do not fit into the context of 320 tokens$' \
    'seq 1 400' --context 320

run generate models/demo a --on-spike exec
expect_line "exec: without a command" 2 'needs --exec COMMAND$'

mkdir "$scratch/notes"
printf 'nothing of this\nThe Queen has a watch and a mother.\n' >"$scratch/notes/a.txt"
answer=$(printf '{"text":"the watch of\\nher mother","tokens":3,"spike":{"token":"x"}}' | examples/notes.sh "$scratch/notes")
result "examples/notes.sh finds the line" "$([ "$answer" = " (The Queen has a watch and a mother.) " ] && echo yes)"

# --------------------------------------------------------------- the trace's numbers

trace_error() { # option...: the largest difference from measure --rows
    run generate models/demo 'He said that the night was cold and' -n 150 --temperature 0.8 --seed 3 \
        --trace "$scratch/rows.trace" --threads 1 "$@"
    python3 tests/cli/trace_rows.py ids "$scratch/rows.trace" >"$scratch/ids.jsonl"
    run measure models/demo --token-ids "$scratch/ids.jsonl" -o "$scratch/rows.p" --rows "$scratch/rows" --threads 1
    python3 tests/cli/trace_rows.py compare "$scratch/rows.trace" "$scratch/rows"
}
error=$(trace_error)
echo "# a trace's rows against measure --rows: $error"
result "a trace's rows are measure's, within rounding" "$(awk -v e="$error" 'BEGIN { if (e < 2e-5) print "yes" }')"
error=$(trace_error --exact-rows)
echo "# with --exact-rows: $error"
result "and with --exact-rows within 1e-6" "$(awk -v e="$error" 'BEGIN { if (e < 1e-6) print "yes" }')"
run generate models/demo a --exact-rows
expect_line "--exact-rows without a trace" 2 'needs --trace FILE$'

# ------------------------------------------------------------------------- screen

if have_terminal; then
    TERM=xterm script -qec "stty cols 60 rows 20; '$HEADLIGHT' generate models/demo 'He said' -n 6 --color never" \
        /dev/null </dev/null | tr -d '\r' | sed 's/\x1b/^/g' >"$scratch/out"
    status=0
    : >"$scratch/err"
    expect "a screen of 60 columns" 0 <<'END'
^[2mHe said^[0m,^[52G█▇▇▆▆▅▅▅^[9G “^[52G█▇▇▆▇▆▆▆^[11GI^[52G█▇▇▇▇▆▅▆^[12G am^[52G█▇▇▇▇▆▅▆^[15G not^[52G█▇▇▇▇▆▅▆^[19G afraid^[52G█▇▇▇▇▆▆▆^[26G
0 spikes (z > 3, ^[4munderlined^[0m)
END
else
    skipped "a screen of 60 columns" "no script(1), or no terminal for it"
fi
finish
