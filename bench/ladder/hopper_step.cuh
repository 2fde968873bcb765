/* hopper_step.cuh - steps 5 to 9: the pieces of the library's Hopper kernel put together
 * one after the other.  A step is a consumer with a run_tile of its own; producer, products,
 * sums and stores are forward_hopper.cuh's. */
#ifndef HL_LADDER_HOPPER_STEP_CUH
#define HL_LADDER_HOPPER_STEP_CUH

#include <algorithm>

#include "kernels/cuda/forward_hopper.cuh"
#include "ladder.h"

namespace headlight
{

inline problem describe(const ladder_problem &l, bool statistics)
{
    problem p = {};
    p.n_batch = 1;
    p.n_heads = p.n_kv_heads = l.n_heads;
    p.n_queries = p.n_keys = l.length;
    p.d_head = p.d_value = l.d;
    p.group              = 1;
    p.window_left        = WIDE_OPEN;
    p.scale              = l.scale;
    p.result.lse         = l.lse;
    p.result.entropy     = statistics ? l.entropy : nullptr;
    p.result.renyi2      = statistics ? l.renyi2 : nullptr;
    return p;
}

/* Boxes of n_box_rows rows by 64 columns of a packed (n_heads, length, d). */
inline CUtensorMap make_map(const ladder_problem &l, const void *data, int n_box_rows)
{
    using encode    = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    cuuint64_t  row = l.d * 2ull, head = row * l.length;
    cuuint64_t  sizes[]   = { (cuuint64_t)l.d, (cuuint64_t)l.length, (cuuint64_t)l.n_heads, 1 };
    cuuint64_t  strides[] = { row, head, head * l.n_heads };
    cuuint32_t  box[] = { 64, (cuuint32_t)n_box_rows, 1, 1 }, steps[] = { 1, 1, 1, 1 };
    void       *address = nullptr;
    CUtensorMap map     = {};
    cudaDriverEntryPointQueryResult result;

    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000,
                                         cudaEnableDefault, &result) == cudaSuccess)
        reinterpret_cast<encode>(address)(
            &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void *>(data), sizes, strides,
            box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

__device__ static int step_counter[2]; /* zero before and after a launch */

/* `kernel` has forward_hopper's parameters. */
template <typename S, typename KERNEL> void launch_step(KERNEL *kernel, const ladder_problem &l)
{
    hopper_maps     maps = { make_map(l, l.q, S::ROWS), make_map(l, l.k, S::KEYS),
                             make_map(l, l.v, S::KEYS), make_map(l, l.out, 64) };
    hopper_schedule schedule;
    void           *counter = nullptr;
    int             fitting = (32 << 20) / (l.length * l.d * 4); /* heads in the L2 cache */

    cudaGetSymbolAddress(&counter, step_counter);
    schedule.counter        = static_cast<int *>(counter);
    schedule.n_row_tiles    = (l.length + S::ROWS - 1) / S::ROWS;
    schedule.n_tiles        = schedule.n_row_tiles * l.n_heads;
    schedule.heads_together = std::min(l.n_heads, std::max(1, fitting));
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
    kernel<<<std::min(schedule.n_tiles, 132), S::THREADS, S::SHARED_BYTES>>>(
        maps, describe(l, S::STATISTICS), schedule);
}

/* forward_hopper with another consumer. */
template <typename S, typename CONSUMER>
__global__ void __launch_bounds__(S::THREADS, 1)
    hopper_step(const __grid_constant__ hopper_maps maps, const __grid_constant__ problem p,
                const __grid_constant__ hopper_schedule schedule)
{
    extern __shared__ __align__(1024) char raw[];
    auto                                  &shared = open_shared<S>(raw);

    int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (group == 0) {
        produce<S>(shared, maps, p, schedule);
        return;
    }
    ptx::registers_take<S::CONSUMERS>();
    CONSUMER consumer = { { shared, group - 1, p.scale * LOG2_E } };
    consumer.n_blocks = 0;
    for (int n_tiles = 0;; n_tiles++) {
        int slot = stage_of(n_tiles);

        ptx::barrier_wait(&shared.tile_full[slot], parity_of(n_tiles));
        int index = __shfl_sync(~0u, shared.tile[slot], 0);
        consumer.release(&shared.tile_empty[slot]);
        if (index >= schedule.n_tiles)
            break;
        hopper_tile tile = open_tile<S>(p, schedule, index);
        consumer.run_tile(p, tile, n_tiles & 1);
        consumer.finish(p, tile);
        consumer.send_out(maps, tile);
    }
    if (threadIdx.x % 128 == 0)
        ptx::copy_out_wait();
}

} // namespace headlight

#endif
