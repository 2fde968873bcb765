/* backward_portable.cu - gradients on the tensor cores of sm_80 and later, all options.
 *
 * Two kernels of one shape.  A block of four warps has 64 rows of its own, 16 per warp, and walks
 * the others 64 at a time:
 *
 *     of queries   own Q, dO     others K, V      dQ += dS K
 *     of keys      own K, V      others Q, dO     dK += dS^T Q      dV += P^T dO
 *
 * Both form S = own[0] others[0]^T and dP = own[1] others[1]^T.  So everything is computed twice
 * and nothing is shared between blocks: runs agree to the bit.  The rows' numbers and the formula
 * of dS are in backward_rows.cuh.
 *
 * A thread holds own rows r = lane / 4 and r + 8 of its warp's 16, and columns 2 (lane % 4) and the
 * next of each eight others. */
#include <algorithm>

#include "kernels/cuda/backward_rows.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/portable_tile.cuh"

namespace headlight
{

constexpr int TILE    = 64; /* number of own rows, and of others at a time */
constexpr int THREADS = 128;
constexpr int MOST_D  = 128;

static_assert(TILE == BLOCK_ROWS, "a tile of queries has one row_block");

template <typename T, int DIM> struct backward_tiles {
    T own[2][TILE][DIM + 8]; /* 16 more bytes per row avoid bank conflicts */
    T others[2][TILE][DIM + 8];
};

/* Rows of one sequence and head; a source without data gives zeros. */
struct tile_source {
    hl_rows rows;
    int64_t base;
    int     n_rows, width;
    bool    wide; /* rows can be copied 16 bytes at a time */

    __device__ tile_source(const hl_rows &rows, int batch, int head, int n_rows, int width)
        : rows(rows), base(row_offset(rows, batch, head, 0)),
          n_rows(rows.data != nullptr ? n_rows : 0), width(width)
    {
        wide = reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.row_stride % 8 == 0 &&
               base % 8 == 0 && width % 8 == 0;
    }

    template <typename T, int DIM> __device__ void load(T (*out)[DIM + 8], int first) const
    {
        load_tile<TILE, THREADS, T, DIM>(out, rows, base, first, n_rows, width, wide);
    }
};

/* A probability, and the gradient of its score before the scale. */
struct backward_pair {
    float weight = 0.0f, slope = 0.0f;
};

/* A head's options, and which pairs of query and key they allow. */
struct backward_head {
    const problem &p;
    int            batch, head, start, length;
    float          gate;
    bool           plain; /* no option changes a score */

    __device__ backward_head(const problem &p, int batch, int head)
        : p(p), batch(batch), head(head), start(query_start(p, batch)),
          length(headlight::key_length(p, batch)), gate(p.gates != nullptr ? p.gates[head] : 1.0f),
          plain(p.softcap == 0.0f && p.alibi_slopes == nullptr && p.key_bias == nullptr)
    {
    }

    /* Whether every query of a tile sees every key of the other. */
    __device__ bool is_whole(int first_query, int first_key) const
    {
        int first = start + first_query;

        return first_key + TILE <= length && first_key + TILE - 1 <= first + p.window_right &&
               first_key >= first + TILE - 1 - p.window_left;
    }

    /* Whether any query of a tile sees a key of the other, which may be a kept first key. */
    __device__ bool meets(int first_query, int first_key) const
    {
        int first = start + first_query, last = first + TILE - 1;

        return first_key < length && first_key <= last + p.window_right &&
               (first_key + TILE > first - p.window_left || first_key < p.window_sink);
    }

    /* A score in bits (-inf if hidden) and its derivative by scale * q.k. */
    __device__ float score(int query, int key, float product, float *bend) const
    {
        int position = start + query;

        *bend = 1.0f;
        if (!visible(p, length, position).has(key))
            return -INFINITY;
        float s = p.scale * product;
        if (p.softcap != 0.0f) {
            float bent = tanhf(s / p.softcap);
            s          = p.softcap * bent;
            *bend      = 1.0f - bent * bent;
        }
        if (p.alibi_slopes != nullptr)
            s += p.alibi_slopes[head] * static_cast<float>(key - position);
        if (p.key_bias != nullptr)
            s += p.key_bias[static_cast<int64_t>(head) * p.n_keys + key];
        return s * LOG2_E;
    }

