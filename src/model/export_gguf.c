/* export_gguf.c - metadata and tensors of a model, under llama.cpp's names.
 *
 * Names and layouts come from the tables that reading uses (family.h): the spelling
 * before the first '|', and rotary pairs side by side where a family's GGUF table says
 * so.  Weights are read row by row as the forward pass sees them, so all that the
 * source did to them is undone first.  Some architectures want q, k and v in one tensor,
 * one after the other. */
#include "model/export_gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/quant.h"
#include "model/family.h"
#include "model/model.h"
#include "model/rope.h"

struct hl_gguf_export {
    const hl_model  *model;
    const hl_family *family; /* whose names are used */
    const char      *architecture;
    bool             fused_qkv;
    hl_dtype         dtype;
    hl_gguf_writer  *writer;
    void           **blocks; /* converted tensors, until the file is written */
    size_t           n_blocks;
    size_t           max_blocks;
    float           *row; /* the longest */
};

/* --------------------------------------------------------------- architectures */

/* Families whose files were read back and gave the same logits. */
typedef struct target {
    const char      *family;
    const char      *architecture;
    const hl_family *names;
    bool             fused_qkv;
} target;

static const target targets[] = {
    { "llama", "llama", &hl_family_llama, false },
    { "mistral", "llama", &hl_family_llama, false },
    { "gpt2", "gpt2", &hl_family_gpt2, true },
    { "qwen2", "qwen2", &hl_family_qwen2, false },
    { "qwen3", "qwen3", &hl_family_qwen3, false },
    { "olmo2", "olmo2", &hl_family_olmo2, false },
    { "starcoder2", "starcoder2", &hl_family_starcoder2, false },
};

enum { N_TARGETS = sizeof targets / sizeof *targets };

static hl_status choose_target(hl_gguf_export *file, const hl_config *config)
{
    char   known[128] = "";
    size_t used       = 0;

    for (size_t i = 0; i < N_TARGETS; i++) {
        if (strcmp(targets[i].family, config->family) == 0) {
            file->family       = targets[i].names;
            file->architecture = targets[i].architecture;
            file->fused_qkv    = targets[i].fused_qkv;
            return HL_OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                                 targets[i].family);
    }
    return hl_fail(HL_UNSUPPORTED, "a model of family %s cannot be written as GGUF here, only: %s",
                   config->family, known);
}

/* What the metadata below have no key for. */
static hl_status check_config(const hl_config *config)
{
    hl_rope_kind kind = config->ropes[HL_ROPE_MAIN].kind;

    for (int64_t i = 0; i < config->n_layers; i++) {
        const hl_layer_config *layer = &config->layers[i];
        double                 scale = 1.0 / sqrt((double)config->d_head);

        if (layer->is_local)
            return hl_fail(HL_UNSUPPORTED,
                           "layer %lld sees a window of %lld keys, which this GGUF architecture "
                           "has no key for",
                           (long long)i, (long long)layer->window_left + 1);
        if (layer->n_heads == 0 || layer->d_mlp == 0)
            return hl_fail(HL_UNSUPPORTED, "layer %lld has no %s, which GGUF wants of every layer",
                           (long long)i, layer->n_heads == 0 ? "attention" : "MLP");
        if (fabs(layer->attn_scale / scale - 1.0) > 1e-6)
            return hl_fail(HL_UNSUPPORTED, "layer %lld scales scores by %g, wanted %g for GGUF",
                           (long long)i, layer->attn_scale, scale);
    }
    if (config->position == HL_POSITION_ROPE && kind != HL_ROPE_DEFAULT && kind != HL_ROPE_LINEAR &&
        kind != HL_ROPE_LLAMA3 && kind != HL_ROPE_FACTORS)
        return hl_fail(HL_UNSUPPORTED, "rope of kind %s is not written as GGUF",
                       hl_rope_kind_name(kind));
    return HL_OK;
}

