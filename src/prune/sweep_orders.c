/* sweep_orders.c - the heads that each ranker disables at each ratio.
 *
 * One-shot: the unchanged model is ranked once, and each ratio takes the first heads.  Iterative: after
 * each ratio the model is ranked again with the heads disabled so far, which stay disabled; the next
 * ratio takes the first of the others. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "prune/evaluate.h"
#include "prune/gates.h"
#include "prune/sweep_stages.h"

void hl_sweep_order_name(char *out, size_t n_bytes, const hl_sweep_order *order)
{
    snprintf(out, n_bytes, "%s%s", hl_ranker_name((size_t)order->ranker),
             order->is_iterative ? ", iterative" : "");
}

/* --------------------------------------------------------------------- evidence */

/* Progress of the first measurement, and of one of a model with disabled heads. */
static hl_status show_first(void *context, const hl_progress *progress)
{
    hl_sweep *s = context;

    s->stage = progress->stage;
    return s->options.progress != NULL ? s->options.progress(s->options.context, progress) : HL_OK;
}

static hl_status show_again(void *context, const hl_progress *progress)
{
    hl_progress again = *progress;

    again.stage = strcmp(progress->stage, "measuring") == 0 ? "re-measuring" : "new gradients";
    return show_first(context, &again);
}

/* Computes the rise in mean NLL of disabling each head, in addition to those that `base` (NULL:
 * none) disables: out (n_layers, n_heads). */
static hl_status ablate(double *out, hl_sweep *s, const float *base, const char *name)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found = NULL;
    HL_FREED float                              *gates = NULL;

    HL_NEED(hl_single_gates(&gates, s->model, base));
    HL_NEED(hl_sweep_evaluate(&found, s, s->rank_corpus, gates, s->n_singles + 1,
                              s->options.rank_tokens, name));
    hl_single_rises(out, s->model, found, s->n_singles);
    return HL_OK;
}

/* Collects the evidence that the ranker needs and that is still missing. */
static hl_status look(hl_evidence *e, hl_sweep *s, hl_ranker ranker, const float *base,
                      const char *name)
{
    /* Ablation uses the sweep's own evaluation, which can be resumed after an interruption. */
    if (ranker == HL_RANKER_ABLATION && e->ablation == NULL) {
        s->stage = base == NULL ? "ablating" : "re-ablating";
        HL_NEED(HL_ALLOC(&e->ablation, (size_t)s->n_gates));
        HL_NEED(ablate(e->ablation, s, base, name));
    }
    return hl_evidence_take(
        e, ranker, s->model, s->tokenizer, s->rank_corpus,
        &(hl_evidence_options){ .windows   = { .n_ctx      = s->options.n_ctx,
                                               .max_tokens = s->options.rank_tokens,
                                               .around     = s->options.around },
                                .seed      = s->options.seed,
                                .n_threads = s->options.n_threads,
                                .progress  = base == NULL ? show_first : show_again,
                                .context   = s });
}

/* --------------------------------------------------------------------- rankings */

/* The file is untrusted: each head of the model must appear once. */
static hl_status check_kept(const hl_sweep *s, hl_ranker ranker, const double *kept)
{
    int64_t n_heads = s->model->config->n_heads;

    for (int64_t i = 0; i < s->n_singles; i++) {
        int64_t at    = s->heads[i].layer * n_heads + s->heads[i].head;
        int     found = 0;

        for (int64_t j = 0; j < s->n_singles; j++)
            found += kept[2 * j] == (double)at;
        if (found != 1)
            return hl_fail(HL_BAD_INPUT, "the state's ranking by %s has L%lldH%lld %d times",
                           hl_ranker_name((size_t)ranker), (long long)s->heads[i].layer,
                           (long long)s->heads[i].head, found);
    }
    return HL_OK;
}

