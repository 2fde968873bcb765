/* analysis.c - the tables by name; each is a function from a profile to a table.
 *
 * First come tables with a line for a head, or for a pair of heads, then those of layers, then those
 * by where in the text a row stands and what kind of token it is.  head_kinds.c has the two of what
 * heads do.  The list is at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/head_kinds.h"
#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/analysis.h"

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

static hl_status heads_table(hl_sheet **out, const hl_profile *profile,
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
static hl_status extremes_table(hl_sheet **out, const hl_profile *profile,
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
static hl_status similarity_table(hl_sheet **out, const hl_profile *profile,
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

static hl_status patterns_table(hl_sheet **out, const hl_profile *profile,
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

done:
    return hl_sheet_hand_over(out, table, status);
}

static hl_status new_layers(hl_layer_profile **out, const hl_profile *profile, hl_quantity quantity,
                            uint64_t seed)
{
    return hl_layer_profile_new(out, profile, quantity, hl_threshold_of(NULL, HL_T_FLAT_ERRORS),
                                seed);
}

/* ------------------------------------------------------------------- layers */

static const hl_column layer_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "heads", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 },
    { "entropy_low", HL_COLUMN_REAL, 3 },
    { "entropy_high", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },
    { "fair_low", HL_COLUMN_REAL, 3 },
    { "fair_high", HL_COLUMN_REAL, 3 },
    { "block_influence", HL_COLUMN_REAL, 3 },
    { 0 },
};

static hl_status layers_table(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options)
{
    hl_status         status  = HL_OK;
    hl_sheet         *table   = NULL;
    hl_layer_profile *entropy = NULL;
    hl_layer_profile *fair    = NULL;

    HL_TRY(hl_sheet_new(&table, "layers",
                        "Every layer: means over heads, 95% intervals by bootstrap",
                        layer_columns));
    HL_TRY(new_layers(&entropy, profile, HL_Q_ENTROPY, options->seed));
    HL_TRY(new_layers(&fair, profile, HL_Q_FAIR, options->seed));
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        hl_sheet_put_int(table, layer);
        hl_sheet_put_int(table, hl_profile_heads_of(profile, layer));
        hl_sheet_put_real(table, entropy->means[layer]);
        hl_sheet_put_real(table, entropy->lows[layer]);
        hl_sheet_put_real(table, entropy->highs[layer]);
        hl_sheet_put_real(table, fair->means[layer]);
        hl_sheet_put_real(table, fair->lows[layer]);
        hl_sheet_put_real(table, fair->highs[layer]);
        hl_sheet_put_real(table, hl_profile_block_influence(profile, layer));
    }

done:
    hl_layer_profile_free(entropy);
    hl_layer_profile_free(fair);
    return hl_sheet_hand_over(out, table, status);
}

/* -------------------------------------------------------------------- shape */

static const hl_column shape_columns[] = {
    { "quantity", HL_COLUMN_TEXT, 0 },
    { "range", HL_COLUMN_REAL, 3 },
    { "error", HL_COLUMN_REAL, 4 },
    { "flat", HL_COLUMN_BOOL, 0 },
    { "minimum", HL_COLUMN_INT, 0 },
    { "depth", HL_COLUMN_REAL, 2 },
    { "curvature", HL_COLUMN_REAL, 3 },
    { "spearman", HL_COLUMN_REAL, 3 },
    { 0 },
};

static hl_status shape_table(hl_sheet **out, const hl_profile *profile,
                             const hl_analysis_options *options)
{
    static const struct {
        const char *name;
        hl_quantity quantity;
    } wanted[] = { { "entropy", HL_Q_ENTROPY }, { "fair", HL_Q_FAIR }, { "nosink", HL_Q_NOSINK } };

    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    HL_TRY(hl_sheet_new(&table, "shape", "The shape of the layer profile", shape_columns));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        hl_layer_profile *layers = NULL;

        HL_TRY(new_layers(&layers, profile, wanted[i].quantity, options->seed));
        hl_sheet_put_text(table, "%s", wanted[i].name);
        hl_sheet_put_real(table, layers->shape.range);
        hl_sheet_put_real(table, layers->shape.error);
        hl_sheet_put_bool(table, layers->shape.flat);
        hl_sheet_put_int(table, layers->shape.minimum >= 0 ? layers->shape.minimum : HL_NO_INT);
        hl_sheet_put_real(table, layers->shape.depth);
        hl_sheet_put_real(table, layers->shape.curvature);
        hl_sheet_put_real(table, layers->shape.spearman);
        hl_layer_profile_free(layers);
    }

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- variance */

