/* sweep_verdict.c - the results of a sweep: numbers with intervals, tables, sentences.
 *
 * Units are documents, or windows where there are fewer than HL_MIN_UNITS documents.  Every mean
 * is computed again with each unit left out; all settings leave out the same, so that differences
 * of settings are paired.  A mean is a ratio of sums, as in perplexity.c: NLL over tokens.
 *
 * In comparisons with random orders, the error over seeds is added to the error over units, so the
 * interval holds for other texts and for other seeds.  In a correlation over heads, the error from
 * leaving out heads is added.
 *
 * Sentences call an order better or worse only if the 95% interval excludes 0.  The intervals are not
 * corrected for the number of comparisons, which the sentences give. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "prune/ceiling.h"
#include "prune/sweep_stages.h"

/* ------------------------------------------------------------------ without a unit */

static const hl_scores *scores_of(const hl_sweep *s, int64_t setting)
{
    return setting == s->n_settings ? s->test->dense
                                    : s->test->scores + setting * s->test->n_windows;
}

/* The means of all settings and the reference model with each unit left out: s->left. */
static hl_status leave_out(hl_sweep *s)
{
    int64_t          n_windows = s->test->n_windows, n_columns = s->n_settings + 1;
    bool             by_document = s->test->n_documents >= HL_MIN_UNITS;
    HL_FREED double *values      = NULL; /* (2, n_windows, n_columns) */

    s->units   = by_document ? HL_UNITS_DOCUMENTS : HL_UNITS_WINDOWS;
    s->n_units = by_document ? s->test->n_documents : n_windows;
    HL_NEED(hl_alloc((void **)&values, (size_t)n_windows, 2 * (size_t)n_columns * sizeof *values));
    for (int64_t i = 0; i < n_windows * n_columns; i++) {
        double n_tokens = (double)s->test->scored[i / n_columns];

        values[i] = scores_of(s, i % n_columns)[i / n_columns].nll / n_tokens;
        values[n_windows * n_columns + i] = n_tokens;
    }
    return hl_left_out(&s->left, &(hl_unit_rows){ .values  = values,
                                                  .weights = values + n_windows * n_columns,
                                                  .groups = by_document ? s->test->documents : NULL,
                                                  .n_rows = n_windows,
                                                  .n_columns = n_columns,
                                                  .n_groups  = s->n_units });
}

/* ----------------------------------------------------------------------- numbers */

static double mean_nll(const hl_sweep *s, int64_t setting)
{
    int64_t which = setting == s->n_settings ? -1 : setting;
    return hl_evaluation_total(s->test, which).nll / (double)s->test->n_scored;
}

static hl_sweep_value with_error(const hl_sweep *s, double value, hl_error error,
                                 hl_error_scale scale)
{
    hl_interval interval = hl_interval_of(value, error, scale, s->n_units, s->units);
    return (hl_sweep_value){ value, interval.low, interval.high };
}

/* Adds factor times a setting's means without each unit to sums (n_units). */
static void add_left_out(double *sums, const hl_sweep *s, int64_t setting, double factor)
{
    for (int64_t i = 0; i < s->n_units; i++)
        sums[i] += factor * s->left[setting * (s->n_units + 1) + i];
}

/* Returns a - b of two settings' mean NLL (n_settings: the reference model). */
static hl_sweep_value difference(const hl_sweep *s, int64_t a, int64_t b)
{
    double value = mean_nll(s, a) - mean_nll(s, b);

    memset(s->work, 0, (size_t)s->n_units * sizeof *s->work);
    add_left_out(s->work, s, a, 1.0);
    add_left_out(s->work, s, b, -1.0);
    return with_error(s, value, hl_jackknife_error(value, s->work, s->n_units, HL_SCALE_PLAIN),
                      HL_SCALE_PLAIN);
}

static int64_t random_setting(const hl_sweep *s, int64_t seed, int64_t ratio)
{
    return s->orders[s->n_fixed + seed].first + ratio;
}

