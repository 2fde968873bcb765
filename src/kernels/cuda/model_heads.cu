/* model_heads.cu - q, k and v between their projection and attention: norms of heads, RoPE, the
 * cache.
 *
 * A block processes a row, and each of its warps a head.  Elements stay in float from the
 * projection to a single rounding at the end.  They are in shared memory, where the two elements of
 * a RoPE pair meet. */
#include "kernels/cuda/model.cuh"
#include "kernels/select.h"

namespace headlight
{

/* ---------------------------------------------------------------------- angles */

__global__ static void angles(const hl_device_angles a)
{
    int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t row = index / a.n_pairs, pair = index - row * a.n_pairs;

    if (row >= a.places.n_batch * a.places.batch_rows)
        return;
    row_place place    = place_of(a.places, row);
    float     position = static_cast<float>(a.places.start[place.batch] + place.row);
    double    sine, cosine;
    /* Rounded to float, as in the implementations that the models were trained with; at large
     * positions the difference is visible. */
    sincos(static_cast<double>(__fmul_rn(position, a.frequencies[place.batch * a.n_pairs + pair])),
           &sine, &cosine);
    a.cosine[index] = static_cast<float>(cosine) * a.factors[place.batch];
    a.sine[index]   = static_cast<float>(sine) * a.factors[place.batch];
}

hl_status op_angles(hl_device *device, const hl_device_angles *o)
{
    int64_t n = o->places.n_batch * o->places.batch_rows * o->n_pairs;

    if (n == 0)
        return HL_OK;
    angles<<<blocks_for(n, 128), 128, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "the angles of positions");
}

/* ----------------------------------------------------------------------- heads */

constexpr int HEAD_WARPS = 8;

/* Applies the norm to one head, with one warp. */
__device__ inline void norm_head(float *x, int d, const hl_norm &norm, int64_t first_weight)
{
    int   lane   = threadIdx.x % 32;
    float center = 0.0f, sum = 0.0f;

    for (int i = lane; i < d; i += 32)
        sum += norm.kind == HL_NORM_LAYER ? x[i] : x[i] * x[i];
    sum = sum_warp(sum) / static_cast<float>(d);
    if (norm.kind == HL_NORM_LAYER) {
        center = sum;
        sum    = 0.0f;
        for (int i = lane; i < d; i += 32)
            sum += (x[i] - center) * (x[i] - center);
        sum = sum_warp(sum) / static_cast<float>(d);
    }
    float scale = 1.0f / sqrtf(sum + norm.eps);
    for (int i = lane; i < d; i += 32) {
        float value = (x[i] - center) * scale;
        if (norm.weight != nullptr)
            value *= norm.weight[first_weight + i];
        if (norm.bias != nullptr)
            value += norm.bias[first_weight + i];
        x[i] = value;
    }
    __syncwarp();
}

__device__ inline void turn_head(float *x, const hl_device_heads &h, int64_t row)
{
    int step     = h.interleaved ? 2 : 1;
    int distance = h.interleaved ? 1 : static_cast<int>(h.n_pairs);

    for (int i = threadIdx.x % 32; i < h.n_pairs; i += 32) {
        float *pair  = x + i * step;
        float  first = pair[0], second = pair[distance];
        float  cosine = h.cosine[row * h.n_pairs + i], sine = h.sine[row * h.n_pairs + i];

        pair[0]        = first * cosine - second * sine;
        pair[distance] = second * cosine + first * sine;
    }
    __syncwarp();
}

__device__ inline void limit_head(float *x, int d, float limit)
{
    for (int i = threadIdx.x % 32; i < d && limit > 0.0f; i += 32)
        x[i] = fminf(fmaxf(x[i], -limit), limit);
    __syncwarp();
}

/* Scales a query by the logarithm of its position. */
__device__ inline void temper_head(float *x, const hl_device_heads &h, int64_t position)
{
    double turns = static_cast<double>((position + h.temper_first) / h.temper_period);
    float  scale = static_cast<float>(1.0 + static_cast<double>(h.temper) * log1p(turns));

    for (int i = threadIdx.x % 32; i < h.d_head; i += 32)
        x[i] *= scale;
    __syncwarp();
}

template <typename T, int W>
__device__ __forceinline__ void fill_head(float *x, const T *from, int d)
{
    for (int i = threadIdx.x % 32 * W; i < d; i += 32 * W) {
        float values[W];
        load_pack<T, W>(values, from, i);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[i + j] = values[j];
    }
    __syncwarp();
}

template <typename T, int W> __device__ __forceinline__ void put_head(T *to, const float *x, int d)
{
    for (int i = threadIdx.x % 32 * W; i < d; i += 32 * W) {
        float values[W];
#pragma unroll
        for (int j = 0; j < W; j++)
            values[j] = x[i + j];
        store_pack<T, W>(to, i, values);
    }
}

