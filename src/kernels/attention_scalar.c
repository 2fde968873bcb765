/* attention_scalar.c - attention with entropy, written to be read.
 *
 * This is the definition that every other back end is tested against.  All
 * arithmetic is in double, one row at a time, straight from metrics.md:
 *
 *     s_j = scale q.k_j, soft-capped, plus ALiBi and key bias
 *     p_j = exp(s_j - lse),  out = gate * sum_j p_j v_j
 *
 * and backwards, with dP_j = gate * dO.v_j and D = dO.out:
 *
 *     dS_j = p_j (dP_j - D + g_lse - g_H (s_j - lse + H))
 *     dq = scale dS K,  dk = scale dS^T q,  dv = gate p^T dO
 *
 * dS is multiplied by 1 - tanh^2 where a soft-cap applied.  A row's scores are
 * computed again whenever they are needed; nothing the size of the attention
 * matrix is ever stored. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"
#include "kernels/row_state.h"

/* A query row: its query, its position and the keys that it sees. */
typedef struct row {
    const hl_attention *problem;
    int64_t             batch;
    int64_t             head;
    int64_t             query;
    int64_t             kv_head;
    int64_t             position;
    hl_visible_keys     keys;
    int64_t             index; /* into arrays (n_batch, n_heads, n_queries) */
    double              q[HL_MAX_HEAD_DIM];
} row;

/* The conversions in load_row and store_row cannot fail: the dtypes have been checked. */
static void load_row(double *out, const hl_rows *rows, int64_t batch, int64_t head, int64_t index,
                     int64_t width)
{
    (void)hl_dtype_to_f64(out, hl_rows_at(rows, batch, head, index), rows->dtype, (size_t)width);
}

static void store_row(const hl_rows *rows, int64_t batch, int64_t head, int64_t index,
                      const double *values, int64_t width)
{
    (void)hl_dtype_from_f64(hl_rows_at(rows, batch, head, index), rows->dtype, values,
                            (size_t)width);
}

static void row_open(row *r, const hl_attention *p, int64_t index)
{
    r->problem  = p;
    r->index    = index;
    r->query    = index % p->n_queries;
    r->head     = index / p->n_queries % p->n_heads;
    r->batch    = index / p->n_queries / p->n_heads;
    r->kv_head  = r->head / (p->n_heads / p->n_kv_heads);
    r->position = hl_attention_query_start(p, r->batch) + r->query;
    r->keys     = hl_attention_visible(p, r->batch, r->position);
    load_row(r->q, &p->q, r->batch, r->head, r->query, p->d_head);
}

static bool row_sees(const row *r, int64_t key)
{
    return hl_visible_has(r->keys, key);
}

/* The next key that the row sees after `key`; start with -1. */
static int64_t row_next(const row *r, int64_t key)
{
    return hl_visible_from(r->keys, key + 1);
}

/* The score of a visible key.  *slope gets d(score) / d(scale * q.k): 1 without a soft-cap. */
static double row_score(const row *r, int64_t key, double *slope)
{
    const hl_attention *p = r->problem;
    double              k[HL_MAX_HEAD_DIM];
    double              score = 0.0;

    load_row(k, &p->k, r->batch, r->kv_head, key, p->d_head);
    for (int64_t d = 0; d < p->d_head; d++)
        score += r->q[d] * k[d];
    score *= p->scale;
    *slope = 1.0;
    if (p->softcap != 0.0) {
        double bent = tanh(score / p->softcap);
        score       = p->softcap * bent;
        *slope      = 1.0 - bent * bent;
    }
    if (p->alibi_slopes != NULL)
        score += (double)p->alibi_slopes[r->head] * (double)(key - r->position);
    if (p->key_bias != NULL)
        score += (double)p->key_bias[r->head * p->n_keys + key];
    if (p->row_bias != NULL)
        score += (double)p->row_bias[(r->batch * p->n_queries + r->query) * p->n_keys + key];
    return score;
}

/* ------------------------------------------------------------------ forward */

