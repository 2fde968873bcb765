/* analysis.c - the tables by name; each is a function that fills a table from a profile.
 *
 * First come tables with a line for a head, or for a pair of heads, then those of layers, then those
 * by where in the text a row stands and what kind of token it is, then those of what heads do.  The
 * list, with names, titles and columns, is at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/head_kinds.h"
#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"

/* -------------------------------------------------------------------- heads */

static const char head_columns[] =
    "layer:i head:i rows:i entropy:3 entropy_low:3 entropy_high:3 normalized:3 normalized_low:3 "
    "normalized_high:3 "
    "median:3 entropy_nosink:3 median_nosink:3 renyi2:3 varentropy:3 peak:3 peak_p95:3 self:3 "
    "previous:3 first:3 output_norm:3 broken:i | entropy_nosink_low:3 entropy_nosink_high:3 "
    "renyi2_low:3 renyi2_high:3 varentropy_low:3 varentropy_high:3 peak_low:3 peak_high:3 "
    "self_low:3 self_high:3 previous_low:3 previous_high:3 first_low:3 first_high:3 "
    "output_norm_low:3 output_norm_high:3";

static hl_status fill_heads(hl_sheet *table, const hl_profile *profile,
                            const hl_analysis_options *options)
{
    static const int more[] = { HL_Q_ENTROPY_NOSINK, HL_Q_RENYI2,   HL_Q_VARENTROPY, HL_Q_PEAK,
                                HL_Q_SELF,           HL_Q_PREVIOUS, HL_Q_FIRST,      HL_Q_OUTPUT };
    enum { N_MORE = sizeof more / sizeof *more };

    HL_FREED hl_interval *entropy = NULL, *normalized = NULL, *others = NULL;
    int64_t               size = hl_grid_size(profile);

    (void)options;
    HL_NEED(hl_grid_intervals(&entropy, profile, HL_Q_ENTROPY));
    HL_NEED(hl_grid_intervals(&normalized, profile, HL_Q_NORMALIZED));
    HL_NEED(HL_ALLOC(&others, (size_t)(N_MORE * size)));
    for (int i = 0; i < N_MORE; i++) {
        HL_FREED hl_interval *own = NULL;

        HL_NEED(hl_grid_intervals(&own, profile, (hl_quantity)more[i]));
        memcpy(others + i * size, own, (size_t)size * sizeof *own);
    }
    hl_sheet_fact_interval(table, &entropy[0]);
    HL_EACH_HEAD(profile, layer, head)
    {
        int64_t    place = layer * hl_profile_n_heads(profile) + head;
        hl_moments rows  = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY);

        hl_sheet_put_ints(table, layer, head, rows.count);
        hl_sheet_put_reals(
            table, rows.mean, entropy[place].low, entropy[place].high,
            hl_profile_mean(profile, layer, head, HL_Q_NORMALIZED), normalized[place].low,
            normalized[place].high,
            hl_profile_quantile(profile, layer, head, HL_HIST_NORMALIZED, 0.5),
            hl_profile_mean(profile, layer, head, HL_Q_ENTROPY_NOSINK),
            hl_profile_quantile(profile, layer, head, HL_HIST_NORMALIZED_NOSINK, 0.5),
            hl_profile_mean(profile, layer, head, HL_Q_RENYI2),
            hl_profile_mean(profile, layer, head, HL_Q_VARENTROPY),
            hl_profile_mean(profile, layer, head, HL_Q_PEAK),
            hl_profile_quantile(profile, layer, head, HL_HIST_PEAK, 0.95),
            hl_profile_mean(profile, layer, head, HL_Q_SELF),
            hl_profile_mean(profile, layer, head, HL_Q_PREVIOUS),
            hl_profile_mean(profile, layer, head, HL_Q_FIRST),
            hl_profile_output_norm(profile, layer, head));
        hl_sheet_put_int(table, hl_profile_broken(profile, layer, head));
        for (int i = 0; i < N_MORE; i++)
            hl_sheet_put_reals(table, others[i * size + place].low, others[i * size + place].high);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- extremes */

/* Lists all heads that have the value, in the order of hl_shown_by_compare. */
static hl_status sort_heads(hl_shown_by **out, int64_t *count, const hl_profile *profile,
                            hl_quantity quantity)
{
    *count = 0;
    HL_NEED(HL_ALLOC(out, (size_t)hl_grid_size(profile)));
    HL_EACH_HEAD(profile, layer, head)
    {
        double value = hl_profile_mean(profile, layer, head, quantity);
        if (!isnan(value))
            (*out)[(*count)++] = (hl_shown_by){ layer, head, value };
    }
    qsort(*out, (size_t)*count, sizeof **out, hl_shown_by_compare);
    return HL_OK;
}

static const char extreme_columns[] =
    "end:t rank:i layer:i head:i normalized:3 entropy:3 entropy_nosink:3 peak:3 first:3";

static void put_extreme(hl_sheet *table, const hl_profile *profile, const char *end, int64_t rank,
                        const hl_shown_by *which)
{
    static const hl_quantity shown[] = { HL_Q_NORMALIZED, HL_Q_ENTROPY, HL_Q_ENTROPY_NOSINK,
                                         HL_Q_PEAK, HL_Q_FIRST };

    hl_sheet_put_text(table, "%s", end);
    hl_sheet_put_ints(table, rank, which->layer, which->head);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        hl_sheet_put_real(table, hl_profile_mean(profile, which->layer, which->head, shown[i]));
}

/* Lists heads by normalized entropy, or by entropy if no row saw enough keys to be normalized. */
static hl_status fill_extremes(hl_sheet *table, const hl_profile *profile,
                               const hl_analysis_options *options)
{
    HL_FREED hl_shown_by *heads  = NULL;
    int64_t               count  = 0;
    int64_t               wanted = options->n_extremes > 0 ? options->n_extremes : 10;

    HL_NEED(sort_heads(&heads, &count, profile, HL_Q_NORMALIZED));
    bool normalized = count > 0;
    if (!normalized) {
        hl_free(hl_taken(&heads));
        HL_NEED(sort_heads(&heads, &count, profile, HL_Q_ENTROPY));
    }
    for (int64_t i = 0; i < wanted && i < count; i++)
        put_extreme(table, profile, "most", i + 1, &heads[i]);
    for (int64_t i = 0; i < wanted && i < count; i++)
        put_extreme(table, profile, "least", i + 1, &heads[count - 1 - i]);
    hl_sheet_fact_text(table, "ranked by", "%s", normalized ? "normalized" : "entropy");
    return HL_OK;
}

/* --------------------------------------------------------------- similarity */

typedef struct pair {
    int64_t layer;
    int64_t a;
    int64_t b;
    double  similarity;
    double  in_common; /* similarity without what both heads put on the first key */
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
    int64_t n_heads = hl_profile_n_heads(profile);

    *count = 0;
    HL_NEED(HL_ALLOC(out, (size_t)(hl_profile_n_layers(profile) * n_heads * n_heads / 2)));
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

static const char pair_columns[] =
    "layer:i a:i b:i similarity:3 beside_first:3 cka:3 norm_a:3 norm_b:3 redundant:b";

/* Lists every pair above the threshold, and at least the `n_extremes` most similar pairs. */
static hl_status fill_similarity(hl_sheet *table, const hl_profile *profile,
                                 const hl_analysis_options *options)
{
    HL_FREED pair *pairs = NULL;
    int64_t        count = 0;
    int64_t        least = options->n_extremes > 0 ? options->n_extremes : 20;
    double         limit = hl_threshold_of(NULL, HL_T_REDUNDANCY_SIMILARITY);

    HL_NEED(list_pairs(&pairs, &count, profile));
    for (int64_t i = 0; i < count && (i < least || pairs[i].in_common >= limit); i++) {
        int64_t layer = pairs[i].layer, a = pairs[i].a, b = pairs[i].b;

        hl_sheet_put_ints(table, layer, a, b);
        hl_sheet_put_reals(
            table, pairs[i].similarity, hl_similarity_beside_first(profile, layer, a, b),
            hl_profile_cka(profile, layer, a, b), hl_profile_output_norm(profile, layer, a),
            hl_profile_output_norm(profile, layer, b));
        hl_sheet_put_bool(table, pairs[i].in_common >= limit);
    }
    hl_sheet_fact_real(table, "pairs", (double)count);
    hl_sheet_fact_real(table, "sampled rows of a head",
                       (double)hl_profile_pattern(profile, 0, 0, HL_PM_PEAK, false).count);
    return HL_OK;
}

/* ----------------------------------------------------------------- patterns */

static const char pattern_columns[] =
    "layer:i head:i first_token:t rows:i self:3 lift:1 previous:3 band:3 sink:3 self_top:3 "
    "peak:3 not_self:3 content:3 edges:3 k90:3 support2:3 induction:3 duplicate:3 "
    "probe_previous:3 | band_low:3 band_high:3 content_low:3 content_high:3 k90_low:3 k90_high:3 "
    "support2_low:3 support2_high:3";

/* Most rows of a head give the others little (self, previous, sink, peak) or are at 0 or 1 (self_top,
 * edges): an interval from a few sampled rows would promise too much.  The table `heads` has those of
 * the former over all rows. */
static const hl_pattern_metric with_interval[] = { HL_PM_BAND, HL_PM_CONTENT, HL_PM_K90,
                                                   HL_PM_SUPPORT2 };

static void put_pattern_row(hl_sheet *table, const hl_profile *profile, int64_t layer, int64_t head,
                            bool nosink)
{
    double mean[HL_N_PATTERN_METRICS];

    for (int metric = 0; metric < HL_N_PATTERN_METRICS; metric++)
        mean[metric] =
            hl_profile_pattern(profile, layer, head, (hl_pattern_metric)metric, nosink).mean;
    hl_sheet_put_ints(table, layer, head);
    hl_sheet_put_text(table, "%s", nosink ? "without" : "with");
    hl_sheet_put_int(table, hl_profile_pattern(profile, layer, head, HL_PM_PEAK, nosink).count);
    hl_sheet_put_reals(table, mean[HL_PM_SELF], mean[HL_PM_SELF] / mean[HL_PM_CHANCE],
                       mean[HL_PM_PREVIOUS], mean[HL_PM_BAND], nosink ? NAN : mean[HL_PM_SINK],
                       mean[HL_PM_SELF_TOP], mean[HL_PM_PEAK], 1.0 - mean[HL_PM_SELF],
                       mean[HL_PM_CONTENT], mean[HL_PM_EDGES], mean[HL_PM_K90],
                       mean[HL_PM_SUPPORT2]);
    for (int probe = 0; probe < HL_N_PROBES; probe++)
        hl_sheet_put_real(table,
                          nosink ? NAN : hl_profile_probe(profile, layer, head, (hl_probe)probe));
    for (size_t i = 0; i < sizeof with_interval / sizeof *with_interval; i++) {
        hl_moments  rows     = hl_profile_pattern(profile, layer, head, with_interval[i], nosink);
        hl_interval interval = hl_sampled_interval(&rows, hl_profile_all_sequences(profile));

        hl_sheet_put_reals(table, interval.low, interval.high);
    }
}

static hl_status fill_patterns(hl_sheet *table, const hl_profile *profile,
                               const hl_analysis_options *options)
{
    hl_moments  rows  = hl_profile_pattern(profile, 0, 0, HL_PM_PEAK, false);
    hl_interval first = hl_sampled_interval(&rows, hl_profile_all_sequences(profile));

    (void)options;
    hl_sheet_fact_interval(table, &first);
    HL_EACH_HEAD(profile, layer, head)
    {
        put_pattern_row(table, profile, layer, head, false);
        put_pattern_row(table, profile, layer, head, true);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- layers */

static hl_status new_layers(hl_layer_profile **out, const hl_profile *profile, hl_quantity quantity)
{
    return hl_layer_profile_new(out, profile, quantity, hl_threshold_of(NULL, HL_T_FLAT_ERRORS));
}

static const char layer_columns[] = "layer:i heads:i entropy:3 entropy_low:3 entropy_high:3 "
                                    "normalized:3 normalized_low:3 normalized_high:3 "
                                    "block_influence:3";

static hl_status fill_layers(hl_sheet *table, const hl_profile *profile,
                             const hl_analysis_options *options)
{
    HL_CLOSED(hl_layer_profile_free) hl_layer_profile *entropy = NULL, *normalized = NULL;

    (void)options;
    HL_NEED(new_layers(&entropy, profile, HL_Q_ENTROPY));
    HL_NEED(new_layers(&normalized, profile, HL_Q_NORMALIZED));
    hl_sheet_fact_interval(table, &entropy->interval);
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        hl_sheet_put_ints(table, layer, hl_profile_heads_of(profile, layer));
        hl_sheet_put_reals(table, entropy->means[layer], entropy->lows[layer],
                           entropy->highs[layer], normalized->means[layer], normalized->lows[layer],
                           normalized->highs[layer], hl_profile_block_influence(profile, layer));
    }
    return HL_OK;
}

static const char shape_columns[] =
    "quantity:t shape:t later_specialized:t later_change:3 later_errors:1 first_third:3 "
    "middle_third:3 last_third:3 range:3 error:4 flat:b minimum:i depth:2 curvature:3 spearman:3";

static hl_status fill_shape(hl_sheet *table, const hl_profile *profile,
                            const hl_analysis_options *options)
{
    (void)options;
    static const struct {
        const char *name;
        hl_quantity quantity;
    } wanted[] = { { "entropy", HL_Q_ENTROPY },
                   { "normalized", HL_Q_NORMALIZED },
                   { "entropy_nosink", HL_Q_ENTROPY_NOSINK } };

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        HL_CLOSED(hl_layer_profile_free) hl_layer_profile *layers = NULL;

        HL_NEED(new_layers(&layers, profile, wanted[i].quantity));
        const hl_layer_shape *shape = &layers->shape;
        double                least =
            wanted[i].quantity == HL_Q_NORMALIZED ? HL_LAYERS_DIFFER : HL_LAYERS_DIFFER_NATS;
        hl_sheet_put_text(table, "%s", wanted[i].name);
        hl_sheet_put_text(table, "%s", hl_shape_name(shape->kind));
        hl_sheet_put_text(
            table, "%s",
            hl_shape_specialized(shape, least, hl_threshold_of(NULL, HL_T_FLAT_ERRORS)));
        hl_sheet_put_reals(table, shape->change, shape->change_errors, shape->thirds[0],
                           shape->thirds[1], shape->thirds[2], shape->range, shape->error);
        hl_sheet_put_bool(table, shape->flat);
        hl_sheet_put_int(table, shape->minimum >= 0 ? shape->minimum : HL_NO_INT);
        hl_sheet_put_reals(table, shape->depth, shape->curvature, shape->spearman);
    }
    return HL_OK;
}

static const char variance_columns[] =
    "layer:i heads:i variance:4 normalized_deviation:4 lowest:3 highest:3";

static hl_status fill_variance(hl_sheet *table, const hl_profile *profile,
                               const hl_analysis_options *options)
{
    int64_t          n_heads = hl_profile_n_heads(profile);
    HL_FREED double *entropy = NULL, *normalized = NULL;

    (void)options;
    HL_NEED(hl_grid_means(&entropy, profile, HL_Q_ENTROPY));
    HL_NEED(hl_grid_means(&normalized, profile, HL_Q_NORMALIZED));
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        const double *row   = entropy + layer * n_heads;
        double        least = NAN, most = NAN;

        for (int64_t head = 0; head < n_heads; head++) {
            least = fmin(least, row[head]); /* fmin and fmax ignore NaN */
            most  = fmax(most, row[head]);
        }
        hl_sheet_put_ints(table, layer, hl_profile_heads_of(profile, layer));
        hl_sheet_put_reals(table, hl_variance(row, n_heads),
                           sqrt(hl_variance(normalized + layer * n_heads, n_heads)), least, most);
    }
    return HL_OK;
}

/* ---------------------------------------------------------------- positions */

/* The heads' means of one quantity, summarized. */
typedef struct summary {
    double  sum;
    int64_t count; /* number of heads */
    double  lowest;
    double  highest;
    int64_t rows; /* number of rows of the head that has most */
} summary;

static const summary nothing = { 0.0, 0, NAN, NAN, 0 };

static void add_moments(summary *total, hl_moments moments)
{
    if (moments.count == 0)
        return;
    total->sum += moments.mean;
    total->count++;
    total->lowest  = fmin(total->lowest, moments.mean); /* fmin and fmax ignore NaN */
    total->highest = fmax(total->highest, moments.mean);
    total->rows    = moments.count > total->rows ? moments.count : total->rows;
}

static double mean_of(const summary *total)
{
    return total->count > 0 ? total->sum / (double)total->count : NAN;
}

/* Returns the first position of a bucket. The bucket ends one position before the next one
 * starts. */
static int64_t start_of(int64_t bucket)
{
    return (INT64_C(1) << bucket) - 1;
}

static const char position_columns[] = "from:i to:i rows:i entropy:3 entropy_low:3 entropy_high:3 "
                                       "normalized:3 normalized_low:3 normalized_high:3 "
                                       "lowest:3 highest:3";

static hl_status fill_positions(hl_sheet *table, const hl_profile *profile,
                                const hl_analysis_options *options)
{
    hl_position_curve entropy, normalized;

    (void)options;
    HL_NEED(hl_position_curve_read(&entropy, profile, HL_Q_ENTROPY));
    HL_NEED(hl_position_curve_read(&normalized, profile, HL_Q_NORMALIZED));
    hl_sheet_fact_interval(table, &entropy.interval);
    for (int64_t i = 0; i < hl_profile_n_buckets(profile); i++) {
        summary heads = nothing;

        HL_EACH_HEAD(profile, layer, head)
        add_moments(&heads, hl_profile_by_position(profile, layer, head, i, HL_Q_ENTROPY));
        if (heads.rows == 0)
            continue;
        hl_sheet_put_ints(table, start_of(i), start_of(i + 1) - 1, heads.rows);
        hl_sheet_put_reals(table, entropy.means[i], entropy.lows[i], entropy.highs[i],
                           normalized.means[i], normalized.lows[i], normalized.highs[i],
                           heads.lowest, heads.highest);
    }
    return HL_OK;
}

static const char head_position_columns[] =
    "layer:i head:i from:i to:i rows:i entropy:3 deviation:3 normalized:3";

static hl_status fill_positions_by_head(hl_sheet *table, const hl_profile *profile,
                                        const hl_analysis_options *options)
{
    (void)options;
    HL_EACH_HEAD(profile, layer, head)
    for (int64_t i = 0; i < hl_profile_n_buckets(profile); i++) {
        hl_moments entropy = hl_profile_by_position(profile, layer, head, i, HL_Q_ENTROPY);

        if (entropy.count == 0)
            continue;
        hl_sheet_put_ints(table, layer, head, start_of(i), start_of(i + 1) - 1, entropy.count);
        hl_sheet_put_reals(table, entropy.mean, sqrt(entropy.variance),
                           hl_profile_by_position(profile, layer, head, i, HL_Q_NORMALIZED).mean);
    }
    return HL_OK;
}

/* -------------------------------------------------------------- token types */

static const char type_columns[] =
    "type:t rows:i entropy:3 normalized:3 renyi2:3 lowest:3 highest:3";

static hl_status fill_token_types(hl_sheet *table, const hl_profile *profile,
                                  const hl_analysis_options *options)
{
    (void)options;
    for (int64_t type = 0; type < hl_profile_n_types(profile); type++) {
        summary entropy = nothing, normalized = nothing, renyi2 = nothing;

        HL_EACH_HEAD(profile, layer, head)
        {
            add_moments(&entropy, hl_profile_by_type(profile, layer, head, type, HL_Q_ENTROPY));
            add_moments(&normalized,
                        hl_profile_by_type(profile, layer, head, type, HL_Q_NORMALIZED));
            add_moments(&renyi2, hl_profile_by_type(profile, layer, head, type, HL_Q_RENYI2));
        }
        hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, type));
        hl_sheet_put_int(table, entropy.rows);
        hl_sheet_put_reals(table, mean_of(&entropy), mean_of(&normalized), mean_of(&renyi2),
                           entropy.lowest, entropy.highest);
    }
    return HL_OK;
}

