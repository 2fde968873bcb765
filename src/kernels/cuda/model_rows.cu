/* model_rows.cu - operations on rows between products: embedding, residual sums with the norm after
 * them, activations, copies.
 *
 * All of these are limited by memory, so every array should be read and written once, sixteen bytes
 * per thread at a time.  Kernels take eight elements at once (W = 8) if everything is aligned to
 * sixteen bytes, else one. */
#include "kernels/cuda/model.cuh"

namespace headlight
{

constexpr int ROW_THREADS = 256;

/* ---------------------------------------------------------------------- norms */

/* hl_device_norm, for rows that are `stride` apart. */
struct norm_rows {
    span         out, x, add[2];
    float       *kept;
    int64_t      out_stride, x_stride;
    float        add_scale;
    bool         is_plain;
    hl_norm_kind kind;
    float        eps;
    const float *weight, *bias;
    int          n;
};

template <int W> __device__ void add_to_row(const norm_rows &a, float (&x)[W], int64_t row, int at)
{
    for (const span &add : a.add) {
        if (add.data == nullptr)
            continue;
        float more[W];
        load_some<W>(more, add, row * a.n + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] = fmaf(a.add_scale, more[i], x[i]);
    }
}

template <int W>
__device__ void put_normed(const norm_rows &a, const float (&x)[W], int64_t row, int at)
{
    if (a.out.data != nullptr)
        store_some<W>(a.out, row * a.out_stride + at, x);
    if (a.kept != nullptr)
        store_pack<float, W>(a.kept, row * a.n + at, x);
}

/* One block per row.  The row lies in shared memory between the sums and the norm. */
template <int W> __global__ static void __launch_bounds__(ROW_THREADS) norm(const norm_rows a)
{
    extern __shared__ float cached[];
    int64_t                 row  = blockIdx.x;
    float                   sum  = 0.0f;
    bool                    adds = a.add[0].data != nullptr || a.add[1].data != nullptr;
    float                   x[W];

    for (int at = threadIdx.x * W; at < a.n; at += ROW_THREADS * W) {
        load_some<W>(x, a.x, row * a.x_stride + at);
        add_to_row<W>(a, x, row, at);
        if (adds)
            store_some<W>(a.x, row * a.x_stride + at, x);
        if (a.is_plain)
            put_normed<W>(a, x, row, at);
#pragma unroll
        for (int i = 0; i < W; i++) {
            cached[at + i] = x[i];
            sum += a.kind == HL_NORM_LAYER ? x[i] : x[i] * x[i];
        }
    }
    if (a.is_plain || (a.out.data == nullptr && a.kept == nullptr))
        return;
    sum          = sum_block(sum) / static_cast<float>(a.n);
    float center = 0.0f;
    if (a.kind == HL_NORM_LAYER) { /* each thread has written what it reads */
        center = sum;
        sum    = 0.0f;
        for (int at = threadIdx.x * W; at < a.n; at += ROW_THREADS * W) {
#pragma unroll
            for (int i = 0; i < W; i++)
                sum += (cached[at + i] - center) * (cached[at + i] - center);
        }
        sum = sum_block(sum) / static_cast<float>(a.n);
    }
    float scale = 1.0f / sqrtf(sum + a.eps);
    for (int at = threadIdx.x * W; at < a.n; at += ROW_THREADS * W) {
        float weight[W], bias[W];
        if (a.weight != nullptr)
            load_pack<float, W>(weight, a.weight, at);
        if (a.bias != nullptr)
            load_pack<float, W>(bias, a.bias, at);
#pragma unroll
        for (int i = 0; i < W; i++) {
            x[i] = (cached[at + i] - center) * scale;
            x[i] = a.weight != nullptr ? x[i] * weight[i] : x[i];
            x[i] = a.bias != nullptr ? x[i] + bias[i] : x[i];
        }
        put_normed<W>(a, x, row, at);
    }
}

static hl_status launch_norm(hl_device *device, const norm_rows &a, int64_t n_rows)
{
    size_t n_bytes = static_cast<size_t>(a.n) * sizeof(float);
    bool   wide =
        is_wide({ a.out.data, a.kept, a.x.data, a.add[0].data, a.add[1].data, a.weight, a.bias },
                { a.n, a.x_stride, a.out_stride });
    auto kernel = wide ? norm<8> : norm<1>;

    if (n_rows == 0 || a.n == 0)
        return HL_OK;
    if (n_bytes > 48 * 1024)
        HL_CUDA_TRY(check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(n_bytes)),
                          "shared memory for a norm"));
    kernel<<<static_cast<unsigned>(n_rows), ROW_THREADS, n_bytes, device->stream>>>(a);
    return check(cudaGetLastError(), "a norm");
}

