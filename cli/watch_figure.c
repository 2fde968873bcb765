/* watch_figure.c - from a series to the arrays of a figure.
 *
 *     entropy   the mean of all heads, the middle half of them and their range, alarms as marks
 *     layers    the mean of each layer's heads, of up to eight layers
 *     loss      nats a token, alarms as marks */
#include "watch_figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnoses.h"
#include "held.h"

enum { MOST_LAYERS = 8, MOST_ALARMS = 20, NAME_BYTES = 64 };

/* Rows of numbers, one a step; a figure uses some of them.  What it points to is the caller's. */
typedef struct drawing {
    const hl_watch_figure  *figure;
    int64_t                 n;
    const hl_series_point **points; /* (n) by step */
    double                 *steps;  /* (n) */
    double                 *values; /* (MOST_LAYERS, n) */
    float                  *heads;  /* (n_layers * n_heads) of a point, sorted */
    double                  alarm_steps[2 * MOST_ALARMS];
    double                  alarm_values[2 * MOST_ALARMS];
    int64_t                 n_alarms; /* marks and the gaps behind them */
    char                    names[MOST_LAYERS][NAME_BYTES];
    hl_curve                curves[MOST_LAYERS + 1];
    int64_t                 n_curves;
} drawing;

/* ------------------------------------------------------------------------ numbers */

static int by_step(const void *left, const void *right)
{
    const hl_series_point *a = *(const hl_series_point *const *)left;
    const hl_series_point *b = *(const hl_series_point *const *)right;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int rising(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;

    return (a > b) - (a < b);
}

/* The heads that there are, sorted; returns how many. */
static int64_t sort_heads(drawing *d, const hl_series_point *point)
{
    int64_t size = hl_series_n_layers(d->figure->series) * hl_series_n_heads(d->figure->series);
    int64_t n    = 0;

    for (int64_t i = 0; i < size; i++) {
        if (!isnan(point->heads_fair[i]))
            d->heads[n++] = point->heads_fair[i];
    }
    if (n > 1)
        qsort(d->heads, (size_t)n, sizeof *d->heads, rising);
    return n;
}

static double mean_of_layer(const drawing *d, const hl_series_point *point, int64_t layer)
{
    int64_t n_heads = hl_series_n_heads(d->figure->series);
    double  sum     = 0.0;
    int64_t n       = 0;

    for (int64_t head = 0; head < n_heads; head++) {
        float value = point->heads_fair[layer * n_heads + head];
        if (!isnan(value)) {
            sum += (double)value;
            n++;
        }
    }
    return n > 0 ? sum / (double)n : NAN;
}

/* ------------------------------------------------------------------------- curves */

static bool is_alarm(const drawing *d, const hl_series_point *point)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (point->verdicts[i] == HL_VERDICT_FOUND &&
            hl_diagnosis_is_listed(d->figure->fail_on, hl_diagnosis_name((size_t)i)))
            return true;
    }
    return false;
}

/* Marks without a line between them: each has a gap behind it. */
static void add_alarms(drawing *d, const double *values)
{
    for (int64_t i = 0; i < d->n && d->n_alarms < 2 * MOST_ALARMS; i++) {
        if (!is_alarm(d, d->points[i]) || !isfinite(values[i]))
            continue;
        for (int gap = 0; gap < 2; gap++) {
            d->alarm_steps[d->n_alarms]    = d->steps[i];
            d->alarm_values[d->n_alarms++] = gap ? NAN : values[i];
        }
    }
    if (d->n_alarms > 0)
        d->curves[d->n_curves++] =
            (hl_curve){ .name = d->n_alarms < 2 * MOST_ALARMS ? "alarms" : "the first alarms",
                        .n    = d->n_alarms,
                        .x    = d->alarm_steps,
                        .y    = d->alarm_values };
}

static void add_entropy(drawing *d)
{
    static const double quantiles[] = { 0.0, 1.0, 0.25, 0.75 };

    for (int64_t i = 0; i < d->n; i++) {
        int64_t n_heads = sort_heads(d, d->points[i]);
        d->values[i]    = d->points[i]->fair;
        for (int q = 0; q < 4; q++)
            d->values[(q + 1) * d->n + i] =
                n_heads > 0
                    ? (double)d->heads[(int64_t)(quantiles[q] * (double)(n_heads - 1) + 0.5)]
                    : NAN;
    }
    d->curves[d->n_curves++] = (hl_curve){ .name       = "mean",
                                           .n          = d->n,
                                           .x          = d->steps,
                                           .y          = d->values,
                                           .low        = d->values + d->n,
                                           .high       = d->values + 2 * d->n,
                                           .inner_low  = d->values + 3 * d->n,
                                           .inner_high = d->values + 4 * d->n };
    add_alarms(d, d->values);
}

