/* verify_model.c - a model against what another program computed with it.
 *
 * hl_verify_model of headlight.h.  The expected file has tokens [B,S], I64 or I32, and any of
 * the tensors in hl_model_specs; others are passed over.  Without such a file
 * tokens are made up, and what is compared are the fused statistics of rows
 * with those of the same rows materialised in double precision, from the same
 * queries and keys. */
#include "measure/verify_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/status.h"
#include "measure/verify.h"

enum {
    MADE_UP_TOKENS = 64,  /* where nothing is expected */
    MAX_POSITIONS  = 512, /* whose rows are materialised */
};

const hl_model_spec hl_model_specs[HL_MODEL_N_OUTPUTS] = {
    [HL_MODEL_ENTROPY]       = { "entropy", "LBHS", 1e-4, false, true },
    [HL_MODEL_RENYI2]        = { "renyi2", "LBHS", 1e-4, false, true },
    [HL_MODEL_VARENTROPY]    = { "varentropy", "LBHS", 1e-4, false, true },
    [HL_MODEL_PEAK]          = { "peak", "LBHS", 1e-5, false, true },
    [HL_MODEL_DIAGONAL]      = { "diagonal", "LBHS", 1e-5, false, true },
    [HL_MODEL_PREVIOUS]      = { "previous", "LBHS", 1e-5, false, true },
    [HL_MODEL_FIRST]         = { "first", "LBHS", 1e-5, false, true },
    [HL_MODEL_LSE]           = { "lse", "LBHS", 1e-4, false, true },
    [HL_MODEL_PATTERN0]      = { "pattern0", "HSS", 1e-5, false, true },
    [HL_MODEL_HIDDEN]        = { "hidden", "BSD", 2e-4, true, false },
    [HL_MODEL_LOGITS]        = { "logits", "BSV", 2e-4, true, false },
    [HL_MODEL_LOGITS_LAST]   = { "logits_last", "BV", 2e-4, true, false },
    [HL_MODEL_NLL]           = { "nll", "BT", 1e-3, false, false },
    [HL_MODEL_MASKED_HIDDEN] = { "masked_hidden", "BSD", 2e-4, true, false },
    [HL_MODEL_MASKED_LOGITS] = { "masked_logits", "BSV", 2e-4, true, false },
    [HL_MODEL_LENS_TOP]      = { "lens_top", "MS", 1e-4, false, false },
    [HL_MODEL_LENS_ENTROPY]  = { "lens_entropy", "MS", 1e-3, false, false },
};

int64_t hl_verify_results_size(const hl_verify_results *results, char letter)
{
    switch (letter) {
    case 'L':
        return results->info->n_layers;
    case 'M':
        return results->info->n_layers + 1;
    case 'B':
        return results->n_batch;
    case 'S':
        return results->n_tokens;
    case 'T':
        return results->n_tokens - 1;
    case 'H':
        return results->info->n_heads;
    case 'V':
        return results->info->d_vocab;
    default:
        return results->info->d_model;
    }
}

/* -------------------------------------------------------------------- reading */

static bool is_whole(const hl_tensor *tensor)
{
    return tensor->dtype == HL_DTYPE_I64 || tensor->dtype == HL_DTYPE_I32;
}

