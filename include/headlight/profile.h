/* headlight/profile.h - measurements of every head, as sums that can be merged. Part of
 * headlight.h, which see for the conventions. */
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
 * A profile holds the measurements of every head on some text, as sums that add up exactly: merging
 * the profiles of parts of a text gives the same bytes as measuring the whole text, in any order.
 * It is a safetensors file; doc/profile.md describes the format.
 *
 * Any number of threads may read a profile at once; hl_profile_merge changes its first
 * argument, which no other thread may use during the call. */

typedef struct hl_profile hl_profile;

HL_API hl_status hl_profile_load(hl_profile **out, const char *path);
/* Reads a profile from memory; `where` names it in messages.  The bytes are not needed after the
 * call. */
HL_API hl_status hl_profile_parse(hl_profile **out, const void *bytes, size_t n_bytes,
                                  const char *where);
HL_API hl_status hl_profile_write(const hl_profile *profile, const char *path);
HL_API void      hl_profile_free(hl_profile *profile);
/* Adds another profile.  Returns HL_BAD_INPUT if it is of another model or was measured in
 * another way; the message names the difference, and the profile is unchanged. */
HL_API hl_status hl_profile_merge(hl_profile *profile, const hl_profile *other);
/* Returns a setting of the measurement: "model", "context", "seed", ...; NULL if the profile
 * does not record it. */
HL_API const char *hl_profile_setting(const hl_profile *profile, const char *key);

enum { HL_HEAD_NAME_BYTES = 48 };
/* Writes the name of a head, such as "L5H3", or of a layer, "L5", if `head` is negative; returns
 * `room`.  Models with several sets of heads have "E5H3" (encoder), "L5H3" (decoder) and "X5H3"
 * (cross-attention), "V5H3" and "A5H3" (towers for images and sound), each set numbered from 0; the
 * profile's layers have them one set after the other. */
HL_API const char *hl_profile_head_name(char room[HL_HEAD_NAME_BYTES], const hl_profile *profile,
                                        int64_t layer, int64_t head);
/* Reads such a name, of n_bytes; .head is -1 for a layer.  Returns false if the profile has none
 * with it. */
HL_API bool hl_profile_head_find(hl_head *out, const hl_profile *profile, const char *word,
                                 size_t n_bytes);

/* Quantities that are summed over rows.  Undefined values are not counted, so each quantity has
 * its own count.  A value is undefined if the row sees no key other than the first, sees fewer
 * than 16 keys (for the normalized entropy), or does not see the key in question. */
typedef enum hl_quantity {
    HL_Q_ENTROPY = 0, /* Shannon entropy H, nats, all rows */
    HL_Q_NORMALIZED,  /* normalized entropy H / ln n, rows that see at least 16 keys */
    HL_Q_RENYI2,
    HL_Q_VARENTROPY,
    HL_Q_PEAK,
    HL_Q_SELF,
    HL_Q_PREVIOUS,
    HL_Q_FIRST,
    HL_Q_ENTROPY_NOSINK, /* H without the first key, renormalized */
    HL_N_QUANTITIES
} hl_quantity;

/* Histograms of 64 equal bins over [0, 1]. */
typedef enum hl_histogram {
    HL_HIST_NORMALIZED = 0,    /* H / ln n, rows that see at least 2 keys */
    HL_HIST_NORMALIZED_NOSINK, /* H_nosink / ln n', n' >= 2               */
    HL_HIST_PEAK,
    HL_N_HISTOGRAMS
} hl_histogram;

/* Means over sampled rows (complete attention rows); see section 5 of doc/metrics.md.  The
 * last argument of hl_profile_pattern chooses between complete rows and rows without the first key,
 * renormalized. */
typedef enum hl_pattern_metric {
    HL_PM_SELF = 0, /* A(i,i)                                    */
    HL_PM_PREVIOUS, /* A(i,i-1)                                  */
    HL_PM_BAND,     /* sum of A(i,j) over i - j <= 4 */
    HL_PM_SINK,     /* A(i,0), i >= 1                            */
    HL_PM_SELF_TOP, /* share of rows whose largest entry is A(i,i) */
    HL_PM_PEAK,
    HL_PM_CONTENT,  /* 1 - band - sink, not below 0              */
    HL_PM_EDGES,    /* share of visible pairs with A > 1e-3      */
    HL_PM_K90,      /* share of keys that hold 90% of the row    */
    HL_PM_SUPPORT2, /* exp(H2) / n                               */
    HL_PM_CHANCE,   /* 1 / n, for the lift of the own position   */
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
    double  variance; /* population variance: divided by count */
    double  min;
    double  max;
} hl_moments;

/* In all functions below, layer and head must exist.  If layers have different numbers of heads,
 * a head number that the layer lacks is valid and has a count of 0. */