static hl_status check_dtype(hl_dtype dtype)
{
    static const hl_dtype possible[] = { HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_BF16, HL_DTYPE_Q8_0,
                                         HL_DTYPE_Q4_0 };

    for (size_t i = 0; i < sizeof possible / sizeof *possible; i++) {
        if (possible[i] == dtype)
            return HL_OK;
    }
    return hl_fail(HL_UNSUPPORTED, "GGUF is written as F32, F16, BF16, Q8_0 or Q4_0, not %s",
                   hl_dtype_name(dtype));
}

/* -------------------------------------------------------------------- metadata */

/* "ARCHITECTURE.name" in a static buffer of the caller's. */
static const char *key_of(char out[64], const hl_gguf_export *file, const char *name)
{
    snprintf(out, 64, "%s.%s", file->architecture, name);
    return out;
}

static void add_int(hl_gguf_export *file, const char *name, int64_t value)
{
    char key[64];
    hl_gguf_add_int(file->writer, key_of(key, file, name), HL_GGUF_U32, value);
}

static void add_float(hl_gguf_export *file, const char *name, double value)
{
    char key[64];
    hl_gguf_add_float(file->writer, key_of(key, file, name), HL_GGUF_F32, value);
}

/* A member of every layer: one number where they agree, else a list. */
static void add_layers(hl_gguf_export *file, const char *name, size_t offset)
{
    const hl_config *config                = file->model->config;
    int32_t          values[HL_MAX_LAYERS] = { 0 };
    bool             alike                 = true;
    char             key[64];

    for (int64_t i = 0; i < config->n_layers; i++) {
        int64_t value;
        memcpy(&value, (const char *)&config->layers[i] + offset, sizeof value);
        values[i] = (int32_t)value;
        alike     = alike && values[i] == values[0];
    }
    if (alike)
        add_int(file, name, values[0]);
    else
        hl_gguf_add_numbers(file->writer, key_of(key, file, name), HL_GGUF_I32, values,
                            (size_t)config->n_layers);
}

static void add_rope(hl_gguf_export *file)
{
    const hl_rope *rope = &file->model->config->ropes[HL_ROPE_MAIN];
    char           key[64];

    if (file->model->config->position != HL_POSITION_ROPE)
        return;
    add_int(file, "rope.dimension_count", rope->n_dims);
    add_float(file, "rope.freq_base", rope->base);
    if (rope->kind == HL_ROPE_LINEAR) {
        hl_gguf_add_text(file->writer, key_of(key, file, "rope.scaling.type"), "linear");
        add_float(file, "rope.scaling.factor", rope->factor);
    }
}

/* llama.cpp's numbers for what most of a file is. */
static int64_t file_type(hl_dtype dtype)
{
    switch (dtype) {
    case HL_DTYPE_F16:
        return 1;
    case HL_DTYPE_Q4_0:
        return 2;
    case HL_DTYPE_Q8_0:
        return 7;
    case HL_DTYPE_BF16:
        return 32;
    default:
        return 0;
    }
}

static void add_metadata(hl_gguf_export *file)
{
    const hl_config *config = file->model->config;
    bool             rms    = config->norm == HL_NORM_RMS;

    hl_gguf_add_text(file->writer, "general.architecture", file->architecture);
    hl_gguf_add_int(file->writer, "general.file_type", HL_GGUF_U32, file_type(file->dtype));
    hl_gguf_add_int(file->writer, "general.quantization_version", HL_GGUF_U32, 2);
    add_int(file, "block_count", config->n_layers);
    if (config->n_ctx > 0)
        add_int(file, "context_length", config->n_ctx);
    add_int(file, "embedding_length", config->d_model);
    add_int(file, "vocab_size", config->d_vocab);
    add_layers(file, "feed_forward_length", offsetof(hl_layer_config, d_mlp));
    add_layers(file, "attention.head_count", offsetof(hl_layer_config, n_heads));
    add_layers(file, "attention.head_count_kv", offsetof(hl_layer_config, n_kv_heads));
    add_int(file, "attention.key_length", config->d_head);
    add_int(file, "attention.value_length", config->d_head);
    add_float(file, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
              config->norm_eps);
    add_rope(file);
}

