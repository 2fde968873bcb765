/* evaluate.c - settings of a model's gates as leaves of a tree, and a walk over it.
 *
 * Two settings of the gates that agree in layers 0 ... l-1 give the same residual stream
 * before layer l.  Sorted by their gates, layer 0 first, settings are the leaves of a tree
 * whose edges are layers' gates:
 *
 *     layer 0   1 1 ------------------- 1 1 ---- 0 1
 *     layer 1   1 1 ------- 1 0         |        |
 *     layer 2   1 1   0 1   1 1         ...      ...
 *     setting   full   a     b                            a starts at layer 2, b at 1
 *
 * and a walk from leaf to leaf runs every edge once, which is the minimum.  Larger gates come
 * first, so that the unchanged model, with all gates 1, is the first leaf.
 *
 * A walk keeps one residual stream per layer, that of the path to the current leaf: a setting starts
 * at the first layer in which it differs from the setting before it, with the stream that the session
 * keeps there.  All settings are run on one batch of windows before the next batch, so memory does
 * not grow with the text or the number of settings.  If memory is short, the stream of only every
 * `every`-th layer is kept, and the layers between are run again.
 *
 * The unchanged model comes first.  The session keeps its logits for the batch, in the memory of the
 * device, and computes how far the logits of other settings are from them.  Windows, batches and the
 * order of sums are those of perplexity.c, so the NLL is the same to the bit. */
#include "prune/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "measure/perplexity.h"
#include "measure/window.h"
#include "model/forward.h"
#include "model/model.h"
#include "stats/exact.h"

enum { DEFAULT_ROWS = 512, DEVICE_ROWS = 4096, MAX_BATCH = 4096 };
enum { MAX_SETTINGS = 1 << 24 };
enum { WANTS = HL_WANT_LOSSES | HL_WANT_DIVERGENCE };
#define DEFAULT_MEMORY ((size_t)1 << 30)

/* ----------------------------------------------------------------- the tree */

typedef struct settings_tree {
    int64_t  n_settings; /* without the reference model, which is setting n_settings */
    int64_t  n_layers;
    int64_t  n_heads;
    float   *gates; /* (n_settings + 1, n_layers, n_heads) */
    int64_t *order; /* (n_settings + 1) by leaf; the reference model precedes its equals */
} settings_tree;

static int64_t gate_count(const settings_tree *tree)
{
    return tree->n_layers * tree->n_heads;
}

/* Orders larger gates first, layer by layer. */
static int compare_gates(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (a[i] != b[i])
            return a[i] > b[i] ? -1 : 1;
    }
    return 0;
}

/* Merges runs of 1, 2, 4, ...; the sort is stable, so equal settings keep their order. */
static void merge_runs(int64_t *out, const settings_tree *tree, int64_t width)
{
    const int64_t *in      = tree->order;
    const float   *gates   = tree->gates;
    int64_t        n_gates = gate_count(tree);
    int64_t        n       = tree->n_settings + 1;

    for (int64_t low = 0; low < n; low += 2 * width) {
        int64_t middle = low + width < n ? low + width : n;
        int64_t high   = low + 2 * width < n ? low + 2 * width : n;
        int64_t a = low, b = middle;

        for (int64_t i = low; i < high; i++) {
            bool left =
                a < middle && (b >= high || compare_gates(gates + in[a] * n_gates,
                                                          gates + in[b] * n_gates, n_gates) <= 0);
            out[i] = left ? in[a++] : in[b++];
        }
    }
}

static hl_status sort_leaves(settings_tree *tree)
{
    int64_t           n    = tree->n_settings + 1;
    HL_FREED int64_t *work = NULL;

    HL_NEED(HL_ALLOC(&work, (size_t)n));
    tree->order[0] = n - 1; /* the reference model precedes its equals */
    for (int64_t i = 1; i < n; i++)
        tree->order[i] = i - 1;
    for (int64_t width = 1; width < n; width *= 2) {
        merge_runs(work, tree, width);
        memcpy(tree->order, work, (size_t)n * sizeof *work);
    }
    return HL_OK;
}

static hl_status check_gates(const settings_tree *tree)
{
    int64_t n_gates = gate_count(tree);

    for (int64_t i = 0; i < tree->n_settings * n_gates; i++) {
        float gate = tree->gates[i];
        if (!(gate >= 0.0f && gate <= 1.0f))
            return hl_fail(HL_BAD_ARGUMENT,
                           "setting %lld: the gate of L%lldH%lld is %g, wanted 0 to 1",
                           (long long)(i / n_gates), (long long)(i % n_gates / tree->n_heads),
                           (long long)(i % tree->n_heads), (double)gate);
    }
    return HL_OK;
}

