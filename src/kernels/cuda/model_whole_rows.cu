/* model_whole_rows.cu - whole rows of attention for a profile, and their sums.
 *
 * Given the operator's lse, only the scores of a row must be computed.  A block processes rows
 * whose heads share keys and values; each thread reads one key, once for all these rows.
 * model_watch.cu computes rows with exact sums of their own.
 *
 * One warp computes the sums of a row (kernels/pattern_sums.h); each lane holds every 32nd weight.
 * The number of largest weights that make up a share is found without sorting: weights are not
 * negative, so the bits of a float rise with its value, and a search bit by bit finds the smallest
 * of these weights.  Sums are always added in the same order. */
#include "kernels/cuda/model.cuh"
#include "kernels/cuda/problem.cuh"

namespace headlight
{

/* ------------------------------------------------------------------------ rows */

constexpr int BLOCK_KEYS   = 128; /* one thread per key */
constexpr int ROWS_AT_ONCE = 8;   /* per block: two rows of each of four heads that share a key */

struct quick_work {
    float         *out;
    int64_t        out_stride;
    const float   *lse;
    const int64_t *items;
    int            n_shared; /* number of neighboring items that share a KV head */
    int            n_parts;  /* number of groups of ROWS_AT_ONCE items */
};

/* One row of a block: its position, and its q as floats. */
struct alignas(16) quick_row {
    float        q[HL_MAX_HEAD_DIM];
    int          query; /* below 0: there is no row */
    visible_keys seen;
    float        lse;
};

template <typename T>
__device__ static void load_quick_row(quick_row &row, const problem &p, const quick_work &w,
                                      const int64_t *item)
{
    int batch = static_cast<int>(item[0]), head = static_cast<int>(item[1]);
    int query = static_cast<int>(item[2]);

    if (threadIdx.x == 0)
        row.query = query;
    if (query < 0)
        return;
    const T *q = static_cast<const T *>(p.q.data) + row_offset(p.q, batch, head, query);
    for (int d = threadIdx.x; d < p.d_head; d += BLOCK_KEYS)
        row.q[d] = static_cast<float>(q[d]);
    if (threadIdx.x == 0) {
        row.seen = visible(p, key_length(p, batch), query_start(p, batch) + query);
        row.lse  = w.lse[(static_cast<int64_t>(batch) * p.n_heads + head) * p.n_queries + query];
    }
}

/* The products q.k of all rows with one key, eight elements at a time. */
template <typename T>
__device__ static void multiply_rows(float (&sums)[ROWS_AT_ONCE], const quick_row *rows, const T *k,
                                     int d_head)
{
    struct alignas(16) eight {
        T x[8];
    };

#pragma unroll 4
    for (int d = 0; d < d_head; d += 8) {
        eight part = *reinterpret_cast<const eight *>(k + d);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                sums[i] = fmaf(rows[i].q[d + j], static_cast<float>(part.x[j]), sums[i]);
        }
    }
}

template <typename T>
__global__ static void __launch_bounds__(BLOCK_KEYS)
    quick_patterns(const __grid_constant__ problem p, const quick_work w)
{
    __shared__ quick_row rows[ROWS_AT_ONCE];
    int                  shared             = blockIdx.x / w.n_parts; /* (batch, KV head) */
    int                  part               = blockIdx.x % w.n_parts * ROWS_AT_ONCE;
    int64_t              first              = static_cast<int64_t>(shared) * w.n_shared + part;
    int                  n                  = min(ROWS_AT_ONCE, w.n_shared - part);
    int                  key                = blockIdx.y * BLOCK_KEYS + threadIdx.x;
    float                sums[ROWS_AT_ONCE] = {};

    for (int i = 0; i < n; i++)
        load_quick_row<T>(rows[i], p, w, w.items + 3 * (first + i));
    __syncthreads();
    if (key < p.n_keys)
        multiply_rows(sums, rows,
                      static_cast<const T *>(p.k.data) +
                          row_offset(p.k, shared / p.n_kv_heads, shared % p.n_kv_heads, key),
                      p.d_head);
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        if (i >= n || rows[i].query < 0 || key >= w.out_stride)
            continue;
        bool seen = key < p.n_keys && rows[i].seen.has(key) && rows[i].lse != -INFINITY;
        w.out[(first + i) * w.out_stride + key] =
            seen ? expf(p.scale * sums[i] - rows[i].lse) : 0.0f;
    }
}

