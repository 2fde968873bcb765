/* backward.c - the loss, and blocks in reverse.
 *
 * A half of a block is x' = close(x, B(n(x))), where B is a branch and the norms are placed as in
 * config.h.  b->grad holds the gradient of x' before a half is processed, and that of x after. */
#include "model/backward.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/logits.h"
#include "model/model.h"

/* ---------------------------------------------------------------------- memory */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The widest hidden layer of any MLP, and the widest input of any weight. */
static void find_widths(int64_t *hidden, int64_t *widest, const hl_config *config)
{
    *hidden = config->d_shared;
    for (int64_t layer = 0; layer < config->n_layers; layer++)
        *hidden = most(*hidden, config->layers[layer].d_mlp);
    *widest = most(most(config->d_model, config->d_embed),
                   most(*hidden, config->n_heads * config->d_head));
}

typedef struct room {
    float **pointer;
    int64_t rows;
    int64_t width;
} room;

static bool shares_keys(const hl_config *config)
{
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        if (config->layers[layer].kv_layer != layer)
            return true;
    }
    return false;
}

static hl_status allocate(hl_backward *b)
{
    const hl_config *config  = b->config;
    int64_t          n       = b->n_ctx;
    int64_t          d       = config->d_model;
    int64_t          queries = config->n_heads * config->d_head;
    int64_t          keys    = config->n_kv_heads * config->d_head;
    int64_t          experts = most(config->n_experts, 1);
    int64_t          narrow  = most(d, config->d_embed);
    int64_t          hidden;
    int64_t          widest;
    find_widths(&hidden, &widest, config);
    const room rooms[] = {
        { &b->stream, config->n_layers * n, d },
        { &b->middle, n, d },
        { &b->grad, n, d },
        { &b->input, n, d },
        { &b->raw, n, d },
        { &b->d_branch, n, d },
        { &b->d_input, n, d },
        { &b->part, n, d },
        { &b->raw_q, n, queries },
        { &b->raw_k, n, keys },
        { &b->d_z, n, queries },
        { &b->d_q, n, queries },
        { &b->d_k, n, keys },
        { &b->d_v, n, keys },
        { &b->keys, 2 * n, keys },
        { &b->sine, n, config->d_head },
        { &b->turned, b->n_threads * config->d_head, n },
        { &b->d_weight, b->n_threads * config->d_head, d },
        { &b->gate, n, hidden },
        { &b->up, n, hidden },
        { &b->d_gate, n, hidden },
        { &b->d_up, n, hidden },
        { &b->rows_x, n, d },
        { &b->rows_y, n, d },
        { &b->rows_dy, n, d },
        { &b->rows_dx, n, d },
        { &b->router, n, experts },
        { &b->d_share, n, experts },
        { &b->d_logits, HL_LOGIT_ROWS, config->d_vocab },
        { &b->d_hidden, HL_LOGIT_ROWS, narrow },
        { &b->d_narrow, HL_LOGIT_ROWS, narrow },
        { &b->panel, HL_BACKWARD_PANEL, widest },
        { &b->partial, most(n, HL_LOGIT_ROWS), widest },
    };

    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        size_t count = (size_t)rooms[i].rows;
        HL_NEED(hl_alloc_zeroed((void **)rooms[i].pointer, count,
                                (size_t)rooms[i].width * sizeof(float)));
    }
    if (shares_keys(config))
        HL_NEED(hl_alloc_zeroed((void **)&b->later, (size_t)(2 * config->n_layers * n),
                                (size_t)keys * sizeof(float)));
    HL_NEED(HL_ALLOC_ZEROED(&b->weight_norms, (size_t)(3 * config->n_layers * config->n_heads)));
    return HL_ALLOC_ZEROED(&b->members, (size_t)n);
}

hl_status hl_backward_check(const hl_model *model)
{
    if (model->config->is_encoder)
        return hl_fail(HL_UNSUPPORTED,
                       "%s is an encoder (%s): it predicts no next token, so there "
                       "is no loss to take gradients of",
                       model->path, model->config->family);
    if (model->config->d_ple > 0 || model->config->layers_scaled || model->config->experts_apart)
        return hl_fail(
            HL_UNSUPPORTED,
            "%s: the layers of a %s have inputs or scales of their own, and gradients are "
            "computed for models of attention and MLPs alone",
            model->path, model->config->family);
    if (model->config->latent.d_latent > 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: a %s has latent attention, and gradients are computed for models that "
                       "project keys and values of each head",
                       model->path, model->config->family);
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        if (model->config->layers[layer].mixer != HL_MIXER_NONE)
            return hl_fail(HL_UNSUPPORTED,
                           "%s: layer %lld has a %s, and gradients are computed through attention "
                           "and MLPs alone: rank by another measure, such as output-norm",
                           model->path, (long long)layer,
                           hl_mixer_name(model->config->layers[layer].mixer));
    }
    return HL_OK;
}

