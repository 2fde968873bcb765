/* agreement.c - two models' predictions of the same tokens, row by row.
 *
 * The logits of a whole window are too many to keep, so a window goes through both models in
 * pieces. The reference model's session keeps its logits of a piece where it runs, and the model's
 * logits are compared with them (model/session.h):
 *
 *     KL(p || q) = sum p (ln p - ln q),   p the reference model's, q the model's. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight/eval.h"
#include "measure/perplexity.h"
#include "model/forward.h"
#include "model/model.h"

/* Largest number of rows per piece; largest number of kept logits.  The CPU keeps probabilities
 * with them. */
enum { MAX_PIECE = 512, MAX_KEPT = 16 << 20, MAX_KEPT_ON_DEVICE = 64 << 20 };
enum { WANTS = HL_WANT_LOSSES | HL_WANT_DIVERGENCE };

HL_CLOSES(hl_agreement_close, hl_agreement)

struct hl_agreement {
    hl_agreement_options options; /* with all defaults filled in */
    hl_session          *model;
    hl_session          *reference;
    hl_window_cut        cut;
    int64_t             *tokens; /* (n_ctx) tokens of the current window */
    int64_t              n_piece;
    int64_t             *tops; /* (n_piece) the reference model's most likely tokens */
    int64_t              at;   /* position of the piece's first row */
    double               kl;   /* of the window at hand, so far */
    hl_ratio_sums        windows;
    hl_ratio_sums        texts;
    hl_ratio_sums        of_text; /* windows of the text at work */
    int64_t              n_same;  /* rows */
};

/* -------------------------------------------------------------- open and close */

static hl_status check_models(const hl_model *model, const hl_model *reference)
{
    if (model == NULL || reference == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "agreement: a model is NULL");
    if (model->config->is_encoder || reference->config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder, which does not predict the next token",
                       model->config->is_encoder ? model->path : reference->path);
    if (model->config->d_vocab != reference->config->d_vocab)
        return hl_fail(HL_BAD_INPUT,
                       "%s has a vocabulary of %lld tokens and %s one of %lld: their predictions "
                       "cannot be compared",
                       model->path, (long long)model->config->d_vocab, reference->path,
                       (long long)reference->config->d_vocab);
    return HL_OK;
}

static hl_status open_session(hl_session **out, const hl_model *model, const hl_agreement *a,
                              int64_t n_kept)
{
    return hl_session_open(out, model,
                           &(hl_session_options){ .n_ctx     = a->options.n_ctx,
                                                  .n_chunk   = a->n_piece,
                                                  .wants     = WANTS,
                                                  .n_threads = a->options.n_threads,
                                                  .n_kept    = n_kept,
                                                  .repack    = true });
}

static hl_status choose_piece(hl_agreement *a, const hl_model *model)
{
    hl_device_choice choice;

    HL_NEED(hl_device_choose(&choice, model, NULL));
    int64_t fit = (choice.ops->is_near ? MAX_KEPT : MAX_KEPT_ON_DEVICE) / model->config->d_vocab;
    a->n_piece  = fit < MAX_PIECE ? fit : MAX_PIECE;
    a->n_piece  = a->n_piece < 1 ? 1 : a->n_piece;
    a->n_piece  = a->n_piece < a->options.n_ctx ? a->n_piece : a->options.n_ctx;
    return HL_OK;
}

/* Fills in defaults as hl_perplexity does: n_ctx is the smaller of the two models' defaults. */
static hl_status complete_options(hl_agreement *a, const hl_model *model, const hl_model *reference)
{
    hl_agreement_options *options = &a->options;
    int64_t               own     = hl_config_ctx(model->config, options->n_ctx);
    int64_t               other   = hl_config_ctx(reference->config, options->n_ctx);

    options->n_ctx  = own < other ? own : other;
    options->stride = options->stride != 0 ? options->stride : options->n_ctx;
    if (options->n_ctx < 2 || options->stride < 1 || options->stride > options->n_ctx)
        return hl_fail(HL_BAD_ARGUMENT, "agreement: windows of %lld tokens, stride %lld",
                       (long long)options->n_ctx, (long long)options->stride);
    return HL_OK;
}

hl_status hl_agreement_open(hl_agreement **out, const hl_model *model, const hl_model *reference,
                            const hl_agreement_options *options)
{
    HL_CLOSED(hl_agreement_close) hl_agreement *a = NULL;

    *out = NULL;
    HL_NEED(check_models(model, reference));
    HL_NEED(HL_ALLOC_ZEROED(&a, 1));
    if (options != NULL)
        a->options = *options;
    HL_NEED(complete_options(a, model, reference));
    HL_NEED(hl_window_cut_make(&a->cut, a->options.n_ctx, a->options.stride, &a->options.around,
                               model->config->d_vocab, "agreement"));
    HL_NEED(HL_ALLOC(&a->tokens, (size_t)a->options.n_ctx));
    HL_NEED(choose_piece(a, model));
    HL_NEED(HL_ALLOC(&a->tops, (size_t)a->n_piece));
    HL_NEED(open_session(&a->model, model, a, -1));
    HL_NEED(open_session(&a->reference, reference, a, a->n_piece));
    *out = hl_taken(&a);
    return HL_OK;
}

