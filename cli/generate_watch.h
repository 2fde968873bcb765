/* generate_watch.h - what a watch (headlight/watch.h) does with spikes, for a user: options, the
 * command that is asked for context, notes and events.
 *
 *     nothing    the spike is marked on the screen, no more
 *     warn       it is said
 *     stop       the text ends before the token
 *     resample   some tokens before it are taken back and drawn again
 *     exec       a command is asked for context, which is put in the token's place */
#ifndef HL_CLI_GENERATE_WATCH_H
#define HL_CLI_GENERATE_WATCH_H

#include <jansson.h>

#include "child.h"
#include "headlight.h"

/* For the table of options. */
typedef struct hl_spike_request {
    const char      *on_spike; /* NULL: nothing */
    hl_watch_options options;
    const char      *command;
    double           seconds;    /* that the command may take */
    const char      *trace_path; /* NULL: the trace is not kept */
    bool             exact_rows; /* of the trace: fed once more, all at once */
    bool             quiet;      /* nothing is said */
} hl_spike_request;

hl_spike_request hl_spike_defaults(void);
/* Completes the options by what on_spike and trace_path say.  NULL, or what is wrong with them, for
 * a message. */
const char *hl_spike_check(hl_spike_request *request, double temperature);

/* What is said and kept of spikes, and the command's last words. */
typedef struct hl_spike_notes {
    const hl_spike_request *request;
    json_t                 *events; /* what happened, as an array of objects */
    FILE                   *late;   /* notes that have to wait; NULL: they need not */
    char                   *late_text;
    size_t                  n_late;
    hl_child_result         said;
} hl_spike_notes;

/* Opens the watch, too, whose questions go to the command. */
hl_status hl_spike_open(hl_watch **watch, hl_spike_notes *notes, const hl_spike_request *request,
                        const hl_model *model, const hl_tokenizer *tokenizer, int64_t n_ctx);
void      hl_spike_close(hl_spike_notes *notes);
/* What became of a token. */
void hl_spike_tell(hl_spike_notes *notes, const hl_watched *watched);
/* What could not be said while the text was written to the same screen. */
void hl_spike_finish(hl_spike_notes *notes);

#endif
