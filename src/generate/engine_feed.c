/* engine_feed.c - feeds prompts and steps, and makes events from what the tap observes.
 *
 * The tap writes its values of a row to the event of the token that the row predicts: for every row
 * of a prompt whose events are wanted, otherwise only for the last row.  The token itself is filled
 * in at the end: a prompt's token is known, others are drawn. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "generate/engine_parts.h"
#include "generate/tracer.h"

/* ----------------------------------------------------------------------- slots */

/* The number of prompt tokens that need not be fed in this slot.  Only whole chunks that were
 * fed as such count, because these give the same bytes again.  At least one token is always fed,
 * since its logits are wanted. */
static int64_t reusable(const hl_engine *engine, const hl_engine_slot *slot, const hl_job *job)
{
    size_t gates_bytes =
        (size_t)(engine->config->n_layers * engine->config->n_heads) * sizeof(float);
    int64_t most = job->options.n_tokens - 1;
    int64_t n    = 0;

    if (engine->options.keep_nothing || job->options.echo_prompt ||
        slot->is_gated != (job->gates != NULL) ||
        (slot->is_gated && memcmp(slot->gates, job->gates, gates_bytes) != 0))
        return 0;
    most = most < slot->n_kept ? most : slot->n_kept;
    while (n < most && slot->tokens[n] == job->tokens[n])
        n++;
    return n / engine->options.n_chunk * engine->options.n_chunk;
}

/* The free slot that saves the most tokens; among equals, the one idle for longest. */
static int64_t choose_slot(const hl_engine *engine, const hl_job *job)
{
    int64_t best = -1, saved = -1;

    for (int64_t i = 0; i < engine->n_sequences; i++) {
        const hl_engine_slot *slot = &engine->slots[i];
        int64_t               here = slot->job == NULL ? reusable(engine, slot, job) : -1;

        if (here > saved ||
            (here >= 0 && here == saved && slot->last_used < engine->slots[best].last_used)) {
            best  = i;
            saved = here;
        }
    }
    return best;
}

void hl_engine_take_slot(hl_engine *engine, hl_job *job)
{
    int64_t         index   = choose_slot(engine, job);
    hl_engine_slot *slot    = &engine->slots[index];
    int64_t         n_ctx   = engine->options.n_ctx;
    uint8_t        *kinds   = engine->segments + index * n_ctx;
    int64_t         n_cells = engine->config->n_layers * engine->config->n_heads;

    job->slot      = index;
    job->n_fed     = reusable(engine, slot, job);
    slot->job      = job;
    slot->n_kept   = job->n_fed;
    slot->is_gated = job->gates != NULL;
    if (slot->is_gated)
        memcpy(slot->gates, job->gates, (size_t)n_cells * sizeof *slot->gates);
    memset(kinds, HL_KIND_GENERATED, (size_t)n_ctx);
    memset(kinds, HL_KIND_PROMPT, (size_t)job->options.n_tokens);
    if (job->kinds != NULL)
        memcpy(kinds, job->kinds, (size_t)job->options.n_tokens);
    /* cannot fail: the sequence has at least this number of tokens */
    (void)hl_session_rewind(engine->session, index, job->n_fed);
}

/* --------------------------------------------------------------- rows to events */

bool hl_engine_has_prompt(const hl_job *job)
{
    return job->n_fed < job->options.n_tokens;
}

static int64_t prompt_piece(const hl_job *job)
{
    int64_t left = job->options.n_tokens - job->n_fed;
    int64_t most = job->engine->options.n_chunk;

    return left < most ? left : most;
}

/* Whether the next feed repeats one that was made in a slot that the job had to leave.  If so it
 * only fills the KV cache, and chunks must begin and end as they did then. */
static bool is_repeat(const hl_job *job)
{
    return job->n_fed < job->n_reached;
}

