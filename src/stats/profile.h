/* profile.h - what was measured of every head: the waist of the program.
 *
 * Left of a profile stand a model and a text, right of it tables, pictures and
 * pruned models, which need neither.  A profile is a grid of accumulators, one
 * cell a layer and head.  All sums are whole numbers of a fixed point (exact.h), so
 * that parts, threads and machines give the same bytes as the whole, in any order:
 *
 *     hl_profile_new      empty, for a shape
 *     hl_profile_rows     add the rows of a layer           (profile_add.c)
 *     hl_profile_merge    add another profile               (profile_merge.c)
 *     hl_profile_write    a safetensors file, and back      (profile_file.c)
 *     hl_profile_mean ... what the sums say                 (profile_read.c)
 *
 * doc/profile.md describes the file. */
#ifndef HL_STATS_PROFILE_H
#define HL_STATS_PROFILE_H

#include "headlight.h"

typedef struct hl_profile hl_profile;

/* What is kept of every row.  Undefined values (no other key than the first, fewer
 * than 16 visible keys for the fair entropy, a key that is not visible) are not
 * counted, so that each quantity has a count of its own. */
typedef enum hl_quantity {
    HL_Q_ENTROPY = 0, /* H, nats, all rows: the seed mean                */
    HL_Q_FAIR,        /* H / ln n, rows that see at least 16 keys        */
    HL_Q_RENYI2,
    HL_Q_VARENTROPY,
    HL_Q_PEAK,
    HL_Q_SELF,
    HL_Q_PREVIOUS,
    HL_Q_FIRST,
    HL_Q_NOSINK, /* H over the keys other than the first, renormalised */
    HL_N_QUANTITIES
} hl_quantity;

/* Histograms of 64 equal bins over [0, 1]. */
typedef enum hl_histogram {
    HL_HIST_NORMALISED = 0, /* H / ln n, rows that see at least 2 keys */
    HL_HIST_NOSINK,         /* H_nosink / ln n', n' >= 2               */
    HL_HIST_PEAK,
    HL_N_HISTOGRAMS
} hl_histogram;

/* Means over sampled rows (whole rows of attention), metrics.md 5; each also over the
 * row without key 0, renormalised, where `nosink` is true below. */
typedef enum hl_pattern_metric {
    HL_PM_DIAGONAL = 0, /* A(i,i)                                    */
    HL_PM_PREVIOUS,     /* A(i,i-1)                                  */
    HL_PM_BAND,         /* sum of A(i,j), i - j <= 4                 */
    HL_PM_SINK,         /* A(i,0), i >= 1                            */
    HL_PM_DIAGONAL_TOP, /* share of rows whose largest is A(i,i)     */
    HL_PM_PEAK,
    HL_PM_CONTENT,       /* 1 - band - sink, not below 0              */
    HL_PM_EDGES,         /* share of visible pairs with A > 1e-3      */
    HL_PM_K90,           /* share of keys that hold 90% of the row    */
    HL_PM_SUPPORT2,      /* exp(H2) / n                               */
    HL_PM_CHANCE,        /* 1 / n, for the lift of the diagonal       */
    HL_N_PATTERN_METRICS
} hl_pattern_metric;

/* Scores on a repeated random sequence: the mean of A on an offset diagonal. */
typedef enum hl_probe {
    HL_PROBE_INDUCTION = 0,
    HL_PROBE_DUPLICATE,
    HL_PROBE_PREVIOUS,
    HL_N_PROBES
} hl_probe;

/* A count, a mean and a variance; mean and variance are NaN when nothing was counted. */
typedef struct hl_moments {
    int64_t count;
    double  mean;
    double  variance; /* of the sample, divided by count */
    double  min;
    double  max;
} hl_moments;

/* --------------------------------------------------------------------- reading
 *
 * Every function takes a layer and a head that exist; heads of a layer beyond
 * its own number (per-layer head counts) read as never counted. */

int64_t hl_profile_n_layers(const hl_profile *profile);
int64_t hl_profile_n_heads(const hl_profile *profile); /* the most of any layer */
int64_t hl_profile_heads_of(const hl_profile *profile, int64_t layer);

hl_moments hl_profile_moments(const hl_profile *profile, int64_t layer, int64_t head,
                              hl_quantity quantity);
static inline double hl_profile_mean(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_quantity quantity)
{
    return hl_profile_moments(profile, layer, head, quantity).mean;
}
/* Rows with a NaN, an infinity, or H > ln n + 1e-3: counted here and nowhere else. */
int64_t hl_profile_broken(const hl_profile *profile, int64_t layer, int64_t head);

/* (64) counts; and the value below which a share q of the rows lies, NaN of none. */
const int64_t *hl_profile_histogram(const hl_profile *profile, int64_t layer, int64_t head,
                                    hl_histogram histogram);
double         hl_profile_quantile(const hl_profile *profile, int64_t layer, int64_t head,
                                   hl_histogram histogram, double q);

/* By position: bucket b holds the positions 2^b - 1 <= i < 2^(b+1) - 1.  ENTROPY and FAIR
 * only; min and max are NaN. */
int64_t    hl_profile_n_buckets(const hl_profile *profile);
hl_moments hl_profile_by_position(const hl_profile *profile, int64_t layer, int64_t head,
                                  int64_t bucket, hl_quantity quantity);

/* By type of the row's token: ENTROPY, FAIR and RENYI2 only; min and max are NaN.
 * hl_profile_lookback is the mean share of attention that rows of type `from` give to
 * keys of type `to`. */
int64_t     hl_profile_n_types(const hl_profile *profile);
const char *hl_profile_type_name(const hl_profile *profile, int64_t type);
hl_moments  hl_profile_by_type(const hl_profile *profile, int64_t layer, int64_t head, int64_t type,
                               hl_quantity quantity);
double      hl_profile_lookback(const hl_profile *profile, int64_t layer, int64_t head,
                                int64_t from, int64_t to);

/* Sampled rows. */
hl_moments hl_profile_pattern(const hl_profile *profile, int64_t layer, int64_t head,
                              hl_pattern_metric metric, bool nosink);
/* 1 - mean total variation between two heads' rows, and linear CKA of their outputs. */
double hl_profile_similarity(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
double hl_profile_cka(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
/* NaN where the probe was not run. */
double hl_profile_probe(const hl_profile *profile, int64_t layer, int64_t head, hl_probe probe);

/* Mean norm of what the head writes over the layer's mean of that; NaN: not measured. */
double hl_profile_output_norm(const hl_profile *profile, int64_t layer, int64_t head);
/* Mean of 1 - cos(in, out) of the block; NaN: not measured. */
double hl_profile_block_influence(const hl_profile *profile, int64_t layer);
/* Nats a token; count 0: not measured. */
hl_moments hl_profile_nll(const hl_profile *profile);

/* Sequences kept for the bootstrap: those with the smallest content hashes.  ENTROPY
 * and FAIR and NOSINK means of a sequence, NaN where it has no such row. */
int64_t  hl_profile_n_sequences(const hl_profile *profile); /* kept */
int64_t  hl_profile_all_sequences(const hl_profile *profile);
int64_t  hl_profile_n_tokens(const hl_profile *profile);
uint64_t hl_profile_sequence_hash(const hl_profile *profile, int64_t sequence);
double   hl_profile_sequence_mean(const hl_profile *profile, int64_t sequence, int64_t layer,
                                  int64_t head, hl_quantity quantity);

#endif
