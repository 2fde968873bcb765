/* materialized.c - causal attention with its matrix, in blocks of rows.
 *
 * A block of ROWS rows sees the keys up to its own end.  One thread takes a block through all four
 * steps while it is in cache, which is faster for this method than four passes over S^2 numbers.
 * The whole matrix is kept, as in a framework that computes entropies. */
#include "materialized.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { ROWS = 128 };

struct hl_materialized {
    int64_t n_keys;
    int64_t d_head;
    float  *matrix; /* (n_keys, n_keys): scores, then probabilities */
};

/* ----------------------------------------------------------- matrix products */

enum { CBLAS_ROW_MAJOR = 101, CBLAS_PLAIN = 111, CBLAS_TRANSPOSED = 112 };

typedef void (*sgemm_function)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                               float alpha, const float *a, int lda, const float *b, int ldb,
                               float beta, float *c, int ldc);

static sgemm_function sgemm;

/* Each thread of the benchmark computes small products.  The library must not start threads of its
 * own: they would spin beside the next lane. */
static void *open_single_threaded(const char *name)
{
    const char *before = getenv("OPENBLAS_NUM_THREADS");
    char        kept[16];

    snprintf(kept, sizeof kept, "%s", before != NULL ? before : "");
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (before != NULL)
        setenv("OPENBLAS_NUM_THREADS", kept, 1);
    else
        unsetenv("OPENBLAS_NUM_THREADS");
    return library;
}

static void find_sgemm(void)
{
    static const char *const names[] = { "libopenblas.so.0", "libopenblas.so" };

    for (size_t i = 0; sgemm == NULL && i < sizeof names / sizeof *names; i++) {
        void *library = open_single_threaded(names[i]);
        if (library != NULL)
            *(void **)&sgemm = dlsym(library, "cblas_sgemm");
    }
}

const char *hl_materialized_product(void)
{
    find_sgemm();
    return sgemm != NULL ? "OpenBLAS" : "plain loops";
}

/* c = alpha a b^T, and c = a b, for rows of d (or n) floats. */
static void plain_scores(float *c, const float *a, const float *b, int m, int n, int d, float alpha,
                         int ldc)
{
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int x = 0; x < d; x++)
                sum += a[i * d + x] * b[j * d + x];
            c[(size_t)i * ldc + j] = alpha * sum;
        }
    }
}

static void plain_values(float *c, const float *a, const float *b, int m, int n, int d, int lda)
{
    memset(c, 0, (size_t)m * d * sizeof *c);
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            float weight = a[(size_t)i * lda + j];
#pragma omp simd
            for (int x = 0; x < d; x++)
                c[i * d + x] += weight * b[j * d + x];
        }
    }
}

/* ------------------------------------------------------------- exp and log */

#if defined(__x86_64__)
#define FOR_EACH_CPU                                                                               \
    __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define FOR_EACH_CPU
#endif

static inline float from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t to_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* exp(x) for x <= 0: 2^n times the series of the remainder, |remainder| <= ln(2)/2. */
static inline float exp_below_zero(float x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */

    x         = x < -87.0f ? -87.0f : x;
    float n   = x * 1.44269504f + round;
    float r   = x - (n - round) * 0.693147180f;
    float sum = 1.0f / 720.0f;
    sum       = sum * r + 1.0f / 120.0f;
    sum       = sum * r + 1.0f / 24.0f;
    sum       = sum * r + 1.0f / 6.0f;
    sum       = sum * r + 0.5f;
    sum       = sum * r + 1.0f;
    sum       = sum * r + 1.0f;
    return sum * from_bits((to_bits(n) + 127u) << 23);
}

/* log(x) for normal x > 0: log 2^n + 2 atanh((m - 1) / (m + 1)), m near 1. */
static inline float log_positive(float x)
{
    uint32_t bits = to_bits(x) - 0x3f3504f3u; /* sqrt(1/2) */
    float    n    = (float)((int32_t)bits >> 23);
    float    m    = from_bits((bits & 0x007fffffu) + 0x3f3504f3u);
    float    t    = (m - 1.0f) / (m + 1.0f);
    float    s    = t * t;

    return n * 0.693147180f +
           2.0f * t * (1.0f + s * (1.0f / 3.0f + s * (0.2f + s * (1.0f / 7.0f))));
}

