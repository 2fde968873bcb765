/* watch.c - reacts when attention is suddenly diffuse while a text is generated.
 *
 *     token  ->  tracer: its score  ->  a spike?  ->  stop, draw again, or ask for context
 *
 * The generator and the tracer go back together, and both get inserted tokens. */
#include "headlight/watch.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define CHANGE_EVERY  64 /* number of tokens between whole rows, which cost time */
#define LOCKING_EVERY 32 /* number of tokens between checks for locking */

struct hl_watch {
    hl_watch_options    options;
    const hl_tokenizer *tokenizer;
    hl_tracer          *tracer;
    hl_generator       *generator;
    int64_t            *ids; /* (n_ctx + 1) tokens of the whole text */
    int64_t             n_ctx;
    int64_t             n_given; /* number of tokens of the prompt and of all insertions */
    int64_t             n_since; /* number of tokens generated since the last given one */
    int64_t             again;   /* index of the token that was drawn again */
    int64_t             n_again; /* number of times that ids[again] was drawn again */
    int64_t             n_asked;
    hl_watch_answer     answer;
    char               *spike;   /* the text of the last spike's token */
    double             *entropy; /* (n_ctx + 1) entropy of each generated token */
    double             *change;  /* (n_ctx + 1) change of each generated token's row */
    int64_t             n_seen;
    bool                is_locked;
};

HL_CLOSES(hl_watch_close, hl_watch)

/* ------------------------------------------------------------- open and close */

hl_watch_options hl_watch_defaults(void)
{
    return (hl_watch_options){
        .threshold = HL_SPIKE_THRESHOLD, .resample_back = 4, .resample_max = 3, .ask_max = 8
    };
}

void hl_watch_session(hl_session_options *session)
{
    session->wants |= HL_WANT_PATTERN;
    session->n_patterns = 1;
}

hl_status hl_watch_open(hl_watch **out, const hl_model *model, const hl_tokenizer *tokenizer,
                        int64_t n_ctx, const hl_watch_options *options)
{
    HL_CLOSED(hl_watch_close) hl_watch *watch   = NULL;
    hl_tracer_options                   tracing = { .n_ctx     = n_ctx,
                                                    .tokenizer = tokenizer,
                                                    .n_back    = options->resample_back + 1,
                                                    .change_every = options->keep_trace ? 0 : CHANGE_EVERY,
                                                    .forget = !options->keep_trace };

    *out = NULL;
    if (options->on_spike == HL_ON_SPIKE_ASK && options->ask == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "watch: there is no function to ask for context");
    HL_NEED(HL_ALLOC_ZEROED(&watch, 1));
    watch->options   = *options;
    watch->tokenizer = tokenizer;
    watch->n_ctx     = n_ctx;
    watch->again     = -1;
    HL_NEED(hl_tracer_open(&watch->tracer, model, &tracing));
    HL_NEED(HL_ALLOC(&watch->ids, (size_t)n_ctx + 1));
    HL_NEED(HL_ALLOC(&watch->entropy, (size_t)n_ctx + 1));
    HL_NEED(HL_ALLOC(&watch->change, (size_t)n_ctx + 1));
    *out = hl_taken(&watch);
    return HL_OK;
}

void hl_watch_close(hl_watch *watch)
{
    if (watch == NULL)
        return;
    hl_tracer_close(watch->tracer);
    hl_free(watch->spike);
    hl_free(watch->ids);
    hl_free(watch->entropy);
    hl_free(watch->change);
    hl_free(watch);
}

void hl_watch_generator(hl_generate_options *options, const hl_watch *watch)
{
    options->tap        = hl_tracer_tap(watch->tracer);
    options->segments   = hl_tracer_segments(watch->tracer);
    options->n_segments = HL_N_KINDS;
}

hl_status hl_watch_begin(hl_watch *watch, hl_generator *generator, const int64_t *tokens,
                         const uint8_t *kinds, int64_t n_tokens)
{
    HL_NEED(hl_tracer_prompt(watch->tracer, tokens, kinds, n_tokens));
    memcpy(watch->ids, tokens, (size_t)n_tokens * sizeof *tokens);
    watch->generator = generator;
    watch->n_given   = n_tokens;
    return HL_OK;
}

/* ------------------------------------------------------------------- resample */

static int64_t n_tokens(const hl_watch *watch)
{
    return hl_trace_n_tokens(hl_tracer_trace(watch->tracer));
}

