/* received_hopper.cu - the attention that each key receives, for sm_90a.
 *
 * A tile is 128 keys of one head, for which a block goes over the rows that see them, 128 at a time.  A
 * block takes one tile after another.  One thread copies keys and queries into rings of stages, and is
 * ahead by as much as these hold; two groups of 64 keys each compute S' = K Q', and add up
 * 2^(S' - lse).  The product of rows n+1 is issued before the weights of rows n are computed, so that
 * it runs beside them.
 *
 * A thread of a group has keys lane / 4 and lane / 4 + 8 of its warp's 16, and the queries 8 i + 2 (lane
 * % 4) and the next: scores 4 i, 4 i + 1 and 4 i + 2, 4 i + 3. */
#include <algorithm>

#include "kernels/cuda/hopper_ptx.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/problem.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace headlight
{

/* A kernel's shape: GROUPS groups of 64 keys, which take ROWS rows at a time.  Wide products need fewer
 * and larger groups; narrow ones leave the time to the exponentials, whose latency more warps hide. */
template <typename T_, int D_, int GROUPS_, int ROWS_> struct received_shape {
    using T                        = T_;
    static constexpr int D         = D_;
    static constexpr int GROUPS    = GROUPS_;
    static constexpr int ROWS      = ROWS_;
    static constexpr int KEYS      = 64 * GROUPS;
    static constexpr int N_SCORES  = ROWS / 2; /* of a thread */
    static constexpr int THREADS   = 128 * (GROUPS + 1);
    static constexpr int PANELS    = D / 64;
    static constexpr int N_STAGES  = D > 128 ? 2 : 3;         /* of queries */
    static constexpr int N_TILES   = D == 256 ? 1 : 2;        /* of keys */
    static constexpr int CONSUMERS = GROUPS == 2 ? 232 : 112; /* registers per thread */
    static constexpr int PRODUCER  = GROUPS == 2 ? 40 : 32;
    static constexpr int Q_BYTES   = ROWS * D * 2;
    static constexpr int K_BYTES   = KEYS * D * 2;

    struct shared {
        T        k[N_TILES][KEYS * D];  /* (panel, key, 64), swizzled */
        T        q[N_STAGES][ROWS * D]; /* (panel, row, 64) */
        float    lse[GROUPS][2][ROWS];  /* in bits, of rows n and n + 1 */
        uint64_t k_full[N_TILES], k_empty[N_TILES];
        uint64_t q_full[N_STAGES], q_empty[N_STAGES];
    };
    static constexpr int SHARED_BYTES = sizeof(shared);
};

struct received_maps {
    CUtensorMap q, k;
};

/* The keys of a tile, and the rows that may see one of them. */
template <typename S> struct received_tile {
    int batch, head, first_key, length, start, begin, n_blocks;

    __device__ __forceinline__ received_tile(const problem &p, const received_sums &sums, int index)
    {
        int n_heads = p.n_batch * p.n_heads;

        /* Where rows are causal, the first keys have the longest tiles: these start first. */
        first_key = index / n_heads * S::KEYS;
        batch     = index % n_heads / p.n_heads;
        head      = index % n_heads % p.n_heads;
        length    = key_length(p, batch);
        start     = query_start(p, batch);
        begin     = max(sums.first_query, first_key - p.window_right - start);
        int end   = p.n_queries;
        if (first_key >= p.window_sink)
            end = min(end, first_key + S::KEYS + p.window_left - start);
        if (first_key >= length)
            end = begin;
        n_blocks = max(0, end - begin + S::ROWS - 1) / S::ROWS;
    }

    __device__ __forceinline__ int first_row(int block) const
    {
        return begin + block * S::ROWS;
    }

    /* Whether all rows of a block exist and see all 64 keys from `key` on.  Rows beyond the last are
     * zero: a key of NaN has scores of NaN for them, too. */
    __device__ __forceinline__ bool is_open(const problem &p, int key, int block) const
    {
        int first = start + first_row(block), last = first + S::ROWS - 1;

        return first_row(block) + S::ROWS <= p.n_queries && key + 64 <= length &&
               key + 63 <= first + p.window_right &&
               (key >= hl_reach_begin(&p, last) || key + 64 <= p.window_sink);
    }
};

/* Number `round` of this block's tiles.  Tiles get shorter, so the order of the blocks turns with every
 * round: otherwise one block would have the longer tile each time. */
__device__ __forceinline__ int tile_of(int round)
{
    int n = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);

    return round * n + (round % 2 == 0 ? block : n - 1 - block);
}