    __device__ backward_pair pair(float x, float bend, float value_dot, const row_block &rows,
                                  int row) const
    {
        const float *terms  = reinterpret_cast<const float *>(&rows.terms[row / 2]) + row % 2;
        float        weight = ptx::exp2_fast(x);

        return { weight, weight * bend * fmaf(gate, value_dot, fmaf(terms[2], x, terms[0])) };
    }
};

template <typename T, int DIM> struct backward_tile {
    backward_tiles<T, DIM> &shared;
    int                     lane, warp;
    float                   scores[TILE / 8][4], products[TILE / 8][4];

    /* Multiplies own rows with the others: queries with keys, and gradients with values. */
    __device__ void multiply()
    {
        multiply_keys<T, DIM>(scores, shared.own[0] + warp * 16, shared.others[0]);
        multiply_keys<T, DIM>(products, shared.own[1] + warp * 16, shared.others[1]);
    }

    /* Converts scores to probabilities and products to dS.  KEYS: the own rows are keys.  Returns
     * each own row's sum of P dP, which is used if the own rows are queries. */
    template <bool KEYS>
    __device__ float2 differentiate(const backward_head &head, const row_block &rows,
                                    int first_query, int first_key)
    {
        bool  simple   = head.plain && head.is_whole(first_query, first_key);
        float share[2] = { 0.0f, 0.0f };

#pragma unroll
        for (int i = 0; i < TILE / 2; i++) {
            int   own   = warp * 16 + lane / 4 + 8 * ((i >> 1) & 1);
            int   other = i / 4 * 8 + lane % 4 * 2 + (i & 1);
            int   row = KEYS ? other : own, key = first_key + (KEYS ? own : other);
            float bend = 1.0f, product = scores[i / 4][i % 4], value_dot = products[i / 4][i % 4];
            float s = simple ? head.p.scale * LOG2_E * product
                             : head.score(first_query + row, key, product, &bend);
            backward_pair pair;
            if (s != -INFINITY)
                pair = head.pair(s - rows.lse[row], bend, value_dot, rows, row);
            share[(i >> 1) & 1]    = fmaf(pair.weight, value_dot, share[(i >> 1) & 1]);
            scores[i / 4][i % 4]   = pair.weight;
            products[i / 4][i % 4] = pair.slope;
        }
        return make_float2(share[0], share[1]);
    }

    /* Stores own rows from first_row on, rounded. */
    __device__ void store_rows(const hl_rows &rows, int64_t base, int first_row, int n_rows,
                               int width, const float (&sums)[DIM / 8][4], float factor) const
    {
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) {
            int row    = first_row + warp * 16 + lane / 4 + 8 * ((i >> 1) & 1);
            int column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
            if (rows.data != nullptr && row < n_rows && column < width)
                store(rows, base + row * rows.row_stride + column, factor * sums[i / 4][i % 4]);
        }
    }
};

/* --------------------------------------------------------------------- queries */

