/* figure_layers.c - figures with a place for every layer: the profile, and the variance. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/plot.h"

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
static void describe(char *out, size_t n_bytes, const hl_layer_profile *layers)
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
    describe(what, sizeof what, f.layers);
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
