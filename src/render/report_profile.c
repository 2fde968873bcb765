/* report_profile.c - what a profile holds, and what is wrong with it, as a report's data. */
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

/* "entropy-collapse" to "Entropy collapse"; returns `out`. */
static const char *title_of(char out[64], const char *name)
{
    snprintf(out, 64, "%s", name);
    for (char *at = out; *at != '\0'; at++)
        *at = *at == '-' ? ' ' : *at;
    out[0] = (char)toupper((unsigned char)out[0]);
    return out;
}

/* What was found is serious if the model suffers from it; the rest says what can be removed. */
static const char *severity_of(const hl_diagnosis *item)
{
    static const char *const serious[] = { "entropy-collapse", "entropic-overload",
                                           "attention-locking", "dead-or-broken" };

    if (item->verdict != HL_VERDICT_FOUND)
        return item->verdict == HL_VERDICT_NOT_FOUND ? "none" : "unknown";
    for (size_t i = 0; i < sizeof serious / sizeof *serious; i++) {
        if (strcmp(item->name, serious[i]) == 0)
            return "serious";
    }
    return "notice";
}

static void set_heads(hl_report_out *out, json_t *object, const hl_diagnosis *item,
                      int64_t n_layers)
{
    json_t *heads  = hl_report_list(out);
    json_t *layers = hl_report_list(out);

    for (int64_t i = 0; i < item->n_heads; i++)
        hl_report_append(out, heads,
                         json_pack("{s:I, s:I, s:o}", "layer", (json_int_t)item->heads[i].layer,
                                   "head", (json_int_t)item->heads[i].head, "value",
                                   hl_json_number(item->heads[i].value)));
    for (int64_t layer = 0; layer < n_layers; layer++) {
        bool has = false;

        for (int64_t i = 0; i < item->n_heads; i++)
            has = has || item->heads[i].layer == layer;
        if (has)
            hl_report_append(out, layers, json_integer(layer));
    }
    hl_report_set(out, object, "heads", heads);
    hl_report_set(out, object, "layers", layers);
}

static json_t *diagnosis_json(hl_report_out *out, const hl_diagnosis *item, int64_t n_layers)
{
    json_t *object = hl_report_object(out);
    char    title[64];

    hl_report_set(out, object, "name", hl_report_text(item->name));
    hl_report_set(out, object, "title", hl_report_text(title_of(title, item->name)));
    hl_report_set(out, object, "verdict", hl_report_text(hl_verdict_name(item->verdict)));
    hl_report_set(out, object, "fired", json_boolean(item->verdict == HL_VERDICT_FOUND));
    hl_report_set(out, object, "ran", json_boolean(item->verdict != HL_VERDICT_NOT_RUN));
    hl_report_set(out, object, "below", json_boolean(item->below));
    hl_report_set(out, object, "severity", hl_report_text(severity_of(item)));
    hl_report_set(out, object, "finding", hl_report_text(item->finding));
    hl_report_set(out, object, "rule", hl_report_text(item->rule));
    hl_report_set(out, object, "value", hl_json_number(item->value));
    hl_report_set(out, object, "threshold", hl_json_number(item->threshold));
    hl_report_set(out, object, "evidence", hl_report_text(item->evidence));
    hl_report_set(out, object, "source", hl_report_text(item->source));
    hl_report_set(out, object, "counter", hl_report_text(item->against));
    hl_report_set(out, object, "mitigation", hl_report_text(item->mitigation));
    hl_report_set(out, object, "measure", hl_report_text(item->measure));
    set_heads(out, object, item, n_layers);
    return object;
}

