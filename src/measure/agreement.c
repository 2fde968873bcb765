/* agreement.c - two models' predictions of the same tokens, row by row.
 *
 * Logits of a whole window are too many to keep, so a window goes through both models a piece
 * at a time: the reference's logits of the piece are kept, the model's come and are compared.
 *
 *     KL(p || q) = sum p (ln p - ln q),   p the reference's, q the model's
 *
 * in double, from the logits and their log-sum-exp. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "measure/perplexity.h"
#include "model/logits.h"
#include "model/model.h"

enum { MAX_PIECE = 512, MAX_KEPT = 32 << 20 }; /* rows; logits */

/* Sums over windows: of KL, of its squares and of products with counts, for the error of a
 * ratio. */
typedef struct agreement_sums {
    int64_t n_windows;
    double  kl;
    double  count;
    double  squares;
    double  cross;
    double  counts2;
    int64_t n_same; /* rows */
} agreement_sums;

struct hl_agreement {
    hl_agreement_options options; /* complete */
    hl_session          *model;
    hl_session          *reference;
    int64_t              d_vocab;
    int64_t              n_piece;
    float               *kept;    /* (n_piece, d_vocab) the reference's logits */
    double              *kl;      /* (n_piece) */
    bool                *is_same; /* (n_piece) */
    int64_t              at;      /* position of the piece's first row */
    int                  n_threads;
    agreement_sums       sums;
};

/* -------------------------------------------------------------- open and close */

static hl_status check_models(const hl_model *model, const hl_model *reference)
{
    if (model == NULL || reference == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "agreement: a model is NULL");
    if (model->config->is_encoder || reference->config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder, which predicts no next token",
                       model->config->is_encoder ? model->path : reference->path);
    if (model->config->d_vocab != reference->config->d_vocab)
        return hl_fail(HL_BAD_INPUT,
                       "%s knows %lld tokens, %s %lld: their predictions differ in kind",
                       model->path, (long long)model->config->d_vocab, reference->path,
                       (long long)reference->config->d_vocab);
    return HL_OK;
}

static hl_status open_session(hl_session **out, const hl_model *model, const hl_agreement *a)
{
    return hl_session_open(out, model,
                           &(hl_session_options){ .n_ctx     = a->options.n_ctx,
                                                  .n_chunk   = a->n_piece,
                                                  .wants     = HL_WANT_LOGITS,
                                                  .n_threads = a->options.n_threads });
}

/* As hl_perplexity's: the smaller of the two contexts where none is given. */
static hl_status complete_options(hl_agreement *a, const hl_model *model, const hl_model *reference)
{
    hl_agreement_options *options = &a->options;
    int64_t               most    = 4096;

    if (model->config->n_ctx > 0 && model->config->n_ctx < most)
        most = model->config->n_ctx;
    if (reference->config->n_ctx > 0 && reference->config->n_ctx < most)
        most = reference->config->n_ctx;
    options->n_ctx  = options->n_ctx != 0 ? options->n_ctx : most;
    options->stride = options->stride != 0 ? options->stride : options->n_ctx;
    if (options->n_ctx < 2 || options->stride < 1 || options->stride > options->n_ctx)
        return hl_fail(HL_BAD_ARGUMENT, "agreement: windows of %lld tokens, stride %lld",
                       (long long)options->n_ctx, (long long)options->stride);
    return HL_OK;
}

hl_status hl_agreement_open(hl_agreement **out, const hl_model *model, const hl_model *reference,
                            const hl_agreement_options *options)
{
    hl_status     status = HL_OK;
    hl_agreement *a      = NULL;

    *out = NULL;
    HL_TRY(check_models(model, reference));
    HL_TRY(HL_ALLOC_ZEROED(&a, 1));
    if (options != NULL)
        a->options = *options;
    HL_TRY(complete_options(a, model, reference));
    a->d_vocab   = model->config->d_vocab;
    a->n_threads = hl_threads(a->options.n_threads);
    a->n_piece   = MAX_KEPT / a->d_vocab < MAX_PIECE ? MAX_KEPT / a->d_vocab : MAX_PIECE;
    a->n_piece   = a->n_piece < 1 ? 1 : a->n_piece;
    a->n_piece   = a->n_piece < a->options.n_ctx ? a->n_piece : a->options.n_ctx;
    HL_TRY(HL_ALLOC(&a->kept, (size_t)(a->n_piece * a->d_vocab)));
    HL_TRY(HL_ALLOC(&a->kl, (size_t)a->n_piece));
    HL_TRY(HL_ALLOC(&a->is_same, (size_t)a->n_piece));
    HL_TRY(open_session(&a->model, model, a));
    HL_TRY(open_session(&a->reference, reference, a));
    *out = a;
    a    = NULL;

done:
    hl_agreement_close(a);
    return status;
}

void hl_agreement_close(hl_agreement *agreement)
{
    if (agreement == NULL)
        return;
    hl_session_close(agreement->model);
    hl_session_close(agreement->reference);
    hl_free(agreement->kept);
    hl_free(agreement->kl);
    hl_free(agreement->is_same);
    hl_free(agreement);
}

/* ------------------------------------------------------------------- comparing */