/* Whether a token must be drawn after this feed. */
static bool draws(const hl_job *job)
{
    return !is_repeat(job) && job->n_fed + job->n_feed >= job->options.n_tokens &&
           !job->options.prompt_only;
}

/* Number of events before that of row 0: the first token of a prompt has an event but no row. */
static int64_t n_before(const hl_job *job)
{
    return job->options.echo_prompt && job->n_fed == 0 ? 1 : 0;
}

int64_t hl_engine_prompt_events(const hl_job *job)
{
    int64_t piece    = prompt_piece(job);
    bool    has_last = job->n_fed + piece == job->options.n_tokens;

    if (is_repeat(job))
        return 0;
    if (!job->options.echo_prompt)
        return has_last && !job->options.prompt_only ? 1 : 0;
    return piece + n_before(job) - (has_last && job->options.prompt_only ? 1 : 0);
}

/* Returns the place of the event that row `row` of this feed completes, or NULL. */
static hl_event_slot *place_of(const hl_job *job, int64_t row)
{
    bool    each  = job->options.echo_prompt && hl_engine_has_prompt(job);
    bool    last  = row == job->n_feed - 1;
    int64_t index = each ? n_before(job) + row : 0;

    if ((!each && !(last && draws(job))) || index >= job->n_completed)
        return NULL;
    return hl_job_place(job, index);
}

static void clear_event(const hl_job *job, hl_event_slot *slot, int64_t position)
{
    slot->event = (hl_job_event){
        .kind        = HL_JOB_TOKEN,
        .from_prompt = position < job->options.n_tokens,
        .position    = position,
        .token       = { .id = -1, .logprob = NAN, .entropy = NAN, .varentropy = NAN },
        .top         = slot->top,
        .rows        = job->options.rows,
        .values      = slot->values,
        .n_patterns  = job->options.n_pattern_heads,
        .n_keys      = position,
        .patterns    = slot->patterns,
    };
}

/* Makes the event of a prompt's first token, which no row predicts. */
static void make_first_event(const hl_engine *engine, const hl_job *job)
{
    hl_event_slot   *slot   = hl_job_place(job, 0);
    const hl_config *config = engine->config;
    int64_t          n = __builtin_popcount(job->options.rows) * config->n_layers * config->n_heads;

    clear_event(job, slot, 0);
    slot->event.token.id                = job->tokens[0];
    slot->event.token.attention_entropy = NAN;
    for (int64_t i = 0; i < n; i++)
        slot->values[i] = NAN;
}

/* Initializes all events of a feed. */
static void begin_events(const hl_engine *engine, hl_job *job)
{
    if (hl_engine_has_prompt(job) && n_before(job) > 0 && !is_repeat(job))
        make_first_event(engine, job);
    for (int64_t row = 0; row < job->n_feed; row++) {
        hl_event_slot *slot = place_of(job, row);
        if (slot != NULL)
            clear_event(job, slot, job->n_fed + row + 1);
    }
}

static void keep_values(const hl_engine *engine, const hl_job *job, hl_event_slot *slot,
                        const hl_layer_rows *rows, int64_t sequence, int64_t row)
{
    int64_t      n_cells             = engine->config->n_layers * engine->config->n_heads;
    float       *to[HL_N_TRACE_ROWS] = { NULL };
    float       *next                = slot->values + rows->layer * engine->config->n_heads;
    hl_trace_log log                 = { 0 };

    for (int which = 0; which < HL_N_TRACE_ROWS; which++) {
        if ((job->options.rows & HL_JOB_ROWS(which)) == 0)
            continue;
        to[which] = next;
        for (int64_t head = rows->n_heads; head < engine->config->n_heads; head++)
            next[head] = NAN;
        next += n_cells;
    }
    hl_trace_read_row(to, &log, engine->config, rows, sequence, row);
}

