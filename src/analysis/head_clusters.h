/* head_clusters.h - heads that behave alike, whatever layer they are in.
 *
 * A head is a point: its entropy by position (as a share of the largest there), its fair
 * entropy and lookback by token type, and its pattern metrics with and without the
 * first key: all from 0 to 1, the three groups with equal weight however many numbers they
 * have.  Ward's method divides the points;
 * the number of groups is the one with the widest silhouette.  How much of that would
 * survive if a fifth of the heads were not there is stated beside it. */
#ifndef HL_ANALYSIS_HEAD_CLUSTERS_H
#define HL_ANALYSIS_HEAD_CLUSTERS_H

#include "analysis/cluster.h"
#include "headlight.h"
#include "stats/profile.h"

enum { HL_MAX_CLUSTERS = 8, HL_MAX_CLUSTERED = 16384 };

typedef struct hl_head_clusters {
    int64_t      n_heads;                  /* that were counted */
    int64_t     *places;                   /* (n_heads) in the grid */
    int32_t     *labels;                   /* (n_heads) */
    int64_t      n_clusters;               /* 1: too few heads, or all alike */
    int64_t      medoids[HL_MAX_CLUSTERS]; /* the place of the head nearest to all of its cluster */
    double       silhouette;               /* NaN of one cluster */
    hl_stability stability;
    int64_t      n_features; /* that differ between heads */
} hl_head_clusters;

hl_status hl_head_clusters_new(hl_head_clusters **out, const hl_profile *profile, uint64_t seed);
void      hl_head_clusters_free(hl_head_clusters *clusters);

#endif