static const hl_column variance_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "heads", HL_COLUMN_INT, 0 },
    { "variance", HL_COLUMN_REAL, 4 },
    { "fair_deviation", HL_COLUMN_REAL, 4 },
    { "lowest", HL_COLUMN_REAL, 3 },
    { "highest", HL_COLUMN_REAL, 3 },
    { 0 },
};

static hl_status variance_table(hl_sheet **out, const hl_profile *profile,
                                const hl_analysis_options *options)
{
    hl_status status  = HL_OK;
    int64_t   n_heads = hl_profile_n_heads(profile);
    hl_sheet *table   = NULL;
    double   *entropy = NULL;
    double   *fair    = NULL;

    (void)options;
    HL_TRY(
        hl_sheet_new(&table, "variance",
                     "How much the heads of a layer differ (equal entropy is not equal attention)",
                     variance_columns));
    HL_TRY(hl_grid_means(&entropy, profile, HL_Q_ENTROPY));
    HL_TRY(hl_grid_means(&fair, profile, HL_Q_FAIR));
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        const double *row   = entropy + layer * n_heads;
        double        least = NAN, most = NAN;

        for (int64_t head = 0; head < n_heads; head++) {
            least = fmin(least, row[head]); /* both pass NaN over */
            most  = fmax(most, row[head]);
        }
        hl_sheet_put_int(table, layer);
        hl_sheet_put_int(table, hl_profile_heads_of(profile, layer));
        hl_sheet_put_real(table, hl_variance(row, n_heads));
        hl_sheet_put_real(table, sqrt(hl_variance(fair + layer * n_heads, n_heads)));
        hl_sheet_put_real(table, least);
        hl_sheet_put_real(table, most);
    }

done:
    hl_free(entropy);
    hl_free(fair);
    return hl_sheet_hand_over(out, table, status);
}

/* ---------------------------------------------------------------- positions */

static const hl_column position_columns[] = {
    { "from", HL_COLUMN_INT, 0 },         { "to", HL_COLUMN_INT, 0 },
    { "rows", HL_COLUMN_INT, 0 },         { "entropy", HL_COLUMN_REAL, 3 },
    { "entropy_low", HL_COLUMN_REAL, 3 }, { "entropy_high", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },        { "fair_low", HL_COLUMN_REAL, 3 },
    { "fair_high", HL_COLUMN_REAL, 3 },   { "lowest", HL_COLUMN_REAL, 3 },
    { "highest", HL_COLUMN_REAL, 3 },     { 0 },
};

/* What the heads' means of something come to. */
typedef struct summary {
    double  sum;
    int64_t count; /* of heads */
    double  lowest;
    double  highest;
    int64_t rows; /* of one head, at most */
} summary;

static const summary nothing = { 0.0, 0, NAN, NAN, 0 };

static void add_moments(summary *total, hl_moments moments)
{
    if (moments.count == 0)
        return;
    total->sum += moments.mean;
    total->count++;
    total->lowest  = fmin(total->lowest, moments.mean); /* both pass NaN over */
    total->highest = fmax(total->highest, moments.mean);
    total->rows    = moments.count > total->rows ? moments.count : total->rows;
}

static double mean_of(const summary *total)
{
    return total->count > 0 ? total->sum / (double)total->count : NAN;
}

static void put_bucket(hl_sheet *table, int64_t bucket)
{
    hl_sheet_put_int(table, (INT64_C(1) << bucket) - 1);
    hl_sheet_put_int(table, (INT64_C(2) << bucket) - 2);
}

static void put_curve(hl_sheet *table, const hl_position_curve *curve, int64_t bucket)
{
    hl_sheet_put_real(table, curve->means[bucket]);
    hl_sheet_put_real(table, curve->lows[bucket]);
    hl_sheet_put_real(table, curve->highs[bucket]);
}

static hl_status positions_table(hl_sheet **out, const hl_profile *profile,
                                 const hl_analysis_options *options)
{
    hl_status         status = HL_OK;
    hl_sheet         *table  = NULL;
    hl_position_curve entropy, fair;

    HL_TRY(hl_sheet_new(&table, "positions",
                        "Entropy by position: means over heads, 95% intervals by bootstrap",
                        position_columns));
    HL_TRY(hl_position_curve_read(&entropy, profile, HL_Q_ENTROPY, options->seed));
    HL_TRY(hl_position_curve_read(&fair, profile, HL_Q_FAIR, options->seed));
    for (int64_t bucket = 0; bucket < hl_profile_n_buckets(profile); bucket++) {
        summary heads = nothing;

        HL_EACH_HEAD(profile, layer, head)
        {
            add_moments(&heads, hl_profile_by_position(profile, layer, head, bucket, HL_Q_ENTROPY));
        }
        if (heads.rows == 0)
            continue;
        put_bucket(table, bucket);
        hl_sheet_put_int(table, heads.rows);
        put_curve(table, &entropy, bucket);
        put_curve(table, &fair, bucket);
        hl_sheet_put_real(table, heads.lowest);
        hl_sheet_put_real(table, heads.highest);
    }

done:
    return hl_sheet_hand_over(out, table, status);
}