hl_status op_norm(hl_device *device, const hl_device_norm *o)
{
    norm_rows a = {};

    a.out        = span_of(o->out, o->out_dtype);
    a.x          = span_of(o->x, o->x_dtype);
    a.add[0]     = span_of(o->add[0], o->dtype);
    a.add[1]     = span_of(o->add[1], o->dtype);
    a.kept       = o->kept;
    a.out_stride = a.x_stride = o->n;
    a.add_scale               = o->add_scale;
    a.is_plain                = o->is_plain;
    a.kind                    = o->norm.kind;
    a.eps                     = o->norm.eps;
    a.weight                  = o->norm.weight;
    a.bias                    = o->norm.bias;
    a.n                       = static_cast<int>(o->n);
    return launch_norm(device, a, o->n_rows);
}

hl_status norm_in_place(hl_device *device, void *x, hl_dtype dtype, int64_t stride,
                        const hl_norm &norm, int64_t n_rows, int64_t n)
{
    norm_rows a = {};

    a.out = a.x  = span_of(x, dtype);
    a.out_stride = a.x_stride = stride;
    a.kind                    = norm.kind;
    a.eps                     = norm.eps;
    a.weight                  = norm.weight;
    a.bias                    = norm.bias;
    a.n                       = static_cast<int>(n);
    return launch_norm(device, a, n_rows);
}

/* ------------------------------------------------------------------ activations */

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* FAST: precise to about 2^-20, for results that are rounded to 16 bits. */
template <bool FAST> __device__ __forceinline__ float times_sigmoid(float x, float of)
{
    return FAST ? __fdividef(x, 1.0f + __expf(-of)) : x * sigmoid(of);
}

/* The numbers of an activation, on their way to a kernel. */
struct activation_numbers {
    float x[HL_ACTIVATION_NUMBERS];
};

__device__ __forceinline__ float xielu(float x, const activation_numbers &of)
{
    float other = of.x[1] * (expm1f(fminf(x, of.x[3])) - x);

    return fmaf(of.x[2], x, x > 0.0f ? of.x[0] * x * x : other);
}

template <bool FAST>
__device__ __forceinline__ float activated(float x, hl_activation activation,
                                           const activation_numbers &numbers)
{
    switch (activation) {
    case HL_ACTIVATION_GELU:
        return 0.5f * x * erfcf(-x * 0.70710678118654752440f);
    case HL_ACTIVATION_GELU_TANH: /* the same formula as in dense_scalar.c */
        return times_sigmoid<FAST>(x, 2.0f * 0.79788456080286535588f * (x + 0.044715f * x * x * x));
    case HL_ACTIVATION_SILU:
        return times_sigmoid<FAST>(x, x);
    case HL_ACTIVATION_RELU:
        return fmaxf(x, 0.0f);
    case HL_ACTIVATION_RELU_SQUARED:
        return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
    case HL_ACTIVATION_XIELU:
        return xielu(x, numbers);
    case HL_ACTIVATION_SIGMOID:
        return times_sigmoid<FAST>(1.0f, x);
    case HL_ACTIVATION_SILU_SCALED:
        return times_sigmoid<FAST>(numbers.x[1] * x, numbers.x[0] * x);
    default:
        return times_sigmoid<FAST>(x, 1.702f * x);
    }
}

struct activate_rows {
    const void        *gate, *up;
    void              *out;
    int64_t            stride;
    activation_numbers numbers;
    int                n;
    int                n_parts; /* blocks per row */
};

/* W elements per thread.  Both packs are loaded before one is used.  That requires their type as a
 * template argument: it takes an eighth less time than a test of the type. */
