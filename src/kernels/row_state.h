/* row_state.h - the running state of one attention row.
 *
 * A softmax row and its entropies can be built in one pass, in any order and in
 * pieces, from five numbers.  With x = s - max for every score s seen so far:
 *
 *     max        the largest score
 *     sum        sum of exp(x)            lse       = max + log(sum)
 *     dot        sum of exp(x) * x        Shannon   = log(sum) - dot / sum
 *     collision  sum of exp(2x)           Renyi-2   = 2 log(sum) - log(collision)
 *     spread     sum of exp(x) * x^2      varentropy = spread / sum - (dot / sum)^2
 *
 * The sums are centered on the largest score, so a constant added to all scores
 * changes none of them but `max`: sum is at least 1, dot is never positive, both
 * terms of the entropy are >= 0 and nothing cancels.  Two disjoint sets of keys
 * merge by moving both to the larger maximum and adding; that is how tiles,
 * split-key decoding and a learned sink are put together.
 *
 * This file is the definition, in double precision; the plain CUDA kernels also compile it.  The
 * vector kernels (attention_panel.h) and the fast CUDA kernels keep the same five sums for many
 * rows at once: change this file first, then them. */
#ifndef HL_KERNELS_ROW_STATE_H
#define HL_KERNELS_ROW_STATE_H

#include <math.h>

#include "base/visible.h"

/* A row that has seen no key has max = -inf and zeros otherwise; in C++ that is the default. */
#ifdef __cplusplus
#define HL_STARTS(value) = value
#else
#define HL_STARTS(value)
#endif

typedef struct hl_row_state {
    double max       HL_STARTS(-INFINITY);
    double sum       HL_STARTS(0.0);
    double dot       HL_STARTS(0.0);
    double collision HL_STARTS(0.0);
    double spread    HL_STARTS(0.0);
} hl_row_state;

HL_HOST_DEVICE hl_row_state hl_row_state_empty(void)
{
    hl_row_state row = { -INFINITY, 0.0, 0.0, 0.0, 0.0 };

    return row;
}

/* Expresses the row relative to another maximum, which is at least as large. */
HL_HOST_DEVICE hl_row_state hl_row_state_rescale(hl_row_state row, double new_max)
{
    double       shift = row.max - new_max; /* <= 0 */
    double       scale = exp(shift);
    hl_row_state moved = hl_row_state_empty();

    moved.max = new_max;
    /* An empty row has max = -inf, and -inf - -inf would be NaN.  Weights that vanish would give 0
     * * inf.  A row of NaN stays NaN. */
    if (row.sum == 0.0 || (scale == 0.0 && !isnan(row.sum)))
        return moved;
    moved.sum       = scale * row.sum;
    moved.dot       = scale * (row.dot + shift * row.sum);
    moved.collision = scale * scale * row.collision;
    moved.spread    = scale * (row.spread + 2.0 * shift * row.dot + shift * shift * row.sum);
    return moved;
}

/* Merges the states of two disjoint sets of keys. */
HL_HOST_DEVICE hl_row_state hl_row_state_merge(hl_row_state a, hl_row_state b)
{
    double max = fmax(a.max, b.max);

    a = hl_row_state_rescale(a, max);
    b = hl_row_state_rescale(b, max);
    a.sum += b.sum;
    a.dot += b.dot;
    a.collision += b.collision;
    a.spread += b.spread;
    return a;
}

/* Adds one score.  A hidden score (-inf) is skipped: its weight is 0, but 0 * -inf is NaN. */
HL_HOST_DEVICE hl_row_state hl_row_state_push(hl_row_state row, double score)
{
    hl_row_state one = { score, 1.0, 0.0, 1.0, 0.0 };

    if (score == -INFINITY)
        return row;
    return hl_row_state_merge(row, one);
}

/* ------------------------------------------------------ what the sums give
 * For a row that has seen no key, lse is -inf and the rest are 0.  A score of NaN or
 * of +inf makes all of them NaN, whatever came before it or after. */

HL_HOST_DEVICE double hl_row_state_lse(hl_row_state row)
{
    return row.sum == 0.0 ? -INFINITY : row.max + log(row.sum);
}

HL_HOST_DEVICE double hl_row_state_entropy(hl_row_state row)
{
    return row.sum == 0.0 ? 0.0 : log(row.sum) - row.dot / row.sum;
}

HL_HOST_DEVICE double hl_row_state_renyi2(hl_row_state row)
{
    return row.sum == 0.0 ? 0.0 : 2.0 * log(row.sum) - log(row.collision);
}

HL_HOST_DEVICE double hl_row_state_varentropy(hl_row_state row)
{
    double mean     = row.dot / row.sum;
    double variance = row.spread / row.sum - mean * mean;

    return row.sum == 0.0 || variance < 0.0 ? 0.0 : variance; /* rounding gives < 0 */
}

#endif
