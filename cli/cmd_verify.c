/* cmd_verify.c - headlight verify: golden cases and models on every back end.
 *
 * A few cases get one table each, outputs down, back ends across:
 *
 *     gqa                 tolerance     scalar       avx2     avx512
 *       out             1.0e-05 rel    1.2e-07    3.0e-07    2.8e-07   ok
 *       dq              1.0e-04 rel    4.1e-07    2.2e-03!   3.9e-07   FAIL
 *
 * Many cases get one line each: the largest error as a share of its tolerance, so that 1.00 is the
 * limit for every output, and the output that has this error:
 *
 *     case              scalar     avx2   avx512   worst
 *     gqa                 0.02    22.00     0.02   dq               FAIL
 *
 * Text is printed after each case; JSON, which is one object, at the end. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

typedef enum verify_style {
    STYLE_FULL = 0, /* a table for every case */
    STYLE_COMPACT,  /* a line for every case  */
    STYLE_JSON,
    STYLE_CSV,
    STYLE_SILENT,
} verify_style;

typedef struct verify_printer {
    verify_style       style;
    size_t             n_cases; /* without chat templates */
    size_t             n_templates;
    const char *const *backends; /* back ends in use, NULL-terminated */
    int                name_width;

    /* The fields below are kept from case to case. */
    hl_colors colors;
    size_t    n_failed;
    size_t    n_unread;
    size_t    n_chats; /* conversations of templates, and how many of them are equal */
    size_t    n_equal;
    char      failed[200]; /* names of the first failed cases */
    json_t   *json;        /* array of the cases */
    hl_sheet *outputs;     /* for CSV */
} verify_printer;

/* Up to this number of cases get tables; more get one line each. */
enum { MAX_TABLES = 3 };

typedef struct verify_request {
    hl_common         common;
    hl_arguments      cases;
    const char       *backend;
    const char       *write_path;
    const char       *expected_path;
    int64_t           n_chunk;
    bool              decode;
    bool              verbose;
    hl_gate_arguments gates;
} verify_request;

/* Share of the largest score that float arithmetic may lose. */
#define SCORE_ROUNDING (8.0 / 16777216.0)

/* --------------------------------------------------------------------- numbers */

/* Returns the error as a share of its tolerance. */
static double share(const hl_verify_entry *entry)
{
    if (entry->error == 0.0)
        return 0.0;
    return entry->tolerance > 0.0 ? entry->error / entry->tolerance : INFINITY;
}

/* Returns the entry with the largest share, of one back end or (NULL) of all. */
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

/* ------------------------------------------------------------------ full table */

static void print_mark(const verify_printer *printer, bool passed)
{
    const hl_colors *colors = &printer->colors;

    printf("%s%s%s\n", passed ? colors->good : colors->bad, passed ? "ok" : "FAIL", colors->plain);
}

/* Prints one output of a back end; false if its error is too large. */
static bool print_cell(const verify_printer *printer, const hl_verify_report *report,
                       const char *backend, const char *output)
{
    const hl_colors *colors = &printer->colors;

    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];

        if (strcmp(entry->backend, backend) != 0 || strcmp(entry->output, output) != 0)
            continue;
        if (entry->passed)
            printf("%10.1e ", entry->error);
        else
            printf("%s%10.1e!%s", colors->bad, entry->error, colors->plain);
        return entry->passed;
    }
    printf(" %9s ", "-");
    return true;
}

static void print_table(const verify_printer *printer, const hl_verify_report *report)
{
    const hl_colors *colors = &printer->colors;

    printf("%s%-18s%s %s%-11s", colors->bold, hl_shown(report->name), colors->plain, colors->dim,
           "tolerance");
    for (const char *const *backend = printer->backends; *backend != NULL; backend++)
        printf("%10s%s", *backend, backend[1] != NULL ? " " : "");
    printf("%s\n", colors->plain);
    if (report->n_entries == 0)
        printf("  the case has no expected output; nothing was compared\n");
    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry  = &report->entries[i];
        bool                   passed = true;

        if (strcmp(entry->backend, report->entries[0].backend) != 0)
            continue;
        printf("  %-16s %.1e%-4s", entry->output, entry->tolerance, entry->relative ? " rel" : "");
        for (const char *const *backend = printer->backends; *backend != NULL; backend++)
            passed = print_cell(printer, report, *backend, entry->output) && passed;
        printf("  ");
        print_mark(printer, passed);
    }
    if (report->max_score > 0.0)
        printf(
            "  every tolerance is at least %.1e: scores reach %.3g, and rounding them to floats\n"
            "  gives errors of that size\n",
            SCORE_ROUNDING * report->max_score, report->max_score);
    for (int i = 0; i < HL_VERIFY_NOTES && report->notes[i] != NULL; i++)
        printf("  note: %s\n", report->notes[i]);
    printf("\n");
}

