/* measure.h - the inside of hl_measure: a session, a corpus, and a profile between them.
 *
 *     measure.c          the tap, batches one after another or two at a time
 *     measure_setup.c    options, the profile's settings, memory
 *     measure_outputs.c  what heads write: norms and kernels
 *     measure_probe.c    a repeated random sequence
 *     measure_rows.c     every row, to a file
 *     measure_state.c    what a killed run goes on from
 *
 * A window goes through the session in pieces of HL_PIECE rows (an encoder's whole):
 * each piece has its own sampled rows, drawn by the window's content. */
#ifndef HL_MEASURE_MEASURE_H
#define HL_MEASURE_MEASURE_H

#include "headlight/measure.h"
#include "measure/window.h"
#include "model/session.h"
#include "stats/profile.h"

enum {
    HL_PIECE         = 512, /* rows */
    HL_PATTERN_ROWS  = 2,   /* of a piece, looked at whole */
    HL_OUTPUT_ROWS   = 32,  /* of a piece, whose outputs and stream are looked at */
    HL_KERNEL_ROWS   = 16,  /* of those, compared between heads */
    HL_PROBE_TOKENS  = 64,
    HL_PROBE_REPEATS = 4, /* sequences */
};

typedef struct hl_measure_rows hl_measure_rows;

/* Memory for a batch of one's own. */
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
    hl_measure_options options; /* complete */
    int64_t            n_piece;
    int64_t            n_patterns;    /* rows of a piece that are looked at whole */
    bool               in_pairs;      /* two batches at a time */
    bool               may_take_less; /* windows at a time than were chosen, if those do not fit */

    hl_session     *session;
    hl_windows     *windows;
    hl_ahead       *ahead;
    hl_profile     *profile;
    hl_batch        batch;
    hl_batch_copy   copy;  /* of it, where others read on; or empty */
    hl_window_place place; /* behind the batch */
    double          share; /* of the corpus that has been passed then */
    int64_t         piece; /* position of the piece's first row */

    int64_t *tokens;    /* (B, n_piece) of the piece */
    int64_t *targets;   /* (B, n_piece) what they should foretell; -1: nothing that counts */
    int64_t *lengths;   /* (B) */
    int64_t *positions; /* (B, n_patterns) */
    int64_t *outputs;   /* (B, HL_OUTPUT_ROWS) positions, too */

    float  *stream;    /* (B, HL_OUTPUT_ROWS, D) those rows of the residual stream */
    float  *gram;      /* W_h W_h' of every layer and head: (L, H, d, d) */
    float  *products;  /* (n_threads, 2, HL_OUTPUT_ROWS, d) z, and z times the Gram matrix */
    double *influence; /* (B, HL_OUTPUT_ROWS) of the layer at hand */
    float  *entropy;   /* (B, H, n_piece) with epsilon */

    hl_measure_rows *rows; /* NULL: not wanted */
} hl_measuring;

/* measure.c: up to `n` positions in [low, high), rising, one in each of n equal parts; -1 behind
 * the last. */
void hl_measure_draw(int64_t *out, int64_t n, int64_t low, int64_t high, uint64_t hash);

/* measure_setup.c */
hl_status hl_measure_setup(hl_measuring *m, const hl_tokenizer *tokenizer);
void      hl_measure_close(hl_measuring *m);
/* A second one for batches of the same windows, which it does not read itself: with a session, a
 * profile and a copy of its batch of its own; borrows the rest of the first. */
hl_status hl_measure_twin_new(hl_measuring **out, const hl_measuring *m);
void      hl_measure_twin_free(hl_measuring *twin);
HL_CLOSES(hl_measure_twin_free, hl_measuring)

/* measure_outputs.c: Gram matrices of all layers, and a layer's outputs into the profile. */
hl_status hl_measure_make_gram(hl_measuring *m);
/* In the parts of stats/profile.h: each head by one thread, then the pairs, then the end. */
void hl_measure_outputs_head(hl_measuring *m, const hl_layer_rows *rows, int64_t head, int member);
void hl_measure_outputs_pairs(hl_measuring *m, const hl_layer_rows *rows, int64_t head);
void hl_measure_outputs_close(hl_measuring *m, const hl_layer_rows *rows);

/* measure_probe.c: the scores of all heads, into the profile. */
hl_status hl_measure_probe(hl_measuring *m);

/* measure_rows.c: where a state is saved, rows are gathered in a file that outlives a killed
 * process, and `new` goes on with it where the profile has sequences already: *out is NULL if
 * that is done.  `sync` comes before the state that counts on them. */
hl_status hl_measure_rows_new(hl_measure_rows **out, const hl_measuring *m);
hl_status hl_measure_rows_sync(hl_measure_rows *rows);
void      hl_measure_rows_begin(hl_measure_rows *rows, const hl_batch *batch);
void      hl_measure_rows_add(hl_measure_rows *rows, const hl_layer_rows *layer,
                              const hl_profile_mask *mask);
hl_status hl_measure_rows_end(hl_measure_rows *rows, const hl_batch *batch);
hl_status hl_measure_rows_finish(hl_measure_rows *rows);
void      hl_measure_rows_free(hl_measure_rows *rows);

/* measure_state.c: hl_measure_restore replaces the profile by the saved one, if there is one and it
 * is wanted, and goes to its place. */
hl_status hl_measure_save(const hl_measuring *m);
hl_status hl_measure_restore(bool *restored, hl_measuring *m);

#endif
