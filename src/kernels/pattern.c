/* pattern.c - scores, softmax and statistics of one row, by definition. */
#include "kernels/pattern.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"

/* The row's q and, unless keys are floats, one key. */
typedef struct row_operands {
    double q[HL_MAX_HEAD_DIM];
    double k[HL_MAX_HEAD_DIM];
} row_operands;

static const void *row_address(const hl_rows *rows, int64_t offset)
{
    return (const char *)rows->data + (size_t)offset * (hl_dtype_bits(rows->dtype) / 8);
}

static double finish_score(double dot, const hl_attention *p, int64_t head, int64_t key,
                           int64_t position)
{
    double score = p->scale * dot;

    if (p->softcap > 0.0)
        score = p->softcap * tanh(score / p->softcap);
    if (p->alibi_slopes != NULL)
        score += (double)p->alibi_slopes[head] * (double)(key - position);
    if (p->key_bias != NULL)
        score += (double)p->key_bias[head * p->n_keys + key];
    return score;
}

/* An interval of the visible keys: one, or two where a window leaves the first keys open. */
typedef struct key_span {
    int64_t begin;
    int64_t end;
} key_span;

static int list_spans(key_span out[2], hl_visible_keys range)
{
    int n_spans = 0;

    if (range.kept > 0)
        out[n_spans++] = (key_span){ 0, range.kept };
    if (range.begin < range.end)
        out[n_spans++] = (key_span){ range.begin, range.end };
    return n_spans;
}

/* In four sums: a row of a long context is the work of millions of these. */
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

/* q times the keys of `span`, to out[key]. */
static hl_status span_dots(double *out, const hl_kernels *kernels, const hl_attention *p,
                           row_operands *operands, int64_t first, key_span span)
{
    hl_status status = HL_OK;
    int64_t   d      = p->d_head;

    if (p->k.dtype == HL_DTYPE_F32) {
        const float *k = (const float *)p->k.data + first + span.begin * p->k.row_stride;
        kernels->dense->dots_exact(out + span.begin, operands->q, k, p->k.row_stride,
                                   span.end - span.begin, d);
        return HL_OK;
    }
    for (int64_t key = span.begin; key < span.end; key++) {
        HL_TRY(hl_dtype_to_f64(operands->k, row_address(&p->k, first + key * p->k.row_stride),
                               p->k.dtype, (size_t)d));
        out[key] = dot_f64(operands->q, operands->k, d);
    }

done:
    return status;
}

/* out[key] for the keys of `range`. */
static hl_status row_scores(double *out, const hl_kernels *kernels, const hl_attention *p,
                            hl_visible_keys range, int64_t batch, int64_t head, int64_t row)
{
    hl_status    status   = HL_OK;
    row_operands operands = { { 0 }, { 0 } };
    int64_t      first    = hl_rows_offset(&p->k, batch, head / (p->n_heads / p->n_kv_heads), 0);
    int64_t      position = hl_attention_query_start(p, batch) + row;
    key_span     spans[2];
    int          n_spans = list_spans(spans, range);

    HL_TRY(hl_dtype_to_f64(operands.q, row_address(&p->q, hl_rows_offset(&p->q, batch, head, row)),
                           p->q.dtype, (size_t)p->d_head));
    for (int i = 0; i < n_spans; i++) {
        HL_TRY(span_dots(out, kernels, p, &operands, first, spans[i]));
        for (int64_t key = spans[i].begin; key < spans[i].end; key++)
            out[key] = finish_score(out[key], p, head, key, position);
    }

done:
    return status;
}

/* ----------------------------------------------------------------------- sums */

/* The sums of row_state.h in double, over all outcomes relative to the largest score. */
typedef struct row_sums {
    double max;
    double sum;
    double dot;
    double dot2;
    double squares;
    double max_key; /* without the sink */
    double max_size;
} row_sums;

static void add_outcome(row_sums *sums, double offset, double weight)
{
    sums->sum += weight;
    sums->squares += weight * weight;
    if (weight > 0.0) { /* 0 * -inf is NaN */
        sums->dot += weight * offset;
        sums->dot2 += weight * offset * offset;
    }
}

/* The same of many: as vectors, where no weight is 0 for want of digits. */
static void add_block(row_sums *sums, const double *offsets, const double *weights, int64_t n)
{
    double sum = 0.0, dot = 0.0, dot2 = 0.0, squares = 0.0;

#pragma omp simd reduction(+ : sum, dot, dot2, squares)
    for (int64_t i = 0; i < n; i++) {
        double product = weights[i] > 0.0 ? weights[i] * offsets[i] : 0.0;
        sum += weights[i];
        squares += weights[i] * weights[i];
        dot += product;
        dot2 += weights[i] > 0.0 ? product * offsets[i] : 0.0;
    }
    *sums = (row_sums){ .sum = sum, .dot = dot, .dot2 = dot2, .squares = squares };
}