/* Item `index` of a tensor that is_whole.  Tensors may lie at any byte. */
static int64_t whole_at(const hl_tensor *tensor, int64_t index)
{
    const char *data = tensor->data;
    int64_t     wide;
    int32_t     narrow;

    if (tensor->dtype == HL_DTYPE_I64) {
        memcpy(&wide, data + (size_t)index * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, data + (size_t)index * sizeof narrow, sizeof narrow);
    return narrow;
}

static hl_status read_tokens(hl_verify_results *results)
{
    const hl_tensor *tokens = hl_safetensors_find(results->expected, "tokens");

    if (tokens == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: no tensor 'tokens'", results->where);
    if (!is_whole(tokens) || tokens->n_dims != 2 || tokens->shape[0] < 1 || tokens->shape[1] < 1)
        return hl_fail(HL_BAD_INPUT,
                       "%s: 'tokens' is %s with %d dimensions, wanted I64 or I32 of shape [B, S]",
                       results->where, hl_dtype_name(tokens->dtype), tokens->n_dims);
    results->n_batch  = tokens->shape[0];
    results->n_tokens = tokens->shape[1];
    HL_NEED(HL_ALLOC(&results->tokens, (size_t)hl_tensor_count(tokens)));
    for (int64_t i = 0; i < hl_tensor_count(tokens); i++)
        results->tokens[i] = whole_at(tokens, i);
    return HL_OK;
}

/* lengths [B], as `measure --rows` writes them: rows behind them are padding.  Without, none is. */
static hl_status read_lengths(hl_verify_results *results)
{
    const hl_tensor *lengths = hl_safetensors_find(results->expected, "lengths");

    if (lengths != NULL &&
        (!is_whole(lengths) || lengths->n_dims != 1 || lengths->shape[0] != results->n_batch))
        return hl_fail(HL_BAD_INPUT, "%s: 'lengths' is not I64 or I32 of shape [%lld]",
                       results->where, (long long)results->n_batch);
    HL_NEED(HL_ALLOC(&results->lengths, (size_t)results->n_batch));
    for (int64_t i = 0; i < results->n_batch; i++) {
        results->lengths[i] = lengths != NULL ? whole_at(lengths, i) : results->n_tokens;
        if (results->lengths[i] < 0 || results->lengths[i] > results->n_tokens)
            HL_NEED(hl_fail(HL_BAD_INPUT,
                            "%s: 'lengths' has %lld for sequence %lld, wanted 0 to %lld",
                            results->where, (long long)results->lengths[i], (long long)i,
                            (long long)results->n_tokens));
    }
    for (int64_t i = 0; i < results->n_batch * results->n_tokens; i++) {
        int64_t sequence = i / results->n_tokens, row = i % results->n_tokens;

        if (row < results->lengths[sequence] &&
            (results->tokens[i] < 0 || results->tokens[i] >= results->info->d_vocab))
            HL_NEED(hl_fail(HL_BAD_INPUT,
                            "%s: tokens[%lld, %lld] is %lld, the model knows 0 to %lld",
                            results->where, (long long)sequence, (long long)row,
                            (long long)results->tokens[i], (long long)results->info->d_vocab - 1));
    }
    return HL_OK;
}

/* The same for every model of a vocabulary, and of no meaning. */
static hl_status make_tokens(hl_verify_results *results)
{
    int64_t  n_ctx = results->info->n_ctx;
    uint64_t state = 1;

    results->n_batch  = 1;
    results->n_tokens = n_ctx > 0 && n_ctx < MADE_UP_TOKENS ? n_ctx : MADE_UP_TOKENS;
    hl_status status  = HL_ALLOC(&results->tokens, (size_t)results->n_tokens);
    for (int64_t i = 0; i < results->n_tokens && status == HL_OK; i++) {
        state              = state * 6364136223846793005U + 1442695040888963407U;
        results->tokens[i] = (int64_t)((state >> 33) % (uint64_t)results->info->d_vocab);
    }
    return status;
}

/* masked_heads [n, 2] are (layer, head). */
static hl_status read_gates(hl_verify_results *results)
{
    const hl_tensor *masked  = hl_safetensors_find(results->expected, "masked_heads");
    int64_t          n_heads = results->info->n_heads;
    int64_t          count   = results->info->n_layers * n_heads;

    if (masked == NULL)
        return HL_OK;
    if (!is_whole(masked) || masked->n_dims != 2 || masked->shape[1] != 2)
        return hl_fail(HL_BAD_INPUT, "%s: 'masked_heads' is not I64 or I32 of shape [n, 2]",
                       results->where);
    HL_NEED(HL_ALLOC(&results->gates, (size_t)count));
    for (int64_t i = 0; i < count; i++)
        results->gates[i] = 1.0f;
    for (int64_t i = 0; i < masked->shape[0]; i++) {
        int64_t place[2] = { whole_at(masked, 2 * i), whole_at(masked, 2 * i + 1) };
        if (place[0] < 0 || place[0] >= results->info->n_layers || place[1] < 0 ||
            place[1] >= n_heads)
            return hl_fail(HL_BAD_INPUT, "%s: 'masked_heads' names L%lldH%lld", results->where,
                           (long long)place[0], (long long)place[1]);
        results->gates[place[0] * n_heads + place[1]] = 0.0f;
    }
    return HL_OK;
}

/* Were the expected outputs made with the very gates that the model has? */
static bool same_gates(const hl_verify_results *results)
{
    const float *gates = hl_model_gates(results->model);
    int64_t      count = results->info->n_layers * results->info->n_heads;
    bool         same  = results->gates != NULL;

    for (int64_t i = 0; i < count && same; i++)
        same = gates[i] == results->gates[i];
    return same;
}

/* What the file calls that which the model, with its gates, should give; NULL: nothing. */
static const char *expected_name(const hl_verify_results *results, hl_model_output output)
{
    if (hl_model_gates(results->model) == NULL)
        return hl_model_specs[output].name;
    if (output == HL_MODEL_HIDDEN)
        return hl_model_specs[HL_MODEL_MASKED_HIDDEN].name;
    return output == HL_MODEL_LOGITS ? hl_model_specs[HL_MODEL_MASKED_LOGITS].name : NULL;
}

static const hl_tensor *find_expected_tensor(const hl_verify_results *results,
                                             hl_model_output          output)
{
    const char *name = expected_name(results, output);

    return results->alone || name == NULL ? NULL : hl_safetensors_find(results->expected, name);
}

static hl_status check_shape(const hl_verify_results *results, const hl_tensor *tensor,
                             const hl_model_spec *spec)
{
    bool same = tensor->n_dims == (int)strlen(spec->shape);

    for (int i = 0; same && spec->shape[i] != '\0'; i++)
        same = tensor->shape[i] == hl_verify_results_size(results, spec->shape[i]);
    if (!same)
        return hl_fail(HL_BAD_INPUT,
                       "%s: '%s' has another shape than the model's [%s] (L%lld B%lld H%lld S%lld "
                       "V%lld D%lld)",
                       results->where, spec->name, spec->shape, (long long)results->info->n_layers,
                       (long long)results->n_batch, (long long)results->info->n_heads,
                       (long long)results->n_tokens, (long long)results->info->d_vocab,
                       (long long)results->info->d_model);
    return HL_OK;
}

/* Statistics are always there; the rest where it is expected, or, without a file,
 * where it is asked for by --write. */
static bool is_computed(const hl_verify_results *results, hl_model_output output)
{
    if (output < HL_MODEL_N_STATISTICS)
        return true;
    if (results->alone)
        return output == HL_MODEL_HIDDEN;
    return results->outputs[output].expected != NULL ||
           (output == HL_MODEL_LENS_ENTROPY &&
            results->outputs[HL_MODEL_LENS_TOP].expected != NULL) ||
           (output == HL_MODEL_LENS_TOP &&
            results->outputs[HL_MODEL_LENS_ENTROPY].expected != NULL);
}

static hl_status plan_output(hl_verify_results *results, hl_model_output output)
{
    const hl_model_spec *spec   = &hl_model_specs[output];
    hl_verify_values    *values = &results->outputs[output];

    if (!is_computed(results, output))
        return HL_OK;
    values->count = 1;
    for (const char *letter = spec->shape; *letter != '\0'; letter++) {
        if (!hl_size_multiply(&values->count, values->count,
                              (size_t)hl_verify_results_size(results, *letter)))
            return hl_fail(HL_LIMIT, "%s is too large", spec->name);
    }
    return HL_ALLOC(&values->values, values->count);
}

static hl_status plan_outputs(hl_verify_results *results)
{
    for (hl_model_output output = 0; output < HL_MODEL_N_OUTPUTS; output++) {
        const hl_model_spec *spec   = &hl_model_specs[output];
        const hl_tensor     *tensor = find_expected_tensor(results, output);

        if (tensor != NULL)
            HL_NEED(check_shape(results, tensor, spec));
        results->outputs[output].expected = tensor;
    }
    for (hl_model_output output = 0; output < HL_MODEL_N_OUTPUTS; output++)
        HL_NEED(plan_output(results, output));
    if (results->outputs[HL_MODEL_LENS_TOP].values != NULL)
        HL_NEED(HL_ALLOC_ZEROED(&results->lens_gap, results->outputs[HL_MODEL_LENS_TOP].count));
    return HL_OK;
}

/* Every position, or as many as fit, evenly spread; all of them for a pattern. */
static hl_status plan_positions(hl_verify_results *results)
{
    bool      all    = results->outputs[HL_MODEL_PATTERN0].values != NULL;
    int64_t   count  = results->n_tokens < MAX_POSITIONS || all ? results->n_tokens : MAX_POSITIONS;
    hl_status status = HL_ALLOC(&results->positions, (size_t)count);

    results->n_positions = count;
    for (int64_t i = 0; i < count && status == HL_OK; i++)
        results->positions[i] = i * results->n_tokens / count;
    return status;
}

hl_status hl_verify_results_new(hl_verify_results **out, const hl_model *model, const char *path,
                                const hl_verify_options *options)
{
    hl_status          status  = HL_OK;
    hl_verify_results *results = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&results, 1));
    results->model   = model;
    results->info    = hl_model_get_info(model);
    results->options = *options;
    results->where   = path;
    if (path != NULL) {
        HL_TRY(hl_safetensors_open(&results->expected, path));
        HL_TRY(read_tokens(results));
        HL_TRY(read_lengths(results));
        HL_TRY(read_gates(results));
    } else {
        HL_TRY(make_tokens(results));
    }
    results->alone = path == NULL || (hl_model_gates(model) != NULL && !same_gates(results));
    HL_TRY(plan_outputs(results));
    HL_TRY(plan_positions(results));
    *out    = results;
    results = NULL;

done:
    hl_verify_results_free(results);
    return status;
}

