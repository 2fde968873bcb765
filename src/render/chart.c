/* chart.c - frames with axes, and the marks, lines, bands, dots and bars in them.
 *
 * Below a row of layers there can be a strip that marks the diagnoses found in each layer. */
#include "render/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "base/memory.h"
#include "base/status.h"

/* --------------------------------------------------------------- charts: points */

hl_status hl_chart_room(hl_chart *chart, int64_t n)
{
    return HL_ALLOC(&chart->points, 2 * (size_t)n);
}

void hl_chart_free(hl_chart *chart)
{
    hl_free(chart->points);
}

hl_point hl_chart_point(const hl_chart *chart, double x, double y)
{
    return (hl_point){
        chart->n > 0 ? chart->box.x + chart->box.width * (x + 0.5) / (double)chart->n
                     : chart->box.x + chart->box.width * hl_axis_share(&chart->x, x),
        chart->box.y + chart->box.height * (1.0 - hl_axis_share(&chart->y, y)),
    };
}

bool hl_chart_has(const hl_chart *chart, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!chart->x.logarithmic || x > 0.0) &&
           (!chart->y.logarithmic || y > 0.0);
}

/* ----------------------------------------------------------------- charts: axes */

void hl_chart_grid(const hl_chart *chart)
{
    hl_canvas *canvas = chart->figure->canvas;
    hl_box     box    = chart->box;
    hl_stroke  axis   = hl_figure_axis_stroke(chart->figure);
    hl_stroke  grid   = { chart->figure->theme->grid, 0.5, 0.0 };
    double     bottom = box.y + box.height;

    for (int64_t i = 0; i <= chart->y.n_steps; i++) {
        double y = hl_chart_point(chart, chart->x.low, hl_axis_tick(&chart->y, i)).y;
        hl_canvas_line(canvas, (hl_point){ box.x, y }, (hl_point){ box.x + box.width, y },
                       chart->n > 0 && i == 0 ? &axis : &grid);
    }
    if (chart->n > 0)
        return;
    for (int64_t i = 0; i <= chart->x.n_steps; i++) {
        double x = hl_chart_point(chart, hl_axis_tick(&chart->x, i), chart->y.low).x;
        hl_canvas_line(canvas, (hl_point){ x, bottom }, (hl_point){ x, bottom + 3.0 }, &axis);
    }
    hl_canvas_line(canvas, (hl_point){ box.x, bottom }, (hl_point){ box.x + box.width, bottom },
                   &axis);
}

double hl_chart_left(const hl_chart *chart)
{
    return HL_TEXT_NORMAL + 6.0 + hl_figure_label_width(chart->figure, &chart->y) + 5.0;
}

void hl_chart_label_y(const hl_chart *chart, const char *name)
{
    hl_canvas    *canvas = chart->figure->canvas;
    hl_text_style small  = hl_figure_small(chart->figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    hl_text_style normal = hl_figure_normal(chart->figure, HL_ANCHOR_MIDDLE, HL_STAND_BASE);
    double        last   = INFINITY;
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= chart->y.n_steps; i++) {
        double   tick = hl_axis_tick(&chart->y, i);
        hl_point at   = hl_chart_point(chart, chart->x.low, tick);
        if (last - at.y < HL_TEXT_SMALL + 2.0)
            continue;
        hl_canvas_text(canvas, chart->box.x - 5.0, at.y, hl_axis_label(room, &chart->y, tick),
                       &small);
        last = at.y;
    }
    if (name == NULL)
        return;
    normal.degrees = 90.0;
    hl_canvas_text(canvas, chart->box.x - hl_chart_left(chart) + HL_TEXT_NORMAL,
                   chart->box.y + chart->box.height / 2.0, name, &normal);
}

