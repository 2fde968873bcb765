/* backward_hopper.cuh - gradients of attention and its entropy for sm_90a.
 *
 * A block of threads has one producer and two consumer warp groups and works on one block of 128
 * keys after another (backward_items.cuh), 64 keys per group.  It keeps their dK and dV in
 * registers and walks the queries that see them, 64 at a time, of all heads that share the keys:
 *
 *     S^T  = K Q^T                    P^T  = 2^(S^T scale log2(e) - lse)
 *     dP^T = V dO^T                   dS^T = P^T (gate dP^T + constant + slope log2 P^T)
 *     dV  += P^T dO      dK += dS^T Q      dQ += dS K
 *
 * (constant and slope: backward_rows.cuh.)  Scores are transposed so that P^T and dS^T are where
 * the products that follow want them, in registers; dS^T goes to shared memory also, for dQ, of
 * which each group computes half of the columns from all keys.
 *
 * Products of one step run beside the arithmetic of another.  In the order of issue:
 *
 *     S n | dP n | dV n | dQ n | dK n | S n+1 | ...
 *           P n    dS n          dQ out
 *
 * log2 P stays in registers between P and dS, and P is formed again from it: one more
 * exponential is cheaper than the registers.
 *
 * dQ is a sum over blocks of keys, so over blocks of threads.  It is kept as floats in
 * working memory, in the order of the accumulators, and a warp of the producer's group
 * adds to it by the copy engine (backward_copies.cuh).
 *
 * A thread of a group holds keys r = lane / 4 and r + 8 of its warp's 16, queries
 * 8 i + 2 (lane % 4) and the next: accumulators 4 i, 4 i + 1 and 4 i + 2, 4 i + 3. */
#ifndef HL_CUDA_BACKWARD_HOPPER_CUH
#define HL_CUDA_BACKWARD_HOPPER_CUH

#include "kernels/cuda/backward_copies.cuh"

namespace headlight
{

/* ---------------------------------------------------------------- consumers */

template <typename S> struct backward_consumer {
    using T                   = typename S::T;
    static constexpr int N_DQ = S::D / 4; /* accumulators per thread */
    static constexpr int N_DK = S::D / 2;

    typename S::shared      &shared;
    const problem           &p;
    const backward_schedule &schedule;
    int                      group;
    float                    scale; /* scale times log2(e) */
    int                      n_steps  = 0;
    float                    gate_sum = 0.0f;
    float                    dk[N_DK], dv[N_DK];
    uint32_t                 weights[16]; /* P^T, two values per register */
    uint32_t                 slopes[16];  /* dS^T, two values per register */

    __device__ __forceinline__ int lane() const
    {
        return threadIdx.x & 31;
    }
    __device__ __forceinline__ int warp() const
    {
        return (threadIdx.x >> 5) & 3;
    }

    /* Each warp arrives once, after all its lanes are done. */
    __device__ __forceinline__ void release(uint64_t *barrier) const
    {
        __syncwarp();
        if (lane() == 0)
            ptx::barrier_arrive(barrier);
    }

    /* ---------------------------------------------------------------- products */

    /* d (64 keys, 64 queries) = this group's keys times the queries, summed over d_head. */
    __device__ __forceinline__ void issue_square(float (&d)[32], const T *keys,
                                                 const T *queries) const
    {
        uint32_t a = ptx::describe(ptx::shared_address(keys) + group * 64 * 128, 16);
        uint32_t b = ptx::describe(ptx::shared_address(queries), 16);

        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < S::D / 16; step++) {
            int panel = step / 4, inside = step % 4; /* 32 bytes per step, in units of 16 */
            ptx::wgmma_ss<T>(d, a + panel * (BLOCK_KEYS * 128 >> 4) + inside * 2,
                             b + panel * (BLOCK_ROWS * 128 >> 4) + inside * 2, step != 0);
        }
        ptx::wgmma_commit();
    }

