/* cmd_info.c - headlight info: describes a model file.
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
 * The output has eighty columns: labels with their facts, and nothing that the model does not have.
 * JSON has the same facts under the names of headlight.h. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

typedef struct info_request {
    hl_common           common;
    const char         *path;
    const char         *tokenizer_path; /* NULL: the model's own */
    int64_t             n_ctx;          /* 0: the model's */
    bool                tensors;        /* print a line (or an object) for every tensor */
    bool                machine;        /* describe the machine, not a model */
    const hl_model     *model;
    const hl_tokenizer *tokenizer;    /* NULL: there is none, or it cannot be read */
    char                problem[256]; /* why there is no tokenizer; "" if there is one */
    hl_session_memory   memory;       /* memory of a session with a cache in F16 */
} info_request;

enum { LABEL = 13, WIDTH = 80, MAX_KINDS = 8 };

/* ----------------------------------------------------------------------- lines */

/* The line being composed; what does not fit is cut. */
typedef struct page {
    hl_colors colors;
    char      line[160];
    size_t    used;
} page;

static void add(page *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(page *out, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(out->line + out->used, sizeof out->line - out->used, format, arguments);
    va_end(arguments);
    if (length > 0)
        out->used += (size_t)length;
    if (out->used >= sizeof out->line)
        out->used = sizeof out->line - 1;
}

/* Returns ", " before all items except the first. */
static const char *comma(const page *so_far)
{
    return so_far->used > 0 ? ", " : "";
}

static void clear(page *out)
{
    out->line[0] = '\0';
    out->used    = 0;
}

/* Prints the line after its label, and starts a new one. */
static void show(page *out, const char *label)
{
    printf("  %s%-*s%s%s\n", out->colors.dim, LABEL, label, out->colors.plain, out->line);
    clear(out);
}

/* Formats bytes, such as "237.0 MiB". */
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

static void print_title(page *out, const hl_model_info *info, const char *path)
{
    char name[36];

    snprintf(name, sizeof name, "%s", hl_base_name(path));
    add(out, "%s, family %s, %s", info->is_encoder ? "encoder" : "decoder", info->family,
        info->format);
    const char *shown = hl_shown(name);
    printf("%s%s%s%*s\n\n", out->colors.bold, shown, out->colors.plain,
           WIDTH - (int)hl_printable_width(shown), out->line);
    clear(out);
}

/* ------------------------------------------------------------ how it is stored */

static void print_storage(page *out, const hl_model *model)
{
    struct {
        int64_t n_tensors;
        size_t  n_bytes;
    } sums[HL_DTYPE_COUNT] = { 0 };
    const char    *label   = "stored as";
    char           bytes[32];
    hl_tensor_info tensor;

    for (int64_t i = 0; hl_model_get_tensor(&tensor, model, i) == HL_OK; i++) {
        sums[tensor.dtype].n_tensors++;
        sums[tensor.dtype].n_bytes += tensor.n_bytes;
    }
    add(out, "%s", hl_grouped(hl_model_get_info(model)->n_params));
    show(out, "parameters");
    for (int dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        if (sums[dtype].n_tensors == 0)
            continue;
        add(out, "%-8s%5lld tensor%s%12s", hl_dtype_name((hl_dtype)dtype),
            (long long)sums[dtype].n_tensors, sums[dtype].n_tensors == 1 ? " " : "s",
            as_bytes(bytes, sums[dtype].n_bytes));
        show(out, label);
        label = "";
    }
}

/* ---------------------------------------------------------------------- layers */

static bool layers_equal(const hl_layer_info *a, const hl_layer_info *b)
{
    return a->n_heads == b->n_heads && strcmp(a->mixer, b->mixer) == 0 &&
           a->n_kv_heads == b->n_kv_heads && a->d_mlp == b->d_mlp && a->n_experts == b->n_experts &&
           a->window == b->window && a->has_rope == b->has_rope && a->rope_base == b->rope_base;
}

static bool is_like(const hl_model *model, int64_t index, const hl_layer_info *layer)
{
    hl_layer_info other;
    return hl_model_get_layer(&other, model, index) == HL_OK && layers_equal(&other, layer);
}

/* Finds the first layer in [begin, end) that is, or is not, like this one; `end` if there is
 * none. */
static int64_t find_layer(const hl_model *model, int64_t begin, int64_t end,
                          const hl_layer_info *layer, bool like)
{
    while (begin < end && is_like(model, begin, layer) != like)
        begin++;
    return begin;
}

/* Adds how a layer differs from the model's description: "window of 12, no rope". */
static void add_layer(page *out, const hl_model_info *info, const hl_layer_info *layer)
{
    if (layer->n_heads == 0)
        add(out, "%s", layer->mixer[0] != '\0' ? layer->mixer : "no attention");
    else if (layer->window > 0)
        add(out, "window of %lld", (long long)layer->window);
    else
        add(out, "all keys");
    if (layer->n_heads > 0 && layer->mixer[0] != '\0')
        add(out, ", %s beside attention", layer->mixer);
    if (layer->n_heads > 0 && layer->n_heads != info->n_heads)
        add(out, ", %lld heads", (long long)layer->n_heads);
    if (layer->n_heads > 0 && layer->n_kv_heads != info->n_kv_heads)
        add(out, ", %lld KV heads", (long long)layer->n_kv_heads);
    if (layer->n_heads > 0 && info->rope[0] != '\0' && !layer->has_rope)
        add(out, ", no RoPE");
    if (layer->has_rope && layer->rope_base != info->rope_base)
        add(out, ", theta %.10g", layer->rope_base);
    if (layer->d_mlp == 0)
        add(out, ", no MLP");
    else if (layer->n_experts == 0 && info->n_experts > 0)
        add(out, ", no experts");
    else if (layer->n_experts == 0 && layer->d_mlp != info->d_mlp)
        add(out, ", MLP of %lld", (long long)layer->d_mlp);
}

/* Adds the numbers of the layers like this one: "0, 2, 4-7". */
static void add_places(page *out, const hl_model *model, const hl_layer_info *like)
{
    int64_t end   = hl_model_get_info(model)->n_layers;
    size_t  start = out->used;

    for (int64_t i = find_layer(model, 0, end, like, true); i < end;) {
        int64_t past = find_layer(model, i, end, like, false);

        if (out->used - start > 28) {
            add(out, ", ...");
            return;
        }
        add(out, "%s%lld", out->used > start ? ", " : "", (long long)i);
        if (past > i + 1)
            add(out, "-%lld", (long long)past - 1);
        i = find_layer(model, past, end, like, true);
    }
}

/* Prints one line; if layers differ, one per kind. */
static void print_layers(page *out, const hl_model *model)
{
    const hl_model_info *info     = hl_model_get_info(model);
    int64_t              n_layers = info->n_layers;
    int                  n_kinds  = 0;
    hl_layer_info        layer    = { 0 };
    bool                 alike    = hl_model_get_layer(&layer, model, 0) == HL_OK &&
                 find_layer(model, 1, n_layers, &layer, false) >= n_layers;

    add(out, "%lld of width %lld", (long long)n_layers, (long long)info->d_model);
    if (alike && (layer.window > 0 || layer.mixer[0] != '\0')) {
        add(out, ", ");
        add_layer(out, info, &layer);
    }
    show(out, "layers");
    for (int64_t i = 0; !alike && i < n_layers; i++) {
        if (hl_model_get_layer(&layer, model, i) != HL_OK)
            break;
        if (find_layer(model, 0, i, &layer, true) < i || n_kinds++ >= MAX_KINDS)
            continue;
        add_layer(out, info, &layer);
        add(out, ": ");
        add_places(out, model, &layer);
        show(out, "");
    }
    if (n_kinds > MAX_KINDS) {
        add(out, "and %d more kinds", n_kinds - MAX_KINDS);
        show(out, "");
    }
}

/* ----------------------------------------------------------------------- parts */

static void print_parts(page *out, const hl_model_info *info)
{
    add(out, "%lld heads \u00d7 %lld dimensions", (long long)info->n_heads,
        (long long)info->d_head);
    if (info->n_kv_heads != info->n_heads)
        add(out, ", sharing %lld KV head%s", (long long)info->n_kv_heads,
            info->n_kv_heads == 1 ? "" : "s");
    if (info->has_sinks)
        add(out, ", with learned sinks");
    show(out, "heads");

    if (info->d_mlp > 0)
        add(out, "%lld", (long long)info->d_mlp);
    if (info->n_experts > 0)
        add(out, "%s%lld experts of %lld, %lld per token", comma(out), (long long)info->n_experts,
            (long long)info->d_expert, (long long)info->n_experts_used);
    add(out, ", %s%s", info->activation, info->is_gated ? ", gated" : "");
    show(out, "MLP");

    add(out, "%s %s attention and MLP%s", info->norm, info->norm_place,
        strcmp(info->residual, "parallel") == 0 ? ", which run in parallel" : "");
    show(out, "norms");

    add(out, "%s", info->position);
    if (info->rope[0] != '\0')
        add(out, ", theta %.10g", info->rope_base);
    if (info->rope[0] != '\0' && strcmp(info->rope, "default") != 0)
        add(out, ", %s", info->rope);
    show(out, "positions");
    if (info->n_ctx > 0) {
        add(out, "%s tokens", hl_grouped(info->n_ctx));
        show(out, "context");
    }

    add(out, "%s", hl_grouped(info->d_vocab));
    if (!info->has_head)
        add(out, ", no output head: no logits, no loss");
    else if (!info->is_encoder)
        add(out, ", the output head is %s",
            info->is_tied ? "the embedding" : "a matrix of its own");
    show(out, "vocabulary");
}

/* ------------------------------------------------------------------- tokenizer */

static void print_tokenizer(page *out, const info_request *request)
{
    if (request->tokenizer != NULL)
        add(out, "%s, %s pieces", hl_tokenizer_kind(request->tokenizer),
            hl_grouped((int64_t)hl_tokenizer_size(request->tokenizer)));
    else if (request->problem[0] != '\0')
        add(out, "cannot be read: %.120s", hl_shown(request->problem));
    else
        add(out, "none found; name one with --tokenizer PATH");
    show(out, "tokenizer");
}

/* Adds the printable piece of an id: " <|endoftext|>". */
static void add_piece(page *out, const hl_tokenizer *tokenizer, int64_t id)
{
    size_t      n_bytes = 0;
    const char *piece   = tokenizer != NULL ? hl_tokenizer_piece(tokenizer, id, &n_bytes) : NULL;

    if (piece == NULL || n_bytes == 0 || n_bytes > 32)
        return;
    HL_HELD(free) char *shown = hl_printable_text(piece, n_bytes);
    add(out, " %s", shown != NULL ? shown : "");
}

static void print_tokens(page *out, const info_request *request)
{
    const hl_model_info *info = hl_model_get_info(request->model);

    if (info->bos_id >= 0) {
        add(out, "begin %lld", (long long)info->bos_id);
        add_piece(out, request->tokenizer, info->bos_id);
    }
    for (int i = 0; i < info->n_eos_ids && out->used < 40; i++) {
        add(out, "%s%s%lld", comma(out), i == 0 ? "end " : "", (long long)info->eos_ids[i]);
        add_piece(out, request->tokenizer, info->eos_ids[i]);
    }
    if (info->pad_id >= 0)
        add(out, "%spadding %lld", comma(out), (long long)info->pad_id);
    if (info->n_foreign_ids > 0)
        add(out, "%snot used: %lld, beyond the vocabulary", comma(out),
            (long long)info->foreign_ids[0]);
    if (out->used > 0)
        show(out, "tokens");
}

static void print_memory(page *out, const info_request *request)
{
    const hl_model_info     *info   = hl_model_get_info(request->model);
    const hl_session_memory *memory = &request->memory;
    char                     a[32], b[32], c[32], d[32];

    if (info->kv_bytes_f16 > 0) {
        add(out, "%s per token in f16, %s in f32", as_bytes(a, info->kv_bytes_f16),
            as_bytes(b, info->kv_bytes_f32));
        show(out, "KV cache");
    }
    add(out, "%s for %s tokens: weights %s, %scache %s, work %s",
        as_bytes(a, info->tensor_bytes + memory->cache_bytes + memory->work_bytes),
        hl_grouped(memory->n_ctx), as_bytes(b, info->tensor_bytes), info->is_encoder ? "" : "f16 ",
        as_bytes(c, memory->cache_bytes), as_bytes(d, memory->work_bytes));
    show(out, "memory");
}

/* --------------------------------------------------------------------- tensors */

static hl_status make_tensors(hl_sheet **out, const hl_model *model)
{
    hl_sheet      *table = NULL;
    hl_tensor_info tensor;

    HL_NEED(hl_sheet_new(&table, "tensors", "Tensors, as they are stored",
                         "role:t is_bias:b dtype:t shape:l n_bytes:i name:t"));
    for (int64_t i = 0; hl_model_get_tensor(&tensor, model, i) == HL_OK; i++) {
        hl_sheet_put_text(table, "%s", tensor.role);
        hl_sheet_put_bool(table, tensor.is_bias);
        hl_sheet_put_text(table, "%s", hl_dtype_name(tensor.dtype));
        hl_sheet_put_list(table, tensor.shape, (size_t)tensor.n_dims);
        hl_sheet_put_int(table, (int64_t)tensor.n_bytes);
        hl_sheet_put_text(table, "%s", tensor.name);
    }
    return hl_sheet_hand_over(out, table, HL_OK);
}

static hl_status print_tensors(const hl_model *model, hl_sheet_format format)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

    HL_NEED(make_tensors(&table, model));
    return hl_print_sheet(table, format);
}

