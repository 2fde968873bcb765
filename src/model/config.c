/* config.c - builds a description from config.json, GGUF metadata or a llama2.c header.
 *
 *     defaults of the family          family_*.c
 *     fields that all families have   below
 *     fields of the family            family_*.c
 *     rotary parameters               rope.c
 *     rules of the family             family_*.c, `describe`
 *     sizes that follow from others   below
 *     layers                          below; family_*.c, `layers`
 *     checks                          below
 *
 * config.json has several spellings.  v4 of transformers writes torch_dtype, rope_theta and
 * rope_scaling, v5 writes dtype and rope_parameters.  GPT-2 and its relatives write n_embd instead
 * of hidden_size, and models with images have the text model in text_config.  All spellings are
 * read; none is preferred.
 *
 * GGUF is mostly the families' tables: a key of config.json and one of GGUF lead to the same
 * member.  Some values have no key in GGUF and follow from its tensors: the size of the vocabulary,
 * whether the head is the embedding, which maps have biases, and llama3's rotary rule, stored as
 * its factors. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/family.h"

/* ------------------------------------------------------------------------------------ the fields */

#define KEYS_LAYERS "num_hidden_layers|n_layer|num_layers|n_layers"
#define KEYS_WIDTH  "hidden_size|n_embd|n_embed|dim|d_model"
#define KEYS_HEADS  "num_attention_heads|n_head|num_heads|n_heads|attention_heads"
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
    { "max_position_embeddings|n_positions|n_ctx|seq_length|max_seq_len", "context_length",
      HL_INT(n_ctx, 1, HL_MAX_CONTEXT) },
    { KEYS_EPS, GGUF_EPS, HL_DOUBLE(norm_eps) },
    { "hidden_act|activation_function|hidden_activation|activation", "hidden_activation",
      HL_ACTIVATION(activation) },
    { "tie_word_embeddings", NULL, HL_BOOL(tied) },
    { 0 },
};

/* Checks that fields without a default are present; a message names the keys of a missing one. */
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

/* Fills in the sizes of mixers that follow from others. */
static void fill_mixer(hl_config *config)
{
    hl_mixer_config *mixer = &config->mixer;
    bool             each  = mixer->kind == HL_MIXER_CONV || mixer->kind == HL_MIXER_MAMBA;

    if (each)
        mixer->n_heads = mixer->n_groups = 1;
    if (mixer->kind == HL_MIXER_CONV)
        mixer->d_head = config->d_model;
    if (mixer->kind == HL_MIXER_DELTA) {
        mixer->n_norms    = mixer->n_heads;
        mixer->norm_first = true;
    }
    if (mixer->n_groups == 0)
        mixer->n_groups = 1;
    mixer->n_channels = mixer->n_heads * mixer->d_head;
    if (!each)
        mixer->n_channels += 2 * mixer->n_groups * mixer->d_state;
    if (mixer->dt_high == 0.0)
        mixer->dt_high = INFINITY;
    for (int i = 0; i < HL_N_MIX_PARTS; i++)
        mixer->factors[i] = mixer->factors[i] != 0.0 ? mixer->factors[i] : 1.0;
}

/* Fills in sizes that follow from others, if they are not given. */
static hl_status fill_sizes(hl_config *config, const hl_fields *fields)
{
    if (config->n_kv_heads == 0)
        config->n_kv_heads = config->n_heads;
    if (config->d_mlp == 0)
        config->d_mlp = 4 * config->d_model;
    if (config->d_embed == 0)
        config->d_embed = config->d_model;
    if (config->n_streams == 0)
        config->n_streams = 1;
    if (config->n_experts > 0 && config->d_expert == 0)
        config->d_expert = config->d_mlp;
    if (config->d_head == 0 && config->d_model % config->n_heads != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: a width of %lld is not divisible by %lld heads, and 'head_dim' is not "
                       "given",
                       fields->where, (long long)config->d_model, (long long)config->n_heads);
    if (config->d_head == 0)
        config->d_head = config->d_model / config->n_heads;
    if (config->d_head > HL_MAX_HEAD_DIM)
        return hl_fail(HL_LIMIT, "%s: heads of %lld dimensions, at most %d", fields->where,
                       (long long)config->d_head, HL_MAX_HEAD_DIM);

    fill_mixer(config);
    if (config->d_shared == 0)
        config->d_shared = config->n_shared * config->d_expert;

    double *scales[] = { &config->embed_scale,     &config->residual_scale,
                         &config->logit_scale,     &config->router.scale,
                         &config->attn_in_factor,  &config->attn_out_factor,
                         &config->mlp_out_factor,  &config->mixer.in_factor,
                         &config->mixer.out_factor };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (*scales[i] == 0.0)
            *scales[i] = 1.0;
    }
    return HL_OK;
}

/* -------------------------------------------------------------------------------- special tokens */

static hl_status bad_token(const char *key, const char *where)
{
    return hl_fail(HL_BAD_INPUT, "%s: '%s' is not a token id or a list of up to %d", where, key,
                   HL_MAX_EOS_TOKENS);
}

/* Reads a token id, an array of them (the first counts), or nothing. */
static hl_status read_token(int64_t *out, const json_t *object, const char *key, const char *where)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (value == NULL || json_is_null(value))
        return HL_OK;
    if (!json_is_integer(value))
        return bad_token(key, where);
    /* Old files have -1 instead of null. */
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

