/* figure_profile.c - the figures of a profile beside the heatmap: by layer, by position, by value.
 *
 *     layers       the mean of every layer, with its interval and its heads
 *     variance     how far the heads of a layer lie apart
 *     positions    the mean by where in the text a row stands
 *     histograms   the entropies of single rows, layer by layer */
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

/* ---------------------------------------------------------------- the layer profile */

typedef struct layer_figure {
    hl_figure        *figure;
    hl_layer_profile *layers;
    double           *heads; /* (n_layers, n_heads) */
    hl_plot           plot;
} layer_figure;

/* Ends a caption. */
static void add_marks(char *out, size_t n_bytes, const hl_diagnosis_marks *marks)
{
    size_t used = strlen(out);

    if (marks->n_rows > 0)
        snprintf(out + used, n_bytes - used,
                 " Below the frame, diagnoses that hold: the stronger the mark, the more heads of "
                 "the layer show it.");
}

static void scale(double *values, int64_t n_values, double factor)
{
    for (int64_t i = 0; i < n_values; i++)
        values[i] *= factor;
}

static hl_status read_layers(layer_figure *f)
{
    const hl_profile *profile   = f->figure->profile;
    hl_quantity       quantity  = hl_figure_quantity(f->figure);
    double            factor    = hl_figure_factor(f->figure);
    hl_thresholds     threshold = hl_thresholds_default();

    HL_NEED(hl_layer_profile_new(&f->layers, profile, quantity, threshold.values[HL_T_FLAT_ERRORS],
                                 f->figure->options.seed));
    HL_NEED(hl_grid_means(&f->heads, profile, quantity));
    scale(f->heads, hl_grid_size(profile), factor);
    scale(f->layers->means, f->layers->n_layers, factor);
    scale(f->layers->lows, f->layers->n_layers, factor);
    scale(f->layers->highs, f->layers->n_layers, factor);
    return hl_figure_scale(&f->plot.y, f->figure, f->heads, hl_grid_size(profile));
}

/* What the shape is, in words. */
static void describe_layers(char *out, size_t n_bytes, const hl_layer_profile *layers)
{
    bool has_band = layers->n_layers > 0 && !isnan(layers->lows[0]);
    int  used     = snprintf(out, n_bytes,
                             "Mean entropy over the heads of a layer%s; every dot is a "
                                  "head.",
                        has_band ? " with its 95% interval (bootstrap over windows)" : "");

    if (used < 0 || (size_t)used >= n_bytes || layers->n_layers < 2)
        return;
    if (layers->shape.flat)
        snprintf(out + used, n_bytes - (size_t)used,
                 " The profile is flat: its range is within the noise.");
    else
        snprintf(out + used, n_bytes - (size_t)used, " Lowest in layer %lld.",
                 (long long)layers->shape.minimum);
}

static void draw_heads(layer_figure *f)
{
    int64_t   n_heads = hl_profile_n_heads(f->figure->profile);
    hl_colour colour  = hl_mix(f->figure->theme->background, f->figure->theme->bar, 0.75);
    double    radius  = fmin(1.8, 0.2 * f->plot.box.width / (double)f->plot.n);

    HL_EACH_HEAD(f->figure->profile, layer, head)
    {
        hl_plot_dot(&f->plot, layer, f->heads[layer * n_heads + head], radius, colour);
    }
}

static void draw_profile(layer_figure *f)
{
    const hl_theme_colours *theme  = f->figure->theme;
    hl_stroke               line   = { theme->series[0], 1.6, 0.0 };
    hl_colour               band   = hl_mix(theme->background, theme->series[0], 0.25);
    bool                    banded = !isnan(f->layers->lows[0]);
    const hl_key            keys[] = {
                   { HL_KEY_LINE, theme->series[0], "mean of the layer" },
                   { HL_KEY_DOT, hl_mix(theme->background, theme->bar, 0.75), "head" },
                   { HL_KEY_BAND, band, "95% interval" },
    };

    if (banded)
        hl_plot_band(&f->plot, f->layers->lows, f->layers->highs, band);
    hl_plot_grid(&f->plot);
    draw_heads(f);
    hl_plot_line(&f->plot, f->layers->means, &line);
    if (f->plot.n <= 48) {
        for (int64_t layer = 0; layer < f->plot.n; layer++)
            hl_plot_dot(&f->plot, layer, f->layers->means[layer], 2.6, theme->series[0]);
    }
    hl_plot_keys(&f->plot, keys, banded ? 3 : 2);
}