/* Removes the last n_back tokens. */
static hl_status go_back(hl_watch *watch, int64_t n_back)
{
    int64_t left = n_tokens(watch) - n_back;

    watch->n_since -= n_back;
    watch->n_seen -= n_back;
    HL_NEED(hl_tracer_rewind(watch->tracer, left));
    return hl_generator_rewind(watch->generator, watch->ids, left);
}

/* The number of tokens before the last that can be taken back.  It never reaches beyond the
 * token that began the repetition: otherwise spikes on the way would lead back again and again. */
static int64_t find_back(const hl_watch *watch)
{
    int64_t wanted = n_tokens(watch) - 1 - (watch->again - watch->options.resample_back);
    int64_t most   = watch->n_since - 1;

    return wanted < most ? wanted : most;
}

static hl_status resample(hl_watched *out, hl_watch *watch)
{
    int64_t last = n_tokens(watch) - 1;

    if (last > watch->again) {
        watch->again   = last;
        watch->n_again = 0;
    }
    int64_t n_back = find_back(watch);
    out->n_draws   = watch->n_again;
    if (n_back == 0 || watch->n_again == watch->options.resample_max) {
        out->act = n_back == 0 ? HL_WATCH_FIRST : HL_WATCH_KEPT;
        return HL_OK;
    }
    out->act     = HL_WATCH_RESAMPLED;
    out->n_draws = ++watch->n_again;
    out->n_back  = n_back + 1;
    return go_back(watch, out->n_back);
}

/* ------------------------------------------------------------------------ ask */

/* Builds the question of hl_watch_options; NULL when memory is exhausted. */
static char *describe_text(const hl_watch *watch, const hl_watched *spike)
{
    const hl_trace *trace = hl_tracer_trace(watch->tracer);
    int64_t         last  = n_tokens(watch) - 1;
    const char     *text  = hl_trace_describe(trace, 0).text; /* texts are contiguous */
    size_t          n     = (size_t)(hl_trace_describe(trace, last).text - text);
    json_t         *root = json_pack("{s:o, s:I, s:{s:f, s:b, s:o}}", "text", hl_json_text(text, n),
                                     "tokens", (json_int_t)last, "spike", "z", spike->z, "entity",
                                     spike->is_entity, "token", hl_json_text(spike->text, spike->n_bytes));
    char           *out  = hl_json_dump(root, JSON_COMPACT);

    json_decref(root);
    return out;
}

