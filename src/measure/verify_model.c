/* verify_model.c - compares a model with what another program computed with it.
 *
 * The expected file has tokens [B,S], I64 or I32, and any of the tensors in output_specs; other
 * tensors are ignored.  Without such a file, tokens are made up, and the fused statistics of rows
 * are compared with those of the same rows materialized in double precision from the same queries
 * and keys.
 *
 * Tolerances are in output_specs; values computed from scores are also allowed HL_SCORE_ROUNDING.
 * Some models amplify the rounding of floats by more than scores do, and have the tolerances of
 * `wide_tolerances`.  A file whose lens was made without the final norm is compared with such a lens.
 *
 * The lens' top token is right or wrong, except if the first two are within the tolerance of each
 * other: then a wrong one costs their distance.
 *
 * Letters of shapes: L n_layers, or the number of attention_layers, M n_layers + 1, B sequences, S tokens per sequence, T S - 1, H
 * n_heads, V d_vocab, D d_model. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "headlight/verify.h"
#include "kernels/logits.h"
#include "kernels/pattern.h"
#include "kernels/row_sums.h"
#include "measure/verify.h"
#include "model/model.h"
#include "model/roles.h"
#include "model/session.h"

enum {
    MADE_UP_TOKENS = 64,  /* number of tokens made up without an expected file */
    MAX_POSITIONS  = 512, /* largest number of positions whose rows are materialized */
};

typedef enum model_output {
    MODEL_ENTROPY = 0,
    MODEL_RENYI2,
    MODEL_VARENTROPY,
    MODEL_PEAK,
    MODEL_SELF,
    MODEL_PREVIOUS,
    MODEL_FIRST,
    MODEL_LSE,
    MODEL_PATTERN0,
    MODEL_HIDDEN,
    MODEL_LOGITS,
    MODEL_LOGITS_LAST,
    MODEL_NLL,
    MODEL_MASKED_HIDDEN,
    MODEL_MASKED_LOGITS,
    MODEL_LENS_TOP,
    MODEL_LENS_ENTROPY,
    MODEL_N_OUTPUTS
} model_output;

typedef struct output_spec {
    const char *name;
    const char *shape;
    double      tolerance; /* 0: not compared */
    bool        relative;  /* the tolerance is relative to the largest value of the tensor */
    bool        scored;    /* the tolerance is raised to the rounding of scores */
} output_spec;

/* Number of row statistics, for which fused and exact rows can be compared. */
#define MODEL_N_STATISTICS (MODEL_LSE + 1)

static const output_spec output_specs[MODEL_N_OUTPUTS] = {
    [MODEL_ENTROPY]       = { "entropy", "LBHS", 1e-4, false, true },
    [MODEL_RENYI2]        = { "renyi2", "LBHS", 1e-4, false, true },
    [MODEL_VARENTROPY]    = { "varentropy", "LBHS", 1e-4, false, true },
    [MODEL_PEAK]          = { "peak", "LBHS", 1e-5, false, true },
    [MODEL_SELF]          = { "self", "LBHS", 1e-5, false, true },
    [MODEL_PREVIOUS]      = { "previous", "LBHS", 1e-5, false, true },
    [MODEL_FIRST]         = { "first", "LBHS", 1e-5, false, true },
    [MODEL_LSE]           = { "lse", "LBHS", 1e-4, false, true },
    [MODEL_PATTERN0]      = { "pattern0", "HSS", 1e-5, false, true },
    [MODEL_HIDDEN]        = { "hidden", "BSD", 2e-4, true, false },
    [MODEL_LOGITS]        = { "logits", "BSV", 2e-4, true, false },
    [MODEL_LOGITS_LAST]   = { "logits_last", "BV", 2e-4, true, false },
    [MODEL_NLL]           = { "nll", "BT", 1e-3, false, false },
    [MODEL_MASKED_HIDDEN] = { "masked_hidden", "BSD", 2e-4, true, false },
    [MODEL_MASKED_LOGITS] = { "masked_logits", "BSV", 2e-4, true, false },
    [MODEL_LENS_TOP]      = { "lens_top", "MS", 1e-4, false, false },
    [MODEL_LENS_ENTROPY]  = { "lens_entropy", "MS", 1e-3, false, false },
};

/* Tolerances for models that amplify rounding: absolute, and relative to the largest value. */
static const double wide_tolerances[2] = { 2e-4, 3e-4 };

typedef struct output_values {
    float           *values; /* NULL: not computed */
    size_t           count;
    const hl_tensor *expected;    /* NULL: the file does not have it */
    double           exact_error; /* for statistics: largest difference from exact rows */
} output_values;

