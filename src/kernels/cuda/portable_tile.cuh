/* portable_tile.cuh - the shared parts of the tensor-core kernels of sm_80: rows and their sums,
 * tiles in shared memory, scores to weights.
 *
 * Scores are kept times log2(e), so weights are powers of two; the sums are those of row_state.h
 * with x in bits.  Key 0 is processed apart, as metrics.md defines: the sums have only the other
 * keys until the end, when key 0 and then a learned sink join (close_row).
 *
 * A warp has 16 rows.  A thread holds rows r = lane / 4 and r + 8 of them, and columns 2 (lane % 4)
 * and the next of each eight.  Four lanes share a row. */
#ifndef HL_CUDA_PORTABLE_TILE_CUH
#define HL_CUDA_PORTABLE_TILE_CUH

#include "kernels/cuda/plain_row.cuh"
#include "kernels/cuda/portable_ptx.cuh"

namespace headlight
{

constexpr float FLOOR = -16384.0f; /* 2^FLOOR is 0, and 0 * FLOOR is not NaN */

/* ------------------------------------------------------------------- row states */

/* The state of row_state.h, in float and in bits. */
struct bits_state {
    float max = -INFINITY, sum = 0, dot = 0, collision = 0, spread = 0;

    /* Moves to another maximum, at least as large; returns the factor of the weights. */
    __device__ float rescale(float new_max)
    {
        /* max of the row, not of this lane's share, because `out` is scaled by it. */
        float shift = max == -INFINITY ? 0.0f : fmaxf(max - new_max, FLOOR);
        float scale = exp2f(shift);

        max    = new_max;
        spread = scale * (spread + shift * (2.0f * dot + shift * sum));
        dot    = scale * (dot + shift * sum);
        sum *= scale;
        collision *= scale * scale;
        return scale;
    }

    __device__ void add(float x, float weight)
    {
        sum += weight;
        dot       = fmaf(weight, x, dot);
        collision = fmaf(weight, weight, collision);
        spread    = fmaf(weight * x, x, spread);
    }

    /* Adds one more outcome; returns the factor of the other weights. */
    __device__ float push(float score)
    {
        if (score == -INFINITY)
            return 1.0f;
        float factor = rescale(fmaxf(max, score));
        float x      = max_or_nan(score - max, FLOOR);
        add(x, exp2f(x));
        return factor;
    }

    /* Adds up the four lanes that share a row; their maxima are equal. */
    __device__ void across_row()
    {
        for (int step = 1; step < 4; step *= 2) {
            sum += __shfl_xor_sync(~0u, sum, step);
            dot += __shfl_xor_sync(~0u, dot, step);
            collision += __shfl_xor_sync(~0u, collision, step);
            spread += __shfl_xor_sync(~0u, spread, step);
        }
    }

    __device__ bool blind() const
    {
        return sum == 0.0f;
    }
    __device__ float lse() const
    {
        return blind() ? -INFINITY : max + log2f(sum);
    }
    __device__ float entropy() const
    {
        return blind() ? 0.0f : LN_2 * (log2f(sum) - dot / sum);
    }
    __device__ float renyi2() const
    {
        return blind() ? 0.0f : LN_2 * (2.0f * log2f(sum) - log2f(collision));
    }
    __device__ float varentropy() const
    {
        float mean = dot / sum;
        return blind() ? 0.0f : LN_2 * LN_2 * max_or_nan(0.0f, spread / sum - mean * mean);
    }
};

/* The statistics of a row, or of a thread's or a split's share of it. */
struct row_sums {
    bits_state state;                /* state of the keys other than key 0 */
    float      first    = -INFINITY; /* scores in bits; -inf: not seen */
    float      self = -INFINITY;
    float      previous = -INFINITY;
    float      best     = -INFINITY;
    int        argmax   = -1;

    __device__ void notice_best(float score, int key)
    {
        if (score > best || (score == best && key < argmax)) {
            best   = score;
            argmax = key;
        }
    }

