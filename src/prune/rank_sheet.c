/* rank_sheet.c - a ranking as a table. */
#include "analysis/sheet.h"
#include "base/status.h"
#include "headlight.h"

/* The ranker is named in every row: CSV has no place for facts. */
#define HEAD_COLUMNS                                                                               \
    { "rank", HL_COLUMN_INT, 0 }, { "name", HL_COLUMN_TEXT, 0 }, { "layer", HL_COLUMN_INT, 0 },    \
        { "head", HL_COLUMN_INT, 0 }, { "score", HL_COLUMN_REAL, 6 },                              \
    {                                                                                              \
        "ranker", HL_COLUMN_TEXT, 0                                                                \
    }

static const hl_column columns[]       = { HEAD_COLUMNS, { 0 } };
static const hl_column group_columns[] = {
    HEAD_COLUMNS, { "kv_head", HL_COLUMN_INT, 0 }, { "group_score", HL_COLUMN_REAL, 6 }, { 0 }
};

/* The K/V head, and the mean score of its query heads, which stand side by side. */
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

hl_status hl_ranking_sheet(hl_sheet **out, const hl_ranking *ranking, int64_t count)
{
    hl_sheet *table  = NULL;
    hl_status status = hl_sheet_new(&table, "ranking", "Heads in pruning order",
                                    ranking->groups != NULL ? group_columns : columns);

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
        hl_sheet_put_text(table, "%s", hl_ranker_name((size_t)ranking->ranker));
        if (ranking->groups != NULL)
            put_group(table, ranking, i);
    }
    hl_sheet_fact_text(table, "ranker", "%s", hl_ranker_name(ranking->ranker));
    hl_sheet_fact_text(table, "score", "%s", hl_ranker_summary(ranking->ranker));
    hl_sheet_fact_text(table, "order", "%s first", ranking->highest_first ? "highest" : "lowest");
    if (hl_ranker_verdict((size_t)ranking->ranker) != NULL && ranking->highest_first)
        hl_sheet_fact_text(table, "verdict", "%s", hl_ranker_verdict((size_t)ranking->ranker));
    hl_sheet_fact_real(table, "heads", (double)ranking->n_heads);
    return hl_sheet_hand_over(out, table, status);
}
