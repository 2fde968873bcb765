/* compare.c - two profiles side by side: what differs, and how certain that is.
 *
 * Where both profiles hold the same sequences, each is left out of both at once; else each profile's
 * own are left out, and the two errors are added.  Every table of a comparison is one function below; the last has whole rows of two models
 * and comes from another measurement.  JSON is what `headlight compare --json` prints and reports
 * hold. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "analysis/cluster.h"
#include "analysis/compare_parts.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/analysis.h"
#include "stats/profile.h"

#define SIGNIFICANT 0.05

/* The heads' means with each unit left out (hl_grid_left_out). If `paired`, both profiles leave
 * out the same sequences; otherwise each leaves out its own. */
typedef struct left_out_pair {
    double      *a; /* (n_layers * n_heads, n + 1) */
    double      *b;
    hl_unit_rows rows_a; /* number and kind of units */
    hl_unit_rows rows_b;
    bool         paired;
} left_out_pair;

/* Two profiles with the same layers and heads. */
typedef struct two_profiles {
    const hl_profile *a;
    const hl_profile *b;
    int64_t           n_layers;
    int64_t           n_heads;
    int64_t          *shared_a; /* (n_shared) indices in a of sequences that both have */
    int64_t          *shared_b; /* (n_shared) indices in b of the same sequences */
    int64_t           n_shared;
    left_out_pair     normalized;    /* normalized entropy of both */
    int64_t           n_significant; /* number of heads that differ significantly */
} two_profiles;

/* ----------------------------------------------------------------- uncertainty */

static void free_left_out(left_out_pair *left)
{
    hl_free(left->a);
    hl_free(left->b);
}

static hl_status leave_out(left_out_pair *out, const two_profiles *two, hl_quantity quantity)
{
    out->paired = two->n_shared > 0;
    if (out->paired) {
        HL_NEED(hl_grid_left_out(&out->a, &out->rows_a, two->a, quantity, two->shared_a,
                                 two->n_shared));
        HL_NEED(hl_grid_left_out(&out->b, &out->rows_b, two->b, quantity, two->shared_b,
                                 two->n_shared));
        /* Profiles of earlier versions do not know documents. If only one does, units cannot be
         * paired. */
        if (out->rows_a.n_groups == out->rows_b.n_groups)
            return HL_OK;
        free_left_out(out);
        *out = (left_out_pair){ 0 };
    }
    HL_NEED(hl_grid_left_out(&out->a, &out->rows_a, two->a, quantity, NULL,
                             hl_profile_n_sequences(two->a)));
    return hl_grid_left_out(&out->b, &out->rows_b, two->b, quantity, NULL,
                            hl_profile_n_sequences(two->b));
}

/* Returns the units of the profile that has fewer of them, which limit the degrees of freedom. */
static const hl_unit_rows *fewer(const left_out_pair *left)
{
    return left->rows_b.n_groups < left->rows_a.n_groups ? &left->rows_b : &left->rows_a;
}

/* Returns the error of b - a, both (n + 1) with each unit left out. `work` has room for n + 1. */
static hl_error difference_error(double *difference, double *work, const double *a, const double *b,
                                 const left_out_pair *left)
{
    int64_t n_a = left->rows_a.n_groups, n_b = left->rows_b.n_groups;

    *difference = b[n_b] - a[n_a];
    if (left->paired) {
        for (int64_t i = 0; i < n_a; i++)
            work[i] = b[i] - a[i];
        return hl_jackknife_error(*difference, work, n_a, HL_SCALE_PLAIN);
    }
    return hl_error_add(hl_jackknife_error(a[n_a], a, n_a, HL_SCALE_PLAIN),
                        hl_jackknife_error(b[n_b], b, n_b, HL_SCALE_PLAIN));
}

static hl_interval difference_interval(double shown, hl_error error, const left_out_pair *left)
{
    return hl_interval_of(shown, error, HL_SCALE_PLAIN, fewer(left)->n_groups, fewer(left)->units);
}

/* ------------------------------------------------------------- table: ranks */

static const char rank_columns[] = "quantity:t spearman:3 low:3 high:3 top_10:2";

/* Repeats the values of all units, numbers (size, n + 1), as if no unit mattered: out (size,
 * n_other + 1). */