/* Returns the difference to the mean of the seeds, which are a sample of all seeds. */
static hl_sweep_value against_random(const hl_sweep *s, int64_t setting, int64_t ratio)
{
    int64_t n_seeds = s->options.n_seeds;
    double  n = (double)n_seeds, mean = 0.0, squares = 0.0;

    memset(s->work, 0, (size_t)s->n_units * sizeof *s->work);
    add_left_out(s->work, s, setting, 1.0);
    for (int64_t i = 0; i < n_seeds; i++) {
        mean += mean_nll(s, random_setting(s, i, ratio)) / n;
        add_left_out(s->work, s, random_setting(s, i, ratio), -1.0 / n);
    }
    for (int64_t i = 0; i < n_seeds; i++)
        squares += pow(mean_nll(s, random_setting(s, i, ratio)) - mean, 2.0);
    double   value = mean_nll(s, setting) - mean;
    hl_error error = hl_jackknife_error(value, s->work, s->n_units, HL_SCALE_PLAIN);
    if (n_seeds > 1)
        error = hl_error_add(error, (hl_error){ squares / (n * (n - 1.0)), n - 1.0, 0.0, 0.0 });
    return with_error(s, value, error, HL_SCALE_PLAIN);
}

/* Returns the share of last words that a setting predicts; NaN if not requested. */
static double word_share(const hl_sweep *s, int64_t setting)
{
    return s->n_right != NULL ? s->n_right[setting] / (double)s->options.n_words : NAN;
}

static hl_sweep_point count_point(const hl_sweep *s, int64_t setting, int64_t ratio)
{
    hl_scores total = hl_evaluation_total(s->test, setting);
    double    value = mean_nll(s, setting);
    hl_error  error =
        hl_jackknife_error(value, s->left + setting * (s->n_units + 1), s->n_units, HL_SCALE_PLAIN);

    hl_sweep_point point = { .nll       = with_error(s, value, error, HL_SCALE_PLAIN),
                             .rise      = difference(s, setting, s->n_settings),
                             .vs_random = against_random(s, setting, ratio),
                             .kl        = total.kl / (double)s->test->n_scored,
                             .same      = (double)total.n_same / (double)s->test->n_scored,
                             .word      = word_share(s, setting) };
    for (int64_t i = 0; i < s->options.n_seeds; i++)
        point.n_beaten += mean_nll(s, random_setting(s, i, ratio)) > point.nll.value;
    return point;
}

static hl_status count_band(hl_sweep_band *out, const hl_sweep *s, int64_t ratio)
{
    int64_t          n      = s->options.n_seeds;
    HL_FREED double *values = NULL;

    HL_NEED(HL_ALLOC(&values, (size_t)n));
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
        out->word += word_share(s, random_setting(s, i, ratio)) / (double)n;
    return HL_OK;
}

/* ------------------------------------------------------------------ correlations */

/* Writes the ranker's score of every head that was disabled alone: out (n_singles). */
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

static hl_status correlate(hl_sweep_value *out, const hl_sweep *s, const hl_ranking *ranking)
{
    int64_t          n = s->n_singles, n_units = s->n_units;
    HL_FREED double *scores = NULL;       /* (n) */
    HL_FREED double *x = NULL, *y = NULL; /* (n, n_units + 1) scores, and rises without each unit */
    hl_rank_noise    noise = { 0 };

    HL_NEED(HL_ALLOC(&scores, (size_t)n));
    HL_NEED(HL_ALLOC(&x, (size_t)(n * (n_units + 1))));
    HL_NEED(HL_ALLOC(&y, (size_t)(n * (n_units + 1))));
    ranked_scores(scores, s, ranking);
    for (int64_t i = 0; i < n * (n_units + 1); i++) {
        x[i] = scores[i / (n_units + 1)];
        y[i] = s->left[s->first_single * (n_units + 1) + i] -
               s->left[s->n_settings * (n_units + 1) + i % (n_units + 1)];
    }
    HL_NEED(hl_rank_noise_add(&noise, x, y, n, n_units));
    HL_NEED(hl_rank_noise_add_items(&noise, x, y, n, n_units));
    hl_interval interval = hl_rank_interval(&noise, s->units);
    *out                 = (hl_sweep_value){ noise.rho, interval.low, interval.high };
    return HL_OK;
}

/* ----------------------------------------------------------- means and repairs */

