/* engine.h - generates many texts at once; each pass over the weights serves all of them.
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
 * queue until a slot is free, has its prompt fed one chunk at a time, and then takes part in
 * every step: one token of each running text, fed together.  Between two steps at most one
 * chunk of one prompt is fed, so a long prompt does not delay the other texts.
 *
 * A job whose events nobody takes pauses in its slot.  If other jobs wait for a slot, it is
 * parked: it leaves its slot, and returns when half of its events have been taken.  Its text is
 * then fed again, the prompt in the same chunks and each generated token in a step of its own,
 * so that it continues with the same bytes.  With four slots or more there is one more sequence
 * that only short texts may use, so that a short text does not wait for long ones to end.
 *
 * The output of a job depends only on the job, the model and the options n_ctx, n_chunk,
 * cache_dtype and activations.  It is byte-identical whether the job runs alone or with others,
 * with any sampler.
 *
 * Functions may be called from any thread but the worker's, unless their comment says
 * otherwise.  Only one thread at a time may wait for a job. */
#ifndef HL_GENERATE_ENGINE_H
#define HL_GENERATE_ENGINE_H

#include "base/memory.h"
#include "headlight/prune.h"

typedef struct hl_engine hl_engine;
typedef struct hl_job    hl_job;

/* ------------------------------------------------------------------- engines */

#define HL_ENGINE_MAX_SLOTS    256
#define HL_ENGINE_CHUNK        64  /* tokens of a prompt that are fed together, by default */
#define HL_ENGINE_EVENTS       128 /* events of a job that may wait to be taken, by default */
#define HL_ENGINE_SHORT        64 /* a text counts as short up to this number of generated tokens */
#define HL_ENGINE_SHORT_PLACES 8  /* places in the queue that only short texts may take */
#define HL_JOB_MAX_TOP         20
#define HL_JOB_MAX_PATTERNS    16

typedef struct hl_engine_options {
    int64_t  n_slots;     /* number of texts generated at once; 0: 8 */
    int64_t  n_queue;     /* number of jobs that may wait for a slot; 0: 4 per slot */
    int64_t  n_ctx;       /* as in hl_session_options */
    int64_t  n_chunk;     /* prompt tokens fed at a time; 0: HL_ENGINE_CHUNK */
    int64_t  n_events;    /* events kept per job, at least n_chunk + 2; 0: HL_ENGINE_EVENTS */
    int32_t  n_threads;   /* threads of a step; 0: all cores */
    hl_dtype cache_dtype; /* F32 or F16 */
    hl_math  math;
    bool     beyond_ctx;
    bool     keep_nothing; /* Always feeds a prompt from its beginning, even where the slot
                                  * still holds a common prefix. */
} hl_engine_options;

/* Borrows the model, which must outlive the engine.  HL_UNSUPPORTED for encoders. */
hl_status hl_engine_open(hl_engine **out, const hl_model *model, const hl_engine_options *options);
/* Cancels all running work.  All jobs must have been freed. */
void hl_engine_close(hl_engine *engine);
HL_CLOSES(hl_engine_close, hl_engine)

int64_t hl_engine_n_ctx(const hl_engine *engine);

/* Makes hl_engine_submit return HL_CANCELLED from now on.  Waits up to `seconds` for all jobs,
 * queued ones included, then cancels the rest; *n_cancelled (may be NULL) is their number.  A job
 * whose events nobody takes never finishes by itself. */
void hl_engine_drain(hl_engine *engine, double seconds, int64_t *n_cancelled);

/* Totals since the engine was opened, and its current state. */
typedef struct hl_engine_counts {
    int64_t n_slots;
    int64_t n_queued;   /* jobs waiting for a slot now */
    int64_t n_running;  /* jobs in slots now, including those whose prompt is being fed */
    int64_t n_parked;   /* jobs now out of their slots until their events are taken */
    int64_t n_parkings; /* number of times a job had to leave its slot */
    int64_t n_submitted;
    int64_t n_finished; /* jobs that ended by themselves */
    int64_t n_cancelled;
    int64_t n_failed;
    int64_t n_refused;       /* jobs refused because the queue was full */
    int64_t n_prompt_tokens; /* prompt tokens that were fed */
    int64_t n_reused_tokens; /* prompt tokens not fed again, as a slot still held them */
    int64_t n_generated_tokens;
    int64_t n_steps;
    double  prompt_seconds; /* time spent feeding prompts */
    double  step_seconds;
    double  text_seconds; /* sum over finished texts, from first generated token to end */
} hl_engine_counts;