hl_status hl_backward_open(hl_backward **out, const hl_model *model, int64_t n_ctx,
                           int32_t n_threads)
{
    HL_CLOSED(hl_backward_close) hl_backward *b = NULL;

    hl_session_options options = { .n_ctx     = n_ctx,
                                   .n_chunk   = n_ctx,
                                   .wants     = HL_WANT_RESID_PRE | HL_WANT_LOGITS,
                                   .n_threads = n_threads,
                                   .device    = "cpu" };

    *out = NULL;
    HL_NEED(hl_backward_check(model));
    HL_NEED(HL_ALLOC_ZEROED(&b, 1));
    b->config = model->config;
    HL_NEED(hl_session_open(&b->session, model, &options));
    b->n_ctx     = b->session->options.n_ctx;
    b->n_threads = hl_threads(n_threads);
    HL_NEED(allocate(b));
    *out = hl_taken(&b);
    return HL_OK;
}

void hl_backward_close(hl_backward *b)
{
    if (b == NULL)
        return;
    float *blocks[] = { b->stream,  b->middle,  b->grad,     b->input,    b->raw,      b->d_branch,
                        b->d_input, b->part,    b->raw_q,    b->raw_k,    b->d_z,      b->d_q,
                        b->d_k,     b->d_v,     b->keys,     b->sine,     b->gate,     b->up,
                        b->d_gate,  b->d_up,    b->rows_x,   b->rows_y,   b->rows_dy,  b->rows_dx,
                        b->router,  b->d_share, b->d_logits, b->d_hidden, b->d_narrow, b->panel,
                        b->partial, b->turned,  b->d_weight, b->later };

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        hl_free(blocks[i]);
    hl_free(b->members);
    hl_free(b->weight_norms);
    hl_session_close(b->session);
    hl_free(b);
}

/* ------------------------------------------------------------------------ loss */

/* d_logits of the row before token `at`: (p - [token]) / n for n scored tokens, through the
 * soft-cap and the scale of the logits; 0 if the token is not scored. */
