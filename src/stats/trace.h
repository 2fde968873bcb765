/* trace.h - what was seen of every token while a text was generated.
 *
 * The public part (hl_trace_load, _write and the questions) is in headlight.h;
 * doc/trace.md describes the file.  Here is what a recorder needs: a trace that grows. */
#ifndef HL_STATS_TRACE_H
#define HL_STATS_TRACE_H

#include "headlight.h"

#define HL_TRACE_FORMAT "headlight trace 1"

enum { HL_TRACE_N_NUMBERS = 3 };

struct hl_trace {
    int64_t  n_tokens;
    int64_t  capacity;
    int64_t  n_layers;
    int64_t  n_heads;                     /* the most of any layer */
    int64_t *ids;                         /* (n_tokens) */
    double  *numbers[HL_TRACE_N_NUMBERS]; /* (n_tokens): logprob, entropy, varentropy */
    float   *rows[HL_N_TRACE_ROWS];       /* (n_tokens, n_layers, n_heads) */
};

hl_status hl_trace_new(hl_trace **out, int64_t n_layers, int64_t n_heads);
/* rows[i] (n_layers, n_heads) of each kind; copied. */
hl_status hl_trace_add(hl_trace *trace, const hl_generated *token,
                       const float *const rows[HL_N_TRACE_ROWS]);
/* From memory; `where` names it in messages.  Nothing of it is needed afterwards. */
hl_status hl_trace_parse(hl_trace **out, const uint8_t *bytes, size_t n_bytes, const char *where);
/* Room for so many tokens. */
hl_status hl_trace_reserve(hl_trace *trace, int64_t n_tokens);

#endif
