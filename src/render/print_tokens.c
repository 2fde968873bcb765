/* print_tokens.c - the token view in a terminal.
 *
 *       0 The    | 99                      1.00
 *       1 ·cat   | 61 38                   0.97
 *       2 ·sat   | 40 21 39                1.06
 *
 * A cell is three columns wide with hundredths in it (rounded down, so that 99 is anything
 * from 0.99 on), or two where there are more tokens, or one; if that is still too wide, several
 * tokens share a cell.  Colours come behind the figures, and where cells are narrow, instead
 * of them: without colours a narrow cell is a tenth. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/output.h"
#include "render/terminal.h"
#include "render/token_cells.h"

enum { PLACE = 5, LABEL = 12, ENTROPY = 7, LEAST_WIDTH = 40, USUAL_WIDTH = 80 };

typedef struct token_print {
    hl_output          output;
    hl_token_cells     cells;
    hl_attention_scale scale;
    hl_depth           depth;
    hl_map             map;
    double             top;  /* of entropies */
    int                cell; /* columns */
} token_print;

/* --------------------------------------------------------------------------- layout */

/* Room for the cells, in columns. */
static int room_of(int width)
{
    return width - PLACE - LABEL - 1 - ENTROPY - 1;
}

static int cell_columns(int64_t n_tokens, int room)
{
    for (int cell = 3; cell > 1; cell--) {
        if (cell * n_tokens <= room)
            return cell;
    }
    return 1;
}

/* ---------------------------------------------------------------------------- lines */

/* Places above the columns, as far apart as they are wide. */
static void put_places(token_print *p)
{
    int64_t every = p->cell == 3 ? 1 : p->cell == 2 ? 2 : 5;
    int     at    = 0;

    hl_output_print(&p->output, "%*s", PLACE + LABEL + 1, "");
    for (int64_t i = 0; i < p->cells.n; i += every) {
        char number[24];
        int  length =
            snprintf(number, sizeof number, "%lld", (long long)hl_token_cells_token(&p->cells, i));
        /* Above the figure, which stands to the right of its cell. */
        int place = (int)i * p->cell + (p->cell == 3 && length < 3 ? 3 - length : 0);
        if (place < at)
            continue;
        hl_output_print(&p->output, "%*s%s", place - at, "", number);
        at = place + length + 1;
        hl_output_print(&p->output, "%s", i + every < p->cells.n ? " " : "");
    }
    hl_output_print(&p->output, "\n");
}

static void put_figure(token_print *p, double value)
{
    int hundredths = (int)floor(fmin(fmax(value, 0.0), 0.9999) * 100.0 + 1e-9);

    if (p->cell == 3)
        hl_output_print(&p->output, " %02d", hundredths);
    else if (p->depth != HL_DEPTH_NONE)
        hl_output_print(&p->output, "%*s", p->cell, "");
    else if (hundredths < 10)
        hl_output_print(&p->output, "%*s", p->cell, "."); /* what is little should look so */
    else
        hl_output_print(&p->output, "%*d", p->cell, hundredths / 10);
}

static void put_cell(token_print *p, int64_t row, int64_t column)
{
    double value = hl_token_cells_at(&p->cells, row, column);
    char   escape[HL_ESCAPE_BYTES];

    if (!hl_token_cells_has(&p->cells, row, column)) {
        hl_output_print(&p->output, "%*s", p->cell, "");
        return;
    }
    if (isnan(value)) {
        hl_output_print(&p->output, "%*s", p->cell, "-");
        return;
    }
    hl_output_print(
        &p->output, "%s",
        hl_terminal_cell(escape, p->depth, p->map, hl_attention_share(p->scale, value)));
    put_figure(p, value);
    hl_output_print(&p->output, "%s", hl_terminal_end(p->depth));
}

static void put_row(token_print *p, int64_t row)
{
    int64_t              token   = hl_token_cells_token(&p->cells, row);
    const hl_view_token *name    = &p->cells.view->tokens[token];
    double               entropy = p->cells.entropy[row];
    bool                 marked  = name->is_marked && p->cells.bin == 1;
    char                 escape[HL_ESCAPE_BYTES];

    hl_output_print(&p->output, "%*lld%s", PLACE - 1, (long long)token, marked ? "*" : " ");
    hl_terminal_put(&p->output, p->cells.bin == 1 ? name->text : "", LABEL, HL_ALIGN_LEFT);
    hl_output_print(&p->output, " ");
    for (int64_t column = 0; column < p->cells.n; column++)
        put_cell(p, row, column);
    hl_output_print(&p->output, " ");
    if (isnan(entropy)) {
        hl_output_print(&p->output, "%*s\n", ENTROPY - 1, "-");
        return;
    }
    hl_output_print(&p->output, "%s%*.2f%s\n",
                    hl_terminal_cell(escape, p->depth, HL_MAP_DIFFERENCE, entropy / p->top),
                    ENTROPY - 1, entropy, hl_terminal_end(p->depth));
}