/* The rise of scores over the reference model, with the same units left out of both. */
static hl_status mended_rise(hl_sweep_value *out, const hl_sweep *s, const hl_scores *scores)
{
    const hl_evaluation *test   = s->test;
    HL_FREED double     *values = NULL; /* (2, n_windows) */
    HL_FREED double     *left   = NULL; /* (n_units + 1) */

    HL_NEED(HL_ALLOC(&values, 2 * (size_t)test->n_windows));
    for (int64_t i = 0; i < test->n_windows; i++) {
        double n_tokens             = (double)test->scored[i];
        values[i]                   = (scores[i].nll - test->dense[i].nll) / n_tokens;
        values[test->n_windows + i] = n_tokens;
    }
    HL_NEED(hl_left_out(
        &left, &(hl_unit_rows){ .values  = values,
                                .weights = values + test->n_windows,
                                .groups  = s->units == HL_UNITS_DOCUMENTS ? test->documents : NULL,
                                .n_rows  = test->n_windows,
                                .n_columns = 1,
                                .n_groups  = s->n_units }));
    double rise = left[s->n_units];
    *out        = with_error(s, rise, hl_jackknife_error(rise, left, s->n_units, HL_SCALE_PLAIN),
                             HL_SCALE_PLAIN);
    return HL_OK;
}

static hl_status count_mended(hl_sweep *s)
{
    int64_t n_rows = s->n_mended, n_windows = s->test->n_windows;

    HL_NEED(HL_ALLOC(&s->mended_rises, (size_t)(n_rows * (1 + HL_SWEEP_WAYS))));
    for (int64_t row = 0; row < n_rows; row++) {
        hl_sweep_value *rises = s->mended_rises + row * (1 + HL_SWEEP_WAYS);

        rises[0] = difference(s, hl_sweep_repair_setting(s, row), s->n_settings);
        for (int64_t way = 0; way < HL_SWEEP_WAYS; way++) {
            rises[1 + way] = s->n_off[row % s->options.n_ratios] > 0
                                 ? (hl_sweep_value){ NAN, NAN, NAN }
                                 : rises[0];
            if (s->n_off[row % s->options.n_ratios] > 0 &&
                (way != HL_SWEEP_REPAIRED || s->can_mend))
                HL_NEED(mended_rise(&rises[1 + way], s,
                                    s->mended + (row * HL_SWEEP_WAYS + way) * n_windows));
        }
    }
    return HL_OK;
}

/* ---------------------------------------------------------------- all numbers */

static hl_status allocate(hl_sweep *s)
{
    HL_NEED(hl_alloc_zeroed((void **)&s->points, (size_t)s->n_fixed,
                            (size_t)s->options.n_ratios * sizeof *s->points));
    HL_NEED(HL_ALLOC_ZEROED(&s->bands, (size_t)s->options.n_ratios));
    HL_NEED(HL_ALLOC_ZEROED(&s->rises, (size_t)s->n_singles));
    return HL_ALLOC_ZEROED(&s->correlations, (size_t)s->options.n_rankers);
}

static hl_status count_all(hl_sweep *s)
{
    int64_t n_ratios = s->options.n_ratios;

    HL_NEED(allocate(s));
    HL_NEED(leave_out(s));
    HL_NEED(HL_ALLOC(&s->work, (size_t)s->n_units));
    for (int64_t i = 0; i < s->n_fixed * n_ratios; i++) {
        int64_t setting = s->orders[i / n_ratios].first + i % n_ratios;
        s->points[i]    = count_point(s, setting, i % n_ratios);
    }
    for (int64_t i = 0; i < n_ratios; i++)
        HL_NEED(count_band(&s->bands[i], s, i));
    for (int64_t i = 0; i < s->n_singles && !s->options.no_singles; i++)
        s->rises[i] = mean_nll(s, s->first_single + i) - mean_nll(s, s->n_settings);
    for (int64_t i = 0; i < s->options.n_rankers && !s->options.no_singles; i++)
        HL_NEED(correlate(&s->correlations[i], s, s->orders[i].ranking));
    return count_mended(s);
}

/* --------------------------------------------------------------------- tables */

static void put_value(hl_sheet *table, hl_sweep_value value)
{
    hl_sheet_put_real(table, value.value);
    hl_sheet_put_real(table, value.low);
    hl_sheet_put_real(table, value.high);
}

