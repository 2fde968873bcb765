/* show_print.c - heatmap, layer profile, extremes and diagnoses of a profile.
 *
 * Everything comes from the tables that `--table` prints; this file only lays them out. */
#include "show_print.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose_print.h"
#include "heatmap.h"
#include "memory.h"
#include "printable.h"
#include "terminal.h"
#include "values.h"

enum { PAGE_WIDTH = 80, N_EXTREMES = 5, SPARK_WIDTH = 40 };

typedef struct screen {
    hl_sheet     *heads;
    hl_sheet     *layers;
    hl_sheet     *positions;
    hl_sheet     *extremes;
    hl_sheet     *types;
    hl_diagnoses *diagnoses;
} screen;

static void screen_free(screen *s)
{
    hl_sheet_free(s->heads);
    hl_sheet_free(s->layers);
    hl_sheet_free(s->positions);
    hl_sheet_free(s->extremes);
    hl_sheet_free(s->types);
    hl_diagnoses_free(s->diagnoses);
}

static hl_status screen_fill(screen *s, const hl_show_request *request)
{
    hl_analysis_options options = { .seed = request->seed, .n_extremes = N_EXTREMES };
    hl_status           status  = hl_analyse(&s->heads, request->profile, "heads", &options);

    if (status == HL_OK)
        status = hl_analyse(&s->layers, request->profile, "layers", &options);
    if (status == HL_OK)
        status = hl_analyse(&s->positions, request->profile, "positions", &options);
    if (status == HL_OK)
        status = hl_analyse(&s->extremes, request->profile, "extremes", &options);
    if (status == HL_OK)
        status = hl_analyse(&s->types, request->profile, "head-types", &options);
    if (status == HL_OK)
        status = hl_diagnose(&s->diagnoses, request->profile, NULL, NULL);
    return status;
}

/* ------------------------------------------------------------------- heading */

static void print_heading(const hl_show_request *request, const hl_colours *colours)
{
    const hl_profile *profile = request->profile;
    const char       *slash   = strrchr(request->path, '/');
    const char       *name    = slash != NULL ? slash + 1 : request->path;
    const char       *context = hl_profile_setting(profile, "context");

    printf("%s%s%s\n", colours->bold, hl_shown(name), colours->plain);
    printf("layers x heads: %lld x %lld; context %s; %lld tokens in %lld windows\n\n",
           (long long)hl_profile_n_layers(profile), (long long)hl_profile_n_heads(profile),
           context != NULL ? hl_shown(context) : "unknown", (long long)hl_profile_n_tokens(profile),
           (long long)hl_profile_all_sequences(profile));
}

/* ------------------------------------------------------------------- heatmap */

/* (n_layers, n_heads) of a column of the table of heads; NULL when memory is out. */
static double *grid_of(const hl_sheet *heads, const char *column, const hl_profile *profile)
{
    int64_t n_heads = hl_profile_n_heads(profile);
    int64_t size    = hl_profile_n_layers(profile) * n_heads;
    double *grid    = hl_memory_take_zeroed((size_t)size, sizeof *grid);

    if (grid == NULL)
        return NULL;
    for (int64_t i = 0; i < size; i++)
        grid[i] = NAN;
    for (int64_t row = 0; row < hl_sheet_n_rows(heads); row++) {
        int64_t layer                = (int64_t)hl_cell_number(heads, row, "layer");
        int64_t head                 = (int64_t)hl_cell_number(heads, row, "head");
        grid[layer * n_heads + head] = hl_cell_number(heads, row, column);
    }
    return grid;
}

static double largest(const double *values, int64_t count)
{
    double most = NAN;

    for (int64_t i = 0; i < count; i++)
        most = fmax(most, values[i]); /* passes NaN over */
    return most;
}

/* Shares of something: 1 is the top whatever the largest is. */
static bool is_share(const char *column)
{
    static const char *const shares[] = { "fair",          "fair_low", "fair_high", "median",
                                          "nosink_median", "peak",     "peak_p95",  "self",
                                          "previous",      "first" };

    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        if (strcmp(column, shares[i]) == 0)
            return true;
    }
    return false;
}

static void print_legend(const hl_show_request *request, const char *column, double top,
                         hl_heatmap_layout layout)
{
    printf("%s: 0 ", column);
    if (request->depth != HL_DEPTH_NONE) {
        for (int i = 0; i < 20; i++) {
            hl_shade_background(stdout, request->depth, i / 19.0);
            printf(" ");
        }
        hl_shade_end(stdout, request->depth);
    } else {
        printf("...");
    }
    printf(" %g", top);
    if (strcmp(column, "fair") == 0)
        printf(" (0 one key, 1 all alike)");
    if (layout.cell > 1 || request->depth == HL_DEPTH_NONE)
        printf(", figures in %s%s", layout.cell > 2 ? "hundredths" : "tenths",
               top == 1.0 ? "" : " of that");
    if (layout.binned > 1)
        printf("\neach line is the mean of %d heads", layout.binned);
    printf("\n");
}