static void add_layers(drawing *d)
{
    int64_t n_layers = hl_series_n_layers(d->figure->series);
    int64_t n_shown  = n_layers < MOST_LAYERS ? n_layers : MOST_LAYERS;

    for (int64_t shown = 0; shown < n_shown; shown++) {
        /* Evenly, from the first to the last. */
        int64_t layer = n_shown > 1 ? shown * (n_layers - 1) / (n_shown - 1) : 0;
        double *row   = d->values + shown * d->n;

        for (int64_t i = 0; i < d->n; i++)
            row[i] = mean_of_layer(d, d->points[i], layer);
        snprintf(d->names[shown], NAME_BYTES, "layer %lld", (long long)layer);
        d->curves[d->n_curves++] =
            (hl_curve){ .name = d->names[shown], .n = d->n, .x = d->steps, .y = row };
    }
}

static void add_loss(drawing *d)
{
    for (int64_t i = 0; i < d->n; i++)
        d->values[i] = d->points[i]->nll;
    d->curves[d->n_curves++] =
        (hl_curve){ .name = "loss", .n = d->n, .x = d->steps, .y = d->values };
    add_alarms(d, d->values);
}

/* -------------------------------------------------------------------------- figure */

static void sort_points(drawing *d)
{
    for (int64_t i = 0; i < d->n; i++)
        d->points[i] = hl_series_at(d->figure->series, i);
    qsort(d->points, (size_t)d->n, sizeof *d->points, by_step);
    for (int64_t i = 0; i < d->n; i++)
        d->steps[i] = (double)d->points[i]->step;
}

static hl_status draw(drawing *d, const char *path)
{
    const char *figure   = d->figure->figure;
    bool        is_loss  = strcmp(figure, "loss") == 0;
    bool        is_heads = strcmp(figure, "entropy") == 0;
    char        title[200], what[200];

    if (is_loss)
        add_loss(d);
    else if (is_heads)
        add_entropy(d);
    else
        add_layers(d);
    snprintf(title, sizeof title, "%.120s: %s", d->figure->name,
             is_loss ? "loss by training step" : "attention entropy by training step");
    snprintf(what, sizeof what, "%lld checkpoints, %lld tokens each%s", (long long)d->n,
             (long long)d->points[0]->n_tokens,
             is_loss ? "" : "; H / ln n of rows that see at least 16 keys");
    return hl_draw_curves(&(hl_curves){ .title  = title,
                                        .x_name = "training step",
                                        .y_name = is_loss ? "nats a token" : "entropy, normalised",
                                        .what   = what,
                                        .band   = is_heads ? "all heads" : NULL,
                                        .inner_band = is_heads ? "the middle half" : NULL,
                                        .curves     = d->curves,
                                        .n_curves   = d->n_curves },
                          path, d->figure->how);
}

hl_status hl_watch_draw(const hl_watch_figure *figure, const char *path)
{
    const hl_series *series = figure->series;
    size_t           n      = (size_t)hl_series_n_points(series);
    size_t           size   = (size_t)(hl_series_n_layers(series) * hl_series_n_heads(series));

    HL_HELD(free) const hl_series_point **points = calloc(n + 1, sizeof *points);
    HL_HELD(free) double                 *steps  = calloc(n + 1, sizeof *steps);
    HL_HELD(free) double                 *values = calloc(MOST_LAYERS * (n + 1), sizeof *values);
    HL_HELD(free) float                  *heads  = calloc(size + 1, sizeof *heads);

    if (points == NULL || steps == NULL || values == NULL || heads == NULL)
        return HL_NO_MEMORY;
    drawing d = { .figure = figure,
                  .n      = (int64_t)n,
                  .points = points,
                  .steps  = steps,
                  .values = values,
                  .heads  = heads };
    sort_points(&d);
    return draw(&d, path);
}