typedef struct model_results {
    const hl_model      *model;
    const hl_model_info *info;
    hl_session          *session;
    hl_verify_options    options;
    hl_safetensors      *expected; /* NULL: none */
    const char          *where;    /* names it in messages */

    int64_t  n_batch;
    int64_t  n_tokens;
    int64_t *tokens;    /* (B, S) */
    int64_t *lengths;   /* (B) rows of each sequence that are compared; NULL: nothing is expected */
    int64_t *places;    /* (n_layers) which of the L layers with rows it is; -1: none */
    int64_t  n_shown;   /* L */
    int64_t *positions; /* (S) positions whose rows are materialized */
    int64_t  n_positions;
    float   *gates;    /* (L, H) gates with masked_heads at 0; NULL: no heads are masked */
    bool     masked;   /* the current pass uses `gates` */
    bool     alone;    /* the file expects nothing for the model as it runs */
    float   *lens_gap; /* (M, S) */
    double   max_score;
    bool     is_wide;
    float   *stream; /* (L, S, D) of the first sequence, if a lens is expected */
    const char *notes[HL_VERIFY_NOTES];

    output_values outputs[MODEL_N_OUTPUTS];
} model_results;

/* Returns the size that a letter stands for. */
static int64_t size_of(const model_results *results, char letter)
{
    switch (letter) {
    case 'L':
        return results->n_shown;
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

/* ---------------------------------------------------------- what is expected */

static bool is_whole(const hl_tensor *tensor)
{
    return tensor->dtype == HL_DTYPE_I64 || tensor->dtype == HL_DTYPE_I32;
}

/* Reads item `index` of an integer tensor.  Tensors need not be aligned. */
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

static hl_status read_tokens(model_results *results)
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

/* Reads lengths [B], as `measure --rows` writes them: rows after them are padding.  Without lengths
 * there is no padding. */
static hl_status read_lengths(model_results *results)
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
            return hl_fail(HL_BAD_INPUT,
                           "%s: 'lengths' has %lld for sequence %lld, wanted 0 to %lld",
                           results->where, (long long)results->lengths[i], (long long)i,
                           (long long)results->n_tokens);
    }
    for (int64_t i = 0; i < results->n_batch * results->n_tokens; i++) {
        int64_t sequence = i / results->n_tokens, row = i % results->n_tokens;

        if (row < results->lengths[sequence] &&
            (results->tokens[i] < 0 || results->tokens[i] >= results->info->d_vocab))
            return hl_fail(HL_BAD_INPUT,
                           "%s: tokens[%lld, %lld] is %lld, the model knows 0 to %lld",
                           results->where, (long long)sequence, (long long)row,
                           (long long)results->tokens[i], (long long)results->info->d_vocab - 1);
    }
    return HL_OK;
}

/* Makes tokens without meaning, the same ones for every model with this vocabulary size. */
static hl_status make_tokens(model_results *results)
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

/* Reads attention_layers [n], the rising numbers of layers that the file has rows of.  Without
 * them it has those of all layers. */
static hl_status read_layers(model_results *results)
{
    const hl_tensor *layers   = results->expected != NULL
                                    ? hl_safetensors_find(results->expected, "attention_layers")
                                    : NULL;
    int64_t          n_layers = results->info->n_layers;
    int64_t          before   = -1;

    results->n_shown = n_layers;
    HL_NEED(HL_ALLOC(&results->places, (size_t)n_layers));
    for (int64_t i = 0; i < n_layers; i++)
        results->places[i] = layers == NULL ? i : -1;
    if (layers == NULL)
        return HL_OK;
    if (!is_whole(layers) || layers->n_dims != 1)
        return hl_fail(HL_BAD_INPUT, "%s: 'attention_layers' is not I64 or I32 of shape [n]",
                       results->where);
    results->n_shown = layers->shape[0];
    for (int64_t i = 0; i < results->n_shown; i++) {
        int64_t layer = whole_at(layers, i);

        if (layer <= before || layer >= n_layers)
            return hl_fail(HL_BAD_INPUT,
                           "%s: 'attention_layers' has layer %lld after layer %lld, wanted rising "
                           "numbers below %lld",
                           results->where, (long long)layer, (long long)before,
                           (long long)n_layers);
        results->places[layer] = i;
        before                 = layer;
    }
    return HL_OK;
}

/* Reads masked_heads [n, 2], which are (layer, head). */
static hl_status read_gates(model_results *results)
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

/* Returns true if the expected outputs were made with exactly the gates that the model has. */
static bool same_gates(const model_results *results)
{
    const float *gates = results->model->gates;
    int64_t      count = results->info->n_layers * results->info->n_heads;
    bool         same  = results->gates != NULL;

    for (int64_t i = 0; i < count && same; i++)
        same = gates[i] == results->gates[i];
    return same;
}