/* The states of one row after a pass over its scores. */
typedef struct row_summary {
    hl_row_state rest; /* the keys other than key 0             */
    hl_row_state keys; /* all keys                              */
    hl_row_state all;  /* all keys and the learned sink, if any */
    int64_t      argmax;
} row_summary;

static row_summary row_summarize(const row *r)
{
    row_summary s     = { .rest = hl_row_state_empty(), .argmax = -1 };
    double      best  = -INFINITY;
    double      slope = 1.0;

    for (int64_t key = row_next(r, -1); key < r->keys.end; key = row_next(r, key)) {
        double score = row_score(r, key, &slope);
        if (key != 0)
            s.rest = hl_row_state_push(s.rest, score);
        if (score > best) { /* among equal scores, the lowest key */
            best     = score;
            s.argmax = key;
        }
    }
    s.keys = row_sees(r, 0) ? hl_row_state_push(s.rest, row_score(r, 0, &slope)) : s.rest;
    s.all  = s.keys;
    /* A row that sees no key is blind, with a learned sink or without one. */
    if (r->problem->sinks != NULL && s.keys.sum != 0.0)
        s.all = hl_row_state_push(s.keys, (double)r->problem->sinks[r->head]);
    return s;
}

static double row_probability(const row *r, int64_t key, double lse)
{
    double slope;

    return row_sees(r, key) && lse != -INFINITY ? exp(row_score(r, key, &slope) - lse) : 0.0;
}

static void put(float *array, int64_t index, double value)
{
    if (array != NULL)
        array[index] = (float)value;
}

static void write_statistics(const hl_attention_result *result, const row *r, const row_summary *s)
{
    double lse = hl_row_state_lse(s->all);

    put(result->lse, r->index, lse);
    put(result->entropy, r->index, hl_row_state_entropy(s->all));
    put(result->renyi2, r->index, hl_row_state_renyi2(s->all));
    put(result->varentropy, r->index, hl_row_state_varentropy(s->all));
    put(result->entropy_nosink, r->index, hl_row_state_entropy(s->rest));
    put(result->peak, r->index, s->keys.sum == 0.0 ? 0.0 : exp(s->keys.max - lse));
    put(result->max_logit, r->index, s->keys.sum == 0.0 ? -INFINITY : s->keys.max);
    put(result->self, r->index, row_probability(r, r->position, lse));
    put(result->previous, r->index, row_probability(r, r->position - 1, lse));
    put(result->first, r->index, row_probability(r, 0, lse));
    if (result->argmax != NULL)
        result->argmax[r->index] = s->argmax;
}

/* The second pass: the probabilities are known now. */
static void write_weighted(const hl_attention_result *result, const row *r, double lse)
{
    const hl_attention *p                     = r->problem;
    double              out[HL_MAX_HEAD_DIM]  = { 0 };
    double              mass[HL_MAX_SEGMENTS] = { 0 };
    double              v[HL_MAX_HEAD_DIM];

    for (int64_t key = row_next(r, -1); key < r->keys.end; key = row_next(r, key)) {
        double probability = row_probability(r, key, lse);
        if (probability == 0.0) /* a bias of -inf hides the key: its value may be NaN */
            continue;
        load_row(v, &p->v, r->batch, r->kv_head, key, p->d_value);
        for (int64_t d = 0; d < p->d_value; d++)
            out[d] += probability * v[d];
        if (result->segment_mass != NULL)
            mass[p->segments[r->batch * p->segment_stride + key]] += probability;
    }

    double gate = p->gates != NULL ? (double)p->gates[r->head] : 1.0;
    for (int64_t d = 0; d < p->d_value; d++)
        out[d] *= gate;
    if (result->out.data != NULL)
        store_row(&result->out, r->batch, r->head, r->query, out, p->d_value);
    for (int64_t s = 0; s < p->n_segments && result->segment_mass != NULL; s++)
        result->segment_mass[r->index * p->n_segments + s] = (float)mass[s];
}

/* Writes the results of a row with a score of NaN or +inf.  None of its probabilities is known, not
 * even which is the largest.  Hidden keys keep a probability of 0. */
