#!/bin/bash
# gradient.sh - gradients of gates against PyTorch's, where Debian's python3-torch is there.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
plan 1

if ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    skipped "gradients of gates agree with PyTorch's" "no python3-torch"
else
    head -c 1000 models/text/alice.txt >"$scratch/text.txt"
    /usr/bin/python3 "$(dirname "$0")/gradient.py" "$HEADLIGHT" "$scratch/text.txt" 2>&1 || exit 1
fi
finish
