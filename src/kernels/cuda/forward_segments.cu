/* forward_segments.cu - how much of a row goes to each segment, from an lse that has been computed.
 *
 * Most keys of a sequence belong to one segment, the commonest.  So only keys of the other segments
 * are processed, and the commonest gets the rest of the mass; a tile of 64 keys that all belong to
 * it costs only a read of their segment numbers.  For the other tiles, scores are computed again on
 * the tensor cores, as in forward_portable.cu, and p = 2^(score - lse) is added to its key's
 * segment:
 *
 *     mass[s] = sum of p over the keys of s            for every s except the commonest
 *     mass[commonest] = 1 - learned sink's share - sum of these
 *
 * The commonest segment depends on the sequence alone, so a row's masses do not depend on the rest
 * of its batch. */
#include <algorithm>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/portable_tile.cuh"

namespace headlight
{

constexpr int SEGMENT_ROWS    = 64;
constexpr int SEGMENT_KEYS    = 64;
constexpr int SEGMENT_THREADS = 128;

template <typename T, int DIM> struct segment_shared {
    T       q[SEGMENT_ROWS][DIM + 8]; /* 16 more bytes per row avoid bank conflicts */
    T       k[SEGMENT_KEYS][DIM + 8];
    uint8_t segments[SEGMENT_KEYS];
    int     counts[HL_MAX_SEGMENTS];
};

/* The segment that most of `n` keys have; the lowest of equals. */
__device__ static int commonest(int (&counts)[HL_MAX_SEGMENTS], const uint8_t *segments, int n)
{
    int own[HL_MAX_SEGMENTS] = {};
    int best                 = 0;

    if (threadIdx.x < HL_MAX_SEGMENTS)
        counts[threadIdx.x] = 0;
    __syncthreads();
    for (int key = threadIdx.x; key < n; key += SEGMENT_THREADS) {
#pragma unroll
        for (int s = 0; s < HL_MAX_SEGMENTS; s++)
            own[s] += segments[key] == s;
    }
#pragma unroll
    for (int s = 0; s < HL_MAX_SEGMENTS; s++) {
        int sum = __reduce_add_sync(~0u, own[s]);
        if (threadIdx.x % 32 == 0)
            atomicAdd(&counts[s], sum);
    }
    __syncthreads();
    for (int s = 1; s < HL_MAX_SEGMENTS; s++)
        best = counts[s] > counts[best] ? s : best;
    return best;
}

/* The two rows of a thread, and their sums so far. */
struct segment_rows {
    tile_row rows[2];
    float    lse[2]; /* in bits; +inf: the row sees nothing */
    float    mass[2][HL_MAX_SEGMENTS];

    __device__ void open(const problem &p, int batch, int head, int first)
    {
        for (int r = 0; r < 2; r++) {
            int     query = first + 8 * r;
            int64_t index = (static_cast<int64_t>(batch) * p.n_heads + head) * p.n_queries +
                            min(query, p.n_queries - 1);

            rows[r].open(p, batch, head, query);
            lse[r] = p.result.lse[index] * LOG2_E;
            if (lse[r] == -INFINITY)
                lse[r] = INFINITY;
            for (float &m : mass[r])
                m = 0.0f;
        }
    }

    /* Adds the products of a tile's keys. */
    __device__ void add(const problem &p, const float (&products)[SEGMENT_KEYS / 8][4],
                        const uint8_t *segments, int first_key)
    {
#pragma unroll
        for (int i = 0; i < SEGMENT_KEYS / 2; i++) {
            int   r      = (i >> 1) & 1;
            int   column = i / 4 * 8 + threadIdx.x % 4 * 2 + (i & 1);
            float score  = rows[r].score(p, first_key + column, products[i / 4][i % 4]);
            float weight = exp2f(score - lse[r]);
#pragma unroll
            for (int s = 0; s < HL_MAX_SEGMENTS; s++)
                mass[r][s] += segments[column] == s ? weight : 0.0f;
        }
    }

    /* For a row that is not finite: NaN for the segments of which it sees a key, else 0. */
    __device__ static void spoil(float (&mass)[HL_MAX_SEGMENTS], const uint8_t *segments,
                                 int common, float &total, const visible_keys &keys)
    {
        bool sees[HL_MAX_SEGMENTS] = {};

        for (int key = 0; key < keys.end; key++) {
#pragma unroll
            for (int s = 0; s < HL_MAX_SEGMENTS; s++)
                sees[s] = sees[s] || (segments[key] == s && keys.has(key));
        }
#pragma unroll
        for (int s = 0; s < HL_MAX_SEGMENTS; s++) {
            mass[s] = sees[s] ? NAN : 0.0f;
            if (s == common)
                total = mass[s];
        }
    }

