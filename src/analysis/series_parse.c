/* series_parse.c - lines of JSON (series_file.c, doc/watch.md) back to a series.
 *
 * Nobody vouches for the file: memory is taken for what a line holds, not for what it claims. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/series.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "stats/profile.h"

typedef struct lines {
    hl_json_lines text;
    hl_series    *series;
} lines;

/* ---------------------------------------------------------------------- members */

/* A whole number that must be there. */
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

/* Null or missing is NaN. */
static hl_status get_number(double *out, const json_t *line, const char *key, const lines *l)
{
    *out = NAN;
    return hl_json_get_double(out, line, key, l->text.place);
}

/* A copy; null or missing is NULL. */
static hl_status get_string(char **out, const json_t *line, const char *key, const lines *l)
{
    const char *text   = NULL;
    hl_status   status = hl_json_get_string(&text, line, key, l->text.place);

    if (status == HL_OK && text != NULL)
        status = hl_strdup(out, text);
    return status;
}

/* ---------------------------------------------------------------- the first line */

static hl_status read_text_hash(uint64_t *out, const json_t *line, const lines *l)
{
    const char *text   = NULL;
    char       *end    = NULL;
    hl_status   status = hl_json_get_string(&text, line, "text", l->text.place);

    if (status != HL_OK)
        return status;
    if (text != NULL && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16) {
        *out = strtoull(text, &end, 16);
        return HL_OK;
    }
    return hl_fail(HL_BAD_INPUT, "%s: 'text' is '%.40s', wanted 16 hexadecimal digits",
                   l->text.place, text != NULL ? text : "");
}

static hl_status read_beginning(lines *l, const json_t *line)
{
    const char   *format   = NULL;
    const json_t *settings = json_object_get(line, "settings");

    HL_NEED(hl_json_get_string(&format, line, "format", l->text.place));
    if (format == NULL || strcmp(format, HL_SERIES_FORMAT) != 0)
        return hl_fail(HL_BAD_INPUT, "%s: its format is '%.40s', wanted '%s'", l->text.place,
                       format != NULL ? format : "", HL_SERIES_FORMAT);
    HL_NEED(get_count(&l->series->n_layers, line, "layers", 1, HL_PROFILE_MAX_LAYERS, l));
    HL_NEED(get_count(&l->series->n_heads, line, "heads", 1, HL_PROFILE_MAX_HEADS, l));
    HL_NEED(read_text_hash(&l->series->text, line, l));
    if (!json_is_object(settings))
        return hl_fail(HL_BAD_INPUT, "%s: 'settings' is %s, wanted an object", l->text.place,
                       hl_json_kind(settings));
    for (int i = 0; i < HL_SERIES_N_SETTINGS; i++)
        HL_NEED(get_string(&l->series->settings[i], settings, hl_series_settings[i], l));
    return HL_OK;
}

/* ------------------------------------------------------------------------ points */

static hl_status check_heads(const json_t *rows, const char *key, const lines *l)
{
    bool good = json_array_size(rows) == (size_t)l->series->n_layers;

    for (size_t i = 0; i < json_array_size(rows) && good; i++)
        good = json_array_size(json_array_get(rows, i)) == (size_t)l->series->n_heads;
    return good ? HL_OK
                : hl_fail(HL_BAD_INPUT,
                          "%s: '%s' is not %" PRId64 " lists of %" PRId64 " numbers each",
                          l->text.place, key, l->series->n_layers, l->series->n_heads);
}

