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
    int64_t    context;     /* what the options' became */
    int64_t    n_scored;    /* tokens of all windows */
    int64_t   *scored;      /* (n_windows) tokens */
    int64_t   *documents;   /* (n_windows) 0, 1, ... in order */
    hl_scores *dense;       /* (n_windows) with all gates 1 */
    hl_scores *scores;      /* (n_settings, n_windows) */
    /* Blocks run for a batch of windows, the dense model's too, and how many it would have
     * been without a shared prefix. */
    int64_t n_layers_run;
    int64_t n_layers_naive;
} hl_evaluation;

typedef struct hl_evaluate_options {
    /* Windows do not overlap, so stride, part and n_parts must be 0.  context 0: the model's, at
     * most 1024; n_batch 0: 512 rows' worth. */
    hl_window_options windows;
    /* For what is kept of one batch: dense predictions, which must fit, and residual streams;
     * layers whose stream does not fit are run again.  0: 1 GiB. */
    size_t  memory_bytes;
    int32_t n_threads;
    /* After every setting of every batch; anything but HL_OK ends the work with that status. */
    hl_status (*progress)(void *context, double share, int64_t n_tokens);
    void *context;
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

#ifdef __cplusplus
}
#endif
#endif
