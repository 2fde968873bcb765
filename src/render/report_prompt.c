/* report_prompt.c - one text as a report's data: a prompt with its attention maps and lens, or a
 * generated text with its trace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/sheet.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/report_parts.h"

/* Up to this size, arrays of rows are in half precision; up to four times this size in bytes;
 * larger ones are left out. */
enum { MOST_ROWS = 1 << 20 };

/* Packs row entropies (n_layers, n_heads, n_tokens) in the form that their number allows; `high` is
 * the largest possible value.  NULL without a failure: too many. */
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

/* Makes {"texts": [...], "kinds": [...], "ids": [...]}, which the caller extends. */
static json_t *tokens_json(const hl_view_token *tokens, int64_t n)
{
    json_t *texts = json_array(), *kinds = json_array(), *ids = json_array();

    for (int64_t i = 0; i < n; i++) {
        hl_json_add(&texts, hl_report_text(tokens[i].text));
        hl_json_add(&kinds, json_integer(tokens[i].is_marked ? HL_KIND_SPECIAL : HL_KIND_PROMPT));
        hl_json_add(&ids, json_integer(tokens[i].id));
    }
    return json_pack("{s:o, s:o, s:o}", "texts", texts, "kinds", kinds, "ids", ids);
}

/* Copies floats to doubles, which arrays are made from; NULL after a failure. */
static double *widen(hl_report_out *out, const float *values, int64_t n)
{
    double *wide = NULL;

    if (!hl_report_check(out, HL_ALLOC(&wide, (size_t)n))) {
        hl_free(wide); /* another call may have failed before */
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)values[i];
    return wide;
}

/* Adds the entropies of all rows, and their mean over heads. */
static void put_rows(hl_report_out *out, json_t **object, const hl_prompt_maps *maps)
{
    const int64_t    shape[3] = { maps->n_layers, maps->n_heads, maps->n_tokens };
    int64_t          n_heads  = maps->n_layers * maps->n_heads;
    HL_FREED double *all      = widen(out, maps->entropy, n_heads * maps->n_tokens);
    json_t          *mean     = json_array();

    for (int64_t token = 0; all != NULL && token < maps->n_tokens; token++) {
        double  sum   = 0.0;
        int64_t count = 0;

        for (int64_t head = 0; head < n_heads; head++) {
            double value = all[head * maps->n_tokens + token];
            sum += isnan(value) ? 0.0 : value;
            count += !isnan(value);
        }
        hl_json_add(&mean, hl_json_number(sum / (double)count));
    }
    json_t *rows =
        all != NULL ? pack_rows(out, all, shape, log((double)maps->n_tokens + 1.0)) : NULL;
    hl_json_put(object, "entropy", rows);
    hl_json_put(object, "mean_entropy", mean);
}

static json_t *peaks_json(hl_report_out *out, const hl_prompt_maps *maps, int64_t first, int64_t n)
{
    const int64_t    shape[2] = { n, maps->n_tokens };
    HL_FREED double *wide = widen(out, maps->peaks + first * maps->n_tokens, n * maps->n_tokens);

    return wide != NULL ? hl_report_f16(out, wide, 2, shape) : NULL;
}

/* Makes the maps of single heads, which follow the map of the mean if that is present. */
static json_t *maps_json(hl_report_out *out, const hl_prompt_maps *maps, int64_t first)
{
    int64_t       n        = maps->n_maps - first;
    const int64_t shape[2] = { n, maps->n_cells };
    json_t       *object   = json_object();
    json_t       *heads    = json_array();

    for (int64_t i = first; i < maps->n_maps; i++)
        hl_json_add(&heads, hl_report_head(maps->heads[i].layer, maps->heads[i].head));
    hl_json_put(&object, "heads", heads);
    hl_json_put(&object, "packed", json_string(maps->is_causal ? "triangle" : "square"));
    hl_json_put(&object, "data",
                hl_report_bytes(out, maps->cells + first * maps->n_cells, 2, shape));
    hl_json_put(&object, "row_peak", peaks_json(out, maps, first, n));
    return object;
}

