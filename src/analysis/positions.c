/* positions.c - the curve by position, and how sure it is.
 *
 * Sequences differ in length, so the later a bucket, the fewer rows some of them have in it.
 * A draw of sequences therefore gives the mean of their rows, not the mean of their means:
 * rows and sums of rows are drawn together, and then divided. */
#include "analysis/positions.h"

#include <math.h>

#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

static double mean_over_heads(const hl_profile *profile, int64_t bucket, hl_quantity quantity)
{
    double  sum   = 0.0;
    int64_t count = 0;

    HL_EACH_HEAD(profile, layer, head)
    {
        hl_moments moments = hl_profile_by_position(profile, layer, head, bucket, quantity);
        sum += moments.count > 0 ? moments.mean : 0.0;
        count += moments.count > 0;
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* Of one sequence: every head counts alike. */
static double sequence_mean(const hl_profile *profile, int64_t sequence, int64_t bucket,
                            hl_quantity quantity)
{
    double  sum   = 0.0;
    int64_t count = 0;

    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        double  mean = hl_profile_sequence_position(profile, sequence, layer, bucket, quantity);
        int64_t n    = hl_profile_heads_of(profile, layer);

        sum += isnan(mean) ? 0.0 : mean * (double)n;
        count += isnan(mean) ? 0 : n;
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* values (n_sequences, n_buckets, 2): the sum of the rows, and how many they are. */
static void read_sequences(double *values, const hl_profile *profile, hl_quantity quantity)
{
    int64_t n_buckets = hl_profile_n_buckets(profile);

    for (int64_t i = 0; i < hl_profile_n_sequences(profile) * n_buckets; i++) {
        int64_t sequence = i / n_buckets;
        double  n_rows =
            (double)hl_profile_sequence_rows(profile, sequence, i % n_buckets, quantity);
        double mean = sequence_mean(profile, sequence, i % n_buckets, quantity);

        values[2 * i]     = isnan(mean) ? 0.0 : n_rows * mean;
        values[2 * i + 1] = isnan(mean) ? 0.0 : n_rows;
    }
}

static int64_t sequences_with_rows(const double *values, int64_t n_sequences, int64_t n_buckets,
                                   int64_t bucket)
{
    int64_t count = 0;

    for (int64_t sequence = 0; sequence < n_sequences; sequence++)
        count += values[2 * (sequence * n_buckets + bucket) + 1] > 0.0;
    return count;
}

/* sums, rows (HL_RESAMPLES): what each draw has of one bucket. */
static hl_interval interval_of(double *sums, const double *rows)
{
    for (int64_t draw = 0; draw < HL_RESAMPLES; draw++)
        sums[draw] = rows[draw] > 0.0 ? sums[draw] / rows[draw] : NAN;
    return hl_bootstrap_interval(sums, HL_RESAMPLES, 0.95);
}

static hl_status fill_intervals(hl_position_curve *curve, const hl_profile *profile,
                                hl_quantity quantity, uint64_t seed)
{
    hl_status status    = HL_OK;
    int64_t   n         = hl_profile_n_sequences(profile);
    int64_t   n_columns = 2 * curve->n_buckets;
    double   *values    = NULL; /* (n, n_buckets, 2) */
    double   *draws     = NULL; /* (n_buckets, 2, HL_RESAMPLES) */

    if (n < 2)
        return HL_OK;
    HL_TRY(HL_ALLOC(&values, (size_t)(n * n_columns)));
    HL_TRY(HL_ALLOC(&draws, (size_t)n_columns * HL_RESAMPLES));
    read_sequences(values, profile, quantity);
    HL_TRY(hl_bootstrap_means(draws, values, n, n_columns, HL_RESAMPLES, seed));
    for (int64_t bucket = 0; bucket < curve->n_buckets; bucket++) {
        double *sums = draws + 2 * bucket * HL_RESAMPLES;

        if (sequences_with_rows(values, n, curve->n_buckets, bucket) < 2)
            continue;
        hl_interval interval = interval_of(sums, sums + HL_RESAMPLES);
        curve->lows[bucket]  = interval.low;
        curve->highs[bucket] = interval.high;
        curve->has_intervals = true;
    }

done:
    hl_free(values);
    hl_free(draws);
    return status;
}

hl_status hl_position_curve_read(hl_position_curve *out, const hl_profile *profile,
                                 hl_quantity quantity, uint64_t seed)
{
    *out = (hl_position_curve){ .n_buckets = hl_profile_n_buckets(profile) };
    for (int64_t bucket = 0; bucket < out->n_buckets; bucket++) {
        out->means[bucket] = mean_over_heads(profile, bucket, quantity);
        out->lows[bucket] = out->highs[bucket] = NAN;
    }
    return fill_intervals(out, profile, quantity, seed);
}
