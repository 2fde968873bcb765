/* forward_again.cuh - forward_hopper.cuh's scores once more, by one warp for itself.
 *
 * A product by a warp group needs all four warps.  When the weights of a block have outgrown the
 * centre of a row, which is rare, its warp alone must have the scores that they replaced:
 * mma.sync leaves them where wgmma does, and no other warp needs to know. */
#ifndef HL_CUDA_FORWARD_AGAIN_CUH
#define HL_CUDA_FORWARD_AGAIN_CUH

#include "kernels/cuda/forward_tiles.cuh"

namespace headlight
{

/* A row's byte in a swizzled panel of 64 columns. */
__device__ __forceinline__ const char *panel_at(const void *panel, int row, int byte)
{
    return static_cast<const char *>(panel) + row * 128 + (byte ^ (row & 7) << 4);
}

/* S = Q K^T of 16 rows of the tile, from first_row on, with the keys in `stage`. */
template <typename S>
__device__ __forceinline__ void score_again(float (&scores)[S::KEYS / 2],
                                            const typename S::shared &shared, int stage,
                                            int first_row)
{
    int lane = threadIdx.x & 31;
    int key  = lane / 16 * 8 + lane % 8;

#pragma unroll
    for (int i = 0; i < S::KEYS / 2; i++)
        scores[i] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < S::D / 16; step++) {
        const auto *q = shared.q + step / 4 * S::ROWS * 64;
        const auto *k = shared.k[stage] + step / 4 * S::KEYS * 64;
        uint32_t    a[4], b[4];

        ptx::load_matrices(a, panel_at(q, first_row + lane % 16, step % 4 * 32 + lane / 16 * 16));
#pragma unroll
        for (int i = 0; i < S::KEYS / 2; i += 8) { /* 16 keys */
            ptx::load_matrices(b, panel_at(k, 2 * i + key, step % 4 * 32 + lane / 8 % 2 * 16));
            ptx::mma<typename S::T>(*reinterpret_cast<float(*)[4]>(scores + i), a, b);
            ptx::mma<typename S::T>(*reinterpret_cast<float(*)[4]>(scores + i + 4), a, b + 2);
        }
    }
}

} // namespace headlight

#endif
