/* figure_profile.c - the figures of a profile except the heatmap: by layer, by position, by value.
 *
 *     layers       the mean of every layer, with its interval and its heads
 *     variance     how much the heads of a layer differ
 *     positions    the mean by position in the text
 *     histograms   the entropies of single rows, per layer */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/chart.h"
#include "render/figure.h"

#define PLOT_HEIGHT 200.0

/* --------------------------------------------------------------------- what all share */

/* Ends a caption with the diagnoses. */
static void add_marks(char *out, size_t n_bytes, const hl_diagnosis_marks *marks)
{
    size_t used = strlen(out);

    if (marks->n_rows > 0)
        snprintf(out + used, n_bytes - used,
                 " Below the frame: findings; the stronger the mark, the more heads of the layer "
                 "show it.");
}

static void scale(double *values, int64_t n_values, double factor)
{
    for (int64_t i = 0; i < n_values; i++)
        values[i] *= factor;
}

/* Computes *out (n_layers, n_heads), the heads' means in the figure's unit, and the axis for
 * them. */
static hl_status read_heads(double **out, hl_axis *axis, const hl_figure *figure)
{
    int64_t size = hl_grid_size(figure->profile);

    HL_NEED(hl_grid_means(out, figure->profile, hl_figure_quantity(figure)));
    scale(*out, size, hl_figure_factor(figure));
    return hl_figure_scale(axis, figure, *out, size);
}

/* ---------------------------------------------------------------- the layer profile */

/* Describes the shape of the curve in words. */
static void describe_layers(char *out, size_t n_bytes, const hl_layer_profile *layers,
                            const char *lowest)
{
    bool has_band = layers->n_layers > 0 && !isnan(layers->lows[0]);
    int  used =
        snprintf(out, n_bytes, "Mean entropy over the heads of each layer%s; each dot is a head.",
                 has_band ? " with its 95% interval" : "");

    if (used < 0 || (size_t)used >= n_bytes || layers->n_layers < 2)
        return;
    if (layers->shape.flat)
        snprintf(out + used, n_bytes - (size_t)used,
                 " The profile is flat: layers differ by %.2g at most.", layers->shape.range);
    else
        snprintf(out + used, n_bytes - (size_t)used, " Shape: %s. Lowest in layer %s.",
                 hl_shape_name(layers->shape.kind), lowest);
}

static void draw_layers(hl_chart *chart, const hl_layer_profile *layers, const double *heads)
{
    const hl_profile      *profile = chart->figure->profile;
    const hl_theme_colors *theme   = chart->figure->theme;
    hl_stroke              line    = { theme->series[0], 1.6, 0.0 };
    hl_color               band    = hl_mix(theme->background, theme->series[0], 0.25);
    hl_color               dot     = hl_mix(theme->background, theme->bar, 0.75);
    double                 radius  = fmin(1.8, 0.2 * chart->box.width / (double)chart->n);
    bool                   banded  = !isnan(layers->lows[0]);
    const hl_key           keys[]  = {
                   { HL_KEY_LINE, theme->series[0], "mean of the layer" },
                   { HL_KEY_DOT, dot, "head" },
                   { HL_KEY_BAND, band, "95% interval" },
    };

    if (banded)
        hl_chart_band(chart, NULL, layers->lows, layers->highs, chart->n, band);
    hl_chart_grid(chart);
    HL_EACH_HEAD(profile, layer, head)
    hl_chart_dot(chart, (double)layer, heads[layer * hl_profile_n_heads(profile) + head], radius,
                 dot);
    hl_chart_line(chart, NULL, layers->means, chart->n, &line);
    for (int64_t layer = 0; layer < chart->n && chart->n <= 48; layer++)
        hl_chart_dot(chart, (double)layer, layers->means[layer], 2.6, theme->series[0]);
    hl_chart_keys(chart, keys, banded ? 3 : 2);
}

