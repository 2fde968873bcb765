/* backward_hopper.cuh - gradients of attention and its entropy for sm_90a.
 *
 * A block of threads has one producer and two consumer warp groups and works on one
 * block of 128 keys after another, 64 keys a group.  It keeps their dK and dV in
 * registers and walks the queries that see them, 64 at a time, of all heads that share
 * the keys:
 *
 *     S^T  = K Q^T                    P^T  = 2^(S^T scale log2(e) - lse)
 *     dP^T = V dO^T                   dS^T = P^T (gate dP^T + constant + slope log2 P^T)
 *     dV  += P^T dO      dK += dS^T Q      dQ += dS K
 *
 * (constant and slope: backward_rows.cuh.)  Scores are transposed so that P^T and dS^T
 * are where the products that follow want them, in registers; dS^T goes to shared
 * memory too, for dQ, of which each group computes half of the columns from all keys.
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
 * adds to it by the copy engine.  Blocks of keys take turns, the last first, so that the
 * same sums are formed in the same order every time.  Turns cost little: items are
 * handed out in the order of their turns, and with a causal mask the block before has
 * always been at the same queries two steps earlier.  As an item waits only for items
 * handed out before it, somebody can always go on.
 *
 * A thread of a group holds keys r = lane / 4 and r + 8 of its warp's 16, queries
 * 8 i + 2 (lane % 4) and the next: accumulators 4 i, 4 i + 1 and 4 i + 2, 4 i + 3. */
#ifndef HL_CUDA_BACKWARD_HOPPER_CUH
#define HL_CUDA_BACKWARD_HOPPER_CUH

#include "kernels/cuda/backward_rows.cuh"
#include "kernels/cuda/hopper_ptx.cuh"

namespace headlight
{

constexpr int BLOCK_KEYS = 128;

struct backward_maps {
    CUtensorMap q, k, v, grad_out, dk, dv;
};

struct backward_schedule {
    int    n_key_blocks; /* of a K/V head */
    int    n_items;      /* of all        */
    int   *ticket;       /* the next item; zero at start */
    int   *turns;        /* (n_batch, n_heads, n_row_blocks): blocks of keys added; zero at start */
    float *dq;           /* (n_batch, n_heads, n_row_blocks, 64 d_head), as accumulators lie */
    float *gates;        /* (n_batch, n_heads, n_key_blocks, 8): shares of dgates; zero at start */
};

/* A kernel's shape.  GATES: heads have gates, or their gradient is wanted. */
template <typename T_, int D_, bool GATES_> struct backward_shape {
    using T                        = T_;
    static constexpr int  D        = D_;
    static constexpr bool GATES    = GATES_;
    static constexpr int  PANELS   = D / 64;
    static constexpr int  THREADS  = 384;
    static constexpr int  K_BYTES  = BLOCK_KEYS * D * 2;
    static constexpr int  Q_BYTES  = BLOCK_ROWS * D * 2;
    static constexpr int  DQ_COUNT = BLOCK_ROWS * D;

    struct shared {
        T         k[BLOCK_KEYS * D];              /* (panel, key, 64), swizzled; at last dK */
        T         v[BLOCK_KEYS * D];              /* (panel, key, 64); at last dV           */
        T         q[2][BLOCK_ROWS * D];           /* (panel, query, 64) */
        T         grad_out[2][BLOCK_ROWS * D];    /* (panel, query, 64) */
        T         ds[2][BLOCK_KEYS * BLOCK_ROWS]; /* (key, 64 queries) */
        float     dq[DQ_COUNT];
        row_block rows[2];
        uint64_t  k_full, v_full, keys_empty;
        uint64_t  q_full[2], q_empty[2];
        uint64_t  grad_out_full[2], grad_out_empty[2];
        uint64_t  dq_full, dq_empty;
        uint64_t  item_full[2], item_empty[2];
        int       item[2];
    };
    static constexpr int SHARED_BYTES = sizeof(shared) + 1024; /* to align it */
};

/* The n-th of a kernel's life lies in one of two places, in a phase of one parity. */
__device__ __forceinline__ int place_of(int n)
{
    return n & 1;
}

__device__ __forceinline__ uint32_t phase_of(int n)
{
    return (n >> 1) & 1;
}

/* The last block of keys that a block of rows sees, -1 where there is none.  With
 * first_key_block it defines which blocks meet; all else follows from the two. */
__device__ __forceinline__ int last_key_block(const problem &p, int start, int length, int block)
{
    int last_row = min(block * BLOCK_ROWS + BLOCK_ROWS, p.n_queries) - 1;
    int last     = min(length - 1, start + last_row + p.window_right);

    return last < 0 ? -1 : last / BLOCK_KEYS;
}

__device__ __forceinline__ int first_key_block(const problem &p, int start, int block)
{
    return max(0, start + block * BLOCK_ROWS - p.window_left) / BLOCK_KEYS;
}

/* A block of keys, and the blocks of rows [first, end) that see it. */
struct key_block {
    int batch, kv_head, index, start, length, first, end;

