/* forward.c - one chunk through all blocks.
 *
 * config.h shows what a block computes for each place of its norms; block_*
 * below are these lines.  The residual stream x stays in rows.x, a branch reads
 * rows.normed and writes rows.branch or rows.mlp. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "model/device.h"
#include "model/session.h"

/* --------------------------------------------------------------------- tools */

static hl_linear_product product_of(const hl_chunk *chunk, const float *x,
                                    const hl_forward_part *part)
{
    const hl_matrix *matrix = &part->param->matrix;

    return (hl_linear_product){
        .rows   = { .out        = part->out,
                    .out_stride = matrix->n_rows,
                    .x          = x,
                    .x_stride   = matrix->n_columns,
                    .n_batch    = chunk->n_batch,
                    .batch_rows = chunk->n_rows,
                    .n_rows     = chunk->lengths },
        .matrix = matrix,
        .bias   = part->param->bias,
    };
}

hl_status hl_forward_linears(const hl_session *session, const hl_chunk *chunk, const float *x,
                             const hl_forward_part *parts, int n_parts)
{
    hl_linear_product products[HL_LINEAR_PRODUCTS];
    int               count = 0;

    for (int i = 0; i < n_parts; i++) {
        if (parts[i].param != NULL)
            products[count++] = product_of(chunk, x, &parts[i]);
    }
    return hl_linear_all(products, count, &session->pool);
}

hl_status hl_forward_linear(const hl_session *session, const hl_chunk *chunk, float *out,
                            const float *x, const hl_session_param *param)
{
    return hl_forward_linears(session, chunk, x, &(hl_forward_part){ out, param }, 1);
}

hl_norm hl_forward_norm_of(const hl_session *session, const hl_session_param *param)
{
    return (hl_norm){
        .kind   = session->config->norm,
        .eps    = (float)session->config->norm_eps,
        .weight = param != NULL ? param->vector : NULL,
        .bias   = param != NULL ? param->bias : NULL,
    };
}

/* Rows of the residual stream: what a thread is given. */
typedef struct stream_rows {
    const hl_session *session;
    const hl_chunk   *chunk;
    float            *out;
    const float      *x;
    hl_norm           norm;
    float             scale;
} stream_rows;

static void norm_some(void *context, int64_t first, int64_t end, int member)
{
    const stream_rows *rows    = context;
    int64_t            d_model = rows->session->config->d_model;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        if (hl_chunk_has(rows->chunk, row))
            rows->session->dense->norm(rows->out + row * d_model, rows->x + row * d_model, d_model,
                                       &rows->norm);
    }
}

void hl_forward_norm(const hl_session *session, const hl_chunk *chunk, float *out, const float *x,
                     const hl_session_param *param)
{
    stream_rows rows   = { session, chunk, out, x, hl_forward_norm_of(session, param), 0.0f };
    int64_t     n_rows = chunk->n_batch * chunk->n_rows;

    hl_parallel(hl_forward_threads(session, n_rows * session->config->d_model), n_rows, 0,
                norm_some, &rows);
}

static int64_t stream_count(const hl_session *session, const hl_chunk *chunk)
{
    return chunk->n_batch * chunk->n_rows * session->config->d_model;
}

static void copy_some(void *context, int64_t first, int64_t end, int member)
{
    const stream_rows *rows = context;
    (void)member;

    memcpy(rows->out + first, rows->x + first, (size_t)(end - first) * sizeof *rows->out);
}

static void copy_stream(const hl_session *session, const hl_chunk *chunk, float *out,
                        const float *x)
{
    int64_t count = stream_count(session, chunk);

    hl_parallel(hl_forward_threads(session, count), count, 0, copy_some,
                &(stream_rows){ .out = out, .x = x });
}

static void add_some(void *context, int64_t first, int64_t end, int member)
{
    const stream_rows *rows = context;
    (void)member;

    for (int64_t i = first; i < end; i++)
        rows->out[i] += rows->scale * rows->x[i];
}