static hl_status constant_columns(double **out, const double *numbers, int64_t size, int64_t n,
                                  int64_t n_other)
{
    HL_NEED(HL_ALLOC(out, (size_t)(size * (n_other + 1))));
    for (int64_t i = 0; i < size * (n_other + 1); i++)
        (*out)[i] = numbers[i / (n_other + 1) * (n + 1) + n];
    return HL_OK;
}

static hl_status rank_interval(hl_interval *out, const left_out_pair *left, int64_t size)
{
    int64_t          n_a = left->rows_a.n_groups, n_b = left->rows_b.n_groups;
    hl_rank_noise    noise = { 0 };
    HL_FREED double *all_a = NULL, *all_b = NULL;

    if (left->paired) {
        HL_NEED(hl_rank_noise_add(&noise, left->a, left->b, size, n_a));
    } else {
        HL_NEED(constant_columns(&all_a, left->a, size, n_a, n_b));
        HL_NEED(constant_columns(&all_b, left->b, size, n_b, n_a));
        HL_NEED(hl_rank_noise_add(&noise, left->a, all_b, size, n_a));
        HL_NEED(hl_rank_noise_add(&noise, all_a, left->b, size, n_b));
    }
    *out = hl_rank_interval(&noise, fewer(left)->units);
    return HL_OK;
}

/* Computes the share of the most focused tenth of a's heads that is also in b's. */
static hl_status shared_top(double *out, const double *a, const double *b, int64_t size)
{
    HL_FREED double *ranks  = NULL; /* (2, size) */
    int64_t          n_in_a = 0, n_shared = 0, n_real = 0;

    HL_NEED(HL_ALLOC(&ranks, 2 * (size_t)size));
    HL_NEED(hl_ranks(ranks, a, size));
    HL_NEED(hl_ranks(ranks + size, b, size));
    for (int64_t i = 0; i < size; i++)
        n_real += !isnan(a[i]);
    double last = fmax(1.0, 0.1 * (double)n_real);
    for (int64_t i = 0; i < size; i++) {
        n_in_a += ranks[i] <= last;
        n_shared += ranks[i] <= last && ranks[size + i] <= last;
    }
    *out = n_in_a > 0 ? (double)n_shared / (double)n_in_a : NAN;
    return HL_OK;
}

static hl_status put_ranks(hl_sheet *table, const two_profiles *two, const char *name,
                           hl_quantity quantity)
{
    HL_SCOPED(free_left_out) left_out_pair left = { 0 };
    HL_FREED double                       *a = NULL, *b = NULL;
    double                                 rho = NAN, top = NAN;
    hl_interval                            interval;

    HL_NEED(leave_out(&left, two, quantity));
    HL_NEED(hl_grid_means(&a, two->a, quantity));
    HL_NEED(hl_grid_means(&b, two->b, quantity));
    HL_NEED(hl_spearman(&rho, a, b, hl_grid_size(two->a)));
    HL_NEED(shared_top(&top, a, b, hl_grid_size(two->a)));
    HL_NEED(rank_interval(&interval, &left, hl_grid_size(two->a)));
    hl_sheet_put_text(table, "%s", name);
    hl_sheet_put_reals(table, rho, interval.low, interval.high, top);
    return HL_OK;
}

static hl_status fill_ranks(hl_sheet *table, two_profiles *two)
{
    HL_NEED(put_ranks(table, two, "entropy", HL_Q_ENTROPY));
    HL_NEED(put_ranks(table, two, "normalized", HL_Q_NORMALIZED));
    return put_ranks(table, two, "entropy_nosink", HL_Q_ENTROPY_NOSINK);
}

/* ------------------------------------------ tables: metrics and differences */

/* The number of metrics that are compared for each head, in the order of the columns. */
enum { N_METRICS = HL_N_QUANTITIES + HL_PM_CHANCE + 1 + HL_N_PROBES };

static const char *const metric_names[N_METRICS] = {
    HL_EACH_QUANTITY(HL_QUANTITY_NAME) "self_sampled",
    "previous_sampled",
    "band",
    "sink",
    "self_top",
    "peak_sampled",
    "content",
    "edges",
    "k90",
    "support2",
    "output_norm",
    "induction",
    "duplicate",
    "probe_previous",
};

const char *hl_compared_metric_name(int metric)
{
    return metric < N_METRICS ? metric_names[metric] : NULL;
}