template <typename T, int W, hl_activation ACTIVATION>
__global__ static void __launch_bounds__(ROW_THREADS) activate(const activate_rows a)
{
    constexpr bool FAST = W > 1 && sizeof(T) == 2;
    int64_t        row  = blockIdx.x / a.n_parts;
    int            part = static_cast<int>(blockIdx.x) % a.n_parts;
    int            at   = (part * ROW_THREADS + static_cast<int>(threadIdx.x)) * W;
    float          gate[W], up[W];

    if (at >= a.n)
        return;
    load_pack<T, W>(gate, a.gate, row * a.stride + at);
    if (a.up != nullptr)
        load_pack<T, W>(up, a.up, row * a.stride + at);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float factor = a.up != nullptr ? up[i] : 1.0f;

        if (ACTIVATION == HL_ACTIVATION_SWIGLU_CLAMPED) {
            float limit = a.numbers.x[0];

            gate[i] = fminf(gate[i], limit);
            factor  = fminf(fmaxf(factor, -limit), limit) + 1.0f;
        }
        gate[i] = activated<FAST>(gate[i], ACTIVATION, a.numbers) * factor;
    }
    store_pack<T, W>(a.out, row * a.n + at, gate);
}

template <typename T, int W> static auto choose_activation(hl_activation activation)
{
    switch (activation) {
    case HL_ACTIVATION_GELU:
        return activate<T, W, HL_ACTIVATION_GELU>;
    case HL_ACTIVATION_GELU_TANH:
        return activate<T, W, HL_ACTIVATION_GELU_TANH>;
    case HL_ACTIVATION_GELU_QUICK:
        return activate<T, W, HL_ACTIVATION_GELU_QUICK>;
    case HL_ACTIVATION_SILU:
        return activate<T, W, HL_ACTIVATION_SILU>;
    case HL_ACTIVATION_RELU:
        return activate<T, W, HL_ACTIVATION_RELU>;
    case HL_ACTIVATION_RELU_SQUARED:
        return activate<T, W, HL_ACTIVATION_RELU_SQUARED>;
    case HL_ACTIVATION_XIELU:
        return activate<T, W, HL_ACTIVATION_XIELU>;
    case HL_ACTIVATION_SIGMOID:
        return activate<T, W, HL_ACTIVATION_SIGMOID>;
    case HL_ACTIVATION_SILU_SCALED:
        return activate<T, W, HL_ACTIVATION_SILU_SCALED>;
    default:
        return activate<T, W, HL_ACTIVATION_SWIGLU_CLAMPED>;
    }
}

/* Keeps what is above mean + deviations * standard deviation, one block per row, in place. */
template <typename T>
__global__ static void __launch_bounds__(ROW_THREADS)
    sparsify(T *x, int64_t stride, int n, float deviations)
{
    T    *row = x + blockIdx.x * stride;
    float sum = 0.0f, squares = 0.0f;

    for (int i = threadIdx.x; i < n; i += ROW_THREADS)
        sum += to_float(row[i]);
    float mean = sum_block(sum) / static_cast<float>(n);
    for (int i = threadIdx.x; i < n; i += ROW_THREADS)
        squares += (to_float(row[i]) - mean) * (to_float(row[i]) - mean);
    float cut = mean + deviations * sqrtf(sum_block(squares) / static_cast<float>(n));
    for (int i = threadIdx.x; i < n; i += ROW_THREADS)
        row[i] = from_float<T>(fmaxf(to_float(row[i]) - cut, 0.0f));
}

template <typename T> static void launch_activation(hl_device *device, const hl_device_activate &o)
{
    bool          wide    = is_wide({ o.out, o.gate, o.up }, { o.n, o.x_stride });
    int           n_parts = static_cast<int>(blocks_for(o.n, ROW_THREADS * (wide ? 8 : 1)));
    activate_rows a       = { o.gate, o.up, o.out, o.x_stride, {}, static_cast<int>(o.n), n_parts };
    auto          kernel =
        wide ? choose_activation<T, 8>(o.activation) : choose_activation<T, 1>(o.activation);

    for (int i = 0; i < HL_ACTIVATION_NUMBERS; i++)
        a.numbers.x[i] = o.numbers[i];
    if (o.is_sparse)
        sparsify<T><<<static_cast<unsigned>(o.n_rows), ROW_THREADS, 0, device->stream>>>(
            static_cast<T *>(const_cast<void *>(o.gate)), o.x_stride, static_cast<int>(o.n),
            o.deviations);
    kernel<<<static_cast<unsigned>(o.n_rows * n_parts), ROW_THREADS, 0, device->stream>>>(a);
}

