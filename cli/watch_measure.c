/* watch_measure.c - opens a checkpoint and a text, and measures the one on the other. */
#include "watch_measure.h"

#include <stdio.h>

#include "corpus_options.h"
#include "progress.h"
#include "stop.h"

static hl_status show_progress(void *context, const hl_measure_progress *progress)
{
    hl_progress_update(context, progress->share, progress->n_tokens);
    return hl_stop_asked() ? HL_CANCELLED : HL_OK;
}

static hl_status measure(hl_profile **out, const hl_model *model, const hl_tokenizer *tokenizer,
                         const hl_corpus *corpus, const hl_watch_measure *how)
{
    hl_progress        progress;
    hl_measure_options options = { .windows   = how->windows,
                                   .seed      = how->seed,
                                   .nll       = how->nll,
                                   .no_probe  = true,
                                   .n_threads = how->n_threads,
                                   .progress  = show_progress,
                                   .context   = &progress };

    hl_progress_start(&progress, stderr, "measuring", how->quiet);
    hl_status status = hl_measure(out, model, tokenizer, corpus, &options);
    hl_progress_end(&progress);
    return status;
}

hl_status hl_watch_measure_checkpoint(hl_profile **out, uint64_t *text, bool *is_whole,
                                      const char *path, const hl_watch_measure *how)
{
    hl_model     *model          = NULL;
    hl_tokenizer *tokenizer      = NULL;
    hl_corpus    *corpus         = NULL;
    const char   *tokenizer_path = how->tokenizer_path;

    *out             = NULL;
    hl_status status = hl_model_open(&model, path);
    if (status == HL_OK && tokenizer_path == NULL && how->corpus->token_ids == NULL)
        tokenizer_path = hl_model_get_info(model)->tokenizer_path;
    if (status == HL_OK && tokenizer_path != NULL)
        status = hl_tokenizer_open(&tokenizer, tokenizer_path);
    if (status == HL_OK)
        status = hl_corpus_open(&corpus, model, tokenizer, how->corpus);
    *is_whole = status == HL_OK;
    if (status == HL_OK) {
        *text  = hl_corpus_get_info(corpus)->hash;
        status = measure(out, model, tokenizer, corpus, how);
    }
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return status;
}
