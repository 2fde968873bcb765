/* figure_layers.c - figures with a place for every layer: the profile, and the variance. */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/layers.h"
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

static void scale(double *values, int64_t n_values, double factor)
{
    for (int64_t i = 0; i < n_values; i++)
        values[i] *= factor;
}

static hl_status read_layers(layer_figure *f)
{
    hl_status         status    = HL_OK;
    const hl_profile *profile   = f->figure->profile;
    hl_quantity       quantity  = hl_figure_quantity(f->figure);
    double            factor    = hl_figure_factor(f->figure);
    hl_thresholds     threshold = hl_thresholds_default();

    HL_TRY(hl_layer_profile_new(&f->layers, profile, quantity, threshold.values[HL_T_FLAT_ERRORS],
                                f->figure->options.seed));
    HL_TRY(hl_grid_means(&f->heads, profile, quantity));
    scale(f->heads, hl_grid_size(profile), factor);
    scale(f->layers->means, f->layers->n_layers, factor);
    scale(f->layers->lows, f->layers->n_layers, factor);
    scale(f->layers->highs, f->layers->n_layers, factor);
    HL_TRY(hl_figure_scale(&f->plot.y, f->figure, f->heads, hl_grid_size(profile)));

done:
    return status;
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
    hl_status     status = HL_OK;
    layer_figure  f      = { .figure = figure };
    char          what[256];
    hl_plot_words words = { "Layer", hl_figure_unit_label(figure), NULL, what, true };

    f.plot = (hl_plot){ .figure = figure, .n = hl_profile_n_layers(figure->profile) };
    HL_TRY(read_layers(&f));
    describe(what, sizeof what, f.layers);
    HL_TRY(hl_plot_begin(&f.plot, PLOT_HEIGHT, &words));
    draw_profile(&f);

done:
    hl_plot_end(&f.plot);
    hl_layer_profile_free(f.layers);
    hl_free(f.heads);
    return status;
}

/* --------------------------------------------------------------------- the variance */

static hl_status read_variances(double *out, hl_axis *axis, const hl_figure *figure)
{
    hl_status status  = HL_OK;
    int64_t   n_heads = hl_profile_n_heads(figure->profile);
    double    highest = 0.0;
    double   *values  = NULL;

    HL_TRY(hl_grid_means(&values, figure->profile, hl_figure_quantity(figure)));
    scale(values, hl_grid_size(figure->profile), hl_figure_factor(figure));
    HL_TRY(hl_figure_scale(axis, figure, values, hl_grid_size(figure->profile)));
    for (int64_t layer = 0; layer < hl_profile_n_layers(figure->profile); layer++) {
        out[layer] = hl_variance(values + layer * n_heads, n_heads);
        highest    = fmax(highest, out[layer]);
    }
    *axis = hl_axis_around(0.0, highest > 0.0 ? highest : 1.0, 5);

done:
    hl_free(values);
    return status;
}

hl_status hl_figure_variance(hl_figure *figure)
{
    static const char *const names[] = { "Variance (nats\u00b2)", "Variance (bits\u00b2)",
                                         "Variance of normalised entropy" };

    hl_status     status    = HL_OK;
    double       *variances = NULL;
    hl_plot       plot      = { .figure = figure, .n = hl_profile_n_layers(figure->profile) };
    hl_plot_words words     = {
            "Layer",
            names[figure->options.unit],
            NULL,
            "Variance of the heads' mean entropies in every layer; 0: all heads are equally "
                "focused, which does not say that they look at the same.",
            false,
    };

    HL_TRY(HL_ALLOC(&variances, (size_t)plot.n));
    HL_TRY(read_variances(variances, &plot.y, figure));
    HL_TRY(hl_plot_begin(&plot, PLOT_HEIGHT, &words));
    hl_plot_grid(&plot);
    hl_plot_bars(&plot, variances, figure->theme->series[0]);

done:
    hl_plot_end(&plot);
    hl_free(variances);
    return status;
}