    /* The sums of lane ^ step. */
    __device__ row_sums from(int step) const
    {
        row_sums other;

        other.state.max       = __shfl_xor_sync(~0u, state.max, step);
        other.state.sum       = __shfl_xor_sync(~0u, state.sum, step);
        other.state.dot       = __shfl_xor_sync(~0u, state.dot, step);
        other.state.collision = __shfl_xor_sync(~0u, state.collision, step);
        other.state.spread    = __shfl_xor_sync(~0u, state.spread, step);
        other.first           = __shfl_xor_sync(~0u, first, step);
        other.self        = __shfl_xor_sync(~0u, self, step);
        other.previous        = __shfl_xor_sync(~0u, previous, step);
        other.best            = __shfl_xor_sync(~0u, best, step);
        other.argmax          = __shfl_xor_sync(~0u, argmax, step);
        return other;
    }

    /* Merges the sums of the four lanes of a row, in all of them; their maxima are equal. */
    __device__ void across_row()
    {
        state.across_row();
        for (int step = 1; step < 4; step *= 2) {
            notice_best(__shfl_xor_sync(~0u, best, step), __shfl_xor_sync(~0u, argmax, step));
            first    = max_or_nan(first, __shfl_xor_sync(~0u, first, step));
            self = max_or_nan(self, __shfl_xor_sync(~0u, self, step));
            previous = max_or_nan(previous, __shfl_xor_sync(~0u, previous, step));
        }
    }

    /* Merges the sums of other keys of the row. */
    __device__ void merge(row_sums other)
    {
        float most = fmaxf(state.max, other.state.max);

        state.rescale(most);
        other.state.rescale(most);
        state.sum += other.state.sum;
        state.dot += other.state.dot;
        state.collision += other.state.collision;
        state.spread += other.state.spread;
        notice_best(other.best, other.argmax);
        first    = max_or_nan(first, other.first);
        self = max_or_nan(self, other.self);
        previous = max_or_nan(previous, other.previous);
    }
};

/* A row, its position and its sums. */
struct tile_row {
    int          head, query, position;
    visible_keys keys;
    row_sums     sums;

    __device__ void open(const problem &p, int batch, int its_head, int its_query)
    {
        head     = its_head;
        query    = its_query;
        position = query_start(p, batch) + query;
        keys     = visible(p, key_length(p, batch), position);
        sums     = row_sums();
    }

    /* Stores the scores of single keys; must be called with ascending keys. */
    __device__ void notice(int key, float score)
    {
        if (key == position)
            sums.self = score;
        if (key == position - 1)
            sums.previous = score;
        if (score > sums.best) {
            sums.best   = score;
            sums.argmax = key;
        }
    }

    /* Converts a product to a score in bits; -inf if the row does not see the key. */
    __device__ float score(const problem &p, int key, float product) const
    {
        if (!keys.has(key))
            return -INFINITY;
        float s = p.scale * product;
        if (p.softcap != 0.0f)
            s = p.softcap * tanhf(s / p.softcap);
        if (p.alibi_slopes != nullptr)
            s += p.alibi_slopes[head] * static_cast<float>(key - position);
        if (p.key_bias != nullptr)
            s += p.key_bias[static_cast<int64_t>(head) * p.n_keys + key];
        return s * LOG2_E;
    }
};

/* ------------------------------------------------------------------------ tiles */

/* Copies ROWS rows to shared memory with THREADS threads, with zeros for missing rows.
 * Asynchronous if 16 bytes can be copied at a time. */
template <int ROWS, int THREADS, typename T, int DIM>
__device__ static void load_tile(T (*out)[DIM + 8], const hl_rows &rows, int64_t base, int first,
                                 int n_rows, int width, bool wide)
{
    const T *source = static_cast<const T *>(rows.data) + base;

    for (int i = threadIdx.x % THREADS; i < ROWS * (DIM / 8); i += THREADS) {
        int      row = i / (DIM / 8), column = i % (DIM / 8) * 8;
        T       *target = &out[row][column];
        const T *from   = source + (first + row) * rows.row_stride + column;
        bool     exists = first + row < n_rows;
        if (wide && exists && column < width) {
            ptx::copy_async(target, from);
            continue;
        }
        for (int j = 0; j < 8; j++)
            target[j] = exists && column + j < width ? from[j] : T(0.0f);
    }
}

/* Which operands can be copied 16 bytes at a time. */
struct wide_copies {
    bool q, k, v;

