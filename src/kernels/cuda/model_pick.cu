/* model_pick.cu - draws from rows of logits: kernels/pick.h on the GPU.
 *
 * SPLITS blocks share a row, each with a stretch of tokens, in three launches:
 *
 *     find_tops   the largest logit and the largest score
 *     add_up      sums relative to them; counts of scores by bin
 *     pick        the bins that are needed and their tokens, or the draw itself
 *
 * Sums are in double, and added up in a fixed order; bins hold whole numbers. */
#include <math.h>

#include "kernels/cuda/model.cuh"

namespace headlight
{

constexpr int SPLITS       = 32; /* lanes of a warp: each reads the part of one split */
constexpr int DRAW_THREADS = 256;
constexpr int DRAW_WARPS   = DRAW_THREADS / 32;
constexpr int THREAD_BINS  = HL_PICK_BINS / DRAW_THREADS;
static_assert(THREAD_BINS * DRAW_THREADS == HL_PICK_BINS, "every thread has as many bins");

/* The largest of some values; the lowest token of equals. */
struct largest {
    float   value = -INFINITY;
    int32_t token = INT32_MAX;

    __device__ void add(float other, int32_t at)
    {
        bool is_better = other > value || (other == value && at < token);

        value = is_better ? other : value;
        token = is_better ? at : token;
    }

    __device__ void across_warp()
    {
        for (int step = 16; step > 0; step /= 2) {
            float   other = __shfl_xor_sync(~0u, value, step);
            int32_t at    = __shfl_xor_sync(~0u, token, step);
            add(other, at);
        }
    }
};

struct tops {
    largest logit, score;
    int     is_bad = 0; /* some logit is NaN or +inf */

    __device__ void across_warp()
    {
        logit.across_warp();
        score.across_warp();
        is_bad = __any_sync(~0u, is_bad);
    }
};

/* The sums without the largest logit's own 1, as in kernels/logits.c. */
struct draw_sums {
    double rest, dot, dot2, weight;
};

/* Results of one launch that the next launches read. */
struct draw_work {
    unsigned long long masses[HL_PICK_BINS];
    unsigned           counts[HL_PICK_BINS];
    draw_sums          sums[SPLITS];
    tops               best[SPLITS];
};
static_assert(sizeof(draw_work) <= HL_PICK_WORK_BYTES, "a row's memory");

/* ------------------------------------------------------------------------ rows */

/* A block's stretch of a row. */
struct stretch {
    const float        *logits;
    const uint32_t     *repeated;
    const hl_pick_rule *rule;
    draw_work          *work;
    hl_pick_result     *out;
    int                 split, begin, end;
    float               penalty;
    double              temperature;

    __device__ explicit stretch(const hl_device_pick &d)
    {
        int64_t index = blockIdx.y;
        int     each  = static_cast<int>((d.n + SPLITS - 1) / SPLITS);

        rule     = d.rules + index;
        logits   = d.logits + rule->row * d.n;
        repeated = d.repeated + index * ((d.n + 31) / 32);
        work =
            reinterpret_cast<draw_work *>(static_cast<char *>(d.work) + index * HL_PICK_WORK_BYTES);
        out         = d.out + index;
        split       = blockIdx.x;
        begin       = min(split * each, static_cast<int>(d.n));
        end         = min(begin + each, static_cast<int>(d.n));
        penalty     = rule->penalty;
        temperature = rule->temperature;
    }

    __device__ float score(int token) const
    {
        bool is_repeated = penalty != 1.0f && (repeated[token / 32] >> (token % 32) & 1) != 0;

        return hl_pick_score(logits[token], penalty, is_repeated);
    }

    __device__ double weight(int token, float max) const
    {
        return exp((static_cast<double>(score(token)) - max) / temperature);
    }

    /* The row's tops, from those of all blocks; every warp computes them by itself. */
    __device__ tops all_tops() const
    {
        tops best = work->best[threadIdx.x % 32];

        best.across_warp();
        best.is_bad = best.is_bad || !(best.logit.value > -INFINITY);
        return best;
    }
};

/* ------------------------------------------------------------------------- tops */

__global__ static void __launch_bounds__(DRAW_THREADS) find_tops(const hl_device_pick d)
{
    __shared__ tops parts[DRAW_WARPS];
    stretch         s(d);
    tops            best;

    for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
        float logit = s.logits[i];

        best.is_bad |= !(logit < INFINITY);
        best.logit.add(logit, i);
        best.score.add(s.score(i), i);
    }
    best.across_warp();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < DRAW_WARPS; i++) {
        best.logit.add(parts[i].logit.value, parts[i].logit.token);
        best.score.add(parts[i].score.value, parts[i].score.token);
        best.is_bad |= parts[i].is_bad;
    }
    s.work->best[s.split] = best;
    if (s.split == 0)
        *s.out = { 0.0, 0.0, 0.0, 0.0, -1, 0.0f, 0, 0 };
}

/* ------------------------------------------------------------------------- sums */