/* ----------------------------------------------------------------- what GGUF says by its tensors */

/* Does any layer have such a tensor?  Not all layers of a hybrid attend. */
static bool layer_has(const hl_config *config, const hl_fields *fields, const char *ending)
{
    char name[64];

    for (int64_t i = 0; i < config->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%lld.%s", (long long)i, ending);
        if (hl_fields_have_tensor(fields, name))
            return true;
    }
    return false;
}

static void read_biases(hl_config *config, const hl_fields *fields)
{
    static const struct {
        uint32_t    bit;
        const char *names[2]; /* in a layer */
    } probes[] = {
        { HL_BIAS_QKV, { "attn_q.bias", "attn_qkv.bias" } },
        { HL_BIAS_O, { "attn_output.bias", NULL } },
        { HL_BIAS_MLP, { "ffn_down.bias", NULL } },
        { HL_BIAS_CONV, { "ssm_conv1d.bias", "shortconv.conv.bias" } },
        { HL_BIAS_MIX_IN, { "ssm_in.bias", "shortconv.in_proj.bias" } },
        { HL_BIAS_MIX_OUT, { "ssm_out.bias", "shortconv.out_proj.bias" } },
        { HL_BIAS_SHARED, { "ffn_down_shexp.bias", NULL } },
    };

    config->biases &= ~(uint32_t)HL_BIAS_HEAD;
    if (hl_fields_have_tensor(fields, "output.bias"))
        config->biases |= HL_BIAS_HEAD;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        config->biases &= ~probes[i].bit;
        for (int j = 0; j < 2 && probes[i].names[j] != NULL; j++) {
            if (layer_has(config, fields, probes[i].names[j]))
                config->biases |= probes[i].bit;
        }
    }
}

static hl_status read_vocabulary(hl_config *config, const hl_fields *fields)
{
    int64_t rows = hl_fields_tensor_size(fields, "token_embd.weight", 0);

    if (rows < 1 || rows > HL_MAX_VOCAB)
        return hl_fail(HL_BAD_INPUT, "%s: tensor 'token_embd.weight' is missing or has %lld rows",
                       fields->where, (long long)rows);
    config->d_vocab = rows;
    config->tied    = !hl_fields_have_tensor(fields, "output.weight");
    return HL_OK;
}

/* Some files count layers that predict tokens further on, which come last and are not run. */
static hl_status leave_out_predictors(hl_config *config, const hl_fields *fields)
{
    int64_t n = 0;

    HL_NEED(hl_fields_int(&n, fields, NULL, "nextn_predict_layers", 0, HL_MAX_LAYERS));
    if (n >= config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: %lld of %lld layers predict further tokens",
                       fields->where, (long long)n, (long long)config->n_layers);
    config->n_layers -= n;
    return HL_OK;
}

/* The shared expert's size.  The converter's keys are sometimes wrong. */
static void read_shared(hl_config *config, const hl_fields *fields)
{
    char name[64];

    for (int64_t i = 0; i < config->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%lld.ffn_up_shexp.weight", (long long)i);
        if (hl_fields_have_tensor(fields, name)) {
            config->d_shared = hl_fields_tensor_size(fields, name, 0);
            return;
        }
    }
}

/* 2^32 - 1 means "none". */
static hl_status read_gguf_token(int64_t *out, const hl_gguf *file, const char *key)
{
    int64_t   id     = -1;
    hl_status status = hl_gguf_get_int(&id, file, key);

    if (status == HL_OK && id >= 0 && id < HL_MAX_VOCAB)
        *out = id;
    return status;
}

static hl_status read_gguf_tokens(hl_generation *generation, const hl_gguf *file)
{
    int64_t ends[] = { -1, -1 };

    HL_NEED(read_gguf_token(&generation->bos_id, file, "tokenizer.ggml.bos_token_id"));
    HL_NEED(read_gguf_token(&generation->pad_id, file, "tokenizer.ggml.padding_token_id"));
    HL_NEED(read_gguf_token(&ends[0], file, "tokenizer.ggml.eos_token_id"));
    HL_NEED(read_gguf_token(&ends[1], file, "tokenizer.ggml.eot_token_id"));
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0 && (i == 0 || ends[i] != ends[0]))
            generation->eos_ids[generation->n_eos_ids++] = ends[i];
    }
    return HL_OK;
}

static hl_status read_gguf(hl_config *config, const hl_fields *fields)
{
    HL_NEED(read_vocabulary(config, fields));
    HL_NEED(leave_out_predictors(config, fields));
    read_biases(config, fields);
    read_shared(config, fields);
    if (config->position == HL_POSITION_ROPE)
        HL_NEED(hl_rope_read_gguf(config, fields));
    /* The file has no rows before the first position. */
    config->position_offset = 0;
    return read_gguf_tokens(&config->generation, fields->gguf);
}

/* ---------------------------------------------------------------------------------------- layers */

/* Values that differ between layers.  All layers start with the description's common values.  The
 * following override them, in this order: lists with an entry per layer (head counts of a GGUF
 * file), the pattern of windowed and full layers, the family's own rule, and config.json's
 * per_layer_config, in which pruned models are written:
 *
 *     "per_layer_config": { "03": { "num_attention_heads": 20, "skip": ["mlp"] } } */

