/* plain_row.cuh - what the plain kernels share: one warp and its row, in double. */
#ifndef HL_CUDA_PLAIN_ROW_CUH
#define HL_CUDA_PLAIN_ROW_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/problem.cuh"

namespace headlight
{

constexpr int PLAIN_WARPS = 4; /* warps per block */

__device__ inline double load(const hl_rows &rows, int64_t offset)
{
    switch (rows.dtype) {
    case HL_DTYPE_F16:
        return __half2float(static_cast<const __half *>(rows.data)[offset]);
    case HL_DTYPE_BF16:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(rows.data)[offset]);
    case HL_DTYPE_F64:
        return static_cast<const double *>(rows.data)[offset];
    default:
        return static_cast<const float *>(rows.data)[offset];
    }
}

__device__ inline void store(const hl_rows &rows, int64_t offset, double value)
{
    switch (rows.dtype) {
    case HL_DTYPE_F16:
        static_cast<__half *>(rows.data)[offset] = __double2half(value);
        break;
    case HL_DTYPE_BF16:
        static_cast<__nv_bfloat16 *>(rows.data)[offset] = __double2bfloat16(value);
        break;
    case HL_DTYPE_F64:
        static_cast<double *>(rows.data)[offset] = value;
        break;
    default:
        static_cast<float *>(rows.data)[offset] = static_cast<float>(value);
    }
}

__device__ inline double warp_sum(double value)
{
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(~0u, value, step);
    return value;
}

/* A query row and its position. */
struct plain_row {
    int          batch, head, kv_head, query, position;
    int64_t      index; /* index into arrays (n_batch, n_heads, n_queries) */
    visible_keys keys;

    __device__ plain_row(const problem &p, int64_t row) : index(row)
    {
        query    = static_cast<int>(row % p.n_queries);
        head     = static_cast<int>(row / p.n_queries % p.n_heads);
        batch    = static_cast<int>(row / p.n_queries / p.n_heads);
        kv_head  = head / p.group;
        position = query_start(p, batch) + query;
        keys     = visible(p, key_length(p, batch), position);
    }
};

/* Loads a row of some matrix into shared memory as doubles, with one warp. */
__device__ inline void load_row(double *out, const hl_rows &rows, int64_t offset, int width)
{
    __syncwarp();
    for (int d = threadIdx.x % 32; d < width; d += 32)
        out[d] = load(rows, offset + d);
    __syncwarp();
}

__device__ inline double dot_row(const double *a, const hl_rows &rows, int64_t offset, int width)
{
    double sum = 0.0;

    for (int d = 0; d < width; d++)
        sum += a[d] * load(rows, offset + d);
    return sum;
}

/* The score of a visible key, given q.k.  *slope gets d(score) / d(scale * q.k). */
__device__ inline double score_of(const problem &p, const plain_row &row, int key, double product,
                                  double *slope)
{
    double score = p.exact_scale * product;

    *slope = 1.0;
    if (p.exact_softcap != 0.0) {
        double bent = tanh(score / p.exact_softcap);
        score       = p.exact_softcap * bent;
        *slope      = 1.0 - bent * bent;
    }
    if (p.alibi_slopes != nullptr)
        score += static_cast<double>(p.alibi_slopes[row.head]) * (key - row.position);
    if (p.key_bias != nullptr)
        score += p.key_bias[static_cast<int64_t>(row.head) * p.n_keys + key];
    if (p.row_bias != nullptr)
        score += p.row_bias[(static_cast<int64_t>(row.batch) * p.n_queries + row.query) * p.n_keys +
                            key];
    return score;
}

/* Like score_of, with q.k computed from the query's row in shared memory. */
__device__ inline double row_score(const problem &p, const plain_row &row, const double *q, int key)
{
    double slope;

    return score_of(p, row, key,
                    dot_row(q, p.k, row_offset(p.k, row.batch, row.kv_head, key), p.d_head),
                    &slope);
}

} // namespace headlight

#endif
