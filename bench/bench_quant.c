/* bench_quant.c - the speed of decoding blocks on one core.
 *
 *     type       bits   scalar     avx2   ratio   streamed   of copy
 *     Q4_K        4.5     0.41     9.80    23.9       3.10       78%
 *
 * The first columns decode a panel of 64 KiB of values that stays in the cache, as in a matrix
 * product; in G values per second, the best of several runs.  `streamed` decodes 64 MiB of values
 * once, from memory to memory.  `of copy` is the number of bytes that it reads and writes per
 * second, relative to memcpy on this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "headlight.h"
#include "kernels/kernels.h"

enum {
    PANEL_VALUES  = 16384,
    STREAM_VALUES = 1 << 24,
    RUNS          = 5,
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Values per second in the best of RUNS runs; each lasts about 20 ms or one pass. */
static double speed(const hl_kernels *kernels, hl_dtype dtype, float *out, const uint8_t *blocks,
                    size_t n_values)
{
    size_t n_blocks = n_values / hl_dtype_block_of(dtype).n_values;
    double best     = 0.0;

    for (int run = 0; run < RUNS; run++) {
        double begin = now(), seconds = 0.0;
        size_t n_passes = 0;
        while (seconds < 0.02) {
            kernels->dequantize(out, dtype, blocks, n_blocks);
            n_passes++;
            seconds = now() - begin;
        }
        double rate = (double)n_passes * (double)n_values / seconds;
        best        = rate > best ? rate : best;
    }
    return best;
}

/* Bytes that memcpy reads and writes per second. */
static double copy_speed(float *out, const uint8_t *source, size_t n_bytes)
{
    double best = 0.0;

    for (int run = 0; run < RUNS; run++) {
        double begin = now();
        memcpy(out, source, n_bytes);
        double rate = 2.0 * (double)n_bytes / (now() - begin);
        best        = rate > best ? rate : best;
    }
    return best;
}

static void bench(hl_dtype dtype, const hl_kernels *best, float *out, const uint8_t *blocks,
                  double copy)
{
    hl_dtype_block block  = hl_dtype_block_of(dtype);
    double         bytes  = (double)block.n_bytes / (double)block.n_values;
    double         scalar = speed(&hl_kernels_scalar, dtype, out, blocks, PANEL_VALUES);
    double         vector = speed(best, dtype, out, blocks, PANEL_VALUES);
    double         stream = speed(best, dtype, out, blocks, STREAM_VALUES);

    printf("%-10s %5.2f %8.2f %8.2f %6.1fx %10.2f %8.0f%%\n", hl_dtype_name(dtype), 8.0 * bytes,
           scalar * 1e-9, vector * 1e-9, vector / scalar, stream * 1e-9,
           100.0 * stream * (bytes + 4.0) / copy);
}

int main(void)
{
    const hl_kernels *best    = NULL;
    size_t            n_bytes = (size_t)STREAM_VALUES * sizeof(float);
    float            *out     = malloc(n_bytes);
    uint8_t          *blocks  = malloc(n_bytes);

    if (out == NULL || blocks == NULL || hl_kernels_current(&best) != HL_OK)
        return 1;
    memset(out, 1, n_bytes);
    for (size_t i = 0; i < n_bytes;
         i++) /* small scales, so that no value is subnormal or infinite */
        blocks[i] = (uint8_t)(i * 2654435761U >> 13 & 0x3f);

    double copy = copy_speed(out, blocks, n_bytes);
    printf("Blocks to values on one core, G values a second; memcpy moves %.1f GB/s.\n\n",
           copy * 1e-9);
    printf("%-10s %5s %8s %8s %7s %10s %9s\n", "type", "bits", "scalar", best->name, "ratio",
           "streamed", "of copy");
    bench(HL_DTYPE_F16, best, out, blocks, copy);
    bench(HL_DTYPE_BF16, best, out, blocks, copy);
    for (int dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        if (hl_dtype_is_block((hl_dtype)dtype))
            bench((hl_dtype)dtype, best, out, blocks, copy);
    }
    free(blocks);
    free(out);
    return 0;
}
