/* cmd_generate.c - headlight generate: a text, continued token by token.
 *
 *     prompt (argument, file, standard input)  ->  tokens  ->  session and generator
 *     [->  watch: spikes, triggers  ->  held back while they may be taken back]
 *     ->  decode stream (whole characters)  ->  stop words  ->  standard output or monitor */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "generate_monitor.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "prompt.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

/* The generated text, and its times. */
typedef struct generate_result {
    int64_t     n_prompt;
    int64_t     n_tokens;
    int64_t     n_ctx;
    double      prompt_seconds;
    double      seconds; /* time of all tokens except the first, which needs no pass of its own */
    hl_stop     stop;
    json_t     *tokens; /* array of tokens, or NULL */
    json_t     *events; /* events of the watch, or NULL; borrowed */
    FILE       *shown;  /* for JSON: stream that collects the text in `text` */
    char       *text;   /* (n_text) the collected text */
    size_t      n_text;
    const char *chat_format; /* format of the prompt's turn; NULL: the prompt is continued as it
                              * is */
} generate_result;

typedef struct generate_request {
    hl_common         common;
    hl_arguments      arguments; /* the model and, optionally, the prompt */
    const char       *prompt_path;
    const char       *tokenizer_path;
    const char       *system;
    const char       *cache;
    const char       *activations;
    hl_spike_request  spikes;
    hl_sample_options sample;
    hl_option_list    stops;
    int64_t           max_tokens;
    int64_t           n_ctx;
    bool              chat;
    bool              raw;
    bool              ignore_end;
    bool              stats;
    bool              no_monitor;
    hl_gate_arguments gates;
} generate_request;

enum { MAX_RESAMPLE_BACK = 64 };

/* A token that may still be drawn again. */
typedef struct held_token {
    hl_generated     token;
    double           spike;
    hl_monitor_token look;
} held_token;

/* The state while a text is generated. */
typedef struct generation {
    const generate_request *request;
    hl_opened_prompt        prompt; /* the prompt with its model and tokenizer */
    int64_t                 end_ids[2];
    int                     n_end_ids;
    hl_session             *session;
    hl_watch               *watch; /* NULL: nothing is watched */
    hl_spike_notes          notes;
    hl_monitor              monitor;
    bool                    is_monitored; /* the monitor shows the text on a terminal */
    held_token              held[MAX_RESAMPLE_BACK + 1];
    int64_t                 n_held;
    hl_generator           *generator;
    hl_decode_stream       *stream;
    hl_stop_words          *stop;
    generate_result         result;
} generation;

/* --------------------------------------------------------------- what is shown */

/* Writes to standard output at once.  On a terminal, control characters are replaced: a model must
 * not be able to move the cursor. */
static void show_text(const char *text, size_t n_bytes)
{
    hl_put_text(stdout, text, n_bytes);
    fflush(stdout);
}

/* ------------------------------------------------------- what is kept for JSON */

/* Appends to result->tokens; false if memory is out.  With a watch, it adds the spike score, with
 * null for NaN. */
static bool keep_token(generate_result *result, const held_token *held, bool is_watched,
                       const char *text, size_t n_bytes)
{
    const hl_generated *token = &held->token;
    json_t *object = json_pack("{s:I, s:o, s:f, s:f, s:f, s:f}", "id", (json_int_t)token->id,
                               "text", hl_value_text(text, n_bytes), "logprob", token->logprob,
                               "entropy", token->entropy, "varentropy", token->varentropy,
                               "attention_entropy", token->attention_entropy);

    if (is_watched)
        json_object_set_new(object, "spike",
                            isnan(held->spike) ? json_null() : json_real(held->spike));
    return json_array_append_new(result->tokens, object) == 0;
}

/* Returns passes per second; null if there were none. */
static json_t *make_rate(int64_t n_passes, double seconds)
{
    return n_passes > 0 && seconds > 0.0 ? json_real((double)n_passes / seconds) : json_null();
}