/* x += scale * branch. */
static void add_branch(const hl_session *session, const hl_chunk *chunk, float *x,
                       const float *branch, float scale)
{
    int64_t count = stream_count(session, chunk);

    hl_parallel(hl_forward_threads(session, count), count, 0, add_some,
                &(stream_rows){ .out = x, .x = branch, .scale = scale });
}

/* -------------------------------------------------------------------- blocks */

/* A half of a block: one branch with its norms. */
typedef struct half_block {
    hl_role norm;      /* before the branch */
    hl_role post_norm; /* after it, or after the sum */
    float  *branch;    /* what it writes */
    bool    is_present;
} half_block;

typedef hl_status (*branch_step)(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                 const float *x);

bool hl_forward_has_norm(const hl_config *config, hl_role role, int64_t layer)
{
    if (config->norm_place == HL_NORM_POST || config->norm_place == HL_NORM_BRANCH)
        return false;
    return !(role == HL_ROLE_ATTN_NORM && layer == 0 && config->first_norm_plain);
}

/* What the branch reads: n(x), or x itself. */
static const float *branch_input(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                                 hl_role norm)
{
    const hl_session_rows *rows = &session->rows;

    if (!hl_forward_has_norm(session->config, norm, layer))
        return rows->x;
    hl_forward_norm(session, chunk, rows->normed, rows->x,
                    hl_session_param_of(session, norm, layer, 0));
    return rows->normed;
}

/* Adds what the branch gave, by the place of the norms. */
static void close_half(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                       const half_block *half)
{
    const hl_config        *config = session->config;
    const hl_session_rows  *rows   = &session->rows;
    const hl_session_param *post   = hl_session_param_of(session, half->post_norm, layer, 0);
    float                   scale  = (float)config->residual_scale;

    if (config->norm_place == HL_NORM_SANDWICH || config->norm_place == HL_NORM_BRANCH)
        hl_forward_norm(session, chunk, half->branch, half->branch, post);
    if (config->residual_normed)
        copy_stream(session, chunk, rows->x, rows->normed);
    add_branch(session, chunk, rows->x, half->branch, scale);
    if (config->norm_place == HL_NORM_POST)
        hl_forward_norm(session, chunk, rows->x, rows->x, post);
}

static hl_status run_half(hl_session *session, const hl_chunk *chunk, int64_t layer,
                          const half_block *half, branch_step step)
{
    if (!half->is_present)
        return HL_OK;
    hl_status status = step(session, chunk, layer, branch_input(session, chunk, layer, half->norm));
    if (status == HL_OK)
        close_half(session, chunk, layer, half);
    return status;
}

static half_block attention_half(const hl_session *session, int64_t layer)
{
    return (half_block){ HL_ROLE_ATTN_NORM, HL_ROLE_ATTN_POST_NORM, session->rows.branch,
                         session->config->layers[layer].n_heads > 0 };
}

static half_block mlp_half(const hl_session *session, int64_t layer)
{
    return (half_block){ HL_ROLE_MLP_NORM, HL_ROLE_MLP_POST_NORM, session->rows.mlp,
                         session->config->layers[layer].d_mlp > 0 };
}

/* Both branches read x before either is added. */
static hl_status parallel_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                bool attention_only)
{
    hl_session_rows *rows      = &session->rows;
    half_block       attention = attention_half(session, layer);
    half_block       mlp       = mlp_half(session, layer);
    float            scale     = (float)session->config->residual_scale;
    const float     *x         = branch_input(session, chunk, layer, HL_ROLE_ATTN_NORM);

    if (attention.is_present)
        HL_NEED(hl_forward_attention(session, chunk, layer, x));
    if (mlp.is_present && !attention_only) {
        if (session->config->residual == HL_RESIDUAL_PARALLEL)
            x = branch_input(session, chunk, layer, HL_ROLE_MLP_NORM);
        HL_NEED(hl_forward_mlp(session, chunk, layer, x));
        add_branch(session, chunk, rows->x, rows->mlp, scale);
    }
    if (attention.is_present)
        add_branch(session, chunk, rows->x, rows->branch, scale);
    return HL_OK;
}

