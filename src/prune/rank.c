/* rank.c - a score for every head, the pruning order, and the choice of the first heads.
 *
 *     ranker    one line of a table; score_of reads its input
 *     scores    of rankers that read one number per head; rank_scores.c has the others
 *     groups    query heads that share a KV head, ranked as one
 *     choice    the first heads of a ranking, except those that must stay
 *     table     a ranking as a table, for people and files */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/prune.h"
#include "model/backward.h"
#include "model/model.h"
#include "prune/gates.h"
#include "prune/rank_parts.h"
#include "stats/profile.h"

typedef struct ranker_spec {
    const char *name;
    const char *summary;
    bool        highest_first;
    unsigned    needs; /* HL_NEEDS_PROFILE and so on */
} ranker_spec;

static const ranker_spec rankers[HL_N_RANKERS] = {
    [HL_RANKER_AUTO]       = { "auto", "gradient if a text is given, else output-norm", false, 0 },
    [HL_RANKER_ENTROPY]    = { "entropy", "mean entropy, nats", true, HL_NEEDS_PROFILE },
    [HL_RANKER_NORMALIZED] = { "normalized", "mean normalized entropy (rows with 16 keys or more)",
                               true, HL_NEEDS_PROFILE },
    [HL_RANKER_ENTROPY_NOSINK] = { "entropy-nosink", "mean entropy without the first token, nats",
                                   true, HL_NEEDS_PROFILE },
    [HL_RANKER_RENYI2]      = { "renyi2", "mean Rényi-2 entropy, nats", true, HL_NEEDS_PROFILE },
    [HL_RANKER_OUTPUT_NORM] = { "output-norm", "output norm relative to the layer's mean", false,
                                HL_NEEDS_PROFILE },
    [HL_RANKER_WEIGHT]      = { "weight", "product of the norms of W_Q, W_K, W_V and W_O", false,
                                HL_NEEDS_MODEL },
    [HL_RANKER_GRADIENT] = { "gradient", "mean |dL/dg| over windows, g the gate of the head", false,
                             HL_NEEDS_GRADIENT },
    [HL_RANKER_ENTROPY_GRADIENT] = { "entropy-gradient",
                                     "entropy times (1 - gradient), each relative to its largest",
                                     true, HL_NEEDS_PROFILE | HL_NEEDS_GRADIENT },
    [HL_RANKER_SINK] = { "sink", "mean attention to the first token", true, HL_NEEDS_PROFILE },
    [HL_RANKER_HIES] = { "hies", "gradient plus 1 - normalized entropy, each scaled over all heads",
                         false, HL_NEEDS_PROFILE | HL_NEEDS_GRADIENT },
    [HL_RANKER_GNORM] = { "gnorm", "product of the norms of the gradients of W_Q, W_K, W_V", false,
                          HL_NEEDS_GRADIENT },
    [HL_RANKER_VARIANCE]    = { "variance", "variance of the entropies of the layer's heads", false,
                                HL_NEEDS_PROFILE },
    [HL_RANKER_FLUCTUATION] = { "fluctuation",
                                "variance of the output times |W_O|^2, standardized in its layer",
                                false, HL_NEEDS_MODEL | HL_NEEDS_MOMENTS },
    [HL_RANKER_WANDA]       = { "wanda", "root mean square of the output times |W_O|", false,
                                HL_NEEDS_MODEL | HL_NEEDS_MOMENTS },
    [HL_RANKER_RETRIEVAL]   = { "retrieval",
                                "mean share of the token to copy, in a repeated sequence", false,
                                HL_NEEDS_PROFILE | HL_NEEDS_PROBE },
    [HL_RANKER_RECEIVED]    = { "received",
                                "mean share that tokens but the first get from other positions", false,
                                HL_NEEDS_PROFILE },
    [HL_RANKER_SURGEON]     = { "surgeon", "error that is left after a repair", false,
                                HL_NEEDS_SURGEON },
    [HL_RANKER_ABLATION]    = { "ablation", "rise of the loss with this head alone disabled", false,
                                HL_NEEDS_ABLATION },
    [HL_RANKER_RANDOM]      = { "random", "random order, set by --seed", false, 0 },
};