static void make_alike(hl_config *config)
{
    double scale =
        config->attn_scale != 0.0 ? config->attn_scale : 1.0 / sqrt((double)config->d_head);

    for (int64_t i = 0; i < config->n_layers; i++) {
        config->layers[i] = (hl_layer_config){
            .n_heads    = config->n_heads,
            .n_kv_heads = config->n_kv_heads,
            .d_head     = config->d_head,
            .d_mlp      = config->n_experts > 0 ? config->d_expert : config->d_mlp,
            .n_experts  = config->n_experts,
            .qk_norm    = config->qk_norm,
            .attn_scale = scale,
            .temper     = config->temper,
            .numbers    = { (float)config->activation_limit },
            .kv_layer   = config->is_encoder ? 0 : i,
        };
    }
}

/* Reads a list under this key into the member at `offset` of every layer. */
static hl_status spread(hl_config *config, const hl_fields *fields, const char *json,
                        const char *gguf, size_t offset)
{
    HL_FREED int64_t *list  = NULL;
    bool              found = false;
    size_t            count = (size_t)config->n_layers;

    HL_NEED(HL_ALLOC(&list, count));
    HL_NEED(hl_fields_ints(list, &found, fields, json, gguf, count));
    for (size_t i = 0; found && i < count; i++)
        memcpy((char *)&config->layers[i] + offset, &list[i], sizeof list[i]);
    return HL_OK;
}

static hl_status spread_lists(hl_config *config, const hl_fields *fields)
{
    HL_NEED(
        spread(config, fields, NULL, "attention.head_count", offsetof(hl_layer_config, n_heads)));
    HL_NEED(spread(config, fields, NULL, "attention.head_count_kv",
                   offsetof(hl_layer_config, n_kv_heads)));
    for (int64_t i = 0; i < config->n_layers && fields->object == NULL; i++) {
        if (config->mixer.kind != HL_MIXER_NONE && config->layers[i].n_kv_heads == 0)
            hl_config_put_mixer(config, i); /* a GGUF file says so by "no KV heads" */
    }
    if (config->n_experts == 0)
        HL_NEED(spread(config, fields, "intermediate_size", "feed_forward_length",
                       offsetof(hl_layer_config, d_mlp)));
    return HL_OK;
}

/* What files call layers with a mixer. */
static bool is_mixer_word(const char *word)
{
    static const char *const words[] = { "linear_attention", "mamba", "conv", "recurrent" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0)
            return true;
    }
    return false;
}

void hl_config_put_mixer(hl_config *config, int64_t layer)
{
    config->layers[layer].mixer   = config->mixer.kind;
    config->layers[layer].n_heads = config->layers[layer].n_kv_heads = 0;
}

static hl_status read_layer_types(hl_config *config, const json_t *types, const char *where)
{
    if (!json_is_array(types) || json_array_size(types) != (size_t)config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: 'layer_types' has %zu entries, wanted %lld", where,
                       json_array_size(types), (long long)config->n_layers);
    for (int64_t i = 0; i < config->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type == NULL)
            return hl_fail(HL_BAD_INPUT, "%s: 'layer_types' [%lld] is not a string", where,
                           (long long)i);
        config->layers[i].window_blocks = strcmp(type, "chunked_attention") == 0;
        config->layers[i].is_local =
            config->layers[i].window_blocks || strcmp(type, "sliding_attention") == 0;
        if (config->mixer.kind != HL_MIXER_NONE && is_mixer_word(type))
            hl_config_put_mixer(config, i);
        else if (config->latent.n_top > 0 && (strcmp(type, "deepseek_sparse_attention") == 0 ||
                                              strcmp(type, "indexed_attention") == 0))
            continue;
        else if (!config->layers[i].is_local && strcmp(type, "full_attention") != 0 &&
                 strcmp(type, "attention") != 0)
            return hl_fail(HL_UNSUPPORTED,
                           "%s: 'layer_types' [%lld] is '%s', wanted full_attention or "
                           "sliding_attention",
                           where, (long long)i, type);
    }
    return HL_OK;
}

/* Without a list, one layer of every period is full; without a period, none is. */
static bool is_local_by_period(const hl_config *config, int64_t layer)
{
    int64_t period = config->window_period;
    int64_t full   = config->full_first ? 0 : period - 1;

    return config->window > 0 && (period == 0 || layer % period != full);
}

static hl_status choose_local(hl_config *config, const hl_fields *fields)
{
    const json_t *types = json_object_get(fields->object, "layer_types");
    int64_t       listed[HL_MAX_LAYERS];
    bool          found = false;

    if (types != NULL && !json_is_null(types))
        return read_layer_types(config, types, fields->where);
    hl_status status = hl_fields_ints(listed, &found, fields, NULL,
                                      "attention.sliding_window_pattern", (size_t)config->n_layers);
    for (int64_t i = 0; status == HL_OK && i < config->n_layers; i++)
        config->layers[i].is_local = found ? listed[i] != 0 : is_local_by_period(config, i);
    return status;
}

