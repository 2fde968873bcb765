/* headlight/sweep.h - what switching heads off costs: many settings of gates, one text.
 * Part of headlight.h, which see for the conventions. */
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
 * The same numbers as hl_perplexity's, to the bit, for each setting of the gates, beside how far
 * its predictions are from those of the model as it is.  Layers below the first gate in which
 * two settings differ are run once for both. */

/* Sums over scored tokens. */
typedef struct hl_scores {
    double  nll;    /* -log p of the token */
    double  kl;     /* from the dense model's next-token distribution to this one, nats */
    int64_t n_same; /* rows whose likeliest token is the dense model's */
} hl_scores;

typedef struct hl_evaluation {
    int64_t    n_settings;
    int64_t    n_windows;
    int64_t    n_documents; /* with a window that scores */
    int64_t    n_ctx;       /* what the options' became */
    int64_t    n_scored;    /* tokens of all windows */
    int64_t   *scored;      /* (n_windows) tokens */
    int64_t   *documents;   /* (n_windows) 0, 1, ... in order */
    hl_scores *dense;       /* (n_windows) with all gates 1 */
    hl_scores *scores;      /* (n_settings, n_windows) */
    /* Blocks run for a batch of windows, the dense model's too, and how many it would have
     * been without a shared prefix. */
    int64_t n_layers_run;
    int64_t n_layers_naive;
    /* Settings that differ from each other and from the dense model, which counts too: equal
     * ones are run once, and are no merit of the prefix. */
    int64_t n_distinct;
} hl_evaluation;

typedef struct hl_evaluate_options {
    /* Windows do not overlap, so the stride must be 0.  n_batch 0: 512 rows' worth. */
    hl_window_options windows;
    /* For what is kept of one batch: dense predictions, which must fit, unless they lie on a device,
     * and residual streams; layers whose stream does not fit are run again.  0: 1 GiB, or what the
     * predictions of one window take. */
    size_t               memory_bytes;
    int32_t              n_threads;
    hl_progress_callback progress; /* after every setting of every batch */
    void                *context;  /* of progress */
} hl_evaluate_options;

/* gates: (n_settings, n_layers, n_heads).  HL_UNSUPPORTED for an encoder. */
HL_API hl_status hl_evaluate(hl_evaluation **out, const hl_model *model, const hl_corpus *corpus,
                             const float *gates, int64_t n_settings,
                             const hl_evaluate_options *options);
HL_API void      hl_evaluation_free(hl_evaluation *evaluation);
/* Sums over all windows; setting -1: the dense model. */
HL_API hl_scores hl_evaluation_total(const hl_evaluation *evaluation, int64_t setting);

/* Rise of the mean NLL when one head alone is switched off: out (n_layers, n_heads), NaN where
 * a layer has no such head. */
HL_API hl_status hl_ablate(double *out, const hl_model *model, const hl_corpus *corpus,
                           const hl_evaluate_options *options);

/* ----------------------------------------------------------------- evidence
 *
 *     hl_evidence evidence = { 0 };
 *     hl_evidence_take(&evidence, HL_RANKER_GRADIENT, model, tokenizer, corpus, NULL);
 *     hl_evidence_rank(&ranking, &evidence, HL_RANKER_GRADIENT, model, NULL);
 *     hl_evidence_free(&evidence);
 *
 * What rankings are made of, taken from texts as far as a ranker needs it.  The model's gates are
 * as they are. */

typedef struct hl_evidence {
    hl_profile      *profile; /* each NULL: not there */
    hl_gradients    *gradients;
    double          *ablation; /* (n_layers, n_heads) of hl_ablate */
    hl_head_moments *moments;
    double          *surgeon; /* (n_layers, n_heads) of hl_surgeon_scores */
} hl_evidence;

typedef struct hl_evidence_options {
    hl_window_options windows;         /* n_batch: of the profile and of ablation */
    int64_t           gradient_tokens; /* gradients: of the first so many; 0: as windows says */
    uint64_t          seed;            /* of the rows that are looked at whole */
    int32_t           n_threads;
    /* With the stage: at its beginning, with a share of 0, and then as it goes on. */
    hl_progress_callback progress;
    void                *context; /* of progress */
} hl_evidence_options;

/* Adds what the ranker needs and the evidence does not hold yet; what is held stays also where this
 * fails.  The tokenizer and the options may be NULL. */
HL_API hl_status hl_evidence_take(hl_evidence *evidence, hl_ranker ranker, const hl_model *model,
                                  const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                                  const hl_evidence_options *options);
/* hl_rank by what the evidence holds; the model may be NULL where there is a profile. */
HL_API hl_status hl_evidence_rank(hl_ranking **out, const hl_evidence *evidence, hl_ranker ranker,
                                  const hl_model *model, const hl_rank_options *options);
HL_API void      hl_evidence_free(hl_evidence *evidence); /* what it holds, not the struct */

