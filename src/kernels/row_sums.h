/* row_sums.h - sums of row statistics over runs of rows.
 *
 * A profile needs sums of rows, not rows.  If the rows lie in a GPU's memory, the profile says
 * which rows belong together, and the GPU adds them up: a few numbers per run are copied instead of
 * ten per row.  Values become whole numbers of 2^-40 before they are added, so that sums do not
 * depend on the order of their terms (stats/exact.h) and are those of the profile's own loop to the
 * bit. */
#ifndef HL_KERNELS_ROW_SUMS_H
#define HL_KERNELS_ROW_SUMS_H

#include <math.h>

#include "base/host_device.h"
#include "headlight/profile.h"
#include "headlight/session.h"
#include "kernels/pattern_sums.h"

struct hl_pattern_row; /* kernels/pattern.h */

/* ------------------------------------------------------- values of single rows */

#define HL_FIXED_ONE 0x1p40 /* the number 1, in sums of rows */
#define HL_UNIT_ONE  0x1p22 /* the number 1, in sums of shares between 0 and 1 */
#define HL_N_BINS    64     /* bins of a histogram over [0, 1] */

/* Squares of smaller values fit into 64 bits, even when 4096 of them are added. */
#define HL_SMALL_LIMIT 32.0

/* Rounding tolerance: the entropy of n outcomes is at most ln n. */
#define HL_ENTROPY_SLACK 1e-3

HL_HOST_DEVICE int64_t hl_fixed(double value)
{
    return (int64_t)llrint(value * HL_FIXED_ONE);
}

HL_HOST_DEVICE bool hl_is_small(float value)
{
    return fabsf(value) < (float)HL_SMALL_LIMIT;
}

/* log_n is the logarithm of the number of keys that the row sees: no entropy is larger. */
HL_HOST_DEVICE bool hl_entropy_is_possible(float entropy, double log_n)
{
    return (double)entropy <= log_n + HL_ENTROPY_SLACK;
}

/* The bin of a share; the last bin includes 1.  By rounding, shares may lie outside [0, 1]: they go
 * to the end bins. */
HL_HOST_DEVICE int32_t hl_bin_of(double share)
{
    double place = share * HL_N_BINS;

    place = place > 0.0 ? place : 0.0;
    return (int32_t)(place < HL_N_BINS - 1 ? place : HL_N_BINS - 1);
}

/* Clamps a share to [0, 1], which rounding may have left; NaN becomes 0. */
HL_HOST_DEVICE float hl_share_of(float mass)
{
    float share = mass > 0.0f ? mass : 0.0f;

    return share < 1.0f ? share : 1.0f;
}

/* -------------------------------------------------------------------- runs of rows */

/* X(quantity, its name, the array of hl_attention_result that has it) for every quantity of
 * headlight/profile.h, in that order.  NORMALIZED uses the entropy, times the row's inverse. */
#define HL_EACH_QUANTITY(X)                                                                        \
    X(ENTROPY, "entropy", entropy)                                                                 \
    X(NORMALIZED, "normalized", entropy)                                                           \
    X(RENYI2, "renyi2", renyi2)                                                                    \
    X(VARENTROPY, "varentropy", varentropy)                                                        \
    X(PEAK, "peak", peak)                                                                          \
    X(SELF, "self", self)                                                                          \
    X(PREVIOUS, "previous", previous)                                                              \
    X(FIRST, "first", first)                                                                       \
    X(ENTROPY_NOSINK, "entropy_nosink", entropy_nosink)

/* The names of the quantities, "entropy", ..., as a list of initializers. */
#define HL_QUANTITY_NAME(quantity, name, array) [HL_Q_##quantity] = name,

/* Sets values (HL_N_QUANTITIES) to each quantity's array, at row `at` of (batch, heads, rows). */
static inline void hl_quantity_rows(const float **values, const hl_attention_result *rows,
                                    int64_t at)
{
#define PLACE(quantity, name, array) values[HL_Q_##quantity] = rows->array + at;
    HL_EACH_QUANTITY(PLACE)
#undef PLACE
}

/* Rows [begin, end) of a sequence, relative to the chunk's first row, that belong together. */
typedef struct hl_run {
    int32_t  sequence;
    int32_t  begin;
    int32_t  end;
    uint32_t defined; /* one bit per quantity, then one per histogram */
    int32_t  type;    /* type of their tokens: a row of the lookback table */
    int32_t  bucket;  /* bucket of their positions */
} hl_run;

