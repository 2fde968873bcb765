#!/bin/bash
# plug_in.sh - libraries are loaded from the program's folder, never from the working directory.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 3

program=$(realpath "$HEADLIGHT")
model=$(realpath tests/data/families/llama3)
mkdir -p "$scratch/here/headlight" "$scratch/bin/headlight"
cat >"$scratch/planted.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void)
{
    FILE *file = fopen(getenv("PLANTED"), "w");
    if (file != NULL)
        fclose(file);
}
END
"${CC:-gcc}" -shared -fPIC -o "$scratch/here/headlight/libheadlight_cuda.so" "$scratch/planted.c" || exit 1
cp "$scratch/here/headlight/libheadlight_cuda.so" "$scratch/here/libheadlight_cuda.so"
# The program is alone in its folder.
cp "$program" "$scratch/bin/headlight-test"
export PLANTED=$scratch/planted

ask() { # folder of the program is on the PATH; it is started by its name
    (cd "$scratch/here" && PATH=$scratch/bin:$PATH headlight-test eval "$model" "$model/config.json" --device cuda) \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
}

ask
expect_line "there is no library" 3 'libheadlight_cuda.so was not found'
result "one that lies in the working directory is not opened" "$([ ! -e "$PLANTED" ] && echo yes)"

# Beside the program the library is loaded: this shows that loading the other one would have been
# noticed.
cp "$scratch/here/libheadlight_cuda.so" "$scratch/bin/headlight/"
ask
result "one that lies beside the program is" "$([ -e "$PLANTED" ] && echo yes)"
finish
