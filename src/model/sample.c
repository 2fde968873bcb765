/* sample.c - draws a token from logits, in the steps that headlight.h describes.
 *
 * Weights are exp((score - max) / T) in double: the most likely token weighs 1, so min_p is a plain
 * threshold and no sum overflows.  top_k and top_p need a few tokens in the order of falling
 * scores.  A heap of all tokens, built in O(V), gives them one by one, in O(log V) each.  Equal
 * scores are ordered by rising token, so results do not depend on a library's sort.  With a device,
 * only few tokens enter the heap (kernels/pick.h). */
#include "model/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernels/logits.h"

enum { MAX_SAMPLED_VOCAB = 1 << 28, MAX_REPEAT_LAST = 1 << 30 };

struct hl_sampler {
    hl_sample_options options;
    int64_t           d_vocab;
    uint64_t          n_draws;
    float            *scores; /* (d_vocab) logits after the penalty */
    float             max;    /* largest score */
    int32_t          *heap;   /* (d_vocab) tokens that may be drawn, in the order of loading;
                               * then a heap with the best first */
    int64_t           n_heap;
    hl_candidate     *kept; /* (d_vocab) `probability` holds the weight at first */
    int64_t           n_kept;
    int32_t          *counts;   /* (d_vocab) how often each token is among the last, or NULL */
    uint32_t         *repeated; /* (d_vocab) bits of the tokens whose count is not 0, or NULL */
    int64_t          *last;     /* (repeat_last) a ring buffer; NULL: no token is forgotten */
    int64_t           n_last;
};

/* -------------------------------------------------------------------- options */

static hl_status check_options(const hl_sample_options *options, int64_t d_vocab)
{
    HL_NEED(hl_check_number("sampling: d_vocab", (double)d_vocab, 1, MAX_SAMPLED_VOCAB));
    HL_NEED(hl_check_number("sampling: temperature", options->temperature, 0, 1e6));
    HL_NEED(hl_check_number("sampling: top_k", (double)options->top_k, 0, (double)INT64_MAX));
    HL_NEED(hl_check_number("sampling: top_p", options->top_p, 0, 1));
    HL_NEED(hl_check_number("sampling: min_p", options->min_p, 0, 1));
    if (options->repeat_penalty != 0.0)
        HL_NEED(hl_check_number("sampling: repeat_penalty", options->repeat_penalty, 1e-3, 1e3));
    return hl_check_number("sampling: repeat_last", (double)options->repeat_last, 0,
                           MAX_REPEAT_LAST);
}

static bool has_penalty(const hl_sampler *sampler)
{
    double penalty = sampler->options.repeat_penalty;
    return penalty != 0.0 && penalty != 1.0;
}

static bool has_top_k(const hl_sampler *sampler)
{
    return sampler->options.top_k > 0 && sampler->options.top_k < sampler->d_vocab;
}

static bool has_top_p(const hl_sampler *sampler)
{
    return sampler->options.top_p > 0.0 && sampler->options.top_p < 1.0;
}

HL_CLOSES(hl_sampler_free, hl_sampler)

hl_status hl_sampler_new(hl_sampler **out, int64_t d_vocab, const hl_sample_options *options)
{
    HL_CLOSED(hl_sampler_free) hl_sampler *sampler = NULL;
    size_t                                 n       = (size_t)d_vocab;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&sampler, 1));
    if (options != NULL)
        sampler->options = *options;
    HL_NEED(check_options(&sampler->options, d_vocab));
    sampler->d_vocab = d_vocab;
    HL_NEED(HL_ALLOC(&sampler->scores, n));
    HL_NEED(HL_ALLOC(&sampler->heap, n));
    HL_NEED(HL_ALLOC(&sampler->kept, n));
    if (has_penalty(sampler))
        HL_NEED(HL_ALLOC_ZEROED(&sampler->counts, n));
    if (has_penalty(sampler))
        HL_NEED(HL_ALLOC_ZEROED(&sampler->repeated, (n + 31) / 32));
    if (has_penalty(sampler) && sampler->options.repeat_last > 0)
        HL_NEED(HL_ALLOC(&sampler->last, (size_t)sampler->options.repeat_last));
    *out = hl_taken(&sampler);
    return HL_OK;
}

void hl_sampler_free(hl_sampler *sampler)
{
    if (sampler == NULL)
        return;
    hl_free(sampler->scores);
    hl_free(sampler->heap);
    hl_free(sampler->kept);
    hl_free(sampler->counts);
    hl_free(sampler->repeated);
    hl_free(sampler->last);
    hl_free(sampler);
}

/* ------------------------------------------------------------- repeat_penalty */

static void count_token(hl_sampler *sampler, int64_t token, int32_t by)
{
    uint32_t bit = UINT32_C(1) << (token % 32);

    sampler->counts[token] += by;
    sampler->repeated[token / 32] &= ~bit;
    sampler->repeated[token / 32] |= sampler->counts[token] > 0 ? bit : 0;
}