/* The address of a KV head's row in a cache. */
template <typename T>
__device__ __forceinline__ T *cached_row(void *cache, const hl_device_heads &h, row_place place,
                                         int64_t kv_head)
{
    int64_t sequence = h.places.sequences[place.batch];
    int64_t position = h.places.start[place.batch] + place.row;

    return static_cast<T *>(cache) +
           ((sequence * h.n_kv_heads + kv_head) * h.n_ctx + position) * h.d_head;
}

__host__ __device__ inline int64_t heads_of_row(const hl_device_heads &h)
{
    return h.n_heads + (h.no_values ? 1 : 2) * h.n_kv_heads;
}

/* Processes one head of a row, with one warp. */
template <typename T, int W>
__device__ __forceinline__ void run_head(const hl_device_heads &h, int64_t row, row_place place,
                                         int head, float *x)
{
    int  d   = static_cast<int>(h.d_head);
    int  n_q = static_cast<int>(h.n_heads), n_kv = static_cast<int>(h.n_kv_heads);
    T   *at   = static_cast<T *>(h.qkv) + (row * heads_of_row(h) + head) * d;
    bool is_q = head < n_q, is_v = head >= n_q + n_kv;

    fill_head<T, W>(x, at, d);
    if (is_v) {
        if (h.v_normed)
            norm_head(x, d, { HL_NORM_RMS, h.k_norm.eps, nullptr, nullptr }, 0);
        limit_head(x, d, h.limit);
        if (h.v_normed || h.limit > 0.0f)
            put_head<T, W>(at, x, d);
        put_head<T, W>(cached_row<T>(h.v_cache, h, place, head - n_q - n_kv), x, d);
        return;
    }
    int64_t number = is_q ? head : head - n_q;
    bool    normed = h.norm == HL_HEAD_NORM_SHARED || h.norm == HL_HEAD_NORM_EACH;
    int64_t first  = h.norm == HL_HEAD_NORM_EACH ? number * d : 0;
    if (normed && !h.norm_last)
        norm_head(x, d, is_q ? h.q_norm : h.k_norm, first);
    limit_head(x, d, h.limit);
    if (h.cosine != nullptr)
        turn_head(x, h, row);
    if (normed && h.norm_last)
        norm_head(x, d, is_q ? h.q_norm : h.k_norm, first);
    if (is_q && h.temper != 0.0f)
        temper_head(x, h, h.places.start[place.batch] + place.row);
    put_head<T, W>(at, x, d);
    if (!is_q)
        put_head<T, W>(cached_row<T>(h.k_cache, h, place, number), x, d);
}

/* One block per row, one warp per head. */
template <typename T, int W>
__global__ static void __launch_bounds__(32 * HEAD_WARPS)
    heads(const __grid_constant__ hl_device_heads h)
{
    __shared__ float shared[HEAD_WARPS][HL_MAX_HEAD_DIM];
    int64_t          row     = blockIdx.x;
    row_place        place   = place_of(h.places, row);
    int              n_heads = static_cast<int>(heads_of_row(h));

    if (!place.counts)
        return;
    for (int head = threadIdx.x / 32; head < n_heads; head += HEAD_WARPS) {
        run_head<T, W>(h, row, place, head, shared[threadIdx.x / 32]);
        __syncwarp();
    }
}

/* Eight elements of a head's first half and the matching eight of its second half. */
template <typename T> struct head_pair {
    float first[8], second[8];

    __device__ __forceinline__ void load(const T *head, int half, int i)
    {
        load_pack<T, 8>(first, head, i);
        load_pack<T, 8>(second, head, half + i);
    }
    __device__ __forceinline__ void store(T *head, int half, int i) const
    {
        store_pack<T, 8>(head, i, first);
        store_pack<T, 8>(head, half + i, second);
    }
    __device__ __forceinline__ void turn(const float (&cosine)[8], const float (&sine)[8])
    {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float x   = first[j];
            first[j]  = x * cosine[j] - second[j] * sine[j];
            second[j] = second[j] * cosine[j] + x * sine[j];
        }
    }
};

constexpr int HEADS_A_THREAD = 2; /* with 1, 4 or 8 it took 3 to 9% more time */

static int64_t turns_of_row(const hl_device_heads &h)
{
    int64_t n_heads = h.n_heads + 2 * h.n_kv_heads;

    return (n_heads + HEADS_A_THREAD - 1) / HEADS_A_THREAD * (h.d_head / 16);
}

/* The common case: no norm, RoPE on whole heads, pairs of first and second half.  A thread rotates
 * or copies the same elements of two heads of a row. */
