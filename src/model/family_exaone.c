/* family_exaone.c - EXAONE 4: norms after the branches, norms of every head of q and k, and
 * rotary positions in windowed layers only.  A model without windows rotates in every layer. */
#include <string.h>

#include "base/status.h"
#include "model/family.h"

static const hl_family_tensor exaone4_tensors[] = {
    { HL_ROLE_ATTN_POST_NORM, "layers.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_POST_NORM, "layers.*.post_feedforward_layernorm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field exaone4_fields[] = {
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 1, HL_MAX_CONTEXT) },
    { 0 },
};

/* GGUF has no key for the window of a model without one. */
static hl_status describe_exaone4(hl_config *config, const hl_fields *fields)
{
    const json_t *pattern = json_object_get(fields->object, "sliding_window_pattern");

    if (fields->object == NULL && !hl_fields_have(fields, NULL, "attention.sliding_window"))
        config->window = 0;
    if (json_is_string(pattern)) /* layers_exaone4 reads it */
        return HL_OK;
    return hl_fields_int(&config->window_period, fields, "sliding_window_pattern", NULL, 1,
                         HL_MAX_LAYERS);
}

/* A pattern may also be letters, repeated over the layers: "LLLG" is three local layers, then a
 * full one. */
static hl_status layers_exaone4(hl_config *config, const hl_fields *fields)
{
    char pattern[HL_MAX_FIELD_TEXT] = "";
    bool typed                      = hl_fields_have(fields, "layer_types", NULL);

    if (json_is_string(json_object_get(fields->object, "sliding_window_pattern")))
        HL_NEED(hl_fields_text(pattern, fields, "sliding_window_pattern", NULL));
    if (strspn(pattern, "LG") != strlen(pattern))
        return hl_fail(HL_BAD_INPUT,
                       "%s: 'sliding_window_pattern' is '%s', wanted the letters L and G",
                       fields->where, pattern);
    for (int64_t i = 0; i < config->n_layers; i++) {
        hl_layer_config *layer = &config->layers[i];

        if (!typed && pattern[0] != '\0')
            layer->is_local = pattern[(size_t)i % strlen(pattern)] == 'L';
        layer->rope = layer->is_local || config->window == 0 ? HL_ROPE_MAIN : HL_ROPE_NONE;
    }
    return HL_OK;
}

const hl_family hl_family_exaone4 = {
    .name          = "exaone4",
    .model_types   = "exaone4",
    .architectures = "exaone4",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 10000), .norm_place = HL_NORM_BRANCH,
                       .qk_norm = HL_HEAD_NORM_SHARED, .window = 4096, .window_period = 4 },
    .fields        = exaone4_fields,
    .describe      = describe_exaone4,
    .layers        = layers_exaone4,
    .tensors       = { exaone4_tensors, hl_llama_tensors },
};
