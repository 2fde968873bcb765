/* rank_sheet.c - a ranking as a table. */
#include "analysis/sheet.h"
#include "base/status.h"
#include "headlight.h"

static const hl_column columns[] = {
    { "rank", HL_COLUMN_INT, 0 }, { "name", HL_COLUMN_TEXT, 0 },  { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 }, { "score", HL_COLUMN_REAL, 6 }, { 0 },
};

hl_status hl_ranking_sheet(hl_sheet **out, const hl_ranking *ranking, int64_t count)
{
    hl_sheet *table  = NULL;
    hl_status status = hl_sheet_new(&table, "ranking", "The heads, the first to go first", columns);

    *out = NULL;
    if (status != HL_OK)
        return status;
    if (count == 0 || count > ranking->n_heads)
        count = ranking->n_heads;
    for (int64_t i = 0; i < count; i++) {
        const hl_ranked *head = &ranking->heads[i];

        hl_sheet_put_int(table, i + 1);
        hl_sheet_put_text(table, "L%lldH%lld", (long long)head->layer, (long long)head->head);
        hl_sheet_put_int(table, head->layer);
        hl_sheet_put_int(table, head->head);
        hl_sheet_put_real(table, head->score);
    }
    hl_sheet_fact_text(table, "ranker", "%s", hl_ranker_name(ranking->ranker));
    hl_sheet_fact_text(table, "score", "%s", hl_ranker_summary(ranking->ranker));
    hl_sheet_fact_text(table, "order", "%s first", ranking->highest_first ? "highest" : "lowest");
    hl_sheet_fact_real(table, "heads", (double)ranking->n_heads);
    return hl_sheet_hand_over(out, table, status);
}
