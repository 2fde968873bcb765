/* damage.c - how much of the difference between two models each head explains.
 *
 *     reference   logits are kept; outputs z of all heads are copied
 *     model       KL of its logits from those; the stream that each layer reads is copied
 *     patches     the model again from a layer on, on that stream, with some heads' z of the reference
 *
 * A patch of layer l costs the layers from l on.  The MLP of a layer is replaced in the stream: what the
 * reference model's MLP adds instead of what the model's adds. */
#include "headlight/damage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/sheet.h"
#include "base/buffer.h"
#include "base/interval.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/window.h"
#include "model/model.h"
#include "prune/gates.h"

enum { USUAL_CONTEXT = 256, MOST_CONTEXT = 512, USUAL_WINDOWS = 8 };
enum { WANTS = HL_WANT_LOSSES | HL_WANT_DIVERGENCE };
enum { WANTS_ALL = WANTS | HL_WANT_Z | HL_WANT_RESID_PRE | HL_WANT_RESID_MID | HL_WANT_RESID_POST };

/* What is copied of one model's run over a window. */
typedef struct run {
    float  *z;       /* (n_layers, n_ctx, width) */
    float  *stream;  /* (n_layers, n_ctx, d_model) that each layer reads */
    float  *mlp;     /* (n_layers, n_ctx, d_model) what its MLP adds */
    float  *post;    /* (n_layers, n_ctx, d_model) */
    double *entropy; /* (n_layers, n_heads) sums over rows of all windows */
    bool    has_mlp; /* the branches are one after the other */
} run;

typedef struct damage_work {
    const hl_model   *models[2]; /* reference, model */
    const hl_config  *config;
    hl_damage_options options;
    hl_windows       *windows;
    hl_session       *sessions[2];
    run               runs[2];
    int64_t           n_ctx;
    int64_t           width;    /* n_heads * d_head, of the widest layer */
    int64_t           n_tokens; /* of the window at hand */
    const int64_t    *tokens;
    int64_t          *targets; /* (n_ctx) */
    float            *patched; /* (n_ctx, d_model) */
    int64_t          *tops;    /* (n_ctx) the reference model's most likely tokens */
    int               which;   /* model that is running */
    double            kl;      /* sums of the run at hand */
    double            loss;
    double            n_same;
    double            n_rows;
    hl_damage        *found;
    int64_t           n_parts;
    double           *kls; /* (n_windows, n_parts + 1) means; the last: not patched */
    size_t            n_kls;
    double           *rows; /* (n_windows) */
    size_t            n_weights;
    double           *changes; /* (n_layers, n_heads, 2) sums of squares: difference, reference */
    double            losses[2];
    double            same;
    bool             *heads; /* (n_layers, n_heads) heads of a patch */
    hl_patch         *patches;
    int64_t           n_done;
} damage_work;

static void free_work(damage_work *work)
{
    for (int i = 0; i < 2; i++) {
        hl_session_close(work->sessions[i]);
        hl_free(work->runs[i].z);
        hl_free(work->runs[i].stream);
        hl_free(work->runs[i].mlp);
        hl_free(work->runs[i].post);
        hl_free(work->runs[i].entropy);
    }
    hl_windows_close(work->windows);
    hl_damage_free(work->found);
    hl_free(work->targets);
    hl_free(work->patched);
    hl_free(work->tops);
    hl_free(work->kls);
    hl_free(work->rows);
    hl_free(work->changes);
    hl_free(work->heads);
    hl_free(work->patches);
}

/* ---------------------------------------------------------------------- running */

