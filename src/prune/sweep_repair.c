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

/* Rows that are scored side by side: the original is run once for all of them. */
enum { NAME = 64, BATCH = 32 };

static const char *const ways[HL_SWEEP_WAYS] = { "mean", "repaired" };

/* Copies the heads whose gates are 0 in a setting to `out`, which has room for all. */
static void list_off(hl_head *out, int64_t *n, const hl_sweep *s, int64_t setting)
{
    const float *gates = s->gates + setting * s->n_gates;

    *n = 0;
    for (int64_t i = 0; i < s->n_singles; i++) {
        if (gates[s->heads[i].layer * s->model->config->n_heads + s->heads[i].head] == 0.0f)
            out[(*n)++] = s->heads[i];
    }
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

/* ------------------------------------------------------------------------ the state
 *
 * The scores of a row in one way: the number of windows, then three numbers per window. */

static void name_row(char name[NAME], int64_t row, int64_t way)
{
    snprintf(name, NAME, "%s.%" PRId64, ways[way], row);
}

static hl_scores *scores_of(const hl_sweep *s, int64_t row, int64_t way)
{
    return s->mended + (row * HL_SWEEP_WAYS + way) * s->test->n_windows;
}

static hl_status keep_row(hl_sweep *s, int64_t row, int64_t way)
{
    int64_t          n    = s->test->n_windows;
    HL_FREED double *list = NULL;
    char             name[NAME];

    HL_NEED(HL_ALLOC(&list, (size_t)(1 + 3 * n)));
    list[0] = (double)n;
    for (int64_t i = 0; i < n; i++)
        hl_scores_write(list + 1 + 3 * i, &scores_of(s, row, way)[i]);
    name_row(name, row, way);
    return hl_sweep_state_put(s->state, name, list, 1 + 3 * n);
}

/* The file is untrusted: false also for scores that cannot be, which are then computed again. */
static bool restore_row(hl_sweep *s, int64_t row, int64_t way)
{
    int64_t n = s->test->n_windows;
    char    name[NAME];

    name_row(name, row, way);
    const double *list = hl_sweep_state_get(s->state, name, 1 + 3 * n);
    bool          good = list != NULL && list[0] == (double)n;
    for (int64_t i = 0; good && i < n; i++)
        good = hl_scores_read(&scores_of(s, row, way)[i], list + 1 + 3 * i, s->test->scored[i]);
    return good;
}

/* ------------------------------------------------------------------------ the stage */

static hl_window_options rank_windows(const hl_sweep *s)
{
    return (hl_window_options){ .n_ctx      = s->options.n_ctx,
                                .max_tokens = s->options.rank_tokens,
                                .around     = s->options.around };
}

static bool is_wanted(const hl_sweep *s, int64_t row)
{
    return s->n_off[row % s->options.n_ratios] > 0;
}

/* The first row with the same heads: rankers often choose the same ones. */
static int64_t find_equal(const hl_sweep *s, int64_t row)
{
    const float *gates   = s->gates + hl_sweep_repair_setting(s, row) * s->n_gates;
    size_t       n_bytes = (size_t)s->n_gates * sizeof *gates;
    int64_t      first   = 0;

    while (memcmp(s->gates + hl_sweep_repair_setting(s, first) * s->n_gates, gates, n_bytes) != 0)
        first++;
    return first;
}

/* Rows that are still to be scored in a way, at most n_most. */
static int64_t list_rows(int64_t *out, const hl_sweep *s, int64_t way, int64_t from, int64_t n_most)
{
    int64_t n = 0;

    for (int64_t row = from; row < s->n_mended && n < n_most; row++) {
        if (is_wanted(s, row) && find_equal(s, row) == row &&
            !s->is_mended[row * HL_SWEEP_WAYS + way])
            out[n++] = row;
    }
    return n;
}

static hl_status show_progress(void *context, const hl_progress *progress)
{
    hl_sweep   *s      = context;
    hl_progress mine   = *progress;
    double      n_done = 0.0, n_all = 0.0;

    for (int64_t i = 0; i < s->n_mended * HL_SWEEP_WAYS; i++) {
        n_all += is_wanted(s, i / HL_SWEEP_WAYS);
        n_done += s->is_mended[i];
    }
    mine.stage = s->stage;
    mine.share = n_done / n_all;
    return s->options.progress == NULL ? HL_OK : s->options.progress(s->options.context, &mine);
}

/* Scores a batch of rows side by side. */
static hl_status run_batch(hl_sweep *s, const int64_t *rows, int64_t n, int64_t way)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found        = NULL;
    hl_head_list                                 lists[BATCH] = { 0 };
    bool                                         means[BATCH];
    hl_window_options                            test    = rank_windows(s);
    hl_repair_options                            options = { .windows      = rank_windows(s),
                                                             .memory_bytes = s->options.memory_bytes,
                                                             .n_threads    = s->options.n_threads,
                                                             .progress     = show_progress,
                                                             .context      = s };
    HL_FREED hl_head                            *all     = NULL;

    HL_NEED(hl_alloc((void **)&all, (size_t)n, (size_t)s->n_singles * sizeof *all));
    for (int64_t i = 0; i < n; i++) {
        means[i]       = way == HL_SWEEP_MEAN;
        lists[i].heads = all + i * s->n_singles;
        list_off(all + i * s->n_singles, &lists[i].n_heads, s, hl_sweep_repair_setting(s, rows[i]));
    }
    test.max_tokens = s->options.test_tokens;
    HL_NEED(hl_evaluate_cases(&found, s->model, s->rank_corpus, s->test_corpus, lists, means, n,
                              &options, &test));
    for (int64_t i = 0; i < n; i++) {
        memcpy(scores_of(s, rows[i], way), found->scores + i * found->n_windows,
               (size_t)found->n_windows * sizeof *s->mended);
        s->is_mended[rows[i] * HL_SWEEP_WAYS + way] = true;
        HL_NEED(keep_row(s, rows[i], way));
    }
    return hl_sweep_save(s, false);
}

