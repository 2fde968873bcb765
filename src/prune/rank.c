/* rank.c - a score for every head, and the order in which they would go.
 *
 * What a ranker is stands in one table; what it reads, in score_of.  Two scores need more than
 * one head: entropy-gradient, which is a product of two scales, and weight, whose norms are
 * computed for all heads at once (rank_weights.c). */
#include "prune/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/random.h"
#include "base/memory.h"
#include "base/status.h"
#include "prune/heads.h"

/* What a ranker cannot do without. */
enum {
    NEEDS_PROFILE  = 1 << 0,
    NEEDS_MODEL    = 1 << 1,
    NEEDS_GRADIENT = 1 << 2,
    NEEDS_ABLATION = 1 << 3,
};

typedef struct ranker_spec {
    const char *name;
    const char *summary;
    bool        highest_first;
    unsigned    needs;
} ranker_spec;

static const ranker_spec rankers[HL_N_RANKERS] = {
    [HL_RANKER_AUTO] = { "auto", "gradient where there are texts to take it on, else output-norm",
                         false, 0 },
    [HL_RANKER_ENTROPY]     = { "entropy", "mean entropy of all rows, nats", true, NEEDS_PROFILE },
    [HL_RANKER_FAIR]        = { "fair", "mean entropy over ln n, rows of 16 keys or more", true,
                                NEEDS_PROFILE },
    [HL_RANKER_NOSINK]      = { "nosink", "mean entropy over the keys but the first, nats", true,
                                NEEDS_PROFILE },
    [HL_RANKER_RENYI2]      = { "renyi2", "mean collision entropy, nats", true, NEEDS_PROFILE },
    [HL_RANKER_OUTPUT_NORM] = { "output-norm", "norm of what it writes over the layer's mean",
                                false, NEEDS_PROFILE },
    [HL_RANKER_WEIGHT]      = { "weight", "product of the norms of W_Q, W_K, W_V, W_O", false,
                                NEEDS_MODEL },
    [HL_RANKER_GRADIENT]    = { "gradient", "mean over windows of |dL/dg|", false, NEEDS_GRADIENT },
    [HL_RANKER_ENTROPY_GRADIENT] = { "entropy-gradient",
                                     "entropy times 1 - gradient, each over its largest", true,
                                     NEEDS_PROFILE | NEEDS_GRADIENT },
    [HL_RANKER_SINK]             = { "sink", "mean share of the first key", true, NEEDS_PROFILE },
    [HL_RANKER_ABLATION]         = { "ablation", "rise of the loss without this head alone", false,
                                     NEEDS_ABLATION },
    [HL_RANKER_RANDOM]           = { "random", "an order drawn by seed", false, 0 },
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
    case HL_RANKER_FAIR:
    case HL_RANKER_NOSINK:
    case HL_RANKER_RENYI2:
        return "In our sweeps, highest entropy first cost more than a random order (doc/sweep.md); "
               "gradient and output-norm cost less.";
    default:
        return NULL;
    }
}

hl_ranker hl_ranker_default(const hl_model *model, bool has_texts, double ratio)
{
    const double most = 0.2; /* doc/sweep.md: beyond, the output norm costs less */

    if (model != NULL && !hl_model_get_info(model)->is_encoder && has_texts && ratio <= most)
        return HL_RANKER_GRADIENT;
    return HL_RANKER_OUTPUT_NORM;
}

bool hl_ranker_takes_highest(hl_ranker ranker)
{
    return rankers[ranker].highest_first;
}

hl_status hl_ranker_find(hl_ranker *out, const char *name)
{
    for (hl_ranker ranker = 0; ranker < HL_N_RANKERS; ranker++) {
        *out = ranker;
        if (strcmp(rankers[ranker].name, name) == 0)
            return HL_OK;
    }
    return hl_fail(HL_BAD_ARGUMENT,
                   "no ranker is called '%s': there are auto, entropy, fair, nosink, renyi2, "
                   "output-norm, weight, gradient, entropy-gradient, sink, ablation, random",
                   name);
}

/* --------------------------------------------------------------------- inputs */

static hl_status check_needs(hl_ranker ranker, const hl_rank_inputs *inputs)
{
    const ranker_spec *spec = &rankers[ranker];
    const char        *what = NULL;

    if ((spec->needs & NEEDS_PROFILE) != 0 && inputs->profile == NULL)
        what = "a profile";
    else if ((spec->needs & NEEDS_MODEL) != 0 && inputs->model == NULL)
        what = "the model";
    else if ((spec->needs & NEEDS_GRADIENT) != 0 && inputs->gradient == NULL)
        what = "the gradients of gates, so a model and a text";
    else if ((spec->needs & NEEDS_ABLATION) != 0 && inputs->ablation == NULL)
        what = "the loss without each head, so a model and a text";
    else if (inputs->profile == NULL && inputs->model == NULL)
        what = "a profile or a model";
    if (what == NULL)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT, "ranking by %s needs %s", spec->name, what);
}

/* The ranker that AUTO stands for, given what is there. */
static hl_status settle(hl_ranker *ranker, const hl_rank_inputs *inputs)
{
    if (*ranker != HL_RANKER_AUTO)
        return HL_OK;
    *ranker = inputs->gradient != NULL ? HL_RANKER_GRADIENT : HL_RANKER_OUTPUT_NORM;
    if (inputs->gradient == NULL && inputs->profile == NULL)
        return hl_fail(HL_BAD_ARGUMENT,
                       "ranking needs a profile, for the output norms of heads, or "
                       "the gradients of gates, so a model and a text");
    return HL_OK;
}

