/* compare.c - two profiles side by side: what differs, and how sure that is.
 *
 * Where both profiles hold the same sequences, these are drawn in pairs; else each profile's own are
 * drawn.  Every table of a comparison is one function below; the last has whole rows of two models
 * and comes from another measurement.  JSON is what `headlight compare --json` prints and reports
 * hold. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/cluster.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/analysis.h"

#define SIGNIFICANT 0.05

/* Both have the same layers and heads. */
typedef struct two_profiles {
    const hl_profile *a;
    const hl_profile *b;
    int64_t           n_layers;
    int64_t           n_heads;
    int64_t          *shared_a; /* (n_shared) sequences of a ... */
    int64_t          *shared_b; /* ... and the same ones in b */
    int64_t           n_shared;
    uint64_t          seed;
} two_profiles;

/* -------------------------------------------------------------------- draws */

/* The heads' means in draws of sequences: of those that both profiles hold, the same ones in both;
 * or else of each profile's own. */
typedef struct drawn_pair {
    double *a; /* (n_layers * n_heads, n_draws); NULL: too few sequences to draw */
    double *b;
    int64_t n_draws;
} drawn_pair;

static void drawn_pair_free(drawn_pair *drawn)
{
    hl_free(drawn->a);
    hl_free(drawn->b);
    *drawn = (drawn_pair){ 0 };
}

/* The rows of `values` (n, size) that `chosen` names, in its order; all where it is NULL. */
static hl_status choose_rows(double **out, const double *values, const int64_t *chosen, int64_t n,
                             int64_t size)
{
    hl_status status = HL_ALLOC(out, (size_t)(n * size));

    for (int64_t i = 0; status == HL_OK && i < n; i++)
        memcpy(*out + i * size, values + (chosen != NULL ? chosen[i] : i) * size,
               sizeof **out * (size_t)size);
    return status;
}

static hl_status draw_one(double **out, const hl_profile *profile, hl_quantity quantity,
                          const int64_t *chosen, int64_t n_chosen, uint64_t seed)
{
    hl_status status = HL_OK;
    int64_t   size   = hl_grid_size(profile);
    double   *values = NULL;
    double   *rows   = NULL;

    HL_TRY(hl_grid_sequences(&values, profile, quantity));
    HL_TRY(choose_rows(&rows, values, chosen, n_chosen, size));
    HL_TRY(HL_ALLOC(out, (size_t)size * HL_RESAMPLES));
    HL_TRY(hl_bootstrap_means(*out, rows, n_chosen, size, HL_RESAMPLES, seed));

done:
    hl_free(values);
    hl_free(rows);
    return status;
}

static hl_status draw_pair(drawn_pair *out, const two_profiles *two, hl_quantity quantity)
{
    hl_status status = HL_OK;
    bool      paired = two->n_shared > 0;
    int64_t   n_a    = paired ? two->n_shared : hl_profile_n_sequences(two->a);
    int64_t   n_b    = paired ? two->n_shared : hl_profile_n_sequences(two->b);

    *out = (drawn_pair){ 0 };
    if (n_a < 2 || n_b < 2)
        return HL_OK;
    out->n_draws = HL_RESAMPLES;
    HL_TRY(draw_one(&out->a, two->a, quantity, paired ? two->shared_a : NULL, n_a, two->seed));
    /* Equal seeds draw equal sequences; strangers are drawn apart. */
    HL_TRY(draw_one(&out->b, two->b, quantity, paired ? two->shared_b : NULL, n_b,
                    paired ? two->seed : two->seed + 1));

done:
    if (status != HL_OK)
        drawn_pair_free(out);
    return status;
}

/* ------------------------------------------------------------- table: ranks */

static const hl_column rank_columns[] = {
    { "quantity", HL_COLUMN_TEXT, 0 }, { "spearman", HL_COLUMN_REAL, 3 },
    { "low", HL_COLUMN_REAL, 3 },      { "high", HL_COLUMN_REAL, 3 },
    { "top_10", HL_COLUMN_REAL, 2 },   { 0 },
};