static void choose_ropes(hl_config *config)
{
    bool has_local = config->ropes[HL_ROPE_LOCAL].base != 0.0;

    for (int64_t i = 0; i < config->n_layers && config->position == HL_POSITION_ROPE; i++)
        config->layers[i].rope =
            config->layers[i].is_local && has_local ? HL_ROPE_LOCAL : HL_ROPE_MAIN;
}

/* A decoder's window ends at the row's own key; an encoder's lies on both sides of it. */
static void place_windows(hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        hl_layer_config *layer = &config->layers[i];
        layer->is_local        = layer->is_local && config->window > 0;
        if (layer->is_local && config->is_encoder)
            layer->window_left = layer->window_right = config->window / 2;
        else if (layer->is_local)
            layer->window_left = config->window - 1;
    }
}

static hl_status skip_parts(hl_layer_config *layer, const json_t *skip, const char *where)
{
    for (size_t i = 0; i < json_array_size(skip); i++) {
        const char *part = json_string_value(json_array_get(skip, i));
        if (part != NULL && strcmp(part, "attention") == 0)
            layer->n_heads = layer->n_kv_heads = 0;
        else if (part != NULL && strcmp(part, "mlp") == 0)
            layer->d_mlp = layer->n_experts = 0;
        else
            return hl_fail(HL_UNSUPPORTED,
                           "%s: 'per_layer_config' skips '%s', wanted attention or mlp", where,
                           part != NULL ? part : "?");
    }
    return HL_OK;
}

static hl_status read_layer(hl_layer_config *layer, const hl_config *config, const json_t *object,
                            const char *where)
{
    hl_fields fields = { .where = where, .object = object, .outer = object };
    int64_t   d_head = layer->d_head;

    HL_NEED(hl_fields_int(&layer->n_heads, &fields, "num_attention_heads", NULL, 0, HL_MAX_HEADS));
    HL_NEED(
        hl_fields_int(&layer->n_kv_heads, &fields, "num_key_value_heads", NULL, 0, HL_MAX_HEADS));
    HL_NEED(hl_fields_int(&layer->d_mlp, &fields, "intermediate_size", NULL, 0, HL_MAX_WIDTH));
    HL_NEED(hl_fields_int(&layer->d_head, &fields, "head_dim", NULL, 1, HL_MAX_HEAD_DIM));
    if (layer->d_head != d_head && config->attn_scale == 0.0)
        layer->attn_scale = 1.0 / sqrt((double)layer->d_head);
    return skip_parts(layer, json_object_get(object, "skip"), where);
}

static hl_status read_per_layer(hl_config *config, const hl_fields *fields)
{
    json_t     *table = json_object_get(fields->object, "per_layer_config");
    const char *key;
    json_t     *entry;

    if (table == NULL || json_is_null(table))
        return HL_OK;
    if (!json_is_object(table))
        return hl_fail(HL_BAD_INPUT, "%s: 'per_layer_config' is not an object", fields->where);
    json_object_foreach(table, key, entry) {
        char     *end   = NULL;
        long long index = strtoll(key, &end, 10);
        if (*key == '\0' || *end != '\0' || index < 0 || index >= config->n_layers)
            return hl_fail(HL_BAD_INPUT,
                           "%s: 'per_layer_config' names layer '%s', wanted 0 to %lld",
                           fields->where, key, (long long)config->n_layers - 1);
        HL_NEED(read_layer(&config->layers[index], config, entry, fields->where));
    }
    return HL_OK;
}

/* Sets the description's own counts to the largest of any layer. */
static void sum_up(hl_config *config)
{
    config->n_heads = config->n_kv_heads = config->d_head = 0;
    for (int64_t i = 0; i < config->n_layers; i++) {
        const hl_layer_config *layer = &config->layers[i];
        if (layer->n_heads > config->n_heads)
            config->n_heads = layer->n_heads;
        if (layer->n_kv_heads > config->n_kv_heads)
            config->n_kv_heads = layer->n_kv_heads;
        if (layer->n_heads > 0 && layer->d_head > config->d_head)
            config->d_head = layer->d_head;
        if (layer->n_experts == 0 && layer->d_mlp > config->d_mlp)
            config->d_mlp = layer->d_mlp;
    }
}

void hl_config_make_dense(hl_config *config, int64_t layer)
{
    config->layers[layer].n_experts = 0;
    config->layers[layer].d_mlp     = config->d_mlp;
}

/* The layers without experts: the first n_dense, or those of a list in config.json. */
static hl_status choose_mixtures(hl_config *config, const hl_fields *fields)
{
    const json_t *types = json_object_get(fields->object, "mlp_layer_types");

    if (config->n_experts == 0 || (!json_is_array(types) && config->n_dense == 0))
        return HL_OK;
    if (json_is_array(types) && json_array_size(types) != (size_t)config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: 'mlp_layer_types' has %zu entries, wanted %lld",
                       fields->where, json_array_size(types), (long long)config->n_layers);
    for (int64_t i = 0; i < config->n_layers; i++) {
        const char *type  = json_string_value(json_array_get(types, (size_t)i));
        bool        dense = type != NULL ? strcmp(type, "dense") == 0 : i < config->n_dense;

        if (json_is_array(types) && !dense && (type == NULL || strcmp(type, "sparse") != 0))
            return hl_fail(HL_BAD_INPUT,
                           "%s: 'mlp_layer_types' [%lld] is '%s', wanted dense or sparse",
                           fields->where, (long long)i, type != NULL ? type : "not a string");
        if (dense)
            hl_config_make_dense(config, i);
    }
    return HL_OK;
}

