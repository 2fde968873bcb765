/* verify_attention.c - golden attention cases on every back end.
 *
 * hl_verify_attention of headlight.h: reads a case (verify_case.h), runs the operator on it
 * on each back end in turn, and lists how far every output is from what the case expects.
 *
 * Running.  Everything that the case's inputs allow is computed, expected or not.  The
 * backward pass is fed with our own forward's out, lse and entropy, as in training, so an
 * error of the forward shows again in the gradients.  Before a run every output is filled
 * with NaN: a kernel that leaves an element out cannot profit from what lay in memory, or
 * from the back end before it.
 *
 * Comparing.  What is allowed is
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
    /* By hl_verify_output, packed, shaped as hl_verify_specs says; NULL for what
     * the inputs do not allow, and for argmax, which is kept apart. */
    float   *values[HL_VERIFY_N_OUTPUTS];
    int64_t *argmax; /* (n_batch, n_heads, n_queries) */
} case_outputs;

/* ------------------------------------------------------------------- outputs */

/* Gates are 1 where there are none, so their gradient exists either way; it is
 * asked for only where the case shows interest. */
static bool is_wanted(const hl_verify_case *golden, hl_verify_output output)
{
    switch (output) {
    case HL_VERIFY_ARGMAX:
        return false; /* not a float */
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

static void outputs_free(case_outputs *outputs)
{
    if (outputs == NULL)
        return;
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++)
        hl_free(outputs->values[output]);
    hl_free(outputs->argmax);
    hl_free(outputs);
}

static hl_status outputs_new(case_outputs **out, const hl_verify_case *golden)
{
    hl_status     status  = HL_OK;
    case_outputs *outputs = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&outputs, 1));
    HL_TRY(HL_ALLOC(&outputs->argmax, hl_verify_count(golden, HL_VERIFY_ARGMAX)));
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        if (is_wanted(golden, output))
            HL_TRY(HL_ALLOC(&outputs->values[output], hl_verify_count(golden, output)));
    }
    *out    = outputs;
    outputs = NULL;

done:
    outputs_free(outputs);
    return status;
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
        .diagonal       = values[HL_VERIFY_DIAGONAL],
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

/* Forward, then backward from that forward's results, on the back end in use. */
static hl_status compute(case_outputs *outputs, const hl_verify_case *golden, int32_t n_threads)
{
    hl_status    status  = HL_OK;
    hl_attention problem = golden->problem;

    problem.n_threads = n_threads;
    forget(outputs, golden);
    HL_TRY(run_forward(outputs, &problem));
    if (golden->has_upstream)
        HL_TRY(run_backward(outputs, &problem, &golden->upstream));

done:
    /* The operator blames its arguments; they came from the file. */
    return status == HL_OK ? HL_OK
                           : hl_fail_within(status == HL_BAD_ARGUMENT ? HL_BAD_INPUT : status, "%s",
                                            golden->where);
}

/* ------------------------------------------------------------------- writing */

/* *data is what the tensor points to, for the caller to free after writing. */
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

/* Stores them under the case's names and dtypes, with the case's options. */
static hl_status write_outputs(const case_outputs *outputs, const hl_verify_case *golden,
                               const char *path)
{
    hl_status              status                    = HL_OK;
    hl_safetensors_writer *writer                    = NULL;
    void                  *data[HL_VERIFY_N_OUTPUTS] = { NULL };

    HL_TRY(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "case", golden->options);
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        if (outputs->values[output] != NULL || output == HL_VERIFY_ARGMAX)
            HL_TRY(add_output(writer, &data[output], outputs, golden, output));
    }
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_safetensors_writer_free(writer);
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++)
        hl_free(data[output]);
    return status;
}

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

/* ---------------------------------------------------------- comparing floats */

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

/* --------------------------------------------------------- comparing arg-max */

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

/* ---------------------------------------------------------- comparing either */

/* Fills in everything but the back end.  The case must expect this output. */
static hl_status compare(hl_verify_entry *out, const case_outputs *ours,
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

/* ------------------------------------------------------------- all back ends */

typedef struct attention_run {
    const hl_verify_case *golden;
    case_outputs         *ours;
    int32_t               n_threads;
} attention_run;

/* Without anything to compare, a case would always pass. */
static hl_status check_purpose(const hl_verify_case *golden, const hl_verify_options *options)
{
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        if (golden->expected[output] != NULL)
            return HL_OK;
    }
    if (options->write_path != NULL)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: holds no expected output to compare with", golden->where);
}

static hl_status add_entries(hl_verify_report *report, const attention_run *run,
                             const char *backend)
{
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        hl_verify_entry entry;

        if (run->golden->expected[output] == NULL)
            continue;
        hl_status status = compare(&entry, run->ours, run->golden, output);
        if (status != HL_OK)
            return status;
        entry.backend = backend;
        hl_verify_report_add(report, &entry);
    }
    return HL_OK;
}

/* A hl_verify_step. */
static hl_status run_case(void *context, hl_verify_report *report, const char *backend,
                          const char *write_path)
{
    attention_run *run = context;

    HL_NEED(compute(run->ours, run->golden, run->n_threads));
    HL_NEED(add_entries(report, run, backend));
    if (write_path != NULL)
        HL_NEED(write_outputs(run->ours, run->golden, write_path));
    return HL_OK;
}

hl_status hl_verify_attention(hl_verify_report **out, const char *path,
                              const hl_verify_options *options)
{
    hl_status               status   = HL_OK;
    const hl_verify_options defaults = { 0 };
    hl_verify_case         *golden   = NULL;
    case_outputs           *ours     = NULL;
    hl_verify_report       *report   = NULL;

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify_attention: path is NULL");
    HL_TRY(hl_verify_case_open(&golden, path));
    HL_TRY(check_purpose(golden, options));
    HL_TRY(outputs_new(&ours, golden));
    HL_TRY(hl_verify_report_new(&report, path, HL_VERIFY_N_OUTPUTS));
    attention_run run = { golden, ours, options->n_threads };
    HL_TRY(hl_verify_backends(report, options, run_case, &run));
    *out   = report;
    report = NULL;

done:
    hl_verify_report_free(report);
    outputs_free(ours);
    hl_verify_case_close(golden);
    return status;
}
