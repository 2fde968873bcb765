#!/bin/bash
# The output of the C programs in examples/; tests/python tests those in Python.
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
examples=${BUILD:-build}/examples
plan 15

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
matches "confidence: twelve tokens" '^ *[0-9]+\.[0-9] +[0-9]\.[0-9]{2} +[0-9]\.[0-9]{2}  \|' 12

example logits models/demo "$scratch/logits.npy" 33 76 531
bytes=$(stat -c %s "$scratch/logits.npy")
result "logits: an array of 3 x 4096 floats" \
    "$([ $status = 0 ] && [ "$bytes" = $((128 + 3 * 4096 * 4)) ] && echo yes)"

example steps models/demo "Alice was beginning to get very"
matches "steps: twelve tokens, six of them after a rewind" '^ +(8|9|1[0-3])  blocks\.7\.attn\.hook_entropy [0-9.]+  \|' 12
result "steps: what is held" "$(grep -qE '^the session held [0-9]+ KiB, 8192 of them' "$scratch/out" && echo yes)"

example steer models/demo "Alice was beginning to get very tired of sitting by her sister" " said the Queen" \
    "$scratch/text.trace"
matches "steer: unlikely tokens are drawn again" '^token [0-9]+: [0-4]\.[0-9]%, once more$' \
    "$(grep -c . "$scratch/out")"
example spikes "$scratch/text.trace"
matches "spikes: 24 new tokens" '^generated  L[0-7]H[0-7] +[0-9.]+% +([-0-9.]+|-?nan)(  spike)?$' 24
result "spikes: the words stand after eight of them" \
    "$([ "$(grep -v ^prompt "$scratch/out" | grep -n ^context | head -1 | cut -d: -f1)" = 9 ] && echo yes)"

"$examples/cost" models/demo 0.1 <models/text/alice.txt >"$scratch/out" 2>"$scratch/err"
status=$?
matches "cost: six heads together and one at a time" \
    '^without (L[0-7]H[0-7],?){6}: [34]\.[0-9]+ nats|^one at a time they cost -?0\.0[0-9]+ nats in all$' 2

run measure models/demo models/text/alice.txt --max-tokens 256 -o "$scratch/a.profile"
"$examples/alike" <"$scratch/a.profile" >"$scratch/out.ppm"
result "alike: a picture of 8 x 9 x 8 by 8 x 8 points" \
    "$([ "$(head -1 "$scratch/out.ppm")" = "P6 576 64 255" ] &&
        [ "$(stat -c %s "$scratch/out.ppm")" = $((14 + 576 * 64 * 3)) ] && echo yes)"

"$examples/pieces" Ġthe '<|endoftext|>' nonesuch <models/demo/tokenizer.json >"$scratch/out" 2>"$scratch/err"
status=$?
expect "pieces: known and unknown ones" 0 <<'END'
BPE, 4096 pieces, chats plain
Ġthe: 261, normal
<|endoftext|>: 0, special
nonesuch: no such piece
END
finish
