#!/bin/bash
# The programs of examples/ in C: what they print.  Those in Python are tested by tests/python.
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
examples=${BUILD:-build}/examples
plan 7

example() { # name arguments
    "$examples/$1" "${@:2}" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
}
matches() { # name expression n
    result "$1" "$([ $status = 0 ] && [ "$(grep -cE "$2" "$scratch/out")" = "$3" ] && echo yes)"
}

example attention
expect "attention: three heads, ever sharper" 0 <<'END'
head  entropy  keys looked at  most on      output
H0    2.079    8.00            0.125 (key 0)  3.500
H1    1.639    5.15            0.514 (key 5)  4.166
H2    0.000    1.00            1.000 (key 5)  5.000
END

example sharpen
matches "sharpen: the loss falls from above 5 to below 0.001" '^step +0  loss [5-9]|^step 60  loss 0\.000' 2

example heads models/demo models/text/alice.txt
matches "heads: three and three, in order" '^(sharpest|flattest)  L[0-7]H[0-7]  [0-9.]+ nats$' 6
result "heads: by entropy" "$(grep -o '[0-9.]* nats' "$scratch/out" | sort -c -n && echo yes)"

example heads models/demo nowhere.txt
result "heads: a text that is not there is named" \
    "$([ $status = 3 ] && grep -q nowhere.txt "$scratch/err" && echo yes)"

example confidence models/demo "Alice was"
matches "confidence: twelve tokens" '^ *[0-9.]+%  [0-9.]+ nats  attention [0-9.]+ nats  \|' 12

example logits models/demo "$scratch/logits.npy" 33 76 531
bytes=$(stat -c %s "$scratch/logits.npy")
result "logits: an array of 3 x 4096 floats" \
    "$([ $status = 0 ] && [ "$bytes" = $((128 + 3 * 4096 * 4)) ] && echo yes)"
finish