hl_status hl_sampler_accept(hl_sampler *sampler, int64_t token)
{
    if (token < 0 || token >= sampler->d_vocab)
        return hl_fail(HL_BAD_ARGUMENT, "sampling: token %lld, wanted 0 to %lld", (long long)token,
                       (long long)sampler->d_vocab - 1);
    if (sampler->counts == NULL)
        return HL_OK;
    if (sampler->last != NULL) {
        int64_t *place = &sampler->last[sampler->n_last % sampler->options.repeat_last];
        if (sampler->n_last >= sampler->options.repeat_last)
            count_token(sampler, *place, -1);
        *place = token;
    }
    count_token(sampler, token, 1);
    sampler->n_last++;
    return HL_OK;
}

void hl_sampler_forget(hl_sampler *sampler)
{
    size_t n = (size_t)sampler->d_vocab;

    if (sampler->counts != NULL) {
        memset(sampler->counts, 0, n * sizeof *sampler->counts);
        memset(sampler->repeated, 0, (n + 31) / 32 * sizeof *sampler->repeated);
    }
    sampler->n_last = 0;
}

/* Adds a token that may be drawn. */
static void load_score(hl_sampler *sampler, int64_t token, float logit)
{
    bool  is_repeated = sampler->counts != NULL && sampler->counts[token] > 0;
    float score       = hl_pick_score(logit, (float)sampler->options.repeat_penalty, is_repeated);

    sampler->max           = sampler->n_heap == 0 || score > sampler->max ? score : sampler->max;
    sampler->scores[token] = score;
    sampler->heap[sampler->n_heap++] = (int32_t)token;
}

static void load_scores(hl_sampler *sampler, const float *logits)
{
    sampler->n_heap = 0;
    for (int64_t i = 0; i < sampler->d_vocab; i++)
        load_score(sampler, i, logits[i]);
}

/* ----------------------------------------------------------------------- heap */

static bool is_before(const hl_sampler *sampler, int32_t a, int32_t b)
{
    float first  = sampler->scores[a];
    float second = sampler->scores[b];
    return first > second || (first == second && a < b);
}

static void sift_down(hl_sampler *sampler, int64_t place)
{
    int32_t *heap  = sampler->heap;
    int32_t  token = heap[place];

    for (int64_t child; (child = 2 * place + 1) < sampler->n_heap; place = child) {
        if (child + 1 < sampler->n_heap && is_before(sampler, heap[child + 1], heap[child]))
            child++;
        if (!is_before(sampler, heap[child], token))
            break;
        heap[place] = heap[child];
    }
    heap[place] = token;
}

static void build_heap(hl_sampler *sampler)
{
    for (int64_t i = sampler->n_heap / 2 - 1; i >= 0; i--)
        sift_down(sampler, i);
}

static int32_t pop_heap(hl_sampler *sampler)
{
    int32_t best = sampler->heap[0];

    sampler->heap[0] = sampler->heap[--sampler->n_heap];
    if (sampler->n_heap > 0)
        sift_down(sampler, 0);
    return best;
}

/* -------------------------------------------------------------------- filters */

static double weight_of(const hl_sampler *sampler, int64_t token)
{
    return exp(((double)sampler->scores[token] - (double)sampler->max) /
               sampler->options.temperature);
}

static void keep(hl_sampler *sampler, int64_t token)
{
    sampler->kept[sampler->n_kept++] = (hl_candidate){ token, weight_of(sampler, token) };
}

static void keep_all(hl_sampler *sampler)
{
    for (int64_t i = 0; i < sampler->n_heap; i++)
        keep(sampler, sampler->heap[i]);
}

/* Keeps the k best tokens, and all that equal the last of them. */
static void keep_top_k(hl_sampler *sampler)
{
    float last = 0.0f;

    build_heap(sampler);
    while (sampler->n_heap > 0) {
        if (sampler->n_kept >= sampler->options.top_k && sampler->scores[sampler->heap[0]] < last)
            return;
        int32_t token = pop_heap(sampler);
        last          = sampler->scores[token];
        keep(sampler, token);
    }
}

static double weight_of_all(const hl_sampler *sampler)
{
    double total = 0.0;

    for (int64_t i = 0; i < sampler->n_heap; i++)
        total += weight_of(sampler, sampler->heap[i]);
    return total;
}

/* Keeps the fewest tokens that hold a mass of top_p of `total`. */
static void keep_top_p(hl_sampler *sampler, double total)
{
    double mass = 0.0;

    build_heap(sampler);
    while (sampler->n_heap > 0 && mass < sampler->options.top_p * total) {
        keep(sampler, pop_heap(sampler));
        mass += sampler->kept[sampler->n_kept - 1].probability;
    }
}

static double total_weight(const hl_sampler *sampler)
{
    double total = 0.0;

    for (int64_t i = 0; i < sampler->n_kept; i++)
        total += sampler->kept[i].probability;
    return total;
}

