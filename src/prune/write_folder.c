/* write_folder.c - a Hugging Face folder without some heads, and a GGUF file in which they are zeroed.
 *
 * A GGUF file is copied: all metadata and tensors are the model's own but for output projections, so that
 * whatever opens the original opens the copy.
 *
 * A folder has
 *
 *     model.safetensors    all weights in one file, also if they were in shards
 *     config.json          unchanged, or with fewer heads (compact.h), more biases, or the
 *                          key n_ctx that llama.cpp's converter needs for a GPT-2
 *     modeling_*.py        code that loads the result, if transformers' own does not
 *     the rest             copied: tokenizer, generation_config.json, templates, cards
 *
 * Other weights in the folder (shards, indexes, other formats) are those of the unchanged model and
 * are not copied; neither are folders. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "kernels/quant.h"
#include "prune/compact.h"
#include "prune/means.h"
#include "prune/write.h"

#define PRUNED_HEADS "headlight.pruned_heads"

static const char *const loads_of[] = {
    [HL_COMPACT_PLAIN] = "transformers, as it is",
    [HL_COMPACT_CODE]  = "transformers with trust_remote_code=True",
    [HL_COMPACT_OURS]  = "headlight alone",
};

/* --------------------------------------------------------------------- slices */

/* Slices translate fates of heads to rows and columns of stored tensors.  The role of a weight says
 * what belongs to a head: rows of q, k and v, columns of the output projection, an entry of the sinks,
 * a norm of its own.  hl_weight says where that lies in the file (fused or not, interleaved by head or
 * not, transposed or not).  So a slice is made in two steps, and neither depends on the family:
 *
 *     marks   a fate for every index of the tensor's axis along which heads lie
 *     cut     the tensor without removed parts, and with zeros for zeroed ones
 *
 * One tensor may get marks from several roles, such as q, k and v.  Tensors without marks are the
 * model's own, byte for byte.  The others are copies, which need memory: the output projections and,
 * where heads are removed, q, k and v. */

/* One tensor that changes. */
typedef struct slice {
    const hl_tensor *tensor; /* the model's tensor */
    hl_tensor        cut;    /* the tensor to be written; owns data and name */
    int              axis;   /* axis along which heads lie */
    uint8_t         *fates;  /* (shape[axis]) */
    const float     *added;  /* (shape[0]) values to add to a bias, or NULL */
    const float *values; /* values that replace the stored ones, laid out as `weight`, or NULL */
    const hl_weight *weight;
    hl_dtype         dtype; /* type in which `values` are written */
    bool             gone;  /* the whole tensor is left out */
    char            *name;
} slice;

typedef struct slice_list {
    const hl_model     *model;
    const hl_head_plan *plan;
    slice              *slices;
    size_t              n_slices;
    size_t              capacity;
    const hl_tensor   **tensors; /* tensors to be written, in the model's order */
    size_t              n_tensors;
} slice_list;

/* ---------------------------------------------------------------- slices: marks */

/* Finds the slice of a tensor, or adds one without marks. */
static hl_status slice_of(slice **out, slice_list *slices, const hl_tensor *tensor, int axis)
{
    for (size_t i = slices->n_slices; i-- > 0;) {
        *out = &slices->slices[i];
        if (slices->slices[i].tensor == tensor)
            return HL_OK;
    }
    if (tensor->n_dims <= axis || tensor->n_dims > 2)
        return hl_fail(
            HL_UNSUPPORTED,
            "tensor '%s' has %d dimensions, wanted 1 or 2: heads cannot be removed from it",
            tensor->name, tensor->n_dims);
    if (hl_dtype_is_block(tensor->dtype) &&
        hl_head_plan_is_compact(slices->plan, slices->model->config))
        return hl_fail(HL_UNSUPPORTED, "tensor '%s' is stored as %s, whose blocks span heads",
                       tensor->name, hl_dtype_name(tensor->dtype));
    HL_NEED(HL_GROW(&slices->slices, &slices->capacity, slices->n_slices, 1));
    *out  = &slices->slices[slices->n_slices];
    **out = (slice){ .tensor = tensor, .axis = axis };
    slices->n_slices++;
    return HL_ALLOC_ZEROED(&(*out)->fates, (size_t)tensor->shape[axis]);
}

