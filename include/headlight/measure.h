/* headlight/measure.h - measuring a profile from a model and a text, also on many machines. Part
 * of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_MEASURE_H
#define HEADLIGHT_MEASURE_H

#include "corpus.h"
#include "profile.h"
#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- measuring
 *
 *     hl_corpus_open(&corpus, model, tokenizer, &options);
 *     hl_measure(&profile, model, tokenizer, corpus, NULL);
 *     hl_profile_write(profile, "gpt2.profile");
 *
 * Runs a model over a text and sums up statistics of its heads.  The profile depends on the model,
 * the text and the options marked below; it does not depend on batches, parts, the order of threads
 * or interruptions.
 *
 * Measurements may run at once in several threads, even of the same model and corpus; each
 * needs its own rows_path and state_path. */

typedef struct hl_measure_options {
    /* Options that change the numbers. */
    hl_window_options
        windows;   /* n_batch 0: 1; on a device as many as fit, up to 32.  The fields n_batch, part
                    * and n_parts do not change the numbers. */
    uint64_t seed; /* random seed of the sampled complete rows and of the probe */
    bool     nll;  /* measure the loss of every token */
    bool     no_probe;
    double   epsilon; /* above 0: compute entropy as -sum p ln(p + epsilon), by the definition,
                       * from complete rows; slow */

    /* Options that do not change the numbers. */
    const char
        *rows_path; /* file for the statistics of every row; NaN where a row does not define one */
    const char          *state_path; /* file to save the state in; NULL: the state is not saved */
    double               save_every; /* seconds between saves; 0: 30 */
    bool                 resume;     /* continue from the saved state, if there is one */
    int32_t              n_threads;
    hl_progress_callback progress; /* called after every batch; if it ends the work, the state is
                                    * saved first */
    void                *context;  /* passed to `progress` */
} hl_measure_options;

/* Measures a profile.  The tokenizer and the options may be NULL.  Returns HL_BAD_INPUT for a
 * saved state of other settings or of another text.  The caller removes the state file once the
 * profile is stored. */
HL_API hl_status hl_measure(hl_profile **out, const hl_model *model, const hl_tokenizer *tokenizer,
                            const hl_corpus *corpus, const hl_measure_options *options);

/* Measures attention that another program computed, from any kind of model: a .safetensors or .npy
 * file of floating-point numbers,
 *
 *     one tensor   [L,B,H,S,S], [L,H,S,S] or [H,S,S]; in safetensors it is called attention,
 *                  attentions, attn, pattern, patterns, scores or attn_scores, or it is the only
 *                  one in the file
 *     one per      [B,H,S,S] or [H,S,S] each, with names that differ only in a number, from 0
 *     layer        up: "blocks.10.attn.hook_pattern" is layer 10.  The names must contain attn,
 *                  attention, pattern or scores; layers may have different numbers of heads
 *
 * with queries before keys, and optionally `lengths` [B], integers: the number of real
 * positions.  If there are fewer queries than keys, the queries are the last positions.  Rows
 * must sum to 1 within 1e-3, or to 0 if they see nothing. */

/* Whether a row sees only the keys up to its own position, or all keys.  This determines the
 * number of visible keys, and so the normalized entropies. */
typedef enum hl_maps_mask {
    HL_MAPS_MASK_AUTO = 0, /* detect whether the file is causal */
    HL_MAPS_MASK_CAUSAL,   /* the file must be causal */
    HL_MAPS_MASK_FULL,     /* treat the file as not causal, whatever it contains */
} hl_maps_mask;

typedef struct hl_maps_options {
    bool         scores; /* the entries are scores before the softmax, not probabilities */
    hl_maps_mask mask;
    uint64_t     seed; /* random seed of the sampled complete rows */
    int32_t      n_threads;
} hl_maps_options;

/* Measures a profile of all sequences of a file.  Quantities that need the model (outputs, loss,
 * probes) are not measured; all positions have type "prompt".  The options may be NULL. */
HL_API hl_status hl_measure_maps(hl_profile **out, const char *path,
                                 const hl_maps_options *options);

