#!/bin/bash
# classes.sh - every class of transformers that can be built from a small config, with headlight's
# attention and with its own: classes.py, in the environment of newest.sh.
HEADLIGHT_PYTHON_RUN=tests/python/classes.py exec "$(dirname "$0")/newest.sh" --tap "$@"