hl_status hl_figure_layers(hl_figure *figure)
{
    hl_status    status = HL_OK;
    layer_figure f      = { .figure = figure };
    char         what[512];

    hl_diagnosis_marks marks = { 0 };
    hl_plot_words      words = { "Layer", hl_figure_unit_label(figure), NULL, what, true, &marks };

    f.plot = (hl_plot){ .figure = figure, .n = hl_profile_n_layers(figure->profile) };
    HL_TRY(read_layers(&f));
    HL_TRY(hl_diagnosis_marks_read(&marks, figure->profile));
    describe_layers(what, sizeof what, f.layers);
    add_marks(what, sizeof what, &marks);
    HL_TRY(hl_plot_begin(&f.plot, PLOT_HEIGHT, &words));
    draw_profile(&f);

done:
    hl_plot_end(&f.plot);
    hl_layer_profile_free(f.layers);
    hl_free(f.heads);
    hl_diagnosis_marks_free(&marks);
    return status;
}

/* --------------------------------------------------------------------- the variance */

typedef struct variance_figure {
    hl_figure *figure;
    int64_t    n_layers;
    int64_t    n_heads;
    double    *variances; /* (n_layers) */
    double    *lows;      /* (n_layers) 95% interval; NaN with fewer than two sequences */
    double    *highs;
    double    *values; /* (n_layers, n_heads) */
} variance_figure;

/* Of one layer, from draws (n_layers * n_heads, HL_RESAMPLES) of the heads' means; those of layers
 * before it may be gone. */
static hl_interval variance_interval(const variance_figure *f, double *draws, int64_t layer,
                                     double *heads)
{
    double *first = draws + layer * f->n_heads * HL_RESAMPLES;

    for (int64_t draw = 0; draw < HL_RESAMPLES; draw++) {
        for (int64_t head = 0; head < f->n_heads; head++)
            heads[head] = first[head * HL_RESAMPLES + draw];
        first[draw] = hl_variance(heads, f->n_heads);
    }
    return hl_bootstrap_interval(first, HL_RESAMPLES, 0.95);
}

static hl_status read_intervals(variance_figure *f)
{
    hl_status         status  = HL_OK;
    const hl_profile *profile = f->figure->profile;
    int64_t           n_kept  = hl_profile_n_sequences(profile);
    double            square  = hl_figure_factor(f->figure) * hl_figure_factor(f->figure);
    double           *values = NULL, *draws = NULL, *heads = NULL;

    for (int64_t layer = 0; layer < f->n_layers; layer++)
        f->lows[layer] = f->highs[layer] = NAN;
    if (n_kept < 2)
        return HL_OK;
    HL_TRY(hl_grid_sequences(&values, profile, hl_figure_quantity(f->figure)));
    HL_TRY(HL_ALLOC(&draws, (size_t)hl_grid_size(profile) * HL_RESAMPLES));
    HL_TRY(HL_ALLOC(&heads, (size_t)f->n_heads));
    HL_TRY(hl_bootstrap_means(draws, values, n_kept, hl_grid_size(profile), HL_RESAMPLES,
                              f->figure->options.seed));
    for (int64_t layer = 0; layer < f->n_layers; layer++) {
        hl_interval interval = variance_interval(f, draws, layer, heads);
        f->lows[layer]       = square * interval.low;
        f->highs[layer]      = square * interval.high;
    }

done:
    hl_free(values);
    hl_free(draws);
    hl_free(heads);
    return status;
}