static json_t *diagnoses_json(hl_report_out *out, const hl_profile *profile, const hl_trace *trace)
{
    hl_diagnoses *found = NULL;
    json_t       *list  = hl_report_list(out);

    if (hl_report_check(out, hl_diagnose(&found, profile, NULL, NULL)) && trace != NULL)
        hl_report_check(out, hl_diagnose_trace(found, trace, NULL));
    for (int i = 0; out->status == HL_OK && i < HL_N_DIAGNOSES; i++)
        hl_report_append(out, list,
                         diagnosis_json(out, &found->items[i], hl_profile_n_layers(profile)));
    hl_diagnoses_free(found);
    return list;
}

enum { N_TWINS = 3 };

/* ----------------------------------------------------------------------------- heads */

typedef enum source { QUANTITY, PATTERN, PROBE, OUTPUT_NORM, BROKEN, BINNED } source;

/* Numbers with one value a head. */
static const struct mean {
    const char *key;
    source      from;
    int         which; /* hl_quantity, hl_pattern_metric (without key 0), hl_probe, hl_histogram */
} means[] = {
    { "H", QUANTITY, HL_Q_ENTROPY },
    { "Hhat", QUANTITY, HL_Q_FAIR },
    { "H2", QUANTITY, HL_Q_RENYI2 },
    { "V", QUANTITY, HL_Q_VARENTROPY },
    { "peak", QUANTITY, HL_Q_PEAK },
    { "self", QUANTITY, HL_Q_SELF },
    { "previous", QUANTITY, HL_Q_PREVIOUS },
    { "first", QUANTITY, HL_Q_FIRST },
    { "H_nosink", QUANTITY, HL_Q_NOSINK },
    { "Hhat_nosink", BINNED, HL_HIST_NOSINK },
    { "output_norm", OUTPUT_NORM, 0 },
    { "band", PATTERN, HL_PM_BAND },
    { "content", PATTERN, HL_PM_CONTENT },
    { "k90", PATTERN, HL_PM_K90 },
    { "induction", PROBE, HL_PROBE_INDUCTION },
    { "duplicate", PROBE, HL_PROBE_DUPLICATE },
    { "broken", BROKEN, 0 },
};

/* The mean that a histogram allows: every row in the middle of its bin. */
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

static double value_of(const struct mean *mean, const hl_profile *profile, int64_t layer,
                       int64_t head)
{
    switch (mean->from) {
    case QUANTITY:
        return hl_profile_mean(profile, layer, head, (hl_quantity)mean->which);
    case PATTERN:
        return hl_profile_pattern(profile, layer, head, (hl_pattern_metric)mean->which, true).mean;
    case PROBE:
        return hl_profile_probe(profile, layer, head, (hl_probe)mean->which);
    case OUTPUT_NORM:
        return hl_profile_output_norm(profile, layer, head);
    case BROKEN:
        return (double)hl_profile_broken(profile, layer, head);
    default:
        return binned_mean(hl_profile_histogram(profile, layer, head, (hl_histogram)mean->which));
    }
}

/* (n_layers, n_heads, n_last) numbers, NaN for heads that a layer lacks; NULL after a failure. */
static double *new_grid(hl_report_out *out, const hl_profile *profile, int64_t n_last)
{
    double *grid = NULL;
    size_t  size = (size_t)(hl_grid_size(profile) * n_last);

    if (!hl_report_check(out, HL_ALLOC(&grid, size))) {
        hl_free(grid); /* it may be there: another call has failed before */
        return NULL;
    }
    for (size_t i = 0; i < size; i++)
        grid[i] = NAN;
    return grid;
}

static json_t *means_json(hl_report_out *out, const hl_profile *profile)
{
    json_t       *all      = hl_report_object(out);
    const int64_t shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };
    double       *grid     = new_grid(out, profile, 1);

    for (size_t i = 0; grid != NULL && i < sizeof means / sizeof *means; i++) {
        HL_EACH_HEAD(profile, layer, head)
        grid[layer * shape[1] + head] = value_of(&means[i], profile, layer, head);
        hl_report_set(out, all, means[i].key, hl_report_f32(out, grid, 2, shape));
    }
    hl_free(grid);
    return all;
}

