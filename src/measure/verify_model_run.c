/* verify_model_run.c - a model's tokens through a session, and what the tap saw. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "measure/verify.h"
#include "measure/verify_model.h"
#include "model/session.h"

/* Everything is not a number until the tap has brought it. */
static void forget(hl_verify_results *results)
{
    for (int output = 0; output < HL_MODEL_N_OUTPUTS; output++) {
        hl_verify_values *values = &results->outputs[output];
        for (size_t i = 0; i < values->count && values->values != NULL; i++)
            values->values[i] = NAN;
        values->exact_error = 0.0;
    }
    results->max_score = 0.0;
}

static float *output_of(const hl_verify_results *results, hl_model_output output)
{
    return results->outputs[output].values;
}

/* --------------------------------------------------------------------- layers */

static const float *statistic(const hl_attention_result *rows, hl_model_output output)
{
    switch (output) {
    case HL_MODEL_ENTROPY:
        return rows->entropy;
    case HL_MODEL_RENYI2:
        return rows->renyi2;
    case HL_MODEL_VARENTROPY:
        return rows->varentropy;
    case HL_MODEL_PEAK:
        return rows->peak;
    case HL_MODEL_DIAGONAL:
        return rows->diagonal;
    case HL_MODEL_PREVIOUS:
        return rows->previous;
    case HL_MODEL_FIRST:
        return rows->first;
    default:
        return rows->lse;
    }
}

static double exact_statistic(const hl_pattern_row *row, hl_model_output output)
{
    switch (output) {
    case HL_MODEL_ENTROPY:
        return row->entropy;
    case HL_MODEL_RENYI2:
        return row->renyi2;
    case HL_MODEL_VARENTROPY:
        return row->varentropy;
    case HL_MODEL_PEAK:
        return row->peak;
    case HL_MODEL_DIAGONAL:
        return row->diagonal;
    case HL_MODEL_PREVIOUS:
        return row->previous;
    case HL_MODEL_FIRST:
        return row->first;
    default:
        return row->lse;
    }
}

/* (B, H, C) of a chunk into (L, B, H, S). */
static void keep_statistic(hl_verify_results *results, const hl_layer_rows *rows,
                           hl_model_output output)
{
    const float *source  = statistic(rows->rows, output);
    float       *values  = output_of(results, output);
    int64_t      n_heads = results->info->n_heads;

    for (int64_t i = 0; i < rows->n_batch * rows->n_heads; i++) {
        int64_t sequence = i / rows->n_heads;
        int64_t head     = i % rows->n_heads;
        float  *out      = values + ((rows->layer * rows->n_batch + sequence) * n_heads + head) *
                                  results->n_tokens;
        memcpy(out + rows->start[sequence], source + i * rows->n_rows,
               (size_t)rows->lengths[sequence] * sizeof *out);
    }
}

/* How far the fused statistics of materialised rows are from the exact ones. */
static void compare_exact(hl_verify_results *results, const hl_layer_rows *rows, int64_t index)
{
    int64_t               row   = rows->pattern_rows[index % rows->n_patterns];
    int64_t               place = index / rows->n_patterns * rows->n_rows + row;
    const hl_pattern_row *exact = &results->session->rows.exact[index];

    results->max_score = fmax(results->max_score, exact->max_score);
    for (hl_model_output output = 0; output < HL_MODEL_N_STATISTICS; output++) {
        hl_verify_values *values = &results->outputs[output];
        double            seen   = (double)statistic(rows->rows, output)[place];
        values->exact_error =
            fmax(values->exact_error, hl_verify_difference(seen, exact_statistic(exact, output)));
    }
}

