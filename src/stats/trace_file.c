/* trace_file.c - a trace as a safetensors file (doc/trace.md).
 *
 * Files of format 1 have generated tokens only, and neither kinds, spikes and texts nor rows
 * beyond the first three: what they lack is NaN or empty. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"
#include "stats/trace.h"

/* More tokens than any context, fewer than would overflow. */
#define MAX_TOKENS ((int64_t)1 << 31)
#define MAX_CELLS  ((int64_t)1 << 24)

enum { OLD_NUMBERS = 3, OLD_ROWS = 3 };

const char *hl_trace_number_name(int number)
{
    static const char *const names[HL_TRACE_N_NUMBERS] = { "logprob", "vocabulary.entropy",
                                                           "vocabulary.varentropy", "spike" };
    return names[number];
}

const char *hl_trace_row_name(hl_trace_rows which)
{
    static const char *const names[HL_N_TRACE_ROWS] = { "entropy",          "normalised",
                                                        "change",           "renyi2",
                                                        "nosink",           "lookback.prompt",
                                                        "lookback.special", "lookback.generated",
                                                        "lookback.context" };
    return names[which];
}

/* ------------------------------------------------------------------ writing */

static void add_tensor(hl_safetensors_writer *writer, const char *name, hl_dtype dtype,
                       const void *data, const hl_trace *trace, int n_dims)
{
    hl_tensor tensor = { .name   = name,
                         .dtype  = dtype,
                         .n_dims = n_dims,
                         .shape  = { trace->n_tokens, trace->n_layers, trace->n_heads },
                         .data   = data };
    int64_t   count  = trace->n_tokens * (n_dims == 3 ? hl_trace_cells(trace) : 1);

    tensor.n_bytes = (size_t)count * (hl_dtype_bits(dtype) / 8);
    hl_safetensors_add(writer, &tensor);
}

static void add_text(hl_safetensors_writer *writer, const hl_trace *trace)
{
    hl_tensor text = { .name    = "text",
                       .dtype   = HL_DTYPE_U8,
                       .n_dims  = 1,
                       .shape   = { (int64_t)trace->n_text },
                       .data    = trace->n_text > 0 ? trace->text : "",
                       .n_bytes = trace->n_text };

    hl_safetensors_add(writer, &text);
    add_tensor(writer, "text.ends", HL_DTYPE_I64, trace->ends, trace, 1);
}

static hl_status write_tensors(const hl_trace *trace, const char *path)
{
    hl_status              status = HL_OK;
    hl_safetensors_writer *writer = NULL;

    HL_TRY(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "format", HL_TRACE_FORMAT);
    add_tensor(writer, "tokens", HL_DTYPE_I64, trace->ids, trace, 1);
    add_tensor(writer, "kinds", HL_DTYPE_U8, trace->kinds, trace, 1);
    add_tensor(writer, "entities", HL_DTYPE_U8, trace->entities, trace, 1);
    add_text(writer, trace);
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        add_tensor(writer, hl_trace_number_name(i), HL_DTYPE_F64, trace->numbers[i], trace, 1);
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        add_tensor(writer, hl_trace_row_name((hl_trace_rows)i), HL_DTYPE_F32, trace->rows[i], trace,
                   3);
    HL_TRY(hl_safetensors_write(writer, path));

done:
    hl_safetensors_writer_free(writer);
    return status;
}

static bool is_lines(const char *path)
{
    size_t length = strlen(path);

    return length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
}

hl_status hl_trace_write(const hl_trace *trace, const char *path)
{
    if (trace->n_kept > 0 && trace->n_tokens > trace->n_kept)
        return hl_fail(HL_BAD_ARGUMENT, "%s: of %lld tokens only the last %lld were kept", path,
                       (long long)trace->n_tokens, (long long)trace->n_kept);
    if (is_lines(path))
        return hl_trace_write_lines(trace, path);
    return write_tensors(trace, path);
}

/* ------------------------------------------------------------------ reading */