void hl_chart_label_x(const hl_chart *chart, const char *name)
{
    hl_canvas    *canvas = chart->figure->canvas;
    hl_text_style small  = hl_figure_small(chart->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style normal = hl_figure_normal(chart->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    double        bottom = chart->box.y + chart->box.height;
    double        free   = -INFINITY; /* end of the last label */
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= chart->x.n_steps; i++) {
        double      tick  = hl_axis_tick(&chart->x, i);
        double      x     = hl_chart_point(chart, tick, chart->y.low).x;
        const char *label = hl_axis_label(room, &chart->x, tick);
        double      half  = hl_canvas_text_width(canvas, label, &small) / 2.0;
        if (x - half < free + 5.0)
            continue;
        hl_canvas_text(canvas, x, bottom + 6.0, label, &small);
        free = x + half;
    }
    if (name != NULL)
        hl_canvas_text(canvas, chart->box.x + chart->box.width / 2.0, bottom + 18.0, name, &normal);
}

/* ---------------------------------------------------------------- charts: marks */

/* Returns the end of the run of finite points that begins at `first`; `other` is a second y, or
 * NULL. */
static int64_t run_end(const hl_chart *chart, const double *x, const double *y, const double *other,
                       int64_t first, int64_t n)
{
    int64_t end = first;

    while (end < n && hl_chart_has(chart, x != NULL ? x[end] : 0.0, y[end]) &&
           (other == NULL || hl_chart_has(chart, x != NULL ? x[end] : 0.0, other[end])))
        end++;
    return end;
}

void hl_chart_line(hl_chart *chart, const double *x, const double *y, int64_t n,
                   const hl_stroke *stroke)
{
    for (int64_t first = 0; first < n; first++) {
        int64_t end = run_end(chart, x, y, NULL, first, n);
        for (int64_t i = first; i < end; i++)
            chart->points[i - first] = hl_chart_point(chart, x != NULL ? x[i] : (double)i, y[i]);
        hl_canvas_polyline(chart->figure->canvas, chart->points, end - first, stroke);
        first = end;
    }
}

void hl_chart_band(hl_chart *chart, const double *x, const double *lows, const double *highs,
                   int64_t n, hl_color color)
{
    hl_point *points = chart->points;

    for (int64_t first = 0; lows != NULL && first < n; first++) {
        int64_t end    = run_end(chart, x, lows, highs, first, n);
        int64_t length = end - first;
        for (int64_t i = 0; i < length; i++) {
            double at                  = x != NULL ? x[first + i] : (double)(first + i);
            points[i]                  = hl_chart_point(chart, at, highs[first + i]);
            points[2 * length - 1 - i] = hl_chart_point(chart, at, lows[first + i]);
        }
        hl_canvas_polygon(chart->figure->canvas, points, 2 * length, color);
        if (length == 1) /* a band of one point has no width: a short upright line is drawn */
            hl_canvas_line(chart->figure->canvas, points[0], points[1],
                           &(hl_stroke){ color, 6.0, 0.0 });
        first = end;
    }
}

void hl_chart_dot(const hl_chart *chart, double x, double y, double radius, hl_color color)
{
    if (!isnan(y))
        hl_canvas_mark(chart->figure->canvas, hl_chart_point(chart, x, y), HL_MARK_CIRCLE, radius,
                       color);
}

void hl_canvas_mark(hl_canvas *canvas, hl_point at, hl_mark mark, double radius, hl_color color)
{
    /* Circles are drawn as octagons, which look the same at this size.  Pairs of x and y. */
    static const double circle[]  = { 0.95,  0.39,  0.39,  0.95,  -0.39, 0.95,  -0.95, 0.39,
                                      -0.95, -0.39, -0.39, -0.95, 0.39,  -0.95, 0.95,  -0.39 };
    static const double square[]  = { 0.85, 0.85, -0.85, 0.85, -0.85, -0.85, 0.85, -0.85 };
    static const double diamond[] = { 1.2, 0.0, 0.0, 1.2, -1.2, 0.0, 0.0, -1.2 };
    static const double up[]      = { 0.0, -1.2, 1.1, 0.8, -1.1, 0.8 };
    static const double down[]    = { 0.0, 1.2, 1.1, -0.8, -1.1, -0.8 };
    static const struct {
        int           n;
        const double *corners;
    } shapes[] = {
        [HL_MARK_CIRCLE] = { 8, circle },   [HL_MARK_SQUARE] = { 4, square },
        [HL_MARK_DIAMOND] = { 4, diamond }, [HL_MARK_UP] = { 3, up },
        [HL_MARK_DOWN] = { 3, down },
    };
    hl_point points[8];

    for (int i = 0; i < shapes[mark].n; i++)
        points[i] = (hl_point){ at.x + radius * shapes[mark].corners[2 * i],
                                at.y + radius * shapes[mark].corners[2 * i + 1] };
    hl_canvas_polygon(canvas, points, shapes[mark].n, color);
}

/* -------------------------------------------------------------------- diagnoses */

static void fill_row(hl_diagnosis_marks *marks, const hl_diagnosis *diagnosis,
                     const hl_profile *profile)
{
    double *shares = marks->shares + marks->n_rows * marks->n_layers;

    for (int64_t layer = 0; layer < marks->n_layers; layer++)
        shares[layer] = diagnosis->n_heads == 0 ? 1.0 : 0.0;
    for (int64_t i = 0; i < diagnosis->n_heads; i++) {
        int64_t layer = diagnosis->heads[i].layer;
        if (layer >= 0 && layer < marks->n_layers)
            shares[layer] += 1.0 / (double)hl_profile_heads_of(profile, layer);
    }
    marks->names[marks->n_rows]     = diagnosis->name;
    marks->n_heads[marks->n_rows++] = diagnosis->n_heads;
}

hl_status hl_diagnosis_marks_read(hl_diagnosis_marks *out, const hl_profile *profile)
{
    HL_CLOSED(hl_diagnoses_free) hl_diagnoses *found = NULL;

    *out = (hl_diagnosis_marks){ .n_layers = hl_profile_n_layers(profile) };
    HL_NEED(HL_ALLOC(&out->shares, (size_t)out->n_layers * HL_N_DIAGNOSES));
    HL_NEED(hl_diagnose(&found, profile, NULL, NULL));
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (found->items[i].verdict == HL_VERDICT_FOUND && found->items[i].kind == HL_CHECK_ALARM)
            fill_row(out, &found->items[i], profile);
    }
    return HL_OK;
}