static hl_status sequential_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                  bool attention_only)
{
    half_block attention = attention_half(session, layer);
    half_block mlp       = mlp_half(session, layer);

    HL_NEED(run_half(session, chunk, layer, &attention, hl_forward_attention));
    if (session->rows.mid != NULL && (hl_chunk_wants(chunk) & HL_WANT_RESID_MID) != 0)
        copy_stream(session, chunk, session->rows.mid, session->rows.x);
    if (!attention_only)
        HL_NEED(run_half(session, chunk, layer, &mlp, hl_forward_mlp));
    return HL_OK;
}

/* ----------------------------------------------------------------------- tap */

static bool is_parallel(const hl_session *session)
{
    return session->config->residual != HL_RESIDUAL_SEQUENTIAL;
}

static const float *if_wanted(uint32_t wants, uint32_t bit, const float *rows)
{
    return (wants & bit) != 0 ? rows : NULL;
}

/* Rows of a sequence that a device tells; 0: all of them. */
static int64_t count_sampled(const hl_session *session, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    return session->device != NULL && tap != NULL && tap->sampled_positions != NULL
               ? tap->n_sampled_positions
               : 0;
}

void hl_forward_describe(hl_layer_rows *out, const hl_session *session, const hl_chunk *chunk,
                         int64_t layer)
{
    const hl_session_rows *rows  = &session->rows;
    uint32_t               wants = hl_chunk_wants(chunk);

    *out = (hl_layer_rows){
        .layer      = layer,
        .n_batch    = chunk->n_batch,
        .n_rows     = chunk->n_rows,
        .n_heads    = session->config->layers[layer].n_heads,
        .n_kv_heads = session->config->layers[layer].n_kv_heads,
        .d_head     = session->config->d_head,
        .d_model    = session->config->d_model,
        .sequences  = chunk->sequences,
        .start      = chunk->start,
        .lengths    = chunk->lengths,
        .rows       = &session->statistics,
        .n_segments = hl_chunk_segments(chunk),
        .n_sampled  = count_sampled(session, chunk),
        .q          = if_wanted(wants, HL_WANT_Q, rows->q),
        .k          = if_wanted(wants, HL_WANT_K, rows->k),
        .v          = if_wanted(wants, HL_WANT_V, rows->v),
        .z          = if_wanted(wants, HL_WANT_Z, rows->z),
        .resid_pre  = if_wanted(wants, HL_WANT_RESID_PRE, rows->pre),
        .resid_mid  = is_parallel(session) ? NULL : if_wanted(wants, HL_WANT_RESID_MID, rows->mid),
        .resid_post = if_wanted(wants, HL_WANT_RESID_POST, rows->x),
    };
    if ((wants & HL_WANT_LENS) != 0) {
        out->lens_top     = rows->lens_top;
        out->lens_entropy = rows->lens_entropy;
        out->lens_gap     = rows->lens_gap;
    }
}

hl_status hl_forward_report_embedded(const hl_session *session, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    if (tap == NULL || tap->embedded == NULL)
        return HL_OK;
    return tap->embedded(tap->context, &(hl_layer_rows){ .layer     = -1,
                                                         .n_batch   = chunk->n_batch,
                                                         .n_rows    = chunk->n_rows,
                                                         .d_head    = session->config->d_head,
                                                         .d_model   = session->config->d_model,
                                                         .sequences = chunk->sequences,
                                                         .start     = chunk->start,
                                                         .lengths   = chunk->lengths,
                                                         .n_sampled = count_sampled(session, chunk),
                                                         .resid_post = session->rows.x });
}

static hl_status report_layer(hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    const hl_tap *tap = chunk->feed->tap;
    hl_layer_rows rows;

    if (tap == NULL || tap->layer == NULL)
        return HL_OK;
    hl_forward_describe(&rows, session, chunk, layer);
    if ((tap->wants & HL_WANT_PATTERN) != 0 && rows.n_heads > 0)
        hl_forward_describe_patterns(&rows, session, chunk);
    return tap->layer(tap->context, &rows);
}

/* --------------------------------------------------------------------- whole */

