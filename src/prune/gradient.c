/* gradient.c - gradients of gates over a text, window by window. */
#include <math.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/prune.h"
#include "measure/window.h"
#include "model/backward.h"
#include "model/model.h"
#include "prune/gates.h"
#include "prune/repair.h"

typedef struct gradient_work {
    hl_gradient_options options; /* with defaults filled in */
    hl_windows         *windows;
    hl_backward        *backward;
    double             *one;                 /* (n_layers, n_heads) of one window */
    size_t              n_each, n_documents; /* allocated */
    hl_gradients       *sums;
    hl_squares *const  *outputs; /* (n_layers) or NULL */
    float              *rows;    /* (n_ctx, d_model) */
    int64_t             n_rows;  /* of the current window */
    int64_t             n_scored;
} gradient_work;

static hl_status complete_options(hl_gradient_options *options, const hl_model *model)
{
    hl_window_options *windows = &options->windows;

    if (windows->stride != 0 || windows->n_batch != 0)
        return hl_fail(
            HL_BAD_ARGUMENT,
            "gradients: stride %lld and n_batch %lld, wanted 0: windows are worked on side "
            "by side, one at a time",
            (long long)windows->stride, (long long)windows->n_batch);
    windows->n_ctx   = hl_config_ctx(model->config, windows->n_ctx);
    windows->n_batch = 1;
    return HL_OK;
}

static hl_status make_sums(hl_gradients **out, const hl_model *model)
{
    HL_CLOSED(hl_gradients_free) hl_gradients *sums = NULL;
    size_t count = (size_t)(model->config->n_layers * model->config->n_heads);

    HL_NEED(HL_ALLOC_ZEROED(&sums, 1));
    sums->n_layers = model->config->n_layers;
    sums->n_heads  = model->config->n_heads;
    HL_NEED(HL_ALLOC_ZEROED(&sums->magnitude, count));
    HL_NEED(HL_ALLOC_ZEROED(&sums->mean, count));
    HL_NEED(HL_ALLOC_ZEROED(&sums->weight_norms, 3 * count));
    *out = hl_taken(&sums);
    return HL_OK;
}

void hl_gradients_free(hl_gradients *gradients)
{
    if (gradients == NULL)
        return;
    hl_free(gradients->magnitude);
    hl_free(gradients->mean);
    hl_free(gradients->weight_norms);
    hl_free(gradients->each);
    hl_free(gradients->documents);
    hl_free(gradients);
}

/* Adds up products of the gradients of the sum of the window's losses: those of the mean would be smaller
 * in longer windows. */
static hl_status add_outputs(void *context, int64_t layer, const float *gradient)
{
    gradient_work *work  = context;
    int64_t        count = work->n_rows * work->backward->config->d_model;

    for (int64_t i = 0; i < count; i++)
        work->rows[i] = gradient[i] * (float)work->n_scored;
    hl_squares_add(work->outputs[layer], work->rows, NULL, NULL, NULL, work->n_rows, 1.0);
    return HL_OK;
}

/* Returns the first token of the text that has a token before it. */
static int64_t first_scored(const hl_batch *batch)
{
    return batch->text_begin[0] > 0 ? batch->text_begin[0] : 1;
}

