#!/bin/bash
# test_runner.sh - tools/run_tests counts correctly, and reports every failure.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
tool=$PWD/tools/run_tests

runner() { # name line...
    printf '#!/bin/bash\n' >"$scratch/$1"
    printf '%s\n' "${@:2}" >>"$scratch/$1"
    chmod +x "$scratch/$1"
}

# Runs these runners: the last line and the exit status must be these.
gives() { # status "last line" name...
    local wanted_status=$1 wanted_line=$2 status=0
    shift 2
    "$tool" --logs "$scratch/logs" "${@/#/$scratch/}" >"$scratch/output" 2>&1 || status=$?
    cat "$scratch/output"
    [ "$status" -eq "$wanted_status" ] && [ "$(tail -n 1 "$scratch/output")" = "$wanted_line" ]
}

runner good 'echo 1..2' 'echo "ok 1 - a"' 'echo "ok 2 - b"'
runner skips 'echo 1..3' 'echo "ok 1 - a"' 'echo "ok 2 - b # SKIP no file"' 'echo "not ok 3 # SKIP c"'
runner skips_all 'echo "1..0 # SKIP nothing to test here"'
runner bad 'echo 1..2' 'echo "the reason"' 'echo "not ok 1 - a"' 'echo "ok 2 - b"' 'exit 1'
runner lies 'echo 1..1' 'echo "not ok 1 - a"' 'exit 0'
runner crashes 'echo 1..2' 'echo "ok 1 - a"' 'kill -SEGV $$'
runner stops 'echo 1..2' 'echo "ok 1 - a"'
runner silent 'exit 0'
runner status 'echo 1..1' 'echo "ok 1 - a"' 'exit 3'
runner plan_last 'echo "ok 1 - a"' 'echo 1..1'
runner hangs 'echo 1..1' 'sleep 60'
runner two_groups 'echo 1..1' 'echo "ok 1 - a"' 'echo 1..1' 'echo "ok 1 - b"'

check "good tests" gives 0 "2 passed, 0 failed, 0 skipped" good
check "several runners" gives 0 "6 passed, 0 failed, 2 skipped" good skips plan_last two_groups
check "skipped tests" gives 0 "1 passed, 0 failed, 2 skipped" skips
check "a runner that skips everything" gives 0 "0 passed, 0 failed, 1 skipped" skips_all
check "failing tests" gives 1 "1 passed, 1 failed, 0 skipped" bad
check "their output is shown" grep -q "the reason" "$scratch/output"
check "not ok in spite of exit 0" gives 1 "0 passed, 1 failed, 0 skipped" lies
check "a crash" gives 1 "1 passed, 1 failed, 0 skipped" crashes
check "a runner that stops early" gives 1 "1 passed, 1 failed, 0 skipped" stops
check "no plan" gives 1 "0 passed, 1 failed, 0 skipped" silent
check "exit status without a failing test" gives 1 "1 passed, 1 failed, 0 skipped" status
check "the plan may come last" gives 0 "1 passed, 0 failed, 0 skipped" plan_last
check "several plans add up" gives 0 "2 passed, 0 failed, 0 skipped" two_groups
check "one bad among good" gives 1 "3 passed, 1 failed, 0 skipped" good bad
check "a runner that does not exist" gives 1 "0 passed, 1 failed, 0 skipped" absent
check "nothing at all" gives 1 "0 passed, 0 failed, 0 skipped"
HEADLIGHT_TEST_TIMEOUT=1 check "a runner that hangs" gives 1 "0 passed, 1 failed, 0 skipped" hangs

tally() {
    "$tool" --tally "$scratch/tally" "$scratch/good" >/dev/null
    "$tool" --tally "$scratch/tally" "$scratch/bad" >/dev/null
    [ "$("$tool" --total "$scratch/tally")" = "3 passed, 1 failed, 0 skipped" ]
}
check "tallies add up" tally
check "a tally with failures fails" fails "$tool" --total "$scratch/tally"
with() {
    "$tool" --with "env MARK=1" "$scratch/marked" >/dev/null
}
# shellcheck disable=SC2016
runner marked 'echo 1..1' '[ "$MARK" = 1 ] && echo "ok 1 - a"'
check "an emulator before each runner" with
finish
