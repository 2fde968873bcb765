#!/bin/bash
# test_calls.sh - every function of the public headers is called by the program, by Python or by an
# example: a function without a caller needs an example or should be removed.  A macro of the
# headers calls the function that it names.
set -u

macros=$(sed -n '/^#define hl_.*\\$/,/[^\\]$/p' include/headlight/*.h)
used=$(cat cli/*.[ch] python/headlight/*.py examples/*.[ch] <(echo "$macros") | grep -oE '\bhl_[a-z0-9_]+' | sort -u)
calls=$(grep -hoE '^HL_API [^;(]*\bhl_[a-z0-9_]+\(' include/headlight/*.h | grep -oE 'hl_[a-z0-9_]+\($' |
    tr -d '(' | sort -u)
unused=$(comm -23 <(echo "$calls") <(echo "$used"))

echo 1..2
[ "$(echo "$calls" | wc -l)" -gt 200 ] || printf 'not '
echo "ok 1 - calls are found in the headers"
[ -z "$unused" ] || printf 'not '
echo "ok 2 - each is made by cli/, python/ or examples/"
[ -z "$unused" ] && exit 0
echo "$unused" | sed 's/.*/# &: by nobody/'
exit 1