static json_t *interval_json(hl_report_out *out, const hl_profile *profile, hl_quantity quantity,
                             uint64_t seed)
{
    hl_interval  *found    = NULL;
    const int64_t shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };
    json_t       *both     = hl_report_object(out);
    double       *grid     = new_grid(out, profile, 1);

    if (hl_report_check(out, hl_grid_intervals(&found, profile, quantity, seed))) {
        for (int64_t i = 0; i < hl_grid_size(profile); i++)
            grid[i] = found[i].low;
        hl_report_set(out, both, "low", hl_report_f32(out, grid, 2, shape));
        for (int64_t i = 0; i < hl_grid_size(profile); i++)
            grid[i] = found[i].high;
        hl_report_set(out, both, "high", hl_report_f32(out, grid, 2, shape));
    }
    hl_free(found);
    hl_free(grid);
    return both;
}

/* Absent where a bootstrap has nothing to draw from. */
static void set_intervals(hl_report_out *out, json_t *object, const hl_profile *profile,
                          uint64_t seed)
{
    if (hl_profile_n_sequences(profile) < 2)
        return;
    json_t *all = hl_report_object(out);
    hl_report_set(out, all, "H", interval_json(out, profile, HL_Q_ENTROPY, seed));
    hl_report_set(out, all, "Hhat", interval_json(out, profile, HL_Q_FAIR, seed));
    hl_report_set(out, object, "intervals", all);
}

/* ---------------------------------------------------------------------------- layers */

/* A quantity's means over heads with their intervals, under these names. */
static void set_layer_means(hl_report_out *out, json_t *layers, const hl_profile *profile,
                            hl_quantity quantity, const char *const names[3], uint64_t seed)
{
    hl_layer_profile *found = NULL;
    double            flat  = hl_threshold_of(NULL, HL_T_FLAT_ERRORS);

    if (hl_report_check(out, hl_layer_profile_new(&found, profile, quantity, flat, seed))) {
        hl_report_set(out, layers, names[0], hl_report_numbers(out, found->means, found->n_layers));
        hl_report_set(out, layers, names[1], hl_report_numbers(out, found->lows, found->n_layers));
        hl_report_set(out, layers, names[2], hl_report_numbers(out, found->highs, found->n_layers));
    }
    hl_layer_profile_free(found);
}

static json_t *layers_json(hl_report_out *out, const hl_profile *profile, uint64_t seed)
{
    static const char *const entropy[] = { "H", "low", "high" };
    static const char *const fair[]    = { "Hhat", "Hhat_low", "Hhat_high" };
    static const char *const nosink[]  = { "H_nosink", "H_nosink_low", "H_nosink_high" };

    int64_t n_heads   = hl_profile_n_heads(profile);
    json_t *layers    = hl_report_object(out);
    json_t *variance  = hl_report_list(out);
    json_t *influence = hl_report_list(out);
    double *grid      = NULL;

    set_layer_means(out, layers, profile, HL_Q_ENTROPY, entropy, seed);
    set_layer_means(out, layers, profile, HL_Q_FAIR, fair, seed);
    set_layer_means(out, layers, profile, HL_Q_NOSINK, nosink, seed);
    if (hl_report_check(out, hl_grid_means(&grid, profile, HL_Q_ENTROPY))) {
        for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
            hl_report_append(out, variance,
                             hl_json_number(hl_variance(grid + layer * n_heads, n_heads)));
            hl_report_append(out, influence,
                             hl_json_number(hl_profile_block_influence(profile, layer)));
        }
    }
    hl_report_set(out, layers, "variance", variance);
    hl_report_set(out, layers, "influence", influence);
    hl_free(grid);
    return layers;
}

/* ----------------------------------------------------------------------------- types */

/* By theme, a color for each name: the page and the figures agree, and a type has its color however
 * many heads it has. */
