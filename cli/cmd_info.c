/* cmd_info.c - headlight info: what a model file is.
 *
 *     gpt2                                             decoder, family gpt2, gguf
 *
 *       parameters   124,439,808
 *       stored as    F32        98 tensors   477.0 KiB
 *                    F16        50 tensors   237.0 MiB
 *       layers       12 of width 768
 *       heads        12 of 64
 *       ...
 *
 * Eighty columns; a label and what it says, nothing that the model does not have.  JSON has the
 * same facts, under the names that headlight.h has for them. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "options.h"
#include "screen.h"
#include "values.h"

typedef struct info_request {
    const char         *path;
    const hl_model     *model;
    const hl_tokenizer *tokenizer;         /* NULL: none, or none that can be read */
    const char         *tokenizer_problem; /* why that is; "" where there is none  */
    bool                tensors;           /* a line (an object) for every tensor  */
    hl_session_memory   memory;            /* of a session with a cache in f16     */
} info_request;

enum { LABEL = 13, WIDTH = 80, MAX_KINDS = 8 };

/* ----------------------------------------------------------------------- lines */

/* A line in the making; what does not fit is cut. */
typedef struct line {
    char   bytes[160];
    size_t used;
} line;

static void add(line *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(line *out, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length =
        vsnprintf(out->bytes + out->used, sizeof out->bytes - out->used, format, arguments);
    va_end(arguments);
    if (length > 0)
        out->used += (size_t)length;
    if (out->used >= sizeof out->bytes)
        out->used = sizeof out->bytes - 1;
}

/* ", " before all but the first. */
static const char *comma(const line *so_far)
{
    return so_far->used > 0 ? ", " : "";
}

static void show(const hl_colours *colours, const char *label, const line *what)
{
    printf("  %s%-*s%s%s\n", colours->dim, LABEL, label, colours->plain, what->bytes);
}

/* 1234567 as "1,234,567". */
static void add_number(line *out, int64_t number)
{
    char digits[24];
    int  n = snprintf(digits, sizeof digits, "%lld", (long long)number);

    for (int i = 0; i < n; i++)
        add(out, "%c%s", digits[i], i + 1 < n && (n - i - 1) % 3 == 0 ? "," : "");
}

/* "237.0 MiB" */
static const char *as_bytes(char out[32], size_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double                   value   = (double)bytes;
    int                      unit    = 0;

    for (; value >= 1024.0 && unit < 6; unit++)
        value /= 1024.0;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

/* ----------------------------------------------------------------------- title */

/* The last part of a path, without slashes at its end. */
static void base_name(char *out, size_t n_bytes, const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, n_bytes, "%.*s", (int)(end - begin), path + begin);
}

static void print_title(const hl_colours *colours, const hl_model_info *info, const char *path)
{
    char name[36];
    line kind = { 0 };

    base_name(name, sizeof name, path);
    add(&kind, "%s, family %s, %s", info->is_encoder ? "encoder" : "decoder", info->family,
        info->format);
    const char *shown = hl_shown(name);
    printf("%s%s%s%*s\n\n", colours->bold, shown, colours->plain,
           WIDTH - (int)hl_printable_width(shown), kind.bytes);
}

/* ------------------------------------------------------------ how it is stored */

typedef struct dtype_sum {
    int64_t n_tensors;
    size_t  n_bytes;
} dtype_sum;

static void sum_dtypes(dtype_sum *sums, const hl_model *model)
{
    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        hl_tensor_info tensor;
        if (hl_model_get_tensor(&tensor, model, i) != HL_OK)
            continue;
        sums[tensor.dtype].n_tensors++;
        sums[tensor.dtype].n_bytes += tensor.n_bytes;
    }
}

