/* series_file.c - a series as lines of JSON (doc/watch.md): one that says what holds for all of it, then
 * one a checkpoint.  Numbers have the digits that bring the same float or double back; what is NaN is
 * null.
 *
 * Nobody vouches for a file that is read: memory is taken for what a line holds, not for what it
 * claims. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/series_parts.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "stats/profile.h"

#define FORMAT "headlight series 1"

/* The numbers of a point, in the order of the file. */
static const struct {
    const char *key;
    size_t      place; /* offset in hl_series_point */
    bool        is_whole;
    int64_t     least; /* smallest valid integer */
} fields[] = {
    { "step", offsetof(hl_series_point, step), true, 0 },
    { "bytes", offsetof(hl_series_point, n_bytes), true, 0 },
    { "modified", offsetof(hl_series_point, modified), true, INT64_MIN },
    { "tokens", offsetof(hl_series_point, n_tokens), true, 0 },
    { "entropy", offsetof(hl_series_point, entropy), false, 0 },
    { "normalized", offsetof(hl_series_point, normalized), false, 0 },
    { "loss", offsetof(hl_series_point, nll), false, 0 },
    { "sequences", offsetof(hl_series_point, n_sequences), true, 0 },
    { "level", offsetof(hl_series_point, level), false, 0 },
    { "median", offsetof(hl_series_point, median), false, 0 },
    { "sigma", offsetof(hl_series_point, sigma), false, 0 },
    { "drop", offsetof(hl_series_point, drop), false, 0 },
    { "drop_errors", offsetof(hl_series_point, drop_errors), false, 0 },
    { "since", offsetof(hl_series_point, since), true, -1 },
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* ------------------------------------------------------------------ writing */

static void render_number(hl_text *text, const char *name, double value)
{
    char number[HL_JSON_NUMBER];

    hl_text_addf(text, ", \"%s\": %s", name, hl_json_number_text(number, value, 17));
}

/* Writes a string in quotation marks; null for NULL. */
static void render_string(hl_text *text, const char *bytes)
{
    json_auto_t   *value  = bytes != NULL ? hl_json_text(bytes, strlen(bytes)) : json_null();
    HL_FREED char *quoted = hl_json_dump(value, JSON_ENCODE_ANY);

    if (quoted != NULL)
        hl_text_add(text, quoted, strlen(quoted));
    else if (text->status == HL_OK)
        text->status = hl_fail(HL_NO_MEMORY, "out of memory");
}

static void render_heads(hl_text *text, const char *name, const hl_series *series,
                         const float *values)
{
    char number[HL_JSON_NUMBER];

    hl_text_addf(text, ", \"%s\": ", name);
    for (int64_t i = 0; i < series->n_layers * series->n_heads; i++) {
        hl_text_addf(text, i == 0 ? "[[" : i % series->n_heads == 0 ? "], [" : ", ");
        hl_text_addf(text, "%s", hl_json_number_text(number, (double)values[i], 9));
    }
    hl_text_addf(text, "]]");
}

static void render_point(hl_text *text, const hl_series *series, const hl_series_point *point)
{
    hl_text_addf(text, "{\"name\": ");
    render_string(text, point->name);
    for (int i = 0; i < N_FIELDS; i++) {
        const void *value = (const char *)point + fields[i].place;

        if (fields[i].is_whole)
            hl_text_addf(text, ", \"%s\": %" PRId64, fields[i].key, *(const int64_t *)value);
        else
            render_number(text, fields[i].key, *(const double *)value);
    }
    hl_text_addf(text, ", \"diagnoses\": {");
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        hl_text_addf(text, "%s\"%s\": {\"verdict\": \"%s\"", i > 0 ? ", " : "",
                     hl_diagnosis_name((size_t)i), hl_verdict_name(point->verdicts[i]));
        render_number(text, "value", point->values[i]);
        hl_text_addf(text, ", \"finding\": ");
        render_string(text, point->findings[i]);
        hl_text_addf(text, "}");
    }
    hl_text_addf(text, "}");
    render_heads(text, "heads_entropy", series, point->heads_entropy);
    render_heads(text, "heads_normalized", series, point->heads_normalized);
    hl_text_addf(text, "}");
}

static void render_beginning(hl_text *text, const hl_series *series)
{
    hl_text_addf(text,
                 "{\"format\": \"" FORMAT "\", \"layers\": %" PRId64 ", \"heads\": %" PRId64
                 ", \"text\": \"%016" PRIx64 "\", \"settings\": {",
                 series->n_layers, series->n_heads, series->text);
    for (int i = 0; i < HL_SERIES_N_SETTINGS; i++) {
        if (series->settings[i] == NULL && strcmp(hl_series_settings[i], "special") == 0)
            continue;
        hl_text_addf(text, "%s\"%s\": ", i > 0 ? ", " : "", hl_series_settings[i]);
        render_string(text, series->settings[i]);
    }
    hl_text_addf(text, "}}");
}