void hl_verify_results_free(hl_verify_results *results)
{
    if (results == NULL)
        return;
    for (int output = 0; output < HL_MODEL_N_OUTPUTS; output++)
        hl_free(results->outputs[output].values);
    hl_session_close(results->session);
    hl_safetensors_close(results->expected);
    hl_free(results->tokens);
    hl_free(results->lengths);
    hl_free(results->positions);
    hl_free(results->gates);
    hl_free(results->lens_gap);
    hl_free(results);
}

/* ---------------------------------------------------------------------- whole */

/* A hl_verify_step. */
static hl_status run_model(void *context, hl_verify_report *report, const char *backend,
                           const char *write_path)
{
    hl_verify_results *results = context;

    HL_NEED(hl_verify_results_compute(results));
    HL_NEED(hl_verify_results_compare(report, results, backend));
    report->max_score = fmax(report->max_score, results->max_score);
    if (write_path != NULL)
        HL_NEED(hl_verify_results_write(results, write_path));
    return HL_OK;
}

/* The file named by the options, or the one in the model's folder; NULL: none. */
static const char *find_expected(char *buffer, size_t n_bytes, const char *path,
                                 const hl_verify_options *options)
{
    struct stat state;

    if (options->expected_path != NULL)
        return options->expected_path;
    if (!hl_path_is_folder(path))
        return NULL;
    int length = snprintf(buffer, n_bytes, "%s/expected.safetensors", path);
    return length > 0 && (size_t)length < n_bytes && stat(buffer, &state) == 0 ? buffer : NULL;
}

hl_status hl_verify_model(hl_verify_report **out, const char *path,
                          const hl_verify_options *options)
{
    hl_status               status   = HL_OK;
    const hl_verify_options defaults = { 0 };
    hl_model               *model    = NULL;
    hl_verify_results      *results  = NULL;
    hl_verify_report       *report   = NULL;
    char                    buffer[4096];

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify_model: path is NULL");
    HL_TRY(hl_model_open(&model, path));
    if (options->prepare != NULL)
        HL_TRY(options->prepare(options->context, model));
    HL_TRY(hl_verify_results_new(&results, model,
                                 find_expected(buffer, sizeof buffer, path, options), options));
    HL_TRY(hl_verify_report_new(&report, path, HL_MODEL_N_OUTPUTS));
    HL_TRY(hl_verify_backends(report, options, run_model, results));
    *out   = report;
    report = NULL;

done:
    hl_verify_report_free(report);
    hl_verify_results_free(results);
    hl_model_close(model);
    return status;
}
