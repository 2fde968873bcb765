#!/bin/bash
# needle.sh - headlight needle: tables, the map, JSON, other models, and --fail-on.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 12

few=(--lengths 64,96 --depths 0.5 --samples 4 --rank-samples 2 --random 2)
run needle models/demo "${few[@]}"
expect_line "retrieval heads" 0 '^[0-9]+ of 64 heads retrieve \(score 0\.1 or more\): L7H[34] 0\.[0-9]{3}'
expect_line "a map" 0 '^  0\.50    [0-9]\.[0-9]{2}    [0-9]\.[0-9]{2} $'
expect_line "the verdict" 0 'top heads find the needle: without them the loss rises by [0-9.]+ nats'
run needle models/demo "${few[@]}" --csv --table heads
expect_line "heads as CSV" 0 '^1,L7H[34],7,[34],0\.[0-9]+,0\.[0-9]+,[01](\.[0-9]+)?,true'
run needle models/demo models/text/alice.txt --task facts --lengths 128 --depths 0,1 --samples 2 \
    --rank-samples 1 --random 1 --json
result "JSON has three tables" "$(python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))
assert found["task"] == "facts", found["task"]
assert len(found["conditions"]["rows"]) == 3
assert len(found["cells"]["rows"]) == 6
assert len(found["heads"]["rows"]) == 64' "$scratch/out" && echo yes)"

# Another model on the same texts; and a bound.
run needle models/demo "${few[@]}" --against models/demo-sparse --fail-on 'loss>1' --table conditions
expect_line "the loss is above a bound" 1 'all heads: loss is [0-9.]+, and --fail-on says loss>1'
run needle models/demo "${few[@]}" --against models/demo --fail-on 'rise>0.01' --quiet
expect "the same model is not" 0 </dev/null
run needle models/demo --fail-on 'loss=3'
expect_line "what --fail-on is" 2 "'loss=3' is not loss>X, exact<X or rise>X"
run needle models/demo --lengths 64,x
expect_line "lengths" 2 "'64,x' is not a list of numbers of tokens"
run needle models/demo --task facts
expect_line "facts need a text" 2 'needs a TEXT to hide facts in'
run needle models/demo --lengths 4096
expect_line "longer than the context" 2 'a length of 4096, wanted 2 to 512'
run needle models/demo --rope-factor 2 "${few[@]}"
expect_line "no RoPE in it" 3 'RoPE'

finish