template <typename T, int DIM>
__global__ static void __launch_bounds__(THREADS)
    backward_queries(const __grid_constant__ problem p, const __grid_constant__ backward_problem b,
                     float *gates)
{
    extern __shared__ __align__(16) char raw[];
    int   first_query = static_cast<int>(blockIdx.x) % b.n_row_blocks * TILE;
    int   head_index  = static_cast<int>(blockIdx.x) / b.n_row_blocks % p.n_heads;
    int   batch       = static_cast<int>(blockIdx.x) / b.n_row_blocks / p.n_heads;
    int   kv_head     = head_index / p.group;
    auto &shared      = *reinterpret_cast<backward_tiles<T, DIM> *>(raw);

    backward_tile<T, DIM> tile = { shared, static_cast<int>(threadIdx.x) % 32,
                                   static_cast<int>(threadIdx.x) / 32 };
    backward_head         head(p, batch, head_index);
    tile_source           k(p.k, batch, kv_head, p.n_keys, p.d_head);
    tile_source           v(p.v, batch, kv_head, p.n_keys, p.d_value);
    float                 dq[DIM / 8][4] = {}, share[2] = {};

    tile_source(p.q, batch, head_index, p.n_queries, p.d_head)
        .template load<T, DIM>(shared.own[0], first_query);
    tile_source(b.upstream.grad_out, batch, head_index, p.n_queries, p.d_value)
        .template load<T, DIM>(shared.own[1], first_query);
    for (int first_key = 0; first_key < head.length; first_key += TILE) {
        if (!head.meets(first_query, first_key))
            continue;
        __syncthreads(); /* the other rows have been read */
        k.template load<T, DIM>(shared.others[0], first_key);
        v.template load<T, DIM>(shared.others[1], first_key);
        ptx::copy_commit();
        ptx::copy_wait();
        __syncthreads();
        tile.multiply();
        float2 sums =
            tile.template differentiate<false>(head, b.rows[blockIdx.x], first_query, first_key);
        share[0] += sums.x;
        share[1] += sums.y;
        add_values<T, DIM>(dq, tile.products, shared.others[0]);
    }
    tile.store_rows(b.gradient.dq, row_offset(b.gradient.dq, batch, head_index, 0), first_query,
                    p.n_queries, p.d_head, dq, p.scale);
    for (int r = 0; r < 2; r++) {
        share[r] += __shfl_xor_sync(~0u, share[r], 1);
        share[r] += __shfl_xor_sync(~0u, share[r], 2);
        if (gates != nullptr && tile.lane % 4 == 0)
            gates[int64_t{ blockIdx.x } * TILE + tile.warp * 16 + tile.lane / 4 + 8 * r] = share[r];
    }
}

/* ------------------------------------------------------------------------ keys */

template <typename T, int DIM>
__global__ static void __launch_bounds__(THREADS)
    backward_keys(const __grid_constant__ problem p, const __grid_constant__ backward_problem b)
{
    extern __shared__ __align__(16) char raw[];
    int                                  n_tiles   = (p.n_keys + TILE - 1) / TILE;
    int                                  first_key = static_cast<int>(blockIdx.x) % n_tiles * TILE;
    int   kv_head = static_cast<int>(blockIdx.x) / n_tiles % p.n_kv_heads;
    int   batch   = static_cast<int>(blockIdx.x) / n_tiles / p.n_kv_heads;
    auto &shared  = *reinterpret_cast<backward_tiles<T, DIM> *>(raw);

    backward_tile<T, DIM> tile           = { shared, static_cast<int>(threadIdx.x) % 32,
                                             static_cast<int>(threadIdx.x) / 32 };
    float                 dk[DIM / 8][4] = {}, dv[DIM / 8][4] = {};

    tile_source(p.k, batch, kv_head, p.n_keys, p.d_head)
        .template load<T, DIM>(shared.own[0], first_key);
    tile_source(p.v, batch, kv_head, p.n_keys, p.d_value)
        .template load<T, DIM>(shared.own[1], first_key);
    for (int i = 0; i < p.group * b.n_row_blocks; i++) {
        int           block = i % b.n_row_blocks;
        backward_head head(p, batch, kv_head * p.group + i / b.n_row_blocks);
        if (!head.meets(block * TILE, first_key))
            continue;
        __syncthreads();
        tile_source(p.q, batch, head.head, p.n_queries, p.d_head)
            .template load<T, DIM>(shared.others[0], block * TILE);
        tile_source(b.upstream.grad_out, batch, head.head, p.n_queries, p.d_value)
            .template load<T, DIM>(shared.others[1], block * TILE);
        ptx::copy_commit();
        ptx::copy_wait();
        __syncthreads();
        tile.multiply();
        tile.template differentiate<true>(
            head, b.rows[row_block_index(p, b, batch, head.head, block)], block * TILE, first_key);
        add_values<T, DIM>(dk, tile.products, shared.others[0]);
        if (head.gate != 1.0f) {
#pragma unroll
            for (int j = 0; j < TILE / 2; j++)
                tile.scores[j / 4][j % 4] *= head.gate;
        }
        add_values<T, DIM>(dv, tile.scores, shared.others[1]);
    }
    tile.store_rows(b.gradient.dk, row_offset(b.gradient.dk, batch, kv_head, 0), first_key,
                    p.n_keys, p.d_head, dk, p.scale);
    tile.store_rows(b.gradient.dv, row_offset(b.gradient.dv, batch, kv_head, 0), first_key,
                    p.n_keys, p.d_value, dv, 1.0f);
}