/* Returns the expected tensor's name for the model with its gates; NULL if there is none. */
static const char *expected_name(const model_results *results, model_output output)
{
    if (results->model->gates == NULL)
        return output_specs[output].name;
    if (output == MODEL_HIDDEN)
        return output_specs[MODEL_MASKED_HIDDEN].name;
    return output == MODEL_LOGITS ? output_specs[MODEL_MASKED_LOGITS].name : NULL;
}

static const hl_tensor *find_expected_tensor(const model_results *results, model_output output)
{
    const char *name = expected_name(results, output);

    if (results->alone || name == NULL)
        return NULL;

    const hl_tensor *found = hl_safetensors_find(results->expected, name);

    if (found == NULL && strcmp(name, "self") == 0)
        found = hl_safetensors_find(results->expected, "diagonal"); /* earlier files name it so */
    return found;
}

static hl_status check_shape(const model_results *results, const hl_tensor *tensor,
                             const output_spec *spec)
{
    bool same = tensor->n_dims == (int)strlen(spec->shape);

    for (int i = 0; same && spec->shape[i] != '\0'; i++)
        same = tensor->shape[i] == size_of(results, spec->shape[i]);
    if (!same)
        return hl_fail(HL_BAD_INPUT,
                       "%s: '%s' has another shape than the model's [%s] (L%lld B%lld H%lld S%lld "
                       "V%lld D%lld)",
                       results->where, spec->name, spec->shape, (long long)results->n_shown,
                       (long long)results->n_batch, (long long)results->info->n_heads,
                       (long long)results->n_tokens, (long long)results->info->d_vocab,
                       (long long)results->info->d_model);
    return HL_OK;
}

/* Statistics are always computed; other outputs if expected or, without a file, if --write is
 * given. */
static bool is_computed(const model_results *results, model_output output)
{
    if (output < MODEL_N_STATISTICS)
        return true;
    if (results->alone)
        return output == MODEL_HIDDEN;
    return results->outputs[output].expected != NULL ||
           (output == MODEL_LENS_ENTROPY && results->outputs[MODEL_LENS_TOP].expected != NULL) ||
           (output == MODEL_LENS_TOP && results->outputs[MODEL_LENS_ENTROPY].expected != NULL);
}

static hl_status plan_output(model_results *results, model_output output)
{
    const output_spec *spec   = &output_specs[output];
    output_values     *values = &results->outputs[output];

    if (!is_computed(results, output))
        return HL_OK;
    values->count = 1;
    for (const char *letter = spec->shape; *letter != '\0'; letter++) {
        if (!hl_size_multiply(&values->count, values->count, (size_t)size_of(results, *letter)))
            return hl_fail(HL_LIMIT, "%s is too large", spec->name);
    }
    return HL_ALLOC(&values->values, values->count);
}

static hl_status plan_outputs(model_results *results)
{
    for (model_output output = 0; output < MODEL_N_OUTPUTS; output++) {
        const output_spec *spec   = &output_specs[output];
        const hl_tensor   *tensor = find_expected_tensor(results, output);

        if (tensor != NULL)
            HL_NEED(check_shape(results, tensor, spec));
        results->outputs[output].expected = tensor;
    }
    for (model_output output = 0; output < MODEL_N_OUTPUTS; output++)
        HL_NEED(plan_output(results, output));
    if (results->outputs[MODEL_LENS_TOP].values != NULL)
        HL_NEED(HL_ALLOC_ZEROED(&results->lens_gap, results->outputs[MODEL_LENS_TOP].count));
    if (results->outputs[MODEL_LENS_ENTROPY].expected != NULL)
        HL_NEED(hl_alloc_zeroed((void **)&results->stream,
                                (size_t)(results->info->n_layers * results->n_tokens),
                                (size_t)results->info->d_model * sizeof *results->stream));
    return HL_OK;
}

/* Chooses all positions, or as many as fit, evenly spread; a pattern needs all of them. */
static hl_status plan_positions(model_results *results)
{
    bool      all    = results->outputs[MODEL_PATTERN0].values != NULL;
    int64_t   count  = results->n_tokens < MAX_POSITIONS || all ? results->n_tokens : MAX_POSITIONS;
    hl_status status = HL_ALLOC(&results->positions, (size_t)count);

    results->n_positions = count;
    for (int64_t i = 0; i < count && status == HL_OK; i++)
        results->positions[i] = i * results->n_tokens / count;
    return status;
}

static void results_free(model_results *results)
{
    if (results == NULL)
        return;
    for (int output = 0; output < MODEL_N_OUTPUTS; output++)
        hl_free(results->outputs[output].values);
    hl_session_close(results->session);
    hl_safetensors_close(results->expected);
    hl_free(results->tokens);
    hl_free(results->lengths);
    hl_free(results->places);
    hl_free(results->positions);
    hl_free(results->gates);
    hl_free(results->lens_gap);
    hl_free(results->stream);
    hl_free(results);
}
HL_CLOSES(results_free, model_results)