hl_status hl_series_render(char **out, const hl_series *series, int64_t index)
{
    hl_text text = { 0 };

    *out = NULL;
    if (index < 0 || index >= series->n_points)
        return hl_fail(HL_BAD_ARGUMENT, "point %" PRId64 " of a series of %" PRId64, index,
                       series->n_points);
    render_point(&text, series, &series->points[index]);
    return hl_text_finish(out, &text);
}

/* Writes line by line, so that a long series is not in memory twice. */
static hl_status write_lines(hl_writer *writer, const hl_series *series)
{
    for (int64_t i = -1; i < series->n_points; i++) {
        HL_SCOPED(hl_text_free) hl_text text = { 0 };

        if (i < 0)
            render_beginning(&text, series);
        else
            render_point(&text, series, &series->points[i]);
        hl_text_addf(&text, "\n");
        HL_NEED(text.status);
        hl_writer_write(writer, text.bytes, text.n_bytes);
    }
    return HL_OK;
}

hl_status hl_series_write(const hl_series *series, const char *path)
{
    hl_writer *writer = NULL;

    if (series->n_points == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%s: a series without a point", path);
    HL_NEED(hl_writer_open(&writer, path));
    hl_status status = write_lines(writer, series);
    if (status == HL_OK)
        return hl_writer_finish(writer);
    hl_writer_abandon(writer);
    return status;
}

/* ------------------------------------------------------------------ reading */

typedef struct lines {
    hl_json_lines text;
    hl_series    *series;
} lines;

/* Reads an integer that must be present. */
static hl_status get_count(int64_t *out, const json_t *line, const char *key, int64_t low,
                           int64_t high, const lines *l)
{
    const json_t *value = json_object_get(line, key);

    if (!json_is_integer(value))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %s, wanted an integer", l->text.place, key,
                       hl_json_kind(value));
    *out = json_integer_value(value);
    if (*out < low || *out > high)
        return hl_fail(HL_BAD_INPUT,
                       "%s: '%s' is %" PRId64 ", wanted one from %" PRId64 " to %" PRId64,
                       l->text.place, key, *out, low, high);
    return HL_OK;
}

/* Reads a number; NaN if it is null or missing. */
static hl_status get_number(double *out, const json_t *line, const char *key, const lines *l)
{
    *out = NAN;
    return hl_json_get_double(out, line, key, l->text.place);
}

/* Copies a string; NULL if it is null or missing. */
static hl_status get_string(char **out, const json_t *line, const char *key, const lines *l)
{
    const char *text = NULL;

    HL_NEED(hl_json_get_string(&text, line, key, l->text.place));
    return text != NULL ? hl_strdup(out, text) : HL_OK;
}

/* -------------------------------------------------- reading: the first line */

static hl_status parse_beginning(lines *l, const json_t *line)
{
    const char   *format = NULL, *text = NULL;
    const json_t *settings = json_object_get(line, "settings");

    HL_NEED(hl_json_get_string(&format, line, "format", l->text.place));
    if (format == NULL || strcmp(format, FORMAT) != 0)
        return hl_fail(HL_BAD_INPUT, "%s: its format is '%.40s', wanted '%s'", l->text.place,
                       format != NULL ? format : "", FORMAT);
    HL_NEED(get_count(&l->series->n_layers, line, "layers", 1, HL_PROFILE_MAX_LAYERS, l));
    HL_NEED(get_count(&l->series->n_heads, line, "heads", 1, HL_PROFILE_MAX_HEADS, l));
    HL_NEED(hl_json_get_string(&text, line, "text", l->text.place));
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return hl_fail(HL_BAD_INPUT, "%s: 'text' is '%.40s', wanted 16 hexadecimal digits",
                       l->text.place, text != NULL ? text : "");
    l->series->text = strtoull(text, NULL, 16);
    if (!json_is_object(settings))
        return hl_fail(HL_BAD_INPUT, "%s: 'settings' is %s, wanted an object", l->text.place,
                       hl_json_kind(settings));
    for (int i = 0; i < HL_SERIES_N_SETTINGS; i++)
        HL_NEED(get_string(&l->series->settings[i], settings, hl_series_settings[i], l));
    return HL_OK;
}

/* ---------------------------------------------------------- reading: points */

/* Reads an array of layers, each an array of heads; null means that the head does not exist. */
static hl_status parse_heads(float **out, const json_t *line, const char *key, const lines *l)
{
    const json_t *rows    = json_object_get(line, key);
    size_t        n_heads = (size_t)l->series->n_heads;
    size_t        size    = (size_t)l->series->n_layers * n_heads;
    bool          good    = json_array_size(rows) == (size_t)l->series->n_layers;

    for (size_t i = 0; i < json_array_size(rows) && good; i++)
        good = json_array_size(json_array_get(rows, i)) == n_heads;
    if (!good)
        return hl_fail(HL_BAD_INPUT,
                       "%s: '%s' is not %" PRId64 " lists of %" PRId64 " numbers each",
                       l->text.place, key, l->series->n_layers, l->series->n_heads);
    HL_NEED(HL_ALLOC(out, size));
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(json_array_get(rows, i / n_heads), i % n_heads);

        if (!json_is_number(value) && !json_is_null(value))
            return hl_fail(HL_BAD_INPUT, "%s: '%s' has %s, wanted numbers and null", l->text.place,
                           key, hl_json_kind(value));
        (*out)[i] = json_is_null(value) ? NAN : (float)json_number_value(value);
    }
    return HL_OK;
}

