/* trace.c - a trace in memory, as arrays that grow together; and the distance between two rows. */
#include "stats/trace_parts.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/likeness.h"

hl_status hl_trace_new(hl_trace **out, int64_t n_layers, int64_t n_heads, int64_t n_kept)
{
    HL_NEED(HL_ALLOC_ZEROED(out, 1));
    (*out)->n_layers = n_layers;
    (*out)->n_heads  = n_heads;
    (*out)->n_kept   = n_kept;
    return HL_OK;
}

void hl_trace_free(hl_trace *trace)
{
    if (trace == NULL)
        return;
    hl_free(trace->ids);
    hl_free(trace->kinds);
    hl_free(trace->entities);
    hl_free(trace->ends);
    hl_free(trace->text);
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        hl_free(trace->numbers[i]);
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        hl_free(trace->rows[i]);
    hl_free(trace);
}

/* ------------------------------------------------------------------ growing */

static size_t n_rows_of(const hl_trace *trace, int64_t capacity)
{
    return (size_t)(trace->n_kept > 0 && trace->n_kept < capacity ? trace->n_kept : capacity);
}

static hl_status grow_rows(hl_trace *trace, int64_t capacity)
{
    size_t old   = n_rows_of(trace, trace->capacity);
    size_t more  = n_rows_of(trace, capacity);
    size_t cells = (size_t)hl_trace_cells(trace);

    for (int i = 0; i < HL_N_TRACE_ROWS && more > old; i++) {
        HL_NEED(hl_realloc((void **)&trace->rows[i], old, more, cells * sizeof(float)));
        for (size_t cell = old * cells; cell < more * cells; cell++)
            trace->rows[i][cell] = NAN;
    }
    return HL_OK;
}

hl_status hl_trace_reserve(hl_trace *trace, int64_t n_tokens)
{
    size_t old  = (size_t)trace->capacity;
    size_t more = (size_t)n_tokens;

    if (n_tokens <= trace->capacity)
        return HL_OK;
    HL_NEED(hl_realloc((void **)&trace->ids, old, more, sizeof *trace->ids));
    HL_NEED(hl_realloc((void **)&trace->kinds, old, more, sizeof *trace->kinds));
    HL_NEED(hl_realloc((void **)&trace->entities, old, more, sizeof *trace->entities));
    HL_NEED(hl_realloc((void **)&trace->ends, old, more, sizeof *trace->ends));
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        HL_NEED(hl_realloc((void **)&trace->numbers[i], old, more, sizeof(double)));
    HL_NEED(grow_rows(trace, n_tokens));
    trace->capacity = n_tokens;
    return HL_OK;
}

int64_t hl_trace_offset(const hl_trace *trace, int64_t entry)
{
    int64_t row = trace->n_kept > 0 ? entry % trace->n_kept : entry;

    /* The entry after the last token may have a row already. */
    if (trace->n_kept > 0 && entry + trace->n_kept <= trace->n_tokens)
        return -1;
    return row * hl_trace_cells(trace);
}

float *hl_trace_at(const hl_trace *trace, int64_t entry, hl_trace_rows which)
{
    int64_t offset = hl_trace_offset(trace, entry);

    return offset >= 0 ? trace->rows[which] + offset : NULL;
}

hl_status hl_trace_push(hl_trace *trace, int64_t id, hl_token_kind kind)
{
    int64_t at = trace->n_tokens;

    if (at == trace->capacity)
        HL_NEED(hl_trace_reserve(trace, at < 32 ? 64 : 2 * at));
    trace->ids[at]      = id;
    trace->kinds[at]    = (uint8_t)kind;
    trace->entities[at] = 0;
    trace->ends[at]     = (int64_t)trace->n_text;
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        trace->numbers[i][at] = NAN;
    trace->n_tokens++;
    return HL_OK;
}