    /* d (64 keys, d_head) += the values in registers times the queries' rows. */
    __device__ __forceinline__ void issue_sum(float (&d)[N_DK], const uint32_t (&a)[16],
                                              const T *rows) const
    {
        uint32_t b = ptx::describe(ptx::shared_address(rows), BLOCK_ROWS * 128);

        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < BLOCK_ROWS / 16; step++)
            ptx::wgmma_rs<T>(d, a + 4 * step, b + step * (16 * 128 >> 4));
        ptx::wgmma_commit();
    }

    /* dq (64 queries, half of d_head) = dS K, summed over all keys. */
    __device__ __forceinline__ void issue_dq(float (&dq)[N_DQ], int at) const
    {
        uint32_t columns = group * (S::D / 2) * 2; /* byte offset; a panel has 128 bytes */
        uint32_t a       = ptx::describe(ptx::shared_address(shared.ds[at]), 16);
        uint32_t b       = ptx::describe(
                  ptx::shared_address(shared.k) + columns / 128 * (BLOCK_KEYS * 128) + columns % 128, 16);

        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < BLOCK_KEYS / 16; step++)
            ptx::wgmma_tt<T>(dq, a + step * (16 * 128 >> 4), b + step * (16 * 128 >> 4), step != 0);
        ptx::wgmma_commit();
    }

    /* ----------------------------------------------------------- probabilities */

    /* Hides the pairs whose key is not visible, if there are any. */
    __device__ __forceinline__ void hide(float (&scores)[32], int at) const
    {
        int ahead = shared.notes[at].ahead + group * 64, room = shared.notes[at].room - group * 64;

        if (room >= 64 && ahead + 63 <= p.window_right && ahead >= BLOCK_ROWS - 1 - p.window_left)
            return;
        int      key = warp() * 16 + lane() / 4;
        unsigned width =
            static_cast<unsigned>(p.window_right) + static_cast<unsigned>(p.window_left);
        int first[2]; /* the first column that sees the key */
#pragma unroll
        for (int r = 0; r < 2; r++)
            first[r] = key + 8 * r < room ? ahead + key + 8 * r - p.window_right - 2 * (lane() % 4)
                                          : WIDE_OPEN;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int column = i / 4 * 8 + (i & 1);
            if (static_cast<unsigned>(column - first[(i >> 1) & 1]) > width)
                scores[i] = HIDDEN;
        }
    }

    __device__ __forceinline__ void weigh(float (&scores)[32], int at)
    {
        const float *lse = shared.rows[at].lse + 2 * (lane() % 4);

#pragma unroll
        for (int i = 0; i < 8; i++) {
            float2 pair = *reinterpret_cast<const float2 *>(lse + 8 * i);
#pragma unroll
            for (int e = 0; e < 4; e++)
                scores[4 * i + e] =
                    fmaf(scores[4 * i + e], scale, (e & 1) == 0 ? -pair.x : -pair.y);
        }
        hide(scores, at);
        float factor = S::GATES ? shared.notes[at].gate : 1.0f;
#pragma unroll
        for (int i = 0; i < 16; i++)
            weights[i] = ptx::pack<T>(factor * ptx::exp2_fast(scores[2 * i]),
                                      factor * ptx::exp2_fast(scores[2 * i + 1]));
    }

    __device__ __forceinline__ void differentiate(const float (&scores)[32],
                                                  const float (&products)[32], int at)
    {
        const float4 *terms = shared.rows[at].terms + lane() % 4;
        float         gate  = S::GATES ? shared.notes[at].gate : 1.0f;
        float         share = 0.0f;

#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 pair = terms[4 * i];
            float  ds[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float x = scores[4 * i + e], weight = ptx::exp2_fast(x);
                float constant = (e & 1) == 0 ? pair.x : pair.y;
                float slope    = (e & 1) == 0 ? pair.z : pair.w;
                float rest     = fmaf(slope, x, constant);
                ds[e]          = weight * (S::GATES ? fmaf(gate, products[4 * i + e], rest)
                                                    : products[4 * i + e] + rest);
                if (S::GATES)
                    share = fmaf(weight, products[4 * i + e], share);
            }
            slopes[2 * i]     = ptx::pack<T>(ds[0], ds[1]);
            slopes[2 * i + 1] = ptx::pack<T>(ds[2], ds[3]);
        }
        gate_sum += share;
    }

    /* --------------------------------------------------- through shared memory */

    /* The address of this lane's row of four matrices, swizzled, for the first 16 columns of a
     * panel.  The address for columns from 16 i on is its exclusive or with i << 5. */
    __device__ __forceinline__ uint32_t matrix_row() const
    {
        int matrix = lane() / 8, row = group * 64 + warp() * 16 + (matrix & 1) * 8 + lane() % 8;

        return row * 128 + (((matrix >> 1) ^ (row & 7)) << 4);
    }

    __device__ __forceinline__ void store_slopes(int at) const
    {
        uint32_t row = matrix_row();

#pragma unroll
        for (int i = 0; i < 4; i++) /* 16 queries */
            ptx::store_matrices(ptx::shared_address(shared.ds[at]) + (row ^ i << 5), slopes[4 * i],
                                slopes[4 * i + 1], slopes[4 * i + 2], slopes[4 * i + 3]);
        ptx::fence_async();
    }

    __device__ __forceinline__ void store_dq(const float (&dq)[N_DQ]) const
    {
        float4 *target =
            reinterpret_cast<float4 *>(shared.dq + group * (S::DQ_COUNT / 2)) + threadIdx.x % 128;

        ptx::barrier_wait(&shared.dq_empty, (n_steps & 1) ^ 1);
#pragma unroll
        for (int i = 0; i < N_DQ / 4; i++)
            target[128 * i] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
        ptx::fence_async();
        release(&shared.dq_full);
    }

    /* Stores this group's dK or dV in the place of its K or V. */
    __device__ __forceinline__ void store_keys(T    *target, const float (&d)[N_DK],
                                               float factor) const
    {
        uint32_t row = matrix_row();

#pragma unroll
        for (int i = 0; i < N_DK / 8; i++) /* 16 columns */
            ptx::store_matrices(ptx::shared_address(target) + i / 4 * (BLOCK_KEYS * 128) +
                                    (row ^ i % 4 << 5),
                                ptx::pack<T>(d[8 * i] * factor, d[8 * i + 1] * factor),
                                ptx::pack<T>(d[8 * i + 2] * factor, d[8 * i + 3] * factor),
                                ptx::pack<T>(d[8 * i + 4] * factor, d[8 * i + 5] * factor),
                                ptx::pack<T>(d[8 * i + 6] * factor, d[8 * i + 7] * factor));
    }

    /* -------------------------------------------------------------------- steps */

    /* After a head's last step, stores this warp's share of dgates. */
    __device__ __forceinline__ void put_gate(int at)
    {
        int64_t target = shared.notes[at].gates;

        if (target < 0)
            return;
        float sum = gate_sum;
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_xor_sync(~0u, sum, step);
        if (lane() == 0)
            schedule.gates[target + group * 4 + warp()] = sum;
        gate_sum = 0.0f;
    }

    /* Processes one block of queries.  The product dK of the step before is still running at the
     * start, and this step's is at the end. */
    __device__ __forceinline__ void run_step()
    {
        int      at     = place_of(n_steps);
        uint32_t parity = phase_of(n_steps);
        float    scores[32];   /* S^T, then log2 P^T */
        float    products[32]; /* dP^T */
        float    dq[N_DQ];

        ptx::barrier_wait(&shared.q_full[at], parity);
        issue_square(scores, shared.k, shared.q[at]);
        ptx::barrier_wait(&shared.grad_out_full[at], parity);
        issue_square(products, shared.v, shared.grad_out[at]);
        ptx::wgmma_wait<1>(); /* waits for the scores and dK */
        ptx::settle(scores);
        ptx::settle(dk);
        if (n_steps > 0) /* all lanes have read the rows' numbers */
            ptx::barrier_arrive(&shared.q_empty[at ^ 1]);
        weigh(scores, at);
        issue_sum(dv, weights, shared.grad_out[at]);
        ptx::wgmma_wait<S::GATES ? 0 : 1>(); /* registers are too few with gates */
        ptx::settle(products);
        differentiate(scores, products, at);
        store_slopes(at);
        ptx::named_sync(1, 256);
        issue_dq(dq, at);
        issue_sum(dk, slopes, shared.q[at]);
        ptx::wgmma_wait<1>(); /* waits for dV and dQ */
        ptx::settle(dv);
        ptx::settle(dq);
        release(&shared.grad_out_empty[at]);
        store_dq(dq);
        if (S::GATES)
            put_gate(at);
        n_steps++;
    }

    __device__ __forceinline__ void finish(const backward_maps &maps, const key_block &keys)
    {
        ptx::named_sync(1, 256); /* no thread reads K any more */
        store_keys(shared.k, dk, p.scale);
        store_keys(shared.v, dv, 1.0f);
        ptx::fence_async();
        ptx::named_sync(2 + group, 128);
        if (threadIdx.x % 128 != 0)
            return;
        int key = keys.index * BLOCK_KEYS + group * 64;
        for (int panel = 0; panel < S::PANELS; panel++) {
            int at = panel * BLOCK_KEYS * 64 + group * 64 * 64;
            ptx::copy_out(&maps.dk, shared.k + at, panel * 64, key, keys.kv_head, keys.batch);
            ptx::copy_out(&maps.dv, shared.v + at, panel * 64, key, keys.kv_head, keys.batch);
        }
        ptx::copy_out_commit();
        ptx::copy_out_wait_read();
        ptx::barrier_arrive(&shared.keys_empty);
    }

    __device__ void run(const backward_maps &maps, int n_row_blocks)
    {
        for (int n_items = 0;; n_items++) {
            int slot = place_of(n_items);

            ptx::barrier_wait(&shared.item_full[slot], phase_of(n_items));
            int item = __shfl_sync(~0u, shared.item[slot], 0); /* all lanes get the same value */
            release(&shared.item_empty[slot]);
            if (item >= schedule.n_items)
                break;
#pragma unroll
            for (int i = 0; i < N_DK; i++)
                dk[i] = dv[i] = 0.0f;
            ptx::barrier_wait(&shared.k_full, n_items & 1);
            ptx::barrier_wait(&shared.v_full, n_items & 1);
            for (int left = count_steps(p, key_block(p, schedule, n_row_blocks, item)); left > 0;
                 left--)
                run_step();
            ptx::wgmma_wait<0>();
            ptx::settle(dk);
            /* The key block is computed again, which costs less than keeping it in registers. */
            finish(maps, key_block(p, schedule, n_row_blocks, item));
        }
        if (threadIdx.x % 128 == 0)
            ptx::copy_out_wait();
    }
};

