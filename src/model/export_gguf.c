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
    const hl_model     *model;
    const hl_head_plan *plan;   /* NULL: all heads stay */
    const hl_family    *family; /* whose names are used */
    const char         *architecture;
    bool                fused_qkv;
    hl_dtype            dtype;
    hl_gguf_writer     *writer;
    void              **blocks; /* converted tensors, until the file is written */
    size_t              n_blocks;
    size_t              max_blocks;
    float              *row; /* the longest */
};

/* --------------------------------------------------------------- architectures */

/* Families whose files were read back and gave the same logits. */
typedef struct target {
    const char      *family;
    const char      *architecture;
    const hl_family *names;
    bool             fused_qkv;
    bool             any_count; /* heads need not cover the width */
    bool             is_deci;   /* deci's graph is the same */
} target;

static const target targets[] = {
    { "llama", "llama", &hl_family_llama, false, true, true },
    { "mistral", "llama", &hl_family_llama, false, true, true },
    { "deci", "deci", &hl_family_deci, false, true, true },
    { "gpt2", "gpt2", &hl_family_gpt2, true, false, false },
    { "qwen2", "qwen2", &hl_family_qwen2, false, false, true },
    { "qwen3", "qwen3", &hl_family_qwen3, false, true, false },
    { "olmo2", "olmo2", &hl_family_olmo2, false, false, false },
    { "starcoder2", "starcoder2", &hl_family_starcoder2, false, false, false },
};

enum { N_TARGETS = sizeof targets / sizeof *targets };

static const target *target_of(const char *family)
{
    for (size_t i = 0; i < N_TARGETS; i++) {
        if (strcmp(targets[i].family, family) == 0)
            return &targets[i];
    }
    return NULL;
}

/* What is left of layer `layer`, by a plan or without one. */
static hl_layer_plan layer_left(const hl_config *config, const hl_head_plan *plan, int64_t layer)
{
    if (plan != NULL)
        return plan->layers[layer];
    return (hl_layer_plan){ .n_heads    = config->layers[layer].n_heads,
                            .n_kv_heads = config->layers[layer].n_kv_heads };
}

/* Have all layers equally many heads, that cover the width where `covering`? */
static bool are_alike(const hl_config *config, const hl_head_plan *plan, bool covering)
{
    hl_layer_plan first = layer_left(config, plan, 0);

    for (int64_t i = 0; i < config->n_layers; i++) {
        hl_layer_plan layer = layer_left(config, plan, i);
        if (layer.n_heads != first.n_heads || layer.n_kv_heads != first.n_kv_heads ||
            config->layers[i].d_mlp != config->layers[0].d_mlp)
            return false;
    }
    return !covering || first.n_heads * config->d_head == config->d_model;
}

/* deci turns whole heads, in all layers. */
static bool fits_deci(const hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].rope != HL_ROPE_MAIN)
            return false;
    }
    return config->ropes[HL_ROPE_MAIN].n_dims == config->d_head;
}

static const target *target_for(const hl_config *config, const hl_head_plan *plan)
{
    const target *own = target_of(config->family);

    if (own == NULL || are_alike(config, plan, !own->any_count))
        return own;
    return own->is_deci && fits_deci(config) ? target_of("deci") : NULL;
}

bool hl_gguf_export_fits(const hl_config *config, const hl_head_plan *plan)
{
    return target_for(config, plan) != NULL;
}

/* The families, for messages. */
static void list_targets(char *out, size_t room)
{
    size_t used = 0;

    for (size_t i = 0; i < N_TARGETS && used < room; i++)
        used +=
            (size_t)snprintf(out + used, room - used, "%s%s", i > 0 ? ", " : "", targets[i].family);
}

