/* verify_outputs.c - running the operator on a golden case.
 *
 * The backward pass is fed with our own forward's out, lse and entropy, as in
 * training, so an error of the forward shows again in the gradients.
 *
 * Before a run every output is filled with NaN: a kernel that leaves an element
 * out cannot profit from what lay in memory, or from the back end before it. */
#include "measure/verify_outputs.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"

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

hl_status hl_verify_outputs_new(hl_verify_outputs **out, const hl_verify_case *golden)
{
    hl_status          status  = HL_OK;
    hl_verify_outputs *outputs = NULL;

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
    hl_verify_outputs_free(outputs);
    return status;
}

void hl_verify_outputs_free(hl_verify_outputs *outputs)
{
    if (outputs == NULL)
        return;
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++)
        hl_free(outputs->values[output]);
    hl_free(outputs->argmax);
    hl_free(outputs);
}

/* ------------------------------------------------------------------ running */

static void forget(hl_verify_outputs *outputs, const hl_verify_case *golden)
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

static hl_status run_forward(hl_verify_outputs *outputs, const hl_attention *problem)
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

static hl_status run_backward(hl_verify_outputs *outputs, const hl_attention *problem,
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

hl_status hl_verify_outputs_compute(hl_verify_outputs *outputs, const hl_verify_case *golden,
                                    int32_t n_threads)
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

/* ------------------------------------------------------------------ writing */

/* *data is what the tensor points to, for the caller to free after writing. */
static hl_status add_output(hl_safetensors_writer *writer, void **data,
                            const hl_verify_outputs *outputs, const hl_verify_case *golden,
                            hl_verify_output output)
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

hl_status hl_verify_outputs_write(const hl_verify_outputs *outputs, const hl_verify_case *golden,
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
