/* export_gguf.c - writes a model for llama.cpp: the architecture, its tensors, its metadata.
 *
 * Names and layouts of tensors come from the tables for reading (family.h): the spelling before the
 * first '|', and rotary pairs side by side if a family's GGUF table says so.  Weights are read row
 * by row as the forward pass sees them, so the layout of the source is undone first.  Some
 * architectures want q, k and v in one tensor, one after the other.
 *
 * A row that keeps its type is copied as it is stored, block by block: nothing is rounded twice.
 * Removing a head removes rows of q, k and v, which never splits a block, and columns of the output
 * projection, which splits blocks if a head is narrower than a block:
 *
 *     blocks of 32, heads of 64      | 0  0 | 1  1 | 2  2 |    any head can be removed
 *     blocks of 256, heads of 64     | 0 1 2 3 | 4 5 6 7 |     only all four of a block
 *
 * A matrix that cannot keep its type becomes Q8_0, or F16 if rows are not a multiple of 32 values,
 * and is noted with the reason. */
#include "model/export_gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/quant.h"
#include "model/config.h"
#include "model/family.h"
#include "model/model.h"

struct hl_gguf_export {
    const hl_model     *model;
    const hl_head_plan *plan;   /* NULL: all heads stay */
    const hl_family    *family; /* the family whose names are used */
    const char         *architecture;
    bool                fused_qkv;
    hl_dtype            dtype;                     /* dtype of matrices, or HL_GGUF_AS_STORED */
    int64_t             n_of_type[HL_DTYPE_COUNT]; /* number of matrices written in each type */
    hl_prune_tensor    *notes;                     /* matrices of another type or size */
    int64_t             n_notes;
    hl_gguf_writer     *writer;
    void              **blocks; /* converted tensors, until the file is written */
    size_t              n_blocks;
    size_t              max_blocks;
    float              *row; /* room for the longest row */
};

/* --------------------------------------------------------------------------------- architectures */

/* Families whose exported files were read back and gave the same logits. */
typedef struct target {
    const char      *family;
    const char      *architecture;
    const hl_family *names;
    bool             fused_qkv;
    bool             any_count; /* heads need not cover the width */
    bool             is_deci;   /* deci computes the same graph */
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

/* The heads of layer `layer` that remain, with a plan or without one. */
static hl_layer_plan layer_left(const hl_config *config, const hl_head_plan *plan, int64_t layer)
{
    if (plan != NULL)
        return plan->layers[layer];
    return (hl_layer_plan){ .n_heads    = config->layers[layer].n_heads,
                            .n_kv_heads = config->layers[layer].n_kv_heads };
}

/* Whether all layers have the same number of heads, which cover the width if `covering`. */
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

/* Whether deci fits: it rotates whole heads, in all layers. */
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

/* Lists the families, for messages. */
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
                       "no architecture of llama.cpp loads a %s with these numbers of heads",
                       config->family);
    file->family       = own->names;
    file->architecture = own->architecture;
    file->fused_qkv    = own->fused_qkv;
    return HL_OK;
}

