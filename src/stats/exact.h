/* exact.h - sums that do not depend on the order of their terms.
 *
 * A value is rounded once, to a whole number of 2^-40, and added as an integer: integer sums are
 * associative, so threads, parts and machines agree to the bit.
 *
 *     hl_sums sums = { 0 };
 *     if (hl_fixed_fits(value))
 *         hl_sums_add(&sums, value);
 *     double mean = hl_wide_mean(sums.sum, sums.count);
 *
 * Nothing overflows.  |value| < 2^23 is at most 2^63 in fixed point; its square, rounded to 2^-40
 * as well, is at most 2^86.  Files and merges limit a count to HL_MAX_COUNT = 2^40, so sums stay
 * within 2^103 and 2^126; 128 bits hold 2^127.  2^40 rows, a million million, take centuries to
 * measure.
 *
 * Values between 0 and 1 that are kept for every pair of heads or types take 64 bits, in units of
 * 2^-22: 2^22 * 2^40 = 2^62. */
#ifndef HL_STATS_EXACT_H
#define HL_STATS_EXACT_H

#include <math.h>
#include <string.h>

#include "headlight/base.h"
#include "kernels/row_sums.h"

__extension__ typedef __int128 hl_wide;

#define HL_FIXED_LIMIT 0x1p23
#define HL_MAX_COUNT   ((int64_t)1 << 40)

/* Returns false for values that are too large, infinite or NaN. */
static inline bool hl_fixed_fits(double value)
{
    return fabs(value) < HL_FIXED_LIMIT;
}

/* Returns the square of a value that fits. Statistics of rows are below 2^11, so their squares fit
 * in 64 bits; norms may be larger. */
static inline hl_wide hl_fixed_square(double value)
{
    double square = value * value * HL_FIXED_ONE;
    return square < 0x1p62 ? (hl_wide)llrint(square) : (hl_wide)rint(square);
}

/* Rounds a value of magnitude at most 1 to a whole number of 2^-22. */
static inline int64_t hl_unit(double value)
{
    return (int64_t)llrint(value * HL_UNIT_ONE);
}

/* As hl_unit, for a share of 0 to 1, in few instructions. After the addition, a float of that size
 * has no bits below 1 left. */
static inline int32_t hl_unit_share(float share)
{
    const float base    = 0x1.8p23f;
    float       shifted = share * (float)HL_UNIT_ONE + base;
    int32_t     bits, base_bits;

    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&base_bits, &base, sizeof base_bits);
    return bits - base_bits;
}

typedef struct hl_sums {
    hl_wide sum;
    hl_wide squares;
    int64_t count;
} hl_sums;

static inline void hl_sums_add(hl_sums *sums, double value)
{
    sums->sum += hl_fixed(value);
    sums->squares += hl_fixed_square(value);
    sums->count++;
}

/* Equivalent to hl_sums_add of each value, in a form that compilers vectorize. Adding 1.5 * 2^12 to
 * a number of magnitude less than 2^11 rounds it to a multiple of 2^-40, whose count is in its last
 * 52 bits. Values below HL_SMALL_LIMIT have squares below 2^50 in fixed point, so the sums of
 * HL_SMALL_COUNT of them fit into 64 bits. The bits that the addition put into each pattern are
 * subtracted at the end, modulo 2^64. */
#define HL_SMALL_COUNT 4096

static inline uint64_t hl_bits_shifted(double value)
{
    double   shifted = value + 0x1.8p12;
    uint64_t bits;

    memcpy(&bits, &shifted, sizeof bits);
    return bits;
}

static inline hl_sums hl_sums_of_small(const double *values, int64_t n)
{
    uint64_t sum     = 0;
    uint64_t squares = 0;
    uint64_t shifts  = (uint64_t)n * hl_bits_shifted(0.0);

    for (int64_t i = 0; i < n; i++) {
        sum += hl_bits_shifted(values[i]);
        squares += hl_bits_shifted(values[i] * values[i]);
    }
    return (hl_sums){ (int64_t)(sum - shifts), (int64_t)(squares - shifts), n };
}

static inline hl_sums hl_sums_of_small_floats(const float *values, int64_t n)
{
    uint64_t sum     = 0;
    uint64_t squares = 0;
    uint64_t shifts  = (uint64_t)n * hl_bits_shifted(0.0);

    for (int64_t i = 0; i < n; i++) {
        double value = (double)values[i];
        sum += hl_bits_shifted(value);
        squares += hl_bits_shifted(value * value);
    }
    return (hl_sums){ (int64_t)(sum - shifts), (int64_t)(squares - shifts), n };
}

/* Returns NaN for a count of 0. */
static inline double hl_wide_mean(hl_wide sum, int64_t count)
{
    return count > 0 ? (double)sum / HL_FIXED_ONE / (double)count : (double)NAN;
}

static inline double hl_unit_mean(int64_t sum, int64_t count)
{
    return count > 0 ? (double)sum / HL_UNIT_ONE / (double)count : (double)NAN;
}

/* Returns the variance from a mean and a mean of squares. Clamps at 0, as rounding may make it
 * negative. */
static inline double hl_variance_of(double mean, double mean_square)
{
    double variance = mean_square - mean * mean;
    return variance < 0.0 ? 0.0 : variance;
}

#endif
