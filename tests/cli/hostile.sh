#!/bin/bash
# hostile.sh - foreign names and texts cannot control the terminal in any command (hostile.py).
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"

if ! python3 -c 'import pty, os; os.close(pty.openpty()[0])' 2>/dev/null; then
    plan 1
    skipped "hostile names on a terminal" "no pseudo-terminals here"
    finish
fi
exec python3 "$(dirname "$0")/hostile.py" "$HEADLIGHT"
