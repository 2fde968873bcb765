/* forward_sums.cuh - forward_hopper.cuh's sums: what a thread adds up of two rows.
 *
 * row_state.h's, in the domain of exp2 with the scale folded in.  With
 * c = max * scale * log2(e), rounded once, and x = s * scale * log2(e) - c:
 *
 *     sum        of 2^x           collision   of 4^x
 *     dot        of 2^x x         spread      of 2^x x^2
 *
 * What is kept is exact about c, so rounding of the maximum cancels from all of them. */
#ifndef HL_CUDA_FORWARD_SUMS_CUH
#define HL_CUDA_FORWARD_SUMS_CUH

#include "kernels/cuda/hopper_ptx.cuh"

namespace headlight
{

/* Below this a power of two is 0; above -inf, so that 0 times it is 0. */
constexpr float FLOOR = -16384.0f;

/* A thread's sum of a block's weights about a centre that is not the maximum: less
 * than this keeps a weight below 2^8, which costs the sums no digit that matters. */
constexpr float LARGEST = 256.0f;

/* A thread's share of the sums of two rows. */
template <bool STATISTICS, bool ALL> struct hopper_sums {
    float sum[2] = { 0, 0 }, dot[2] = { 0, 0 }, collision[2] = { 0, 0 };
    float spread[2] = { 0, 0 };
    int   most[2]   = { 0, 0 }; /* the largest weight: floats above 0 compare as their bits */

    __device__ __forceinline__ void add(int row, float x, float weight)
    {
        sum[row] += weight;
        if (STATISTICS) {
            float product  = weight * x;
            dot[row]       = ALL ? dot[row] + product : fmaf(weight, x, dot[row]);
            collision[row] = fmaf(weight, weight, collision[row]);
            if (ALL)
                spread[row] = fmaf(product, x, spread[row]);
        }
    }

    /* Two keys' weights, for the largest. */
    __device__ __forceinline__ void look(int row, float first, float second)
    {
        if (ALL)
            most[row] = __vimax3_s32(most[row], __float_as_int(first), __float_as_int(second));
    }

    __device__ __forceinline__ void add(const hopper_sums &other)
    {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            sum[row] += other.sum[row];
            dot[row] += other.dot[row];
            collision[row] += other.collision[row];
            spread[row] += other.spread[row];
            most[row] = max(most[row], other.most[row]);
        }
    }

    /* Moves a row to another centre, `shift` away (in bits); returns the factor. */
    __device__ __forceinline__ float move(int row, float shift)
    {
        float scale = ptx::exp2_fast(shift);

        if (ALL) {
            spread[row] = scale * fmaf(shift, fmaf(shift, sum[row], 2.0f * dot[row]), spread[row]);
            most[row]   = __float_as_int(scale * __int_as_float(most[row]));
        }
        dot[row] = scale * fmaf(shift, sum[row], dot[row]);
        sum[row] *= scale;
        collision[row] *= scale * scale;
        return scale;
    }
};

} // namespace headlight

#endif
