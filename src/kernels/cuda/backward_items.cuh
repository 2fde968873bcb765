/* backward_items.cuh - how the Hopper gradient divides its work.
 *
 * An item is a block of 128 keys of one KV head, with all blocks of 64 rows that see
 * any of them; a step is one such block of rows.  Items are handed out by a counter, head
 * after head.  A head goes through its keys from the last to the first, and each of its
 * items through the rows upwards: with a causal mask the item before began two steps
 * further on, so its sums of the same rows are there in time.
 *
 * Items then grow from two steps to the whole sequence, and the last of all would run
 * alone.  Where a head's items about fill the device, the last head goes backwards, from
 * its first keys to its last and through the rows downwards: its items shrink as those
 * of the head before grow, and all end together. */
#ifndef HL_CUDA_BACKWARD_ITEMS_CUH
#define HL_CUDA_BACKWARD_ITEMS_CUH

#include "kernels/cuda/backward_rows.cuh"

namespace headlight
{

constexpr int BLOCK_KEYS = 128;

struct backward_schedule {
    int    n_key_blocks; /* per KV head */
    int    n_items;      /* items of all heads */
    int    backwards; /* index of the KV head that goes from its first keys to its last, or -1 */
    int   *ticket;    /* the next item; must start at zero */
    int   *turns;     /* (n_batch, n_heads, n_row_blocks) added key blocks; zero at start */
    float *dq;        /* (n_batch, n_heads, n_row_blocks, 64 d_head), as accumulators lie */
    float *gates;     /* (n_batch, n_heads, n_key_blocks, 8) shares of dgates; zero at start */
};

/* The last block of keys that a block of rows sees, or -1.  With first_key_block it defines which
 * blocks meet; everything else follows from the two. */
__device__ __forceinline__ int last_key_block(const problem &p, int start, int length, int block)
{
    int last_row = min(block * BLOCK_ROWS + BLOCK_ROWS, p.n_queries) - 1;
    int last     = min(length - 1, start + last_row + p.window_right);

    return last < 0 ? -1 : last / BLOCK_KEYS;
}

__device__ __forceinline__ int first_key_block(const problem &p, int start, int block)
{
    return hl_reach_begin(&p, start + block * BLOCK_ROWS) / BLOCK_KEYS;
}

/* An item: a block of keys, and the blocks of rows [first, end) that see it. */
struct key_block {
    int batch, kv_head, index, start, length, first, end;
    int way; /* direction through the rows: 1 or -1 */

    __device__ __forceinline__ key_block(const problem &p, const backward_schedule &schedule,
                                         int n_row_blocks, int item)
    {
        int heads = item / schedule.n_key_blocks, rank = item - heads * schedule.n_key_blocks;

        way     = heads == schedule.backwards ? -1 : 1;
        index   = way > 0 ? schedule.n_key_blocks - 1 - rank : rank;
        batch   = heads / p.n_kv_heads;
        kv_head = heads - batch * p.n_kv_heads;
        start   = query_start(p, batch);
        length  = key_length(p, batch);

        int key  = index * BLOCK_KEYS;
        int row  = key - p.window_right - start; /* the first row that sees the first key */
        int stop = key + BLOCK_KEYS + p.window_left - start;
        first    = max(0, row) / BLOCK_ROWS;
        end      = min(n_row_blocks, (max(0, stop) + BLOCK_ROWS - 1) / BLOCK_ROWS);
        if (key >= length || row >= p.n_queries)
            end = first;
        end = max(first, end);
    }

    /* The block of rows to start with. */
    __device__ __forceinline__ int front() const
    {
        return way > 0 ? first : end - 1;
    }

    /* The number of blocks of keys that add to these rows before this one. */
    __device__ __forceinline__ int turn(const problem &p, int row) const
    {
        return way > 0 ? last_key_block(p, start, length, row) - index
                       : index - first_key_block(p, start, row);
    }
};

/* The steps of an item: its blocks of rows, head after head. */
struct backward_step {
    int head, row, left; /* left: remaining steps of this head */

    __device__ __forceinline__ backward_step(const problem &p, const key_block &keys)
        : head(keys.kv_head * p.group), row(keys.front()), left(keys.end - keys.first)
    {
    }
    __device__ __forceinline__ void next(const key_block &keys)
    {
        row += keys.way;
        if (--left == 0) {
            row  = keys.front();
            left = keys.end - keys.first;
            head++;
        }
    }
};

__device__ __forceinline__ int count_steps(const problem &p, const key_block &keys)
{
    return p.group * (keys.end - keys.first);
}

} // namespace headlight

#endif