/* Rows of a weight (or a bias) that belong to heads, `n_each` rows per head. */
static hl_status mark_rows(slice_list *slices, const hl_weight *weight, const uint8_t *fates,
                           int64_t n_each)
{
    slice *s = NULL;

    if (weight->tensor == NULL)
        return HL_OK;
    HL_NEED(slice_of(&s, slices, weight->tensor, weight->transposed ? 1 : 0));
    for (int64_t r = 0; r < weight->n_rows; r++) {
        if (fates[r / n_each] == HL_HEAD_GONE)
            s->fates[hl_weight_row(weight, r)] = HL_HEAD_GONE;
    }
    return HL_OK;
}

/* Columns of the output projection, which is never fused with another. */
static hl_status mark_output(slice_list *slices, const hl_weight *weight, const uint8_t *fates,
                             int64_t d_head)
{
    slice *s = NULL;

    HL_NEED(slice_of(&s, slices, weight->tensor, weight->transposed ? 0 : 1));
    for (int64_t c = 0; c < weight->n_columns; c++)
        s->fates[c] = fates[c / d_head];
    return HL_OK;
}

/* Replaces the values of a weight that is a tensor of its own. */
static hl_status put_values(slice_list *slices, const hl_weight *weight, const float *values,
                            hl_dtype dtype)
{
    slice *s = NULL;

    HL_NEED(slice_of(&s, slices, weight->tensor, 0));
    s->values = values;
    s->weight = weight;
    s->dtype  = dtype;
    return HL_OK;
}

/* Marks norms of single heads: rows of one tensor, or one tensor per head, which are renumbered. */
static hl_status mark_norms(slice_list *slices, hl_role role, int64_t layer, const uint8_t *fates)
{
    const hl_config *config = slices->model->config;
    int64_t          n      = hl_role_parts(role, config, layer);
    int64_t          kept   = 0;

    for (int64_t part = 0; part < n; part++) {
        const hl_param *param = hl_weights_get(slices->model->weights, role, layer, part);
        slice          *s     = NULL;

        if (param == NULL)
            return HL_OK;
        HL_NEED(slice_of(&s, slices, param->weight.tensor, 0));
        if (param->weight.tensor->n_dims == 2) {
            s->fates[part] = fates[part] == HL_HEAD_GONE ? HL_HEAD_GONE : HL_HEAD_KEPT;
            continue;
        }
        /* "...norms.7.weight" becomes "...norms.5.weight" where two before it are removed. */
        const char *name = param->weight.tensor->name;
        const char *end  = strrchr(name, '.');
        int         stem = (int)(end - name);
        size_t      room = strlen(name) + 24;

        s->gone = fates[part] == HL_HEAD_GONE;
        if (s->gone)
            continue;
        while (stem > 0 && name[stem - 1] != '.')
            stem--;
        HL_NEED(HL_ALLOC(&s->name, room));
        snprintf(s->name, room, "%.*s%lld%s", stem, name, (long long)kept++, end);
    }
    return HL_OK;
}

/* Marks everything of a removed layer. */
static hl_status mark_gone(slice_list *slices, int64_t layer)
{
    const hl_weights    *weights = slices->model->weights;
    int64_t              d_head  = slices->model->config->layers[layer].d_head;
    const hl_layer_plan *plan    = &slices->plan->layers[layer];
    const struct {
        hl_role        role;
        const uint8_t *fates;
        int64_t        n_each;
    } parts[] = {
        { HL_ROLE_ATTN_Q, plan->heads, d_head }, { HL_ROLE_ATTN_K, plan->kv, d_head },
        { HL_ROLE_ATTN_V, plan->kv, d_head },    { HL_ROLE_ATTN_GATE, plan->heads, d_head },
        { HL_ROLE_SINKS, plan->heads, 1 },
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const hl_param *param = hl_weights_get(weights, parts[i].role, layer, 0);
        if (param == NULL)
            continue;
        HL_NEED(mark_rows(slices, &param->weight, parts[i].fates, parts[i].n_each));
        HL_NEED(mark_rows(slices, &param->bias, parts[i].fates, parts[i].n_each));
    }
    if (slices->model->config->qk_norm == HL_HEAD_NORM_EACH) {
        HL_NEED(mark_norms(slices, HL_ROLE_Q_NORM, layer, plan->heads));
        HL_NEED(mark_norms(slices, HL_ROLE_K_NORM, layer, plan->kv));
    }
    return HL_OK;
}