double hl_compared_metric(const hl_profile *profile, int64_t layer, int64_t head, int metric)
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

static const char metric_columns[] =
    "metric:t a:3 b:3 difference:3 change_percent:1 mean_change:3 most_change:3 head:t";

static hl_status fill_metrics(hl_sheet *table, two_profiles *two)
{
    for (int metric = 0; metric < N_METRICS; metric++) {
        double sum_a = 0.0, sum_b = 0.0, change = 0.0, most = NAN;
        double n                        = 0.0; /* 0 / 0 is NaN: not measured */
        char   name[HL_HEAD_NAME_BYTES] = "-";

        HL_EACH_HEAD(two->a, layer, head)
        {
            double a          = hl_compared_metric(two->a, layer, head, metric);
            double b          = hl_compared_metric(two->b, layer, head, metric);
            double difference = b - a;

            if (isnan(difference))
                continue;
            n++;
            sum_a += a;
            sum_b += b;
            change += fabs(difference);
            if (isnan(most) || fabs(difference) > fabs(most)) {
                most = difference;
                hl_profile_head_name(name, two->a, layer, head);
            }
        }
        hl_sheet_put_text(table, "%s", metric_names[metric]);
        hl_sheet_put_reals(table, sum_a / n, sum_b / n, (sum_b - sum_a) / n,
                           hl_change_percent(sum_a, sum_b), change / n, most);
        hl_sheet_put_text(table, "%s", name);
    }
    return HL_OK;
}

static const char difference_columns[] =
    "layer:i head:i entropy:3 normalized:3 renyi2:3 varentropy:3 peak:3 self:3 previous:3 first:3 "
    "entropy_nosink:3 self_sampled:3 previous_sampled:3 band:3 sink:3 self_top:3 peak_sampled:3 "
    "content:3 "
    "edges:3 k90:3 support2:3 output_norm:3 induction:3 duplicate:3 probe_previous:3";

static hl_status fill_differences(hl_sheet *table, two_profiles *two)
{
    HL_EACH_HEAD(two->a, layer, head)
    {
        hl_sheet_put_ints(table, layer, head);
        for (int metric = 0; metric < N_METRICS; metric++)
            hl_sheet_put_real(table, hl_compared_metric(two->b, layer, head, metric) -
                                         hl_compared_metric(two->a, layer, head, metric));
    }
    return HL_OK;
}

/* ------------------------------------------------- tables: heads and layers */

static const char head_columns[] =
    "layer:i head:i normalized_a:3 normalized_b:3 difference:3 low:3 high:3 p:4 "
    "q:4 significant:b variation:3 divergence:3";

static hl_status fill_heads(hl_sheet *table, two_profiles *two)
{
    int64_t               size      = hl_grid_size(two->a);
    HL_FREED hl_interval *intervals = NULL;
    HL_FREED double      *p         = NULL; /* (2, size) p-values, then false discovery rates */
    HL_FREED double      *work      = NULL;

    HL_NEED(HL_ALLOC(&intervals, (size_t)size));
    HL_NEED(HL_ALLOC(&p, 2 * (size_t)size));
    const left_out_pair *left = &two->normalized;
    int64_t              n_a = left->rows_a.n_groups + 1, n_b = left->rows_b.n_groups + 1;
    HL_NEED(HL_ALLOC(&work, (size_t)n_a));
    for (int64_t i = 0; i < size; i++) {
        double difference = NAN;
        double shown =
            hl_profile_mean(two->b, i / two->n_heads, i % two->n_heads, HL_Q_NORMALIZED) -
            hl_profile_mean(two->a, i / two->n_heads, i % two->n_heads, HL_Q_NORMALIZED);
        hl_error error =
            difference_error(&difference, work, left->a + i * n_a, left->b + i * n_b, left);
        intervals[i] = difference_interval(shown, error, left);
        p[i]         = hl_error_p_value(shown, error);
    }
    hl_sheet_fact_interval(table, &intervals[0]);
    HL_NEED(hl_false_discovery(p + size, p, size));
    HL_EACH_HEAD(two->a, layer, head)
    {
        int64_t        place  = layer * two->n_heads + head;
        double         a      = hl_profile_mean(two->a, layer, head, HL_Q_NORMALIZED);
        double         b      = hl_profile_mean(two->b, layer, head, HL_Q_NORMALIZED);
        double         q      = p[size + place];
        const int64_t *rows_a = hl_profile_histogram(two->a, layer, head, HL_HIST_NORMALIZED);
        const int64_t *rows_b = hl_profile_histogram(two->b, layer, head, HL_HIST_NORMALIZED);

        hl_sheet_put_ints(table, layer, head);
        hl_sheet_put_reals(table, a, b, b - a, intervals[place].low, intervals[place].high,
                           p[place], q);
        hl_sheet_put_bool(table, q < SIGNIFICANT);
        hl_sheet_put_reals(table, hl_histogram_variation(rows_a, rows_b),
                           hl_histogram_divergence(rows_a, rows_b));
        two->n_significant += q < SIGNIFICANT;
    }
    return HL_OK;
}