/* Leaves out tokens after the text: no token of the text sees them. */
static hl_status add_window(gradient_work *work, const hl_batch *batch)
{
    hl_gradients *sums  = work->sums;
    double        nll   = 0.0;
    int64_t       first = first_scored(batch);

    work->n_rows   = batch->text_end[0];
    work->n_scored = batch->text_end[0] - first;
    HL_NEED(
        hl_backward_run(work->one, &nll, work->backward, batch->tokens, batch->text_end[0], first));
    size_t size = (size_t)(sums->n_layers * sums->n_heads);
    size_t at   = (size_t)sums->n_windows;
    HL_NEED(HL_GROW(&sums->each, &work->n_each, at * size, (at + 1) * size));
    HL_NEED(HL_GROW(&sums->documents, &work->n_documents, at, at + 1));
    sums->documents[at] = batch->documents[0];
    for (int64_t i = 0; i < sums->n_layers * sums->n_heads; i++) {
        if (!isfinite(work->one[i]))
            return hl_fail(HL_BAD_INPUT, "the gradient of L%lldH%lld is NaN",
                           (long long)(i / sums->n_heads), (long long)(i % sums->n_heads));
        sums->mean[i] += work->one[i];
        sums->magnitude[i] += fabs(work->one[i]);
        sums->each[at * size + (size_t)i] = fabs(work->one[i]);
    }
    for (int64_t i = 0; i < 3 * sums->n_layers * sums->n_heads; i++)
        sums->weight_norms[i] += work->backward->weight_norms[i];
    sums->nll += nll;
    sums->n_windows++;
    sums->n_tokens += batch->text_end[0] - first;
    return HL_OK;
}

static hl_status report(const gradient_work *work)
{
    hl_progress progress = { .share     = hl_windows_progress(work->windows),
                             .n_tokens  = work->sums->n_tokens,
                             .n_windows = work->sums->n_windows };

    if (work->options.progress == NULL)
        return HL_OK;
    return work->options.progress(work->options.context, &progress);
}

/* Skips windows that predict nothing. */
static hl_status run(gradient_work *work)
{
    hl_batch batch;

    for (;;) {
        HL_NEED(hl_windows_next(&batch, work->windows));
        if (batch.n_windows == 0)
            break;
        if (batch.text_end[0] > first_scored(&batch))
            HL_NEED(add_window(work, &batch));
        HL_NEED(report(work));
    }
    if (work->sums->n_windows == 0)
        return hl_fail(HL_BAD_INPUT, "the text is too short: no window has two tokens");
    for (int64_t i = 0; i < work->sums->n_layers * work->sums->n_heads; i++) {
        work->sums->mean[i] /= (double)work->sums->n_windows;
        work->sums->magnitude[i] /= (double)work->sums->n_windows;
    }
    for (int64_t i = 0; i < 3 * work->sums->n_layers * work->sums->n_heads; i++)
        work->sums->weight_norms[i] /= (double)work->sums->n_windows;
    work->sums->nll /= (double)work->sums->n_windows;
    return HL_OK;
}

static void free_work(gradient_work *work)
{
    hl_gradients_free(work->sums);
    hl_free(work->one);
    hl_free(work->rows);
    hl_windows_close(work->windows);
    hl_backward_close(work->backward);
}

hl_status hl_output_gradients(hl_gradients **out, hl_squares *const *outputs, const hl_model *model,
                              const hl_corpus *corpus, const hl_gradient_options *options)
{
    HL_SCOPED(free_work) gradient_work work = { .outputs = outputs };
    size_t count = (size_t)(model->config->n_layers * model->config->n_heads);

    *out = NULL;
    if (options != NULL)
        work.options = *options;
    HL_NEED(complete_options(&work.options, model));
    HL_NEED(hl_backward_open(&work.backward, model, work.options.windows.n_ctx,
                             work.options.n_threads));
    HL_NEED(hl_windows_open(&work.windows, corpus, &work.options.windows));
    HL_NEED(HL_ALLOC(&work.one, count));
    HL_NEED(make_sums(&work.sums, model));
    if (outputs != NULL) {
        HL_NEED(hl_alloc((void **)&work.rows, (size_t)work.options.windows.n_ctx,
                         (size_t)model->config->d_model * sizeof *work.rows));
        work.backward->outputs         = add_outputs;
        work.backward->outputs_context = &work;
    }
    HL_NEED(run(&work));
    *out = hl_taken(&work.sums);
    return HL_OK;
}

hl_status hl_gate_gradients(hl_gradients **out, const hl_model *model, const hl_corpus *corpus,
                            const hl_gradient_options *options)
{
    return hl_output_gradients(out, NULL, model, corpus, options);
}
