/* sweep_tables.c - a sweep's numbers as tables. */
#include <math.h>

#include "analysis/sheet.h"
#include "base/status.h"
#include "prune/ceiling.h"
#include "prune/sweep.h"

static void put_value(hl_sheet *table, hl_sweep_value value)
{
    hl_sheet_put_real(table, value.value);
    hl_sheet_put_real(table, value.low);
    hl_sheet_put_real(table, value.high);
}

static hl_status make_points(hl_sheet **out, const hl_sweep *s)
{
    static const hl_column columns[] = {
        { "order", HL_COLUMN_TEXT, 0 },      { "ratio", HL_COLUMN_REAL, 2 },
        { "off", HL_COLUMN_INT, 0 },         { "nll", HL_COLUMN_REAL, 4 },
        { "low", HL_COLUMN_REAL, 4 },        { "high", HL_COLUMN_REAL, 4 },
        { "perplexity", HL_COLUMN_REAL, 2 }, { "rise", HL_COLUMN_REAL, 4 },
        { "rise_low", HL_COLUMN_REAL, 4 },   { "rise_high", HL_COLUMN_REAL, 4 },
        { "vs_random", HL_COLUMN_REAL, 4 },  { "vs_low", HL_COLUMN_REAL, 4 },
        { "vs_high", HL_COLUMN_REAL, 4 },    { "beaten", HL_COLUMN_INT, 0 },
        { "kl", HL_COLUMN_REAL, 4 },         { "same", HL_COLUMN_REAL, 4 },
        { "last_word", HL_COLUMN_REAL, 4 },  { 0 },
    };
    hl_sheet *table  = NULL;
    hl_status status = hl_sheet_new(&table, "points", "What every order costs", columns);

    for (int64_t i = 0; status == HL_OK && i < s->n_fixed * s->options.n_ratios; i++) {
        const hl_sweep_point *point = &s->points[i];
        int64_t               ratio = i % s->options.n_ratios;
        char                  name[64];

        hl_sweep_order_name(name, sizeof name, &s->orders[i / s->options.n_ratios]);
        hl_sheet_put_text(table, "%s", name);
        hl_sheet_put_real(table, s->ratios[ratio]);
        hl_sheet_put_int(table, s->n_off[ratio]);
        put_value(table, point->nll);
        hl_sheet_put_real(table, exp(point->nll.value));
        put_value(table, point->rise);
        put_value(table, point->vs_random);
        hl_sheet_put_int(table, point->n_beaten);
        hl_sheet_put_real(table, point->kl);
        hl_sheet_put_real(table, point->same);
        hl_sheet_put_real(table, point->word);
    }
    return hl_sheet_hand_over(out, table, status);
}

static hl_status make_random(hl_sheet **out, const hl_sweep *s)
{
    static const hl_column columns[] = {
        { "ratio", HL_COLUMN_REAL, 2 },     { "off", HL_COLUMN_INT, 0 },
        { "least", HL_COLUMN_REAL, 4 },     { "quarter", HL_COLUMN_REAL, 4 },
        { "median", HL_COLUMN_REAL, 4 },    { "three_quarters", HL_COLUMN_REAL, 4 },
        { "most", HL_COLUMN_REAL, 4 },      { "mean", HL_COLUMN_REAL, 4 },
        { "last_word", HL_COLUMN_REAL, 4 }, { 0 },
    };
    hl_sheet *table  = NULL;
    hl_status status = hl_sheet_new(&table, "random", "Random orders: NLL over the seeds", columns);

    if (status == HL_OK)
        hl_sheet_fact_real(table, "seeds", (double)s->options.n_seeds);
    for (int64_t i = 0; status == HL_OK && i < s->options.n_ratios; i++) {
        const hl_sweep_band *band = &s->bands[i];

        hl_sheet_put_real(table, s->ratios[i]);
        hl_sheet_put_int(table, s->n_off[i]);
        hl_sheet_put_real(table, band->least);
        hl_sheet_put_real(table, band->quarter);
        hl_sheet_put_real(table, band->median);
        hl_sheet_put_real(table, band->three_quarters);
        hl_sheet_put_real(table, band->most);
        hl_sheet_put_real(table, band->mean);
        hl_sheet_put_real(table, band->word);
    }
    return hl_sheet_hand_over(out, table, status);
}