/* In four parts, as vectors; what is not a number is passed over, and found by the sums. */
static void find_largest(row_sums *sums, const double *scores, key_span span)
{
    double max[4]  = { sums->max_key, sums->max_key, sums->max_key, sums->max_key };
    double size[4] = { sums->max_size, sums->max_size, sums->max_size, sums->max_size };

    for (int64_t key = span.begin; key < span.end; key += 4) {
        for (int i = 0; i < 4 && key + i < span.end; i++) {
            double score = scores[key + i];
            max[i]       = score > max[i] ? score : max[i];
            size[i]      = fabs(score) > size[i] ? fabs(score) : size[i];
        }
    }
    sums->max_key  = fmax(fmax(max[0], max[1]), fmax(max[2], max[3]));
    sums->max_size = fmax(fmax(size[0], size[1]), fmax(size[2], size[3]));
}

/* Scores become weights e^(s - max) on the way. */
static void add_span(row_sums *sums, const hl_dense *dense, double *scores, key_span span)
{
    enum { BLOCK = 256 };
    double offsets[BLOCK];

    for (int64_t begin = span.begin; begin < span.end; begin += BLOCK) {
        int64_t  n       = span.end - begin < BLOCK ? span.end - begin : BLOCK;
        double  *weights = scores + begin;
        row_sums own     = { 0 };

        for (int64_t i = 0; i < n; i++)
            offsets[i] = weights[i] - sums->max;
        dense->exp_exact(weights, sums->max, n);
        add_block(&own, offsets, weights, n);
        sums->sum += own.sum;
        sums->dot += own.dot;
        sums->dot2 += own.dot2;
        sums->squares += own.squares;
    }
}

static double probability(const double *p, hl_visible_keys range, int64_t key)
{
    return hl_visible_has(range, key) ? p[key] : 0.0;
}

/* From scores to probabilities, and what they come to. */
static hl_pattern_row softmax(double *scores, const hl_dense *dense, hl_visible_keys range,
                              const float *sink, int64_t position)
{
    row_sums sums = { .max_key = -INFINITY };
    key_span spans[2];
    int      n_spans = list_spans(spans, range);

    for (int i = 0; i < n_spans; i++)
        find_largest(&sums, scores, spans[i]);
    sums.max = sink != NULL && (double)*sink > sums.max_key ? (double)*sink : sums.max_key;
    for (int i = 0; i < n_spans; i++)
        add_span(&sums, dense, scores, spans[i]);
    if (sink != NULL)
        add_outcome(&sums, (double)*sink - sums.max, exp((double)*sink - sums.max));
    double scale = 1.0 / sums.sum;
    for (int i = 0; i < n_spans; i++) {
        for (int64_t key = spans[i].begin; key < spans[i].end; key++)
            scores[key] *= scale;
    }
    return (hl_pattern_row){
        .lse        = sums.max + log(sums.sum),
        .entropy    = log(sums.sum) - sums.dot / sums.sum,
        .renyi2     = 2.0 * log(sums.sum) - log(sums.squares),
        .varentropy = sums.dot2 / sums.sum - sums.dot / sums.sum * (sums.dot / sums.sum),
        .peak       = exp(sums.max_key - sums.max) / sums.sum,
        .diagonal   = probability(scores, range, position),
        .previous   = probability(scores, range, position - 1),
        .first      = probability(scores, range, 0),
        .max_score  = sink != NULL ? fmax(sums.max_size, fabs((double)*sink)) : sums.max_size,
    };
}

hl_status hl_attention_pattern(double *out, hl_pattern_row *statistics, const hl_attention *p,
                               int64_t batch, int64_t head, int64_t row)
{
    int64_t           position = hl_attention_query_start(p, batch) + row;
    hl_visible_keys   range    = hl_attention_visible(p, batch, position);
    const float      *sink     = p->sinks != NULL ? p->sinks + head : NULL;
    hl_pattern_row    result   = { .lse = -INFINITY };
    const hl_kernels *kernels  = NULL;
    hl_status         status   = HL_OK;

    HL_TRY(hl_kernels_current(&kernels));
    memset(out, 0, (size_t)p->n_keys * sizeof *out);
    if (range.begin < range.end) {
        HL_TRY(row_scores(out, kernels, p, range, batch, head, row));
        result = softmax(out, kernels->dense, range, sink, position);
    }
    if (statistics != NULL)
        *statistics = result;

done:
    return status;
}
