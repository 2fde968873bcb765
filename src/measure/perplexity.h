/* perplexity.h - the windows of a text; the rest is in headlight.h. */
#ifndef HL_MEASURE_PERPLEXITY_H
#define HL_MEASURE_PERPLEXITY_H

#include "headlight.h"

/* Tokens [begin, end) of a text, of which [first, end) are scored; first > begin. */
typedef struct hl_window {
    int64_t begin;
    int64_t first;
    int64_t end;
} hl_window;

/* How many windows a text has, and window `index` of them. */
int64_t   hl_window_count(int64_t n_tokens, int64_t n_ctx, int64_t stride);
hl_window hl_window_at(int64_t n_tokens, int64_t n_ctx, int64_t stride, int64_t index);

#endif
