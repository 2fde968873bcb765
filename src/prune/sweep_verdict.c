/* sweep_verdict.c - what a sweep comes to, in words.
 *
 * "Better" and "worse" are said where the interval of 95% leaves 0 out, and not otherwise; nor
 * is it corrected for the number of comparisons, which the sentences give. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "prune/ceiling.h"
#include "prune/sweep.h"

enum { MAX_SENTENCE = 600 };

__attribute__((format(printf, 2, 3))) static hl_status say(hl_sweep *s, const char *format, ...)
{
    char    text[MAX_SENTENCE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    hl_status status =
        hl_realloc((void **)&s->verdict, s->n_verdict, s->n_verdict + 1, sizeof *s->verdict);
    if (status == HL_OK)
        status = hl_strdup(&s->verdict[s->n_verdict], text);
    s->n_verdict += status == HL_OK;
    return status;
}

static const hl_sweep_point *point_at(const hl_sweep *s, int64_t order, int64_t ratio)
{
    return &s->points[order * s->options.n_ratios + ratio];
}

/* ------------------------------------------------------------------------ winners */

/* The order with the lowest NLL that is not `except`; -1: there is none. */
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

/* Who is not clearly worse than the best. */
static hl_status name_equals(char *out, size_t n_bytes, const hl_sweep *s, int64_t ratio,
                             int64_t best)
{
    size_t length = 0;

    out[0] = '\0';
    for (int64_t i = 0; i < s->n_fixed; i++) {
        char           name[64];
        hl_sweep_value gap;
        hl_status      status =
            hl_sweep_difference(&gap, s, s->orders[i].first + ratio, s->orders[best].first + ratio);
        if (status != HL_OK)
            return status;
        if (i == best || gap.low > 0.0 || length >= n_bytes)
            continue;
        hl_sweep_order_name(name, sizeof name, &s->orders[i]);
        length +=
            (size_t)snprintf(out + length, n_bytes - length, "%s%s", length > 0 ? "; " : "", name);
    }
    return HL_OK;
}

static hl_status say_winner(hl_sweep *s, int64_t ratio)
{
    int64_t        best = best_order(s, ratio, -1);
    hl_sweep_value rise = point_at(s, best, ratio)->rise;
    char           name[64], equals[300];

    hl_status status = name_equals(equals, sizeof equals, s, ratio, best);
    if (status != HL_OK)
        return status;
    hl_sweep_order_name(name, sizeof name, &s->orders[best]);
    return say(s,
               "At ratio %.2g (%lld of %lld heads off) %s costs least: %+.4f nats a token "
               "(%+.4f to %+.4f)%s%s.",
               s->ratios[ratio], (long long)s->n_off[ratio], (long long)s->n_singles, name,
               rise.value, rise.low, rise.high,
               equals[0] != '\0' ? "; not clearly worse: " : ", clearly less than all others",
               equals);
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

/* Layers that have lost all heads but one, or all. */
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

static hl_status say_against_random(hl_sweep *s, int64_t order)
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
    HL_NEED(say(s,
                "Highest entropy first against random (%lld seeds): better at %d of %d ratios, "
                "worse at %d, not to be told apart at %d.",
                (long long)s->options.n_seeds, better, compared, worse, compared - better - worse));
    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        const hl_sweep_point *point = point_at(s, order, i);
        if (s->n_off[i] == 0)
            continue;
        HL_NEED(say(s,
                    "  ratio %.2g: %+.4f nats a token to the mean of random (%+.4f to %+.4f), "
                    "better than %lld of %lld seeds; %lld of %lld layers are left with one head at "
                    "most.",
                    s->ratios[i], point->vs_random.value, point->vs_random.low,
                    point->vs_random.high, (long long)point->n_beaten,
                    (long long)s->options.n_seeds,
                    (long long)count_bare(s, s->orders[order].first + i),
                    (long long)s->model->config->n_layers));
    }
    return HL_OK;
}

/* Rho so that above 0 is right for every ranker. */
static double rightness(const hl_sweep *s, int64_t i)
{
    double rho = s->correlations[i].value;
    return hl_ranker_takes_highest(s->rankers[i]) ? -rho : rho;
}

/* Is the correlation's interval on the side that the ranker takes? */
static bool tells_alone(const hl_sweep *s, int64_t i)
{
    hl_sweep_value rho = s->correlations[i];
    return hl_ranker_takes_highest(s->rankers[i]) ? rho.high < 0.0 : rho.low > 0.0;
}

static const char *judge(hl_sweep_value rho, bool highest_first)
{
    bool below = rho.high<0.0, above = rho.low> 0.0;

    if (!below && !above)
        return "so it cannot be said to tell importance at all";
    return below == highest_first ? "so to that extent it tells what a head alone is worth, in the "
                                    "direction that the ranker takes"
                                  : "so heads that it takes first matter more, not less";
}

