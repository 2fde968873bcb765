#!/bin/bash
# full_disk_prune.sh - headlight prune on a file system that is too small: a model is never
# incomplete.
#
# The file system is a tmpfs of 64 kB in a private mount namespace.
set -u
if [ -z "${HEADLIGHT_NAMESPACE:-}" ] && unshare -rm true 2>/dev/null; then
    HEADLIGHT_NAMESPACE=yes exec unshare -rm "$0" "$@"
fi
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 9

disk=$scratch/disk
mkdir "$disk"
if ! mount -t tmpfs -o size=64k tmpfs "$disk" 2>/dev/null; then
    for i in 1 2 3 4 5 6 7 8 9; do skipped "a full disk, $i" "no file system can be mounted here"; done
    finish
fi
trap 'umount "$disk"; rm -rf "$scratch"' EXIT
files() { find "$disk" -mindepth 1 -printf '%f\n' | sort | tr '\n' ' '; }

for form in masked compact; do
    run prune tests/data/families/phi3 --heads L0H0,L0H2 --as $form -o "$disk/out"
    expect_line "$form: no room" 3 "^headlight prune: $disk/\\.?out.*: writing: No space left on device"
    result "$form: nothing is left" "$([ -z "$(files)" ] && echo yes)"
done
run prune tests/data/gguf/llama3.gguf --heads L0H0 --as gguf -o "$disk/out.gguf"
expect_line "gguf: no room" 3 "^headlight prune: $disk/out.gguf: .*No space left on device"
result "gguf: nothing is left" "$([ -z "$(files)" ] && echo yes)"

echo "older" >"$disk/out.gguf"
run prune tests/data/gguf/llama3.gguf --heads L0H0 --as gguf -o "$disk/out.gguf"
expect_line "gguf: no room beside an older one" 3 "No space left on device"
result "which is still there" "$([ "$(cat "$disk/out.gguf")" = older ] && [ "$(files)" = "out.gguf " ] && echo yes)"

mount -o remount,size=4m "$disk"
run prune tests/data/gguf/llama3.gguf --heads L0H0 --as gguf -o "$disk/out.gguf"
expect_line "with more room it is replaced" 0 '(removed|zeroed) 1 of 12 heads'
finish
