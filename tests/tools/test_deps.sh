#!/bin/bash
# test_deps.sh - tools/deps finds out what is missing and requests exactly that.
#
# The path has replacements of dpkg-query, apt-get, npm, sudo and id, which only print how they were
# called: nothing is installed.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
tool=$PWD/tools/deps
fake=$scratch/bin
mkdir -p "$fake"

command_saying() { # name line...
    printf '#!/bin/sh\n' >"$fake/$1"
    printf '%s\n' "${@:2}" >>"$fake/$1"
    chmod +x "$fake/$1"
}

# Everything except the packages in $absent counts as installed.
# shellcheck disable=SC2016
command_saying dpkg-query 'for word in "$@"; do case " $absent - -W -f " in *" $word "*) ;;' \
    '*) echo "$word installed" ;; esac; done'
# shellcheck disable=SC2016
command_saying apt-get 'echo "apt-get $*" >>"$log"; case "$1 $absent " in "install "*" refused "*) exit 1 ;; esac'
# What npm installs is absent if $absent has "peers".
# shellcheck disable=SC2016
command_saying npm 'case "$1 $absent " in "ls "*" peers "*) exit 1 ;; ls*) exit 0 ;; esac' \
    'echo "npm $*" >>"$log"; case " $absent " in *" offline "*) exit 1 ;; esac'
# shellcheck disable=SC2016
command_saying sudo 'echo sudo >>"$log"; exec "$@"'
# shellcheck disable=SC2016
command_saying id 'echo "$user"'

deps() { # absent user argument...
    : >"$scratch/log"
    absent=$1 user=$2 log=$scratch/log PATH=$fake:$PATH "$tool" "${@:3}"
}

# Packages from PyPI lie in a folder of the build, which this test must not touch: check-all, which
# installs everything else.
is_silent() { [ -z "$(deps '' 0 check-all 2>&1)" ] && [ ! -s "$scratch/log" ]; }
check "nothing to do: says and does nothing" is_silent

dry() { [ "$(deps 'libcmocka-dev g++' 0 check --dry-run)" = "g++
libcmocka-dev" ] && [ ! -s "$scratch/log" ]; }
check "--dry-run lists what is missing and installs nothing" dry

not_needed() { [ -z "$(deps libcmocka-dev 0 demo --dry-run)" ]; }
check "other targets' packages are not asked for" not_needed

as_root() {
    deps libjansson-dev 0 build
    cat "$scratch/log"
    grep -q '^apt-get update' "$scratch/log" && ! grep -q sudo "$scratch/log" &&
        grep -qE '^apt-get install .* libjansson-dev$' "$scratch/log"
}
check "root installs just what is missing" as_root

as_user() {
    deps libjansson-dev 1000 build
    [ "$(grep -c sudo "$scratch/log")" -eq 2 ]
}
check "others use sudo" as_user

# With a copy of the tool, so that no package is there.
dry_peers() {
    mkdir -p "$scratch/copy/tools" && cp "$tool" "$scratch/copy/tools/"
    tool=$scratch/copy/tools/deps deps '' 0 bench --dry-run >"$scratch/said"
    cat "$scratch/said"
    [ "$(grep -c '^PyPI: ' "$scratch/said")" -ge 5 ] && grep -qx 'PyPI: torch==2.13.0' "$scratch/said" &&
        [ ! -s "$scratch/log" ] && [ ! -e "$scratch/copy/build" ]
}
check "--dry-run names the peers of bench" dry_peers

no_peers() { [ -z "$(deps ' peers' 0 check)" ] && [ ! -s "$scratch/log" ]; }
check "other targets need no peers" no_peers

page() {
    deps ' peers' 0 check-web
    cat "$scratch/log"
    grep -qE '^npm install --no-save .*web .*--ignore-scripts' "$scratch/log" && ! grep -q apt-get "$scratch/log"
}
check "check-web installs what the lock file says with npm" page

check "check-web goes on when npm cannot" deps ' peers offline' 0 check-web

dry_web() { [ "$(deps ' peers' 0 web --dry-run)" = 'npm: web/package.json' ] && [ ! -s "$scratch/log" ]; }
check "--dry-run names the page's packages" dry_web

no_browser() {
    deps 'chromium-headless-shell refused' 0 check-web 2>"$scratch/said"
    status=$?
    cat "$scratch/said"
    grep -q 'could not install chromium-headless-shell' "$scratch/said" && [ "$status" -eq 0 ]
}
command -v chromium >/dev/null || check "check-web goes on when there is no browser to install" no_browser

default_target() { [ "$(deps make 0 --dry-run)" = make ]; }
check "the default target is build" default_target

for target in build demo check check-all check-web web bench fuzz deb fresh all; do
    check "target $target is known" deps '' 0 "$target" --dry-run
done
check "unknown targets are refused" fails deps '' 0 nonsense
check "unknown options are refused" fails deps '' 0 --nonsense

# Makes a path with the tools that the script needs, but without apt.
without_apt() {
    local name
    mkdir -p "$scratch/plain"
    for name in sh sort printf echo; do
        ln -sf "$(command -v "$name" || echo "/bin/$name")" "$scratch/plain/$name"
    done
    PATH=$scratch/plain "$tool" build 2>&1 | grep -q libjansson-dev
}
check "without apt the list is printed" without_apt
finish
