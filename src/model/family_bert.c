/* family_bert.c - encoders: BERT, RoBERTa and DistilBERT, with norms after the branches, and
 * ModernBERT.
 *
 * In GGUF the first three are one architecture: a model without token types is a DistilBERT, and
 * RoBERTa's position table has no rows before the first position. */
#include "base/status.h"
#include "model/family.h"

#define BERT_BIASES (HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP | HL_BIAS_NORM)

static const hl_family_tensor bert_tensors[] = {
    { HL_ROLE_EMBED, "embeddings.word_embeddings", 0 },
    { HL_ROLE_POSITION, "embeddings.position_embeddings", HL_STORED_OFFSET },
    { HL_ROLE_TOKEN_TYPE, "embeddings.token_type_embeddings", 0 },
    { HL_ROLE_EMBED_NORM, "embeddings.LayerNorm", 0 },
    { HL_ROLE_ATTN_Q, "encoder.layer.*.attention.self.query", 0 },
    { HL_ROLE_ATTN_K, "encoder.layer.*.attention.self.key", 0 },
    { HL_ROLE_ATTN_V, "encoder.layer.*.attention.self.value", 0 },
    { HL_ROLE_ATTN_O, "encoder.layer.*.attention.output.dense", 0 },
    { HL_ROLE_ATTN_POST_NORM, "encoder.layer.*.attention.output.LayerNorm", 0 },
    { HL_ROLE_MLP_UP, "encoder.layer.*.intermediate.dense", 0 },
    { HL_ROLE_MLP_DOWN, "encoder.layer.*.output.dense", 0 },
    { HL_ROLE_MLP_POST_NORM, "encoder.layer.*.output.LayerNorm", 0 },
    { HL_ROLE_HEAD_DENSE, "cls.predictions.transform.dense", 0 },
    { HL_ROLE_HEAD_NORM, "cls.predictions.transform.LayerNorm", 0 },
    { HL_ROLE_LM_HEAD, "cls.predictions.decoder|cls.predictions", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor bert_gguf_tensors[] = {
    { HL_ROLE_ATTN_POST_NORM, "blk.*.attn_output_norm", 0 },
    { HL_ROLE_MLP_POST_NORM, "blk.*.layer_output_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field bert_fields[] = {
    { "type_vocab_size", NULL, HL_INT(n_token_types, 0, 1 << 16) },
    { 0 },
};

static hl_status describe_bert(hl_config *config, const hl_fields *fields)
{
    bool      is_decoder = false;
    hl_status status     = hl_fields_bool(&is_decoder, fields, "is_decoder", NULL);

    if (is_decoder)
        return hl_fail(HL_UNSUPPORTED, "%s: %s as a decoder ('is_decoder') is not supported",
                       fields->where, config->family);
    if (fields->object == NULL)
        config->n_token_types = hl_fields_tensor_size(fields, "token_types.weight", 0);
    return status;
}

/* What BERT and RoBERTa have in common. */
#define BERT_DEFAULTS                                                                              \
    {                                                                                              \
        .is_encoder = true, .position = HL_POSITION_LEARNED, .n_token_types = 2,                   \
        .embed_norm = true, .norm_place = HL_NORM_POST, .norm_eps = 1e-12,                         \
        .activation = HL_ACTIVATION_GELU, .biases = BERT_BIASES, .no_final_norm = true,            \
        .tied = true                                                                               \
    }

const hl_family hl_family_bert = {
    .name          = "bert",
    .model_types   = "bert",
    .architectures = "bert",
    .prefixes      = "bert.|",
    .defaults      = BERT_DEFAULTS,
    .fields        = bert_fields,
    .describe      = describe_bert,
    .tensors       = { bert_tensors },
    .gguf          = { bert_gguf_tensors },
};

/* --------------------------------------------------------------------------------------- roberta */

static const hl_family_tensor roberta_tensors[] = {
    { HL_ROLE_HEAD_DENSE, "lm_head.dense", 0 },
    { HL_ROLE_HEAD_NORM, "lm_head.layer_norm", 0 },
    { HL_ROLE_LM_HEAD, "lm_head.decoder|lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

/* Positions are numbered from pad + 1, and max_position_embeddings includes the rows before that:
 * 514 for 512 tokens. */
static hl_status describe_roberta(hl_config *config, const hl_fields *fields)
{
    int64_t pad = config->generation.pad_id >= 0 ? config->generation.pad_id : 1;

    if (config->n_ctx <= pad + 1)
        return hl_fail(HL_BAD_INPUT,
                       "%s: 'max_position_embeddings' is %lld, wanted more than 'pad_token_id' + 1 "
                       "= %lld",
                       fields->where, (long long)config->n_ctx, (long long)pad + 1);
    config->position_offset = pad + 1;
    config->n_ctx -= pad + 1;
    return describe_bert(config, fields);
}

const hl_family hl_family_roberta = {
    .name        = "roberta",
    .model_types = "roberta|xlm-roberta|camembert",
    .prefixes    = "roberta.|",
    .defaults    = BERT_DEFAULTS,
    .fields      = bert_fields,
    .describe    = describe_roberta,
    .tensors     = { roberta_tensors, bert_tensors },
};

/* ------------------------------------------------------------------------------------ distilbert */

static const hl_family_tensor distilbert_tensors[] = {
    { HL_ROLE_EMBED, "embeddings.word_embeddings", 0 },
    { HL_ROLE_POSITION, "embeddings.position_embeddings", 0 },
    { HL_ROLE_EMBED_NORM, "embeddings.LayerNorm", 0 },
    { HL_ROLE_ATTN_Q, "transformer.layer.*.attention.q_lin", 0 },
    { HL_ROLE_ATTN_K, "transformer.layer.*.attention.k_lin", 0 },
    { HL_ROLE_ATTN_V, "transformer.layer.*.attention.v_lin", 0 },
    { HL_ROLE_ATTN_O, "transformer.layer.*.attention.out_lin", 0 },
    { HL_ROLE_ATTN_POST_NORM, "transformer.layer.*.sa_layer_norm", 0 },
    { HL_ROLE_MLP_UP, "transformer.layer.*.ffn.lin1", 0 },
    { HL_ROLE_MLP_DOWN, "transformer.layer.*.ffn.lin2", 0 },
    { HL_ROLE_MLP_POST_NORM, "transformer.layer.*.output_layer_norm", 0 },
    { HL_ROLE_HEAD_DENSE, "vocab_transform", 0 },
    { HL_ROLE_HEAD_NORM, "vocab_layer_norm", 0 },
    { HL_ROLE_LM_HEAD, "vocab_projector", 0 },
    HL_FAMILY_TENSORS_END,
};

const hl_family hl_family_distilbert = {
    .name        = "distilbert",
    .model_types = "distilbert",
    .prefixes    = "distilbert.|",
    .defaults    = { .is_encoder    = true,
                     .position      = HL_POSITION_LEARNED,
                     .n_ctx         = 512,
                     .embed_norm    = true,
                     .norm_place    = HL_NORM_POST,
                     .norm_eps      = 1e-12,
                     .activation    = HL_ACTIVATION_GELU,
                     .biases        = BERT_BIASES,
                     .no_final_norm = true,
                     .tied          = true },
    .tensors     = { distilbert_tensors },
};

/* ------------------------------------------------------------------------------------ modernbert */

/* ModernBERT is an encoder with rotary positions, gated MLPs and, in two layers of three, windows
 * around the row.  The first layer is full and has no norm before its attention, because the
 * embedding has just been normed. */

static const hl_family_tensor modernbert_tensors[] = {
    { HL_ROLE_EMBED, "embeddings.tok_embeddings", 0 },
    { HL_ROLE_EMBED_NORM, "embeddings.norm", 0 },
    { HL_ROLE_ATTN_NORM, "layers.*.attn_norm", 0 },
    { HL_ROLE_ATTN_QKV, "layers.*.attn.Wqkv", 0 },
    { HL_ROLE_ATTN_O, "layers.*.attn.Wo", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.mlp_norm", 0 },
    { HL_ROLE_MLP_GATE_UP, "layers.*.mlp.Wi", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.mlp.Wo", 0 },
    { HL_ROLE_FINAL_NORM, "final_norm", 0 },
    { HL_ROLE_HEAD_DENSE, "head.dense", 0 },
    { HL_ROLE_HEAD_NORM, "head.norm", 0 },
    { HL_ROLE_LM_HEAD, "decoder", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor modernbert_gguf_tensors[] = {
    { HL_ROLE_MLP_GATE_UP, "blk.*.ffn_up", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field modernbert_fields[] = {
    { "local_attention", "attention.sliding_window", HL_INT(window, 1, HL_MAX_CONTEXT) },
    { "global_attn_every_n_layers", "attention.sliding_window_pattern",
      HL_COUNT(window_period, 1, HL_MAX_LAYERS) },
    { "norm_bias", NULL, HL_BIASES(HL_BIAS_NORM) },
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { NULL, "rope.freq_base_swa", HL_DOUBLE(ropes[HL_ROPE_LOCAL].base) },
    { 0 },
};

const hl_family hl_family_modernbert = {
    .name          = "modernbert",
    .model_types   = "modernbert",
    .architectures = "modern-bert",
    .prefixes      = "model.|",
    .defaults      = { .is_encoder       = true,
                       .position         = HL_POSITION_ROPE,
                       .ropes            = { [HL_ROPE_MAIN]  = { .base = 160000 },
                                             [HL_ROPE_LOCAL] = { .base = 10000 } },
                       .window           = 128,
                       .window_period    = 3,
                       .full_first       = true,
                       .embed_norm       = true,
                       .first_norm_plain = true,
                       .norm_eps         = 1e-5,
                       .activation       = HL_ACTIVATION_GELU,
                       .gated            = true,
                       .tied             = true },
    .fields        = modernbert_fields,
    .tensors       = { modernbert_tensors },
    .gguf          = { modernbert_gguf_tensors },
};
