/* maps_layout.c - finding attention maps in a file by names and shapes. */
#include "measure/maps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

#define MAX_LAYERS 4096

/* A tensor that could be a layer's, and the number in its name. */
typedef struct candidate {
    const hl_tensor *tensor;
    int64_t          layer;
    size_t           begin; /* start of the number in the name */
    size_t           end;
} candidate;

static bool is_float(hl_dtype dtype)
{
    return dtype == HL_DTYPE_F32 || dtype == HL_DTYPE_F16 || dtype == HL_DTYPE_BF16 ||
           dtype == HL_DTYPE_F64;
}

/* Prints a shape as "[2,3,4]". */
static void print_shape(char *out, size_t n_bytes, const hl_tensor *tensor)
{
    size_t used = (size_t)snprintf(out, n_bytes, "[");

    for (int i = 0; i < tensor->n_dims && used < n_bytes; i++)
        used += (size_t)snprintf(out + used, n_bytes - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)tensor->shape[i]);
    if (used < n_bytes)
        snprintf(out + used, n_bytes - used, "]");
}

static hl_status bad_shape(const hl_tensor *tensor, const char *path, const char *wanted)
{
    char shape[128];

    print_shape(shape, sizeof shape, tensor);
    return hl_fail(HL_BAD_INPUT, "%s: %s%s%s of shape %s, wanted %s", path,
                   tensor->name[0] != '\0' ? "'" : "an array", tensor->name,
                   tensor->name[0] != '\0' ? "'" : "", shape, wanted);
}

static hl_status check_numbers(const hl_tensor *tensor, const char *path)
{
    if (is_float(tensor->dtype))
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: '%s' is of type %s, wanted floating-point numbers", path,
                   tensor->name, hl_dtype_name(tensor->dtype));
}

/* ------------------------------------------------------------------ one for all */

static hl_status set_sizes(hl_maps_layout *layout, const hl_tensor *tensor, int64_t n_layers,
                           int64_t n_batch, const char *path)
{
    layout->n_layers  = n_layers;
    layout->n_batch   = n_batch;
    layout->n_queries = tensor->shape[tensor->n_dims - 2];
    layout->n_keys    = tensor->shape[tensor->n_dims - 1];
    if (n_layers < 1 || n_layers > MAX_LAYERS || n_batch < 1 || layout->n_queries < 1 ||
        layout->n_keys < 1 || tensor->n_bytes == 0)
        return bad_shape(tensor, path, "1 to 4096 layers, and at least one of everything");
    return HL_ALLOC_ZEROED(&layout->layers, (size_t)n_layers);
}

static hl_status use_one(hl_maps_layout *layout, const hl_tensor *tensor, const char *path)
{
    const int64_t *shape  = tensor->shape;
    int            n_dims = tensor->n_dims;

    HL_NEED(check_numbers(tensor, path));
    if (n_dims < 3 || n_dims > 5)
        return bad_shape(tensor, path, "[L,B,H,S,S], [L,H,S,S] or [H,S,S]");
    HL_NEED(set_sizes(layout, tensor, n_dims > 3 ? shape[0] : 1, n_dims == 5 ? shape[1] : 1, path));
    size_t layer_bytes = tensor->n_bytes / (size_t)layout->n_layers;
    layout->n_heads    = shape[n_dims - 3];
    for (int64_t i = 0; i < layout->n_layers; i++)
        layout->layers[i] =
            (hl_maps_layer){ (const uint8_t *)tensor->data + (size_t)i * layer_bytes, tensor->dtype,
                             layout->n_heads };
    return HL_OK;
}

/* ---------------------------------------------------------------- one per layer */

static bool has_any(const char *name, const char *const *words, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++) {
        if (strstr(name, words[i]) != NULL)
            return true;
    }
    return false;
}

/* Returns true if the name is one of attention and has a number. */
static bool is_candidate(candidate *out, const hl_tensor *tensor)
{
    static const char *const words[] = { "attn", "attention", "pattern", "scores" };
    size_t                   begin   = strcspn(tensor->name, "0123456789");
    size_t                   end     = begin + strspn(tensor->name + begin, "0123456789");

    if (!is_float(tensor->dtype) || (tensor->n_dims != 3 && tensor->n_dims != 4) || begin == end ||
        end - begin > 6 || !has_any(tensor->name, words, sizeof words / sizeof *words))
        return false;
    *out = (candidate){ tensor, strtol(tensor->name + begin, NULL, 10), begin, end };
    return true;
}