template <typename T>
__global__ static void __launch_bounds__(32 * HEAD_WARPS)
    turn_heads(const __grid_constant__ hl_device_heads h, int per_row, int64_t n_items)
{
    int64_t item = static_cast<int64_t>(blockIdx.x) * (32 * HEAD_WARPS) + threadIdx.x;
    int64_t row  = item / per_row;
    int     rest = static_cast<int>(item - row * per_row);
    int     d = static_cast<int>(h.d_head), half = d / 2, each = half / 8;
    int     n_q = static_cast<int>(h.n_heads), n_kv = static_cast<int>(h.n_kv_heads);
    int     begin = rest / each * HEADS_A_THREAD, i = rest % each * 8;
    int     end = min(begin + HEADS_A_THREAD, n_q + 2 * n_kv);
    T      *qkv = static_cast<T *>(h.qkv) + row * (n_q + 2 * n_kv) * d;

    if (item >= n_items)
        return;
    row_place place = place_of(h.places, row);
    if (!place.counts)
        return;
    head_pair<T> pair[HEADS_A_THREAD];
    float        cosine[8], sine[8];
#pragma unroll
    for (int k = 0; k < HEADS_A_THREAD; k++) {
        if (begin + k < end)
            pair[k].load(qkv + (begin + k) * d, half, i);
    }
    load_pack<float, 8>(cosine, h.cosine, row * half + i);
    load_pack<float, 8>(sine, h.sine, row * half + i);
#pragma unroll
    for (int k = 0; k < HEADS_A_THREAD; k++) {
        int  head = begin + k;
        bool is_v = head >= n_q + n_kv;

        if (head < end && !is_v) {
            pair[k].turn(cosine, sine);
            pair[k].store(qkv + head * d, half, i);
        }
        if (head < end && head >= n_q)
            pair[k].store(cached_row<T>(is_v ? h.v_cache : h.k_cache, h, place,
                                        head - n_q - (is_v ? n_kv : 0)),
                          half, i);
    }
}

static bool turns_whole(const hl_device_heads &h)
{
    return (h.norm == HL_HEAD_NORM_NONE || h.norm == HL_HEAD_NORM_ALL) && h.cosine != nullptr &&
           !h.interleaved && !h.v_normed && !h.no_values && h.limit == 0.0f && h.temper == 0.0f &&
           2 * h.n_pairs == h.d_head && h.d_head % 16 == 0 &&
           is_wide({ h.qkv, h.k_cache, h.v_cache, h.cosine, h.sine }, {});
}

template <typename T> static hl_status launch_heads(hl_device *device, const hl_device_heads &h)
{
    int64_t n_rows = h.places.n_batch * h.places.batch_rows;
    int     size   = 32 * HEAD_WARPS;

    if (n_rows == 0)
        return HL_OK;
    if (turns_whole(h)) {
        int64_t per_row = turns_of_row(h), n = n_rows * per_row;
        turn_heads<T>
            <<<blocks_for(n, size), size, 0, device->stream>>>(h, static_cast<int>(per_row), n);
    } else {
        auto kernel = h.d_head % 2 == 0 ? heads<T, 2> : heads<T, 1>;
        kernel<<<static_cast<unsigned>(n_rows), size, 0, device->stream>>>(h);
    }
    return check(cudaGetLastError(), "the heads of a layer");
}

/* Norms over all heads of a row run first, by the kernel of ordinary norms. */
static hl_status norm_all(hl_device *device, const hl_device_heads &h)
{
    int64_t width  = (h.n_heads + 2 * h.n_kv_heads) * h.d_head;
    int64_t n_rows = h.places.n_batch * h.places.batch_rows;
    char   *k      = static_cast<char *>(h.qkv) +
              static_cast<size_t>(h.n_heads * h.d_head) * element_bytes(h.dtype);

    if (h.norm != HL_HEAD_NORM_ALL)
        return HL_OK;
    if (h.norm_last)
        return fail(HL_UNSUPPORTED, "the GPU has no norm of all heads after RoPE");
    HL_CUDA_TRY(
        norm_in_place(device, h.qkv, h.dtype, width, h.q_norm, n_rows, h.n_heads * h.d_head));
    return norm_in_place(device, k, h.dtype, width, h.k_norm, n_rows, h.n_kv_heads * h.d_head);
}

hl_status op_heads(hl_device *device, const hl_device_heads *o)
{
    HL_CUDA_TRY(norm_all(device, *o));
    if (o->dtype == HL_DTYPE_F32)
        return launch_heads<float>(device, *o);
    return o->dtype == HL_DTYPE_BF16 ? launch_heads<__nv_bfloat16>(device, *o)
                                     : launch_heads<__half>(device, *o);
}

/* ------------------------------------------------------------- gates of heads */

