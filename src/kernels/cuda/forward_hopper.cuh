/* forward_hopper.cuh - attention with entropy for sm_90a.
 *
 * A block of one producer and several consumer warp groups works on one tile of
 * queries after another, taken from a counter, the longest first.
 *
 *     producer     copies Q once per tile, K and V block by block, through a ring of
 *                  stages, by the tensor copy engine; keeps few registers
 *     consumers    64 rows each:  S = Q K^T, softmax and sums, O += P V
 *
 * The product S of block n-1 is issued before O += P V of block n, so that the softmax
 * of one block runs beside the product of the other; and while one group is in its
 * softmax, the others' products keep the tensor cores busy.  (Making groups take turns
 * with barriers, as is often done, was slower here: bench/ladder.)
 *
 * The maximum of a row is searched only where necessary: in blocks with a mask, and when a weight
 * relative to the old maximum exceeds 2^8, which sends its warp back to that block's scores
 * (score_again).  Elsewhere weights are relative to the row's current center; all sums and the
 * output are exact for any center.
 *
 * The statistics come from the sums of forward_sums.cuh, which are exact for any center c.  spread,
 * the largest weight and the weight of key 0 are kept only if all statistics are wanted.  Key 0 is
 * in the last block that a tile visits.  Its weight joins the sums after the entropy without it has
 * been computed.
 *
 * Each thread keeps the sums of its own columns of two rows; the four threads of a row add their
 * sums once, at the end.  A block's sums are formed on their own and then added, which keeps
 * rounding small over long rows.
 *
 * A thread of a group holds rows r = lane / 4 and r + 8 of its warp's 16, columns
 * 8 i + 2 (lane % 4) and the next: accumulators 4 i, 4 i + 1 and 4 i + 2, 4 i + 3. */
#ifndef HL_CUDA_FORWARD_HOPPER_CUH
#define HL_CUDA_FORWARD_HOPPER_CUH

#include "kernels/cuda/forward_sums.cuh"
#include "kernels/cuda/forward_tiles.cuh"

namespace headlight
{

/* ------------------------------------------------------------- scores once more
 * A product by a warp group needs all four warps.  When the weights of a block have outgrown the
 * center of a row, which is rare, its warp alone computes the replaced scores again: mma.sync
 * leaves them in the same registers as wgmma, and no other warp takes part. */

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

/* ---------------------------------------------------------------- consumers */

/* Whether this kernel computes the probabilities of the rows' own keys and of those before.  Where
 * rows see keys after their own, these may be in any block. */
template <typename S> __host__ __device__ __forceinline__ bool keeps_near(const problem &p)
{
    return S::ALL && p.window_right == 0 &&
           (p.result.self != nullptr || p.result.previous != nullptr);
}

template <typename S> struct hopper_consumer {
    using T                       = typename S::T;
    static constexpr int N_SCORES = S::KEYS / 2; /* scores per thread */
    static constexpr int N_OUT    = S::D_VALUE / 2;

    /* The pace of weigh_block: number of scores per chunk, and how far the sums stay behind.  Both
     * were chosen by measurement. */
    static constexpr int CHUNK =
        N_SCORES % 16 == 0 && (S::ALL || (S::STATISTICS && S::D >= 128)) ? 16 : 8;
    static constexpr int LAG = CHUNK == 16 ? 12 : 6;

    /* Whether blocks are processed in pairs, so that the addresses of both buffers are constants.
     * That saves 1 to 3% of the time, but with all statistics at d = 128 it costs 1%. */
    static constexpr bool IN_PAIRS = S::D == 64 || !S::ALL;
    static constexpr int  EITHER   = -1; /* the stage is not a constant here */

    using sums = hopper_sums<S::STATISTICS, S::ALL>;

    typename S::shared &shared;
    int                 group;
    float               scale;    /* scale times log2(e) */
    int                 n_blocks; /* number of blocks of values so far */
    float               top[2];   /* the maximum or center of each row */
    sums                rows;
    float               first[2]; /* key 0's weight, which is not in the sums yet; in lane 0 of 4 */
    float               out[N_OUT];
    uint32_t            weights[N_SCORES / 2]; /* P, two values per register */
    int                 edge; /* the visit with the key before the group's first row; ALL */
    bool                has_keys, has_values; /* whether the next ones are known to have arrived */

    __device__ __forceinline__ int lane() const
    {
        return threadIdx.x & 31;
    }
    __device__ __forceinline__ int warp() const
    {
        return (threadIdx.x >> 5) & 3;
    }

    /* Each warp arrives once. */
    __device__ __forceinline__ void release(uint64_t *barrier) const
    {
        if (lane() == 0)
            ptx::barrier_arrive(barrier);
    }

    /* Issues S = Q K^T. */
    __device__ __forceinline__ void issue_scores(float (&scores)[N_SCORES], int stage) const
    {
        uint32_t q = ptx::describe(ptx::shared_address(shared.q) + group * 64 * 128, 16);
        uint32_t k = ptx::describe(ptx::shared_address(shared.k[stage]), 16);

        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < S::D / 16; step++) {
            int panel = step / 4, inside = step % 4; /* 32 bytes per step, in units of 16 */
            ptx::wgmma_ss<T>(scores, q + panel * (S::ROWS * 128 >> 4) + inside * 2,
                             k + panel * (S::KEYS * 128 >> 4) + inside * 2, step != 0);
        }
        ptx::wgmma_commit();
    }