static void add_note(model_results *results, const char *note)
{
    int n = 0;

    while (results->notes[n] != NULL && results->notes[n] != note)
        n++;
    results->notes[n] = note;
}

static void choose_tolerances(model_results *results)
{
    const hl_config *config = results->model->config;

    bool is_sparse = false;

    for (int64_t i = 0; i < config->n_layers; i++)
        is_sparse = is_sparse || config->layers[i].is_sparse;
    results->is_wide = hl_config_has_mixer(config) || config->latent.d_latent > 0 || is_sparse;
    if (is_sparse)
        add_note(results,
                 "gates are reduced by almost their largest value, which leaves the rounding of "
                 "both");
    if (hl_config_has_mixer(config))
        add_note(results,
                 "some layers are recurrences, which carry the rounding of each row into all "
                 "later ones");
    if (config->latent.d_latent > 0)
        add_note(results, "scores are sums over latents, whose terms and their rounding are larger "
                          "than those of keys");
}

/* `path` is the expected file, or NULL: then tokens are made up. */
static hl_status results_new(model_results **out, const hl_model *model, const char *path,
                             const hl_verify_options *options)
{
    HL_CLOSED(results_free) model_results *results = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&results, 1));
    results->model   = model;
    results->info    = hl_model_get_info(model);
    results->options = *options;
    results->where   = path;
    if (path != NULL) {
        HL_NEED(hl_safetensors_open(&results->expected, path));
        HL_NEED(read_tokens(results));
        HL_NEED(read_lengths(results));
        HL_NEED(read_gates(results));
        HL_NEED(read_layers(results));
    } else {
        HL_NEED(read_layers(results));
        HL_NEED(make_tokens(results));
    }
    results->alone = path == NULL || (model->gates != NULL && !same_gates(results));
    HL_NEED(plan_outputs(results));
    HL_NEED(plan_positions(results));
    choose_tolerances(results);
    *out = hl_taken(&results);
    return HL_OK;
}

/* ---------------------------------------------------------- what layers tell */

/* Fills all results with NaN, until the tap stores them. */
static void forget(model_results *results)
{
    for (int output = 0; output < MODEL_N_OUTPUTS; output++) {
        output_values *values = &results->outputs[output];
        for (size_t i = 0; i < values->count && values->values != NULL; i++)
            values->values[i] = NAN;
        values->exact_error = 0.0;
    }
    results->max_score = 0.0;
}

static float *output_of(const model_results *results, model_output output)
{
    return results->outputs[output].values;
}

static const float *statistic(const hl_attention_result *rows, model_output output)
{
    const float *const values[MODEL_N_STATISTICS] = { [MODEL_ENTROPY]    = rows->entropy,
                                                      [MODEL_RENYI2]     = rows->renyi2,
                                                      [MODEL_VARENTROPY] = rows->varentropy,
                                                      [MODEL_PEAK]       = rows->peak,
                                                      [MODEL_SELF]       = rows->self,
                                                      [MODEL_PREVIOUS]   = rows->previous,
                                                      [MODEL_FIRST]      = rows->first,
                                                      [MODEL_LSE]        = rows->lse };
    return values[output];
}

static double exact_statistic(const hl_pattern_row *row, model_output output)
{
    const double values[MODEL_N_STATISTICS] = { [MODEL_ENTROPY]    = row->entropy,
                                                [MODEL_RENYI2]     = row->renyi2,
                                                [MODEL_VARENTROPY] = row->varentropy,
                                                [MODEL_PEAK]       = row->peak,
                                                [MODEL_SELF]       = row->self,
                                                [MODEL_PREVIOUS]   = row->previous,
                                                [MODEL_FIRST]      = row->first,
                                                [MODEL_LSE]        = row->lse };
    return values[output];
}

/* Copies (B, H, C) of a chunk into (L, B, H, S). */
static void keep_statistic(model_results *results, const hl_layer_rows *rows, model_output output)
{
    const float *source  = statistic(rows->rows, output);
    float       *values  = output_of(results, output);
    int64_t      n_heads = results->info->n_heads;
    int64_t      place   = results->places[rows->layer];

    for (int64_t i = 0; i < rows->n_batch * rows->n_heads && place >= 0; i++) {
        int64_t sequence = i / rows->n_heads;
        int64_t head     = i % rows->n_heads;
        float  *out =
            values + ((place * rows->n_batch + sequence) * n_heads + head) * results->n_tokens;
        memcpy(out + rows->start[sequence], source + i * rows->n_rows,
               (size_t)rows->lengths[sequence] * sizeof *out);
    }
}

