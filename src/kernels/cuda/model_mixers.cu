/* model_mixers.cu - mixers with a state: convolutions, recurrences and their gates.
 *
 * The operations of kernels/device.h; dense_scalar.c has their definitions.
 *
 *     conv   a thread per channel and run of rows; the first run of a sequence writes its state
 *     scan   eight lanes per column of a state, which stays in their registers for all rows
 *     gate   a warp, or for wide groups a block, per group of a row
 *
 * States and sums are f32 whatever T is. */
#include "kernels/cuda/model.cuh"

namespace headlight
{

/* Element `at` of rows of f32, bf16 or f16. */
__device__ __forceinline__ float load_one(const void *data, hl_dtype dtype, int64_t at)
{
    float x[1];

    load_some<1>(x, span_of(data, dtype), at);
    return x[0];
}

__device__ __forceinline__ void store_one(void *data, hl_dtype dtype, int64_t at, float value)
{
    float x[1] = { value };

    store_some<1>(span_of(data, dtype), at, x);
}

__device__ __forceinline__ float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* -------------------------------------------------------------- convolutions */

constexpr int CONV_THREADS = 128;
constexpr int CONV_ROWS    = 32; /* rows of a run */

/* Input `row` of the sequence whose rows begin at `first`; negative rows are in its state. */
__device__ __forceinline__ float conv_input(const hl_device_conv &c, const float *state,
                                            bool begins, int64_t first, int64_t row, int64_t i)
{
    if (row < 0)
        return begins ? 0.0f : state[(row + c.width - 1) * c.n + i];
    int64_t at = (first + row) * c.x_stride + i;
    float   x  = load_one(c.x, c.dtype, at);

    return c.times != nullptr ? x * load_one(c.times, c.dtype, at) : x;
}

__global__ static void __launch_bounds__(CONV_THREADS) conv(const hl_device_conv c)
{
    int64_t i      = static_cast<int64_t>(blockIdx.x) * CONV_THREADS + threadIdx.x;
    int64_t b      = blockIdx.z;
    int64_t row    = static_cast<int64_t>(blockIdx.y) * CONV_ROWS;
    int64_t n_rows = c.places.lengths[b];
    int64_t first  = b * c.places.batch_rows;
    int     before = static_cast<int>(c.width) - 1;
    bool    begins = c.places.start[b] == 0;
    float  *state  = c.state + c.places.sequences[b] * c.stride;
    float   weight[HL_MAX_CONV], last[HL_MAX_CONV];

    if (i >= c.n || row >= n_rows)
        return;
#pragma unroll
    for (int j = 0; j < HL_MAX_CONV; j++) {
        weight[j] = j <= before ? c.weight[j * c.n + i] : 0.0f;
        last[j]   = j < before ? conv_input(c, state, begins, first, row - before + j, i) : 0.0f;
    }
    float bias = c.bias != nullptr ? c.bias[i] : 0.0f;
    for (int64_t end = min(row + CONV_ROWS, n_rows); row < end; row++) {
        float sum  = bias;
        float next = conv_input(c, state, begins, first, row, i);

#pragma unroll
        for (int j = 0; j < HL_MAX_CONV; j++) {
            if (j == before)
                last[j] = next;
            sum = fmaf(weight[j], j <= before ? last[j] : 0.0f, sum);
        }
        if (c.is_silu)
            sum *= logistic(sum);
        if (c.after != nullptr)
            sum *= load_one(c.after, c.dtype, (first + row) * c.x_stride + i);
        store_one(c.out, c.dtype, (first + row) * c.n + i, sum);
#pragma unroll
        for (int j = 0; j + 1 < HL_MAX_CONV; j++)
            last[j] = last[j + 1];
    }
    if (blockIdx.y > 0)
        return;
    /* Only this thread reads these entries of the state, so that it can replace them now. */
#pragma unroll
    for (int j = 0; j < HL_MAX_CONV; j++)
        last[j] = j < before ? conv_input(c, state, begins, first, n_rows - before + j, i) : 0.0f;
#pragma unroll
    for (int j = 0; j < HL_MAX_CONV; j++) {
        if (j < before)
            state[j * c.n + i] = last[j];
    }
}

hl_status op_conv(hl_device *device, const hl_device_conv *o)
{
    dim3 blocks(blocks_for(o->n, CONV_THREADS), blocks_for(o->places.batch_rows, CONV_ROWS),
                static_cast<unsigned>(o->places.n_batch));

    if (o->n == 0 || o->places.batch_rows == 0 || o->places.n_batch == 0)
        return HL_OK;
    if (blocks.y > 65535 || blocks.z > 65535)
        return fail(HL_LIMIT, "a convolution of %lld sequences of %lld rows",
                    static_cast<long long>(o->places.n_batch),
                    static_cast<long long>(o->places.batch_rows));
    conv<<<blocks, CONV_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "a convolution");
}

