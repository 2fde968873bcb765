/* backward_mlp.c - the gradient through an MLP, or a mixture of them.
 *
 * In a mixture y = sum over the chosen experts of p_i E_i(x), or of E_i(p_i x).  A small change of x
 * does not change which experts are chosen, but it changes their weights:
 *
 *     dE_i = p_i dy,   dp_i = dy . E_i(x)            and with scaled inputs
 *     dE_i = dy,       dp_i = x . dE_i/dx(p_i x) dy
 *
 * router.h turns dp into the gradients of the logits.  The shared expert's weight is 1, or s =
 * sigmoid(r) with dr = s (1 - s) dy . E(x). */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "model/backward.h"

/* The three maps of an MLP; gate is NULL if it is not gated. */
typedef struct mlp_maps {
    const hl_session_param *gate;
    const hl_session_param *up;
    const hl_session_param *down;
} mlp_maps;

static mlp_maps maps_of(const hl_backward *b, int64_t layer, hl_role gate, int64_t part)
{
    /* The roles of an MLP follow each other: gate, up, down. */
    return (mlp_maps){ hl_session_param_of(b->session, gate, layer, part),
                       hl_session_param_of(b->session, gate + 1, layer, part),
                       hl_session_param_of(b->session, gate + 2, layer, part) };
}

/* Computes the values before the activation, for n rows. */
static hl_status expand(hl_backward *b, const float *x, int64_t n, const mlp_maps *maps)
{
    HL_NEED(hl_backward_forward(b, b->gate, x, n, maps->gate != NULL ? maps->gate : maps->up));
    if (maps->gate != NULL)
        HL_NEED(hl_backward_forward(b, b->up, x, n, maps->up));
    return HL_OK;
}

/* The context of the threads. */
typedef struct active_rows {
    const hl_backward *b;
    int64_t            width;
    bool               gated;
} active_rows;

static void deactivate_some(void *context, int64_t first, int64_t end, int member)
{
    const active_rows *rows = context;
    const hl_backward *b    = rows->b;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        int64_t at = row * rows->width;

        hl_backward_activation(b->d_gate + at, rows->gated ? b->d_up + at : NULL, b->gate + at,
                               rows->gated ? b->up + at : NULL, rows->width, b->config->activation,
                               b->config->layers[b->layer].numbers);
    }
}

/* d_gate (n, width) back through the norm before the last map; d_up is scratch. */
static void unnorm_inner(hl_backward *b, int64_t n, int64_t width, bool gated)
{
    hl_norm norm = hl_backward_norm_of(b, HL_ROLE_MLP_INNER_NORM, b->layer, 0);

    memcpy(b->d_up, b->gate, (size_t)(n * width) * sizeof *b->d_up);
    for (int64_t row = 0; row < n; row++) {
        float *active = b->d_up + row * width;
        float *d      = b->d_gate + row * width;

        b->dense->activate(active, gated ? b->up + row * width : NULL, width, b->config->activation,
                           b->config->layers[b->layer].numbers);
        hl_backward_norm(d, d, active, width, &norm);
    }
}

/* dx (n, D) from dy (n, D), after expand. */
static hl_status contract(hl_backward *b, float *dx, const float *dy, int64_t n,
                          const mlp_maps *maps)
{
    int64_t width = maps->up->matrix.n_rows;
    bool    gated = maps->gate != NULL;

    HL_NEED(hl_backward_linear(b, b->d_gate, dy, n, maps->down, false));
    if (hl_session_param_of(b->session, HL_ROLE_MLP_INNER_NORM, b->layer, 0) != NULL)
        unnorm_inner(b, n, width, gated);
    hl_parallel(b->n_threads, n, 0, deactivate_some, &(active_rows){ b, width, gated });
    HL_NEED(hl_backward_linear(b, dx, b->d_gate, n, gated ? maps->gate : maps->up, false));
    if (gated)
        HL_NEED(hl_backward_linear(b, dx, b->d_up, n, maps->up, true));
    return HL_OK;
}