/* ---------------------------------------------------------------------- names */

const char *hl_ranker_name(size_t ranker)
{
    return ranker < HL_N_RANKERS ? rankers[ranker].name : NULL;
}

const char *hl_ranker_summary(size_t ranker)
{
    return ranker < HL_N_RANKERS ? rankers[ranker].summary : NULL;
}

const char *hl_ranker_verdict(size_t ranker)
{
    switch (ranker) {
    case HL_RANKER_ENTROPY:
    case HL_RANKER_NORMALIZED:
    case HL_RANKER_ENTROPY_NOSINK:
    case HL_RANKER_RENYI2:
        return "In our sweeps, highest entropy first cost more than a random order (doc/sweep.md); "
               "gradient and output-norm cost less.";
    default:
        return NULL;
    }
}

hl_ranker hl_ranker_default(const hl_model *model, bool has_texts, double ratio)
{
    const double most = 0.2; /* limit from doc/sweep.md: above it, the output norm costs less */

    if (model != NULL && hl_backward_check(model) == HL_OK && has_texts && ratio <= most)
        return HL_RANKER_GRADIENT;
    return HL_RANKER_OUTPUT_NORM;
}

bool hl_ranker_takes_highest(hl_ranker ranker)
{
    return rankers[ranker].highest_first;
}

bool hl_ranker_can_reselect(hl_ranker ranker)
{
    return (rankers[ranker].needs & HL_NEEDS_TEXTS) != 0;
}

unsigned hl_ranker_needs(hl_ranker ranker)
{
    return rankers[ranker].needs;
}

hl_status hl_ranker_find(hl_ranker *out, const char *name)
{
    if (strcmp(name, "fair") == 0) /* names that earlier versions had */
        name = rankers[HL_RANKER_NORMALIZED].name;
    else if (strcmp(name, "nosink") == 0)
        name = rankers[HL_RANKER_ENTROPY_NOSINK].name;
    for (hl_ranker ranker = 0; ranker < HL_N_RANKERS; ranker++) {
        *out = ranker;
        if (strcmp(rankers[ranker].name, name) == 0)
            return HL_OK;
    }
    return hl_fail(
        HL_BAD_ARGUMENT,
        "no ranker is called '%s'; there are auto, entropy, normalized, entropy-nosink, renyi2, "
        "output-norm, weight, gradient, entropy-gradient, sink, hies, gnorm, variance, "
        "fluctuation, wanda, retrieval, received, surgeon, ablation, random",
        name);
}

/* --------------------------------------------------------------------- inputs */

static hl_status check_needs(hl_ranker ranker, const hl_rank_inputs *inputs)
{
    const ranker_spec *spec = &rankers[ranker];
    const char        *what = NULL;

    if ((spec->needs & HL_NEEDS_PROFILE) != 0 && inputs->profile == NULL)
        what = "a profile";
    else if ((spec->needs & HL_NEEDS_MODEL) != 0 && inputs->model == NULL)
        what = "the model";
    else if ((spec->needs & HL_NEEDS_GRADIENT) != 0 && inputs->gradient == NULL)
        what = "gradients, so a model and a text";
    else if ((spec->needs & HL_NEEDS_ABLATION) != 0 && inputs->ablation == NULL)
        what = "the loss with each head disabled, so a model and a text";
    else if ((spec->needs & HL_NEEDS_SURGEON) != 0 && inputs->surgeon == NULL)
        what = "the surgeon's errors, so a model and a text";
    else if ((spec->needs & HL_NEEDS_MOMENTS) != 0 && inputs->moments == NULL)
        what = "the moments of what heads write, so a model and a text";
    else if (ranker == HL_RANKER_GNORM && inputs->weight_norms == NULL)
        what = "the norms of the gradients of weights, so a model and a text";
    else if (inputs->profile == NULL && inputs->model == NULL)
        what = "a profile or a model";
    if (what == NULL)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT, "ranking by %s needs %s", spec->name, what);
}

