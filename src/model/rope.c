/* rope.c - rotary positions: reads their parameters from files, and has seven ways to change them.
 *
 * Pair i of n_dims rotates with frequency  f_i = base^(-2i / n_dims).  A model trained on n tokens
 * can read longer texts if some of the pairs rotate more slowly:
 *
 *     linear    f / factor
 *     dynamic   the base grows with the length beyond that of training
 *     llama3    slow pairs f / factor, fast pairs f, a blend between them
 *     yarn      the same with a ramp over i, and cos and sin scaled
 *     longrope  a factor for every pair, from one of two lists, chosen by length
 *     proportional  the first pairs f, the others 0
 *     factors   a factor for every pair (what GGUF files keep of llama3)
 *
 * The formulas are those of transformers.  The plain frequency is rounded to float where
 * transformers rounds it: at large positions, an ulp makes a visible difference in the angle.
 *
 * Files have three spellings of the parameters:
 *
 *     v4    "rope_theta": 5e5, "rope_scaling": {"rope_type" or "type": "llama3", ...}
 *     v5    "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", ...}
 *     v5    "rope_parameters": {"full_attention": {...}, "sliding_attention": {...}}
 *
 * and GGUF's rope.freq_base, rope.scaling.* with the tensors rope_freqs (the result of llama3's
 * rule) and rope_factors_short / _long. */
#include "model/config.h"
#include "model/fields.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"

/* ----------------------------------------------------------------------------------------- kinds */

static const struct {
    const char  *name;
    hl_rope_kind kind;
} kind_names[] = {
    { "default", HL_ROPE_DEFAULT },
    { "none", HL_ROPE_DEFAULT },
    { "linear", HL_ROPE_LINEAR },
    { "dynamic", HL_ROPE_DYNAMIC },
    { "llama3", HL_ROPE_LLAMA3 },
    { "yarn", HL_ROPE_YARN },
    { "longrope", HL_ROPE_LONGROPE },
    { "su", HL_ROPE_LONGROPE },   /* phi3's first name */
    { "mrope", HL_ROPE_DEFAULT }, /* three positions, all equal in text */
    { "proportional", HL_ROPE_PROPORTIONAL },
    { "factors", HL_ROPE_FACTORS },
};

enum { N_KIND_NAMES = sizeof kind_names / sizeof *kind_names };

const char *hl_rope_kind_name(hl_rope_kind kind)
{
    for (int i = 0; i < N_KIND_NAMES; i++) {
        if (kind_names[i].kind == kind)
            return kind_names[i].name;
    }
    return "?";
}

/* Reads the kind that a file names under this key; a missing key leaves it unchanged. */
static hl_status read_kind(hl_rope_kind *out, const hl_fields *fields, const char *json,
                           const char *gguf)
{
    char      name[HL_MAX_FIELD_TEXT] = "";
    hl_status status                  = hl_fields_text(name, fields, json, gguf);

    if (status != HL_OK || name[0] == '\0')
        return status;
    for (int i = 0; i < N_KIND_NAMES; i++) {
        /* "factors" is headlight's own name and not valid in a file. */
        if (strcmp(name, kind_names[i].name) == 0 && kind_names[i].kind != HL_ROPE_FACTORS) {
            *out = kind_names[i].kind;
            return HL_OK;
        }
    }
    return hl_fail(HL_UNSUPPORTED,
                   "%s: the rope type '%s' is not one of default, linear, dynamic, llama3, yarn, "
                   "longrope",
                   fields->where, name);
}

/* ----------------------------------------------------------------------------------- config.json */

