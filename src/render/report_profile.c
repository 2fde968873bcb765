/* report_profile.c - the measurements and diagnoses of a profile, as a report's data. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/head_kinds.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/palette.h"
#include "render/report_parts.h"
#include "stats/profile.h"

/* ---------------------------------------------------------------------- diagnoses */

/* An alarm is serious if the model suffers from it; the others say what can be removed.  Observations
 * are neither. */
static const char *severity_of(const hl_diagnosis *item)
{
    static const char *const serious[] = { "entropy-collapse", "entropic-overload",
                                           "attention-locking", "dead-or-broken", "head-drift" };

    if (item->verdict != HL_VERDICT_FOUND)
        return item->verdict == HL_VERDICT_NOT_FOUND ? "none" : "unknown";
    if (item->kind == HL_CHECK_OBSERVATION)
        return "observation";
    for (size_t i = 0; i < sizeof serious / sizeof *serious; i++) {
        if (strcmp(item->name, serious[i]) == 0)
            return "serious";
    }
    return "notice";
}

json_t *hl_report_heads(const hl_diagnosis *item)
{
    json_t *heads = json_array();

    for (int64_t i = 0; i < item->n_heads; i++)
        hl_json_add(&heads, json_pack("{s:I, s:I, s:o}", "layer", (json_int_t)item->heads[i].layer,
                                      "head", (json_int_t)item->heads[i].head, "value",
                                      hl_json_number(item->heads[i].value)));
    return heads;
}

static json_t *causes_json(const hl_diagnosis *item)
{
    json_t *causes = json_array();

    for (int64_t i = 0; i < item->n_causes; i++)
        hl_json_add(&causes, json_pack("{s:s, s:s, s:s, s:s}", "name", item->causes[i].name, "for",
                                       item->causes[i].supports, "against", item->causes[i].against,
                                       "command", item->causes[i].command));
    return causes;
}

/* Lists the layers of these heads, each once. */
static json_t *found_layers_json(const hl_diagnosis *item, int64_t n_layers)
{
    json_t *layers = json_array();

    for (int64_t layer = 0; layer < n_layers; layer++) {
        bool has = false;

        for (int64_t i = 0; i < item->n_heads; i++)
            has = has || item->heads[i].layer == layer;
        if (has)
            hl_json_add(&layers, json_integer(layer));
    }
    return layers;
}

static json_t *diagnosis_json(const hl_diagnosis *item, int64_t n_layers)
{
    char title[64]; /* "entropy-collapse" becomes "Entropy collapse" */

    snprintf(title, sizeof title, "%s", item->name);
    for (char *at = title; *at != '\0'; at++)
        *at = *at == '-' ? ' ' : *at;
    title[0] = (char)toupper((unsigned char)title[0]);
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:o, s:s, s:o, s:s, s:b, s:b, s:b, s:s, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o}",
        "name", hl_report_text(item->name), "title", hl_report_text(title), "class",
        item->kind == HL_CHECK_ALARM ? "alarm" : "observation", "unit", item->unit, "errors",
        hl_json_number(item->errors), "usual", item->usual, "causes", causes_json(item), "verdict",
        hl_verdict_name(item->verdict), "fired", item->verdict == HL_VERDICT_FOUND, "ran",
        item->verdict != HL_VERDICT_NOT_RUN, "below", item->below, "severity", severity_of(item),
        "finding", hl_report_text(item->finding), "rule", hl_report_text(item->rule), "value",
        hl_json_number(item->value), "threshold", hl_json_number(item->threshold), "evidence",
        hl_report_text(item->evidence), "source", hl_report_text(item->source), "against",
        hl_report_text(item->against), "mitigation", hl_report_text(item->mitigation), "measure",
        hl_report_text(item->measure), "heads", hl_report_heads(item), "layers",
        found_layers_json(item, n_layers));
}

/* Makes [{"text": ..., "parts": [{"text", "shows"}, ...]}, ...], an object for each sentence. */
static json_t *summary_json(hl_report_out *out, const hl_summary *summary)
{
    json_t *sentences = json_array();

    for (int64_t sentence = 0; sentence < summary->n_sentences; sentence++) {
        HL_FREED char *text  = NULL;
        json_t        *parts = json_array();

        hl_report_check(out, hl_summary_sentence(&text, summary, sentence));
        for (int64_t i = 0; i < summary->n_parts; i++) {
            const hl_summary_part *part = &summary->parts[i];
            if (part->sentence == sentence)
                hl_json_add(&parts, json_pack("{s:o, s:s}", "text", hl_report_text(part->text),
                                              "shows", part->shows));
        }
        hl_json_add(&sentences,
                    json_pack("{s:o, s:o}", "text", hl_report_text(text), "parts", parts));
    }
    return sentences;
}

