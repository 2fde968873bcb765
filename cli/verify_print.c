/* verify_print.c - the reports of `headlight verify`.
 *
 * A few cases get a table each, outputs down, back ends across:
 *
 *     gqa                 tolerance     scalar       avx2     avx512
 *       out             1.0e-05 rel    1.2e-07    3.0e-07    2.8e-07   ok
 *       dq              1.0e-04 rel    4.1e-07    2.2e-03!   3.9e-07   FAIL
 *
 * Many cases get a line each: the largest error as a share of what is allowed,
 * so that 1.00 is the limit for every output, and the output it belongs to:
 *
 *     case              scalar     avx2   avx512   worst
 *     gqa                 0.02    22.00     0.02   dq               FAIL */
#include "verify_print.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "printable.h"
#include "values.h"

/* Of the largest score, what float arithmetic may lose. */
#define SCORE_ROUNDING (8.0 / 16777216.0)

/* ------------------------------------------------------------------ numbers */

static const hl_verify_entry *find_entry(const hl_verify_report *report, const char *backend,
                                         const char *output)
{
    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];
        if (strcmp(entry->backend, backend) == 0 && strcmp(entry->output, output) == 0)
            return entry;
    }
    return NULL;
}

/* The error in units of what is allowed. */
static double share(const hl_verify_entry *entry)
{
    if (entry->error == 0.0)
        return 0.0;
    return entry->tolerance > 0.0 ? entry->error / entry->tolerance : INFINITY;
}

/* The entry with the largest share, of one back end or (NULL) of all. */
static const hl_verify_entry *worst_entry(const hl_verify_report *report, const char *backend)
{
    const hl_verify_entry *worst = NULL;

    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];
        if (backend != NULL && strcmp(entry->backend, backend) != 0)
            continue;
        if (worst == NULL || share(entry) > share(worst))
            worst = entry;
    }
    return worst;
}

static void format_share(char *out, size_t n_bytes, double value)
{
    if (isinf(value))
        snprintf(out, n_bytes, "inf");
    else
        snprintf(out, n_bytes, value < 1000.0 ? "%.2f" : "%.0e", value);
}

static size_t count_backends(const hl_verify_printer *printer)
{
    size_t count = 0;

    while (printer->backends[count] != NULL)
        count++;
    return count;
}

/* --------------------------------------------------------------- full table */

static void print_cell(const hl_verify_printer *printer, const hl_verify_entry *entry)
{
    const hl_colours *colours = &printer->colours;

    if (entry == NULL)
        printf(" %9s ", "-");
    else if (entry->passed)
        printf("%10.1e ", entry->error);
    else
        printf("%s%10.1e!%s", colours->bad, entry->error, colours->plain);
}

static void print_mark(const hl_verify_printer *printer, bool passed)
{
    const hl_colours *colours = &printer->colours;

    printf("%s%s%s\n", passed ? colours->good : colours->bad, passed ? "ok" : "FAIL",
           colours->plain);
}

/* One output on all back ends. */
static void print_row(const hl_verify_printer *printer, const hl_verify_report *report,
                      const hl_verify_entry *first)
{
    bool passed = true;

    printf("  %-16s %.1e%-4s", first->output, first->tolerance, first->relative ? " rel" : "");
    for (const char *const *backend = printer->backends; *backend != NULL; backend++) {
        const hl_verify_entry *entry = find_entry(report, *backend, first->output);
        print_cell(printer, entry);
        passed = passed && (entry == NULL || entry->passed);
    }
    printf("  ");
    print_mark(printer, passed);
}

static void print_table(const hl_verify_printer *printer, const hl_verify_report *report)
{
    const hl_colours *colours = &printer->colours;

    printf("%s%-18s%s %s%-11s", colours->bold, hl_shown(report->name), colours->plain, colours->dim,
           "tolerance");
    for (const char *const *backend = printer->backends; *backend != NULL; backend++)
        printf("%10s%s", *backend, backend[1] != NULL ? " " : "");
    printf("%s\n", colours->plain);
    if (report->n_entries == 0)
        printf("  the case expects nothing: nothing was compared\n");
    for (size_t i = 0; i < report->n_entries; i++) {
        if (strcmp(report->entries[i].backend, report->entries[0].backend) == 0)
            print_row(printer, report, &report->entries[i]);
    }
    if (report->max_score > 0.0)
        printf("  scores reach %.3g: their rounding of %.1e is allowed in any case\n",
               report->max_score, SCORE_ROUNDING * report->max_score);
    printf("\n");
}

/* -------------------------------------------------------------- compact table */

static void print_compact_header(const hl_verify_printer *printer)
{
    const hl_colours *colours = &printer->colours;

    printf("The largest error of each case, as a share of what is allowed.\n\n");
    printf("%s%-*s", colours->dim, printer->name_width, "case");
    for (const char *const *backend = printer->backends; *backend != NULL; backend++)
        printf(" %8s", *backend);
    printf("   worst%s\n", colours->plain);
}

static void print_compact_row(const hl_verify_printer *printer, const hl_verify_report *report)
{
    const hl_colours      *colours = &printer->colours;
    const hl_verify_entry *worst   = worst_entry(report, NULL);

    printf("%-*s", printer->name_width, hl_shown(report->name));
    for (const char *const *backend = printer->backends; *backend != NULL; backend++) {
        const hl_verify_entry *entry    = worst_entry(report, *backend);
        char                   text[16] = "-";

        if (entry != NULL)
            format_share(text, sizeof text, share(entry));
        printf("%s %8s%s", entry == NULL || entry->passed ? "" : colours->bad, text,
               entry == NULL || entry->passed ? "" : colours->plain);
    }
    printf("   %-14s  ", worst != NULL ? worst->output : "-");
    print_mark(printer, report->passed);
}