/* Copies the gates. Fails with HL_BAD_ARGUMENT for a gate outside 0 to 1. */
static hl_status tree_init(settings_tree *out, const hl_model *model, const float *gates,
                           int64_t n_settings)
{
    *out = (settings_tree){ .n_settings = n_settings,
                            .n_layers   = model->config->n_layers,
                            .n_heads    = model->config->n_heads };
    if (n_settings < 0 || n_settings > MAX_SETTINGS || (gates == NULL && n_settings > 0))
        return hl_fail(HL_BAD_ARGUMENT, "evaluate: %lld settings of gates, wanted 0 to %d",
                       (long long)n_settings, MAX_SETTINGS);
    size_t n_gates = (size_t)gate_count(out);
    size_t count   = (size_t)n_settings * n_gates;
    HL_NEED(HL_ALLOC(&out->gates, count + n_gates));
    HL_NEED(HL_ALLOC(&out->order, (size_t)n_settings + 1));
    if (n_settings > 0)
        memcpy(out->gates, gates, count * sizeof *gates);
    for (size_t i = 0; i < n_gates; i++)
        out->gates[count + i] = 1.0f;
    HL_NEED(check_gates(out));
    return sort_leaves(out);
}

/* Returns the gates (n_layers, n_heads) of the leaf. */
static const float *leaf_gates(const settings_tree *tree, int64_t leaf)
{
    return tree->gates + tree->order[leaf] * gate_count(tree);
}

/* Returns the first layer in which a leaf differs from the previous one; n_layers if they are
 * equal; 0 for the first leaf. */
static int64_t leaf_first_layer(const settings_tree *tree, int64_t leaf)
{
    int64_t n_heads = tree->n_heads;
    int64_t layer   = 0;

    if (leaf == 0)
        return 0;
    const float *before = leaf_gates(tree, leaf - 1);
    const float *gates  = leaf_gates(tree, leaf);
    while (layer < tree->n_layers &&
           compare_gates(before + layer * n_heads, gates + layer * n_heads, n_heads) == 0)
        layer++;
    return layer;
}

/* ------------------------------------------------------------ the evaluator */

/* The scores of one row of the batch, before summation. */
typedef struct row_score {
    double nll;
    double kl;
    bool   same;
} row_score;

struct hl_evaluator {
    const hl_model     *model;
    const hl_config    *config;
    hl_evaluate_options options; /* complete */
    hl_session         *session;
    hl_evaluation      *result;

    settings_tree tree;
    int64_t      *first;      /* (n_settings + 1) the layer at which each leaf starts */
    int64_t       n_per_walk; /* number of layers run per batch */

    hl_scored_windows text;

    /* The fields below describe the current batch. */
    int64_t    n_done; /* windows of earlier batches */
    int64_t    n_batch_windows;
    int64_t    n_rows;  /* rows per sequence */
    int64_t   *fed;     /* (B, n_rows) tokens */
    int64_t   *targets; /* (B, n_rows) the tokens that follow */
    int64_t   *lengths; /* (B) */
    int64_t   *tops;    /* (B, n_rows) most likely tokens of the reference model */
    row_score *rows;    /* (B, n_rows) scores of the current setting */
    int64_t    every;   /* layers between kept residual streams; n_layers: none is kept */
    int64_t    at;      /* the current leaf; 0 is the reference model */
    /* the leaf at which a walk continues and whose path has not been run; 0: none */
    int64_t resumed;
};

/* ------------------------------------------------------------ the walk planned */

/* Plans where each setting starts: at the kept stream before the first difference. A setting equal
 * to the previous one runs nothing. */
static void plan_walk(hl_evaluator *e)
{
    int64_t n_layers = e->config->n_layers;

    for (int64_t leaf = 0; leaf <= e->result->n_settings; leaf++) {
        int64_t layer = leaf_first_layer(&e->tree, leaf);

        e->first[leaf] = layer < n_layers ? layer / e->every * e->every : n_layers;
        e->n_per_walk += n_layers - e->first[leaf];
        e->result->n_distinct += layer < n_layers;
    }
}

/* ----------------------------------------------------------------------- text */

