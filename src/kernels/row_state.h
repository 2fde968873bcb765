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
 * The sums are centred on the largest score, so a constant added to all scores
 * changes none of them but `max`: sum is at least 1, dot is never positive, both
 * terms of the entropy are >= 0 and nothing cancels.  Two disjoint sets of keys
 * merge by moving both to the larger maximum and adding; that is how tiles,
 * split-key decoding and a learned sink are put together.
 *
 * This file is the definition, in double precision.  The vector kernels keep
 * the same five sums for many rows at once (attention_panel.h), as the CUDA
 * kernel does: change this file first, then them. */
#ifndef HL_KERNELS_ROW_STATE_H
#define HL_KERNELS_ROW_STATE_H

#include <math.h>

typedef struct hl_row_state {
    double max;
    double sum;
    double dot;
    double collision;
    double spread;
} hl_row_state;

/* A row that has seen no key. */
static inline hl_row_state hl_row_state_empty(void)
{
    return (hl_row_state){ .max = -INFINITY };
}

/* Express the row relative to another maximum, at least as large. */
static inline hl_row_state hl_row_state_rescale(hl_row_state row, double new_max)
{
    double shift = row.max - new_max; /* <= 0 */
    double scale = exp(shift);

    /* An empty row has max = -inf, and -inf - -inf would be NaN; weights that
     * vanish would give 0 * inf.  A row of NaN stays one. */
    if (row.sum == 0.0 || (scale == 0.0 && !isnan(row.sum)))
        return (hl_row_state){ .max = new_max };
    return (hl_row_state){
        .max       = new_max,
        .sum       = scale * row.sum,
        .dot       = scale * (row.dot + shift * row.sum),
        .collision = scale * scale * row.collision,
        .spread    = scale * (row.spread + 2.0 * shift * row.dot + shift * shift * row.sum),
    };
}

/* The state of two disjoint sets of keys together. */
static inline hl_row_state hl_row_state_merge(hl_row_state a, hl_row_state b)
{
    double max = fmax(a.max, b.max);
    a          = hl_row_state_rescale(a, max);
    b          = hl_row_state_rescale(b, max);
    return (hl_row_state){
        .max       = max,
        .sum       = a.sum + b.sum,
        .dot       = a.dot + b.dot,
        .collision = a.collision + b.collision,
        .spread    = a.spread + b.spread,
    };
}

/* Add one score.  A hidden score (-inf) is skipped, not added: its weight is 0,
 * but 0 * -inf is NaN. */
static inline hl_row_state hl_row_state_push(hl_row_state row, double score)
{
    if (score == -INFINITY)
        return row;
    return hl_row_state_merge(row, (hl_row_state){ .max = score, .sum = 1.0, .collision = 1.0 });
}

/* ------------------------------------------------------ what the sums give
 * For a row that has seen no key, lse is -inf and the rest are 0.  A score of NaN or
 * of +inf makes all of them NaN, whatever came before it or after. */

static inline double hl_row_state_lse(hl_row_state row)
{
    return row.sum == 0.0 ? -INFINITY : row.max + log(row.sum);
}

static inline double hl_row_state_entropy(hl_row_state row)
{
    return row.sum == 0.0 ? 0.0 : log(row.sum) - row.dot / row.sum;
}

static inline double hl_row_state_renyi2(hl_row_state row)
{
    return row.sum == 0.0 ? 0.0 : 2.0 * log(row.sum) - log(row.collision);
}

static inline double hl_row_state_varentropy(hl_row_state row)
{
    if (row.sum == 0.0)
        return 0.0;
    double mean     = row.dot / row.sum;
    double variance = row.spread / row.sum - mean * mean;
    return variance < 0.0 ? 0.0 : variance; /* rounding */
}

#endif