/* Whether scores are plain products, of rows that can be read sixteen bytes at a time. */
bool has_quick_patterns(const hl_device_patterns *o)
{
    const hl_attention *a      = o->problem;
    bool                narrow = a->q.dtype == HL_DTYPE_BF16 || a->q.dtype == HL_DTYPE_F16;

    return o->lse != nullptr && o->statistics == nullptr && narrow && a->k.dtype == a->q.dtype &&
           a->softcap == 0.0 && a->alibi_slopes == nullptr && a->key_bias == nullptr &&
           a->row_bias == nullptr &&
           is_wide({ a->k.data },
                   { a->d_head, a->k.row_stride, a->k.head_stride, a->k.batch_stride });
}

hl_status make_quick_patterns(hl_device *device, const hl_device_patterns *o)
{
    hl_attention_result nothing  = {};
    problem             p        = describe(&nothing, o->problem);
    int                 n_kv     = p.n_batch * p.n_kv_heads;
    int                 n_shared = static_cast<int>(o->n_items / n_kv);
    quick_work          work     = { o->out,   o->out_stride, o->lse,
                                     o->items, n_shared,      (n_shared + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE };
    auto               *kernel =
        p.q.dtype == HL_DTYPE_F16 ? quick_patterns<__half> : quick_patterns<__nv_bfloat16>;
    dim3 blocks(static_cast<unsigned>(n_kv * work.n_parts),
                static_cast<unsigned>((o->out_stride + BLOCK_KEYS - 1) / BLOCK_KEYS));

    kernel<<<blocks, BLOCK_KEYS, 0, device->stream>>>(p, work);
    return check(cudaGetLastError(), "whole rows of attention from their lse");
}

/* ------------------------------------------------------------------------ sums */

constexpr int SUM_WARPS = 4;  /* per block, one row each */
constexpr int KEPT      = 32; /* weights per lane in registers, for rows of up to 1024 keys */

__device__ static int count_lanes(int value)
{
    return __reduce_add_sync(~0u, value);
}

/* A lane's part of a row without key 0: every 32nd of the weights [begin, end). */
template <bool SHORT> struct row_part {
    const float *p;
    int64_t      begin, end;
    float        kept[SHORT ? KEPT : 1];

    __device__ row_part(const float *row, const hl_pattern_place &place)
        : p(row), begin((HL_KEYS_HAVE(place.keys, 0) ? 1 : place.keys.begin) + threadIdx.x % 32),
          end(place.keys.end)
    {
#pragma unroll
        for (int i = 0; SHORT && i < KEPT; i++)
            kept[i] = begin + 32 * i < end ? p[begin + 32 * i] : 0.0f;
    }

    /* Calls f(weight, key) for each; a row in registers is padded with weights of 0. */
    template <typename F> __device__ void each(F f) const
    {
        if constexpr (SHORT) {
#pragma unroll
            for (int i = 0; i < KEPT; i++)
                f(kept[i], begin + 32 * i);
        } else {
            for (int64_t key = begin; key < end; key += 32)
                f(p[key], key);
        }
    }
};

/* Counts the weights above `edge`, in the row and in `extra`, which is one per lane. */
template <bool SHORT>
__device__ static int count_above(const row_part<SHORT> &row, float extra, float edge)
{
    int n = extra > edge ? 1 : 0;

    row.each([&](float weight, int64_t) { n += weight > edge ? 1 : 0; });
    return count_lanes(n);
}

/* The sum of the weights that are at least as large as the float with these bits. */
template <bool SHORT>
__device__ static double sum_from(const row_part<SHORT> &row, float extra, uint32_t bits)
{
    float  least = __uint_as_float(bits);
    double sum   = extra >= least ? extra : 0.0;

    row.each([&](float weight, int64_t) { sum += weight >= least ? weight : 0.0; });
    return sum_warp<double>(sum);
}

/* How many of the largest weights make up `wanted`, which is less than the total.  `most` is the
 * bits of the largest weight. */
template <bool SHORT>
__device__ static int largest_for(const row_part<SHORT> &row, float extra, uint32_t most,
                                  double wanted)
{
    uint32_t bits = 0; /* bits of the largest threshold whose sum is enough */

    if (!(wanted > 0.0))
        return 0;
    for (uint32_t bit = 1u << 30; bit > 0; bit >>= 1) {
        if ((bits | bit) <= most && sum_from(row, extra, bits | bit) >= wanted)
            bits |= bit;
    }
    float  least  = __uint_as_float(bits);
    int    larger = count_above(row, extra, least);
    double rest   = wanted - sum_from(row, extra, bits + 1);
    return larger + static_cast<int>(ceil(rest / least));
}

/* The largest weight of all lanes, and the lowest key that has it. */
__device__ static void find_top(float &peak, int &top)
{
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(~0u, peak, step);
        int   key   = __shfl_xor_sync(~0u, top, step);

        if (other > peak || (other == peak && key < top)) {
            peak = other;
            top  = key;
        }
    }
}