/* How much the kept tokens repeat themselves; null when memory is out. */
static json_t *make_repetition(const json_t *tokens)
{
    int64_t                n_tokens = (int64_t)json_array_size(tokens);
    HL_HELD(free) int64_t *ids      = malloc((size_t)(n_tokens > 0 ? n_tokens : 1) * sizeof *ids);
    hl_repetition          found;

    for (int64_t i = 0; ids != NULL && i < n_tokens; i++)
        ids[i] = json_integer_value(json_object_get(json_array_get(tokens, (size_t)i), "id"));
    if (ids == NULL || hl_repetition_of(&found, ids, n_tokens) != HL_OK)
        return json_null();
    json_t *distinct = json_array();
    for (int i = 0; i < HL_N_DISTINCT; i++)
        json_array_append_new(distinct, isnan(found.distinct[i]) ? json_null()
                                                                 : json_real(found.distinct[i]));
    return HL_OBJECT(HL_IS("distinct", distinct), HL_IS("suffix", found.suffix),
                     HL_IS("distance", found.distance), HL_IS("period", found.period),
                     HL_IS("loop_first", found.first), HL_IS("loop_tokens", found.loop_tokens));
}

/* Prints the JSON object; false if memory is out. */
static bool print_json(const generate_result *result, const char *model, int64_t seed)
{
    json_t *root =
        json_pack("{s:o, s:I, s:o, s:O, s:o, s:I, s:I, s:I, s:s, s:f, s:f, s:o, s:o}", "model",
                  hl_value_name(model), "seed", (json_int_t)seed, "text",
                  hl_value_text(result->text, result->n_text), "tokens", result->tokens,
                  "repetition", make_repetition(result->tokens), "prompt_tokens",
                  (json_int_t)result->n_prompt, "generated_tokens", (json_int_t)result->n_tokens,
                  "context", (json_int_t)result->n_ctx, "stop", hl_stop_name(result->stop),
                  "prompt_seconds", result->prompt_seconds, "generation_seconds", result->seconds,
                  "prompt_tokens_per_second", make_rate(result->n_prompt, result->prompt_seconds),
                  "tokens_per_second", make_rate(result->n_tokens - 1, result->seconds));
    json_t *chat = result->chat_format == NULL ? json_null()
                                               : json_pack("{s:s}", "format", result->chat_format);
    json_object_set_new(root, "chat", chat);
    if (result->events != NULL && root != NULL)
        json_object_set(root, "events", result->events);
    bool good = hl_put_json(root, JSON_INDENT(1));

    printf("\n");
    json_decref(root);
    return good;
}

/* ------------------------------------------------------------ how fast it went */

static void print_rate(const char *name, int64_t n_tokens, int64_t n_passes, double seconds)
{
    fprintf(stderr, "  %-10s %6lld token%s %8.3f s", name, (long long)n_tokens,
            n_tokens == 1 ? " " : "s", seconds);
    if (n_passes > 0 && seconds > 0.0)
        fprintf(stderr, " %10.1f tokens/s", (double)n_passes / seconds);
    fputc('\n', stderr);
}

/* Prints the speed on standard error. */
static void print_stats(const generate_result *result)
{
    static const char *const reasons[] = { [HL_STOP_NONE]    = "",
                                           [HL_STOP_END]     = "the model",
                                           [HL_STOP_LENGTH]  = "--max-tokens",
                                           [HL_STOP_CONTEXT] = "a full context",
                                           [HL_STOP_WORD]    = "--stop",
                                           [HL_STOP_SPIKE]   = "--on-spike" };

    fputc('\n', stderr);
    print_rate("prompt", result->n_prompt, result->n_prompt, result->prompt_seconds);
    print_rate("generated", result->n_tokens, result->n_tokens - 1, result->seconds);
    fprintf(stderr, "  %-10s %s\n", "ended by", reasons[result->stop]);
}

/* ----------------------------------------------------------------- the request */

static int check_request(generate_request *request, const hl_usage *usage)
{
    int         n_arguments = request->arguments.count;
    const char *problem     = hl_spike_check(&request->spikes, request->sample.temperature);

    if (n_arguments == 0)
        return hl_options_refuse(usage, "no MODEL given");
    if (n_arguments > 2)
        return hl_options_refuse(
            usage, "give one PROMPT; got %d arguments (quote a prompt that has spaces)",
            n_arguments - 1);
    if (n_arguments == 2 && request->prompt_path != NULL)
        return hl_options_refuse(usage, "PROMPT and --prompt-file cannot be combined");
    if (request->raw && (request->chat || request->system != NULL))
        return hl_options_refuse(usage, "--raw cannot be combined with --chat or --system");
    if (problem != NULL)
        return hl_options_refuse(usage, "%s", problem);
    for (int i = 0; i < request->stops.count; i++) {
        if (request->stops.items[i][0] == '\0')
            return hl_options_refuse(usage, "--stop needs a text that is not empty");
    }
    return HL_OPTIONS_GO_ON;
}

