/* 1_naive.cu - one warp a row, straight from the definition: each lane has its own keys and
 * a row state in double (row_state.cuh), lanes merge, and a second pass over the keys weighs
 * the values.  Every key is read from memory by every row: this is what the others are
 * checked against. */
#include "kernels/cuda/row_state.cuh"
#include "ladder.h"

using headlight::row_state;

template <int D>
__device__ static double score(const ladder_problem &p, const __nv_bfloat16 *q,
                               const __nv_bfloat16 *keys, int key)
{
    double product = 0.0;

    for (int i = 0; i < D; i++)
        product += static_cast<double>(__bfloat162float(q[i])) *
                   static_cast<double>(__bfloat162float(keys[static_cast<size_t>(key) * D + i]));
    return p.scale * product;
}

template <int D> __global__ static void naive(const ladder_problem p)
{
    size_t               index = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    int                  row   = static_cast<int>(index % p.length);
    int                  lane  = threadIdx.x % 32;
    const __nv_bfloat16 *q     = p.q + index * D;
    const __nv_bfloat16 *keys = p.k + (index - row) * D, *values = p.v + (index - row) * D;
    row_state            mine;

    for (int key = lane; key <= row; key += 32)
        mine = mine.pushed(score<D>(p, q, keys, key));
    row_state all = mine.across_warp();
    if (lane == 0) {
        p.lse[index]     = static_cast<float>(all.lse());
        p.entropy[index] = static_cast<float>(all.entropy());
        p.renyi2[index]  = static_cast<float>(all.renyi2());
    }
    double out[D / 32] = {};
    for (int key = 0; key <= row; key++) {
        double weight = 0.0;
        if (key % 32 == lane)
            weight = exp(score<D>(p, q, keys, key) - all.lse());
        weight = __shfl_sync(~0u, weight, key % 32);
        for (int i = 0; i < D / 32; i++)
            out[i] += weight * static_cast<double>(__bfloat162float(
                                   values[static_cast<size_t>(key) * D + i * 32 + lane]));
    }
    for (int i = 0; i < D / 32; i++)
        p.out[index * D + i * 32 + lane] = __double2bfloat16(out[i]);
}

template <int D> static void launch(const ladder_problem &p)
{
    naive<D><<<p.n_heads *(p.length / 4), 128>>>(p);
}

void run_1(const ladder_problem &p)
{
    LADDER_BY_WIDTH(p, launch);
}
