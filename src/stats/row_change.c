/* row_change.c - how far a head's attention has moved from one row to another. */
#include "stats/row_change.h"

#include <math.h>

/* Over some keys: sums of |p - q| and of p - q, in four parts each. */
typedef struct difference {
    double apart[4];
    double moved[4];
} difference;

static void add_keys(difference *to, const float *p, const float *q, int64_t begin, int64_t end)
{
    difference sums = *to;
    int64_t    key  = begin;

    for (; key + 4 <= end; key += 4) {
        for (int i = 0; i < 4; i++) {
            double d = (double)p[key + i] - (double)q[key + i];
            sums.apart[i] += fabs(d);
            sums.moved[i] += d;
        }
    }
    for (; key < end; key++) {
        double d = (double)p[key] - (double)q[key];
        sums.apart[0] += fabs(d);
        sums.moved[0] += d;
    }
    *to = sums;
}

static double sum_of_four(const double *parts)
{
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

double hl_row_change(const float *p, const float *q, hl_seen_keys now, hl_seen_keys before)
{
    hl_seen_keys both = now.gap_end > before.gap_end ? now : before; /* gaps begin at one key */
    difference   sums = { { 0 }, { 0 } };

    both.begin = now.begin > before.begin ? now.begin : before.begin;
    both.end   = now.end < before.end ? now.end : before.end;
    if (both.gap < both.gap_end) {
        add_keys(&sums, p, q, both.begin, both.gap);
        add_keys(&sums, p, q, both.gap_end, both.end);
    } else {
        add_keys(&sums, p, q, both.begin, both.end);
    }
    return fmin(0.5 * (sum_of_four(sums.apart) + fabs(sum_of_four(sums.moved))), 1.0);
}
