/* generate_watch.c - notes and events of spikes, and the command that provides context. */
#include "generate_monitor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "values.h"

#define MAX_CONTEXT (16 * 1024) /* largest output of a command, in bytes */

/* -------------------------------------------------------------------- options */

hl_spike_request hl_spike_defaults(void)
{
    return (hl_spike_request){ .options = hl_watch_defaults(), .seconds = 10.0 };
}

static hl_on_spike action_of(const char *name)
{
    static const char *const names[] = { "", "warn", "stop", "resample", "exec" };

    for (int i = 1; name != NULL && i < 5; i++) {
        if (strcmp(name, names[i]) == 0)
            return (hl_on_spike)i;
    }
    return HL_ON_SPIKE_NOTHING;
}

const char *hl_spike_check(hl_spike_request *request, double temperature)
{
    hl_on_spike action = action_of(request->on_spike);

    request->options.on_spike   = action;
    request->options.keep_trace = request->trace_path != NULL;
    if (action == HL_ON_SPIKE_RESAMPLE && temperature == 0.0)
        return "--on-spike resample needs --temperature: without it the same tokens are drawn "
               "again";
    if (action == HL_ON_SPIKE_ASK && request->command == NULL)
        return "--on-spike exec needs --exec COMMAND";
    if (action != HL_ON_SPIKE_ASK && request->command != NULL)
        return "--exec needs --on-spike exec";
    if (request->exact_rows && request->trace_path == NULL)
        return "--exact-rows needs --trace FILE";
    return NULL;
}

/* ------------------------------------------------------------- open and close */

static void ask_command(void *context, hl_watch_answer *answer, const char *question)
{
    hl_spike_notes  *notes  = context;
    hl_child_limits  limits = { notes->request->seconds, MAX_CONTEXT };
    hl_child_result *said   = &notes->said;

    free(said->output);
    *said = (hl_child_result){ 0 };
    hl_child_run(said, notes->request->command, question, strlen(question), limits);
    answer->text    = said->output;
    answer->n_bytes = said->n_bytes;
    snprintf(answer->problem, sizeof answer->problem, "%s", said->problem);
}

hl_status hl_spike_open(hl_watch **watch, hl_spike_notes *notes, const hl_spike_request *request,
                        const hl_model *model, const hl_tokenizer *tokenizer, int64_t n_ctx)
{
    hl_watch_options options = request->options;

    options.ask     = ask_command;
    options.context = notes;
    notes->request  = request;
    notes->events   = json_array();
    if (isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
        notes->late = open_memstream(&notes->late_text, &notes->n_late);
    return notes->events != NULL ? hl_watch_open(watch, model, tokenizer, n_ctx, &options)
                                 : HL_NO_MEMORY;
}

void hl_spike_close(hl_spike_notes *notes)
{
    json_decref(notes->events);
    if (notes->late != NULL)
        fclose(notes->late);
    free(notes->late_text);
    free(notes->said.output);
}

/* ---------------------------------------------------------------------- notes */

/* Prints a note on standard error, or later if the text is on the same screen. */
__attribute__((format(printf, 2, 3))) static void note(hl_spike_notes *notes, const char *format,
                                                       ...)
{
    char    text[512];
    va_list arguments;

    if (notes->request->quiet)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (notes->late != NULL)
        fprintf(notes->late, "%s\n", text);
    else
        hl_complain("generate", "%s", text);
}

/* Prints the beginning of every note of a spike: "token 12 ' Paris': a spike, z = 3.4 (a name)". */
static void print_spike(char *out, size_t n_bytes, const hl_watched *spike)
{
    char *text = hl_printable_text(spike->text, spike->n_bytes);

    snprintf(out, n_bytes, "token %lld '%s': a spike, z = %.2f%s", (long long)spike->token + 1,
             text != NULL ? text : "", spike->z, spike->is_entity ? " (a name or number)" : "");
    free(text);
}

/* Adds an event: the reaction to the spike, and a value that belongs to it. */
static void keep_event(hl_spike_notes *notes, const hl_watched *spike, const char *what,
                       const char *detail, json_t *value)
{
    json_t *event =
        json_pack("{s:s, s:I, s:f, s:b, s:o}", "event", what, "token", (json_int_t)spike->token,
                  "z", spike->z, "entity", spike->is_entity, detail, value);

    json_array_append_new(notes->events, event);
}

static void tell_locking(hl_spike_notes *notes, const hl_locking *found)
{
    note(notes,
         "attention is locked from token %lld on: rows change by %.4f (details: headlight diagnose "
         "--trace)",
         (long long)found->first + 1, found->change);
    json_array_append_new(notes->events, json_pack("{s:s, s:I, s:f, s:f}", "event", "locking",
                                                   "token", (json_int_t)found->first, "change",
                                                   found->change, "spread", found->spread));
}

static void tell_answer(hl_spike_notes *notes, const hl_watched *w, const char *spike)
{
    if (w->problem != NULL) {
        note(notes, "%s; the command of --exec gave no context: %s", spike, w->problem);
        keep_event(notes, w, "exec", "problem", json_string(w->problem));
        return;
    }
    note(notes, "%s; inserted %lld token%s of context", spike, (long long)w->n_inserted_tokens,
         w->n_inserted_tokens == 1 ? "" : "s");
    keep_event(notes, w, "exec", "inserted", json_stringn(w->inserted, w->n_inserted_bytes));
}

void hl_spike_tell(hl_spike_notes *notes, const hl_watched *w)
{
    const hl_watch_options *options = &notes->request->options;
    long long               n_back  = (long long)w->n_back - 1; /* n_back without the spike's
                                                                 * token */
    char                    spike[256];

    if (w->locking.locked)
        tell_locking(notes, &w->locking);
    if (w->act == HL_WATCH_NOTHING || options->on_spike == HL_ON_SPIKE_NOTHING)
        return;
    print_spike(spike, sizeof spike, w);
    switch (w->act) {
    case HL_WATCH_NOTHING:
        break;
    case HL_WATCH_SPIKE:
        note(notes, "%s", spike);
        keep_event(notes, w, "spike", "threshold", json_real(options->threshold));
        break;
    case HL_WATCH_STOPPED:
        note(notes, "%s; stopped before it", spike);
        keep_event(notes, w, "stop", "threshold", json_real(options->threshold));
        break;
    case HL_WATCH_RESAMPLED:
        note(notes, "%s; going back %lld token%s to draw again (%lld of %lld)", spike, n_back,
             n_back == 1 ? "" : "s", (long long)w->n_draws, (long long)options->resample_max);
        keep_event(notes, w, "resample", "back", json_integer(n_back));
        break;
    case HL_WATCH_KEPT:
        note(notes, "%s; kept: %lld new draws gave no better text", spike, (long long)w->n_draws);
        keep_event(notes, w, "kept", "draws", json_integer(w->n_draws));
        break;
    case HL_WATCH_FIRST:
        note(notes, "%s; no generated token before it to draw again", spike);
        keep_event(notes, w, "kept", "draws", json_integer(w->n_draws));
        break;
    case HL_WATCH_ASKED:
        tell_answer(notes, w, spike);
        break;
    case HL_WATCH_ASKED_OUT:
        note(notes, "%s; the command of --exec was already called %lld times (--exec-max)", spike,
             (long long)options->ask_max);
        break;
    }
}

void hl_spike_finish(hl_spike_notes *notes)
{
    if (notes->late == NULL)
        return;
    fflush(notes->late);
    hl_put_lines(stderr, notes->late_text, notes->n_late);
    rewind(notes->late);
}