static const char head_type_columns[] =
    "layer:i head:i type:t rows:i entropy:3 normalized:3 renyi2:3";

static hl_status fill_token_types_by_head(hl_sheet *table, const hl_profile *profile,
                                          const hl_analysis_options *options)
{
    (void)options;
    HL_EACH_HEAD(profile, layer, head)
    for (int64_t type = 0; type < hl_profile_n_types(profile); type++) {
        hl_moments entropy = hl_profile_by_type(profile, layer, head, type, HL_Q_ENTROPY);

        hl_sheet_put_ints(table, layer, head);
        hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, type));
        hl_sheet_put_int(table, entropy.count);
        hl_sheet_put_reals(table, entropy.mean,
                           hl_profile_by_type(profile, layer, head, type, HL_Q_NORMALIZED).mean,
                           hl_profile_by_type(profile, layer, head, type, HL_Q_RENYI2).mean);
    }
    return HL_OK;
}

static const char lookback_columns[] = "from:t to:t mean:3 least:3 most:3 head:t";

static void put_lookback(hl_sheet *table, const hl_profile *profile, int64_t from, int64_t to)
{
    summary total                    = nothing;
    char    most[HL_HEAD_NAME_BYTES] = "-";

    HL_EACH_HEAD(profile, layer, head)
    {
        double share = hl_profile_lookback(profile, layer, head, from, to);

        if (!isnan(share) && !(share <= total.highest))
            hl_profile_head_name(most, profile, layer, head);
        add_moments(&total, (hl_moments){ .count = !isnan(share), .mean = share });
    }
    hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, from));
    hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, to));
    hl_sheet_put_reals(table, mean_of(&total), total.lowest, total.highest);
    hl_sheet_put_text(table, "%s", most);
}

