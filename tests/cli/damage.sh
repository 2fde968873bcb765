#!/bin/bash
# damage.sh - headlight damage: a scrambled head is found; quantizations; tables and --fail-on.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 13

text=(--text models/text/alice.txt --context 64 --max-tokens 256)
short=(--text models/text/alice.txt --context 32 --max-tokens 128)

# A copy of the demo model with the queries of L5H3 in another order: its c_attn has columns q, k, v.
cp -r models/demo "$scratch/scrambled"
chmod -R u+w "$scratch/scrambled"
python3 - "$scratch/scrambled/model.safetensors" <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
entry = next(value for name, value in header.items() if name.endswith("h.5.attn.c_attn.weight"))
rows, columns = entry["shape"]
begin, end = entry["data_offsets"]
size = (end - begin) // (rows * columns)
d_head = columns // 3 // 8
for row in range(rows):
    at = 8 + n + begin + (row * columns + 3 * d_head) * size
    part = [bytes(data[at + i * size:at + (i + 1) * size]) for i in range(d_head)]
    data[at:at + d_head * size] = b"".join(reversed(part))
open(sys.argv[1], "wb").write(data)
END
run damage models/demo "$scratch/scrambled" "${short[@]}" -n 3
expect_line "the scrambled head is found" 0 '^ *1  L5H3 +5 +3 +0\.[0-9]+ +-?0\.[0-9]+ +0\.[0-9]+ +(0\.9[0-9]+|1\.000) '
run damage models/demo "$scratch/scrambled" "${text[@]}" --json
cp "$scratch/out" "$scratch/found.json"
result "it explains all of it, and heads before it nothing" "$(python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))
heads = {row["name"]: row for row in found["heads"]["rows"]}
whole = found["damage"]["rows"][0]
assert found["heads"]["rows"][0]["name"] == "L5H3"
assert abs(heads["L5H3"]["explained"] / whole["kl"] - 1) < 1e-3, heads["L5H3"]
for name, row in heads.items():
    if row["layer"] < 5 or (row["layer"] == 5 and name != "L5H3"):
        assert row["output_change"] < 1e-6 and abs(row["explained"]) < 1e-6, row
assert heads["L5H3"]["output_change"] > 0.1
assert abs(found["tops"]["rows"][-1]["kl"]) <= whole["kl"]' "$scratch/found.json" && echo yes)"
result "so do the heads of its layer" "$(python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))
part = [row for row in found["layers"]["rows"] if row["layer"] == 5 and row["part"] == "attention"][0]
assert abs(part["share"] - 1) < 1e-3, part
assert found["tops"]["rows"][0]["share"] > 0.999' "$scratch/found.json" && echo yes)"

# The KL is that of eval.
run eval "$scratch/scrambled" models/text/alice.txt --reference models/demo -c 64 -n 256 --json
result "the KL and top-1 are those of eval" "$(python3 -c '
import json, sys
here = json.load(open(sys.argv[1]))["damage"]["rows"][0]
there = json.load(open(sys.argv[2]))["agreement"]
assert abs(here["kl"] / there["kl"] - 1) < 1e-5, (here, there)
assert abs(here["top1"] - there["top1_agreement"]) < 1e-9, (here, there)' "$scratch/found.json" "$scratch/out" && echo yes)"

run damage models/demo models/demo "${short[@]}" --table damage --csv
expect_line "the same model: none" 0 '^0,0,0,1,'
run damage models/demo models/demo --off L5H3 "${short[@]}" --table heads --csv
expect_line "a disabled head is found" 0 '^1,L5H3,5,3,'

# Quantizations: Q8_0 does less than Q4_0.
for type in q8_0 q4_0; do
    "$HEADLIGHT" prune models/demo --count 0 --as gguf --type $type -o "$scratch/$type.gguf" --quiet
done
run damage models/demo "$scratch/q8_0.gguf" "${text[@]}" --fail-on 'kl>0.005' --quiet
expect "Q8_0 passes a gate" 0 </dev/null
run damage models/demo "$scratch/q4_0.gguf" "${text[@]}" --fail-on 'kl>0.005' --fail-on 'top1<0.5' --quiet
expect_line "Q4_0 does not" 1 "^headlight damage: --fail-on kl>0\.005: kl 0\.0[0-9]+, top1 0\.[0-9]+, rise"

run damage models/demo
expect_line "one model" 2 'give REFERENCE and MODEL; got 1'
run damage models/demo models/demo
expect_line "no text" 2 'no --text given'
run damage models/demo models/demo "${text[@]}" --fail-on 'loss>1'
expect_line "what --fail-on is" 2 "'loss>1' is not kl>X, top1<X or rise>X"
run damage models/demo tests/data/families/llama3 "${text[@]}"
expect_line "another shape" 3 'their heads cannot be exchanged'
run damage models/demo models/demo --text models/text/alice.txt -c 1024
expect_line "windows that are too long" 2 'windows of 1024 tokens, wanted 2 to 512'

finish
