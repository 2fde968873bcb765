/* engine_parts.h - the inside of engine.h.
 *
 *     engine.c         opening; jobs, and their events that wait to be taken; draining, closing
 *     engine_worker.c  the worker: which job gets what next
 *     engine_feed.c    feeds prompts and steps to the session, makes events from its results
 *
 * One mutex, the engine's, guards the members marked below; nobody computes while holding it.
 * All other members of a job belong to the submitter until the job is queued, then to the worker
 * until it is over.
 *
 * A row predicts the token after it.  So a feed of the tokens [s, s + n) completes the events
 * of the tokens s + 1 to s + n; the last of these may have to be drawn first. */
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
    HL_JOB_RUNNING, /* the job has a slot */
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
    hl_job_options options; /* pointers in it refer to the copies below */
    int64_t       *tokens;  /* the prompt, then the generated tokens; room for the longest text */
    uint8_t       *kinds;
    int64_t       *end_ids;
    float         *gates; /* (L, H) or NULL */
    hl_head       *pattern_heads;
    hl_draft       draft;

    /* Used by the worker only. */
    int64_t   slot;
    int64_t   n_fed;        /* number of this text's tokens in the slot's sequence */
    int64_t   n_reached;    /* The largest n_fed so far.  After a pause, tokens up to here are fed
                             * again; they neither make events nor draw. */
    int64_t   n_feed;       /* number of tokens in this turn's feed */
    int64_t   first_event;  /* place of the first event that this turn's feed completes */
    int64_t   n_completed;  /* number of events that this turn's feed completes */
    hl_status fault;        /* error of this turn's feed, or HL_OK */
    char      message[512]; /* message of `fault`; not read before `failure` is set */

    /* Guarded by the engine's mutex. */
    hl_job_state   state;
    bool           is_short;  /* few tokens, whose events all fit: the job never stalls its slot */
    bool           is_parked; /* queued again until its reader has caught up */
    double         stuck_since; /* when its events last filled up; 0: there is room */
    double         stuck;       /* seconds without room since the job got its slot */
    bool           is_cancelled;
    bool           is_abandoned; /* hl_job_free was called: whoever ends the job frees it */
    bool           is_notifying;
    hl_status      failure; /* HL_OK, or the error that ended the job */
    hl_event_slot *events;  /* (n_events) a ring buffer */
    int64_t        n_events;
    int64_t        first;    /* index of the oldest event */
    int64_t        n_ready;  /* number of events that can be taken, including a lent one */
    bool           has_lent; /* the oldest event is borrowed by the caller of hl_job_wait */
    float         *values;   /* memory that all events share */
    float         *patterns;
    hl_job_top    *top;
    pthread_cond_t news;
    int64_t        n_counted;   /* number of its tokens that the engine's counts include */
    double         admitted;    /* clock time at which it got a slot; 0: not yet */
    double         drawn_first; /* clock time of its first generated token; 0: not yet */
    hl_job        *next;        /* in the queue */
};

/* ------------------------------------------------------------------- engines */

/* A sequence of the session. */
typedef struct hl_engine_slot {
    hl_job  *job;    /* NULL: free */
    int64_t *tokens; /* (n_ctx) tokens whose keys and values the cache holds */
    int64_t  n_kept; /* number of valid tokens, fed in whole chunks from position 0 */
    float   *gates;  /* (L, H) gates with which the tokens were fed, if is_gated */
    bool     is_gated;
    int64_t  last_used; /* number of the turn in which the slot was last used */
} hl_engine_slot;

struct hl_engine {
    const hl_model   *model;
    const hl_config  *config;
    hl_engine_options options; /* with all defaults filled in */
    hl_session       *session;
    pthread_t         thread;
    bool              has_thread;

    /* Used by the worker only. */
    int64_t         n_sequences;   /* n_slots, plus one for short texts if there are enough slots */
    hl_engine_slot *slots;         /* (n_sequences) */
    uint8_t        *segments;      /* (n_sequences, n_ctx) kinds of tokens */
    bool           *pattern_heads; /* (L, H) heads whose patterns some job wants */
    int64_t        *positions;     /* (max(n_chunk, n_sequences)) positions of whole rows */
    hl_job        **fed;           /* (n_sequences) the jobs of a feed */
    int64_t        *sequences;     /* (n_sequences) the slots of the jobs in `fed` */
    int64_t        *step_tokens;   /* (n_sequences) the token of each job in a step */
    const float   **gates_each;    /* (n_sequences) the gates of the jobs in `fed` */
    int64_t         n_fed;
    hl_pick        *picks; /* (n_sequences) draws of the jobs in `fed` */
    int64_t         turn;
    char            blame[512]; /* name of the broken tensor, if a feed found one */

    pthread_mutex_t  mutex;
    pthread_cond_t   wake;  /* signaled when the worker has something to do */
    pthread_cond_t   done;  /* signaled when the worker has finished something */
    hl_job          *queue; /* jobs that wait for a slot, including parked ones */
    hl_job         **queue_end;
    bool             is_draining;
    bool             is_closing;
    int64_t          n_long; /* number of jobs in slots that are not short */
    hl_engine_counts counts;
};

/* Marks all jobs as cancelled and wakes the worker.  Returns the number of jobs marked.  The
 * caller holds the mutex. */
int64_t hl_engine_cancel_all(hl_engine *engine);

/* ---------------------------------------------------------- engine_worker.c */

/* The worker's thread function; runs until the engine closes and returns NULL. */
void *hl_engine_worker(void *engine);

/* -------------------------------------------------------- engine.c, of jobs */

void hl_job_destroy(hl_job *job);
HL_CLOSES(hl_job_destroy, hl_job)
/* Number of free places for new events.  The caller holds the mutex. */
int64_t hl_job_room(const hl_job *job);
/* The i-th free place, counted from 0. */
hl_event_slot *hl_job_place(const hl_job *job, int64_t i);

/* ------------------------------------------------------------ engine_feed.c */

/* Number of events that the next chunk of the prompt completes. */
int64_t hl_engine_prompt_events(const hl_job *job);
bool    hl_engine_has_prompt(const hl_job *job);

/* Feeds the next chunk of a job's prompt.  An error becomes the job's failure. */
void hl_engine_feed_prompt(hl_engine *engine, hl_job *job);
/* Feeds one token of each job in engine->fed. */
void hl_engine_feed_step(hl_engine *engine);
/* Gives the job a slot, preferably one that still holds the beginning of its prompt. */
void hl_engine_take_slot(hl_engine *engine, hl_job *job);

#endif
