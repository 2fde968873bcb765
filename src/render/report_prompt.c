/* report_prompt.c - one text as a report's data: a prompt, who looks at whom and the lens; and a text as
 * it was generated. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/report_parts.h"

/* Arrays of rows are half precision while they have no more numbers than this, bytes up to four
 * times as many, and left out beyond. */
enum { MOST_ROWS = 1 << 20 };

/* Row entropies (n_layers, n_heads, n_tokens) in the form that their number allows; high is the most
 * that they can be.  NULL without a failure: too many. */
static json_t *pack_rows(hl_report_out *out, const double *values, const int64_t shape[3],
                         double high)
{
    int64_t n = shape[0] * shape[1] * shape[2];

    if (n <= MOST_ROWS)
        return hl_report_f16(out, values, 3, shape);
    if (n <= 4 * (int64_t)MOST_ROWS)
        return hl_report_u8(out, values, 3, shape, 0.0, high);
    return NULL;
}

/* ------------------------------------------------------------------------- token view */

static void set_tokens(hl_report_out *out, json_t *object, const hl_view_token *tokens, int64_t n)
{
    json_t *texts = hl_report_list(out);
    json_t *kinds = hl_report_list(out);
    json_t *ids   = hl_report_list(out);

    for (int64_t i = 0; i < n; i++) {
        hl_report_append(out, texts, hl_report_text(tokens[i].text));
        hl_report_append(out, kinds,
                         json_integer(tokens[i].is_marked ? HL_KIND_SPECIAL : HL_KIND_PROMPT));
        hl_report_append(out, ids, json_integer(tokens[i].id));
    }
    hl_report_set(out, object, "texts", texts);
    hl_report_set(out, object, "kinds", kinds);
    hl_report_set(out, object, "ids", ids);
}

/* Floats as the doubles that arrays are made of; NULL after a failure. */
static double *widen(hl_report_out *out, const float *values, int64_t n)
{
    double *wide = NULL;

    if (!hl_report_check(out, HL_ALLOC(&wide, (size_t)n))) {
        hl_free(wide); /* it may be there: another call has failed before */
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)values[i];
    return wide;
}

/* Entropies of all rows, and their mean over heads. */
static void set_rows(hl_report_out *out, json_t *object, const hl_prompt_maps *maps)
{
    const int64_t shape[3] = { maps->n_layers, maps->n_heads, maps->n_tokens };
    int64_t       n_heads  = maps->n_layers * maps->n_heads;
    double       *all      = widen(out, maps->entropy, n_heads * maps->n_tokens);
    json_t       *mean     = hl_report_list(out);

    for (int64_t token = 0; all != NULL && token < maps->n_tokens; token++) {
        double  sum   = 0.0;
        int64_t count = 0;

        for (int64_t head = 0; head < n_heads; head++) {
            double value = all[head * maps->n_tokens + token];
            sum += isnan(value) ? 0.0 : value;
            count += !isnan(value);
        }
        hl_report_append(out, mean, hl_json_number(sum / (double)count));
    }
    json_t *rows =
        all != NULL ? pack_rows(out, all, shape, log((double)maps->n_tokens + 1.0)) : NULL;
    if (rows != NULL)
        hl_report_set(out, object, "H", rows);
    hl_report_set(out, object, "mean_H", mean);
    hl_free(all);
}

static json_t *peaks_json(hl_report_out *out, const hl_prompt_maps *maps, int64_t first, int64_t n)
{
    const int64_t shape[2] = { n, maps->n_tokens };
    double       *wide     = widen(out, maps->peaks + first * maps->n_tokens, n * maps->n_tokens);
    json_t       *array    = wide != NULL ? hl_report_f16(out, wide, 2, shape) : NULL;

    hl_free(wide);
    return array;
}

/* The maps of single heads: those behind the mean, which is the first if it is there. */
static json_t *maps_json(hl_report_out *out, const hl_prompt_maps *maps, int64_t first)
{
    int64_t       n        = maps->n_maps - first;
    const int64_t shape[2] = { n, maps->n_cells };
    json_t       *object   = hl_report_object(out);
    json_t       *heads    = hl_report_list(out);

    for (int64_t i = first; i < maps->n_maps; i++)
        hl_report_append(out, heads, hl_report_head(maps->heads[i].layer, maps->heads[i].head));
    hl_report_set(out, object, "heads", heads);
    hl_report_set(out, object, "packed", json_string(maps->is_causal ? "triangle" : "square"));
    hl_report_set(out, object, "data",
                  hl_report_bytes(out, maps->cells + first * maps->n_cells, 2, shape));
    hl_report_set(out, object, "row_peak", peaks_json(out, maps, first, n));
    return object;
}