typedef struct reading {
    const hl_safetensors *file;
    const char           *where;
    hl_trace             *trace;
    bool                  is_old;
} reading;

static hl_status find(const hl_tensor **out, const reading *r, const char *name, hl_dtype dtype,
                      int n_dims)
{
    *out = hl_safetensors_find(r->file, name);
    if (*out == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: a trace without tensor '%s'", r->where, name);
    if ((*out)->dtype != dtype || (*out)->n_dims != n_dims)
        return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' is %s with %d dimensions, wanted %s with %d",
                       r->where, name, hl_dtype_name((*out)->dtype), (*out)->n_dims,
                       hl_dtype_name(dtype), n_dims);
    return HL_OK;
}

static hl_status read_format(reading *r)
{
    const char *format = hl_safetensors_metadata(r->file, "format");

    r->is_old = format != NULL && strcmp(format, HL_TRACE_FORMAT_OLD) == 0;
    if (r->is_old || (format != NULL && strcmp(format, HL_TRACE_FORMAT) == 0))
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: its format is '%s', wanted '%s' or '%s'", r->where,
                   format != NULL ? format : "", HL_TRACE_FORMAT, HL_TRACE_FORMAT_OLD);
}

/* The shape of the whole is that of its rows. */
static hl_status read_shape(reading *r)
{
    const hl_tensor *rows = NULL;

    HL_NEED(find(&rows, r, hl_trace_row_name(HL_TRACE_ENTROPY), HL_DTYPE_F32, 3));
    if (rows->shape[0] > MAX_TOKENS || rows->shape[1] < 1 || rows->shape[2] < 1 ||
        rows->shape[1] > MAX_CELLS || rows->shape[2] > MAX_CELLS / rows->shape[1])
        return hl_fail(HL_BAD_INPUT, "%s: %lld tokens of %lld layers and %lld heads", r->where,
                       (long long)rows->shape[0], (long long)rows->shape[1],
                       (long long)rows->shape[2]);
    HL_NEED(hl_trace_new(&r->trace, rows->shape[1], rows->shape[2], 0));
    HL_NEED(hl_trace_reserve(r->trace, rows->shape[0]));
    r->trace->n_tokens = rows->shape[0];
    return HL_OK;
}

static hl_status read_tensor(void *out, const reading *r, const char *name, hl_dtype dtype,
                             int n_dims)
{
    const hl_trace  *trace     = r->trace;
    const int64_t    wanted[3] = { trace->n_tokens, trace->n_layers, trace->n_heads };
    const hl_tensor *tensor    = NULL;
    hl_status        status    = find(&tensor, r, name, dtype, n_dims);

    for (int i = 0; i < n_dims && status == HL_OK; i++) {
        if (tensor->shape[i] != wanted[i])
            status = hl_fail(HL_BAD_INPUT,
                             "%s: dimension %d of tensor '%s' is %lld, wanted %lld as of '%s'",
                             r->where, i, name, (long long)tensor->shape[i], (long long)wanted[i],
                             hl_trace_row_name(HL_TRACE_ENTROPY));
    }
    if (status == HL_OK && trace->n_tokens > 0)
        memcpy(out, tensor->data, tensor->n_bytes);
    return status;
}

static hl_status check_kinds(const reading *r)
{
    for (int64_t i = 0; i < r->trace->n_tokens; i++) {
        if (r->trace->kinds[i] >= HL_N_KINDS)
            return hl_fail(HL_BAD_INPUT, "%s: kinds[%lld] is %d, wanted below %d", r->where,
                           (long long)i, r->trace->kinds[i], HL_N_KINDS);
    }
    return HL_OK;
}