static const hl_column head_position_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "from", HL_COLUMN_INT, 0 },
    { "to", HL_COLUMN_INT, 0 },
    { "rows", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 },
    { "deviation", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },
    { 0 },
};

static hl_status positions_by_head_table(hl_sheet **out, const hl_profile *profile,
                                         const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    (void)options;
    HL_TRY(hl_sheet_new(&table, "positions-by-head", "Entropy of every head by position",
                        head_position_columns));
    HL_EACH_HEAD(profile, layer, head)
    {
        for (int64_t bucket = 0; bucket < hl_profile_n_buckets(profile); bucket++) {
            hl_moments entropy = hl_profile_by_position(profile, layer, head, bucket, HL_Q_ENTROPY);

            if (entropy.count == 0)
                continue;
            hl_sheet_put_int(table, layer);
            hl_sheet_put_int(table, head);
            put_bucket(table, bucket);
            hl_sheet_put_int(table, entropy.count);
            hl_sheet_put_real(table, entropy.mean);
            hl_sheet_put_real(table, sqrt(entropy.variance));
            hl_sheet_put_real(table,
                              hl_profile_by_position(profile, layer, head, bucket, HL_Q_FAIR).mean);
        }
    }

done:
    return hl_sheet_hand_over(out, table, status);
}

/* -------------------------------------------------------------- token types */

static const hl_column type_columns[] = {
    { "type", HL_COLUMN_TEXT, 0 },    { "rows", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 }, { "fair", HL_COLUMN_REAL, 3 },
    { "renyi2", HL_COLUMN_REAL, 3 },  { "lowest", HL_COLUMN_REAL, 3 },
    { "highest", HL_COLUMN_REAL, 3 }, { 0 },
};

static hl_status token_types_table(hl_sheet **out, const hl_profile *profile,
                                   const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    (void)options;
    HL_TRY(hl_sheet_new(&table, "token-types", "Entropy by type of token, means over heads",
                        type_columns));
    for (int64_t type = 0; type < hl_profile_n_types(profile); type++) {
        summary entropy = nothing, fair = nothing, renyi2 = nothing;

        HL_EACH_HEAD(profile, layer, head)
        {
            add_moments(&entropy, hl_profile_by_type(profile, layer, head, type, HL_Q_ENTROPY));
            add_moments(&fair, hl_profile_by_type(profile, layer, head, type, HL_Q_FAIR));
            add_moments(&renyi2, hl_profile_by_type(profile, layer, head, type, HL_Q_RENYI2));
        }
        hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, type));
        hl_sheet_put_int(table, entropy.rows);
        hl_sheet_put_real(table, mean_of(&entropy));
        hl_sheet_put_real(table, mean_of(&fair));
        hl_sheet_put_real(table, mean_of(&renyi2));
        hl_sheet_put_real(table, entropy.lowest);
        hl_sheet_put_real(table, entropy.highest);
    }

done:
    return hl_sheet_hand_over(out, table, status);
}

static const hl_column head_type_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },    { "head", HL_COLUMN_INT, 0 },
    { "type", HL_COLUMN_TEXT, 0 },    { "rows", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 }, { "fair", HL_COLUMN_REAL, 3 },
    { "renyi2", HL_COLUMN_REAL, 3 },  { 0 },
};

static hl_status token_types_by_head_table(hl_sheet **out, const hl_profile *profile,
                                           const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    (void)options;
    HL_TRY(hl_sheet_new(&table, "token-types-by-head", "Entropy of every head by type of token",
                        head_type_columns));
    HL_EACH_HEAD(profile, layer, head)
    {
        for (int64_t type = 0; type < hl_profile_n_types(profile); type++) {
            hl_moments entropy = hl_profile_by_type(profile, layer, head, type, HL_Q_ENTROPY);

            hl_sheet_put_int(table, layer);
            hl_sheet_put_int(table, head);
            hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, type));
            hl_sheet_put_int(table, entropy.count);
            hl_sheet_put_real(table, entropy.mean);
            hl_sheet_put_real(table,
                              hl_profile_by_type(profile, layer, head, type, HL_Q_FAIR).mean);
            hl_sheet_put_real(table,
                              hl_profile_by_type(profile, layer, head, type, HL_Q_RENYI2).mean);
        }
    }

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- lookback */