void hl_gguf_export_token_ids(hl_gguf_export *file)
{
    const hl_generation *known = &file->model->config->generation;

    if (known->bos_id >= 0)
        hl_gguf_add_int(file->writer, "tokenizer.ggml.bos_token_id", HL_GGUF_U32, known->bos_id);
    if (known->n_eos_ids > 0)
        hl_gguf_add_int(file->writer, "tokenizer.ggml.eos_token_id", HL_GGUF_U32,
                        known->eos_ids[0]);
    if (known->pad_id >= 0)
        hl_gguf_add_int(file->writer, "tokenizer.ggml.padding_token_id", HL_GGUF_U32,
                        known->pad_id);
}

/* ----------------------------------------------------------------------- names */

static const hl_family_tensor *find_in(const hl_family_tensor *table, hl_role role)
{
    for (; table != NULL && table->name != NULL; table++) {
        if (table->role == role)
            return table;
    }
    return NULL;
}

/* By the family's own table, or else the usual one. */
static const hl_family_tensor *entry_of(const hl_gguf_export *file, hl_role role)
{
    const hl_family_tensor *entry = NULL;

    for (int i = 0; i < HL_MAX_TABLES && entry == NULL; i++)
        entry = find_in(file->family->gguf[i], role);
    return entry != NULL ? entry : find_in(hl_gguf_tensors, role);
}

/* The first spelling, with the layer for its '*'. */
static void make_name(char out[HL_GGUF_MAX_NAME], const hl_family_tensor *entry, int64_t layer,
                      bool is_bias)
{
    size_t      length = strcspn(entry->name, "|");
    const char *star   = memchr(entry->name, '*', length);
    const char *ending = is_bias ? ".bias" : ".weight";

    if (star == NULL)
        snprintf(out, HL_GGUF_MAX_NAME, "%.*s%s", (int)length, entry->name, ending);
    else
        snprintf(out, HL_GGUF_MAX_NAME, "%.*s%lld%.*s%s", (int)(star - entry->name), entry->name,
                 (long long)layer, (int)(entry->name + length - star - 1), star + 1, ending);
}

/* --------------------------------------------------------------------- tensors */

/* Memory that lives until the file is freed. */
static hl_status new_block(hl_gguf_export *file, void **out, size_t n_bytes)
{
    hl_status status = HL_OK;
    uint8_t  *block  = NULL;

    if (file->n_blocks == file->max_blocks) {
        size_t more = 2 * file->max_blocks + 64;
        HL_TRY(hl_realloc((void **)&file->blocks, file->max_blocks, more, sizeof *file->blocks));
        file->max_blocks = more;
    }
    HL_TRY(HL_ALLOC(&block, n_bytes));
    file->blocks[file->n_blocks++] = block;
    *out                           = block;

done:
    return status;
}

/* Blocks cover rows of whole blocks only. */
static hl_dtype dtype_for(const hl_gguf_export *file, hl_role role, const hl_weight *weight)
{
    hl_dtype_block block = hl_dtype_block_of(file->dtype);

    if (hl_role_is_vector(role) || weight->n_columns == 1 || role == HL_ROLE_POSITION)
        return HL_DTYPE_F32;
    return weight->n_columns % (int64_t)block.n_values == 0 ? file->dtype : HL_DTYPE_F16;
}

/* Where row r of a weight is stored: rotary pairs (i, d/2 + i) of a head become (2i, 2i+1). */
static int64_t stored_row(const hl_config *config, uint32_t stored, hl_role role, int64_t r)
{
    bool    turns = role == HL_ROLE_ATTN_Q || role == HL_ROLE_ATTN_K;
    int64_t half  = config->d_head / 2;
    int64_t i     = r % config->d_head;

    if ((stored & HL_STORED_PAIRED) == 0 || !turns)
        return r;
    return r - i + i % half * 2 + i / half;
}

