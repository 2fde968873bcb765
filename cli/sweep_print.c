/* sweep_print.c - a sweep for people: an order a line, a ratio a column, and the verdict; and as
 * JSON, with all tables. */
#include "sweep_print.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "printable.h"
#include "terminal.h"
#include "values.h"

int hl_sweep_print_table(const hl_sweep *sweep, const char *name, hl_sheet_format format)
{
    char     *text   = NULL;
    hl_status status = hl_sheet_render(&text, hl_sweep_table(sweep, name), format);

    if (status == HL_OK)
        hl_put_sheet(text, format);
    else
        hl_complain("sweep", "%s", hl_explain(status));
    hl_free(text);
    return hl_exit_for(status);
}

/* ---------------------------------------------------------------------- people */

static void print_heading(const hl_sweep *sweep, const char *model)
{
    const hl_sheet      *random  = hl_sweep_table(sweep, "random");
    const hl_evaluation *test    = hl_sweep_evaluation(sweep);
    hl_colours           colours = hl_terminal_colours(stdout);

    printf(
        "%s%s%s  %lld tokens scored in %lld windows of %lld; without pruning %.4f nats a token\n",
        colours.bold, hl_shown(model), colours.plain, (long long)test->n_scored,
        (long long)test->n_windows, (long long)test->context,
        hl_evaluation_total(test, -1).nll / (double)test->n_scored);
    printf("Rise of the loss, nats a token, with so many heads switched off:\n\n  %-28s", "ratio");
    for (int64_t i = 0; i < hl_sheet_n_rows(random); i++)
        printf(" %8.2f", hl_cell_number(random, i, "ratio"));
    printf("\n  %-28s", "heads off");
    for (int64_t i = 0; i < hl_sheet_n_rows(random); i++)
        printf(" %8.0f", hl_cell_number(random, i, "off"));
    printf("\n");
}

/* A mark where the difference to random is clear. */
static char mark(const hl_sheet *points, int64_t row)
{
    if (hl_cell_number(points, row, "vs_high") < 0.0)
        return '+';
    return hl_cell_number(points, row, "vs_low") > 0.0 ? '-' : ' ';
}

static void print_orders(const hl_sweep *sweep)
{
    const hl_sheet *points   = hl_sweep_table(sweep, "points");
    const hl_sheet *random   = hl_sweep_table(sweep, "random");
    int64_t         n_ratios = hl_sheet_n_rows(random);

    for (int64_t row = 0; row < hl_sheet_n_rows(points); row++) {
        if (row % n_ratios == 0)
            printf("  %-28s", hl_sheet_text(points, row, 0));
        printf(" %7.4f%c", hl_cell_number(points, row, "rise"), mark(points, row));
        if (row % n_ratios == n_ratios - 1)
            printf("\n");
    }
}

static void print_random(const hl_sweep *sweep)
{
    static const char *const columns[] = { "least", "median", "most" };
    static const char *const names[]   = { "random, least", "random, median", "random, most" };
    const hl_sheet          *random    = hl_sweep_table(sweep, "random");
    const hl_evaluation     *test      = hl_sweep_evaluation(sweep);
    double                   dense     = hl_evaluation_total(test, -1).nll / (double)test->n_scored;

    for (int i = 0; i < 3; i++) {
        printf("  %-28s", names[i]);
        for (int64_t row = 0; row < hl_sheet_n_rows(random); row++)
            printf(" %7.4f ", hl_cell_number(random, row, columns[i]) - dense);
        printf("\n");
    }
    printf("\n  + clearly better than the mean of random orders, - clearly worse (95%%, each by "
           "itself)\n\n");
}

/* Shares of a table's column, a row of the table each, under one name. */
static void print_shares(const hl_sheet *table, int64_t first, int64_t count, const char *name)
{
    printf("  %-28s", name);
    for (int64_t row = first; row < first + count; row++)
        printf(" %7.1f ", 100.0 * hl_cell_number(table, row, "last_word"));
    printf("\n");
}

static void print_words(const hl_sweep *sweep)
{
    const hl_sheet *points   = hl_sweep_table(sweep, "points");
    const hl_sheet *random   = hl_sweep_table(sweep, "random");
    int64_t         n_ratios = hl_sheet_n_rows(random);

    if (isnan(hl_cell_number(random, 0, "last_word")))
        return;
    printf("Last words foretold, in per cent:\n\n");
    for (int64_t row = 0; row < hl_sheet_n_rows(points); row += n_ratios)
        print_shares(points, row, n_ratios, hl_sheet_text(points, row, 0));
    print_shares(random, 0, n_ratios, "random, mean");
    printf("\n");
}

int hl_sweep_print(const hl_sweep *sweep, const char *model)
{
    print_heading(sweep, model);
    print_orders(sweep);
    print_random(sweep);
    print_words(sweep);
    int code = hl_sweep_print_table(sweep, "correlation", HL_SHEET_TEXT);
    if (code == HL_EXIT_OK)
        printf("\n");
    if (code == HL_EXIT_OK)
        code = hl_sweep_print_table(sweep, "savings", HL_SHEET_TEXT);
    printf("\n");
    for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++)
        printf("%s\n", hl_sweep_verdict(sweep, i));
    return code;
}

/* ------------------------------------------------------------------------ JSON */

/* NULL when memory is out. */
static json_t *tables_of(const hl_sweep *sweep)
{
    json_t *tables = json_object();

    for (size_t i = 0; tables != NULL && hl_sweep_table_name(i) != NULL; i++) {
        char       *text  = NULL;
        json_t     *value = NULL;
        const char *name  = hl_sweep_table_name(i);

        if (hl_sheet_render(&text, hl_sweep_table(sweep, name), HL_SHEET_JSON) != HL_OK ||
            hl_json_read(&value, text, strlen(text), name) != HL_OK ||
            json_object_set_new(tables, name, value) != 0) {
            json_decref(tables);
            tables = NULL;
        }
        hl_free(text);
    }
    return tables;
}

int hl_sweep_print_json(const hl_sweep *sweep, const char *model)
{
    const hl_evaluation *test    = hl_sweep_evaluation(sweep);
    json_t              *verdict = json_array();

    for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++)
        json_array_append_new(verdict, json_string(hl_sweep_verdict(sweep, i)));
    json_t *root =
        json_pack("{s:o, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o}", "model",
                  hl_value_name(model), "context", (json_int_t)test->context, "windows",
                  (json_int_t)test->n_windows, "scored", (json_int_t)test->n_scored, "nll",
                  hl_evaluation_total(test, -1).nll / (double)test->n_scored, "settings",
                  (json_int_t)test->n_settings, "distinct", (json_int_t)test->n_distinct,
                  "layers_run", (json_int_t)test->n_layers_run, "layers_naive",
                  (json_int_t)test->n_layers_naive, "verdict", verdict, "tables", tables_of(sweep));
    bool good = hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));

    printf("\n");
    json_decref(root);
    return good ? HL_EXIT_OK : HL_EXIT_RESOURCES;
}
