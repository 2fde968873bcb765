/* tracer.h - what is kept of a text that is being generated; hl_tracer is in headlight.h. */
#ifndef HL_GENERATE_TRACER_H
#define HL_GENERATE_TRACER_H

#include "base/memory.h"
#include "headlight/trace.h"
#include "model/config.h"
#include "stats/profile_add.h"

HL_CLOSES(hl_tracer_close, hl_tracer)

/* The next feed ends with the token at `position`, and its row leads to the token that is added
 * next; from there on they come one by one.  Needed only where tokens are fed that were neither
 * announced nor added.  A row at the place of the last one (after a rewind) or right
 * after it is compared with that. */
void hl_tracer_begin(hl_tracer *tracer, int64_t position);

/* The keys that a position sees in a layer. */
hl_visible_keys hl_trace_seen(const hl_config *config, int64_t layer, int64_t position);

/* The last logarithm that was asked for: one layer after the other wants the same. */
typedef struct hl_trace_log {
    int64_t n;
    double  inverse; /* of log n; 0 where n < 2 */
} hl_trace_log;

/* out[which] (n_heads of the layer) gets row `row` of number `sequence` in `rows`; NULL: not
 * wanted.  HL_TRACE_CHANGE, which needs whole rows, is NaN.  `known` begins as zeros. */
void hl_trace_read_row(float *const out[HL_N_TRACE_ROWS], hl_trace_log *known,
                       const hl_config *config, const hl_layer_rows *rows, int64_t sequence,
                       int64_t row);

/* The score of the row at `position`, the normalized entropies of all heads, that led to a token;
 * NaN where there is none.  Rows before tokens that were given (those of a prompt) are learned; rows that see
 * fewer than HL_FAIR_KEYS keys say little of how a head looks around, and are neither. */
double hl_trace_spike(hl_spikes *spikes, const float *row, int64_t position, bool is_given);

/* Does text[begin, end) begin a word, after spaces and opening marks, that starts with a
 * capital letter or has a digit in it (as far as it goes)?  text[0, begin) is what stands
 * before.  Any bytes will do; what is not UTF-8 is no letter. */
bool hl_begins_entity(const char *text, size_t begin, size_t end);

#endif
