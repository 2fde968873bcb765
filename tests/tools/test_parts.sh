#!/bin/bash
# test_parts.sh - tools/run_parts runs every part, and reports every failure.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
tool=$PWD/tools/run_parts

# A replacement for make: records its arguments, and does what the target's name says.
# shellcheck disable=SC2016 # $1 and TALLY are for the replacement
cat >"$scratch/make" <<'END'
#!/bin/bash
echo "$1 $2" >>"$(dirname "$0")/asked"
for word in "$@"; do
    case $word in TALLY=*) tally=${word##* } ;; esac
done
case $1 in
good) echo "3 0 1" >>"$tally" ;;
bad) echo "2 1 0" >>"$tally" && exit 2 ;;
broken) exit 2 ;;
untidy) echo "4 0 0" >>"$tally" && exit 2 ;;
esac
END
chmod +x "$scratch/make"

# Runs these parts: the last line and the exit status must be these.
gives() { # status "last line" part...
    local wanted_status=$1 wanted_line=$2 status=0
    shift 2
    rm -f "$scratch/asked"
    MAKE=$scratch/make "$tool" "$scratch/tally" "$@" >"$scratch/output" 2>&1 || status=$?
    cat "$scratch/output"
    [ "$status" -eq "$wanted_status" ] && [ "$(tail -n 1 "$scratch/output")" = "$wanted_line" ]
}
says() { # pattern
    grep -Eq "$1" "$scratch/output" || { cat "$scratch/output" && return 1; }
}

check "parts add up" gives 0 "6 passed, 0 failed, 2 skipped" good 'good A=1'
check "settings are passed on" grep -qx 'good A=1' "$scratch/asked"
check "numbers of an earlier time are forgotten" gives 0 "3 passed, 0 failed, 1 skipped" good
check "a part that fails" gives 1 "5 passed, 1 failed, 1 skipped" bad good
check "those behind it run" grep -q '^good' "$scratch/asked"
check "a part without tests that fails" gives 1 "3 passed, 1 failed, 1 skipped" broken good
check "is named" says '^  broken +0 passed +1 failed +0 skipped .*make broken failed'
check "what fails after good tests" gives 1 "4 passed, 1 failed, 0 skipped" untidy
check "no part at all" gives 1 "0 passed, 0 failed, 0 skipped"
finish