/* What a line hides: every output that is over, in words. */
static void print_failures(const hl_verify_report *report)
{
    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];
        if (!entry->passed)
            printf("  %s on %s: %.1e%s, allowed %.1e\n", entry->output, entry->backend,
                   entry->error, entry->relative ? " of its largest" : "", entry->tolerance);
    }
}

/* --------------------------------------------------------------------- JSON */

static json_t *json_entry(const hl_verify_entry *entry)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:b, s:b}", "backend", entry->backend, "output",
                     entry->output, "error", hl_value_number(entry->error), "tolerance",
                     hl_value_number(entry->tolerance), "relative", entry->relative, "passed",
                     entry->passed);
}

static json_t *json_report(const hl_verify_report *report)
{
    json_t *outputs = json_array();

    for (size_t i = 0; i < report->n_entries; i++)
        json_array_append_new(outputs, json_entry(&report->entries[i]));
    json_t *root = json_pack("{s:o, s:b, s:o}", "case", hl_value_name(report->name), "passed",
                             report->passed, "outputs", outputs);

    if (report->max_score > 0.0)
        json_object_set_new(root, "max_score", hl_value_number(report->max_score));
    return root;
}

static void print_json(hl_verify_printer *printer)
{
    json_t *backends = json_array();

    for (const char *const *backend = printer->backends; *backend != NULL; backend++)
        json_array_append_new(backends, json_string(*backend));

    json_t *root = json_pack(
        "{s:b, s:I, s:I, s:I, s:o, s:o}", "passed", printer->n_failed + printer->n_unread == 0,
        "n_cases", (json_int_t)printer->n_cases, "n_failed", (json_int_t)printer->n_failed,
        "n_unread", (json_int_t)printer->n_unread, "backends", backends, "cases",
        (json_t *)printer->json);
    hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(root);
    printer->json = NULL;
}

/* ---------------------------------------------------------------- the whole */

void hl_verify_print_begin(hl_verify_printer *printer)
{
    printer->colours = hl_terminal_colours(stdout);
    if (printer->style == HL_VERIFY_JSON)
        printer->json = json_array();
    if (printer->style == HL_VERIFY_COMPACT)
        print_compact_header(printer);
}

/* For the last line: "gqa, sinks", cut with "..." where they are many. */
static void note_failed(hl_verify_printer *printer, const char *name)
{
    size_t used = strlen(printer->failed);
    size_t room = sizeof printer->failed - used;

    printer->n_failed++;
    if (strlen(name) + 8 < room)
        snprintf(printer->failed + used, room, "%s%s", used != 0 ? ", " : "", name);
    else if (used < 4 || strcmp(printer->failed + used - 3, "...") != 0)
        snprintf(printer->failed + used, room, ", ...");
}

void hl_verify_print_case(hl_verify_printer *printer, const hl_verify_report *report)
{
    if (!report->passed)
        note_failed(printer, report->name);
    switch (printer->style) {
    case HL_VERIFY_FULL:
        print_table(printer, report);
        break;
    case HL_VERIFY_COMPACT:
        print_compact_row(printer, report);
        print_failures(report);
        break;
    case HL_VERIFY_JSON:
        json_array_append_new(printer->json, json_report(report));
        break;
    case HL_VERIFY_SILENT:
        if (!report->passed)
            printf("%s\n", hl_shown(report->name));
        print_failures(report);
        break;
    }
    fflush(stdout);
}

void hl_verify_print_unread(hl_verify_printer *printer, const char *path, hl_status status)
{
    printer->n_unread++;
    if (printer->style == HL_VERIFY_JSON)
        json_array_append_new(printer->json,
                              json_pack("{s:o, s:b, s:s, s:s}", "file", hl_value_name(path),
                                        "passed", 0, "status", hl_status_name(status), "error",
                                        hl_error_message()));
}

static void print_summary(const hl_verify_printer *printer)
{
    const hl_colours *colours    = &printer->colours;
    size_t            n_backends = count_backends(printer);
    bool              good       = printer->n_failed + printer->n_unread == 0;

    printf("%s%zu case%s, %zu back end%s: %s", good ? colours->good : colours->bad,
           printer->n_cases, printer->n_cases == 1 ? "" : "s", n_backends,
           n_backends == 1 ? "" : "s", good ? "all within tolerance" : "");
    if (printer->n_failed != 0)
        printf("%zu over tolerance (%s)", printer->n_failed, hl_shown(printer->failed));
    if (printer->n_unread != 0)
        printf("%s%zu could not be run", printer->n_failed != 0 ? ", " : "", printer->n_unread);
    printf("%s\n", colours->plain);
}

void hl_verify_print_end(hl_verify_printer *printer)
{
    switch (printer->style) {
    case HL_VERIFY_JSON:
        print_json(printer);
        break;
    case HL_VERIFY_COMPACT:
        printf("\n");
        print_summary(printer);
        break;
    case HL_VERIFY_FULL:
        print_summary(printer);
        break;
    case HL_VERIFY_SILENT:
        break;
    }
}
