/* canvas_svg.c - SVG 1.1, written by hand: text remains text, and files are small.
 *
 * Cells are most of a file.  A cell is a stroke of length 1 and width 1 in a coordinate system
 * whose unit is a cell.  Cells are sorted by color, so that each color is written once:
 *
 *     <g transform="matrix(37 0 0 37 60 80)" stroke-width="0.95">
 *     <g stroke="#3a125c"><path d="M5 3h1"><title>L5H3 0.42 nats</title></path>...</g>
 *
 * This takes 45 to 60 bytes per cell; a <rect> with the same title takes over 100.  Without titles,
 * all cells of a color are one path, and neighbors in it one stroke: 6 bytes per cell. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "render/canvas_backend.h"

/* ------------------------------------------------------------------------ pieces */

enum { NUMBER_BYTES = 40 };

/* Writes at most two decimals, without trailing zeros, in any locale: "3", "-0.25"; returns
 * `out`. */
static const char *write_number(char out[NUMBER_BYTES], double number)
{
    long long hundredths = llround(fmin(fmax(number, -1e9), 1e9) * 100.0);
    long long size       = hundredths < 0 ? -hundredths : hundredths;
    int       n_bytes    = snprintf(out, NUMBER_BYTES, "%s%lld.%02lld", hundredths < 0 ? "-" : "",
                                    size / 100, size % 100);

    while (out[n_bytes - 1] == '0')
        n_bytes--;
    if (out[n_bytes - 1] == '.')
        n_bytes--;
    out[n_bytes] = '\0';
    return out;
}

/* An argument for %s; N(...) is valid until the end of the block. */
#define N(number) write_number((char[NUMBER_BYTES]){ 0 }, number)
/* The format of a color, "#%02x%02x%02x". */
#define RGB          "#%02x%02x%02x"
#define PARTS(color) (color).red, (color).green, (color).blue

/* XML 1.0 allows no other control characters, and neither U+FFFE nor U+FFFF. */
static bool is_xml(const char *text, size_t n_bytes)
{
    if (n_bytes == 1)
        return (unsigned char)*text >= 0x20 || *text == '\t' || *text == '\n';
    return n_bytes > 0 && memcmp(text, "\xef\xbf\xbe", n_bytes < 3 ? n_bytes : 3) != 0 &&
           memcmp(text, "\xef\xbf\xbf", n_bytes < 3 ? n_bytes : 3) != 0;
}

/* Writes text with XML's escapes; characters that XML does not allow become U+FFFD. */
static void put_escaped(hl_text *output, const char *text)
{
    static const char *const escapes[] = { "&amp;", "&lt;", "&gt;", "&quot;" };
    static const char        escaped[] = "&<>\"";

    for (size_t left = strlen(text), step; left > 0; text += step, left -= step) {
        size_t      n_bytes = hl_utf8_length(text, left);
        const char *sign    = strchr(escaped, *text);

        step = n_bytes > 0 ? n_bytes : 1;
        if (!is_xml(text, n_bytes))
            hl_text_add(output, "\xef\xbf\xbd", 3);
        else if (sign != NULL)
            hl_text_addf(output, "%s", escapes[sign - escaped]);
        else
            hl_text_add(output, text, n_bytes);
    }
}

static void put_points(hl_canvas *canvas, const hl_point *points, int64_t n_points, int64_t n_each)
{
    hl_text_addf(&canvas->output, "<path d=\"");
    for (int64_t i = 0; i < n_points; i++)
        hl_text_addf(&canvas->output, "%c%s %s", i % n_each == 0 ? 'M' : 'L', N(points[i].x),
                     N(points[i].y));
}

static void put_stroke(hl_canvas *canvas, const hl_stroke *stroke)
{
    hl_text_addf(&canvas->output, "\" fill=\"none\" stroke=\"" RGB "\" stroke-width=\"%s\"",
                 PARTS(stroke->color), N(stroke->width));
    if (stroke->dash > 0.0)
        hl_text_addf(&canvas->output, " stroke-dasharray=\"%s\"", N(stroke->dash));
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
    hl_text_addf(&canvas->output,
                 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%spt\" height=\"%spt\" "
                 "viewBox=\"0 0 %s %s\" font-family=\"%s\">\n",
                 N(canvas->width), N(canvas->height), N(canvas->width), N(canvas->height),
                 HL_FONT_FAMILIES);
}

static void rectangle(hl_canvas *canvas, hl_box box, hl_color fill)
{
    hl_text_addf(&canvas->output,
                 "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" fill=\"" RGB "\"/>\n",
                 N(box.x), N(box.y), N(box.width), N(box.height), PARTS(fill));
}

static void polygon(hl_canvas *canvas, const hl_point *points, int64_t n_points, hl_color fill)
{
    put_points(canvas, points, n_points, n_points);
    hl_text_addf(&canvas->output, "z\" fill=\"" RGB "\"/>\n", PARTS(fill));
}

static void polyline(hl_canvas *canvas, const hl_point *points, int64_t n_points, bool closed,
                     const hl_stroke *stroke)
{
    put_points(canvas, points, n_points, n_points);
    hl_text_addf(&canvas->output, closed ? "z" : "");
    put_stroke(canvas, stroke);
    hl_text_addf(&canvas->output, " stroke-linejoin=\"round\"/>\n");
}

static void segments(hl_canvas *canvas, const hl_point *points, int64_t n_segments,
                     const hl_stroke *stroke)
{
    put_points(canvas, points, 2 * n_segments, 2);
    put_stroke(canvas, stroke);
    hl_text_addf(&canvas->output, "/>\n");
}

