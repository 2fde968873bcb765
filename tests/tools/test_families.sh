#!/bin/bash
# test_families.sh - the page of families and the README's number are those of the tables.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

check "doc/families.md is current, and the README's number" tools/families_page --check

# The check must notice a family that the page lacks.
stale() {
    local copy
    copy=$(mktemp -d)
    mkdir -p "$copy/tools" && cp tools/families_page "$copy/tools" && cp -r src tests doc README.md "$copy" 2>/dev/null
    sed -i '/| llama |/d' "$copy/doc/families.md"
    "$copy/tools/families_page" --check 2>/dev/null && { rm -rf "$copy"; return 1; }
    rm -rf "$copy"
}
check "a page without a family is noticed" stale
finish
