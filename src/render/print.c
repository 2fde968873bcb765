/* print.c - a prompt and the lens in a terminal, with the colors and columns that it has. */
#include "render/print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "render/palette.h"
#include "render/token_cells.h"

/* ------------------------------------------------------------------------ colors */

/* The 6 x 6 x 6 cube of 256-color terminals has too few colors near the maps, and the nearest ones
 * often look gray.  For each map, nine colors of the cube were picked by hand, whose lightness
 * always rises or falls as the map's does. */
enum { N_PICKED = 9 };

static const uint8_t picked[][N_PICKED] = {
    [HL_MAP_ENTROPY]    = { 53, 55, 25, 30, 36, 77, 149, 185, 227 },
    [HL_MAP_BLUES]      = { 255, 189, 153, 117, 75, 69, 26, 25, 18 },
    [HL_MAP_DIFFERENCE] = { 25, 67, 110, 152, 255, 217, 174, 131, 124 },
    [HL_MAP_BLUES_DARK] = { 234, 237, 24, 25, 32, 68, 75, 117, 195 },
};

static int picked_of(hl_map map, double share)
{
    return picked[map][lround(fmin(fmax(share, 0.0), 1.0) * (N_PICKED - 1))];
}

static int put_color(char *out, size_t n_bytes, hl_depth depth, int kind, hl_map map, double share)
{
    hl_color color = hl_map_color(map, share);

    if (depth == HL_DEPTH_TRUE)
        return snprintf(out, n_bytes, "\033[%d;2;%d;%d;%dm", kind, color.red, color.green,
                        color.blue);
    return snprintf(out, n_bytes, "\033[%d;5;%dm", kind, picked_of(map, share));
}

const char *hl_terminal_cell(char out[HL_ESCAPE_BYTES], hl_depth depth, hl_map map, double share)
{
    static const uint8_t levels[] = { 0, 95, 135, 175, 215, 255 };

    out[0] = '\0';
    if (depth == HL_DEPTH_NONE)
        return out;
    hl_color seen  = hl_map_color(map, share);
    int      index = picked_of(map, share);
    /* The color that the terminal shows: the cube has index 16 + 36 red + 6 green + blue, and 24
     * grays follow it. */
    if (depth != HL_DEPTH_TRUE && index >= 232) {
        uint8_t gray = (uint8_t)(8 + 10 * (index - 232));
        seen         = (hl_color){ gray, gray, gray };
    } else if (depth != HL_DEPTH_TRUE) {
        seen = (hl_color){ levels[(index - 16) / 36], levels[(index - 16) / 6 % 6],
                           levels[(index - 16) % 6] };
    }
    /* 16 and 231 are the cube's black and white, which terminal themes do not change. */
    int used = snprintf(out, HL_ESCAPE_BYTES, "\033[38;5;%dm", hl_color_is_light(seen) ? 16 : 231);
    put_color(out + used, HL_ESCAPE_BYTES - (size_t)used, depth, 48, map, share);
    return out;
}

const char *hl_terminal_text(char out[HL_ESCAPE_BYTES], hl_depth depth, hl_map map, double share)
{
    out[0] = '\0';
    if (depth != HL_DEPTH_NONE)
        put_color(out, HL_ESCAPE_BYTES, depth, 38, map, share);
    return out;
}

const char *hl_terminal_end(hl_depth depth)
{
    return depth != HL_DEPTH_NONE ? "\033[0m" : "";
}

/* Writes a color ramp in `width` columns. */
static void put_ramp(hl_text *output, hl_depth depth, hl_map map, int width)
{
    char escape[HL_ESCAPE_BYTES];

    for (int i = 0; i < width && depth != HL_DEPTH_NONE; i++)
        hl_text_addf(output, "%s ", hl_terminal_cell(escape, depth, map, i / (width - 1.0)));
    hl_text_addf(output, "%s", hl_terminal_end(depth));
}

/* --------------------------------------------------------------------------- columns */

typedef struct range {
    uint32_t first;
    uint32_t last;
} range;

