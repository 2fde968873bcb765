/* model_watch.cu - whole rows of attention, and sums of rows for a profile.
 *
 * One block computes a row of attention.  It sums in double, like the plain kernel, and keeps the
 * scores as floats until they become probabilities.
 *
 * Sums of rows are whole numbers (stats/exact.h), so the order in which warps add does not matter.
 * A block takes one head's rows of one run and checks that all are valid and small.  Only then each
 * warp adds some quantities to the run's sums and to the head's histograms. */
#include "kernels/cuda/model.cuh"
#include "kernels/cuda/plain_row.cuh"
#include "kernels/cuda/row_state.cuh"

namespace headlight
{

/* ----------------------------------------------------------------------- patterns */

constexpr int PATTERN_THREADS = 256;

/* Merges the states of a block's threads; every thread gets the result.  All have the same maximum,
 * so the sums are only added. */
__device__ static row_state across_block(row_state state)
{
    __shared__ row_state parts[PATTERN_THREADS / 32];

    state.sum       = warp_sum(state.sum);
    state.dot       = warp_sum(state.dot);
    state.collision = warp_sum(state.collision);
    state.spread    = warp_sum(state.spread);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = state;
    __syncthreads();
    state = parts[0];
    for (int i = 1; i < PATTERN_THREADS / 32; i++) {
        state.sum += parts[i].sum;
        state.dot += parts[i].dot;
        state.collision += parts[i].collision;
        state.spread += parts[i].spread;
    }
    return state;
}

/* Adds one more score, which is no larger than the maximum; a hidden one (-inf) is skipped. */
__device__ static void push_below(row_state &state, double score)
{
    double shift = score - state.max;
    double size  = exp(shift);

    if (score == -INFINITY)
        return;
    state.sum += size;
    state.dot += shift * size;
    state.collision += size * size;
    state.spread += shift * shift * size;
}

__device__ static double largest_of_block(double value)
{
    __shared__ double parts[PATTERN_THREADS / 32];

    for (int step = 16; step > 0; step /= 2)
        value = fmax(value, __shfl_xor_sync(~0u, value, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    for (int i = 0; i < PATTERN_THREADS / 32; i++)
        value = fmax(value, parts[i]);
    return value;
}

struct pattern_work {
    float          *out;
    int64_t         out_stride;
    hl_pattern_row *statistics;
    const int64_t  *items;
};

constexpr int KEY_LANES = 8; /* lanes that read a key together, W elements each at a time */

/* The index of element d of q, so that neighboring lanes read neighboring elements. */
template <int W> __device__ static int turned(int d)
{
    constexpr int ALL = KEY_LANES * W;

    return d / ALL * ALL + d % W * KEY_LANES + d % ALL / W;
}

/* A lane's share of q.k. */
template <int W>
__device__ static double part_of_product(const problem &p, const plain_row &row, const double *q,
                                         int key)
{
    int64_t at   = row_offset(p.k, row.batch, row.kv_head, key);
    span    k    = span_of(p.k.data, p.k.dtype);
    int     part = threadIdx.x % KEY_LANES;
    double  sum  = 0.0;

    for (int first = 0; first + part * W < p.d_head; first += KEY_LANES * W) {
        float x[W];
        load_some<W>(x, k, at + first + part * W);
#pragma unroll
        for (int i = 0; i < W; i++)
            sum = fma(q[first + i * KEY_LANES + part], static_cast<double>(x[i]), sum);
    }
    return sum;
}

/* Computes the scores of PATTERN_THREADS keys from `first` on, if they are visible. */
template <int W>
__device__ static void score_keys(double *scores, const problem &p, const plain_row &row,
                                  const double *q, int first)
{
    __syncthreads(); /* the previous scores have been read */
    for (int i = threadIdx.x / KEY_LANES; i < PATTERN_THREADS; i += PATTERN_THREADS / KEY_LANES) {
        bool   seen = row.keys.has(first + i);
        double sum  = seen ? part_of_product<W>(p, row, q, first + i) : 0.0, slope;

        for (int step = KEY_LANES / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(~0u, sum, step);
        if (seen && threadIdx.x % KEY_LANES == 0)
            scores[i] = score_of(p, row, first + i, sum, &slope);
    }
    __syncthreads();
}

/* Scores of keys with a statistic of their own: the row's position, the one before it, and the
 * first; -inf if hidden. */
struct chosen_scores {
    double self, previous, first;
};

__device__ static void choose(chosen_scores &out, const plain_row &row, int key, double score)
{
    if (key == row.position)
        out.self = score;
    if (key == row.position - 1)
        out.previous = score;
    if (key == 0)
        out.first = score;
}

__device__ static void put_pattern_row(hl_pattern_row *out, const chosen_scores &chosen,
                                       const row_state &all, double max_key, double max_size)
{
    double lse = all.lse();

    out->lse        = lse;
    out->entropy    = all.entropy();
    out->renyi2     = all.renyi2();
    out->varentropy = all.varentropy();
    out->peak       = all.blind() ? 0.0 : exp(max_key - lse);
    out->self   = all.blind() ? 0.0 : exp(chosen.self - lse);
    out->previous   = all.blind() ? 0.0 : exp(chosen.previous - lse);
    out->first      = all.blind() ? 0.0 : exp(chosen.first - lse);
    out->max_score  = max_size;
}

/* One block per item.  First the scores of its keys and their sums, one thread per key, then their
 * probabilities.  Each thread reads from `out` only what it wrote there. */
template <int W>
__global__ static void __launch_bounds__(PATTERN_THREADS)
    patterns(const __grid_constant__ problem p, const pattern_work w)
{
    __shared__ double        q[HL_MAX_HEAD_DIM + KEY_LANES * W];
    __shared__ double        scores[PATTERN_THREADS];
    __shared__ chosen_scores chosen;
    const int64_t           *item = w.items + 3 * static_cast<int64_t>(blockIdx.x);
    plain_row                row(p, (item[0] * p.n_heads + item[1]) * p.n_queries + item[2]);
    float                   *out = w.out + blockIdx.x * w.out_stride;
    row_state                all;
    double                   max_size = 0.0;

    if (item[2] < 0)
        return;
    if (threadIdx.x == 0)
        chosen = { -INFINITY, -INFINITY, -INFINITY };
    for (int d = threadIdx.x; d < p.d_head; d += PATTERN_THREADS)
        q[turned<W>(d)] = load(p.q, row_offset(p.q, row.batch, row.head, row.query) + d);
    for (int first = 0; first < row.keys.end; first += PATTERN_THREADS) {
        int key = first + static_cast<int>(threadIdx.x);

        score_keys<W>(scores, p, row, q, first);
        double score = row.keys.has(key) ? scores[threadIdx.x] : -INFINITY;
        all          = all.rescaled(fmax(all.max, largest_of_block(score)));
        if (!row.keys.has(key))
            continue;
        push_below(all, score);
        choose(chosen, row, key, score);
        max_size = score != -INFINITY ? fmax(max_size, fabs(score)) : max_size;
        out[key] = static_cast<float>(score);
    }
    all            = across_block(all);
    double max_key = all.max;
    max_size       = largest_of_block(max_size);
    if (p.sinks != nullptr && !all.blind()) {
        all      = all.pushed(p.sinks[row.head]);
        max_size = fmax(max_size, fabs(static_cast<double>(p.sinks[row.head])));
    }
    double lse = all.lse();
    for (int64_t key = threadIdx.x; key < w.out_stride; key += PATTERN_THREADS) {
        bool seen = row.keys.has(static_cast<int>(key)) && lse != -INFINITY;
        out[key]  = seen ? static_cast<float>(exp(out[key] - lse)) : 0.0f;
    }
    if (w.statistics != nullptr && threadIdx.x == 0)
        put_pattern_row(w.statistics + blockIdx.x, chosen, all, max_key, max_size);
}

hl_status op_patterns(hl_device *device, const hl_device_patterns *o)
{
    hl_attention_result nothing = {};
    pattern_work        work    = { o->out, o->out_stride, o->statistics, o->items };
    const hl_attention *a       = o->problem;
    bool                wide =
        is_wide({ a->k.data }, { a->d_head, a->k.row_stride, a->k.head_stride, a->k.batch_stride });
    auto kernel = wide ? patterns<8> : patterns<1>;

    if (o->n_items == 0)
        return HL_OK;
    if (has_quick_patterns(o))
        return make_quick_patterns(device, o);
    kernel<<<static_cast<unsigned>(o->n_items), PATTERN_THREADS, 0, device->stream>>>(
        describe(&nothing, a), work);
    return check(cudaGetLastError(), "whole rows of attention");
}

/* ------------------------------------------------------------------------- sums */

constexpr int REDUCE_WARPS = 4;
constexpr int N_BIN_COUNTS = HL_N_HISTOGRAMS * HL_N_BINS;

struct reduce_work {
    hl_run_sums  *sums;
    int64_t      *histogram;
    int64_t      *lookback;
    const float  *values[HL_N_QUANTITIES]; /* (B, H, C), one array per quantity */
    const float  *mass;                    /* (B, H, C, n_types) */
    const hl_run *runs;
    const double *log_n, *inverse, *inverse_other;
    int64_t       n_runs, n_types, n_heads, batch_rows;
};

/* One head's rows of one run. */
struct run_place {
    hl_run  run;
    int64_t first, plan; /* index of row run.begin among all rows, and in the plan */
    int64_t n;

    __device__ run_place(const reduce_work &w, int64_t head, int64_t number) : run(w.runs[number])
    {
        plan  = run.sequence * w.batch_rows + run.begin;
        first = (run.sequence * w.n_heads + head) * w.batch_rows + run.begin;
        n     = run.end - run.begin;
    }
    __device__ bool has(int bit) const
    {
        return (run.defined >> bit & 1) != 0;
    }
};

/* Each thread checks some rows; returns whether all rows of the run are valid and small. */
__device__ static bool is_small(const reduce_work &w, const run_place &at)
{
    bool small = true;

    for (int64_t i = threadIdx.x; i < at.n; i += 32 * REDUCE_WARPS) {
        for (const float *values : w.values)
            small = small && hl_is_small(values[at.first + i]);
        small = small &&
                hl_entropy_is_possible(w.values[HL_Q_ENTROPY][at.first + i], w.log_n[at.plan + i]);
    }
    return __syncthreads_and(small) != 0;
}

__device__ static void reduce_quantity(hl_run_sums &out, const reduce_work &w, const run_place &at,
                                       int quantity)
{
    int64_t sum = 0, squares = 0;
    float   least = INFINITY, most = -INFINITY;

    int64_t n = at.has(quantity) ? at.n : 0;

#pragma unroll 4
    for (int64_t i = threadIdx.x % 32; i < n; i += 32) {
        float  narrow = w.values[quantity][at.first + i];
        double value  = narrow;
        if (quantity == HL_Q_NORMALIZED) {
            value  = __dmul_rn(value, w.inverse[at.plan + i]);
            narrow = static_cast<float>(value);
        }
        sum += hl_fixed(value);
        squares += hl_fixed(__dmul_rn(value, value));
        least = fminf(least, narrow);
        most  = fmaxf(most, narrow);
    }
    sum     = sum_warp(sum);
    squares = sum_warp(squares);
    for (int step = 16; step > 0; step /= 2) {
        least = fminf(least, __shfl_xor_sync(~0u, least, step));
        most  = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    }
    if (threadIdx.x % 32 == 0) {
        out.sum[quantity]     = sum;
        out.squares[quantity] = squares;
        out.min[quantity]     = least;
        out.max[quantity]     = most;
    }
}

/* Counts with one warp, in bins of its own. */
__device__ static void count_bins(int *bins, const run_place &at, int histogram,
                                  const float *values, const double *scale)
{
    if (!at.has(HL_N_QUANTITIES + histogram))
        return;
#pragma unroll 4
    for (int64_t i = threadIdx.x % 32; i < at.n; i += 32) {
        double place = static_cast<double>(values[at.first + i]);
        if (scale != nullptr)
            place = __dmul_rn(place, scale[at.plan + i]);
        atomicAdd(bins + hl_bin_of(place), 1);
    }
}

__device__ static void add_lookback(const reduce_work &w, const run_place &at, int64_t head)
{
    for (int64_t to = 0; to < w.n_types; to++) {
        int64_t sum = 0;

        for (int64_t i = threadIdx.x % 32; i < at.n; i += 32) {
            float share = hl_share_of(w.mass[(at.first + i) * w.n_types + to]);
            sum += __float2ll_rn(share * static_cast<float>(HL_UNIT_ONE));
        }
        sum = sum_warp(sum);
        if (threadIdx.x % 32 == 0)
            atomicAdd(reinterpret_cast<unsigned long long *>(w.lookback) +
                          (head * w.n_types + at.run.type) * w.n_types + to,
                      static_cast<unsigned long long>(sum));
    }
}

/* Adds the bins of the histogram that belongs to this warp, if there is one. */
__device__ static void add_bins(const reduce_work &w, int *bins, const run_place &at, int64_t head)
{
    const float  *values[] = { w.values[HL_Q_ENTROPY], w.values[HL_Q_ENTROPY_NOSINK], w.values[HL_Q_PEAK] };
    const double *scales[] = { w.inverse, w.inverse_other, nullptr };
    int           histogram = threadIdx.x / 32;

    static_assert(HL_HIST_NORMALIZED == 0 && HL_HIST_NORMALIZED_NOSINK == 1 && HL_HIST_PEAK == 2 &&
                      HL_N_HISTOGRAMS <= REDUCE_WARPS,
                  "a warp a histogram");
    if (histogram >= HL_N_HISTOGRAMS)
        return;
    for (int i = threadIdx.x % 32; i < HL_N_BINS; i += 32)
        bins[i] = 0;
    __syncwarp();
    count_bins(bins, at, histogram, values[histogram], scales[histogram]);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < HL_N_BINS; i += 32) {
        if (bins[i] != 0)
            atomicAdd(reinterpret_cast<unsigned long long *>(w.histogram) + head * N_BIN_COUNTS +
                          histogram * HL_N_BINS + i,
                      static_cast<unsigned long long>(bins[i]));
    }
}

__global__ static void __launch_bounds__(32 * REDUCE_WARPS)
    reduce(const __grid_constant__ reduce_work w)
{
    __shared__ int bins[REDUCE_WARPS][HL_N_BINS];
    int64_t        head = blockIdx.x / w.n_runs;
    int            warp = threadIdx.x / 32;
    run_place      at(w, head, blockIdx.x - head * w.n_runs);
    hl_run_sums   &out = w.sums[blockIdx.x];
    bool           ok  = is_small(w, at);

    if (threadIdx.x == 0)
        out.is_small = ok;
    if (!ok)
        return;
    for (int quantity = warp; quantity < HL_N_QUANTITIES; quantity += REDUCE_WARPS)
        reduce_quantity(out, w, at, quantity);
    add_bins(w, bins[warp], at, head);
    if (w.lookback != nullptr && warp == REDUCE_WARPS - 1)
        add_lookback(w, at, head);
}

static reduce_work describe_sums(const hl_device_reduce *o)
{
    reduce_work work = { o->sums,
                         o->histogram,
                         o->lookback,
                         {},
                         o->rows->segment_mass,
                         o->runs,
                         o->log_n,
                         o->inverse,
                         o->inverse_other,
                         o->n_runs,
                         o->n_types,
                         o->n_heads,
                         o->batch_rows };

    hl_quantity_rows(work.values, o->rows, 0);
    return work;
}

hl_status op_reduce(hl_device *device, int lane, const hl_device_reduce *o)
{
    cudaStream_t stream = device->lanes[lane];
    size_t       n_bins = static_cast<size_t>(o->n_heads) * N_BIN_COUNTS * sizeof(int64_t);
    size_t n_table = static_cast<size_t>(o->n_heads * o->n_types * o->n_types) * sizeof(int64_t);

    HL_CUDA_TRY(enter_lane(device, lane));
    HL_CUDA_TRY(check(cudaMemsetAsync(o->histogram, 0, n_bins, stream), "zeroes"));
    if (o->lookback != nullptr)
        HL_CUDA_TRY(check(cudaMemsetAsync(o->lookback, 0, n_table, stream), "zeroes"));
    if (o->n_runs == 0 || o->n_heads == 0)
        return HL_OK;
    reduce<<<static_cast<unsigned>(o->n_runs * o->n_heads), 32 * REDUCE_WARPS, 0, stream>>>(
        describe_sums(o));
    return check(cudaGetLastError(), "sums of rows");
}

} // namespace headlight