/* Compares the fused statistics of materialized rows with the exact ones. */
static void compare_exact(model_results *results, const hl_layer_rows *rows, int64_t index)
{
    int64_t               row   = rows->pattern_rows[index % rows->n_patterns];
    int64_t               place = index / rows->n_patterns * rows->n_rows + row;
    const hl_pattern_row *exact = &rows->observed->exact[index];

    results->max_score = fmax(results->max_score, exact->max_score);
    for (model_output output = 0; output < MODEL_N_STATISTICS; output++) {
        output_values *values = &results->outputs[output];
        double         seen   = (double)statistic(rows->rows, output)[place];
        values->exact_error =
            fmax(values->exact_error, hl_verify_difference(seen, exact_statistic(exact, output)));
    }
}

/* Stores the rows (H, S, S) of the first layer and sequence. */
static void keep_pattern(model_results *results, const hl_layer_rows *rows)
{
    float  *values = output_of(results, MODEL_PATTERN0);
    int64_t size   = results->n_tokens;

    if (values == NULL || results->places[rows->layer] != 0)
        return;
    for (int64_t i = 0; i < rows->n_heads * rows->n_patterns; i++) {
        int64_t position = rows->start[0] + rows->pattern_rows[i % rows->n_patterns];
        float  *out      = values + (i / rows->n_patterns * size + position) * size;
        memcpy(out, rows->pattern + i * rows->n_keys, (size_t)size * sizeof *out);
    }
}

static void keep_lens(model_results *results, int64_t layer, int64_t start, int64_t n_rows,
                      const int64_t *top, const float *entropy, const float *gap)
{
    float *tops      = output_of(results, MODEL_LENS_TOP);
    float *entropies = output_of(results, MODEL_LENS_ENTROPY);

    for (int64_t i = 0; i < n_rows && top != NULL && tops != NULL; i++) {
        int64_t place            = layer * results->n_tokens + start + i;
        tops[place]              = (float)top[i];
        entropies[place]         = entropy[i];
        results->lens_gap[place] = gap[i];
    }
}

static void keep_stream(const model_results *results, const hl_layer_rows *rows)
{
    int64_t place = rows->layer * results->n_tokens + rows->start[0];

    if (results->stream != NULL && rows->resid_pre != NULL)
        memcpy(results->stream + place * rows->d_model, rows->resid_pre,
               (size_t)(rows->lengths[0] * rows->d_model) * sizeof *results->stream);
}

static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    model_results *results = context;

    if (results->masked)
        return HL_OK;
    for (model_output output = 0; output < MODEL_N_STATISTICS; output++)
        keep_statistic(results, rows, output);
    for (int64_t i = 0; i < rows->n_batch * rows->n_heads * rows->n_patterns; i++)
        compare_exact(results, rows, i);
    keep_pattern(results, rows);
    keep_stream(results, rows);
    keep_lens(results, rows->layer, rows->start[0], rows->lengths[0], rows->lens_top,
              rows->lens_entropy, rows->lens_gap);
    return HL_OK;
}

/* ----------------------------------------------------- comparison of the end */

static void keep_rows(float *values, const float *rows, const model_results *results,
                      const hl_final_rows *final, int64_t width)
{
    if (values == NULL || rows == NULL)
        return;
    memcpy(values + (final->sequence * results->n_tokens + final->start) * width, rows,
           (size_t)(final->n_rows * width) * sizeof *values);
}

static double log_sum(const float *logits, int64_t n)
{
    double max  = (double)logits[0];
    double rest = -1.0; /* the largest term counts as 1, once */

    for (int64_t i = 1; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int64_t i = 0; i < n; i++)
        rest += exp((double)logits[i] - max);
    return max + log1p(rest);
}

static void keep_loss(model_results *results, const hl_final_rows *final)
{
    float  *values = output_of(results, MODEL_NLL);
    int64_t size   = results->n_tokens;

    for (int64_t row = 0; row < final->n_rows && values != NULL && final->logits != NULL; row++) {
        const float *logits   = final->logits + row * final->d_vocab;
        int64_t      position = final->start + row;

        if (position + 1 >= size)
            continue;
        int64_t next = results->tokens[final->sequence * size + position + 1];
        values[final->sequence * (size - 1) + position] =
            (float)(log_sum(logits, final->d_vocab) - (double)logits[next]);
    }
}

static void keep_last(model_results *results, const hl_final_rows *final)
{
    float  *values = output_of(results, MODEL_LOGITS_LAST);
    int64_t row    = results->n_tokens - 1 - final->start;

    if (values != NULL && final->logits != NULL && row >= 0 && row < final->n_rows)
        memcpy(values + final->sequence * final->d_vocab, final->logits + row * final->d_vocab,
               (size_t) final->d_vocab * sizeof *values);
}

