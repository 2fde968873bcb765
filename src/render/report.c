/* report.c - a page and its data, in one file.
 *
 *     the page up to its data | {"format": ...} | the rest of the page
 *
 * In the data, `<`, `>` and `&` are written as \u003c and so on, so that no text of a model or a
 * file can end the script element.  Outside strings, JSON does not use these characters. */
#include "render/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/page.h"

/* ----------------------------------------------------------------------- pieces */

bool hl_report_check(hl_report_out *out, hl_status status)
{
    if (out->status == HL_OK)
        out->status = status;
    return out->status == HL_OK;
}

/* -------------------------------------------------------------------------- values */

json_t *hl_report_text(const char *text)
{
    return text != NULL ? hl_json_text(text, strlen(text)) : json_null();
}

json_t *hl_report_head(int64_t layer, int64_t head)
{
    return json_pack("[I, I]", (json_int_t)layer, (json_int_t)head);
}

json_t *hl_report_numbers(const double *values, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n; i++)
        hl_json_add(&list, hl_json_number(values[i]));
    return list;
}

/* -------------------------------------------------------------------------- arrays */

/* Encodes three bytes as four characters; missing bytes at the end become '='. */
static size_t encode_base64(char *text, const uint8_t *bytes, size_t n_bytes)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t used = 0;

    for (size_t at = 0; at < n_bytes; at += 3) {
        size_t   left = n_bytes - at;
        uint32_t bits = (uint32_t)bytes[at] << 16 | (left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0U) |
                        (left > 2 ? bytes[at + 2] : 0U);

        text[used++] = alphabet[bits >> 18];
        text[used++] = alphabet[bits >> 12 & 63];
        text[used++] = left > 1 ? alphabet[bits >> 6 & 63] : '=';
        text[used++] = left > 2 ? alphabet[bits & 63] : '=';
    }
    return used;
}

static int64_t count_of(int n_dims, const int64_t *shape)
{
    int64_t count = 1;

    for (int i = 0; i < n_dims; i++)
        count *= shape[i];
    return count;
}

/* Makes the object that describes packed data. */
static json_t *packed(hl_report_out *out, const char *dtype, const uint8_t *bytes,
                      size_t n_bytes_each, int n_dims, const int64_t *shape)
{
    HL_FREED char *text    = NULL;
    size_t         n_bytes = (size_t)count_of(n_dims, shape) * n_bytes_each;
    json_t        *sizes   = json_array();

    for (int i = 0; i < n_dims; i++)
        hl_json_add(&sizes, json_integer((json_int_t)shape[i]));
    if (!hl_report_check(out, hl_alloc((void **)&text, n_bytes / 3 + 1, 4))) {
        json_decref(sizes);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:o}", "dtype", dtype, "shape", sizes, "data",
                     json_stringn_nocheck(text, encode_base64(text, bytes, n_bytes)));
}

json_t *hl_report_bytes(hl_report_out *out, const uint8_t *bytes, int n_dims, const int64_t *shape)
{
    return packed(out, "u8", bytes, 1, n_dims, shape);
}

/* Packs floats of four or two bytes, little-endian on any machine. */
static json_t *floats(hl_report_out *out, const char *dtype, size_t size, const double *values,
                      int n_dims, const int64_t *shape)
{
    int64_t           n     = count_of(n_dims, shape);
    HL_FREED uint8_t *bytes = NULL;

    if (!hl_report_check(out, hl_alloc((void **)&bytes, (size_t)n, size)))
        return NULL;
    for (int64_t i = 0; i < n; i++) {
        float    narrow = (float)values[i];
        uint32_t bits   = hl_f32_to_f16(narrow);

        if (size == 4)
            memcpy(&bits, &narrow, sizeof bits);
        for (size_t part = 0; part < size; part++)
            bytes[(size_t)i * size + part] = (uint8_t)(bits >> 8 * part);
    }
    return packed(out, dtype, bytes, size, n_dims, shape);
}

json_t *hl_report_f32(hl_report_out *out, const double *values, int n_dims, const int64_t *shape)
{
    return floats(out, "f32", 4, values, n_dims, shape);
}

json_t *hl_report_f16(hl_report_out *out, const double *values, int n_dims, const int64_t *shape)
{
    return floats(out, "f16", 2, values, n_dims, shape);
}

json_t *hl_report_u8(hl_report_out *out, const double *values, int n_dims, const int64_t *shape,
                     double low, double high)
{
    enum { STEPS = 254, NO_VALUE = 255 };
    int64_t           n     = count_of(n_dims, shape);
    double            scale = high > low ? (high - low) / STEPS : 1.0;
    HL_FREED uint8_t *bytes = NULL;

    if (!hl_report_check(out, HL_ALLOC(&bytes, (size_t)n)))
        return NULL;
    for (int64_t i = 0; i < n; i++) {
        double raw = fmin(fmax((values[i] - low) / scale, 0.0), STEPS);
        bytes[i]   = isnan(values[i]) ? NO_VALUE : (uint8_t)lround(raw);
    }
    json_t *array = packed(out, "u8", bytes, 1, n_dims, shape);
    hl_json_put(&array, "scale", json_real(scale));
    hl_json_put(&array, "offset", json_real(low));
    hl_json_put(&array, "nan", json_true());
    return array;
}

/* ------------------------------------------------------------------ do parts belong? */

