/* problem.cuh - an attention problem in the form that the kernels take.
 *
 * hl_attention, with its sizes in 32 bits (attention.c has checked that they fit),
 * its options turned into plain numbers, and all pointers on the device.  Passed to
 * kernels by value. */
#ifndef HL_CUDA_PROBLEM_CUH
#define HL_CUDA_PROBLEM_CUH

#include <stdint.h>

#include "base/visible.h"
#include "headlight/attention.h"

namespace headlight
{

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2   = 0.6931471805599453f;

/* Bounds of sizes and positions, so that sums of a few stay in 32 bits.  WIDE_OPEN is a window that
 * is always open. */
constexpr int MOST_ROWS = 1 << 28;
constexpr int FURTHEST  = 1 << 29;
constexpr int WIDE_OPEN = 1 << 30;

struct problem {
    hl_rows q, k, v, out;
    int     n_batch, n_heads, n_kv_heads, n_queries, n_keys, d_head, d_value;
    int     group; /* number of heads that share a KV head */

    int    window_left, window_right, window_sink; /* causal: window_right is 0 */
    int    window_block;                           /* 0: the window moves with the row */
    float  scale;
    float  softcap; /* 0: no soft-cap */
    double exact_scale, exact_softcap;

    const int64_t *query_start;
    const int64_t *key_length;
    const float   *alibi_slopes;
    const float   *key_bias;
    const float   *row_bias;
    const float   *sinks;
    const float   *gates;
    const uint8_t *segments;
    int64_t        segment_stride;
    int            n_segments;

    hl_attention_result result;
};

__device__ __forceinline__ int key_length(const problem &p, int batch)
{
    return p.key_length != nullptr ? static_cast<int>(p.key_length[batch]) : p.n_keys;
}

__device__ __forceinline__ int query_start(const problem &p, int batch)
{
    int64_t start =
        p.query_start != nullptr ? p.query_start[batch] : key_length(p, batch) - p.n_queries;
    return static_cast<int>(start < -FURTHEST ? -FURTHEST : (start > FURTHEST ? FURTHEST : start));
}

/* The keys that a row sees, or that some row of several sees. */
struct visible_keys : hl_keys<int> {
    __device__ __forceinline__ bool has(int key) const
    {
        return HL_KEYS_HAVE(*this, key);
    }
};

__device__ __forceinline__ visible_keys visible(const problem &p, int length, int position)
{
    return { hl_reach_keys(&p, length, position) };
}

/* The larger of two, or NaN if one is NaN.  fmaxf would drop NaN, the only sign that a row is not
 * finite.  It is one instruction, like fmaxf. */
__device__ __forceinline__ float max_or_nan(float a, float b)
{
    float larger;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

/* The offset of row (batch, head, row) of a matrix, in elements. */
__device__ __forceinline__ int64_t row_offset(const hl_rows &rows, int batch, int head, int row)
{
    return batch * rows.batch_stride + head * rows.head_stride + row * rows.row_stride;
}

/* The number of rows of arrays (n_batch, n_heads, n_queries). */
__host__ __device__ __forceinline__ int64_t count_rows(const problem &p)
{
    return static_cast<int64_t>(p.n_batch) * p.n_heads * p.n_queries;
}

__device__ __forceinline__ int64_t row_index(const problem &p, int batch, int head, int query)
{
    return (static_cast<int64_t>(batch) * p.n_heads + head) * p.n_queries + query;
}

/* Whether all rows are aligned to 16 bytes, so that they can be copied in such pieces. */
inline bool on_16_bytes(const hl_rows &rows)
{
    return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.row_stride % 8 == 0 &&
           rows.head_stride % 8 == 0 && rows.batch_stride % 8 == 0;
}

} // namespace headlight

#endif