static hl_status keep_window(hl_scored_windows *text, const hl_batch *batch, size_t *max_windows,
                             size_t *max_tokens)
{
    int64_t length = batch->text_end[0]; /* tokens after the text do not affect it */
    int64_t first  = batch->text_begin[0] > 0 ? batch->text_begin[0] : 1;

    if (length <= first) /* the window scores nothing */
        return HL_OK;
    HL_NEED(HL_GROW(&text->windows, max_windows, (size_t)text->n_windows, 1));
    HL_NEED(HL_GROW(&text->tokens, max_tokens, (size_t)text->n_tokens, (size_t)length));
    memcpy(text->tokens + text->n_tokens, batch->tokens, (size_t)length * sizeof *text->tokens);
    text->windows[text->n_windows++] =
        (hl_scored_window){ text->n_tokens, length, first, text->n_scored, batch->documents[0] };
    text->n_tokens += length;
    text->n_scored += length - first;
    return HL_OK;
}

hl_status hl_scored_windows_read(hl_scored_windows *out, const hl_corpus *corpus,
                                 const hl_window_options *options)
{
    HL_CLOSED(hl_windows_close) hl_windows *windows     = NULL;
    hl_window_options                       each        = *options;
    size_t                                  max_windows = 0;
    size_t                                  max_tokens  = 0;
    hl_batch                                batch       = { .n_windows = 1 };

    each.n_batch = 1;
    HL_NEED(hl_windows_open(&windows, corpus, &each));
    while (batch.n_windows > 0) {
        HL_NEED(hl_windows_next(&batch, windows));
        if (batch.n_windows > 0)
            HL_NEED(keep_window(out, &batch, &max_windows, &max_tokens));
    }
    if (out->n_windows == 0)
        return hl_fail(HL_BAD_INPUT, "evaluate: no window of the text has two tokens");
    return HL_OK;
}

void hl_scored_windows_free(hl_scored_windows *text)
{
    hl_free(text->tokens);
    hl_free(text->windows);
    *text = (hl_scored_windows){ 0 };
}

hl_status hl_evaluation_new(hl_evaluation **out, const hl_scored_windows *text, int64_t n_settings)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *r = NULL;
    size_t                                       n = (size_t)text->n_windows;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&r, 1));
    r->n_settings = n_settings;
    r->n_windows  = text->n_windows;
    r->n_scored   = text->n_scored;
    HL_NEED(HL_ALLOC_ZEROED(&r->scored, n));
    HL_NEED(HL_ALLOC_ZEROED(&r->documents, n));
    HL_NEED(HL_ALLOC_ZEROED(&r->dense, n));
    HL_NEED(hl_alloc_zeroed((void **)&r->scores, n, (size_t)n_settings * sizeof *r->scores));
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || text->windows[i].document != text->windows[i - 1].document)
            r->n_documents++;
        r->documents[i] = r->n_documents - 1;
        r->scored[i]    = text->windows[i].length - text->windows[i].first;
    }
    *out = hl_taken(&r);
    return HL_OK;
}

/* -------------------------------------------------------------- open and close */

/* Returns the memory that a CPU session keeps for the reference model: logits and probabilities.
 * SIZE_MAX on overflow. */
static size_t predictions_bytes(const hl_evaluator *e, size_t n_rows)
{
    size_t bytes = SIZE_MAX;

    return hl_size_multiply(&bytes, n_rows, (size_t)e->config->d_vocab * 2 * sizeof(float))
               ? bytes
               : SIZE_MAX;
}

static hl_status complete_options(hl_evaluator *e)
{
    hl_window_options *windows = &e->options.windows;

    if (e->config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder (%s): it does not predict the next token",
                       e->model->path, e->config->family);
    windows->n_ctx = hl_config_ctx(e->config, windows->n_ctx);
    if (windows->stride != 0)
        return hl_fail(HL_BAD_ARGUMENT, "evaluate: windows cannot overlap");
    if (windows->n_ctx < 2)
        return hl_fail(HL_BAD_ARGUMENT, "evaluate: windows of %lld tokens, wanted 2 or more",
                       (long long)windows->n_ctx);
    if (windows->n_batch < 0 || windows->n_batch > MAX_BATCH)
        return hl_fail(HL_BAD_ARGUMENT, "evaluate: batches of %lld windows, wanted 1 to %d",
                       (long long)windows->n_batch, MAX_BATCH);
    if (e->options.memory_bytes == 0) {
        size_t one              = predictions_bytes(e, (size_t)windows->n_ctx);
        e->options.memory_bytes = one > DEFAULT_MEMORY ? one : DEFAULT_MEMORY;
    }
    return HL_OK;
}

