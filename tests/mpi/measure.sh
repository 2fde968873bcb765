#!/bin/bash
# measure.sh - headlight measure on several ranks gives the bytes of one process.  Needs a build
# with MPI (make check-mpi).
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/../cli/lib.bash"
plan 8

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # the only user in containers
ranks() { # n arguments...
    local n=$1
    shift
    mpirun --oversubscribe --mca btl self,vader -n "$n" "$HEADLIGHT" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
}
text=$scratch/text
mkdir "$text"
for i in $(seq 40); do
    head -c $((3000 + 150 * i)) models/text/alice.txt | tail -c $((40 + 9 * i)) | iconv -c -f UTF-8 -t ASCII \
        >"$text/$i.txt"
done
options=(--context 48 --threads 1 --seed 5)

run measure models/demo "$text" -o "$scratch/one" "${options[@]}"
expect_line "one process" 0 "^$scratch/one: [0-9]+ tokens in [0-9]+ windows"
for n in 2 4; do
    ranks $n measure models/demo "$text" -o "$scratch/many" "${options[@]}"
    expect_line "$n ranks" 0 "^$scratch/many: [0-9]+ tokens in [0-9]+ windows"
    result "give the same bytes" "$(cmp -s "$scratch/one" "$scratch/many" && echo yes)"
done
result "and leave no states" "$([ -z "$(find "$scratch" -name '*.part')" ] && echo yes)"

# A rank that cannot save its part fails; the others keep theirs.
mkdir "$scratch/many.2-of-3.part"
ranks 3 measure models/demo "$text" -o "$scratch/many" "${options[@]}"
expect_line "a rank that fails is named" "$status" 'rank 1( failed|: .*many.2-of-3.part)'
rmdir "$scratch/many.2-of-3.part"
rm "$scratch/many"
ranks 3 measure models/demo "$text" -o "$scratch/many" "${options[@]}" --resume
result "and resumed the bytes are the same" "$(cmp -s "$scratch/one" "$scratch/many" && echo yes)"
finish
