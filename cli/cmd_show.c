/* cmd_show.c - headlight show: a profile on one screen, or one of its tables.
 *
 * The screen has a heatmap, a profile over layers, extremes and diagnoses.  All numbers come from
 * the tables that `--table` prints; this file only lays them out. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "diagnoses.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "screen.h"
#include "values.h"

typedef struct show_request {
    hl_common   common;
    const char *path;
    const char *table; /* NULL: the screen */
    const char *by;    /* column of the table of heads; NULL: normalized */
    hl_depth    depth;

    const hl_profile *profile;
} show_request;

/* ------------------------------------------------------------------- a heatmap */

/* Every head is a cell: layers across, heads up, as in figures and on the page.
 *
 *     up to 25 layers    3 columns per cell, hundredths:   " 07 43 99"
 *     up to 37           2 columns per cell, tenths; only with colors
 *     up to 75           1 column per cell; only with colors
 *     more               blocks of layers, one below the other
 *
 * Without colors, more than 25 layers are shown in blocks, as long as these take no more lines than
 * a page has; otherwise as tenths in one column.  If there are more heads than lines, each line is
 * the mean of several heads.
 *
 * Figures are rounded down, so that 99 stands for 0.99 to 1.  The page is 80 columns wide; the
 * head's name takes five. */

typedef struct heatmap {
    const double *values; /* (n_layers, n_heads); NaN: not measured; infinity: the layer lacks the
                               * head */
    const hl_profile *profile;
    int64_t           n_layers;
    int64_t           n_heads;
    double            top; /* the value with the lightest color; 0 has the darkest */
    hl_depth          depth;
} heatmap;

typedef struct heatmap_layout {
    int     cell;     /* columns per cell: 3, 2 or 1 */
    int64_t n_across; /* layers per block */
    int     binned;   /* number of heads whose mean a line shows */
} heatmap_layout;

enum { LABEL = 5, GROUP = 8, MOST_LINES = 64 };

/* ---------------------------------------------------------------------- layout */

/* Returns how many cells fit into the room; without colors, cells of one column have a gap after
 * every eighth. */
static int64_t cells_in(int64_t room, int cell, hl_depth depth)
{
    int64_t n = room / cell;

    if (depth == HL_DEPTH_NONE && cell == 1)
        n -= n / (GROUP + 1);
    return n > 1 ? n : 1;
}

static heatmap_layout heatmap_choose(int64_t n_layers, int64_t n_heads, int width, hl_depth depth)
{
    int64_t room    = width - LABEL;
    int     binned  = (int)((n_heads + MOST_LINES - 1) / MOST_LINES);
    int64_t n_lines = binned > 0 ? (n_heads + binned - 1) / binned : 0;
    int     cell    = 3;

    if (depth != HL_DEPTH_NONE) {
        while (cell > 1 && n_layers > cells_in(room, cell, depth))
            cell--;
    } else {
        int64_t most     = cells_in(room, cell, depth);
        int64_t n_blocks = (n_layers + most - 1) / most;
        if (n_blocks > 1 && n_blocks * n_lines > MOST_LINES)
            cell = 1;
    }
    int64_t most     = cells_in(room, cell, depth);
    int64_t n_blocks = n_layers > 0 ? (n_layers + most - 1) / most : 1;
    int64_t n_across = (n_layers + n_blocks - 1) / n_blocks;

    /* Blocks with a multiple of eight layers are easier to count. */
    if (n_blocks > 1 && (n_across + GROUP - 1) / GROUP * GROUP <= most)
        n_across = (n_across + GROUP - 1) / GROUP * GROUP;
    return (heatmap_layout){ cell, n_across, binned > 0 ? binned : 1 };
}

