/* analysis_kinds.c - tables of what heads do: types by rule, clusters by likeness. */
#include <math.h>

#include "analysis/analysis.h"
#include "analysis/grid.h"
#include "analysis/growing_text.h"
#include "analysis/head_clusters.h"
#include "analysis/head_types.h"
#include "analysis/sheet.h"
#include "base/memory.h"
#include "base/status.h"

/* --------------------------------------------------------------- head types */

static const hl_column kind_columns[] = {
    { "layer", HL_COLUMN_INT, 0 },
    { "head", HL_COLUMN_INT, 0 },
    { "type", HL_COLUMN_TEXT, 0 },
    { "value", HL_COLUMN_REAL, 3 },
    { "threshold", HL_COLUMN_REAL, 2 },
    { "rule", HL_COLUMN_TEXT, 0 },
    { 0 },
};

/* "3 sink, 5 local, 1 global", in the order of the rules. */
static void add_counts(hl_sheet *table, const int64_t counts[HL_N_HEAD_KINDS])
{
    for (int kind = 0; kind < HL_N_HEAD_KINDS; kind++) {
        if (counts[kind] > 0)
            hl_sheet_fact_real(table, hl_head_kind_name((hl_head_kind)kind), (double)counts[kind]);
    }
}

hl_status hl_analyse_head_types(hl_sheet **out, const hl_profile *profile,
                                const hl_analysis_options *options)
{
    hl_status status                  = HL_OK;
    hl_sheet *table                   = NULL;
    int64_t   counts[HL_N_HEAD_KINDS] = { 0 };

    (void)options;
    HL_TRY(hl_sheet_new(&table, "head-types", "What each head does: the first rule that holds",
                        kind_columns));
    HL_EACH_HEAD(profile, layer, head)
    {
        hl_head_type type = hl_head_type_of(profile, layer, head);

        counts[type.kind]++;
        hl_sheet_put_int(table, layer);
        hl_sheet_put_int(table, head);
        hl_sheet_put_text(table, "%s", hl_head_kind_name(type.kind));
        hl_sheet_put_real(table, type.value);
        hl_sheet_put_real(table, type.threshold);
        hl_sheet_put_text(table, "%s", type.rule);
    }
    add_counts(table, counts);
    hl_analysis_facts(table, profile);

done:
    return hl_sheet_hand_over(out, table, status);
}

/* ----------------------------------------------------------------- clusters */

static const hl_column cluster_columns[] = {
    { "cluster", HL_COLUMN_INT, 0 },   { "heads", HL_COLUMN_INT, 0 },
    { "typical", HL_COLUMN_TEXT, 0 },  { "type", HL_COLUMN_TEXT, 0 },
    { "fair", HL_COLUMN_REAL, 2 },     { "first", HL_COLUMN_REAL, 2 },
    { "previous", HL_COLUMN_REAL, 2 }, { "band", HL_COLUMN_REAL, 2 },
    { "members", HL_COLUMN_TEXT, 0 },  { 0 },
};

typedef struct cluster_sums {
    int64_t count;
    int64_t kinds[HL_N_HEAD_KINDS];
    double  fair;
    double  first;
    double  previous;
    double  band;
} cluster_sums;

/* A quantity that was not measured of one head is not known of the cluster: NaN spreads. */
static void add_head(cluster_sums *sums, const hl_profile *profile, int64_t layer, int64_t head)
{
    sums->count++;
    sums->kinds[hl_head_type_of(profile, layer, head).kind]++;
    sums->fair += hl_profile_mean(profile, layer, head, HL_Q_FAIR);
    sums->first += hl_profile_mean(profile, layer, head, HL_Q_FIRST);
    sums->previous += hl_profile_mean(profile, layer, head, HL_Q_PREVIOUS);
    sums->band += hl_profile_pattern(profile, layer, head, HL_PM_BAND, false).mean;
}

static hl_head_kind commonest(const int64_t kinds[HL_N_HEAD_KINDS])
{
    int best = 0;

    for (int kind = 1; kind < HL_N_HEAD_KINDS; kind++)
        best = kinds[kind] > kinds[best] ? kind : best;
    return (hl_head_kind)best;
}

static hl_status put_cluster(hl_sheet *table, const hl_head_clusters *clusters,
                             const hl_profile *profile, int64_t cluster)
{
    int64_t      n_heads = hl_profile_n_heads(profile);
    cluster_sums sums    = { 0 };
    hl_text      members = { 0 };
    char        *list    = NULL;
    char         name[HL_HEAD_NAME_BYTES];

    for (int64_t i = 0; i < clusters->n_heads; i++) {
        int64_t place = clusters->places[i];
        if (clusters->labels[i] != cluster)
            continue;
        add_head(&sums, profile, place / n_heads, place % n_heads);
        hl_text_addf(&members, "%s%s", members.n_bytes > 0 ? " " : "",
                     hl_head_name(name, place / n_heads, place % n_heads));
    }
    hl_status status = hl_text_finish(&list, &members);
    if (status != HL_OK)
        return status;
    int64_t medoid = clusters->medoids[cluster];
    double  count  = (double)sums.count;
    hl_sheet_put_int(table, cluster);
    hl_sheet_put_int(table, sums.count);
    hl_sheet_put_text(table, "%s", hl_head_name(name, medoid / n_heads, medoid % n_heads));
    hl_sheet_put_text(table, "%s", hl_head_kind_name(commonest(sums.kinds)));
    hl_sheet_put_real(table, sums.fair / count);
    hl_sheet_put_real(table, sums.first / count);
    hl_sheet_put_real(table, sums.previous / count);
    hl_sheet_put_real(table, sums.band / count);
    hl_sheet_put_text(table, "%s", list);
    hl_free(list);
    return HL_OK;
}

/* What to make of the mean agreement between divisions of parts of the heads. */
static const char *in_words(double stability)
{
    if (isnan(stability))
        return "too few heads to divide";
    if (stability >= 0.8)
        return "stable: the same groups come out without a fifth of the heads";
    return stability >= 0.5 ? "partly stable: the borders move when heads are left out"
                            : "not stable: do not read much into these groups";
}

hl_status hl_analyse_clusters(hl_sheet **out, const hl_profile *profile,
                              const hl_analysis_options *options)
{
    hl_status         status   = HL_OK;
    hl_sheet         *table    = NULL;
    hl_head_clusters *clusters = NULL;

    HL_TRY(hl_sheet_new(&table, "clusters",
                        "Heads that behave alike: by position, token type and pattern",
                        cluster_columns));
    HL_TRY(hl_head_clusters_new(&clusters, profile, options->seed));
    for (int64_t cluster = 0; cluster < clusters->n_clusters; cluster++)
        HL_TRY(put_cluster(table, clusters, profile, cluster));
    hl_sheet_fact_real(table, "silhouette", clusters->silhouette);
    hl_sheet_fact_real(table, "stability", clusters->stability.mean);
    hl_sheet_fact_real(table, "least stability", clusters->stability.least);
    hl_sheet_fact_text(table, "verdict", "%s", in_words(clusters->stability.mean));
    hl_sheet_fact_real(table, "features", (double)clusters->n_features);
    hl_analysis_facts(table, profile);

done:
    hl_head_clusters_free(clusters);
    return hl_sheet_hand_over(out, table, status);
}