static void print_storage(const hl_colours *colours, const hl_model *model)
{
    dtype_sum   sums[HL_DTYPE_COUNT] = { 0 };
    const char *label                = "stored as";
    line        params               = { 0 };
    char        bytes[32];

    add_number(&params, hl_model_get_info(model)->n_params);
    show(colours, "parameters", &params);
    sum_dtypes(sums, model);
    for (int dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        line words = { 0 };
        if (sums[dtype].n_tensors == 0)
            continue;
        add(&words, "%-8s%5lld tensor%s%12s", hl_dtype_name((hl_dtype)dtype),
            (long long)sums[dtype].n_tensors, sums[dtype].n_tensors == 1 ? " " : "s",
            as_bytes(bytes, sums[dtype].n_bytes));
        show(colours, label, &words);
        label = "";
    }
}

/* ---------------------------------------------------------------------- layers */

static bool layers_equal(const hl_layer_info *a, const hl_layer_info *b)
{
    return a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads && a->d_mlp == b->d_mlp &&
           a->n_experts == b->n_experts && a->window == b->window && a->has_rope == b->has_rope &&
           a->rope_base == b->rope_base;
}

static bool is_like(const hl_model *model, int64_t index, const hl_layer_info *layer)
{
    hl_layer_info other;
    return hl_model_get_layer(&other, model, index) == HL_OK && layers_equal(&other, layer);
}

/* Is a layer before this one like it? */
static bool seen_before(const hl_model *model, int64_t index, const hl_layer_info *layer)
{
    for (int64_t i = 0; i < index; i++) {
        if (is_like(model, i, layer))
            return true;
    }
    return false;
}

/* How a layer differs from what is said of all: "window of 12, no rope". */
static line describe_layer(const hl_model_info *info, const hl_layer_info *layer)
{
    line out = { 0 };

    if (layer->n_heads == 0)
        add(&out, "no attention");
    else if (layer->window > 0)
        add(&out, "window of %lld", (long long)layer->window);
    else
        add(&out, "all keys");
    if (layer->n_heads > 0 && layer->n_heads != info->n_heads)
        add(&out, ", %lld heads", (long long)layer->n_heads);
    if (layer->n_heads > 0 && layer->n_kv_heads != info->n_kv_heads)
        add(&out, ", %lld K/V", (long long)layer->n_kv_heads);
    if (layer->n_heads > 0 && info->rope[0] != '\0' && !layer->has_rope)
        add(&out, ", no rope");
    if (layer->has_rope && layer->rope_base != info->rope_base)
        add(&out, ", theta %.10g", layer->rope_base);
    if (layer->d_mlp == 0)
        add(&out, ", no MLP");
    else if (layer->n_experts == 0 && info->n_experts > 0)
        add(&out, ", no experts");
    else if (layer->n_experts == 0 && layer->d_mlp != info->d_mlp)
        add(&out, ", MLP of %lld", (long long)layer->d_mlp);
    return out;
}

/* Which layers are like this one: "0, 2, 4-7". */
static line list_layers(const hl_model *model, const hl_layer_info *like)
{
    line    out = { 0 };
    int64_t end = hl_model_get_info(model)->n_layers;

    for (int64_t i = 0; i < end; i++) {
        int64_t last = i;
        while (last < end && is_like(model, last, like))
            last++;
        if (last == i)
            continue;
        if (out.used > 28) {
            add(&out, ", ...");
            break;
        }
        add(&out, "%s%lld", comma(&out), (long long)i);
        if (last > i + 1)
            add(&out, "-%lld", (long long)last - 1);
        i = last;
    }
    return out;
}

static bool all_alike(const hl_model *model)
{
    hl_layer_info first;

    if (hl_model_get_layer(&first, model, 0) != HL_OK)
        return false;
    for (int64_t i = 1; i < hl_model_get_info(model)->n_layers; i++) {
        if (!is_like(model, i, &first))
            return false;
    }
    return true;
}