static bool has_fate(const uint8_t *fates, int64_t n, hl_head_fate wanted)
{
    for (int64_t i = 0; i < n; i++) {
        if (fates[i] == wanted)
            return true;
    }
    return false;
}

static hl_status mark_layer(slice_list *slices, int64_t layer)
{
    const hl_config     *config  = slices->model->config;
    const hl_layer_plan *plan    = &slices->plan->layers[layer];
    const hl_param      *output  = hl_weights_get(slices->model->weights, HL_ROLE_ATTN_O, layer, 0);
    int64_t              n_heads = config->layers[layer].n_heads;
    bool                 gone    = has_fate(plan->heads, n_heads, HL_HEAD_GONE);
    slice               *bias    = NULL;

    if (output == NULL)
        return HL_OK;
    if (gone)
        HL_NEED(mark_gone(slices, layer));
    if (gone || plan->output != NULL || has_fate(plan->heads, n_heads, HL_HEAD_ZEROED))
        HL_NEED(mark_output(slices, &output->weight, plan->heads, config->layers[layer].d_head));
    if (plan->output != NULL)
        HL_NEED(put_values(slices, &output->weight, plan->output, plan->output_dtype));
    if (plan->output_bias != NULL)
        HL_NEED(put_values(slices, &output->bias, plan->output_bias, output->bias.dtype));
    if (plan->bias != NULL && output->bias.tensor != NULL) {
        HL_NEED(slice_of(&bias, slices, output->bias.tensor, 0));
        bias->added = plan->bias;
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ slices: cut */

static int64_t count_left(const slice *s)
{
    int64_t count = 0;

    for (int64_t i = 0; i < s->tensor->shape[s->axis]; i++)
        count += s->fates[i] != HL_HEAD_GONE;
    return count;
}

/* Copies (n_outer, shape[axis], n_inner bytes) without the removed parts. */
static void copy_cut(uint8_t *out, const slice *s, const uint8_t *from, int64_t n_outer,
                     size_t n_inner)
{
    for (int64_t i = 0; i < n_outer * s->tensor->shape[s->axis]; i++, from += n_inner) {
        hl_head_fate fate = (hl_head_fate)s->fates[i % s->tensor->shape[s->axis]];

        if (fate == HL_HEAD_GONE)
            continue;
        if (fate == HL_HEAD_ZEROED)
            memset(out, 0, n_inner);
        else
            memcpy(out, from, n_inner);
        out += n_inner;
    }
}

/* Adds the means of removed heads to a bias, which keeps its type. */
static hl_status add_means(uint8_t *out, const slice *s)
{
    size_t          count  = (size_t)s->tensor->shape[0];
    HL_FREED float *values = NULL;

    HL_NEED(HL_ALLOC(&values, count));
    HL_NEED(hl_dtype_to_f32(values, s->tensor->data, s->tensor->dtype, count));
    for (size_t i = 0; i < count; i++)
        values[i] += s->added[i];
    return hl_dtype_from_f32(out, s->tensor->dtype, values, count);
}

/* Encodes the new values in s->dtype, in the layout of the stored tensor. */
static hl_status store_values(uint8_t **out, const slice *s)
{
    const hl_weight *w      = s->weight;
    HL_FREED float  *stored = NULL;
    size_t           count  = (size_t)hl_tensor_count(s->tensor);

    if (count != (size_t)(w->n_rows * w->n_columns))
        return hl_fail(HL_UNSUPPORTED, "tensor '%s' holds more than the output projection",
                       s->tensor->name);
    HL_NEED(HL_ALLOC(&stored, count));
    for (int64_t r = 0; r < w->n_rows; r++) {
        int64_t row = hl_weight_row(w, r);

        for (int64_t c = 0; c < w->n_columns; c++)
            stored[w->transposed ? c * w->n_stored + row : row * w->n_columns + c] =
                s->values[r * w->n_columns + c];
    }
    HL_NEED(HL_ALLOC(out, count * hl_dtype_block_of(s->dtype).n_bytes));
    return hl_dtype_from_f32(*out, s->dtype, stored, count);
}

/* Do zeroed columns fill whole blocks? */
static bool fills_blocks(const slice *s, size_t n_values)
{
    for (int64_t i = 0; i < s->tensor->shape[1]; i++) {
        if (s->fates[i] != s->fates[i - i % (int64_t)n_values])
            return false;
    }
    return true;
}

/* Zeroes columns of a matrix in blocks.  Where they are whole blocks, these become zeros, which stand for
 * zeros in every type; else the matrix is stored in a type with smaller blocks, or none. */
static hl_status zero_blocks(slice *s)
{
    hl_dtype_block  block   = hl_dtype_block_of(s->tensor->dtype);
    int64_t         rows    = s->tensor->shape[0];
    int64_t         columns = s->tensor->shape[1];
    size_t          count   = (size_t)hl_tensor_count(s->tensor);
    HL_FREED float *values  = NULL;
    uint8_t        *data    = NULL;
    bool            fits    = fills_blocks(s, block.n_values);

    s->cut = *s->tensor;
    if (!fits)
        s->cut.dtype = columns % 32 == 0 ? HL_DTYPE_Q8_0 : HL_DTYPE_F16;
    HL_NEED(hl_tensor_bytes(&s->cut.n_bytes, &s->cut));
    HL_NEED(HL_ALLOC(&data, s->cut.n_bytes));
    s->cut.data = data;
    if (fits) {
        size_t per_row = (size_t)columns / block.n_values;

        memcpy(data, s->tensor->data, s->cut.n_bytes);
        for (size_t i = 0; i < (size_t)rows * per_row; i++) {
            if (s->fates[i % per_row * block.n_values] == HL_HEAD_ZEROED)
                memset(data + i * block.n_bytes, 0, block.n_bytes);
        }
        return HL_OK;
    }
    HL_NEED(HL_ALLOC(&values, count));
    HL_NEED(hl_dequantize(values, s->tensor->dtype, s->tensor->data, count));
    for (size_t i = 0; i < count; i++)
        values[i] = s->fates[i % (size_t)columns] == HL_HEAD_ZEROED ? 0.0f : values[i];
    return hl_quantize(data, s->cut.dtype, values, count);
}

static hl_status cut_tensor(slice *s)
{
    uint8_t          *data    = NULL;
    HL_FREED uint8_t *values  = NULL;
    hl_dtype          dtype   = s->values != NULL ? s->dtype : s->tensor->dtype;
    size_t            n_inner = hl_dtype_block_of(dtype).n_bytes;
    int64_t           n_outer = 1;

    if (hl_dtype_is_block(s->tensor->dtype) && s->values == NULL)
        return zero_blocks(s);
    if (s->values != NULL)
        HL_NEED(store_values(&values, s));
    s->cut                = *s->tensor;
    s->cut.dtype          = dtype;
    s->cut.data           = NULL; /* set below, to memory that the slice owns */
    s->cut.shape[s->axis] = count_left(s);
    if (s->name != NULL)
        s->cut.name = s->name;
    HL_NEED(hl_tensor_bytes(&s->cut.n_bytes, &s->cut));
    HL_NEED(HL_ALLOC(&data, s->cut.n_bytes));
    s->cut.data = data;
    for (int i = 0; i < s->axis; i++)
        n_outer *= s->tensor->shape[i];
    for (int i = s->axis + 1; i < s->tensor->n_dims; i++)
        n_inner *= (size_t)s->tensor->shape[i];
    if (s->added != NULL)
        HL_NEED(add_means(data, s));
    else
        copy_cut(data, s, values != NULL ? values : s->tensor->data, n_outer, n_inner);
    return HL_OK;
}

/* ---------------------------------------------------------- slices: all of them */

static hl_status list_tensors(slice_list *slices)
{
    const hl_tensors *tensors = slices->model->tensors;
    size_t            count   = hl_tensors_count(tensors);

    HL_NEED(HL_ALLOC(&slices->tensors, count));
    for (size_t i = 0; i < count; i++) {
        const hl_tensor *tensor = hl_tensors_at(tensors, i);
        const slice     *found  = NULL;

        for (size_t k = 0; k < slices->n_slices && found == NULL; k++) {
            if (slices->slices[k].tensor == tensor)
                found = &slices->slices[k];
        }
        if (found != NULL && found->gone)
            continue;
        slices->tensors[slices->n_tensors++] = found != NULL ? &found->cut : tensor;
    }
    return HL_OK;
}

static void free_slices(slice_list *slices)
{
    if (slices == NULL)
        return;
    for (size_t i = 0; i < slices->n_slices; i++) {
        hl_free(slices->slices[i].fates);
        hl_free(slices->slices[i].name);
        hl_free((void *)slices->slices[i].cut.data);
    }
    hl_free(slices->slices);
    hl_free((void *)slices->tensors);
    hl_free(slices);
}

HL_CLOSES(free_slices, slice_list)

/* Borrows the model.  Returns HL_UNSUPPORTED where heads are removed from blocks of a GGUF file. */
static hl_status make_slices(slice_list **out, const hl_model *model, const hl_head_plan *plan)
{
    HL_CLOSED(free_slices) slice_list *slices = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&slices, 1));
    slices->model = model;
    slices->plan  = plan;
    for (int64_t layer = 0; layer < plan->n_layers; layer++)
        HL_NEED(mark_layer(slices, layer));
    for (size_t i = 0; i < slices->n_slices; i++) {
        if (!slices->slices[i].gone)
            HL_NEED(cut_tensor(&slices->slices[i]));
    }
    HL_NEED(list_tensors(slices));
    *out = hl_taken(&slices);
    return HL_OK;
}

