/* family.c - the list of families, and the search for one. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "formats/tensors.h"

static const hl_family *const families[] = {
    &hl_family_apertus,
    &hl_family_arcee,
    &hl_family_bamba,
    &hl_family_bert,
    &hl_family_bitnet,
    &hl_family_biogpt,
    &hl_family_bloom,
    &hl_family_codegen,
    &hl_family_cohere,
    &hl_family_cohere2,
    &hl_family_cwm,
    &hl_family_dbrx,
    &hl_family_deci,
    &hl_family_deepseek_v2,
    &hl_family_deepseek_v3,
    &hl_family_deepseek_v32,
    &hl_family_distilbert,
    &hl_family_ernie4_5,
    &hl_family_ernie4_5_moe,
    &hl_family_exaone4,
    &hl_family_falcon,
    &hl_family_falcon_h1,
    &hl_family_gemma,
    &hl_family_gemma2,
    &hl_family_gemma3,
    &hl_family_gemma3n,
    &hl_family_gemma4,
    &hl_family_glm,
    &hl_family_glm4,
    &hl_family_glm4_moe,
    &hl_family_glm4_moe_lite,
    &hl_family_gpt2,
    &hl_family_gpt_bigcode,
    &hl_family_gpt_neo,
    &hl_family_gpt_neox,
    &hl_family_gpt_oss,
    &hl_family_gptj,
    &hl_family_granite,
    &hl_family_granitemoe,
    &hl_family_granitemoehybrid,
    &hl_family_helium,
    &hl_family_hunyuan_v1_dense,
    &hl_family_hunyuan_v1_moe,
    &hl_family_jamba,
    &hl_family_lfm2,
    &hl_family_lfm2_moe,
    &hl_family_llama,
    &hl_family_llama4_text,
    &hl_family_minimax_m2,
    &hl_family_ministral3,
    &hl_family_mistral,
    &hl_family_mistral4,
    &hl_family_mixtral,
    &hl_family_modernbert,
    &hl_family_mpt,
    &hl_family_nemotron,
    &hl_family_nemotron_h,
    &hl_family_olmo,
    &hl_family_olmo2,
    &hl_family_olmo3,
    &hl_family_olmoe,
    &hl_family_opt,
    &hl_family_phi,
    &hl_family_phi3,
    &hl_family_phimoe,
    &hl_family_qwen2,
    &hl_family_qwen2_moe,
    &hl_family_qwen3,
    &hl_family_qwen3_5,
    &hl_family_qwen3_5_moe,
    &hl_family_qwen3_moe,
    &hl_family_qwen3_next,
    &hl_family_roberta,
    &hl_family_seed_oss,
    &hl_family_smollm3,
    &hl_family_stablelm,
    &hl_family_starcoder2,
    &hl_family_xglm,
    NULL,
};

/* The roles' names in GGUF files, unless a family overrides them.  q, k and v may be one tensor;
 * old files have a tensor per expert. */
