/* model_ends.cu - the end of a pass: soft-cap and statistics of logits, and the check for
 * non-finite values.
 *
 * One block reads a row of logits twice: for its two largest values and their places, then for the
 * sums of kernels/logits.c, in double. */
#include <math.h>

#include "kernels/cuda/model.cuh"

namespace headlight
{

/* ------------------------------------------------------------------------- softcap */

__global__ static void cap(const hl_device_cap c)
{
    int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;

    if (at >= c.count)
        return;
    float x = c.x[at] * c.scale;
    c.x[at] = c.softcap > 0.0f ? c.softcap * tanhf(x / c.softcap) : x;
}

hl_status op_cap(hl_device *device, const hl_device_cap *o)
{
    if (o->count == 0)
        return HL_OK;
    cap<<<blocks_for(o->count, 256), 256, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "the soft-cap of logits");
}

/* -------------------------------------------------------------------------- logits */

constexpr int LOGIT_THREADS = 512;

/* The largest of some logits, the lowest of equals, and the largest of the rest. */
struct best_two {
    float   first = -INFINITY, second = -INFINITY;
    int64_t top = INT64_MAX;

    __device__ void add(const best_two &other)
    {
        bool is_better =
            other.first > first || (other.first == first && other.top < top && other.top >= 0);

        second = is_better ? fmaxf(first, other.second) : fmaxf(second, other.first);
        top    = is_better ? other.top : top;
        first  = is_better ? other.first : first;
    }

    __device__ void across_warp()
    {
        for (int step = 16; step > 0; step /= 2) {
            best_two other;
            other.first  = __shfl_xor_sync(~0u, first, step);
            other.second = __shfl_xor_sync(~0u, second, step);
            other.top    = __shfl_xor_sync(~0u, top, step);
            add(other);
        }
    }
};

__device__ static best_two find_best(const float *logits, int64_t n, int32_t *flag)
{
    __shared__ best_two parts[LOGIT_THREADS / 32];
    best_two            best;
    float               sum = 0.0f; /* 0 * x is 0 for finite x, otherwise NaN */

    for (int64_t i = threadIdx.x; i < n; i += LOGIT_THREADS) {
        best_two one;
        one.first = logits[i];
        one.top   = i;
        best.add(one);
        sum = fmaf(0.0f, one.first, sum);
    }
    if (flag != nullptr && !(sum == 0.0f))
        atomicOr(flag, 1);
    best.across_warp();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = best;
    __syncthreads();
    best = parts[0];
    for (int i = 1; i < LOGIT_THREADS / 32; i++)
        best.add(parts[i]);
    if (best.top == INT64_MAX) /* all are NaN: the same result as on the CPU */
        best.top = 0;
    return best;
}

__device__ static double add_up(double value)
{
    __shared__ double parts[LOGIT_THREADS / 32];

    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(~0u, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0.0;
    for (int i = 0; i < LOGIT_THREADS / 32; i++)
        value += parts[i];
    return value;
}

/* Returns the divergence of a row from its reference row, or stores the row as the reference. */
__device__ static double compare_row(const hl_device_kept &kept, const float *logits, int64_t row,
                                     double lse, int64_t n)
{
    float *a  = kept.logits + row * n;
    double kl = 0.0;

    if (kept.puts) {
        for (int64_t i = threadIdx.x; i < n; i += LOGIT_THREADS)
            a[i] = logits[i];
        if (threadIdx.x == 0)
            kept.lse[row] = lse;
        return 0.0;
    }
    double other = kept.lse[row], shift = lse - other;
    for (int64_t i = threadIdx.x; i < n; i += LOGIT_THREADS) {
        float p = static_cast<float>(exp(a[i] - other));

        if (p > 0.0f) /* an impossible token has logit -inf in both */
            kl += p * (static_cast<double>(a[i]) - logits[i] + shift);
    }
    return add_up(kl);
}

__global__ static void __launch_bounds__(LOGIT_THREADS) read_logits(const hl_device_logits l)
{
    int64_t      row    = blockIdx.x;
    const float *logits = l.logits + row * l.n;
    best_two     best   = find_best(logits, l.n, l.flag);
    double       rest = 0.0, dot = 0.0; /* the sum without the largest logit's 1 */
    double       divergence = 0.0;

    if (l.entropy != nullptr || l.losses != nullptr || l.kept.logits != nullptr) {
        double max = logits[best.top];
        for (int64_t i = threadIdx.x; i < l.n; i += LOGIT_THREADS) {
            double offset = logits[i] - max;
            double weight = exp(offset);

            if (i != best.top && !(weight <= 0.0)) { /* 0 * -inf is NaN */
                rest += weight;
                dot += weight * offset;
            }
        }
        rest = add_up(rest);
        dot  = add_up(dot);
    }
    if (l.kept.logits != nullptr)
        divergence = compare_row(l.kept, logits, row, logits[best.top] + log1p(rest), l.n);
    if (threadIdx.x != 0)
        return;
    if (l.kept.logits != nullptr)
        l.divergence[row] = divergence;
    if (l.top != nullptr)
        l.top[row] = best.top;
    if (l.gap != nullptr)
        l.gap[row] = best.first - best.second;
    if (l.entropy != nullptr)
        l.entropy[row] = static_cast<float>(log1p(rest) - dot / (1.0 + rest));
    if (l.losses != nullptr)
        l.losses[row] =
            l.targets[row] >= 0 ? logits[best.top] + log1p(rest) - logits[l.targets[row]] : NAN;
}

hl_status op_logits(hl_device *device, const hl_device_logits *o)
{
    if (o->n_rows == 0)
        return HL_OK;
    read_logits<<<static_cast<unsigned>(o->n_rows), LOGIT_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "what logits say");
}

/* ----------------------------------------------------------------------- no numbers */

constexpr int FINITE_THREADS = 256;

__global__ static void __launch_bounds__(FINITE_THREADS) find_bad(const hl_device_finite f)
{
    int64_t      row = blockIdx.x;
    const float *x   = f.x + row * f.n;
    float        sum = 0.0f;

    if (!place_of(f.places, row).counts)
        return;
    /* 0 * x is 0 for finite x, otherwise NaN. */
    for (int64_t i = threadIdx.x; i < f.n; i += FINITE_THREADS)
        sum = fmaf(0.0f, x[i], sum);
    if (!(sum == 0.0f))
        atomicOr(f.flag, 1);
}

hl_status op_finite(hl_device *device, const hl_device_finite *o)
{
    int64_t n_rows = o->places.n_batch * o->places.batch_rows;

    if (n_rows == 0)
        return HL_OK;
    find_bad<<<static_cast<unsigned>(n_rows), FINITE_THREADS, 0, device->stream>>>(*o);
    return check(cudaGetLastError(), "a search for non-finite values");
}

} // namespace headlight
