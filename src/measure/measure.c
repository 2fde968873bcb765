/* measure.c - runs a model over a text and makes a profile of it.
 *
 * Batches of windows go through a session.  Its tap passes on the rows of one layer after another,
 * which are summed up at once.  Nothing is kept of a window after its batch, so memory does not
 * depend on the length of the text.
 *
 * Block influence compares the residual stream before and after a block, in some rows that are kept
 * from one block to the next.  The last block is left out: its MLP is run only if the loss is
 * wanted.
 *
 * A device would be idle while the host processes the last layer of a batch and prepares the next
 * one.  So two batches run at the same time, each with its own session, thread and profile:
 *
 *     first   ..batch 0..........|..batch 2..........|        \
 *     twin        ..batch 1..........|..batch 3..........|     merged
 *
 * Either takes the next batch when it is free.  Merging profiles gives the same bytes in any order,
 * so the result does not depend on which one took which batch.  They pause, and are merged, when
 * the state is saved and at the end.  If there is not enough memory for the twin, the first works
 * alone, as on the CPU. */
#include "measure/measure.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/likeness.h"

/* ------------------------------------------------------------------ sampled rows */

void hl_measure_draw(int64_t *out, int64_t n, int64_t low, int64_t high, uint64_t hash)
{
    int64_t count = high - low;

    for (int64_t i = 0; i < n; i++) {
        int64_t begin = low + count * i / n;
        int64_t end   = low + count * (i + 1) / n;

        if (count <= n) {
            out[i] = i < count ? low + i : -1;
            continue;
        }
        out[i] = begin + (int64_t)(hl_hash_pair(hash, (uint64_t)i) % (uint64_t)(end - begin));
    }
}

/* Chooses the rows of the piece to sample, by the window's content only. */
static void draw_rows(hl_measuring *m, int64_t sequence)
{
    const hl_batch *batch = &m->batch;
    int64_t         low   = batch->first_row[sequence];
    int64_t         high  = m->piece + m->lengths[sequence];
    uint64_t        hash  = hl_hash_pair(m->options.seed, batch->hashes[sequence]);

    low  = low > m->piece ? low : m->piece;
    high = high > low ? high : low;
    hl_measure_draw(m->positions + sequence * m->n_patterns, m->n_patterns, low, high,
                    hl_hash_pair(hash, (uint64_t)m->piece));
    hl_measure_draw(m->outputs + sequence * HL_OUTPUT_ROWS, HL_OUTPUT_ROWS, low, high,
                    hl_hash_pair(hash, ~(uint64_t)m->piece));
}

/* --------------------------------------------------------------- block influence */

/* Returns true if m->outputs[index] is in the chunk. */
static bool is_in_chunk(const hl_measuring *m, const hl_layer_rows *rows, int64_t index)
{
    int64_t sequence = index / HL_OUTPUT_ROWS;
    int64_t row      = m->outputs[index] - rows->start[sequence];

    return row >= 0 && row < rows->lengths[sequence];
}

/* Compares a sampled row before and after a block: the session's stream is the next block's
 * input. */
static void follow_row(const hl_measuring *m, const hl_layer_rows *rows, int64_t index)
{
    int64_t d_model  = rows->d_model;
    int64_t sequence = index / HL_OUTPUT_ROWS;
    int64_t row      = m->outputs[index] - rows->start[sequence];
    float  *kept     = m->stream + index * d_model;

    if (!is_in_chunk(m, rows, index))
        return;
    if (hl_rows_likeness(rows) != NULL) {
        m->influence[index] = hl_rows_likeness(rows)->influence[index];
        return;
    }
    int64_t      place  = rows->n_sampled > 0 ? index : sequence * rows->n_rows + row;
    const float *after  = rows->resid_post + place * d_model;
    m->influence[index] = hl_block_influence(hl_dot_of_floats(kept, after, d_model),
                                             hl_dot_of_floats(kept, kept, d_model),
                                             hl_dot_of_floats(after, after, d_model));
    memcpy(kept, after, (size_t)d_model * sizeof *kept);
}

static hl_status watch_embedded(void *context, const hl_layer_rows *rows)
{
    for (int64_t i = 0; i < rows->n_batch * HL_OUTPUT_ROWS; i++)
        follow_row(context, rows, i);
    return HL_OK;
}

/* --------------------------------------------------------------------------- tap */