static hl_status print_screen(const info_request *request)
{
    const hl_model_info *info = hl_model_get_info(request->model);
    page                 out  = { .colors = hl_terminal_colors(stdout) };

    print_title(&out, info, request->path);
    print_storage(&out, request->model);
    print_layers(&out, request->model);
    print_parts(&out, info);
    print_tokenizer(&out, request);
    print_tokens(&out, request);
    print_memory(&out, request);
    if (!request->tensors)
        return HL_OK;
    printf("\n");
    return print_tensors(request->model, HL_SHEET_TEXT);
}

/* ------------------------------------------------------------------------ JSON */

/* A member of one of the library's structs, under its own name. */
#define MEMBER(of, name) HL_IS(#name, (of)->name)

static json_t *id_array(const int64_t *ids, int n_ids)
{
    json_t *array = json_array();

    for (int i = 0; i < n_ids; i++)
        json_array_append_new(array, json_integer(ids[i]));
    return array;
}

static json_t *layer_array(const hl_model *model)
{
    json_t       *array = json_array();
    hl_layer_info found;

    for (int64_t i = 0; hl_model_get_layer(&found, model, i) == HL_OK; i++) {
        const hl_layer_info *layer = &found;
        json_array_append_new(array, HL_OBJECT(MEMBER(layer, n_heads), MEMBER(layer, n_kv_heads),
                                               MEMBER(layer, d_mlp), MEMBER(layer, n_experts),
                                               MEMBER(layer, window), MEMBER(layer, has_rope),
                                               MEMBER(layer, rope_base)));
    }
    return array;
}