static void print_kinds(const hl_colours *colours, const hl_model *model)
{
    const hl_model_info *info    = hl_model_get_info(model);
    int                  n_kinds = 0;
    hl_layer_info        layer;

    for (int64_t i = 0; i < info->n_layers && hl_model_get_layer(&layer, model, i) == HL_OK; i++) {
        if (seen_before(model, i, &layer) || n_kinds++ >= MAX_KINDS)
            continue;
        line words = describe_layer(info, &layer);
        add(&words, ": %s", list_layers(model, &layer).bytes);
        show(colours, "", &words);
    }
    if (n_kinds > MAX_KINDS) {
        line words = { 0 };
        add(&words, "and %d more kinds", n_kinds - MAX_KINDS);
        show(colours, "", &words);
    }
}

/* One line, and where layers differ one for every kind. */
static void print_layers(const hl_colours *colours, const hl_model *model)
{
    const hl_model_info *info  = hl_model_get_info(model);
    line                 words = { 0 };
    hl_layer_info        first;

    add(&words, "%lld of width %lld", (long long)info->n_layers, (long long)info->d_model);
    if (all_alike(model) && hl_model_get_layer(&first, model, 0) == HL_OK && first.window > 0)
        add(&words, ", %s", describe_layer(info, &first).bytes);
    show(colours, "layers", &words);
    if (!all_alike(model))
        print_kinds(colours, model);
}

/* ----------------------------------------------------------------------- parts */

static void print_heads(const hl_colours *colours, const hl_model_info *info)
{
    line words = { 0 };

    add(&words, "%lld of %lld", (long long)info->n_heads, (long long)info->d_head);
    if (info->n_kv_heads != info->n_heads)
        add(&words, ", sharing %lld K/V head%s", (long long)info->n_kv_heads,
            info->n_kv_heads == 1 ? "" : "s");
    if (info->has_sinks)
        add(&words, ", with learned sinks");
    show(colours, "heads", &words);
}

static void print_mlp(const hl_colours *colours, const hl_model_info *info)
{
    line words = { 0 };

    if (info->d_mlp > 0)
        add(&words, "%lld", (long long)info->d_mlp);
    if (info->n_experts > 0)
        add(&words, "%s%lld experts of %lld, %lld a token", comma(&words),
            (long long)info->n_experts, (long long)info->d_expert, (long long)info->n_experts_used);
    add(&words, ", %s%s", info->activation, info->is_gated ? ", gated" : "");
    show(colours, "MLP", &words);
}

static void print_norms(const hl_colours *colours, const hl_model_info *info)
{
    line words = { 0 };

    add(&words, "%s %s attention and MLP%s", info->norm, info->norm_place,
        strcmp(info->residual, "parallel") == 0 ? ", which run in parallel" : "");
    show(colours, "norms", &words);
}

static void print_positions(const hl_colours *colours, const hl_model_info *info)
{
    line words = { 0 };

    add(&words, "%s", info->position);
    if (info->rope[0] != '\0')
        add(&words, ", theta %.10g", info->rope_base);
    if (info->rope[0] != '\0' && strcmp(info->rope, "default") != 0)
        add(&words, ", %s", info->rope);
    show(colours, "positions", &words);
    if (info->n_ctx > 0) {
        words = (line){ 0 };
        add_number(&words, info->n_ctx);
        add(&words, " tokens");
        show(colours, "context", &words);
    }
}

static void print_vocabulary(const hl_colours *colours, const hl_model_info *info)
{
    line words = { 0 };

    add_number(&words, info->d_vocab);
    if (!info->has_head)
        add(&words, ", no output head: no logits, no loss");
    else if (!info->is_encoder)
        add(&words, ", the output head is %s",
            info->is_tied ? "the embedding" : "a matrix of its own");
    show(colours, "vocabulary", &words);
}

/* ------------------------------------------------------------------- tokenizer */

static void print_tokenizer(const hl_colours *colours, const info_request *request)
{
    line words = { 0 };

    if (request->tokenizer != NULL) {
        add(&words, "%s, ", hl_tokenizer_kind(request->tokenizer));
        add_number(&words, (int64_t)hl_tokenizer_size(request->tokenizer));
        add(&words, " pieces");
    } else if (request->tokenizer_problem[0] != '\0') {
        add(&words, "cannot be read: %.120s", hl_shown(request->tokenizer_problem));
    } else {
        add(&words, "none here; --tokenizer PATH gives one");
    }
    show(colours, "tokenizer", &words);
}