/* Resolves AUTO to a ranker, depending on the available inputs. */
static hl_status settle(hl_ranker *ranker, const hl_rank_inputs *inputs)
{
    if (*ranker != HL_RANKER_AUTO)
        return HL_OK;
    *ranker = inputs->gradient != NULL ? HL_RANKER_GRADIENT : HL_RANKER_OUTPUT_NORM;
    if (inputs->gradient == NULL && inputs->profile == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "ranking needs a profile with output norms, "
                                        "or a model and a text for gradients");
    return HL_OK;
}

/* A profile of another model would assign scores to the wrong heads. */
static hl_status check_shapes(const hl_rank_inputs *inputs)
{
    const hl_profile *profile = inputs->profile;

    if (profile == NULL || inputs->model == NULL)
        return HL_OK;
    int64_t n_layers = hl_model_get_info(inputs->model)->n_layers;
    if (hl_profile_n_layers(profile) != n_layers)
        return hl_fail(HL_BAD_INPUT, "the profile has %lld layers, the model %lld",
                       (long long)hl_profile_n_layers(profile), (long long)n_layers);
    for (int64_t layer = 0; layer < n_layers; layer++) {
        int64_t n_heads = hl_heads_of(inputs->model, layer);
        if (hl_profile_heads_of(profile, layer) != n_heads)
            return hl_fail(HL_BAD_INPUT,
                           "layer %lld has %lld heads in the profile, %lld in the model",
                           (long long)layer, (long long)hl_profile_heads_of(profile, layer),
                           (long long)n_heads);
    }
    return HL_OK;
}

static int64_t heads_of(const hl_rank_inputs *inputs, int64_t layer)
{
    return inputs->profile != NULL ? hl_profile_heads_of(inputs->profile, layer)
                                   : hl_heads_of(inputs->model, layer);
}

static int64_t width_of(const hl_rank_inputs *inputs)
{
    return inputs->profile != NULL ? hl_profile_n_heads(inputs->profile)
                                   : hl_model_get_info(inputs->model)->n_heads;
}

/* --------------------------------------------------------------------- scores */

static double mean_of(const hl_profile *profile, const hl_ranked *at, hl_quantity quantity)
{
    return hl_profile_moments(profile, at->layer, at->head, quantity).mean;
}

/* Reads the score from a profile, or from an array of scores (n_layers, width). */
static double score_of(const hl_ranked *at, hl_ranker ranker, const hl_profile *profile,
                       const double *scores, int64_t width)
{
    switch (ranker) {
    case HL_RANKER_ENTROPY:
        return mean_of(profile, at, HL_Q_ENTROPY);
    case HL_RANKER_NORMALIZED:
        return mean_of(profile, at, HL_Q_NORMALIZED);
    case HL_RANKER_ENTROPY_NOSINK:
        return mean_of(profile, at, HL_Q_ENTROPY_NOSINK);
    case HL_RANKER_RENYI2:
        return mean_of(profile, at, HL_Q_RENYI2);
    case HL_RANKER_OUTPUT_NORM:
        return hl_profile_output_norm(profile, at->layer, at->head);
    case HL_RANKER_SINK:
        return mean_of(profile, at, HL_Q_FIRST);
    case HL_RANKER_RETRIEVAL:
        return hl_profile_probe(profile, at->layer, at->head, HL_PROBE_INDUCTION);
    case HL_RANKER_RECEIVED:
        return 1.0 - mean_of(profile, at, HL_Q_SELF) - mean_of(profile, at, HL_Q_FIRST);
    default:
        return scores[at->layer * width + at->head];
    }
}

static void score_random(hl_ranking *ranking, uint64_t seed)
{
    hl_random random = { seed };

    /* A double holds 53 bits. */
    for (int64_t i = 0; i < ranking->n_heads; i++)
        ranking->heads[i].score = (double)(hl_random_next(&random) >> 11) * 0x1p-53;
}

