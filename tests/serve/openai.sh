#!/bin/bash
# openai.sh - npm's openai package against the server; prints TAP.  Skipped if npm could not install
# it.
set -u
here=$(dirname "$0")
export OMP_NUM_THREADS=1
if ! command -v node >/dev/null || [ ! -d "$here/node_modules/openai" ]; then
    echo "1..0 # SKIP no openai package: tools/deps check-openai installs it"
    exit 0
fi
exec node --test --test-reporter=tap "$here/openai.test.mjs"
