/* pattern.c - scores, softmax and statistics of one row, by definition. */
#include "kernels/pattern.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"

/* Converted operands: the row's q and, unless keys are floats, one key. */
typedef struct row_operands {
    double q[HL_MAX_HEAD_DIM];
    double k[HL_MAX_HEAD_DIM];
} row_operands;

static double change_score(double score, const hl_attention *p, int64_t head, int64_t key,
                           int64_t position, const float *row_bias)
{
    if (p->softcap > 0.0)
        score = p->softcap * tanh(score / p->softcap);
    if (p->alibi_slopes != NULL)
        score += (double)p->alibi_slopes[head] * (double)(key - position);
    if (p->key_bias != NULL)
        score += (double)p->key_bias[head * p->n_keys + key];
    if (row_bias != NULL)
        score += (double)row_bias[key];
    return score;
}

/* Converts scaled dot products to scores. */
static void finish_scores(double *scores, const hl_attention *p, int64_t head, int64_t position,
                          const float *row_bias, hl_key_range span)
{
    if (p->softcap <= 0.0 && p->alibi_slopes == NULL && p->key_bias == NULL && row_bias == NULL)
        return;
    for (int64_t key = span.begin; key < span.end; key++)
        scores[key] = change_score(scores[key], p, head, key, position, row_bias);
}

/* The visible keys as intervals: one, or two if a window also keeps the first keys. */
static int list_spans(hl_key_range out[2], hl_visible_keys range)
{
    int n_spans = 0;

    if (range.kept > 0)
        out[n_spans++] = (hl_key_range){ 0, range.kept };
    if (range.begin < range.end)
        out[n_spans++] = (hl_key_range){ range.begin, range.end };
    return n_spans;
}

