/* trace_parse_lines.c - lines of JSON (trace_lines.c, doc/trace.md) back to a trace.
 *
 * Nobody vouches for the file: the first line says how large the trace is, and is believed only if
 * the rest could hold that many numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "stats/trace.h"

typedef struct lines {
    hl_json_lines text;
    hl_trace     *trace;
} lines;

/* ---------------------------------------------------------------------- the first line */

static hl_status read_shape(int64_t shape[3], const json_t *line, const lines *l)
{
    static const char *const names[3] = { "tokens", "layers", "heads" };
    const char              *format   = NULL;

    HL_NEED(hl_json_get_string(&format, line, "format", l->text.place));
    if (format == NULL || strcmp(format, HL_TRACE_FORMAT) != 0)
        return hl_fail(HL_BAD_INPUT, "%s: its format is '%.40s', wanted '%s'", l->text.place,
                       format != NULL ? format : "", HL_TRACE_FORMAT);
    for (int i = 0; i < 3; i++) {
        shape[i] = -1;
        HL_NEED(hl_json_get_int(&shape[i], line, names[i], l->text.place));
    }
    return HL_OK;
}

/* A number takes two bytes at least, and of most tokens every head has nine of them. */
static hl_status begin(lines *l, const json_t *line)
{
    int64_t   shape[3] = { 0 };
    int64_t   n_bytes  = l->text.end - l->text.at;
    hl_status status   = read_shape(shape, line, l);

    if (status != HL_OK)
        return status;
    if (shape[0] < 0 || shape[1] < 1 || shape[2] < 1 || shape[0] > n_bytes ||
        (shape[0] > 0 &&
         (shape[1] > n_bytes / shape[0] || shape[2] > n_bytes / shape[0] / shape[1])))
        return hl_fail(HL_BAD_INPUT,
                       "%s: %" PRId64 " tokens of %" PRId64 " layers and %" PRId64
                       " heads do not fit into the %" PRId64 " bytes that follow",
                       l->text.place, shape[0], shape[1], shape[2], n_bytes);
    HL_NEED(hl_trace_new(&l->trace, shape[1], shape[2], 0));
    HL_NEED(hl_trace_reserve(l->trace, shape[0]));
    return status;
}

/* ----------------------------------------------------------------------------- tokens */

static hl_status read_number(double *out, const json_t *value, const char *name, const lines *l)
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

/* [[...], ...]; null is NaN throughout, which is what new rows are. */
static hl_status read_cells(const lines *l, const json_t *line, hl_trace_rows which)
{
    const char   *name  = hl_trace_row_name(which);
    const json_t *value = json_object_get(line, name);
    float        *cells = hl_trace_at(l->trace, l->trace->n_tokens - 1, which);

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
            double    number = NAN;
            hl_status status = read_number(&number, json_array_get(heads, (size_t)head), name, l);
            if (status != HL_OK)
                return status;
            cells[layer * l->trace->n_heads + head] = (float)number;
        }
    }
    return HL_OK;
}

static hl_status read_kind(hl_token_kind *out, const json_t *line, const lines *l)
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

static hl_status read_token(lines *l, const json_t *line)
{
    hl_token_kind kind      = HL_KIND_PROMPT;
    int64_t       id        = -1;
    bool          is_entity = false;
    const json_t *text      = json_object_get(line, "text");

    HL_NEED(hl_json_get_int(&id, line, "id", l->text.place));
    HL_NEED(hl_json_get_bool(&is_entity, line, "entity", l->text.place));
    if (text != NULL && !json_is_null(text) && !json_is_string(text))
        HL_NEED(hl_fail(HL_BAD_INPUT, "%s: 'text' is %s, wanted a string", l->text.place,
                        hl_json_kind(text)));
    HL_NEED(read_kind(&kind, line, l));
    HL_NEED(hl_trace_push(l->trace, id, kind));
    HL_NEED(hl_trace_append_text(l->trace, json_string_value(text), json_string_length(text)));
    l->trace->entities[l->trace->n_tokens - 1] = is_entity;
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++) {
        const char *name = hl_trace_number_name(i);
        HL_NEED(read_number(&l->trace->numbers[i][l->trace->n_tokens - 1],
                            json_object_get(line, name), name, l));
    }
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        HL_NEED(read_cells(l, line, (hl_trace_rows)i));
    return HL_OK;
}

hl_status hl_trace_parse_lines(hl_trace **out, const char *bytes, size_t n_bytes, const char *where)
{
    hl_status status = HL_OK;
    lines l = { .text = { .at = bytes, .end = bytes + n_bytes, .where = where, .with_nul = true } };
    json_t *line = NULL;

    *out = NULL;
    HL_TRY(hl_json_lines_next(&line, &l.text));
    HL_TRY(begin(&l, line));
    for (int64_t n_tokens = l.trace->capacity; l.trace->n_tokens < n_tokens;) {
        json_decref(line);
        HL_TRY(hl_json_lines_next(&line, &l.text));
        HL_TRY(read_token(&l, line));
    }
    if (l.text.at != l.text.end) {
        status = hl_fail(HL_BAD_INPUT, "%s: goes on behind its %" PRId64 " tokens", where,
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
