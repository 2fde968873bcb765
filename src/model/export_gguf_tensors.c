/* export_gguf_tensors.c - a model's tensors, under llama.cpp's names and in its layouts.
 *
 * Both come from the tables that reading uses (family.h): the spelling before the first
 * '|', and rotary pairs side by side where a family's GGUF table says so.  Weights are read
 * row by row as the forward pass sees them, so all that the source did to them is undone
 * first.  Some architectures want q, k and v in one tensor, one after the other. */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/quant.h"
#include "model/export_gguf_parts.h"
#include "model/model.h"
#include "model/rope.h"

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

hl_status hl_gguf_export_tensors(hl_gguf_export *file, int64_t layer)
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
hl_status hl_gguf_export_rope_factors(hl_gguf_export *file)
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
