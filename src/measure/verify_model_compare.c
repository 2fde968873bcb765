/* verify_model_compare.c - a model's outputs beside the expected ones.
 *
 * Tolerances are in hl_model_specs.  Scores of size |s| are wrong by about
 * |s| 2^-24 whatever the method, so what follows from scores is allowed
 * 8 * 2^-24 * max|s| where that is more.  The lens' top token is right or wrong,
 * except where the first two are within the tolerance of each other: then a wrong
 * one costs their distance. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/verify.h"
#include "measure/verify_model.h"

#define SCORE_ROUNDING (8.0 / 16777216.0)

static double top_error(double ours, double wanted, double gap)
{
    if (ours == wanted)
        return 0.0;
    return isnan(ours) ? INFINITY : gap;
}

/* Is item `index` of [L, B, H, S] a row behind its sequence's end? */
static bool is_padding(const hl_verify_results *results, size_t index)
{
    size_t n_tokens = (size_t)results->n_tokens;
    size_t sequence = index / n_tokens / (size_t)results->info->n_heads % (size_t)results->n_batch;

    return (int64_t)(index % n_tokens) >= results->lengths[sequence];
}

/* A file says NaN where a row does not define a probability, the operator 0. */
static double row_difference(double ours, double wanted)
{
    return isnan(wanted) && ours == 0.0 ? 0.0 : hl_verify_difference(ours, wanted);
}

static hl_status output_error(double *out, const hl_verify_results *results, hl_model_output output)
{
    hl_status               status  = HL_OK;
    const hl_verify_values *values  = &results->outputs[output];
    double                 *wanted  = NULL;
    double                  error   = 0.0;
    double                  largest = 0.0;

    HL_TRY(HL_ALLOC(&wanted, values->count));
    HL_TRY(hl_dtype_to_f64(wanted, values->expected->data, values->expected->dtype, values->count));
    for (size_t i = 0; i < values->count; i++) {
        double ours = (double)values->values[i];
        double mine = 0.0;
        if (output < HL_MODEL_N_STATISTICS && is_padding(results, i))
            continue;
        if (output == HL_MODEL_LENS_TOP)
            mine = top_error(ours, wanted[i], (double)results->lens_gap[i]);
        else if (output == HL_MODEL_PREVIOUS || output == HL_MODEL_DIAGONAL ||
                 output == HL_MODEL_FIRST)
            mine = row_difference(ours, wanted[i]);
        else
            mine = hl_verify_difference(ours, wanted[i]);
        error   = fmax(error, mine);
        largest = fmax(largest, fabs(wanted[i]));
    }
    *out = hl_model_specs[output].relative && largest > 0.0 ? error / largest : error;

done:
    hl_free(wanted);
    return status;
}

static hl_verify_entry make_entry(const hl_verify_results *results, hl_model_output output,
                                  const char *backend, double error)
{
    const hl_model_spec *spec     = &hl_model_specs[output];
    double               rounding = SCORE_ROUNDING * results->max_score;

    return (hl_verify_entry){
        .backend   = backend,
        .output    = spec->name,
        .error     = error,
        .tolerance = spec->scored ? fmax(spec->tolerance, rounding) : spec->tolerance,
        .relative  = spec->relative,
    };
}

hl_status hl_verify_results_compare(hl_verify_report *report, const hl_verify_results *results,
                                    const char *backend)
{
    for (hl_model_output output = 0; output < HL_MODEL_N_OUTPUTS; output++) {
        const hl_verify_values *values = &results->outputs[output];
        double                  error  = values->exact_error;
        hl_verify_entry         entry;

        if (!results->alone && values->expected == NULL)
            continue;
        if (results->alone && output >= HL_MODEL_N_STATISTICS)
            continue;
        if (!results->alone) {
            hl_status status = output_error(&error, results, output);
            if (status != HL_OK)
                return status;
        }
        entry = make_entry(results, output, backend, error);
        hl_verify_report_add(report, &entry);
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- writing */

/* *data is what the tensor points to, for the caller to free after writing. */
static hl_status add_output(hl_safetensors_writer *writer, void **data,
                            const hl_verify_results *results, hl_model_output output)
{
    const hl_verify_values *values = &results->outputs[output];
    const hl_model_spec    *spec   = &hl_model_specs[output];
    bool                    whole  = output == HL_MODEL_LENS_TOP;
    hl_tensor tensor = { .name = spec->name, .dtype = whole ? HL_DTYPE_I64 : HL_DTYPE_F32 };

    tensor.n_bytes = values->count * hl_dtype_bits(tensor.dtype) / 8;
    HL_NEED(hl_alloc(data, tensor.n_bytes, 1));
    for (size_t i = 0; i < values->count && whole; i++)
        ((int64_t *)*data)[i] = (int64_t)values->values[i];
    if (!whole)
        memcpy(*data, values->values, tensor.n_bytes);
    for (const char *letter = spec->shape; *letter != '\0'; letter++)
        tensor.shape[tensor.n_dims++] = hl_verify_results_size(results, *letter);
    tensor.data = *data;
    hl_safetensors_add(writer, &tensor);
    return HL_OK;
}

static void add_inputs(hl_safetensors_writer *writer, const hl_verify_results *results)
{
    const hl_tensor *masked =
        results->expected != NULL ? hl_safetensors_find(results->expected, "masked_heads") : NULL;
    size_t    count  = (size_t)(results->n_batch * results->n_tokens);
    hl_tensor tokens = { .name    = "tokens",
                         .dtype   = HL_DTYPE_I64,
                         .n_dims  = 2,
                         .shape   = { results->n_batch, results->n_tokens },
                         .data    = results->tokens,
                         .n_bytes = count * sizeof *results->tokens };

    hl_safetensors_add(writer, &tokens);
    if (masked != NULL)
        hl_safetensors_add(writer, masked);
    hl_safetensors_add_metadata(writer, "family", results->info->family);
}

hl_status hl_verify_results_write(const hl_verify_results *results, const char *path)
{
    hl_status              status                   = HL_OK;
    hl_safetensors_writer *writer                   = NULL;
    void                  *data[HL_MODEL_N_OUTPUTS] = { NULL };

    HL_TRY(hl_safetensors_writer_new(&writer));
    add_inputs(writer, results);
    for (hl_model_output output = 0; output < HL_MODEL_N_OUTPUTS; output++) {
        if (results->outputs[output].values != NULL)
            HL_TRY(add_output(writer, &data[output], results, output));
    }
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_safetensors_writer_free(writer);
    for (int output = 0; output < HL_MODEL_N_OUTPUTS; output++)
        hl_free(data[output]);
    return status;
}
