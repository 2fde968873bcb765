/* row_state.cuh - kernels/row_state.h for the device: the same five sums, the same rules. */
#ifndef HL_CUDA_ROW_STATE_CUH
#define HL_CUDA_ROW_STATE_CUH

#include <math.h>

namespace headlight
{

struct row_state {
    double max = -INFINITY, sum = 0, dot = 0, collision = 0, spread = 0;

    /* Relative to another maximum, at least as large. */
    __device__ row_state rescaled(double new_max) const
    {
        double    shift = max - new_max;
        double    scale = exp(shift);
        row_state row;

        row.max = new_max;
        /* -inf - -inf is NaN, and so is 0 * inf; but a row of NaN stays one. */
        if (sum == 0.0 || (scale == 0.0 && !isnan(sum)))
            return row;
        row.sum       = scale * sum;
        row.dot       = scale * (dot + shift * sum);
        row.collision = scale * scale * collision;
        row.spread    = scale * (spread + 2.0 * shift * dot + shift * shift * sum);
        return row;
    }

    /* Two disjoint sets of keys together. */
    __device__ row_state merged(const row_state &other) const
    {
        double    most = fmax(max, other.max);
        row_state a = rescaled(most), b = other.rescaled(most);

        a.sum += b.sum;
        a.dot += b.dot;
        a.collision += b.collision;
        a.spread += b.spread;
        return a;
    }

    /* With one more score; a hidden one (-inf) is skipped. */
    __device__ row_state pushed(double score) const
    {
        row_state one;

        if (score == -INFINITY)
            return *this;
        one.max = score;
        one.sum = one.collision = 1.0;
        return merged(one);
    }

    /* The state of all lanes of a warp together, in every lane. */
    __device__ row_state across_warp() const
    {
        row_state all = *this;

        for (int step = 1; step < 32; step *= 2) {
            row_state other;
            other.max       = __shfl_xor_sync(~0u, all.max, step);
            other.sum       = __shfl_xor_sync(~0u, all.sum, step);
            other.dot       = __shfl_xor_sync(~0u, all.dot, step);
            other.collision = __shfl_xor_sync(~0u, all.collision, step);
            other.spread    = __shfl_xor_sync(~0u, all.spread, step);
            all             = all.merged(other);
        }
        return all;
    }

    __device__ bool blind() const
    {
        return sum == 0.0;
    }
    __device__ double lse() const
    {
        return blind() ? -INFINITY : max + log(sum);
    }
    __device__ double entropy() const
    {
        return blind() ? 0.0 : log(sum) - dot / sum;
    }
    __device__ double renyi2() const
    {
        return blind() ? 0.0 : 2.0 * log(sum) - log(collision);
    }
    __device__ double varentropy() const
    {
        double mean     = dot / sum;
        double variance = spread / sum - mean * mean;
        return blind() || variance < 0.0 ? 0.0 : variance; /* fmax would drop NaN */
    }
};

} // namespace headlight

#endif
