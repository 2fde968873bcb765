#!/bin/bash
# report.sh - headlight report: pages with all parts, and inputs that do not fit together.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 29

model=models/demo
small=tests/data/families/llama3
text=$scratch/text.txt
head -c 1500 models/text/alice.txt | iconv -c -f UTF-8 -t ASCII >"$text"
fast=(--context 64 --threads 1 --no-probe --quiet)
"$HEADLIGHT" measure $model "$text" -o "$scratch/a.profile" "${fast[@]}"
"$HEADLIGHT" measure models/demo-sparse "$text" -o "$scratch/b.profile" "${fast[@]}"
seq -s ' ' 1 40 | sed 's/.*/[&]/; s/ /, /g' >"$scratch/ids.jsonl"
"$HEADLIGHT" measure $small --token-ids "$scratch/ids.jsonl" -o "$scratch/small.profile" "${fast[@]}"
"$HEADLIGHT" generate $model "Once upon a time" -n 24 --trace "$scratch/t.trace" --threads 1 --quiet >/dev/null
"$HEADLIGHT" compare "$scratch/a.profile" "$scratch/b.profile" --json >"$scratch/c.json"

# Checks the page's data with a Python expression of `d`.
holds() { # file expression
    python3 - "$1" "$2" <<'END' 2>&1 | grep -qx True && echo yes
import base64, json, re, struct, sys
page = open(sys.argv[1], encoding="utf-8").read()
data = re.findall(r'<script type="application/json" id="headlight-data">(.*?)</script>', page, re.S)
assert len(data) == 1
d = json.loads(data[0])
def f32(array): raw = base64.b64decode(array["data"]); return struct.unpack("<%df" % (len(raw) // 4), raw)
print(eval(sys.argv[2]))
END
}

run report "$scratch/a.profile" -o "$scratch/one.html"
expect_line "one profile" 0 "^$scratch/one.html: 1 profile, 0\.[0-9]+ MB$"
result "which is there" "$(holds "$scratch/one.html" 'd["profiles"][0]["name"] == "a.profile" and d["profiles"][0]["means"]["entropy"]["shape"] == [8, 8]')"
"$HEADLIGHT" show "$scratch/a.profile" --table heads --json >"$scratch/heads.json"
result "with the numbers of show" "$(holds "$scratch/one.html" "max(abs(x - r['entropy']) for x, r in zip(f32(d['profiles'][0]['means']['entropy']), json.load(open('$scratch/heads.json'))['rows'])) < 1e-6")"
run report "$scratch/a.profile" -o "$scratch/again.html" --quiet
expect "again, and quietly" 0 </dev/null
result "to the same bytes" "$(cmp -s "$scratch/one.html" "$scratch/again.html" && echo yes)"

run report "$scratch/a.profile" "$scratch/b.profile" --trace "$scratch/t.trace" --model $model \
    --prompt 'say </script> "now"' --title 'A & B <i>' -o "$scratch/all.html" --threads 1 --json
expect_line "everything at once" 0 '"profiles": 2, "tokens": [0-9]+, "traced": [0-9]+'
result "compared, traced, with maps and lens" "$(holds "$scratch/all.html" 'len(d["profiles"]) == 2 and d["compare"]["names"] == ["a.profile", "b.profile"] and len(d["tokens"]["maps"]["heads"]) == 64 and len(d["lens"]["top"]) == 9 and 2 in d["trace"]["kinds"] and d["title"] == "A & B <i>"')"
result "the prompt stays in its element" "$(holds "$scratch/all.html" '"".join(d["tokens"]["texts"]).replace("·", " ") == "say </script> \"now\""')"
result "the model adds what profiles lack" "$(holds "$scratch/all.html" 'd["profiles"][0]["model"]["d_model"] == 256 and "d_model" not in d["profiles"][1]["model"]')"
run report "$scratch/b.profile" --model $model --prompt x -o "$scratch/other.html" --threads 1
expect_line "a model that no profile is of is said to be one" 0 '^headlight report: models/demo is not the model of the profile'
result "and adds nothing" "$(holds "$scratch/other.html" '"d_model" not in d["profiles"][0]["model"] and "tokens" in d')"
run report --compare "$scratch/c.json" -o "$scratch/c.html" --quiet
expect "a comparison alone" 0 </dev/null
result "as compare has it" "$(holds "$scratch/c.html" "d['compare']['significant'] == json.load(open('$scratch/c.json'))['significant'] and d['profiles'] == []")"

# A prompt that is too long for all maps: the page has that of the named head, and none of the mean.
printf 'a b c d %.0s' $(seq 500) >"$scratch/long.txt"
run report --model $model --prompt-file "$scratch/long.txt" --beyond -o "$scratch/long.html" --heads L3H1
expect_line "more tokens than the model knows" 4 'a context of 2001 tokens exceeds the model'
head -c 900 "$scratch/long.txt" >"$scratch/middle.txt"
run report --model $model --prompt-file "$scratch/middle.txt" -o "$scratch/long.html" --heads L3H1,L5 --threads 1
result "named heads and the mean of a long prompt" "$(holds "$scratch/long.html" 'd["tokens"]["maps"]["heads"] == [[3, 1]] + [[5, h] for h in range(8)] and d["tokens"]["mean"]["shape"] == d["tokens"]["maps"]["data"]["shape"][1:]')"

seq -s ' ' 0 4095 | tr ' ' '\n' | awk '{ print $1 % 60 }' >"$scratch/ids.txt"
run report --model $small --ids --prompt-file "$scratch/ids.txt" --beyond --heads L1H2 \
    -o "$scratch/4096.html"
expect_line "4096 tokens" 0 ': 0 profiles, a prompt of 4096 tokens, 11\.[0-9]+ MB$'
result "one map and no mean" "$(holds "$scratch/4096.html" 'd["tokens"]["maps"]["data"]["shape"] == [1, 4096 * 4097 // 2] and "mean" not in d["tokens"] and len(d["lens"]["texts"]) == 512 and d["lens"]["first"] == 3584')"

# ------------------------------------------------------------- what does not fit
run report "$scratch/a.profile"
expect_line "no file to write" 2 '-o X.html is missing'
run report -o "$scratch/x.html"
expect_line "nothing to write" 2 'give a PROFILE'
run report "$scratch/a.profile" --model $model -o "$scratch/x.html"
expect_line "a model without a prompt" 2 '--model needs --prompt'
run report "$scratch/a.profile" --heads L1H1 -o "$scratch/x.html"
expect_line "heads without a model" 2 '^headlight report: --heads needs --model'
run report "$scratch/none.profile" -o "$scratch/x.html"
expect_line "a profile that is not there" 3 'none.profile: No such file'
run report "$scratch/a.profile" "$scratch/small.profile" -o "$scratch/x.html"
expect_line "a profile of another shape" 3 '^headlight report: small.profile has 3 layers of up to 4 heads, but a.profile has 8 of up to 8$'
run report "$scratch/small.profile" --trace "$scratch/t.trace" -o "$scratch/x.html"
expect_line "a trace of another model" 3 '^headlight report: the trace has 8 layers of up to 8 heads, but small.profile has 3 of up to 4$'
run report "$scratch/small.profile" --model $model --prompt x -o "$scratch/x.html"
expect_line "another model" 3 '^headlight report: the model of the prompt has 8 layers'
run report "$scratch/a.profile" --sweep "$scratch/c.json" -o "$scratch/x.html"
expect_line "a comparison is no sweep" 3 "c.json: has no tables.points: not what 'headlight sweep --json' prints"
run report "$scratch/a.profile" --trace "$scratch/a.profile" -o "$scratch/x.html"
expect_line "a profile is no trace" 3 'a.profile: '
run report "$scratch/a.profile" -o "$scratch/none/x.html"
expect_line "a folder that is not there" 3 'none/x.html'
result "and nothing is left of any" "$([ ! -e "$scratch/x.html" ] && echo yes)"
finish