static hl_status read_factors(float *out, size_t *count, const hl_fields *fields, const char *key)
{
    const json_t *list = json_object_get(fields->object, key);

    *count = json_array_size(list);
    if (list == NULL || json_is_null(list))
        return HL_OK;
    if (!json_is_array(list) || *count == 0 || *count > HL_MAX_ROPE_PAIRS)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' has %zu entries, wanted 1 to %d", fields->where, key,
                       *count, HL_MAX_ROPE_PAIRS);
    for (size_t i = 0; i < *count; i++) {
        const json_t *entry = json_array_get(list, i);
        double        value = json_is_number(entry) ? json_number_value(entry) : 0.0;
        if (!(value > 0.0 && value < 1e30))
            return hl_fail(HL_BAD_INPUT, "%s: '%s' [%zu] is not a number above 0", fields->where,
                           key, i);
        out[i] = (float)value;
    }
    return HL_OK;
}

static hl_status read_factor_lists(hl_rope *rope, const hl_fields *fields)
{
    size_t n_short = 0;
    size_t n_long  = 0;

    HL_NEED(read_factors(rope->short_factors, &n_short, fields, "short_factor"));
    HL_NEED(read_factors(rope->long_factors, &n_long, fields, "long_factor"));
    if (n_short != n_long)
        return hl_fail(HL_BAD_INPUT, "%s: 'short_factor' has %zu entries, 'long_factor' %zu",
                       fields->where, n_short, n_long);
    rope->n_factors = (int64_t)n_short;
    return HL_OK;
}

/* Reads one dictionary of parameters.  llama_4_scaling_beta stands there, too. */
static hl_status read_dictionary(hl_config *config, hl_rope *rope, const json_t *dictionary,
                                 const char *where)
{
    hl_fields fields     = { .where = where, .object = dictionary, .outer = dictionary };
    double    mscale     = 0.0;
    double    mscale_all = 0.0;
    double    mscales[2];

    HL_NEED(read_kind(&rope->kind, &fields, "rope_type|type", NULL));
    HL_NEED(hl_fields_double(&rope->base, &fields, "rope_theta", NULL));
    HL_NEED(hl_fields_double(rope->kind == HL_ROPE_PROPORTIONAL ? &rope->share
                                                                : &config->rotary_fraction,
                             &fields, "partial_rotary_factor", NULL));
    HL_NEED(hl_fields_double(&rope->factor, &fields, "factor", NULL));
    HL_NEED(hl_fields_double(&rope->alpha, &fields, "alpha", NULL));
    HL_NEED(hl_fields_double(&config->temper, &fields, "llama_4_scaling_beta", NULL));
    HL_NEED(
        hl_fields_double(&rope->attention_factor, &fields, "attention_factor|short_mscale", NULL));
    HL_NEED(hl_fields_double(&rope->long_factor, &fields, "long_mscale", NULL));
    HL_NEED(hl_fields_double(&rope->low_freq_factor, &fields, "low_freq_factor", NULL));
    HL_NEED(hl_fields_double(&rope->high_freq_factor, &fields, "high_freq_factor", NULL));
    HL_NEED(hl_fields_double(&rope->beta_fast, &fields, "beta_fast", NULL));
    HL_NEED(hl_fields_double(&rope->beta_slow, &fields, "beta_slow", NULL));
    HL_NEED(hl_fields_double(&mscale, &fields, "mscale", NULL));
    HL_NEED(hl_fields_double(&mscale_all, &fields, "mscale_all_dim", NULL));
    HL_NEED(hl_fields_int(&rope->original_n_ctx, &fields, "original_max_position_embeddings", NULL,
                          1, HL_MAX_CONTEXT));
    bool truncate = !rope->untruncated;
    HL_NEED(hl_fields_bool(&truncate, &fields, "truncate", NULL));
    rope->untruncated = !truncate;
    rope->mscale_all  = mscale_all;
    HL_NEED(read_factor_lists(rope, &fields));
    if (rope->attention_factor == 0.0 && mscale != 0.0 && mscale_all != 0.0 && rope->factor > 1.0) {
        mscales[0]             = 0.1 * mscale * log(rope->factor) + 1.0;
        mscales[1]             = 0.1 * mscale_all * log(rope->factor) + 1.0;
        rope->attention_factor = mscales[0] / mscales[1];
    }
    return HL_OK;
}