static hl_status make_layers(hl_config *config, const hl_family *family, const hl_fields *fields)
{
    HL_NEED(HL_ALLOC_ZEROED(&config->layers, (size_t)config->n_layers));
    make_alike(config);
    HL_NEED(spread_lists(config, fields));
    HL_NEED(choose_local(config, fields));
    choose_ropes(config);
    HL_NEED(choose_mixtures(config, fields));
    if (family->layers != NULL)
        HL_NEED(family->layers(config, fields));
    HL_NEED(read_per_layer(config, fields));
    place_windows(config);
    sum_up(config);
    return HL_OK;
}

/* ---------------------------------------------------------------------------------------- checks */

/* Checks what several numbers must fulfill together.  Ranges of single numbers were checked where
 * they were read, under their keys.  Code that uses a description later checks nothing. */
static hl_status check_heads(const hl_config *config, int64_t index, const char *where)
{
    const hl_layer_config *layer = &config->layers[index];
    long long              q = layer->n_heads, kv = layer->n_kv_heads;

    if (q == 0)
        return HL_OK;
    if (q < 0 || q > HL_MAX_HEADS || kv < 0 || kv > q)
        return hl_fail(HL_BAD_INPUT,
                       "%s: layer %lld has %lld heads and %lld KV heads, wanted 0 to %d, and no "
                       "more KV heads than heads",
                       where, (long long)index, q, kv, HL_MAX_HEADS);
    if (kv == 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: layer %lld has %lld heads and no KV heads: linear attention is not "
                       "supported",
                       where, (long long)index, q);
    if (q % kv != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: layer %lld has %lld heads, not divisible by its %lld KV heads", where,
                       (long long)index, q, kv);
    return HL_OK;
}

/* A layer that uses another's keys must read them as they were written; heads of latent attention are
 * as the model's. */
static hl_status check_keys(const hl_config *config, int64_t index, const char *where)
{
    const hl_layer_config *layer  = &config->layers[index];
    const hl_layer_config *source = &config->layers[layer->kv_layer];

    if (layer->n_heads == 0)
        return HL_OK;
    if (!config->is_encoder && layer->kv_layer != index &&
        (source->n_heads == 0 || source->kv_layer != layer->kv_layer ||
         source->n_kv_heads != layer->n_kv_heads || source->d_head != layer->d_head))
        return hl_fail(
            HL_BAD_INPUT,
            "%s: layer %lld has %lld KV heads of %lld dimensions and uses those of layer "
            "%lld, which has %lld of %lld",
            where, (long long)index, (long long)layer->n_kv_heads, (long long)layer->d_head,
            (long long)layer->kv_layer, (long long)(source->n_heads > 0 ? source->n_kv_heads : 0),
            (long long)source->d_head);
    if (config->latent.d_latent > 0 &&
        (layer->d_head != config->latent.d_value || layer->n_kv_heads != layer->n_heads))
        return hl_fail(
            HL_BAD_INPUT,
            "%s: layer %lld has %lld KV heads of %lld dimensions, wanted %lld of %lld, as "
            "its heads read one latent row",
            where, (long long)index, (long long)layer->n_kv_heads, (long long)layer->d_head,
            (long long)layer->n_heads, (long long)config->latent.d_value);
    return HL_OK;
}

static hl_status check_layer(const hl_config *config, int64_t index, const char *where)
{
    const hl_layer_config *layer = &config->layers[index];
    const hl_rope         *rope  = &config->ropes[layer->rope];

    HL_NEED(check_heads(config, index, where));
    HL_NEED(check_keys(config, index, where));
    if (layer->d_mlp < 0 || layer->d_mlp > HL_MAX_WIDTH)
        return hl_fail(HL_BAD_INPUT, "%s: layer %lld has an MLP of %lld, wanted 0 to %lld", where,
                       (long long)index, (long long)layer->d_mlp, (long long)HL_MAX_WIDTH);
    if (layer->n_heads > 0 && rope->n_dims > layer->d_head && config->latent.d_latent == 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: layer %lld: rope turns %lld of %lld dimensions of a head, wanted an "
                       "even number of them",
                       where, (long long)index, (long long)rope->n_dims, (long long)layer->d_head);
    if (!isfinite(layer->temper) || (layer->temper != 0.0 && config->temper_period < 1))
        return hl_fail(HL_BAD_INPUT, "%s: layer %lld scales its queries by %g every %lld positions",
                       where, (long long)index, layer->temper, (long long)config->temper_period);
    if (!isfinite(layer->attn_scale) || layer->attn_scale == 0.0)
        return hl_fail(HL_BAD_INPUT, "%s: layer %lld scales its scores by %g", where,
                       (long long)index, layer->attn_scale);
    return HL_OK;
}

