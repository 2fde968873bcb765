/* probe.c - measures this machine for a few milliseconds: hl_machine_probe.
 *
 * A short measurement on a busy machine may lose its core for a while, so each is repeated, and the
 * best of the repetitions counts. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "headlight/session.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"

enum {
    N_REPEATS   = 8,
    CHAIN_STEPS = 20000,
    ROW_FLOATS  = 2048,
    SHARE_ROWS  = 32,       /* rows that a thread reads at a time */
    READ_BYTES  = 96 << 20, /* more than most last-level caches hold */
};

/* --------------------------------------------------------------- multiply-adds */

typedef struct chains {
    const hl_dense *dense;
    float           results[HL_MAX_THREADS];
} chains;

static void run_chains(void *context, int64_t first, int64_t end, int member)
{
    chains *c = context;

    for (int64_t i = first; i < end; i++)
        c->results[member] += c->dense->multiply_adds((float)i, CHAIN_STEPS);
}

/* GFLOP/s of n_threads threads. */
static double measure_products(chains *c, int n_threads, int64_t flops)
{
    double best = 0.0;

    for (int i = 0; i < N_REPEATS; i++) {
        double begin = hl_clock_seconds();
        hl_parallel(n_threads, n_threads, 1, run_chains, c);
        double rate = 1e-9 * (double)flops * n_threads / (hl_clock_seconds() - begin);
        best        = rate > best ? rate : best;
    }
    return best;
}

/* -------------------------------------------------------------------- reading */

typedef struct reading {
    const hl_dense *dense;
    const float    *rows; /* (n, ROW_FLOATS) */
    const float    *x;
} reading;

/* Decoding reads weights in this way. */
static void read_rows(void *context, int64_t first, int64_t end, int member)
{
    const reading *r = context;
    (void)member;

    for (int64_t share = first; share < end; share++) {
        const void *w[SHARE_ROWS];
        float       out[SHARE_ROWS];

        for (int64_t i = 0; i < SHARE_ROWS; i++)
            w[i] = r->rows + (share * SHARE_ROWS + i) * ROW_FLOATS;
        r->dense->dot(&(hl_dot){ .out        = out,
                                 .out_stride = SHARE_ROWS,
                                 .x          = r->x,
                                 .x_stride   = ROW_FLOATS,
                                 .n_rows     = 1,
                                 .w          = w,
                                 .dtype      = HL_DTYPE_F32,
                                 .n_weights  = SHARE_ROWS,
                                 .n          = ROW_FLOATS });
    }
}

/* GB/s of n_threads threads. */
static double measure_reading(const reading *r, int n_threads)
{
    int64_t n_shares = READ_BYTES / (SHARE_ROWS * ROW_FLOATS * (int64_t)sizeof(float));
    double  best     = 0.0;

    for (int i = 0; i < N_REPEATS / 2; i++) {
        double begin = hl_clock_seconds();
        hl_parallel(n_threads, n_shares, 1, read_rows, (void *)r);
        double rate = 1e-9 * READ_BYTES / (hl_clock_seconds() - begin);
        best        = rate > best ? rate : best;
    }
    return best;
}

/* ------------------------------------------------------------------- the whole */

static int64_t cache_bytes(int name)
{
    long bytes = sysconf(name);
    return bytes > 0 ? bytes : 0;
}

static void describe(hl_machine *out)
{
    const hl_cpu *cpu = hl_cpu_features();

    snprintf(out->cpu, sizeof out->cpu, "%s", cpu->name);
    snprintf(out->instructions, sizeof out->instructions, "%s%s%s%s%s", cpu->avx2 ? "AVX2 " : "",
             cpu->avx512 ? "AVX-512 " : "", cpu->vnni ? "VNNI " : "", cpu->bf16 ? "BF16 " : "",
             cpu->neon ? "NEON " : "");
    size_t length = strlen(out->instructions);
    if (length > 0)
        out->instructions[length - 1] = '\0';
    out->n_cores     = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    out->quota_cores = hl_available_cores_below("");
    out->free_bytes  = (int64_t)hl_memory_available();
#ifdef _SC_LEVEL1_DCACHE_SIZE
    out->cache_bytes[0] = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
    out->cache_bytes[1] = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
    out->cache_bytes[2] = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#endif
}

hl_status hl_machine_probe(hl_machine *out, int32_t n_threads)
{
    hl_status         status  = HL_OK;
    const hl_kernels *kernels = NULL;
    float            *rows    = NULL;
    float             x[ROW_FLOATS];
    chains            c = { 0 };

    *out = (hl_machine){ .n_threads = hl_threads(n_threads) };
    HL_TRY(hl_kernels_current(&kernels));
    describe(out);
    out->backend  = kernels->name;
    out->products = kernels->packed != NULL ? "packed strips" : hl_gemm_name();
    for (int math = HL_MATH_F32; math < HL_MATH_COUNT; math++)
        out->has_math[math] = hl_math_check((hl_math)math) == HL_OK;
    c.dense = kernels->dense;
    for (int i = 0; i < ROW_FLOATS; i++)
        x[i] = 1.0f;
    HL_TRY(HL_ALLOC(&rows, READ_BYTES / sizeof *rows));
    memset(rows, 0, READ_BYTES); /* gives it pages of its own */

    int64_t flops      = 2 * CHAIN_STEPS * kernels->dense->n_chains;
    out->one.gflops    = measure_products(&c, 1, flops);
    out->all.gflops    = measure_products(&c, out->n_threads, flops);
    out->one.gigabytes = measure_reading(&(reading){ c.dense, rows, x }, 1);
    out->all.gigabytes = measure_reading(&(reading){ c.dense, rows, x }, out->n_threads);

done:
    hl_free(rows);
    return status;
}