    /* Issues O += P V. */
    __device__ __forceinline__ void issue_out(int stage)
    {
        uint32_t v = ptx::describe(ptx::shared_address(shared.v[stage]), S::KEYS * 128);

        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < S::KEYS / 16; step++)
            ptx::wgmma_rs<T>(out, weights + 4 * step, v + step * (16 * 128 >> 4));
        ptx::wgmma_commit();
    }

    /* Returns a weight as the sums count it.  A thread's first score of a row is key 0's in the
     * last block, in lane 0 of 4.  It stays out of the sums until the entropy without it is known:
     * subtracting it later would leave only rounding errors in a row that it dominates.  Its
     * exponent is replaced by 0 also, as it may be NaN. */
    __device__ __forceinline__ static float counted(int i, float value, bool apart)
    {
        return S::ALL && (i == 0 || i == 2) && apart ? 0.0f : value;
    }

    /* Replaces scores by weights, moves the rows' sums to the new maximum and adds the weights,
     * except those that stay apart.  `rescale` gets the factor of the output. */
    template <hopper_mask MASK>
    __device__ __forceinline__ void weigh(float (&rescale)[2], float (&scores)[N_SCORES],
                                          const block_view (&view)[2], bool apart = false)
    {
        float most[2] = { top[0], top[1] };
        float center[2];

#pragma unroll
        for (int i = 0; i < N_SCORES; i++) {
            int row = (i >> 1) & 1;
            if (MASK != HIDES_NOTHING && !view[row].template has<MASK>((i / 4) * 8 + (i & 1)))
                scores[i] = -INFINITY;
            /* A center of +inf would leave nothing of the keys other than key 0. */
            if (S::ALL && (i == 0 || i == 2) && apart && scores[i] == INFINITY)
                scores[i] = NAN;
            most[row] = fmaxf(most[row], scores[i]);
        }
#pragma unroll
        for (int row = 0; row < 2; row++) {
            most[row]   = fmaxf(most[row], __shfl_xor_sync(~0u, most[row], 1));
            most[row]   = fmaxf(most[row], __shfl_xor_sync(~0u, most[row], 2));
            center[row] = most[row] == -INFINITY ? 0.0f : __fmul_rn(most[row], scale);
            /* A row without keys has max -inf; its sums are 0. */
            rescale[row] = rows.move(row, fmaxf(__fmul_rn(top[row], scale) - center[row], FLOOR));
            top[row]     = most[row];
        }

        sums block;
#pragma unroll
        for (int i = 0; i < N_SCORES; i++) {
            int   row = (i >> 1) & 1;
            float x   = max_or_nan(fmaf(scores[i], scale, -center[row]), FLOOR);

            scores[i] = ptx::exp2_fast(x);
            block.add(row, counted(i, x, apart), counted(i, scores[i], apart));
            if (i & 1)
                block.look(row, scores[i - 1], scores[i]);
        }
        rows.add(block);
    }

    /* Moves the rows' sums to the score of key 0, which this block begins with, where that is above
     * the current center.  `rescale` gets the factor of the output. */
    __device__ __forceinline__ void lift(float (&rescale)[2], float (&scores)[N_SCORES], bool apart)
    {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            float &own = scores[2 * row];

            if (apart && own == INFINITY) /* as in weigh */
                own = NAN;
            float most   = fmaxf(top[row], __shfl_sync(~0u, own, lane() & ~3));
            float center = most == -INFINITY ? 0.0f : __fmul_rn(most, scale);
            rescale[row] = rows.move(row, fmaxf(__fmul_rn(top[row], scale) - center, FLOOR));
            top[row]     = most;
        }
    }

    /* Replaces scores by weights relative to the rows' current center, and computes the block's
     * sums, without key 0's if it is apart.  Returns false if a weight is too large for that center. */
    __device__ __forceinline__ bool weigh_block(sums &block, float (&scores)[N_SCORES], bool apart)
    {
        const float center[2] = { __fmul_rn(top[0], scale), __fmul_rn(top[1], scale) };
        float       about[2]  = { center[0], center[1] };
        float       x[N_SCORES];
        sums        then[2]; /* sums after even and after odd chunks */

#pragma unroll
        for (int i = 0; i < N_SCORES + LAG; i++) {
            /* Otherwise the compiler moves the sums to the end, where nothing hides their latency.
             * Adding zero times the sums of two chunks ago prevents that. */
            if (i < N_SCORES && i % CHUNK == 0 && i >= 3 * CHUNK) {
                bool odd = i / CHUNK % 2 == 1;
#pragma unroll
                for (int row = 0; row < 2; row++)
                    about[row] = fmaf(
                        0.0f, S::STATISTICS && odd ? then[1].collision[row] : then[odd].sum[row],
                        center[row]);
            }
            if (i < N_SCORES) {
                x[i]      = fmaf(scores[i], scale, -about[(i >> 1) & 1]);
                scores[i] = ptx::exp2_fast(x[i]);
            }
            if (i >= LAG)
                block.add(((i - LAG) >> 1) & 1, counted(i - LAG, x[i - LAG], apart),
                          counted(i - LAG, scores[i - LAG], apart));
            if (i >= LAG && ((i - LAG) & 1))
                block.look(((i - LAG) >> 1) & 1, scores[i - LAG - 1], scores[i - LAG]);
            if (i >= LAG && (i - LAG) % CHUNK == CHUNK - 1)
                then[(i - LAG) / CHUNK % 2] = block;
        }

        /* The comparison is false for NaN, from a row that has no center yet.  If block.sum is
         * within its bound, so are the other sums; testing them makes the compiler finish them
         * before the vote. */
        bool fits = block.sum[0] <= LARGEST && block.sum[1] <= LARGEST;
        if (S::STATISTICS)
            fits = fits && block.dot[0] <= 8 * LARGEST && block.dot[1] <= 8 * LARGEST &&
                   block.collision[0] <= LARGEST * LARGEST &&
                   block.collision[1] <= LARGEST * LARGEST;
        if (S::ALL)
            fits = fits && block.spread[0] <= 80 * LARGEST && block.spread[1] <= 80 * LARGEST;
        return fits;
    }

    /* As weigh_block, and adds the block's sums to the rows'.  If a weight is too large in any row
     * of this warp it returns false and leaves the rows' sums unchanged. */
    __device__ __forceinline__ bool weigh_about(float (&scores)[N_SCORES], bool apart)
    {
        sums block;

        if (!__all_sync(~0u, weigh_block(block, scores, apart)))
            return false;
        rows.add(block);
        return true;
    }

    __device__ __forceinline__ void round_weights(const float (&scores)[N_SCORES],
                                                  bool apart = false)
    {
        if (S::ALL) {
            first[0] = apart ? scores[0] : 0.0f;
            first[1] = apart ? scores[2] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < N_SCORES / 2; i++)
            weights[i] = ptx::pack<T>(scores[2 * i], scores[2 * i + 1]);
    }

    __device__ __forceinline__ void rescale_out(const float (&rescale)[2])
    {
#pragma unroll
        for (int i = 0; i < N_OUT; i++)
            out[i] *= rescale[(i >> 1) & 1];
    }

    /* Sets the columns of a block that this thread's rows see. */
    __device__ __forceinline__ void look(block_view (&view)[2], const problem &p,
                                         const hopper_tile &tile, int block) const
    {
        int position = tile.start + tile.first_row + group * 64 + warp() * 16 + lane() / 4;
        int before   = block * S::KEYS + 2 * (lane() % 4);

#pragma unroll
        for (int row = 0; row < 2; row++, position += 8) {
            view[row].end   = hl_reach_end(&p, tile.length, position) - before;
            view[row].begin = position - p.window_left - before;
            view[row].kept  = p.window_sink - before;
            view[row].own   = position - before;
        }
    }

    /* A row's place in shared.near_by. */
    __device__ __forceinline__ int near_place(int row) const
    {
        return group * 64 + warp() * 16 + lane() / 4 + 8 * row;
    }

    /* Keeps the scores of the rows' own keys and of the keys before those, for put_near.  The first row
     * of this warp has its own key in column `from` of the block, the next rows in the next columns: row
     * r of this thread has it in one of two groups of eight columns, or the key before in the last
     * column of the group before these.  Selecting all of them without branches is fastest. */
    template <hopper_mask MASK>
    __device__ __forceinline__ void keep_near(const float (&scores)[N_SCORES],
                                              const block_view (&view)[2]) const
    {
        int   from          = __shfl_sync(~0u, view[0].own, 0);
        float before[2]     = {},
              here[2][2][2] = {}; /* of a row; in either group, even or odd column */

        if (from > S::KEYS || from + 15 < 0)
            return;
#pragma unroll
        for (int i = 0; i < N_SCORES; i += 4) {
            int away = i / 4 - (from >> 3); /* this group's distance from the first row's */
#pragma unroll
            for (int row = 0; row < 2; row++) {
                before[row]     = away == row - 1 ? scores[i + 2 * row + 1] : before[row];
                here[row][0][0] = away == row ? scores[i + 2 * row] : here[row][0][0];
                here[row][0][1] = away == row ? scores[i + 2 * row + 1] : here[row][0][1];
                here[row][1][0] = away == row + 1 ? scores[i + 2 * row] : here[row][1][0];
                here[row][1][1] = away == row + 1 ? scores[i + 2 * row + 1] : here[row][1][1];
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) { /* the own keys of both rows, then those before */
            int  row    = k & 1;
            int  inside = (from & 7) + lane() / 4 - k / 2; /* column in the two groups */
            int  column = view[row].own - k / 2;           /* relative to this thread's first */
            bool odd    = (inside & 1) != 0;
            if (((inside & 7) >> 1) != lane() % 4 || column + 2 * (lane() % 4) < 0 ||
                column + 2 * (lane() % 4) >= S::KEYS || !view[row].template has<MASK>(column))
                continue;
            float score = inside < 8 ? (odd ? here[row][0][1] : here[row][0][0])
                                     : (odd ? here[row][1][1] : here[row][1][0]);
            shared.near_by[k / 2][near_place(row)] = inside < 0 ? before[row] : score;
        }
    }

    /* Whether this thread has key 0 in this visit.  Only masked visits ask. */
    __device__ __forceinline__ bool is_apart(const hopper_tile &tile, int visit) const
    {
        return S::ALL && visit == 0 && tile.block(0) == 0 && lane() % 4 == 0;
    }

    /* Waits until the values of block n_blocks, or the keys of the next block, have arrived. */
    __device__ __forceinline__ void await_keys(int stage)
    {
        if (!has_keys)
            ptx::barrier_wait(&shared.k_full[stage], parity_of(n_blocks + 1));
    }

    __device__ __forceinline__ void await_values(int stage)
    {
        if (!has_values)
            ptx::barrier_wait(&shared.v_full[stage], parity_of(n_blocks));
    }

    /* Polls for the next keys and values before the rounding, which hides the latency.  At d = 64,
     * where three groups hide it already, this was not faster. */
    __device__ __forceinline__ void ask_for_next(int keys, int values)
    {
        has_keys =
            S::D >= 128 && ptx::barrier_is_over(&shared.k_full[keys], parity_of(n_blocks + 1));
        has_values =
            S::D >= 128 && ptx::barrier_is_over(&shared.v_full[values], parity_of(n_blocks));
    }

    /* One visit, after the visit whose weights are ready: computes its scores while those weights
     * are multiplied by V, which is in STAGE.  HAS_FIRST: nothing is hidden, and key 0 may be apart. */
    template <hopper_mask MASK, int STAGE = EITHER, bool HAS_FIRST = false>
    __device__ __forceinline__ void step(const problem &p, const hopper_tile &tile, int visit)
    {
        constexpr bool MASKED = MASK != HIDES_NOTHING;
        bool           apart  = (MASKED || HAS_FIRST) && is_apart(tile, visit);

        float      scores[N_SCORES];
        float      rescale[2], lifted[2] = { 1.0f, 1.0f };
        block_view view[2] = {};

        const int values = STAGE == EITHER ? stage_of(n_blocks) : STAGE;
        const int keys   = values ^ 1; /* keys are one block ahead */

        await_keys(keys);
        issue_scores(scores, keys);
        await_values(values);
        issue_out(values);
        ptx::wgmma_wait<1>();
        ptx::settle(scores);
        if (S::ALL && !MASKED && visit == edge && threadIdx.x % 128 == 3)
            shared.near_by[1][near_place(0)] = scores[N_SCORES - 3];
        if (HAS_FIRST && tile.block(visit) == 0)
            lift(lifted, scores, apart);
        if (!MASKED && weigh_about(scores, apart)) {
            release(&shared.k_empty[keys]);
            ptx::wgmma_wait<0>();
            ptx::settle(out);
        } else {
            if (MASKED) {
                look(view, p, tile, tile.block(visit));
                if (keeps_near<S>(p))
                    keep_near<MASK>(scores, view);
            } else /* rare */
                score_again<S>(scores, shared, keys, group * 64 + warp() * 16);
            weigh<MASK>(rescale, scores, view, apart);
            release(&shared.k_empty[keys]);
            ptx::wgmma_wait<0>();
            ptx::settle(out);
            rescale_out(rescale);
        }
        if (HAS_FIRST)
            rescale_out(lifted);
        release(&shared.v_empty[values]);
        n_blocks++;
        ask_for_next(values, keys); /* keys and values change places */
        round_weights(scores, apart);
    }

    /* Processes visits down to `last` in which nothing is hidden.  The loop over pairs stands
     * alone: with the odd visits in it, it was slower than a loop without pairs. */
    __device__ __forceinline__ int step_to(const problem &p, const hopper_tile &tile, int visit,
                                           int last)
    {
        if constexpr (IN_PAIRS) {
            if (visit >= last && stage_of(n_blocks) == 1)
                step<HIDES_NOTHING>(p, tile, visit--);
            for (; visit > last; visit -= 2) {
                step<HIDES_NOTHING, 0>(p, tile, visit);
                step<HIDES_NOTHING, 1>(p, tile, visit - 1);
            }
        }
        for (; visit >= last; visit--)
            step<HIDES_NOTHING>(p, tile, visit);
        return visit;
    }

    /* Processes the first block, which has no earlier weights to multiply and may be masked. */
    template <hopper_mask MASK>
    __device__ __forceinline__ void first_step(const problem &p, const hopper_tile &tile)
    {
        float      scores[N_SCORES];
        float      rescale[2];
        block_view view[2];

        has_keys = has_values = false;
        ptx::barrier_wait(&shared.k_full[stage_of(n_blocks)], parity_of(n_blocks));
        issue_scores(scores, stage_of(n_blocks));
        ptx::wgmma_wait<0>();
        ptx::settle(scores);
        release(&shared.k_empty[stage_of(n_blocks)]);
        look(view, p, tile, tile.n_blocks - 1);
        if (keeps_near<S>(p))
            keep_near<MASK>(scores, view);
        bool apart = is_apart(tile, tile.n_visits() - 1);
        weigh<MASK>(rescale, scores, view, apart);
        round_weights(scores, apart);
    }

    __device__ __forceinline__ void last_step()
    {
        ptx::barrier_wait(&shared.v_full[stage_of(n_blocks)], parity_of(n_blocks));
        issue_out(stage_of(n_blocks));
        ptx::wgmma_wait<0>();
        ptx::settle(out);
        release(&shared.v_empty[stage_of(n_blocks)]);
        n_blocks++;
    }

    __device__ __forceinline__ void reset()
    {
        top[0] = top[1] = -INFINITY;
        rows            = sums();
#pragma unroll
        for (int i = 0; i < N_OUT; i++)
            out[i] = 0.0f;
        if (S::ALL && lane() % 4 == 0) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                shared.near_by[i / 2][near_place(i % 2)] = -INFINITY;
        }
        __syncwarp();
    }

    __device__ void run_tile(const problem &p, const hopper_tile &tile, uint32_t q_parity)
    {
        /* All rows of this group see blocks below `end` to their end and blocks from `begin` on
         * from their start.  `above` and `hidden` are these bounds as visits.  Visits with a mask keep
         * the scores of the rows' own keys and of those before.  Where a block begins with the first
         * row's own key, the key before is the last of the block before: visit `edge`. */
        constexpr hopper_mask EDGE  = S::WINDOWED ? HIDES_BOTH : HIDES_END;
        int                   first = tile.start + tile.first_row + group * 64;
        int                   end   = hl_reach_end(&p, tile.length, first);
        if (keeps_near<S>(p) && (first + 1) % S::KEYS == 0) /* the row's own key is the last of a block */
            end = min(end, first);
        int above  = tile.n_kept + max(0, max(0, end) / S::KEYS - tile.begin);
        int hidden = 0; /* visits in which keys before the window are hidden */
        int visit  = tile.n_visits() - 2;

        edge = keeps_near<S>(p) && first % S::KEYS == 0
                   ? tile.n_kept + first / S::KEYS - 1 - tile.begin
                   : -1;
        if constexpr (S::WINDOWED) {
            int begin = (hl_reach_begin(&p, first + 63) + S::KEYS - 1) / S::KEYS;
            hidden    = tile.n_kept + max(0, begin - tile.begin);
        }
        reset();
        ptx::barrier_wait(&shared.q_full, q_parity);
        first_step<EDGE>(p, tile);
        for (; visit >= above; visit--)
            step<EDGE>(p, tile, visit);
        visit = step_to(p, tile, visit, S::ALL ? max(hidden, 1) : hidden);
        if constexpr (S::ALL) {
            if (visit == 0 && hidden == 0)
                step<HIDES_NOTHING, EITHER, true>(p, tile, visit--);
        }
        if constexpr (S::WINDOWED) {
            for (; visit >= 0; visit--)
                step<EDGE>(p, tile, visit);
        }
        if (!S::OUT_IN_Q)
            release(&shared.q_empty);
        last_step();
    }

    /* ---------------------------------------------------------------- results */

    __device__ __forceinline__ static float add_row(float value)
    {
        value += __shfl_xor_sync(~0u, value, 1);
        return value + __shfl_xor_sync(~0u, value, 2);
    }

    __device__ __forceinline__ static int most_of_row(int value)
    {
        value = max(value, __shfl_xor_sync(~0u, value, 1));
        return max(value, __shfl_xor_sync(~0u, value, 2));
    }

    /* Stores the probabilities of the row's own key and of the key before it, from their scores.
     * `shift` is the center of the weights, `factor` makes a weight a probability. */
    __device__ __forceinline__ void put_near(const problem &p, const hopper_tile &tile, int query,
                                             int64_t index, int row, float sum, float shift,
                                             float factor) const
    {
        float *const arrays[2] = { p.result.self, p.result.previous };
        int          position  = tile.start + query;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            float score = shared.near_by[i][near_place(row)];
            bool  none =
                sum == 0.0f || (isnan(sum) ? !visible(p, tile.length, position).has(position - i)
                                           : score == -INFINITY);
            if (arrays[i] != nullptr)
                arrays[i][index] = none ? 0.0f : factor * exp2f(fmaf(score, scale, -shift));
        }
    }

    /* Divides by the sums and stores the rows, through shared memory.  The four threads of two rows
     * have the same sums: even ones finish the first row and odd ones the second, two of them twice. */
    __device__ void finish(const problem &p, const hopper_tile &tile)
    {
        int row       = lane() & 1;
        int first_row = tile.first_row + group * 64;

        __syncwarp(); /* the rows of near_by */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            rows.sum[i] = add_row(rows.sum[i]);
            if (S::STATISTICS) {
                rows.dot[i]       = add_row(rows.dot[i]);
                rows.collision[i] = add_row(rows.collision[i]);
            }
            if (S::ALL) {
                rows.spread[i] = add_row(rows.spread[i]);
                rows.most[i]   = most_of_row(rows.most[i]);
                first[i]       = __shfl_sync(~0u, first[i], lane() & ~3);
            }
        }
        sums    one   = rows.only(row != 0);
        int     query = first_row + warp() * 16 + lane() / 4 + 8 * row;
        int64_t index =
            (static_cast<int64_t>(tile.batch) * p.n_heads + tile.head) * p.n_queries + query;
        bool  writes = lane() % 4 < 2 && query < p.n_queries;
        float center = __fmul_rn(row != 0 ? top[1] : top[0], scale);
        float shift  = center;
        float apart  = S::ALL ? (row != 0 ? first[1] : first[0]) : 0.0f;
        if (S::ALL && writes)
            one.put_others(p, index, 0);
        if (S::ALL && !(apart == 0.0f)) /* key 0 joins the sums; also true for NaN */
            one.add(0, log2f(apart), apart);
        if (S::ALL && writes)
            one.put_max_logit(p, index, 0, center);
        if (p.sinks != nullptr && one.sum[0] != 0.0f)
            center = one.add_sink(center, 0, p.sinks[tile.head]);
        float outer  = shift == center ? 1.0f : exp2f(fmaxf(shift - center, FLOOR));
        float factor = one.sum[0] == 0.0f ? 0.0f : outer / one.sum[0];
        if (writes) {
            bool hidden = isnan(one.sum[0]) && !visible(p, tile.length, tile.start + query).has(0);
            one.put(p, index, 0, center, outer * apart, hidden);
            if (keeps_near<S>(p))
                put_near(p, tile, query, index, row, one.sum[0], shift, factor);
        }
        if (p.gates != nullptr)
            factor *= p.gates[tile.head];
        const float factors[2] = { __shfl_sync(~0u, factor, lane() & ~1),
                                   __shfl_sync(~0u, factor, lane() | 1) };
        store_out(factors);
    }

    /* Stores this group's rows in shared memory; one thread then copies them out. */
    __device__ __forceinline__ void store_out(const float (&factor)[2])
    {
        uint32_t base   = ptx::shared_address(shared.out_of(group, 0));
        int      panel  = S::OUT_IN_Q ? S::ROWS : 64; /* rows of one in shared memory */
        int      matrix = lane() / 8;
        int      row    = warp() * 16 + (matrix & 1) * 8 + lane() % 8;

        if (threadIdx.x % 128 == 0)
            ptx::copy_out_wait_read();
        ptx::named_sync(1 + group, 128);
#pragma unroll
        for (int i = 0; i < N_OUT / 8; i++) { /* 16 columns */
            int      column  = i * 16 + (matrix >> 1) * 8;
            uint32_t address = base + (column / 64) * panel * 128 + row * 128 +
                               ((column % 64 * 2) ^ ((row & 7) << 4));
            ptx::store_matrices(
                address, ptx::pack<T>(out[8 * i] * factor[0], out[8 * i + 1] * factor[0]),
                ptx::pack<T>(out[8 * i + 2] * factor[1], out[8 * i + 3] * factor[1]),
                ptx::pack<T>(out[8 * i + 4] * factor[0], out[8 * i + 5] * factor[0]),
                ptx::pack<T>(out[8 * i + 6] * factor[1], out[8 * i + 7] * factor[1]));
        }
        ptx::fence_async();
        ptx::named_sync(1 + group, 128);
    }

    __device__ void send_out(const hopper_maps &maps, const hopper_tile &tile) const
    {
        if (threadIdx.x % 128 != 0)
            return;
        for (int panel = 0; panel < S::V_PANELS; panel++)
            ptx::copy_out(&maps.out, shared.out_of(group, panel), panel * 64,
                          tile.first_row + group * 64, tile.head, tile.batch);
        ptx::copy_out_commit();
        if (S::OUT_IN_Q)
            ptx::copy_out_wait_read(); /* the next queries go where this lies */
    }

    __device__ void run(const problem &p, const hopper_maps &maps, const hopper_schedule &schedule)
    {
        n_blocks = 0;
        for (int n_tiles = 0;; n_tiles++) {
            int slot = stage_of(n_tiles);

            ptx::barrier_wait(&shared.tile_full[slot], parity_of(n_tiles));
            int index = __shfl_sync(~0u, shared.tile[slot], 0); /* all lanes get the same value */
            release(&shared.tile_empty[slot]);
            if (index >= schedule.n_tiles)
                break;
            run_tile(p, open_tile<S>(p, schedule, index), n_tiles & 1);
            /* The tile is computed again, which costs less than keeping it in registers. */
            hopper_tile tile = open_tile<S>(p, schedule, index);
            finish(p, tile);
            send_out(maps, tile);
            if (S::OUT_IN_Q)
                release(&shared.q_empty);
        }
        if (threadIdx.x % 128 == 0)
            ptx::copy_out_wait();
    }
};