/* Returns true if two names differ only in their numbers. */
static bool are_alike(const candidate *a, const candidate *b)
{
    return a->begin == b->begin && strncmp(a->tensor->name, b->tensor->name, a->begin) == 0 &&
           strcmp(a->tensor->name + a->end, b->tensor->name + b->end) == 0;
}

static int compare_layers(const void *a, const void *b)
{
    const candidate *left = a, *right = b;
    return left->layer < right->layer ? -1 : left->layer > right->layer;
}

/* Collects all tensors that could be a layer's; if the file has scores and probabilities, only the
 * kind that is wanted. */
static size_t collect(candidate *out, const hl_safetensors *file, bool scores)
{
    size_t n = 0, n_wanted = 0;

    for (size_t i = 0; i < hl_safetensors_count(file); i++)
        n += is_candidate(&out[n], hl_safetensors_at(file, i));
    for (size_t i = 0; i < n; i++)
        n_wanted += (strstr(out[i].tensor->name, "scores") != NULL) == scores;
    if (n_wanted == 0)
        return n;
    n_wanted = 0;
    for (size_t i = 0; i < n; i++) {
        if ((strstr(out[i].tensor->name, "scores") != NULL) == scores)
            out[n_wanted++] = out[i];
    }
    return n_wanted;
}

static hl_status check_candidates(const candidate *items, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++) {
        if (!are_alike(&items[0], &items[i]))
            return hl_fail(HL_BAD_INPUT,
                           "%s: both '%s' and '%s' could be the maps; keep one of them in the file",
                           path, items[0].tensor->name, items[i].tensor->name);
    }
    for (size_t i = 0; i < n; i++) {
        if (items[i].layer != (int64_t)i)
            return hl_fail(HL_BAD_INPUT, "%s: '%s' where layer %zu should be", path,
                           items[i].tensor->name, i);
    }
    return HL_OK;
}

static hl_status use_layer(hl_maps_layout *layout, const hl_tensor *tensor, int64_t layer,
                           const char *path)
{
    int     n_dims  = tensor->n_dims;
    int64_t n_batch = n_dims == 4 ? tensor->shape[0] : 1;
    int64_t n_heads = tensor->shape[n_dims - 3];

    if (n_batch != layout->n_batch || n_heads < 1 ||
        tensor->shape[n_dims - 2] != layout->n_queries ||
        tensor->shape[n_dims - 1] != layout->n_keys)
        return bad_shape(tensor, path, "the layers to differ in heads only");
    layout->layers[layer] = (hl_maps_layer){ tensor->data, tensor->dtype, n_heads };
    layout->n_heads       = n_heads > layout->n_heads ? n_heads : layout->n_heads;
    return HL_OK;
}

static hl_status use_many(hl_maps_layout *layout, const candidate *items, size_t n,
                          const char *path)
{
    const hl_tensor *first = items[0].tensor;

    HL_NEED(check_candidates(items, n, path));
    HL_NEED(set_sizes(layout, first, (int64_t)n, first->n_dims == 4 ? first->shape[0] : 1, path));
    for (size_t i = 0; i < n; i++)
        HL_NEED(use_layer(layout, items[i].tensor, (int64_t)i, path));
    return HL_OK;
}

/* --------------------------------------------------------------------- the file */

static const hl_tensor *find_one(const hl_safetensors *file, bool scores)
{
    static const char *const names[] = { "attention", "attentions", "attn",       "pattern",
                                         "patterns",  "scores",     "attn_scores" };
    enum { N_NAMES = sizeof names / sizeof *names, N_PATTERNS = 5 };

    for (int i = 0; i < N_NAMES; i++) { /* names of scores are tried first if scores are wanted */
        int              which  = scores ? (i + N_PATTERNS) % N_NAMES : i;
        const hl_tensor *tensor = hl_safetensors_find(file, names[which]);
        if (tensor != NULL)
            return tensor;
    }
    return hl_safetensors_count(file) == 1 ? hl_safetensors_at(file, 0) : NULL;
}

