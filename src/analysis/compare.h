/* compare.h - two profiles side by side: what the tables of a comparison are made from. */
#ifndef HL_ANALYSIS_COMPARE_H
#define HL_ANALYSIS_COMPARE_H

#include "headlight.h"
#include "stats/profile.h"

/* The heads' means in draws of sequences: of those that both profiles hold, the same ones in both;
 * or else of each profile's own. */
typedef struct hl_drawn_pair {
    double *a; /* (n_layers * n_heads, n_draws); NULL: too few sequences to draw */
    double *b;
    int64_t n_draws;
} hl_drawn_pair;

typedef struct hl_two_profiles {
    const hl_profile *a;
    const hl_profile *b;
    int64_t           n_layers;
    int64_t           n_heads;
    int64_t          *shared_a; /* (n_shared) sequences of a ... */
    int64_t          *shared_b; /* ... and the same ones in b */
    int64_t           n_shared;
    uint64_t          seed;
} hl_two_profiles;

hl_status hl_draw_pair(hl_drawn_pair *out, const hl_two_profiles *two, hl_quantity quantity);
void      hl_drawn_pair_free(hl_drawn_pair *drawn);

/* How unlike two heads' profiles are, 0 to 1: the mean of the total variations between their
 * histograms (normalised entropy, the same without the first key, peak) and of the differences of
 * diagonal, previous, band, sink and content mass; 1 where nothing can be compared. */
double hl_profile_distance(const hl_profile *a, int64_t head_a, const hl_profile *b, int64_t head_b,
                           int64_t layer);
/* Between two histograms of 64 bins: total variation and Jensen-Shannon. */
double hl_histogram_variation(const int64_t *p, const int64_t *q);
double hl_histogram_divergence(const int64_t *p, const int64_t *q);

/* compare_tables.c */
hl_status hl_compare_ranks(hl_sheet **out, const hl_two_profiles *two);
hl_status hl_compare_metrics(hl_sheet **out, const hl_two_profiles *two);
hl_status hl_compare_layers(hl_sheet **out, const hl_two_profiles *two, const hl_drawn_pair *fair);
hl_status hl_compare_heads(hl_sheet **out, int64_t *n_significant, const hl_two_profiles *two,
                           const hl_drawn_pair *fair);
hl_status hl_compare_differences(hl_sheet **out, const hl_two_profiles *two);
hl_status hl_compare_matching(hl_sheet **out, const hl_two_profiles *two);

#endif
