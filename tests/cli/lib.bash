# lib.bash - what the scripts here share: run the program, compare, print TAP.
#
#     plan 2
#     run verify --help
#     expect "help is help" 0 <<'END'
#     the exact standard output, then the exact standard error
#     END
#     finish
#
# `run` keeps the exit status, standard output and standard error; `expect`
# compares the status and both texts, one after the other, with what it reads.

# shellcheck shell=bash disable=SC2034 # the scripts use what is set here
HEADLIGHT=${HEADLIGHT:-build/headlight}
unset HEADLIGHT_BACKEND
cases=tests/data/attention
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
number=0
failed=0

plan() { echo "1..$1"; }

run() {
    "$HEADLIGHT" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
}

# Numbers that differ between machines become N; what is left is exact.
blur_numbers() {
    sed -i -E 's/[0-9]\.[0-9]e[-+][0-9]{2}/N.NeNNN/g' "$scratch/out"
}

result() { # name ok?
    number=$((number + 1))
    if [ "$2" = yes ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        failed=1
    fi
}

skipped() { # name why
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

expect() { # name status <expected text
    cat >"$scratch/wanted"
    cat "$scratch/out" "$scratch/err" >"$scratch/seen"
    if [ "$status" -eq "$2" ] && cmp -s "$scratch/wanted" "$scratch/seen"; then
        result "$1" yes
    else
        echo "# exit status $status, wanted $2"
        diff -u "$scratch/wanted" "$scratch/seen" | sed 's/^/# /'
        result "$1" no
    fi
}

# The exit status, and a pattern that one line of the output must match.
expect_line() { # name status pattern
    if [ "$status" -eq "$2" ] && cat "$scratch/out" "$scratch/err" | grep -qE -- "$3"; then
        result "$1" yes
    else
        echo "# exit status $status, wanted $2 and a line like $3"
        sed 's/^/# /' "$scratch/out" "$scratch/err"
        result "$1" no
    fi
}

# Whether programs can be shown a terminal: not without script(1), nor where /dev/pts is missing.
have_terminal() {
    [ "$(script -qec 'test -t 1 && echo yes' /dev/null </dev/null 2>/dev/null | tr -d '\r')" = yes ]
}

# A picture is well-formed, with these words as text.
check_svg() { # file word...
    python3 - "$@" <<'END'
import sys
import xml.etree.ElementTree as ElementTree
root = ElementTree.parse(sys.argv[1]).getroot()
texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
missing = [word for word in sys.argv[2:] if word not in texts]
print("# missing:", missing)
sys.exit(1 if missing else 0)
END
}

finish() { exit "$failed"; }
