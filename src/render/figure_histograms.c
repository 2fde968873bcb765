/* figure_histograms.c - how the entropies of single rows are distributed in every layer.
 *
 * A histogram a layer, as a row of 64 cells: the darker, the more rows have that entropy.
 * Means can hide that a layer has two kinds of rows; here it shows as two dark places. */
#include <math.h>
#include <stdio.h>

#include "analysis/grid.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/diagnosis_marks.h"
#include "render/figure.h"

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

static void describe(char *out, size_t n_bytes, const histograms *h)
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

    describe(what, sizeof what, h);
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
