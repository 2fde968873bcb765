/* headlight/watch.h - somebody watches while a text is generated, and may step in.
 * Part of headlight.h, which see for the conventions. */
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
 * A watch has a tracer, and looks at every new token: is it a spike (headlight/trace.h), and has
 * attention stopped moving (hl_find_locking)?  A spike is known as soon as its token is drawn,
 * since it lies in the row before it; so the token itself cannot be the cure, and going back goes
 * further.  Whatever a token leads to happens before the next one is drawn.
 *
 * A watch, its tracer, the generator and the session are for one thread at a time, together; `ask` is
 * called on it. */

typedef enum hl_on_spike {
    HL_ON_SPIKE_NOTHING = 0,
    HL_ON_SPIKE_WARN,     /* as NOTHING: hl_watched says that there is one */
    HL_ON_SPIKE_STOP,     /* the text ends before the token; also where attention is locked */
    HL_ON_SPIKE_RESAMPLE, /* some tokens before it are taken back and drawn again */
    HL_ON_SPIKE_ASK,      /* somebody is asked for context, which is put in the token's place */
} hl_on_spike;

/* Context for a text. */
typedef struct hl_watch_answer {
    const char *text; /* borrowed until the next question */
    size_t      n_bytes;
    char        problem[160]; /* why there is none, in words; "" if there is */
} hl_watch_answer;

typedef struct hl_watch_options {
    hl_on_spike on_spike;
    double      threshold;     /* a spike is a score above it */
    int64_t     resample_back; /* how many tokens before a spike are drawn again */
    int64_t     resample_max;  /* how often, for one spike */
    int64_t     ask_max;       /* how often, for one text */
    bool        keep_trace;    /* all rows of all tokens; else the last ones, and few changes */
    /* For HL_ON_SPIKE_ASK: question is a JSON object, {"text", "tokens", "spike": {"z", "entity",
     * "token"}}, of the text before the token. */
    void (*ask)(void *context, hl_watch_answer *answer, const char *question);
    void *context;
} hl_watch_options;

/* A threshold of HL_SPIKE_THRESHOLD, 4 tokens back 3 times, 8 questions. */
HL_API hl_watch_options hl_watch_defaults(void);

typedef struct hl_watch hl_watch;

/* Adds what a watch needs to the options of the session. */
HL_API void hl_watch_session(hl_session_options *session);
/* Model and tokenizer are borrowed. */
HL_API hl_status hl_watch_open(hl_watch **out, const hl_model *model, const hl_tokenizer *tokenizer,
                               int64_t n_ctx, const hl_watch_options *options);
HL_API void      hl_watch_close(hl_watch *watch);
/* Adds the watch's tap to the generator's options.  Then, before the generator gets it, the prompt:
 * kinds (n_tokens) as for hl_tracer_prompt. */
HL_API void      hl_watch_generator(hl_generate_options *options, const hl_watch *watch);
HL_API hl_status hl_watch_begin(hl_watch *watch, hl_generator *generator, const int64_t *tokens,
                                const uint8_t *kinds, int64_t n_tokens);

typedef enum hl_watch_act {
    HL_WATCH_NOTHING = 0, /* no spike, */
    HL_WATCH_SPIKE,       /* or one that was only seen */
    HL_WATCH_STOPPED,     /* the text is over, without the token */
    HL_WATCH_RESAMPLED,   /* n_back tokens will be drawn again */
    HL_WATCH_KEPT,        /* drawn again as often as may be; the token stays, as it does */
    HL_WATCH_FIRST,       /* because no token before it can be taken back */
    HL_WATCH_ASKED,       /* what was answered stands in the token's place, if it is a text */
    HL_WATCH_ASKED_OUT,   /* ask_max questions were asked before */
} hl_watch_act;

/* What became of a new token.  Texts are borrowed until the next call. */
typedef struct hl_watched {
    hl_watch_act act;
    int64_t      token; /* its number among those generated, 0 the first */
    double       z;     /* its score; NaN: too early to say */
    bool         is_entity;
    const char  *text; /* what it added to the text, of a spike */
    size_t       n_bytes;
    int64_t      n_draws;           /* RESAMPLED and KEPT: for this spike so far */
    int64_t      n_back;            /* so many tokens are gone again, the new one among them */
    bool         ends;              /* the text is over, without them */
    const char  *inserted;          /* ASKED: the text that was answered, of */
    size_t       n_inserted_bytes;  /* ... */
    int64_t      n_inserted_tokens; /* 0: nothing was inserted */
    const char  *problem;           /* ASKED: why there is no answer; else NULL */
    hl_locking   locking;           /* .locked: with this token it was seen that attention is */
} hl_watched;

HL_API hl_status hl_watch_add(hl_watched *out, hl_watch *watch, const hl_generated *token);

/* Borrowed, for what has been seen and to retrace it. */
HL_API hl_tracer *hl_watch_tracer(const hl_watch *watch);
/* Spikes in the text as it is, and how many of them begin names or numbers. */
HL_API int64_t hl_watch_n_spikes(const hl_watch *watch, int64_t *n_entities);

#ifdef __cplusplus
}
#endif
#endif
