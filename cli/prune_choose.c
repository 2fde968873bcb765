/* prune_choose.c - heads by name, by a ranking, or by rankings made again and again.
 *
 * With --iterative the heads that have gone are switched off, the texts measured again and
 * the rest ranked anew.  Those that went before are put in front of every new ranking, so
 * that its first heads, up to the count of the step, are all that are gone by then, and the
 * limits of a choice hold for them together. */
#include "prune_choose.h"

#include <string.h>

#include "evidence.h"

/* ------------------------------------------------------------------------- ranking */

static bool is_listed(const hl_head_list *list, const hl_ranked *head)
{
    for (int64_t i = 0; i < list->n_heads; i++) {
        if (list->heads[i].layer == head->layer && list->heads[i].head == head->head)
            return true;
    }
    return false;
}

/* Those that are gone first, each part in its order. */
static void put_first(hl_ranking *ranking, const hl_head_list *gone)
{
    int64_t n_front = 0;

    for (int64_t i = 0; i < ranking->n_heads; i++) {
        hl_ranked head = ranking->heads[i];
        if (!is_listed(gone, &head))
            continue;
        memmove(&ranking->heads[n_front + 1], &ranking->heads[n_front],
                (size_t)(i - n_front) * sizeof head);
        ranking->heads[n_front++] = head;
    }
}

/* So many heads as the model has. */
static int64_t count_heads(const hl_model *model)
{
    int64_t       n_heads = 0;
    hl_layer_info layer;

    for (int64_t i = 0; hl_model_get_layer(&layer, model, i) == HL_OK; i++)
        n_heads += layer.n_heads;
    return n_heads;
}

/* What the choice says, with auto settled by the share of heads that it takes. */
static hl_ranker ranker_of(const hl_model *model, const hl_prune_choice *choice)
{
    double ratio = choice->choice.ratio;

    if (choice->ranker != HL_RANKER_AUTO)
        return choice->ranker;
    if (ratio <= 0.0)
        ratio = (double)choice->choice.count / (double)count_heads(model);
    return hl_ranker_default(model, choice->n_texts > 0, ratio);
}

static hl_status rank(hl_ranking **out, const hl_model *model, const hl_prune_choice *choice)
{
    hl_evidence         evidence = { 0 };
    hl_rank_options     options  = { .seed = choice->seed };
    hl_ranker           ranker   = ranker_of(model, choice);
    hl_evidence_request request  = { .ranker         = ranker,
                                     .texts          = choice->texts,
                                     .n_texts        = choice->n_texts,
                                     .tokenizer_path = choice->tokenizer_path,
                                     .windows        = choice->windows,
                                     .n_threads      = choice->n_threads,
                                     .quiet          = choice->quiet };
    hl_status           status   = HL_OK;

    *out = NULL;
    if (choice->profile_path != NULL)
        status = hl_profile_load(&evidence.profile, choice->profile_path);
    if (status == HL_OK && choice->n_texts > 0)
        status = hl_evidence_take(&evidence, model, &request);
    if (status == HL_OK) {
        hl_rank_inputs inputs = hl_evidence_inputs(&evidence, model);
        status                = hl_rank(out, ranker, &inputs, &options);
    }
    if (status == HL_OK && choice->groups)
        status = hl_ranking_group(*out, model);
    hl_evidence_free(&evidence);
    return status;
}

/* The first heads of a ranking of the model as its gates are. */
static hl_status choose_step(hl_head_list **list, const hl_model *model,
                             const hl_prune_choice *choice, const hl_choice *step)
{
    hl_ranking   *ranking = NULL;
    hl_head_list *chosen  = NULL;
    hl_status     status  = rank(&ranking, model, choice);

    if (status == HL_OK && *list != NULL)
        put_first(ranking, *list);
    if (status == HL_OK)
        status = hl_ranking_choose(&chosen, ranking, step);
    if (status == HL_OK) {
        hl_head_list_free(*list);
        *list = chosen;
    }
    hl_ranking_free(ranking);
    return status;
}

/* So many heads as the whole choice takes. */
static int64_t wanted_count(const hl_model *model, const hl_choice *choice)
{
    int64_t n_heads = count_heads(model);

    return choice->ratio > 0.0 ? (int64_t)(choice->ratio * (double)n_heads + 0.5) : choice->count;
}

static hl_status choose_iteratively(hl_head_list **list, hl_model *model,
                                    const hl_prune_choice *choice)
{
    int64_t   total  = wanted_count(model, &choice->choice);
    hl_gates *gates  = NULL;
    hl_status status = hl_gates_new(&gates, model);

    for (int64_t i = 1; i <= choice->n_steps && status == HL_OK; i++) {
        hl_choice step = choice->choice;

        step.ratio = 0.0;
        step.count = total * i / choice->n_steps;
        status     = choose_step(list, model, choice, &step);
        if (status == HL_OK) {
            hl_gates_set(gates, *list, 0.0f);
            status = hl_model_set_gates(model, gates->values);
        }
    }
    if (hl_model_set_gates(model, NULL) != HL_OK && status == HL_OK)
        status = HL_BAD_ARGUMENT;
    hl_gates_free(gates);
    return status;
}

bool hl_prune_takes_none(const hl_prune_choice *choice)
{
    return choice->heads == NULL && choice->choice.ratio <= 0.0 && choice->choice.count == 0;
}

hl_status hl_prune_choose(hl_head_list **out, hl_ranker *used, hl_model *model,
                          const hl_prune_choice *choice)
{
    hl_head_list *list   = NULL;
    hl_status     status = HL_OK;

    *out  = NULL;
    *used = HL_RANKER_AUTO;
    if (choice->heads != NULL)
        return hl_head_list_parse(out, model, choice->heads);
    if (!hl_prune_takes_none(choice))
        *used = ranker_of(model, choice);
    if (hl_prune_takes_none(choice)) /* then any order will do, and this one needs no evidence */
        status = choose_step(&list, model, &(hl_prune_choice){ .ranker = HL_RANKER_RANDOM },
                             &(hl_choice){ 0 });
    else if (choice->n_steps > 0)
        status = choose_iteratively(&list, model, choice);
    else
        status = choose_step(&list, model, choice, &choice->choice);
    if (status == HL_OK)
        *out = list;
    else
        hl_head_list_free(list);
    return status;
}
