/* forward_decode.cu - attention of a few queries over many keys, with entropy.
 *
 * When a text grows token by token, the keys and values are read once for very little arithmetic,
 * and reading takes most of the time.  So the full memory bandwidth must be used, even with few
 * heads:
 *
 *     rows     the queries of all heads that share a KV head lie in one tile of 16
 *     splits   several blocks share a tile's keys, and so do the four warps of a block, each with a
 *              ring of 16 keys per stage that it fills and waits for alone
 *     merge    warps, then splits, merge their row states and outputs by
 *              row_state.h's rule
 *
 * portable_tile.cuh has the work on a tile: all options, all statistics except segment mass.  The
 * states of splits lie in stream-ordered memory, which is freed after the merge. */
#include <algorithm>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/portable_tile.cuh"

namespace headlight
{

constexpr int DECODE_ROWS    = 16;
constexpr int DECODE_KEYS    = 16; /* per stage of a warp's ring */
constexpr int DECODE_WARPS   = 4;
constexpr int DECODE_THREADS = 32 * DECODE_WARPS;
constexpr int MOST_QUERIES   = 16;

/* The part of a tile's rows that a warp or a split has computed. */
template <int DIM> struct decode_share {
    row_sums rows[DECODE_ROWS];
    float    out[DECODE_ROWS][DIM]; /* relative to each row's maximum, without key 0 */
};

template <typename T, int DIM> struct decode_ring {
    static constexpr int STAGES = DIM > 128 ? 2 : 3;

    T k[STAGES][DECODE_KEYS][DIM + 8]; /* 16 more bytes per row avoid bank conflicts */
    T v[STAGES][DECODE_KEYS][DIM + 8];
};

template <typename T, int DIM> struct decode_shared {
    T q[DECODE_ROWS][DIM + 8];
    union {
        decode_ring<T, DIM> ring;
        decode_share<DIM>   share; /* used after the ring has been read */
    } warps[DECODE_WARPS];
};

/* A tile: 16 rows of one KV head, numbered head by head. */
struct decode_tile {
    int batch, kv_head, first_row;
    int n_kept, first, n_visits; /* blocks of 16 keys: kept ones, the window's first, all visits */
    int whole_begin, whole_end;  /* keys whose scores no mask changes, for all rows */

    __device__ decode_tile(const problem &p, int index)
    {
        int n_rows  = p.group * p.n_queries;
        int n_tiles = (n_rows + DECODE_ROWS - 1) / DECODE_ROWS;

        first_row = index % n_tiles * DECODE_ROWS;
        kv_head   = index / n_tiles % p.n_kv_heads;
        batch     = index / n_tiles / p.n_kv_heads;

        int start = query_start(p, batch);
        int end   = max(0, hl_reach_end(&p, key_length(p, batch), start + p.n_queries - 1));
        int begin = min(hl_reach_begin(&p, start), end);
        int kept  = hl_reach_kept(&p, end);
        first     = begin / DECODE_KEYS;
        n_kept    = min((kept + DECODE_KEYS - 1) / DECODE_KEYS, first);
        n_visits  = n_kept + (end + DECODE_KEYS - 1) / DECODE_KEYS - first;

        whole_begin = max(1, hl_reach_begin(&p, start + p.n_queries - 1)); /* key 0 is apart */
        whole_end   = min(hl_reach_end(&p, key_length(p, batch), start), plain_end(p, start));
    }

