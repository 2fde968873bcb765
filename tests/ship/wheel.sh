#!/bin/bash
# wheel.sh - the Python package as a user gets it: auditwheel finds the wheel's tag right, the source
# distribution builds the C sources, and the wheel works in a bare Debian and a bare Ubuntu.
#
# make check-wheel runs it.  The systems are made by debootstrap (root only), have python3-venv and no
# package of headlight's, and are kept in build/systems for the next run.  DEBIAN_MIRROR and UBUNTU_MIRROR
# name other mirrors than debootstrap's own.  HEADLIGHT_WHEEL names a wheel that was built already.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/../tools/lib/tap.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS
systems=${HEADLIGHT_SYSTEMS:-build/systems}
mkdir -p "$systems"

skip() { # name reason
    tests_run=$((tests_run + 1))
    echo "ok $tests_run - $1 # SKIP $2"
}

[ -n "${HEADLIGHT_WHEEL:-}" ] || check "make wheel" make wheel
wheel=${HEADLIGHT_WHEEL:-$(ls -t build/wheel/headlight-*.whl | head -n 1)}

# ------------------------------------------------------------------ what it says of itself

python3 -m venv "$scratch/venv"
if "$scratch/venv/bin/pip" install -q --retries 1 auditwheel >"$scratch/pip" 2>&1; then
    tag_is_right() {
        "$scratch/venv/bin/auditwheel" show "$wheel" | tr '\n' ' ' >"$scratch/audit"
        cat "$scratch/audit"
        tag=$(basename "$wheel" .whl)
        grep -q "consistent with the following platform tag: \"${tag##*-}\"" "$scratch/audit"
    }
    check "auditwheel finds the tag right" tag_is_right
else
    skip "auditwheel" "PyPI cannot be reached"
fi

metadata_is_complete() {
    unzip -p "$wheel" '*.dist-info/METADATA' >"$scratch/metadata" || return 1
    for field in Name Version Summary License Keywords Classifier Requires-Python Requires-Dist Provides-Extra; do
        grep -q "^$field: ." "$scratch/metadata" || { echo "no $field" && return 1; }
    done
    unzip -p "$wheel" '*.dist-info/entry_points.txt' | grep -qx 'headlight = headlight.__main__:main'
}
check "its metadata are complete, with a console script" metadata_is_complete

# ------------------------------------------------------------------ the source distribution

builds_from_source() {
    python3 -B python/build_package.py --sdist "$scratch/sdist" || return 1
    "$scratch/venv/bin/pip" wheel -q --no-deps --no-index --no-build-isolation -w "$scratch/built" \
        "$scratch"/sdist/headlight-*.tar.gz || return 1
    unzip -l "$scratch"/built/headlight-*.whl | grep -q headlight/libheadlight.so
}
check "pip builds a wheel with the library from the source distribution" builds_from_source

# ------------------------------------------------------------------ bare systems

cat >"$scratch/use.py" <<'PYTHON'
import subprocess, sys
import numpy as np
import headlight

random = np.random.default_rng(0)
q, k, v = (random.standard_normal((1, 2, 9, 16)).astype(np.float32) for _ in range(3))
found = headlight.attention(q, k, v, causal=True)
s = np.where(np.tril(np.ones((9, 9), bool)), q @ k.transpose(0, 1, 3, 2) / 4.0, -np.inf)
p = np.exp(s - s.max(-1, keepdims=True))
p /= p.sum(-1, keepdims=True)
wanted = -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1)
assert abs(found.out - p @ v).max() < 1e-5 and abs(found.entropy - wanted).max() < 1e-5
profile = headlight.measure("/w/demo", "Alice was beginning to get very tired of sitting by her sister. " * 20)
assert profile.n_layers == 8 and np.isfinite(profile.entropy.values).all()
page = headlight.show(profile)
assert "<svg" in page.svg and "<text" in page.svg and len(page.html) > 10000
profile.plot("/w/heads.png")
profile.save("/w/a.profile")
assert "layers x heads: 8 x 8" in headlight.run("show", "/w/a.profile")
for command in (["headlight"], [sys.executable, "-m", "headlight"]):
    assert "headlight" in subprocess.run([*command, "--version"], check=True, capture_output=True, text=True).stdout
with open("/proc/self/maps") as file:
    theirs = {line.split()[-1] for line in file if "/lib" in line and ("cairo" in line or "headlight" in line)}
assert all("/w/venv/" in path for path in theirs), theirs
print("import, attention, measure, show: fine on Python", sys.version.split()[0])
PYTHON

# A folder with the system NAME; false where debootstrap or its mirror is missing.
make_system() { # name suite mirror script keys
    [ ! -e "$systems/$1/.ready" ] || return 0
    command -v debootstrap >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    rm -rf "${systems:?}/$1"
    local check_signature=--no-check-gpg # Debian has no package with the keys of Ubuntu
    [ ! -e "$5" ] || check_signature=--force-check-gpg
    debootstrap "$check_signature" --variant=minbase --include=python3,python3-venv \
        "$2" "$systems/$1" "$3" "$4" >"$scratch/$1.log" 2>&1 || return 1
    touch "$systems/$1/.ready"
}

# numpy for the system's Python, fetched here: nothing in there reaches a network.
fetch_numpy() { # root
    local version
    version=$(chroot "$1" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') &&
        "$scratch/venv/bin/pip" download -q --retries 1 --only-binary=:all: --python-version "$version" \
            --no-deps -d "$1/w" numpy
}

works_in() { # root
    cp "$wheel" "$1/w/" && cp -r models/demo "$1/w/demo" && cp "$scratch/use.py" "$1/w/" &&
        unshare --mount --pid --fork --mount-proc="$1/proc" chroot "$1" env -i HOME=/root LANG=C.UTF-8 \
            PATH=/w/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -ec '
            ! dpkg -l | grep -E "^ii +[^ ]*-dev[: ]"
            python3 -m venv /w/venv
            pip install -q --no-index --find-links /w headlight numpy
            cd /w && python3 use.py'
}

bare_system() { # name suite mirror script keys
    local root=$systems/$1
    if ! make_system "$@"; then
        skip "the wheel in a bare $1" "no root, no debootstrap, or its mirror cannot be reached"
        return
    fi
    rm -rf "$root/w" && mkdir "$root/w"
    if ! fetch_numpy "$root" >"$scratch/pip" 2>&1; then
        skip "the wheel in a bare $1" "PyPI cannot be reached"
        return
    fi
    check "the wheel in a bare $1 ($2): import, attention, measure, show" works_in "$root"
    rm -rf "$root/w"
}
scripts=/usr/share/debootstrap/scripts
bare_system Debian bookworm "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" "$scripts/sid" \
    /usr/share/keyrings/debian-archive-keyring.gpg
# debootstrap may not know a newer Ubuntu by name; all of them are made by one script.
bare_system Ubuntu noble "${UBUNTU_MIRROR:-}" "$scripts/gutsy" \
    /usr/share/keyrings/ubuntu-archive-keyring.gpg
finish
