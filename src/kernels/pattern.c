/* pattern.c - scores, softmax and statistics of one row, by definition. */
#include "kernels/pattern.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"

/* The row's q and one key, as doubles. */
typedef struct row_operands {
    double q[HL_MAX_HEAD_DIM];
    double k[HL_MAX_HEAD_DIM];
} row_operands;

static int64_t first_of(hl_visible_keys range)
{
    return hl_visible_from(range, 0);
}

static int64_t after(hl_visible_keys range, int64_t key)
{
    return hl_visible_from(range, key + 1);
}

static hl_status read_row(double *out, const hl_rows *rows, int64_t offset, int64_t n)
{
    size_t size = hl_dtype_bits(rows->dtype) / 8;
    return hl_dtype_to_f64(out, (const char *)rows->data + (size_t)offset * size, rows->dtype,
                           (size_t)n);
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

/* out[key] for the keys of `range`. */
static hl_status row_scores(double *out, const hl_attention *p, hl_visible_keys range,
                            int64_t batch, int64_t head, int64_t row)
{
    hl_status    status   = HL_OK;
    row_operands operands = { { 0 }, { 0 } };
    int64_t      kv_head  = head / (p->n_heads / p->n_kv_heads);
    int64_t      position = hl_attention_query_start(p, batch) + row;

    const hl_kernels *kernels = NULL;

    HL_TRY(hl_kernels_current(&kernels));
    HL_TRY(read_row(operands.q, &p->q, hl_rows_offset(&p->q, batch, head, row), p->d_head));
    for (int64_t key = first_of(range); key < range.end; key = after(range, key)) {
        int64_t offset = hl_rows_offset(&p->k, batch, kv_head, key);
        double  dot;

        if (p->k.dtype == HL_DTYPE_F32) {
            dot =
                kernels->dense->dot_exact(operands.q, (const float *)p->k.data + offset, p->d_head);
        } else {
            HL_TRY(read_row(operands.k, &p->k, offset, p->d_head));
            dot = dot_f64(operands.q, operands.k, p->d_head);
        }
        out[key] = finish_score(dot, p, head, key, position);
    }

done:
    return status;
}

/* log(sum of e^s) over the keys and the sink. */
static double log_sum(const double *scores, hl_visible_keys range, const float *sink)
{
    double max = sink != NULL ? (double)*sink : -INFINITY;
    double sum = 0.0;

    for (int64_t key = first_of(range); key < range.end; key = after(range, key))
        max = fmax(max, scores[key]);
    if (max == -INFINITY)
        return -INFINITY;
    for (int64_t key = first_of(range); key < range.end; key = after(range, key))
        sum += exp(scores[key] - max);
    if (sink != NULL)
        sum += exp((double)*sink - max);
    return max + log(sum);
}

/* p = e^(score - lse). */
static void add_outcome(hl_pattern_row *row, double *squares, double score, double p)
{
    if (p > 0.0) {
        row->entropy -= p * (score - row->lse);
        row->varentropy += p * (score - row->lse) * (score - row->lse);
        *squares += p * p;
    }
    row->max_score = fmax(row->max_score, fabs(score));
}

/* Scores become probabilities on the way. */
static void summarise(hl_pattern_row *row, double *scores, hl_visible_keys range, const float *sink,
                      int64_t position)
{
    double squares = 0.0;

    for (int64_t key = first_of(range); key < range.end; key = after(range, key)) {
        double p = exp(scores[key] - row->lse);
        add_outcome(row, &squares, scores[key], p);
        row->peak     = fmax(row->peak, p);
        row->diagonal = key == position ? p : row->diagonal;
        row->previous = key == position - 1 ? p : row->previous;
        row->first    = key == 0 ? p : row->first;
        scores[key]   = p;
    }
    if (sink != NULL)
        add_outcome(row, &squares, (double)*sink, exp((double)*sink - row->lse));
    row->renyi2 = -log(squares);
    row->varentropy -= row->entropy * row->entropy;
}

hl_status hl_attention_pattern(double *out, hl_pattern_row *statistics, const hl_attention *p,
                               int64_t batch, int64_t head, int64_t row)
{
    int64_t         position = hl_attention_query_start(p, batch) + row;
    hl_visible_keys range    = hl_attention_visible(p, batch, position);
    const float    *sink     = p->sinks != NULL ? p->sinks + head : NULL;
    hl_pattern_row  result   = { .lse = -INFINITY };

    memset(out, 0, (size_t)p->n_keys * sizeof *out);
    if (range.begin < range.end) {
        hl_status status = row_scores(out, p, range, batch, head, row);
        if (status != HL_OK)
            return status;
        result.lse = log_sum(out, range, sink);
        summarise(&result, out, range, sink, position);
    }
    if (statistics != NULL)
        *statistics = result;
    return HL_OK;
}
