#!/bin/bash
# run.sh - runs the commands in documents and compares their output: tools/check_docs.
#
# $HEADLIGHT and $DOCUMENTS come from the Makefile.
set -u
# shellcheck disable=SC2086 # a list
exec python3 -B tools/check_docs --run "${HEADLIGHT:-build/headlight}" ${DOCUMENTS:-README.md doc/*.md}
