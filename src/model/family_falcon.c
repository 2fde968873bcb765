/* family_falcon.c - Falcon, which is four architectures under one name.
 *
 *     variant          KV heads       norms             branches     positions
 *     7b               1              one               parallel     rope
 *     40b, 180b        num_kv_heads   ln_attn, ln_mlp   parallel     rope
 *     11b              num_kv_heads   one               parallel     rope
 *     rw-1b, rw-7b     every head     two               sequential   ALiBi, scaled
 *
 * ALiBi is added to q.k before the division by sqrt(d_head), so that it is scaled too.
 *
 * In all of them the rows of qkv are groups: a KV head's queries, then its key,
 * then its value; the groups have one query each in rw, all of them in 7b. */
#include "base/status.h"
#include "model/family.h"

static const hl_family_tensor falcon_tensors[] = {
    { HL_ROLE_EMBED, "word_embeddings", 0 },
    { HL_ROLE_ATTN_NORM, "h.*.input_layernorm|h.*.ln_attn", 0 },
    { HL_ROLE_ATTN_QKV, "h.*.self_attention.query_key_value", HL_STORED_GROUPED },
    { HL_ROLE_ATTN_O, "h.*.self_attention.dense", 0 },
    { HL_ROLE_MLP_NORM, "h.*.post_attention_layernorm|h.*.ln_mlp", 0 },
    { HL_ROLE_MLP_UP, "h.*.mlp.dense_h_to_4h", 0 },
    { HL_ROLE_MLP_DOWN, "h.*.mlp.dense_4h_to_h", 0 },
    { HL_ROLE_FINAL_NORM, "ln_f", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

/* If there are two norms, GGUF calls the MLP's attn_norm and the attention's attn_norm_2. */
static const hl_family_tensor falcon_gguf_tensors[] = {
    { HL_ROLE_ATTN_NORM, "blk.*.attn_norm_2|blk.*.attn_norm", 0 },
    { HL_ROLE_MLP_NORM, "blk.*.attn_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field falcon_fields[] = {
    { "num_kv_heads|n_head_kv", NULL, HL_INT(n_kv_heads, 1, HL_MAX_HEADS) },
    { "bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP) },
    { 0 },
};

typedef struct falcon_form {
    bool    new_decoder;
    bool    multi_query;
    bool    parallel;
    bool    alibi;
    int64_t n_norms; /* number of norms of parallel branches */
} falcon_form;

static hl_status read_form(falcon_form *form, const hl_fields *fields)
{
    HL_NEED(hl_fields_bool(&form->new_decoder, fields, "new_decoder_architecture", NULL));
    HL_NEED(hl_fields_bool(&form->multi_query, fields, "multi_query", NULL));
    HL_NEED(hl_fields_bool(&form->parallel, fields, "parallel_attn", NULL));
    HL_NEED(hl_fields_bool(&form->alibi, fields, "alibi", NULL));
    form->n_norms = form->new_decoder ? 2 : 1;
    HL_NEED(hl_fields_int(&form->n_norms, fields, "num_ln_in_parallel_attn", NULL, 1, 2));
    return HL_OK;
}

static hl_status describe_falcon(hl_config *config, const hl_fields *fields)
{
    falcon_form form   = { .multi_query = true, .parallel = true };
    hl_status   status = read_form(&form, fields);

    if (fields->object == NULL)
        form.n_norms = hl_fields_have_tensor(fields, "blk.0.attn_norm_2.weight") ? 2 : 1;
    else if (!form.new_decoder) /* num_kv_heads is then set, but has no meaning */
        config->n_kv_heads = form.multi_query ? 1 : config->n_heads;
    if (!form.parallel && !form.new_decoder)
        config->residual = HL_RESIDUAL_SEQUENTIAL;
    else
        config->residual = form.n_norms == 2 ? HL_RESIDUAL_PARALLEL : HL_RESIDUAL_PARALLEL_SHARED;
    if (form.alibi)
        config->position = HL_POSITION_ALIBI_FALCON;
    return status;
}

const hl_family hl_family_falcon = {
    .name          = "falcon",
    .model_types   = "falcon|RefinedWeb|RefinedWebModel",
    .architectures = "falcon",
    .prefixes      = "transformer.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .n_ctx      = 2048,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_GELU,
                       .biases     = HL_BIAS_NORM,
                       .tied       = true },
    .fields        = falcon_fields,
    .describe      = describe_falcon,
    .tensors       = { falcon_tensors },
    .gguf          = { falcon_gguf_tensors },
};
