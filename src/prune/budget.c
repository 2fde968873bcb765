/* budget.c - tries pruning orders on held-out text, to find how many heads a budget allows.
 *
 *     rank      all heads, by every ranker, on one part of the text
 *     try       growing numbers of heads on the other part, disabled or with the models repaired,
 *               round by round; an order that exceeds the budget is not tried further
 *     refine    between the largest number within the budget and the smallest beyond it, until
 *               they differ by one head or group
 *     choose    the smallest model within the budget; of equally small ones the one that costs least
 *
 * Every round is one hl_evaluate, or one hl_evaluate_cases with a repair, so that layers which settings
 * share are run once.  With a budget of bytes, sizes are known beforehand: each order is tried at the
 * smallest number of heads that suffices, and at three smaller numbers. */
#include "headlight/budget.h"
#include "headlight/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/sheet.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/perplexity.h"
#include "model/backward.h"
#include "model/model.h"
#include "prune/evaluate.h"
#include "prune/gates.h"
#include "prune/repair.h"
#include "prune/write.h"

HL_CLOSES(hl_frontier_free, hl_frontier)

enum { MAX_ORDERS = HL_N_RANKERS, LEAST_WINDOWS = 4, MOST_CONTEXT = 512, PER_ROUND = 3 };

/* Shares of all heads that are tried; each line is a round.  The largest number of heads that may be
 * removed ends the list. */
static const double shares[][PER_ROUND] = {
    { 0.025, 0.05, 0.1 }, { 0.15, 0.2, 0.3 }, { 0.4, 0.5, 0.6 },
    { 0.7, 0.8, 0.9 },    { 1.0, 1.0, 1.0 },
};
enum { N_ROUNDS = sizeof shares / sizeof *shares };

/* A pruning order, and the numbers of heads tried so far. */
typedef struct pruning_order {
    hl_ranking *ranking;
    int64_t     room;   /* the most heads that may be removed */
    int64_t     within; /* the most removed heads found within the budget */
    int64_t     beyond; /* the fewest found beyond the budget; room + 1: none yet */
} pruning_order;

/* A setting to be measured. */
typedef struct trial {
    int64_t       order;
    int64_t       count; /* requested number of heads; groups may change it */
    hl_head_list *heads;
} trial;

typedef struct search {
    const hl_model     *model;
    const hl_tokenizer *tokenizer;
    const hl_corpus    *rank_corpus;
    const hl_corpus    *test_corpus;
    hl_budget_options   options; /* with defaults filled in */
    hl_window_options   rank_windows;
    hl_window_options   test_windows;
    pruning_order       orders[MAX_ORDERS];
    int64_t             n_orders;
    trial              *trials; /* (n_trials) of the current round */
    size_t              n_trials;
    size_t              room_trials;
    size_t              room_points;
    hl_frontier        *found;
    int64_t            *asked; /* (n_points) requested number of heads of each point */
    size_t              room_asked;
} search;

/* Those that cost least in our sweeps, some of which need gradients. */
static hl_ranker budget_ranker(size_t index, const hl_model *model, bool repair)
{
    const bool      has_gradients = hl_backward_check(model) == HL_OK;
    const hl_ranker repaired[] = { HL_RANKER_SURGEON, HL_RANKER_GRADIENT, HL_RANKER_OUTPUT_NORM };
    const hl_ranker disabled[] = { HL_RANKER_FLUCTUATION, HL_RANKER_GRADIENT,
                                   HL_RANKER_OUTPUT_NORM };
    const hl_ranker others[]   = { HL_RANKER_FLUCTUATION, HL_RANKER_OUTPUT_NORM, HL_RANKER_AUTO };

    if (index >= 3)
        return HL_RANKER_AUTO;
    return !has_gradients ? others[index] : repair ? repaired[index] : disabled[index];
}

/* --------------------------------------------------------------------- options */

static bool is_budget(double value)
{
    return value > 0.0 && isfinite(value);
}