static hl_status fill_lookback(hl_sheet *table, const hl_profile *profile,
                               const hl_analysis_options *options)
{
    int64_t n_types = hl_profile_n_types(profile);

    (void)options;
    for (int64_t i = 0; i < n_types * n_types; i++)
        put_lookback(table, profile, i / n_types, i % n_types);
    return HL_OK;
}

/* --------------------------------------------------------------- head types */

static const char kind_columns[] = "layer:i head:i type:t uncertain:b value:3 threshold:2 rule:t";

static hl_status fill_head_types(hl_sheet *table, const hl_profile *profile,
                                 const hl_analysis_options *options)
{
    int64_t counts[HL_N_HEAD_KINDS] = { 0 }, n_uncertain = 0;

    (void)options;
    HL_EACH_HEAD(profile, layer, head)
    {
        hl_head_type type = hl_head_type_of(profile, layer, head);

        counts[type.kind]++;
        hl_sheet_put_ints(table, layer, head);
        hl_sheet_put_text(table, "%s", hl_head_kind_name(type.kind));
        hl_sheet_put_bool(table, type.is_uncertain);
        n_uncertain += type.is_uncertain;
        hl_sheet_put_reals(table, type.value, type.threshold);
        hl_sheet_put_text(table, "%s", type.rule);
    }
    for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++) {
        if (counts[kind] > 0)
            hl_sheet_fact_real(table, hl_head_kind_name((hl_head_kind)kind), (double)counts[kind]);
    }
    hl_sheet_fact_real(table, "uncertain", (double)n_uncertain);
    return HL_OK;
}

