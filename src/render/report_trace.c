/* report_trace.c - a text as it was generated, as a report's data. */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/report.h"

static void set_texts(hl_report_out *out, json_t *object, const hl_trace *trace)
{
    json_t *texts = hl_report_list(out);
    json_t *kinds = hl_report_list(out);
    json_t *ids   = hl_report_list(out);

    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);

        hl_report_append(out, texts,
                         hl_json_text(about.n_bytes > 0 ? about.text : "", about.n_bytes));
        hl_report_append(out, kinds, json_integer(about.kind));
        hl_report_append(out, ids, json_integer(hl_trace_token(trace, i).id));
    }
    hl_report_set(out, object, "texts", texts);
    hl_report_set(out, object, "kinds", kinds);
    hl_report_set(out, object, "ids", ids);
}

/* What is known of every token, and which of them are spikes. */
static void set_numbers(hl_report_out *out, json_t *object, const hl_trace *trace, double threshold)
{
    json_t *entropy    = hl_report_list(out);
    json_t *varentropy = hl_report_list(out);
    json_t *logprob    = hl_report_list(out);
    json_t *spike      = hl_report_list(out);
    json_t *spikes     = hl_report_list(out);

    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_generated token = hl_trace_token(trace, i);
        double       score = hl_trace_describe(trace, i).spike;

        hl_report_append(out, entropy, hl_report_number(token.entropy));
        hl_report_append(out, varentropy, hl_report_number(token.varentropy));
        hl_report_append(out, logprob, hl_report_number(token.logprob));
        hl_report_append(out, spike, hl_report_number(score));
        if (score > threshold)
            hl_report_append(out, spikes, json_integer(i));
    }
    hl_report_set(out, object, "vocab_entropy", entropy);
    hl_report_set(out, object, "varentropy", varentropy);
    hl_report_set(out, object, "logprob", logprob);
    hl_report_set(out, object, "spike", spike);
    hl_report_set(out, object, "spikes", spikes);
    hl_report_set(out, object, "spike_threshold", json_real(threshold));
}

/* (n_layers, n_tokens) means over a layer's heads. */
static json_t *layers_json(hl_report_out *out, const hl_trace *trace, hl_trace_rows which)
{
    const int64_t shape[2] = { hl_trace_n_layers(trace), hl_trace_n_tokens(trace) };
    double       *means    = NULL;
    json_t       *array    = NULL;

    if (hl_report_check(out, HL_ALLOC(&means, (size_t)(shape[0] * shape[1])))) {
        for (int64_t i = 0; i < shape[0] * shape[1]; i++)
            means[i] = hl_trace_layer_mean(trace, i % shape[1], i / shape[1], which);
        array = hl_report_f16(out, means, 2, shape);
    }
    hl_free(means);
    return array;
}

/* (n_layers, n_heads, n_tokens): files have tokens first. */
static json_t *rows_json(hl_report_out *out, const hl_trace *trace, hl_trace_rows which)
{
    const int64_t shape[3] = { hl_trace_n_layers(trace), hl_trace_n_heads(trace),
                               hl_trace_n_tokens(trace) };
    size_t        size     = (size_t)(shape[0] * shape[1] * shape[2]);
    double       *rows     = NULL;
    json_t       *array    = NULL;

    if (size <= 4 * (size_t)HL_REPORT_MOST_ROWS && hl_report_check(out, HL_ALLOC(&rows, size))) {
        for (int64_t i = 0; i < (int64_t)size; i++) {
            int64_t head = i / shape[2];
            rows[i] = hl_trace_row(trace, i % shape[2], head / shape[1], head % shape[1], which);
        }
        array = hl_report_rows(out, rows, shape, log((double)shape[2] + 1.0));
    }
    hl_free(rows);
    return array;
}

json_t *hl_report_trace_json(hl_report_out *out, const hl_trace *trace, double threshold)
{
    json_t *object = hl_report_object(out);
    json_t *rows   = rows_json(out, trace, HL_TRACE_ENTROPY);

    set_texts(out, object, trace);
    set_numbers(out, object, trace, threshold);
    hl_report_set(out, object, "layer_H", layers_json(out, trace, HL_TRACE_ENTROPY));
    hl_report_set(out, object, "layer_Hhat", layers_json(out, trace, HL_TRACE_NORMALISED));
    if (rows != NULL)
        hl_report_set(out, object, "H", rows);
    return object;
}
