/* family_opt.c - OPT: positions start at row 2; the 350m puts its norms after the
 * branches and embeds in 512 dimensions. */
#include "model/family.h"

static const hl_family_tensor opt_tensors[] = {
    { HL_ROLE_EMBED, "embed_tokens", 0 },
    { HL_ROLE_EMBED_IN, "project_in", 0 },
    { HL_ROLE_POSITION, "embed_positions", HL_STORED_OFFSET },
    { HL_ROLE_ATTN_NORM, "layers.*.self_attn_layer_norm", 0 },
    { HL_ROLE_ATTN_Q, "layers.*.self_attn.q_proj", 0 },
    { HL_ROLE_ATTN_K, "layers.*.self_attn.k_proj", 0 },
    { HL_ROLE_ATTN_V, "layers.*.self_attn.v_proj", 0 },
    { HL_ROLE_ATTN_O, "layers.*.self_attn.out_proj", 0 },
    { HL_ROLE_ATTN_POST_NORM, "layers.*.self_attn_layer_norm", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.final_layer_norm", 0 },
    { HL_ROLE_MLP_UP, "layers.*.fc1", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.fc2", 0 },
    { HL_ROLE_MLP_POST_NORM, "layers.*.final_layer_norm", 0 },
    { HL_ROLE_FINAL_NORM, "final_layer_norm", 0 },
    { HL_ROLE_EMBED_OUT, "project_out", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field opt_fields[] = {
    { "word_embed_proj_dim", NULL, HL_INT(d_embed, 1, HL_MAX_WIDTH) },
    { "enable_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP) },
    { "layer_norm_elementwise_affine", NULL, HL_NOT(norm_plain) },
    { "_remove_final_layer_norm", NULL, HL_BOOL(no_final_norm) },
    { 0 },
};

static hl_status describe_opt(hl_config *config, const hl_fields *fields)
{
    bool      before = true;
    hl_status status = hl_fields_bool(&before, fields, "do_layer_norm_before", NULL);

    if (!before) {
        config->norm_place    = HL_NORM_POST;
        config->no_final_norm = true;
    }
    return status;
}

const hl_family hl_family_opt = {
    .name        = "opt",
    .model_types = "opt",
    .prefixes    = "model.decoder.|decoder.|",
    .defaults    = { .position        = HL_POSITION_LEARNED,
                     .position_offset = 2,
                     .n_ctx           = 2048,
                     .norm_eps        = 1e-5,
                     .activation      = HL_ACTIVATION_RELU,
                     .biases          = HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP | HL_BIAS_NORM,
                     .tied            = true },
    .fields      = opt_fields,
    .describe    = describe_opt,
    .tensors     = { opt_tensors },
};
