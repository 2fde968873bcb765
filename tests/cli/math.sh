#!/bin/bash
# math.sh - --math f32|bf16|int8: which results move, by how much, and who says so.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 16

model=models/demo
head -c 3000 models/text/alice.txt >"$scratch/text"
loss() { # MODEL OPTION...
    "$HEADLIGHT" eval "$1" "$scratch/text" --context 128 --json "${@:2}" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["total"]["nats_per_token"])'
}
within() { # a b tolerance: apart, but not further
    python3 -c 'import sys; a, b, t = map(float, sys.argv[1:]); sys.exit(not 0 < abs(a - b) < t)' "$@" && echo yes
}
has_bf16() { "$HEADLIGHT" eval $model "$scratch/text" --max-tokens 16 --math bf16 --quiet 2>"$scratch/why"; }

exact=$(loss $model)
result "f32 is the default" "$([ "$(loss $model --math f32)" = "$exact" ] && echo yes)"
result "int8 is for quantized weights: others are exact" "$([ "$(loss $model --math int8)" = "$exact" ] && echo yes)"
result "HEADLIGHT_MATH has the same names" "$([ "$(HEADLIGHT_MATH=f32 loss $model)" = "$exact" ] && echo yes)"
run eval $model "$scratch/text" --math f16
expect_line "another word" 2 "f32, bf16 or int8|f32\|bf16\|int8"
HEADLIGHT_MATH=f16 run eval $model "$scratch/text"
expect_line "another word in the environment" 2 'HEADLIGHT_MATH is "f16", wanted f32, bf16 or int8'
HEADLIGHT_BACKEND=scalar run eval $model "$scratch/text" --math bf16
expect_line "a back end without bf16 refuses it by name" 3 'math bf16 needs a CPU with AVX-512 BF16'

"$HEADLIGHT" prune $model --count 0 --as gguf --type q8_0 -o "$scratch/q8.gguf" --quiet
quantized=$(loss "$scratch/q8.gguf")
rounded=$(loss "$scratch/q8.gguf" --math int8)
if [ "$rounded" = "$quantized" ]; then # without AVX-512 VNNI, long texts are exact
    skipped "int8: close to the exact loss" "these texts are exact on this CPU"
else
    result "int8: close to the exact loss" "$(within "$rounded" "$quantized" 0.01)"
fi
result "int8: the same on any number of threads" \
    "$([ "$(loss "$scratch/q8.gguf" --math int8 --threads 1)" = "$(loss "$scratch/q8.gguf" --math int8 --threads 3)" ] && echo yes)"

# A text is made token by token: a few rows at a time.  The old spelling is read.
make_text() { "$HEADLIGHT" generate "$scratch/q8.gguf" "He said" -n 24 --quiet "$@"; }
result "generate: --activations int8 is --math int8" "$([ "$(make_text --activations int8)" = "$(make_text --math int8)" ] && echo yes)"
result "generate: --activations exact is --math f32" "$([ "$(make_text --activations exact --math int8)" = "$(make_text)" ] && echo yes)"

# Profiles know their mode.
profile() { "$HEADLIGHT" measure "$scratch/q8.gguf" "$scratch/text" --context 128 --no-probe --quiet -o "$scratch/$1" "${@:2}"; }
setting() { python3 -c '
import json, sys
data = open(sys.argv[1], "rb").read()
print(json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"].get("math", "not there"))' "$1"; }
profile f32.profile
profile int8.profile --math int8
result "f32 is not written, as in older profiles" "$([ "$(setting "$scratch/f32.profile")" = "not there" ] && echo yes)"
result "int8 is" "$([ "$(setting "$scratch/int8.profile")" = int8 ] && echo yes)"
run merge "$scratch/f32.profile" "$scratch/int8.profile" -o "$scratch/both.profile"
expect_line "profiles of different modes do not merge" 3 'measured with different --math \(f32 and int8\)'
run compare "$scratch/f32.profile" "$scratch/int8.profile"
expect_line "compare warns of them" 0 'A was measured with --math f32, B with --math int8'
run compare "$scratch/f32.profile" "$scratch/f32.profile"
result "but not of one mode" "$(grep -q -- --math "$scratch/err" || echo yes)"

if has_bf16; then
    result "bf16: close to the exact loss" "$(within "$(loss $model --math bf16)" "$exact" 0.01)"
else
    result "bf16 is refused by name" "$(grep -q 'AVX-512 BF16' "$scratch/why" && echo yes)"
fi
finish
