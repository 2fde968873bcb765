#!/bin/bash
# test_docs.sh - links in the documents are valid, their commands are tested, and generated pages
# are current.  make check-docs runs the commands.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

# Every relative link of a document names a file, and a heading in it.
for document in README.md CONTRIBUTING.md CHANGELOG.md {src,python,web,bench,bench/ladder,models}/README.md doc/*.md; do
    check "links of $document" python3 -B tools/check_docs --links "$document"
done

example() {
    awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$scratch/readme.c"
    grep -q hl_attention_forward "$scratch/readme.c" &&
        "${CC:-gcc}" -std=c17 -Wall -Wextra -Werror -Iinclude -c -o "$scratch/readme.o" "$scratch/readme.c"
}
check "the example in the README compiles" example

# Checks that every picture of the gallery is the output of a command in it, and vice versa.
gallery() {
    grep -oE '\]\(gallery/[^)]+' doc/gallery.md | sed 's|^](|doc/|' | sort >"$scratch/shown"
    grep -oE -- '-o doc/gallery/[^ ]+' doc/gallery.md | sed 's/^-o //' | sort >"$scratch/made"
    [ -s "$scratch/made" ] && diff "$scratch/shown" "$scratch/made" &&
        [ "$(cat doc/gallery/* | wc -c)" -lt 600000 ]
}
check "the gallery has a command for every picture" gallery

api() { tools/api_page | diff doc/api.md - || { echo "make api brings it up to date" && return 1; }; }
check "doc/api.md is the header's" api
metrics() {
    tools/metrics_page "$HEADLIGHT" | diff doc/metrics.md - || { echo "make metrics brings it up to date" && return 1; }
}
check "doc/metrics.md has the definitions of the program" metrics
every_function() {
    grep -ohE '\bhl_[a-z0-9_]+\(' include/headlight/*.h | sort -u >"$scratch/in_header"
    nm -D --defined-only "${BUILD:-build}/libheadlight.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 "(" }' | sort >"$scratch/exported"
    comm -12 "$scratch/in_header" "$scratch/exported" >"$scratch/functions"
    [ "$(wc -l <"$scratch/functions")" -gt 200 ] && while read -r name; do
        grep -qF "$name" doc/api.md || { echo "doc/api.md leaves out $name" && return 1; }
    done <"$scratch/functions"
}
[ ! -e "${BUILD:-build}/libheadlight.so" ] || check "and has every function that the library exports" every_function

# Checks that every page of doc/ is listed in its table.
led_to() {
    for document in doc/*.md; do
        [ "$document" = doc/README.md ] || grep -qF "](${document#doc/})" doc/README.md ||
            { echo "doc/README.md does not lead to $document" && return 1; }
    done
}
check "doc/README.md leads to every page" led_to

# Commands in documents are run by make check-docs or say why not, and their options exist.
"${HEADLIGHT:-build/headlight}" help --table >"$scratch/table"
for document in README.md CONTRIBUTING.md doc/*.md; do
    check "the commands of $document are tested" python3 -B tools/check_docs --static "$scratch/table" "$document"
done

# Errors that the checker itself must notice.
write() { cat >"$scratch/page.md"; }
static() { python3 -B tools/check_docs --static "$scratch/table" "$scratch/page.md"; }
write <<'END'
```
headlight show x.profile
```
END
check "a command that is neither run nor marked is found" fails static
write <<'END'
[nowhere](#no-such-heading)
END
check "a link to a heading that does not exist is found" fails python3 -B tools/check_docs --links "$scratch/page.md"
write <<'END'
`headlight show --no-such-option`
END
check "an option that does not exist is found" fails static
write <<'END'
```
make no-such-target
```
END
check "a target that does not exist is found" fails static
run_page() { python3 -B tools/check_docs --run "${HEADLIGHT:-build/headlight}" "$scratch/page.md"; }
write <<'END'
```console
$ printf 'one 1.25\ntwo\nthree 17\n'
one 1.24
...
three 17
$ echo "took 3.1 s"
took ... s
```
END
check "output as shown, but for a last digit and what is left out, passes" run_page
write <<'END'
```console
$ echo "17 heads, 1.27"
17 heads, 1.24
```
END
check "another number is found" fails run_page
write <<'END'
```console
$ echo "17 heads"
18 heads
```
END
check "another count is found" fails run_page
write <<'END'
```console
$ printf 'one\ntwo\n'
one
```
END
check "a line too many is found" fails run_page
write <<'END'
```console
$ false
...
```
END
check "a command that fails is found, whatever is left out" fails run_page

# Checks that make targets in documents exist.
targets() {
    make help | awk '{ print $2 }' | sort -u >"$scratch/targets"
    grep -ohE '`?make [a-z-]+' README.md CONTRIBUTING.md | sed 's/^`//; s/^make //' | sort -u >"$scratch/named"
    ! grep -vxFf "$scratch/targets" "$scratch/named"
}
check "the targets that documents name exist" targets
finish
