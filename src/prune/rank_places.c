/* rank_places.c - how certain a ranking is.
 *
 *     score   the head's score again without each window (document): its interval (base/interval.h)
 *     place   heads a and b are in a certain order if the interval of score a - score b, which is
 *             over the same windows, does not hold 0; a head stands behind all that are certainly
 *             before it, and before all that are certainly behind it
 *
 * Windows on which all heads score high move all scores, and not the order: so the places are far
 * more certain than intervals that overlap suggest. */
#include "prune/rank_parts.h"

#include <math.h>

#include "analysis/grid.h"
#include "base/interval.h"
#include "base/memory.h"
#include "base/status.h"

/* Scores of all places of the grid (n_layers * n_heads, n_groups + 1): each with a unit left out,
 * and last with none. */
typedef struct left_scores {
    double      *all;
    hl_unit_rows rows; /* number and kind of rows; holds no pointers */
    int64_t      n_layers;
    int64_t      n_heads;
} left_scores;

static void free_scores(left_scores *scores)
{
    hl_free(scores->all);
}

/* ------------------------------------------------------- scores without a unit */

static hl_status read_means(left_scores *out, const hl_profile *profile, int quantity)
{
    hl_free(out->all);
    out->all = NULL;
    return hl_grid_left_out(&out->all, &out->rows, profile, (hl_quantity)quantity, NULL,
                            hl_profile_n_sequences(profile));
}

/* 1 - self - first */
static hl_status read_received(left_scores *out, const hl_profile *profile)
{
    HL_FREED double *self = NULL;
    hl_unit_rows     rows;

    HL_NEED(
        hl_grid_left_out(&self, &rows, profile, HL_Q_SELF, NULL, hl_profile_n_sequences(profile)));
    HL_NEED(read_means(out, profile, HL_Q_FIRST));
    for (int64_t i = 0; i < out->n_layers * out->n_heads * (rows.n_groups + 1); i++)
        out->all[i] = 1.0 - self[i] - out->all[i];
    return HL_OK;
}

/* Gradients are means over windows; documents that follow one another in the windows are units if
 * there are enough. */
static hl_status read_gradients(left_scores *out, const hl_gradients *gradients)
{
    HL_FREED int64_t *groups = NULL;
    int64_t           n      = gradients->n_windows;
    hl_unit_rows      rows   = { .values    = gradients->each,
                                 .n_rows    = n,
                                 .n_columns = out->n_layers * out->n_heads,
                                 .units     = HL_UNITS_DOCUMENTS };

    HL_NEED(HL_ALLOC(&groups, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        bool is_new = i == 0 || gradients->documents[i] != gradients->documents[i - 1];
        rows.n_groups += is_new;
        groups[i] = rows.n_groups - 1;
    }
    rows.groups = groups;
    if (rows.n_groups < HL_MIN_UNITS) {
        rows.units    = HL_UNITS_WINDOWS;
        rows.groups   = NULL;
        rows.n_groups = n;
    }
    hl_status status = hl_left_out(&out->all, &rows);
    rows.values      = NULL;
    rows.groups      = NULL;
    out->rows        = rows;
    return status;
}

/* Leaves out->all NULL for rankers whose score is not known per window. */
static hl_status read_scores(left_scores *out, hl_ranker ranker, const hl_rank_inputs *inputs)
{
    const hl_profile *profile = inputs->profile;

    switch (ranker) {
    case HL_RANKER_ENTROPY:
        return read_means(out, profile, HL_Q_ENTROPY);
    case HL_RANKER_NORMALIZED:
        return read_means(out, profile, HL_Q_NORMALIZED);
    case HL_RANKER_ENTROPY_NOSINK:
        return read_means(out, profile, HL_Q_ENTROPY_NOSINK);
    case HL_RANKER_RENYI2:
        return read_means(out, profile, HL_Q_RENYI2);
    case HL_RANKER_SINK:
        return read_means(out, profile, HL_Q_FIRST);
    case HL_RANKER_RECEIVED:
        return read_received(out, profile);
    case HL_RANKER_OUTPUT_NORM:
        return read_means(out, profile, HL_Q_OUTPUT);
    case HL_RANKER_GRADIENT:
        return inputs->gradients != NULL ? read_gradients(out, inputs->gradients) : HL_OK;
    default:
        return HL_OK;
    }
}

/* --------------------------------------------------------------------- places */

static const double *column_of(const left_scores *s, const hl_ranked *head)
{
    return s->all + (head->layer * s->n_heads + head->head) * (s->rows.n_groups + 1);
}

/* Returns the standard error of the difference of two heads' scores, by the jackknife. */
static double error_apart(const double *a, const double *b, int64_t n)
{
    double all = a[n] - b[n], sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        double moved = a[i] - b[i] - all;
        sum += moved * moved;
    }
    return sqrt(sum * (double)(n - 1) / (double)n);
}

/* Counts the heads that are certainly before or behind each other. */
static void find_places(hl_rank_place *places, const hl_ranking *ranking, const left_scores *s)
{
    int64_t n = s->rows.n_groups, n_heads = ranking->n_heads;
    double  t = hl_student_quantile(HL_LEVEL, (double)(n - 1));

    for (int64_t i = 0; i < n_heads; i++) {
        places[i].first += 1;
        places[i].last += n_heads;
    }
    for (int64_t i = 0; i < n_heads; i++) {
        for (int64_t j = i + 1; j < n_heads; j++) {
            const hl_ranked *a = &ranking->heads[i], *b = &ranking->heads[j];
            double           error = error_apart(column_of(s, a), column_of(s, b), n);

            if (!(fabs(a->score - b->score) > t * error))
                continue; /* also if one is NaN */
            places[j].first++;
            places[i].last--;
        }
    }
}

hl_status hl_rank_find_places(hl_ranking *ranking, const hl_rank_inputs *inputs)
{
    HL_SCOPED(free_scores) left_scores scores = { .n_layers = ranking->n_layers };
    HL_FREED hl_rank_place            *places = NULL;

    scores.n_heads = inputs->profile != NULL ? hl_profile_n_heads(inputs->profile)
                                             : hl_model_get_info(inputs->model)->n_heads;
    HL_NEED(read_scores(&scores, ranking->ranker, inputs));
    if (scores.all == NULL)
        return HL_OK;
    HL_NEED(HL_ALLOC_ZEROED(&places, (size_t)ranking->n_heads));
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        const hl_ranked *head   = &ranking->heads[i];
        const double    *column = column_of(&scores, head);

        places[i].interval =
            hl_interval_about(hl_left_out_interval(column, &scores.rows, HL_SCALE_PLAIN),
                              column[scores.rows.n_groups], head->score);
    }
    if (scores.rows.n_groups >= HL_MIN_UNITS && !isnan(places[0].interval.low))
        find_places(places, ranking, &scores);
    ranking->places = hl_taken(&places);
    return HL_OK;
}