static hl_status read_variances(variance_figure *f, hl_axis *axis)
{
    const hl_profile *profile = f->figure->profile;
    double            highest = 0.0;

    HL_NEED(HL_ALLOC(&f->variances, (size_t)f->n_layers));
    HL_NEED(HL_ALLOC(&f->lows, (size_t)f->n_layers));
    HL_NEED(HL_ALLOC(&f->highs, (size_t)f->n_layers));
    HL_NEED(hl_grid_means(&f->values, profile, hl_figure_quantity(f->figure)));
    scale(f->values, hl_grid_size(profile), hl_figure_factor(f->figure));
    HL_NEED(hl_figure_scale(axis, f->figure, f->values, hl_grid_size(profile)));
    HL_NEED(read_intervals(f));
    for (int64_t layer = 0; layer < f->n_layers; layer++) {
        f->variances[layer] = hl_variance(f->values + layer * f->n_heads, f->n_heads);
        highest             = fmax(highest, fmax(f->variances[layer], f->highs[layer]));
    }
    *axis = hl_axis_around(0.0, highest > 0.0 ? highest : 1.0, 5);
    return HL_OK;
}

/* Bars, and a line over each as long as its interval. */
static void draw_variances(const variance_figure *f, hl_plot *plot)
{
    const hl_theme_colours *theme = f->figure->theme;
    hl_stroke               line  = { theme->text, 0.9, 0.0 };

    hl_plot_grid(plot);
    /* Paler than a line of that colour: intervals are to be seen on them. */
    hl_plot_bars(plot, f->variances, hl_mix(theme->background, theme->series[0], 0.65));
    for (int64_t layer = 0; layer < f->n_layers; layer++) {
        double x = hl_plot_x(plot, layer);
        if (!isnan(f->lows[layer]))
            hl_canvas_line(f->figure->canvas, (hl_point){ x, hl_plot_y(plot, f->lows[layer]) },
                           (hl_point){ x, hl_plot_y(plot, f->highs[layer]) }, &line);
    }
}

hl_status hl_figure_variance(hl_figure *figure)
{
    static const char *const names[] = { "Variance (nats\u00b2)", "Variance (bits\u00b2)",
                                         "Variance of normalised entropy" };

    hl_status          status = HL_OK;
    variance_figure    f      = { .figure   = figure,
                                  .n_layers = hl_profile_n_layers(figure->profile),
                                  .n_heads  = hl_profile_n_heads(figure->profile) };
    hl_plot            plot   = { .figure = figure, .n = f.n_layers };
    hl_diagnosis_marks marks  = { 0 };
    char               what[512];
    hl_plot_words      words = { "Layer", names[figure->options.unit], NULL, what, false, &marks };

    HL_TRY(read_variances(&f, &plot.y));
    HL_TRY(hl_diagnosis_marks_read(&marks, figure->profile));
    snprintf(what, sizeof what,
             "Variance of the heads' mean entropies in every layer%s; 0: all heads are equally "
             "focused, which does not say that they look at the same.",
             isnan(f.lows[0]) ? "" : ", with 95% intervals (bootstrap over windows)");
    add_marks(what, sizeof what, &marks);
    HL_TRY(hl_plot_begin(&plot, PLOT_HEIGHT, &words));
    draw_variances(&f, &plot);

done:
    hl_plot_end(&plot);
    hl_free(f.variances);
    hl_free(f.lows);
    hl_free(f.highs);
    hl_free(f.values);
    hl_diagnosis_marks_free(&marks);
    return status;
}

/* -------------------------------------------------------------------- positions */

/* Positions come in buckets that double: 0, 1-2, 3-6, 7-14 ...  Of each the heads' means
 * are known, and the figure shows their mean, how sure it is, and where the middle half of
 * the heads lies. */

enum { LABEL_BYTES = 48 };

