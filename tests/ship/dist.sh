#!/bin/bash
# dist.sh - the release tarball builds, runs, installs and pip-installs without git and network.
#
# make check-dist runs it; it compiles everything once.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/../tools/lib/tap.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS BUILD
version=$(make -s --no-print-directory version)
release=headlight-$version
tree=$scratch/$release

# A git that only records that it was called, and no network except the machine itself.
mkdir "$scratch/bin"
# shellcheck disable=SC2016 # it is that git's $0
printf '#!/bin/sh\necho "$0 $*" >>%s/git-asked\nexit 1\n' "$scratch" >"$scratch/bin/git"
chmod +x "$scratch/bin/git"
alone() { # command...
    (cd "$tree" && PATH=$scratch/bin:$PATH unshare --net --map-root-user -- "$@")
}

check "make dist" tools/dist "$release" "$scratch"
check "it is a tarball of one folder" bash -c "tar -tf '$scratch/$release.tar.xz' | cut -d / -f 1 | sort -u | diff - <(echo $release)"
tar -C "$scratch" -xf "$scratch/$release.tar.xz"
manifest() { (cd "$tree" && find . -type f ! -name MANIFEST -printf '%P\n' | LC_ALL=C sort | diff MANIFEST -); }
check "with the files that its MANIFEST lists" manifest
check "there is no network" fails alone bash -c 'exec 3<>/dev/tcp/deb.debian.org/80'
check "it builds" alone make -j"$(nproc)"
check "git was not asked for" test ! -e "$scratch/git-asked"
check "the program says the version" bash -c "'$tree/build/headlight' --version | grep -qx 'headlight $version'"
check "its kernels agree with the stored cases" alone build/headlight verify --quiet tests/data/attention/full.safetensors
check "make install" alone make install PREFIX=/usr DESTDIR="$scratch/root"
check "the installed program runs" "$scratch/root/usr/bin/headlight" info "$scratch/root/usr/share/headlight/models/demo"
if /usr/bin/python3 -c 'import pip, numpy' 2>/dev/null; then
    check "pip install ." alone /usr/bin/python3 -m pip install --quiet --no-deps --no-index --no-input \
        --disable-pip-version-check --target "$scratch/python" .
    check "import headlight" env -C "$scratch" PYTHONPATH="$scratch/python" \
        /usr/bin/python3 -B -c "import headlight; assert headlight.version() == '$version'"
fi
again() {
    mkdir "$scratch/again" && (cd "$tree" && PATH=$scratch/bin:$PATH tools/dist "$release" "$scratch/again") &&
        cmp "$scratch/$release.tar.xz" "$scratch/again/$release.tar.xz"
}
check "and it makes the same tarball again" again
finish
