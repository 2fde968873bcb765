/* grid.h - a profile's numbers as plain arrays, a place for every layer and head. */
#ifndef HL_ANALYSIS_GRID_H
#define HL_ANALYSIS_GRID_H

#include "headlight.h"
#include "stats/profile.h"

enum { HL_HEAD_NAME_BYTES = 48 };

/* "L5H3"; returns `room`. */
const char *hl_head_name(char room[HL_HEAD_NAME_BYTES], int64_t layer, int64_t head);

/* Runs through the heads that there are. */
#define HL_EACH_HEAD(profile, layer, head)                                                         \
    for (int64_t layer = 0; (layer) < hl_profile_n_layers(profile); (layer)++)                     \
        for (int64_t head = 0; (head) < hl_profile_heads_of(profile, layer); (head)++)

/* How many places a grid has. */
static inline int64_t hl_grid_size(const hl_profile *profile)
{
    return hl_profile_n_layers(profile) * hl_profile_n_heads(profile);
}

/* Is there such a head?  Layers may have fewer heads than the grid has places. */
static inline bool hl_grid_has(const hl_profile *profile, int64_t place)
{
    int64_t n_heads = hl_profile_n_heads(profile);

    return place % n_heads < hl_profile_heads_of(profile, place / n_heads);
}

/* How alike two heads of a layer are beside the first key, from 1 down: their rows' mean distance
 * (total variation) on the other keys, relative to the mass that they put there,
 *
 *     1 - (distance - |sink_a - sink_b| / 2) / (1 - (sink_a + sink_b) / 2)
 *
 * with all means over the sampled rows.  Two sinks whose rows agree because 97% of both is on the
 * first key have nothing else in common by that; what the other 3% look at decides.  The mean of
 * |a(0) - b(0)| is not below the difference of the means, so this is a lower bound.  0 at least, and
 * where nothing is left beside the first key; NaN where the rows were not compared. */
double hl_similarity_beside_first(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);
/* The less of the similarity on all keys and of that: what makes a pair redundant. */
double hl_similarity_in_common(const hl_profile *profile, int64_t layer, int64_t a, int64_t b);

/* *out (n_layers, n_heads), to be released with hl_free: a quantity's means.  NaN where nothing was
 * counted or there is no head. */
hl_status hl_grid_means(double **out, const hl_profile *profile, hl_quantity quantity);
/* *out (n_sequences, n_layers, n_heads): the means of every kept sequence.  ENTROPY, FAIR or
 * NOSINK. */
hl_status hl_grid_sequences(double **out, const hl_profile *profile, hl_quantity quantity);
/* *out (n_layers, n_heads) intervals of the heads' means, 95% by the bootstrap; NaN with fewer than
 * two sequences. */
struct hl_interval;
hl_status hl_grid_intervals(struct hl_interval **out, const hl_profile *profile,
                            hl_quantity quantity, uint64_t seed);

#endif
