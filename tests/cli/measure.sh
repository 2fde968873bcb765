#!/bin/bash
# measure.sh - headlight measure and merge: the same bytes in spite of interruptions and parts.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 43

model=models/demo
text=$scratch/text
mkdir "$text"
# Twelve documents of different lengths.
for i in $(seq 12); do
    head -c $((2000 + 97 * i * i)) models/text/alice.txt | tail -c $((90 + 30 * i)) | iconv -c -f UTF-8 -t ASCII \
        >"$text/$i.txt"
done
fast=(--context 64 --threads 1 --no-probe)
same() { cmp -s "$1" "$2" && echo yes; }

run measure "$model" "$text" -o "$scratch/p" "${fast[@]}"
expect_line "a profile" 0 "^$scratch/p: [0-9]+ tokens in [0-9]+ windows, 8 layers of up to 8 heads$"
result "no state is left behind" "$([ ! -e "$scratch/p.part" ] && echo yes)"
run measure "$model" "$text" -o "$scratch/q" "${fast[@]}" --batch 8 --quiet
expect "--quiet says nothing" 0 </dev/null
result "batches of 8 give the same bytes" "$(same "$scratch/p" "$scratch/q")"
run measure "$model" "$text" -o "$scratch/q" --context 64 --threads 2 --no-probe --json
expect_line "--json is an object" 0 '^ "tokens": [0-9]+,$'

for i in 1 2 3 4; do
    run measure "$model" "$text" -o "$scratch/part$i" "${fast[@]}" --part $i/4
done
run merge "$scratch"/part{3,1,4,2} -o "$scratch/q"
expect_line "parts merge" 0 "^$scratch/q: [0-9]+ tokens in [0-9]+ windows, from 4 profiles$"
result "to the bytes of the whole" "$(same "$scratch/p" "$scratch/q")"

# A run is killed at random moments and resumed until it is done: the profile and the rows of every
# token are the same.
kills=${HEADLIGHT_KILLS:-3}
killed=0
rm -f "$scratch/q" "$scratch/q.part"
run measure "$model" "$text" -o "$scratch/whole" "${fast[@]}" --rows "$scratch/whole.rows"
result "rows: nothing is left behind" "$(cmp -s "$scratch/p" "$scratch/whole" && [ ! -e "$scratch/whole.rows.part" ] && echo yes)"
while [ "$killed" -lt "$kills" ]; do
    "$HEADLIGHT" measure "$model" "$text" -o "$scratch/q" "${fast[@]}" --resume --save-every 0.01 \
        --rows "$scratch/q.rows" >/dev/null 2>&1 &
    process=$!
    sleep "0.$(printf '%02d' $((RANDOM % 30)))"
    kill -9 "$process" 2>/dev/null && killed=$((killed + 1))
    wait "$process" 2>/dev/null
    rm -f "$scratch"/.q*.tmp
    [ -e "$scratch/q" ] && { cmp -s "$scratch/p" "$scratch/q" || break; rm -f "$scratch"/q{,.part,.rows,.rows.part}; }
done 2>/dev/null
run measure "$model" "$text" -o "$scratch/q" "${fast[@]}" --resume --rows "$scratch/q.rows"
result "killed $killed times and resumed: the same bytes" "$([ "$killed" -eq "$kills" ] && same "$scratch/p" "$scratch/q")"
result "and the same rows" "$(same "$scratch/whole.rows" "$scratch/q.rows")"

