#!/bin/bash
# test_install.sh - make install puts everything in place, and a program can use it.
#
# $BUILD and $CC come from the Makefile.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
build=${BUILD:-build}
cc=${CC:-gcc}
unset MAKEFLAGS MAKELEVEL
root=$scratch/root

check "make install" make BUILD="$build" CC="$cc" PREFIX=/opt/hl DESTDIR="$root" install
for file in bin/headlight include/headlight.h include/headlight/base.h lib/libheadlight.a lib/libheadlight.so \
    lib/libheadlight.so.0 lib/pkgconfig/headlight.pc share/headlight/models/demo/model.safetensors \
    share/bash-completion/completions/headlight share/zsh/site-functions/_headlight \
    share/fish/vendor_completions.d/headlight.fish; do
    check "$file is there" test -e "$root/opt/hl/$file"
done
if command -v scdoc >/dev/null; then
    for page in man1/headlight.1 man1/headlight-verify.1 man3/headlight.3; do
        check "$page is there" grep -q '^\.TH' "$root/opt/hl/share/man/$page"
    done
fi
parts_stand_alone() {
    local part
    for part in "$root"/opt/hl/include/headlight/*.h; do
        "$cc" -std=c17 -Wall -Wextra -Werror -fsyntax-only -x c "$part" || return 1
    done
}
check "each part of the header can be included alone" parts_stand_alone
check "the program runs" "$root/opt/hl/bin/headlight" --version
# An installed program finds the models installed with it, before it checks where to write.
finds_models() {
    (cd "$scratch" && "$root/opt/hl/bin/headlight" demo -o /dev/null/demo) 2>&1 | grep 'demo: /dev/null/demo: Not a directory'
}
check "and finds the models that were installed" finds_models

# Prints the flags, with the staging folder before the paths.
flags() { # pkg-config option...
    PKG_CONFIG_PATH=$root/opt/hl/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root pkg-config "$@" headlight
}
compile() { # output pkg-config option...
    # shellcheck disable=SC2046
    "$cc" -o "$scratch/$1" examples/attention.c $(flags --cflags --libs "${@:2}") -lm
}
check "the example builds against the shared library" compile shared
check "and runs" env LD_LIBRARY_PATH="$root/opt/hl/lib" "$scratch/shared"
exported() {
    nm -D --defined-only "$root/opt/hl/lib/libheadlight.so" | awk '$2 ~ /[TDBR]/ { sub(/@@.*/, "", $3); print $3 }' >"$scratch/exported"
    ! grep -v '^hl_' "$scratch/exported"
    grep -qx hl_attention_forward "$scratch/exported" && ! grep -qx hl_fail "$scratch/exported"
}
check "only the public interface is exported" exported

# uninstall removes exactly what was installed: other files stay, even in headlight's folders.
others=(bin/other include/headlight/other.h lib/libheadlight.other share/headlight/other share/man/man1/other.1)
for file in "${others[@]}"; do
    echo other >"$root/opt/hl/$file"
done
check "make uninstall" make BUILD="$build" CC="$cc" PREFIX=/opt/hl DESTDIR="$root" uninstall
left() { [ "$(find "$root" ! -type d -printf '%P\n' | sort)" = "$(printf 'opt/hl/%s\n' "${others[@]}" | sort)" ]; }
check "leaves just what others put there" left
for file in "${others[@]}"; do
    rm "$root/opt/hl/$file"
done
check "uninstalling again is no error" make BUILD="$build" CC="$cc" PREFIX=/opt/hl DESTDIR="$root" uninstall
check "and leaves no file and no folder of ours" test -z "$(find "$root" ! -type d -o -name headlight -o -name 'demo*')"
finish