/* Copies the whole rows of this layer's heads that the job wants. */
static void keep_patterns(const hl_job *job, hl_event_slot *slot, const hl_layer_rows *rows,
                          int64_t sequence, int64_t pattern)
{
    int64_t n_keys = slot->event.n_keys;

    for (int i = 0; i < job->options.n_pattern_heads; i++) {
        hl_head      head = job->pattern_heads[i];
        int64_t      at   = (sequence * rows->n_heads + head.head) * rows->n_patterns + pattern;
        const float *from = rows->pattern + at * rows->n_keys;

        if (head.layer == rows->layer)
            memcpy(slot->patterns + i * n_keys, from, (size_t)n_keys * sizeof *from);
    }
}

static void watch_row(const hl_engine *engine, const hl_job *job, const hl_layer_rows *rows,
                      int64_t sequence, int64_t row)
{
    hl_event_slot *slot    = place_of(job, row);
    int64_t        pattern = rows->n_patterns == job->n_feed ? row : 0;

    if (slot == NULL)
        return;
    hl_draft_watch(&slot->event.token, rows, sequence, row);
    keep_values(engine, job, slot, rows, sequence, row);
    if (rows->n_patterns > 0)
        keep_patterns(job, slot, rows, sequence, pattern);
}

static hl_status watch_layer(void *context, const hl_layer_rows *rows)
{
    const hl_engine *engine = context;

    for (int64_t sequence = 0; sequence < rows->n_batch; sequence++) {
        for (int64_t row = 0; row < rows->n_rows; row++)
            watch_row(engine, engine->fed[sequence], rows, sequence, row);
    }
    return HL_OK;
}

/* ------------------------------------------------------------- logits to events */

/* Finds the n_top most likely tokens; ties go to the lower id. */
static void find_top(hl_event_slot *slot, const float *logits, int64_t d_vocab, double lse,
                     int n_top)
{
    hl_job_top *top = slot->top;
    int         n   = 0;

    for (int64_t token = 0; token < d_vocab && n_top > 0; token++) {
        int at = n;

        if (n == n_top && logits[token] <= logits[top[n - 1].token])
            continue;
        n  = n < n_top ? n + 1 : n;
        at = at < n_top ? at : n_top - 1;
        for (; at > 0 && logits[token] > logits[top[at - 1].token]; at--)
            top[at] = top[at - 1];
        top[at].token = token;
    }
    for (int i = 0; i < n; i++)
        top[i].logprob = (double)logits[top[i].token] - lse;
    slot->event.n_top = n;
}

/* Completes the event of a prompt token, which is known and not drawn. */
static void finish_known(const hl_engine *engine, const hl_job *job, hl_event_slot *slot,
                         int64_t token, const float *logits)
{
    int64_t d_vocab = engine->config->d_vocab;
    hl_pick said    = { .token = token, .row = hl_logits_read(logits, d_vocab) };

    said.logprob = (double)logits[token] - said.row.lse;
    hl_draft_describe(&slot->event.token, engine->config, &said);
    find_top(slot, logits, d_vocab, said.row.lse, job->options.n_top);
}