static hl_status check_shape(const char *what, int64_t n_layers, int64_t n_heads,
                             const hl_report_profile *first)
{
    int64_t layers = hl_profile_n_layers(first->profile);
    int64_t heads  = hl_profile_n_heads(first->profile);

    if (n_layers == layers && n_heads == heads)
        return HL_OK;
    return hl_fail(
        HL_BAD_INPUT, "%s has %lld layers of up to %lld heads, but %s has %lld of up to %lld", what,
        (long long)n_layers, (long long)n_heads, first->name, (long long)layers, (long long)heads);
}

static hl_status check_parts(const hl_report *report)
{
    const hl_report_profile *first = report->profiles;

    if (report->n_profiles == 0 && report->trace == NULL && report->maps == NULL &&
        report->lens == NULL && report->compare_path == NULL && report->sweep_path == NULL)
        return hl_fail(
            HL_BAD_ARGUMENT,
            "nothing to report: give a profile, a trace, a prompt, a comparison or a sweep");
    if (report->n_profiles == 0)
        return HL_OK;
    for (int64_t i = 1; i < report->n_profiles; i++)
        HL_NEED(check_shape(report->profiles[i].name,
                            hl_profile_n_layers(report->profiles[i].profile),
                            hl_profile_n_heads(report->profiles[i].profile), first));
    if (report->model != NULL)
        HL_NEED(check_shape("the model", report->model->n_layers, report->model->n_heads, first));
    if (report->trace != NULL)
        HL_NEED(check_shape("the trace", hl_trace_n_layers(report->trace),
                            hl_trace_n_heads(report->trace), first));
    if (report->maps != NULL)
        HL_NEED(check_shape("the model of the prompt", report->maps->n_layers,
                            report->maps->n_heads, first));
    return HL_OK;
}

/* ------------------------------------------------------------------------- the data */

json_t *hl_report_definitions(void)
{
    json_t *all = json_object();

    for (size_t i = 0; hl_definition_at(i) != NULL; i++) {
        const hl_definition *entry = hl_definition_at(i);

        if (entry->key != NULL)
            hl_json_put(&all, entry->key,
                        json_pack("{s:s, s:s, s:s}", "name", entry->title, "unit", entry->unit,
                                  "text", entry->text));
    }
    return all;
}

static json_t *data_json(hl_report_out *out, const hl_report *report)
{
    json_t *root     = json_object();
    json_t *profiles = json_array();
    double threshold = report->spike_threshold > 0.0 ? report->spike_threshold : HL_SPIKE_THRESHOLD;

    hl_json_put(&root, "format", json_string("headlight.report/1"));
    hl_json_put(&root, "version", json_string(hl_version()));
    if (report->title != NULL)
        hl_json_put(&root, "title", hl_report_text(report->title));
    hl_json_put(&root, "definitions", hl_report_definitions());
    for (int64_t i = 0; i < report->n_profiles && out->status == HL_OK; i++)
        hl_json_add(&profiles, hl_report_profile_json(out, report, i));
    hl_json_put(&root, "profiles", profiles);
    if (report->maps != NULL)
        hl_json_put(&root, "tokens", hl_report_tokens_json(out, report->maps));
    if (report->lens != NULL)
        hl_json_put(&root, "lens", hl_report_lens_json(out, report->lens));
    if (report->trace != NULL)
        hl_json_put(&root, "trace", hl_report_trace_json(out, report->trace, threshold));
    if (report->compare_path != NULL || report->n_profiles > 1)
        hl_json_put(&root, "compare", hl_report_compare_json(out, report));
    if (report->sweep_path != NULL)
        hl_json_put(&root, "sweep", hl_report_sweep_json(out, report));
    return root;
}

/* ------------------------------------------------------------------------- the file */

/* A callback for jansson: writes a part of the dump, escaped for the script element. */
static int write_safely(const char *text, size_t n_bytes, void *context)
{
    hl_writer *writer = context;
    size_t     begin  = 0;

    for (size_t i = 0; i < n_bytes; i++) {
        char escape[8];

        if (text[i] != '<' && text[i] != '>' && text[i] != '&')
            continue;
        hl_writer_write(writer, text + begin, i - begin);
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)text[i]);
        hl_writer_write(writer, escape, 6);
        begin = i + 1;
    }
    hl_writer_write(writer, text + begin, n_bytes - begin);
    return 0;
}

static hl_status write_page(const json_t *data, const char *path)
{
    hl_writer *writer = NULL;
    hl_page    page   = { 0 };

    HL_NEED(hl_page_split(&page));
    HL_NEED(hl_writer_open(&writer, path));
    hl_writer_write(writer, page.before, page.n_before);
    /* A float has about seven significant digits. */
    if (json_dump_callback(data, write_safely, writer, JSON_COMPACT | JSON_REAL_PRECISION(7)) !=
        0) {
        hl_writer_abandon(writer);
        return hl_fail(HL_NO_MEMORY, "%s: no memory for the report", path);
    }
    hl_writer_write(writer, page.after, page.n_after);
    return hl_writer_finish(writer);
}

hl_status hl_report_write(const hl_report *report, const char *path)
{
    hl_report_out out = { check_parts(report) };

    HL_NEED(out.status);
    json_auto_t *data = data_json(&out, report);
    HL_NEED(out.status);
    return data != NULL ? write_page(data, path)
                        : hl_fail(HL_NO_MEMORY, "no memory for the report");
}
