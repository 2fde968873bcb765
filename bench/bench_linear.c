/* bench_linear.c - compares the speed of products with one row with that of memory.
 *
 *     type           threads     GB/s   of reading   M rows/s
 *     F16                  1    16.90         0.98      10.97
 *
 * A weight of D_MODEL columns is multiplied by one row, as in decoding a token, for every type that
 * has a loop of its own and for two that have none.  For comparison the same number of bytes is
 * only read.  All lanes take turns: in a round each processes a slice of SLICE_BYTES, from a buffer
 * so large that no slice is still in a cache in its next turn.  Numbers are medians over the
 * rounds; `of reading` is the median of the rounds' ratios.
 *
 *     build/bench_linear [ROUNDS] */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "base/threads.h"
#include "headlight.h"
#include "kernels/linear.h"

enum {
    D_MODEL        = 768,
    SLICE_BYTES    = 8 << 20,
    N_SLICES       = 64,
    MAX_ROUNDS     = 1000,
    DEFAULT_ROUNDS = 40,
    READ           = -1, /* the lane that only reads */
    SPARE_BYTES    = 4096,
};

/* A type, and whether x is rounded to 8 bits for it. */
typedef struct bench_lane {
    int  dtype; /* a dtype, or READ */
    bool int8;
} bench_lane;

static const bench_lane lanes[] = {
    { READ, false },          { HL_DTYPE_F32, false },    { HL_DTYPE_F16, false },
    { HL_DTYPE_BF16, false }, { HL_DTYPE_Q8_0, false },   { HL_DTYPE_Q8_0, true },
    { HL_DTYPE_Q4_0, false }, { HL_DTYPE_Q4_0, true },    { HL_DTYPE_Q4_K, false },
    { HL_DTYPE_Q4_K, true },  { HL_DTYPE_Q6_K, false },   { HL_DTYPE_Q6_K, true },
    { HL_DTYPE_Q5_K, false }, { HL_DTYPE_IQ4_XS, false },
};
enum { N_LANES = sizeof lanes / sizeof *lanes };

typedef struct bench {
    uint8_t       *buffer; /* (N_SLICES, SLICE_BYTES) */
    float          x[D_MODEL];
    float         *out;
    hl_linear_pool pool;
    hl_linear_low  low;
    int            slice; /* index of the next slice */
    double         rates[2][N_LANES][MAX_ROUNDS];
} bench;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A value that depends on every word, so that all words are read, with the same shares, threads and
 * prefetch distance as products. */
enum { READ_BYTES = 64 * 1024, AHEAD = 12 * 1024 };

typedef struct reading {
    const uint8_t   *bytes;
    _Atomic uint64_t all;
} reading;

static void read_some(void *context, int64_t first, int64_t end, int member)
{
    reading       *r     = context;
    const uint8_t *bytes = r->bytes + first * READ_BYTES;
    uint64_t       all   = 0;
    (void)member;

    for (int64_t line = 0; line < (end - first) * READ_BYTES; line += 64) {
        uint64_t words[8];

        __builtin_prefetch(bytes + line + AHEAD);
        memcpy(words, bytes + line, sizeof words);
        for (int i = 0; i < 8; i++)
            all ^= words[i];
    }
    r->all ^= all;
}

static int64_t rows_of(hl_dtype dtype)
{
    hl_dtype_block block = hl_dtype_block_of(dtype);
    return SLICE_BYTES / (int64_t)(D_MODEL / block.n_values * block.n_bytes);
}

static bool multiply(bench *b, const uint8_t *slice, const bench_lane *l, int team)
{
    hl_dtype       dtype  = (hl_dtype)l->dtype;
    int64_t        n_rows = rows_of(dtype), one = 1;
    hl_matrix      matrix = { .data      = slice,
                              .dtype     = dtype,
                              .n_rows    = n_rows,
                              .n_columns = D_MODEL,
                              .n_stored  = n_rows,
                              .block     = n_rows,
                              .stride    = n_rows };
    hl_linear_rows rows   = { .out        = b->out,
                              .out_stride = n_rows,
                              .x          = b->x,
                              .x_stride   = D_MODEL,
                              .n_batch    = 1,
                              .batch_rows = 1,
                              .n_rows     = &one };
    hl_linear_pool pool   = b->pool;

    pool.n_threads = team == 0 ? 1 : pool.n_threads;
    pool.low       = l->int8 ? &b->low : NULL;
    return hl_linear(&rows, &matrix, NULL, &pool) == HL_OK;
}