/* Reads the logits of a prompt's rows if each of them makes an event. */
static hl_status watch_final(void *context, const hl_final_rows *rows)
{
    const hl_engine *engine = context;
    const hl_job    *job    = engine->fed[0];

    for (int64_t i = 0; i < rows->n_rows; i++) {
        int64_t position = rows->start + i + 1; /* position of the token that the row predicts */

        if (position < job->options.n_tokens)
            finish_known(engine, job, place_of(job, position - 1 - job->n_fed),
                         job->tokens[position], rows->logits + i * rows->d_vocab);
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- drawing */

/* A session names a broken tensor only once.  The name is kept, so that later failures with the
 * same cause can report it. */
static void fail_job(const hl_engine *engine, hl_job *job, hl_status status)
{
    bool knows = strcmp(engine->blame, hl_error_message()) == 0;

    job->fault       = status;
    job->n_completed = 0;
    if (status != HL_BAD_INPUT || engine->blame[0] == '\0' || knows)
        snprintf(job->message, sizeof job->message, "%s", hl_error_message());
    else
        snprintf(job->message, sizeof job->message, "%.200s; %.300s", hl_error_message(),
                 engine->blame);
}

/* Returns the event of the job's next token if one is due after this feed, else NULL. */
static hl_event_slot *due_event(const hl_job *job)
{
    return job->fault == HL_OK && draws(job) ? place_of(job, job->n_feed - 1) : NULL;
}

/* Draws the next token of a job; may run on any thread. */
static void draw(hl_engine *engine, int64_t index)
{
    hl_job        *job   = engine->fed[index];
    hl_pick       *drawn = &engine->picks[index];
    hl_event_slot *slot  = due_event(job);

    if (job->fault == HL_OK)
        job->n_fed += job->n_feed;
    if (job->n_fed > job->n_reached)
        job->n_reached = job->n_fed;
    if (slot == NULL)
        return;
    hl_status status = hl_draft_draw(&slot->event.token, &job->draft, drawn, job->n_fed);
    if (status != HL_OK) {
        fail_job(engine, job, status);
        return;
    }
    job->tokens[job->options.n_tokens + job->draft.n_drawn - 1] = drawn->token;
    if (drawn->logits != NULL)
        find_top(slot, drawn->logits, engine->config->d_vocab, drawn->row.lse, job->options.n_top);
}

static void draw_some(void *context, int64_t first, int64_t end, int member)
{
    (void)member;
    for (int64_t i = first; i < end; i++)
        draw(context, i);
}

/* Called after a feed: draws the next token of every job that is due one. */
static void draw_all(hl_engine *engine)
{
    hl_status status = HL_OK;
    int64_t   n      = 0;

    for (int64_t i = 0; i < engine->n_fed; i++) {
        hl_job *job = engine->fed[i];

        engine->picks[i] = (hl_pick){ .sequence     = job->slot,
                                      .sampler      = job->draft.sampler,
                                      .wants_logits = job->options.n_top > 0 };
        n += due_event(job) != NULL ? 1 : 0;
    }
    if (n > 0)
        status = hl_session_look(engine->session, engine->picks, engine->n_fed);
    for (int64_t i = 0; i < engine->n_fed && status != HL_OK; i++) {
        if (engine->fed[i]->fault == HL_OK)
            fail_job(engine, engine->fed[i], status);
    }
    hl_parallel(engine->session->pool.n_threads, engine->n_fed, 1, draw_some, engine);
}

/* ----------------------------------------------------------------------- feeds */

/* Chooses the heads whose whole rows some fed job wants, and the positions: the last row of each
 * job, or every row of one job's prompt. */
static void choose_patterns(hl_engine *engine, hl_tap *tap, bool each_row)
{
    int64_t n_heads = engine->config->n_heads;
    bool    any     = false;

    memset(engine->pattern_heads, 0, (size_t)(engine->config->n_layers * n_heads));
    for (int64_t i = 0; i < engine->n_fed; i++) {
        const hl_job *job   = engine->fed[i];
        bool          wants = job->options.n_pattern_heads > 0;

        engine->positions[i] = wants ? job->n_fed + job->n_feed - 1 : -1;
        any                  = any || wants;
        for (int k = 0; k < job->options.n_pattern_heads; k++)
            engine->pattern_heads[job->pattern_heads[k].layer * n_heads +
                                  job->pattern_heads[k].head] = true;
    }
    for (int64_t row = 0; any && each_row && row < engine->fed[0]->n_feed; row++)
        engine->positions[row] = engine->fed[0]->n_fed + row;
    if (!any)
        return;
    tap->wants |= HL_WANT_PATTERN;
    tap->pattern_positions   = engine->positions;
    tap->n_pattern_positions = each_row ? engine->fed[0]->n_feed : 1;
    tap->patterns_differ     = true;
    tap->pattern_heads       = engine->pattern_heads;
}

static bool wants_kinds(const hl_engine *engine)
{
    uint32_t kinds = ((1u << HL_N_KINDS) - 1) << HL_TRACE_LOOKBACK;

    for (int64_t i = 0; i < engine->n_fed; i++) {
        if ((engine->fed[i]->options.rows & kinds) != 0)
            return true;
    }
    return false;
}

/* Feeds n_tokens of each job in engine->fed. */
static hl_status feed(hl_engine *engine, const int64_t *tokens, int64_t n_tokens)
{
    bool each_row = engine->fed[0]->options.echo_prompt && hl_engine_has_prompt(engine->fed[0]) &&
                    !is_repeat(engine->fed[0]);
    hl_tap  tap  = { .context = engine, .layer = watch_layer };
    hl_feed what = { .tokens      = tokens,
                     .n_tokens    = n_tokens,
                     .tap         = &tap,
                     .sequences   = engine->sequences,
                     .n_sequences = engine->n_fed,
                     .gates_each  = engine->gates_each };

    if (wants_kinds(engine)) {
        what.segments   = engine->segments;
        what.n_segments = HL_N_KINDS;
    }
    if (each_row) {
        tap.wants = HL_WANT_LOGITS;
        tap.final = watch_final;
    }
    for (int64_t i = 0; i < engine->n_fed; i++) {
        engine->sequences[i]  = engine->fed[i]->slot;
        engine->gates_each[i] = engine->fed[i]->gates;
        begin_events(engine, engine->fed[i]);
    }
    choose_patterns(engine, &tap, each_row);
    hl_status status = hl_session_feed(engine->session, &what);
    if (status == HL_BAD_INPUT && engine->blame[0] == '\0')
        snprintf(engine->blame, sizeof engine->blame, "%s", hl_error_message());
    return status;
}

/* Records a whole chunk of a prompt, which later jobs can reuse. */
static void remember_piece(hl_engine *engine, const hl_job *job)
{
    hl_engine_slot *slot = &engine->slots[job->slot];

    if (job->n_feed < engine->options.n_chunk)
        return;
    memcpy(slot->tokens + job->n_fed, job->tokens + job->n_fed,
           (size_t)job->n_feed * sizeof *job->tokens);
    slot->n_kept = job->n_fed + job->n_feed;
}

void hl_engine_feed_prompt(hl_engine *engine, hl_job *job)
{
    job->n_completed = hl_engine_prompt_events(job);
    job->n_feed      = prompt_piece(job);
    engine->fed[0]   = job;
    engine->n_fed    = 1;
    hl_status status = feed(engine, job->tokens + job->n_fed, job->n_feed);
    if (status != HL_OK) {
        fail_job(engine, job, status);
        return;
    }
    remember_piece(engine, job);
    draw_all(engine);
}

/* Called when a joint feed has failed: feeding one by one shows which job is at fault. */
static void feed_one_by_one(hl_engine *engine)
{
    int64_t n     = engine->n_fed;
    hl_job *first = engine->fed[0];

    engine->n_fed = 1;
    for (int64_t i = 0; i < n; i++) {
        hl_job *job      = i == 0 ? first : engine->fed[i];
        engine->fed[0]   = job;
        hl_status status = feed(engine, &engine->step_tokens[i], 1);
        if (status != HL_OK)
            fail_job(engine, job, status);
    }
    engine->fed[0] = first;
    engine->n_fed  = n;
}

void hl_engine_feed_step(hl_engine *engine)
{
    for (int64_t i = 0; i < engine->n_fed; i++) {
        hl_job *job            = engine->fed[i];
        engine->step_tokens[i] = job->tokens[job->n_fed];
        job->n_feed            = 1;
        job->n_completed       = is_repeat(job) ? 0 : 1;
    }
    if (feed(engine, engine->step_tokens, 1) != HL_OK)
        feed_one_by_one(engine);
    draw_all(engine);
}
