/* family_modernbert.c - ModernBERT: an encoder with rotary positions, gated MLPs and
 * windows around the row in two layers of three.  The first layer is full, and has
 * no norm before its attention: the embedding was normed just then. */
#include "model/family.h"

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