static hl_status read_safetensors(hl_maps_layout *layout, const char *path, bool scores)
{
    hl_status  status = HL_OK;
    candidate *items  = NULL;

    HL_TRY(hl_safetensors_open(&layout->safetensors, path));
    HL_TRY(HL_ALLOC(&items, hl_safetensors_count(layout->safetensors) + 1));
    size_t           n   = collect(items, layout->safetensors, scores);
    const hl_tensor *one = find_one(layout->safetensors, scores);
    if (one != NULL && (n == 0 || one->n_dims == 5)) {
        HL_TRY(use_one(layout, one, path));
        goto done;
    }
    if (n == 0)
        HL_TRY(hl_fail(HL_BAD_INPUT,
                       "%s: no attention maps found: wanted a tensor 'attention', or one per layer "
                       "whose name has attn, attention, pattern or scores and a number",
                       path));
    qsort(items, n, sizeof *items, compare_layers);
    HL_TRY(use_many(layout, items, n, path));

done:
    hl_free(items);
    return status;
}

/* Reads `lengths`; without it all positions are real. */
static hl_status read_lengths(hl_maps_layout *layout, const char *path)
{
    const hl_tensor *tensor =
        layout->safetensors != NULL ? hl_safetensors_find(layout->safetensors, "lengths") : NULL;
    double value = 0.0;

    HL_NEED(HL_ALLOC(&layout->lengths, (size_t)layout->n_batch));
    for (int64_t i = 0; i < layout->n_batch; i++)
        layout->lengths[i] = layout->n_queries;
    if (tensor == NULL)
        return HL_OK;
    if (tensor->n_dims != 1 || tensor->shape[0] != layout->n_batch || is_float(tensor->dtype) ||
        layout->n_queries != layout->n_keys)
        return bad_shape(tensor, path, "one integer a sequence, and as many queries as keys");
    size_t size = tensor->n_bytes / (size_t)layout->n_batch;
    for (int64_t i = 0; i < layout->n_batch; i++) {
        hl_status status = hl_dtype_to_f64(&value, (const uint8_t *)tensor->data + (size_t)i * size,
                                           tensor->dtype, 1);
        if (status != HL_OK)
            return hl_fail_within(status, "%s: 'lengths'", path);
        if (!(value >= 0.0 && value <= (double)layout->n_queries))
            return hl_fail(HL_BAD_INPUT, "%s: length %.0f of sequence %lld, wanted 0 to %lld", path,
                           value, (long long)i, (long long)layout->n_queries);
        layout->lengths[i] = (int64_t)value;
    }
    return HL_OK;
}

hl_status hl_maps_layout_open(hl_maps_layout *out, const char *path, bool scores)
{
    hl_status   status = HL_OK;
    const char *dot    = strrchr(path, '.');

    *out = (hl_maps_layout){ 0 };
    if (dot != NULL && strcmp(dot, ".npy") == 0) {
        HL_TRY(hl_npy_open(&out->npy, path));
        HL_TRY(use_one(out, hl_npy_tensor(out->npy), path));
    } else {
        HL_TRY(read_safetensors(out, path, scores));
    }
    HL_TRY(read_lengths(out, path));

done:
    if (status != HL_OK)
        hl_maps_layout_close(out);
    return status;
}

void hl_maps_layout_close(hl_maps_layout *layout)
{
    hl_npy_close(layout->npy);
    hl_safetensors_close(layout->safetensors);
    hl_free(layout->layers);
    hl_free(layout->lengths);
    *layout = (hl_maps_layout){ 0 };
}

const uint8_t *hl_maps_layout_row(const hl_maps_layout *layout, int64_t layer, int64_t sequence,
                                  int64_t head, int64_t query)
{
    const hl_maps_layer *maps = &layout->layers[layer];
    int64_t              row  = (sequence * maps->n_heads + head) * layout->n_queries + query;

    return maps->data + (size_t)row * (size_t)layout->n_keys * (hl_dtype_bits(maps->dtype) / 8);
}
