#!/bin/bash
# head.sh - headlight head: the numbers are those of `show`, examples those of `tokens`, and the loss that
# of `eval`.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 15

profile=$scratch/p.profile
"$HEADLIGHT" measure models/demo models/text/alice.txt -o "$profile" --context 128 --max-tokens 1536 \
    --quiet --threads 1

run head "$profile" L7H3
expect_line "the type, by its rule" 0 '^L7H3  induction head'
expect_line "what the rule compares" 0 '^induction score .*: 0\.[0-9]+, threshold 0\.40$'
expect_line "similar heads" 0 '^similar heads        L7H[0-9] 0\.[0-9]+ '

run head "$profile" L8H0
expect_line "a layer that does not exist" 2 'layer 8: the profile has the layers 0 to 7'
run head "$profile" L0H8
expect_line "a head that does not exist" 2 'head 8: layer 0 has 8 heads, counted from 0'
run head "$profile" L7
expect_line "a layer is no head" 2 "'L7' is not a head; write L7H3"
run head "$profile"
expect_line "a head is needed" 2 'give a PROFILE and a head'
run head "$profile" L7H3 --prompt text
expect_line "a prompt needs a model" 2 'need --model'

# The numbers of the table of heads, and ranks counted anew.
"$HEADLIGHT" head "$profile" L3H2 --json >"$scratch/card"
"$HEADLIGHT" show "$profile" --table heads --json >"$scratch/heads"
result "numbers and ranks are those of the table of heads" "$(
    python3 - "$scratch/card" "$scratch/heads" <<'PYTHON'
import json, sys
card, heads = (json.load(open(path)) for path in sys.argv[1:])
rows = heads["rows"]
own = next(row for row in rows if (row["layer"], row["head"]) == (3, 2))
for number in card["tables"]["numbers"]["rows"]:
    name = number["number"]
    if name not in own:
        continue
    assert abs(number["value"] - own[name]) <= 1e-12 * abs(own[name]), name
    assert number["rank"] == 1 + sum(row[name] < own[name] for row in rows), name
    assert number["heads"] == len(rows)
    if name == "entropy":
        assert abs(number["low"] - own["entropy_low"]) < 1e-12 and abs(number["high"] - own["entropy_high"]) < 1e-12
print("yes")
PYTHON
)"

# Examples: the largest weights of whole rows, which `tokens` prints.
prompt='The old man and the sea. The old man and the boy looked out at the sea, and the old man said'
"$HEADLIGHT" head "$profile" L7H3 --model models/demo --prompt "$prompt" --json >"$scratch/seen"
"$HEADLIGHT" tokens models/demo "$prompt" --inset L7H3 --json >"$scratch/maps"
result "examples are the clearest rows" "$(
    python3 - "$scratch/seen" "$scratch/maps" <<'PYTHON'
import json, sys
seen, view = (json.load(open(path)) for path in sys.argv[1:])
rows = next(one for one in view["maps"] if one["name"] == "L7H3")["attention"]
ids = [token["id"] for token in view["tokens"]]
pairs = {}
for row in range(7, len(rows)):
    key = max(range(1, row + 1), key=lambda key: rows[row][key])
    pair = ids[row], ids[key]
    pairs[pair] = max(pairs.get(pair, 0.0), rows[row][key])
wanted = sorted(pairs.values(), reverse=True)[:3]
found = [one["attention"] for one in seen["examples"]]
assert len(found) == 3 and all(abs(a - b) < 2e-6 for a, b in zip(found, wanted)), (found, wanted)
print("yes")
PYTHON
)"

# The loss without the head: the difference of two evaluations.
head -c 6000 models/text/speech-1960.txt >"$scratch/text"
"$HEADLIGHT" head "$profile" L7H3 --model models/demo --text "$scratch/text" --json >"$scratch/cost"
for off in "" "--off L7H3"; do
    # shellcheck disable=SC2086 # an option and its value
    "$HEADLIGHT" eval models/demo "$scratch/text" --context 512 --quiet --json $off
done >"$scratch/losses"
result "the loss without it is what eval --off says" "$(
    python3 - "$scratch/cost" "$scratch/losses" <<'PYTHON'
import json, sys
loss = json.load(open(sys.argv[1]))["loss"]
text, at, totals = open(sys.argv[2]).read(), 0, []
while text[at:].strip():
    value, used = json.JSONDecoder().raw_decode(text[at:].lstrip())
    at += len(text[at:]) - len(text[at:].lstrip()) + used
    totals.append(value["total"]["nats_per_token"])
assert abs(loss["nll"] - totals[0]) < 1e-6 and abs(loss["nll_without"] - totals[1]) < 1e-6, (loss, totals)
assert abs(loss["rise"] - (totals[1] - totals[0])) < 1e-6
print("yes")
PYTHON
)"
run head "$profile" L7H3 --model models/demo --text "$scratch/text"
expect_line "the loss in words" 0 '^loss without it      [+-]0\.[0-9]{4} nats per token'
expect_line "examples in words" 0 '^  0\.[0-9]{3}  .*\[.*>.*<'
run head "$profile" L7H3 --model models/demo --text "$scratch/text" --no-loss
result "without --no-loss alone" "$(grep -q 'loss without' "$scratch/out" || echo yes)"
run head "$profile" L0H0 --model models/demo-sparse --prompt "$prompt" --no-loss
expect_line "another model is said to be one" 0 'not that of the profile'