/* The interval of the rank correlation, from the heads' means in every draw. */
static hl_status rank_interval(hl_interval *out, const drawn_pair *drawn, int64_t size)
{
    enum { N_USED = 200 }; /* sorting all heads a thousand times is not worth the last digit */
    hl_status status = HL_OK;
    double   *work   = NULL; /* (2, size): one draw of both */
    double    draws[N_USED];

    *out = (hl_interval){ NAN, NAN, NAN };
    if (drawn->a == NULL)
        return HL_OK;
    HL_TRY(HL_ALLOC(&work, 2 * (size_t)size));
    for (int64_t draw = 0; draw < N_USED; draw++) {
        for (int64_t i = 0; i < size; i++) {
            work[i]        = drawn->a[i * drawn->n_draws + draw];
            work[size + i] = drawn->b[i * drawn->n_draws + draw];
        }
        HL_TRY(hl_spearman(&draws[draw], work, work + size, size));
    }
    *out = hl_bootstrap_interval(draws, N_USED, 0.95);

done:
    hl_free(work);
    return status;
}

/* The share of the tenth with the lowest values in a that is among b's as well. */
static hl_status shared_top(double *out, const double *a, const double *b, int64_t size)
{
    hl_status status   = HL_OK;
    double   *ranks    = NULL; /* (2, size) */
    int64_t   n_in_a   = 0;
    int64_t   n_shared = 0;
    int64_t   n_real   = 0;

    *out = NAN;
    HL_TRY(HL_ALLOC(&ranks, 2 * (size_t)size));
    HL_TRY(hl_ranks(ranks, a, size));
    HL_TRY(hl_ranks(ranks + size, b, size));
    for (int64_t i = 0; i < size; i++)
        n_real += !isnan(a[i]);
    double last = fmax(1.0, 0.1 * (double)n_real);
    for (int64_t i = 0; i < size; i++) {
        n_in_a += ranks[i] <= last;
        n_shared += ranks[i] <= last && ranks[size + i] <= last;
    }
    *out = n_in_a > 0 ? (double)n_shared / (double)n_in_a : NAN;

done:
    hl_free(ranks);
    return status;
}

static hl_status put_ranks(hl_sheet *table, const two_profiles *two, const char *name,
                           hl_quantity quantity)
{
    hl_status   status = HL_OK;
    drawn_pair  drawn  = { 0 };
    double     *a      = NULL;
    double     *b      = NULL;
    double      rho = NAN, top = NAN;
    hl_interval interval;

    HL_TRY(draw_pair(&drawn, two, quantity));
    HL_TRY(hl_grid_means(&a, two->a, quantity));
    HL_TRY(hl_grid_means(&b, two->b, quantity));
    HL_TRY(hl_spearman(&rho, a, b, hl_grid_size(two->a)));
    HL_TRY(shared_top(&top, a, b, hl_grid_size(two->a)));
    HL_TRY(rank_interval(&interval, &drawn, hl_grid_size(two->a)));
    hl_sheet_put_text(table, "%s", name);
    hl_sheet_put_real(table, rho);
    hl_sheet_put_real(table, interval.low);
    hl_sheet_put_real(table, interval.high);
    hl_sheet_put_real(table, top);

done:
    drawn_pair_free(&drawn);
    hl_free(a);
    hl_free(b);
    return status;
}

static hl_status compare_ranks(hl_sheet **out, const two_profiles *two)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    HL_TRY(hl_sheet_new(&table, "ranks", "Is the order of the heads the same?", rank_columns));
    HL_TRY(put_ranks(table, two, "entropy", HL_Q_ENTROPY));
    HL_TRY(put_ranks(table, two, "fair", HL_Q_FAIR));
    HL_TRY(put_ranks(table, two, "nosink", HL_Q_NOSINK));

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ------------------------------------------ tables: metrics and differences */

/* Everything that is compared of a head, in the columns' order. */
enum { N_METRICS = HL_N_QUANTITIES + HL_PM_CHANCE + 1 + HL_N_PROBES };

static const char *const metric_names[N_METRICS] = {
    "entropy",   "fair",         "renyi2",           "varentropy",
    "peak",      "self",         "previous",         "first",
    "nosink",    "diagonal",     "previous_sampled", "band",
    "sink",      "diagonal_top", "peak_sampled",     "content",
    "edges",     "k90",          "support2",         "output_norm",
    "induction", "duplicate",    "probe_previous",
};

static double metric_of(const hl_profile *profile, int64_t layer, int64_t head, int metric)
{
    if (metric < HL_N_QUANTITIES)
        return hl_profile_mean(profile, layer, head, (hl_quantity)metric);
    metric -= HL_N_QUANTITIES;
    if (metric < HL_PM_CHANCE)
        return hl_profile_pattern(profile, layer, head, (hl_pattern_metric)metric, false).mean;
    metric -= HL_PM_CHANCE;
    return metric == 0 ? hl_profile_output_norm(profile, layer, head)
                       : hl_profile_probe(profile, layer, head, (hl_probe)(metric - 1));
}