static bool print_heatmap(const hl_show_request *request, const hl_sheet *heads, const char *column)
{
    const hl_profile *profile  = request->profile;
    int64_t           n_layers = hl_profile_n_layers(profile);
    int64_t           n_heads  = hl_profile_n_heads(profile);
    double           *grid     = grid_of(heads, column, profile);
    int64_t          *in_layer = hl_memory_take_zeroed((size_t)n_layers, sizeof *in_layer);

    if (grid != NULL && in_layer != NULL) {
        double     most = largest(grid, n_layers * n_heads);
        hl_heatmap map  = {
             .values     = grid,
             .n_layers   = n_layers,
             .n_heads    = n_heads,
             .n_in_layer = in_layer,
             .top        = is_share(column) || !(most > 0.0) ? 1.0 : most,
             .depth      = request->depth,
             .width      = PAGE_WIDTH,
        };
        for (int64_t layer = 0; layer < n_layers; layer++)
            in_layer[layer] = hl_profile_heads_of(profile, layer);
        print_legend(request, column, map.top,
                     hl_heatmap_choose(n_layers, n_heads, PAGE_WIDTH, request->depth));
        hl_heatmap_print(&map);
        printf("\n");
    }
    bool done = grid != NULL && in_layer != NULL;
    free(grid);
    free(in_layer);
    return done;
}

/* ------------------------------------------------- layer profile, positions */

enum { PLACE_BYTES = 48 };

/* What a line of the table is of: "L5", or "15-30".  The last positions are the context's. */
static void name_place(char out[PLACE_BYTES], const hl_show_request *request, const hl_sheet *table,
                       int64_t row)
{
    const char *context = hl_profile_setting(request->profile, "context");
    double      from = hl_cell_number(table, row, "from"), to = hl_cell_number(table, row, "to");

    if (context != NULL && strtod(context, NULL) > from)
        to = fmin(to, strtod(context, NULL) - 1.0);
    if (hl_sheet_find(table, "layer") >= 0)
        snprintf(out, PLACE_BYTES, "L%.0f", hl_cell_number(table, row, "layer"));
    else if (from == to)
        snprintf(out, PLACE_BYTES, "%.0f", from);
    else
        snprintf(out, PLACE_BYTES, "%.0f-%.0f", from, to);
}

static void print_spark(const hl_show_request *request, const hl_sheet *table, const char *column)
{
    int64_t n = hl_sheet_n_rows(table), low = -1, high = -1;
    double *values = hl_memory_take_zeroed((size_t)n, sizeof *values);
    char    lowest[PLACE_BYTES], highest[PLACE_BYTES];

    if (values == NULL)
        return;
    for (int64_t i = 0; i < n; i++) {
        values[i] = hl_cell_number(table, i, column);
        if (isnan(values[i]))
            continue;
        low  = low < 0 || values[i] < values[low] ? i : low;
        high = high < 0 || values[i] > values[high] ? i : high;
    }
    printf("  %-8s ", column);
    if (low < 0) {
        printf("not measured\n");
    } else {
        name_place(lowest, request, table, low);
        name_place(highest, request, table, high);
        hl_spark_print(values, n, SPARK_WIDTH, request->depth, values[low], values[high]);
        printf("  %.3f (%s) to %.3f (%s)\n", values[low], lowest, values[high], highest);
    }
    free(values);
}

/* How sure the curve by position is, where it is least so. */
static void print_widest_interval(const hl_sheet *positions)
{
    double widest = NAN;

    for (int64_t i = 0; i < hl_sheet_n_rows(positions); i++)
        widest = fmax(widest, 0.5 * (hl_cell_number(positions, i, "entropy_high") -
                                     hl_cell_number(positions, i, "entropy_low")));
    if (!isnan(widest))
        printf("  95%% intervals of the entropy: up to %.3f either way\n", widest);
}

/* ------------------------------------------------------------------ extremes */

/* The type that the rules gave to a head; the table has the heads in the order of its lines. */
static const char *type_of(const hl_sheet *types, double layer, double head)
{
    for (int64_t row = 0; row < hl_sheet_n_rows(types); row++) {
        if (hl_cell_number(types, row, "layer") == layer &&
            hl_cell_number(types, row, "head") == head)
            return hl_sheet_text(types, row, hl_sheet_find(types, "type"));
    }
    return "";
}

