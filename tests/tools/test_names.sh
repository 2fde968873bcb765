#!/bin/bash
# test_names.sh - tools/check_names accepts what is right and reports what is not.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
names=$PWD/tools/check_names

# Makes a tree of one file from standard input; runs a tool on it.
judge() { # tool file
    rm -rf "$scratch/tree"
    mkdir -p "$(dirname "$scratch/tree/$2")"
    cat >"$scratch/tree/$2"
    "$1" "$scratch/tree"
}

# Checks that the tool fails, and that its message has this in it.
objects() { # fragment tool file
    ! judge "$2" "$3" >"$scratch/opinion" && grep -qF "$1" "$scratch/opinion"
}

known() { judge "$names" src/base/a.c <<<'/* hl_do_it, of a.c, does n_times what do_it_once does. */ int hl_do_it(n_times, do_it_once);'; }
unknown_word() { objects "a.c:2: hl_gone" "$names" src/base/a.c <<<$'/* one\n * hl_gone */ int here;'; }
unknown_static() { objects "add_gone" "$names" src/base/a.c <<<'/* As in add_gone. */'; }
unknown_file() { objects "gone.c" "$names" src/base/a.c <<<'/* As in gone.c. */'; }
in_text() { judge "$names" src/base/a.c <<<'const char *text = "/* hl_gone */";'; }
letters() { judge "$names" src/base/a.c <<<'/* cmd_NAME.c has w_j x_i. */'; }
in_document() { objects "README.md:1: hl_gone" "$names" README.md <<<'There is hl_gone.'; }
path_in_document() { objects "src/base/gone.c" "$names" README.md <<<'See src/base/gone.c.'; }
check "names that exist" known
check "a comment about a function that is gone" unknown_word
check "and about a static one" unknown_static
check "and about a file" unknown_file
check "texts are no comments" in_text
check "names that stand for many, and mathematics" letters
check "a document about a function that is gone" in_document
check "and about a file" path_in_document
tour() { # document
    mkdir -p "$scratch/tour/src/base" && touch "$scratch/tour/src/base/a.c" "$scratch/tour/src/base/b_avx2.c"
    echo "$1" >"$scratch/tour/src/README.md"
    "$names" "$scratch/tour"
}
check "a tour that leads to every file" tour '[a](base/a.h), [b](base/b_avx2.c)'
check "a tour that leaves one out" fails tour '[a](base/a.h)'
finish
