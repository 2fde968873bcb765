/* means.c - means of heads' outputs over a text, and output biases made of them.
 *
 * A model without output biases gets four bias vectors per layer, named after the weights that they
 * belong to. */
#include "prune/means.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/session.h"

/* ------------------------------------------------------------------------ measuring */

typedef struct mean_sums {
    double          *sums;   /* (n_layers, each): heads are packed in each layer */
    int64_t          each;   /* values per layer: n_heads d_head of the model */
    int64_t          n_rows; /* rows of one layer so far */
    hl_around_tokens around;
    int64_t         *window; /* (n_ctx) tokens */
    int64_t          n_text; /* tokens of the text in the window */
} mean_sums;

static hl_status add_rows(void *context, const hl_layer_rows *rows)
{
    mean_sums *m      = context;
    int64_t    each   = rows->n_heads * rows->d_head;
    double    *sums   = m->sums + rows->layer * m->each;
    int64_t    n_real = rows->lengths[0] < rows->n_rows ? rows->lengths[0] : rows->n_rows;

    for (int64_t r = 0; r < n_real; r++) {
        int64_t at = rows->start[0] + r - (int64_t)m->around.n_before; /* position in the text */

        if (at < 0 || at >= m->n_text)
            continue;
        for (int64_t i = 0; i < each; i++)
            sums[i] += (double)rows->z[r * each + i];
        m->n_rows += rows->layer == 0;
    }
    return HL_OK;
}

/* Makes the window's text with its surrounding special tokens; returns the number of tokens. */
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
    hl_tap  tap  = { .context = m, .layer = add_rows, .wants = HL_WANT_Z };
    int64_t room = n_ctx - (int64_t)(m->around.n_before + m->around.n_after);

    if (room < 1)
        return hl_fail(HL_BAD_ARGUMENT,
                       "a context of %lld tokens leaves no room for text beside the special "
                       "tokens; use a longer --context",
                       (long long)n_ctx);
    for (int64_t at = 0; at < n_tokens; at += room) {
        m->n_text = n_tokens - at < room ? n_tokens - at : room;

        int64_t n = make_window(m, tokens + at);
        HL_NEED(hl_session_rewind(session, 0, 0));
        HL_NEED(hl_session_feed(session,
                                &(hl_feed){ .tokens = m->window, .n_tokens = n, .tap = &tap }));
    }
    return HL_OK;
}

hl_status hl_head_means(float *out, const hl_model *model, const int64_t *tokens, int64_t n_tokens,
                        const hl_around_tokens *around, int32_t n_threads)
{
    const hl_config                        *config  = model->config;
    HL_CLOSED(hl_session_close) hl_session *session = NULL;
    HL_FREED double                        *sums    = NULL;
    HL_FREED int64_t                       *window  = NULL;
    size_t             count   = (size_t)(config->n_layers * config->n_heads * config->d_head);
    mean_sums          m       = { .each = config->n_heads * config->d_head };
    hl_session_options options = { .n_ctx     = hl_config_ctx(config, 0),
                                   .wants     = HL_WANT_Z,
                                   .n_threads = n_threads };

    if (tokens == NULL || n_tokens < 1)
        return hl_fail(HL_BAD_ARGUMENT, "no tokens to compute the mean outputs of heads on");
    if (around != NULL)
        m.around = *around;
    HL_NEED(HL_ALLOC_ZEROED(&sums, count));
    HL_NEED(HL_ALLOC(&window, (size_t)options.n_ctx));
    m.sums   = sums;
    m.window = window;
    HL_NEED(hl_session_open(&session, model, &options));
    HL_NEED(feed_windows(&m, session, tokens, n_tokens, options.n_ctx));
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(sums[i] / (double)(m.n_rows > 0 ? m.n_rows : 1));
    return HL_OK;
}

/* --------------------------------------------------------------------------- biases */

/* Computes bias (d_model) = the sum of W_h m_h over the heads that are not kept. */
static hl_status sum_layer(float *bias, float *row, const hl_model *model,
                           const hl_layer_plan *plan, int64_t layer, const float *means)
{
    const hl_param *output = hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0);
    int64_t         d_head = model->config->layers[layer].d_head;

    for (int64_t r = 0; r < output->weight.n_rows; r++) {
        double sum = 0.0;

        HL_NEED(hl_weight_read_row(row, &output->weight, r));
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
    const hl_config *config = model->config;
    int64_t          each   = config->n_heads * config->d_head; /* means per layer */
    HL_FREED float  *row    = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&plan->biases, (size_t)(config->n_layers * config->d_model)));
    HL_NEED(HL_ALLOC(&row, (size_t)each));
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (!loses_heads(&plan->layers[i], config->layers[i].n_heads)) {
            if (hl_head_plan_adds_biases(plan, config)) /* all layers get a bias, this one zeros */
                plan->layers[i].bias = plan->biases + i * config->d_model;
            continue;
        }
        plan->layers[i].bias = plan->biases + i * config->d_model;
        HL_NEED(sum_layer(plan->layers[i].bias, row, model, &plan->layers[i], i, means + i * each));
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- new biases */

