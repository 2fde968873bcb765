/* generate_watch.c - somebody watches while a text is generated, and may step in.
 *
 * A spike is known as soon as its token is drawn, since it lies in the row before it; so the
 * token itself cannot be the cure, and going back goes further.  Whatever a token leads to
 * happens before the next one is drawn. */
#include "generate_watch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "command.h"
#include "values.h"

#define CHANGE_EVERY  64          /* tokens; whole rows cost time */
#define LOCKING_EVERY 32          /* tokens between looks for locking */
#define MAX_CONTEXT   (16 * 1024) /* bytes that a command may print */

struct hl_watch {
    const hl_watch_options *options;
    hl_on_spike             action;
    const hl_tokenizer     *tokenizer;
    hl_tracer              *tracer;
    hl_generator           *generator;
    int64_t                *ids; /* (n_ctx + 1) of all of the text */
    int64_t                 n_ctx;
    int64_t                 n_given; /* tokens of the prompt, and all that was inserted */
    int64_t                 n_since; /* generated since the last of these */
    int64_t                 again;   /* the token for which draws were repeated, and */
    int64_t                 n_again; /* how often */
    int64_t                 n_calls; /* of the command */
    char                   *inserted;
    double                 *entropy; /* (n_ctx) of each generated token: what locking looks at */
    double                 *change;
    int64_t                 n_seen;
    bool                    is_locked;
    json_t                 *events;
    FILE                   *late; /* notes that have to wait; NULL: they need not */
    char                   *late_text;
    size_t                  n_late;
};

/* -------------------------------------------------------------------- options */

hl_watch_options hl_watch_defaults(void)
{
    return (hl_watch_options){ .threshold     = HL_SPIKE_THRESHOLD,
                               .resample_back = 4,
                               .resample_max  = 3,
                               .seconds       = 10.0,
                               .exec_max      = 8 };
}

hl_on_spike hl_watch_action(const hl_watch_options *options)
{
    static const char *const names[] = { "", "warn", "stop", "resample", "exec" };

    for (int i = 1; options->on_spike != NULL && i < 5; i++) {
        if (strcmp(options->on_spike, names[i]) == 0)
            return (hl_on_spike)i;
    }
    return HL_ON_SPIKE_NOTHING;
}

const char *hl_watch_check(const hl_watch_options *options, double temperature)
{
    hl_on_spike action = hl_watch_action(options);

    if (action == HL_ON_SPIKE_RESAMPLE && temperature == 0.0)
        return "--on-spike resample needs a --temperature: without one the same tokens come again";
    if (action == HL_ON_SPIKE_EXEC && options->command == NULL)
        return "--on-spike exec needs --exec COMMAND";
    if (action != HL_ON_SPIKE_EXEC && options->command != NULL)
        return "--exec needs --on-spike exec";
    if (options->exact_rows && options->trace_path == NULL)
        return "--exact-rows needs --trace FILE";
    return NULL;
}

/* ------------------------------------------------------------- open and close */

void hl_watch_wants(hl_session_options *session)
{
    session->wants |= HL_WANT_PATTERN;
    session->n_patterns = 1;
}

