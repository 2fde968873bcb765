/* two_kinds.h - two kinds of cases: how well a number separates them, and a model that learns
 * to. */
#ifndef HL_ANALYSIS_TWO_KINDS_H
#define HL_ANALYSIS_TWO_KINDS_H

#include "base/interval.h"

/* -------------------------------------------------------------------- AUROC */

/* The area under the ROC curve (AUROC) is the share of pairs, one case of each kind, in which
 * the positive one has the larger score; a tie counts as half. 0.5 is chance. */
typedef struct hl_cases {
    const uint8_t *is_positive; /* (count) */
    const int64_t *groups;      /* (count) unit that is left out together, from 0 to n_groups - 1 */
    int64_t        count;
    int64_t        n_groups;
} hl_cases;

/* Computes the AUROC of scores (count), which must not be NaN, with each group left out: out
 * (n_groups + 1), the last with all groups. NaN if only one kind is left. */
hl_status hl_auroc_left_out(double *out, const double *scores, const hl_cases *cases);
/* Returns the interval of an AUROC from these values. An area near 1 has few pairs in the wrong
 * order, of which the jackknife of a few groups may see none. Therefore the error is at least
 * that of independent cases (Hanley and McNeil 1982) for an area with half a case more on the
 * wrong side. */
hl_interval hl_auroc_interval(const double *left_out, const hl_cases *cases, hl_units units);

/* ----------------------------------------------------------- logistic model */

/* A sparse model of which kind a case is: the minimum of
 *
 *     1/n sum_i log(1 + exp(-s_i f(x_i))) + l1 |w|_1,    f(x) = w.x + b,    s_i = +1 or -1
 *
 * by Newton's method, each step of which is solved by coordinate descent (Friedman, Hastie and
 * Tibshirani 2010).  Most w are exactly 0 where l1 is large.  The same numbers give the same model
 * everywhere.
 *
 * x (n_cases, n_features). */
typedef struct hl_logistic_cases {
    const double  *x;
    const uint8_t *is_positive; /* (n_cases) */
    const int64_t *folds;       /* (n_cases) for hl_logistic_choose, else NULL */
    int64_t        n_cases;
    int64_t        n_features;
    int64_t        n_folds; /* folds are 0 to n_folds - 1; some may be empty */
} hl_logistic_cases;

/* weights (n_features + 1), b last, hold the beginning of the search, such as all 0.  l1 > 0. */
hl_status hl_logistic_fit(double *weights, const hl_logistic_cases *cases, double l1);
/* Also chooses l1: of 16 between the smallest that makes all w 0 and 1/200 of it, the one that
 * predicts left-out folds best (mean log-likelihood). */
hl_status hl_logistic_choose(double *weights, double *l1, const hl_logistic_cases *cases);
/* Returns w.x, without b: where scores of several models are pooled, their b depends on how many
 * cases of each kind the others were trained on. */
double hl_logistic_score(const double *weights, const double *x, int64_t n_features);

#endif