/* ----------------------------------------------------------------- clusters */

static const char cluster_columns[] =
    "cluster:i heads:i typical:t type:t normalized:2 first:2 previous:2 band:2 members:t";

/* Writes the row of a cluster. A quantity that was not measured for one of its heads is NaN for
 * the cluster. */
static hl_status put_cluster(hl_sheet *table, const hl_head_clusters *clusters,
                             const hl_profile *profile, int64_t cluster)
{
    int64_t        n_heads = hl_profile_n_heads(profile), count = 0;
    int64_t        kinds[HL_N_HEAD_KINDS] = { 0 };
    double         normalized = 0.0, first = 0.0, previous = 0.0, band = 0.0;
    hl_text        members = { 0 };
    HL_FREED char *list    = NULL;
    char           name[HL_HEAD_NAME_BYTES];

    for (int64_t i = 0; i < clusters->n_heads; i++) {
        int64_t layer = clusters->places[i] / n_heads, head = clusters->places[i] % n_heads;

        if (clusters->labels[i] != cluster)
            continue;
        count++;
        kinds[hl_head_type_of(profile, layer, head).kind]++;
        normalized += hl_profile_mean(profile, layer, head, HL_Q_NORMALIZED);
        first += hl_profile_mean(profile, layer, head, HL_Q_FIRST);
        previous += hl_profile_mean(profile, layer, head, HL_Q_PREVIOUS);
        band += hl_profile_pattern(profile, layer, head, HL_PM_BAND, false).mean;
        hl_text_addf(&members, "%s%s", members.n_bytes > 0 ? " " : "",
                     hl_profile_head_name(name, profile, layer, head));
    }
    HL_NEED(hl_text_finish(&list, &members));
    int commonest = 0;
    for (int kind = 1; kind < HL_N_HEAD_KINDS; kind++)
        commonest = kinds[kind] > kinds[commonest] ? kind : commonest;
    int64_t medoid = clusters->medoids[cluster];
    double  n      = (double)count;
    hl_sheet_put_ints(table, cluster, count);
    hl_sheet_put_text(table, "%s",
                      hl_profile_head_name(name, profile, medoid / n_heads, medoid % n_heads));
    hl_sheet_put_text(table, "%s", hl_head_kind_name((hl_head_kind)commonest));
    hl_sheet_put_reals(table, normalized / n, first / n, previous / n, band / n);
    hl_sheet_put_text(table, "%s", list);
    return HL_OK;
}

