/* evidence.c - runs a model on texts for a profile or a ranker, with progress bars. */
#include "evidence.h"

#include <stdio.h>
#include <string.h>

#include "progress.h"

/* ---------------------------------------------- a profile, measured on the way */

/* Calls hl_measure with a progress bar. */
static hl_status measure_with_bar(hl_profile **out, const hl_model *model,
                                  const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                                  hl_measure_options options, bool quiet)
{
    hl_progress_bar progress;

    options.progress = hl_progress_show;
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
    int64_t      n_tokens = request->n_pattern_tokens;
    hl_status    status =
        hl_tokenizer_encode(&encoding, tokenizer, request->prompt, strlen(request->prompt),
                            &(hl_encode_options){ .add_special = true });

    if (status != HL_OK)
        return status;
    if (n_tokens > HL_PATTERNS_MOST_TOKENS)
        n_tokens = HL_PATTERNS_MOST_TOKENS;
    if (n_tokens > (int64_t)encoding->n_tokens)
        n_tokens = (int64_t)encoding->n_tokens;
    status = hl_patterns_of(out, model, encoding->ids, n_tokens, request->n_threads);
    hl_encoding_free(encoding);
    return status;
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

/* A request's texts, open, and the bar that is shown while they are run. */
typedef struct open_texts {
    hl_tokenizer   *tokenizer;
    hl_corpus      *corpus;
    hl_progress_bar bar;
} open_texts;

static hl_status open_request(open_texts *out, const hl_model *model,
                              const hl_evidence_request *request)
{
    hl_corpus_options text = { .inputs = request->texts, .n_inputs = request->n_texts };
    const char       *path = request->tokenizer_path;

    *out = (open_texts){ 0 };
    hl_progress_start(&out->bar, stderr, "", request->quiet);
    hl_status status = hl_tokenizer_open(
        &out->tokenizer, path != NULL ? path : hl_model_get_info(model)->tokenizer_path);
    if (status == HL_OK)
        status = hl_corpus_open(&out->corpus, model, out->tokenizer, &text);
    return status;
}

static void close_texts(open_texts *texts)
{
    hl_progress_end(&texts->bar);
    hl_corpus_close(texts->corpus);
    hl_tokenizer_close(texts->tokenizer);
}

static hl_evidence_options evidence_options(open_texts *texts, const hl_evidence_request *request)
{
    return (hl_evidence_options){ .windows   = request->windows,
                                  .n_threads = request->n_threads,
                                  .progress  = hl_progress_show,
                                  .context   = &texts->bar };
}

hl_status hl_evidence_from_texts(hl_evidence *evidence, const hl_model *model,
                                 const hl_evidence_request *request)
{
    open_texts          texts;
    hl_evidence_options options = evidence_options(&texts, request);
    unsigned            missing = hl_ranker_needs(request->ranker) & HL_NEEDS_TEXTS;
    bool                probed  = (hl_ranker_needs(request->ranker) & HL_NEEDS_PROBE) == 0;

    if (evidence->profile != NULL && probed)
        missing &= ~(unsigned)HL_NEEDS_PROFILE;
    if (missing == 0)
        return HL_OK;
    hl_status status = open_request(&texts, model, request);
    if (status == HL_OK)
        status = hl_evidence_take(evidence, request->ranker, model, texts.tokenizer, texts.corpus,
                                  &options);
    close_texts(&texts);
    return status;
}

hl_status hl_reselect_from_texts(hl_ranking **out, hl_model *model,
                                 const hl_evidence_request *request,
                                 const hl_reselect_options *options)
{
    open_texts          texts;
    hl_reselect_options complete = *options;

    *out              = NULL;
    complete.evidence = evidence_options(&texts, request);
    hl_status status  = open_request(&texts, model, request);
    if (status == HL_OK)
        status = hl_rank_reselected(out, model, request->ranker, texts.tokenizer, texts.corpus,
                                    &complete);
    close_texts(&texts);
    return status;
}

hl_status hl_frontier_from_texts(hl_frontier **out, const hl_model *model,
                                 const hl_evidence_request *request,
                                 const hl_option_list *test_texts, const hl_budget_options *options)
{
    open_texts        texts;
    hl_corpus        *test     = NULL;
    hl_budget_options complete = *options;
    hl_corpus_options held_out = { .inputs   = test_texts->items,
                                   .n_inputs = (size_t)test_texts->count };

    *out              = NULL;
    complete.progress = hl_progress_show;
    complete.context  = &texts.bar;
    hl_status status  = open_request(&texts, model, request);
    if (status == HL_OK && test_texts->count > 0)
        status = hl_corpus_open(&test, model, texts.tokenizer, &held_out);
    if (status == HL_OK)
        status = hl_frontier_find(out, model, texts.tokenizer, texts.corpus, test, &complete);
    close_texts(&texts);
    hl_corpus_close(test);
    return status;
}