hl_status hl_figure_layers(hl_figure *figure)
{
    HL_CLOSED(hl_layer_profile_free) hl_layer_profile    *layers = NULL;
    HL_FREED double                                      *heads  = NULL;
    HL_SCOPED(hl_diagnosis_marks_free) hl_diagnosis_marks marks  = { 0 };
    HL_SCOPED(hl_chart_free)
    hl_chart     chart = { .figure = figure, .n = hl_profile_n_layers(figure->profile) };
    char         what[512];
    hl_row_words words = { "Layer", hl_figure_unit_label(figure), NULL, what, true, &marks };

    HL_NEED(hl_layer_profile_new(&layers, figure->profile, hl_figure_quantity(figure),
                                 hl_threshold_of(NULL, HL_T_FLAT_ERRORS)));
    HL_NEED(read_heads(&heads, &chart.y, figure));
    scale(layers->means, 4 * layers->n_layers, hl_figure_factor(figure)); /* scales the intervals
                                                                           * too */
    HL_NEED(hl_diagnosis_marks_read(&marks, figure->profile));
    char lowest[HL_HEAD_NAME_BYTES];
    describe_layers(what, sizeof what, layers,
                    hl_figure_index_name(lowest, figure, layers->shape.minimum, "Layer"));
    add_marks(what, sizeof what, &marks);
    HL_NEED(hl_chart_begin(&chart, PLOT_HEIGHT, &words));
    draw_layers(&chart, layers, heads);
    return HL_OK;
}

/* --------------------------------------------------------------------- the variance */

/* lows and highs (n_layers) of the variances, from the heads' means without each unit; NaN with too
 * few units. */
static hl_status variance_intervals(double *lows, double *highs, const hl_figure *figure)
{
    const hl_profile *profile = figure->profile;
    int64_t           n_heads = hl_profile_n_heads(profile);
    double            square  = hl_figure_factor(figure) * hl_figure_factor(figure);
    HL_FREED double  *left = NULL, *heads = NULL, *column = NULL;
    hl_unit_rows      rows;

    HL_NEED(hl_grid_left_out(&left, &rows, profile, hl_figure_quantity(figure), NULL,
                             hl_profile_n_sequences(profile)));
    int64_t n = rows.n_groups + 1;
    HL_NEED(HL_ALLOC(&heads, (size_t)n_heads));
    HL_NEED(HL_ALLOC(&column, (size_t)n));
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        for (int64_t at = 0; at < n; at++) {
            for (int64_t head = 0; head < n_heads; head++)
                heads[head] = left[(layer * n_heads + head) * n + at];
            column[at] = hl_variance(heads, n_heads);
        }
        hl_interval interval = hl_left_out_interval(column, &rows, HL_SCALE_POSITIVE);

        lows[layer]  = square * interval.low;
        highs[layer] = square * interval.high;
    }
    return HL_OK;
}

/* Draws bars, each with a line for its interval. */
static void draw_variances(hl_chart *chart, const double *variances, const double *lows,
                           const double *highs)
{
    const hl_theme_colors *theme = chart->figure->theme;
    hl_stroke              line  = { theme->text, 0.9, 0.0 };

    hl_chart_grid(chart);
    /* The bars are paler than a line, so that the intervals are visible on them. */
    hl_chart_bars(chart, variances, hl_mix(theme->background, theme->series[0], 0.65));
    for (int64_t i = 0; i < chart->n; i++) {
        if (!isnan(lows[i]))
            hl_canvas_line(chart->figure->canvas, hl_chart_point(chart, (double)i, lows[i]),
                           hl_chart_point(chart, (double)i, highs[i]), &line);
    }
}

hl_status hl_figure_variance(hl_figure *figure)
{
    static const char *const names[] = { "Variance (nats\u00b2)", "Variance (bits\u00b2)",
                                         "Variance of normalized entropy" };

    int64_t          n_layers = hl_profile_n_layers(figure->profile);
    int64_t          n_heads  = hl_profile_n_heads(figure->profile);
    HL_FREED double *heads    = NULL;
    HL_FREED double *spread   = NULL; /* (3, n_layers): variances, lows, highs */
    HL_SCOPED(hl_diagnosis_marks_free) hl_diagnosis_marks marks = { 0 };
    HL_SCOPED(hl_chart_free) hl_chart chart   = { .figure = figure, .n = n_layers };
    double                            highest = 0.0;
    char                              what[512];
    hl_row_words words = { "Layer", names[figure->options.unit], NULL, what, false, &marks };

    HL_NEED(read_heads(&heads, &chart.y, figure));
    HL_NEED(HL_ALLOC(&spread, 3 * (size_t)n_layers));
    double *lows = spread + n_layers, *highs = lows + n_layers;
    HL_NEED(variance_intervals(lows, highs, figure));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        spread[layer] = hl_variance(heads + layer * n_heads, n_heads);
        highest       = fmax(highest, fmax(spread[layer], highs[layer]));
    }
    chart.y = hl_axis_around(0.0, highest > 0.0 ? highest : 1.0, 5);
    HL_NEED(hl_diagnosis_marks_read(&marks, figure->profile));
    snprintf(what, sizeof what,
             "Variance of the mean entropies of the heads in each layer%s; at 0 all heads are "
             "equally focused, not necessarily on the same tokens.",
             isnan(lows[0]) ? "" : ", with 95% intervals");
    add_marks(what, sizeof what, &marks);
    HL_NEED(hl_chart_begin(&chart, PLOT_HEIGHT, &words));
    draw_variances(&chart, spread, lows, highs);
    return HL_OK;
}

