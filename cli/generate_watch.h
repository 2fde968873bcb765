/* generate_watch.h - somebody watches while a text is generated, and may step in.
 *
 * A watch has a tracer, and looks at every new token: is it a spike (headlight/trace.h), and
 * has attention stopped moving?  What it does then is the user's choice:
 *
 *     nothing    the spike is marked on the screen, no more
 *     warn       it is said
 *     stop       the text ends before the token
 *     resample   some tokens before it are taken back and drawn again
 *     exec       a command is asked for context, which is put in the token's place */
#ifndef HL_CLI_GENERATE_WATCH_H
#define HL_CLI_GENERATE_WATCH_H

#include <jansson.h>

#include "headlight.h"

typedef enum hl_on_spike {
    HL_ON_SPIKE_NOTHING = 0,
    HL_ON_SPIKE_WARN,
    HL_ON_SPIKE_STOP,
    HL_ON_SPIKE_RESAMPLE,
    HL_ON_SPIKE_EXEC,
} hl_on_spike;

/* For the table of options. */
typedef struct hl_watch_options {
    const char *on_spike; /* NULL: nothing */
    double      threshold;
    int64_t     resample_back;
    int64_t     resample_max;
    const char *command;
    double      seconds; /* that the command may take */
    int64_t     exec_max;
    const char *trace_path; /* NULL: the trace is not kept */
    bool        exact_rows; /* of the trace: fed once more, all at once */
    bool        quiet;      /* nothing is said */
} hl_watch_options;

hl_watch_options hl_watch_defaults(void);
/* NULL, or what is wrong with them, for a message. */
const char *hl_watch_check(const hl_watch_options *options, double temperature);
hl_on_spike hl_watch_action(const hl_watch_options *options);

typedef struct hl_watch hl_watch;

/* What the session must be opened with, beside what it would be. */
void hl_watch_wants(hl_session_options *session);
/* Both are borrowed, as the options are. */
hl_status hl_watch_open(hl_watch **out, const hl_model *model, const hl_tokenizer *tokenizer,
                        int64_t n_ctx, const hl_watch_options *options);
void      hl_watch_close(hl_watch *watch);
/* The tap, for the generator's options; then the generator itself and its prompt. */
void      hl_watch_tap(hl_generate_options *options, const hl_watch *watch);
hl_status hl_watch_begin(hl_watch *watch, hl_generator *generator, const int64_t *tokens,
                         const uint8_t *kinds, int64_t n_tokens);

/* What became of a new token. */
typedef struct hl_watched {
    bool        is_spike;
    int64_t     n_back;   /* so many tokens are gone again, the new one among them */
    bool        ends;     /* the text is over, without them */
    const char *inserted; /* text that came in their place; borrowed until the next call */
} hl_watched;

hl_status hl_watch_add(hl_watched *out, hl_watch *watch, const hl_generated *token);

const hl_trace *hl_watch_trace(const hl_watch *watch);
/* Rows as measure has them; see hl_tracer_retrace. */
hl_status hl_watch_retrace(hl_watch *watch, const hl_model *model, const float *gates,
                           int32_t n_threads);
/* What happened, as an array of objects; borrowed. */
json_t *hl_watch_events(const hl_watch *watch);
/* Spikes in the text as it is, and how many of them begin names or numbers. */
int64_t hl_watch_n_spikes(const hl_watch *watch, int64_t *n_entities);
/* What could not be said while the text was written to the same screen. */
void hl_watch_finish(hl_watch *watch);

#endif