    explicit wide_copies(const problem &p)
        : q(on_16_bytes(p.q) && p.d_head % 8 == 0), k(on_16_bytes(p.k) && p.d_head % 8 == 0),
          v(on_16_bytes(p.v) && p.d_value % 8 == 0)
    {
    }
};

/* scores (16, 8 N) = q (16, DIM) k (8 N, DIM)^T, for one warp. */
template <typename T, int DIM, int N>
__device__ __forceinline__ void multiply_keys(float (&scores)[N][4], const T (*q)[DIM + 8],
                                              const T (*k)[DIM + 8])
{
    int lane = threadIdx.x % 32;

#pragma unroll
    for (int tile = 0; tile < N; tile++)
        scores[tile][0] = scores[tile][1] = scores[tile][2] = scores[tile][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < DIM / 16; step++) {
        uint32_t a[4], b[4];
        ptx::load_matrices(a, &q[lane % 16][step * 16 + lane / 16 * 8]);
#pragma unroll
        for (int pair = 0; pair < N / 2; pair++) {
            ptx::load_matrices(
                b, &k[pair * 16 + lane % 8 + lane / 16 * 8][step * 16 + lane / 8 % 2 * 8]);
            ptx::mma<T>(scores[2 * pair], a, b);
            ptx::mma<T>(scores[2 * pair + 1], a, b + 2);
        }
    }
}

/* out (16, DIM) += weights (16, 8 N) v (8 N, DIM), for one warp. */
template <typename T, int DIM, int N>
__device__ __forceinline__ void add_values(float (&out)[DIM / 8][4], const float (&weights)[N][4],
                                           const T (*v)[DIM + 8])
{
    int lane = threadIdx.x % 32;

#pragma unroll
    for (int step = 0; step < N / 2; step++) {
        const float *low = weights[2 * step], *high = weights[2 * step + 1];
        uint32_t     a[4] = { ptx::pack<T>(low[0], low[1]), ptx::pack<T>(low[2], low[3]),
                              ptx::pack<T>(high[0], high[1]), ptx::pack<T>(high[2], high[3]) };
        uint32_t     b[4];
#pragma unroll
        for (int pair = 0; pair < DIM / 16; pair++) {
            ptx::load_matrices_transposed(b, &v[step * 16 + lane % 16][pair * 16 + lane / 16 * 8]);
            ptx::mma<T>(out[2 * pair], a, b);
            ptx::mma<T>(out[2 * pair + 1], a, b + 2);
        }
    }
}

/* ---------------------------------------------------------------------- softmax */

/* The key before which tiles need no test per score: no option changes a score, and no row from
 * position `first` on has its own or its previous position there. */
__device__ inline int plain_end(const problem &p, int first)
{
    if (p.softcap != 0.0f || p.alibi_slopes != nullptr || p.key_bias != nullptr)
        return 0;
    return p.result.self != nullptr || p.result.previous != nullptr ? first - 1 : WIDE_OPEN;
}

/* Converts products to scores, if no option or mask applies. */
template <int N>
__device__ __forceinline__ void scale_scores(tile_row (&rows)[2], float (&scores)[N][4],
                                             const problem &p, int first_key)
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        scores[i / 4][i % 4] *= p.scale * LOG2_E;
    if (p.result.argmax == nullptr)
        return;
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        row_sums &row = rows[(i >> 1) & 1].sums;
        float     s   = scores[i / 4][i % 4];
        if (s > row.best) {
            row.best   = s;
            row.argmax = first_key + i / 4 * 8 + threadIdx.x % 4 * 2 + (i & 1);
        }
    }
}

/* Converts products to scores, with all options and masks; key 0 is taken out. */
template <int N>
__device__ __forceinline__ void bend_scores(tile_row (&rows)[2], float (&scores)[N][4],
                                            const problem &p, int first_key)
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        tile_row &row = rows[(i >> 1) & 1];
        int       key = first_key + i / 4 * 8 + threadIdx.x % 4 * 2 + (i & 1);
        float    &s   = scores[i / 4][i % 4];
        s             = row.score(p, key, s);
        row.notice(key, s);
        if (key == 0) {
            row.sums.first = s;
            s              = -INFINITY;
        }
    }
}