static json_t *type_colors(hl_report_out *out)
{
    static const char *const themes[] = { [HL_THEME_LIGHT] = "light", [HL_THEME_DARK] = "dark" };
    json_t                  *colors   = hl_report_object(out);

    for (int theme = HL_THEME_LIGHT; theme <= HL_THEME_DARK; theme++) {
        json_t *list = hl_report_list(out);

        for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++) {
            hl_colour color = hl_head_kind_colour((hl_theme)theme, kind);
            char      text[8];

            snprintf(text, sizeof text, "#%02x%02x%02x", color.red, color.green, color.blue);
            hl_report_append(out, list, hl_report_text(text));
        }
        hl_report_set(out, colors, themes[theme], list);
    }
    return colors;
}

static void set_types(hl_report_out *out, json_t *object, const hl_profile *profile)
{
    const int64_t shape[2] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile) };
    json_t       *types    = hl_report_object(out);
    json_t       *names    = hl_report_list(out);
    json_t       *rules    = hl_report_list(out);
    double       *values   = new_grid(out, profile, 1);
    uint8_t      *index    = NULL;

    hl_report_check(out, HL_ALLOC(&index, (size_t)hl_grid_size(profile)));
    for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++) {
        hl_report_append(out, names, hl_report_text(hl_head_kind_name((hl_head_kind)kind)));
        hl_report_append(out, rules, hl_report_text(hl_head_kind_rule((hl_head_kind)kind)));
    }
    if (out->status == HL_OK) {
        memset(index, HL_HEAD_UNKNOWN, (size_t)hl_grid_size(profile));
        HL_EACH_HEAD(profile, layer, head)
        {
            hl_head_type type               = hl_head_type_of(profile, layer, head);
            index[layer * shape[1] + head]  = (uint8_t)type.kind;
            values[layer * shape[1] + head] = type.value;
        }
        hl_report_set(out, types, "index", hl_report_bytes(out, index, 2, shape));
        hl_report_set(out, types, "value", hl_report_f16(out, values, 2, shape));
    }
    hl_report_set(out, types, "names", names);
    hl_report_set(out, types, "colors", type_colors(out));
    hl_report_set(out, object, "types", types);
    hl_report_set(out, object, "type_rules", rules);
    hl_free(values);
    hl_free(index);
}

/* ------------------------------------------------------------------- distributions */

/* 64 counts as shares of the largest of them; returns that. */
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
    const int64_t shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile),
                               HL_N_BINS };
    json_t       *object   = hl_report_object(out);
    json_t       *edges    = hl_report_list(out);
    double       *most     = new_grid(out, profile, 1);
    uint8_t      *counts   = NULL;

    for (int bin = 0; bin <= HL_N_BINS; bin++)
        hl_report_append(out, edges, json_real((double)bin / HL_N_BINS));
    hl_report_check(out, HL_ALLOC_ZEROED(&counts, (size_t)(hl_grid_size(profile) * HL_N_BINS)));
    if (out->status == HL_OK) {
        HL_EACH_HEAD(profile, layer, head)
        {
            int64_t place = layer * shape[1] + head;
            most[place]   = (double)scale_counts(counts + place * HL_N_BINS,
                                                 hl_profile_histogram(profile, layer, head, which));
        }
        hl_report_set(out, object, "of", hl_report_text(of));
        hl_report_set(out, object, "counts", hl_report_bytes(out, counts, 3, shape));
        hl_report_set(out, object, "max", hl_report_f32(out, most, 2, shape));
    }
    hl_report_set(out, object, "edges", edges);
    hl_free(most);
    hl_free(counts);
    return object;
}

/* How a head's rows of one kind, a position or a type, are summed up in a profile. */
typedef hl_moments (*moments_by)(const hl_profile *profile, int64_t layer, int64_t head,
                                 int64_t kind, hl_quantity quantity);