enum { N_ROLES = 4 };

static const hl_role roles[N_ROLES] = { HL_ROLE_ATTN_Q, HL_ROLE_ATTN_K, HL_ROLE_ATTN_V,
                                        HL_ROLE_ATTN_O };

static bool is_listed(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

hl_status hl_new_biases_check(const hl_config *config, hl_prune_form form)
{
    /* attention_bias adds biases to q, k, v and the output; in GGUF, attn_output.bias is read. */
    static const char *const folders[] = { "llama",   "qwen3",   "qwen3_moe", "granite",
                                           "smollm3", "gemma",   "gemma2",    "gemma3",
                                           "cohere",  "cohere2", "olmo2" };
    static const char *const files[]   = { "llama", "mistral", "deci" };
    bool                     to_file   = form == HL_PRUNE_GGUF;

    if ((config->biases & HL_BIAS_O) != 0)
        return HL_OK;
    if ((config->biases & HL_BIAS_QKV) == 0 &&
        (to_file ? is_listed(files, sizeof files / sizeof *files, config->family)
                 : is_listed(folders, sizeof folders / sizeof *folders, config->family)))
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED,
                   "--mean cannot be used: a %s has no output bias, and %s would not load one",
                   config->family, to_file ? "llama.cpp" : "transformers");
}

/* ---------------------------------------------------------- new biases: tensors */

/* Makes "...o_proj.bias" from "...o_proj.weight". */
static hl_status name_bias(char **out, const char *weight)
{
    size_t stem = strlen(weight);
    size_t room = stem + 8;

    if (stem > 7 && strcmp(weight + stem - 7, ".weight") == 0)
        stem -= 7;
    HL_NEED(HL_ALLOC(out, room));
    snprintf(*out, room, "%.*s.bias", (int)stem, weight);
    return HL_OK;
}

static int64_t length_of(const hl_config *config, const hl_layer_plan *plan, hl_role role,
                         int64_t layer)
{
    if (role == HL_ROLE_ATTN_O)
        return config->d_model;
    return (role == HL_ROLE_ATTN_Q ? plan->n_heads : plan->n_kv_heads) *
           config->layers[layer].d_head;
}

static hl_status add_bias(hl_new_biases *biases, const hl_model *model, const hl_layer_plan *plan,
                          int64_t layer, hl_role role)
{
    const hl_param   *param  = hl_weights_get(model->weights, role, layer, 0);
    char             *name   = NULL;
    HL_FREED uint8_t *data   = NULL;
    int64_t           length = length_of(model->config, plan, role, layer);

    if (param == NULL) /* the layer has no attention */
        return HL_OK;
    hl_tensor tensor = { .dtype = param->weight.tensor->dtype, .n_dims = 1, .shape = { length } };
    HL_NEED(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    HL_NEED(HL_ALLOC_ZEROED(&data, tensor.n_bytes));
    if (role == HL_ROLE_ATTN_O)
        HL_NEED(hl_dtype_from_f32(data, tensor.dtype, plan->bias, (size_t)length));
    HL_NEED(name_bias(&name, param->weight.tensor->name));
    tensor.name                  = name;
    tensor.data                  = hl_taken(&data);
    biases->tensors[biases->n++] = tensor;
    return HL_OK;
}

hl_status hl_new_biases_make(hl_new_biases *out, const hl_model *model, const hl_head_plan *plan)
{
    int64_t n_layers = hl_head_plan_adds_biases(plan, model->config) ? plan->n_layers : 0;

    HL_NEED(HL_ALLOC_ZEROED(&out->tensors, (size_t)n_layers * N_ROLES));
    for (int64_t i = 0; i < n_layers * N_ROLES; i++)
        HL_NEED(add_bias(out, model, &plan->layers[i / N_ROLES], i / N_ROLES, roles[i % N_ROLES]));
    return HL_OK;
}

void hl_new_biases_free(hl_new_biases *biases)
{
    for (size_t i = 0; i < biases->n; i++) {
        hl_free((void *)biases->tensors[i].name);
        hl_free((void *)biases->tensors[i].data);
    }
    hl_free(biases->tensors);
}