/* ---------------------------------------------------------------------- launch */

const char *backward_portable_refuses(const problem &p, const hl_attention_gradient &gradient,
                                      const hl_attention_upstream &upstream,
                                      const cudaDeviceProp        &device)
{
    if (device.major < 8)
        return "a GPU before sm_80";
    if (std::max(p.d_head, p.d_value) > MOST_D)
        return "d_head or d_value above 128";
    if (p.window_block > 0 || p.row_bias != nullptr)
        return "windows in blocks, or biases of rows";
    return rows_refuse(p, gradient, upstream);
}

template <typename T, int DIM>
static hl_status run(const problem &p, const backward_problem &b, float *gates, cudaStream_t stream)
{
    int n_bytes        = sizeof(backward_tiles<T, DIM>);
    int n_query_blocks = p.n_batch * p.n_heads * b.n_row_blocks;
    int n_key_blocks   = p.n_batch * p.n_kv_heads * ((p.n_keys + TILE - 1) / TILE);

    HL_CUDA_TRY(
        allow_shared(backward_queries<T, DIM>, n_bytes, "shared memory for the portable gradient"));
    HL_CUDA_TRY(
        allow_shared(backward_keys<T, DIM>, n_bytes, "shared memory for the portable gradient"));
    if (n_query_blocks > 0)
        backward_queries<T, DIM><<<n_query_blocks, THREADS, n_bytes, stream>>>(p, b, gates);
    if (n_key_blocks > 0)
        backward_keys<T, DIM><<<n_key_blocks, THREADS, n_bytes, stream>>>(p, b);
    return check(cudaGetLastError(), "the portable gradient");
}

/* Reserves the arrays of working memory.  It only counts bytes until the memory is open. */
static void place(backward_problem &b, float **gates, workspace &memory, const problem &p)
{
    size_t n_rows = static_cast<size_t>(p.n_batch) * p.n_heads * b.n_row_blocks;

    b.rows  = memory.take<row_block>(n_rows);
    b.sinks = p.sinks != nullptr ? memory.take<float>(n_rows * BLOCK_ROWS) : nullptr;
    *gates  = b.gradient.dgates != nullptr ? memory.take<float>(n_rows * BLOCK_ROWS) : nullptr;
}

hl_status launch_backward_portable(const problem &p, const hl_attention_gradient &gradient,
                                   const hl_attention_upstream &upstream, cudaStream_t stream)
{
    workspace        memory(stream);
    float           *gates = nullptr;
    backward_problem b     = { gradient, upstream };

    b.n_row_blocks = (p.n_queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    place(b, &gates, memory, p);
    HL_CUDA_TRY(memory.open(memory.n_taken + 128)); /* at least 128 bytes */
    place(b, &gates, memory, p);
    HL_CUDA_TRY(launch_rows(p, b, stream));
    HL_CUDA_TRY(for_half(p.q.dtype, [&](auto type) {
        return for_width<64, MOST_D>(std::max(p.d_head, p.d_value), [&](auto width) {
            return run<decltype(type), width()>(p, b, gates, stream);
        });
    }));
    return launch_heads(p, b, gates, int64_t{ BLOCK_ROWS } * b.n_row_blocks, stream);
}

} // namespace headlight