/* Returns the number of windows with this many rows, at least one. */
static int64_t windows_of(const hl_evaluator *e, int64_t rows)
{
    return rows > e->options.windows.n_ctx ? rows / e->options.windows.n_ctx : 1;
}

/* Returns the maximum number of windows of one document. */
static int64_t most_windows(const hl_evaluator *e)
{
    int64_t most = 1, n = 1;

    for (int64_t i = 1; i < e->result->n_windows; i++) {
        n    = e->text.windows[i].document == e->text.windows[i - 1].document ? n + 1 : 1;
        most = n > most ? n : most;
    }
    return most;
}

/* A device needs more rows at a time, as far as the memory limit allows their logits. It also
 * computes rows of missing windows, so the batches of the longest document are made equal. */
static int64_t device_batch(const hl_evaluator *e)
{
    int64_t most      = most_windows(e);
    size_t  fit       = e->options.memory_bytes / sizeof(float) / (size_t)e->config->d_vocab;
    int64_t n_batch   = windows_of(e, fit < DEVICE_ROWS ? (int64_t)fit : DEVICE_ROWS);
    int64_t n_batches = (most + n_batch - 1) / n_batch;

    return (most + n_batches - 1) / n_batches;
}

/* A device has its own memory, and reports if it is not enough. */
static hl_status check_kept(size_t *out, const hl_evaluator *e, size_t n_rows)
{
    *out = predictions_bytes(e, n_rows);
    if (*out == SIZE_MAX)
        return hl_fail(HL_NO_MEMORY, "evaluate: a batch of %zu rows is too large", n_rows);
    if (*out <= e->options.memory_bytes)
        return HL_OK;
    return hl_fail(HL_LIMIT,
                   "the predictions of %zu rows take %zu MiB, but only %zu MiB are allowed; allow "
                   "more memory or use a shorter context",
                   n_rows, *out >> 20, e->options.memory_bytes >> 20);
}

/* The streams get the memory that the reference model's predictions leave. */
static hl_status plan_streams(hl_evaluator *e, bool on_device)
{
    int64_t n_layers = e->config->n_layers;
    size_t  n_rows = 0, kept = 0, slot = 0;

    if (!hl_size_multiply(&n_rows, (size_t)e->options.windows.n_batch,
                          (size_t)e->options.windows.n_ctx) ||
        !hl_size_multiply(&slot, n_rows, (size_t)e->config->d_model * sizeof(float)))
        return hl_fail(HL_NO_MEMORY, "evaluate: a batch of %lld windows of %lld is too large",
                       (long long)e->options.windows.n_batch, (long long)e->options.windows.n_ctx);
    if (!on_device)
        HL_NEED(check_kept(&kept, e, n_rows));
    int64_t n_slots = (int64_t)((e->options.memory_bytes - kept) / slot);
    n_slots         = n_slots > n_layers - 1 ? n_layers - 1 : n_slots;
    e->every        = n_slots > 0 ? (n_layers - 1 + n_slots - 1) / n_slots : n_layers;
    return HL_OK;
}

static hl_status open_session(hl_evaluator *e, bool on_device)
{
    hl_session_options options = { .n_ctx     = e->options.windows.n_ctx,
                                   .n_batch   = e->options.windows.n_batch,
                                   .wants     = WANTS,
                                   .n_threads = e->options.n_threads,
                                   .repack    = true };

    HL_NEED(plan_streams(e, on_device));
    options.stream_every = e->every;
    return hl_session_open(&e->session, e->model, &options);
}

/* Opens a session on a device with as many windows at a time as fit, unless the number was
 * given. */
static hl_status open_fitting_session(hl_evaluator *e)
{
    hl_status        status  = HL_OK;
    hl_device_choice choice  = { 0 };
    int64_t         *n_batch = &e->options.windows.n_batch;

    HL_NEED(hl_device_choose(&choice, e->model, NULL));
    bool on_device = !choice.ops->is_near, is_free = *n_batch == 0;
    if (is_free)
        *n_batch = on_device ? device_batch(e) : windows_of(e, DEFAULT_ROWS);
    status = open_session(e, on_device);
    while ((status == HL_NO_MEMORY || status == HL_LIMIT) && on_device && is_free && *n_batch > 1) {
        *n_batch /= 2;
        status = open_session(e, on_device);
    }
    return status;
}

