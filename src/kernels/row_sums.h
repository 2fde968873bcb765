/* row_sums.h - rows of statistics, by the run, and what a run comes to.
 *
 * A profile wants sums of rows, not rows.  Where these lie in other memory than its own
 * (a GPU's), it says which of them belong together, and whoever holds them adds them up:
 * a few numbers a run come back instead of ten a row.  Values become whole numbers of 2^-40
 * before they are added, so that sums do not depend on the order of their terms (stats/exact.h) and
 * are those of the profile's own loop to the bit. */
#ifndef HL_KERNELS_ROW_SUMS_H
#define HL_KERNELS_ROW_SUMS_H

#include <math.h>

#include "base/host_device.h"
#include "headlight/profile.h"
#include "headlight/session.h"
#include "kernels/pattern_sums.h"

struct hl_pattern_row; /* kernels/pattern.h */

/* ------------------------------------------------------- values of single rows */

#define HL_FIXED_ONE 0x1p40 /* 1 as a whole number: of sums of rows */
#define HL_UNIT_ONE  0x1p22 /* ... and of shares between 0 and 1 */
#define HL_N_BINS    64     /* of a histogram over [0, 1] */

/* Squares of smaller values fit into 64 bits, 4096 of them added up. */
#define HL_SMALL_LIMIT 32.0

/* A softmax of n outcomes has at most ln n; rounding is allowed this. */
#define HL_ENTROPY_SLACK 1e-3

HL_HOST_DEVICE int64_t hl_fixed(double value)
{
    return (int64_t)llrint(value * HL_FIXED_ONE);
}

HL_HOST_DEVICE bool hl_is_small(float value)
{
    return fabsf(value) < (float)HL_SMALL_LIMIT;
}

/* Of a row that sees so many keys that even attention has the entropy log_n. */
HL_HOST_DEVICE bool hl_entropy_is_possible(float entropy, double log_n)
{
    return (double)entropy <= log_n + HL_ENTROPY_SLACK;
}

/* The last bin holds 1, and what rounding put outside [0, 1] goes to the ends. */
HL_HOST_DEVICE int32_t hl_bin_of(double share)
{
    double place = share * HL_N_BINS;

    place = place > 0.0 ? place : 0.0;
    return (int32_t)(place < HL_N_BINS - 1 ? place : HL_N_BINS - 1);
}

/* A share that rounding put outside [0, 1] goes to the ends, NaN to 0. */
HL_HOST_DEVICE float hl_share_of(float mass)
{
    float share = mass > 0.0f ? mass : 0.0f;

    return share < 1.0f ? share : 1.0f;
}

/* -------------------------------------------------------------------- runs of rows */

/* X(quantity, its name, the array of hl_attention_result that has it) for every quantity of
 * headlight/profile.h, in that order.  NORMALIZED is the entropy times an inverse of the row. */
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

/* "entropy", ... as a list of initializers. */
#define HL_QUANTITY_NAME(quantity, name, array) [HL_Q_##quantity] = name,

/* values (HL_N_QUANTITIES): each quantity's rows, from row `at` of (batch, heads, rows) on. */
static inline void hl_quantity_rows(const float **values, const hl_attention_result *rows,
                                    int64_t at)
{
#define PLACE(quantity, name, array) values[HL_Q_##quantity] = rows->array + at;
    HL_EACH_QUANTITY(PLACE)
#undef PLACE
}

/* Rows [begin, end) of a sequence, counted from the chunk's first, that have all of this in common. */
typedef struct hl_run {
    int32_t  sequence;
    int32_t  begin;
    int32_t  end;
    uint32_t defined; /* a bit for each quantity, then one for each histogram */
    int32_t  type;    /* of their tokens: a row of the lookback table */
    int32_t  bucket;  /* of their positions */
} hl_run;

/* One head's rows of one run.  is_small: every value is hl_is_small and every entropy possible; where it is 0 nothing else here counts, nor has any been added elsewhere, and the
 * rows themselves must be looked at. */
