/* verify_case.c - reading a golden attention case.
 *
 * The options come first, because they determine the shape of every tensor:
 *
 *     {"B":1, "Hq":4, "Hkv":2, "Sq":65, "Sk":65, "D":64, "Dv":64, "causal":true,
 *      "window_left":9, "window_right":9, "window_sink":1, "softcap":20.0,
 *      "scale":0.125, "max_score":8.4, "input":"bf16"}
 *
 * The seven sizes are required, the rest is optional ("input" only repeats the dtype of q).  Then
 * each tensor is looked up by name, its dtype and shape are compared with what the options require,
 * and inputs are copied, because bytes in a safetensors file need not be aligned.
 *
 * The sizes are bounded before anything is allocated.  An array is never larger than a small
 * multiple of one that is in the file, except if a size is zero; the limit on rows of heads bounds
 * the time that such a file can take. */
#include "measure/verify_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

const hl_verify_spec hl_verify_specs[HL_VERIFY_N_OUTPUTS] = {
    [HL_VERIFY_OUT]            = { "out", "BHQV", HL_DTYPE_F32, 1e-5, true },
    [HL_VERIFY_LSE]            = { "lse", "BHQ", HL_DTYPE_F64, 2e-5, false },
    [HL_VERIFY_ENTROPY]        = { "entropy", "BHQ", HL_DTYPE_F64, 2e-5, false },
    [HL_VERIFY_RENYI2]         = { "renyi2", "BHQ", HL_DTYPE_F64, 2e-5, false },
    [HL_VERIFY_VARENTROPY]     = { "varentropy", "BHQ", HL_DTYPE_F64, 2e-5, false },
    [HL_VERIFY_ENTROPY_NOSINK] = { "entropy_nosink", "BHQ", HL_DTYPE_F64, 2e-5, false },
    [HL_VERIFY_PEAK]           = { "peak", "BHQ", HL_DTYPE_F64, 1e-5, false },
    [HL_VERIFY_ARGMAX]         = { "argmax", "BHQ", HL_DTYPE_I64, 0.0, false },
    [HL_VERIFY_SELF]           = { "self", "BHQ", HL_DTYPE_F64, 1e-5, false },
    [HL_VERIFY_PREVIOUS]       = { "previous", "BHQ", HL_DTYPE_F64, 1e-5, false },
    [HL_VERIFY_FIRST]          = { "first", "BHQ", HL_DTYPE_F64, 1e-5, false },
    [HL_VERIFY_SEGMENT_MASS]   = { "segment_mass", "BHQS", HL_DTYPE_F64, 1e-5, false },
    [HL_VERIFY_DQ]             = { "dq", "BHQD", HL_DTYPE_F32, 1e-4, true },
    [HL_VERIFY_DK]             = { "dk", "BGKD", HL_DTYPE_F32, 1e-4, true },
    [HL_VERIFY_DV]             = { "dv", "BGKV", HL_DTYPE_F32, 1e-4, true },
    [HL_VERIFY_DGATES]         = { "dgates", "H", HL_DTYPE_F64, 1e-4, true },
    [HL_VERIFY_DSINKS]         = { "dsinks", "H", HL_DTYPE_F64, 1e-4, true },
};

/* ------------------------------------------------------------- the options */

#define MAX_BATCH_HEADS (1 << 20) /* limit of n_batch * n_heads */
#define MAX_LENGTH      (INT64_C(1) << 30)
#define MAX_POSITION    (INT64_C(1) << 40) /* keeps sums of positions far from overflow */
#define MAX_MAX_SCORE   1e6 /* fp32 rounds to half a nat there: anything would pass */

typedef struct size_rule {
    const char *key;
    size_t      offset; /* offset in hl_attention */
    int64_t     low;
    int64_t     high;
} size_rule;

static const size_rule size_rules[] = {
    { "B", offsetof(hl_attention, n_batch), 1, MAX_BATCH_HEADS },
    { "Hq", offsetof(hl_attention, n_heads), 1, MAX_BATCH_HEADS },
    { "Hkv", offsetof(hl_attention, n_kv_heads), 1, MAX_BATCH_HEADS },
    { "Sq", offsetof(hl_attention, n_queries), 0, MAX_LENGTH },
    { "Sk", offsetof(hl_attention, n_keys), 0, MAX_LENGTH },
    { "D", offsetof(hl_attention, d_head), 1, HL_MAX_HEAD_DIM },
    { "Dv", offsetof(hl_attention, d_value), 1, HL_MAX_HEAD_DIM },
};