    __device__ __forceinline__ key_block(const problem &p, const backward_schedule &schedule,
                                         int n_row_blocks, int item)
    {
        int heads = item / schedule.n_key_blocks;

        index   = schedule.n_key_blocks - 1 - (item - heads * schedule.n_key_blocks);
        batch   = heads / p.n_kv_heads;
        kv_head = heads - batch * p.n_kv_heads;
        start   = query_start(p, batch);
        length  = key_length(p, batch);

        int key  = index * BLOCK_KEYS;
        int row  = key - p.window_right - start; /* the first that sees the first key */
        int stop = key + BLOCK_KEYS + p.window_left - start;
        first    = max(0, row) / BLOCK_ROWS;
        end      = min(n_row_blocks, (max(0, stop) + BLOCK_ROWS - 1) / BLOCK_ROWS);
        if (key >= length || row >= p.n_queries)
            end = first;
        end = max(first, end);
    }
};

/* The steps of an item: its blocks of rows, head after head. */
struct backward_step {
    int head, row;

    __device__ __forceinline__ backward_step(const problem &p, const key_block &keys)
        : head(keys.kv_head * p.group), row(keys.first)
    {
    }
    __device__ __forceinline__ void next(const key_block &keys)
    {
        if (++row == keys.end) {
            row = keys.first;
            head++;
        }
    }
};

__device__ __forceinline__ int count_steps(const problem &p, const key_block &keys)
{
    return p.group * (keys.end - keys.first);
}

/* ----------------------------------------------------------------- producer */

template <typename S> struct backward_producer {
    typename S::shared      &shared;
    const backward_maps     &maps;
    const problem           &p;
    const backward_problem  &b;
    const backward_schedule &schedule;
    int                      n_items = 0, n_steps = 0;

    __device__ void load(typename S::T *target, const CUtensorMap &map, uint64_t *barrier,
                         int n_rows, int row, int head, int batch)
    {
        for (int panel = 0; panel < S::PANELS; panel++)
            ptx::copy_in(target + panel * n_rows * 64, &map, barrier, panel * 64, row, head, batch);
    }

    __device__ void load_k(const key_block &keys)
    {
        ptx::barrier_wait(&shared.keys_empty, (n_items & 1) ^ 1);
        ptx::barrier_expect(&shared.k_full, S::K_BYTES);
        load(shared.k, maps.k, &shared.k_full, BLOCK_KEYS, keys.index * BLOCK_KEYS, keys.kv_head,
             keys.batch);
    }

    __device__ void load_v(const key_block &keys)
    {
        ptx::barrier_expect(&shared.v_full, S::K_BYTES);
        load(shared.v, maps.v, &shared.v_full, BLOCK_KEYS, keys.index * BLOCK_KEYS, keys.kv_head,
             keys.batch);
    }

    __device__ void load_q(const key_block &keys, const backward_step &step)
    {
        int       at     = place_of(n_steps);
        uint64_t *full   = &shared.q_full[at];
        int64_t   source = row_block_index(p, b, keys.batch, step.head, step.row);

        ptx::barrier_wait(&shared.q_empty[at], phase_of(n_steps) ^ 1);
        ptx::barrier_expect(full, S::Q_BYTES + sizeof(row_block));
        load(shared.q[at], maps.q, full, BLOCK_ROWS, step.row * BLOCK_ROWS, step.head, keys.batch);
        ptx::copy_bytes_in(&shared.rows[at], b.rows + source, sizeof(row_block), full);
    }

    __device__ void load_grad_out(const key_block &keys, const backward_step &step)
    {
        int       at   = place_of(n_steps);
        uint64_t *full = &shared.grad_out_full[at];

        ptx::barrier_wait(&shared.grad_out_empty[at], phase_of(n_steps) ^ 1);
        ptx::barrier_expect(full, S::Q_BYTES);
        load(shared.grad_out[at], maps.grad_out, full, BLOCK_ROWS, step.row * BLOCK_ROWS, step.head,
             keys.batch);
    }

    /* In the order in which the consumers want it. */
    __device__ void load_item(const key_block &keys)
    {
        backward_step step(p, keys);
        int           left = count_steps(p, keys);

        if (left > 0)
            load_q(keys, step);
        load_k(keys);
        load_v(keys);
        for (; left > 0; left--) {
            load_grad_out(keys, step);
            n_steps++;
            step.next(keys);
            if (left > 1)
                load_q(keys, step);
        }
    }

    __device__ void run()
    {
        for (;; n_items++) {
            int item = atomicAdd(schedule.ticket, 1);
            int slot = place_of(n_items);

            ptx::barrier_wait(&shared.item_empty[slot], phase_of(n_items) ^ 1);
            shared.item[slot] = item;
            ptx::barrier_arrive(&shared.item_full[slot]);
            if (item >= schedule.n_items)
                break;
            load_item(key_block(p, schedule, b.n_row_blocks, item));
        }
    }
};

/* --------------------------------------------------------------- sums of dQ */

/* One thread: what the consumers leave in shared memory, added in turn. */
template <typename S> struct backward_adder {
    typename S::shared      &shared;
    const problem           &p;
    const backward_problem  &b;
    const backward_schedule &schedule;
    int                      n_steps = 0;

    __device__ void add(const key_block &keys, const backward_step &step)
    {
        int64_t target = row_block_index(p, b, keys.batch, step.head, step.row);
        float  *sums   = schedule.dq + target * S::DQ_COUNT;
        int    *turns  = schedule.turns + target;
        int     turn   = last_key_block(p, keys.start, keys.length, step.row) - keys.index;

        ptx::barrier_wait(&shared.dq_full, n_steps & 1);
        while (ptx::load_acquire(turns) != turn)
            ;
        ptx::fence_async_global();
        if (turn == 0)
            ptx::copy_bytes_out(sums, shared.dq, S::DQ_COUNT * sizeof(float));
        else
            ptx::add_floats_out(sums, shared.dq, S::DQ_COUNT * sizeof(float));
        ptx::copy_out_commit();
        ptx::copy_out_wait_read();
        ptx::barrier_arrive(&shared.dq_empty);
        ptx::copy_out_wait();
        ptx::fence_async_global();
        ptx::add_release(turns, 1);
        n_steps++;
    }

    __device__ void run()
    {
        for (int n_items = 0;; n_items++) {
            int slot = place_of(n_items);

            ptx::barrier_wait(&shared.item_full[slot], phase_of(n_items));
            int item = shared.item[slot];
            ptx::barrier_arrive(&shared.item_empty[slot]);
            if (item >= schedule.n_items)
                break;
            key_block     keys(p, schedule, b.n_row_blocks, item);
            backward_step step(p, keys);
            for (int left = count_steps(p, keys); left > 0; left--) {
                add(keys, step);
                step.next(keys);
            }
        }
    }
};

/* ---------------------------------------------------------------- consumers */

template <typename S> struct backward_consumer {
    using T                   = typename S::T;
    static constexpr int N_DQ = S::D / 4; /* accumulators of a thread */
    static constexpr int N_DK = S::D / 2;

    typename S::shared      &shared;
    const problem           &p;
    const backward_schedule &schedule;
    int                      group;
    float                    scale; /* times log2(e) */
    int                      n_steps  = 0;
    float                    gate     = 1.0f;
    float                    gate_sum = 0.0f;
    float                    dk[N_DK], dv[N_DK];
    uint32_t                 weights[16]; /* P^T, two to a register */
    uint32_t                 slopes[16];  /* dS^T */

    __device__ __forceinline__ int lane() const
    {
        return threadIdx.x & 31;
    }
    __device__ __forceinline__ int warp() const
    {
        return (threadIdx.x >> 5) & 3;
    }

    /* One arrival a warp. */
    __device__ __forceinline__ void release(uint64_t *barrier) const
    {
        if (lane() == 0)
            ptx::barrier_arrive(barrier);
    }

    /* ---------------------------------------------------------------- products */

    /* d (64 keys, 64 queries) = this group's keys times the queries, along d_head. */
    __device__ __forceinline__ void issue_square(float (&d)[32], const T *keys,
                                                 const T *queries) const
    {
        uint32_t a = ptx::describe(ptx::shared_address(keys) + group * 64 * 128, 16);
        uint32_t b = ptx::describe(ptx::shared_address(queries), 16);

        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < S::D / 16; step++) {
            int panel = step / 4, inside = step % 4; /* 32 bytes a step, in units of 16 */
            ptx::wgmma_ss<T>(d, a + panel * (BLOCK_KEYS * 128 >> 4) + inside * 2,
                             b + panel * (BLOCK_ROWS * 128 >> 4) + inside * 2, step != 0);
        }
        ptx::wgmma_commit();
    }

