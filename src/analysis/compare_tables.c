/* compare_tables.c - the tables of a comparison. */
#include <math.h>

#include "analysis/assignment.h"
#include "analysis/bootstrap.h"
#include "analysis/compare.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"

#define SIGNIFICANT 0.05

static int64_t grid_size(const hl_two_profiles *two)
{
    return two->n_layers * two->n_heads;
}

/* -------------------------------------------------------------------- ranks */

static const hl_column rank_columns[] = {
    { "quantity", HL_COLUMN_TEXT, 0 }, { "spearman", HL_COLUMN_REAL, 3 },
    { "low", HL_COLUMN_REAL, 3 },      { "high", HL_COLUMN_REAL, 3 },
    { "top_10", HL_COLUMN_REAL, 2 },   { 0 },
};

/* The interval of the rank correlation, from the heads' means in every draw. */
static hl_status rank_interval(hl_interval *out, const hl_drawn_pair *drawn, int64_t size)
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

static hl_status put_ranks(hl_sheet *table, const hl_two_profiles *two, const char *name,
                           hl_quantity quantity)
{
    hl_status     status = HL_OK;
    hl_drawn_pair drawn  = { 0 };
    double       *a      = NULL;
    double       *b      = NULL;
    double        rho = NAN, top = NAN;
    hl_interval   interval;

    HL_TRY(hl_draw_pair(&drawn, two, quantity));
    HL_TRY(hl_grid_means(&a, two->a, quantity));
    HL_TRY(hl_grid_means(&b, two->b, quantity));
    HL_TRY(hl_spearman(&rho, a, b, grid_size(two)));
    HL_TRY(shared_top(&top, a, b, grid_size(two)));
    HL_TRY(rank_interval(&interval, &drawn, grid_size(two)));
    hl_sheet_put_text(table, "%s", name);
    hl_sheet_put_real(table, rho);
    hl_sheet_put_real(table, interval.low);
    hl_sheet_put_real(table, interval.high);
    hl_sheet_put_real(table, top);

done:
    hl_drawn_pair_free(&drawn);
    hl_free(a);
    hl_free(b);
    return status;
}

hl_status hl_compare_ranks(hl_sheet **out, const hl_two_profiles *two)
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

/* ------------------------------------------------------------------ metrics */

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

static void put_metric(hl_sheet *table, const hl_two_profiles *two, int metric)
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

hl_status hl_compare_metrics(hl_sheet **out, const hl_two_profiles *two)
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

hl_status hl_compare_differences(hl_sheet **out, const hl_two_profiles *two)
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

/* ---------------------------------------------------------- heads and layers */

/* What the draws say of the difference B - A of one place. */
static void judge(hl_interval *interval, double *p_value, double *work, const hl_drawn_pair *drawn,
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

static void put_head(hl_sheet *table, const hl_two_profiles *two, int64_t layer, int64_t head,
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

hl_status hl_compare_heads(hl_sheet **out, int64_t *n_significant, const hl_two_profiles *two,
                           const hl_drawn_pair *fair)
{
    hl_status    status    = HL_OK;
    size_t       size      = (size_t)grid_size(two);
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
static hl_interval layer_interval(double *work, const hl_two_profiles *two,
                                  const hl_drawn_pair *drawn, int64_t layer)
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

hl_status hl_compare_layers(hl_sheet **out, const hl_two_profiles *two, const hl_drawn_pair *fair)
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

/* ----------------------------------------------------------------- matching */

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
static hl_status match_layer(hl_sheet *table, matched *total, const hl_two_profiles *two,
                             int64_t layer, double *cost, int64_t *partner)
{
    int64_t n = hl_profile_heads_of(two->a, layer);

    for (int64_t i = 0; i < n * n; i++)
        cost[i] = hl_profile_distance(two->a, i / n, two->b, i % n, layer);
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

hl_status hl_compare_matching(hl_sheet **out, const hl_two_profiles *two)
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