static hl_profile_mask mask_of(const hl_measuring *m, int64_t layer)
{
    const hl_layer_config *config = &m->config->layers[layer];

    return (hl_profile_mask){
        .is_causal     = !m->config->is_encoder,
        .has_window    = config->is_local,
        .window_left   = config->window_left,
        .window_right  = config->window_right,
        .window_sink   = config->window_sink,
        .window_blocks = config->window_blocks,
        .has_sink      = m->config->sinks,
        .n_chosen      = m->config->latent.n_top,
    };
}

/* A layer to be added: the argument of the threads. */
typedef struct layer_job {
    hl_measuring        *m;
    const hl_layer_rows *rows;
    int64_t              n_follow;
} layer_job;

/* -sum p ln(p + epsilon) of every row, from the whole row. */
static void entropy_by_definition(void *context, int64_t first, int64_t end, int member)
{
    const layer_job     *job  = context;
    hl_measuring        *m    = job->m;
    const hl_layer_rows *rows = job->rows;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        int64_t      sequence = i / rows->n_patterns / rows->n_heads;
        const float *p        = rows->pattern + i * rows->n_keys;
        int64_t      row = rows->pattern_rows[sequence * rows->n_patterns + i % rows->n_patterns];
        double       sum = 0.0;

        if (row < 0)
            continue;
        for (int64_t key = 0; key < rows->n_keys; key++)
            sum -= (double)p[key] * log((double)p[key] + m->options.epsilon);
        m->entropy[i / rows->n_patterns * rows->n_rows + row] = (float)sum;
    }
}

/* Returns the number of rows to follow.  After a block the session's stream is its output, but the
 * last block is not finished unless the loss is wanted. */
static int64_t rows_to_follow(const hl_measuring *m, const hl_layer_rows *rows)
{
    bool is_finished = rows->layer < m->config->n_layers - 1 || m->options.nll;

    return is_finished ? rows->n_batch * HL_OUTPUT_ROWS : 0;
}

static int layer_threads(const hl_measuring *m, const hl_layer_rows *rows)
{
    int64_t n_rows = rows->n_batch * rows->n_rows * rows->n_heads;

    return hl_profile_threads(m->profile, n_rows * HL_N_QUANTITIES);
}

/* Adds heads first, then the followed rows: long work comes before short work. */
static void add_some(void *context, int64_t first, int64_t end, int member)
{
    const layer_job *job = context;

    for (int64_t i = first; i < end; i++) {
        if (i >= job->rows->n_heads) {
            follow_row(job->m, job->rows, i - job->rows->n_heads);
            continue;
        }
        hl_profile_rows_head(job->m->profile, job->rows, i);
        hl_profile_samples_head(job->m->profile, job->rows, i, member);
        hl_measure_outputs_head(job->m, job->rows, i, member);
    }
}

/* Each head is paired with all later ones, so the first heads have the most work. */
static void pair_some(void *context, int64_t first, int64_t end, int member)
{
    const layer_job *job = context;
    (void)member;

    for (int64_t head = first; head < end; head++) {
        hl_profile_samples_pairs(job->m->profile, job->rows, head);
        hl_measure_outputs_pairs(job->m, job->rows, head);
    }
}

/* Adds a layer in two parallel calls.  Each head takes so little time that more calls would cost
 * too much. */
static void add_layer(hl_measuring *m, const hl_layer_rows *rows)
{
    int       n_threads = layer_threads(m, rows);
    int64_t   n_follow  = rows_to_follow(m, rows);
    layer_job job       = { m, rows, n_follow };

    hl_parallel(n_threads, rows->n_heads + n_follow, 1, add_some, &job);
    hl_parallel(n_threads, rows->n_heads, 1, pair_some, &job);
    for (int64_t i = 0; i < n_follow; i++) {
        if (is_in_chunk(m, rows, i))
            hl_profile_influence(m->profile, rows->layer, m->influence[i]);
    }
}

static hl_status watch_layer(void *context, const hl_layer_rows *given)
{
    hl_measuring       *m          = context;
    hl_layer_rows       rows       = *given;
    hl_attention_result statistics = *given->rows;
    hl_profile_mask     mask       = mask_of(m, given->layer);

    if (rows.n_heads == 0) {
        add_layer(m, &rows);
        return HL_OK;
    }
    if (m->options.epsilon > 0.0) {
        hl_parallel(hl_threads(m->options.n_threads), rows.n_batch * rows.n_heads * rows.n_patterns,
                    0, entropy_by_definition, &(layer_job){ m, &rows, 0 });
        statistics.entropy = m->entropy;
        rows.rows          = &statistics;
    }
    HL_NEED(hl_profile_rows_open(m->profile, &rows, &mask));
    HL_NEED(hl_profile_samples_open(m->profile, &rows, &mask));
    HL_NEED(hl_profile_kernels_open(m->profile, rows.n_batch, HL_KERNEL_ROWS));
    add_layer(m, &rows);
    hl_profile_rows_close(m->profile, &rows);
    hl_profile_samples_close(m->profile, &rows);
    hl_measure_outputs_close(m, &rows);
    if (m->rows != NULL)
        hl_measure_rows_add(m->rows, &rows, &mask);
    return HL_OK;
}