/* Returns the mean of the finite values; NaN if there are none. */
static double mean_of(const double *values, int64_t n)
{
    double  sum   = 0.0;
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += isfinite(values[i]) ? values[i] : 0.0;
        count += isfinite(values[i]);
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* ---------------------------------------------------------- the ticks above it */

/* The number of a layer; in a profile with several sets of heads, its name, "E3". */
static const char *tick_of(char room[HL_HEAD_NAME_BYTES], const hl_profile *profile, int64_t layer)
{
    if (hl_profile_setting(profile, "layers") != NULL)
        return hl_profile_head_name(room, profile, layer, -1);
    snprintf(room, HL_HEAD_NAME_BYTES, "%lld", (long long)layer);
    return room;
}

/* Prints the number of every eighth layer (of every layer if there is room) above its cell. */
static void print_ticks(const hl_profile *profile, int64_t begin, int64_t end, int cell, bool gaps)
{
    int64_t at   = 0;
    int64_t step = cell > 2 ? 1 : GROUP;

    printf("%-*s", LABEL, "L");
    for (int64_t layer = begin; layer < end; layer += step) {
        char        room[HL_HEAD_NAME_BYTES];
        const char *number = tick_of(room, profile, layer);
        int         length = (int)strlen(number);
        int64_t     place  = cell * (layer - begin) + (gaps ? (layer - begin) / GROUP : 0);

        if (cell > 1) /* above the figure, which is at the right of its cell */
            place += cell - (cell > 2 ? length : 1);
        at += printf("%*s%s", (int)(place > at ? place - at : 0), "", number);
    }
    printf("\n");
}

/* ----------------------------------------------------------------------- cells */

/* Prints a share, rounded down: hundredths in three columns, " 07", tenths in fewer. */
static void print_figure(double share, int cell)
{
    int hundredths = (int)floor(fmin(fmax(share, 0.0), 0.9999) * 100.0 + 1e-9);

    if (cell > 2)
        printf("%*s%02d", cell - 2, "", hundredths);
    else
        printf("%*d", cell, hundredths / 10);
}

static void print_cell(const heatmap *map, heatmap_layout layout, int64_t layer, int64_t head)
{
    const double *values = map->values + layer * map->n_heads + head;
    int64_t       n_left = map->n_heads - head;
    double        value  = mean_of(values, n_left < layout.binned ? n_left : layout.binned);
    double        share  = value / map->top;

    if (isnan(value)) {
        printf("%*s", layout.cell, isinf(values[0]) ? "" : "-");
        return;
    }
    if (map->depth == HL_DEPTH_NONE) {
        print_figure(share, layout.cell);
        return;
    }
    hl_shade_background(stdout, map->depth, share);
    if (layout.cell == 1)
        printf(" ");
    else
        print_figure(share, layout.cell);
    hl_shade_end(stdout, map->depth);
}

static void print_block(const heatmap *map, heatmap_layout layout, int64_t begin, int64_t end)
{
    bool    gaps = map->depth == HL_DEPTH_NONE && layout.cell == 1;
    int64_t last = (map->n_heads - 1) / layout.binned * layout.binned;

    print_ticks(map->profile, begin, end, layout.cell, gaps);
    for (int64_t head = last; head >= 0; head -= layout.binned) {
        char label[24];

        snprintf(label, sizeof label, "H%lld", (long long)head);
        printf("%-*s", LABEL, label);
        for (int64_t layer = begin; layer < end; layer++) {
            if (gaps && layer > begin && (layer - begin) % GROUP == 0)
                printf(" ");
            print_cell(map, layout, layer, head);
        }
        printf("\n");
    }
}

/* Narrows the cells as the number of layers grows, then splits the layers into blocks. */
static void heatmap_print(const heatmap *map, heatmap_layout layout)
{
    for (int64_t begin = 0; begin < map->n_layers; begin += layout.n_across) {
        int64_t end = begin + layout.n_across;

        if (begin > 0)
            printf("\n");
        print_block(map, layout, begin, end < map->n_layers ? end : map->n_layers);
    }
}

/* ---------------------------------------------------------------- a spark line */

/* Prints one bar per value; if there are more than `width`, one per mean of neighbors. */
static void spark_print(const double *values, int64_t n_values, int width, hl_depth depth,
                        double low, double high)
{
    static const char *const bars[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    int64_t                  binned = (n_values + width - 1) / width;

    for (int64_t first = 0; first < n_values; first += binned) {
        int64_t n_left = n_values - first;
        double  mean   = mean_of(values + first, n_left < binned ? n_left : binned);
        double  share  = high > low ? (mean - low) / (high - low) : 0.5;
        if (isnan(mean)) {
            printf("-");
            continue;
        }
        hl_shade_text(stdout, depth, 0.2 + 0.5 * share); /* visible on black and on white */
        printf("%s", bars[(int)fmin(7.0, floor(8.0 * share))]);
        hl_shade_end(stdout, depth);
    }
}

/* ----------------------------------------------------- the tables of a profile */

enum { PAGE_WIDTH = 80, N_EXTREMES = 5, SPARK_WIDTH = 40 };

enum { HEADS, LAYERS, POSITIONS, EXTREMES, TYPES, SHAPE, INDEXER, N_TABLES };

typedef struct screen {
    const hl_profile *profile;
    hl_sheet         *tables[N_TABLES];
    hl_diagnoses     *diagnoses;
    hl_summary       *summary;
} screen;

static void screen_free(screen *s)
{
    for (int i = 0; i < N_TABLES; i++)
        hl_sheet_free(s->tables[i]);
    hl_diagnoses_free(s->diagnoses);
    hl_summary_free(s->summary);
}

static hl_status screen_fill(screen *s, const show_request *request)
{
    static const char *const names[N_TABLES] = { "heads",      "layers", "positions", "extremes",
                                                 "head-types", "shape",  "indexer" };
    hl_analysis_options      options = { .seed = request->common.seed, .n_extremes = N_EXTREMES };

    s->profile = request->profile;
    for (int i = 0; i < N_TABLES; i++)
        HL_NEED(hl_analyze(&s->tables[i], request->profile, names[i], &options));
    HL_NEED(hl_diagnose(&s->diagnoses, request->profile, NULL, NULL));
    return hl_summary_new(&s->summary, request->profile, s->diagnoses);
}

/* --------------------------------------------------------------------- heading */

static void print_heading(const show_request *request, const hl_colors *colors)
{
    const hl_profile *profile = request->profile;
    const char       *context = hl_profile_setting(profile, "context");

    printf("%s%s%s\n", colors->bold, hl_shown(hl_base_name(request->path)), colors->plain);
    printf("layers x heads: %lld x %lld; context %s; %lld tokens in %lld windows\n\n",
           (long long)hl_profile_n_layers(profile), (long long)hl_profile_n_heads(profile),
           context != NULL ? hl_shown(context) : "unknown", (long long)hl_profile_n_tokens(profile),
           (long long)hl_profile_all_sequences(profile));
}

/* ---------------------------------------------------- the heatmap of a profile */

/* Returns a column of the table of heads as (n_layers, n_heads); NULL if memory is out. */
static double *grid_of(const hl_sheet *heads, const char *column, const hl_profile *profile)
{
    int64_t n_heads = hl_profile_n_heads(profile);
    int64_t size    = hl_profile_n_layers(profile) * n_heads;
    double *grid    = hl_memory_take_zeroed((size_t)size, sizeof *grid);

    if (grid == NULL)
        return NULL;
    for (int64_t i = 0; i < size; i++)
        grid[i] = i % n_heads < hl_profile_heads_of(profile, i / n_heads) ? NAN : INFINITY;
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
        most = isinf(values[i]) ? most : fmax(most, values[i]); /* fmax skips NaN */
    return most;
}

/* True for columns of shares, whose top is 1 whatever the largest value is. */
static bool is_share(const char *column)
{
    static const char *const shares[] = { "normalized", "normalized_low", "normalized_high",
                                          "median",     "median_nosink",  "peak",
                                          "peak_p95",   "self",           "previous",
                                          "first" };

    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        if (strcmp(column, shares[i]) == 0)
            return true;
    }
    return false;
}

static void print_legend(const show_request *request, const char *column, double top,
                         heatmap_layout layout)
{
    bool   is_normalized = strcmp(column, "normalized") == 0;
    bool   has_digits    = layout.cell > 1 || request->depth == HL_DEPTH_NONE;
    bool   is_percent    = layout.cell > 2;
    double high          = !has_digits ? top : is_percent ? 100.0 : 10.0; /* as cells show it */

    printf("%s", is_normalized ? "normalized entropy" : column);
    if (has_digits)
        printf(", %s%s", is_percent ? "%" : "tenths", top == 1.0 ? "" : " of the highest value");
    if (request->depth != HL_DEPTH_NONE) {
        printf("  %s0 ", is_normalized ? "one token " : "");
        for (int i = 0; i < 20; i++) {
            hl_shade_background(stdout, request->depth, i / 19.0);
            printf(" ");
        }
        hl_shade_end(stdout, request->depth);
        printf(" %g%s", high, is_normalized ? " uniform" : "");
    } else if (is_normalized) {
        printf(" (0 = all on one token, %g = uniform)", high);
    }
    if (has_digits && top != 1.0)
        printf(" (%.4g)", top);
    if (layout.binned > 1)
        printf("\neach line is the mean of %d heads", layout.binned);
    printf("\n");
}

static bool has_number(const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(values[i]))
            return true;
    }
    return false;
}

