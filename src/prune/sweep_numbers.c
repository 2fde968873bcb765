/* sweep_numbers.c - what the settings cost, and how sure that is.
 *
 * Units are documents, or windows where there are fewer than HL_MIN_TEXTS documents.  A draw
 * takes as many units as there are, with replacement; all settings see the same draws, so that
 * the difference of two settings is drawn in pairs.  A mean is a ratio of sums, as in
 * perplexity.c: NLL over tokens.
 *
 * Against random: each draw of units also draws seeds, as many as there are, and compares with
 * their mean; so the interval holds for other texts and for other seeds.  A correlation over
 * heads: each draw of units gives each head's rise, and then heads are drawn too. */
#include <math.h>
#include <string.h>

#include "analysis/numbers.h"
#include "analysis/random.h"
#include "base/memory.h"
#include "base/status.h"
#include "prune/sweep.h"

/* ------------------------------------------------------------------------- draws */

static const hl_scores *scores_of(const hl_sweep *s, int64_t setting)
{
    return setting == s->n_settings ? s->test->dense
                                    : s->test->scores + setting * s->test->n_windows;
}

static int64_t unit_of(const hl_sweep *s, int64_t window)
{
    return s->test->n_documents >= HL_MIN_TEXTS ? s->test->documents[window] : window;
}

/* values (n_units, n_settings + 2): sums of NLL, the dense model's, and tokens. */
static void add_units(double *values, const hl_sweep *s)
{
    int64_t n_columns = s->n_settings + 2;

    for (int64_t i = 0; i < s->test->n_windows; i++) {
        double *row = values + unit_of(s, i) * n_columns;
        for (int64_t setting = 0; setting <= s->n_settings; setting++)
            row[setting] += scores_of(s, setting)[i].nll;
        row[n_columns - 1] += (double)s->test->scored[i];
    }
}

static hl_status make_draws(hl_sweep *s)
{
    hl_status status    = HL_OK;
    int64_t   n_columns = s->n_settings + 2;
    int64_t   n_units   = unit_of(s, s->test->n_windows - 1) + 1;
    double   *values    = NULL;

    HL_TRY(hl_alloc_zeroed((void **)&values, (size_t)n_units, (size_t)n_columns * sizeof *values));
    HL_TRY(hl_alloc((void **)&s->draws, (size_t)n_columns, HL_RESAMPLES * sizeof *s->draws));
    add_units(values, s);
    HL_TRY(hl_bootstrap_means(s->draws, values, n_units, n_columns, HL_RESAMPLES, s->options.seed));
    const double *tokens = s->draws + (n_columns - 1) * HL_RESAMPLES;
    for (int64_t i = 0; i <= s->n_settings; i++) {
        for (int64_t r = 0; r < HL_RESAMPLES; r++)
            s->draws[i * HL_RESAMPLES + r] /= tokens[r];
    }

done:
    hl_free(values);
    return status;
}

/* ----------------------------------------------------------------------- numbers */

static double mean_nll(const hl_sweep *s, int64_t setting)
{
    int64_t which = setting == s->n_settings ? -1 : setting;
    return hl_evaluation_total(s->test, which).nll / (double)s->test->n_scored;
}

/* The interval of draws; sorts them. */
static hl_sweep_value with_interval(double value, double *draws)
{
    hl_interval interval = hl_bootstrap_interval(draws, HL_RESAMPLES, 0.95);
    return (hl_sweep_value){ value, interval.low, interval.high };
}

hl_status hl_sweep_difference(hl_sweep_value *out, const hl_sweep *s, int64_t a, int64_t b)
{
    double   *draws  = NULL;
    hl_status status = HL_ALLOC(&draws, HL_RESAMPLES);

    if (status != HL_OK)
        return status;
    for (int64_t r = 0; r < HL_RESAMPLES; r++)
        draws[r] = s->draws[a * HL_RESAMPLES + r] - s->draws[b * HL_RESAMPLES + r];
    *out = with_interval(mean_nll(s, a) - mean_nll(s, b), draws);
    hl_free(draws);
    return HL_OK;
}

static int64_t random_setting(const hl_sweep *s, int64_t seed, int64_t ratio)
{
    return s->orders[s->n_fixed + seed].first + ratio;
}

/* Above the mean of the seeds; draws has room for HL_RESAMPLES. */
static hl_sweep_value against_random(const hl_sweep *s, int64_t setting, int64_t ratio,
                                     double *draws)
{
    int64_t   n_seeds = s->options.n_seeds;
    hl_random random  = { s->options.seed + 1 };
    double    mean    = 0.0;

    for (int64_t i = 0; i < n_seeds; i++)
        mean += mean_nll(s, random_setting(s, i, ratio)) / (double)n_seeds;
    for (int64_t r = 0; r < HL_RESAMPLES; r++) {
        double drawn = 0.0;
        for (int64_t i = 0; i < n_seeds; i++) {
            int64_t seed = hl_random_below(&random, n_seeds);
            drawn += s->draws[random_setting(s, seed, ratio) * HL_RESAMPLES + r];
        }
        draws[r] = s->draws[setting * HL_RESAMPLES + r] - drawn / (double)n_seeds;
    }
    return with_interval(mean_nll(s, setting) - mean, draws);
}

