#!/bin/bash
# checkpoints.sh - headlight watch: a training run's checkpoints, the series, alarms, event files.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
here=$(dirname "$0")

if ! command -v python3 >/dev/null; then
    plan 1
    skipped "headlight watch" "no python3"
    finish
fi
plan 47

run_folder=$scratch/run
ids=$scratch/ids.jsonl
series=$scratch/series.jsonl
checkpoint() { python3 "$here/checkpoint.py" tests/data/families/llama3 "$run_folder/$1" "$2"; }
watch() { run watch "$run_folder" --token-ids "$ids" -s "$series" -c 64 "$@"; }
lines() { wc -l <"$series"; }
# Waits until a condition holds, with a time limit.
await() {
    for _ in $(seq 300); do
        "$@" && return
        sleep 0.1
    done
}
has_lines_from() { [ "$(lines)" -ge "$1" ]; }
has_lines() { [ "$(lines)" -eq "$1" ]; }
yes_if() { "$@" >/dev/null 2>&1 && echo yes; }

# -------------------------------------------------------------------------- healthy

mkdir "$run_folder"
python3 "$here/checkpoint.py" ids "$ids"
watch --once
expect "an empty folder" 0 </dev/null
result "and no series" "$(yes_if test ! -e "$series")"

checkpoint checkpoint-100 1
checkpoint checkpoint-20 1.02
checkpoint final 1
watch --once --nll
# Compares the layout; the numbers are compared with measure's below.
sed -i -E 's/ *[-+]?[0-9]+\.[0-9]{4}/ N/g; s/ +[-+][0-9]+\.[0-9] / N /' "$scratch/out"
expect "two checkpoints, by step" 0 <<'END'
      step   entropy normalized     loss     drop     errors  name
        20 N N N        -          -  checkpoint-20
       100 N N N N N  checkpoint-100