/* {"H": means of all heads for each of n kinds, NAME: what the kinds are} */
static json_t *entropies_json(hl_report_out *out, const hl_profile *profile, int64_t n,
                              moments_by by, const char *name, json_t *kinds)
{
    const int64_t shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile), n };
    json_t       *object   = hl_report_object(out);
    double       *grid     = new_grid(out, profile, n);

    if (grid != NULL) {
        HL_EACH_HEAD(profile, layer, head)
        for (int64_t kind = 0; kind < n; kind++)
            grid[(layer * shape[1] + head) * n + kind] =
                by(profile, layer, head, kind, HL_Q_ENTROPY).mean;
        hl_report_set(out, object, "H", hl_report_f16(out, grid, 3, shape));
    }
    hl_report_set(out, object, name, kinds);
    hl_free(grid);
    return object;
}

static json_t *positions_json(hl_report_out *out, const hl_profile *profile)
{
    int64_t n_buckets = hl_profile_n_buckets(profile);
    json_t *edges     = hl_report_list(out);

    for (int64_t bucket = 0; bucket <= n_buckets; bucket++)
        hl_report_append(out, edges, json_integer((INT64_C(1) << bucket) - 1));
    return entropies_json(out, profile, n_buckets, hl_profile_by_position, "edges", edges);
}

static json_t *token_types_json(hl_report_out *out, const hl_profile *profile)
{
    int64_t n_types = hl_profile_n_types(profile);
    json_t *names   = hl_report_list(out);

    for (int64_t type = 0; type < n_types; type++)
        hl_report_append(out, names, hl_report_text(hl_profile_type_name(profile, type)));
    return entropies_json(out, profile, n_types, hl_profile_by_type, "names", names);
}

/* ----------------------------------------------------------------------------- twins */

/* The heads of its layer that are most like a head, the most alike first; what is not there stays
 * as it is. */