static hl_status make_points(hl_sheet **out, const hl_sweep *s)
{
    static const char columns[] =
        "order:t ratio:2 disabled:i nll:4 low:4 high:4 perplexity:2 rise:4 rise_low:4 rise_high:4 "
        "vs_random:4 vs_low:4 vs_high:4 beaten:i kl:4 agreement:4 last_word:4";
    hl_sheet *table = NULL;
    hl_status status =
        hl_sheet_new(&table, "points", "Loss of every order at every ratio", columns);

    if (status == HL_OK) {
        hl_interval how = hl_no_interval(s->n_units, s->units);
        how.low         = s->n_units >= HL_MIN_UNITS ? 0.0 : NAN; /* intervals exist */
        hl_sheet_fact_interval(table, &how);
    }
    for (int64_t i = 0; status == HL_OK && i < s->n_fixed * s->options.n_ratios; i++) {
        const hl_sweep_point *point = &s->points[i];
        int64_t               ratio = i % s->options.n_ratios;
        char                  name[64];

        hl_sweep_order_name(name, sizeof name, &s->orders[i / s->options.n_ratios]);
        hl_sheet_put_text(table, "%s", name);
        hl_sheet_put_real(table, s->ratios[ratio]);
        hl_sheet_put_int(table, s->n_off[ratio]);
        put_value(table, point->nll);
        hl_sheet_put_real(table, exp(point->nll.value));
        put_value(table, point->rise);
        put_value(table, point->vs_random);
        hl_sheet_put_int(table, point->n_beaten);
        hl_sheet_put_real(table, point->kl);
        hl_sheet_put_real(table, point->same);
        hl_sheet_put_real(table, point->word);
    }
    return hl_sheet_hand_over(out, table, status);
}

static hl_status make_random(hl_sheet **out, const hl_sweep *s)
{
    static const char columns[] =
        "ratio:2 disabled:i least:4 quarter:4 median:4 three_quarters:4 most:4 mean:4 last_word:4";
    hl_sheet *table = NULL;
    hl_status status =
        hl_sheet_new(&table, "random", "Random orders: loss over the seeds", columns);

    if (status == HL_OK)
        hl_sheet_fact_real(table, "seeds", (double)s->options.n_seeds);
    for (int64_t i = 0; status == HL_OK && i < s->options.n_ratios; i++) {
        const hl_sweep_band *band = &s->bands[i];

        hl_sheet_put_real(table, s->ratios[i]);
        hl_sheet_put_int(table, s->n_off[i]);
        hl_sheet_put_real(table, band->least);
        hl_sheet_put_real(table, band->quarter);
        hl_sheet_put_real(table, band->median);
        hl_sheet_put_real(table, band->three_quarters);
        hl_sheet_put_real(table, band->most);
        hl_sheet_put_real(table, band->mean);
        hl_sheet_put_real(table, band->word);
    }
    return hl_sheet_hand_over(out, table, status);
}

/* A ranker that removes the highest score first is right if high scores go with small rises. */
static hl_status make_correlation(hl_sheet **out, const hl_sweep *s)
{
    static const char columns[] = "ranker:t takes:t right:t rho:3 low:3 high:3";
    hl_sheet         *table     = NULL;
    hl_status         status    = hl_sheet_new(
                   &table, "correlation",
                   "Does the score predict the rise of the loss with that head disabled?", columns);

    for (int64_t i = 0; status == HL_OK && i < s->options.n_rankers && !s->options.no_singles;
         i++) {
        bool highest = hl_ranker_takes_highest(s->rankers[i]);

        hl_sheet_put_text(table, "%s", hl_ranker_name((size_t)s->rankers[i]));
        hl_sheet_put_text(table, "%s", highest ? "highest" : "lowest");
        hl_sheet_put_text(table, "%s", highest ? "below 0" : "above 0");
        put_value(table, s->correlations[i]);
    }
    return hl_sheet_hand_over(out, table, status);
}

static hl_status make_heads(hl_sheet **out, const hl_sweep *s)
{
    static const char columns[] = "ranker:t layer:i head:i place:i score:4 rise:5";
    hl_sheet         *table     = NULL;
    hl_status         status =
        hl_sheet_new(&table, "heads", "Score and cost of every head, by every ranker", columns);

    int64_t n_rows = s->options.no_singles ? 0 : s->options.n_rankers * s->n_singles;

    for (int64_t i = 0; status == HL_OK && i < n_rows; i++) {
        const hl_ranking *ranking = s->orders[i / s->n_singles].ranking;
        const hl_ranked  *ranked  = &ranking->heads[i % s->n_singles];
        double            rise    = NAN;

        for (int64_t j = 0; j < s->n_singles; j++) {
            if (s->heads[j].layer == ranked->layer && s->heads[j].head == ranked->head)
                rise = s->rises[j];
        }
        hl_sheet_put_text(table, "%s", hl_ranker_name((size_t)ranking->ranker));
        hl_sheet_put_int(table, ranked->layer);
        hl_sheet_put_int(table, ranked->head);
        hl_sheet_put_int(table, i % s->n_singles + 1);
        hl_sheet_put_real(table, ranked->score);
        hl_sheet_put_real(table, rise);
    }
    return hl_sheet_hand_over(out, table, status);
}