/* Calls `run` with every tile of this block that has rows. */
template <typename S, typename F>
__device__ __forceinline__ void for_tiles(const problem &p, const received_sums &sums, int n_tiles,
                                          F run)
{
    for (int round = 0; round * static_cast<int>(gridDim.x) < n_tiles; round++)
        if (tile_of(round) < n_tiles)
            run(received_tile<S>(p, sums, tile_of(round)));
}

template <typename S> struct received_producer {
    typename S::shared  &shared;
    const received_maps &maps;
    const problem       &p;
    int                  n_tiles = 0, n_rows = 0; /* copied so far; rows in blocks */

    __device__ __forceinline__ void copy(const received_tile<S> &tile)
    {
        if (tile.n_blocks == 0)
            return;
        int place = n_tiles % S::N_TILES;

        ptx::barrier_wait(&shared.k_empty[place], (n_tiles / S::N_TILES & 1) ^ 1);
        ptx::barrier_expect(&shared.k_full[place], S::K_BYTES);
        for (int panel = 0; panel < S::PANELS; panel++)
            ptx::copy_in(shared.k[place] + panel * S::KEYS * 64, &maps.k, &shared.k_full[place],
                         panel * 64, tile.first_key, tile.head / p.group, tile.batch);
        for (int n = 0; n < tile.n_blocks; n++, n_rows++) {
            int stage = n_rows % S::N_STAGES;

            ptx::barrier_wait(&shared.q_empty[stage], (n_rows / S::N_STAGES & 1) ^ 1);
            ptx::barrier_expect(&shared.q_full[stage], S::Q_BYTES);
            for (int panel = 0; panel < S::PANELS; panel++)
                ptx::copy_in(shared.q[stage] + panel * S::ROWS * 64, &maps.q, &shared.q_full[stage],
                             panel * 64, tile.first_row(n), tile.head, tile.batch);
        }
        n_tiles++;
    }
};