typedef struct hl_run_sums {
    int64_t sum[HL_N_QUANTITIES];     /* of hl_fixed(value); 0 where not defined */
    int64_t squares[HL_N_QUANTITIES]; /* of hl_fixed(value * value) */
    float   min[HL_N_QUANTITIES];     /* +inf and -inf where not defined */
    float   max[HL_N_QUANTITIES];
    int32_t is_small;
    int32_t reserved;
} hl_run_sums;

/* What a profile wants summed of the rows of a layer; its own, until it plans again. */
typedef struct hl_row_plan {
    const hl_run *runs; /* (n_runs) by sequence */
    int64_t       n_runs;
    const double *log_n; /* (n_batch, n_rows) each */
    const double *inverse;
    const double *inverse_other;
    uint64_t      version; /* another for other numbers */
    /* For hl_likeness, wherever there are heads: */
    const float            *gram;        /* (n_heads, d_head, d_head) W_h W_h' of the layer's output
                               * projection; the same whenever the session is fed */
    int64_t                 kernel_rows; /* so many rows of a sequence are compared between heads */
    const hl_pattern_place *places;      /* (n_batch, n_patterns) of the rows looked at whole */
} hl_row_plan;

/* What came of it. */
typedef struct hl_row_sums {
    const hl_run_sums *runs; /* (n_heads, n_runs) */
    int64_t            n_runs;
    const int64_t     *histogram; /* (n_heads, HL_N_HISTOGRAMS, HL_N_BINS) */
    const int64_t     *lookback;  /* (n_heads, n_types, n_types); NULL: there is one type */
} hl_row_sums;

/* What heads write in the tap's sampled rows, how alike that is and whole rows of attention are,
 * and what the block does to the stream: made where the rows lie, whenever a tap has a plan and
 * sampled rows.  Pairs are of heads a < b, or a <= b, by a, then b; the rows of a sequence's
 * kernel are those it has, n / min(n, kernel_rows) apart. */
typedef struct hl_likeness {
    const double *influence; /* (n_batch, n_sampled) 1 - cos of the stream before and after the
                              * block; of the last one only where somebody needs its end */
    const double *squares;   /* (n_heads, n_batch, n_sampled) |z W_h|^2; NULL: there is no head, as
                              * in what follows */
    const double *alike;     /* (n_batch, pairs a <= b) HSIC of kernels/likeness.h; NaN where a
                              * head's kernel is not finite */
    const double *distances; /* (n_batch, n_patterns, pairs a < b) their total variation */
    const hl_pattern_sums *patterns; /* (n_batch, n_patterns, n_heads) of the plan's places */
} hl_likeness;

/* What the library's own taps may ask for beside what every tap may (hl_tap.observer): sums and
 * comparisons that a device makes of a layer's rows, where these lie in other memory. */
typedef struct hl_observer {
    /* Which; asked before the device runs the layer, with the tap's context. */
    hl_status (*plan)(void *context, const hl_layer_rows *rows, hl_row_plan *out);
} hl_observer;

/* What came of it, and the statistics of whole rows. */
typedef struct hl_observed {
    /* Of rows->rows then only what they leave to be looked at is there.  NULL: all rows are. */
    const hl_row_sums *sums;
    /* z, the stream and whole rows are not told then.  NULL: they are. */
    const hl_likeness *likeness;
    /* (n_batch, n_heads, n_patterns) of hl_layer_rows.pattern, in double; NULL without. */
    const struct hl_pattern_row *exact;
} hl_observed;

/* NULL where nobody has told any. */
static inline const hl_row_sums *hl_rows_sums(const hl_layer_rows *rows)
{
    return rows->observed != NULL ? rows->observed->sums : NULL;
}

static inline const hl_likeness *hl_rows_likeness(const hl_layer_rows *rows)
{
    return rows->observed != NULL ? rows->observed->likeness : NULL;
}

#endif