static hl_status take_means(float **out, hl_sweep *s)
{
    HL_CLOSED(hl_head_moments_free) hl_head_moments *moments = NULL;
    hl_moments_options options = { .windows = rank_windows(s), .n_threads = s->options.n_threads };

    HL_NEED(hl_head_moments_take(&moments, s->model, s->rank_corpus, &options));
    size_t count = (size_t)(s->n_gates * moments->d_head);
    HL_NEED(HL_ALLOC(out, count));
    for (size_t i = 0; i < count; i++)
        (*out)[i] = (float)moments->mean[i];
    return HL_OK;
}

/* Where a norm follows the output projection, means cannot be added to the stream: they become a bias of
 * the model, which is then run as a whole. */
static hl_status run_means(hl_sweep *s, int64_t row, const float *means)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found   = NULL;
    HL_CLOSED(hl_repair_free) hl_repair         *repair  = NULL;
    HL_FREED hl_head                            *off     = NULL;
    hl_head_list                                 heads   = { 0 };
    hl_evaluate_options                          options = { .windows      = rank_windows(s),
                                                             .memory_bytes = s->options.memory_bytes,
                                                             .n_threads    = s->options.n_threads };

    HL_NEED(HL_ALLOC(&off, (size_t)s->n_singles));
    list_off(off, &heads.n_heads, s, hl_sweep_repair_setting(s, row));
    heads.heads = off;
    HL_NEED(hl_repair_by_means(&repair, s->model, &heads, means));
    HL_NEED(hl_model_set_repair(s->model, repair));
    options.windows.max_tokens = s->options.test_tokens;
    hl_status status           = hl_evaluate(&found, s->model, s->test_corpus, NULL, 0, &options);
    (void)hl_model_set_repair(s->model, NULL);
    HL_NEED(status);
    memcpy(scores_of(s, row, HL_SWEEP_MEAN), found->dense,
           (size_t)found->n_windows * sizeof *s->mended);
    s->is_mended[row * HL_SWEEP_WAYS + HL_SWEEP_MEAN] = true;
    HL_NEED(keep_row(s, row, HL_SWEEP_MEAN));
    return hl_sweep_save(s, false);
}

static hl_status run_way(hl_sweep *s, int64_t way)
{
    HL_FREED float *means = NULL;
    int64_t         rows[BATCH], from = 0;

    for (;;) {
        int64_t n = list_rows(rows, s, way, from, s->can_mend ? BATCH : 1);

        if (n == 0)
            return HL_OK;
        if (!s->can_mend && means == NULL)
            HL_NEED(take_means(&means, s));
        HL_NEED(s->can_mend ? run_batch(s, rows, n, way) : run_means(s, rows[0], means));
        from = rows[n - 1] + 1;
    }
}

hl_status hl_sweep_run_repairs(hl_sweep *s)
{
    if (!s->options.repair)
        return HL_OK;
    s->stage    = "repairing";
    s->can_mend = hl_repair_check(s->model) == HL_OK;
    if (!s->can_mend)
        HL_NEED(hl_strdup(&s->why_not, hl_error_message()));
    s->n_mended = (s->n_fixed + 1) * s->options.n_ratios;
    HL_NEED(hl_alloc_zeroed((void **)&s->mended, (size_t)(s->n_mended * HL_SWEEP_WAYS),
                            (size_t)s->test->n_windows * sizeof *s->mended));
    HL_NEED(HL_ALLOC_ZEROED(&s->is_mended, (size_t)(s->n_mended * HL_SWEEP_WAYS)));
    for (int64_t i = 0; i < s->n_mended * HL_SWEEP_WAYS; i++)
        s->is_mended[i] = restore_row(s, i / HL_SWEEP_WAYS, i % HL_SWEEP_WAYS);
    for (int64_t way = 0; way < HL_SWEEP_WAYS; way++) {
        if (way != HL_SWEEP_REPAIRED || s->can_mend)
            HL_NEED(run_way(s, way));
    }
    for (int64_t row = 0; row < s->n_mended; row++) {
        int64_t equal = find_equal(s, row);

        if (equal != row)
            memcpy(scores_of(s, row, 0), scores_of(s, equal, 0),
                   (size_t)(HL_SWEEP_WAYS * s->test->n_windows) * sizeof *s->mended);
    }
    return HL_OK;
}