/* Makes {"row", "key", "attention"} of all heads: where they are most active; null: not known. */
static json_t *active_json(hl_report_out *out, const hl_prompt_maps *maps)
{
    const int64_t    shape[3] = { maps->n_layers, maps->n_heads, HL_ACTIVE_ROWS };
    int64_t          n        = shape[0] * shape[1] * shape[2];
    HL_FREED double *values   = NULL;
    json_t          *object   = json_object();

    if (!hl_report_check(out, HL_ALLOC(&values, (size_t)n))) {
        json_decref(object);
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = maps->active[i].row >= 0 ? (double)maps->active[i].row : NAN;
    hl_json_put(&object, "row", hl_report_f32(out, values, 3, shape));
    for (int64_t i = 0; i < n; i++)
        values[i] = maps->active[i].row >= 0 ? (double)maps->active[i].key : NAN;
    hl_json_put(&object, "key", hl_report_f32(out, values, 3, shape));
    for (int64_t i = 0; i < n; i++)
        values[i] = maps->active[i].row >= 0 ? (double)maps->active[i].attention : NAN;
    hl_json_put(&object, "attention", hl_report_f16(out, values, 3, shape));
    return object;
}

json_t *hl_report_tokens_json(hl_report_out *out, const hl_prompt_maps *maps)
{
    json_t *object = tokens_json(maps->tokens, maps->n_tokens);
    bool    mean   = maps->n_maps > 0 && maps->heads[0].layer < 0;

    put_rows(out, &object, maps);
    if (mean) {
        const int64_t square[2] = { maps->n_tokens, maps->n_tokens };

        hl_json_put(&object, "mean",
                    hl_report_bytes(out, maps->cells, maps->is_causal ? 1 : 2,
                                    maps->is_causal ? &maps->n_cells : square));
        hl_json_put(&object, "mean_peak", peaks_json(out, maps, 0, 1));
    }
    if (maps->n_maps > mean)
        hl_json_put(&object, "maps", maps_json(out, maps, mean));
    if (maps->active != NULL)
        hl_json_put(&object, "active", active_json(out, maps));
    return object;
}

/* ------------------------------------------------------------------------------- lens */

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Lists the texts of the guesses, sorted, each once; *n is their number.  NULL after a failure. */
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

/* Adds the texts, and for every layer the index of each guess among them. */
static void put_guesses(hl_report_out *out, json_t **object, const hl_lens_view *lens)
{
    int64_t               n       = 0;
    HL_FREED const char **texts   = distinct_texts(out, &n, lens);
    json_t               *strings = json_array(), *layers = json_array();

    for (int64_t row = 0; texts != NULL && row <= lens->n_layers; row++) {
        json_t *places = json_array();

        for (int64_t i = 0; i < lens->n_tokens; i++) {
            const char  *text = lens->guesses[row * lens->n_tokens + i].text;
            const char **at   = bsearch(&text, texts, (size_t)n, sizeof *texts, compare_texts);
            hl_json_add(&places, json_integer(at - texts));
        }
        hl_json_add(&layers, places);
    }
    for (int64_t i = 0; i < n; i++)
        hl_json_add(&strings, hl_report_text(texts[i]));
    hl_json_put(object, "top", layers);
    hl_json_put(object, "strings", strings);
}

/* An array with 1 where the guess is the token that follows. */
static json_t *hits_json(hl_report_out *out, const hl_lens_view *lens, const int64_t shape[2])
{
    HL_FREED uint8_t *hits = NULL;

    if (!hl_report_check(out, HL_ALLOC(&hits, (size_t)(shape[0] * shape[1]))))
        return NULL;
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        hits[i] = lens->guesses[i].is_marked;
    return hl_report_bytes(out, hits, 2, shape);
}

json_t *hl_report_lens_json(hl_report_out *out, const hl_lens_view *lens)
{
    const int64_t    shape[2] = { lens->n_layers + 1, lens->n_tokens };
    json_t          *object   = tokens_json(lens->tokens, lens->n_tokens);
    HL_FREED double *entropy  = widen(out, lens->entropy, shape[0] * shape[1]);

    put_guesses(out, &object, lens);
    hl_json_put(&object, "first", json_integer(lens->first));
    hl_json_put(&object, "d_vocab", json_integer(lens->d_vocab));
    hl_json_put(&object, "hits", hits_json(out, lens, shape));
    if (entropy != NULL)
        hl_json_put(&object, "entropy", hl_report_f16(out, entropy, 2, shape));
    return object;
}

/* -------------------------------------------------------------------------- trace */

/* Makes the data of every token, and the list of spikes. */
static json_t *traced_json(const hl_trace *trace, double threshold)
{
    enum { TEXTS, KINDS, IDS, ENTROPY, VARENTROPY, LOGPROB, SPIKE, SPIKES, N_LISTS };
    static const char *const names[N_LISTS] = { "texts",      "kinds",   "ids",   "vocab_entropy",
                                                "varentropy", "logprob", "spike", "spikes" };
    json_t                  *lists[N_LISTS];
    json_t                  *object = json_object();

    for (int i = 0; i < N_LISTS; i++)
        lists[i] = json_array();
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        hl_generated    token = hl_trace_token(trace, i);

        hl_json_add(&lists[TEXTS],
                    hl_json_text(about.n_bytes > 0 ? about.text : "", about.n_bytes));
        hl_json_add(&lists[KINDS], json_integer(about.kind));
        hl_json_add(&lists[IDS], json_integer(token.id));
        hl_json_add(&lists[ENTROPY], hl_json_number(token.entropy));
        hl_json_add(&lists[VARENTROPY], hl_json_number(token.varentropy));
        hl_json_add(&lists[LOGPROB], hl_json_number(token.logprob));
        hl_json_add(&lists[SPIKE], hl_json_number(about.spike));
        if (about.spike > threshold)
            hl_json_add(&lists[SPIKES], json_integer(i));
    }
    for (int i = 0; i < N_LISTS; i++)
        hl_json_put(&object, names[i], lists[i]);
    hl_json_put(&object, "spike_threshold", json_real(threshold));
    return object;
}