/* Reads rope_parameters or rope_scaling: one dictionary, or one for each kind of layer. */
static hl_status read_dictionaries(hl_config *config, const hl_fields *fields)
{
    const json_t *dictionary = json_object_get(fields->object, "rope_parameters");
    const json_t *full;
    const json_t *local;

    if (dictionary == NULL || json_is_null(dictionary))
        dictionary = json_object_get(fields->object, "rope_scaling");
    if (dictionary == NULL || json_is_null(dictionary))
        return HL_OK;
    if (!json_is_object(dictionary))
        return hl_fail(HL_BAD_INPUT, "%s: the rope parameters are not an object", fields->where);
    full  = json_object_get(dictionary, "full_attention");
    local = json_object_get(dictionary, "sliding_attention");
    if (!json_is_object(full) && !json_is_object(local))
        return read_dictionary(config, &config->ropes[HL_ROPE_MAIN], dictionary, fields->where);
    if (json_is_object(full))
        HL_NEED(read_dictionary(config, &config->ropes[HL_ROPE_MAIN], full, fields->where));
    if (json_is_object(local))
        HL_NEED(read_dictionary(config, &config->ropes[HL_ROPE_LOCAL], local, fields->where));
    return HL_OK;
}

hl_status hl_rope_read_json(hl_config *config, const hl_fields *fields)
{
    hl_rope *rope = &config->ropes[HL_ROPE_MAIN];

    HL_NEED(hl_fields_double(&rope->base, fields, "rope_theta|rotary_emb_base|global_rope_theta",
                             NULL));
    HL_NEED(hl_fields_double(&config->ropes[HL_ROPE_LOCAL].base, fields,
                             "rope_local_base_freq|local_rope_theta", NULL));
    HL_NEED(hl_fields_double(&config->rotary_fraction, fields,
                             "partial_rotary_factor|rotary_pct|rope_pct", NULL));
    HL_NEED(read_dictionaries(config, fields));
    /* Phi3 has this one outside the dictionary, and there it takes precedence. */
    return hl_fields_int(&rope->original_n_ctx, fields, "original_max_position_embeddings", NULL, 1,
                         HL_MAX_CONTEXT);
}

/* ------------------------------------------------------------------------------------------ GGUF */

/* Reads a tensor of factors; *count gets their number, 0 if there is no tensor. */
static hl_status read_factor_tensor(float *out, int64_t *count, const hl_fields *fields,
                                    const char *name)
{
    const hl_tensor *tensor = hl_tensors_find(fields->tensors, name);

    *count = 0;
    if (tensor == NULL)
        return HL_OK;
    *count = hl_tensor_count(tensor);
    if (*count < 1 || *count > HL_MAX_ROPE_PAIRS || tensor->dtype != HL_DTYPE_F32)
        return hl_fail(HL_BAD_INPUT,
                       "%s: tensor '%s' has %lld entries of %s, wanted up to %d of F32",
                       fields->where, name, (long long)*count, hl_dtype_name(tensor->dtype),
                       HL_MAX_ROPE_PAIRS);
    hl_status status = hl_dtype_to_f32(out, tensor->data, tensor->dtype, (size_t)*count);
    for (int64_t i = 0; status == HL_OK && i < *count; i++) {
        if (!(out[i] > 0.0f) || isinf(out[i]))
            return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' [%lld] is %g, wanted more than 0",
                           fields->where, name, (long long)i, (double)out[i]);
    }
    return status;
}

static hl_status read_factor_tensors(hl_rope *rope, const hl_fields *fields)
{
    int64_t n_freqs = 0;
    int64_t n_short = 0;
    int64_t n_long  = 0;

    HL_NEED(read_factor_tensor(rope->short_factors, &n_freqs, fields, "rope_freqs.weight"));
    if (n_freqs > 0) {
        rope->kind      = HL_ROPE_FACTORS;
        rope->n_factors = n_freqs;
        return HL_OK;
    }
    HL_NEED(read_factor_tensor(rope->short_factors, &n_short, fields, "rope_factors_short.weight"));
    HL_NEED(read_factor_tensor(rope->long_factors, &n_long, fields, "rope_factors_long.weight"));
    if (n_short != n_long)
        return hl_fail(HL_BAD_INPUT, "%s: %lld short rotary factors and %lld long ones",
                       fields->where, (long long)n_short, (long long)n_long);
    if (n_short > 0) {
        rope->kind      = HL_ROPE_LONGROPE;
        rope->n_factors = n_short;
    }
    return HL_OK;
}

