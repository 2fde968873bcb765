/* profile.h - the measurements of every head.
 *
 * A profile is made from a model and a text; tables, pictures and pruned models are made from a
 * profile and need neither.  A profile is a grid of accumulators, one cell per layer and head.  All
 * sums are integers in fixed point (exact.h), so that parts, threads and machines give the same
 * bytes as the whole, in any order:
 *
 *     hl_profile_new      empty, for a shape                    (profile.c)
 *     hl_profile_begin    begins a batch of sequences           (profile_add.c)
 *     hl_profile_layer    adds the rows of a layer              (profile_add.c), or in parts:
 *     hl_profile_rows_    the rows' statistics                  (profile_rows.c)
 *     hl_profile_samples_ complete rows of attention            (profile_sample.c)
 *     hl_profile_merge    adds another profile                  (profile_merge.c)
 *     hl_profile_write    writes a safetensors file             (profile_file.c)
 *     hl_profile_load     reads one                             (profile_file.c)
 *     hl_profile_mean ... return results of the sums            (profile.c)
 *
 * Loading, writing, merging and results are public, in headlight.h; this header is for code that
 * measures.  doc/profile.md describes the file. */
#ifndef HL_STATS_PROFILE_H
#define HL_STATS_PROFILE_H

#include "base/memory.h"
#include "headlight/profile.h"
#include "headlight/session.h"
#include "kernels/row_sums.h"

HL_CLOSES(hl_profile_free, hl_profile)

#define HL_PROFILE_MAX_LAYERS  1024
#define HL_PROFILE_MAX_HEADS   1024
#define HL_PROFILE_MAX_BUCKETS 31
#define HL_PROFILE_MAX_TYPES   8
#define HL_PROFILE_MAX_KEPT    256 /* limit of kept sequences */

/* Rows that see fewer keys say little about a head (metrics.md). The mean of the normalized entropy
 * leaves them out, and the spike monitor neither learns nor scores them. */
#define HL_NORMALIZED_KEYS 16

static inline double hl_profile_mean(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_quantity quantity)
{
    return hl_profile_moments(profile, layer, head, quantity).mean;
}

/* As a quantity of hl_profile_sequence_mean: the mean norm of a head's output, not relative to its
 * layer. */
#define HL_Q_OUTPUT HL_N_QUANTITIES

/* Returns the hash of a kept sequence's content. */
uint64_t hl_profile_sequence_hash(const hl_profile *profile, int64_t sequence);
/* Returns a number that two kept sequences share if they are of one document; 0: unknown. */
uint64_t hl_profile_sequence_document(const hl_profile *profile, int64_t sequence);
/* For a kept sequence: ENTROPY and NORMALIZED of its rows in a position bucket, as the mean over a
 * layer's heads, NaN if there is no such row; and the number of rows, counted per head, over all
 * layers. Profiles written by an earlier version lack these means: NaN and 0. */
double  hl_profile_sequence_position(const hl_profile *profile, int64_t sequence, int64_t layer,
                                     int64_t bucket, hl_quantity quantity);
int64_t hl_profile_sequence_rows(const hl_profile *profile, int64_t sequence, int64_t bucket,
                                 hl_quantity quantity);

/* ---------------------------------------------------------------------- making */

typedef struct hl_profile_shape {
    int64_t            n_layers;
    const int64_t     *heads;   /* (n_layers) */
    int64_t            context; /* length of the longest sequence */
    int64_t            n_types; /* number of token types */
    const char *const *type_names;
} hl_profile_shape;

hl_status hl_profile_new(hl_profile **out, const hl_profile_shape *shape);
/* Returns an empty profile with the shape and the settings of another one. */
hl_status hl_profile_new_like(hl_profile **out, const hl_profile *other);
/* Records what was measured and how; profiles merge only if all settings agree. The keys that
 * describe the shape are reserved. */
hl_status hl_profile_set(hl_profile *profile, const char *key, const char *value);
hl_status hl_profile_set_int(hl_profile *profile, const char *key, int64_t value);
hl_status hl_profile_set_hash(hl_profile *profile, const char *key, uint64_t hash);
/* Fails with HL_BAD_INPUT, naming the first setting in which two profiles differ and both values.
 * Differences in what was measured do not count. */
hl_status hl_profile_check_same(const hl_profile *a, const hl_profile *b);

/* As hl_profile_write and hl_profile_load, with an additional text: the state of unfinished work.
 * Such a file is also a valid profile of what was measured so far. *state is released with hl_free;
 * NULL if the file has none. Fails with HL_BAD_INPUT for work begun in an earlier format. */
hl_status hl_profile_write_state(const hl_profile *profile, const char *path, const char *state);
hl_status hl_profile_load_state(hl_profile **out, char **state, const char *path);

/* A batch of sequences; its layers are then added chunk by chunk. */
typedef struct hl_profile_batch {
    int64_t         n_batch;
    const int64_t  *lengths;   /* (n_batch) 0: nothing of the sequence counts */
    const int64_t  *first_row; /* (n_batch) positions before this one do not count */
    const uint64_t *hashes;    /* (n_batch) hash of the content */
    const uint8_t  *types;     /* (n_batch, context) token type of every position */
    int64_t         context;
    const int64_t  *documents; /* (n_batch) recorded as the place of broken rows */
    uint64_t        corpus;    /* hash of the corpus that these documents are of; 0: unknown */
    const int64_t  *starts;    /* (n_batch) the document's token at position 0 */
    int32_t         n_threads;
} hl_profile_batch;