static hl_status count_point(hl_sweep_point *out, const hl_sweep *s, int64_t setting, int64_t ratio)
{
    hl_status status = HL_OK;
    double   *draws  = NULL;
    hl_scores total  = hl_evaluation_total(s->test, setting);

    HL_TRY(HL_ALLOC(&draws, HL_RESAMPLES));
    memcpy(draws, s->draws + setting * HL_RESAMPLES, HL_RESAMPLES * sizeof *draws);
    *out     = (hl_sweep_point){ .kl   = total.kl / (double)s->test->n_scored,
                                 .same = (double)total.n_same / (double)s->test->n_scored,
                                 .word = hl_sweep_word_share(s, setting) };
    out->nll = with_interval(mean_nll(s, setting), draws);
    HL_TRY(hl_sweep_difference(&out->rise, s, setting, s->n_settings));
    out->vs_random = against_random(s, setting, ratio, draws);
    for (int64_t i = 0; i < s->options.n_seeds; i++)
        out->n_beaten += mean_nll(s, random_setting(s, i, ratio)) > out->nll.value;

done:
    hl_free(draws);
    return status;
}

static hl_status count_band(hl_sweep_band *out, const hl_sweep *s, int64_t ratio)
{
    int64_t   n      = s->options.n_seeds;
    double   *values = NULL;
    hl_status status = HL_ALLOC(&values, (size_t)n);

    if (status != HL_OK)
        return status;
    for (int64_t i = 0; i < n; i++)
        values[i] = mean_nll(s, random_setting(s, i, ratio));
    hl_sort(values, n);
    *out = (hl_sweep_band){ .least          = values[0],
                            .quarter        = hl_sorted_quantile(values, n, 0.25),
                            .median         = hl_sorted_quantile(values, n, 0.5),
                            .three_quarters = hl_sorted_quantile(values, n, 0.75),
                            .most           = values[n - 1],
                            .mean           = hl_mean(values, n) };
    for (int64_t i = 0; i < n; i++)
        out->word += hl_sweep_word_share(s, random_setting(s, i, ratio)) / (double)n;
    hl_free(values);
    return HL_OK;
}

/* ------------------------------------------------------------------ correlations */

/* The ranker's score of every head that was pruned alone: out (n_singles). */
static void ranked_scores(double *out, const hl_sweep *s, const hl_ranking *ranking)
{
    for (int64_t i = 0; i < s->n_singles; i++) {
        out[i] = NAN;
        for (int64_t j = 0; j < ranking->n_heads; j++) {
            if (ranking->heads[j].layer == s->heads[i].layer &&
                ranking->heads[j].head == s->heads[i].head)
                out[i] = ranking->heads[j].score;
        }
    }
}

/* One draw: units r, and heads by `random`; x, y have room for n_singles. */
static hl_status draw_correlation(double *out, const hl_sweep *s, const double *scores, int64_t r,
                                  hl_random *random, double *x, double *y)
{
    for (int64_t i = 0; i < s->n_singles; i++) {
        int64_t head = hl_random_below(random, s->n_singles);
        x[i]         = scores[head];
        y[i]         = s->draws[(s->first_single + head) * HL_RESAMPLES + r] -
               s->draws[s->n_settings * HL_RESAMPLES + r];
    }
    return hl_spearman(out, x, y, s->n_singles);
}

static hl_status correlate(hl_sweep_value *out, const hl_sweep *s, const hl_ranking *ranking)
{
    hl_status status = HL_OK;
    size_t    n      = (size_t)s->n_singles;
    double   *work   = NULL; /* scores, x, y, draws */
    hl_random random = { s->options.seed + 2 };
    double    rho    = NAN;

    HL_TRY(HL_ALLOC(&work, 3 * n + HL_RESAMPLES));
    double *draws = work + 3 * n;
    ranked_scores(work, s, ranking);
    for (int64_t r = 0; r < HL_RESAMPLES; r++)
        HL_TRY(draw_correlation(&draws[r], s, work, r, &random, work + n, work + 2 * n));
    HL_TRY(hl_spearman(&rho, work, s->rises, s->n_singles));
    *out = with_interval(rho, draws);

done:
    hl_free(work);
    return status;
}

/* --------------------------------------------------------------------- the whole */

static hl_status allocate(hl_sweep *s)
{
    HL_NEED(hl_alloc_zeroed((void **)&s->points, (size_t)s->n_fixed,
                            (size_t)s->options.n_ratios * sizeof *s->points));
    HL_NEED(HL_ALLOC_ZEROED(&s->bands, (size_t)s->options.n_ratios));
    HL_NEED(HL_ALLOC_ZEROED(&s->rises, (size_t)s->n_singles));
    return HL_ALLOC_ZEROED(&s->correlations, (size_t)s->options.n_rankers);
}

hl_status hl_sweep_count(hl_sweep *s)
{
    int64_t n_ratios = s->options.n_ratios;

    HL_NEED(allocate(s));
    HL_NEED(make_draws(s));
    for (int64_t i = 0; i < s->n_fixed * n_ratios; i++) {
        int64_t setting = s->orders[i / n_ratios].first + i % n_ratios;
        HL_NEED(count_point(&s->points[i], s, setting, i % n_ratios));
    }
    for (int64_t i = 0; i < n_ratios; i++)
        HL_NEED(count_band(&s->bands[i], s, i));
    for (int64_t i = 0; i < s->n_singles; i++)
        s->rises[i] = mean_nll(s, s->first_single + i) - mean_nll(s, s->n_settings);
    for (int64_t i = 0; i < s->options.n_rankers; i++)
        HL_NEED(correlate(&s->correlations[i], s, s->orders[i].ranking));
    return HL_OK;
}