/* The dot product in four partial sums, for speed: a row of a long context needs many of these. */
static double dot_f64(const double *a, const double *b, int64_t n)
{
    double  sums[4] = { 0 };
    int64_t i       = 0;

    for (; i + 4 <= n; i += 4) {
        for (int64_t j = 0; j < 4; j++)
            sums[j] += a[i + j] * b[i + j];
    }
    for (; i < n; i++)
        sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Writes the products of q and the keys of `span` to out[key]. */
static hl_status span_dots(double *out, const hl_kernels *kernels, const hl_attention *p,
                           row_operands *operands, int64_t batch, int64_t kv_head,
                           hl_key_range span)
{
    int64_t d = p->d_head;

    if (p->k.dtype == HL_DTYPE_F32) {
        kernels->dense->dots_exact(out + span.begin, operands->q,
                                   hl_rows_at(&p->k, batch, kv_head, span.begin), p->k.row_stride,
                                   span.end - span.begin, d);
        return HL_OK;
    }
    for (int64_t key = span.begin; key < span.end; key++) {
        HL_NEED(hl_dtype_to_f64(operands->k, hl_rows_at(&p->k, batch, kv_head, key), p->k.dtype,
                                (size_t)d));
        out[key] = dot_f64(operands->q, operands->k, d);
    }
    return HL_OK;
}

/* Writes the scores of the keys of `range` to out[key]. */
static hl_status row_scores(double *out, const hl_kernels *kernels, const hl_attention *p,
                            hl_visible_keys range, int64_t batch, int64_t head, int64_t row)
{
    row_operands operands;
    int64_t      kv_head  = head / (p->n_heads / p->n_kv_heads);
    int64_t      position = hl_attention_query_start(p, batch) + row;
    hl_key_range spans[2];
    int          n_spans = list_spans(spans, range);

    HL_NEED(hl_dtype_to_f64(operands.q, hl_rows_at(&p->q, batch, head, row), p->q.dtype,
                            (size_t)p->d_head));
    for (int64_t i = 0; i < p->d_head; i++)
        operands.q[i] *= p->scale;
    for (int i = 0; i < n_spans; i++) {
        HL_NEED(span_dots(out, kernels, p, &operands, batch, kv_head, spans[i]));
        finish_scores(out, p, head, position,
                      p->row_bias != NULL ? p->row_bias + (batch * p->n_queries + row) * p->n_keys
                                          : NULL,
                      spans[i]);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------------- sums */

/* The largest scores of the keys, without the sink. */
typedef struct row_extremes {
    double max;
    double max_size;
} row_extremes;

/* A hidden key's score of -inf has no size. */
static double size_of(double score)
{
    return score == -INFINITY ? 0.0 : fabs(score);
}

/* Finds the largest values in four parts, so that they vectorize.  NaN is left to the sums. */
static void find_largest(row_extremes *out, const double *scores, hl_key_range span)
{
    double  max[4]  = { out->max, out->max, out->max, out->max };
    double  size[4] = { 0 };
    int64_t key     = span.begin;

    for (; key + 4 <= span.end; key += 4) {
        for (int i = 0; i < 4; i++) {
            double score = scores[key + i];
            double other = size_of(score);
            max[i]       = score > max[i] ? score : max[i];
            size[i]      = other > size[i] ? other : size[i];
        }
    }
    for (; key < span.end; key++) {
        max[0]  = fmax(max[0], scores[key]);
        size[0] = fmax(size[0], size_of(scores[key]));
    }
    out->max      = fmax(fmax(max[0], max[1]), fmax(max[2], max[3]));
    out->max_size = fmax(out->max_size, fmax(fmax(size[0], size[1]), fmax(size[2], size[3])));
}

static double probability(const double *weights, double scale, hl_visible_keys range, int64_t key)
{
    return hl_visible_has(range, key) ? weights[key] * scale : 0.0;
}

/* Converts scores to probabilities and computes the row's statistics; `scores` gets the weights. */
static hl_pattern_row softmax(float *out, double *scores, const hl_dense *dense,
                              hl_visible_keys range, const float *sink, int64_t position)
{
    row_extremes  keys      = { .max = -INFINITY };
    hl_exact_sums sums      = { 0 };
    double        sink_size = 0.0;
    hl_key_range  spans[2];
    int           n_spans = list_spans(spans, range);

    for (int i = 0; i < n_spans; i++)
        find_largest(&keys, scores, spans[i]);
    double max = sink != NULL ? fmax((double)*sink, keys.max) : keys.max;
    for (int i = 0; i < n_spans; i++)
        dense->exp_exact(&sums, scores + spans[i].begin, max, spans[i].end - spans[i].begin);
    if (sink != NULL) {
        double weight = (double)*sink;
        sink_size     = fabs(weight);
        dense->exp_exact(&sums, &weight, max, 1);
    }
    double scale = 1.0 / sums.sum;
    for (int i = 0; i < n_spans; i++) {
        for (int64_t key = spans[i].begin; key < spans[i].end; key++)
            out[key] = (float)(scores[key] * scale);
    }
    double log_sum = log(sums.sum);
    double mean    = sums.dot / sums.sum;
    return (hl_pattern_row){
        .lse        = max + log_sum,
        .entropy    = log_sum - mean,
        .renyi2     = 2.0 * log_sum - log(sums.squares),
        .varentropy = sums.dot2 / sums.sum - mean * mean,
        .peak       = exp(keys.max - max) / sums.sum,
        .self       = probability(scores, scale, range, position),
        .previous   = probability(scores, scale, range, position - 1),
        .first      = probability(scores, scale, range, 0),
        .max_score  = fmax(keys.max_size, sink_size),
    };
}

hl_status hl_attention_pattern(float *out, double *scores, hl_pattern_row *statistics,
                               const hl_attention *p, int64_t batch, int64_t head, int64_t row)
{
    int64_t           position = hl_attention_query_start(p, batch) + row;
    hl_visible_keys   range    = hl_attention_visible(p, batch, position);
    const float      *sink     = p->sinks != NULL ? p->sinks + head : NULL;
    hl_pattern_row    result   = { .lse = -INFINITY };
    const hl_kernels *kernels  = NULL;

    HL_NEED(hl_kernels_current(&kernels));
    memset(out, 0, (size_t)p->n_keys * sizeof *out);
    if (range.begin < range.end) {
        HL_NEED(row_scores(scores, kernels, p, range, batch, head, row));
        result = softmax(out, scores, kernels->dense, range, sink, position);
    }
    if (statistics != NULL)
        *statistics = result;
    return HL_OK;
}