/* Describes the mean agreement between divisions of random parts of the heads. */
static const char *in_words(double stability)
{
    if (isnan(stability))
        return "too few heads to form groups";
    if (stability >= 0.8)
        return "stable: the same groups form when a fifth of the heads is left out";
    return stability >= 0.5 ? "partly stable: the borders of groups move when heads are left out"
                            : "not stable: do not rely on these groups";
}

static hl_status fill_clusters(hl_sheet *table, const hl_profile *profile,
                               const hl_analysis_options *options)
{
    HL_CLOSED(hl_head_clusters_free) hl_head_clusters *clusters = NULL;

    HL_NEED(hl_head_clusters_new(&clusters, profile, options->seed));
    for (int64_t cluster = 0; cluster < clusters->n_clusters; cluster++)
        HL_NEED(put_cluster(table, clusters, profile, cluster));
    hl_sheet_fact_real(table, "silhouette", clusters->silhouette);
    hl_sheet_fact_real(table, "stability", clusters->stability.mean);
    hl_sheet_fact_real(table, "least stability", clusters->stability.least);
    hl_sheet_fact_text(table, "verdict", "%s", in_words(clusters->stability.mean));
    hl_sheet_fact_real(table, "features", (double)clusters->n_features);
    return HL_OK;
}

/* ------------------------------------------------------------------ indexer */