/* Lists the layers that do not attend, "0-2, 4-6". */
static void print_other_layers(const double *grid, int64_t n_layers, int64_t n_heads)
{
    int64_t n_named = 0;

    for (int64_t layer = 0, end; layer < n_layers; layer = end) {
        for (end = layer; end < n_layers && !has_number(grid + end * n_heads, n_heads);)
            end++;
        if (end == layer) {
            end++;
            continue;
        }
        printf("%s%lld", n_named++ == 0 ? "no attention in layers " : ", ", (long long)layer);
        if (end > layer + 1)
            printf("-%lld", (long long)end - 1);
    }
    if (n_named > 0)
        printf("\n");
}

static hl_status print_heatmap(const show_request *request, const hl_sheet *heads,
                               const char *column)
{
    const hl_profile     *profile  = request->profile;
    int64_t               n_layers = hl_profile_n_layers(profile);
    int64_t               n_heads  = hl_profile_n_heads(profile);
    HL_HELD(free) double *grid     = grid_of(heads, column, profile);

    if (grid == NULL)
        return HL_NO_MEMORY;
    double  most = largest(grid, n_layers * n_heads);
    heatmap map  = {
         .values   = grid,
         .profile  = request->profile,
         .n_layers = n_layers,
         .n_heads  = n_heads,
         .top      = is_share(column) || !(most > 0.0) ? 1.0 : most,
         .depth    = request->depth,
    };
    heatmap_layout layout = heatmap_choose(n_layers, n_heads, PAGE_WIDTH, request->depth);
    print_legend(request, column, map.top, layout);
    heatmap_print(&map, layout);
    if (!isnan(most))
        print_other_layers(grid, n_layers, n_heads);
    printf("\n");
    return HL_OK;
}

