/* forward_plain.cu - attention with entropy, one warp per row, in double precision.
 *
 * kernels/attention_scalar.c on the device: every type, every size, every option and every output.
 * In a first pass over the keys, each lane has its own keys and builds a state; the lanes merge
 * their states.  A second pass weights the values. */
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/plain_row.cuh"
#include "kernels/cuda/row_state.cuh"

namespace headlight
{

/* The states of one row after a pass over its scores, in every lane. */
struct row_summary {
    row_state rest; /* the keys other than key 0             */
    row_state keys; /* all keys                              */
    row_state all;  /* all keys and the learned sink, if any */
    int       argmax;
};

/* The best of all lanes; among equals, the lowest key. */
__device__ static int argmax_across_warp(double best, int key)
{
    for (int step = 1; step < 32; step *= 2) {
        double other_best = __shfl_xor_sync(~0u, best, step);
        int    other_key  = __shfl_xor_sync(~0u, key, step);
        if (other_best > best || (other_best == best && other_key < key)) {
            best = other_best;
            key  = other_key;
        }
    }
    return best == -INFINITY ? -1 : key;
}

__device__ static row_summary summarize(const problem &p, const plain_row &row, const double *q)
{
    row_summary s;
    double      first = -INFINITY, best = -INFINITY;
    int         key_of_best = 0;

    for (int key = threadIdx.x % 32; key < row.keys.end; key += 32) {
        if (!row.keys.has(key))
            continue;
        double score = row_score(p, row, q, key);
        if (key == 0)
            first = score;
        else
            s.rest = s.rest.pushed(score);
        if (score > best) {
            best        = score;
            key_of_best = key;
        }
    }
    s.rest   = s.rest.across_warp();
    s.keys   = s.rest.pushed(__shfl_sync(~0u, first, 0));
    s.argmax = argmax_across_warp(best, key_of_best);
    s.all    = s.keys;
    if (p.sinks != nullptr && !s.keys.blind()) /* a row that sees no key is blind, with a learned
                                                * sink or without one */
        s.all = s.keys.pushed(p.sinks[row.head]);
    return s;
}

__device__ static double probability(const problem &p, const plain_row &row, const double *q,
                                     int key, double lse)
{
    return row.keys.has(key) && lse != -INFINITY ? exp(row_score(p, row, q, key) - lse) : 0.0;
}

__device__ static void put(float *array, int64_t index, double value)
{
    if (array != nullptr)
        array[index] = static_cast<float>(value);
}

__device__ static void write_statistics(const problem &p, const plain_row &row, const double *q,
                                        const row_summary &s)
{
    const hl_attention_result &r   = p.result;
    double                     lse = s.all.lse();

    put(r.lse, row.index, lse);
    put(r.entropy, row.index, s.all.entropy());
    put(r.renyi2, row.index, s.all.renyi2());
    put(r.varentropy, row.index, s.all.varentropy());
    put(r.entropy_nosink, row.index, s.rest.entropy());
    put(r.peak, row.index, s.keys.blind() ? 0.0 : exp(s.keys.max - lse));
    if (r.max_logit != nullptr)
        put(r.max_logit, row.index, s.keys.blind() ? -INFINITY : isnan(lse) ? NAN : s.keys.max);
    if (r.self != nullptr)
        put(r.self, row.index, probability(p, row, q, row.position, lse));
    if (r.previous != nullptr)
        put(r.previous, row.index, probability(p, row, q, row.position - 1, lse));
    if (r.first != nullptr)
        put(r.first, row.index, probability(p, row, q, 0, lse));
    if (r.argmax != nullptr)
        r.argmax[row.index] = isnan(lse) ? -1 : s.argmax;
}

/* The second pass, 32 keys at a time: each lane first computes one key's probability, then its own
 * columns of the values. */
__device__ static void write_weighted(const problem &p, const plain_row &row, const double *q,
                                      double lse)
{
    constexpr int COLUMNS               = HL_MAX_HEAD_DIM / 32;
    int           lane                  = threadIdx.x % 32;
    double        out[COLUMNS]          = {};
    double        mass[HL_MAX_SEGMENTS] = {};

    for (int base = 0; base < row.keys.end; base += 32) {
        double mine = probability(p, row, q, base + lane, lse);
        if (p.result.segment_mass != nullptr && mine != 0.0)
            mass[p.segments[row.batch * p.segment_stride + base + lane]] += mine;
        for (int i = 0; i < 32 && base + i < row.keys.end; i++) {
            double weight = __shfl_sync(~0u, mine, i);
            if (weight == 0.0)
                continue;
            int64_t v = row_offset(p.v, row.batch, row.kv_head, base + i);
            for (int c = 0; c * 32 + lane < p.d_value; c++)
                out[c] += weight * load(p.v, v + c * 32 + lane);
        }
    }

    double  gate   = p.gates != nullptr ? p.gates[row.head] : 1.0;
    int64_t target = row_offset(p.out, row.batch, row.head, row.query);
    for (int c = 0; p.out.data != nullptr && c * 32 + lane < p.d_value; c++)
        store(p.out, target + c * 32 + lane, gate * out[c]);
    for (int s = 0; p.result.segment_mass != nullptr && s < p.n_segments; s++) {
        double total = warp_sum(mass[s]);
        if (lane == 0)
            p.result.segment_mass[row.index * p.n_segments + s] = static_cast<float>(total);
    }
}

__global__ static void forward_plain(const __grid_constant__ problem p)
{
    __shared__ double queries[PLAIN_WARPS][HL_MAX_HEAD_DIM];
    int               warp   = threadIdx.x / 32;
    int64_t           index  = static_cast<int64_t>(blockIdx.x) * PLAIN_WARPS + warp;
    int64_t           n_rows = count_rows(p);

    if (index >= n_rows)
        return;
    plain_row row(p, index);
    double   *q = queries[warp];
    load_row(q, p.q, row_offset(p.q, row.batch, row.head, row.query), p.d_head);
    row_summary summary = summarize(p, row, q);
    if (threadIdx.x % 32 == 0)
        write_statistics(p, row, q, summary);
    __syncwarp();
    if (p.out.data != nullptr || p.result.segment_mass != nullptr)
        write_weighted(p, row, q, summary.all.lse());
}

/* A single key's probability, computed by a warp; needs lse. */
__device__ static float single_key(const problem &p, const plain_row &row, int key)
{
    int64_t q       = row_offset(p.q, row.batch, row.head, row.query);
    int64_t k       = row_offset(p.k, row.batch, row.kv_head, key);
    double  product = 0.0, slope;

    if (!row.keys.has(key) || p.result.lse[row.index] == -INFINITY)
        return 0.0f;
    for (int d = threadIdx.x % 32; d < p.d_head; d += 32)
        product += load(p.q, q + d) * load(p.k, k + d);
    return static_cast<float>(
        exp(score_of(p, row, key, warp_sum(product), &slope) - p.result.lse[row.index]));
}

__global__ static void single_keys(const __grid_constant__ problem p)
{
    int64_t index  = static_cast<int64_t>(blockIdx.x) * PLAIN_WARPS + threadIdx.x / 32;
    int64_t n_rows = count_rows(p);

    if (index >= n_rows)
        return;
    plain_row row(p, index);
    int       keys[]   = { row.position, row.position - 1, 0 };
    float    *arrays[] = { p.result.self, p.result.previous, p.result.first };
#pragma unroll
    for (int i = 0; i < 3; i++) {
        if (arrays[i] == nullptr)
            continue;
        float probability = single_key(p, row, keys[i]);
        if (threadIdx.x % 32 == 0)
            arrays[i][index] = probability;
    }
}

/* The number of blocks, with a warp for every row. */
static hl_status count_blocks(unsigned *out, const problem &p)
{
    int64_t n_rows   = count_rows(p);
    int64_t n_blocks = (n_rows + PLAIN_WARPS - 1) / PLAIN_WARPS;

    if (n_blocks > INT32_MAX)
        return fail(HL_LIMIT, "the plain kernel takes 2^33 rows, got %lld", (long long)n_rows);
    *out = static_cast<unsigned>(n_blocks);
    return HL_OK;
}

hl_status launch_single_keys(const problem &p, cudaStream_t stream)
{
    unsigned n_blocks = 0;

    HL_CUDA_TRY(count_blocks(&n_blocks, p));
    single_keys<<<n_blocks, 32 * PLAIN_WARPS, 0, stream>>>(p);
    return check(cudaGetLastError(), "the probabilities of single keys");
}

hl_status launch_plain(const problem &p, cudaStream_t stream)
{
    unsigned n_blocks = 0;

    HL_CUDA_TRY(count_blocks(&n_blocks, p));
    forward_plain<<<n_blocks, 32 * PLAIN_WARPS, 0, stream>>>(p);
    return check(cudaGetLastError(), "the plain kernel");
}

} // namespace headlight
