/* row_distances.c - two models on the same tokens, row by row.
 *
 * Each window goes through A first, whose sampled rows of all layers are kept; then through B.
 * Every head of a layer of B is compared with every head of A, because training permutes heads. */
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/likeness.h"
#include "measure/measure.h"
#include "model/model.h"

enum { N_ROWS = 8 };

typedef struct row_run {
    const hl_model         *models[2];
    hl_session             *sessions[2];
    hl_row_distance_options options; /* with all defaults filled in */
    hl_windows             *windows;
    hl_batch                batch;
    int64_t                *positions; /* (n_rows) sampled positions of the window */
    int64_t                 n_drawn;   /* number of sampled positions in this window */
    float                  *kept;      /* (L, H, n_rows, context) A's rows */
    hl_row_distances       *out;       /* sums during the run, means at the end */
    size_t                  capacity;  /* allocated size of out->of_sequences */
    double                 *sequence;  /* (L, H) sums over the window */
} row_run;

/* --------------------------------------------------------------------- distances */

/* Two rows over the same keys; the share of a learned sink is one more outcome. */
typedef struct two_rows {
    const float *a;
    const float *b;
    int64_t      n_keys;
    double       sink_a;
    double       sink_b;
} two_rows;

static double sink_of(const hl_model *model, const float *p, int64_t n_keys)
{
    double rest = 1.0;

    if (!model->config->sinks)
        return 0.0;
    for (int64_t key = 0; key < n_keys; key++)
        rest -= (double)p[key];
    return rest > 0.0 ? rest : 0.0;
}