static hl_status score_heads(hl_ranking *ranking, const hl_rank_inputs *inputs, uint64_t seed)
{
    int64_t       width  = width_of(inputs);
    bool          done   = false;
    const double *scores = ranking->ranker == HL_RANKER_GRADIENT  ? inputs->gradient
                           : ranking->ranker == HL_RANKER_SURGEON ? inputs->surgeon
                                                                  : inputs->ablation;

    if (ranking->ranker == HL_RANKER_RANDOM) {
        score_random(ranking, seed);
        return HL_OK;
    }
    HL_NEED(hl_rank_combined(&done, ranking, inputs));
    for (int64_t i = 0; i < ranking->n_heads && !done; i++)
        ranking->heads[i].score =
            score_of(&ranking->heads[i], ranking->ranker, inputs->profile, scores, width);
    return HL_OK;
}

/* Fails if nothing was measured: NaN scores define no order. */
static hl_status check_scores(const hl_ranking *ranking)
{
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        if (!isnan(ranking->heads[i].score))
            return HL_OK;
    }
    return hl_fail(
        HL_BAD_INPUT,
        "ranking by %s: this profile does not have it; measure again, or use another ranker",
        rankers[ranking->ranker].name);
}

/* ---------------------------------------------------------------------- order */

static int compare_places(const hl_ranked *a, const hl_ranked *b)
{
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->head < b->head ? -1 : a->head > b->head;
}

