/* headlight/profile.h - what was measured of every head, as sums that add up.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_PROFILE_H
#define HEADLIGHT_PROFILE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- profiles
 *
 *     hl_profile *profile = NULL;
 *     if (hl_profile_load(&profile, "gpt2.profile") == HL_OK)
 *         printf("L5H3: %.3f nats\n",
 *                hl_profile_moments(profile, 5, 3, HL_Q_ENTROPY).mean);
 *     hl_profile_free(profile);
 *
 * A profile is what was measured of every head on some text, as sums that add up
 * exactly: profiles of parts of a text merge to the very bytes of the whole's, in any
 * order.  It is a safetensors file, which doc/profile.md describes.
 *
 * Any number of threads may read a profile at once; hl_profile_merge changes its first argument, which
 * no other thread may use meanwhile. */

typedef struct hl_profile hl_profile;

HL_API hl_status hl_profile_load(hl_profile **out, const char *path);
/* From memory; `where` names it in messages.  Nothing of it is needed afterwards. */
HL_API hl_status hl_profile_parse(hl_profile **out, const void *bytes, size_t n_bytes,
                                  const char *where);
HL_API hl_status hl_profile_write(const hl_profile *profile, const char *path);
HL_API void      hl_profile_free(hl_profile *profile);
/* Adds another profile.  HL_BAD_INPUT if that is of another model or was measured in another
 * way; the message names what differs, and nothing has been added. */
HL_API hl_status hl_profile_merge(hl_profile *profile, const hl_profile *other);
/* What was measured and how: "model", "context", "seed" ...; NULL if it does not say. */
HL_API const char *hl_profile_setting(const hl_profile *profile, const char *key);

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
    HL_Q_NOSINK, /* H over the keys other than the first, renormalized */
    HL_N_QUANTITIES
} hl_quantity;

/* Histograms of 64 equal bins over [0, 1]. */
typedef enum hl_histogram {
    HL_HIST_NORMALIZED = 0, /* H / ln n, rows that see at least 2 keys */
    HL_HIST_NOSINK,         /* H_nosink / ln n', n' >= 2               */
    HL_HIST_PEAK,
    HL_N_HISTOGRAMS
} hl_histogram;

/* Means over sampled rows (whole rows of attention), metrics.md 5; each also over the
 * row without key 0, renormalized, where `nosink` is true below. */
typedef enum hl_pattern_metric {
    HL_PM_DIAGONAL = 0, /* A(i,i)                                    */
    HL_PM_PREVIOUS,     /* A(i,i-1)                                  */
    HL_PM_BAND,         /* sum of A(i,j), i - j <= 4                 */
    HL_PM_SINK,         /* A(i,0), i >= 1                            */
    HL_PM_DIAGONAL_TOP, /* share of rows whose largest is A(i,i)     */
    HL_PM_PEAK,
    HL_PM_CONTENT,  /* 1 - band - sink, not below 0              */
    HL_PM_EDGES,    /* share of visible pairs with A > 1e-3      */
    HL_PM_K90,      /* share of keys that hold 90% of the row    */
    HL_PM_SUPPORT2, /* exp(H2) / n                               */
    HL_PM_CHANCE,   /* 1 / n, for the lift of the diagonal       */
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

/* Every function takes a layer and a head that exist; heads of a layer beyond its own
 * number (per-layer head counts) read as never counted. */

HL_API int64_t hl_profile_n_layers(const hl_profile *profile);
HL_API int64_t hl_profile_n_heads(const hl_profile *profile); /* the most of any layer */
HL_API int64_t hl_profile_heads_of(const hl_profile *profile, int64_t layer);

HL_API hl_moments hl_profile_moments(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_quantity quantity);
/* Rows with a NaN, an infinity, or H > ln n + 1e-3: counted here and nowhere else. */
HL_API int64_t hl_profile_broken(const hl_profile *profile, int64_t layer, int64_t head);
/* Where the first of them was: a document, and a token of it; false if there is none. */
HL_API bool hl_profile_broken_place(int64_t *document, int64_t *token, const hl_profile *profile,
                                    int64_t layer, int64_t head);

/* (64) counts; and the value below which a share q of the rows lies, NaN of none. */
HL_API const int64_t *hl_profile_histogram(const hl_profile *profile, int64_t layer, int64_t head,
                                           hl_histogram histogram);
HL_API double         hl_profile_quantile(const hl_profile *profile, int64_t layer, int64_t head,
                                          hl_histogram histogram, double q);

/* By position: bucket b holds the positions 2^b - 1 <= i < 2^(b+1) - 1.  ENTROPY and FAIR
 * only; min and max are NaN. */
HL_API int64_t    hl_profile_n_buckets(const hl_profile *profile);
HL_API hl_moments hl_profile_by_position(const hl_profile *profile, int64_t layer, int64_t head,
                                         int64_t bucket, hl_quantity quantity);

/* By type of the row's token: ENTROPY, FAIR and RENYI2 only; min and max are NaN.
 * hl_profile_lookback is the mean share of attention that rows of type `from` give to
 * keys of type `to`. */
HL_API int64_t     hl_profile_n_types(const hl_profile *profile);
HL_API const char *hl_profile_type_name(const hl_profile *profile, int64_t type);
HL_API hl_moments  hl_profile_by_type(const hl_profile *profile, int64_t layer, int64_t head,
                                      int64_t type, hl_quantity quantity);
HL_API double      hl_profile_lookback(const hl_profile *profile, int64_t layer, int64_t head,
                                       int64_t from, int64_t to);

/* Sampled rows. */
HL_API hl_moments hl_profile_pattern(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_pattern_metric metric, bool nosink);
/* 1 - mean total variation between two heads' rows, and linear CKA of their outputs. */
HL_API double hl_profile_similarity(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
HL_API double hl_profile_cka(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
/* NaN where the probe was not run. */
HL_API double hl_profile_probe(const hl_profile *profile, int64_t layer, int64_t head,
                               hl_probe probe);

/* Mean norm of what the head writes over the layer's mean of that; NaN: not measured. */
HL_API double hl_profile_output_norm(const hl_profile *profile, int64_t layer, int64_t head);
/* Mean of 1 - cos(in, out) of the block; NaN: not measured. */
HL_API double hl_profile_block_influence(const hl_profile *profile, int64_t layer);
/* Nats a token; count 0: not measured.  All but the count is NaN where there are broken losses. */
HL_API hl_moments hl_profile_nll(const hl_profile *profile);
/* How many tokens have a loss that is NaN, infinite or beyond 2^23 nats; they are not in the count. */
HL_API int64_t hl_profile_broken_losses(const hl_profile *profile);

/* Sequences kept for the bootstrap: those with the smallest content hashes.  ENTROPY
 * and FAIR and NOSINK means of a sequence, NaN where it has no such row. */
HL_API int64_t hl_profile_n_sequences(const hl_profile *profile); /* kept */
HL_API int64_t hl_profile_all_sequences(const hl_profile *profile);
HL_API int64_t hl_profile_n_tokens(const hl_profile *profile);
HL_API double  hl_profile_sequence_mean(const hl_profile *profile, int64_t sequence, int64_t layer,
                                        int64_t head, hl_quantity quantity);

#ifdef __cplusplus
}
#endif
#endif