static double variation_of(const two_rows *rows)
{
    double sums[4] = { fabs(rows->sink_a - rows->sink_b) };

    for (int64_t key = 0; key < rows->n_keys; key++)
        sums[key % 4] += fabs((double)rows->a[key] - (double)rows->b[key]);
    return hl_total_variation((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static double divergence_term(double p, double q)
{
    double mean = 0.5 * (p + q);
    double sum  = 0.0;

    sum += p > 0.0 ? p * log(p / mean) : 0.0;
    sum += q > 0.0 ? q * log(q / mean) : 0.0;
    return isnan(mean) ? mean : 0.5 * sum;
}

static double divergence_of(const two_rows *rows)
{
    double sum = divergence_term(rows->sink_a, rows->sink_b);

    for (int64_t key = 0; key < rows->n_keys; key++)
        sum += divergence_term((double)rows->a[key], (double)rows->b[key]);
    return sum;
}

/* --------------------------------------------------------------------------- taps */

static float *kept_row(const row_run *run, int64_t layer, int64_t head, int64_t index)
{
    int64_t n_heads = run->out->n_heads;

    return run->kept +
           ((layer * n_heads + head) * run->options.n_rows + index) * run->options.windows.n_ctx;
}

static const float *pattern_of(const hl_layer_rows *rows, int64_t head, int64_t index)
{
    return rows->pattern + (head * rows->n_patterns + index) * rows->n_keys;
}

static hl_status keep_layer(void *context, const hl_layer_rows *rows)
{
    row_run *run = context;

    for (int64_t i = 0; i < rows->n_heads * rows->n_patterns; i++) {
        int64_t head  = i / rows->n_patterns;
        int64_t index = i % rows->n_patterns;

        if (rows->pattern_rows[index] >= 0)
            memcpy(kept_row(run, rows->layer, head, index), pattern_of(rows, head, index),
                   (size_t)rows->n_keys * sizeof(float));
    }
    return HL_OK;
}

/* Compares head `a` of A with all heads of B, in one row. */
static void compare_head(const row_run *run, const hl_layer_rows *rows, int64_t a, int64_t index)
{
    hl_row_distances *out    = run->out;
    int64_t           cell   = rows->layer * out->n_heads + a;
    const float      *kept   = kept_row(run, rows->layer, a, index);
    int64_t           n_keys = rows->n_keys;
    double            sink_a = sink_of(run->models[0], kept, n_keys);

    for (int64_t b = 0; b < rows->n_heads; b++) {
        const float *other = pattern_of(rows, b, index);
        two_rows     pair = { kept, other, n_keys, sink_a, sink_of(run->models[1], other, n_keys) };
        double       value = variation_of(&pair);

        out->variation[cell * out->n_heads + b] += value;
        if (a == b) {
            out->divergence[cell] += divergence_of(&pair);
            run->sequence[cell] += value;
        }
    }
}

/* The argument of the threads. */
typedef struct compare_job {
    const row_run       *run;
    const hl_layer_rows *rows;
} compare_job;

static void compare_heads(void *context, int64_t first, int64_t end, int member)
{
    const compare_job   *job  = context;
    const hl_layer_rows *rows = job->rows;
    (void)member;

    for (int64_t head = first; head < end; head++) {
        for (int64_t index = 0; index < rows->n_patterns; index++) {
            if (rows->pattern_rows[index] >= 0)
                compare_head(job->run, rows, head, index);
        }
    }
}

static hl_status compare_layer(void *context, const hl_layer_rows *rows)
{
    row_run *run = context;

    hl_parallel(hl_threads(run->options.n_threads), rows->n_heads, 1, compare_heads,
                &(compare_job){ run, rows });
    return HL_OK;
}

/* ------------------------------------------------------------------------- windows */

static hl_status feed(row_run *run, int side)
{
    hl_tap tap = { .context             = run,
                   .layer               = side == 0 ? keep_layer : compare_layer,
                   .wants               = HL_WANT_PATTERN,
                   .pattern_positions   = run->positions,
                   .n_pattern_positions = run->options.n_rows,
                   .patterns_differ     = true };

    HL_NEED(hl_session_rewind(run->sessions[side], 0, 0));
    return hl_session_feed(
        run->sessions[side],
        &(hl_feed){ .tokens = run->batch.tokens, .n_tokens = run->batch.lengths[0], .tap = &tap });
}

/* Samples rows.  Rows that see only one key are the same in all models and are left out. */
static void draw_rows(row_run *run)
{
    const hl_batch *batch = &run->batch;
    int64_t         low   = batch->first_row[0] > 1 ? batch->first_row[0] : 1;
    int64_t         high  = batch->lengths[0] > low ? batch->lengths[0] : low;

    hl_measure_draw(run->positions, run->options.n_rows, low, high,
                    hl_hash_pair(run->options.seed, batch->hashes[0]));
    run->n_drawn = 0;
    for (int64_t i = 0; i < run->options.n_rows; i++)
        run->n_drawn += run->positions[i] >= 0;
}

static hl_status keep_sequence(row_run *run)
{
    hl_row_distances *out  = run->out;
    size_t            size = (size_t)(out->n_layers * out->n_heads);
    size_t            n    = (size_t)out->n_sequences;

    HL_NEED(HL_GROW(&out->of_sequences, &run->capacity, n * size, size));
    for (size_t i = 0; i < size; i++)
        out->of_sequences[n * size + i] = run->sequence[i] / (double)run->n_drawn;
    out->n_sequences++;
    out->n_rows += run->n_drawn;
    return HL_OK;
}

static hl_status compare_windows(row_run *run)
{
    size_t size = (size_t)(run->out->n_layers * run->out->n_heads);

    for (;;) {
        HL_NEED(hl_windows_next(&run->batch, run->windows));
        if (run->batch.n_windows == 0)
            break;
        draw_rows(run);
        if (run->n_drawn == 0)
            continue;
        memset(run->sequence, 0, size * sizeof *run->sequence);
        HL_NEED(feed(run, 0));
        HL_NEED(feed(run, 1));
        HL_NEED(keep_sequence(run));
    }
    return HL_OK;
}

/* Turns sums into means; NaN if the layer lacks the head or no row was compared. */
static void finish_means(const row_run *run)
{
    hl_row_distances *out = run->out;
    double            n   = out->n_rows > 0 ? (double)out->n_rows : (double)NAN;

    for (int64_t cell = 0; cell < out->n_layers * out->n_heads; cell++) {
        int64_t n_heads = out->heads[cell / out->n_heads];
        bool    there   = cell % out->n_heads < n_heads;

        out->divergence[cell] = there ? out->divergence[cell] / n : (double)NAN;
        for (int64_t b = 0; b < out->n_heads; b++) {
            double *value = &out->variation[cell * out->n_heads + b];
            *value        = there && b < n_heads ? *value / n : (double)NAN;
        }
        for (int64_t i = 0; i < out->n_sequences && !there; i++)
            out->of_sequences[i * out->n_layers * out->n_heads + cell] = (double)NAN;
    }
}

/* --------------------------------------------------------------------------- whole */

static hl_status check_models(const hl_config *a, const hl_config *b)
{
    if (a->n_layers != b->n_layers || a->n_heads != b->n_heads)
        return hl_fail(HL_BAD_INPUT,
                       "the models differ in shape: the first has %lld layers of %lld heads, the "
                       "second %lld of %lld",
                       (long long)a->n_layers, (long long)a->n_heads, (long long)b->n_layers,
                       (long long)b->n_heads);
    for (int64_t layer = 0; layer < a->n_layers; layer++) {
        if (a->layers[layer].n_heads != b->layers[layer].n_heads)
            return hl_fail(HL_BAD_INPUT,
                           "layer %lld has %lld heads in the first model, %lld in the second",
                           (long long)layer, (long long)a->layers[layer].n_heads,
                           (long long)b->layers[layer].n_heads);
    }
    return HL_OK;
}

static void complete_options(row_run *run)
{
    hl_window_options *windows = &run->options.windows;
    int64_t            a       = hl_config_ctx(run->models[0]->config, windows->n_ctx);
    int64_t            b       = hl_config_ctx(run->models[1]->config, windows->n_ctx);

    windows->n_ctx = a < b ? a : b;
    if (windows->stride == 0)
        windows->stride = windows->n_ctx;
    windows->n_batch = 1;
    windows->n_parts = windows->n_parts > 0 ? windows->n_parts : 1;
    if (run->options.n_rows <= 0)
        run->options.n_rows = N_ROWS;
}

static hl_status open_run(row_run *run, const hl_corpus *corpus)
{
    const hl_config *config = run->models[0]->config;
    size_t           cells  = (size_t)(config->n_layers * config->n_heads);
    size_t           width  = (size_t)(run->options.n_rows * run->options.windows.n_ctx);

    hl_session_options session = { .n_ctx      = run->options.windows.n_ctx,
                                   .n_patterns = run->options.n_rows,
                                   .wants      = HL_WANT_PATTERN,
                                   .n_threads  = run->options.n_threads };

    HL_NEED(hl_windows_open(&run->windows, corpus, &run->options.windows));
    for (int side = 0; side < 2; side++)
        HL_NEED(hl_session_open(&run->sessions[side], run->models[side], &session));
    HL_NEED(HL_ALLOC(&run->positions, (size_t)run->options.n_rows));
    HL_NEED(HL_ALLOC(&run->kept, cells * width));
    HL_NEED(HL_ALLOC(&run->sequence, cells));
    HL_NEED(HL_ALLOC_ZEROED(&run->out, 1));
    run->out->n_layers = config->n_layers;
    run->out->n_heads  = config->n_heads;
    HL_NEED(HL_ALLOC(&run->out->heads, (size_t)config->n_layers));
    for (int64_t layer = 0; layer < config->n_layers; layer++)
        run->out->heads[layer] = config->layers[layer].n_heads;
    HL_NEED(HL_ALLOC_ZEROED(&run->out->variation, cells * (size_t)config->n_heads));
    return HL_ALLOC_ZEROED(&run->out->divergence, cells);
}

static void close_run(row_run *run)
{
    hl_windows_close(run->windows);
    for (int side = 0; side < 2; side++)
        hl_session_close(run->sessions[side]);
    hl_free(run->positions);
    hl_free(run->kept);
    hl_free(run->sequence);
    hl_row_distances_free(run->out);
}

hl_status hl_measure_row_distances(hl_row_distances **out, const hl_model *a, const hl_model *b,
                                   const hl_corpus *corpus, const hl_row_distance_options *options)
{
    HL_SCOPED(close_run) row_run run = { .models = { a, b } };

    *out = NULL;
    if (a == NULL || b == NULL || corpus == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "rows: two models and a text are needed");
    if (options != NULL)
        run.options = *options;
    HL_NEED(check_models(a->config, b->config));
    complete_options(&run);
    HL_NEED(open_run(&run, corpus));
    HL_NEED(compare_windows(&run));
    finish_means(&run);
    *out    = run.out;
    run.out = NULL;
    return HL_OK;
}

void hl_row_distances_free(hl_row_distances *distances)
{
    if (distances == NULL)
        return;
    hl_free(distances->heads);
    hl_free(distances->variation);
    hl_free(distances->divergence);
    hl_free(distances->of_sequences);
    hl_free(distances);
}
