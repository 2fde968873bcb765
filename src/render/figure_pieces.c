/* figure_pieces.c - units, colour bars and labels: what several figures are made of. */
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "render/figure.h"

/* ---------------------------------------------------------------------------- units */

hl_quantity hl_figure_quantity(const hl_figure *figure)
{
    return figure->options.unit == HL_UNIT_NORMALISED ? HL_Q_FAIR : HL_Q_ENTROPY;
}

double hl_figure_factor(const hl_figure *figure)
{
    return figure->options.unit == HL_UNIT_BITS ? 1.0 / 0.69314718055994530942 : 1.0;
}

const char *hl_figure_unit(const hl_figure *figure)
{
    static const char *const names[] = { "nats", "bits", "" };

    return names[figure->options.unit];
}

const char *hl_figure_unit_label(const hl_figure *figure)
{
    static const char *const names[] = { "Entropy (nats)", "Entropy (bits)", "Normalised entropy" };

    return names[figure->options.unit];
}

hl_status hl_figure_scale(hl_axis *out, const hl_figure *figure, const double *values,
                          int64_t n_values)
{
    double top = NAN;

    for (int64_t i = 0; i < n_values; i++)
        top = fmax(top, values[i]); /* passes NaN over */
    if (isnan(top))
        return hl_fail(HL_BAD_INPUT, "the profile holds no %s: %lld tokens were measured",
                       figure->options.unit == HL_UNIT_NORMALISED
                           ? "row that saw at least 16 keys, and so no normalised entropy"
                           : "row, and so no entropy",
                       (long long)hl_profile_n_tokens(figure->profile));
    if (figure->options.unit == HL_UNIT_NORMALISED)
        top = 1.0;
    *out = hl_axis_around(0.0, fmax(top, 1e-6), 5);
    return HL_OK;
}

/* --------------------------------------------------------------------------- labels */

double hl_figure_label_width(const hl_figure *figure, const hl_axis *axis)
{
    hl_text_style style  = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    double        widest = 0.0;
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= axis->n_steps; i++) {
        hl_axis_label(room, axis, hl_axis_tick(axis, i));
        widest = fmax(widest, hl_canvas_text_width(figure->canvas, room, &style));
    }
    return widest;
}

static double index_width(const hl_figure *figure, int64_t n)
{
    char          room[HL_NUMBER_BYTES];
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);

    snprintf(room, sizeof room, "%lld", (long long)(n - 1));
    return hl_canvas_text_width(figure->canvas, room, &style);
}

double hl_figure_indices_width(const hl_figure *figure, int64_t n, const char *lowest)
{
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    double named = lowest != NULL ? hl_canvas_text_width(figure->canvas, lowest, &style) : 0.0;

    return HL_TEXT_NORMAL + 6.0 + fmax(index_width(figure, n), named) + 5.0;
}

void hl_figure_indices_across(hl_figure *figure, hl_box box, int64_t n, const char *name)
{
    double        distance = box.width / (double)n;
    double        bottom   = box.y + box.height;
    int64_t       every    = hl_label_every(distance, index_width(figure, n) + 5.0);
    hl_text_style small    = hl_figure_small(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style normal   = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i < n; i += every) {
        snprintf(room, sizeof room, "%lld", (long long)i);
        hl_canvas_text(figure->canvas,
                       (hl_point){ box.x + ((double)i + 0.5) * distance, bottom + 5.0 }, room,
                       &small);
    }
    hl_canvas_text(figure->canvas, (hl_point){ box.x + box.width / 2.0, bottom + 18.0 }, name,
                   &normal);
}

void hl_figure_indices_up(hl_figure *figure, hl_box box, int64_t n, const char *lowest,
                          const char *name)
{
    double        distance = box.height / (double)n;
    int64_t       every    = hl_label_every(distance, HL_TEXT_SMALL + 2.0);
    hl_text_style small    = hl_figure_small(figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    hl_text_style normal   = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_BASE);
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i < n; i++) {
        int64_t index = i - (lowest != NULL);
        if (index >= 0 && (index % every != 0 || (index == 0 && lowest != NULL && every > 1)))
            continue; /* layer 0 gives way to the name below it where rows are low */
        snprintf(room, sizeof room, "%lld", (long long)index);
        hl_canvas_text(figure->canvas,
                       (hl_point){ box.x - 5.0, box.y + box.height - ((double)i + 0.5) * distance },
                       index < 0 ? lowest : room, &small);
    }
    normal.degrees = 90.0;
    hl_canvas_text(figure->canvas,
                   (hl_point){ box.x - hl_figure_indices_width(figure, n, lowest) + HL_TEXT_NORMAL,
                               box.y + box.height / 2.0 },
                   name, &normal);
}

/* ----------------------------------------------------------------------- colour bar */

#define BAR_WIDTH 9.0

double hl_figure_colour_bar_width(const hl_figure *figure, const hl_axis *axis)
{
    return BAR_WIDTH + 5.0 + hl_figure_label_width(figure, axis) + 5.0 + HL_TEXT_NORMAL;
}

/* The map's colours, the last one on top. */
static void draw_ramp(hl_figure *figure, hl_box box, hl_map map)
{
    enum { N_STEPS = 64 };
    hl_colour colours[N_STEPS];

    for (int i = 0; i < N_STEPS; i++)
        colours[i] = hl_map_colour(map, 1.0 - i / (N_STEPS - 1.0));
    hl_cell_grid ramp = { .box = box, .n_across = 1, .n_down = N_STEPS, .colours = colours };
    hl_canvas_cells(figure->canvas, &ramp);
}

void hl_figure_colour_bar(hl_figure *figure, hl_box box, hl_map map, const hl_axis *axis,
                          const char *name)
{
    hl_text_style small  = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    hl_text_style normal = hl_figure_normal(figure, HL_ANCHOR_MIDDLE, HL_STAND_BASE);
    hl_stroke     stroke = hl_figure_axis_stroke(figure);
    char          room[HL_NUMBER_BYTES];
    /* Labels stand at the ticks, of which there may be too many for a short bar. */
    int64_t every = hl_label_every(box.height / (double)axis->n_steps, HL_TEXT_SMALL + 2.0);

    /* An end of the ramp may be as dark, or as light, as the page. */
    draw_ramp(figure, (hl_box){ box.x, box.y, BAR_WIDTH, box.height }, map);
    hl_canvas_outline(figure->canvas, (hl_box){ box.x, box.y, BAR_WIDTH, box.height }, &stroke);
    for (int64_t i = 0; i <= axis->n_steps; i += every) {
        double tick = hl_axis_tick(axis, i);
        double y    = box.y + box.height * (1.0 - hl_axis_share(axis, tick));
        hl_canvas_line(figure->canvas, (hl_point){ box.x + BAR_WIDTH, y },
                       (hl_point){ box.x + BAR_WIDTH + 2.5, y }, &stroke);
        hl_canvas_text(figure->canvas, (hl_point){ box.x + BAR_WIDTH + 5.0, y },
                       hl_axis_label(room, axis, tick), &small);
    }
    normal.degrees = 90.0;
    hl_canvas_text(
        figure->canvas,
        (hl_point){ box.x + hl_figure_colour_bar_width(figure, axis), box.y + box.height / 2.0 },
        name, &normal);
}
