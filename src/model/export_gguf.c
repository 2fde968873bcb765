/* export_gguf.c - a model as llama.cpp loads it: which architecture, and its metadata. */
#include "model/export_gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/export_gguf_parts.h"
#include "model/model.h"

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

    if (dtype == HL_GGUF_AS_STORED)
        return HL_OK;
    for (size_t i = 0; i < sizeof possible / sizeof *possible; i++) {
        if (possible[i] == dtype)
            return HL_OK;
    }
    return hl_fail(HL_UNSUPPORTED, "GGUF is written as F32, F16, BF16, Q8_0 or Q4_0, not %s",
                   hl_dtype_name(dtype));
}

hl_status hl_gguf_export_check(const hl_config *config, hl_dtype dtype)
{
    char known[128] = "";

    HL_NEED(check_dtype(dtype));
    list_targets(known, sizeof known);
    if (target_of(config->family) == NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "a model of family %s cannot be written as GGUF here, only: %s",
                       config->family, known);
    return check_config(config);
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

/* llama.cpp's numbers for files of mostly one type. */
static const struct {
    hl_dtype dtype;
    int      number;
} file_types[] = {
    { HL_DTYPE_F32, 0 },      { HL_DTYPE_F16, 1 },     { HL_DTYPE_Q4_0, 2 },
    { HL_DTYPE_Q4_1, 3 },     { HL_DTYPE_Q8_0, 7 },    { HL_DTYPE_Q5_0, 8 },
    { HL_DTYPE_Q5_1, 9 },     { HL_DTYPE_Q2_K, 10 },   { HL_DTYPE_Q3_K, 12 },
    { HL_DTYPE_Q4_K, 15 },    { HL_DTYPE_Q5_K, 17 },   { HL_DTYPE_Q6_K, 18 },
    { HL_DTYPE_IQ2_XXS, 19 }, { HL_DTYPE_IQ2_XS, 20 }, { HL_DTYPE_IQ3_XXS, 23 },
    { HL_DTYPE_IQ1_S, 24 },   { HL_DTYPE_IQ4_NL, 25 }, { HL_DTYPE_IQ3_S, 26 },
    { HL_DTYPE_IQ2_S, 28 },   { HL_DTYPE_IQ4_XS, 30 }, { HL_DTYPE_BF16, 32 },
    { HL_DTYPE_TQ1_0, 36 },   { HL_DTYPE_TQ2_0, 37 },  { HL_DTYPE_MXFP4, 38 },
};

/* What most of the matrices were written as; of equal counts the first type. */
static hl_dtype majority(const hl_gguf_export *file)
{
    hl_dtype most = HL_DTYPE_F32;

    for (hl_dtype dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        if (file->n_of_type[dtype] > file->n_of_type[most])
            most = dtype;
    }
    return most;
}

/* From what was written.  A GGUF file whose types all stayed keeps its own number, which also
 * tells mixtures apart that have the same majority. */
static void add_file_type(hl_gguf_export *file)
{
    const hl_gguf *source = hl_tensors_gguf(file->model->tensors);
    hl_dtype       most   = majority(file);
    int64_t        number = -1;

    for (size_t i = 0; i < sizeof file_types / sizeof *file_types; i++) {
        if (file_types[i].dtype == most)
            number = file_types[i].number;
    }
    if (source != NULL && file->dtype == HL_GGUF_AS_STORED && file->n_notes == 0) {
        int64_t own = -1;
        if (hl_gguf_get_int(&own, source, "general.file_type") == HL_OK && own >= 0)
            number = own;
    }
    if (number >= 0)
        hl_gguf_add_int(file->writer, "general.file_type", HL_GGUF_U32, number);
}

static void add_metadata(hl_gguf_export *file)
{
    const hl_config *config = file->model->config;
    bool             rms    = config->norm == HL_NORM_RMS;

    hl_gguf_add_text(file->writer, "general.architecture", file->architecture);
    add_file_type(file);
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
    for (int64_t layer = -1; layer < model->config->n_layers; layer++)
        HL_TRY(hl_gguf_export_tensors(file, layer));
    add_metadata(file); /* which says what the tensors are */
    if (model->config->position == HL_POSITION_ROPE)
        HL_TRY(hl_gguf_export_rope_factors(file));
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
    for (int64_t i = 0; i < file->n_notes; i++)
        hl_free(file->notes[i].name);
    hl_free(file->notes);
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

void hl_gguf_export_report(hl_prune_report *report, hl_gguf_export *file)
{
    report->file_type = majority(file);
    report->tensors   = file->notes;
    report->n_tensors = file->n_notes;
    file->notes       = NULL;
    file->n_notes     = 0;
}
