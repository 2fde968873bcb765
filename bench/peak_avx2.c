/* peak_avx2.c - the AVX2 with FMA multiply-add peak.
 *
 * Twelve chains: with a latency of four cycles and two units, eight would do. */
#include "peak.h"

#include <immintrin.h>

#include "series.h"

enum { N_CHAINS = 12, N_STEPS = 1 << 20, N_LANES = 8 };

/* The sum is returned so that the work cannot be dropped. */
__attribute__((target("avx2,fma"), noinline)) static float multiply_add(float start)
{
    __m256 chains[N_CHAINS];
    __m256 factor = _mm256_set1_ps(0.999f); /* x -> 0.999 x + 0.001 stays near 1 */
    __m256 term   = _mm256_set1_ps(0.001f);
    __m256 total  = _mm256_set1_ps(0.0f);
    float  lanes[N_LANES];

    for (int i = 0; i < N_CHAINS; i++)
        chains[i] = _mm256_set1_ps(start + (float)i);
    for (int step = 0; step < N_STEPS; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < N_CHAINS; i++)
            chains[i] = _mm256_fmadd_ps(chains[i], factor, term);
    }
    for (int i = 0; i < N_CHAINS; i++)
        total = _mm256_add_ps(total, chains[i]);
    _mm256_storeu_ps(lanes, total);
    return lanes[0];
}

double hl_peak_avx2(int n_threads)
{
    volatile float sink  = 0.0f;
    float          sum   = 0.0f;
    int            times = 8;
    double         start = hl_bench_now();

#pragma omp parallel num_threads(n_threads) reduction(+ : sum)
    {
        for (int i = 0; i < times; i++)
            sum += multiply_add((float)i);
    }
    double seconds = hl_bench_now() - start;

    sink = sum;
    (void)sink;
    return 2.0 * N_LANES * N_CHAINS * (double)N_STEPS * times * n_threads / seconds * 1e-9;
}
