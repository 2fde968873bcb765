/* head_card.c - all that a profile holds of one head, beside all other heads: type, numbers with
 * their ranks, the curve by position, the most similar heads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/grid.h"
#include "analysis/head_kinds.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"

enum { N_SIMILAR = 5 };

/* ---------------------------------------------------------------------- numbers */

static const struct {
    const char    *name;
    const char    *unit;
    hl_number_from from;
    int            which;
} numbers[] = {
    { "entropy", "nats", HL_FROM_ROWS, HL_Q_ENTROPY },
    { "normalized", "0 to 1", HL_FROM_ROWS, HL_Q_NORMALIZED },
    { "entropy_nosink", "nats", HL_FROM_ROWS, HL_Q_ENTROPY_NOSINK },
    { "renyi2", "nats", HL_FROM_ROWS, HL_Q_RENYI2 },
    { "peak", "share", HL_FROM_ROWS, HL_Q_PEAK },
    { "self", "share", HL_FROM_ROWS, HL_Q_SELF },
    { "previous", "share", HL_FROM_ROWS, HL_Q_PREVIOUS },
    { "first", "share", HL_FROM_ROWS, HL_Q_FIRST },
    { "induction", "share", HL_FROM_PROBE, HL_PROBE_INDUCTION },
    { "output_norm", "of the layer's mean", HL_FROM_OUTPUT, 0 },
};

/* Counts the heads that have this number, and finds the place of `value` among them from the lowest,
 * 1 at least; equal numbers have the same place. */
static int64_t rank_of(int64_t *n_heads, const hl_profile *profile, hl_number_from from, int which,
                       double value)
{
    int64_t rank = 1;

    *n_heads = 0;
    HL_EACH_HEAD(profile, layer, head)
    {
        double other = hl_head_number(profile, layer, head, from, which);
        *n_heads += !isnan(other);
        rank += other < value;
    }
    return rank;
}

static hl_status fill_numbers(hl_sheet *table, const hl_profile *profile, int64_t layer,
                              int64_t head)
{
    int64_t               place   = layer * hl_profile_n_heads(profile) + head;
    HL_FREED hl_interval *entropy = NULL, *normalized = NULL;

    HL_NEED(hl_grid_intervals(&entropy, profile, HL_Q_ENTROPY));
    HL_NEED(hl_grid_intervals(&normalized, profile, HL_Q_NORMALIZED));
    hl_sheet_fact_interval(table, &entropy[place]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        hl_number_from     from  = numbers[i].from;
        int                which = numbers[i].which;
        double             value = hl_head_number(profile, layer, head, from, which);
        int64_t            n     = 0;
        int64_t            rank  = rank_of(&n, profile, from, which, value);
        const hl_interval *near  = from != HL_FROM_ROWS       ? NULL
                                   : which == HL_Q_ENTROPY    ? &entropy[place]
                                   : which == HL_Q_NORMALIZED ? &normalized[place]
                                                              : NULL;

        if (isnan(value))
            continue;
        hl_sheet_put_text(table, "%s", numbers[i].name);
        hl_sheet_put_reals(table, value, near != NULL ? near->low : NAN,
                           near != NULL ? near->high : NAN);
        hl_sheet_put_text(table, "%s", numbers[i].unit);
        hl_sheet_put_ints(table, rank, n);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- the others */

static void fill_positions(hl_sheet *table, const hl_profile *profile, int64_t layer, int64_t head)
{
    for (int64_t bucket = 0; bucket < hl_profile_n_buckets(profile); bucket++) {
        hl_moments entropy = hl_profile_by_position(profile, layer, head, bucket, HL_Q_ENTROPY);
        hl_moments normalized =
            hl_profile_by_position(profile, layer, head, bucket, HL_Q_NORMALIZED);

        if (entropy.count == 0)
            continue;
        hl_sheet_put_ints(table, (INT64_C(1) << bucket) - 1, (INT64_C(2) << bucket) - 2,
                          entropy.count);
        hl_sheet_put_reals(table, entropy.mean, normalized.mean);
    }
}

/* The most similar heads of the layer, the most similar first. */
static hl_status fill_similar(hl_sheet *table, const hl_profile *profile, int64_t layer,
                              int64_t head)
{
    int64_t        n_heads = hl_profile_heads_of(profile, layer);
    HL_FREED bool *taken   = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&taken, (size_t)n_heads));
    taken[head] = true;
    for (int place = 0; place < N_SIMILAR; place++) {
        int64_t best    = -1;
        double  highest = -1.0;

        for (int64_t other = 0; other < n_heads; other++) {
            double alike = taken[other] ? NAN : hl_profile_similarity(profile, layer, head, other);
            if (alike > highest) { /* false for NaN, which stands for unmeasured */
                highest = alike;
                best    = other;
            }
        }
        if (best < 0)
            break;
        taken[best] = true;
        hl_sheet_put_ints(table, layer, best);
        hl_sheet_put_real(table, highest);
        hl_sheet_put_text(table, "%s",
                          hl_head_kind_name(hl_head_type_of(profile, layer, best).kind));
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- the card */

hl_status hl_head_card_new(hl_head_card **out, const hl_profile *profile, int64_t layer,
                           int64_t head)
{
    HL_CLOSED(hl_head_card_free) hl_head_card *card = NULL;

    *out = NULL;
    if (layer < 0 || layer >= hl_profile_n_layers(profile))
        return hl_fail(HL_BAD_ARGUMENT, "layer %lld: the profile has the layers 0 to %lld",
                       (long long)layer, (long long)hl_profile_n_layers(profile) - 1);
    if (head < 0 || head >= hl_profile_heads_of(profile, layer))
        return hl_fail(HL_BAD_ARGUMENT, "head %lld: layer %lld has %lld head%s, counted from 0",
                       (long long)head, (long long)layer,
                       (long long)hl_profile_heads_of(profile, layer),
                       hl_profile_heads_of(profile, layer) == 1 ? "" : "s");
    HL_NEED(HL_ALLOC_ZEROED(&card, 1));
    hl_head_type type  = hl_head_type_of(profile, layer, head);
    card->layer        = layer;
    card->head         = head;
    card->type         = hl_head_kind_name(type.kind);
    card->rule         = type.rule;
    card->value        = type.value;
    card->threshold    = type.threshold;
    card->is_uncertain = type.is_uncertain;
    HL_NEED(hl_sheet_new(&card->numbers, "numbers",
                         "Numbers of this head, and its rank from the lowest",
                         "number:t value:4 low:4 high:4 unit:t rank:i heads:i"));
    HL_NEED(fill_numbers(card->numbers, profile, layer, head));
    HL_NEED(hl_sheet_finish(card->numbers));
    HL_NEED(hl_sheet_new(&card->positions, "positions", "Entropy by position",
                         "from:i to:i rows:i entropy:3 normalized:3"));
    fill_positions(card->positions, profile, layer, head);
    HL_NEED(hl_sheet_finish(card->positions));
    HL_NEED(hl_sheet_new(&card->similar, "similar", "Most similar heads of the layer",
                         "layer:i head:i similarity:3 type:t"));
    hl_sheet_name_layers(card->similar, hl_profile_setting(profile, "layers"));
    HL_NEED(fill_similar(card->similar, profile, layer, head));
    HL_NEED(hl_sheet_finish(card->similar));
    *out = hl_taken(&card);
    return HL_OK;
}

void hl_head_card_free(hl_head_card *card)
{
    if (card == NULL)
        return;
    hl_sheet_free(card->numbers);
    hl_sheet_free(card->positions);
    hl_sheet_free(card->similar);
    hl_free(card);
}