    __device__ int head(const problem &p, int row) const
    {
        return kv_head * p.group + (first_row + row) / p.n_queries;
    }
    __device__ int query(const problem &p, int row) const
    {
        return (first_row + row) % p.n_queries;
    }
    __device__ bool has(const problem &p, int row) const
    {
        return first_row + row < p.group * p.n_queries;
    }
    /* The first key of a visit. */
    __device__ int key(int visit) const
    {
        return (visit < n_kept ? visit : visit - n_kept + first) * DECODE_KEYS;
    }
};

/* ------------------------------------------------------------------------- a warp */

template <typename T, int DIM> struct decode_warp {
    static constexpr int STAGES = decode_ring<T, DIM>::STAGES;

    const problem       &p;
    const decode_tile   &tile;
    const wide_copies    wide;
    decode_ring<T, DIM> &ring;
    tile_row             rows[2];
    float                out[DIM / 8][4];

    __device__ void open()
    {
        for (int r = 0; r < 2; r++) {
            int row = threadIdx.x % 32 / 4 + 8 * r;
            rows[r].open(p, tile.batch, min(tile.head(p, row), p.n_heads - 1), tile.query(p, row));
        }
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0.0f;
    }

    /* Starts the copies of a visit's keys and values.  After the last visit it only counts a
     * group. */
    __device__ void fetch(int visit, int end, int stage)
    {
        if (visit < end) {
            load_tile<DECODE_KEYS, 32, T, DIM>(ring.k[stage], p.k,
                                               row_offset(p.k, tile.batch, tile.kv_head, 0),
                                               tile.key(visit), p.n_keys, p.d_head, wide.k);
            load_tile<DECODE_KEYS, 32, T, DIM>(ring.v[stage], p.v,
                                               row_offset(p.v, tile.batch, tile.kv_head, 0),
                                               tile.key(visit), p.n_keys, p.d_value, wide.v);
        }
        ptx::copy_commit();
    }

    __device__ void finish_scores(float (&scores)[DECODE_KEYS / 8][4], int first_key)
    {
        if (first_key >= tile.whole_begin && first_key + DECODE_KEYS <= tile.whole_end)
            scale_scores(rows, scores, p, first_key);
        else
            bend_scores(rows, scores, p, first_key);
    }

    /* Visits begin, begin + DECODE_WARPS, ... */
    __device__ void run(const T (*q)[DIM + 8], int begin, int end)
    {
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++)
            fetch(begin + i * DECODE_WARPS, end, i);
        int stage = 0;
        for (int visit = begin; visit < end; visit += DECODE_WARPS) {
            float scores[DECODE_KEYS / 8][4];

            ptx::copy_wait_but<STAGES - 2>();
            __syncwarp(); /* the visit has arrived, and the one before it has been read */
            fetch(visit + (STAGES - 1) * DECODE_WARPS, end, (stage + STAGES - 1) % STAGES);
            multiply_keys<T, DIM>(scores, q, ring.k[stage]);
            finish_scores(scores, tile.key(visit));
            weigh_scores(rows, scores, out);
            add_values<T, DIM>(out, scores, ring.v[stage]);
            stage = (stage + 1) % STAGES;
        }
        ptx::copy_wait();
        __syncwarp();
    }

    __device__ void leave(decode_share<DIM> &share)
    {
        int lane = threadIdx.x % 32;

        for (int r = 0; r < 2; r++) {
            int row = lane / 4 + 8 * r;

            rows[r].sums.across_row();
            if (lane % 4 == 0)
                share.rows[row] = rows[r].sums;
#pragma unroll
            for (int i = 0; i < DIM / 4; i++)
                share.out[row][i / 2 * 8 + lane % 4 * 2 + i % 2] = out[i / 2][2 * r + i % 2];
        }
    }
};

/* ------------------------------------------------------------------------ merging */

/* One of the LANES threads that merge a row's shares, with the row's sums and some columns. */
template <int DIM, int LANES> struct decode_merge {
    static constexpr int N = DIM / LANES;

    int      row, lane;
    row_sums sums;
    float    out[N];

    __device__ decode_merge() : row(threadIdx.x / LANES), lane(threadIdx.x % LANES)
    {
        for (int c = 0; c < N; c++)
            out[c] = 0.0f;
    }

    /* Share i lies n_apart bytes after share i - 1. */
    __device__ void run(const decode_share<DIM> *first, int n_shares, size_t n_apart)
    {
        auto share = [=](int i) {
            return reinterpret_cast<const decode_share<DIM> *>(
                reinterpret_cast<const char *>(first) + i * n_apart);
        };

        for (int i = lane; i < n_shares; i += LANES)
            sums.merge(share(i)->rows[row]);
#pragma unroll
        for (int step = 1; step < LANES; step *= 2)
            sums.merge(sums.from(step));
#pragma unroll 4
        for (int i = 0; i < n_shares; i++) {
            float most = share(i)->rows[row].state.max;
            float f    = most == -INFINITY ? 0.0f : exp2f(fmaxf(most - sums.state.max, FLOOR));
#pragma unroll
            for (int c = 0; c < N; c++)
                out[c] = fmaf(f, share(i)->out[row][c * LANES + lane], out[c]);
        }
    }

    __device__ void leave(decode_share<DIM> &share) const
    {
        if (lane == 0)
            share.rows[row] = sums;
#pragma unroll
        for (int c = 0; c < N; c++)
            share.out[row][c * LANES + lane] = out[c];
    }

    __device__ void finish(const problem &p, const decode_tile &tile) const
    {
        if (!tile.has(p, row))
            return;
        int         head = tile.head(p, row), query = tile.query(p, row);
        row_factors f = close_row(p, tile.batch, head, query, sums, lane == 0);
        if (p.out.data == nullptr)
            return;

        int64_t target = row_offset(p.out, tile.batch, head, query);
        int64_t value  = row_offset(p.v, tile.batch, tile.kv_head, 0);
#pragma unroll
        for (int c = 0; c < N; c++) {
            int column = c * LANES + lane;
            if (column >= p.d_value)
                continue;
            float result = f.others * out[c];
            if (f.first != 0.0f)
                result = fmaf(f.first, static_cast<float>(load(p.v, value + column)), result);
            store(p.out, target + column, result);
        }
    }
};

/* ------------------------------------------------------------------------ kernels */

