#!/bin/bash
# serve.sh - headlight serve: its options here; its routes and behavior by the clients in
# tests/serve, which need only Python.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export HEADLIGHT OMP_NUM_THREADS=1 # a token of a small model is too little work for two threads
plan 12

run serve
expect_line "a model is needed" 2 'give one MODEL; got 0'

run serve models/demo --port 0 --host 0.0.0.0
expect_line "other addresses need a token" 2 '0\.0\.0\.0 can be reached from other machines, so a token is needed: --token or --token-file'

run serve models/demo --token a --token-file b
expect_line "one token" 2 'cannot be combined'

printf '\n' >"$scratch/token"
run serve models/demo --token-file "$scratch/token"
expect_line "a file without a token" 3 'token: no token in this file'

run serve models/demo --port 0 --host no.such.host.invalid
expect_line "a host that is none" 3 'no.such.host.invalid is not an address'

run serve "$scratch/nowhere" --port 0
expect_line "a model that is not there" 3 'headlight serve: .*nowhere'

check_script() { # name file
    if ! command -v python3 >/dev/null; then
        skipped "$1" "no python3"
    elif python3 -B "$(dirname "$0")/../serve/$2" >"$scratch/tap" 2>&1; then
        result "$1" yes
    else
        grep -v '^ok' "$scratch/tap" | sed 's/^/# /'
        result "$1" no
    fi
}

check_script "every route" api.py
check_script "views beside texts" beside.py
check_script "hostile clients" hostile.py
check_script "a good client beside 40 that never read" stalled.py
check_script "limits of the system and per client" limits.py
check_script "work ends when its client goes" cancelled.py
finish