    /* d (64 keys, d_head) += what is in registers times the queries' rows. */
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

    /* dq (64 queries, half of d_head) = dS K, over all keys. */
    __device__ __forceinline__ void issue_dq(float (&dq)[N_DQ], int at) const
    {
        uint32_t columns = group * (S::D / 2) * 2; /* bytes; a panel has 128 */
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

    /* Scores to their logarithms of probabilities, where only some pairs meet. */
    __device__ __forceinline__ void hide(float (&scores)[32], const key_block &keys, int row) const
    {
        int key = keys.index * BLOCK_KEYS + group * 64 + warp() * 16 + lane() / 4;
        int ahead[2]; /* of the first query, by so many columns, is the first that sees a key */

#pragma unroll
        for (int r = 0; r < 2; r++) {
            int position = keys.start + row * BLOCK_ROWS + 2 * (lane() % 4);
            ahead[r] =
                key + 8 * r < keys.length ? key + 8 * r - p.window_right - position : WIDE_OPEN;
        }
        unsigned width = static_cast<unsigned>(p.window_right) + p.window_left;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int column = i / 4 * 8 + (i & 1);
            if (static_cast<unsigned>(column - ahead[(i >> 1) & 1]) > width)
                scores[i] = HIDDEN;
        }
    }

    /* Do all of this group's keys meet all queries of the block? */
    __device__ __forceinline__ bool is_whole(const key_block &keys, int row) const
    {
        int first = keys.start + row * BLOCK_ROWS;
        int key   = keys.index * BLOCK_KEYS + group * 64;

        return key + 64 <= keys.length && key + 63 <= first + p.window_right &&
               key >= first + BLOCK_ROWS - 1 - p.window_left;
    }