/* ------------------------------------------------------------------------ weights */

static hl_status write_weights(const hl_folder *folder, const hl_model *model,
                               const hl_head_plan *plan)
{
    HL_CLOSED(free_slices) slice_list                           *slices = NULL;
    HL_SCOPED(hl_new_biases_free) hl_new_biases                  biases = { 0 };
    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;
    HL_FREED char                                               *path   = NULL;
    HL_FREED char                                               *heads  = NULL;

    HL_NEED(make_slices(&slices, model, plan));
    HL_NEED(hl_new_biases_make(&biases, model, plan));
    HL_NEED(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < slices->n_tensors; i++) {
        hl_tensor tensor = *slices->tensors[i];
        if (hl_head_plan_is_compact(plan, model->config))
            tensor.name = hl_compact_tensor_name(model->config, tensor.name);
        hl_safetensors_add(writer, &tensor);
    }
    for (size_t i = 0; i < biases.n; i++)
        hl_safetensors_add(writer, &biases.tensors[i]);
    HL_NEED(hl_prune_heads_text(&heads, model, plan));
    hl_safetensors_add_metadata(writer, "format", "pt");
    hl_safetensors_add_metadata(writer, PRUNED_HEADS, heads);
    HL_NEED(hl_folder_join(&path, folder, "model.safetensors"));
    return hl_safetensors_write(writer, path);
}