static const char ABOUT[] =
    "Generates text and prints it as it comes.  MODEL is a Hugging Face folder, a .gguf\n"
    "file or a llama2.c .bin.  Without PROMPT, the prompt is read from --prompt-file or\n"
    "standard input, without the newline at its end.\n"
    "\n"
    "If the model has a chat template, the prompt is a user's turn and the text is the\n"
    "answer; --raw continues the prompt as it is.\n"
    "\n"
    "By default the most likely token is taken.  With --temperature, tokens are drawn at\n"
    "random, and the same --seed gives the same text, whatever the number of threads.\n"
    "Filters apply in this order: repeat-penalty, temperature, top-k, top-p, min-p.\n"
    "\n"
    "On a terminal, text is colored by how its attention compares with the text before:\n"
    "blue is more focused, ochre more diffuse; spikes are red and underlined.  Each line\n"
    "ends with one bar per layer: low is focused, high is spread out.\n"
    "--on-spike says what to do at a spike: warn, end the text, draw tokens again,\n"
    "or ask COMMAND for context.\n"
    "\n"
    "--json prints one object: the text, and for every token its log-probability, the\n"
    "entropy over the vocabulary and the mean entropy of attention.  --quiet prints the\n"
    "text alone.";

static int parse_request(generate_request *request, int argc, char **argv)
{
    hl_sample_options *sample    = &request->sample;
    hl_spike_request  *spikes    = &request->spikes;
    hl_watch_options  *watch     = &spikes->options;
    const hl_option    options[] = {
           { "max-tokens", 'n', HL_OPTION_INT, &request->max_tokens, "N",
             "generate at most N tokens (128); 0: until the context is full", 0, 1 << 30 },
           { "temperature", 't', HL_OPTION_NUMBER, &sample->temperature, "T",
             "divide logits by T; 0: take the most likely token (0)", 0, 1000 },
           { "top-k", 0, HL_OPTION_INT, &sample->top_k, "K",
             "draw from the K most likely tokens (0: all)", 0, 1 << 30 },
           { "top-p", 0, HL_OPTION_NUMBER, &sample->top_p, "P",
             "draw from the smallest set with probability P in all (0: all)", 0, 1 },
           { "min-p", 0, HL_OPTION_NUMBER, &sample->min_p, "P",
             "draw from tokens with at least P times the top probability (0: all)", 0, 1 },
           { "repeat-penalty", 0, HL_OPTION_NUMBER, &sample->repeat_penalty, "X",
             "divide positive logits of seen tokens by X, multiply negative (1)", 0, 1000 },
           { "repeat-last", 0, HL_OPTION_INT, &sample->repeat_last, "N",
             "the last N tokens count as seen (0: all)", 0, 1 << 30 },
           { "stop", 0, HL_OPTION_LIST, &request->stops, "TEXT", "end before TEXT (repeatable)", 0,
             0 },
           { "ignore-end", 0, HL_OPTION_FLAG, &request->ignore_end, NULL,
             "continue after the model's end-of-text token", 0, 0 },
           { "chat", 'c', HL_OPTION_FLAG, &request->chat, NULL,
             "use the chat template: the prompt is a user's turn (the default)", 0, 0 },
           { "raw", 0, HL_OPTION_FLAG, &request->raw, NULL,
             "continue the prompt as it is, without a chat template", 0, 0 },
           { "system", 0, HL_OPTION_TEXT, &request->system, "TEXT",
             "a system message before the user's turn", 0, 0 },
           { "prompt-file", 'f', HL_OPTION_TEXT, &request->prompt_path, "FILE",
             "read the prompt from FILE", 0, 0 },
           { "context", 0, HL_OPTION_INT, &request->n_ctx, "N",
             "context of N tokens (prompt and --max-tokens)", 1, 1 << 30 },
           { "cache", 0, HL_OPTION_CHOICE, &request->cache, "f32|f16", "type of the KV cache (f32)", 0,
             0 },
           { "activations", 0, HL_OPTION_CHOICE, &request->activations, "exact|int8",
             "the older spelling of --math f32|int8", 0, 0 },
           { "tokenizer", 0, HL_OPTION_TEXT, &request->tokenizer_path, "PATH",
             "use this tokenizer instead of the model's own", 0, 0 },
           { "trace", 0, HL_OPTION_TEXT, &spikes->trace_path, "FILE",
             "write the statistics of every head and token to FILE", 0, 0 },
           { "exact-rows", 0, HL_OPTION_FLAG, &spikes->exact_rows, NULL,
             "make the rows of the trace bit-identical to those of measure", 0, 0 },
           { "on-spike", 0, HL_OPTION_CHOICE, &spikes->on_spike, "warn|stop|resample|exec",
             "what to do when attention is suddenly diffuse", 0, 0 },
           { "spike-threshold", 0, HL_OPTION_NUMBER, &watch->threshold, "Z",
             "a spike is a score above Z (3)", -1000, 1000 },
           { "resample-back", 0, HL_OPTION_INT, &watch->resample_back, "N",
             "resample: go back N tokens before a spike (4)", 1, MAX_RESAMPLE_BACK },
           { "resample-max", 0, HL_OPTION_INT, &watch->resample_max, "K",
             "resample: at most K times per spike (3)", 1, 1000 },
           { "exec", 0, HL_OPTION_TEXT, &spikes->command, "COMMAND",
             "command that reads the text as JSON and prints context for it", 0, 0 },
           { "exec-timeout", 0, HL_OPTION_NUMBER, &spikes->seconds, "S",
             "kill COMMAND after S seconds (10)", 0, 3600 },
           { "exec-max", 0, HL_OPTION_INT, &watch->ask_max, "N", "call COMMAND at most N times (8)", 1,
             1 << 20 },
           { "no-monitor", 0, HL_OPTION_FLAG, &request->no_monitor, NULL,
             "print plain text on a terminal, too", 0, 0 },
           { "stats", 0, HL_OPTION_FLAG, &request->stats, NULL, "print tokens per second at the end",
             0, 0 },
           HL_GATE_OPTIONS(&request->gates),
           { 0 },
    };
    const hl_usage usage = {
        .command   = "generate",
        .arguments = "MODEL [PROMPT]",
        .text      = ABOUT,
        .options   = options,
    };

    int code = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    sample->seed  = (uint64_t)request->common.seed;
    spikes->quiet = request->common.quiet || request->common.json;
    return check_request(request, &usage);
}