headlight watch: final: not measured: its name has no number that could be the training step
END
rm -r "$run_folder/final"
result "a line each, and one before them" "$(yes_if test "$(lines)" -eq 3)"
cp "$series" "$scratch/kept"
watch --once --nll
expect "what is in the series is not measured again" 0 </dev/null
result "and the series is as it was" "$(yes_if cmp "$series" "$scratch/kept")"
rm "$series"
watch --once --nll --quiet --threads 2
result "the same run is the same bytes" "$(yes_if cmp "$series" "$scratch/kept")"
touch -d '2001-01-01' "$run_folder"/checkpoint-20/*
watch --once --nll --json
result "one that changed is measured again" \
    "$([ "$status" -eq 0 ] && grep -q '^{"name": "checkpoint-20", "step": 20,' "$scratch/out" && [ "$(lines)" -eq 3 ] && echo yes)"
result "--json is the series' line" "$(yes_if cmp <(tail -1 "$series") "$scratch/out")"

# The numbers are equal to measure's.
run measure "$run_folder/checkpoint-100" --token-ids "$ids" -c 64 --nll --no-probe -o "$scratch/p" --quiet
watch --once --nll --profiles "$scratch/profiles"
result "--profiles keeps none of the old" "$(yes_if test ! -e "$scratch/profiles")"
rm "$series"
watch --once --nll --quiet --profiles "$scratch/profiles"
result "--profiles are measure's bytes" "$(yes_if cmp "$scratch/p" "$scratch/profiles/checkpoint-100.profile")"

# --------------------------------------------------------------------------- alarms

checkpoint checkpoint-200 0
watch --once --nll
expect_line "uniform attention: an alarm" 1 \
    '^headlight watch: checkpoint-200: entropic-overload: 12 of 12 heads \(100%\)$'
# For rows of 1 to 64 keys, the mean of ln n is ln(64!) / 64.
expect_line "its entropy is ln n" 1 '^       200    3\.2058     1\.0000 '
watch --once --nll
expect "an alarm is said once" 0 </dev/null

checkpoint checkpoint-300 1000
watch --once --nll --exec "cat >'$scratch/heard'; echo the command was here"
expect_line "one key each: an alarm" 1 \
    '^headlight watch: checkpoint-300: entropy-collapse: 12 of 12 heads.*; since step 100 the mean normalized entropy fell by [0-9.]+ \([0-9.]+ robust standard deviations\), 100% of heads became one-hot and the loss rose by [0-9.]+ nats$'
expect_line "--exec: what it prints" 1 '^the command was here$'
result "--exec: gets JSON" "$(python3 - "$scratch/heard" <<'END'
import json, sys
heard = json.load(open(sys.argv[1]))
if heard["alarms"] == ["entropy-collapse", "head-drift"] and heard["point"]["step"] == 300 and len(heard["point"]["heads_normalized"]) == 3:
    print("yes")
END
)"
rm -r "$run_folder/checkpoint-300"
checkpoint checkpoint-400 nan
watch --once --nll --exec "cat >'$scratch/heard'; exit 3"
expect_line "weights that are no numbers: an alarm" 1 \
    "^headlight watch: checkpoint-400: dead-or-broken: .*q_proj.weight' has a NaN or infinite value"
expect_line "--exec: one that fails is said" 1 '^headlight watch: --exec: it ended with status 3$'
result "--exec: gets the problem" "$(yes_if grep -q '"alarms": \["dead-or-broken"\], "name": "checkpoint-400", "step": 400, "problem": "' "$scratch/heard")"
watch --once --nll --fail-on none
expect_line "--fail-on none: bad input is left" 3 '^headlight watch: checkpoint-400: .*NaN or infinite'
rm -r "$run_folder/checkpoint-400"

rm "$series"
watch --once --nll --fail-on none
expect_line "--fail-on none: no alarm" 0 '^       200 '
rm "$series"
watch --once --nll --threshold overload-entropy=1.1 --fail-on any
expect_line "--threshold, --fail-on any" 1 'checkpoint-[0-9]+: [a-z-]+: '
result "--threshold: no overload" "$(grep -q overload "$scratch/err" || echo yes)"

# ------------------------------------------------------------------ files that are not

mkdir "$run_folder/checkpoint-500"
cp tests/data/families/llama3/config.json "$run_folder/checkpoint-500"
head -c 3000 tests/data/families/llama3/model-00001-of-00003.safetensors >"$run_folder/checkpoint-500/model.safetensors"
watch --once --nll
expect_line "half a file: bad input, and said whose" 3 '^headlight watch: checkpoint-500: .*checkpoint-500/model\.safetensors'
rm -r "$run_folder/checkpoint-500"
cp "$series" "$scratch/kept"
printf '{"format": "headlight series 1"}\n' >"$series"
watch --once --nll
expect_line "a series that is none" 3 "series\.jsonl, line 1: 'layers' is missing, wanted an integer$"
cp "$scratch/kept" "$series"
checkpoint checkpoint-600 1
watch --once
expect_line "measured otherwise" 3 '^headlight watch: checkpoint-600: its nll is no, but yes in the series; use another --series FILE$'
result "and the series is as it was" "$(yes_if cmp "$series" "$scratch/kept")"
run watch "$scratch/nowhere" --token-ids "$ids" -s "$series" --once
expect_line "no such folder" 3 'nowhere: No such file or directory$'

# ------------------------------------------------------------------- pictures, events

rm "$series"
watch --once --nll --quiet -o "$scratch/fig.svg" --events "$scratch/events"
result "-o: alarms are marked" "$(yes_if grep -q 'alarms: 200, 1' "$scratch/fig.svg")"
events=$scratch/events/events.out.tfevents.0000000000.headlight
result "--events: a file" "$(yes_if test -s "$events")"
checkpoint checkpoint-700 1
cp "$events" "$scratch/before"
watch --once --nll --quiet -o "$scratch/fig.png" --figure loss --events "$scratch/events"
n_bytes=$(wc -c <"$scratch/before")
result "--events: new ones behind the old" \
    "$(cmp -s -n "$n_bytes" "$events" "$scratch/before" && [ "$(wc -c <"$events")" -gt "$n_bytes" ] && echo yes)"

# A GGUF file is a checkpoint, too.
mkdir "$scratch/gguf"
cp tests/data/gguf/llama3.gguf "$scratch/gguf/step_7-f32.gguf"
run measure "$scratch/gguf/step_7-f32.gguf" --token-ids "$ids" -c 64 --no-probe -o "$scratch/p" --quiet
run watch "$scratch/gguf" --token-ids "$ids" -s "$scratch/gguf.jsonl" -c 64 --once --profiles "$scratch/gguf" --fail-on none
expect_line "a GGUF file" 0 '^         7 .* step_7-f32\.gguf$'
result "and its profile is measure's" "$(yes_if cmp "$scratch/p" "$scratch/gguf/step_7-f32.gguf.profile")"

# --------------------------------------------------------------------------- waiting

rm "$series"
rm -r "${run_folder:?}"/*
"$HEADLIGHT" watch "$run_folder" --token-ids "$ids" -s "$series" -c 64 --every 0.1 --settle 0.3 --stop \
    >"$scratch/out" 2>"$scratch/err" </dev/null &
watcher=$!
sleep 0.3
checkpoint .making 1
mv "$run_folder/.making" "$run_folder/checkpoint-1"
await test -e "$series"
result "a checkpoint that appears is measured" "$(yes_if test -e "$series")"
checkpoint .making 0
mv "$run_folder/.making" "$run_folder/checkpoint-2"
wait "$watcher"
status=$?
expect_line "--stop ends it with status 1" 1 'checkpoint-2: entropic-overload'
result "both are in the series" "$(yes_if test "$(lines)" -eq 3)"

checkpoint checkpoint-3 1
"$HEADLIGHT" watch "$run_folder" --token-ids "$ids" -s "$series" -c 64 --every 0.1 --settle 0 \
    >"$scratch/out" 2>"$scratch/err" </dev/null &
watcher=$!
await has_lines 4
kill -TERM "$watcher"
wait "$watcher"
status=$?
expect_line "a signal ends it, with all that is measured" 0 'checkpoint-3$'
watch --every 0.1 --quit-after 0.2
expect "--quit-after ends it" 0 </dev/null

# --------------------------------------------------------------------------- killed

for step in 4 5 6; do checkpoint "checkpoint-$step" 1; done
rm "$series"
watch --once --quiet --fail-on none --events "$scratch/whole"
cp "$series" "$scratch/kept"
for n_lines in 2 4; do
    rm "$series"
    "$HEADLIGHT" watch "$run_folder" --token-ids "$ids" -s "$series" -c 64 --once --quiet --fail-on none \
        --events "$scratch/cut$n_lines" >/dev/null 2>&1 </dev/null &
    watcher=$!
    await test -e "$series"
    await has_lines_from "$n_lines"
    kill -KILL "$watcher" 2>/dev/null
    wait "$watcher" 2>/dev/null
    watch --once --quiet --fail-on none --events "$scratch/cut$n_lines"
    result "killed after $((n_lines - 1)) checkpoints: the same series" "$(yes_if cmp "$series" "$scratch/kept")"
    result "and the same events" "$(yes_if diff -r "$scratch/whole" "$scratch/cut$n_lines")"
done

# ---------------------------------------------------------------------------- usage

run watch "$run_folder" --token-ids "$ids"
expect_line "no series" 2 '^headlight watch: --series FILE is missing: the file for the results$'
run watch "$run_folder" - -s "$series"
expect_line "standard input" 2 'standard input cannot be TEXT here: it can be read only once, and every checkpoint needs the text$'
watch -o "$scratch/fig.gif"
expect_line "a figure of no known kind" 2 'fig.gif does not end in \.svg, \.png or \.pdf$'
watch --fail-on entropy-colapse
expect_line "an alarm that is none" 2 "no diagnosis is called 'entropy-colapse' \(did you mean 'entropy-collapse'\?\)$"
finish
