/* forward_mlp.c - the MLP branch: plain, gated, or a mixture of experts.
 *
 * A mixture is worked out a sequence at a time: the router scores every expert
 * for every row, each row keeps its best few, and expert after expert takes the
 * rows that chose it.  A row's parts are added in the order of the experts, whatever
 * else is in the batch. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "model/session.h"

/* Rows to be activated: what a thread is given. */
typedef struct active_rows {
    const hl_session *session;
    float            *gate;
    const float      *up; /* NULL: nothing is gated */
    int64_t           width;
} active_rows;

static void activate_some(void *context, int64_t first, int64_t end, int member)
{
    const active_rows *rows   = context;
    const hl_config   *config = rows->session->config;
    (void)member;

    for (int64_t row = first; row < end; row++)
        rows->session->dense->activate(
            rows->gate + row * rows->width, rows->up != NULL ? rows->up + row * rows->width : NULL,
            rows->width, config->activation, (float)config->activation_limit);
}

static void activate_rows(const hl_session *session, float *gate, const float *up, int64_t n_rows,
                          int64_t width)
{
    hl_parallel(hl_forward_threads(session, n_rows * width), n_rows, 0, activate_some,
                &(active_rows){ session, gate, up, width });
}

/* ------------------------------------------------------------------ ordinary */

static hl_status plain_mlp(hl_session *session, const hl_chunk *chunk, int64_t layer,
                           const float *x)
{
    hl_session_rows        *rows   = &session->rows;
    int64_t                 width  = session->config->layers[layer].d_mlp;
    int64_t                 n_rows = chunk->n_batch * chunk->n_rows;
    const hl_session_param *gate   = hl_session_param_of(session, HL_ROLE_MLP_GATE, layer, 0);
    const hl_session_param *up     = hl_session_param_of(session, HL_ROLE_MLP_UP, layer, 0);
    const hl_session_param *down   = hl_session_param_of(session, HL_ROLE_MLP_DOWN, layer, 0);
    /* What is activated lies in rows->gate, whether or not something gates. */
    hl_forward_part parts[2] = { { rows->gate, gate != NULL ? gate : up },
                                 { rows->up, gate != NULL ? up : NULL } };

    HL_NEED(hl_forward_linears(session, chunk, x, parts, 2));
    activate_rows(session, rows->gate, gate != NULL ? rows->up : NULL, n_rows, width);
    return hl_forward_linear(session, chunk, rows->mlp, rows->gate, down);
}

/* ------------------------------------------------------------------- mixture */

/* Rows of one sequence. */
typedef struct mixture {
    hl_session  *session;
    int64_t      layer;
    int64_t      n_rows;
    const float *x;   /* (n_rows, D) */
    float       *out; /* (n_rows, D) */
} mixture;

static hl_status multiply_rows(const mixture *m, float *out, const float *x, int64_t n_rows,
                               const hl_session_param *param)
{
    hl_linear_rows rows = {
        .out        = out,
        .out_stride = param->matrix.n_rows,
        .x          = x,
        .x_stride   = param->matrix.n_columns,
        .n_batch    = 1,
        .batch_rows = n_rows,
        .n_rows     = &n_rows,
    };
    return hl_linear(&rows, &param->matrix, param->bias, &m->session->pool);
}

/* The best of the logits that are left, the first of equals; then it is gone. */
static int64_t take_best(float *logits, int64_t n_experts)
{
    int64_t best = 0;

    for (int64_t expert = 1; expert < n_experts; expert++) {
        if (logits[expert] > logits[best])
            best = expert;
    }
    logits[best] = -INFINITY;
    return best;
}

static double exponentials(const float *logits, int64_t n, float max)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += exp((double)(logits[i] - max));
    return sum;
}

