/* backward_attention.c - the gradient through an attention branch, the gradient of its gates, and by
 * head the norms of the gradients of W_Q, W_K and W_V.
 *
 *     x -> q, k, v -> norms -> limits -> RoPE -> attention -> z -> W_O -> branch
 *
 * in reverse, with the order of norms, limits and RoPE as in hl_device_heads.  The session has run
 * the branch: its memory has the finished q, z, the cache and the rows' log-sum-exp.  A layer that
 * uses the keys of an earlier one leaves their gradients to that layer. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "kernels/gemm.h"
#include "model/backward.h"

/* The context of the threads: heads of q, k or v. */
typedef struct head_job {
    const hl_backward *b;
    float             *x;
    const float       *raw;     /* input of the norm */
    int64_t            n_heads; /* per row; for the norm: heads that are normed one by one */
    int64_t            width;
    hl_role            role; /* of the norm; HL_N_ROLES: one without weights */
    int64_t            layer;
    float              sign; /* of the angles */
} head_job;

static void rotate_some(void *context, int64_t first, int64_t end, int member)
{
    const head_job    *job     = context;
    const hl_backward *b       = job->b;
    hl_rope_choice     choice  = b->config->layers[job->layer].rope;
    const hl_rope     *rope    = &b->config->ropes[choice];
    const float       *cosine  = b->session->device->rows.cosine[choice];
    int64_t            n_pairs = rope->n_dims / 2;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        int64_t row = i / job->n_heads;

        b->dense->rotate(job->x + i * b->config->layers[job->layer].d_head, cosine + row * n_pairs,
                         b->sine + row * n_pairs, n_pairs, rope->interleaved);
    }
}

/* Rotates by the angle (sign 1) or by the negated one (-1), which is the transpose. */
static void rotate(const hl_backward *b, float *x, int64_t n_heads, int64_t layer, float sign)
{
    hl_rope_choice choice  = b->config->layers[layer].rope;
    const hl_rope *rope    = &b->config->ropes[choice];
    const float   *sine    = b->session->device->rows.sine[choice];
    int64_t        n_pairs = rope->n_dims / 2;

    if (choice == HL_ROPE_NONE)
        return;
    for (int64_t i = 0; i < b->n_tokens * n_pairs; i++)
        b->sine[i] = sign * sine[i];
    hl_parallel(b->n_threads, b->n_tokens * n_heads, 0, rotate_some,
                &(head_job){ .b = b, .x = x, .n_heads = n_heads, .layer = layer });
}

static hl_norm norm_of(const head_job *job, int64_t i)
{
    bool each = job->b->config->qk_norm == HL_HEAD_NORM_EACH;

    if (job->role == HL_N_ROLES)
        return (hl_norm){ .kind = HL_NORM_RMS, .eps = (float)job->b->config->norm_eps };
    return hl_backward_norm_of(job->b, job->role, job->layer, each ? i % job->n_heads : 0);
}

static void unnorm_some(void *context, int64_t first, int64_t end, int member)
{
    const head_job *job = context;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        hl_norm norm = norm_of(job, i);

        hl_backward_norm(job->x + i * job->width, job->x + i * job->width,
                         job->raw + i * job->width, job->width, &norm);
    }
}

static void norm_some(void *context, int64_t first, int64_t end, int member)
{
    const head_job *job = context;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        hl_norm norm = norm_of(job, i);

        job->b->dense->norm(job->x + i * job->width, job->raw + i * job->width, job->width, &norm);
    }
}

/* Applies a norm to q, k or v, or goes back through it; `raw` is the norm's input. */
static void through_norm(const hl_backward *b, float *x, const float *raw, int64_t n_heads,
                         hl_role role, int64_t layer, hl_parallel_work work)
{
    int64_t d_head  = b->config->layers[layer].d_head;
    bool    all     = b->config->qk_norm == HL_HEAD_NORM_ALL && role != HL_N_ROLES;
    int64_t width   = all ? n_heads * d_head : d_head;
    int64_t n_parts = all ? 1 : n_heads;

    hl_parallel(b->n_threads, b->n_tokens * n_parts, 0, work,
                &(head_job){ b, x, raw, n_parts, width, role, layer, 0.0f });
}