/* Adds the checks, and the summary, which counts them. */
static void put_findings(hl_report_out *out, json_t **object, const hl_profile *profile,
                         const hl_trace *trace)
{
    HL_CLOSED(hl_diagnoses_free) hl_diagnoses *found   = NULL;
    HL_CLOSED(hl_summary_free) hl_summary     *summary = NULL;
    json_t                                    *list    = json_array();

    if (hl_report_check(out, hl_diagnose(&found, profile, NULL, NULL)) && trace != NULL)
        hl_report_check(out, hl_diagnose_trace(found, trace, NULL));
    for (int i = 0; out->status == HL_OK && i < HL_N_DIAGNOSES; i++)
        hl_json_add(&list, diagnosis_json(&found->items[i], hl_profile_n_layers(profile)));
    hl_json_put(object, "diagnoses", list);
    if (out->status == HL_OK && hl_report_check(out, hl_summary_new(&summary, profile, found)))
        hl_json_put(object, "summary", summary_json(out, summary));
}

enum { N_TWINS = 3 };

/* ----------------------------------------------------------------------------- heads */

/* Numbers with one value per head, without patterns.  BROKEN and BINNED have their own sources. */
enum { BROKEN = HL_FROM_OUTPUT + 1, BINNED };

static const struct {
    const char *key;
    int         from; /* an hl_number_from, or BROKEN or BINNED */
    int         which;
} means[] = {
    { "entropy", HL_FROM_ROWS, HL_Q_ENTROPY },
    { "normalized", HL_FROM_ROWS, HL_Q_NORMALIZED },
    { "renyi2", HL_FROM_ROWS, HL_Q_RENYI2 },
    { "varentropy", HL_FROM_ROWS, HL_Q_VARENTROPY },
    { "peak", HL_FROM_ROWS, HL_Q_PEAK },
    { "self", HL_FROM_ROWS, HL_Q_SELF },
    { "previous", HL_FROM_ROWS, HL_Q_PREVIOUS },
    { "first", HL_FROM_ROWS, HL_Q_FIRST },
    { "entropy_nosink", HL_FROM_ROWS, HL_Q_ENTROPY_NOSINK },
    { "normalized_nosink", BINNED, HL_HIST_NORMALIZED_NOSINK },
    { "output_norm", HL_FROM_OUTPUT, 0 },
    { "band", HL_FROM_PATTERN_NOSINK, HL_PM_BAND },
    { "content", HL_FROM_PATTERN_NOSINK, HL_PM_CONTENT },
    { "k90", HL_FROM_PATTERN_NOSINK, HL_PM_K90 },
    { "induction", HL_FROM_PROBE, HL_PROBE_INDUCTION },
    { "duplicate", HL_FROM_PROBE, HL_PROBE_DUPLICATE },
    { "broken", BROKEN, 0 },
};