/* --------------------------------------------------------------- compact table */

static void print_compact_header(const verify_printer *printer)
{
    const hl_colors *colors = &printer->colors;

    printf("The largest error of each case, as a share of its tolerance:\n\n");
    printf("%s%-*s", colors->dim, printer->name_width, "case");
    for (const char *const *backend = printer->backends; *backend != NULL; backend++)
        printf(" %8s", *backend);
    printf("   worst%s\n", colors->plain);
}

static void print_compact_row(const verify_printer *printer, const hl_verify_report *report)
{
    const hl_colors       *colors = &printer->colors;
    const hl_verify_entry *worst  = worst_entry(report, NULL);

    printf("%-*s", printer->name_width, hl_shown(report->name));
    for (const char *const *backend = printer->backends; *backend != NULL; backend++) {
        const hl_verify_entry *entry    = worst_entry(report, *backend);
        bool                   passed   = entry == NULL || entry->passed;
        char                   text[16] = "-";

        if (entry != NULL && isinf(share(entry)))
            snprintf(text, sizeof text, "inf");
        else if (entry != NULL)
            snprintf(text, sizeof text, share(entry) < 1000.0 ? "%.2f" : "%.0e", share(entry));
        printf("%s %8s%s", passed ? "" : colors->bad, text, passed ? "" : colors->plain);
    }
    printf("   %-14s  ", worst != NULL ? worst->output : "-");
    print_mark(printer, report->passed);
}

/* Prints, after a line, every output whose error is too large. */
static void print_failures(const hl_verify_report *report)
{
    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];
        if (!entry->passed)
            printf("  %s on %s: error %.1e%s, tolerance %.1e\n", entry->output, entry->backend,
                   entry->error, entry->relative ? " of its largest" : "", entry->tolerance);
    }
}

/* ------------------------------------------------------------------------ JSON */

/* Each output of each back end.  Text has back ends side by side instead. */
static hl_status new_outputs(hl_sheet **out)
{
    return hl_sheet_new(out, "outputs", "Largest error of each output",
                        "case:t backend:t output:t error:6 tolerance:6 relative:b passed:b");
}

static void add_outputs(hl_sheet *table, const hl_verify_report *report)
{
    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];

        hl_sheet_put_text(table, "%s", report->name);
        hl_sheet_put_text(table, "%s", entry->backend);
        hl_sheet_put_text(table, "%s", entry->output);
        hl_sheet_put_reals(table, entry->error, entry->tolerance);
        hl_sheet_put_bool(table, entry->relative);
        hl_sheet_put_bool(table, entry->passed);
    }
}

static json_t *json_report(const hl_verify_report *report)
{
    hl_sheet *table = NULL;
    json_t   *notes = json_array();

    for (int i = 0; i < HL_VERIFY_NOTES && report->notes[i] != NULL; i++)
        json_array_append_new(notes, json_string(report->notes[i]));
    if (new_outputs(&table) == HL_OK)
        add_outputs(table, report);
    return HL_OBJECT(
        HL_IS("case", hl_value_name(report->name)), HL_IS("passed", report->passed),
        HL_IS("outputs", hl_value_rows(table)),
        HL_IS("max_score", report->max_score > 0.0 ? hl_value_number(report->max_score) : NULL),
        HL_IS("notes", notes));
}