json_t *hl_report_tokens_json(hl_report_out *out, const hl_prompt_maps *maps)
{
    json_t *object = hl_report_object(out);
    bool    mean   = maps->n_maps > 0 && maps->heads[0].layer < 0;

    set_tokens(out, object, maps->tokens, maps->n_tokens);
    set_rows(out, object, maps);
    if (mean) {
        const int64_t square[2] = { maps->n_tokens, maps->n_tokens };

        hl_report_set(out, object, "mean",
                      hl_report_bytes(out, maps->cells, maps->is_causal ? 1 : 2,
                                      maps->is_causal ? &maps->n_cells : square));
        hl_report_set(out, object, "mean_peak", peaks_json(out, maps, 0, 1));
    }
    if (maps->n_maps > mean)
        hl_report_set(out, object, "maps", maps_json(out, maps, mean));
    return object;
}

/* ------------------------------------------------------------------------------- lens */

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The guesses' texts, sorted, each once; *n of them.  NULL after a failure. */
static const char **distinct_texts(hl_report_out *out, int64_t *n, const hl_lens_view *lens)
{
    const char **texts = NULL;
    int64_t      size  = (lens->n_layers + 1) * lens->n_tokens;

    *n = 0;
    if (!hl_report_check(out, HL_ALLOC(&texts, (size_t)size))) {
        hl_free(texts);
        return NULL;
    }
    for (int64_t i = 0; i < size; i++)
        texts[i] = lens->guesses[i].text;
    qsort(texts, (size_t)size, sizeof *texts, compare_texts);
    for (int64_t i = 0; i < size; i++) {
        if (i == 0 || strcmp(texts[i], texts[*n - 1]) != 0)
            texts[(*n)++] = texts[i];
    }
    return texts;
}

/* For every layer the places of its guesses among the texts. */
static json_t *top_json(hl_report_out *out, const hl_lens_view *lens, const char **texts, int64_t n)
{
    json_t *layers = hl_report_list(out);

    for (int64_t row = 0; row <= lens->n_layers; row++) {
        json_t *places = hl_report_list(out);

        for (int64_t i = 0; i < lens->n_tokens; i++) {
            const char  *text = lens->guesses[row * lens->n_tokens + i].text;
            const char **at   = bsearch(&text, texts, (size_t)n, sizeof *texts, compare_texts);
            hl_report_append(out, places, json_integer(at - texts));
        }
        hl_report_append(out, layers, places);
    }
    return layers;
}

static void set_guesses(hl_report_out *out, json_t *object, const hl_lens_view *lens)
{
    int64_t      n       = 0;
    const char **texts   = distinct_texts(out, &n, lens);
    json_t      *strings = hl_report_list(out);

    for (int64_t i = 0; i < n; i++)
        hl_report_append(out, strings, hl_report_text(texts[i]));
    if (texts != NULL)
        hl_report_set(out, object, "top", top_json(out, lens, texts, n));
    hl_report_set(out, object, "strings", strings);
    hl_free(texts);
}

/* 1 where the guess is the token that follows. */
static json_t *hits_json(hl_report_out *out, const hl_lens_view *lens, const int64_t shape[2])
{
    uint8_t *hits = NULL;
    json_t  *list = NULL;

    if (hl_report_check(out, HL_ALLOC(&hits, (size_t)(shape[0] * shape[1])))) {
        for (int64_t i = 0; i < shape[0] * shape[1]; i++)
            hits[i] = lens->guesses[i].is_marked;
        list = hl_report_bytes(out, hits, 2, shape);
    }
    hl_free(hits);
    return list;
}

json_t *hl_report_lens_json(hl_report_out *out, const hl_lens_view *lens)
{
    const int64_t shape[2] = { lens->n_layers + 1, lens->n_tokens };
    json_t       *object   = hl_report_object(out);
    double       *entropy  = widen(out, lens->entropy, shape[0] * shape[1]);

    set_tokens(out, object, lens->tokens, lens->n_tokens);
    set_guesses(out, object, lens);
    hl_report_set(out, object, "first", json_integer(lens->first));
    hl_report_set(out, object, "d_vocab", json_integer(lens->d_vocab));
    hl_report_set(out, object, "hits", hits_json(out, lens, shape));
    if (entropy != NULL)
        hl_report_set(out, object, "entropy", hl_report_f16(out, entropy, 2, shape));
    hl_free(entropy);
    return object;
}

/* -------------------------------------------------------------------------- trace */

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

        hl_report_append(out, entropy, hl_json_number(token.entropy));
        hl_report_append(out, varentropy, hl_json_number(token.varentropy));
        hl_report_append(out, logprob, hl_json_number(token.logprob));
        hl_report_append(out, spike, hl_json_number(score));
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

    if (size <= 4 * (size_t)MOST_ROWS && hl_report_check(out, HL_ALLOC(&rows, size))) {
        for (int64_t i = 0; i < (int64_t)size; i++) {
            int64_t head = i / shape[2];
            rows[i] = hl_trace_row(trace, i % shape[2], head / shape[1], head % shape[1], which);
        }
        array = pack_rows(out, rows, shape, log((double)shape[2] + 1.0));
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