/* --------------------------------------------------------------- recording
 *
 * A profile of attention that the caller computes, such as a plug-in of another framework.
 *
 *     hl_recorder_open(&recorder, &options);
 *     for every window {
 *         hl_recorder_begin(recorder, &window);
 *         n = hl_recorder_whole_rows(&positions, recorder);
 *         ... run the model; for every layer:
 *             hl_recorder_layer(recorder, &layer);
 *         hl_recorder_end(recorder);
 *     }
 *     hl_recorder_finish(&profile, recorder);
 *     hl_recorder_close(recorder);
 *
 * The same windows and rows as a model's in hl_measure give the same numbers.  Quantities that are not
 * recorded are not measured.  One thread at a time may use a recorder. */
typedef struct hl_recorder hl_recorder;

typedef struct hl_record_setting {
    const char *key;
    const char *value;
} hl_record_setting;

typedef struct hl_record_options {
    int64_t        n_layers;
    const int64_t *heads;   /* (n_layers) number of heads */
    int64_t        context; /* length of the longest window */
    uint64_t       seed;    /* random seed of the sampled complete rows */
    const hl_record_setting
           *settings; /* (n_settings) what was measured and how; profiles merge only
                                        * if all of them agree */
    size_t  n_settings;
    int32_t n_threads;
} hl_record_options;

typedef struct hl_record_window {
    const int64_t *tokens; /* (n_tokens) identify the window's content */
    int64_t        n_tokens;
    int64_t        first_row; /* rows before it do not count */
    int64_t        document;
    int64_t        start;     /* the document's token at position 0 */
    bool           in_pieces; /* sample rows as for a decoder, in pieces of 512 rows; else as for an
                               * encoder, in one */
} hl_record_window;

/* The rows of one layer of a window.  Arrays of `rows` are (heads, n_tokens) each, of which lse,
 * argmax and segment_mass are not read. */
typedef struct hl_record_layer {
    int64_t                    layer;
    int64_t                    n_keys;
    const hl_attention_result *rows;
    const float               *whole; /* (heads, whole rows, n_keys) probabilities; NULL: none */
    bool                       is_causal;
    bool    is_cross; /* the keys are another sequence's: no key is the row's own */
    bool    has_window;
    bool    has_sink; /* a learned sink: one additional outcome */
    int64_t window_left;
    int64_t window_right;
} hl_record_layer;

HL_API hl_status hl_recorder_open(hl_recorder **out, const hl_record_options *options);
HL_API void      hl_recorder_close(hl_recorder *recorder);
HL_API hl_status hl_recorder_begin(hl_recorder *recorder, const hl_record_window *window);
/* Positions of the rows that are read whole, and of those whose outputs' norms are read.  They return
 * the number of positions; the list is borrowed until the next window. */
HL_API int64_t   hl_recorder_whole_rows(const int64_t **out, const hl_recorder *recorder);
HL_API int64_t   hl_recorder_output_rows(const int64_t **out, const hl_recorder *recorder);
HL_API hl_status hl_recorder_layer(hl_recorder *recorder, const hl_record_layer *layer);
/* norms: (heads, output rows) norm of what each head adds to the residual stream. */
HL_API hl_status hl_recorder_norms(hl_recorder *recorder, int64_t layer, const float *norms);
/* losses: (n) -log p of tokens of the window. */
HL_API hl_status hl_recorder_losses(hl_recorder *recorder, const float *losses, int64_t n);
HL_API hl_status hl_recorder_end(hl_recorder *recorder);
/* Returns the profile of all windows, once. */
HL_API hl_status hl_recorder_finish(hl_profile **out, hl_recorder *recorder);

/* The attention of every head on the first tokens of a text, as complete matrices; meant for few
 * tokens.
 *
 *     hl_patterns *patterns = NULL;
 *     hl_patterns_measure(&patterns, model, corpus, &(hl_patterns_options){ .n_tokens = 32 });
 *     ... patterns->values ...
 *     hl_patterns_free(patterns); */
