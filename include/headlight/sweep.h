/* headlight/sweep.h - what disabling heads costs: many settings of gates on one text. Part of
 * headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_SWEEP_H
#define HEADLIGHT_SWEEP_H

#include "analysis.h"
#include "prune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------ many settings, one text
 *
 *     hl_evaluation *found = NULL;
 *     if (hl_evaluate(&found, model, corpus, gates, n_settings, NULL) == HL_OK)
 *         printf("%f\n", hl_evaluation_total(found, 0).nll);
 *     hl_evaluation_free(found);
 *
 * For each setting of the gates, computes the same numbers as hl_perplexity, bit by bit, and how
 * far the predictions are from those of the reference model, the same model with all gates 1.
 * Layers below the first gate in which two settings differ are run once for both. */

/* Sums over scored tokens. */
typedef struct hl_scores {
    double  nll;    /* sum of -log p of the tokens */
    double  kl;     /* sum of the KL divergences of this next-token distribution from the reference
                     * model's, nats */
    int64_t n_same; /* number of rows with the same most likely token as the reference model */
} hl_scores;

typedef struct hl_evaluation {
    int64_t    n_settings;
    int64_t    n_windows;
    int64_t    n_documents; /* number of documents that have a window with a scored token */
    int64_t    n_ctx;       /* context length in use, after defaults are applied */
    int64_t    n_scored;    /* number of scored tokens in all windows */
    int64_t   *scored;      /* (n_windows) number of scored tokens */
    int64_t   *documents;   /* (n_windows) number of the window's document: 0, 1, ... in order */
    hl_scores *dense;       /* (n_windows) the reference model: all gates 1 */
    hl_scores *scores;      /* (n_settings, n_windows) */
    /* Number of blocks that were run for a batch of windows, including those of the reference
     * model, and the number that would have been run without sharing common lower layers. */
    int64_t n_layers_run;
    int64_t n_layers_naive;
    /* Number of different settings, including the reference model.  Equal settings are run only
     * once; n_layers_naive counts each of them. */
    int64_t n_distinct;
} hl_evaluation;

typedef struct hl_evaluate_options {
    /* Windows do not overlap, so stride must be 0.  n_batch 0: as many windows as hold 512 rows. */
    hl_window_options windows;
    /* Limit for what is kept of one batch: the reference model's predictions, which must fit unless
     * they are on a device, and residual streams.  Layers whose stream does not fit are run again.
     * 0: 1 GiB, or the size of the predictions of one window if that is more. */
    size_t               memory_bytes;
    int32_t              n_threads;
    hl_progress_callback progress; /* called after every setting of every batch */
    void                *context;  /* passed to `progress` */
} hl_evaluate_options;

/* Runs all settings: gates (n_settings, n_layers, n_heads).  Returns HL_UNSUPPORTED for an
 * encoder. */
HL_API hl_status hl_evaluate(hl_evaluation **out, const hl_model *model, const hl_corpus *corpus,
                             const float *gates, int64_t n_settings,
                             const hl_evaluate_options *options);
HL_API void      hl_evaluation_free(hl_evaluation *evaluation);
/* Returns the sums over all windows; setting -1 is the reference model. */
HL_API hl_scores hl_evaluation_total(const hl_evaluation *evaluation, int64_t setting);

/* Returns the 95% interval of what a setting adds to the mean NLL, nats per token, over documents,
 * or over windows if there are fewer than HL_MIN_UNITS documents. */
HL_API hl_interval hl_evaluation_rise(const hl_evaluation *evaluation, int64_t setting);

/* Computes the rise of the mean NLL with one head disabled: out (n_layers, n_heads), NaN for heads
 * that a layer lacks. */
HL_API hl_status hl_ablate(double *out, const hl_model *model, const hl_corpus *corpus,
                           const hl_evaluate_options *options);