typedef struct position_figure {
    hl_figure        *figure;
    hl_position_curve curve;  /* in the figure's unit */
    double           *values; /* (n_layers * n_heads) of one bucket, sorted */
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

static void read_bucket(position_figure *f, int64_t bucket)
{
    const hl_profile *profile  = f->figure->profile;
    hl_quantity       quantity = hl_figure_quantity(f->figure);
    double            factor   = hl_figure_factor(f->figure);
    int64_t           count    = 0;

    HL_EACH_HEAD(profile, layer, head)
    {
        f->values[count++] =
            factor * hl_profile_by_position(profile, layer, head, bucket, quantity).mean;
    }
    count            = hl_sort(f->values, count);
    f->lower[bucket] = count > 0 ? hl_sorted_quantile(f->values, count, 0.25) : NAN;
    f->upper[bucket] = count > 0 ? hl_sorted_quantile(f->values, count, 0.75) : NAN;
    f->curve.means[bucket] *= factor;
    f->curve.lows[bucket] *= factor;
    f->curve.highs[bucket] *= factor;
    write_label(f->rooms[bucket], profile, bucket);
    f->labels[bucket] = f->rooms[bucket];
}

static hl_status read_positions(position_figure *f)
{
    const hl_profile *profile = f->figure->profile;

    HL_NEED(HL_ALLOC(&f->values, (size_t)hl_grid_size(profile)));
    HL_NEED(hl_position_curve_read(&f->curve, profile, hl_figure_quantity(f->figure),
                                   f->figure->options.seed));
    for (int64_t bucket = 0; bucket < f->curve.n_buckets; bucket++)
        read_bucket(f, bucket);
    return HL_OK;
}

/* What is drawn, in words, and what was found. */
static void describe_positions(char *out, size_t n_bytes, const position_figure *f,
                               const hl_diagnosis_marks *marks)
{
    char found[320];

    hl_diagnosis_marks_say(found, sizeof found, marks);
    snprintf(
        out, n_bytes,
        "Mean entropy of rows by their position, over all heads%s, and where the middle half of "
        "the heads lies; positions come in ranges that double.%s%s%s",
        f->curve.has_intervals ? ", with its 95% interval (bootstrap over windows)" : "",
        f->curve.has_intervals || hl_profile_n_sequences(f->figure->profile) < 2
            ? ""
            : " The profile is of a version that kept no curves of windows: no interval.",
        found[0] != '\0' ? " " : "", found);
}

static void draw_curve(position_figure *f, hl_plot *plot)
{
    const hl_theme_colours *theme  = f->figure->theme;
    hl_stroke               line   = { theme->series[0], 1.6, 0.0 };
    hl_colour               half   = hl_mix(theme->background, theme->bar, 0.3);
    hl_colour               band   = hl_mix(theme->background, theme->series[0], 0.45);
    const hl_key            keys[] = {
                   { HL_KEY_LINE, theme->series[0], "mean" },
                   { HL_KEY_BAND, half, "half of the heads" },
                   { HL_KEY_BAND, band, "95% interval" },
    };

    hl_plot_band(plot, f->lower, f->upper, half);
    if (f->curve.has_intervals)
        hl_plot_band(plot, f->curve.lows, f->curve.highs, band);
    hl_plot_grid(plot);
    hl_plot_line(plot, f->curve.means, &line);
    for (int64_t bucket = 0; bucket < plot->n; bucket++)
        hl_plot_dot(plot, bucket, f->curve.means[bucket], 2.6, theme->series[0]);
    hl_plot_keys(plot, keys, f->curve.has_intervals ? 3 : 2);
}

/* The highest that will be drawn of every bucket. */
static void find_tops(double tops[HL_PROFILE_MAX_BUCKETS], const position_figure *f)
{
    for (int64_t bucket = 0; bucket < f->curve.n_buckets; bucket++)
        tops[bucket] = fmax(fmax(f->upper[bucket], f->curve.means[bucket]), f->curve.highs[bucket]);
}

hl_status hl_figure_positions(hl_figure *figure)
{
    hl_status        status = HL_OK;
    position_figure *f      = NULL;
    hl_plot          plot   = { .figure = figure, .n = hl_profile_n_buckets(figure->profile) };
    double           tops[HL_PROFILE_MAX_BUCKETS];
    char             what[640];

    hl_diagnosis_marks marks = { 0 };
    hl_plot_words      words = {
             "Position in the window (tokens)", hl_figure_unit_label(figure), NULL, what, true, NULL
    };

    HL_TRY(HL_ALLOC_ZEROED(&f, 1));
    f->figure = figure;
    HL_TRY(read_positions(f));
    words.labels = f->labels;
    HL_TRY(hl_diagnosis_marks_read(&marks, figure->profile));
    describe_positions(what, sizeof what, f, &marks);
    find_tops(tops, f);
    HL_TRY(hl_figure_scale(&plot.y, figure, tops, plot.n));
    HL_TRY(hl_plot_begin(&plot, 200.0, &words));
    draw_curve(f, &plot);

done:
    hl_plot_end(&plot);
    if (f != NULL)
        hl_free(f->values);
    hl_free(f);
    hl_diagnosis_marks_free(&marks);
    return status;
}

/* ------------------------------------------------------------------- histograms */

/* A histogram a layer, as a row of 64 cells: the darker, the more rows have that entropy.
 * Means can hide that a layer has two kinds of rows; here it shows as two dark places. */

#define LEGEND_GAP 18.0

typedef struct histograms {
    hl_figure *figure;
    int64_t    n_layers;
    double    *shares;  /* (n_layers, HL_N_BINS) of the layer's rows; NaN: it has none */
    hl_colour *colours; /* (n_layers, HL_N_BINS) the last layer first */
    bool      *drawn;
    hl_axis    axis; /* of a bin's rows, relative to the layer's fullest */

    hl_diagnosis_marks marks;
} histograms;

static void add_layer(histograms *h, int64_t layer)
{
    double *shares = h->shares + layer * HL_N_BINS;
    double  total  = 0.0;

    for (int bin = 0; bin < HL_N_BINS; bin++)
        shares[bin] = 0.0;
    for (int64_t head = 0; head < hl_profile_heads_of(h->figure->profile, layer); head++) {
        const int64_t *counts =
            hl_profile_histogram(h->figure->profile, layer, head, HL_HIST_NORMALISED);
        for (int bin = 0; bin < HL_N_BINS; bin++) {
            shares[bin] += (double)counts[bin];
            total += (double)counts[bin];
        }
    }
    for (int bin = 0; bin < HL_N_BINS; bin++)
        shares[bin] = total > 0.0 ? 100.0 * shares[bin] / total : NAN;
}

/* Layers are coloured each by itself: one that puts all rows in a bin would leave the others
 * pale. */
static void colour_layer(histograms *h, int64_t layer)
{
    const double *shares  = h->shares + layer * HL_N_BINS;
    int64_t       first   = (h->n_layers - 1 - layer) * HL_N_BINS;
    double        highest = NAN;

    for (int bin = 0; bin < HL_N_BINS; bin++)
        highest = fmax(highest, shares[bin]); /* passes NaN over */
    for (int bin = 0; bin < HL_N_BINS; bin++) {
        h->drawn[first + bin] = !isnan(highest);
        h->colours[first + bin] =
            hl_map_colour(hl_figure_blues(h->figure), isnan(highest) ? 0.0 : shares[bin] / highest);
    }
}

static hl_status read_shares(histograms *h)
{
    hl_status status  = HL_OK;
    int64_t   n_cells = h->n_layers * HL_N_BINS;
    bool      any     = false;

    HL_NEED(HL_ALLOC(&h->shares, (size_t)n_cells));
    HL_NEED(HL_ALLOC(&h->colours, (size_t)n_cells));
    HL_NEED(HL_ALLOC(&h->drawn, (size_t)n_cells));
    h->axis = hl_axis_around(0.0, 1.0, 5);
    for (int64_t layer = 0; layer < h->n_layers; layer++) {
        add_layer(h, layer);
        colour_layer(h, layer);
        any = any || !isnan(h->shares[layer * HL_N_BINS]);
    }
    if (!any)
        status = hl_fail(HL_BAD_INPUT, "the profile holds no row that saw two keys: there is no "
                                       "histogram to draw");
    return status;
}

static void cell_title(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down)
{
    const histograms *h     = context;
    int64_t           layer = h->n_layers - 1 - down;

    snprintf(out, n_bytes, "L%lld %.2f\u2013%.2f: %.2g%%", (long long)layer,
             (double)across / HL_N_BINS, (double)(across + 1) / HL_N_BINS,
             h->shares[layer * HL_N_BINS + across]);
}

static void label_entropies(hl_figure *figure, hl_box box)
{
    hl_axis       axis   = hl_axis_around(0.0, 1.0, 5);
    hl_text_style small  = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style normal = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_stroke     stroke = hl_figure_axis_stroke(figure);
    double        bottom = box.y + box.height;
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= axis.n_steps; i++) {
        double tick = hl_axis_tick(&axis, i);
        double x    = box.x + box.width * hl_axis_share(&axis, tick);
        hl_canvas_line(figure->canvas, (hl_point){ x, bottom }, (hl_point){ x, bottom + 3.0 },
                       &stroke);
        hl_canvas_text(figure->canvas, (hl_point){ x, bottom + 6.0 },
                       hl_axis_label(room, &axis, tick), &small);
    }
    hl_canvas_text(figure->canvas, (hl_point){ box.x + box.width / 2.0, bottom + 18.0 },
                   "Normalised entropy of a row", &normal);
}