/* The state stores head, score, head, score, ... in order. */
static hl_status ranking_from(hl_ranking **out, const hl_sweep *s, hl_ranker ranker,
                              const double *kept)
{
    HL_CLOSED(hl_ranking_free) hl_ranking *ranking = NULL;
    int64_t                                n_heads = s->model->config->n_heads;

    *out = NULL;
    HL_NEED(check_kept(s, ranker, kept));
    HL_NEED(HL_ALLOC_ZEROED(&ranking, 1));
    *ranking = (hl_ranking){ .ranker        = ranker,
                             .highest_first = hl_ranker_takes_highest(ranker),
                             .n_layers      = s->model->config->n_layers,
                             .n_heads       = s->n_singles };
    HL_NEED(HL_ALLOC(&ranking->heads, (size_t)s->n_singles));
    for (int64_t i = 0; i < s->n_singles; i++) {
        int64_t at        = (int64_t)kept[2 * i];
        ranking->heads[i] = (hl_ranked){ at / n_heads, at % n_heads, kept[2 * i + 1] };
    }
    *out = hl_taken(&ranking);
    return HL_OK;
}

static hl_status keep_ranking(hl_sweep *s, const hl_ranking *ranking, const char *name)
{
    HL_FREED double *kept = NULL;

    HL_NEED(HL_ALLOC(&kept, 2 * (size_t)ranking->n_heads));
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        const hl_ranked *head = &ranking->heads[i];
        kept[2 * i]           = (double)(head->layer * s->model->config->n_heads + head->head);
        kept[2 * i + 1]       = head->score;
    }
    HL_NEED(hl_sweep_state_put(s->state, name, kept, 2 * ranking->n_heads));
    return hl_sweep_save(s, false);
}

/* Returns the ranking of that name, from the state or by measuring. */
static hl_status rank_heads(hl_ranking **out, hl_sweep *s, hl_ranker ranker, hl_evidence *e,
                            const float *base, const char *name)
{
    char          part[128];
    const double *kept = hl_sweep_state_get(s->state, name, 2 * s->n_singles);

    if (kept != NULL)
        return ranking_from(out, s, ranker, kept);
    snprintf(part, sizeof part, "%s.part", name);
    HL_NEED(look(e, s, ranker, base, part));
    HL_NEED(hl_evidence_rank(out, e, ranker, s->model, NULL));
    return keep_ranking(s, *out, name);
}

/* ---------------------------------------------------------------------- settings */

static hl_status close_gates(float *gates, const hl_sweep *s, const hl_ranking *ranking,
                             double ratio)
{
    hl_choice                                  choice = { .ratio         = ratio,
                                                          .per_layer_max = s->options.per_layer_max,
                                                          .empty_layers = s->options.empty_layers };
    HL_CLOSED(hl_head_list_free) hl_head_list *list   = NULL;

    for (int64_t i = 0; i < s->n_gates; i++)
        gates[i] = 1.0f;
    HL_NEED(hl_ranking_choose(&list, ranking, &choice));
    for (int64_t i = 0; i < list->n_heads; i++)
        gates[list->heads[i].layer * s->model->config->n_heads + list->heads[i].head] = 0.0f;
    return HL_OK;
}

static float *gates_of(const hl_sweep *s, const hl_sweep_order *order, int64_t ratio)
{
    return s->gates + (order->first + ratio) * s->n_gates;
}

/* Moves heads whose gate is 0 to the front; the others keep their order. */
static hl_status gone_first(hl_ranking *ranking, const float *gates, int64_t n_heads)
{
    HL_FREED hl_ranked *sorted = NULL;
    int64_t             n      = 0;

    HL_NEED(HL_ALLOC(&sorted, (size_t)ranking->n_heads));
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < ranking->n_heads; i++) {
            const hl_ranked *head = &ranking->heads[i];
            if ((gates[head->layer * n_heads + head->head] != 0.0f) == (pass == 1))
                sorted[n++] = *head;
        }
    }
    memcpy(ranking->heads, sorted, (size_t)n * sizeof *sorted);
    return HL_OK;
}

/* Makes the gates of ratio i from those of ratio i - 1. */
static hl_status step(hl_sweep *s, const hl_sweep_order *order, int64_t i)
{
    HL_CLOSED(hl_ranking_free) hl_ranking  *ranking = NULL;
    HL_SCOPED(hl_evidence_free) hl_evidence e       = { 0 };
    const float                            *base    = gates_of(s, order, i - 1);
    char                                    name[96];

    snprintf(name, sizeof name, "rank.%s.%d", hl_ranker_name((size_t)order->ranker), (int)i);
    HL_NEED(hl_model_set_gates(s->model, base));
    hl_status status = rank_heads(&ranking, s, order->ranker, &e, base, name);
    (void)hl_model_set_gates(s->model, NULL);
    HL_NEED(status);
    if (s->options.groups) /* a group is removed as one */
        HL_NEED(hl_ranking_group(ranking, s->model));
    HL_NEED(gone_first(ranking, base, s->model->config->n_heads));
    return close_gates(gates_of(s, order, i), s, ranking, s->ratios[i]);
}