/* Computes the mean from a histogram, with every row in the middle of its bin. */
static double binned_mean(const int64_t *counts)
{
    double  sum   = 0.0;
    int64_t count = 0;

    for (int bin = 0; bin < HL_N_BINS; bin++) {
        sum += (double)counts[bin] * (bin + 0.5) / HL_N_BINS;
        count += counts[bin];
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* Allocates (n_layers, n_heads, n_last) numbers, NaN for heads that a layer lacks; NULL after a
 * failure. */
static double *new_grid(hl_report_out *out, const hl_profile *profile, int64_t n_last)
{
    double *grid = NULL;
    size_t  size = (size_t)(hl_grid_size(profile) * n_last);

    if (!hl_report_check(out, HL_ALLOC(&grid, size))) {
        hl_free(grid); /* another call may have failed before */
        return NULL;
    }
    for (size_t i = 0; i < size; i++)
        grid[i] = NAN;
    return grid;
}

static json_t *means_json(hl_report_out *out, const hl_profile *profile)
{
    json_t          *all      = json_object();
    const int64_t    shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };
    HL_FREED double *grid     = new_grid(out, profile, 1);

    for (size_t i = 0; grid != NULL && i < sizeof means / sizeof *means; i++) {
        HL_EACH_HEAD(profile, layer, head)
        {
            int64_t place = layer * shape[1] + head;
            if (means[i].from == BROKEN)
                grid[place] = (double)hl_profile_broken(profile, layer, head);
            else if (means[i].from == BINNED)
                grid[place] = binned_mean(
                    hl_profile_histogram(profile, layer, head, (hl_histogram)means[i].which));
            else
                grid[place] = hl_head_number(profile, layer, head, (hl_number_from)means[i].from,
                                             means[i].which);
        }
        hl_json_put(&all, means[i].key, hl_report_f32(out, grid, 2, shape));
    }
    return all;
}

static json_t *interval_json(hl_report_out *out, const hl_profile *profile, hl_quantity quantity)
{
    const int64_t         shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };
    HL_FREED hl_interval *found    = NULL;
    HL_FREED double      *grid     = new_grid(out, profile, 1);

    if (!hl_report_check(out, hl_grid_intervals(&found, profile, quantity)))
        return NULL;
    for (int64_t i = 0; i < hl_grid_size(profile); i++)
        grid[i] = found[i].low;
    json_t *low = hl_report_f32(out, grid, 2, shape);
    for (int64_t i = 0; i < hl_grid_size(profile); i++)
        grid[i] = found[i].high;
    return json_pack("{s:o, s:o, s:f, s:s, s:I}", "low", low, "high",
                     hl_report_f32(out, grid, 2, shape), "level", found[0].level, "method",
                     hl_interval_method(found[0].units), "n", (json_int_t)found[0].n);
}

/* ---------------------------------------------------------------------------- layers */

/* Adds a quantity's means over heads, with their intervals, under these names. */
static void put_layer_means(hl_report_out *out, json_t **layers, const hl_profile *profile,
                            hl_quantity quantity, const char *const names[3])
{
    HL_CLOSED(hl_layer_profile_free) hl_layer_profile *found = NULL;
    double flat = hl_threshold_of(NULL, HL_T_FLAT_ERRORS);

    if (!hl_report_check(out, hl_layer_profile_new(&found, profile, quantity, flat)))
        return;
    hl_json_put(layers, names[0], hl_report_numbers(found->means, found->n_layers));
    hl_json_put(layers, names[1], hl_report_numbers(found->lows, found->n_layers));
    hl_json_put(layers, names[2], hl_report_numbers(found->highs, found->n_layers));
    if (quantity == HL_Q_NORMALIZED)
        hl_json_put(layers, "shape",
                    json_pack("{s:s, s:s, s:o, s:o, s:o}", "kind", hl_shape_name(found->shape.kind),
                              "later_specialized",
                              hl_shape_specialized(&found->shape, HL_LAYERS_DIFFER, flat),
                              "later_change", hl_json_number(found->shape.change), "later_errors",
                              hl_json_number(found->shape.change_errors), "thirds",
                              hl_report_numbers(found->shape.thirds, 3)));
}

static json_t *layers_json(hl_report_out *out, const hl_profile *profile)
{
    static const char *const entropy[]    = { "entropy", "entropy_low", "entropy_high" };
    static const char *const normalized[] = { "normalized", "normalized_low", "normalized_high" };
    static const char *const nosink[]     = { "entropy_nosink", "entropy_nosink_low",
                                              "entropy_nosink_high" };

    int64_t          n_heads   = hl_profile_n_heads(profile);
    json_t          *layers    = json_object();
    json_t          *variance  = json_array();
    json_t          *influence = json_array();
    HL_FREED double *grid      = NULL;

    put_layer_means(out, &layers, profile, HL_Q_ENTROPY, entropy);
    put_layer_means(out, &layers, profile, HL_Q_NORMALIZED, normalized);
    put_layer_means(out, &layers, profile, HL_Q_ENTROPY_NOSINK, nosink);
    hl_report_check(out, hl_grid_means(&grid, profile, HL_Q_ENTROPY));
    for (int64_t i = 0; out->status == HL_OK && i < hl_profile_n_layers(profile); i++) {
        hl_json_add(&variance, hl_json_number(hl_variance(grid + i * n_heads, n_heads)));
        hl_json_add(&influence, hl_json_number(hl_profile_block_influence(profile, i)));
    }
    hl_json_put(&layers, "variance", variance);
    hl_json_put(&layers, "block_influence", influence);
    return layers;
}

