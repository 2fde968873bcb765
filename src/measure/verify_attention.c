/* verify_attention.c - golden attention cases on every back end.
 *
 * Reads a case (verify_case.h), runs the operator on it on each back end in turn, and lists the
 * difference of every output from what the case expects.
 *
 * Running.  Everything that the case's inputs allow is computed, expected or not.  The backward
 * pass gets our own forward pass's out, lse and entropy, as in training, so an error of the forward
 * pass also appears in the gradients.  Before a run every output is filled with NaN: if a kernel
 * leaves an element out, values from the previous back end cannot hide that.
 *
 * Comparing.  Tolerances are in hl_verify_specs.  Each is raised to HL_SCORE_ROUNDING, the rounding
 * error of float scores with any method, if that is larger.
 *
 * Arg-max has no error of its own: it is right or wrong.  But if two keys share the top of a row
 * within rounding, either may win.  A key that differs from the expected one therefore costs the
 * difference of the two scores, recomputed in double from the inputs, and only the rounding term is
 * allowed. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "headlight/verify.h"
#include "kernels/attention.h"
#include "measure/verify.h"
#include "measure/verify_case.h"

typedef struct case_outputs {
    /* Results by hl_verify_output, packed, with the shapes of hl_verify_specs; NULL if the inputs
     * do not allow it, and for argmax, which is kept separately. */
    float   *values[HL_VERIFY_N_OUTPUTS];
    int64_t *argmax; /* (n_batch, n_heads, n_queries) */
} case_outputs;

/* ------------------------------------------------------------------- outputs */

/* Gates are 1 if there are none, so their gradient always exists; it is computed only if the case
 * has gates or expects it. */
static bool is_wanted(const hl_verify_case *golden, hl_verify_output output)
{
    switch (output) {
    case HL_VERIFY_ARGMAX:
        return false; /* argmax is not a float */
    case HL_VERIFY_SEGMENT_MASS:
        return golden->problem.segments != NULL;
    case HL_VERIFY_DGATES:
        return golden->has_upstream &&
               (golden->problem.gates != NULL || golden->expected[output] != NULL);
    case HL_VERIFY_DSINKS:
        return golden->has_upstream && golden->problem.sinks != NULL;
    default:
        return output < HL_VERIFY_DQ || golden->has_upstream;
    }
}

static void free_outputs(case_outputs *outputs)
{
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++)
        hl_free(outputs->values[output]);
    hl_free(outputs->argmax);
}

static hl_status make_outputs(case_outputs *out, const hl_verify_case *golden)
{
    HL_NEED(HL_ALLOC(&out->argmax, hl_verify_count(golden, HL_VERIFY_ARGMAX)));
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        if (is_wanted(golden, output))
            HL_NEED(HL_ALLOC(&out->values[output], hl_verify_count(golden, output)));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- running */

static void forget(case_outputs *outputs, const hl_verify_case *golden)
{
    size_t n_rows = hl_verify_count(golden, HL_VERIFY_ARGMAX);

    for (size_t row = 0; row < n_rows; row++)
        outputs->argmax[row] = INT64_MIN;
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        size_t count = outputs->values[output] == NULL ? 0 : hl_verify_count(golden, output);
        for (size_t i = 0; i < count; i++)
            outputs->values[output][i] = NAN;
    }
}

static hl_status run_forward(case_outputs *outputs, const hl_attention *problem)
{
    float *const       *values = outputs->values;
    hl_attention_result result = {
        .out            = { .data = values[HL_VERIFY_OUT] },
        .lse            = values[HL_VERIFY_LSE],
        .entropy        = values[HL_VERIFY_ENTROPY],
        .renyi2         = values[HL_VERIFY_RENYI2],
        .varentropy     = values[HL_VERIFY_VARENTROPY],
        .entropy_nosink = values[HL_VERIFY_ENTROPY_NOSINK],
        .peak           = values[HL_VERIFY_PEAK],
        .argmax         = outputs->argmax,
        .self           = values[HL_VERIFY_SELF],
        .previous       = values[HL_VERIFY_PREVIOUS],
        .first          = values[HL_VERIFY_FIRST],
        .segment_mass   = values[HL_VERIFY_SEGMENT_MASS],
    };
    return hl_attention_forward(&result, problem);
}