static hl_status check_budgets(hl_budget_options *o)
{
    if (o->until_loss != 0.0 && !is_budget(o->until_loss))
        return hl_fail(HL_BAD_ARGUMENT, "a budget of %+g nats per token, wanted more than 0",
                       o->until_loss);
    if (o->until_kl != 0.0 && !is_budget(o->until_kl))
        return hl_fail(HL_BAD_ARGUMENT, "a budget of a KL of %g nats per token, wanted more than 0",
                       o->until_kl);
    if (o->until_loss == 0.0 && o->until_kl == 0.0 && o->until_bytes == 0)
        o->until_loss = HL_BUDGET_LOSS;
    return HL_OK;
}

/* Lists the rankers, each once.  `auto` is replaced by the ranker that it stands for. */
static hl_status list_orders(search *s, const hl_ranker *rankers, int64_t n)
{
    if (n > MAX_ORDERS)
        return hl_fail(HL_BAD_ARGUMENT, "%lld rankers, wanted at most %d", (long long)n,
                       MAX_ORDERS);
    for (int64_t i = 0; i < n || rankers == NULL; i++) {
        hl_ranker ranker =
            rankers != NULL ? rankers[i] : budget_ranker((size_t)i, s->model, s->options.repair);

        if (rankers == NULL && ranker == HL_RANKER_AUTO)
            break;
        if ((unsigned)ranker >= HL_N_RANKERS || ranker == HL_RANKER_AUTO)
            return hl_fail(HL_BAD_ARGUMENT, "a budget compares rankers: auto is not one");
        HL_NEED(HL_ALLOC_ZEROED(&s->orders[s->n_orders].ranking, 1));
        s->orders[s->n_orders++].ranking->ranker = ranker;
    }
    return s->n_orders > 0 ? HL_OK : hl_fail(HL_BAD_ARGUMENT, "no rankers");
}