/* Applies top_p to the tokens that top_k has kept, which are in falling order. */
static void cut_top_p(hl_sampler *sampler)
{
    double  wanted = sampler->options.top_p * total_weight(sampler);
    double  mass   = 0.0;
    int64_t n_kept = 0;

    while (n_kept < sampler->n_kept && mass < wanted)
        mass += sampler->kept[n_kept++].probability;
    sampler->n_kept = n_kept;
}

/* The most likely token weighs 1 and is always kept. */
static void cut_min_p(hl_sampler *sampler)
{
    int64_t n_kept = 0;

    for (int64_t i = 0; i < sampler->n_kept; i++) {
        if (sampler->kept[i].probability >= sampler->options.min_p)
            sampler->kept[n_kept++] = sampler->kept[i];
    }
    sampler->n_kept = n_kept;
}

/* `total` is the weight of all tokens; 0: of those in the heap. */
static void filter(hl_sampler *sampler, double total)
{
    sampler->n_kept = 0;
    if (sampler->options.temperature == 0.0) {
        int64_t top      = hl_logits_top(sampler->scores, sampler->d_vocab);
        sampler->kept[0] = (hl_candidate){ top, 1.0 };
        sampler->n_kept  = 1;
        return;
    }
    if (has_top_k(sampler))
        keep_top_k(sampler);
    else if (has_top_p(sampler))
        keep_top_p(sampler, total > 0.0 ? total : weight_of_all(sampler));
    else
        keep_all(sampler);
    if (has_top_k(sampler) && has_top_p(sampler))
        cut_top_p(sampler);
    cut_min_p(sampler);
}

/* ----------------------------------------------------------------------- draw */

/* A token without weight adds nothing to the mass, so it is never drawn.  total * u may round up to
 * total; then the last token with weight is drawn. */
static int64_t pick(hl_sampler *sampler)
{
    double  total  = total_weight(sampler);
    double  target = total * hl_random_unit(sampler->options.seed, sampler->n_draws);
    double  mass   = 0.0;
    int64_t token  = -1;

    for (int64_t i = 0; i < sampler->n_kept; i++) {
        double weight = sampler->kept[i].probability;

        if (weight > 0.0 && mass <= target)
            token = sampler->kept[i].token;
        mass += weight;
        sampler->kept[i].probability /= total;
    }
    return token;
}

hl_status hl_sampler_draw(int64_t *token, hl_sampler *sampler, const float *logits)
{
    hl_status status = hl_logits_check(logits, sampler->d_vocab);

    *token          = -1;
    sampler->n_kept = 0;
    if (status != HL_OK)
        return status;
    load_scores(sampler, logits);
    filter(sampler, 0.0);
    *token = pick(sampler);
    sampler->n_draws++;
    return HL_OK;
}

/* ------------------------------------------------------------- with a device */

static hl_pick_kind kind_of(const hl_sampler *sampler)
{
    if (sampler->options.temperature == 0.0)
        return HL_PICK_GREEDY;
    if (has_top_k(sampler))
        return HL_PICK_TOP_K;
    if (has_top_p(sampler))
        return HL_PICK_TOP_P;
    return sampler->options.min_p > 0.0 ? HL_PICK_MIN_P : HL_PICK_ALL;
}

hl_pick_rule hl_sampler_rule(const hl_sampler *sampler, int64_t row)
{
    const hl_sample_options *options = &sampler->options;

    return (hl_pick_rule){
        .row         = row,
        .kind        = kind_of(sampler),
        .penalty     = has_penalty(sampler) ? (float)options->repeat_penalty : 1.0f,
        .temperature = options->temperature,
        .top_p       = options->top_p,
        .min_p       = options->min_p,
        .top_k       = options->top_k,
        .unit        = hl_random_unit(options->seed, sampler->n_draws),
    };
}

const uint32_t *hl_sampler_repeated(const hl_sampler *sampler)
{
    return sampler->repeated;
}

static int by_token(const void *a, const void *b)
{
    const hl_pick_candidate *first = a, *second = b;
    return (first->token > second->token) - (first->token < second->token);
}

static float logit_of(const hl_pick_candidate *candidates, int64_t token)
{
    while (candidates->token != token)
        candidates++;
    return candidates->logit;
}

void hl_sampler_draw_among(int64_t *token, float *logit, hl_sampler *sampler,
                           const hl_pick_result *row, hl_pick_candidate *candidates)
{
    *token          = row->token;
    *logit          = row->logit;
    sampler->n_heap = 0;
    sampler->n_kept = 0;
    if (row->token < 0) {
        if (kind_of(sampler) == HL_PICK_MIN_P) /* a heap has another order */
            qsort(candidates, (size_t)row->n_candidates, sizeof *candidates, by_token);
        for (int32_t i = 0; i < row->n_candidates; i++)
            load_score(sampler, candidates[i].token, candidates[i].logit);
        filter(sampler, row->total);
        *token = pick(sampler);
        *logit = logit_of(candidates, *token);
    }
    sampler->n_draws++;
}

const hl_candidate *hl_sampler_candidates(const hl_sampler *sampler, int64_t *count)
{
    *count = sampler->n_kept;
    return sampler->kept;
}
