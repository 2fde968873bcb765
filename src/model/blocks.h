/* blocks.h - a block as data: which branches there are, in what order, and where norms stand.
 *
 * A block is one or two halves.  Each has a branch (attention, a mixer, an MLP) that reads the
 * residual stream, through a norm or as it is, and whose result is added to the stream.  A mixer
 * stands where attention would; if a layer has both, attention joins it.  The lines of config.h
 * become:
 *
 *     PRE        { A, reads n1 }                 { M, reads n2 }
 *     SANDWICH   { A, reads n1, p1 after A }     { M, reads n2, p2 after M }
 *     BRANCH     { A, p1 after A }               { M, p2 after M }
 *     POST       { A, p1 after the sum }         { M, p2 after the sum }
 *     PARALLEL   { A, reads n1 }                 { M, reads n2, joins }
 *     SHARED     { A, reads n1 }                 { M, joins and shares }
 *
 * A half that joins reads the stream that the half before it read, and both are added together; one
 * that shares reads through the same norm.  blocks.c runs halves forward, backward.c in reverse. */
#ifndef HL_MODEL_BLOCKS_H
#define HL_MODEL_BLOCKS_H

#include "model/config.h"
#include "model/roles.h"

/* What mixes or maps rows in a half. */
typedef enum hl_branch {
    HL_BRANCH_ATTENTION = 0,
    HL_BRANCH_MLP,
    HL_BRANCH_MIXER,
    HL_BRANCH_LAUREL, /* joins attention: n + norm(V U n) */
} hl_branch;

typedef enum hl_post_norm {
    HL_POST_NONE = 0,
    HL_POST_BRANCH, /* norm of the branch's output, before it is added */
    HL_POST_SUM,    /* norm of the stream, after the output has been added */
} hl_post_norm;

typedef struct hl_half {
    hl_branch    branch;
    hl_role      norm;       /* norm that the branch reads through, if reads_norm */
    bool         reads_norm; /* false: the branch reads the stream itself */
    hl_role      post_role;
    hl_post_norm post;
    bool         joins;
    bool         shares;
} hl_half;

#define HL_BLOCK_HALVES 3

/* Writes the halves of a layer in order and returns their number. */
int hl_block_halves(hl_half out[HL_BLOCK_HALVES], const hl_config *config, int64_t layer);

/* The index after the last of the halves that are added together with halves[first]. */
static inline int hl_block_group(const hl_half *halves, int n_halves, int first)
{
    int end = first + 1;

    while (end < n_halves && halves[end].joins)
        end++;
    return end;
}

#endif
