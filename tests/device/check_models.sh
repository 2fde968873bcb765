#!/bin/bash
# check_models.sh - whole models on a device, against results of other software.
#
#     tests/device/check_models.sh [GOLDEN] [DEVICE]
#
# GOLDEN holds families/NAME/expected.safetensors (../shared/golden); DEVICE is cuda.  Every family
# runs as a whole, in chunks and one token at a time in f32, where all errors must be within the
# tolerances of `headlight verify`, as must those of the GGUF files and of the demo models' rows;
# then in bf16 and f16, whose errors are printed.  HEADLIGHT names the program.  Continues after a
# failure; the exit status is then 1.
set -u

golden=${1:-../shared/golden}
device=${2:-cuda}
headlight=${HEADLIGHT:-build/headlight}
failures=0

# With a device the CPU's back end does not matter, so one is enough.
verify() {
    HEADLIGHT_DEVICE=$device:$1 timeout 300 "$headlight" verify --backend scalar "${@:2}" 2>&1
}

# check NAME OPTIONS...: verifies in f32, within the tolerances
check() {
    local name=$1 output
    shift
    if output=$(verify f32 "$@"); then
        echo "ok      $name: $(printf '%s\n' "$output" | tail -n 1)"
    else
        failures=$((failures + 1))
        echo "FAILED  $name"
        printf '%s\n' "$output" | grep -vE ' ok$|^$' | sed 's/^/        /'
    fi
}

# errors TYPE MODEL...: prints the errors of every output, one line per model
errors() {
    verify "$1" --verbose "${@:2}" | awk -v type="$1" '
        function flush() { if (name != "") print type " " name line; line = "" }
        / tolerance / { flush(); name = $1 }
        / (ok|FAIL)$/ { for (i = 2; i < NF; i++) if ($i ~ /e[-+]/) value = $i
                        sub("!", "", value); line = line " " $1 "=" value }
        /^headlight/  { print }
        END { flush() }'
}

families=("$golden"/families/*/)
check "families as a whole" "${families[@]}"
check "families in chunks of 5" --chunk 5 "${families[@]}"
check "families token by token" --decode "${families[@]}"
for model in "$golden"/gguf/*.gguf; do
    expected=$golden/families/$(basename "$model" .gguf)/expected.safetensors
    if [ ! -f "$model" ] || [ ! -f "$expected" ]; then continue; fi
    [ "$(basename "$model")" != gemma2.gguf ] || continue # the format lacks its scale of scores
    check "$(basename "$model")" --expected "$expected" "$model"
done
check "demo models" models/demo models/demo-sparse
errors bf16 "${families[@]}"
errors f16 "${families[@]}"
echo "$failures failures"
[ "$failures" -eq 0 ]
