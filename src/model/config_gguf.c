/* config_gguf.c - descriptions from GGUF metadata and from llama2.c headers.
 *
 * Most of it is the families' tables: a key of config.json and one of GGUF lead to
 * the same member.  What GGUF has no key for can be seen from its tensors: the size
 * of the vocabulary, whether the head is the embedding, which maps have biases, and
 * llama3's rotary rule, stored as the factors it gives. */
#include <math.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/config_build.h"

bool hl_fields_have_tensor(const hl_fields *fields, const char *name)
{
    return fields->tensors != NULL && hl_tensors_find(fields->tensors, name) != NULL;
}

int64_t hl_fields_tensor_size(const hl_fields *fields, const char *name, int dim)
{
    const hl_tensor *tensor =
        fields->tensors != NULL ? hl_tensors_find(fields->tensors, name) : NULL;
    return tensor != NULL && dim < tensor->n_dims ? tensor->shape[dim] : 0;
}

/* ------------------------------------------------------------------ tensors */

static void read_biases(hl_config *config, const hl_fields *fields)
{
    static const struct {
        uint32_t    bit;
        const char *names[2];
    } probes[] = {
        { HL_BIAS_QKV, { "blk.0.attn_q.bias", "blk.0.attn_qkv.bias" } },
        { HL_BIAS_O, { "blk.0.attn_output.bias", NULL } },
        { HL_BIAS_MLP, { "blk.0.ffn_down.bias", NULL } },
        { HL_BIAS_HEAD, { "output.bias", NULL } },
    };

    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        config->biases &= ~probes[i].bit;
        for (int j = 0; j < 2 && probes[i].names[j] != NULL; j++) {
            if (hl_fields_have_tensor(fields, probes[i].names[j]))
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

/* --------------------------------------------------------------------- rope */

/* *count gets the entries of the tensor, 0 where there is none. */
static hl_status read_factor_tensor(float *out, int64_t *count, const hl_fields *fields,
                                    const char *name)
{
    const hl_tensor *tensor = hl_tensors_find(fields->tensors, name);

    *count = 0;
    if (tensor == NULL)
        return HL_OK;
    *count = hl_tensor_count(tensor);
    if (*count < 1 || *count > HL_MAX_ROPE_PAIRS || tensor->dtype != HL_DTYPE_F32)
        return hl_fail(HL_BAD_INPUT,
                       "%s: tensor '%s' has %lld entries of %s, wanted up to %d of F32",
                       fields->where, name, (long long)*count, hl_dtype_name(tensor->dtype),
                       HL_MAX_ROPE_PAIRS);
    hl_status status = hl_dtype_to_f32(out, tensor->data, tensor->dtype, (size_t)*count);
    for (int64_t i = 0; status == HL_OK && i < *count; i++) {
        if (!(out[i] > 0.0f) || isinf(out[i]))
            return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' [%lld] is %g, wanted more than 0",
                           fields->where, name, (long long)i, (double)out[i]);
    }
    return status;
}

static hl_status read_factor_tensors(hl_rope *rope, const hl_fields *fields)
{
    int64_t n_freqs = 0;
    int64_t n_short = 0;
    int64_t n_long  = 0;

    HL_NEED(read_factor_tensor(rope->short_factors, &n_freqs, fields, "rope_freqs.weight"));
    if (n_freqs > 0) {
        rope->kind      = HL_ROPE_FACTORS;
        rope->n_factors = n_freqs;
        return HL_OK;
    }
    HL_NEED(read_factor_tensor(rope->short_factors, &n_short, fields, "rope_factors_short.weight"));
    HL_NEED(read_factor_tensor(rope->long_factors, &n_long, fields, "rope_factors_long.weight"));
    if (n_short != n_long)
        return hl_fail(HL_BAD_INPUT, "%s: %lld short rotary factors and %lld long ones",
                       fields->where, (long long)n_short, (long long)n_long);
    if (n_short > 0) {
        rope->kind      = HL_ROPE_LONGROPE;
        rope->n_factors = n_short;
    }
    return HL_OK;
}

static hl_status read_scaling(hl_rope *rope, const hl_fields *fields)
{
    double factor = 0.0;

    HL_NEED(hl_config_read_rope_kind(&rope->kind, fields, NULL, "rope.scaling.type"));
    HL_NEED(hl_fields_double(&rope->factor, fields, NULL, "rope.scaling.factor|rope.scale_linear"));
    HL_NEED(hl_fields_int(&rope->original_n_ctx, fields, NULL,
                          "rope.scaling.original_context_length", 1, HL_MAX_CONTEXT));
    HL_NEED(hl_fields_double(&rope->beta_fast, fields, NULL, "rope.scaling.yarn_beta_fast"));
    HL_NEED(hl_fields_double(&rope->beta_slow, fields, NULL, "rope.scaling.yarn_beta_slow"));
    HL_NEED(hl_fields_double(&factor, fields, NULL, "rope.scaling.attn_factor"));
    HL_NEED(read_factor_tensors(rope, fields));
    /* For yarn it comes on top of what the rule gives. */
    if (factor > 0.0 && rope->kind == HL_ROPE_YARN && rope->factor > 1.0)
        factor *= 0.1 * log(rope->factor) + 1.0;
    rope->attention_factor = factor;
    return HL_OK;
}

static hl_status read_rope(hl_config *config, const hl_fields *fields)
{
    hl_rope *rope  = &config->ropes[HL_ROPE_MAIN];
    hl_rope *local = &config->ropes[HL_ROPE_LOCAL];

    config->rotary_fraction = 1.0; /* what turns less says how much */
    HL_NEED(hl_fields_double(&rope->base, fields, NULL, "rope.freq_base"));
    HL_NEED(hl_fields_int(&rope->n_dims, fields, NULL, "rope.dimension_count", 2, HL_MAX_HEAD_DIM));
    HL_NEED(read_scaling(rope, fields));
    if (local->base != 0.0)
        local->n_dims = rope->n_dims;
    return HL_OK;
}

/* ------------------------------------------------------------ special tokens */

/* 2^32 - 1 stands for "none". */
static hl_status read_token(int64_t *out, const hl_gguf *file, const char *key)
{
    int64_t   id     = -1;
    hl_status status = hl_gguf_get_int(&id, file, key);

    if (status == HL_OK && id >= 0 && id < HL_MAX_VOCAB)
        *out = id;
    return status;
}

static hl_status read_tokens(hl_generation *generation, const hl_gguf *file)
{
    int64_t ends[] = { -1, -1 };

    HL_NEED(read_token(&generation->bos_id, file, "tokenizer.ggml.bos_token_id"));
    HL_NEED(read_token(&generation->pad_id, file, "tokenizer.ggml.padding_token_id"));
    HL_NEED(read_token(&ends[0], file, "tokenizer.ggml.eos_token_id"));
    HL_NEED(read_token(&ends[1], file, "tokenizer.ggml.eot_token_id"));
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0 && (i == 0 || ends[i] != ends[0]))
            generation->eos_ids[generation->n_eos_ids++] = ends[i];
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ the whole */

hl_status hl_config_read_gguf(hl_config *config, const hl_fields *fields)
{
    HL_NEED(read_vocabulary(config, fields));
    read_biases(config, fields);
    if (config->position == HL_POSITION_ROPE)
        HL_NEED(read_rope(config, fields));
    /* The rows before the first position were left out. */
    config->position_offset = 0;
    return read_tokens(&config->generation, fields->gguf);
}

hl_status hl_config_of_gguf(hl_config **out, const hl_gguf *file, const hl_tensors *tensors)
{
    char             architecture[HL_MAX_FIELD_TEXT] = "";
    hl_gguf_text     text                            = { 0 };
    const hl_family *family                          = NULL;

    *out = NULL;
    HL_NEED(hl_gguf_get_text(&text, file, "general.architecture"));
    if (text.bytes == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: 'general.architecture' is missing", hl_gguf_where(file));
    snprintf(architecture, sizeof architecture, "%.*s",
             (int)(text.n_bytes < sizeof architecture ? text.n_bytes : sizeof architecture - 1),
             text.bytes);
    HL_NEED(hl_family_of_architecture(&family, architecture, hl_gguf_where(file)));

    hl_fields fields = {
        .where = hl_gguf_where(file), .gguf = file, .architecture = architecture, .tensors = tensors
    };
    return hl_config_build(out, family, &fields);
}

/* ----------------------------------------------------------------- llama2.c */

hl_status hl_config_of_llama2c(hl_config **out, const hl_llama2c_config *header, const char *where)
{
    hl_status status = HL_OK;
    json_t   *object =
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
    HL_TRY(hl_config_build(out, &hl_family_llama, &fields));

done:
    json_decref(object);
    return status;
}
