/* config.c - from config.json to a description.
 *
 *     defaults of the family          family_*.c
 *     fields that all families have   below
 *     fields of the family            family_*.c
 *     rotary parameters               config_rope.c
 *     rules of the family             family_*.c, `describe`
 *     sizes that follow from others   below
 *     layers                          config_layers.c; family_*.c, `layers`
 *     checks                          config_check.c
 *
 * config.json has grown: v4 of transformers writes torch_dtype, rope_theta and
 * rope_scaling where v5 writes dtype and rope_parameters, GPT-2's kin say n_embd
 * where others say hidden_size, and models with eyes keep the part that reads in
 * text_config.  All spellings are read; none is preferred. */
#include "model/config.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/config_build.h"

/* ---------------------------------------------------------------- the fields */

#define KEYS_LAYERS "num_hidden_layers|n_layer|num_layers|n_layers"
#define KEYS_WIDTH  "hidden_size|n_embd|n_embed|dim"
#define KEYS_HEADS  "num_attention_heads|n_head|num_heads|n_heads"
#define KEYS_EPS    "rms_norm_eps|layer_norm_epsilon|layer_norm_eps|norm_eps|norm_epsilon"
#define GGUF_EPS    "attention.layer_norm_rms_epsilon|attention.layer_norm_epsilon"

static const hl_field common_fields[] = {
    { KEYS_LAYERS, "block_count", HL_INT(n_layers, 1, HL_MAX_LAYERS) },
    { KEYS_WIDTH, "embedding_length", HL_INT(d_model, 1, HL_MAX_WIDTH) },
    { KEYS_HEADS, "attention.head_count", HL_COUNT(n_heads, 1, HL_MAX_HEADS) },
    { "num_key_value_heads", "attention.head_count_kv", HL_COUNT(n_kv_heads, 1, HL_MAX_HEADS) },
    { "head_dim", "attention.key_length", HL_INT(d_head, 1, HL_MAX_HEAD_DIM) },
    { "intermediate_size|n_inner|ffn_dim|ffn_hidden_size|hidden_dim", "feed_forward_length",
      HL_COUNT(d_mlp, 1, HL_MAX_WIDTH) },
    { "vocab_size", NULL, HL_INT(d_vocab, 1, HL_MAX_VOCAB) },
    { "max_position_embeddings|n_positions|n_ctx|seq_length", "context_length",
      HL_INT(n_ctx, 1, HL_MAX_CONTEXT) },
    { KEYS_EPS, GGUF_EPS, HL_DOUBLE(norm_eps) },
    { "hidden_act|activation_function|hidden_activation|activation", "hidden_activation",
      HL_ACTIVATION(activation) },
    { "tie_word_embeddings", NULL, HL_BOOL(tied) },
    { 0 },
};

/* What has no default, with the keys to name when it is missing. */
static hl_status check_present(const hl_config *config, const hl_fields *fields)
{
    const struct {
        int64_t     value;
        const char *json;
        const char *gguf;
    } needed[] = {
        { config->n_layers, KEYS_LAYERS, "block_count" },
        { config->d_model, KEYS_WIDTH, "embedding_length" },
        { config->n_heads, KEYS_HEADS, "attention.head_count" },
        { config->d_vocab, "vocab_size", "vocab_size" },
    };

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (needed[i].value == 0)
            return hl_fail(HL_BAD_INPUT, "%s: '%s' is missing, which a model of family %s needs",
                           fields->where, fields->object != NULL ? needed[i].json : needed[i].gguf,
                           config->family);
    }
    return HL_OK;
}

/* Sizes that follow from others where they are not given. */
static hl_status fill_sizes(hl_config *config, const hl_fields *fields)
{
    if (config->n_kv_heads == 0)
        config->n_kv_heads = config->n_heads;
    if (config->d_mlp == 0)
        config->d_mlp = 4 * config->d_model;
    if (config->d_embed == 0)
        config->d_embed = config->d_model;
    if (config->n_experts > 0 && config->d_expert == 0)
        config->d_expert = config->d_mlp;
    if (config->d_head == 0 && config->d_model % config->n_heads != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: a width of %lld is not divisible by %lld heads, and 'head_dim' is not "
                       "given",
                       fields->where, (long long)config->d_model, (long long)config->n_heads);
    if (config->d_head == 0)
        config->d_head = config->d_model / config->n_heads;

    double *scales[] = { &config->embed_scale, &config->residual_scale, &config->logit_scale };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (*scales[i] == 0.0)
            *scales[i] = 1.0;
    }
    return HL_OK;
}

/* --------------------------------------------------------- special tokens */

static hl_status bad_token(const char *key, const char *where)
{
    return hl_fail(HL_BAD_INPUT, "%s: '%s' is not a token id or a list of up to %d", where, key,
                   HL_MAX_EOS_TOKENS);
}

/* A token id, an array of them (the first counts), or nothing. */
static hl_status read_token(int64_t *out, const json_t *object, const char *key, const char *where)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (value == NULL || json_is_null(value))
        return HL_OK;
    if (!json_is_integer(value))
        return bad_token(key, where);
    /* Old files say -1 where later ones say null. */
    if (json_integer_value(value) >= 0)
        *out = json_integer_value(value);
    return HL_OK;
}

static hl_status read_eos(hl_generation *generation, const json_t *object, const char *where)
{
    const char   *key   = "eos_token_id";
    const json_t *value = json_object_get(object, key);
    size_t        count = json_is_array(value) ? json_array_size(value) : 1;

    if (value == NULL || json_is_null(value))
        return HL_OK;
    if (count > HL_MAX_EOS_TOKENS)
        return bad_token(key, where);
    generation->n_eos_ids = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id))
            return bad_token(key, where);
        if (json_integer_value(id) >= 0)
            generation->eos_ids[generation->n_eos_ids++] = json_integer_value(id);
    }
    return HL_OK;
}