static hl_status read_size(hl_attention *problem, const json_t *options, const size_rule *rule,
                           const char *where)
{
    int64_t size = INT64_MIN; /* unchanged if the key is missing */

    HL_NEED(hl_json_get_int(&size, options, rule->key, where));
    if (size == INT64_MIN)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is missing", where, rule->key);
    if (size < rule->low || size > rule->high)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %lld, wanted %lld to %lld", where, rule->key,
                       (long long)size, (long long)rule->low, (long long)rule->high);
    memcpy((char *)problem + rule->offset, &size, sizeof size);
    return HL_OK;
}

static hl_status read_sizes(hl_attention *problem, const json_t *options, const char *where)
{
    for (size_t i = 0; i < sizeof size_rules / sizeof *size_rules; i++)
        HL_NEED(read_size(problem, options, &size_rules[i], where));
    if (problem->n_heads % problem->n_kv_heads != 0)
        return hl_fail(HL_BAD_INPUT, "%s: 'Hq' is %lld, not a multiple of 'Hkv', %lld", where,
                       (long long)problem->n_heads, (long long)problem->n_kv_heads);
    if (problem->n_batch * problem->n_heads > MAX_BATCH_HEADS)
        return hl_fail(HL_BAD_INPUT, "%s: 'B' times 'Hq' is %lld, at most %d", where,
                       (long long)(problem->n_batch * problem->n_heads), MAX_BATCH_HEADS);
    return HL_OK;
}

/* A window that is absent (or null) does not limit the row. */
static hl_status read_window(hl_attention *problem, int64_t *window, uint32_t flag,
                             const json_t *options, const char *key, const char *where)
{
    int64_t   size   = INT64_MIN;
    hl_status status = hl_json_get_int(&size, options, key, where);

    if (status != HL_OK || size == INT64_MIN)
        return status;
    if (size < 0 || size > MAX_POSITION)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %lld, wanted 0 to %lld", where, key,
                       (long long)size, (long long)MAX_POSITION);
    *window = size;
    problem->flags |= flag;
    return HL_OK;
}

/* Reads a number; *out is unchanged if the key is missing. */
static hl_status read_number(double *out, const json_t *options, const char *key, double low,
                             double high, const char *where)
{
    double number = *out;

    HL_NEED(hl_json_get_double(&number, options, key, where));
    if (!(number >= low && number <= high))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %g, wanted %g to %g", where, key, number, low,
                       high);
    *out = number;
    return HL_OK;
}

static hl_status read_options(hl_verify_case *golden, const json_t *options, const char *where)
{
    hl_attention *problem = &golden->problem;
    bool          causal  = false;

    HL_NEED(read_sizes(problem, options, where));
    HL_NEED(hl_json_get_bool(&causal, options, "causal", where));
    if (causal)
        problem->flags |= HL_ATTENTION_CAUSAL;
    HL_NEED(read_window(problem, &problem->window_left, HL_ATTENTION_WINDOW_LEFT, options,
                        "window_left", where));
    HL_NEED(read_window(problem, &problem->window_right, HL_ATTENTION_WINDOW_RIGHT, options,
                        "window_right", where));
    HL_NEED(read_window(problem, &problem->window_sink, 0, options, "window_sink", where));

    problem->scale = 1.0 / sqrt((double)problem->d_head);
    problem->flags |= HL_ATTENTION_SCALE;
    HL_NEED(read_number(&problem->scale, options, "scale", -1e6, 1e6, where));
    HL_NEED(read_number(&problem->softcap, options, "softcap", 0.0, 1e6, where));
    return read_number(&golden->max_score, options, "max_score", 0.0, MAX_MAX_SCORE, where);
}

static hl_status parse_options(hl_verify_case *golden)
{
    hl_status status  = HL_OK;
    json_t   *options = NULL;

    golden->options = hl_safetensors_metadata(golden->file, "case");
    if (golden->options == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: not an attention case: no metadata key 'case'",
                       golden->where);
    HL_TRY(hl_json_parse(&options, golden->options, strlen(golden->options), golden->where));
    if (!json_is_object(options)) {
        status = hl_fail(HL_BAD_INPUT, "%s: 'case' is not a JSON object", golden->where);
        goto done;
    }
    HL_TRY(read_options(golden, options, golden->where));

done:
    json_decref(options);
    return status;
}