/* ------------------------------------------------------------------------ the rest */

/* Is the file left out?  Weights of the unchanged model, in any format, and hidden files are. */
static bool stays_behind(const char *name)
{
    static const char *const endings[] = {
        ".safetensors", ".index.json", ".bin", ".gguf", ".h5",
        ".msgpack",     ".ot",         ".pt",  ".pth",  ".onnx"
    };

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (hl_ends_with(name, endings[i]))
            return true;
    }
    return name[0] == '.';
}

static hl_status copy_one(const hl_folder *folder, const char *from_folder, const char *name)
{
    HL_FREED char *from = NULL;
    HL_FREED char *to   = NULL;
    struct stat    about;

    HL_NEED(hl_path_join(&from, from_folder, name));
    if (stat(from, &about) == 0 && S_ISREG(about.st_mode)) { /* follows links */
        HL_NEED(hl_folder_join(&to, folder, name));
        HL_NEED(hl_file_copy(to, from));
    }
    return HL_OK;
}

static hl_status copy_rest(const hl_folder *folder, const char *from)
{
    DIR      *directory = hl_sys_opendir(from);
    hl_status status    = HL_OK;

    if (directory == NULL)
        return hl_fail(HL_IO, "%s: %s", from, strerror(errno));
    for (struct dirent *entry; status == HL_OK && (entry = readdir(directory)) != NULL;) {
        if (!stays_behind(entry->d_name))
            status = copy_one(folder, from, entry->d_name);
    }
    closedir(directory);
    return status;
}

