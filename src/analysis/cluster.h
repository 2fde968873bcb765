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

/* Two groups, each named by one of its points, are joined into one. */
typedef struct hl_merge {
    int32_t a;
    int32_t b;
    float   height; /* distance between the two groups */
} hl_merge;

/* Computes Euclidean distances: out (n, n) from points (n, d). */
void hl_distances(float *out, const double *points, int64_t n, int64_t d);
/* Joins all points: out (n - 1) joins, nearest groups first. distances (n, n) is not changed. */
hl_status hl_ward(hl_merge *out, const float *distances, int64_t n);
/* Cuts the joins into n_groups: labels (n) from 0 to n_groups - 1, numbered by their first
 * points. */
hl_status hl_cut(int32_t *labels, const hl_merge *merges, int64_t n, int64_t n_groups);

/* Computes the mean silhouette: how much nearer points are to their own group than to the next,
 * from -1 to 1. A point that is alone in its group counts as 0. NaN for fewer than two groups. */
hl_status hl_silhouette(double *out, const float *distances, const int32_t *labels, int64_t n,
                        int64_t n_groups);
/* Computes the adjusted Rand index of two divisions of the same points: 1 if they are equal, 0
 * if they agree as much as by chance. */
hl_status hl_adjusted_rand(double *out, const int32_t *a, const int32_t *b, int64_t n);

/* The agreement of `labels` with new divisions of random 80% of the points: mean and lowest
 * adjusted Rand index of n_trials. */
typedef struct hl_stability {
    double mean;
    double least;
} hl_stability;
hl_status hl_cluster_stability(hl_stability *out, const float *distances, const int32_t *labels,
                               int64_t n, int64_t n_groups, int64_t n_trials, uint64_t seed);

/* Assigns a column to each row such that the sum of the costs is lowest. There are at least as many
 * columns as rows, and costs are finite. Takes O(n_rows^2 n_columns).
 *
 *     out   (n_rows) columns
 *     cost  (n_rows, n_columns) */
hl_status hl_assign(int64_t *out, const double *cost, int64_t n_rows, int64_t n_columns);

#endif