static hl_status make_savings(hl_sheet **out, const hl_sweep *s)
{
    static const char columns[] = "ratio:2 disabled:i params:0 params_share:4 flops_share:4";
    hl_shapes         shapes    = hl_shapes_of(s->model, s->options.n_ctx);
    hl_sheet         *table     = NULL;
    hl_status         status    = hl_sheet_new(
                   &table, "savings", "Upper bound of what removing these heads saves, by shapes", columns);

    if (status == HL_OK)
        hl_sheet_fact_real(table, "context", (double)s->options.n_ctx);
    for (int64_t i = 0; status == HL_OK && i < s->options.n_ratios; i++) {
        hl_ceiling ceiling = hl_ceiling_of(&shapes, s->n_off[i]);

        hl_sheet_put_real(table, s->ratios[i]);
        hl_sheet_put_int(table, s->n_off[i]);
        hl_sheet_put_real(table, ceiling.params);
        hl_sheet_put_real(table, ceiling.params_share);
        hl_sheet_put_real(table, ceiling.flops_share);
    }
    return hl_sheet_hand_over(out, table, status);
}

static void name_row(char *out, size_t n_bytes, const hl_sweep *s, int64_t row)
{
    int64_t order = row / s->options.n_ratios;

    if (order < s->n_fixed)
        hl_sweep_order_name(out, n_bytes, &s->orders[order]);
    else
        snprintf(out, n_bytes, "random (median)");
}

static hl_status make_repair(hl_sheet **out, const hl_sweep *s)
{
    static const char columns[] = "order:t ratio:2 off:i zeroed:4 low:4 high:4 mean:4 mean_low:4 "
                                  "mean_high:4 repaired:4 repaired_low:4 repaired_high:4";
    hl_sheet         *table     = NULL;
    hl_status         status =
        hl_sheet_new(&table, "repair", "Rise of the loss: zeroed, with means, repaired", columns);

    for (int64_t row = 0; status == HL_OK && row < s->n_mended; row++) {
        const hl_sweep_value *rises = s->mended_rises + row * (1 + HL_SWEEP_WAYS);
        char                  name[64];

        name_row(name, sizeof name, s, row);
        hl_sheet_put_text(table, "%s", name);
        hl_sheet_put_real(table, s->ratios[row % s->options.n_ratios]);
        hl_sheet_put_int(table, s->n_off[row % s->options.n_ratios]);
        for (int way = 0; way < 1 + HL_SWEEP_WAYS; way++)
            put_value(table, rises[way]);
    }
    return hl_sheet_hand_over(out, table, status);
}

static hl_status make_tables(hl_sweep *s)
{
    /* The order is that of hl_sweep_table_name. */
    HL_NEED(make_points(&s->tables[0], s));
    HL_NEED(make_random(&s->tables[1], s));
    HL_NEED(make_correlation(&s->tables[2], s));
    HL_NEED(make_heads(&s->tables[3], s));
    HL_NEED(make_savings(&s->tables[4], s));
    return make_repair(&s->tables[5], s);
}

/* ------------------------------------------------------------------ sentences */

enum { MAX_SENTENCE = 600 };

