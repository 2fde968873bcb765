/* grid.c - a profile's numbers as plain arrays. */
#include "analysis/grid.h"

#include <math.h>
#include <stdio.h>

#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

const char *hl_head_name(char room[HL_HEAD_NAME_BYTES], int64_t layer, int64_t head)
{
    snprintf(room, HL_HEAD_NAME_BYTES, "L%lldH%lld", (long long)layer, (long long)head);
    return room;
}

hl_status hl_grid_means(double **out, const hl_profile *profile, hl_quantity quantity)
{
    int64_t   size    = hl_grid_size(profile);
    int64_t   n_heads = hl_profile_n_heads(profile);
    hl_status status  = HL_ALLOC(out, (size_t)size);

    if (status != HL_OK)
        return status;
    for (int64_t i = 0; i < size; i++)
        (*out)[i] = hl_grid_has(profile, i)
                        ? hl_profile_mean(profile, i / n_heads, i % n_heads, quantity)
                        : NAN;
    return HL_OK;
}

hl_status hl_grid_sequences(double **out, const hl_profile *profile, hl_quantity quantity)
{
    int64_t   size        = hl_grid_size(profile);
    int64_t   n_heads     = hl_profile_n_heads(profile);
    int64_t   n_sequences = hl_profile_n_sequences(profile);
    hl_status status      = HL_ALLOC(out, (size_t)size * (size_t)n_sequences);

    if (status != HL_OK)
        return status;
    for (int64_t sequence = 0; sequence < n_sequences; sequence++) {
        for (int64_t i = 0; i < size; i++)
            (*out)[sequence * size + i] =
                hl_grid_has(profile, i) ? hl_profile_sequence_mean(profile, sequence, i / n_heads,
                                                                   i % n_heads, quantity)
                                        : NAN;
    }
    return HL_OK;
}

hl_status hl_grid_intervals(hl_interval **out, const hl_profile *profile, hl_quantity quantity,
                            uint64_t seed)
{
    hl_status status      = HL_OK;
    int64_t   size        = hl_grid_size(profile);
    int64_t   n_sequences = hl_profile_n_sequences(profile);
    double   *values      = NULL;
    double   *draws       = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC(out, (size_t)size));
    for (int64_t i = 0; i < size; i++)
        (*out)[i] = (hl_interval){ NAN, NAN, NAN };
    if (n_sequences < 2)
        goto done;
    HL_TRY(hl_grid_sequences(&values, profile, quantity));
    HL_TRY(HL_ALLOC(&draws, (size_t)size * HL_RESAMPLES));
    HL_TRY(hl_bootstrap_means(draws, values, n_sequences, size, HL_RESAMPLES, seed));
    for (int64_t i = 0; i < size; i++)
        (*out)[i] = hl_bootstrap_interval(draws + i * HL_RESAMPLES, HL_RESAMPLES, 0.95);

done:
    hl_free(values);
    hl_free(draws);
    if (status != HL_OK) {
        hl_free(*out);
        *out = NULL;
    }
    return status;
}

double hl_similarity_beside_first(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    double distance = 1.0 - hl_profile_similarity(profile, layer, a, b);
    double sink_a   = hl_profile_pattern(profile, layer, a, HL_PM_SINK, false).mean;
    double sink_b   = hl_profile_pattern(profile, layer, b, HL_PM_SINK, false).mean;
    double rest     = 1.0 - 0.5 * (sink_a + sink_b);

    if (isnan(distance) || isnan(rest))
        return (double)NAN;
    if (rest <= 1e-6) /* what rounding leaves of rows that are all on the first key */
        return 0.0;
    distance = fmax(distance - 0.5 * fabs(sink_a - sink_b), 0.0);
    return fmax(1.0 - distance / rest, 0.0);
}

double hl_similarity_in_common(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    return fmin(hl_profile_similarity(profile, layer, a, b), /* passes NaN over */
                hl_similarity_beside_first(profile, layer, a, b));
}