/* Makes an object with the number of tensors and bytes for every dtype in use. */
static json_t *dtype_object(const hl_model *model)
{
    json_t        *object = json_object();
    hl_tensor_info tensor;

    for (int64_t i = 0; hl_model_get_tensor(&tensor, model, i) == HL_OK; i++) {
        const char *name  = hl_dtype_name(tensor.dtype);
        json_t     *entry = json_object_get(object, name);
        json_int_t  count = json_integer_value(json_object_get(entry, "n_tensors"));
        json_int_t  bytes = json_integer_value(json_object_get(entry, "n_bytes"));
        json_object_set_new(object, name,
                            HL_OBJECT(HL_IS("n_tensors", count + 1),
                                      HL_IS("n_bytes", bytes + (json_int_t)tensor.n_bytes)));
    }
    return object;
}

/* Makes an object of special tokens; a piece that is not UTF-8 becomes null. */
static json_t *special_object(const hl_tokenizer *tokenizer)
{
    static const char *const names[HL_SPECIAL_COUNT] = { "bos", "eos", "unk",  "sep",
                                                         "pad", "cls", "mask", "eot" };
    json_t                  *object                  = json_object();

    for (int i = 0; i < HL_SPECIAL_COUNT; i++) {
        int64_t     id      = hl_tokenizer_special(tokenizer, (hl_special)i);
        size_t      n_bytes = 0;
        const char *piece   = id >= 0 ? hl_tokenizer_piece(tokenizer, id, &n_bytes) : NULL;
        json_t     *text    = piece != NULL ? json_stringn(piece, n_bytes) : NULL;
        if (id >= 0)
            json_object_set_new(
                object, names[i],
                HL_OBJECT(HL_IS("id", id), HL_IS("piece", text != NULL ? text : json_null())));
    }
    return object;
}