/* Inserts tokens in place of the last one. */
static hl_status insert(hl_watch *watch, const hl_encoding *encoding)
{
    int64_t           n     = (int64_t)encoding->n_tokens;
    int64_t           at    = n_tokens(watch) - 1;
    HL_FREED uint8_t *kinds = NULL;

    HL_NEED(HL_ALLOC(&kinds, (size_t)n));
    HL_NEED(go_back(watch, 1));
    memset(kinds, HL_KIND_CONTEXT, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        watch->ids[at + i] = encoding->ids[i];
    watch->n_given += n;
    watch->n_since = 0;
    HL_NEED(hl_tracer_prompt(watch->tracer, watch->ids + at, kinds, n));
    return hl_generator_insert(watch->generator, watch->ids + at, n);
}

/* Encodes the answer as tokens.  If it cannot be used, returns NULL and the reason in `problem`. */
static hl_encoding *encode_answer(hl_watch *watch)
{
    hl_watch_answer  *answer   = &watch->answer;
    hl_encode_options options  = { .plain = true };
    hl_encoding      *encoding = NULL;

    if (hl_utf8_find_bad(answer->text, answer->n_bytes) < answer->n_bytes ||
        memchr(answer->text, '\0', answer->n_bytes) != NULL)
        snprintf(answer->problem, sizeof answer->problem, "what it printed is not UTF-8 text");
    else if (hl_tokenizer_encode(&encoding, watch->tokenizer, answer->text, answer->n_bytes,
                                 &options) != HL_OK)
        snprintf(answer->problem, sizeof answer->problem, "%.150s", hl_error_message());
    else if ((int64_t)encoding->n_tokens > watch->n_ctx - n_tokens(watch))
        snprintf(answer->problem, sizeof answer->problem,
                 "its %zu tokens do not fit into the context of %lld tokens", encoding->n_tokens,
                 (long long)watch->n_ctx);
    if (answer->problem[0] == '\0')
        return encoding;
    hl_encoding_free(encoding);
    return NULL;
}

static hl_status ask(hl_watched *out, hl_watch *watch)
{
    HL_FREED char *question = describe_text(watch, out);
    hl_encoding   *encoding = NULL;

    if (question == NULL)
        return hl_fail(HL_NO_MEMORY, "watch: out of memory for a question");
    out->act      = HL_WATCH_ASKED;
    watch->answer = (hl_watch_answer){ 0 };
    watch->options.ask(watch->options.context, &watch->answer, question);
    if (watch->answer.problem[0] == '\0' && watch->answer.n_bytes > 0)
        encoding = encode_answer(watch);
    if (watch->answer.problem[0] != '\0') {
        out->problem = watch->answer.problem;
        return HL_OK;
    }
    out->inserted          = watch->answer.text;
    out->n_inserted_bytes  = watch->answer.n_bytes;
    out->n_inserted_tokens = encoding != NULL ? (int64_t)encoding->n_tokens : 0;
    out->n_back            = out->n_inserted_tokens > 0 ? 1 : 0;
    hl_status status       = out->n_back > 0 ? insert(watch, encoding) : HL_OK;
    hl_encoding_free(encoding);
    return status;
}

/* --------------------------------------------------------------------- tokens */

static void look_for_locking(hl_watched *out, hl_watch *watch)
{
    if (watch->is_locked || watch->n_seen % LOCKING_EVERY != 0 ||
        hl_find_locking(&out->locking, watch->entropy, watch->change, watch->n_seen, NULL) != HL_OK)
        return;
    watch->is_locked = out->locking.locked;
    out->ends        = out->locking.locked && watch->options.on_spike == HL_ON_SPIKE_STOP;
}

/* Copies the spike's text, because its token may be taken back. */
static hl_status keep_text(hl_watched *out, hl_watch *watch, const hl_traced_token *about)
{
    hl_free(watch->spike);
    watch->spike = NULL;
    HL_NEED(HL_ALLOC(&watch->spike, about->n_bytes + 1));
    memcpy(watch->spike, about->text, about->n_bytes);
    out->text    = watch->spike;
    out->n_bytes = about->n_bytes;
    return HL_OK;
}

static hl_status act(hl_watched *out, hl_watch *watch)
{
    switch (watch->options.on_spike) {
    case HL_ON_SPIKE_NOTHING:
    case HL_ON_SPIKE_WARN:
        out->act = HL_WATCH_SPIKE;
        return HL_OK;
    case HL_ON_SPIKE_STOP:
        out->act    = HL_WATCH_STOPPED;
        out->n_back = 1;
        out->ends   = true;
        return go_back(watch, 1);
    case HL_ON_SPIKE_RESAMPLE:
        return resample(out, watch);
    case HL_ON_SPIKE_ASK:
        if (watch->n_asked++ < watch->options.ask_max)
            return ask(out, watch);
        out->act = HL_WATCH_ASKED_OUT;
        return HL_OK;
    }
    return HL_OK;
}

hl_status hl_watch_add(hl_watched *out, hl_watch *watch, const hl_generated *token)
{
    const hl_trace *trace = hl_tracer_trace(watch->tracer);

    *out = (hl_watched){ 0 };
    HL_NEED(hl_tracer_add(watch->tracer, token));
    int64_t         last          = n_tokens(watch) - 1;
    hl_traced_token about         = hl_trace_describe(trace, last);
    watch->ids[last]              = token->id;
    watch->entropy[watch->n_seen] = hl_trace_mean(trace, last, HL_TRACE_NORMALIZED);
    watch->change[watch->n_seen]  = hl_trace_mean(trace, last, HL_TRACE_CHANGE);
    watch->n_seen++;
    watch->n_since++;
    out->token     = last - watch->n_given;
    out->z         = about.spike;
    out->is_entity = about.is_entity;
    look_for_locking(out, watch);
    /* A token that ends the text is not part of it. */
    if (!(about.spike > watch->options.threshold) || out->ends || token->stop == HL_STOP_END)
        return HL_OK;
    HL_NEED(keep_text(out, watch, &about));
    return act(out, watch);
}

/* ------------------------------------------------------------------ questions */

hl_tracer *hl_watch_tracer(const hl_watch *watch)
{
    return watch->tracer;
}

int64_t hl_watch_n_spikes(const hl_watch *watch, int64_t *n_entities)
{
    const hl_trace *trace    = hl_tracer_trace(watch->tracer);
    int64_t         n_spikes = 0;

    *n_entities = 0;
    for (int64_t i = 0; i < hl_trace_n_tokens(trace); i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        n_spikes += about.spike > watch->options.threshold;
        *n_entities += about.spike > watch->options.threshold && about.is_entity;
    }
    return n_spikes;
}
