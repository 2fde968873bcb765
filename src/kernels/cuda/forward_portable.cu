/* forward_portable.cu - attention with entropy on the tensor cores of sm_80 and later.
 *
 * A block of four warps has 64 queries, 16 a warp, and walks the keys 64 at a time:
 * S = Q K^T, the options (softcap, ALiBi, bias, masks), softmax and sums, O += P V.
 * K comes while O is computed, V while S is (cp.async).
 *
 * Scores are kept times log2(e), so weights are powers of two; the sums are those of
 * row_state.h with x in bits.  Key 0 stands aside, as metrics.md has it: the sums are
 * those of the other keys until the end, when key 0 and then a learned sink join.
 *
 * A thread holds rows r = lane / 4 and r + 8 of its warp's 16, and of each eight
 * columns 2 (lane % 4) and the next.  Four lanes share a row. */
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/error.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/plain_row.cuh"
#include "kernels/cuda/portable_ptx.cuh"

namespace headlight
{

constexpr int   TILE_ROWS = 64;
constexpr int   TILE_KEYS = 64;
constexpr int   THREADS   = 128;
constexpr float FLOOR     = -16384.0f; /* 2^FLOOR is 0, and 0 * FLOOR is not NaN */

/* ------------------------------------------------------------------- row states */

/* row_state.h in float, in bits. */
struct bits_state {
    float max = -INFINITY, sum = 0, dot = 0, collision = 0, spread = 0;

    /* Moves to another maximum, at least as large; returns the weights' factor. */
    __device__ float rescale(float new_max)
    {
        /* Of the row, not of this lane's share: `out` follows it. */
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

    /* One more outcome; returns what the others' weights are multiplied by. */
    __device__ float push(float score)
    {
        if (score == -INFINITY)
            return 1.0f;
        float factor = rescale(fmaxf(max, score));
        float x      = fmaxf(score - max, FLOOR);
        add(x, exp2f(x));
        return factor;
    }

    /* The sums of the four lanes that share a row; their maxima are equal. */
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
        return blind() ? 0.0f : LN_2 * LN_2 * fmaxf(0.0f, spread / sum - mean * mean);
    }
};

/* One of a thread's two rows. */
struct tile_row {
    int          query, position;
    visible_keys keys;
    bits_state   state;                           /* of the keys other than key 0 */
    float        first, diagonal, previous, best; /* scores in bits; -inf: not seen */
    int          argmax;

    __device__ void open(const problem &p, int batch, int index)
    {
        query    = index;
        position = query_start(p, batch) + index;
        keys     = visible(p, key_length(p, batch), position);
        first = diagonal = previous = best = -INFINITY;
        argmax                             = -1;
    }

    /* Remembers single keys; called with ascending keys. */
    __device__ void notice(int key, float score)
    {
        if (key == position)
            diagonal = score;
        if (key == position - 1)
            previous = score;
        if (score > best) {
            best   = score;
            argmax = key;
        }
    }

