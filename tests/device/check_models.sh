#!/bin/bash
# check_models.sh - whole models on a device against what others' software computed.
#
#     tests/device/check_models.sh [GOLDEN] [DEVICE]
#
# GOLDEN holds families/NAME/expected.safetensors (../shared/golden), DEVICE is cuda.  Every family
# runs as a whole, in chunks and a token at a time in f32, where all must be within the tolerances
# of `headlight verify`; then in bf16 and f16, whose errors are printed.  The demo models' fused rows
# are compared with the same rows in double.  HEADLIGHT names the program.  Goes on after a
# failure; exit status 1 if there was any.
set -u

golden=${1:-../shared/golden}
device=${2:-cuda}
headlight=${HEADLIGHT:-build/headlight}
failures=0

# check NAME OPTIONS...: in f32, within tolerance
check() {
    local name=$1 output
    shift
    if output=$(HEADLIGHT_DEVICE=$device:f32 timeout 120 "$headlight" verify --backend "$backend" "$@" 2>&1); then
        echo "ok      $name"
    else
        failures=$((failures + 1))
        echo "FAILED  $name"
        printf '%s\n' "$output" | grep -vE ' ok$' | sed 's/^/        /'
    fi
}

# errors TYPE MODEL: of each output, in a line
errors() {
    HEADLIGHT_DEVICE=$device:$1 timeout 120 "$headlight" verify --backend "$backend" "$2" 2>&1 |
        awk -v type="$1" '
            /tolerance/ { name = $1 }
            / (ok|FAIL)$/ { for (i = 2; i <= NF; i++) if ($i ~ /e[-+]/) value = $i
                            sub("!", "", value); line = line " " $1 "=" value }
            END { print "        " type " " name line }'
}

# The device does the work whatever the back end; one of them is enough.
backend=scalar
for model in "$golden"/families/*/; do
    [ -f "$model/expected.safetensors" ] || continue
    name=$(basename "$model")
    check "$name" "$model"
    check "$name in chunks of 5" --chunk 5 "$model"
    check "$name token by token" --decode "$model"
    errors bf16 "$model"
    errors f16 "$model"
done
for model in "$golden"/gguf/*.gguf; do
    expected=$golden/families/$(basename "$model" .gguf)/expected.safetensors
    [ -f "$model" ] && [ -f "$expected" ] || continue
    check "$(basename "$model")" --expected "$expected" "$model"
done
for model in models/*/; do
    [ -f "$model/config.json" ] && check "$(basename "$model")" "$model"
done
echo "$failures failures"
[ "$failures" -eq 0 ]