/* ------------------------------------------------------------------- kernels */

template <typename S>
__device__ __forceinline__ void init_backward_barriers(typename S::shared &shared)
{
    constexpr int WARPS = 8; /* consumer warps */

    ptx::barrier_init(&shared.k_full, 1);
    ptx::barrier_init(&shared.v_full, 1);
    ptx::barrier_init(&shared.keys_empty, 2);
    ptx::barrier_init(&shared.dq_full, WARPS);
    ptx::barrier_init(&shared.dq_empty, 1);
    for (int i = 0; i < 2; i++) {
        ptx::barrier_init(&shared.q_full[i], 1);
        ptx::barrier_init(&shared.q_empty[i], 32 * WARPS);
        ptx::barrier_init(&shared.grad_out_full[i], 1);
        ptx::barrier_init(&shared.grad_out_empty[i], WARPS);
        ptx::barrier_init(&shared.item_full[i], 1);
        ptx::barrier_init(&shared.item_empty[i], WARPS + 1);
    }
    ptx::barrier_init_done();
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS, 1)
    backward_hopper(const __grid_constant__ backward_maps maps, const __grid_constant__ problem p,
                    const __grid_constant__ backward_problem  b,
                    const __grid_constant__ backward_schedule schedule)
{
    /* The swizzle needs an alignment of 1024 bytes.  A constant address saves registers. */
    extern __shared__ __align__(1024) char raw[];
    auto                                  &shared = *reinterpret_cast<typename S::shared *>(raw);

    if (threadIdx.x == 0)
        init_backward_barriers<S>(shared);
    __syncthreads();
    int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (group == 0) {
        ptx::registers_give<S::PRODUCER>();
        if (threadIdx.x == 0) {
            backward_producer<S> producer = { shared, maps, p, b, schedule };
            producer.run();
        }
        if (threadIdx.x == 32) {
            backward_adder<S> adder = { shared, p, b, schedule };
            adder.run();
        }
    } else {
        ptx::registers_take<S::CONSUMERS>();
        backward_consumer<S> consumer = { shared, p, schedule, group - 1, p.scale * LOG2_E };
        consumer.run(maps, b.n_row_blocks);
    }
}

