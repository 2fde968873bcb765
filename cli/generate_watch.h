/* generate_watch.h - the reactions of a watch (headlight/watch.h) on the command line: options, the
 * command that provides context, notes and events.
 *
 *     nothing    the spike is only marked on the screen
 *     warn       a note is printed
 *     stop       the text ends before the token
 *     resample   some tokens before it are removed and drawn again
 *     exec       a command provides context, which replaces the token */
#ifndef HL_CLI_GENERATE_WATCH_H
#define HL_CLI_GENERATE_WATCH_H

#include <jansson.h>

#include "child.h"
#include "headlight.h"

/* The options that the command line sets. */
typedef struct hl_spike_request {
    const char      *on_spike; /* NULL: nothing */
    hl_watch_options options;
    const char      *command;
    double           seconds;    /* time limit of the command */
    const char      *trace_path; /* NULL: the trace is not written */
    bool             exact_rows; /* recompute the trace's rows in one pass over the whole text */
    bool             quiet;      /* print nothing */
} hl_spike_request;

hl_spike_request hl_spike_defaults(void);
/* Completes the options from on_spike and trace_path. Returns NULL, or a message that says what is
 * wrong with them. */
const char *hl_spike_check(hl_spike_request *request, double temperature);

/* What is printed and kept about spikes, including the command's last answer. */
typedef struct hl_spike_notes {
    const hl_spike_request *request;
    json_t                 *events; /* an array of objects, one per event */
    FILE                   *late; /* notes delayed until the end; NULL: they are printed at once */
    char                   *late_text;
    size_t                  n_late;
    hl_child_result         said;
} hl_spike_notes;

/* Opens the notes and the watch, whose questions go to the command. */
hl_status hl_spike_open(hl_watch **watch, hl_spike_notes *notes, const hl_spike_request *request,
                        const hl_model *model, const hl_tokenizer *tokenizer, int64_t n_ctx);
void      hl_spike_close(hl_spike_notes *notes);
/* Prints and records the reaction to a token. */
void hl_spike_tell(hl_spike_notes *notes, const hl_watched *watched);
/* Prints the notes that were delayed while the text was written to the same screen. */
void hl_spike_finish(hl_spike_notes *notes);

#endif
