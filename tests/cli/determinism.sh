#!/bin/bash
# determinism.sh - the same command gives the same bytes; with other threads and back ends, results
# are equal within rounding.
#
# Sums in another order are compared with a relative tolerance of 1e-5, which is a hundred times the
# rounding of single precision, and far below what a reader of a profile could notice.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 17

model=models/demo
text=$scratch/text.txt
head -c 1000 models/text/alice.txt >"$text"
runs=$scratch/run
mkdir "$runs"
same() { cmp -s "$1" "$2" && echo yes; }

# Makes everything that is compared, in a folder NAME: NAME THREADS BACKEND
make_all() {
    local to=$runs/$1 threads=$2
    export HEADLIGHT_BACKEND=$3
    mkdir "$to"
    "$HEADLIGHT" measure "$model" "$text" -o "$to/profile" --context 64 --no-probe --threads "$threads" --quiet
    "$HEADLIGHT" generate "$model" "He said" -n 12 --threads "$threads" --quiet >"$to/greedy"
    "$HEADLIGHT" generate "$model" "He said" -n 12 --temperature 0.8 --seed 7 --threads "$threads" \
        --quiet >"$to/drawn"
    "$HEADLIGHT" prune "$model" --count 6 --profile "$to/profile" --as compact -o "$to/pruned" --quiet
    for ending in svg png pdf; do
        "$HEADLIGHT" draw "$to/profile" -o "$to/x.$ending" --quiet
    done
    (cd "$to" && "$program" report profile -o report.html --quiet)
    "$HEADLIGHT" show "$to/profile" --table heads --csv >"$to/heads"
    unset HEADLIGHT_BACKEND
}
program=$(realpath "$HEADLIGHT")

# Compares two files: numbers in order, within a relative tolerance; all other text must be equal.
close_to() { # a b tolerance
    awk -v tolerance="$3" '
        function split_line(line, words) { gsub(/[^-+0-9.eE]+/, " ", line); return split(line, words, " ") }
        FNR == NR { first[FNR] = $0; n = FNR; next }
        {
            count = split_line(first[FNR], a); other = split_line($0, b)
            if (count != other) { bad = 1; next }
            for (i = 1; i <= count; i++) {
                size = (a[i] < 0 ? -a[i] : a[i]); size = size > 1e-3 ? size : 1e-3
                gap = a[i] - b[i]; gap = gap < 0 ? -gap : gap
                if (gap > tolerance * size) bad = 1
            }
        }
        END { exit bad || FNR != n }' "$1" "$2" && echo yes
}

make_all first 1 ""
make_all again 1 ""
make_all two 2 ""
make_all two_again 2 ""
make_all scalar 1 scalar

for name in profile greedy drawn x.svg x.png x.pdf report.html; do
    result "again: $name is the same bytes" "$(same "$runs/first/$name" "$runs/again/$name")"
done
result "again: a pruned model, too" \
    "$(diff -r "$runs/first/pruned" "$runs/again/pruned" >/dev/null && echo yes)"
for name in profile greedy drawn report.html; do
    result "again on 2 threads: $name" "$(same "$runs/two/$name" "$runs/two_again/$name")"
done
result "2 threads: the table of heads, within rounding" \
    "$(close_to "$runs/first/heads" "$runs/two/heads" 1e-5)"
result "2 threads: the same text" "$(same "$runs/first/greedy" "$runs/two/greedy")"
result "scalar: the table of heads, within rounding" \
    "$(close_to "$runs/first/heads" "$runs/scalar/heads" 1e-4)"
result "scalar: the same text" "$(same "$runs/first/greedy" "$runs/scalar/greedy")"
result "scalar: the same heads pruned" \
    "$(diff -rq "$runs/first/pruned" "$runs/scalar/pruned" >/dev/null && echo yes)"
finish