static const char recall_columns[] = "layer:i head:i rows:i recall:4 recall_sd:4";

static hl_status fill_recall(hl_sheet *table, const hl_profile *profile,
                             const hl_analysis_options *options)
{
    double  sum = 0.0, least = NAN;
    int64_t n = 0;

    (void)options;
    HL_EACH_HEAD(profile, layer, head)
    {
        hl_moments recall = hl_profile_recall(profile, layer, head);

        if (recall.count == 0)
            continue;
        hl_sheet_put_ints(table, layer, head, recall.count);
        hl_sheet_put_reals(table, recall.mean, sqrt(fmax(recall.variance, 0.0)));
        sum += recall.mean;
        n++;
        least = fmin(least, recall.mean);
    }
    hl_sheet_fact_real(table, "mean", n > 0 ? sum / (double)n : NAN);
    hl_sheet_fact_real(table, "least", least);
    return HL_OK;
}

/* ----------------------------------------------------------------- the list */

static const struct {
    const char *name;
    const char *summary;
    const char *title;
    const char *columns;
    hl_status (*fill)(hl_sheet *table, const hl_profile *profile,
                      const hl_analysis_options *options);
} analyses[] = {
    { "heads", "every head: entropies with intervals, peak, self, previous, first",
      "Every head: means over rows, 95% intervals", head_columns, fill_heads },
    { "layers", "every layer: mean entropies with intervals, block influence",
      "Every layer: means over heads, 95% intervals", layer_columns, fill_layers },
    { "shape", "shape of entropy by layer: range, minimum, curvature, trend, flat or not",
      "Shape of the layer profile", shape_columns, fill_shape },
    { "variance", "variance between the heads of each layer",
      "Variance between the heads of each layer (equal entropy does not mean equal attention)",
      variance_columns, fill_variance },
    { "extremes", "the most and the least focused heads", "The most and the least focused heads",
      extreme_columns, fill_extremes },
    { "similarity", "pairs of heads of a layer, by similarity of their rows",
      "Pairs of heads of a layer, most similar first", pair_columns, fill_similarity },
    { "patterns", "patterns of every head: self, previous, band, sink, sparsity, induction",
      "Patterns of every head, over sampled rows", pattern_columns, fill_patterns },
    { "positions", "entropy by position in the sequence",
      "Entropy by position: means over heads, 95% intervals", position_columns, fill_positions },
    { "positions-by-head", "the same for each head", "Entropy of every head by position",
      head_position_columns, fill_positions_by_head },
    { "token-types", "entropy by type of token", "Entropy by type of token, means over heads",
      type_columns, fill_token_types },
    { "token-types-by-head", "the same for each head", "Entropy of every head by type of token",
      head_type_columns, fill_token_types_by_head },
    { "lookback", "attention that each type of token gives to each type",
      "Attention that tokens of one type give to another: mean, lowest and highest head",
      lookback_columns, fill_lookback },
    { "head-types", "type of each head, and the rule that gave it",
      "Type of each head: the first rule that holds", kind_columns, fill_head_types },
    { "indexer", "sparse attention: mass of the full softmax on the keys that were chosen",
      "Recall of the indexer: share of the full softmax's mass on the keys it chose",
      recall_columns, fill_recall },
    { "clusters", "groups of heads that behave alike, and how stable they are",
      "Heads that behave alike: by position, token type and pattern", cluster_columns,
      fill_clusters },
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

hl_status hl_analyze(hl_sheet **out, const hl_profile *profile, const char *name,
                     const hl_analysis_options *options)
{
    const char                        *context  = hl_profile_setting(profile, "context");
    const hl_analysis_options          defaults = { 0 };
    HL_CLOSED(hl_sheet_free) hl_sheet *table    = NULL;

    *out = NULL;
    for (size_t i = 0; i < N_ANALYSES; i++) {
        if (strcmp(name, analyses[i].name) != 0)
            continue;
        HL_NEED(hl_sheet_new(&table, analyses[i].name, analyses[i].title, analyses[i].columns));
        hl_sheet_name_layers(table, hl_profile_setting(profile, "layers"));
        HL_NEED(analyses[i].fill(table, profile, options != NULL ? options : &defaults));
        /* Every table ends with what it was measured on. */
        if (context != NULL)
            hl_sheet_fact_text(table, "context", "%s", context);
        hl_sheet_fact_real(table, "sequences", (double)hl_profile_all_sequences(profile));
        hl_sheet_fact_real(table, "tokens", (double)hl_profile_n_tokens(profile));
        return hl_sheet_hand_over(out, hl_taken(&table), HL_OK);
    }
    return hl_fail(HL_BAD_ARGUMENT, "no table is called '%s'", name);
}