/* Experts are chosen from the best of equal groups, which must have enough of them. */
static hl_status check_groups(const hl_config *config, const char *where)
{
    int64_t n_groups = config->router.n_groups;
    int64_t n_used   = config->router.n_groups_used;

    if (n_groups < 2)
        return HL_OK;
    if (config->n_experts % n_groups != 0)
        return hl_fail(HL_BAD_INPUT, "%s: %lld experts are not divisible into %lld groups", where,
                       (long long)config->n_experts, (long long)n_groups);
    if (n_used < 1 || n_used > n_groups)
        return hl_fail(HL_BAD_INPUT, "%s: a token uses %lld groups of experts, wanted 1 to %lld",
                       where, (long long)n_used, (long long)n_groups);
    if (config->n_experts_used > n_used * (config->n_experts / n_groups))
        return hl_fail(HL_BAD_INPUT, "%s: %lld experts per token, and %lld groups have %lld", where,
                       (long long)config->n_experts_used, (long long)n_used,
                       (long long)(n_used * (config->n_experts / n_groups)));
    return HL_OK;
}

static hl_status check_experts(const hl_config *config, const char *where)
{
    if (config->n_experts == 0)
        return HL_OK;
    if (config->n_experts_used < 1 || config->n_experts_used > config->n_experts)
        return hl_fail(HL_BAD_INPUT, "%s: a token uses %lld experts of %lld, wanted 1 to %lld",
                       where, (long long)config->n_experts_used, (long long)config->n_experts,
                       (long long)config->n_experts);
    if (config->d_shared > HL_MAX_WIDTH)
        return hl_fail(HL_BAD_INPUT, "%s: a shared expert of %lld, at most %lld", where,
                       (long long)config->d_shared, (long long)HL_MAX_WIDTH);
    if (config->router.score == HL_ROUTER_SPARSEMIXER && config->n_experts_used > 2)
        return hl_fail(HL_UNSUPPORTED, "%s: this router chooses 2 experts, not %lld", where,
                       (long long)config->n_experts_used);
    return check_groups(config, where);
}

/* The limits of each number are so low that products of all of them fit in 63 bits. */
static hl_status check_mixer(const hl_config *config, const char *where)
{
    const hl_mixer_config *mixer = &config->mixer;
    bool                   scans = mixer->kind != HL_MIXER_CONV;
    const struct {
        const char *name;
        int64_t     value;
        int64_t     low;
        int64_t     high;
    } sizes[] = {
        { "number of heads", mixer->n_heads, 1, HL_MAX_HEADS },
        { "size of a head", mixer->d_head, 1, HL_MAX_WIDTH },
        { "number of groups", mixer->n_groups, 1, HL_MAX_HEADS },
        { "size of the state", mixer->d_state, scans, HL_MAX_STATE },
        { "width of the convolution", mixer->width, 1, HL_MAX_CONV },
        { "rank of dt", mixer->d_step, mixer->kind == HL_MIXER_MAMBA, HL_MAX_WIDTH },
        { "inner width", mixer->n_heads * mixer->d_head, 1, HL_MAX_WIDTH },
        { "number of channels", mixer->n_channels, 1, HL_MAX_WIDTH },
    };

    if (!hl_config_has_mixer(config))
        return HL_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value < sizes[i].low || sizes[i].value > sizes[i].high)
            return hl_fail(HL_BAD_INPUT,
                           "%s: the %s of the layers with a %s is %lld, wanted %lld to %lld", where,
                           sizes[i].name, hl_mixer_name(mixer->kind), (long long)sizes[i].value,
                           (long long)sizes[i].low, (long long)sizes[i].high);
    }
    if (mixer->n_heads % mixer->n_groups != 0)
        return hl_fail(HL_BAD_INPUT, "%s: %lld heads of a %s in %lld groups, wanted a divisor",
                       where, (long long)mixer->n_heads, hl_mixer_name(mixer->kind),
                       (long long)mixer->n_groups);
    if (mixer->n_norms > 0 && mixer->n_heads * mixer->d_head % mixer->n_norms != 0)
        return hl_fail(HL_BAD_INPUT, "%s: %lld values in %lld groups of a norm, wanted a divisor",
                       where, (long long)(mixer->n_heads * mixer->d_head),
                       (long long)mixer->n_norms);
    if (!(mixer->dt_low >= 0.0) || !(mixer->dt_high >= mixer->dt_low))
        return hl_fail(HL_BAD_INPUT, "%s: time steps from %g to %g, wanted 0 or more, and rising",
                       where, mixer->dt_low, mixer->dt_high);
    return HL_OK;
}

static hl_status check_latent(const hl_config *config, const char *where)
{
    const hl_latent_config *latent = &config->latent;

    if (latent->d_latent == 0)
        return HL_OK;
    if (hl_latent_key_size(config) > HL_MAX_HEAD_DIM)
        return hl_fail(HL_LIMIT, "%s: latent keys of %lld and %lld dimensions, at most %d together",
                       where, (long long)latent->d_latent, (long long)latent->d_rope,
                       HL_MAX_HEAD_DIM);
    if (latent->d_rope < 2 || latent->d_rope % 2 != 0 || latent->d_nope < 1 || latent->d_value < 1)
        return hl_fail(HL_BAD_INPUT,
                       "%s: heads of latent attention have %lld + %lld dimensions of keys and %lld "
                       "of values, wanted 1 or more, and an even number that is rotated",
                       where, (long long)latent->d_nope, (long long)latent->d_rope,
                       (long long)latent->d_value);
    if (latent->n_top > 0 &&
        (latent->n_index_heads < 1 || latent->d_index < latent->d_rope || latent->d_query < 1))
        return hl_fail(HL_BAD_INPUT,
                       "%s: an indexer with %lld heads of %lld dimensions, from queries of rank "
                       "%lld, wanted 1 or more, and at least the %lld that are rotated",
                       where, (long long)latent->n_index_heads, (long long)latent->d_index,
                       (long long)latent->d_query, (long long)latent->d_rope);
    return HL_OK;
}