/* Blocks that terminals show two columns wide: enough for labels, not all of Unicode. */
static const range wide_ranges[] = {
    { 0x1100, 0x115f },   { 0x231a, 0x231b },   { 0x23e9, 0x23ec },   { 0x2e80, 0x303e },
    { 0x3041, 0x33ff },   { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },   { 0xa000, 0xa4cf },
    { 0xa960, 0xa97f },   { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },
    { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },   { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff },
    { 0x1f900, 0x1f9ff }, { 0x1fa70, 0x1faff }, { 0x20000, 0x3fffd },
};

/* Marks on other characters, joiners, variation selectors, skin tones. */
static const range narrow_ranges[] = {
    { 0x300, 0x36f },   { 0x483, 0x489 },   { 0x591, 0x5bd },     { 0x610, 0x61a },
    { 0x64b, 0x65f },   { 0x6d6, 0x6dc },   { 0x900, 0x902 },     { 0x93c, 0x93c },
    { 0x941, 0x948 },   { 0x94d, 0x94d },   { 0xe31, 0xe31 },     { 0xe34, 0xe3a },
    { 0xe47, 0xe4e },   { 0x200b, 0x200f }, { 0x20d0, 0x20ff },   { 0xfe00, 0xfe0f },
    { 0xfe20, 0xfe2f }, { 0xfeff, 0xfeff }, { 0x1f3fb, 0x1f3ff },
};

static bool is_among(uint32_t c, const range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    }
    return false;
}

/* Returns the columns of the first character; *length is the number of its bytes. */
static int columns_of(const char *text, size_t n_bytes, size_t *length)
{
    size_t at = 0;

    *length = hl_utf8_length(text, n_bytes);
    if (*length == 0) {
        *length = 1;
        return 1;
    }
    uint32_t c = hl_utf8_next(text, &at);
    if (is_among(c, narrow_ranges, sizeof narrow_ranges / sizeof *narrow_ranges))
        return 0;
    return is_among(c, wide_ranges, sizeof wide_ranges / sizeof *wide_ranges) ? 2 : 1;
}

int hl_terminal_width_of(const char *text)
{
    int    width   = 0;
    size_t n_bytes = strlen(text), length;

    for (size_t at = 0; at < n_bytes; at += length)
        width += columns_of(text + at, n_bytes - at, &length);
    return width;
}

/* Returns how many bytes fit into `width` columns; *taken is the number of columns that they
 * take. */
static size_t fitting(const char *text, int width, int *taken)
{
    size_t n_bytes = strlen(text), at = 0, length;

    *taken = 0;
    while (at < n_bytes) {
        int columns = columns_of(text + at, n_bytes - at, &length);
        if (*taken + columns > width)
            break;
        *taken += columns;
        at += length;
    }
    return at;
}

void hl_terminal_put(hl_text *output, const char *text, int width, hl_align align)
{
    int    taken  = 0;
    size_t length = fitting(text, width, &taken);
    bool   cut    = text[length] != '\0';

    if (cut) {
        length = fitting(text, width - 1, &taken);
        taken++;
    }
    if (align == HL_ALIGN_RIGHT)
        hl_text_addf(output, "%*s", width - taken, "");
    hl_text_add(output, text, length);
    hl_text_addf(output, "%s", cut ? "\u2026" : "");
    if (align == HL_ALIGN_LEFT)
        hl_text_addf(output, "%*s", width - taken, "");
}

/* Returns the width of the terminal. */
static int columns_wanted(const hl_print_options *print)
{
    enum { LEAST_WIDTH = 40, USUAL_WIDTH = 80 };
    int width = print != NULL && print->width > 0 ? print->width : USUAL_WIDTH;

    return width > LEAST_WIDTH ? width : LEAST_WIDTH;
}

/* ----------------------------------------------------------------------- a prompt */

/* The token view:
 *
 *       0 The    | 99                      1.00
 *       1 ·cat   | 61 38                   0.97
 *       2 ·sat   | 40 21 39                1.06
 *
 * A cell is three columns wide and holds hundredths, rounded down: 99 stands for 0.99 to 1.  With
 * more tokens it is two columns wide, or one; if that is still too wide, several tokens share a
 * cell. Colors are the background of the figures; narrow cells have only the color or, without
 * colors, a digit for tenths.
 *
 * Notes are footnotes, with signs before the figures of their cells.  Insets are below, one column
 * per cell, side by side if there is room. */

enum { PLACE = 5, LABEL = 12, ENTROPY = 7, GAP = 2 };

