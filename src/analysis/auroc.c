/* auroc.c - pairs are counted in one pass over cases in the order of their scores: a
 * positive case beats all negative ones before it, and half of those that equal it.  The order is
 * the same for every draw; only how often each case counts differs. */
#include "analysis/auroc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/random.h"
#include "base/memory.h"
#include "base/status.h"

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

static hl_status sort_cases(scored **out, const double *scores, int64_t count)
{
    hl_status status = HL_ALLOC(out, (size_t)count);

    for (int64_t i = 0; i < count && status == HL_OK; i++)
        (*out)[i] = (scored){ scores[i], i };
    if (status == HL_OK)
        qsort(*out, (size_t)count, sizeof **out, by_score);
    return status;
}

/* times (n_groups): how often each group counts. */
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

hl_status hl_auroc(double *out, const double *scores, const hl_cases *cases)
{
    hl_status status = HL_OK;
    scored   *sorted = NULL;
    int64_t  *times  = NULL;

    HL_TRY(sort_cases(&sorted, scores, cases->count));
    HL_TRY(HL_ALLOC(&times, (size_t)cases->n_groups));
    for (int64_t i = 0; i < cases->n_groups; i++)
        times[i] = 1;
    *out = area(sorted, cases, times);

done:
    hl_free(times);
    hl_free(sorted);
    return status;
}

hl_status hl_auroc_draws(double *out, const double *scores, const hl_cases *cases, int64_t n_draws,
                         uint64_t seed)
{
    hl_status status = HL_OK;
    scored   *sorted = NULL;
    int64_t  *times  = NULL;
    hl_random random = { seed };

    HL_TRY(sort_cases(&sorted, scores, cases->count));
    HL_TRY(HL_ALLOC(&times, (size_t)cases->n_groups));
    for (int64_t draw = 0; draw < n_draws; draw++) {
        memset(times, 0, (size_t)cases->n_groups * sizeof *times);
        for (int64_t i = 0; i < cases->n_groups; i++)
            times[hl_random_below(&random, cases->n_groups)]++;
        out[draw] = area(sorted, cases, times);
    }

done:
    hl_free(times);
    hl_free(sorted);
    return status;
}