static const hl_column lookback_columns[] = {
    { "from", HL_COLUMN_TEXT, 0 },
    { "to", HL_COLUMN_TEXT, 0 },
    { "mean", HL_COLUMN_REAL, 3 },
    { "least", HL_COLUMN_REAL, 3 },
    { "most", HL_COLUMN_REAL, 3 },
    { "head", HL_COLUMN_TEXT, 0 },
    { 0 },
};

static void put_lookback(hl_sheet *table, const hl_profile *profile, int64_t from, int64_t to)
{
    summary total                    = nothing;
    char    most[HL_HEAD_NAME_BYTES] = "-";

    HL_EACH_HEAD(profile, layer, head)
    {
        double share = hl_profile_lookback(profile, layer, head, from, to);

        if (!isnan(share) && !(share <= total.highest))
            hl_head_name(most, layer, head);
        add_moments(&total, (hl_moments){ .count = !isnan(share), .mean = share });
    }
    hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, from));
    hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, to));
    hl_sheet_put_real(table, mean_of(&total));
    hl_sheet_put_real(table, total.lowest);
    hl_sheet_put_real(table, total.highest);
    hl_sheet_put_text(table, "%s", most);
}

static hl_status lookback_table(hl_sheet **out, const hl_profile *profile,
                                const hl_analysis_options *options)
{
    hl_status status  = HL_OK;
    int64_t   n_types = hl_profile_n_types(profile);
    hl_sheet *table   = NULL;

    (void)options;
    HL_TRY(
        hl_sheet_new(&table, "lookback",
                     "How much attention tokens of one type give to another, over heads; and who "
                     "gives most",
                     lookback_columns));
    for (int64_t i = 0; i < n_types * n_types; i++)
        put_lookback(table, profile, i / n_types, i % n_types);

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- the list */

static const struct {
    const char *name;
    const char *summary;
    hl_status (*run)(hl_sheet **out, const hl_profile *profile, const hl_analysis_options *options);
} analyses[] = {
    { "heads", "every head: entropies with intervals, peak, self, previous, first", heads_table },
    { "layers", "every layer: mean entropies with intervals, block influence", layers_table },
    { "shape", "the layer profile's range, minimum, curvature, trend; is it flat?", shape_table },
    { "variance", "how much the heads of a layer differ", variance_table },
    { "extremes", "the most and the least focused heads", extremes_table },
    { "similarity", "pairs of heads whose rows are nearly the same", similarity_table },
    { "patterns", "diagonal, band, sink and sparsity of every head", patterns_table },
    { "positions", "entropy by position in the sequence", positions_table },
    { "positions-by-head", "the same for every head", positions_by_head_table },
    { "token-types", "entropy by type of token", token_types_table },
    { "token-types-by-head", "the same for every head", token_types_by_head_table },
    { "lookback", "how much attention each type of token gives to each", lookback_table },
    { "head-types", "what each head does, and the rule that said so", hl_head_types_table },
    { "clusters", "heads that behave alike, and how stable that is", hl_head_clusters_table },
};

enum { N_ANALYSES = sizeof analyses / sizeof *analyses };

const char *hl_analysis_name(size_t index)
{
    return index < N_ANALYSES ? analyses[index].name : NULL;
}

const char *hl_analysis_summary(size_t index)
{
    return index < N_ANALYSES ? analyses[index].summary : NULL;
}

/* What every table says at its end: what it was measured on. */
static void add_facts(hl_sheet *table, const hl_profile *profile)
{
    const char *context = hl_profile_setting(profile, "context");

    if (context != NULL)
        hl_sheet_fact_text(table, "context", "%s", context);
    hl_sheet_fact_real(table, "sequences", (double)hl_profile_all_sequences(profile));
    hl_sheet_fact_real(table, "tokens", (double)hl_profile_n_tokens(profile));
}

hl_status hl_analyse(hl_sheet **out, const hl_profile *profile, const char *name,
                     const hl_analysis_options *options)
{
    const hl_analysis_options defaults = { 0 };
    hl_sheet                 *table    = NULL;

    *out = NULL;
    for (size_t i = 0; i < N_ANALYSES; i++) {
        if (strcmp(name, analyses[i].name) != 0)
            continue;
        HL_NEED(analyses[i].run(&table, profile, options != NULL ? options : &defaults));
        add_facts(table, profile);
        return hl_sheet_hand_over(out, table, HL_OK);
    }
    return hl_fail(HL_BAD_ARGUMENT, "no table is called '%s'", name);
}
