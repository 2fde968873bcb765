/* profile.h - what was measured of every head: the waist of the program.
 *
 * Left of a profile stand a model and a text, right of it tables, pictures and
 * pruned models, which need neither.  A profile is a grid of accumulators, one
 * cell a layer and head.  All sums are whole numbers of a fixed point (exact.h), so
 * that parts, threads and machines give the same bytes as the whole, in any order:
 *
 *     hl_profile_new      empty, for a shape                (profile.c)
 *     hl_profile_begin    a batch of sequences              (profile_add.c)
 *     hl_profile_layer    add the rows of a layer           (profile_add.c), or in parts:
 *     hl_profile_rows_    their statistics                  (profile_rows.c)
 *     hl_profile_samples_ whole rows of attention           (profile_sample.c)
 *     hl_profile_merge    add another profile               (profile_merge.c)
 *     hl_profile_write    a safetensors file                (profile_file.c)
 *     hl_profile_load     and back                          (profile_file.c)
 *     hl_profile_mean ... what the sums say                 (profile.c)
 *
 * Loading, writing, merging and all questions are public, in headlight.h; this is the
 * side of whoever measures.  doc/profile.md describes the file. */
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
#define HL_PROFILE_MAX_KEPT    256 /* sequences */

/* Rows that see fewer keys say little of how a head looks around (metrics.md): they are not in the
 * fair mean, and the monitor of spikes neither learns nor scores them. */
#define HL_FAIR_KEYS 16

static inline double hl_profile_mean(const hl_profile *profile, int64_t layer, int64_t head,
                                     hl_quantity quantity)
{
    return hl_profile_moments(profile, layer, head, quantity).mean;
}

/* Of a kept sequence: the hash of its content. */
uint64_t hl_profile_sequence_hash(const hl_profile *profile, int64_t sequence);
/* ENTROPY and FAIR of its rows in a position bucket: the mean over the heads of a layer, NaN where
 * there is no such row; and how many rows of how many heads there are, over all layers.  A
 * profile that an earlier version wrote has no such means: NaN and 0. */
double  hl_profile_sequence_position(const hl_profile *profile, int64_t sequence, int64_t layer,
                                     int64_t bucket, hl_quantity quantity);
int64_t hl_profile_sequence_rows(const hl_profile *profile, int64_t sequence, int64_t bucket,
                                 hl_quantity quantity);

/* ---------------------------------------------------------------------- making */

typedef struct hl_profile_shape {
    int64_t            n_layers;
    const int64_t     *heads;   /* (n_layers) */
    int64_t            context; /* the longest sequence */
    int64_t            n_types; /* of tokens */
    const char *const *type_names;
} hl_profile_shape;

hl_status hl_profile_new(hl_profile **out, const hl_profile_shape *shape);
/* Empty, with the shape and the settings of another one. */
hl_status hl_profile_new_like(hl_profile **out, const hl_profile *other);
/* Says what was measured and how; profiles merge only if they agree in all of it.  The
 * keys that describe the shape are taken. */
hl_status hl_profile_set(hl_profile *profile, const char *key, const char *value);
hl_status hl_profile_set_int(hl_profile *profile, const char *key, int64_t value);
hl_status hl_profile_set_hash(hl_profile *profile, const char *key, uint64_t hash);
/* HL_BAD_INPUT, with the name and both values, for the first thing in which two profiles
 * differ but for what was measured. */
hl_status hl_profile_check_same(const hl_profile *a, const hl_profile *b);

/* As hl_profile_write and hl_profile_load, with a text beside it: the state of work that is
 * not done.  Such a file is a profile too, of what was measured so far.  *state is
 * released with hl_free; NULL if the file has none.  HL_BAD_INPUT for work that was begun in
 * the first format. */
hl_status hl_profile_write_state(const hl_profile *profile, const char *path, const char *state);
hl_status hl_profile_load_state(hl_profile **out, char **state, const char *path);