/* " <|endoftext|>": the piece of an id, fit to be shown. */
static void add_piece(line *out, const hl_tokenizer *tokenizer, int64_t id)
{
    size_t      n_bytes = 0;
    const char *piece =
        tokenizer != NULL ? hl_tokenizer_piece(tokenizer, (int32_t)id, &n_bytes) : NULL;

    if (piece == NULL || n_bytes == 0 || n_bytes > 32)
        return;
    char *shown = hl_printable_text(piece, n_bytes);
    add(out, " %s", shown != NULL ? shown : "");
    free(shown);
}

static void print_tokens(const hl_colours *colours, const info_request *request)
{
    const hl_model_info *info  = hl_model_get_info(request->model);
    line                 words = { 0 };

    if (info->bos_id >= 0) {
        add(&words, "begin %lld", (long long)info->bos_id);
        add_piece(&words, request->tokenizer, info->bos_id);
    }
    for (int i = 0; i < info->n_eos_ids && words.used < 40; i++) {
        add(&words, "%s%s%lld", comma(&words), i == 0 ? "end " : "", (long long)info->eos_ids[i]);
        add_piece(&words, request->tokenizer, info->eos_ids[i]);
    }
    if (info->pad_id >= 0)
        add(&words, "%spadding %lld", comma(&words), (long long)info->pad_id);
    if (info->n_foreign_ids > 0)
        add(&words, "%snot used: %lld, beyond the vocabulary", comma(&words),
            (long long)info->foreign_ids[0]);
    if (words.used > 0)
        show(colours, "tokens", &words);
}

static void print_memory(const hl_colours *colours, const info_request *request)
{
    const hl_model_info     *info   = hl_model_get_info(request->model);
    const hl_session_memory *memory = &request->memory;
    line                     words  = { 0 };
    char                     a[32];
    char                     b[32];

    if (info->kv_bytes_f16 > 0) {
        add(&words, "%s a token in f16, %s in f32", as_bytes(a, info->kv_bytes_f16),
            as_bytes(b, info->kv_bytes_f32));
        show(colours, "K/V cache", &words);
    }
    words = (line){ 0 };
    add(&words, "%s for ",
        as_bytes(a, info->tensor_bytes + memory->cache_bytes + memory->work_bytes));
    add_number(&words, memory->n_ctx);
    add(&words, " tokens: weights %s, ", as_bytes(a, info->tensor_bytes));
    add(&words, "%scache %s, ", info->is_encoder ? "" : "f16 ", as_bytes(a, memory->cache_bytes));
    add(&words, "work %s", as_bytes(a, memory->work_bytes));
    show(colours, "memory", &words);
}

/* --------------------------------------------------------------------- tensors */

static void print_tensor(const hl_tensor_info *tensor)
{
    line role  = { 0 };
    line shape = { 0 };

    add(&role, "%s%s", tensor->role[0] != '\0' ? tensor->role : "-",
        tensor->is_bias ? " bias" : "");
    for (int i = 0; i < tensor->n_dims; i++)
        add(&shape, "%s%lld", i > 0 ? "," : "", (long long)tensor->shape[i]);
    printf("%-17s %-5s [%s]%*s %11zu  %s\n", role.bytes, hl_dtype_name(tensor->dtype), shape.bytes,
           shape.used < 14 ? (int)(14 - shape.used) : 0, "", tensor->n_bytes,
           hl_shown(tensor->name));
}

static void print_tensors(const hl_colours *colours, const hl_model *model)
{
    printf("\n%s%-17s %-5s %-16s %11s  %s%s\n", colours->dim, "role", "type", "shape", "bytes",
           "name", colours->plain);
    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        hl_tensor_info tensor;
        if (hl_model_get_tensor(&tensor, model, i) == HL_OK)
            print_tensor(&tensor);
    }
}