static hl_status make_rows(hl_evaluator *e)
{
    size_t n_rows = (size_t)(e->options.windows.n_batch * e->options.windows.n_ctx);

    HL_NEED(HL_ALLOC_ZEROED(&e->rows, n_rows));
    HL_NEED(HL_ALLOC_ZEROED(&e->tops, n_rows));
    HL_NEED(HL_ALLOC_ZEROED(&e->fed, n_rows));
    HL_NEED(HL_ALLOC_ZEROED(&e->targets, n_rows));
    return HL_ALLOC_ZEROED(&e->lengths, (size_t)e->options.windows.n_batch);
}

/* Returns the number of windows from n_done that form a batch: those of one document. */
static int64_t batch_size(const hl_evaluator *e, int64_t n_done)
{
    int64_t n = 0;

    while (n < e->options.windows.n_batch && n_done + n < e->result->n_windows &&
           e->text.windows[n_done + n].document == e->text.windows[n_done].document)
        n++;
    return n;
}

static void count_naive(hl_evaluator *e)
{
    int64_t n_batches = 0;

    for (int64_t at = 0; at < e->result->n_windows; at += batch_size(e, at))
        n_batches++;
    e->result->n_layers_naive =
        n_batches * (e->result->n_settings + 1) * (int64_t)e->config->n_layers;
}

hl_status hl_evaluator_open(hl_evaluator **out, const hl_model *model, const hl_corpus *corpus,
                            const float *gates, int64_t n_settings,
                            const hl_evaluate_options *options)
{
    HL_CLOSED(hl_evaluator_close) hl_evaluator *e = NULL;

    *out = NULL;
    if (model == NULL || corpus == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "evaluate: no model or no text");
    HL_NEED(HL_ALLOC_ZEROED(&e, 1));
    e->model  = model;
    e->config = model->config;
    if (options != NULL)
        e->options = *options;
    HL_NEED(complete_options(e));
    HL_NEED(tree_init(&e->tree, model, gates, n_settings));
    HL_NEED(HL_ALLOC(&e->first, (size_t)n_settings + 1));
    HL_NEED(hl_scored_windows_read(&e->text, corpus, &e->options.windows));
    HL_NEED(hl_evaluation_new(&e->result, &e->text, n_settings));
    e->result->n_ctx = e->options.windows.n_ctx;
    HL_NEED(open_fitting_session(e)); /* refuses contexts that are too long */
    HL_NEED(make_rows(e));
    plan_walk(e);
    count_naive(e);
    *out = hl_taken(&e);
    return HL_OK;
}

void hl_evaluator_close(hl_evaluator *e)
{
    if (e == NULL)
        return;
    hl_session_close(e->session);
    hl_evaluation_free(e->result);
    hl_free(e->tree.gates);
    hl_free(e->tree.order);
    hl_free(e->first);
    hl_scored_windows_free(&e->text);
    hl_free(e->fed);
    hl_free(e->targets);
    hl_free(e->lengths);
    hl_free(e->tops);
    hl_free(e->rows);
    hl_free(e);
}

/* ---------------------------------------------------------------------- scoring */

