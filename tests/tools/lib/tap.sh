# shellcheck shell=bash
# tap.sh - what the tests of the tools share: TAP, and a scratch folder.
#
#     . "$(dirname "$0")/lib/tap.sh"
#     check "what is tested" command...      ok if the command succeeds
#     finish                                 the plan, and the exit status
#
# $scratch is a folder that is removed at the end.  The output of a command that fails is shown.
set -u

tests_run=0
tests_failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check() { # name command...
    local name=$1
    shift
    tests_run=$((tests_run + 1))
    if "$@" >"$scratch/check.out" 2>&1; then
        echo "ok $tests_run - $name"
    else
        tests_failed=$((tests_failed + 1))
        sed 's/^/# /' "$scratch/check.out"
        echo "not ok $tests_run - $name"
    fi
}

fails() { # command...
    ! "$@"
}

finish() {
    echo "1..$tests_run"
    [ "$tests_failed" -eq 0 ]
    exit
}