    /* Adds up the four lanes of a row; one of them writes. */
    __device__ void finish(const problem &p, const uint8_t *segments, int batch, int common, int r)
    {
        const tile_row &row   = rows[r];
        float           total = isinf(lse[r]) ? 0.0f : 1.0f;

        if (p.sinks != nullptr && total > 0.0f)
            total -= exp2f(p.sinks[row.head] * LOG2_E - lse[r]);
#pragma unroll
        for (int s = 0; s < HL_MAX_SEGMENTS; s++) {
            mass[r][s] += __shfl_xor_sync(~0u, mass[r][s], 1);
            mass[r][s] += __shfl_xor_sync(~0u, mass[r][s], 2);
            total -= s != common ? mass[r][s] : 0.0f;
        }
        if (threadIdx.x % 4 != 0 || row.query >= p.n_queries)
            return;
        int64_t index =
            (static_cast<int64_t>(batch) * p.n_heads + row.head) * p.n_queries + row.query;
        if (isnan(lse[r]))
            spoil(mass[r], segments, common, total, row.keys);
#pragma unroll
        for (int s = 0; s < HL_MAX_SEGMENTS; s++) {
            if (s < p.n_segments)
                p.result.segment_mass[index * p.n_segments + s] =
                    s == common ? max_or_nan(total, 0.0f) : mass[r][s];
        }
    }
};

/* Copies a tile's segments to shared memory; returns whether any differs from the commonest. */
__device__ static bool has_others(uint8_t *out, const uint8_t *segments, int first_key, int n_keys,
                                  int common)
{
    int  key   = first_key + static_cast<int>(threadIdx.x);
    bool other = false;

    if (threadIdx.x < SEGMENT_KEYS) {
        int segment      = key < n_keys ? segments[key] : common;
        out[threadIdx.x] = static_cast<uint8_t>(segment);
        other            = segment != common;
    }
    return __syncthreads_or(other) != 0;
}

template <typename T, int DIM>
__global__ static void __launch_bounds__(SEGMENT_THREADS)
    forward_segments(const __grid_constant__ problem p, const wide_copies wide)
{
    extern __shared__ __align__(16) char raw[];
    auto                                &shared = *reinterpret_cast<segment_shared<T, DIM> *>(raw);
    int            n_row_tiles                  = (p.n_queries + SEGMENT_ROWS - 1) / SEGMENT_ROWS;
    int            first_row = static_cast<int>(blockIdx.x) % n_row_tiles * SEGMENT_ROWS;
    int            head      = static_cast<int>(blockIdx.x) / n_row_tiles % p.n_heads;
    int            batch     = static_cast<int>(blockIdx.x) / n_row_tiles / p.n_heads;
    int            warp      = static_cast<int>(threadIdx.x) / 32;
    int            length    = key_length(p, batch);
    const uint8_t *segments  = p.segments + batch * p.segment_stride;
    int            common    = commonest(shared.counts, segments, length);
    segment_rows   rows;

    rows.open(p, batch, head, first_row + warp * 16 + static_cast<int>(threadIdx.x) % 32 / 4);
    load_tile<SEGMENT_ROWS, SEGMENT_THREADS, T, DIM>(shared.q, p.q, row_offset(p.q, batch, head, 0),
                                                     first_row, p.n_queries, p.d_head, wide.q);
    int last = query_start(p, batch) + first_row + SEGMENT_ROWS - 1;
    int end  = max(0, hl_reach_end(&p, length, last));
    for (int first_key = 0; first_key < end; first_key += SEGMENT_KEYS) {
        float products[SEGMENT_KEYS / 8][4];

        if (!has_others(shared.segments, segments, first_key, length, common))
            continue;
        load_tile<SEGMENT_KEYS, SEGMENT_THREADS, T, DIM>(shared.k, p.k,
                                                         row_offset(p.k, batch, head / p.group, 0),
                                                         first_key, p.n_keys, p.d_head, wide.k);
        ptx::copy_commit();
        ptx::copy_wait();
        __syncthreads();
        multiply_keys<T, DIM>(products, shared.q + warp * 16, shared.k);
        rows.add(p, products, shared.segments, first_key);
        __syncthreads();
    }
    ptx::copy_wait();
    rows.finish(p, segments, batch, common, 0);
    rows.finish(p, segments, batch, common, 1);
}

/* ------------------------------------------------------------------------ launch */

const char *segments_refuse(const problem &p, const cudaDeviceProp &device)
{
    int64_t n_tiles = (int64_t{ p.n_queries } + SEGMENT_ROWS - 1) / SEGMENT_ROWS;

    if (device.major < 8)
        return "a GPU before sm_80";
    if (!are_half({ p.q, p.k }))
        return "types other than bf16 or fp16 throughout";
    if (p.d_head > 256)
        return "d_head above 256";
    if (p.row_bias != nullptr)
        return "biases of rows";
    if (p.result.lse == nullptr)
        return "segment_mass without lse";
    if (n_tiles * p.n_batch * p.n_heads > INT32_MAX)
        return "2^31 tiles of queries";
    return nullptr;
}

template <typename T, int DIM> static hl_status launch(const problem &p, cudaStream_t stream)
{
    int n_bytes  = sizeof(segment_shared<T, DIM>);
    int n_blocks = (p.n_queries + SEGMENT_ROWS - 1) / SEGMENT_ROWS * p.n_batch * p.n_heads;

    HL_CUDA_TRY(allow_shared(forward_segments<T, DIM>, n_bytes, "shared memory for segments"));
    forward_segments<T, DIM><<<n_blocks, SEGMENT_THREADS, n_bytes, stream>>>(p, wide_copies(p));
    return check(cudaGetLastError(), "the masses of segments");
}

hl_status launch_segments(const problem &p, cudaStream_t stream)
{
    return for_half(p.q.dtype, [&](auto type) {
        return for_width<64, 128, 256>(
            p.d_head, [&](auto width) { return launch<decltype(type), width()>(p, stream); });
    });
}

} // namespace headlight