# Ctrl-C.  A background process of a script ignores SIGINT, so SIGTERM stands in.
"$HEADLIGHT" measure "$model" "$text" -o "$scratch/q2" "${fast[@]}" >"$scratch/out" 2>"$scratch/err" &
process=$!
while [ ! -e "$scratch/q2.part" ]; do sleep 0.01; done
kill -TERM "$process"
wait "$process"
status=$?
expect_line "stopped: says how to go on" 130 "stopped after [0-9]+ tokens; the state is in $scratch/q2.part; --resume"
run measure "$model" "$text" -o "$scratch/q2" --context 63 --threads 1 --no-probe --resume
expect_line "a state of other settings" 3 "q2.part: this state was begun with other settings; use those, or remove the file to start again: the profiles differ in 'context': 64 and 63"
cp "$scratch/q2.part" "$scratch/kept"
run measure "$model" "$text/3.txt" -o "$scratch/q2" "${fast[@]}" --resume
expect_line "a state of another text" 3 'was begun with another text'
result "which is left as it was" "$(same "$scratch/kept" "$scratch/q2.part")"
# The rows that the state refers to must exist, and belong to the same work.
run measure "$model" "$text" -o "$scratch/q2" "${fast[@]}" --resume --rows "$scratch/q2.rows"
expect_line "no rows of before" 3 "^headlight measure: $scratch/q2.rows.part: No such file"
cp "$scratch/whole.rows" "$scratch/q2.rows.part"
sed -i '1s/"model":"[0-9a-f]*"/"model":"0123456789abcdef"/' "$scratch/q2.rows.part"
run measure "$model" "$text" -o "$scratch/q2" "${fast[@]}" --resume --rows "$scratch/q2.rows"
expect_line "rows of another model" 3 "q2.rows.part: 'model' is 0123456789abcdef, wanted [0-9a-f]{16}: these are the rows of another measurement"
run measure "$model" "$text" -o "$scratch/q2" "${fast[@]}" --resume
result "resumed: the same bytes" "$(same "$scratch/p" "$scratch/q2")"

# Profiles that cannot be merged.
run measure "$model" "$text" -o "$scratch/other" --context 32 --threads 1 --no-probe
run merge "$scratch/p" "$scratch/other" -o "$scratch/sum"
expect "other settings do not merge" 3 <<END
headlight merge: $scratch/p and $scratch/other: the profiles differ in 'context': 64 and 32
END
result "and nothing is written" "$([ ! -e "$scratch/sum" ] && echo yes)"
run measure models/demo-sparse "$text" -o "$scratch/sparse" "${fast[@]}"
run merge "$scratch/p" "$scratch/sparse" -o "$scratch/sum"
expect_line "nor do other models" 3 "the profiles differ in 'model': [0-9a-f]{16} and [0-9a-f]{16}$"
head -c 5000 "$scratch/p" >"$scratch/cut"
run merge "$scratch/p" "$scratch/cut" -o "$scratch/sum"
expect_line "nor files that are cut" 3 "^headlight merge: $scratch/cut: "
run merge -o "$scratch/sum"
expect_line "no profile" 2 'no PROFILE given'

# Input that cannot be measured.
: >"$scratch/empty.txt"
run measure "$model" "$scratch/empty.txt" -o "$scratch/e" "${fast[@]}"
expect_line "an empty text" 3 "^headlight measure: .*(text|empty)"
mkdir "$scratch/nothing"
run measure "$model" "$scratch/nothing" -o "$scratch/e" "${fast[@]}"
expect_line "a folder without files" 3 "^headlight measure: $scratch/nothing"
printf 'caf\xe9 au lait, again and again\n' >"$scratch/latin.txt"
run measure "$model" "$scratch/latin.txt" -o "$scratch/e" "${fast[@]}"
expect_line "not UTF-8" 3 "^headlight measure: $scratch/latin.txt: .*UTF-8"
run measure "$model" "$text" -o "$scratch/no/such/folder/p" "${fast[@]}"
expect_line "a folder that is not there" 3 "^headlight measure: $scratch/no/such/folder/p.part: "
run measure "$model" "$scratch/gone.txt" -o "$scratch/e" "${fast[@]}"
expect_line "a text that is not there" 3 "^headlight measure: $scratch/gone.txt"
result "none of them left a profile" "$([ ! -e "$scratch/e" ] && [ ! -e "$scratch/e.part" ] && echo yes)"
run measure "$model" "$text" -o /dev/full "${fast[@]}"
expect_line "not a place for a file" 2 '^headlight measure: /dev/full: not a regular file'
result "seen before the work" "$([ ! -e /dev/full.part ] && echo yes)"
# A disk that is full: files may not grow beyond 8 kB.
(trap '' XFSZ && ulimit -f 8 && "$HEADLIGHT" measure "$model" "$text" -o "$scratch/p" "${fast[@]}") \
    >"$scratch/out" 2>"$scratch/err"