/* Refuses settings that have no key in the metadata. */
static hl_status check_config(const hl_config *config)
{
    hl_rope_kind kind = config->ropes[HL_ROPE_MAIN].kind;

    for (int64_t i = 0; i < config->n_layers; i++) {
        const hl_layer_config *layer = &config->layers[i];
        double                 scale = 1.0 / sqrt((double)config->d_head);

        if (layer->n_heads > 0 && (layer->d_head != config->d_head || layer->kv_layer != i))
            return hl_fail(HL_UNSUPPORTED,
                           "layer %lld has heads of another width than others, or uses the keys of "
                           "another layer, which this GGUF architecture has no key for",
                           (long long)i);
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

/* ----------------------------------------------------------------------------------------- names */

static const hl_family_tensor *find_in(const hl_family_tensor *table, hl_role role)
{
    for (; table != NULL && table->name != NULL; table++) {
        if (table->role == role)
            return table;
    }
    return NULL;
}

/* The entry of the family's own table, or else of the usual one. */
static const hl_family_tensor *entry_of(const hl_gguf_export *file, hl_role role)
{
    const hl_family_tensor *entry = NULL;

    for (int i = 0; i < HL_MAX_TABLES && entry == NULL; i++)
        entry = find_in(file->family->gguf[i], role);
    return entry != NULL ? entry : find_in(hl_gguf_tensors, role);
}

/* The first spelling of a name, with the layer in place of '*'. */
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

/* --------------------------------------------------------------------------------------- tensors */

/* Allocates memory that lives until the file is freed. */
static hl_status new_block(hl_gguf_export *file, void **out, size_t n_bytes)
{
    uint8_t *block = NULL;

    HL_NEED(HL_GROW(&file->blocks, &file->max_blocks, file->n_blocks, 1));
    HL_NEED(HL_ALLOC(&block, n_bytes));
    file->blocks[file->n_blocks++] = block;
    *out                           = block;
    return HL_OK;
}

/* The stored index of row r within a head: rotary pairs (i, d/2 + i) become (2i, 2i+1). */
static int64_t stored_row(const hl_config *config, uint32_t stored, hl_role role, int64_t r)
{
    bool    turns = role == HL_ROLE_ATTN_Q || role == HL_ROLE_ATTN_K;
    int64_t half  = config->d_head / 2;
    int64_t i     = r % config->d_head;

    if ((stored & HL_STORED_PAIRED) == 0 || !turns)
        return r;
    return r - i + i % half * 2 + i / half;
}

/* A weight or bias in the source, and what is written of it. */
typedef struct part {
    const hl_weight *weight;
    hl_role          role;
    bool             is_bias;
    const uint8_t   *row_fates;  /* fates of the heads that rows belong to; NULL: all are kept */
    const uint8_t *column_fates; /* fates of the heads that columns belong to; NULL: all are kept */
    const float   *added;        /* values added to a bias, or NULL */
    const float   *values;       /* (n_rows, n_columns of the weight) instead of it, or NULL */
    hl_dtype       dtype;        /* type of `values` where types stay as they are stored */
    int64_t        n_rows;       /* number of rows that are written */
    int64_t        n_columns;
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
        p.values       = plan->output;
        p.dtype        = plan->output_dtype;
    } else if (role == HL_ROLE_ATTN_O) {
        p.added  = plan->bias;
        p.values = plan->output_bias;
        p.dtype  = HL_DTYPE_F32;
    }
    return p;
}

/* Several weights of equal width that are written one after the other, as one tensor. */
typedef struct stack {
    part parts[3];
    int  count;
} stack;

/* ----------------------------------------------------------------------------------------- types */

/* How a tensor is written. */
typedef struct writing {
    hl_dtype wanted;
    hl_dtype dtype;
    bool     copies;  /* rows are copied as they are stored */
    char     why[96]; /* the reason if dtype is not the wanted one; else "" */
} writing;

/* Whether a block of zero bytes decodes to zeros. */
static bool has_zero_block(hl_dtype dtype)
{
    enum { MOST_VALUES = 256, MOST_BYTES = MOST_VALUES * 8 };
    static const uint8_t zeros[MOST_BYTES];
    hl_dtype_block       block = hl_dtype_block_of(dtype);
    float                values[MOST_VALUES];

    if (block.n_values > MOST_VALUES || block.n_bytes > MOST_BYTES ||
        hl_dequantize(values, dtype, zeros, block.n_values) != HL_OK)
        return false;
    for (size_t i = 0; i < block.n_values; i++) {
        if (values[i] != 0.0f)
            return false;
    }
    return true;
}

/* Whether all heads of every block in a row have the same fate. */
static bool cuts_between_blocks(const part *p, int64_t d_head)
{
    int64_t n_values = (int64_t)hl_dtype_block_of(p->weight->dtype).n_values;
    bool    zeroes   = false;

    for (int64_t c = 0; p->column_fates != NULL && c < p->weight->n_columns; c++) {
        if (p->column_fates[c / d_head] != p->column_fates[(c - c % n_values) / d_head])
            return false;
        zeroes = zeroes || p->column_fates[c / d_head] == HL_HEAD_ZEROED;
    }
    return !zeroes || has_zero_block(p->weight->dtype);
}

static bool can_copy(const stack *s, hl_dtype dtype, int64_t d_head)
{
    for (int i = 0; i < s->count; i++) {
        const part      *p = &s->parts[i];
        const hl_weight *w = p->weight;

        if (w->dtype != dtype || w->transposed || w->scales != NULL || w->plus_one ||
            p->added != NULL || p->values != NULL || !cuts_between_blocks(p, d_head))
            return false;
    }
    return true;
}

/* The common stored type of all parts if GGUF has it; else F32. */
static hl_dtype stored_dtype(const stack *s)
{
    hl_dtype dtype = s->parts[0].weight->dtype;

    for (int i = 1; i < s->count; i++) {
        if (s->parts[i].weight->dtype != dtype)
            return HL_DTYPE_F32;
    }
    if (dtype == HL_DTYPE_F16 || dtype == HL_DTYPE_BF16 || hl_dtype_is_block(dtype))
        return dtype;
    return HL_DTYPE_F32;
}

static bool is_multiple(int64_t n_columns, hl_dtype dtype)
{
    return n_columns % (int64_t)hl_dtype_block_of(dtype).n_values == 0;
}

/* llama.cpp stores vectors and position tables in F32; another type in a GGUF source is kept. */
static bool is_always_f32(const hl_gguf_export *file, const part *p)
{
    if (file->dtype == HL_GGUF_AS_STORED && hl_tensors_gguf(file->model->tensors) != NULL)
        return false;
    return hl_role_is_vector(p->role) || p->n_columns == 1 || p->role == HL_ROLE_POSITION;
}

static writing choose_writing(const hl_gguf_export *file, const stack *s)
{
    const part    *first  = &s->parts[0];
    hl_dtype       wanted = file->dtype == HL_GGUF_AS_STORED ? stored_dtype(s) : file->dtype;
    hl_dtype_block block  = hl_dtype_block_of(wanted);
    writing        w      = { .wanted = wanted, .dtype = wanted };
    bool           splits = false;

    if (is_always_f32(file, first)) {
        w.dtype = HL_DTYPE_F32;
        if (w.wanted != w.dtype)
            snprintf(w.why, sizeof w.why, "llama.cpp adds it in F32");
        return w;
    }
    if (first->values != NULL && file->dtype == HL_GGUF_AS_STORED &&
        is_multiple(first->n_columns, first->dtype)) {
        w.dtype = first->dtype;
        if (w.wanted != w.dtype)
            snprintf(w.why, sizeof w.why,
                     wanted == HL_DTYPE_Q8_0 || wanted == HL_DTYPE_Q4_0 ||
                             !hl_dtype_is_block(wanted)
                         ? "it was repaired, and %s would lose too much of that"
                         : "it was repaired, and values cannot be turned into %s here",
                     hl_dtype_name(wanted));
        return w;
    }
    w.copies = can_copy(s, wanted, file->model->config->d_head);
    if (w.copies || !hl_dtype_is_block(wanted))
        return w;
    if (!is_multiple(first->n_columns, wanted))
        snprintf(w.why, sizeof w.why, "rows of %lld values are not a multiple of its blocks of %zu",
                 (long long)first->n_columns, block.n_values);
    else
        splits = file->dtype == HL_GGUF_AS_STORED;
    if (splits)
        snprintf(w.why, sizeof w.why, "heads are removed from inside its blocks of %zu values",
                 block.n_values);
    if (w.why[0] != '\0')
        w.dtype = is_multiple(first->n_columns, HL_DTYPE_Q8_0) ? HL_DTYPE_Q8_0 : HL_DTYPE_F16;
    if (w.dtype == w.wanted) /* values that were Q8_0 stay Q8_0 */
        w.why[0] = '\0';
    return w;
}

/* ------------------------------------------------------------------------------------------ rows */

/* Removes the columns of removed heads, and sets those of zeroed heads to 0. */
static void cut_columns(float *row, const part *p, int64_t d_head)
{
    int64_t to = 0;

    for (int64_t c = 0; p->column_fates != NULL && c < p->weight->n_columns; c++) {
        uint8_t fate = p->column_fates[c / d_head];
        if (fate != HL_HEAD_GONE)
            row[to++] = fate == HL_HEAD_ZEROED ? 0.0f : row[c];
    }
}

/* Copies a stored row without the blocks of removed heads, and with zeros for zeroed heads. */
static void copy_row(uint8_t *out, const part *p, int64_t row, int64_t d_head)
{
    hl_dtype_block block     = hl_dtype_block_of(p->weight->dtype);
    int64_t        n_blocks  = p->weight->n_columns / (int64_t)block.n_values;
    size_t         row_bytes = (size_t)n_blocks * block.n_bytes;
    const uint8_t *from =
        (const uint8_t *)p->weight->data + (size_t)hl_weight_row(p->weight, row) * row_bytes;

    if (p->column_fates == NULL) {
        memcpy(out, from, row_bytes);
        return;
    }
    for (int64_t i = 0; i < n_blocks; i++, from += block.n_bytes) {
        uint8_t fate = p->column_fates[i * (int64_t)block.n_values / d_head];

        if (fate == HL_HEAD_GONE)
            continue;
        if (fate == HL_HEAD_ZEROED)
            memset(out, 0, block.n_bytes);
        else
            memcpy(out, from, block.n_bytes);
        out += block.n_bytes;
    }
}

/* Writes the remaining rows of a part; `out` is the address of its row 0. */
static hl_status convert_rows(uint8_t *out, hl_gguf_export *file, const part *p, const writing *w,
                              uint32_t stored)
{
    const hl_config *config    = file->model->config;
    hl_dtype_block   block     = hl_dtype_block_of(w->dtype);
    size_t           row_bytes = (size_t)p->n_columns / block.n_values * block.n_bytes;
    int64_t          to        = 0;

    for (int64_t r = 0; r < p->weight->n_rows; r++) {
        if (p->row_fates != NULL && p->row_fates[r / config->d_head] == HL_HEAD_GONE)
            continue;
        size_t place = (size_t)stored_row(config, stored, p->role, to++) * row_bytes;
        if (w->copies) {
            copy_row(out + place, p, r, config->d_head);
            continue;
        }
        if (p->values != NULL)
            memcpy(file->row, p->values + r * p->weight->n_columns,
                   (size_t)p->weight->n_columns * sizeof *file->row);
        else
            HL_NEED(hl_weight_read_row(file->row, p->weight, r));
        cut_columns(file->row, p, config->d_head);
        if (p->added != NULL)
            file->row[0] += p->added[r];
        HL_NEED(hl_quantize(out + place, w->dtype, file->row, (size_t)p->n_columns));
    }
    return HL_OK;
}

static size_t stored_bytes(const stack *s)
{
    size_t n_bytes = 0;

    for (int i = 0; i < s->count; i++) {
        const hl_weight *w     = s->parts[i].weight;
        hl_dtype_block   block = hl_dtype_block_of(w->dtype);
        n_bytes += (size_t)(w->n_rows * w->n_columns) / block.n_values * block.n_bytes;
    }
    return n_bytes;
}

/* Counts the types of matrices, and notes one that has another type or has grown. */
static hl_status note_tensor(hl_gguf_export *file, const stack *s, const writing *w,
                             const hl_tensor *tensor)
{
    size_t before = stored_bytes(s);

    if (tensor->n_dims < 2)
        return HL_OK;
    file->n_of_type[w->dtype]++;
    if (w->why[0] == '\0' && tensor->n_bytes <= before)
        return HL_OK;
    HL_NEED(HL_GROW_ONE(&file->notes, file->n_notes));
    hl_prune_tensor *note = &file->notes[file->n_notes];
    *note                 = (hl_prune_tensor){ .stored        = s->parts[0].weight->dtype,
                                               .wanted        = w->wanted,
                                               .written       = w->dtype,
                                               .stored_bytes  = before,
                                               .written_bytes = tensor->n_bytes };
    memcpy(note->why, w->why, sizeof note->why);
    HL_NEED(hl_strdup(&note->name, tensor->name));
    file->n_notes++;
    return HL_OK;
}

static hl_status add_stack(hl_gguf_export *file, const stack *s, const hl_family_tensor *entry,
                           int64_t layer)
{
    const part *first                  = &s->parts[0];
    writing     w                      = choose_writing(file, s);
    char        name[HL_GGUF_MAX_NAME] = "";
    hl_tensor   tensor = { .name = name, .dtype = w.dtype, .n_dims = first->n_columns > 1 ? 2 : 1 };
    void       *data   = NULL;
    size_t      at     = 0;

    for (int i = 0; i < s->count; i++)
        tensor.shape[0] += s->parts[i].n_rows;
    tensor.shape[1] = first->n_columns;
    HL_NEED(hl_tensor_bytes(&tensor.n_bytes, &tensor));
    HL_NEED(new_block(file, &data, tensor.n_bytes));
    for (int i = 0; i < s->count; i++) {
        HL_NEED(convert_rows((uint8_t *)data + at, file, &s->parts[i], &w, entry->stored));
        at += tensor.n_bytes / (size_t)tensor.shape[0] * (size_t)s->parts[i].n_rows;
    }
    make_name(name, entry, layer, first->is_bias);
    tensor.data = data;
    hl_gguf_add_tensor(file->writer, &tensor);
    return note_tensor(file, s, &w, &tensor);
}

/* Adds an output bias that the model does not have: the mean output of removed heads. */
static hl_status add_new_bias(hl_gguf_export *file, const hl_family_tensor *entry, int64_t layer,
                              const float *values)
{
    size_t count                  = (size_t)file->model->config->d_model;
    char   name[HL_GGUF_MAX_NAME] = "";
    void  *data                   = NULL;

    HL_NEED(new_block(file, &data, count * sizeof *values));
    memcpy(data, values, count * sizeof *values);
    make_name(name, entry, layer, true);
    hl_gguf_add_tensor(file->writer, &(hl_tensor){ .name    = name,
                                                   .dtype   = HL_DTYPE_F32,
                                                   .n_dims  = 1,
                                                   .shape   = { (int64_t)count },
                                                   .data    = data,
                                                   .n_bytes = count * sizeof *values });
    return HL_OK;
}

/* Adds a role's weight and, if there is one, its bias. */
static hl_status add_roles(hl_gguf_export *file, const hl_role *roles, int count, hl_role stored,
                           int64_t layer)
{
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
    HL_NEED(add_stack(file, &weights, entry, layer));
    if (biases.parts[0].weight->tensor != NULL)
        HL_NEED(add_stack(file, &biases, entry, layer));
    else if (biases.parts[0].added != NULL)
        HL_NEED(add_new_bias(file, entry, layer, biases.parts[0].added));
    return HL_OK;
}

/* Adds all tensors of a layer (-1: of the model) to the writer. */
static hl_status add_tensors(hl_gguf_export *file, int64_t layer)
{
    static const hl_role qkv[] = { HL_ROLE_ATTN_Q, HL_ROLE_ATTN_K, HL_ROLE_ATTN_V };

    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        bool is_tied_head = role == HL_ROLE_LM_HEAD && file->model->config->tied;
        bool is_with_q    = file->fused_qkv && (role == HL_ROLE_ATTN_K || role == HL_ROLE_ATTN_V);

        if (hl_role_is_of_layer(role) != (layer >= 0) || is_tied_head || is_with_q)
            continue;
        if (file->fused_qkv && role == HL_ROLE_ATTN_Q)
            HL_NEED(add_roles(file, qkv, 3, HL_ROLE_ATTN_QKV, layer));
        else
            HL_NEED(add_roles(file, &role, 1, role, layer));
    }
    return HL_OK;
}