/* ---------------------------------------------------- layer profile, positions */

enum { PLACE_BYTES = 48 };

/* Names the place of a table's line: "L5", or the positions "15-30".  The last range ends with the
 * context. */
static void name_place(char out[PLACE_BYTES], const show_request *request, const hl_sheet *table,
                       int64_t row)
{
    const char *context = hl_profile_setting(request->profile, "context");
    double      from = hl_cell_number(table, row, "from"), to = hl_cell_number(table, row, "to");

    if (context != NULL && strtod(context, NULL) > from)
        to = fmin(to, strtod(context, NULL) - 1.0);
    if (hl_sheet_find(table, "layer") >= 0)
        hl_profile_head_name(out, request->profile, (int64_t)hl_cell_number(table, row, "layer"),
                             -1);
    else if (from == to)
        snprintf(out, PLACE_BYTES, "%.0f", from);
    else
        snprintf(out, PLACE_BYTES, "%.0f-%.0f", from, to);
}

static void print_spark(const show_request *request, const hl_sheet *table, const char *column)
{
    int64_t n = hl_sheet_n_rows(table), low = -1, high = -1;
    char    lowest[PLACE_BYTES], highest[PLACE_BYTES];

    HL_HELD(free) double *values = hl_memory_take_zeroed((size_t)n, sizeof *values);

    if (values == NULL)
        return;
    for (int64_t i = 0; i < n; i++) {
        values[i] = hl_cell_number(table, i, column);
        if (isnan(values[i]))
            continue;
        low  = low < 0 || values[i] < values[low] ? i : low;
        high = high < 0 || values[i] > values[high] ? i : high;
    }
    printf("  %-10s ", column);
    if (low < 0) {
        printf("not measured\n");
        return;
    }
    name_place(lowest, request, table, low);
    name_place(highest, request, table, high);
    spark_print(values, n, SPARK_WIDTH, request->depth, values[low], values[high]);
    printf("  %.3f (%s) to %.3f (%s)\n", values[low], lowest, values[high], highest);
}

