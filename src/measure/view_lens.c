/* view_lens.c - what a model would predict after each layer.
 *
 * The session computes the lens (HL_WANT_LENS, forward_ends.c) on a few rows of logits at a time;
 * here its results are collected.  Tokens before the first one wanted are fed without the lens,
 * tokens after the last one are not fed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "measure/view.h"

typedef struct lens_watch {
    hl_lens_view *view;
    int64_t      *tops; /* (n_layers + 1, n_tokens) */
} lens_watch;

/* ------------------------------------------------------------------------ watching */

static void keep(const lens_watch *w, int64_t row, int64_t start, int64_t n_rows,
                 const int64_t *tops, const float *entropies)
{
    int64_t place = row * w->view->n_tokens + start - w->view->first;

    memcpy(w->tops + place, tops, (size_t)n_rows * sizeof *tops);
    memcpy(w->view->entropy + place, entropies, (size_t)n_rows * sizeof *entropies);
}

/* A layer's lens applies to its input: row 0 is that of the embeddings. */
static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    keep(context, rows->layer, rows->start[0], rows->lengths[0], rows->lens_top,
         rows->lens_entropy);
    return HL_OK;
}

static hl_status watch_final(void *context, const hl_final_rows *rows)
{
    const lens_watch *w = context;

    keep(w, w->view->n_layers, rows->start, rows->n_rows, rows->lens_top, rows->lens_entropy);
    return HL_OK;
}

static hl_status run(const lens_watch *w, hl_session *session, const hl_prompt *prompt,
                     const float *gates)
{
    int64_t first = w->view->first;
    hl_tap  tap   = {
           .context = (void *)w, .layer = watch_layer, .final = watch_final, .wants = HL_WANT_LENS
    };
    hl_feed before = { .tokens = prompt->tokens, .n_tokens = first, .gates = gates };
    hl_feed wanted = {
        .tokens = prompt->tokens + first, .n_tokens = w->view->n_tokens, .gates = gates, .tap = &tap
    };

    if (first > 0)
        HL_NEED(hl_session_feed(session, &before));
    return hl_session_feed(session, &wanted);
}

/* ------------------------------------------------------------------- open and close */

static hl_status choose_span(hl_lens_view *view, const hl_prompt *prompt,
                             const hl_lens_view_options *options)
{
    int64_t begin = options->begin, end = options->end;

    if (begin == 0 && end == 0)
        end = prompt->n_tokens;
    if (begin < 0 || end <= begin || end > prompt->n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "zoom %lld:%lld: wanted tokens A:B with 0 <= A < B <= %lld",
                       (long long)begin, (long long)end, (long long)prompt->n_tokens);
    view->n_prompt = prompt->n_tokens;
    view->first    = begin;
    view->n_tokens = end - begin;
    return HL_OK;
}

static hl_status allocate(lens_watch *w, const hl_model_info *info, const hl_prompt *prompt)
{
    hl_lens_view *view = w->view;
    size_t        size = (size_t)(info->n_layers + 1) * (size_t)view->n_tokens;
    hl_prompt     span = *prompt;

    span.tokens += view->first;
    span.n_tokens = view->n_tokens;
    if (span.roles != NULL)
        span.roles += view->first;
    snprintf(view->family, sizeof view->family, "%s", info->family);
    view->n_layers = info->n_layers;
    view->d_vocab  = info->d_vocab;
    HL_NEED(hl_view_tokens_new(&view->tokens, &span));
    HL_NEED(HL_ALLOC_ZEROED(&view->guesses, size));
    HL_NEED(HL_ALLOC(&view->entropy, size));
    return HL_ALLOC(&w->tops, size);
}

static hl_status name_guesses(const lens_watch *w, const hl_prompt *prompt)
{
    hl_lens_view *view = w->view;

    for (int64_t i = 0; i < (view->n_layers + 1) * view->n_tokens; i++) {
        int64_t next = view->first + i % view->n_tokens + 1;
        HL_NEED(hl_view_name_token(&view->guesses[i], prompt->tokenizer, w->tops[i]));
        view->guesses[i].is_marked = next < prompt->n_tokens && w->tops[i] == prompt->tokens[next];
    }
    return HL_OK;
}

hl_status hl_lens_view_new(hl_lens_view **out, const hl_model *model, const hl_prompt *prompt,
                           const hl_lens_view_options *options)
{
    static const hl_lens_view_options none    = { 0 };
    hl_status                         status  = HL_OK;
    hl_session                       *session = NULL;
    lens_watch                        w       = { 0 };

    *out    = NULL;
    options = options != NULL ? options : &none;
    HL_TRY(hl_view_check_prompt(prompt));
    if (hl_model_get_info(model)->is_encoder) {
        status = hl_fail(HL_UNSUPPORTED,
                         "an encoder (%s) does not predict the next token, so it has no logit lens",
                         hl_model_get_info(model)->family);
        goto done;
    }
    HL_TRY(HL_ALLOC_ZEROED(&w.view, 1));
    HL_TRY(choose_span(w.view, prompt, options));
    HL_TRY(allocate(&w, hl_model_get_info(model), prompt));
    HL_TRY(hl_session_open(&session, model,
                           &(hl_session_options){ .n_ctx      = w.view->first + w.view->n_tokens,
                                                  .wants      = HL_WANT_LENS,
                                                  .beyond_ctx = options->beyond_ctx,
                                                  .n_threads  = options->n_threads }));
    HL_TRY(run(&w, session, prompt, options->gates));
    HL_TRY(name_guesses(&w, prompt));
    *out   = w.view;
    w.view = NULL;

done:
    hl_session_close(session);
    hl_lens_view_free(w.view);
    hl_free(w.tops);
    return status;
}

void hl_lens_view_free(hl_lens_view *view)
{
    if (view == NULL)
        return;
    hl_view_tokens_free(view->tokens, view->n_tokens);
    hl_view_tokens_free(view->guesses, (view->n_layers + 1) * view->n_tokens);
    hl_free(view->entropy);
    hl_free(view);
}