/* Which keys the rows of a layer can see. */
typedef struct hl_profile_mask {
    bool    is_causal;
    bool    has_window;
    int64_t window_left;
    int64_t window_right;
    int64_t window_sink;   /* number of first keys that the window does not hide */
    bool    window_blocks; /* the window is the row's block of window_left + 1 positions */
    bool    has_sink;      /* a learned sink: one additional outcome */
    int64_t n_chosen;      /* keys that an indexer chooses for a row; 0: there is no indexer */
    int64_t n_keys; /* cross-attention: the number of keys, none of which is a row's own; 0: the
                            * keys are the sequence's */
} hl_profile_mask;

/* Which quantities are defined for a row: bit HL_Q_... for its quantities, and bit HL_N_QUANTITIES
 * + HL_HIST_... for its histograms. log_n and log_other are the entropies of uniform attention:
 * over all visible keys (a learned sink counts as one more), and over the visible keys without the
 * first one. */
typedef struct hl_row_defined {
    uint32_t bits; /* 0: the row sees no key */
    double   log_n;
    double   log_other;
} hl_row_defined;

/* Describes the row at `position` in a window of n_keys tokens. */
hl_row_defined hl_profile_row_defined(const hl_profile_mask *mask, int64_t position,
                                      int64_t n_keys);

/* Borrows the batch until hl_profile_end. That call counts its sequences and tokens, and keeps the
 * sequences' means if their hashes are small enough. A batch that is begun and not ended leaves its
 * rows in the sums: the profile must not be used after that. */
hl_status hl_profile_begin(hl_profile *profile, const hl_profile_batch *batch);
hl_status hl_profile_end(hl_profile *profile);

/* Adds rows of one layer, as a tap gets them: statistics, segment_mass if there is more than one
 * type, and whole rows, rows->pattern at rows->pattern_rows; rows->patterns_differ says whether
 * each sequence has its own. */
hl_status hl_profile_layer(hl_profile *profile, const hl_layer_rows *rows,
                           const hl_profile_mask *mask);

/* hl_profile_layer in parts, for the caller's own threads. First everything is opened; then each
 * head is added by one thread. When all heads are in, the pairs of each head with those that follow
 * are added, again by any thread. Finally everything is closed. rows_... handle the statistics,
 * samples_... the whole rows. */
hl_status hl_profile_rows_open(hl_profile *profile, const hl_layer_rows *rows,
                               const hl_profile_mask *mask);
void      hl_profile_rows_head(hl_profile *profile, const hl_layer_rows *rows, int64_t head);
void      hl_profile_rows_close(hl_profile *profile, const hl_layer_rows *rows);
hl_status hl_profile_samples_open(hl_profile *profile, const hl_layer_rows *rows,
                                  const hl_profile_mask *mask);
void      hl_profile_samples_head(hl_profile *profile, const hl_layer_rows *rows, int64_t head,
                                  int member);
void      hl_profile_samples_pairs(hl_profile *profile, const hl_layer_rows *rows, int64_t head);
void      hl_profile_samples_close(hl_profile *profile, const hl_layer_rows *rows);

/* Lists which of a layer's rows can be summed up in place, so that hl_profile_rows_head is passed
 * sums. `rows` describes the chunk; its numbers need not exist yet. */
hl_status hl_profile_list_runs(hl_row_plan *out, hl_profile *profile, const hl_layer_rows *rows,
                               const hl_profile_mask *mask);

/* Lists the places of rows that are examined whole, so that hl_profile_samples_head is passed their
 * sums. */
hl_status hl_profile_list_places(hl_row_plan *out, hl_profile *profile, const hl_layer_rows *rows,
                                 const hl_profile_mask *mask);

/* Adds the norm of a head's output in a row that counts, of a sequence of the batch; -1: of none
 * that is kept. */
void hl_profile_norm(hl_profile *profile, int64_t sequence, int64_t layer, int64_t head,
                     double norm);
/* Kernels k(i,j) (n, n) of each head's outputs in n rows of a sequence, in the same parts. Opened
 * for a number of sequences and the maximum number of rows of any of them. No head has a kernel if
 * hl_rows_likeness already provides the similarity of heads. */
hl_status hl_profile_kernels_open(hl_profile *profile, int64_t n_sequences, int64_t n);
void      hl_profile_kernels_head(hl_profile *profile, int64_t sequence, int64_t head,
                                  const double *kernel, int64_t n);
void      hl_profile_kernels_pairs(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                                   int64_t head, int64_t n);
void      hl_profile_kernels_close(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                                   int64_t n);

/* Returns the number of threads for a loop over this many values: a short loop ends before another
 * thread has woken up. */
int hl_profile_threads(const hl_profile *profile, int64_t n_values);
/* Adds 1 - cos of a block's input and output, for one row. */
void hl_profile_influence(hl_profile *profile, int64_t layer, double influence);
/* Adds the mass of one row's full softmax on the keys that an indexer chose. */
void hl_profile_recall_add(hl_profile *profile, int64_t layer, int64_t head, double recall);
void hl_profile_loss(hl_profile *profile, double nll);
void hl_profile_set_probe(hl_profile *profile, int64_t layer, int64_t head, hl_probe probe,
                          double score);

/* As hl_profile_head_name, with the names of all layers as the profile's setting "layers" has them,
 * "E0 E1 L0 L1 X0 X1"; NULL: L0, L1, ... */
const char *hl_head_name_among(char room[HL_HEAD_NAME_BYTES], const char *layers, int64_t layer,
                               int64_t head);

#endif
