/* simd_math.h - exp2, log2 and tanh of vectors, to about one unit in the last place.
 *
 * The kernels keep scores in units of ln 2, so that the exponential is a power
 * of two: 2^x = 2^round(x) * 2^f with |f| <= 1/2, the first factor put together
 * from exponent bits, the second a polynomial whose constant term is exactly 1
 * (a row of one key then has exactly probability 1 and entropy 0). */
#ifndef HL_KERNELS_SIMD_MATH_H
#define HL_KERNELS_SIMD_MATH_H

#include "kernels/simd.h"

#define LN2   0.693147180559945309f
#define LOG2E 1.44269504088896341f

/* Below this, 2^x is returned as exactly 0: a hidden score (-inf), clamped to this, gets weight 0
 * without a test. */
#define EXP2_FLOOR (-127.0f)

/* 2^x for EXP2_FLOOR <= x <= 0; 0 below -126.5.  Largest relative error 1.6e-7. */
HL_INLINE vf vf_exp2_clamped(vf x)
{
    /* Adding 1.5 * 2^23 rounds to an integer; the 127 puts the exponent's bias
     * into the same addition, so that a shift gives the bits of 2^round(x). */
    const vf magic = vf_set(12582912.0f + 127.0f);

    vf shifted = x + magic;
    vf f       = x - (shifted - magic);
    vf power   = (vf)((vu)shifted << 23);

    vf poly = vf_fma(vf_set(1.326472731e-3f), f, vf_set(9.671512991e-3f));
    poly    = vf_fma(poly, f, vf_set(5.550733581e-2f));
    poly    = vf_fma(poly, f, vf_set(2.402224243e-1f));
    poly    = vf_fma(poly, f, vf_set(6.931470037e-1f));
    poly    = vf_fma(poly, f, vf_set(1.0f));
    return poly * power;
}

/* 2^x for x <= 0, -inf included. */
HL_INLINE vf vf_exp2(vf x)
{
    return vf_exp2_clamped(vf_max(vf_set(EXP2_FLOOR), x));
}

/* log2 of finite x >= 2^-126; log2(1) is exactly 0.
 * x = 2^e * m with m in [sqrt(1/2), sqrt(2)), and with s = (m-1)/(m+1),
 * log m = 2 (s + s^3/3 + s^5/5 + ...). */
HL_INLINE vf vf_log2(vf x)
{
    vi bits     = (vi)x - vi_set(0x3f3504f3); /* the bits of sqrt(1/2) */
    vi exponent = bits >> 23;
    vf m        = (vf)((vi)x - (vi)((vu)exponent << 23));
    vf s        = (m - vf_set(1.0f)) / (m + vf_set(1.0f));
    vf s2       = s * s;

    vf poly = vf_fma(vf_set(1.0f / 9.0f), s2, vf_set(1.0f / 7.0f));
    poly    = vf_fma(poly, s2, vf_set(1.0f / 5.0f));
    poly    = vf_fma(poly, s2, vf_set(1.0f / 3.0f));
    poly    = vf_fma(poly, s2, vf_set(1.0f));
    return vf_fma(s * vf_set(2.0f * LOG2E), poly, __builtin_convertvector(exponent, vf));
}

/* tanh, by its series near 0, where (1 - e) / (1 + e) would cancel. */
HL_INLINE vf vf_tanh(vf x)
{
    vf size = vf_max(x, -x);
    vf x2   = x * x;

    vf series = vf_fma(vf_set(-1382.0f / 155925.0f), x2, vf_set(62.0f / 2835.0f));
    series    = vf_fma(series, x2, vf_set(-17.0f / 315.0f));
    series    = vf_fma(series, x2, vf_set(2.0f / 15.0f));
    series    = vf_fma(series, x2, vf_set(-1.0f / 3.0f));
    series    = vf_fma(series * x2, x, x);

    vf e     = vf_exp2(size * vf_set(-2.0f * LOG2E));
    vf large = (vf_set(1.0f) - e) / (vf_set(1.0f) + e);
    large    = vf_select(x < vf_set(0.0f), -large, large);
    return vf_select(size < vf_set(0.35f), series, large);
}

#endif
