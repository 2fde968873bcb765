/* canvas_svg.c - SVG 1.1, written by hand: text stays text, and files stay small.
 *
 * Cells are the bulk.  A cell is a stroke of length 1 and width 1 in a coordinate system
 * whose unit is a cell, sorted by colour so that a colour is named once:
 *
 *     <g transform="matrix(37 0 0 37 60 80)" stroke-width="0.95">
 *     <g stroke="#3a125c"><path d="M5 3h1"><title>L5H3 0.42 nats</title></path>...</g>
 *
 * which is 45 to 60 bytes a cell, where a <rect> with the same title has over 100.  Without
 * titles all cells of a colour are one path, and neighbours in it one stroke: 6 bytes a cell. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "render/canvas_backend.h"

/* ------------------------------------------------------------------------ pieces */

/* Two decimals at most and no zeros behind them, whatever the locale: "3", "-0.25". */
static void put_number(hl_text *output, double number)
{
    long long hundredths = llround(fmin(fmax(number, -1e9), 1e9) * 100.0);
    long long size       = hundredths < 0 ? -hundredths : hundredths;
    char      text[40];
    int       n_bytes = snprintf(text, sizeof text, "%s%lld.%02lld", hundredths < 0 ? "-" : "",
                                 size / 100, size % 100);

    while (text[n_bytes - 1] == '0')
        n_bytes--;
    if (text[n_bytes - 1] == '.')
        n_bytes--;
    hl_text_add(output, text, (size_t)n_bytes);
}

/* One character, which ends before `end`. */
static void add_character(hl_text *output, const char *text, size_t n_bytes)
{
    switch (n_bytes == 1 ? *text : 0) {
    case '&':
        hl_text_add(output, "&amp;", 5);
        break;
    case '<':
        hl_text_add(output, "&lt;", 4);
        break;
    case '>':
        hl_text_add(output, "&gt;", 4);
        break;
    case '"':
        hl_text_add(output, "&quot;", 6);
        break;
    default:
        hl_text_add(output, text, n_bytes);
    }
}

/* XML 1.0 has no other control characters, and neither U+FFFE nor U+FFFF. */
static bool is_xml(const char *text, size_t n_bytes)
{
    if (n_bytes == 1)
        return (unsigned char)*text >= 0x20 || *text == '\t' || *text == '\n';
    return n_bytes > 0 && memcmp(text, "\xef\xbf\xbe", n_bytes < 3 ? n_bytes : 3) != 0 &&
           memcmp(text, "\xef\xbf\xbf", n_bytes < 3 ? n_bytes : 3) != 0;
}

/* Text as XML has it; what XML cannot hold becomes U+FFFD. */
static void put_escaped(hl_text *output, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        size_t n_bytes = hl_utf8_length(text, left);
        size_t step    = n_bytes > 0 ? n_bytes : 1;
        if (is_xml(text, n_bytes))
            add_character(output, text, n_bytes);
        else
            hl_text_add(output, "\xef\xbf\xbd", 3);
        text += step;
        left -= step;
    }
}

static void put(hl_canvas *canvas, const char *name, double number)
{
    hl_text_addf(&canvas->output, " %s=\"", name);
    put_number(&canvas->output, number);
    hl_text_addf(&canvas->output, "\"");
}

static void put_colour(hl_canvas *canvas, const char *name, hl_colour colour)
{
    hl_text_addf(&canvas->output, " %s=\"#%02x%02x%02x\"", name, colour.red, colour.green,
                 colour.blue);
}

static void put_stroke(hl_canvas *canvas, const hl_stroke *stroke)
{
    hl_text_addf(&canvas->output, " fill=\"none\"");
    put_colour(canvas, "stroke", stroke->colour);
    put(canvas, "stroke-width", stroke->width);
    if (stroke->dash > 0.0)
        put(canvas, "stroke-dasharray", stroke->dash);
}

static void put_point(hl_canvas *canvas, char command, hl_point point)
{
    hl_text_addf(&canvas->output, "%c", command);
    put_number(&canvas->output, point.x);
    hl_text_addf(&canvas->output, " ");
    put_number(&canvas->output, point.y);
}

static void put_path(hl_canvas *canvas, const hl_point *points, int64_t n_points, bool closed)
{
    hl_text_addf(&canvas->output, "<path d=\"");
    for (int64_t i = 0; i < n_points; i++)
        put_point(canvas, i == 0 ? 'M' : 'L', points[i]);
    hl_text_addf(&canvas->output, closed ? "z\"" : "\"");
}

static void put_title(hl_canvas *canvas, const char *title)
{
    hl_text_addf(&canvas->output, "<title>");
    put_escaped(&canvas->output, title);
    hl_text_addf(&canvas->output, "</title>");
}

