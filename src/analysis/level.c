/* level.c - the mean fair entropy of sequences, and its spread. */
#include "analysis/level.h"

#include <math.h>

#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

enum { LEAST_SEQUENCES = 4 };

hl_status hl_level_of(hl_level *out, const hl_profile *profile)
{
    hl_status status = HL_OK;
    int64_t   size   = hl_grid_size(profile);
    int64_t   count  = hl_profile_n_sequences(profile);
    double   *values = NULL; /* (count, size) */
    double   *levels = NULL; /* (count) */
    double   *work   = NULL; /* (count) */

    HL_TRY(hl_grid_sequences(&values, profile, HL_Q_FAIR));
    HL_TRY(HL_ALLOC(&levels, (size_t)count));
    HL_TRY(HL_ALLOC(&work, (size_t)count));
    for (int64_t i = 0; i < count; i++)
        levels[i] = hl_mean(values + i * size, size);
    hl_robust spread = hl_robust_spread(levels, count, work);
    *out             = (hl_level){ .n_sequences = count,
                                   .mean        = hl_mean(levels, count),
                                   .median      = spread.median,
                                   .sigma       = spread.sigma };

done:
    hl_free(values);
    hl_free(levels);
    hl_free(work);
    return status;
}

double hl_level_fall(const hl_level *before, const hl_level *now)
{
    if (before->n_sequences < LEAST_SEQUENCES || !(before->sigma > 0.0))
        return NAN;
    return (before->median - now->mean) / before->sigma;
}