/* ----------------------------------------------------------- ranking again
 *
 *     hl_rank_reselected(&ranking, model, HL_RANKER_GNORM, tokenizer, corpus,
 *                        &(hl_reselect_options){ .choice = { .ratio = 0.2 } });
 *     hl_ranking_choose(&heads, ranking, &(hl_choice){ .ratio = 0.2 });
 *
 * A head that was worth little may be worth much when another has gone.  So the first are switched
 * off, the texts are run again, and the rest are ranked anew, step by step. */

typedef struct hl_reselect_options {
    hl_evidence_options evidence;
    hl_choice           choice;  /* how many go, and which may */
    int64_t             n_steps; /* 0: after each head, or group */
    bool                groups;  /* as hl_ranking_group */
    hl_rank_options     rank;
} hl_reselect_options;

/* The heads of the choice first, in the order in which they went, each with the score that it had
 * then; the others by the last ranking.  The model's gates are set on the way, and all 1 afterwards.
 * HL_BAD_ARGUMENT for a ranker that looks at no text: it has nothing to look at again. */
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
 * Ranks heads on one text, switches more and more of them off in that order, and measures what
 * it costs on another text; beside it random orders, and every head switched off alone.
 *
 * A run sets the model's gates, so no other thread may use the model meanwhile.  The sweep that comes of
 * it does not change any more, and any number of threads may read it at once. */

typedef struct hl_sweep hl_sweep;

/* A text whose last word is to be foretold. */
typedef struct hl_word_text {
    const int64_t *tokens; /* (n_tokens) with HL_AROUND_WINDOW without what the tokenizer adds */
    int64_t        n_tokens;
    int64_t        first;  /* token of the word, not 0 */
    int64_t        n_word; /* tokens of it */
} hl_word_text;

typedef struct hl_sweep_options {
    /* Change the numbers. */
    const hl_ranker *rankers; /* (n_rankers); NULL: all.  Random is there in any case */
    int64_t          n_rankers;
    const hl_ranker *iterative; /* (n_iterative) also with new measurements after every ratio */
    int64_t          n_iterative;
    const double    *ratios; /* (n_ratios) rising, from 0 on and below 1; NULL: 0, 0.1 ... 0.7 */
    int64_t          n_ratios;
    int64_t          n_seeds; /* of random; 0: 10 */
    uint64_t         seed;
    int64_t          per_layer_max; /* as in hl_choice, with the next */
    bool             empty_layers;
    bool             groups;       /* query heads of a K/V head go together */
    int64_t          rank_tokens;  /* most tokens of the text to rank on; 0: all */
    int64_t          test_tokens;  /* and of the one to test on */
    int64_t          n_ctx;        /* tokens of a window; 0: the default */
    hl_around        around;       /* as in hl_window_options */
    bool             shared_texts; /* the texts may have documents in common */
    bool             repair;       /* also with means, and repaired (hl_repair_heads) */
    /* (n_words) or NULL: how often every setting foretells these, beside the loss. */
    const hl_word_text *words;
    int64_t             n_words;

    /* Do not. */
    size_t               memory_bytes; /* as in hl_evaluate_options */
    int32_t              n_threads;
    const char          *state_path; /* where the state is saved; NULL: nowhere */
    double               save_every; /* seconds; 0: 30 */
    bool                 resume;     /* go on from the state, if there is one */
    hl_progress_callback progress; /* with the stage; what ends the work ends it after its state has
                                    * been saved */
    void                *context;  /* of progress */
} hl_sweep_options;

/* HL_BAD_ARGUMENT if the texts have a document in common, unless allowed, and if a ratio is more
 * than the limits leave; HL_BAD_INPUT for a state of other settings.  The model's gates are set
 * on the way, and all 1 afterwards.  The state's file is for the caller to remove. */
HL_API hl_status hl_sweep_run(hl_sweep **out, hl_model *model, const hl_tokenizer *tokenizer,
                              const hl_corpus *rank_corpus, const hl_corpus *test_corpus,
                              const hl_sweep_options *options);
HL_API void      hl_sweep_free(hl_sweep *sweep);

/* Tables, borrowed from the sweep; NULL if there is none of that name:
 *   points       what every order of heads costs at every ratio
 *   random       the band of the random orders
 *   correlation  each ranker's score against what a head alone costs
 *   heads        both, of every head
 *   savings      the most that taking out so many heads can save
 *   repair       what the same heads cost with means, and repaired; empty unless asked for */
HL_API const char     *hl_sweep_table_name(size_t index);
HL_API const hl_sheet *hl_sweep_table(const hl_sweep *sweep, const char *name);
/* What it comes to, a sentence at a time; NULL past the last. */
HL_API const char *hl_sweep_verdict(const hl_sweep *sweep, size_t index);
/* Of the test text; borrowed. */
HL_API const hl_evaluation *hl_sweep_evaluation(const hl_sweep *sweep);

#ifdef __cplusplus
}
#endif
#endif
