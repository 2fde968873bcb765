/* groups.c - query heads that share a K/V head, ranked as one.
 *
 * A K/V head can only go when all its query heads do, and takes most with it then: its rows of
 * W_K and W_V, and its part of the cache.  A group's score is the mean of its heads';
 * groups stand in that order, heads of a group side by side. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "prune/rank.h"

typedef struct group {
    int64_t layer;
    int64_t first; /* head */
    int64_t n_heads;
    double  score; /* NaN if that of one head is */
} group;

typedef struct grouping {
    group     *groups; /* (n_groups) */
    int64_t    n_groups;
    int64_t   *starts; /* (n_layers) the first place of a layer in `heads` */
    hl_ranked *heads;  /* (n_heads) by layer and head */
} grouping;

/* Lowest first, what was never measured last; equals by place. */
static int compare_groups(const void *left, const void *right)
{
    const group *a = left;
    const group *b = right;

    if (isnan(a->score) != isnan(b->score))
        return isnan(a->score) ? 1 : -1;
    if (!isnan(a->score) && a->score != b->score)
        return a->score < b->score ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* How many heads of each layer go together, and where layers start. */
static hl_status read_layers(grouping *g, hl_ranking *ranking, const hl_model *model)
{
    int64_t n_heads = 0;

    for (int64_t layer = 0; layer < ranking->n_layers; layer++) {
        hl_layer_info info   = { 0 };
        hl_status     status = hl_model_get_layer(&info, model, layer);

        if (status != HL_OK)
            return status;
        g->starts[layer]       = n_heads;
        ranking->groups[layer] = info.n_kv_heads > 0 ? info.n_heads / info.n_kv_heads : 1;
        g->n_groups += info.n_kv_heads;
        n_heads += info.n_heads;
    }
    if (n_heads != ranking->n_heads)
        return hl_fail(HL_BAD_INPUT, "the ranking has %lld heads, the model %lld",
                       (long long)ranking->n_heads, (long long)n_heads);
    return HL_OK;
}

/* Groups with their scores, upside down where the highest goes first. */
static void score_groups(grouping *g, const hl_ranking *ranking)
{
    group  *out  = g->groups;
    double  sign = ranking->highest_first ? -1.0 : 1.0;
    int64_t size = 1;

    for (int64_t at = 0; at < ranking->n_heads; at += size) {
        size = ranking->groups[g->heads[at].layer];
        *out = (group){ .layer = g->heads[at].layer, .first = g->heads[at].head, .n_heads = size };
        for (int64_t i = 0; i < size; i++)
            out->score += sign * g->heads[at + i].score / (double)size;
        out++;
    }
}

static void write_order(hl_ranking *ranking, const grouping *g)
{
    hl_ranked *out = ranking->heads;

    for (int64_t i = 0; i < g->n_groups; i++) {
        const group *from = &g->groups[i];
        memcpy(out, &g->heads[g->starts[from->layer] + from->first],
               (size_t)from->n_heads * sizeof *out);
        out += from->n_heads;
    }
}

hl_status hl_ranking_group(hl_ranking *ranking, const hl_model *model)
{
    hl_status status = HL_OK;
    grouping  g      = { 0 };

    if (hl_model_get_info(model)->n_layers != ranking->n_layers)
        return hl_fail(HL_BAD_INPUT, "the ranking has %lld layers, the model %lld",
                       (long long)ranking->n_layers, (long long)hl_model_get_info(model)->n_layers);
    hl_free(ranking->groups);
    ranking->groups = NULL;
    HL_TRY(HL_ALLOC(&ranking->groups, (size_t)ranking->n_layers));
    HL_TRY(HL_ALLOC(&g.starts, (size_t)ranking->n_layers));
    HL_TRY(read_layers(&g, ranking, model));
    HL_TRY(HL_ALLOC(&g.groups, (size_t)g.n_groups));
    HL_TRY(HL_ALLOC(&g.heads, (size_t)ranking->n_heads));
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        const hl_ranked *head = &ranking->heads[i];
        if (g.starts[head->layer] + head->head < ranking->n_heads)
            g.heads[g.starts[head->layer] + head->head] = *head;
    }
    score_groups(&g, ranking);
    qsort(g.groups, (size_t)g.n_groups, sizeof *g.groups, compare_groups);
    write_order(ranking, &g);

done:
    hl_free(g.starts);
    hl_free(g.groups);
    hl_free(g.heads);
    return status;
}