static hl_status copy_layer(void *context, const hl_layer_rows *rows)
{
    damage_work *work  = context;
    run         *to    = &work->runs[work->which];
    int64_t      layer = rows->layer, start = rows->start[0], n = rows->lengths[0];
    int64_t      d_model = work->config->d_model, width = rows->n_heads * rows->d_head;
    size_t       at = (size_t)((layer * work->n_ctx + start) * d_model);

    if (rows->z != NULL && rows->n_heads > 0)
        memcpy(to->z + layer * work->n_ctx * work->width + start * width, rows->z,
               (size_t)(n * width) * sizeof *to->z);
    memcpy(to->stream + at, rows->resid_pre, (size_t)(n * d_model) * sizeof *to->stream);
    memcpy(to->post + at, rows->resid_post, (size_t)(n * d_model) * sizeof *to->post);
    to->has_mlp = rows->resid_mid != NULL;
    for (int64_t i = 0; i < n * d_model && to->has_mlp; i++)
        to->mlp[at + (size_t)i] = rows->resid_post[i] - rows->resid_mid[i];
    for (int64_t head = 0; head < rows->n_heads && rows->rows != NULL; head++) {
        for (int64_t row = 0; row < n; row++)
            to->entropy[layer * work->config->n_heads + head] +=
                (double)rows->rows->entropy[head * rows->n_rows + row];
    }
    return HL_OK;
}

static hl_status add_final(void *context, const hl_final_rows *rows)
{
    damage_work *work = context;

    for (int64_t row = 0; row < rows->n_rows; row++) {
        int64_t at = rows->start + row;

        if (work->targets[at] < 0)
            continue;
        work->kl += rows->divergence[row] > 0.0 || isnan(rows->divergence[row])
                        ? rows->divergence[row]
                        : 0.0; /* rounding may make it negative */
        work->loss += rows->losses[row];
        work->n_rows += 1.0;
        if (work->which == 0)
            work->tops[at] = rows->tops[row];
        work->n_same += rows->tops[row] == work->tops[at];
    }
    return HL_OK;
}

static hl_status feed(damage_work *work, int which, const hl_feed *part, uint32_t wants)
{
    hl_feed feed = *part;
    hl_tap  tap  = { .context = work,
                     .final   = add_final,
                     .layer   = wants == WANTS_ALL ? copy_layer : NULL,
                     .wants   = wants };

    work->which = which;
    work->kl = work->loss = work->n_same = work->n_rows = 0.0;

    feed.tokens       = work->tokens;
    feed.n_tokens     = work->n_tokens;
    feed.targets      = work->targets;
    feed.tap          = &tap;
    feed.keeps_logits = which == 0;
    feed.kept_by      = which == 0 ? NULL : work->sessions[0];
    HL_NEED(hl_session_rewind(work->sessions[which], 0, 0));
    HL_NEED(hl_session_feed(work->sessions[which], &feed));
    if (!isfinite(work->kl) || !isfinite(work->loss))
        return hl_fail(HL_BAD_INPUT, "%s: logits are NaN or infinite", work->models[which]->path);
    return HL_OK;
}

/* Adds up how far the outputs of heads are from the reference model's. */
static void add_changes(damage_work *work)
{
    for (int64_t layer = 0; layer < work->config->n_layers; layer++) {
        int64_t      n_heads = hl_heads_of(work->models[0], layer);
        int64_t      d_head = work->config->layers[layer].d_head, n = n_heads * d_head;
        const float *a = work->runs[0].z + layer * work->n_ctx * work->width;
        const float *b = work->runs[1].z + layer * work->n_ctx * work->width;

        for (int64_t i = 0; i < work->n_tokens * n; i++) {
            double *sums = work->changes + 2 * (layer * work->config->n_heads + i % n / d_head);
            sums[0] += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
            sums[1] += (double)a[i] * (double)a[i];
        }
    }
}

/* ---------------------------------------------------------------------- patching */

/* Runs the model with the chosen heads of `work->heads` replaced; *kl is the mean that is left. */
static hl_status patch_heads(double *kl, damage_work *work)
{
    const hl_config *config    = work->config;
    int64_t          first     = -1;
    int64_t          n_patches = 0;

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        const bool *heads = work->heads + layer * config->n_heads;
        bool        any   = false;

        for (int64_t head = 0; head < config->n_heads; head++)
            any = any || heads[head];
        if (!any)
            continue;
        first = first < 0 ? layer : first;
        work->patches[n_patches++] =
            (hl_patch){ layer, work->runs[0].z + layer * work->n_ctx * work->width, heads };
    }
    hl_feed from = { .stream      = work->runs[1].stream + first * work->n_ctx * config->d_model,
                     .first_layer = first,
                     .patches     = work->patches,
                     .n_patches   = n_patches };
    HL_NEED(feed(work, 1, &from, WANTS));
    *kl = work->kl / work->n_rows;
    return HL_OK;
}