/* Bytes per second; 0 on failure. */
static double measure(bench *b, const bench_lane *l, int team)
{
    const uint8_t *slice = b->buffer + (size_t)b->slice * SLICE_BYTES;
    reading        r     = { .bytes = slice };
    double         begin = now();

    b->slice = (b->slice + 1) % N_SLICES;
    if (l->dtype == READ) {
        hl_parallel(team == 0 ? 1 : b->pool.n_threads, SLICE_BYTES / READ_BYTES, 1, read_some, &r);
    } else if (!multiply(b, slice, l, team)) {
        fprintf(stderr, "%s\n", hl_error_message());
        return 0.0;
    }
    return SLICE_BYTES / (now() - begin);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the first n values; does not reorder them. */
static double median(const double *values, int n)
{
    double sorted[MAX_ROUNDS];

    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static void print_line(const bench *b, int lane, int team, int n_threads, int n_rounds)
{
    double rate = median(b->rates[team][lane], n_rounds);
    double ratios[MAX_ROUNDS];

    for (int i = 0; i < n_rounds; i++)
        ratios[i] = b->rates[team][lane][i] / b->rates[team][0][i];
    printf("%-9s %-4s %7d %8.2f %12.2f",
           lanes[lane].dtype == READ ? "(reading)" : hl_dtype_name((hl_dtype)lanes[lane].dtype),
           lanes[lane].int8 ? "int8" : "", n_threads, rate * 1e-9, median(ratios, n_rounds));
    if (lanes[lane].dtype != READ)
        printf(" %10.2f", rate / SLICE_BYTES * (double)rows_of((hl_dtype)lanes[lane].dtype) * 1e-6);
    printf("\n");
}

static void report(const bench *b, int n_rounds)
{
    printf("One row times a weight of %d columns, %s; medians of %d rounds.\n\n", D_MODEL,
           hl_backend_name(), n_rounds);
    printf("%-14s %7s %8s %12s %10s\n", "type", "threads", "GB/s", "of reading", "M rows/s");
    for (int lane = 0; lane < N_LANES; lane++) {
        for (int team = 0; team < 2; team++)
            print_line(b, lane, team, team == 0 ? 1 : b->pool.n_threads, n_rounds);
    }
}

/* Fills the weights.  Bytes from 0x30 to 0x3f are moderate numbers in every type. */
static bool prepare(bench *b)
{
    hl_matrix widest = { .n_columns = D_MODEL };

    b->buffer             = malloc((size_t)N_SLICES * SLICE_BYTES + SPARE_BYTES);
    b->out                = malloc((size_t)(SLICE_BYTES / D_MODEL * 8) * sizeof *b->out);
    b->pool.thread_floats = hl_linear_scratch(&widest);
    b->pool.n_threads     = hl_threads(0);
    b->pool.scratch =
        calloc((size_t)(b->pool.n_threads * b->pool.thread_floats), sizeof *b->pool.scratch);
    b->low.n_values = HL_LINEAR_FEW_ROWS * D_MODEL;
    b->low.q        = malloc((size_t)b->low.n_values);
    b->low.scales   = calloc((size_t)b->low.n_values, sizeof *b->low.scales);
    b->low.sums     = calloc((size_t)b->low.n_values, sizeof *b->low.sums);
    b->low.run_sums = calloc((size_t)b->low.n_values, sizeof *b->low.run_sums);
    b->low.math     = HL_MATH_INT8;
    if (b->buffer == NULL || b->out == NULL || b->pool.scratch == NULL || b->low.q == NULL ||
        b->low.scales == NULL || b->low.sums == NULL || b->low.run_sums == NULL)
        return false;
    for (size_t i = 0; i < (size_t)N_SLICES * SLICE_BYTES; i++)
        b->buffer[i] = (uint8_t)(0x30 | (i * 2654435761U >> 13 & 0x0f));
    for (int i = 0; i < D_MODEL; i++)
        b->x[i] = 0.01f * (float)(i % 31 - 15);
    return true;
}

static void clean_up(bench *b)
{
    free(b->low.q);
    free(b->low.scales);
    free(b->low.sums);
    free(b->low.run_sums);
    free(b->pool.scratch);
    free(b->out);
    free(b->buffer);
}

static bool run_rounds(bench *b, int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        for (int team = 0; team < 2; team++) {
            for (int lane = 0; lane < N_LANES; lane++) {
                b->rates[team][lane][i] = measure(b, &lanes[lane], team);
                if (b->rates[team][lane][i] == 0.0)
                    return false;
            }
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static bench b;
    int          n_rounds = argc > 1 ? atoi(argv[1]) : DEFAULT_ROUNDS;

    if (n_rounds < 1 || n_rounds > MAX_ROUNDS) {
        fprintf(stderr, "%s: %d rounds, wanted 1 to %d\n", argv[0], n_rounds, MAX_ROUNDS);
        return 2;
    }
    bool good = prepare(&b) && run_rounds(&b, n_rounds);
    if (good)
        report(&b, n_rounds);
    else
        fprintf(stderr, "%s: no memory\n", argv[0]);
    clean_up(&b);
    return good ? 0 : 1;
}
