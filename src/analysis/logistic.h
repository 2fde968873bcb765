/* logistic.h - a logistic model with a penalty: which of two kinds is a case?
 *
 * Finds the one minimum of
 *
 *     sum_i log(1 + exp(-s_i f(x_i))) + l2/2 |w|^2,    f(x) = w.x + b,    s_i = +1 or -1
 *
 * by Newton's method; each step is solved by conjugate gradients, so that no matrix of
 * features by features is formed.  The same numbers give the same model everywhere. */
#ifndef HL_ANALYSIS_LOGISTIC_H
#define HL_ANALYSIS_LOGISTIC_H

#include "headlight.h"

/* weights (n_features + 1), b last; x (n_cases, n_features); l2 > 0. */
hl_status hl_logistic_fit(double *weights, const double *x, const uint8_t *is_positive,
                          int64_t n_cases, int64_t n_features, double l2);
/* f(x). */
double hl_logistic_score(const double *weights, const double *x, int64_t n_features);

#endif