/* --------------------------------------------------------- checked tensors */

#define DTYPE_SET(dtype) (UINT64_C(1) << (dtype))
#define FLOAT_INPUTS                                                                               \
    (DTYPE_SET(HL_DTYPE_F32) | DTYPE_SET(HL_DTYPE_F16) | DTYPE_SET(HL_DTYPE_BF16) |                \
     DTYPE_SET(HL_DTYPE_F64))
#define FLOAT_OUTPUTS (DTYPE_SET(HL_DTYPE_F32) | DTYPE_SET(HL_DTYPE_F64))

int64_t hl_verify_size(const hl_verify_case *golden, char letter)
{
    const hl_attention *problem = &golden->problem;

    switch (letter) {
    case 'B':
        return problem->n_batch;
    case 'H':
        return problem->n_heads;
    case 'G':
        return problem->n_kv_heads;
    case 'Q':
        return problem->n_queries;
    case 'K':
        return problem->n_keys;
    case 'D':
        return problem->d_head;
    case 'V':
        return problem->d_value;
    default:
        return problem->n_segments; /* the letter S */
    }
}

size_t hl_verify_count(const hl_verify_case *golden, hl_verify_output output)
{
    size_t count = 1;

    for (const char *letter = hl_verify_specs[output].shape; *letter != '\0'; letter++)
        count *= (size_t)hl_verify_size(golden, *letter);
    return count;
}

/* Formats a shape as "[2,65,64]". */
static void format_shape(char *out, size_t n_bytes, const int64_t *shape, int n_dims)
{
    size_t used = (size_t)snprintf(out, n_bytes, "[");

    for (int i = 0; i < n_dims && used < n_bytes; i++)
        used += (size_t)snprintf(out + used, n_bytes - used, i == 0 ? "%lld" : ",%lld",
                                 (long long)shape[i]);
    if (used < n_bytes)
        snprintf(out + used, n_bytes - used, "]");
}

static hl_status check_shape(const hl_verify_case *golden, const hl_tensor *tensor,
                             const char *letters)
{
    int64_t wanted[HL_MAX_TENSOR_DIMS];
    int     n_dims = (int)strlen(letters);
    bool    same   = tensor->n_dims == n_dims;
    char    seen_text[200], wanted_text[200];

    for (int i = 0; i < n_dims; i++) {
        wanted[i] = hl_verify_size(golden, letters[i]);
        same      = same && tensor->shape[i] == wanted[i];
    }
    if (same)
        return HL_OK;
    format_shape(seen_text, sizeof seen_text, tensor->shape, tensor->n_dims);
    format_shape(wanted_text, sizeof wanted_text, wanted, n_dims);
    return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' has shape %s, the case says %s", golden->where,
                   tensor->name, seen_text, wanted_text);
}

static hl_status check_dtype(const hl_verify_case *golden, const hl_tensor *tensor, uint64_t dtypes)
{
    char   wanted[80] = "";
    size_t used       = 0;

    if ((dtypes & DTYPE_SET(tensor->dtype)) != 0)
        return HL_OK;
    for (int dtype = 0; dtype < HL_DTYPE_COUNT && used < sizeof wanted; dtype++) {
        if ((dtypes & DTYPE_SET(dtype)) != 0)
            used += (size_t)snprintf(wanted + used, sizeof wanted - used,
                                     used == 0 ? "%s" : " or %s", hl_dtype_name((hl_dtype)dtype));
    }
    return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' has dtype %s, wanted %s", golden->where,
                   tensor->name, hl_dtype_name(tensor->dtype), wanted);
}

/* Finds a tensor; *out is NULL, without an error, if the file does not have it. */
static hl_status find_tensor(const hl_tensor **out, const hl_verify_case *golden, const char *name,
                             const char *letters, uint64_t dtypes)
{
    const hl_tensor *tensor = hl_safetensors_find(golden->file, name);

    if (tensor == NULL && strcmp(name, "self") == 0)
        tensor = hl_safetensors_find(golden->file, "diagonal"); /* earlier files name it so */

    *out = NULL;
    if (tensor == NULL)
        return HL_OK;
    HL_NEED(check_dtype(golden, tensor, dtypes));
    HL_NEED(check_shape(golden, tensor, letters));
    *out = tensor;
    return HL_OK;
}

