#!/bin/bash
# test_docs.sh - links in the documents lead somewhere, and the README's C compiles.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

# Every relative link of a document names a file that exists.
links_hold() { # document
    local folder broken=0
    folder=$(dirname "$1")
    while read -r target; do
        [ -e "$folder/$target" ] || { echo "$1: $target" && broken=1; }
    done < <(grep -oE '\]\([^)#]+' "$1" | sed 's/^](//' | grep -v '://')
    return "$broken"
}
for document in README.md CONTRIBUTING.md CHANGELOG.md src/README.md doc/gallery.md doc/python.md doc/training.md python/README.md; do
    check "links of $document" links_hold "$document"
done

example() {
    awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$scratch/readme.c"
    grep -q hl_attention_forward "$scratch/readme.c" &&
        "${CC:-gcc}" -std=c17 -Wall -Wextra -Werror -Iinclude -c -o "$scratch/readme.o" "$scratch/readme.c"
}
check "the example in the README compiles" example

# Every picture of the gallery is the output of a command in it, and the other way round.
gallery() {
    grep -oE '\]\(gallery/[^)]+' doc/gallery.md | sed 's|^](|doc/|' | sort >"$scratch/shown"
    grep -oE -- '-o doc/gallery/[^ ]+' doc/gallery.md | sed 's/^-o //' | sort >"$scratch/made"
    [ -s "$scratch/made" ] && diff "$scratch/shown" "$scratch/made" &&
        [ "$(cat doc/gallery/* | wc -c)" -lt 600000 ]
}
check "the gallery has a command for every picture" gallery

# Targets that documents mention exist.
targets() {
    make help | awk '{ print $2 }' | sort -u >"$scratch/targets"
    grep -ohE '`?make [a-z-]+' README.md CONTRIBUTING.md | sed 's/^`//; s/^make //' | sort -u >"$scratch/named"
    ! grep -vxFf "$scratch/targets" "$scratch/named"
}
check "the targets that documents name exist" targets
finish