hl_status op_activate(hl_device *device, const hl_device_activate *o)
{
    if (o->n_rows == 0 || o->n == 0)
        return HL_OK;
    if (o->dtype == HL_DTYPE_F32)
        launch_activation<float>(device, *o);
    else if (o->dtype == HL_DTYPE_BF16)
        launch_activation<__nv_bfloat16>(device, *o);
    else
        launch_activation<__half>(device, *o);
    return check(cudaGetLastError(), "an activation");
}

/* -------------------------------------------------------------------- embedding */

template <int W>
__device__ void add_table_row(float (&x)[W], const void *table, hl_dtype dtype, int64_t row,
                              int64_t n, int64_t at)
{
    float more[W];

    if (table == nullptr)
        return;
    load_some<W>(more, { const_cast<void *>(table), dtype }, row * n + at);
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] += more[i];
}

__device__ __forceinline__ int64_t table_row_of(const hl_device_embed &e, int64_t row)
{
    return e.n_known > 0 && e.tokens[row] >= e.n_known ? 0 : e.tokens[row];
}

template <int W>
__global__ static void __launch_bounds__(ROW_THREADS) embed(const hl_device_embed e)
{
    int64_t   row   = blockIdx.x;
    row_place place = place_of(e.places, row);
    span      out = { e.out, e.out_dtype }, base = { const_cast<void *>(e.base), e.dtype };
    span      table = { const_cast<void *>(e.table), e.dtype };

    if (!place.counts)
        return;
    for (int64_t at = threadIdx.x * W; at < e.n; at += ROW_THREADS * W) {
        float x[W];
        if (e.base != nullptr)
            load_some<W>(x, base, row * e.n + at);
        else
            load_some<W>(x, table, table_row_of(e, row) * e.n + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            x[i] = e.base != nullptr ? x[i] : x[i] * e.scale;
        add_table_row<W>(x, e.position_table, e.dtype, e.places.start[place.batch] + place.row, e.n,
                         at);
        add_table_row<W>(x, e.type_table, e.dtype, e.type_table != nullptr ? e.types[row] : 0, e.n,
                         at);
        store_some<W>(out, row * e.n + at, x);
    }
}

hl_status op_embed(hl_device *device, const hl_device_embed *o)
{
    int64_t n_rows = o->places.n_batch * o->places.batch_rows;
    bool wide = is_wide({ o->out, o->base, o->table, o->position_table, o->type_table }, { o->n });
    auto kernel = wide ? embed<8> : embed<1>;

    if (n_rows == 0)
        return HL_OK;
    kernel<<<static_cast<unsigned>(n_rows), ROW_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "an embedding");
}

/* ------------------------------------------------------------------------ copies */

template <int W>
__global__ static void __launch_bounds__(ROW_THREADS) copy_rows(const hl_device_copy_rows c)
{
    int64_t row  = blockIdx.x;
    int64_t from = c.index != nullptr ? c.index[row] : row;
    span    out = { c.out, c.out_dtype }, x = { const_cast<void *>(c.x), c.x_dtype };

    if (from < 0)
        return;
    for (int64_t at = threadIdx.x * W; at < c.n; at += ROW_THREADS * W) {
        float values[W];
        load_some<W>(values, x, from * c.x_stride + at);
        for (const void *add : c.add) {
            float more[W];
            if (add == nullptr)
                continue;
            load_some<W>(more, span_of(add, c.add_dtype), from * c.x_stride + at);
#pragma unroll
            for (int i = 0; i < W; i++)
                values[i] = fmaf(c.add_scale, more[i], values[i]);
        }
        store_some<W>(out, row * c.out_stride + at, values);
    }
}

hl_status op_copy_rows(hl_device *device, const hl_device_copy_rows *o)
{
    bool wide =
        is_wide({ o->out, o->x, o->add[0], o->add[1] }, { o->n, o->out_stride, o->x_stride });
    auto kernel = wide ? copy_rows<8> : copy_rows<1>;

    if (o->n_rows == 0)
        return HL_OK;
    kernel<<<static_cast<unsigned>(o->n_rows), ROW_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "a copy of rows");
}