/* ----------------------------------------------------------------------------- types */

/* Colors of head types, for each theme; figures use the same, and a type keeps its color whatever
 * the number of its heads. */
static json_t *type_colors(void)
{
    static const char *const themes[] = { [HL_THEME_LIGHT] = "light", [HL_THEME_DARK] = "dark" };
    json_t                  *colors   = json_object();

    for (int theme = HL_THEME_LIGHT; theme <= HL_THEME_DARK; theme++) {
        json_t *list = json_array();

        for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++) {
            hl_color color = hl_head_kind_color((hl_theme)theme, kind);
            char     text[8];

            snprintf(text, sizeof text, "#%02x%02x%02x", color.red, color.green, color.blue);
            hl_json_add(&list, hl_report_text(text));
        }
        hl_json_put(&colors, themes[theme], list);
    }
    return colors;
}

static json_t *types_json(hl_report_out *out, const hl_profile *profile)
{
    const int64_t     shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };
    json_t           *types    = json_object();
    json_t           *names    = json_array();
    HL_FREED double  *values   = new_grid(out, profile, 1);
    HL_FREED uint8_t *index    = NULL;

    if (hl_report_check(out, HL_ALLOC(&index, (size_t)hl_grid_size(profile)))) {
        memset(index, HL_HEAD_UNKNOWN, (size_t)hl_grid_size(profile));
        HL_EACH_HEAD(profile, layer, head)
        {
            hl_head_type type               = hl_head_type_of(profile, layer, head);
            index[layer * shape[1] + head]  = (uint8_t)type.kind;
            values[layer * shape[1] + head] = type.value;
        }
        hl_json_put(&types, "index", hl_report_bytes(out, index, 2, shape));
        HL_EACH_HEAD(profile, layer, head)
        index[layer * shape[1] + head] = hl_head_type_of(profile, layer, head).is_uncertain;
        hl_json_put(&types, "uncertain", hl_report_bytes(out, index, 2, shape));
        hl_json_put(&types, "value", hl_report_f16(out, values, 2, shape));
    }
    for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++)
        hl_json_add(&names, hl_report_text(hl_head_kind_name((hl_head_kind)kind)));
    hl_json_put(&types, "names", names);
    hl_json_put(&types, "colors", type_colors());
    return types;
}

/* ------------------------------------------------------------------- distributions */

/* Scales 64 counts to shares of the largest one; returns the largest count. */
static int64_t scale_counts(uint8_t *out, const int64_t *counts)
{
    int64_t most = 0;

    for (int bin = 0; bin < HL_N_BINS; bin++)
        most = counts[bin] > most ? counts[bin] : most;
    for (int bin = 0; bin < HL_N_BINS; bin++)
        out[bin] = most > 0 ? (uint8_t)lround(255.0 * (double)counts[bin] / (double)most) : 0;
    return most;
}

static json_t *histogram_json(hl_report_out *out, const hl_profile *profile, hl_histogram which,
                              const char *of)
{
    const int64_t     shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile),
                                   HL_N_BINS };
    json_t           *object   = json_object();
    json_t           *edges    = json_array();
    HL_FREED double  *most     = new_grid(out, profile, 1);
    HL_FREED uint8_t *counts   = NULL;

    for (int bin = 0; bin <= HL_N_BINS; bin++)
        hl_json_add(&edges, json_real((double)bin / HL_N_BINS));
    hl_report_check(out, HL_ALLOC_ZEROED(&counts, (size_t)(hl_grid_size(profile) * HL_N_BINS)));
    if (out->status == HL_OK) {
        HL_EACH_HEAD(profile, layer, head)
        {
            int64_t place = layer * shape[1] + head;
            most[place]   = (double)scale_counts(counts + place * HL_N_BINS,
                                                 hl_profile_histogram(profile, layer, head, which));
        }
        hl_json_put(&object, "of", hl_report_text(of));
        hl_json_put(&object, "counts", hl_report_bytes(out, counts, 3, shape));
        hl_json_put(&object, "max", hl_report_f32(out, most, 2, shape));
    }
    hl_json_put(&object, "edges", edges);
    return object;
}