static int compare_lowest(const void *left, const void *right)
{
    const hl_ranked *a = left;
    const hl_ranked *b = right;

    if (isnan(a->score) != isnan(b->score))
        return isnan(a->score) ? 1 : -1;
    if (!isnan(a->score) && a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return compare_places(a, b);
}

static int compare_highest(const void *left, const void *right)
{
    const hl_ranked *a = left;
    const hl_ranked *b = right;

    if (!isnan(a->score) && !isnan(b->score) && a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return compare_lowest(left, right);
}

/* Lists every head, without a score. */
static hl_status list_heads(hl_ranking *ranking, const hl_rank_inputs *inputs)
{
    int64_t n = 0;

    ranking->n_layers = inputs->profile != NULL ? hl_profile_n_layers(inputs->profile)
                                                : hl_model_get_info(inputs->model)->n_layers;
    for (int64_t layer = 0; layer < ranking->n_layers; layer++)
        ranking->n_heads += heads_of(inputs, layer);
    hl_status status = HL_ALLOC_ZEROED(&ranking->heads, (size_t)ranking->n_heads);
    for (int64_t layer = 0; layer < ranking->n_layers && status == HL_OK; layer++) {
        for (int64_t head = 0; head < heads_of(inputs, layer); head++)
            ranking->heads[n++] = (hl_ranked){ layer, head, NAN };
    }
    return status;
}

hl_status hl_rank(hl_ranking **out, hl_ranker ranker, const hl_rank_inputs *inputs,
                  const hl_rank_options *options)
{
    const hl_rank_options                  defaults = { 0 };
    HL_CLOSED(hl_ranking_free) hl_ranking *ranking  = NULL;

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if ((unsigned)ranker >= HL_N_RANKERS)
        return hl_fail(HL_BAD_ARGUMENT, "rank: there is no ranker %d", (int)ranker);
    HL_NEED(settle(&ranker, inputs));
    HL_NEED(check_needs(ranker, inputs));
    HL_NEED(check_shapes(inputs));
    HL_NEED(HL_ALLOC_ZEROED(&ranking, 1));
    ranking->ranker        = ranker;
    ranking->highest_first = options->order == HL_ORDER_DEFAULT
                                 ? rankers[ranker].highest_first
                                 : options->order == HL_ORDER_HIGHEST;
    if (inputs->profile != NULL && hl_profile_setting(inputs->profile, "layers") != NULL)
        HL_NEED(hl_strdup(&ranking->layers, hl_profile_setting(inputs->profile, "layers")));
    HL_NEED(list_heads(ranking, inputs));
    HL_NEED(score_heads(ranking, inputs, options->seed));
    HL_NEED(check_scores(ranking));
    qsort(ranking->heads, (size_t)ranking->n_heads, sizeof *ranking->heads,
          ranking->highest_first ? compare_highest : compare_lowest);
    if (options->places)
        HL_NEED(hl_rank_find_places(ranking, inputs));
    *out = hl_taken(&ranking);
    return HL_OK;
}

void hl_ranking_free(hl_ranking *ranking)
{
    if (ranking == NULL)
        return;
    hl_free(ranking->heads);
    hl_free(ranking->groups);
    hl_free(ranking->places);
    hl_free(ranking->layers);
    hl_free(ranking);
}

/* --------------------------------------------------------------------- groups */

/* A KV head can only be removed together with all its query heads; that saves the most: its rows
 * of W_K and W_V, and its part of the KV cache. A group's score is the mean of its heads' scores.
 * Groups are sorted by it, with the heads of a group side by side. */

typedef struct group {
    hl_ranked first; /* first head, with the group's score: NaN if any head's score is */
    int64_t   n_heads;
} group;

typedef struct grouping {
    group     *groups; /* (n_groups) */
    int64_t    n_groups;
    int64_t   *starts; /* (n_layers) index of a layer's first head in `heads` */
    hl_ranked *heads;  /* (n_heads) by layer and head */
} grouping;

static void free_grouping(grouping *g)
{
    hl_free(g->starts);
    hl_free(g->groups);
    hl_free(g->heads);
}

/* Reads the group size of each layer, and where layers start. */
static hl_status read_layers(grouping *g, hl_ranking *ranking, const hl_model *model)
{
    int64_t n_heads = 0;

    for (int64_t layer = 0; layer < ranking->n_layers; layer++) {
        hl_layer_info info = { 0 };

        HL_NEED(hl_model_get_layer(&info, model, layer));
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

/* Scores the groups; scores are negated if the highest is removed first. */
static void score_groups(grouping *g, const hl_ranking *ranking)
{
    group  *out  = g->groups;
    double  sign = ranking->highest_first ? -1.0 : 1.0;
    int64_t size = 1;

    for (int64_t at = 0; at < ranking->n_heads; at += size) {
        size = ranking->groups[g->heads[at].layer];
        *out = (group){ { g->heads[at].layer, g->heads[at].head, 0.0 }, size };
        for (int64_t i = 0; i < size; i++)
            out->first.score += sign * g->heads[at + i].score / (double)size;
        out++;
    }
}

static void write_order(hl_ranking *ranking, const grouping *g)
{
    hl_ranked *out = ranking->heads;

    for (int64_t i = 0; i < g->n_groups; i++) {
        const group *from = &g->groups[i];
        memcpy(out, &g->heads[g->starts[from->first.layer] + from->first.head],
               (size_t)from->n_heads * sizeof *out);
        out += from->n_heads;
    }
}

hl_status hl_ranking_group(hl_ranking *ranking, const hl_model *model)
{
    HL_SCOPED(free_grouping) grouping g = { 0 };

    if (hl_model_get_info(model)->n_layers != ranking->n_layers)
        return hl_fail(HL_BAD_INPUT, "the ranking has %lld layers, the model %lld",
                       (long long)ranking->n_layers, (long long)hl_model_get_info(model)->n_layers);
    hl_free(ranking->groups);
    ranking->groups = NULL;
    hl_free(ranking->places); /* groups are in another order */
    ranking->places = NULL;
    HL_NEED(HL_ALLOC(&ranking->groups, (size_t)ranking->n_layers));
    HL_NEED(HL_ALLOC(&g.starts, (size_t)ranking->n_layers));
    HL_NEED(read_layers(&g, ranking, model));
    HL_NEED(HL_ALLOC(&g.groups, (size_t)g.n_groups));
    HL_NEED(HL_ALLOC(&g.heads, (size_t)ranking->n_heads));
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        const hl_ranked *head = &ranking->heads[i];
        if (g.starts[head->layer] + head->head < ranking->n_heads)
            g.heads[g.starts[head->layer] + head->head] = *head;
    }
    score_groups(&g, ranking);
    qsort(g.groups, (size_t)g.n_groups, sizeof *g.groups, compare_lowest); /* sorts by `first` */
    write_order(ranking, &g);
    return HL_OK;
}

/* --------------------------------------------------------------------- choice */

static hl_status wanted_count(int64_t *out, const hl_ranking *ranking, const hl_choice *choice)
{
    if (!(choice->ratio >= 0.0 && choice->ratio <= 1.0))
        return hl_fail(HL_BAD_ARGUMENT, "a ratio of %g, wanted 0 to 1", choice->ratio);
    if (choice->count < 0 || choice->per_layer_max < 0)
        return hl_fail(HL_BAD_ARGUMENT, "%lld heads, at most %lld per layer: wanted 0 or more",
                       (long long)choice->count, (long long)choice->per_layer_max);
    *out = choice->ratio > 0.0 ? (int64_t)floor(choice->ratio * (double)ranking->n_heads + 0.5)
                               : choice->count;
    return HL_OK;
}

/* Returns the number of heads of a layer that are removed together. */
static int64_t group_of(const hl_ranking *ranking, int64_t layer)
{
    return ranking->groups != NULL ? ranking->groups[layer] : 1;
}

/* Must one of the heads that are removed together be kept? */
static bool is_kept(const hl_choice *choice, const hl_ranked *heads, int64_t size)
{
    for (int64_t k = 0; choice->keep != NULL && k < choice->keep->n_heads; k++) {
        for (int64_t i = 0; i < size; i++) {
            if (choice->keep->heads[k].layer == heads[i].layer &&
                choice->keep->heads[k].head == heads[i].head)
                return true;
        }
    }
    return false;
}

/* Counts the heads that each layer can lose, in whole groups: left (n_layers). Returns the sum. */
static int64_t count_room(int64_t *left, const hl_ranking *ranking, const hl_choice *choice)
{
    HL_FREED int64_t *n_kept = NULL;
    int64_t           size = 0, sum = 0;

    if (HL_ALLOC_ZEROED(&n_kept, (size_t)ranking->n_layers) != HL_OK)
        return -1;
    for (int64_t i = 0; i < ranking->n_heads; i += size) {
        const hl_ranked *head = &ranking->heads[i];

        size = group_of(ranking, head->layer);
        left[head->layer] += size;
        n_kept[head->layer] += is_kept(choice, head, size) ? size : 0;
    }
    for (int64_t layer = 0; layer < ranking->n_layers; layer++) {
        if (!choice->empty_layers && left[layer] > 0 && n_kept[layer] == 0)
            left[layer]--;
        left[layer] -= n_kept[layer];
        if (choice->per_layer_max > 0 && left[layer] > choice->per_layer_max)
            left[layer] = choice->per_layer_max;
        left[layer] -= left[layer] % group_of(ranking, layer);
        sum += left[layer];
    }
    return sum;
}

/* Stops when another group would be further from the target than none. */
static void take_first(hl_head_list *list, int64_t *left, const hl_ranking *ranking,
                       const hl_choice *choice, int64_t count)
{
    int64_t size = 0;

    for (int64_t i = 0; i < ranking->n_heads && list->n_heads < count; i += size) {
        const hl_ranked *head = &ranking->heads[i];

        size = group_of(ranking, head->layer);
        if (left[head->layer] == 0 || is_kept(choice, head, size))
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
    HL_CLOSED(hl_head_list_free) hl_head_list *list  = NULL;
    HL_FREED int64_t                          *left  = NULL;
    int64_t                                    count = 0;

    *out = NULL;
    HL_NEED(wanted_count(&count, ranking, choice));
    HL_NEED(HL_ALLOC_ZEROED(&left, (size_t)ranking->n_layers));
    int64_t room = count_room(left, ranking, choice);
    if (room < 0)
        return HL_NO_MEMORY;
    if (count > room)
        return hl_fail(
            HL_BAD_ARGUMENT, "%lld of %lld heads are to be removed, but only %lld can be%s%s%s%s",
            (long long)count, (long long)ranking->n_heads, (long long)room,
            ranking->groups != NULL ? " in whole groups" : "",
            choice->empty_layers ? "" : ": every layer keeps one (--empty-layers allows more)",
            choice->per_layer_max > 0 ? ", and --per-layer-max limits each layer" : "",
            choice->keep != NULL ? "; heads to keep stay" : "");
    HL_NEED(HL_ALLOC_ZEROED(&list, 1));
    HL_NEED(HL_ALLOC(&list->heads, (size_t)room));
    take_first(list, left, ranking, choice, count);
    *out = hl_taken(&list);
    return HL_OK;
}

hl_status hl_ranking_room(int64_t *out, const hl_ranking *ranking, const hl_choice *choice)
{
    HL_FREED int64_t *left = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&left, (size_t)ranking->n_layers));
    *out = count_room(left, ranking, choice);
    return *out >= 0 ? HL_OK : HL_NO_MEMORY;
}

/* ---------------------------------------------------------------------- table */

/* Every row names the ranker, because CSV has no place for facts about the table. */
#define HEAD_COLUMNS "rank:i name:t layer:i head:i score:6 ranker:t"

/* Writes the KV head, and the mean score of its query heads, which are side by side. */
static void put_group(hl_sheet *table, const hl_ranking *ranking, int64_t i)
{
    const hl_ranked *head = &ranking->heads[i];
    int64_t          size = ranking->groups[head->layer];
    const hl_ranked *all  = head - head->head % size;
    double           sum  = 0.0;

    for (int64_t k = 0; k < size; k++)
        sum += all[k].score;
    hl_sheet_put_int(table, head->head / size);
    hl_sheet_put_real(table, sum / (double)size);
}

static void put_place(hl_sheet *table, const hl_rank_place *place)
{
    bool known = place->first > 0;

    hl_sheet_put_reals(table, place->interval.low, place->interval.high,
                       known ? (double)place->first : NAN, known ? (double)place->last : NAN);
}

hl_status hl_ranking_sheet(hl_sheet **out, const hl_ranking *ranking, int64_t count)
{
    hl_sheet *table = NULL;
    char      name[HL_HEAD_NAME_BYTES];

    *out = NULL;
    HL_NEED(hl_sheet_new(&table, "ranking", "Heads in pruning order",
                         ranking->groups != NULL   ? HEAD_COLUMNS " kv_head:i group_score:6"
                         : ranking->places != NULL ? HEAD_COLUMNS
                             " score_low:6 score_high:6 rank_low:0 rank_high:0"
                                                   : HEAD_COLUMNS));
    if (count == 0 || count > ranking->n_heads)
        count = ranking->n_heads;
    for (int64_t i = 0; i < count; i++) {
        const hl_ranked *head = &ranking->heads[i];

        hl_sheet_put_int(table, i + 1);
        hl_sheet_put_text(table, "%s",
                          hl_head_name_among(name, ranking->layers, head->layer, head->head));
        hl_sheet_put_int(table, head->layer);
        hl_sheet_put_int(table, head->head);
        hl_sheet_put_real(table, head->score);
        hl_sheet_put_text(table, "%s", hl_ranker_name((size_t)ranking->ranker));
        if (ranking->places != NULL)
            put_place(table, &ranking->places[i]);
        if (ranking->groups != NULL)
            put_group(table, ranking, i);
    }
    hl_sheet_fact_text(table, "ranker", "%s", hl_ranker_name(ranking->ranker));
    hl_sheet_fact_text(table, "score", "%s", hl_ranker_summary(ranking->ranker));
    hl_sheet_fact_text(table, "order", "%s first", ranking->highest_first ? "highest" : "lowest");
    if (hl_ranker_verdict((size_t)ranking->ranker) != NULL && ranking->highest_first)
        hl_sheet_fact_text(table, "verdict", "%s", hl_ranker_verdict((size_t)ranking->ranker));
    hl_sheet_fact_real(table, "heads", (double)ranking->n_heads);
    if (ranking->places != NULL)
        hl_sheet_fact_interval(table, &ranking->places[0].interval);
    else if (ranking->groups == NULL)
        hl_sheet_fact_text(table, "interval", "none: the score is not known per window");
    return hl_sheet_hand_over(out, table, HL_OK);
}