static void write_not_finite(const hl_attention_result *result, const row *r, double entropy_nosink)
{
    const hl_attention *p                    = r->problem;
    double              out[HL_MAX_HEAD_DIM] = { 0 };
    float *const        always[] = { result->lse,        result->entropy, result->renyi2,
                                     result->varentropy, result->peak,    result->max_logit };

    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        put(always[i], r->index, NAN);
    put(result->entropy_nosink, r->index, entropy_nosink);
    put(result->self, r->index, row_sees(r, r->position) ? NAN : 0.0);
    put(result->previous, r->index, row_sees(r, r->position - 1) ? NAN : 0.0);
    put(result->first, r->index, row_sees(r, 0) ? NAN : 0.0);
    if (result->argmax != NULL)
        result->argmax[r->index] = -1;
    for (int64_t d = 0; d < p->d_value; d++)
        out[d] = NAN;
    if (result->out.data != NULL)
        store_row(&result->out, r->batch, r->head, r->query, out, p->d_value);
    if (result->segment_mass == NULL)
        return;
    float *mass = result->segment_mass + r->index * p->n_segments;
    memset(mass, 0, (size_t)p->n_segments * sizeof *mass);
    for (int64_t key = row_next(r, -1); key < r->keys.end; key = row_next(r, key))
        mass[p->segments[r->batch * p->segment_stride + key]] = NAN;
}

void hl_attention_row_not_finite(const hl_attention_result *result, const hl_attention *problem,
                                 int64_t index, double entropy_nosink)
{
    row r;

    row_open(&r, problem, index);
    write_not_finite(result, &r, entropy_nosink);
}

void hl_attention_row_forward(const hl_attention_result *result, const hl_attention *problem,
                              int64_t index)
{
    row r;

    row_open(&r, problem, index);
    row_summary summary = row_summarize(&r);
    double      lse     = hl_row_state_lse(summary.all);
    if (isnan(lse)) {
        write_not_finite(result, &r, hl_row_state_entropy(summary.rest));
        return;
    }
    write_statistics(result, &r, &summary);
    if (result->out.data != NULL || result->segment_mass != NULL)
        write_weighted(result, &r, lse);
}

/* The context of the threads. */
typedef struct forward_job {
    const hl_attention_result *result;
    const hl_attention        *problem;
} forward_job;

static void rows_forward(void *context, int64_t first, int64_t end, int member)
{
    const forward_job *job = context;
    (void)member;

    for (int64_t index = first; index < end; index++)
        hl_attention_row_forward(job->result, job->problem, index);
}

static hl_status attention_forward(const hl_attention_result *result, const hl_attention *problem)
{
    hl_parallel(problem->n_threads, problem->n_batch * problem->n_heads * problem->n_queries, 16,
                rows_forward, &(forward_job){ result, problem });
    return HL_OK;
}

/* ----------------------------------------------------------------- backward */

/* Sums to which many rows contribute. */
typedef struct sums {
    double *dk;     /* (n_keys, d_head) of one KV head; set to 0 for each head */
    double *dv;     /* (n_keys, d_value)                                  */
    double *dgates; /* (n_batch, n_heads)                                 */
    double *dsinks; /* (n_batch, n_heads)                                 */
} sums;

/* The gradient values of one row. */
typedef struct row_upstream {
    double lse;
    double entropy;
    double g_lse;
    double g_entropy;
    double gate;
    double grad_out[HL_MAX_HEAD_DIM];
    double delta; /* D = dO.out */
} row_upstream;

static void upstream_open(row_upstream *u, const row *r, const hl_attention_upstream *upstream)
{
    const hl_attention *p = r->problem;
    double              out[HL_MAX_HEAD_DIM];

    memset(u, 0, sizeof *u);
    u->lse  = (double)upstream->lse[r->index];
    u->gate = p->gates != NULL ? (double)p->gates[r->head] : 1.0;
    if (upstream->grad_lse != NULL)
        u->g_lse = (double)upstream->grad_lse[r->index];
    if (upstream->grad_entropy != NULL) {
        u->g_entropy = (double)upstream->grad_entropy[r->index];
        u->entropy   = (double)upstream->entropy[r->index];
    }
    if (upstream->grad_out.data == NULL)
        return;
    load_row(u->grad_out, &upstream->grad_out, r->batch, r->head, r->query, p->d_value);
    load_row(out, &upstream->out, r->batch, r->head, r->query, p->d_value);
    for (int64_t d = 0; d < p->d_value; d++)
        u->delta += u->grad_out[d] * out[d];
}