/* ---------------------------------------------------------------- one block */

/* Uses lanes, because compilers do not reorder a maximum of floats. */
static inline float largest(const float *row, int64_t n)
{
    float   lanes[16], max = row[0];
    int64_t j = 0;

    for (int lane = 0; lane < 16; lane++)
        lanes[lane] = row[0];
    for (; j + 16 <= n; j += 16) {
        for (int lane = 0; lane < 16; lane++)
            lanes[lane] = row[j + lane] > lanes[lane] ? row[j + lane] : lanes[lane];
    }
    for (; j < n; j++)
        max = row[j] > max ? row[j] : max;
    for (int lane = 0; lane < 16; lane++)
        max = lanes[lane] > max ? lanes[lane] : max;
    return max;
}

/* Softmax of a row's first n scores, in place; returns its entropy. */
FOR_EACH_CPU static float finish_row(float *row, int64_t n)
{
    float max = largest(row, n), sum = 0.0f, entropy = 0.0f;

#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        row[j] = exp_below_zero(row[j] - max);
        sum += row[j];
    }
    float scale = 1.0f / sum;
#pragma omp simd reduction(+ : entropy)
    for (int64_t j = 0; j < n; j++) {
        row[j] *= scale;
        entropy -= row[j] * log_positive(row[j] + 1e-8f);
    }
    return entropy;
}

static void run_block(const hl_materialized *work, float *out, float *entropy, const float *q,
                      const float *k, const float *v, int64_t first)
{
    int64_t S      = work->n_keys;
    int     d      = (int)work->d_head;
    int     n_rows = (int)(S - first < ROWS ? S - first : ROWS);
    int     n_keys = (int)first + n_rows;
    float   scale  = 1.0f / sqrtf((float)d);
    float  *matrix = work->matrix + first * S;

    q += first * d;
    out += first * d;
    if (sgemm != NULL)
        sgemm(CBLAS_ROW_MAJOR, CBLAS_PLAIN, CBLAS_TRANSPOSED, n_rows, n_keys, d, scale, q, d, k, d,
              0.0f, matrix, (int)S);
    else
        plain_scores(matrix, q, k, n_rows, n_keys, d, scale, (int)S);
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t n_visible  = first + i + 1;
        entropy[first + i] = finish_row(matrix + i * S, n_visible);
        memset(matrix + i * S + n_visible, 0, (size_t)(n_keys - n_visible) * sizeof *matrix);
    }
    if (sgemm != NULL)
        sgemm(CBLAS_ROW_MAJOR, CBLAS_PLAIN, CBLAS_PLAIN, n_rows, d, n_keys, 1.0f, matrix, (int)S, v,
              d, 0.0f, out, d);
    else
        plain_values(out, matrix, v, n_rows, n_keys, d, (int)S);
}

/* ----------------------------------------------------------------- the whole */

hl_status hl_materialized_new(hl_materialized **out, int64_t n_keys, int64_t d_head)
{
    hl_status        status = HL_OK;
    hl_materialized *work   = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&work, 1));
    work->n_keys = n_keys;
    work->d_head = d_head;
    HL_TRY(HL_ALLOC(&work->matrix, (size_t)n_keys * (size_t)n_keys));
    find_sgemm();
    *out = work;
    work = NULL;

done:
    hl_materialized_free(work);
    return status;
}

void hl_materialized_free(hl_materialized *work)
{
    if (work == NULL)
        return;
    hl_free(work->matrix);
    hl_free(work);
}

void hl_materialized_run(hl_materialized *work, float *out, float *entropy, const float *q,
                         const float *k, const float *v, int64_t n_heads, int n_threads)
{
    int64_t n_blocks = (work->n_keys + ROWS - 1) / ROWS;
    int64_t size     = work->n_keys * work->d_head;

    for (int64_t head = 0; head < n_heads; head++) {
        /* Late blocks see more keys, so they are started first, one at a time. */
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
        for (int64_t block = n_blocks - 1; block >= 0; block--)
            run_block(work, out + head * size, entropy + head * work->n_keys, q + head * size,
                      k + head * size, v + head * size, block * ROWS);
    }
}
