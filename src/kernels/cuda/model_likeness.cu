/* model_likeness.cu - what heads write and how alike they are (hl_likeness of kernels/row_sums.h).
 *
 * This is little work compared with a layer's products and runs in a lane, beside the layers that
 * follow; only the comparison of the stream's rows runs in order.  Products are in float.  The
 * lanes of a warp always add in the same order and end in double, so that a number depends on its
 * own rows alone. */
#include "kernels/cuda/model.cuh"
#include "kernels/likeness.h"

namespace headlight
{

/* a . b of n elements, in every lane of a warp. */
__device__ static double dot(const float *a, const float *b, int64_t n)
{
    float sum = 0.0f;

    for (int64_t i = threadIdx.x % 32; i < n; i += 32)
        sum = fmaf(a[i], b[i], sum);
    return sum_warp<double>(sum);
}

/* -------------------------------------------------------------------- the stream */

constexpr int FOLLOW_THREADS = 256;

/* The sum over a block, in its first thread. */
__device__ static double sum_threads(double value)
{
    __shared__ double parts[FOLLOW_THREADS / 32];

    value = sum_warp<double>(value);
    __syncthreads(); /* the previous sum has been read */
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int i = 1; i < FOLLOW_THREADS / 32; i++)
        value += parts[i];
    return value;
}

/* One block per row. */
__global__ static void __launch_bounds__(FOLLOW_THREADS) follow(const hl_device_follow f)
{
    float       *kept  = f.kept + blockIdx.x * f.n;
    const float *x     = f.x + blockIdx.x * f.n;
    float        both  = 0.0f;
    float        olds  = 0.0f;
    float        fresh = 0.0f;

    if (f.index[blockIdx.x] < 0)
        return;
    for (int64_t i = threadIdx.x; i < f.n; i += FOLLOW_THREADS) {
        float before = kept[i], after = x[i];

        both    = fmaf(before, after, both);
        olds    = fmaf(before, before, olds);
        fresh   = fmaf(after, after, fresh);
        kept[i] = after;
    }
    if (f.influence == nullptr)
        return;
    double product = sum_threads(both), a = sum_threads(olds), b = sum_threads(fresh);
    if (threadIdx.x == 0)
        f.influence[blockIdx.x] = hl_block_influence(product, a, b);
}

hl_status op_follow(hl_device *device, const hl_device_follow *f)
{
    if (f->n_rows == 0)
        return HL_OK;
    follow<<<static_cast<unsigned>(f->n_rows), FOLLOW_THREADS, 0, device->stream>>>(*f);
    return check(cudaGetLastError(), "the stream before and after a block");
}

/* ----------------------------------------------------------------------- outputs */

constexpr int OUTPUT_THREADS = 256;
constexpr int OUTPUT_WARPS   = OUTPUT_THREADS / 32;
constexpr int ROWS_AT_ONCE   = 8; /* rows of y per thread */

/* The size of a prepared kernel, rounded up so that the next part is aligned to sixteen bytes. */
__host__ __device__ inline int64_t even_size(const hl_device_outputs &o)
{
    return (hl_kernel_size(o.kernel_rows) + 1) / 2 * 2;
}

/* The number of rows of a sequence, and the number compared; each warp counts them.  If `at` is not
 * NULL, at[i] gets the index of row i. */
struct row_counts {
    int n, n_kernel, step;

    __device__ row_counts(const hl_device_outputs &o, int64_t sequence, int *at) : n(0)
    {
        int lane = threadIdx.x % 32;

        for (int64_t first = 0; first < o.n_sampled; first += 32) {
            int64_t  i    = first + lane;
            bool     has  = i < o.n_sampled && o.index[sequence * o.n_sampled + i] >= 0;
            unsigned mask = __ballot_sync(~0u, has);

            if (has && at != nullptr)
                at[n + __popc(mask & ((1u << lane) - 1))] = static_cast<int>(i);
            n += __popc(mask);
        }
        n_kernel = n < o.kernel_rows ? n : static_cast<int>(o.kernel_rows);
        step     = n_kernel > 0 ? n / n_kernel : 1;
    }
};

/* Copies z of the n rows of a sequence, one after the other. */
__device__ static void gather_z(float *z, const int *at, int n, const hl_device_outputs &o,
                                int64_t sequence, int64_t head)
{
    int d = static_cast<int>(o.d_head);

    __syncthreads(); /* `at` is complete */
    for (int i = threadIdx.x; i < n * d; i += OUTPUT_THREADS)
        z[i] = o.z[((sequence * o.n_sampled + at[i / d]) * o.n_heads + head) * d + i % d];
    __syncthreads();
}

/* y = z G, for W elements of z at a time.  A thread computes one column of several rows, so that G
 * is read in order and once for these rows. */