typedef struct hl_patterns {
    int64_t  n_layers;
    int64_t  n_heads; /* largest number in any layer */
    int64_t  n_tokens;
    int64_t *tokens; /* (n_tokens) */
    /* (n_layers, n_heads, n_tokens, n_tokens): attention from the third index to the fourth.  0
     * for keys that are not visible, and for heads that a layer lacks. */
    float *values;
} hl_patterns;

typedef struct hl_patterns_options {
    int64_t   n_tokens;  /* largest number of tokens; 0: 32 */
    int32_t   n_threads; /* 0: all cores */
    hl_around around;    /* as in hl_window_options */
} hl_patterns_options;

enum { HL_PATTERNS_MOST_TOKENS = 512 };

/* Measures the first document of the corpus that has text.  The options may be NULL. */
HL_API hl_status hl_patterns_measure(hl_patterns **out, const hl_model *model,
                                     const hl_corpus *corpus, const hl_patterns_options *options);
/* Measures the given tokens. */
HL_API hl_status hl_patterns_of(hl_patterns **out, const hl_model *model, const int64_t *tokens,
                                int64_t n_tokens, int32_t n_threads);
HL_API void      hl_patterns_free(hl_patterns *patterns);

/* Distances between the attention rows of two models on the same tokens.  Rows are sampled from
 * every window by its content. */
typedef struct hl_row_distances {
    int64_t  n_layers;
    int64_t  n_heads; /* largest number in any layer */
    int64_t  n_sequences;
    int64_t  n_rows;       /* number of rows compared per head */
    int64_t *heads;        /* (n_layers) number of heads */
    double  *variation;    /* (n_layers, n_heads, n_heads) mean total variation between the rows
                            * of a head of A and of a head of B; NaN if the layer lacks one of
                            * the heads */
    double  *divergence;   /* (n_layers, n_heads) mean Jensen-Shannon divergence of heads with
                            * the same number, nats */
    double  *of_sequences; /* (n_sequences, n_layers, n_heads) total variation of heads with the
                            * same number */
} hl_row_distances;

typedef struct hl_row_distance_options {
    hl_window_options windows; /* n_ctx 0: the smaller of the two models' defaults */
    int64_t           n_rows;  /* largest number of rows per window; 0: 8 */
    uint64_t          seed;
    int32_t           n_threads;
} hl_row_distance_options;

/* Compares the rows of two models.  Open the corpus with A and its tokenizer; B gets the same
 * ids.  Returns HL_BAD_INPUT if the models differ in layers or heads.  The options may be NULL. */
HL_API hl_status hl_measure_row_distances(hl_row_distances **out, const hl_model *a,
                                          const hl_model *b, const hl_corpus *corpus,
                                          const hl_row_distance_options *options);
HL_API void      hl_row_distances_free(hl_row_distances *distances);

/* Measuring on many machines.  Under mpirun, with a library built with MPI (make MPI=1), a process
 * is one of several ranks, which all call these functions in this order; otherwise it is rank 0 of
 * 1.
 *
 *     hl_ranks_start(&rank, &n_ranks);
 *     options.windows.part = rank, options.windows.n_parts = n_ranks;
 *     status = hl_measure(&profile, ...);
 *     status = hl_ranks_reduce(profile, status);      rank 0 has the whole
 *     hl_ranks_finish();
 *
 * One thread of the process must make all these calls.  Returns HL_UNSUPPORTED under mpirun
 * without MPI, since every rank would do all the work. */
HL_API hl_status hl_ranks_start(int32_t *rank, int32_t *n_ranks);
/* Takes the rank's own status.  Returns the same status, or HL_CANCELLED with the number of a
 * rank that failed.  No rank continues before all have called this. */
HL_API hl_status hl_ranks_agree(hl_status own);
/* Calls hl_ranks_agree, then adds up the profiles at rank 0.  The profile may be NULL if the
 * status is not HL_OK. */
HL_API hl_status hl_ranks_reduce(hl_profile *profile, hl_status own);
HL_API void      hl_ranks_finish(void);

#ifdef __cplusplus
}
#endif
#endif