static float largest(const float *x, int64_t n)
{
    float max = x[0];

    for (int64_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* chosen and weights (n_experts_used) of one row; uses up its logits. */
static void choose_experts(int64_t *chosen, float *weights, float *logits, const hl_config *config,
                           int64_t n_experts)
{
    int64_t n_used = config->n_experts_used;
    float   max    = largest(logits, n_experts);
    double  sum    = exponentials(logits, n_experts, max);

    for (int64_t i = 0; i < n_used; i++) {
        weights[i] = largest(logits, n_experts);
        chosen[i]  = take_best(logits, n_experts);
    }
    if (config->router == HL_ROUTER_SOFTMAX_CHOSEN)
        sum = exponentials(weights, n_used, max);
    for (int64_t i = 0; i < n_used; i++)
        weights[i] = (float)(exp((double)(weights[i] - max)) / sum);
}

static hl_status route_rows(const mixture *m)
{
    hl_session_rows        *rows      = &m->session->rows;
    const hl_config        *config    = m->session->config;
    int64_t                 n_experts = config->layers[m->layer].n_experts;
    const hl_session_param *router = hl_session_param_of(m->session, HL_ROLE_ROUTER, m->layer, 0);
    hl_status               status = multiply_rows(m, rows->router, m->x, m->n_rows, router);

    for (int64_t row = 0; row < m->n_rows && status == HL_OK; row++)
        choose_experts(rows->chosen + row * config->n_experts_used,
                       rows->weights + row * config->n_experts_used, rows->router + row * n_experts,
                       config, n_experts);
    return status;
}

/* out (n_rows, D) = the expert of these three maps on x. */
static hl_status run_expert(const mixture *m, float *out, const float *x, int64_t n_rows,
                            const hl_session_param *gate, const hl_session_param *up,
                            const hl_session_param *down)
{
    hl_session_rows *rows = &m->session->rows;

    HL_NEED(multiply_rows(m, rows->gate, x, n_rows, gate != NULL ? gate : up));
    if (gate != NULL)
        HL_NEED(multiply_rows(m, rows->up, x, n_rows, up));
    activate_rows(m->session, rows->gate, gate != NULL ? rows->up : NULL, n_rows,
                  up->matrix.n_rows);
    return multiply_rows(m, out, rows->gate, n_rows, down);
}

/* The rows that chose this expert, and their weights for it. */
static int64_t gather_rows(const mixture *m, int64_t expert, float *weights)
{
    hl_session_rows *rows    = &m->session->rows;
    int64_t          n_used  = m->session->config->n_experts_used;
    int64_t          d_model = m->session->config->d_model;
    int64_t          count   = 0;

    for (int64_t row = 0; row < m->n_rows; row++) {
        for (int64_t i = 0; i < n_used; i++) {
            if (rows->chosen[row * n_used + i] != expert)
                continue;
            memcpy(rows->gathered + count * d_model, m->x + row * d_model,
                   (size_t)d_model * sizeof *m->x);
            weights[count]         = rows->weights[row * n_used + i];
            rows->members[count++] = row;
            break;
        }
    }
    return count;
}

static void add_row(float *out, const float *x, float weight, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] += weight * x[i];
}

static hl_status add_expert(const mixture *m, int64_t expert)
{
    hl_session      *session = m->session;
    hl_session_rows *rows    = &session->rows;
    int64_t          d_model = session->config->d_model;
    float           *weights = rows->member_weights;
    int64_t          count   = gather_rows(m, expert, weights);

    if (count == 0)
        return HL_OK;
    hl_status status =
        run_expert(m, rows->expert, rows->gathered, count,
                   hl_session_param_of(session, HL_ROLE_EXPERT_GATE, m->layer, expert),
                   hl_session_param_of(session, HL_ROLE_EXPERT_UP, m->layer, expert),
                   hl_session_param_of(session, HL_ROLE_EXPERT_DOWN, m->layer, expert));
    for (int64_t i = 0; i < count && status == HL_OK; i++)
        add_row(m->out + rows->members[i] * d_model, rows->expert + i * d_model, weights[i],
                d_model);
    return status;
}

/* The expert that every row uses, weighted by a gate of its own. */
static hl_status add_shared(const mixture *m)
{
    hl_session             *session = m->session;
    hl_session_rows        *rows    = &session->rows;
    int64_t                 d_model = session->config->d_model;
    const hl_session_param *router =
        hl_session_param_of(session, HL_ROLE_SHARED_ROUTER, m->layer, 0);

    if (session->config->d_shared == 0)
        return HL_OK;
    HL_NEED(multiply_rows(m, rows->member_weights, m->x, m->n_rows, router));
    HL_NEED(run_expert(m, rows->expert, m->x, m->n_rows,
                       hl_session_param_of(session, HL_ROLE_SHARED_GATE, m->layer, 0),
                       hl_session_param_of(session, HL_ROLE_SHARED_UP, m->layer, 0),
                       hl_session_param_of(session, HL_ROLE_SHARED_DOWN, m->layer, 0)));
    for (int64_t row = 0; row < m->n_rows; row++) {
        float weight = 1.0f / (1.0f + expf(-rows->member_weights[row]));
        add_row(m->out + row * d_model, rows->expert + row * d_model, weight, d_model);
    }
    return HL_OK;
}

static hl_status mix_sequence(const mixture *m)
{
    int64_t d_model   = m->session->config->d_model;
    int64_t n_experts = m->session->config->layers[m->layer].n_experts;

    memset(m->out, 0, (size_t)(m->n_rows * d_model) * sizeof *m->out);
    HL_NEED(route_rows(m));
    for (int64_t expert = 0; expert < n_experts; expert++)
        HL_NEED(add_expert(m, expert));
    return add_shared(m);
}

hl_status hl_forward_mlp(hl_session *session, const hl_chunk *chunk, int64_t layer, const float *x)
{
    int64_t d_model = session->config->d_model;

    if (session->config->layers[layer].n_experts == 0)
        return plain_mlp(session, chunk, layer, x);
    for (int64_t sequence = 0; sequence < chunk->n_batch; sequence++) {
        int64_t   first  = sequence * chunk->n_rows * d_model;
        mixture   m      = { session, layer, chunk->lengths[sequence], x + first,
                             session->rows.mlp + first };
        hl_status status = chunk->lengths[sequence] > 0 ? mix_sequence(&m) : HL_OK;
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}