static const hl_column metric_columns[] = {
    { "metric", HL_COLUMN_TEXT, 0 },      { "a", HL_COLUMN_REAL, 3 },
    { "b", HL_COLUMN_REAL, 3 },           { "difference", HL_COLUMN_REAL, 3 },
    { "mean_change", HL_COLUMN_REAL, 3 }, { "most_change", HL_COLUMN_REAL, 3 },
    { "head", HL_COLUMN_TEXT, 0 },        { 0 },
};

static void put_metric(hl_sheet *table, const two_profiles *two, int metric)
{
    double  sum_a = 0.0, sum_b = 0.0, change = 0.0, most = NAN;
    int64_t count                    = 0;
    char    name[HL_HEAD_NAME_BYTES] = "-";

    HL_EACH_HEAD(two->a, layer, head)
    {
        double a          = metric_of(two->a, layer, head, metric);
        double b          = metric_of(two->b, layer, head, metric);
        double difference = b - a;

        if (isnan(difference))
            continue;
        count++;
        sum_a += a;
        sum_b += b;
        change += fabs(difference);
        if (isnan(most) || fabs(difference) > fabs(most)) {
            most = difference;
            hl_head_name(name, layer, head);
        }
    }
    double n = (double)count; /* 0 of 0 is NaN: not measured */
    hl_sheet_put_text(table, "%s", metric_names[metric]);
    hl_sheet_put_real(table, sum_a / n);
    hl_sheet_put_real(table, sum_b / n);
    hl_sheet_put_real(table, (sum_b - sum_a) / n);
    hl_sheet_put_real(table, change / n);
    hl_sheet_put_real(table, most);
    hl_sheet_put_text(table, "%s", name);
}

static hl_status compare_metrics(hl_sheet **out, const two_profiles *two)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    HL_TRY(hl_sheet_new(&table, "metrics", "Every metric: means over heads, and the largest change",
                        metric_columns));
    for (int metric = 0; metric < N_METRICS; metric++)
        put_metric(table, two, metric);

done:
    return hl_sheet_hand_over(out, table, status);
}

static const hl_column difference_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },
    { "renyi2", HL_COLUMN_REAL, 3 },
    { "varentropy", HL_COLUMN_REAL, 3 },
    { "peak", HL_COLUMN_REAL, 3 },
    { "self", HL_COLUMN_REAL, 3 },
    { "previous", HL_COLUMN_REAL, 3 },
    { "first", HL_COLUMN_REAL, 3 },
    { "nosink", HL_COLUMN_REAL, 3 },
    { "diagonal", HL_COLUMN_REAL, 3 },
    { "previous_sampled", HL_COLUMN_REAL, 3 },
    { "band", HL_COLUMN_REAL, 3 },
    { "sink", HL_COLUMN_REAL, 3 },
    { "diagonal_top", HL_COLUMN_REAL, 3 },
    { "peak_sampled", HL_COLUMN_REAL, 3 },
    { "content", HL_COLUMN_REAL, 3 },
    { "edges", HL_COLUMN_REAL, 3 },
    { "k90", HL_COLUMN_REAL, 3 },
    { "support2", HL_COLUMN_REAL, 3 },
    { "output_norm", HL_COLUMN_REAL, 3 },
    { "induction", HL_COLUMN_REAL, 3 },
    { "duplicate", HL_COLUMN_REAL, 3 },
    { "probe_previous", HL_COLUMN_REAL, 3 },
    { 0 },
};

static hl_status compare_differences(hl_sheet **out, const two_profiles *two)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    HL_TRY(hl_sheet_new(&table, "differences", "Every metric of every head, B - A",
                        difference_columns));
    HL_EACH_HEAD(two->a, layer, head)
    {
        hl_sheet_put_int(table, layer);
        hl_sheet_put_int(table, head);
        for (int metric = 0; metric < N_METRICS; metric++)
            hl_sheet_put_real(table, metric_of(two->b, layer, head, metric) -
                                         metric_of(two->a, layer, head, metric));
    }

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ------------------------------------------------- tables: heads and layers */

/* What the draws say of the difference B - A of one place. */
static void judge(hl_interval *interval, double *p_value, double *work, const drawn_pair *drawn,
                  int64_t place)
{
    *interval = (hl_interval){ NAN, NAN, NAN };
    *p_value  = NAN;
    if (drawn->a == NULL)
        return;
    for (int64_t i = 0; i < drawn->n_draws; i++)
        work[i] = drawn->b[place * drawn->n_draws + i] - drawn->a[place * drawn->n_draws + i];
    *p_value  = hl_bootstrap_p_value(work, drawn->n_draws);
    *interval = hl_bootstrap_interval(work, drawn->n_draws, 0.95);
}