/* ---------------------------------------------------------------- inputs */

/* Makes an aligned copy that the case owns; *out is unchanged if the file has no such tensor. */
static hl_status copy_input(void **out, hl_dtype *dtype, hl_verify_case *golden, const char *name,
                            const char *letters, uint64_t dtypes)
{
    const hl_tensor *tensor = NULL;
    void            *copy   = NULL;

    HL_NEED(find_tensor(&tensor, golden, name, letters, dtypes));
    if (tensor == NULL)
        return HL_OK;
    HL_NEED(hl_alloc(&copy, tensor->n_bytes, 1));
    if (tensor->n_bytes != 0)
        memcpy(copy, tensor->data, tensor->n_bytes);
    golden->inputs[golden->n_inputs++] = copy;
    *out                               = copy;
    *dtype                             = tensor->dtype;
    return HL_OK;
}

static hl_status copy_rows(hl_rows *out, hl_verify_case *golden, const char *name,
                           const char *letters)
{
    hl_status status = copy_input(&out->data, &out->dtype, golden, name, letters, FLOAT_INPUTS);

    if (status == HL_OK && out->data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' is missing", golden->where, name);
    return status;
}

static hl_status copy_floats(const float **out, hl_verify_case *golden, const char *name,
                             const char *letters)
{
    void     *copy = NULL;
    hl_dtype  dtype;
    hl_status status = copy_input(&copy, &dtype, golden, name, letters, DTYPE_SET(HL_DTYPE_F32));

    *out = copy;
    return status;
}

/* Copies integers, which must be between low and high. */
static hl_status copy_ints(const int64_t **out, hl_verify_case *golden, const char *name,
                           const char *letters, int64_t low, int64_t high)
{
    void     *copy = NULL;
    hl_dtype  dtype;
    hl_status status = copy_input(&copy, &dtype, golden, name, letters, DTYPE_SET(HL_DTYPE_I64));

    *out = copy;
    if (status != HL_OK || copy == NULL)
        return status;
    for (int64_t i = 0; i < hl_verify_size(golden, letters[0]); i++) {
        if ((*out)[i] < low || (*out)[i] > high)
            return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' holds %lld at %lld, wanted %lld to %lld",
                           golden->where, name, (long long)(*out)[i], (long long)i, (long long)low,
                           (long long)high);
    }
    return HL_OK;
}

/* The number of segments is the last size of segment_mass, or else one more than the largest number
 * in use. */
static hl_status count_segments(hl_verify_case *golden, const int64_t *numbers)
{
    const hl_tensor *mass = hl_safetensors_find(golden->file, "segment_mass");
    int64_t          used = 1;

    for (int64_t key = 0; key < golden->problem.n_keys; key++)
        used = numbers[key] + 1 > used ? numbers[key] + 1 : used;

    int64_t n_segments = mass != NULL && mass->n_dims == 4 ? mass->shape[3] : used;
    if (n_segments < used || n_segments > HL_MAX_SEGMENTS)
        return hl_fail(HL_BAD_INPUT, "%s: %lld segments, wanted %lld to %d", golden->where,
                       (long long)n_segments, (long long)used, HL_MAX_SEGMENTS);
    golden->problem.n_segments = n_segments;
    return HL_OK;
}

/* Copies segments: the file has int64 (n_keys), the operator takes bytes. */
static hl_status copy_segments(hl_verify_case *golden)
{
    const int64_t *numbers = NULL;
    uint8_t       *bytes   = NULL;
    int64_t        n_keys  = golden->problem.n_keys;

    HL_NEED(copy_ints(&numbers, golden, "segments", "K", 0, HL_MAX_SEGMENTS - 1));
    if (numbers == NULL)
        return HL_OK;
    HL_NEED(count_segments(golden, numbers));
    HL_NEED(HL_ALLOC(&bytes, (size_t)n_keys));
    for (int64_t key = 0; key < n_keys; key++)
        bytes[key] = (uint8_t)numbers[key];
    golden->inputs[golden->n_inputs++] = bytes;
    golden->problem.segments           = bytes;
    return HL_OK;
}