static hl_status check_scales(const hl_config *config, const char *where)
{
    const struct {
        const char *name;
        double      value;
        bool        may_be_zero;
    } scales[] = {
        { "the embedding multiplier", config->embed_scale, false },
        { "the residual multiplier", config->residual_scale, false },
        { "the logit scale", config->logit_scale, false },
        { "the multiplier of attention's input", config->attn_in_factor, false },
        { "the multiplier of attention's result", config->attn_out_factor, false },
        { "the multiplier of the MLP's result", config->mlp_out_factor, false },
        { "the multiplier of the mixer's input", config->mixer.in_factor, false },
        { "the multiplier of the mixer's result", config->mixer.out_factor, false },
        { "the scale of the experts' weights", config->router.scale, false },
        { "the norm's epsilon", config->norm_eps, true },
        { "the soft-cap of the scores", config->attn_softcap, true },
        { "the soft-cap of the logits", config->logit_softcap, true },
        { "the limit of q, k and v", config->qkv_limit, true },
        { "the exponent of ALiBi's slopes", config->alibi_max, true },
    };

    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (scales[i].value > 0.0 || (scales[i].may_be_zero && scales[i].value == 0.0))
            continue;
        return hl_fail(HL_BAD_INPUT, "%s: %s is %g, wanted %s", where, scales[i].name,
                       scales[i].value, scales[i].may_be_zero ? "0 or more" : "more than 0");
    }
    return HL_OK;
}

static hl_status check_config(const hl_config *config, const char *where)
{
    if (config->d_mlp > HL_MAX_WIDTH)
        return hl_fail(HL_BAD_INPUT, "%s: an MLP of %lld, at most %lld", where,
                       (long long)config->d_mlp, (long long)HL_MAX_WIDTH);
    if (config->position == HL_POSITION_LEARNED && config->n_ctx < 1)
        return hl_fail(HL_BAD_INPUT,
                       "%s: 'max_position_embeddings' is missing, and positions are a table",
                       where);
    if (config->n_heads == 0)
        return hl_fail(HL_BAD_INPUT, "%s: no layer has an attention head", where);
    HL_NEED(check_experts(config, where));
    HL_NEED(check_mixer(config, where));
    HL_NEED(check_latent(config, where));
    HL_NEED(check_scales(config, where));
    for (int64_t i = 0; i < config->n_layers; i++)
        HL_NEED(check_layer(config, i, where));
    return HL_OK;
}

/* -------------------------------------------------------------------------------------- building */

/* Is this model one of several in the file?  Old files have its fields beside vision_config. */
static bool is_part(const hl_fields *fields)
{
    return fields->object != fields->outer ||
           json_is_object(json_object_get(fields->object, "vision_config"));
}

/* What the whole model says about its head counts more than what the text model says. */
static hl_status read_whole(hl_config *config, const hl_fields *fields)
{
    hl_fields whole = { .where = fields->where, .object = fields->outer, .outer = fields->outer };

    config->is_part = is_part(fields);
    return hl_fields_bool(&config->tied, &whole, "tie_word_embeddings", NULL);
}

/* Only classes with a head store one: LlamaModel has none. */
static void read_architecture(hl_config *config, const hl_fields *fields)
{
    const json_t *list = json_object_get(fields->outer, "architectures");
    const char   *name = json_string_value(json_array_get(list, 0));
    size_t        n    = name != NULL ? strlen(name) : 0;

    config->headless =
        n > 5 && strcmp(name + n - 5, "Model") == 0 && strstr(name, "LMHead") == NULL;
}

/* The steps, in order.  Each relies on the steps before it. */
static hl_status build(hl_config **out, const hl_family *family, const hl_fields *fields)
{
    HL_CLOSED(hl_config_free) hl_config *config = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC(&config, 1));
    *config                   = family->defaults;
    config->family            = family->name;
    config->generation.bos_id = -1;
    config->generation.pad_id = -1;
    HL_NEED(hl_fields_read(config, fields, common_fields));
    HL_NEED(hl_fields_read(config, fields, family->fields));
    if (fields->object != NULL) {
        if (config->position == HL_POSITION_ROPE)
            HL_NEED(hl_rope_read_json(config, fields));
        HL_NEED(read_whole(config, fields));
        read_architecture(config, fields);
        HL_NEED(read_generation(&config->generation, fields->outer, fields->where));
    } else {
        HL_NEED(read_gguf(config, fields));
    }
    HL_NEED(check_present(config, fields));
    if (family->describe != NULL)
        HL_NEED(family->describe(config, fields));
    HL_NEED(fill_sizes(config, fields));
    HL_NEED(hl_rope_fill(config, fields));
    HL_NEED(make_layers(config, family, fields));
    HL_NEED(check_config(config, fields->where));
    *out = hl_taken(&config);
    return HL_OK;
}