/* ------------------------------------------------------------------------ the legend */

static void put_legend(token_print *p)
{
    const char *by = p->scale == HL_ATTENTION_ROOT ? ", by square roots" : "";

    hl_output_print(&p->output, "\n");
    if (p->depth == HL_DEPTH_NONE) {
        hl_output_print(&p->output, "Figures: %s of the row's attention, rounded down.\n",
                        p->cell == 3 ? "hundredths" : "tenths");
    } else {
        hl_output_print(&p->output, "Attention 0 ");
        hl_terminal_ramp(&p->output, p->depth, p->map, 16);
        hl_output_print(&p->output, " 1%s\n", by);
    }
    hl_output_print(&p->output, "At the right: entropy of the row, nats");
    if (p->depth != HL_DEPTH_NONE) {
        hl_output_print(&p->output, ", 0 ");
        hl_terminal_ramp(&p->output, p->depth, HL_MAP_DIFFERENCE, 16);
        hl_output_print(&p->output, " %.2f", p->top);
    }
    hl_output_print(&p->output, "\n");
    if (p->cells.bin > 1)
        hl_output_print(&p->output,
                        "A cell is %lld x %lld tokens: attention on all its keys, mean of its "
                        "rows.\n",
                        (long long)p->cells.bin, (long long)p->cells.bin);
    for (int64_t i = p->cells.begin; i < p->cells.end && p->cells.bin == 1; i++) {
        if (p->cells.view->tokens[i].is_marked) {
            hl_output_print(&p->output, "* special and template tokens.\n");
            break;
        }
    }
}

/* ---------------------------------------------------------------------------- whole */

static hl_status choose_span(int64_t *begin, int64_t *end, const hl_token_view *view,
                             const hl_token_figure *options)
{
    *begin = options != NULL ? options->zoom_begin : 0;
    *end   = options != NULL && options->zoom_end > 0 ? options->zoom_end : view->n_tokens;
    if (*begin < 0 || *end <= *begin || *end > view->n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "zoom %lld:%lld: wanted tokens A:B with 0 <= A < B <= %lld",
                       (long long)*begin, (long long)*end, (long long)view->n_tokens);
    return HL_OK;
}

hl_status hl_print_tokens(char **out, const hl_token_view *view, const hl_token_figure *options,
                          const hl_print_options *print)
{
    hl_status   status = HL_OK;
    int64_t     begin = 0, end = 0;
    int         width = print != NULL && print->width > 0 ? print->width : USUAL_WIDTH;
    int         room  = room_of(width > LEAST_WIDTH ? width : LEAST_WIDTH);
    bool        dark  = print != NULL && print->theme == HL_THEME_DARK;
    token_print p     = { .scale = options != NULL ? options->scale : HL_ATTENTION_ROOT,
                          .depth = print != NULL ? print->depth : HL_DEPTH_NONE,
                          .map   = dark ? HL_MAP_BLUES_DARK : HL_MAP_BLUES,
                          .top   = fmax(hl_token_view_top(view), 0.5) };

    *out = NULL;
    HL_TRY(choose_span(&begin, &end, view, options));
    p.cell = cell_columns(end - begin, room);
    HL_TRY(hl_token_cells_new(&p.cells, view, &view->maps[0], begin, end, room / p.cell));
    hl_output_print(&p.output, "%s, %lld tokens; %s\n\n", view->family, (long long)view->n_tokens,
                    view->maps[0].name);
    put_places(&p);
    for (int64_t row = 0; row < p.cells.n; row++)
        put_row(&p, row);
    put_legend(&p);
    hl_output_add(&p.output, "", 1);
    HL_TRY(p.output.status);
    *out           = p.output.bytes;
    p.output.bytes = NULL;

done:
    hl_output_free(&p.output);
    hl_token_cells_free(&p.cells);
    return status;
}
