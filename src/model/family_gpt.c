/* family_gpt.c - GPT-2; GPT-Neo, GPT-J, CodeGen and BigCode, which descend from its code; and the
 * similar GPT-NeoX (Pythia), BLOOM, MPT, OPT and BioGPT.
 *
 * GPT-2's linear maps are "Conv1D": stored (in, out), y = x W.  Its descendants
 * went back to (out, in).  All have LayerNorm with bias, before the branches. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "model/family.h"

#define GPT_BIASES (HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP | HL_BIAS_NORM)

/* ------------------------------------------------------------------------------------------ gpt2 */

static const hl_family_tensor gpt2_tensors[] = {
    { HL_ROLE_EMBED, "wte", 0 },
    { HL_ROLE_POSITION, "wpe", 0 },
    { HL_ROLE_ATTN_NORM, "h.*.ln_1", 0 },
    { HL_ROLE_ATTN_QKV, "h.*.attn.c_attn", HL_STORED_TRANSPOSED },
    { HL_ROLE_ATTN_O, "h.*.attn.c_proj", HL_STORED_TRANSPOSED },
    { HL_ROLE_MLP_NORM, "h.*.ln_2", 0 },
    { HL_ROLE_MLP_UP, "h.*.mlp.c_fc", HL_STORED_TRANSPOSED },
    { HL_ROLE_MLP_DOWN, "h.*.mlp.c_proj", HL_STORED_TRANSPOSED },
    { HL_ROLE_FINAL_NORM, "ln_f", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static hl_status describe_gpt2(hl_config *config, const hl_fields *fields)
{
    bool      scaled = true;
    hl_status status = hl_fields_bool(&scaled, fields, "scale_attn_weights", NULL);

    if (!scaled)
        config->attn_scale = 1.0;
    return status;
}

static hl_status layers_gpt2(hl_config *config, const hl_fields *fields)
{
    bool      by_layer = false;
    hl_status status   = hl_fields_bool(&by_layer, fields, "scale_attn_by_inverse_layer_idx", NULL);

    for (int64_t i = 0; by_layer && i < config->n_layers; i++)
        config->layers[i].attn_scale /= (double)(i + 1);
    return status;
}

const hl_family hl_family_gpt2 = {
    .name          = "gpt2",
    .model_types   = "gpt2",
    .architectures = "gpt2",
    .prefixes      = "transformer.|",
    .defaults      = { .position   = HL_POSITION_LEARNED,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_GELU_TANH,
                       .biases     = GPT_BIASES,
                       .tied       = true },
    .describe      = describe_gpt2,
    .layers        = layers_gpt2,
    .tensors       = { gpt2_tensors },
};

/* --------------------------------------------------------------------------------------- gpt_neo */

static const hl_family_tensor neo_tensors[] = {
    { HL_ROLE_ATTN_Q, "h.*.attn.attention.q_proj", 0 },
    { HL_ROLE_ATTN_K, "h.*.attn.attention.k_proj", 0 },
    { HL_ROLE_ATTN_V, "h.*.attn.attention.v_proj", 0 },
    { HL_ROLE_ATTN_O, "h.*.attn.attention.out_proj", 0 },
    { HL_ROLE_MLP_UP, "h.*.mlp.c_fc", 0 },
    { HL_ROLE_MLP_DOWN, "h.*.mlp.c_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field neo_fields[] = {
    { "window_size", NULL, HL_INT(window, 1, HL_MAX_CONTEXT) },
    { 0 },
};

static hl_status set_type(hl_config *config, int64_t *layer, const json_t *type, const char *where)
{
    const char *name = json_string_value(type);

    if (name == NULL || (strcmp(name, "global") != 0 && strcmp(name, "local") != 0))
        return hl_fail(HL_BAD_INPUT, "%s: an attention type is '%s', wanted global or local", where,
                       name != NULL ? name : "?");
    if (*layer < config->n_layers)
        config->layers[(*layer)++].is_local = strcmp(name, "local") == 0;
    return HL_OK;
}

/* attention_types is [[["global", "local"], 6], ...]: lists, each with a number of repetitions. */
static hl_status repeat_types(hl_config *config, int64_t *layer, const json_t *item,
                              const char *where)
{
    const json_t *types = json_array_get(item, 0);
    json_int_t    times = json_integer_value(json_array_get(item, 1));

    for (json_int_t i = 0; i < times && *layer < config->n_layers; i++) {
        if (json_array_size(types) == 0)
            break;
        for (size_t j = 0; j < json_array_size(types); j++) {
            HL_NEED(set_type(config, layer, json_array_get(types, j), where));
        }
    }
    return HL_OK;
}

static hl_status layers_neo(hl_config *config, const hl_fields *fields)
{
    const json_t *types = json_object_get(fields->object, "attention_types");
    int64_t       layer = 0;

    for (size_t i = 0; i < json_array_size(types); i++)
        HL_NEED(repeat_types(config, &layer, json_array_get(types, i), fields->where));
    if (layer != config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: 'attention_types' covers %lld layers, wanted %lld",
                       fields->where, (long long)layer, (long long)config->n_layers);
    return HL_OK;
}

const hl_family hl_family_gpt_neo = {
    .name        = "gpt_neo",
    .model_types = "gpt_neo",
    .prefixes    = "transformer.|",
    .defaults    = { .position   = HL_POSITION_LEARNED,
                     .n_ctx      = 2048,
                     .norm_eps   = 1e-5,
                     .activation = HL_ACTIVATION_GELU_TANH,
                     .biases     = HL_BIAS_O | HL_BIAS_MLP | HL_BIAS_NORM,
                     .attn_scale = 1.0, /* the scores are not scaled */
                     .window     = 256,
                     .tied       = true },
    .fields      = neo_fields,
    .layers      = layers_neo,
    .tensors     = { neo_tensors, gpt2_tensors },
};

/* ------------------------------------------------------------------------------------------ gptj */

static const hl_family_tensor gptj_tensors[] = {
    { HL_ROLE_ATTN_Q, "h.*.attn.q_proj", 0 },
    { HL_ROLE_ATTN_K, "h.*.attn.k_proj", 0 },
    { HL_ROLE_ATTN_V, "h.*.attn.v_proj", 0 },
    { HL_ROLE_ATTN_O, "h.*.attn.out_proj", 0 },
    { HL_ROLE_MLP_UP, "h.*.mlp.fc_in", 0 },
    { HL_ROLE_MLP_DOWN, "h.*.mlp.fc_out", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field gptj_fields[] = {
    { "rotary_dim", NULL, HL_INT(ropes[HL_ROPE_MAIN].n_dims, 2, HL_MAX_HEAD_DIM) },
    { 0 },
};

const hl_family hl_family_gptj = {
    .name        = "gptj",
    .model_types = "gptj",
    .prefixes    = "transformer.|",
    .defaults    = { .position   = HL_POSITION_ROPE,
                     .ropes      = { [HL_ROPE_MAIN] = { .base        = 10000,
                                                        .n_dims      = 64,
                                                        .interleaved = true } },
                     .norm_eps   = 1e-5,
                     .residual   = HL_RESIDUAL_PARALLEL_SHARED,
                     .activation = HL_ACTIVATION_GELU_TANH,
                     .biases     = HL_BIAS_MLP | HL_BIAS_NORM | HL_BIAS_HEAD },
    .fields      = gptj_fields,
    .tensors     = { gptj_tensors, gpt2_tensors },
};

/* --------------------------------------------------------------------------------------- codegen */

/* GPT-J with q, v and k (in this order) of a quarter of the heads together, four times. */
static const hl_family_tensor codegen_tensors[] = {
    { HL_ROLE_ATTN_QKV, "h.*.attn.qkv_proj", HL_STORED_QUARTERS },
    { HL_ROLE_ATTN_O, "h.*.attn.out_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static hl_status describe_codegen(hl_config *config, const hl_fields *fields)
{
    if (config->n_heads % 4 != 0)
        return hl_fail(HL_BAD_INPUT, "%s: 'n_head' is %lld, wanted a multiple of 4", fields->where,
                       (long long)config->n_heads);
    return HL_OK;
}

const hl_family hl_family_codegen = {
    .name        = "codegen",
    .model_types = "codegen",
    .prefixes    = "transformer.|",
    .defaults    = { .position   = HL_POSITION_ROPE,
                     .ropes      = { [HL_ROPE_MAIN] = { .base        = 10000,
                                                        .n_dims      = 64,
                                                        .interleaved = true } },
                     .norm_eps   = 1e-5,
                     .residual   = HL_RESIDUAL_PARALLEL_SHARED,
                     .activation = HL_ACTIVATION_GELU_TANH,
                     .biases     = HL_BIAS_MLP | HL_BIAS_NORM | HL_BIAS_HEAD },
    .fields      = gptj_fields,
    .describe    = describe_codegen,
    .tensors     = { codegen_tensors, gptj_tensors, gpt2_tensors },
};

/* ----------------------------------------------------------------------------------- gpt_bigcode */

/* With multi_query, one KV head follows the queries; without it, every head has its own q, k, v.
 * Both layouts are groups of a KV head with its queries. */
static const hl_family_tensor bigcode_tensors[] = {
    { HL_ROLE_ATTN_QKV, "h.*.attn.c_attn", HL_STORED_GROUPED },
    { HL_ROLE_ATTN_O, "h.*.attn.c_proj", 0 },
    { HL_ROLE_MLP_UP, "h.*.mlp.c_fc", 0 },
    { HL_ROLE_MLP_DOWN, "h.*.mlp.c_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static hl_status describe_bigcode(hl_config *config, const hl_fields *fields)
{
    bool      multi_query = true;
    hl_status status      = hl_fields_bool(&multi_query, fields, "multi_query", NULL);
    int64_t   d_mlp       = hl_fields_tensor_size(fields, "blk.0.ffn_up.weight", 0);

    if (fields->object != NULL)
        config->n_kv_heads = multi_query ? 1 : config->n_heads;
    /* The converter writes 4 * n_embd and ignores n_inner. */
    if (d_mlp > 0)
        config->d_mlp = d_mlp;
    return status == HL_OK ? describe_gpt2(config, fields) : status;
}

const hl_family hl_family_gpt_bigcode = {
    .name          = "gpt_bigcode",
    .model_types   = "gpt_bigcode",
    .architectures = "starcoder",
    .prefixes      = "transformer.|",
    .defaults      = { .position   = HL_POSITION_LEARNED,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_GELU_TANH,
                       .biases     = GPT_BIASES,
                       .tied       = true },
    .describe      = describe_bigcode,
    .tensors       = { bigcode_tensors, gpt2_tensors },
};

/* -------------------------------------------------------------------------------------- gpt_neox */

/* GPT-NeoX and BLOOM store q, k, v of each head together. */

/* embed_out is its name in files; newer classes call it lm_head. */
static const hl_family_tensor neox_tensors[] = {
    { HL_ROLE_EMBED, "embed_in", 0 },
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", 0 },
    { HL_ROLE_ATTN_QKV, "layers.*.attention.query_key_value", HL_STORED_GROUPED },
    { HL_ROLE_ATTN_O, "layers.*.attention.dense", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_UP, "layers.*.mlp.dense_h_to_4h", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.mlp.dense_4h_to_h", 0 },
    { HL_ROLE_FINAL_NORM, "final_layer_norm", 0 },
    { HL_ROLE_LM_HEAD, "embed_out|lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field neox_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { 0 },
};

static hl_status describe_neox(hl_config *config, const hl_fields *fields)
{
    bool      parallel = true;
    hl_status status =
        hl_fields_bool(&parallel, fields, "use_parallel_residual", "use_parallel_residual");

    config->residual = parallel ? HL_RESIDUAL_PARALLEL : HL_RESIDUAL_SEQUENTIAL;
    return status;
}

const hl_family hl_family_gpt_neox = {
    .name          = "gpt_neox",
    .model_types   = "gpt_neox",
    .architectures = "gptneox",
    .prefixes      = "gpt_neox.|",
    .defaults      = { .position        = HL_POSITION_ROPE,
                       .ropes           = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .rotary_fraction = 0.25,
                       .norm_eps        = 1e-5,
                       .activation      = HL_ACTIVATION_GELU,
                       .biases          = GPT_BIASES },
    .fields        = neox_fields,
    .describe      = describe_neox,
    .tensors       = { neox_tensors },
};

/* ----------------------------------------------------------------------------------------- bloom */

static const hl_family_tensor bloom_tensors[] = {
    { HL_ROLE_EMBED, "word_embeddings", 0 },
    { HL_ROLE_EMBED_NORM, "word_embeddings_layernorm", 0 },
    { HL_ROLE_ATTN_NORM, "h.*.input_layernorm", 0 },
    { HL_ROLE_ATTN_QKV, "h.*.self_attention.query_key_value", HL_STORED_GROUPED },
    { HL_ROLE_ATTN_O, "h.*.self_attention.dense", 0 },
    { HL_ROLE_MLP_NORM, "h.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_UP, "h.*.mlp.dense_h_to_4h", 0 },
    { HL_ROLE_MLP_DOWN, "h.*.mlp.dense_4h_to_h", 0 },
    { HL_ROLE_FINAL_NORM, "ln_f", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field bloom_fields[] = {
    { "apply_residual_connection_post_layernorm", NULL, HL_BOOL(residual_normed) },
    { 0 },
};

/* The width of the MLP has no field, and n_ctx is only the length in training. */
const hl_family hl_family_bloom = {
    .name          = "bloom",
    .model_types   = "bloom",
    .architectures = "bloom",
    .prefixes      = "transformer.|",
    .defaults      = { .position   = HL_POSITION_ALIBI,
                       .n_ctx      = 2048,
                       .embed_norm = true,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_GELU_TANH,
                       .biases     = GPT_BIASES,
                       .tied       = true },
    .fields        = bloom_fields,
    .tensors       = { bloom_tensors },
};

/* ------------------------------------------------------------------------------------------- mpt */

/* No biases, not even in the norms.  What concerns attention is in attn_config. */
static const hl_family_tensor mpt_tensors[] = {
    { HL_ROLE_EMBED, "wte", 0 },
    { HL_ROLE_ATTN_NORM, "blocks.*.norm_1", 0 },
    { HL_ROLE_ATTN_QKV, "blocks.*.attn.Wqkv", 0 },
    { HL_ROLE_ATTN_O, "blocks.*.attn.out_proj", 0 },
    { HL_ROLE_MLP_NORM, "blocks.*.norm_2", 0 },
    { HL_ROLE_MLP_UP, "blocks.*.ffn.up_proj", 0 },
    { HL_ROLE_MLP_DOWN, "blocks.*.ffn.down_proj", 0 },
    { HL_ROLE_FINAL_NORM, "norm_f", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field mpt_fields[] = {
    { "max_seq_len", NULL, HL_INT(n_ctx, 1, HL_MAX_CONTEXT) },
    { NULL, "attention.max_alibi_bias", HL_DOUBLE(alibi_max) },
    { NULL, "attention.clamp_kqv", HL_DOUBLE(qkv_limit) },
    { 0 },
};

static hl_status describe_mpt(hl_config *config, const hl_fields *fields)
{
    const json_t *nested = json_object_get(fields->object, "attn_config");
    hl_fields     inner  = { .where = fields->where, .object = nested, .outer = nested };
    bool          normed = false;

    if (nested == NULL)
        return HL_OK;
    HL_NEED(hl_fields_double(&config->alibi_max, &inner, "alibi_bias_max", NULL));
    HL_NEED(hl_fields_double(&config->qkv_limit, &inner, "clip_qkv", NULL));
    HL_NEED(hl_fields_double(&config->attn_scale, &inner, "softmax_scale", NULL));
    HL_NEED(hl_fields_bool(&normed, &inner, "qk_ln", NULL));
    if (normed)
        return hl_fail(HL_UNSUPPORTED, "%s: 'qk_ln' is true, wanted false", fields->where);
    return HL_OK;
}

const hl_family hl_family_mpt = {
    .name          = "mpt",
    .model_types   = "mpt",
    .architectures = "mpt",
    .prefixes      = "transformer.|",
    .defaults      = { .position   = HL_POSITION_ALIBI,
                       .n_ctx      = 2048,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_GELU,
                       .tied       = true },
    .fields        = mpt_fields,
    .describe      = describe_mpt,
    .tensors       = { mpt_tensors },
};

/* ------------------------------------------------------------------------------------------- opt */

/* OPT: positions start at row 2; the 350m puts its norms after the
 * branches and embeds in 512 dimensions. */

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
                     .biases          = GPT_BIASES,
                     .tied            = true },
    .fields      = opt_fields,
    .describe    = describe_opt,
    .tensors     = { opt_tensors },
};

/* ---------------------------------------------------------------------------------------- biogpt */

/* OPT's block with scaled embeddings; positions start at row 2, too. */
static const hl_family_tensor biogpt_tensors[] = {
    { HL_ROLE_FINAL_NORM, "layer_norm", 0 },
    { HL_ROLE_LM_HEAD, "output_projection|lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static hl_status scale_embedding(hl_config *config, const hl_fields *fields)
{
    bool      scaled = true;
    hl_status status = hl_fields_bool(&scaled, fields, "scale_embedding", NULL);

    if (scaled)
        config->embed_scale = sqrt((double)config->d_model);
    return status;
}

const hl_family hl_family_biogpt = {
    .name        = "biogpt",
    .model_types = "biogpt",
    .prefixes    = "biogpt.|",
    .defaults    = { .position        = HL_POSITION_LEARNED,
                     .position_offset = 2,
                     .n_ctx           = 1024,
                     .norm_eps        = 1e-12,
                     .activation      = HL_ACTIVATION_GELU,
                     .biases          = GPT_BIASES,
                     .tied            = true },
    .describe    = scale_embedding,
    .tensors     = { biogpt_tensors, opt_tensors },
};

/* ------------------------------------------------------------------------------------------ xglm */

/* BioGPT with sines and cosines as positions. */
static const hl_family_tensor xglm_tensors[] = {
    { HL_ROLE_FINAL_NORM, "layer_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static hl_status describe_xglm(hl_config *config, const hl_fields *fields)
{
    if (config->d_model % 2 != 0 || config->d_model < 4)
        return hl_fail(HL_BAD_INPUT, "%s: a width of %lld, wanted an even number from 4 on",
                       fields->where, (long long)config->d_model);
    return scale_embedding(config, fields);
}

const hl_family hl_family_xglm = {
    .name        = "xglm",
    .model_types = "xglm",
    .prefixes    = "model.|",
    .defaults    = { .position        = HL_POSITION_LEARNED,
                     .position_offset = 2,
                     .sinusoids       = true,
                     .n_ctx           = 2048,
                     .norm_eps        = 1e-5,
                     .activation      = HL_ACTIVATION_GELU,
                     .biases          = GPT_BIASES,
                     .tied            = true },
    .describe    = describe_xglm,
    .tensors     = { xglm_tensors, opt_tensors },
};
