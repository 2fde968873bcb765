/* two_kinds.c - the area under the ROC curve by sorting, and a sparse logistic model by Newton's
 * method. */
#include "analysis/two_kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { MAX_STEPS = 100, MAX_HALVINGS = 40, MAX_SWEEPS = 10000, N_PENALTIES = 16, PATIENCE = 6 };
#define SMALL_FALL    1e-10  /* of the mean loss, by a step of Newton's method */
#define SMALL_MOVE    1e-6   /* of a weight, by a sweep; features have a deviation of about 1 */
#define PENALTY_RATIO 0.7024 /* 0.7024^15 = 1/200 */

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

hl_status hl_auroc_left_out(double *out, const double *scores, const hl_cases *cases)
{
    HL_FREED scored  *sorted = NULL;
    HL_FREED int64_t *times  = NULL;

    HL_NEED(HL_ALLOC(&sorted, (size_t)cases->count));
    HL_NEED(HL_ALLOC(&times, (size_t)cases->n_groups));
    for (int64_t i = 0; i < cases->count; i++)
        sorted[i] = (scored){ scores[i], i };
    qsort(sorted, (size_t)cases->count, sizeof *sorted, by_score);
    for (int64_t left = 0; left <= cases->n_groups; left++) {
        for (int64_t i = 0; i < cases->n_groups; i++)
            times[i] = i != left;
        out[left] = area(sorted, cases, times);
    }
    return HL_OK;
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
    hl_interval out = hl_interval_of(
        center, (hl_error){ fmax(error, least), (double)(n_real - 1), skewness, 0.0 },
        HL_SCALE_SHARE, n_real, units);
    out.low  = fmin(out.low, value); /* the center differs slightly from the value */
    out.high = fmax(out.high, value);
    return out;
}

/* ----------------------------------------------------------- logistic model */

/* With p = 1 / (1 + exp(-f)) and v = p (1 - p), a step d of (w, b) minimizes
 *
 *     1/n sum_i ((p_i - y_i) u_i + v_i u_i^2 / 2) + l1 |w + d|_1,    u = X d + d_b
 *
 * one coordinate at a time, and sweeps over weights that are not 0 until none moves.  A step
 * that does not lower the loss enough is halved. */

typedef struct problem {
    const hl_logistic_cases *cases;
    double                   l1;
    int64_t                  n, d;
    double                  *columns; /* (d, n) x, each feature's values side by side */
    double                  *away;    /* (n) (p - y) / n */
    double                  *bend;    /* (n) p (1 - p) / n */
    double                  *moved;   /* (n) u */
    double                  *f;       /* (n) w.x + b */
    double                  *curves;  /* (d + 1) sum of bend x^2 */
    double                  *step;    /* (d + 1) */
} problem;

double hl_logistic_score(const double *weights, const double *x, int64_t n_features)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n_features; i++)
        sum += weights[i] * x[i];
    return sum;
}

/* log(1 + exp(f)) without overflow. */
static double softplus(double f)
{
    return fmax(f, 0.0) + log1p(exp(-fabs(f)));
}

/* The mean loss if `share` of the step were made. */
static double objective(const problem *q, const double *w, double share)
{
    double sum = 0.0, size = 0.0;

    for (int64_t i = 0; i < q->n; i++) {
        double f = q->f[i] + share * q->moved[i];
        sum += softplus(q->cases->is_positive[i] ? -f : f);
    }
    for (int64_t j = 0; j < q->d; j++)
        size += fabs(w[j] + share * q->step[j]);
    return sum / (double)q->n + q->l1 * size;
}

static const double *column_of(const problem *q, int64_t j)
{
    return q->columns + j * q->n;
}

/* Prepares the parabola at w. */
static void look_around(problem *q, const double *w)
{
    for (int64_t i = 0; i < q->n; i++)
        q->f[i] = w[q->d];
    for (int64_t j = 0; j < q->d; j++)
        for (int64_t i = 0; i < q->n && w[j] != 0.0; i++)
            q->f[i] += w[j] * column_of(q, j)[i];
    for (int64_t i = 0; i < q->n; i++) {
        double p   = 1.0 / (1.0 + exp(-q->f[i]));
        q->away[i] = (p - (q->cases->is_positive[i] ? 1.0 : 0.0)) / (double)q->n;
        q->bend[i] = fmax(p * (1.0 - p), 1e-6) / (double)q->n;
    }
    for (int64_t j = 0; j <= q->d; j++) {
        const double *x = column_of(q, j);
        q->curves[j]    = 0.0;
        for (int64_t i = 0; i < q->n; i++)
            q->curves[j] += q->bend[i] * x[i] * x[i];
    }
    memset(q->step, 0, ((size_t)q->d + 1) * sizeof *q->step);
    memset(q->moved, 0, (size_t)q->n * sizeof *q->moved);
}

