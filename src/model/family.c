/* family.c - the list of families, and the search for one. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "formats/tensors.h"

static const hl_family *const families[] = {
    &hl_family_bert,       &hl_family_bloom,
    &hl_family_cohere,     &hl_family_cohere2,
    &hl_family_deci,       &hl_family_distilbert,
    &hl_family_falcon,     &hl_family_gemma,
    &hl_family_gemma2,     &hl_family_gemma3,
    &hl_family_gpt2,       &hl_family_gpt_bigcode,
    &hl_family_gpt_neo,    &hl_family_gpt_neox,
    &hl_family_gpt_oss,    &hl_family_gptj,
    &hl_family_granite,    &hl_family_llama,
    &hl_family_mistral,    &hl_family_mixtral,
    &hl_family_modernbert, &hl_family_olmo2,
    &hl_family_opt,        &hl_family_phi,
    &hl_family_phi3,       &hl_family_qwen2,
    &hl_family_qwen2_moe,  &hl_family_qwen3,
    &hl_family_qwen3_moe,  &hl_family_roberta,
    &hl_family_smollm3,    &hl_family_stablelm,
    &hl_family_starcoder2, NULL,
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
    { HL_ROLE_MLP_NORM, "blk.*.ffn_norm", 0 },
    { HL_ROLE_MLP_GATE, "blk.*.ffn_gate", 0 },
    { HL_ROLE_MLP_UP, "blk.*.ffn_up", 0 },
    { HL_ROLE_MLP_DOWN, "blk.*.ffn_down", 0 },
    { HL_ROLE_ROUTER, "blk.*.ffn_gate_inp", 0 },
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

const hl_family *const *hl_families(void)
{
    return families;
}

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

/* Lists the first spellings of all families, for a message. */
static void list_known(char *out, size_t n_bytes, bool architectures)
{
    size_t used = 0;

    out[0] = '\0';
    for (const hl_family *const *at = families; *at != NULL && used < n_bytes; at++) {
        const char *words = architectures ? (*at)->architectures : (*at)->model_types;
        if (words != NULL)
            used += (size_t)snprintf(out + used, n_bytes - used, "%s%.*s", used > 0 ? ", " : "",
                                     (int)strcspn(words, "|"), words);
    }
}

/* The advice for a model of an unknown family. */
#define HL_OTHER_WAY                                                                               \
    "Attention maps that other software saved can be measured without the model: "                 \
    "headlight measure --attn FILE -o PROFILE"

hl_status hl_family_of_model_type(const hl_family **out, const char *model_type, const char *where)
{
    char known[640];

    for (const hl_family *const *at = families; *at != NULL; at++) {
        if (is_among((*at)->model_types, model_type)) {
            *out = *at;
            return HL_OK;
        }
    }
    list_known(known, sizeof known, false);
    return hl_fail(
        HL_UNSUPPORTED,
        "%s: model_type '%.64s' is not a family that headlight knows: %s.  " HL_OTHER_WAY, where,
        model_type, known);
}

hl_status hl_family_of_architecture(const hl_family **out, const char *architecture,
                                    const char *where)
{
    char known[640];

    for (const hl_family *const *at = families; *at != NULL; at++) {
        if (is_among((*at)->architectures, architecture)) {
            *out = *at;
            return HL_OK;
        }
    }
    list_known(known, sizeof known, true);
    return hl_fail(
        HL_UNSUPPORTED,
        "%s: general.architecture '%.64s' is not one that headlight knows: %s.  " HL_OTHER_WAY,
        where, architecture, known);
}

const hl_family *hl_family_named(const char *name)
{
    for (const hl_family *const *at = families; *at != NULL; at++) {
        if (strcmp((*at)->name, name) == 0)
            return *at;
    }
    return NULL;
}