/* The sums of one head's rows of one run.  is_small is set if every value is hl_is_small and every
 * entropy is possible.  Otherwise nothing else here is valid, these rows are in no other sum, and
 * the profile must read the rows themselves. */
typedef struct hl_run_sums {
    int64_t sum[HL_N_QUANTITIES];     /* sums of hl_fixed(value); 0 if not defined */
    int64_t squares[HL_N_QUANTITIES]; /* sums of hl_fixed(value * value) */
    float   min[HL_N_QUANTITIES];     /* +inf if not defined; max: -inf */
    float   max[HL_N_QUANTITIES];
    int32_t is_small;
    int32_t reserved;
} hl_run_sums;

/* What a profile wants summed over the rows of a layer.  It owns the arrays until its next plan. */
typedef struct hl_row_plan {
    const hl_run *runs; /* (n_runs), ordered by sequence */
    int64_t       n_runs;
    const double *log_n; /* (n_batch, n_rows), like the inverses */
    const double *inverse;
    const double *inverse_other;
    uint64_t      version; /* changes when the numbers change */
    /* The fields below are for hl_likeness and set if the layer has heads. */
    const float            *gram;        /* (n_heads, d_head, d_head) W_h W_h' of the layer's
                                          * output projection; constant while the session is fed */
    int64_t                 kernel_rows; /* rows per sequence that are compared between heads */
    const hl_pattern_place *places;      /* (n_batch, n_patterns) the rows looked at whole */
} hl_row_plan;

/* The sums for a plan. */
typedef struct hl_row_sums {
    const hl_run_sums *runs; /* (n_heads, n_runs) */
    int64_t            n_runs;
    const int64_t     *histogram; /* (n_heads, HL_N_HISTOGRAMS, HL_N_BINS) */
    const int64_t     *lookback;  /* (n_heads, n_types, n_types), or NULL with a single type */
} hl_row_sums;

/* What heads write in the tap's sampled rows, how alike it is between heads, how alike their whole
 * rows of attention are, and how the block changes the stream.  It is computed where the rows lie,
 * if a tap has a plan and sampled rows.  Pairs of heads a < b, or a <= b, are ordered by a, then b.
 * A kernel uses min(n, kernel_rows) of a sequence's n rows, evenly spaced. */
typedef struct hl_likeness {
    const double *influence; /* (n_batch, n_sampled) 1 - cos of the stream before and after the
                              * block; for the last block only if a tap needs its output */
    const double *squares;   /* (n_heads, n_batch, n_sampled) |z W_h|^2; NULL, like the fields
                              * below, if the layer has no heads */
    const double *alike;     /* (n_batch, pairs a <= b) HSIC of kernels/likeness.h; NaN if a
                              * head's kernel is not finite */
    const double *distances; /* (n_batch, n_patterns, pairs a < b) total variation */
    const hl_pattern_sums *patterns; /* (n_batch, n_patterns, n_heads) sums for the plan's places */
} hl_likeness;

/* What the library's own taps may ask for, in addition to public taps (hl_tap.observer): sums and
 * comparisons of a layer's rows, computed by the device that holds them. */
typedef struct hl_observer {
    /* Says what is wanted.  Called with the tap's context before the device runs the layer. */
    hl_status (*plan)(void *context, const hl_layer_rows *rows, hl_row_plan *out);
} hl_observer;

/* The results of an observer's plan, and the statistics of whole rows. */
typedef struct hl_observed {
    /* NULL: rows->rows has all rows; otherwise only those that the sums could not use. */
    const hl_row_sums *sums;
    /* If not NULL, the tap gets no z, no stream and no whole rows.  NULL: it gets them. */
    const hl_likeness *likeness;
    /* (n_batch, n_heads, n_patterns) statistics of hl_layer_rows.pattern, in double, or NULL. */
    const struct hl_pattern_row *exact;
    /* In layers with an indexer, the same of rows that see all keys; only lse counts.  Else NULL. */
    const struct hl_pattern_row *full;
} hl_observed;

/* Returns the sums, or NULL if the device has computed none. */
static inline const hl_row_sums *hl_rows_sums(const hl_layer_rows *rows)
{
    return rows->observed != NULL ? rows->observed->sums : NULL;
}

static inline const hl_likeness *hl_rows_likeness(const hl_layer_rows *rows)
{
    return rows->observed != NULL ? rows->observed->likeness : NULL;
}

#endif