/* What shape the layers have, and whether later ones are more specialized. */
static void print_shape(const hl_sheet *shape)
{
    int64_t row    = hl_cell_number(shape, 1, "range") >= 0.0 ? 1 : 0; /* normalized, or in nats */
    double  errors = hl_cell_number(shape, row, "later_errors");
    double  third  = hl_cell_number(shape, row, "middle_third"); /* NaN: only two layers attend */
    char    text[256], middle[32] = "", sure[64] = "not tested: fewer than 4 windows";

    if (!isnan(third))
        snprintf(middle, sizeof middle, "middle %.3f, ", third);
    if (!isnan(errors))
        snprintf(sure, sizeof sure, "%.1f standard errors", errors);
    snprintf(text, sizeof text,
             "%s: first third %.3f, %slast %.3f. Are later layers more specialized? %s "
             "(%+.3f; %s)",
             hl_sheet_text(shape, row, hl_sheet_find(shape, "shape")),
             hl_cell_number(shape, row, "first_third"), middle,
             hl_cell_number(shape, row, "last_third"),
             hl_sheet_text(shape, row, hl_sheet_find(shape, "later_specialized")),
             hl_cell_number(shape, row, "later_change"), sure);
    printf("  %-10s ", "shape");
    hl_print_wrapped(text, 13);
}

/* Prints the widest confidence interval of the curve by position. */
static void print_widest_interval(const hl_sheet *positions)
{
    double widest = NAN;

    for (int64_t i = 0; i < hl_sheet_n_rows(positions); i++)
        widest = fmax(widest, 0.5 * (hl_cell_number(positions, i, "entropy_high") -
                                     hl_cell_number(positions, i, "entropy_low")));
    if (!isnan(widest))
        printf("  95%% intervals of the entropy: up to %.3f either way\n", widest);
    else if (hl_sheet_fact(positions, "interval n") < HL_MIN_UNITS)
        printf("  no intervals: %.0f windows, and an interval needs %d or more\n",
               hl_sheet_fact(positions, "interval n"), HL_MIN_UNITS);
}

/* -------------------------------------------------------------------- extremes */