/* Rows of one weight (or bias) to `out`, row 0 of the tensor there. */
static hl_status convert_rows(uint8_t *out, hl_gguf_export *file, const hl_weight *weight,
                              hl_dtype dtype, uint32_t stored, hl_role role)
{
    hl_status      status    = HL_OK;
    hl_dtype_block block     = hl_dtype_block_of(dtype);
    size_t         row_bytes = (size_t)weight->n_columns / block.n_values * block.n_bytes;

    for (int64_t r = 0; r < weight->n_rows; r++) {
        size_t place = (size_t)stored_row(file->model->config, stored, role, r) * row_bytes;
        HL_TRY(hl_weight_read_row(file->row, weight, r));
        HL_TRY(hl_quantise(out + place, dtype, file->row, (size_t)weight->n_columns));
    }

done:
    return status;
}

/* Several weights of equal width, one after the other, as one tensor. */
typedef struct stack {
    hl_role          roles[3];
    const hl_weight *weights[3];
    int              count;
} stack;

static hl_status add_stack(hl_gguf_export *file, const stack *parts, const hl_family_tensor *entry,
                           int64_t layer, bool is_bias)
{
    hl_status        status                 = HL_OK;
    const hl_weight *first                  = parts->weights[0];
    hl_dtype         dtype                  = dtype_for(file, parts->roles[0], first);
    char             name[HL_GGUF_MAX_NAME] = "";
    hl_tensor tensor = { .name = name, .dtype = dtype, .n_dims = first->n_columns > 1 ? 2 : 1 };
    void     *data   = NULL;
    size_t    at     = 0;

    for (int i = 0; i < parts->count; i++)
        tensor.shape[0] += parts->weights[i]->n_rows;
    tensor.shape[1] = first->n_columns;
    HL_TRY(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    HL_TRY(new_block(file, &data, tensor.n_bytes));
    for (int i = 0; i < parts->count; i++) {
        size_t share = tensor.n_bytes / (size_t)tensor.shape[0] * (size_t)parts->weights[i]->n_rows;
        HL_TRY(convert_rows((uint8_t *)data + at, file, parts->weights[i], dtype, entry->stored,
                            parts->roles[i]));
        at += share;
    }
    make_name(name, entry, layer, is_bias);
    tensor.data = data;
    hl_gguf_add_tensor(file->writer, &tensor);

done:
    return status;
}

/* A role's weight and, where there is one, its bias. */
static hl_status add_roles(hl_gguf_export *file, const hl_role *roles, int count, hl_role stored,
                           int64_t layer)
{
    hl_status               status  = HL_OK;
    stack                   weights = { .count = count };
    stack                   biases  = { .count = count };
    const hl_family_tensor *entry   = entry_of(file, stored);

    for (int i = 0; i < count; i++) {
        const hl_param *param = hl_weights_get(file->model->weights, roles[i], layer, 0);
        if (param == NULL || param->weight.tensor == NULL)
            return HL_OK;
        weights.roles[i] = biases.roles[i] = roles[i];
        weights.weights[i]                 = &param->weight;
        biases.weights[i]                  = &param->bias;
    }
    if (entry == NULL)
        return hl_fail(HL_UNSUPPORTED, "GGUF has no name for %s", hl_role_name(stored));
    HL_TRY(add_stack(file, &weights, entry, layer, false));
    if (biases.weights[0]->tensor != NULL)
        HL_TRY(add_stack(file, &biases, entry, layer, true));

done:
    return status;
}

static bool is_tied_head(const hl_gguf_export *file, hl_role role)
{
    return role == HL_ROLE_LM_HEAD && file->model->config->tied;
}

static bool is_in_qkv(hl_role role)
{
    return role == HL_ROLE_ATTN_Q || role == HL_ROLE_ATTN_K || role == HL_ROLE_ATTN_V;
}

static hl_status add_tensors(hl_gguf_export *file, int64_t layer)
{
    static const hl_role qkv[] = { HL_ROLE_ATTN_Q, HL_ROLE_ATTN_K, HL_ROLE_ATTN_V };

    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        hl_status status = HL_OK;

        if (hl_role_is_of_layer(role) != (layer >= 0) || is_tied_head(file, role))
            continue;
        if (file->fused_qkv && is_in_qkv(role))
            status =
                role == HL_ROLE_ATTN_Q ? add_roles(file, qkv, 3, HL_ROLE_ATTN_QKV, layer) : HL_OK;
        else
            status = add_roles(file, &role, 1, role, layer);
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

/* llama3's rule is stored as what it divides each frequency by. */
static hl_status add_rope_factors(hl_gguf_export *file)
{
    hl_status      status = HL_OK;
    const hl_rope *rope   = &file->model->config->ropes[HL_ROPE_MAIN];
    hl_rope        plain  = *rope;
    size_t         count  = (size_t)rope->n_dims / 2;
    float          frequencies[HL_MAX_ROPE_PAIRS];
    void          *data = NULL;

    if (rope->kind != HL_ROPE_LLAMA3 && rope->kind != HL_ROPE_FACTORS)
        return HL_OK;
    plain.kind = HL_ROPE_DEFAULT;
    HL_TRY(new_block(file, &data, count * sizeof(float)));
    float *factors = data;
    hl_rope_frequencies(frequencies, rope, 0);
    hl_rope_frequencies(factors, &plain, 0);
    for (size_t i = 0; i < count; i++)
        factors[i] /= frequencies[i];
    hl_gguf_add_tensor(file->writer, &(hl_tensor){ .name    = "rope_freqs.weight",
                                                   .dtype   = HL_DTYPE_F32,
                                                   .n_dims  = 1,
                                                   .shape   = { (int64_t)count },
                                                   .data    = data,
                                                   .n_bytes = count * sizeof(float) });

done:
    return status;
}

/* -------------------------------------------------------------------- the whole */

/* The widest input of any weight. */
static int64_t longest_row(const hl_config *config)
{
    int64_t widest = config->n_heads * config->d_head;

    widest = config->d_model > widest ? config->d_model : widest;
    return config->d_mlp > widest ? config->d_mlp : widest;
}

hl_status hl_gguf_export_new(hl_gguf_export **out, const hl_model *model, hl_dtype dtype)
{
    hl_status       status = HL_OK;
    hl_gguf_export *file   = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&file, 1));
    file->model = model;
    file->dtype = dtype;
    HL_TRY(check_dtype(dtype));
    HL_TRY(choose_target(file, model->config));
    HL_TRY(check_config(model->config));
    HL_TRY(hl_gguf_writer_new(&file->writer));
    HL_TRY(HL_ALLOC(&file->row, (size_t)longest_row(model->config)));
    add_metadata(file);
    for (int64_t layer = -1; layer < model->config->n_layers; layer++)
        HL_TRY(add_tensors(file, layer));
    if (model->config->position == HL_POSITION_ROPE)
        HL_TRY(add_rope_factors(file));
    *out = file;
    file = NULL;

done:
    hl_gguf_export_free(file);
    return status;
}

void hl_gguf_export_free(hl_gguf_export *file)
{
    if (file == NULL)
        return;
    for (size_t i = 0; i < file->n_blocks; i++)
        hl_free(file->blocks[i]);
    hl_free(file->blocks);
    hl_free(file->row);
    hl_gguf_writer_free(file->writer);
    hl_free(file);
}

hl_gguf_writer *hl_gguf_export_writer(hl_gguf_export *file)
{
    return file->writer;
}

hl_status hl_gguf_export_write(hl_gguf_export *file, const char *path)
{
    return hl_gguf_write(file->writer, path);
}