/* Row i is at position start + i and predicts the next token. */
static hl_status score_rows(void *context, const hl_final_rows *rows)
{
    hl_evaluator *e     = context;
    int64_t       first = rows->sequence * e->n_rows + rows->start;

    for (int64_t i = 0; i < rows->n_rows; i++) {
        if (e->at == 0)
            e->tops[first + i] = rows->tops[i];
        e->rows[first + i] = (row_score){ .nll  = rows->losses[i],
                                          .kl   = rows->divergence[i],
                                          .same = rows->tops[i] == e->tops[first + i] };
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- the walk */

static void place_batch(hl_evaluator *e)
{
    e->n_batch_windows = batch_size(e, e->n_done);
    e->n_rows          = 0;
    memset(e->lengths, 0, (size_t)e->options.windows.n_batch * sizeof *e->lengths);
    for (int64_t i = 0; i < e->n_batch_windows; i++) {
        e->lengths[i] =
            e->text.windows[e->n_done + i].length - 1; /* the last token predicts nothing */
        e->n_rows = e->lengths[i] > e->n_rows ? e->lengths[i] : e->n_rows;
    }
    for (int64_t i = 0; i < e->n_batch_windows; i++) {
        const int64_t *tokens  = e->text.tokens + e->text.windows[e->n_done + i].begin;
        size_t         n_bytes = (size_t)e->lengths[i] * sizeof *tokens;

        memcpy(e->fed + i * e->n_rows, tokens, n_bytes);
        memcpy(e->targets + i * e->n_rows, tokens + 1, n_bytes);
    }
}

static hl_status run_setting(hl_evaluator *e)
{
    int64_t layer = e->at == e->resumed ? 0 : e->first[e->at];
    hl_tap  tap   = { .context = e, .final = score_rows, .wants = WANTS };
    hl_feed feed  = { .tokens       = e->fed,
                      .n_tokens     = e->n_rows,
                      .lengths      = e->lengths,
                      .targets      = e->targets,
                      .gates        = leaf_gates(&e->tree, e->at),
                      .tap          = &tap,
                      .first_layer  = layer,
                      .keeps_logits = e->at == 0 };

    if (layer == e->config->n_layers) /* e->rows already holds the scores of its equal */
        return HL_OK;
    for (int64_t i = 0; i < e->options.windows.n_batch; i++)
        HL_NEED(hl_session_rewind(e->session, i, 0));
    return hl_session_feed(e->session, &feed);
}

/* *n_broken: number of rows with a non-finite loss or distance. */
static hl_scores sum_window(int64_t *n_broken, const hl_evaluator *e, int64_t window)
{
    const row_score *rows = e->rows + window * e->n_rows;
    hl_scores        sum  = { 0 };

    *n_broken = 0;
    for (int64_t i = e->text.windows[e->n_done + window].first - 1; i < e->lengths[window]; i++) {
        sum.nll += rows[i].nll;
        sum.kl += rows[i].kl;
        sum.n_same += rows[i].same;
        *n_broken += !hl_fixed_fits(rows[i].nll) || !isfinite(rows[i].kl);
    }
    return sum;
}

/* Returns the scores (n_windows) of the setting at a leaf. */
static hl_scores *scores_of(const hl_evaluator *e, int64_t leaf)
{
    int64_t setting = e->tree.order[leaf];

    return setting == e->result->n_settings ? e->result->dense
                                            : e->result->scores + setting * e->result->n_windows;
}

static hl_status add_setting(hl_evaluator *e)
{
    hl_scores *out      = scores_of(e, e->at);
    int64_t    n_broken = 0;

    for (int64_t i = 0; i < e->n_batch_windows; i++) {
        out[e->n_done + i] = sum_window(&n_broken, e, i);
        if (n_broken > 0)
            return hl_fail(HL_BAD_INPUT,
                           "window %lld of the text: %lld of %lld losses are NaN or infinite",
                           (long long)(e->n_done + i), (long long)n_broken,
                           (long long)e->result->scored[e->n_done + i]);
    }
    return HL_OK;
}

static hl_status report_progress(const hl_evaluator *e)
{
    const hl_evaluation *r         = e->result;
    int64_t              n_before  = e->text.windows[e->n_done].n_before;
    int64_t              n_batch   = 0;
    double               n_of_walk = (double)(e->at + 1) / (double)(r->n_settings + 1);

    if (e->options.progress == NULL)
        return HL_OK;
    for (int64_t i = 0; i < e->n_batch_windows; i++)
        n_batch += r->scored[e->n_done + i];
    hl_progress progress = {
        .share     = ((double)n_before + n_of_walk * (double)n_batch) / (double)r->n_scored,
        .n_tokens  = n_before * (r->n_settings + 1) + n_batch * (e->at + 1),
        .n_windows = e->n_done,
    };
    return e->options.progress(e->options.context, &progress);
}

/* A walk that continues needs the reference model's predictions, which are not saved, so they are
 * computed again. */
static hl_status go_on(hl_evaluator *e)
{
    int64_t at = e->at;

    place_batch(e);
    e->at            = 0;
    hl_status status = run_setting(e);
    e->at            = at;
    return status;
}

hl_status hl_evaluator_step(hl_evaluator *e)
{
    if (hl_evaluator_is_done(e))
        return HL_OK;
    if (e->at == 0)
        place_batch(e);
    else if (e->at == e->resumed)
        HL_NEED(go_on(e));
    HL_NEED(run_setting(e));
    HL_NEED(add_setting(e));
    hl_status status = report_progress(e);
    e->resumed       = 0;
    if (++e->at > e->result->n_settings) {
        e->n_done += e->n_batch_windows;
        e->result->n_layers_run += e->n_per_walk;
        e->at = 0;
    }
    return status;
}

/* ------------------------------------------------------------------- questions */

bool hl_evaluator_is_done(const hl_evaluator *e)
{
    return e->n_done >= e->result->n_windows;
}

int64_t hl_evaluator_n_done(const hl_evaluator *e)
{
    return e->n_done;
}

hl_status hl_evaluator_skip(hl_evaluator *e, int64_t n_done)
{
    int64_t at = 0, n_batches = 0;

    for (; at < n_done && at < e->result->n_windows; n_batches++)
        at += batch_size(e, at);
    if (n_done < 0 || at != n_done)
        return hl_fail(HL_BAD_ARGUMENT, "evaluate: no batch ends after %lld windows",
                       (long long)n_done);
    e->n_done               = n_done;
    e->result->n_layers_run = n_batches * e->n_per_walk;
    return HL_OK;
}

int64_t hl_evaluator_n_walked(const hl_evaluator *e)
{
    return e->at;
}

int64_t hl_evaluator_walk_length(const hl_evaluator *e, int64_t n_walked)
{
    return 3 * n_walked * batch_size(e, e->n_done);
}

void hl_evaluator_get_walk(double *out, const hl_evaluator *e)
{
    int64_t n_windows = batch_size(e, e->n_done);

    for (int64_t i = 0; i < e->at * n_windows; i++)
        hl_scores_write(out + 3 * i, scores_of(e, i / n_windows) + e->n_done + i % n_windows);
}

void hl_scores_write(double out[3], const hl_scores *scores)
{
    out[0] = scores->nll;
    out[1] = scores->kl;
    out[2] = (double)scores->n_same;
}

bool hl_scores_read(hl_scores *out, const double in[3], int64_t n_scored)
{
    if (!isfinite(in[0]) || !isfinite(in[1]) || !(in[2] >= 0.0 && in[2] <= (double)n_scored))
        return false;
    *out = (hl_scores){ in[0], in[1], (int64_t)in[2] };
    return true;
}

hl_status hl_evaluator_set_walk(hl_evaluator *e, const double *scores, int64_t n_walked)
{
    int64_t n_windows = batch_size(e, e->n_done);

    if (n_walked < 1 || n_walked > e->result->n_settings || n_windows == 0)
        return hl_fail(HL_BAD_INPUT, "evaluate: no walk of %lld settings to continue",
                       (long long)n_walked);
    for (int64_t i = 0; i < n_walked * n_windows; i++) {
        const double *in     = scores + 3 * i;
        int64_t       window = e->n_done + i % n_windows;

        if (!hl_scores_read(&scores_of(e, i / n_windows)[window], in, e->result->scored[window]))
            return hl_fail(HL_BAD_INPUT,
                           "evaluate: scores of window %lld are impossible: %g, %g, %g",
                           (long long)window, in[0], in[1], in[2]);
    }
    e->at = e->resumed = n_walked;
    return HL_OK;
}

hl_evaluation *hl_evaluator_result(hl_evaluator *e)
{
    return e->result;
}

hl_evaluation *hl_evaluator_take(hl_evaluator *e)
{
    hl_evaluation *result = e->result;

    e->result = NULL;
    return result;
}

/* --------------------------------------------------------------------- at once */

hl_status hl_evaluate(hl_evaluation **out, const hl_model *model, const hl_corpus *corpus,
                      const float *gates, int64_t n_settings, const hl_evaluate_options *options)
{
    HL_CLOSED(hl_evaluator_close) hl_evaluator *e = NULL;

    *out = NULL;
    HL_NEED(hl_evaluator_open(&e, model, corpus, gates, n_settings, options));
    while (!hl_evaluator_is_done(e))
        HL_NEED(hl_evaluator_step(e));
    *out = hl_evaluator_take(e);
    return HL_OK;
}

void hl_evaluation_free(hl_evaluation *evaluation)
{
    if (evaluation == NULL)
        return;
    hl_free(evaluation->scored);
    hl_free(evaluation->documents);
    hl_free(evaluation->dense);
    hl_free(evaluation->scores);
    hl_free(evaluation);
}

/* Adds windows up by document first, as perplexity.c does, so that sums are equal to the bit. */
/* The interval of what score_of says of a setting's windows, per token. */
static hl_interval interval_of(const hl_evaluation *e, int64_t setting,
                               double (*score_of)(const hl_scores *, const hl_scores *),
                               hl_error_scale scale)
{
    hl_ratio_sums windows = { 0 }, documents = { 0 }, own = { 0 }; /* own: of this document */

    for (int64_t i = 0; i < e->n_windows; i++) {
        double score = score_of(&e->scores[setting * e->n_windows + i], &e->dense[i]);

        hl_ratio_add(&windows, score, (double)e->scored[i]);
        hl_ratio_add(&own, score, (double)e->scored[i]);
        if (i + 1 == e->n_windows || e->documents[i + 1] != e->documents[i]) {
            hl_ratio_add(&documents, own.sum, own.count);
            own = (hl_ratio_sums){ 0 };
        }
    }
    return hl_ratio_interval(&windows, &documents, scale);
}

static double rise_of(const hl_scores *scores, const hl_scores *dense)
{
    return scores->nll - dense->nll;
}

static double kl_of(const hl_scores *scores, const hl_scores *dense)
{
    (void)dense;
    return scores->kl;
}

hl_interval hl_evaluation_rise(const hl_evaluation *e, int64_t setting)
{
    return interval_of(e, setting, rise_of, HL_SCALE_PLAIN);
}

hl_interval hl_evaluation_kl(const hl_evaluation *e, int64_t setting)
{
    return interval_of(e, setting, kl_of, HL_SCALE_KL);
}

hl_scores hl_evaluation_total(const hl_evaluation *evaluation, int64_t setting)
{
    const hl_scores *scores =
        setting < 0 ? evaluation->dense : evaluation->scores + setting * evaluation->n_windows;
    hl_scores total = { 0 }, document = { 0 };

    for (int64_t i = 0; i < evaluation->n_windows; i++) {
        document.nll += scores[i].nll;
        document.kl += scores[i].kl;
        document.n_same += scores[i].n_same;
        if (i + 1 == evaluation->n_windows ||
            evaluation->documents[i + 1] != evaluation->documents[i]) {
            total.nll += document.nll;
            total.kl += document.kl;
            total.n_same += document.n_same;
            document = (hl_scores){ 0 };
        }
    }
    return total;
}

/* -------------------------------------------------------------- heads one by one */

/* Disabling each head alone is the oracle among the rankers, as far as heads do not compensate for
 * each other. A head of layer l starts at layer l, so all of them together cost about half of
 * separate runs. */

int64_t hl_model_heads(hl_head *out, const hl_model *model)
{
    int64_t count = 0;

    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < model->config->layers[layer].n_heads; head++) {
            if (out != NULL)
                out[count] = (hl_head){ layer, head };
            count++;
        }
    }
    return count;
}

