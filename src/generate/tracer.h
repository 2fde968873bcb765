/* tracer.h - internal functions of hl_tracer, which records a text while it is generated and is
 * declared in headlight.h. */
#ifndef HL_GENERATE_TRACER_H
#define HL_GENERATE_TRACER_H

#include "base/memory.h"
#include "headlight/trace.h"
#include "model/config.h"
#include "stats/profile_add.h"

HL_CLOSES(hl_tracer_close, hl_tracer)

/* Announces that the next feed ends with the token at `position`, whose row predicts the token
 * that is added next; later tokens come one by one.  Needed only where tokens are fed that were
 * neither announced nor added.  A row at the position of the last one (after a rewind), or right
 * after it, is compared with that one. */
void hl_tracer_begin(hl_tracer *tracer, int64_t position);

/* The keys that a position sees in a layer. */
hl_visible_keys hl_trace_seen(const hl_config *config, int64_t layer, int64_t position);

/* Cache of the last logarithm computed: consecutive layers need the same one. */
typedef struct hl_trace_log {
    int64_t n;
    double  inverse; /* 1 / log n; 0 if n < 2 */
} hl_trace_log;

/* Writes row `row` of sequence number `sequence` in `rows` to out[which], (n_heads of the layer);
 * NULL entries are skipped.  HL_TRACE_CHANGE needs whole rows and is NaN here.  `known` begins as
 * zeros. */
void hl_trace_read_row(float *const out[HL_N_TRACE_ROWS], hl_trace_log *known,
                       const hl_config *config, const hl_layer_rows *rows, int64_t sequence,
                       int64_t row);

/* The spike score of the row at `position`, given the normalized entropies of all heads; NaN if
 * there is no score.  Rows before given tokens (those of a prompt) are learned instead of scored.
 * Rows that see fewer than HL_NORMALIZED_KEYS keys say little about a head and are neither learned
 * nor scored. */
double hl_trace_spike(hl_spikes *spikes, const float *row, int64_t position, bool is_given);

/* Whether text[begin, end), after spaces and opening marks, begins a word that starts with a
 * capital letter or contains a digit, and is not the pronoun I.  text[0, begin) is the text before it.  Any bytes are
 * allowed; bytes that are not UTF-8 do not count as letters. */
bool hl_begins_entity(const char *text, size_t begin, size_t end);

#endif