/* The gradient of an outcome's score; value_dot is dO.v. */
static double score_gradient(const row_upstream *u, double score, double value_dot)
{
    double probability = exp(score - u->lse);

    return probability * (u->gate * value_dot - u->delta + u->g_lse -
                          u->g_entropy * (score - u->lse + u->entropy));
}

/* Adds one key's share to dq, dk, dv and to the gate's gradient. */
static void key_backward(double *dq, const sums *total, const row *r, const row_upstream *u,
                         int64_t key)
{
    const hl_attention *p = r->problem;
    double              k[HL_MAX_HEAD_DIM];
    double              v[HL_MAX_HEAD_DIM];
    double              slope;
    double              value_dot = 0.0;
    double              score     = row_score(r, key, &slope);

    if (score == -INFINITY)
        return;
    load_row(k, &p->k, r->batch, r->kv_head, key, p->d_head);
    load_row(v, &p->v, r->batch, r->kv_head, key, p->d_value);
    for (int64_t d = 0; d < p->d_value; d++)
        value_dot += u->grad_out[d] * v[d];

    double probability = exp(score - u->lse);
    double ds          = p->scale * slope * score_gradient(u, score, value_dot);
    for (int64_t d = 0; d < p->d_head; d++) {
        dq[d] += ds * k[d];
        total->dk[key * p->d_head + d] += ds * r->q[d];
    }
    for (int64_t d = 0; d < p->d_value; d++)
        total->dv[key * p->d_value + d] += u->gate * probability * u->grad_out[d];
    total->dgates[r->batch * p->n_heads + r->head] += probability * value_dot;
}

static void row_backward(const hl_attention_gradient *gradient, const sums *total, const row *r,
                         const hl_attention_upstream *upstream)
{
    const hl_attention *p                   = r->problem;
    double              dq[HL_MAX_HEAD_DIM] = { 0 };
    row_upstream        u;

    upstream_open(&u, r, upstream);
    if (u.lse != -INFINITY) {
        for (int64_t key = row_next(r, -1); key < r->keys.end; key = row_next(r, key))
            key_backward(dq, total, r, &u, key);
        if (p->sinks != NULL)
            total->dsinks[r->batch * p->n_heads + r->head] +=
                score_gradient(&u, (double)p->sinks[r->head], 0.0);
    }
    if (gradient->dq.data != NULL)
        store_row(&gradient->dq, r->batch, r->head, r->query, dq, p->d_head);
}

/* Processes all rows that share a KV head, so that dk and dv have one owner. */
static void kv_head_backward(const hl_attention_gradient *gradient, const sums *total,
                             const hl_attention *p, const hl_attention_upstream *upstream,
                             int64_t batch, int64_t kv_head)
{
    int64_t group = p->n_heads / p->n_kv_heads;
    int64_t first = (batch * p->n_heads + kv_head * group) * p->n_queries;

    memset(total->dk, 0, (size_t)(p->n_keys * p->d_head) * sizeof *total->dk);
    memset(total->dv, 0, (size_t)(p->n_keys * p->d_value) * sizeof *total->dv);
    for (int64_t index = first; index < first + group * p->n_queries; index++) {
        row r;
        row_open(&r, p, index);
        row_backward(gradient, total, &r, upstream);
    }
    for (int64_t key = 0; key < p->n_keys; key++) {
        if (gradient->dk.data != NULL)
            store_row(&gradient->dk, batch, kv_head, key, total->dk + key * p->d_head, p->d_head);
        if (gradient->dv.data != NULL)
            store_row(&gradient->dv, batch, kv_head, key, total->dv + key * p->d_value, p->d_value);
    }
}

/* out[head] = the sum over batches, in order. */
static void reduce_batches(float *out, const double *partial, const hl_attention *p)
{
    for (int64_t head = 0; head < p->n_heads && out != NULL; head++) {
        double total = 0.0;
        for (int64_t batch = 0; batch < p->n_batch; batch++)
            total += partial[batch * p->n_heads + head];
        out[head] = (float)total;
    }
}