static void text(hl_canvas *canvas, hl_point at, const char *string, const hl_text_style *style)
{
    static const char *const anchors[] = { "", " text-anchor=\"middle\"", " text-anchor=\"end\"" };

    hl_text_addf(&canvas->output, "<text x=\"%s\" y=\"%s\" font-size=\"%s\" fill=\"" RGB "\"%s%s",
                 N(at.x), N(at.y), N(style->size), PARTS(style->color), anchors[style->anchor],
                 style->bold ? " font-weight=\"bold\"" : "");
    if (style->degrees != 0.0)
        hl_text_addf(&canvas->output, " transform=\"rotate(%s %s %s)\"", N(-style->degrees),
                     N(at.x), N(at.y));
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
    uint32_t color;
    int64_t  place;
} sorted_cell;

static int by_color(const void *a, const void *b)
{
    const sorted_cell *x = a, *y = b;

    if (x->color != y->color)
        return x->color < y->color ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Lists the cells that are drawn, sorted by color; returns their number. */
static int64_t sort_cells(sorted_cell *out, const hl_cell_grid *grid)
{
    int64_t n_cells = 0;

    for (int64_t i = 0; i < grid->n_across * grid->n_down; i++) {
        hl_color c;
        if (grid->color(&c, grid->context, i % grid->n_across, i / grid->n_across))
            out[n_cells++] =
                (sorted_cell){ (uint32_t)c.red << 16 | (uint32_t)c.green << 8 | c.blue, i };
    }
    qsort(out, (size_t)n_cells, sizeof *out, by_color);
    return n_cells;
}

static void put_matrix(hl_canvas *canvas, const hl_cell_grid *grid)
{
    double width  = grid->box.width / (double)grid->n_across;
    double height = grid->box.height / (double)grid->n_down;

    /* Written with more digits than other numbers: errors of a hundredth of a point would add up
     * over a hundred cells. */
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

/* Returns the width of a cell without its gap. */
static double cell_width(const hl_cell_grid *grid)
{
    return 1.0 - grid->gap * (double)grid->n_across / grid->box.width;
}

/* Returns how many cells, from sorted[first] on, have one color and are side by side without a
 * gap. */
static int64_t run_length(const sorted_cell *sorted, int64_t n_cells, int64_t first,
                          const hl_cell_grid *grid)
{
    int64_t last = first + 1;

    while (grid->gap == 0.0 && last < n_cells && sorted[last].color == sorted[first].color &&
           sorted[last].place == sorted[last - 1].place + 1 &&
           sorted[last].place % grid->n_across != 0)
        last++;
    return last - first;
}

/* Writes one path per color. */
static void put_plain_cells(hl_canvas *canvas, const hl_cell_grid *grid, const sorted_cell *sorted,
                            int64_t n_cells)
{
    int64_t run;

    for (int64_t i = 0; i < n_cells; i += run) {
        int64_t place = sorted[i].place;
        run           = run_length(sorted, n_cells, i, grid);
        if (i == 0 || sorted[i].color != sorted[i - 1].color)
            hl_text_addf(&canvas->output, "%s<path stroke=\"#%06x\" d=\"", i > 0 ? "\"/>\n" : "",
                         sorted[i].color);
        hl_text_addf(&canvas->output, "M%lld %lldh%s", (long long)(place % grid->n_across),
                     (long long)(place / grid->n_across), N((double)(run - 1) + cell_width(grid)));
    }
    hl_text_addf(&canvas->output, n_cells > 0 ? "\"/>\n</g>\n" : "</g>\n");
}

static void put_titled_cells(hl_canvas *canvas, const hl_cell_grid *grid, const sorted_cell *sorted,
                             int64_t n_cells)
{
    for (int64_t i = 0; i < n_cells; i++) {
        int64_t across = sorted[i].place % grid->n_across, down = sorted[i].place / grid->n_across;
        char    title[128] = "";

        if (i == 0 || sorted[i].color != sorted[i - 1].color)
            hl_text_addf(&canvas->output, "%s<g stroke=\"#%06x\">", i > 0 ? "</g>\n" : "",
                         sorted[i].color);
        grid->title(title, sizeof title, grid->context, across, down);
        hl_text_addf(&canvas->output, "<path d=\"M%lld %lldh%s\"%s>", (long long)across,
                     (long long)down, N(cell_width(grid)), title[0] == '\0' ? "/" : "");
        if (title[0] == '\0')
            continue;
        put_title(canvas, title);
        hl_text_addf(&canvas->output, "</path>");
    }
    hl_text_addf(&canvas->output, n_cells > 0 ? "</g>\n</g>\n" : "</g>\n");
}

static void cells(hl_canvas *canvas, const hl_cell_grid *grid)
{
    HL_FREED sorted_cell *sorted = NULL;
    hl_status             status = HL_ALLOC(&sorted, (size_t)(grid->n_across * grid->n_down));

    hl_canvas_fail(canvas, status);
    if (status != HL_OK)
        return;
    int64_t n_cells = sort_cells(sorted, grid);
    put_matrix(canvas, grid);
    if (grid->title != NULL)
        put_titled_cells(canvas, grid, sorted, n_cells);
    else
        put_plain_cells(canvas, grid, sorted, n_cells);
}

static void finish(hl_canvas *canvas)
{
    hl_text_addf(&canvas->output, "</svg>\n");
}

const hl_backend hl_backend_svg = {
    start, rectangle, polygon, polyline, segments, text, begin, end, cells, finish, NULL,
};
