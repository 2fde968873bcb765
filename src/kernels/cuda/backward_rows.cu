/* backward_rows.cu - the rows' numbers, the heads' sums, and working memory. */
#include "kernels/cuda/backward_rows.cuh"

#include <mutex>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/plain_row.cuh"
#include "kernels/cuda/portable_ptx.cuh"

namespace headlight
{

/* ------------------------------------------------------------- working memory */

constexpr int MOST_DEVICES = 64;

/* A memory pool for the current device, which returns nothing to the driver. */
static hl_status current_pool(cudaMemPool_t *out)
{
    static std::mutex           mutex;
    static cudaMemPool_t        pools[MOST_DEVICES];
    std::lock_guard<std::mutex> lock(mutex);
    int                         device;
    uint64_t                    everything = UINT64_MAX;
    cudaMemPoolProps            properties = {};

    HL_CUDA_TRY(check(cudaGetDevice(&device), "the current device"));
    if (device >= MOST_DEVICES)
        return fail(HL_LIMIT, "device %d; the gradient is for the first %d", device, MOST_DEVICES);
    if (pools[device] == nullptr) {
        properties.allocType     = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id   = device;
        HL_CUDA_TRY(check(cudaMemPoolCreate(&pools[device], &properties), "a pool of memory"));
        HL_CUDA_TRY(check(
            cudaMemPoolSetAttribute(pools[device], cudaMemPoolAttrReleaseThreshold, &everything),
            "a pool of memory"));
    }
    *out = pools[device];
    return HL_OK;
}

hl_status workspace::open(size_t n_bytes)
{
    cudaMemPool_t pool   = nullptr;
    void         *memory = nullptr;

    HL_CUDA_TRY(current_pool(&pool));
    HL_CUDA_TRY(
        check(cudaMallocFromPoolAsync(&memory, n_bytes, pool, stream), "memory for the gradient"));
    base    = static_cast<char *>(memory);
    n_taken = 0;
    return HL_OK;
}

workspace::~workspace()
{
    if (base != nullptr)
        cudaFreeAsync(base, stream);
}

/* ------------------------------------------------------------- what is taken */

const char *rows_refuse(const problem &p, const hl_attention_gradient &gradient,
                        const hl_attention_upstream &upstream)
{
    int64_t n_row_blocks =
        (p.n_queries + int64_t{ BLOCK_ROWS } - 1) / BLOCK_ROWS * p.n_batch * p.n_heads;

    if (!are_half({ p.q, p.k, p.v, upstream.grad_out, gradient.dq, gradient.dk, gradient.dv }) ||
        (upstream.grad_out.data != nullptr && upstream.out.dtype != p.q.dtype))
        return "types other than bf16 or fp16 throughout";
    if (n_row_blocks > INT32_MAX ||
        p.n_batch * static_cast<int64_t>(p.n_kv_heads) * ((p.n_keys + int64_t{ 63 }) / 64) >
            INT32_MAX)
        return "2^31 blocks of queries or keys";
    return nullptr;
}

/* ----------------------------------------------------------------------- rows */

constexpr int ROW_LANES   = 16; /* lanes that share a row */
constexpr int ROW_THREADS = 256;

template <typename T> __device__ static float dot8(uint4 a, uint4 b)
{
    const uint32_t left[4] = { a.x, a.y, a.z, a.w }, right[4] = { b.x, b.y, b.z, b.w };
    float          sum = 0.0f;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 l = ptx::unpack<T>(left[i]), r = ptx::unpack<T>(right[i]);
        sum = fmaf(l.x, r.x, fmaf(l.y, r.y, sum));
    }
    return sum;
}

/* A lane's share of dO.out. */
template <typename T>
__device__ static float delta_share(const problem &p, const hl_attention_upstream &u, int batch,
                                    int head, int row, bool wide)
{
    const T *a = static_cast<const T *>(u.grad_out.data) + row_offset(u.grad_out, batch, head, row);
    const T *b = static_cast<const T *>(u.out.data) + row_offset(u.out, batch, head, row);
    int      lane = threadIdx.x % ROW_LANES;
    float    sum  = 0.0f;

    for (int d = 8 * lane; wide && d < p.d_value; d += 8 * ROW_LANES)
        sum += dot8<T>(*reinterpret_cast<const uint4 *>(a + d),
                       *reinterpret_cast<const uint4 *>(b + d));
    for (int d = lane; !wide && d < p.d_value; d += ROW_LANES)
        sum = fmaf(static_cast<float>(a[d]), static_cast<float>(b[d]), sum);
    return sum;
}

/* The values of a row; the initial values are those of a row that sees nothing. */
struct row_terms {
    float lse = NO_KEYS, constant = 0, slope = 0, sink = 0;

