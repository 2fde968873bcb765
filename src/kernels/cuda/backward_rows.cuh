/* backward_rows.cuh - the steps of both tensor-core gradients before and after their products: a
 * few numbers per row, sums over a head, and working memory.
 *
 * With x = log2 of a probability, so that p = 2^x, the gradient of a score is
 *
 *     dS = p (gate dO.v + constant + slope x)
 *     constant = g_lse - dO.out - g_H H        slope = -g_H ln 2
 *
 * which is the formula of metrics.md with the terms of the row combined. */
#ifndef HL_CUDA_BACKWARD_ROWS_CUH
#define HL_CUDA_BACKWARD_ROWS_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/problem.cuh"

namespace headlight
{

constexpr int BLOCK_ROWS = 64; /* queries per block */

/* The numbers of a block's rows.  If a row sees no key or does not exist, its lse is so large that
 * its probabilities are 0. */
struct row_block {
    float  lse[BLOCK_ROWS];       /* in bits */
    float4 terms[BLOCK_ROWS / 2]; /* each has two rows: their constants, then their slopes */
};

constexpr float NO_KEYS = 1e30f;

/* Replaces log2 p if a key is hidden: 2^HIDDEN is 0, and so is 0 * HIDDEN. */
constexpr float HIDDEN = -16384.0f;

struct backward_problem {
    hl_attention_gradient gradient;
    hl_attention_upstream upstream;
    int                   n_row_blocks; /* per head */
    row_block            *rows;         /* (n_batch, n_heads, n_row_blocks) */
    float                *sinks;        /* (n_batch, n_heads, 64 n_row_blocks): shares of dsinks */
};

__device__ __forceinline__ int64_t row_block_index(const problem &p, const backward_problem &b,
                                                   int batch, int head, int block)
{
    return (static_cast<int64_t>(batch) * p.n_heads + head) * b.n_row_blocks + block;
}

/* Device memory that is valid until the work in the stream so far is done.  It is kept for the next
 * call, because an allocation by the driver takes longer than a gradient. */
class workspace
{
  public:
    explicit workspace(cudaStream_t stream) : stream(stream)
    {
    }
    workspace(const workspace &)            = delete;
    workspace &operator=(const workspace &) = delete;
    ~workspace();

    hl_status open(size_t n_bytes);

    /* Returns the next n values, aligned to 128 bytes.  Before the memory is open it only counts
     * and returns NULL. */
    template <typename V> V *take(size_t n)
    {
        char *at = base != nullptr ? base + n_taken : nullptr;
        n_taken += (n * sizeof(V) + 127) / 128 * 128;
        return reinterpret_cast<V *>(at);
    }

    size_t n_taken = 0;

    const char *end() const
    {
        return base + n_taken;
    }

  private:
    cudaStream_t stream;
    char        *base = nullptr;
};

/* NULL, or the reason why the tensor-core gradients do not take this problem. */
const char *rows_refuse(const problem &p, const hl_attention_gradient &gradient,
                        const hl_attention_upstream &upstream);

/* Fills b.rows and, if there are sinks, b.sinks. */
hl_status launch_rows(const problem &p, const backward_problem &b, cudaStream_t stream);

/* Computes dgates from shares (n_batch, n_heads, n_gates), and dsinks, if they are wanted. */
hl_status launch_heads(const problem &p, const backward_problem &b, const float *gates,
                       int64_t n_gates, cudaStream_t stream);

} // namespace headlight

#endif