static int out_of_memory(void)
{
    return hl_give_up(HL_EXIT_RESOURCES, "generate", "out of memory");
}

/* ---------------------------------------------------------------------- prompt */

static int open_prompt(generation *g)
{
    const generate_request *request = g->request;
    bool                    given   = request->arguments.count == 2;

    return hl_opened_prompt_open(
        &g->prompt, &(hl_prompt_source){ .command   = "generate",
                                         .model     = request->arguments.items[0],
                                         .tokenizer = request->tokenizer_path,
                                         .text      = given ? request->arguments.items[1] : NULL,
                                         .file      = request->prompt_path,
                                         .system    = request->system,
                                         .chat      = request->chat,
                                         .chat_if   = !request->raw,
                                         .writes    = true,
                                         .quiet     = request->common.quiet,
                                         .device    = request->common.device,
                                         .gates     = request->gates });
}

/* --------------------------------------------------------------------- opening */

/* Finds the tokens that the tokenizer uses for the end of a text or of a turn. */
static void find_ends(generation *g)
{
    static const hl_special which[2] = { HL_SPECIAL_EOS, HL_SPECIAL_EOT };

    for (int i = 0; i < 2; i++) {
        int64_t id = hl_tokenizer_special(g->prompt.tokenizer, which[i]);
        if (id >= 0)
            g->end_ids[g->n_end_ids++] = id;
    }
}

/* Number of context tokens that a command may add by default. */
#define EXEC_ROOM 1024

/* Chooses n_ctx: as much as needed, at most what the model has. */
static int64_t choose_context(const generation *g)
{
    int64_t most   = hl_model_get_info(g->prompt.model)->n_ctx;
    int64_t needed = g->prompt.n_tokens + g->request->max_tokens;

    if (g->request->spikes.options.on_spike == HL_ON_SPIKE_ASK)
        needed += EXEC_ROOM;
    if (g->request->n_ctx != 0)
        return g->request->n_ctx;
    if (g->request->max_tokens == 0)
        return most;
    return most > 0 && needed > most ? most : needed;
}