/* Where the texts of tokens end must rise, and end with the text. */
static hl_status check_ends(const reading *r)
{
    int64_t before = 0;

    for (int64_t i = 0; i < r->trace->n_tokens; i++) {
        int64_t end = r->trace->ends[i];

        if (end < before || end > (int64_t)r->trace->n_text)
            return hl_fail(HL_BAD_INPUT, "%s: text.ends[%lld] is %lld, wanted %lld to %zu",
                           r->where, (long long)i, (long long)end, (long long)before,
                           r->trace->n_text);
        before = end;
    }
    return HL_OK;
}

static hl_status read_text(reading *r)
{
    const hl_tensor *text  = NULL;
    hl_trace        *trace = r->trace;

    HL_NEED(find(&text, r, "text", HL_DTYPE_U8, 1));
    HL_NEED(HL_ALLOC(&trace->text, text->n_bytes));
    trace->n_text        = text->n_bytes;
    trace->text_capacity = text->n_bytes;
    if (text->n_bytes > 0)
        memcpy(trace->text, text->data, text->n_bytes);
    HL_NEED(read_tensor(trace->ends, r, "text.ends", HL_DTYPE_I64, 1));
    return check_ends(r);
}

/* What format 1 does not have. */
static void fill_old(hl_trace *trace)
{
    for (int64_t i = 0; i < trace->n_tokens; i++) {
        trace->kinds[i]                   = HL_KIND_GENERATED;
        trace->entities[i]                = 0;
        trace->ends[i]                    = 0;
        trace->numbers[HL_TRACE_SPIKE][i] = NAN;
    }
}

static hl_status read_new(reading *r)
{
    HL_NEED(read_tensor(r->trace->kinds, r, "kinds", HL_DTYPE_U8, 1));
    HL_NEED(check_kinds(r));
    HL_NEED(read_tensor(r->trace->entities, r, "entities", HL_DTYPE_U8, 1));
    return read_text(r);
}

static hl_status read_trace(hl_trace **out, const hl_safetensors *file, const char *where)
{
    hl_status status = HL_OK;
    reading   r      = { .file = file, .where = where };

    HL_TRY(read_format(&r));
    HL_TRY(read_shape(&r));
    HL_TRY(read_tensor(r.trace->ids, &r, "tokens", HL_DTYPE_I64, 1));
    if (r.is_old)
        fill_old(r.trace);
    else
        HL_TRY(read_new(&r));
    for (int i = 0; i < (r.is_old ? OLD_NUMBERS : HL_TRACE_N_NUMBERS); i++)
        HL_TRY(read_tensor(r.trace->numbers[i], &r, hl_trace_number_name(i), HL_DTYPE_F64, 1));
    for (int i = 0; i < (r.is_old ? OLD_ROWS : (int)HL_N_TRACE_ROWS); i++)
        HL_TRY(read_tensor(r.trace->rows[i], &r, hl_trace_row_name((hl_trace_rows)i), HL_DTYPE_F32,
                           3));
    *out    = r.trace;
    r.trace = NULL;

done:
    hl_trace_free(r.trace);
    return status;
}

static hl_status load_lines(hl_trace **out, const char *path)
{
    hl_file   file   = { 0 };
    hl_status status = HL_OK;

    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_trace_parse_lines(out, (const char *)file.bytes, file.n_bytes, path));

done:
    hl_file_unmap(&file);
    return status;
}

hl_status hl_trace_load(hl_trace **out, const char *path)
{
    hl_safetensors *file   = NULL;
    hl_status       status = HL_OK;

    *out = NULL;
    if (is_lines(path))
        return load_lines(out, path);
    HL_TRY(hl_safetensors_open(&file, path));
    HL_TRY(read_trace(out, file, path));

done:
    hl_safetensors_close(file);
    return status;
}

hl_status hl_trace_parse(hl_trace **out, const uint8_t *bytes, size_t n_bytes, const char *where)
{
    hl_safetensors *file   = NULL;
    hl_status       status = HL_OK;

    *out = NULL;
    HL_TRY(hl_safetensors_parse(&file, bytes, n_bytes, where));
    HL_TRY(read_trace(out, file, where));

done:
    hl_safetensors_close(file);
    return status;
}
