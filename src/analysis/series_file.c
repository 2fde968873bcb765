/* series_file.c - a series as lines of JSON (doc/watch.md): one that says what holds for all of it,
 * then one a checkpoint.  Numbers have the digits that bring the same float or double back; what
 * is NaN is null. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/growing_text.h"
#include "analysis/series.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

static void add_number(hl_text *text, const char *name, double value)
{
    if (isfinite(value))
        hl_text_addf(text, ", \"%s\": %.17g", name, value);
    else
        hl_text_addf(text, ", \"%s\": null", name);
}

/* In quotation marks; NULL is null. */
static void add_string(hl_text *text, const char *bytes)
{
    json_t *value  = bytes != NULL ? hl_json_text(bytes, strlen(bytes)) : json_null();
    char   *quoted = hl_json_dump(value, JSON_ENCODE_ANY);

    if (quoted != NULL)
        hl_text_add(text, quoted, strlen(quoted));
    else if (text->status == HL_OK)
        text->status = hl_fail(HL_NO_MEMORY, "out of memory");
    hl_free(quoted);
    json_decref(value);
}

static void add_heads(hl_text *text, const char *name, const hl_series *series, const float *values)
{
    hl_text_addf(text, ", \"%s\": ", name);
    for (int64_t i = 0; i < series->n_layers * series->n_heads; i++) {
        hl_text_addf(text, i == 0 ? "[[" : i % series->n_heads == 0 ? "], [" : ", ");
        if (isfinite(values[i]))
            hl_text_addf(text, "%.9g", (double)values[i]);
        else
            hl_text_addf(text, "null");
    }
    hl_text_addf(text, "]]");
}

static void add_diagnoses(hl_text *text, const hl_series_point *point)
{
    hl_text_addf(text, ", \"diagnoses\": {");
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        hl_text_addf(text, "%s\"%s\": {\"verdict\": \"%s\"", i > 0 ? ", " : "",
                     hl_diagnosis_name((size_t)i), hl_verdict_name(point->verdicts[i]));
        add_number(text, "value", point->values[i]);
        hl_text_addf(text, ", \"finding\": ");
        add_string(text, point->findings[i]);
        hl_text_addf(text, "}");
    }
    hl_text_addf(text, "}");
}

static void add_point(hl_text *text, const hl_series *series, const hl_series_point *point)
{
    hl_text_addf(text, "{\"name\": ");
    add_string(text, point->name);
    hl_text_addf(text,
                 ", \"step\": %" PRId64 ", \"bytes\": %" PRId64 ", \"modified\": %" PRId64
                 ", \"tokens\": %" PRId64,
                 point->step, point->n_bytes, point->modified, point->n_tokens);
    add_number(text, "entropy", point->entropy);
    add_number(text, "fair", point->fair);
    add_number(text, "loss", point->nll);
    hl_text_addf(text, ", \"sequences\": %" PRId64, point->n_sequences);
    add_number(text, "level", point->level);
    add_number(text, "median", point->median);
    add_number(text, "sigma", point->sigma);
    add_number(text, "fall", point->fall);
    hl_text_addf(text, ", \"since\": %" PRId64, point->since);
    add_diagnoses(text, point);
    add_heads(text, "heads_entropy", series, point->heads_entropy);
    add_heads(text, "heads_fair", series, point->heads_fair);
    hl_text_addf(text, "}");
}

static void add_beginning(hl_text *text, const hl_series *series)
{
    hl_text_addf(text,
                 "{\"format\": \"" HL_SERIES_FORMAT "\", \"layers\": %" PRId64
                 ", \"heads\": %" PRId64 ", \"text\": \"%016" PRIx64 "\", \"settings\": {",
                 series->n_layers, series->n_heads, series->text);
    for (int i = 0; i < HL_SERIES_N_SETTINGS; i++) {
        if (series->settings[i] == NULL && strcmp(hl_series_settings[i], "special") == 0)
            continue;
        hl_text_addf(text, "%s\"%s\": ", i > 0 ? ", " : "", hl_series_settings[i]);
        add_string(text, series->settings[i]);
    }
    hl_text_addf(text, "}}\n");
}

hl_status hl_series_render(char **out, const hl_series *series, int64_t index)
{
    hl_text text = { 0 };

    *out = NULL;
    if (index < 0 || index >= series->n_points)
        return hl_fail(HL_BAD_ARGUMENT, "point %" PRId64 " of a series of %" PRId64, index,
                       series->n_points);
    add_point(&text, series, &series->points[index]);
    return hl_text_finish(out, &text);
}

/* A line at a time: a long series need not be in memory twice. */
static hl_status write_lines(hl_writer *writer, const hl_series *series)
{
    hl_text text = { 0 };
    char   *line = NULL;

    add_beginning(&text, series);
    for (int64_t i = -1; i < series->n_points; i++) {
        if (i >= 0) {
            text = (hl_text){ 0 };
            add_point(&text, series, &series->points[i]);
            hl_text_addf(&text, "\n");
        }
        HL_NEED(hl_text_finish(&line, &text));
        hl_writer_write(writer, line, strlen(line));
        hl_free(line);
        line = NULL;
    }
    return HL_OK;
}

hl_status hl_series_write(const hl_series *series, const char *path)
{
    hl_status  status = HL_OK;
    hl_writer *writer = NULL;

    if (series->n_points == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%s: a series without a point", path);
    HL_NEED(hl_writer_open(&writer, path));
    status = write_lines(writer, series);
    if (status != HL_OK)
        hl_writer_abandon(writer);
    else
        status = hl_writer_finish(writer);
    return status;
}