    __device__ void fill(const problem &p, const hl_attention_upstream &u, int64_t index, int head,
                         float delta)
    {
        float nats = u.lse[index];
        if (nats == -INFINITY)
            return;
        float g_lse     = u.grad_lse != nullptr ? u.grad_lse[index] : 0.0f;
        float g_entropy = u.grad_entropy != nullptr ? u.grad_entropy[index] : 0.0f;
        float entropy   = u.grad_entropy != nullptr ? u.entropy[index] : 0.0f;
        lse             = nats * LOG2_E;
        constant        = g_lse - delta - g_entropy * entropy;
        slope           = -g_entropy * LN_2;
        if (p.sinks != nullptr) {
            float x = p.sinks[head] * LOG2_E - lse;
            sink    = exp2f(x) * fmaf(slope, x, constant);
        }
    }
};

/* One block of threads per block of rows, 16 lanes per row. */
template <typename T>
__global__ static void __launch_bounds__(ROW_THREADS)
    backward_row_numbers(const __grid_constant__ problem          p,
                         const __grid_constant__ backward_problem b, const bool wide)
{
    int        block = static_cast<int>(blockIdx.x) % b.n_row_blocks;
    int        head  = static_cast<int>(blockIdx.x) / b.n_row_blocks % p.n_heads;
    int        batch = static_cast<int>(blockIdx.x) / b.n_row_blocks / p.n_heads;
    row_block &out   = b.rows[blockIdx.x];

    for (int r = threadIdx.x / ROW_LANES; r < BLOCK_ROWS; r += ROW_THREADS / ROW_LANES) {
        int       row    = block * BLOCK_ROWS + r;
        int64_t   index  = row_index(p, batch, head, row);
        bool      exists = row < p.n_queries;
        row_terms terms;
        float     delta = 0.0f;
        if (exists && b.upstream.grad_out.data != nullptr)
            delta = delta_share<T>(p, b.upstream, batch, head, row, wide);
        for (int step = ROW_LANES / 2; step > 0; step /= 2)
            delta += __shfl_xor_sync(~0u, delta, step);
        if (threadIdx.x % ROW_LANES != 0)
            continue;
        if (exists)
            terms.fill(p, b.upstream, index, head, delta);
        float *pair = reinterpret_cast<float *>(&out.terms[r / 2]) + r % 2;
        out.lse[r]  = terms.lse;
        pair[0]     = terms.constant;
        pair[2]     = terms.slope;
        if (b.sinks != nullptr)
            b.sinks[int64_t{ blockIdx.x } * BLOCK_ROWS + r] = terms.sink;
    }
}

hl_status launch_rows(const problem &p, const backward_problem &b, cudaStream_t stream)
{
    unsigned n_blocks = static_cast<unsigned>(p.n_batch * p.n_heads * b.n_row_blocks);
    bool     wide =
        on_16_bytes(b.upstream.grad_out) && on_16_bytes(b.upstream.out) && p.d_value % 8 == 0;

    if (n_blocks == 0)
        return HL_OK;
    return for_half(p.q.dtype, [&](auto type) {
        backward_row_numbers<decltype(type)><<<n_blocks, ROW_THREADS, 0, stream>>>(p, b, wide);
        return check(cudaGetLastError(), "the gradient's rows");
    });
}

/* ----------------------------------------------------------------------- heads */

/* out (n_heads) = the sums of shares (n_batch, n_heads, n_shares), added in a fixed order. */
constexpr int SUM_THREADS = 1024;

__global__ static void __launch_bounds__(SUM_THREADS)
    head_sums(float *out, const float *shares, int64_t n_shares, int n_batch)
{
    __shared__ double partial[SUM_THREADS / 32];
    double            total = 0.0;
    int               lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    for (int batch = 0; batch < n_batch; batch++) {
        int64_t first = (static_cast<int64_t>(batch) * gridDim.x + blockIdx.x) * n_shares;
        for (int64_t i = threadIdx.x; i < n_shares; i += SUM_THREADS)
            total += shares[first + i];
    }
    total = warp_sum(total);
    if (lane == 0)
        partial[warp] = total;
    __syncthreads();
    if (warp == 0) {
        total = warp_sum(partial[lane]);
        if (lane == 0)
            out[blockIdx.x] = static_cast<float>(total);
    }
}

hl_status launch_heads(const problem &p, const backward_problem &b, const float *gates,
                       int64_t n_gates, cudaStream_t stream)
{
    int64_t n_sinks = int64_t{ BLOCK_ROWS } * b.n_row_blocks;
    float  *dsinks  = b.gradient.dsinks;

    if (b.gradient.dgates != nullptr)
        head_sums<<<p.n_heads, SUM_THREADS, 0, stream>>>(b.gradient.dgates, gates, n_gates,
                                                         p.n_batch);
    if (dsinks != nullptr && b.sinks != nullptr)
        head_sums<<<p.n_heads, SUM_THREADS, 0, stream>>>(dsinks, b.sinks, n_sinks, p.n_batch);
    if (dsinks != nullptr && b.sinks == nullptr)
        HL_CUDA_TRY(
            check(cudaMemsetAsync(dsinks, 0, p.n_heads * sizeof *dsinks, stream), "dsinks"));
    return check(cudaGetLastError(), "the gradient's sums");
}

} // namespace headlight
