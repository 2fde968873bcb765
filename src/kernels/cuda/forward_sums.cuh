/* forward_sums.cuh - the sums of forward_hopper.cuh: a thread's sums of two rows, and the
 * statistics from them.
 *
 * The sums are those of row_state.h, for exp2 and with the scale folded in.  With c = max * scale *
 * log2(e), rounded once, and x = s * scale * log2(e) - c:
 *
 *     sum        of 2^x           collision   of 4^x
 *     dot        of 2^x x         spread      of 2^x x^2
 *
 * All sums are exact relative to c, so the rounding of the maximum cancels in all of them. */
#ifndef HL_CUDA_FORWARD_SUMS_CUH
#define HL_CUDA_FORWARD_SUMS_CUH

#include "kernels/cuda/hopper_ptx.cuh"
#include "kernels/cuda/problem.cuh"

namespace headlight
{

/* Below this a power of two is 0; it is above -inf, so that 0 times it is 0. */
constexpr float FLOOR = -16384.0f;

/* The limit of a thread's sum of a block's weights, relative to a center that is not the maximum.
 * It keeps every weight below 2^8, which loses no digit that matters. */
constexpr float LARGEST = 256.0f;

/* A thread's share of the sums of two rows. */
template <bool STATISTICS, bool ALL> struct hopper_sums {
    float sum[2] = { 0, 0 }, dot[2] = { 0, 0 }, collision[2] = { 0, 0 };
    float spread[2] = { 0, 0 };
    int   most[2]   = { 0, 0 }; /* bits of the largest weight: they compare as floats do */

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

    /* Updates the largest weight with two keys' weights. */
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

    /* Moves a row to another center, `shift` bits away; returns the factor. */
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

    /* Adds a learned sink, one more outcome; a blind row stays blind.  Returns the new center. */
    __device__ __forceinline__ float add_sink(float center, int row, float sink)
    {
        float next  = fmaxf(center, sink * LOG2_E);
        float extra = max_or_nan(sink * LOG2_E - next, FLOOR);

        move(row, fmaxf(center - next, FLOOR));
        add(row, extra, ptx::exp2_fast(extra));
        return next;
    }

    /* ------------------------------------------------------- whole rows' results */

    /* The sums of one of the rows, as row 0. */
    __device__ __forceinline__ hopper_sums only(bool second) const
    {
        hopper_sums one;

        one.sum[0]       = second ? sum[1] : sum[0];
        one.dot[0]       = second ? dot[1] : dot[0];
        one.collision[0] = second ? collision[1] : collision[0];
        one.spread[0]    = second ? spread[1] : spread[0];
        one.most[0]      = second ? most[1] : most[0];
        return one;
    }

    /* Stores the entropy without key 0, before key 0 joins the sums. */
    __device__ __forceinline__ void put_others(const problem &p, int64_t index, int row) const
    {
        bool  none = sum[row] == 0.0f;
        float bits = none ? 0.0f : max_or_nan(log2f(sum[row]) - dot[row] / sum[row], 0.0f);

        if (p.result.entropy_nosink != nullptr)
            p.result.entropy_nosink[index] = LN_2 * bits;
    }

    /* Stores the largest score, before a learned sink moves the sums to another center. */
    __device__ __forceinline__ void put_max_logit(const problem &p, int64_t index, int row,
                                                  float center) const
    {
        float most_bits = log2f(__int_as_float(most[row]));

        if (p.result.max_logit != nullptr)
            p.result.max_logit[index] = sum[row] == 0.0f  ? -INFINITY
                                        : isnan(sum[row]) ? NAN
                                                          : LN_2 * (center + most_bits);
    }

    /* `hidden`: the row does not see key 0; the sums of a row of NaN do not show it. */
    __device__ __forceinline__ void put(const problem &p, int64_t index, int row, float center,
                                        float first_weight, bool hidden) const
    {
        bool  blind   = sum[row] == 0.0f;
        float log_sum = log2f(sum[row]);
        float inverse = 1.0f / sum[row];
        float mean    = dot[row] * inverse;

        if (p.result.lse != nullptr)
            p.result.lse[index] = blind ? -INFINITY : LN_2 * (center + log_sum);
        if (STATISTICS && p.result.entropy != nullptr)
            p.result.entropy[index] = blind ? 0.0f : LN_2 * (log_sum - mean);
        if (STATISTICS && p.result.renyi2 != nullptr)
            p.result.renyi2[index] = blind ? 0.0f : LN_2 * (2.0f * log_sum - log2f(collision[row]));
        if (ALL && p.result.varentropy != nullptr)
            p.result.varentropy[index] =
                blind ? 0.0f : LN_2 * LN_2 * max_or_nan(0.0f, spread[row] * inverse - mean * mean);
        if (ALL && p.result.peak != nullptr)
            p.result.peak[index] = blind ? 0.0f : __int_as_float(most[row]) * inverse;
        if (ALL && p.result.first != nullptr)
            p.result.first[index] = blind || hidden ? 0.0f : first_weight * inverse;
    }
};

} // namespace headlight

#endif