    __device__ __forceinline__ void weigh(float (&scores)[32], const key_block &keys, int row,
                                          int at)
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
        if (!is_whole(keys, row))
            hide(scores, keys, row);
        float factor = S::GATES ? gate : 1.0f;
#pragma unroll
        for (int i = 0; i < 16; i++)
            weights[i] = ptx::pack<T>(factor * ptx::exp2_fast(scores[2 * i]),
                                      factor * ptx::exp2_fast(scores[2 * i + 1]));
    }

    __device__ __forceinline__ void differentiate(const float (&scores)[32],
                                                  const float (&products)[32], int at)
    {
        const float4 *terms = shared.rows[at].terms + lane() % 4;
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

    __device__ __forceinline__ void store_slopes(int at) const
    {
        uint32_t base   = ptx::shared_address(shared.ds[at]);
        int      matrix = lane() / 8;
        int      row    = group * 64 + warp() * 16 + (matrix & 1) * 8 + lane() % 8;

#pragma unroll
        for (int i = 0; i < 4; i++) { /* 16 queries */
            int column = i * 16 + (matrix >> 1) * 8;
            ptx::store_matrices(base + row * 128 + ((column * 2) ^ ((row & 7) << 4)), slopes[4 * i],
                                slopes[4 * i + 1], slopes[4 * i + 2], slopes[4 * i + 3]);
        }
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
        __syncwarp();
        release(&shared.dq_full);
    }

    /* This group's dK or dV, in the place of its K or V. */
    __device__ __forceinline__ void store_keys(T    *target, const float (&d)[N_DK],
                                               float factor) const
    {
        uint32_t base   = ptx::shared_address(target);
        int      matrix = lane() / 8;
        int      row    = group * 64 + warp() * 16 + (matrix & 1) * 8 + lane() % 8;

#pragma unroll
        for (int i = 0; i < N_DK / 8; i++) { /* 16 columns */
            int      column  = i * 16 + (matrix >> 1) * 8;
            uint32_t address = base + (column / 64) * BLOCK_KEYS * 128 + row * 128 +
                               ((column % 64 * 2) ^ ((row & 7) << 4));
            ptx::store_matrices(address, ptx::pack<T>(d[8 * i] * factor, d[8 * i + 1] * factor),
                                ptx::pack<T>(d[8 * i + 2] * factor, d[8 * i + 3] * factor),
                                ptx::pack<T>(d[8 * i + 4] * factor, d[8 * i + 5] * factor),
                                ptx::pack<T>(d[8 * i + 6] * factor, d[8 * i + 7] * factor));
        }
    }

    /* -------------------------------------------------------------------- steps */

    /* A head's share of dgates from this warp and block of keys. */
    __device__ __forceinline__ void put_gate(const key_block &keys, int head)
    {
        float sum = gate_sum;

#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_xor_sync(~0u, sum, step);
        if (lane() == 0 && schedule.gates != nullptr)
            schedule.gates[((static_cast<int64_t>(keys.batch) * p.n_heads + head) *
                                schedule.n_key_blocks +
                            keys.index) *
                               8 +
                           group * 4 + warp()] = sum;
        gate_sum = 0.0f;
    }

    /* One block of queries.  dK of the step before is still under way, and this one's
     * is at the end. */
    __device__ __forceinline__ void run_step(const key_block &keys, const backward_step &step,
                                             bool first)
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
        ptx::wgmma_wait<1>(); /* the scores, and dK */
        ptx::settle(scores);
        ptx::settle(dk);
        if (!first)
            release(&shared.q_empty[at ^ 1]);
        weigh(scores, keys, step.row, at);
        issue_sum(dv, weights, shared.grad_out[at]);
        ptx::wgmma_wait<1>();
        ptx::settle(products);
        differentiate(scores, products, at);
        store_slopes(at);
        ptx::named_sync(1, 256);
        issue_dq(dq, at);
        issue_sum(dk, slopes, shared.q[at]);
        ptx::wgmma_wait<1>(); /* dV and dQ */
        ptx::settle(dv);
        ptx::settle(dq);
        release(&shared.grad_out_empty[at]);
        store_dq(dq);
        n_steps++;
    }

    __device__ __forceinline__ void run_steps(const key_block &keys)
    {
        backward_step step(p, keys);
        int           count = count_steps(p, keys);

        for (int i = 0; i < count; i++) {
            if (S::GATES && p.gates != nullptr)
                gate = p.gates[step.head];
            run_step(keys, step, i == 0);
            if (S::GATES && step.row == keys.end - 1)
                put_gate(keys, step.head);
            step.next(keys);
        }
        ptx::wgmma_wait<0>();
        ptx::settle(dk);
        if (count > 0)
            release(&shared.q_empty[place_of(n_steps - 1)]);
    }

    __device__ __forceinline__ void finish(const backward_maps &maps, const key_block &keys)
    {
        ptx::named_sync(1, 256); /* nobody reads K any more */
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
            int item = __shfl_sync(~0u, shared.item[slot], 0); /* the same in all lanes */
            release(&shared.item_empty[slot]);
            if (item >= schedule.n_items)
                break;
            key_block keys(p, schedule, n_row_blocks, item);
#pragma unroll
            for (int i = 0; i < N_DK; i++)
                dk[i] = dv[i] = 0.0f;
            ptx::barrier_wait(&shared.k_full, n_items & 1);
            ptx::barrier_wait(&shared.v_full, n_items & 1);
            run_steps(keys);
            finish(maps, keys);
        }
        if (threadIdx.x % 128 == 0)
            ptx::copy_out_wait();
    }
};