/* A profile of another model would put scores on heads that do not have them. */
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

/* From a profile, or from an array of scores (n_layers, width). */
static double score_of(const hl_ranked *at, hl_ranker ranker, const hl_profile *profile,
                       const double *scores, int64_t width)
{
    switch (ranker) {
    case HL_RANKER_ENTROPY:
        return mean_of(profile, at, HL_Q_ENTROPY);
    case HL_RANKER_FAIR:
        return mean_of(profile, at, HL_Q_FAIR);
    case HL_RANKER_NOSINK:
        return mean_of(profile, at, HL_Q_NOSINK);
    case HL_RANKER_RENYI2:
        return mean_of(profile, at, HL_Q_RENYI2);
    case HL_RANKER_OUTPUT_NORM:
        return hl_profile_output_norm(profile, at->layer, at->head);
    case HL_RANKER_SINK:
        return mean_of(profile, at, HL_Q_FIRST);
    default:
        return scores[at->layer * width + at->head];
    }
}

static void score_random(hl_ranking *ranking, uint64_t seed)
{
    hl_random random = { seed };

    /* 53 bits: a double holds them. */
    for (int64_t i = 0; i < ranking->n_heads; i++)
        ranking->heads[i].score = (double)(hl_random_next(&random) >> 11) * 0x1p-53;
}

/* Diffuse, and of little effect: both on a scale from 0 to 1. */
static void score_product(hl_ranking *ranking, const hl_profile *profile, const double *gradient,
                          int64_t width)
{
    double most_entropy  = 0.0;
    double most_gradient = 0.0;

    for (int64_t i = 0; i < ranking->n_heads; i++) {
        const hl_ranked *at = &ranking->heads[i];
        most_entropy        = fmax(most_entropy, mean_of(profile, at, HL_Q_ENTROPY));
        most_gradient       = fmax(most_gradient, fabs(gradient[at->layer * width + at->head]));
    }
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        hl_ranked *at    = &ranking->heads[i];
        double     slope = fabs(gradient[at->layer * width + at->head]);

        at->score = mean_of(profile, at, HL_Q_ENTROPY) / (most_entropy > 0.0 ? most_entropy : 1.0) *
                    (1.0 - slope / (most_gradient > 0.0 ? most_gradient : 1.0));
    }
}

static hl_status score_heads(hl_ranking *ranking, const hl_rank_inputs *inputs, uint64_t seed)
{
    hl_status     status = HL_OK;
    int64_t       width  = width_of(inputs);
    double       *norms  = NULL;
    const double *scores =
        ranking->ranker == HL_RANKER_GRADIENT ? inputs->gradient : inputs->ablation;

    if (ranking->ranker == HL_RANKER_RANDOM) {
        score_random(ranking, seed);
        return HL_OK;
    }
    if (ranking->ranker == HL_RANKER_ENTROPY_GRADIENT) {
        score_product(ranking, inputs->profile, inputs->gradient, width);
        return HL_OK;
    }
    if (ranking->ranker == HL_RANKER_WEIGHT) {
        HL_TRY(hl_rank_weights(&norms, inputs->model));
        scores = norms;
    }
    for (int64_t i = 0; i < ranking->n_heads; i++)
        ranking->heads[i].score =
            score_of(&ranking->heads[i], ranking->ranker, inputs->profile, scores, width);

done:
    hl_free(norms);
    return status;
}

/* Something must have been measured: a ranking of NaNs is an order of nothing. */
static hl_status check_scores(const hl_ranking *ranking)
{
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        if (!isnan(ranking->heads[i].score))
            return HL_OK;
    }
    return hl_fail(HL_BAD_INPUT,
                   "ranking by %s: the profile does not hold it; measure again, or rank by another",
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

/* Every head, without a score. */
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
    hl_status             status   = HL_OK;
    const hl_rank_options defaults = { 0 };
    hl_ranking           *ranking  = NULL;

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if ((unsigned)ranker >= HL_N_RANKERS)
        return hl_fail(HL_BAD_ARGUMENT, "rank: there is no ranker %d", (int)ranker);
    HL_TRY(settle(&ranker, inputs));
    HL_TRY(check_needs(ranker, inputs));
    HL_TRY(check_shapes(inputs));
    HL_TRY(HL_ALLOC_ZEROED(&ranking, 1));
    ranking->ranker        = ranker;
    ranking->highest_first = options->order == HL_ORDER_DEFAULT
                                 ? rankers[ranker].highest_first
                                 : options->order == HL_ORDER_HIGHEST;
    HL_TRY(list_heads(ranking, inputs));
    HL_TRY(score_heads(ranking, inputs, options->seed));
    HL_TRY(check_scores(ranking));
    qsort(ranking->heads, (size_t)ranking->n_heads, sizeof *ranking->heads,
          ranking->highest_first ? compare_highest : compare_lowest);
    *out    = ranking;
    ranking = NULL;

done:
    hl_ranking_free(ranking);
    return status;
}

void hl_ranking_free(hl_ranking *ranking)
{
    if (ranking == NULL)
        return;
    hl_free(ranking->heads);
    hl_free(ranking->groups);
    hl_free(ranking);
}
