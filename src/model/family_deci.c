/* family_deci.c - DeciLM (Nemotron-NAS): Llama whose layers differ in size.
 *
 * A search removed heads, whole attentions and MLPs where they were not needed.
 * GGUF says so with lists of head_count, head_count_kv and feed_forward_length;
 * config.json with block_configs, in which a layer gives the queries a K/V head
 * serves and the width of the MLP in units of the model's.  It is also the form in
 * which pruned models load elsewhere. */
#include "base/status.h"
#include "model/family.h"

static const hl_field deci_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { 0 },
};

/* Two thirds of 4 * ffn_mult / 2 widths, in whole 256s. */
static int64_t mlp_width(double multiple, int64_t d_model)
{
    int64_t width = (int64_t)(2.0 * multiple * (double)d_model / 3.0);
    return (width + 255) / 256 * 256;
}

static hl_status read_attention(hl_layer_config *layer, const json_t *object, const char *where)
{
    hl_fields fields  = { .where = where, .object = object, .outer = object };
    bool      nothing = false;
    bool      linear  = false;
    int64_t   group   = 0;

    HL_NEED(hl_fields_bool(&nothing, &fields, "no_op", NULL));
    HL_NEED(hl_fields_bool(&linear, &fields, "replace_with_linear", NULL));
    HL_NEED(hl_fields_int(&group, &fields, "n_heads_in_group", NULL, 1, HL_MAX_HEADS));
    if (nothing)
        layer->n_heads = layer->n_kv_heads = 0;
    else if (linear)
        layer->n_kv_heads = 0; /* which config.c refuses, by name */
    else if (group == 0 || layer->n_heads % group != 0)
        return hl_fail(HL_BAD_INPUT, "%s: 'n_heads_in_group' is %lld, wanted a divisor of %lld",
                       where, (long long)group, (long long)layer->n_heads);
    else
        layer->n_kv_heads = layer->n_heads / group;
    return HL_OK;
}

static hl_status read_mlp(hl_layer_config *layer, const json_t *object, int64_t d_model,
                          const char *where)
{
    hl_fields fields   = { .where = where, .object = object, .outer = object };
    bool      nothing  = false;
    bool      linear   = false;
    double    multiple = 0.0;

    HL_NEED(hl_fields_bool(&nothing, &fields, "no_op", NULL));
    HL_NEED(hl_fields_bool(&linear, &fields, "replace_with_linear", NULL));
    HL_NEED(hl_fields_double(&multiple, &fields, "ffn_mult", NULL));
    if (linear)
        return hl_fail(HL_UNSUPPORTED, "%s: an MLP replaced with a linear map is not supported",
                       where);
    if (!nothing && !(multiple > 0.0 && multiple < 64.0))
        return hl_fail(HL_BAD_INPUT, "%s: 'ffn_mult' is %g, wanted more than 0, below 64", where,
                       multiple);
    layer->d_mlp = nothing ? 0 : mlp_width(multiple, d_model);
    return HL_OK;
}

/* A layer without an MLP is left out whole, as llama.cpp does it. */
static void drop_empty(hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].d_mlp == 0)
            config->layers[i].n_heads = config->layers[i].n_kv_heads = 0;
    }
}

static hl_status layers_deci(hl_config *config, const hl_fields *fields)
{
    const json_t *blocks = json_object_get(fields->object, "block_configs");

    if (fields->object == NULL)
        drop_empty(config);
    if (blocks == NULL)
        return HL_OK;
    if (json_array_size(blocks) != (size_t)config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: 'block_configs' has %zu entries, wanted %lld",
                       fields->where, json_array_size(blocks), (long long)config->n_layers);
    for (int64_t i = 0; i < config->n_layers; i++) {
        const json_t    *block = json_array_get(blocks, (size_t)i);
        hl_layer_config *layer = &config->layers[i];
        HL_NEED(read_attention(layer, json_object_get(block, "attention"), fields->where));
        HL_NEED(read_mlp(layer, json_object_get(block, "ffn"), config->d_model, fields->where));
    }
    return HL_OK;
}

const hl_family hl_family_deci = {
    .name          = "deci",
    .model_types   = "deci|nemotron-nas",
    .architectures = "deci",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm       = HL_NORM_RMS,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_SILU,
                       .gated      = true },
    .fields        = deci_fields,
    .layers        = layers_deci,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_llama_gguf_tensors },
};
