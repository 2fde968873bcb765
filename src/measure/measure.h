/* measure.h - internals of hl_measure: a session, a corpus, and the profile made from them.
 *
 *     measure.c          the tap, batches one after another or two at a time
 *     measure_setup.c    options, the profile's settings, memory
 *     measure_outputs.c  outputs of heads: norms and kernels
 *     measure_probe.c    a repeated random sequence
 *     measure_rows.c     writes every row to a file
 *     measure_state.c    the state from which an interrupted run resumes
 *
 * A window goes through the session in pieces of HL_PIECE rows; an encoder takes it whole. Each
 * piece has its own sampled rows, chosen by a hash of the window's content. */
#ifndef HL_MEASURE_MEASURE_H
#define HL_MEASURE_MEASURE_H

#include "headlight/measure.h"
#include "headlight/series.h"
#include "measure/window.h"
#include "model/session.h"
#include "stats/profile.h"

enum {
    HL_PIECE         = 512, /* rows of the session that are run at a time */
    HL_PATTERN_ROWS  = 2,   /* rows per piece that are read whole */
    HL_OUTPUT_ROWS   = 32,  /* rows per piece whose head outputs and residual stream are read */
    HL_KERNEL_ROWS   = 16,  /* of these, rows that are compared between heads */
    HL_PROBE_TOKENS  = 64,
    HL_PROBE_REPEATS = 4, /* number of probe sequences */
};

typedef struct hl_measure_rows hl_measure_rows;

/* Memory for a private copy of a batch. */
typedef struct hl_batch_copy {
    int64_t  *tokens; /* (n_batch, n_ctx) */
    uint8_t  *types;  /* (n_batch, n_ctx) */
    int64_t  *places; /* (HL_BATCH_PLACES, n_batch) as hl_batch_set_places has them */
    uint64_t *hashes; /* (n_batch) */
} hl_batch_copy;

typedef struct hl_measuring {
    const hl_model    *model;
    const hl_config   *config;
    const hl_corpus   *corpus;
    hl_measure_options options; /* with all defaults filled in */
    int64_t            n_piece;
    int64_t            n_patterns;    /* number of rows per piece that are read whole */
    bool               in_pairs;      /* two batches run at the same time */
    bool               may_take_less; /* n_batch may be reduced if the chosen one does not fit in
                                       * memory */

    hl_session     *session;
    hl_windows     *windows;
    hl_ahead       *ahead;
    hl_profile     *profile;
    hl_batch        batch;
    hl_batch_copy   copy;  /* copy of `batch` where other readers continue; or empty */
    hl_window_place place; /* place after the batch */
    double          share; /* share of the corpus read up to `place` */
    int64_t         piece; /* position of the piece's first row */

    int64_t *tokens;    /* (B, n_piece) tokens of the piece */
    int64_t *targets;   /* (B, n_piece) tokens to predict; -1: not scored */
    int64_t *lengths;   /* (B) */
    int64_t *positions; /* (B, n_patterns) */
    int64_t *outputs;   /* (B, HL_OUTPUT_ROWS) positions of rows whose outputs are read */

    float  *stream;    /* (B, HL_OUTPUT_ROWS, D) residual stream at `outputs` */
    float  *gram;      /* W_h W_h' of every layer and head: (L, H, d, d) */
    float  *products;  /* (n_threads, 2, HL_OUTPUT_ROWS, d) z, and z times the Gram matrix */
    double *influence; /* (B, HL_OUTPUT_ROWS) influence in the current layer */
    float  *entropy;   /* (B, H, n_piece) entropies with epsilon */

    hl_measure_rows *rows; /* NULL: rows are not written to a file */
} hl_measuring;

/* measure.c: draws up to `n` increasing positions in [low, high), one in each of n equal parts.
 * Unused entries at the end are -1. */
void hl_measure_draw(int64_t *out, int64_t n, int64_t low, int64_t high, uint64_t hash);

/* measure_setup.c: fills in defaults and allocates everything. */
hl_status hl_measure_setup(hl_measuring *m, const hl_tokenizer *tokenizer);
void      hl_measure_close(hl_measuring *m);
/* Makes a second hl_measuring for batches of the same windows, which it does not read itself.  It
 * has its own session, profile and copy of a batch, and borrows the rest from the first. */
hl_status hl_measure_twin_new(hl_measuring **out, const hl_measuring *m);
void      hl_measure_twin_free(hl_measuring *twin);
HL_CLOSES(hl_measure_twin_free, hl_measuring)

/* measure_outputs.c: Gram matrices of all layers. */
hl_status hl_measure_make_gram(hl_measuring *m);
/* Add a layer's outputs to the profile, in the steps of stats/profile.h: each head by one thread,
 * then the pairs, then the end. */
void hl_measure_outputs_head(hl_measuring *m, const hl_layer_rows *rows, int64_t head, int member);
void hl_measure_outputs_pairs(hl_measuring *m, const hl_layer_rows *rows, int64_t head);
void hl_measure_outputs_close(hl_measuring *m, const hl_layer_rows *rows);

/* measure_probe.c: adds the probe scores of all heads to the profile. */
hl_status hl_measure_probe(hl_measuring *m);

/* measure_rows.c: where a state is saved, rows are gathered in a file that outlives a killed
 * process. hl_measure_rows_new continues that file where the profile already has sequences; *out
 * is NULL if the file is complete. hl_measure_rows_sync is called before a state that refers to
 * these rows is saved. */
hl_status hl_measure_rows_new(hl_measure_rows **out, const hl_measuring *m);
hl_status hl_measure_rows_sync(hl_measure_rows *rows);
void      hl_measure_rows_begin(hl_measure_rows *rows, const hl_batch *batch);
void      hl_measure_rows_add(hl_measure_rows *rows, const hl_layer_rows *layer,
                              const hl_profile_mask *mask);
hl_status hl_measure_rows_end(hl_measure_rows *rows, const hl_batch *batch);
hl_status hl_measure_rows_finish(hl_measure_rows *rows);
void      hl_measure_rows_free(hl_measure_rows *rows);

/* measure_state.c: hl_measure_restore replaces the profile by the saved one, if there is one and
 * resuming is wanted, and seeks to its place. */
hl_status hl_measure_save(const hl_measuring *m);
hl_status hl_measure_restore(bool *restored, hl_measuring *m);

/* ------------------------------------------------------------- checkpoints */

/* Returns the training step in a file name; -1 if there is none. */
int64_t hl_checkpoint_step(const char *name);

#endif