void hl_agreement_close(hl_agreement *agreement)
{
    if (agreement == NULL)
        return;
    hl_session_close(agreement->model);
    hl_session_close(agreement->reference);
    hl_free(agreement->tops);
    hl_free(agreement->tokens);
    hl_free(agreement);
}

/* ------------------------------------------------------------------- comparing */

static hl_status keep_rows(void *context, const hl_final_rows *rows)
{
    hl_agreement *a = context;

    memcpy(a->tops + (rows->start - a->at), rows->tops, (size_t)rows->n_rows * sizeof *a->tops);
    return HL_OK;
}

static hl_status compare_rows(void *context, const hl_final_rows *rows)
{
    hl_agreement  *a    = context;
    const int64_t *tops = a->tops + (rows->start - a->at);

    for (int64_t row = 0; row < rows->n_rows; row++) {
        double kl = rows->divergence[row];

        a->kl += kl > 0.0 || isnan(kl) ? kl : 0.0; /* rounding may make it negative */
        a->n_same += rows->tops[row] == tops[row];
    }
    return HL_OK;
}

/* Feeds tokens [from, from + n) of the window to both models, without comparing. */
static hl_status feed_both(hl_agreement *a, const int64_t *tokens, int64_t n)
{
    hl_feed feed = { .tokens = tokens, .n_tokens = n };

    HL_NEED(hl_session_feed(a->reference, &feed));
    return hl_session_feed(a->model, &feed);
}

/* Feeds tokens to both models and compares their predictions of the token after each. */
static hl_status compare_both(hl_agreement *a, const int64_t *tokens, int64_t n)
{
    hl_tap  keep    = { .context = a, .final = keep_rows, .wants = WANTS };
    hl_tap  compare = { .context = a, .final = compare_rows, .wants = WANTS };
    hl_feed feed    = {
           .tokens = tokens, .n_tokens = n, .targets = tokens + 1, .tap = &keep, .keeps_logits = true
    };

    HL_NEED(hl_session_feed(a->reference, &feed));
    feed.tap          = &compare;
    feed.keeps_logits = false;
    feed.kept_by      = a->reference;
    return hl_session_feed(a->model, &feed);
}

/* --------------------------------------------------------------------- windows */

/* Compares the rows that predict a scored token: those after the context, except the last
 * token's. */
static hl_status run_window(hl_agreement *a, const int64_t *tokens, const hl_window *window)
{
    int64_t context = hl_window_context(&a->cut, window);
    int64_t n_rows  = window->end - window->first;

    a->kl = 0.0;
    for (int64_t i = 0; i <= context + n_rows; i++)
        a->tokens[i] = hl_window_token(&a->cut, window, tokens, i);
    HL_NEED(hl_session_rewind(a->reference, 0, 0));
    HL_NEED(hl_session_rewind(a->model, 0, 0));
    if (context > 0)
        HL_NEED(feed_both(a, a->tokens, context));
    for (int64_t done = 0; done < n_rows; done += a->n_piece) {
        int64_t n = n_rows - done < a->n_piece ? n_rows - done : a->n_piece;

        a->at = context + done;
        HL_NEED(compare_both(a, a->tokens + a->at, n));
    }
    if (!isfinite(a->kl))
        return hl_fail(HL_BAD_INPUT, "logits of the window at token %lld are NaN or infinite",
                       (long long)window->begin);
    if (n_rows > 0)
        hl_ratio_add(&a->of_text, a->kl, (double)n_rows);
    return HL_OK;
}

hl_status hl_agreement_add(hl_agreement *agreement, const int64_t *tokens, int64_t n_tokens)
{
    int64_t n_windows = hl_window_count(&agreement->cut, n_tokens);

    agreement->of_text = (hl_ratio_sums){ 0 };
    for (int64_t i = 0; i < n_windows; i++) {
        hl_window window = hl_window_at(&agreement->cut, n_tokens, i);
        HL_NEED(run_window(agreement, tokens, &window));
    }
    hl_ratio_merge(&agreement->windows, &agreement->of_text);
    if (agreement->of_text.n > 0)
        hl_ratio_add(&agreement->texts, agreement->of_text.sum, agreement->of_text.count);
    return HL_OK;
}

hl_agreement_total hl_agreement_get(const hl_agreement *agreement)
{
    const hl_ratio_sums *sums = &agreement->windows;
    bool                 any  = sums->n > 0;

    return (hl_agreement_total){ .n_tokens  = (int64_t)sums->count,
                                 .n_windows = sums->n,
                                 .kl        = any ? sums->sum / sums->count : NAN,
                                 .kl_interval =
                                     hl_ratio_interval(sums, &agreement->texts, HL_SCALE_KL),
                                 .top1 = any ? (double)agreement->n_same / sums->count : NAN };
}
