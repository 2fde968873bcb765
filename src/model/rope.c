/* rope.c - six ways to stretch rotary positions.
 *
 * Pair i of n_dims turns with frequency  f_i = base^(-2i / n_dims).  A model trained
 * on n tokens is made to read more by slowing some of the pairs down:
 *
 *     linear    f / factor
 *     dynamic   the base grows with the length, once that is beyond the training's
 *     llama3    slow pairs f / factor, fast ones f, between them a blend
 *     yarn      the same with a ramp over i, and cos and sin scaled
 *     longrope  a factor for every pair, from one of two lists by the length
 *     factors   a factor for every pair (what GGUF files keep of llama3)
 *
 * as transformers computes them.  The plain frequency is rounded to float where it
 * is rounded there: far into a text the difference of an ulp shows in the angle. */
#include "model/rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586

static double plain_frequency(double base, int64_t pair, int64_t n_dims)
{
    float exponent = (float)(2 * pair) / (float)n_dims;
    float period   = (float)pow(base, (double)exponent);

    return (double)(1.0f / period);
}

/* Stretched so that n_positions look like original_n_ctx to the slowest pair. */
static double dynamic_base(const hl_rope *rope, int64_t n_positions)
{
    double n_dims = (double)rope->n_dims;
    double ratio  = (double)n_positions / (double)rope->original_n_ctx;

    if (ratio <= 1.0)
        return rope->base;
    return rope->base * pow(rope->factor * ratio - (rope->factor - 1.0), n_dims / (n_dims - 2.0));
}

static double llama3_frequency(const hl_rope *rope, double frequency)
{
    double turns = (double)rope->original_n_ctx * frequency / TWO_PI; /* over the training's text */
    double blend =
        (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);

    if (turns > rope->high_freq_factor)
        return frequency;
    if (turns < rope->low_freq_factor)
        return frequency / rope->factor;
    return (1.0 - blend) * frequency / rope->factor + blend * frequency;
}

/* The pair, as a real number, that turns so often over the training's text. */
static double yarn_pair(const hl_rope *rope, double turns)
{
    return (double)rope->n_dims * log((double)rope->original_n_ctx / (turns * TWO_PI)) /
           (2.0 * log(rope->base));
}

static double yarn_frequency(const hl_rope *rope, double frequency, int64_t pair)
{
    double low  = yarn_pair(rope, rope->beta_fast);
    double high = yarn_pair(rope, rope->beta_slow);

    if (!rope->untruncated) {
        low  = floor(low);
        high = ceil(high);
    }
    low  = fmax(low, 0.0);
    high = fmin(high, (double)rope->n_dims - 1.0);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax(((double)pair - low) / (high - low), 0.0), 1.0);
    return frequency / rope->factor * ramp + frequency * (1.0 - ramp);
}

void hl_rope_frequencies(float *out, const hl_rope *rope, int64_t n_positions)
{
    double base    = rope->kind == HL_ROPE_DYNAMIC ? dynamic_base(rope, n_positions) : rope->base;
    bool   is_long = rope->kind == HL_ROPE_LONGROPE && n_positions > rope->original_n_ctx;
    const float *factors = is_long ? rope->long_factors : rope->short_factors;

    for (int64_t pair = 0; pair < rope->n_dims / 2; pair++) {
        double frequency = plain_frequency(base, pair, rope->n_dims);

        switch (rope->kind) {
        case HL_ROPE_DEFAULT:
        case HL_ROPE_DYNAMIC:
            break;
        case HL_ROPE_LINEAR:
            frequency /= rope->factor;
            break;
        case HL_ROPE_LLAMA3:
            frequency = llama3_frequency(rope, frequency);
            break;
        case HL_ROPE_YARN:
            frequency = yarn_frequency(rope, frequency, pair);
            break;
        case HL_ROPE_LONGROPE:
        case HL_ROPE_FACTORS:
            frequency /= (double)factors[pair];
            break;
        }
        out[pair] = (float)frequency;
    }
}