static bool wants_watch(const generation *g)
{
    return g->is_monitored || g->request->spikes.trace_path != NULL ||
           g->request->spikes.on_spike != NULL;
}

/* Opens the watch; the open session gives the context length. */
static hl_status open_watch(generation *g, hl_generate_options *options)
{
    hl_session_memory  memory  = { 0 };
    hl_session_options session = { .n_ctx = choose_context(g) };

    HL_NEED(hl_session_measure(&memory, g->prompt.model, &session));
    HL_NEED(hl_spike_open(&g->watch, &g->notes, &g->request->spikes, g->prompt.model,
                          g->prompt.tokenizer, memory.n_ctx));
    hl_watch_generator(options, g->watch);
    return HL_OK;
}

static hl_status begin_watch(generation *g)
{
    HL_HELD(free) uint8_t *kinds = hl_opened_prompt_kinds(&g->prompt);

    if (kinds == NULL)
        return HL_NO_MEMORY;
    return hl_watch_begin(g->watch, g->generator, g->prompt.tokens, kinds, g->prompt.n_tokens);
}

static hl_status open_generation(generation *g)
{
    const generate_request *request = g->request;
    hl_session_options      session = {
             .n_ctx       = choose_context(g),
             .wants       = HL_WANT_LAST_DRAW,
             .cache_dtype = strcmp(request->cache, "f16") == 0 ? HL_DTYPE_F16 : HL_DTYPE_F32,
             .math        = hl_math_option(request->activations),
             .n_threads   = (int32_t)request->common.n_threads,
    };
    if (wants_watch(g))
        hl_watch_session(&session);
    hl_generate_options options = { .sample     = request->sample,
                                    .max_tokens = request->max_tokens,
                                    .ignore_end = request->ignore_end,
                                    .end_ids    = g->end_ids,
                                    .n_end_ids  = g->n_end_ids };

    g->result.n_ctx = session.n_ctx;
    HL_NEED(hl_session_open(&g->session, g->prompt.model, &session));
    if (wants_watch(g))
        HL_NEED(open_watch(g, &options));
    HL_NEED(hl_generator_open(&g->generator, g->session, &options));
    if (g->watch != NULL)
        HL_NEED(begin_watch(g));
    HL_NEED(hl_decode_stream_open(&g->stream, g->prompt.tokenizer,
                                  &(hl_decode_options){ .skip_special = true }));
    return hl_stop_words_new(&g->stop, request->stops.items, (size_t)request->stops.count);
}

/* -------------------------------------------------------------------- the text */

/* Writes text that has passed the search for stop words. */
static int put_text(generation *g, const char *text, size_t n_bytes)
{
    if (g->request->common.json)
        return fwrite(text, 1, n_bytes, g->result.shown) == n_bytes ? HL_EXIT_OK : out_of_memory();
    if (g->is_monitored)
        hl_monitor_show(&g->monitor, text, n_bytes);
    else
        show_text(text, n_bytes);
    return HL_EXIT_OK;
}

/* Shows text that the model did not generate, if there is a monitor. */
static int put_given(generation *g, const char *text, size_t n_bytes)
{
    hl_monitor_token look = { .n_bytes = n_bytes, .score = (double)NAN, .is_given = true };

    if (!hl_monitor_expect(&g->monitor, &look))
        return out_of_memory();
    hl_monitor_show(&g->monitor, text, n_bytes);
    return HL_EXIT_OK;
}

/* Passes one token's text through the search for stop words. */
static int put_token(generation *g, const held_token *held)
{
    const hl_generated *token   = &held->token;
    hl_monitor_token    look    = held->look;
    const char         *text    = "";
    size_t              n_bytes = 0;
    bool                found   = false;

    g->result.n_tokens++;
    if (token->stop != HL_STOP_END)
        HL_CALL("generate", hl_decode_stream_push(&text, &n_bytes, g->stream, token->id));
    look.n_bytes = n_bytes;
    if ((g->request->common.json &&
         !keep_token(&g->result, held, g->watch != NULL, text, n_bytes)) ||
        (g->is_monitored && !hl_monitor_expect(&g->monitor, &look)))
        return out_of_memory();
    HL_CALL("generate", hl_stop_words_push(&text, &n_bytes, &found, g->stop, text, n_bytes));
    g->result.stop = found ? HL_STOP_WORD : token->stop;
    return put_text(g, text, n_bytes);
}

