/* sweep_figure.c - from the tables of a sweep to the arrays of figures. */
#include "sweep_figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "values.h"

/* ----------------------------------------------------------------------- columns */

/* A column of a table from `row` on; free it. */
static double *column(const hl_sheet *table, const char *name, int64_t row, int64_t n)
{
    double *values = malloc((size_t)(n > 0 ? n : 1) * sizeof *values);

    for (int64_t i = 0; i < n && values != NULL; i++)
        values[i] = hl_sheet_number(table, row + i, hl_sheet_find(table, name));
    return values;
}

/* What the axis shows of a mean NLL. */
static double *shown(const hl_sheet *table, const char *name, int64_t row, int64_t n, double dense,
                     bool perplexity)
{
    double *values = column(table, name, row, n);

    for (int64_t i = 0; i < n && values != NULL; i++)
        values[i] = perplexity ? exp(values[i]) : values[i] - dense;
    return values;
}

/* ------------------------------------------------------------------------ curves */

static void free_curve(hl_curve *curve)
{
    free((void *)curve->x);
    free((void *)curve->y);
    free((void *)curve->low);
    free((void *)curve->high);
    free((void *)curve->inner_low);
    free((void *)curve->inner_high);
}

static hl_curve order_curve(const hl_sheet *points, int64_t row, int64_t n, double dense,
                            bool perplexity)
{
    return (hl_curve){ .name = hl_sheet_text(points, row, 0),
                       .n    = n,
                       .x    = column(points, "ratio", row, n),
                       .y    = shown(points, "nll", row, n, dense, perplexity) };
}

static hl_curve random_curve(const hl_sheet *random, double dense, bool perplexity)
{
    int64_t n = hl_sheet_n_rows(random);

    return (hl_curve){ .name       = "random",
                       .n          = n,
                       .kind       = HL_CURVE_CHANCE,
                       .x          = column(random, "ratio", 0, n),
                       .y          = shown(random, "median", 0, n, dense, perplexity),
                       .low        = shown(random, "least", 0, n, dense, perplexity),
                       .high       = shown(random, "most", 0, n, dense, perplexity),
                       .inner_low  = shown(random, "quarter", 0, n, dense, perplexity),
                       .inner_high = shown(random, "three_quarters", 0, n, dense, perplexity) };
}

static bool is_whole(const hl_curve *curve)
{
    bool band = curve->low != NULL && curve->high != NULL && curve->inner_low != NULL &&
                curve->inner_high != NULL;

    return curve->x != NULL && curve->y != NULL && (curve->kind != HL_CURVE_CHANCE || band);
}

hl_status hl_sweep_draw_curves(const hl_sweep_figure *figure, const char *path, bool perplexity)
{
    const hl_sweep      *sweep    = figure->sweep;
    const hl_sheet      *points   = hl_sweep_table(sweep, "points");
    const hl_sheet      *random   = hl_sweep_table(sweep, "random");
    const hl_evaluation *test     = hl_sweep_evaluation(sweep);
    int64_t              n_ratios = hl_sheet_n_rows(random);
    int64_t              n_orders = hl_sheet_n_rows(points) / n_ratios;
    double               dense    = hl_evaluation_total(test, -1).nll / (double)test->n_scored;
    hl_curve            *curves   = calloc((size_t)n_orders + 1, sizeof *curves);
    hl_status            status   = curves != NULL ? HL_OK : HL_NO_MEMORY;
    char                 title[200], what[300], band[64];

    for (int64_t i = 0; i <= n_orders && status == HL_OK; i++) {
        curves[i] = i == 0 ? random_curve(random, dense, perplexity)
                           : order_curve(points, (i - 1) * n_ratios, n_ratios, dense, perplexity);
        status    = is_whole(&curves[i]) ? HL_OK : HL_NO_MEMORY;
    }
    snprintf(title, sizeof title, "%s: what switching heads off costs", figure->model);
    snprintf(
        what, sizeof what, "%lld tokens scored in %lld windows of %lld; dense %.4f nats a token",
        (long long)test->n_scored, (long long)test->n_windows, (long long)test->context, dense);
    snprintf(band, sizeof band, "random: all of %.0f seeds", hl_sheet_fact(random, "seeds"));
    if (status == HL_OK)
        status = hl_draw_curves(
            &(hl_curves){ .title  = title,
                          .x_name = "share of heads switched off",
                          .y_name = perplexity ? "perplexity" : "rise of the loss, nats a token",
                          .what   = what,
                          .band   = band,
                          .inner_band = "the middle half",
                          .curves     = curves,
                          .n_curves   = n_orders + 1,
                          .log_y      = perplexity },
            path, figure->how);
    for (int64_t i = 0; i <= n_orders && curves != NULL; i++)
        free_curve(&curves[i]);
    free(curves);
    return status;
}

