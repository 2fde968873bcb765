/* trace.c - a trace in memory: arrays that grow together. */
#include "stats/trace.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static int64_t cells(const hl_trace *trace)
{
    return trace->n_layers * trace->n_heads;
}

hl_status hl_trace_new(hl_trace **out, int64_t n_layers, int64_t n_heads)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status != HL_OK)
        return status;
    (*out)->n_layers = n_layers;
    (*out)->n_heads  = n_heads;
    return HL_OK;
}

void hl_trace_free(hl_trace *trace)
{
    if (trace == NULL)
        return;
    hl_free(trace->ids);
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        hl_free(trace->numbers[i]);
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        hl_free(trace->rows[i]);
    hl_free(trace);
}

hl_status hl_trace_reserve(hl_trace *trace, int64_t n_tokens)
{
    hl_status status = HL_OK;
    size_t    old    = (size_t)trace->capacity;
    size_t    more   = (size_t)n_tokens;
    size_t    row    = (size_t)cells(trace) * sizeof(float);

    if (n_tokens <= trace->capacity)
        return HL_OK;
    HL_TRY(hl_realloc((void **)&trace->ids, old, more, sizeof *trace->ids));
    for (int i = 0; i < HL_TRACE_N_NUMBERS; i++)
        HL_TRY(hl_realloc((void **)&trace->numbers[i], old, more, sizeof(double)));
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        HL_TRY(hl_realloc((void **)&trace->rows[i], old, more, row));
    trace->capacity = n_tokens;

done:
    return status;
}

hl_status hl_trace_add(hl_trace *trace, const hl_generated *token,
                       const float *const rows[HL_N_TRACE_ROWS])
{
    hl_status status = HL_OK;
    int64_t   at     = trace->n_tokens;

    if (at == trace->capacity)
        HL_TRY(hl_trace_reserve(trace, at == 0 ? 64 : 2 * at));
    trace->ids[at]        = token->id;
    trace->numbers[0][at] = token->logprob;
    trace->numbers[1][at] = token->entropy;
    trace->numbers[2][at] = token->varentropy;
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        memcpy(trace->rows[i] + at * cells(trace), rows[i], (size_t)cells(trace) * sizeof(float));
    trace->n_tokens++;

done:
    return status;
}

/* ---------------------------------------------------------------- questions */

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
        .logprob           = trace->numbers[0][token],
        .entropy           = trace->numbers[1][token],
        .varentropy        = trace->numbers[2][token],
        .attention_entropy = hl_trace_mean(trace, token, HL_TRACE_ENTROPY),
    };
}

double hl_trace_row(const hl_trace *trace, int64_t token, int64_t layer, int64_t head,
                    hl_trace_rows which)
{
    return (double)trace->rows[which][token * cells(trace) + layer * trace->n_heads + head];
}

double hl_trace_mean(const hl_trace *trace, int64_t token, hl_trace_rows which)
{
    const float *values = trace->rows[which] + token * cells(trace);
    double       sum    = 0.0;
    int64_t      count  = 0;

    for (int64_t i = 0; i < cells(trace); i++) {
        sum += isnan(values[i]) ? 0.0 : (double)values[i];
        count += !isnan(values[i]);
    }
    return count > 0 ? sum / (double)count : NAN;
}
