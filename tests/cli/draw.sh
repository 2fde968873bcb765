#!/bin/bash
# draw.sh - figures of a profile, checked with other software: XML, PDF pages and fonts, labels.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 33

profile=$scratch/demo.profile
"$HEADLIGHT" measure models/demo models/text/alice.txt -o "$profile" --context 64 --max-tokens 512 \
    --quiet --threads 1 --no-probe

run draw --figure list
expect_line "figures have names" 0 '^heatmap +entropy of every head'

# Checks that a figure is well-formed, has a title for each of 64 heads, and has these words as
# text.
check_figure() { # file word...
    python3 - "$@" <<'END'
import sys
import xml.etree.ElementTree as ElementTree
space = "{http://www.w3.org/2000/svg}"
root = ElementTree.parse(sys.argv[1]).getroot()
texts = [text.text for text in root.iter(space + "text")]
missing = [word for word in sys.argv[2:] if not any(word in text for text in texts)]
titles = [title.text for title in root.iter(space + "title")]
heads = {title.split()[0] for title in titles if title.startswith("L") and "H" in title}
print("# missing:", missing, "heads:", len(heads))
sys.exit(1 if missing or ("Head" in sys.argv[2:] and len(heads) != 64) else 0)
END
}

for figure in heatmap layers variance positions histograms; do
    run draw "$profile" --figure $figure --theme dark -o "$scratch/$figure.svg"
    expect_line "$figure is drawn" 0 "$figure.svg: $figure\$"
    word=Layer
    [ $figure = heatmap ] && word=Head
    [ $figure = positions ] && word=Position
    defined="Entropy: H = −Σ"
    [ $figure = histograms ] && defined="Normalized entropy: Ĥ ="
    if check_figure "$scratch/$figure.svg" $word "n" "512" $'context\u00a064' "$defined"; then ok=yes; else ok=no; fi
    result "$figure is XML with its labels" $ok
done

run draw "$profile" --width 360 --title 'A <b> & "c"' --caption 'Alice' -o "$scratch/heads.pdf"
pages=$(pdfinfo "$scratch/heads.pdf" | awk '/^Pages:/ { print $2 }')
width=$(pdfinfo "$scratch/heads.pdf" | awk '/^Page size:/ { print $3 }')
result "a PDF has one page of the width asked for" "$([ "$pages $width" = "1 360" ] && echo yes)"
result "it has its fonts in it" \
    "$(pdffonts "$scratch/heads.pdf" | awk 'NR > 2 { n++; embedded += $(NF - 4) == "yes" } END { if (n > 0 && n == embedded) print "yes" }')"
pdftotext -layout "$scratch/heads.pdf" "$scratch/text"
result "its labels are text" \
    "$(grep -qF 'A <b> & "c"' "$scratch/text" && grep -q 'Layer' "$scratch/text" && grep -q 'Alice' "$scratch/text" && echo yes)"

run draw "$profile" --candidates 3 -o "$scratch/candidates.svg"
result "candidates go by output norm, and the figure says so" \
    "$(grep -q 'lowest output norm' "$scratch/candidates.svg" && echo yes)"
run draw "$profile" --candidates 3 --candidates-by entropy -o "$scratch/candidates.svg"
result "or by entropy" "$(grep -q 'highest entropy' "$scratch/candidates.svg" && echo yes)"

run draw "$profile" -o "$scratch/none/heads.svg"
expect_line "a folder that is not there" 3 'none/heads.svg'
run draw "$profile" -o "$scratch/heads.gif"
expect_line "an unknown ending" 2 'must end in .svg, .png or .pdf'
run draw "$profile" --figure heatmup -o "$scratch/x.svg"
expect_line "an unknown figure" 2 "did you mean 'heatmap'"
run draw "$profile"
expect_line "no output" 2 '-o FILE is missing'
run draw "$profile" --scale classes --unit bits -o "$scratch/x.svg"
expect_line "classes are in nats" 2 '--scale classes needs --unit nats'
run draw models/demo/config.json -o "$scratch/x.svg"
expect_line "no profile" 3 'config.json'

# Fonts: a missing font is replaced by another one; without any font there is an error.
echo '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig></fontconfig>' >"$scratch/none.conf"
FONTCONFIG_FILE=$scratch/none.conf run draw "$profile" -o "$scratch/boxes.png"
expect_line "no font" 3 'no font is installed'
result "and no picture of boxes" "$([ ! -e "$scratch/boxes.png" ] && echo yes)"

# Two models: a map for each of 128 heads, the same tokens, one page; and two profiles.
compare() {
    run compare models/demo models/demo-sparse --text models/text/alice.txt --context 64 \
        --max-tokens 256 --threads 1 "$@"
}
compare --tokens 8 -o "$scratch/two.svg" --quiet
expect "two models are drawn" 0 </dev/null
if python3 - "$scratch/two.svg" <<'END'
import sys
import xml.etree.ElementTree as ElementTree
space = "{http://www.w3.org/2000/svg}"
root = ElementTree.parse(sys.argv[1]).getroot()
titles = [title.text for title in root.iter(space + "title")]
texts = [text.text for text in root.iter(space + "text")]
maps = {side: {t.split()[2].rstrip(",") for t in titles if t.startswith(side)} for side in ("A: demo ", "B: demo-sparse ")}
print("#", {side: len(heads) for side, heads in maps.items()})
sys.exit(0 if all(len(heads) == 64 for heads in maps.values()) and "L7H7" in texts and "sink" in texts and any("the same 8 tokens" in t for t in texts) else 1)
END
then ok=yes; else ok=no; fi
result "with a map for every head of both" $ok
compare --prompt 'Alice was' -o "$scratch/two.pdf" --quiet
expect "maps of a prompt" 0 </dev/null
result "one page with its fonts in it" \
    "$(pdfinfo "$scratch/two.pdf" | grep -q '^Pages: *1$' && pdffonts "$scratch/two.pdf" | awk 'NR > 2 { n++; embedded += $(NF - 4) == "yes" } END { if (n > 0 && n == embedded) print "yes" }')"
run compare "$profile" "$profile" -o "$scratch/same.svg" --quiet --theme dark
expect "two profiles are drawn" 0 </dev/null
result "no head differs from itself" "$(grep -qF '0 of 64 heads differ' "$scratch/same.svg" && echo yes)"
# The temporary file of a killed process is removed by the next one; other files are kept.
: >"$scratch/.old.pdf.abcdef.headlight.tmp"
: >"$scratch/.old.pdf.abcdef.tmp"
run draw "$profile" -o "$scratch/new.pdf" --quiet
result "a leftover is removed by the next PDF" \
    "$([ "$status" -eq 0 ] && [ -s "$scratch/new.pdf" ] && [ ! -e "$scratch/.old.pdf.abcdef.headlight.tmp" ] && echo yes)"
result "and nothing else" "$([ -e "$scratch/.old.pdf.abcdef.tmp" ] && echo yes)"
run compare "$profile" "$profile" --prompt Alice -o "$scratch/x.svg"
expect_line "a prompt needs models" 2 'needs -o FILE and --text'

finish