static const hl_column head_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "fair_a", HL_COLUMN_REAL, 3 },
    { "fair_b", HL_COLUMN_REAL, 3 },
    { "difference", HL_COLUMN_REAL, 3 },
    { "low", HL_COLUMN_REAL, 3 },
    { "high", HL_COLUMN_REAL, 3 },
    { "p", HL_COLUMN_REAL, 4 },
    { "q", HL_COLUMN_REAL, 4 },
    { "significant", HL_COLUMN_BOOL, 0 },
    { "variation", HL_COLUMN_REAL, 3 },
    { "divergence", HL_COLUMN_REAL, 3 },
    { 0 },
};

static void put_head(hl_sheet *table, const two_profiles *two, int64_t layer, int64_t head,
                     const hl_interval *interval, double p, double q)
{
    double         a           = hl_profile_mean(two->a, layer, head, HL_Q_FAIR);
    double         b           = hl_profile_mean(two->b, layer, head, HL_Q_FAIR);
    const int64_t *histogram_a = hl_profile_histogram(two->a, layer, head, HL_HIST_NORMALISED);
    const int64_t *histogram_b = hl_profile_histogram(two->b, layer, head, HL_HIST_NORMALISED);

    hl_sheet_put_int(table, layer);
    hl_sheet_put_int(table, head);
    hl_sheet_put_real(table, a);
    hl_sheet_put_real(table, b);
    hl_sheet_put_real(table, b - a);
    hl_sheet_put_real(table, interval->low);
    hl_sheet_put_real(table, interval->high);
    hl_sheet_put_real(table, p);
    hl_sheet_put_real(table, q);
    hl_sheet_put_bool(table, q < SIGNIFICANT);
    hl_sheet_put_real(table, hl_histogram_variation(histogram_a, histogram_b));
    hl_sheet_put_real(table, hl_histogram_divergence(histogram_a, histogram_b));
}

static hl_status compare_heads(hl_sheet **out, int64_t *n_significant, const two_profiles *two,
                               const drawn_pair *fair)
{
    hl_status    status    = HL_OK;
    size_t       size      = (size_t)hl_grid_size(two->a);
    hl_sheet    *table     = NULL;
    hl_interval *intervals = NULL;
    double      *p         = NULL; /* (2, size): p-values and what is left of them */
    double      *work      = NULL;

    *n_significant = 0;
    HL_TRY(hl_sheet_new(&table, "heads", "Fair entropy of every head, B - A, 95% intervals",
                        head_columns));
    HL_TRY(HL_ALLOC(&intervals, size));
    HL_TRY(HL_ALLOC(&p, 2 * size));
    HL_TRY(HL_ALLOC(&work, HL_RESAMPLES));
    for (int64_t i = 0; i < (int64_t)size; i++)
        judge(&intervals[i], &p[i], work, fair, i);
    HL_TRY(hl_false_discovery(p + size, p, (int64_t)size));
    HL_EACH_HEAD(two->a, layer, head)
    {
        int64_t place = layer * two->n_heads + head;
        put_head(table, two, layer, head, &intervals[place], p[place], p[(int64_t)size + place]);
        *n_significant += p[(int64_t)size + place] < SIGNIFICANT;
    }

done:
    hl_free(intervals);
    hl_free(p);
    hl_free(work);
    return hl_sheet_hand_over(out, table, status);
}

static const hl_column layer_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "fair_a", HL_COLUMN_REAL, 3 },
    { "fair_b", HL_COLUMN_REAL, 3 },
    { "difference", HL_COLUMN_REAL, 3 },
    { "low", HL_COLUMN_REAL, 3 },
    { "high", HL_COLUMN_REAL, 3 },
    { 0 },
};

/* A layer's difference in one draw: the mean over its heads. */
static hl_interval layer_interval(double *work, const two_profiles *two, const drawn_pair *drawn,
                                  int64_t layer)
{
    if (drawn->a == NULL)
        return (hl_interval){ NAN, NAN, NAN };
    for (int64_t draw = 0; draw < drawn->n_draws; draw++) {
        double  sum   = 0.0;
        int64_t count = 0;
        for (int64_t head = 0; head < two->n_heads; head++) {
            int64_t at         = (layer * two->n_heads + head) * drawn->n_draws + draw;
            double  difference = drawn->b[at] - drawn->a[at];
            sum += isnan(difference) ? 0.0 : difference;
            count += !isnan(difference);
        }
        work[draw] = count > 0 ? sum / (double)count : NAN;
    }
    return hl_bootstrap_interval(work, drawn->n_draws, 0.95);
}

