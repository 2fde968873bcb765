/* values.c - copies and output of untrusted text, and JSON values. */
#include "values.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "held.h"

/* ---------------------------------------------------------------------- copies */

static char *convert(size_t *n_out, const char *bytes, size_t n_bytes, hl_printable_kind kind)
{
    size_t length = hl_printable(NULL, 0, bytes, n_bytes, kind);
    char  *out    = hl_memory_take(length + 1);

    if (out != NULL)
        hl_printable(out, length + 1, bytes, n_bytes, kind);
    *n_out = out != NULL ? length : 0;
    return out;
}

char *hl_printable_utf8(size_t *n_out, const char *bytes, size_t n_bytes)
{
    return convert(n_out, bytes, n_bytes, HL_PRINTABLE_UTF8);
}

char *hl_printable_text(const char *bytes, size_t n_bytes)
{
    size_t length;

    return convert(&length, bytes, n_bytes, HL_PRINTABLE_TOKEN);
}

const char *hl_shown(const char *name)
{
    enum { N_KEPT = 32 };
    static char  *kept[N_KEPT];
    static size_t next;

    if (name == NULL)
        return "";
    size_t n_bytes = strlen(name), length;
    char  *copy    = convert(&length, name, n_bytes, HL_PRINTABLE_LINE);
    if (copy == NULL)
        return "";
    if (length == n_bytes && memcmp(copy, name, n_bytes) == 0) {
        free(copy);
        return name;
    }
    free(kept[next]);
    kept[next] = copy;
    next       = (next + 1) % N_KEPT;
    return copy;
}

size_t hl_printable_width(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* ---------------------------------------------------------------------- output */

static void put(FILE *stream, const char *text, size_t n_bytes, hl_printable_kind kind)
{
    size_t length;
    char  *shown = convert(&length, text, n_bytes, kind);

    if (shown != NULL)
        fwrite(shown, 1, length, stream);
    free(shown);
}

void hl_put_lines(FILE *stream, const char *text, size_t n_bytes)
{
    put(stream, text, n_bytes, HL_PRINTABLE_LINES);
}

void hl_put_text(FILE *stream, const char *text, size_t n_bytes)
{
    if (isatty(fileno(stream)))
        hl_put_lines(stream, text, n_bytes);
    else
        fwrite(text, 1, n_bytes, stream);
}

void hl_put_json_text(const char *json)
{
    put(stdout, json, strlen(json), HL_PRINTABLE_JSON);
}

/* jansson passes whole characters, since it cuts strings only where it escapes something.  Most
 * parts are plain ASCII, a number or a bracket, and need no copy. */
static int put_part(const char *part, size_t n_bytes, void *data)
{
    bool is_plain = true;

    (void)data;
    for (size_t i = 0; i < n_bytes; i++)
        is_plain = is_plain && (unsigned char)part[i] < 0x7f;
    if (is_plain)
        fwrite(part, 1, n_bytes, stdout);
    else
        put(stdout, part, n_bytes, HL_PRINTABLE_JSON);
    return 0;
}

bool hl_put_json(const json_t *root, size_t flags)
{
    return root != NULL && json_dump_callback(root, put_part, NULL, flags) == 0;
}

int hl_print_json(json_t *root, size_t flags)
{
    if (!hl_put_json(root, flags))
        hl_memory_missed();
    printf("\n");
    json_decref(root);
    return HL_EXIT_OK;
}

/* ---------------------------------------------------------------------- tables */

hl_sheet_format hl_sheet_format_of(const hl_common *common)
{
    return common->csv ? HL_SHEET_CSV : common->json ? HL_SHEET_JSON : HL_SHEET_TEXT;
}

hl_status hl_print_sheet(const hl_sheet *table, hl_sheet_format format)
{
    HL_HELD(hl_free) char *text = NULL;

    HL_NEED(hl_sheet_render(&text, table, format));
    if (format == HL_SHEET_JSON)
        hl_put_json_text(text);
    else
        fputs(text, stdout);
    return HL_OK;
}

/* The library renders the table as JSON, which is parsed again. */
static hl_status sheet_value(json_t **out, const hl_sheet *table)
{
    HL_HELD(hl_free) char *text = NULL;

    HL_NEED(hl_sheet_render(&text, table, HL_SHEET_JSON));
    return hl_value_read(out, text, strlen(text), hl_sheet_name(table));
}

json_t *hl_value_rows(hl_sheet *table)
{
    json_t *value = NULL;
    json_t *rows  = NULL;

    if (table != NULL && sheet_value(&value, table) != HL_OK)
        hl_memory_missed();
    rows = json_incref(json_object_get(value, "rows"));
    json_decref(value);
    hl_sheet_free(table);
    return rows;
}

hl_status hl_set_sheet(json_t *root, const hl_sheet *table)
{
    json_t *value = NULL;

    HL_NEED(sheet_value(&value, table));
    json_object_set_new(root, hl_sheet_name(table), value); /* a failure has been recorded */
    return HL_OK;
}

/* ----------------------------------------------------------- names and numbers */

enum { N_TURNS = 4 };

const char *hl_head_label(char out[HL_HEAD_LABEL_BYTES], int64_t layer, int64_t head)
{
    snprintf(out, HL_HEAD_LABEL_BYTES, "L%lldH%lld", (long long)layer, (long long)head);
    return out;
}

const char *hl_base_name(const char *path)
{
    static char names[N_TURNS][256];
    static int  next;
    char       *out = names[next++ % N_TURNS];
    size_t      end = strlen(path);

    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, sizeof names[0], "%.*s", (int)(end - begin), path + begin);
    return out;
}