static const char layer_columns[] =
    "layer:i normalized_a:3 normalized_b:3 difference:3 low:3 high:3";

/* Computes the mean over a layer's heads with each unit left out: out (n). */
static void layer_column(double *out, const double *heads, int64_t n_heads, int64_t n)
{
    for (int64_t at = 0; at < n; at++) {
        double sum = 0.0, count = 0.0;
        for (int64_t head = 0; head < n_heads; head++) {
            double value = heads[head * n + at];
            sum += isnan(value) ? 0.0 : value;
            count += !isnan(value);
        }
        out[at] = sum / count;
    }
}

/* `work` has room for 2 n_a + n_b values. */
static hl_interval layer_interval(double shown, double *work, const two_profiles *two,
                                  int64_t layer)
{
    const left_out_pair *left = &two->normalized;
    int64_t              n_a = left->rows_a.n_groups + 1, n_b = left->rows_b.n_groups + 1;
    int64_t              first      = layer * two->n_heads;
    double               difference = NAN;

    layer_column(work, left->a + first * n_a, two->n_heads, n_a);
    layer_column(work + n_a, left->b + first * n_b, two->n_heads, n_b);
    return difference_interval(
        shown, difference_error(&difference, work + n_a + n_b, work, work + n_a, left), left);
}

static hl_status fill_layers(hl_sheet *table, two_profiles *two)
{
    HL_FREED double *a = NULL, *b = NULL, *work = NULL;

    HL_NEED(hl_grid_means(&a, two->a, HL_Q_NORMALIZED));
    HL_NEED(hl_grid_means(&b, two->b, HL_Q_NORMALIZED));
    HL_NEED(HL_ALLOC(&work, 2 * (size_t)two->normalized.rows_a.n_groups +
                                (size_t)two->normalized.rows_b.n_groups + 3));
    for (int64_t layer = 0; layer < two->n_layers; layer++) {
        double      mean_a   = hl_mean(a + layer * two->n_heads, two->n_heads);
        double      mean_b   = hl_mean(b + layer * two->n_heads, two->n_heads);
        hl_interval interval = layer_interval(mean_b - mean_a, work, two, layer);

        hl_sheet_put_int(table, layer);
        hl_sheet_put_reals(table, mean_a, mean_b, mean_b - mean_a, interval.low, interval.high);
    }
    return HL_OK;
}

/* ---------------------------------------------------------- table: matching */

/* Returns the distance of two heads' profiles, from 0 to 1: the mean of the total variations
 * between their histograms (normalized entropy, the same without the first key, peak) and of the
 * differences of self, previous, band, sink and content mass. It is 1 if there is nothing to
 * compare. */
