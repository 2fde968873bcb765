/* means.c - means of heads' outputs over a text, and biases made of them. */
#include "prune/means.h"

#include "base/memory.h"
#include "base/status.h"

#define MEAN_CONTEXT 1024

/* ------------------------------------------------------------------------ measuring */

typedef struct mean_sums {
    double          *sums;    /* (n_layers, n_heads, d_head) */
    int64_t          n_heads; /* the most of a layer */
    int64_t          n_rows;  /* of one layer, so far */
    hl_around_tokens around;
    int64_t         *window; /* (n_ctx) tokens */
    int64_t          n_text; /* of the text in it */
} mean_sums;

static hl_status add_rows(void *context, const hl_layer_rows *rows)
{
    mean_sums *m      = context;
    int64_t    each   = rows->n_heads * rows->d_head;
    double    *sums   = m->sums + rows->layer * m->n_heads * rows->d_head;
    int64_t    n_real = rows->lengths[0] < rows->n_rows ? rows->lengths[0] : rows->n_rows;

    for (int64_t r = 0; r < n_real; r++) {
        int64_t at = rows->start[0] + r - (int64_t)m->around.n_before; /* in the text */

        if (at < 0 || at >= m->n_text)
            continue;
        for (int64_t i = 0; i < each; i++)
            sums[i] += (double)rows->z[r * each + i];
        m->n_rows += rows->layer == 0;
    }
    return HL_OK;
}

/* The window's text with what stands around it; how many tokens. */
static int64_t make_window(mean_sums *m, const int64_t *tokens)
{
    int64_t n = 0;

    for (size_t i = 0; i < m->around.n_before; i++)
        m->window[n++] = m->around.before[i];
    for (int64_t i = 0; i < m->n_text; i++)
        m->window[n++] = tokens[i];
    for (size_t i = 0; i < m->around.n_after; i++)
        m->window[n++] = m->around.after[i];
    return n;
}

static hl_status feed_windows(mean_sums *m, hl_session *session, const int64_t *tokens,
                              int64_t n_tokens, int64_t n_ctx)
{
    hl_status status = HL_OK;
    hl_tap    tap    = { .context = m, .layer = add_rows, .wants = HL_WANT_Z };
    int64_t   room   = n_ctx - (int64_t)(m->around.n_before + m->around.n_after);

    if (room < 1)
        return hl_fail(HL_BAD_ARGUMENT,
                       "a context of %lld leaves no room for text beside the tokens around it",
                       (long long)n_ctx);
    for (int64_t at = 0; at < n_tokens && status == HL_OK; at += room) {
        m->n_text = n_tokens - at < room ? n_tokens - at : room;

        int64_t n = make_window(m, tokens + at);
        status    = hl_session_rewind(session, 0, 0);
        if (status == HL_OK)
            status = hl_session_feed(session,
                                     &(hl_feed){ .tokens = m->window, .n_tokens = n, .tap = &tap });
    }
    return status;
}

hl_status hl_head_means(float *out, const hl_model *model, const int64_t *tokens, int64_t n_tokens,
                        const hl_around_tokens *around, int32_t n_threads)
{
    hl_status          status  = HL_OK;
    const hl_config   *config  = model->config;
    hl_session        *session = NULL;
    size_t             count   = (size_t)(config->n_layers * config->n_heads * config->d_head);
    mean_sums          m       = { .n_heads = config->n_heads };
    hl_session_options options = { .n_ctx     = MEAN_CONTEXT,
                                   .wants     = HL_WANT_Z,
                                   .n_threads = n_threads };

    if (tokens == NULL || n_tokens < 1)
        return hl_fail(HL_BAD_ARGUMENT, "no tokens to take the means of heads over");
    if (config->n_ctx > 0 && config->n_ctx < MEAN_CONTEXT)
        options.n_ctx = config->n_ctx;
    if (around != NULL)
        m.around = *around;
    HL_TRY(HL_ALLOC_ZEROED(&m.sums, count));
    HL_TRY(HL_ALLOC(&m.window, (size_t)options.n_ctx));
    HL_TRY(hl_session_open(&session, model, &options));
    HL_TRY(feed_windows(&m, session, tokens, n_tokens, options.n_ctx));
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(m.sums[i] / (double)(m.n_rows > 0 ? m.n_rows : 1));

done:
    hl_session_close(session);
    hl_free(m.sums);
    hl_free(m.window);
    return status;
}

/* --------------------------------------------------------------------------- biases */

/* bias (d_model) = the sum of W_h m_h over heads that are not kept. */
static hl_status sum_layer(float *bias, float *row, const hl_model *model,
                           const hl_layer_plan *plan, int64_t layer, const float *means)
{
    const hl_param *output = hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0);
    int64_t         d_head = model->config->d_head;

    for (int64_t r = 0; r < output->weight.n_rows; r++) {
        double    sum    = 0.0;
        hl_status status = hl_weight_read_row(row, &output->weight, r);

        if (status != HL_OK)
            return status;
        for (int64_t c = 0; c < output->weight.n_columns; c++) {
            if (plan->heads[c / d_head] != HL_HEAD_KEPT)
                sum += (double)row[c] * (double)means[c];
        }
        bias[r] = (float)sum;
    }
    return HL_OK;
}

static bool loses_heads(const hl_layer_plan *plan, int64_t n_heads)
{
    for (int64_t head = 0; head < n_heads; head++) {
        if (plan->heads[head] != HL_HEAD_KEPT)
            return true;
    }
    return false;
}

hl_status hl_means_to_biases(hl_head_plan *plan, const hl_model *model, const float *means)
{
    hl_status        status = HL_OK;
    const hl_config *config = model->config;
    int64_t          each   = config->n_heads * config->d_head; /* means of a layer */
    float           *row    = NULL;

    HL_TRY(HL_ALLOC_ZEROED(&plan->biases, (size_t)(config->n_layers * config->d_model)));
    HL_TRY(HL_ALLOC(&row, (size_t)each));
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (!loses_heads(&plan->layers[i], config->layers[i].n_heads)) {
            if (hl_head_plan_adds_biases(plan, config)) /* then every layer has one */
                plan->layers[i].bias = plan->biases + i * config->d_model;
            continue;
        }
        plan->layers[i].bias = plan->biases + i * config->d_model;
        HL_TRY(sum_layer(plan->layers[i].bias, row, model, &plan->layers[i], i, means + i * each));
    }

done:
    hl_free(row);
    return status;
}
