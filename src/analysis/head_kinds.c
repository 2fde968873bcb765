/* head_kinds.c - what heads do: by rules in the order in which they are tried, and by likeness. */
#include "analysis/head_kinds.h"

#include <math.h>
#include <string.h>

#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

enum { N_GROUPS = 3, N_TRIALS = 20, LEAST_HEADS = 6 };

/* ------------------------------------------------------------------ by rule */

static const struct rule {
    hl_head_kind   kind;
    hl_number_from from;
    int            which;
    double         threshold; /* lower limit of the number */
    const char    *text;
} rules[] = {
    { HL_HEAD_INDUCTION, HL_FROM_PROBE, HL_PROBE_INDUCTION, 0.4,
      "induction score on a repeated random sequence" },
    { HL_HEAD_PREVIOUS, HL_FROM_ROWS, HL_Q_PREVIOUS, 0.4, "mean attention to the previous token" },
    { HL_HEAD_SELF, HL_FROM_ROWS, HL_Q_SELF, 0.4, "mean attention to the token itself" },
    { HL_HEAD_SINK, HL_FROM_ROWS, HL_Q_FIRST, 0.3, "mean attention to the first token" },
    { HL_HEAD_LOCAL, HL_FROM_PATTERN_NOSINK, HL_PM_BAND, 0.5,
      "attention to the last five keys, first token excluded" },
    /* The share of attention that neither nearness nor the first key explains. */
    { HL_HEAD_SPECIALIST, HL_FROM_PATTERN_NOSINK, HL_PM_CONTENT, 0.5,
      "content mass of a focused head (median under 0.5)" },
    { HL_HEAD_GLOBAL, HL_FROM_ROWS, HL_Q_NORMALIZED, 0.7, "normalized entropy" },
};

/* Could other sampled rows bring the number to the other side of the threshold? Numbers over all
 * rows do not depend on the sample. */
static bool is_near(const hl_profile *profile, int64_t layer, int64_t head, const struct rule *rule)
{
    if (rule->from != HL_FROM_PATTERN_NOSINK)
        return false;
    hl_moments rows =
        hl_profile_pattern(profile, layer, head, (hl_pattern_metric)rule->which, true);
    if (rows.count < 2)
        return rows.count == 1;
    double n     = (double)rows.count;
    double error = sqrt(rows.variance / (n - 1.0));
    return fabs(rows.mean - rule->threshold) < hl_student_quantile(HL_LEVEL, n - 1.0) * error;
}

hl_head_type hl_head_type_of(const hl_profile *profile, int64_t layer, int64_t head)
{
    bool is_uncertain = false;

    if (hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).count == 0)
        return (hl_head_type){ HL_HEAD_UNKNOWN, NAN, NAN, hl_head_kind_rule(HL_HEAD_UNKNOWN),
                               false };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        double value = hl_head_number(profile, layer, head, rules[i].from, rules[i].which);

        /* A specialist looks at few keys. */
        if (rules[i].kind == HL_HEAD_SPECIALIST &&
            !(hl_profile_quantile(profile, layer, head, HL_HIST_NORMALIZED_NOSINK, 0.5) < 0.5))
            continue;
        is_uncertain = is_uncertain || is_near(profile, layer, head, &rules[i]);
        if (value >= rules[i].threshold) /* false if the value is NaN: not measured */
            return (hl_head_type){ rules[i].kind, value, rules[i].threshold, rules[i].text,
                                   is_uncertain };
    }
    return (hl_head_type){ HL_HEAD_MIXED, NAN, NAN, hl_head_kind_rule(HL_HEAD_MIXED),
                           is_uncertain };
}

const char *hl_head_kind_rule(hl_head_kind kind)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].kind == kind)
            return rules[i].text;
    }
    return kind == HL_HEAD_MIXED ? "no rule holds" : "no row was counted";
}

const char *hl_head_kind_name(hl_head_kind kind)
{
    static const char *const names[HL_N_HEAD_KINDS] = {
        "induction",  "previous", "self",  "sink",    "local",
        "specialist", "global",   "mixed", "unknown",
    };

    return names[kind];
}

/* ------------------------------------------- by likeness: a head as a point */

