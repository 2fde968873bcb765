#!/bin/bash
# gradient.sh - gradients of gates, and rankers made of gradients and of what heads write, against
# PyTorch's, if Debian's python3-torch is installed.  Other families' gradients are compared with
# differences of the loss (test_backward.c).
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
export OMP_NUM_THREADS=1
shared=${HEADLIGHT_SHARED:-../shared}/golden/families
own=(models/demo tests/data/families/{llama3,gpt_neox,starcoder2,phi3})
others=(opt llama mistral qwen2 qwen3 granite gemma2)
plan $((${#own[@]} + ${#others[@]}))

models=()
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    why="no shared models"
    models=("${own[@]}")
    [ -d "$shared" ] && models+=("${others[@]/#/$shared/}")
    head -c 1000 models/text/alice.txt | iconv -c -f UTF-8 -t ASCII >"$scratch/text.txt"
    /usr/bin/python3 "$(dirname "$0")/gradient.py" "$HEADLIGHT" "$scratch/text.txt" "${models[@]}" 2>&1 ||
        failed=1
    number=${#models[@]}
else
    why="no python3-torch"
fi
all=("${own[@]##*/}" "${others[@]}")
for name in "${all[@]:number}"; do
    skipped "$name: gradients of gates, and scores made of them and of outputs, agree with PyTorch's" "$why"
done
finish
