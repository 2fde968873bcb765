#!/bin/bash
# newest.sh - tests/python with PyTorch and transformers from PyPI, in a virtual environment in
# build/. Skipped, with a message, if they are missing or PyPI cannot be reached.
set -u
cd "$(dirname "$0")/../.." || exit 1

env=${HEADLIGHT_PYTHON_ENV:-build/python_env}
wanted=(torch==2.13.0 transformers==5.23.0 numpy pandas nbclient ipykernel accelerate mypy typing_extensions)
library=$(realpath "$(dirname "${HEADLIGHT:-build/headlight}")/libheadlight.so")

# Checks for exactly this PyTorch: other versions may bring gigabytes of CUDA.
installed() {
    "$env/bin/python" -c 'import sys, importlib.metadata as m
for want in sys.argv[1:]:
    name, _, version = want.partition("==")
    have = m.version(name).split("+")[0]
    if version and have != version: sys.exit(1)' "${wanted[@]}" 2>/dev/null
}

if ! installed; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    { [ -x "$env/bin/pip" ] || python3 -m venv "$env"; } >"$log" 2>&1 &&
        "$env/bin/pip" install -q --disable-pip-version-check --retries 1 "${wanted[@]}" >>"$log" 2>&1
    if ! installed; then
        sed 's/^/# /' "$log" | tail -3
        echo "1..0 # SKIP the Python package with ${wanted[*]}: PyPI cannot be reached"
        exit 0
    fi
fi
HEADLIGHT_LIBRARY=$library exec "$env/bin/python" -B "${HEADLIGHT_PYTHON_RUN:-tests/python/run.py}" "$@"
