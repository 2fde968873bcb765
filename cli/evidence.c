/* evidence.c - texts run for a ranker, with a progress bar each. */
#include "evidence.h"

#include <stdio.h>
#include <stdlib.h>

#include "progress.h"
#include "quick_measure.h"

/* ------------------------------------------------------------------------- needs */

bool hl_evidence_needs_profile(hl_ranker ranker)
{
    return ranker != HL_RANKER_WEIGHT && ranker != HL_RANKER_GRADIENT &&
           ranker != HL_RANKER_ABLATION && ranker != HL_RANKER_RANDOM;
}

bool hl_evidence_needs_gradients(hl_ranker ranker)
{
    return ranker == HL_RANKER_GRADIENT || ranker == HL_RANKER_ENTROPY_GRADIENT;
}

/* Texts in any case? */
static bool needs_texts(hl_ranker ranker)
{
    return hl_evidence_needs_gradients(ranker) || ranker == HL_RANKER_ABLATION;
}

/* ------------------------------------------------------------------------- taking */

static hl_status show_share(void *context, double share, int64_t n_tokens)
{
    hl_progress_update(context, share, n_tokens);
    return HL_OK;
}

static hl_status show_measured(void *context, const hl_measure_progress *progress)
{
    return show_share(context, progress->share, progress->n_tokens);
}

static hl_status take_gradients(hl_evidence *out, const hl_model *model, const hl_corpus *corpus,
                                const hl_evidence_request *request)
{
    hl_progress         progress;
    hl_gradient_options options = { .windows   = request->windows,
                                    .n_threads = request->n_threads,
                                    .progress  = show_measured,
                                    .context   = &progress };

    hl_progress_start(&progress, stderr, "gradients", request->quiet);
    hl_status status = hl_gate_gradients(&out->gradients, model, corpus, &options);
    hl_progress_end(&progress);
    return status;
}

/* Each head alone, whatever is off already. */
static hl_status ablate(hl_evidence *out, const hl_model *model, const hl_corpus *corpus,
                        const hl_evidence_request *request)
{
    const hl_model_info *info = hl_model_get_info(model);
    hl_progress          progress;
    hl_evaluate_options  options = { .windows   = request->windows,
                                     .n_threads = request->n_threads,
                                     .progress  = show_share,
                                     .context   = &progress };

    out->ablation = malloc((size_t)(info->n_layers * info->n_heads) * sizeof *out->ablation);
    if (out->ablation == NULL)
        return HL_NO_MEMORY;
    hl_progress_start(&progress, stderr, "ablating", request->quiet);
    hl_status status = hl_ablate(out->ablation, model, corpus, &options);
    hl_progress_end(&progress);
    return status;
}

static hl_status take_all(hl_evidence *out, const hl_model *model, const hl_tokenizer *tokenizer,
                          const hl_corpus *corpus, const hl_evidence_request *request)
{
    hl_measure_options options = { .windows   = request->windows,
                                   .no_probe  = true,
                                   .n_threads = request->n_threads };
    hl_status          status  = HL_OK;

    if (out->profile == NULL && hl_evidence_needs_profile(request->ranker))
        status =
            hl_measure_with_bar(&out->profile, model, tokenizer, corpus, options, request->quiet);
    if (status == HL_OK && hl_evidence_needs_gradients(request->ranker))
        status = take_gradients(out, model, corpus, request);
    if (status == HL_OK && request->ranker == HL_RANKER_ABLATION)
        status = ablate(out, model, corpus, request);
    return status;
}

hl_status hl_evidence_take(hl_evidence *evidence, const hl_model *model,
                           const hl_evidence_request *request)
{
    hl_corpus_options text      = { .inputs = request->texts, .n_inputs = request->n_texts };
    const char       *path      = request->tokenizer_path;
    hl_tokenizer     *tokenizer = NULL;
    hl_corpus        *corpus    = NULL;

    if (!needs_texts(request->ranker) &&
        (evidence->profile != NULL || !hl_evidence_needs_profile(request->ranker)))
        return HL_OK;
    hl_status status = hl_tokenizer_open(
        &tokenizer, path != NULL ? path : hl_model_get_info(model)->tokenizer_path);
    if (status == HL_OK)
        status = hl_corpus_open(&corpus, model, tokenizer, &text);
    if (status == HL_OK)
        status = take_all(evidence, model, tokenizer, corpus, request);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    return status;
}

hl_rank_inputs hl_evidence_inputs(const hl_evidence *evidence, const hl_model *model)
{
    return (hl_rank_inputs){
        .profile  = evidence->profile,
        .model    = model,
        .gradient = evidence->gradients != NULL ? evidence->gradients->magnitude : NULL,
        .ablation = evidence->ablation,
    };
}

void hl_evidence_free(hl_evidence *evidence)
{
    hl_profile_free(evidence->profile);
    hl_gradients_free(evidence->gradients);
    free(evidence->ablation);
    *evidence = (hl_evidence){ 0 };
}
