/* trace_file.c - traces in files (doc/trace.md): tensors in safetensors, or lines of JSON.
 *
 * Tensor files of format 1 have only generated tokens, and neither kinds, spikes, texts nor rows
 * beyond the first three: these are then NaN or empty.
 *
 * The first line of a JSON file describes the trace; each further line is one token.  Numbers have
 * enough digits to read back the same float or double; NaN is null.  The file is untrusted: the
 * size in the first line is accepted only if the rest of the file could hold that many numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "formats/safetensors.h"
#include "stats/trace_parts.h"

#define FORMAT     "headlight trace 2"
#define FORMAT_OLD "headlight trace 1"

/* More than any context has, and few enough to avoid overflow. */
#define MAX_TOKENS ((int64_t)1 << 31)
#define MAX_CELLS  ((int64_t)1 << 24)

enum { OLD_NUMBERS = 3, OLD_ROWS = 3 };

/* The British spelling that traces had before; files with it are still read. */

/* Names of the tensors in files, and of the members in lines of JSON. */
static const char *number_name(int number)
{
    static const char *const names[HL_TRACE_N_NUMBERS] = { "logprob", "vocabulary.entropy",
                                                           "vocabulary.varentropy", "spike" };
    return names[number];
}

static const char *row_name(hl_trace_rows which)
{
    static const char *const names[HL_N_TRACE_ROWS] = { "entropy",          "normalized",
                                                        "change",           "renyi2",
                                                        "entropy_nosink",   "lookback.prompt",
                                                        "lookback.special", "lookback.generated",
                                                        "lookback.context" };
    return names[which];
}

/* The name that earlier versions gave to rows; NULL: the same as now. */
static const char *old_row_name(const char *name)
{
    if (strcmp(name, row_name(HL_TRACE_NORMALIZED)) == 0)
        return "normalised";
    return strcmp(name, row_name(HL_TRACE_ENTROPY_NOSINK)) == 0 ? "nosink" : NULL;
}

/* ---------------------------------------------------------- writing tensors */

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
    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;

    HL_NEED(hl_safetensors_writer_new(&writer));
    hl_safetensors_add_metadata(writer, "format", FORMAT);
    add_tensor(writer, "tokens", HL_DTYPE_I64, trace->ids, trace, 1);
    add_tensor(writer, "kinds", HL_DTYPE_U8, trace->kinds, trace, 1);
    add_tensor(writer, "entities", HL_DTYPE_U8, trace->entities, trace, 1);
    add_text(writer, trace);
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        add_tensor(writer, number_name(i), HL_DTYPE_F64, trace->numbers[i], trace, 1);
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        add_tensor(writer, row_name((hl_trace_rows)i), HL_DTYPE_F32, trace->rows[i], trace, 3);
    return hl_safetensors_write(writer, path);
}

/* ------------------------------------------------------------ writing lines */

static void put(hl_writer *writer, const char *text)
{
    hl_writer_write(writer, text, strlen(text));
}

static void put_number(hl_writer *writer, double value, int n_digits)
{
    char text[HL_JSON_NUMBER];

    put(writer, hl_json_number_text(text, value, n_digits));
}

/* Writes text escaped for JSON; invalid bytes become U+FFFD. */
static void put_text(hl_writer *writer, const char *text, size_t n_bytes)
{
    put(writer, "\"");
    for (size_t at = 0; at < n_bytes;) {
        unsigned char byte   = (unsigned char)text[at];
        size_t        length = hl_utf8_length(text + at, n_bytes - at);
        char          escape[8];

        if (length == 0) {
            put(writer, "\xef\xbf\xbd");
            length = 1;
        } else if (byte == '"' || byte == '\\') {
            hl_writer_write(writer, (const char[]){ '\\', (char)byte }, 2);
        } else if (byte < 0x20 || byte == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", byte);
            put(writer, escape);
        } else {
            hl_writer_write(writer, text + at, length);
        }
        at += length;
    }
    put(writer, "\"");
}

/* Writes [[...], ...], one list per layer; null if all values are NaN. */
static void put_cells(hl_writer *writer, const hl_trace *trace, int64_t token, hl_trace_rows which)
{
    const float *cells = hl_trace_at(trace, token, which);

    if (isnan(hl_trace_mean(trace, token, which))) {
        put(writer, "null");
        return;
    }
    for (int64_t i = 0; i < hl_trace_cells(trace); i++) {
        int64_t head = i % trace->n_heads;
        put(writer, i == 0 ? "[[" : head == 0 ? "], [" : ", ");
        put_number(writer, (double)cells[i], 9);
    }
    put(writer, "]]");
}