/* Returns true if a device may sum up and compare rows: always, unless the rows themselves are
 * wanted. */
static bool may_plan(const hl_measuring *m)
{
    return m->options.epsilon == 0.0 && m->rows == NULL;
}

static hl_status plan_layer(void *context, const hl_layer_rows *rows, hl_row_plan *out)
{
    hl_measuring   *m    = context;
    hl_profile_mask mask = mask_of(m, rows->layer);
    int64_t         each = m->config->d_head * m->config->d_head;

    HL_NEED(hl_profile_list_runs(out, m->profile, rows, &mask));
    HL_NEED(hl_profile_list_places(out, m->profile, rows, &mask));
    out->gram        = m->gram + rows->layer * m->config->n_heads * each;
    out->kernel_rows = HL_KERNEL_ROWS;
    return HL_OK;
}

/* -------------------------------------------------------------------------- loss */

/* Sets the token that each row of the piece should predict; -1 if there is none, if it is not text,
 * or if it has been counted already. */
static void place_targets(const hl_measuring *m, int64_t sequence)
{
    const hl_batch *batch = &m->batch;

    for (int64_t row = 0; row < m->n_piece; row++) {
        int64_t position = m->piece + row + 1;
        bool    counts   = position >= batch->first_row[sequence] &&
                      position >= batch->text_begin[sequence] &&
                      position < batch->text_end[sequence];

        m->targets[sequence * m->n_piece + row] =
            counts ? batch->tokens[sequence * batch->context + position] : -1;
    }
}