/* The context of the threads. */
typedef struct backward_job {
    const hl_attention_gradient *gradient;
    const hl_attention          *problem;
    const hl_attention_upstream *upstream;
    double                      *scratch; /* dk and dv of each thread */
    double                      *heads;   /* dgates and dsinks, (2, n_batch, n_heads) */
} backward_job;

static void kv_heads_backward(void *context, int64_t first, int64_t end, int member)
{
    const backward_job *job  = context;
    const hl_attention *p    = job->problem;
    size_t              n_dk = (size_t)(p->n_keys * p->d_head);
    size_t              n_dv = (size_t)(p->n_keys * p->d_value);
    double             *mine = job->scratch + (size_t)member * (n_dk + n_dv);
    sums total = { mine, mine + n_dk, job->heads, job->heads + p->n_batch * p->n_heads };

    for (int64_t index = first; index < end; index++)
        kv_head_backward(job->gradient, &total, p, job->upstream, index / p->n_kv_heads,
                         index % p->n_kv_heads);
}

static hl_status attention_backward(const hl_attention_gradient *gradient, const hl_attention *p,
                                    const hl_attention_upstream *upstream)
{
    size_t           width   = (size_t)(p->n_keys * p->d_head + p->n_keys * p->d_value);
    size_t           n_rows  = (size_t)(p->n_batch * p->n_heads);
    HL_FREED double *scratch = NULL, *heads = NULL;

    HL_NEED(HL_ALLOC(&scratch, (size_t)p->n_threads * width));
    HL_NEED(HL_ALLOC_ZEROED(&heads, 2 * n_rows));
    hl_parallel(p->n_threads, p->n_batch * p->n_kv_heads, 1, kv_heads_backward,
                &(backward_job){ gradient, p, upstream, scratch, heads });
    reduce_batches(gradient->dgates, heads, p);
    reduce_batches(gradient->dsinks, heads + n_rows, p);
    return HL_OK;
}

/* ----------------------------------------------------------------- received */

/* The context of the threads. */
typedef struct received_job {
    float              *received;
    const hl_attention *problem;
    const float        *lse;
    int64_t             first_query;
    double             *totals; /* (n_threads, n_keys) */
} received_job;

/* A row of NaN says nothing about any key that it sees. */
static void row_received(double *totals, const row *r, double lse)
{
    for (int64_t key = row_next(r, -1); key < r->keys.end; key = row_next(r, key))
        totals[key] += isnan(lse) ? NAN : row_probability(r, key, lse);
}

static void heads_received(void *context, int64_t first, int64_t end, int member)
{
    const received_job *job    = context;
    const hl_attention *p      = job->problem;
    double             *totals = job->totals + member * p->n_keys;
    row                 r;

    for (int64_t head = first; head < end; head++) {
        memset(totals, 0, (size_t)p->n_keys * sizeof *totals);
        for (int64_t query = job->first_query; query < p->n_queries; query++) {
            row_open(&r, p, head * p->n_queries + query);
            row_received(totals, &r, (double)job->lse[r.index]);
        }
        for (int64_t key = 0; key < p->n_keys; key++)
            job->received[head * p->n_keys + key] = (float)totals[key];
    }
}

static hl_status attention_received(float *received, const hl_attention *p, const float *lse,
                                    int64_t first_query)
{
    HL_FREED double *totals = NULL;

    HL_NEED(HL_ALLOC(&totals, (size_t)(p->n_threads * p->n_keys)));
    hl_parallel(p->n_threads, p->n_batch * p->n_heads, 1, heads_received,
                &(received_job){ received, p, lse, first_query, totals });
    return HL_OK;
}

const hl_kernels hl_kernels_scalar = {
    .name               = "scalar",
    .attention_forward  = attention_forward,
    .attention_backward = attention_backward,
    .attention_received = attention_received,
    .dequantize         = hl_dequantize_scalar,
    .dense              = &hl_dense_scalar,
    .int8_dot           = hl_int8_dot_scalar,
};