typedef struct features {
    const hl_profile *profile;
    const int64_t    *places; /* (n_heads) places in the grid */
    int64_t           n_heads;
    double           *columns;        /* (room, n_heads) values of each feature */
    int64_t           n_columns;      /* number of features so far */
    int64_t           n_of[N_GROUPS]; /* number of features of each group */
} features;

/* Keeps the column that was just filled if heads differ in it. Heads without the measurement get
 * the mean. */
static void keep_column(features *f, int group)
{
    double *column = f->columns + f->n_columns * f->n_heads;
    double  mean   = hl_mean(column, f->n_heads);

    if (!(hl_variance(column, f->n_heads) > 1e-12))
        return;
    for (int64_t i = 0; i < f->n_heads; i++)
        column[i] = isnan(column[i]) ? mean : column[i];
    f->n_columns++;
    f->n_of[group]++;
}

/* Fills the next column with an expression, in which `layer` and `head` are those of each head
 * in turn. */
#define FILL_COLUMN(f, group, expression)                                                          \
    do {                                                                                           \
        for (int64_t i_ = 0; i_ < (f)->n_heads; i_++) {                                            \
            int64_t layer = (f)->places[i_] / hl_profile_n_heads((f)->profile);                    \
            int64_t head  = (f)->places[i_] % hl_profile_n_heads((f)->profile);                    \
            (f)->columns[(f)->n_columns * (f)->n_heads + i_] = (expression);                       \
        }                                                                                          \
        keep_column(f, group);                                                                     \
    } while (0)

static void fill_features(features *f)
{
    const hl_profile *p       = f->profile;
    int64_t           n_types = hl_profile_n_types(p);

    /* The mean entropy in a position bucket, as a share of the largest that any head has there. */
    for (int64_t b = 0; b < hl_profile_n_buckets(p); b++) {
        double largest = NAN;

        HL_EACH_HEAD(p, layer, head) /* fmax ignores NaN */
        largest = fmax(largest, hl_profile_by_position(p, layer, head, b, HL_Q_ENTROPY).mean);
        if (largest > 0.0)
            FILL_COLUMN(f, 0,
                        hl_profile_by_position(p, layer, head, b, HL_Q_ENTROPY).mean / largest);
    }
    for (int64_t t = 0; t < n_types; t++)
        FILL_COLUMN(f, 1, hl_profile_by_type(p, layer, head, t, HL_Q_NORMALIZED).mean);
    for (int64_t t = 0; t < n_types * n_types; t++)
        FILL_COLUMN(f, 1, hl_profile_lookback(p, layer, head, t / n_types, t % n_types));
    for (int metric = 0; metric < HL_PM_CHANCE; metric++) {
        FILL_COLUMN(f, 2,
                    hl_profile_pattern(p, layer, head, (hl_pattern_metric)metric, false).mean);
        FILL_COLUMN(f, 2, hl_profile_pattern(p, layer, head, (hl_pattern_metric)metric, true).mean);
    }
}

/* Makes points (n_heads, n_columns), scaled so that all groups of columns have the same weight. */
static hl_status make_points(double **out, const features *f)
{
    int64_t column = 0;

    HL_NEED(HL_ALLOC(out, (size_t)(f->n_heads * f->n_columns)));
    for (int group = 0; group < N_GROUPS; group++) {
        for (int64_t k = 0; k < f->n_of[group]; k++, column++) {
            for (int64_t i = 0; i < f->n_heads; i++)
                (*out)[i * f->n_columns + column] =
                    f->columns[column * f->n_heads + i] / sqrt((double)f->n_of[group]);
        }
    }
    return HL_OK;
}

/* --------------------------------------------------- by likeness: divisions */

/* Chooses the division with the largest silhouette. `labels` and `work` have room for n values. */
static hl_status choose_division(hl_head_clusters *clusters, const float *distances,
                                 const hl_merge *merges, int32_t *work)
{
    int64_t n    = clusters->n_heads;
    int64_t most = n / 2 < HL_MAX_CLUSTERS ? n / 2 : HL_MAX_CLUSTERS;

    for (int64_t k = 2; k <= most; k++) {
        double width = NAN;

        HL_NEED(hl_cut(work, merges, n, k));
        HL_NEED(hl_silhouette(&width, distances, work, n, k));
        if (isnan(clusters->silhouette) || width > clusters->silhouette) {
            clusters->silhouette = width;
            clusters->n_clusters = k;
            memcpy(clusters->labels, work, sizeof *work * (size_t)n);
        }
    }
    return HL_OK;
}