template <typename S> __device__ __forceinline__ void init_barriers(typename S::shared &shared)
{
    constexpr int WARPS = 4 * S::GROUPS;

    ptx::barrier_init(&shared.q_full, 1);
    ptx::barrier_init(&shared.q_empty, WARPS);
    for (int stage = 0; stage < STAGES; stage++) {
        ptx::barrier_init(&shared.k_full[stage], 1);
        ptx::barrier_init(&shared.k_empty[stage], WARPS);
    }
    for (int stage = 0; stage < STAGES; stage++) {
        ptx::barrier_init(&shared.v_full[stage], 1);
        ptx::barrier_init(&shared.v_empty[stage], WARPS);
    }
    for (int slot = 0; slot < 2; slot++) {
        ptx::barrier_init(&shared.tile_full[slot], 1);
        ptx::barrier_init(&shared.tile_empty[slot], WARPS);
    }
    ptx::barrier_init_done();
}

/* Returns the shared memory of a block, with its barriers initialized. */
template <typename S> __device__ __forceinline__ typename S::shared &open_shared(char *raw)
{
    auto &shared = *reinterpret_cast<typename S::shared *>(raw);

    if (threadIdx.x == 0)
        init_barriers<S>(shared);
    __syncthreads();
    return shared;
}

/* The producer: one thread of the first warp group. */
template <typename S>
__device__ __forceinline__ void produce(typename S::shared &shared, const hopper_maps &maps,
                                        const problem &p, const hopper_schedule &schedule)
{
    ptx::registers_give<S::PRODUCER>();
    if (threadIdx.x == 0) {
        hopper_producer<S> producer = { shared, maps };
        producer.run(p, schedule);
    }
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS, 1)
    forward_hopper(const __grid_constant__ hopper_maps maps, const __grid_constant__ problem p,
                   const __grid_constant__ hopper_schedule schedule)
{
    /* The swizzle needs an alignment of 1024 bytes.  A constant address makes most others
     * constant. */
    extern __shared__ __align__(1024) char raw[];
    auto                                  &shared = open_shared<S>(raw);

    int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (group == 0) {
        produce<S>(shared, maps, p, schedule);
    } else {
        ptx::registers_take<S::CONSUMERS>();
        hopper_consumer<S> consumer = { shared, group - 1, p.scale * LOG2_E };
        consumer.run(p, maps, schedule);
    }
}

} // namespace headlight

#endif
