/* analysis_heads.c - tables with a line for a head, or for a pair of heads. */
#include <math.h>
#include <stdlib.h>

#include "analysis/analysis.h"
#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"

static void put_head(hl_sheet *table, int64_t layer, int64_t head)
{
    hl_sheet_put_int(table, layer);
    hl_sheet_put_int(table, head);
}

/* -------------------------------------------------------------------- heads */

static const hl_column head_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },        { "head", HL_COLUMN_INT, 0 },
    { "rows", HL_COLUMN_INT, 0 },         { "entropy", HL_COLUMN_REAL, 3 },
    { "entropy_low", HL_COLUMN_REAL, 3 }, { "entropy_high", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },        { "fair_low", HL_COLUMN_REAL, 3 },
    { "fair_high", HL_COLUMN_REAL, 3 },   { "median", HL_COLUMN_REAL, 3 },
    { "nosink", HL_COLUMN_REAL, 3 },      { "nosink_median", HL_COLUMN_REAL, 3 },
    { "renyi2", HL_COLUMN_REAL, 3 },      { "varentropy", HL_COLUMN_REAL, 3 },
    { "peak", HL_COLUMN_REAL, 3 },        { "peak_p95", HL_COLUMN_REAL, 3 },
    { "self", HL_COLUMN_REAL, 3 },        { "previous", HL_COLUMN_REAL, 3 },
    { "first", HL_COLUMN_REAL, 3 },       { "output_norm", HL_COLUMN_REAL, 3 },
    { "broken", HL_COLUMN_INT, 0 },       { 0 },
};

static void put_head_row(hl_sheet *table, const hl_profile *profile, int64_t layer, int64_t head,
                         const hl_interval *entropy, const hl_interval *fair)
{
    hl_moments rows = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY);

    put_head(table, layer, head);
    hl_sheet_put_int(table, rows.count);
    hl_sheet_put_real(table, rows.mean);
    hl_sheet_put_real(table, entropy->low);
    hl_sheet_put_real(table, entropy->high);
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_FAIR));
    hl_sheet_put_real(table, fair->low);
    hl_sheet_put_real(table, fair->high);
    hl_sheet_put_real(table, hl_profile_quantile(profile, layer, head, HL_HIST_NORMALISED, 0.5));
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_NOSINK));
    hl_sheet_put_real(table, hl_profile_quantile(profile, layer, head, HL_HIST_NOSINK, 0.5));
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_RENYI2));
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_VARENTROPY));
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_PEAK));
    hl_sheet_put_real(table, hl_profile_quantile(profile, layer, head, HL_HIST_PEAK, 0.95));
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_SELF));
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_PREVIOUS));
    hl_sheet_put_real(table, hl_profile_mean(profile, layer, head, HL_Q_FIRST));
    hl_sheet_put_real(table, hl_profile_output_norm(profile, layer, head));
    hl_sheet_put_int(table, hl_profile_broken(profile, layer, head));
}

