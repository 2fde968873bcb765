#!/bin/bash
# demo.sh - headlight demo shows heads and diagnoses and writes its files, and the lines at its end
# are commands that work.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 13

run demo -o "$scratch/demo" --threads 1 --as "$HEADLIGHT"
cp "$scratch/out" "$scratch/shown"
expect_line "the demonstration runs" 0 '^Results, and the command that made each'
result "it shows the heads, the layers and the diagnoses" \
    "$(grep -q '^H7 ' "$scratch/shown" && grep -q '^layers' "$scratch/shown" &&
        grep -q 'entropy-collapse' "$scratch/shown" && echo yes)"
missing=
for figure in heatmap layers compare tokens lens; do
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' \
        "$scratch/demo/$figure.svg" || missing="$missing $figure.svg"
    [ "$(head -c 8 "$scratch/demo/$figure.png" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] ||
        missing="$missing $figure.png"
done
result "it writes its figures, as SVG and PNG$missing" "$([ -z "$missing" ] && echo yes)"

result "it writes a report that says what it holds" \
    "$(grep -q '"format":"headlight.report/1"' "$scratch/demo/report.html" &&
        [ -s "$scratch/demo/text.trace" ] && echo yes)"

# One trace has a spike, the other a loop; and each is found in the reports, too.
run generate models/demo "The old man looked out at the sea, and said" -n 96 -t 0.8 --top-k 40 \
    --seed 11 --on-spike warn --no-monitor
expect_line "the text has a spike, as the demonstration says" 0 "token 48 'ause': a spike, z = 3\."
run show "$scratch/demo/loop.trace" --table repetition --csv
expect_line "the other repeats 22 tokens" 0 '^160,.*,22,22,58,[0-9]+'
result "the reports have the spike and the loop" \
    "$(grep -q '"spikes":\[[0-9]' "$scratch/demo/report.html" &&
        grep -q '"spikes":\[\]' "$scratch/demo/loop.html" &&
        grep -qE '"period": ?22' "$scratch/demo/loop.html" &&
        grep -qE '"id":"attention-locking"|attention-locking' "$scratch/demo/loop.html" && echo yes)"

# There is a line for every file, and the first figure's line makes the same bytes again.
listed=$(grep -c "^$HEADLIGHT " "$scratch/shown")
result "fourteen commands to copy" "$([ "$listed" -eq 14 ] && echo yes)"
line=$(grep "^$HEADLIGHT draw .*heatmap.svg" "$scratch/shown")
cp "$scratch/demo/heatmap.svg" "$scratch/before.svg"
rm "$scratch/demo/heatmap.svg"
$line >/dev/null
result "a line copied from it makes the same file" \
    "$(cmp -s "$scratch/before.svg" "$scratch/demo/heatmap.svg" && echo yes)"

touch "$scratch/file"
run demo -o "$scratch/file"
expect_line "a file is not a folder" 3 'is not a folder'
run demo -o "$scratch/demo" --models "$scratch/none" --quiet
expect_line "models that are not there" 3 'none/demo'
run demo a
expect_line "a word too many" 2 "unexpected argument 'a'; -o FOLDER says where the results go"
mkdir "$scratch/alone" && cp "$HEADLIGHT" "$scratch/alone/headlight"
(cd "$scratch/alone" && ./headlight demo >"$scratch/out" 2>"$scratch/err")
status=$?
expect_line "no models beside the program" 3 'share/headlight/models was not found beside the program'

finish