static void find_medoids(hl_head_clusters *clusters, const float *distances)
{
    int64_t n = clusters->n_heads;

    for (int64_t cluster = 0; cluster < clusters->n_clusters; cluster++) {
        double least = INFINITY;
        for (int64_t i = 0; i < n; i++) {
            double sum = 0.0;
            if (clusters->labels[i] != cluster)
                continue;
            for (int64_t j = 0; j < n; j++)
                sum += clusters->labels[j] == cluster ? distances[i * n + j] : 0.0;
            if (sum < least) {
                least                      = sum;
                clusters->medoids[cluster] = clusters->places[i];
            }
        }
    }
}

static hl_status divide(hl_head_clusters *clusters, const double *points, uint64_t seed)
{
    int64_t            n         = clusters->n_heads;
    HL_FREED float    *distances = NULL;
    HL_FREED hl_merge *merges    = NULL;
    HL_FREED int32_t  *work      = NULL;

    HL_NEED(HL_ALLOC(&distances, (size_t)(n * n)));
    HL_NEED(HL_ALLOC(&merges, (size_t)n));
    HL_NEED(HL_ALLOC(&work, (size_t)n));
    hl_distances(distances, points, n, clusters->n_features);
    if (n >= LEAST_HEADS && clusters->n_features > 0) {
        HL_NEED(hl_ward(merges, distances, n));
        HL_NEED(choose_division(clusters, distances, merges, work));
        HL_NEED(hl_cluster_stability(&clusters->stability, distances, clusters->labels, n,
                                     clusters->n_clusters, N_TRIALS, seed));
    }
    find_medoids(clusters, distances);
    return HL_OK;
}

/* --------------------------------------------------- by likeness: the whole */

void hl_head_clusters_free(hl_head_clusters *clusters)
{
    if (clusters == NULL)
        return;
    hl_free(clusters->places);
    hl_free(clusters->labels);
    hl_free(clusters);
}

static hl_status find_heads(hl_head_clusters *clusters, const hl_profile *profile)
{
    int64_t size    = hl_grid_size(profile);
    int64_t n_heads = hl_profile_n_heads(profile);

    HL_NEED(HL_ALLOC(&clusters->places, (size_t)size));
    HL_NEED(HL_ALLOC_ZEROED(&clusters->labels, (size_t)size));
    for (int64_t i = 0; i < size; i++) {
        if (hl_grid_has(profile, i) &&
            hl_profile_moments(profile, i / n_heads, i % n_heads, HL_Q_ENTROPY).count > 0)
            clusters->places[clusters->n_heads++] = i;
    }
    if (clusters->n_heads > HL_MAX_CLUSTERED)
        return hl_fail(HL_LIMIT, "%lld heads cannot be clustered, at most %d",
                       (long long)clusters->n_heads, HL_MAX_CLUSTERED);
    return HL_OK;
}

hl_status hl_head_clusters_new(hl_head_clusters **out, const hl_profile *profile, uint64_t seed)
{
    HL_CLOSED(hl_head_clusters_free) hl_head_clusters *clusters = NULL;
    HL_FREED double                                   *columns = NULL, *points = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&clusters, 1));
    clusters->silhouette = NAN;
    clusters->stability  = (hl_stability){ NAN, NAN };
    HL_NEED(find_heads(clusters, profile));
    int64_t n_types = hl_profile_n_types(profile);
    int64_t most    = hl_profile_n_buckets(profile) + n_types + n_types * n_types +
                   2 * HL_N_PATTERN_METRICS; /* most columns */
    HL_NEED(HL_ALLOC(&columns, (size_t)(most * clusters->n_heads)));
    features f = { profile, clusters->places, clusters->n_heads, columns, 0, { 0 } };
    fill_features(&f);
    HL_NEED(make_points(&points, &f));
    clusters->n_features = f.n_columns;
    clusters->n_clusters = f.n_heads > 0;
    HL_NEED(divide(clusters, points, seed));
    *out = hl_taken(&clusters);
    return HL_OK;
}
