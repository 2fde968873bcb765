#!/bin/bash
# checks.sh - the checks of diagnose on made models (tools/train_cases.py): a run that learns raises no
# alarm, and random, collapsed, broken and changed models raise theirs; loops of generated texts.
set -u
. tests/cli/lib.bash
plan 20

tar xzf tests/data/checks.tar.gz -C "$scratch"
run_of() { echo "$scratch/run-step-$1.profile"; }

# The names of the alarms that were found, of `diagnose --json` in $scratch/out.
alarms() {
    python3 -c '
import json, sys
print(*[check["name"] for check in json.load(sys.stdin)["diagnoses"]
        if check["kind"] == "alarm" and check["verdict"] == "found"])' <"$scratch/out"
}

# A field of a check in $scratch/out, as Python evaluates it with `check`.
field() { # name expression
    python3 -c '
import json, sys
check = {one["name"]: one for one in json.load(sys.stdin)["diagnoses"]}[sys.argv[1]]
print(eval(sys.argv[2]))' "$1" "$2" <"$scratch/out"
}

expect_alarms() { # name "wanted alarms"
    seen=$(alarms)
    [ "$seen" = "$2" ] || echo "# wanted '$2', saw '$seen'"
    result "$1" "$([ "$seen" = "$2" ] && echo yes)"
}

# ------------------------------------------------------------ a run that learns

false_alarms=0
for step in $(seq 50 50 1000); do
    run diagnose --quiet --fail-on any "$(run_of "$step")" "$(run_of $((step - 50)))"
    [ "$status" -eq 0 ] || {
        false_alarms=$((false_alarms + 1))
        sed "s/^/# step $step: /" "$scratch/err"
    }
done
result "no alarm on 20 healthy checkpoints" "$([ "$false_alarms" -eq 0 ] && echo yes)"
run diagnose --json "$(run_of 1000)" "$(run_of 0)"
expect_alarms "random weights that learn did not collapse" ""
result "though attention sharpened by hundreds of deviations" "$(field entropy-collapse 'check["errors"] > 100 and "fell by 0.2" in check["finding"]' | grep -q True && echo yes)"
result "which is said to be learning" "$(field entropy-collapse '"is learning" in check["against"]' | grep -q True && echo yes)"

# ----------------------------------------------------------------- random weights

run diagnose --json "$scratch/random-8x8.profile"
expect_alarms "random weights: even, flat and alike" "entropic-overload flat-profile head-redundancy"
result "flat, however sure the small range is" "$(field flat-profile 'check["value"] < 0.001 and check["errors"] > 10' | grep -q True && echo yes)"
result "untrained weights are the first hypothesis, with what speaks for it" \
    "$(field entropic-overload 'check["causes"][0]["name"] == "untrained weights" and "random weights" in check["causes"][0]["for"]' | grep -q True && echo yes)"

# -------------------------------------------------------------- collapsed, changed

for step in 1025 1100; do
    run diagnose --json "$scratch/collapsed-step-$step.profile" "$(run_of 1000)"
    expect_alarms "too high a rate, step $step: a collapse" "entropy-collapse head-drift"
done
run diagnose --json --fail-on entropy-collapse "$scratch/collapsed-step-1025.profile" "$(run_of 1000)"
expect_line "which fails" 1 'entropy-collapse was found'
run diagnose --json "$scratch/scrambled.profile" "$(run_of 1000)"
expect_alarms "one scrambled head" "head-drift"
result "and it is named first" "$(field head-drift 'check["heads"][0]["layer"], check["heads"][0]["head"]' | grep -q '(2, 1)' && echo yes)"
run diagnose --json "$scratch/quantized.gguf.profile" "$(run_of 1000)"
expect_alarms "four bits per weight: nothing to act on" ""
run diagnose --json "$scratch/broken.profile"
result "a head that overflows" "$(alarms | grep -q '^dead-or-broken' && field dead-or-broken '[(h["layer"], h["head"]) for h in check["heads"]]' | grep -q '(2, 1)' && echo yes)"

# ------------------------------------------------------------------------- causes

run diagnose "$scratch/collapsed-step-1025.profile" "$(run_of 1000)" --training "$scratch/collapsed-step-1025.profile"
expect_line "overfitting: weighed by the training text" 0 'overfitting\? Against: The loss is'
run diagnose "$(run_of 1000)" --training "$(run_of 950)"
expect_line "which must be the same model's" 3 'the training profile is of another model'

# -------------------------------------------------------------------------- loops

loop() { # prompt options...
    prompt=$1
    shift
    "$HEADLIGHT" generate models/demo "$prompt" -n 200 --ignore-end --raw --quiet --threads 1 "$@" \
        --trace "$scratch/text.trace" >/dev/null
    run diagnose "$(run_of 1000)" --trace "$scratch/text.trace" --json
}
loop "Alice was the the the the"
result "the the the" "$(field attention-locking '"repeats 1 token, 200.0 times" in check["finding"] and check["verdict"]' | grep -q '^found' && echo yes)"
loop "Once upon a time"
result "I am not afraid of it: a period of 22 tokens, by text" "$(field attention-locking '"the text repeats 22 tokens" in check["finding"] and check["verdict"]' | grep -q '^found' && echo yes)"
result "and by rows" "$(field attention-locking '"attention comes back every 22 tokens" in check["finding"]' | grep -q True && echo yes)"
loop "Once upon a time" --temperature 1 --seed 3
result "no loop in a text that was drawn" "$(field attention-locking 'check["verdict"]' | grep -q '^not found' && echo yes)"
finish