template <typename T>
__global__ static void gate_heads(const __grid_constant__ hl_device_gate_heads g, int64_t n_values)
{
    int64_t at  = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t n   = g.n_heads * g.d_head;
    int64_t row = at / n;

    if (at >= n_values)
        return;
    T    *x    = static_cast<T *>(g.x) + at;
    float gate = g.gates[row / g.places.batch_rows * g.gate_stride + (at - row * n) / g.d_head];

    *x = from_float<T>(to_float(*x) * gate);
}

template <typename T>
static void launch_gates(hl_device *device, const hl_device_gate_heads &g, int64_t n)
{
    gate_heads<T><<<blocks_for(n, 256), 256, 0, device->stream>>>(g, n);
}

hl_status op_gate_heads(hl_device *device, const hl_device_gate_heads *o)
{
    int64_t n = o->places.n_batch * o->places.batch_rows * o->n_heads * o->d_head;

    if (n == 0)
        return HL_OK;
    if (o->dtype == HL_DTYPE_F32)
        launch_gates<float>(device, *o, n);
    else if (o->dtype == HL_DTYPE_BF16)
        launch_gates<__nv_bfloat16>(device, *o, n);
    else
        launch_gates<__half>(device, *o, n);
    return check(cudaGetLastError(), "the gates of heads");
}

/* ------------------------------------------------------- keys of sparse attention */

constexpr int SELECT_THREADS = 256;

/* One block per row, a warp per key. */
template <typename T>
__global__ static void __launch_bounds__(SELECT_THREADS)
    select_keys(const __grid_constant__ hl_device_select s)
{
    int64_t      row   = blockIdx.x;
    row_place    place = place_of(s.places, row);
    float       *out   = s.out + row * s.n_keys;
    const T     *q     = static_cast<const T *>(s.q) + row * s.n_heads * s.d_head;
    const float *weight = s.weight + row * s.n_heads;
    int          lane   = threadIdx.x % 32;

    if (!place.counts)
        return;
    int64_t  n        = s.places.start[place.batch] + place.row + 1;
    int64_t  sequence = s.places.sequences[place.batch];
    const T *keys     = static_cast<const T *>(s.keys) + sequence * s.n_ctx * s.d_head;
    for (int64_t key = threadIdx.x / 32; key < n; key += SELECT_THREADS / 32) {
        float score = 0.0f;

        for (int64_t head = 0; head < s.n_heads; head++) {
            float sum = 0.0f;
            for (int64_t i = lane; i < s.d_head; i += 32)
                sum = fmaf(to_float(q[head * s.d_head + i]), to_float(keys[key * s.d_head + i]), sum);
            score = fmaf(weight[head], fmaxf(sum_warp(sum), 0.0f), score);
        }
        if (lane == 0)
            out[key] = score;
    }
    __syncthreads();
    __shared__ int counted, equal;
    uint32_t       least = 0;
    for (int bit = 31; bit >= 0 && n > s.n_top; bit--) {
        uint32_t next  = least | 1u << bit;
        int      count = 0;

        if (threadIdx.x == 0)
            counted = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < n; i += SELECT_THREADS)
            count += hl_select_order(out[i]) >= next;
        atomicAdd(&counted, count);
        __syncthreads();
        least = counted >= s.n_top ? next : least;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        equal = 0;
    __syncthreads();
    int above = 0;
    for (int64_t i = threadIdx.x; i < n; i += SELECT_THREADS)
        above += hl_select_order(out[i]) > least;
    atomicAdd(&equal, above);
    __syncthreads();
    if (threadIdx.x == 0 && n > s.n_top) { /* of equal scores the first stay: in order */
        int64_t left = s.n_top - equal;
        for (int64_t i = 0; i < n; i++) {
            uint32_t order = hl_select_order(out[i]);
            out[i]         = order > least || (order == least && left-- > 0) ? 0.0f : -INFINITY;
        }
    }
    for (int64_t i = threadIdx.x; i < s.n_keys; i += SELECT_THREADS) {
        if (i >= n)
            out[i] = -INFINITY;
        else if (n <= s.n_top)
            out[i] = 0.0f;
    }
}

hl_status op_select(hl_device *device, const hl_device_select *o)
{
    unsigned n_rows = static_cast<unsigned>(o->places.n_batch * o->places.batch_rows);

    if (n_rows == 0)
        return HL_OK;
    if (o->dtype == HL_DTYPE_F32)
        select_keys<float><<<n_rows, SELECT_THREADS, 0, device->stream>>>(*o);
    else if (o->dtype == HL_DTYPE_BF16)
        select_keys<__nv_bfloat16><<<n_rows, SELECT_THREADS, 0, device->stream>>>(*o);
    else
        select_keys<__half><<<n_rows, SELECT_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "the keys of sparse attention");
}

} // namespace headlight