/* Adds a sentence; s->said keeps the first error. */
__attribute__((format(printf, 2, 3))) static void say(hl_sweep *s, const char *format, ...)
{
    char    text[MAX_SENTENCE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (s->said == HL_OK)
        s->said = HL_GROW_ONE(&s->verdict, s->n_verdict);
    if (s->said == HL_OK)
        s->said = hl_strdup(&s->verdict[s->n_verdict], text);
    s->n_verdict += s->said == HL_OK;
}

/* " (low to high)", or nothing where there is no interval. */
typedef struct range_text {
    char text[64];
} range_text;

static range_text range_of(hl_sweep_value value, int digits)
{
    range_text out = { "" };

    if (!isnan(value.low))
        snprintf(out.text, sizeof out.text, " (%+.*f to %+.*f)", digits, value.low, digits,
                 value.high);
    return out;
}

static const hl_sweep_point *point_at(const hl_sweep *s, int64_t order, int64_t ratio)
{
    return &s->points[order * s->options.n_ratios + ratio];
}

/* ------------------------------------------------------------------------ winners */

/* Returns the order with the lowest NLL other than `except`; -1 if there is none. */
static int64_t best_order(const hl_sweep *s, int64_t ratio, int64_t except)
{
    int64_t best = -1;

    for (int64_t i = 0; i < s->n_fixed; i++) {
        if (i != except &&
            (best < 0 || point_at(s, i, ratio)->nll.value < point_at(s, best, ratio)->nll.value))
            best = i;
    }
    return best;
}

/* Names the orders that are not significantly worse than the best. */
static void name_equals(char *out, size_t n_bytes, const hl_sweep *s, int64_t ratio, int64_t best)
{
    size_t length = 0;

    out[0] = '\0';
    for (int64_t i = 0; i < s->n_fixed; i++) {
        char           name[64];
        hl_sweep_value gap =
            difference(s, s->orders[i].first + ratio, s->orders[best].first + ratio);

        if (i == best || gap.low > 0.0 || length >= n_bytes)
            continue;
        hl_sweep_order_name(name, sizeof name, &s->orders[i]);
        length +=
            (size_t)snprintf(out + length, n_bytes - length, "%s%s", length > 0 ? "; " : "", name);
    }
}

static void say_winner(hl_sweep *s, int64_t ratio)
{
    int64_t        best = best_order(s, ratio, -1);
    hl_sweep_value rise = point_at(s, best, ratio)->rise;
    char           name[64], equals[300];

    name_equals(equals, sizeof equals, s, ratio, best);
    hl_sweep_order_name(name, sizeof name, &s->orders[best]);
    say(s,
        "At ratio %.2g (%lld of %lld heads disabled) %s costs least: %+.4f nats per token"
        "%s%s%s.",
        s->ratios[ratio], (long long)s->n_off[ratio], (long long)s->n_singles, name, rise.value,
        range_of(rise, 4).text,
        isnan(rise.low)     ? ""
        : equals[0] != '\0' ? "; not significantly worse: "
                            : ", significantly less than all others",
        isnan(rise.low) ? "" : equals);
}

/* ------------------------------------------------------------------------ entropy */

static int64_t find_order(const hl_sweep *s, hl_ranker ranker)
{
    for (int64_t i = 0; i < s->options.n_rankers; i++) {
        if (s->rankers[i] == ranker)
            return i;
    }
    return -1;
}

/* Counts layers that have at most one head left. */
static int64_t count_bare(const hl_sweep *s, int64_t setting)
{
    const float *gates   = s->gates + setting * s->n_gates;
    int64_t      n_heads = s->model->config->n_heads;
    int64_t      bare    = 0;

    for (int64_t layer = 0; layer < s->model->config->n_layers; layer++) {
        int64_t open = 0;
        for (int64_t head = 0; head < s->model->config->layers[layer].n_heads; head++)
            open += gates[layer * n_heads + head] != 0.0f;
        bare += s->model->config->layers[layer].n_heads > 1 && open <= 1;
    }
    return bare;
}

static void say_against_random(hl_sweep *s, int64_t order)
{
    int better = 0, worse = 0, compared = 0;

    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        hl_sweep_value gap = point_at(s, order, i)->vs_random;
        if (s->n_off[i] == 0)
            continue;
        compared++;
        better += gap.high < 0.0;
        worse += gap.low > 0.0;
    }
    say(s,
        "Highest entropy first against random orders (%lld seeds): better at %d of %d ratios, "
        "worse at %d, no significant difference at %d.",
        (long long)s->options.n_seeds, better, compared, worse, compared - better - worse);
    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        const hl_sweep_point *point = point_at(s, order, i);
        if (s->n_off[i] == 0)
            continue;
        say(s,
            "  ratio %.2g: %+.4f nats per token against the mean of random orders%s, "
            "better than %lld of %lld seeds; %lld of %lld layers keep at most one head.",
            s->ratios[i], point->vs_random.value, range_of(point->vs_random, 4).text,
            (long long)point->n_beaten, (long long)s->options.n_seeds,
            (long long)count_bare(s, s->orders[order].first + i),
            (long long)s->model->config->n_layers);
    }
}