/* ------------------------------------------------------------------- the back end */

static void start(hl_canvas *canvas)
{
    hl_text_addf(&canvas->output, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"");
    put_number(&canvas->output, canvas->width);
    hl_text_addf(&canvas->output, "pt\" height=\"");
    put_number(&canvas->output, canvas->height);
    hl_text_addf(&canvas->output, "pt\" viewBox=\"0 0 ");
    put_number(&canvas->output, canvas->width);
    hl_text_addf(&canvas->output, " ");
    put_number(&canvas->output, canvas->height);
    hl_text_addf(&canvas->output, "\" font-family=\"%s\">\n", HL_FONT_FAMILIES);
}

static void rectangle(hl_canvas *canvas, hl_box box, hl_colour fill)
{
    hl_text_addf(&canvas->output, "<rect");
    put(canvas, "x", box.x);
    put(canvas, "y", box.y);
    put(canvas, "width", box.width);
    put(canvas, "height", box.height);
    put_colour(canvas, "fill", fill);
    hl_text_addf(&canvas->output, "/>\n");
}

static void polygon(hl_canvas *canvas, const hl_point *points, int64_t n_points, hl_colour fill)
{
    put_path(canvas, points, n_points, true);
    put_colour(canvas, "fill", fill);
    hl_text_addf(&canvas->output, "/>\n");
}

static void polyline(hl_canvas *canvas, const hl_point *points, int64_t n_points, bool closed,
                     const hl_stroke *stroke)
{
    put_path(canvas, points, n_points, closed);
    put_stroke(canvas, stroke);
    hl_text_addf(&canvas->output, " stroke-linejoin=\"round\"/>\n");
}

static void segments(hl_canvas *canvas, const hl_point *points, int64_t n_segments,
                     const hl_stroke *stroke)
{
    hl_text_addf(&canvas->output, "<path d=\"");
    for (int64_t i = 0; i < 2 * n_segments; i++)
        put_point(canvas, i % 2 == 0 ? 'M' : 'L', points[i]);
    hl_text_addf(&canvas->output, "\"");
    put_stroke(canvas, stroke);
    hl_text_addf(&canvas->output, "/>\n");
}

static void text(hl_canvas *canvas, hl_point at, const char *string, const hl_text_style *style)
{
    static const char *const anchors[] = { "", " text-anchor=\"middle\"", " text-anchor=\"end\"" };

    hl_text_addf(&canvas->output, "<text");
    put(canvas, "x", at.x);
    put(canvas, "y", at.y);
    put(canvas, "font-size", style->size);
    put_colour(canvas, "fill", style->colour);
    hl_text_addf(&canvas->output, "%s%s", anchors[style->anchor],
                 style->bold ? " font-weight=\"bold\"" : "");
    if (style->degrees != 0.0) {
        hl_text_addf(&canvas->output, " transform=\"rotate(");
        put_number(&canvas->output, -style->degrees);
        put_point(canvas, ' ', at);
        hl_text_addf(&canvas->output, ")\"");
    }
    hl_text_addf(&canvas->output, ">");
    put_escaped(&canvas->output, string);
    hl_text_addf(&canvas->output, "</text>\n");
}

static void begin(hl_canvas *canvas, const char *title)
{
    hl_text_addf(&canvas->output, "<g>");
    put_title(canvas, title);
    hl_text_addf(&canvas->output, "\n");
}

static void end(hl_canvas *canvas)
{
    hl_text_addf(&canvas->output, "</g>\n");
}

/* -------------------------------------------------------------------------- cells */

typedef struct sorted_cell {
    uint32_t colour;
    int64_t  place;
} sorted_cell;

