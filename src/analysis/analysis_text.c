/* analysis_text.c - tables by where in the text a row stands, and what kind of token it is. */
#include <math.h>

#include "analysis/analysis.h"
#include "analysis/grid.h"
#include "analysis/sheet.h"
#include "base/status.h"

/* ---------------------------------------------------------------- positions */

static const hl_column position_columns[] = {
    { "from", HL_COLUMN_INT, 0 },         { "to", HL_COLUMN_INT, 0 },
    { "rows", HL_COLUMN_INT, 0 },         { "entropy", HL_COLUMN_REAL, 3 },
    { "entropy_low", HL_COLUMN_REAL, 3 }, { "entropy_high", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },        { "fair_low", HL_COLUMN_REAL, 3 },
    { "fair_high", HL_COLUMN_REAL, 3 },   { "lowest", HL_COLUMN_REAL, 3 },
    { "highest", HL_COLUMN_REAL, 3 },     { 0 },
};

/* What the heads' means of something come to. */
typedef struct summary {
    double  sum;
    int64_t count; /* of heads */
    double  lowest;
    double  highest;
    int64_t rows; /* of one head, at most */
} summary;

static const summary nothing = { 0.0, 0, NAN, NAN, 0 };

static void add_moments(summary *total, hl_moments moments)
{
    if (moments.count == 0)
        return;
    total->sum += moments.mean;
    total->count++;
    total->lowest  = fmin(total->lowest, moments.mean); /* both pass NaN over */
    total->highest = fmax(total->highest, moments.mean);
    total->rows    = moments.count > total->rows ? moments.count : total->rows;
}

static double mean_of(const summary *total)
{
    return total->count > 0 ? total->sum / (double)total->count : NAN;
}

static void put_bucket(hl_sheet *table, int64_t bucket)
{
    hl_sheet_put_int(table, (INT64_C(1) << bucket) - 1);
    hl_sheet_put_int(table, (INT64_C(2) << bucket) - 2);
}

static void put_curve(hl_sheet *table, const hl_position_curve *curve, int64_t bucket)
{
    hl_sheet_put_real(table, curve->means[bucket]);
    hl_sheet_put_real(table, curve->lows[bucket]);
    hl_sheet_put_real(table, curve->highs[bucket]);
}

hl_status hl_analyse_positions(hl_sheet **out, const hl_profile *profile,
                               const hl_analysis_options *options)
{
    hl_status         status = HL_OK;
    hl_sheet         *table  = NULL;
    hl_position_curve entropy, fair;

    HL_TRY(hl_sheet_new(&table, "positions",
                        "Entropy by position: means over heads, 95% intervals by bootstrap",
                        position_columns));
    HL_TRY(hl_position_curve_read(&entropy, profile, HL_Q_ENTROPY, options->seed));
    HL_TRY(hl_position_curve_read(&fair, profile, HL_Q_FAIR, options->seed));
    for (int64_t bucket = 0; bucket < hl_profile_n_buckets(profile); bucket++) {
        summary heads = nothing;

        HL_EACH_HEAD(profile, layer, head)
        {
            add_moments(&heads, hl_profile_by_position(profile, layer, head, bucket, HL_Q_ENTROPY));
        }
        if (heads.rows == 0)
            continue;
        put_bucket(table, bucket);
        hl_sheet_put_int(table, heads.rows);
        put_curve(table, &entropy, bucket);
        put_curve(table, &fair, bucket);
        hl_sheet_put_real(table, heads.lowest);
        hl_sheet_put_real(table, heads.highest);
    }
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}

static const hl_column head_position_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "from", HL_COLUMN_INT, 0 },
    { "to", HL_COLUMN_INT, 0 },
    { "rows", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 },
    { "deviation", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },
    { 0 },
};

hl_status hl_analyse_positions_by_head(hl_sheet **out, const hl_profile *profile,
                                       const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    (void)options;
    HL_TRY(hl_sheet_new(&table, "positions-by-head", "Entropy of every head by position",
                        head_position_columns));
    HL_EACH_HEAD(profile, layer, head)
    {
        for (int64_t bucket = 0; bucket < hl_profile_n_buckets(profile); bucket++) {
            hl_moments entropy = hl_profile_by_position(profile, layer, head, bucket, HL_Q_ENTROPY);

            if (entropy.count == 0)
                continue;
            hl_sheet_put_int(table, layer);
            hl_sheet_put_int(table, head);
            put_bucket(table, bucket);
            hl_sheet_put_int(table, entropy.count);
            hl_sheet_put_real(table, entropy.mean);
            hl_sheet_put_real(table, sqrt(entropy.variance));
            hl_sheet_put_real(table,
                              hl_profile_by_position(profile, layer, head, bucket, HL_Q_FAIR).mean);
        }
    }
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}

