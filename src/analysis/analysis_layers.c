/* analysis_layers.c - tables with a line for a layer. */
#include <math.h>

#include "analysis/analysis.h"
#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"

static hl_status new_layers(hl_layer_profile **out, const hl_profile *profile, hl_quantity quantity,
                            uint64_t seed)
{
    return hl_layer_profile_new(out, profile, quantity, hl_threshold_of(NULL, HL_T_FLAT_ERRORS),
                                seed);
}

/* ------------------------------------------------------------------- layers */

static const hl_column layer_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "heads", HL_COLUMN_INT, 0 },
    { "entropy", HL_COLUMN_REAL, 3 },
    { "entropy_low", HL_COLUMN_REAL, 3 },
    { "entropy_high", HL_COLUMN_REAL, 3 },
    { "fair", HL_COLUMN_REAL, 3 },
    { "fair_low", HL_COLUMN_REAL, 3 },
    { "fair_high", HL_COLUMN_REAL, 3 },
    { "block_influence", HL_COLUMN_REAL, 3 },
    { 0 },
};

hl_status hl_analyse_layers(hl_sheet **out, const hl_profile *profile,
                            const hl_analysis_options *options)
{
    hl_status         status  = HL_OK;
    hl_sheet         *table   = NULL;
    hl_layer_profile *entropy = NULL;
    hl_layer_profile *fair    = NULL;

    HL_TRY(hl_sheet_new(&table, "layers",
                        "Every layer: means over heads, 95% intervals by bootstrap",
                        layer_columns));
    HL_TRY(new_layers(&entropy, profile, HL_Q_ENTROPY, options->seed));
    HL_TRY(new_layers(&fair, profile, HL_Q_FAIR, options->seed));
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        hl_sheet_put_int(table, layer);
        hl_sheet_put_int(table, hl_profile_heads_of(profile, layer));
        hl_sheet_put_real(table, entropy->means[layer]);
        hl_sheet_put_real(table, entropy->lows[layer]);
        hl_sheet_put_real(table, entropy->highs[layer]);
        hl_sheet_put_real(table, fair->means[layer]);
        hl_sheet_put_real(table, fair->lows[layer]);
        hl_sheet_put_real(table, fair->highs[layer]);
        hl_sheet_put_real(table, hl_profile_block_influence(profile, layer));
    }
    hl_analysis_facts(table, profile);

done:
    hl_layer_profile_free(entropy);
    hl_layer_profile_free(fair);
    return hl_sheet_hand_over(out, table, status);
}

/* -------------------------------------------------------------------- shape */

static const hl_column shape_columns[] = {
    { "quantity", HL_COLUMN_TEXT, 0 },
    { "range", HL_COLUMN_REAL, 3 },
    { "error", HL_COLUMN_REAL, 4 },
    { "flat", HL_COLUMN_BOOL, 0 },
    { "minimum", HL_COLUMN_INT, 0 },
    { "depth", HL_COLUMN_REAL, 2 },
    { "curvature", HL_COLUMN_REAL, 3 },
    { "spearman", HL_COLUMN_REAL, 3 },
    { 0 },
};

hl_status hl_analyse_shape(hl_sheet **out, const hl_profile *profile,
                           const hl_analysis_options *options)
{
    static const struct {
        const char *name;
        hl_quantity quantity;
    } wanted[] = { { "entropy", HL_Q_ENTROPY }, { "fair", HL_Q_FAIR }, { "nosink", HL_Q_NOSINK } };

    hl_status status = HL_OK;
    hl_sheet *table  = NULL;

    HL_TRY(hl_sheet_new(&table, "shape", "The shape of the layer profile", shape_columns));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        hl_layer_profile *layers = NULL;

        HL_TRY(new_layers(&layers, profile, wanted[i].quantity, options->seed));
        hl_sheet_put_text(table, "%s", wanted[i].name);
        hl_sheet_put_real(table, layers->shape.range);
        hl_sheet_put_real(table, layers->shape.error);
        hl_sheet_put_bool(table, layers->shape.flat);
        hl_sheet_put_int(table, layers->shape.minimum >= 0 ? layers->shape.minimum : HL_NO_INT);
        hl_sheet_put_real(table, layers->shape.depth);
        hl_sheet_put_real(table, layers->shape.curvature);
        hl_sheet_put_real(table, layers->shape.spearman);
        hl_layer_profile_free(layers);
    }
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- variance */

static const hl_column variance_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "heads", HL_COLUMN_INT, 0 },
    { "variance", HL_COLUMN_REAL, 4 },
    { "fair_deviation", HL_COLUMN_REAL, 4 },
    { "lowest", HL_COLUMN_REAL, 3 },
    { "highest", HL_COLUMN_REAL, 3 },
    { 0 },
};

hl_status hl_analyse_variance(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options)
{
    hl_status status  = HL_OK;
    int64_t   n_heads = hl_profile_n_heads(profile);
    hl_sheet *table   = NULL;
    double   *entropy = NULL;
    double   *fair    = NULL;

    (void)options;
    HL_TRY(
        hl_sheet_new(&table, "variance",
                     "How much the heads of a layer differ (equal entropy is not equal attention)",
                     variance_columns));
    HL_TRY(hl_grid_means(&entropy, profile, HL_Q_ENTROPY));
    HL_TRY(hl_grid_means(&fair, profile, HL_Q_FAIR));
    for (int64_t layer = 0; layer < hl_profile_n_layers(profile); layer++) {
        const double *row   = entropy + layer * n_heads;
        double        least = NAN, most = NAN;

        for (int64_t head = 0; head < n_heads; head++) {
            least = fmin(least, row[head]); /* both pass NaN over */
            most  = fmax(most, row[head]);
        }
        hl_sheet_put_int(table, layer);
        hl_sheet_put_int(table, hl_profile_heads_of(profile, layer));
        hl_sheet_put_real(table, hl_variance(row, n_heads));
        hl_sheet_put_real(table, sqrt(hl_variance(fair + layer * n_heads, n_heads)));
        hl_sheet_put_real(table, least);
        hl_sheet_put_real(table, most);
    }
    hl_analysis_facts(table, profile);

done:
    hl_free(entropy);
    hl_free(fair);
    return hl_sheet_hand_over(out, table, status);
}