/* Rows of the first layer and sequence: (H, S, S). */
static void keep_pattern(hl_verify_results *results, const hl_layer_rows *rows)
{
    float  *values = output_of(results, HL_MODEL_PATTERN0);
    int64_t size   = results->n_tokens;

    if (values == NULL || rows->layer != 0)
        return;
    for (int64_t i = 0; i < rows->n_heads * rows->n_patterns; i++) {
        int64_t position = rows->start[0] + rows->pattern_rows[i % rows->n_patterns];
        float  *out      = values + (i / rows->n_patterns * size + position) * size;
        memcpy(out, rows->pattern + i * rows->n_keys, (size_t)size * sizeof *out);
    }
}

static void keep_lens(hl_verify_results *results, int64_t layer, int64_t start, int64_t n_rows,
                      const int64_t *top, const float *entropy, const float *gap)
{
    float *tops      = output_of(results, HL_MODEL_LENS_TOP);
    float *entropies = output_of(results, HL_MODEL_LENS_ENTROPY);

    for (int64_t i = 0; i < n_rows && top != NULL && tops != NULL; i++) {
        int64_t place            = layer * results->n_tokens + start + i;
        tops[place]              = (float)top[i];
        entropies[place]         = entropy[i];
        results->lens_gap[place] = gap[i];
    }
}

static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    hl_verify_results *results = context;

    if (results->masked)
        return HL_OK;
    for (hl_model_output output = 0; output < HL_MODEL_N_STATISTICS; output++)
        keep_statistic(results, rows, output);
    for (int64_t i = 0; i < rows->n_batch * rows->n_heads * rows->n_patterns; i++)
        compare_exact(results, rows, i);
    keep_pattern(results, rows);
    keep_lens(results, rows->layer, rows->start[0], rows->lengths[0], rows->lens_top,
              rows->lens_entropy, rows->lens_gap);
    return HL_OK;
}

/* ------------------------------------------------------------------------ end */

static void keep_rows(float *values, const float *rows, const hl_verify_results *results,
                      const hl_final_rows *final, int64_t width)
{
    if (values == NULL || rows == NULL)
        return;
    memcpy(values + (final->sequence * results->n_tokens + final->start) * width, rows,
           (size_t)(final->n_rows * width) * sizeof *values);
}

static double log_sum(const float *logits, int64_t n)
{
    double max  = (double)logits[0];
    double rest = -1.0; /* the largest counts as 1 once */

    for (int64_t i = 1; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int64_t i = 0; i < n; i++)
        rest += exp((double)logits[i] - max);
    return max + log1p(rest);
}

static void keep_loss(hl_verify_results *results, const hl_final_rows *final)
{
    float  *values = output_of(results, HL_MODEL_NLL);
    int64_t size   = results->n_tokens;

    for (int64_t row = 0; row < final->n_rows && values != NULL && final->logits != NULL; row++) {
        const float *logits   = final->logits + row * final->d_vocab;
        int64_t      position = final->start + row;

        if (position + 1 >= size)
            continue;
        int64_t next = results->tokens[final->sequence * size + position + 1];
        values[final->sequence * (size - 1) + position] =
            (float)(log_sum(logits, final->d_vocab) - (double)logits[next]);
    }
}

static void keep_last(hl_verify_results *results, const hl_final_rows *final)
{
    float  *values = output_of(results, HL_MODEL_LOGITS_LAST);
    int64_t row    = results->n_tokens - 1 - final->start;

    if (values != NULL && final->logits != NULL && row >= 0 && row < final->n_rows)
        memcpy(values + final->sequence * final->d_vocab, final->logits + row * final->d_vocab,
               (size_t) final->d_vocab * sizeof *values);
}

static hl_status watch_final(void *context, const hl_final_rows *final)
{
    hl_verify_results *results = context;
    bool               masked  = results->masked;

    keep_rows(output_of(results, masked ? HL_MODEL_MASKED_HIDDEN : HL_MODEL_HIDDEN), final->hidden,
              results, final, final->d_model);
    keep_rows(output_of(results, masked ? HL_MODEL_MASKED_LOGITS : HL_MODEL_LOGITS), final->logits,
              results, final, final->d_vocab);
    if (masked)
        return HL_OK;
    keep_loss(results, final);
    keep_last(results, final);
    if (final->sequence == 0)
        keep_lens(results, results->info->n_layers, final->start, final->n_rows, final->lens_top,
                  final->lens_entropy, final->lens_gap);
    return HL_OK;
}