/* A batch of sequences, whose layers then come chunk by chunk. */
typedef struct hl_profile_batch {
    int64_t         n_batch;
    const int64_t  *lengths;   /* (n_batch) 0: nothing of it counts */
    const int64_t  *first_row; /* (n_batch) positions before it do not count */
    const uint64_t *hashes;    /* (n_batch) of the content */
    const uint8_t  *types;     /* (n_batch, context) of every position */
    int64_t         context;
    const int64_t  *documents; /* (n_batch) for the place of broken rows, as is */
    const int64_t  *starts;    /* (n_batch) which token of its document position 0 is */
    int32_t         n_threads;
} hl_profile_batch;

/* Which keys the rows of a layer see. */
typedef struct hl_profile_mask {
    bool    is_causal;
    bool    has_window;
    int64_t window_left;
    int64_t window_right;
    int64_t window_sink; /* first keys that the window does not hide */
    bool    has_sink;    /* learned: one outcome more */
} hl_profile_mask;

/* What is defined for a row: bit HL_Q_... of its quantities, and bit HL_N_QUANTITIES + HL_HIST_... of
 * what its histograms count.  log_n and log_other are the entropies of even attention, over all keys
 * that it sees (a learned sink is one more) and over those but key 0. */
typedef struct hl_row_defined {
    uint32_t bits; /* 0: the row sees no key */
    double   log_n;
    double   log_other;
} hl_row_defined;

/* Of the row at `position` in a window of n_keys tokens. */
hl_row_defined hl_profile_row_defined(const hl_profile_mask *mask, int64_t position,
                                      int64_t n_keys);

/* Borrows the batch until hl_profile_end, which counts its sequences and tokens, and keeps the
 * sequences' means if their hashes are small enough.  A batch that is begun and not
 * ended leaves its rows in the sums: do not use the profile any more. */
hl_status hl_profile_begin(hl_profile *profile, const hl_profile_batch *batch);
hl_status hl_profile_end(hl_profile *profile);

/* Rows of one layer, as a tap gets them: statistics, segment_mass if there is more than one
 * type, and whole rows, rows->pattern at rows->pattern_rows, where rows->patterns_differ says
 * whose. */
hl_status hl_profile_layer(hl_profile *profile, const hl_layer_rows *rows,
                           const hl_profile_mask *mask);

/* The same in parts, for threads of the caller's: all is opened, then each head is added by
 * one thread; when all heads are in, their pairs, each head with those that follow, by any
 * thread again; and all is closed.  rows_... are the statistics, samples_... the whole rows. */
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

/* What of a layer's rows can be summed up where they lie, so that hl_profile_rows_head is told
 * sums: for the chunk that `rows` describes, whose numbers need not be there yet. */
hl_status hl_profile_list_runs(hl_row_plan *out, hl_profile *profile, const hl_layer_rows *rows,
                               const hl_profile_mask *mask);

/* And where its rows that are looked at whole stand, so that hl_profile_samples_head is told what
 * they come to. */
hl_status hl_profile_list_places(hl_row_plan *out, hl_profile *profile, const hl_layer_rows *rows,
                                 const hl_profile_mask *mask);

/* A norm of what a head wrote in a row that counts. */
void hl_profile_norm(hl_profile *profile, int64_t layer, int64_t head, double norm);
/* Kernels k(i,j) (n, n) of what each head wrote in n rows of a sequence, in the same parts;
 * opened for some sequences and the most rows that any of them has.  Where hl_rows_likeness tells how
 * alike heads are, no head has a kernel. */
hl_status hl_profile_kernels_open(hl_profile *profile, int64_t n_sequences, int64_t n);
void      hl_profile_kernels_head(hl_profile *profile, int64_t sequence, int64_t head,
                                  const double *kernel, int64_t n);
void      hl_profile_kernels_pairs(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                                   int64_t head, int64_t n);
void      hl_profile_kernels_close(hl_profile *profile, const hl_layer_rows *rows, int64_t sequence,
                                   int64_t n);

/* Threads for a loop that looks at so many values: a short one is over before another
 * thread has woken. */
int hl_profile_threads(const hl_profile *profile, int64_t n_values);
/* 1 - cos of a block's input and output, in one row. */
void hl_profile_influence(hl_profile *profile, int64_t layer, double influence);
void hl_profile_loss(hl_profile *profile, double nll);
void hl_profile_set_probe(hl_profile *profile, int64_t layer, int64_t head, hl_probe probe,
                          double score);

#endif