static void print_json(const verify_printer *printer)
{
    json_t *backends = json_array();

    for (const char *const *backend = printer->backends; *backend != NULL; backend++)
        json_array_append_new(backends, json_string(*backend));
    hl_print_json(
        HL_OBJECT(HL_IS("passed", (bool)(printer->n_failed + printer->n_unread == 0)),
                  HL_IS("n_cases", printer->n_cases), HL_IS("n_templates", printer->n_templates),
                  HL_IS("n_failed", printer->n_failed), HL_IS("n_unread", printer->n_unread),
                  HL_IS("backends", backends), HL_IS("cases", json_incref(printer->json))),
        JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}

/* ----------------------------------------------------------------- the reports */

/* Collects names for the last line: "gqa, sinks", cut with "..." if there are many. */
static void note_failed(verify_printer *printer, const char *name)
{
    size_t used = strlen(printer->failed);
    size_t room = sizeof printer->failed - used;

    printer->n_failed++;
    if (strlen(name) + 8 < room)
        snprintf(printer->failed + used, room, "%s%s", used != 0 ? ", " : "", name);
    else if (used < 4 || strcmp(printer->failed + used - 3, "...") != 0)
        snprintf(printer->failed + used, room, ", ...");
}

static void print_case(verify_printer *printer, const hl_verify_report *report)
{
    if (!report->passed)
        note_failed(printer, report->name);
    switch (printer->style) {
    case STYLE_FULL:
        print_table(printer, report);
        break;
    case STYLE_COMPACT:
        print_compact_row(printer, report);
        print_failures(report);
        break;
    case STYLE_JSON:
        json_array_append_new(printer->json, json_report(report));
        break;
    case STYLE_CSV:
        add_outputs(printer->outputs, report);
        break;
    case STYLE_SILENT:
        if (!report->passed)
            printf("%s\n", hl_shown(report->name));
        print_failures(report);
        break;
    }
    fflush(stdout);
}

/* A chat template is one line in every style of text. */
static void print_chats(verify_printer *printer, const hl_verify_chats *chats)
{
    bool passed = chats->n_equal == chats->n_chats;

    printer->n_chats += chats->n_chats;
    printer->n_equal += chats->n_equal;
    if (!passed)
        note_failed(printer, chats->name);
    if (printer->style == STYLE_JSON) {
        json_array_append_new(
            printer->json,
            HL_OBJECT(HL_IS("case", hl_value_name(chats->name)), HL_IS("passed", passed),
                      HL_IS("n_chats", chats->n_chats), HL_IS("n_equal", chats->n_equal),
                      HL_IS("difference",
                            chats->difference != NULL ? hl_value_name(chats->difference) : NULL)));
        return;
    }
    if (printer->style == STYLE_SILENT && passed)
        return;
    printf("%-*s  %3zu of %zu conversations are equal   ", printer->name_width,
           hl_shown(chats->name), chats->n_equal, chats->n_chats);
    print_mark(printer, passed);
    if (!passed)
        printf("  %s\n", hl_shown(chats->difference));
}

/* Reports a case that could not be read or run, with hl_error_message(). */
static void print_unread(verify_printer *printer, const char *path, hl_status status)
{
    printer->n_unread++;
    if (printer->style == STYLE_JSON)
        json_array_append_new(printer->json, HL_OBJECT(HL_IS("file", hl_value_name(path)),
                                                       HL_IS("passed", (bool)false),
                                                       HL_IS("status", hl_status_name(status)),
                                                       HL_IS("error", hl_error_message())));
}

static void print_summary(const verify_printer *printer)
{
    const hl_colors *colors     = &printer->colors;
    size_t           n_backends = 0;
    bool             good       = printer->n_failed + printer->n_unread == 0;

    while (printer->backends[n_backends] != NULL)
        n_backends++;
    if (printer->n_templates > 0)
        printf("%s%zu chat template%s: %zu of %zu conversations are equal%s%s",
               good ? colors->good : colors->bad, printer->n_templates,
               printer->n_templates == 1 ? "" : "s", printer->n_equal, printer->n_chats,
               colors->plain, printer->n_cases > 0 ? "\n" : "");
    if (printer->n_cases > 0)
        printf("%s%zu case%s, %zu back end%s: %s", good ? colors->good : colors->bad,
               printer->n_cases, printer->n_cases == 1 ? "" : "s", n_backends,
               n_backends == 1 ? "" : "s", good ? "all within tolerance" : "");
    if (printer->n_failed != 0 && printer->n_cases > 0)
        printf("%zu over tolerance (%s)", printer->n_failed, hl_shown(printer->failed));
    if (printer->n_unread != 0)
        printf("%s%zu could not be run",
               printer->n_failed != 0 || printer->n_cases == 0 ? ", " : "", printer->n_unread);
    printf("%s\n", colors->plain);
}

static hl_status print_end(const verify_printer *printer)
{
    if (printer->style == STYLE_CSV)
        return hl_print_sheet(printer->outputs, HL_SHEET_CSV);
    if (printer->style == STYLE_JSON)
        print_json(printer);
    if (printer->style == STYLE_COMPACT)
        printf("\n");
    if (printer->style == STYLE_COMPACT || printer->style == STYLE_FULL)
        print_summary(printer);
    return HL_OK;
}

/* ------------------------------------------------------------ the command line */

static int check_backend(const hl_usage *usage, const char *name)
{
    char       known[128] = "";
    size_t     used       = 0;
    hl_nearest nearest    = { .wanted = name };

    for (const char *const *backend = hl_backend_names(); *backend != NULL; backend++) {
        if (strcmp(*backend, name) == 0)
            return HL_EXIT_OK;
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", *backend);
        hl_nearest_offer(&nearest, *backend);
    }
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "no back end '%s' on this machine (did you mean '%s'?)",
                                 name, nearest.word);
    return hl_options_refuse(usage, "no back end '%s' on this machine; available:%s", name, known);
}