const hl_family_tensor hl_gguf_tensors[] = {
    { HL_ROLE_EMBED, "token_embd", 0 },
    { HL_ROLE_POSITION, "position_embd", 0 },
    { HL_ROLE_TOKEN_TYPE, "token_types", 0 },
    { HL_ROLE_EMBED_NORM, "token_embd_norm", 0 },
    { HL_ROLE_FINAL_NORM, "output_norm", 0 },
    { HL_ROLE_LM_HEAD, "output", 0 },
    { HL_ROLE_ATTN_NORM, "blk.*.attn_norm", 0 },
    { HL_ROLE_ATTN_Q, "blk.*.attn_q", 0 },
    { HL_ROLE_ATTN_K, "blk.*.attn_k", 0 },
    { HL_ROLE_ATTN_V, "blk.*.attn_v", 0 },
    { HL_ROLE_ATTN_QKV, "blk.*.attn_qkv", 0 },
    { HL_ROLE_Q_NORM, "blk.*.attn_q_norm", 0 },
    { HL_ROLE_K_NORM, "blk.*.attn_k_norm", 0 },
    { HL_ROLE_SINKS, "blk.*.attn_sinks", 0 },
    { HL_ROLE_ATTN_O, "blk.*.attn_output", 0 },
    { HL_ROLE_ATTN_POST_NORM, "blk.*.post_attention_norm", 0 },
    { HL_ROLE_MIX_IN, "blk.*.ssm_in|blk.*.shortconv.in_proj", 0 },
    { HL_ROLE_MIX_QKV, "blk.*.attn_qkv", 0 },
    { HL_ROLE_MIX_Z, "blk.*.attn_gate", 0 },
    { HL_ROLE_MIX_B, "blk.*.ssm_beta", 0 },
    { HL_ROLE_MIX_A, "blk.*.ssm_alpha", 0 },
    { HL_ROLE_MIX_BA, "blk.*.ssm_ba", 0 },
    { HL_ROLE_MIX_CONV, "blk.*.ssm_conv1d|blk.*.shortconv.conv", 0 },
    { HL_ROLE_MIX_X, "blk.*.ssm_x", 0 },
    { HL_ROLE_MIX_DT, "blk.*.ssm_dt", 0 },
    { HL_ROLE_MIX_DT_NORM, "blk.*.ssm_dt_norm", 0 },
    { HL_ROLE_MIX_K_NORM, "blk.*.ssm_b_norm", 0 },
    { HL_ROLE_MIX_Q_NORM, "blk.*.ssm_c_norm", 0 },
    { HL_ROLE_MIX_DT_BIAS, "blk.*.ssm_dt.bias", HL_STORED_BARE },
    { HL_ROLE_MIX_DECAY, "blk.*.ssm_a", HL_STORED_BARE },
    { HL_ROLE_MIX_SKIP, "blk.*.ssm_d", HL_STORED_BARE },
    { HL_ROLE_MIX_NORM, "blk.*.ssm_norm", 0 },
    { HL_ROLE_MIX_OUT, "blk.*.ssm_out|blk.*.shortconv.out_proj", 0 },
    { HL_ROLE_MLP_NORM, "blk.*.ffn_norm", 0 },
    { HL_ROLE_MLP_GATE, "blk.*.ffn_gate", 0 },
    { HL_ROLE_MLP_UP, "blk.*.ffn_up", 0 },
    { HL_ROLE_MLP_DOWN, "blk.*.ffn_down", 0 },
    { HL_ROLE_ROUTER, "blk.*.ffn_gate_inp", 0 },
    { HL_ROLE_ROUTER_CORRECTION, "blk.*.exp_probs_b.bias|blk.*.exp_probs_b", HL_STORED_BARE },
    { HL_ROLE_EXPERT_GATE, "blk.*.ffn_gate_exps|blk.*.ffn_gate.*", 0 },
    { HL_ROLE_EXPERT_UP, "blk.*.ffn_up_exps|blk.*.ffn_up.*", 0 },
    { HL_ROLE_EXPERT_DOWN, "blk.*.ffn_down_exps|blk.*.ffn_down.*", 0 },
    { HL_ROLE_SHARED_ROUTER, "blk.*.ffn_gate_inp_shexp", 0 },
    { HL_ROLE_SHARED_GATE, "blk.*.ffn_gate_shexp", 0 },
    { HL_ROLE_SHARED_UP, "blk.*.ffn_up_shexp", 0 },
    { HL_ROLE_SHARED_DOWN, "blk.*.ffn_down_shexp", 0 },
    { HL_ROLE_MLP_POST_NORM, "blk.*.post_ffw_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

/* ------------------------------------------------------------------- finding */

/* Is `word` one of "a|b|c"? */
static bool is_among(const char *words, const char *word)
{
    size_t length = strlen(word);

    while (words != NULL && *words != '\0') {
        size_t n = strcspn(words, "|");
        if (n == length && memcmp(words, word, n) == 0)
            return true;
        words += n + (words[n] == '|');
    }
    return false;
}

/* The fewest letters to insert, remove or replace that turn `a` into `b` (n_b letters). */
static size_t distance(const char *a, const char *b, size_t n_b)
{
    size_t row[HL_MAX_FIELD_TEXT];

    if (n_b >= HL_MAX_FIELD_TEXT)
        return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t corner = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < n_b; j++) {
            size_t change = corner + (a[i] != b[j]);
            size_t least  = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;

            corner     = row[j + 1];
            row[j + 1] = change < least ? change : least;
        }
    }
    return row[n_b];
}

/* Writes "; the nearest is 'qwen3'", or nothing if no name is similar: at most half of its letters
 * differ. */
static void name_nearest(char *out, size_t n_bytes, const char *word, bool architectures)
{
    size_t best = strlen(word) / 2 + 1;

    out[0] = '\0';
    for (const hl_family *const *at = families; *at != NULL; at++) {
        const char *words = architectures ? (*at)->architectures : (*at)->model_types;

        while (words != NULL && *words != '\0') {
            size_t n    = strcspn(words, "|");
            size_t away = distance(word, words, n);

            if (away < best) {
                best = away;
                snprintf(out, n_bytes, "; the nearest is '%.*s'", (int)n, words);
            }
            words += n + (words[n] == '|');
        }
    }
}

/* The advice for a model of an unknown family. */
#define HL_OTHER_WAY                                                                               \
    "doc/families.md lists all.  Attention maps that other software saved can be measured "        \
    "without the model: headlight measure --attn FILE -o PROFILE"

hl_status hl_family_of_model_type(const hl_family **out, const char *model_type, const char *where)
{
    char nearest[HL_MAX_FIELD_TEXT + 32];

    for (const hl_family *const *at = families; *at != NULL; at++) {
        if (is_among((*at)->model_types, model_type)) {
            *out = *at;
            return HL_OK;
        }
    }
    name_nearest(nearest, sizeof nearest, model_type, false);
    return hl_fail(HL_UNSUPPORTED,
                   "%s: model_type '%.64s' is not a family that headlight knows%s.  " HL_OTHER_WAY,
                   where, model_type, nearest);
}

hl_status hl_family_of_architecture(const hl_family **out, const char *architecture,
                                    const char *where)
{
    char nearest[HL_MAX_FIELD_TEXT + 32];

    for (const hl_family *const *at = families; *at != NULL; at++) {
        if (is_among((*at)->architectures, architecture)) {
            *out = *at;
            return HL_OK;
        }
    }
    name_nearest(nearest, sizeof nearest, architecture, true);
    return hl_fail(
        HL_UNSUPPORTED,
        "%s: general.architecture '%.64s' is not one that headlight knows%s.  " HL_OTHER_WAY, where,
        architecture, nearest);
}

const hl_family *hl_family_named(const char *name)
{
    for (const hl_family *const *at = families; *at != NULL; at++) {
        if (strcmp((*at)->name, name) == 0)
            return *at;
    }
    return NULL;
}