static void print_screen(const info_request *request)
{
    const hl_model_info *info    = hl_model_get_info(request->model);
    hl_colours           colours = hl_terminal_colours(stdout);

    print_title(&colours, info, request->path);
    print_storage(&colours, request->model);
    print_layers(&colours, request->model);
    print_heads(&colours, info);
    print_mlp(&colours, info);
    print_norms(&colours, info);
    print_positions(&colours, info);
    print_vocabulary(&colours, info);
    print_tokenizer(&colours, request);
    print_tokens(&colours, request);
    print_memory(&colours, request);
    if (request->tensors)
        print_tensors(&colours, request->model);
}

/* ------------------------------------------------------------------------ JSON */

static void set_int(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer(value));
}

static void set_text(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, json_string(value));
}

static void set_bool(json_t *object, const char *key, bool value)
{
    json_object_set_new(object, key, json_boolean(value));
}

static void set_sizes(json_t *root, const hl_model_info *info)
{
    set_int(root, "n_params", info->n_params);
    set_int(root, "n_layers", info->n_layers);
    set_int(root, "n_heads", info->n_heads);
    set_int(root, "n_kv_heads", info->n_kv_heads);
    set_int(root, "d_model", info->d_model);
    set_int(root, "d_head", info->d_head);
    set_int(root, "d_mlp", info->d_mlp);
    set_int(root, "d_vocab", info->d_vocab);
    set_int(root, "n_ctx", info->n_ctx);
    set_int(root, "n_experts", info->n_experts);
    set_int(root, "n_experts_used", info->n_experts_used);
    set_int(root, "d_expert", info->d_expert);
    set_int(root, "n_tensors", info->n_tensors);
    set_int(root, "tensor_bytes", (int64_t)info->tensor_bytes);
    set_int(root, "kv_bytes_f32", (int64_t)info->kv_bytes_f32);
    set_int(root, "kv_bytes_f16", (int64_t)info->kv_bytes_f16);
}

static void set_memory(json_t *root, const hl_session_memory *memory)
{
    json_object_set_new(root, "memory",
                        json_pack("{s:I, s:I, s:I}", "n_ctx", (json_int_t)memory->n_ctx,
                                  "cache_bytes", (json_int_t)memory->cache_bytes, "work_bytes",
                                  (json_int_t)memory->work_bytes));
}

static void set_parts(json_t *root, const hl_model_info *info)
{
    set_bool(root, "is_encoder", info->is_encoder);
    set_text(root, "norm", info->norm);
    set_text(root, "norm_place", info->norm_place);
    set_text(root, "residual", info->residual);
    set_text(root, "position", info->position);
    set_text(root, "rope", info->rope);
    json_object_set_new(root, "rope_base", json_real(info->rope_base));
    set_text(root, "activation", info->activation);
    set_bool(root, "is_gated", info->is_gated);
    set_bool(root, "is_tied", info->is_tied);
    set_bool(root, "has_head", info->has_head);
    set_bool(root, "has_sinks", info->has_sinks);
}

static void set_tokens(json_t *root, const hl_model_info *info)
{
    json_t *eos = json_array();

    for (int i = 0; i < info->n_eos_ids; i++)
        json_array_append_new(eos, json_integer(info->eos_ids[i]));
    set_int(root, "bos_id", info->bos_id);
    set_int(root, "pad_id", info->pad_id);
    json_object_set_new(root, "eos_ids", eos);
    json_t *foreign = json_array();
    for (int i = 0; i < info->n_foreign_ids; i++)
        json_array_append_new(foreign, json_integer(info->foreign_ids[i]));
    json_object_set_new(root, "foreign_ids", foreign);
}