/* A value at the limit does not follow its input. */
static void unlimit(const hl_backward *b, float *x, const float *raw, int64_t count)
{
    float limit = (float)b->config->qkv_limit;

    for (int64_t i = 0; i < count; i++)
        x[i] = fabsf(raw[i]) > limit ? 0.0f : x[i];
}

static void limit_values(const hl_backward *b, float *x, int64_t count)
{
    float limit = (float)b->config->qkv_limit;

    for (int64_t i = 0; i < count && limit > 0.0f; i++)
        x[i] = fminf(fmaxf(x[i], -limit), limit);
}

/* Goes back from the finished q or k in x to what its projection wrote, which is `raw`; `scratch`
 * has room for as much. */
static void unfinish(const hl_backward *b, float *x, const float *raw, float *scratch,
                     int64_t n_heads, hl_role role, int64_t layer)
{
    const hl_config *config = b->config;
    int64_t          count  = b->n_tokens * n_heads * config->layers[layer].d_head;
    bool             normed = config->layers[layer].qk_norm != HL_HEAD_NORM_NONE;
    bool             last   = normed && config->qk_norm_last;

    role = config->qk_norm_plain ? HL_N_ROLES : role;

    if (last) {
        memcpy(scratch, raw, (size_t)count * sizeof *raw);
        limit_values(b, scratch, count);
        rotate(b, scratch, n_heads, layer, 1.0f);
        through_norm(b, x, scratch, n_heads, role, layer, unnorm_some);
    }
    rotate(b, x, n_heads, layer, -1.0f);
    if (config->qkv_limit > 0.0 && normed && !last) {
        through_norm(b, scratch, raw, n_heads, role, layer, norm_some);
        unlimit(b, x, scratch, count);
    } else if (config->qkv_limit > 0.0) {
        unlimit(b, x, raw, count);
    }
    if (normed && !last)
        through_norm(b, x, raw, n_heads, role, layer, unnorm_some);
}

/* The scale of the queries at each position. */
static void untemper(const hl_backward *b, int64_t layer)
{
    const hl_config       *config = b->config;
    const hl_layer_config *at     = &config->layers[layer];
    int64_t                width  = at->n_heads * at->d_head;

    for (int64_t i = 0; i < b->n_tokens * width && at->temper != 0.0; i++) {
        int64_t turns = (i / width + config->temper_first) / config->temper_period;

        b->d_q[i] *= (float)(1.0 + at->temper * log1p((double)turns));
    }
}

/* Copies (K, n_ctx, d), the operator's layout, to (S, K d). */
static void gather_keys(const hl_backward *b, float *out, const float *keys,
                        const hl_layer_config *at)
{
    int64_t d_head     = at->d_head;
    int64_t n_kv_heads = at->n_kv_heads;

    for (int64_t i = 0; i < b->n_tokens * n_kv_heads; i++) {
        int64_t row  = i / n_kv_heads;
        int64_t head = i % n_kv_heads;

        memcpy(out + i * d_head, keys + (head * b->n_ctx + row) * d_head,
               (size_t)d_head * sizeof *out);
    }
}

static hl_status attend(hl_backward *b, float *dgates, int64_t layer)
{
    const hl_device_session *d        = b->session->device;
    hl_attention             problem  = hl_forward_problem(b->session, &b->chunk, layer, 0, 1);
    int64_t                  n_heads  = b->config->layers[layer].n_heads;
    const hl_layer_config   *at       = &b->config->layers[layer];
    int64_t                  d_head   = at->d_head;
    float                   *values   = b->keys + at->n_kv_heads * b->n_ctx * d_head;
    hl_rows                  packed   = { .batch_stride = b->n_tokens * n_heads * d_head,
                                          .head_stride  = d_head,
                                          .row_stride   = n_heads * d_head };
    hl_attention_gradient    gradient = {
           .dq = packed, .dk = problem.k, .dv = problem.v, .dgates = dgates
    };
    hl_attention_upstream upstream = { .grad_out = packed,
                                       .out      = packed,
                                       .lse      = d->watch.statistics.lse };

    problem.n_threads = b->n_tokens * b->n_tokens * n_heads * d_head < 16 * 1024 ? 1 : b->n_threads;
    gradient.dq.data  = b->d_q;
    gradient.dk.data  = b->keys;
    gradient.dv.data  = values;
    upstream.grad_out.data = b->d_z;
    upstream.out.data      = d->rows.z;
    hl_status status       = hl_attention_backward(&gradient, &problem, &upstream);
    if (status == HL_OK) {
        gather_keys(b, b->d_k, b->keys, at);
        gather_keys(b, b->d_v, values, at);
    }
    return status;
}

