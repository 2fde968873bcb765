/* cluster.h - who belongs to whom: groups of points that are close to each other, how much they mean,
 * and pairs.
 *
 *     hl_distances(distances, points, n, d);
 *     hl_ward(merges, distances, n);              once; then for any number of groups
 *     hl_cut(labels, merges, n, n_groups);
 *     hl_silhouette(&width, distances, labels, n, n_groups);
 *
 * Ward's method joins, again and again, the two groups whose union spreads least.  It needs no
 * starting guess, so the same points always give the same groups. */
#ifndef HL_ANALYSIS_CLUSTER_H
#define HL_ANALYSIS_CLUSTER_H

#include "headlight/base.h"

/* Two groups, each named by one of its points, become one. */
typedef struct hl_merge {
    int32_t a;
    int32_t b;
    float   height; /* the distance at which they met */
} hl_merge;

/* Euclidean: out (n, n), points (n, d). */
void hl_distances(float *out, const double *points, int64_t n, int64_t d);
/* out (n - 1), lowest first; distances (n, n) is left as it is. */
hl_status hl_ward(hl_merge *out, const float *distances, int64_t n);
/* labels (n): 0 ... n_groups - 1, numbered in the order in which points meet them. */
hl_status hl_cut(int32_t *labels, const hl_merge *merges, int64_t n, int64_t n_groups);

/* How much nearer points are to their own group than to the next, -1 to 1, on average; a point alone
 * in its group counts as 0.  NaN of fewer than two groups. */
hl_status hl_silhouette(double *out, const float *distances, const int32_t *labels, int64_t n,
                        int64_t n_groups);
/* Do two divisions of the same points agree?  1: the same, 0: as much as chance would have it. */
hl_status hl_adjusted_rand(double *out, const int32_t *a, const int32_t *b, int64_t n);

/* Divides random 80% of the points anew, and compares with what `labels` says of them: the mean and
 * the least adjusted Rand index of n_trials. */
typedef struct hl_stability {
    double mean;
    double least;
} hl_stability;
hl_status hl_cluster_stability(hl_stability *out, const float *distances, const int32_t *labels,
                               int64_t n, int64_t n_groups, int64_t n_trials, uint64_t seed);

/* Every row gets a column of its own so that the sum of the costs is least; there are at least as
 * many columns as rows, and the costs are finite.  O(n_rows^2 n_columns).
 *   out   (n_rows) columns
 *   cost  (n_rows, n_columns) */
hl_status hl_assign(int64_t *out, const double *cost, int64_t n_rows, int64_t n_columns);

#endif
