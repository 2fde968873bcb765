/* headlight/measure.h - from a model and a text to a profile; on many machines.
 * Part of headlight.h, which see for the conventions. */
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
 * Runs a model over a text and sums up what its heads do.  The profile depends on the
 * model, the text and the options that say so below; not on batches, parts, threads'
 * order or interruptions.
 *
 * Measurements may run at once in several threads, of the same model and corpus too; each needs a
 * rows_path and a state_path of its own. */

typedef struct hl_measure_options {
    /* Change the numbers. */
    hl_window_options
        windows; /* n_batch 0: 1, on a device up to 32, as many as fit; n_batch, part and n_parts do not
                                * change the numbers */
    uint64_t seed; /* of the rows that are looked at whole, and of the probe */
    bool     nll;  /* the loss of every token */
    bool     no_probe;
    double   epsilon; /* above 0: entropy is -sum p ln(p + epsilon), by the definition,
                                * from whole rows; slow */

    /* Do not. */
    const char
        *rows_path; /* every row's statistics, to this file; NaN where a row does not define one */
    const char          *state_path; /* where the state is saved; NULL: nowhere */
    double               save_every; /* seconds; 0: 30 */
    bool                 resume;     /* go on from the state, if there is one */
    int32_t              n_threads;
    hl_progress_callback progress; /* after every batch; what ends the work ends it after its state
                                    * has been saved */
    void                *context;  /* of progress */
} hl_measure_options;

/* The tokenizer may be NULL, as the options.  A state of other settings or of another text is
 * HL_BAD_INPUT.  The state's file is for the caller to remove, once the profile lies safe. */
HL_API hl_status hl_measure(hl_profile **out, const hl_model *model, const hl_tokenizer *tokenizer,
                            const hl_corpus *corpus, const hl_measure_options *options);

/* Attention that another program computed, of any kind of model: a .safetensors or .npy file
 * of floating-point numbers,
 *
 *     one tensor   [L,B,H,S,S], [L,H,S,S] or [H,S,S]; in safetensors it is called attention,
 *                  attentions, attn, pattern, patterns, scores or attn_scores, or it is the only
 *                  one in the file
 *     one a layer  [B,H,S,S] or [H,S,S] each, named alike but for a number, from 0 up:
 *                  "blocks.10.attn.hook_pattern" is layer 10.  The names must have attn,
 *                  attention, pattern or scores in them; heads may differ in number
 *
 * with queries before keys, and maybe `lengths` [B], integers: how many positions are real.
 * Where there are fewer queries than keys, they are the last positions.  Rows must
 * sum to 1 within 1e-3, or to 0 where they see nothing. */

/* Whether a row sees the keys up to its own position or all: it decides how many keys it
 * could have looked at, and so about normalized entropies. */
typedef enum hl_maps_mask {
    HL_MAPS_MASK_AUTO = 0, /* look whether the file is causal */
    HL_MAPS_MASK_CAUSAL,   /* it must be */
    HL_MAPS_MASK_FULL,     /* it is not, whatever it looks like */
} hl_maps_mask;

typedef struct hl_maps_options {
    bool         scores; /* entries are scores before the softmax */
    hl_maps_mask mask;
    uint64_t     seed; /* of the rows that are looked at whole */
    int32_t      n_threads;
} hl_maps_options;

/* The profile of all sequences of a file.  What only a model knows (outputs, loss, probes)
 * is not measured; all positions are of type "prompt".  The options may be NULL. */
HL_API hl_status hl_measure_maps(hl_profile **out, const char *path,
                                 const hl_maps_options *options);

/* The attention of every head on the first tokens of a text: whole matrices, so for few tokens.
 *
 *     hl_patterns *patterns = NULL;
 *     hl_patterns_measure(&patterns, model, corpus, &(hl_patterns_options){ .n_tokens = 32 });
 *     ... patterns->values ...
 *     hl_patterns_free(patterns); */
