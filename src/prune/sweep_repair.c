/* sweep_repair.c - the cost of a sweep's orders when the other heads compensate for the removed ones.
 *
 * Every order is also measured at every ratio with the mean outputs of the removed heads in the output
 * biases (means), and with output projections that are solved again on the ranking text (repair.h).
 * Of the random orders, the one with the median loss of the seeds is measured. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/sheet.h"
#include "base/status.h"
#include "headlight/prune.h"
#include "model/model.h"
#include "prune/evaluate.h"
#include "prune/gates.h"
#include "prune/repair.h"
#include "prune/sweep_stages.h"

enum { NAME = 64 };

static const char *const ways[HL_SWEEP_WAYS] = { "mean", "repaired" };

/* Copies the heads whose gates are 0 in a setting. */
static hl_status list_off(hl_head **out, int64_t *n, const hl_sweep *s, int64_t setting)
{
    const float *gates = s->gates + setting * s->n_gates;

    *n = 0;
    HL_NEED(HL_ALLOC(out, (size_t)s->n_singles));
    for (int64_t i = 0; i < s->n_singles; i++) {
        if (gates[s->heads[i].layer * s->model->config->n_heads + s->heads[i].head] == 0.0f)
            (*out)[(*n)++] = s->heads[i];
    }
    return HL_OK;
}

/* The seed whose loss at the ratio is the median, or the next above it. */
static int64_t median_order(const hl_sweep *s, int64_t ratio)
{
    for (int64_t i = s->n_fixed; i < s->n_orders; i++) {
        double  nll   = hl_evaluation_total(s->test, s->orders[i].first + ratio).nll;
        int64_t below = 0, equal = 0;

        for (int64_t k = s->n_fixed; k < s->n_orders; k++) {
            double other = hl_evaluation_total(s->test, s->orders[k].first + ratio).nll;
            below += other < nll;
            equal += other == nll;
        }
        if (below <= s->options.n_seeds / 2 && below + equal > s->options.n_seeds / 2)
            return i;
    }
    return s->n_fixed;
}

int64_t hl_sweep_repair_setting(const hl_sweep *s, int64_t row)
{
    int64_t order = row / s->options.n_ratios, ratio = row % s->options.n_ratios;

    return s->orders[order < s->n_fixed ? order : median_order(s, ratio)].first + ratio;
}

/* ------------------------------------------------------------------------ the stage */

static hl_status take_means(float **out, hl_sweep *s)
{
    HL_CLOSED(hl_head_moments_free) hl_head_moments *moments = NULL;
    hl_moments_options options = { .windows   = { .n_ctx      = s->options.n_ctx,
                                                  .max_tokens = s->options.rank_tokens,
                                                  .around     = s->options.around },
                                   .n_threads = s->options.n_threads };

    HL_NEED(hl_head_moments_take(&moments, s->model, s->rank_corpus, &options));
    size_t count = (size_t)(s->n_gates * moments->d_head);
    HL_NEED(HL_ALLOC(out, count));
    for (size_t i = 0; i < count; i++)
        (*out)[i] = (float)moments->mean[i];
    return HL_OK;
}

static hl_status mend(hl_repair **out, hl_sweep *s, int64_t way, const hl_head_list *heads,
                      float **means)
{
    hl_repair_options options = { .windows   = { .n_ctx      = s->options.n_ctx,
                                                 .max_tokens = s->options.rank_tokens,
                                                 .around     = s->options.around },
                                  .n_threads = s->options.n_threads };

    if (way == HL_SWEEP_REPAIRED)
        return hl_repair_heads(out, s->model, s->rank_corpus, heads, &options);
    if (*means == NULL)
        HL_NEED(take_means(means, s));
    return hl_repair_by_means(out, s->model, heads, *means);
}

/* Are all windows scored in the state? */
static bool is_there(const hl_sweep *s, const char *name)
{
    const double *list = hl_sweep_state_get(s->state, name, 1 + 2 * 3 * s->test->n_windows);

    return list != NULL && list[0] == (double)s->test->n_windows;
}

/* The scores of one row in one way: the model with other weights, all gates 1. */
static hl_status run_row(hl_sweep *s, int64_t row, int64_t way, const float *ones, float **means)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found  = NULL;
    HL_CLOSED(hl_repair_free) hl_repair         *repair = NULL;
    HL_FREED hl_head                            *off    = NULL;
    hl_head_list                                 heads  = { 0 };
    char                                         name[NAME];

    snprintf(name, sizeof name, "%s.%" PRId64, ways[way], row);
    HL_NEED(list_off(&off, &heads.n_heads, s, hl_sweep_repair_setting(s, row)));
    heads.heads = off;
    if (!is_there(s, name)) {
        HL_NEED(mend(&repair, s, way, &heads, means));
        HL_NEED(hl_model_set_repair(s->model, repair));
    }
    hl_status status =
        hl_sweep_evaluate(&found, s, s->test_corpus, ones, 1, s->options.test_tokens, name);
    (void)hl_model_set_repair(s->model, NULL);
    HL_NEED(status);
    memcpy(s->mended + (row * HL_SWEEP_WAYS + way) * s->test->n_windows, found->dense,
           (size_t)s->test->n_windows * sizeof *s->mended);
    return HL_OK;
}

hl_status hl_sweep_run_repairs(hl_sweep *s)
{
    HL_FREED float *means = NULL, *ones = NULL;
    int64_t         n_rows = (s->n_fixed + 1) * s->options.n_ratios;

    if (!s->options.repair)
        return HL_OK;
    s->stage    = "repairing";
    s->can_mend = hl_repair_check(s->model) == HL_OK;
    if (!s->can_mend)
        HL_NEED(hl_strdup(&s->why_not, hl_error_message()));
    HL_NEED(HL_ALLOC(&ones, (size_t)s->n_gates));
    for (int64_t i = 0; i < s->n_gates; i++)
        ones[i] = 1.0f;
    HL_NEED(hl_alloc_zeroed((void **)&s->mended, (size_t)(n_rows * HL_SWEEP_WAYS),
                            (size_t)s->test->n_windows * sizeof *s->mended));
    for (int64_t row = 0; row < n_rows; row++) {
        for (int64_t way = 0; way < HL_SWEEP_WAYS; way++) {
            if (s->n_off[row % s->options.n_ratios] > 0 &&
                (way != HL_SWEEP_REPAIRED || s->can_mend))
                HL_NEED(run_row(s, row, way, ones, &means));
        }
        HL_NEED(hl_sweep_save(s, false));
    }
    return HL_OK;
}
