#!/bin/bash
# python.sh - the Python package: tests/python, with numpy only.  A plain Python cannot load an
# instrumented library.  TEST_ARGUMENTS names some of the tests, such as test_model.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"

read -ra parts <<<"${TEST_ARGUMENTS:-}"
library=$(dirname "$HEADLIGHT")/libheadlight.so
if ! /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    plan 1
    skipped "the Python package" "no python3-numpy"
elif nm -D "$library" | grep -qE '__(a|t)san_'; then
    plan 1
    skipped "the Python package" "an instrumented library"
else
    HEADLIGHT=$HEADLIGHT HEADLIGHT_LIBRARY=$library exec /usr/bin/python3 -B "$(dirname "$0")/../python/run.py" "${parts[@]}"
fi
finish