static hl_status run_backward(case_outputs *outputs, const hl_attention *problem,
                              const hl_attention_upstream *gradients)
{
    float *const         *values   = outputs->values;
    hl_attention_upstream upstream = *gradients;
    hl_attention_gradient gradient = {
        .dq     = { .data = values[HL_VERIFY_DQ] },
        .dk     = { .data = values[HL_VERIFY_DK] },
        .dv     = { .data = values[HL_VERIFY_DV] },
        .dgates = values[HL_VERIFY_DGATES],
        .dsinks = values[HL_VERIFY_DSINKS],
    };

    upstream.out.data = values[HL_VERIFY_OUT];
    upstream.lse      = values[HL_VERIFY_LSE];
    upstream.entropy  = values[HL_VERIFY_ENTROPY];
    return hl_attention_backward(&gradient, problem, &upstream);
}

/* Runs the forward pass, then the backward pass on its results, on the back end in use. */
static hl_status compute(case_outputs *outputs, const hl_verify_case *golden, int32_t n_threads)
{
    hl_attention problem = golden->problem;

    problem.n_threads = n_threads;
    forget(outputs, golden);
    hl_status status = run_forward(outputs, &problem);
    if (status == HL_OK && golden->has_upstream)
        status = run_backward(outputs, &problem, &golden->upstream);
    /* The operator reports a bad argument, but the arguments came from the file. */
    return status == HL_OK ? HL_OK
                           : hl_fail_within(status == HL_BAD_ARGUMENT ? HL_BAD_INPUT : status, "%s",
                                            golden->where);
}

/* ------------------------------------------------------------------- writing */

/* *data is what the tensor points to; the caller frees it after writing. */
static hl_status add_output(hl_safetensors_writer *writer, void **data, const case_outputs *outputs,
                            const hl_verify_case *golden, hl_verify_output output)
{
    const hl_verify_spec *spec     = &hl_verify_specs[output];
    const hl_tensor      *expected = golden->expected[output];
    hl_dtype              dtype    = expected != NULL ? expected->dtype : spec->dtype;
    size_t                count    = hl_verify_count(golden, output);
    size_t                n_bytes  = count * (hl_dtype_bits(dtype) / 8);
    hl_tensor             tensor   = { .name = spec->name, .dtype = dtype, .n_bytes = n_bytes };

    HL_NEED(hl_alloc(data, n_bytes, 1));
    if (output == HL_VERIFY_ARGMAX)
        memcpy(*data, outputs->argmax, n_bytes);
    else
        HL_NEED(hl_dtype_from_f32(*data, dtype, outputs->values[output], count));
    for (const char *letter = spec->shape; *letter != '\0'; letter++)
        tensor.shape[tensor.n_dims++] = hl_verify_size(golden, *letter);
    tensor.data = *data;
    hl_safetensors_add(writer, &tensor);
    return HL_OK;
}

/* Stores the results under the case's names and dtypes, with the case's options. */
static hl_status write_outputs(const case_outputs *outputs, const hl_verify_case *golden,
                               const char *path)
{
    hl_status status                    = HL_OK;
    void     *data[HL_VERIFY_N_OUTPUTS] = { NULL };

    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;

    HL_TRY(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "case", golden->options);
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        if (outputs->values[output] != NULL || output == HL_VERIFY_ARGMAX)
            HL_TRY(add_output(writer, &data[output], outputs, golden, output));
    }
    HL_TRY(hl_safetensors_write(writer, path));

done:
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++)
        hl_free(data[output]);
    return status;
}

/* --------------------------------------------------------- comparing arg-max */

typedef struct row_place {
    int64_t batch;
    int64_t head;
    int64_t position; /* position of the row among its keys */
} row_place;

/* Reads row (batch, head, row) of packed rows as doubles. */
static hl_status read_row(double *out, const hl_rows *rows, int64_t index, int64_t d_head)
{
    size_t n_bytes = (size_t)d_head * (hl_dtype_bits(rows->dtype) / 8);

    return hl_dtype_to_f64(out, (const char *)rows->data + (size_t)index * n_bytes, rows->dtype,
                           (size_t)d_head);
}