/* Returns the moments of a head's rows of one kind, which is a position bucket or a type. */
typedef hl_moments (*moments_by)(const hl_profile *profile, int64_t layer, int64_t head,
                                 int64_t kind, hl_quantity quantity);

/* Makes {"entropy": means of all heads for each of n kinds, NAME: the names of the kinds}. */
static json_t *entropies_json(hl_report_out *out, const hl_profile *profile, int64_t n,
                              moments_by by, const char *name, json_t *kinds)
{
    const int64_t    shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile), n };
    json_t          *object   = json_object();
    HL_FREED double *grid     = new_grid(out, profile, n);

    if (grid != NULL) {
        HL_EACH_HEAD(profile, layer, head)
        for (int64_t kind = 0; kind < n; kind++)
            grid[(layer * shape[1] + head) * n + kind] =
                by(profile, layer, head, kind, HL_Q_ENTROPY).mean;
        hl_json_put(&object, "entropy", hl_report_f16(out, grid, 3, shape));
    }
    hl_json_put(&object, name, kinds);
    return object;
}

static json_t *positions_json(hl_report_out *out, const hl_profile *profile)
{
    int64_t n_buckets = hl_profile_n_buckets(profile);
    json_t *edges     = json_array();

    for (int64_t bucket = 0; bucket <= n_buckets; bucket++)
        hl_json_add(&edges, json_integer((INT64_C(1) << bucket) - 1));
    return entropies_json(out, profile, n_buckets, hl_profile_by_position, "edges", edges);
}

static json_t *token_types_json(hl_report_out *out, const hl_profile *profile)
{
    int64_t n_types = hl_profile_n_types(profile);
    json_t *names   = json_array();

    for (int64_t type = 0; type < n_types; type++)
        hl_json_add(&names, hl_report_text(hl_profile_type_name(profile, type)));
    return entropies_json(out, profile, n_types, hl_profile_by_type, "names", names);
}

/* ----------------------------------------------------------------------------- twins */

/* Finds the most similar heads of a head's layer, in decreasing order; unused entries are
 * unchanged. */
static void find_twins(double *heads, double *similarities, const hl_profile *profile,
                       int64_t layer, int64_t head)
{
    int64_t chosen[N_TWINS] = { -1, -1, -1 };

    for (int rank = 0; rank < N_TWINS; rank++) {
        double best = -1.0;

        for (int64_t other = 0; other < hl_profile_heads_of(profile, layer); other++) {
            bool   taken = other == head || other == chosen[0] || other == chosen[1];
            double alike = taken ? NAN : hl_profile_similarity(profile, layer, head, other);

            if (alike > best) { /* false for NaN, which stands for unmeasured */
                best         = alike;
                chosen[rank] = other;
            }
        }
        if (chosen[rank] < 0)
            return;
        heads[rank]        = (double)chosen[rank];
        similarities[rank] = best;
    }
}

/* f16 holds any head number exactly, and NaN for none. */
static json_t *twins_json(hl_report_out *out, const hl_profile *profile)
{
    const int64_t shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile), N_TWINS };
    json_t       *twins    = json_object();
    HL_FREED double *heads = new_grid(out, profile, N_TWINS);
    HL_FREED double *alike = new_grid(out, profile, N_TWINS);

    if (out->status == HL_OK) {
        HL_EACH_HEAD(profile, layer, head)
        {
            int64_t place = (layer * shape[1] + head) * N_TWINS;
            find_twins(heads + place, alike + place, profile, layer, head);
        }
        hl_json_put(&twins, "head", hl_report_f16(out, heads, 3, shape));
        hl_json_put(&twins, "similarity", hl_report_f16(out, alike, 3, shape));
    }
    return twins;
}

/* ---------------------------------------------------------------------- what it is of */

/* Returns a setting as a number if it is one, otherwise as a text. */
static json_t *setting_json(const hl_profile *profile, const char *key)
{
    const char *text = hl_profile_setting(profile, key);
    char       *end  = NULL;
    long long   n    = text != NULL ? strtoll(text, &end, 10) : 0;

    if (text != NULL && *text != '\0' && *end == '\0' && strlen(text) < 16)
        return json_integer(n);
    return hl_report_text(text);
}