static hl_status write_text(const hl_folder *folder, const char *name, const char *text)
{
    HL_FREED char *path   = NULL;
    hl_writer     *writer = NULL;

    HL_NEED(hl_folder_join(&path, folder, name));
    HL_NEED(hl_writer_open(&writer, path));
    hl_writer_write(writer, text, strlen(text));
    return hl_writer_finish(writer);
}

/* ------------------------------------------------------------------- config.json */

static hl_status read_json(json_t **out, const char *folder, const char *name)
{
    HL_FREED char                   *path = NULL;
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    HL_NEED(hl_path_join(&path, folder, name));
    HL_NEED(hl_file_map(&file, path));
    return hl_json_parse(out, (const char *)file.bytes, file.n_bytes, path);
}

/* Returns JSON with 15 digits per number if they suffice: 0.1, not 0.10000000000000001.  Release with
 * hl_free; NULL when memory ran out. */
static char *json_text(const json_t *root)
{
    HL_FREED char *text = hl_json_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    HL_CLOSED(json_decref) json_t *back = NULL;

    if (text == NULL)
        return NULL;
    hl_status status = hl_json_parse(&back, text, strlen(text), "config.json");
    if (status == HL_OK && json_equal(root, back))
        return hl_taken(&text);
    return status != HL_NO_MEMORY ? hl_json_dump(root, JSON_INDENT(2)) : NULL;
}

/* llama.cpp's converter looks for the context of a GPT-2 under the key n_ctx, which transformers
 * no longer writes.  Returns whether the key was added. */
static bool add_context(json_t *root)
{
    const json_t *type    = json_object_get(root, "model_type");
    json_t       *context = json_object_get(root, "n_positions");

    if (!json_is_string(type) || strcmp(json_string_value(type), "gpt2") != 0 ||
        !json_is_integer(context) || json_object_get(root, "n_ctx") != NULL)
        return false;
    return json_object_set(root, "n_ctx", context) == 0;
}

/* Writes config.json only where it differs from the one that was copied. */
static hl_status write_config(const char **loads, const hl_folder *folder, const hl_model *model,
                              const hl_head_plan *plan)
{
    hl_compact_form                form = HL_COMPACT_PLAIN;
    HL_CLOSED(json_decref) json_t *root = NULL;
    HL_FREED char                 *text = NULL;
    HL_FREED char                 *code = NULL;
    char                           name[HL_COMPACT_CODE_NAME];
    bool                           is_compact  = hl_head_plan_is_compact(plan, model->config);
    bool                           adds_biases = hl_head_plan_adds_biases(plan, model->config);

    HL_NEED(read_json(&root, hl_tensors_folder(model->tensors), "config.json"));
    if (!add_context(root) && !is_compact && !adds_biases)
        return HL_OK;
    if (is_compact)
        HL_NEED(hl_compact_config(&form, root, model->config, plan));
    if (adds_biases)
        HL_NEED(hl_compact_add_biases(root));
    text = json_text(root);
    if (text == NULL)
        return hl_fail(HL_NO_MEMORY, "out of memory for config.json");
    HL_NEED(write_text(folder, "config.json", text));
    if (form == HL_COMPACT_CODE) {
        HL_NEED(hl_compact_code(name, &code, root, model->config));
        HL_NEED(write_text(folder, name, code));
    }
    *loads = loads_of[form];
    return HL_OK;
}