static hl_status compare_layers(hl_sheet **out, const two_profiles *two, const drawn_pair *fair)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;
    double   *a      = NULL;
    double   *b      = NULL;
    double   *work   = NULL;

    HL_TRY(hl_sheet_new(&table, "layers", "Fair entropy of every layer, B - A, 95% intervals",
                        layer_columns));
    HL_TRY(hl_grid_means(&a, two->a, HL_Q_FAIR));
    HL_TRY(hl_grid_means(&b, two->b, HL_Q_FAIR));
    HL_TRY(HL_ALLOC(&work, HL_RESAMPLES));
    for (int64_t layer = 0; layer < two->n_layers; layer++) {
        double      mean_a   = hl_mean(a + layer * two->n_heads, two->n_heads);
        double      mean_b   = hl_mean(b + layer * two->n_heads, two->n_heads);
        hl_interval interval = layer_interval(work, two, fair, layer);

        hl_sheet_put_int(table, layer);
        hl_sheet_put_real(table, mean_a);
        hl_sheet_put_real(table, mean_b);
        hl_sheet_put_real(table, mean_b - mean_a);
        hl_sheet_put_real(table, interval.low);
        hl_sheet_put_real(table, interval.high);
    }

done:
    hl_free(a);
    hl_free(b);
    hl_free(work);
    return hl_sheet_hand_over(out, table, status);
}

/* ---------------------------------------------------------- table: matching */

/* How unlike two heads' profiles are, 0 to 1: the mean of the total variations between their
 * histograms (normalised entropy, the same without the first key, peak) and of the differences of
 * diagonal, previous, band, sink and content mass; 1 where nothing can be compared. */
static double profile_distance(const hl_profile *a, int64_t head_a, const hl_profile *b,
                               int64_t head_b, int64_t layer)
{
    static const hl_pattern_metric metrics[] = { HL_PM_DIAGONAL, HL_PM_PREVIOUS, HL_PM_BAND,
                                                 HL_PM_SINK, HL_PM_CONTENT };
    enum { N_COMPARED = sizeof metrics / sizeof *metrics };
    double parts[HL_N_HISTOGRAMS + N_COMPARED];

    for (int i = 0; i < HL_N_HISTOGRAMS; i++)
        parts[i] = hl_histogram_variation(hl_profile_histogram(a, layer, head_a, (hl_histogram)i),
                                          hl_profile_histogram(b, layer, head_b, (hl_histogram)i));
    for (int i = 0; i < N_COMPARED; i++)
        parts[HL_N_HISTOGRAMS + i] =
            fabs(hl_profile_pattern(a, layer, head_a, metrics[i], false).mean -
                 hl_profile_pattern(b, layer, head_b, metrics[i], false).mean);
    double mean = hl_mean(parts, HL_N_HISTOGRAMS + N_COMPARED);
    return isnan(mean) ? 1.0 : mean;
}

static const hl_column matching_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head_a", HL_COLUMN_INT, 0 },
    { "head_b", HL_COLUMN_INT, 0 },
    { "distance", HL_COLUMN_REAL, 4 },
    { "distance_by_index", HL_COLUMN_REAL, 4 },
    { "moved", HL_COLUMN_BOOL, 0 },
    { 0 },
};

typedef struct matched {
    int64_t n_moved;
    int64_t count;
    double  distance; /* sums */
    double  by_index;
} matched;

/* cost has room for (n_heads, n_heads), partner for (n_heads). */
static hl_status match_layer(hl_sheet *table, matched *total, const two_profiles *two,
                             int64_t layer, double *cost, int64_t *partner)
{
    int64_t n = hl_profile_heads_of(two->a, layer);

    for (int64_t i = 0; i < n * n; i++)
        cost[i] = profile_distance(two->a, i / n, two->b, i % n, layer);
    hl_status status = hl_assign(partner, cost, n, n);
    if (status != HL_OK)
        return status;
    for (int64_t head = 0; head < n; head++) {
        double distance = cost[head * n + partner[head]];
        double by_index = cost[head * n + head];

        hl_sheet_put_int(table, layer);
        hl_sheet_put_int(table, head);
        hl_sheet_put_int(table, partner[head]);
        hl_sheet_put_real(table, distance);
        hl_sheet_put_real(table, by_index);
        hl_sheet_put_bool(table, partner[head] != head);
        total->n_moved += partner[head] != head;
        total->count++;
        total->distance += distance;
        total->by_index += by_index;
    }
    return HL_OK;
}