static hl_status watch_final(void *context, const hl_final_rows *rows)
{
    hl_measuring  *m       = context;
    const int64_t *targets = m->targets + rows->sequence * m->n_piece + rows->start - m->piece;

    for (int64_t row = 0; rows->losses != NULL && row < rows->n_rows; row++) {
        if (targets[row] >= 0)
            hl_profile_loss(m->profile, rows->losses[row]);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------------- batches */

/* Sets tokens and lengths of the piece; false if no sequence reaches it. */
static bool cut_piece(hl_measuring *m)
{
    const hl_batch *batch = &m->batch;
    bool            any   = false;

    for (int64_t i = 0; i < batch->n_batch; i++) {
        int64_t left  = batch->lengths[i] - m->piece;
        int64_t width = batch->context - m->piece;

        left          = left < 0 ? 0 : left > m->n_piece ? m->n_piece : left;
        width         = width > m->n_piece ? m->n_piece : width;
        m->lengths[i] = left;
        memcpy(m->tokens + i * m->n_piece, batch->tokens + i * batch->context + m->piece,
               (size_t)width * sizeof *m->tokens);
        any = any || left > 0;
        draw_rows(m, i);
        place_targets(m, i);
    }
    return any;
}

static hl_status feed_piece(hl_measuring *m)
{
    static const hl_observer observer = { .plan = plan_layer };
    const hl_corpus_info    *info     = hl_corpus_get_info(m->corpus);
    hl_tap                   tap      = { .context             = m,
                                          .layer               = watch_layer,
                                          .final               = watch_final,
                                          .embedded            = watch_embedded,
                                          .wants               = m->session->options.wants,
                                          .pattern_positions   = m->positions,
                                          .n_pattern_positions = m->n_patterns,
                                          .patterns_differ     = true,
                                          .observer            = may_plan(m) ? &observer : NULL,
                                          .sampled_positions   = m->outputs,
                                          .n_sampled_positions = HL_OUTPUT_ROWS };
    hl_feed                  feed     = { .tokens   = m->tokens,
                                          .n_tokens = m->n_piece,
                                          .lengths  = m->lengths,
                                          .targets  = m->targets,
                                          .tap      = &tap };

    if (info->n_types > 1) {
        feed.segments   = m->batch.types;
        feed.n_segments = info->n_types;
    }
    return hl_session_feed(m->session, &feed);
}

/* Runs m->batch through the session and adds it to the profile. */
static hl_status measure_batch(hl_measuring *m)
{
    const hl_batch  *batch = &m->batch;
    hl_profile_batch rows  = { .n_batch   = batch->n_batch,
                               .lengths   = batch->lengths,
                               .first_row = batch->first_row,
                               .hashes    = batch->hashes,
                               .types     = batch->types,
                               .context   = batch->context,
                               .documents = batch->documents,
                               .corpus    = hl_corpus_get_info(m->corpus)->hash,
                               .starts    = batch->starts,
                               .n_threads = m->options.n_threads };

    HL_NEED(hl_profile_begin(m->profile, &rows));
    if (m->rows != NULL)
        hl_measure_rows_begin(m->rows, batch);
    for (int64_t i = 0; i < batch->n_batch; i++)
        HL_NEED(hl_session_rewind(m->session, i, 0));
    for (m->piece = 0; m->piece < batch->context && cut_piece(m); m->piece += m->n_piece)
        HL_NEED(feed_piece(m));
    if (m->rows != NULL)
        HL_NEED(hl_measure_rows_end(m->rows, batch));
    return hl_profile_end(m->profile);
}

/* ----------------------------------------------------- who takes which batch */

typedef struct turns {
    hl_measuring   *m;       /* the first, which owns the windows */
    hl_measuring   *twin;    /* NULL: not used, or not created yet */
    double          until;   /* time at which the state will be saved */
    pthread_mutex_t mutex;   /* guards the windows, their place, and the fields below */
    bool            is_over; /* no batch is left */
    int64_t         n_tokens;
    int64_t         n_sequences;
    hl_status       asked; /* the progress callback's result; not HL_OK: stop */
    hl_kept_error   error; /* the first error, kept because its thread may have ended */
} turns;

/* Copies the batch, since the windows read on during the work. */
static void copy_batch(hl_measuring *own)
{
    hl_batch *batch = &own->batch;
    size_t    n     = (size_t)batch->n_batch;
    size_t    rows  = n * (size_t)batch->context;

    memcpy(own->copy.tokens, batch->tokens, rows * sizeof *batch->tokens);
    memcpy(own->copy.types, batch->types, rows);
    memcpy(own->copy.places, batch->lengths, HL_BATCH_PLACES * n * sizeof *batch->lengths);
    memcpy(own->copy.hashes, batch->hashes, n * sizeof *batch->hashes);
    batch->tokens = own->copy.tokens;
    batch->types  = own->copy.types;
    batch->hashes = own->copy.hashes;
    hl_batch_set_places(batch, own->copy.places);
}

/* Takes the next batch and starts reading the one after it; called with the mutex held. */
static hl_status take_batch(turns *t, hl_measuring *own)
{
    hl_measuring *m = t->m;

    HL_NEED(hl_ahead_take(&own->batch, m->ahead));
    hl_windows_place(&m->place, m->windows);
    m->share   = hl_windows_progress(m->windows);
    t->is_over = own->batch.n_windows == 0;
    if (t->is_over)
        return HL_OK;
    if (t->m->in_pairs)
        copy_batch(own);
    hl_ahead_begin(m->ahead);
    return HL_OK;
}

/* Takes a batch; false if there is none before the state is saved. */
static bool take(turns *t, hl_measuring *own)
{
    pthread_mutex_lock(&t->mutex);
    bool goes_on = !t->is_over && t->asked == HL_OK && t->error.status == HL_OK &&
                   hl_clock_seconds() < t->until;
    if (goes_on)
        hl_keep_error(&t->error, take_batch(t, own));
    goes_on = goes_on && !t->is_over && t->error.status == HL_OK;
    pthread_mutex_unlock(&t->mutex);
    return goes_on;
}

static void work(turns *t, hl_measuring *own)
{
    int64_t   n_tokens    = hl_profile_n_tokens(own->profile);
    int64_t   n_sequences = hl_profile_all_sequences(own->profile);
    hl_status status      = measure_batch(own);

    pthread_mutex_lock(&t->mutex);
    hl_keep_error(&t->error, status);
    t->n_tokens += hl_profile_n_tokens(own->profile) - n_tokens;
    t->n_sequences += hl_profile_all_sequences(own->profile) - n_sequences;
    hl_progress progress = { .share     = t->m->share,
                             .n_tokens  = t->n_tokens,
                             .n_windows = t->n_sequences };
    if (t->m->options.progress != NULL && t->error.status == HL_OK && t->asked == HL_OK)
        t->asked = t->m->options.progress(t->m->options.context, &progress);
    pthread_mutex_unlock(&t->mutex);
}

/* ------------------------------------------------------------- two at a time */

static void *run_twin(void *context)
{
    turns    *t      = context;
    hl_status status = t->twin == NULL ? hl_measure_twin_new(&t->twin, t->m) : HL_OK;

    if (status == HL_NO_MEMORY || status == HL_LIMIT) /* the first then works alone */
        return NULL;
    pthread_mutex_lock(&t->mutex);
    hl_keep_error(&t->error, status);
    pthread_mutex_unlock(&t->mutex);
    while (status == HL_OK && take(t, t->twin))
        work(t, t->twin);
    return NULL;
}

/* Merges the twin's profile, while both pause. */
static hl_status merge_twin(turns *t)
{
    HL_CLOSED(hl_profile_free) hl_profile *empty = NULL;

    if (t->twin == NULL)
        return HL_OK;
    HL_NEED(hl_profile_new_like(&empty, t->m->profile));
    HL_NEED(hl_profile_merge(t->m->profile, t->twin->profile));
    hl_profile_free(t->twin->profile);
    t->twin->profile = empty;
    empty            = NULL;
    return HL_OK;
}

/* --------------------------------------------------------------- all batches */

/* Works until the state must be saved, or until all batches are done. */
static hl_status run_round(turns *t)
{
    pthread_t twin;
    bool      is_two = false;

    t->until = INFINITY; /* a round has at least one batch, however often the state is saved */
    if (take(t, t->m)) {
        t->until = hl_clock_seconds() + t->m->options.save_every;
        is_two =
            t->m->in_pairs && t->m->share < 1.0 && pthread_create(&twin, NULL, run_twin, t) == 0;
        do
            work(t, t->m);
        while (take(t, t->m));
    }
    if (is_two)
        pthread_join(twin, NULL);
    return t->error.status == HL_OK ? merge_twin(t) : hl_fail_kept(&t->error);
}

static hl_status run_rounds(turns *t)
{
    while (!t->is_over) {
        HL_NEED(run_round(t));
        if (!t->is_over || t->asked != HL_OK)
            HL_NEED(hl_measure_save(t->m));
        if (t->asked != HL_OK)
            return hl_fail(t->asked, "stopped after %lld tokens",
                           (long long)hl_profile_n_tokens(t->m->profile));
    }
    return HL_OK;
}

/* Processes all remaining batches, and saves the state at intervals. */
static hl_status measure_all(hl_measuring *m)
{
    turns t = { .m           = m,
                .n_tokens    = hl_profile_n_tokens(m->profile),
                .n_sequences = hl_profile_all_sequences(m->profile) };

    pthread_mutex_init(&t.mutex, NULL);
    hl_status status = run_rounds(&t);
    hl_measure_twin_free(t.twin);
    pthread_mutex_destroy(&t.mutex);
    return status;
}

/* -------------------------------------------------------------------------- whole */

hl_status hl_measure(hl_profile **out, const hl_model *model, const hl_tokenizer *tokenizer,
                     const hl_corpus *corpus, const hl_measure_options *options)
{
    hl_status    status  = HL_OK;
    hl_measuring m       = { .model = model, .corpus = corpus };
    bool         resumed = false;

    *out = NULL;
    if (model == NULL || corpus == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "no model or no text to measure");
    if (options != NULL)
        m.options = *options;
    HL_TRY(hl_measure_setup(&m, tokenizer));
    HL_TRY(hl_measure_restore(&resumed, &m));
    if (!resumed && !m.options.no_probe)
        HL_TRY(hl_measure_probe(&m));
    if (m.options.rows_path != NULL)
        HL_TRY(hl_measure_rows_new(&m.rows, &m));
    HL_TRY(hl_measure_save(&m)); /* fails now rather than later if the state cannot be saved */
    HL_TRY(measure_all(&m));
    if (m.options.windows.n_parts == 1 && hl_profile_all_sequences(m.profile) == 0)
        HL_TRY(hl_fail(HL_BAD_INPUT, "no token of the text fits into a window beside the special "
                                     "tokens; use a longer --context"));
    if (m.options.windows.n_parts > 1 || m.rows != NULL) /* complete, but others may not be */
        HL_TRY(hl_measure_save(&m));
    if (m.rows != NULL)
        HL_TRY(hl_measure_rows_finish(m.rows));
    *out      = m.profile;
    m.profile = NULL;

done:
    hl_measure_close(&m);
    return status;
}