template <int W>
__device__ static void multiply(float *y, const float *z, const float *gram, int n_rows, int d)
{
    struct alignas(W * sizeof(float)) some {
        float x[W];
    };
    int n_groups = (n_rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;

    for (int item = threadIdx.x; item < n_groups * d; item += OUTPUT_THREADS) {
        int   column = item % d, first = item / d * ROWS_AT_ONCE;
        float sums[ROWS_AT_ONCE] = {};

#pragma unroll 4
        for (int k = 0; k < d; k += W) {
            float g[W];
            for (int j = 0; j < W; j++)
                g[j] = gram[(k + j) * d + column];
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) {
                int  row = first + i < n_rows ? first + i : 0;
                some own = *reinterpret_cast<const some *>(z + row * d + k);
                for (int j = 0; j < W; j++)
                    sums[i] = fmaf(own.x[j], g[j], sums[i]);
            }
        }
        for (int i = 0; i < ROWS_AT_ONCE && first + i < n_rows; i++)
            y[(first + i) * d + column] = sums[i];
    }
    __syncthreads();
}

/* Computes the kernel (n, n), not prepared, with one warp per entry. */
__device__ static void make_kernel(double *out, const float *y, const float *z,
                                   const row_counts &rows, int64_t d)
{
    int n = rows.n_kernel;

    for (int entry = threadIdx.x / 32; entry < n * n; entry += OUTPUT_WARPS) {
        int i = entry / n, j = entry % n;
        if (j > i)
            continue;
        double product = dot(y + i * rows.step * d, z + j * rows.step * d, d);
        if (threadIdx.x % 32 == 0) {
            out[i * n + j] = product;
            out[j * n + i] = product;
        }
    }
    __syncthreads();
}

/* Like hl_kernel_prepare, with one block. */
__device__ static void prepare_kernel(double *kernel, int n)
{
    double *sums  = kernel + n * n;
    double  trace = 0.0;

    for (int i = 0; i < n; i++)
        trace += kernel[i * n + i];
    __syncthreads(); /* the diagonal is still needed until here */
    for (int i = threadIdx.x; i < n * n; i += OUTPUT_THREADS)
        kernel[i] = hl_kernel_entry(kernel[i], trace, i, n);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += OUTPUT_THREADS) {
        sums[i] = 0.0;
        for (int j = 0; j < n; j++)
            sums[i] += kernel[j * n + i]; /* the kernel is symmetric */
    }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    double total = 0.0;
    for (int i = 0; i < n; i++)
        total += sums[i];
    sums[n] = hl_kernel_total(total, trace);
}

/* One block per sequence and head. */
__global__ static void __launch_bounds__(OUTPUT_THREADS) outputs(const hl_device_outputs o)
{
    extern __shared__ double block[];
    double                  *kernel   = block;
    float                   *z        = reinterpret_cast<float *>(kernel + even_size(o));
    float                   *y        = z + o.n_sampled * o.d_head;
    int                     *at       = reinterpret_cast<int *>(y + o.n_sampled * o.d_head);
    int64_t                  sequence = blockIdx.x / o.n_heads, head = blockIdx.x % o.n_heads;
    row_counts               rows(o, sequence, threadIdx.x < 32 ? at : nullptr);

    gather_z(z, at, rows.n, o, sequence, head);
    int          d    = static_cast<int>(o.d_head);
    const float *gram = o.gram + head * o.d_head * o.d_head;
    if (d % 4 == 0)
        multiply<4>(y, z, gram, rows.n, d);
    else
        multiply<1>(y, z, gram, rows.n, d);
    for (int i = threadIdx.x / 32; i < rows.n; i += OUTPUT_WARPS) {
        double square = dot(y + i * o.d_head, z + i * o.d_head, o.d_head);
        if (threadIdx.x % 32 == 0)
            o.squares[(head * o.n_batch + sequence) * o.n_sampled + at[i]] = square;
    }
    make_kernel(kernel, y, z, rows, o.d_head);
    prepare_kernel(kernel, rows.n_kernel);
    __syncthreads();
    for (int i = threadIdx.x; i < hl_kernel_size(o.kernel_rows); i += OUTPUT_THREADS)
        o.kernels[blockIdx.x * hl_kernel_size(o.kernel_rows) + i] = kernel[i];
}

/* ------------------------------------------------------------------------- pairs */

constexpr int PAIR_WARPS = 8;

/* Pair number `index` of those of n heads, by a, then b > a. */
struct pair {
    int64_t a, b;

    __device__ pair(int64_t index, int64_t n) : a(0)
    {
        while (index >= n - 1 - a) {
            index -= n - 1 - a;
            a++;
        }
        b = a + 1 + index;
    }
};

/* Like hl_kernels_alike, with one warp. */
__device__ static double kernels_alike(const double *a, const double *b, int n)
{
    double both = 0.0, rows = 0.0;

    for (int i = threadIdx.x % 32; i < n * n; i += 32)
        both = fma(a[i], b[i], both);
    for (int i = threadIdx.x % 32; i < n; i += 32)
        rows = fma(a[n * n + i], b[n * n + i], rows);
    return hl_hsic(sum_warp<double>(both), sum_warp<double>(rows), a[n * n + n], b[n * n + n], n);
}