/* ----------------------------------------------------------------------- scatter */

enum { NAME_BYTES = 48 };

/* The points of all panels: heads in the order of the table's first ranker. */
typedef struct points {
    const hl_sheet   *correlation;
    const hl_sheet   *heads;
    int64_t           n_panels;
    int64_t           n_heads;
    hl_scatter_panel *panels; /* (n_panels) */
    double           *values; /* (n_panels, 2, n_heads) */
    const char      **names;  /* (n_heads) */
    char             *text;   /* (n_heads, NAME_BYTES) */
} points;

static hl_status allocate(points *p)
{
    size_t n_panels = (size_t)p->n_panels, n_heads = (size_t)p->n_heads;

    p->panels = calloc(n_panels + 1, sizeof *p->panels);
    p->values = calloc(n_panels * n_heads + 1, 2 * sizeof *p->values);
    p->names  = calloc(n_heads + 1, sizeof *p->names);
    p->text   = calloc(n_heads + 1, NAME_BYTES);
    return p->panels != NULL && p->values != NULL && p->names != NULL && p->text != NULL
               ? HL_OK
               : HL_NO_MEMORY;
}

static void name_heads(points *p)
{
    for (int64_t i = 0; i < p->n_heads; i++) {
        p->names[i] = p->text + i * NAME_BYTES;
        snprintf(p->text + i * NAME_BYTES, NAME_BYTES, "L%.0fH%.0f",
                 hl_cell_number(p->heads, i, "layer"), hl_cell_number(p->heads, i, "head"));
    }
}

/* Each ranker has its own order: heads are found by layer and number. */
static void fill_panel(points *p, int64_t panel)
{
    double *x = p->values + 2 * panel * p->n_heads;
    double *y = x + p->n_heads;

    for (int64_t i = 0; i < p->n_heads; i++) {
        for (int64_t row = panel * p->n_heads; row < (panel + 1) * p->n_heads; row++) {
            if (hl_cell_number(p->heads, row, "layer") == hl_cell_number(p->heads, i, "layer") &&
                hl_cell_number(p->heads, row, "head") == hl_cell_number(p->heads, i, "head")) {
                x[i] = hl_cell_number(p->heads, row, "score");
                y[i] = hl_cell_number(p->heads, row, "rise");
            }
        }
    }
    p->panels[panel] =
        (hl_scatter_panel){ .name     = hl_sheet_text(p->correlation, panel, 0),
                            .x        = x,
                            .y        = y,
                            .rho      = hl_cell_number(p->correlation, panel, "rho"),
                            .rho_low  = hl_cell_number(p->correlation, panel, "low"),
                            .rho_high = hl_cell_number(p->correlation, panel, "high") };
}

hl_status hl_sweep_draw_scatter(const hl_sweep_figure *figure, const char *path)
{
    points p = { .correlation = hl_sweep_table(figure->sweep, "correlation"),
                 .heads       = hl_sweep_table(figure->sweep, "heads") };
    char   title[200];

    p.n_panels       = hl_sheet_n_rows(p.correlation);
    p.n_heads        = p.n_panels > 0 ? hl_sheet_n_rows(p.heads) / p.n_panels : 0;
    hl_status status = allocate(&p);
    if (status == HL_OK) {
        name_heads(&p);
        for (int64_t i = 0; i < p.n_panels; i++)
            fill_panel(&p, i);
        snprintf(title, sizeof title, "%s: does a score tell what a head is worth?", figure->model);
        status = hl_draw_scatter(&(hl_scatter){ .title    = title,
                                                .x_name   = "score on the ranking text",
                                                .y_name   = "rise of the loss without the head",
                                                .what     = "Spearman's rho with 95% interval",
                                                .n_points = p.n_heads,
                                                .names    = p.names,
                                                .panels   = p.panels,
                                                .n_panels = p.n_panels },
                                 path, figure->how);
    }
    free(p.panels);
    free(p.values);
    free(p.names);
    free(p.text);
    return status;
}