/* llama3's rule is stored as the divisors of the frequencies. */
static hl_status add_rope_factors(hl_gguf_export *file)
{
    const hl_rope *rope  = &file->model->config->ropes[HL_ROPE_MAIN];
    hl_rope        plain = *rope;
    size_t         count = (size_t)rope->n_dims / 2;
    float          frequencies[HL_MAX_ROPE_PAIRS];
    void          *data = NULL;

    if (rope->kind != HL_ROPE_LLAMA3 && rope->kind != HL_ROPE_FACTORS)
        return HL_OK;
    const hl_tensor *own = hl_tensors_find(file->model->tensors, "rope_freqs.weight");
    if (own != NULL && hl_tensors_gguf(file->model->tensors) != NULL) {
        hl_gguf_add_tensor(file->writer, own); /* the stored tensor is copied: computing it again
                                                * would round twice */
        return HL_OK;
    }
    plain.kind = HL_ROPE_DEFAULT;
    HL_NEED(new_block(file, &data, count * sizeof(float)));
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
    return HL_OK;
}

/* -------------------------------------------------------------------------------------- metadata */

/* Writes "ARCHITECTURE.name" to the caller's buffer. */
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

/* Adds a number per layer: a single number if all layers agree, else a list. */
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

/* Adds the values that may differ between layers. */
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