typedef struct token_print {
    hl_text           *output;
    hl_token_cells     cells;
    hl_attention_scale scale;
    hl_depth           depth;
    hl_map             map;
    double             top;  /* largest entropy */
    int                cell; /* columns per cell */
    const hl_note     *notes;
    int64_t            n_notes;
} token_print;

/* ---------------------------------------------------------------- a prompt: lines */

/* Writes positions above the columns, as close together as their width allows. */
static void put_places(token_print *p)
{
    int64_t every = p->cell == 3 ? 1 : p->cell == 2 ? 2 : 5;
    int     at    = 0;

    hl_text_addf(p->output, "%*s", PLACE + LABEL + 1, "");
    for (int64_t i = 0; i < p->cells.n; i += every) {
        char number[24];
        int  length =
            snprintf(number, sizeof number, "%lld", (long long)hl_token_cells_token(&p->cells, i));
        /* The position stands above the figure, which is at the right of its cell. */
        int place = (int)i * p->cell + (p->cell == 3 && length < 3 ? 3 - length : 0);
        if (place < at)
            continue;
        hl_text_addf(p->output, "%*s%s", place - at, "", number);
        at = place + length + 1;
        hl_text_addf(p->output, "%s", i + every < p->cells.n ? " " : "");
    }
    hl_text_addf(p->output, "\n");
}

/* Signs of the notes; notes beyond the last sign are listed without one. */
static const char *const signs[] = { "\u00b9", "\u00b2", "\u00b3", "\u2074", "\u2075",
                                     "\u2076", "\u2077", "\u2078", "\u2079" };
enum { N_SIGNS = sizeof signs / sizeof *signs };

/* Is the token in this cell? */
static bool is_within(const hl_token_cells *cells, int64_t cell, int64_t token)
{
    int64_t first = hl_token_cells_token(cells, cell);
    return token >= first && token < first + cells->bin && token < cells->end;
}

/* Returns the sign of the first note on this cell; NULL if there is none. */
static const char *sign_at(const token_print *p, int64_t row, int64_t column)
{
    for (int64_t i = 0; i < p->n_notes && i < N_SIGNS; i++) {
        if (is_within(&p->cells, row, p->notes[i].row) &&
            is_within(&p->cells, column, p->notes[i].column))
            return signs[i];
    }
    return NULL;
}

/* Writes the last column of a narrow cell, or the last two of a wide one. */
static void put_figure(token_print *p, double value)
{
    int hundredths = (int)floor(fmin(fmax(value, 0.0), 0.9999) * 100.0 + 1e-9);

    if (p->cell == 3)
        hl_text_addf(p->output, "%02d", hundredths);
    else if (p->depth != HL_DEPTH_NONE)
        hl_text_addf(p->output, " ");
    else if (hundredths < 10)
        hl_text_addf(p->output, "."); /* a low value gets a sign that looks light */
    else
        hl_text_addf(p->output, "%d", hundredths / 10);
}

/* A sign stands before the figure if there is a column for it, otherwise in place of the figure. */
static void put_cell(token_print *p, int64_t row, int64_t column)
{
    double      value = hl_token_cells_at(&p->cells, row, column);
    bool        seen  = hl_token_cells_has(&p->cells, row, column);
    const char *sign  = sign_at(p, row, column);
    char        escape[HL_ESCAPE_BYTES];

    if (seen && !isnan(value))
        hl_text_addf(
            p->output, "%s",
            hl_terminal_cell(escape, p->depth, p->map, hl_attention_share(p->scale, value)));
    if (sign != NULL || p->cell > 1)
        hl_text_addf(p->output, "%s", sign != NULL ? sign : " ");
    if (sign != NULL && p->cell == 1)
        ; /* the cell has no more room */
    else if (!seen || isnan(value))
        hl_text_addf(p->output, "%*s", p->cell > 1 ? p->cell - 1 : 1, seen ? "-" : "");
    else
        put_figure(p, value);
    if (seen && !isnan(value))
        hl_text_addf(p->output, "%s", hl_terminal_end(p->depth));
}