hl_status hl_single_gates(float **out, const hl_model *model, const float *base)
{
    int64_t n_gates = model->config->n_layers * model->config->n_heads;
    int64_t n       = hl_model_heads(NULL, model);

    HL_NEED(hl_alloc((void **)out, (size_t)n + 1, (size_t)n_gates * sizeof **out));
    for (int64_t i = 0; i < (n + 1) * n_gates; i++)
        (*out)[i] = base != NULL ? base[i % n_gates] : 1.0f;
    float *setting = *out;
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < model->config->layers[layer].n_heads; head++) {
            setting[layer * model->config->n_heads + head] = 0.0f;
            setting += n_gates;
        }
    }
    return HL_OK;
}

void hl_single_rises(double *out, const hl_model *model, const hl_evaluation *found, int64_t base)
{
    double  before = hl_evaluation_total(found, base).nll;
    int64_t n      = 0;

    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < model->config->n_heads; head++) {
            bool is_there = head < model->config->layers[layer].n_heads;
            *out++        = is_there
                                ? (hl_evaluation_total(found, n++).nll - before) / (double)found->n_scored
                                : NAN;
        }
    }
}

hl_status hl_ablate(double *out, const hl_model *model, const hl_corpus *corpus,
                    const hl_evaluate_options *options)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found = NULL;
    HL_FREED float                              *gates = NULL;

    if (model == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "ablate: no model");
    HL_NEED(hl_single_gates(&gates, model, NULL));
    HL_NEED(hl_evaluate(&found, model, corpus, gates, hl_model_heads(NULL, model), options));
    hl_single_rises(out, model, found, -1);
    return HL_OK;
}
