/* received.cu - the attention that each key receives, from an lse that has been computed:
 *
 *     received[j] = sum over rows i of exp(s_ij - lse_i)
 *
 * received_plain takes every problem, in double precision, one warp per key.  received_portable takes
 * bf16 and fp16 on tensor cores: a block holds 64 keys of one head, 16 per warp, and goes over the
 * rows that see them, 64 at a time; each thread adds up its columns of two keys.  received_hopper.cu
 * has the fast kernel.  All add in a fixed order. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/plain_row.cuh"
#include "kernels/cuda/portable_tile.cuh"

namespace headlight
{

/* ------------------------------------------------------------- double precision */

__global__ static void received_plain(const __grid_constant__ problem p, const received_sums sums)
{
    __shared__ double keys[PLAIN_WARPS][HL_MAX_HEAD_DIM];
    int               warp  = threadIdx.x / 32;
    int64_t           index = static_cast<int64_t>(blockIdx.x) * PLAIN_WARPS + warp;
    int64_t           n_all = static_cast<int64_t>(p.n_batch) * p.n_heads * p.n_keys;
    double            sum   = 0.0, slope;

    if (index >= n_all)
        return;
    int     key  = static_cast<int>(index % p.n_keys);
    int64_t head = index / p.n_keys; /* of all sequences */
    double *k    = keys[warp];
    load_row(k, p.k,
             row_offset(p.k, static_cast<int>(head / p.n_heads),
                        static_cast<int>(head % p.n_heads) / p.group, key),
             p.d_head);
    for (int query = sums.first_query + threadIdx.x % 32; query < p.n_queries; query += 32) {
        plain_row row(p, head * p.n_queries + query);
        double    lse = sums.lse[row.index];
        if (!row.keys.has(key) || lse == -INFINITY)
            continue;
        double product = dot_row(k, p.q, row_offset(p.q, row.batch, row.head, query), p.d_head);
        sum += isnan(lse) ? NAN : exp(score_of(p, row, key, product, &slope) - lse);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums.received[index] = static_cast<float>(sum);
}

hl_status launch_received_plain(const problem &p, const received_sums &sums, const cudaDeviceProp &,
                                cudaStream_t stream)
{
    int64_t n_all    = static_cast<int64_t>(p.n_batch) * p.n_heads * p.n_keys;
    int64_t n_blocks = (n_all + PLAIN_WARPS - 1) / PLAIN_WARPS;

    if (n_blocks > INT32_MAX)
        return fail(HL_LIMIT, "the plain kernel takes 2^33 keys, got %lld", (long long)n_all);
    received_plain<<<static_cast<unsigned>(n_blocks), 32 * PLAIN_WARPS, 0, stream>>>(p, sums);
    return check(cudaGetLastError(), "the attention that keys receive");
}

/* ------------------------------------------------------------------ tensor cores */

constexpr int RECEIVED_KEYS    = 64;
constexpr int RECEIVED_ROWS    = 64;
constexpr int RECEIVED_THREADS = 128;

template <typename T, int DIM> struct received_shared {
    T     k[RECEIVED_KEYS][DIM + 8]; /* 16 more bytes per row avoid bank conflicts */
    T     q[RECEIVED_ROWS][DIM + 8];
    float lse[RECEIVED_ROWS]; /* in bits; +inf: the row counts nothing */
};

/* The keys of a block, and the range of rows that may see one of them. */
struct received_tile {
    int batch, head, first_key, length, start, begin, end;

    __device__ received_tile(const problem &p, const received_sums &sums, int index, int n_keys)
    {
        int n_heads = p.n_batch * p.n_heads;

        /* Where rows are causal, the first keys have the longest tiles: these start first. */
        first_key = index / n_heads * n_keys;
        batch     = index % n_heads / p.n_heads;
        head      = index % n_heads % p.n_heads;
        length    = key_length(p, batch);
        start     = query_start(p, batch);
        begin     = max(sums.first_query, first_key - p.window_right - start);
        end       = p.n_queries;
        if (first_key >= p.window_sink)
            end = min(end, first_key + n_keys + p.window_left - start);
        if (first_key >= length)
            end = begin;
    }

    /* Whether all rows of positions [first, last] see all keys [key, key + n). */
    __device__ bool is_open(const problem &p, int key, int n, int first, int last) const
    {
        return key + n <= length && key + n - 1 <= first + p.window_right &&
               (key >= hl_reach_begin(&p, last) || key + n <= p.window_sink);
    }
};

template <typename T, int DIM>
__global__ static void __launch_bounds__(RECEIVED_THREADS)
    received_portable(const __grid_constant__ problem p, const received_sums sums,
                      const wide_copies wide)
{
    extern __shared__ __align__(16) char raw[];
    auto                                &shared = *reinterpret_cast<received_shared<T, DIM> *>(raw);
    received_tile                        tile(p, sums, static_cast<int>(blockIdx.x), RECEIVED_KEYS);
    int                                  lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int     key      = tile.first_key + warp * 16 + lane / 4; /* and 8 more */
    int64_t head     = static_cast<int64_t>(tile.batch) * p.n_heads + tile.head;
    bool    plain    = p.softcap == 0.0f && p.alibi_slopes == nullptr && p.key_bias == nullptr;
    double  total[2] = {};

    load_tile<RECEIVED_KEYS, RECEIVED_THREADS, T, DIM>(
        shared.k, p.k, row_offset(p.k, tile.batch, tile.head / p.group, 0), tile.first_key,
        p.n_keys, p.d_head, wide.k);
    for (int first = tile.begin; first < tile.end; first += RECEIVED_ROWS) {
        float scores[RECEIVED_ROWS / 8][4];
        float sum[2] = {};

        load_tile<RECEIVED_ROWS, RECEIVED_THREADS, T, DIM>(
            shared.q, p.q, row_offset(p.q, tile.batch, tile.head, 0), first, p.n_queries, p.d_head,
            wide.q);
        if (threadIdx.x < RECEIVED_ROWS) {
            int   query = first + static_cast<int>(threadIdx.x);
            float lse   = query < p.n_queries ? sums.lse[head * p.n_queries + query] : -INFINITY;
            shared.lse[threadIdx.x] = lse == -INFINITY ? INFINITY : lse * LOG2_E;
        }
        ptx::copy_commit();
        ptx::copy_wait();
        __syncthreads();
        multiply_keys<T, DIM>(scores, shared.k + warp * 16, shared.q);
        /* Rows beyond the last are zero: a key of NaN has scores of NaN for them, too. */
        bool open = plain && first + RECEIVED_ROWS <= p.n_queries &&
                    tile.is_open(p, tile.first_key + warp * 16, 16, tile.start + first,
                                 tile.start + first + RECEIVED_ROWS - 1);
#pragma unroll
        for (int i = 0; i < RECEIVED_ROWS / 2; i++) {
            int      column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
            int      r      = (i >> 1) & 1;
            float    score  = p.scale * LOG2_E * scores[i / 4][i % 4];
            tile_row row;
            if (!open) {
                row.head     = tile.head;
                row.position = tile.start + first + column;
                row.keys     = visible(p, tile.length, row.position);
                score        = row.score(p, key + 8 * r, scores[i / 4][i % 4]);
            }
            float weight = ptx::exp2_fast(score - shared.lse[column]);
            bool  counts = open || (first + column < p.n_queries && row.keys.has(key + 8 * r));
            sum[r] += counts ? weight : 0.0f;
        }
        total[0] += sum[0];
        total[1] += sum[1];
        __syncthreads();
    }
    ptx::copy_wait();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(~0u, total[r], 1);
        total[r] += __shfl_xor_sync(~0u, total[r], 2);
        if (lane % 4 == 0 && key + 8 * r < p.n_keys)
            sums.received[head * p.n_keys + key + 8 * r] = static_cast<float>(total[r]);
    }
}