static int check_request(const verify_request *request, const hl_usage *usage)
{
    if (request->cases.count == 0)
        return hl_options_refuse(usage, "no CASE or MODEL given");
    if (request->write_path != NULL && request->cases.count != 1)
        return hl_options_refuse(usage, "--write takes one case; got %d", request->cases.count);
    if (request->expected_path != NULL && request->cases.count != 1)
        return hl_options_refuse(usage, "--expected takes one model; got %d", request->cases.count);
    if (request->decode && request->n_chunk != 0)
        return hl_options_refuse(usage, "--chunk and --decode cannot be combined");
    if (strcmp(request->common.device, "cpu") != 0 && request->backend != NULL)
        return hl_options_refuse(usage, "--device %s and --backend cannot be combined",
                                 request->common.device);
    if (request->backend != NULL)
        return check_backend(usage, request->backend);
    /* The name is empty if HEADLIGHT_BACKEND names a back end that does not exist. */
    if (hl_backend_name()[0] == '\0')
        return hl_options_refuse(usage, "%s", hl_error_message());
    return HL_EXIT_OK;
}

static int parse_request(verify_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_TEXT("backend", 0, &request->backend, "NAME",
                "verify only this back end (scalar, avx2, avx512, neon)"),
        HL_TEXT("write", 0, &request->write_path, "FILE",
                "store the outputs of the chosen back end"),
        HL_TEXT("expected", 0, &request->expected_path, "FILE", "expected outputs of a model"),
        HL_INT("chunk", 0, &request->n_chunk, "N", "feed a model N tokens at a time", 1, 1 << 30),
        HL_FLAG("decode", 0, &request->decode, "feed a model one token at a time"),
        HL_FLAG("verbose", 'v', &request->verbose, "print the table of every case"),
        HL_CSV_OPTION(&request->common, "print a line of CSV for each output of each back end"),
        HL_GATE_OPTIONS(&request->gates),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "verify",
        .arguments = "CASE.safetensors... | NAME.json... | MODEL...",
        .text =
            "Runs golden cases on every back end that this CPU has, and prints the largest error\n"
            "of each output beside its tolerance.  A CASE is an attention case (forward and\n"
            "backward) or a file of quantized blocks, NAME.blocks beside NAME.values, which must\n"
            "match exactly.  Exit status 1 if an error exceeds its tolerance.\n"
            "\n"
            "NAME.json is an array of conversations with the texts that another program\n"
            "rendered of them, and NAME.jinja beside it the chat template.  All texts must be\n"
            "equal, or refused with the same error.\n"
            "\n"
            "A MODEL is a folder, a .gguf or a .bin.  Its tokens and expected outputs come from\n"
            "expected.safetensors in the folder, or from --expected.  Without either, the fused\n"
            "statistics of rows are compared with those of the same rows materialized in double\n"
            "precision.\n"
            "\n"
            "With --off or --gates, logits are compared with masked_logits if those were made\n"
            "with the same heads disabled; else rows are compared as without a file.\n"
            "\n"
            "--write stores the outputs of --backend, or of the back end that would be chosen at\n"
            "run time, under the case's own tensor names; it takes one case.  For NAME.json it\n"
            "stores the rendered texts in the same form.",
        .options = options,
    };

    HL_PASS(hl_options_parse(&request->cases, &request->common, &usage, argc, argv));
    return check_request(request, &usage);
}

/* ----------------------------------------------------------------- the command */

static verify_style choose_style(const verify_request *request)
{
    if (request->common.json)
        return STYLE_JSON;
    if (request->common.csv)
        return STYLE_CSV;
    if (request->common.quiet)
        return STYLE_SILENT;
    return request->verbose || request->cases.count <= MAX_TABLES ? STYLE_FULL : STYLE_COMPACT;
}

