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

/* Entropies as shares of log n, the most that n outcomes can have. */
static void put_shares(float *out, const float *from, int64_t n_heads, int64_t stride, int64_t n)
{
    double inverse = n >= 2 ? 1.0 / log((double)n) : 0.0;

    for (int64_t head = 0; out != NULL && head < n_heads; head++)
        out[head] = (float)((double)from[head * stride] * inverse);
}

void hl_trace_read_row(float *const out[HL_N_TRACE_ROWS], const hl_config *config,
                       const hl_layer_rows *rows, int64_t sequence, int64_t row)
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
               n_keys + (config->sinks ? 1 : 0));
    put(out[HL_TRACE_CHANGE], NULL, n_heads, stride);
    put(out[HL_TRACE_RENYI2], from->renyi2 + at, n_heads, stride);
    put(out[HL_TRACE_NOSINK], others ? from->entropy_nosink + at : NULL, n_heads, stride);
    for (int kind = 0; kind < HL_N_KINDS; kind++) {
        const float *mass =
            rows->n_segments == HL_N_KINDS ? from->segment_mass + at * HL_N_KINDS + kind : NULL;
        put(out[HL_TRACE_LOOKBACK + kind], mass, n_heads, stride * HL_N_KINDS);
    }
}

/* ------------------------------------------------------------------ two rows */

/* Over some keys: sums of |p - q| and of p - q, in four parts each. */
typedef struct difference {
    double apart[4];
    double moved[4];
} difference;

static void add_keys(difference *to, const float *p, const float *q, int64_t begin, int64_t end)
{
    difference sums = *to;
    int64_t    key  = begin;

    for (; key + 4 <= end; key += 4) {
        for (int i = 0; i < 4; i++) {
            double d = (double)p[key + i] - (double)q[key + i];
            sums.apart[i] += fabs(d);
            sums.moved[i] += d;
        }
    }
    for (; key < end; key++) {
        double d = (double)p[key] - (double)q[key];
        sums.apart[0] += fabs(d);
        sums.moved[0] += d;
    }
    *to = sums;
}

static double sum_of_four(const double *parts)
{
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

double hl_trace_change(const float *p, const float *q, hl_seen_keys now, hl_seen_keys before)
{
    hl_seen_keys both = now.gap_end > before.gap_end ? now : before; /* gaps begin at one key */
    difference   sums = { { 0 }, { 0 } };

    both.begin = now.begin > before.begin ? now.begin : before.begin;
    both.end   = now.end < before.end ? now.end : before.end;
    if (both.gap < both.gap_end) {
        add_keys(&sums, p, q, both.begin, both.gap);
        add_keys(&sums, p, q, both.gap_end, both.end);
    } else {
        add_keys(&sums, p, q, both.begin, both.end);
    }
    return fmin(0.5 * (sum_of_four(sums.apart) + fabs(sum_of_four(sums.moved))), 1.0);
}