/* What needs the residual stream after the last block. */
bool hl_forward_needs_end(const hl_session *session, const hl_chunk *chunk)
{
    uint32_t end = HL_WANT_RESID_POST | HL_WANT_LENS | HL_WANT_HIDDEN | HL_WANT_LOGITS |
                   HL_WANT_LOSSES | HL_WANT_DIVERGENCE;
    uint32_t last = HL_WANT_LAST_LOGITS | HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW;

    return (hl_chunk_wants(chunk) & end) != 0 || (session->options.wants & last) != 0;
}

static bool stream_is_finite(const hl_session *session, const hl_chunk *chunk)
{
    int64_t d_model = session->config->d_model;

    for (int64_t row = 0; row < chunk->n_batch * chunk->n_rows; row++) {
        const float *x   = session->rows.x + row * d_model;
        float        sum = 0.0f;
        /* 0 * x is 0 for what is finite, NaN for what is not. */
        for (int64_t i = 0; i < d_model && hl_chunk_has(chunk, row); i++)
            sum += 0.0f * x[i];
        if (sum != 0.0f || isnan(sum))
            return false;
    }
    return true;
}

/* Once a layer: is the file to blame? */
static hl_status check_stream(hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    if (session->searched[layer + 1] || stream_is_finite(session, chunk))
        return HL_OK;
    session->searched[layer + 1] = true;
    hl_status status             = hl_session_find_nan(session, layer);
    if (status == HL_OK)
        hl_log(HL_LOG_WARNING, "layer %lld: the residual stream overflows, the weights are numbers",
               (long long)layer);
    return status;
}

static hl_status run_block(hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    uint32_t wants = hl_chunk_wants(chunk);
    bool     attention_only =
        layer == session->config->n_layers - 1 && !hl_forward_needs_end(session, chunk);

    if ((wants & HL_WANT_RESID_PRE) != 0)
        copy_stream(session, chunk, session->rows.pre, session->rows.x);
    if ((wants & HL_WANT_LENS) != 0)
        HL_NEED(hl_forward_lens(session, chunk, session->rows.x));
    if (is_parallel(session))
        HL_NEED(parallel_block(session, chunk, layer, attention_only));
    else
        HL_NEED(sequential_block(session, chunk, layer, attention_only));
    HL_NEED(check_stream(session, chunk, layer));
    return report_layer(session, chunk, layer);
}

/* The chunk's part of a stream that others computed. */
static void read_stream(const hl_session *session, const hl_chunk *chunk)
{
    const hl_feed *feed    = chunk->feed;
    int64_t        d_model = session->config->d_model;

    for (int64_t b = 0; b < chunk->n_batch; b++)
        memcpy(session->rows.x + b * chunk->n_rows * d_model,
               feed->stream + (b * feed->n_tokens + chunk->offset) * d_model,
               (size_t)(chunk->lengths[b] * d_model) * sizeof(float));
}

/* x as the first layer that is run reads it. */
static hl_status begin_stream(hl_session *session, const hl_chunk *chunk)
{
    if (chunk->feed->stream != NULL)
        read_stream(session, chunk);
    else if (chunk->feed->first_layer > 0)
        hl_streams_get(session, chunk);
    else
        return hl_forward_embed(session, chunk);
    return HL_OK;
}

hl_status hl_forward(hl_session *session, const hl_chunk *chunk)
{
    const hl_kernels *kernels = NULL;

    if (session->device != NULL)
        return hl_device_forward(session, chunk);
    HL_NEED(hl_kernels_current(&kernels));
    session->dense    = kernels->dense;
    session->few_rows = chunk->n_rows <= HL_LINEAR_FEW_ROWS;
    hl_forward_angles(session, chunk);
    HL_NEED(begin_stream(session, chunk));
    HL_NEED(check_stream(session, chunk, -1));
    HL_NEED(hl_forward_report_embedded(session, chunk));
    for (int64_t layer = chunk->feed->first_layer; layer < session->config->n_layers; layer++) {
        if (layer > chunk->feed->first_layer)
            hl_streams_put(session, chunk, layer);
        HL_NEED(run_block(session, chunk, layer));
    }
    if (hl_forward_needs_end(session, chunk))
        HL_NEED(hl_forward_final(session, chunk));
    return HL_OK;
}
