/* trace_parts.h - a trace that grows, for recorders.
 *
 * Public functions (hl_trace_load, hl_trace_write and others) are in headlight.h; doc/trace.md
 * describes the file.
 *
 * Rows come before their tokens: the values of entry n_tokens can be written once there is room for
 * it, and the token that the row predicted is appended afterwards. */
#ifndef HL_STATS_TRACE_PARTS_H
#define HL_STATS_TRACE_PARTS_H

#include "base/memory.h"
#include "headlight/trace.h"
#include "kernels/pattern_sums.h"

enum { HL_TRACE_LOGPROB = 0, HL_TRACE_VOCABULARY, HL_TRACE_VARENTROPY, HL_TRACE_SPIKE };
enum { HL_TRACE_N_NUMBERS = 4 };

struct hl_trace {
    int64_t  n_tokens;
    int64_t  capacity; /* number of allocated entries */
    int64_t  n_layers;
    int64_t  n_heads;                     /* the maximum over layers */
    int64_t  n_kept;                      /* number of last rows that are kept; 0: all */
    int64_t *ids;                         /* (n_tokens) */
    uint8_t *kinds;                       /* (n_tokens) hl_token_kind */
    uint8_t *entities;                    /* (n_tokens) 0 or 1 */
    int64_t *ends;                        /* (n_tokens) end of each token in `text` */
    double  *numbers[HL_TRACE_N_NUMBERS]; /* (n_tokens) in the order of the enum above */
    float   *rows[HL_N_TRACE_ROWS];       /* (n_tokens or n_kept, n_layers, n_heads) */
    char    *text;                        /* (n_text) text of all tokens */
    size_t   n_text;
    size_t   text_capacity;
};

static inline int64_t hl_trace_cells(const hl_trace *trace)
{
    return trace->n_layers * trace->n_heads;
}

HL_CLOSES(hl_trace_free, hl_trace)

hl_status hl_trace_new(hl_trace **out, int64_t n_layers, int64_t n_heads, int64_t n_kept);
/* Makes room for this number of tokens; new rows are NaN. */
hl_status hl_trace_reserve(hl_trace *trace, int64_t n_tokens);
/* Returns where the (n_layers, n_heads) values of an entry begin in each of `rows`; -1 if they are
 * no longer kept. The entry must be below the capacity. */
int64_t hl_trace_offset(const hl_trace *trace, int64_t entry);
/* Returns the address of an entry's values in one of the rows, or NULL. */
float *hl_trace_at(const hl_trace *trace, int64_t entry, hl_trace_rows which);
/* Appends a token; its numbers are NaN and its text is empty. */
hl_status hl_trace_push(hl_trace *trace, int64_t id, hl_token_kind kind);
/* Appends text to the last token. */
hl_status hl_trace_append_text(hl_trace *trace, const char *text, size_t n_bytes);
/* Cuts the trace to this number of tokens; a row already written for the next token stays. */
void hl_trace_cut(hl_trace *trace, int64_t n_tokens);

/* Parses a trace from memory, which may be freed afterwards; `where` names it in messages. */
hl_status hl_trace_parse(hl_trace **out, const uint8_t *bytes, size_t n_bytes, const char *where);
/* Parses a trace in JSON lines from memory; `where` names it in messages. */
hl_status hl_trace_parse_lines(hl_trace **out, const char *bytes, size_t n_bytes,
                               const char *where);

/* Measures how far a head's attention has moved between two rows: half the sum of |p - q| over the
 * keys that both rows see. Everything else (a new key, one that left the window, a learned sink)
 * counts together as one outcome, so the result is between 0 and 1. p and q are whole rows of one
 * head, beginning with the first key; the mask is the same for both. */
double hl_row_change(const float *p, const float *q, hl_visible_keys now, hl_visible_keys before);

hl_status hl_trace_repetition(hl_repetition *out, const hl_trace *trace);

#endif
