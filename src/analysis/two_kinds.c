/* two_kinds.c - the area under the ROC curve by sorting, and a logistic model by Newton's method. */
#include "analysis/two_kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { MAX_STEPS = 100, MAX_HALVINGS = 40 };
#define SMALL_GRADIENT 1e-9
#define SMALL_RESIDUAL 1e-12 /* relative limit of the sum of squared residuals */

/* -------------------------------------------------------------------- AUROC */

/* Pairs are counted in one pass over cases sorted by score: a positive case wins against all
 * negative ones before it, and half against those with the same score. When groups are left out
 * the order stays the same; only the weights of cases change. */

typedef struct scored {
    double  score;
    int64_t index;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* times (n_groups): the weight of each group. */
static double area(const scored *sorted, const hl_cases *cases, const int64_t *times)
{
    double below = 0.0, pairs = 0.0, n_positive = 0.0;

    for (int64_t i = 0; i < cases->count;) {
        double positive = 0.0, negative = 0.0;
        double score = sorted[i].score;

        for (; i < cases->count && sorted[i].score == score; i++) {
            int64_t at     = sorted[i].index;
            double  weight = (double)times[cases->groups[at]];
            positive += cases->is_positive[at] ? weight : 0.0;
            negative += cases->is_positive[at] ? 0.0 : weight;
        }
        pairs += positive * (below + 0.5 * negative);
        below += negative;
        n_positive += positive;
    }
    return n_positive > 0.0 && below > 0.0 ? pairs / (n_positive * below) : NAN;
}

/* Computes out (n_areas): area g without group g. If there is no group g, it is the area of all
 * groups. */
static hl_status areas(double *out, const double *scores, const hl_cases *cases, int64_t first,
                       int64_t n_areas)
{
    HL_FREED scored  *sorted = NULL;
    HL_FREED int64_t *times  = NULL;

    HL_NEED(HL_ALLOC(&sorted, (size_t)cases->count));
    HL_NEED(HL_ALLOC(&times, (size_t)cases->n_groups));
    for (int64_t i = 0; i < cases->count; i++)
        sorted[i] = (scored){ scores[i], i };
    qsort(sorted, (size_t)cases->count, sizeof *sorted, by_score);
    for (int64_t left = 0; left < n_areas; left++) {
        for (int64_t i = 0; i < cases->n_groups; i++)
            times[i] = i != first + left;
        out[left] = area(sorted, cases, times);
    }
    return HL_OK;
}

hl_status hl_auroc(double *out, const double *scores, const hl_cases *cases)
{
    return areas(out, scores, cases, cases->n_groups, 1);
}

hl_status hl_auroc_left_out(double *out, const double *scores, const hl_cases *cases)
{
    return areas(out, scores, cases, 0, cases->n_groups + 1);
}

/* Moves an area towards 1/2 by the share 2 k. */
static double shrunk(double area, double k)
{
    return area * (1.0 - 2.0 * k) + k;
}

hl_interval hl_auroc_interval(const double *left_out, const hl_cases *cases, hl_units units)
{
    int64_t n = cases->n_groups, n_real = 0;
    double  p = 0.0, value = left_out[n];

    for (int64_t i = 0; i < cases->count; i++)
        p += cases->is_positive[i] ? 1.0 : 0.0;
    for (int64_t i = 0; i < n; i++)
        n_real += !isnan(left_out[i]);
    double q     = (double)cases->count - p;
    double error = 0.0, cubes = 0.0;
    if (isnan(value) || n_real < HL_MIN_UNITS)
        return hl_no_interval(n_real, units);
    /* Half a pair on either side keeps the logit finite. */
    double center = shrunk(value, 0.5 / (p * q));
    for (int64_t i = 0; i < n; i++) {
        double off = hl_to_scale(shrunk(left_out[i], 0.5 / (p * q)), HL_SCALE_SHARE) -
                     hl_to_scale(center, HL_SCALE_SHARE);
        error += isnan(off) ? 0.0 : off * off;
        cubes -= isnan(off) ? 0.0 : off * off * off;
    }
    double skewness = hl_mean_skewness(error, cubes, (double)n_real);
    error *= (double)(n_real - 1) / (double)n_real;

    double a     = shrunk(value, 0.5 / (fmin(p, q) + 1.0));
    double slope = a * (1.0 - a); /* d area / d logit */
    double least = (a * (1.0 - a) + (p - 1.0) * (a / (2.0 - a) - a * a) +
                    (q - 1.0) * (2.0 * a * a / (1.0 + a) - a * a)) /
                   (p * q) / (slope * slope);
    hl_interval out =
        hl_interval_of(center, (hl_error){ fmax(error, least), (double)(n_real - 1), skewness },
                       HL_SCALE_SHARE, n_real, units);
    out.low  = fmin(out.low, value); /* the center differs slightly from the value */
    out.high = fmax(out.high, value);
    return out;
}

/* ----------------------------------------------------------- logistic model */

/* Newton's method with conjugate gradients.
 *
 * With p = 1 / (1 + exp(-f)) the gradient is X'(p - y) + l2 w and the Hessian
 * X' diag(p (1 - p)) X + l2 I, where X has a column of ones for b, which is not penalized.
 * The function is convex; a step that does not lower it enough is halved. */

typedef struct problem {
    const double  *x;
    const uint8_t *y;
    int64_t        n;
    int64_t        d; /* number of features; vectors have d + 1 values */
    double         l2;
    double        *p;        /* (n) probabilities */
    double        *gradient; /* (d + 1), like the vectors below */
    double        *step;
    double        *residual;
    double        *direction;
    double        *product;
    double        *trial;
} problem;

double hl_logistic_score(const double *weights, const double *x, int64_t n_features)
{
    double sum = weights[n_features];

    for (int64_t i = 0; i < n_features; i++)
        sum += weights[i] * x[i];
    return sum;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static double objective(const problem *q, const double *w)
{
    double sum = 0.5 * q->l2 * dot(w, w, q->d);

    for (int64_t i = 0; i < q->n; i++) {
        double f = hl_logistic_score(w, q->x + i * q->d, q->d);
        f        = q->y[i] ? -f : f;
        sum += fmax(f, 0.0) + log1p(exp(-fabs(f))); /* log(1 + exp(f)) without overflow */
    }
    return sum;
}

/* Also computes p for the Hessian. Returns the largest absolute value of the gradient. */
static double find_gradient(problem *q, const double *w)
{
    double most = 0.0;

    for (int64_t j = 0; j < q->d; j++)
        q->gradient[j] = q->l2 * w[j];
    q->gradient[q->d] = 0.0;
    for (int64_t i = 0; i < q->n; i++) {
        const double *x = q->x + i * q->d;
        q->p[i]         = 1.0 / (1.0 + exp(-hl_logistic_score(w, x, q->d)));
        double away     = q->p[i] - (q->y[i] ? 1.0 : 0.0);
        for (int64_t j = 0; j < q->d; j++)
            q->gradient[j] += away * x[j];
        q->gradient[q->d] += away;
    }
    for (int64_t j = 0; j <= q->d; j++)
        most = fmax(most, fabs(q->gradient[j]));
    return most;
}

/* Computes product = Hessian times direction. */
static void multiply(problem *q)
{
    for (int64_t j = 0; j < q->d; j++)
        q->product[j] = q->l2 * q->direction[j];
    q->product[q->d] = 0.0;
    for (int64_t i = 0; i < q->n; i++) {
        const double *x      = q->x + i * q->d;
        double        weight = q->p[i] * (1.0 - q->p[i]) * hl_logistic_score(q->direction, x, q->d);
        for (int64_t j = 0; j < q->d; j++)
            q->product[j] += weight * x[j];
        q->product[q->d] += weight;
    }
}

/* Computes step = Hessian^-1 gradient. */
static void solve(problem *q)
{
    int64_t n      = q->d + 1;
    double  before = dot(q->gradient, q->gradient, n);
    double  enough = SMALL_RESIDUAL * before;

    memset(q->step, 0, (size_t)n * sizeof *q->step);
    memcpy(q->residual, q->gradient, (size_t)n * sizeof *q->residual);
    memcpy(q->direction, q->gradient, (size_t)n * sizeof *q->direction);
    for (int64_t round = 0; round < 2 * n && before > enough; round++) {
        multiply(q);
        double curvature = dot(q->direction, q->product, n);
        if (curvature <= 0.0)
            break; /* as exact as rounding permits */
        double length = before / curvature;
        for (int64_t j = 0; j < n; j++) {
            q->step[j] += length * q->direction[j];
            q->residual[j] -= length * q->product[j];
        }
        double after = dot(q->residual, q->residual, n);
        for (int64_t j = 0; j < n; j++)
            q->direction[j] = q->residual[j] + after / before * q->direction[j];
        before = after;
    }
}

/* Moves along the step as far as the loss falls; returns false if it does not fall. */
static bool walk(problem *q, double *w)
{
    double start = objective(q, w);
    double slope = dot(q->gradient, q->step, q->d + 1);
    double share = 1.0;

    for (int i = 0; i < MAX_HALVINGS; i++, share *= 0.5) {
        for (int64_t j = 0; j <= q->d; j++)
            q->trial[j] = w[j] - share * q->step[j];
        if (objective(q, q->trial) <= start - 1e-4 * share * slope) {
            memcpy(w, q->trial, ((size_t)q->d + 1) * sizeof *w);
            return true;
        }
    }
    return false;
}

hl_status hl_logistic_fit(double *weights, const double *x, const uint8_t *is_positive,
                          int64_t n_cases, int64_t n_features, double l2)
{
    size_t           size = (size_t)n_features + 1;
    HL_FREED double *room = NULL; /* (n_cases) p, then six vectors */
    problem          q    = { .x = x, .y = is_positive, .n = n_cases, .d = n_features, .l2 = l2 };
    double **vectors[] = { &q.gradient, &q.step, &q.residual, &q.direction, &q.product, &q.trial };
    enum { N_VECTORS = sizeof vectors / sizeof *vectors };

    memset(weights, 0, size * sizeof *weights);
    HL_NEED(HL_ALLOC(&room, (size_t)n_cases + N_VECTORS * size));
    q.p = room;
    for (size_t i = 0; i < N_VECTORS; i++)
        *vectors[i] = room + (size_t)n_cases + i * size;
    for (int i = 0; i < MAX_STEPS && find_gradient(&q, weights) > SMALL_GRADIENT; i++) {
        solve(&q);
        if (!walk(&q, weights))
            break;
    }
    return HL_OK;
}