/* ------------------------------------------------------------------- mixture */

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Computes an expert's outputs rows_y for n rows of rows_x; d_gate is scratch. */
static hl_status run_expert(hl_backward *b, int64_t n, const mlp_maps *maps)
{
    int64_t width = maps->up->matrix.n_rows;

    HL_NEED(expand(b, b->rows_x, n, maps));
    memcpy(b->d_gate, b->gate, (size_t)(n * width) * sizeof *b->gate);
    for (int64_t row = 0; row < n; row++)
        b->dense->activate(b->d_gate + row * width, maps->gate != NULL ? b->up + row * width : NULL,
                           width, b->config->activation, b->config->layers[b->layer].numbers);
    return hl_backward_forward(b, b->rows_y, b->d_gate, n, maps->down);
}

/* The index of this expert among the choices of row `row`. */
static int64_t choice_of(const hl_backward *b, int64_t row, int64_t expert)
{
    int64_t n_used = b->config->n_experts_used;

    for (int64_t i = 0; i < n_used; i++) {
        if (b->session->device->rows.chosen[row * n_used + i] == expert)
            return i;
    }
    return -1;
}

/* Gathers the rows of an expert and their dy; members (S) gets their indices. */
static int64_t gather_rows(const hl_backward *b, int64_t expert)
{
    int64_t d_model = b->config->d_model;
    size_t  n_bytes = (size_t)d_model * sizeof(float);
    int64_t count   = 0;

    for (int64_t row = 0; row < b->n_tokens; row++) {
        if (choice_of(b, row, expert) < 0)
            continue;
        memcpy(b->rows_x + count * d_model, b->input + row * d_model, n_bytes);
        memcpy(b->rows_dy + count * d_model, b->d_branch + row * d_model, n_bytes);
        b->members[count++] = row;
    }
    return count;
}

static void scatter_rows(const hl_backward *b, int64_t count)
{
    int64_t d_model = b->config->d_model;

    for (int64_t i = 0; i < count; i++) {
        float *out = b->d_input + b->members[i] * d_model;

        for (int64_t j = 0; j < d_model; j++)
            out[j] += b->rows_dx[i * d_model + j];
    }
}

/* The gradients of the experts' weights in rows whose inputs they multiply; rows_dx becomes the
 * gradient of the inputs before that. */
static void back_scaled_inputs(hl_backward *b, int64_t count, int64_t expert)
{
    int64_t d_model = b->config->d_model;
    int64_t n_used  = b->config->n_experts_used;

    for (int64_t i = 0; i < count; i++) {
        int64_t row    = b->members[i];
        int64_t choice = row * n_used + choice_of(b, row, expert);
        float  *dx     = b->rows_dx + i * d_model;

        b->d_share[choice] = (float)dot(dx, b->input + row * d_model, d_model);
        for (int64_t j = 0; j < d_model; j++)
            dx[j] *= b->session->device->rows.shares[choice];
    }
}

static hl_status back_expert(hl_backward *b, int64_t layer, int64_t expert)
{
    int64_t  d_model = b->config->d_model;
    int64_t  n_used  = b->config->n_experts_used;
    mlp_maps maps    = maps_of(b, layer, HL_ROLE_EXPERT_GATE, expert);
    int64_t  count   = gather_rows(b, expert);

    if (count == 0)
        return HL_OK;
    for (int64_t i = 0; b->config->router.scales_input && i < count; i++) {
        int64_t choice = b->members[i] * n_used + choice_of(b, b->members[i], expert);

        for (int64_t j = 0; j < d_model; j++)
            b->rows_x[i * d_model + j] *= b->session->device->rows.shares[choice];
    }
    HL_NEED(run_expert(b, count, &maps));
    for (int64_t i = 0; !b->config->router.scales_input && i < count; i++) {
        int64_t row    = b->members[i];
        int64_t choice = row * n_used + choice_of(b, row, expert);
        float  *dy     = b->rows_dy + i * d_model;

        b->d_share[choice] = (float)dot(dy, b->rows_y + i * d_model, d_model);
        for (int64_t j = 0; j < d_model; j++)
            dy[j] *= b->session->device->rows.shares[choice];
    }
    HL_NEED(contract(b, b->rows_dx, b->rows_dy, count, &maps));
    if (b->config->router.scales_input)
        back_scaled_inputs(b, count, expert);
    scatter_rows(b, count);
    return HL_OK;
}

