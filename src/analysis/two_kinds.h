/* two_kinds.h - two kinds of cases: how well a number tells them apart, and a model that learns to. */
#ifndef HL_ANALYSIS_TWO_KINDS_H
#define HL_ANALYSIS_TWO_KINDS_H

#include "base/interval.h"

/* -------------------------------------------------------------------- AUROC */

/* The area under the ROC curve is the share of pairs, one case of each kind, in which the
 * positive one has the larger score; a tie is half a pair.  0.5 is chance. */
typedef struct hl_cases {
    const uint8_t *is_positive; /* (count) */
    const int64_t *groups;      /* (count) which are drawn together: 0 ... n_groups - 1 */
    int64_t        count;
    int64_t        n_groups;
} hl_cases;

/* scores (count), none NaN.  NaN where there are no two kinds. */
hl_status hl_auroc(double *out, const double *scores, const hl_cases *cases);
/* The same with each group left out: out (n_groups + 1), last of all groups.  NaN where but one kind
 * is left. */
hl_status hl_auroc_left_out(double *out, const double *scores, const hl_cases *cases);
/* The interval of an AUROC from these.  An area near 1 has few pairs in the wrong order, of which the
 * jackknife of few groups may see none; so the error is at least that of independent cases (Hanley
 * and McNeil 1982) of an area that has half a case more on the wrong side. */
hl_interval hl_auroc_interval(const double *left_out, const hl_cases *cases, hl_units units);

/* ----------------------------------------------------------- logistic model */

/* A penalized model of which kind a case is: finds the one minimum of
 *
 *     sum_i log(1 + exp(-s_i f(x_i))) + l2/2 |w|^2,    f(x) = w.x + b,    s_i = +1 or -1
 *
 * by Newton's method; each step is solved by conjugate gradients, so that no matrix of
 * features by features is formed.  The same numbers give the same model everywhere.
 *
 * weights (n_features + 1), b last; x (n_cases, n_features); l2 > 0. */
hl_status hl_logistic_fit(double *weights, const double *x, const uint8_t *is_positive,
                          int64_t n_cases, int64_t n_features, double l2);
/* f(x). */
double hl_logistic_score(const double *weights, const double *x, int64_t n_features);

#endif