/* -------------------------------------------------------------------- running */

/* One token of each sequence after the other. */
static hl_status decode(hl_verify_results *results, const hl_feed *whole)
{
    hl_status status = HL_OK;
    int64_t  *column = NULL;
    hl_feed   feed   = *whole;

    HL_TRY(HL_ALLOC(&column, (size_t)results->n_batch));
    feed.tokens   = column;
    feed.n_tokens = 1;
    for (int64_t i = 0; i < whole->n_tokens; i++) {
        for (int64_t sequence = 0; sequence < results->n_batch; sequence++)
            column[sequence] = whole->tokens[sequence * whole->n_tokens + i];
        HL_TRY(hl_session_feed(results->session, &feed));
    }

done:
    hl_free(column);
    return status;
}

static hl_status run_pass(hl_verify_results *results, uint32_t wants)
{
    hl_tap  tap  = { .context             = results,
                     .layer               = watch_layer,
                     .final               = watch_final,
                     .wants               = wants,
                     .pattern_positions   = results->positions,
                     .n_pattern_positions = results->n_positions };
    hl_feed feed = { .tokens   = results->tokens,
                     .n_tokens = results->n_tokens,
                     .gates    = results->masked ? results->gates : NULL,
                     .tap      = &tap };

    for (int64_t sequence = 0; sequence < results->n_batch; sequence++)
        HL_NEED(hl_session_rewind(results->session, sequence, 0));
    if (results->options.decode && !results->info->is_encoder)
        HL_NEED(decode(results, &feed));
    else
        HL_NEED(hl_session_feed(results->session, &feed));
    return HL_OK;
}

static bool wants_output(const hl_verify_results *results, hl_model_output output)
{
    return output_of(results, output) != NULL;
}

static uint32_t wants_of(const hl_verify_results *results)
{
    uint32_t wants = results->n_positions > 0 ? HL_WANT_PATTERN : 0;

    if (wants_output(results, HL_MODEL_HIDDEN))
        wants |= HL_WANT_HIDDEN;
    if (wants_output(results, HL_MODEL_LOGITS) || wants_output(results, HL_MODEL_NLL) ||
        wants_output(results, HL_MODEL_LOGITS_LAST))
        wants |= HL_WANT_LOGITS;
    if (wants_output(results, HL_MODEL_LENS_TOP))
        wants |= HL_WANT_LENS;
    return wants;
}

static uint32_t masked_wants_of(const hl_verify_results *results)
{
    uint32_t wants = 0;

    if (wants_output(results, HL_MODEL_MASKED_HIDDEN))
        wants |= HL_WANT_HIDDEN;
    if (wants_output(results, HL_MODEL_MASKED_LOGITS))
        wants |= HL_WANT_LOGITS;
    return results->gates != NULL ? wants : 0;
}

hl_status hl_verify_results_compute(hl_verify_results *results)
{
    hl_status          status  = HL_OK;
    uint32_t           wants   = wants_of(results);
    uint32_t           masked  = masked_wants_of(results);
    hl_session_options options = { .n_ctx      = results->n_tokens,
                                   .n_batch    = results->n_batch,
                                   .n_chunk    = results->options.n_chunk,
                                   .n_patterns = results->n_positions,
                                   .wants      = wants | masked,
                                   .n_threads  = results->options.n_threads };

    forget(results);
    HL_TRY(hl_session_open(&results->session, results->model, &options));
    results->masked = false;
    HL_TRY(run_pass(results, wants));
    results->masked = true;
    if (masked != 0)
        HL_TRY(run_pass(results, masked));

done:
    hl_session_close(results->session);
    results->session = NULL;
    return status;
}
