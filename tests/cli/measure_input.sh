#!/bin/bash
# measure_input.sh - errors of headlight measure for texts and maps that it cannot use.
#
# All of these are found before the first token goes through the model.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 22

model=models/demo
t=$scratch/texts
mkdir "$t" "$t/empty"
refused() { # name status pattern argument...
    run measure "$model" "${@:4}" -o "$scratch/profile"
    expect_line "$1" "$2" "^headlight measure: $3"
}

: >"$t/nothing.txt"
refused "an empty text" 3 "$t/nothing.txt: no text in this file, nothing to measure\$" "$t/nothing.txt"
printf 'good\nbad \xff\n' >"$t/bad.txt"
refused "a text that is not UTF-8" 3 "$t/bad.txt: line 2, byte 9: 0xff is not UTF-8\$" "$t/bad.txt"
refused "a folder without files" 3 "$t/empty: no text in this folder .*; 0 other files\\)\$" "$t/empty"
printf '{"text": "fine"}\n[1]\n' >"$t/lines.jsonl"
refused "a line that is no object" 3 "$t/lines.jsonl:2: is an array, wanted an object\$" "$t/lines.jsonl"
printf '{"text": "fine"}\n{"txet": ""}\n' >"$t/lines.jsonl"
refused "a line without text" 3 "$t/lines.jsonl:2: no 'text' and no 'messages' in this line\$" "$t/lines.jsonl"
refused "a field that is not there" 3 "$t/lines.jsonl:1: no 'body' in this line\$" --field body "$t/lines.jsonl"
refused "no such file" 3 "nowhere.txt: No such file or directory\$" nowhere.txt
refused "a pattern without matches" 3 "nowhere/\\*.txt: no such file, and no file matches\$" 'nowhere/*.txt'
mkfifo "$t/pipe"
refused "a pipe" 3 "$t/pipe: is a pipe; give a file" "$t/pipe"
refused "standard input without text" 3 'standard input: no text in this file' -
refused "token types that cannot be" 3 "regular expression '\\(', at" --type 'a=(' "$t/nothing.txt"
refused "a type without an expression" 2 "type 'a': wanted NAME=EXPRESSION\$" --type a "$t/nothing.txt"
printf '[1, 2]\n[3, 4096]\n' >"$t/ids"
refused "ids outside the vocabulary" 3 "$t/ids:2: token 1 is 4096, wanted 0 to 4095\$" --token-ids "$t/ids"
refused "text and ids" 2 'TEXT and --token-ids cannot be combined$' --token-ids "$t/ids" "$t/bad.txt"
refused "no text" 2 "no TEXT given \\('-' is standard input\\)\$"
refused "a part that does not exist" 2 "--part: '5/4' is not I/N with I from 1 to N\$" --part 5/4 "$t/bad.txt"

run measure --attn tests/data/families/llama3/expected.safetensors -o "$scratch/profile"
expect "maps instead of a model" 0 <<END
$scratch/profile: 32 tokens in 1 windows, 1 layers of up to 4 heads
END
cp "$scratch/profile" "$scratch/again"
run measure --attn tests/data/families/llama3/expected.safetensors --threads 1 -o "$scratch/profile"
result "the same maps, the same bytes" "$(cmp -s "$scratch/profile" "$scratch/again" && echo yes)"
run measure --attn nowhere.npy -o "$scratch/profile"
expect "no such maps" 3 <<'END'
headlight measure: nowhere.npy: No such file or directory
END
run measure --attn models/demo/model.safetensors -o "$scratch/profile"
expect_line "no maps in the file" 3 '^headlight measure: models/demo/model.safetensors: '
run measure "$model" --attn x.npy -o "$scratch/profile"
expect "maps and a model" 2 <<'END'
headlight measure: --attn takes the place of MODEL and TEXT; unexpected argument 'models/demo'
Try 'headlight measure --help'.
END
run measure --attn tests/data/families/llama3/expected.safetensors --mask none -o "$scratch/profile"
expect_line "no such mask" 2 "--mask: 'none' is not one of auto\\|causal\\|full"
finish