/* Returns rho with its sign chosen so that positive is right for every ranker. */
static double rightness(const hl_sweep *s, int64_t i)
{
    double rho = s->correlations[i].value;
    return hl_ranker_takes_highest(s->rankers[i]) ? -rho : rho;
}

/* Is the correlation's interval entirely on the side that the ranker predicts? */
static bool tells_alone(const hl_sweep *s, int64_t i)
{
    hl_sweep_value rho = s->correlations[i];
    return hl_ranker_takes_highest(s->rankers[i]) ? rho.high < 0.0 : rho.low > 0.0;
}

static const char *judge(hl_sweep_value rho, bool highest_first)
{
    bool below = rho.high<0.0, above = rho.low> 0.0;

    if (!below && !above)
        return "so there is no evidence that it predicts importance";
    return below == highest_first ? "so it predicts to that extent what a head alone is worth, in "
                                    "the direction that the ranker uses"
                                  : "so the heads that it removes first matter more, not less";
}

static void say_importance(hl_sweep *s, int64_t order)
{
    hl_sweep_value rho     = s->correlations[order];
    int64_t        best    = -1;
    int64_t        n_ready = 0; /* rankers that have a correlation */

    say(s,
        "Does entropy predict importance?  Spearman's rho with the rise of the loss with one head "
        "disabled is %+.3f%s, %s.",
        rho.value, range_of(rho, 3).text, judge(rho, true));
    /* Only a ranker whose correlation is significant may be called the best. */
    for (int64_t i = 0; i < s->options.n_rankers; i++) {
        if (s->rankers[i] == HL_RANKER_ABLATION || isnan(rightness(s, i)))
            continue;
        n_ready++;
        if (tells_alone(s, i) && (best < 0 || rightness(s, i) > rightness(s, best)))
            best = i;
    }
    if (best >= 0 && n_ready > 1)
        say(s, "Of the %lld rankers that need no ablation, %s predicts it best: rho %+.3f%s.",
            (long long)n_ready, hl_ranker_name((size_t)s->rankers[best]),
            s->correlations[best].value, range_of(s->correlations[best], 3).text);
    else if (n_ready > 1)
        say(s,
            "None of the %lld rankers that need no ablation predicts it: no interval excludes 0 on "
            "the side that the ranker uses.",
            (long long)n_ready);
}

static bool loses_somewhere(const hl_sweep *s, int64_t order)
{
    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        if (s->n_off[i] > 0 && point_at(s, order, i)->vs_random.low > 0.0)
            return true;
    }
    return false;
}

/* Disabling heads alone and disabling them together are two questions. */
static void say_together(hl_sweep *s)
{
    int alone = 0, lose = 0;

    for (int64_t i = 0; i < s->options.n_rankers; i++) {
        alone += tells_alone(s, i);
        lose += tells_alone(s, i) && loses_somewhere(s, i);
    }
    if (lose > 0)
        say(s,
            "The cost of a single head does not add up to the cost of many: of %d rankers that "
            "predict the former, %d are worse than random at some ratio.",
            alone, lose);
}

/* --------------------------------------------------------------------------- costs */

/* Says how intervals were made, or why there are none. */
static void say_doubt(hl_sweep *s)
{
    hl_interval none = hl_no_interval(s->n_units, s->units);
    char        reason[80];

    hl_interval_reason(reason, sizeof reason, &none);
    if (s->n_units < HL_MIN_UNITS)
        say(s,
            "No interval, and nothing is called better or worse: %s; test on more text, or with a "
            "shorter --context.",
            reason);
    else
        say(s, "Intervals: 95%%, %s (n = %lld).", hl_interval_method(s->units),
            (long long)s->n_units);
}

static void say_costs(hl_sweep *s)
{
    const hl_evaluation *test   = s->test;
    hl_shapes            shapes = hl_shapes_of(s->model, s->options.n_ctx);
    int64_t              most   = s->n_off[s->options.n_ratios - 1];
    hl_ceiling           limit  = hl_ceiling_of(&shapes, most);
    double               run = (double)test->n_layers_run, all = (double)test->n_layers_naive;
    double               settings = (double)test->n_settings + 1.0;

    say(s,
        "Disabling heads does not speed up inference.  Removing %lld heads can save at most %.1f%% "
        "of parameters and %.1f%% of operations at %lld tokens.",
        (long long)most, 100.0 * limit.params_share, 100.0 * limit.flops_share,
        (long long)s->options.n_ctx);
    say(s,
        "%lld settings and the model with all heads (%lld of them different) ran %lld of %lld "
        "layers: layers in common saved %.0f%%, or %.0f%% with equal settings.",
        (long long)test->n_settings, (long long)test->n_distinct, (long long)test->n_layers_run,
        (long long)test->n_layers_naive,
        100.0 * (1.0 - run / (all * (double)test->n_distinct / settings)),
        100.0 * (1.0 - run / all));
}