/* One warp per pair of heads of a sequence.  Pairs a <= b are numbered as pairs a < b + 1. */
__global__ static void __launch_bounds__(32 * PAIR_WARPS) compare(const hl_device_outputs o)
{
    int64_t index   = static_cast<int64_t>(blockIdx.x) * PAIR_WARPS + threadIdx.x / 32;
    int64_t n_pairs = o.n_heads * (o.n_heads + 1) / 2, sequence = index / n_pairs;

    if (sequence >= o.n_batch)
        return;
    pair          heads(index - sequence * n_pairs, o.n_heads + 1);
    const double *first = o.kernels + sequence * o.n_heads * hl_kernel_size(o.kernel_rows);
    int           n     = row_counts(o, sequence, nullptr).n_kernel;
    double        term  = NAN; /* NaN for too few rows */

    if (n >= 3)
        term = kernels_alike(first + heads.a * hl_kernel_size(o.kernel_rows),
                             first + (heads.b - 1) * hl_kernel_size(o.kernel_rows), n);
    if (threadIdx.x % 32 == 0)
        o.alike[index] = term;
}

/* A kernel that needs more shared memory than usual must request it. */
static hl_status launch_outputs(cudaStream_t stream, const hl_device_outputs &o)
{
    size_t n_bytes =
        static_cast<size_t>(o.n_sampled) * (2 * o.d_head * sizeof(float) + sizeof(int)) +
        static_cast<size_t>(even_size(o)) * sizeof(double);

    if (n_bytes > 48 << 10)
        HL_CUDA_TRY(check(cudaFuncSetAttribute(outputs, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(n_bytes)),
                          "room for the outputs of a head"));
    outputs<<<static_cast<unsigned>(o.n_batch * o.n_heads), OUTPUT_THREADS, n_bytes, stream>>>(o);
    return check(cudaGetLastError(), "outputs of heads");
}

hl_status op_outputs(hl_device *device, int lane, const hl_device_outputs *o)
{
    if (o->n_batch * o->n_heads == 0)
        return HL_OK;
    HL_CUDA_TRY(enter_lane(device, lane));
    HL_CUDA_TRY(launch_outputs(device->lanes[lane], *o));
    compare<<<blocks_for(o->n_batch * (o->n_heads * (o->n_heads + 1) / 2), PAIR_WARPS),
              32 * PAIR_WARPS, 0, device->lanes[lane]>>>(*o);
    return check(cudaGetLastError(), "outputs of two heads");
}

/* --------------------------------------------------------------------- distances */

constexpr int HEADS_AT_ONCE = 4;

/* Distances of head a's row from those of heads [first, first + HEADS_AT_ONCE), by one warp. */
__device__ static void measure_some(double *out, const float *p, int64_t stride,
                                    const hl_device_distances &d, int64_t a, int64_t first)
{
    const float *others[HEADS_AT_ONCE];
    float        sums[HEADS_AT_ONCE] = {};

    for (int i = 0; i < HEADS_AT_ONCE; i++)
        others[i] = p + (first + i < d.n_heads ? first + i : a) * stride;
    for (int64_t key = threadIdx.x % 32; key < d.n_keys; key += 32) {
        float own = p[a * stride + key];
#pragma unroll
        for (int i = 0; i < HEADS_AT_ONCE; i++)
            sums[i] += fabsf(own - others[i][key]);
    }
    for (int i = 0; i < HEADS_AT_ONCE; i++) {
        double half = hl_total_variation(sum_warp<double>(sums[i]));
        if (threadIdx.x % 32 == 0 && first + i < d.n_heads)
            out[first + i - a - 1] = half;
    }
}

/* One block per head of a whole row: compares it with the following heads. */
__global__ static void __launch_bounds__(32 * PAIR_WARPS) distances(const hl_device_distances d)
{
    int64_t      row = blockIdx.x / d.n_heads, a = blockIdx.x % d.n_heads;
    int64_t      stride  = d.n_patterns * d.n_keys; /* from one head to the next */
    int64_t      n_pairs = d.n_heads * (d.n_heads - 1) / 2;
    double      *out     = d.out + row * n_pairs + a * (2 * d.n_heads - a - 1) / 2;
    const float *p = d.p + row / d.n_patterns * d.n_heads * stride + row % d.n_patterns * d.n_keys;

    for (int64_t first = a + 1 + threadIdx.x / 32 * HEADS_AT_ONCE; first < d.n_heads;
         first += PAIR_WARPS * HEADS_AT_ONCE)
        measure_some(out, p, stride, d, a, first);
}

hl_status op_distances(hl_device *device, int lane, const hl_device_distances *d)
{
    int64_t n_blocks = d->n_batch * d->n_patterns * d->n_heads;

    if (n_blocks == 0)
        return HL_OK;
    HL_CUDA_TRY(enter_lane(device, lane));
    distances<<<static_cast<unsigned>(n_blocks), 32 * PAIR_WARPS, 0, device->lanes[lane]>>>(*d);
    return check(cudaGetLastError(), "distances of two heads");
}

} // namespace headlight