static int by_colour(const void *a, const void *b)
{
    const sorted_cell *x = a, *y = b;

    if (x->colour != y->colour)
        return x->colour < y->colour ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* The cells that are drawn, by colour; returns how many. */
static int64_t sort_cells(sorted_cell *out, const hl_cell_grid *grid)
{
    int64_t n_cells = 0;

    for (int64_t i = 0; i < grid->n_across * grid->n_down; i++) {
        hl_colour c = grid->colours[i];
        if (grid->drawn == NULL || grid->drawn[i])
            out[n_cells++] =
                (sorted_cell){ (uint32_t)c.red << 16 | (uint32_t)c.green << 8 | c.blue, i };
    }
    qsort(out, (size_t)n_cells, sizeof *out, by_colour);
    return n_cells;
}

static void put_matrix(hl_canvas *canvas, const hl_cell_grid *grid)
{
    double width  = grid->box.width / (double)grid->n_across;
    double height = grid->box.height / (double)grid->n_down;

    /* Numbers of their own: hundredths of a point would add up over a hundred cells. */
    char         places[6][32];
    const double values[] = { width, height, grid->box.x + grid->gap / 2.0,
                              grid->box.y + height / 2.0, 1.0 - grid->gap / height };
    for (int i = 0; i < 5; i++)
        snprintf(places[i], sizeof places[i], "%lld.%05lld", (long long)values[i],
                 (long long)((values[i] - (double)(long long)values[i]) * 1e5));
    hl_text_addf(&canvas->output,
                 "<g transform=\"matrix(%s 0 0 %s %s %s)\" stroke-width=\"%s\"%s>\n", places[0],
                 places[1], places[2], places[3], places[4],
                 grid->gap > 0.0 ? "" : " shape-rendering=\"crispEdges\"");
}

static void put_cell(hl_canvas *canvas, const hl_cell_grid *grid, int64_t place)
{
    int64_t across = place % grid->n_across, down = place / grid->n_across;
    char    title[128] = "";

    put_point(canvas, 'M', (hl_point){ (double)across, (double)down });
    hl_text_addf(&canvas->output, "h");
    put_number(&canvas->output, 1.0 - grid->gap * (double)grid->n_across / grid->box.width);
    grid->title(title, sizeof title, grid->context, across, down);
    hl_text_addf(&canvas->output, "\"");
    if (title[0] == '\0') {
        hl_text_addf(&canvas->output, "/>");
        return;
    }
    hl_text_addf(&canvas->output, ">");
    put_title(canvas, title);
    hl_text_addf(&canvas->output, "</path>");
}

/* How many cells from sorted[first] on are of one colour, side by side and without a gap. */
static int64_t run_length(const sorted_cell *sorted, int64_t n_cells, int64_t first,
                          const hl_cell_grid *grid)
{
    int64_t last = first + 1;

    while (grid->gap == 0.0 && last < n_cells && sorted[last].colour == sorted[first].colour &&
           sorted[last].place == sorted[last - 1].place + 1 &&
           sorted[last].place % grid->n_across != 0)
        last++;
    return last - first;
}

/* A path for each colour. */
static void put_plain_cells(hl_canvas *canvas, const hl_cell_grid *grid, const sorted_cell *sorted,
                            int64_t n_cells)
{
    double  width = 1.0 - grid->gap * (double)grid->n_across / grid->box.width;
    int64_t run;

    for (int64_t i = 0; i < n_cells; i += run) {
        int64_t place = sorted[i].place;
        run           = run_length(sorted, n_cells, i, grid);
        if (i == 0 || sorted[i].colour != sorted[i - 1].colour)
            hl_text_addf(&canvas->output, "%s<path stroke=\"#%06x\" d=\"", i > 0 ? "\"/>\n" : "",
                         sorted[i].colour);
        hl_text_addf(&canvas->output, "M%lld %lldh", (long long)(place % grid->n_across),
                     (long long)(place / grid->n_across));
        put_number(&canvas->output, (double)(run - 1) + width);
    }
    hl_text_addf(&canvas->output, n_cells > 0 ? "\"/>\n</g>\n" : "</g>\n");
}

static void put_titled_cells(hl_canvas *canvas, const hl_cell_grid *grid, const sorted_cell *sorted,
                             int64_t n_cells)
{
    for (int64_t i = 0; i < n_cells; i++) {
        if (i == 0 || sorted[i].colour != sorted[i - 1].colour)
            hl_text_addf(&canvas->output, "%s<g stroke=\"#%06x\">", i > 0 ? "</g>\n" : "",
                         sorted[i].colour);
        hl_text_addf(&canvas->output, "<path d=\"");
        put_cell(canvas, grid, sorted[i].place);
    }
    hl_text_addf(&canvas->output, n_cells > 0 ? "</g>\n</g>\n" : "</g>\n");
}

static void cells(hl_canvas *canvas, const hl_cell_grid *grid)
{
    sorted_cell *sorted = NULL;
    hl_status    status = HL_ALLOC(&sorted, (size_t)(grid->n_across * grid->n_down));

    hl_canvas_fail(canvas, status);
    if (status != HL_OK)
        return;
    int64_t n_cells = sort_cells(sorted, grid);
    put_matrix(canvas, grid);
    if (grid->title != NULL)
        put_titled_cells(canvas, grid, sorted, n_cells);
    else
        put_plain_cells(canvas, grid, sorted, n_cells);
    hl_free(sorted);
}

static void finish(hl_canvas *canvas)
{
    hl_text_addf(&canvas->output, "</svg>\n");
}

static void stop(hl_canvas *canvas)
{
    (void)canvas;
}

const hl_backend hl_backend_svg = {
    start, rectangle, polygon, polyline, segments, text, begin, end, cells, finish, stop,
};