static void back_row(hl_backward *b, float *out, const float *logits, int64_t at)
{
    double  lse   = hl_logits_lse(logits, b->config->d_vocab);
    double  share = 1.0 / (double)(b->n_tokens - b->first);
    double  cap   = b->config->logit_softcap;
    int64_t token = b->tokens[at];

    if (at < b->first) {
        memset(out, 0, (size_t)b->config->d_vocab * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < b->config->d_vocab; i++) {
        double logit = (double)logits[i];
        double slope = (exp(logit - lse) - (i == token ? 1.0 : 0.0)) * share;

        if (cap > 0.0)
            slope *= 1.0 - (logit / cap) * (logit / cap);
        out[i] = (float)(slope * b->config->logit_scale);
    }
}

/* Computes d_hidden (n, D) from d_logits. */
static hl_status back_head(hl_backward *b, int64_t n)
{
    const hl_session_param *out  = hl_session_param_of(b->session, HL_ROLE_EMBED_OUT, -1, 0);
    const hl_session_param *head = hl_session_param_of(b->session, HL_ROLE_LM_HEAD, -1, 0);

    HL_NEED(hl_backward_linear(b, out != NULL ? b->d_narrow : b->d_hidden, b->d_logits, n, head,
                               false));
    if (out != NULL)
        HL_NEED(hl_backward_linear(b, b->d_hidden, b->d_narrow, n, out, false));
    return HL_OK;
}

/* The context of the threads. */
typedef struct loss_rows {
    hl_backward         *b;
    const hl_final_rows *rows;
} loss_rows;

static void back_some(void *context, int64_t first, int64_t end, int member)
{
    const loss_rows *part    = context;
    hl_backward     *b       = part->b;
    int64_t          d_vocab = b->config->d_vocab;
    (void)member;

    for (int64_t row = first; row < end; row++)
        back_row(b, b->d_logits + row * d_vocab, part->rows->logits + row * d_vocab,
                 part->rows->start + row + 1);
}

/* Called at the end of the forward pass, where the logits exist: the backward pass starts here. */
static hl_status back_loss(void *context, const hl_final_rows *rows)
{
    hl_backward *b       = context;
    int64_t      d_model = b->config->d_model;
    int64_t      d_vocab = b->config->d_vocab;
    int64_t      last    = b->n_tokens - 1 - rows->start; /* the last row predicts nothing */
    int64_t      n       = rows->n_rows < last ? rows->n_rows : last;
    hl_norm      norm    = hl_backward_norm_of(b, HL_ROLE_FINAL_NORM, -1, 0);

    hl_parallel(b->n_threads, n, 0, back_some, &(loss_rows){ b, rows });
    for (int64_t row = b->first - 1 > rows->start ? b->first - 1 - rows->start : 0; row < n; row++)
        b->nll += hl_logits_lse(rows->logits + row * d_vocab, d_vocab) -
                  (double)rows->logits[row * d_vocab + b->tokens[rows->start + row + 1]];
    hl_status status = back_head(b, n);
    for (int64_t row = 0; row < n && status == HL_OK; row++) {
        int64_t at = (rows->start + row) * d_model;

        if (b->config->no_final_norm)
            memcpy(b->grad + at, b->d_hidden + row * d_model, (size_t)d_model * sizeof *b->grad);
        else
            hl_backward_norm(b->grad + at, b->d_hidden + row * d_model,
                             b->session->device->rows.x + at, d_model, &norm);
    }
    return status;
}

static hl_status keep_stream(void *context, const hl_layer_rows *rows)
{
    hl_backward *b     = context;
    size_t       count = (size_t)(b->n_tokens * b->config->d_model);

    memcpy(b->stream + (size_t)rows->layer * count, rows->resid_pre, count * sizeof *b->stream);
    return HL_OK;
}

/* ---------------------------------------------------------------------- halves */

static int64_t stream_count(const hl_backward *b)
{
    return b->n_tokens * b->config->d_model;
}

/* out = a + scale * x; out may be a. */
static void add_scaled(const hl_backward *b, float *out, const float *a, const float *x,
                       float scale)
{
    for (int64_t i = 0; i < stream_count(b); i++)
        out[i] = a[i] + scale * x[i];
}

/* The output of a half's branch, in the session's memory. */
static const float *given_by(const hl_backward *b, const hl_half *half)
{
    const hl_device_rows *rows = &b->session->device->rows;

    return half->branch == HL_BRANCH_ATTENTION ? rows->branch : rows->mlp;
}

static hl_status run_norm(const hl_backward *b, float *out, const float *x, int64_t layer,
                          hl_role role)
{
    const hl_device_session *d = b->session->device;

    return hl_device_norm_rows(b->session, out, x, HL_DTYPE_F32,
                               hl_device_norm_role(&d->weights.layers[layer], role),
                               &d->inputs.places);
}

/* Sets b->input to n(x), or to x without a norm. */
static hl_status read_input(hl_backward *b, const float *x, int64_t layer, const hl_half *half)
{
    if (half->reads_norm)
        return run_norm(b, b->input, x, layer, half->norm);
    memcpy(b->input, x, (size_t)stream_count(b) * sizeof *x);
    return HL_OK;
}

/* Sets b->input and b->raw: the branch's input and output in this half. */
static hl_status run_half(hl_backward *b, const float *x, int64_t layer, const hl_half *half)
{
    hl_device_session *d       = b->session->device;
    int64_t            n_heads = b->config->layers[layer].n_heads;

    HL_NEED(read_input(b, x, layer, half));
    if (half->branch == HL_BRANCH_ATTENTION)
        d->watch.statistics =
            hl_device_place_statistics(d->lanes[0].statistics.device, b->n_tokens * n_heads, 0);
    HL_NEED(hl_block_branch(b->session, &b->chunk, layer, half->branch, b->input));
    memcpy(b->raw, given_by(b, half), (size_t)stream_count(b) * sizeof *b->raw);
    return HL_OK;
}

/* out = x', from x, b->input and b->raw; overwrites b->part. */
static hl_status close_half(hl_backward *b, float *out, const float *x, int64_t layer,
                            const hl_half *half)
{
    const float *given = b->raw;

    if (half->post == HL_POST_BRANCH) {
        HL_NEED(run_norm(b, b->part, b->raw, layer, half->post_role));
        given = b->part;
    }
    add_scaled(b, out, b->config->residual_normed ? b->input : x, given,
               (float)b->config->residual_scale);
    return half->post == HL_POST_SUM ? run_norm(b, out, out, layer, half->post_role) : HL_OK;
}

/* Computes d_branch from grad, according to the places of the norms. */
static void back_close(hl_backward *b, const float *x, int64_t layer, const hl_half *half)
{
    hl_norm post  = hl_backward_norm_of(b, half->post_role, layer, 0);
    float   scale = (float)b->config->residual_scale;

    if (half->post == HL_POST_SUM) {
        add_scaled(b, b->part, x, b->raw, scale);
        hl_backward_norms(b, b->grad, b->grad, b->part, &post);
    }
    for (int64_t i = 0; i < stream_count(b); i++)
        b->d_branch[i] = scale * b->grad[i];
    if (half->post == HL_POST_BRANCH)
        hl_backward_norms(b, b->d_branch, b->d_branch, b->raw, &post);
}

static hl_status back_branch(hl_backward *b, float *dgates, int64_t layer, const hl_half *half)
{
    if (half->branch != HL_BRANCH_ATTENTION)
        return hl_backward_mlp(b, layer);
    if (b->outputs != NULL)
        HL_NEED(b->outputs(b->outputs_context, layer, b->d_branch));
    return hl_backward_attention(b, dgates, layer);
}

/* Adds d_input to out, through the norm before the branch. */
static void back_input(hl_backward *b, float *out, const float *x, int64_t layer,
                       const hl_half *half)
{
    hl_norm      norm = hl_backward_norm_of(b, half->norm, layer, 0);
    const float *d_x  = b->d_input;

    if (half->reads_norm) {
        hl_backward_norms(b, b->part, b->d_input, x, &norm);
        d_x = b->part;
    }
    add_scaled(b, out, out, d_x, 1.0f);
}

/* Replaces the gradient of x' in grad by that of x.  b->input and b->raw are those of the
 * branch. */
static hl_status back_half(hl_backward *b, float *dgates, const float *x, int64_t layer,
                           const hl_half *half)
{
    back_close(b, x, layer, half);
    HL_NEED(back_branch(b, dgates, layer, half));
    if (b->config->residual_normed) { /* the residual stream passed only through the norm */
        add_scaled(b, b->d_input, b->d_input, b->grad, 1.0f);
        memset(b->grad, 0, (size_t)stream_count(b) * sizeof *b->grad);
    }
    back_input(b, b->grad, x, layer, half);
    return HL_OK;
}

/* ---------------------------------------------------------------------- blocks */

/* Adds the gradients of x of halves that are added together, by way of b->middle, to grad. */
static hl_status back_together(hl_backward *b, float *dgates, const float *x, int64_t layer,
                               const hl_half *halves, int n_halves)
{
    float scale = (float)b->config->residual_scale;

    memset(b->middle, 0, (size_t)stream_count(b) * sizeof *b->middle);
    for (int64_t i = 0; i < stream_count(b); i++)
        b->d_branch[i] = scale * b->grad[i];
    for (int i = 0; i < n_halves; i++) {
        HL_NEED(run_half(b, x, layer, &halves[i]));
        HL_NEED(back_branch(b, dgates, layer, &halves[i]));
        back_input(b, b->middle, x, layer, &halves[i]);
    }
    add_scaled(b, b->grad, b->grad, b->middle, 1.0f);
    return HL_OK;
}

/* The halves of blocks.h in reverse: forward to the middle, back through the second half, back
 * through the first.  The first half's results are still in the session's memory, because attention
 * and MLPs use different rows, but for outputs that no norm reads again (session_memory.c). */
static hl_status back_block(hl_backward *b, float *dgates, int64_t layer)
{
    const float *x = b->stream + layer * stream_count(b);
    hl_half      halves[HL_BLOCK_HALVES];
    int          n_halves = hl_block_halves(halves, b->config, layer);
    int          first    = n_halves > 0 ? hl_block_group(halves, n_halves, 0) : 0;

    b->layer = layer;
    if (first > 1)
        return back_together(b, dgates, x, layer, halves, first);
    if (n_halves > 0)
        HL_NEED(run_half(b, x, layer, &halves[0]));
    if (n_halves > 1) {
        HL_NEED(close_half(b, b->middle, x, layer, &halves[0]));
        HL_NEED(run_half(b, b->middle, layer, &halves[1]));
        HL_NEED(back_half(b, dgates, b->middle, layer, &halves[1]));
        HL_NEED(read_input(b, x, layer, &halves[0]));
        memcpy(b->raw, given_by(b, &halves[0]), (size_t)stream_count(b) * sizeof *b->raw);
    }
    return n_halves > 0 ? back_half(b, dgates, x, layer, &halves[0]) : HL_OK;
}

/* ----------------------------------------------------------------------- whole */

static void begin_run(hl_backward *b, const int64_t *tokens, int64_t n_tokens)
{
    b->tokens    = tokens;
    b->n_tokens  = n_tokens;
    b->nll       = 0.0;
    b->places[0] = 0;
    b->places[1] = n_tokens;
    b->places[2] = n_tokens;
    b->places[3] = 0;
    b->tap       = (hl_tap){ .context = b,
                             .layer   = keep_stream,
                             .final   = back_loss,
                             .wants   = HL_WANT_RESID_PRE | HL_WANT_LOGITS };
    b->feed      = (hl_feed){ .tokens = tokens, .n_tokens = n_tokens, .tap = &b->tap };
    b->chunk     = (hl_chunk){ .feed      = &b->feed,
                               .n_batch   = 1,
                               .n_rows    = n_tokens,
                               .start     = &b->places[0],
                               .lengths   = &b->places[1],
                               .ends      = &b->places[2],
                               .sequences = &b->places[3] };
    memset(b->grad, 0, (size_t)stream_count(b) * sizeof *b->grad);
    if (b->later != NULL)
        memset(b->later, 0,
               (size_t)(2 * b->config->n_layers * b->n_ctx * b->config->n_kv_heads *
                        b->config->d_head) *
                   sizeof *b->later);
}

/* Layers that use the keys of an earlier layer have its W_K and W_V. */
static void copy_weight_norms(const hl_backward *b)
{
    int64_t n_heads = b->config->n_heads;
    int64_t all     = b->config->n_layers * n_heads;

    for (int64_t layer = 0; layer < b->config->n_layers; layer++) {
        int64_t from = b->config->layers[layer].kv_layer;

        for (int part = 1; part < 3 && from != layer; part++)
            memcpy(b->weight_norms + part * all + layer * n_heads,
                   b->weight_norms + part * all + from * n_heads,
                   (size_t)n_heads * sizeof *b->weight_norms);
    }
}

hl_status hl_backward_run(double *gradient, double *nll, hl_backward *b, const int64_t *tokens,
                          int64_t n_tokens, int64_t first)
{
    int64_t         n_heads  = b->config->n_heads;
    int64_t         n_layers = b->config->n_layers;
    HL_FREED float *dgates   = NULL;

    const hl_kernels *kernels = NULL;

    if (n_tokens < 2 || n_tokens > b->n_ctx)
        return hl_fail(HL_BAD_ARGUMENT, "gradients of %lld tokens, wanted 2 to %lld",
                       (long long)n_tokens, (long long)b->n_ctx);
    if (first < 1 || first >= n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "gradients from token %lld on, wanted 1 to %lld",
                       (long long)first, (long long)n_tokens - 1);
    b->first = first;
    HL_NEED(hl_kernels_current(&kernels));
    b->dense = kernels->dense;
    begin_run(b, tokens, n_tokens);
    HL_NEED(HL_ALLOC_ZEROED(&dgates, (size_t)n_heads));
    HL_NEED(hl_session_rewind(b->session, 0, 0));
    HL_NEED(hl_session_feed(b->session, &b->feed));
    for (int64_t layer = n_layers - 1; layer >= 0; layer--) {
        memset(dgates, 0, (size_t)n_heads * sizeof *dgates);
        HL_NEED(back_block(b, dgates, layer));
        for (int64_t head = 0; head < n_heads; head++)
            gradient[layer * n_heads + head] = (double)dgates[head];
    }
    copy_weight_norms(b);
    *nll = b->nll / (double)(n_tokens - first);
    return HL_OK;
}