/* Sets the gates of all ratios of an order. */
static hl_status set_order(hl_sweep *s, const hl_sweep_order *order)
{
    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        /* As long as no head is disabled, the first ranking is still right. */
        if (!order->is_iterative || i == 0 || s->ratios[i - 1] == 0.0)
            HL_NEED(close_gates(gates_of(s, order, i), s, order->ranking, s->ratios[i]));
        else
            HL_NEED(step(s, order, i));
    }
    return HL_OK;
}

static hl_status set_singles(hl_sweep *s)
{
    HL_FREED float *gates = NULL;

    HL_NEED(hl_single_gates(&gates, s->model, NULL));
    memcpy(s->gates + s->first_single * s->n_gates, gates,
           (size_t)(s->n_singles * s->n_gates) * sizeof *gates);
    return HL_OK;
}

/* ------------------------------------------------------------------------ orders */

static void list_orders(hl_sweep *s)
{
    const hl_sweep_options *o = &s->options;

    for (int64_t i = 0; i < s->n_orders; i++) {
        hl_sweep_order *order = &s->orders[i];
        order->first          = i * o->n_ratios;
        if (i < o->n_rankers) {
            order->ranker = s->rankers[i];
        } else if (i < s->n_fixed) {
            order->ranker       = s->iterative[i - o->n_rankers];
            order->is_iterative = true;
        } else {
            order->ranker = HL_RANKER_RANDOM;
            order->seed   = o->seed + (uint64_t)(i - s->n_fixed);
        }
    }
}

static hl_status allocate(hl_sweep *s)
{
    s->n_gates      = s->model->config->n_layers * s->model->config->n_heads;
    s->n_singles    = hl_model_heads(NULL, s->model);
    s->n_fixed      = s->options.n_rankers + s->options.n_iterative;
    s->n_orders     = s->n_fixed + s->options.n_seeds;
    s->first_single = s->n_orders * s->options.n_ratios;
    s->n_settings   = s->first_single + (s->options.no_singles ? 0 : s->n_singles);
    HL_NEED(HL_ALLOC(&s->heads, (size_t)s->n_singles));
    HL_NEED(HL_ALLOC_ZEROED(&s->orders, (size_t)s->n_orders));
    HL_NEED(HL_ALLOC_ZEROED(&s->n_off, (size_t)s->options.n_ratios));
    HL_NEED(
        hl_alloc((void **)&s->gates, (size_t)s->n_settings, (size_t)s->n_gates * sizeof *s->gates));
    hl_model_heads(s->heads, s->model);
    list_orders(s);
    return HL_OK;
}

static hl_status make_rankings(hl_sweep *s)
{
    HL_SCOPED(hl_evidence_free) hl_evidence e = { 0 };
    char                                    name[96];

    for (int64_t i = 0; i < s->n_orders; i++) {
        hl_sweep_order *order = &s->orders[i];

        snprintf(name, sizeof name, "rank.%s.0", hl_ranker_name((size_t)order->ranker));
        if (order->ranker == HL_RANKER_RANDOM)
            HL_NEED(hl_rank(&order->ranking, order->ranker, &(hl_rank_inputs){ .model = s->model },
                            &(hl_rank_options){ .seed = order->seed }));
        else
            HL_NEED(rank_heads(&order->ranking, s, order->ranker, &e, NULL, name));
        if (s->options.groups)
            HL_NEED(hl_ranking_group(order->ranking, s->model));
    }
    return HL_OK;
}

hl_status hl_sweep_make_orders(hl_sweep *s)
{
    HL_NEED(allocate(s));
    HL_NEED(make_rankings(s));
    for (int64_t i = 0; i < s->n_orders; i++)
        HL_NEED(set_order(s, &s->orders[i]));
    if (!s->options.no_singles)
        HL_NEED(set_singles(s));
    for (int64_t i = 0; i < s->options.n_ratios; i++) {
        for (int64_t j = 0; j < s->n_gates; j++)
            s->n_off[i] += gates_of(s, &s->orders[0], i)[j] == 0.0f;
    }
    return HL_OK;
}
