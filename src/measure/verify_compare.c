/* verify_compare.c - the largest error of an output, and what is allowed.
 *
 *     lse and the entropies        2e-5 nats
 *     probabilities                1e-5
 *     out                          1e-5 of the largest |out|
 *     gradients                    1e-4 of the largest of that tensor
 *
 * each widened, where that is more, to the rounding that float scores bring
 * with them whatever the method: 8 * 2^-24 * max|score|.
 *
 * Arg-max has no error of its own: it is right or wrong.  But where two keys
 * share the top of a row within rounding, either may win, so a key that differs
 * from the expected one costs the difference of the two scores, recomputed in
 * double from the inputs, and only the rounding term is allowed. */
#include "measure/verify_compare.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "measure/verify.h"

/* 8 * 2^-24 of the largest score: metrics.md, "Rounding". */
#define SCORE_ROUNDING (8.0 / 16777216.0)

typedef struct tolerance {
    double value;
    bool   relative;
} tolerance;

static tolerance stated_tolerance(hl_verify_output output)
{
    switch (output) {
    case HL_VERIFY_OUT:
        return (tolerance){ 1e-5, true };
    case HL_VERIFY_LSE:
    case HL_VERIFY_ENTROPY:
    case HL_VERIFY_RENYI2:
    case HL_VERIFY_VARENTROPY:
    case HL_VERIFY_ENTROPY_NOSINK:
        return (tolerance){ 2e-5, false };
    case HL_VERIFY_ARGMAX:
        return (tolerance){ 0.0, false };
    case HL_VERIFY_DQ:
    case HL_VERIFY_DK:
    case HL_VERIFY_DV:
    case HL_VERIFY_DGATES:
    case HL_VERIFY_DSINKS:
        return (tolerance){ 1e-4, true };
    default: /* probabilities */
        return (tolerance){ 1e-5, false };
    }
}

/* ------------------------------------------------------------------- floats */

static hl_status float_error(double *out, const float *ours, const hl_tensor *expected,
                             bool relative)
{
    hl_status status  = HL_OK;
    double   *wanted  = NULL;
    size_t    count   = (size_t)hl_tensor_count(expected);
    double    error   = 0.0;
    double    largest = 0.0;

    HL_TRY(HL_ALLOC(&wanted, count));
    HL_TRY(hl_dtype_to_f64(wanted, expected->data, expected->dtype, count));
    for (size_t i = 0; i < count; i++) {
        error   = fmax(error, hl_verify_difference(ours[i], wanted[i]));
        largest = fmax(largest, fabs(wanted[i]));
    }
    *out = relative && largest > 0.0 ? error / largest : error;

done:
    hl_free(wanted);
    return status;
}

/* ------------------------------------------------------------------ arg-max */

typedef struct row_place {
    int64_t batch;
    int64_t head;
    int64_t position; /* of the row among its keys */
} row_place;

/* Row (batch, head, row) of packed rows as doubles. */
static hl_status read_row(double *out, const hl_rows *rows, int64_t index, int64_t d_head)
{
    size_t n_bytes = (size_t)d_head * (hl_dtype_bits(rows->dtype) / 8);

    return hl_dtype_to_f64(out, (const char *)rows->data + (size_t)index * n_bytes, rows->dtype,
                           (size_t)d_head);
}

/* The score of one key, as the top of headlight.h defines it, in double. */
static hl_status exact_score(double *out, const hl_attention *p, row_place place, int64_t q_row,
                             int64_t key)
{
    int64_t kv_head = place.head / (p->n_heads / p->n_kv_heads);
    int64_t k_row   = (place.batch * p->n_kv_heads + kv_head) * p->n_keys + key;
    double  q[HL_MAX_HEAD_DIM], k[HL_MAX_HEAD_DIM];
    double  score = 0.0;

    HL_NEED(read_row(q, &p->q, q_row, p->d_head));
    HL_NEED(read_row(k, &p->k, k_row, p->d_head));
    for (int64_t d = 0; d < p->d_head; d++)
        score += q[d] * k[d];
    score *= p->scale;
    if (p->softcap > 0.0)
        score = p->softcap * tanh(score / p->softcap);
    if (p->alibi_slopes != NULL)
        score += (double)p->alibi_slopes[place.head] * (double)(key - place.position);
    if (p->key_bias != NULL)
        score += (double)p->key_bias[place.head * p->n_keys + key];
    *out = score;
    return HL_OK;
}

/* What it costs that we said `ours` where the case says `wanted`. */
static hl_status argmax_row_error(double *out, const hl_attention *p, int64_t row, int64_t ours,
                                  int64_t wanted)
{
    int64_t   batch      = row / (p->n_heads * p->n_queries);
    int64_t   query      = row % p->n_queries;
    row_place place      = { batch, row / p->n_queries % p->n_heads,
                             hl_attention_query_start(p, batch) + query };
    double    our_score  = 0.0;
    double    best_score = 0.0;

    hl_visible_keys visible = hl_attention_visible(p, batch, place.position);
    *out                    = INFINITY;
    if (!hl_visible_has(visible, ours) || !hl_visible_has(visible, wanted))
        return HL_OK;
    HL_NEED(exact_score(&our_score, p, place, row, ours));
    HL_NEED(exact_score(&best_score, p, place, row, wanted));
    *out = hl_verify_difference(our_score, best_score);
    return HL_OK;
}

static hl_status argmax_error(double *out, const int64_t *ours, const hl_verify_case *golden)
{
    hl_status        status   = HL_OK;
    const hl_tensor *expected = golden->expected[HL_VERIFY_ARGMAX];
    size_t           n_rows   = (size_t)hl_tensor_count(expected);
    int64_t         *wanted   = NULL;
    double           largest  = 0.0;

    HL_TRY(HL_ALLOC(&wanted, n_rows)); /* the tensor itself may be unaligned */
    if (n_rows != 0)
        memcpy(wanted, expected->data, expected->n_bytes);
    for (size_t row = 0; row < n_rows; row++) {
        double error = 0.0;
        if (ours[row] != wanted[row])
            HL_TRY(
                argmax_row_error(&error, &golden->problem, (int64_t)row, ours[row], wanted[row]));
        largest = fmax(largest, error);
    }
    *out = largest;

done:
    hl_free(wanted);
    return status;
}

/* ------------------------------------------------------------------- both */

hl_status hl_verify_compare(hl_verify_entry *out, const hl_verify_outputs *ours,
                            const hl_verify_case *golden, hl_verify_output output)
{
    tolerance       allowed = stated_tolerance(output);
    hl_verify_entry entry   = { .output = hl_verify_specs[output].name };

    entry.tolerance = fmax(allowed.value, SCORE_ROUNDING * golden->max_score);
    entry.relative  = allowed.relative;
    if (output == HL_VERIFY_ARGMAX)
        HL_NEED(argmax_error(&entry.error, ours->argmax, golden));
    else
        HL_NEED(float_error(&entry.error, ours->values[output], golden->expected[output],
                            allowed.relative));
    *out = entry;
    return HL_OK;
}