static void put_row(token_print *p, int64_t row)
{
    int64_t              token   = hl_token_cells_token(&p->cells, row);
    const hl_view_token *name    = &p->cells.view->tokens[token];
    double               entropy = p->cells.entropy[row];
    bool                 marked  = name->is_marked && p->cells.bin == 1;
    char                 escape[HL_ESCAPE_BYTES];

    hl_text_addf(p->output, "%*lld%s", PLACE - 1, (long long)token, marked ? "*" : " ");
    hl_terminal_put(p->output, p->cells.bin == 1 ? name->text : "", LABEL, HL_ALIGN_LEFT);
    hl_text_addf(p->output, " ");
    for (int64_t column = 0; column < p->cells.n; column++)
        put_cell(p, row, column);
    hl_text_addf(p->output, " ");
    if (isnan(entropy)) {
        hl_text_addf(p->output, "%*s\n", ENTROPY - 1, "-");
        return;
    }
    hl_text_addf(p->output, "%s%*.2f%s\n",
                 hl_terminal_cell(escape, p->depth, HL_MAP_DIFFERENCE, entropy / p->top),
                 ENTROPY - 1, entropy, hl_terminal_end(p->depth));
}

/* ----------------------------------------------------------- a prompt: the legend */

static void put_token_legend(token_print *p)
{
    const char *by = p->scale == HL_ATTENTION_ROOT ? ", color: \u221aattention" : "";

    hl_text_addf(p->output, "\n");
    if (p->depth == HL_DEPTH_NONE) {
        hl_text_addf(p->output, "Numbers: %s of the row's attention, rounded down.\n",
                     p->cell == 3 ? "%" : "tenths");
    } else {
        hl_text_addf(p->output, "Attention 0 ");
        put_ramp(p->output, p->depth, p->map, 16);
        hl_text_addf(p->output, " 1%s\n", by);
    }
    hl_text_addf(p->output, "At the right: entropy of the row, nats");
    if (p->depth != HL_DEPTH_NONE) {
        hl_text_addf(p->output, ", 0 ");
        put_ramp(p->output, p->depth, HL_MAP_DIFFERENCE, 16);
        hl_text_addf(p->output, " %.2f", p->top);
    }
    hl_text_addf(p->output, "\n");
    if (p->cells.bin > 1)
        hl_text_addf(
            p->output,
            "A cell is %lld x %lld tokens: attention to all its keys, averaged over its rows.\n",
            (long long)p->cells.bin, (long long)p->cells.bin);
    for (int64_t i = p->cells.begin; i < p->cells.end && p->cells.bin == 1; i++) {
        if (p->cells.view->tokens[i].is_marked) {
            hl_text_addf(p->output, "* special and template tokens.\n");
            break;
        }
    }
}

/* ---------------------------------------------------------------- a prompt: notes */

static void put_notes(token_print *p)
{
    const hl_token_view *view = p->cells.view;

    for (int64_t i = 0; i < p->n_notes; i++) {
        const hl_note *note = &p->notes[i];
        double value = (double)view->maps[0].attention[note->row * view->n_tokens + note->column];

        hl_text_addf(p->output, "%s %s: %lld %s looks at %lld %s, %.3f\n",
                     i < N_SIGNS ? signs[i] : "-", note->text, (long long)note->row,
                     view->tokens[note->row].text, (long long)note->column,
                     view->tokens[note->column].text, value);
    }
}

/* --------------------------------------------------------------- a prompt: insets */

/* The cells of every map after the first. */
typedef struct inset_maps {
    hl_token_cells *cells; /* (n) */
    int64_t         n;
} inset_maps;

static void free_insets(inset_maps *maps)
{
    for (int64_t i = 0; i < maps->n && maps->cells != NULL; i++)
        hl_token_cells_free(&maps->cells[i]);
    hl_free(maps->cells);
}

/* Writes maps [first, first + n) side by side, with `wide` columns each. */
static void put_inset_block(token_print *p, const inset_maps *maps, int64_t first, int64_t n,
                            int64_t wide)
{
    hl_text_addf(p->output, "\n%*s", PLACE, "");
    for (int64_t i = first; i < first + n; i++) {
        const char *name = maps->cells[0].view->maps[1 + i].name;
        hl_terminal_put(p->output, name,
                        i + 1 < first + n ? (int)wide + GAP : hl_terminal_width_of(name),
                        HL_ALIGN_LEFT);
    }
    hl_text_addf(p->output, "\n");
    for (int64_t row = 0; row < maps->cells[0].n; row++) {
        hl_text_addf(p->output, "%*lld", PLACE - 1,
                     (long long)hl_token_cells_token(&maps->cells[0], row));
        for (int64_t i = first; i < first + n; i++) {
            p->cells = maps->cells[i];
            hl_text_addf(p->output, "%*s", i == first ? 1 : (int)(wide - p->cells.n) + GAP, "");
            for (int64_t column = 0; column < p->cells.n; column++)
                put_cell(p, row, column);
        }
        hl_text_addf(p->output, "\n");
    }
}

