/* evidence.c - the measurements that rankings are made of: a profile, gradients, moments of outputs, and
 * the loss without each head. */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight/sweep.h"
#include "prune/gates.h"
#include "prune/repair.h"

/* A progress callback, and the stage that it reports. */
typedef struct listener {
    const hl_evidence_options *options;
    const char                *stage;
} listener;

static hl_status tell(void *context, const hl_progress *progress)
{
    const listener *to   = context;
    hl_progress     mine = *progress;

    mine.stage = to->stage;
    return to->options->progress == NULL ? HL_OK
                                         : to->options->progress(to->options->context, &mine);
}

static hl_status begin(listener *to, const char *stage)
{
    to->stage = stage;
    return tell(to, &(hl_progress){ 0 });
}

/* Is a profile needed that is missing?  A profile without the probe does not serve rankers that need
 * the probe. */
static bool lacks_profile(const hl_evidence *evidence, unsigned needs)
{
    return evidence->profile == NULL ||
           ((needs & HL_NEEDS_PROBE) != 0 &&
            isnan(hl_profile_probe(evidence->profile, 0, 0, HL_PROBE_INDUCTION)));
}

hl_status hl_evidence_take(hl_evidence *evidence, hl_ranker ranker, const hl_model *model,
                           const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                           const hl_evidence_options *options)
{
    static const hl_evidence_options defaults = { 0 };

    const hl_model_info *info  = hl_model_get_info(model);
    unsigned             needs = hl_ranker_needs(ranker);

    options     = options != NULL ? options : &defaults;
    listener to = { .options = options };

    if ((needs & HL_NEEDS_PROFILE) != 0 && lacks_profile(evidence, needs)) {
        HL_NEED(begin(&to, "measuring"));
        hl_profile_free(evidence->profile);
        evidence->profile = NULL;
        HL_NEED(hl_measure(&evidence->profile, model, tokenizer, corpus,
                           &(hl_measure_options){ .windows   = options->windows,
                                                  .seed      = options->seed,
                                                  .no_probe  = (needs & HL_NEEDS_PROBE) == 0,
                                                  .n_threads = options->n_threads,
                                                  .progress  = tell,
                                                  .context   = &to }));
    }
    if ((needs & HL_NEEDS_GRADIENT) != 0 && evidence->gradients == NULL) {
        hl_gradient_options how = { .windows   = options->windows,
                                    .n_threads = options->n_threads,
                                    .progress  = tell,
                                    .context   = &to };

        how.windows.n_batch = 0; /* gradients have no batches */
        if (options->gradient_tokens > 0)
            how.windows.max_tokens = options->gradient_tokens;
        HL_NEED(begin(&to, "gradients"));
        HL_NEED(hl_gate_gradients(&evidence->gradients, model, corpus, &how));
    }
    if ((needs & HL_NEEDS_MOMENTS) != 0 && evidence->moments == NULL) {
        HL_NEED(begin(&to, "outputs"));
        HL_NEED(hl_head_moments_take(&evidence->moments, model, corpus,
                                     &(hl_moments_options){ .windows   = options->windows,
                                                            .n_threads = options->n_threads,
                                                            .progress  = tell,
                                                            .context   = &to }));
    }
    if ((needs & HL_NEEDS_SURGEON) != 0 && evidence->surgeon == NULL) {
        HL_FREED double   *scores = NULL;
        hl_surgeon_options how    = { .windows   = options->windows,
                                      .n_threads = options->n_threads,
                                      .progress  = tell,
                                      .context   = &to };

        how.windows.n_batch = 0;
        HL_NEED(HL_ALLOC(&scores, (size_t)(info->n_layers * info->n_heads)));
        HL_NEED(begin(&to, "surgeon"));
        HL_NEED(hl_surgeon_scores(scores, model, corpus, &how));
        evidence->surgeon = hl_taken(&scores);
    }
    if ((needs & HL_NEEDS_ABLATION) != 0 && evidence->ablation == NULL) {
        HL_FREED double *rises = NULL;

        HL_NEED(HL_ALLOC(&rises, (size_t)(info->n_layers * info->n_heads)));
        HL_NEED(begin(&to, "ablating"));
        HL_NEED(hl_ablate(rises, model, corpus,
                          &(hl_evaluate_options){ .windows   = options->windows,
                                                  .n_threads = options->n_threads,
                                                  .progress  = tell,
                                                  .context   = &to }));
        evidence->ablation = hl_taken(&rises);
    }
    return HL_OK;
}

hl_status hl_evidence_rank(hl_ranking **out, const hl_evidence *evidence, hl_ranker ranker,
                           const hl_model *model, const hl_rank_options *options)
{
    const hl_gradients *gradients = evidence->gradients;

    return hl_rank(
        out, ranker,
        &(hl_rank_inputs){ .profile      = evidence->profile,
                           .model        = model,
                           .gradient     = gradients != NULL ? gradients->magnitude : NULL,
                           .gradients    = gradients,
                           .ablation     = evidence->ablation,
                           .weight_norms = gradients != NULL ? gradients->weight_norms : NULL,
                           .moments      = evidence->moments,
                           .surgeon      = evidence->surgeon },
        options);
}

void hl_evidence_free(hl_evidence *evidence)
{
    hl_profile_free(evidence->profile);
    hl_gradients_free(evidence->gradients);
    hl_free(evidence->ablation);
    hl_head_moments_free(evidence->moments);
    hl_free(evidence->surgeon);
    *evidence = (hl_evidence){ 0 };
}