static bool is_chat(const char *path)
{
    size_t n = strlen(path);

    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

/* Returns the width of the column of names. */
static int longest_name(const verify_request *request)
{
    int longest = 16;

    for (int i = 0; i < request->cases.count; i++) {
        const char *slash  = strrchr(request->cases.items[i], '/');
        const char *name   = slash != NULL ? slash + 1 : request->cases.items[i];
        const char *ending = strrchr(name, '.');
        int         length = (int)(ending != NULL ? ending - name : (long)strlen(name));

        longest = length > longest ? length : longest;
    }
    return longest;
}

/* Sets a model's gates before it runs. */
static hl_status gate_model(void *context, hl_model *model)
{
    const verify_request *request = context;

    if (strcmp(request->common.device, "cpu") != 0)
        HL_NEED(hl_model_set_device(model, request->common.device));
    return hl_gate_options_apply(model, &request->gates, "verify",
                                 request->common.quiet || request->common.json);
}

/* Verifies one case; returns its exit status. */
static int verify_case(verify_printer *printer, const char *path, const hl_verify_options *options)
{
    hl_verify_report *report = NULL;
    hl_status         status = hl_verify(&report, path, options);

    if (status != HL_OK) {
        hl_complain("verify", "%s", hl_explain(status));
        print_unread(printer, path, status);
        return hl_exit_for(status);
    }
    int code = report->passed ? HL_EXIT_OK : HL_EXIT_NO;
    print_case(printer, report);
    hl_verify_report_free(report);
    return code;
}

static int verify_chat(verify_printer *printer, const char *path, const char *write_path)
{
    hl_verify_chats *chats  = NULL;
    hl_status        status = hl_verify_chat(&chats, path, write_path);

    if (status != HL_OK) {
        hl_complain("verify", "%s", hl_explain(status));
        print_unread(printer, path, status);
        return hl_exit_for(status);
    }
    int code = chats->n_equal == chats->n_chats ? HL_EXIT_OK : HL_EXIT_NO;
    if (printer->style != STYLE_CSV)
        print_chats(printer, chats);
    hl_verify_chats_free(chats);
    return code;
}

/* Selects the device for models, and the back end of the same name for attention cases. */
static hl_status use_gpu(verify_request *request)
{
    request->backend = "cuda";
    HL_NEED(hl_backend_select("cuda"));
    return hl_device_check(request->common.device);
}

int hl_command_verify(int argc, char **argv)
{
    verify_request request = { 0 };

    HL_PASS(parse_request(&request, argc, argv));
    if (strcmp(request.common.device, "cpu") != 0)
        HL_CALL("verify", use_gpu(&request));

    const char       *only[]  = { request.backend, NULL };
    bool              gated   = request.gates.path != NULL || request.gates.off != NULL;
    hl_verify_options options = {
        .backend       = request.backend,
        .write_path    = request.write_path,
        .n_threads     = request.common.n_threads,
        .expected_path = request.expected_path,
        .n_chunk       = request.n_chunk,
        .decode        = request.decode,
        .prepare       = gated ? gate_model : NULL,
        .context       = &request,
    };
    verify_printer printer = {
        .style      = choose_style(&request),
        .colors     = hl_terminal_colors(stdout),
        .json       = json_array(),
        .n_cases    = (size_t)request.cases.count,
        .backends   = request.backend != NULL ? only : hl_backend_names(),
        .name_width = longest_name(&request),
    };

    if (printer.style == STYLE_CSV)
        HL_CALL("verify", new_outputs(&printer.outputs));
    for (int i = 0; i < request.cases.count; i++)
        printer.n_templates += is_chat(request.cases.items[i]);
    printer.n_cases -= printer.n_templates;
    if (printer.style == STYLE_COMPACT && printer.n_cases > 0)
        print_compact_header(&printer);
    /* One bad file does not hide the others; the most serious status wins. */
    int worst = HL_EXIT_OK;
    for (int i = 0; i < request.cases.count; i++) {
        const char *path = request.cases.items[i];
        int         code = is_chat(path) ? verify_chat(&printer, path, request.write_path)
                                         : verify_case(&printer, path, &options);
        worst            = code > worst ? code : worst;
    }
    hl_status status = print_end(&printer);
    json_decref(printer.json);
    hl_sheet_free(printer.outputs);
    HL_CALL("verify", status);
    return worst;
}