/* The gradient of a head's rows of W_Q is dq' x, (d, D): its queries' gradient times what the
 * projections read.  W_K and W_V alike, where the query heads of a group share one. */
typedef struct weight_job {
    const hl_backward *b;
    const float       *gradient; /* (S, n_heads d) of q, k or v, as the projection wrote them */
    int64_t            n_heads;  /* of the gradient */
    int64_t            d_head;
    int64_t            group; /* query heads per head of the gradient */
    double            *out;   /* (query heads) */
} weight_job;

static double frobenius(const float *x, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void weigh_some(void *context, int64_t first, int64_t end, int member)
{
    const weight_job  *job    = context;
    const hl_backward *b      = job->b;
    int64_t            d      = job->d_head;
    int64_t            width  = b->config->d_model;
    float             *turned = b->turned + member * d * b->n_ctx;
    float             *rows   = b->d_weight + member * d * width;

    for (int64_t head = first; head < end; head++) {
        for (int64_t i = 0; i < b->n_tokens * d; i++)
            turned[i % d * b->n_tokens + i / d] =
                job->gradient[(i / d * job->n_heads + head) * d + i % d];
        hl_gemm(&(hl_gemm_operands){ .c        = rows,
                                     .c_stride = width,
                                     .a        = turned,
                                     .a_stride = b->n_tokens,
                                     .b        = b->input,
                                     .b_stride = width,
                                     .m        = d,
                                     .n        = width,
                                     .k        = b->n_tokens });
        double norm = frobenius(rows, d * width);
        for (int64_t i = 0; i < job->group; i++)
            job->out[head * job->group + i] = norm;
    }
}

/* b->weight_norms of a layer, from the gradients of what its projections wrote. */
static void weigh_heads(const hl_backward *b, int64_t layer, bool with_keys)
{
    const hl_layer_config *at      = &b->config->layers[layer];
    int64_t                group   = at->n_heads / at->n_kv_heads;
    int64_t                all     = b->config->n_layers * b->config->n_heads;
    double                *out     = b->weight_norms + layer * b->config->n_heads;
    weight_job             jobs[3] = { { b, b->d_q, at->n_heads, at->d_head, 1, out },
                                       { b, b->d_k, at->n_kv_heads, at->d_head, group, out + all },
                                       { b, b->d_v, at->n_kv_heads, at->d_head, group, out + 2 * all } };

    for (int i = 0; i < (with_keys ? 3 : 1); i++)
        hl_parallel(b->n_threads, jobs[i].n_heads, 1, weigh_some, &jobs[i]);
}

/* Goes back from finished keys and values to what their projections wrote; d_z is scratch. */
static hl_status unfinish_keys(hl_backward *b, int64_t layer)
{
    const hl_layer_config  *at    = &b->config->layers[layer];
    const hl_session_param *k     = hl_session_param_of(b->session, HL_ROLE_ATTN_K, layer, 0);
    const hl_session_param *v     = hl_session_param_of(b->session, HL_ROLE_ATTN_V, layer, 0);
    int64_t                 count = b->n_tokens * at->n_kv_heads * at->d_head;

    HL_NEED(hl_backward_forward(b, b->raw_k, b->input, b->n_tokens, k));
    unfinish(b, b->d_k, b->raw_k, b->d_z, at->n_kv_heads, HL_ROLE_K_NORM, layer);
    if (!b->config->v_normed && b->config->qkv_limit == 0.0)
        return HL_OK;
    HL_NEED(hl_backward_forward(b, b->raw_k, b->input, b->n_tokens, v));
    if (b->config->qkv_limit > 0.0)
        unlimit(b, b->d_v, b->raw_k, count);
    if (b->config->v_normed)
        through_norm(b, b->d_v, b->raw_k, at->n_kv_heads, HL_N_ROLES, layer, unnorm_some);
    return HL_OK;
}

static void add_to(float *out, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] += x[i];
}