template <typename S> struct received_consumer {
    using T = typename S::T;

    typename S::shared  &shared;
    const problem       &p;
    const received_sums &sums;
    int                  group;
    float                scale;           /* times log2(e) */
    int                  n_tiles, n_rows; /* of the tiles before this one; rows in blocks */
    double               total[2];

    /* Issues the product of this group's keys and a block of queries. */
    __device__ __forceinline__ void issue(float (&scores)[S::N_SCORES], int n) const
    {
        int      place = n_tiles % S::N_TILES, stage = (n_rows + n) % S::N_STAGES;
        uint32_t k = ptx::describe(ptx::shared_address(shared.k[place]) + group * 64 * 128, 16);
        uint32_t q = ptx::describe(ptx::shared_address(shared.q[stage]), 16);

        ptx::barrier_wait(&shared.q_full[stage], (n_rows + n) / S::N_STAGES & 1);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < S::D / 16; step++) {
            int panel = step / 4, inside = step % 4; /* 32 bytes per step, in units of 16 */
            ptx::wgmma_ss<T>(scores, k + panel * (S::KEYS * 128 >> 4) + inside * 2,
                             q + panel * (S::ROWS * 128 >> 4) + inside * 2, step != 0);
        }
        ptx::wgmma_commit();
    }

    /* This thread's row of a block, in bits; +inf if it counts nothing. */
    __device__ __forceinline__ float lse_of(const received_tile<S> &tile, int n) const
    {
        int     row   = tile.first_row(n) + static_cast<int>(threadIdx.x) % S::ROWS;
        int64_t first = (static_cast<int64_t>(tile.batch) * p.n_heads + tile.head) * p.n_queries;
        float   lse   = row < p.n_queries ? sums.lse[first + row] : -INFINITY;

        return lse == -INFINITY ? INFINITY : lse * LOG2_E;
    }

    template <bool MASKED>
    __device__ __forceinline__ void add(const received_tile<S> &tile,
                                        const float (&scores)[S::N_SCORES], int n, int key)
    {
        const auto *lse    = reinterpret_cast<const float2 *>(shared.lse[group][n & 1]);
        int         lane   = threadIdx.x % 32;
        float       sum[2] = {};

#pragma unroll
        for (int i = 0; i < S::N_SCORES / 4; i++) {
            float2 own = lse[4 * i + lane % 4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float weight =
                    ptx::exp2_fast(fmaf(scores[4 * i + j], scale, -((j & 1) != 0 ? own.y : own.x)));
                if (MASKED) {
                    int row = tile.first_row(n) + 8 * i + 2 * (lane % 4) + (j & 1);
                    if (row >= p.n_queries ||
                        !visible(p, tile.length, tile.start + row).has(key + 8 * (j >> 1)))
                        weight = 0.0f;
                }
                sum[j >> 1] += weight;
            }
        }
        total[0] += sum[0];
        total[1] += sum[1];
    }

    /* Adds the weights of block n, while the product of the next one runs. */
    template <bool IS_LAST>
    __device__ __forceinline__ void step(const received_tile<S> &tile, float (&scores)[S::N_SCORES],
                                         float (&next)[S::N_SCORES], int n)
    {
        float lse      = IS_LAST ? 0.0f : lse_of(tile, n + 1);
        int   of_group = tile.first_key + group * 64;
        int   key      = of_group + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;

        if constexpr (IS_LAST) {
            ptx::wgmma_wait<0>();
        } else {
            issue(next, n + 1);
            ptx::wgmma_wait<1>();
        }
        ptx::settle(scores);
        if (threadIdx.x % 32 == 0) {
            ptx::barrier_arrive(&shared.q_empty[(n_rows + n) % S::N_STAGES]);
            if (IS_LAST)
                ptx::barrier_arrive(&shared.k_empty[n_tiles % S::N_TILES]);
        }
        if (tile.is_open(p, of_group, n))
            add<false>(tile, scores, n, key);
        else
            add<true>(tile, scores, n, key);
        if (!IS_LAST) {
            shared.lse[group][(n + 1) & 1][threadIdx.x % S::ROWS] = lse;
            ptx::named_sync(1 + group, 128);
        }
    }

    /* Every step but the last issues a product, without a test: the compiler keeps only such
     * products in flight. */
    __device__ __forceinline__ void run(const received_tile<S> &tile)
    {
        float even[S::N_SCORES], odd[S::N_SCORES];
        int   n = 0;

        total[0] = total[1] = 0.0;
        if (tile.n_blocks > 0) {
            float lse = lse_of(tile, 0);
            ptx::named_sync(1 + group, 128); /* nobody reads the last tile's any more */
            shared.lse[group][0][threadIdx.x % S::ROWS] = lse;
            ptx::named_sync(1 + group, 128);
            ptx::barrier_wait(&shared.k_full[n_tiles % S::N_TILES], n_tiles / S::N_TILES & 1);
            issue(even, 0);
            for (; n + 2 < tile.n_blocks; n += 2) {
                step<false>(tile, even, odd, n);
                step<false>(tile, odd, even, n + 1);
            }
            if (n + 1 < tile.n_blocks) {
                step<false>(tile, even, odd, n);
                step<true>(tile, odd, even, n + 1);
            } else {
                step<true>(tile, even, odd, n);
            }
            n_tiles++;
            n_rows += tile.n_blocks;
        }
        write(tile);
    }

    __device__ __forceinline__ void write(const received_tile<S> &tile) const
    {
        int     lane = threadIdx.x % 32;
        int     key  = tile.first_key + group * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        int64_t head = static_cast<int64_t>(tile.batch) * p.n_heads + tile.head;

#pragma unroll
        for (int r = 0; r < 2; r++) {
            double sum = total[r] + __shfl_xor_sync(~0u, total[r], 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (lane % 4 == 0 && key + 8 * r < p.n_keys)
                sums.received[head * p.n_keys + key + 8 * r] = static_cast<float>(sum);
        }
    }
};