/* Writes the maps after the first; all have the same tokens. */
static hl_status put_insets(const token_print *whole, const hl_token_view *view, int64_t begin,
                            int64_t end, int64_t width)
{
    HL_SCOPED(free_insets) inset_maps maps = { .n = view->n_maps - 1 };
    token_print                       p    = *whole;
    int64_t                           room = width - PLACE, wide = 0;

    if (maps.n == 0)
        return HL_OK;
    p.cell    = 1;
    p.n_notes = 0;
    HL_NEED(HL_ALLOC_ZEROED(&maps.cells, (size_t)maps.n));
    for (int64_t i = 0; i < maps.n; i++) {
        int64_t name = hl_terminal_width_of(view->maps[1 + i].name);

        HL_NEED(hl_token_cells_new(&maps.cells[i], view, &view->maps[1 + i], begin, end, room));
        wide = name > wide ? name : wide;
        wide = maps.cells[i].n > wide ? maps.cells[i].n : wide;
    }
    int64_t beside = (room + GAP) / (wide + GAP) > 1 ? (room + GAP) / (wide + GAP) : 1;
    if (p.depth == HL_DEPTH_NONE)
        hl_text_addf(p.output, "\nInsets, in tenths:\n");
    for (int64_t i = 0; i < maps.n; i += beside)
        put_inset_block(&p, &maps, i, maps.n - i < beside ? maps.n - i : beside, wide);
    return HL_OK;
}

/* ------------------------------------------------------------ a prompt: the whole */

hl_status hl_print_tokens(char **out, const hl_token_view *view, const hl_token_figure *options,
                          const hl_print_options *print)
{
    static const hl_token_figure  plain = { 0 };
    static const hl_print_options usual = { 0 };

    HL_SCOPED(hl_text_free) hl_text               output = { 0 };
    HL_SCOPED(hl_token_cells_free) hl_token_cells cells  = { 0 };
    token_print p = { .output = &output, .top = fmax(hl_token_view_top(view), 0.5) };

    *out           = NULL;
    options        = options != NULL ? options : &plain;
    print          = print != NULL ? print : &usual;
    int     width  = columns_wanted(print);
    int     room   = width - PLACE - LABEL - 1 - ENTROPY - 1; /* columns for the cells */
    int64_t begin  = options->zoom_begin;
    int64_t end    = options->zoom_end > 0 ? options->zoom_end : view->n_tokens;
    int64_t length = end - begin;
    if (begin < 0 || length <= 0 || end > view->n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "zoom %lld:%lld: wanted tokens A:B with 0 <= A < B <= %lld",
                       (long long)begin, (long long)end, (long long)view->n_tokens);
    HL_NEED(hl_notes_check(options->notes, options->n_notes, view->n_tokens));
    p.scale   = options->scale;
    p.depth   = print->depth;
    p.map     = print->theme == HL_THEME_DARK ? HL_MAP_BLUES_DARK : HL_MAP_BLUES;
    p.notes   = options->notes;
    p.n_notes = options->n_notes;
    p.cell    = 3 * length <= room ? 3 : 2 * length <= room ? 2 : 1;
    HL_NEED(hl_token_cells_new(&cells, view, &view->maps[0], begin, end, room / p.cell));
    p.cells = cells;
    hl_text_addf(p.output, "%s, %lld tokens; %s\n\n", view->family, (long long)view->n_tokens,
                 view->maps[0].name);
    put_places(&p);
    for (int64_t row = 0; row < p.cells.n; row++)
        put_row(&p, row);
    put_token_legend(&p);
    put_notes(&p);
    HL_NEED(put_insets(&p, view, begin, end, width));
    return hl_text_finish(out, &output);
}

