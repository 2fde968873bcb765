/* device_host_pick.c - draws from rows of logits, on the device "host": pick.h, step by step. */
#include <math.h>
#include <string.h>

#include "kernels/device_host.h"

/* One row and what is known of it. */
typedef struct draw_row {
    const float        *logits;
    const hl_pick_rule *rule;
    const uint32_t     *repeated; /* read only with a penalty */
    int64_t             n;
    int64_t             top; /* of the logits */
    int64_t             top_score;
    float               max; /* of the scores */
} draw_row;

static float score_of(const draw_row *r, int64_t token)
{
    bool is_repeated =
        r->rule->penalty != 1.0f && (r->repeated[token / 32] >> (token % 32) & 1) != 0;

    return hl_pick_score(r->logits[token], r->rule->penalty, is_repeated);
}

static double weight_of(const draw_row *r, int64_t token)
{
    return exp(((double)score_of(r, token) - (double)r->max) / r->rule->temperature);
}

/* False: no token can be drawn from it. */
static bool find_tops(draw_row *r)
{
    bool is_good = true;

    for (int64_t i = 0; i < r->n; i++) {
        is_good      = is_good && r->logits[i] < INFINITY; /* nor NaN */
        r->top       = r->logits[i] > r->logits[r->top] ? i : r->top;
        r->top_score = score_of(r, i) > score_of(r, r->top_score) ? i : r->top_score;
    }
    r->max = score_of(r, r->top_score);
    return is_good && r->logits[r->top] > -INFINITY;
}

/* As hl_logits_read. */
static void read_logits(hl_pick_result *out, const draw_row *r)
{
    double max  = (double)r->logits[r->top];
    double rest = 0.0, dot = 0.0, dot2 = 0.0;

    for (int64_t i = 0; i < r->n; i++) {
        double offset = (double)r->logits[i] - max;
        double weight = exp(offset);

        if (i != r->top && weight > 0.0) { /* 0 * -inf is NaN */
            rest += weight;
            dot += weight * offset;
            dot2 += weight * offset * offset;
        }
    }
    double mean     = dot / (1.0 + rest);
    out->lse        = max + log1p(rest);
    out->entropy    = log1p(rest) - mean;
    out->varentropy = fmax(dot2 / (1.0 + rest) - mean * mean, 0.0);
}

/* The last bin whose tokens are candidates, and how many these are in all. */
static int find_cut(int32_t *count, const draw_row *r, double total)
{
    int32_t  counts[HL_PICK_BINS] = { 0 };
    uint64_t masses[HL_PICK_BINS] = { 0 };
    double   wanted               = r->rule->top_p * total + HL_PICK_SLACK * total;
    uint64_t mass                 = 0;
    int      bin                  = 0;

    for (int64_t i = 0; i < r->n; i++) {
        int at = hl_pick_bin(r->max - score_of(r, i));

        counts[at]++;
        masses[at] += (uint64_t)llrint(weight_of(r, i) * HL_PICK_UNIT);
    }
    *count = 0;
    for (;; bin++) {
        *count += counts[bin];
        mass += masses[bin];
        bool is_enough = r->rule->kind == HL_PICK_TOP_K ? *count >= r->rule->top_k
                                                        : (double)mass / HL_PICK_UNIT >= wanted;
        if (is_enough || bin == HL_PICK_BINS - 1)
            return bin;
    }
}

static void list_candidates(hl_pick_result *out, hl_pick_candidate *candidates, const draw_row *r)
{
    int32_t count = 0;
    int     cut   = 0;

    if (r->rule->kind != HL_PICK_MIN_P)
        cut = find_cut(&count, r, out->total);
    for (int64_t i = 0; i < r->n && count <= HL_PICK_CANDIDATES; i++) {
        bool is_in = r->rule->kind == HL_PICK_MIN_P
                         ? weight_of(r, i) >= r->rule->min_p * (1.0 - HL_PICK_SLACK)
                         : hl_pick_bin(r->max - score_of(r, i)) <= cut;

        if (is_in && out->n_candidates < HL_PICK_CANDIDATES)
            candidates[out->n_candidates] =
                (hl_pick_candidate){ .token = (int32_t)i, .logit = r->logits[i] };
        out->n_candidates += is_in ? 1 : 0;
    }
    if (count > HL_PICK_CANDIDATES)
        out->n_candidates = count;
}

/* The last token with weight before which no more than `target` lies. */
static int64_t draw_from_all(const draw_row *r, double target)
{
    double  mass  = 0.0;
    int64_t token = -1;

    for (int64_t i = 0; i < r->n && mass <= target; i++) {
        double weight = weight_of(r, i);

        token = weight > 0.0 ? i : token;
        mass += weight;
    }
    return token;
}

static void draw_one(const hl_device_pick *d, int64_t index)
{
    const hl_pick_rule *rule = &d->rules[index];
    hl_pick_result     *out  = &d->out[index];
    draw_row            r    = { .logits   = d->logits + rule->row * d->n,
                                 .rule     = rule,
                                 .repeated = d->repeated + index * ((d->n + 31) / 32),
                                 .n        = d->n };

    *out = (hl_pick_result){ .token = -1, .is_bad = !find_tops(&r) };
    if (out->is_bad)
        return;
    read_logits(out, &r);
    if (rule->kind == HL_PICK_GREEDY)
        out->token = (int32_t)r.top_score;
    for (int64_t i = 0; i < d->n && rule->kind != HL_PICK_GREEDY; i++)
        out->total += weight_of(&r, i);
    if (rule->kind == HL_PICK_ALL)
        out->token = (int32_t)draw_from_all(&r, out->total * rule->unit);
    if (out->token >= 0)
        out->logit = r.logits[out->token];
    else
        list_candidates(out, d->candidates + index * HL_PICK_CANDIDATES, &r);
}

hl_status hl_device_host_pick(hl_device *device, const hl_device_pick *pick)
{
    (void)device;
    for (int64_t i = 0; i < pick->n_rows; i++)
        draw_one(pick, i);
    return HL_OK;
}