/* Gradients of keys and values that later layers left here are added, or these are left to an
 * earlier layer; returns whether the layer has its own keys. */
static bool settle_keys(hl_backward *b, int64_t layer)
{
    const hl_layer_config *at     = &b->config->layers[layer];
    int64_t                most   = b->n_tokens * b->config->n_kv_heads * b->config->d_head;
    int64_t                count  = b->n_tokens * at->n_kv_heads * at->d_head;
    float                 *left_k = b->later != NULL ? b->later + 2 * at->kv_layer * most : NULL;

    if (b->later == NULL)
        return true;
    if (at->kv_layer == layer) {
        add_to(b->d_k, left_k, count);
        add_to(b->d_v, left_k + most, count);
        return true;
    }
    add_to(left_k, b->d_k, count);
    add_to(left_k + most, b->d_v, count);
    return false;
}

/* Goes back from what ATTN_O reads, g norm(z), to z.  d_q is scratch. */
static void unnorm_heads(hl_backward *b, float *dgates, int64_t layer)
{
    const hl_layer_config   *at    = &b->config->layers[layer];
    const hl_device_session *d     = b->session->device;
    const float             *z     = d->rows.z;
    const float             *gates = d->inputs.gates;
    int64_t                  width = at->n_heads * at->d_head;
    hl_norm                  norm  = hl_backward_norm_of(b, HL_ROLE_ATTN_Z_NORM, layer, 0);

    for (int64_t i = 0; i < b->n_tokens * width; i++) {
        int64_t head = i % width / at->d_head;

        if (i % width == 0)
            b->dense->norm(b->d_q, z + i, width, &norm);
        dgates[head] += b->d_z[i] * b->d_q[i % width];
        if (gates != NULL)
            b->d_z[i] *= gates[layer * b->config->n_heads + head];
    }
    for (int64_t row = 0; row < b->n_tokens; row++)
        hl_backward_norm(b->d_z + row * width, b->d_z + row * width, z + row * width, width, &norm);
}

hl_status hl_backward_attention(hl_backward *b, float *dgates, int64_t layer)
{
    const hl_layer_config  *at = &b->config->layers[layer];
    int64_t                 n  = b->n_tokens;
    const hl_session_param *q  = hl_session_param_of(b->session, HL_ROLE_ATTN_Q, layer, 0);
    const hl_session_param *k  = hl_session_param_of(b->session, HL_ROLE_ATTN_K, layer, 0);
    const hl_session_param *v  = hl_session_param_of(b->session, HL_ROLE_ATTN_V, layer, 0);
    const hl_session_param *o  = hl_session_param_of(b->session, HL_ROLE_ATTN_O, layer, 0);

    HL_NEED(hl_backward_linear(b, b->d_z, b->d_branch, n, o, false));
    if (b->config->inner_norms)
        unnorm_heads(b, dgates, layer);
    HL_NEED(attend(b, b->config->inner_norms ? NULL : dgates, layer));
    untemper(b, layer);
    HL_NEED(hl_backward_forward(b, b->raw_q, b->input, n, q));
    unfinish(b, b->d_q, b->raw_q, b->d_z, at->n_heads, HL_ROLE_Q_NORM, layer);
    bool is_own = settle_keys(b, layer);
    if (is_own)
        HL_NEED(unfinish_keys(b, layer));
    weigh_heads(b, layer, is_own);
    HL_NEED(hl_backward_linear(b, b->d_input, b->d_q, n, q, false));
    if (!is_own)
        return HL_OK;
    HL_NEED(hl_backward_linear(b, b->d_input, b->d_k, n, k, true));
    return hl_backward_linear(b, b->d_input, b->d_v, n, v, true);
}
