/* perplexity.h - the windows of a text; the rest is in headlight.h. */
#ifndef HL_MEASURE_PERPLEXITY_H
#define HL_MEASURE_PERPLEXITY_H

#include "base/interval.h"
#include "base/memory.h"
#include "headlight/generate.h"

HL_CLOSES(hl_perplexity_close, hl_perplexity)

/* Tokens [begin, end) of a text, of which [first, end) are scored. first > begin, or first = begin
 * if tokens are put before each window. */
typedef struct hl_window {
    int64_t begin;
    int64_t first;
    int64_t end;
} hl_window;

/* How texts are cut into windows. */
typedef struct hl_window_cut {
    int64_t          n_text; /* tokens of the text per window */
    int64_t          stride; /* 1 to n_text */
    hl_around_tokens around;
} hl_window_cut;

/* Makes a cut from complete options.  HL_BAD_ARGUMENT, naming `who`, where there is no room for
 * text or a token put around it is not in the vocabulary. */
hl_status hl_window_cut_make(hl_window_cut *out, int64_t n_ctx, int64_t stride,
                             const hl_around_tokens *around, int64_t d_vocab, const char *who);
/* The number of windows of a text, and window number `index`. */
int64_t   hl_window_count(const hl_window_cut *cut, int64_t n_tokens);
hl_window hl_window_at(const hl_window_cut *cut, int64_t n_tokens, int64_t index);
/* The token at position `at` of a window: first the tokens put before it, then the text's. */
int64_t hl_window_token(const hl_window_cut *cut, const hl_window *window, const int64_t *tokens,
                        int64_t at);
/* The number of positions before the first row that predicts a scored token. */
int64_t hl_window_context(const hl_window_cut *cut, const hl_window *window);

/* --------------------------------------------------------------------- a mean over groups */

/* Sums over groups g (texts or windows).  Each group has a sum s and a count c. */
typedef struct hl_ratio_sums {
    int64_t n;
    double  sum;      /* sum of s */
    double  count;    /* sum of c */
    double  squares;  /* sum of s^2 */
    double  cross;    /* sum of s c */
    double  counts2;  /* sum of c^2 */
    double  cubes[4]; /* sums of s^3, s^2 c, s c^2, c^3 */
    /* s and c of the group with the largest s, and of that with the largest s / c: the one that is
     * farthest above the mean is nearly always one of the two. */
    double most[2][2];
} hl_ratio_sums;

void hl_ratio_add(hl_ratio_sums *sums, double sum, double count);
void hl_ratio_merge(hl_ratio_sums *sums, const hl_ratio_sums *more);
/* The interval of the mean, over texts where there are HL_MIN_UNITS of them, else over windows.  The
 * error is the jackknife's to first order, the ratio estimator's:
 * se^2 = G / (G - 1) * sum (s_g - mean * c_g)^2 / (sum c_g)^2.  Groups of unequal counts count as
 * (sum c)^2 / sum c^2 of equal ones for the degrees of freedom. */
hl_interval hl_ratio_interval(const hl_ratio_sums *windows, const hl_ratio_sums *texts,
                              hl_error_scale scale);

#endif