/* -------------------------------------------------------------------- positions */

/* Positions are grouped in buckets that double in size: 0, 1-2, 3-6, 7-14 ...  The profile holds
 * the heads' means for each bucket; the figure shows the mean over heads, its confidence interval,
 * and the middle half of the heads. */

enum { LABEL_BYTES = 48 };

typedef struct position_figure {
    hl_figure        *figure;
    hl_position_curve curve;                         /* means in the figure's unit */
    double            lower[HL_PROFILE_MAX_BUCKETS]; /* quartiles of the heads */
    double            upper[HL_PROFILE_MAX_BUCKETS];
    char              rooms[HL_PROFILE_MAX_BUCKETS][LABEL_BYTES];
    const char       *labels[HL_PROFILE_MAX_BUCKETS];
} position_figure;

/* The last bucket ends with the window. */
static void write_label(char *out, const hl_profile *profile, int64_t bucket)
{
    const char *context = hl_profile_setting(profile, "context");
    int64_t     first = (INT64_C(1) << bucket) - 1, last = (INT64_C(2) << bucket) - 2;
    int64_t     end = context != NULL ? strtoll(context, NULL, 10) - 1 : last;

    if (end >= first && end < last)
        last = end;

    if (first == last)
        snprintf(out, LABEL_BYTES, "%lld", (long long)first);
    else
        snprintf(out, LABEL_BYTES, "%lld\u2013%lld", (long long)first, (long long)last);
}

/* Computes the values of a bucket; `values` has room for all heads. */
static void read_bucket(position_figure *f, double *values, int64_t bucket)
{
    const hl_profile *profile  = f->figure->profile;
    hl_quantity       quantity = hl_figure_quantity(f->figure);
    double            factor   = hl_figure_factor(f->figure);
    int64_t           count    = 0;

    HL_EACH_HEAD(profile, layer, head)
    values[count++]  = factor * hl_profile_by_position(profile, layer, head, bucket, quantity).mean;
    count            = hl_sort(values, count);
    f->lower[bucket] = hl_sorted_quantile(values, count, 0.25);
    f->upper[bucket] = hl_sorted_quantile(values, count, 0.75);
    f->curve.means[bucket] *= factor;
    f->curve.lows[bucket] *= factor;
    f->curve.highs[bucket] *= factor;
    write_label(f->rooms[bucket], profile, bucket);
    f->labels[bucket] = f->rooms[bucket];
}

/* Describes the figure and the diagnoses for the caption. */
static void describe_positions(char *out, size_t n_bytes, const position_figure *f,
                               const hl_diagnosis_marks *marks)
{
    char found[320], reason[80];

    hl_diagnosis_marks_say(found, sizeof found, marks);
    hl_interval_reason(reason, sizeof reason, &f->curve.interval);
    snprintf(out, n_bytes,
             "Mean entropy of rows by position in the window, over all heads%s; the band holds the "
             "middle half of the heads. Ranges of positions double.%s%s%s%s%s",
             f->curve.has_intervals ? ", with its 95% interval" : "",
             f->curve.has_intervals ? "" : " No interval: ", f->curve.has_intervals ? "" : reason,
             f->curve.has_intervals ? "" : ".", found[0] != '\0' ? " " : "", found);
}

static void draw_curve(position_figure *f, hl_chart *chart)
{
    const hl_theme_colors *theme  = f->figure->theme;
    hl_stroke              line   = { theme->series[0], 1.6, 0.0 };
    hl_color               half   = hl_mix(theme->background, theme->bar, 0.3);
    hl_color               band   = hl_mix(theme->background, theme->series[0], 0.45);
    const hl_key           keys[] = {
                  { HL_KEY_LINE, theme->series[0], "mean" },
                  { HL_KEY_BAND, half, "half of the heads" },
                  { HL_KEY_BAND, band, "95% interval" },
    };

    hl_chart_band(chart, NULL, f->lower, f->upper, chart->n, half);
    if (f->curve.has_intervals)
        hl_chart_band(chart, NULL, f->curve.lows, f->curve.highs, chart->n, band);
    hl_chart_grid(chart);
    hl_chart_line(chart, NULL, f->curve.means, chart->n, &line);
    for (int64_t i = 0; i < chart->n; i++)
        hl_chart_dot(chart, (double)i, f->curve.means[i], 2.6, theme->series[0]);
    hl_chart_keys(chart, keys, f->curve.has_intervals ? 3 : 2);
}

