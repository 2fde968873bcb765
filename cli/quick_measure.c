/* quick_measure.c - a model and texts to a profile, with a progress bar. */
#include "quick_measure.h"

#include <stdio.h>

#include "progress.h"

static hl_status show_progress(void *context, const hl_measure_progress *progress)
{
    hl_progress_update(context, progress->share, progress->n_tokens);
    return HL_OK;
}

static hl_status run(hl_profile **out, const hl_model *model, const hl_tokenizer *tokenizer,
                     const hl_corpus *corpus, const hl_quick_request *request)
{
    hl_progress        progress;
    hl_measure_options options = { .windows   = request->windows,
                                   .nll       = request->nll,
                                   .no_probe  = request->no_probe,
                                   .n_threads = request->n_threads,
                                   .progress  = show_progress,
                                   .context   = &progress };

    hl_progress_start(&progress, stderr, "measuring", request->quiet);
    hl_status status = hl_measure(out, model, tokenizer, corpus, &options);
    hl_progress_end(&progress);
    return status;
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
        status = run(out, model, tokenizer, corpus, request);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return status;
}