static hl_status copy_problem(hl_verify_case *golden)
{
    hl_attention *problem = &golden->problem;

    HL_NEED(copy_rows(&problem->q, golden, "q", "BHQD"));
    HL_NEED(copy_rows(&problem->k, golden, "k", "BGKD"));
    HL_NEED(copy_rows(&problem->v, golden, "v", "BGKV"));
    HL_NEED(copy_ints(&problem->key_length, golden, "key_length", "B", 0, problem->n_keys));
    HL_NEED(
        copy_ints(&problem->query_start, golden, "query_start", "B", -MAX_POSITION, MAX_POSITION));
    HL_NEED(copy_floats(&problem->alibi_slopes, golden, "alibi_slopes", "H"));
    HL_NEED(copy_floats(&problem->key_bias, golden, "key_bias", "HK"));
    HL_NEED(copy_floats(&problem->sinks, golden, "sinks", "H"));
    HL_NEED(copy_floats(&problem->gates, golden, "gates", "H"));
    return copy_segments(golden);
}

static hl_status copy_upstream(hl_verify_case *golden)
{
    hl_attention_upstream *upstream = &golden->upstream;

    HL_NEED(copy_input(&upstream->grad_out.data, &upstream->grad_out.dtype, golden, "grad_out",
                       "BHQV", DTYPE_SET(HL_DTYPE_F32)));
    HL_NEED(copy_floats(&upstream->grad_entropy, golden, "grad_entropy", "BHQ"));
    HL_NEED(copy_floats(&upstream->grad_lse, golden, "grad_lse", "BHQ"));
    golden->has_upstream = upstream->grad_out.data != NULL || upstream->grad_entropy != NULL ||
                           upstream->grad_lse != NULL;
    return HL_OK;
}

/* --------------------------------------------------------------- expected */

/* Returns the name of an input that an output requires and the case lacks; NULL if there is
 * none. */
static const char *missing_for(const hl_verify_case *golden, int output)
{
    if (output == HL_VERIFY_SEGMENT_MASS && golden->problem.segments == NULL)
        return "segments";
    if (output >= HL_VERIFY_DQ && !golden->has_upstream)
        return "grad_out, grad_entropy or grad_lse";
    if (output == HL_VERIFY_DSINKS && golden->problem.sinks == NULL)
        return "sinks";
    return NULL;
}

static hl_status find_expected(hl_verify_case *golden)
{
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        const hl_verify_spec *spec    = &hl_verify_specs[output];
        uint64_t              dtypes  = FLOAT_OUTPUTS;
        const char           *missing = missing_for(golden, output);

        if (output == HL_VERIFY_ARGMAX)
            dtypes = DTYPE_SET(HL_DTYPE_I64);
        if (missing != NULL && hl_safetensors_find(golden->file, spec->name) != NULL)
            return hl_fail(HL_BAD_INPUT, "%s: expects '%s' but has no %s", golden->where,
                           spec->name, missing);

        HL_NEED(find_tensor(&golden->expected[output], golden, spec->name, spec->shape, dtypes));
    }
    return HL_OK;
}

/* ------------------------------------------------------------ open and close */

/* Takes ownership of the file at `file`. */
static hl_status case_from_file(hl_verify_case **out, hl_safetensors **file, const char *where)
{
    HL_CLOSED(hl_verify_case_close) hl_verify_case *golden = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&golden, 1));
    golden->file = hl_taken(file);
    HL_NEED(hl_strdup(&golden->where, where));
    HL_NEED(parse_options(golden));
    HL_NEED(copy_problem(golden));
    HL_NEED(copy_upstream(golden));
    HL_NEED(find_expected(golden));
    *out = hl_taken(&golden);
    return HL_OK;
}

hl_status hl_verify_case_open(hl_verify_case **out, const char *path)
{
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file = NULL;

    *out = NULL;
    HL_NEED(hl_safetensors_open(&file, path));
    return case_from_file(out, &file, path);
}

hl_status hl_verify_case_parse(hl_verify_case **out, const uint8_t *bytes, size_t n_bytes,
                               const char *where)
{
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file = NULL;

    *out = NULL;
    HL_NEED(hl_safetensors_parse(&file, bytes, n_bytes, where));
    return case_from_file(out, &file, where);
}

void hl_verify_case_close(hl_verify_case *golden)
{
    if (golden == NULL)
        return;
    for (size_t i = 0; i < golden->n_inputs; i++)
        hl_free(golden->inputs[i]);
    hl_free(golden->where);
    hl_safetensors_close(golden->file);
    hl_free(golden);
}
