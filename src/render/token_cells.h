/* token_cells.h - part of a token map as a square of cells, and notes on them, for pictures and
 * terminals.
 *
 * Where tokens are too many to be told apart, several share a cell: its number is the
 * attention on all its keys, as the mean of its rows has it.  So rows still add up to 1,
 * and a cell is as dark as the mass it stands for. */
#ifndef HL_RENDER_TOKEN_CELLS_H
#define HL_RENDER_TOKEN_CELLS_H

#include "render/figure.h"

typedef struct hl_token_cells {
    const hl_token_view *view;
    int64_t              begin; /* tokens */
    int64_t              end;
    int64_t              bin;     /* tokens of a cell, each way; the last may have fewer */
    int64_t              n;       /* cells each way */
    double              *values;  /* (n, n) who looks, at whom; NaN is kept */
    double              *entropy; /* (n) of rows; the mean of a cell's; behind the values */
} hl_token_cells;

/* At most `most` cells each way. */
hl_status hl_token_cells_new(hl_token_cells *out, const hl_token_view *view,
                             const hl_token_map *map, int64_t begin, int64_t end, int64_t most);
void      hl_token_cells_free(hl_token_cells *cells);

/* Can any token of the row see any of the column? */
bool   hl_token_cells_has(const hl_token_cells *cells, int64_t row, int64_t column);
double hl_token_cells_at(const hl_token_cells *cells, int64_t row, int64_t column);
/* The first token of a cell. */
int64_t hl_token_cells_token(const hl_token_cells *cells, int64_t cell);
/* Where a token (or the end of the last) is, from 0 to 1. */
double hl_token_cells_place(const hl_token_cells *cells, double token);

/* The shade of a probability, 0 to 1. */
double hl_attention_share(hl_attention_scale scale, double value);
/* The largest entropy of all maps; NaN if none is a number. */
double hl_token_view_top(const hl_token_view *view);

/* ----------------------------------------------------------------------- notes */

/* Words with an arrow to a cell, placed where there is room. */
enum { HL_MOST_NOTES = 32 };

/* HL_BAD_ARGUMENT if there are too many, or of tokens that are not among `n_tokens`. */
hl_status hl_notes_check(const hl_note *notes, int64_t n_notes, int64_t n_tokens);

/* Where notes may be, and what they should not cover; then one call a note. */
typedef struct hl_notes {
    hl_figure *figure;
    hl_box     area;
    double     staircase; /* the half above the area's diagonal is empty, down to steps of this
                           * size: best there; 0: it is not */
    hl_box     taken[2 * HL_MOST_NOTES]; /* the texts so far and what they point at */
    int        n_taken;
} hl_notes;

/* The cell that the note will point at: no note may cover it. */
void hl_notes_keep(hl_notes *notes, hl_box target);
/* HL_BAD_ARGUMENT, naming the text, if there is no room left for it. */
hl_status hl_notes_draw(hl_notes *notes, const char *text, hl_box target);

#endif
