/* token_cells.h - part of a token map as a square of cells, and notes on them, for pictures and
 * terminals.
 *
 * If there are too many tokens, several share a cell.  The value of a cell is the attention on all
 * its keys, as the mean over its rows.  Rows of cells therefore still sum to 1. */
#ifndef HL_RENDER_TOKEN_CELLS_H
#define HL_RENDER_TOKEN_CELLS_H

#include "render/figure.h"

typedef struct hl_token_cells {
    const hl_token_view *view;
    int64_t              begin; /* first token */
    int64_t              end;
    int64_t              bin; /* tokens per cell in each direction; the last cell may have fewer */
    int64_t              n;   /* number of cells in each direction */
    double              *values; /* (n, n) query cell, key cell; NaN is kept */
    /* (n) mean entropy of a cell's rows; allocated behind the values */
    double *entropy;
} hl_token_cells;

/* Makes at most `most` cells in each direction. */
hl_status hl_token_cells_new(hl_token_cells *out, const hl_token_view *view,
                             const hl_token_map *map, int64_t begin, int64_t end, int64_t most);
void      hl_token_cells_free(hl_token_cells *cells);

/* Can any token of the row see any token of the column? */
bool   hl_token_cells_has(const hl_token_cells *cells, int64_t row, int64_t column);
double hl_token_cells_at(const hl_token_cells *cells, int64_t row, int64_t column);
/* Returns the first token of a cell. */
int64_t hl_token_cells_token(const hl_token_cells *cells, int64_t cell);
/* Returns the position of a token (or of the end of the last one), from 0 to 1. */
double hl_token_cells_place(const hl_token_cells *cells, double token);

/* Returns the shade of a probability, 0 to 1. */
double hl_attention_share(hl_attention_scale scale, double value);
/* Returns the largest entropy of all maps; NaN if none is finite. */
double hl_token_view_top(const hl_token_view *view);

/* ----------------------------------------------------------------------- notes */

/* Texts with an arrow to a cell, placed where there is room. */
enum { HL_MOST_NOTES = 32 };

/* Fails with HL_BAD_ARGUMENT if there are too many notes, or if a token is not below `n_tokens`. */
hl_status hl_notes_check(const hl_note *notes, int64_t n_notes, int64_t n_tokens);

/* Where notes may be placed, and what they should not cover. Each note is then drawn by one
 * call. */
typedef struct hl_notes {
    hl_figure *figure;
    hl_box     area;
    /* Step size of the empty half above the area's diagonal, the best place for notes; 0: there is
     * none. */
    double staircase;
    hl_box taken[2 * HL_MOST_NOTES]; /* boxes of the texts so far and of their targets */
    int    n_taken;
} hl_notes;

/* Reserves the cell that a note will point at: no note may cover it. */
void hl_notes_keep(hl_notes *notes, hl_box target);
/* Fails with HL_BAD_ARGUMENT, naming the text, if there is no room left for it. */
hl_status hl_notes_draw(hl_notes *notes, const char *text, hl_box target);

#endif