static void print_extreme(const screen *s, int64_t row)
{
    double layer = hl_cell_number(s->extremes, row, "layer");
    double head  = hl_cell_number(s->extremes, row, "head");
    char   name[48], fair[16] = "-";

    snprintf(name, sizeof name, "L%.0fH%.0f", layer, head);
    if (!isnan(hl_cell_number(s->extremes, row, "fair")))
        snprintf(fair, sizeof fair, "%.3f", hl_cell_number(s->extremes, row, "fair"));
    printf("  %-8s %-10s %6s %8.3f", name, type_of(s->types, layer, head), fair,
           hl_cell_number(s->extremes, row, "entropy"));
}

/* Most and least focused, side by side. */
static void print_extremes(const screen *s, const hl_colours *colours)
{
    int64_t half = hl_sheet_n_rows(s->extremes) / 2;

    printf("%s  %-19s %6s %8s     %-19s %6s %8s%s\n", colours->dim, "most focused", "fair",
           "entropy", "least focused", "fair", "entropy", colours->plain);
    for (int64_t i = 0; i < half; i++) {
        print_extreme(s, i);
        printf("   ");
        print_extreme(s, half + i);
        printf("\n");
    }
    printf("\n");
}

/* "12 sink, 7 local ...": the facts of the table of types, in its order. */
static void print_kinds(const hl_sheet *types)
{
    static const char *const kinds[] = { "induction",  "previous", "self",  "sink",   "local",
                                         "specialist", "global",   "mixed", "unknown" };
    bool                     first   = true;

    printf("types   ");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double count = hl_sheet_fact(types, kinds[i]);
        if (isnan(count))
            continue;
        printf("%s%.0f %s", first ? "" : ", ", count, kinds[i]);
        first = false;
    }
    printf("\n\n");
}

/* ----------------------------------------------------------------- the whole */

static bool has_numbers(const hl_sheet *table, const char *column)
{
    for (int64_t row = 0; row < hl_sheet_n_rows(table); row++) {
        if (!isnan(hl_cell_number(table, row, column)))
            return true;
    }
    return false;
}

hl_status hl_show_print(const hl_show_request *request)
{
    hl_colours  colours = hl_terminal_colours(stdout);
    screen      s       = { 0 };
    hl_status   status  = screen_fill(&s, request);
    const char *column  = request->by;

    if (status == HL_OK) {
        if (column == NULL) /* no row saw 16 keys: the seed mean is all there is */
            column = has_numbers(s.heads, "fair") ? "fair" : "entropy";
        print_heading(request, &colours);
        if (!print_heatmap(request, s.heads, column))
            status = HL_NO_MEMORY;
    }
    if (status == HL_OK) {
        printf("layers\n");
        print_spark(request, s.layers, "fair");
        print_spark(request, s.layers, "entropy");
        printf("positions\n");
        print_spark(request, s.positions, "fair");
        print_spark(request, s.positions, "entropy");
        print_widest_interval(s.positions);
        printf("\n");
        print_kinds(s.types);
        print_extremes(&s, &colours);
        printf("diagnoses\n");
        hl_diagnoses_print_brief(s.diagnoses, &colours);
    }
    screen_free(&s);
    return status;
}

/* A table as a JSON value: rendered by the library, read back. */
static hl_status set_table(json_t *root, const hl_sheet *table)
{
    char     *text   = NULL;
    json_t   *value  = NULL;
    hl_status status = hl_sheet_render(&text, table, HL_SHEET_JSON);

    if (status == HL_OK)
        status = hl_json_read(&value, text, strlen(text), hl_sheet_name(table));
    if (status == HL_OK)
        json_object_set_new(root, hl_sheet_name(table), value); /* cli/memory.h remembers */
    hl_free(text);
    return status;
}

static hl_status set_tables(json_t *root, const screen *s)
{
    const hl_sheet *tables[] = { s->heads, s->layers, s->positions, s->extremes, s->types };
    hl_status       status   = HL_OK;

    for (size_t i = 0; i < sizeof tables / sizeof *tables && status == HL_OK; i++)
        status = set_table(root, tables[i]);
    return status;
}

hl_status hl_show_print_json(const hl_show_request *request)
{
    screen    s      = { 0 };
    json_t   *tables = json_object();
    hl_status status = screen_fill(&s, request);

    if (status == HL_OK)
        status = set_tables(tables, &s);
    if (status == HL_OK) {
        json_t *root = json_pack("{s:o, s:O, s:o}", "profile", hl_value_name(request->path),
                                 "tables", tables, "diagnoses", hl_diagnoses_json(s.diagnoses));
        hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
        printf("\n");
        json_decref(root);
    }
    json_decref(tables);
    screen_free(&s);
    return status;
}
