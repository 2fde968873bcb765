/* export_gguf_tensors.c - a model's tensors, under llama.cpp's names and in its layouts.
 *
 * Both come from the tables that reading uses (family.h): the spelling before the first
 * '|', and rotary pairs side by side where a family's GGUF table says so.  Weights are read
 * row by row as the forward pass sees them, so all that the source did to them is undone
 * first.  Some architectures want q, k and v in one tensor, one after the other.
 *
 * A row that keeps its type is copied as it is stored, block by block: nothing is rounded
 * twice.  Heads that leave take rows of q, k and v along, which never splits a block, and
 * columns of the output projection, which does where a head is narrower than a block:
 *
 *     blocks of 32, heads of 64      | 0  0 | 1  1 | 2  2 |    any head can leave
 *     blocks of 256, heads of 64     | 0 1 2 3 | 4 5 6 7 |     only all four of a block
 *
 * A matrix that cannot keep its type becomes Q8_0, or F16 where rows are no multiple of 32
 * values, and is noted with the reason. */
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
    uint8_t *block = NULL;

    if (file->n_blocks == file->max_blocks) {
        size_t more = 2 * file->max_blocks + 64;
        HL_NEED(hl_realloc((void **)&file->blocks, file->max_blocks, more, sizeof *file->blocks));
        file->max_blocks = more;
    }
    HL_NEED(HL_ALLOC(&block, n_bytes));
    file->blocks[file->n_blocks++] = block;
    *out                           = block;
    return HL_OK;
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

/* Several weights of equal width, one after the other, as one tensor. */
typedef struct stack {
    part parts[3];
    int  count;
} stack;

/* ----------------------------------------------------------------------- types */

/* How a tensor is written. */
typedef struct writing {
    hl_dtype wanted;
    hl_dtype dtype;
    bool     copies;  /* rows are copied as they are stored */
    char     why[96]; /* dtype is not the wanted one; else "" */
} writing;

/* Is a block of zero bytes a block of zeros? */
static bool has_zero_block(hl_dtype dtype)
{
    enum { MOST_VALUES = 256, MOST_BYTES = MOST_VALUES * 8 };
    static const uint8_t zeros[MOST_BYTES];
    hl_dtype_block       block = hl_dtype_block_of(dtype);
    float                values[MOST_VALUES];

    if (block.n_values > MOST_VALUES || block.n_bytes > MOST_BYTES ||
        hl_dequantise(values, dtype, zeros, block.n_values) != HL_OK)
        return false;
    for (size_t i = 0; i < block.n_values; i++) {
        if (values[i] != 0.0f)
            return false;
    }
    return true;
}

/* Does every block of a row belong to heads of one fate? */
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
            p->added != NULL || !cuts_between_blocks(p, d_head))
            return false;
    }
    return true;
}

/* What all parts are stored as, where a GGUF file can have that; else F32. */
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

/* llama.cpp adds vectors and position tables in F32; a GGUF file that has them in another type
 * keeps that. */
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
    if (w.dtype == w.wanted) /* Q8_0 once more: the type stays */
        w.why[0] = '\0';
    return w;
}

/* ------------------------------------------------------------------------ rows */

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

/* A stored row without the blocks of heads that are gone, and with zeros for those that are
 * zeroed. */
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

/* The rows that are written, to `out`, row 0 of the part there. */
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
        HL_NEED(hl_weight_read_row(file->row, p->weight, r));
        cut_columns(file->row, p, config->d_head);
        if (p->added != NULL)
            file->row[0] += p->added[r];
        HL_NEED(hl_quantise(out + place, w->dtype, file->row, (size_t)p->n_columns));
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

/* Counts the types of matrices, and notes one that is not of its type or has grown. */
static hl_status note_tensor(hl_gguf_export *file, const stack *s, const writing *w,
                             const hl_tensor *tensor)
{
    size_t before = stored_bytes(s);

    if (tensor->n_dims < 2)
        return HL_OK;
    file->n_of_type[w->dtype]++;
    if (w->why[0] == '\0' && tensor->n_bytes <= before)
        return HL_OK;
    HL_NEED(
        hl_realloc((void **)&file->notes, file->n_notes, file->n_notes + 1, sizeof *file->notes));
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

/* An output bias that the model does not have: what removed heads wrote on average. */
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

/* A role's weight and, where there is one, its bias. */
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
    const hl_rope *rope  = &file->model->config->ropes[HL_ROPE_MAIN];
    hl_rope        plain = *rope;
    size_t         count = (size_t)rope->n_dims / 2;
    float          frequencies[HL_MAX_ROPE_PAIRS];
    void          *data = NULL;

    if (rope->kind != HL_ROPE_LLAMA3 && rope->kind != HL_ROPE_FACTORS)
        return HL_OK;
    const hl_tensor *own = hl_tensors_find(file->model->tensors, "rope_freqs.weight");
    if (own != NULL && hl_tensors_gguf(file->model->tensors) != NULL) {
        hl_gguf_add_tensor(file->writer, own); /* dividing again would round again */
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