static hl_status say_importance(hl_sweep *s, int64_t order)
{
    hl_sweep_value rho     = s->correlations[order];
    int64_t        best    = -1;
    int64_t        n_ready = 0; /* rankers that switch nothing off and have a correlation */
    hl_status      status =
        say(s,
            "Does entropy tell importance?  Spearman's rho with the rise of the loss without a "
            "head alone is %+.3f (%+.3f to %+.3f), %s.",
            rho.value, rho.low, rho.high, judge(rho, true));

    /* Only a ranker of which the first sentence could say that it tells importance may be called
     * the best at it. */
    for (int64_t i = 0; i < s->options.n_rankers; i++) {
        if (s->rankers[i] == HL_RANKER_ABLATION || isnan(rightness(s, i)))
            continue;
        n_ready++;
        if (tells_alone(s, i) && (best < 0 || rightness(s, i) > rightness(s, best)))
            best = i;
    }
    if (status == HL_OK && best >= 0 && n_ready > 1)
        status =
            say(s,
                "Of the %lld rankers that switch nothing off, %s tells it best: rho %+.3f "
                "(%+.3f to %+.3f).",
                (long long)n_ready, hl_ranker_name((size_t)s->rankers[best]),
                s->correlations[best].value, s->correlations[best].low, s->correlations[best].high);
    if (status == HL_OK && best < 0 && n_ready > 1)
        status = say(s,
                     "None of the %lld rankers that switch nothing off can be said to tell it: no "
                     "interval leaves 0 out on the side that the ranker takes.",
                     (long long)n_ready);
    return status;
}

static bool loses_somewhere(const hl_sweep *s, int64_t order)
{
    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        if (s->n_off[i] > 0 && point_at(s, order, i)->vs_random.low > 0.0)
            return true;
    }
    return false;
}

/* Heads alone and heads together are two questions. */
static hl_status say_together(hl_sweep *s)
{
    int alone = 0, lose = 0;

    for (int64_t i = 0; i < s->options.n_rankers; i++) {
        alone += tells_alone(s, i);
        lose += tells_alone(s, i) && loses_somewhere(s, i);
    }
    if (lose == 0)
        return HL_OK;
    return say(s,
               "What a head costs alone is not what heads cost together: of %d rankers that tell "
               "the former, %d are worse than random at some ratio.",
               alone, lose);
}

/* --------------------------------------------------------------------------- costs */

/* A bootstrap of a few units says little about others. */
static hl_status say_doubt(hl_sweep *s)
{
    bool    by_document = s->test->n_documents >= HL_MIN_TEXTS;
    int64_t n_units     = by_document ? s->test->n_documents : s->test->n_windows;

    if (n_units >= HL_MIN_TEXTS)
        return HL_OK;
    return say(
        s,
        "All this is from %lld windows: too few for intervals that hold for other text; test "
        "on more, or with a shorter context.",
        (long long)n_units);
}

static hl_status say_costs(hl_sweep *s)
{
    const hl_evaluation *test   = s->test;
    hl_shapes            shapes = hl_shapes_of(s->model, s->options.n_ctx);
    int64_t              most   = s->n_off[s->options.n_ratios - 1];
    hl_ceiling           limit  = hl_ceiling_of(&shapes, most);
    double               run = (double)test->n_layers_run, all = (double)test->n_layers_naive;
    double               settings = (double)test->n_settings + 1.0;

    HL_NEED(say(s,
                "A gate of zero alone saves no time.  Taking %lld heads out can save at most "
                "%.1f%% of parameters and %.1f%% of operations at %lld tokens.",
                (long long)most, 100.0 * limit.params_share, 100.0 * limit.flops_share,
                (long long)s->options.n_ctx));
    return say(s,
               "%lld settings and the dense model, %lld of them different, ran %lld layers of "
               "%lld: a shared prefix saved %.0f%%, with equal settings %.0f%%.",
               (long long)test->n_settings, (long long)test->n_distinct,
               (long long)test->n_layers_run, (long long)test->n_layers_naive,
               100.0 * (1.0 - run / (all * (double)test->n_distinct / settings)),
               100.0 * (1.0 - run / all));
}

hl_status hl_sweep_make_verdict(hl_sweep *s)
{
    int64_t entropy = find_order(s, HL_RANKER_ENTROPY);

    for (int64_t i = 0; i < s->options.n_ratios && s->n_fixed > 1; i++) {
        if (s->n_off[i] > 0)
            HL_NEED(say_winner(s, i));
    }
    if (entropy >= 0) {
        HL_NEED(say_against_random(s, entropy));
        HL_NEED(say_importance(s, entropy));
    }
    HL_NEED(say_together(s));
    HL_NEED(say_doubt(s));
    return say_costs(s);
}
