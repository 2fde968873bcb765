#!/bin/bash
# profile.sh - show, diagnose and compare, on profiles of the demo models.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 61

dense=$scratch/dense.profile
sparse=$scratch/sparse.profile
other=$scratch/other.profile
short="--context 128 --max-tokens 1536 --quiet --threads 1"
# shellcheck disable=SC2086 # several options
{
    "$HEADLIGHT" measure models/demo models/text/alice.txt -o "$dense" $short
    "$HEADLIGHT" measure models/demo-sparse models/text/alice.txt -o "$sparse" $short --no-probe
    "$HEADLIGHT" measure models/demo models/text/speech-1960.txt -o "$other" $short --no-probe
}

# ------------------------------------------------------------------------- show

run show "$dense"
expect_line "the heading" 0 '^layers x heads: 8 x 8; context 128; 1536 tokens in 12 windows$'
expect_line "a line of the heatmap" 0 '^H7   ( [0-9][0-9]){8}$'
expect_line "the layer profile" 0 '^  normalized .{8,} +0\.[0-9]{3} \(L[0-7]\) to 0\.9[0-9]{2} \(L[01]\)$'
expect_line "the strongest previous-token head is the most focused" 0 '^  L6H3   previous '
expect_line "types" 0 '^types   [0-9]+ '
expect_line "diagnoses in brief" 0 '^  not run       attention-locking     needs 129 generated tokens$'

run show --table list
expect_line "tables have names" 0 '^clusters +groups of heads that behave alike'
run show --table head-types "$dense"
expect_line "the induction head, by its rule" 0 '^    7     3  induction +no +0\.[4-9][0-9]{2} +0\.40  induction score on a'
run show --table heads --csv "$dense"
expect_line "CSV has names" 0 '^layer,head,rows,entropy,'
result "CSV has a line for each head" "$([ "$(wc -l <"$scratch/out")" -eq 65 ] && echo yes)"
run show --table shape --json "$dense"
expect_line "JSON has rows" 0 '^   "quantity": "entropy",$'
run show --json "$dense"
expect_line "JSON of the whole screen" 0 '^   "name": "entropy-collapse",$'
run show --quiet "$dense"
expect "--quiet says nothing" 0 </dev/null
run show --table clusters "$dense"
expect_line "clusters state their stability" 0 '^stability +-?[0-9]'

# Every column of every table is explained.
missing=""
for table in $("$HEADLIGHT" show --table list | awk '{ print $1 }'); do
    columns=$("$HEADLIGHT" show --table "$table" --csv "$dense" | head -1 | tr -d '\r' | tr ',' ' ')
    for column in $columns; do
        grep -q "\`${column%_high}" doc/metrics.md || missing="$missing $table.$column"
    done
done
for table in ranks metrics diagonal layer_metrics peaks pairs layers heads differences matching; do
    columns=$("$HEADLIGHT" compare --table $table --csv "$dense" "$sparse" | head -1 | tr -d '\r' | tr ',' ' ')
    for column in $columns; do
        grep -q "\`$column" doc/metrics.md || missing="$missing compare.$table.$column"
    done
done
echo "# not in doc/metrics.md:$missing"
result "doc/metrics.md explains every column" "$([ -z "$missing" ] && echo yes)"

run show --table hads "$dense"
expect "no such table" 2 <<'END'
headlight show: --table: no table is called 'hads' (did you mean 'heads'?)
Try 'headlight show --help'.
END
run show --csv "$dense"
expect_line "CSV of what?" 2 '^headlight show: --csv needs --table NAME$'
run show --by fair "$dense"
expect_line "a column's earlier name" 0 '^normalized entropy, % \(0 = all on one token, 100 = uniform\)$'
run show --by layer "$dense"
expect_line "no such column" 2 "^headlight show: --by: the table 'heads' has no column of numbers called 'layer'"
run show "$scratch/nothing"
expect_line "no such profile" 3 "^headlight show: $scratch/nothing: "
run show models/demo/model.safetensors
expect_line "a model is no profile" 3 '^headlight show: models/demo/model.safetensors: safetensors, but not a profile; '
run show models/demo
expect "nor is its folder" 3 <<'END'
headlight show: models/demo: this is a model, not a profile; run headlight measure on it first
END
run show README.md
expect "nor is a text" 3 <<'END'
headlight show: README.md: not a profile; headlight measure writes profiles
END

# --------------------------------------------------------------------- diagnose