/* Scales and rounds the sums of dQ; one block of threads per block of rows. */
template <typename T, int D>
__global__ void __launch_bounds__(128)
    backward_dq(const __grid_constant__ problem p, const __grid_constant__ backward_problem b,
                const float *sums)
{
    int  block = static_cast<int>(blockIdx.x) % b.n_row_blocks;
    int  head  = static_cast<int>(blockIdx.x) / b.n_row_blocks % p.n_heads;
    int  batch = static_cast<int>(blockIdx.x) / b.n_row_blocks / p.n_heads;
    int  lane = threadIdx.x % 32, start = query_start(p, batch);
    bool blind =
        first_key_block(p, start, block) > last_key_block(p, start, key_length(p, batch), block);
    int           row = block * BLOCK_ROWS + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    const float4 *source =
        reinterpret_cast<const float4 *>(sums) + int64_t{ blockIdx.x } * (BLOCK_ROWS * D / 4);

#pragma unroll 4
    for (int i = 0; i < D / 8; i++) {
        float4 sum    = blind ? make_float4(0, 0, 0, 0) : source[128 * i + threadIdx.x];
        int    column = 8 * i + 2 * (lane % 4);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            T *target = static_cast<T *>(b.gradient.dq.data) +
                        row_offset(b.gradient.dq, batch, head, row + 8 * r) + column;
            if (row + 8 * r < p.n_queries)
                *reinterpret_cast<uint32_t *>(target) = ptx::pack<T>(
                    p.scale * (r == 0 ? sum.x : sum.z), p.scale * (r == 0 ? sum.y : sum.w));
        }
    }
}

} // namespace headlight

#endif
