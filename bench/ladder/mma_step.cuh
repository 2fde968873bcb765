/* mma_step.cuh - steps 3 and 4: products by the tensor cores of sm_80 (portable_tile.cuh).
 *
 * A block of four warps has 64 rows and walks the keys 64 at a time.  ASYNC is the step
 * from 3 to 4: without it a tile is loaded, waited for, and used; with it K is copied while
 * O += P V is computed and V while S = Q K^T is, past the registers (cp.async). */
#ifndef HL_LADDER_MMA_STEP_CUH
#define HL_LADDER_MMA_STEP_CUH

#include "kernels/cuda/portable_tile.cuh"
#include "ladder.h"

namespace headlight
{

template <int D> struct mma_shared {
    __nv_bfloat16 q[64][D + 8], k[64][D + 8], v[64][D + 8];
};

inline problem describe(const ladder_problem &l)
{
    problem p     = {};
    int64_t bytes = int64_t{ l.length } * l.d;

    p.q       = { const_cast<__nv_bfloat16 *>(l.q), HL_DTYPE_BF16, l.n_heads * bytes, bytes, l.d };
    p.k       = { const_cast<__nv_bfloat16 *>(l.k), HL_DTYPE_BF16, l.n_heads * bytes, bytes, l.d };
    p.v       = { const_cast<__nv_bfloat16 *>(l.v), HL_DTYPE_BF16, l.n_heads * bytes, bytes, l.d };
    p.out     = { l.out, HL_DTYPE_BF16, l.n_heads * bytes, bytes, l.d };
    p.n_batch = 1;
    p.n_heads = p.n_kv_heads = l.n_heads;
    p.n_queries = p.n_keys = l.length;
    p.d_head = p.d_value = l.d;
    p.group              = 1;
    p.window_left        = WIDE_OPEN;
    p.scale              = l.scale;
    p.result.lse         = l.lse;
    p.result.entropy     = l.entropy;
    p.result.renyi2      = l.renyi2;
    return p;
}

template <int D, bool ASYNC>
__global__ static void __launch_bounds__(128) mma_step(const __grid_constant__ problem p)
{
    extern __shared__ __align__(16) char raw[];
    auto                                &shared = *reinterpret_cast<mma_shared<D> *>(raw);
    int      n_tiles = p.n_queries / 64, first = (n_tiles - 1 - static_cast<int>(blockIdx.x)) * 64;
    int      head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    tile_row rows[2];
    float    out[D / 8][4] = {}, scores[8][4];
    auto     fetch         = [&](__nv_bfloat16(*to)[D + 8], const hl_rows &from, int row) {
        load_tile<64, 128, __nv_bfloat16, D>(to, from, row_offset(from, 0, head, 0), row, p.n_keys,
                                             D, ASYNC);
        ptx::copy_commit();
    };

    for (int r = 0; r < 2; r++)
        rows[r].open(p, 0, head, first + warp * 16 + lane / 4 + 8 * r);
    fetch(shared.q, p.q, first);
    if (ASYNC)
        fetch(shared.k, p.k, 0);
    for (int key = 0; key <= first; key += 64) {
        if (!ASYNC) {
            __syncthreads();
            fetch(shared.k, p.k, key);
            fetch(shared.v, p.v, key);
        }
        ptx::copy_wait();
        __syncthreads();
        if (ASYNC)
            fetch(shared.v, p.v, key);
        multiply_keys<__nv_bfloat16, D>(scores, shared.q + warp * 16, shared.k);
        if (key > 0 && key < first)
            scale_scores(rows, scores, p, key);
        else
            bend_scores(rows, scores, p, key);
        weigh_scores(rows, scores, out);
        if (ASYNC) {
            ptx::copy_wait();
            __syncthreads();
            if (key < first)
                fetch(shared.k, p.k, key + 64);
        }
        add_values<__nv_bfloat16, D>(out, scores, shared.v);
    }
    for (int r = 0; r < 2; r++) {
        rows[r].sums.across_row();
        row_factors f = close_row(p, 0, head, rows[r].query, rows[r].sums, lane % 4 == 0);
        for (int i = 0; i < D / 4; i++) {
            int    column = i / 2 * 8 + lane % 4 * 2 + i % 2;
            double value  = f.first * load(p.v, row_offset(p.v, 0, head, 0) + column);
            store(p.out, row_offset(p.out, 0, head, rows[r].query) + column,
                  value + f.others * out[i / 2][2 * r + i % 2]);
        }
    }
}

template <int D, bool ASYNC> static void launch_mma(const ladder_problem &l)
{
    constexpr int BYTES = sizeof(mma_shared<D>);

    cudaFuncSetAttribute(mma_step<D, ASYNC>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    mma_step<D, ASYNC><<<dim3(l.length / 64, l.n_heads), 128, BYTES>>>(describe(l));
}

} // namespace headlight

#endif