void hl_diagnosis_marks_free(hl_diagnosis_marks *marks)
{
    hl_free(marks->shares);
    *marks = (hl_diagnosis_marks){ 0 };
}

bool hl_diagnosis_marks_has(const hl_diagnosis_marks *marks, const char *name)
{
    for (int i = 0; i < marks->n_rows; i++) {
        if (strcmp(marks->names[i], name) == 0)
            return true;
    }
    return false;
}

void hl_diagnosis_marks_say(char *out, size_t n_bytes, const hl_diagnosis_marks *marks)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < marks->n_rows && used < n_bytes; i++) {
        char heads[48] = "";
        if (marks->n_heads[i] > 0)
            snprintf(heads, sizeof heads, " (%lld head%s)", (long long)marks->n_heads[i],
                     marks->n_heads[i] == 1 ? "" : "s");
        int added = snprintf(out + used, n_bytes - used, "%s%s%s%s", i == 0 ? "Diagnoses: " : ", ",
                             marks->names[i], heads, i == marks->n_rows - 1 ? "." : "");
        used += added > 0 ? (size_t)added : 0;
    }
}

#define KEYS_HEIGHT 18.0 /* height of the keys above the frame */
#define MARKS_ABOVE 5.0  /* space between the frame and the diagnoses */
#define MARKS_LINE  9.0

/* --------------------------------------------------------------------- rows: axes */

static void label_things(const hl_chart *chart, const hl_row_words *words)
{
    hl_figure    *figure = chart->figure;
    hl_text_style small  = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style normal = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    double        bottom = chart->box.y + chart->box.height;
    double        widest = 0.0;

    for (int64_t i = 0; i < chart->n; i++)
        widest = fmax(widest, hl_canvas_text_width(figure->canvas, words->labels[i], &small));
    int64_t every = hl_label_every(chart->box.width / (double)chart->n, widest + 5.0);
    for (int64_t i = 0; i < chart->n; i += every)
        hl_canvas_text(figure->canvas, hl_chart_point(chart, (double)i, 0.0).x, bottom + 5.0,
                       words->labels[i], &small);
    hl_canvas_text(figure->canvas, chart->box.x + chart->box.width / 2.0, bottom + 18.0,
                   words->x_name, &normal);
}

/* -------------------------------------------------- rows: the strip of diagnoses */