    /* What the four lanes of a row noticed, in all of them. */
    __device__ void across_row()
    {
        state.across_row();
        for (int step = 1; step < 4; step *= 2) {
            float other_best = __shfl_xor_sync(~0u, best, step);
            int   other      = __shfl_xor_sync(~0u, argmax, step);
            if (other_best > best || (other_best == best && other < argmax)) {
                best   = other_best;
                argmax = other;
            }
            first    = fmaxf(first, __shfl_xor_sync(~0u, first, step));
            diagonal = fmaxf(diagonal, __shfl_xor_sync(~0u, diagonal, step));
            previous = fmaxf(previous, __shfl_xor_sync(~0u, previous, step));
        }
    }
};

/* ------------------------------------------------------------------------ tiles */

/* 64 rows to shared memory, zeros where there are none; asynchronous where 16 bytes
 * can be copied at a time. */
template <typename T, int DIM>
__device__ static void load_tile(T (*out)[DIM + 8], const hl_rows &rows, int64_t base, int first,
                                 int n_rows, int width, bool wide)
{
    const T *source = static_cast<const T *>(rows.data) + base;

    for (int i = threadIdx.x; i < 64 * (DIM / 8); i += THREADS) {
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

template <typename T, int DIM> struct portable_shared {
    T q[TILE_ROWS][DIM + 8]; /* 16 bytes more a row: no bank conflicts */
    T k[TILE_KEYS][DIM + 8];
    T v[TILE_KEYS][DIM + 8];
};

/* Which operands can be copied 16 bytes at a time. */
struct wide_copies {
    bool q, k, v;
};

template <typename T, int DIM> struct portable_block {
    const problem           &p;
    const wide_copies        wide;
    portable_shared<T, DIM> &shared;
    int                      batch, head, kv_head, first_row, lane, warp;
    bool                     plain; /* no option bends a score, no single key is wanted */
    int                      whole_begin, whole_end; /* keys that all rows see */
    tile_row                 rows[2];
    float                    out[DIM / 8][4];

    /* ---------------------------------------------------------------- products */

    __device__ void scores_of_tile(float (&scores)[TILE_KEYS / 8][4])
    {
#pragma unroll
        for (int tile = 0; tile < TILE_KEYS / 8; tile++)
            scores[tile][0] = scores[tile][1] = scores[tile][2] = scores[tile][3] = 0.0f;
#pragma unroll
        for (int step = 0; step < DIM / 16; step++) {
            uint32_t a[4], b[4];
            ptx::load_matrices(a, &shared.q[warp * 16 + lane % 16][step * 16 + lane / 16 * 8]);
#pragma unroll
            for (int pair = 0; pair < TILE_KEYS / 16; pair++) {
                ptx::load_matrices(
                    b,
                    &shared.k[pair * 16 + lane % 8 + lane / 16 * 8][step * 16 + lane / 8 % 2 * 8]);
                ptx::mma<T>(scores[2 * pair], a, b);
                ptx::mma<T>(scores[2 * pair + 1], a, b + 2);
            }
        }
    }

    __device__ void add_values(const float (&weights)[TILE_KEYS / 8][4])
    {
#pragma unroll
        for (int step = 0; step < TILE_KEYS / 16; step++) {
            const float *low = weights[2 * step], *high = weights[2 * step + 1];
            uint32_t     a[4] = { ptx::pack<T>(low[0], low[1]), ptx::pack<T>(low[2], low[3]),
                                  ptx::pack<T>(high[0], high[1]), ptx::pack<T>(high[2], high[3]) };
            uint32_t     b[4];
#pragma unroll
            for (int pair = 0; pair < DIM / 16; pair++) {
                ptx::load_matrices_transposed(
                    b, &shared.v[step * 16 + lane % 16][pair * 16 + lane / 16 * 8]);
                ptx::mma<T>(out[2 * pair], a, b);
                ptx::mma<T>(out[2 * pair + 1], a, b + 2);
            }
        }
    }

    /* ----------------------------------------------------------------- softmax */

    /* A product to a score in bits; -inf where the row does not see the key. */
    __device__ float score(const tile_row &row, int key, float product) const
    {
        if (!row.keys.has(key))
            return -INFINITY;
        float s = p.scale * product;
        if (p.softcap != 0.0f)
            s = p.softcap * tanhf(s / p.softcap);
        if (p.alibi_slopes != nullptr)
            s += p.alibi_slopes[head] * static_cast<float>(key - row.position);
        if (p.key_bias != nullptr)
            s += p.key_bias[static_cast<int64_t>(head) * p.n_keys + key];
        return s * LOG2_E;
    }

    /* Products to scores; key 0 steps aside. */
    __device__ void finish_scores(float (&scores)[TILE_KEYS / 8][4], int first_key)
    {
        if (plain && first_key > 0 && first_key >= whole_begin &&
            first_key + TILE_KEYS <= whole_end) {
#pragma unroll
            for (int i = 0; i < TILE_KEYS / 2; i++)
                scores[i / 4][i % 4] *= p.scale * LOG2_E;
            return;
        }
#pragma unroll
        for (int i = 0; i < TILE_KEYS / 2; i++) {
            tile_row &row = rows[(i >> 1) & 1];
            int       key = first_key + i / 4 * 8 + lane % 4 * 2 + (i & 1);
            float    &s   = scores[i / 4][i % 4];
            s             = score(row, key, s);
            row.notice(key, s);
            if (key == 0) {
                row.first = s;
                s         = -INFINITY;
            }
        }
    }

    /* Scores to weights; moves sums and output to the new maxima. */
    __device__ void weigh(float (&scores)[TILE_KEYS / 8][4])
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            bits_state &state = rows[r].state;
            float       most  = state.max;
#pragma unroll
            for (int i = 0; i < TILE_KEYS / 8; i++)
                most = fmaxf(most, fmaxf(scores[i][2 * r], scores[i][2 * r + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));

            float factor = state.rescale(most);
            float centre = most == -INFINITY ? 0.0f : most;
#pragma unroll
            for (int i = 0; i < DIM / 8; i++) {
                out[i][2 * r] *= factor;
                out[i][2 * r + 1] *= factor;
            }
#pragma unroll
            for (int i = 0; i < TILE_KEYS / 4; i++) {
                float &s      = scores[i / 2][2 * r + i % 2];
                float  x      = fmaxf(s - centre, FLOOR);
                float  weight = ptx::exp2_fast(x);
                state.add(x, weight);
                s = weight;
            }
        }
    }

    /* -------------------------------------------------------------------- loop */

    __device__ void load_keys(int tile)
    {
        load_tile<T, DIM>(shared.k, p.k, row_offset(p.k, batch, kv_head, 0), tile * TILE_KEYS,
                          p.n_keys, p.d_head, wide.k);
        ptx::copy_commit();
    }

    __device__ void load_values(int tile)
    {
        load_tile<T, DIM>(shared.v, p.v, row_offset(p.v, batch, kv_head, 0), tile * TILE_KEYS,
                          p.n_keys, p.d_value, wide.v);
        ptx::copy_commit();
    }

    __device__ void run(int first_tile, int end_tile, int n_kept_tiles)
    {
        auto next = [=](int tile) { /* over the gap between kept keys and the window */
                                    return tile + 1 >= n_kept_tiles && tile + 1 < first_tile
                                               ? first_tile
                                               : tile + 1;
        };
        int tile = n_kept_tiles > 0 ? 0 : first_tile;

        load_tile<T, DIM>(shared.q, p.q, row_offset(p.q, batch, head, 0), first_row, p.n_queries,
                          p.d_head, wide.q);
        if (tile < end_tile)
            load_keys(tile);
        for (; tile < end_tile; tile = next(tile)) {
            float scores[TILE_KEYS / 8][4];

            ptx::copy_wait();
            __syncthreads(); /* K is here, V is free */
            load_values(tile);
            scores_of_tile(scores);
            finish_scores(scores, tile * TILE_KEYS);
            weigh(scores);
            ptx::copy_wait();
            __syncthreads(); /* V is here, K is free */
            if (next(tile) < end_tile)
                load_keys(next(tile));
            add_values(scores);
        }
        ptx::copy_wait();
    }

    /* ----------------------------------------------------------------- results */

    __device__ static void put(float *array, int64_t index, float value)
    {
        if (array != nullptr)
            array[index] = value;
    }

    __device__ void put_statistics(const tile_row &row, const bits_state &keys,
                                   const bits_state &all) const
    {
        const hl_attention_result &r = p.result;
        int64_t index = (static_cast<int64_t>(batch) * p.n_heads + head) * p.n_queries + row.query;
        float   lse   = all.lse();
        auto    probability = [=](float s) { return s == -INFINITY ? 0.0f : exp2f(s - lse); };

        put(r.lse, index, LN_2 * lse);
        put(r.entropy, index, all.entropy());
        put(r.renyi2, index, all.renyi2());
        put(r.varentropy, index, all.varentropy());
        put(r.entropy_nosink, index, row.state.entropy());
        put(r.peak, index, keys.blind() ? 0.0f : exp2f(keys.max - lse));
        put(r.diagonal, index, probability(row.diagonal));
        put(r.previous, index, probability(row.previous));
        put(r.first, index, probability(row.first));
        if (r.argmax != nullptr)
            r.argmax[index] = row.best == -INFINITY ? -1 : row.argmax;
    }

    /* Row r's outputs: key 0 and the sink join, then division by the sum. */
    __device__ void finish(int r)
    {
        tile_row &row = rows[r];

        row.across_row();
        bits_state keys   = row.state;
        float      factor = keys.push(row.first);
        bits_state all    = keys;
        float outer = p.sinks != nullptr && !keys.blind() ? all.push(p.sinks[head] * LOG2_E) : 1.0f;
        if (row.query >= p.n_queries)
            return;
        if (lane % 4 == 0)
            put_statistics(row, keys, all);
        if (p.out.data == nullptr)
            return;

        float   scale  = all.blind() ? 0.0f : outer / all.sum;
        float   first  = row.first == -INFINITY ? 0.0f : exp2f(fmaxf(row.first - keys.max, FLOOR));
        int64_t target = row_offset(p.out, batch, head, row.query);
        int64_t value  = row_offset(p.v, batch, kv_head, 0);
        if (p.gates != nullptr)
            scale *= p.gates[head];
#pragma unroll
        for (int i = 0; i < DIM / 4; i++) {
            int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
            if (column >= p.d_value)
                continue;
            float sum = factor * out[i / 2][2 * r + i % 2];
            if (first != 0.0f)
                sum = fmaf(first, static_cast<float>(load(p.v, value + column)), sum);
            store(p.out, target + column, scale * sum);
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
        block.rows[r].open(p, block.batch, block.first_row + warp * 16 + lane / 4 + 8 * r);
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
        block.out[i][0] = block.out[i][1] = block.out[i][2] = block.out[i][3] = 0.0f;

    /* The keys that any row of the block sees. */
    int length  = key_length(p, block.batch);
    int first   = query_start(p, block.batch) + block.first_row;
    int last    = first + min(TILE_ROWS, p.n_queries - block.first_row) - 1;
    int end     = max(0, min(length, last + p.window_right + 1));
    int begin   = min(max(0, first - p.window_left), end);
    int kept    = max(0, min(p.window_sink, end));
    block.plain = p.softcap == 0.0f && p.alibi_slopes == nullptr && p.key_bias == nullptr &&
                  p.result.argmax == nullptr && p.result.diagonal == nullptr &&
                  p.result.previous == nullptr;
    block.whole_begin = max(0, last - p.window_left);
    block.whole_end   = min(length, first + p.window_right + 1);
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
    if ((p.q.dtype != HL_DTYPE_BF16 && p.q.dtype != HL_DTYPE_F16) || p.k.dtype != p.q.dtype ||
        p.v.dtype != p.q.dtype || (p.out.data != nullptr && p.out.dtype != p.q.dtype))
        return "types other than bf16 or fp16 throughout";
    if (p.result.segment_mass != nullptr)
        return "segment_mass";
    if ((p.n_queries + int64_t{ TILE_ROWS } - 1) / TILE_ROWS * p.n_batch * p.n_heads > INT32_MAX)
        return "2^31 tiles of queries";
    return nullptr;
}

static bool is_wide(const hl_rows &rows, int width)
{
    return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.row_stride % 8 == 0 &&
           rows.head_stride % 8 == 0 && rows.batch_stride % 8 == 0 && width % 8 == 0;
}

template <typename T, int DIM> static hl_status launch(const problem &p, cudaStream_t stream)
{
    wide_copies wide = { is_wide(p.q, p.d_head), is_wide(p.k, p.d_head), is_wide(p.v, p.d_value) };
    int         n_bytes  = sizeof(portable_shared<T, DIM>);
    int         n_blocks = (p.n_queries + TILE_ROWS - 1) / TILE_ROWS * p.n_batch * p.n_heads;

    HL_CUDA_TRY(check(cudaFuncSetAttribute(forward_portable<T, DIM>,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
                      "shared memory for the portable kernel"));
    forward_portable<T, DIM><<<n_blocks, THREADS, n_bytes, stream>>>(p, wide);
    return check(cudaGetLastError(), "the portable kernel");
}

template <typename T> static hl_status choose(const problem &p, cudaStream_t stream)
{
    int width = std::max(p.d_head, p.d_value);

    if (width <= 32)
        return launch<T, 32>(p, stream);
    if (width <= 64)
        return launch<T, 64>(p, stream);
    if (width <= 96)
        return launch<T, 96>(p, stream);
    if (width <= 128)
        return launch<T, 128>(p, stream);
    return launch<T, 256>(p, stream);
}

hl_status launch_portable(const problem &p, cudaStream_t stream)
{
    return p.q.dtype == HL_DTYPE_F16 ? choose<__half>(p, stream) : choose<__nv_bfloat16>(p, stream);
}

} // namespace headlight