static hl_status complete_options(search *s, const hl_budget_options *given)
{
    hl_window_options *windows = &s->rank_windows;

    if (s->model->config->is_encoder)
        return hl_fail(HL_UNSUPPORTED,
                       "%s is an encoder (%s): it predicts no next token, so no budget of loss",
                       s->model->path, s->model->config->family);
    s->options = *given;
    if (given->repair)
        HL_NEED(hl_repair_check(s->model));
    HL_NEED(check_budgets(&s->options));
    HL_NEED(list_orders(s, given->rankers, given->n_rankers));
    *windows         = given->windows;
    windows->stride  = 0;
    windows->n_batch = 0;
    windows->part    = 0;
    windows->n_parts = s->test_corpus == NULL ? 2 : 0;
    if (windows->n_ctx == 0) {
        windows->n_ctx = hl_config_ctx(s->model->config, 0);
        windows->n_ctx = windows->n_ctx < MOST_CONTEXT ? windows->n_ctx : MOST_CONTEXT;
    }
    s->test_windows = *windows;
    if (s->test_corpus == NULL) {
        s->test_corpus       = s->rank_corpus;
        s->test_windows.part = 1;
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- ranking */

static hl_status rank_all(search *s)
{
    HL_SCOPED(hl_evidence_free) hl_evidence evidence = { 0 };
    hl_evidence_options                     options  = { .windows   = s->rank_windows,
                                                         .seed      = s->options.seed,
                                                         .n_threads = s->options.n_threads,
                                                         .progress  = s->options.progress,
                                                         .context   = s->options.context };

    for (int64_t i = 0; i < s->n_orders; i++) {
        pruning_order *order  = &s->orders[i];
        hl_ranker      ranker = order->ranking->ranker;

        hl_ranking_free(order->ranking);
        order->ranking = NULL;
        HL_NEED(
            hl_evidence_take(&evidence, ranker, s->model, s->tokenizer, s->rank_corpus, &options));
        HL_NEED(hl_evidence_rank(&order->ranking, &evidence, ranker, s->model,
                                 &(hl_rank_options){ .seed = s->options.seed }));
        if (s->options.groups)
            HL_NEED(hl_ranking_group(order->ranking, s->model));
        HL_NEED(hl_ranking_room(&order->room, order->ranking, &s->options.choice));
        order->beyond     = order->room + 1;
        s->found->n_heads = order->ranking->n_heads;
        if (order->room == 0)
            return hl_fail(
                HL_BAD_ARGUMENT,
                "no head can be removed: the heads to keep and the limits of layers leave none");
    }
    return HL_OK;
}

static hl_status choose(hl_head_list **out, const search *s, int64_t order, int64_t count)
{
    hl_choice choice = s->options.choice;

    choice.ratio = 0.0;
    choice.count = count;
    return hl_ranking_choose(out, s->orders[order].ranking, &choice);
}

static hl_status size_at(size_t *bytes, const search *s, int64_t order, int64_t count)
{
    HL_CLOSED(hl_head_list_free) hl_head_list *heads = NULL;

    HL_NEED(choose(&heads, s, order, count));
    return hl_prune_size(bytes, s->model, heads, s->options.write, s->options.path);
}

/* ------------------------------------------------------------------- measuring */

/* Adds a setting to the round, unless an equal one is there or has been measured. */
static hl_status add_trial(search *s, int64_t order, int64_t count)
{
    trial *t = NULL;

    for (int64_t i = 0; i < s->found->n_points; i++) {
        if (s->found->points[i].ranker == s->orders[order].ranking->ranker && s->asked[i] == count)
            return HL_OK;
    }
    for (size_t i = 0; i < s->n_trials; i++) {
        if (s->trials[i].order == order && s->trials[i].count == count)
            return HL_OK;
    }
    HL_NEED(HL_GROW(&s->trials, &s->room_trials, s->n_trials, 1));
    t  = &s->trials[s->n_trials++];
    *t = (trial){ .order = order, .count = count };
    return choose(&t->heads, s, order, count);
}

static void clear_trials(search *s)
{
    for (size_t i = 0; i < s->n_trials; i++)
        hl_head_list_free(s->trials[i].heads);
    s->n_trials = 0;
}

static hl_status make_gates(float **out, const search *s)
{
    int64_t width   = s->model->config->n_heads;
    int64_t n_gates = s->model->config->n_layers * width;

    HL_NEED(hl_alloc((void **)out, s->n_trials, (size_t)n_gates * sizeof **out));
    for (int64_t i = 0; i < (int64_t)s->n_trials * n_gates; i++)
        (*out)[i] = 1.0f;
    for (size_t t = 0; t < s->n_trials; t++) {
        const hl_head_list *heads = s->trials[t].heads;

        for (int64_t i = 0; i < heads->n_heads; i++)
            (*out)[(int64_t)t * n_gates + heads->heads[i].layer * width + heads->heads[i].head] =
                0.0f;
    }
    return HL_OK;
}

static hl_status count_point(hl_frontier_point *point, const search *s, const hl_evaluation *e,
                             int64_t setting)
{
    hl_interval rise  = hl_evaluation_rise(e, setting);
    hl_interval kl    = hl_evaluation_kl(e, setting);
    hl_scores   total = hl_evaluation_total(e, setting);
    double      n     = (double)e->n_scored;

    if (e->n_windows < HL_MIN_UNITS && (s->options.until_loss > 0.0 || s->options.until_kl > 0.0))
        return hl_fail(
            HL_BAD_INPUT,
            "%lld windows of held-out text: a confidence interval needs %d or more; give "
            "more text, or a shorter context",
            (long long)e->n_windows, HL_MIN_UNITS);
    point->rise      = (total.nll - hl_evaluation_total(e, -1).nll) / n;
    point->kl        = total.kl / n;
    point->same      = (double)total.n_same / n;
    point->rise_low  = rise.low;
    point->rise_high = rise.high;
    point->kl_low    = kl.low;
    point->kl_high   = kl.high;
    return HL_OK;
}

/* Is the point within the budgets of quality?  A NaN is not within any. */
static bool is_within(const search *s, const hl_frontier_point *point)
{
    const hl_budget_options *o = &s->options;

    return (o->until_loss == 0.0 || point->rise_high <= o->until_loss) &&
           (o->until_kl == 0.0 || point->kl_high <= o->until_kl);
}

static hl_status add_point(search *s, const hl_evaluation *e, size_t t)
{
    hl_frontier   *found = s->found;
    const trial   *of    = &s->trials[t];
    pruning_order *order = &s->orders[of->order];
    size_t         n     = (size_t)found->n_points;

    HL_NEED(HL_GROW(&found->points, &s->room_points, n, 1));
    HL_NEED(HL_GROW(&s->asked, &s->room_asked, n, 1));
    hl_frontier_point *point = &found->points[n];
    *point = (hl_frontier_point){ .ranker = order->ranking->ranker, .n_off = of->heads->n_heads };
    s->asked[n] = of->count;
    HL_NEED(hl_prune_size(&point->tensor_bytes, s->model, of->heads, s->options.write,
                          s->options.path));
    HL_NEED(count_point(point, s, e, (int64_t)t));
    if (!is_within(s, point) && of->count < order->beyond)
        order->beyond = of->count;
    found->n_points++;
    return HL_OK;
}

/* Finds, for each order, the most heads within the budget below the first number beyond it. */
static void find_within(search *s)
{
    for (int64_t o = 0; o < s->n_orders; o++) {
        pruning_order *order = &s->orders[o];

        order->within = 0;
        for (int64_t i = 0; i < s->found->n_points; i++) {
            if (s->found->points[i].ranker == order->ranking->ranker &&
                s->asked[i] < order->beyond && s->asked[i] > order->within)
                order->within = s->asked[i];
        }
    }
}

static hl_status tell(void *context, const hl_progress *progress)
{
    const search *s    = context;
    hl_progress   mine = *progress;

    mine.stage = "trying orders";
    return s->options.progress == NULL ? HL_OK : s->options.progress(s->options.context, &mine);
}

static hl_status check_text(const search *s, const hl_evaluation *e)
{
    if (e->n_windows >= LEAST_WINDOWS)
        return HL_OK;
    return hl_fail(
        HL_BAD_INPUT,
        "the %s has %lld window%s of %lld tokens, wanted %d or more: a longer text, or a "
        "smaller context",
        s->test_windows.n_parts > 0 ? "half of the text that is held out" : "text to test on",
        (long long)e->n_windows, e->n_windows == 1 ? "" : "s", (long long)e->n_ctx, LEAST_WINDOWS);
}

static hl_status evaluate_disabled(hl_evaluation **out, search *s)
{
    HL_FREED float *gates = NULL;

    HL_NEED(make_gates(&gates, s));
    return hl_evaluate(out, s->model, s->test_corpus, gates, (int64_t)s->n_trials,
                       &(hl_evaluate_options){ .windows      = s->test_windows,
                                               .memory_bytes = s->options.memory_bytes,
                                               .n_threads    = s->options.n_threads,
                                               .progress     = tell,
                                               .context      = s });
}

static hl_status evaluate_repaired(hl_evaluation **out, search *s)
{
    HL_FREED hl_head_list *heads = NULL;

    HL_NEED(HL_ALLOC(&heads, s->n_trials));
    for (size_t t = 0; t < s->n_trials; t++)
        heads[t] = *s->trials[t].heads;
    return hl_evaluate_cases(out, s->model, s->rank_corpus, s->test_corpus, heads, NULL,
                             (int64_t)s->n_trials,
                             &(hl_repair_options){ .windows      = s->rank_windows,
                                                   .memory_bytes = s->options.memory_bytes,
                                                   .n_threads    = s->options.n_threads,
                                                   .progress     = tell,
                                                   .context      = s },
                             &s->test_windows);
}

/* Measures the round's settings, of which there may be none. */
static hl_status measure(search *s)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *e = NULL;

    if (s->n_trials == 0)
        return HL_OK;
    HL_NEED(s->options.repair ? evaluate_repaired(&e, s) : evaluate_disabled(&e, s));
    HL_NEED(check_text(s, e));
    s->found->nll       = hl_evaluation_total(e, -1).nll / (double)e->n_scored;
    s->found->n_scored  = e->n_scored;
    s->found->n_windows = e->n_windows;
    s->found->n_ctx     = e->n_ctx;
    for (size_t t = 0; t < s->n_trials; t++)
        HL_NEED(add_point(s, e, t));
    find_within(s);
    clear_trials(s);
    return HL_OK;
}

/* ------------------------------------------------------------ budgets of quality */

static int64_t count_of(const search *s, const pruning_order *order, double share)
{
    int64_t count = (int64_t)floor(share * (double)s->found->n_heads + 0.5);

    if (count > order->room)
        count = order->room;
    return count > 0 ? count : 1;
}

static hl_status try_shares(search *s)
{
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int64_t o = 0; o < s->n_orders; o++) {
            for (int i = 0; i < PER_ROUND && s->orders[o].beyond > s->orders[o].room; i++)
                HL_NEED(add_trial(s, o, count_of(s, &s->orders[o], shares[round][i])));
        }
        HL_NEED(measure(s));
    }
    return HL_OK;
}