/* -------------------------------------------------------------- token types */

static const hl_column type_columns[] = {
    { "type", HL_COLUMN_TEXT, 0 },    { "rows", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 }, { "fair", HL_COLUMN_REAL, 3 },
    { "renyi2", HL_COLUMN_REAL, 3 },  { "lowest", HL_COLUMN_REAL, 3 },
    { "highest", HL_COLUMN_REAL, 3 }, { 0 },
};

hl_status hl_analyse_token_types(hl_sheet **out, const hl_profile *profile,
                                 const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    (void)options;
    HL_TRY(hl_sheet_new(&table, "token-types", "Entropy by type of token, means over heads",
                        type_columns));
    for (int64_t type = 0; type < hl_profile_n_types(profile); type++) {
        summary entropy = nothing, fair = nothing, renyi2 = nothing;

        HL_EACH_HEAD(profile, layer, head)
        {
            add_moments(&entropy, hl_profile_by_type(profile, layer, head, type, HL_Q_ENTROPY));
            add_moments(&fair, hl_profile_by_type(profile, layer, head, type, HL_Q_FAIR));
            add_moments(&renyi2, hl_profile_by_type(profile, layer, head, type, HL_Q_RENYI2));
        }
        hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, type));
        hl_sheet_put_int(table, entropy.rows);
        hl_sheet_put_real(table, mean_of(&entropy));
        hl_sheet_put_real(table, mean_of(&fair));
        hl_sheet_put_real(table, mean_of(&renyi2));
        hl_sheet_put_real(table, entropy.lowest);
        hl_sheet_put_real(table, entropy.highest);
    }
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}

static const hl_column head_type_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },    { "head", HL_COLUMN_INT, 0 },
    { "type", HL_COLUMN_TEXT, 0 },    { "rows", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 }, { "fair", HL_COLUMN_REAL, 3 },
    { "renyi2", HL_COLUMN_REAL, 3 },  { 0 },
};

hl_status hl_analyse_token_types_by_head(hl_sheet **out, const hl_profile *profile,
                                         const hl_analysis_options *options)
{
    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    (void)options;
    HL_TRY(hl_sheet_new(&table, "token-types-by-head", "Entropy of every head by type of token",
                        head_type_columns));
    HL_EACH_HEAD(profile, layer, head)
    {
        for (int64_t type = 0; type < hl_profile_n_types(profile); type++) {
            hl_moments entropy = hl_profile_by_type(profile, layer, head, type, HL_Q_ENTROPY);

            hl_sheet_put_int(table, layer);
            hl_sheet_put_int(table, head);
            hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, type));
            hl_sheet_put_int(table, entropy.count);
            hl_sheet_put_real(table, entropy.mean);
            hl_sheet_put_real(table,
                              hl_profile_by_type(profile, layer, head, type, HL_Q_FAIR).mean);
            hl_sheet_put_real(table,
                              hl_profile_by_type(profile, layer, head, type, HL_Q_RENYI2).mean);
        }
    }
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- lookback */

static const hl_column lookback_columns[] = {
    { "from", HL_COLUMN_TEXT, 0 },
    { "to", HL_COLUMN_TEXT, 0 },
    { "mean", HL_COLUMN_REAL, 3 },
    { "least", HL_COLUMN_REAL, 3 },
    { "most", HL_COLUMN_REAL, 3 },
    { "head", HL_COLUMN_TEXT, 0 },
    { 0 },
};

static void put_lookback(hl_sheet *table, const hl_profile *profile, int64_t from, int64_t to)
{
    summary total                    = nothing;
    char    most[HL_HEAD_NAME_BYTES] = "-";

    HL_EACH_HEAD(profile, layer, head)
    {
        double share = hl_profile_lookback(profile, layer, head, from, to);

        if (!isnan(share) && !(share <= total.highest))
            hl_head_name(most, layer, head);
        add_moments(&total, (hl_moments){ .count = !isnan(share), .mean = share });
    }
    hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, from));
    hl_sheet_put_text(table, "%s", hl_profile_type_name(profile, to));
    hl_sheet_put_real(table, mean_of(&total));
    hl_sheet_put_real(table, total.lowest);
    hl_sheet_put_real(table, total.highest);
    hl_sheet_put_text(table, "%s", most);
}

hl_status hl_analyse_lookback(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options)
{
    hl_status status  = HL_OK;
    int64_t   n_types = hl_profile_n_types(profile);
    hl_sheet *table   = NULL;

    (void)options;
    HL_TRY(
        hl_sheet_new(&table, "lookback",
                     "How much attention tokens of one type give to another, over heads; and who "
                     "gives most",
                     lookback_columns));
    for (int64_t i = 0; i < n_types * n_types; i++)
        put_lookback(table, profile, i / n_types, i % n_types);
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}
