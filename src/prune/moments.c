/* moments.c - mean and variance of every head's output, before the output projection.
 *
 * One pass over the windows of a text adds up each of a head's d outputs, in double precision.  The
 * variance is the sample variance, with n - 1. */
#include "base/memory.h"
#include "base/status.h"
#include "headlight/prune.h"
#include "measure/window.h"
#include "model/model.h"
#include "model/session.h"
#include "prune/gates.h"

typedef struct moment_work {
    hl_head_moments *moments; /* sums and sums of squares until the end of the text */
    hl_batch         batch;
} moment_work;

/* Adds rows of text only, not those of special tokens around a window. */
static hl_status add_rows(void *context, const hl_layer_rows *rows)
{
    moment_work     *work  = context;
    hl_head_moments *m     = work->moments;
    int64_t          each  = rows->n_heads * rows->d_head;
    int64_t          place = rows->layer * m->n_heads * m->d_head;
    const hl_batch  *batch = &work->batch;

    for (int64_t r = 0; r < rows->lengths[0]; r++) {
        int64_t row = rows->start[0] + r;

        if (row < batch->text_begin[0] || row >= batch->text_end[0] || row < batch->first_row[0])
            continue;
        for (int64_t i = 0; i < each; i++) {
            double z = (double)rows->z[r * each + i];

            m->mean[place + i] += z;
            m->variance[place + i] += z * z;
        }
        m->n_rows += rows->layer == 0;
    }
    return HL_OK;
}

static hl_status feed_windows(moment_work *work, hl_session *session, hl_windows *windows,
                              const hl_moments_options *options)
{
    hl_tap          tap   = { .context = work, .layer = add_rows, .wants = HL_WANT_Z };
    const hl_batch *batch = &work->batch;

    for (;;) {
        HL_NEED(hl_windows_next(&work->batch, windows));
        if (batch->n_windows == 0)
            return HL_OK;
        HL_NEED(hl_session_rewind(session, 0, 0));
        HL_NEED(hl_session_feed(
            session,
            &(hl_feed){ .tokens = batch->tokens, .n_tokens = batch->lengths[0], .tap = &tap }));
        if (options->progress != NULL)
            HL_NEED(options->progress(options->context,
                                      &(hl_progress){ .share    = hl_windows_progress(windows),
                                                      .n_tokens = work->moments->n_rows }));
    }
}

/* Turns sums into means and variances. */
static hl_status finish(hl_head_moments *m)
{
    double n = (double)m->n_rows;

    if (m->n_rows < 2)
        return hl_fail(HL_BAD_INPUT, "the text has %lld tokens: no variance of what heads write",
                       (long long)m->n_rows);
    for (int64_t i = 0; i < m->n_layers * m->n_heads * m->d_head; i++) {
        m->mean[i] /= n;
        m->variance[i] = (m->variance[i] - n * m->mean[i] * m->mean[i]) / (n - 1.0);
        if (m->variance[i] < 0.0) /* rounding can make it negative */
            m->variance[i] = 0.0;
    }
    return HL_OK;
}

static hl_status make(hl_head_moments **out, const hl_model *model)
{
    HL_CLOSED(hl_head_moments_free) hl_head_moments *m      = NULL;
    const hl_config                                 *config = model->config;
    size_t count = (size_t)(config->n_layers * config->n_heads * config->d_head);

    HL_NEED(HL_ALLOC_ZEROED(&m, 1));
    m->n_layers = config->n_layers;
    m->n_heads  = config->n_heads;
    m->d_head   = config->d_head;
    HL_NEED(HL_ALLOC_ZEROED(&m->mean, count));
    HL_NEED(HL_ALLOC_ZEROED(&m->variance, count));
    *out = hl_taken(&m);
    return HL_OK;
}

hl_status hl_head_moments_take(hl_head_moments **out, const hl_model *model,
                               const hl_corpus *corpus, const hl_moments_options *given)
{
    HL_CLOSED(hl_head_moments_free) hl_head_moments *moments = NULL;
    HL_CLOSED(hl_windows_close) hl_windows          *windows = NULL;
    HL_CLOSED(hl_session_close) hl_session          *session = NULL;
    hl_moments_options options = given != NULL ? *given : (hl_moments_options){ 0 };

    *out                    = NULL;
    options.windows.n_ctx   = hl_config_ctx(model->config, options.windows.n_ctx);
    options.windows.n_batch = 1;
    HL_NEED(hl_windows_open(&windows, corpus, &options.windows));
    HL_NEED(hl_session_open(&session, model,
                            &(hl_session_options){ .n_ctx     = options.windows.n_ctx,
                                                   .wants     = HL_WANT_Z,
                                                   .n_threads = options.n_threads }));
    HL_NEED(make(&moments, model));
    HL_NEED(feed_windows(&(moment_work){ .moments = moments }, session, windows, &options));
    HL_NEED(finish(moments));
    *out = hl_taken(&moments);
    return HL_OK;
}

void hl_head_moments_free(hl_head_moments *moments)
{
    if (moments == NULL)
        return;
    hl_free(moments->mean);
    hl_free(moments->variance);
    hl_free(moments);
}