hl_status hl_figure_positions(hl_figure *figure)
{
    int64_t                                               n = hl_profile_n_buckets(figure->profile);
    position_figure                                       f = { .figure = figure };
    HL_FREED double                                      *values = NULL;
    HL_SCOPED(hl_chart_free) hl_chart                     chart  = { .figure = figure, .n = n };
    HL_SCOPED(hl_diagnosis_marks_free) hl_diagnosis_marks marks  = { 0 };
    double       tops[HL_PROFILE_MAX_BUCKETS]; /* largest value that is drawn for each bucket */
    char         what[640];
    hl_row_words words = {
        "Position in the window (tokens)", hl_figure_unit_label(figure), f.labels, what, true, NULL
    };

    HL_NEED(HL_ALLOC(&values, (size_t)hl_grid_size(figure->profile)));
    HL_NEED(hl_position_curve_read(&f.curve, figure->profile, hl_figure_quantity(figure)));
    for (int64_t i = 0; i < n; i++) {
        read_bucket(&f, values, i);
        tops[i] = fmax(fmax(f.upper[i], f.curve.means[i]), f.curve.highs[i]);
    }
    HL_NEED(hl_diagnosis_marks_read(&marks, figure->profile));
    describe_positions(what, sizeof what, &f, &marks);
    HL_NEED(hl_figure_scale(&chart.y, figure, tops, n));
    HL_NEED(hl_chart_begin(&chart, PLOT_HEIGHT, &words));
    draw_curve(&f, &chart);
    return HL_OK;
}

/* ------------------------------------------------------------------- histograms */

/* One histogram per layer, as a row of 64 cells: the darker, the more rows have that entropy. A
 * mean can hide that a layer has two kinds of rows; here they are visible as two dark places. */

#define LEGEND_GAP 18.0

typedef struct histograms {
    hl_figure *figure;
    int64_t    n_layers;
    double    *shares; /* (n_layers, HL_N_BINS) percent of the layer's rows; NaN: the layer has
                        * none */
    double    *most;   /* (n_layers) largest value of each layer */
    hl_axis    axis;   /* from 0 to 1; used for entropies and for a bin's share of the fullest
                        * bin */

    hl_diagnosis_marks marks;
} histograms;

static void free_histograms(histograms *h)
{
    hl_free(h->shares);
    hl_diagnosis_marks_free(&h->marks);
}

static void add_layer(histograms *h, int64_t layer)
{
    double *shares = h->shares + layer * HL_N_BINS;
    double  total  = 0.0;

    h->most[layer] = NAN;
    for (int bin = 0; bin < HL_N_BINS; bin++)
        shares[bin] = 0.0;
    for (int64_t head = 0; head < hl_profile_heads_of(h->figure->profile, layer); head++) {
        const int64_t *counts =
            hl_profile_histogram(h->figure->profile, layer, head, HL_HIST_NORMALIZED);
        for (int bin = 0; bin < HL_N_BINS; bin++) {
            shares[bin] += (double)counts[bin];
            total += (double)counts[bin];
        }
    }
    for (int bin = 0; bin < HL_N_BINS; bin++) {
        shares[bin]    = total > 0.0 ? 100.0 * shares[bin] / total : NAN;
        h->most[layer] = fmax(h->most[layer], shares[bin]); /* fmax skips NaN */
    }
}

/* Each layer has its own color scale: a layer with all rows in one bin would make the others pale.
 * The last layer is on top. */
static bool cell_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const histograms *h     = context;
    int64_t           layer = h->n_layers - 1 - down;
    double            most  = h->most[layer];

    if (isnan(most))
        return false;
    *out = hl_map_color(hl_figure_blues(h->figure), h->shares[layer * HL_N_BINS + across] / most);
    return true;
}

static hl_status read_shares(histograms *h)
{
    bool any = false;

    HL_NEED(HL_ALLOC(&h->shares, (size_t)h->n_layers * (HL_N_BINS + 1)));
    h->most = h->shares + h->n_layers * HL_N_BINS;
    h->axis = hl_axis_around(0.0, 1.0, 5);
    for (int64_t layer = 0; layer < h->n_layers; layer++) {
        add_layer(h, layer);
        any = any || !isnan(h->most[layer]);
    }
    return any ? HL_OK
               : hl_fail(HL_BAD_INPUT, "the profile has no row that saw two keys, so there is no "
                                       "histogram to draw; measure a longer text");
}