static json_t *tokenizer_object(const hl_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return json_null();
    return HL_OBJECT(HL_IS("kind", hl_tokenizer_kind(tokenizer)),
                     HL_IS("size", hl_tokenizer_size(tokenizer)),
                     HL_IS("special", special_object(tokenizer)));
}

static hl_status print_json(const info_request *request)
{
    const hl_model_info     *info   = hl_model_get_info(request->model);
    const hl_session_memory *memory = &request->memory;
    hl_sheet                *table  = NULL;

    if (request->tensors)
        HL_NEED(make_tensors(&table, request->model));
    hl_print_json(
        HL_OBJECT(HL_IS("path", request->path), MEMBER(info, family), MEMBER(info, format),
                  MEMBER(info, n_params), MEMBER(info, n_layers), MEMBER(info, n_heads),
                  MEMBER(info, n_kv_heads), MEMBER(info, d_model), MEMBER(info, d_head),
                  MEMBER(info, d_mlp), MEMBER(info, d_vocab), MEMBER(info, n_ctx),
                  MEMBER(info, n_experts), MEMBER(info, n_experts_used), MEMBER(info, d_expert),
                  MEMBER(info, n_tensors), MEMBER(info, tensor_bytes), MEMBER(info, kv_bytes_f32),
                  MEMBER(info, kv_bytes_f16),
                  HL_IS("memory", HL_OBJECT(MEMBER(memory, n_ctx), MEMBER(memory, cache_bytes),
                                            MEMBER(memory, work_bytes))),
                  MEMBER(info, is_encoder), MEMBER(info, norm), MEMBER(info, norm_place),
                  MEMBER(info, residual), MEMBER(info, position), MEMBER(info, rope),
                  MEMBER(info, rope_base), MEMBER(info, activation), MEMBER(info, is_gated),
                  MEMBER(info, is_tied), MEMBER(info, has_head), MEMBER(info, has_sinks),
                  MEMBER(info, bos_id), MEMBER(info, pad_id),
                  HL_IS("eos_ids", id_array(info->eos_ids, info->n_eos_ids)),
                  HL_IS("foreign_ids", id_array(info->foreign_ids, info->n_foreign_ids)),
                  HL_IS("dtypes", dtype_object(request->model)),
                  HL_IS("layers", layer_array(request->model)),
                  HL_IS("tokenizer", tokenizer_object(request->tokenizer)),
                  HL_IS("tensors", hl_value_rows(table))),
        JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    return HL_OK;
}

/* ----------------------------------------------------------------- the command */

/* Opens the requested tokenizer, or the model's own.  If the model's own cannot be read, the model
 * is shown with the problem in its place. */
static hl_status open_tokenizer(hl_tokenizer **out, info_request *request)
{
    const char *asked  = request->tokenizer_path;
    hl_status   status = hl_tokenizer_option(out, request->model, asked);

    if (status == HL_OK || asked != NULL || status == HL_NO_MEMORY || status == HL_IO)
        return status;
    if (status != HL_NOT_FOUND)
        snprintf(request->problem, sizeof request->problem, "%s", hl_error_message());
    return HL_OK;
}

/* Computes the memory of a session with a cache in F16; without logits if the model has no output
 * head. */
static hl_status measure_memory(info_request *request)
{
    int64_t            n_ctx   = hl_model_get_info(request->model)->n_ctx;
    hl_session_options options = { .n_ctx       = request->n_ctx != 0 ? request->n_ctx : n_ctx,
                                   .wants       = HL_WANT_LAST_LOGITS,
                                   .cache_dtype = HL_DTYPE_F16,
                                   .n_threads   = request->common.n_threads };
    hl_status          status  = hl_session_measure(&request->memory, request->model, &options);

    if (status != HL_UNSUPPORTED)
        return status;
    options.wants = 0;
    return hl_session_measure(&request->memory, request->model, &options);
}

static hl_status show_info(info_request *request)
{
    HL_HELD(hl_model_close) hl_model         *model     = NULL;
    HL_HELD(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;

    HL_NEED(hl_model_open(&model, request->path));
    request->model = model;
    HL_NEED(open_tokenizer(&tokenizer, request));
    request->tokenizer = tokenizer;
    HL_NEED(measure_memory(request));
    if (request->common.csv)
        return print_tensors(model, HL_SHEET_CSV);
    if (request->common.json)
        return print_json(request);
    return request->common.quiet ? HL_OK : print_screen(request);
}

/* ------------------------------------------------------------------- the machine */

static void print_rates(page *out, const char *label, int n_threads, const hl_machine_rates *rates)
{
    add(out, "%d thread%s: %.0f GFLOP/s of multiply-adds, %.1f GB/s of memory", n_threads,
        n_threads == 1 ? "" : "s", rates->gflops, rates->gigabytes);
    show(out, label);
}

static void print_machine(const hl_machine *machine)
{
    page out = { .colors = hl_terminal_colors(stdout) };

    add(&out, "%s", machine->cpu[0] != '\0' ? machine->cpu : "unknown");
    show(&out, "processor");
    add(&out, "%s", machine->instructions);
    show(&out, "instructions");
    add(&out, "%d cores", machine->n_cores);
    if (machine->quota_cores > 0)
        add(&out, ", %d by the control group", machine->quota_cores);
    add(&out, ", %d threads used", machine->n_threads);
    show(&out, "threads");
    for (int level = 0; level < 3; level++) {
        if (machine->cache_bytes[level] > 0)
            add(&out, "%sL%d %lld KiB", comma(&out), level + 1,
                (long long)machine->cache_bytes[level] / 1024);
    }
    show(&out, "caches");
    add(&out, "%.1f GiB free", (double)machine->free_bytes / (1 << 30));
    show(&out, "memory");
    print_rates(&out, "rates", 1, &machine->one);
    print_rates(&out, "", machine->n_threads, &machine->all);
    add(&out, "%s; long texts: %s; --math", machine->backend, machine->products);
    for (int math = HL_MATH_F32; math < HL_MATH_COUNT; math++) {
        if (machine->has_math[math])
            add(&out, " %s", hl_math_name((hl_math)math));
    }
    show(&out, "back end");
}

static json_t *rates_as_json(const hl_machine_rates *rates)
{
    return json_pack("{sfsf}", "gflops", rates->gflops, "gigabytes_per_second", rates->gigabytes);
}

static void print_machine_json(const hl_machine *machine)
{
    json_t *math = json_array();

    for (int i = HL_MATH_F32; i < HL_MATH_COUNT; i++) {
        if (machine->has_math[i])
            json_array_append_new(math, json_string(hl_math_name((hl_math)i)));
    }
    json_t *all = json_pack(
        "{ss ss si si si s[III] sI ss ss so so so}", "cpu", machine->cpu, "instructions",
        machine->instructions, "cores", machine->n_cores, "quota_cores", machine->quota_cores,
        "threads", machine->n_threads, "cache_bytes", (json_int_t)machine->cache_bytes[0],
        (json_int_t)machine->cache_bytes[1], (json_int_t)machine->cache_bytes[2], "free_bytes",
        (json_int_t)machine->free_bytes, "backend", machine->backend, "products", machine->products,
        "math", math, "one_thread", rates_as_json(&machine->one), "all_threads",
        rates_as_json(&machine->all));
    json_dumpf(all, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(all);
}

static hl_status show_machine(const info_request *request)
{
    hl_machine machine;

    HL_NEED(hl_machine_probe(&machine, request->common.n_threads));
    if (request->common.json)
        print_machine_json(&machine);
    else if (!request->common.quiet)
        print_machine(&machine);
    return HL_OK;
}

int hl_command_info(int argc, char **argv)
{
    info_request request = { 0 };
    hl_arguments rest;

    hl_option options[] = {
        HL_FLAG("tensors", 't', &request.tensors, "list every tensor"),
        HL_CSV_OPTION(&request.common, "print the list of --tensors as CSV"),
        HL_INT("context", 'c', &request.n_ctx, "N",
               "print the memory that N tokens take (the model's context)", 1, 1 << 30),
        HL_TOKENIZER_OPTION(&request.tokenizer_path),
        HL_FLAG("machine", 0, &request.machine,
                "describe this machine instead: rates, caches, what is used"),
        { 0 },
    };
    hl_usage usage = {
        "info", "MODEL | --machine",
        "Describes a model: family, shape, parameters, tensor types, tokenizer, and the\n"
        "memory that running it takes.  MODEL is a Hugging Face folder or a .safetensors\n"
        "file in it, a .gguf file, or a llama2.c .bin.",
        options
    };

    HL_PASS(hl_options_parse(&rest, &request.common, &usage, argc, argv));
    if (request.machine && rest.count > 0)
        return hl_options_refuse(&usage, "--machine takes no MODEL; got %s", rest.items[0]);
    if (request.common.csv && (request.machine || !request.tensors))
        return hl_options_refuse(&usage, "--csv needs --tensors: it prints one line per tensor");
    if (request.machine)
        return hl_finish("info", show_machine(&request));
    if (rest.count != 1)
        return hl_options_refuse(&usage, "give one MODEL; got %d", rest.count);
    request.path = rest.items[0];
    return hl_finish("info", show_info(&request));
}