/* Tries orders that can still win between their largest number within the budget and their smallest
 * beyond it. */
static hl_status refine(search *s)
{
    for (bool more = true; more;) {
        int64_t best = 0;

        for (int64_t o = 0; o < s->n_orders; o++)
            best = s->orders[o].within > best ? s->orders[o].within : best;
        for (int64_t o = 0; o < s->n_orders; o++) {
            int64_t low = s->orders[o].within, high = s->orders[o].beyond;

            for (int i = 1; i <= PER_ROUND && high <= s->orders[o].room && high > best; i++) {
                int64_t count = low + (high - low) * i / (PER_ROUND + 1);
                if (count > low && count < high)
                    HL_NEED(add_trial(s, o, count));
            }
        }
        more = s->n_trials > 0;
        HL_NEED(measure(s));
    }
    return HL_OK;
}

/* ------------------------------------------------------------- a budget of bytes */

/* Finds the smallest number of removed heads that makes the model small enough; room + 1: none does.
 * Sizes rarely grow with that number, but with groups they can. */
static hl_status find_small_enough(int64_t *out, size_t *least, const search *s, int64_t order)
{
    for (*out = 0; *out <= s->orders[order].room; (*out)++) {
        size_t bytes = 0;

        HL_NEED(size_at(&bytes, s, order, *out));
        *least = bytes < *least ? bytes : *least;
        if (bytes <= s->options.until_bytes)
            return HL_OK;
    }
    return HL_OK;
}