static hl_status back_router(hl_backward *b, int64_t layer)
{
    int64_t                 n_experts = b->config->layers[layer].n_experts;
    int64_t                 n_used    = b->config->n_experts_used;
    const hl_session_param *router    = hl_session_param_of(b->session, HL_ROLE_ROUTER, layer, 0);

    HL_NEED(hl_backward_forward(b, b->router, b->input, b->n_tokens, router));
    for (int64_t row = 0; row < b->n_tokens; row++)
        hl_router_gradient(b->router + row * n_experts,
                           b->session->device->rows.chosen + row * n_used,
                           b->d_share + row * n_used, &b->config->router, n_experts, n_used);
    return hl_backward_linear(b, b->d_input, b->router, b->n_tokens, router, true);
}

/* The expert's weight in a row, which is 1 without a router.  Replaces the row's logit by its
 * gradient. */
static float back_share(const hl_backward *b, int64_t row, bool is_gated)
{
    int64_t d_model = b->config->d_model;
    double  share   = is_gated ? 1.0 / (1.0 + exp(-(double)b->router[row])) : 1.0;

    b->router[row] = (float)(share * (1.0 - share) *
                             dot(b->d_branch + row * d_model, b->rows_y + row * d_model, d_model));
    return (float)share;
}

static hl_status back_shared(hl_backward *b, int64_t layer)
{
    int64_t                 n       = b->n_tokens;
    int64_t                 d_model = b->config->d_model;
    mlp_maps                maps    = maps_of(b, layer, HL_ROLE_SHARED_GATE, 0);
    const hl_session_param *router =
        hl_session_param_of(b->session, HL_ROLE_SHARED_ROUTER, layer, 0);

    if (maps.down == NULL)
        return HL_OK;
    memcpy(b->rows_x, b->input, (size_t)(n * d_model) * sizeof *b->rows_x);
    HL_NEED(run_expert(b, n, &maps));
    if (router != NULL)
        HL_NEED(hl_backward_forward(b, b->router, b->input, n, router));
    for (int64_t row = 0; row < n; row++) {
        float share = back_share(b, row, router != NULL);

        for (int64_t i = 0; i < d_model; i++)
            b->rows_dy[row * d_model + i] = share * b->d_branch[row * d_model + i];
    }
    HL_NEED(contract(b, b->rows_dx, b->rows_dy, n, &maps));
    for (int64_t i = 0; i < n * d_model; i++)
        b->d_input[i] += b->rows_dx[i];
    return router != NULL ? hl_backward_linear(b, b->d_input, b->router, n, router, true) : HL_OK;
}

hl_status hl_backward_mlp(hl_backward *b, int64_t layer)
{
    int64_t n_experts = b->config->layers[layer].n_experts;

    if (n_experts == 0) {
        mlp_maps maps = maps_of(b, layer, HL_ROLE_MLP_GATE, 0);

        HL_NEED(expand(b, b->input, b->n_tokens, &maps));
        return contract(b, b->d_input, b->d_branch, b->n_tokens, &maps);
    }
    memset(b->d_input, 0, (size_t)(b->n_tokens * b->config->d_model) * sizeof *b->d_input);
    for (int64_t expert = 0; expert < n_experts; expert++)
        HL_NEED(back_expert(b, layer, expert));
    HL_NEED(back_router(b, layer));
    return back_shared(b, layer);
}