HL_API int64_t hl_profile_n_layers(const hl_profile *profile);
HL_API int64_t hl_profile_n_heads(const hl_profile *profile); /* largest number in any layer */
HL_API int64_t hl_profile_heads_of(const hl_profile *profile, int64_t layer);

HL_API hl_moments hl_profile_moments(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_quantity quantity);
/* Returns the number of rows with a NaN, an infinity, or H > ln n + 1e-3.  Such rows are counted
 * here and in no other quantity. */
HL_API int64_t hl_profile_broken(const hl_profile *profile, int64_t layer, int64_t head);
/* Finds the document and the token of the first broken row; returns false if there is no broken
 * row. */
HL_API bool hl_profile_broken_place(int64_t *document, int64_t *token, const hl_profile *profile,
                                    int64_t layer, int64_t head);

/* hl_profile_histogram returns 64 counts.  hl_profile_quantile returns the value below which a
 * share q of the rows lies, or NaN if the histogram is empty. */
HL_API const int64_t *hl_profile_histogram(const hl_profile *profile, int64_t layer, int64_t head,
                                           hl_histogram histogram);
HL_API double         hl_profile_quantile(const hl_profile *profile, int64_t layer, int64_t head,
                                          hl_histogram histogram, double q);

/* Moments by position: bucket b holds the positions 2^b - 1 <= i < 2^(b+1) - 1.  Only ENTROPY
 * and NORMALIZED are available; min and max are NaN. */
HL_API int64_t    hl_profile_n_buckets(const hl_profile *profile);
HL_API hl_moments hl_profile_by_position(const hl_profile *profile, int64_t layer, int64_t head,
                                         int64_t bucket, hl_quantity quantity);

/* Moments by type of the row's token.  Only ENTROPY, NORMALIZED and RENYI2 are available; min and
 * max are NaN.  hl_profile_lookback returns the mean share of attention that rows of type `from`
 * give to keys of type `to`. */
HL_API int64_t     hl_profile_n_types(const hl_profile *profile);
HL_API const char *hl_profile_type_name(const hl_profile *profile, int64_t type);
HL_API hl_moments  hl_profile_by_type(const hl_profile *profile, int64_t layer, int64_t head,
                                      int64_t type, hl_quantity quantity);
HL_API double      hl_profile_lookback(const hl_profile *profile, int64_t layer, int64_t head,
                                       int64_t from, int64_t to);

/* Moments of a metric over sampled rows. */
HL_API hl_moments hl_profile_pattern(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_pattern_metric metric, bool nosink);
/* hl_profile_similarity is 1 - the mean total variation between the rows of two heads;
 * hl_profile_cka is the linear CKA of their outputs. */
HL_API double hl_profile_similarity(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
HL_API double hl_profile_cka(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
/* Returns the score of a probe; NaN if the probe was not run. */
HL_API double hl_profile_probe(const hl_profile *profile, int64_t layer, int64_t head,
                               hl_probe probe);

/* Returns the mean output norm of the head relative to the layer's mean; NaN if not measured. */
HL_API double hl_profile_output_norm(const hl_profile *profile, int64_t layer, int64_t head);
/* Returns the mean of 1 - cos(in, out) of the block; NaN if not measured. */
/* Sparse attention (DeepSeek-V3.2): the share of the full softmax's mass that lies on the keys which the
 * indexer chose, in sampled rows that see more keys than it chooses.  Count 0: there is no indexer. */
HL_API hl_moments hl_profile_recall(const hl_profile *profile, int64_t layer, int64_t head);
HL_API double     hl_profile_block_influence(const hl_profile *profile, int64_t layer);
/* Returns the negative log-likelihood, nats per token; count 0 if not measured.  If there are
 * broken losses, all fields except the count are NaN. */
HL_API hl_moments hl_profile_nll(const hl_profile *profile);
/* Returns the number of tokens whose loss is NaN, infinite or beyond 2^23 nats.  They are not
 * included in the count of hl_profile_nll. */
HL_API int64_t hl_profile_broken_losses(const hl_profile *profile);

/* Sequences kept for confidence intervals: those with the smallest content hashes.
 * hl_profile_sequence_mean returns the mean ENTROPY, NORMALIZED or ENTROPY_NOSINK of a sequence;
 * NaN if the sequence has no such row. */
HL_API int64_t hl_profile_n_sequences(const hl_profile *profile); /* number of kept sequences */
HL_API int64_t hl_profile_all_sequences(const hl_profile *profile);
HL_API int64_t hl_profile_n_tokens(const hl_profile *profile);
HL_API double  hl_profile_sequence_mean(const hl_profile *profile, int64_t sequence, int64_t layer,
                                        int64_t head, hl_quantity quantity);

#ifdef __cplusplus
}
#endif
#endif
