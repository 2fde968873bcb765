/* engine_parts.h - the inside of engine.h.
 *
 *     engine.c         opening; jobs, and their events that wait to be taken; draining, closing
 *     engine_worker.c  the worker: which job gets what next
 *     engine_feed.c    prompts and steps through the session, and events from what it says
 *
 * One mutex, the engine's, guards what it says below; nobody computes while holding it.  All
 * else of a job is the submitter's until it is queued and the worker's until it is over.
 *
 * A row leads to the token after it.  So a feed of the tokens [s, s + n) completes the events
 * of the tokens s + 1 to s + n, of which the last may have to be drawn first. */
#ifndef HL_GENERATE_ENGINE_PARTS_H
#define HL_GENERATE_ENGINE_PARTS_H

#include <pthread.h>

#include "base/memory.h"
#include "generate/engine.h"
#include "generate/generate.h"
#include "model/session.h"

/* ---------------------------------------------------------------------- jobs */

typedef enum hl_job_state {
    HL_JOB_QUEUED = 0,
    HL_JOB_RUNNING, /* it has a slot */
    HL_JOB_OVER,
} hl_job_state;

/* An event and the memory that it points to. */
typedef struct hl_event_slot {
    hl_job_event event;
    hl_job_top  *top;      /* (n_top) */
    float       *values;   /* (bits of rows, L, H) */
    float       *patterns; /* (n_pattern_heads, n_keys) */
} hl_event_slot;

struct hl_job {
    hl_engine     *engine;
    hl_job_options options; /* its pointers are to what is below */
    int64_t       *tokens;  /* (prompt, then tokens drawn) room for the longest text */
    uint8_t       *kinds;
    int64_t       *end_ids;
    float         *gates; /* or NULL */
    hl_head       *pattern_heads;
    hl_draft       draft;

    /* The worker's. */
    int64_t   slot;
    int64_t   n_fed;        /* tokens of the text in the slot's sequence */
    int64_t   n_reached;    /* the largest n_fed so far: after a pause the tokens up to here are fed
                          * again, and neither make events nor draw */
    int64_t   n_feed;       /* tokens of this turn's feed, */
    int64_t   first_event;  /* the place of the first event that it completes, */
    int64_t   n_completed;  /* how many it does, */
    hl_status fault;        /* and what went wrong in it, with */
    char      message[512]; /* this message, which nobody reads before `failure` says so */

    /* The mutex's. */
    hl_job_state   state;
    bool           is_short;    /* few tokens, all of whose events fit: never stalls its slot */
    bool           is_parked;   /* queued again, until its reader has caught up */
    double         stuck_since; /* when its events last filled up; 0: there is room */
    double         stuck;       /* seconds without room since it has its slot */
    bool           is_cancelled;
    bool           is_abandoned; /* hl_job_free: who ends it frees it */
    bool           is_notifying;
    hl_status      failure; /* HL_OK, or why it is over */
    hl_event_slot *events;  /* (n_events) a ring: */
    int64_t        n_events;
    int64_t        first;    /* the oldest, */
    int64_t        n_ready;  /* those that can be taken, with */
    bool           has_lent; /* the oldest, which somebody is looking at */
    float         *values;   /* memory of all events */
    float         *patterns;
    hl_job_top    *top;
    pthread_cond_t news;
    int64_t        n_counted;   /* of what it has drawn, by the engine's counts */
    double         admitted;    /* seconds of the clock; 0: not yet, as */
    double         drawn_first; /* its first token */
    hl_job        *next;        /* in the queue */
};

/* ------------------------------------------------------------------- engines */

/* A sequence of the session. */
typedef struct hl_engine_slot {
    hl_job  *job;    /* NULL: free */
    int64_t *tokens; /* (n_ctx) what its first keys and values are of: */
    int64_t  n_kept; /* so many tokens, fed in whole chunks from the beginning, */
    float   *gates;  /* (L, H) with these gates, or */
    bool     is_gated;
    int64_t  last_used; /* the number of the turn */
} hl_engine_slot;

struct hl_engine {
    const hl_model   *model;
    const hl_config  *config;
    hl_engine_options options; /* complete */
    hl_session       *session;
    pthread_t         thread;
    bool              has_thread;

    /* The worker's. */
    int64_t         n_sequences; /* n_slots, and one more for short texts where there are enough */
    hl_engine_slot *slots;       /* (n_sequences) */
    uint8_t        *segments;    /* (n_sequences, n_ctx) kinds of tokens */
    bool           *pattern_heads; /* (L, H) that somebody wants to see */
    int64_t        *positions;     /* (max(n_chunk, n_sequences)) of whole rows */
    hl_job        **fed;           /* (n_sequences) the jobs of a feed */
    int64_t        *sequences;     /* (n_sequences) the slots of these jobs */
    int64_t        *step_tokens;   /* (n_sequences) the token of each job in a step */
    const float   **gates_each;    /* (n_sequences) the gates of these jobs */
    int64_t         n_fed;
    hl_pick        *picks; /* (n_sequences) what they draw */
    int64_t         turn;
    char            blame[512]; /* the tensor that is broken, if a feed has found one */

    pthread_mutex_t  mutex;
    pthread_cond_t   wake;  /* the worker */
    pthread_cond_t   done;  /* somebody who waits for the worker */
    hl_job          *queue; /* those that wait for a slot, and parked ones */
    hl_job         **queue_end;
    bool             is_draining;
    bool             is_closing;
    int64_t          n_long; /* jobs in slots that are not short */
    hl_engine_counts counts;
};

/* Tells all jobs, and the worker, that they are cancelled; how many are told.  Under the mutex. */
int64_t hl_engine_cancel_all(hl_engine *engine);

/* ---------------------------------------------------------- engine_worker.c */

/* The worker's thread, until the engine closes; NULL. */
void *hl_engine_worker(void *engine);

/* -------------------------------------------------------- engine.c, of jobs */

void hl_job_destroy(hl_job *job);
HL_CLOSES(hl_job_destroy, hl_job)
/* Places for new events that nobody has taken; under the mutex. */
int64_t hl_job_room(const hl_job *job);
/* The i-th place from the first free one on. */
hl_event_slot *hl_job_place(const hl_job *job, int64_t i);

/* ------------------------------------------------------------ engine_feed.c */

/* How many events the next piece of the prompt completes, and how many tokens it has. */
int64_t hl_engine_prompt_events(const hl_job *job);
bool    hl_engine_has_prompt(const hl_job *job);

/* The next piece of a job's prompt; its failure is the job's. */
void hl_engine_feed_prompt(hl_engine *engine, hl_job *job);
/* One token of each job that is in engine->fed. */
void hl_engine_feed_step(hl_engine *engine);
/* A slot for the job, with as much of its prompt as some slot still has. */
void hl_engine_take_slot(hl_engine *engine, hl_job *job);

#endif
