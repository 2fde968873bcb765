#!/bin/bash
# openblas.sh - products use one thread per call with any build of OpenBLAS: with its own threads,
# with OpenMP, or with neither; and without OpenBLAS.
#
# A small library replaces it.  Its cblas_sgemm multiplies by the definition and records whether it
# was called with one thread; its destructor writes down the settings that it received.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 10
read -ra compiler <<<"${CC:-gcc}" # may be two words, as "ccache gcc"

mkdir "$scratch/blas"
cat >"$scratch/blas.c" <<'END'
#include <stdio.h>
#include <stdlib.h>

static _Thread_local int omp_threads = 4; /* OpenMP: the number is the calling thread's own */
static int               own_threads = 4; /* OpenBLAS' own: one number for all */
static int               n_products, n_at_once, n_told, n_omp_told, n_left;

static int kind(void)
{
    return atoi(getenv("BLAS_PARALLEL"));
}

int   openblas_get_parallel(void) { return kind(); }
char *openblas_get_corename(void) { return "Stand-in"; }

void openblas_set_num_threads(int n)
{
    own_threads = n;
    __atomic_fetch_add(&n_told, 1, __ATOMIC_RELAXED);
}

int omp_get_max_threads(void) { return omp_threads; }

void omp_set_num_threads(int n)
{
    omp_threads = n;
    __atomic_fetch_add(&n_omp_told, 1, __ATOMIC_RELAXED);
    if (n == 4)
        __atomic_fetch_add(&n_left, 1, __ATOMIC_RELAXED);
}

void cblas_sgemm(int order, int a_turned, int b_turned, int m, int n, int k, float alpha, const float *a,
                 int a_stride, const float *b, int b_stride, float beta, float *c, int c_stride)
{
    int threads = kind() == 2 ? omp_threads : kind() == 1 ? own_threads : 1;

    __atomic_fetch_add(&n_products, 1, __ATOMIC_RELAXED);
    if (threads != 1)
        __atomic_fetch_add(&n_at_once, 1, __ATOMIC_RELAXED);
    if (order != 101 || a_turned != 111 || alpha != 1.0f || beta != 0.0f)
        abort();
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            double sum = 0.0;
            for (int l = 0; l < k; l++)
                sum += (double)a[(long)i * a_stride + l] *
                       (b_turned == 112 ? b[(long)j * b_stride + l] : b[(long)l * b_stride + j]);
            c[(long)i * c_stride + j] = (float)sum;
        }
    }
}

__attribute__((destructor)) static void say(void)
{
    FILE *file = fopen(getenv("BLAS_SAYS"), "w");

    if (file == NULL)
        return;
    fprintf(file, "products %d\nat once %d\ntold %d\nomp %s\n", n_products, n_at_once, n_told,
            n_omp_told == 0 ? "left alone" : n_omp_told == 2 * n_products && n_left == n_products ? "given back" : "lost");
    fclose(file);
}
END
"${compiler[@]}" -std=c17 -O2 -shared -fPIC -o "$scratch/blas/libopenblas.so.0" "$scratch/blas.c" || exit 1
cp "$scratch/blas/libopenblas.so.0" "$scratch/blas/libopenblas.so"

head -c 2000 models/text/alice.txt >"$scratch/text"
loss() { # AVX-512 has products of its own
    HEADLIGHT_BACKEND=${backend-} "$HEADLIGHT" eval models/demo "$scratch/text" --max-tokens 128 --context 64 --threads 3 --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["total"]["nats_per_token"])'
}
close_to() { # a b
    python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-4 * b)' "$1" "$2" && echo yes
}
says() { grep -qxE -- "$1" "$scratch/said" && echo yes; }

export BLAS_SAYS=$scratch/said
backend=$("$HEADLIGHT" --version | grep -o 'avx2\|neon' | head -1)
wanted=$(loss)

# OpenMP's number of threads is 1 during a product, and unchanged afterwards.
seen=$(LD_LIBRARY_PATH=$scratch/blas BLAS_PARALLEL=2 loss)
result "OpenMP: the loss is the same" "$(close_to "$seen" "$wanted")"
result "OpenMP: there were products, each on one thread" \
    "$([ "$(says 'products [1-9][0-9]*')$(says 'at once 0')" = yesyes ] && echo yes)"
result "OpenMP: the caller's number of threads is given back" "$(says 'omp given back')"
result "OpenMP: OpenBLAS' own number, which others share, is left alone" "$(says 'told 0')"

seen=$(LD_LIBRARY_PATH=$scratch/blas BLAS_PARALLEL=1 loss)
result "its own threads: the loss is the same" "$(close_to "$seen" "$wanted")"
result "its own threads: told once, products on one" \
    "$([ "$(says 'products [1-9][0-9]*')$(says 'at once 0')$(says 'told 1')" = yesyesyes ] && echo yes)"
result "its own threads: OpenMP is left alone" "$(says 'omp left alone')"

seen=$(LD_LIBRARY_PATH=$scratch/blas BLAS_PARALLEL=0 loss)
result "one thread: nobody is told anything" \
    "$([ "$(close_to "$seen" "$wanted")$(says 'told 0')$(says 'omp left alone')" = yesyesyes ] && echo yes)"

# Without OpenBLAS: the files with its names are empty.
for name in "$scratch"/blas/*; do : >"$name"; done
seen=$(LD_LIBRARY_PATH=$scratch/blas loss)
result "a library that cannot be opened: another of its names, or none, and the same loss" "$(close_to "$seen" "$wanted")"
printf 'int nothing;\n' >"$scratch/nothing.c"
for name in "$scratch"/blas/*; do
    "${compiler[@]}" -shared -fPIC -o "$name" "$scratch/nothing.c" || exit 1
done
seen=$(LD_LIBRARY_PATH=$scratch/blas loss)
result "a library without products: the same loss" "$(close_to "$seen" "$wanted")"
finish
