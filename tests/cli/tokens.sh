#!/bin/bash
# tokens.sh - headlight tokens: numbers, pictures checked with other software, and invalid input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 31

words='The old man looked out at the sea, and said that the sea was calm.'

run tokens models/demo "$words" --layer 3 --head 1 --color never
expect_line "a map in the terminal" 0 '^   5 ·at +09 01 02 82 '
run tokens models/demo "$words" --heads L0H1,l3 --color 256
expect_line "of chosen heads, in color" 0 '; mean of 9 chosen heads$'
run tokens models/demo '' --color never
expect_line "an empty prompt is where texts begin" 0 '^   0\*<\|endoftext… +99 +0.00$'

# Rows have one number per visible key, sum to 1, and have the given entropy.
run tokens models/demo "$words" --layer 2 --inset L0H0,L7H7 --json
if python3 - "$scratch/out" <<'END'; then ok=yes; else ok=no; fi
import json, math, sys
view = json.load(open(sys.argv[1]))
n = len(view["tokens"])
names = [found["name"] for found in view["maps"]]
print("#", n, names)
assert names == ["L2, mean of 8 heads", "L0H0", "L7H7"]
assert view["tokens"][1] == {"id": 864, "text": "·old"}
for found in view["maps"]:
    assert [len(row) for row in found["attention"]] == list(range(1, n + 1))
    for row, entropy in zip(found["attention"], found["entropy"]):
        assert abs(sum(row) - 1) < 1e-5
        if found["heads"] == 1:
            assert abs(-sum(p * math.log(p) for p in row if p > 0) - entropy) < 1e-4
END
result "numbers hang together" $ok

for theme in light dark; do
    run tokens models/demo "$words" --zoom 3:9 --inset L3H1,L5H0 --note 'Look & <see>@7,3' \
        --theme $theme -o "$scratch/$theme.svg"
    expect_line "a picture on a $theme page" 0 "$theme.svg: mean of all 64 heads, 17 tokens\$"
    if check_svg "$scratch/$theme.svg" ·old ·looked 'Look & <see>' L3H1 L5H0 'Row entropy (nats)'; then
        ok=yes
    else
        ok=no
    fi
    result "it is XML with its labels" $ok
done

run tokens models/demo "$words" --layer 1 --head 2 --width 360 --title 'A <b>' -o "$scratch/map.pdf"
pages=$(pdfinfo "$scratch/map.pdf" | awk '/^Pages:/ { print $2 }')
width=$(pdfinfo "$scratch/map.pdf" | awk '/^Page size:/ { print $3 }')
result "a PDF has one page of the width asked for" "$([ "$pages $width" = "1 360" ] && echo yes)"
result "it has its fonts in it" \
    "$(pdffonts "$scratch/map.pdf" | awk 'NR > 2 { n++; embedded += $(NF - 4) == "yes" } END { if (n > 0 && n == embedded) print "yes" }')"
pdftotext -layout "$scratch/map.pdf" "$scratch/text"
result "its labels are text" \
    "$(grep -qF 'A <b>' "$scratch/text" && grep -q '·looked' "$scratch/text" && echo yes)"

# From a file, from standard input and as ids, the picture is the same.
printf '%s\n' "$words" >"$scratch/words"
"$HEADLIGHT" tokens models/demo "$words" --quiet -o "$scratch/a.svg"
"$HEADLIGHT" tokens models/demo --file "$scratch/words" --quiet -o "$scratch/b.svg"
"$HEADLIGHT" tokens models/demo --quiet -o "$scratch/c.svg" <"$scratch/words"
ids=$("$HEADLIGHT" tokens models/demo "$words" --json |
    python3 -c 'import json, sys; print(*(token["id"] for token in json.load(sys.stdin)["tokens"]))')
