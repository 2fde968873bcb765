/* reselect.c - rank heads, disable the first, repair the model if asked, rank the others again. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight/sweep.h"
#include "model/model.h"
#include "prune/gates.h"
#include "prune/repair.h"

typedef struct reselection {
    hl_model                  *model;
    hl_ranker                  ranker;
    const hl_tokenizer        *tokenizer;
    const hl_corpus           *corpus;
    const hl_reselect_options *options;
    hl_ranking                *ranking; /* ranking of the last step */
    hl_ranked                 *gone; /* (n_gone) heads in the order in which they were disabled */
    int64_t                    n_gone;
    hl_repair                 *repair; /* of the model without them; NULL: not repaired */
} reselection;

static bool has_gone(const reselection *r, const hl_ranked *head)
{
    for (int64_t i = 0; i < r->n_gone; i++) {
        if (r->gone[i].layer == head->layer && r->gone[i].head == head->head)
            return true;
    }
    return false;
}

/* Moves the disabled heads to the front, in their order and with the scores that they had. */
static void put_first(reselection *r)
{
    hl_ranked *heads = r->ranking->heads;
    int64_t    at    = r->ranking->n_heads;

    for (int64_t i = r->ranking->n_heads - 1; i >= 0; i--) {
        if (!has_gone(r, &heads[i]))
            heads[--at] = heads[i];
    }
    memcpy(heads, r->gone, (size_t)r->n_gone * sizeof *heads);
}

static void undo_repair(reselection *r)
{
    (void)hl_model_set_repair(r->model, NULL);
    hl_repair_free(r->repair);
    r->repair = NULL;
}

/* Repairs the original for the heads that are gone: a repair sets gates itself. */
static hl_status repair(reselection *r, const hl_gates *gates)
{
    const hl_evidence_options *e       = &r->options->evidence;
    hl_repair_options          options = { .windows   = e->windows,
                                           .n_threads = e->n_threads,
                                           .progress  = e->progress,
                                           .context   = e->context };
    HL_FREED hl_head          *gone    = NULL;

    undo_repair(r);
    options.windows.stride = options.windows.n_batch = 0;
    HL_NEED(HL_ALLOC(&gone, (size_t)r->n_gone));
    for (int64_t i = 0; i < r->n_gone; i++)
        gone[i] = (hl_head){ r->gone[i].layer, r->gone[i].head };
    HL_NEED(hl_model_set_gates(r->model, NULL));
    HL_NEED(hl_repair_heads(&r->repair, r->model, r->corpus, &(hl_head_list){ gone, r->n_gone },
                            &options));
    HL_NEED(hl_model_set_repair(r->model, r->repair));
    return hl_model_set_gates(r->model, gates->values);
}

/* Ranks the heads of the model with its present gates, repaired if asked. */
static hl_status rank(reselection *r, const hl_gates *gates)
{
    HL_SCOPED(hl_evidence_free) hl_evidence evidence = { 0 };

    hl_ranking_free(r->ranking);
    r->ranking = NULL;
    if (r->options->repair && r->n_gone > 0)
        HL_NEED(repair(r, gates));
    HL_NEED(hl_evidence_take(&evidence, r->ranker, r->model, r->tokenizer, r->corpus,
                             &r->options->evidence));
    HL_NEED(hl_evidence_rank(&r->ranking, &evidence, r->ranker, r->model, &r->options->rank));
    if (r->options->groups)
        HL_NEED(hl_ranking_group(r->ranking, r->model));
    put_first(r);
    return HL_OK;
}

/* Disables the first `count` heads. */
static hl_status take(reselection *r, hl_gates *gates, int64_t count)
{
    HL_CLOSED(hl_head_list_free) hl_head_list *list   = NULL;
    hl_choice                                  choice = r->options->choice;

    choice.ratio = 0.0;
    choice.count = count;
    HL_NEED(hl_ranking_choose(&list, r->ranking, &choice));
    for (int64_t i = 0; i < r->ranking->n_heads; i++) {
        hl_ranked *head = &r->ranking->heads[i];

        for (int64_t k = 0; k < list->n_heads; k++) {
            if (list->heads[k].layer == head->layer && list->heads[k].head == head->head &&
                !has_gone(r, head))
                r->gone[r->n_gone++] = *head;
        }
    }
    put_first(r);
    hl_gates_set(gates, list, 0.0f);
    return hl_model_set_gates(r->model, gates->values);
}

static hl_status run(reselection *r)
{
    HL_CLOSED(hl_gates_free) hl_gates *gates  = NULL;
    const hl_choice                   *choice = &r->options->choice;
    int64_t                            total  = choice->count;
    int64_t                            before = -1;

    HL_NEED(hl_gates_new(&gates, r->model));
    HL_NEED(rank(r, gates));
    HL_NEED(HL_ALLOC(&r->gone, (size_t)r->ranking->n_heads));
    if (choice->ratio > 0.0)
        total = (int64_t)floor(choice->ratio * (double)r->ranking->n_heads + 0.5);
    int64_t n_steps = r->options->n_steps > 0 ? r->options->n_steps : total;
    for (int64_t i = 1; i <= n_steps; i++) {
        if (r->n_gone > before && i > 1) /* otherwise the ranking is still right */
            HL_NEED(rank(r, gates));
        before = r->n_gone;
        HL_NEED(take(r, gates, total * i / n_steps));
    }
    return HL_OK;
}

static void free_reselection(reselection *r)
{
    hl_ranking_free(r->ranking);
    hl_free(r->gone);
}

hl_status hl_rank_reselected(hl_ranking **out, hl_model *model, hl_ranker ranker,
                             const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                             const hl_reselect_options *options)
{
    HL_SCOPED(free_reselection)
    reselection r = { .model     = model,
                      .ranker    = ranker,
                      .tokenizer = tokenizer,
                      .corpus    = corpus,
                      .options   = options };

    *out = NULL;
    if ((unsigned)ranker >= HL_N_RANKERS || !hl_ranker_can_reselect(ranker))
        return hl_fail(HL_BAD_ARGUMENT, "%s looks at no text, so it has nothing to look at again",
                       (unsigned)ranker < HL_N_RANKERS ? hl_ranker_name((size_t)ranker) : "auto");
    if (options->repair)
        HL_NEED(hl_repair_check(model));
    HL_NEED(hl_model_set_gates(model, NULL));
    hl_status status = run(&r);
    undo_repair(&r);
    (void)hl_model_set_gates(model, NULL);
    HL_NEED(status);
    *out = hl_taken(&r.ranking);
    return HL_OK;
}