/* A ranker that takes the highest first is right if high scores go with small rises. */
static hl_status make_correlation(hl_sheet **out, const hl_sweep *s)
{
    static const hl_column columns[] = {
        { "ranker", HL_COLUMN_TEXT, 0 },
        { "takes", HL_COLUMN_TEXT, 0 },
        { "right", HL_COLUMN_TEXT, 0 },
        { "rho", HL_COLUMN_REAL, 3 },
        { "low", HL_COLUMN_REAL, 3 },
        { "high", HL_COLUMN_REAL, 3 },
        { 0 },
    };
    hl_sheet *table  = NULL;
    hl_status status = hl_sheet_new(
        &table, "correlation", "Score against the rise of the loss without that head", columns);

    for (int64_t i = 0; status == HL_OK && i < s->options.n_rankers; i++) {
        bool highest = hl_ranker_takes_highest(s->rankers[i]);

        hl_sheet_put_text(table, "%s", hl_ranker_name((size_t)s->rankers[i]));
        hl_sheet_put_text(table, "%s", highest ? "highest" : "lowest");
        hl_sheet_put_text(table, "%s", highest ? "below 0" : "above 0");
        put_value(table, s->correlations[i]);
    }
    return hl_sheet_hand_over(out, table, status);
}

static hl_status make_heads(hl_sheet **out, const hl_sweep *s)
{
    static const hl_column columns[] = {
        { "ranker", HL_COLUMN_TEXT, 0 },
        { "layer", HL_COLUMN_INT, 0 },
        { "head", HL_COLUMN_INT, 0 },
        { "place", HL_COLUMN_INT, 0 },
        { "score", HL_COLUMN_REAL, 4 },
        { "rise", HL_COLUMN_REAL, 5 },
        { 0 },
    };
    hl_sheet *table  = NULL;
    hl_status status = hl_sheet_new(&table, "heads", "Every head, by every ranker", columns);

    for (int64_t i = 0; status == HL_OK && i < s->options.n_rankers * s->n_singles; i++) {
        const hl_ranking *ranking = s->orders[i / s->n_singles].ranking;
        const hl_ranked  *ranked  = &ranking->heads[i % s->n_singles];
        double            rise    = NAN;

        for (int64_t j = 0; j < s->n_singles; j++) {
            if (s->heads[j].layer == ranked->layer && s->heads[j].head == ranked->head)
                rise = s->rises[j];
        }
        hl_sheet_put_text(table, "%s", hl_ranker_name((size_t)ranking->ranker));
        hl_sheet_put_int(table, ranked->layer);
        hl_sheet_put_int(table, ranked->head);
        hl_sheet_put_int(table, i % s->n_singles + 1);
        hl_sheet_put_real(table, ranked->score);
        hl_sheet_put_real(table, rise);
    }
    return hl_sheet_hand_over(out, table, status);
}

static hl_status make_savings(hl_sheet **out, const hl_sweep *s)
{
    static const hl_column columns[] = {
        { "ratio", HL_COLUMN_REAL, 2 },       { "off", HL_COLUMN_INT, 0 },
        { "params", HL_COLUMN_REAL, 0 },      { "params_share", HL_COLUMN_REAL, 4 },
        { "flops_share", HL_COLUMN_REAL, 4 }, { 0 },
    };
    hl_shapes shapes = hl_shapes_of(s->model, s->options.n_ctx);
    hl_sheet *table  = NULL;
    hl_status status = hl_sheet_new(
        &table, "savings", "The most that taking these heads out can save, by shapes", columns);

    if (status == HL_OK)
        hl_sheet_fact_real(table, "context", (double)s->options.n_ctx);
    for (int64_t i = 0; status == HL_OK && i < s->options.n_ratios; i++) {
        hl_ceiling ceiling = hl_ceiling_of(&shapes, s->n_off[i]);

        hl_sheet_put_real(table, s->ratios[i]);
        hl_sheet_put_int(table, s->n_off[i]);
        hl_sheet_put_real(table, ceiling.params);
        hl_sheet_put_real(table, ceiling.params_share);
        hl_sheet_put_real(table, ceiling.flops_share);
    }
    return hl_sheet_hand_over(out, table, status);
}

hl_status hl_sweep_make_tables(hl_sweep *s)
{
    /* In the order of hl_sweep_table_name. */
    HL_NEED(make_points(&s->tables[0], s));
    HL_NEED(make_random(&s->tables[1], s));
    HL_NEED(make_correlation(&s->tables[2], s));
    HL_NEED(make_heads(&s->tables[3], s));
    return make_savings(&s->tables[4], s);
}
