#!/bin/bash
# hardened.sh - the hardening of the program and the library, as readelf shows it.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 10

build=$(dirname "$HEADLIGHT")
library=$build/libheadlight.so
if ! grep -q 'HARDEN=1' "$build/flags" || ! command -v readelf >/dev/null; then
    for _ in {1..10}; do skipped "a hardened build" "built with HARDEN= or no readelf"; done
    finish
fi

yes_if() { if "$@" >/dev/null 2>&1; then echo yes; else echo no; fi; }
has() { # file what pattern
    readelf -W "$2" "$1" | grep -qE -- "$3"
}

result "the program is position-independent" "$(yes_if has "$HEADLIGHT" -h 'Type: +DYN')"
for file in "$HEADLIGHT" "$library"; do
    name=$(basename "$file")
    result "$name: relocations are read-only" "$(yes_if has "$file" -l GNU_RELRO)"
    result "$name: all of them are made before it runs" "$(yes_if has "$file" -d 'BIND_NOW|FLAGS_1.*NOW')"
    result "$name: its stack cannot be executed" \
        "$(readelf -lW "$file" | awk '$1 == "GNU_STACK" { print $(NF - 1) == "RW" ? "yes" : "no" }')"
done
result "functions with arrays check their frame" "$(yes_if has "$library" --dyn-syms __stack_chk_fail)"
if readelf -W --dyn-syms "$library" | grep -qE '__(a|t|ub)san_'; then
    skipped "copies into arrays are checked" "an instrumented build"
else
    result "copies into arrays are checked" "$(yes_if has "$library" --dyn-syms '__(snprintf|memcpy|vsnprintf)_chk')"
fi
object=$build/obj/src/base/status.o
if ! "${CC:-gcc}" -fcf-protection -x c -c -o /dev/null /dev/null 2>/dev/null; then
    skipped "jumps land where they may" "this compiler has no -fcf-protection"
else
    result "jumps land where they may" "$(yes_if has "$object" -n 'IBT|BTI')"
fi
finish
