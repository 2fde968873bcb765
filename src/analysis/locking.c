/* locking.c - has attention stopped moving while the model speaks?
 *
 * Windows slide a token at a time.  Locked is a window whose entropy keeps its level
 * (the drift over the window, |slope| times its length, and the spread are both under a
 * threshold) and whose rows hardly differ from the ones before; but only if the rows of
 * some window that ended before it began did move.  A model that never moved was
 * never free: that is collapse or overload, not locking. */
#include <math.h>

#include "analysis/numbers.h"
#include "analysis/thresholds.h"
#include "base/memory.h"
#include "base/status.h"

typedef struct window {
    double slope;
    double spread;
    double change;
} window;

/* The least-squares slope of values over their places. */
static double slope_of(const double *values, int64_t count)
{
    double middle = 0.5 * (double)(count - 1);
    double mean   = hl_mean(values, count);
    double xy = 0.0, xx = 0.0;

    for (int64_t i = 0; i < count; i++) {
        double x = (double)i - middle;
        xy += x * (values[i] - mean);
        xx += x * x;
    }
    return xx > 0.0 ? xy / xx : 0.0;
}

hl_status hl_find_locking(hl_locking *out, const double *entropy, const double *change,
                          int64_t n_tokens, const hl_thresholds *thresholds)
{
    int64_t length = (int64_t)hl_threshold_of(thresholds, HL_T_LOCKING_WINDOW);
    double  still  = hl_threshold_of(thresholds, HL_T_LOCKING_CHANGE);
    double  level  = hl_threshold_of(thresholds, HL_T_LOCKING_SPREAD);
    bool    moved  = false;

    *out = (hl_locking){ false, -1, NAN, NAN, NAN, 0 };
    if (length < 2)
        return hl_fail(HL_BAD_ARGUMENT, "a window of %lld tokens, at least 2 are needed",
                       (long long)length);
    for (int64_t first = 0; first + length <= n_tokens; first++) {
        window w = { slope_of(entropy + first, length), sqrt(hl_variance(entropy + first, length)),
                     hl_mean(change + first, length) };

        out->n_windows++;
        /* The window that ends where this one begins. */
        if (first >= length)
            moved = moved || hl_mean(change + first - length, length) >= still;
        if (moved && w.change < still && w.spread < level &&
            fabs(w.slope) * (double)length < level) {
            out->locked = true;
            out->first  = first;
            out->slope  = w.slope;
            out->spread = w.spread;
            out->change = w.change;
            return HL_OK;
        }
    }
    return HL_OK;
}