static void cell_title(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down)
{
    const histograms *h     = context;
    int64_t           layer = h->n_layers - 1 - down;

    char name[HL_HEAD_NAME_BYTES];

    snprintf(out, n_bytes, "%s %.2f\u2013%.2f: %.2g%%",
             hl_profile_head_name(name, h->figure->profile, layer, -1), (double)across / HL_N_BINS,
             (double)(across + 1) / HL_N_BINS, h->shares[layer * HL_N_BINS + across]);
}

static void label_entropies(hl_figure *figure, hl_box box, const hl_axis *axis)
{
    hl_text_style small  = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style normal = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_stroke     stroke = hl_figure_axis_stroke(figure);
    double        bottom = box.y + box.height;
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= axis->n_steps; i++) {
        double tick = hl_axis_tick(axis, i);
        double x    = box.x + box.width * hl_axis_share(axis, tick);
        hl_canvas_line(figure->canvas, (hl_point){ x, bottom }, (hl_point){ x, bottom + 3.0 },
                       &stroke);
        hl_canvas_text(figure->canvas, x, bottom + 6.0, hl_axis_label(room, axis, tick), &small);
    }
    hl_canvas_text(figure->canvas, box.x + box.width / 2.0, bottom + 18.0,
                   "Normalized entropy of a row", &normal);
}

/* If such a diagnosis was found, the medians of most heads are beyond the line. */
static void draw_threshold(const histograms *h, hl_box box, const char *diagnosis,
                           hl_threshold threshold)
{
    hl_stroke     line   = { h->figure->theme->series[1], 1.1, 3.0 };
    hl_thresholds limits = hl_thresholds_default();
    double        x      = box.x + box.width * limits.values[threshold];

    if (!hl_diagnosis_marks_has(&h->marks, diagnosis))
        return;
    hl_canvas_begin(h->figure->canvas, diagnosis);
    hl_canvas_line(h->figure->canvas, (hl_point){ x, box.y }, (hl_point){ x, box.y + box.height },
                   &line);
    hl_canvas_end(h->figure->canvas);
}

static void describe_histograms(char *out, size_t n_bytes, const histograms *h)
{
    bool lined = hl_diagnosis_marks_has(&h->marks, "entropy-collapse") ||
                 hl_diagnosis_marks_has(&h->marks, "entropic-overload");
    char found[320];

    hl_diagnosis_marks_say(found, sizeof found, &h->marks);
    snprintf(out, n_bytes,
             "Distribution of the normalized entropy of rows, all heads of a layer together: %s is "
             "more rows, relative to the fullest bin of the layer.%s%s%s",
             hl_figure_more(h->figure), found[0] != '\0' ? " " : "", found,
             lined ? " Dashed: the thresholds of entropy-collapse and entropic-overload." : "");
}

static void draw(histograms *h)
{
    hl_figure *figure = h->figure;
    double     left   = hl_figure_indices_width(figure, h->n_layers, NULL);
    double     right  = LEGEND_GAP + hl_figure_color_bar_width(figure, &h->axis);
    double     height = fmin(fmax(16.0 * (double)h->n_layers, 120.0), 400.0);
    char       what[640];

    describe_histograms(what, sizeof what, h);
    hl_box box = hl_figure_begin(figure, height + HL_INDICES_HEIGHT, what);

    hl_box       inner = { box.x + left, box.y, box.width - left - right, height };
    hl_cell_grid grid  = { inner, HL_N_BINS, h->n_layers, 0.0, cell_color, cell_title, h };
    hl_stroke    frame = hl_figure_axis_stroke(figure);

    hl_canvas_cells(figure->canvas, &grid);
    draw_threshold(h, inner, "entropy-collapse", HL_T_COLLAPSE_ENTROPY);
    draw_threshold(h, inner, "entropic-overload", HL_T_OVERLOAD_ENTROPY);
    hl_canvas_outline(figure->canvas, inner, &frame);
    hl_figure_indices_up(figure, inner, h->n_layers, NULL, "Layer");
    label_entropies(figure, inner, &h->axis);
    hl_figure_color_bar(
        figure, (hl_box){ inner.x + inner.width + LEGEND_GAP, inner.y, 0.0, fmin(height, 220.0) },
        hl_figure_blues(figure), &h->axis, "Rows, relative to the fullest bin");
}

hl_status hl_figure_histograms(hl_figure *figure)
{
    HL_SCOPED(free_histograms)
    histograms h = { .figure = figure, .n_layers = hl_profile_n_layers(figure->profile) };

    HL_NEED(read_shares(&h));
    HL_NEED(hl_diagnosis_marks_read(&h.marks, figure->profile));
    draw(&h);
    return HL_OK;
}