/* ---------------------------------------------------------------------- the whole */

/* Checks, before the folder gets its final name, that the model in it opens. */
static hl_status try_folder(const hl_folder *folder)
{
    HL_CLOSED(hl_model_close) hl_model *model = NULL;
    HL_FREED char                      *path  = NULL;

    HL_NEED(hl_folder_join(&path, folder, "model.safetensors"));
    return hl_model_open(&model, path);
}

hl_status hl_prune_write_folder(const char **loads, const hl_model *model, const hl_head_plan *plan,
                                const char *path)
{
    HL_CLOSED(hl_folder_abandon) hl_folder *folder = NULL;

    HL_NEED(hl_folder_create(&folder, path));
    HL_NEED(copy_rest(folder, hl_tensors_folder(model->tensors)));
    *loads = loads_of[HL_COMPACT_PLAIN];
    HL_NEED(write_config(loads, folder, model, plan));
    HL_NEED(write_weights(folder, model, plan));
    HL_NEED(try_folder(folder));
    return hl_folder_finish(&folder);
}

/* --------------------------------------------------------------------- a GGUF file */

/* Lists the matrices that could not keep their type. */
static hl_status report_types(hl_prune_report *report, const slice_list *slices)
{
    HL_NEED(HL_ALLOC_ZEROED(&report->tensors, slices->n_slices + 1));
    for (size_t i = 0; i < slices->n_slices; i++) {
        const slice     *s    = &slices->slices[i];
        hl_prune_tensor *note = &report->tensors[report->n_tensors];

        if (s->cut.dtype == s->tensor->dtype)
            continue;
        *note = (hl_prune_tensor){ .stored        = s->tensor->dtype,
                                   .wanted        = s->tensor->dtype,
                                   .written       = s->cut.dtype,
                                   .stored_bytes  = s->tensor->n_bytes,
                                   .written_bytes = s->cut.n_bytes,
                                   .why           = "zeroed heads share blocks with others" };
        report->n_tensors++; /* before the name: the report is cleared if it fails */
        HL_NEED(hl_strndup(&note->name, s->tensor->name, strlen(s->tensor->name)));
    }
    return HL_OK;
}

hl_status hl_prune_copy_gguf(hl_prune_report *report, const hl_model *model,
                             const hl_head_plan *plan, const char *path)
{
    const hl_gguf                                 *from   = hl_tensors_gguf(model->tensors);
    HL_CLOSED(free_slices) slice_list             *slices = NULL;
    HL_CLOSED(hl_gguf_writer_free) hl_gguf_writer *writer = NULL;
    HL_FREED char                                 *heads  = NULL;

    HL_NEED(make_slices(&slices, model, plan));
    HL_NEED(hl_prune_heads_text(&heads, model, plan));
    HL_NEED(hl_gguf_writer_new(&writer));
    for (size_t i = 0; i < hl_gguf_n_values(from); i++) {
        const hl_gguf_value *value = hl_gguf_value_at(from, i);

        /* The parts of a split file become one. */
        if (strncmp(value->key, "split.", strlen("split.")) != 0 &&
            strcmp(value->key, PRUNED_HEADS) != 0)
            hl_gguf_add_value(writer, value);
    }
    hl_gguf_add_text(writer, PRUNED_HEADS, heads);
    for (size_t i = 0; i < slices->n_tensors; i++)
        hl_gguf_add_tensor(writer, slices->tensors[i]);
    report->loads = "what opens the original, such as llama.cpp";
    HL_NEED(report_types(report, slices));
    return hl_gguf_write(writer, path);
}