static double divergence(const float *p, const float *q, int64_t n)
{
    double p_lse = hl_logits_lse(p, n);
    double q_lse = hl_logits_lse(q, n);
    double sum   = 0.0;

    for (int64_t i = 0; i < n; i++) {
        double log_p = (double)p[i] - p_lse;
        /* A token that cannot be adds nothing; 0 * -inf would be NaN. */
        if (p[i] != -INFINITY)
            sum += exp(log_p) * (log_p - ((double)q[i] - q_lse));
    }
    return sum > 0.0 || isnan(sum) ? sum : 0.0;
}

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    hl_agreement *a = context;

    memcpy(a->kept + (rows->start - a->at) * a->d_vocab, rows->logits,
           (size_t)(rows->n_rows * a->d_vocab) * sizeof *a->kept);
    return HL_OK;
}

/* A short loop is over before another thread has woken. */
static int threads_for(const hl_agreement *a, const hl_final_rows *rows)
{
    return rows->n_rows * a->d_vocab < 16384 ? 1 : a->n_threads;
}

static hl_status compare_logits(void *context, const hl_final_rows *rows)
{
    hl_agreement *a     = context;
    int64_t       first = rows->start - a->at;

#pragma omp parallel for num_threads(threads_for(a, rows))
    for (int64_t row = 0; row < rows->n_rows; row++) {
        const float *p = a->kept + (first + row) * a->d_vocab;
        const float *q = rows->logits + row * a->d_vocab;

        a->kl[first + row]      = divergence(p, q, a->d_vocab);
        a->is_same[first + row] = hl_logits_top(p, a->d_vocab) == hl_logits_top(q, a->d_vocab);
    }
    return HL_OK;
}

/* Tokens [from, from + n) of the window through both; logits where they count. */
static hl_status feed_both(hl_agreement *a, const int64_t *tokens, int64_t n, bool counts)
{
    hl_status status    = HL_OK;
    hl_tap    keep      = { .context = a, .final = keep_logits, .wants = HL_WANT_LOGITS };
    hl_tap    compare   = { .context = a, .final = compare_logits, .wants = HL_WANT_LOGITS };
    hl_feed   reference = { .tokens = tokens, .n_tokens = n, .tap = counts ? &keep : NULL };
    hl_feed   model     = { .tokens = tokens, .n_tokens = n, .tap = counts ? &compare : NULL };

    HL_TRY(hl_session_feed(a->reference, &reference));
    HL_TRY(hl_session_feed(a->model, &model));

done:
    return status;
}

/* --------------------------------------------------------------------- windows */

static void add_window(agreement_sums *sums, double kl, double count)
{
    sums->n_windows++;
    sums->kl += kl;
    sums->count += count;
    sums->squares += kl * kl;
    sums->cross += kl * count;
    sums->counts2 += count * count;
}

/* The rows that predict a scored token: [first - 1, end - 1). */
static hl_status run_window(hl_agreement *a, const int64_t *tokens, const hl_window *window)
{
    hl_status status  = HL_OK;
    int64_t   context = window->first - 1 - window->begin;
    int64_t   n_rows  = window->end - window->first;
    double    kl      = 0.0;

    HL_TRY(hl_session_rewind(a->reference, 0, 0));
    HL_TRY(hl_session_rewind(a->model, 0, 0));
    if (context > 0)
        HL_TRY(feed_both(a, tokens + window->begin, context, false));
    for (int64_t done = 0; done < n_rows; done += a->n_piece) {
        int64_t n = n_rows - done < a->n_piece ? n_rows - done : a->n_piece;

        a->at = context + done;
        HL_TRY(feed_both(a, tokens + window->begin + a->at, n, true));
        for (int64_t i = 0; i < n; i++) {
            kl += a->kl[i];
            a->sums.n_same += a->is_same[i];
        }
    }
    if (isnan(kl))
        return hl_fail(HL_BAD_INPUT, "logits of the window at token %lld are NaN",
                       (long long)window->begin);
    if (n_rows > 0)
        add_window(&a->sums, kl, (double)n_rows);

done:
    return status;
}

hl_status hl_agreement_add(hl_agreement *agreement, const int64_t *tokens, int64_t n_tokens)
{
    const hl_agreement_options *options = &agreement->options;
    int64_t n_windows = hl_window_count(n_tokens, options->n_ctx, options->stride);

    for (int64_t i = 0; i < n_windows; i++) {
        hl_window window = hl_window_at(n_tokens, options->n_ctx, options->stride, i);
        hl_status status = run_window(agreement, tokens, &window);
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

hl_agreement_total hl_agreement_get(const hl_agreement *agreement)
{
    const agreement_sums *sums  = &agreement->sums;
    double                n     = (double)sums->n_windows;
    hl_agreement_total    total = { .n_tokens  = (int64_t)sums->count,
                                    .n_windows = sums->n_windows,
                                    .kl        = NAN,
                                    .kl_error  = NAN,
                                    .top1      = NAN };

    if (sums->n_windows == 0)
        return total;
    total.kl   = sums->kl / sums->count;
    total.top1 = (double)sums->n_same / sums->count;
    if (sums->n_windows > 1) {
        double residual =
            sums->squares - 2.0 * total.kl * sums->cross + total.kl * total.kl * sums->counts2;
        total.kl_error = sqrt(n / (n - 1.0) * fmax(residual, 0.0)) / sums->count;
    }
    return total;
}