static hl_status choose_target(hl_gguf_export *file, const hl_config *config)
{
    const target *own = target_for(config, file->plan);

    if (own == NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "llama.cpp loads a %s of these numbers of heads in no architecture",
                       config->family);
    file->family       = own->names;
    file->architecture = own->architecture;
    file->fused_qkv    = own->fused_qkv;
    return HL_OK;
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

hl_status hl_gguf_export_check(const hl_config *config, hl_dtype dtype)
{
    hl_status status     = HL_OK;
    char      known[128] = "";

    HL_TRY(check_dtype(dtype));
    list_targets(known, sizeof known);
    if (target_of(config->family) == NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "a model of family %s cannot be written as GGUF here, only: %s",
                       config->family, known);
    HL_TRY(check_config(config));

done:
    return status;
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

/* One number of every layer: alone where they agree, else as a list. */
static void add_list(hl_gguf_export *file, const char *name, const int32_t *values)
{
    int64_t n_layers = file->model->config->n_layers;
    bool    alike    = true;
    char    key[64];

    for (int64_t i = 1; i < n_layers; i++)
        alike = alike && values[i] == values[0];
    if (alike)
        add_int(file, name, values[0]);
    else
        hl_gguf_add_numbers(file->writer, key_of(key, file, name), HL_GGUF_I32, values,
                            (size_t)n_layers);
}

/* What may differ from layer to layer. */
static void add_layers(hl_gguf_export *file)
{
    const hl_config *config                 = file->model->config;
    int32_t          n_heads[HL_MAX_LAYERS] = { 0 };
    int32_t          n_kv[HL_MAX_LAYERS]    = { 0 };
    int32_t          widths[HL_MAX_LAYERS]  = { 0 };

    for (int64_t i = 0; i < config->n_layers; i++) {
        hl_layer_plan layer = layer_left(config, file->plan, i);
        n_heads[i]          = (int32_t)layer.n_heads;
        n_kv[i]             = (int32_t)layer.n_kv_heads;
        widths[i]           = (int32_t)config->layers[i].d_mlp;
    }
    add_list(file, "feed_forward_length", widths);
    add_list(file, "attention.head_count", n_heads);
    add_list(file, "attention.head_count_kv", n_kv);
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
    add_layers(file);
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
static hl_dtype dtype_for(const hl_gguf_export *file, hl_role role, int64_t n_columns)
{
    hl_dtype_block block = hl_dtype_block_of(file->dtype);

    if (hl_role_is_vector(role) || n_columns == 1 || role == HL_ROLE_POSITION)
        return HL_DTYPE_F32;
    return n_columns % (int64_t)block.n_values == 0 ? file->dtype : HL_DTYPE_F16;
}

/* Where row r of a head of its own is stored: rotary pairs (i, d/2 + i) become (2i, 2i+1). */
static int64_t stored_row(const hl_config *config, uint32_t stored, hl_role role, int64_t r)
{
    bool    turns = role == HL_ROLE_ATTN_Q || role == HL_ROLE_ATTN_K;
    int64_t half  = config->d_head / 2;
    int64_t i     = r % config->d_head;

    if ((stored & HL_STORED_PAIRED) == 0 || !turns)
        return r;
    return r - i + i % half * 2 + i / half;
}

/* One weight or bias, as it is and as it is written. */
typedef struct part {
    const hl_weight *weight;
    hl_role          role;
    bool             is_bias;
    const uint8_t   *row_fates;    /* of the heads that rows belong to; NULL: all stay */
    const uint8_t   *column_fates; /* ... columns */
    const float     *added;        /* to a bias, or NULL */
    int64_t          n_rows;       /* that are written */
    int64_t          n_columns;
} part;

static part describe_part(const hl_gguf_export *file, const hl_weight *weight, hl_role role,
                          int64_t layer, bool is_bias)
{
    int64_t d_head = file->model->config->d_head;
    part    p      = { .weight    = weight,
                       .role      = role,
                       .is_bias   = is_bias,
                       .n_rows    = weight->n_rows,
                       .n_columns = weight->n_columns };

    if (file->plan == NULL || layer < 0)
        return p;
    const hl_layer_plan *plan = &file->plan->layers[layer];
    if (role == HL_ROLE_ATTN_Q) {
        p.row_fates = plan->heads;
        p.n_rows    = plan->n_heads * d_head;
    } else if (role == HL_ROLE_ATTN_K || role == HL_ROLE_ATTN_V) {
        p.row_fates = plan->kv;
        p.n_rows    = plan->n_kv_heads * d_head;
    } else if (role == HL_ROLE_ATTN_O && !is_bias) {
        p.column_fates = plan->heads;
        p.n_columns    = plan->n_heads * d_head;
    } else if (role == HL_ROLE_ATTN_O) {
        p.added = plan->bias;
    }
    return p;
}

/* Columns of heads that are gone close up, those that are zeroed become 0. */
static void cut_columns(float *row, const part *p, int64_t d_head)
{
    int64_t to = 0;

    for (int64_t c = 0; p->column_fates != NULL && c < p->weight->n_columns; c++) {
        uint8_t fate = p->column_fates[c / d_head];
        if (fate != HL_HEAD_GONE)
            row[to++] = fate == HL_HEAD_ZEROED ? 0.0f : row[c];
    }
}

/* The rows that are written, to `out`, row 0 of the part there. */
static hl_status convert_rows(uint8_t *out, hl_gguf_export *file, const part *p, hl_dtype dtype,
                              uint32_t stored)
{
    hl_status        status    = HL_OK;
    const hl_config *config    = file->model->config;
    hl_dtype_block   block     = hl_dtype_block_of(dtype);
    size_t           row_bytes = (size_t)p->n_columns / block.n_values * block.n_bytes;
    int64_t          to        = 0;

    for (int64_t r = 0; r < p->weight->n_rows; r++) {
        if (p->row_fates != NULL && p->row_fates[r / config->d_head] == HL_HEAD_GONE)
            continue;
        size_t place = (size_t)stored_row(config, stored, p->role, to++) * row_bytes;
        HL_TRY(hl_weight_read_row(file->row, p->weight, r));
        cut_columns(file->row, p, config->d_head);
        if (p->added != NULL)
            file->row[0] += p->added[r];
        HL_TRY(hl_quantise(out + place, dtype, file->row, (size_t)p->n_columns));
    }

done:
    return status;
}

/* Several weights of equal width, one after the other, as one tensor. */
typedef struct stack {
    part parts[3];
    int  count;
} stack;

static hl_status add_stack(hl_gguf_export *file, const stack *s, const hl_family_tensor *entry,
                           int64_t layer)
{
    hl_status   status                 = HL_OK;
    const part *first                  = &s->parts[0];
    hl_dtype    dtype                  = dtype_for(file, first->role, first->n_columns);
    char        name[HL_GGUF_MAX_NAME] = "";
    hl_tensor   tensor = { .name = name, .dtype = dtype, .n_dims = first->n_columns > 1 ? 2 : 1 };
    void       *data   = NULL;
    size_t      at     = 0;

    for (int i = 0; i < s->count; i++)
        tensor.shape[0] += s->parts[i].n_rows;
    tensor.shape[1] = first->n_columns;
    HL_TRY(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    HL_TRY(new_block(file, &data, tensor.n_bytes));
    for (int i = 0; i < s->count; i++) {
        HL_TRY(convert_rows((uint8_t *)data + at, file, &s->parts[i], dtype, entry->stored));
        at += tensor.n_bytes / (size_t)tensor.shape[0] * (size_t)s->parts[i].n_rows;
    }
    make_name(name, entry, layer, first->is_bias);
    tensor.data = data;
    hl_gguf_add_tensor(file->writer, &tensor);

done:
    return status;
}

/* An output bias that the model does not have: what removed heads wrote on average. */
static hl_status add_new_bias(hl_gguf_export *file, const hl_family_tensor *entry, int64_t layer,
                              const float *values)
{
    hl_status status                 = HL_OK;
    size_t    count                  = (size_t)file->model->config->d_model;
    char      name[HL_GGUF_MAX_NAME] = "";
    void     *data                   = NULL;

    HL_TRY(new_block(file, &data, count * sizeof *values));
    memcpy(data, values, count * sizeof *values);
    make_name(name, entry, layer, true);
    hl_gguf_add_tensor(file->writer, &(hl_tensor){ .name    = name,
                                                   .dtype   = HL_DTYPE_F32,
                                                   .n_dims  = 1,
                                                   .shape   = { (int64_t)count },
                                                   .data    = data,
                                                   .n_bytes = count * sizeof *values });

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
        weights.parts[i] = describe_part(file, &param->weight, roles[i], layer, false);
        biases.parts[i]  = describe_part(file, &param->bias, roles[i], layer, true);
    }
    if (entry == NULL)
        return hl_fail(HL_UNSUPPORTED, "GGUF has no name for %s", hl_role_name(stored));
    HL_TRY(add_stack(file, &weights, entry, layer));
    if (biases.parts[0].weight->tensor != NULL)
        HL_TRY(add_stack(file, &biases, entry, layer));
    else if (biases.parts[0].added != NULL)
        HL_TRY(add_new_bias(file, entry, layer, biases.parts[0].added));

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

hl_status hl_gguf_export_new(hl_gguf_export **out, const hl_model *model, const hl_head_plan *plan,
                             hl_dtype dtype)
{
    hl_status       status = HL_OK;
    hl_gguf_export *file   = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&file, 1));
    file->model = model;
    file->plan  = plan;
    file->dtype = dtype;
    HL_TRY(hl_gguf_export_check(model->config, dtype));
    HL_TRY(choose_target(file, model->config));
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

const char *hl_gguf_export_architecture(const hl_gguf_export *file)
{
    return file->architecture;
}

hl_gguf_writer *hl_gguf_export_writer(hl_gguf_export *file)
{
    return file->writer;
}

hl_status hl_gguf_export_write(hl_gguf_export *file, const char *path)
{
    return hl_gguf_write(file->writer, path);
}