/* Writes all but the last n_kept tokens, which may be drawn again, unless a stop word has ended the
 * text. */
static int release(generation *g, int64_t n_kept)
{
    int     code = HL_EXIT_OK;
    int64_t n    = 0;

    while (code == HL_EXIT_OK && n < g->n_held - n_kept && g->result.stop == HL_STOP_NONE)
        code = put_token(g, &g->held[n++]);
    g->n_held -= n;
    memmove(g->held, g->held + n, (size_t)g->n_held * sizeof *g->held);
    return code;
}

/* Passes a token to the watch, and applies its reaction. */
static int watch_token(generation *g, const hl_generated *token)
{
    const hl_watch_options *options = &g->request->spikes.options;
    const hl_trace         *trace   = hl_tracer_trace(hl_watch_tracer(g->watch));
    int64_t    n_kept  = options->on_spike == HL_ON_SPIKE_RESAMPLE ? options->resample_back : 0;
    hl_watched watched = { 0 };

    int64_t last = hl_trace_n_tokens(trace);
    HL_CALL("generate", hl_watch_add(&watched, g->watch, token));
    hl_spike_tell(&g->notes, &watched);
    if (watched.n_back > 0) {
        g->n_held -= watched.n_back - 1;
    } else {
        g->held[g->n_held++] =
            (held_token){ .token = *token,
                          .spike = watched.z,
                          .look  = hl_monitor_look(&g->monitor, trace, last, options->threshold) };
    }
    bool ends = watched.ends || (watched.n_back == 0 && token->stop != HL_STOP_NONE);
    int  code = release(g, ends ? 0 : n_kept);
    if (watched.ends && g->result.stop == HL_STOP_NONE)
        g->result.stop = HL_STOP_SPIKE;
    if (code == HL_EXIT_OK && watched.n_inserted_tokens > 0 && g->is_monitored)
        code = put_given(g, watched.inserted, watched.n_inserted_bytes);
    return code;
}

/* Writes all text that is still held back. */
static int put_rest(generation *g)
{
    const char *text    = "";
    size_t      n_bytes = 0;
    bool        found   = false;

    HL_CALL("generate", hl_decode_stream_finish(&text, &n_bytes, g->stream));
    HL_CALL("generate", hl_stop_words_push(&text, &n_bytes, &found, g->stop, text, n_bytes));
    HL_PASS(put_text(g, text, n_bytes));
    HL_CALL("generate", hl_stop_words_finish(&text, &n_bytes, g->stop));
    return put_text(g, text, n_bytes);
}

static int make_text(generation *g)
{
    hl_generated token = { 0 };
    double       begin = hl_clock_now();

    HL_CALL("generate", hl_generator_prompt(g->generator, g->prompt.tokens, g->prompt.n_tokens));
    g->result.n_prompt       = g->prompt.n_tokens;
    g->result.prompt_seconds = hl_clock_now() - begin;
    begin                    = hl_clock_now();
    while (g->result.stop == HL_STOP_NONE) {
        HL_CALL("generate", hl_generator_next(&token, g->generator));
        HL_PASS(g->watch != NULL ? watch_token(g, &token)
                                 : put_token(g, &(held_token){ .token = token }));
    }
    g->result.seconds = hl_clock_now() - begin;
    return put_rest(g);
}

/* On a terminal, says whether the prompt was formatted as a chat. */
static void say_way(const generation *g)
{
    if (hl_tokenizer_chat_template(g->prompt.tokenizer) == NULL || g->request->common.quiet ||
        g->request->common.json || isatty(STDERR_FILENO) == 0)
        return;
    if (g->prompt.is_chat)
        hl_complain("generate",
                    "using the model's chat template: the prompt is a user's turn; --raw continues "
                    "it as it is");
    else
        hl_complain("generate", "continuing the prompt as it is; without --raw it would be a "
                                "user's turn of the chat template");
}

/* Says so if no token was generated, since an empty output could look like a failure. */
static void say_empty(const generation *g)
{
    bool has_template = hl_tokenizer_chat_template(g->prompt.tokenizer) != NULL;

    if (g->request->common.quiet || g->result.stop != HL_STOP_END || g->result.n_tokens != 1)
        return;
    hl_complain("generate", "no text: the first token was the model's end-of-text token%s",
                has_template && !g->prompt.is_chat
                    ? "; this model has a chat template, which --raw leaves out"
                    : " (--ignore-end continues anyway)");
}

