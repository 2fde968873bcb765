/* figure_positions.c - entropy by where in the text a row stands.
 *
 * Positions come in buckets that double: 0, 1-2, 3-6, 7-14 ...  Of each the heads' means
 * are known, and the figure shows their mean, how sure it is, and where the middle half of
 * the heads lies. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/plot.h"

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
static void describe(char *out, size_t n_bytes, const position_figure *f,
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
    describe(what, sizeof what, f, &marks);
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
