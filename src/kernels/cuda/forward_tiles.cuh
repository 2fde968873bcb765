/* forward_tiles.cuh - the tiles of forward_hopper.cuh: their shape and order, what rows see of
 * them, and the producer, the thread that starts the copies of their queries, keys and values. */
#ifndef HL_CUDA_FORWARD_TILES_CUH
#define HL_CUDA_FORWARD_TILES_CUH

#include "kernels/cuda/hopper_ptx.cuh"
#include "kernels/cuda/problem.cuh"

namespace headlight
{

struct hopper_maps {
    CUtensorMap q, k, v, out;
};

struct hopper_schedule {
    int  n_row_tiles;    /* tiles per head */
    int  n_tiles;        /* tiles of all heads */
    int  heads_together; /* number of heads whose keys and values fit the L2 cache */
    int *counter;        /* the next tile, and the number of blocks done; zero at start */
};

/* K and V each have a ring of two buffers.  The n-th block of a kernel's run, over all tiles, uses
 * one of them, and its barrier is in a phase of one parity. */
constexpr int STAGES = 2;

__device__ __forceinline__ int stage_of(int n)
{
    return n & 1;
}

__device__ __forceinline__ uint32_t parity_of(int n)
{
    return (n >> 1) & 1;
}

/* What is summed besides the weights: nothing; for the two entropies; for all statistics. */
enum hopper_level { HOPPER_NOTHING, HOPPER_ENTROPIES, HOPPER_ALL };

/* A kernel's shape: GROUPS consumer groups of 64 rows, and blocks of KEYS keys.  Queries and keys have
 * D elements, values have D_VALUE. */
template <typename T_, int D_, int KEYS_, int GROUPS_, hopper_level LEVEL, bool WINDOWED_ = false,
          int D_VALUE_ = D_>
struct hopper_shape {
    using T                          = T_;
    static constexpr int  D          = D_;
    static constexpr int  D_VALUE    = D_VALUE_;
    static constexpr int  KEYS       = KEYS_;
    static constexpr int  GROUPS     = GROUPS_;
    static constexpr bool STATISTICS = LEVEL >= HOPPER_ENTROPIES;
    static constexpr bool ALL        = LEVEL == HOPPER_ALL;
    static constexpr bool WINDOWED   = WINDOWED_; /* a left window exists */
    static constexpr int  ROWS       = 64 * GROUPS;
    static constexpr int  THREADS    = 128 * (GROUPS + 1);
    static constexpr int  PANELS     = D / 64;
    static constexpr int  V_PANELS   = D_VALUE / 64;
    static constexpr int  CONSUMERS  = GROUPS == 3 ? 160 : 232; /* registers per thread */
    static constexpr int  PRODUCER   = GROUPS == 3 ? 32 : 40;
    static constexpr int  Q_BYTES    = ROWS * D * 2;
    static constexpr int  K_BYTES    = KEYS * D * 2;
    static constexpr int  V_BYTES    = KEYS * D_VALUE * 2;

    /* Beyond d = 128 shared memory has no room for the output beside the queries: it takes their
     * place. */
    static constexpr bool OUT_IN_Q = D > 128;

    struct shared {
        T        q[ROWS * D];                        /* (panel, row, 64), swizzled */
        T        k[STAGES][KEYS * D];                /* (panel, key, 64)           */
        T        v[STAGES][KEYS * D_VALUE];          /* (panel, key, 64)           */
        T        out[OUT_IN_Q ? 1 : ROWS * D_VALUE]; /* (group, panel, 64, 64) */
        uint64_t q_full, q_empty;
        uint64_t k_full[STAGES], k_empty[STAGES];
        uint64_t v_full[STAGES], v_empty[STAGES];
        uint64_t tile_full[2], tile_empty[2];
        int      tile[2];
        float    near_by[ALL ? 2 : 1][ALL ? ROWS : 1]; /* scores of each row's own key, and of the
                                                        * key before it; -inf where hidden */

        /* (64, 64): a panel of a group's output. */
        __device__ __forceinline__ T *out_of(int group, int panel)
        {
            return OUT_IN_Q ? q + panel * ROWS * 64 + group * 64 * 64
                            : out + group * 64 * D_VALUE + panel * 64 * 64;
        }
    };
    static constexpr int SHARED_BYTES = sizeof(shared);
};

/* The place of a tile and the blocks of keys that it visits: those of the window, from the last to
 * block `begin`, then those of kept keys, from n_kept - 1 to 0. */
struct hopper_tile {
    int batch, head, first_row, start, length, n_blocks, n_kept, begin;

    /* The block of a visit; visits count down to 0. */
    __device__ __forceinline__ int block(int visit) const
    {
        return visit < n_kept ? visit : visit - n_kept + begin;
    }
    __device__ __forceinline__ int n_visits() const
    {
        return n_kept + n_blocks - begin;
    }
};

/* What may be hidden from a group's rows in a block.  Fewer tests take less time. */
enum hopper_mask {
    HIDES_NOTHING,
    HIDES_END,  /* keys after the row's window, or beyond the length */
    HIDES_BOTH, /* keys after the window or length, and keys before it that are not kept */
};

/* The columns of a block that a row sees, relative to this thread's first: below end, and either
 * from begin on or below kept.  `own` is the column of the row's own position. */
struct block_view {
    int begin, kept, end, own;