void hl_engine_count(hl_engine_counts *out, hl_engine *engine);

/* ---------------------------------------------------------------------- jobs */

/* Everything that the pointers refer to is copied. */
typedef struct hl_job_options {
    const int64_t    *tokens; /* (n_tokens) the prompt; at least one */
    int64_t           n_tokens;
    const uint8_t    *kinds; /* (n_tokens) hl_token_kind, for HL_TRACE_LOOKBACK; NULL: all PROMPT */
    hl_sample_options sample;     /* as in hl_generate_options */
    int64_t           max_tokens; /* 0: until the context is full */
    bool              ignore_end;
    const int64_t    *end_ids; /* (n_end_ids) */
    int               n_end_ids;
    const float      *gates; /* (n_layers, n_heads) for this job only; NULL: the model's */

    bool           prompt_only;     /* generates nothing: only the prompt is evaluated */
    bool           echo_prompt;     /* also makes events for the prompt's tokens */
    int            n_top;           /* most likely tokens per event, 0 to HL_JOB_MAX_TOP */
    uint32_t       rows;            /* Bits HL_JOB_ROWS(HL_TRACE_...): the values that each event
                                     * holds for every head.  HL_TRACE_CHANGE is not available. */
    const hl_head *pattern_heads;   /* (n_pattern_heads) heads whose whole rows each event holds */
    int            n_pattern_heads; /* 0 to HL_JOB_MAX_PATTERNS */

    /* Called by the worker when hl_job_wait has something new to report, and before the worker
     * waits for room.  It may call hl_job_wait with 0 seconds and must not block.  NULL: no
     * callback. */
    void (*notify)(void *context);
    void *context;
} hl_job_options;

#define HL_JOB_ROWS(which) (1u << (which))

/* HL_BUSY: the queue is full; the caller may try again later.  HL_LIMIT: the prompt is longer
 * than the context.  HL_BAD_ARGUMENT: token ids outside the vocabulary, or other impossible
 * options.  HL_CANCELLED: the engine is draining. */
hl_status hl_engine_submit(hl_job **out, hl_engine *engine, const hl_job_options *options);

typedef struct hl_job_top {
    int64_t token;
    double  logprob; /* under the model's own distribution, before temperature and filters */
} hl_job_top;

typedef enum hl_job_event_kind {
    HL_JOB_NOTHING = 0, /* no event within the given time */
    HL_JOB_TOKEN,
    HL_JOB_END, /* the last event of the job */
} hl_job_event_kind;

/* A token, and what was measured in the row that predicted it: the row of the token before.  The
 * first token of a prompt has no such row: its numbers are NaN, and its n_top and n_keys are 0. */
typedef struct hl_job_event {
    hl_job_event_kind kind;
    bool              from_prompt;
    int64_t           position; /* position of the token in the text; the prompt begins at 0 */
    hl_generated      token;    /* the last token has .stop other than HL_STOP_NONE */
    const hl_job_top *top;      /* (n_top) by decreasing probability, ties by increasing token id */
    int               n_top;
    uint32_t          rows;   /* as in hl_job_options */
    const float      *values; /* (bits of rows, n_layers, n_heads), lowest bit first; NaN for
                               * heads that a layer lacks */
    int64_t           n_patterns;
    int64_t           n_keys;    /* number of tokens before this one: its position */
    const float      *patterns;  /* (n_patterns, n_keys) in the order of pattern_heads */
    bool              cancelled; /* HL_JOB_END: ended by hl_job_cancel, drain or close */
} hl_job_event;

/* Returns the (n_layers, n_heads) values of an event, or NULL if the job did not ask for them. */
const float *hl_job_event_rows(const hl_job_event *event, hl_trace_rows which, int64_t n_layers,
                               int64_t n_heads);

/* Waits at most `seconds` for the next event; 0 returns at once.  What the event points to is
 * borrowed until the next call for this job, or until the job is freed.  A status other than
 * HL_OK is the job's failure, with its message; it is returned after all earlier events, and by
 * every further call.  A job whose events are not taken pauses when all n_events places are full,
 * and leaves its slot if other jobs wait for one. */
hl_status hl_job_wait(hl_job_event *out, hl_job *job, double seconds);
/* Takes the job out of the queue, or frees its slot before the next step at the latest.  Waiting
 * events can still be taken. */
void hl_job_cancel(hl_job *job);
/* Cancels the job if it is not over.  Returns at once, unless a call of `notify` is running;
 * there are no calls of `notify` afterwards. */
void hl_job_free(hl_job *job);

#endif