static hl_status patch_mlp(double *kl, damage_work *work, int64_t layer)
{
    int64_t d_model = work->config->d_model, at = layer * work->n_ctx * d_model;

    *kl = NAN;
    if (!work->runs[0].has_mlp || !work->runs[1].has_mlp)
        return HL_OK;
    for (int64_t i = 0; i < work->n_tokens * d_model; i++)
        work->patched[i] =
            work->runs[1].post[at + i] + work->runs[0].mlp[at + i] - work->runs[1].mlp[at + i];
    hl_feed from = { .stream = work->patched, .first_layer = layer + 1 };
    HL_NEED(feed(work, 1, &from, WANTS));
    *kl = work->kl / work->n_rows;
    return HL_OK;
}

static hl_status tell(damage_work *work, int64_t n_all)
{
    hl_progress progress = { .share = hl_windows_progress(work->windows) *
                                      (double)(++work->n_done) / (double)n_all,
                             .n_windows = work->found->n_windows };

    return work->options.progress == NULL
               ? HL_OK
               : work->options.progress(work->options.context, &progress);
}

/* Parts in the order of work->kls: heads by place, layers' attention, layers' MLPs. */
static hl_status patch_parts(damage_work *work, double *out)
{
    const hl_config *config = work->config;
    int64_t          size   = config->n_layers * config->n_heads;

    work->n_done = 0;
    for (int64_t i = 0; i < size + 2 * config->n_layers; i++) {
        int64_t layer = i < size ? i / config->n_heads : (i - size) % config->n_layers;
        int64_t n     = hl_heads_of(work->models[0], layer);

        out[i] = NAN;
        memset(work->heads, 0, (size_t)size * sizeof *work->heads);
        if (i < size && i % config->n_heads < n) {
            work->heads[i] = true;
            HL_NEED(patch_heads(&out[i], work));
        } else if (i >= size && i < size + config->n_layers && n > 0) {
            for (int64_t head = 0; head < n; head++)
                work->heads[layer * config->n_heads + head] = true;
            HL_NEED(patch_heads(&out[i], work));
        } else if (i >= size + config->n_layers) {
            HL_NEED(patch_mlp(&out[i], work, layer));
        }
        HL_NEED(tell(work, size + 2 * config->n_layers));
    }
    return HL_OK;
}

/* ----------------------------------------------------------------------- windows */

/* Runs both models over the window. */
static hl_status run_both(damage_work *work, const hl_batch *batch, double *kl)
{
    work->tokens   = batch->tokens;
    work->n_tokens = batch->lengths[0];
    for (int64_t i = 0; i < work->n_tokens; i++)
        work->targets[i] = i + 1 < work->n_tokens ? batch->tokens[i + 1] : -1;
    HL_NEED(feed(work, 0, &(hl_feed){ 0 }, WANTS_ALL));
    work->losses[0] += work->loss;
    HL_NEED(feed(work, 1, &(hl_feed){ 0 }, WANTS_ALL));
    work->losses[1] += work->loss;
    work->same += work->n_same;
    *kl = work->kl / work->n_rows;
    return HL_OK;
}

/* Reads all windows, and fills in a row (n_columns + 1) of KLs for each: those of the patches, and that
 * of the model as it is. */