hl_status hl_analyse_heads(hl_sheet **out, const hl_profile *profile,
                           const hl_analysis_options *options)
{
    hl_status    status  = HL_OK;
    int64_t      n_heads = hl_profile_n_heads(profile);
    hl_sheet    *table   = NULL;
    hl_interval *entropy = NULL;
    hl_interval *fair    = NULL;

    HL_TRY(hl_sheet_new(&table, "heads", "Every head: means over rows, 95% intervals by bootstrap",
                        head_columns));
    HL_TRY(hl_grid_intervals(&entropy, profile, HL_Q_ENTROPY, options->seed));
    HL_TRY(hl_grid_intervals(&fair, profile, HL_Q_FAIR, options->seed));
    HL_EACH_HEAD(profile, layer, head)
    {
        int64_t place = layer * n_heads + head;
        put_head_row(table, profile, layer, head, &entropy[place], &fair[place]);
    }
    hl_analysis_facts(table, profile);

done:
    hl_free(entropy);
    hl_free(fair);
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- extremes */

typedef struct scored {
    int64_t layer;
    int64_t head;
    double  value;
} scored;

/* Lowest first; at equal value by layer and head, so that the order is the same everywhere. */
static int compare_scored(const void *left, const void *right)
{
    const scored *a = left;
    const scored *b = right;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return (a->head > b->head) - (a->head < b->head);
}

/* All heads that have the value, sorted. */
static hl_status sort_heads(scored **out, int64_t *count, const hl_profile *profile,
                            hl_quantity quantity)
{
    hl_status status = HL_ALLOC(out, (size_t)hl_grid_size(profile));

    *count = 0;
    if (status != HL_OK)
        return status;
    HL_EACH_HEAD(profile, layer, head)
    {
        double value = hl_profile_mean(profile, layer, head, quantity);
        if (!isnan(value))
            (*out)[(*count)++] = (scored){ layer, head, value };
    }
    qsort(*out, (size_t)*count, sizeof **out, compare_scored);
    return HL_OK;
}

static const hl_column extreme_columns[] = {
    { "end", HL_COLUMN_TEXT, 0 },    { "rank", HL_COLUMN_INT, 0 },
    { "layer", HL_COLUMN_INT, 0 },   { "head", HL_COLUMN_INT, 0 },
    { "fair", HL_COLUMN_REAL, 3 },   { "entropy", HL_COLUMN_REAL, 3 },
    { "nosink", HL_COLUMN_REAL, 3 }, { "peak", HL_COLUMN_REAL, 3 },
    { "first", HL_COLUMN_REAL, 3 },  { 0 },
};

static void put_extreme(hl_sheet *table, const hl_profile *profile, const char *end, int64_t rank,
                        const scored *which)
{
    hl_sheet_put_text(table, "%s", end);
    hl_sheet_put_int(table, rank);
    put_head(table, which->layer, which->head);
    hl_sheet_put_real(table, hl_profile_mean(profile, which->layer, which->head, HL_Q_FAIR));
    hl_sheet_put_real(table, hl_profile_mean(profile, which->layer, which->head, HL_Q_ENTROPY));
    hl_sheet_put_real(table, hl_profile_mean(profile, which->layer, which->head, HL_Q_NOSINK));
    hl_sheet_put_real(table, hl_profile_mean(profile, which->layer, which->head, HL_Q_PEAK));
    hl_sheet_put_real(table, hl_profile_mean(profile, which->layer, which->head, HL_Q_FIRST));
}

/* By fair entropy; by entropy where no row saw enough keys for that. */
hl_status hl_analyse_extremes(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;
    scored   *heads  = NULL;
    int64_t   count  = 0;
    int64_t   wanted = options->n_extremes > 0 ? options->n_extremes : 10;
    bool      fair   = true;

    HL_TRY(
        hl_sheet_new(&table, "extremes", "The most and the least focused heads", extreme_columns));
    HL_TRY(sort_heads(&heads, &count, profile, HL_Q_FAIR));
    if (count == 0) {
        fair = false;
        hl_free(heads);
        heads = NULL;
        HL_TRY(sort_heads(&heads, &count, profile, HL_Q_ENTROPY));
    }
    for (int64_t i = 0; i < wanted && i < count; i++)
        put_extreme(table, profile, "most", i + 1, &heads[i]);
    for (int64_t i = 0; i < wanted && i < count; i++)
        put_extreme(table, profile, "least", i + 1, &heads[count - 1 - i]);
    hl_sheet_fact_text(table, "ranked by", "%s", fair ? "fair" : "entropy");
    hl_analysis_facts(table, profile);

done:
    hl_free(heads);
    return hl_sheet_hand_over(out, table, status);
}

/* --------------------------------------------------------------- similarity */

typedef struct pair {
    int64_t layer;
    int64_t a;
    int64_t b;
    double  similarity;
    double  in_common; /* without what the first key brings about */
} pair;

static int compare_pairs(const void *left, const void *right)
{
    const pair *x = left;
    const pair *y = right;

    if (x->in_common != y->in_common)
        return x->in_common > y->in_common ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return (x->b > y->b) - (x->b < y->b);
}

static hl_status list_pairs(pair **out, int64_t *count, const hl_profile *profile)
{
    int64_t   n_heads = hl_profile_n_heads(profile);
    size_t    most    = (size_t)(hl_profile_n_layers(profile) * n_heads * n_heads / 2);
    hl_status status  = HL_ALLOC(out, most);

    *count = 0;
    if (status != HL_OK)
        return status;
    HL_EACH_HEAD(profile, layer, b)
    {
        for (int64_t a = 0; a < b; a++) {
            double similarity = hl_profile_similarity(profile, layer, a, b);
            if (!isnan(similarity))
                (*out)[(*count)++] = (pair){ layer, a, b, similarity,
                                             hl_similarity_in_common(profile, layer, a, b) };
        }
    }
    qsort(*out, (size_t)*count, sizeof **out, compare_pairs);
    return HL_OK;
}

static const hl_column pair_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "a", HL_COLUMN_INT, 0 },
    { "b", HL_COLUMN_INT, 0 },
    { "similarity", HL_COLUMN_REAL, 3 },
    { "beside_first", HL_COLUMN_REAL, 3 },
    { "cka", HL_COLUMN_REAL, 3 },
    { "norm_a", HL_COLUMN_REAL, 3 },
    { "norm_b", HL_COLUMN_REAL, 3 },
    { "redundant", HL_COLUMN_BOOL, 0 },
    { 0 },
};