static void put_token(hl_writer *writer, const hl_trace *trace, int64_t token)
{
    hl_traced_token about = hl_trace_describe(trace, token);
    char            start[128];

    snprintf(start, sizeof start,
             "{\"id\": %" PRId64 ", \"kind\": \"%s\", \"text\": ", trace->ids[token],
             hl_token_kind_name(about.kind));
    put(writer, start);
    put_text(writer, about.text, about.n_bytes);
    put(writer, about.is_entity ? ", \"entity\": true" : ", \"entity\": false");
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++) {
        put(writer, ", \"");
        put(writer, number_name(i));
        put(writer, "\": ");
        put_number(writer, trace->numbers[i][token], 17);
    }
    for (int i = 0; i < HL_N_TRACE_ROWS; i++) {
        put(writer, ", \"");
        put(writer, row_name((hl_trace_rows)i));
        put(writer, "\": ");
        put_cells(writer, trace, token, (hl_trace_rows)i);
    }
    put(writer, "}\n");
}

static hl_status write_lines(const hl_trace *trace, const char *path)
{
    hl_writer *writer = NULL;
    char       start[160];

    HL_NEED(hl_writer_open(&writer, path));
    snprintf(start, sizeof start,
             "{\"format\": \"%s\", \"tokens\": %" PRId64 ", \"layers\": %" PRId64
             ", \"heads\": %" PRId64 "}\n",
             FORMAT, trace->n_tokens, trace->n_layers, trace->n_heads);
    put(writer, start);
    for (int64_t token = 0; token < trace->n_tokens; token++)
        put_token(writer, trace, token);
    return hl_writer_finish(writer);
}

/* ---------------------------------------------------------- reading tensors */

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
    if (*out == NULL && old_row_name(name) != NULL)
        *out = hl_safetensors_find(r->file, old_row_name(name));
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

    r->is_old = format != NULL && strcmp(format, FORMAT_OLD) == 0;
    if (r->is_old || (format != NULL && strcmp(format, FORMAT) == 0))
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: its format is '%s', wanted '%s' or '%s'", r->where,
                   format != NULL ? format : "", FORMAT, FORMAT_OLD);
}

/* Reads the shape of the trace from that of its rows. */
static hl_status read_shape(reading *r)
{
    const hl_tensor *rows = NULL;

    HL_NEED(find(&rows, r, row_name(HL_TRACE_ENTROPY), HL_DTYPE_F32, 3));
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
                             row_name(HL_TRACE_ENTROPY));
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

/* The ends of tokens' texts must be increasing, and the last one must be the end of the text. */
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

/* Fills in what format 1 does not have. */
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
        HL_TRY(read_tensor(r.trace->numbers[i], &r, number_name(i), HL_DTYPE_F64, 1));
    for (int i = 0; i < (r.is_old ? OLD_ROWS : (int)HL_N_TRACE_ROWS); i++)
        HL_TRY(read_tensor(r.trace->rows[i], &r, row_name((hl_trace_rows)i), HL_DTYPE_F32, 3));
    *out    = r.trace;
    r.trace = NULL;

done:
    hl_trace_free(r.trace);
    return status;
}

/* ------------------------------------------------------------ reading lines */

typedef struct lines {
    hl_json_lines text;
    hl_trace     *trace;
} lines;

static hl_status parse_shape(int64_t shape[3], const json_t *line, const lines *l)
{
    static const char *const names[3] = { "tokens", "layers", "heads" };
    const char              *format   = NULL;

    HL_NEED(hl_json_get_string(&format, line, "format", l->text.place));
    if (format == NULL || strcmp(format, FORMAT) != 0)
        return hl_fail(HL_BAD_INPUT, "%s: its format is '%.40s', wanted '%s'", l->text.place,
                       format != NULL ? format : "", FORMAT);
    for (int i = 0; i < 3; i++) {
        shape[i] = -1;
        HL_NEED(hl_json_get_int(&shape[i], line, names[i], l->text.place));
    }
    return HL_OK;
}

/* A number takes at least two bytes, and most tokens have nine numbers per head. */
static hl_status parse_beginning(lines *l, const json_t *line)
{
    int64_t shape[3] = { 0 };
    int64_t n_bytes  = l->text.end - l->text.at;

    HL_NEED(parse_shape(shape, line, l));
    if (shape[0] < 0 || shape[1] < 1 || shape[2] < 1 || shape[0] > n_bytes ||
        (shape[0] > 0 &&
         (shape[1] > n_bytes / shape[0] || shape[2] > n_bytes / shape[0] / shape[1])))
        return hl_fail(HL_BAD_INPUT,
                       "%s: %" PRId64 " tokens of %" PRId64 " layers and %" PRId64
                       " heads do not fit into the %" PRId64 " bytes that follow",
                       l->text.place, shape[0], shape[1], shape[2], n_bytes);
    HL_NEED(hl_trace_new(&l->trace, shape[1], shape[2], 0));
    return hl_trace_reserve(l->trace, shape[0]);
}

/* ---------------------------------------------------- reading lines: tokens */

static hl_status parse_number(double *out, const json_t *value, const char *name, const lines *l)
{
    *out = NAN;
    if (value == NULL || json_is_null(value))
        return HL_OK;
    if (!json_is_number(value))
        return hl_fail(HL_BAD_INPUT, "%s: %s has %s, wanted a number or null", l->text.place, name,
                       hl_json_kind(value));
    *out = json_number_value(value);
    return HL_OK;
}