/* The more heads of a layer are concerned, the stronger the mark. */
static void draw_strip(const hl_chart *chart, const hl_diagnosis_marks *marks)
{
    const hl_theme_colors *theme  = chart->figure->theme;
    hl_canvas             *canvas = chart->figure->canvas;
    hl_text_style          style = hl_figure_small(chart->figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    double                 width = fmin(0.72 * chart->box.width / (double)chart->n, 40.0);
    char                   title[96], name[HL_HEAD_NAME_BYTES];

    for (int i = 0; marks != NULL && i < marks->n_rows; i++) {
        double y = chart->box.y + chart->box.height + MARKS_ABOVE + MARKS_LINE * (i + 0.5);
        for (int64_t layer = 0; layer < chart->n; layer++) {
            double share = marks->shares[i * marks->n_layers + layer];
            if (share <= 0.0)
                continue;
            snprintf(title, sizeof title, "%s: %.0f%% of layer %s", marks->names[i], 100.0 * share,
                     hl_figure_index_name(name, chart->figure, layer, "Layer"));
            hl_canvas_begin(canvas, title);
            hl_canvas_rectangle(
                canvas,
                (hl_box){ hl_chart_point(chart, (double)layer, 0.0).x - width / 2.0, y - 2.5, width,
                          5.0 },
                hl_mix(theme->background, theme->series[1], 0.25 + 0.75 * fmin(share, 1.0)));
            hl_canvas_end(canvas);
        }
        hl_canvas_text(canvas, chart->box.x + chart->box.width + 6.0, y, marks->names[i], &style);
    }
}

hl_status hl_chart_begin(hl_chart *chart, double height, const hl_row_words *words)
{
    hl_figure *figure = chart->figure;
    double     left   = hl_chart_left(chart);
    double     above  = words->keyed ? KEYS_HEIGHT : 4.0;
    int        n_rows = words->marks != NULL ? words->marks->n_rows : 0;
    double     below  = n_rows > 0 ? MARKS_ABOVE + MARKS_LINE * n_rows : 0.0;
    double     right  = 0.0; /* space that the names of diagnoses take */

    HL_NEED(hl_chart_room(chart, chart->n));
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    for (int i = 0; i < n_rows; i++)
        right =
            fmax(right, 6.0 + hl_canvas_text_width(figure->canvas, words->marks->names[i], &style));
    hl_box box = hl_figure_begin(figure, above + height + below + HL_INDICES_HEIGHT, words->what);
    chart->box = (hl_box){ box.x + left, box.y + above, box.width - left - right, height };
    hl_chart_label_y(chart, words->y_name);
    draw_strip(chart, words->marks);
    hl_box whole = chart->box;
    whole.height += below;
    if (words->labels != NULL)
        label_things(chart, words);
    else
        hl_figure_indices_across(figure, whole, chart->n, words->x_name);
    return HL_OK;
}

void hl_chart_bars(hl_chart *chart, const double *values, hl_color color)
{
    hl_stroke stroke = { color, fmin(0.72 * chart->box.width / (double)chart->n, 40.0), 0.0 };
    int64_t   n_bars = 0;

    for (int64_t i = 0; i < chart->n; i++) {
        if (isnan(values[i]))
            continue;
        chart->points[2 * n_bars]       = hl_chart_point(chart, (double)i, 0.0);
        chart->points[2 * n_bars++ + 1] = hl_chart_point(chart, (double)i, values[i]);
    }
    hl_canvas_segments(chart->figure->canvas, chart->points, n_bars, &stroke);
}

/* ------------------------------------------------------------------------- keys */

void hl_figure_keys(hl_figure *figure, hl_point at, const hl_key *keys, int n_keys)
{
    hl_canvas    *canvas = figure->canvas;
    hl_text_style style  = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    double        x      = at.x;

    for (int i = 0; i < n_keys; i++) {
        hl_stroke line = { keys[i].color, 1.6, 0.0 };
        if (keys[i].kind == HL_KEY_LINE)
            hl_canvas_line(canvas, (hl_point){ x, at.y }, (hl_point){ x + 14.0, at.y }, &line);
        else if (keys[i].kind == HL_KEY_BAND)
            hl_canvas_rectangle(canvas, (hl_box){ x, at.y - 3.5, 14.0, 7.0 }, keys[i].color);
        else
            hl_canvas_mark(canvas, (hl_point){ x + 7.0, at.y }, HL_MARK_CIRCLE, 1.8, keys[i].color);
        hl_canvas_text(canvas, x + 18.0, at.y, keys[i].name, &style);
        x += 18.0 + hl_canvas_text_width(canvas, keys[i].name, &style) + 14.0;
    }
}

void hl_chart_keys(const hl_chart *chart, const hl_key *keys, int n_keys)
{
    hl_figure_keys(chart->figure, (hl_point){ chart->box.x, chart->box.y - KEYS_HEIGHT + 5.0 },
                   keys, n_keys);
}
