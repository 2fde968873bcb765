/* repetition.c - does a text repeat itself?
 *
 *     the cat sat on a mat, and on a mat, and on a mat, and on
 *                    [   period   ]            period 4 here, by tokens
 *                    |<-------- loop: every token equals the one a period before -------->|
 *
 * A loop is a stretch in which every token equals the one `period` tokens before it, and which holds at
 * least three periods.  The longest repeated suffix is found with the Z-function of the reversed text:
 * z[i] is how far the reversed text from i on agrees with its beginning.  Distinct-n is the share
 * of different n-grams (Li et al. 2016). */
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/trace.h"
#include "stats/trace_parts.h"

static int compare_hashes(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;

    return (*a > *b) - (*a < *b);
}

/* The share of n-grams that are different; NaN if there is none.  work (n_tokens). */
static double distinct_share(uint64_t *work, const int64_t *ids, int64_t n_tokens, int64_t n)
{
    int64_t count = n_tokens - n + 1, n_different = 1;

    if (count < 1)
        return (double)NAN;
    for (int64_t i = 0; i < count; i++)
        work[i] = hl_hash(ids + i, (size_t)n * sizeof *ids, 0);
    qsort(work, (size_t)count, sizeof *work, compare_hashes);
    for (int64_t i = 1; i < count; i++)
        n_different += work[i] != work[i - 1];
    return (double)n_different / (double)count;
}

/* z (n_tokens) of the reversed text; the token i of it is ids[n_tokens - 1 - i]. */
static void find_suffix(hl_repetition *out, int64_t *z, const int64_t *ids, int64_t n)
{
    int64_t left = 0, right = 0; /* the stretch that agrees with the beginning and ends furthest */

    for (int64_t i = 1; i < n; i++) {
        z[i] = i < right ? (z[i - left] < right - i ? z[i - left] : right - i) : 0;
        while (i + z[i] < n && ids[n - 1 - z[i]] == ids[n - 1 - i - z[i]])
            z[i]++;
        if (i + z[i] > right) {
            left  = i;
            right = i + z[i];
        }
        if (z[i] > out->suffix) {
            out->suffix   = z[i];
            out->distance = i;
        }
    }
}

/* The longest loop; of equally long ones that of the shortest period. */
static void find_loop(hl_repetition *out, const int64_t *ids, int64_t n)
{
    for (int64_t period = 1; period <= HL_LOOP_MAX_PERIOD; period++) {
        int64_t run = 0;

        for (int64_t i = period; i < n; i++) {
            run = ids[i] == ids[i - period] ? run + 1 : 0;
            if (run < 2 * period || run + period <= out->loop_tokens)
                continue;
            out->period      = period;
            out->loop_tokens = run + period;
            out->first       = i + 1 - out->loop_tokens;
        }
    }
}

hl_status hl_repetition_of(hl_repetition *out, const int64_t *ids, int64_t n_tokens)
{
    HL_FREED uint64_t *work = NULL;

    *out = (hl_repetition){ .n_tokens = n_tokens, .first = -1 };
    HL_NEED(HL_ALLOC(&work, (size_t)n_tokens));
    for (int n = 1; n <= HL_N_DISTINCT; n++)
        out->distinct[n - 1] = distinct_share(work, ids, n_tokens, n);
    find_suffix(out, (int64_t *)work, ids, n_tokens);
    find_loop(out, ids, n_tokens);
    return HL_OK;
}

hl_status hl_trace_repetition(hl_repetition *out, const hl_trace *trace)
{
    HL_FREED int64_t *ids = NULL, *places = NULL; /* of generated tokens */
    int64_t           n = 0;

    HL_NEED(HL_ALLOC(&ids, (size_t)hl_trace_n_tokens(trace)));
    HL_NEED(HL_ALLOC(&places, (size_t)hl_trace_n_tokens(trace)));
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        if (hl_trace_describe(trace, i).kind != HL_KIND_GENERATED)
            continue;
        ids[n]      = hl_trace_token(trace, i).id;
        places[n++] = i;
    }
    HL_NEED(hl_repetition_of(out, ids, n));
    if (out->first >= 0)
        out->first = places[out->first];
    return HL_OK;
}