/* Returns the type that the rules gave to a head; the table lists heads in the order of its
 * lines. */
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
    const hl_sheet *extremes = s->tables[EXTREMES];
    double          layer    = hl_cell_number(extremes, row, "layer");
    double          head     = hl_cell_number(extremes, row, "head");
    char            name[HL_HEAD_NAME_BYTES], normalized[16] = "-";

    if (!isnan(hl_cell_number(extremes, row, "normalized")))
        snprintf(normalized, sizeof normalized, "%.3f",
                 hl_cell_number(extremes, row, "normalized"));
    printf("  %-6s %-10s %10s %8.3f",
           hl_profile_head_name(name, s->profile, (int64_t)layer, (int64_t)head),
           type_of(s->tables[TYPES], layer, head), normalized,
           hl_cell_number(extremes, row, "entropy"));
}

/* Prints the most and the least focused heads, side by side. */
static void print_extremes(const screen *s, const hl_colors *colors)
{
    int64_t half = hl_sheet_n_rows(s->tables[EXTREMES]) / 2;

    printf("%s  %-17s %10s %8s    %-17s %10s %8s%s\n", colors->dim, "most focused", "normalized",
           "entropy", "least focused", "normalized", "entropy", colors->plain);
    for (int64_t i = 0; i < half; i++) {
        print_extreme(s, i);
        printf("  ");
        print_extreme(s, half + i);
        printf("\n");
    }
    printf("\n");
}

/* Prints "12 sink, 7 local ...": the facts of the table of types, in its order. */
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
    if (hl_sheet_fact(types, "uncertain") > 0.0)
        printf("; %.0f uncertain", hl_sheet_fact(types, "uncertain"));
    printf("\n\n");
}

/* The mean of each layer, and the head with the least. */
static void print_recall(const hl_sheet *table)
{
    int64_t n = hl_sheet_n_rows(table), least = 0;
    double  sum = 0.0, count = 0.0;

    if (n == 0)
        return;
    printf("indexer: share of the full softmax's mass on the keys it chose\n ");
    for (int64_t row = 0; row < n; row++) {
        double layer = hl_cell_number(table, row, "layer");

        sum += hl_cell_number(table, row, "recall");
        count++;
        if (hl_cell_number(table, row, "recall") < hl_cell_number(table, least, "recall"))
            least = row;
        if (row + 1 < n && hl_cell_number(table, row + 1, "layer") == layer)
            continue;
        printf(" L%.0f %.3f", layer, sum / count);
        sum = count = 0.0;
    }
    printf("; least: L%.0fH%.0f %.3f\n\n", hl_cell_number(table, least, "layer"),
           hl_cell_number(table, least, "head"), hl_cell_number(table, least, "recall"));
}

/* ------------------------------------------------------------------ the screen */

static bool has_numbers(const hl_sheet *table, const char *column)
{
    for (int64_t row = 0; row < hl_sheet_n_rows(table); row++) {
        if (!isnan(hl_cell_number(table, row, column)))
            return true;
    }
    return false;
}

/* Prints the screen; if the library fails, nothing has been printed. */
static hl_status print_screen(const show_request *request)
{
    hl_colors                   colors = hl_terminal_colors(stdout);
    HL_KEPT(screen_free) screen s      = { 0 };
    const char                 *column = request->by;

    HL_NEED(screen_fill(&s, request));
    if (column == NULL) /* no row saw 16 keys, so only the mean entropy exists */
        column = has_numbers(s.tables[HEADS], "normalized") ? "normalized" : "entropy";
    print_heading(request, &colors);
    HL_NEED(hl_summary_print(s.summary));
    printf("\n");
    HL_NEED(print_heatmap(request, s.tables[HEADS], column));
    printf("layers\n");
    print_spark(request, s.tables[LAYERS], "normalized");
    print_spark(request, s.tables[LAYERS], "entropy");
    print_shape(s.tables[SHAPE]);
    printf("positions\n");
    print_spark(request, s.tables[POSITIONS], "normalized");
    print_spark(request, s.tables[POSITIONS], "entropy");
    print_widest_interval(s.tables[POSITIONS]);
    printf("\n");
    print_kinds(s.tables[TYPES]);
    print_extremes(&s, &colors);
    print_recall(s.tables[INDEXER]);
    printf("diagnoses\n");
    hl_diagnoses_print_brief(s.diagnoses, &colors);
    return HL_OK;
}

