/* report.c - a page and its data, in one file.
 *
 *     the page up to its data | {"format": ...} | the rest of the page
 *
 * In the data `<`, `>` and `&` are written as \u003c and so on, so that no text of a model or a
 * file can end the element that it stands in; outside of strings JSON has none of them. */
#include "render/report.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/status.h"
#include "render/page.h"

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
        return hl_fail(HL_BAD_ARGUMENT, "there is nothing to report");
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

static json_t *definitions_json(hl_report_out *out)
{
    json_t *all = hl_report_object(out);

    for (size_t i = 0; hl_definition_at(i) != NULL; i++) {
        const hl_definition *entry = hl_definition_at(i);

        if (entry->key != NULL)
            hl_report_set(out, all, entry->key,
                          json_pack("{s:s, s:s, s:s}", "name", entry->title, "unit", entry->unit,
                                    "text", entry->text));
    }
    return all;
}

static json_t *data_json(hl_report_out *out, const hl_report *report)
{
    json_t *root     = hl_report_object(out);
    json_t *profiles = hl_report_list(out);
    double threshold = report->spike_threshold > 0.0 ? report->spike_threshold : HL_SPIKE_THRESHOLD;

    hl_report_set(out, root, "format", json_string("headlight.report/1"));
    hl_report_set(out, root, "version", json_string(hl_version()));
    if (report->title != NULL)
        hl_report_set(out, root, "title", hl_report_text(report->title));
    hl_report_set(out, root, "definitions", definitions_json(out));
    for (int64_t i = 0; i < report->n_profiles && out->status == HL_OK; i++)
        hl_report_append(out, profiles, hl_report_profile_json(out, report, i));
    hl_report_set(out, root, "profiles", profiles);
    if (report->maps != NULL)
        hl_report_set(out, root, "tokens", hl_report_tokens_json(out, report->maps));
    if (report->lens != NULL)
        hl_report_set(out, root, "lens", hl_report_lens_json(out, report->lens));
    if (report->trace != NULL)
        hl_report_set(out, root, "trace", hl_report_trace_json(out, report->trace, threshold));
    if (report->compare_path != NULL || report->n_profiles > 1)
        hl_report_set(out, root, "compare", hl_report_compare_json(out, report));
    if (report->sweep_path != NULL)
        hl_report_set(out, root, "sweep", hl_report_sweep_json(out, report));
    return root;
}

/* ------------------------------------------------------------------------- the file */

/* For jansson: a piece of the dump, made safe inside an element. */
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
    /* Seven digits are what a float holds. */
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
    hl_report_out out  = { check_parts(report) };
    json_t       *data = out.status == HL_OK ? data_json(&out, report) : NULL;

    if (out.status == HL_OK)
        out.status = write_page(data, path);
    json_decref(data);
    return out.status;
}