const char *hl_grouped(int64_t number)
{
    static char buffers[N_TURNS][32];
    static int  next;
    char        digits[24];
    char       *out    = buffers[next++ % N_TURNS];
    int         length = snprintf(digits, sizeof digits, "%lld", (long long)number);
    int         used   = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

/* -------------------------------------------- cells, numbers and texts in JSON */

double hl_cell_number(const hl_sheet *table, int64_t row, const char *column)
{
    return hl_sheet_number(table, row, hl_sheet_find(table, column));
}

json_t *hl_object(const char *key, ...)
{
    json_t *object = json_object();
    va_list pairs;

    va_start(pairs, key);
    for (; key != NULL; key = va_arg(pairs, const char *))
        json_object_set_new(object, key, va_arg(pairs, json_t *));
    va_end(pairs);
    return object;
}

json_t *hl_value_bool(bool value)
{
    return json_boolean(value);
}

json_t *hl_value_size(size_t value)
{
    return json_integer((json_int_t)value);
}

json_t *hl_value_string(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

json_t *hl_value_itself(json_t *value)
{
    return value;
}

json_t *hl_value_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *hl_value_name(const char *name)
{
    return hl_value_text(name, strlen(name));
}

json_t *hl_value_interval(const hl_interval *interval)
{
    char    reason[80];
    json_t *object = HL_OBJECT(
        HL_IS("low", interval->low), HL_IS("high", interval->high), HL_IS("level", interval->level),
        HL_IS("method", hl_interval_method(interval->units)), HL_IS("n", interval->n));

    hl_interval_reason(reason, sizeof reason, interval);
    if (reason[0] != '\0')
        json_object_set_new(object, "missing", hl_value_string(reason));
    return object;
}

typedef struct value_builder {
    json_t *whole;
    json_t *open[HL_JSON_MOST_LEVELS]; /* (n_open) arrays and objects that have not ended yet */
    size_t  n_open;
} value_builder;

static json_t *value_of(const hl_json_event *event)
{
    switch (event->type) {
    case HL_JSON_OBJECT:
        return json_object();
    case HL_JSON_ARRAY:
        return json_array();
    case HL_JSON_TEXT:
        return json_stringn_nocheck(event->text, event->n_bytes);
    case HL_JSON_INT:
        return json_integer(event->integer);
    case HL_JSON_REAL:
        return json_real(event->real);
    case HL_JSON_BOOL:
        return json_boolean(event->integer != 0);
    case HL_JSON_NULL:
    case HL_JSON_END:
        break;
    }
    return json_null();
}

static hl_status add_value(void *context, const hl_json_event *event)
{
    value_builder *b     = context;
    json_t        *value = event->type != HL_JSON_END ? value_of(event) : NULL;
    json_t        *into  = b->n_open > 0 ? b->open[b->n_open - 1] : NULL;
    int            bad   = value == NULL;

    if (event->type == HL_JSON_END) {
        b->n_open--;
        return HL_OK;
    }
    if (into == NULL)
        b->whole = value;
    else if (event->key != NULL)
        bad = json_object_set_new_nocheck(into, event->key, value);
    else
        bad = json_array_append_new(into, value);
    if (bad)
        return HL_NO_MEMORY;
    if (event->type == HL_JSON_OBJECT || event->type == HL_JSON_ARRAY)
        b->open[b->n_open++] = value;
    return HL_OK;
}

hl_status hl_value_read(json_t **out, const char *text, size_t n_bytes, const char *where)
{
    value_builder b      = { 0 };
    hl_status     status = hl_json_walk(text, n_bytes, where, add_value, &b);

    if (status != HL_OK) {
        json_decref(b.whole);
        b.whole = NULL;
    }
    *out = b.whole;
    return status;
}

json_t *hl_value_text(const char *bytes, size_t n_bytes)
{
    size_t  length = 0;
    char   *valid  = hl_printable_utf8(&length, bytes, n_bytes);
    json_t *string = valid != NULL ? json_stringn(valid, length) : NULL;

    free(valid);
    return string;
}
