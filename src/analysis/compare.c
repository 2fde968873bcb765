/* compare.c - which sequences two profiles share, and draws of them. */
#include "analysis/compare.h"

#include <math.h>
#include <string.h>

#include "analysis/bootstrap.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

enum { N_BINS = 64 };

/* ----------------------------------------------------------------- distances */

static void widen(double out[N_BINS], const int64_t *counts)
{
    for (int i = 0; i < N_BINS; i++)
        out[i] = (double)counts[i];
}

double hl_histogram_variation(const int64_t *p, const int64_t *q)
{
    double left[N_BINS], right[N_BINS];

    widen(left, p);
    widen(right, q);
    return hl_total_variation(left, right, N_BINS);
}

double hl_histogram_divergence(const int64_t *p, const int64_t *q)
{
    double left[N_BINS], right[N_BINS];

    widen(left, p);
    widen(right, q);
    return hl_jensen_shannon(left, right, N_BINS);
}

double hl_profile_distance(const hl_profile *a, int64_t head_a, const hl_profile *b, int64_t head_b,
                           int64_t layer)
{
    static const hl_pattern_metric metrics[] = { HL_PM_DIAGONAL, HL_PM_PREVIOUS, HL_PM_BAND,
                                                 HL_PM_SINK, HL_PM_CONTENT };
    enum { N_METRICS = sizeof metrics / sizeof *metrics };
    double parts[HL_N_HISTOGRAMS + N_METRICS];

    for (int i = 0; i < HL_N_HISTOGRAMS; i++)
        parts[i] = hl_histogram_variation(hl_profile_histogram(a, layer, head_a, (hl_histogram)i),
                                          hl_profile_histogram(b, layer, head_b, (hl_histogram)i));
    for (int i = 0; i < N_METRICS; i++)
        parts[HL_N_HISTOGRAMS + i] =
            fabs(hl_profile_pattern(a, layer, head_a, metrics[i], false).mean -
                 hl_profile_pattern(b, layer, head_b, metrics[i], false).mean);
    double mean = hl_mean(parts, HL_N_HISTOGRAMS + N_METRICS);
    return isnan(mean) ? 1.0 : mean;
}

/* --------------------------------------------------------------------- draws */

void hl_drawn_pair_free(hl_drawn_pair *drawn)
{
    hl_free(drawn->a);
    hl_free(drawn->b);
    *drawn = (hl_drawn_pair){ 0 };
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

hl_status hl_draw_pair(hl_drawn_pair *out, const hl_two_profiles *two, hl_quantity quantity)
{
    hl_status status = HL_OK;
    bool      paired = two->n_shared > 0;
    int64_t   n_a    = paired ? two->n_shared : hl_profile_n_sequences(two->a);
    int64_t   n_b    = paired ? two->n_shared : hl_profile_n_sequences(two->b);

    *out = (hl_drawn_pair){ 0 };
    if (n_a < 2 || n_b < 2)
        return HL_OK;
    out->n_draws = HL_RESAMPLES;
    HL_TRY(draw_one(&out->a, two->a, quantity, paired ? two->shared_a : NULL, n_a, two->seed));
    /* Equal seeds draw equal sequences; strangers are drawn apart. */
    HL_TRY(draw_one(&out->b, two->b, quantity, paired ? two->shared_b : NULL, n_b,
                    paired ? two->seed : two->seed + 1));

done:
    if (status != HL_OK)
        hl_drawn_pair_free(out);
    return status;
}

/* -------------------------------------------------------------- the whole */

static hl_status find_shared(hl_two_profiles *two)
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

static hl_status fill_tables(hl_comparison *result, const hl_two_profiles *two)
{
    hl_status     status = HL_OK;
    hl_drawn_pair fair   = { 0 };

    HL_TRY(hl_draw_pair(&fair, two, HL_Q_FAIR));
    HL_TRY(hl_compare_ranks(&result->ranks, two));
    HL_TRY(hl_compare_metrics(&result->metrics, two));
    HL_TRY(hl_compare_layers(&result->layers, two, &fair));
    HL_TRY(hl_compare_heads(&result->heads, &result->n_significant, two, &fair));
    HL_TRY(hl_compare_differences(&result->differences, two));
    HL_TRY(hl_compare_matching(&result->matching, two));

done:
    hl_drawn_pair_free(&fair);
    return status;
}

hl_status hl_compare(hl_comparison **out, const hl_profile *a, const hl_profile *b,
                     const hl_analysis_options *options)
{
    hl_status       status = HL_OK;
    hl_comparison  *result = NULL;
    hl_two_profiles two    = { .a        = a,
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
