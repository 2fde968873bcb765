#!/bin/bash
# test_build.sh - the Makefile rebuilds what has changed and nothing else.
#
# Works on a small copy of the tree: the base library with its tests.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

tree=$scratch/tree
mkdir -p "$tree/src" "$tree/tests"
cp -r Makefile include headlight.pc.in "$tree"
cp -r src/base "$tree/src"
cp tests/test_memory.c tests/support.h "$tree/tests"
cd "$tree" || exit 1
unset BUILD CC CXX CFLAGS CI WERROR MAKEFLAGS MAKELEVEL

# Builds, and lists the sources that were compiled.
compiled() { # make argument...
    make -j2 all build/tests/test_memory "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" && return 1; }
    awk '$1 == "CC" { print $2 }' "$scratch/log" | sort | tr '\n' ' '
}
# Checks that a build now compiles exactly these.
rebuilds() { # "sources " make argument...
    local wanted=$1 seen
    shift
    seen=$(compiled "$@") || { echo "$seen" && return 1; }
    echo "compiled: $seen"
    echo "wanted:   $wanted"
    [ "$seen" = "$wanted" ]
}
changed() { # file
    echo "/* changed */" >>"$1"
}

all=$(find src tests -name '*.c' | sort | tr '\n' ' ')
check "the first build compiles everything" rebuilds "$all"
check "the second build compiles nothing" rebuilds ""
changed src/base/memory.c
check "a source: itself" rebuilds "src/base/memory.c "
changed src/base/threads.h
check "a header: what includes it" rebuilds "src/base/threads.c "
changed include/headlight/base.h
check "a part of the public header: what includes it" rebuilds "$all"
check "other flags: everything" rebuilds "$all" CFLAGS=-O1
check "the same flags again: nothing" rebuilds "" CFLAGS=-O1
rm src/base/version.c
printf 'const char *hl_version(void);\nconst char *hl_version(void) { return "x"; }\n' >src/base/other.c
check "a new file is found" rebuilds "src/base/other.c " CFLAGS=-O1
members() { ar t build/libheadlight.a | grep -q '^other.o' && ! ar t build/libheadlight.a | grep -q '^version.o'; }
check "a removed file leaves the library" members
check "help lists the targets" bash -c 'make help | grep -q "make check-all  *check, then"'
finish