/* Makes (n_layers, n_tokens) means over the heads of each layer. */
static json_t *layers_json(hl_report_out *out, const hl_trace *trace, hl_trace_rows which)
{
    const int64_t    shape[2] = { hl_trace_n_layers(trace), hl_trace_n_tokens(trace) };
    HL_FREED double *means    = NULL;

    if (!hl_report_check(out, HL_ALLOC(&means, (size_t)(shape[0] * shape[1]))))
        return NULL;
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        means[i] = hl_trace_layer_mean(trace, i % shape[1], i / shape[1], which);
    return hl_report_f16(out, means, 2, shape);
}

/* Makes (n_layers, n_heads, n_tokens) values; traces have tokens first. */
static json_t *rows_json(hl_report_out *out, const hl_trace *trace, hl_trace_rows which)
{
    const int64_t    shape[3] = { hl_trace_n_layers(trace), hl_trace_n_heads(trace),
                                  hl_trace_n_tokens(trace) };
    size_t           size     = (size_t)(shape[0] * shape[1] * shape[2]);
    HL_FREED double *rows     = NULL;

    if (size > 4 * (size_t)MOST_ROWS || !hl_report_check(out, HL_ALLOC(&rows, size)))
        return NULL;
    for (int64_t i = 0; i < (int64_t)size; i++) {
        int64_t head = i / shape[2];
        rows[i]      = hl_trace_row(trace, i % shape[2], head / shape[1], head % shape[1], which);
    }
    return pack_rows(out, rows, shape, log((double)shape[2] + 1.0));
}

/* The tables of `headlight show TRACE`, by name. */
static hl_status tables_json(json_t **out, const hl_trace *trace)
{
    for (size_t i = 0; hl_trace_table_name(i) != NULL; i++) {
        HL_CLOSED(hl_sheet_free) hl_sheet *table = NULL;
        HL_FREED char                     *text  = NULL;
        json_t                            *value = NULL;

        HL_NEED(hl_trace_analyze(&table, trace, hl_trace_table_name(i)));
        HL_NEED(hl_sheet_render(&text, table, HL_SHEET_JSON));
        HL_NEED(hl_json_parse(&value, text, strlen(text), hl_trace_table_name(i)));
        hl_json_put(out, hl_trace_table_name(i), value);
    }
    return HL_OK;
}

json_t *hl_report_trace_json(hl_report_out *out, const hl_trace *trace, double threshold)
{
    json_t *tables = json_object();
    json_t *object = traced_json(trace, threshold);
    json_t *rows   = rows_json(out, trace, HL_TRACE_ENTROPY);

    hl_json_put(&object, "layer_entropy", layers_json(out, trace, HL_TRACE_ENTROPY));
    hl_json_put(&object, "layer_normalized", layers_json(out, trace, HL_TRACE_NORMALIZED));
    if (rows != NULL)
        hl_json_put(&object, "entropy", rows);
    hl_report_check(out, tables_json(&tables, trace));
    hl_json_put(&object, "tables", tables);
    return object;
}
