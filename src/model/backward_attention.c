/* backward_attention.c - the gradient through an attention branch, the gradient of its gates, and by
 * head the norms of the gradients of W_Q, W_K and W_V.
 *
 *     x -> q, k, v -> norms -> RoPE -> attention -> z -> W_O -> branch
 *
 * in reverse.  The session has run the branch: its memory has the rotated q, z, the cache and the
 * rows' log-sum-exp. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "kernels/gemm.h"
#include "model/backward.h"

/* The context of the threads: heads of q or k. */
typedef struct head_job {
    const hl_backward *b;
    float             *x;
    const float       *raw;     /* input of the norm */
    int64_t            n_heads; /* per row; for the norm: heads that are normed one by one */
    int64_t            width;
    hl_role            role;
    int64_t            layer;
} head_job;

static void unrotate_some(void *context, int64_t first, int64_t end, int member)
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

        b->dense->rotate(job->x + i * b->config->d_head, cosine + row * n_pairs,
                         b->sine + row * n_pairs, n_pairs, rope->interleaved);
    }
}

/* Rotates by the negated angle, which is the transpose of the rotation. */
static void unrotate(const hl_backward *b, float *x, int64_t n_heads, int64_t layer)
{
    hl_rope_choice choice  = b->config->layers[layer].rope;
    const hl_rope *rope    = &b->config->ropes[choice];
    const float   *sine    = b->session->device->rows.sine[choice];
    int64_t        n_pairs = rope->n_dims / 2;

    if (choice == HL_ROPE_NONE)
        return;
    for (int64_t i = 0; i < b->n_tokens * n_pairs; i++)
        b->sine[i] = -sine[i];
    hl_parallel(b->n_threads, b->n_tokens * n_heads, 0, unrotate_some,
                &(head_job){ .b = b, .x = x, .n_heads = n_heads, .layer = layer });
}

static void unnorm_some(void *context, int64_t first, int64_t end, int member)
{
    const head_job *job  = context;
    bool            each = job->b->config->qk_norm == HL_HEAD_NORM_EACH;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        hl_norm norm =
            hl_backward_norm_of(job->b, job->role, job->layer, each ? i % job->n_heads : 0);

        hl_backward_norm(job->x + i * job->width, job->x + i * job->width,
                         job->raw + i * job->width, job->width, &norm);
    }
}

/* Goes back through the norm of q or k; `raw` is the norm's input. */
static void unnorm(const hl_backward *b, float *x, const float *raw, int64_t n_heads, hl_role role,
                   int64_t layer)
{
    int64_t d_head  = b->config->d_head;
    bool    all     = b->config->qk_norm == HL_HEAD_NORM_ALL;
    int64_t width   = all ? n_heads * d_head : d_head;
    int64_t n_parts = all ? 1 : n_heads;

    if (b->config->qk_norm == HL_HEAD_NORM_NONE)
        return;
    hl_parallel(b->n_threads, b->n_tokens * n_parts, 0, unnorm_some,
                &(head_job){ b, x, raw, n_parts, width, role, layer });
}

/* Copies (K, n_ctx, d), the operator's layout, to (S, K d). */
static void gather_keys(const hl_backward *b, float *out, const float *keys, int64_t n_kv_heads)
{
    int64_t d_head = b->config->d_head;

    for (int64_t i = 0; i < b->n_tokens * n_kv_heads; i++) {
        int64_t row  = i / n_kv_heads;
        int64_t head = i % n_kv_heads;

        memcpy(out + i * d_head, keys + (head * b->n_ctx + row) * d_head,
               (size_t)d_head * sizeof *out);
    }
}

static hl_status attend(hl_backward *b, float *dgates, int64_t layer)
{
    const hl_device_session *d          = b->session->device;
    hl_attention             problem    = hl_forward_problem(b->session, &b->chunk, layer, 0, 1);
    int64_t                  n_heads    = b->config->layers[layer].n_heads;
    int64_t                  n_kv_heads = b->config->layers[layer].n_kv_heads;
    int64_t                  d_head     = b->config->d_head;
    float                   *values     = b->keys + b->config->n_kv_heads * b->n_ctx * d_head;
    hl_rows                  packed     = { .batch_stride = b->n_tokens * n_heads * d_head,
                                            .head_stride  = d_head,
                                            .row_stride   = n_heads * d_head };
    hl_attention_gradient    gradient   = {
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
        gather_keys(b, b->d_k, b->keys, n_kv_heads);
        gather_keys(b, b->d_v, values, n_kv_heads);
    }
    return status;
}

/* The gradient of a head's rows of W_Q is dq' x, (d, D): its queries' gradient times what the
 * projections read.  W_K and W_V alike, where the query heads of a group share one. */
typedef struct weight_job {
    const hl_backward *b;
    const float       *gradient; /* (S, n_heads d) of q, k or v, as the projection wrote them */
    int64_t            n_heads;  /* of the gradient */
    int64_t            group;    /* query heads per head of the gradient */
    double            *out;      /* (query heads) */
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
    int64_t            d      = b->config->d_head;
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
static void weigh_heads(const hl_backward *b, int64_t layer)
{
    const hl_layer_config *at      = &b->config->layers[layer];
    int64_t                group   = at->n_heads / at->n_kv_heads;
    int64_t                all     = b->config->n_layers * b->config->n_heads;
    double                *out     = b->weight_norms + layer * b->config->n_heads;
    weight_job             jobs[3] = { { b, b->d_q, at->n_heads, 1, out },
                                       { b, b->d_k, at->n_kv_heads, group, out + all },
                                       { b, b->d_v, at->n_kv_heads, group, out + 2 * all } };

    for (int i = 0; i < 3; i++)
        hl_parallel(b->n_threads, jobs[i].n_heads, 1, weigh_some, &jobs[i]);
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
    HL_NEED(attend(b, dgates, layer));
    unrotate(b, b->d_q, at->n_heads, layer);
    unrotate(b, b->d_k, at->n_kv_heads, layer);
    if (b->config->qk_norm != HL_HEAD_NORM_NONE) {
        HL_NEED(hl_backward_forward(b, b->raw_q, b->input, n, q));
        HL_NEED(hl_backward_forward(b, b->raw_k, b->input, n, k));
        unnorm(b, b->d_q, b->raw_q, at->n_heads, HL_ROLE_Q_NORM, layer);
        unnorm(b, b->d_k, b->raw_k, at->n_kv_heads, HL_ROLE_K_NORM, layer);
    }
    weigh_heads(b, layer);
    HL_NEED(hl_backward_linear(b, b->d_input, b->d_q, n, q, false));
    HL_NEED(hl_backward_linear(b, b->d_input, b->d_k, n, k, true));
    return hl_backward_linear(b, b->d_input, b->d_v, n, v, true);
}