static json_t *layer_object(const hl_layer_info *layer)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "n_heads", (json_int_t)layer->n_heads,
                     "n_kv_heads", (json_int_t)layer->n_kv_heads, "d_mlp", (json_int_t)layer->d_mlp,
                     "n_experts", (json_int_t)layer->n_experts, "window", (json_int_t)layer->window,
                     "has_rope", layer->has_rope, "rope_base", layer->rope_base);
}

static json_t *layer_array(const hl_model *model)
{
    json_t       *array = json_array();
    hl_layer_info layer;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_layers; i++) {
        if (hl_model_get_layer(&layer, model, i) == HL_OK)
            json_array_append_new(array, layer_object(&layer));
    }
    return array;
}

static json_t *tensor_object(const hl_tensor_info *tensor)
{
    json_t *shape = json_array();

    for (int i = 0; i < tensor->n_dims; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    return json_pack("{s:o, s:s, s:b, s:s, s:o, s:I}", "name", hl_value_name(tensor->name), "role",
                     tensor->role, "is_bias", tensor->is_bias, "dtype",
                     hl_dtype_name(tensor->dtype), "shape", shape, "n_bytes",
                     (json_int_t)tensor->n_bytes);
}

static json_t *tensor_array(const hl_model *model)
{
    json_t        *array = json_array();
    hl_tensor_info tensor;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        if (hl_model_get_tensor(&tensor, model, i) == HL_OK)
            json_array_append_new(array, tensor_object(&tensor));
    }
    return array;
}

/* Tensors and bytes of every dtype that occurs. */
static json_t *dtype_object(const hl_model *model)
{
    json_t        *object = json_object();
    hl_tensor_info tensor;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        if (hl_model_get_tensor(&tensor, model, i) != HL_OK)
            continue;
        const char *name  = hl_dtype_name(tensor.dtype);
        json_t     *entry = json_object_get(object, name);
        json_int_t  count = json_integer_value(json_object_get(entry, "n_tensors"));
        json_int_t  bytes = json_integer_value(json_object_get(entry, "n_bytes"));
        json_object_set_new(object, name,
                            json_pack("{s:I, s:I}", "n_tensors", count + 1, "n_bytes",
                                      bytes + (json_int_t)tensor.n_bytes));
    }
    return object;
}

/* A piece that is not UTF-8 has no place in JSON: null. */
static json_t *special_object(const hl_tokenizer *tokenizer)
{
    static const char *const names[HL_SPECIAL_COUNT] = { "bos", "eos", "unk",  "sep",
                                                         "pad", "cls", "mask", "eot" };
    json_t                  *object                  = json_object();

    for (int i = 0; i < HL_SPECIAL_COUNT; i++) {
        int32_t     id      = hl_tokenizer_special(tokenizer, (hl_special)i);
        size_t      n_bytes = 0;
        const char *piece   = id >= 0 ? hl_tokenizer_piece(tokenizer, id, &n_bytes) : NULL;
        json_t     *text    = piece != NULL ? json_stringn(piece, n_bytes) : NULL;
        if (id >= 0)
            json_object_set_new(
                object, names[i],
                json_pack("{s:i, s:o}", "id", (int)id, "piece", text != NULL ? text : json_null()));
    }
    return object;
}

static json_t *tokenizer_object(const hl_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return json_null();
    return json_pack("{s:s, s:I, s:o}", "kind", hl_tokenizer_kind(tokenizer), "size",
                     (json_int_t)hl_tokenizer_size(tokenizer), "special",
                     special_object(tokenizer));
}

static void print_json(const info_request *request)
{
    const hl_model      *model = request->model;
    const hl_model_info *info  = hl_model_get_info(model);
    json_t              *root  = json_object();

    set_text(root, "path", request->path);
    set_text(root, "family", info->family);
    set_text(root, "format", info->format);
    set_sizes(root, info);
    set_memory(root, &request->memory);
    set_parts(root, info);
    set_tokens(root, info);
    json_object_set_new(root, "dtypes", dtype_object(model));
    json_object_set_new(root, "layers", layer_array(model));
    json_object_set_new(root, "tokenizer", tokenizer_object(request->tokenizer));
    if (request->tensors)
        json_object_set_new(root, "tensors", tensor_array(model));
    hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    printf("\n");
    json_decref(root);
}