/* ----------------------------------------------------------------- evidence
 *
 *     hl_evidence evidence = { 0 };
 *     hl_evidence_take(&evidence, HL_RANKER_GRADIENT, model, tokenizer, corpus, NULL);
 *     hl_evidence_rank(&ranking, &evidence, HL_RANKER_GRADIENT, model, NULL);
 *     hl_evidence_free(&evidence);
 *
 * The evidence holds the inputs of rankers.  Only what a ranker requires is measured, with the
 * model's gates as they are. */

typedef struct hl_evidence {
    hl_profile      *profile; /* NULL in each of these four: not taken yet */
    hl_gradients    *gradients;
    double          *ablation; /* (n_layers, n_heads) from hl_ablate */
    hl_head_moments *moments;
    double          *surgeon; /* (n_layers, n_heads) scores of the surgeon */
} hl_evidence;

typedef struct hl_evidence_options {
    hl_window_options windows;         /* n_batch applies to the profile and to ablation */
    int64_t           gradient_tokens; /* number of tokens that gradients are computed on, from the
                                        * start; 0: as `windows` says */
    uint64_t          seed;            /* random seed of the sampled complete rows */
    int32_t           n_threads;
    /* Called at the beginning of each stage, with a share of 0, and then during the stage. */
    hl_progress_callback progress;
    void                *context; /* passed to `progress` */
} hl_evidence_options;

/* Takes what the ranker requires and the evidence does not hold yet.  After a failure the evidence
 * keeps what it held.  The tokenizer and the options may be NULL. */
HL_API hl_status hl_evidence_take(hl_evidence *evidence, hl_ranker ranker, const hl_model *model,
                                  const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                                  const hl_evidence_options *options);
/* Ranks heads as hl_rank does, with the inputs of the evidence; the model may be NULL if there is a
 * profile. */
HL_API hl_status hl_evidence_rank(hl_ranking **out, const hl_evidence *evidence, hl_ranker ranker,
                                  const hl_model *model, const hl_rank_options *options);
HL_API void      hl_evidence_free(hl_evidence *evidence); /* releases what the evidence holds, but
                                                           * not the struct */

/* ----------------------------------------------------------- ranking again
 *
 *     hl_rank_reselected(&ranking, model, HL_RANKER_GNORM, tokenizer, corpus,
 *                        &(hl_reselect_options){ .choice = { .ratio = 0.2 } });
 *     hl_ranking_choose(&heads, ranking, &(hl_choice){ .ratio = 0.2 });
 *
 * When a head is removed, others may become more important.  So the first heads of the order are
 * disabled, the texts are run again, and the other heads are ranked anew, step by step. */

typedef struct hl_reselect_options {
    hl_evidence_options evidence;
    hl_choice           choice;  /* the number of heads to disable, and those that may be */
    int64_t             n_steps; /* 0: after each head, or group */
    bool                groups;  /* as hl_ranking_group */
    bool            repair; /* rank the others in the model as it is repaired for those removed so
                                  * far (hl_repair_heads) */
    hl_rank_options rank;
} hl_reselect_options;

/* The heads of the choice first, in the order in which they went, each with the score that it had
 * then; the others by the last ranking.  The model's gates are set on the way, and all 1 afterwards.
 * HL_BAD_ARGUMENT for a ranker that looks at no text: it has nothing to look at again.  With a repair
 * also as hl_repair_check. */
HL_API hl_status hl_rank_reselected(hl_ranking **out, hl_model *model, hl_ranker ranker,
                                    const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                                    const hl_reselect_options *options);

/* ------------------------------------------------------------------- sweeps
 *
 *     hl_sweep *sweep = NULL;
 *     if (hl_sweep_run(&sweep, model, tokenizer, rank_corpus, test_corpus, NULL) == HL_OK)
 *         for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++)
 *             puts(hl_sweep_verdict(sweep, i));
 *     hl_sweep_free(sweep);
 *
 * Ranks heads on one text, disables more and more of them in that order, and measures the cost on
 * another text.  For comparison it also runs random orders, and disables every head alone unless
 * no_singles is set.
 *
 * A run sets the model's gates, so no other thread may use the model at that time.  The resulting
 * sweep does not change, and any number of threads may read it at once. */

