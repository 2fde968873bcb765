/* sample.h - internal functions of hl_sampler (headlight.h): random numbers, and draws from logits
 * that lie on a device.
 *
 * Number n of a seed is a function of both and needs no state: Steele, Lea and Flood's SplitMix64,
 * whose state is a counter times an odd constant.  It uses only integers, so every machine computes
 * the same numbers. */
#ifndef HL_MODEL_SAMPLE_H
#define HL_MODEL_SAMPLE_H

#include "headlight/generate.h"
#include "kernels/pick.h"

static inline uint64_t hl_random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The seed is mixed first: otherwise seeds 1 and 2 would give the same sequence, shifted. */
static inline uint64_t hl_random_bits(uint64_t seed, uint64_t n)
{
    return hl_random_mix(hl_random_mix(seed) + (n + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* A random number in [0, 1), in steps of 2^-53. */
static inline double hl_random_unit(uint64_t seed, uint64_t n)
{
    return (double)(hl_random_bits(seed, n) >> 11) * 0x1p-53;
}

/* Forgets all tokens of the text; the random numbers continue. */
void hl_sampler_forget(hl_sampler *sampler);
/* The rule that a device needs for the next draw from row `row` of its logits, and the bits of
 * repeated tokens: (d_vocab + 31) / 32 words, NULL without a penalty. */
hl_pick_rule    hl_sampler_rule(const hl_sampler *sampler, int64_t row);
const uint32_t *hl_sampler_repeated(const hl_sampler *sampler);
/* Makes the draw that hl_sampler_draw would make of the whole row, from the device's result,
 * which must be valid and have no more candidates than fit.  The candidates may be reordered. */
void hl_sampler_draw_among(int64_t *token, float *logit, hl_sampler *sampler,
                           const hl_pick_result *row, hl_pick_candidate *candidates);

#endif