static hl_status each_window(damage_work *work, const hl_corpus *corpus, int64_t n_columns,
                             hl_status (*patch)(damage_work *work, double *out))
{
    int64_t  n = 0, size = work->config->n_layers * work->config->n_heads;
    size_t   stride = (size_t)n_columns + 1;
    hl_batch batch;

    hl_windows_close(work->windows);
    work->windows   = NULL;
    work->losses[0] = work->losses[1] = work->same = 0.0;
    memset(work->changes, 0, (size_t)(2 * size) * sizeof *work->changes);
    for (int i = 0; i < 2; i++)
        memset(work->runs[i].entropy, 0, (size_t)size * sizeof *work->runs[i].entropy);
    work->found->n_rows = 0;
    HL_NEED(hl_windows_open(&work->windows, corpus, &work->options.windows));
    for (;; n++) {
        do
            HL_NEED(hl_windows_next(&batch, work->windows));
        while (batch.n_windows > 0 && batch.lengths[0] < 2);
        if (batch.n_windows == 0)
            break;
        HL_NEED(HL_GROW(&work->kls, &work->n_kls, (size_t)n * stride, (size_t)(n + 1) * stride));
        HL_NEED(HL_GROW(&work->rows, &work->n_weights, (size_t)n, (size_t)n + 1));
        double *row = work->kls + (size_t)n * stride;
        HL_NEED(run_both(work, &batch, &row[n_columns]));
        work->rows[n] = work->n_rows;
        work->found->n_rows += (int64_t)work->n_rows;
        add_changes(work);
        HL_NEED(patch(work, row));
        work->found->n_windows = n + 1;
    }
    if (n == 0)
        return hl_fail(HL_BAD_INPUT, "the text is too short: no window has two tokens");
    return HL_OK;
}

/* ----------------------------------------------------------------------- results */