static hl_status try_sizes(search *s)
{
    size_t least = SIZE_MAX;
    bool   any   = false;

    if (s->found->tensor_bytes <= s->options.until_bytes)
        return hl_fail(
            HL_BAD_ARGUMENT,
            "the model has %zu bytes of tensors, which is within the budget of %zu: there "
            "is nothing to remove",
            s->found->tensor_bytes, s->options.until_bytes);
    for (int64_t o = 0; o < s->n_orders; o++) {
        int64_t count = 0;

        HL_NEED(find_small_enough(&count, &least, s, o));
        any = any || count <= s->orders[o].room;
        for (int64_t i = 1; i <= 4 && count <= s->orders[o].room; i++)
            HL_NEED(add_trial(s, o, count * i / 4 > 0 ? count * i / 4 : 1));
    }
    if (!any)
        return hl_fail(HL_BAD_ARGUMENT,
                       "no number of heads makes the model as small as %zu bytes: it has %zu, and "
                       "%zu with as many removed as may be",
                       s->options.until_bytes, s->found->tensor_bytes, least);
    return measure(s);
}

/* ---------------------------------------------------------------------- the end */

static int compare_points(const void *left, const void *right)
{
    const hl_frontier_point *a = left;
    const hl_frontier_point *b = right;

    if (a->ranker != b->ranker)
        return a->ranker < b->ranker ? -1 : 1;
    return a->n_off < b->n_off ? -1 : a->n_off > b->n_off;
}