static hl_status read_scaling(hl_rope *rope, const hl_fields *fields)
{
    double factor = 0.0;

    HL_NEED(read_kind(&rope->kind, fields, NULL, "rope.scaling.type"));
    HL_NEED(hl_fields_double(&rope->factor, fields, NULL, "rope.scaling.factor|rope.scale_linear"));
    HL_NEED(hl_fields_int(&rope->original_n_ctx, fields, NULL,
                          "rope.scaling.original_context_length", 1, HL_MAX_CONTEXT));
    HL_NEED(hl_fields_double(&rope->beta_fast, fields, NULL, "rope.scaling.yarn_beta_fast"));
    HL_NEED(hl_fields_double(&rope->beta_slow, fields, NULL, "rope.scaling.yarn_beta_slow"));
    HL_NEED(hl_fields_double(&factor, fields, NULL, "rope.scaling.attn_factor"));
    HL_NEED(read_factor_tensors(rope, fields));
    /* For yarn it multiplies the factor that the rule gives. */
    if (factor > 0.0 && rope->kind == HL_ROPE_YARN && rope->factor > 1.0)
        factor *= 0.1 * log(rope->factor) + 1.0;
    rope->attention_factor = factor;
    return HL_OK;
}

hl_status hl_rope_read_gguf(hl_config *config, const hl_fields *fields)
{
    hl_rope *rope  = &config->ropes[HL_ROPE_MAIN];
    hl_rope *local = &config->ropes[HL_ROPE_LOCAL];

    config->rotary_fraction = 1.0; /* the number of dimensions overrides the fraction */
    HL_NEED(hl_fields_double(&rope->base, fields, NULL, "rope.freq_base"));
    HL_NEED(hl_fields_int(&rope->n_dims, fields, NULL, "rope.dimension_count", 2, HL_MAX_HEAD_DIM));
    HL_NEED(read_scaling(rope, fields));
    if (local->base != 0.0)
        local->n_dims = rope->n_dims;
    return HL_OK;
}

/* --------------------------------------------------------------------------------------- filling */

static void fill_defaults(hl_rope *rope, int64_t n_ctx)
{
    if (rope->low_freq_factor == 0.0)
        rope->low_freq_factor = 1.0;
    if (rope->high_freq_factor == 0.0)
        rope->high_freq_factor = 4.0;
    if (rope->beta_fast == 0.0)
        rope->beta_fast = 32.0;
    if (rope->beta_slow == 0.0)
        rope->beta_slow = 1.0;
    if (rope->original_n_ctx == 0 || rope->kind == HL_ROPE_DYNAMIC)
        rope->original_n_ctx = n_ctx;
    if (rope->factor == 0.0 && rope->original_n_ctx > 0)
        rope->factor = (double)n_ctx / (double)rope->original_n_ctx;
}

/* The factor of cos and sin if the file has none. */
static double default_attention_factor(const hl_rope *rope)
{
    if (rope->factor <= 1.0)
        return 1.0;
    if (rope->kind == HL_ROPE_YARN)
        return 0.1 * log(rope->factor) + 1.0;
    if (rope->kind == HL_ROPE_LONGROPE && rope->original_n_ctx > 1)
        return sqrt(1.0 + log(rope->factor) / log((double)rope->original_n_ctx));
    return 1.0;
}

static hl_status bad_number(const char *where, const char *key, double seen, const char *wanted)
{
    return hl_fail(HL_BAD_INPUT, "%s: rope: '%s' is %g, wanted %s", where, key, seen, wanted);
}

