/* trace_row.c - one row of a layer: entropies, and the shares of attention by kind of token. */
#include "measure/trace_row.h"

#include <math.h>

hl_seen_keys hl_trace_seen(const hl_config *config, int64_t layer, int64_t position)
{
    const hl_layer_config *at   = &config->layers[layer];
    hl_profile_mask        mask = { .is_causal   = true,
                                    .has_window  = at->is_local,
                                    .window_left = at->window_left,
                                    .window_sink = at->window_sink };

    return hl_profile_seen(&mask, position, position + 1);
}

static void put(float *out, int64_t head, double value)
{
    if (out != NULL)
        out[head] = (float)value;
}

void hl_trace_read_row(float *const out[HL_N_TRACE_ROWS], const hl_config *config,
                       const hl_layer_rows *rows, int64_t sequence, int64_t row)
{
    const hl_attention_result *from = rows->rows;
    hl_seen_keys seen    = hl_trace_seen(config, rows->layer, rows->start[sequence] + row);
    int64_t      n_keys  = hl_seen_count(seen);
    int64_t      n       = n_keys + (config->sinks ? 1 : 0);
    double       inverse = n >= 2 ? 1.0 / log((double)n) : 0.0;
    bool         others  = n_keys > (seen.begin == 0 ? 1 : 0);

    for (int64_t head = 0; head < rows->n_heads; head++) {
        int64_t at = (sequence * rows->n_heads + head) * rows->n_rows + row;

        put(out[HL_TRACE_ENTROPY], head, (double)from->entropy[at]);
        put(out[HL_TRACE_NORMALISED], head, (double)from->entropy[at] * inverse);
        put(out[HL_TRACE_CHANGE], head, NAN);
        put(out[HL_TRACE_RENYI2], head, (double)from->renyi2[at]);
        put(out[HL_TRACE_NOSINK], head, others ? (double)from->entropy_nosink[at] : NAN);
        for (int kind = 0; kind < HL_N_KINDS; kind++)
            put(out[HL_TRACE_LOOKBACK + kind], head,
                rows->n_segments == HL_N_KINDS ? (double)from->segment_mass[at * HL_N_KINDS + kind]
                                               : NAN);
    }
}