/* Marks the points that are small enough and lie below the first point of their order that exceeds
 * the budget. */
static void mark_points(search *s)
{
    hl_frontier *found = s->found;

    for (int64_t i = 0; i < found->n_points; i++) {
        hl_frontier_point *p = &found->points[i];

        for (int64_t o = 0; o < s->n_orders; o++) {
            if (s->orders[o].ranking->ranker == p->ranker)
                p->fits = s->asked[i] <= s->orders[o].within;
        }
        p->fits = p->fits && p->n_off > 0 &&
                  (s->options.until_bytes == 0 || p->tensor_bytes <= s->options.until_bytes);
        p->is_best = true;
        for (int64_t k = 0; k < found->n_points; k++) {
            const hl_frontier_point *other = &found->points[k];
            if (other->tensor_bytes <= p->tensor_bytes && other->rise <= p->rise &&
                (other->tensor_bytes < p->tensor_bytes || other->rise < p->rise))
                p->is_best = false;
        }
    }
}

/* With a budget of bytes the point with the smallest rise is better, else the smallest model; of
 * equally large models the one with the most heads removed. */
static bool is_better(const search *s, const hl_frontier_point *a, const hl_frontier_point *b)
{
    if (s->options.until_bytes == 0 && a->tensor_bytes != b->tensor_bytes)
        return a->tensor_bytes < b->tensor_bytes;
    if (s->options.until_bytes == 0 && a->n_off != b->n_off)
        return a->n_off > b->n_off;
    return a->rise < b->rise;
}

static hl_status refuse_all(const search *s)
{
    const hl_frontier_point *least = &s->found->points[0];
    char                     budget[160];
    size_t                   used = 0;

    for (int64_t i = 1; i < s->found->n_points; i++) {
        if (s->found->points[i].rise < least->rise)
            least = &s->found->points[i];
    }
    if (s->options.until_loss > 0.0)
        used += (size_t)snprintf(budget + used, sizeof budget - used, " a loss of %+g",
                                 s->options.until_loss);
    if (s->options.until_kl > 0.0)
        used += (size_t)snprintf(budget + used, sizeof budget - used, "%s a KL of %g",
                                 used > 0 ? " and" : "", s->options.until_kl);
    if (s->options.until_bytes > 0)
        used += (size_t)snprintf(budget + used, sizeof budget - used, "%s %zu bytes",
                                 used > 0 ? " and" : "", s->options.until_bytes);
    return hl_fail(
        HL_BAD_ARGUMENT,
        "no number of heads is within%s: %lld by %s cost least, %+.4f nats per token (95%% "
        "%+.4f to %+.4f), KL %.4f (to %.4f), %zu bytes",
        budget, (long long)least->n_off, hl_ranker_name((size_t)least->ranker), least->rise,
        least->rise_low, least->rise_high, least->kl, least->kl_high, least->tensor_bytes);
}

/* Returns the index of the order that the point belongs to. */
static int64_t order_of(const search *s, const hl_frontier_point *point)
{
    int64_t o = 0;

    while (s->orders[o].ranking->ranker != point->ranker)
        o++;
    return o;
}

