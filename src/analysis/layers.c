/* layers.c - the layer profile and its shape. */
#include "analysis/layers.h"

#include <math.h>

#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

void hl_layer_profile_free(hl_layer_profile *layers)
{
    if (layers == NULL)
        return;
    hl_free(layers->means);
    hl_free(layers->lows);
    hl_free(layers->highs);
    hl_free(layers->errors);
    hl_free(layers);
}

/* (n_sequences, n_layers): each sequence's mean over the heads of a layer. */
static hl_status layer_sequences(double **out, const hl_profile *profile, hl_quantity quantity)
{
    hl_status status  = HL_OK;
    int64_t   n_heads = hl_profile_n_heads(profile);
    int64_t   n_means = hl_profile_n_sequences(profile) * hl_profile_n_layers(profile);
    double   *values  = NULL;

    HL_TRY(hl_grid_sequences(&values, profile, quantity));
    HL_TRY(HL_ALLOC(out, (size_t)n_means));
    for (int64_t i = 0; i < n_means; i++)
        (*out)[i] = hl_mean(values + i * n_heads, n_heads);

done:
    hl_free(values);
    return status;
}

static hl_status fill_intervals(hl_layer_profile *layers, const hl_profile *profile,
                                hl_quantity quantity, uint64_t seed)
{
    hl_status status      = HL_OK;
    int64_t   n_layers    = layers->n_layers;
    int64_t   n_sequences = hl_profile_n_sequences(profile);
    double   *values      = NULL;
    double   *draws       = NULL;

    for (int64_t layer = 0; layer < n_layers; layer++)
        layers->lows[layer] = layers->highs[layer] = layers->errors[layer] = NAN;
    if (n_sequences < 2)
        return HL_OK;
    HL_TRY(layer_sequences(&values, profile, quantity));
    HL_TRY(HL_ALLOC(&draws, (size_t)n_layers * HL_RESAMPLES));
    HL_TRY(hl_bootstrap_means(draws, values, n_sequences, n_layers, HL_RESAMPLES, seed));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        hl_interval interval =
            hl_bootstrap_interval(draws + layer * HL_RESAMPLES, HL_RESAMPLES, 0.95);
        layers->lows[layer]   = interval.low;
        layers->highs[layer]  = interval.high;
        layers->errors[layer] = interval.error;
    }

done:
    hl_free(values);
    hl_free(draws);
    return status;
}

static void find_range(hl_layer_shape *shape, const double *means, int64_t n_layers)
{
    double  highest = NAN;
    int64_t lowest  = -1;

    for (int64_t layer = 0; layer < n_layers; layer++) {
        if (isnan(means[layer]))
            continue;
        highest = fmax(highest, means[layer]); /* fmax passes NaN over */
        if (lowest < 0 || means[layer] < means[lowest])
            lowest = layer;
    }
    shape->minimum = lowest;
    shape->range   = lowest < 0 ? NAN : highest - means[lowest];
    shape->depth = lowest < 0 ? NAN : n_layers > 1 ? (double)lowest / (double)(n_layers - 1) : 0.0;
}

static hl_status find_shape(hl_layer_profile *layers, double flat_errors)
{
    hl_status       status   = HL_OK;
    int64_t         n_layers = layers->n_layers;
    hl_layer_shape *shape    = &layers->shape;
    double         *work     = NULL; /* (2, n_layers): depths, squared errors */

    HL_TRY(HL_ALLOC(&work, 2 * (size_t)n_layers));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        work[layer]            = n_layers > 1 ? (double)layer / (double)(n_layers - 1) : 0.0;
        work[n_layers + layer] = layers->errors[layer] * layers->errors[layer];
    }
    find_range(shape, layers->means, n_layers);
    shape->error     = sqrt(hl_mean(work + n_layers, n_layers));
    shape->curvature = hl_fit_parabola(work, layers->means, n_layers).quadratic;
    HL_TRY(hl_spearman(&shape->spearman, work, layers->means, n_layers));
    /* One layer has no profile to be flat. */
    shape->flat = n_layers > 1 && shape->range < flat_errors * shape->error;

done:
    hl_free(work);
    return status;
}

hl_status hl_layer_profile_new(hl_layer_profile **out, const hl_profile *profile,
                               hl_quantity quantity, double flat_errors, uint64_t seed)
{
    hl_status         status   = HL_OK;
    int64_t           n_layers = hl_profile_n_layers(profile);
    int64_t           n_heads  = hl_profile_n_heads(profile);
    hl_layer_profile *layers   = NULL;
    double           *means    = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&layers, 1));
    layers->n_layers = n_layers;
    HL_TRY(HL_ALLOC(&layers->means, (size_t)n_layers));
    HL_TRY(HL_ALLOC(&layers->lows, (size_t)n_layers));
    HL_TRY(HL_ALLOC(&layers->highs, (size_t)n_layers));
    HL_TRY(HL_ALLOC(&layers->errors, (size_t)n_layers));
    HL_TRY(hl_grid_means(&means, profile, quantity));
    for (int64_t layer = 0; layer < n_layers; layer++)
        layers->means[layer] = hl_mean(means + layer * n_heads, n_heads);
    HL_TRY(fill_intervals(layers, profile, quantity, seed));
    HL_TRY(find_shape(layers, flat_errors));
    *out   = layers;
    layers = NULL;

done:
    hl_layer_profile_free(layers);
    hl_free(means);
    return status;
}
