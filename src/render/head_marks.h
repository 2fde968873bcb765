/* head_marks.h - which heads of a heatmap are marked: pruned ones, and candidates with their rank.
 *
 *     hl_head_marks marks = { 0 };
 *     HL_TRY(hl_head_marks_read(&marks, figure));
 *     ... marks.ranks[layer * n_heads + head] ...
 *   done:
 *     hl_head_marks_free(&marks); */
#ifndef HL_RENDER_HEAD_MARKS_H
#define HL_RENDER_HEAD_MARKS_H

#include "render/figure.h"

typedef struct hl_head_marks {
    bool    *pruned; /* (n_layers, n_heads) by the options, or since it writes nothing */
    int64_t *ranks;  /* (n_layers, n_heads) of candidates, from 1; 0: it is none */
    int64_t  n_pruned;
    int64_t  n_candidates;
} hl_head_marks;

/* What the figure's options name, in its profile.  HL_BAD_ARGUMENT for heads that it lacks. */
hl_status hl_head_marks_read(hl_head_marks *out, const hl_figure *figure);
void      hl_head_marks_free(hl_head_marks *marks);

#endif