/* ----------------------------------------------------------------- the command */

static int fail(hl_status status)
{
    hl_complain("info", "%s", hl_explain(status));
    return hl_exit_for(status);
}

/* The tokenizer that was asked for, or the model's own.  The model is shown all the
 * same where its own is none that we understand, with `problem` in place of it. */
static hl_status open_tokenizer(hl_tokenizer **out, char *problem, size_t n_problem,
                                const hl_model *model, const char *asked)
{
    const char *own    = hl_model_get_info(model)->tokenizer_path;
    hl_status   status = hl_tokenizer_open(out, asked != NULL ? asked : own);

    if (status == HL_OK || asked != NULL || status == HL_NO_MEMORY || status == HL_IO)
        return status;
    if (status != HL_NOT_FOUND)
        snprintf(problem, n_problem, "%s", hl_error_message());
    return HL_OK;
}

/* What a session with a cache in f16 would hold; without logits where there is no head. */
static hl_status measure_memory(hl_session_memory *out, const hl_model *model,
                                const hl_common *common, int64_t n_ctx)
{
    hl_session_options options = { .n_ctx = n_ctx != 0 ? n_ctx : hl_model_get_info(model)->n_ctx,
                                   .wants = HL_WANT_LAST_LOGITS,
                                   .cache_dtype = HL_DTYPE_F16,
                                   .n_threads   = (int32_t)common->n_threads };
    hl_status          status  = hl_session_measure(out, model, &options);

    if (status != HL_UNSUPPORTED)
        return status;
    options.wants = 0;
    return hl_session_measure(out, model, &options);
}

static int show_info(info_request request, const hl_common *common, const char *tokenizer_path,
                     int64_t n_ctx)
{
    hl_model     *model        = NULL;
    hl_tokenizer *tokenizer    = NULL;
    char          problem[256] = "";

    hl_status status = hl_model_open(&model, request.path);
    if (status == HL_OK)
        status = open_tokenizer(&tokenizer, problem, sizeof problem, model, tokenizer_path);
    if (status == HL_OK)
        status = measure_memory(&request.memory, model, common, n_ctx);
    int code = status == HL_OK ? HL_EXIT_OK : fail(status);

    request.model             = model;
    request.tokenizer         = tokenizer;
    request.tokenizer_problem = problem;
    if (status == HL_OK && common->json)
        print_json(&request);
    else if (status == HL_OK && !common->quiet)
        print_screen(&request);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return code;
}

int hl_command_info(int argc, char **argv)
{
    const char  *tokenizer_path = NULL;
    int64_t      n_ctx          = 0;
    info_request request        = { 0 };
    hl_common    common;
    hl_arguments rest;

    hl_option options[] = {
        { "tensors", 't', HL_OPTION_FLAG, &request.tensors, NULL, "list every tensor", 0, 0 },
        { "context", 'c', HL_OPTION_INT, &n_ctx, "N", "memory for N tokens (the model's context)",
          1, 1 << 30 },
        { "tokenizer", 0, HL_OPTION_TEXT, &tokenizer_path, "PATH",
          "use this one instead of the model's own", 0, 0 },
        { 0 },
    };
    hl_usage usage = { "info", "MODEL",
                       "Says what a model is: family, shape, parameters, how its tensors are\n"
                       "stored, its tokenizer, and the memory that running it takes.  MODEL is a\n"
                       "Hugging Face folder or a .safetensors file in it, a .gguf file, or a\n"
                       "llama2.c .bin.",
                       options };

    int code = hl_options_parse(&rest, &common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (rest.count != 1)
        return hl_options_refuse(&usage, "wanted one MODEL, got %d", rest.count);
    request.path = rest.items[0];
    return show_info(request, &common, tokenizer_path, n_ctx);
}