status=$?
if grep -q __tsan_init "$HEADLIGHT"; then
    skipped "no room" "the thread sanitizer writes files of its own"
else
    expect_line "no room" 3 "^headlight measure: $scratch/p.part: writing: "
fi
result "what was there is still there" "$(same "$scratch/p" "$scratch/q")"
result "and nothing else" "$([ -z "$(find "$scratch" -name '.*' -type f)" ] && [ ! -e "$scratch/p.part" ] && echo yes)"
run measure "$model" "$text"
expect_line "no output" 2 ' -o PROFILE is missing: the file to write'
run measure
expect_line "no model" 2 'no MODEL given'

# Memory does not grow with the text.
for i in $(seq 8); do cat models/text/alice.txt; done | iconv -c -f UTF-8 -t ASCII >"$scratch/short.txt"
for i in $(seq 9); do cat "$scratch/short.txt"; done >"$scratch/long.txt"
# The memory that the address sanitizer keeps after a release does not grow either.
peak() { # text tokens option...
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:quarantine_size_mb=1 \
        "$HEADLIGHT" measure "$model" "$1" -o "$scratch/m" "${fast[@]}" --max-tokens "$2" --quiet "${@:3}" &
    local process=$! high=0 now
    while now=$(awk '/VmHWM/ { print $2 }' "/proc/$process/status" 2>/dev/null) && [ -n "$now" ]; do
        high=$now
        sleep 0.02
    done
    wait "$process"
    echo "$high"
}
short=$(peak "$scratch/short.txt" 1000)
long=$(peak "$scratch/long.txt" 1000)
echo "# peak of $(stat -c %s "$scratch/short.txt") bytes: $short kB, of $(stat -c %s "$scratch/long.txt"): $long kB"
result "a long text takes no more memory than a short one" "$([ "$long" -lt $((short + short / 10)) ] && echo yes)"
# The short run is long enough for the copies of weights that long runs keep.
short=$(peak "$scratch/short.txt" 2000 --rows "$scratch/rows")
long=$(peak "$scratch/short.txt" 8000 --rows "$scratch/rows")
echo "# peak with $(stat -c %s "$scratch/rows") bytes of rows: $long kB, with a fourth of them: $short kB"
result "nor do its rows" "$([ "$long" -lt $((short + short / 10)) ] && echo yes)"

run measure "$model" "$text/12.txt" -o "$scratch/rows.p" "${fast[@]}" --rows "$scratch/rows" --nll
expect_line "--nll says the loss" 0 '^loss: [0-9.]+ nats per token$'

# A message names the command only once.
encoder=${HEADLIGHT_SHARED:-../shared}/golden/families/bert
printf '[1, 2, 3, 4, 5, 6, 7, 8]\n' >"$scratch/ids.jsonl"
if [ -d "$encoder" ]; then
    run measure "$encoder" --token-ids "$scratch/ids.jsonl" --nll -o "$scratch/x"
    expect_line "an encoder has no loss" 2 '^headlight measure: [^:]*bert is an encoder, which does not predict the next token$'
else
    skipped "an encoder has no loss" "no golden families"
fi

# Adjusted models.
entropies() { # profile: those of all heads
    "$HEADLIGHT" show -t heads --csv "$1" |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "entropy") at = i } NR > 1 { print $at }'
}
run measure "$model" "$text/12.txt" -o "$scratch/cold" "${fast[@]}"
run measure "$model" "$text/12.txt" -o "$scratch/hot" "${fast[@]}" --temperature 4
expect_line "at another temperature" 0 "^$scratch/hot: "
result "attention is more diffuse" "$(paste <(entropies "$scratch/cold") <(entropies "$scratch/hot") |
    awk '{ more += $2 > $1 } END { if (NR == 64 && more > 60) print "yes" }')"
run measure "$model" "$text/12.txt" -o "$scratch/narrow" "${fast[@]}" --window 4 --window-sink 0
result "four keys have at most ln 4" "$(entropies "$scratch/narrow" |
    awk '$1 > 1.3863 { bad = 1 } END { if (!bad && NR == 64) print "yes" }')"
run merge "$scratch/hot" "$scratch/cold" -o "$scratch/x"
expect_line "such profiles do not merge with others" 3 "the profiles differ in 'adjusted'"
finish