/* Prints the line after the text, and the notes that were delayed. */
static void end_text(generation *g)
{
    int64_t n_entities = 0;
    int64_t n_spikes   = g->watch != NULL ? hl_watch_n_spikes(g->watch, &n_entities) : 0;

    if (g->is_monitored)
        hl_monitor_finish(&g->monitor, g->request->spikes.options.threshold, n_spikes, n_entities);
    else
        printf("\n");
    fflush(stdout);
    if (g->watch != NULL)
        hl_spike_finish(&g->notes);
}

static hl_status write_trace(generation *g)
{
    const hl_spike_request *request = &g->request->spikes;
    hl_tracer              *tracer  = hl_watch_tracer(g->watch);

    if (request->exact_rows)
        HL_NEED(hl_tracer_retrace(tracer, g->prompt.model, NULL,
                                  (int32_t)g->request->common.n_threads));
    return hl_trace_write(hl_tracer_trace(tracer), request->trace_path);
}

static int finish(generation *g)
{
    const generate_request *request = g->request;

    if (request->spikes.trace_path != NULL)
        HL_CALL("generate", write_trace(g));
    if (g->watch != NULL && request->spikes.on_spike != NULL)
        g->result.events = g->notes.events;
    if (g->prompt.is_chat)
        g->result.chat_format = hl_chat_format_name(g->prompt.chat_format);
    say_empty(g);
    if (request->common.json)
        return fflush(g->result.shown) == 0 &&
                       print_json(&g->result, request->arguments.items[0], request->common.seed)
                   ? HL_EXIT_OK
                   : out_of_memory();
    end_text(g);
    if (request->stats)
        print_stats(&g->result);
    else if (g->result.stop == HL_STOP_CONTEXT && !request->common.quiet)
        hl_complain("generate",
                    "stopped: the context of %lld tokens is full; --context N allows more",
                    (long long)g->result.n_ctx);
    return HL_EXIT_OK;
}

static void close_generation(generation *g)
{
    hl_stop_words_free(g->stop);
    hl_decode_stream_close(g->stream);
    hl_generator_close(g->generator);
    hl_watch_close(g->watch);
    hl_spike_close(&g->notes);
    hl_monitor_free(&g->monitor);
    hl_session_close(g->session);
    hl_opened_prompt_close(&g->prompt);
    json_decref(g->result.tokens);
    if (g->result.shown != NULL)
        fclose(g->result.shown);
    free(g->result.text);
}

/* Starts the monitor on a terminal, unless the user disabled it. */
static void start_monitor(generation *g)
{
    const generate_request *request = g->request;

    g->is_monitored = isatty(STDOUT_FILENO) && !request->common.json && !request->common.quiet &&
                      !request->no_monitor;
    if (g->is_monitored)
        hl_monitor_start(&g->monitor, stdout, hl_terminal_depth(stdout), hl_terminal_width(stdout),
                         hl_model_get_info(g->prompt.model)->n_layers);
}

/* Shows the prompt before the text, if there is a monitor. */
static int show_prompt(generation *g)
{
    hl_colors colors = hl_terminal_colors(stdout);

    if (g->is_monitored)
        return put_given(g, g->prompt.text, g->prompt.n_bytes);
    if (isatty(STDOUT_FILENO) == 0)
        return HL_EXIT_OK;
    fputs(colors.dim, stdout);
    show_text(g->prompt.text, g->prompt.n_bytes);
    fputs(colors.plain, stdout);
    fflush(stdout);
    return HL_EXIT_OK;
}

int hl_command_generate(int argc, char **argv)
{
    generate_request request = { .spikes = hl_spike_defaults(), .max_tokens = 128, .cache = "f32" };
    HL_KEPT(close_generation) generation g    = { .request = &request };
    int                                  code = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    HL_PASS(open_prompt(&g));
    find_ends(&g);
    start_monitor(&g);
    HL_CALL("generate", open_generation(&g));
    if (request.common.json) {
        g.result.tokens = json_array();
        g.result.shown  = open_memstream(&g.result.text, &g.result.n_text);
        if (g.result.tokens == NULL || g.result.shown == NULL)
            return out_of_memory();
    }
    say_way(&g);
    if (!request.common.json && !request.common.quiet && !g.prompt.is_chat)
        HL_PASS(show_prompt(&g));
    HL_PASS(make_text(&g));
    return finish(&g);
}