static hl_status print_screen_json(const show_request *request)
{
    HL_KEPT(screen_free) screen  s      = { 0 };
    HL_HELD(json_decref) json_t *tables = json_object();

    HL_NEED(screen_fill(&s, request));
    for (int i = 0; i < N_TABLES; i++) {
        if (i != INDEXER || hl_sheet_n_rows(s.tables[i]) > 0)
            HL_NEED(hl_set_sheet(tables, s.tables[i]));
    }
    hl_print_json(HL_OBJECT(HL_IS("profile", hl_value_name(request->path)),
                            HL_IS("tables", json_incref(tables)),
                            HL_IS("summary", hl_summary_json(s.summary)),
                            HL_IS("diagnoses", hl_diagnoses_json(s.diagnoses))),
                  JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    return HL_OK;
}

/* ----------------------------------------------------------------- the command */

/* Lists the names of the tables. */
static int list_tables(void)
{
    for (size_t i = 0; hl_analysis_name(i) != NULL; i++)
        printf("%-20s %s\n", hl_analysis_name(i), hl_analysis_summary(i));
    for (size_t i = 0; hl_trace_table_name(i) != NULL; i++)
        printf("%-20s %s\n", hl_trace_table_name(i), hl_trace_table_summary(i));
    return HL_EXIT_DONE;
}

static hl_status print_table(const show_request *request)
{
    bool                             is_data = request->common.csv || request->common.json;
    hl_analysis_options              options = { .seed = request->common.seed };
    HL_HELD(hl_sheet_free) hl_sheet *table   = NULL;

    if (is_data && strcmp(request->table, "similarity") == 0)
        options.n_extremes = INT64_MAX; /* a program gets all pairs, a reader the first */
    HL_NEED(hl_analyze(&table, request->profile, request->table, &options));
    return hl_print_sheet(table, hl_sheet_format_of(&request->common));
}

/* Returns a column's name; for a name that earlier versions had, the one of today. */
static const char *present_name(const char *column)
{
    static const char *const names[][2] = { { "fair", "normalized" },
                                            { "fair_low", "normalized_low" },
                                            { "fair_high", "normalized_high" },
                                            { "nosink", "entropy_nosink" },
                                            { "nosink_median", "median_nosink" } };

    for (size_t i = 0; column != NULL && i < sizeof names / sizeof *names; i++) {
        if (strcmp(column, names[i][0]) == 0)
            return names[i][1];
    }
    return column;
}

/* Returns true if the table of heads has this column, with numbers. */
static bool is_column(const hl_profile *profile, const char *name)
{
    HL_HELD(hl_sheet_free) hl_sheet *heads = NULL;

    if (hl_analyze(&heads, profile, "heads", NULL) != HL_OK)
        return false;
    int64_t column = hl_sheet_find(heads, name);
    return column > 1 && hl_sheet_column_type(heads, column) == HL_COLUMN_REAL;
}

/* ---------------------------------------------------------------------- a trace */

/* Names of the tables of profiles, then those of traces. */
static const char *table_name(size_t index)
{
    size_t n_first = 0;

    while (hl_analysis_name(n_first) != NULL)
        n_first++;
    return index < n_first ? hl_analysis_name(index) : hl_trace_table_name(index - n_first);
}

static bool is_trace_table(const char *name)
{
    for (size_t i = 0; hl_trace_table_name(i) != NULL; i++) {
        if (strcmp(hl_trace_table_name(i), name) == 0)
            return true;
    }
    return false;
}

static hl_status show_trace_table(const hl_trace *trace, const char *name, hl_sheet_format format)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

    HL_NEED(hl_trace_analyze(&table, trace, name));
    return hl_print_sheet(table, format);
}

