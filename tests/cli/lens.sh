#!/bin/bash
# lens.sh - headlight lens: numbers, pictures checked with other software, and invalid input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 13

words='The old man looked out at the sea, and said that the sea was calm.'

run lens models/demo "$words" --zoom 4:8 --color never
expect_line "a lens in the terminal" 0 '^   7  ,  +3\.7>·the  +2\.4 ·door  +5\.3>,  +2\.5$'
result "what comes next is the last layer's" "$(
    "$HEADLIGHT" lens models/demo "$words" --json |
        python3 -c '
import json, math, sys
view = json.load(sys.stdin)
n = len(view["tokens"])
assert view["vocabulary"] == 4096 and view["first"] == 0 and len(view["lens"]) == 9
assert [row["layer"] for row in view["lens"]] == [None] + list(range(8))
for row in view["lens"]:
    assert len(row["top"]) == len(row["text"]) == len(row["entropy"]) == n
    assert all(-1e-6 <= entropy <= math.log(4096) for entropy in row["entropy"])
print(view["lens"][-1]["text"][-1], end="")' >"$scratch/next" &&
        "$HEADLIGHT" generate models/demo "$words" -n 1 --json |
        python3 -c '
import json, sys
text = json.load(sys.stdin)["text"].replace(" ", "·").replace("\n", "⏎")
assert text == open(sys.argv[1]).read(), text
print("yes")' "$scratch/next"
)"

for theme in light dark; do
    run lens models/demo "$words" --theme $theme -o "$scratch/$theme.svg"
    expect_line "a picture on a $theme page" 0 "$theme.svg: 8 layers, 17 tokens\$"
    if check_svg "$scratch/$theme.svg" ·looked ·door 'Entropy (nats)' Layer 8 10; then ok=yes; else ok=no; fi
    result "it is XML with its labels" $ok
done

run lens models/demo "$words" --width 600 -o "$scratch/lens.pdf"
pages=$(pdfinfo "$scratch/lens.pdf" | awk '/^Pages:/ { print $2 }')
width=$(pdfinfo "$scratch/lens.pdf" | awk '/^Page size:/ { print $3 }')
result "a PDF has one page of the width asked for" "$([ "$pages $width" = "1 600" ] && echo yes)"
result "it has its fonts in it" \
    "$(pdffonts "$scratch/lens.pdf" | awk 'NR > 2 { n++; embedded += $(NF - 4) == "yes" } END { if (n > 0 && n == embedded) print "yes" }')"
pdftotext -layout "$scratch/lens.pdf" "$scratch/text"
result "its words are text" "$(grep -q '·door' "$scratch/text" && echo yes)"

run lens models/demo '' --color never
expect_line "an empty prompt is where texts begin" 0 '^     \*<\|endoftext\|>'
run lens models/demo "$words" --zoom 20:30
expect_line "a span past the end" 2 'zoom 20:30: wanted tokens A:B with 0 <= A < B <= 17'
run lens models/demo -f models/text/alice.txt -o "$scratch/x.svg"
expect_line "a text that is too long" 4 "46870 tokens; at most 8192"
head -c 1400 models/text/alice.txt >"$scratch/long"
run lens models/demo -f "$scratch/long" --width 240 -o "$scratch/x.svg"
expect_line "a text past the page" 4 'do not fit on a page 240 points wide'

finish
