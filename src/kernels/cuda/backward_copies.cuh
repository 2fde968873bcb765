/* backward_copies.cuh - the shared memory of the Hopper gradient, and the threads that fill and
 * empty it.
 *
 * The producer, one thread, takes items from the counter.  It copies K and V once per item, and Q,
 * dO and the rows' numbers once per step, through two places each.  The adder, another thread, adds
 * the consumers' parts of dQ to working memory.
 *
 * Blocks of keys add to a block of rows in turn, so that the same sums are formed in the same order
 * every time: the adder waits until a counter of those rows says that all earlier sums are
 * complete, adds its own, and increments the counter when they have arrived.  The first block
 * stores instead, so the memory need not be zeroed.  Items are handed out in the order of their
 * turns.  Each waits only for items handed out before it, so there is no deadlock. */
#ifndef HL_CUDA_BACKWARD_COPIES_CUH
#define HL_CUDA_BACKWARD_COPIES_CUH

#include "kernels/cuda/backward_items.cuh"
#include "kernels/cuda/hopper_ptx.cuh"

namespace headlight
{

struct backward_maps {
    CUtensorMap q, k, v, grad_out, dk, dv;
};

/* The producer's note to the consumers for one step; they have no registers to spare. */
struct backward_note {
    int     ahead; /* position of the first query minus that of the first key */
    int     room;  /* number of keys from the first one to the end of the sequence */
    float   gate;  /* gate of the head */
    int64_t gates; /* where the shares of dgates go, after a head's last step; else -1 */
};

/* A kernel's shape.  GATES is set if heads have gates or their gradient is wanted. */
template <typename T_, int D_, bool GATES_> struct backward_shape {
    using T                         = T_;
    static constexpr int  D         = D_;
    static constexpr bool GATES     = GATES_;
    static constexpr int  PANELS    = D / 64;
    static constexpr int  THREADS   = 384;
    static constexpr int  CONSUMERS = D == 128 ? 240 : 232; /* registers per thread */
    static constexpr int  PRODUCER  = D == 128 ? 24 : 40;
    static constexpr int  K_BYTES   = BLOCK_KEYS * D * 2;
    static constexpr int  Q_BYTES   = BLOCK_ROWS * D * 2;
    static constexpr int  DQ_COUNT  = BLOCK_ROWS * D;

    struct shared {
        T             k[BLOCK_KEYS * D];              /* (panel, key, 64), swizzled; later dK */
        T             v[BLOCK_KEYS * D];              /* (panel, key, 64); later dV */
        T             q[2][BLOCK_ROWS * D];           /* (panel, query, 64) */
        T             grad_out[2][BLOCK_ROWS * D];    /* (panel, query, 64) */
        T             ds[2][BLOCK_KEYS * BLOCK_ROWS]; /* (key, 64 queries) */
        float         dq[DQ_COUNT];
        row_block     rows[2];
        backward_note notes[2];
        uint64_t      k_full, v_full, keys_empty;
        uint64_t      q_full[2], q_empty[2];
        uint64_t      grad_out_full[2], grad_out_empty[2];
        uint64_t      dq_full, dq_empty;
        uint64_t      item_full[2], item_empty[2];
        int           item[2];
    };
    static constexpr int SHARED_BYTES = sizeof(shared);
};

/* The n-th copy of a kernel's run uses one of two places, in a phase of one parity. */
__device__ __forceinline__ int place_of(int n)
{
    return n & 1;
}

__device__ __forceinline__ uint32_t phase_of(int n)
{
    return (n >> 1) & 1;
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

    __device__ void note(backward_note &out, const key_block &keys, const backward_step &step)
    {
        int key = keys.index * BLOCK_KEYS;

        out.ahead = key - keys.start - step.row * BLOCK_ROWS;
        out.room  = keys.length - key;
        if (!S::GATES)
            return;
        out.gate  = p.gates != nullptr ? p.gates[step.head] : 1.0f;
        out.gates = -1;
        if (step.left == 1 && schedule.gates != nullptr)
            out.gates = ((static_cast<int64_t>(keys.batch) * p.n_heads + step.head) *
                             schedule.n_key_blocks +
                         keys.index) *
                        8;
    }

    __device__ void load_q(const key_block &keys, const backward_step &step)
    {
        int       at     = place_of(n_steps);
        uint64_t *full   = &shared.q_full[at];
        int64_t   source = row_block_index(p, b, keys.batch, step.head, step.row);

        ptx::barrier_wait(&shared.q_empty[at], phase_of(n_steps) ^ 1);
        note(shared.notes[at], keys, step);
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

    /* Copies in the order in which the consumers read. */
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

/* One thread that adds the consumers' results in shared memory to dQ, in turn. */
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
        int     turn   = keys.turn(p, step.row);

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

} // namespace headlight

#endif