__global__ static void __launch_bounds__(ROW_THREADS) add_gated(const hl_device_add_gated a)
{
    int64_t row    = blockIdx.x;
    float   weight = a.logit != nullptr ? sigmoid(a.logit[row]) : 1.0f;
    span    out = { a.out, a.dtype }, x = { const_cast<void *>(a.x), a.dtype };

    for (int64_t at = threadIdx.x; at < a.n; at += ROW_THREADS) {
        float sum[1], more[1];
        load_some<1>(sum, out, row * a.n + at);
        load_some<1>(more, x, row * a.n + at);
        sum[0] = fmaf(weight, more[0], sum[0]);
        store_some<1>(out, row * a.n + at, sum);
    }
}

hl_status op_add_gated(hl_device *device, const hl_device_add_gated *o)
{
    if (o->n_rows == 0)
        return HL_OK;
    add_gated<<<static_cast<unsigned>(o->n_rows), ROW_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "a gated sum");
}

/* -------------------------------------------------------------- several streams */

/* One block per row.  Coefficients are computed first, by one thread each. */
__global__ static void __launch_bounds__(ROW_THREADS) mix_streams(const hl_device_streams s)
{
    __shared__ float c[HL_MAX_STREAMS * HL_MAX_STREAMS];
    int64_t          row = blockIdx.x;
    int              m   = static_cast<int>(s.n_streams);
    int              n_c = s.corrects ? m : m * m;
    span             out = { s.out, s.dtype };

    if (static_cast<int>(threadIdx.x) < n_c) {
        float sum = 0.0f;

        for (int j = 0; j < m; j++)
            sum = fmaf(s.weight[threadIdx.x * m + j], tanhf(s.logits[row * m + j]), sum);
        c[threadIdx.x] = sum;
    }
    __syncthreads();
    for (int64_t at = row * s.n + threadIdx.x; at < (row + 1) * s.n; at += ROW_THREADS) {
        float before[HL_MAX_STREAMS];

#pragma unroll
        for (int b = 0; b < HL_MAX_STREAMS; b++)
            before[b] = b < m ? s.x[b * s.stride + at] : 0.0f;
        float kept = s.corrects ? s.kept[at] : 0.0f, change = before[0] - kept;
        if (s.corrects)
            before[0] = kept;
        for (int a = 0; a < m; a++) {
            float sum = s.corrects ? (1.0f + c[a]) * change : 0.0f;

#pragma unroll
            for (int b = 0; b < HL_MAX_STREAMS; b++) {
                if (b < m && !s.corrects)
                    sum = fmaf(c[a * m + b], before[b], sum);
                if (b == a)
                    sum += before[b];
            }
            s.x[a * s.stride + at] = sum;
            if (a > 0)
                continue;
            if (!s.corrects)
                s.kept[at] = sum;
            if (s.out != nullptr) {
                float scaled[1] = { sum * (s.scale != nullptr ? s.scale[at - row * s.n] : 1.0f) };
                store_some<1>(out, at, scaled);
            }
        }
    }
}

hl_status op_streams(hl_device *device, const hl_device_streams *o)
{
    int64_t n_rows = o->places.n_batch * o->places.batch_rows;

    if (n_rows == 0)
        return HL_OK;
    mix_streams<<<static_cast<unsigned>(n_rows), ROW_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "a mix of streams");
}

__global__ static void __launch_bounds__(ROW_THREADS) match_rows(const hl_device_match m)
{
    int64_t first = blockIdx.x * m.n, end = first + m.n;
    float   own = 0.0f, other = 0.0f;

    for (int64_t at = first + threadIdx.x; at < end; at += ROW_THREADS) {
        own   = fmaf(m.x[at], m.x[at], own);
        other = fmaf(m.like[at], m.like[at], other);
    }
    float n      = static_cast<float>(m.n);
    float square = fmaxf(sum_block(own) / n, 1e-5f);
    float factor = sqrtf(sum_block(other) / n / square);
    for (int64_t at = first + threadIdx.x; at < end; at += ROW_THREADS)
        m.out[at] = fmaf(factor, m.x[at], m.adds ? m.out[at] : 0.0f);
}

hl_status op_match(hl_device *device, const hl_device_match *o)
{
    int64_t n_rows = o->places.n_batch * o->places.batch_rows;

    if (n_rows == 0)
        return HL_OK;
    match_rows<<<static_cast<unsigned>(n_rows), ROW_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "a match of streams");
}

} // namespace headlight
