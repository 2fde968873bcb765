/* token_panel.h - one token map on a canvas: cells, the strip of entropies, labels.
 *
 * A panel is laid out by its owner, who asks how much room its labels take:
 *
 *     hl_token_panel panel = { .figure = figure, .cells = cells, .label_most = 80.0, ... };
 *     double         left  = hl_panel_label_room(&panel, cell_size);
 *     panel.box            = ...
 *     status               = hl_panel_draw(&panel); */
#ifndef HL_RENDER_TOKEN_PANEL_H
#define HL_RENDER_TOKEN_PANEL_H

#include "render/figure.h"
#include "render/token_cells.h"

/* Shortens a text in place to a width, with an ellipsis; never to less than that. */
void hl_figure_shorten(const hl_figure *figure, char *text, size_t n_bytes, double width,
                       const hl_text_style *style);

/* As many whole characters of a text as fit into n_bytes, a NUL among them; returns `out`. */
const char *hl_figure_copy(char *out, size_t n_bytes, const char *text);

typedef struct hl_token_panel {
    hl_figure            *figure;
    const hl_token_cells *cells;
    hl_attention_scale    scale;
    const hl_axis        *entropy;    /* of the strip */
    hl_box                box;        /* of the map; a square */
    double                strip;      /* how wide the strip is */
    double                label_most; /* how long labels may get */
} hl_token_panel;

#define HL_STRIP_GAP         2.5 /* between map and strip */
#define HL_PANEL_LABEL_PITCH 7.2 /* cells so large can all have a label */

/* How far labels of tokens stick out, beside cells so large. */
double hl_panel_label_room(const hl_token_panel *panel, double cell);
/* Every how many-th cell has a label. */
int64_t hl_panel_label_every(double cell);

hl_status hl_panel_draw(const hl_token_panel *panel);
void      hl_panel_row_labels(const hl_token_panel *panel);
/* Above the map, or below it. */
void hl_panel_column_labels(const hl_token_panel *panel, bool above);

#endif