/* ------------------------------------------------------------------------- repairs */

static hl_sweep_value mended_at(const hl_sweep *s, int64_t order, int64_t ratio, int way)
{
    return s->mended_rises[(order * s->options.n_ratios + ratio) * (1 + HL_SWEEP_WAYS) + way];
}

/* Reports the order that costs least after a repair, and its cost without the repair. */
static void say_best_repair(hl_sweep *s, int64_t ratio)
{
    int64_t best = 0, beaten = 0;
    char    name[64];

    for (int64_t i = 1; i <= s->n_fixed; i++) {
        if (mended_at(s, i, ratio, 1 + HL_SWEEP_REPAIRED).value <
            mended_at(s, best, ratio, 1 + HL_SWEEP_REPAIRED).value)
            best = i;
    }
    hl_sweep_value rise = mended_at(s, best, ratio, 1 + HL_SWEEP_REPAIRED);
    for (int64_t i = 0; i <= s->n_fixed; i++)
        beaten += i != best && rise.high < mended_at(s, i, ratio, 1 + HL_SWEEP_REPAIRED).low;
    name_row(name, sizeof name, s, best * s->options.n_ratios);
    say(s,
        "Repaired, at ratio %.2g %s costs least: %+.4f nats per token%s, where zeroing the same "
        "heads costs %+.4f and their means as biases %+.4f; clearly less than %lld of the other "
        "%lld orders repaired.",
        s->ratios[ratio], name, rise.value, range_of(rise, 4).text,
        mended_at(s, best, ratio, 0).value, mended_at(s, best, ratio, 1 + HL_SWEEP_MEAN).value,
        (long long)beaten, (long long)s->n_fixed);
}

static void say_repairs(hl_sweep *s)
{
    int64_t n_rows = s->n_mended, n = 0, better = 0, halved = 0, worse = 0;

    if (n_rows == 0)
        return;
    if (!s->can_mend) {
        say(s, "No repair: %s.", s->why_not);
        return;
    }
    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        if (s->n_off[i] > 0)
            say_best_repair(s, i);
    }
    for (int64_t row = 0; row < n_rows; row++) {
        const hl_sweep_value *rises    = s->mended_rises + row * (1 + HL_SWEEP_WAYS);
        hl_sweep_value        repaired = rises[1 + HL_SWEEP_REPAIRED];

        if (s->n_off[row % s->options.n_ratios] == 0)
            continue;
        n++;
        better += repaired.high < rises[0].low;
        worse += repaired.low > rises[0].high;
        halved += rises[0].value > 0.0 && repaired.value <= 0.5 * rises[0].value;
    }
    say(s,
        "Of %lld rows of orders and ratios, a repair is clearly better than zeroing in %lld and "
        "clearly "
        "worse in %lld; it leaves at most half of the rise in %lld.",
        (long long)n, (long long)better, (long long)worse, (long long)halved);
}

hl_status hl_sweep_make_verdict(hl_sweep *s)
{
    int64_t entropy = find_order(s, HL_RANKER_ENTROPY);

    for (int64_t i = 0; i < s->options.n_ratios && s->n_fixed > 1; i++) {
        if (s->n_off[i] > 0)
            say_winner(s, i);
    }
    if (entropy >= 0)
        say_against_random(s, entropy);
    if (entropy >= 0 && !s->options.no_singles)
        say_importance(s, entropy);
    if (!s->options.no_singles)
        say_together(s);
    say_repairs(s);
    say_doubt(s);
    say_costs(s);
    return s->said;
}

/* ------------------------------------------------------------------- the whole */

hl_status hl_sweep_conclude(hl_sweep *s)
{
    HL_NEED(count_all(s));
    HL_NEED(make_tables(s));
    return hl_sweep_make_verdict(s);
}