const char *hl_mixer_name(hl_mixer mixer)
{
    static const char *const names[] = { "", "short convolution", "gated delta rule", "Mamba-2",
                                         "Mamba" };

    return names[mixer];
}

bool hl_config_has_mixer(const hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].mixer != HL_MIXER_NONE)
            return true;
    }
    return false;
}

int64_t hl_mixer_conv_floats(const hl_config *config, hl_mixer mixer)
{
    int64_t floats = (config->mixer.width - 1) * config->mixer.n_channels;

    return mixer != HL_MIXER_NONE ? (floats + 15) / 16 * 16 : 0;
}

int64_t hl_mixer_state_floats(const hl_config *config, hl_mixer mixer)
{
    const hl_mixer_config *m       = &config->mixer;
    int64_t                entries = m->n_heads * m->d_head * m->d_state;

    if (mixer == HL_MIXER_NONE || mixer == HL_MIXER_CONV)
        entries = 0;
    return hl_mixer_conv_floats(config, mixer) + (entries + 15) / 16 * 16;
}

void hl_config_free(hl_config *config)
{
    if (config == NULL)
        return;
    hl_free(config->layers);
    hl_free(config);
}

/* ----------------------------------------------------------------------------------- config.json */

/* Refuses weights packed by another program, except gpt_oss's MXFP4, which headlight reads. */
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
                   "%s: the weights are quantized (quant_method: %s), which headlight does not "
                   "read; take the unquantized model, or convert that to GGUF with llama.cpp's "
                   "convert_hf_to_gguf.py",
                   where, method);
}

/* Returns the part of a nested configuration that describes the text model. */
static const json_t *text_part(const json_t *root)
{
    const json_t *nested = json_object_get(root, "text_config");
    return json_is_object(nested) ? nested : root;
}

static hl_status find_family(const hl_family **out, const hl_fields *fields)
{
    char model_type[HL_MAX_FIELD_TEXT] = "";

    HL_NEED(hl_fields_text(model_type, fields, "model_type", NULL));
    if (model_type[0] == '\0')
        return hl_fail(HL_BAD_INPUT, "%s: 'model_type' is missing: which family is this?",
                       fields->where);
    return hl_family_of_model_type(out, model_type, fields->where);
}

hl_status hl_config_parse(hl_config **out, const char *text, size_t n_bytes, const char *where)
{
    HL_CLOSED(json_decref) json_t *root   = NULL;
    const hl_family               *family = NULL;

    *out = NULL;
    HL_NEED(hl_json_parse(&root, text, n_bytes, where));
    if (!json_is_object(root))
        return hl_fail(HL_BAD_INPUT, "%s: not a JSON object", where);

    hl_fields fields = { .where = where, .object = text_part(root), .outer = root };
    HL_NEED(find_family(&family, &fields));
    HL_NEED(refuse_quantized(root, where));
    return build(out, family, &fields);
}

hl_status hl_config_parse_generation(hl_config *config, const char *text, size_t n_bytes,
                                     const char *where)
{
    HL_CLOSED(json_decref) json_t *root = NULL;

    HL_NEED(hl_json_parse(&root, text, n_bytes, where));
    if (!json_is_object(root))
        return hl_fail(HL_BAD_INPUT, "%s: not a JSON object", where);
    return read_generation(&config->generation, root, where);
}

/* ----------------------------------------------------------------------------- GGUF and llama2.c */

hl_status hl_config_of_gguf(hl_config **out, const hl_gguf *file, const hl_tensors *tensors)
{
    char             architecture[HL_MAX_FIELD_TEXT] = "";
    hl_bytes         text                            = { 0 };
    const hl_family *family                          = NULL;

    *out = NULL;
    HL_NEED(hl_gguf_get_text(&text, file, "general.architecture"));
    if (text.data == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: 'general.architecture' is missing", hl_gguf_where(file));
    snprintf(architecture, sizeof architecture, "%.*s",
             (int)(text.n_bytes < sizeof architecture ? text.n_bytes : sizeof architecture - 1),
             text.data);
    HL_NEED(hl_family_of_architecture(&family, architecture, hl_gguf_where(file)));

    hl_fields fields = {
        .where = hl_gguf_where(file), .gguf = file, .architecture = architecture, .tensors = tensors
    };
    return build(out, family, &fields);
}

hl_status hl_config_of_llama2c(hl_config **out, const hl_llama2c_config *header, const char *where)
{
    HL_CLOSED(json_decref)
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:I, s:I}", "num_hidden_layers",
                  (json_int_t)header->n_layers, "hidden_size", (json_int_t)header->d_model,
                  "num_attention_heads", (json_int_t)header->n_heads, "num_key_value_heads",
                  (json_int_t)header->n_kv_heads, "intermediate_size", (json_int_t)header->d_mlp,
                  "vocab_size", (json_int_t)header->d_vocab, "max_position_embeddings",
                  (json_int_t)header->n_ctx, "tie_word_embeddings", header->tied, "rms_norm_eps",
                  1e-5, "bos_token_id", (json_int_t)1, "eos_token_id", (json_int_t)2);

    *out = NULL;
    if (object == NULL)
        return hl_fail(HL_NO_MEMORY, "%s: out of memory", where);
    hl_fields fields = { .where = where, .object = object, .outer = object };
    return build(out, &hl_family_llama, &fields);
}