static void find_twins(double *heads, double *similarities, const hl_profile *profile,
                       int64_t layer, int64_t head)
{
    int64_t chosen[N_TWINS] = { -1, -1, -1 };

    for (int rank = 0; rank < N_TWINS; rank++) {
        double best = -1.0;

        for (int64_t other = 0; other < hl_profile_heads_of(profile, layer); other++) {
            bool   taken = other == head || other == chosen[0] || other == chosen[1];
            double alike = taken ? NAN : hl_profile_similarity(profile, layer, head, other);

            if (alike > best) { /* not where it is NaN: not measured */
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

/* Half precision holds the number of any head, and NaN for none. */
static json_t *twins_json(hl_report_out *out, const hl_profile *profile)
{
    const int64_t shape[3] = { hl_profile_n_layers(profile), hl_profile_n_heads(profile), N_TWINS };
    json_t       *twins    = hl_report_object(out);
    double       *heads    = new_grid(out, profile, N_TWINS);
    double       *alike    = new_grid(out, profile, N_TWINS);

    if (out->status == HL_OK) {
        HL_EACH_HEAD(profile, layer, head)
        {
            int64_t place = (layer * shape[1] + head) * N_TWINS;
            find_twins(heads + place, alike + place, profile, layer, head);
        }
        hl_report_set(out, twins, "head", hl_report_f16(out, heads, 3, shape));
        hl_report_set(out, twins, "similarity", hl_report_f16(out, alike, 3, shape));
    }
    hl_free(heads);
    hl_free(alike);
    return twins;
}

/* ---------------------------------------------------------------------- what it is of */

/* A setting as the number that it is, if it is one. */
static json_t *setting_json(const hl_profile *profile, const char *key)
{
    const char *text = hl_profile_setting(profile, key);
    char       *end  = NULL;
    long long   n    = text != NULL ? strtoll(text, &end, 10) : 0;

    if (text != NULL && *text != '\0' && *end == '\0' && strlen(text) < 16)
        return json_integer(n);
    return hl_report_text(text);
}

static json_t *model_json(hl_report_out *out, const hl_profile *profile, const hl_model_info *info)
{
    json_t *model = hl_report_object(out);

    hl_report_set(out, model, "layers", json_integer(hl_profile_n_layers(profile)));
    hl_report_set(out, model, "heads", json_integer(hl_profile_n_heads(profile)));
    hl_report_set(out, model, "family", hl_report_text(hl_profile_setting(profile, "family")));
    hl_report_set(out, model, "dtype", hl_report_text(hl_profile_setting(profile, "dtype")));
    hl_report_set(out, model, "hash", hl_report_text(hl_profile_setting(profile, "model")));
    if (info != NULL) {
        hl_report_set(out, model, "kv_heads", json_integer(info->n_kv_heads));
        hl_report_set(out, model, "d_model", json_integer(info->d_model));
        hl_report_set(out, model, "context", json_integer(info->n_ctx));
        hl_report_set(out, model, "params", json_integer(info->n_params));
    }
    return model;
}

static json_t *corpus_json(hl_report_out *out, const hl_profile *profile)
{
    static const char *const settings[] = { "context",  "stride", "seed",     "samples",
                                            "adjusted", "gates",  "tokenizer" };

    json_t *corpus = hl_report_object(out);
    int64_t rows   = 0;

    HL_EACH_HEAD(profile, layer, head)
    {
        int64_t count = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).count;
        rows          = count > rows ? count : rows;
    }
    hl_report_set(out, corpus, "tokens", json_integer(hl_profile_n_tokens(profile)));
    hl_report_set(out, corpus, "sequences", json_integer(hl_profile_all_sequences(profile)));
    hl_report_set(out, corpus, "rows", json_integer(rows));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (hl_profile_setting(profile, settings[i]) != NULL)
            hl_report_set(out, corpus, settings[i], setting_json(profile, settings[i]));
    }
    if (hl_profile_nll(profile).count > 0)
        hl_report_set(out, corpus, "nll", hl_json_number(hl_profile_nll(profile).mean));
    return corpus;
}

/* Heads that write nothing: off, or as good as. */
static json_t *off_json(hl_report_out *out, const hl_profile *profile)
{
    json_t *off = hl_report_list(out);

    HL_EACH_HEAD(profile, layer, head)
    {
        if (hl_profile_output_norm(profile, layer, head) == 0.0)
            hl_report_append(out, off, hl_report_head(layer, head));
    }
    return off;
}

json_t *hl_report_profile_json(hl_report_out *out, const hl_report *report, int64_t index)
{
    const hl_report_profile *about   = &report->profiles[index];
    const hl_profile        *profile = about->profile;
    json_t                  *object  = hl_report_object(out);
    json_t                  *n_heads = hl_report_list(out);

    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++)
        hl_report_append(out, n_heads, json_integer(hl_profile_heads_of(profile, layer)));
    hl_report_set(out, object, "name", hl_report_text(about->name));
    hl_report_set(out, object, "model",
                  model_json(out, profile, index == 0 ? report->model : NULL));
    hl_report_set(out, object, "corpus", corpus_json(out, profile));
    hl_report_set(out, object, "n_heads", n_heads);
    hl_report_set(out, object, "means", means_json(out, profile));
    set_intervals(out, object, profile, report->seed);
    hl_report_set(out, object, "layers", layers_json(out, profile, report->seed));
    set_types(out, object, profile);
    hl_report_set(out, object, "histogram",
                  histogram_json(out, profile, HL_HIST_NORMALISED, "Hhat"));
    hl_report_set(out, object, "histogram_nosink",
                  histogram_json(out, profile, HL_HIST_NOSINK, "Hhat_nosink"));
    hl_report_set(out, object, "positions", positions_json(out, profile));
    hl_report_set(out, object, "token_types", token_types_json(out, profile));
    hl_report_set(out, object, "twins", twins_json(out, profile));
    hl_report_set(out, object, "off", off_json(out, profile));
    hl_report_set(out, object, "diagnoses",
                  diagnoses_json(out, profile, index == 0 ? report->trace : NULL));
    return object;
}