static hl_status conclude(search *s)
{
    hl_frontier *found = s->found;

    mark_points(s);
    qsort(found->points, (size_t)found->n_points, sizeof *found->points, compare_points);
    found->recommended = -1;
    for (int64_t i = 0; i < found->n_points; i++) {
        if (found->points[i].fits &&
            (found->recommended < 0 ||
             is_better(s, &found->points[i], &found->points[found->recommended])))
            found->recommended = i;
    }
    if (found->recommended < 0)
        return refuse_all(s);
    const hl_frontier_point *best  = &found->points[found->recommended];
    int64_t                  order = order_of(s, best);
    found->budget                  = s->options;
    found->all_went = s->options.until_bytes == 0 && best->n_off == s->orders[order].room;
    return choose(&found->heads, s, order, best->n_off);
}

static void free_search(search *s)
{
    clear_trials(s);
    for (int64_t i = 0; i < s->n_orders; i++)
        hl_ranking_free(s->orders[i].ranking);
    hl_free(s->trials);
    hl_free(s->asked);
    hl_frontier_free(s->found);
}

hl_status hl_frontier_find(hl_frontier **out, const hl_model *model, const hl_tokenizer *tokenizer,
                           const hl_corpus *corpus, const hl_corpus *test_corpus,
                           const hl_budget_options *options)
{
    static const hl_budget_options defaults = { 0 };
    HL_SCOPED(free_search)
    search s = {
        .model = model, .tokenizer = tokenizer, .rank_corpus = corpus, .test_corpus = test_corpus
    };

    *out = NULL;
    if (model == NULL || corpus == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "budget: no model or no text");
    HL_NEED(complete_options(&s, options != NULL ? options : &defaults));
    HL_NEED(HL_ALLOC_ZEROED(&s.found, 1));
    s.found->tensor_bytes = model->info.tensor_bytes;
    HL_NEED(rank_all(&s));
    if (s.options.until_bytes > 0) {
        HL_NEED(try_sizes(&s));
    } else {
        HL_NEED(try_shares(&s));
        HL_NEED(refine(&s));
    }
    HL_NEED(conclude(&s));
    *out = hl_taken(&s.found);
    return HL_OK;
}

void hl_frontier_free(hl_frontier *frontier)
{
    if (frontier == NULL)
        return;
    hl_head_list_free(frontier->heads);
    hl_free(frontier->points);
    hl_free(frontier);
}

hl_status hl_frontier_sheet(hl_sheet **out, const hl_frontier *frontier)
{
    hl_sheet *table = NULL;

    *out = NULL;
    HL_NEED(hl_sheet_new(
        &table, "frontier", "What removing heads costs, and what is left",
        "order:t heads:i bytes:0 rise:4 rise_low:4 rise_high:4 kl:4 fits:b best:b | kl_high:4 "
        "agreement:4"));
    for (int64_t i = 0; i < frontier->n_points; i++) {
        const hl_frontier_point *p = &frontier->points[i];

        hl_sheet_put_text(table, "%s", hl_ranker_name((size_t)p->ranker));
        hl_sheet_put_int(table, p->n_off);
        hl_sheet_put_reals(table, (double)p->tensor_bytes, p->rise, p->rise_low, p->rise_high,
                           p->kl);
        hl_sheet_put_bool(table, p->fits);
        hl_sheet_put_bool(table, p->is_best);
        hl_sheet_put_reals(table, p->kl_high, p->same);
    }
    hl_sheet_fact_text(table, "heads", frontier->budget.repair ? "repaired" : "disabled");
    hl_sheet_fact_real(table, "nll", frontier->nll);
    hl_sheet_fact_real(table, "scored", (double)frontier->n_scored);
    hl_sheet_fact_real(table, "windows", (double)frontier->n_windows);
    hl_sheet_fact_real(table, "context", (double)frontier->n_ctx);
    hl_sheet_fact_real(table, "bytes_before", (double)frontier->tensor_bytes);
    return hl_sheet_hand_over(out, table, HL_OK);
}