static hl_status compare_matching(hl_sheet **out, const two_profiles *two)
{
    hl_status status  = HL_OK;
    hl_sheet *table   = NULL;
    double   *cost    = NULL;
    int64_t  *partner = NULL;
    matched   total   = { 0 };

    HL_TRY(hl_sheet_new(&table, "matching", "Which head of B is which of A, by their profiles",
                        matching_columns));
    HL_TRY(HL_ALLOC(&cost, (size_t)(two->n_heads * two->n_heads)));
    HL_TRY(HL_ALLOC(&partner, (size_t)two->n_heads));
    for (int64_t layer = 0; layer < two->n_layers; layer++)
        HL_TRY(match_layer(table, &total, two, layer, cost, partner));
    hl_sheet_fact_real(table, "moved", (double)total.n_moved);
    hl_sheet_fact_real(table, "mean distance", total.distance / (double)total.count);
    hl_sheet_fact_real(table, "mean distance by index", total.by_index / (double)total.count);

done:
    hl_free(cost);
    hl_free(partner);
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------- the comparison */

static hl_status find_shared(two_profiles *two)
{
    int64_t n_a = hl_profile_n_sequences(two->a);
    int64_t n_b = hl_profile_n_sequences(two->b);

    HL_NEED(HL_ALLOC(&two->shared_a, (size_t)n_a));
    HL_NEED(HL_ALLOC(&two->shared_b, (size_t)n_a));
    for (int64_t i = 0; i < n_a; i++) {
        for (int64_t j = 0; j < n_b; j++) {
            if (hl_profile_sequence_hash(two->a, i) != hl_profile_sequence_hash(two->b, j))
                continue;
            two->shared_a[two->n_shared]   = i;
            two->shared_b[two->n_shared++] = j;
            break;
        }
    }
    return HL_OK;
}

static hl_status check_shapes(const hl_profile *a, const hl_profile *b)
{
    if (hl_profile_n_layers(a) != hl_profile_n_layers(b) ||
        hl_profile_n_heads(a) != hl_profile_n_heads(b))
        return hl_fail(
            HL_BAD_INPUT,
            "the first profile is of %lld layers of %lld heads, the second of %lld of %lld",
            (long long)hl_profile_n_layers(a), (long long)hl_profile_n_heads(a),
            (long long)hl_profile_n_layers(b), (long long)hl_profile_n_heads(b));
    for (int64_t layer = 0; layer < hl_profile_n_layers(a); layer++) {
        if (hl_profile_heads_of(a, layer) != hl_profile_heads_of(b, layer))
            return hl_fail(HL_BAD_INPUT,
                           "layer %lld has %lld heads in the first profile, %lld in "
                           "the second",
                           (long long)layer, (long long)hl_profile_heads_of(a, layer),
                           (long long)hl_profile_heads_of(b, layer));
    }
    return HL_OK;
}

static bool same_model(const hl_profile *a, const hl_profile *b)
{
    const char *left  = hl_profile_setting(a, "model");
    const char *right = hl_profile_setting(b, "model");

    return left != NULL && right != NULL && strcmp(left, right) == 0;
}

static hl_status fill_tables(hl_comparison *result, const two_profiles *two)
{
    hl_status  status = HL_OK;
    drawn_pair fair   = { 0 };

    HL_TRY(draw_pair(&fair, two, HL_Q_FAIR));
    HL_TRY(compare_ranks(&result->ranks, two));
    HL_TRY(compare_metrics(&result->metrics, two));
    HL_TRY(compare_layers(&result->layers, two, &fair));
    HL_TRY(compare_heads(&result->heads, &result->n_significant, two, &fair));
    HL_TRY(compare_differences(&result->differences, two));
    HL_TRY(compare_matching(&result->matching, two));

done:
    drawn_pair_free(&fair);
    return status;
}

hl_status hl_compare(hl_comparison **out, const hl_profile *a, const hl_profile *b,
                     const hl_analysis_options *options)
{
    hl_status      status = HL_OK;
    hl_comparison *result = NULL;
    two_profiles   two    = { .a        = a,
                              .b        = b,
                              .n_layers = hl_profile_n_layers(a),
                              .n_heads  = hl_profile_n_heads(a),
                              .seed     = options != NULL ? options->seed : 0 };

    *out = NULL;
    HL_TRY(check_shapes(a, b));
    HL_TRY(find_shared(&two));
    HL_TRY(HL_ALLOC_ZEROED(&result, 1));
    result->n_shared   = two.n_shared;
    result->same_model = same_model(a, b);
    result->kind       = two.n_shared > 0     ? HL_COMPARE_SAME_TOKENS
                         : result->same_model ? HL_COMPARE_TWO_TEXTS
                                              : HL_COMPARE_APART;
    HL_EACH_HEAD(a, layer, head)
    result->n_heads++;
    HL_TRY(fill_tables(result, &two));
    *out   = result;
    result = NULL;

done:
    hl_comparison_free(result);
    hl_free(two.shared_a);
    hl_free(two.shared_b);
    return status;
}

void hl_comparison_free(hl_comparison *comparison)
{
    if (comparison == NULL)
        return;
    hl_sheet_free(comparison->ranks);
    hl_sheet_free(comparison->metrics);
    hl_sheet_free(comparison->layers);
    hl_sheet_free(comparison->heads);
    hl_sheet_free(comparison->differences);
    hl_sheet_free(comparison->matching);
    hl_sheet_free(comparison->rows);
    hl_free(comparison);
}

const char *hl_comparison_kind_name(hl_comparison_kind kind)
{
    static const char *const names[] = { "same tokens", "two texts", "apart" };

    return names[kind];
}

const char *hl_comparison_table_name(size_t index)
{
    static const char *const names[] = { "ranks",       "metrics",  "layers", "heads",
                                         "differences", "matching", "rows",   NULL };

    return index < sizeof names / sizeof *names ? names[index] : NULL;
}

const hl_sheet *hl_comparison_table(const hl_comparison *comparison, const char *name)
{
    const hl_sheet *const tables[] = { comparison->ranks,       comparison->metrics,
                                       comparison->layers,      comparison->heads,
                                       comparison->differences, comparison->matching,
                                       comparison->rows };

    for (size_t i = 0; hl_comparison_table_name(i) != NULL; i++) {
        if (strcmp(name, hl_comparison_table_name(i)) == 0)
            return tables[i];
    }
    return NULL;
}

/* ------------------------------------------------ table: rows of two models */

static const hl_column row_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "variation", HL_COLUMN_REAL, 4 },
    { "low", HL_COLUMN_REAL, 4 },
    { "high", HL_COLUMN_REAL, 4 },
    { "divergence", HL_COLUMN_REAL, 4 },
    { "partner", HL_COLUMN_INT, 0 },
    { "variation_matched", HL_COLUMN_REAL, 4 },
    { 0 },
};

