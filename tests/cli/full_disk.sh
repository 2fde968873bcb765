#!/bin/bash
# full_disk.sh - headlight measure and report on file systems that are too small: nothing is lost.
#
# The file system is a tmpfs of a few kB in a private mount namespace.
set -u
if [ -z "${HEADLIGHT_NAMESPACE:-}" ] && unshare -rm true 2>/dev/null; then
    HEADLIGHT_NAMESPACE=yes exec unshare -rm "$0" "$@"
fi
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 14

names=("no room for the state" "nothing is left of it" "no room for a second state"
    "the first is still there" "and nothing else" "with more room it goes on"
    "to the same bytes" "no room for the profile" "the old one is still there"
    "what was measured, too" "no room for all rows" "which is known at the start"
    "no room for a report" "the old page is still there")
disk=$scratch/disk
mkdir "$disk"
if ! mount -t tmpfs -o size=16k tmpfs "$disk" 2>/dev/null; then
    for name in "${names[@]}"; do skipped "$name" "no file system can be mounted here"; done
    finish
fi
trap 'umount "$disk"; rm -rf "$scratch"' EXIT

model=models/demo
text=$scratch/text.txt
head -c 3000 models/text/alice.txt | iconv -c -f UTF-8 -t ASCII >"$text"
fast=(--context 64 --threads 1 --no-probe)
same() { cmp -s "$1" "$2" && echo yes; }
files() { find "$disk" -type f -printf '%f\n' | sort | tr '\n' ' '; }
step() { result "${names[$number]}" "$1"; }
fails() { expect_line "${names[$number]}" 3 "$1"; }

"$HEADLIGHT" measure "$model" "$text" -o "$scratch/p" "${fast[@]}" --quiet
size=$(stat -c %s "$scratch/p")
resize() { mount -o "remount,size=$1" "$disk"; }

run measure "$model" "$text" -o "$disk/p" "${fast[@]}"
fails "^headlight measure: $disk/p.part: writing: No space left on device"
step "$([ -z "$(files)" ] && echo yes)"

# Room for one and a half files: a new state is written beside the old one.
resize $((size * 3 / 2))
run measure "$model" "$text" -o "$disk/p" "${fast[@]}" --save-every 0.001
fails "^headlight measure: $disk/p.part: writing: No space left on device"
step "$([ -s "$disk/p.part" ] && echo yes)"
step "$([ "$(files)" = "p.part " ] && echo yes)"
resize $((size * 4))
run measure "$model" "$text" -o "$disk/p" "${fast[@]}" --resume
expect_line "${names[$number]}" 0 "^$disk/p: [0-9]+ tokens"
step "$(same "$disk/p" "$scratch/p")"

# Full at the very end: there is no room for the profile beside an older one and the state.
echo "older" >"$disk/p"
resize $((size * 3 / 2))
run measure "$model" "$text" -o "$disk/p" "${fast[@]}"
fails "^headlight measure: $disk/p: writing: No space left on device"
step "$([ "$(cat "$disk/p")" = older ] && echo yes)"
step "$([ "$(files)" = "p p.part " ] && echo yes)"

rm -f "$disk"/p*
run measure "$model" "$text" -o "$scratch/q" "${fast[@]}" --rows "$disk/rows"
fails "^headlight measure: $disk/rows: no room for [0-9]+ bytes: No space left on device"
step "$([ -z "$(files)" ] && [ ! -e "$scratch/q" ] && echo yes)"

echo "older" >"$disk/x.html"
resize 16k
run report "$scratch/p" -o "$disk/x.html"
fails "^headlight report: $disk/x.html: writing: No space left on device"
step "$([ "$(cat "$disk/x.html")" = older ] && [ "$(files)" = "x.html " ] && echo yes)"
finish
