/* tracer.c - a tap that turns the rows of generated tokens into a trace.
 *
 * The row that led to a token is the last of the feed before it; it is looked at whole, and
 * compared with the one before.  Change is half the sum of |p - q| over the keys that both
 * rows see; all else (a new key, one that left the window, a learned sink) counts as one
 * outcome together, so that change lies between 0 and 1. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "stats/profile_add.h"
#include "stats/trace.h"

struct hl_tracer {
    const hl_config *config;
    hl_trace        *trace;
    hl_tap           tap;
    int64_t          position; /* of the row that is looked at next */
    int64_t          n_ctx;
    int64_t          last;                  /* of the one before; -1: none */
    float           *previous;              /* (n_layers, n_heads, n_ctx) the row before */
    float           *rows[HL_N_TRACE_ROWS]; /* (n_layers, n_heads) of the last row */
};

static hl_seen_keys seen_by(const hl_tracer *tracer, int64_t layer, int64_t position)
{
    const hl_layer_config *config = &tracer->config->layers[layer];
    hl_profile_mask        mask   = { .is_causal   = true,
                                      .has_window  = config->is_local,
                                      .window_left = config->window_left,
                                      .window_sink = config->window_sink };

    return hl_profile_seen(&mask, position, position + 1);
}

static double change_between(const float *p, const float *q, hl_seen_keys now, hl_seen_keys before)
{
    double apart = 0.0, p_sum = 0.0, q_sum = 0.0;

    for (int64_t key = 0; key < before.end; key++) {
        if (!hl_seen_has(now, key) || !hl_seen_has(before, key))
            continue;
        apart += fabs((double)p[key] - (double)q[key]);
        p_sum += (double)p[key];
        q_sum += (double)q[key];
    }
    return fmin(0.5 * (apart + fabs(p_sum - q_sum)), 1.0);
}

static void trace_head(hl_tracer *tracer, const hl_layer_rows *rows, int64_t head, int64_t row)
{
    int64_t      cell     = rows->layer * tracer->trace->n_heads + head;
    hl_seen_keys now      = seen_by(tracer, rows->layer, tracer->position);
    hl_seen_keys before   = seen_by(tracer, rows->layer, tracer->last);
    int64_t      n        = hl_seen_count(now) + (tracer->config->sinks ? 1 : 0);
    double       entropy  = (double)rows->rows->entropy[head * rows->n_rows + row];
    const float *p        = rows->pattern + head * rows->n_patterns * rows->n_keys;
    float       *previous = tracer->previous + cell * tracer->n_ctx;

    tracer->rows[HL_TRACE_ENTROPY][cell]    = (float)entropy;
    tracer->rows[HL_TRACE_NORMALISED][cell] = n >= 2 ? (float)(entropy / log((double)n)) : 0.0f;
    tracer->rows[HL_TRACE_CHANGE][cell] =
        tracer->last >= 0 ? (float)change_between(p, previous, now, before) : NAN;
    memcpy(previous, p, (size_t)now.end * sizeof *p);
}

static hl_status trace_layer(void *context, const hl_layer_rows *rows)
{
    hl_tracer *tracer = context;
    int64_t    row    = rows->n_patterns > 0 ? rows->pattern_rows[0] : -1;

    if (row < 0)
        return HL_OK; /* another chunk of the prompt */
    if (rows->start[0] + row != tracer->position || tracer->position >= tracer->n_ctx)
        return hl_fail(HL_BAD_ARGUMENT, "trace: a row at position %lld, wanted %lld, below %lld",
                       (long long)(rows->start[0] + row), (long long)tracer->position,
                       (long long)tracer->n_ctx);
    for (int64_t head = 0; head < rows->n_heads; head++)
        trace_head(tracer, rows, head, row);
    if (rows->layer == tracer->config->n_layers - 1) {
        tracer->last = tracer->position++;
    }
    return HL_OK;
}

/* ------------------------------------------------------------ open and close */

static hl_status allocate(hl_tracer *tracer)
{
    hl_status status  = HL_OK;
    size_t    n_cells = (size_t)(tracer->trace->n_layers * tracer->trace->n_heads);

    for (int i = 0; i < HL_N_TRACE_ROWS; i++) {
        HL_TRY(HL_ALLOC(&tracer->rows[i], n_cells));
        for (size_t cell = 0; cell < n_cells; cell++)
            tracer->rows[i][cell] = NAN;
    }
    HL_TRY(hl_alloc_zeroed((void **)&tracer->previous, n_cells,
                           (size_t)tracer->n_ctx * sizeof(float)));

done:
    return status;
}

hl_status hl_tracer_open(hl_tracer **out, const hl_model *model, int64_t n_ctx)
{
    hl_status        status = HL_OK;
    hl_tracer       *tracer = NULL;
    const hl_config *config = model->config;

    *out = NULL;
    if (config->is_encoder || n_ctx < 1)
        return hl_fail(HL_BAD_ARGUMENT, "trace: %s with a context of %lld generates nothing",
                       model->path, (long long)n_ctx);
    HL_TRY(HL_ALLOC_ZEROED(&tracer, 1));
    tracer->config = config;
    tracer->n_ctx  = n_ctx;
    tracer->last   = -1;
    tracer->tap    = (hl_tap){ .context             = tracer,
                               .layer               = trace_layer,
                               .wants               = HL_WANT_PATTERN,
                               .pattern_positions   = &tracer->position,
                               .n_pattern_positions = 1 };
    HL_TRY(hl_trace_new(&tracer->trace, config->n_layers, hl_model_get_info(model)->n_heads));
    HL_TRY(allocate(tracer));
    *out   = tracer;
    tracer = NULL;

done:
    hl_tracer_close(tracer);
    return status;
}

void hl_tracer_close(hl_tracer *tracer)
{
    if (tracer == NULL)
        return;
    hl_trace_free(tracer->trace);
    hl_free(tracer->previous);
    for (int i = 0; i < HL_N_TRACE_ROWS; i++)
        hl_free(tracer->rows[i]);
    hl_free(tracer);
}

/* --------------------------------------------------------------------- tokens */

const hl_tap *hl_tracer_tap(const hl_tracer *tracer)
{
    return &tracer->tap;
}

void hl_tracer_begin(hl_tracer *tracer, int64_t position)
{
    /* A row in the place of the last one, after a rewind, or right after it compares with it. */
    if (position != tracer->last && position != tracer->last + 1)
        tracer->last = -1;
    tracer->position = position;
}

hl_status hl_tracer_add(hl_tracer *tracer, const hl_generated *token)
{
    return hl_trace_add(tracer->trace, token, (const float *const *)tracer->rows);
}

const hl_trace *hl_tracer_trace(const hl_tracer *tracer)
{
    return tracer->trace;
}