typedef struct row_totals {
    double  by_index;
    double  matched;
    int64_t n_moved;
    int64_t count;
} row_totals;

/* The draws of every head's mean variation: (L * H, HL_RESAMPLES); NULL of fewer than two
 * sequences. */
static hl_status draw_rows(double **out, const hl_row_distances *rows, uint64_t seed)
{
    int64_t size = rows->n_layers * rows->n_heads;

    *out = NULL;
    if (rows->n_sequences < 2)
        return HL_OK;
    HL_NEED(HL_ALLOC(out, (size_t)size * HL_RESAMPLES));
    return hl_bootstrap_means(*out, rows->of_sequences, rows->n_sequences, size, HL_RESAMPLES,
                              seed);
}

/* partner (n) of the heads of a layer, cost (n, n) being room for their distances. */
static hl_status match_rows(int64_t *partner, double *cost, const hl_row_distances *rows,
                            int64_t layer)
{
    int64_t n = rows->heads[layer];

    for (int64_t i = 0; i < n * n; i++) {
        double value = rows->variation[(layer * rows->n_heads + i / n) * rows->n_heads + i % n];
        cost[i]      = isnan(value) ? 1.0 : value; /* broken rows are as far as can be */
    }
    return hl_assign(partner, cost, n, n);
}

static void put_rows_of_head(hl_sheet *table, row_totals *totals, const hl_row_distances *rows,
                             int64_t layer, int64_t head, int64_t partner, double *draws)
{
    int64_t       cell     = layer * rows->n_heads + head;
    const double *to       = rows->variation + cell * rows->n_heads;
    hl_interval   interval = { NAN, NAN, NAN };

    if (draws != NULL)
        interval = hl_bootstrap_interval(draws + cell * HL_RESAMPLES, HL_RESAMPLES, 0.95);
    hl_sheet_put_int(table, layer);
    hl_sheet_put_int(table, head);
    hl_sheet_put_real(table, to[head]);
    hl_sheet_put_real(table, interval.low);
    hl_sheet_put_real(table, interval.high);
    hl_sheet_put_real(table, rows->divergence[cell]);
    hl_sheet_put_int(table, partner);
    hl_sheet_put_real(table, to[partner]);
    totals->by_index += to[head];
    totals->matched += to[partner];
    totals->n_moved += partner != head;
    totals->count++;
}