static hl_status watch_final(void *context, const hl_final_rows *final)
{
    model_results *results = context;
    bool           masked  = results->masked;

    keep_rows(output_of(results, masked ? MODEL_MASKED_HIDDEN : MODEL_HIDDEN), final->hidden,
              results, final, final->d_model);
    keep_rows(output_of(results, masked ? MODEL_MASKED_LOGITS : MODEL_LOGITS), final->logits,
              results, final, final->d_vocab);
    if (masked)
        return HL_OK;
    keep_loss(results, final);
    keep_last(results, final);
    if (final->sequence == 0)
        keep_lens(results, results->info->n_layers, final->start, final->n_rows, final->lens_top,
                  final->lens_entropy, final->lens_gap);
    return HL_OK;
}

/* ------------------------------------------------------------------- running */

/* Feeds one token of each sequence at a time. */
static hl_status decode(model_results *results, const hl_feed *whole)
{
    HL_FREED int64_t *column = NULL;
    hl_feed           feed   = *whole;

    HL_NEED(HL_ALLOC(&column, (size_t)results->n_batch));
    feed.tokens   = column;
    feed.n_tokens = 1;
    for (int64_t i = 0; i < whole->n_tokens; i++) {
        for (int64_t sequence = 0; sequence < results->n_batch; sequence++)
            column[sequence] = whole->tokens[sequence * whole->n_tokens + i];
        HL_NEED(hl_session_feed(results->session, &feed));
    }
    return HL_OK;
}

static hl_status run_pass(model_results *results, uint32_t wants)
{
    hl_tap  tap  = { .context             = results,
                     .layer               = watch_layer,
                     .final               = watch_final,
                     .wants               = wants,
                     .pattern_positions   = results->positions,
                     .n_pattern_positions = results->n_positions };
    hl_feed feed = { .tokens   = results->tokens,
                     .n_tokens = results->n_tokens,
                     .gates    = results->masked ? results->gates : NULL,
                     .tap      = &tap };

    for (int64_t sequence = 0; sequence < results->n_batch; sequence++)
        HL_NEED(hl_session_rewind(results->session, sequence, 0));
    return results->options.decode && !results->info->is_encoder
               ? decode(results, &feed)
               : hl_session_feed(results->session, &feed);
}

static uint32_t wants_of(const model_results *results)
{
    uint32_t wants = results->n_positions > 0 ? HL_WANT_PATTERN : 0;

    if (output_of(results, MODEL_HIDDEN) != NULL)
        wants |= HL_WANT_HIDDEN;
    if (output_of(results, MODEL_LOGITS) != NULL || output_of(results, MODEL_NLL) != NULL ||
        output_of(results, MODEL_LOGITS_LAST) != NULL)
        wants |= HL_WANT_LOGITS;
    if (output_of(results, MODEL_LENS_TOP) != NULL)
        wants |= HL_WANT_LENS;
    if (results->stream != NULL)
        wants |= HL_WANT_RESID_PRE;
    return wants;
}

static uint32_t masked_wants_of(const model_results *results)
{
    uint32_t wants = 0;

    if (output_of(results, MODEL_MASKED_HIDDEN) != NULL)
        wants |= HL_WANT_HIDDEN;
    if (output_of(results, MODEL_MASKED_LOGITS) != NULL)
        wants |= HL_WANT_LOGITS;
    return results->gates != NULL ? wants : 0;
}

/* ------------------------------------------------------- a lens without a norm */

