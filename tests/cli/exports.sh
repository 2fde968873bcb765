#!/bin/bash
# exports.sh - libheadlight.so exports exactly the functions of the public headers, all with the
# version that programs are bound to.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 6

build=$(dirname "$HEADLIGHT")
library=$build/libheadlight.so
if ! command -v nm >/dev/null || ! command -v readelf >/dev/null; then
    for _ in {1..6}; do skipped "what the library exports" "no nm or readelf"; done
    finish
fi

# The version "MAJOR MINOR PATCH" of the header, as a compiler reads it.
read -r major minor patch < <(printf '#include "headlight/base.h"\nHL_VERSION_MAJOR HL_VERSION_MINOR HL_VERSION_PATCH\n' |
    "${CC:-gcc}" -std=c17 -Iinclude -E -P -x c - | tail -n 1)
version=HEADLIGHT_$major
if [ "$major" = 0 ]; then version=HEADLIGHT_0.$minor; fi

same() { # name: $scratch/wanted and $scratch/seen
    diff -u "$scratch/wanted" "$scratch/seen" | sed 's/^/# /'
    result "$1" "$(cmp -s "$scratch/wanted" "$scratch/seen" && [ -s "$scratch/wanted" ] && echo yes)"
}

# A declaration may take several lines: HL_API, a type, the name, then a parenthesis.
cat include/headlight.h include/headlight/*.h | tr '\n' ' ' | grep -oE 'HL_API [^;(]*\(' |
    sed -nE 's/.*[ *](hl_[a-z0-9_]+)\($/\1/p' | sort -u >"$scratch/functions"
sed "s/\$/@@$version/" "$scratch/functions" >"$scratch/wanted"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort >"$scratch/seen"
same "the functions of the headers, with their version, and nothing else"

nm -D --defined-only "$library" | awk '$2 == "A" { print $3 }' | sed 's/@@.*//' | sort >"$scratch/seen"
echo "$version" >"$scratch/wanted"
same "one version"

echo "libheadlight.so.$major" >"$scratch/wanted"
readelf -dW "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p' >"$scratch/seen"
same "the name by which programs ask for it"

# A program that is linked with the library requires that version, and has its header's.
cat >"$scratch/program.c" <<'END'
#include <headlight.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
    printf("%s %s %d\n", hl_version(), HL_VERSION_STRING, HL_VERSION_NUMBER);
    return strcmp(hl_version(), HL_VERSION_STRING) != 0;
}
END
read -ra instrumented < <(grep -oE -- '-fsanitize=[a-z,]+' "$build/flags" | sort -u | tr '\n' ' ')
if "${CC:-gcc}" -std=c17 -Iinclude "${instrumented[@]}" -o "$scratch/program" "$scratch/program.c" "$library" >"$scratch/log" 2>&1; then
    LD_LIBRARY_PATH=$build "$scratch/program" >"$scratch/seen"
else
    sed 's/^/# /' "$scratch/log"
    : >"$scratch/seen"
fi
echo "$major.$minor.$patch $major.$minor.$patch $((major * 10000 + minor * 100 + patch))" >"$scratch/wanted"
same "header and library are of one release, and a program can see it"
result "the program asks for that version" \
    "$(readelf -VW "$scratch/program" | grep -q "Name: $version " && echo yes)"

# A library of another version, with the same name.
mkdir "$scratch/other"
echo 'const char *hl_version(void); const char *hl_version(void) { return "9.9.9"; }' >"$scratch/other.c"
echo 'HEADLIGHT_9 { global: hl_*; local: *; };' >"$scratch/other.map"
"${CC:-gcc}" -shared -fPIC -Wl,-soname,"libheadlight.so.$major" -Wl,--version-script="$scratch/other.map" \
    -o "$scratch/other/libheadlight.so.$major" "$scratch/other.c"
LD_LIBRARY_PATH=$scratch/other "$scratch/program" >"$scratch/out" 2>"$scratch/err"
result "it does not start with a library of another one" \
    "$([ $? -ne 0 ] && [ ! -s "$scratch/out" ] && grep -q "$version.* not found" "$scratch/err" && echo yes)"
finish
