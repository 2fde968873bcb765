/* peak.c - the multiply-add peak of an instruction set, all in registers.
 *
 * There are twelve chains; with a latency of four cycles and two units, eight would be enough. */
#include "peak.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "series.h"

enum { N_CHAINS = 12, N_STEPS = 1 << 20, N_TIMES = 8 };

/* A function that runs the chains for one width.  x -> 0.999 x + 0.001 stays near 1; the sum is
 * returned so that compilers cannot remove the work. */
#define CHAINS(name, isa, vector, prefix, n_lanes)                                                 \
    __attribute__((target(isa), noinline)) static float name(float start)                          \
    {                                                                                              \
        vector chains[N_CHAINS];                                                                   \
        vector factor = prefix##_set1_ps(0.999f);                                                  \
        vector term   = prefix##_set1_ps(0.001f);                                                  \
        vector total  = prefix##_set1_ps(0.0f);                                                    \
        float  lanes[n_lanes];                                                                     \
                                                                                                   \
        for (int i = 0; i < N_CHAINS; i++)                                                         \
            chains[i] = prefix##_set1_ps(start + (float)i);                                        \
        for (int step = 0; step < N_STEPS; step++)                                                 \
            for (int i = 0; i < N_CHAINS; i++)                                                     \
                chains[i] = prefix##_fmadd_ps(chains[i], factor, term);                            \
        for (int i = 0; i < N_CHAINS; i++)                                                         \
            total = prefix##_add_ps(total, chains[i]);                                             \
        prefix##_storeu_ps(lanes, total);                                                          \
        return lanes[0];                                                                           \
    }

CHAINS(chains_avx2, "avx2,fma", __m256, _mm256, 8)
CHAINS(chains_avx512, "avx512f", __m512, _mm512, 16)

/* GFLOP/s */
static double measure(float (*chains)(float), int n_lanes, int n_threads)
{
    volatile float sink  = 0.0f;
    float          sum   = 0.0f;
    double         start = hl_bench_now();

#pragma omp parallel num_threads(n_threads) reduction(+ : sum)
    {
        for (int i = 0; i < N_TIMES; i++)
            sum += chains((float)i);
    }
    double seconds = hl_bench_now() - start;

    sink = sum;
    (void)sink;
    return 2.0 * n_lanes * N_CHAINS * (double)N_STEPS * N_TIMES * n_threads / seconds * 1e-9;
}

double hl_peak_avx2(int n_threads)
{
    return measure(chains_avx2, 8, n_threads);
}

double hl_peak_avx512(int n_threads)
{
    return measure(chains_avx512, 16, n_threads);
}

#endif
