#!/bin/bash
# sampling.sh - the sampler's filters against PyTorch's, if Debian's python3-torch is installed.  A
# plain Python cannot load an instrumented library.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 1

library=$(dirname "$HEADLIGHT")/libheadlight.so
if ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    result "filters agree with PyTorch # SKIP no python3-torch" yes
elif nm -D "$library" | grep -qE '__(a|t)san_'; then
    result "filters agree with PyTorch # SKIP an instrumented library" yes
else
    /usr/bin/python3 "$(dirname "$0")/sampling.py" "$library" 2>&1 || exit 1
fi
finish
