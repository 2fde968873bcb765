#!/bin/bash
# rank.sh - headlight rank: tables, CSV, JSON, and the inputs of each ranker.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 31

profile=$scratch/demo.profile
head -c 3000 models/text/alice.txt >"$scratch/text.txt"
"$HEADLIGHT" measure models/demo "$scratch/text.txt" -o "$profile" --context 128 --max-tokens 512 \
    --no-probe --quiet

# A profile alone has output norms, which do better than random; entropy does not, and the output
# says so.
run rank "$profile" --count 3
sed -i -E 's/L[0-9]H[0-9] +[0-9] +[0-9]/HEAD/; s/ +[0-9]\.[0-9]{6}/ N/g; s/N +1 +[34]$/N FIRST/; s/N +[0-9]+ +[0-9]+$/N N N/' "$scratch/out"
expect "the first three" 0 <<'END'
Heads in pruning order

rank  name  layer  head     score  ranker       score_low  score_high  rank_low  rank_high
   1  HEAD N  output-norm N N FIRST
   2  HEAD N  output-norm N N FIRST
   3  HEAD N  output-norm N N N N

ranker          output-norm
score           output norm relative to the layer's mean
order           lowest first
heads           64
interval        Student's t, jackknife over windows
interval level  0.95
interval n      4
END
run rank "$profile" --csv
cp "$scratch/out" "$scratch/default"
expect_line "CSV names the ranker" 0 '^1,L[0-9]H[0-9],[0-9],[0-9],[0-9.]+,output-norm'
run rank "$profile" --csv --by output-norm
result "the default from a profile is output norm" "$(cmp -s "$scratch/out" "$scratch/default" && echo yes)"
run rank "$profile" --json -n 1
expect_line "JSON names it" 0 '^  "ranker": "output-norm",$'
run rank "$profile" --by entropy -n 1
expect_line "entropy: the verdict beside it" 0 '^verdict +In our sweeps, highest entropy first cost more than a random'
run rank --model models/demo --text "$scratch/text.txt" -n 1 -c 64 --max-tokens 128 --csv
expect_line "with texts: gradient" 0 '^1,L[0-9]H[0-9],[0-9],[0-9],[0-9.e-]+,gradient'
run rank --model models/demo
expect_line "neither texts nor a profile" 2 'ranking needs a profile with output norms'

run rank "$profile" --by entropy --csv
sed -i 's/\r$//' "$scratch/out"
cp "$scratch/out" "$scratch/ranked.csv"
expect_line "CSV has names" 0 '^rank,name,layer,head,score,ranker,score_low,score_high,rank_low,rank_high$'
result "CSV has a line for each head" "$([ "$(wc -l <"$scratch/out")" -eq 65 ] && echo yes)"
# The scores are those of show's table, in falling order.
run show "$profile" --table heads --csv
awk -F, 'NR > 1 { print $4 }' "$scratch/out" | tr -d '\r' | sort -gr >"$scratch/scores"
awk -F, 'NR > 1 { print $5 }' "$scratch/ranked.csv" >"$scratch/ranked"
result "entropies, highest first" "$(cmp -s "$scratch/scores" "$scratch/ranked" && echo yes)"
run rank "$profile" --by entropy --csv --order lowest
tail -n +2 "$scratch/out" | tr -d '\r' | cut -d, -f5 | tac >"$scratch/reversed"
result "--order turns it round" "$(cmp -s "$scratch/reversed" "$scratch/ranked" && echo yes)"

for by in normalized entropy-nosink renyi2 output-norm sink random; do
    run rank "$profile" --by $by -n 1
    expect_line "--by $by" 0 "^ranker +$by\$"
done
run rank "$profile" --by random --csv --seed 3
cp "$scratch/out" "$scratch/three"
run rank "$profile" --by random --csv --seed 3
result "a seed is an order" "$(cmp -s "$scratch/out" "$scratch/three" && echo yes)"

run rank --model models/demo --by weight --json -n 1
expect_line "--by weight needs no profile" 0 '^   "score": [0-9.]+,$'

run rank --model models/demo --text "$scratch/text.txt" --by gradient -n 1 -c 64 --max-tokens 128
expect_line "--by gradient: what was done" 0 \
    '^headlight rank: gradient: mean \|dL/dg\| over 2 windows; loss [0-9.]+ nats per token$'
expect_line "and a score" 0 '^   1  L[0-9]H[0-9] +[0-9] +[0-9]  0\.[0-9]{6}  gradient +- +- +- +-$'
run rank --model models/demo --text "$scratch/text.txt" --by entropy-gradient -n 1 -c 64 \
    --max-tokens 128
expect_line "a profile measured on the way" 0 '^order +highest first$'

run rank --model tests/data/families/llama3 --by weight --groups --csv
awk -F, 'NR > 1 { print $3 "/" $7 }' "$scratch/out" | uniq >"$scratch/groups"
result "--groups: heads of a KV head side by side" "$([ "$(wc -l <"$scratch/groups")" -eq 6 ] && echo yes)"
run rank "$profile" --groups
expect_line "which the model knows" 2 '--groups needs --model$'

run rank "$profile" --by gradient
expect_line "gradients need a model" 2 'ranking by gradient needs gradients, so a model'
run rank "$profile" --by entropi
expect_line "a ranker's name, almost" 2 "no ranker is called 'entropi' \(did you mean 'entropy'\?\)"
run rank --by list
expect_line "--by list" 0 '^output-norm +output norm relative to'
run rank
expect_line "nothing" 2 '^headlight rank: give a PROFILE, or --model and --text$'
run rank "$profile" --model tests/data/families/llama3
expect_line "a profile of another model" 3 'the profile has 8 layers, the model 3$'
run rank --model models/demo --by ablation
expect_line "ablation needs a text" 2 "needs --model and --text, to disable each head in turn"
run rank --model models/demo --by ablation --text models/text/alice.txt --max-tokens 64 -c 32 -n 2 --csv
expect_line "ablation" 0 '^1,L[0-7]H[0-7],.*-?[0-9]' 
finish