/* The sum over a block, in its first thread. */
__device__ static double sum_doubles(double value)
{
    __shared__ double parts[DRAW_WARPS];

    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(~0u, value, step);
    __syncthreads(); /* the previous sum has been read */
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    for (int i = 1; i < DRAW_WARPS && threadIdx.x == 0; i++)
        value += parts[i];
    return value;
}

/* Adds counts and weights of the stretch's tokens, by bins, to those of the row. */
__device__ static void count_bins(const stretch &s, float max)
{
    __shared__ unsigned long long masses[HL_PICK_BINS];
    __shared__ unsigned           counts[HL_PICK_BINS];

    for (int bin = threadIdx.x; bin < HL_PICK_BINS; bin += DRAW_THREADS) {
        masses[bin] = 0;
        counts[bin] = 0;
    }
    __syncthreads();
    for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
        int bin = hl_pick_bin(max - s.score(i));

        atomicAdd(&counts[bin], 1u);
        if (s.rule->kind == HL_PICK_TOP_P)
            atomicAdd(&masses[bin],
                      static_cast<unsigned long long>(llrint(s.weight(i, max) * HL_PICK_UNIT)));
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < HL_PICK_BINS; bin += DRAW_THREADS) {
        if (counts[bin] == 0)
            continue;
        atomicAdd(&s.work->counts[bin], counts[bin]);
        if (masses[bin] != 0)
            atomicAdd(&s.work->masses[bin], masses[bin]);
    }
}

__global__ static void __launch_bounds__(DRAW_THREADS) add_up(const hl_device_pick d)
{
    stretch   s(d);
    tops      best = s.all_tops();
    double    max  = best.logit.value;
    draw_sums sums = {};
    auto      kind = s.rule->kind;

    if (best.is_bad)
        return;
    for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
        double offset = s.logits[i] - max;
        double weight = exp(offset);

        if (i != best.logit.token && weight > 0.0) { /* 0 * -inf is NaN */
            sums.rest += weight;
            sums.dot += weight * offset;
            sums.dot2 += weight * offset * offset;
        }
        if (kind != HL_PICK_GREEDY)
            sums.weight +=
                s.temperature == 1.0 && s.penalty == 1.0f ? weight : s.weight(i, best.score.value);
    }
    sums.rest   = sum_doubles(sums.rest);
    sums.dot    = sum_doubles(sums.dot);
    sums.dot2   = sum_doubles(sums.dot2);
    sums.weight = sum_doubles(sums.weight);
    if (threadIdx.x == 0)
        s.work->sums[s.split] = sums;
    if (kind == HL_PICK_TOP_K || kind == HL_PICK_TOP_P)
        count_bins(s, best.score.value);
}

/* ------------------------------------------------------------------- candidates */

struct bin_sums {
    unsigned           count;
    unsigned long long mass;

    __device__ bool is_enough(const hl_pick_rule &rule, double total) const
    {
        if (rule.kind == HL_PICK_TOP_K)
            return count >= static_cast<unsigned long long>(rule.top_k);
        return static_cast<double>(mass) / HL_PICK_UNIT >=
               rule.top_p * total + HL_PICK_SLACK * total;
    }
};

/* The total of the bins of all threads before this one. */
__device__ static bin_sums sum_before(bin_sums own)
{
    __shared__ bin_sums parts[DRAW_WARPS];
    int                 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bin_sums            all = own;

    for (int step = 1; step < 32; step *= 2) {
        unsigned           count = __shfl_up_sync(~0u, all.count, step);
        unsigned long long mass  = __shfl_up_sync(~0u, all.mass, step);

        all.count += lane >= step ? count : 0;
        all.mass += lane >= step ? mass : 0;
    }
    if (lane == 31)
        parts[warp] = all;
    __syncthreads();
    all.count -= own.count;
    all.mass -= own.mass;
    for (int i = 0; i < warp; i++) {
        all.count += parts[i].count;
        all.mass += parts[i].mass;
    }
    return all;
}

/* The last bin that is needed, and the number of tokens up to it, in every thread. */
__device__ static int find_cut(unsigned *count, const stretch &s, double total)
{
    __shared__ int      cut;
    __shared__ bin_sums found;
    int                 first = threadIdx.x * THREAD_BINS;
    bin_sums            own   = {};

    for (int bin = first; bin < first + THREAD_BINS; bin++) {
        own.count += s.work->counts[bin];
        own.mass += s.work->masses[bin];
    }
    bin_sums sums = sum_before(own);
    if (threadIdx.x == 0)
        cut = HL_PICK_BINS;
    __syncthreads();
    for (int bin = first; bin < first + THREAD_BINS && !sums.is_enough(*s.rule, total); bin++) {
        sums.count += s.work->counts[bin];
        sums.mass += s.work->masses[bin];
        if (sums.is_enough(*s.rule, total) || bin == HL_PICK_BINS - 1) {
            cut   = bin; /* only one thread gets here */
            found = sums;
        }
    }
    __syncthreads();
    *count = found.count;
    return cut;
}

