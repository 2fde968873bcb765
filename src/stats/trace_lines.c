/* trace_lines.c - a trace as lines of JSON (doc/trace.md): one that describes the whole, then
 * one a token.  Numbers have the digits that bring the same float or double back; what is NaN
 * is null. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/status.h"
#include "base/utf8.h"
#include "stats/trace.h"

static void put(hl_writer *writer, const char *text)
{
    hl_writer_write(writer, text, strlen(text));
}

static void put_number(hl_writer *writer, double value, int n_digits)
{
    char text[40];

    if (isfinite(value))
        snprintf(text, sizeof text, "%.*g", n_digits, value);
    else
        strcpy(text, "null");
    put(writer, text);
}

/* Escaped for JSON.  A byte that is part of no character becomes U+FFFD. */
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

/* [[...], ...], a list for every layer; null if all of it is NaN. */
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
        put(writer, hl_trace_number_name(i));
        put(writer, "\": ");
        put_number(writer, trace->numbers[i][token], 17);
    }
    for (int i = 0; i < HL_N_TRACE_ROWS; i++) {
        put(writer, ", \"");
        put(writer, hl_trace_row_name((hl_trace_rows)i));
        put(writer, "\": ");
        put_cells(writer, trace, token, (hl_trace_rows)i);
    }
    put(writer, "}\n");
}

hl_status hl_trace_write_lines(const hl_trace *trace, const char *path)
{
    hl_writer *writer = NULL;
    char       start[160];

    HL_NEED(hl_writer_open(&writer, path));
    snprintf(start, sizeof start,
             "{\"format\": \"%s\", \"tokens\": %" PRId64 ", \"layers\": %" PRId64
             ", \"heads\": %" PRId64 "}\n",
             HL_TRACE_FORMAT, trace->n_tokens, trace->n_layers, trace->n_heads);
    put(writer, start);
    for (int64_t token = 0; token < trace->n_tokens; token++)
        put_token(writer, trace, token);
    return hl_writer_finish(writer);
}
