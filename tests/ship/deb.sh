#!/bin/bash
# deb.sh - the Debian packages: they build, lintian finds nothing, and each has the right contents.
#
# make check-deb runs it; without CUDA=1 it leaves headlight-cuda out.  HEADLIGHT_DEB names a folder
# with packages that were built already.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/../tools/lib/tap.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS
version=$(make -s --no-print-directory version)
folder=${HEADLIGHT_DEB:-build/deb}
if ! command -v dpkg-buildpackage >/dev/null || ! command -v lintian >/dev/null; then
    echo "1..0 # SKIP no dpkg-buildpackage, or no lintian"
    exit 0
fi

make_packages() {
    if [ "${CUDA:-}" = 1 ]; then
        make deb BUILD=build
    else
        make deb BUILD=build NVCC=
    fi
}
[ -n "${HEADLIGHT_DEB:-}" ] || check "make deb" make_packages
says_nothing() {
    lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
        "$folder"/*.changes
}
check "lintian has nothing to say" says_nothing

deb() { # name
    echo "$folder/$1_$version-1_$(dpkg --print-architecture).deb"
}
holds() { # package pattern...
    local package=$1 pattern
    shift
    dpkg-deb -c "$(deb "$package")" | awk '{ print $6 }' >"$scratch/files" || return 1
    for pattern in "$@"; do
        grep -qE "^\\.$pattern\$" "$scratch/files" || { echo "$package: no $pattern" && return 1; }
    done
}
check "headlight has the program, pages, completions and models" holds headlight /usr/bin/headlight \
    /usr/share/man/man1/headlight-measure.1.gz /usr/share/bash-completion/completions/headlight \
    /usr/share/zsh/vendor-completions/_headlight /usr/share/fish/vendor_completions.d/headlight.fish \
    /usr/share/headlight/models/demo/model.safetensors /usr/share/headlight/models/text/alice.txt
check "headlight has the unit of systemd" holds headlight "(/usr)?/lib/systemd/system/headlight.service"
stays_off() { # debian-installed: debhelper asks this before it enables a unit that its owner may
              # have disabled
    dpkg-deb -e "$(deb headlight)" "$scratch/control" && grep -q debian-installed "$scratch/control/postinst"
}
check "and does not enable it" stays_off
unit_is_right() {
    dpkg-deb -x "$(deb headlight)" "$scratch/unit" || return 1
    sed "s|/usr/bin/env headlight|$scratch/unit/usr/bin/headlight|" \
        "$(find "$scratch/unit" -name headlight.service)" >"$scratch/headlight.service"
    systemd-analyze verify --man=no "$scratch/headlight.service"
}
if command -v systemd-analyze >/dev/null; then
    check "which systemd understands" unit_is_right
fi
check "libheadlight0 has the library" holds libheadlight0 "/usr/lib/[^/]*/libheadlight.so.0"
check "libheadlight-dev has what compiling takes" holds libheadlight-dev /usr/include/headlight.h \
    /usr/include/headlight/attention.h "/usr/lib/[^/]*/libheadlight.a" "/usr/lib/[^/]*/libheadlight.so" \
    "/usr/lib/[^/]*/pkgconfig/headlight.pc"
if [ "${CUDA:-}" = 1 ]; then
    check "headlight-cuda has the GPU's part" holds headlight-cuda "/usr/lib/[^/]*/headlight/libheadlight_cuda.so"
    opens() { # only the library can find out which GPU there is
        dpkg-deb -x "$(deb headlight-cuda)" "$scratch/root"
        LD_LIBRARY_PATH=$(echo "$scratch"/root/usr/lib/*) "$scratch/root/usr/bin/headlight" \
            generate models/demo He -n 1 --device cuda >"$scratch/said" 2>&1
        ! grep -q 'no libheadlight_cuda' "$scratch/said" && grep -i cuda "$scratch/said"
    }
fi
depends() { dpkg-deb -f "$(deb headlight)" Depends | grep -qF "libheadlight0 (= $version-1)"; }
check "the program asks for its library, of the same version" depends

# Unpacked together, the packages work.
runs() {
    for package in headlight libheadlight0; do
        dpkg-deb -x "$(deb "$package")" "$scratch/root" || return 1
    done
    LD_LIBRARY_PATH=$(echo "$scratch"/root/usr/lib/*) "$scratch/root/usr/bin/headlight" \
        info "$scratch/root/usr/share/headlight/models/demo"
}
check "unpacked, the program runs" runs
if [ "${CUDA:-}" = 1 ]; then
    check "and finds the GPU's part" opens
fi
finish
