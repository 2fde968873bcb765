/* forward_near.cu - the probabilities of a row's own position, of the one before it and of key 0,
 * from an lse that has been computed, for rows of 16-bit floats whose scores no option changes.
 *
 * Eight lanes share a row of 64 elements, sixteen a row of 128.  Each lane reads sixteen bytes of
 * each q and of each key, the key once for all heads that share it.  launch_single_keys takes every
 * problem and computes the same in double. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/kernels.cuh"

namespace headlight
{

constexpr int NEAR_THREADS = 256;

/* Converts eight elements at an offset to floats. */
template <typename T>
__device__ __forceinline__ void load_eight(float (&out)[8], const hl_rows &rows, int64_t offset)
{
    struct alignas(16) eight {
        T x[8];
    };
    eight e = *reinterpret_cast<const eight *>(static_cast<const T *>(rows.data) + offset);

#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = static_cast<float>(e.x[i]);
}

/* This lane's part of a row of keys or queries. */
template <typename T, int LANES>
__device__ __forceinline__ void load_part(float (&out)[8], const hl_rows &rows, int batch, int head,
                                          int row)
{
    load_eight<T>(out, rows,
                  row_offset(rows, batch, head, row) + 8 * static_cast<int>(threadIdx.x % LANES));
}

template <int LANES> __device__ __forceinline__ float dot(const float (&q)[8], const float (&k)[8])
{
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = fmaf(q[i], k[i], sum);
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

constexpr int NEAR = 3; /* the row's own key, the one before, key 0 */

/* LANES threads per query, for all heads that share its keys.  Threads beyond the last query repeat
 * it and write nothing. */
template <typename T, int LANES>
__global__ static void __launch_bounds__(NEAR_THREADS) near_keys(const __grid_constant__ problem p)
{
    int64_t n_all  = static_cast<int64_t>(p.n_batch) * p.n_kv_heads * p.n_queries;
    int64_t index  = (static_cast<int64_t>(blockIdx.x) * NEAR_THREADS + threadIdx.x) / LANES;
    bool    writes = index < n_all && threadIdx.x % LANES == 0;
    if (index >= n_all)
        index = n_all - 1;

    int          query    = static_cast<int>(index % p.n_queries);
    int          kv_head  = static_cast<int>(index / p.n_queries % p.n_kv_heads);
    int          batch    = static_cast<int>(index / p.n_queries / p.n_kv_heads);
    int          position = query_start(p, batch) + query;
    visible_keys seen     = visible(p, key_length(p, batch), position);
    const int    keys[]   = { position, position - 1, 0 };
    float *const arrays[] = { p.result.self, p.result.previous, p.result.first };
    float        k[NEAR][8];
#pragma unroll
    for (int i = 0; i < NEAR; i++) {
        if (arrays[i] != nullptr)
            load_part<T, LANES>(k[i], p.k, batch, kv_head, seen.has(keys[i]) ? keys[i] : 0);
    }
    for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; head++) {
        int64_t row = row_index(p, batch, head, query);
        float   lse = p.result.lse[row], q[8];

        load_part<T, LANES>(q, p.q, batch, head, query);
#pragma unroll
        for (int i = 0; i < NEAR; i++) {
            if (arrays[i] == nullptr)
                continue;
            float score = p.scale * dot<LANES>(q, k[i]);
            if (writes)
                arrays[i][row] = seen.has(keys[i]) && lse != -INFINITY ? expf(score - lse) : 0.0f;
        }
    }
}

template <typename T, int LANES> static hl_status launch(const problem &p, cudaStream_t stream)
{
    int64_t n_all    = static_cast<int64_t>(p.n_batch) * p.n_kv_heads * p.n_queries;
    int64_t n_blocks = (n_all * LANES + NEAR_THREADS - 1) / NEAR_THREADS;

    if (n_blocks > INT32_MAX)
        return fail(HL_LIMIT, "the GPU takes 2^36 rows, got %lld", (long long)n_all);
    near_keys<T, LANES><<<static_cast<unsigned>(n_blocks), NEAR_THREADS, 0, stream>>>(p);
    return check(cudaGetLastError(), "the probabilities of near keys");
}

hl_status launch_near_keys(const problem &p, cudaStream_t stream)
{
    return for_half(p.q.dtype, [&](auto type) {
        return for_width<64, 128, 256>(
            p.d_head, [&](auto width) { return launch<decltype(type), width() / 8>(p, stream); });
    });
}

} // namespace headlight