/* ------------------------------------------------------------------- kernels */

template <typename S> __device__ __forceinline__ void init_barriers(typename S::shared &shared)
{
    constexpr int WARPS = 8; /* of consumers */

    ptx::barrier_init(&shared.k_full, 1);
    ptx::barrier_init(&shared.v_full, 1);
    ptx::barrier_init(&shared.keys_empty, 2);
    ptx::barrier_init(&shared.dq_full, WARPS);
    ptx::barrier_init(&shared.dq_empty, 1);
    for (int i = 0; i < 2; i++) {
        ptx::barrier_init(&shared.q_full[i], 1);
        ptx::barrier_init(&shared.q_empty[i], WARPS);
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
    extern __shared__ char raw[];
    auto                  &shared = *reinterpret_cast<typename S::shared *>(
        (reinterpret_cast<uintptr_t>(raw) + 1023) & ~static_cast<uintptr_t>(1023));

    if (threadIdx.x == 0)
        init_barriers<S>(shared);
    __syncthreads();
    int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (group == 0) {
        ptx::registers_give<24>();
        if (threadIdx.x == 0) {
            backward_producer<S> producer = { shared, maps, p, b, schedule };
            producer.run();
        }
        if (threadIdx.x == 32) {
            backward_adder<S> adder = { shared, p, b, schedule };
            adder.run();
        }
    } else {
        ptx::registers_take<240>();
        backward_consumer<S> consumer = { shared, p, schedule, group - 1, p.scale * LOG2_E };
        consumer.run(maps, b.n_row_blocks);
    }
}

/* The sums of dQ, scaled and rounded.  A block of threads a block of rows. */
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
