/* headlight/watch.h - detecting spikes during generation, and reacting. Part of headlight.h, which
 * see for the conventions. */
#ifndef HEADLIGHT_WATCH_H
#define HEADLIGHT_WATCH_H

#include "analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- watching
 *
 *     hl_watch           *watch   = NULL;
 *     hl_watch_options    options = hl_watch_defaults();
 *     hl_session_options  wanted  = { .n_ctx = 1024, .wants = HL_WANT_LAST_DRAW };
 *     hl_generate_options how     = { .max_tokens = 100 };
 *     options.on_spike            = HL_ON_SPIKE_STOP;
 *     hl_watch_session(&wanted);
 *     hl_session_open(&session, model, &wanted);
 *     hl_watch_open(&watch, model, tokenizer, wanted.n_ctx, &options);
 *     hl_watch_generator(&how, watch);
 *     hl_generator_open(&generator, session, &how);
 *     hl_watch_begin(watch, generator, prompt, NULL, n_prompt);
 *     hl_generator_prompt(generator, prompt, n_prompt);
 *     while (token.stop == HL_STOP_NONE && !seen.ends) {
 *         hl_generator_next(&token, generator);
 *         hl_watch_add(&seen, watch, &token);
 *     }
 *
 * A watch has a tracer, and checks every new token for spikes (headlight/trace.h) and for locked
 * attention (hl_find_locking).  A spike is a property of the row that predicted the token, so it is
 * known when the token is drawn; drawing only that token again would not remove it, and earlier
 * tokens are drawn again too.  Any reaction takes place before the next token is drawn.
 *
 * A watch, its tracer, the generator and the session together are for one thread at a time; `ask`
 * is called on that thread. */

typedef enum hl_on_spike {
    HL_ON_SPIKE_NOTHING = 0,
    HL_ON_SPIKE_WARN,     /* continue; hl_watched reports the spike */
    HL_ON_SPIKE_STOP,     /* end the text before the token; also if attention is locked */
    HL_ON_SPIKE_RESAMPLE, /* remove some tokens before the spike and draw them again */
    HL_ON_SPIKE_ASK,      /* ask for context, which replaces the token */
} hl_on_spike;

/* The answer to a request for context. */
typedef struct hl_watch_answer {
    const char *text; /* borrowed until the next question */
    size_t      n_bytes;
    char        problem[160]; /* why there is no answer, in words; "" if there is one */
} hl_watch_answer;

typedef struct hl_watch_options {
    hl_on_spike on_spike;
    double      threshold;     /* a score above this is a spike */
    int64_t     resample_back; /* number of tokens before a spike that are drawn again */
    int64_t     resample_max;  /* largest number of repetitions for one spike */
    int64_t     ask_max;       /* largest number of questions for one text */
    bool        keep_trace;    /* keep the rows of all tokens; false: only the last ones, with few
                                * values of HL_TRACE_CHANGE */
    /* Called for HL_ON_SPIKE_ASK.  The question is a JSON object, {"text", "tokens", "spike": {"z",
     * "entity", "token"}}, that describes the text before the token. */
    void (*ask)(void *context, hl_watch_answer *answer, const char *question);
    void *context;
} hl_watch_options;

/* Returns a threshold of HL_SPIKE_THRESHOLD, 3 repetitions of 4 tokens, and 8 questions. */
HL_API hl_watch_options hl_watch_defaults(void);

typedef struct hl_watch hl_watch;

/* Adds what a watch requires to the options of the session. */
HL_API void hl_watch_session(hl_session_options *session);
/* Opens a watch.  It borrows model and tokenizer. */
HL_API hl_status hl_watch_open(hl_watch **out, const hl_model *model, const hl_tokenizer *tokenizer,
                               int64_t n_ctx, const hl_watch_options *options);
HL_API void      hl_watch_close(hl_watch *watch);
/* hl_watch_generator adds the watch's tap to the generator's options.  hl_watch_begin then
 * announces the prompt, before the generator gets it; kinds (n_tokens) are as in
 * hl_tracer_prompt. */
HL_API void      hl_watch_generator(hl_generate_options *options, const hl_watch *watch);
HL_API hl_status hl_watch_begin(hl_watch *watch, hl_generator *generator, const int64_t *tokens,
                                const uint8_t *kinds, int64_t n_tokens);

typedef enum hl_watch_act {
    HL_WATCH_NOTHING = 0, /* no spike */
    HL_WATCH_SPIKE,       /* a spike, to which the watch did not react */
    HL_WATCH_STOPPED,     /* the text ended, without the token */
    HL_WATCH_RESAMPLED,   /* the last n_back tokens will be drawn again */
    HL_WATCH_KEPT,        /* a spike remains after the allowed repetitions; the token stays */
    HL_WATCH_FIRST,       /* a spike with no earlier token to draw again; the token stays */
    HL_WATCH_ASKED,       /* a question was asked; an answer, if any, replaces the token */
    HL_WATCH_ASKED_OUT,   /* no question was asked, since ask_max questions were asked before; the
                           * token stays */
} hl_watch_act;

/* What happened with a new token.  Texts are borrowed until the next call. */
typedef struct hl_watched {
    hl_watch_act act;
    int64_t      token; /* index among the generated tokens, from 0 */
    double       z;     /* score of the token; NaN: too few rows have been learned */
    bool         is_entity;
    const char  *text; /* for a spike, the text that the token added */
    size_t       n_bytes;
    int64_t      n_draws;  /* RESAMPLED and KEPT: number of repetitions for this spike so far */
    int64_t      n_back;   /* number of tokens that were removed, including the new one */
    bool         ends;     /* the text has ended, without the removed tokens */
    const char  *inserted; /* ASKED: the text of the answer */
    size_t       n_inserted_bytes;
    int64_t      n_inserted_tokens; /* 0: nothing was inserted */
    const char  *problem;           /* ASKED: why there is no answer; NULL if there is one */
    hl_locking   locking;           /* .locked: with this token, attention was found to be locked */
} hl_watched;

HL_API hl_status hl_watch_add(hl_watched *out, hl_watch *watch, const hl_generated *token);

/* Returns the tracer, for its trace and hl_tracer_retrace.  It is borrowed. */
HL_API hl_tracer *hl_watch_tracer(const hl_watch *watch);
/* Returns the number of spikes in the current text, and how many of them begin names or numbers. */
HL_API int64_t hl_watch_n_spikes(const hl_watch *watch, int64_t *n_entities);

#ifdef __cplusplus
}
#endif
#endif
