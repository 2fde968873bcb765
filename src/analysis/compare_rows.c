/* compare_rows.c - how unlike whole rows of two models are: the table. */
#include <math.h>

#include "analysis/assignment.h"
#include "analysis/bootstrap.h"
#include "analysis/compare.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"

static const hl_column columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "variation", HL_COLUMN_REAL, 4 },
    { "low", HL_COLUMN_REAL, 4 },
    { "high", HL_COLUMN_REAL, 4 },
    { "divergence", HL_COLUMN_REAL, 4 },
    { "partner", HL_COLUMN_INT, 0 },
    { "variation_matched", HL_COLUMN_REAL, 4 },
    { 0 },
};

typedef struct row_totals {
    double  by_index;
    double  matched;
    int64_t n_moved;
    int64_t count;
} row_totals;

/* The draws of every head's mean variation: (L * H, HL_RESAMPLES); NULL of fewer than two
 * sequences. */
static hl_status draw(double **out, const hl_row_distances *rows, uint64_t seed)
{
    int64_t size = rows->n_layers * rows->n_heads;

    *out = NULL;
    if (rows->n_sequences < 2)
        return HL_OK;
    HL_NEED(HL_ALLOC(out, (size_t)size * HL_RESAMPLES));
    return hl_bootstrap_means(*out, rows->of_sequences, rows->n_sequences, size, HL_RESAMPLES,
                              seed);
}

/* partner (n) of the heads of a layer, cost (n, n) being room for their distances. */
static hl_status match_layer(int64_t *partner, double *cost, const hl_row_distances *rows,
                             int64_t layer)
{
    int64_t n = rows->heads[layer];

    for (int64_t i = 0; i < n * n; i++) {
        double value = rows->variation[(layer * rows->n_heads + i / n) * rows->n_heads + i % n];
        cost[i]      = isnan(value) ? 1.0 : value; /* broken rows are as far as can be */
    }
    return hl_assign(partner, cost, n, n);
}

static void put_head(hl_sheet *table, row_totals *totals, const hl_row_distances *rows,
                     int64_t layer, int64_t head, int64_t partner, double *draws)
{
    int64_t       cell     = layer * rows->n_heads + head;
    const double *to       = rows->variation + cell * rows->n_heads;
    hl_interval   interval = { NAN, NAN, NAN };

    if (draws != NULL)
        interval = hl_bootstrap_interval(draws + cell * HL_RESAMPLES, HL_RESAMPLES, 0.95);
    hl_sheet_put_int(table, layer);
    hl_sheet_put_int(table, head);
    hl_sheet_put_real(table, to[head]);
    hl_sheet_put_real(table, interval.low);
    hl_sheet_put_real(table, interval.high);
    hl_sheet_put_real(table, rows->divergence[cell]);
    hl_sheet_put_int(table, partner);
    hl_sheet_put_real(table, to[partner]);
    totals->by_index += to[head];
    totals->matched += to[partner];
    totals->n_moved += partner != head;
    totals->count++;
}

static void put_facts(hl_sheet *table, const row_totals *totals, const hl_row_distances *rows)
{
    hl_sheet_fact_real(table, "rows", (double)rows->n_rows);
    hl_sheet_fact_real(table, "sequences", (double)rows->n_sequences);
    hl_sheet_fact_real(table, "moved", (double)totals->n_moved);
    hl_sheet_fact_real(table, "mean variation", totals->by_index / (double)totals->count);
    hl_sheet_fact_real(table, "mean variation matched", totals->matched / (double)totals->count);
}

static hl_status rows_table(hl_sheet **out, const hl_row_distances *rows, uint64_t seed)
{
    hl_status  status  = HL_OK;
    hl_sheet  *table   = NULL;
    double    *draws   = NULL;
    double    *cost    = NULL;
    int64_t   *partner = NULL;
    row_totals totals  = { 0 };

    HL_TRY(hl_sheet_new(&table, "rows", "Sampled rows of every head, A against B, 95% intervals",
                        columns));
    HL_TRY(draw(&draws, rows, seed));
    HL_TRY(HL_ALLOC(&cost, (size_t)(rows->n_heads * rows->n_heads)));
    HL_TRY(HL_ALLOC(&partner, (size_t)rows->n_heads));
    for (int64_t layer = 0; layer < rows->n_layers; layer++) {
        HL_TRY(match_layer(partner, cost, rows, layer));
        for (int64_t head = 0; head < rows->heads[layer]; head++)
            put_head(table, &totals, rows, layer, head, partner[head], draws);
    }
    put_facts(table, &totals, rows);

done:
    hl_free(draws);
    hl_free(cost);
    hl_free(partner);
    return hl_sheet_hand_over(out, table, status);
}

hl_status hl_comparison_add_rows(hl_comparison *comparison, const hl_row_distances *rows,
                                 const hl_analysis_options *options)
{
    hl_sheet *table  = NULL;
    hl_status status = rows_table(&table, rows, options != NULL ? options->seed : 0);

    if (status != HL_OK)
        return status;
    hl_sheet_free(comparison->rows);
    comparison->rows = table;
    return HL_OK;
}