typedef struct hl_patterns {
    int64_t  n_layers;
    int64_t  n_heads; /* the most of any layer */
    int64_t  n_tokens;
    int64_t *tokens; /* (n_tokens) */
    /* (n_layers, n_heads, n_tokens, n_tokens) who looks, at whom; 0 what is not seen, and of heads
     * that a layer does not have */
    float *values;
} hl_patterns;

typedef struct hl_patterns_options {
    int64_t   n_tokens;  /* at most; 0: 32 */
    int32_t   n_threads; /* 0: all cores */
    hl_around around;    /* as in hl_window_options */
} hl_patterns_options;

enum { HL_PATTERNS_MOST_TOKENS = 512 };

/* Of the corpus' first document that has a text.  The options may be NULL. */
HL_API hl_status hl_patterns_measure(hl_patterns **out, const hl_model *model,
                                     const hl_corpus *corpus, const hl_patterns_options *options);
/* Of these tokens. */
HL_API hl_status hl_patterns_of(hl_patterns **out, const hl_model *model, const int64_t *tokens,
                                int64_t n_tokens, int32_t n_threads);
HL_API void      hl_patterns_free(hl_patterns *patterns);

/* Two models on the same tokens: how unlike their rows of attention are.  Rows are drawn from every
 * window by its content. */
typedef struct hl_row_distances {
    int64_t  n_layers;
    int64_t  n_heads; /* the most of a layer */
    int64_t  n_sequences;
    int64_t  n_rows;       /* looked at, of each head */
    int64_t *heads;        /* (n_layers) */
    double  *variation;    /* (n_layers, n_heads, n_heads) mean total variation between the rows of
                            * a head of A and of one of B; NaN where a layer has no such heads */
    double  *divergence;   /* (n_layers, n_heads) mean Jensen-Shannon of equal heads, nats */
    double  *of_sequences; /* (n_sequences, n_layers, n_heads) variation of equal heads */
} hl_row_distances;

typedef struct hl_row_distance_options {
    hl_window_options windows; /* n_ctx 0: the smaller of the two models' defaults */
    int64_t           n_rows;  /* of a window, at most; 0: 8 */
    uint64_t          seed;
    int32_t           n_threads;
} hl_row_distance_options;

/* The corpus is opened with A and its tokenizer; B gets the same ids.  HL_BAD_INPUT where the
 * models differ in layers or heads.  The options may be NULL. */
HL_API hl_status hl_measure_row_distances(hl_row_distances **out, const hl_model *a,
                                          const hl_model *b, const hl_corpus *corpus,
                                          const hl_row_distance_options *options);
HL_API void      hl_row_distances_free(hl_row_distances *distances);

/* Many machines.  Under mpirun, in a library that was built with MPI (make MPI=1), a process
 * is one of several ranks, which all call these in this order; else it is rank 0 of 1.
 *
 *     hl_ranks_start(&rank, &n_ranks);
 *     options.windows.part = rank, options.windows.n_parts = n_ranks;
 *     status = hl_measure(&profile, ...);
 *     status = hl_ranks_reduce(profile, status);      rank 0 has the whole
 *     hl_ranks_finish();
 *
 * All four are called by one thread of the process.  HL_UNSUPPORTED under mpirun without MPI: all
 * ranks would do all the work. */
HL_API hl_status hl_ranks_start(int32_t *rank, int32_t *n_ranks);
/* A rank's own status in; out the same, or HL_CANCELLED with the number of a rank that
 * failed.  Nobody goes on before all are here. */
HL_API hl_status hl_ranks_agree(hl_status own);
/* Agrees, then adds up the profiles at rank 0.  The profile may be NULL where the status is not
 * HL_OK. */
HL_API hl_status hl_ranks_reduce(hl_profile *profile, hl_status own);
HL_API void      hl_ranks_finish(void);

#ifdef __cplusplus
}
#endif
#endif