__device__ static void list_candidates(const stretch &s, hl_pick_candidate *candidates, float max,
                                       double total)
{
    bool     by_weight = s.rule->kind == HL_PICK_MIN_P;
    double   least     = s.rule->min_p * (1.0 - HL_PICK_SLACK);
    unsigned count     = 0;
    int      cut       = by_weight ? 0 : find_cut(&count, s, total);

    if (count > HL_PICK_CANDIDATES) {
        if (s.split == 0 && threadIdx.x == 0)
            s.out->n_candidates = static_cast<int32_t>(count);
        return;
    }
    for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
        if (by_weight ? s.weight(i, max) < least : hl_pick_bin(max - s.score(i)) > cut)
            continue;
        int place = atomicAdd(&s.out->n_candidates, 1);
        if (place < HL_PICK_CANDIDATES)
            candidates[place] = { i, s.logits[i] };
    }
}

/* ------------------------------------------------------------------ from all */

/* The sum of all earlier threads' values. */
__device__ static double sum_before(double own)
{
    __shared__ double parts[DRAW_WARPS];
    int               lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double            all = own, before = 0.0;

    for (int step = 1; step < 32; step *= 2) {
        double other = __shfl_up_sync(~0u, all, step);
        all += lane >= step ? other : 0.0;
    }
    if (lane == 31)
        parts[warp] = all;
    __syncthreads();
    for (int i = 0; i < warp; i++)
        before += parts[i];
    double earlier = __shfl_up_sync(~0u, all, 1);
    return before + (lane > 0 ? earlier : 0.0);
}

/* Writes the last token whose preceding tokens weigh at most `target`, if it is in this stretch. */
__device__ static void draw_from_all(const stretch &s, float max, double total)
{
    __shared__ int token;
    double         target = total * s.rule->unit, mass = 0.0, before = 0.0;
    int            chosen = -1;

    for (int i = 0; i < SPLITS; i++) {
        double weight = s.work->sums[i].weight;

        if (weight > 0.0 && mass <= target) {
            chosen = i;
            before = mass;
        }
        mass += weight;
    }
    if (chosen != s.split)
        return;
    int    each  = (s.end - s.begin + DRAW_THREADS - 1) / DRAW_THREADS;
    int    begin = min(s.begin + static_cast<int>(threadIdx.x) * each, s.end);
    int    end   = min(begin + each, s.end);
    double own   = 0.0;
    for (int i = begin; i < end; i++)
        own += s.weight(i, max);
    if (threadIdx.x == 0)
        token = -1;
    mass     = before + sum_before(own);
    int last = -1;
    for (int i = begin; i < end; i++) {
        double weight = s.weight(i, max);

        last = weight > 0.0 && mass <= target ? i : last;
        mass += weight;
    }
    atomicMax(&token, last);
    __syncthreads();
    if (threadIdx.x == 0) {
        s.out->token = token;
        s.out->logit = s.logits[token];
    }
}

/* ------------------------------------------------------------------------- pick */

__device__ static void tell_row(const stretch &s, const tops &best, const draw_sums &sums)
{
    double mean = sums.dot / (1.0 + sums.rest);
    double more = sums.dot2 / (1.0 + sums.rest) - mean * mean;

    s.out->lse        = best.logit.value + log1p(sums.rest);
    s.out->entropy    = log1p(sums.rest) - mean;
    s.out->varentropy = fmax(more, 0.0);
    s.out->total      = sums.weight;
    if (s.rule->kind == HL_PICK_GREEDY) {
        s.out->token = best.score.token;
        s.out->logit = s.logits[best.score.token];
    }
}

__global__ static void __launch_bounds__(DRAW_THREADS) pick(const hl_device_pick d)
{
    stretch   s(d);
    tops      best = s.all_tops();
    draw_sums sums = {};

    if (best.is_bad) {
        if (s.split == 0 && threadIdx.x == 0)
            s.out->is_bad = 1;
        return;
    }
    for (int i = 0; i < SPLITS; i++) {
        sums.rest += s.work->sums[i].rest;
        sums.dot += s.work->sums[i].dot;
        sums.dot2 += s.work->sums[i].dot2;
        sums.weight += s.work->sums[i].weight;
    }
    if (s.split == 0 && threadIdx.x == 0)
        tell_row(s, best, sums);
    if (s.rule->kind == HL_PICK_ALL)
        draw_from_all(s, best.score.value, sums.weight);
    else if (s.rule->kind != HL_PICK_GREEDY)
        list_candidates(s, d.candidates + blockIdx.y * HL_PICK_CANDIDATES, best.score.value,
                        sums.weight);
}

hl_status op_pick(hl_device *device, const hl_device_pick *o)
{
    dim3 grid(SPLITS, static_cast<unsigned>(o->n_rows));

    if (o->n_rows == 0)
        return HL_OK;
    HL_CUDA_TRY(check(cudaMemsetAsync(o->work, 0, o->n_rows * HL_PICK_WORK_BYTES, device->stream),
                      "zeroes"));
    find_tops<<<grid, DRAW_THREADS, 0, device->stream>>>(*o);
    add_up<<<grid, DRAW_THREADS, 0, device->stream>>>(*o);
    pick<<<grid, DRAW_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "a draw");
}

} // namespace headlight
