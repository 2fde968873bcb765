/* engine.h - many texts at once, by one model that is read once for all of them.
 *
 *     hl_engine *engine = NULL;
 *     hl_job    *job    = NULL;
 *     hl_job_event event;
 *     hl_engine_open(&engine, model, &(hl_engine_options){ .n_slots = 8, .n_queue = 32 });
 *     hl_engine_submit(&job, engine, &(hl_job_options){ .tokens = prompt, .n_tokens = n });
 *     while ((status = hl_job_wait(&event, job, 10.0)) == HL_OK && event.kind != HL_JOB_END)
 *         if (event.kind == HL_JOB_TOKEN)
 *             show(event.token.id);
 *     hl_job_free(job);
 *     hl_engine_close(engine);
 *
 * One thread, the worker, owns a session with a sequence for every slot.  A job waits in a
 * queue until a slot is free, has its prompt fed a piece at a time, and then takes part in
 * every step: one token of each text that is under way, fed together.  Between two steps at
 * most one piece of one prompt is fed, so a long prompt does not hold up the others.
 *
 * A job whose events nobody takes stops in its slot.  While others wait for one it must leave:
 * it is parked, and comes back when half of its events have been taken.  Its text is then fed
 * again, the prompt in the same pieces and each generated token in a step of its own, so that
 * it continues with the same bytes.  With four slots or more there is one more sequence, which
 * only short texts may use: however long the other texts are, a short one does not wait for
 * their end.
 *
 * What a job gives depends on the job, the model and the options n_ctx, n_chunk, cache_dtype
 * and activations: to the byte the same alone and in any company, with any sampler.
 *
 * All calls may come from any thread but the worker's, unless it says otherwise; of one job
 * only one thread may wait at a time. */
#ifndef HL_GENERATE_ENGINE_H
#define HL_GENERATE_ENGINE_H

#include "base/memory.h"
#include "headlight/prune.h"

typedef struct hl_engine hl_engine;
typedef struct hl_job    hl_job;

/* ------------------------------------------------------------------- engines */

#define HL_ENGINE_MAX_SLOTS    256
#define HL_ENGINE_CHUNK        64  /* tokens of a prompt that are fed together, by default */
#define HL_ENGINE_EVENTS       128 /* of a job that wait to be taken, by default */
#define HL_ENGINE_SHORT        64  /* tokens to generate at most of a text that counts as short */
#define HL_ENGINE_SHORT_PLACES 8   /* in the queue, that only short texts may take */
#define HL_JOB_MAX_TOP         20
#define HL_JOB_MAX_PATTERNS    16

typedef struct hl_engine_options {
    int64_t        n_slots;     /* texts at once; 0: 8 */
    int64_t        n_queue;     /* jobs that wait for a slot; 0: 4 for each slot */
    int64_t        n_ctx;       /* as in hl_session_options, as what follows */
    int64_t        n_chunk;     /* 0: HL_ENGINE_CHUNK */
    int64_t        n_events;    /* 0: HL_ENGINE_EVENTS; at least n_chunk + 2 */
    int32_t        n_threads;   /* of a step; 0: all cores */
    hl_dtype       cache_dtype; /* F32 or F16 */
    hl_activations activations;
    bool           beyond_ctx;
    bool           keep_nothing; /* do not feed a prompt from where a slot's last text differs,
                                  * but always from its beginning */
} hl_engine_options;

/* Borrows the model, which must outlive the engine.  HL_UNSUPPORTED for encoders. */
hl_status hl_engine_open(hl_engine **out, const hl_model *model, const hl_engine_options *options);
/* Ends what is under way.  All jobs must have been freed. */
void hl_engine_close(hl_engine *engine);
HL_CLOSES(hl_engine_close, hl_engine)

int64_t hl_engine_n_ctx(const hl_engine *engine);

/* From now on hl_engine_submit answers HL_CANCELLED.  Waits up to `seconds` for the jobs there
 * are, queued ones too, and cancels those that are left then; *n_cancelled (may be NULL) are
 * so many.  A job that nobody takes events from is not done. */
void hl_engine_drain(hl_engine *engine, double seconds, int64_t *n_cancelled);

/* Totals since it was opened, and what is now. */
typedef struct hl_engine_counts {
    int64_t n_slots;
    int64_t n_queued;   /* now */
    int64_t n_running;  /* in slots, now; those whose prompt is being fed too */
    int64_t n_parked;   /* now: out of their slots, until their events are taken */
    int64_t n_parkings; /* how often a job had to leave its slot */
    int64_t n_submitted;
    int64_t n_finished; /* by themselves, */
    int64_t n_cancelled;
    int64_t n_failed;
    int64_t n_refused;          /* the queue was full */
    int64_t n_prompt_tokens;    /* that were fed, and */
    int64_t n_reused_tokens;    /* that a slot still had */
    int64_t n_generated_tokens; /* ... */
    int64_t n_steps;
    double  prompt_seconds; /* spent on prompts and steps */
    double  step_seconds;
    double  text_seconds; /* from the first generated token of every text that is over to its end */
} hl_engine_counts;