static double profile_distance(const hl_profile *a, int64_t head_a, const hl_profile *b,
                               int64_t head_b, int64_t layer)
{
    static const hl_pattern_metric metrics[] = { HL_PM_SELF, HL_PM_PREVIOUS, HL_PM_BAND, HL_PM_SINK,
                                                 HL_PM_CONTENT };
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

static const char matching_columns[] =
    "layer:i head_a:i head_b:i distance:4 distance_by_index:4 moved:b";

/* Sums of the distances between heads and their partners, and the number of heads whose partner
 * has another index. */
typedef struct matched {
    int64_t n_moved;
    double  count;
    double  distance;
    double  by_index;
} matched;

static void add_match(matched *total, int64_t head, int64_t partner, double distance,
                      double by_index)
{
    total->n_moved += partner != head;
    total->count++;
    total->distance += distance;
    total->by_index += by_index;
}

static hl_status fill_matching(hl_sheet *table, two_profiles *two)
{
    HL_FREED double  *cost    = NULL; /* (n_heads, n_heads) */
    HL_FREED int64_t *partner = NULL; /* (n_heads) */
    matched           total   = { 0 };

    HL_NEED(HL_ALLOC(&cost, (size_t)(two->n_heads * two->n_heads)));
    HL_NEED(HL_ALLOC(&partner, (size_t)two->n_heads));
    for (int64_t layer = 0; layer < two->n_layers; layer++) {
        int64_t n = hl_profile_heads_of(two->a, layer);

        for (int64_t i = 0; i < n * n; i++)
            cost[i] = profile_distance(two->a, i / n, two->b, i % n, layer);
        HL_NEED(hl_assign(partner, cost, n, n));
        for (int64_t head = 0; head < n; head++) {
            double distance = cost[head * n + partner[head]];
            double by_index = cost[head * n + head];

            hl_sheet_put_ints(table, layer, head, partner[head]);
            hl_sheet_put_reals(table, distance, by_index);
            hl_sheet_put_bool(table, partner[head] != head);
            add_match(&total, head, partner[head], distance, by_index);
        }
    }
    hl_sheet_fact_real(table, "moved", (double)total.n_moved);
    hl_sheet_fact_real(table, "mean distance", total.distance / total.count);
    hl_sheet_fact_real(table, "mean distance by index", total.by_index / total.count);
    return HL_OK;
}

/* ------------------------------------------------ table: rows of two models */

static const char row_columns[] = "layer:i head:i variation:4 low:4 high:4 divergence:4 partner:i "
                                  "variation_matched:4";

static hl_status fill_rows(hl_sheet *table, const hl_row_distances *rows)
{
    hl_unit_rows      units   = { .values    = rows->of_sequences,
                                  .n_rows    = rows->n_sequences,
                                  .n_columns = rows->n_layers * rows->n_heads,
                                  .n_groups  = rows->n_sequences };
    HL_FREED double  *left    = NULL; /* (n_layers * n_heads, n_sequences + 1) mean variation of
                                       * each head */
    HL_FREED double  *cost    = NULL; /* (n_heads, n_heads) */
    HL_FREED int64_t *partner = NULL; /* (n_heads) */
    matched           total   = { 0 };

    HL_NEED(hl_left_out(&left, &units));
    HL_NEED(HL_ALLOC(&cost, (size_t)(rows->n_heads * rows->n_heads)));
    HL_NEED(HL_ALLOC(&partner, (size_t)rows->n_heads));
    for (int64_t layer = 0; layer < rows->n_layers; layer++) {
        int64_t n = rows->heads[layer];

        for (int64_t i = 0; i < n * n; i++) {
            double value = rows->variation[(layer * rows->n_heads + i / n) * rows->n_heads + i % n];
            cost[i]      = isnan(value) ? 1.0 : value; /* broken rows have the greatest distance */
        }
        HL_NEED(hl_assign(partner, cost, n, n));
        for (int64_t head = 0; head < n; head++) {
            int64_t       cell   = layer * rows->n_heads + head;
            const double *to     = rows->variation + cell * rows->n_heads;
            const double *column = left + cell * (units.n_groups + 1);
            hl_interval   interval =
                hl_interval_about(hl_left_out_interval(column, &units, HL_SCALE_POSITIVE),
                                  column[units.n_groups], to[head]);

            hl_sheet_put_ints(table, layer, head);
            hl_sheet_put_reals(table, to[head], interval.low, interval.high,
                               rows->divergence[cell]);
            hl_sheet_put_int(table, partner[head]);
            hl_sheet_put_real(table, to[partner[head]]);
            add_match(&total, head, partner[head], to[partner[head]], to[head]);
        }
    }
    hl_sheet_fact_real(table, "rows", (double)rows->n_rows);
    hl_sheet_fact_real(table, "sequences", (double)rows->n_sequences);
    hl_sheet_fact_real(table, "moved", (double)total.n_moved);
    hl_sheet_fact_real(table, "mean variation", total.by_index / total.count);
    hl_sheet_fact_real(table, "mean variation matched", total.distance / total.count);
    return HL_OK;
}

/* ---------------------------------------------- tables: see compare_heads.c */

static hl_status fill_diagonal(hl_sheet *table, two_profiles *two)
{
    return hl_fill_diagonal(table, two->a, two->b);
}

static hl_status fill_layer_metrics(hl_sheet *table, two_profiles *two)
{
    return hl_fill_layer_metrics(table, two->a, two->b);
}

static hl_status fill_peaks(hl_sheet *table, two_profiles *two)
{
    return hl_fill_peaks(table, two->a, two->b);
}

static hl_status fill_pairs(hl_sheet *table, two_profiles *two)
{
    return hl_fill_pairs(table, two->a, two->b);
}

/* ----------------------------------------------------------- the comparison */

static const struct {
    const char *name;
    const char *title;
    const char *columns;
    hl_status (*fill)(hl_sheet *table, two_profiles *two); /* NULL: the caller adds it later */
    size_t place;                                          /* offset in hl_comparison */
} tables[] = {
    { "ranks", "Is the order of the heads the same?", rank_columns, fill_ranks,
      offsetof(hl_comparison, ranks) },
    { "metrics", "Every metric: mean over heads, and the head with the largest change",
      metric_columns, fill_metrics, offsetof(hl_comparison, metrics) },
    { "diagonal", "Attention on the token itself and off it", hl_diagonal_columns, fill_diagonal,
      offsetof(hl_comparison, diagonal) },
    { "layer_metrics", "Every metric of every layer: means over heads", hl_layer_metric_columns,
      fill_layer_metrics, offsetof(hl_comparison, layer_metrics) },
    { "peaks", "The heads with the highest mean peaks", hl_peak_columns, fill_peaks,
      offsetof(hl_comparison, peaks) },
    { "pairs", "How alike the heads of a layer are, every pair", hl_pair_columns, fill_pairs,
      offsetof(hl_comparison, pairs) },
    { "layers", "Normalized entropy of every layer, B - A, 95% intervals", layer_columns,
      fill_layers, offsetof(hl_comparison, layers) },
    { "heads", "Normalized entropy of every head, B - A, 95% intervals", head_columns, fill_heads,
      offsetof(hl_comparison, heads) },
    { "differences", "Every metric of every head, B - A", difference_columns, fill_differences,
      offsetof(hl_comparison, differences) },
    { "matching", "Best partner in B for each head of A, by their profiles", matching_columns,
      fill_matching, offsetof(hl_comparison, matching) },
    { "rows", "Sampled rows of every head, A against B, 95% intervals", row_columns, NULL,
      offsetof(hl_comparison, rows) },
};
enum { N_TABLES = sizeof tables / sizeof *tables };

static hl_sheet **table_of(const hl_comparison *comparison, size_t index)
{
    return (hl_sheet **)((char *)(uintptr_t)comparison + tables[index].place);
}

const char *hl_comparison_table_name(size_t index)
{
    return index < N_TABLES ? tables[index].name : NULL;
}

const hl_sheet *hl_comparison_table(const hl_comparison *comparison, const char *name)
{
    for (size_t i = 0; i < N_TABLES; i++) {
        if (strcmp(name, tables[i].name) == 0)
            return *table_of(comparison, i);
    }
    return NULL;
}

void hl_comparison_free(hl_comparison *comparison)
{
    for (size_t i = 0; comparison != NULL && i < N_TABLES; i++)
        hl_sheet_free(*table_of(comparison, i));
    hl_free(comparison);
}

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

static void free_two(two_profiles *two)
{
    hl_free(two->shared_a);
    hl_free(two->shared_b);
    free_left_out(&two->normalized);
}

static hl_status check_shapes(const hl_profile *a, const hl_profile *b)
{
    if (hl_profile_n_layers(a) != hl_profile_n_layers(b) ||
        hl_profile_n_heads(a) != hl_profile_n_heads(b))
        return hl_fail(HL_BAD_INPUT,
                       "the profiles differ in shape: the first has %lld layers of %lld heads, the "
                       "second %lld of %lld",
                       (long long)hl_profile_n_layers(a), (long long)hl_profile_n_heads(a),
                       (long long)hl_profile_n_layers(b), (long long)hl_profile_n_heads(b));
    for (int64_t layer = 0; layer < hl_profile_n_layers(a); layer++) {
        if (hl_profile_heads_of(a, layer) != hl_profile_heads_of(b, layer))
            return hl_fail(HL_BAD_INPUT,
                           "the profiles differ in shape: layer %lld has %lld heads in the first "
                           "and %lld in the second",
                           (long long)layer, (long long)hl_profile_heads_of(a, layer),
                           (long long)hl_profile_heads_of(b, layer));
    }
    return HL_OK;
}

hl_status hl_compare(hl_comparison **out, const hl_profile *a, const hl_profile *b,
                     const hl_analysis_options *options)
{
    HL_CLOSED(hl_comparison_free) hl_comparison *result = NULL;
    HL_SCOPED(free_two)
    two_profiles two = {
        .a = a, .b = b, .n_layers = hl_profile_n_layers(a), .n_heads = hl_profile_n_heads(a)
    };

    (void)options;
    *out = NULL;
    HL_NEED(check_shapes(a, b));
    HL_NEED(find_shared(&two));
    HL_NEED(HL_ALLOC_ZEROED(&result, 1));
    result->n_shared   = two.n_shared;
    result->same_model = hl_same_setting(a, b, "model");
    result->kind       = two.n_shared > 0     ? HL_COMPARE_SAME_TOKENS
                         : result->same_model ? HL_COMPARE_TWO_TEXTS
                                              : HL_COMPARE_APART;
    HL_EACH_HEAD(a, layer, head)
    result->n_heads++;
    HL_NEED(leave_out(&two.normalized, &two, HL_Q_NORMALIZED));
    for (size_t i = 0; i < N_TABLES && tables[i].fill != NULL; i++) {
        hl_sheet **table = table_of(result, i);

        HL_NEED(hl_sheet_new(table, tables[i].name, tables[i].title, tables[i].columns));
        hl_sheet_name_layers(*table, hl_profile_setting(a, "layers"));
        HL_NEED(tables[i].fill(*table, &two));
        HL_NEED(hl_sheet_finish(*table));
    }
    result->n_significant = two.n_significant;
    *out                  = hl_taken(&result);
    return HL_OK;
}

hl_status hl_comparison_add_rows(hl_comparison *comparison, const hl_row_distances *rows,
                                 const hl_analysis_options *options)
{
    HL_CLOSED(hl_sheet_free) hl_sheet *table = NULL;

    HL_NEED(hl_sheet_new(&table, "rows", tables[N_TABLES - 1].title, row_columns));
    (void)options;
    HL_NEED(fill_rows(table, rows));
    HL_NEED(hl_sheet_finish(table));
    hl_sheet_free(comparison->rows);
    comparison->rows = hl_taken(&table);
    return HL_OK;
}

/* ------------------------------------------------------------------ as JSON */

static hl_status add_table(json_t *list, const hl_sheet *table, const char *name)
{
    HL_FREED char *text  = NULL;
    json_t        *value = NULL;

    if (table == NULL)
        return HL_OK;
    HL_NEED(hl_sheet_render(&text, table, HL_SHEET_JSON));
    HL_NEED(hl_json_parse(&value, text, strlen(text), name));
    if (json_object_set_new(list, name, value) != 0)
        return hl_fail(HL_NO_MEMORY, "out of memory for the table '%s'", name);
    return HL_OK;
}

hl_status hl_comparison_render(char **out, const hl_comparison *comparison, const char *name_a,
                               const char *name_b)
{
    static const char *const kind_names[] = { "same tokens", "two texts", "apart" };

    hl_status status = HL_OK;
    json_t   *root   = NULL;
    json_t   *list   = json_object();

    *out = NULL;
    for (size_t i = 0; i < N_TABLES; i++)
        HL_TRY(add_table(list, *table_of(comparison, i), tables[i].name));
    /* Names are paths, which may hold any bytes. */
    root = json_pack("{s:o, s:o, s:s, s:b, s:I, s:I, s:I, s:O}", "a",
                     hl_json_text(name_a, strlen(name_a)), "b",
                     hl_json_text(name_b, strlen(name_b)), "kind", kind_names[comparison->kind],
                     "same_model", comparison->same_model, "shared_sequences",
                     (json_int_t)comparison->n_shared, "heads", (json_int_t)comparison->n_heads,
                     "significant", (json_int_t)comparison->n_significant, "tables", list);
    *out = hl_json_dump(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    if (*out == NULL)
        status = hl_fail(HL_NO_MEMORY, "out of memory for the comparison");

done:
    json_decref(root);
    json_decref(list);
    return status;
}