/* [[...], ...], null where there is no head. */
static hl_status read_heads(float **out, const json_t *line, const char *key, const lines *l)
{
    const json_t *rows    = json_object_get(line, key);
    size_t        n_heads = (size_t)l->series->n_heads;
    size_t        size    = (size_t)l->series->n_layers * n_heads;

    HL_NEED(check_heads(rows, key, l));
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

static hl_status read_verdict(hl_verdict *out, const json_t *item, const lines *l)
{
    /* The words of series that earlier versions wrote. */
    static const char *const before[] = { "absent", "present", "not measured" };
    const char              *name     = NULL;
    hl_status                status   = hl_json_get_string(&name, item, "verdict", l->text.place);

    for (int i = HL_VERDICT_NOT_FOUND; i <= HL_VERDICT_NOT_RUN && name != NULL; i++) {
        *out = (hl_verdict)i;
        if (strcmp(name, hl_verdict_name(*out)) == 0 || strcmp(name, before[i]) == 0)
            return HL_OK;
    }
    return status != HL_OK ? status
                           : hl_fail(HL_BAD_INPUT, "%s: no verdict is called '%.40s'",
                                     l->text.place, name != NULL ? name : "");
}

static hl_status read_diagnoses(hl_series_point *point, const json_t *line, const lines *l)
{
    const json_t *found = json_object_get(line, "diagnoses");

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const char   *name = hl_diagnosis_name((size_t)i);
        const json_t *item = json_object_get(found, name);

        if (!json_is_object(item))
            return hl_fail(HL_BAD_INPUT, "%s: 'diagnoses' has no object '%s'", l->text.place, name);
        HL_NEED(read_verdict(&point->verdicts[i], item, l));
        HL_NEED(get_number(&point->values[i], item, "value", l));
        HL_NEED(get_string(&point->findings[i], item, "finding", l));
        if (point->findings[i] == NULL)
            HL_NEED(hl_strdup(&point->findings[i], ""));
    }
    return HL_OK;
}

static hl_status read_numbers(hl_series_point *point, const json_t *line, const lines *l)
{
    HL_NEED(get_count(&point->step, line, "step", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->n_bytes, line, "bytes", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->modified, line, "modified", INT64_MIN, INT64_MAX, l));
    HL_NEED(get_count(&point->n_tokens, line, "tokens", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->n_sequences, line, "sequences", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->since, line, "since", -1, INT64_MAX, l));
    HL_NEED(get_number(&point->entropy, line, "entropy", l));
    HL_NEED(get_number(&point->fair, line, "fair", l));
    HL_NEED(get_number(&point->nll, line, "loss", l));
    HL_NEED(get_number(&point->level, line, "level", l));
    HL_NEED(get_number(&point->median, line, "median", l));
    HL_NEED(get_number(&point->sigma, line, "sigma", l));
    return get_number(&point->fall, line, "fall", l);
}

static hl_status read_point(lines *l, const json_t *line)
{
    hl_status       status = HL_OK;
    hl_series_point point  = { 0 };

    HL_TRY(get_string(&point.name, line, "name", l));
    if (point.name == NULL || point.name[0] == '\0') {
        status = hl_fail(HL_BAD_INPUT, "%s: it has no name", l->text.place);
        goto done;
    }
    if (hl_series_find(l->series, point.name) != NULL) {
        status = hl_fail(HL_BAD_INPUT, "%s: '%.100s' was there before", l->text.place, point.name);
        goto done;
    }
    HL_TRY(read_numbers(&point, line, l));
    HL_TRY(read_diagnoses(&point, line, l));
    HL_TRY(read_heads(&point.heads_entropy, line, "heads_entropy", l));
    HL_TRY(read_heads(&point.heads_fair, line, "heads_fair", l));
    HL_TRY(hl_series_put(l->series, &point));

done:
    hl_series_point_release(&point);
    return status;
}

/* -------------------------------------------------------------------- the whole */

hl_status hl_series_parse(hl_series **out, const char *text, size_t n_bytes, const char *where)
{
    hl_status status = HL_OK;
    json_t   *line   = NULL;
    lines     l      = { .text = { .at = text, .end = text + n_bytes, .where = where } };

    *out = NULL;
    HL_TRY(hl_series_new(&l.series));
    HL_TRY(hl_json_lines_next(&line, &l.text));
    HL_TRY(read_beginning(&l, line));
    while (l.text.at < l.text.end) {
        json_decref(line);
        HL_TRY(hl_json_lines_next(&line, &l.text));
        HL_TRY(read_point(&l, line));
    }
    *out     = l.series;
    l.series = NULL;

done:
    json_decref(line);
    hl_series_free(l.series);
    return status;
}

hl_status hl_series_load(hl_series **out, const char *path)
{
    hl_status status = HL_OK;
    hl_file   file   = { 0 };

    *out = NULL;
    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_series_parse(out, (const char *)file.bytes, file.n_bytes, path));

done:
    hl_file_unmap(&file);
    return status;
}