template <bool SHORT>
__device__ static void add_up(hl_pattern_sums &out, const row_part<SHORT> &row)
{
    double total = 0.0, squares = 0.0;
    float  peak = -1.0f;
    int    top  = 0x7fffffff;

    row.each([&](float weight, int64_t key) {
        total += weight;
        squares += static_cast<double>(weight) * weight;
        if (weight > peak && key < row.end) {
            peak = weight;
            top  = static_cast<int>(key);
        }
    });
    find_top(peak, top);
    out.total   = sum_warp<double>(total);
    out.squares = sum_warp<double>(squares);
    out.peak    = peak;
    out.top     = top;
}

template <bool SHORT>
__device__ static void count_keys(hl_pattern_sums &out, const row_part<SHORT> &row)
{
    float    first = threadIdx.x % 32 == 0 ? out.first : 0.0f; /* in one lane only */
    uint32_t most = __float_as_uint(out.peak), all = __float_as_uint(fmaxf(out.peak, out.first));

    out.n_edges[0] = count_above(row, first, static_cast<float>(HL_EDGE));
    out.n_edges[1] = count_above(row, 0.0f, static_cast<float>(HL_EDGE / (1.0 / out.total)));
    out.k90[0]     = largest_for(row, first, all, HL_KEPT_SHARE * (out.total + out.first));
    out.k90[1]     = largest_for(row, 0.0f, most, HL_KEPT_SHARE * out.total);
}

__device__ static bool sees(const hl_visible_keys &keys, int64_t key)
{
    return HL_KEYS_HAVE(keys, key);
}

template <bool SHORT>
__device__ static void sum_row(hl_pattern_sums &out, const float *p, const hl_pattern_place &place)
{
    row_part<SHORT> row(p, place);

    out.first = HL_KEYS_HAVE(place.keys, 0) ? p[0] : 0.0f;
    add_up(out, row);
    if (isfinite(out.total + out.first)) {
        for (int i = 0; i <= 2 * HL_BAND; i++) {
            int64_t key    = place.position - HL_BAND + i;
            out.near_by[i] = sees(place.keys, key) ? p[key] : 0.0f;
        }
        count_keys(out, row);
    }
}

template <bool SHORT>
__global__ static void __launch_bounds__(32 * SUM_WARPS)
    pattern_sums(const hl_device_pattern_sums s)
{
    int64_t index = static_cast<int64_t>(blockIdx.x) * SUM_WARPS + threadIdx.x / 32;
    int64_t row = index / s.n_heads, head = index % s.n_heads;

    if (row >= s.n_batch * s.n_patterns)
        return;
    int64_t      sequence = row / s.n_patterns;
    const float *p =
        s.p + ((sequence * s.n_heads + head) * s.n_patterns + row % s.n_patterns) * s.n_keys;
    hl_pattern_sums out = {};
    if (s.places[row].keys.end > 0)
        sum_row<SHORT>(out, p, s.places[row]);
    if (threadIdx.x % 32 == 0)
        s.out[index] = out;
}

hl_status op_pattern_sums(hl_device *device, int lane, const hl_device_pattern_sums *s)
{
    int64_t n_rows   = s->n_batch * s->n_patterns * s->n_heads;
    auto    n_blocks = static_cast<unsigned>((n_rows + SUM_WARPS - 1) / SUM_WARPS);
    auto   *kernel   = s->n_keys <= 32 * KEPT ? pattern_sums<true> : pattern_sums<false>;

    if (n_rows == 0)
        return HL_OK;
    HL_CUDA_TRY(enter_lane(device, lane));
    kernel<<<n_blocks, 32 * SUM_WARPS, 0, device->lanes[lane]>>>(*s);
    return check(cudaGetLastError(), "sums of whole rows");
}

} // namespace headlight
