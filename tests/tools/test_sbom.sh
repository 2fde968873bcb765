#!/bin/bash
# test_sbom.sh - the list of dependencies is current and complete, and the version is defined in one
# place.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
list=packaging/dependencies.tsv

current() { # file option...
    tools/sbom "${@:2}" | diff "$1" - || { echo "make sbom brings it up to date" && return 1; }
}
check "doc/sbom.spdx.json is current" current doc/sbom.spdx.json
check "doc/dependencies.md is current" current doc/dependencies.md --table

# SPDX: required fields, and identifiers that exist and are unique.
well_formed() {
    python3 - doc/sbom.spdx.json <<'END'
import json, sys
spdx = json.load(open(sys.argv[1]))
names = [package["SPDXID"] for package in spdx["packages"]]
assert spdx["spdxVersion"] == "SPDX-2.3" and len(set(names)) == len(names) > 40
for package in spdx["packages"]:
    assert package["licenseDeclared"] not in ("", "NOASSERTION"), package["name"]
known = {"SPDXRef-DOCUMENT", *names}
for relation in spdx["relationships"]:
    assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= known, relation
assert len(spdx["relationships"]) == len(names)
END
}
check "and well formed" well_formed

# Checks that every library that the Makefile links, and every package that tools/deps installs, is
# listed.
whole() {
    packages=$(sed -n '/^fonts=/,/^browser=/p' tools/deps)
    (
        eval "$packages"
        # shellcheck disable=SC2154,SC2086 # set by what was read
        printf '%s\n' $check_all $bench $openai $deb $fresh $web $browser
    ) | sort -u >"$scratch/wanted"
    grep -v '^#' "$list" | cut -f 5 | tr ' ' '\n' | sort -u >"$scratch/listed"
    [ "$(wc -l <"$scratch/wanted")" -gt 40 ] && ! grep -vxFf "$scratch/listed" "$scratch/wanted"
}
check "every package of tools/deps is listed" whole
peers() {
    for folder in tests/serve; do
        python3 - "$folder" <<'END' || return 1
import json, sys
for name, version in json.load(open(sys.argv[1] + "/package.json"))["dependencies"].items():
    print(f"{name}\t{version}\t")
END
    done | while read -r line; do grep -qF "$line" "$list" || { echo "not listed: $line" && return 1; }; done
}
check "and what npm installs" peers

# On Debian 12 the versions are those of the installed packages, without Debian's part.  A machine
# may be one point release behind.
versions() {
    local wrong=0 name version package installed
    while IFS=$'\t' read -r name version _ _ package _; do
        case $package$version in -* | npm* | nodejs* | *-) continue ;; esac
        installed=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "${package%% *}" 2>/dev/null) || continue
        [ "${installed%% *}" = installed ] || continue
        installed=$(echo "${installed#* }" | sed -E 's/^[0-9]+://; s/[-+~].*//')
        case $version in "$installed" | "$installed".*) continue ;; esac
        [ "${version%.*}" = "${installed%.*}" ] && dpkg --compare-versions "$installed" lt "$version" && continue
        echo "$name: $version, installed $installed" && wrong=1
    done < <(grep -v '^#' "$list")
    return "$wrong"
}
if grep -qs 'VERSION_ID="12"' /etc/os-release && grep -qs '^ID=debian' /etc/os-release; then
    check "versions are Debian 12's" versions
fi

# The version is defined in include/headlight/base.h, as three macros; everything else reads them.
version=$(make -s --no-print-directory version)
one_place() {
    [ -n "$version" ] && ! grep -rnF "$version" --include='*.c' --include='*.h' --include='*.py' --include='*.toml' \
        --include='*.in' --include='*.scd' --include='Makefile' src cli include python packaging tools headlight.pc.in \
        pyproject.toml doc/man Makefile
}
check "the version stands in the header alone" one_place
asked() { [ "$("${HEADLIGHT:-build/headlight}" --version | head -n 1)" = "headlight $version" ]; }
check "and the program says it" asked
finish