static hl_status read_generation(hl_generation *generation, const json_t *object, const char *where)
{
    HL_NEED(read_token(&generation->bos_id, object, "bos_token_id", where));
    HL_NEED(read_token(&generation->pad_id, object, "pad_token_id", where));
    HL_NEED(read_eos(generation, object, where));
    HL_NEED(hl_json_get_bool(&generation->do_sample, object, "do_sample", where));
    HL_NEED(hl_json_get_double(&generation->temperature, object, "temperature", where));
    HL_NEED(hl_json_get_double(&generation->top_p, object, "top_p", where));
    HL_NEED(hl_json_get_int(&generation->top_k, object, "top_k", where));
    return hl_json_get_double(&generation->repetition_penalty, object, "repetition_penalty", where);
}

hl_status hl_config_parse_generation(hl_config *config, const char *text, size_t n_bytes,
                                     const char *where)
{
    hl_status status = HL_OK;
    json_t   *root   = NULL;

    HL_TRY(hl_json_parse(&root, text, n_bytes, where));
    if (!json_is_object(root))
        HL_TRY(hl_fail(HL_BAD_INPUT, "%s: not a JSON object", where));
    HL_TRY(read_generation(&config->generation, root, where));

done:
    json_decref(root);
    return status;
}

/* ------------------------------------------------------------------ building */

/* A head is stored only with classes that have one: LlamaModel has none. */
static void read_architecture(hl_config *config, const hl_fields *fields)
{
    const json_t *list = json_object_get(fields->outer, "architectures");
    const char   *name = json_string_value(json_array_get(list, 0));
    size_t        n    = name != NULL ? strlen(name) : 0;

    config->headless =
        n > 5 && strcmp(name + n - 5, "Model") == 0 && strstr(name, "LMHead") == NULL;
}

hl_status hl_config_build(hl_config **out, const hl_family *family, const hl_fields *fields)
{
    hl_status  status = HL_OK;
    hl_config *config = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC(&config, 1));
    *config                   = family->defaults;
    config->family            = family->name;
    config->generation.bos_id = -1;
    config->generation.pad_id = -1;
    HL_TRY(hl_fields_read(config, fields, common_fields));
    HL_TRY(hl_fields_read(config, fields, family->fields));
    HL_TRY(hl_config_read_rope(config, fields));
    if (fields->object != NULL) {
        read_architecture(config, fields);
        HL_TRY(read_generation(&config->generation, fields->outer, fields->where));
    } else {
        HL_TRY(hl_config_read_gguf(config, fields));
    }
    HL_TRY(check_present(config, fields));
    if (family->describe != NULL)
        HL_TRY(family->describe(config, fields));
    HL_TRY(fill_sizes(config, fields));
    HL_TRY(hl_config_fill_rope(config, fields));
    HL_TRY(hl_config_make_layers(config, family, fields));
    HL_TRY(hl_config_check(config, fields->where));
    *out   = config;
    config = NULL;

done:
    hl_config_free(config);
    return status;
}

void hl_config_free(hl_config *config)
{
    if (config == NULL)
        return;
    hl_free(config->layers);
    hl_free(config);
}

/* -------------------------------------------------------------- config.json */

/* Weights packed by another program.  gpt_oss stores MXFP4, which we read. */
static hl_status refuse_quantized(const json_t *root, const char *where)
{
    const json_t *quantization = json_object_get(root, "quantization_config");
    const char   *method       = json_string_value(json_object_get(quantization, "quant_method"));

    if (quantization == NULL || json_is_null(quantization))
        return HL_OK;
    if (method == NULL && (json_object_get(quantization, "load_in_4bit") != NULL ||
                           json_object_get(quantization, "load_in_8bit") != NULL))
        method = "bitsandbytes";
    if (method == NULL)
        method = "a method it does not name";
    if (strcmp(method, "mxfp4") == 0)
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED,
                   "%s: the weights are quantised (quant_method: %s), which headlight does not "
                   "read; take the unquantised model, or convert that to GGUF with llama.cpp's "
                   "convert_hf_to_gguf.py",
                   where, method);
}

/* The part of a nested configuration that describes the text model. */
static const json_t *text_part(const json_t *root)
{
    const json_t *nested = json_object_get(root, "text_config");
    return json_is_object(nested) ? nested : root;
}

static hl_status find_family(const hl_family **out, const hl_fields *fields)
{
    char      model_type[HL_MAX_FIELD_TEXT] = "";
    hl_status status = hl_fields_text(model_type, fields, "model_type", NULL);

    if (status != HL_OK)
        return status;
    if (model_type[0] == '\0')
        return hl_fail(HL_BAD_INPUT, "%s: 'model_type' is missing: which family is this?",
                       fields->where);
    return hl_family_of_model_type(out, model_type, fields->where);
}

hl_status hl_config_parse(hl_config **out, const char *text, size_t n_bytes, const char *where)
{
    hl_status        status = HL_OK;
    json_t          *root   = NULL;
    const hl_family *family = NULL;

    *out = NULL;
    HL_TRY(hl_json_parse(&root, text, n_bytes, where));
    if (!json_is_object(root))
        HL_TRY(hl_fail(HL_BAD_INPUT, "%s: not a JSON object", where));

    hl_fields fields = { .where = where, .object = text_part(root), .outer = root };
    HL_TRY(find_family(&family, &fields));
    HL_TRY(refuse_quantized(root, where));
    HL_TRY(hl_config_build(out, family, &fields));

done:
    json_decref(root);
    return status;
}