template <typename S>
__global__ static void __launch_bounds__(S::THREADS, 1)
    received_hopper(const __grid_constant__ received_maps maps, const __grid_constant__ problem p,
                    const __grid_constant__ received_sums sums, int n_tiles)
{
    extern __shared__ __align__(1024) char raw[]; /* the swizzle needs the alignment */
    auto                                  &shared = *reinterpret_cast<typename S::shared *>(raw);

    if (threadIdx.x == 0) {
        for (int place = 0; place < S::N_TILES; place++) {
            ptx::barrier_init(&shared.k_full[place], 1);
            ptx::barrier_init(&shared.k_empty[place], 4 * S::GROUPS);
        }
        for (int stage = 0; stage < S::N_STAGES; stage++) {
            ptx::barrier_init(&shared.q_full[stage], 1);
            ptx::barrier_init(&shared.q_empty[stage], 4 * S::GROUPS);
        }
        ptx::barrier_init_done();
    }
    __syncthreads();

    int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
    if (group == 0) {
        ptx::registers_give<S::PRODUCER>();
        received_producer<S> producer = { shared, maps, p };
        if (threadIdx.x == 0)
            for_tiles<S>(p, sums, n_tiles,
                         [&](const received_tile<S> &tile) { producer.copy(tile); });
    } else {
        ptx::registers_take<S::CONSUMERS>();
        received_consumer<S> consumer = { shared, p, sums, group - 1, p.scale * LOG2_E };
        for_tiles<S>(p, sums, n_tiles, [&](const received_tile<S> &tile) { consumer.run(tile); });
    }
}

const char *received_hopper_refuses(const problem &p, const cudaDeviceProp &device)
{
    int64_t n_tiles = (int64_t{ p.n_keys } + 127) / 128;

    if (device.major != 9)
        return "GPUs other than sm_90";
    if (!are_half({ p.q, p.k }))
        return "types other than bf16 or fp16 throughout";
    if (p.d_head != 64 && p.d_head != 128 && p.d_head != 192 && p.d_head != 256)
        return "d_head other than 64, 128, 192 or 256";
    if (!tensor_map_takes(p.q) || !tensor_map_takes(p.k))
        return "rows that do not lie on 16 bytes";
    if (p.softcap != 0.0f || p.alibi_slopes != nullptr || p.key_bias != nullptr ||
        p.row_bias != nullptr)
        return "softcap, ALiBi or biases";
    if (n_tiles * p.n_batch * p.n_heads > INT32_MAX / 2)
        return "2^30 tiles of keys";
    return nullptr;
}

template <typename S>
static hl_status launch(const problem &p, const received_sums &sums, const cudaDeviceProp &device,
                        cudaStream_t stream)
{
    received_maps maps;
    int           n_tiles  = (p.n_keys + S::KEYS - 1) / S::KEYS * p.n_batch * p.n_heads;
    int           n_blocks = std::min(n_tiles, device.multiProcessorCount);

    HL_CUDA_TRY(tensor_map_make(&maps.q, p.q, p.n_batch, p.n_heads, p.n_queries, S::D, S::ROWS));
    HL_CUDA_TRY(tensor_map_make(&maps.k, p.k, p.n_batch, p.n_kv_heads, p.n_keys, S::D, S::KEYS));
    HL_CUDA_TRY(allow_shared(received_hopper<S>, S::SHARED_BYTES, "shared memory for keys"));
    received_hopper<S><<<n_blocks, S::THREADS, S::SHARED_BYTES, stream>>>(maps, p, sums, n_tiles);
    return check(cudaGetLastError(), "the attention that keys receive");
}

hl_status launch_received_hopper(const problem &p, const received_sums &sums,
                                 const cudaDeviceProp &device, cudaStream_t stream)
{
    return for_half(p.q.dtype, [&](auto type) {
        using T = decltype(type);
        return for_width<64, 128, 192, 256>(p.d_head, [&](auto width) {
            constexpr bool NARROW = width() == 64;
            return launch<received_shape<T, width(), NARROW ? 4 : 2, NARROW ? 64 : 128>>(
                p, sums, device, stream);
        });
    });
}

} // namespace headlight
