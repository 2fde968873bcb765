/* rank_parts.h - parts of a ranking: scores computed from several measurements of all heads, and the
 * places that each head may have.  Each score is a formula of doc/metrics.md, with its source; rank.c
 * has the rankers that read one number per head. */
#ifndef HL_PRUNE_RANK_PARTS_H
#define HL_PRUNE_RANK_PARTS_H

#include "headlight/prune.h"

/* Writes the score of every head of the ranking.  *done is false, and the
 * ranking unchanged, for a ranker that reads one number per head. */
hl_status hl_rank_combined(bool *done, hl_ranking *ranking, const hl_rank_inputs *inputs);

/* Sets ranking->places; leaves it NULL for rankers whose scores are not known per window. */
hl_status hl_rank_find_places(hl_ranking *ranking, const hl_rank_inputs *inputs);

#endif