/* llama.cpp's numbers for files that are mostly of one type. */
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

/* The type of most matrices; among equal counts the first type. */
static hl_dtype majority(const hl_gguf_export *file)
{
    hl_dtype most = HL_DTYPE_F32;

    for (hl_dtype dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        if (file->n_of_type[dtype] > file->n_of_type[most])
            most = dtype;
    }
    return most;
}

/* Adds the file type, from the types that were written.  A GGUF file whose types are all kept keeps
 * its own number, because it also distinguishes mixtures with the same majority. */
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

/* ------------------------------------------------------------------------------------- the whole */

/* The length of the widest row of any weight. */
static int64_t longest_row(const hl_config *config)
{
    int64_t widest = config->n_heads * config->d_head;

    widest = config->d_model > widest ? config->d_model : widest;
    return config->d_mlp > widest ? config->d_mlp : widest;
}

hl_status hl_gguf_export_new(hl_gguf_export **out, const hl_model *model, const hl_head_plan *plan,
                             hl_dtype dtype)
{
    HL_CLOSED(hl_gguf_export_free) hl_gguf_export *file = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&file, 1));
    file->model = model;
    file->plan  = plan;
    file->dtype = dtype;
    HL_NEED(hl_gguf_export_check(model->config, dtype));
    HL_NEED(choose_target(file, model->config));
    HL_NEED(hl_gguf_writer_new(&file->writer));
    HL_NEED(HL_ALLOC(&file->row, (size_t)longest_row(model->config)));
    for (int64_t layer = -1; layer < model->config->n_layers; layer++)
        HL_NEED(add_tensors(file, layer));
    add_metadata(file); /* depends on the types of the tensors */
    if (model->config->position == HL_POSITION_ROPE)
        HL_NEED(add_rope_factors(file));
    *out = hl_taken(&file);
    return HL_OK;
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