/* All tables of a trace, or the one that was asked for. */
static hl_status show_trace(const show_request *request, const hl_trace *trace)
{
    HL_HELD(json_decref) json_t *tables = json_object();

    if (request->table != NULL)
        return show_trace_table(trace, request->table, hl_sheet_format_of(&request->common));
    for (size_t i = 0; hl_trace_table_name(i) != NULL && !request->common.quiet; i++) {
        HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

        HL_NEED(hl_trace_analyze(&table, trace, hl_trace_table_name(i)));
        if (request->common.json) {
            HL_NEED(hl_set_sheet(tables, table));
            continue;
        }
        HL_NEED(hl_print_sheet(table, HL_SHEET_TEXT));
        printf("\n");
    }
    if (request->common.json)
        hl_print_json(HL_OBJECT(HL_IS("trace", hl_value_name(request->path)),
                                HL_IS("tables", json_incref(tables))),
                      JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    return HL_OK;
}

/* A profile, or else a trace; where it is neither the message is that of a profile. */
static hl_status open_shown(hl_profile **profile, hl_trace **trace, const char *path)
{
    hl_status status = hl_profile_load(profile, path);

    if (status != HL_BAD_INPUT || hl_trace_load(trace, path) == HL_OK)
        return *trace != NULL ? HL_OK : status;
    return hl_profile_load(profile, path);
}

int hl_command_show(int argc, char **argv)
{
    show_request                         request = { 0 };
    HL_HELD(hl_profile_free) hl_profile *profile = NULL;
    HL_HELD(hl_trace_free) hl_trace     *trace   = NULL;
    hl_arguments                         rest;

    hl_option options[] = {
        HL_TEXT("table", 't', &request.table, "NAME", "print one table; 'list' prints all names"),
        HL_CSV_OPTION(&request.common, "print the table as CSV"),
        HL_TEXT("by", 0, &request.by, "COLUMN",
                "column of the table 'heads' that the heatmap shows (normalized)"),
        { 0 },
    };
    hl_usage usage = {
        "show", "PROFILE | TRACE",
        "Shows a profile in the terminal: a heatmap of all heads, means by layer with their\n"
        "shape in words and by position, head types, the most and least focused heads, and\n"
        "the checks in brief.  Of a trace of 'headlight generate' it shows prompt against\n"
        "generated tokens, names and numbers, and how much the text repeats itself.\n"
        "--table prints one table as text, CSV or JSON.  'headlight help metrics' defines\n"
        "every number.",
        options
    };

    HL_PASS(hl_options_parse(&rest, &request.common, &usage, argc, argv));
    if (request.table != NULL && strcmp(request.table, "list") == 0)
        return list_tables();
    if (rest.count != 1)
        return hl_options_refuse(&usage, "give one PROFILE or TRACE; got %d", rest.count);
    HL_PASS(hl_options_check_table(&usage, request.table, request.common.csv, table_name,
                                   "; 'list' prints all"));
    request.path  = rest.items[0];
    request.depth = hl_terminal_depth(stdout);
    HL_CALL("show", open_shown(&profile, &trace, request.path));
    if (request.table != NULL && is_trace_table(request.table) != (trace != NULL))
        return hl_options_refuse(&usage, "--table %s: %s is a %s", request.table,
                                 hl_shown(request.path), trace != NULL ? "trace" : "profile");
    if (trace != NULL)
        return hl_finish("show", show_trace(&request, trace));
    request.profile = profile;
    request.by      = present_name(request.by);
    if (request.by != NULL && !is_column(profile, request.by))
        return hl_options_refuse(
            &usage, "--by: the table 'heads' has no column of numbers called '%s'", request.by);
    if (request.table != NULL)
        return hl_finish("show", print_table(&request));
    if (request.common.json)
        return hl_finish("show", print_screen_json(&request));
    return request.common.quiet ? HL_EXIT_OK : hl_finish("show", print_screen(&request));
}