/* What is left of the KL with a column's patch, and what that explains. */
static hl_status fill_part(hl_damage_part *part, const damage_work *work, int64_t column,
                           int64_t n_columns)
{
    int64_t          n      = work->found->n_windows;
    HL_FREED double *values = NULL, *left = NULL;
    double           sum = 0.0, weight = 0.0;

    HL_NEED(HL_ALLOC(&values, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        const double *row = work->kls + i * (n_columns + 1);

        values[i] = row[n_columns] - (column < n_columns ? row[column] : 0.0);
        sum += (column < n_columns ? row[column] : 0.0) * work->rows[i];
        weight += work->rows[i];
    }
    hl_unit_rows rows = {
        .values = values, .weights = work->rows, .n_rows = n, .n_columns = 1, .n_groups = n
    };
    HL_NEED(hl_left_out(&left, &rows));
    part->kl        = sum / weight;
    part->explained = left[n];
    part->interval =
        hl_left_out_interval(left, &rows, column < n_columns ? HL_SCALE_PLAIN : HL_SCALE_KL);
    return HL_OK;
}

static int compare_parts(const void *left, const void *right)
{
    const hl_damage_part *a = left, *b = right;

    if (a->explained != b->explained)
        return a->explained > b->explained ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->head < b->head ? -1 : a->head > b->head;
}

static void describe_head(hl_damage_part *part, const damage_work *work)
{
    int64_t at     = part->layer * work->config->n_heads + part->head;
    double  n_rows = 0.0;

    for (int64_t i = 0; i < work->found->n_windows; i++)
        n_rows += work->rows[i] + 1.0; /* every row but the last predicts a token */
    part->output_change     = sqrt(work->changes[2 * at] / work->changes[2 * at + 1]);
    part->entropy_reference = work->runs[0].entropy[at] / n_rows;
    part->entropy_model     = work->runs[1].entropy[at] / n_rows;
}

static hl_status collect_parts(damage_work *work)
{
    const hl_config *config    = work->config;
    hl_damage       *found     = work->found;
    int64_t          size      = config->n_layers * config->n_heads;
    int64_t          n_columns = size + 2 * config->n_layers;
    hl_damage_part   whole;

    HL_NEED(fill_part(&whole, work, n_columns, n_columns));
    found->kl             = whole.explained;
    found->kl_interval    = whole.interval;
    found->top1           = work->same / (double)found->n_rows;
    found->loss_reference = work->losses[0] / (double)found->n_rows;
    found->loss_model     = work->losses[1] / (double)found->n_rows;
    found->n_layers       = config->n_layers;
    HL_NEED(HL_ALLOC(&found->heads, (size_t)size));
    HL_NEED(HL_ALLOC(&found->layers, (size_t)(2 * config->n_layers)));
    for (int64_t i = 0; i < size; i++) {
        int64_t         layer = i / config->n_heads, head = i % config->n_heads;
        hl_damage_part *part = &found->heads[found->n_heads];

        if (head >= hl_heads_of(work->models[0], layer))
            continue;
        *part = (hl_damage_part){ .kind = HL_DAMAGE_HEAD, .layer = layer, .head = head };
        HL_NEED(fill_part(part, work, i, n_columns));
        describe_head(part, work);
        found->n_heads++;
    }
    for (int64_t i = 0; i < 2 * config->n_layers; i++) {
        hl_damage_part *part = &found->layers[i];

        *part = (hl_damage_part){ .kind          = i % 2 == 0 ? HL_DAMAGE_ATTENTION : HL_DAMAGE_MLP,
                                  .layer         = i / 2,
                                  .head          = -1,
                                  .output_change = NAN,
                                  .entropy_reference = NAN,
                                  .entropy_model     = NAN };
        HL_NEED(fill_part(part, work, size + i % 2 * config->n_layers + i / 2, n_columns));
    }
    qsort(found->heads, (size_t)found->n_heads, sizeof *found->heads, compare_parts);
    return HL_OK;
}

/* Sets of 1, 2, 4, ... heads that explain most, and all. */
static hl_status patch_tops(damage_work *work, double *out)
{
    const hl_damage *found = work->found;
    int64_t          size  = work->config->n_layers * work->config->n_heads;

    for (int64_t i = 0; i < found->n_tops; i++) {
        memset(work->heads, 0, (size_t)size * sizeof *work->heads);
        for (int64_t k = 0; k < found->tops[i].head; k++)
            work->heads[found->heads[k].layer * work->config->n_heads + found->heads[k].head] =
                true;
        HL_NEED(patch_heads(&out[i], work));
        HL_NEED(tell(work, found->n_tops));
    }
    return HL_OK;
}

static hl_status find_tops(damage_work *work, const hl_corpus *corpus)
{
    hl_damage *found = work->found;

    HL_NEED(HL_ALLOC(&found->tops, 64));
    for (int64_t n = 1; n < found->n_heads; n *= 2)
        found->tops[found->n_tops++] = (hl_damage_part){ .kind = HL_DAMAGE_TOP, .head = n };
    if (found->n_heads > 0)
        found->tops[found->n_tops++] =
            (hl_damage_part){ .kind = HL_DAMAGE_TOP, .head = found->n_heads };
    if (found->n_tops == 0)
        return HL_OK;
    work->n_done = 0;
    HL_NEED(each_window(work, corpus, found->n_tops, patch_tops));
    for (int64_t i = 0; i < found->n_tops; i++) {
        found->tops[i].layer             = -1;
        found->tops[i].output_change     = found->tops[i].entropy_reference =
            found->tops[i].entropy_model = NAN;
        HL_NEED(fill_part(&found->tops[i], work, i, found->n_tops));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------------- opening */

static hl_status check_models(const hl_model *reference, const hl_model *model)
{
    const hl_config *a = reference->config, *b = model->config;

    if (a->is_encoder || b->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder, which does not predict the next token",
                       a->is_encoder ? reference->path : model->path);
    if (a->n_layers != b->n_layers || a->d_model != b->d_model || a->d_vocab != b->d_vocab)
        return hl_fail(HL_BAD_INPUT,
                       "%s has %lld layers, width %lld and %lld tokens, %s %lld, %lld and %lld: "
                       "their heads cannot be exchanged",
                       reference->path, (long long)a->n_layers, (long long)a->d_model,
                       (long long)a->d_vocab, model->path, (long long)b->n_layers,
                       (long long)b->d_model, (long long)b->d_vocab);
    for (int64_t layer = 0; layer < a->n_layers; layer++) {
        if (a->layers[layer].n_heads != b->layers[layer].n_heads ||
            a->layers[layer].d_head != b->layers[layer].d_head)
            return hl_fail(HL_BAD_INPUT,
                           "layer %lld has %lld heads of %lld elements in %s, %lld of %lld in %s",
                           (long long)layer, (long long)a->layers[layer].n_heads,
                           (long long)a->layers[layer].d_head, reference->path,
                           (long long)b->layers[layer].n_heads, (long long)b->layers[layer].d_head,
                           model->path);
    }
    return HL_OK;
}

static hl_status open_run(damage_work *work, int which)
{
    const hl_config *config = work->config;
    run             *to     = &work->runs[which];
    size_t           n      = (size_t)(config->n_layers * work->n_ctx);

    HL_NEED(hl_session_open(&work->sessions[which], work->models[which],
                            &(hl_session_options){ .n_ctx     = work->n_ctx,
                                                   .n_chunk   = work->n_ctx,
                                                   .wants     = WANTS_ALL,
                                                   .n_threads = work->options.n_threads,
                                                   .n_kept    = which == 0 ? work->n_ctx : -1,
                                                   .repack    = true }));
    HL_NEED(hl_alloc_zeroed((void **)&to->z, n, (size_t)work->width * sizeof *to->z));
    HL_NEED(hl_alloc((void **)&to->stream, n, (size_t)config->d_model * sizeof *to->stream));
    HL_NEED(hl_alloc((void **)&to->mlp, n, (size_t)config->d_model * sizeof *to->mlp));
    HL_NEED(hl_alloc((void **)&to->post, n, (size_t)config->d_model * sizeof *to->post));
    return HL_ALLOC_ZEROED(&to->entropy, (size_t)(config->n_layers * config->n_heads));
}

static hl_status prepare(damage_work *work)
{
    hl_window_options *windows = &work->options.windows;
    const hl_config   *config  = work->config;
    size_t             size    = (size_t)(config->n_layers * config->n_heads);

    if (windows->stride != 0 || windows->n_batch != 0)
        return hl_fail(HL_BAD_ARGUMENT, "damage: stride %lld and n_batch %lld, wanted 0",
                       (long long)windows->stride, (long long)windows->n_batch);
    if (windows->n_ctx == 0)
        windows->n_ctx = config->n_ctx < USUAL_CONTEXT ? config->n_ctx : USUAL_CONTEXT;
    if (windows->n_ctx < 2 || windows->n_ctx > MOST_CONTEXT || windows->n_ctx > config->n_ctx)
        return hl_fail(HL_BAD_ARGUMENT, "damage: windows of %lld tokens, wanted 2 to %lld",
                       (long long)windows->n_ctx,
                       (long long)(config->n_ctx < MOST_CONTEXT ? config->n_ctx : MOST_CONTEXT));
    windows->n_batch = 1;
    if (windows->max_tokens == 0)
        windows->max_tokens = USUAL_WINDOWS * windows->n_ctx;
    work->n_ctx = windows->n_ctx;
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        int64_t own = config->layers[layer].n_heads * config->layers[layer].d_head;
        work->width = own > work->width ? own : work->width;
    }
    HL_NEED(open_run(work, 0));
    HL_NEED(open_run(work, 1));
    HL_NEED(HL_ALLOC_ZEROED(&work->found, 1));
    HL_NEED(HL_ALLOC(&work->targets, (size_t)work->n_ctx));
    HL_NEED(HL_ALLOC(&work->tops, (size_t)work->n_ctx));
    HL_NEED(HL_ALLOC(&work->patched, (size_t)(work->n_ctx * config->d_model)));
    HL_NEED(HL_ALLOC(&work->changes, 2 * size));
    HL_NEED(HL_ALLOC(&work->heads, size));
    return HL_ALLOC(&work->patches, (size_t)config->n_layers);
}

hl_status hl_damage_find(hl_damage **out, const hl_model *reference, const hl_model *model,
                         const hl_corpus *corpus, const hl_damage_options *options)
{
    HL_SCOPED(free_work) damage_work work = { .models = { reference, model } };

    *out = NULL;
    if (options != NULL)
        work.options = *options;
    work.config = model->config;
    HL_NEED(check_models(reference, model));
    HL_NEED(prepare(&work));
    int64_t n_parts = work.config->n_layers * (work.config->n_heads + 2);
    HL_NEED(each_window(&work, corpus, n_parts, patch_parts));
    HL_NEED(collect_parts(&work));
    HL_NEED(find_tops(&work, corpus));
    *out = hl_taken(&work.found);
    return HL_OK;
}

void hl_damage_free(hl_damage *damage)
{
    if (damage == NULL)
        return;
    hl_free(damage->heads);
    hl_free(damage->layers);
    hl_free(damage->tops);
    hl_free(damage);
}

/* -------------------------------------------------------------------------- tables */

static void put_part(hl_sheet *table, const hl_damage *damage, const hl_damage_part *part)
{
    hl_sheet_put_reals(table, part->explained, part->interval.low, part->interval.high,
                       part->explained / damage->kl);
}

static void fill_whole(hl_sheet *table, const hl_damage *damage)
{
    hl_sheet_put_reals(table, damage->kl, damage->kl_interval.low, damage->kl_interval.high,
                       damage->top1, damage->loss_reference, damage->loss_model,
                       damage->loss_model - damage->loss_reference);
}

static void fill_heads(hl_sheet *table, const hl_damage *damage)
{
    for (int64_t i = 0; i < damage->n_heads; i++) {
        const hl_damage_part *part = &damage->heads[i];

        hl_sheet_put_int(table, i + 1);
        hl_sheet_put_text(table, "L%lldH%lld", (long long)part->layer, (long long)part->head);
        hl_sheet_put_ints(table, part->layer, part->head);
        put_part(table, damage, part);
        hl_sheet_put_reals(table, part->output_change, part->entropy_reference,
                           part->entropy_model);
    }
}

static void fill_layers(hl_sheet *table, const hl_damage *damage)
{
    for (int64_t i = 0; i < 2 * damage->n_layers; i++) {
        hl_sheet_put_int(table, damage->layers[i].layer);
        hl_sheet_put_text(table, "%s", i % 2 == 0 ? "attention" : "MLP");
        put_part(table, damage, &damage->layers[i]);
    }
}

static void fill_tops(hl_sheet *table, const hl_damage *damage)
{
    for (int64_t i = 0; i < damage->n_tops; i++) {
        hl_sheet_put_int(table, damage->tops[i].head);
        hl_sheet_put_real(table, damage->tops[i].kl);
        put_part(table, damage, &damage->tops[i]);
    }
}

hl_status hl_damage_sheet(hl_sheet **out, const hl_damage *damage, const char *name)
{
    static const struct {
        const char *name, *title, *columns;
        void (*fill)(hl_sheet *table, const hl_damage *damage);
    } tables[] = {
        { "damage", "Difference from the reference model",
          "kl:5 kl_low:5 kl_high:5 top1:4 loss_reference:4 loss_model:4 rise:4", fill_whole },
        { "heads", "What each head explains of the KL",
          "rank:i name:t layer:i head:i explained:6 explained_low:6 explained_high:6 share:3 "
          "output_change:4 entropy_reference:3 entropy_model:3",
          fill_heads },
        { "layers", "What each layer explains of the KL",
          "layer:i part:t explained:6 explained_low:6 explained_high:6 share:3", fill_layers },
        { "tops", "The heads that explain most, together",
          "heads:i kl:6 explained:6 explained_low:6 explained_high:6 share:3", fill_tops },
    };
    hl_sheet *table = NULL;

    *out = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(tables[i].name, name) != 0)
            continue;
        HL_NEED(hl_sheet_new(&table, tables[i].name, tables[i].title, tables[i].columns));
        tables[i].fill(table, damage);
        hl_sheet_fact_interval(table, &damage->kl_interval);
        hl_sheet_fact_real(table, "kl", damage->kl);
        hl_sheet_fact_real(table, "predictions", (double)damage->n_rows);
        return hl_sheet_hand_over(out, table, HL_OK);
    }
    return hl_fail(HL_BAD_ARGUMENT, "damage: no table '%s'; there are damage, heads, layers, tops",
                   name);
}
