#!/bin/bash
# test_mutate.sh - tools/mutate distinguishes mutants that tests notice from others, and leaves the
# tree unchanged; every mutant of tests/mutants.txt applies to the code.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
tool=$PWD/tools/mutate

# Makes a tree with one source file and one test, which checks sums but not differences.
tree=$scratch/tree
mkdir -p "$tree/src" "$tree/tests"
cat >"$tree/src/sum.c" <<'C'
int sum(int a, int b) { return a + b; }
int difference(int a, int b) { return a - b; }
int twice(int a)
{
    int n = 0;
    for (int i = 0; i < 2; i++)
        n = sum(n, a);
    return n;
}
C
cat >"$tree/tests/test_sum.c" <<'C'
#include <stdio.h>
int sum(int, int);
int twice(int);
int main(void)
{
    int bad = sum(2, 3) != 5 || twice(4) != 8;
    printf("1..1\n%s 1 - sums\n", bad ? "not ok" : "ok");
    return bad;
}
C
printf '#!/bin/sh\necho "1..0 # SKIP not here"\n' >"$tree/tests/elsewhere.sh"
printf '#!/bin/sh\necho 1..1\necho not ok 1\nexit 1\n' >"$tree/tests/broken.sh"
chmod +x "$tree/tests/"*.sh
cat >"$tree/Makefile" <<'MAKE'
all:
build/tests/test_sum: src/sum.c tests/test_sum.c
	@mkdir -p build/tests
	@$(CC) -o $@ src/sum.c tests/test_sum.c
MAKE
cat >"$tree/tests/mutants.txt" <<'TABLE'
# A comment.
plus  src/sum.c  test_sum
- a + b
+ a - b

minus  src/sum.c  test_sum
@ int difference(
- a - b
+ b - a

endless  src/sum.c  test_sum
@ int twice(
- i++
+ i += 0

removed  src/sum.c  test_sum
-     for (int i = 0; i < 2; i++)
-         n = sum(n, a);

moved  src/sum.c  test_sum
- a * b
+ a / b

many  src/sum.c  test_sum
- int a
+ int c

senseless  src/sum.c  test_sum
- a + b
+ a +

elsewhere  src/sum.c  tests/elsewhere.sh
- a + b
+ a * b

unfounded  src/sum.c  tests/broken.sh
- a + b
+ a * b
TABLE
before=$(cat "$tree"/*/*.* | cksum)

# Runs it on these mutants: the exit status and the last line must be these.
gives() { # status "last line" argument...
    local wanted_status=$1 wanted_line=$2 status=0
    shift 2
    "$tool" --tree "$tree" -j 2 --least 2 "$@" >"$scratch/output" 2>&1 || status=$?
    cat "$scratch/output"
    [ "$status" -eq "$wanted_status" ] && [ "$(tail -n 1 "$scratch/output")" = "$wanted_line" ]
}
says() { # pattern
    grep -Eq "$1" "$scratch/output" || { cat "$scratch/output" && return 1; }
}

check "mutants that tests notice" gives 0 "3 passed, 0 failed, 0 skipped" plus removed endless
check "one by a test that fails" says '^  plus +killed +test_sum '
check "one by a test that hangs" says '^  endless +killed +test_sum, by time'
check "one that no test notices" gives 1 "1 passed, 1 failed, 0 skipped" plus minus
check "is named" says '^  minus +SURVIVED +test_sum'
check "the order does not matter" gives 1 "1 passed, 1 failed, 0 skipped" minus plus
check "text that is not there, or not once" gives 1 "0 passed, 2 failed, 0 skipped" moved many
check "is said for one" says '^  moved +DOES NOT APPLY'
check "and for the other" says '^  many +DOES NOT APPLY +the text is [0-9]+ times in src/sum.c'
check "what does not compile is not killed" gives 1 "0 passed, 1 failed, 0 skipped" senseless
check "and is called so" says '^  senseless +DOES NOT COMPILE'
check "tests that cannot run" gives 1 "0 passed, 0 failed, 1 skipped" elsewhere
check "tests that fail without a mutant" gives 1 "1 passed, 1 failed, 0 skipped" unfounded plus
check "kill none" says '^  unfounded +FAILS ANYWAY'
check "a mutant that is not in the table" fails "$tool" --tree "$tree" nobody
check "a table that does not fit" gives 1 "7 passed, 2 failed, 0 skipped" --check
check "what does not is named" says 'moved: DOES NOT APPLY'
check "numbers for check-all" gives 0 "1 passed, 0 failed, 0 skipped" --tally "$scratch/tally" plus
check "are appended" grep -qx "1 0 0" "$scratch/tally"
unchanged() { [ "$(cat "$tree"/*/*.* | cksum)" = "$before" ]; }
check "the tree is as it was" unchanged

check "every mutant of our own table applies" "$tool" --check
"$tool" --list >"$scratch/ours"
enough() { [ "$(wc -l <"$scratch/ours")" -ge 60 ]; }
check "there are 60 of them at least" enough
for folder in $(cd src && ls -d -- */) cli/ python/ web/; do
    [ -d "src/$folder" ] && folder=src/$folder
    check "some are in $folder" grep -q " $folder" "$scratch/ours"
done
finish