const char *received_portable_refuses(const problem &p, const cudaDeviceProp &device)
{
    int64_t n_tiles = (int64_t{ p.n_keys } + RECEIVED_KEYS - 1) / RECEIVED_KEYS;

    if (device.major < 8)
        return "a GPU before sm_80";
    if (!are_half({ p.q, p.k }))
        return "types other than bf16 or fp16 throughout";
    if (p.d_head > 256)
        return "d_head above 256";
    if (p.row_bias != nullptr)
        return "biases of rows";
    if (n_tiles * p.n_batch * p.n_heads > INT32_MAX)
        return "2^31 tiles of keys";
    return nullptr;
}

template <typename T, int DIM>
static hl_status launch(const problem &p, const received_sums &sums, cudaStream_t stream)
{
    int n_bytes  = sizeof(received_shared<T, DIM>);
    int n_blocks = (p.n_keys + RECEIVED_KEYS - 1) / RECEIVED_KEYS * p.n_batch * p.n_heads;

    HL_CUDA_TRY(allow_shared(received_portable<T, DIM>, n_bytes, "shared memory for keys"));
    received_portable<T, DIM>
        <<<n_blocks, RECEIVED_THREADS, n_bytes, stream>>>(p, sums, wide_copies(p));
    return check(cudaGetLastError(), "the attention that keys receive");
}

hl_status launch_received_portable(const problem &p, const received_sums &sums,
                                   const cudaDeviceProp &, cudaStream_t   stream)
{
    return for_half(p.q.dtype, [&](auto type) {
        return for_width<64, 128, 256>(
            p.d_head, [&](auto width) { return launch<decltype(type), width()>(p, sums, stream); });
    });
}

} // namespace headlight
