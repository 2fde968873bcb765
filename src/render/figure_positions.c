/* figure_positions.c - entropy by where in the text a row stands.
 *
 * Positions come in buckets that double: 0, 1-2, 3-6, 7-14 ...  Of each the heads' means
 * are known, and the figure shows their mean and where the middle half of them lies. */
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
    hl_figure  *figure;
    double     *values; /* (n_layers * n_heads) of one bucket, sorted */
    double      means[HL_PROFILE_MAX_BUCKETS];
    double      lows[HL_PROFILE_MAX_BUCKETS];
    double      highs[HL_PROFILE_MAX_BUCKETS];
    char        rooms[HL_PROFILE_MAX_BUCKETS][LABEL_BYTES];
    const char *labels[HL_PROFILE_MAX_BUCKETS];
    int64_t     n_buckets;
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
    int64_t           count    = 0;

    HL_EACH_HEAD(profile, layer, head)
    {
        f->values[count++] = hl_figure_factor(f->figure) *
                             hl_profile_by_position(profile, layer, head, bucket, quantity).mean;
    }
    count            = hl_sort(f->values, count);
    f->means[bucket] = hl_mean(f->values, count);
    f->lows[bucket]  = count > 0 ? hl_sorted_quantile(f->values, count, 0.25) : NAN;
    f->highs[bucket] = count > 0 ? hl_sorted_quantile(f->values, count, 0.75) : NAN;
    write_label(f->rooms[bucket], profile, bucket);
    f->labels[bucket] = f->rooms[bucket];
}

static void draw_curve(position_figure *f, hl_plot *plot)
{
    const hl_theme_colours *theme  = f->figure->theme;
    hl_stroke               line   = { theme->series[0], 1.6, 0.0 };
    hl_colour               band   = hl_mix(theme->background, theme->series[0], 0.25);
    const hl_key            keys[] = {
                   { HL_KEY_LINE, theme->series[0], "mean over heads" },
                   { HL_KEY_BAND, band, "middle half of the heads" },
    };

    hl_plot_band(plot, f->lows, f->highs, band);
    hl_plot_grid(plot);
    hl_plot_line(plot, f->means, &line);
    for (int64_t bucket = 0; bucket < plot->n; bucket++)
        hl_plot_dot(plot, bucket, f->means[bucket], 2.6, theme->series[0]);
    hl_plot_keys(plot, keys, 2);
}

hl_status hl_figure_positions(hl_figure *figure)
{
    hl_status        status = HL_OK;
    position_figure *f      = NULL;
    hl_plot          plot   = { .figure = figure };
    char             what[512];
    char             found[320];

    hl_diagnosis_marks marks = { 0 };
    hl_plot_words      words = {
             "Position in the window (tokens)", hl_figure_unit_label(figure), NULL, what, true, NULL
    };

    HL_TRY(HL_ALLOC_ZEROED(&f, 1));
    f->figure = figure;
    HL_TRY(HL_ALLOC(&f->values, (size_t)hl_grid_size(figure->profile)));
    plot.n = hl_profile_n_buckets(figure->profile);
    for (int64_t bucket = 0; bucket < plot.n; bucket++)
        read_bucket(f, bucket);
    words.labels = f->labels;
    HL_TRY(hl_diagnosis_marks_read(&marks, figure->profile));
    hl_diagnosis_marks_say(found, sizeof found, &marks);
    snprintf(
        what, sizeof what,
        "Mean entropy of rows by their position, over all heads; positions come in ranges that "
        "double.%s%s",
        found[0] != '\0' ? " " : "", found);
    HL_TRY(hl_figure_scale(&plot.y, figure, f->highs, plot.n));
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