/* The medians of most heads lie beyond the line, where such a diagnosis holds. */
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
             "Entropy of single rows over the logarithm of the keys they see, all heads of a layer "
             "together: the %s, the more rows, each layer by itself.%s%s%s",
             hl_figure_more(h->figure), found[0] != '\0' ? " " : "", found,
             lined ? " Dashed: the threshold of collapse or overload." : "");
}

static void draw(histograms *h)
{
    hl_figure *figure = h->figure;
    double     left   = hl_figure_indices_width(figure, h->n_layers, NULL);
    double     right  = LEGEND_GAP + hl_figure_colour_bar_width(figure, &h->axis);
    double     height = fmin(fmax(16.0 * (double)h->n_layers, 120.0), 400.0);
    char       what[640];

    describe_histograms(what, sizeof what, h);
    hl_box box = hl_figure_begin(figure, height + HL_INDICES_HEIGHT, what);

    hl_box       inner = { box.x + left, box.y, box.width - left - right, height };
    hl_cell_grid grid = { inner, HL_N_BINS, h->n_layers, 0.0, h->colours, h->drawn, cell_title, h };
    hl_stroke    frame = hl_figure_axis_stroke(figure);

    hl_canvas_cells(figure->canvas, &grid);
    draw_threshold(h, inner, "entropy-collapse", HL_T_COLLAPSE_ENTROPY);
    draw_threshold(h, inner, "entropic-overload", HL_T_OVERLOAD_ENTROPY);
    hl_canvas_outline(figure->canvas, inner, &frame);
    hl_figure_indices_up(figure, inner, h->n_layers, NULL, "Layer");
    label_entropies(figure, inner);
    hl_figure_colour_bar(
        figure, (hl_box){ inner.x + inner.width + LEGEND_GAP, inner.y, 0.0, fmin(height, 220.0) },
        hl_figure_blues(figure), &h->axis, "Rows, of the fullest bin");
}

hl_status hl_figure_histograms(hl_figure *figure)
{
    hl_status  status = HL_OK;
    histograms h      = { .figure = figure, .n_layers = hl_profile_n_layers(figure->profile) };

    HL_TRY(read_shares(&h));
    HL_TRY(hl_diagnosis_marks_read(&h.marks, figure->profile));
    draw(&h);

done:
    hl_free(h.shares);
    hl_free(h.colours);
    hl_free(h.drawn);
    hl_diagnosis_marks_free(&h.marks);
    return status;
}
