/* bench_linear.c - how near products with one row come to the speed of memory.
 *
 *     type    threads   GB/s   of reading   M rows/s
 *     F16           1   16.9         0.98      10.97
 *
 * A weight of D_MODEL columns is multiplied by one row, as decoding a token does,
 * for every type that has a loop of its own and two that have none.  Beside it the
 * same number of bytes is only read.  All of them take turns: a round is a slice of
 * SLICE_BYTES each, from a buffer so large that no slice is still in a cache when
 * its turn comes again.  Numbers are medians over the rounds; `of reading` is the
 * median of the rounds' ratios.
 *
 *     build/bench_linear [ROUNDS]                                            */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "headlight.h"
#include "kernels/linear.h"

enum {
    D_MODEL       = 768,
    SLICE_BYTES   = 8 << 20,
    N_SLICES      = 64,
    MAX_ROUNDS    = 1000,
    DEFAULT_ROUND = 40,
    READ          = -1, /* the lane that only reads */
    SPARE_BYTES   = 4096,
};

static const int lanes[] = { READ,          HL_DTYPE_F32,   HL_DTYPE_F16,  HL_DTYPE_BF16,
                             HL_DTYPE_Q8_0, HL_DTYPE_Q4_0,  HL_DTYPE_Q4_K, HL_DTYPE_Q6_K,
                             HL_DTYPE_Q5_K, HL_DTYPE_IQ4_XS };
enum { N_LANES = sizeof lanes / sizeof *lanes };

typedef struct bench {
    uint8_t       *buffer; /* (N_SLICES, SLICE_BYTES) */
    float          x[D_MODEL];
    float         *out;
    hl_linear_pool pool;
    int            slice; /* the next one */
    double         rates[2][N_LANES][MAX_ROUNDS];
} bench;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Something that depends on every word, so that all of them are read. */
static uint64_t read_words(const uint64_t *words, int64_t n, int n_threads)
{
    uint64_t all = 0;

#pragma omp parallel for reduction(^ : all) num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        all ^= words[i];
    return all;
}

static int64_t rows_of(hl_dtype dtype)
{
    hl_dtype_block block = hl_dtype_block_of(dtype);
    return SLICE_BYTES / (int64_t)(D_MODEL / block.n_values * block.n_bytes);
}

static bool multiply(bench *b, const uint8_t *slice, hl_dtype dtype, int n_threads)
{
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

    pool.n_threads = n_threads;
    return hl_linear(&rows, &matrix, NULL, &pool) == HL_OK;
}

/* Bytes a second; 0 if it failed. */
static double measure(bench *b, int lane, int n_threads)
{
    const uint8_t  *slice = b->buffer + (size_t)b->slice * SLICE_BYTES;
    volatile size_t sink  = 0;
    double          begin = now();

    b->slice = (b->slice + 1) % N_SLICES;
    if (lane == READ) {
        sink = read_words((const uint64_t *)(const void *)slice, SLICE_BYTES / 8, n_threads);
        (void)sink;
    } else if (!multiply(b, slice, (hl_dtype)lane, n_threads)) {
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

/* Of the first n; values keep their order. */
static double median(const double *values, int n)
{
    double sorted[MAX_ROUNDS];

    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static void report(const bench *b, int n_rounds, const int threads[2])
{
    printf("%-10s %7s %8s %12s %10s\n", "type", "threads", "GB/s", "of reading", "M rows/s");
    for (int lane = 0; lane < N_LANES; lane++) {
        for (int t = 0; t < 2; t++) {
            double ratios[MAX_ROUNDS];
            double rate = median(b->rates[t][lane], n_rounds);

            for (int i = 0; i < n_rounds; i++)
                ratios[i] = b->rates[t][lane][i] / b->rates[t][0][i];
            printf("%-10s %7d %8.2f %12.2f",
                   lanes[lane] == READ ? "(reading)" : hl_dtype_name((hl_dtype)lanes[lane]),
                   threads[t], rate * 1e-9, median(ratios, n_rounds));
            if (lanes[lane] != READ)
                printf(" %10.2f", rate / SLICE_BYTES * (double)rows_of(lanes[lane]) * 1e-6);
            printf("\n");
        }
    }
}

/* Bytes from 0x30 to 0x3f are numbers of a sensible size as any type. */
static bool prepare(bench *b)
{
    hl_matrix widest = { .n_columns = D_MODEL };

    b->buffer             = malloc((size_t)N_SLICES * SLICE_BYTES + SPARE_BYTES);
    b->out                = malloc((size_t)(SLICE_BYTES / D_MODEL * 8) * sizeof *b->out);
    b->pool.thread_floats = hl_linear_scratch(&widest);
    b->pool.n_threads     = omp_get_max_threads();
    b->pool.scratch =
        calloc((size_t)(b->pool.n_threads * b->pool.thread_floats), sizeof *b->pool.scratch);
    if (b->buffer == NULL || b->out == NULL || b->pool.scratch == NULL)
        return false;
    for (size_t i = 0; i < (size_t)N_SLICES * SLICE_BYTES; i++)
        b->buffer[i] = (uint8_t)(0x30 | (i * 2654435761U >> 13 & 0x0f));
    for (int i = 0; i < D_MODEL; i++)
        b->x[i] = 0.01f * (float)(i % 31 - 15);
    return true;
}

int main(int argc, char **argv)
{
    static bench b;
    int          n_rounds = argc > 1 ? atoi(argv[1]) : DEFAULT_ROUND;

    if (n_rounds < 1 || n_rounds > MAX_ROUNDS) {
        fprintf(stderr, "%s: %d rounds, wanted 1 to %d\n", argv[0], n_rounds, MAX_ROUNDS);
        return 2;
    }
    if (!prepare(&b)) {
        fprintf(stderr, "%s: no memory\n", argv[0]);
        return 1;
    }
    const int threads[2] = { 1, b.pool.n_threads };
    for (int i = 0; i < n_rounds; i++) {
        for (int t = 0; t < 2; t++) {
            for (int lane = 0; lane < N_LANES; lane++) {
                b.rates[t][lane][i] = measure(&b, lanes[lane], threads[t]);
                if (b.rates[t][lane][i] == 0.0)
                    return 1;
            }
        }
    }
    printf("One row times a weight of %d columns, %s; medians of %d rounds.\n\n", D_MODEL,
           hl_backend_name(), n_rounds);
    report(&b, n_rounds, threads);
    free(b.pool.scratch);
    free(b.out);
    free(b.buffer);
    return 0;
}