/* Sum of (away + bend moved) x: the slope of the parabola.  Four sums side by side are several times
 * as fast as one. */
static double slope_along(const problem *q, const double *x)
{
    double  sums[4] = { 0 };
    int64_t i       = 0;

    for (; i + 4 <= q->n; i += 4)
        for (int64_t k = 0; k < 4; k++)
            sums[k] += (q->away[i + k] + q->bend[i + k] * q->moved[i + k]) * x[i + k];
    for (; i < q->n; i++)
        sums[0] += (q->away[i] + q->bend[i] * q->moved[i]) * x[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Moves one coordinate to the parabola's minimum; returns how far. */
static double move(problem *q, const double *w, int64_t j)
{
    const double *x  = column_of(q, j);
    double        at = w[j] + q->step[j], to = at;

    if (q->curves[j] <= 0.0)
        return 0.0;
    to -= slope_along(q, x) / q->curves[j];
    if (j < q->d)
        to = copysign(fmax(fabs(to) - q->l1 / q->curves[j], 0.0), to);
    if (to == at)
        return 0.0;
    for (int64_t i = 0; i < q->n; i++)
        q->moved[i] += (to - at) * x[i];
    q->step[j] += to - at;
    return fabs(to - at);
}

/* All coordinates, then those that are not 0 until none moves, and so on. */
static void descend(problem *q, const double *w)
{
    bool whole = true;

    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        double most = 0.0;
        for (int64_t j = 0; j <= q->d; j++)
            if (whole || j == q->d || w[j] + q->step[j] != 0.0)
                most = fmax(most, move(q, w, j));
        if (most <= SMALL_MOVE && whole)
            return;
        whole = most <= SMALL_MOVE;
    }
}

/* Makes the step, or as much of it as lowers the loss; returns how much it fell. */
static double walk(problem *q, double *w)
{
    double start = objective(q, w, 0.0);
    double hope = 0.0, share = 1.0;

    for (int64_t i = 0; i < q->n; i++)
        hope += q->away[i] * q->moved[i];
    for (int64_t j = 0; j < q->d; j++)
        hope += q->l1 * (fabs(w[j] + q->step[j]) - fabs(w[j]));
    for (int i = 0; i < MAX_HALVINGS; i++, share *= 0.5) {
        double fall = start - objective(q, w, share);
        if (!(fall > 0.0) || fall < -1e-4 * share * hope)
            continue;
        for (int64_t j = 0; j <= q->d; j++)
            w[j] += share * q->step[j];
        return fall;
    }
    return 0.0;
}

static hl_status open_problem(problem *q, double **room, const hl_logistic_cases *cases)
{
    size_t n = (size_t)cases->n_cases, d = (size_t)cases->n_features;

    *q = (problem){ .cases = cases, .n = cases->n_cases, .d = cases->n_features };
    HL_NEED(hl_alloc((void **)room, n * sizeof **room, d + 5));
    q->columns = *room;
    q->away    = q->columns + (d + 1) * n;
    q->bend    = q->away + n;
    q->moved   = q->bend + n;
    q->f       = q->moved + n;
    for (int64_t i = 0; i < q->n; i++) {
        for (int64_t j = 0; j < q->d; j++)
            q->columns[j * q->n + i] = cases->x[i * q->d + j];
        q->columns[q->d * q->n + i] = 1.0;
    }
    return HL_OK;
}

hl_status hl_logistic_fit(double *weights, const hl_logistic_cases *cases, double l1)
{
    HL_FREED double *room = NULL, *vectors = NULL;
    problem          q;

    HL_NEED(open_problem(&q, &room, cases));
    HL_NEED(HL_ALLOC(&vectors, 2 * ((size_t)q.d + 1)));
    q.l1     = l1;
    q.curves = vectors;
    q.step   = vectors + q.d + 1;
    for (int i = 0; i < MAX_STEPS; i++) {
        look_around(&q, weights);
        descend(&q, weights);
        if (walk(&q, weights) <= SMALL_FALL)
            break;
    }
    return HL_OK;
}

/* The smallest penalty with which all weights are 0. */
static double find_largest_penalty(const hl_logistic_cases *cases)
{
    double share = 0.0, most = 0.0;

    for (int64_t i = 0; i < cases->n_cases; i++)
        share += cases->is_positive[i] ? 1.0 : 0.0;
    share /= (double)cases->n_cases;
    for (int64_t j = 0; j < cases->n_features; j++) {
        double slope = 0.0;
        for (int64_t i = 0; i < cases->n_cases; i++)
            slope +=
                (share - (cases->is_positive[i] ? 1.0 : 0.0)) * cases->x[i * cases->n_features + j];
        most = fmax(most, fabs(slope) / (double)cases->n_cases);
    }
    return fmax(most, 1e-9);
}

/* Copies the cases of all folds but one; returns false if they are all of one kind. */
static bool leave_out(hl_logistic_cases *out, double *x, uint8_t *kinds,
                      const hl_logistic_cases *cases, int64_t fold)
{
    int64_t d = cases->n_features, n = 0, n_positive = 0;

    for (int64_t i = 0; i < cases->n_cases; i++) {
        if (cases->folds[i] == fold)
            continue;
        memcpy(x + n * d, cases->x + i * d, (size_t)d * sizeof *x);
        n_positive += cases->is_positive[i] != 0;
        kinds[n++] = cases->is_positive[i];
    }
    *out = (hl_logistic_cases){ .x = x, .is_positive = kinds, .n_cases = n, .n_features = d };
    return n_positive > 0 && n_positive < n;
}

/* Returns the loss of a left-out fold, predicted by a model of the others; weights are where the
 * search begins. */
static hl_status try_fold(double *loss, double *weights, const hl_logistic_cases *cases,
                          const hl_logistic_cases *rest, double l1, int64_t fold)
{
    int64_t d = cases->n_features;

    HL_NEED(hl_logistic_fit(weights, rest, l1));
    for (int64_t i = 0; i < cases->n_cases; i++) {
        if (cases->folds[i] != fold)
            continue;
        double f = weights[d] + hl_logistic_score(weights, cases->x + i * d, d);
        *loss += softplus(cases->is_positive[i] ? -f : f);
    }
    return HL_OK;
}

/* From the largest penalty down, until the loss of left-out folds has long been rising. */
static hl_status find_penalty(int *best, const hl_logistic_cases *cases, double largest)
{
    HL_FREED double  *x     = NULL; /* (n_cases, d), then (n_folds, d + 1) weights */
    HL_FREED uint8_t *kinds = NULL;
    size_t            n = (size_t)cases->n_cases, d = (size_t)cases->n_features;
    hl_logistic_cases rest;
    double            losses[N_PENALTIES] = { 0 };

    HL_NEED(hl_alloc_zeroed((void **)&x, n + (size_t)cases->n_folds, (d + 1) * sizeof *x));
    HL_NEED(HL_ALLOC(&kinds, n));
    *best = 0;
    for (int k = 0; k < N_PENALTIES && k < *best + PATIENCE; k++) {
        for (int64_t fold = 0; fold < cases->n_folds; fold++) {
            double *weights = x + n * (d + 1) + (size_t)fold * (d + 1);
            if (leave_out(&rest, x, kinds, cases, fold) && rest.n_cases < cases->n_cases)
                HL_NEED(try_fold(&losses[k], weights, cases, &rest, largest * pow(PENALTY_RATIO, k),
                                 fold));
        }
        *best = losses[k] < losses[*best] ? k : *best;
    }
    return HL_OK;
}

hl_status hl_logistic_choose(double *weights, double *l1, const hl_logistic_cases *cases)
{
    double largest = find_largest_penalty(cases);
    int    best    = 0;

    HL_NEED(find_penalty(&best, cases, largest));
    memset(weights, 0, ((size_t)cases->n_features + 1) * sizeof *weights);
    for (int k = 0; k <= best; k++) { /* each begins at the one before, which is near */
        *l1 = largest * pow(PENALTY_RATIO, k);
        HL_NEED(hl_logistic_fit(weights, cases, *l1));
    }
    return HL_OK;
}
