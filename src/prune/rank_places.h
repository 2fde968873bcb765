/* rank_places.h - intervals of a ranking's scores, and the places that each head may have. */
#ifndef HL_PRUNE_RANK_PLACES_H
#define HL_PRUNE_RANK_PLACES_H

#include "headlight/prune.h"

/* Sets ranking->places; leaves it NULL for rankers whose scores are not known per window. */
hl_status hl_rank_find_places(hl_ranking *ranking, const hl_rank_inputs *inputs);

#endif
