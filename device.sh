#!/bin/sh
# Verifies all families of a folder (golden/families2) on the GPU, in f32 and bf16.
#     device.sh [FOLDER]      prints a line per family: the worst output of each compute type
folder=${1:-families2}
program=${HEADLIGHT:-build/headlight}
printf '%-22s %-28s %s\n' family cuda:f32 cuda:bf16
for model in "$folder"/*/; do
    name=$(basename "$model")
    line=$(printf '%-22s' "$name")
    for type in cuda:f32 cuda; do
        out=$(timeout 60 "$program" verify "$model" --device $type --json 2>&1)
        said=$(printf '%s' "$out" | python3 -c '
import json, sys
text = sys.stdin.read()
try:
    report = json.loads(text)
except ValueError:
    print("refused: " + text.strip().split("\n")[-1][-60:]); raise SystemExit
worst = ("", 0.0); wrong = []
def walk(x):
    global worst
    if isinstance(x, dict):
        if "error" in x and "output" in x:
            e = x["error"]
            e = float("inf") if e is None else float(e)
            if e > worst[1]: worst = (x["output"], e)
            if e > (3e-4 if x.get("relative") or x["output"].startswith("lens") else 2e-4): wrong.append(x["output"])
        for v in x.values(): walk(v)
    if isinstance(x, list):
        for v in x: walk(v)
walk(report)
print("%s %s %.1e" % ("ok" if not wrong else "off:" + ",".join(sorted(set(wrong)))[:30], worst[0], worst[1]))')
        line="$line $(printf '%-28s' "$said")"
    done
    printf '%s\n' "$line"
done
