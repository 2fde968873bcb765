#!/bin/bash
# test_layers.sh - tools/check_layers accepts what is allowed and reports what is not.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
tool=$PWD/tools/check_layers

# Makes a tree of one file with the given lines; runs the tool on it.
judge() { # file line...
    local file=$1
    shift
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree/src" "$scratch/tree/cli" "$scratch/tree/include" \
        "$(dirname "$scratch/tree/$file")"
    printf '%s\n' "$@" >"$scratch/tree/$file"
    "$tool" "$scratch/tree"
}

# Checks that the tool fails, and that its message has this in it.
objects() { # fragment file line...
    local fragment=$1
    shift
    ! judge "$@" >"$scratch/opinion" && grep -qF "$fragment" "$scratch/opinion"
}

check "system headers anywhere" judge src/base/a.c '#include <stdio.h>' '#include "headlight/base.h"'
check "own folder" judge src/base/a.c '#include "base/b.h"'
check "a lower folder" judge src/kernels/a.c '#include "base/b.h"'
check "serve may use prune" judge src/serve/a.c '#include "prune/b.h"'
check "base may not use kernels" objects "src/base may not use src/kernels" \
    src/base/a.c '#include "kernels/b.h"'
check "kernels may not use formats" objects "src/kernels may not use src/formats" \
    src/kernels/a.h '#include "formats/b.h"'
check "analysis may not use model" objects "src/analysis may not use src/model" \
    src/analysis/a.c '#include "model/b.h"'
check "file and line are named" objects "src/base/a.c:2:" \
    src/base/a.c '#include <stdio.h>' '#include "kernels/b.h"'
check "spaces do not hide an include" objects "may not use" src/base/a.c '  #  include  "kernels/b.h"'
check "nor do missing spaces" objects "may not use" src/base/a.c '#include"kernels/b.h"'
check "includes without a folder" objects "folder/name.h" src/base/a.c '#include "b.h"'
check "ways around the root" objects "may not use" src/base/a.c '#include "../kernels/b.h"'
check "folders deeper down" objects "src/kernels may not use src/model" \
    src/kernels/cuda/a.cu '#include "model/b.h"'
check "unknown folders" objects "not in the table" src/extra/a.c '#include <stdio.h>'
check "jansson in json.h" judge src/base/json.h '#include <jansson.h>'
check "jansson elsewhere" objects "only src/base/json.h cli/ may" src/formats/a.c '#include <jansson.h>'
check "cblas outside kernels" objects "only src/kernels/gemm.c may" src/model/a.c '#include <cblas.h>'
check "cli uses the public header" judge cli/a.c '#include "headlight.h"' '#include "b.h"' '#include <jansson.h>'
check "cli may not look inside" objects "cli/ may use only" cli/a.c '#include "base/status.h"'
check "the public header stands alone" objects "stands alone" include/headlight.h '#include "base/status.h"'
check "and so do its parts" objects "stands alone" include/headlight/model.h '#include "base/status.h"'
check "which use each other" judge include/headlight/model.h '#include "base.h"'
finish