static hl_status check_rope(const hl_rope *rope, const hl_config *config, const char *where)
{
    if (rope->n_dims < 2 || rope->n_dims > HL_MAX_HEAD_DIM || rope->n_dims % 2 != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: rope turns %lld of %lld dimensions of a head, wanted an even number of "
                       "them",
                       where, (long long)rope->n_dims, (long long)config->d_head);
    if (!(rope->base > 1.0) || isinf(rope->base))
        return bad_number(where, "rope_theta", rope->base, "more than 1");
    if (rope->kind == HL_ROPE_PROPORTIONAL && !(rope->share >= 0.0 && rope->share <= 1.0))
        return bad_number(where, "partial_rotary_factor", rope->share, "0 to 1");
    if (rope->kind == HL_ROPE_DEFAULT || rope->kind == HL_ROPE_FACTORS ||
        rope->kind == HL_ROPE_PROPORTIONAL)
        return HL_OK;
    if (!(rope->factor > 0.0))
        return bad_number(where, "factor", rope->factor, "more than 0");
    if (rope->original_n_ctx < 1)
        return bad_number(where, "original_max_position_embeddings", (double)rope->original_n_ctx,
                          "more than 0");
    if (!(rope->low_freq_factor > 0.0) || !(rope->high_freq_factor > rope->low_freq_factor))
        return bad_number(where, "high_freq_factor", rope->high_freq_factor,
                          "more than 'low_freq_factor', and that more than 0");
    if (!(rope->beta_slow > 0.0) || !(rope->beta_fast > 0.0))
        return bad_number(where, "beta_slow", rope->beta_slow, "more than 0, as 'beta_fast'");
    if (!(rope->attention_factor > 0.0))
        return bad_number(where, "attention_factor", rope->attention_factor, "more than 0");
    if (!(rope->long_factor > 0.0))
        return bad_number(where, "long_mscale", rope->long_factor, "more than 0");
    if (rope->kind == HL_ROPE_DYNAMIC && rope->n_dims < 4)
        return bad_number(where, "dimensions", (double)rope->n_dims, "4 or more for dynamic");
    return HL_OK;
}

static hl_status fill_one(hl_rope *rope, const hl_config *config, const char *where)
{
    double fraction = config->rotary_fraction != 0.0 ? config->rotary_fraction : 1.0;
    bool   listed   = rope->kind == HL_ROPE_LONGROPE || rope->kind == HL_ROPE_FACTORS;

    if (!(fraction > 0.0 && fraction <= 1.0))
        return bad_number(where, "partial_rotary_factor", fraction, "more than 0, up to 1");
    if (rope->n_dims == 0)
        rope->n_dims = (int64_t)((double)config->d_head * fraction);
    if (listed && rope->n_factors != rope->n_dims / 2)
        return hl_fail(HL_BAD_INPUT, "%s: rope: %lld frequency factors, wanted %lld", where,
                       (long long)rope->n_factors, (long long)rope->n_dims / 2);
    if (rope->alpha > 0.0 &&
        rope->n_dims > 2) { /* Hunyuan's "dynamic" does not depend on lengths */
        rope->base *= pow(rope->alpha, (double)rope->n_dims / (double)(rope->n_dims - 2));
        rope->kind = HL_ROPE_DEFAULT;
    }
    fill_defaults(rope, config->n_ctx);
    if (rope->attention_factor == 0.0)
        rope->attention_factor = default_attention_factor(rope);
    if (rope->long_factor == 0.0)
        rope->long_factor = rope->attention_factor;
    return check_rope(rope, config, where);
}

hl_status hl_rope_fill(hl_config *config, const hl_fields *fields)
{
    hl_rope *local = &config->ropes[HL_ROPE_LOCAL];

    if (config->position != HL_POSITION_ROPE) {
        memset(config->ropes, 0, sizeof config->ropes);
        return HL_OK;
    }
    HL_NEED(fill_one(&config->ropes[HL_ROPE_MAIN], config, fields->where));
    if (local->base != 0.0)
        HL_NEED(fill_one(local, config, fields->where));
    if (config->temper_period == 0)
        config->temper_period = config->ropes[HL_ROPE_MAIN].original_n_ctx;
    return HL_OK;
}