/* ----------------------------------------------------------------------- the lens */

/*           at        the       sea
 *      2    the       sea       ,
 *      1    the       same      was
 *      0    the       same      .
 *
 * With colors, the entropy is behind the token; without, a figure follows it.  What does not
 * fit side by side continues below. */

enum { LAYER = 5, CELL = 10, FIGURE = 5 };

typedef struct lens_print {
    hl_text             output;
    const hl_lens_view *view;
    hl_depth            depth;
    double              top; /* largest entropy */
} lens_print;

/* Returns the columns of a token: a space, its name, and the figure. */
static int cell_width(hl_depth depth)
{
    return 1 + CELL + (depth == HL_DEPTH_NONE ? FIGURE : 0);
}

static void put_guess(lens_print *p, int64_t place)
{
    const hl_view_token *guess   = &p->view->guesses[place];
    double               entropy = (double)p->view->entropy[place];
    char                 escape[HL_ESCAPE_BYTES];

    hl_text_addf(&p->output, "%s", guess->is_marked ? ">" : " ");
    if (!isnan(entropy))
        hl_text_addf(&p->output, "%s",
                     hl_terminal_cell(escape, p->depth, HL_MAP_DIFFERENCE, entropy / p->top));
    hl_terminal_put(&p->output, guess->text, CELL, HL_ALIGN_LEFT);
    hl_text_addf(&p->output, "%s", hl_terminal_end(p->depth));
    if (p->depth == HL_DEPTH_NONE && isnan(entropy))
        hl_text_addf(&p->output, "%*s", FIGURE, "-");
    else if (p->depth == HL_DEPTH_NONE)
        hl_text_addf(&p->output, "%*.1f", FIGURE, entropy);
}

static void put_panel(lens_print *p, int64_t first, int64_t n)
{
    hl_text_addf(&p->output, "\n%*s", LAYER, "");
    for (int64_t i = first; i < first + n; i++) {
        hl_text_addf(&p->output, "%s", p->view->tokens[i].is_marked ? "*" : " ");
        hl_terminal_put(&p->output, p->view->tokens[i].text, cell_width(p->depth) - 1,
                        HL_ALIGN_LEFT);
    }
    for (int64_t row = p->view->n_layers; row >= 0; row--) {
        char label[24] = "emb";

        if (row > 0)
            snprintf(label, sizeof label, "%lld", (long long)(row - 1));
        hl_text_addf(&p->output, "\n%*s ", LAYER - 1, label);
        for (int64_t i = first; i < first + n; i++)
            put_guess(p, row * p->view->n_tokens + i);
    }
    hl_text_addf(&p->output, "\n");
}

static void put_lens_legend(lens_print *p)
{
    hl_text_addf(
        &p->output,
        "\n"
        "Top line: the input tokens.  Below: the most likely next token after each layer, from\n"
        "the embedding (emb) upwards; > marks predictions that match the text.\n");
    if (p->depth == HL_DEPTH_NONE) {
        hl_text_addf(&p->output, "Numbers: entropy over the vocabulary, nats.\n");
        return;
    }
    hl_text_addf(&p->output, "Entropy 0 ");
    put_ramp(&p->output, p->depth, HL_MAP_DIFFERENCE, 16);
    hl_text_addf(&p->output, " %.1f nats\n", p->top);
}

hl_status hl_print_lens(char **out, const hl_lens_view *view, const hl_print_options *print)
{
    lens_print p        = { .view  = view,
                            .depth = print != NULL ? print->depth : HL_DEPTH_NONE,
                            .top   = log((double)(view->d_vocab > 2 ? view->d_vocab : 2)) };
    int64_t    n_across = (columns_wanted(print) - LAYER) / cell_width(p.depth);

    hl_text_addf(&p.output, "%s, %lld layers, tokens %lld to %lld of %lld\n", view->family,
                 (long long)view->n_layers, (long long)view->first,
                 (long long)(view->first + view->n_tokens - 1), (long long)view->n_prompt);
    for (int64_t first = 0; first < view->n_tokens; first += n_across) {
        int64_t left = view->n_tokens - first;
        put_panel(&p, first, left < n_across ? left : n_across);
    }
    put_lens_legend(&p);
    return hl_text_finish(out, &p.output);
}
