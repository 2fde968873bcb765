#!/bin/bash
# test_fuzz.sh - fuzz targets, their corpora and the list of parsers are consistent.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

corpora() {
    local target missing=0
    for target in fuzz/fuzz_*.c; do
        target=${target#fuzz/fuzz_}
        [ -n "$(ls "fuzz/corpus/${target%.c}")" ] || missing=1
    done
    return "$missing"
}
check "every target has a corpus" corpora

targets() {
    local folder missing=0
    for folder in fuzz/corpus/*; do
        [ -f "fuzz/fuzz_${folder##*/}.c" ] || { echo "$folder" && missing=1; }
    done
    return "$missing"
}
check "every corpus has a target" targets

small() { [ "$(cat fuzz/corpus/*/* | wc -c)" -lt 1000000 ]; }
check "all corpora together are below a megabyte" small

parsers() {
    local file target targets missing=0
    while read -r file targets; do
        [ -f "$file" ] || { echo "no file $file" && missing=1; }
        [ -n "$targets" ] || { echo "no target of $file" && missing=1; }
        for target in $targets; do
            [ -f "fuzz/fuzz_$target.c" ] || { echo "no target $target of $file" && missing=1; }
        done
    done < <(sed -e 's/#.*//' -e '/^ *$/d' fuzz/parsers)
    return "$missing"
}
check "fuzz/parsers names files and targets that there are" parsers

# Checks that every reader of formats and of settings has a line in the list.
listed() {
    local file missing=0
    while read -r file; do
        grep -q "^$file " fuzz/parsers || { echo "$file" && missing=1; }
    done < <(grep -lE '^hl_status hl_[a-z0-9_]*(_parse|_from_json|_from_gguf)[a-z_]*\(' src/*/*.c)
    return "$missing"
}
check "every file with a public parser is listed" listed
finish