static json_t *model_json(const hl_profile *profile, const hl_model_info *info)
{
    json_t *model =
        json_pack("{s:I, s:I, s:o, s:o, s:o}", "layers", (json_int_t)hl_profile_n_layers(profile),
                  "heads", (json_int_t)hl_profile_n_heads(profile), "family",
                  hl_report_text(hl_profile_setting(profile, "family")), "dtype",
                  hl_report_text(hl_profile_setting(profile, "dtype")), "hash",
                  hl_report_text(hl_profile_setting(profile, "model")));

    if (info != NULL) {
        hl_json_put(&model, "kv_heads", json_integer(info->n_kv_heads));
        hl_json_put(&model, "d_model", json_integer(info->d_model));
        hl_json_put(&model, "context", json_integer(info->n_ctx));
        hl_json_put(&model, "params", json_integer(info->n_params));
    }
    return model;
}

static json_t *corpus_json(const hl_profile *profile)
{
    static const char *const settings[] = { "context",  "stride", "seed",     "samples",
                                            "adjusted", "gates",  "tokenizer" };

    json_t *corpus = json_object();
    int64_t rows   = 0;

    HL_EACH_HEAD(profile, layer, head)
    {
        int64_t count = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).count;
        rows          = count > rows ? count : rows;
    }
    hl_json_put(&corpus, "tokens", json_integer(hl_profile_n_tokens(profile)));
    hl_json_put(&corpus, "sequences", json_integer(hl_profile_all_sequences(profile)));
    hl_json_put(&corpus, "rows", json_integer(rows));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (hl_profile_setting(profile, settings[i]) != NULL)
            hl_json_put(&corpus, settings[i], setting_json(profile, settings[i]));
    }
    if (hl_profile_nll(profile).count > 0)
        hl_json_put(&corpus, "nll", hl_json_number(hl_profile_nll(profile).mean));
    return corpus;
}

json_t *hl_report_profile_json(hl_report_out *out, const hl_report *report, int64_t index)
{
    const hl_report_profile *about   = &report->profiles[index];
    const hl_profile        *profile = about->profile;
    json_t                  *object  = json_object();
    json_t                  *n_heads = json_array();
    json_t                  *rules   = json_array();
    json_t                  *off     = json_array(); /* heads without output, or nearly so */

    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++)
        hl_json_add(&n_heads, json_integer(hl_profile_heads_of(profile, layer)));
    for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++)
        hl_json_add(&rules, hl_report_text(hl_head_kind_rule((hl_head_kind)kind)));
    HL_EACH_HEAD(profile, layer, head)
    {
        if (hl_profile_output_norm(profile, layer, head) == 0.0)
            hl_json_add(&off, hl_report_head(layer, head));
    }
    hl_json_put(&object, "name", hl_report_text(about->name));
    hl_json_put(&object, "model", model_json(profile, index == 0 ? report->model : NULL));
    hl_json_put(&object, "corpus", corpus_json(profile));
    hl_json_put(&object, "n_heads", n_heads);
    hl_json_put(&object, "means", means_json(out, profile));
    if (hl_profile_n_sequences(profile) >= HL_MIN_UNITS) {
        json_t *all = json_object();
        hl_json_put(&all, "entropy", interval_json(out, profile, HL_Q_ENTROPY));
        hl_json_put(&all, "normalized", interval_json(out, profile, HL_Q_NORMALIZED));
        hl_json_put(&object, "intervals", all);
    }
    hl_json_put(&object, "layers", layers_json(out, profile));
    hl_json_put(&object, "types", types_json(out, profile));
    hl_json_put(&object, "type_rules", rules);
    hl_json_put(&object, "histogram",
                histogram_json(out, profile, HL_HIST_NORMALIZED, "normalized"));
    hl_json_put(&object, "histogram_nosink",
                histogram_json(out, profile, HL_HIST_NORMALIZED_NOSINK, "normalized_nosink"));
    hl_json_put(&object, "positions", positions_json(out, profile));
    hl_json_put(&object, "token_types", token_types_json(out, profile));
    hl_json_put(&object, "twins", twins_json(out, profile));
    hl_json_put(&object, "off", off);
    put_findings(out, &object, profile, index == 0 ? report->trace : NULL);
    return object;
}