static void put_row_facts(hl_sheet *table, const row_totals *totals, const hl_row_distances *rows)
{
    hl_sheet_fact_real(table, "rows", (double)rows->n_rows);
    hl_sheet_fact_real(table, "sequences", (double)rows->n_sequences);
    hl_sheet_fact_real(table, "moved", (double)totals->n_moved);
    hl_sheet_fact_real(table, "mean variation", totals->by_index / (double)totals->count);
    hl_sheet_fact_real(table, "mean variation matched", totals->matched / (double)totals->count);
}

static hl_status rows_table(hl_sheet **out, const hl_row_distances *rows, uint64_t seed)
{
    hl_status  status  = HL_OK;
    hl_sheet  *table   = NULL;
    double    *draws   = NULL;
    double    *cost    = NULL;
    int64_t   *partner = NULL;
    row_totals totals  = { 0 };

    HL_TRY(hl_sheet_new(&table, "rows", "Sampled rows of every head, A against B, 95% intervals",
                        row_columns));
    HL_TRY(draw_rows(&draws, rows, seed));
    HL_TRY(HL_ALLOC(&cost, (size_t)(rows->n_heads * rows->n_heads)));
    HL_TRY(HL_ALLOC(&partner, (size_t)rows->n_heads));
    for (int64_t layer = 0; layer < rows->n_layers; layer++) {
        HL_TRY(match_rows(partner, cost, rows, layer));
        for (int64_t head = 0; head < rows->heads[layer]; head++)
            put_rows_of_head(table, &totals, rows, layer, head, partner[head], draws);
    }
    put_row_facts(table, &totals, rows);

done:
    hl_free(draws);
    hl_free(cost);
    hl_free(partner);
    return hl_sheet_hand_over(out, table, status);
}

hl_status hl_comparison_add_rows(hl_comparison *comparison, const hl_row_distances *rows,
                                 const hl_analysis_options *options)
{
    hl_sheet *table  = NULL;
    hl_status status = rows_table(&table, rows, options != NULL ? options->seed : 0);

    if (status != HL_OK)
        return status;
    hl_sheet_free(comparison->rows);
    comparison->rows = table;
    return HL_OK;
}

/* ------------------------------------------------------------------ as JSON */

static hl_status add_table(json_t *tables, const hl_sheet *table, const char *name)
{
    hl_status status = HL_OK;
    char     *text   = NULL;
    json_t   *value  = NULL;

    if (table == NULL)
        return HL_OK;
    HL_TRY(hl_sheet_render(&text, table, HL_SHEET_JSON));
    HL_TRY(hl_json_parse(&value, text, strlen(text), name));
    if (json_object_set_new(tables, name, value) != 0)
        status = hl_fail(HL_NO_MEMORY, "out of memory for the table '%s'", name);

done:
    hl_free(text);
    return status;
}

hl_status hl_comparison_render(char **out, const hl_comparison *comparison, const char *name_a,
                               const char *name_b)
{
    hl_status status = HL_OK;
    json_t   *root   = NULL;
    json_t   *tables = json_object();

    *out = NULL;
    for (size_t i = 0; hl_comparison_table_name(i) != NULL; i++) {
        const char *name = hl_comparison_table_name(i);
        HL_TRY(add_table(tables, hl_comparison_table(comparison, name), name));
    }
    /* Names are paths: any bytes. */
    root = json_pack(
        "{s:o, s:o, s:s, s:b, s:I, s:I, s:I, s:O}", "a", hl_json_text(name_a, strlen(name_a)), "b",
        hl_json_text(name_b, strlen(name_b)), "kind", hl_comparison_kind_name(comparison->kind),
        "same_model", comparison->same_model, "shared_sequences", (json_int_t)comparison->n_shared,
        "heads", (json_int_t)comparison->n_heads, "significant",
        (json_int_t)comparison->n_significant, "tables", tables);
    *out = hl_json_dump(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    if (*out == NULL)
        status = hl_fail(HL_NO_MEMORY, "out of memory for the comparison");

done:
    json_decref(root);
    json_decref(tables);
    return status;
}
