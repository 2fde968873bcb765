/* profile_likeness.c - how alike heads are, where that was computed elsewhere.
 *
 * A device that holds z and whole rows compares heads itself and tells what came of it
 * (hl_likeness of base/row_runs.h).  What is left is what profile_sample.c does with such numbers:
 * they become whole numbers and are added. */
#include <math.h>

#include "stats/profile_add.h"
#include "stats/profile_tables.h"

/* Pairs a < b of n heads, by a, then b. */
static int64_t count_pairs(int64_t n)
{
    return n * (n - 1) / 2;
}

static int64_t pair_of(int64_t n, int64_t a, int64_t b)
{
    return a * (2 * n - a - 1) / 2 + (b - a - 1);
}

/* ------------------------------------------------------------------ whole rows */

static void add_distances(const hl_profile *profile, const hl_sampled_row *sample,
                          const double *totals, int64_t a)
{
    int64_t       n_heads = sample->rows->n_heads;
    const double *made = sample->rows->likeness->distances + sample->index * count_pairs(n_heads);

    if (!hl_profile_all_finite(totals, n_heads))
        return;
    for (int64_t b = a + 1; b < n_heads; b++)
        hl_profile_add_distance(profile, sample, totals, a, b, made[pair_of(n_heads, a, b)]);
}

void hl_profile_made_distances(hl_profile *profile, const hl_layer_rows *rows, int64_t head)
{
    const hl_profile_flight *flight = profile->flight;

    for (int64_t i = 0; i < flight->n_found; i++)
        add_distances(profile, &flight->samples[i], flight->totals + i * rows->n_heads, head);
}

/* -------------------------------------------------------------------------- CKA */

/* Terms of one sequence: pairs a <= b. */
static const double *terms_of(const hl_layer_rows *rows, int64_t sequence)
{
    return rows->likeness->alike + sequence * count_pairs(rows->n_heads + 1);
}

/* A head with itself is the first of its pairs, and finite where its kernel is. */
static bool all_sound(const hl_layer_rows *rows, int64_t sequence, int64_t n)
{
    const double *terms = terms_of(rows, sequence);
    bool          sound = n >= HL_CKA_MIN_ROWS;

    for (int64_t head = 0; head < rows->n_heads && sound; head++)
        sound = isfinite(terms[pair_of(rows->n_heads + 1, head, head + 1)]);
    return sound;
}

void hl_profile_made_kernels(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                             int64_t head, int64_t n)
{
    int64_t *sums = hl_counts(profile, HL_TABLE_KERNEL_SUM);

    if (!all_sound(rows, sequence, n))
        return;
    for (int64_t other = head; other < rows->n_heads; other++) {
        double term =
            terms_of(rows, sequence)[pair_of(rows->n_heads + 1, head, other + 1)] / HL_KERNEL_BOUND;

        sums[hl_self_pair(profile, rows->layer, head, other)] +=
            hl_unit(fmin(fmax(term, -1.0), 1.0));
    }
}

void hl_profile_made_close(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                           int64_t n)
{
    hl_counts(profile, HL_TABLE_KERNEL_COUNT)[rows->layer] += all_sound(rows, sequence, n);
}
