/* forward_near.cu - the probabilities of a row's own position, of the one before it and of key 0,
 * from an lse that has been computed, for rows of 16-bit floats whose scores no option changes.
 *
 * Eight lanes share a row of 64 elements, sixteen a row of 128, and 32 a row of 256.  They take four
 * neighboring queries, whose keys are neighbors too, so that nine loads of sixteen bytes are under way
 * in each lane and a key is read once for all of them and for all heads that share it.
 * launch_single_keys takes every problem and computes the same in double. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/kernels.cuh"

namespace headlight
{

constexpr int NEAR_THREADS = 256;
constexpr int NEAR_ROWS    = 4; /* consecutive queries of the lanes that share a row */

/* Eight elements of a row, as they are stored. */
template <typename T> struct alignas(16) near_part {
    T x[8];
};

/* This lane's part of a row of keys or queries. */
template <typename T, int LANES>
__device__ __forceinline__ near_part<T> load_part(const hl_rows &rows, int batch, int head, int row)
{
    int64_t offset = row_offset(rows, batch, head, row) + 8 * static_cast<int>(threadIdx.x % LANES);

    return *reinterpret_cast<const near_part<T> *>(static_cast<const T *>(rows.data) + offset);
}

/* In every lane of a row. */
template <typename T, int LANES>
__device__ __forceinline__ float dot(const near_part<T> &q, const near_part<T> &k)
{
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = fmaf(static_cast<float>(q.x[i]), static_cast<float>(k.x[i]), sum);
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

/* What lanes that share a row look at: the keys of their queries' own positions, which are
 * neighbors, the key before those, and key 0. */
template <typename T> struct near_keys_of {
    near_part<T> own[NEAR_ROWS + 1], first;
};

/* LANES threads take NEAR_ROWS queries, with all heads that share their keys.  Threads and rows beyond the last do
 * the last one's work and write nothing. */
template <typename T, int LANES>
__global__ static void __launch_bounds__(NEAR_THREADS) near_keys(const __grid_constant__ problem p)
{
    int     per_head = (p.n_queries + NEAR_ROWS - 1) / NEAR_ROWS;
    int64_t n_all    = static_cast<int64_t>(p.n_batch) * p.n_kv_heads * per_head;
    int64_t index    = (static_cast<int64_t>(blockIdx.x) * NEAR_THREADS + threadIdx.x) / LANES;
    bool    is_there = index < n_all;
    if (!is_there)
        index = n_all - 1;

    int             lane     = threadIdx.x % LANES;
    int             query    = static_cast<int>(index % per_head) * NEAR_ROWS;
    int             kv_head  = static_cast<int>(index / per_head % p.n_kv_heads);
    int             batch    = static_cast<int>(index / per_head / p.n_kv_heads);
    int             position = query_start(p, batch) + query;
    int             length   = key_length(p, batch);
    int             last     = p.n_queries - 1;
    float *const    arrays[] = { p.result.self, p.result.previous, p.result.first };
    near_keys_of<T> keys;
#pragma unroll
    for (int i = 0; i <= NEAR_ROWS; i++)
        keys.own[i] =
            load_part<T, LANES>(p.k, batch, kv_head, max(0, min(position + i - 1, p.n_keys - 1)));
    if (arrays[2] != nullptr)
        keys.first = load_part<T, LANES>(p.k, batch, kv_head, 0);

    for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; head++) {
        near_part<T> q[NEAR_ROWS];
#pragma unroll
        for (int i = 0; i < NEAR_ROWS; i++)
            q[i] = load_part<T, LANES>(p.q, batch, head, min(query + i, last));
#pragma unroll
        for (int i = 0; i < NEAR_ROWS; i++) {
            int64_t      row      = row_index(p, batch, head, min(query + i, last));
            float        lse      = p.result.lse[row];
            visible_keys seen     = visible(p, length, position + i);
            bool         writes   = is_there && lane == i && query + i <= last;
            auto         put_near = [&](float *array, int key, const near_part<T> &k) {
                if (array == nullptr)
                    return;
                float score = p.scale * dot<T, LANES>(q[i], k);
                if (writes)
                    array[row] = seen.has(key) && lse != -INFINITY ? expf(score - lse) : 0.0f;
            };
            put_near(arrays[0], position + i, keys.own[i + 1]);
            put_near(arrays[1], position + i - 1, keys.own[i]);
            put_near(arrays[2], 0, keys.first);
        }
    }
}

template <typename T, int LANES> static hl_status launch(const problem &p, cudaStream_t stream)
{
    int64_t per_head = (p.n_queries + NEAR_ROWS - 1) / NEAR_ROWS;
    int64_t n_all    = static_cast<int64_t>(p.n_batch) * p.n_kv_heads * per_head;
    int64_t n_blocks = (n_all * LANES + NEAR_THREADS - 1) / NEAR_THREADS;

    if (n_blocks > INT32_MAX)
        return fail(HL_LIMIT, "the GPU takes 2^36 rows, got %lld", (long long)n_all * NEAR_ROWS);
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