    template <hopper_mask MASK> __device__ __forceinline__ bool has(int column) const
    {
        return column < end && (MASK == HIDES_END || column >= begin || column < kept);
    }
};

template <typename S>
__device__ __forceinline__ hopper_tile open_tile(const problem &p, const hopper_schedule &schedule,
                                                 int index)
{
    int per_section = schedule.n_row_tiles * schedule.heads_together;
    int section     = index / per_section;
    int rest        = index - section * per_section;
    int n_heads =
        min(schedule.heads_together, p.n_batch * p.n_heads - section * schedule.heads_together);
    int row_tile = rest / n_heads;
    int head     = section * schedule.heads_together + rest - row_tile * n_heads;

    hopper_tile tile;
    tile.batch     = head / p.n_heads;
    tile.head      = head - tile.batch * p.n_heads;
    tile.first_row = (schedule.n_row_tiles - 1 - row_tile) * S::ROWS; /* longest tiles first */
    tile.start     = query_start(p, tile.batch);
    tile.length    = key_length(p, tile.batch);

    int last_row  = min(tile.first_row + S::ROWS, p.n_queries) - 1;
    int n_keys    = hl_reach_end(&p, tile.length, tile.start + last_row);
    tile.n_blocks = max(1, (n_keys + S::KEYS - 1) / S::KEYS); /* a blind tile masks one block */
    tile.begin = tile.n_kept = 0;
    if constexpr (S::WINDOWED) {
        tile.begin =
            min(hl_reach_begin(&p, tile.start + tile.first_row) / S::KEYS, tile.n_blocks - 1);
        tile.n_kept = min((hl_reach_kept(&p, n_keys) + S::KEYS - 1) / S::KEYS, tile.begin);
    }
    return tile;
}

/* ----------------------------------------------------------------- producer */

template <typename S> struct hopper_producer {
    typename S::shared &shared;
    const hopper_maps  &maps;
    int                 n_keys = 0, n_values = 0, n_tiles = 0;

    __device__ void load_q(const hopper_tile &tile)
    {
        ptx::barrier_wait(&shared.q_empty, (n_tiles & 1) ^ 1);
        ptx::barrier_expect(&shared.q_full, S::Q_BYTES);
        for (int panel = 0; panel < S::PANELS; panel++)
            ptx::copy_in(shared.q + panel * S::ROWS * 64, &maps.q, &shared.q_full, panel * 64,
                         tile.first_row, tile.head, tile.batch);
    }

    __device__ void load_k(const hopper_tile &tile, int kv_head, int block)
    {
        int stage = stage_of(n_keys);

        ptx::barrier_wait(&shared.k_empty[stage], parity_of(n_keys) ^ 1);
        ptx::barrier_expect(&shared.k_full[stage], S::K_BYTES);
        for (int panel = 0; panel < S::PANELS; panel++)
            ptx::copy_in(shared.k[stage] + panel * S::KEYS * 64, &maps.k, &shared.k_full[stage],
                         panel * 64, block * S::KEYS, kv_head, tile.batch);
        n_keys++;
    }

    __device__ void load_v(const hopper_tile &tile, int kv_head, int block)
    {
        int stage = stage_of(n_values);

        ptx::barrier_wait(&shared.v_empty[stage], parity_of(n_values) ^ 1);
        ptx::barrier_expect(&shared.v_full[stage], S::V_BYTES);
        for (int panel = 0; panel < S::V_PANELS; panel++)
            ptx::copy_in(shared.v[stage] + panel * S::KEYS * 64, &maps.v, &shared.v_full[stage],
                         panel * 64, block * S::KEYS, kv_head, tile.batch);
        n_values++;
    }

    /* Copies in the order in which the consumers read: K is one block ahead of V. */
    __device__ void load_tile(const hopper_tile &tile, int kv_head)
    {
        int visit = tile.n_visits() - 1;

        load_q(tile);
        load_k(tile, kv_head, tile.block(visit));
        for (; visit > 0; visit--) {
            load_k(tile, kv_head, tile.block(visit - 1));
            load_v(tile, kv_head, tile.block(visit));
        }
        load_v(tile, kv_head, tile.block(0));
    }

    __device__ void run(const problem &p, const hopper_schedule &schedule)
    {
        for (int tile = blockIdx.x;; tile = atomicAdd(schedule.counter, 1) + gridDim.x, n_tiles++) {
            int slot = stage_of(n_tiles);

            ptx::barrier_wait(&shared.tile_empty[slot], parity_of(n_tiles) ^ 1);
            shared.tile[slot] = tile;
            ptx::barrier_arrive(&shared.tile_full[slot]);
            if (tile >= schedule.n_tiles)
                break;
            hopper_tile t = open_tile<S>(p, schedule, tile);
            load_tile(t, t.head / p.group);
        }
        /* The last block resets the counters to zero. */
        __threadfence();
        if (atomicAdd(schedule.counter + 1, 1) == static_cast<int>(gridDim.x) - 1) {
            schedule.counter[0] = 0;
            schedule.counter[1] = 0;
        }
    }
};

} // namespace headlight

#endif