typedef struct hl_sweep hl_sweep;

/* A text whose last word is to be predicted. */
typedef struct hl_word_text {
    const int64_t *tokens; /* (n_tokens) with HL_AROUND_WINDOW, without the tokens that the
                            * tokenizer adds */
    int64_t        n_tokens;
    int64_t        first;  /* index of the word's first token, at least 1 */
    int64_t        n_word; /* number of the word's tokens */
} hl_word_text;

typedef struct hl_sweep_options {
    /* Options that change the numbers. */
    const hl_ranker *rankers; /* (n_rankers); NULL: all.  The random ranker is always included */
    int64_t          n_rankers;
    const hl_ranker *iterative; /* (n_iterative) rankers that are also run with new measurements
                                 * after every ratio */
    int64_t          n_iterative;
    const double    *ratios; /* (n_ratios) increasing, at least 0 and below 1; NULL: 0, 0.1 ...
                              * 0.7 */
    int64_t          n_ratios;
    int64_t          n_seeds; /* number of random orders; 0: 10 */
    uint64_t         seed;
    int64_t          per_layer_max; /* largest number of disabled heads per layer, as in
                                     * hl_choice */
    bool             empty_layers;
    bool             groups;       /* disable the query heads of a KV head together */
    int64_t          rank_tokens;  /* largest number of tokens of the text to rank on; 0: all */
    int64_t          test_tokens;  /* largest number of tokens of the text to test on; 0: all */
    int64_t          n_ctx;        /* tokens per window; 0: the default */
    hl_around        around;       /* as in hl_window_options */
    bool             shared_texts; /* the two texts may have documents in common */
    bool             repair;       /* also with means, and repaired (hl_repair_heads) */
    bool             no_singles; /* no head is disabled alone: no table of heads and correlations */
    /* (n_words) texts; for every setting the number of correctly predicted last words is counted.
     * NULL: none. */
    const hl_word_text *words;
    int64_t             n_words;

    /* Options that do not change the numbers. */
    size_t               memory_bytes; /* as in hl_evaluate_options */
    int32_t              n_threads;
    const char          *state_path; /* file to save the state in; NULL: the state is not saved */
    double               save_every; /* seconds between saves; 0: 30 */
    bool                 resume;     /* continue from the saved state, if there is one */
    hl_progress_callback progress; /* called with the stage; if it ends the work, the state is saved
                                    * first */
    void                *context;  /* passed to `progress` */
} hl_sweep_options;

/* Runs a sweep.  Returns HL_BAD_ARGUMENT if the texts have a document in common and shared_texts is
 * false, or if a ratio exceeds what the limits allow; HL_BAD_INPUT for a saved state of other
 * settings. The model's gates are changed during the run, and all are 1 afterwards.  The caller
 * removes the state file. */
HL_API hl_status hl_sweep_run(hl_sweep **out, hl_model *model, const hl_tokenizer *tokenizer,
                              const hl_corpus *rank_corpus, const hl_corpus *test_corpus,
                              const hl_sweep_options *options);
HL_API void      hl_sweep_free(hl_sweep *sweep);

/* Returns a table, borrowed from the sweep; NULL if there is no table of that name:
 *   points       cost of every order of heads at every ratio
 *   random       range of the random orders
 *   correlation  of each ranker's scores with the costs of single heads
 *   heads        score and cost of every head
 *   savings      the most that removing a number of heads can save
 *   repair       cost of the same heads with means, and repaired; empty unless asked for */
HL_API const char     *hl_sweep_table_name(size_t index);
HL_API const hl_sheet *hl_sweep_table(const hl_sweep *sweep, const char *name);
/* Returns a sentence of the conclusions; NULL past the last. */
HL_API const char *hl_sweep_verdict(const hl_sweep *sweep, size_t index);
/* Returns the evaluation of the test text, borrowed from the sweep. */
HL_API const hl_evaluation *hl_sweep_evaluation(const hl_sweep *sweep);

#ifdef __cplusplus
}
#endif
#endif
