/* choose.c - the first heads of a ranking, but for those that must stay. */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight.h"

static hl_status wanted_count(int64_t *out, const hl_ranking *ranking, const hl_choice *choice)
{
    if (!(choice->ratio >= 0.0 && choice->ratio <= 1.0))
        return hl_fail(HL_BAD_ARGUMENT, "a ratio of %g, wanted 0 to 1", choice->ratio);
    if (choice->count < 0 || choice->per_layer_max < 0)
        return hl_fail(HL_BAD_ARGUMENT, "%lld heads, at most %lld a layer: wanted 0 or more",
                       (long long)choice->count, (long long)choice->per_layer_max);
    *out = choice->ratio > 0.0 ? (int64_t)floor(choice->ratio * (double)ranking->n_heads + 0.5)
                               : choice->count;
    return HL_OK;
}

/* How many heads of a layer go together. */
static int64_t group_of(const hl_ranking *ranking, int64_t layer)
{
    return ranking->groups != NULL ? ranking->groups[layer] : 1;
}

/* How many heads each layer can give, in whole groups: left (n_layers); and the sum. */
static int64_t count_room(int64_t *left, const hl_ranking *ranking, const hl_choice *choice)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < ranking->n_heads; i++)
        left[ranking->heads[i].layer]++;
    for (int64_t layer = 0; layer < ranking->n_layers; layer++) {
        if (!choice->empty_layers && left[layer] > 0)
            left[layer]--;
        if (choice->per_layer_max > 0 && left[layer] > choice->per_layer_max)
            left[layer] = choice->per_layer_max;
        left[layer] -= left[layer] % group_of(ranking, layer);
        sum += left[layer];
    }
    return sum;
}

/* Until another group would be further off than none. */
static void take_first(hl_head_list *list, int64_t *left, const hl_ranking *ranking, int64_t count)
{
    int64_t size = 0;

    for (int64_t i = 0; i < ranking->n_heads && list->n_heads < count; i += size) {
        const hl_ranked *head = &ranking->heads[i];

        size = group_of(ranking, head->layer);
        if (left[head->layer] == 0)
            continue;
        if (list->n_heads + size - count >= count - list->n_heads)
            return;
        left[head->layer] -= size;
        for (int64_t k = 0; k < size; k++)
            list->heads[list->n_heads++] = (hl_head){ head[k].layer, head[k].head };
    }
}

hl_status hl_ranking_choose(hl_head_list **out, const hl_ranking *ranking, const hl_choice *choice)
{
    hl_status     status = HL_OK;
    hl_head_list *list   = NULL;
    int64_t      *left   = NULL;
    int64_t       count  = 0;

    *out = NULL;
    HL_TRY(wanted_count(&count, ranking, choice));
    HL_TRY(HL_ALLOC_ZEROED(&left, (size_t)ranking->n_layers));
    int64_t room = count_room(left, ranking, choice);
    if (count > room) {
        status =
            hl_fail(HL_BAD_ARGUMENT, "%lld of %lld heads wanted, %lld can go%s%s%s",
                    (long long)count, (long long)ranking->n_heads, (long long)room,
                    ranking->groups != NULL ? " in whole groups" : "",
                    choice->empty_layers ? "" : ": one stays in every layer",
                    choice->per_layer_max > 0 ? ", and a layer gives no more than its limit" : "");
        goto done;
    }
    HL_TRY(HL_ALLOC_ZEROED(&list, 1));
    HL_TRY(HL_ALLOC(&list->heads, (size_t)room));
    take_first(list, left, ranking, count);
    *out = list;
    list = NULL;

done:
    hl_head_list_free(list);
    hl_free(left);
    return status;
}