run diagnose "$dense"
expect_line "the demo model is healthy" 0 '^not found +entropy-collapse: 0 of 64 heads'
result "nothing is found" "$(grep -q '^FOUND' "$scratch/out" || echo yes)"
expect_line "in one sentence" 0 '^No problems found in dense.profile: 6 checks passed, 2 not run; 1 observation$'
result "what did not run comes last" "$(grep -E '^(not|FOUND)' "$scratch/out" | tail -1 | grep -q '^not run' && echo yes)"
run diagnose --fail-on any "$dense"
expect_line "and does not fail" 0 '^not found +dead-or-broken'
run diagnose --quiet --fail-on entropy-collapse,sink-heads "$sparse"
expect "the sparse one does" 1 <<'END'
headlight diagnose: entropy-collapse was found
headlight diagnose: sink-heads was found
END
run diagnose --quiet --fail-on entropy-collapse --threshold collapse-share=0.95 "$sparse"
expect "not with another threshold" 0 </dev/null
# The four groups one after the other, whatever they are in the list of checks.
run diagnose "$sparse"
grep -oE '^(FOUND|observed|not found|not run)' "$scratch/out" | uniq -c | sed -E 's/^ +//' >"$scratch/groups"
result "found, observed, not found and not run stand apart" "$([ "$(cat "$scratch/groups")" = $'2 FOUND\n4 observed\n4 not found\n2 not run' ] && echo yes)"
expect_line "and are counted" 0 '^2 problems found in sparse.profile: 4 checks passed, 2 not run; 4 observations$'
# A value that ends short of its threshold is found because the check looks below it: it says so.
expect_line "found above a threshold" 0 '^ +effect +0\.[5-9][0-9]* share of heads; found above 0\.5 '
result "found below a threshold" "$(grep -A5 '^FOUND +inactive-heads' -E "$scratch/out" | grep -qE '^ +effect +0\.0[0-9]+ output norm relative' && echo yes)"
# What is suggested names heads of this model and options, and nothing that somebody would have to fill in.
result "no placeholder in what is suggested" \
    "$(grep -qE '\-\-off +L[0-9]+H[0-9]+|^ +L[0-9]+H[0-9]+,L' "$scratch/out" && ! grep -qwE 'MODEL|PROFILE|TEXT|FILE|P|OLD|NEW' "$scratch/out" && echo yes)"
run diagnose --json "$sparse" "$dense"
expect_line "JSON" 0 '^   "verdict": "found",$'
run diagnose --fail-on entropy-colapse "$dense"
expect "a name that is none" 2 <<'END'
headlight diagnose: --fail-on: no diagnosis is called 'entropy-colapse' (did you mean 'entropy-collapse'?)
Try 'headlight diagnose --help'.
END
run diagnose --threshold sink-mas=0.1 "$dense"
expect_line "a threshold that is none" 2 "did you mean 'sink-mass'"

run diagnose "$dense"
expect_line "locking: how to run it" 0 'write a trace with headlight generate --max-tokens 129'
run diagnose "$sparse"
expect_line "what was found comes first, with real heads" 0 '^[0-9]+ problems found in sparse.profile: '
result "and no placeholders" "$(grep -qE '(MODEL|TEXT|PROMPT|FILE|PROFILE|L5H1| P )' "$scratch/out" || echo yes)"
run generate models/demo 'He said' -n 140 --ignore-end --quiet --threads 1 --trace "$scratch/text.trace"
expect_line "a trace" 0 '.'
run diagnose --trace "$scratch/text.trace" "$dense"
expect_line "locking, judged by a trace" 0 '^FOUND +attention-locking: smallest change of rows in any of 76 windows:'
run diagnose --trace "$dense" "$dense"
expect_line "a profile is no trace" 3 "dense.profile: its format is 'headlight profile"
run generate models/demo 'He said' -n 2 --quiet --trace "$scratch/nowhere/text.trace"
expect_line "a trace that cannot be written" 3 'nowhere/text.trace'

few="--context 128 --max-tokens 512 --threads 1"
# shellcheck disable=SC2086 # several options
run diagnose --try models/demo-sparse models/text/alice.txt $few
expect_line "a warmer attention is tried on what collapsed" 0 '^tried attention temperature 2, for entropy-collapse$'
expect_line "and mends it" 0 '^  entropy-collapse +0\.[5-9][0-9]* +0\.[0-4][0-9]* +found +not found$'
expect_line "a sampling temperature moves the vocabulary" 0 '^  vocabulary entropy +[0-9.]+ +[0-9.]+   nats$'
result "not attention" "$(awk '/^  vocabulary entropy/ { if ($3 < $4) v = 1 }
    /^  attention entropy/ { if ($3 == $4 && $3 > 0) a = 1 } END { if (v && a) print "yes" }' "$scratch/out")"
# shellcheck disable=SC2086
run diagnose --try --window 8 --json models/demo models/text/alice.txt $few
expect_line "what was asked for is tried" 0 '^   "window": 8,$'
expect_line "and the first key stays in sight" 0 '^   "window_sink": 1,$'
run diagnose --try "$dense"
expect_line "a model and a text" 2 '^headlight diagnose: --try needs a MODEL and a TEXT; got 1 arguments$'
run diagnose --try --rope-base 1e6 models/demo models/text/alice.txt
expect_line "no RoPE in it" 3 '^headlight diagnose: models/demo: this model has no RoPE'

# ---------------------------------------------------------------------- compare

# shellcheck disable=SC2086
run compare --text models/text/alice.txt $few models/demo models/demo-sparse
expect_line "two models on a text" 0 '^not the same model by hash, 4 sequences in common$'
expect_line "and their rows" 0 '^mean total variation between the rows of A and B on the same tokens: 0\.[0-9]+$'
run compare --table rows "$dense" "$sparse"
expect_line "which profiles do not hold" 3 '^headlight compare: --table rows needs --text and two models'

run compare "$dense" "$sparse"
expect_line "pairs" 0 '^not the same model by hash, 12 sequences in common$'
expect_line "what differs" 0 '^6[0-4] of 64 heads differ in normalized entropy'
run compare "$dense" "$other"
expect_line "one model, two texts" 0 '^the same model by hash, 0 sequences in common$'
run compare --table matching --csv "$dense" "$dense"
expect_line "each head is its own partner" 0 '^7,7,7,0,0,false'
run compare "$dense"
expect "one profile" 2 <<'END'
headlight compare: give two profiles, A and B; got 1
Try 'headlight compare --help'.
END
finish