void hl_engine_count(hl_engine_counts *out, hl_engine *engine);

/* ---------------------------------------------------------------------- jobs */

/* What is pointed to is copied. */
typedef struct hl_job_options {
    const int64_t    *tokens; /* (n_tokens) the prompt; at least one */
    int64_t           n_tokens;
    const uint8_t    *kinds;  /* (n_tokens) hl_token_kind, for HL_TRACE_LOOKBACK; NULL: PROMPT */
    hl_sample_options sample; /* as hl_generate_options, as what follows */
    int64_t           max_tokens; /* 0: as many as the context holds */
    bool              ignore_end;
    const int64_t    *end_ids; /* (n_end_ids) */
    int               n_end_ids;
    const float      *gates; /* (n_layers, n_heads) of this job alone; NULL: the model's */

    bool           prompt_only;     /* generates nothing: for the prompt's probabilities */
    bool           echo_prompt;     /* events for the prompt's tokens too */
    int            n_top;           /* the likeliest tokens in each event, 0 to HL_JOB_MAX_TOP */
    uint32_t       rows;            /* bits HL_JOB_ROWS(HL_TRACE_...) of what each event brings of
                                   * every head; HL_TRACE_CHANGE is not among them */
    const hl_head *pattern_heads;   /* (n_pattern_heads) whose whole rows each event brings */
    int            n_pattern_heads; /* 0 to HL_JOB_MAX_PATTERNS */

    /* Called by the worker after hl_job_wait has something new to say, and before it waits for
     * room; may call hl_job_wait with 0 seconds, must not block.  NULL: nobody to tell. */
    void (*notify)(void *context);
    void *context;
} hl_job_options;

#define HL_JOB_ROWS(which) (1u << (which))

/* HL_BUSY: the queue is full; the caller may try again later.  HL_LIMIT: a prompt longer than
 * the context.  HL_BAD_ARGUMENT: tokens that the model does not know, and other impossible
 * options.  HL_CANCELLED: the engine drains. */
hl_status hl_engine_submit(hl_job **out, hl_engine *engine, const hl_job_options *options);

typedef struct hl_job_top {
    int64_t token;
    double  logprob; /* by the model's own distribution, before temperature and filters */
} hl_job_top;

typedef enum hl_job_event_kind {
    HL_JOB_NOTHING = 0, /* within that time */
    HL_JOB_TOKEN,
    HL_JOB_END, /* no more will come */
} hl_job_event_kind;

/* A token, and what was seen in the row that led to it: that of the token before.  The first
 * token of a prompt has no such row: its numbers are NaN, its n_top and n_keys 0. */
typedef struct hl_job_event {
    hl_job_event_kind kind;
    bool              from_prompt;
    int64_t           position; /* of the token in the text, the prompt's first being 0 */
    hl_generated      token;    /* .stop other than HL_STOP_NONE: the last */
    const hl_job_top *top;      /* (n_top) by falling probability, the lowest of equals first */
    int               n_top;
    uint32_t          rows;   /* as in the options */
    const float      *values; /* (bits of rows, n_layers, n_heads), those of the lowest bit
                               * first; NaN of heads that a layer lacks */
    int64_t           n_patterns;
    int64_t           n_keys;    /* that lie before the token: its position */
    const float      *patterns;  /* (n_patterns, n_keys) in the order of pattern_heads */
    bool              cancelled; /* HL_JOB_END: by hl_job_cancel, drain or close */
} hl_job_event;

/* (n_layers, n_heads) of an event; NULL: the job did not ask for it. */
const float *hl_job_event_rows(const hl_job_event *event, hl_trace_rows which, int64_t n_layers,
                               int64_t n_heads);

/* The next event, after at most `seconds`; 0: at once.  What it points to is borrowed until the
 * job's next call of this, or its end.  Any other status than HL_OK is the job's failure, with
 * its message, after all events that came before; so is every further call.  A job whose events
 * are not taken pauses when all of its places are full (n_events at most), and leaves its slot
 * if others wait for it. */
hl_status hl_job_wait(hl_job_event *out, hl_job *job, double seconds);
/* Leaves the queue or frees its slot, before the next step at the latest.  Events that wait can
 * still be taken. */
void hl_job_cancel(hl_job *job);
/* Cancels it if it is not over.  Returns at once, but for a call of `notify` that is under way;
 * there are none after it. */
void hl_job_free(hl_job *job);

#endif
