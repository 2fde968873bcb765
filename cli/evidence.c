/* evidence.c - a model and texts, run for a profile or for a ranker, with a progress bar each. */
#include "evidence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"

/* ---------------------------------------------- a profile, measured on the way */

static hl_status show_progress(void *context, const hl_measure_progress *progress)
{
    hl_progress_update(context, progress->share, progress->n_tokens);
    return HL_OK;
}

/* hl_measure with a progress bar; options without progress. */
static hl_status measure_with_bar(hl_profile **out, const hl_model *model,
                                  const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                                  hl_measure_options options, bool quiet)
{
    hl_progress progress;

    options.progress = show_progress;
    options.context  = &progress;
    hl_progress_start(&progress, stderr, "measuring", quiet);
    hl_status status = hl_measure(out, model, tokenizer, corpus, &options);
    hl_progress_end(&progress);
    return status;
}

static hl_status see_prompt(hl_patterns **out, const hl_model *model, const hl_tokenizer *tokenizer,
                            const hl_quick_request *request)
{
    hl_encoding *encoding = NULL;
    int64_t      tokens[HL_PATTERNS_MOST_TOKENS];
    int64_t      n_tokens = 0;
    hl_status    status =
        hl_tokenizer_encode(&encoding, tokenizer, request->prompt, strlen(request->prompt),
                            &(hl_encode_options){ .add_special = true });

    if (status != HL_OK)
        return status;
    while (n_tokens < (int64_t)encoding->n_tokens && n_tokens < request->n_pattern_tokens &&
           n_tokens < HL_PATTERNS_MOST_TOKENS) {
        tokens[n_tokens] = encoding->ids[n_tokens];
        n_tokens++;
    }
    hl_encoding_free(encoding);
    return hl_patterns_of(out, model, tokens, n_tokens, request->n_threads);
}

static hl_status see_patterns(const hl_model *model, const hl_tokenizer *tokenizer,
                              const hl_corpus *corpus, const hl_quick_request *request)
{
    if (request->prompt != NULL)
        return see_prompt(request->patterns, model, tokenizer, request);
    return hl_patterns_measure(request->patterns, model, corpus,
                               &(hl_patterns_options){ .n_tokens  = request->n_pattern_tokens,
                                                       .n_threads = request->n_threads,
                                                       .around    = request->windows.around });
}

hl_status hl_quick_measure(hl_profile **out, const hl_quick_request *request)
{
    hl_corpus_options text      = { .inputs = request->texts, .n_inputs = request->n_texts };
    hl_model         *model     = NULL;
    hl_tokenizer     *tokenizer = NULL;
    hl_corpus        *corpus    = NULL;

    *out             = NULL;
    hl_status status = hl_model_open(&model, request->model_path);
    if (status == HL_OK && request->adjustment != NULL)
        status = hl_model_adjust(model, request->adjustment);
    if (status == HL_OK && request->gates != NULL)
        status = hl_gate_options_apply(model, request->gates, request->command, request->quiet);
    if (status == HL_OK)
        status = hl_tokenizer_open(&tokenizer, hl_model_get_info(model)->tokenizer_path);
    if (status == HL_OK)
        status = hl_corpus_open(&corpus, model, tokenizer, &text);
    if (status == HL_OK)
        status = measure_with_bar(out, model, tokenizer, corpus,
                                  (hl_measure_options){ .windows   = request->windows,
                                                        .nll       = request->nll,
                                                        .no_probe  = request->no_probe,
                                                        .n_threads = request->n_threads },
                                  request->quiet);
    if (status == HL_OK && request->patterns != NULL)
        status = see_patterns(model, tokenizer, corpus, request);
    if (status != HL_OK) {
        hl_profile_free(*out);
        *out = NULL;
    }
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return status;
}

/* --------------------------------------------------------- what a ranker needs */

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

/* ------------------------------------------------------------------- taking it */

static hl_status show_share(void *context, double share, int64_t n_tokens)
{
    hl_progress_update(context, share, n_tokens);
    return HL_OK;
}

static hl_status take_gradients(hl_evidence *out, const hl_model *model, const hl_corpus *corpus,
                                const hl_evidence_request *request)
{
    hl_progress         progress;
    hl_gradient_options options = { .windows   = request->windows,
                                    .n_threads = request->n_threads,
                                    .progress  = show_progress,
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
        status = measure_with_bar(&out->profile, model, tokenizer, corpus, options, request->quiet);
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