"$HEADLIGHT" tokens models/demo --ids "$ids" --quiet --threads 1 -o "$scratch/d.svg"
result "a file is as good as an argument" "$(cmp -s "$scratch/a.svg" "$scratch/b.svg" && echo yes)"
result "so is standard input" "$(cmp -s "$scratch/a.svg" "$scratch/c.svg" && echo yes)"
result "so are ids, on any number of threads" "$(cmp -s "$scratch/a.svg" "$scratch/d.svg" && echo yes)"
run tokens tests/data/families/llama3 --ids '5, 17 3' --color never
expect_line "ids need no tokenizer" 0 '^   1 #17 +'

cat >"$scratch/fonts.conf" <<END
<?xml version="1.0"?>
<fontconfig><dir>$scratch/none</dir><cachedir>$scratch/cache</cachedir></fontconfig>
END
FONTCONFIG_FILE=$scratch/fonts.conf "$HEADLIGHT" tokens models/demo "$words" -o "$scratch/x.png" \
    >"$scratch/out" 2>"$scratch/err"
status=$?
expect_line "no font at all" 3 'no font is installed'

# With a font that lacks some characters there is still a picture, with a warning.
liberation=$(fc-list 'Liberation Sans' file 2>/dev/null | head -1)
sed -i "s|<dir>.*</dir>|<dir>$(dirname "${liberation%%:*}")</dir>|" "$scratch/fonts.conf"
FONTCONFIG_FILE=$scratch/fonts.conf "$HEADLIGHT" tokens models/demo "$words" --title $'\u4f60\u597d' \
    -o "$scratch/x.png" >"$scratch/out" 2>"$scratch/err"
status=$?
expect_line "two characters are missing" 0 'x.png: no installed font has 2 of its characters; boxes with their codes'

run tokens models/demo "$words" --head 3
expect_line "a head of which layer" 2 'needs --layer'
run tokens models/demo "$words" --layer 8
expect_line "no such layer" 2 'no layer 8: the model has 8'
run tokens models/demo "$words" --heads L0H8
expect_line "no such head" 2 'no head 8 in layer 0, which has 8'
run tokens models/demo "$words" --heads L0H1,7
expect_line "no head at all" 2 "'7' is not a list of heads"
run tokens models/demo "$words" --zoom 9:40 -o "$scratch/x.svg"
expect_line "a span past the end" 2 'zoom 9:40: wanted tokens A:B with 0 <= A < B <= 17'
run tokens models/demo "$words" --note 'nowhere' -o "$scratch/x.svg"
expect_line "a note without a place" 2 'is not TEXT@ROW,COLUMN'
run tokens models/demo --ids '5 x'
expect_line "ids that are none" 3 "'x' is not a token id"
run tokens models/demo --ids '5 17 4096'
expect_line "ids that the model lacks" 3 'the prompt: token 2 has the id 4096; the model.s ids are 0 to 4095$'
printf '5 17 4096 3' >"$scratch/ids"
run tokens models/demo --ids --file "$scratch/ids"
expect_line "in a file, which is named" 3 "$scratch/ids: token 2 has the id 4096; the model.s ids are 0 to 4095\$"

# A tokenizer with more tokens than the model.
sed 's/"added_tokens": *\[/&{"id":9999,"content":"sea","special":false,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},/' \
    models/demo/tokenizer.json >"$scratch/tokenizer.json"
printf '%s\n' "$words" >"$scratch/words"
for command in tokens lens generate; do
    run $command models/demo "$words" --tokenizer "$scratch/tokenizer.json"
    expect_line "$command: a tokenizer of another model" 3 \
        "tokenizer.json: the tokenizer gives id 9999, but the model has only 4096 tokens"
done
run eval models/demo "$scratch/words" --tokenizer "$scratch/tokenizer.json"
expect_line "eval: a tokenizer of another model" 3 \
    "tokenizer.json: the tokenizer gives id 9999, but the model has only 4096 tokens"
run tokens models/demo "$words" -o "$scratch/x.gif"
expect_line "an unknown ending" 2 'must end in .svg, .png or .pdf'

finish