/* Computes the score of one key in double, as headlight/attention.h defines it. */
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

/* A hl_verify_judge for arg-max: the cost of `ours` if the case expects `theirs`. */
static hl_status judge_argmax(double *cost, const void *context, size_t index, double ours,
                              double theirs)
{
    const hl_attention *p          = context;
    int64_t             row        = (int64_t)index;
    int64_t             batch      = row / (p->n_heads * p->n_queries);
    row_place           place      = { batch, row / p->n_queries % p->n_heads,
                                       hl_attention_query_start(p, batch) + row % p->n_queries };
    hl_visible_keys     visible    = hl_attention_visible(p, batch, place.position);
    double              our_score  = 0.0;
    double              best_score = 0.0;

    *cost = ours == theirs ? 0.0 : (double)INFINITY;
    if (ours == theirs || !hl_visible_has(visible, (int64_t)ours) ||
        !hl_visible_has(visible, (int64_t)theirs))
        return HL_OK;
    HL_NEED(exact_score(&our_score, p, place, row, (int64_t)ours));
    HL_NEED(exact_score(&best_score, p, place, row, (int64_t)theirs));
    *cost = hl_verify_difference(our_score, best_score);
    return HL_OK;
}

/* ------------------------------------------------------------- all back ends */

typedef struct attention_run {
    const hl_verify_case *golden;
    case_outputs         *ours;
    int32_t               n_threads;
} attention_run;

/* A case with nothing to compare would always pass. */
static hl_status check_purpose(const hl_verify_case *golden, const hl_verify_options *options)
{
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        if (golden->expected[output] != NULL)
            return HL_OK;
    }
    if (options->write_path != NULL)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: no expected output to compare with", golden->where);
}

static hl_status add_entries(hl_verify_report *report, const attention_run *run,
                             const char *backend)
{
    const hl_verify_case *golden   = run->golden;
    double                rounding = HL_SCORE_ROUNDING * golden->max_score;

    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        const hl_verify_spec *spec = &hl_verify_specs[output];
        hl_verify_pair        pair = { .output    = spec->name,
                                       .ours      = run->ours->values[output],
                                       .theirs    = golden->expected[output],
                                       .tolerance = fmax(spec->tolerance, rounding),
                                       .relative  = spec->relative };

        if (output == HL_VERIFY_ARGMAX) {
            pair.whole   = run->ours->argmax;
            pair.judge   = judge_argmax;
            pair.context = &golden->problem;
        }
        if (pair.theirs != NULL)
            HL_NEED(hl_verify_compare(report, backend, &pair));
    }
    return HL_OK;
}

/* A hl_verify_step: runs the case, compares, and writes results if requested. */
static hl_status run_case(void *context, hl_verify_report *report, const char *backend,
                          const char *write_path)
{
    attention_run *run = context;

    HL_NEED(compute(run->ours, run->golden, run->n_threads));
    HL_NEED(add_entries(report, run, backend));
    return write_path != NULL ? write_outputs(run->ours, run->golden, write_path) : HL_OK;
}

hl_status hl_verify_attention(hl_verify_report **out, const char *path,
                              const hl_verify_options *options)
{
    const hl_verify_options defaults = { 0 };

    HL_CLOSED(hl_verify_case_close) hl_verify_case    *golden = NULL;
    HL_SCOPED(free_outputs) case_outputs               ours   = { { NULL }, NULL };
    HL_CLOSED(hl_verify_report_free) hl_verify_report *report = NULL;

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify_attention: path is NULL");
    HL_NEED(hl_verify_case_open(&golden, path));
    HL_NEED(check_purpose(golden, options));
    HL_NEED(make_outputs(&ours, golden));
    HL_NEED(hl_verify_report_new(&report, path, HL_VERIFY_N_OUTPUTS));
    attention_run run = { golden, &ours, options->n_threads };
    HL_NEED(hl_verify_backends(report, options, run_case, &run));
    *out = hl_taken(&report);
    return HL_OK;
}