static hl_status parse_verdict(hl_verdict *out, const json_t *item, const lines *l)
{
    /* verdicts as earlier versions wrote them */
    static const char *const before[] = { "absent", "present", "not measured" };
    const char              *name     = NULL;

    HL_NEED(hl_json_get_string(&name, item, "verdict", l->text.place));
    for (int i = HL_VERDICT_NOT_FOUND; i <= HL_VERDICT_NOT_RUN && name != NULL; i++) {
        *out = (hl_verdict)i;
        if (strcmp(name, hl_verdict_name(*out)) == 0 || strcmp(name, before[i]) == 0)
            return HL_OK;
    }
    return hl_fail(HL_BAD_INPUT, "%s: no verdict is called '%.40s'", l->text.place,
                   name != NULL ? name : "");
}

static hl_status parse_diagnoses(hl_series_point *point, const json_t *line, const lines *l)
{
    const json_t *found = json_object_get(line, "diagnoses");

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const char   *name = hl_diagnosis_name((size_t)i);
        const json_t *item = json_object_get(found, name);

        if (item == NULL && i >= HL_N_FIRST_DIAGNOSES) { /* a file of an earlier version, which had
                                                          * fewer checks */
            point->verdicts[i] = HL_VERDICT_NOT_RUN;
            point->values[i]   = NAN;
            HL_NEED(hl_strdup(&point->findings[i], ""));
            continue;
        }
        if (!json_is_object(item))
            return hl_fail(HL_BAD_INPUT, "%s: 'diagnoses' has no object '%s'", l->text.place, name);
        HL_NEED(parse_verdict(&point->verdicts[i], item, l));
        HL_NEED(get_number(&point->values[i], item, "value", l));
        HL_NEED(get_string(&point->findings[i], item, "finding", l));
        if (point->findings[i] == NULL)
            HL_NEED(hl_strdup(&point->findings[i], ""));
    }
    return HL_OK;
}

/* The name that the line has for a member: its own, or what earlier versions called it. */
static const char *key_of(const json_t *line, const char *key)
{
    static const char *const before[][2] = { { "normalized", "fair" },
                                             { "heads_normalized", "heads_fair" },
                                             { "drop_errors", "fall" } };

    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (strcmp(key, before[i][0]) == 0 && json_object_get(line, key) == NULL)
            return before[i][1];
    return key;
}

static hl_status parse_point(lines *l, const json_t *line)
{
    HL_SCOPED(hl_series_point_release) hl_series_point point = { 0 };

    HL_NEED(get_string(&point.name, line, "name", l));
    if (point.name == NULL || point.name[0] == '\0')
        return hl_fail(HL_BAD_INPUT, "%s: it has no name", l->text.place);
    if (hl_series_find(l->series, point.name) != NULL)
        return hl_fail(HL_BAD_INPUT, "%s: '%.100s' was there before", l->text.place, point.name);
    for (int i = 0; i < N_FIELDS; i++) {
        void       *value = (char *)&point + fields[i].place;
        const char *key   = key_of(line, fields[i].key);

        if (fields[i].is_whole)
            HL_NEED(get_count(value, line, key, fields[i].least, INT64_MAX, l));
        else
            HL_NEED(get_number(value, line, key, l));
    }
    HL_NEED(parse_diagnoses(&point, line, l));
    HL_NEED(parse_heads(&point.heads_entropy, line, "heads_entropy", l));
    HL_NEED(parse_heads(&point.heads_normalized, line, key_of(line, "heads_normalized"), l));
    return hl_series_put(l->series, &point);
}

/* ------------------------------------------------------- reading: the whole */

HL_CLOSES(hl_series_free, hl_series)

hl_status hl_series_parse(hl_series **out, const char *text, size_t n_bytes, const char *where)
{
    HL_CLOSED(hl_series_free) hl_series *series = NULL;
    lines l = { .text = { .at = text, .end = text + n_bytes, .where = where } };

    *out = NULL;
    HL_NEED(hl_series_new(&series));
    l.series = series;
    do {
        json_auto_t *line  = NULL;
        bool         first = l.text.at == text;

        HL_NEED(hl_json_lines_next(&line, &l.text));
        HL_NEED(first ? parse_beginning(&l, line) : parse_point(&l, line));
    } while (l.text.at < l.text.end);
    *out = hl_taken(&series);
    return HL_OK;
}

hl_status hl_series_load(hl_series **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    return hl_series_parse(out, (const char *)file.bytes, file.n_bytes, path);
}
