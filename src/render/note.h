/* note.h - words with an arrow, placed where there is room. */
#ifndef HL_RENDER_NOTE_H
#define HL_RENDER_NOTE_H

#include "render/figure.h"

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