/* Parses [[...], ...]; null leaves the row NaN, as new rows are. */
static hl_status parse_cells(const lines *l, const json_t *line, hl_trace_rows which)
{
    const char   *name  = row_name(which);
    const json_t *value = json_object_get(line, name);
    float        *cells = hl_trace_at(l->trace, l->trace->n_tokens - 1, which);

    if (value == NULL && old_row_name(name) != NULL)
        value = json_object_get(line, old_row_name(name));
    if (value == NULL || json_is_null(value))
        return HL_OK;
    for (int64_t layer = 0; layer < l->trace->n_layers; layer++) {
        const json_t *heads = json_array_get(value, (size_t)layer);

        if (json_array_size(value) != (size_t)l->trace->n_layers ||
            json_array_size(heads) != (size_t)l->trace->n_heads)
            return hl_fail(HL_BAD_INPUT,
                           "%s: %s is not %" PRId64 " lists of %" PRId64 " numbers each",
                           l->text.place, name, l->trace->n_layers, l->trace->n_heads);
        for (int64_t head = 0; head < l->trace->n_heads; head++) {
            double number = NAN;
            HL_NEED(parse_number(&number, json_array_get(heads, (size_t)head), name, l));
            cells[layer * l->trace->n_heads + head] = (float)number;
        }
    }
    return HL_OK;
}

static hl_status parse_kind(hl_token_kind *out, const json_t *line, const lines *l)
{
    const char *name   = NULL;
    hl_status   status = hl_json_get_string(&name, line, "kind", l->text.place);

    for (int kind = 0; kind < HL_N_KINDS && status == HL_OK && name != NULL; kind++) {
        *out = (hl_token_kind)kind;
        if (strcmp(name, hl_token_kind_name(*out)) == 0)
            return HL_OK;
    }
    return status != HL_OK ? status
                           : hl_fail(HL_BAD_INPUT, "%s: no kind of token is called '%.20s'",
                                     l->text.place, name != NULL ? name : "");
}

static hl_status parse_token(lines *l, const json_t *line)
{
    hl_token_kind kind      = HL_KIND_PROMPT;
    int64_t       id        = -1;
    bool          is_entity = false;
    const json_t *text      = json_object_get(line, "text");

    HL_NEED(hl_json_get_int(&id, line, "id", l->text.place));
    HL_NEED(hl_json_get_bool(&is_entity, line, "entity", l->text.place));
    if (text != NULL && !json_is_null(text) && !json_is_string(text))
        return hl_fail(HL_BAD_INPUT, "%s: 'text' is %s, wanted a string", l->text.place,
                       hl_json_kind(text));
    HL_NEED(parse_kind(&kind, line, l));
    HL_NEED(hl_trace_push(l->trace, id, kind));
    HL_NEED(hl_trace_append_text(l->trace, json_string_value(text), json_string_length(text)));
    l->trace->entities[l->trace->n_tokens - 1] = is_entity;
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++) {
        const char *name = number_name(i);
        HL_NEED(parse_number(&l->trace->numbers[i][l->trace->n_tokens - 1],
                             json_object_get(line, name), name, l));
    }
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        HL_NEED(parse_cells(l, line, (hl_trace_rows)i));
    return HL_OK;
}

hl_status hl_trace_parse_lines(hl_trace **out, const char *bytes, size_t n_bytes, const char *where)
{
    hl_status status = HL_OK;
    lines l = { .text = { .at = bytes, .end = bytes + n_bytes, .where = where, .with_nul = true } };
    json_t *line = NULL;

    *out = NULL;
    HL_TRY(hl_json_lines_next(&line, &l.text));
    HL_TRY(parse_beginning(&l, line));
    for (int64_t n_tokens = l.trace->capacity; l.trace->n_tokens < n_tokens;) {
        json_decref(line);
        HL_TRY(hl_json_lines_next(&line, &l.text));
        HL_TRY(parse_token(&l, line));
    }
    if (l.text.at != l.text.end) {
        status = hl_fail(HL_BAD_INPUT, "%s: continues after its %" PRId64 " tokens", where,
                         l.trace->n_tokens);
        goto done;
    }
    *out    = l.trace;
    l.trace = NULL;

done:
    json_decref(line);
    hl_trace_free(l.trace);
    return status;
}

/* -------------------------------------------------------------------- files */

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
        return write_lines(trace, path);
    return write_tensors(trace, path);
}

static hl_status load_lines(hl_trace **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    HL_NEED(hl_file_map(&file, path));
    return hl_trace_parse_lines(out, (const char *)file.bytes, file.n_bytes, path);
}

hl_status hl_trace_load(hl_trace **out, const char *path)
{
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file = NULL;

    *out = NULL;
    if (is_lines(path))
        return load_lines(out, path);
    HL_NEED(hl_safetensors_open(&file, path));
    return read_trace(out, file, path);
}

hl_status hl_trace_parse(hl_trace **out, const uint8_t *bytes, size_t n_bytes, const char *where)
{
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file = NULL;

    *out = NULL;
    HL_NEED(hl_safetensors_parse(&file, bytes, n_bytes, where));
    return read_trace(out, file, where);
}