/* Converts scores to weights and moves sums and output to the new maxima.  Maxima skip NaN; a score
 * of NaN or +inf makes the row's sums NaN, and they stay NaN. */
template <int N, int M>
__device__ __forceinline__ void weigh_scores(tile_row (&rows)[2], float (&scores)[N][4],
                                             float (&out)[M][4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bits_state &state = rows[r].sums.state;
        float       most  = state.max;
#pragma unroll
        for (int i = 0; i < N; i++)
            most = fmaxf(most, fmaxf(scores[i][2 * r], scores[i][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));

        float factor = state.rescale(most);
        float center = most == -INFINITY ? 0.0f : most;
#pragma unroll
        for (int i = 0; i < M; i++) {
            out[i][2 * r] *= factor;
            out[i][2 * r + 1] *= factor;
        }
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            float &s      = scores[i / 2][2 * r + i % 2];
            float  x      = max_or_nan(s - center, FLOOR);
            float  weight = ptx::exp2_fast(x);
            state.add(x, weight);
            s = weight;
        }
    }
}

/* ---------------------------------------------------------------------- results */

__device__ inline void put(float *array, int64_t index, float value)
{
    if (array != nullptr)
        array[index] = value;
}

/* In a row that is not finite, keys that it does not see keep their 0. */
__device__ inline void put_not_finite(const hl_attention_result &r, int64_t index,
                                      const visible_keys &seen, int position)
{
    put(r.self, index, seen.has(position) ? NAN : 0.0f);
    put(r.previous, index, seen.has(position - 1) ? NAN : 0.0f);
    put(r.first, index, seen.has(0) ? NAN : 0.0f);
    put(r.max_logit, index, NAN);
    if (r.argmax != nullptr)
        r.argmax[index] = -1;
}

__device__ inline void put_statistics(const hl_attention_result &r, int64_t index,
                                      const row_sums &row, const bits_state &keys,
                                      const bits_state &all)
{
    float lse         = all.lse();
    auto  probability = [=](float s) { return s == -INFINITY ? 0.0f : exp2f(s - lse); };

    put(r.lse, index, LN_2 * lse);
    put(r.entropy, index, all.entropy());
    put(r.renyi2, index, all.renyi2());
    put(r.varentropy, index, all.varentropy());
    put(r.entropy_nosink, index, row.state.entropy());
    put(r.peak, index, keys.blind() ? 0.0f : exp2f(keys.max - lse));
    put(r.max_logit, index, keys.blind() ? -INFINITY : LN_2 * keys.max);
    put(r.self, index, probability(row.self));
    put(r.previous, index, probability(row.previous));
    put(r.first, index, probability(row.first));
    if (r.argmax != nullptr)
        r.argmax[index] = row.best == -INFINITY ? -1 : row.argmax;
}

/* The factors of the weighted values of the other keys, and of key 0. */
struct row_factors {
    float others, first;
};

/* Adds key 0 and the sink, then divides by the sum.  One thread per row writes. */
__device__ inline row_factors close_row(const problem &p, int batch, int head, int query,
                                        const row_sums &row, bool writes)
{
    bits_state keys   = row.state;
    float      factor = keys.push(row.first);
    bits_state all    = keys;
    float outer = p.sinks != nullptr && !keys.blind() ? all.push(p.sinks[head] * LOG2_E) : 1.0f;

    if (writes) {
        int64_t index = row_index(p, batch, head, query);

        put_statistics(p.result, index, row, keys, all);
        if (isnan(all.sum)) {
            int position = query_start(p, batch) + query;
            put_not_finite(p.result, index, visible(p, key_length(p, batch), position), position);
        }
    }
    float scale = all.blind() ? 0.0f : outer / all.sum;
    float first = row.first == -INFINITY ? 0.0f : exp2f(max_or_nan(row.first - keys.max, FLOOR));
    if (p.gates != nullptr)
        scale *= p.gates[head];
    return { scale * factor, scale * first };
}

} // namespace headlight

#endif