hl_status hl_trace_append_text(hl_trace *trace, const char *text, size_t n_bytes)
{
    if (n_bytes == 0)
        return HL_OK;
    HL_NEED(HL_GROW(&trace->text, &trace->text_capacity, trace->n_text, n_bytes));
    memcpy(trace->text + trace->n_text, text, n_bytes);
    trace->n_text += n_bytes;
    trace->ends[trace->n_tokens - 1] = (int64_t)trace->n_text;
    return HL_OK;
}

void hl_trace_cut(hl_trace *trace, int64_t n_tokens)
{
    trace->n_tokens = n_tokens;
    trace->n_text   = n_tokens > 0 ? (size_t)trace->ends[n_tokens - 1] : 0;
}

/* ---------------------------------------------------------------- questions */

const char *hl_token_kind_name(hl_token_kind kind)
{
    static const char *const names[HL_N_KINDS] = { "prompt", "special", "generated", "context" };

    return kind >= HL_KIND_PROMPT && kind < HL_N_KINDS ? names[kind] : "?";
}

int64_t hl_trace_n_tokens(const hl_trace *trace)
{
    return trace->n_tokens;
}

int64_t hl_trace_n_layers(const hl_trace *trace)
{
    return trace->n_layers;
}

int64_t hl_trace_n_heads(const hl_trace *trace)
{
    return trace->n_heads;
}

hl_generated hl_trace_token(const hl_trace *trace, int64_t token)
{
    return (hl_generated){
        .id                = trace->ids[token],
        .logprob           = trace->numbers[HL_TRACE_LOGPROB][token],
        .entropy           = trace->numbers[HL_TRACE_VOCABULARY][token],
        .varentropy        = trace->numbers[HL_TRACE_VARENTROPY][token],
        .attention_entropy = hl_trace_mean(trace, token, HL_TRACE_ENTROPY),
    };
}

hl_traced_token hl_trace_describe(const hl_trace *trace, int64_t token)
{
    int64_t begin = token > 0 ? trace->ends[token - 1] : 0;

    return (hl_traced_token){
        .kind      = (hl_token_kind)trace->kinds[token],
        .spike     = trace->numbers[HL_TRACE_SPIKE][token],
        .is_entity = trace->entities[token] != 0,
        .text      = trace->text != NULL ? trace->text + begin : "",
        .n_bytes   = (size_t)(trace->ends[token] - begin),
    };
}

double hl_trace_row(const hl_trace *trace, int64_t token, int64_t layer, int64_t head,
                    hl_trace_rows which)
{
    const float *cells = hl_trace_at(trace, token, which);

    return cells != NULL ? (double)cells[layer * trace->n_heads + head] : NAN;
}

static double mean_of(const float *values, int64_t count)
{
    double  sum    = 0.0;
    int64_t n_used = 0;

    for (int64_t i = 0; values != NULL && i < count; i++) {
        sum += isnan(values[i]) ? 0.0 : (double)values[i];
        n_used += !isnan(values[i]);
    }
    return n_used > 0 ? sum / (double)n_used : NAN;
}

double hl_trace_mean(const hl_trace *trace, int64_t token, hl_trace_rows which)
{
    return mean_of(hl_trace_at(trace, token, which), hl_trace_cells(trace));
}

double hl_trace_layer_mean(const hl_trace *trace, int64_t token, int64_t layer, hl_trace_rows which)
{
    const float *cells = hl_trace_at(trace, token, which);

    return mean_of(cells != NULL ? cells + layer * trace->n_heads : NULL, trace->n_heads);
}

/* ------------------------------------------------------------------- change */

/* Sums of |p - q| and of p - q over some keys, in four parts each. */
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

double hl_row_change(const float *p, const float *q, hl_visible_keys now, hl_visible_keys before)
{
    hl_visible_keys both = now.begin > before.begin ? now : before; /* both rows keep the same first
                                                                     * keys */
    difference      sums = { { 0 }, { 0 } };

    both.end = now.end < before.end ? now.end : before.end;
    add_keys(&sums, p, q, 0, both.kept);
    add_keys(&sums, p, q, both.begin, both.end);
    return fmin(hl_total_variation(sum_of_four(sums.apart) + fabs(sum_of_four(sums.moved))), 1.0);
}