/* ----------------------------------------------------------------------------------- frequencies */

#define TWO_PI 6.283185307179586

static double plain_frequency(double base, int64_t pair, int64_t n_dims)
{
    float exponent = (float)(2 * pair) / (float)n_dims;
    float period   = (float)pow(base, (double)exponent);

    return (double)(1.0f / period);
}

/* The base with which the slowest pair rotates over n_positions as it did over original_n_ctx. */
static double dynamic_base(const hl_rope *rope, int64_t n_positions)
{
    double n_dims = (double)rope->n_dims;
    double ratio  = (double)n_positions / (double)rope->original_n_ctx;

    if (ratio <= 1.0)
        return rope->base;
    return rope->base * pow(rope->factor * ratio - (rope->factor - 1.0), n_dims / (n_dims - 2.0));
}

static double llama3_frequency(const hl_rope *rope, double frequency)
{
    double turns = (double)rope->original_n_ctx * frequency / TWO_PI; /* over the training length */
    double blend =
        (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);

    if (turns > rope->high_freq_factor)
        return frequency;
    if (turns < rope->low_freq_factor)
        return frequency / rope->factor;
    return (1.0 - blend) * frequency / rope->factor + blend * frequency;
}

/* The index, as a real number, of the pair that makes this number of turns during training. */
static double yarn_pair(const hl_rope *rope, double turns)
{
    return (double)rope->n_dims * log((double)rope->original_n_ctx / (turns * TWO_PI)) /
           (2.0 * log(rope->base));
}

static double yarn_frequency(const hl_rope *rope, double frequency, int64_t pair)
{
    double low  = yarn_pair(rope, rope->beta_fast);
    double high = yarn_pair(rope, rope->beta_slow);

    if (!rope->untruncated) {
        low  = floor(low);
        high = ceil(high);
    }
    low  = fmax(low, 0.0);
    high = fmin(high, (double)rope->n_dims - 1.0);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax(((double)pair - low) / (high - low), 0.0), 1.0);
    return frequency / rope->factor * ramp + frequency * (1.0 - ramp);
}

static bool is_long(const hl_rope *rope, int64_t n_positions)
{
    return rope->kind == HL_ROPE_LONGROPE && n_positions > rope->original_n_ctx;
}

double hl_rope_attention_factor(const hl_rope *rope, int64_t n_positions)
{
    return is_long(rope, n_positions) ? rope->long_factor : rope->attention_factor;
}

void hl_rope_frequencies(float *out, const hl_rope *rope, int64_t n_positions)
{
    double base = rope->kind == HL_ROPE_DYNAMIC ? dynamic_base(rope, n_positions) : rope->base;
    const float *factors = is_long(rope, n_positions) ? rope->long_factors : rope->short_factors;

    for (int64_t pair = 0; pair < rope->n_dims / 2; pair++) {
        double frequency = plain_frequency(base, pair, rope->n_dims);

        switch (rope->kind) {
        case HL_ROPE_DEFAULT:
        case HL_ROPE_DYNAMIC:
            break;
        case HL_ROPE_PROPORTIONAL:
            if (pair >= (int64_t)(rope->share * (double)rope->n_dims / 2.0))
                frequency = 0.0;
            break;
        case HL_ROPE_LINEAR:
            frequency /= rope->factor;
            break;
        case HL_ROPE_LLAMA3:
            frequency = llama3_frequency(rope, frequency);
            break;
        case HL_ROPE_YARN:
            frequency = yarn_frequency(rope, frequency, pair);
            break;
        case HL_ROPE_LONGROPE:
        case HL_ROPE_FACTORS:
            frequency /= (double)factors[pair];
            break;
        }
        out[pair] = (float)frequency;
    }
}