/* Block (tile, split).  A single split finishes the tile; otherwise each split stores its share. */
template <typename T, int DIM>
__global__ static void __launch_bounds__(DECODE_THREADS)
    forward_decode(const __grid_constant__ problem p, const wide_copies wide,
                   decode_share<DIM> *shares, int n_splits)
{
    extern __shared__ __align__(16) char raw[];
    auto                                &shared = *reinterpret_cast<decode_shared<T, DIM> *>(raw);
    decode_tile                          tile(p, blockIdx.x / n_splits);
    int                                  split = blockIdx.x % n_splits, warp = threadIdx.x / 32;

    for (int i = threadIdx.x; i < DECODE_ROWS * DIM; i += DECODE_THREADS) {
        int row = i / DIM, column = i % DIM;
        shared.q[row][column] =
            tile.has(p, row) && column < p.d_head
                ? static_cast<const T *>(
                      p.q.data)[row_offset(p.q, tile.batch, tile.head(p, row), tile.query(p, row)) +
                                column]
                : T(0.0f);
    }
    __syncthreads();

    int                 n_each = (tile.n_visits + n_splits - 1) / n_splits;
    int                 begin  = split * n_each;
    decode_warp<T, DIM> w      = { p, tile, wide, shared.warps[warp].ring };
    w.open();
    w.run(shared.q, begin + warp, min(begin + n_each, tile.n_visits));
    w.leave(shared.warps[warp].share);
    __syncthreads();

    decode_merge<DIM, DECODE_THREADS / DECODE_ROWS> merge;
    merge.run(&shared.warps[0].share, DECODE_WARPS, sizeof shared.warps[0]);
    if (n_splits == 1)
        merge.finish(p, tile);
    else
        merge.leave(shares[blockIdx.x]);
}

/* One warp per row. */
template <int DIM>
__global__ static void __launch_bounds__(32 * DECODE_ROWS)
    merge_splits(const __grid_constant__ problem p, const decode_share<DIM> *shares, int n_splits)
{
    decode_tile           tile(p, blockIdx.x);
    decode_merge<DIM, 32> merge;

    if (!tile.has(p, merge.row))
        return;
    merge.run(shares + static_cast<int64_t>(blockIdx.x) * n_splits, n_splits, sizeof *shares);
    merge.finish(p, tile);
}

/* ------------------------------------------------------------------------- launch */

static int64_t count_tiles(const problem &p)
{
    int64_t n_rows = int64_t{ p.group } * p.n_queries;
    return (n_rows + DECODE_ROWS - 1) / DECODE_ROWS * p.n_kv_heads * p.n_batch;
}

const char *decode_refuses(const problem &p, const cudaDeviceProp &device)
{
    if (const char *refusal = portable_refuses(p, device))
        return refusal;
    if (p.n_queries > MOST_QUERIES)
        return "more than 16 queries";
    if (count_tiles(p) > INT32_MAX)
        return "2^31 tiles of rows";
    return nullptr;
}

/* As many splits as run at once, two blocks per multiprocessor, with some visits for every warp. */
static int choose_splits(const problem &p, const cudaDeviceProp &device)
{
    int64_t n_visits = (p.n_keys + DECODE_KEYS - 1) / DECODE_KEYS;
    int64_t most     = std::max<int64_t>(1, n_visits / (4 * DECODE_WARPS));
    int64_t fit      = 2 * device.multiProcessorCount / count_tiles(p);

    return static_cast<int>(std::max<int64_t>(1, std::min(most, fit)));
}

template <typename T, int DIM>
static hl_status launch(const problem &p, const cudaDeviceProp &device, cudaStream_t stream)
{
    int                n_splits = choose_splits(p, device);
    int                n_tiles  = static_cast<int>(count_tiles(p));
    int                n_bytes  = sizeof(decode_shared<T, DIM>);
    decode_share<DIM> *shares   = nullptr;

    HL_CUDA_TRY(
        allow_shared(forward_decode<T, DIM>, n_bytes, "shared memory for the decode kernel"));
    if (n_splits > 1)
        HL_CUDA_TRY(check(cudaMallocAsync(&shares, sizeof *shares * n_tiles * n_splits, stream),
                          "memory for split keys"));
    forward_decode<T, DIM><<<n_tiles * n_splits, DECODE_THREADS, n_bytes, stream>>>(
        p, wide_copies(p), shares, n_splits);
    if (n_splits > 1) {
        merge_splits<DIM><<<n_tiles, 32 * DECODE_ROWS, 0, stream>>>(p, shares, n_splits);
        cudaFreeAsync(shares, stream);
    }
    return check(cudaGetLastError(), "the decode kernel");
}

hl_status launch_decode(const problem &p, const cudaDeviceProp &device, cudaStream_t stream)
{
    return for_half(p.q.dtype, [&](auto type) {
        return for_width<64, 128, 256>(std::max(p.d_head, p.d_value), [&](auto width) {
            return launch<decltype(type), width()>(p, device, stream);
        });
    });
}

} // namespace headlight