/* --------------------------------------------------------------- recurrences */

constexpr int SCAN_LANES   = 8; /* of a column */
constexpr int SCAN_COLUMNS = 16;
constexpr int SCAN_THREADS = SCAN_LANES * SCAN_COLUMNS;
constexpr int SCAN_ROWS    = 16; /* rows that are loaded at a time */

/* The sum over a column's lanes, in each of them. */
__device__ __forceinline__ float sum_column(float x)
{
#pragma unroll
    for (int step = SCAN_LANES / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* A run of rows, as the recurrence reads them. */
template <int STATE> struct scan_tile {
    float k[SCAN_ROWS][STATE];
    float q[SCAN_ROWS][STATE];
    float x[SCAN_ROWS][SCAN_COLUMNS];
    float dt[SCAN_ROWS][SCAN_COLUMNS]; /* CHANNEL: of each column; else the first is of all */
    float decay[SCAN_ROWS];
    float put[SCAN_ROWS];    /* DELTA: sigmoid(beta) / |k| */
    float k_size[SCAN_ROWS]; /* DELTA: 1 / |k| */
    float q_size[SCAN_ROWS]; /* DELTA: 1 / (|q| sqrt(d_state)) */
};

__device__ __forceinline__ float scan_step(const hl_device_scan &s, int64_t row, int64_t j)
{
    float x = s.dt_scale * load_one(s.dt, s.dtype, row * s.dt_stride + j);

    x += s.dt_bias != nullptr ? s.dt_bias[j] : 0.0f;
    x = x > 20.0f ? x : log1pf(expf(x));
    return fminf(fmaxf(x, s.dt_low), s.dt_high);
}

/* Loads rows [row, row + n) of head `head`, and the numbers that all entries of a state share. */
template <int STATE>
__device__ void load_tile(scan_tile<STATE> &t, const hl_device_scan &s, int64_t row, int n,
                          int64_t head, int64_t column)
{
    int64_t group = s.is_tiled ? head % s.n_groups : head / (s.n_heads / s.n_groups);
    bool    each  = s.kind == HL_SCAN_CHANNEL;
    int     size  = static_cast<int>(s.d_state);

    for (int i = threadIdx.x; i < n * size; i += SCAN_THREADS) {
        int64_t at = (row + i / size) * s.k_stride + group * size + i % size;

        t.k[i / size][i % size] = load_one(s.k, s.dtype, at);
        t.q[i / size][i % size] = load_one(s.q, s.dtype, at);
    }
    for (int i = threadIdx.x; i < n * SCAN_COLUMNS; i += SCAN_THREADS) {
        int64_t at = row + i / SCAN_COLUMNS, j = column + i % SCAN_COLUMNS;

        if (j >= s.d_head)
            continue;
        t.x[i / SCAN_COLUMNS][i % SCAN_COLUMNS] =
            load_one(s.x, s.dtype, at * s.x_stride + head * s.d_head + j);
        if (each)
            t.dt[i / SCAN_COLUMNS][i % SCAN_COLUMNS] = scan_step(s, at, j);
    }
    for (int i = threadIdx.x; i < n && !each; i += SCAN_THREADS) {
        float dt   = scan_step(s, row + i, head);
        t.dt[i][0] = dt;
        t.decay[i] = expf(s.a[head] * dt);
    }
    __syncthreads();
    if (s.kind != HL_SCAN_DELTA)
        return;
    /* A warp per row. */
    for (int i = threadIdx.x / 32; i < n; i += SCAN_THREADS / 32) {
        float k = 0.0f, q = 0.0f;

        for (int j = threadIdx.x % 32; j < size; j += 32) {
            k = fmaf(t.k[i][j], t.k[i][j], k);
            q = fmaf(t.q[i][j], t.q[i][j], q);
        }
        k = 1.0f / sqrtf(sum_warp(k) + 1e-6f);
        q = 1.0f / sqrtf(sum_warp(q) + 1e-6f);
        if (threadIdx.x % 32 == 0) {
            t.k_size[i] = k;
            t.q_size[i] = q / sqrtf(static_cast<float>(size));
            t.put[i]    = k * logistic(load_one(s.beta, s.dtype, (row + i) * s.beta_stride + head));
        }
    }
    __syncthreads();
}

/* A block has some columns of the state of one head of one sequence; lane `lane` of a column has its
 * entries lane, lane + SCAN_LANES, ... */
template <hl_scan_kind KIND, int STATE>
__global__ static void __launch_bounds__(SCAN_THREADS) scan(const hl_device_scan s)
{
    constexpr int N = STATE / SCAN_LANES;
    extern __shared__ char    shared[];
    scan_tile<STATE>         &t = *reinterpret_cast<scan_tile<STATE> *>(shared);

    int     lane   = threadIdx.x % SCAN_LANES;
    int     local  = threadIdx.x / SCAN_LANES;
    int64_t column = static_cast<int64_t>(blockIdx.x) * SCAN_COLUMNS;
    int64_t j      = column + local;
    int64_t head   = blockIdx.y;
    int64_t b      = blockIdx.z;
    int64_t first  = b * s.places.batch_rows;
    int64_t n_rows = s.places.lengths[b];
    bool    is_in  = j < s.d_head;
    float  *state  = s.state + s.places.sequences[b] * s.stride + head * s.d_state * s.d_head + j;
    float   S[N], a[KIND == HL_SCAN_CHANNEL ? N : 1];
    float   skip   = 0.0f;

    if (n_rows == 0)
        return;
    if (s.skip != nullptr && is_in)
        skip = s.skip[KIND == HL_SCAN_CHANNEL ? j : head];
#pragma unroll
    for (int e = 0; e < N; e++) {
        int  i    = lane + e * SCAN_LANES;
        bool here = is_in && i < s.d_state;

        S[e] = here && s.places.start[b] != 0 ? state[i * s.d_head] : 0.0f;
        if (KIND == HL_SCAN_CHANNEL)
            a[e] = here ? s.a[i * s.d_head + j] : 0.0f;
    }
    for (int64_t row = 0; row < n_rows; row += SCAN_ROWS) {
        int n = static_cast<int>(min(static_cast<int64_t>(SCAN_ROWS), n_rows - row));

        __syncthreads(); /* the tile before has been read */
        load_tile<STATE>(t, s, first + row, n, head, column);
        for (int r = 0; r < n; r++) {
            float x = is_in ? t.x[r][local] : 0.0f, put, sum = 0.0f;

            if (KIND == HL_SCAN_DELTA) {
                float had = 0.0f;
#pragma unroll
                for (int e = 0; e < N; e++) {
                    int   i = lane + e * SCAN_LANES;
                    float k = i < s.d_state ? t.k[r][i] : 0.0f;

                    S[e] *= t.decay[r];
                    had = fmaf(k, S[e], had);
                }
                put = (x - t.k_size[r] * sum_column(had)) * t.put[r];
            } else {
                put = x * t.dt[r][KIND == HL_SCAN_CHANNEL ? local : 0];
            }
#pragma unroll
            for (int e = 0; e < N; e++) {
                int   i = lane + e * SCAN_LANES;
                float k = i < s.d_state ? t.k[r][i] : 0.0f;
                float q = i < s.d_state ? t.q[r][i] : 0.0f;

                if (KIND == HL_SCAN_SSM)
                    S[e] *= t.decay[r];
                if (KIND == HL_SCAN_CHANNEL)
                    S[e] *= is_in ? expf(a[e] * t.dt[r][local]) : 0.0f;
                S[e] = fmaf(k, put, S[e]);
                sum  = fmaf(q, S[e], sum);
            }
            sum = sum_column(sum);
            sum = KIND == HL_SCAN_DELTA ? sum * t.q_size[r] : fmaf(skip, x, sum);
            if (lane == 0 && is_in)
                store_one(s.out, s.dtype, ((first + row + r) * s.n_heads + head) * s.d_head + j,
                          sum);
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++) {
        int i = lane + e * SCAN_LANES;

        if (is_in && i < s.d_state)
            state[i * s.d_head] = S[e];
    }
}

template <hl_scan_kind KIND, int STATE>
static hl_status launch_scan(hl_device *device, const hl_device_scan &o)
{
    dim3   blocks(blocks_for(o.d_head, SCAN_COLUMNS), static_cast<unsigned>(o.n_heads),
                  static_cast<unsigned>(o.places.n_batch));
    size_t n_bytes = sizeof(scan_tile<STATE>);
    auto   kernel  = scan<KIND, STATE>;

    if (blocks.y > 65535 || blocks.z > 65535)
        return fail(HL_LIMIT, "a recurrence of %lld sequences",
                    static_cast<long long>(o.places.n_batch));
    if (n_bytes > 48 * 1024)
        HL_CUDA_TRY(check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(n_bytes)),
                          "shared memory for a recurrence"));
    kernel<<<blocks, SCAN_THREADS, n_bytes, device->stream>>>(o);
    return check(cudaGetLastError(), "a recurrence");
}

template <hl_scan_kind KIND>
static hl_status launch_kind(hl_device *device, const hl_device_scan &o)
{
    if (o.d_state <= 16)
        return launch_scan<KIND, 16>(device, o);
    if (o.d_state <= 64)
        return launch_scan<KIND, 64>(device, o);
    if (o.d_state <= 128)
        return launch_scan<KIND, 128>(device, o);
    return launch_scan<KIND, HL_MAX_STATE>(device, o);
}

hl_status op_scan(hl_device *device, const hl_device_scan *o)
{
    if (o->places.n_batch == 0 || o->places.batch_rows == 0)
        return HL_OK;
    if (o->kind == HL_SCAN_SSM)
        return launch_kind<HL_SCAN_SSM>(device, *o);
    if (o->kind == HL_SCAN_DELTA)
        return launch_kind<HL_SCAN_DELTA>(device, *o);
    return launch_kind<HL_SCAN_CHANNEL>(device, *o);
}

/* --------------------------------------------------------------------- gates */

constexpr int GATE_THREADS = 256;
constexpr int GATE_WIDE    = 512; /* wider groups have a block of their own */

__device__ __forceinline__ float gate_of(const hl_device_gate &g, int64_t row, int64_t i)
{
    if (g.z == nullptr)
        return 1.0f;
    float z = g.z_scale * load_one(g.z, g.dtype, row * g.z_stride + i);

    return g.activation == HL_ACTIVATION_SIGMOID ? logistic(z) : z * logistic(z);
}

/* Group `group` of a row, by `n` threads of which this is `at`. */
template <bool WIDE>
__device__ void gate_group(const hl_device_gate &g, int64_t row, int64_t group, int at, int n)
{
    float size = 1.0f;

    if (g.has_norm) {
        float sum = 0.0f;

        for (int64_t i = group * g.d_group + at; i < (group + 1) * g.d_group; i += n) {
            float x = load_one(g.x, g.dtype, row * g.x_stride + i);

            x = g.norm_first ? x : x * gate_of(g, row, i);
            sum = fmaf(x, x, sum);
        }
        sum  = WIDE ? sum_block(sum) : sum_warp(sum);
        size = 1.0f / sqrtf(sum / static_cast<float>(g.d_group) + g.eps);
    }
    for (int64_t i = group * g.d_group + at; i < (group + 1) * g.d_group; i += n) {
        float x = load_one(g.x, g.dtype, row * g.x_stride + i) * gate_of(g, row, i) * size;

        if (g.has_norm && g.weight != nullptr)
            x *= g.weight[g.is_shared ? i - group * g.d_group : i];
        store_one(g.out, g.dtype, row * g.n + i, g.scale * x);
    }
}

template <bool WIDE>
__global__ static void __launch_bounds__(GATE_THREADS) gate(const hl_device_gate g)
{
    int64_t n_groups = g.n / g.d_group;
    int64_t item     = WIDE ? static_cast<int64_t>(blockIdx.x)
                            : static_cast<int64_t>(blockIdx.x) * (GATE_THREADS / 32) + threadIdx.x / 32;
    int64_t row      = item / n_groups;

    if (row >= g.n_rows || !place_of(g.places, row).counts)
        return;
    gate_group<WIDE>(g, row, item % n_groups, WIDE ? threadIdx.x : threadIdx.x % 32,
                     WIDE ? GATE_THREADS : 32);
}

hl_status op_gate(hl_device *device, const hl_device_gate *o)
{
    hl_device_gate g = *o;

    if (o->n_rows == 0 || o->n == 0)
        return HL_OK;
    if (!g.has_norm) /* any division serves */
        g.d_group = g.n;
    int64_t n_items = g.n_rows * (g.n / g.d_group);
    if (g.d_group > GATE_WIDE)
        gate<true><<<static_cast<unsigned>(n_items), GATE_THREADS, 0, device->stream>>>(g);
    else
        gate<false><<<blocks_for(n_items, GATE_THREADS / 32), GATE_THREADS, 0, device->stream>>>(g);
    return check(cudaGetLastError(), "a gate");
}

} // namespace headlight