/* Every pair over the threshold, and in any case the nearest few. */
hl_status hl_analyse_similarity(hl_sheet **out, const hl_profile *profile,
                                const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;
    pair     *pairs  = NULL;
    int64_t   count  = 0;
    int64_t   least  = options->n_extremes > 0 ? options->n_extremes : 20;
    double    limit  = hl_threshold_of(NULL, HL_T_REDUNDANCY_SIMILARITY);

    HL_TRY(hl_sheet_new(&table, "similarity", "Pairs of heads of a layer, most alike first",
                        pair_columns));
    HL_TRY(list_pairs(&pairs, &count, profile));
    for (int64_t i = 0; i < count && (i < least || pairs[i].in_common >= limit); i++) {
        hl_sheet_put_int(table, pairs[i].layer);
        hl_sheet_put_int(table, pairs[i].a);
        hl_sheet_put_int(table, pairs[i].b);
        hl_sheet_put_real(table, pairs[i].similarity);
        hl_sheet_put_real(
            table, hl_similarity_beside_first(profile, pairs[i].layer, pairs[i].a, pairs[i].b));
        hl_sheet_put_real(table, hl_profile_cka(profile, pairs[i].layer, pairs[i].a, pairs[i].b));
        hl_sheet_put_real(table, hl_profile_output_norm(profile, pairs[i].layer, pairs[i].a));
        hl_sheet_put_real(table, hl_profile_output_norm(profile, pairs[i].layer, pairs[i].b));
        hl_sheet_put_bool(table, pairs[i].in_common >= limit);
    }
    hl_sheet_fact_real(table, "pairs", (double)count);
    hl_sheet_fact_real(table, "sampled rows of a head",
                       (double)hl_profile_pattern(profile, 0, 0, HL_PM_PEAK, false).count);
    hl_analysis_facts(table, profile);

done:
    hl_free(pairs);
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- patterns */

static const hl_column pattern_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "key_0", HL_COLUMN_TEXT, 0 },
    { "rows", HL_COLUMN_INT, 0 },
    { "diagonal", HL_COLUMN_REAL, 3 },
    { "lift", HL_COLUMN_REAL, 1 },
    { "previous", HL_COLUMN_REAL, 3 },
    { "band", HL_COLUMN_REAL, 3 },
    { "sink", HL_COLUMN_REAL, 3 },
    { "diagonal_top", HL_COLUMN_REAL, 3 },
    { "peak", HL_COLUMN_REAL, 3 },
    { "off_diagonal", HL_COLUMN_REAL, 3 },
    { "content", HL_COLUMN_REAL, 3 },
    { "edges", HL_COLUMN_REAL, 3 },
    { "k90", HL_COLUMN_REAL, 3 },
    { "support2", HL_COLUMN_REAL, 3 },
    { "induction", HL_COLUMN_REAL, 3 },
    { "duplicate", HL_COLUMN_REAL, 3 },
    { "probe_previous", HL_COLUMN_REAL, 3 },
    { 0 },
};

static void put_pattern_row(hl_sheet *table, const hl_profile *profile, int64_t layer, int64_t head,
                            bool nosink)
{
    double     mean[HL_N_PATTERN_METRICS];
    hl_moments peak = hl_profile_pattern(profile, layer, head, HL_PM_PEAK, nosink);

    for (int metric = 0; metric < HL_N_PATTERN_METRICS; metric++)
        mean[metric] =
            hl_profile_pattern(profile, layer, head, (hl_pattern_metric)metric, nosink).mean;
    put_head(table, layer, head);
    hl_sheet_put_text(table, "%s", nosink ? "without" : "with");
    hl_sheet_put_int(table, peak.count);
    hl_sheet_put_real(table, mean[HL_PM_DIAGONAL]);
    hl_sheet_put_real(table, mean[HL_PM_DIAGONAL] / mean[HL_PM_CHANCE]);
    hl_sheet_put_real(table, mean[HL_PM_PREVIOUS]);
    hl_sheet_put_real(table, mean[HL_PM_BAND]);
    hl_sheet_put_real(table, nosink ? NAN : mean[HL_PM_SINK]);
    hl_sheet_put_real(table, mean[HL_PM_DIAGONAL_TOP]);
    hl_sheet_put_real(table, mean[HL_PM_PEAK]);
    hl_sheet_put_real(table, 1.0 - mean[HL_PM_DIAGONAL]);
    hl_sheet_put_real(table, mean[HL_PM_CONTENT]);
    hl_sheet_put_real(table, mean[HL_PM_EDGES]);
    hl_sheet_put_real(table, mean[HL_PM_K90]);
    hl_sheet_put_real(table, mean[HL_PM_SUPPORT2]);
    for (int probe = 0; probe < HL_N_PROBES; probe++)
        hl_sheet_put_real(table,
                          nosink ? NAN : hl_profile_probe(profile, layer, head, (hl_probe)probe));
}

hl_status hl_analyse_patterns(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    (void)options;
    HL_TRY(hl_sheet_new(&table, "patterns", "Patterns of every head, over sampled rows",
                        pattern_columns));
    HL_EACH_HEAD(profile, layer, head)
    {
        put_pattern_row(table, profile, layer, head, false);
        put_pattern_row(table, profile, layer, head, true);
    }
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}