static hl_status allocate(hl_watch *watch)
{
    size_t n_ctx = (size_t)watch->n_ctx;

    watch->ids     = malloc((n_ctx + 1) * sizeof *watch->ids);
    watch->entropy = malloc((n_ctx + 1) * sizeof *watch->entropy);
    watch->change  = malloc((n_ctx + 1) * sizeof *watch->change);
    watch->events  = json_array();
    if (isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
        watch->late = open_memstream(&watch->late_text, &watch->n_late);
    return watch->ids != NULL && watch->entropy != NULL && watch->change != NULL &&
                   watch->events != NULL
               ? HL_OK
               : HL_NO_MEMORY;
}

hl_status hl_watch_open(hl_watch **out, const hl_model *model, const hl_tokenizer *tokenizer,
                        int64_t n_ctx, const hl_watch_options *options)
{
    hl_watch         *watch   = calloc(1, sizeof *watch);
    hl_tracer_options tracing = { .n_ctx     = n_ctx,
                                  .tokenizer = tokenizer,
                                  .n_back    = options->resample_back + 1 };

    *out = watch;
    if (watch == NULL)
        return HL_NO_MEMORY;
    watch->options   = options;
    watch->action    = hl_watch_action(options);
    watch->tokenizer = tokenizer;
    watch->n_ctx     = n_ctx;
    watch->again     = -1;
    if (options->trace_path == NULL) {
        tracing.forget       = true;
        tracing.change_every = CHANGE_EVERY;
    }
    hl_status status = allocate(watch);
    if (status == HL_OK)
        status = hl_tracer_open(&watch->tracer, model, &tracing);
    return status;
}

void hl_watch_close(hl_watch *watch)
{
    if (watch == NULL)
        return;
    hl_tracer_close(watch->tracer);
    json_decref(watch->events);
    if (watch->late != NULL)
        fclose(watch->late);
    free(watch->late_text);
    free(watch->inserted);
    free(watch->ids);
    free(watch->entropy);
    free(watch->change);
    free(watch);
}

void hl_watch_tap(hl_generate_options *options, const hl_watch *watch)
{
    options->tap        = hl_tracer_tap(watch->tracer);
    options->segments   = hl_tracer_segments(watch->tracer);
    options->n_segments = HL_N_KINDS;
}

hl_status hl_watch_begin(hl_watch *watch, hl_generator *generator, const int64_t *tokens,
                         const uint8_t *kinds, int64_t n_tokens)
{
    hl_status status = hl_tracer_prompt(watch->tracer, tokens, kinds, n_tokens);

    if (status == HL_OK)
        memcpy(watch->ids, tokens, (size_t)n_tokens * sizeof *tokens);
    watch->generator = generator;
    watch->n_given   = n_tokens;
    return status;
}

/* ---------------------------------------------------------------------- notes */

static int64_t n_tokens(const hl_watch *watch)
{
    return hl_trace_n_tokens(hl_tracer_trace(watch->tracer));
}

/* On standard error, or later if the text stands on the same screen. */
__attribute__((format(printf, 2, 3))) static void note(hl_watch *watch, const char *format, ...)
{
    char    text[512];
    va_list arguments;

    if (watch->options->quiet)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (watch->late != NULL)
        fprintf(watch->late, "%s\n", text);
    else
        hl_complain("generate", "%s", text);
}

/* What stands before every note of a spike: "token 12 ' Paris': a spike, z = 3.4 (a name)". */
static void print_spike(char *out, size_t n_bytes, const hl_watch *watch)
{
    int64_t         last  = n_tokens(watch) - 1;
    hl_traced_token about = hl_trace_describe(hl_tracer_trace(watch->tracer), last);
    char           *text  = hl_printable_text(about.text, about.n_bytes);

    snprintf(out, n_bytes, "token %lld '%s': a spike, z = %.2f%s",
             (long long)(last - watch->n_given + 1), text != NULL ? text : "", about.spike,
             about.is_entity ? " (a name or number)" : "");
    free(text);
}

/* One more event: what was done of the last token's spike, and a number that belongs to it. */
static void keep_event(hl_watch *watch, const char *what, const char *detail, json_t *value)
{
    int64_t         last  = n_tokens(watch) - 1;
    hl_traced_token about = hl_trace_describe(hl_tracer_trace(watch->tracer), last);
    json_t         *event = json_pack("{s:s, s:I, s:f, s:b, s:o}", "event", what, "token",
                                      (json_int_t)(last - watch->n_given), "z", about.spike, "entity",
                                      about.is_entity, detail, value);

    json_array_append_new(watch->events, event);
}

/* ------------------------------------------------------------------- resample */

/* Tokens as they were before the last n_back. */
static hl_status go_back(hl_watch *watch, int64_t n_back)
{
    int64_t   left   = n_tokens(watch) - n_back;
    hl_status status = hl_tracer_rewind(watch->tracer, left);

    if (status == HL_OK)
        status = hl_generator_rewind(watch->generator, watch->ids, left);
    watch->n_since -= n_back;
    watch->n_seen -= n_back;
    return status;
}

/* How many tokens before the last can be taken back: never further than from the token that began
 * it, or spikes on the way would lead back and back. */
static int64_t find_back(const hl_watch *watch)
{
    int64_t wanted = n_tokens(watch) - 1 - (watch->again - watch->options->resample_back);
    int64_t most   = watch->n_since - 1;

    return wanted < most ? wanted : most;
}

static hl_status resample(hl_watched *out, hl_watch *watch)
{
    const hl_watch_options *options = watch->options;
    int64_t                 last    = n_tokens(watch) - 1;
    char                    spike[256];

    print_spike(spike, sizeof spike, watch);
    if (last > watch->again) {
        watch->again   = last;
        watch->n_again = 0;
    }
    int64_t n_back = find_back(watch);
    if (n_back == 0 || watch->n_again == options->resample_max) {
        if (n_back == 0)
            note(watch, "%s; there is no token before it to draw again", spike);
        else
            note(watch, "%s; kept after %lld draws", spike, (long long)watch->n_again);
        keep_event(watch, "kept", "draws", json_integer(watch->n_again));
        return HL_OK;
    }
    watch->n_again++;
    note(watch, "%s; back by %lld token%s (%lld of %lld)", spike, (long long)n_back,
         n_back == 1 ? "" : "s", (long long)watch->n_again, (long long)options->resample_max);
    keep_event(watch, "resample", "back", json_integer(n_back));
    out->n_back = n_back + 1;
    return go_back(watch, n_back + 1);
}

/* ----------------------------------------------------------------------- exec */

/* {"text": ..., "tokens": ..., "spike": {...}}, released with hl_free; NULL when memory is out. */
static char *describe_text(const hl_watch *watch)
{
    const hl_trace *trace   = hl_tracer_trace(watch->tracer);
    int64_t         last    = n_tokens(watch) - 1;
    hl_traced_token first   = hl_trace_describe(trace, 0);
    hl_traced_token about   = hl_trace_describe(trace, last);
    size_t          n_valid = 0, n_token = 0;
    /* All texts lie one after the other. */
    char   *text  = hl_printable_utf8(&n_valid, first.text, (size_t)(about.text - first.text));
    char   *token = hl_printable_utf8(&n_token, about.text, about.n_bytes);
    json_t *root  = text != NULL && token != NULL
                        ? json_pack("{s:s%, s:I, s:{s:f, s:b, s:s%}}", "text", text, n_valid,
                                    "tokens", (json_int_t)last, "spike", "z", about.spike, "entity",
                                    about.is_entity, "token", token, n_token)
                        : NULL;
    char   *out   = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    free(text);
    free(token);
    return out;
}

/* As tokens, in place of the last one. */
static hl_status insert(hl_watch *watch, const hl_encoding *encoding)
{
    int64_t   n      = (int64_t)encoding->n_tokens;
    int64_t   at     = n_tokens(watch) - 1;
    uint8_t  *kinds  = malloc((size_t)n);
    hl_status status = kinds != NULL ? go_back(watch, 1) : HL_NO_MEMORY;

    for (int64_t i = 0; i < n && status == HL_OK; i++) {
        watch->ids[at + i] = encoding->ids[i];
        kinds[i]           = HL_KIND_CONTEXT;
    }
    if (status == HL_OK)
        status = hl_tracer_prompt(watch->tracer, watch->ids + at, kinds, n);
    if (status == HL_OK)
        status = hl_generator_insert(watch->generator, watch->ids + at, n);
    watch->n_given += n;
    watch->n_since = 0;
    free(kinds);
    return status;
}

/* The command's words as tokens; NULL, and why in `problem`, if they cannot be used. */
static hl_encoding *encode_context(hl_watch *watch, const hl_child_result *said, char *problem,
                                   size_t n_problem)
{
    hl_encode_options options  = { .plain = true };
    hl_encoding      *encoding = NULL;
    size_t            n_valid  = 0;
    char             *valid    = hl_printable_utf8(&n_valid, said->output, said->n_bytes);
    bool              is_text =
        valid != NULL && n_valid == said->n_bytes && memcmp(valid, said->output, n_valid) == 0;

    free(valid);
    if (!is_text || memchr(said->output, '\0', said->n_bytes) != NULL) {
        snprintf(problem, n_problem, "what it printed is not UTF-8 text");
        return NULL;
    }
    if (hl_tokenizer_encode(&encoding, watch->tokenizer, said->output, said->n_bytes, &options) !=
        HL_OK)
        snprintf(problem, n_problem, "%.150s", hl_error_message());
    else if ((int64_t)encoding->n_tokens > watch->n_ctx - n_tokens(watch))
        snprintf(problem, n_problem, "its %zu tokens do not fit into the context of %lld",
                 encoding->n_tokens, (long long)watch->n_ctx);
    if (problem[0] == '\0')
        return encoding;
    hl_encoding_free(encoding);
    return NULL;
}

static hl_status ask_command(hl_watched *out, hl_watch *watch)
{
    hl_child_limits limits   = { watch->options->seconds, MAX_CONTEXT };
    char           *question = describe_text(watch);
    hl_child_result said     = { 0 };
    hl_encoding    *encoding = NULL;
    hl_status       status   = question != NULL ? HL_OK : HL_NO_MEMORY;
    char            spike[256];

    print_spike(spike, sizeof spike, watch);
    if (status == HL_OK &&
        hl_child_run(&said, watch->options->command, question, strlen(question), limits) &&
        said.n_bytes > 0)
        encoding = encode_context(watch, &said, said.problem, sizeof said.problem);
    if (status != HL_OK) {
        hl_complain("generate", "out of memory");
    } else if (said.problem[0] != '\0') {
        note(watch, "%s; the command gave nothing: %s", spike, said.problem);
        keep_event(watch, "exec", "problem", json_string(said.problem));
    } else {
        int64_t n = encoding != NULL ? (int64_t)encoding->n_tokens : 0;
        note(watch, "%s; %lld token%s of context inserted", spike, (long long)n, n == 1 ? "" : "s");
        keep_event(watch, "exec", "inserted", json_stringn(said.output, said.n_bytes));
        free(watch->inserted);
        watch->inserted = said.output;
        said.output     = NULL;
        if (n > 0) {
            status        = insert(watch, encoding);
            out->n_back   = 1;
            out->inserted = watch->inserted;
        }
    }
    hl_encoding_free(encoding);
    free(said.output);
    hl_free(question);
    return status;
}

/* -------------------------------------------------------------------- locking */

static void look_for_locking(hl_watched *out, hl_watch *watch)
{
    hl_locking found = { 0 };

    if (watch->is_locked || watch->n_seen % LOCKING_EVERY != 0 ||
        hl_find_locking(&found, watch->entropy, watch->change, watch->n_seen, NULL) != HL_OK ||
        !found.locked)
        return;
    watch->is_locked = true;
    note(watch,
         "attention is locked from token %lld on: rows change by %.4f (headlight diagnose --trace "
         "has more)",
         (long long)found.first + 1, found.change);
    json_array_append_new(watch->events, json_pack("{s:s, s:I, s:f, s:f}", "event", "locking",
                                                   "token", (json_int_t)found.first, "change",
                                                   found.change, "spread", found.spread));
    out->ends = watch->action == HL_ON_SPIKE_STOP;
}

/* --------------------------------------------------------------------- tokens */

static hl_status act(hl_watched *out, hl_watch *watch)
{
    char spike[256];

    print_spike(spike, sizeof spike, watch);
    switch (watch->action) {
    case HL_ON_SPIKE_NOTHING:
        return HL_OK;
    case HL_ON_SPIKE_WARN:
        note(watch, "%s", spike);
        keep_event(watch, "spike", "threshold", json_real(watch->options->threshold));
        return HL_OK;
    case HL_ON_SPIKE_STOP:
        note(watch, "%s; the text ends before it", spike);
        keep_event(watch, "stop", "threshold", json_real(watch->options->threshold));
        out->n_back = 1;
        out->ends   = true;
        return go_back(watch, 1);
    case HL_ON_SPIKE_RESAMPLE:
        return resample(out, watch);
    case HL_ON_SPIKE_EXEC:
        if (watch->n_calls++ < watch->options->exec_max)
            return ask_command(out, watch);
        note(watch, "%s; the command has been called %lld times already", spike,
             (long long)watch->options->exec_max);
        return HL_OK;
    }
    return HL_OK;
}

hl_status hl_watch_add(hl_watched *out, hl_watch *watch, const hl_generated *token)
{
    hl_status       status = hl_tracer_add(watch->tracer, token);
    const hl_trace *trace  = hl_tracer_trace(watch->tracer);

    *out = (hl_watched){ 0 };
    if (status != HL_OK)
        return status;
    int64_t last                  = n_tokens(watch) - 1;
    watch->ids[last]              = token->id;
    watch->entropy[watch->n_seen] = hl_trace_mean(trace, last, HL_TRACE_NORMALISED);
    watch->change[watch->n_seen]  = hl_trace_mean(trace, last, HL_TRACE_CHANGE);
    watch->n_seen++;
    watch->n_since++;
    out->is_spike = hl_trace_describe(trace, last).spike > watch->options->threshold;
    look_for_locking(out, watch);
    /* A token that ends the text is no text. */
    return out->is_spike && !out->ends && token->stop != HL_STOP_END ? act(out, watch) : HL_OK;
}

/* ------------------------------------------------------------------ questions */

const hl_trace *hl_watch_trace(const hl_watch *watch)
{
    return hl_tracer_trace(watch->tracer);
}

hl_status hl_watch_retrace(hl_watch *watch, const hl_model *model, const float *gates,
                           int32_t n_threads)
{
    return hl_tracer_retrace(watch->tracer, model, gates, n_threads);
}

json_t *hl_watch_events(const hl_watch *watch)
{
    return watch->events;
}

int64_t hl_watch_n_spikes(const hl_watch *watch, int64_t *n_entities)
{
    const hl_trace *trace    = hl_tracer_trace(watch->tracer);
    int64_t         n_spikes = 0;

    *n_entities = 0;
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        n_spikes += about.spike > watch->options->threshold;
        *n_entities += about.spike > watch->options->threshold && about.is_entity;
    }
    return n_spikes;
}

void hl_watch_finish(hl_watch *watch)
{
    if (watch->late == NULL)
        return;
    fflush(watch->late);
    hl_put_lines(stderr, watch->late_text, watch->n_late);
    rewind(watch->late);
}