/* The lens of n rows of the stream, from `first` on, as the head alone gives it. */
static hl_status read_bare(hl_logits_row *out, const model_results *results, int64_t first,
                           int64_t n)
{
    const hl_config        *config = results->model->config;
    const hl_session_param *head   = hl_session_param_of(results->session, HL_ROLE_LM_HEAD, -1, 0);
    HL_FREED float         *weight = NULL;
    HL_FREED float         *logits = NULL;
    int64_t                 width  = config->d_model;

    HL_NEED(HL_ALLOC(&weight, (size_t)width));
    HL_NEED(HL_ALLOC(&logits, (size_t)(n * config->d_vocab)));
    for (int64_t token = 0; token < config->d_vocab; token++) {
        HL_NEED(hl_matrix_read_row(weight, &head->matrix, token));
        for (int64_t i = 0; i < n; i++) {
            const float *x   = results->stream + (first + i) * width;
            double       sum = 0.0;

            for (int64_t j = 0; j < width; j++)
                sum += (double)weight[j] * (double)x[j];
            sum *= config->logit_scale;
            if (config->logit_softcap > 0.0)
                sum = config->logit_softcap * tanh(sum / config->logit_softcap);
            logits[i * config->d_vocab + token] = (float)sum;
        }
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = hl_logits_read(logits + i * config->d_vocab, config->d_vocab);
    return HL_OK;
}

/* The largest distance of n entropies of the expected lens. */
static double lens_distance(const model_results *results, const double *expected,
                            const hl_logits_row *bare, int64_t first, int64_t n)
{
    double distance = 0.0;

    for (int64_t i = first; i < first + n; i++) {
        double ours = bare != NULL ? bare[i - first].entropy
                                   : (double)output_of(results, MODEL_LENS_ENTROPY)[i];
        distance    = fmax(distance, hl_verify_difference(ours, expected[i]));
    }
    return distance;
}

/* If the expected lens is not ours before the last layer, but that of the head alone, compares with
 * that.  A few rows decide, since this takes as long as a lens does without any fast product. */
static hl_status try_bare_lens(model_results *results)
{
    const hl_config *config = results->model->config;
    const hl_tensor *tensor = results->outputs[MODEL_LENS_ENTROPY].expected;
    int64_t          n      = config->n_layers * results->n_tokens;
    int64_t n_few = results->lengths != NULL && results->lengths[0] < 4 ? results->lengths[0] : 4;
    double  tolerance                = output_specs[MODEL_LENS_ENTROPY].tolerance;
    HL_FREED double        *expected = NULL;
    HL_FREED hl_logits_row *bare     = NULL;

    if (results->stream == NULL || config->d_embed != config->d_model || config->n_streams > 1 ||
        hl_session_param_of(results->session, HL_ROLE_LM_HEAD, -1, 0) == NULL)
        return HL_OK;
    HL_NEED(HL_ALLOC(&expected, (size_t)hl_tensor_count(tensor)));
    HL_NEED(HL_ALLOC(&bare, (size_t)n));
    HL_NEED(
        hl_dtype_to_f64(expected, tensor->data, tensor->dtype, (size_t)hl_tensor_count(tensor)));
    if (lens_distance(results, expected, NULL, 0, n) <= 10.0 * tolerance)
        return HL_OK;
    HL_NEED(read_bare(bare, results, 0, n_few));
    if (lens_distance(results, expected, bare, 0, n_few) > tolerance)
        return HL_OK;
    HL_NEED(read_bare(bare, results, 0, n));
    for (int64_t i = 0; i < n; i++) {
        output_of(results, MODEL_LENS_TOP)[i]     = (float)bare[i].top;
        output_of(results, MODEL_LENS_ENTROPY)[i] = (float)bare[i].entropy;
    }
    add_note(results,
             "the expected lens was made without the final norm before the last layer, and is "
             "compared with such a lens");
    return HL_OK;
}

/* Runs the model on the back end in use. */
static hl_status compute(model_results *results)
{
    hl_status          status  = HL_OK;
    uint32_t           wants   = wants_of(results);
    uint32_t           masked  = masked_wants_of(results);
    hl_session_options options = { .n_ctx      = results->n_tokens,
                                   .n_batch    = results->n_batch,
                                   .n_chunk    = results->options.n_chunk,
                                   .n_patterns = results->n_positions,
                                   .wants      = wants | masked,
                                   .n_threads  = results->options.n_threads };

    forget(results);
    HL_TRY(hl_session_open(&results->session, results->model, &options));
    results->masked = false;
    HL_TRY(run_pass(results, wants));
    HL_TRY(try_bare_lens(results));
    results->masked = true;
    if (masked != 0)
        HL_TRY(run_pass(results, masked));

done:
    hl_session_close(results->session);
    results->session = NULL;
    return status;
}

/* ----------------------------------------------------------------- comparing */

/* Returns true if item `index` of [L, B, H, S] is a row after its sequence's end. */
static bool is_padding(const model_results *results, size_t index)
{
    size_t n_tokens = (size_t)results->n_tokens;
    size_t sequence = index / n_tokens / (size_t)results->info->n_heads % (size_t)results->n_batch;

    return (int64_t)(index % n_tokens) >= results->lengths[sequence];
}

typedef struct compared_output {
    const model_results *results;
    model_output         output;
} compared_output;

/* A hl_verify_judge for a compared_output. */
static hl_status judge_output(double *cost, const void *context, size_t index, double ours,
                              double theirs)
{
    const compared_output *compared = context;
    model_output           output   = compared->output;
    /* If a row does not define a probability, the file has NaN and the operator 0. */
    bool may_lack = output == MODEL_PREVIOUS || output == MODEL_SELF || output == MODEL_FIRST;

    if (output < MODEL_N_STATISTICS && is_padding(compared->results, index))
        *cost = -1.0;
    else if (output == MODEL_LENS_TOP && ours != theirs)
        *cost = isnan(ours) ? (double)INFINITY : (double)compared->results->lens_gap[index];
    else if (may_lack && isnan(theirs) && ours == 0.0)
        *cost = 0.0;
    else
        *cost = hl_verify_difference(ours, theirs);
    return HL_OK;
}

/* Adds an entry for every output that can be compared. */
static hl_status compare(hl_verify_report *report, const model_results *results,
                         const char *backend)
{
    double rounding = HL_SCORE_ROUNDING * results->max_score;

    for (model_output output = 0; output < MODEL_N_OUTPUTS; output++) {
        const output_values *values    = &results->outputs[output];
        const output_spec   *spec      = &output_specs[output];
        double               tolerance = fmax(spec->tolerance, spec->scored ? rounding : 0.0);

        if (results->is_wide && !results->alone)
            tolerance = fmax(tolerance, wide_tolerances[spec->relative]);

        if (results->alone && output < MODEL_N_STATISTICS)
            hl_verify_report_add(report, &(hl_verify_entry){ .backend   = backend,
                                                             .output    = spec->name,
                                                             .error     = values->exact_error,
                                                             .tolerance = tolerance,
                                                             .relative  = spec->relative });
        else if (!results->alone && values->expected != NULL)
            HL_NEED(hl_verify_compare(report, backend,
                                      &(hl_verify_pair){
                                          .output    = spec->name,
                                          .ours      = values->values,
                                          .theirs    = values->expected,
                                          .tolerance = tolerance,
                                          .relative  = spec->relative,
                                          .judge     = judge_output,
                                          .context   = &(compared_output){ results, output },
                                      }));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- writing */

/* *data is what the tensor points to; the caller frees it after writing. */
static hl_status add_output(hl_safetensors_writer *writer, void **data,
                            const model_results *results, model_output output)
{
    const output_values *values = &results->outputs[output];
    const output_spec   *spec   = &output_specs[output];
    bool                 whole  = output == MODEL_LENS_TOP;
    hl_tensor tensor = { .name = spec->name, .dtype = whole ? HL_DTYPE_I64 : HL_DTYPE_F32 };

    tensor.n_bytes = values->count * hl_dtype_bits(tensor.dtype) / 8;
    HL_NEED(hl_alloc(data, tensor.n_bytes, 1));
    for (size_t i = 0; i < values->count && whole; i++)
        ((int64_t *)*data)[i] = (int64_t)values->values[i];
    if (!whole)
        memcpy(*data, values->values, tensor.n_bytes);
    for (const char *letter = spec->shape; *letter != '\0'; letter++)
        tensor.shape[tensor.n_dims++] = size_of(results, *letter);
    tensor.data = *data;
    hl_safetensors_add(writer, &tensor);
    return HL_OK;
}

static void add_inputs(hl_safetensors_writer *writer, const model_results *results)
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

static hl_status write_results(const model_results *results, const char *path)
{
    hl_status status                = HL_OK;
    void     *data[MODEL_N_OUTPUTS] = { NULL };

    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;

    HL_TRY(hl_safetensors_writer_new(&writer));
    add_inputs(writer, results);
    for (model_output output = 0; output < MODEL_N_OUTPUTS; output++) {
        if (results->outputs[output].values != NULL)
            HL_TRY(add_output(writer, &data[output], results, output));
    }
    HL_TRY(hl_safetensors_write(writer, path));

done:
    for (int output = 0; output < MODEL_N_OUTPUTS; output++)
        hl_free(data[output]);
    return status;
}

/* ------------------------------------------------------------- all back ends */

/* A hl_verify_step: runs the model, compares, and writes results if requested. */
static hl_status run_model(void *context, hl_verify_report *report, const char *backend,
                           const char *write_path)
{
    model_results *results = context;

    HL_NEED(compute(results));
    HL_NEED(compare(report, results, backend));
    report->max_score = fmax(report->max_score, results->max_score);
    memcpy(report->notes, results->notes, sizeof report->notes);
    return write_path != NULL ? write_results(results, write_path) : HL_OK;
}

/* Returns the file named by the options, or the one in the model's folder; NULL if there is
 * none. */
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
    const hl_verify_options defaults = { 0 };
    char                    buffer[4096];

    HL_CLOSED(hl_model_close) hl_model                *model   = NULL;
    HL_CLOSED(results_free) model_results             *results = NULL;
    HL_CLOSED(hl_verify_report_free) hl_verify_report *report  = NULL;

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify_model: path is NULL");
    HL_NEED(hl_model_open(&model, path));
    if (options->prepare != NULL)
        HL_NEED(options->prepare(options->context, model));
    HL_NEED(
        results_new(&results, model, find_expected(buffer, sizeof buffer, path, options), options));
    HL_NEED(hl_verify_report_new(&report, path, MODEL_N_OUTPUTS));
    HL_NEED(hl_verify_backends(report, options, run_model, results));
    *out = hl_taken(&report);
    return HL_OK;
}
