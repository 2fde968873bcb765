/* forward_portable.cu - attention with entropy on the tensor cores of sm_80 and later.
 *
 * A block of four warps has 64 queries, 16 per warp, and walks the keys 64 at a time: S = Q K^T,
 * the options (softcap, ALiBi, bias, masks), softmax and sums, O += P V.  K is copied while O is
 * computed, V while S is computed (cp.async).  The work on a tile is in portable_tile.cuh. */
#include <algorithm>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/portable_tile.cuh"

namespace headlight
{

constexpr int TILE_ROWS = 64;
constexpr int TILE_KEYS = 64;
constexpr int THREADS   = 128;

template <typename T, int DIM> struct portable_shared {
    T q[TILE_ROWS][DIM + 8]; /* 16 more bytes per row avoid bank conflicts */
    T k[TILE_KEYS][DIM + 8];
    T v[TILE_KEYS][DIM + 8];
};

template <typename T, int DIM> struct portable_block {
    const problem           &p;
    const wide_copies        wide;
    portable_shared<T, DIM> &shared;
    int                      batch, head, kv_head, first_row, lane, warp;
    int                      whole_begin, whole_end; /* keys that no row's mask hides */
    tile_row                 rows[2];
    float                    out[DIM / 8][4];

    /* Converts products to scores; tiles that no option or mask changes take a fast path. */
    __device__ void finish_scores(float (&scores)[TILE_KEYS / 8][4], int first_key)
    {
        if (first_key > 0 && first_key >= whole_begin && first_key + TILE_KEYS <= whole_end)
            scale_scores(rows, scores, p, first_key);
        else
            bend_scores(rows, scores, p, first_key);
    }

    __device__ void load_keys(int tile)
    {
        load_tile<64, THREADS, T, DIM>(shared.k, p.k, row_offset(p.k, batch, kv_head, 0),
                                       tile * TILE_KEYS, p.n_keys, p.d_head, wide.k);
        ptx::copy_commit();
    }

    __device__ void load_values(int tile)
    {
        load_tile<64, THREADS, T, DIM>(shared.v, p.v, row_offset(p.v, batch, kv_head, 0),
                                       tile * TILE_KEYS, p.n_keys, p.d_value, wide.v);
        ptx::copy_commit();
    }

    __device__ void run(int first_tile, int end_tile, int n_kept_tiles)
    {
        auto next = [=](int tile) { /* skips the gap between kept keys and the window */
                                    return tile + 1 >= n_kept_tiles && tile + 1 < first_tile
                                               ? first_tile
                                               : tile + 1;
        };
        int tile = n_kept_tiles > 0 ? 0 : first_tile;

        load_tile<64, THREADS, T, DIM>(shared.q, p.q, row_offset(p.q, batch, head, 0), first_row,
                                       p.n_queries, p.d_head, wide.q);
        if (tile < end_tile)
            load_keys(tile);
        for (; tile < end_tile; tile = next(tile)) {
            float scores[TILE_KEYS / 8][4];

            ptx::copy_wait();
            __syncthreads(); /* K has arrived, V's buffer is free */
            load_values(tile);
            multiply_keys<T, DIM>(scores, shared.q + warp * 16, shared.k);
            finish_scores(scores, tile * TILE_KEYS);
            weigh_scores(rows, scores, out);
            ptx::copy_wait();
            __syncthreads(); /* V has arrived, K's buffer is free */
            if (next(tile) < end_tile)
                load_keys(next(tile));
            add_values<T, DIM>(out, scores, shared.v);
        }
        ptx::copy_wait();
    }

    /* Writes the outputs of row r. */
    __device__ void finish(int r)
    {
        tile_row &row = rows[r];

        row.sums.across_row();
        if (row.query >= p.n_queries)
            return;
        row_factors f = close_row(p, batch, head, row.query, row.sums, lane % 4 == 0);
        if (p.out.data == nullptr)
            return;

        int64_t target = row_offset(p.out, batch, head, row.query);
        int64_t value  = row_offset(p.v, batch, kv_head, 0);
#pragma unroll
        for (int i = 0; i < DIM / 4; i++) {
            int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
            if (column >= p.d_value)
                continue;
            float sum = f.others * out[i / 2][2 * r + i % 2];
            if (f.first != 0.0f)
                sum = fmaf(f.first, static_cast<float>(load(p.v, value + column)), sum);
            store(p.out, target + column, sum);
        }
    }
};

template <typename T, int DIM>
__global__ static void __launch_bounds__(THREADS)
    forward_portable(const __grid_constant__ problem p, const wide_copies wide)
{
    extern __shared__ __align__(16) char raw[];
    int                                  n_row_tiles = (p.n_queries + TILE_ROWS - 1) / TILE_ROWS;
    int row_tile   = n_row_tiles - 1 - static_cast<int>(blockIdx.x) % n_row_tiles;
    int batch_head = static_cast<int>(blockIdx.x) / n_row_tiles;
    int head       = batch_head % p.n_heads;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    portable_block<T, DIM> block = { p, wide, *reinterpret_cast<portable_shared<T, DIM> *>(raw) };
    block.batch                  = batch_head / p.n_heads;
    block.head                   = head;
    block.kv_head                = head / p.group;
    block.first_row              = row_tile * TILE_ROWS;
    block.lane                   = lane;
    block.warp                   = warp;
    for (int r = 0; r < 2; r++)
        block.rows[r].open(p, block.batch, head, block.first_row + warp * 16 + lane / 4 + 8 * r);
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
        block.out[i][0] = block.out[i][1] = block.out[i][2] = block.out[i][3] = 0.0f;

    /* The keys that any row of the block sees. */
    int length        = key_length(p, block.batch);
    int first         = query_start(p, block.batch) + block.first_row;
    int last          = first + min(TILE_ROWS, p.n_queries - block.first_row) - 1;
    int end           = max(0, hl_reach_end(&p, length, last));
    int begin         = min(hl_reach_begin(&p, first), end);
    int kept          = hl_reach_kept(&p, end);
    block.whole_begin = hl_reach_begin(&p, last);
    block.whole_end   = min(hl_reach_end(&p, length, first), plain_end(p, first));
    block.run(begin / TILE_KEYS, (end + TILE_KEYS - 1) / TILE_KEYS,
              (kept + TILE_KEYS - 1) / TILE_KEYS);
    block.finish(0);
    block.finish(1);
}

/* ------------------------------------------------------------------------ launch */

const char *portable_refuses(const problem &p, const cudaDeviceProp &device)
{
    if (device.major < 8)
        return "a GPU before sm_80";
    if (!are_half({ p.q, p.k, p.v, p.out }))
        return "types other than bf16 or fp16 throughout";
    if (std::max(p.d_head, p.d_value) > 256)
        return "d_head or d_value above 256";
    if (p.row_bias != nullptr)
        return "biases of rows";
    if (p.result.segment_mass != nullptr)
        return "segment_mass";
    if ((p.n_queries + int64_t{ TILE_ROWS } - 1) / TILE_ROWS * p.n_batch * p.n_heads > INT32_MAX)
        return "2^31 tiles of queries";
    return nullptr;
}

template <typename T, int DIM> static hl_status launch(const problem &p, cudaStream_t stream)
{
    wide_copies wide(p);
    int         n_bytes  = sizeof(portable_shared<T, DIM>);
    int         n_blocks = (p.n_queries + TILE_ROWS - 1) / TILE_ROWS * p.n_batch * p.n_heads;

    HL_CUDA_TRY(
        allow_shared(forward_portable<T, DIM>, n_bytes, "shared memory for the portable kernel"));
    forward_portable<T, DIM><<<n_blocks, THREADS, n_bytes, stream>>>(p, wide);
    return check(cudaGetLastError(), "the portable kernel");
}

hl_status launch_portable(const problem &p, cudaStream_t stream)
{
    return for_half(p.q.dtype, [&](auto type) {
        return for_width<32, 64, 96, 128, 256>(std::max(p.d_head, p.d_value), [&](auto width) {
            return launch<decltype(type), width()>(p, stream);
        });
    });
}

} // namespace headlight
