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

/* out (n_heads), or NULL, gets what lies `stride` apart in `from`; NaN where that is NULL. */
static void put(float *out, const float *from, int64_t n_heads, int64_t stride)
{
    for (int64_t head = 0; out != NULL && head < n_heads; head++)
        out[head] = from != NULL ? from[head * stride] : NAN;
}

/* Entropies as shares of the most that there can be. */
static void put_shares(float *out, const float *from, int64_t n_heads, int64_t stride,
                       double inverse)
{
    for (int64_t head = 0; out != NULL && head < n_heads; head++)
        out[head] = (float)((double)from[head * stride] * inverse);
}

static double inverse_log(hl_trace_log *known, int64_t n)
{
    if (known->n != n)
        *known = (hl_trace_log){ n, n >= 2 ? 1.0 / log((double)n) : 0.0 };
    return known->inverse;
}

void hl_trace_read_row(float *const out[HL_N_TRACE_ROWS], hl_trace_log *known,
                       const hl_config *config, const hl_layer_rows *rows, int64_t sequence,
                       int64_t row)
{
    const hl_attention_result *from = rows->rows;
    hl_seen_keys seen    = hl_trace_seen(config, rows->layer, rows->start[sequence] + row);
    int64_t      n_keys  = hl_seen_count(seen);
    bool         others  = n_keys > (seen.begin == 0 ? 1 : 0);
    int64_t      n_heads = rows->n_heads;
    int64_t      stride  = rows->n_rows;
    int64_t      at      = sequence * n_heads * stride + row;

    put(out[HL_TRACE_ENTROPY], from->entropy + at, n_heads, stride);
    put_shares(out[HL_TRACE_NORMALISED], from->entropy + at, n_heads, stride,
               inverse_log(known, n_keys + (config->sinks ? 1 : 0)));
    put(out[HL_TRACE_CHANGE], NULL, n_heads, stride);
    put(out[HL_TRACE_RENYI2], from->renyi2 + at, n_heads, stride);
    put(out[HL_TRACE_NOSINK], others ? from->entropy_nosink + at : NULL, n_heads, stride);
    for (int kind = 0; kind < HL_N_KINDS; kind++) {
        const float *mass =
            rows->n_segments == HL_N_KINDS ? from->segment_mass + at * HL_N_KINDS + kind : NULL;
        put(out[HL_TRACE_LOOKBACK + kind], mass, n_heads, stride * HL_N_KINDS);
    }
}
